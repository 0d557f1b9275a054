"""The logistic family."""

import math

import jax
import jax.numpy as jnp

from ppl.distributions.special import as_float, draw_dtype
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real


@random_variable
class Logistic(RandomVariable):
    """Logistic random variable.

        log f(x) = -|z| - 2 log(1 + exp(-|z|)) - log(scale),        z = (x - loc) / scale

    Args:
      loc: mean and median, real.
      scale: scale, positive; the standard deviation is pi / sqrt(3) times as large.

    Same law as `scipy.stats.logistic(loc, scale)`.
    """

    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0
    support = real
    domain = dict(loc=real, scale=positive)
    location_scale = True

    def sample(self, key):
        return self.loc + self.scale * jax.random.logistic(key, self.shape, draw_dtype(self))

    def _standard(self, x):
        return (as_float(x) - self.loc) / self.scale

    def log_prob(self, x):
        size = jnp.abs(self._standard(x))
        return -size - 2 * jnp.log1p(jnp.exp(-size)) - jnp.log(self.scale)

    def cdf(self, x):
        return jax.nn.sigmoid(self._standard(x))

    def icdf(self, q):
        q = as_float(q)
        return self.loc + self.scale * (jnp.log(q) - jnp.log1p(-q))

    def log_cdf(self, x):
        return jax.nn.log_sigmoid(self._standard(x))

    def log_survival(self, x):
        return jax.nn.log_sigmoid(-self._standard(x))

    @property
    def mean(self):
        return jnp.broadcast_to(self.loc, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(jnp.square(self.scale) * (math.pi**2 / 3), self.shape)

    def entropy(self):
        return jnp.broadcast_to(jnp.log(self.scale) + 2, self.shape)
