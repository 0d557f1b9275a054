"""Student's t family."""

import math

import jax
import jax.numpy as jnp

from ppl.distributions.gamma import log_draw
from ppl.distributions.quantiles import quantile
from ppl.distributions.special import (
    LOG_SQRT_2_PI,
    as_float,
    draw_dtype,
    log1p_square,
    log_beta,
    log_betainc,
    log_gamma_half_step,
    on_support,
)
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real


def log_density(distance, df, scale):
    """Log density of the t law at a finite distance from its center; its constant nears the normal's as -1 / (4 df)."""
    constant = log_gamma_half_step(0.5 * df) - LOG_SQRT_2_PI - jnp.log(scale)
    return constant - 0.5 * (df + 1) * log1p_square(distance, scale * jnp.sqrt(df))


def log_upper_mass(z, df):
    """Log mass of the standard t law above z."""
    # I_x(df / 2, 1 / 2) / 2 with x = df / (df + z^2), without overflow of the square
    ratio = jnp.abs(z) / jnp.sqrt(df)
    far = ratio > 1
    inner, outer = jnp.square(jnp.where(far, 0.0, ratio)), jnp.square(1 / jnp.where(far, ratio, 1.0))
    x = jnp.where(far, outer / (1 + outer), 1 / (1 + inner))
    y = jnp.where(far, 1 / (1 + outer), inner / (1 + inner))
    tail = log_betainc(0.5 * df, jnp.full_like(df, 0.5), x, y) - math.log(2)
    return jnp.where(z > 0, tail, jnp.log1p(-jnp.exp(tail)))


def standard_draw(key, df, shape):
    """Draw from the standard t law: a normal over the root of a mean-one gamma, kept finite for small df."""
    normal_key, gamma_key = jax.random.split(key)
    log_gamma = log_draw(gamma_key, 0.5 * df, shape) - jnp.log(0.5 * df)
    limits = jnp.finfo(df.dtype)
    draw = jax.random.normal(normal_key, shape, df.dtype) * jnp.exp(
        jnp.minimum(-0.5 * log_gamma, 0.9 * math.log(float(limits.max)))
    )
    return draw


@random_variable
class StudentT(RandomVariable):
    """Student's t random variable.

        log f(x) = log Gamma((df + 1) / 2) - log Gamma(df / 2) - log(df pi) / 2 - log(scale)
                   - (df + 1) / 2 log(1 + z^2 / df),        z = (x - loc) / scale

    Args:
      df: degrees of freedom, positive; 1 is Cauchy, and it nears Normal as df grows.
      loc: median, real.
      scale: scale, positive.

    Same law as `scipy.stats.t(df, loc, scale)`.
    """

    df: ArrayLike
    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0
    support = real
    domain = dict(df=positive, loc=real, scale=positive)
    location_scale = True

    def sample(self, key):
        limit = float(jnp.finfo(draw_dtype(self)).max)
        return jnp.clip(self.loc + self.scale * standard_draw(key, self.df, self.shape), -limit, limit)

    def _standard(self, x):
        return (as_float(x) - self.loc) / self.scale

    def log_prob(self, x):
        return on_support(self, x, self.loc, lambda x: log_density(x - self.loc, self.df, self.scale))

    def cdf(self, x):
        return jnp.exp(self.log_cdf(x))

    icdf = quantile

    def log_cdf(self, x):
        return log_upper_mass(-self._standard(x), self.df)

    def log_survival(self, x):
        return log_upper_mass(self._standard(x), self.df)

    @property
    def mean(self):
        return jnp.broadcast_to(jnp.where(self.df > 1, self.loc, jnp.nan), self.shape)

    @property
    def variance(self):
        df = jnp.where(self.df > 2, self.df, 3.0)
        variance = jnp.where(self.df > 2, df / (df - 2), jnp.inf)
        return jnp.broadcast_to(jnp.square(self.scale) * variance, self.shape)

    def entropy(self):
        half = 0.5 * self.df
        step = jax.scipy.special.digamma(half + 0.5) - jax.scipy.special.digamma(half)
        entropy = (half + 0.5) * step + 0.5 * jnp.log(self.df) + log_beta(half, jnp.full_like(half, 0.5))
        return jnp.broadcast_to(entropy + jnp.log(self.scale), self.shape)
