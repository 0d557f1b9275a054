"""Distribution functions of counts, on the log scale, exact to rounding also where they are below the smallest float.

The smaller of P(X <= k) and P(X > k) is a density times a sum of products of ratios of neighbors, all below one; the
other is its complement. Derivatives are in closed form, so none dies in a tail.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma

from ppl.distributions.special_discrete import (
    Chance,
    log_binomial,
    log_poisson,
    possible,
    stirling_error_real,
)


def log1mexp(x):
    """Return log(1 - exp(x)) for x <= 0."""
    near = x > -0.6931472
    return jnp.where(near, jnp.log(-jnp.expm1(jnp.where(near, x, -1))), jnp.log1p(-jnp.exp(jnp.where(near, -1, x))))


def outer(x, dtype, tails):
    """Return `tails(floor(x))`, with the right limits where x < 0 or x = inf; `tails` only sees counts."""
    k = jnp.floor(jnp.asarray(x).astype(dtype))
    below, above = k < 0, k == jnp.inf
    cdf, survival = tails(jax.lax.stop_gradient(jnp.where((k >= 0) & ~above, k, 0)))
    cdf = jnp.where(below, -jnp.inf, jnp.where(above, 0, cdf))
    return cdf, jnp.where(below, 0, jnp.where(above, -jnp.inf, survival))


def _tails(below, log_here, log_next, down, up):
    """Return `(log P(X <= k), log P(X > k))` from log P(X = k), log P(X = k + 1) and ratios of neighbors.

    `below` tells where P(X <= k) is to be summed: P(k - j - 1) / P(k - j) = down(j). Elsewhere P(X > k) is:
    P(k + 2 + j) / P(k + 1 + j) = up(j).
    """
    first = jnp.where(below, log_here, log_next)
    eps = jnp.finfo(first.dtype).eps

    def body(state):
        j, term, total = state
        term = term * jnp.where(below, down(j), up(j))
        return j + 1, term, total + term

    one = jnp.ones_like(first)
    more = jax.lax.while_loop(
        lambda s: jnp.any(s[1] > eps * s[2] / 8) & (s[0] < 1e6), body, (jnp.zeros((), first.dtype), one, one)
    )
    small = jnp.minimum(first + jnp.log(more[2]), 0)
    other = log1mexp(small)
    return jnp.where(below, small, other), jnp.where(below, other, small)


def _share(log_part, log_whole):
    """Return exp(log_part - log_whole), 0 where the whole is 0."""
    known = log_whole > -jnp.inf
    return jnp.where(known, jnp.exp(log_part - jnp.where(known, log_whole, 0)), 0)


@jax.custom_jvp
def poisson_tails(k, mean):
    """Return `(log P(X <= k), log P(X > k))` for k = 0, 1, 2, ... and a mean of at least 0."""
    log_mean = jnp.log(jnp.where(mean > 0, mean, 1))
    log_next = jnp.where(mean > 0, log_poisson(k + 1, mean, log_mean), -jnp.inf)
    log_here = jnp.where((mean > 0) | (k == 0), log_poisson(k, mean, log_mean), -jnp.inf)
    safe = jnp.where(mean > 0, mean, 1)
    return _tails(k < mean, log_here, log_next, lambda j: jnp.maximum(k - j, 0) / safe, lambda j: mean / (k + 2 + j))


@poisson_tails.defjvp
def _poisson_tails_jvp(primals, tangents):
    k, mean = primals
    cdf, survival = poisson_tails(k, mean)
    log_here = log_poisson(k, mean, jnp.log(jnp.where(mean > 0, mean, 1)))
    log_here = jnp.where((mean > 0) | (k == 0), log_here, -jnp.inf)
    return (cdf, survival), (-_share(log_here, cdf) * tangents[1], _share(log_here, survival) * tangents[1])


@jax.custom_jvp
def binomial_tails(k, total, odds):
    """Return `(log P(X <= k), log P(X > k))` for k = 0, ..., total and a `Chance`."""
    p, q = odds.success, odds.failure
    y = total - k
    log_here = jnp.where(possible(k, y, odds), log_binomial(k, y, odds), -jnp.inf)
    last = y < 1
    above = log_binomial(jnp.where(last, k, k + 1), jnp.where(last, y, y - 1), odds)
    log_next = jnp.where(possible(k + 1, y - 1, odds) & ~last, above, -jnp.inf)
    safe_p, safe_q = jnp.where(p > 0, p, 1), jnp.where(q > 0, q, 1)
    return _tails(
        k < total * p,
        log_here,
        log_next,
        lambda j: jnp.maximum(k - j, 0) / (y + 1 + j) * (q / safe_p),
        lambda j: jnp.maximum(y - 1 - j, 0) / (k + 2 + j) * (p / safe_q),
    )


@binomial_tails.defjvp
def _binomial_tails_jvp(primals, tangents):
    k, total, odds = primals
    cdf, survival = binomial_tails(k, total, odds)
    log_here = jnp.where(possible(k, total - k, odds), log_binomial(k, total - k, odds), -jnp.inf)
    slope = (total - k) * tangents[2].log_failure
    return (cdf, survival), (_share(log_here, cdf) * slope, -_share(log_here, survival) * slope)


def negative_binomial_odds(mean, concentration):
    """Return the `Chance` of p = concentration / (concentration + mean); `always` where the mean is 0."""
    always = mean <= 0
    difference = jnp.log(concentration) - jnp.log(jnp.where(always, 1, mean))
    log_p = jnp.where(always, 0, -jax.nn.softplus(-difference))
    log_q = jnp.where(always, 0, -jax.nn.softplus(difference))
    fixed_mean, fixed = jax.lax.stop_gradient((mean, concentration))
    whole = fixed_mean + fixed
    return Chance(fixed / whole, fixed_mean / whole, log_p, log_q, jnp.zeros_like(always), always)


def log_negative_binomial(x, mean, concentration):
    """Return log [Gamma(x + r) / (x! Gamma(r)) p^r q^x] with r = concentration, p = r / (r + mean)."""
    odds = negative_binomial_odds(mean, concentration)
    value = log_binomial(concentration, x, odds, error=stirling_error_real) - jnp.log1p(x / concentration)
    return jnp.where(odds.always & (x > 0), -jnp.inf, value)


@jax.custom_jvp
def negative_binomial_tails(k, mean, concentration):
    """Return `(log P(X <= k), log P(X > k))` for k = 0, 1, 2, ... and a mean of at least 0."""
    r = concentration
    q = mean / (r + mean)
    log_here = log_negative_binomial(k, mean, r)
    log_next = log_negative_binomial(k + 1, mean, r)
    safe = jnp.where(q > 0, q, 1)
    return _tails(
        k < mean,
        log_here,
        log_next,
        lambda j: jnp.maximum(k - j, 0) / (jnp.maximum(k - j, 1) - 1 + r) / safe,
        lambda j: (k + 1 + j + r) / (k + 2 + j) * q,
    )


@negative_binomial_tails.defjvp
def _negative_binomial_tails_jvp(primals, tangents):
    """The derivative by the mean is in closed form; the one by the concentration sums density times score."""
    k, mean, r = primals
    cdf, survival = negative_binomial_tails(k, mean, r)
    log_here = log_negative_binomial(k, mean, r)
    here = -(r + k) / (r + mean) * tangents[1] + _score_sum(k, mean, r) * tangents[2]
    return (cdf, survival), (_share(log_here, cdf) * here, -_share(log_here, survival) * here)


def _score_sum(k, mean, r):
    """Return sum_{j <= k} P(j) s(j) / P(k) for a negative binomial, where s(j) = d log P(j) / dr.

    s(j) = digamma(j + r) - digamma(r) - log(1 + mean / r) + (mean - j) / (r + mean). Summed from k down if k is
    below the mean; else as -sum_{j > k}, since the whole sum is 0. Either way the terms fall.
    """
    q = mean / (r + mean)
    below = k < mean
    ratio_up = (r + k) / (k + 1) * q
    j = jnp.where(below, k, k + 1)
    score = digamma(j + r) - digamma(r) - jnp.log1p(mean / r) + (mean - j) / (r + mean)
    term = jnp.where(below, 1, ratio_up)
    safe_q = jnp.where(q > 0, q, 1)
    eps = jnp.finfo(term.dtype).eps

    def body(state):
        i, j, term, score, total = state
        down = jnp.maximum(j, 0) / ((jnp.maximum(j, 1) - 1 + r) * safe_q)
        up = (j + r) / (j + 1) * q
        score = jnp.where(below, score - 1 / (jnp.maximum(j, 1) - 1 + r), score + 1 / (j + r))
        score = jnp.where(below, score + 1 / (r + mean), score - 1 / (r + mean))
        term = term * jnp.where(below, down, up)
        return i + 1, jnp.where(below, j - 1, j + 1), term, score, total + term * score

    def more(state):
        i, _, term, score, total = state
        return jnp.any(jnp.abs(term * score) > eps * jnp.abs(total) / 8) & (i < 1e6)

    state = (jnp.zeros((), term.dtype), j, term, score, term * score)
    total = jax.lax.while_loop(more, body, state)[4]
    return jnp.where(below, total, -total)
