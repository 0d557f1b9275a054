"""The half-normal family."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import erf, ndtri

from ppl.distributions.special import LOG_SQRT_2_PI, as_float, draw_dtype, log1mexp, log_ndtr, on_support
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive

LOG_2 = math.log(2)


@random_variable
class HalfNormal(RandomVariable):
    """Half-normal random variable: the size of a Normal(0, scale), 0 included.

        log f(x) = -(x / scale)^2 / 2 - log(scale) + log(2 / pi) / 2,        x >= 0

    Args:
      scale: standard deviation of the whole normal, positive.

    Same law as `scipy.stats.halfnorm(scale=scale)`.
    """

    scale: ArrayLike = 1.0
    support = positive
    domain = dict(scale=positive)

    def sample(self, key):
        return self.scale * jnp.abs(jax.random.normal(key, self.shape, draw_dtype(self)))

    def log_prob(self, x):
        def log_density(x):
            return -0.5 * jnp.square(x / self.scale) - jnp.log(self.scale) + (LOG_2 - LOG_SQRT_2_PI)

        return on_support(self, x, self.scale, log_density)

    def _standard(self, x):
        return jnp.maximum(as_float(x), 0.0) / self.scale

    def cdf(self, x):
        return erf(self._standard(x) * math.sqrt(0.5))

    def icdf(self, q):
        return -self.scale * ndtri(0.5 * (1 - as_float(q)))

    def log_cdf(self, x):
        return log1mexp(-self.log_survival(x))

    def log_survival(self, x):
        return LOG_2 + log_ndtr(-self._standard(x))

    @property
    def mean(self):
        return jnp.broadcast_to(self.scale * math.sqrt(2 / math.pi), self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(jnp.square(self.scale) * (1 - 2 / math.pi), self.shape)

    def entropy(self):
        return jnp.broadcast_to(jnp.log(self.scale) + LOG_SQRT_2_PI + 0.5 - LOG_2, self.shape)
