"""Draws are a function of versions, device and seed; golden values guard them."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import LINE, SCHOOLS, line, schools

import ppl
from ppl import Normal, infer
from ppl.inference import hmc, metropolis, nuts, whitening

GOLDEN = pathlib.Path(__file__).parent / "golden" / "draws.json"
quiet = pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")


def golden_values():
    """Prior draws, and the first transitions of each sampler at a fixed step size, before rounding can part trajectories."""
    prior = ppl.sample(schools, 7, {"sigma": SCHOOLS["sigma"]})
    options = dict(chains=2, draws=4, warmup=0, init={"a": 1.0, "b": 1.5}, progress=False, seed=3)
    runs = {
        "hmc": infer.hmc(line, LINE, step_size=0.1, num_steps=3, **options),
        "nuts": infer.nuts(line, LINE, step_size=0.3, max_depth=2, **options),
        "metropolis": infer.metropolis(line, LINE, scale=0.1, **options),
    }
    found = {f"prior {name}": np.ravel(value) for name, value in prior.items()}
    found |= {f"{sampler} {name}": np.ravel(run[name]) for sampler, run in runs.items() for name in run}
    return {name: [float(v) for v in value] for name, value in found.items()}


@quiet
def test_golden_draws(request):
    """Fails when draws change: then say so in the changelog and run `python tests/test_reproducibility.py`."""
    stored, found = json.loads(GOLDEN.read_text()), golden_values()
    assert list(stored) == list(found)
    for name, values in stored.items():
        assert np.allclose(values, found[name], rtol=1e-4, atol=1e-5), name


@quiet
def test_another_process_has_the_same_draws():
    script = "import ppl, numpy, hashlib\nfrom models import LINE, line\n"
    script += "x = ppl.infer.nuts(line, LINE, draws=50, seed=11, progress=False)['a']\n"
    script += "print(hashlib.sha256(x.tobytes()).hexdigest())"
    here = os.path.dirname(__file__)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.path.dirname(here), here]),
        "PYTHONWARNINGS": "ignore",
    }
    runs = [
        subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout and len(runs[0].stdout.strip()) == 64


KINDS = (jax.random.key, jax.random.PRNGKey)
SEEDS = (7, jax.random.key(7), jax.random.PRNGKey(7))
POINT = {"mean": np.float32(0.0)}


def tower(x):
    a = yield Normal(0.0, 1.0, name="a")
    yield Normal(a, 0.5, shape=x.shape, name="y")


def point_guide(q):
    yield Normal(q["mean"], 0.3, name="a")


FIT = functools.cache(lambda: infer.vi(tower, infer.mean_field, LINE, steps=5, progress=False))
ENTRIES = {
    "sample": lambda seed: ppl.sample(tower, seed, {"x": LINE["x"]}),
    "trace": lambda seed: ppl.trace(tower, {"x": LINE["x"]}, seed)["y"].value,
    "initial": lambda seed: ppl.log_density(tower, LINE).initial(seed),
    "prior": lambda seed: dict(infer.prior(tower, LINE, draws=3, seed=seed)),
    "predict": lambda seed: dict(infer.predict(tower, {"a": np.zeros((1, 3))}, LINE, seed=seed)),
    "returned": lambda seed: infer.returned(schools, {"tau": np.ones((1, 3))}, SCHOOLS, seed=seed),
    "vi": lambda seed: infer.vi(tower, infer.mean_field, LINE, steps=5, seed=seed, progress=False).params,
    "posterior of a fit": lambda seed: dict(FIT().posterior(5, seed=seed, smoothed=True)),
    "weights of a fit": lambda seed: FIT().log_weights(5, seed=seed),
    "starts of a fit": lambda seed: FIT().starts(3, seed=seed),
    "pathfinder": lambda seed: infer.pathfinder(tower, LINE, paths=1, seed=seed).params,
    "calibrate": lambda seed: (
        infer.calibrate(
            tower, {"x": LINE["x"]}, observed=["y"], simulations=2, draws=19, warmup=20, thin=1, seed=seed
        ).ranks
    ),
}


@pytest.mark.parametrize("entry", ENTRIES)
@quiet
def test_every_entry_takes_an_int_and_both_kinds_of_key(entry):
    first, *others = [ENTRIES[entry](seed) for seed in SEEDS]
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, first, other)


SCALE = whitening.Diagonal(jnp.ones(2))
KERNELS = {
    "hmc": (hmc, hmc.Settings(0.3, jnp.array([2, 3, 4]), SCALE)),
    "nuts": (nuts, nuts.Settings(0.3, SCALE, 3)),
    "metropolis": (metropolis, metropolis.Settings(0.5)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_transitions_take_both_kinds_of_key_compiled_and_side_by_side(name):
    kernel, settings = KERNELS[name]

    def density(q):
        return -0.5 * jnp.sum(q**2)

    def step(key, state):
        return kernel.step(key, density, settings, state)[0].position

    state = kernel.init(density, jnp.array([0.3, -1.0]))
    ends = [jax.jit(jax.vmap(step, (0, None)))(jax.random.split(make(7), 3), state) for make in KINDS]
    np.testing.assert_array_equal(*ends)


def test_steps_of_a_fit_take_both_kinds_of_key():
    state, step = infer.vi_step(tower, point_guide, LINE, init=POINT)
    ends = [jax.lax.scan(step, state, jax.random.split(make(7), 3))[0].params for make in KINDS]
    jax.tree.map(np.testing.assert_array_equal, *ends)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden_values(), indent=1) + "\n")
