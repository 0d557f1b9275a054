"""A normal law of vectors whose covariance is diagonal plus low rank: cheap in many dimensions."""

import math

import jax
import jax.numpy as jnp

from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real, real_vector


@random_variable
class LowRankNormal(RandomVariable):
    """Normal random vector of n numbers with covariance  S = D^2 + W W',  D = diag(scale), W of r columns.

        log f(x) = -(x - loc)' S^-1 (x - loc) / 2 - log det(S) / 2 - n log(2 pi) / 2

    By the matrix inversion lemma with C = 1 + W' D^-2 W (r by r), so the cost is of the order n r.

    Args:
      loc: mean, [n].
      scale: D, positive, [n].
      factor: W, [n, r].
    """

    loc: ArrayLike
    scale: ArrayLike
    factor: ArrayLike

    support = real_vector
    domain = dict(loc=real, scale=positive, factor=real)
    event_dims = dict(loc=1, scale=1, factor=2)
    event_ndim = 1

    @property
    def event_shape(self):
        """The shape of one draw."""
        return self.factor.shape[-2:-1]

    def sample(self, key):
        """Draw a vector."""
        of_scale, of_factor = jax.random.split(key)
        noise = jax.random.normal(of_scale, self.shape, self.loc.dtype)
        few = jax.random.normal(of_factor, (*self.batch_shape, self.factor.shape[-1]), self.loc.dtype)
        return self.loc + self.scale * noise + jnp.squeeze(self.factor @ few[..., None], -1)

    def _capacitance(self):
        whitened = self.factor / self.scale[..., None]
        rank = self.factor.shape[-1]
        eye = jnp.eye(rank, dtype=self.loc.dtype).reshape((1,) * (whitened.ndim - 2) + (rank, rank))
        return whitened, jnp.linalg.cholesky(eye + whitened.mT @ whitened)

    def log_prob(self, x):
        """Return the log density at `x`."""
        whitened, lower = self._capacitance()
        z = (x - self.loc) / self.scale
        few = jax.lax.linalg.triangular_solve(lower, whitened.mT @ z[..., None], left_side=True, lower=True)
        square = jnp.sum(z * z, -1) - jnp.sum(few * few, (-2, -1))
        return -0.5 * square - self._log_det(lower) - x.shape[-1] * math.log(2 * math.pi) / 2

    def _log_det(self, lower):
        """Return half the log determinant of the covariance."""
        return jnp.sum(jnp.log(jnp.diagonal(lower, 0, -2, -1)), -1) + jnp.sum(jnp.log(self.scale), -1)

    def entropy(self):
        """Return the differential entropy."""
        n = self.event_shape[0]
        return jnp.broadcast_to(
            self._log_det(self._capacitance()[1]) + n * (1 + math.log(2 * math.pi)) / 2, self.batch_shape
        )
