"""The inverse gamma family."""

import jax.numpy as jnp
from jax.scipy.special import digamma, gammaincc, gammaln

from ppl.distributions.gamma import log_draw
from ppl.distributions.quantiles import quantile
from ppl.distributions.special import (
    as_float,
    keep_normal,
    log_gamma_kernel,
    log_lower_gamma,
    log_ratio,
    log_upper_gamma,
)
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive


@random_variable
class InverseGamma(RandomVariable):
    """Inverse gamma random variable: one over a Gamma(concentration, rate).

        log f(x) = concentration log(rate) - (concentration + 1) log(x) - rate / x - log Gamma(concentration),   x > 0

    At x = 0 the density is 0.

    Args:
      concentration: shape of the law, positive.
      rate: rate of the gamma variable, positive (the scale of this one).

    Same law as `scipy.stats.invgamma(concentration, scale=rate)`.
    """

    concentration: ArrayLike
    rate: ArrayLike = 1.0
    support = positive
    domain = dict(concentration=positive, rate=positive)

    def sample(self, key):
        return keep_normal(jnp.exp(jnp.log(self.rate) - log_draw(key, self.concentration, self.shape)))

    def log_prob(self, x):
        x = as_float(x)
        # Where rate / x overflows, the log density does too.
        inside = (x > 0) & (x < jnp.inf) & (x * (0.25 * float(jnp.finfo(x.dtype).max)) > self.rate)
        x = jnp.where(inside, x, self.rate)
        log_y = log_ratio(self.rate, x)
        log_density = log_gamma_kernel(self.concentration, self.rate / x, log_y, power=-1) - jnp.log(self.rate)
        return jnp.where(inside, log_density, -jnp.inf)

    def _inverse(self, x):
        x = as_float(x)
        return jnp.where(x > 0, self.rate / jnp.where(x > 0, x, 1.0), jnp.inf)

    def cdf(self, x):
        return gammaincc(self.concentration, self._inverse(x))

    icdf = quantile

    def log_cdf(self, x):
        return log_upper_gamma(self.concentration, self._inverse(x))

    def log_survival(self, x):
        return log_lower_gamma(self.concentration, self._inverse(x))

    @property
    def mean(self):
        c = self.concentration
        mean = self.rate / jnp.where(c > 1, c - 1, 1.0)
        return jnp.broadcast_to(jnp.where(c > 1, mean, jnp.inf), self.shape)

    @property
    def variance(self):
        c = jnp.where(self.concentration > 2, self.concentration, 3.0)
        variance = jnp.square(self.rate / (c - 1)) / (c - 2)
        return jnp.broadcast_to(jnp.where(self.concentration > 2, variance, jnp.inf), self.shape)

    def entropy(self):
        c = self.concentration
        return jnp.broadcast_to(c + jnp.log(self.rate) + gammaln(c) - (1 + c) * digamma(c), self.shape)
