"""The multinomial family: how often each of K classes occurs."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from ppl.distributions.special_discrete import integers, log_multinomial, normalized, one_of, plain, whole
from ppl.distributions.special_discrete_draws import draw_multinomial
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import any_real, counts, nonnegative, nonnegative_integer


@random_variable
class Multinomial(RandomVariable):
    """Multinomial random variable: the counts of K classes among n independent trials.

        log f(x) = log(n!) + sum_i [x_i log(p_i) - log(x_i!)],    x_i = 0, 1, ..., sum(x) = n,
        p = probs / sum(probs) = softmax(logits)

    Args:
      total_count: n, 0 or more, any shape.
      probs: (..., K), at least 0 each; divided by their sum.
      logits: (..., K) instead; -inf switches a class off.

    One draw has shape (K,). Same law as `scipy.stats.multinomial(total_count, probs)`.
    """

    total_count: ArrayLike = 1
    probs: ArrayLike | None = None
    logits: ArrayLike | None = None
    domain = dict(total_count=nonnegative_integer, probs=nonnegative, logits=any_real)
    event_dims = dict(probs=1, logits=1)
    event_ndim = 1

    def check(self):
        one_of(self)

    @property
    def event_shape(self):
        return (self.probs if self.logits is None else self.logits).shape[-1:]

    @property
    def support(self):
        return counts(plain(self.total_count))

    def _total(self, p):
        """Return n with a last axis of length one."""
        total = whole(self.total_count, p.dtype)[0]
        return total[..., None] if total.ndim else total

    def sample(self, key):
        p = normalized(self.probs, self.logits)[1]
        return integers(draw_multinomial(key, whole(self.total_count, p.dtype)[0], p, self.shape))

    def log_prob(self, x):
        log_p, p, off = normalized(self.probs, self.logits)
        x, inside = whole(x, p.dtype)
        total = whole(self.total_count, p.dtype)[0]
        inside = jnp.all(inside & ~(off & (x > 0)), -1) & (jnp.sum(x, -1) == total)
        x = jnp.where(inside[..., None], x, 0)
        return jnp.where(inside, log_multinomial(x, log_p, p), -jnp.inf)

    @property
    def mean(self):
        p = normalized(self.probs, self.logits)[1]
        return jnp.broadcast_to(self._total(p) * p, self.shape)

    @property
    def variance(self):
        p = normalized(self.probs, self.logits)[1]
        return jnp.broadcast_to(self._total(p) * p * (1 - p), self.shape)
