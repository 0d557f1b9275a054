"""Supports: where a random variable lives, and a map onto it from R^n.

A support is a domain with a smooth map from unconstrained ("free") space. Samplers move in free space; the log density
there is `log_prob(x) + log_volume` with `x, log_volume = support.constrain(u)`.

Rules that hold for each support, in float32 and float64:
- `constrain` never returns a point on the boundary, however far out `u` lies, so a log density stays finite;
- `free` is its inverse on the inside, and takes a boundary point to a large finite value;
- `log_volume` is log |det dx/du|, with one entry for each draw.

To add a support, write one class: `words`, `contains`, and `constrain` and `free` (and `free_shape`, where it differs),
or `feasible` if it is discrete.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np


def tiny(x):
    """The smallest positive normal number of x's dtype."""
    return jnp.finfo(x.dtype).tiny


def largest(x):
    """The largest finite number of x's dtype."""
    return jnp.finfo(x.dtype).max


def bounded_exp(u, power=1.0, terms=1):
    """Return exp(u), kept above tiny^power and below (largest / terms)^power.

    It is u that is clipped, so that the gradient is never inf * 0.
    """
    info = np.finfo(u.dtype)
    shrink = power * (1 - 4 * float(info.eps))
    high = float(np.log(info.max)) - (math.log(4 * terms) if terms > 1 else 0)
    return jnp.exp(jnp.clip(u, float(np.log(info.tiny)) * shrink, high * shrink))


def nearly(total, target, scale, n):
    """Tell whether a sum of n terms of size `scale` equals `target`, up to 8 n eps of the dtype."""
    if isinstance(total, jax.Array):
        return abs(total - target) <= 8 * max(n, 1) * float(jnp.finfo(total.dtype).eps) * scale
    return abs(total - target) <= 8 * max(n, 1) * float(np.finfo(np.float32).eps) * scale


def is_whole(x):
    """Tell which entries are finite whole numbers; all of them where the dtype is a whole-number type."""
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return np.ones(x.shape, bool) if isinstance(x, np.ndarray | np.generic) else jnp.ones(x.shape, bool)
    if isinstance(x, np.ndarray | np.generic):
        return np.isfinite(x) & (np.floor(x) == x)
    return jnp.isfinite(x) & (jnp.floor(x) == x)


@dataclasses.dataclass(frozen=True, eq=False)
class Support:
    """Base of all supports.

    Attributes:
      words: how a message calls its members, as in "must be positive".
      event_ndim: how many of the last axes of a value are one member.
      discrete: whether its members are integers.
    """

    words = "a number"
    event_ndim = 0
    discrete = False

    def contains(self, x):
        """Tell for each draw in `x` whether it is a member (closed ends included)."""
        raise NotImplementedError

    def contains_numpy(self, x):
        """`contains` for concrete numbers, without compiling anything where the family overrides it."""
        return np.asarray(self.contains(jnp.asarray(x)))

    def feasible(self, x):
        """Return a constant member for each draw of an array like `x`: of the shape of `x`, or a number for all."""
        shape = (1,) * x.ndim if not self.event_ndim else x.shape
        return self.constrain(jnp.zeros(self.free_shape(shape), x.dtype))[0]

    def free_shape(self, shape):
        """Return the shape of the free value for a value of `shape`."""
        return tuple(shape)

    def constrain(self, u):
        """Map free `u` into the support: returns `(x, log_volume)`."""
        raise NotImplementedError(f"{type(self).__name__} is discrete: it has no map from R^n")

    def free(self, x):
        """Map a member to free space; the inverse of `constrain`."""
        raise NotImplementedError(f"{type(self).__name__} is discrete: it has no map to R^n")

    def __repr__(self):
        fields = dataclasses.fields(self)
        if not fields:
            return self.words.replace(" ", "_")
        return f"{type(self).__name__}({', '.join(str(getattr(self, f.name)) for f in fields)})"


def unscaled(u):
    """Return u divided by its largest entry, so that the norm neither overflows nor vanishes; 0 gives (1, 0, ...)."""
    largest = jax.lax.stop_gradient(jnp.max(abs(u), -1, keepdims=True))
    zero = largest < tiny(u)
    first = jnp.broadcast_to((jnp.arange(u.shape[-1]) == 0).astype(u.dtype), u.shape)
    return jnp.where(zero, first, u / jnp.where(zero, 1, largest))


def to_count(x):
    """Number the floats in order: 0 for zero and all below the smallest normal number, 1 for that number, and so on.

    Negative floats get negative numbers. The next float is plus one; halfway between two is a good place to bisect.
    """
    info = np.finfo(x.dtype)
    int_dtype = np.dtype(f"int{info.bits}")
    first = int(np.asarray(info.tiny).view(int_dtype)) - 1
    count = jnp.maximum(jax.lax.bitcast_convert_type(abs(x), int_dtype) - first, 0)
    return jnp.where(x < 0, -count, count)


def from_count(count, dtype):
    """Invert `to_count`; numbers beyond the largest float give the largest float."""
    info = np.finfo(dtype)
    int_dtype = np.dtype(f"int{info.bits}")
    first = int(np.asarray(info.tiny).view(int_dtype)) - 1
    last = int(np.asarray(info.max).view(int_dtype))
    bits = jnp.minimum(abs(count), last - first) + first
    x = jax.lax.bitcast_convert_type(jnp.where(count == 0, 0, bits), dtype)
    return jnp.where(count < 0, -x, x)
