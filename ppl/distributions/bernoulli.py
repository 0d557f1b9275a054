"""The Bernoulli family: one trial."""

import jax
import jax.numpy as jnp
from jax.nn import softplus
from jax.typing import ArrayLike

from ppl.distributions.special_discrete import chance, one_of, possible, whole
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import any_real, boolean, unit_interval


@random_variable
class Bernoulli(RandomVariable):
    """Bernoulli random variable: 1 with probability p, else 0.

        log f(x) = x log(p) + (1 - x) log(1 - p),        x = 0, 1

    Args:
      probs: p in [0, 1], any shape.
      logits: log(p / (1 - p)) instead, infinities allowed; exact however large.

    Same law as `scipy.stats.bernoulli(probs)`.
    """

    probs: ArrayLike | None = None
    logits: ArrayLike | None = None
    support = boolean
    domain = dict(probs=unit_interval, logits=any_real)

    def check(self):
        one_of(self)

    @property
    def _chance(self):
        return chance(self.probs, self.logits)

    def sample(self, key):
        return jax.random.bernoulli(key, self._chance.success, self.shape).astype(self.dtype)

    def log_prob(self, x):
        if self.inside and self.logits is not None:
            return -softplus(jnp.where(x == 1, -self.logits, self.logits))
        dtype = (self.probs if self.logits is None else self.logits).dtype
        x, inside = whole(x, dtype)
        if self.logits is not None:
            return jnp.where(inside & (x <= 1), -softplus(jnp.where(x == 1, -self.logits, self.logits)), -jnp.inf)
        odds = self._chance
        inside = inside & (x <= 1) & possible(x, 1 - x, odds)
        return jnp.where(inside, jnp.where(x == 1, odds.log_success, odds.log_failure), -jnp.inf)

    @property
    def mean(self):
        return jnp.broadcast_to(self._chance.success, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(self._chance.success * self._chance.failure, self.shape)

    def cdf(self, x):
        return jnp.where(x < 0, 0, jnp.where(x < 1, self._chance.failure, 1))

    def log_cdf(self, x):
        below = jnp.where(x < 0, -jnp.inf, 0)
        return jnp.where((x >= 0) & (x < 1), self.log_prob(jnp.zeros_like(x)), below)

    def log_survival(self, x):
        above = jnp.where(x < 0, 0, -jnp.inf)
        return jnp.where((x >= 0) & (x < 1), self.log_prob(jnp.ones_like(x)), above)

    def icdf(self, q):
        return (q > self._chance.failure).astype(self.dtype)

    def entropy(self):
        odds = self._chance
        return jnp.broadcast_to(-odds.success * odds.log_success - odds.failure * odds.log_failure, self.shape)
