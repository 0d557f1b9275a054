"""Posteriors with reference values are reproduced, each by one of the two samplers at least.

`benchmarks/posteriordb.py` does all with both. `tests/posteriordb` says where data and references come from; the models
are in `benchmarks/posteriordb_models.py`.

A run agrees with a reference when each mean and standard deviation does, up to 4 standard errors of the reference (which are
the same in each run) and as many of its own as all of them together exceed at the stated rate: see `Comparison.excess`. With
4 chains of 1000 draws that catches an error of about 0.2 posterior standard deviations in a mean, and of 15 to 20 percent in a
standard deviation.
"""

import importlib.util
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import ppl

ROOT = Path(__file__).parents[1]
RATE = 1e-7


def module(name):
    """Import a module of `benchmarks` from its file, as its scripts import one another."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


models, posteriordb = module("posteriordb_models"), module("posteriordb")

FAST = [
    ("arK-arK", "nuts"),
    ("bball_drive_event_0-hmm_drive_0", "nuts"),
    ("dogs-dogs", "nuts"),
    ("eight_schools-eight_schools_noncentered", "nuts"),
    ("eight_schools-eight_schools_noncentered", "hmc"),
    ("garch-garch11", "nuts"),
    ("GLM_Binomial_data-GLM_Binomial_model", "hmc"),
    ("kidiq_with_mom_work-kidscore_interaction_z", "hmc"),
    ("nes_logit_data-nes_logit_model", "nuts"),
    ("sblri-blr", "hmc"),
]
OTHERS = [name for name in models.POSTERIORS if name not in {fast for fast, _ in FAST}]
SLOW = [(name, ("nuts", "hmc")[i % 2]) for i, name in enumerate(OTHERS)]


def test_every_folder_has_a_model():
    folders = {path.name for path in posteriordb.FOLDER.iterdir() if path.is_dir()}
    assert folders == set(models.POSTERIORS)
    assert all((posteriordb.FOLDER / name / "model.md").is_file() for name in folders)


def agrees(name, sampler, seed):
    """Sample a posterior and assert that it is the reference's."""
    _, comparison = posteriordb.run(name, sampler, seed)
    excess = comparison.excess(RATE)
    worst = int(np.argmax(excess))
    assert excess[worst] <= 0, f"{comparison.names[worst]}: {comparison.z[worst]:.2f} standard errors off"


@pytest.mark.false_alarm(RATE)
@pytest.mark.parametrize("name, sampler", FAST)
def test_reference_is_reproduced(name, sampler, seed, x64):
    agrees(name, sampler, seed)


@pytest.mark.slow
@pytest.mark.false_alarm(RATE)
@pytest.mark.parametrize("name, sampler", SLOW)
def test_reference_is_reproduced_slowly(name, sampler, seed, x64):
    agrees(name, sampler, seed)


@pytest.mark.false_alarm(RATE)
def test_a_likelihood_of_too_little_weight_is_noticed(seed, x64):
    """Standard deviations 29 percent too large: 20 of their own standard errors. Fails where this is not noticed."""
    _, comparison = posteriordb.run("sblri-blr", "nuts", seed, handler=lambda model: ppl.reweight(model, y=0.6))
    assert comparison.excess(RATE).max() > 0


def test_runge_kutta_has_converged(x64):
    """Halving the step divides its error by 16 (order 4); at the step in use it is below a millionth."""
    times, start, theta = jnp.arange(1.0, 21.0), jnp.array([34.0, 6.0]), jnp.array([0.55, 0.028, 0.80, 0.024])
    solved = {n: models.runge_kutta(models.growth, start, times, theta, n) for n in (25, 50, 100)}
    changes = [float(jnp.abs(jnp.log(solved[n] / solved[2 * n])).max()) for n in (25, 50)]
    assert changes[0] < 1e-6
    assert 12 < changes[0] / changes[1] < 20
