"""The geometric family: failures before the first success."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ppl.distributions.quantiles import quantile
from ppl.distributions.special_discrete import chance, integers, one_of, possible, whole
from ppl.distributions.special_discrete_tails import log1mexp
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import any_real, nonnegative_integer, unit_interval


@random_variable
class Geometric(RandomVariable):
    """Geometric random variable: the number of failures before the first success, each trial of probability p.

        log f(x) = x log(1 - p) + log(p),        x = 0, 1, 2, ...

    Args:
      probs: p in [0, 1], any shape; with p = 0 the log density is -inf everywhere, for a success never comes.
      logits: log(p / (1 - p)) instead, infinities allowed.

    Same law as `scipy.stats.geom(probs, loc=-1)`. Draws beyond the largest integer are cut to it.
    """

    probs: ArrayLike | None = None
    logits: ArrayLike | None = None
    support = nonnegative_integer
    domain = dict(probs=unit_interval, logits=any_real)

    def check(self):
        one_of(self)

    @property
    def _chance(self):
        return chance(self.probs, self.logits)

    def sample(self, key):
        odds = self._chance
        waiting = jax.random.exponential(key, self.shape, odds.success.dtype)
        rate = jnp.where(odds.never | odds.always, 1, -odds.log_failure)
        drawn = jnp.floor(waiting / jnp.where(rate > 0, rate, 1))
        return integers(jnp.where(odds.always, 0, jnp.where(odds.never | (rate <= 0), jnp.inf, drawn)))

    def log_prob(self, x):
        odds = self._chance
        x, inside = whole(x, odds.success.dtype)
        inside = inside & possible(jnp.ones_like(x), x, odds)
        return jnp.where(inside, x * odds.log_failure + odds.log_success, -jnp.inf)

    @property
    def mean(self):
        odds = self._chance
        return jnp.broadcast_to(odds.failure / odds.success, self.shape)

    @property
    def variance(self):
        odds = self._chance
        return jnp.broadcast_to(odds.failure / odds.success**2, self.shape)

    def log_survival(self, x):
        odds = self._chance
        count = jnp.maximum(jnp.floor(jnp.asarray(x).astype(odds.success.dtype)) + 1, 0)
        inside = (count == 0) | (~odds.always & (count < jnp.inf))
        return jnp.where(inside, jnp.where(inside, count, 0) * odds.log_failure, -jnp.inf)

    def log_cdf(self, x):
        survival = self.log_survival(x)
        none = survival == 0
        return jnp.where(none, -jnp.inf, log1mexp(jnp.where(none, -1, survival)))

    def cdf(self, x):
        return -jnp.expm1(self.log_survival(x))

    icdf = quantile
