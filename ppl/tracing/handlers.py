"""Handlers: functions from a model to a model.

Each says which variables it answers and which it passes on. Names are full names ("path/x", "a/x"); values and weights are
given as keywords or, for names that are no Python words, as one mapping.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from ppl.errors import ModelError
from ppl.random_variable import concrete
from ppl.tracing.handle import fit, handle, handler, pass_on


def _named(positional, keywords):
    return {**(positional or {}), **keywords}


def condition(model: Callable[..., Any], values: Mapping[str, Any] | None = None, /, **more: Any) -> Callable[..., Any]:
    """Observe: fix the values of the named variables and pass them on, so that they stay in the density.

    >>> observed = ppl.condition(coin, y=tosses["y"])
    >>> round(float(ppl.log_joint(observed, {"p": 0.5})), 3)
    -2.773
    """
    values = _named(values, more)

    def respond(rv):
        if rv.name in values:
            rv = rv.replace(value=fit(rv, values[rv.name]), role="observed")
        return (yield rv)

    return handler(model, respond, names=values)


def do(model: Callable[..., Any], values: Mapping[str, Any] | None = None, /, **more: Any) -> Callable[..., Any]:
    """Intervene: answer the named variables with these values and pass nothing on, so that they leave the density.

    >>> list(ppl.sample(ppl.do(coin, p=0.5)))
    ['y']
    """
    values = _named(values, more)

    def respond(rv):
        if rv.name in values:
            return values[rv.name]
        return (yield rv)

    return handler(model, respond, names=values)


def substitute(
    model: Callable[..., Any], values: Mapping[str, Any] | None = None, /, **more: Any
) -> Callable[..., Any]:
    """Fix the values of the named variables and leave their roles: a latent stays a latent, at this value."""
    values = _named(values, more)

    def respond(rv):
        if rv.name in values:
            rv = rv.replace(value=fit(rv, values[rv.name]), role=rv.role)
        return (yield rv)

    return handler(model, respond)


def replay(model: Callable[..., Any], trace: Mapping[str, Any]) -> Callable[..., Any]:
    """Fix each latent variable at its value in `trace`, a `ppl.Trace` or a mapping from names to values."""
    values = {
        name: getattr(site, "value", site)
        for name, site in trace.items()
        if getattr(site, "role", "latent") == "latent"
    }
    return substitute(model, values)


def block(model: Callable[..., Any], *names: str, key: Any) -> Callable[..., Any]:
    """Draw the named variables here, with `key`, and hide them from everything further out; they leave the density."""
    from ppl.tracing.programs import draw_key

    def respond(rv):
        if rv.name in names:
            return rv.sample(draw_key(key, rv)) if rv.value is None else rv.value
        return (yield rv)

    return handler(model, respond, names=names)


def scope(name: str, model: Any) -> Any:
    """Put `name/` before the names of everything in `model`.

    `model` is a model, or a running one inside another: `w = yield from ppl.scope("slopes", horseshoe(8))`.
    """
    if hasattr(model, "send"):
        return handle(model, pass_on, name)
    return handler(model, pass_on, name)


def reweight(model: Callable[..., Any], weights: Mapping[str, Any] | None = None, /, **more: Any) -> Callable[..., Any]:
    """Multiply the log densities of the named variables by weights: numbers, or arrays over their batch shapes."""
    weights = _named(weights, more)

    def respond(rv):
        if rv.name in weights:
            rv = rv.replace(weight=_product(rv, weights[rv.name]))
        return (yield rv)

    return handler(model, respond, names=weights)


def mask(model: Callable[..., Any], masks: Mapping[str, Any] | None = None, /, **more: Any) -> Callable[..., Any]:
    """Leave the entries of the named variables where a mask is False out of the density.

    Whatever stands there (nan included) reaches neither the density nor its gradient.

      >>> three = ppl.mask(coin, y=[True, True, True, False])
      >>> round(float(ppl.log_joint(three, {"p": 0.5}, tosses)), 3)
      -2.079
    """
    masks = _named(masks, more)

    def respond(rv):
        if rv.name in masks:
            keep = jnp.asarray(masks[rv.name])
            if keep.dtype != bool:
                raise ModelError(
                    f"{rv._label()}: a mask is an array of bools (True: keep), but has dtype {keep.dtype}: write mask != 0"
                )
            rv = rv.replace(weight=_product(rv, keep))
        return (yield rv)

    return handler(model, respond, names=masks)


def _product(rv, weight):
    """Return `weight * rv.weight`, with the weight's shape compared with the variable's."""
    known = concrete(weight)
    if known is not None and known.dtype.kind == "f" and (known < 0).any():
        raise ModelError(f"{rv._label()}: weights must be at least 0, but the smallest is {known.min():.6g}")
    if isinstance(weight, int | float):
        return rv.weight * weight
    weight = jnp.asarray(weight)
    lengths = tuple(length for _, length in rv.loops)
    if lengths and weight.shape == lengths + rv.batch_shape:
        weight = weight[tuple(index for index, _ in rv.loops)]
    if weight.shape not in ((), rv.batch_shape):
        raise ModelError(
            f"{rv._label()} has log densities of shape {rv.batch_shape}, but a weight of shape {weight.shape}: give one number, "
            "or one for each"
        )
    return weight.astype(jnp.result_type(float)) * rv.weight


def shard(model: Callable[..., Any], specs: Mapping[str, Any] | None = None, /, **more: Any) -> Callable[..., Any]:
    """Lay the named variables out over devices: `shard(model, users=P("rows"))`, a spec over the whole value."""
    specs = _named(specs, more)

    def respond(rv):
        if rv.name in specs:
            rv = rv.replace(sharding=specs[rv.name])
        return (yield rv)

    return handler(model, respond, names=specs)


def noncentered(model: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Draw the named location-scale variables as `loc + scale * standard`.

    The standard variable, called `<name>_base`, becomes the latent; the original is recorded as derived, so that its draws
    exist under its own name. This removes the funnel between a scale and the effects that it governs.
    Reference: Papaspiliopoulos, Roberts, Skoeld (2007), Statistical Science 22(1).

      >>> def effects():
      ...     scale = yield ppl.HalfNormal(1.0, name="scale")
      ...     yield ppl.Normal(0.0, scale, shape=(3,), name="x")
      >>> list(ppl.sample(ppl.noncentered(effects, "x")))
      ['scale', 'x_base', 'x']
    """

    def respond(rv):
        if rv.name not in names or rv.role != "latent" or rv.value is not None:
            return (yield rv)
        base, place = rv.noncentered()
        standard = yield base.replace(name=f"{rv.name}_base")
        return (yield rv.replace(value=place(standard), role="derived"))

    if not names:
        raise ModelError("noncentered needs the names of the variables to draw: noncentered(model, 'theta')")
    return handler(model, respond, names=names)


__all__ = ["block", "condition", "do", "mask", "noncentered", "replay", "reweight", "scope", "shard", "substitute"]
