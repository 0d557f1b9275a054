"""The law of multi-path Pathfinder: an even mixture of normals whose covariances are diagonal times low rank."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import positive, real, real_vector


@random_variable
class PathMixture(RandomVariable):
    """Even mixture of P normal vectors  x = loc_p + scale_p (1 + Q_p (L_p - 1) Q_p') u,  u standard normal.

    Args:
      loc: [P, n].
      scale: positive, [P, n].
      basis: Q, columns orthonormal or zero, [P, n, k].
      core: L, lower triangular, the identity where the basis is zero, [P, k, k].
    """

    loc: ArrayLike
    scale: ArrayLike
    basis: ArrayLike
    core: ArrayLike

    support = real_vector
    domain = dict(loc=real, scale=positive, basis=real, core=real)
    event_dims = dict(loc=2, scale=2, basis=3, core=3)
    event_ndim = 1
    pathwise = False

    @property
    def event_shape(self):
        """The shape of one draw."""
        return self.loc.shape[-1:]

    def sample(self, key):
        """Draw a vector."""
        pick, noise = jax.random.split(key)
        path = jax.random.randint(pick, (), 0, self.loc.shape[0])
        loc, scale, basis, core = (jnp.take(p, path, axis=0) for p in (self.loc, self.scale, self.basis, self.core))
        u = jax.random.normal(noise, self.shape, self.loc.dtype)
        few = u @ basis
        return loc + scale * (u + basis @ (core @ few - few))

    def log_prob(self, x):
        """Return the log density at `x`, one vector."""

        def one(loc, scale, basis, core):
            w = (x - loc) / scale
            few = w @ basis
            u = w + basis @ (
                jax.lax.linalg.triangular_solve(core, few[:, None], left_side=True, lower=True)[:, 0] - few
            )
            log_det = jnp.sum(jnp.log(scale)) + jnp.sum(jnp.log(jnp.diagonal(core)))
            return -0.5 * jnp.sum(u * u) - log_det - x.shape[0] * math.log(2 * math.pi) / 2

        return logsumexp(jax.vmap(one)(self.loc, self.scale, self.basis, self.core)) - math.log(self.loc.shape[0])
