"""The multivariate Student t distribution."""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from ppl.distributions.multivariate_normal import (
    fit_vector_and_matrix,
    log_diagonal,
    multiply_lower,
    solve_lower,
    sound_factor,
)
from ppl.distributions.special import as_float
from ppl.errors import ModelError
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import cholesky, positive, real, real_vector


@random_variable
class MultivariateStudentT(RandomVariable):
    """Multivariate Student t random variable: vectors of n numbers.

        log f(x) = log Gamma((df + n) / 2) - log Gamma(df / 2) - n log(df pi) / 2 - log det(L)
                   - (df + n) / 2 log(1 + |L^-1 (x - loc)|^2 / df)

    Args:
      df: degrees of freedom, positive.
      loc: location, real, of shape `[..., n]`, or one number for all entries.
      scale_tril: L, lower triangular with a positive diagonal, of shape `[..., n, n]`; the covariance is
        L L' df / (df - 2) where df > 2.

    Same law as `scipy.stats.multivariate_t(loc, scale_tril @ scale_tril.T, df)`.
    """

    df: ArrayLike
    loc: ArrayLike = 0.0
    scale_tril: ArrayLike | None = None

    support = real_vector
    domain = dict(df=positive, loc=real, scale_tril=cholesky)
    event_dims = dict(loc=1, scale_tril=2)
    event_ndim = 1

    def check(self):
        """Refuse a matrix that is missing, not square, or does not fit `loc`."""
        if self.scale_tril is None:
            raise ModelError(f"{self._label()}: give scale_tril, a lower triangular matrix; for numbers use StudentT")
        fit_vector_and_matrix(self, "scale_tril")

    @property
    def event_shape(self):
        """The shape of one draw: one number for each row of the matrix."""
        return self.scale_tril.shape[-1:]

    def sample(self, key) -> Array:
        """Draw vectors: a normal vector over the root of a chi-squared variable over df."""
        normal_key, gamma_key = jax.random.split(key)
        dtype = self.scale_tril.dtype
        noise = jax.random.normal(normal_key, self.shape, dtype)
        df = self.df.astype(dtype)
        log_chi2 = jax.random.loggamma(gamma_key, df / 2, self.batch_shape, dtype) + math.log(2)
        stretch = jnp.exp(jnp.minimum((jnp.log(df) - log_chi2) / 2, math.log(float(jnp.finfo(dtype).max)) / 2))
        return self.loc + multiply_lower(self.scale_tril, noise) * stretch[..., None]

    def log_prob(self, x) -> Array:
        """Return the log density at `x`."""
        x = as_float(x)
        n = self.event_shape[0]
        inside = real_vector.contains(x)
        factor, good = sound_factor(self.scale_tril)
        whitened = solve_lower(factor, jnp.where(inside[..., None], x - self.loc, 0))
        largest = jax.lax.stop_gradient(jnp.maximum(jnp.max(abs(whitened), -1, keepdims=True), 1))
        scaled = whitened / largest  # so that the square cannot overflow
        log_tail = 2 * jnp.log(largest[..., 0])
        ratio = jnp.exp(-log_tail) + jnp.sum(scaled * scaled, -1) / self.df
        square = jnp.sum(jnp.where(largest > 1e3, 0, whitened) ** 2, -1) / self.df
        log_ratio = jnp.where(largest[..., 0] > 1e3, log_tail + jnp.log(ratio), jnp.log1p(square))
        half = self.df / 2
        log_constant = log_gamma_ratio(half, n / 2) - n / 2 * jnp.log(self.df * math.pi) - log_diagonal(factor)
        return jnp.where(inside & good, log_constant - (half + n / 2) * log_ratio, -jnp.inf)

    @property
    def mean(self):
        """The mean, nan where df <= 1."""
        return jnp.broadcast_to(jnp.where(self.df[..., None] > 1, self.loc, jnp.nan), self.shape)

    @property
    def variance(self):
        """The variance of each entry: infinite where 1 < df <= 2, nan where df <= 1."""
        df = jnp.broadcast_to(self.df, self.batch_shape)[..., None]
        square = jnp.sum(self.scale_tril**2, -1)
        square = square.reshape((1,) * (len(self.shape) - square.ndim) + square.shape)
        variance = square * df / jnp.where(df > 2, df - 2, 1)
        return jnp.broadcast_to(jnp.where(df > 2, variance, jnp.where(df > 1, jnp.inf, jnp.nan)), self.shape)


def log_gamma_ratio(a, b):
    """Return log Gamma(a + b) - log Gamma(a) for a number b > 0; Stirling's series keeps large a from cancelling."""
    large = a > 30
    small_a, large_a = jnp.where(large, 1, a), jnp.where(large, a, 30)
    c = large_a + b
    ends = 1 / (12 * c) - 1 / (12 * large_a) - 1 / (360 * c**3) + 1 / (360 * large_a**3)
    ends = ends + 1 / (1260 * c**5) - 1 / (1260 * large_a**5)
    stirling = b * jnp.log(large_a) + ((c - 0.5) * jnp.log1p(b / large_a) - b) + ends
    return jnp.where(large, stirling, gammaln(small_a + b) - gammaln(small_a))
