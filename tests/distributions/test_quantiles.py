"""Quantiles by bisection: whole numbers, ends, levels that are none, and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ppl

LEVELS = np.array([1e-6, 0.013, 0.3, 0.5, 0.77, 0.999])
PROBS = [0.2, 0.3, 0.5]
DISCRETE = {
    "Poisson": (ppl.Poisson(4.2), stats.poisson(4.2)),
    "Binomial": (ppl.Binomial(30, 0.3), stats.binom(30, 0.3)),
    "Geometric": (ppl.Geometric(0.2), stats.geom(0.2, loc=-1)),
    "Categorical": (ppl.Categorical(probs=np.array(PROBS), shape=(6,)), stats.rv_discrete(values=([0, 1, 2], PROBS))),
    "ZeroInflated": (ppl.ZeroInflated(ppl.Poisson(4.2), 0.0), stats.poisson(4.2)),
}  # fmt: skip


@pytest.mark.parametrize("name", DISCRETE)
def test_quantiles_of_whole_numbers(name):
    rv, law = DISCRETE[name]
    np.testing.assert_array_equal(jax.jit(rv.icdf)(LEVELS), law.ppf(LEVELS))


@pytest.mark.parametrize(
    "rv, ends",
    [
        (ppl.Gamma(2.0, 3.0), (0, np.inf)),
        (ppl.Beta(2.0, 0.5), (0, 1)),
        (ppl.StudentT(3.0), (-np.inf, np.inf)),
        (ppl.Truncated(ppl.Normal(0.0, 1.0), low=1.0), (1, np.inf)),
        (ppl.Binomial(10, 0.3), (0, 10)),
        (
            ppl.Mixture(np.array([0.3, 0.7]), [ppl.Normal(0.0, 1.0), ppl.Normal(3.0, 1.0)], shape=(5,)),
            (-np.inf, np.inf),
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_ends_and_levels_that_are_none(rv, ends):
    found = jax.jit(rv.icdf)(jnp.array([0.0, 1.0, -0.1, 1.2, jnp.nan]))
    np.testing.assert_array_equal(found, [*ends, np.nan, np.nan, np.nan])


@pytest.mark.parametrize(
    "family, at", [(ppl.Gamma, (2.5, 1.3)), (ppl.Beta, (2.0, 0.7)), (ppl.InverseGamma, (3.0, 2.0))]
)
def test_derivatives_by_level_and_parameters(family, at, x64):
    there = [np.array([0.02, 0.4, 0.93]), *(np.full(3, number) for number in at)]
    value = jax.jit(lambda level, *parameters: family(*parameters).icdf(level))
    found = jax.jit(jax.grad(lambda *there: value(*there).sum(), argnums=(0, 1, 2)))(*there)
    for i, slope in enumerate(found):
        step = 1e-5
        up, down = (value(*(t + sign * step * (j == i) for j, t in enumerate(there))) for sign in (1, -1))
        np.testing.assert_allclose(slope, (up - down) / (2 * step), rtol=2e-5)


def test_levels_and_parameters_broadcast():
    found = ppl.Gamma(jnp.array([[1.0, 2.0]]), 1.0).icdf(jnp.array([[0.2], [0.4], [0.6]]))
    np.testing.assert_allclose(found, stats.gamma([1, 2]).ppf([[0.2], [0.4], [0.6]]), rtol=1e-6)
