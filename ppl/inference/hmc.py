"""Hamiltonian Monte Carlo: one transition.

    H(q, r) = -log_density(q) + |r|^2 / 2        (r: momentum in whitened coordinates, see `whitening`)

`init` and `step` are pure and know nothing of models, devices or loops over draws; drive them with `jax.lax.scan`, a
Python loop, or `chunk`. The leapfrog and the random helpers here are shared with `nuts`.

A state whose log density is -inf counts as not yet evaluated: `step` then evaluates it where it is and moves nowhere,
so that a program needs no second copy of the gradient for its first point.

Reference: Neal (2011), Handbook of MCMC, ch. 5.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppl.inference import whitening

LONGEST = 1024  # leapfrogs after which the search for a U-turn gives up
DIVERGENT = 1000.0  # energy error that counts as a divergence


class Settings(NamedTuple):
    """What one transition is told.

    Args:
      step_size: scalar, > 0.
      num_steps: leapfrogs per trajectory; a vector of integers means that one of them is drawn with equal chances.
      scale: a whitening.
      measure: whether to go on until the trajectory turns back, only to report when it did (for the warm-up).
    """

    step_size: Any
    num_steps: Any
    scale: Any = whitening.Identity()
    measure: Any = False


class State(NamedTuple):
    """Where the chain is.

    Args:
      position: pytree of unconstrained arrays.
      log_density: scalar.
      gradient: pytree like the position.
    """

    position: Any
    log_density: Any
    gradient: Any


class Info(NamedTuple):
    """What is reported of one transition; names as in ArviZ's schema, then three for the warm-up.

    Args:
      acceptance_rate: probability of accepting the proposal.
      energy: H of the state that was kept.
      energy_error: H at the end of the trajectory minus H at its beginning.
      n_steps: leapfrogs to the proposal.
      int_time: step size times the leapfrogs to the proposal.
      diverging: whether the energy error passed 1000 or was not finite.
      symmetric_acceptance: `2 min(1, w) / (1 + w)` with w the ratio of the densities; treats gains and losses alike.
      turn: leapfrogs until the trajectory turned back (`measure` only).
      gradients: evaluations of the gradient, at most `LONGEST`.
    """

    acceptance_rate: Any
    energy: Any
    energy_error: Any
    n_steps: Any
    int_time: Any
    diverging: Any
    symmetric_acceptance: Any
    turn: Any
    gradients: Any


def init(log_density, position):
    """Evaluate a position: the first state of a chain."""
    return State(position, *jax.value_and_grad(log_density)(position))


def unevaluated(position):
    """Return a state that the next `step` will evaluate, and not move."""
    lowest = jnp.asarray(-jnp.inf, float_type(position))
    return State(position, lowest, jax.tree.map(jnp.zeros_like, position))


def step(key, log_density, settings, state):
    """One transition that leaves `exp(log_density)` invariant.

    The proposal is the state after `num_steps` leapfrogs. A trajectory with a point of zero or undefined density is
    rejected, which is reversible: the way back passes the same points.

    Returns:
      The next `State` and an `Info`.
    """
    real = float_type(state.position)
    fresh = state.log_density == -jnp.inf
    momentum, words = draw_momentum(key, state.position)
    size = jnp.where(fresh, 0, jnp.asarray(settings.step_size, real))
    steps = jnp.where(fresh, 1, _choose_length(settings.num_steps, words[1]))
    measure = jnp.asarray(settings.measure) & ~fresh
    begin = _Path(
        *(state.position, momentum, state.gradient, state.log_density, jax.tree.map(jnp.zeros_like, momentum)),
        *(state, momentum, jnp.int32(0), jnp.bool_(False), jnp.bool_(False)),
    )

    def going(path):
        longer = (path.count < steps) | (measure & ~path.turned & (path.count < LONGEST))
        return longer & ~path.broken

    def advance(path):
        position, momentum, gradient, value, half = leapfrog(
            log_density, size, settings.scale, path.position, path.momentum, path.gradient
        )
        count = path.count + 1
        travel = jax.tree.map(jnp.add, path.travel, half)
        point = select(count == steps, State(position, value, gradient), path.proposal)
        end = select(count == steps, momentum, path.end)
        turned = path.turned | (dots((travel, momentum))[0] < 0)
        broken = ~jnp.isfinite(value) & ~fresh
        return _Path(position, momentum, gradient, value, travel, point, end, count, turned, broken)

    path = jax.lax.while_loop(going, advance, begin)
    missed = path.broken & (path.count <= steps)
    before = half_square(momentum) - state.log_density
    after = half_square(path.end) - path.proposal.log_density
    error = jnp.where(fresh, 0, after - before)
    error = jnp.where(missed, jnp.inf, error)
    weight = jnp.exp(jnp.minimum(-error, 80))
    weight = jnp.where(jnp.isnan(weight), 0, weight)
    rate = jnp.minimum(weight, 1)
    accept = uniform(words[0], 0, real) < rate
    info = Info(
        acceptance_rate=rate,
        energy=jnp.where(accept, after, before),
        energy_error=error,
        n_steps=steps,
        int_time=size * steps.astype(real),
        diverging=~(error < DIVERGENT),
        symmetric_acceptance=2 * rate / (1 + weight),
        turn=path.count,
        gradients=path.count,
    )
    return select(accept, path.proposal, state), info


class _Path(NamedTuple):
    """A trajectory on its way."""

    position: Any
    momentum: Any
    gradient: Any
    log_density: Any
    travel: Any
    proposal: Any
    end: Any
    count: Any
    turned: Any
    broken: Any


def _choose_length(num_steps, word):
    lengths = jnp.asarray(num_steps, jnp.int32)
    if lengths.ndim == 0:
        return lengths
    chosen = scramble(word) % jnp.uint32(lengths.shape[0])
    return lengths[chosen.astype(jnp.int32)]


def leapfrog(log_density, step_size, scale, position, momentum, gradient):
    """One leapfrog in whitened coordinates [Neal 5.2.3].

    Returns:
      position, momentum, gradient, log density, and the momentum half way (proportional to the whitened displacement).
    """
    half = shift(momentum, 0.5 * step_size, scale.transpose(gradient))
    position = shift(position, step_size, scale.apply(half))
    value, gradient = jax.value_and_grad(log_density)(position)
    momentum = shift(half, 0.5 * step_size, scale.transpose(gradient))
    return position, momentum, gradient, value, half


def shift(tree, factor, direction):
    """Return `tree + factor * direction`."""
    return jax.tree.map(lambda x, d: x + factor * d, tree, direction)


def select(condition, first, second):
    """Return one of two pytrees of equal shapes; `condition` is a scalar."""
    return jax.tree.map(lambda a, b: jax.lax.select(condition, a, b), first, second)


def dots(*pairs):
    """Inner products of pairs of pytrees, as a list of scalars.

    They are written next to each other, so that over sharded leaves the compiler sums all of them in one exchange.
    """
    return [sum(jnp.sum(x * y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)) for a, b in pairs]


def half_square(momentum):
    """Kinetic energy, |r|^2 / 2."""
    return 0.5 * dots((momentum, momentum))[0]


def float_type(tree):
    """Return the dtype of the first leaf: log densities and step sizes are kept in it."""
    return jnp.result_type(jax.tree.leaves(tree)[0])


def draw_momentum(key, position, count=4):
    """Draw a standard normal pytree like `position`, and `count` random words.

    An array takes one call of the generator. A container of arrays takes the same numbers as if its leaves lay one after
    another in one array, but each entry is computed from its own place alone: so leaves that are spread over devices
    are drawn where they lie, and the numbers do not depend on the layout.
    """
    leaves, structure = jax.tree.flatten(position)
    if not isinstance(position, jax.Array | np.ndarray):
        return _draw_by_place(key, leaves, structure, count)
    (leaf,) = leaves
    real, size = float_type(leaf), jnp.size(leaf)
    width = jnp.finfo(real).bits
    # The barrier keeps the compiler from repeating the cipher in each place that reads some of its words.
    words = jax.lax.optimization_barrier(random_words(key, count + size * (width // 32)))
    bits = words[count:] if width == 32 else _join(words[count : count + size], words[count + size :])
    return _normal(bits, real).reshape(jnp.shape(leaf)), words[:count]


def _normal(bits, real):
    """Map random bits to standard normal numbers."""
    width = jnp.finfo(real).bits
    signed = jax.lax.bitcast_convert_type(bits, f"int{width}").astype(real)
    edge = 1 - jnp.finfo(real).epsneg
    return 2**0.5 * jax.lax.erf_inv(jnp.clip(signed * 2.0 ** (1 - width), -edge, edge))


def _draw_by_place(key, leaves, structure, count):
    data = jax.random.key_data(key)
    if data.shape != (2,):  # no threefry key
        keys = [jax.random.fold_in(key, i) for i in range(len(leaves))]
        normals = [jax.random.normal(k, jnp.shape(x), x.dtype) for k, x in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, normals), jax.random.bits(key, (count,))
    real, size = jnp.result_type(leaves[0]), sum(jnp.size(leaf) for leaf in leaves)
    wide = jnp.finfo(real).bits == 64
    total = count + size * (2 if wide else 1)
    normals, before = [], count
    for leaf in leaves:
        place = places(jnp.shape(leaf), before)
        bits = _word_at(data, place, total)
        if wide:
            bits = _join(bits, _word_at(data, place + jnp.uint32(size), total))
        normals.append(_normal(bits, real))
        before += jnp.size(leaf)
    return jax.tree.unflatten(structure, normals), _word_at(data, jnp.arange(count, dtype=jnp.uint32), total)


def places(shape, before):
    """Return the place of each entry of an array of `shape` in a row of numbers, `before` of which come first."""
    place, stride = jnp.full(shape, before, jnp.uint32), 1
    for axis in reversed(range(len(shape))):
        place = place + jnp.uint32(stride) * jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        stride *= shape[axis]
    return place


def _word_at(data, place, count):
    """Return those of the `count` random words of a key (see `random_words`) that have these places."""
    half = jnp.uint32((count + 1) // 2)
    first = place < half
    low = jnp.where(first, place, place - half)
    words = threefry(data, jnp.zeros_like(low), low)
    return jnp.where(first, *words)


def _join(high, low):
    return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)


def random_words(key, count):
    """Return `count` random 32-bit words.

    For threefry keys this is the block cipher itself on the counters (0, 0), (0, 1), ..., both words of each block
    used, and unrolled: jax's rolled loop compiles no faster, and is five times slower on batches of short vectors.
    Reference: Salmon and others (2011), "Parallel random numbers: as easy as 1, 2, 3".
    """
    data = jax.random.key_data(key)
    if data.shape != (2,):
        return jax.random.bits(key, (count,))
    low = jnp.arange((count + 1) // 2, dtype=jnp.uint32)
    return jnp.concatenate(threefry(data, jnp.zeros_like(low), low))[:count]


def threefry(key, high, low):
    """Threefry-2x32 with 20 rounds of the counters (high, low)."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    schedule = [jax.lax.broadcast(word, high.shape) for word in schedule]
    high, low = jax.lax.add(high, schedule[0]), jax.lax.add(low, schedule[1])
    for group in range(5):
        for rotation in rotations[group % 2]:
            high = jax.lax.add(high, low)
            left = jax.lax.shift_left(low, jax.lax.full_like(low, rotation))
            right = jax.lax.shift_right_logical(low, jax.lax.full_like(low, 32 - rotation))
            low = jax.lax.bitwise_xor(high, jax.lax.bitwise_or(left, right))
        high = jax.lax.add(high, schedule[(group + 1) % 3])
        low = jax.lax.add(low, jax.lax.add(schedule[(group + 2) % 3], jax.lax.full_like(low, group + 1)))
    return high, low


def scramble(x):
    """Mix the bits of 32-bit words (Wellons' lowbias32, a bijection)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def uniform(word, index, real):
    """Uniform number in [0, 1) with 24 bits, the `index`-th of the stream named by a random word."""
    index = jnp.asarray(index).astype(jnp.uint32)
    return (scramble(word ^ (index * jnp.uint32(0x9E3779B9))) >> 8).astype(real) * 2.0**-24
