"""Probabilities of half-lines of any family of numbers, as logarithms: for truncation and censoring.

A family gives `log_cdf(x)` = log P(X <= x) and `log_survival(x)` = log P(X > x), or `cdf` alone. Beyond the ends of its
support, and at infinite x, the answers here are exactly 0 or -inf, with gradient 0.
"""

import math

import jax
import jax.numpy as jnp

from ppl.distributions.special import as_float, log1mexp, log_positive
from ppl.supports import bounds

# Gauss-Legendre quadrature of five points on (-1, 1).
NODES = (-0.906179845938664, -0.5384693101056831, 0.0, 0.5384693101056831, 0.906179845938664)
WEIGHTS = (0.23692688505618928, 0.4786286704993663, 0.5688888888888887, 0.4786286704993663, 0.23692688505618928)


def has_tails(rv):
    """Tell whether a random variable has what these functions need."""
    return rv.event_ndim == 0 and (hasattr(rv, "cdf") or hasattr(rv, "log_cdf"))


def log_at_most(rv, x):
    """Return log P(X <= x)."""
    return guarded(rv, x, _log_cdf, -jnp.inf, 0.0, strict=rv.support.discrete)


def log_above(rv, x):
    """Return log P(X > x)."""
    return guarded(rv, x, _log_survival, 0.0, -jnp.inf, strict=rv.support.discrete)


def log_below(rv, x):
    """Return log P(X < x)."""
    return log_at_most(rv, _previous(rv, x))


def log_at_least(rv, x):
    """Return log P(X >= x)."""
    return log_above(rv, _previous(rv, x))


def log_between(rv, low, high):
    """Return log P(low <= X <= high); None leaves a side open.

    It is a difference of the smaller tail, or, where that would cancel, an integral of the density.
    """
    if low is None:
        return log_at_most(rv, high)
    if high is None:
        return log_at_least(rv, low)
    low, high = as_float(low), as_float(high)
    below, above = log_below(rv, low), log_above(rv, high)
    upper = below > -math.log(2)
    more = jnp.where(upper, log_at_least(rv, low), log_at_most(rv, high))
    less = jnp.where(upper, above, below)
    if rv.support.discrete:
        empty = more <= less
        return jnp.where(empty, -jnp.inf, more + log1mexp(jnp.where(empty, 1, more - less)))
    narrow = (more - less < 0.05) | (more == -jnp.inf)
    difference = more + log1mexp(jnp.where(narrow, 1, more - less))
    return jnp.where(narrow, _integral(rv, low, high, narrow), jnp.where(narrow, 0, difference))


def _integral(rv, low, high, wanted):
    """Return the log of a 5-point Gauss-Legendre integral of the density."""
    middle = as_float(rv.support.feasible(jnp.zeros((1,) * wanted.ndim, low.dtype))).reshape((1,) * wanted.ndim)
    start = jnp.where(wanted, jnp.where(low > -jnp.inf, low, high), middle)
    width = jnp.where(wanted, jnp.where((low > -jnp.inf) & (high < jnp.inf), high - low, 0), 1)
    log_densities = jnp.stack([rv.log_prob(start + width * ((t + 1) / 2)) for t in NODES])
    highest = jax.lax.stop_gradient(jnp.max(log_densities, 0))
    highest = jnp.where(highest == -jnp.inf, 0, highest)
    total = sum(jnp.exp(d - highest) * (w / 2) for d, w in zip(log_densities, WEIGHTS, strict=True))
    positive = total > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, total, 1)) + highest + log_positive(width), -jnp.inf)


def _previous(rv, x):
    """Return the last number before x: x itself, or the integer below for whole numbers."""
    return jnp.ceil(as_float(x)) - 1 if rv.support.discrete else x


def guarded(rv, x, function, under, over, strict=False):
    """Return `function(rv, x)` inside the support, and `under` or `over` beyond its ends (at them, unless `strict`)."""
    x = as_float(x)
    x = jnp.floor(x) if strict else x
    low, high = (None if b is None else jnp.asarray(b).astype(x.dtype) for b in bounds(rv.support))
    is_under, is_over = x == -jnp.inf, x == jnp.inf
    if low is not None:
        is_under = is_under | ((x < low) if strict else (x <= low))
    if high is not None:
        is_over = is_over | (x >= high)
    outside = is_under | is_over
    safe = rv.support.feasible(jnp.zeros((1,) * outside.ndim, x.dtype))
    result = function(rv, jnp.where(outside, safe.astype(x.dtype), x))
    return jnp.where(is_under, under, jnp.where(is_over, over, result))


def _log_cdf(rv, x):
    return rv.log_cdf(x) if hasattr(rv, "log_cdf") else log_positive(rv.cdf(x))


def _log_survival(rv, x):
    if hasattr(rv, "log_survival"):
        return rv.log_survival(x)
    return log1mexp(-rv.log_cdf(x)) if hasattr(rv, "log_cdf") else log_positive(1 - rv.cdf(x))
