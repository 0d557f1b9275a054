"""What every kernel promises: it leaves its density invariant, and these tests would notice if it did not."""

import functools
import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import ppl
from ppl import LogNormal, Normal
from ppl.inference import hmc, metropolis, nuts, whitening
from ppl.supports import positive

SCALE = whitening.Diagonal(jnp.array([0.6, 0.5]))
KERNELS = {
    "hmc": (hmc, hmc.Settings(0.9, jnp.array([2, 3, 4]), SCALE)),
    "nuts": (nuts, nuts.Settings(0.9, SCALE, 4)),
    "metropolis": (metropolis, metropolis.Settings(jnp.array([0.7, 0.6]))),
}
ROWS = 5


def sample_of_unknown_scale():
    """A normal sample of unknown mean and scale, both with proper priors."""
    mean = yield Normal(0.0, 1.0, name="mean")
    scale = yield LogNormal(0.0, 0.5, name="scale")
    yield Normal(mean, scale, shape=(ROWS,), name="y")


@functools.cache
def bound():
    return ppl.bind(sample_of_unknown_scale, {"y": np.zeros(ROWS, np.float32)})


def joint(position, y):
    """The log density by ppl at position = (mean, log scale): with the volume term of `scale`."""
    return bound().structure.log_density({"mean": position[0], "scale": position[1]}, {"=y": y})


def geweke(step, make_state, settings, density, key, pairs, rounds):
    """Successive-conditional simulation, in `pairs` independent copies that start from the joint law itself.

    Each round draws the parameters by one transition given the data, then the data given the parameters. A correct
    kernel keeps the joint law exactly, so the last states are independent draws of it, and their means have z scores.
    """
    start_key, key = jax.random.split(key)
    first = jax.random.normal(start_key, (pairs, 2)) * jnp.array([[1.0, 0.5]])

    def data(key, position):
        return position[0] + jnp.exp(position[1]) * jax.random.normal(key, (ROWS,))

    def one(position, key):
        def turn(carry, key):
            position, y = carry
            data_key, step_key = jax.random.split(key)
            state, _ = step(step_key, lambda q: density(q, y), settings, make_state(lambda q: density(q, y), position))
            return (state.position, data(data_key, state.position)), None

        begin, rest = jax.random.split(key)
        (position, y), _ = jax.lax.scan(turn, (position, data(begin, position)), jax.random.split(rest, rounds))
        mean, log_scale = position[0], position[1]
        return jnp.stack([mean, log_scale, mean**2 - 1, log_scale**2 - 0.25, mean * log_scale, mean * jnp.mean(y) - 1])

    values = jax.vmap(one)(first, jax.random.split(key, pairs))
    return jnp.sqrt(pairs) * jnp.mean(values, 0) / jnp.std(values, 0)


def largest(scores):
    return float(np.max(np.abs(np.nan_to_num(np.asarray(scores), nan=np.inf))))


def limit(rate, count):
    """Largest |z| of `count` scores that is exceeded by chance at `rate`."""
    return scipy.stats.norm.isf(rate / count / 2)


def test_the_density_is_that_of_the_formula(key):
    position, y = 0.7 * jax.random.normal(key, (2,)), jax.random.normal(key, (ROWS,))
    mean, log_scale = np.asarray(position, float)
    expected = scipy.stats.norm.logpdf(mean) + scipy.stats.norm.logpdf(log_scale, 0, 0.5)
    expected += np.sum(scipy.stats.norm.logpdf(y, mean, np.exp(log_scale)))
    np.testing.assert_allclose(joint(position, y), expected, rtol=1e-4)


@functools.cache
def joint_law(step, init, name, pairs):
    """A compiled function of a key: the z scores of the joint law. Traced anew for another `step`."""
    return jax.jit(lambda key: geweke(step, init, KERNELS[name][1], joint, key, pairs, 20))


@pytest.mark.false_alarm(1e-7)
@pytest.mark.parametrize("name", KERNELS)
def test_parameters_and_data_keep_their_joint_law(name, key, pairs=None):
    """Successive-conditional against marginal-conditional; sees a shift of 0.06 to 0.11 standard deviations."""
    kernel, pairs = KERNELS[name][0], pairs or (3000 if name == "nuts" else 10_000)
    # A tenth of the rate, since the tails of means of 4000 squares are a little wider than normal.
    assert largest(joint_law(kernel.step, kernel.init, name, pairs)(key)) < limit(1e-8, 6)


def mutated(module, old, new):
    """Return the names of a kernel with a planted bug: its source with `old` replaced by `new`."""
    source = inspect.getsource(module)
    assert source.count(old) == 1
    space = {"__name__": "mutant"}
    exec(compile(source.replace(old, new), module.__name__, "exec"), space)  # noqa: S102
    return space


WRONG_SIGN = {
    "hmc": ("jnp.exp(jnp.minimum(-error, 80))", "jnp.exp(jnp.minimum(error, 80))"),
    "nuts": ("jnp.exp(jnp.minimum(-error, 80))", "jnp.exp(jnp.minimum(error, 80))"),
    "metropolis": ("proposal.log_density - state.log_density", "state.log_density - proposal.log_density"),
}
BUGS = [("metropolis", "scale"), ("metropolis", "volume"), *((name, "sign") for name in KERNELS)]


@pytest.mark.false_alarm(1e-8)
@pytest.mark.parametrize(("name", "bug"), BUGS)
def test_a_planted_bug_is_seen_with_each_of_twenty_seeds(name, bug, seed, monkeypatch):
    """A scale 2 percent off, a missing volume term, a wrong sign in the acceptance fail the test of the joint law.

    The bug is in ppl itself, until this test ends. The smallest, the scale, is expected at |z| = 12.2 and must pass 6.03,
    which is 6.7 of its standard deviations below: one of twenty seeds misses it once in a hundred million runs. The others are
    expected beyond 16.
    """
    kernel = KERNELS[name][0]
    monkeypatch.setattr(sys.modules[__name__], "joint_law", functools.cache(joint_law.__wrapped__))
    if bug == "sign":
        mutant = mutated(kernel, *WRONG_SIGN[name])
        monkeypatch.setattr(kernel, "step", mutant["step"])
        monkeypatch.setattr(kernel, "init", mutant["init"])
    elif bug == "scale":
        right = Normal.log_prob
        monkeypatch.setattr(Normal, "log_prob", lambda rv, x: right(rv.replace(scale=1.02 * rv.scale), x))
    else:
        right = type(positive).constrain
        monkeypatch.setattr(type(positive), "constrain", lambda support, u: (right(support, u)[0], jnp.zeros_like(u)))
    pairs = {"scale": 33_000, "volume": 2000, "sign": 1000}[bug]
    for key in jax.random.split(jax.random.key(seed), 20):
        with pytest.raises(AssertionError):
            test_parameters_and_data_keep_their_joint_law(name, key, pairs)


@pytest.mark.false_alarm(1e-8)
@pytest.mark.parametrize("name", KERNELS)
def test_a_correlated_gaussian_is_left_as_it_is(name, key):
    """Exact starts, 20 transitions, exact moments; sees an error of 4 to 9 percent in any moment."""
    kernel, settings = KERNELS[name]
    factor = jnp.array([[1.0, 0.0], [0.8, 0.6]])
    precision = jnp.linalg.inv(factor @ factor.T)

    def density(q):
        return -0.5 * q @ precision @ q

    def one(key):
        begin, rest = jax.random.split(key)
        state = kernel.init(density, factor @ jax.random.normal(begin, (2,)))
        turn = lambda state, key: (kernel.step(key, density, settings, state)[0], None)  # noqa: E731
        q = jax.lax.scan(turn, state, jax.random.split(rest, 20))[0].position
        return jnp.stack([q[0], q[1], q[0] ** 2 - 1, q[1] ** 2 - 1, q[0] * q[1] - 0.8])

    count = 5000 if name == "nuts" else 20_000
    values = jax.jit(jax.vmap(one))(jax.random.split(key, count))
    assert largest(jnp.sqrt(count) * jnp.mean(values, 0) / jnp.std(values, 0)) < limit(1e-9, 5)


@pytest.mark.parametrize("name", KERNELS)
def test_a_state_not_yet_evaluated_is_evaluated_in_place(name, key):
    kernel, settings = KERNELS[name]
    density = lambda q: joint(q, jnp.arange(5.0))  # noqa: E731
    position = jnp.array([0.3, -0.2])
    state, info = kernel.step(key, density, settings, kernel.unevaluated(position))
    expected = kernel.init(density, position)
    for got, right in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-6)
    assert info.gradients == 1
    assert not getattr(info, "diverging", False)


@pytest.mark.parametrize("name", KERNELS)
def test_a_position_may_be_a_pytree(name, key):
    kernel = KERNELS[name][0]
    position = {"a": jnp.ones(3), "b": jnp.zeros((2, 2)), "c": jnp.asarray(0.5)}
    density = lambda q: -0.5 * sum(jnp.sum(x**2) for x in jax.tree.leaves(q))  # noqa: E731
    scale = jax.tree.map(jnp.ones_like, position)
    settings = {
        "hmc": hmc.Settings(0.5, 4, whitening.Diagonal(scale)),
        "nuts": nuts.Settings(0.5, whitening.Diagonal(scale)),
        "metropolis": metropolis.Settings(scale),
    }[name]
    state, _ = jax.jit(lambda key, state: kernel.step(key, density, settings, state))(
        key, kernel.init(density, position)
    )
    assert jax.tree.map(jnp.shape, state.position) == jax.tree.map(jnp.shape, position)
    np.testing.assert_allclose(state.log_density, density(state.position), rtol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("value", [jnp.nan, -jnp.inf])
def test_a_density_that_breaks_off_ends_the_trajectory_and_moves_nowhere(name, value, key):
    kernel, settings = KERNELS[name]
    state = kernel.init(lambda q: -jnp.sum(q**2), jnp.array([0.3, -0.2]))
    after, info = kernel.step(key, lambda q: value + jnp.sum(q), settings, state)
    np.testing.assert_array_equal(after.position, state.position)
    assert info.acceptance_rate == 0
    assert info.gradients <= 4
    assert getattr(info, "diverging", True)


@pytest.mark.parametrize("name", KERNELS)
def test_single_precision_stays_single_when_double_is_on(name, x64):
    kernel = KERNELS[name][0]
    settings = metropolis.Settings(0.5) if name == "metropolis" else kernel.Settings(0.5, *([3] * (name == "hmc")))
    for real in (jnp.float32, jnp.float64):
        state = kernel.init(lambda q: -jnp.sum(q**2), jnp.ones(3, real))
        state, info = kernel.step(jax.random.key(0), lambda q: -jnp.sum(q**2), settings, state)
        assert {x.dtype for x in jax.tree.leaves(state)} == {jnp.dtype(real)}
        assert info.acceptance_rate.dtype == real


def test_the_random_words_are_those_of_threefry(key):
    """Jax's own bits are the two words of each block, combined."""
    words = hmc.random_words(key, 12)
    np.testing.assert_array_equal(words[:6] ^ words[6:], jax.random.bits(key, (6,)))


@pytest.mark.false_alarm(1e-8)
@pytest.mark.parametrize("double", [False, True])
def test_momentum_is_standard_normal(key, double, x64):
    """Kolmogorov-Smirnov over 200,000 numbers; sees a distance of 0.007."""
    real = jnp.float64 if double else jnp.float32
    normal, words = hmc.draw_momentum(key, jnp.zeros(200_000, real))
    assert normal.dtype == real
    assert scipy.stats.kstest(np.asarray(normal, float), "norm").pvalue > 1e-8
    assert words.dtype == jnp.uint32


@pytest.mark.false_alarm(1e-8)
def test_numbers_of_leaves_are_uniform(key):
    """Kolmogorov-Smirnov over 200,000 numbers of 200 streams; sees a distance of 0.007."""
    words = jax.random.bits(key, (200, 1))
    numbers = hmc.uniform(
        jnp.broadcast_to(words, (200, 1000)), jnp.broadcast_to(jnp.arange(1000), (200, 1000)), jnp.float32
    )
    assert scipy.stats.kstest(np.asarray(numbers, float).ravel(), "uniform").pvalue > 1e-8
