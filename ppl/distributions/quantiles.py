"""Quantiles of any family of numbers with a distribution function, by bisection over all floats or whole numbers."""

import jax
import jax.numpy as jnp

from ppl.distributions.special import as_float
from ppl.distributions.tails import log_above, log_at_most
from ppl.supports import bounds
from ppl.supports.base import from_count, to_count


def quantile(rv, p):
    """Return the smallest x with P(X <= x) >= p, exact in both tails; nan where p is no probability.

    Its derivatives are those of the equation F(x; parameters) = p, and 0 for whole numbers.
    """
    p = jnp.asarray(p, jnp.result_type(float))
    level, upper = jax.lax.stop_gradient(p), jax.lax.stop_gradient(p) > 0.5
    log_below, log_above_it = jnp.log(level), jnp.log1p(-level)
    fixed = jax.lax.stop_gradient(rv)

    def reached(x):
        return jnp.where(upper, log_above(fixed, x) <= log_above_it, log_at_most(fixed, x) >= log_below)

    x = first(reached, fixed.support, jnp.broadcast_shapes(p.shape, rv.shape), rv.dtype)
    if not rv.support.discrete:
        density = jnp.exp(fixed.log_prob(x))
        smooth = (density > 0) & (density < jnp.inf)
        inner = jnp.where(smooth, x, as_float(fixed.support.feasible(x)))
        gap = p - jnp.exp(log_at_most(rv, inner))
        change = (gap - jax.lax.stop_gradient(gap)) / jnp.where(smooth, density, 1)
        x = x + jnp.where(smooth, change, 0)
    x, ends = as_float(x), bounds(fixed.support)
    low, high = (d if b is None else as_float(jnp.asarray(b)) for b, d in zip(ends, (-jnp.inf, jnp.inf), strict=True))
    x = jnp.where(level == 0, low, jnp.where(level == 1, high, x))
    return jnp.where((level >= 0) & (level <= 1), x, jnp.nan)


def first(reached, support, shape, dtype):
    """Return the smallest member of a support of numbers where the monotone predicate `reached` holds."""
    low, high = bounds(support)
    if support.discrete:
        limit = 2 ** (30 if jnp.iinfo(dtype).bits == 32 else 52)
        low, high = (jnp.asarray(d if b is None else b) for b, d in ((low, -limit), (high, limit)))
        low = jnp.ceil(low).astype(dtype) if jnp.issubdtype(low.dtype, jnp.inexact) else low.astype(dtype)
        high = jnp.floor(high).astype(dtype) if jnp.issubdtype(high.dtype, jnp.inexact) else high.astype(dtype)
        return _bisect(reached, low, high, shape)
    largest = jnp.finfo(dtype).max
    low, high = (jnp.asarray(d if b is None else b, dtype) for b, d in ((low, -largest), (high, largest)))
    low, high = (to_count(jnp.clip(b, -largest, largest)) for b in (low, high))
    return from_count(_bisect(lambda n: reached(from_count(n, dtype)), low, high, shape), dtype)


def _bisect(reached, low, high, shape):
    """Return the smallest whole number from `low` to `high` where the monotone predicate `reached` holds."""
    low, high = jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape)

    def halve(ends):
        low, high = ends
        middle = (low & high) + ((low ^ high) >> 1)  # the mean, rounded down, without overflow
        yes = reached(middle)
        return jnp.where(yes, low, jnp.minimum(middle + 1, high)), jnp.where(yes, middle, high)

    return jax.lax.while_loop(lambda ends: jnp.any(ends[0] < ends[1]), halve, (low, high))[1]
