"""The random walk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppl.inference import metropolis


def density(q):
    return -0.5 * jnp.sum(q**2)


def test_a_step_uphill_is_always_accepted(key):
    state = metropolis.init(lambda q: -1e6 * jnp.sum(q**2), jnp.array([10.0]))
    states, info = jax.vmap(
        lambda key: metropolis.step(key, lambda q: -1e6 * jnp.sum(q**2), metropolis.Settings(0.1), state)
    )(jax.random.split(key, 200))
    closer = np.asarray(states.position)[:, 0] < 10
    accepted = np.asarray(info.accepted)
    np.testing.assert_array_equal(accepted, closer)  # downhill the density falls by far more than float32 can tell
    assert 0 < accepted.sum() < 200


def test_the_rate_is_the_ratio_of_the_densities(key):
    state = metropolis.init(density, jnp.array([1.0, -0.5]))
    after, info = metropolis.step(key, density, metropolis.Settings(1e-3), state)
    if info.accepted:
        ratio = np.exp(float(density(after.position) - density(state.position)))
        np.testing.assert_allclose(info.acceptance_rate, min(1, ratio), rtol=1e-5)


@pytest.mark.false_alarm(1e-9)
def test_each_coordinate_has_its_own_scale(key):
    """On a flat density all is accepted; the jumps' standard deviations over 4000 draws, each to 7 percent."""
    scale = {"a": jnp.array([0.1, 10.0]), "b": jnp.asarray(2.0)}
    position = jax.tree.map(jnp.zeros_like, scale)
    flat = lambda q: 0.0 * q["b"]  # noqa: E731
    state = metropolis.init(flat, position)
    jumps = jax.vmap(lambda key: metropolis.step(key, flat, metropolis.Settings(scale), state)[0].position)(
        jax.random.split(key, 4000)
    )
    for name, right in scale.items():
        spread = np.std(np.asarray(jumps[name]), axis=0)
        assert np.all(np.abs(spread / right - 1) < 6.4 / np.sqrt(2 * 4000))
