"""The ordered logistic family: ordered classes by cutting a logistic variable."""

import jax
import jax.numpy as jnp
from jax.nn import log_sigmoid, sigmoid
from jax.typing import ArrayLike

from ppl.distributions.quantiles import quantile
from ppl.distributions.special_discrete import whole
from ppl.distributions.special_discrete_tails import log1mexp
from ppl.random_variable import RandomVariable, random_variable
from ppl.supports import integer_interval, ordered, real


@random_variable
class OrderedLogistic(RandomVariable):
    """Ordered logistic random variable: the number of cutpoints below a logistic variable around the predictor.

        f(x) = sigmoid(c_x - predictor) - sigmoid(c_{x-1} - predictor),    x = 0, ..., K,   c_{-1} = -inf, c_K = inf

    Args:
      predictor: real, any shape.
      cutpoints: (..., K), strictly increasing; there are K + 1 classes.

    The difference is computed as a product, so that it keeps its accuracy far out.
    """

    predictor: ArrayLike = 0.0
    cutpoints: ArrayLike = (0.0,)
    domain = dict(predictor=real, cutpoints=ordered)
    event_dims = dict(cutpoints=1)

    @property
    def support(self):
        return integer_interval(0, self.cutpoints.shape[-1])

    def _cutpoint(self, k):
        """Return cutpoint number k, 0 where there is none."""
        numbers = jnp.arange(self.cutpoints.shape[-1], dtype=k.dtype).reshape((1,) * k.ndim + (-1,))
        return jnp.sum(jnp.where(k[..., None] == numbers, self.cutpoints, 0), -1)

    def sample(self, key):
        latent = self.predictor + jax.random.logistic(key, self.shape, self.predictor.dtype)
        return jnp.sum(latent[..., None] > self.cutpoints, -1, dtype=self.dtype)

    def log_prob(self, x):
        last = self.cutpoints.shape[-1]
        x, inside = whole(x, self.predictor.dtype)
        inside = inside & (x <= last)
        upper, lower = self._cutpoint(x), self._cutpoint(x - 1)
        inner = (x > 0) & (x < last)
        rising = inner & (upper > lower)
        gap = jnp.where(rising, upper - lower, 1)
        log_prob = jnp.where(x < last, log_sigmoid(upper - self.predictor), 0)
        log_prob = log_prob + jnp.where(x > 0, log_sigmoid(self.predictor - lower), 0)
        log_prob = log_prob + jnp.where(inner, log1mexp(-gap), 0)
        return jnp.where(inside & (rising | ~inner), log_prob, -jnp.inf)

    def log_cdf(self, x):
        return self._tail(x, 1)

    def log_survival(self, x):
        return self._tail(x, -1)

    def _tail(self, x, sign):
        last = self.cutpoints.shape[-1]
        k = jnp.floor(jnp.asarray(x).astype(self.predictor.dtype))
        middle = log_sigmoid(sign * (self._cutpoint(k) - self.predictor))
        low, high = (-jnp.inf, 0.0) if sign > 0 else (0.0, -jnp.inf)
        return jnp.where(k < 0, low, jnp.where(k >= last, high, middle))

    def cdf(self, x):
        return jnp.exp(self.log_cdf(x))

    icdf = quantile

    def _probs(self):
        """Return the probabilities of all classes, along a new last axis."""
        predictor = jnp.broadcast_to(self.predictor, self.shape)[..., None]
        above = sigmoid(predictor - self.cutpoints)  # P(X > k)
        return jnp.concatenate([1 - above[..., :1], above[..., :-1] - above[..., 1:], above[..., -1:]], -1)

    @property
    def mean(self):
        probs = self._probs()
        return probs @ jnp.arange(probs.shape[-1], dtype=probs.dtype)

    @property
    def variance(self):
        probs = self._probs()
        return probs @ jnp.arange(probs.shape[-1], dtype=probs.dtype) ** 2 - self.mean**2
