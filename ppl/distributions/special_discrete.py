"""Careful functions that the families of counts share.

Every count density is put together from Poisson densities in Loader's form, without differences of large numbers:

    log Poisson(x; mean) = -deviance(x, mean) - stirling_error(x) - log(2 pi x) / 2,
    deviance(x, mean)    = x log(x / mean) + mean - x,
    stirling_error(z)    = log Gamma(z) - [(z - 1/2) log z - z + log(2 pi) / 2].

A binomial is Poisson(x; n p) Poisson(n - x; n q) / Poisson(n; n), and likewise for the others; the textbook form
log n! - log x! - ... loses all digits in float32 when n is large.

Reference: Loader (2000), Fast and accurate computation of binomial probabilities.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid, softplus

from ppl.errors import ModelError
from ppl.random_variable import concrete

# 12 z stirling_error(z) for z >= 1 as a polynomial in 3 / (z + 1/2) - 1: Chebyshev series made with 40 digits, cut where
# the rest is below the dtype's rounding.
_STIRLING_SINGLE = (
    0.9948862055899337,
    -0.011795235949158071,
    -0.00838954274537969,
    -0.0018351976376028715,
    -0.0001197265446809222,
    -1.692022866745879e-07,
    -8.484441204500405e-06,
    -4.6627339809036105e-07,
    3.4892820559839303e-07,
    -1.301812038717733e-07,
)
_STIRLING_DOUBLE = (
    0.9948862055980886,
    -0.011795236115637353,
    -0.008389543075143053,
    -0.0018351943389323857,
    -0.00011972485506898451,
    -1.8739158121476735e-07,
    -8.484673872026186e-06,
    -4.2589968624952637e-07,
    3.3871795388331676e-07,
    -1.6779763955081435e-07,
    1.6888767678749797e-08,
    1.0073330804118956e-08,
    -7.737156628996665e-09,
    2.6115979752313266e-09,
    -4.2577045055981093e-10,
    -2.555747397197886e-10,
    3.739380932019317e-10,
    -1.4269759817586054e-10,
    -3.977358951087943e-11,
    2.8783861229660696e-11,
)


def whole(x, dtype):
    """Return `(counts, inside)`: `x` as floats of `dtype`, and where `x` is one of 0, 1, 2, ...

    A value that is not counts as 0. No gradient flows to a count.
    """
    x = jnp.asarray(x)
    inside = x >= 0
    if jnp.issubdtype(x.dtype, jnp.inexact):
        inside = inside & (x == jnp.floor(x)) & (x < jnp.inf)
    return jax.lax.stop_gradient(jnp.where(inside, x, jnp.zeros((), x.dtype)).astype(dtype)), inside


def integers(x):
    """Return floats that hold integers as integers, the largest integer where they are beyond it."""
    dtype = jnp.result_type(int)
    largest = jnp.iinfo(dtype).max
    too_large = x >= float(largest)
    return jnp.where(too_large, largest, jnp.where(too_large, 0, x).astype(dtype))


def plain(number):
    """Return a parameter as a Python int where it is one known whole number, else as it is."""
    known = concrete(number)
    return int(known) if known is not None and known.ndim == 0 and known == np.floor(known) else number


def one_of(rv, first="probs", second="logits"):
    """Refuse a random variable that was given both or neither of two alternative parameters."""
    given = [name for name in (first, second) if getattr(rv, name) is not None]
    if len(given) == 2:
        raise ModelError(f"{rv._label()} was given both {first} and {second}: leave one of them out")
    if not given:
        raise ModelError(f"{rv._label()} was given neither {first} nor {second}: pass one of them")


class Chance(NamedTuple):
    """The probability of a success and of a failure, and their logarithms.

    The logarithms are finite: where an outcome is impossible, they are of no meaning and `never` or `always` is true.
    Gradients reach the parameter through the logarithms alone.
    """

    success: jax.Array
    failure: jax.Array
    log_success: jax.Array
    log_failure: jax.Array
    never: jax.Array
    always: jax.Array


def chance(probs=None, logits=None):
    """Return the `Chance` that `probs` in [0, 1] or `logits` (infinities allowed) stand for."""
    if logits is not None:
        never, always = logits == -jnp.inf, logits == jnp.inf
        logits = jnp.where(never | always, 0, logits)
        fixed = jax.lax.stop_gradient(logits)
        success = jnp.where(never, 0, jnp.where(always, 1, sigmoid(fixed)))
        failure = jnp.where(never, 1, jnp.where(always, 0, sigmoid(-fixed)))
        at_end = never | always
        log_success, log_failure = -softplus(-logits), -softplus(logits)
        return Chance(
            success, failure, jnp.where(at_end, 0, log_success), jnp.where(at_end, 0, log_failure), never, always
        )
    never, always = probs <= 0, probs >= 1
    log_success = jnp.log(jnp.where(never, 1, probs))
    log_failure = jnp.log1p(-jnp.where(always, 0, probs))
    fixed = jax.lax.stop_gradient(probs)
    return Chance(fixed, 1 - fixed, log_success, log_failure, never, always)


@jax.custom_jvp
def stirling_error(z):
    """Return log Gamma(z) - [(z - 1/2) log z - z + log(2 pi) / 2] for z >= 1."""
    t = 3 / (z + 0.5) - 1
    value = jnp.zeros_like(z)
    for coefficient in _stirling(z.dtype)[::-1]:
        value = value * t + coefficient
    return value / (12 * z)


@stirling_error.defjvp
def _stirling_error_jvp(primals, tangents):
    (z,), (z_dot,) = primals, tangents
    value, t = stirling_error(z), 3 / (z + 0.5) - 1
    slope = jnp.zeros_like(z)
    for power, coefficient in reversed(list(enumerate(_stirling(z.dtype)))[1:]):
        slope = slope * t + power * coefficient
    return value, -(slope / (4 * (z + 0.5) ** 2) + value) / z * z_dot


def _stirling(dtype):
    return _STIRLING_DOUBLE if jnp.finfo(dtype).bits > 32 else _STIRLING_SINGLE


def stirling_error_real(z):
    """Return `stirling_error` for all z > 0."""
    small = z < 1
    low = jnp.where(small, z, 1)
    step = (low + 0.5) * (jnp.log1p(low) - jnp.log(low)) - 1
    return stirling_error(jnp.where(small, low + 1, z)) + jnp.where(small, step, 0)


@jax.custom_jvp
def deviance(x, mean, log_mean):
    """Return x log(x / mean) + mean - x for x >= 0, without cancellation where x is close to the mean.

    `log_mean` is the logarithm of `mean`: given apart because it is still finite where `mean` underflows to 0, and
    because gradients flow through the two as through x log x - x log_mean + mean - x.
    """
    gap, total = x - mean, x + mean
    near = jnp.abs(gap) < 0.1 * total
    v = jnp.where(near, gap / jnp.where(total > 0, total, 1), 0)
    square = v * v
    order = 8 if jnp.finfo(v.dtype).bits > 32 else 4
    series = jnp.zeros_like(v)
    for j in range(order, 0, -1):
        series = square * (series + 1 / (2 * j + 1))
    close = gap * v + 2 * x * v * series
    far = x * _log_ratio(x, mean, log_mean) - gap
    return jnp.where(near, close, far)


def _log_ratio(x, mean, log_mean):
    """Return log(x / mean), 0 at x = 0."""
    positive = x > 0
    x = jnp.where(positive, x, 1)
    quotient = x / jnp.where(mean > 0, mean, 1)
    usable = (mean > 0) & (quotient < jnp.inf) & (quotient > 0)
    return jnp.where(positive, jnp.log(jnp.where(usable, quotient, x)) - jnp.where(usable, 0, log_mean), 0)


@deviance.defjvp
def _deviance_jvp(primals, tangents):
    x, mean, log_mean = primals
    x_dot, mean_dot, log_mean_dot = tangents
    return deviance(x, mean, log_mean), _log_ratio(x, mean, log_mean) * x_dot + mean_dot - x * log_mean_dot


def log_poisson(x, mean, log_mean, error=stirling_error):
    """Return x log mean - mean - log Gamma(x + 1) for x = 0 or x >= 1, or all x >= 0 if `error` is for all reals."""
    positive = x > 0
    safe = jnp.where(positive, x, 1)
    correction = error(safe) + 0.5 * (jnp.log(safe) + math.log(2 * math.pi))
    return -deviance(x, mean, log_mean) - jnp.where(positive, correction, 0)


def log_poisson_peak(x, error=stirling_error):
    """Return `log_poisson` at its own mean: x log x - x - log Gamma(x + 1)."""
    positive = x > 0
    safe = jnp.where(positive, x, 1)
    return jnp.where(positive, -error(safe) - 0.5 * (jnp.log(safe) + math.log(2 * math.pi)), 0)


def log_binomial(x, y, odds, error=stirling_error):
    """Return log [Gamma(n + 1) / (Gamma(x + 1) Gamma(y + 1)) p^x q^y], n = x + y, for a `Chance` with p = 1 - q.

    Its value means nothing where the law excludes x successes: see `log_binomial_inside`.
    """
    n = x + y
    log_n = jnp.log(jnp.where(n > 0, n, 1))
    middle = (
        log_poisson(x, n * odds.success, log_n + odds.log_success, error)
        + log_poisson(y, n * odds.failure, log_n + odds.log_failure, error)
        - log_poisson_peak(n, error)
    )
    return jnp.where(x == 0, y * odds.log_failure, jnp.where(y == 0, x * odds.log_success, middle))


def possible(x, y, odds):
    """Tell whether x successes and y failures can occur at all: false with p = 0 and x > 0, or p = 1 and y > 0."""
    return ~((odds.never & (x > 0)) | (odds.always & (y > 0)))


def log_multinomial(x, log_p, p, error=stirling_error):
    """Return log [Gamma(n + 1) prod_i p_i^x_i / Gamma(x_i + 1)], n = sum(x), over the last axis; p sums to one.

    Gradients reach the probabilities through `log_p`.
    """
    n = jnp.sum(x, -1, keepdims=True)
    log_n = jnp.log(jnp.where(n > 0, n, 1))
    terms = log_poisson(x, n * p, log_n + log_p, error)
    return jnp.sum(terms, -1) - log_poisson_peak(n[..., 0], error)


def log_dirichlet_multinomial(x, a):
    """Return the log density of counts `x` with concentrations `a`, over the last axis.

    It is a ratio m(x) m(a) / m(x + a) of multinomials of one probability vector, which is free to choose;
    (x + a) / sum(x + a) puts the last of them at its peak, and keeps all three accurate.
    """
    both = x + a
    size = jnp.sum(both, -1, keepdims=True)
    p = jax.lax.stop_gradient(both / size)
    log_p = jnp.log(p)
    peaks = log_poisson_peak(jnp.concatenate([both, size], -1), stirling_error_real)
    log_prob = log_multinomial(x, log_p, p) + log_multinomial(a, log_p, p, stirling_error_real)
    log_prob = log_prob + peaks[..., -1] + jnp.log1p(jnp.sum(x, -1) / jnp.sum(a, -1))
    return log_prob - jnp.sum(peaks[..., :-1] + jnp.log1p(x / a), -1)


def normalized(probs=None, logits=None):
    """Return `(log_p, p, off)` over the last axis; where a class is off (p is 0), log_p is 0 and means nothing."""
    if logits is not None:
        off = logits == -jnp.inf
        logits = jnp.where(off, 0, jnp.minimum(logits, jnp.finfo(logits.dtype).max / 8))
        top = jax.lax.stop_gradient(jnp.max(jnp.where(off, -jnp.inf, logits), -1, keepdims=True))
        top = jnp.where(jnp.isfinite(top), top, 0)
        weight = jnp.where(off, 0, jnp.exp(jnp.where(off, 0, logits - top)))
        total = jnp.sum(weight, -1, keepdims=True)
        log_p = logits - top - jnp.log(jnp.where(total > 0, total, 1))
    else:
        off = probs <= 0
        weight = jnp.where(off, 0, probs)
        total = jnp.sum(weight, -1, keepdims=True)
        log_p = jnp.log(jnp.where(off, 1, probs)) - jnp.log(jnp.where(total > 0, total, 1))
    p = jax.lax.stop_gradient(weight / jnp.where(total > 0, total, 1))
    return jnp.where(off, 0, log_p), p, off
