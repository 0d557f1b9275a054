"""Binding a model to data: what samplers need.

The latent variables, the map between their natural values and free space, and the log density there as a pure function of a
position and of the data, so that new data of equal shape needs no new trace. `entries.split` has sorted the data before.
"""

import copy
import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import ModelError, listed
from ppl.random_variable import concrete
from ppl.sharding import elsewhere
from ppl.supports import Support
from ppl.tracing.entries import Parts, is_leaf, split
from ppl.tracing.entries import signature as signature
from ppl.tracing.handle import model_name
from ppl.tracing.linear import feature_major
from ppl.tracing.precision import careful
from ppl.tracing.programs import Context, as_key, discrete_latent, run, run_parts, total


@dataclasses.dataclass(frozen=True)
class Latent:
    """A latent variable as samplers see it: shape and dtype of its value, and of its free value."""

    shape: tuple
    dtype: Any
    free_shape: tuple
    missing: int = 0  # how many entries of an observed variable are latent; 0 for a variable that is latent as a whole


class Structure:
    """All of a bound model that does not depend on the numbers in its data. Compiled programs are kept on it."""

    def __init__(self, model, static, shapes, observed, missing):
        self.model, self.static, self.observed_names = model, static, observed
        self.missing = missing  # name -> indices of missing entries, concrete
        self.compiled, self.inside, self._variants = {}, frozenset(), {}
        float_dtype = jnp.result_type(float)

        def look(arrays):
            _, sites = run(model, *self.given(arrays, shapes=True, density=False, watch=watch))
            order[:] = list(sites)  # jax sorts the keys of a dict
            return sites

        def watch(rv, value, log_prob):
            if isinstance(getattr(type(rv), "support", None), Support):
                self.supports[rv.name] = rv.support

        order, self.supports = [], {}  # supports that do not depend on parameters
        jaxpr, sites = jax.make_jaxpr(look, return_shape=True)(shapes)
        turned = feature_major(jaxpr.jaxpr, sorted(shapes))  # jax sorts the keys of a dict
        self.feature_major = frozenset(n for n in turned if not n.startswith("="))
        sites = {name: sites[name] for name in order}
        self.latents, self.derived = {}, {}
        for name, site in sites.items():
            shape, dtype = site.value.shape, site.value.dtype
            if name in missing:
                count = len(missing[name][0])
                self.latents[name] = Latent((count,), dtype, (count,), count)
            elif site.role == "latent" and site.free_shape is None:
                self.latents[name] = Latent(shape, dtype, None)
            elif site.role == "latent":
                loops = shape[: len(shape) - len(site.shape)]
                self.latents[name] = Latent(shape, float_dtype, loops + site.free_shape)
            elif site.role == "derived":
                self.derived[name] = Latent(shape, dtype, None)
        self.families = {n: s.family for n, s in sites.items()}
        self.observed = tuple(n for n, s in sites.items() if s.role == "observed")

    def knowing(self, arrays):
        """Return the structure for these observed values: where all of them lie in their supports, nothing looks again."""
        inside = frozenset(
            n for n in self.observed if n in self.supports and _all_inside(self.supports[n], arrays.get(f"={n}"))
        )
        if not inside:
            return self
        if inside not in self._variants:
            variant = copy.copy(self)
            variant.compiled, variant.inside = {}, inside
            self._variants.setdefault(inside, variant)
        return self._variants[inside]

    def stored(self, arrays):
        """Return the data arrays as a bound model keeps them: the X of a `linear` transposed, under another name."""
        turned = {f"{n}.T": _transpose(arrays[n]) for n in self.feature_major}
        return {**{n: a for n, a in arrays.items() if n not in self.feature_major}, **turned}

    def given(self, arrays, **ctx):
        """Return the model's arguments and a Context for these data arrays."""
        arguments, observed = join(self.static, arrays)
        missing = {}
        for name, index in self.missing.items():
            gone = np.zeros(jnp.shape(observed[name]), bool)
            gone[index] = True
            missing[name] = gone
            for field in ("free", "values"):
                if name in ctx.get(field, {}):
                    given = jnp.asarray(ctx[field][name])
                    whole = jnp.zeros(gone.shape, given.dtype).at[index].set(given)
                    ctx[field] = {**ctx[field], name: whole}
        return arguments, Context(data=observed, missing=missing, inside=self.inside, **ctx)

    def run(self, arrays, **ctx):
        """Run the model: `(returned, sites)`. Keywords are those of `Context`."""
        with careful():
            return run(self.model, *self.given(arrays, **ctx))

    def refuse_discrete(self):
        """Raise if a latent variable is discrete: gradient-based samplers cannot move it."""
        for name, latent in self.latents.items():
            if latent.free_shape is None:
                raise ModelError(discrete_latent(name, self.families[name]))

    def log_density(self, position, arrays):
        """Return the log density of the free values `position`, with the volume terms of their maps."""
        _, sites = self.run(arrays, free=position)
        return total(sites, volume=True)

    def record(self, position, arrays, keep=None):
        """Return the natural values of latent and derived variables (or of those in `keep`) at a free position."""
        _, sites = self.run(arrays, free=position, density=False)
        return {n: self.part(n, sites[n].value) for n in self.recorded if keep is None or n in keep}

    @property
    def recorded(self):
        """The names that a posterior holds, in program order: latent and derived variables."""
        return tuple(n for n in self.families if n in self.latents or n in self.derived)

    def part(self, name, value):
        """Return the latent part of a value: all of it, or its missing entries."""
        return value[self.missing[name]] if name in self.missing else value

    def free(self, values, position, arrays):
        """Return free values: those of `values` (natural scale) and of `position`; and whether each value fits its support."""
        rest = {n: p for n, p in position.items() if n not in values}
        _, sites = self.run(arrays, values=values, free=rest)
        free = {n: self.part(n, sites[n].free) for n in position}
        return free, {n: jnp.all(sites[n].inside) for n in values}


def _all_inside(support, value):
    """Tell whether a value is known, and each of its draws lies in a support."""
    if value is None:
        return False
    if elsewhere(value):
        return False
    known = concrete(value) if value.size < 10**6 else value  # large ones stay on their devices
    if known is None:
        return False
    try:
        inside = support.contains_numpy(known) if isinstance(known, np.ndarray) else support.contains(known)
        return bool(np.all(inside) if isinstance(inside, np.ndarray | np.generic | bool) else jnp.all(inside))
    except jax.errors.ConcretizationTypeError:  # not known
        return False


@jax.jit
def _transpose(array):
    return array.T


def entry_of(key):
    """Return the name of the entry of data that an array of a bound model belongs to, by the array's key."""
    return key[1:] if key.startswith("=") else key.rpartition(":")[0]


def is_turned(key):
    """Tell by its key whether an array is kept transposed, feature by feature (see `linear`)."""
    return not key.startswith("=") and key.endswith(".T")


def join(static, arrays):
    """Put structure and arrays together again: `(arguments, observed)`."""
    arguments = {}
    for name, (structure, leaves) in static:
        filled = [
            (arrays[key] if key in arrays else arrays[f"{key}.T"].T) if is_array else leaf
            for is_array, key, leaf, _ in leaves
        ]
        arguments[name] = jax.tree.unflatten(structure, filled)
    observed = {name: arrays[f"={name}"] for name in (k[1:] for k in arrays if k.startswith("="))}
    return arguments, observed


def apart(parts):
    """Take arguments apart into `(static, arrays)`: structure that can be hashed, and a flat dict of arrays."""
    static, arrays = [], {f"={name}": value for name, value in parts.observed.items()}
    for name, argument in parts.arguments.items():
        leaves, structure = jax.tree.flatten(argument, is_leaf=is_leaf)
        described = []
        for i, leaf in enumerate(leaves):
            is_array = isinstance(leaf, np.ndarray | jax.Array)
            if is_array:
                arrays[f"{name}:{i}"] = leaf
            kinds = (
                tuple(map(type, leaf)) if isinstance(leaf, tuple) else type(leaf)
            )  # True equals 1, and is not the same
            described.append((is_array, f"{name}:{i}", None if is_array else leaf, None if is_array else kinds))
        static.append((name, (structure, tuple(described))))
    return tuple(static), arrays


_structures = {}  # the last few bound models, most recent last
_lock = threading.Lock()  # around changes of it


def bind(model: Callable[..., Any], data: Mapping[str, Any] | None = None) -> "Bound":
    """Bind a model to data. Returns a `Bound`.

    The structure (names, shapes, compiled programs) is found again when the same model is bound to data of equal shapes,
    dtypes and Python values: it is not traced again.
    """
    parts = split(model, data)
    static, arrays = apart(parts)
    missing = {name: tuple(np.nonzero(gone)) for name, gone in parts.missing.items()}
    shapes = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in arrays.items()}
    key = (
        model,
        static,
        tuple((n, s.shape, s.dtype) for n, s in shapes.items()),
        tuple((n, *(i.tobytes() for i in index)) for n, index in missing.items()),
        bool(jax.config.read("jax_enable_x64")),
    )
    try:
        hash(key)
        hashable = True
    except TypeError:
        hashable = False
    structure = None
    if hashable:
        with _lock:
            structure = _structures.pop(key, None)
    if structure is None:
        structure = Structure(model, static, shapes, tuple(parts.observed), missing)
    if hashable:
        with _lock:
            structure = _structures.setdefault(key, structure)
            while len(_structures) > 32:
                del _structures[next(iter(_structures))]
    if parts.nans:
        run_parts(structure.model, parts, Context(data=parts.observed, missing=parts.missing, key=as_key(0)))
    else:
        parts.check_names(structure.families)
    structure = structure.knowing(arrays)
    return Bound(structure, structure.stored(arrays), parts)


@dataclasses.dataclass(frozen=True, eq=False)
class Bound:
    """A model with its data: the log density of its latent variables on free space, and the maps to and from it."""

    structure: Structure
    arrays: dict
    parts: Parts

    @property
    def latents(self):
        """`{name: Latent}`: shapes and dtypes, in program order."""
        return self.structure.latents

    def as_given(self, names):
        """Return it with these entries of data stored as they were given, also where `linear` wants them turned."""
        turned = [key for key in self.arrays if is_turned(key) and entry_of(key) in names]
        given = {key.removesuffix(".T"): self.arrays[key].T for key in turned}
        return dataclasses.replace(self, arrays={**{k: a for k, a in self.arrays.items() if k not in turned}, **given})

    def __repr__(self):
        latents = ", ".join(f"{n}{list(latent.shape) or ''}" for n, latent in self.latents.items())
        given = listed([*self.parts.arguments, *self.parts.observed])
        return f"<{model_name(self.structure.model)} given {given or 'nothing'}; latent: {latents or 'nothing'}>"

    def __call__(self, position):
        """Return the log density at `position`, a dict of free values; the volume terms are included."""
        return self.structure.log_density(position, self.arrays)

    def initial(self, key=0, radius=2.0):
        """Return a position with entries uniform in (-radius, radius)."""
        self.structure.refuse_discrete()
        keys = jax.random.split(as_key(key), len(self.latents))
        return {
            n: jax.random.uniform(k, latent.free_shape, latent.dtype, -radius, radius)
            for k, (n, latent) in zip(keys, self.latents.items(), strict=True)
        }

    def constrain(self, position):
        """Return the natural values of all latent and derived variables at a free position."""
        return self.structure.record(position, self.arrays)

    def free(self, values):
        """Return the free position of natural values of all latent variables."""
        zeros = {n: jnp.zeros(latent.free_shape, latent.dtype) for n, latent in self.latents.items()}
        return self.structure.free({n: jnp.asarray(v) for n, v in values.items()}, zeros, self.arrays)[0]


def log_density(model: Callable[..., Any], data: Mapping[str, Any] | None = None) -> "Bound":
    """Return the log density of a model on free space: a pure function of a dict of free values.

        density = ppl.log_density(model, data)
        position = density.initial(key=0)
        value, gradient = jax.value_and_grad(density)(position)
        density.constrain(position)                 # natural values, derived ones included

    It includes the log volume terms of the maps from free space, so it is what samplers and optimizers need. It can be
    given to any of them.
    """
    bound = bind(model, data)
    bound.structure.refuse_discrete()
    return bound
