"""The multivariate normal distribution, and the triangular algebra that it shares with other families."""

import math

import jax
import jax.numpy as jnp
from jax import Array

from ppl.distributions.special import as_float
from ppl.errors import ModelError
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import cholesky, real, real_vector
from ppl.supports import covariance as positive_definite


@random_variable
class MultivariateNormal(RandomVariable):
    """Multivariate normal random variable: vectors of n numbers.

        log f(x) = -(x - loc)' S^-1 (x - loc) / 2 - log det(S) / 2 - n log(2 pi) / 2

    Exactly one of `covariance`, `scale_tril` and `precision` gives S. While a model is traced, a matrix that is not
    positive definite has log density -inf.

    Args:
      loc: mean, real, of shape `[..., n]`, or one number for all entries.
      covariance: S, of shape `[..., n, n]`.
      scale_tril: L with S = L L', lower triangular with a positive diagonal. Saves a decomposition.
      precision: the inverse of S.

    Same law as `scipy.stats.multivariate_normal(loc, covariance)`.
    """

    loc: ArrayLike = 0.0
    covariance: ArrayLike | None = None
    scale_tril: ArrayLike | None = None
    precision: ArrayLike | None = None

    support = real_vector
    domain = dict(loc=real, covariance=positive_definite, scale_tril=cholesky, precision=positive_definite)
    event_dims = dict(loc=1, covariance=2, scale_tril=2, precision=2)
    event_ndim = 1

    def check(self):
        """Refuse none or several of the matrices."""
        given = [n for n in ("covariance", "scale_tril", "precision") if getattr(self, n) is not None]
        if len(given) != 1:
            has = " and ".join(given) or "none"
            raise ModelError(
                f"{self._label()}: give exactly one of covariance, scale_tril and precision (has {has}); "
                "for independent entries use Normal with an array of scales"
            )
        fit_vector_and_matrix(self, given[0])

    @property
    def event_shape(self):
        """The shape of one draw: one number for each row of the matrix."""
        return self._matrix.shape[-1:]

    @property
    def _matrix(self):
        return next(m for m in (self.covariance, self.scale_tril, self.precision) if m is not None)

    def sample(self, key) -> Array:
        """Draw vectors."""
        noise = jax.random.normal(key, self.shape, self._matrix.dtype)
        if self.precision is not None:
            return self.loc + solve_lower(jnp.linalg.cholesky(self.precision), noise, transpose=True)
        return self.loc + multiply_lower(self._factor, noise)

    @property
    def _factor(self):
        return self.scale_tril if self.scale_tril is not None else jnp.linalg.cholesky(self.covariance)

    def log_prob(self, x) -> Array:
        """Return the log density at `x`."""
        x = as_float(x)
        n = self.event_shape[0]
        inside = real_vector.contains(x)
        deviation = jnp.where(inside[..., None], x - self.loc, 0)
        if self.precision is not None:
            factor, good = sound_factor(jnp.linalg.cholesky(self.precision))
            whitened = multiply_lower(factor.mT, deviation)
            log_det = log_diagonal(factor)
        else:
            factor, good = sound_factor(self._factor)
            whitened = solve_lower(factor, deviation)
            log_det = -log_diagonal(factor)
        log_density = log_det - jnp.sum(whitened * whitened, -1) / 2 - n * math.log(2 * math.pi) / 2
        return jnp.where(inside & good, log_density, -jnp.inf)

    @property
    def mean(self):
        """The mean."""
        return jnp.broadcast_to(self.loc, self.shape)

    @property
    def variance(self):
        """The variance of each entry."""
        if self.covariance is not None:
            variance = jnp.diagonal(self.covariance, 0, -2, -1)
        elif self.scale_tril is not None:
            variance = jnp.sum(self.scale_tril**2, -1)
        else:
            variance = jnp.diagonal(jnp.linalg.inv(self.precision), 0, -2, -1)
        return jnp.broadcast_to(variance.reshape((1,) * (len(self.shape) - variance.ndim) + variance.shape), self.shape)

    def entropy(self):
        """Return the differential entropy."""
        factor = jnp.linalg.cholesky(self.precision) if self.precision is not None else self._factor
        sign = -1 if self.precision is not None else 1
        entropy = sign * log_diagonal(factor) + self.event_shape[0] * (1 + math.log(2 * math.pi)) / 2
        return jnp.broadcast_to(
            entropy.reshape((1,) * (len(self.batch_shape) - entropy.ndim) + entropy.shape), self.batch_shape
        )


def fit_vector_and_matrix(rv, name):
    """Spread a `loc` of one number over the entries of a vector, and refuse a matrix that does not fit `loc`."""
    matrix = getattr(rv, name)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ModelError(f"{rv._label()}: {name} must be square, but has shape {matrix.shape}")
    n = matrix.shape[-1]
    if rv.loc.ndim == 0:
        rv.__dict__["loc"] = jnp.broadcast_to(rv.loc, (n,))
    if rv.loc.shape[-1] not in (1, n):
        raise ModelError(f"{rv._label()}: loc has shape {rv.loc.shape} but {name} has shape {matrix.shape}")


def solve_lower(factor, vectors, transpose=False):
    """Return L^-1 v, or L'^-1 v, for each vector v in the last axis; a factor that all share is used once for all."""
    n = factor.shape[-1]
    options = dict(left_side=True, lower=True, transpose_a=transpose)
    if factor.size == n * n:
        columns = vectors.reshape(-1, n).T
        return jax.lax.linalg.triangular_solve(factor.reshape(n, n), columns, **options).T.reshape(vectors.shape)
    batch = jnp.broadcast_shapes(factor.shape[:-2], vectors.shape[:-1])
    factor = jnp.broadcast_to(factor, (*batch, n, n))
    columns = jnp.broadcast_to(vectors, (*batch, n))[..., None]
    return jax.lax.linalg.triangular_solve(factor, columns, **options)[..., 0]


def multiply_lower(factor, vectors):
    """Return L v for each vector v in the last axis; a factor that all share is used once for all."""
    n = factor.shape[-1]
    if factor.size == n * n:
        return jnp.matmul(vectors.reshape(-1, n), factor.reshape(n, n).T, precision="highest").reshape(vectors.shape)
    return jnp.matmul(factor, vectors[..., None], precision="highest")[..., 0]


def log_diagonal(factor):
    """Return the log determinant of a triangular matrix with positive diagonal."""
    return jnp.sum(jnp.log(jnp.diagonal(factor, 0, -2, -1)), -1)


def sound_factor(factor):
    """Return a Cholesky factor with the identity where it does not exist, and where it does."""
    n = factor.shape[-1]
    good = jnp.all(jnp.isfinite(factor), (-2, -1)) & jnp.all(jnp.diagonal(factor, 0, -2, -1) > 0, -1)
    identity = jnp.eye(n, dtype=factor.dtype).reshape((1,) * (factor.ndim - 2) + (n, n))
    return jnp.where(good[..., None, None], factor, identity), good
