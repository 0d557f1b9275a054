"""Draws of Poisson and binomial counts whose law is exact to rounding for any size, in float32 too.

Small means count arrivals. Large means use transformed rejection, with the densities of `special_discrete`: the usual
log factorials are too coarse in float32 from a mean of about 1e5 on.

Reference: Hormann (1993), The transformed rejection method for generating Poisson random variables; The generation of
binomial random variates. Sections "PTRS" and "BTRS".
"""

import functools

import jax
import jax.numpy as jnp

from ppl.distributions.special_discrete import Chance, log_binomial, log_poisson

_ARRIVALS = 10.0  # from this mean on, rejection is used


@functools.partial(jax.jit, static_argnames="shape")
def draw_poisson(key, rate, shape):
    """Draw Poisson counts of `shape`, as whole floats of the dtype of `rate`."""
    rate = jnp.broadcast_to(rate, shape)
    small = rate < _ARRIVALS
    arrivals = _count_arrivals(key, lambda k: jax.random.exponential(k, shape, rate.dtype), jnp.where(small, rate, 0))
    large = jnp.where(small, _ARRIVALS, rate)
    b = 0.931 + 2.53 * jnp.sqrt(large)
    log_large = jnp.log(large)
    rejection = _transformed_rejection(
        jax.random.fold_in(key, 1),
        center=large + 0.43,
        a=-0.059 + 0.02483 * b,
        b=b,
        squeeze=0.9277 - 3.6224 / (b - 2),
        log_scale=jnp.log(1.1239 + 1.1328 / (b - 3.4)),
        log_target=lambda x: log_poisson(x, large, log_large),
        high=jnp.full_like(rate, jnp.inf),
        wanted=~small,
    )
    return jnp.where(small, arrivals, rejection)


@functools.partial(jax.jit, static_argnames="shape")
def draw_binomial(key, total, success, failure, shape):
    """Draw binomial counts of `shape`, as whole floats of the dtype of `success`; `failure` is 1 - success."""
    total = jnp.broadcast_to(total, shape).astype(success.dtype)
    success, failure = jnp.broadcast_to(success, shape), jnp.broadcast_to(failure, shape)
    flip = success > 0.5
    p, q = jnp.where(flip, failure, success), jnp.where(flip, success, failure)
    small = total * p < _ARRIVALS

    log_q = jnp.log1p(-jnp.where(small & (p > 0), p, 0.5))

    def trials_to_success(k):
        return jnp.floor(-jax.random.exponential(k, shape, p.dtype) / log_q) + 1

    some = small & (p > 0)
    successes = _count_arrivals(key, trials_to_success, jnp.where(some, total, 0))

    n, p, q = jnp.where(small, 100, total), jnp.where(small, 0.5, p), jnp.where(small, 0.5, q)
    odds = Chance(p, q, jnp.log(p), jnp.log1p(-p), False, False)
    spread = jnp.sqrt(n * p * q)
    b = 1.15 + 2.53 * spread
    peak = jnp.floor((n + 1) * p)
    log_peak = log_binomial(peak, n - peak, odds)
    rejection = _transformed_rejection(
        jax.random.fold_in(key, 1),
        center=n * p + 0.5,
        a=-0.0873 + 0.0248 * b + 0.01 * p,
        b=b,
        squeeze=0.92 - 4.2 / b,
        log_scale=jnp.log((2.83 + 5.1 / b) * spread),
        log_target=lambda x: log_binomial(x, n - x, odds) - log_peak,
        high=n,
        wanted=~small,
    )
    drawn = jnp.where(small, successes, rejection)
    return jnp.where(flip, total - drawn, drawn)


@functools.partial(jax.jit, static_argnames="shape")
def draw_multinomial(key, total, p, shape):
    """Draw counts of `shape`, over the last axis with probabilities `p` that sum to one: a binomial a class."""
    p = jnp.moveaxis(jnp.broadcast_to(p, shape), -1, 0)
    rest = jnp.cumsum(p[::-1], 0)[::-1]
    later = jnp.concatenate([rest[1:], jnp.zeros_like(rest[:1])])
    whole = jnp.where(rest > 0, rest, 1)
    success, failure = jnp.minimum(p / whole, 1), jnp.where(rest > 0, jnp.minimum(later / whole, 1), 1)

    def draw_class(left, inputs):
        i, success, failure = inputs
        drawn = draw_binomial(jax.random.fold_in(key, i), left, success, failure, shape[:-1])
        return left - drawn, drawn

    left = jnp.broadcast_to(total, shape[:-1]).astype(p.dtype)
    _, drawn = jax.lax.scan(draw_class, left, (jnp.arange(shape[-1]), success, failure))
    return jnp.moveaxis(drawn, 0, -1)


def _count_arrivals(key, gap, limit):
    """Count how many sums of independent `gap(key)` stay at or below `limit`."""

    def body(state):
        key, time, count = state
        key, gap_key = jax.random.split(key)
        time = time + gap(gap_key)
        return key, time, count + (time <= limit).astype(count.dtype)

    zero = jnp.zeros_like(limit)
    more = jax.lax.while_loop(lambda s: jnp.any(s[1] <= limit), body, (key, jnp.where(limit > 0, zero, 1), zero))
    return more[2]


def _transformed_rejection(key, center, a, b, squeeze, log_scale, log_target, high, wanted):
    """Draw k = floor((2 a / (1/2 - |u|) + b) u + center), and accept in proportion to the target."""
    shape, dtype = center.shape, center.dtype

    def body(state):
        key, drawn, open_ = state
        key, u_key, v_key = jax.random.split(key, 3)
        u = jax.random.uniform(u_key, shape, dtype) - 0.5
        v = 1 - jax.random.uniform(v_key, shape, dtype)  # never 0
        edge = jnp.maximum(0.5 - jnp.abs(u), jnp.finfo(dtype).eps / 4)
        k = jnp.floor((2 * a / edge + b) * u + center)
        inside = (k >= 0) & (k <= high)
        k = jnp.where(inside, k, jnp.floor(center))
        sure = (edge >= 0.07) & (v <= squeeze)
        fits = jnp.log(v) + log_scale - jnp.log(a / edge**2 + b) <= log_target(k)
        accepted = open_ & inside & (sure | fits)
        return key, jnp.where(accepted, k, drawn), open_ & ~accepted

    start = (key, jnp.zeros(shape, dtype), jnp.broadcast_to(wanted, shape))
    return jax.lax.while_loop(lambda s: jnp.any(s[2]), body, start)[1]
