"""The skew-normal family."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, owens_t

from ppl.distributions.quantiles import quantile
from ppl.distributions.special import LOG_SQRT_2_PI, as_float, draw_dtype, log_ndtr, on_support
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real

LOG_2 = math.log(2)


@random_variable
class SkewNormal(RandomVariable):
    """Skew-normal random variable.

        log f(x) = log(2 phi(z) Phi(skewness z)) - log(scale),        z = (x - loc) / scale

    with phi and Phi the density and distribution function of the standard normal.

    Args:
      loc: location, real; the mean only when `skewness` is 0.
      scale: scale, positive.
      skewness: slant, real; 0 is Normal, and it nears a half-normal as `skewness` grows.

    Same law as `scipy.stats.skewnorm(skewness, loc, scale)`.

    Reference: Azzalini (1985), Scandinavian Journal of Statistics 12, 171.
    """

    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0
    skewness: ArrayLike = 0.0
    support = real
    domain = dict(loc=real, scale=positive, skewness=real)
    location_scale = True

    def sample(self, key):
        first, second = jax.random.normal(key, (2, *self.shape), draw_dtype(self))
        root = jnp.sqrt(1 + jnp.square(self.skewness))
        return self.loc + self.scale * (self.skewness / root * jnp.abs(first) + second / root)

    def _standard(self, x):
        return (as_float(x) - self.loc) / self.scale

    def log_prob(self, x):
        def log_prob(x):
            z = self._standard(x)
            return LOG_2 - 0.5 * jnp.square(z) - LOG_SQRT_2_PI - jnp.log(self.scale) + log_ndtr(self.skewness * z)

        return on_support(self, x, self.loc, log_prob)

    def cdf(self, x):
        z = self._standard(x)
        return ndtr(z) - 2 * owens_t(z, jnp.broadcast_to(self.skewness, z.shape))

    icdf = quantile

    def _shift(self):
        """Mean of the standard law."""
        return self.skewness / jnp.sqrt(1 + jnp.square(self.skewness)) * math.sqrt(2 / math.pi)

    @property
    def mean(self):
        return jnp.broadcast_to(self.loc + self.scale * self._shift(), self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(jnp.square(self.scale) * (1 - jnp.square(self._shift())), self.shape)
