"""The Dirichlet-multinomial family: multinomial counts whose probabilities vary."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ppl.distributions.special_discrete import integers, log_dirichlet_multinomial, plain, whole
from ppl.distributions.special_discrete_draws import draw_multinomial
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import counts, nonnegative_integer, positive


@random_variable
class DirichletMultinomial(RandomVariable):
    """Dirichlet-multinomial random variable: Multinomial(n, p) with p drawn from Dirichlet(a).

        log f(x) = log [n! Gamma(s) / Gamma(n + s)] + sum_i log [Gamma(x_i + a_i) / (x_i! Gamma(a_i))],    s = sum(a)

    Args:
      total_count: n, 0 or more, any shape.
      concentration: a, (..., K), positive each.

    One draw has shape (K,): K counts that sum to n. Same law as `scipy.stats.dirichlet_multinomial(concentration,
    total_count)`.
    """

    total_count: ArrayLike = 1
    concentration: ArrayLike = (1.0, 1.0)
    domain = dict(total_count=nonnegative_integer, concentration=positive)
    event_dims = dict(concentration=1)
    event_ndim = 1

    @property
    def event_shape(self):
        return self.concentration.shape[-1:]

    @property
    def support(self):
        return counts(plain(self.total_count))

    @property
    def _total(self):
        return whole(self.total_count, self.concentration.dtype)[0]

    def sample(self, key):
        gamma_key, key = jax.random.split(key)
        log_gamma = jax.random.loggamma(gamma_key, self.concentration, self.shape)
        return integers(draw_multinomial(key, self._total, jax.nn.softmax(log_gamma, -1), self.shape))

    def log_prob(self, x):
        x, inside = whole(x, self.concentration.dtype)
        inside = jnp.all(inside, -1) & (jnp.sum(x, -1) == self._total)
        x = jnp.where(inside[..., None], x, 0)
        return jnp.where(inside, log_dirichlet_multinomial(x, self.concentration), -jnp.inf)

    def _moments(self):
        a = self.concentration
        s = jnp.sum(a, -1, keepdims=True)
        total = self._total[..., None] if self._total.ndim else self._total
        return total, s, a / s

    @property
    def mean(self):
        total, _, p = self._moments()
        return jnp.broadcast_to(total * p, self.shape)

    @property
    def variance(self):
        total, s, p = self._moments()
        return jnp.broadcast_to(total * p * (1 - p) * ((total + s) / (1 + s)), self.shape)
