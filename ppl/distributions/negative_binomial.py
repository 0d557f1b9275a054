"""The negative binomial family: Poisson counts whose rate varies."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ppl.distributions.quantiles import quantile
from ppl.distributions.special_discrete import integers, whole
from ppl.distributions.special_discrete_draws import draw_poisson
from ppl.distributions.special_discrete_tails import log_negative_binomial, negative_binomial_tails, outer
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import nonnegative, nonnegative_integer, positive


@random_variable
class NegativeBinomial(RandomVariable):
    """Negative binomial random variable, by its mean m and its concentration r; the variance is m + m^2 / r.

        log f(x) = log Gamma(x + r) - log Gamma(r) - log(x!) + r log(r / (r + m)) + x log(m / (r + m)),  x = 0, 1, ...

    Args:
      mean: m, 0 or more, any shape.
      concentration: r, positive, any shape; the Poisson law is the limit r = infinity.

    Same law as `scipy.stats.nbinom(n=concentration, p=concentration / (concentration + mean))`: the number of failures
    before `concentration` successes. Draws beyond the largest integer are cut to it.
    """

    mean: ArrayLike = 1.0
    concentration: ArrayLike = 1.0
    support = nonnegative_integer
    domain = dict(mean=nonnegative, concentration=positive)

    def sample(self, key):
        gamma_key, key = jax.random.split(key)
        gamma = jax.random.gamma(gamma_key, self.concentration, self.shape)
        return integers(draw_poisson(key, gamma * (self.mean / self.concentration), self.shape))

    def log_prob(self, x):
        x, inside = whole(x, self.mean.dtype)
        return jnp.where(inside, log_negative_binomial(x, self.mean, self.concentration), -jnp.inf)

    @property
    def variance(self):
        return jnp.broadcast_to(self.mean + self.mean**2 / self.concentration, self.shape)

    def _tails(self, x):
        return outer(x, self.mean.dtype, lambda k: negative_binomial_tails(k, self.mean, self.concentration))

    def log_cdf(self, x):
        return self._tails(x)[0]

    def log_survival(self, x):
        return self._tails(x)[1]

    def cdf(self, x):
        return jnp.exp(self.log_cdf(x))

    icdf = quantile
