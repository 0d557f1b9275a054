"""The Gumbel family."""

import math

import jax
import jax.numpy as jnp

from ppl.distributions.special import EULER_GAMMA, as_float, draw_dtype, log1mexp, on_support
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real


@random_variable
class Gumbel(RandomVariable):
    """Gumbel (maximum extreme value) random variable.

        log f(x) = -z - exp(-z) - log(scale),        z = (x - loc) / scale

    Args:
      loc: mode, real.
      scale: scale, positive.

    Same law as `scipy.stats.gumbel_r(loc, scale)`.
    """

    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0
    support = real
    domain = dict(loc=real, scale=positive)
    location_scale = True

    def sample(self, key):
        return self.loc + self.scale * jax.random.gumbel(key, self.shape, draw_dtype(self))

    def _standard(self, x):
        return (as_float(x) - self.loc) / self.scale

    def log_prob(self, x):
        def log_density(x):
            z = self._standard(x)
            return -z - jnp.exp(-z) - jnp.log(self.scale)

        return on_support(self, x, self.loc, log_density)

    def cdf(self, x):
        return jnp.exp(self.log_cdf(x))

    def icdf(self, q):
        return self.loc - self.scale * jnp.log(-jnp.log(as_float(q)))

    def log_cdf(self, x):
        return -jnp.exp(-self._standard(x))

    def log_survival(self, x):
        z = self._standard(x)
        far = z > 40  # exp(-z) may be too small to hold; 1 - exp(-y) is y there
        return jnp.where(far, -z, log1mexp(jnp.exp(-jnp.where(far, 0.0, z))))

    @property
    def mean(self):
        return jnp.broadcast_to(self.loc + self.scale * EULER_GAMMA, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(jnp.square(self.scale) * (math.pi**2 / 6), self.shape)

    def entropy(self):
        return jnp.broadcast_to(jnp.log(self.scale) + EULER_GAMMA + 1, self.shape)
