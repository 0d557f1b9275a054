"""Random-walk Metropolis: one transition.

    proposal = position + scale * standard normal,        accepted with probability min(1, density ratio)

`init` and `step` are pure and know nothing of models, devices or loops over draws. A state whose log density is -inf
counts as not yet evaluated: `step` then evaluates it where it is (see `hmc`).

Reference: Metropolis and others (1953).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppl.inference.hmc import draw_momentum, float_type, select, uniform


class Settings(NamedTuple):
    """What one transition is told.

    Args:
      scale: standard deviation of the proposal; a scalar, or a pytree like the position.
    """

    scale: Any


class State(NamedTuple):
    """Where the chain is.

    Args:
      position: pytree of unconstrained arrays.
      log_density: scalar.
    """

    position: Any
    log_density: Any


class Info(NamedTuple):
    """What is reported of one transition.

    Args:
      acceptance_rate: probability with which the proposal was accepted.
      accepted: whether it was.
    """

    acceptance_rate: Any
    accepted: Any

    @property
    def gradients(self):
        """Evaluations of the density."""
        return jnp.int32(1)


def init(log_density, position):
    """Evaluate a position: the first state of a chain."""
    return State(position, log_density(position))


def unevaluated(position):
    """Return a state that the next `step` will evaluate, and not move."""
    return State(position, jnp.asarray(-jnp.inf, float_type(position)))


def step(key, log_density, settings, state):
    """One transition that leaves `exp(log_density)` invariant; returns the next `State` and an `Info`."""
    real = float_type(state.position)
    fresh = state.log_density == -jnp.inf
    noise, words = draw_momentum(key, state.position, 1)
    if jax.tree.structure(settings.scale) == jax.tree.structure(state.position):
        jump = jax.tree.map(lambda s, e: s * e, settings.scale, noise)
    else:
        jump = jax.tree.map(lambda e: settings.scale * e, noise)
    position = jax.tree.map(lambda x, j: jnp.where(fresh, x, x + j), state.position, jump)
    proposal = State(position, log_density(position))
    ratio = jnp.exp(jnp.minimum(proposal.log_density - state.log_density, 0))
    rate = jnp.where(fresh, 1, jnp.where(jnp.isnan(ratio), 0, ratio))
    accepted = uniform(words[0], 0, real) < rate
    return select(accepted, proposal, state), Info(rate, accepted)
