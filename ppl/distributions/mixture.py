"""Mixtures of random variables of any families."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppl.distributions.quantiles import quantile
from ppl.distributions.tails import log_above, log_at_most
from ppl.errors import ModelError
from ppl.random_variable import ArrayLike, RandomVariable, concrete, random_variable
from ppl.supports import RealVector, any_real, between, bounds, real_vector, simplex
from ppl.supports.bounds import greatest, least


@random_variable
class Mixture(RandomVariable):
    """A random variable drawn from component k with probability w_k.

        log f(x) = log sum_k w_k f_k(x)

    Components may be of different families and supports: outside its support a component adds nothing, neither to the
    density nor to the gradient. The support of the mixture is that of the components if it is the same for all, and
    else the smallest interval around them. Components are all continuous or all discrete.

    Args:
      weights: w, nonnegative, summing to 1 over the last axis; zeros are fine. Give this or `logits`.
      components: a list of random variables, or one random variable whose last batch axis counts the components.
      logits: logarithms of the weights, up to a constant.
    """

    weights: ArrayLike | None = None
    components: Any = None
    logits: ArrayLike | None = None

    domain = dict(weights=simplex, logits=any_real)
    event_dims = dict(weights=1, logits=1)

    def check(self):
        """Refuse weights and components that do not go together."""
        if (self.weights is None) == (self.logits is None):
            has = "none" if self.weights is None else "both"
            raise ModelError(f"{self._label()}: give exactly one of weights and logits (has {has})")
        parts = self._parts
        if not parts or not all(isinstance(c, RandomVariable) for c in parts):
            kinds = ", ".join(type(c).__name__ for c in parts)
            raise ModelError(f"{self._label()}: components must be random variables, but are {kinds or 'none'}")
        if len({bool(c.support.discrete) for c in parts}) > 1:
            kinds = ", ".join(type(c).__name__ for c in parts)
            raise ModelError(
                f"{self._label()}: components mix densities and probabilities ({kinds}), "
                "which cannot be added; for extra zeros use ZeroInflated or two observed variables"
            )
        if len({(c.event_ndim, tuple(c.event_shape)) for c in parts}) > 1:
            shapes = ", ".join(f"{type(c).__name__} {tuple(c.event_shape)}" for c in parts)
            raise ModelError(f"{self._label()}: one draw must have the same shape in all components: {shapes}")
        if self._stacked and len(self.components.batch_shape) == 0:
            raise ModelError(
                f"{self._label()}: one random variable as components needs a last batch axis that counts them"
            )
        count = self.components.batch_shape[-1] if self._stacked else len(parts)
        weights = self._weights
        if weights.ndim and weights.shape[-1] != count:
            raise ModelError(f"{self._label()}: {weights.shape[-1]} weights for {count} components")

    @property
    def _stacked(self):
        return isinstance(self.components, RandomVariable)

    @property
    def _parts(self):
        return [self.components] if self._stacked else list(self.components or ())

    @property
    def _weights(self):
        return self.weights if self.weights is not None else self.logits

    def _batch_shapes(self):
        name = "weights" if self.weights is not None else "logits"
        if self._weights.ndim == 0:
            raise ModelError(f"{self._label()}: {name} needs at least 1 axis, one entry for each component")
        shapes = {name: self._weights.shape[:-1]}
        if self._stacked:
            return {**shapes, "components": self.components.batch_shape[:-1]}
        return {**shapes, **{f"components[{i}]": c.batch_shape for i, c in enumerate(self.components)}}

    def __post_init__(self):
        super().__post_init__()
        if self._stacked:
            axes = (self._weights.shape[-1],)
            shape = (*self.batch_shape, *axes, *self.event_shape)
            same = self.components.shape == shape
            self.__dict__["components"] = self.components if same else self.components.replace(shape=shape)
        else:
            parts = [c if c.shape == self.shape else c.replace(shape=self.shape) for c in self.components]
            self.__dict__["components"] = parts

    @property
    def event_ndim(self):
        """How many of the last axes of a value are one draw."""
        return self._parts[0].event_ndim

    @property
    def event_shape(self):
        """The shape of one draw."""
        return tuple(self._parts[0].event_shape)

    @property
    def dtype(self):
        """The dtype of a draw."""
        return self._parts[0].dtype

    pathwise = False

    @property
    def support(self):
        """The support of all components, or the smallest interval around their supports."""
        supports = [c.support for c in self._parts]
        if self._stacked and not any(getattr(b, "ndim", 0) for b in bounds(supports[0])):
            return supports[0]
        if not self._stacked and all(_same(s, supports[0]) for s in supports):
            return supports[0]
        if self.event_ndim:
            if any(isinstance(s, RealVector) for s in supports):
                return real_vector
            raise ModelError(f"{self._label()}: components of vectors must have one support, but have {supports}")
        lows, highs = zip(*(bounds(s) for s in supports), strict=True)
        if self._stacked:
            lows = [b if getattr(b, "ndim", 0) == 0 else jnp.min(b, -1) for b in lows]
            highs = [b if getattr(b, "ndim", 0) == 0 else jnp.max(b, -1) for b in highs]
        low = None if any(b is None for b in lows) else least(*lows)
        high = None if any(b is None for b in highs) else greatest(*highs)
        return between(low, high, supports[0].discrete)

    def _log_weights(self):
        """Return (b, log b) with weights b, or (1, log weights) from logits: see `_log_sum`."""
        if self.weights is None:
            return jnp.ones((), self.logits.dtype), jax.nn.log_softmax(self.logits)
        return self.weights, jnp.zeros((), self.weights.dtype)

    def _over_components(self, x, function):
        """Return `function(component, x)` for all components, stacked in a last axis."""
        if not self._stacked:
            return jnp.stack([function(c, x) for c in self.components], -1)
        axis = len(self.batch_shape)
        return function(self.components, jnp.broadcast_to(jnp.expand_dims(x, axis), self.components.shape))

    def log_prob(self, x) -> Array:
        """Return the log density at `x`."""
        return _log_sum(*self._log_weights(), self._over_components(jnp.asarray(x), _log_prob_or_nothing))

    def log_cdf(self, x) -> Array:
        """Return log P(X <= x)."""
        return _log_sum(*self._log_weights(), self._over_components(jnp.asarray(x), log_at_most))

    def log_survival(self, x) -> Array:
        """Return log P(X > x)."""
        return _log_sum(*self._log_weights(), self._over_components(jnp.asarray(x), log_above))

    def cdf(self, x) -> Array:
        """Return P(X <= x)."""
        return jnp.exp(self.log_cdf(x))

    icdf = quantile

    def _probabilities(self):
        return self.weights if self.weights is not None else jax.nn.softmax(self.logits)

    def sample(self, key) -> Array:
        """Draw a component for each entry, and a value from it."""
        pick_key, *keys = jax.random.split(key, 1 + len(self._parts))
        axis = len(self.batch_shape)
        if self._stacked:
            draws = self.components.sample(keys[0])
        else:
            draws = jnp.stack([c.sample(k) for c, k in zip(self.components, keys, strict=True)], axis)
        picked = jax.random.categorical(pick_key, jnp.log(self._probabilities()), shape=self.batch_shape)
        picked = picked.reshape(picked.shape + (1,) * (1 + self.event_ndim))
        return jnp.take_along_axis(draws, picked, axis).squeeze(axis)

    def _expectation(self, values):
        """Average over components in the axis after the batch axes."""
        weights = self._probabilities()
        weights = weights.reshape((1,) * (len(self.batch_shape) + 1 - weights.ndim) + weights.shape)
        weights = weights.reshape(weights.shape + (1,) * self.event_ndim)
        return jnp.sum(weights * values, len(self.batch_shape))

    def _moment(self, name):
        if self._stacked:
            return getattr(self.components, name)
        return jnp.stack([getattr(c, name) for c in self.components], len(self.batch_shape))

    @property
    def mean(self):
        """The mean."""
        return self._expectation(self._moment("mean"))

    @property
    def variance(self):
        """The variance of each entry."""
        means = self._moment("mean")
        away = means - jnp.expand_dims(self._expectation(means), len(self.batch_shape))
        return self._expectation(self._moment("variance") + away**2)


def _log_prob_or_nothing(rv, x):
    """Return the log density where x lies in the support, -inf elsewhere; no gradient comes from elsewhere."""
    inside = rv.support.contains(x)
    extra = inside.ndim - len(rv.batch_shape)
    inside = jnp.all(inside, tuple(range(inside.ndim - extra, inside.ndim))) if extra > 0 else inside
    spread = inside.reshape(inside.shape + (1,) * rv.event_ndim)
    return jnp.where(inside, rv.log_prob(jnp.where(spread, x, rv.support.feasible(x))), -jnp.inf)


def _log_sum(weights, log_weights, logs):
    """Return log sum_k weights_k exp(log_weights_k + logs_k) over the last axis.

    Weights of 0 and logs of -inf are allowed; the gradient by a weight is f_k / f, kept finite.
    """
    logs = logs + log_weights.astype(logs.dtype)
    weights = weights.astype(logs.dtype)
    present = weights > 0
    highest = jnp.max(jnp.where(present, logs + jnp.log(jnp.where(present, weights, 1)), -jnp.inf), -1, keepdims=True)
    highest = jax.lax.stop_gradient(jnp.where(jnp.isfinite(highest), highest, 0))
    limit = 0.45 * math.log(float(jnp.finfo(logs.dtype).max))
    exponent = jnp.where(logs == -jnp.inf, -jnp.inf, jnp.minimum(jnp.where(logs == -jnp.inf, 0, logs) - highest, limit))
    total = jnp.sum(weights * jnp.exp(exponent), -1)
    positive = total > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, total, 1)) + highest[..., 0], -jnp.inf)


def _same(first, second):
    """Tell whether two supports are the same, as far as that is known."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    for a, b in zip(vars(first).values(), vars(second).values(), strict=True):
        a, b = (v if v is None else concrete(v) for v in (a, b))
        if a is None or b is None or a.shape != b.shape or (a != b).any():
            return False
    return True
