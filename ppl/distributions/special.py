"""Functions that keep their digits where the textbook formula loses them; families share them.

Each is differentiable in its real arguments, gives no nan (nor nan gradients) on the domain it states, and is accurate
to a few units in the last place of the intended quantity in float32 and float64.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, erfc, erfcx, gammainc, gammaincc, i0e

LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)
EULER_GAMMA = 0.5772156649015329
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
# Gauss-Legendre quadrature of six points on (-1, 1); written out, since numpy.polynomial takes long to import.
NODES = (
    -0.9324695142031519,
    -0.6612093864662645,
    -0.2386191860831969,
    0.2386191860831969,
    0.6612093864662645,
    0.9324695142031519,
)
WEIGHTS = (
    0.17132449237917027,
    0.3607615730481387,
    0.46791393457269104,
    0.46791393457269104,
    0.3607615730481387,
    0.17132449237917027,
)


def as_float(x):
    """Return `x` as an array of floats; float arrays keep their dtype."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.result_type(float))


def draw_dtype(rv):
    """The dtype in which the family `rv` computes: that of its parameters."""
    return jnp.result_type(*rv.parameters.values())


def on_support(rv, x, member, log_density):
    """Return `log_density(x)` inside the support of `rv` and -inf outside, where no gradient flows.

    Outside, `log_density` is given `member`, any number of the support: nothing it does there can become nan.
    """
    x = as_float(x)
    if rv.inside:
        return log_density(x)
    inside = rv.support.contains(x)
    return jnp.where(inside, log_density(jnp.where(inside, x, member)), -jnp.inf)


def at_end(power, finite):
    """Log density at a closed end where it behaves like `finite + power * log(0)`: inf, `finite` or -inf.

    The gradient is that of `finite` where the density is finite, and 0 elsewhere.
    """
    return jnp.where(power == 0, finite, jnp.where(power < 0, jnp.inf, -jnp.inf))


def keep_normal(x):
    """Clip positive draws to the normal numbers of their dtype: none is 0 or infinite."""
    limits = jnp.finfo(x.dtype)
    return jnp.clip(x, limits.tiny, limits.max)


def keep_open_unit(x):
    """Clip draws to the open unit interval: none is 0 or 1."""
    limits = jnp.finfo(x.dtype)
    return jnp.clip(x, limits.tiny, 1 - limits.epsneg)


def log_positive(x):
    """log(x) for x >= 0, taking numbers below the smallest normal one for that one: never -inf."""
    return jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))


@jax.custom_jvp
def log_ratio(x, y):
    """log(x / y) for positive x, y: in one rounding where the ratio is a normal number, finite where it is not."""
    ratio = x / y
    limits = jnp.finfo(ratio.dtype)
    normal = (ratio > limits.tiny) & (ratio < limits.max)
    return jnp.where(normal, jnp.log(ratio), log_positive(x) - log_positive(y))


@log_ratio.defjvp
def _log_ratio_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return log_ratio(x, y), dx / x - dy / y


@jax.custom_jvp
def log_product(x, y):
    """log(x * y) for positive x, y: in one rounding where the product is a normal number, finite where it is not."""
    product = x * y
    limits = jnp.finfo(product.dtype)
    normal = (product > limits.tiny) & (product < limits.max)
    return jnp.where(normal, jnp.log(product), log_positive(x) + log_positive(y))


@log_product.defjvp
def _log_product_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return log_product(x, y), dx / x + dy / y


def log1mexp(x):
    """log(1 - exp(-x)) for x >= 0; -inf at 0."""
    small = x < 0.7
    near = jnp.log(-jnp.expm1(-jnp.where(small, x, 0.5)))
    return jnp.where(small, near, jnp.log1p(-jnp.exp(-jnp.where(small, 1.0, x))))


def log1p_square(x, y):
    """log(1 + (x / y)^2) for finite x and positive y, also where the ratio or its square overflows."""
    size = jnp.abs(x)
    far = size > y / jnp.finfo(size.dtype).eps
    tail = 2 * (jnp.log(jnp.where(far, size, 1.0)) - jnp.log(y))
    return jnp.where(far, tail, jnp.log1p(jnp.square(jnp.where(far, 0.0, x) / y)))


@jax.custom_jvp
def stirling_remainder(x):
    """log Gamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2), for x > 0; it falls from infinity to 0 as 1 / (12 x).

    Below 8 it is taken at x + 8 and brought back by x Gamma(x) = Gamma(x + 1).
    """
    small = x < 8
    low = jnp.where(small, x, 8.0)
    product = low / (low + 8)
    for k in range(1, 8):
        product = product * ((low + k) / (low + 8))
    shift = (low - 0.5) * jnp.log1p(8 / low) - jnp.log(product) - 8
    inverse = 1 / jnp.where(small, low + 8, x)
    return inverse * _series(STIRLING, jnp.square(inverse)) + jnp.where(small, shift, 0.0)


@stirling_remainder.defjvp
def _stirling_remainder_jvp(primals, tangents):
    (x,) = primals
    small = x < 8
    low = jnp.where(small, x, 8.0)
    shift = jnp.log1p(8 / low) - (8 * (low - 0.5) / low - 8) / (low + 8) - sum(1 / (low + k) for k in range(8))
    inverse = 1 / jnp.where(small, low + 8, x)
    slopes = [-(2 * k + 1) * coefficient for k, coefficient in enumerate(STIRLING)]
    slope = jnp.square(inverse) * _series(slopes, jnp.square(inverse)) + jnp.where(small, shift, 0.0)
    return stirling_remainder(x), slope * tangents[0]


def _series(coefficients, x):
    total = jnp.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def log_gamma_half_step(x):
    """log Gamma(x + 1/2) - log Gamma(x) - log(x) / 2, for x > 0; it goes to 0 as -1 / (8 x)."""
    return stirling_remainder(x + 0.5) - stirling_remainder(x) + (x * jnp.log1p(0.5 / x) - 0.5)


def log_beta(a, b):
    """log of the beta function, for a, b > 0; no large terms cancel."""
    n = a + b
    smooth = LOG_SQRT_2_PI - 0.5 * (jnp.log(a / n) + jnp.log(b))
    smooth = smooth + stirling_remainder(a) + stirling_remainder(b) - stirling_remainder(n)
    ordered = a < b
    small, large = jnp.where(ordered, a, b), jnp.where(ordered, b, a)
    return smooth + small * jnp.log(small / n) - large * jnp.log1p(small / large)


def _deviance(c, difference, log_ratio_of_y, power):
    """c log(c / y) + y - c + power log(y / c), given y - c and log(y / c)."""
    d = difference / c
    near = (d > -0.35) & (d < 0.5)
    r = jnp.where(near, d / (2 + jnp.where(near, d, 0.0)), 0.0)  # log(1 + d) = 2 atanh(r)
    square = jnp.square(r)
    series = _series([1 / (2 * k + 3) for k in range(11)], square)
    close = r * (difference - 2 * c * square * series) + power * log_ratio_of_y
    return jnp.where(near, close, difference - (c - power) * log_ratio_of_y)


def log_gamma_kernel(c, y, log_y, power=0):
    """(c - power) log y - y - log Gamma(c), for c, y > 0, given y and log y; no large terms cancel."""
    log_c = jnp.log(c)
    smooth = (0.5 - power) * log_c - LOG_SQRT_2_PI - stirling_remainder(c)
    return smooth - _deviance(c, y - c, log_y - log_c, power)


def log_beta_kernel(a, b, x, y, power=0):
    """log of x^(a - power) y^(b - power) / B(a, b), for a, b, x, y > 0 and x + y = 1; no large terms cancel."""
    n = a + b
    low = x < 0.5
    log_x = jnp.where(low, log_positive(x), jnp.log1p(-jnp.where(low, 0.0, y)))
    log_y = jnp.where(low, jnp.log1p(-jnp.where(low, x, 0.0)), log_positive(y))
    excess = jnp.where(low, n * x - a, b - n * y)  # of n x over a
    log_a, log_b = jnp.log(a / n), jnp.log(b / n)
    smooth = 0.5 * (log_a + jnp.log(b)) - power * (log_a + log_b) - LOG_SQRT_2_PI
    smooth = smooth + stirling_remainder(n) - stirling_remainder(a) - stirling_remainder(b)
    return smooth - _deviance(a, excess, log_x - log_a, power) - _deviance(b, -excess, log_y - log_b, power)


@jax.custom_jvp
def log_mills(a):
    """log of the Mills ratio Q(a) / phi(a) of the standard normal, for a > -2; its derivative is `-mills_excess(a)`."""
    return jnp.log(erfcx(a * math.sqrt(0.5)) * math.sqrt(math.pi / 2))


@log_mills.defjvp
def _log_mills_jvp(primals, tangents):
    (a,) = primals
    return log_mills(a), -mills_excess(a) * tangents[0]


def mills_excess(a):
    """phi(a) / Q(a) - a for a > -2: the mean distance of a standard normal above `a` from `a`."""
    far = a > 4
    tail = jnp.where(far, a, 5.0)
    fraction = tail
    for k in range(14, 1, -1):  # Laplace's continued fraction
        fraction = tail + k / fraction
    near = jnp.where(far, 0.0, a)
    return jnp.where(far, 1 / fraction, 1 / (erfcx(near * math.sqrt(0.5)) * math.sqrt(math.pi / 2)) - near)


def log_ndtr(x):
    """log of the standard normal distribution function, value and derivative accurate in the far lower tail too."""
    tail = x < 0
    a = jnp.where(tail, -x, 0.0)
    lower = log_mills(a) - 0.5 * jnp.square(a) - LOG_SQRT_2_PI
    return jnp.where(tail, lower, jnp.log1p(-0.5 * erfc(jnp.where(tail, 0.0, x) * math.sqrt(0.5))))


def log_tail_integral(a, width=None):
    """log of the integral of exp(-a t - t^2 / 2) over 0 < t < width, for a > -2, -2 a <= width; None is infinity."""
    if width is None:
        return log_mills(a)
    exponent = width * (jnp.abs(a) + 0.5 * width)
    small = exponent < 1
    # Over a short interval the two tails nearly cancel; Gauss-Legendre quadrature there is exact to rounding.
    w, slope = jnp.where(small, width, 0.5), jnp.where(small, a, 0.0)
    total = jnp.zeros_like(exponent)
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        t = w * (0.5 * (node + 1))
        total = total + 0.5 * weight * jnp.exp(-t * (slope + 0.5 * t))
    short = jnp.log(w) + jnp.log(total)
    w, start = jnp.where(small, 2.0, width), jnp.where(small, 0.0, a)
    first = log_mills(start)
    long = first + jnp.log1p(-jnp.exp(log_mills(start + w) - first - w * (start + 0.5 * w)))
    return jnp.where(small, short, long)


def log_center_mass(a, width=None):
    """log of sqrt(2 pi) times the standard normal mass of (a, a + width), for a <= -1 and a + width >= -a."""
    if width is None:
        return log_ndtr(-a) + LOG_SQRT_2_PI
    both = erf((a + width) * math.sqrt(0.5)) - erf(a * math.sqrt(0.5))
    return jnp.log(0.5 * both) + LOG_SQRT_2_PI


I0E_TAIL = tuple(math.prod((2 * j - 1) ** 2 for j in range(1, k + 1)) / (math.factorial(k) * 8.0**k) for k in range(13))


def log_i0e(x):
    """log(exp(-x) I0(x)) for x >= 0, I0 the modified Bessel function; its derivative does not cancel for large x."""
    far = x > 50
    inverse = 1 / jnp.where(far, x, 50.0)
    total = jnp.zeros_like(inverse)
    for coefficient in reversed(I0E_TAIL[1:]):
        total = (total + coefficient) * inverse
    tail = 0.5 * jnp.log(inverse) - LOG_SQRT_2_PI + jnp.log1p(total)
    return jnp.where(far, tail, jnp.log(i0e(jnp.where(far, 0.0, x))))


def log_upper_gamma(a, y):
    """log of the regularized upper incomplete gamma function Q(a, y), for a > 0, y >= 0; exact in its far tail too."""
    far = (y > 2 * a + 30) & (y < jnp.inf)
    shape, at = jnp.where(far, a, 1.0), jnp.where(far, y, 40.0)

    def descend(i, fraction):  # Legendre's continued fraction, from its 40th term
        k = jnp.asarray(40 - i, at.dtype)
        return at + (2 * k - 1) - shape - k * (k - shape) / fraction

    fraction = jax.lax.fori_loop(0, 40, descend, at + 81 - shape)
    tail = log_gamma_kernel(shape, at, log_positive(at)) - jnp.log(fraction)
    near = log_positive(gammaincc(a, jnp.where(far, 1.0, jnp.minimum(y, 40.0 + 2 * a))))
    return jnp.where(y == jnp.inf, -jnp.inf, jnp.where(far, tail, near))


def log_lower_gamma(a, y):
    """log of the regularized lower incomplete gamma function P(a, y), for a > 0, y >= 0; exact in its far tail too."""
    near_zero = (y < 0.3 * (a + 1)) & (y > 0)
    at = jnp.where(near_zero, y, 0.1)
    shape = jnp.where(near_zero, a, 1.0)

    def nest(i, total):
        return 1 + total * at / (shape + jnp.asarray(35 - i, at.dtype))

    total = jax.lax.fori_loop(0, 35, nest, jnp.ones_like(at * shape))
    tail = log_gamma_kernel(shape, at, log_positive(at)) - jnp.log(shape) + jnp.log(total)
    near = log_positive(gammainc(a, jnp.where(near_zero, 1.0, y)))
    return jnp.where(y > 0, jnp.where(near_zero, tail, near), -jnp.inf)


def log_betainc(a, b, x, y):
    """log of the regularized incomplete beta function I_x(a, b), for a, b > 0, x, y >= 0 and x + y = 1.

    Differentiable in a and b and exact in the tails:  I = x^a y^b / B(a, b) times the integral over v > 0 of
    exp(-a v + (b - 1) log(1 + (1 - exp(-v)) x / y)) / y,  by double exponential quadrature, from the end whose tail
    does not hold the mean.
    """
    inside = (x > 0) & (y > 0)
    swap = x * b > y * a
    p, q = jnp.where(swap, b, a), jnp.where(swap, a, b)
    s, t = jnp.where(inside, jnp.where(swap, y, x), 0.5), jnp.where(inside, jnp.where(swap, x, y), 0.5)
    odds = s / t

    def add(total, node):
        v = node[0] / p
        return total + node[1] / p * jnp.exp((q - 1) * jnp.log1p(-jnp.expm1(-v) * odds) - p * v), None

    u = np.arange(-3.5, 14.75, 0.125)
    nodes = np.exp(u - np.exp(-u))
    nodes = np.stack([nodes, nodes * (1 + np.exp(-u)) * 0.125], 1).astype(odds.dtype)
    total, _ = jax.lax.scan(add, jnp.zeros_like(p * odds), nodes)
    tail = jnp.minimum(log_beta_kernel(p, q, s, t) - jnp.log(t) + log_positive(total), 0.0)
    value = jnp.where(swap, log1mexp(-tail), tail)
    return jnp.where(inside, value, jnp.where(x > 0, 0.0, -jnp.inf))
