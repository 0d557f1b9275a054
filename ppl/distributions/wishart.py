"""The Wishart distribution of covariance matrices."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from ppl.distributions.multivariate_normal import log_diagonal, sound_factor
from ppl.distributions.special import as_float
from ppl.errors import ModelError
from ppl.random_variable import ArrayLike, RandomVariable, concrete, random_variable
from ppl.supports import cholesky, covariance, positive


@random_variable
class Wishart(RandomVariable):
    """Wishart random variable: the sum of df outer products of normal vectors with covariance V.

        log f(X) = (df - n - 1)/2 log det(X) - tr(V^-1 X)/2 - df/2 log det(V) - df n/2 log(2) - log Gamma_n(df / 2)

    with respect to the lower triangle of X; Gamma_n is the multivariate gamma function. Draws are made by Bartlett's
    decomposition; in it, a diagonal entry of the factor of X is at least sqrt(32 n eps) times the length of its row, so
    that rounding hardly ever makes a draw singular (it does at times in float32 where df is near n).

    Args:
      df: degrees of freedom, more than n - 1.
      scale: V, symmetric and positive definite, of shape `[..., n, n]`. Give this or `scale_tril`.
      scale_tril: L with V = L L', lower triangular with a positive diagonal.

    Same law as `scipy.stats.wishart(df, scale)`.
    """

    df: ArrayLike
    scale: ArrayLike | None = None
    scale_tril: ArrayLike | None = None

    support = covariance
    domain = dict(df=positive, scale=covariance, scale_tril=cholesky)
    event_dims = dict(scale=2, scale_tril=2)
    event_ndim = 2

    def check(self):
        """Refuse none or both of the matrices, and too few degrees of freedom."""
        if (self.scale is None) == (self.scale_tril is None):
            has = "none" if self.scale is None else "both"
            raise ModelError(f"{self._label()}: give exactly one of scale and scale_tril (has {has})")
        matrix = self._matrix
        if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
            raise ModelError(f"{self._label()}: the scale must be square, but has shape {matrix.shape}")
        df, n = concrete(self.df), matrix.shape[-1]
        if df is not None and np.any(df <= n - 1):
            raise ModelError(f"{self._label()}: df must be more than n - 1 = {n - 1}, but is {np.min(df):.6g}")

    @property
    def _matrix(self):
        return self.scale if self.scale is not None else self.scale_tril

    @property
    def _factor(self):
        return self.scale_tril if self.scale_tril is not None else jnp.linalg.cholesky(self.scale)

    @property
    def event_shape(self):
        """The shape of one draw: a square matrix."""
        return self._matrix.shape[-1:] * 2

    def sample(self, key) -> Array:
        """Draw matrices."""
        normal_key, gamma_key = jax.random.split(key)
        n, dtype, batch = self.event_shape[0], self._matrix.dtype, self.batch_shape
        below = jnp.tril(jax.random.normal(normal_key, self.shape, dtype), -1)
        rows = np.arange(n).astype(dtype).reshape((1,) * len(batch) + (n,))
        half = (jnp.broadcast_to(self.df, batch)[..., None].astype(dtype) - rows) / 2
        root = jnp.exp((jax.random.loggamma(gamma_key, half, (*batch, n), dtype) + math.log(2)) / 2)
        noise = below + root[..., None] * jnp.eye(n, dtype=dtype).reshape((1,) * len(batch) + (n, n))
        factor = self._factor
        factor = factor.reshape((1,) * (noise.ndim - factor.ndim) + factor.shape)
        product = jnp.matmul(factor, noise, precision="highest")
        below = jnp.tril(product, -1)
        length = jnp.sqrt(jnp.sum(below * below, -1) * (32 * n * float(jnp.finfo(dtype).eps)))
        diagonal = jnp.maximum(jnp.diagonal(product, 0, -2, -1), length)
        product = below + diagonal[..., None] * jnp.eye(n, dtype=dtype).reshape((1,) * len(batch) + (n, n))
        return jnp.matmul(product, product.mT, precision="highest")

    def log_prob(self, x) -> Array:
        """Return the log density at `x`."""
        x = as_float(x)
        n = self.event_shape[0]
        df = jnp.where(self.df > n - 1, self.df, n)
        inside = covariance.contains(x) & (self.df > n - 1)
        identity = jnp.eye(n, dtype=x.dtype).reshape((1,) * (x.ndim - 2) + (n, n))
        x_factor = jnp.linalg.cholesky(jnp.where(inside[..., None, None], x, identity))
        factor, good = sound_factor(self._factor)
        batch = jnp.broadcast_shapes(factor.shape[:-2], x.shape[:-2])
        spread = jnp.broadcast_to(factor.reshape((1,) * (x.ndim - factor.ndim) + factor.shape), (*batch, n, n))
        whitened = jax.lax.linalg.triangular_solve(
            spread, jnp.broadcast_to(x_factor, spread.shape), left_side=True, lower=True
        )
        log_density = (df - n - 1) * log_diagonal(x_factor) - jnp.sum(whitened * whitened, (-2, -1)) / 2
        log_gamma = sum(gammaln((df - i) / 2) for i in range(n)) + n * (n - 1) / 4 * math.log(math.pi)
        log_density = log_density - df * (log_diagonal(factor) + n * math.log(2) / 2) - log_gamma
        return jnp.where(inside & good, log_density, -jnp.inf)

    @property
    def _covariance(self):
        factor = self._factor
        scale = jnp.matmul(factor, factor.mT, precision="highest") if self.scale is None else self.scale
        return scale.reshape((1,) * (len(self.shape) - scale.ndim) + scale.shape)

    @property
    def mean(self):
        """The mean, df V."""
        return jnp.broadcast_to(
            jnp.broadcast_to(self.df, self.batch_shape)[..., None, None] * self._covariance, self.shape
        )

    @property
    def variance(self):
        """The variance of each entry, df (V_ij^2 + V_ii V_jj)."""
        scale, diagonal = self._covariance, jnp.diagonal(self._covariance, 0, -2, -1)
        square = scale**2 + diagonal[..., :, None] * diagonal[..., None, :]
        return jnp.broadcast_to(jnp.broadcast_to(self.df, self.batch_shape)[..., None, None] * square, self.shape)
