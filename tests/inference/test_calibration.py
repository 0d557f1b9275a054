"""Simulation-based calibration of the whole path: prior, data, density, maps, warm-up, sampler."""

import jax.numpy as jnp
import numpy as np
import pytest
from models import rate

from ppl import Dirichlet, Exponential, HalfNormal, ModelError, Multinomial, Normal, infer

GRADIENT = [infer.hmc, infer.nuts]


def location_scale(x):
    """A regression with unknown noise."""
    slope = yield Normal(0.0, 1.0, name="slope")
    noise = yield HalfNormal(1.0, name="noise")
    yield Normal(slope * x, noise + 0.1, name="y")


def shares():
    """Two counts of three kinds, and how long each took: a simplex and a rate."""
    share = yield Dirichlet(jnp.array([1.0, 2.0, 3.0]), name="share")
    speed = yield Exponential(1.0, name="speed")
    yield Multinomial(10, share, name="counts")
    yield Exponential(speed * share, name="times")


MODELS = {
    "regression": (location_scale, {"x": np.linspace(-1, 1, 6, dtype=np.float32)}, ["y"]),
    "simplex": (shares, {}, ["counts", "times"]),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sampler", GRADIENT, ids=lambda f: f.__name__)
@pytest.mark.slow
@pytest.mark.false_alarm(1e-6)
def test_ranks_are_uniform(sampler, name, seed):
    """600 simulations see a mean that is 0.3 sd off, or an sd that is off by a quarter, in 9 of 10 runs."""
    model, data, observed = MODELS[name]
    found = infer.calibrate(
        model, data, observed=observed, sampler=sampler, simulations=600, draws=39, seed=seed, warmup=150
    )
    assert found.smallest > 1e-6, found


@pytest.mark.false_alarm(1e-9)
def test_a_wrong_density_is_seen(seed):
    """A likelihood that is told sds half as large: 150 simulations give p-values below 1e-200."""

    def wrong(model, data, **options):
        def narrow(x):
            slope = yield Normal(0.0, 1.0, name="slope")
            noise = yield HalfNormal(1.0, name="noise")
            yield Normal(slope * x, 0.5 * (noise + 0.1), name="y")

        return infer.nuts(wrong.__dict__.setdefault("model", narrow), data, **options)

    model, data, observed = MODELS["regression"]
    found = infer.calibrate(
        model, data, observed=observed, sampler=wrong, simulations=150, draws=39, seed=seed, warmup=100
    )
    assert found.smallest < 1e-6
    assert "not uniform" in repr(found)


def test_it_needs_the_names_of_the_data():
    with pytest.raises(ModelError, match="observed has 'z'"):
        infer.calibrate(rate, observed=["z"])
