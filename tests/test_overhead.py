"""Zero overhead: the optimized programs of a model's log density and its gradient do the work of hand-written ones.

For each model the compiler's own count of floating point operations and of bytes accessed agrees within one percent with
that of the function that one would write by hand.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl
from ppl import Bernoulli, HalfNormal, Normal

LOG_SQRT_2_PI = 0.5 * np.log(2 * np.pi)


def normal(x, loc, scale):
    return -0.5 * jnp.square((x - loc) / scale) - jnp.log(scale) - np.float32(LOG_SQRT_2_PI)


def half_normal(u, scale):
    """Log density of a half-normal scale at its free value, with the volume term, and the scale."""
    x = jnp.exp(jnp.clip(u, -87.33650620625122, 88.72279704912216))  # neither 0 nor infinite
    return normal(x, 0.0, scale) + np.float32(np.log(2)) + u, x


def schools(sigma):
    mu = yield Normal(0.0, 5.0, name="mu")
    tau = yield HalfNormal(5.0, name="tau")
    theta = yield Normal(mu, tau, shape=sigma.shape, name="theta")
    yield Normal(theta, sigma, name="y")


def schools_by_hand(position, sigma, y):
    mu, base = position["mu"], position["theta_base"]
    total, tau = half_normal(position["tau"], 5.0)
    total += normal(mu, 0.0, 5.0)
    theta = mu + tau * base
    return total + (normal(base, 0.0, 1.0)).sum() + normal(y, theta, sigma).sum()


def logistic(X):
    w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
    b = yield Normal(0.0, 2.0, name="b")
    yield Bernoulli(logits=X @ w + b, name="y")


def logistic_by_hand(position, X, y):
    w, b = position["w"], position["b"]
    logits = X @ w + b
    return normal(w, 0.0, 1.0).sum() + normal(b, 0.0, 2.0) - jax.nn.softplus(jnp.where(y == 1, -logits, logits)).sum()


def radon(county, floor, counties):
    mu = yield Normal(0.0, 10.0, name="mu")
    tau = yield HalfNormal(1.0, name="tau")
    slope = yield Normal(0.0, 10.0, name="slope")
    a = yield Normal(mu, tau, shape=(counties,), name="a")
    s = yield HalfNormal(1.0, name="s")
    yield Normal(a[county] + slope * floor, s, name="y")


def radon_by_hand(position, county, floor, y):
    mu, slope, a = position["mu"], position["slope"], position["a"]
    first, tau = half_normal(position["tau"], 1.0)
    second, s = half_normal(position["s"], 1.0)
    total = first + second + normal(mu, 0.0, 10.0) + normal(slope, 0.0, 10.0) + normal(a, mu, tau).sum()
    return total + normal(y, a[county] + slope * floor, s).sum()


def cases():
    rng = np.random.default_rng(0)

    def floats(*shape):
        return rng.normal(size=shape).astype(np.float32)

    county = rng.integers(85, size=919)
    x, y = floats(1000, 25), rng.integers(2, size=1000)
    return {
        "schools": (
            ppl.noncentered(schools, "theta"),
            {"sigma": abs(floats(8)) + 1, "y": floats(8)},
            schools_by_hand,
            ("sigma", "y"),
        ),
        "logistic": (logistic, {"X": x, "y": y}, logistic_by_hand, ("X", "y")),
        "radon": (
            radon,
            {"county": county, "floor": floats(919), "counties": 85, "y": floats(919)},
            radon_by_hand,
            ("county", "floor", "y"),
        ),
    }


CASES = cases()


def cost(function, *arguments):
    """Return flops and bytes accessed of a compiled function, its transcendentals counted as operations."""
    analysis = jax.jit(function).lower(*arguments).compile().cost_analysis()
    return {k: analysis[k] for k in ("flops", "bytes accessed")}


@pytest.mark.parametrize("gradient", [False, True], ids=["density", "gradient"])
@pytest.mark.parametrize("name", CASES)
def test_a_model_costs_what_the_function_written_by_hand_costs(name, gradient):
    model, data, by_hand, names = CASES[name]
    density = ppl.log_density(model, data)
    position = {n: jnp.full(latent.free_shape, 0.1) for n, latent in density.latents.items()}
    given = [jnp.asarray(data[n]) for n in names]

    def ours(p, arrays):
        return density.structure.log_density(p, arrays)

    def theirs(p, *given):
        return by_hand(p, *given)

    np.testing.assert_allclose(jax.jit(ours)(position, density.arrays), jax.jit(theirs)(position, *given), rtol=1e-5)
    if gradient:
        ours, theirs = jax.value_and_grad(ours), jax.value_and_grad(theirs)
    mine, hand = cost(ours, position, density.arrays), cost(theirs, position, *given)
    for what in hand:
        assert mine[what] <= 1.01 * hand[what], f"{what}: {mine[what]} against {hand[what]} by hand"
