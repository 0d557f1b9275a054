"""Bijections for `Transformed`: smooth maps with a log volume. Each support of `ppl.supports` is one as well.

A bijection is any object with `constrain(u) -> (x, log_volume)` and its inverse `free(x)`; where values are vectors it
has `event_ndim`, and `free_shape(shape)` where the shape changes. `contains(x)` tells what its values are.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import softplus

from ppl.errors import ModelError
from ppl.random_variable import concrete
from ppl.supports import GreaterThan, Interval

Exp = GreaterThan  # Exp(): x = exp(u); Exp(low): x = low + exp(u)
Sigmoid = Interval  # Sigmoid(): x = 1 / (1 + exp(-u)); Sigmoid(low, high): stretched to that interval


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Affine:
    """The map x = loc + scale u,  log volume log |scale|; `scale` is any number but 0."""

    loc: Any = 0.0
    scale: Any = 1.0

    def __post_init__(self):
        known = concrete(self.scale) if isinstance(self.scale, int | float | np.ndarray | jax.Array) else None
        if known is not None and np.any(known == 0):
            raise ModelError("Affine: scale must not be 0: the result would be a constant")

    def contains(self, x):
        """Tell which numbers are values of the map."""
        return jnp.isfinite(x)

    def _aligned(self, u):
        def align(p):
            p = jnp.asarray(p).astype(u.dtype)
            return p.reshape((1,) * (u.ndim - p.ndim) + p.shape) if 0 < p.ndim < u.ndim else p

        return align(self.loc), align(self.scale)

    def constrain(self, u):
        """Return `(loc + scale u, log |scale|)`."""
        loc, scale = self._aligned(u)
        x = loc + scale * u
        return x, jnp.broadcast_to(jnp.log(abs(scale)), x.shape)

    def free(self, x):
        """Return `(x - loc) / scale`."""
        loc, scale = self._aligned(x)
        return (x - loc) / scale


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Tanh:
    """The map x = tanh(u),  log volume log(1 - x^2) = 2 (log 2 - |u| - log(1 + exp(-2 |u|))).

    Values are strictly between -1 and 1, however large u is.
    """

    def contains(self, x):
        """Tell which numbers are values of the map."""
        return abs(x) < 1

    def constrain(self, u):
        """Return `(tanh(u), log(1 - tanh(u)^2))`."""
        most = 1 - float(jnp.finfo(u.dtype).epsneg)
        return jnp.clip(jnp.tanh(u), -most, most), 2 * (math.log(2) - abs(u) - softplus(-2 * abs(u)))

    def free(self, x):
        """Return the inverse hyperbolic tangent, finite also at -1 and 1."""
        most = 1 - float(jnp.finfo(x.dtype).epsneg)
        return jnp.arctanh(jnp.clip(x, -most, most))
