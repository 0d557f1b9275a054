"""The improper flat family."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ppl.distributions.special import as_float
from ppl.errors import ModelError
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import Support, real


@random_variable
class Flat(RandomVariable):
    """Improper random variable: log density 0 everywhere on a support, -inf outside.

    It cannot be drawn from, so it needs data or a start, and its posterior may be improper too.

    Args:
      over: the support, `real` by default; any other of `ppl.supports`, such as `positive`, `simplex` or
        `interval(low, high)` with arrays for ends. Give `shape=` for vectors and matrices.
    """

    over: Any = real

    def __post_init__(self):
        if not isinstance(self.over, Support):
            raise ModelError(f"{self._label()}: over must be a support such as ppl.supports.real, but is {self.over!r}")
        if self.shape is None:
            if self.over.event_ndim:
                raise ModelError(
                    f"{self._label()}: one draw over {self.over!r} has {self.over.event_ndim} axes of unknown length: "
                    "give `shape=`"
                )
            self.__dict__["shape"] = np.broadcast_shapes(*(np.shape(end) for end in self._ends().values()))
        super().__post_init__()
        rank = len(self.batch_shape)
        aligned = {
            name: jnp.reshape(end, (1,) * (rank - np.ndim(end)) + np.shape(end))
            for name, end in self._ends().items()
            if 0 < np.ndim(end) < rank
        }
        if aligned:
            self.__dict__["over"] = dataclasses.replace(self.over, **aligned)

    def _ends(self):
        fields = {f.name: getattr(self.over, f.name) for f in dataclasses.fields(self.over)}
        return {name: end for name, end in fields.items() if not isinstance(end, str | Support)}

    @property
    def support(self):
        return self.over

    @property
    def event_ndim(self):
        return self.over.event_ndim

    @property
    def event_shape(self):
        shape = (self.shape,) if isinstance(self.shape, int) else tuple(self.shape)
        return shape[len(shape) - self.event_ndim :]

    def sample(self, key):
        raise ModelError(
            f"{self._label()} is improper, so there is nothing to draw from: give a start with "
            f"`init={{{self.name or 'x'!r}: ...}}`, or a proper prior"
        )

    def log_prob(self, x):
        x = jnp.asarray(x)
        zero = jnp.zeros((), as_float(x).dtype)
        return jnp.where(self.over.contains(x), zero, -jnp.inf)
