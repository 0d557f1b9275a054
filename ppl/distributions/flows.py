"""Flows: bijections of vectors with parameters, for `Transformed` and for guides.

    Transformed(Normal(0.0, 1.0, shape=(n,)), Chain([Coupling(...), Reverse(), Coupling(...)]), name="x")

Each is a pytree of its parameters with `constrain(u) -> (x, log_volume)`, `free(x)`, and works on the last axis. The networks
inside have one hidden layer; their last layer starts at zero, so a new flow is the identity.

References: Dinh, Sohl-Dickstein, Bengio (2017), arXiv 1605.08803 (coupling); Durkan et al. (2019), arXiv 1906.04032 (splines);
Papamakarios, Pavlakou, Murray (2017), arXiv 1705.07057 (masked autoregressive); Kingma et al. (2016), arXiv 1606.04934
(inverse autoregressive); Germain, Gregor, Murray, Larochelle (2015), arXiv 1502.03509 (masked networks).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from ppl.distributions import splines
from ppl.errors import ModelError

Kind = TypeVar("Kind")
BOUND, LARGEST = 5.0, 3.0  # of a spline's interval; of the logarithm of an affine map's scale


class Flow:
    """What all flows share: they act on vectors, one volume each, and reach every vector."""

    event_ndim = 1

    def contains(self, x):
        """Tell which vectors are values of the map: all finite ones."""
        return jnp.all(jnp.isfinite(x), -1)

    def constrain(self, u):
        """Return `(x, log |det dx/du|)`."""
        raise NotImplementedError

    def free(self, x):
        """Return the vector that `constrain` maps to x."""
        raise NotImplementedError


@dataclass_transform(frozen_default=True, eq_default=False)
def _pytree(*fixed: str) -> Callable[[type[Kind]], type[Kind]]:
    """Register a class as a pytree whose fields are data, but for those named."""

    def register(cls):
        cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
        data = [f.name for f in dataclasses.fields(cls) if f.name not in fixed]
        return jax.tree_util.register_dataclass(cls, data_fields=data, meta_fields=list(fixed))

    return register


def network(key: Any, inputs: int, hidden: int, outputs: int) -> dict:
    """Return parameters of a network with one hidden layer, whose output is zero at first.

    Args:
      key: a jax key.
      inputs: how many numbers go in.
      hidden: units of the hidden layer.
      outputs: how many numbers come out.
    """
    first = jax.random.normal(key, (inputs, hidden)) / float(np.sqrt(max(inputs, 1)))
    zeros = {"bias": jnp.zeros(hidden), "last": jnp.zeros((hidden, outputs)), "last_bias": jnp.zeros(outputs)}
    return {"first": first, **zeros}


def apply(net, x, masks=None):
    """Return the network's output for inputs [..., inputs]."""
    first, last = (net["first"], net["last"]) if masks is None else (net["first"] * masks[0], net["last"] * masks[1])
    hidden = jnp.matmul(x, first, precision="highest")
    hidden = jnp.tanh(hidden + jnp.broadcast_to(net["bias"], hidden.shape))
    out = jnp.matmul(hidden, last, precision="highest")
    return out + jnp.broadcast_to(net["last_bias"], out.shape)


def _width(kind, bins):
    return 2 if kind == "affine" else splines.sizes(bins)


def _elementwise(kind, bins, u, raw):
    """Return `(x, log dx/du)` of each number with its parameters [..., width]."""
    if kind == "affine":
        log_scale = LARGEST * jnp.tanh(raw[..., 1] / LARGEST)
        return raw[..., 0] + jnp.exp(log_scale) * u, log_scale
    return splines.forward(u, raw, bins, BOUND)


def _elementwise_inverse(kind, bins, x, raw):
    if kind == "affine":
        return (x - raw[..., 0]) * jnp.exp(-LARGEST * jnp.tanh(raw[..., 1] / LARGEST))
    return splines.inverse(x, raw, bins, BOUND)


def _known_kind(kind):
    if kind not in ("affine", "spline"):
        raise ModelError(f"a flow's kind is 'affine' or 'spline', not {kind!r}")


@_pytree("size", "kind", "bins")
class Coupling(Flow):
    """A coupling layer: the first half of the vector stays, and sets the parameters of an elementwise map of the second.

        x_1 = u_1,    x_2 = f(u_2; net(u_1)),    f affine or a rational-quadratic spline

    Args:
      net: parameters of the network; `Coupling.init` makes them.
      size: length of the vector, at least 2.
      kind: "affine" or "spline".
      bins: pieces of a spline.
    """

    net: Any
    size: int
    kind: str = "spline"
    bins: int = 8

    @classmethod
    def init(cls, key: Any, size: int, kind: str = "spline", hidden: int = 32, bins: int = 8) -> "Coupling":
        """Return a layer that is the identity."""
        _known_kind(kind)
        if size < 2:
            raise ModelError(f"a coupling layer splits a vector in two, but size={size}: use an autoregressive flow")
        stays = size // 2
        return cls(network(key, stays, hidden, (size - stays) * _width(kind, bins)), size, kind, bins)

    def _raw(self, first):
        rest = self.size - self.size // 2
        return apply(self.net, first).reshape(*first.shape[:-1], rest, _width(self.kind, self.bins))

    def constrain(self, u):
        """Return `(x, log |det dx/du|)`."""
        first, second = u[..., : self.size // 2], u[..., self.size // 2 :]
        x, log_slope = _elementwise(self.kind, self.bins, second, self._raw(first))
        return jnp.concatenate([first, x], -1), jnp.sum(log_slope, -1)

    def free(self, x):
        """Return the vector that `constrain` maps to x."""
        first, second = x[..., : self.size // 2], x[..., self.size // 2 :]
        return jnp.concatenate([first, _elementwise_inverse(self.kind, self.bins, second, self._raw(first))], -1)


@_pytree("size", "kind", "bins")
class Autoregressive(Flow):
    """A masked autoregressive layer: each number's map is set by those before it in x.

        x_i = f(u_i; net_i(x_1, ..., x_(i-1)))

    `free`, and so a density, is one pass of the network; `constrain`, and so a draw, takes as many as the vector is long.
    `Inverse(Autoregressive.init(...))` is the inverse autoregressive flow: fast draws, whose densities are known with them.

    Args:
      net: parameters of the masked network; `Autoregressive.init` makes them.
      size: length of the vector.
      kind: "affine" or "spline".
      bins: pieces of a spline.
    """

    net: Any
    size: int
    kind: str = "affine"
    bins: int = 8

    @classmethod
    def init(cls, key: Any, size: int, kind: str = "affine", hidden: int = 32, bins: int = 8) -> "Autoregressive":
        """Return a layer that is the identity."""
        _known_kind(kind)
        return cls(network(key, size, hidden, size * _width(kind, bins)), size, kind, bins)

    def _masks(self):
        """Return masks that let output i see inputs before i alone."""
        hidden = self.net["first"].shape[-1]
        inputs = np.arange(1, self.size + 1)
        units = 1 + np.arange(hidden) % max(self.size - 1, 1)
        outputs = np.repeat(inputs, _width(self.kind, self.bins))
        dtype = self.net["first"].dtype
        return jnp.asarray(units[None] >= inputs[:, None], dtype), jnp.asarray(outputs[None] > units[:, None], dtype)

    def _raw(self, x):
        return apply(self.net, x, self._masks()).reshape(*x.shape, _width(self.kind, self.bins))

    def constrain(self, u):
        """Return `(x, log |det dx/du|)`."""

        def fill(i, x):
            return _elementwise(self.kind, self.bins, u, self._raw(x))[0]

        x = jax.lax.fori_loop(0, self.size, fill, jnp.zeros_like(u))  # after pass i the first i numbers are final
        return x, jnp.sum(_elementwise(self.kind, self.bins, u, self._raw(x))[1], -1)

    def free(self, x):
        """Return the vector that `constrain` maps to x."""
        return _elementwise_inverse(self.kind, self.bins, x, self._raw(x))

    def free_and_log_volume(self, x):
        """Return `(u, log |det du/dx|)` in one pass."""
        raw = self._raw(x)
        u = _elementwise_inverse(self.kind, self.bins, x, raw)
        return u, -jnp.sum(_elementwise(self.kind, self.bins, u, raw)[1], -1)


@_pytree()
class Inverse(Flow):
    """The inverse of a flow.

    Args:
      flow: the flow.
    """

    flow: Any

    def constrain(self, u):
        """Return `(x, log |det dx/du|)`."""
        if hasattr(self.flow, "free_and_log_volume"):
            return self.flow.free_and_log_volume(u)
        x = self.flow.free(u)
        return x, -self.flow.constrain(x)[1]

    def free(self, x):
        """Return the vector that `constrain` maps to x."""
        return self.flow.constrain(x)[0]


@_pytree()
class Reverse(Flow):
    """The vector in reverse order, so that the next layer moves what this one held."""

    def constrain(self, u):
        """Return `(x, 0)`."""
        return u[..., ::-1], jnp.zeros(u.shape[:-1], u.dtype)

    def free(self, x):
        """Return the vector in reverse order."""
        return x[..., ::-1]


@_pytree()
class Chain(Flow):
    """Flows one after the other, the first one first.

    Args:
      flows: a sequence of flows.
    """

    flows: Sequence[Any]

    def constrain(self, u):
        """Return `(x, log |det dx/du|)`."""
        total = jnp.zeros(u.shape[:-1], u.dtype)
        for flow in self.flows:
            u, log_volume = flow.constrain(u)
            total = total + log_volume
        return u, total

    def free(self, x):
        """Return the vector that `constrain` maps to x."""
        for flow in reversed(self.flows):
            x = flow.free(x)
        return x


@_pytree()
class Shift(Flow):
    """The elementwise map  x = loc + exp(log_scale) u.

    Args:
      loc: location, [n].
      log_scale: logarithm of the scale, [n].
    """

    loc: Any
    log_scale: Any

    def constrain(self, u):
        """Return `(x, log |det dx/du|)`."""
        log_scale = jnp.broadcast_to(self.log_scale, u.shape)
        return jnp.broadcast_to(self.loc, u.shape) + jnp.exp(log_scale) * u, jnp.sum(log_scale, -1)

    def free(self, x):
        """Return the vector that `constrain` maps to x."""
        return (x - jnp.broadcast_to(self.loc, x.shape)) * jnp.exp(-jnp.broadcast_to(self.log_scale, x.shape))
