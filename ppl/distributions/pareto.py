"""The Pareto family."""

import jax
import jax.numpy as jnp

from ppl.distributions.special import as_float, draw_dtype, log1mexp, log_ratio, on_support
from ppl.random_variable import ArrayLike, RandomVariable, random_variable
from ppl.supports import greater_than, positive


@random_variable
class Pareto(RandomVariable):
    """Pareto random variable.

        log f(x) = log(alpha) - alpha log(x / scale) - log(x),        x >= scale

    Args:
      scale: the lower end, positive.
      alpha: power of the tail, positive; the mean is finite for alpha > 1.

    Same law as `scipy.stats.pareto(alpha, scale=scale)`.
    """

    scale: ArrayLike
    alpha: ArrayLike
    domain = dict(scale=positive, alpha=positive)

    @property
    def support(self):
        return greater_than(self.scale)

    def sample(self, key):
        draw = self.scale * jnp.exp(jax.random.exponential(key, self.shape, draw_dtype(self)) / self.alpha)
        return jnp.clip(draw, self.scale, float(jnp.finfo(draw.dtype).max))

    def _log_excess(self, x):
        """log(x / scale) for x >= scale, exact to rounding near 0 too."""
        near = x < 2 * self.scale
        close = jnp.log1p((jnp.where(near, x, self.scale) - self.scale) / self.scale)
        away = log_ratio(jnp.where(near, self.scale, x), self.scale)
        return jnp.where(near, close, away)

    def log_prob(self, x):
        return on_support(
            self, x, self.scale, lambda x: jnp.log(self.alpha) - self.alpha * self._log_excess(x) - jnp.log(x)
        )

    def cdf(self, x):
        return -jnp.expm1(self.log_survival(x))

    def icdf(self, q):
        return self.scale * jnp.exp(-jnp.log1p(-as_float(q)) / self.alpha)

    def log_cdf(self, x):
        return log1mexp(-self.log_survival(x))

    def log_survival(self, x):
        return -self.alpha * self._log_excess(jnp.maximum(as_float(x), self.scale))

    @property
    def mean(self):
        alpha = jnp.where(self.alpha > 1, self.alpha, 2.0)
        return jnp.broadcast_to(jnp.where(self.alpha > 1, self.scale * alpha / (alpha - 1), jnp.inf), self.shape)

    @property
    def variance(self):
        alpha = jnp.where(self.alpha > 2, self.alpha, 3.0)
        variance = jnp.square(self.scale / (alpha - 1)) * alpha / (alpha - 2)
        return jnp.broadcast_to(jnp.where(self.alpha > 2, variance, jnp.inf), self.shape)

    def entropy(self):
        return jnp.broadcast_to(jnp.log(self.scale / self.alpha) + 1 + 1 / self.alpha, self.shape)
