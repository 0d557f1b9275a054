"""Any family of numbers, truncated to an interval."""

import jax
import jax.numpy as jnp
from jax import Array

from ppl.distributions.special import as_float
from ppl.distributions.tails import has_tails, log_above, log_at_most, log_below, log_between
from ppl.errors import ModelError
from ppl.random_variable import ArrayLike, RandomVariable, concrete, random_variable
from ppl.supports import any_real, between, bounds
from ppl.supports.base import from_count, to_count
from ppl.supports.bounds import greatest, least


def refuse_base(rv, verb):
    """Refuse a `base` that is no random variable of numbers with a distribution function, and bounds that are empty."""
    if not isinstance(rv.base, RandomVariable):
        raise ModelError(f"{rv._label()}: base must be a random variable, not {type(rv.base).__name__}")
    if not has_tails(rv.base):
        raise ModelError(
            f"{rv._label()}: {type(rv.base).__name__} cannot be {verb}: it has no `cdf`. Families of "
            "single numbers with `cdf` or `log_cdf` can"
        )
    if rv.low is None and rv.high is None:
        raise ModelError(f"{rv._label()}: give low, high or both")
    low, high = (None if b is None else concrete(b) for b in (rv.low, rv.high))
    if low is not None and high is not None and not (low <= high).all():
        raise ModelError(f"{rv._label()}: low must not exceed high, but low is {low} and high is {high}")


@random_variable
class Truncated(RandomVariable):
    """A random variable X given that low <= X <= high.

        log f(x) = log g(x) - log P(low <= X <= high),        low <= x <= high

    with g the density, or probability, of the base. Draws are made by bisection of the distribution function, or, above
    the median, of its complement, over all floats (or whole numbers): they are exact in both tails.

    Args:
      base: a random variable of numbers with a distribution function, such as `StudentT(3.0, 0.0, 1.0)`.
      low: lower end, included; None for none.
      high: upper end, included; None for none.
    """

    base: RandomVariable
    low: ArrayLike | None = None
    high: ArrayLike | None = None

    domain = dict(low=any_real, high=any_real)

    def check(self):
        """Refuse bases and bounds that make no sense."""
        refuse_base(self, "truncated")

    def __post_init__(self):
        super().__post_init__()
        if self.base.shape != self.shape:
            self.__dict__["base"] = self.base.replace(shape=self.shape)

    pathwise = False

    @property
    def support(self):
        """The part of the base's support between the bounds."""
        low, high = bounds(self.base.support)
        low = greatest(*(b for b in (low, self.low) if b is not None))
        high = least(*(b for b in (high, self.high) if b is not None))
        return between(low, high, self.base.support.discrete)

    @property
    def dtype(self):
        """The dtype of a draw."""
        return self.base.dtype

    def sample(self, key) -> Array:
        """Draw numbers between the bounds."""
        base, discrete = self.base, self.base.support.discrete
        dtype = jax.eval_shape(base.sample, key).dtype
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

        low, high = bounds(self.support)
        if discrete:
            limit = 2 ** (30 if jnp.iinfo(dtype).bits == 32 else 52)
            low, high = (jnp.asarray(d if b is None else b) for b, d in ((low, -limit), (high, limit)))
            low = jnp.ceil(low).astype(dtype) if jnp.issubdtype(low.dtype, jnp.inexact) else low.astype(dtype)
            high = jnp.floor(high).astype(dtype) if jnp.issubdtype(high.dtype, jnp.inexact) else high.astype(dtype)
            return _bisect(reached, low, high, self.shape)
        largest = jnp.finfo(dtype).max
        low, high = (jnp.asarray(d if b is None else b, dtype) for b, d in ((low, -largest), (high, largest)))
        low, high = (to_count(jnp.clip(b, -largest, largest)) for b in (low, high))
        return from_count(_bisect(lambda n: reached(from_count(n, dtype)), low, high, self.shape), dtype)

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


def _bisect(reached, low, high, shape):
    """Return the smallest whole number from `low` to `high` where the monotone predicate `reached` holds."""
    low, high = jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape)

    def halve(ends):
        low, high = ends
        middle = (low & high) + ((low ^ high) >> 1)  # the mean, rounded down, without overflow
        yes = reached(middle)
        return jnp.where(yes, low, jnp.minimum(middle + 1, high)), jnp.where(yes, middle, high)

    return jax.lax.while_loop(lambda ends: jnp.any(ends[0] < ends[1]), halve, (low, high))[1]
