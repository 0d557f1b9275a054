"""The Laplace family."""

import math

import jax
import jax.numpy as jnp

from ppl.distributions.special import as_float, draw_dtype
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real

LOG_2 = math.log(2)


@random_variable
class Laplace(RandomVariable):
    """Laplace (double exponential) random variable.

        log f(x) = -|z| - log(2 scale),        z = (x - loc) / scale

    Args:
      loc: mean and median, real.
      scale: mean distance from `loc`, positive.

    Same law as `scipy.stats.laplace(loc, scale)`.
    """

    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0
    support = real
    domain = dict(loc=real, scale=positive)
    location_scale = True

    def sample(self, key):
        return self.loc + self.scale * jax.random.laplace(key, self.shape, draw_dtype(self))

    def _standard(self, x):
        return (as_float(x) - self.loc) / self.scale

    def log_prob(self, x):
        return -jnp.abs(self._standard(x)) - jnp.log(self.scale) - LOG_2

    def cdf(self, x):
        z = self._standard(x)
        tail = 0.5 * jnp.exp(-jnp.abs(z))
        return jnp.where(z < 0, tail, 1 - tail)

    def icdf(self, q):
        q = as_float(q)
        lower = q < 0.5
        distance = jnp.log(2 * jnp.where(lower, q, 1 - q))
        return self.loc + self.scale * jnp.where(lower, distance, -distance)

    def _log_cdf_standard(self, z):
        return jnp.where(z < 0, jnp.minimum(z, 0.0) - LOG_2, jnp.log1p(-0.5 * jnp.exp(-jnp.maximum(z, 0.0))))

    def log_cdf(self, x):
        return self._log_cdf_standard(self._standard(x))

    def log_survival(self, x):
        return self._log_cdf_standard(-self._standard(x))

    @property
    def mean(self):
        return jnp.broadcast_to(self.loc, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(2 * jnp.square(self.scale), self.shape)

    def entropy(self):
        return jnp.broadcast_to(jnp.log(self.scale) + LOG_2 + 1, self.shape)
