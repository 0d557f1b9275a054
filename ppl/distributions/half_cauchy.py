"""The half-Cauchy family."""

import math

import jax
import jax.numpy as jnp

from ppl.distributions.special import as_float, draw_dtype, log1p_square, on_support
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive


@random_variable
class HalfCauchy(RandomVariable):
    """Half-Cauchy random variable: the size of a Cauchy(0, scale), 0 included; its mean is infinite.

        log f(x) = -log(1 + (x / scale)^2) - log(pi scale / 2),        x >= 0

    Args:
      scale: median, positive.

    Same law as `scipy.stats.halfcauchy(scale=scale)`.
    """

    scale: ArrayLike = 1.0
    support = positive
    domain = dict(scale=positive)

    def sample(self, key):
        return self.scale * jnp.abs(jax.random.cauchy(key, self.shape, draw_dtype(self)))

    def log_prob(self, x):
        return on_support(
            self, x, self.scale, lambda x: -log1p_square(x, self.scale) - jnp.log(self.scale) - math.log(math.pi / 2)
        )

    def _standard(self, x):
        return jnp.maximum(as_float(x), 0.0) / self.scale

    def cdf(self, x):
        return jnp.arctan(self._standard(x)) * (2 / math.pi)

    def icdf(self, q):
        return self.scale * jnp.tan(as_float(q) * (math.pi / 2))

    def log_cdf(self, x):
        return jnp.log(self.cdf(x))

    def log_survival(self, x):
        z = self._standard(x)
        return jnp.log(jnp.arctan2(jnp.ones_like(z), z) * (2 / math.pi))

    @property
    def mean(self):
        return jnp.full(self.shape, jnp.inf, draw_dtype(self))

    @property
    def variance(self):
        return jnp.full(self.shape, jnp.inf, draw_dtype(self))

    def entropy(self):
        return jnp.broadcast_to(jnp.log(self.scale) + math.log(2 * math.pi), self.shape)
