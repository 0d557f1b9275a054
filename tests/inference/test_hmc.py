"""The leapfrog and the fixed-length sampler."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppl.inference import hmc, whitening

SCALE = whitening.Diagonal(np.array([0.5, 1.0, 2.0]))


def density(q):
    return -0.5 * jnp.sum(q**2 * jnp.array([4.0, 1.0, 0.25], q.dtype)) - 0.1 * jnp.sum(q**4)


def walk(q, r, step_size, count):
    gradient = jax.grad(density)(q)
    for _ in range(count):
        q, r, gradient, _, _ = hmc.leapfrog(density, step_size, SCALE, q, r, gradient)
    return q, r


def energy(q, r):
    return hmc.half_square(r) - density(q)


def test_the_leapfrog_runs_backwards(x64):
    q, r = jnp.array([0.3, -0.8, 1.2]), jnp.array([1.0, 0.2, -0.7])
    there, momentum = walk(q, r, 0.1, 50)
    back, momentum = walk(there, -momentum, 0.1, 50)
    np.testing.assert_allclose(back, q, rtol=1e-11)
    np.testing.assert_allclose(-momentum, r, rtol=1e-11)


def test_half_the_step_leaves_a_quarter_of_the_energy_error(x64):
    q, r = jnp.array([0.3, -0.8, 1.2]), jnp.array([1.0, 0.2, -0.7])
    errors = [energy(*walk(q, r, 0.8 / n, n)) - energy(q, r) for n in (40, 80, 160)]
    np.testing.assert_allclose([errors[0] / errors[1], errors[1] / errors[2]], 4, rtol=0.02)


def test_the_leapfrog_keeps_volume(x64):
    def flow(z):
        q, r = walk(z[:3], z[3:], 0.3, 3)
        return jnp.concatenate([q, r])

    z = jnp.array([0.3, -0.8, 1.2, 1.0, 0.2, -0.7])
    np.testing.assert_allclose(jnp.linalg.det(jax.jacfwd(flow)(z)), 1, rtol=1e-10)


def test_the_proposal_is_the_end_of_the_trajectory(x64):
    """A small step is accepted, and the new state is where the leapfrog ends from the momentum that was drawn."""
    q = jnp.array([0.3, -0.8, 1.2])
    settings = hmc.Settings(0.01, 7, SCALE)
    for seed in range(5):
        key = jax.random.key(seed)
        state, info = hmc.step(key, density, settings, hmc.init(density, q))
        r, _ = hmc.draw_momentum(key, q)
        end, momentum = walk(q, r, 0.01, 7)
        np.testing.assert_allclose(state.position, end, rtol=1e-10)
        np.testing.assert_allclose(info.energy, energy(end, momentum), rtol=1e-9)
        np.testing.assert_allclose(info.energy_error, energy(end, momentum) - energy(q, r), atol=1e-12)
        np.testing.assert_allclose(info.acceptance_rate, min(1, np.exp(-info.energy_error)), rtol=1e-12)
        assert info.n_steps == info.gradients == 7
        np.testing.assert_allclose(info.int_time, 0.07)


def test_measuring_changes_nothing_but_the_report(key):
    state = hmc.init(density, jnp.array([0.3, -0.8, 1.2]))
    scale = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), SCALE)
    plain, first = hmc.step(key, density, hmc.Settings(0.1, 3, scale), state)
    measured, second = hmc.step(key, density, hmc.Settings(0.1, 3, scale, measure=True), state)
    np.testing.assert_array_equal(plain.position, measured.position)
    assert first.turn == 3
    assert 3 < second.turn <= hmc.LONGEST


def test_the_search_for_a_turn_is_bounded(key):
    """A ramp never turns back."""
    state = hmc.init(lambda q: 1e-6 * jnp.sum(q), jnp.zeros(2))
    _, info = hmc.step(key, lambda q: 1e-6 * jnp.sum(q), hmc.Settings(0.1, 3, measure=True), state)
    assert info.turn == hmc.LONGEST


@pytest.mark.false_alarm(1e-9)
def test_lengths_are_drawn_with_equal_chances(key):
    """Counts of 3 lengths over 3000 transitions; sees a chance of 0.39 instead of a third."""
    state = hmc.init(density, jnp.zeros(3))
    settings = hmc.Settings(0.1, jnp.array([1, 2, 5]))
    steps = jax.vmap(lambda key: hmc.step(key, density, settings, state)[1].n_steps)(jax.random.split(key, 3000))
    counts = np.array([np.sum(np.asarray(steps) == n) for n in (1, 2, 5)])
    assert counts.sum() == 3000
    assert np.max(np.abs(counts - 1000)) < 6.5 * np.sqrt(3000 * 2 / 9)
