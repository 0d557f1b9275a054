"""The LKJ distribution of correlation matrices, as their Cholesky factors."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from ppl.distributions.special import as_float
from ppl.errors import ModelError
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import corr_cholesky, positive


@random_variable
class LKJCholesky(RandomVariable):
    """Cholesky factor L of a correlation matrix R = L L' whose density is proportional to det(R)^(concentration - 1).

    With respect to the entries of L below its diagonal, i counting rows from 0 and n = dimension,

        log f(L) = sum_{i>0} 2 (b_i - 1) log L_ii - i/2 log(pi) + log Gamma(b_i + i/2) - log Gamma(b_i),
        b_i = concentration + (n - 1 - i) / 2

    The rows are independent: row i is a vector of i standard normals and the root of 2 Gamma(b_i), divided by its
    length.

    Args:
      dimension: n, the number of rows, a Python int.
      concentration: positive; 1 is uniform over correlation matrices, more favors the identity.

    Reference: Lewandowski, Kurowicka and Joe (2009), Journal of Multivariate Analysis 100, 1989-2001 (onion method).
    """

    dimension: int
    concentration: ArrayLike = 1.0

    support = corr_cholesky
    domain = dict(concentration=positive)
    event_ndim = 2

    def check(self):
        """Refuse a dimension that is not a positive Python int."""
        if not isinstance(self.dimension, int | np.integer) or self.dimension < 1:
            raise ModelError(
                f"{self._label()}: dimension must be a whole number, at least 1, known when the model is traced, "
                f"but is {self.dimension!r}"
            )

    @property
    def event_shape(self):
        """The shape of one draw: a square matrix."""
        return (int(self.dimension),) * 2

    def _shapes(self):
        """Return i / 2 and b_i for the rows, `[..., n]`."""
        n = self.dimension
        rank = max(self.concentration.ndim, len(self.batch_shape))
        half = np.arange(n).astype(self.concentration.dtype).reshape((1,) * rank + (n,)) / 2
        concentration = jnp.broadcast_to(
            self.concentration, (1,) * rank if not self.concentration.ndim else self.concentration.shape
        )
        return half, concentration[..., None] + ((n - 1) / 2 - half)

    def sample(self, key) -> Array:
        """Draw Cholesky factors."""
        normal_key, gamma_key = jax.random.split(key)
        _, b = self._shapes()
        n, dtype = self.dimension, self.concentration.dtype
        below = jnp.tril(jax.random.normal(normal_key, self.shape, dtype), -1)
        log_gamma = jax.random.loggamma(gamma_key, b, (*self.batch_shape, n), dtype)
        lowest = 0.9 * math.log(float(jnp.finfo(dtype).tiny))
        root = jnp.exp(jnp.maximum((log_gamma + math.log(2)) / 2, lowest))
        rows = below + root[..., None] * jnp.eye(n, dtype=dtype).reshape((1,) * len(self.batch_shape) + (n, n))
        return rows / jnp.sqrt(jnp.sum(rows * rows, -1, keepdims=True) + jnp.finfo(dtype).tiny)

    def log_prob(self, x) -> Array:
        """Return the log density at `x`."""
        x = as_float(x)
        half, b = (p[..., 1:] for p in self._shapes())
        diagonal = jnp.diagonal(x, 0, -2, -1)[..., 1:]
        tiny = jnp.finfo(x.dtype).tiny
        inside = corr_cholesky.contains(x) & ~jnp.any((diagonal < tiny) & (b > 1), -1)
        safe = jnp.maximum(jnp.where(inside[..., None], diagonal, 1), tiny)
        log_constant = gammaln(b + half) - gammaln(b) - half * math.log(math.pi)
        return jnp.where(inside, jnp.sum(2 * (b - 1) * jnp.log(safe) + log_constant, -1), -jnp.inf)
