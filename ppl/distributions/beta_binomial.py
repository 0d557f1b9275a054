"""The beta-binomial family: binomial counts whose probability varies."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid
from jax.typing import ArrayLike

from ppl.distributions.special_discrete import integers, log_dirichlet_multinomial, plain, whole
from ppl.distributions.special_discrete_draws import draw_binomial
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import integer_interval, nonnegative_integer, positive


@random_variable
class BetaBinomial(RandomVariable):
    """Beta-binomial random variable: Binomial(n, p) with p drawn from Beta(a, b).

        log f(x) = log(n! / (x! (n - x)!)) + log B(x + a, n - x + b) - log B(a, b),        x = 0, ..., n

    Args:
      total_count: n, 0 or more, any shape.
      concentration1: a, positive, any shape.
      concentration0: b, positive, any shape.

    Same law as `scipy.stats.betabinom(total_count, concentration1, concentration0)`.
    """

    total_count: ArrayLike = 1
    concentration1: ArrayLike = 1.0
    concentration0: ArrayLike = 1.0
    domain = dict(total_count=nonnegative_integer, concentration1=positive, concentration0=positive)

    @property
    def support(self):
        return integer_interval(0, plain(self.total_count))

    @property
    def _total(self):
        return whole(self.total_count, self.concentration1.dtype)[0]

    def sample(self, key):
        keys = jax.random.split(key, 3)
        logit = jax.random.loggamma(keys[0], self.concentration1, self.shape)
        logit = logit - jax.random.loggamma(keys[1], self.concentration0, self.shape)
        return integers(draw_binomial(keys[2], self._total, sigmoid(logit), sigmoid(-logit), self.shape))

    def log_prob(self, x):
        total = self._total
        x, inside = whole(x, total.dtype)
        inside = inside & (x <= total)
        x = jnp.where(inside, x, 0)
        outcomes = jnp.stack([x, total - x + jnp.zeros_like(x)], -1)
        shape = np.broadcast_shapes(self.concentration1.shape, self.concentration0.shape, (1,) * inside.ndim)
        concentrations = [jnp.broadcast_to(a, shape) for a in (self.concentration1, self.concentration0)]
        log_prob = log_dirichlet_multinomial(outcomes, jnp.stack(concentrations, -1))
        return jnp.where(inside, log_prob, -jnp.inf)

    @property
    def mean(self):
        a, b = self.concentration1, self.concentration0
        return jnp.broadcast_to(self._total * (a / (a + b)), self.shape)

    @property
    def variance(self):
        total, a, b = self._total, self.concentration1, self.concentration0
        size = a + b
        return jnp.broadcast_to(total * (a / size) * (b / size) * ((size + total) / (size + 1)), self.shape)
