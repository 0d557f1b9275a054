"""Starts so far out that the rounding of the log density hides what a step does: the chain climbs first."""

import jax.numpy as jnp
import numpy as np
import pytest

from ppl import Flat, Normal, Poisson, infer
from ppl.inference import chunk
from ppl.supports import positive, real

HEIGHT = np.linspace(58.0, 77.0, 200).astype(np.float32)
WAGE = (-85_000 + 1600 * HEIGHT + 19_000 * np.sin(np.arange(200) * 7.3)).astype(np.float32)
YEAR = np.linspace(-10.0, 10.0, 40).astype(np.float32)


def wages(height):
    """Raw units: log densities down to -1e14 at the first starts."""
    a = yield Flat(real, name="a")
    b = yield Flat(real, name="b")
    sigma = yield Flat(positive, name="sigma")
    yield Normal(a + b * height, sigma, shape=height.shape, name="wage")


def births(year):
    """A cubic in the exponent: log densities down to -1e30 and to -inf."""
    beta = yield Normal(0.0, 5.0, shape=(4,), name="beta")
    powers = jnp.stack([year**0, year, year**2, year**3], -1)
    yield Poisson(jnp.exp(powers @ beta), shape=year.shape, name="count")


CASES = {
    "wages": (wages, {"height": HEIGHT, "wage": WAGE}),
    "births": (births, {"year": YEAR, "count": np.round(np.exp(4 + 0.05 * YEAR)).astype(np.int32)}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sampler", [infer.nuts, infer.hmc], ids=["nuts", "hmc"])
@pytest.mark.false_alarm(1e-7)
@pytest.mark.filterwarnings("ignore::ppl.errors.InferenceWarning")
def test_no_chain_stays_where_it_started(name, sampler, seed):
    """Mean log densities of 8 chains agree within 5; they differ by some 0.1, and by 1e4 and more from a stuck chain."""
    posterior = sampler(*CASES[name], seed=seed, chains=8, draws=300)
    height = posterior.stats["lp"].mean(1)
    assert height.max() - height.min() < 5


def climb(density, start, free, options=None):
    run = chunk.build("nuts", density, lambda q, _: {"x": q}, length=10)
    state = chunk.initial_state("nuts", np.asarray(start, np.float32), np.asarray(free), [0, 1], 0)
    return run(state, (), np.int32(1), options or chunk.options(50))


def steep(q, _):
    return -1e6 * jnp.sum(jnp.abs(q - 40.0)) - 0.5 * jnp.sum(q**2)


def test_a_near_start_is_not_moved():
    state, _ = climb(lambda q, _: -1000.0 - 0.5 * jnp.sum(q**2), [1.5, 0.5], [True, True])
    assert int(state.chain.climbs) == 0
    np.testing.assert_array_equal(state.chain.start, np.float32([1.5, 0.5]))


def test_a_far_start_climbs_until_it_is_near():
    state, _ = climb(steep, [0.0, 1.0], [True, True])
    assert 5 < int(state.chain.climbs) < chunk.MOST_CLIMBS + 1
    assert np.abs(np.asarray(state.chain.start) - 40).max() < 1


def test_entries_that_the_user_gave_are_not_moved():
    state, _ = climb(steep, [0.0, 1.0], [True, False])
    start = np.asarray(state.chain.start)
    assert start[1] == 1 and abs(start[0] - 40) < 1


@pytest.mark.parametrize("free, warmup", [([False, False], 50), ([True, True], 0)])
def test_a_start_given_in_full_or_a_run_without_warm_up_stays(free, warmup):
    state, _ = climb(steep, [0.0, 1.0], free, chunk.options(warmup))
    assert int(state.chain.climbs) == 0
    np.testing.assert_array_equal(state.chain.start, np.float32([0.0, 1.0]))


def test_a_step_off_the_support_is_taken_back():
    def edge(q, _):
        return jnp.where(q[0] < 1, -1e6 * (2 - q[0]), -jnp.inf)

    state, outputs = climb(edge, [0.5], [True])
    assert int(state.chain.climbs) > 3
    assert 0.99 < float(state.chain.start[0]) < 1 and int(outputs["phase"]) == chunk.RUN
