"""Supports of single numbers."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import softplus

from ppl.supports.base import Support, bounded_exp, largest, tiny, unscaled


def _next(x, towards):
    """The number of x's dtype next to `x`; it has no derivative, so none is asked for."""
    x, towards = jax.lax.stop_gradient(x), jax.lax.stop_gradient(jnp.asarray(towards, x.dtype))
    return jnp.nextafter(x, jnp.broadcast_to(towards, jnp.broadcast_shapes(x.shape, towards.shape)))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Real(Support):
    """All real numbers."""

    words = "a finite number"

    def contains(self, x):
        return jnp.isfinite(x)

    def contains_numpy(self, x):
        return np.isfinite(x)

    def feasible(self, x):
        return jnp.zeros((), x.dtype)

    def constrain(self, u):
        return u, jnp.zeros_like(u)

    def free(self, x):
        return x


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GreaterThan(Support):
    """Numbers above `low`:  x = low + exp(u),  log volume u.

    exp(u) is kept between the smallest and largest normal numbers, so x is never 0 or infinite.
    """

    low: Any = 0.0

    @property
    def words(self):
        return "positive" if isinstance(self.low, float) and self.low == 0 else f"greater than {self.low}"

    def contains(self, x):
        return (x >= jnp.asarray(self.low, x.dtype)) & (x < jnp.inf)

    def contains_numpy(self, x):
        return (x > np.asarray(self.low)) & (x < np.inf)

    def constrain(self, u):
        distance = bounded_exp(u)
        if isinstance(self.low, float) and self.low == 0:
            return distance, u
        low = jnp.asarray(self.low, u.dtype)
        above = _next(low, jnp.inf)
        return jnp.clip(low + distance, jnp.where(low == 0, tiny(u), above), largest(u)), u

    def free(self, x):
        return jnp.log(jnp.clip(x - jnp.asarray(self.low, x.dtype), tiny(x), largest(x)))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NonNegative(GreaterThan):
    """Numbers from 0 on, for parameters that may be 0; maps as `positive` does."""

    words = "at least 0"

    def contains_numpy(self, x):
        return (x >= 0) & (x < np.inf)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LessThan(Support):
    """Numbers below `high`:  x = high - exp(u),  log volume u."""

    high: Any = 0.0

    @property
    def words(self):
        return "negative" if isinstance(self.high, float) and self.high == 0 else f"less than {self.high}"

    def _mirror(self):
        return GreaterThan(-self.high)

    def contains(self, x):
        return self._mirror().contains(-x)

    def contains_numpy(self, x):
        return (x < np.asarray(self.high)) & (x > -np.inf)

    def constrain(self, u):
        x, log_volume = self._mirror().constrain(u)
        return -x, log_volume

    def free(self, x):
        return self._mirror().free(-x)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Interval(Support):
    """Numbers between `low` and `high`:  x = low + (high - low) sigmoid(u).

    Computed from the nearer end, so that the distance to either end keeps its relative accuracy.
    """

    low: Any = 0.0
    high: Any = 1.0

    @property
    def words(self):
        return f"between {self.low} and {self.high}"

    def contains(self, x):
        low, high = self._ends(x)
        return (x >= low) & (x <= high)

    def contains_numpy(self, x):
        return (x >= np.asarray(self.low)) & (x <= np.asarray(self.high))

    def _ends(self, x):
        return jnp.asarray(self.low, x.dtype), jnp.asarray(self.high, x.dtype)

    def constrain(self, u):
        low, high = self._ends(u)
        width = high - low
        x = jnp.where(u < 0, low + width * jax.nn.sigmoid(u), high - width * jax.nn.sigmoid(-u))
        first = jnp.maximum(_next(low, high), jnp.where(low == 0, tiny(u), jax.lax.stop_gradient(low)))
        last = jnp.minimum(_next(high, low), jnp.where(high == 0, -tiny(u), jax.lax.stop_gradient(high)))
        log_volume = jnp.log(width) - softplus(u) - softplus(-u)
        return jnp.clip(x, first, last), log_volume

    def free(self, x):
        low, high = self._ends(x)
        return jnp.log(jnp.maximum(x - low, tiny(x))) - jnp.log(jnp.maximum(high - x, tiny(x)))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AnyReal(Real):
    """All real numbers and both infinities, for parameters such as logits."""

    words = "a number"

    def contains(self, x):
        return ~jnp.isnan(x)

    def contains_numpy(self, x):
        return ~np.isnan(x)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Circular(Support):
    """Angles from -pi to pi:  x = atan2(u2, u1),  log volume -|u|^2 / 2.

    Two free coordinates for each angle, so that -pi and pi are neighbors. The free density is that of x times the
    density r exp(-r^2 / 2) of the radius r = |u|, divided by the volume r: it integrates to what the density of x does.
    """

    words = "an angle between -pi and pi"

    def contains(self, x):
        return abs(x) <= jnp.asarray(np.pi, x.dtype)

    def contains_numpy(self, x):
        return abs(x) <= np.nextafter(np.float32(np.pi), np.float32(4))

    def free_shape(self, shape):
        return (*shape, 2)

    def constrain(self, u):
        direction = unscaled(u)
        return jnp.arctan2(direction[..., 1], direction[..., 0]), -jnp.sum(u * u, -1) / 2

    def free(self, x):
        return jnp.stack([jnp.cos(x), jnp.sin(x)], -1)
