"""The package keeps its promises: metadata, names, imports, no code in data files, nothing changed on import."""

import ast
import configparser
import inspect
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import ppl

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "ppl").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def short(path):
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def setup():
    """The metadata as written in setup.cfg."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def python(program, *words, **environment):
    """Run a program in a process of its own; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Metadata


def test_metadata_is_in_one_place(setup):
    assert set(tomllib.loads((ROOT / "pyproject.toml").read_text())) == {"build-system"}
    assert setup["metadata"]["name"] == "ppl-jax"
    assert setup["metadata"]["license_expression"] == "Apache-2.0"
    assert setup["options"]["python_requires"] == ">=3.11"
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]
    assert (ROOT / "ppl" / "py.typed").is_file()


def test_no_dependency_has_an_upper_bound(setup):
    groups = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    for line in "\n".join(groups).split():
        assert not re.search(r"<|==|~=", line), line
    core = {re.match(r"[\w-]+", line)[0] for line in setup["options"]["install_requires"].split()}
    assert core == {"jax", "jaxlib", "numpy", "scipy", "optax", "tqdm"}
    assert {"arviz", "test", "bench", "docs", "cuda12", "cuda13", "tpu"} == set(setup["options.extras_require"])
    for extra in ("cuda12", "cuda13", "tpu"):
        assert setup["options.extras_require"][extra].split() == [f"jax[{extra}]"]


def test_the_core_installs_at_most_twelve_packages(setup):
    """Counted over what is installed here, `ppl-jax` itself included."""
    from importlib.metadata import requires

    wanted, found = {re.match(r"[\w-]+", line)[0] for line in setup["options"]["install_requires"].split()}, set()
    while wanted:
        name = wanted.pop()
        found.add(name.lower().replace("_", "-"))
        for line in requires(name) or []:
            other = re.match(r"[\w.-]+", line)[0].lower().replace("_", "-")
            if not re.search("extra ==|_(platform|system) ==", line) and other not in found:
                wanted.add(other)
    assert len(found) + 1 <= 12, sorted(found)


def test_every_place_names_the_same_version(setup):
    version = ppl.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert setup["metadata"]["version"] == "attr: ppl.version.__version__"
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == version
    for field in ("cff-version", "message", "title", "authors", "date-released", "license"):
        assert re.search(rf"^{field}:", citation, re.M), field
    date = re.search(r"^date-released: (.*)$", citation, re.M)[1]
    assert f"## {version} ({date})" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_resolve_inside_the_repository(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not link.startswith(("http://", "https://", "mailto:")):
            assert (ROOT / link).exists(), f"{page} links {link}"
    for path in re.findall(r"`((?:tests|ppl|docs|notebooks|benchmarks|\.ci)/[\w./]*)`", text):
        assert (ROOT / path).exists(), f"{page} names {path}"


def test_files_of_the_metadata_exist(setup):
    assert (ROOT / setup["metadata"]["long_description"].removeprefix("file: ")).is_file()
    for name in setup["metadata"]["license_files"].split():
        assert (ROOT / name).is_file()


def test_policies_are_stated():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert "## Deprecation policy" in contributing and "at least two minor releases" in contributing
    assert "## Supported versions" in contributing
    assert "How to report" in (ROOT / "SECURITY.md").read_text()
    headings = (ROOT / "CHANGELOG.md").read_text()
    assert all(f"**{heading}**" in headings for heading in ("Breaking", "Draws change", "Added", "Fixed", "Deprecated"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with two builds: `first` of the wheel, `second` of the source distribution and of a wheel from it."""
    import shutil

    folder = tmp_path_factory.mktemp("built")
    for name in ("ppl", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    for build, kinds in (("first", ["--wheel"]), ("second", [])):
        shutil.rmtree(folder / "build", ignore_errors=True)
        command = [sys.executable, "-m", "build", *kinds, "--no-isolation", "--outdir", str(folder / build)]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1764460800"}
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def packaged():
    """Return the files of the package, as archives name them."""
    files = (p for p in (ROOT / "ppl").rglob("*") if p.is_file() and p.suffix != ".pyc")
    return {short(p).replace(os.sep, "/") for p in files}


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone_and_builds_the_same_twice(built):
    """The second is built from the source distribution."""
    wheels = [next((built / build).glob("ppl_jax-*-py3-none-any.whl")) for build in ("first", "second")]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = {n for n in wheel.namelist() if ".dist-info/" not in n}
        metadata = wheel.read(next(n for n in wheel.namelist() if n.endswith("/METADATA"))).decode()
    assert names == packaged()
    assert "License-Expression: Apache-2.0" in metadata


@pytest.mark.slow
def test_the_source_distribution_holds_what_a_build_needs_and_nothing_else(built):
    with tarfile.open(next((built / "second").glob("ppl_jax-*.tar.gz"))) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    needed = {"setup.cfg", "pyproject.toml", "README.md", "LICENSE"}
    assert {n for n in names if "egg-info/" not in n} == packaged() | needed | {"PKG-INFO"}


# Names


MODULES = ("data", "distributions", "infer", "supports")  # of `ppl`, as users write them


def public_names():
    """Return every public name, as `ppl.Normal` or `ppl.infer.hmc`."""
    names = []
    for module in (ppl, ppl.infer, ppl.data, ppl.supports):
        listed = getattr(module, "__all__", None) or vars(module)
        names += [f"{module.__name__}.{name}" for name in listed if is_public(module, name)]
    return sorted(names)


def is_public(module, name):
    """Tell whether a name belongs to the interface: not private, and not a file that was imported by the way."""
    if name.startswith("_"):
        return False
    return not inspect.ismodule(getattr(module, name)) or (module is ppl and name in MODULES)


def test_public_names_are_those_of_the_golden_file():
    golden = (ROOT / "tests" / "golden" / "public_names.txt").read_text().split()
    assert public_names() == golden, "edit tests/golden/public_names.txt by hand, and CHANGELOG.md with it"


def test_every_public_name_is_documented():
    for name in public_names():
        thing = ppl
        for part in name.split(".")[1:]:
            thing = getattr(thing, part)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), name


# What the sources may not do


@pytest.mark.parametrize("path", SOURCES, ids=short)
def test_no_code_is_loaded_from_data(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] not in ("pickle", "marshal", "dill", "joblib", "cloudpickle", "shelve"), name
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant) and node.value.value is False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec"), f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=short)
def test_only_public_jax_is_used(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        else:
            continue
        for name in names:
            assert not re.match(r"jax\.(core|_src|pmap|interpreters)\b|jaxlib\.(?!__version__)", name), name


@pytest.mark.parametrize("path", SOURCES, ids=short)
def test_the_library_prints_nothing(path):
    if path.name == "__main__.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", TESTS, ids=short)
def test_no_test_may_fail_or_is_tried_again(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("xfail", "flaky", "rerun", "reruns"), f"{path}:{node.lineno}"


# Tests that take `seed` or `key` and hold for each of them, by why they do.
WHATEVER_IS_DRAWN = {
    "two ways to one number are compared at a random point": [
        "test_a_variable_is_of_use_without_jit",
        "test_the_low_rank_law_is_a_normal_law",
        "test_a_flow_is_a_bijection_with_its_volume",
        "test_a_masked_layer_looks_back_only",
        "test_a_flow_is_the_law_of_a_random_variable",
        "test_the_density_is_that_of_the_formula",
        "test_a_state_not_yet_evaluated_is_evaluated_in_place",
        "test_a_position_may_be_a_pytree",
        "test_the_random_words_are_those_of_threefry",
        "test_a_step_uphill_is_always_accepted",
        "test_the_rate_is_the_ratio_of_the_densities",
        "test_apply_and_transpose_are_transposes",
        "test_the_diagonal_of_independent_gaussians_is_exact_from_few_draws",
        "test_samplers_and_predictions_take_it",
    ],
    "the same draws are made twice": [
        "test_measuring_changes_nothing_but_the_report",
        "test_momenta_are_equal_bit_for_bit_on_every_mesh",
        "test_replay_of_a_trace_gives_its_log_joint",
        "test_a_loop_equals_the_model_written_out",
        "test_a_loop_returns_what_the_written_out_model_returns",
        "test_a_longer_loop_repeats_the_draws_of_the_shorter_one",
        "test_a_value_shorter_than_the_loop_gives_its_first_steps_and_the_rest_is_drawn",
        "test_short_values_in_nested_loops",
        "test_a_second_loop_forecasts_from_the_end_of_the_first",
        "test_draws_inside_loops_do_not_move_when_variables_are_added",
        "test_adding_or_moving_a_variable_moves_no_other_draw",
    ],
    "a bound or a flag of a transition, far from any border": [
        "test_the_search_for_a_turn_is_bounded",
        "test_a_density_that_breaks_off_ends_the_trajectory_and_moves_nowhere",
        "test_the_depth_is_bounded_and_reported",
        "test_an_energy_error_past_a_thousand_is_a_divergence",
        "test_a_start_of_low_density_is_no_divergence",
        "test_without_warm_up_a_given_step_size_is_kept",
    ],
}


@pytest.fixture(scope="module")
def collected():
    """All tests, collected in another process: `[(name, false-alarm rate or None, whether it takes seed or key)]`."""
    program = """
import json, pytest, sys

def row(item):
    rates = [mark.args[0] for mark in item.iter_markers("false_alarm")][:1] or [None]
    given = getattr(getattr(item, "callspec", None), "params", {})
    return item.name.split("[")[0], rates[0], bool({"seed", "key"} & set(item.fixturenames) - set(given))

class Rows:
    def pytest_collection_finish(self, session):
        print("\\nRESULT" + json.dumps([row(item) for item in session.items]))

sys.exit(pytest.main(["tests", "--collect-only", "-q", "-q", "-p", "no:cacheprovider"], plugins=[Rows()]))
"""
    return json.loads(next(line[6:] for line in python(program).splitlines() if line.startswith("RESULT")))


def test_the_suite_rarely_fails_by_chance(collected):
    """The stated false-alarm rates of all tests, added up."""
    rate = sum(rate or 0 for _, rate, _ in collected)
    assert len(collected) > 100
    assert rate <= 1e-4, f"the suite fails by chance once in {1 / rate:.0f} runs"


def test_each_random_test_states_its_rate(collected):
    certain = {name for names in WHATEVER_IS_DRAWN.values() for name in names}
    random = {name for name, rate, takes_seed in collected if rate is None and takes_seed}
    assert random - certain == set(), "give them @pytest.mark.false_alarm(rate), or say why they hold for every seed"
    assert certain - random == set(), "these state a rate, or are gone"


# Import


def test_importing_takes_little_longer_than_jax_alone():
    """Processor time, the best of five: 0.1 s, or a sixth of what jax itself takes on a slow or busy machine."""
    program = """
import time
start = time.process_time()
import jax
between = time.process_time()
import ppl
print(time.process_time() - between, between - start)
"""
    times = []
    for _ in range(5):
        own, jax_alone = map(float, python(program, PYTHONDONTWRITEBYTECODE="").split())
        if own <= max(0.1, jax_alone / 6):
            return
        times.append((own, jax_alone))
    raise AssertionError(f"seconds for ppl and for jax: {times}")


def test_importing_loads_nothing_that_may_come_later():
    program = "import jax; import ppl, sys; print(*sys.modules)"
    loaded = set(python(program).split())
    late = {
        "scipy.stats",
        "matplotlib",
        "xarray",
        "pandas",
        "optax",
        "tqdm",
        "arviz_base",
        "arviz_stats",
        "IPython",
        "zarr",
    }
    assert not late & loaded
    assert not {"pickle", "dill", "joblib"} & {m for m in loaded if m in ("dill", "joblib")}


def test_importing_changes_no_setting_of_jax():
    program = """
import jax
before = dict(jax.config.values)
import ppl
after = dict(jax.config.values)
print({name: (before.get(name), after[name]) for name in after if after[name] != before.get(name)})
"""
    assert python(program).strip() == "{}"


def test_importing_starts_no_backend_and_no_thread():
    program = """
import threading, jax, ppl
print(threading.active_count())
jax.config.update("jax_num_cpu_devices", 3)  # an error once a backend has started
print(len(jax.devices()))
"""
    assert python(program).split() == ["1", "3"]


# The command line


def test_the_command_line_knows_its_version_and_its_exit_status(tmp_path):
    def run(*words):
        command = [sys.executable, "-m", "ppl", *words]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "JAX_PLATFORMS": "cpu"}
        )

    version = run("--version")
    assert (version.returncode, version.stdout) == (0, f"ppl {ppl.__version__}\n")
    assert run("--verison").returncode == 2
    missing = run("summary", str(tmp_path / "missing.nc"))
    assert missing.returncode == 1 and "missing.nc" in missing.stderr and "Traceback" not in missing.stderr
    (tmp_path / "other.nc").write_bytes(b"no result")
    other = run("summary", str(tmp_path / "other.nc"))
    assert other.returncode == 1 and "Traceback" not in other.stderr
