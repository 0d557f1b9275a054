"""Whitening: linear changes of variables that make a posterior look like a unit Gaussian.

    position = A z,        z has unit mass        (the metric of the literature is M = (A A^T)^-1)

A kernel keeps its momentum r in the coordinates z and asks for two products only: `apply(r)` = A r, the displacement
of the position, and `transpose(g)` = A^T g, the gradient as z sees it. Any NamedTuple with these two methods fits.
An `Estimator` learns A from the draws of the warm-up and from their gradients.

Reference: Seyboldt, Carlson, Carpenter (2026), arXiv 2603.18845: the diagonal A that minimizes the Fisher divergence
from the posterior to a Gaussian is `A_i^2 = sqrt(var(draws)_i / var(gradients)_i)`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SMALLEST, LARGEST = 1e-10, 1e10  # bounds of a scale; float32 holds their squares
MOST_ROOTS = 12  # Newton steps to a square root


class Identity(NamedTuple):
    """A = 1: the position is taken as it is."""

    def apply(self, momentum):
        """Return A r."""
        return momentum

    def transpose(self, gradient):
        """Return A^T g."""
        return gradient


class Diagonal(NamedTuple):
    """A = diag(scale).

    Args:
      scale: pytree like the position; each entry is about the standard deviation of its coordinate.
    """

    scale: Any

    def apply(self, momentum):
        """Return A r."""
        return jax.tree.map(jnp.multiply, self.scale, momentum)

    def transpose(self, gradient):
        """Return A^T g."""
        return jax.tree.map(jnp.multiply, self.scale, gradient)


class Dense(NamedTuple):
    """A = factor, a matrix with `factor @ factor.T` about the covariance; for positions that are one flat vector.

    Args:
      factor: [coordinate, coordinate].
    """

    factor: Any

    def apply(self, momentum):
        """Return A r."""
        return _product(self.factor, momentum)

    def transpose(self, gradient):
        """Return A^T g."""
        return _product(self.factor.T, gradient)


def _product(matrix, vector):
    """Return `matrix @ vector`; short sums are written out, which compiles and runs faster than a call."""
    if len(vector) > 32:
        return matrix @ vector
    return jnp.sum(matrix * jnp.expand_dims(vector, 0), 1)


def _matrices(first, second):
    """Return `first @ second`, likewise."""
    if len(second) > 32:
        return first @ second
    return jnp.sum(jnp.expand_dims(first, 2) * jnp.expand_dims(second, 0), 1)


class Moments(NamedTuple):
    """Running moments of draws and of their gradients.

    Args:
      count: number of draws, a float scalar.
      mean: leaves [2, ...]: mean draw and mean gradient.
      spread: leaves [2, ...]: sums of squared (or multiplied) deviations.
    """

    count: Any
    mean: Any
    spread: Any


class Estimator(NamedTuple):
    """Learns a whitening.

    Args:
      init: `init(position) -> moments`, all zero, in numpy.
      update: `update(moments, position, gradient) -> moments`, with one more draw.
      estimate: `estimate(moments, previous) -> whitening`; entries that cannot be told yet stay as in `previous`.
      first: `first(position, gradient) -> whitening`, from the starting point alone.
      blank: `blank(position) -> whitening`, the identity in the same form, in numpy.
      every: `every(size)`, the number of draws between estimates, since an estimate may be costly.
    """

    init: Callable
    update: Callable
    estimate: Callable
    first: Callable
    blank: Callable
    every: Callable = lambda size: 1


def _ones(tree):
    return jax.tree.map(lambda x: np.ones(np.shape(x), x.dtype), tree)


def _float(tree):
    return jax.tree.leaves(tree)[0].dtype


def _pairs(position, *tail):
    return jax.tree.map(lambda x: np.zeros((2, *np.shape(x), *tail), x.dtype), position)


def _diagonal_init(position):
    return Moments(np.zeros((), _float(position)), _pairs(position), _pairs(position))


def grow(count, mean, spread, value):
    """One step of Welford's recursion, per entry; `count` includes the new value."""
    change = jax.tree.map(lambda x, m: x - m, value, mean)
    mean = jax.tree.map(lambda m, d: m + d / count, mean, change)
    spread = jax.tree.map(lambda s, d, x, m: s + d * (x - m), spread, change, value, mean)
    return mean, spread


def _diagonal_update(moments, position, gradient):
    count = moments.count + 1
    both = jax.tree.map(lambda q, g: jnp.stack([q, g]), position, gradient)
    return Moments(count, *grow(count, moments.mean, moments.spread, both))


def _fourth_root(draws, gradients, previous):
    scale = jnp.sqrt(jnp.sqrt(draws)) / jnp.sqrt(jnp.sqrt(gradients))
    return jnp.where(jnp.isfinite(scale) & (scale > 0), jnp.clip(scale, SMALLEST, LARGEST), previous)


def _diagonal_estimate(moments, previous):
    return Diagonal(jax.tree.map(lambda s, before: _fourth_root(s[0], s[1], before), moments.spread, previous.scale))


def _diagonal_first(position, gradient):
    return Diagonal(jax.tree.map(lambda g: jnp.clip(1 / jnp.sqrt(jnp.abs(g)), 1e-5, 1e5), gradient))


diagonal = Estimator(
    _diagonal_init,
    _diagonal_update,
    _diagonal_estimate,
    _diagonal_first,
    lambda position: Diagonal(_ones(position)),
)


def _dense_init(position):
    return Moments(np.zeros((), position.dtype), _pairs(position), _pairs(position, *np.shape(position)))


def _dense_update(moments, position, gradient):
    count = moments.count + 1
    both = jnp.stack([position, gradient])
    change = both - moments.mean
    mean = moments.mean + change / count
    return Moments(count, mean, moments.spread + jnp.expand_dims(change, 2) * jnp.expand_dims(both - mean, 1))


def _dense_estimate(moments, previous):
    """Geometric mean of the covariance of the draws and the inverse covariance of the gradients.

    The mean G solves `G C_draws^-1 G = C_gradients^-1`; for a Gaussian it is the covariance itself as soon as there are
    more draws than coordinates. Both are shrunk towards the diagonal answer, within its coordinates. With
    `L L^T = C_gradients`, `G = L^-T R L^-1`, where R is the square root of `L^T C_draws L`.
    """
    size = moments.mean.shape[1]
    draws, gradients = jnp.diag(moments.spread[0]), jnp.diag(moments.spread[1])
    scale = _fourth_root(draws, gradients, jnp.linalg.norm(previous.factor, axis=1))
    row, column = jnp.expand_dims(scale, 1), jnp.expand_dims(scale, 0)
    degrees = moments.count - 1
    share = degrees / (degrees + 5)
    one = jnp.eye(size, dtype=scale.dtype)
    draws = share * moments.spread[0] / (row * column) / degrees + (1 - share) * one
    gradients = share * moments.spread[1] * (row * column) / degrees + (1 - share) * one
    lower = _cholesky(gradients)
    factor = row * _matrices(
        _inverse(gradients), _matrices(lower, _cholesky(_square_root(_matrices(_matrices(lower.T, draws), lower))))
    )
    return Dense(jnp.where(jnp.all(jnp.isfinite(factor)), factor, previous.factor))


# Factors of small positive definite matrices, as loops of rank-one updates: LAPACK would be loaded with scipy.linalg, half
# a second, and its threads and ours wait for each other.


def _pivot(value):
    return jnp.maximum(value, 10 * jnp.finfo(value.dtype).eps)


def _cholesky(matrix):
    """Return the lower triangular factor of a matrix with a diagonal of about 1; small pivots are raised."""
    place = jnp.arange(len(matrix), dtype=jnp.int32)

    def body(k, carry):
        rest, factor = carry
        column = jnp.where(place >= k, rest[k], 0) / jnp.sqrt(_pivot(rest[k, k]))
        rest = rest - jnp.expand_dims(column, 1) * jnp.expand_dims(column, 0)
        return rest, jnp.where(jnp.expand_dims(place == k, 0), jnp.expand_dims(column, 1), factor)

    return jax.lax.fori_loop(0, len(matrix), body, (matrix, jnp.zeros_like(matrix)))[1]


def _inverse(matrix):
    """Return the inverse of a positive definite matrix, by sweeping each coordinate."""
    place = jnp.arange(len(matrix), dtype=jnp.int32)

    def body(k, swept):
        column, here = swept[k], place == k
        pivot = _pivot(column[k])
        ratio = column / pivot
        both = jnp.expand_dims(here, 1) | jnp.expand_dims(here, 0)
        edge = jnp.where(jnp.expand_dims(here, 0), jnp.expand_dims(ratio, 1), jnp.expand_dims(ratio, 0))
        corner = jnp.expand_dims(here, 1) & jnp.expand_dims(here, 0)
        inner = swept - jnp.expand_dims(ratio, 1) * jnp.expand_dims(column, 0)
        return jnp.where(corner, -1 / pivot, jnp.where(both, edge, inner))

    return -jax.lax.fori_loop(0, len(matrix), body, matrix)


def _square_root(matrix):
    """Return the square root of a positive definite matrix: Newton's iteration in the form of Denman and Beavers (1976)."""
    size = jnp.trace(matrix) / len(matrix)
    one = jnp.eye(len(matrix), dtype=matrix.dtype)

    def going(carry):
        count, _, ratio = carry
        return (count < MOST_ROOTS) & (jnp.max(jnp.abs(ratio - one)) > 1e-3)

    def body(carry):
        count, root, ratio = carry  # ratio = root matrix^-1 root, which goes to 1
        inverse = _inverse(ratio)
        root = 0.5 * (root + _matrices(root, inverse))
        ratio = 0.5 * one + 0.25 * (ratio + inverse)
        return count + 1, 0.5 * (root + root.T), 0.5 * (ratio + ratio.T)

    start = (jnp.int32(0), matrix / size, matrix / size)
    return jnp.sqrt(size) * jax.lax.while_loop(going, body, start)[1]


def _dense_first(position, gradient):
    return Dense(jnp.diag(_diagonal_first(position, gradient).scale))


dense = Estimator(
    _dense_init,
    _dense_update,
    _dense_estimate,
    _dense_first,
    lambda position: Dense(np.eye(np.shape(position)[0], dtype=position.dtype)),
    every=lambda size: max(10, size // 2),
)


identity = Estimator(
    lambda position: Moments(np.zeros((), _float(position)), (), ()),
    lambda moments, position, gradient: moments._replace(count=moments.count + 1),
    lambda moments, previous: previous,
    lambda position, gradient: Identity(),
    lambda position: Identity(),
)

METRICS = {"diagonal": diagonal, "dense": dense, "identity": identity}
