"""The categorical family: one of K classes."""

import jax
import jax.numpy as jnp
from jax.nn import logsumexp
from jax.typing import ArrayLike

from ppl.distributions.quantiles import quantile
from ppl.distributions.special_discrete import normalized, one_of, whole
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import any_real, integer_interval, nonnegative


@random_variable
class Categorical(RandomVariable):
    """Categorical random variable: the class 0, ..., K - 1, with probabilities along the last axis of the parameter.

        log f(x) = log(p_x),        p = probs / sum(probs) = softmax(logits)

    Args:
      probs: (..., K), at least 0 each; divided by their sum.
      logits: (..., K) instead; -inf switches a class off.

    A value outside 0, ..., K - 1 has log density -inf.
    """

    probs: ArrayLike | None = None
    logits: ArrayLike | None = None
    domain = dict(probs=nonnegative, logits=any_real)
    event_dims = dict(probs=1, logits=1)

    def check(self):
        one_of(self)

    @property
    def support(self):
        return integer_interval(0, self._num_classes - 1)

    @property
    def _num_classes(self):
        return (self.probs if self.logits is None else self.logits).shape[-1]

    def _log_probs(self):
        """Return the log density of all classes, -inf where one is off, with the parameter's leading axes."""
        log_p, _, off = normalized(self.probs, self.logits)
        return jnp.where(off, -jnp.inf, log_p)

    def _probs(self):
        p = normalized(self.probs, self.logits)[1]
        return jnp.broadcast_to(p, (*self.shape, self._num_classes))

    def sample(self, key):
        return jax.random.categorical(key, self._log_probs(), -1, self.shape).astype(self.dtype)

    def log_prob(self, x):
        log_p, (x, inside) = self._log_probs(), whole(x, jnp.result_type(float))
        inside = inside & (x < self._num_classes)
        x = jnp.where(inside, x, 0).astype(int)
        if log_p.size == self._num_classes:
            picked = log_p.reshape(self._num_classes)[x]
        else:
            hot = x[..., None] == jnp.arange(self._num_classes).reshape((1,) * x.ndim + (-1,))
            picked = jnp.sum(jnp.where(hot, log_p, 0), -1)
        return jnp.where(inside, picked, -jnp.inf)

    @property
    def mean(self):
        classes = jnp.arange(self._num_classes, dtype=self._log_probs().dtype)
        return self._probs() @ classes

    @property
    def variance(self):
        classes = jnp.arange(self._num_classes, dtype=self._log_probs().dtype)
        return self._probs() @ classes**2 - self.mean**2

    def log_cdf(self, x):
        return self._log_sum(x, jnp.less_equal)

    def log_survival(self, x):
        return self._log_sum(x, jnp.greater)

    def cdf(self, x):
        return jnp.exp(self.log_cdf(x))

    icdf = quantile

    def _log_sum(self, x, compare):
        """Return the log probability of the classes that compare so with x."""
        log_p, _, off = normalized(self.probs, self.logits)
        x = jnp.asarray(x)[..., None].astype(log_p.dtype)
        chosen = (
            compare(jnp.arange(self._num_classes, dtype=log_p.dtype).reshape((1,) * (x.ndim - 1) + (-1,)), x) & ~off
        )
        some = jnp.any(chosen, -1)
        return jnp.where(some, logsumexp(jnp.where(chosen | ~some[..., None], log_p, -jnp.inf), -1), -jnp.inf)

    def entropy(self):
        log_p, p, _ = normalized(self.probs, self.logits)
        return jnp.broadcast_to(-jnp.sum(jnp.where(p > 0, jnp.exp(log_p) * log_p, 0), -1), self.shape)
