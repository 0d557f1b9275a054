"""The Weibull family."""

import jax
import jax.numpy as jnp
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
        first, second = gammaln(1 + 1 / self.concentration), gammaln(1 + 2 / self.concentration)
        variance = jnp.square(self.scale * jnp.exp(first)) * jnp.expm1(second - 2 * first)
        return jnp.broadcast_to(variance, self.shape)

    def entropy(self):
        k = self.concentration
        return jnp.broadcast_to(EULER_GAMMA * (1 - 1 / k) + jnp.log(self.scale / k) + 1, self.shape)
