"""The beta family."""

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma

from ppl.distributions.gamma import log_draw
from ppl.distributions.quantiles import quantile
from ppl.distributions.special import (
    as_float,
    at_end,
    keep_open_unit,
    log_beta,
    log_beta_kernel,
    log_betainc,
    on_support,
)
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, unit_interval


def log_density(x, a, b):
    """Log density of Beta(a, b) at 0 < x < 1."""
    return log_beta_kernel(a, b, x, 1 - x, power=1)


@random_variable
class Beta(RandomVariable):
    """Beta random variable.

        log f(x) = (concentration1 - 1) log(x) + (concentration0 - 1) log(1 - x) - log B(concentration1, concentration0)

    for 0 <= x <= 1. At an end it is infinite, finite or -inf as the concentration there is below, at or above 1. Draws
    lie strictly inside: what would round to an end is the number next to it.

    Args:
      concentration1: pulls towards 1, positive.
      concentration0: pulls towards 0, positive; the mean is concentration1 / (concentration1 + concentration0).

    Same law as `scipy.stats.beta(concentration1, concentration0)`.
    """

    concentration1: ArrayLike
    concentration0: ArrayLike
    support = unit_interval
    domain = dict(concentration1=positive, concentration0=positive)

    def sample(self, key):
        one, zero = jax.random.split(key)
        log_one = log_draw(one, self.concentration1, self.shape)
        log_zero = log_draw(zero, self.concentration0, self.shape)
        return keep_open_unit(jax.nn.sigmoid(log_one - log_zero))

    def log_prob(self, x):
        a, b = self.concentration1, self.concentration0

        def log_prob(x):
            at_0, at_1 = x == 0, x == 1
            body = log_density(jnp.where(at_0 | at_1, 0.5, x), a, b)
            # -log B(1, b) is log b
            return jnp.where(at_0, at_end(a - 1, jnp.log(b)), jnp.where(at_1, at_end(b - 1, jnp.log(a)), body))

        return on_support(self, x, 0.5, log_prob)

    def cdf(self, x):
        return jnp.exp(self.log_cdf(x))

    icdf = quantile

    def log_cdf(self, x):
        x = jnp.clip(as_float(x), 0.0, 1.0)
        return log_betainc(self.concentration1, self.concentration0, x, 1 - x)

    def log_survival(self, x):
        x = jnp.clip(as_float(x), 0.0, 1.0)
        return log_betainc(self.concentration0, self.concentration1, 1 - x, x)

    @property
    def mean(self):
        a, b = self.concentration1, self.concentration0
        return jnp.broadcast_to(a / (a + b), self.shape)

    @property
    def variance(self):
        a, b = self.concentration1, self.concentration0
        return jnp.broadcast_to(a / (a + b) * (b / (a + b)) / (a + b + 1), self.shape)

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        entropy = log_beta(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)
        return jnp.broadcast_to(entropy, self.shape)
