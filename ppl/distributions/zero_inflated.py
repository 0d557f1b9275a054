"""A wrapper that adds zeros to a family of counts."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ppl.distributions.quantiles import quantile
from ppl.distributions.special_discrete import chance, one_of
from ppl.errors import ModelError
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import any_real, unit_interval


@random_variable
class ZeroInflated(RandomVariable):
    """Zero-inflated random variable: 0 with probability p, else a draw of `base`.

        f(0) = p + (1 - p) base(0),        f(x) = (1 - p) base(x) elsewhere

    Args:
      base: a random variable of whole numbers, such as `Poisson(3.0)`; its shape and that of p broadcast.
      probs: p in [0, 1], any shape.
      logits: log(p / (1 - p)) instead, infinities allowed.
    """

    base: Any
    probs: ArrayLike | None = None
    logits: ArrayLike | None = None
    domain = dict(probs=unit_interval, logits=any_real)

    def check(self):
        one_of(self)
        if not isinstance(self.base, RandomVariable) or not self.base.support.discrete or self.base.event_ndim:
            raise ModelError(
                f"{self._label()}: base must be a random variable of whole numbers, such as Poisson(3.0), "
                f"but is {self.base!r}"
            )

    @property
    def support(self):
        return self.base.support

    @property
    def _whole_base(self):
        """The base at the whole shape."""
        return self.base if self.base.shape == self.shape else self.base.replace(shape=self.shape)

    @property
    def _chance(self):
        return chance(self.probs, self.logits)

    def sample(self, key):
        zero_key, key = jax.random.split(key)
        zero = jax.random.bernoulli(zero_key, self._chance.success, self.shape)
        return jnp.where(zero, 0, self._whole_base.sample(key))

    def log_prob(self, x):
        return self._with_zeros(self._whole_base.log_prob(x), jnp.asarray(x) == 0)

    def log_cdf(self, x):
        return self._with_zeros(self._whole_base.log_cdf(x), jnp.asarray(x) >= 0)

    def log_survival(self, x):
        log_base, negative, odds = self._whole_base.log_survival(x), jnp.asarray(x) < 0, self._chance
        kept = jnp.where(odds.always, -jnp.inf, odds.log_failure + log_base)
        return jnp.where(negative, self._with_zeros(log_base, negative), kept)

    def cdf(self, x):
        return jnp.exp(self.log_cdf(x))

    icdf = quantile

    def _with_zeros(self, log_base, holds_zero):
        """Return log [p 1(holds zero) + (1 - p) exp(log_base)]."""
        odds = self._chance
        possible = log_base > -jnp.inf
        kept = odds.log_failure + jnp.where(possible, log_base, 0)
        both = jnp.where(possible, jnp.logaddexp(odds.log_success, kept), odds.log_success)
        mixed = jnp.where(holds_zero, both, jnp.where(possible, kept, -jnp.inf))
        mixed = jnp.where(odds.never, log_base, mixed)
        return jnp.where(odds.always, jnp.where(holds_zero, 0, -jnp.inf), mixed)

    @property
    def mean(self):
        return jnp.broadcast_to(self._chance.failure * self.base.mean, self.shape)

    @property
    def variance(self):
        odds, base = self._chance, self._whole_base
        return odds.failure * (base.variance + odds.success * base.mean**2)
