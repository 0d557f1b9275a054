"""The Cauchy family."""

import math

import jax
import jax.numpy as jnp

from ppl.distributions.special import as_float, draw_dtype, log1p_square, on_support
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real


@random_variable
class Cauchy(RandomVariable):
    """Cauchy random variable; it has no mean and no variance.

        log f(x) = -log(1 + z^2) - log(pi scale),        z = (x - loc) / scale

    Args:
      loc: median, real.
      scale: half the distance between the quartiles, positive.

    Same law as `scipy.stats.cauchy(loc, scale)`.
    """

    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0
    support = real
    domain = dict(loc=real, scale=positive)
    location_scale = True

    def sample(self, key):
        return self.loc + self.scale * jax.random.cauchy(key, self.shape, draw_dtype(self))

    def _standard(self, x):
        return (as_float(x) - self.loc) / self.scale

    def log_prob(self, x):
        def log_density(x):
            return -log1p_square(x - self.loc, self.scale) - jnp.log(self.scale) - math.log(math.pi)

        return on_support(self, x, self.loc, log_density)

    def cdf(self, x):
        z = self._standard(x)
        return jnp.arctan2(jnp.ones_like(z), -z) / math.pi

    def icdf(self, q):
        q = as_float(q)
        lower = q < 0.5
        tangent = jnp.tan(jnp.where(lower, q, 1 - q) * math.pi)
        return self.loc + self.scale * jnp.where(lower, -1 / tangent, 1 / tangent)

    def log_cdf(self, x):
        return jnp.log(self.cdf(x))

    def log_survival(self, x):
        z = self._standard(x)
        return jnp.log(jnp.arctan2(jnp.ones_like(z), z) / math.pi)

    @property
    def mean(self):
        return jnp.full(self.shape, jnp.nan, draw_dtype(self))

    @property
    def variance(self):
        return jnp.full(self.shape, jnp.nan, draw_dtype(self))

    def entropy(self):
        return jnp.broadcast_to(jnp.log(self.scale) + math.log(4 * math.pi), self.shape)
