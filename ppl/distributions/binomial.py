"""The binomial family: successes among a number of trials."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from ppl.distributions.quantiles import quantile
from ppl.distributions.special_discrete import chance, integers, log_binomial, one_of, plain, possible, whole
from ppl.distributions.special_discrete_draws import draw_binomial
from ppl.distributions.special_discrete_tails import binomial_tails, outer
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import any_real, integer_interval, nonnegative_integer, unit_interval


@random_variable
class Binomial(RandomVariable):
    """Binomial random variable: the number of successes among n trials of probability p.

        log f(x) = log(n! / (x! (n - x)!)) + x log(p) + (n - x) log(1 - p),        x = 0, ..., n

    Args:
      total_count: n, 0 or more, any shape.
      probs: p in [0, 1], any shape.
      logits: log(p / (1 - p)) instead, infinities allowed; exact however large.

    Same law as `scipy.stats.binom(total_count, probs)`.
    """

    total_count: ArrayLike = 1
    probs: ArrayLike | None = None
    logits: ArrayLike | None = None
    domain = dict(total_count=nonnegative_integer, probs=unit_interval, logits=any_real)

    def check(self):
        one_of(self)

    @property
    def support(self):
        return integer_interval(0, plain(self.total_count))

    @property
    def _chance(self):
        return chance(self.probs, self.logits)

    @property
    def _total(self):
        return whole(self.total_count, self._chance.success.dtype)[0]

    def sample(self, key):
        odds = self._chance
        return integers(draw_binomial(key, self._total, odds.success, odds.failure, self.shape))

    def log_prob(self, x):
        odds, total = self._chance, self._total
        x, inside = whole(x, total.dtype)
        inside = inside & (x <= total)
        x = jnp.where(inside, x, 0)
        inside = inside & possible(x, total - x, odds)
        return jnp.where(inside, log_binomial(x, total - x, odds), -jnp.inf)

    @property
    def mean(self):
        return jnp.broadcast_to(self._total * self._chance.success, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(self._total * self._chance.success * self._chance.failure, self.shape)

    def _tails(self, x):
        odds, total = self._chance, self._total
        return outer(x, total.dtype, lambda k: binomial_tails(jnp.minimum(k, total), total, odds))

    def log_cdf(self, x):
        return self._tails(x)[0]

    def log_survival(self, x):
        return self._tails(x)[1]

    def cdf(self, x):
        return jnp.exp(self.log_cdf(x))

    icdf = quantile
