"""Any family of numbers, censored: known only to lie beyond a bound."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppl.distributions.bounded import Bounded
from ppl.distributions.special import as_float
from ppl.distributions.tails import log_at_least, log_at_most
from ppl.errors import ModelError
from ppl.random_variable import concrete, random_variable


@random_variable
class Censored(Bounded):
    """A random variable X recorded as min(max(X, low), high).

        log f(x) = log g(x)              low < x < high
                   log P(X <= low)       x = low
                   log P(X >= high)      x = high

    with g the density, or probability, of the base. Bounds may be integers or floats, and differ from entry to entry:
    an infinite bound means that the entry is not censored on that side. Meant for observations.

    Args:
      base: a random variable of numbers with a distribution function, such as `Weibull(2.0, scale)`.
      low: lower bound; None for none.
      high: upper bound; None for none.
    """

    verb = "censored"

    def check(self):
        """Refuse bases and bounds that make no sense."""
        super().check()
        for name in ("low", "high"):
            bound = None if getattr(self, name) is None else concrete(getattr(self, name))
            if bound is not None and self.base.support.discrete and np.any(bound != np.floor(bound)):
                raise ModelError(
                    f"{self._label()}: {name} must be a whole number, as draws of {type(self.base).__name__} are, "
                    f"but is {bound.ravel()[0]:.6g}"
                )

    def sample(self, key) -> Array:
        """Draw records."""
        x = self.base.sample(key)
        floats = as_float(x)
        if self.low is not None:
            x = jnp.where(floats < self.low.astype(floats.dtype), _like(self.low, x), x)
        if self.high is not None:
            x = jnp.where(floats > self.high.astype(floats.dtype), _like(self.high, x), x)
        return x

    def log_prob(self, x) -> Array:
        """Return the log density of the record `x`."""
        x = jnp.asarray(x)
        base, floats = self.base, as_float(x)
        free = base.support.contains(x)
        safe = as_float(base.support.feasible(x)).astype(floats.dtype)
        log_density, ends = jnp.zeros((), floats.dtype), []
        if self.low is not None:
            low = self.low.astype(floats.dtype)
            ends.append((floats == low, log_at_most(base, jnp.where(floats == low, low, safe))))
            free = free & (floats > low)
        if self.high is not None:
            high = self.high.astype(floats.dtype)
            ends.append((floats == high, log_at_least(base, jnp.where(floats == high, high, safe))))
            free = free & (floats < high)
        log_density = base.log_prob(jnp.where(free, x, base.support.feasible(x)))
        log_density = jnp.where(free, log_density, -jnp.inf)
        for at_end, log_mass in ends:
            log_density = jnp.where(at_end, log_mass, log_density)
        return log_density


def _like(bound, x):
    """Return a bound in the dtype of draws."""
    if jnp.issubdtype(x.dtype, jnp.integer):
        info = jnp.iinfo(x.dtype)
        bound = jnp.clip(bound, float(info.min) / 2, float(info.max) / 2)
    return bound.astype(x.dtype)
