"""Supports of vectors."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from ppl.supports.base import Support, bounded_exp, from_count, largest, nearly, tiny, to_count, unscaled


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RealVector(Support):
    """All vectors of finite numbers."""

    words = "finite numbers"
    event_ndim = 1

    def contains(self, x):
        return jnp.all(jnp.isfinite(x), -1)

    def contains_numpy(self, x):
        return np.all(np.isfinite(x), -1)

    def constrain(self, u):
        return u, jnp.zeros(u.shape[:-1], u.dtype)

    def free(self, x):
        return x


def _isometric(u):
    """Map R^{n-1} to the vectors of R^n that sum to 0, keeping lengths (a Householder reflection)."""
    n = u.shape[-1] + 1
    total = jnp.sum(u, -1, keepdims=True)
    shift = total / (n + n**0.5)
    return jnp.concatenate([u - shift, -total / n**0.5], -1)


def _isometric_inverse(x):
    """Invert `_isometric`."""
    n = x.shape[-1]
    return x[..., :-1] - x[..., -1:] / (1 + n**0.5)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Simplex(Support):
    """Vectors of n positive numbers that sum to 1:  x = softmax(V u), the columns of V orthonormal and orthogonal to 1.

    The map treats all entries alike. Densities are with respect to the first n - 1 entries:
    log volume = sum_i log x_i + log(n) / 2. Entries never fall below the smallest normal number.
    Membership allows an error of 8 n eps in the sum, eps being that of the dtype (of float32 for parameters).
    """

    words = "nonnegative numbers that sum to 1"
    event_ndim = 1

    def contains(self, x):
        return jnp.all(x >= 0, -1) & nearly(jnp.sum(x, -1), 1, 1, x.shape[-1])

    def contains_numpy(self, x):
        return np.all(x >= 0, -1) & nearly(np.sum(x, -1), 1, 1, x.shape[-1])

    def free_shape(self, shape):
        return (*shape[:-1], shape[-1] - 1)

    def constrain(self, u):
        log_x = jax.nn.log_softmax(_isometric(u))
        return bounded_exp(log_x), jnp.sum(log_x, -1) + 0.5 * np.log(u.shape[-1] + 1).item()

    def free(self, x):
        log_x = jnp.log(jnp.maximum(x, tiny(x)))
        return _isometric_inverse(log_x - jnp.mean(log_x, -1, keepdims=True))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SumToZero(Support):
    """Vectors of n numbers that sum to 0:  x = V u with orthonormal V, so lengths are kept.

    Densities are with respect to that (n - 1)-dimensional length: log volume 0.
    Membership allows an error of 8 n eps of the largest entry in the sum.
    """

    words = "numbers that sum to 0"
    event_ndim = 1

    def contains(self, x):
        largest = jnp.max(abs(x), -1)
        return nearly(jnp.sum(x, -1), 0, largest, x.shape[-1]) & (largest < jnp.inf)

    def contains_numpy(self, x):
        largest = np.max(abs(x), -1)
        return nearly(np.sum(x, -1), 0, largest, x.shape[-1]) & (largest < np.inf)

    def free_shape(self, shape):
        return (*shape[:-1], shape[-1] - 1)

    def constrain(self, u):
        return _isometric(u), jnp.zeros(u.shape[:-1], u.dtype)

    def free(self, x):
        return _isometric_inverse(x)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class UnitVector(Support):
    """Vectors of length 1 in R^n:  x = u / |u|,  log volume -|u|^2 / 2 - log(2^(n/2 - 1) Gamma(n / 2)).

    There are n free coordinates; the length of u is given a chi law with n degrees of freedom. Densities are with
    respect to the area of the sphere. Membership allows an error of 8 n eps in |x|^2.
    """

    words = "a vector of length 1"
    event_ndim = 1

    def contains(self, x):
        return nearly(jnp.sum(x * x, -1), 1, 1, x.shape[-1])

    def contains_numpy(self, x):
        return nearly(np.sum(x * x, -1), 1, 1, x.shape[-1])

    def constrain(self, u):
        n = u.shape[-1]
        direction = unscaled(u)
        x = direction / jnp.sqrt(jnp.sum(direction * direction, -1, keepdims=True))
        return x, -jnp.sum(u * u, -1) / 2 - ((n / 2 - 1) * math.log(2) + math.lgamma(n / 2))

    def free(self, x):
        return x


def _strictly_increasing(x):
    """Return x with each entry raised, where it must be, to the float after the one before it.

    The gradient is that of x.
    """
    n = x.shape[-1]
    x = jnp.clip(x, -largest(x), largest(x))
    count = to_count(jax.lax.stop_gradient(x))
    rank = jnp.arange(n, dtype=count.dtype).reshape((1,) * (x.ndim - 1) + (n,))
    last = to_count(jnp.asarray(largest(x), x.dtype)) - (n - 1) + rank
    raised = from_count(jnp.minimum(jax.lax.cummax(count - rank, axis=x.ndim - 1) + rank, last), x.dtype)
    return jnp.where(raised == x, x, x + jax.lax.stop_gradient(raised - x))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Ordered(Support):
    """Vectors of strictly increasing numbers:  x_1 = u_1,  x_k = x_{k-1} + exp(u_k),  log volume sum_{k>1} u_k.

    Where a step is lost in rounding, the entry is the next float: entries are never equal.
    """

    words = "strictly increasing numbers"
    event_ndim = 1

    def contains(self, x):
        return jnp.all(x[..., 1:] > x[..., :-1], -1) & jnp.all(jnp.isfinite(x), -1)

    def contains_numpy(self, x):
        return np.all(x[..., 1:] > x[..., :-1], -1) & np.all(np.isfinite(x), -1)

    def constrain(self, u):
        steps = jnp.concatenate([u[..., :1], bounded_exp(u[..., 1:], terms=u.shape[-1])], -1)
        return _strictly_increasing(jnp.cumsum(steps, -1)), jnp.sum(u[..., 1:], -1)

    def free(self, x):
        return jnp.concatenate([x[..., :1], jnp.log(jnp.clip(jnp.diff(x), tiny(x), largest(x)))], -1)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PositiveOrdered(Ordered):
    """Vectors of positive, strictly increasing numbers:  x_k = exp(u_1) + ... + exp(u_k),  log volume sum_k u_k."""

    words = "positive, strictly increasing numbers"

    def contains(self, x):
        return super().contains(x) & jnp.all(x >= 0, -1)

    def contains_numpy(self, x):
        return super().contains_numpy(x) & np.all(x > 0, -1)

    def constrain(self, u):
        return _strictly_increasing(jnp.cumsum(bounded_exp(u, terms=u.shape[-1]), -1)), jnp.sum(u, -1)

    def free(self, x):
        return jnp.log(jnp.clip(jnp.concatenate([x[..., :1], jnp.diff(x)], -1), tiny(x), largest(x)))
