"""Supports of whole numbers."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ppl.supports.base import Support, is_whole


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class IntegerInterval(Support):
    """Whole numbers from `low` to `high`; None leaves a side open."""

    low: Any = None
    high: Any = None
    discrete = True

    @property
    def words(self):
        if self.low == 0 and self.high == 1:
            return "0 or 1"
        if self.high is None:
            return f"a whole number, at least {self.low}"
        return f"a whole number between {self.low} and {self.high}"

    def _inside(self, x, asarray):
        good = is_whole(x)
        good = good if self.low is None else good & (x >= asarray(self.low).astype(x.dtype))
        return good if self.high is None else good & (x <= asarray(self.high).astype(x.dtype))

    def contains(self, x):
        return jnp.ones(x.shape, bool) if x.dtype == bool and self.high == 1 else self._inside(x, jnp.asarray)

    def contains_numpy(self, x):
        return self._inside(x.astype(int) if x.dtype == bool else x, np.asarray)

    def feasible(self, x):
        return jnp.asarray(self.high if self.low is None else self.low).astype(x.dtype)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Counts(Support):
    """Vectors of whole numbers, 0 or more, that sum to `total`."""

    total: Any = 0
    event_ndim = 1
    discrete = True

    @property
    def words(self):
        return f"whole numbers, at least 0, that sum to {self.total}"

    def contains(self, x):
        total = jnp.asarray(self.total).astype(x.dtype)
        return jnp.all(is_whole(x) & (x >= 0), -1) & (jnp.sum(x, -1, dtype=x.dtype) == total)

    def contains_numpy(self, x):
        return np.all(is_whole(x) & (x >= 0), -1) & (np.sum(x, -1) == np.asarray(self.total))

    def feasible(self, x):
        total = jnp.broadcast_to(jnp.asarray(self.total).astype(x.dtype), x.shape[:-1])
        return jnp.zeros_like(x).at[..., 0].set(total)
