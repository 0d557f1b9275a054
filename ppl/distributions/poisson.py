"""The Poisson family: counts of independent events."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from ppl.distributions.quantiles import quantile
from ppl.distributions.special_discrete import integers, log_poisson, whole
from ppl.distributions.special_discrete_draws import draw_poisson
from ppl.distributions.special_discrete_tails import outer, poisson_tails
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import nonnegative, nonnegative_integer


@random_variable
class Poisson(RandomVariable):
    """Poisson random variable.

        log f(x) = x log(rate) - rate - log(x!),        x = 0, 1, 2, ...

    Args:
      rate: the mean, 0 or more, any shape.

    Same law as `scipy.stats.poisson(rate)`. Draws beyond the largest integer are cut to it.
    """

    rate: ArrayLike = 1.0
    support = nonnegative_integer
    domain = dict(rate=nonnegative)

    def sample(self, key):
        return integers(draw_poisson(key, self.rate, self.shape))

    def log_prob(self, x):
        x, inside = whole(x, self.rate.dtype)
        inside = inside & ((self.rate > 0) | ((x == 0) & (self.rate == 0)))
        rate = jnp.where(inside, self.rate, 1)
        log_rate = jnp.log(jnp.where(rate > 0, rate, 1))
        return jnp.where(inside, log_poisson(x, rate, log_rate), -jnp.inf)

    @property
    def mean(self):
        return jnp.broadcast_to(self.rate, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(self.rate, self.shape)

    def _tails(self, x):
        return outer(x, self.rate.dtype, lambda k: poisson_tails(k, self.rate))

    def log_cdf(self, x):
        return self._tails(x)[0]

    def log_survival(self, x):
        return self._tails(x)[1]

    def cdf(self, x):
        return jnp.exp(self.log_cdf(x))

    icdf = quantile
