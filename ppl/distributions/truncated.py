"""Any family of numbers, truncated to an interval."""

import jax
import jax.numpy as jnp
from jax import Array

from ppl.distributions.bounded import Bounded
from ppl.distributions.quantiles import first, quantile
from ppl.distributions.special import as_float
from ppl.distributions.tails import log_above, log_at_most, log_below, log_between
from ppl.random_variable import random_variable


@random_variable
class Truncated(Bounded):
    """A random variable X given that low <= X <= high.

        log f(x) = log g(x) - log P(low <= X <= high),        low <= x <= high

    with g the density, or probability, of the base. Draws are made by bisection of the distribution function, or, above
    the median, of its complement, over all floats (or whole numbers): they are exact in both tails.

    Args:
      base: a random variable of numbers with a distribution function, such as `StudentT(3.0, 0.0, 1.0)`.
      low: lower end, included; None for none.
      high: upper end, included; None for none.
    """

    verb = "truncated"
    icdf = quantile

    def sample(self, key) -> Array:
        """Draw numbers between the bounds."""
        base, dtype = self.base, jax.eval_shape(self.base.sample, key).dtype
        log_mass = log_between(base, self.low, self.high)
        lower = -jnp.inf if self.low is None else log_below(base, self.low)
        upper = -jnp.inf if self.high is None else log_above(base, self.high)
        uniform = jax.random.uniform(key, self.shape, log_mass.dtype, minval=jnp.finfo(log_mass.dtype).tiny)
        from_below = jnp.logaddexp(lower, jnp.log(uniform) + log_mass)
        from_above = jnp.logaddexp(upper, jnp.log(uniform) + log_mass)
        use_upper = lower > -0.693

        def reached(x):
            x = as_float(x).astype(log_mass.dtype)
            return jnp.where(use_upper, log_above(base, x) <= from_above, log_at_most(base, x) >= from_below)

        return first(reached, self.support, self.shape, dtype)

    def log_prob(self, x) -> Array:
        """Return the log density at `x`."""
        x = jnp.asarray(x)
        base, inside = self.base, self.base.support.contains(x)
        floats = as_float(x)
        if self.low is not None:
            inside = inside & (floats >= self.low.astype(floats.dtype))
        if self.high is not None:
            inside = inside & (floats <= self.high.astype(floats.dtype))
        log_mass = log_between(base, self.low, self.high)
        inside = inside & (log_mass > -jnp.inf)
        log_density = base.log_prob(jnp.where(inside, x, base.support.feasible(x)))
        return jnp.where(inside, log_density - jnp.where(inside, log_mass, 0), -jnp.inf)

    def log_cdf(self, x) -> Array:
        """Return log P(X <= x)."""
        x = as_float(x) if self.high is None else jnp.minimum(as_float(x), self.high)
        low = jnp.full_like(x, -jnp.inf) if self.low is None else jnp.minimum(self.low, x)
        log_cdf = log_between(self.base, low, x) - log_between(self.base, self.low, self.high)
        return log_cdf if self.low is None else jnp.where(as_float(x) < self.low, -jnp.inf, log_cdf)

    def cdf(self, x) -> Array:
        """Return P(X <= x)."""
        return jnp.exp(self.log_cdf(x))
