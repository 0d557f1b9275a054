"""The Weibull family."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from ppl.distributions.special import (
    EULER_GAMMA,
    as_float,
    at_end,
    draw_dtype,
    keep_normal,
    log1mexp,
    log_ratio,
    on_support,
)
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive


@random_variable
class Weibull(RandomVariable):
    """Weibull random variable.

        log f(x) = log(concentration / scale) + (concentration - 1) log(z) - z^concentration,        z = x / scale >= 0

    At x = 0 it is infinite, finite or -inf as `concentration` is below, at or above 1.

    Args:
      scale: scale, positive.
      concentration: shape of the law, positive; 1 is Exponential(1 / scale).

    Same law as `scipy.stats.weibull_min(concentration, scale=scale)`.
    """

    scale: ArrayLike
    concentration: ArrayLike
    support = positive
    domain = dict(scale=positive, concentration=positive)

    def sample(self, key):
        return self.icdf(jax.random.uniform(key, self.shape, draw_dtype(self)))

    def log_prob(self, x):
        k = self.concentration

        def log_prob(x):
            constant = jnp.log(k) - jnp.log(self.scale)
            inside = jnp.where(x == 0, self.scale, x)
            log_z = log_ratio(inside, self.scale)
            body = constant + (k - 1) * log_z - jnp.exp(k * log_z)
            return jnp.where(x == 0, at_end(k - 1, constant), body)

        return on_support(self, x, self.scale, log_prob)

    def cdf(self, x):
        return -jnp.expm1(self.log_survival(x))

    def icdf(self, q):
        return keep_normal(self.scale * jnp.exp(jnp.log(-jnp.log1p(-as_float(q))) / self.concentration))

    def log_cdf(self, x):
        return log1mexp(-self.log_survival(x))

    def log_survival(self, x):
        x = as_float(x)
        inside = jnp.where(x > 0, x, 1.0)
        log_z = log_ratio(inside, self.scale)
        return jnp.where(x > 0, -jnp.exp(self.concentration * log_z), 0.0)

    @property
    def mean(self):
        return jnp.broadcast_to(self.scale * jnp.exp(gammaln(1 + 1 / self.concentration)), self.shape)

    @property
    def variance(self):
        x = 1 / as_float(self.concentration)
        variance = jnp.square(self.scale * jnp.exp(gammaln(1 + x))) * jnp.expm1(_log_moment_ratio(x))
        return jnp.broadcast_to(variance, self.shape)

    def entropy(self):
        k = self.concentration
        return jnp.broadcast_to(EULER_GAMMA * (1 - 1 / k) + jnp.log(self.scale / k) + 1, self.shape)


def _log_moment_ratio(x):
    """log(Gamma(1 + 2x) / Gamma(1 + x)^2) for x > 0, without the cancellation that small x, a narrow law, brings.

    From log Gamma(1 + x) = -log(1 + x) + (1 - Euler's gamma) x + sum_n (zeta(n) - 1) (-x)^n / n, n = 2, 3, ...
    (Abramowitz and Stegun, 6.1.33), in which the linear terms drop out.
    """
    from scipy.special import zetac  # scipy is imported where it is used: it is slow to import

    n = np.arange(2, 30)
    coefficients = zetac(n) * (2.0**n - 2) / n * (-1.0) ** n
    small = jnp.minimum(x, 0.25)  # where the series has the precision of float64
    series = jnp.square(small) * jnp.polyval(jnp.asarray(coefficients[::-1], small.dtype), small)
    near = jnp.log1p(jnp.square(small) / (1 + 2 * small)) + series
    return jnp.where(x < 0.25, near, gammaln(1 + 2 * x) - 2 * gammaln(1 + x))
