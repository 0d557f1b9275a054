"""Student's half-t family."""

import math

import jax.numpy as jnp

from ppl.distributions.quantiles import quantile
from ppl.distributions.special import as_float, keep_normal, log_beta, on_support
from ppl.distributions.student_t import log_density, log_upper_mass, standard_draw
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive

LOG_2 = math.log(2)


@random_variable
class HalfStudentT(RandomVariable):
    """Half-t random variable: the size of a StudentT(df, 0, scale), 0 included.

        log f(x) = log(2) + log Gamma((df + 1) / 2) - log Gamma(df / 2) - log(df pi) / 2 - log(scale)
                   - (df + 1) / 2 log(1 + (x / scale)^2 / df),        x >= 0

    Args:
      df: degrees of freedom, positive.
      scale: scale of the whole t, positive.

    Same law as the absolute value of `scipy.stats.t(df, scale=scale)`.
    """

    df: ArrayLike
    scale: ArrayLike = 1.0
    support = positive
    domain = dict(df=positive, scale=positive)

    def sample(self, key):
        return keep_normal(self.scale * jnp.abs(standard_draw(key, self.df, self.shape)))

    def log_prob(self, x):
        return on_support(self, x, self.scale, lambda x: LOG_2 + log_density(x, self.df, self.scale))

    def cdf(self, x):
        return -jnp.expm1(self.log_survival(x))

    icdf = quantile

    def log_survival(self, x):
        x = as_float(x)
        inside = x > 0
        return jnp.where(inside, LOG_2 + log_upper_mass(jnp.where(inside, x, 1.0) / self.scale, self.df), 0.0)

    @property
    def mean(self):
        df = jnp.where(self.df > 1, self.df, 2.0)
        half = 0.5 * (df - 1)
        # Gamma(half) / Gamma(df / 2) = B(half, 1/2) / sqrt(pi)
        mean = jnp.sqrt(df) * jnp.exp(log_beta(half, jnp.full_like(half, 0.5))) / math.pi
        return jnp.broadcast_to(jnp.where(self.df > 1, self.scale * mean, jnp.inf), self.shape)

    @property
    def variance(self):
        df = jnp.where(self.df > 2, self.df, 3.0)
        variance = jnp.square(self.scale) * df / (df - 2) - jnp.square(self.mean)
        return jnp.broadcast_to(jnp.where(self.df > 2, variance, jnp.inf), self.shape)
