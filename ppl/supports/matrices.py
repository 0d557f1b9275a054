"""Supports of matrices."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import softplus

from ppl.supports.base import Support, bounded_exp, largest, nearly, tiny


def _lower(u, n, k):
    """Fill the lower triangle of n x n matrices, up to diagonal k, with u, row after row."""
    rows, columns = np.tril_indices(n, k)
    return jnp.zeros((*u.shape[:-1], n, n), u.dtype).at[..., rows, columns].set(u)


def _side(size, k):
    """Return n for a lower triangle of `size` entries: n (n + 1) / 2, or n (n - 1) / 2 without the diagonal."""
    return (math.isqrt(8 * size + 1) - 1) // 2 - k


class Matrix(Support):
    """Base of supports of square matrices, lower triangular or symmetric."""

    event_ndim = 2
    diagonal = 0

    def free_shape(self, shape):
        return (*shape[:-2], shape[-1] * (shape[-1] + 1 + 2 * self.diagonal) // 2)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CorrCholesky(Matrix):
    """Cholesky factors of correlation matrices: lower triangular, rows of length 1, positive diagonal.

    Row by row, with z = tanh(u):  L_ij = z_ij prod_{k<j} sqrt(1 - z_ik^2),  L_ii = prod_k sqrt(1 - z_ik^2).
    Densities are with respect to the entries below the diagonal (i, j from 0):
    log volume = sum_{j<i} (1 + (i - 1 - j) / 2) log(1 - z_ij^2). Membership allows an error of 8 n eps in |row|^2.
    """

    words = "a Cholesky factor of a correlation matrix"
    diagonal = -1

    def contains(self, x):
        good = nearly(jnp.sum(x * x, -1), 1, 1, x.shape[-1])
        return jnp.all(good, -1) & jnp.all(jnp.diagonal(x, 0, -2, -1) >= 0, -1) & jnp.all(jnp.triu(x, 1) == 0, (-2, -1))

    def contains_numpy(self, x):
        good = nearly(np.sum(x * x, -1), 1, 1, x.shape[-1])
        return np.all(good, -1) & np.all(np.diagonal(x, 0, -2, -1) > 0, -1) & np.all(np.triu(x, 1) == 0, (-2, -1))

    def constrain(self, u):
        n = _side(u.shape[-1], -1)
        log_rest = 2 * (math.log(2) - abs(u) - softplus(-2 * abs(u)))  # log(1 - tanh(u)^2)
        rows, columns = np.tril_indices(n, -1)
        weights = np.asarray(1 + (rows - 1 - columns) / 2, u.dtype).reshape((1,) * (u.ndim - 1) + u.shape[-1:])
        log_volume = jnp.sum(log_rest * weights, -1)
        log_rest = _lower(log_rest, n, -1)
        before = jnp.concatenate([jnp.zeros_like(log_rest[..., :1]), jnp.cumsum(log_rest, -1)[..., :-1]], -1)
        length = bounded_exp(before / 2)  # of the rest of the row, from each entry on
        return _lower(jnp.tanh(u), n, -1) * length + _diagonal_matrix(jnp.diagonal(length, 0, -2, -1)), log_volume

    def free(self, x):
        n = x.shape[-1]
        rows, columns = np.tril_indices(n, -1)
        log_square = 2 * jnp.log(jnp.maximum(abs(jnp.tril(x)), tiny(x)))
        log_square = jnp.where(np.tri(n, dtype=bool).reshape((1,) * (x.ndim - 2) + (n, n)), log_square, -jnp.inf)
        rest = jax.lax.cumlogsumexp(log_square, axis=x.ndim - 1, reverse=True)[..., 1:] / 2
        return jnp.arcsinh(x[..., rows, columns] * jnp.exp(-rest[..., rows, columns]))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Cholesky(Matrix):
    """Lower triangular matrices with positive diagonal:  L_ii = exp(u_ii),  L_ij = u_ij,  log volume sum_i u_ii."""

    words = "lower triangular with a positive diagonal"

    def contains(self, x):
        good = jnp.all(jnp.isfinite(x) & (jnp.triu(x, 1) == 0), (-2, -1))
        return good & jnp.all(jnp.diagonal(x, 0, -2, -1) >= 0, -1)

    def contains_numpy(self, x):
        good = np.all(np.isfinite(x) & (np.triu(x, 1) == 0), (-2, -1))
        return good & np.all(np.diagonal(x, 0, -2, -1) > 0, -1)

    def constrain(self, u):
        x = _lower(u, _side(u.shape[-1], 0), 0)
        diagonal = jnp.diagonal(x, 0, -2, -1)
        return jnp.tril(x, -1) + _diagonal_matrix(bounded_exp(diagonal)), jnp.sum(diagonal, -1)

    def free(self, x):
        diagonal = jnp.log(jnp.clip(jnp.diagonal(x, 0, -2, -1), tiny(x), largest(x)))
        rows, columns = np.tril_indices(x.shape[-1])
        return (jnp.tril(x, -1) + _diagonal_matrix(diagonal))[..., rows, columns]


def _diagonal_matrix(x):
    return x[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype).reshape((1,) * (x.ndim - 1) + (x.shape[-1],) * 2)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Covariance(Matrix):
    """Symmetric positive definite matrices:  x = L L^T,  L_ii = exp(u_ii),  L_ij = u_ij.

    Densities are with respect to the lower triangle: log volume = n log 2 + sum_i (n - i + 1) u_ii, with i from 0.
    Entries of L are kept within the square root of the dtype's range. Where the condition of x exceeds 1 / eps,
    x cannot be told from a singular matrix, and `free` returns that of x + n eps max(x) I.
    """

    words = "symmetric and positive definite"

    def contains(self, x):
        symmetric = abs(x - x.mT) <= 8 * float(jnp.finfo(x.dtype).eps) * jnp.max(abs(x), (-2, -1), keepdims=True)
        symmetric = jnp.all(symmetric, (-2, -1))
        factor = jnp.linalg.cholesky(jnp.where(symmetric[..., None, None], x, jnp.eye(x.shape[-1], dtype=x.dtype)))
        return symmetric & jnp.all(jnp.isfinite(factor), (-2, -1))

    def contains_numpy(self, x):
        if x.shape[-1] != x.shape[-2]:
            return np.zeros(x.shape[:-2], bool)
        symmetric = abs(x - x.mT) <= 8 * float(np.finfo(np.float32).eps) * np.max(abs(x), (-2, -1), keepdims=True)
        symmetric = np.all(symmetric & np.isfinite(x), (-2, -1))
        safe = np.where(symmetric[..., None, None], x, np.eye(x.shape[-1]))
        return symmetric & np.all(np.linalg.eigvalsh(safe) > 0, -1)

    def constrain(self, u):
        n = _side(u.shape[-1], 0)
        x = _lower(u, n, 0)
        diagonal = jnp.diagonal(x, 0, -2, -1)
        most = float(largest(u)) ** 0.5 / (4 * n)
        factor = jnp.clip(jnp.tril(x, -1), -most, most) + _diagonal_matrix(
            jnp.minimum(bounded_exp(diagonal, 0.5), most)
        )
        weights = np.arange(n + 1, 1, -1).astype(u.dtype).reshape((1,) * (diagonal.ndim - 1) + (n,))
        product = jnp.matmul(factor, factor.mT, precision="highest")
        return (product + product.mT) / 2, jnp.sum(weights * diagonal, -1) + n * math.log(2)

    def free(self, x):
        n = x.shape[-1]
        factor = jnp.linalg.cholesky(x)
        bump = n * float(jnp.finfo(x.dtype).eps) * jnp.max(abs(x), (-2, -1))
        bumped = jnp.linalg.cholesky(x + _diagonal_matrix(jnp.broadcast_to(bump[..., None], x.shape[:-1])))
        return Cholesky().free(jnp.where(jnp.all(jnp.isfinite(factor), (-2, -1), keepdims=True), factor, bumped))
