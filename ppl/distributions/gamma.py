"""The gamma family."""

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammainc, gammaln

from ppl.distributions.quantiles import quantile
from ppl.distributions.special import (
    as_float,
    at_end,
    keep_normal,
    log_gamma_kernel,
    log_lower_gamma,
    log_product,
    log_upper_gamma,
    on_support,
)
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive


def log_density(x, concentration, rate):
    """Log density of the gamma law at x >= 0; the families made of it share this."""
    end = x == 0
    inside = jnp.where(end, 1.0, x)
    log_y = log_product(rate, inside)
    body = log_gamma_kernel(concentration, rate * inside, log_y, power=1) + jnp.log(rate)
    return jnp.where(end, at_end(concentration - 1, concentration * jnp.log(rate)), body)


def log_draw(key, concentration, shape):
    """Draw the logarithm of a gamma variable of rate 1: it does not underflow for small concentrations."""
    return jax.random.loggamma(key, concentration, shape, concentration.dtype)


@random_variable
class Gamma(RandomVariable):
    """Gamma random variable.

        log f(x) = concentration log(rate) + (concentration - 1) log(x) - rate x - log Gamma(concentration),   x >= 0

    At x = 0 it is infinite, finite or -inf as `concentration` is below, at or above 1. Draws are positive numbers: what
    would underflow to 0 is the smallest normal number.

    Args:
      concentration: shape of the law, positive.
      rate: rate, positive; the mean is concentration / rate.

    Same law as `scipy.stats.gamma(concentration, scale=1 / rate)`.
    """

    concentration: ArrayLike
    rate: ArrayLike = 1.0
    support = positive
    domain = dict(concentration=positive, rate=positive)

    def sample(self, key):
        return keep_normal(jnp.exp(log_draw(key, self.concentration, self.shape) - jnp.log(self.rate)))

    def log_prob(self, x):
        return on_support(self, x, 1.0, lambda x: log_density(x, self.concentration, self.rate))

    def _scaled(self, x):
        return self.rate * jnp.maximum(as_float(x), 0.0)

    def cdf(self, x):
        return gammainc(self.concentration, self._scaled(x))

    icdf = quantile

    def log_cdf(self, x):
        return log_lower_gamma(self.concentration, self._scaled(x))

    def log_survival(self, x):
        return log_upper_gamma(self.concentration, self._scaled(x))

    @property
    def mean(self):
        return jnp.broadcast_to(self.concentration / self.rate, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(self.concentration / jnp.square(self.rate), self.shape)

    def entropy(self):
        c = self.concentration
        return jnp.broadcast_to(c - jnp.log(self.rate) + gammaln(c) + (1 - c) * digamma(c), self.shape)
