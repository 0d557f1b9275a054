"""The discrete uniform family."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ppl.distributions.special_discrete import plain
from ppl.errors import ModelError
from ppl.random_variable import RandomVariable, concrete, random_variable
from ppl.supports import integer_interval

_integer = integer_interval(-(2**31), 2**31 - 1)


@random_variable
class DiscreteUniform(RandomVariable):
    """Discrete uniform random variable over low, low + 1, ..., high, both ends included.

        log f(x) = -log(high - low + 1)

    Args:
      low: the smallest value, a whole number, any shape.
      high: the largest value, a whole number, at least `low`, any shape.

    Same law as `scipy.stats.randint(low, high + 1)`.
    """

    low: ArrayLike = 0
    high: ArrayLike = 1
    domain = dict(low=_integer, high=_integer)

    def check(self):
        low, high = concrete(self.low), concrete(self.high)
        if low is not None and high is not None and low.size and high.size:
            try:
                wrong = np.argwhere(np.atleast_1d(low > high))
            except ValueError:
                return  # shapes that do not fit each other have their own message
            if wrong.size:
                low, high = (np.broadcast_to(a, np.shape(low + high)).ravel() for a in (low, high))
                at = np.argmax(low > high)
                raise ModelError(f"{self._label()}: low is {low[at]:g}, above high, which is {high[at]:g}")

    @property
    def support(self):
        return integer_interval(plain(self.low), plain(self.high))

    def _ends(self):
        dtype = jnp.result_type(float)
        return self.low.astype(dtype), self.high.astype(dtype)

    def sample(self, key):
        low, high = self.low.astype(self.dtype), self.high.astype(self.dtype)
        return jax.random.randint(key, self.shape, low, high + 1)

    def log_prob(self, x):
        low, high = self._ends()
        x = jnp.asarray(x)
        whole = jnp.ones_like(x, bool) if not jnp.issubdtype(x.dtype, jnp.inexact) else x == jnp.floor(x)
        x = x.astype(low.dtype)
        return jnp.where(whole & (x >= low) & (x <= high), -jnp.log(high - low + 1), -jnp.inf)

    @property
    def mean(self):
        low, high = self._ends()
        return jnp.broadcast_to(low / 2 + high / 2, self.shape)

    @property
    def variance(self):
        low, high = self._ends()
        return jnp.broadcast_to(((high - low + 1) ** 2 - 1) / 12, self.shape)

    def cdf(self, x):
        low, high = self._ends()
        return jnp.clip((jnp.floor(jnp.asarray(x).astype(low.dtype)) - low + 1) / (high - low + 1), 0, 1)

    def log_cdf(self, x):
        return jnp.log(self.cdf(x))

    def log_survival(self, x):
        low, high = self._ends()
        return jnp.log(jnp.clip((high - jnp.floor(jnp.asarray(x).astype(low.dtype))) / (high - low + 1), 0, 1))

    def icdf(self, q):
        low, high = self._ends()
        q = jnp.asarray(q).astype(low.dtype)
        return jnp.clip(low + jnp.ceil(q * (high - low + 1)) - 1, low, high).astype(self.dtype)

    def entropy(self):
        low, high = self._ends()
        return jnp.broadcast_to(jnp.log(high - low + 1), self.shape)
