"""The uniform family."""

import jax
import jax.numpy as jnp

from ppl.distributions.special import as_float, draw_dtype, on_support
from ppl.errors import ModelError
from ppl.random_variable import ArrayLike, RandomVariable, concrete, random_variable
from ppl.supports import interval, real


def check_ends(rv):
    """Refuse known ends that leave no room between them."""
    low, high = concrete(rv.low), concrete(rv.high)
    if low is None or high is None:
        return
    try:
        empty = low >= high
    except ValueError:  # shapes that do not fit get their own message
        return
    if empty.any():
        first = empty.argmax()
        low, high = (end if end.ndim == 0 else (end + 0 * (low + high)).ravel()[first] for end in (low, high))
        raise ModelError(
            f"{rv._label()}: low must be below high, but low is {low:.6g} and high is {high:.6g}: swap or move the ends"
        )


@random_variable
class Uniform(RandomVariable):
    """Uniform random variable.

        log f(x) = -log(high - low),        low <= x <= high

    Args:
      low: lower end, real.
      high: upper end, real, above `low`.

    Same law as `scipy.stats.uniform(low, high - low)`.
    """

    low: ArrayLike = 0.0
    high: ArrayLike = 1.0
    domain = dict(low=real, high=real)

    def check(self):
        check_ends(self)

    @property
    def support(self):
        return interval(self.low, self.high)

    def sample(self, key):
        u = jax.random.uniform(key, self.shape, draw_dtype(self))
        return jnp.clip(self.low + (self.high - self.low) * u, self.low, self.high)

    def log_prob(self, x):
        return on_support(self, x, self.low, lambda x: jnp.broadcast_to(-jnp.log(self.high - self.low), x.shape))

    def cdf(self, x):
        return jnp.clip((as_float(x) - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, q):
        return self.low + (self.high - self.low) * as_float(q)

    def log_cdf(self, x):
        return jnp.log(self.cdf(x))

    def log_survival(self, x):
        return jnp.log(jnp.clip((self.high - as_float(x)) / (self.high - self.low), 0.0, 1.0))

    @property
    def mean(self):
        return jnp.broadcast_to(0.5 * (self.low + self.high), self.shape)

    @property
    def variance(self):
        return jnp.broadcast_to(jnp.square(self.high - self.low) / 12, self.shape)

    def entropy(self):
        return jnp.broadcast_to(jnp.log(self.high - self.low), self.shape)
