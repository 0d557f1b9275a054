"""The normal family."""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from ppl.distributions.special import LOG_SQRT_2_PI, as_float, draw_dtype, log_ndtr
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real


@random_variable
class Normal(RandomVariable):
    """Normal random variable.

        log f(x) = -z^2 / 2 - log(scale) - log(2 pi) / 2,        z = (x - loc) / scale

    Args:
      loc: mean, real.
      scale: standard deviation, positive.

    Same law as `scipy.stats.norm(loc, scale)`.
    """

    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0
    support = real
    domain = dict(loc=real, scale=positive)
    location_scale = True

    def sample(self, key):
        return self.loc + self.scale * jax.random.normal(key, self.shape, draw_dtype(self))

    def _standard(self, x):
        return (as_float(x) - self.loc) / self.scale

    def log_prob(self, x):
        return -0.5 * jnp.square(self._standard(x)) - jnp.log(self.scale) - LOG_SQRT_2_PI

    def cdf(self, x):
        return ndtr(self._standard(x))

    def icdf(self, q):
        return self.loc + self.scale * ndtri(q)

    def log_cdf(self, x):
        return log_ndtr(self._standard(x))

    def log_survival(self, x):
        return log_ndtr(-self._standard(x))

    @property
    def mean(self):
        return jnp.broadcast_to(self.loc, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(jnp.square(self.scale), self.shape)

    def entropy(self):
        return jnp.broadcast_to(jnp.log(self.scale) + LOG_SQRT_2_PI + 0.5, self.shape)
