"""The log-normal family."""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from ppl.distributions.special import LOG_SQRT_2_PI, as_float, draw_dtype, keep_normal, log_ndtr, log_positive
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real


@random_variable
class LogNormal(RandomVariable):
    """Log-normal random variable: its logarithm is Normal(loc, scale).

        log f(x) = -z^2 / 2 - log(scale) - log(2 pi) / 2 - log(x),        z = (log(x) - loc) / scale

    At x = 0 the density is 0.

    Args:
      loc: mean of the logarithm, real.
      scale: standard deviation of the logarithm, positive.

    Same law as `scipy.stats.lognorm(s=scale, scale=exp(loc))`.
    """

    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0
    support = positive
    domain = dict(loc=real, scale=positive)

    def sample(self, key):
        return keep_normal(jnp.exp(self.loc + self.scale * jax.random.normal(key, self.shape, draw_dtype(self))))

    def _standard(self, x):
        return (log_positive(as_float(x)) - self.loc) / self.scale

    def log_prob(self, x):
        x = as_float(x)
        inside = (x > 0) & (x < jnp.inf)
        x = jnp.where(inside, x, 1.0)
        log_density = -0.5 * jnp.square(self._standard(x)) - jnp.log(self.scale) - LOG_SQRT_2_PI - log_positive(x)
        return jnp.where(inside, log_density, -jnp.inf)

    def cdf(self, x):
        return jnp.where(as_float(x) > 0, ndtr(self._standard(x)), 0.0)

    def icdf(self, q):
        return jnp.exp(self.loc + self.scale * ndtri(q))

    def log_cdf(self, x):
        return jnp.where(as_float(x) > 0, log_ndtr(self._standard(x)), -jnp.inf)

    def log_survival(self, x):
        return jnp.where(as_float(x) > 0, log_ndtr(-self._standard(x)), 0.0)

    @property
    def mean(self):
        return jnp.broadcast_to(jnp.exp(self.loc + 0.5 * jnp.square(self.scale)), self.shape)

    @property
    def variance(self):
        square = jnp.square(self.scale)
        return jnp.broadcast_to(jnp.expm1(square) * jnp.exp(2 * self.loc + square), self.shape)

    def entropy(self):
        return jnp.broadcast_to(self.loc + jnp.log(self.scale) + LOG_SQRT_2_PI + 0.5, self.shape)
