"""The steps of a variational fit: a pure function of a state and a key, and the loop that runs many of them.

    state, info = step(state, key)       # the gradient of an objective, and one update of an optimizer

`vi_step` hands out that function; `jax.grad` goes through any number of its calls. `vi` runs it in chunks of some 100
milliseconds, so that Python has the control in between: progress, Ctrl-C. Step number n uses `fold_in(key, n)`, so a fit
does not depend on chunks.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppl.errors import ModelError
from ppl.inference.estimators import Estimate, estimate

LENGTH = 512  # of the record of one chunk
FALL = 0.01  # the default learning rate falls to this part of the first one, evenly in its logarithm


class State(NamedTuple):
    """What moves.

    Args:
      params: the trained parameters: the pytree of the user, with None in place of leaves that are not trained.
      optimizer: the optimizer's state.
      count: steps so far.
      baseline: a running mean of the objective.
    """

    params: Any
    optimizer: Any
    count: Any
    baseline: Any


class Info(NamedTuple):
    """What one step reports.

    Args:
      objective: its estimate before the update.
      gradient_norm: the norm of the gradient.
      skipped: whether the gradient was not finite, and nothing moved.
      log_weights: log p(x, z) - log q(z) of each draw.
    """

    objective: Any
    gradient_norm: Any
    skipped: Any
    log_weights: Any


class Falling(NamedTuple):
    """The default optimizer: Adam whose rate falls a hundredfold over all steps of a fit."""

    init: Any
    update: Any


@functools.lru_cache(maxsize=64)
def _adam(rate):
    import optax

    return optax.adam(rate)


@functools.lru_cache(maxsize=64)
def _falling(first):
    import optax

    adam = optax.scale_by_adam(b1=0.9, b2=0.99)

    def update(gradients, state, params, count, total):
        updates, state = adam.update(gradients, state, params)
        share = count.astype(jnp.float32) / jnp.maximum(total, 1).astype(jnp.float32)
        rate = first * jnp.exp(share * jnp.log(jnp.float32(FALL)))
        return jax.tree.map(lambda u: -rate.astype(u.dtype) * u, updates), state

    return Falling(adam.init, update)


def optimizer_of(optimizer, first=0.02):
    """Return what has `init` and `update`: an optax optimizer as it is, Adam for a learning rate or a schedule of it."""
    if optimizer is None:
        return _falling(first)
    if hasattr(optimizer, "init") and hasattr(optimizer, "update"):
        return optimizer
    if callable(optimizer) or (
        isinstance(optimizer, int | float) and not isinstance(optimizer, bool) and optimizer > 0
    ):
        return _adam(optimizer)
    raise ModelError(
        f"optimizer={optimizer!r}: give a learning rate (0.01), a schedule of it, or an optax optimizer such as optax.adam(0.01)"
    )


def first_state(params, optimizer, dtype=None):
    """Return the state before the first step."""
    zero = jnp.zeros((), jnp.result_type(float))
    return State(params, optimizer.init(params), jnp.zeros((), jnp.int32), zero)


def make_step(problem, whole, objective, gradient, optimizer, samples, rows=None):
    """Return the pure function `step(state, key, arrays, total) -> (state, info)`.

    Args:
      problem: a `Problem`.
      whole: a function from trained parameters to the user's pytree.
      objective: a function of `(log_joint, log_guide)`, or an object with `surrogate`.
      gradient: the estimator's name.
      optimizer: what `optimizer_of` returned.
      samples: draws a step.
      rows: None, or a function of `(key, arrays)` that picks a mini-batch.
    """

    def evaluate(params, key, arrays, baseline):
        if hasattr(objective, "surrogate"):
            return Estimate(*objective.surrogate(problem, key, params, whole, arrays, samples))
        return estimate(problem, objective, gradient, key, params, arrays, samples, baseline)

    def negative(params, key, arrays, baseline):
        result = evaluate(params, key, arrays, baseline)
        return -result.surrogate, result

    def step(state, key, arrays, total):
        key = jax.random.fold_in(key, state.count)
        if rows is not None:
            row_key, key = jax.random.split(key)
            arrays = rows(row_key, arrays)
        gradients, result = jax.grad(negative, has_aux=True)(state.params, key, arrays, state.baseline)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)).astype(jnp.float32) for g in jax.tree.leaves(gradients)))
        good = jnp.isfinite(norm) & jnp.isfinite(result.value)
        gradients = jax.tree.map(lambda g: jnp.where(good, g, jnp.zeros_like(g)), gradients)
        with (
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        ):  # what optimizers are written for
            if isinstance(optimizer, Falling):
                updates, moved = optimizer.update(gradients, state.optimizer, state.params, state.count, total)
            else:
                updates, moved = optimizer.update(gradients, state.optimizer, state.params)
        params = jax.tree.map(lambda p, u: jnp.where(good, p + u.astype(p.dtype), p), state.params, updates)
        moved = jax.tree.map(lambda new, old: jnp.where(good, new, old), moved, state.optimizer)
        rate = jnp.where(state.count == 0, 1.0, 0.1).astype(state.baseline.dtype)
        baseline = jnp.where(good, state.baseline + rate * (result.value - state.baseline), state.baseline)
        baseline = jax.lax.stop_gradient(baseline.astype(state.baseline.dtype))
        info = Info(result.value, norm, ~good, result.log_weights)
        return State(params, moved, state.count + 1, baseline), info

    return step


def make_run(step):
    """Return `run(state, key, arrays, n, total) -> (state, trail, skipped)`: n steps, at most `LENGTH`."""

    def run(state, key, arrays, n, total):
        def body(carry):
            index, state, trail, skipped = carry
            state, info = step(state, key, arrays, total)
            trail = jax.lax.dynamic_update_index_in_dim(trail, info.objective.astype(trail.dtype), index, 0)
            return index + 1, state, trail, skipped + info.skipped.astype(jnp.int32)

        trail = jnp.zeros((LENGTH,), jnp.result_type(float))
        first = (jnp.zeros((), jnp.int32), state, trail, jnp.zeros((), jnp.int32))
        _, state, trail, skipped = jax.lax.while_loop(lambda c: c[0] < n, body, first)
        return state, trail, skipped

    return run
