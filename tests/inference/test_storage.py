"""Saved results: bit for bit the same, readable without ppl, harmless, and whole or refused."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import mesh_of
from models import SCHOOLS, flat_schools, schools
from saved_program import digest

from ppl import infer
from ppl.errors import FormatError, InferenceWarning, ModelError
from ppl.inference import netcdf, storage
from ppl.inference.posterior import Posterior

RESULTS = ("chain", "nuts", "devices", "example")
GROUPS = ("draws", "stats", "state", "coords", "tracked")


def example(chains=2, draws=5):
    generator = np.random.default_rng(0)
    lead = (chains, draws)
    return Posterior(
        {
            "mu": generator.normal(size=lead).astype(np.float32),
            "slopes/tau": generator.normal(size=(*lead, 3)),
            "größe": generator.normal(size=(*lead, 2, 2)),
            "count": generator.poisson(3.0, size=lead),
            "switch": generator.random(lead) < 0.5,
            "none": np.zeros((*lead, 0), np.float32),
        },
        stats={
            "lp": generator.normal(size=lead),
            "diverging": generator.random(lead) < 0.5,
            "n_steps": np.ones(lead, np.int32),
        },
        dims={"slopes/tau": ("group/name",), "größe": ("month", "side")},
        coords={
            "group/name": ["north", "", "süd"],
            "month": np.array(["2024-01", "2024-02"], "datetime64[ns]"),
            "side": [1.5, 2.5],
            "elsewhere": [1, 2, 3, 4],
        },
        settings={
            "algorithm": "hmc",
            "model": "model",
            "warmup": 400,
            "target_accept": np.float32(0.8),
            "names": ["a"],
        },
        timings={"total": 1.25},
        seed=[0, 7],
        versions={"ppl": "0.1.0"},
        state={
            "key": np.array([[2**32 - 1, 0], [1, 2]], np.uint32),
            "big": np.array([2**62, -(2**62)]),
            "huge": np.array([2**64 - 1], np.uint64),
            "0.chain['mu']": np.float32(3.0),
            "half": np.array([1.5, np.inf], np.float16),
            "brain": jnp.array([1.5, 3e38], jnp.bfloat16),
            "complex": np.array([1 + 2j]),
            "small": np.array([200], np.uint8),
        },
        warmup={"draws": {"mu": np.ones((chains, 3))}, "stats": {"lp": np.ones((chains, 3))}},
        interrupted=True,
        tracked={"norm": generator.normal(size=(*lead, 2))},
        moments={"w": {"mean": np.ones((3, 2), np.float32), "sd": np.ones((3, 2))}},
        roles={"mu": "derived"},
    )


def assert_same(one, two):
    for group in GROUPS:
        assert list(getattr(one, group)) == list(getattr(two, group))
        for name, array in getattr(one, group).items():
            assert_same_array(array, getattr(two, group)[name])
    for name in ("settings", "timings", "seed", "versions", "dims", "interrupted", "roles"):
        assert getattr(two, name) == getattr(one, name), name
    for field in ("warmup", "moments"):
        assert (getattr(one, field) is None) == (getattr(two, field) is None)
        for group, arrays in (getattr(one, field) or {}).items():
            for name, array in arrays.items():
                assert_same_array(array, getattr(two, field)[group][name])


def assert_same_array(one, two):
    assert (one.dtype, one.shape) == (two.dtype, two.shape)
    assert one.tobytes() == two.tobytes()


def test_round_trip_is_equal_bit_for_bit(tmp_path):
    posterior = example()
    assert posterior.save(tmp_path / "run.nc") == os.fspath(tmp_path / "run.nc")
    assert_same(posterior, storage.load(tmp_path / "run.nc"))
    assert os.listdir(tmp_path) == ["run.nc"]


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (3, 0)])
def test_round_trip_of_one_chain_and_of_no_draws(tmp_path, shape):
    posterior = Posterior({"x": np.ones((*shape, 2), np.float32)}, stats={"lp": np.ones(shape)})
    posterior.save(tmp_path / "run.nc")
    assert_same(posterior, storage.load(tmp_path / "run.nc"))


def test_round_trip_of_nothing(tmp_path):
    Posterior({}).save(tmp_path / "run.nc")
    assert_same(Posterior({}), storage.load(tmp_path / "run.nc"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    array=st.one_of(
        hnp.arrays(dtype, hnp.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=4))
        for dtype in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
    ),
    name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
)
def test_round_trip_of_any_array_under_any_name(tmp_path, array, name):
    posterior = Posterior({name: array}, stats={name: array}, tracked={name: array}, state={name: array})
    posterior.save(tmp_path / "run.nc")
    assert_same(posterior, storage.load(tmp_path / "run.nc"))


def test_nan_bits_survive(tmp_path):
    """A nan carries bits of its own; they are copied and not computed with."""
    words = np.array([[0x7FF8000000000001, 0xFFF8DEADBEEF0000]], np.uint64)
    posterior = Posterior({"x": words.view(np.float64)})
    posterior.save(tmp_path / "run.nc")
    assert (storage.load(tmp_path / "run.nc")["x"].view(np.uint64) == words).all()


@pytest.mark.filterwarnings("ignore:Duplicate dimension names")
def test_xarray_reads_the_file(tmp_path):
    xarray = pytest.importorskip("xarray")
    posterior = example()
    posterior.save(tmp_path / "run.nc")
    with xarray.open_dataset(tmp_path / "run.nc") as tree:
        assert tree["mu"].dims == ("chain", "draw")
        np.testing.assert_array_equal(tree["mu"], posterior["mu"])
        np.testing.assert_array_equal(tree["slopes.tau"], posterior["slopes/tau"])
        np.testing.assert_array_equal(tree["count"], posterior["count"])
        np.testing.assert_array_equal(tree["sample_stats.diverging"], posterior.stats["diverging"])
        np.testing.assert_array_equal(tree["state.key"], posterior.state["key"])
        assert tree["switch"].dtype == bool and tree["mu"].dtype == np.float32
        assert tree["slopes.tau"].sel({"group.name": "süd"}).shape == (2, 5)
        np.testing.assert_array_equal(tree["side"], [1.5, 2.5])


def test_scipy_reads_the_file(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    posterior = example()
    posterior.save(tmp_path / "run.nc")
    with scipy_io.netcdf_file(tmp_path / "run.nc", mmap=False) as file:
        np.testing.assert_array_equal(file.variables["mu"][:], posterior["mu"])


def test_a_name_of_an_axis_and_of_a_variable_may_be_alike_in_the_file(tmp_path):
    posterior = Posterior(
        {"a/b": np.ones((1, 2, 3)), "a.b": np.zeros((1, 2)), "chain": np.ones((1, 2)), "draw": np.ones((1, 2, 2))},
        coords={"a_b": [1], "a.b": [2, 3]},
    )
    posterior.save(tmp_path / "run.nc")
    assert_same(posterior, storage.load(tmp_path / "run.nc"))


@pytest.mark.parametrize("at", [0, 3, 4, 40, 70, 130, 400, -1, -9])
def test_a_flipped_bit_is_noticed(tmp_path, at):
    path = tmp_path / "run.nc"
    example().save(path)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"run\.nc"):
        storage.load(path)


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "run.nc"
    example().save(path)
    content = path.read_bytes()
    for length in [0, 1, 3, 4, 5, *range(8, len(content), 331), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(FormatError, match=r"run\.nc"):
            storage.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(FormatError, match="damaged"):
        storage.load(path)


class Hostile:
    """Unpickling it makes a folder."""

    def __init__(self, path):
        self.path = os.fspath(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_is_refused_and_runs_nothing(tmp_path):
    path, made = tmp_path / "run.nc", tmp_path / "made"
    path.write_bytes(pickle.dumps(Hostile(made)))
    with pytest.raises(FormatError) as error:
        storage.load(path)
    assert "run.nc' is not a saved posterior: it begins with b'\\x80\\x04" in str(error.value)
    assert "Nothing in it was run. Give a file that posterior.save wrote." in str(error.value)
    assert not made.exists()
    np.save(path, np.array([Hostile(made)], object), allow_pickle=True)
    with pytest.raises(FormatError):
        storage.load(tmp_path / "run.nc.npy" if not path.exists() else path)
    assert not made.exists()


def sealed(content):
    """Put the checksum of the content into its seal, as a hostile writer could."""
    start, end = storage.SEAL.search(content).span(2)
    content[start:end] = b"0" * 64
    content[start:end] = hashlib.sha256(content).hexdigest().encode()
    return content


def test_a_newer_format_is_refused_by_number(tmp_path):
    path = tmp_path / "run.nc"
    example().save(path)
    path.write_bytes(sealed(bytearray(path.read_bytes().replace(b"posterior, format 1", b"posterior, format 9"))))
    with pytest.raises(FormatError) as error:
        storage.load(path)
    assert str(error.value).endswith(
        "run.nc' has format 9, and this version of ppl reads formats up to 1. Install a newer version to read it."
    )


def test_nonsense_with_a_right_checksum_is_refused(tmp_path):
    """Whatever a hostile writer puts into the file, reading it ends in a FormatError or in a posterior."""
    path = tmp_path / "run.nc"
    example().save(path)
    content = path.read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(200):
        changed = bytearray(content)
        for at in generator.integers(0, len(content) // 2, size=3):
            changed[at] = generator.integers(256)
        if storage.SEAL.search(changed) is None:
            continue
        path.write_bytes(sealed(changed))
        try:
            assert isinstance(storage.load(path), Posterior)
        except FormatError as error:
            assert "run.nc" in str(error)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "run.nc"
    example().save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(netcdf, "write", full)
    with pytest.raises(OSError, match="no space left"):
        example(3, 4).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.nc"]


def test_records_that_json_cannot_hold_are_named(tmp_path):
    with pytest.raises(ModelError, match="settings of the posterior cannot be saved as JSON"):
        Posterior({}, settings={"f": len}).save(tmp_path / "run.nc")
    assert not os.listdir(tmp_path)


def test_a_missing_file_is_what_it_is(tmp_path):
    with pytest.raises(FileNotFoundError):
        storage.load(tmp_path / "run.nc")


def test_large_offsets_are_written_in_64_bits():
    """Behind a variable of 6 GB: its size is capped as the format says, and the offset after it is right."""
    big = np.broadcast_to(np.zeros((), np.float32), (3 * 2**29,))
    head = netcdf.header({"n": big.size}, {}, [("x", ["n"], big, {}), ("y", [], np.zeros((), np.int8), {})])
    assert head.count(b"\xff\xff\xff\xff") == 1
    assert head.endswith((len(head) + 6 * 2**30).to_bytes(8, "big"))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Results of real runs, and what another process, on one CPU, found in their files."""
    folder = tmp_path_factory.mktemp("results")
    mesh, rows = mesh_of("2x4"), {name: P("rows") for name in ("sigma", "y", "theta")}
    short = dict(draws=20, warmup=20, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        runs = {
            "chain": infer.hmc(flat_schools, SCHOOLS, chains=1, **short),
            "devices": infer.hmc(schools, SCHOOLS, mesh=mesh, sharding=rows, chains=2, **short),
            "example": example(),
        }
        for name, sampler in (("hmc", infer.hmc), ("nuts", infer.nuts)):
            sampler(flat_schools, SCHOOLS, checkpoint=folder / f"{name}.checkpoint", **short)
            runs[name] = sampler(flat_schools, SCHOOLS, **{**short, "draws": 40})
    for name in RESULTS:
        repr(runs[name])
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(runs[name]))
        runs[name].save(folder / f"{name}.nc")
    tests = os.path.dirname(os.path.dirname(__file__))
    path = os.pathsep.join([os.path.dirname(tests), tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    command = [sys.executable, os.path.join(tests, "inference", "saved_program.py"), os.fspath(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return runs, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("file", ["pickle", "nc"])
@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_the_same_in_another_process(elsewhere, name, file):
    """Draws, statistics, state and settings, of one chain, of some, and of draws divided between devices."""
    runs, found = elsewhere
    assert found[f"{name}.{file}"] == digest(runs[name])


@pytest.mark.parametrize("sampler", ["hmc", "nuts"])
def test_another_process_goes_on_from_a_checkpoint(elsewhere, sampler):
    """20 draws here and 20 there equal 40 in one go, bit for bit."""
    runs, found = elsewhere
    assert found[f"{sampler}.checkpoint"] == {name: draws.tobytes().hex() for name, draws in runs[sampler].items()}


def test_pickled_draws_are_numpy_also_in_double_precision(x64):
    """A process without `jax_enable_x64` would cut arrays of jax."""
    x = jax.device_put(np.ones((2, 3, 8)) / 3, NamedSharding(mesh_of("8"), P(None, None, "rows")))
    pickled = pickle.loads(pickle.dumps(Posterior({"z": np.ones((2, 3)), "x": x})))
    assert list(pickled) == ["z", "x"] and isinstance(pickled["x"], np.ndarray) and pickled["x"].dtype == float
