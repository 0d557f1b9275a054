"""Rows that make a length fit a mesh, and leave no trace in the density.

    model, data = ppl.pad(model, data, mesh=mesh, sharding=sharding)

A copy of the last row fills each divided axis up to the next length that the devices divide, and the observed variables
among the padded entries get weight 0 there: the added entries reach neither the density nor its gradient.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import DataError
from ppl.inference import spread
from ppl.sharding import axes_of
from ppl.tracing.entries import signature
from ppl.tracing.handle import handler


def pad(
    model: Callable[..., Any],
    data: Mapping[str, Any],
    *,
    mesh: jax.sharding.Mesh,
    sharding: Mapping[str, Any],
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return a model and data that fit a mesh: rows are added to data, and their densities are left out exactly.

    Args:
      model: a generator function.
      data: arguments of the model and values of its observed variables.
      mesh: the mesh of the run.
      sharding: its specs. Only entries of `data` are padded, along the axes that their specs divide.

    Latent variables whose shape follows the data, one for each row, get entries for the added rows too: they follow their
    prior, and concern nothing else. Predictions have the added rows at their end.
    """
    board, _ = spread.board(mesh, sharding, {})
    padded, lengths = dict(data), {}
    for name, spec in board.specs:
        if name not in data:
            continue
        for axis, part in enumerate(spec):
            count = int(np.prod([board.mesh.shape[a] for a in axes_of(part)], dtype=int))
            padded[name] = jax.tree.map(lambda leaf: _longer(name, leaf, axis, count), padded[name])  # noqa: B023
            before, after = (np.shape(jax.tree.leaves(d[name])[0])[axis] for d in (data, padded))
            if after != before and name not in signature(model):
                lengths.setdefault(name, []).append((axis, before))
    return (keep_first(model, lengths) if lengths else model), padded


def _longer(name, value, axis, count):
    """Return an array whose length on `axis` is a multiple of `count`: the last entry is repeated."""
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(
            f"data[{name!r}] is a masked array, which pad cannot make longer: give lengths that fit, or a mask"
        )
    if np.ndim(value) <= axis or np.shape(value)[axis] % count == 0:
        return value
    value = np.asarray(value)
    return np.pad(value, [(0, -value.shape[a] % count if a == axis else 0) for a in range(value.ndim)], mode="edge")


def keep_first(model, lengths):
    """Leave all but the first entries of some observed variables out of the density.

    Args:
      model: a model.
      lengths: `{name: [(axis, how many entries are kept), ...]}`, over the whole value: the axes of loops come first.
    """

    def respond(rv):
        if rv.name not in lengths:
            return (yield rv)
        kept = jnp.bool_(True)
        for axis, length in lengths[rv.name]:
            kept = kept & _before(rv, axis, length)
        weight = jnp.broadcast_to(kept, rv.batch_shape).astype(jnp.result_type(float))
        return (yield rv.replace(weight=weight * rv.weight))

    return handler(model, respond, names=tuple(lengths))


def _before(rv, axis, length):
    if axis < len(rv.loops):
        return jnp.asarray(rv.loops[axis][0]) < length
    axis -= len(rv.loops)
    shape = [1] * len(rv.batch_shape)
    shape[axis] = rv.batch_shape[axis]
    return (jnp.arange(rv.batch_shape[axis]) < length).reshape(shape)
