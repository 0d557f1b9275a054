"""The Dirichlet distribution: probabilities of n classes."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma, gammaln

from ppl.distributions.special import as_float
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, simplex


@random_variable
class Dirichlet(RandomVariable):
    """Dirichlet random variable: n nonnegative numbers that sum to 1.

        log f(x) = sum_i (a_i - 1) log x_i + log Gamma(sum_i a_i) - sum_i log Gamma(a_i)

    with respect to the first n - 1 entries. Draws are made from logarithms of gamma variables, and each entry is at
    least the smallest normal number of its dtype, so that the log density of a draw is finite. For an entry of 0 the
    density is as at that smallest number if a_i < 1 (where it has no bound), finite if a_i = 1, and 0 if a_i > 1.

    Args:
      concentration: a, positive, of shape `[..., n]`.

    Same law as `scipy.stats.dirichlet(concentration)`.
    """

    concentration: ArrayLike

    support = simplex
    domain = dict(concentration=positive)
    event_dims = dict(concentration=1)
    event_ndim = 1

    @property
    def event_shape(self):
        """The shape of one draw: one number for each concentration."""
        return self.concentration.shape[-1:]

    def sample(self, key) -> Array:
        """Draw probabilities."""
        concentration = self.concentration
        log_gamma = jax.random.loggamma(key, concentration, self.shape, concentration.dtype)
        info = jnp.finfo(concentration.dtype)
        return jnp.maximum(jax.nn.softmax(log_gamma), info.tiny)

    def log_prob(self, x) -> Array:
        """Return the log density at `x`."""
        x = as_float(x)
        a = self.concentration
        tiny = jnp.finfo(x.dtype).tiny
        inside = simplex.contains(x) & ~jnp.any((x < tiny) & (a > 1), -1)
        safe = jnp.maximum(jnp.where(inside[..., None], x, 1 / x.shape[-1]), tiny)
        log_constant = gammaln(jnp.sum(a, -1)) - jnp.sum(gammaln(a), -1)
        return jnp.where(inside, jnp.sum((a - 1) * jnp.log(safe), -1) + log_constant, -jnp.inf)

    @property
    def mean(self):
        """The mean, a / sum(a)."""
        a = self.concentration
        return jnp.broadcast_to(a / jnp.sum(a, -1, keepdims=True), self.shape)

    @property
    def variance(self):
        """The variance of each entry."""
        total = jnp.sum(self.concentration, -1, keepdims=True)
        return self.mean * (1 - self.mean) / (total + 1)

    def entropy(self):
        """Return the differential entropy of the first n - 1 entries."""
        a = self.concentration
        total, n = jnp.sum(a, -1), a.shape[-1]
        log_constant = jnp.sum(gammaln(a), -1) - gammaln(total)
        entropy = log_constant + (total - n) * digamma(total) - jnp.sum((a - 1) * digamma(a), -1)
        return jnp.broadcast_to(entropy, self.batch_shape)
