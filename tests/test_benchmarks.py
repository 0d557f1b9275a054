"""The benchmarks run: `ppl` and hand-written code on tiny sizes, and the table of what they leave."""

import importlib
import json
import sys
import types

import numpy as np
import pytest


@pytest.fixture
def benchmarks():
    """Import modules of `benchmarks` by name."""
    yield lambda name: importlib.import_module(f"benchmarks.{name}")
    for name in [n for n in sys.modules if n.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def options(case, peer, **changes):
    """Return the options of a tiny run."""
    return types.SimpleNamespace(
        case=case, peer=peer, variant=peer.partition(":")[2], **{"chains": 2, "draws": 20, "warmup": 20, **changes}
    )


@pytest.mark.parametrize("name", ["eight_schools", "logistic", "radon", "gaussian_process", "funnel_512"])
def test_the_model_and_the_density_by_hand_differ_by_a_constant(benchmarks, name):
    import jax.numpy as jnp

    import ppl

    case = benchmarks("cases").load(name)
    data = {k: jnp.asarray(v) for k, v in case.data(0).items()}
    bound = ppl.log_density(case.ppl(), data)
    rng = np.random.default_rng(0)
    difference = []
    for _ in range(3):
        z = {k: jnp.asarray(0.3 * rng.normal(size=shape), jnp.float32) for k, shape in case.START.items()}
        by_name = iter(z.values())
        position = {k: next(by_name) for k in bound.latents} if len(bound.latents) == len(z) else z
        difference.append(float(bound(position)) - float(case.log_density(z, data)))
        natural, ours = case.natural(z, data), bound.constrain(position)
        for variable in case.NAMES:
            np.testing.assert_allclose(ours[variable], natural[variable], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(difference, difference[0], rtol=2e-5, atol=0.02)


@pytest.mark.parametrize(("name", "peer"), [("metropolis", "jax"), ("metropolis", "ppl"), ("eight_schools", "ppl")])
@pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")
def test_a_runner_draws(benchmarks, name, peer):
    case = benchmarks("cases").load(name)
    run = benchmarks("runner").start(case, peer, options(name, peer))
    outcome = run(case.data(0), 0)
    for variable in case.NAMES:
        assert outcome["draws"][variable].shape[:2] == (2, 20)
    assert outcome["steps"] >= 40


def test_all_cases_load(benchmarks):
    cases, command = benchmarks("cases"), benchmarks("__main__")
    for name in cases.expand(command.CASES):
        assert command.runners(name)
        assert callable(cases.load(name).data)


def test_the_table_has_ratios_to_the_best_peer(benchmarks, tmp_path):
    for peer, seconds in (("ppl", 1.0), ("numpyro", 4.0), ("blackjax", 5.0)):
        cold = {"to_summary": seconds, "memory_mb": 1.0, "children_mb": 0.0, "seconds": [seconds], "steps": [100]}
        row = {"cold": {**cold, "warmup_steps": 100, "versions": {}}, "warm": {"to_summary": 1.0}, "load": 0.0}
        content = {"case": "radon", "peer": peer, "rows": [{**row, "at": "2026-01-01T00:00"}], "skipped": None}
        (tmp_path / "radon").mkdir(exist_ok=True)
        (tmp_path / "radon" / f"{peer}.json").write_text(json.dumps(content))
    evaluation = {"ppl": {"ess": [[200.0]], "z": 5.0}, "numpyro": {"ess": [[100.0]], "z": 1.0}}
    (tmp_path / "radon" / "evaluation.json").write_text(json.dumps(evaluation))
    text = benchmarks("table").text(tmp_path, ["radon"])
    ours = next(line for line in text.splitlines() if line.startswith("| ppl"))
    assert "1.00 (0.25)" in ours and "200 (8.00)" in ours and "5.0!" in ours
