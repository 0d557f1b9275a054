"""A random variable seen through a bijection."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppl.distributions.special import as_float
from ppl.errors import ModelError
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import Circular, Real, RealVector, Support, UnitVector, bounds


@random_variable
class Transformed(RandomVariable):
    """The image x of a base variable u under a bijection:  log f(x) = log g(u) - log |det dx/du|.

    `Transformed(Normal(0.0, 1.0), Exp())` is a LogNormal(0.0, 1.0). Where a draw is at hand, `sample_and_log_prob`
    evaluates the density with the draw's own u, which is exact however far out it lies; `log_prob(x)` has to invert.

    Args:
      base: a random variable with a density.
      bijection: an object with `constrain(u) -> (x, log_volume)` and `free(x)`: Affine, Exp, Sigmoid, Tanh, or a
        support such as `simplex`.
    """

    base: RandomVariable
    bijection: Any

    def check(self):
        """Refuse what is not a random variable with a density, or not a bijection."""
        if not isinstance(self.base, RandomVariable):
            raise ModelError(f"{self._label()}: base must be a random variable, not {type(self.base).__name__}")
        if self.base.support.discrete:
            raise ModelError(
                f"{self._label()}: {type(self.base).__name__} is discrete, so it has no density to transform"
            )
        maps = all(hasattr(self.bijection, a) for a in ("constrain", "free"))
        if not maps or isinstance(self.bijection, Circular | UnitVector):
            raise ModelError(f"{self._label()}: {self.bijection!r} is not a bijection: it needs `constrain` and `free`")

    def _whole_shape(self):
        """Work out the shape of a value, and give the base the shape that it must have for it."""
        shape = self.shape
        if shape is None:
            free = jax.ShapeDtypeStruct(self.base.shape, jnp.result_type(float))
            shape = jax.eval_shape(self.bijection.constrain, free)[0].shape
        shape = (int(shape),) if not isinstance(shape, tuple | list) else tuple(int(n) for n in shape)
        base_shape = _free_shape(self.bijection, shape)
        if base_shape != self.base.shape:
            try:
                self.__dict__["base"] = self.base.replace(shape=base_shape)
            except ModelError as e:
                raise ModelError(f"{self._label()}: shape={shape} does not fit its base: {e}") from None
        return shape

    @property
    def _extra_axes(self):
        """How many more axes than the other's one draw of the base has, and one value of the bijection."""
        own = getattr(self.bijection, "event_ndim", 0)
        free = len(self.base.shape) - (len(self.shape) - own)
        return max(self.base.event_ndim - free, 0), max(free - self.base.event_ndim, 0)

    @property
    def event_ndim(self):
        """How many of the last axes of a value are one draw."""
        return getattr(self.bijection, "event_ndim", 0) + self._extra_axes[0]

    @property
    def event_shape(self):
        """The shape of one draw."""
        return self.shape[len(self.shape) - self.event_ndim :]

    @property
    def dtype(self):
        """The dtype of a draw."""
        return self.base.dtype

    @property
    def pathwise(self):
        """Whether a draw is a differentiable function of the parameters: where it is of the base."""
        return self.base.pathwise

    @property
    def support(self):
        """The image of the base's support."""
        if isinstance(self.bijection, Support) and isinstance(self.base.support, Real | RealVector):
            if self.event_ndim == self.bijection.event_ndim:
                return self.bijection
        return Image(self.base.support, self.bijection, self.event_ndim, self._extra_axes)

    def sample(self, key) -> Array:
        """Draw values."""
        return self.bijection.constrain(self.base.sample(key))[0]

    def sample_and_log_prob(self, key) -> tuple[Array, Array]:
        """Draw values and return them with their log density, computed before they are rounded by the bijection."""
        free = self.base.sample(key)
        return self.bijection.constrain(free)[0], self._log_prob_of_free(free)

    def log_prob(self, x) -> Array:
        """Return the log density at `x`."""
        x = as_float(x)
        image = Image(self.base.support, self.bijection, self.event_ndim, self._extra_axes)
        inside = image.contains(x)
        x = jnp.where(inside.reshape(inside.shape + (1,) * self.event_ndim), x, image.feasible(x))
        return jnp.where(inside, self._log_prob_of_free(self.bijection.free(x)), -jnp.inf)

    def _log_prob_of_free(self, free):
        of_volume, of_density = self._extra_axes
        log_volume = self.bijection.constrain(free)[1]
        return _sum_last(self.base.log_prob(free), of_density) - _sum_last(log_volume, of_volume)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Image(Support):
    """The image of a support under a bijection; free values are those of the first support."""

    base: Support
    bijection: Any
    event_ndim: int = 0
    extra_axes: tuple = (0, 0)

    @property
    def words(self):
        return f"in the image of {self.base!r} under {self.bijection!r}"

    def contains(self, x):
        inside = self.bijection.contains(x) if hasattr(self.bijection, "contains") else jnp.isfinite(x)
        own = getattr(self.bijection, "event_ndim", 0)
        if isinstance(self.bijection, Support) and own == 0:  # an open interval: bijections do not reach their ends
            low, high = bounds(self.bijection)
            inside = inside if low is None else inside & (x > jnp.asarray(low, x.dtype))
            inside = inside if high is None else inside & (x < jnp.asarray(high, x.dtype))
        inside = _all_last(inside, inside.ndim - (x.ndim - self.event_ndim))
        value = jnp.where(inside.reshape(inside.shape + (1,) * self.event_ndim), x, self.feasible(x))
        of_base = self.base.contains(self.bijection.free(value))
        return inside & _all_last(of_base, of_base.ndim - inside.ndim)

    def free_shape(self, shape):
        return self.base.free_shape(_free_shape(self.bijection, shape))

    def constrain(self, u):
        value, first = self.base.constrain(u)
        x, second = self.bijection.constrain(value)
        batch = x.ndim - self.event_ndim
        return x, _sum_last(first, first.ndim - batch) + _sum_last(second, second.ndim - batch)

    def free(self, x):
        return self.base.free(self.bijection.free(x))

    def feasible(self, x):
        return self.constrain(jnp.zeros(self.free_shape(x.shape), x.dtype))[0]


def _free_shape(bijection, shape):
    return tuple(bijection.free_shape(shape)) if hasattr(bijection, "free_shape") else tuple(shape)


def _sum_last(x, axes):
    return jnp.sum(x, tuple(range(x.ndim - axes, x.ndim))) if axes else x


def _all_last(x, axes):
    return jnp.all(x, tuple(range(x.ndim - axes, x.ndim))) if axes else x
