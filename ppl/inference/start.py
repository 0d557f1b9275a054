"""Seeds, start values, and the flat vector that samplers move.

Samplers see one vector of free values. `Layout` packs a dict of arrays into it and takes it apart again.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import ModelError, StartError, listed, suggest
from ppl.random_variable import concrete
from ppl.tracing.handle import model_name
from ppl.tracing.problems import first_problem
from ppl.tracing.programs import as_key


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where each latent variable's free value lies in the flat vector."""

    shapes: dict  # name -> free shape
    dtype: np.dtype

    @classmethod
    def of(cls, structure):
        """Return the layout of a bound model's latent variables."""
        structure.refuse_discrete()
        if not structure.latents:
            raise ModelError(
                f"`{model_name(structure.model)}` has no latent variable left: everything is observed or fixed, "
                "so there is nothing to infer"
            )
        shapes = {name: latent.free_shape for name, latent in structure.latents.items()}
        return cls(shapes, np.dtype(jnp.result_type(float)))

    @property
    def size(self):
        """The length of the flat vector."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def apart(self, vector):
        """Return the free values by name."""
        position, offset = {}, 0
        for name, shape in self.shapes.items():
            count = int(np.prod(shape))
            position[name] = vector[offset : offset + count].reshape(shape)
            offset += count
        return position

    def apart_numpy(self, vectors):
        """Return arrays by name of numpy vectors [..., D], leading axes kept."""
        parts, offset = {}, 0
        for name, shape in self.shapes.items():
            count = int(np.prod(shape))
            parts[name] = vectors[..., offset : offset + count].reshape((*vectors.shape[:-1], *shape))
            offset += count
        return parts

    def together(self, position):
        """Return the flat vector (numpy) of free values by name."""
        parts = [np.asarray(position[name], self.dtype).ravel() for name in self.shapes]
        return np.concatenate(parts) if parts else np.zeros(0, self.dtype)


def seed_words(seed):
    """Return the words of a seed: equal for an int and for the keys that jax makes of it."""
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
        seed = int(seed) % 2**64
        return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    return np.asarray(jax.random.key_data(as_key(seed))).ravel()


def starts(bound, layout, init, chains):
    """Return start vectors [chain, D] and a mask of the entries that may be drawn by the sampler.

    Args:
      bound: a bound model.
      layout: its `Layout`.
      init: natural values by name; part of the latent variables, or all, or None. A value may have a leading axis of
        `chains`, one start for each chain.
      chains: how many chains.
    """
    vectors = np.zeros((chains, layout.size), layout.dtype)
    free = np.ones((chains, layout.size), bool)
    if init is None or (isinstance(init, Mapping) and not init):
        return vectors, free
    if not isinstance(init, Mapping):
        raise ModelError(f"init= is a mapping from names to values, {{'mu': 0.0}}, or a fit, not {type(init).__name__}")
    given = _checked_init(bound, init, chains)
    for chain in range(chains):
        values = {n: (v[chain] if per_chain else v) for n, (v, per_chain) in given.items()}
        position, inside = _to_free(bound, layout, values)
        for name, fits in inside.items():
            if not fits:
                raise StartError(_outside(bound, layout, name, values))
        vectors[chain] = layout.together(position)
        free[chain] = layout.together({n: np.full(s, n not in values, float) for n, s in layout.shapes.items()}) > 0
        if chain == 0 and not any(per_chain for _, per_chain in given.values()):
            vectors[:], free[:] = vectors[0], free[0]
            break
    return vectors, free


def _outside(bound, layout, name, values):
    """Word the refusal of a start outside of the support, with the problem that an uncompiled run finds."""
    zeros = {n: jnp.zeros(s) for n, s in layout.shapes.items() if n not in values}
    problem = first_problem(bound.structure.model, *bound.structure.given(bound.arrays, values=values, free=zeros))
    return f"init[{name!r}] = {_short(values[name])} is outside of its support: {problem or 'it has no density there'}"


def _short(value):
    value = np.asarray(value)
    return f"{value:.6g}" if value.ndim == 0 else f"an array of shape {value.shape}"


def _checked_init(bound, init, chains):
    latents = bound.structure.latents
    given = {}
    for name, value in init.items():
        if name not in latents:
            raise ModelError(
                f"init has {name!r}, which is no latent variable ({listed(latents)}).{suggest(name, latents)}"
            )
        value = np.asarray(value, float) if np.asarray(value).dtype.kind in "biu" else np.asarray(value)
        shape = latents[name].shape
        if value.shape not in (shape, (chains, *shape)):
            raise ModelError(
                f"init[{name!r}] has shape {value.shape}, but {name!r} has shape {shape} (or {(chains, *shape)}: one start a chain)"
            )
        if not np.isfinite(value).all():
            raise StartError(f"init[{name!r}] = {_short(value)} is not finite")
        given[name] = (value.astype(latents[name].dtype), value.shape != shape)
    return given


def _to_free(bound, layout, values):
    structure = bound.structure
    zeros = {n: np.zeros(s, layout.dtype) for n, s in layout.shapes.items()}
    key = ("free", tuple(values))
    if key not in structure.compiled:
        structure.compiled[key] = jax.jit(structure.free)
    free, inside = structure.compiled[key](values, zeros, bound.arrays)
    return jax.device_get(free), jax.device_get(inside)


def no_start(bound, layout, vector, tries):
    """Return the StartError for a sampler that found no start; runs the model once, uncompiled, to name the variable."""
    structure = bound.structure
    position = {n: jnp.asarray(v) for n, v in layout.apart(np.asarray(vector)).items()}
    problem = first_problem(structure.model, *structure.given(bound.arrays, free=position))
    message = f"the log density or its gradient is not finite at any of {tries} starting points. "
    if problem:
        message += f"First non-finite term at the last one: {problem}" + ("" if problem.endswith("?") else ".")
    else:
        message += "At the last one the log density is finite and its gradient is not: look for sqrt, abs or norm at 0."
    here = {n: a for n, a in bound.arrays.items() if concrete(a) is not None}
    nans = [n for n, a in here.items() if np.asarray(a).dtype.kind == "f" and np.isnan(np.asarray(a)).any()]
    if nans:
        message += f" data holds nan in {listed(sorted({n.lstrip('=').split(':')[0] for n in nans}))}."
    return StartError(message)
