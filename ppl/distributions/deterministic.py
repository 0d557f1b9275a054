"""A value that is recorded and is no part of the density."""

from typing import Any

import jax.numpy as jnp

from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import any_real, boolean, integer_interval


@random_variable
class Deterministic(RandomVariable):
    """Records `value` under a name: `effect = yield Deterministic(theta - mu, name="effect")`.

    Its role is "derived": it is stored with the draws and has no density.

    Args:
      value: a number or an array; whole numbers and booleans keep their dtype.
    """

    value: Any = 0.0

    def check(self):
        """Take shape and role from the value."""
        if not isinstance(self.value, RandomVariable):
            self.__dict__["value"] = jnp.asarray(self.value)
            if self.shape is None:
                self.__dict__["shape"] = self.value.shape
        if self.role is None:
            self.__dict__["role"] = "derived"

    @property
    def dtype(self):
        """The dtype of the value."""
        return self.value.dtype

    @property
    def support(self):
        """All numbers of the value's kind."""
        kind = getattr(self.value, "dtype", None)
        if kind is None or jnp.issubdtype(kind, jnp.inexact):
            return any_real
        return integer_interval() if jnp.issubdtype(kind, jnp.integer) else boolean

    def sample(self, key):
        """Return the value."""
        return self.value

    def log_prob(self, x):
        """Return 0: it is no part of the density."""
        return jnp.zeros(self.shape)
