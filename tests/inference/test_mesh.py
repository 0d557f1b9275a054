"""Sharded equals unsharded: the same random numbers bit for bit, the same draws up to rounding, few exchanges."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import FACTORS, FACTORS_ROWS, LOGISTIC, LOGISTIC_ROWS, MESHES, factors, logistic, mesh_of, text_on

import ppl
from ppl import ModelError, Normal, infer
from ppl.inference import hmc
from ppl.inference.exchanges import exchanges

SAMPLERS = {
    "nuts": dict(step_size=0.2, max_depth=5),
    "hmc": dict(step_size=0.2, num_steps=5),
    "metropolis": dict(scale=0.3),
}


def run(kernel, model, data, **more):
    """Ten transitions with nothing to tune, so that rounding does not grow into another path."""
    settings = dict(chains=4, draws=10, warmup=0, seed=5, progress=False) | SAMPLERS[kernel] | more
    with pytest.warns(ppl.InferenceWarning):  # ten draws are few
        return getattr(infer, kernel)(model, data, **settings)


_plain = {}


def plain(kernel, model, data):
    """The same run on one device, made once."""
    if (kernel, model) not in _plain:
        _plain[kernel, model] = run(kernel, model, data)
    return _plain[kernel, model]


def close(found, expected):
    for name in expected:
        np.testing.assert_allclose(np.asarray(found[name]), expected[name], rtol=2e-3, atol=2e-3, err_msg=name)
    np.testing.assert_allclose(found.stats["lp"], expected.stats["lp"], rtol=1e-3, atol=5e-3)


@pytest.mark.parametrize("name", MESHES)
def test_divided_data_give_the_same_draws_on_every_mesh(name):
    found = run("nuts", logistic, LOGISTIC, mesh=mesh_of(name), sharding=LOGISTIC_ROWS)
    close(found, plain("nuts", logistic, LOGISTIC))


@pytest.mark.parametrize("name", ["1", "2", "4", "8", "2x4 explicit"])
def test_divided_latents_give_the_same_draws_on_every_mesh(name):
    mesh = mesh_of(name)
    found = run("hmc", factors, FACTORS, mesh=mesh, sharding=FACTORS_ROWS)
    close(found, plain("hmc", factors, FACTORS))
    if mesh.size > 1:
        chain = "chains" if "chains" in mesh.axis_names else None
        assert found["users"].sharding.spec == P(chain, None, "rows")
        assert found["length"].sharding.spec == P(chain, None, "rows")
        assert found.state["inv_metric/users"].sharding.spec == P(chain, "rows")
        shard = found["users"].addressable_shards[0].data.shape
        assert shard == (4 // (2 if chain else 1), 10, 48 // mesh.shape["rows"], 2)
        assert isinstance(found["movies"], np.ndarray)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4", "2x4", "2x4 explicit"])
@pytest.mark.parametrize("kernel", ["nuts", "metropolis"])
def test_divided_latents_in_every_sampler(kernel, name):
    close(run(kernel, factors, FACTORS, mesh=mesh_of(name), sharding=FACTORS_ROWS), plain(kernel, factors, FACTORS))


def test_warm_up_goes_the_same_way_on_a_mesh(x64):
    """In double precision rounding stays small for as long as the whole warm-up lasts."""
    settings = dict(chains=2, draws=5, warmup=30, seed=3, step_size=None, max_depth=6)
    data = {"num_users": 48, "rating": FACTORS["rating"].astype(float)}
    expected = run("nuts", factors, data, **settings)
    found = run("nuts", factors, data, mesh=mesh_of("2x4"), sharding=FACTORS_ROWS, **settings)
    np.testing.assert_allclose(found.stats["step_size"], expected.stats["step_size"], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(found["users"]), expected["users"], rtol=1e-4, atol=1e-5)
    metric = np.concatenate(
        [np.asarray(found.state[f"inv_metric/{n}"]).reshape(2, -1) for n in ("spread", "users", "movies")], 1
    )
    np.testing.assert_allclose(metric, expected.state["inv_metric"], rtol=1e-5)


def test_data_that_lie_on_a_mesh_need_no_entry():
    for name in ("4", "2x4 explicit"):
        rows = NamedSharding(mesh_of(name), P("rows"))
        data = {n: jax.device_put(v, rows) for n, v in LOGISTIC.items()}
        found = run("hmc", logistic, data)
        close(found, plain("hmc", logistic, LOGISTIC))
        assert found.settings["mesh"] == dict(mesh_of(name).shape)


def by_feature(X):
    """`logistic`, with data that are kept feature by feature."""
    w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
    b = yield Normal(0.0, 1.0, name="b")
    yield ppl.Bernoulli(logits=ppl.linear(X, w, b), name="y")


def test_data_kept_feature_by_feature_are_divided_by_rows():
    mesh = mesh_of("2x4 explicit")
    found = run("nuts", by_feature, LOGISTIC, mesh=mesh, sharding=LOGISTIC_ROWS)
    close(found, plain("nuts", logistic, LOGISTIC))
    laid = {n: jax.device_put(v, NamedSharding(mesh, P("rows"))) for n, v in LOGISTIC.items()}
    close(run("nuts", by_feature, laid), found)
    assert [e.kind for e in exchanges(text_on(by_feature, LOGISTIC, mesh, LOGISTIC_ROWS, "nuts"))] == ["all-reduce"]
    row = next(row for row in ppl.plan(by_feature, LOGISTIC, mesh=mesh, sharding=LOGISTIC_ROWS).rows if row.name == "X")
    assert (row.shape, row.local) == ((64, 3), (16, 3))
    with pytest.raises(ModelError, match="'X'.* has length 64 on axis 0, which 3 devices do not divide"):
        three = jax.make_mesh((3,), ("rows",), devices=jax.devices()[:3])
        ppl.plan(by_feature, LOGISTIC, mesh=three, sharding={"X": P("rows")})


@pytest.mark.parametrize("name", ["1", "2", "4", "8", "2x4"])
def test_momenta_are_equal_bit_for_bit_on_every_mesh(name, key):
    mesh = mesh_of(name)
    position = (jnp.zeros(()), jnp.zeros((48, 2)), jnp.zeros(7))
    flat, words = hmc.draw_momentum(key, jnp.zeros(1 + 96 + 7))
    specs = (P(), P("rows"), P())
    draw = jax.jit(hmc.draw_momentum, out_shardings=(tuple(NamedSharding(mesh, s) for s in specs), None))
    momentum, same = draw(key, position)
    np.testing.assert_array_equal(np.concatenate([np.ravel(x) for x in momentum]), flat)
    np.testing.assert_array_equal(same, words)


def test_shared_values_are_equal_on_all_devices_and_parts_differ():
    """U29: after a hundred transitions the copies of shared numbers are the same bits on each device of a chain's group."""
    mesh = mesh_of("2x4")
    found = run("nuts", factors, FACTORS, mesh=mesh, sharding=FACTORS_ROWS, draws=80, warmup=20, step_size=None)
    users = found["users"]
    parts = [np.asarray(s.data) for s in users.addressable_shards]
    assert len({part.tobytes() for part in parts}) == 8
    program, state, arrays, told = _ready(mesh)
    state, _ = program.call(state, arrays, np.int32(100), told)
    for shared in (state.chain.tuning.step_size, state.chain.kernel.log_density, state.chain.kernel.position[2]):
        copies = {}
        for shard in shared.addressable_shards:
            copies.setdefault(str(shard.index), set()).add(np.asarray(shard.data).tobytes())
        assert len(copies) == 2 and all(len(bits) == 1 for bits in copies.values())


def _ready(mesh):
    from meshes import program_on

    return program_on(factors, FACTORS, mesh, FACTORS_ROWS, "nuts")


@pytest.mark.parametrize("kernel", ["nuts", "hmc", "metropolis"])
def test_shared_latents_cost_one_exchange_per_gradient(kernel):
    found = exchanges(text_on(logistic, LOGISTIC, mesh_of("2x4"), LOGISTIC_ROWS, kernel))
    assert [e.kind for e in found] == ["all-reduce"]  # in the whole program: the gradient and the density, together
    assert found[0].bytes == (4 if kernel == "metropolis" else 5 * 4)


@pytest.mark.parametrize("kernel, inner", [("nuts", 4), ("hmc", 2)])
def test_divided_latents_cost_one_exchange_per_gradient_and_one_for_the_turns(kernel, inner):
    text = text_on(factors, FACTORS, mesh_of("2x4"), FACTORS_ROWS, kernel)
    found = exchanges(text)
    assert {e.kind for e in found} == {"all-reduce"}
    loops = [e for e in found if "is_finite" not in e.op and "main" not in e.computation and "pred" not in e.op]
    gradients = [e for e in loops if e.bytes >= 6 * 2 * 4]
    assert len(gradients) == 1 and gradients[0].bytes <= (6 * 2 + 5) * 4
    assert sum(e.computation == gradients[0].computation for e in found) == 1
    others = {e.computation for e in loops} - {gradients[0].computation}
    assert len(others) <= inner and max(e.bytes for e in loops if e not in gradients) <= 6 * 4
    # Nothing as long as all users: neither positions, momenta, metrics, sums of momenta nor draws.
    assert not re.search(r"\[(\d+,)*(48|96)(,\d+)*\]", text)


@pytest.mark.parametrize("chains", [1, 3, 5])
def test_a_number_of_chains_that_the_groups_do_not_divide_is_refused(chains):
    nearest = "number is 2" if chains == 1 else f"numbers are {chains - 1} and {chains + 1}"
    with pytest.raises(ModelError, match=f"chains={chains}: the mesh has 2 groups .* the nearest {nearest}"):
        infer.nuts(logistic, LOGISTIC, chains=chains, mesh=mesh_of("2x4"), sharding=LOGISTIC_ROWS)


def refused(sharding, data=LOGISTIC, model=logistic, mesh="4"):
    with pytest.raises(ModelError) as caught:
        infer.nuts(model, data, mesh=mesh and mesh_of(mesh), sharding=sharding, progress=False)
    return str(caught.value)


def test_mistakes_in_the_specs_are_named():
    assert "sharding has 'Y', which is neither" in refused({"Y": P("rows")}) and "Did you mean 'y'" in refused(
        {"Y": P("rows")}
    )
    assert "names the axis 'row'; the mesh has rows. Did you mean 'rows'?" in refused({"X": P("row")})
    assert "'chains' spreads chains" in refused({"X": P("chains")}, mesh="2x4")
    assert "a jax.sharding.PartitionSpec, such as PartitionSpec('rows'), not str" in refused({"X": "rows"})
    assert "sharding= was given and no mesh" in refused({"X": P("rows")}, mesh=None)
    assert "mapping from names to specs" in refused(P("rows"))
    uneven = {"X": LOGISTIC["X"][:61], "y": LOGISTIC["y"][:61]}
    text = refused(LOGISTIC_ROWS, uneven)
    assert "has length 61 on axis 0, which 4 devices do not divide: the nearest lengths that fit are 60 and 64" in text
    assert "ppl.pad(model, data, ...)" in text
    text = refused({"users": P("rows")}, {"num_users": 401}, factors)
    assert "'users' (Normal) has length 401 on axis 0, which 4 devices do not divide" in text and "400 and 404" in text


def line(x):
    a = yield Normal(0.0, 1.0, name="a")
    b = yield Normal(0.0, 1.0, name="b")
    yield Normal(a + b * x, 0.5, name="y")


LINE = {
    "x": (np.arange(8) / 8).astype(np.float32),
    "y": (1 + 2 * np.arange(8) / 8 + 0.1 * (-1.0) ** np.arange(8)).astype(np.float32),
}


@pytest.mark.parametrize("name", ["1", "2", "4", "8"])
def test_value_and_gradient_do_not_depend_on_the_number_of_devices(name):
    """U28."""
    rows = NamedSharding(mesh_of(name), P("rows"))
    density = ppl.log_density(line, {n: jax.device_put(v, rows) for n, v in LINE.items()})
    value, gradient = jax.jit(jax.value_and_grad(density))({"a": jnp.float32(0.5), "b": jnp.float32(1.5)})
    np.testing.assert_allclose(value, -13.5479579, rtol=1e-6)
    np.testing.assert_allclose([gradient["a"], gradient["b"]], [22.5, 9.675], rtol=1e-6)
    for number in gradient.values():
        assert len({np.asarray(s.data).tobytes() for s in number.addressable_shards}) == 1


@pytest.mark.false_alarm(1e-6)
def test_the_posterior_on_a_mesh_is_the_known_one(seed):
    """U28: means within five standard errors, which 4 numbers pass by chance once in a million."""
    found = infer.nuts(
        line,
        LINE,
        chains=4,
        draws=1000,
        seed=seed,
        progress=False,
        mesh=mesh_of("2x4"),
        sharding={"x": P("rows"), "y": P("rows")},
    )
    table = found.summary()
    for name, mean, sd in (("a", 1.1673956, 0.2784507), ("b", 1.5339960, 0.5122748)):
        row = table[name]
        assert abs(row["mean"] - mean) < 5.1 * row["mcse_mean"]
        assert abs(row["sd"] - sd) < 5.1 * row["mcse_sd"]


def test_a_run_on_a_mesh_goes_on_from_its_checkpoint(tmp_path):
    mesh, path = mesh_of("2x4"), tmp_path / "run.ckpt"
    more = dict(mesh=mesh, sharding=FACTORS_ROWS, chains=2)
    whole = run("hmc", factors, FACTORS, draws=8, **more)
    run("hmc", factors, FACTORS, draws=3, checkpoint=path, **more)
    again = run("hmc", factors, FACTORS, draws=8, checkpoint=path, **more)
    for name in whole:
        np.testing.assert_array_equal(np.asarray(again[name]), np.asarray(whole[name]))
    with pytest.raises(ModelError, match="checkpoint .* is of another run: mesh"):
        infer.hmc(factors, FACTORS, draws=8, warmup=0, seed=5, **SAMPLERS["hmc"], checkpoint=path, chains=2,
                  mesh=mesh_of("8"), sharding=FACTORS_ROWS, progress=False)  # fmt: skip


def test_kept_and_tracked_values_and_moments_on_a_mesh():
    def track(values):
        return {"first": values["users"][0, 0]}

    more = dict(keep=["spread"], track=track, keep_warmup=True, warmup=3, thin=2)
    expected = run("hmc", factors, FACTORS, **more)
    found = run("hmc", factors, FACTORS, mesh=mesh_of("2x4"), sharding=FACTORS_ROWS, **more)
    np.testing.assert_allclose(found["spread"], expected["spread"], rtol=2e-3)
    np.testing.assert_allclose(found.tracked["first"], expected.tracked["first"], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found.warmup["draws"]["spread"], expected.warmup["draws"]["spread"], rtol=2e-3)
    for kind in ("mean", "sd"):
        np.testing.assert_allclose(
            np.asarray(found.moments["users"][kind]), expected.moments["users"][kind], rtol=5e-3, atol=2e-3
        )
    assert found.moments["users"]["mean"].sharding.spec == P("rows")


def test_what_needs_whole_positions_is_refused(tmp_path):
    with pytest.raises(ModelError, match="metric='dense' needs whole positions"):
        infer.nuts(factors, FACTORS, mesh=mesh_of("4"), sharding=FACTORS_ROWS, metric="dense")
    with pytest.raises(ModelError, match="does not save the running means of divided variables"):
        infer.nuts(factors, FACTORS, mesh=mesh_of("4"), sharding=FACTORS_ROWS, keep=[], checkpoint=tmp_path / "x")


def unreachable(n):
    x = yield Normal(0.0, 1.0, shape=(n,), name="x")
    yield ppl.Factor(jnp.log(-jnp.exp(jnp.sum(x))), name="f")


def test_no_start_on_a_mesh_names_the_variable():
    with pytest.raises(ppl.StartError, match="First non-finite term at the last one: 'f'"):
        infer.hmc(unreachable, {"n": 8}, chains=2, mesh=mesh_of("2x4"), sharding={"x": P("rows")}, progress=False)
