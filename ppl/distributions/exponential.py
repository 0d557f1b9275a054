"""The exponential family of waiting times."""

import jax
import jax.numpy as jnp

from ppl.distributions.special import as_float, draw_dtype, log1mexp, on_support
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive


@random_variable
class Exponential(RandomVariable):
    """Exponential random variable.

        log f(x) = log(rate) - rate x,        x >= 0

    Args:
      rate: rate, positive; the mean is 1 / rate.

    Same law as `scipy.stats.expon(scale=1 / rate)`.
    """

    rate: ArrayLike = 1.0
    support = positive
    domain = dict(rate=positive)

    def sample(self, key):
        return jax.random.exponential(key, self.shape, draw_dtype(self)) / self.rate

    def log_prob(self, x):
        return on_support(self, x, 0.0, lambda x: jnp.log(self.rate) - self.rate * x)

    def cdf(self, x):
        return -jnp.expm1(self.log_survival(x))

    def icdf(self, q):
        return -jnp.log1p(-as_float(q)) / self.rate

    def log_cdf(self, x):
        return log1mexp(-self.log_survival(x))

    def log_survival(self, x):
        return -self.rate * jnp.maximum(as_float(x), 0.0)

    @property
    def mean(self):
        return jnp.broadcast_to(1 / self.rate, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(1 / jnp.square(self.rate), self.shape)

    def entropy(self):
        return jnp.broadcast_to(1 - jnp.log(self.rate), self.shape)
