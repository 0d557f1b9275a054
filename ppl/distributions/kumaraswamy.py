"""The Kumaraswamy family."""

import jax
import jax.numpy as jnp

from ppl.distributions.special import (
    as_float,
    at_end,
    draw_dtype,
    keep_open_unit,
    log1mexp,
    log_beta,
    log_positive,
    on_support,
)
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, unit_interval


@random_variable
class Kumaraswamy(RandomVariable):
    """Kumaraswamy random variable: like Beta, with a distribution function in closed form.

        log f(x) = log(a b) + (a - 1) log(x) + (b - 1) log(1 - x^a),        0 <= x <= 1
        F(x) = 1 - (1 - x^a)^b

    with a = concentration1 and b = concentration0. At an end it is infinite, finite or -inf as the concentration there
    is below, at or above 1.

    Args:
      concentration1: power of x, positive.
      concentration0: power of 1 - x^a, positive.

    Reference: Kumaraswamy (1980), Journal of Hydrology 46, 79.
    """

    concentration1: ArrayLike
    concentration0: ArrayLike
    support = unit_interval
    domain = dict(concentration1=positive, concentration0=positive)

    def sample(self, key):
        return keep_open_unit(self.icdf(jax.random.uniform(key, self.shape, draw_dtype(self))))

    def _log_complement(self, x):
        """log(1 - x^a) for 0 < x < 1."""
        return log1mexp(-self.concentration1 * log_positive(x))

    def log_prob(self, x):
        a, b = self.concentration1, self.concentration0

        def log_prob(x):
            at_0, at_1 = x == 0, x == 1
            inside = jnp.where(at_0 | at_1, 0.5, x)
            constant = jnp.log(a) + jnp.log(b)
            body = constant + (a - 1) * log_positive(inside) + (b - 1) * self._log_complement(inside)
            # near 1 the density is b a^b (1 - x)^(b - 1), so its limit for b = 1 is a
            return jnp.where(at_0, at_end(a - 1, constant), jnp.where(at_1, at_end(b - 1, constant), body))

        return on_support(self, x, 0.5, log_prob)

    def cdf(self, x):
        return -jnp.expm1(self.log_survival(x))

    def icdf(self, q):
        log_power = log1mexp(-jnp.log1p(-as_float(q)) / self.concentration0)
        return jnp.exp(log_power / self.concentration1)

    def log_cdf(self, x):
        return log1mexp(-self.log_survival(x))

    def log_survival(self, x):
        x = as_float(x)
        inside = (x > 0) & (x < 1)
        body = self.concentration0 * self._log_complement(jnp.where(inside, x, 0.5))
        return jnp.where(inside, body, jnp.where(x <= 0, 0.0, -jnp.inf))

    def _log_moment(self, n):
        return jnp.log(self.concentration0) + log_beta(1 + n / self.concentration1, self.concentration0)

    @property
    def mean(self):
        return jnp.broadcast_to(jnp.exp(self._log_moment(1)), self.shape)

    @property
    def variance(self):
        first = self._log_moment(1)
        return jnp.broadcast_to(jnp.exp(2 * first) * jnp.expm1(self._log_moment(2) - 2 * first), self.shape)
