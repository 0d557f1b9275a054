"""The chi-squared family."""

import jax.numpy as jnp
from jax.scipy.special import digamma, gammainc, gammaln

from ppl.distributions.gamma import log_density, log_draw
from ppl.distributions.quantiles import quantile
from ppl.distributions.special import as_float, keep_normal, log_lower_gamma, log_upper_gamma, on_support
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive


@random_variable
class Chi2(RandomVariable):
    """Chi-squared random variable: Gamma(df / 2, rate 1 / 2).

        log f(x) = (df / 2 - 1) log(x) - x / 2 - (df / 2) log(2) - log Gamma(df / 2),        x >= 0

    Args:
      df: degrees of freedom, positive.

    Same law as `scipy.stats.chi2(df)`.
    """

    df: ArrayLike
    support = positive
    domain = dict(df=positive)

    def sample(self, key):
        return keep_normal(2 * jnp.exp(log_draw(key, 0.5 * self.df, self.shape)))

    def log_prob(self, x):
        return on_support(self, x, 1.0, lambda x: log_density(x, 0.5 * self.df, jnp.full_like(self.df, 0.5)))

    def cdf(self, x):
        return gammainc(0.5 * self.df, 0.5 * jnp.maximum(as_float(x), 0.0))

    icdf = quantile

    def log_cdf(self, x):
        return log_lower_gamma(0.5 * self.df, 0.5 * jnp.maximum(as_float(x), 0.0))

    def log_survival(self, x):
        return log_upper_gamma(0.5 * self.df, 0.5 * jnp.maximum(as_float(x), 0.0))

    @property
    def mean(self):
        return jnp.broadcast_to(self.df, self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(2 * self.df, self.shape)

    def entropy(self):
        c = 0.5 * self.df
        return jnp.broadcast_to(c + jnp.log(2.0).astype(c.dtype) + gammaln(c) + (1 - c) * digamma(c), self.shape)
