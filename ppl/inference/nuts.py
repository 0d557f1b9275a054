"""The No-U-Turn sampler: one transition.

    H(q, r) = -log_density(q) + |r|^2 / 2        (r: momentum in whitened coordinates, see `whitening`)

A trajectory doubles, forwards or backwards by a fair coin, until it turns back. Points are drawn with weights exp(-H):
progressively within each new half, and between the old and the new half with a bias to the new one. The
generalised criterion stops a tree whose total momentum points against the momentum of either end, or does so for the
left tree with the first point of the right one, or for the right tree with the last point of the left one.

No recursion: the leaves of a new half come one after another, and `Memory` keeps, for each level, the left subtree that
waits for its right twin. Leaf n ends as many subtrees as n has trailing ones.

Weights are relative to the first point and linear, `exp(min(-error, 80))`: one exponential a leaf, and 1023 of the
largest still fit in float32.

References: Hoffman and Gelman (2014); Betancourt (2017), arXiv 1701.02434, appendix A; Phan, Pradhan, Jankowiak (2019),
arXiv 1912.11554, for the iterative form.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppl.inference import whitening
from ppl.inference.hmc import (
    DIVERGENT,
    State,
    dots,
    draw_momentum,
    float_type,
    half_square,
    init,
    leapfrog,
    select,
    unevaluated,
    uniform,
)

__all__ = ["Settings", "State", "Info", "init", "unevaluated", "step"]


class Settings(NamedTuple):
    """What one transition is told.

    Args:
      step_size: scalar, > 0.
      scale: a whitening.
      max_depth: most doublings of a trajectory.
    """

    step_size: Any
    scale: Any = whitening.Identity()
    max_depth: Any = 10


class Info(NamedTuple):
    """What is reported of one transition; names as in ArviZ's schema, then one for the warm-up.

    Args:
      acceptance_rate: mean over the leaves of `min(1, exp(-error))`.
      energy: H of the chosen point.
      energy_error: its H minus that of the beginning.
      max_energy_error: the error of largest size among the leaves.
      tree_depth: doublings that were completed.
      n_steps: leapfrogs, which is gradients.
      reached_max_treedepth: whether the tree had not turned back when it had to stop.
      diverging: whether an energy error passed 1000 or was not a number.
      symmetric_acceptance: mean of `2 min(1, w) / (1 + w)`, w = exp(-error); treats gains and losses alike.
    """

    acceptance_rate: Any
    energy: Any
    energy_error: Any
    max_energy_error: Any
    tree_depth: Any
    n_steps: Any
    reached_max_treedepth: Any
    diverging: Any
    symmetric_acceptance: Any

    @property
    def gradients(self):
        """Evaluations of the gradient."""
        return self.n_steps


class _End(NamedTuple):
    """An end of a trajectory."""

    position: Any
    momentum: Any
    gradient: Any


class _Memory(NamedTuple):
    """Per level, the left subtree that waits for its right twin: momenta of its ends and their sum over its leaves."""

    first: Any
    last: Any
    total: Any


class _Subtree(NamedTuple):
    """A new half of the trajectory, leaf by leaf."""

    end: _End
    memory: _Memory
    count: Any
    first: Any  # momentum of the first leaf of the subtree completed last
    total: Any  # sum of momenta of that subtree
    weight: Any
    proposal: State
    error: Any  # energy error of the proposal
    turning: Any
    diverging: Any
    sums: Any  # of acceptance and symmetric acceptance
    worst: Any


class _Tree(NamedTuple):
    """The whole trajectory."""

    ends: _End  # leading axis: 0 backward, 1 forward
    memory: _Memory
    total: Any
    weight: Any
    proposal: State
    error: Any
    depth: Any
    completed: Any
    count: Any
    turning: Any
    diverging: Any
    sums: Any
    worst: Any


def step(key, log_density, settings, state, *, deepest=10):
    """One transition that leaves `exp(log_density)` invariant.

    Args:
      key: a jax key.
      log_density: function of a position.
      settings: `Settings`.
      state: `State`; see `hmc` for one that is not yet evaluated.
      deepest: largest `max_depth` the program has room for (static; `settings.max_depth` may be traced).

    Returns:
      The next `State` and an `Info`.
    """
    real = float_type(state.position)
    fresh = state.log_density == -jnp.inf
    momentum, words = draw_momentum(key, state.position)
    size = jnp.where(fresh, 0, jnp.asarray(settings.step_size, real))
    limit = jnp.where(fresh, 1, jnp.minimum(jnp.asarray(settings.max_depth, jnp.int32), deepest))
    energy = jnp.where(fresh, 0, half_square(momentum) - state.log_density)
    zero, none, no = jnp.zeros_like(energy), jnp.int32(0), jnp.bool_(False)
    room = jax.tree.map(lambda r: jnp.zeros((deepest, *r.shape), r.dtype), momentum)
    ends = jax.tree.map(lambda x: jnp.stack([x, x]), _End(state.position, momentum, state.gradient))
    weight = jnp.where(fresh, 0, jnp.ones_like(energy))
    begin = _Tree(
        *(ends, _Memory(room, room, room), momentum, weight, state, zero, none, none, none, no, no, (zero, zero), zero)
    )

    def growing(tree):
        return (tree.depth < limit) & ~(tree.turning | tree.diverging)

    def double(tree):
        return _double(log_density, size, settings.scale, energy, fresh, words, tree)

    tree = jax.lax.while_loop(growing, double, begin)
    leaves = tree.count.astype(real)
    info = Info(
        acceptance_rate=tree.sums[0] / leaves,
        energy=energy + tree.error,
        energy_error=tree.error,
        max_energy_error=tree.worst,
        tree_depth=tree.completed,
        n_steps=tree.count,
        reached_max_treedepth=~(tree.turning | tree.diverging | fresh),
        diverging=tree.diverging,
        symmetric_acceptance=tree.sums[1] / leaves,
    )
    return tree.proposal, info


def _double(log_density, size, scale, energy, fresh, words, tree):
    """Add a half as long as the trajectory so far."""
    real = size.dtype
    side = ((words[0] >> tree.depth.astype(jnp.uint32)) & 1).astype(jnp.int32)
    signed = jnp.where(side == 1, size, -size)
    near = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, side, keepdims=False), tree.ends)
    far = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, 1 - side, keepdims=False), tree.ends.momentum)
    leaves = jnp.int32(1) << tree.depth
    zero, no = jnp.zeros_like(size), jnp.bool_(False)
    begin = _Subtree(
        *(near, tree.memory, jnp.int32(0), near.momentum, near.momentum, zero, tree.proposal, zero),
        *(no, no, tree.sums, tree.worst),
    )

    def growing(half):
        return (half.count < leaves) & ~(half.turning | half.diverging)

    def add(half):
        return _add_leaf(log_density, signed, scale, energy, fresh, words[1], leaves, half)

    half = jax.lax.while_loop(growing, add, begin)
    valid = ~(half.turning | half.diverging)
    take = valid & (uniform(words[2], tree.depth, real) * tree.weight < half.weight)
    turning = _turns(far, near.momentum, tree.total, half.first, half.end.momentum, half.total)
    ends = jax.tree.map(lambda x, e: jax.lax.dynamic_update_index_in_dim(x, e, side, 0), tree.ends, half.end)
    return _Tree(
        ends=ends,
        memory=half.memory,
        total=jax.tree.map(jnp.add, tree.total, half.total),
        weight=tree.weight + half.weight,
        proposal=select(take, half.proposal, tree.proposal),
        error=jnp.where(take, half.error, tree.error),
        depth=tree.depth + 1,
        completed=tree.completed + valid.astype(jnp.int32),
        count=tree.count + half.count,
        turning=(half.turning | turning) & ~half.diverging,
        diverging=half.diverging,
        sums=half.sums,
        worst=half.worst,
    )


def _add_leaf(log_density, step_size, scale, energy, fresh, word, leaves, half):
    """One leapfrog, the draw between its end and the proposal so far, and the check of the subtrees it completes."""
    real = step_size.dtype
    position, momentum, gradient, value, _ = leapfrog(log_density, step_size, scale, *half.end)
    error = jnp.where(fresh, 0, half_square(momentum) - value - energy)
    weight = jnp.exp(jnp.minimum(-error, 80))
    diverging = ~(error < DIVERGENT)
    weight = jnp.where(diverging, 0, weight)
    total_weight = half.weight + weight
    take = uniform(word, leaves + half.count, real) * total_weight < weight
    memory, first, total, turning = _check(half.memory, half.count, momentum)
    rate = jnp.minimum(weight, 1)
    return _Subtree(
        end=_End(position, momentum, gradient),
        memory=memory,
        count=half.count + 1,
        first=first,
        total=total,
        weight=total_weight,
        proposal=select(take, State(position, value, gradient), half.proposal),
        error=jnp.where(take, error, half.error),
        turning=turning,
        diverging=diverging,
        sums=(half.sums[0] + rate, half.sums[1] + 2 * rate / (1 + weight)),
        worst=jnp.where(jnp.abs(error) > jnp.abs(half.worst), error, half.worst),
    )


def _check(memory, count, momentum):
    """Join the new leaf with the left subtrees that waited for it, from small to large, until one has turned back."""

    def joining(carry):
        level, _, _, turning = carry
        return ((count >> level) & 1 == 1) & ~turning

    def join(carry):
        level, first, total, _ = carry
        left = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, level, keepdims=False), memory)
        turning = _turns(left.first, left.last, left.total, first, momentum, total)
        return level + 1, left.first, jax.tree.map(jnp.add, left.total, total), turning

    level, first, total, turning = jax.lax.while_loop(
        joining, join, (jnp.int32(0), momentum, momentum, jnp.bool_(False))
    )
    waiting = _Memory(first, momentum, total)
    memory = jax.tree.map(lambda x, new: jax.lax.dynamic_update_index_in_dim(x, new, level, 0), memory, waiting)
    return memory, first, total, turning


def _turns(left_first, left_last, left_total, right_first, right_last, right_total):
    """Whether the tree made of two neighbors turns back: the generalised criterion with its checks across the seam."""
    total = jax.tree.map(jnp.add, left_total, right_total)
    left_more = jax.tree.map(jnp.add, left_total, right_first)
    right_more = jax.tree.map(jnp.add, right_total, left_last)
    products = dots(
        (left_first, total),
        (right_last, total),
        (left_first, left_more),
        (right_first, left_more),
        (left_last, right_more),
        (right_last, right_more),
    )
    ahead = products[0] > 0
    for product in products[1:]:
        ahead = ahead & (product > 0)
    return ~ahead
