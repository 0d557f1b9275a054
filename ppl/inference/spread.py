"""`mesh=` and `sharding=`: which data and which variables lie on which devices.

    board, data = spread.board(mesh, sharding, data)       # None where everything lies on one device
    layout = spread.Spread.of(board, bound)                # checked against a bound model, with a spec for each array

A spec is a `jax.sharding.PartitionSpec` over the whole value of a variable or of an entry of data, by name.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ppl.errors import ModelError, listed, suggest
from ppl.sharding import CHAINS, Board, carried, check, is_spread, named, put, same_devices, spelled, transposed, twin
from ppl.tracing.bind import entry_of, is_turned
from ppl.tracing.handle import model_name

PAD = ". ppl.pad(model, data, ...) makes observed rows fit and leaves those it adds out of the density exactly"


def board(mesh, sharding, data, draws=None):
    """Return the `Board` of a call, or None, and its data laid out under the board's mesh where they carry a sharding.

    Args:
      mesh: a `jax.sharding.Mesh` or None: then that of the data, or the one that `jax.set_mesh` has set.
      sharding: `{name: PartitionSpec}` or None.
      data: the mapping of the call. Arrays with a `NamedSharding` over several devices keep it.
      draws: `{name: [chain, draw, ...]}` or None; those that lie on several devices stay there.
    """
    if mesh is not None and not isinstance(mesh, Mesh):
        raise ModelError(
            f"mesh= is a jax.sharding.Mesh, such as jax.make_mesh((8,), ('rows',)), not {type(mesh).__name__}"
        )
    if sharding is not None and not isinstance(sharding, Mapping):
        raise ModelError(
            f"sharding= is a mapping from names to specs, {{'X': jax.sharding.PartitionSpec('rows')}}, "
            f"not {type(sharding).__name__}"
        )
    lying = [(name, found) for name, value in _items(data) if (found := _mesh_of(value)) is not None]
    drawn = [(name, found) for name, value in _items(draws) if (found := carried(value)) is not None]
    if mesh is None and (lying or drawn):
        mesh = (lying or drawn)[0][1]
    if mesh is None and sharding:
        current = jax.sharding.get_mesh()
        mesh = current if isinstance(current, Mesh) and current.axis_names else None
        if mesh is None:
            raise ModelError(
                "sharding= was given and no mesh: add mesh=, such as jax.make_mesh((8,), ('rows',)), or call under "
                "`jax.set_mesh(mesh)`"
            )
    if mesh is None:
        return None, data
    specs = {}
    for name, spec in (sharding or {}).items():
        if isinstance(spec, NamedSharding):
            spec = spec.spec
        if not isinstance(spec, PartitionSpec):
            raise ModelError(
                f"sharding[{name!r}] is a jax.sharding.PartitionSpec, such as PartitionSpec('rows'), not {type(spec).__name__}"
            )
        for axis in sorted(named(spec)):
            if axis not in mesh.axis_names:
                raise ModelError(
                    f"sharding[{name!r}] = {spelled(spec)} names the axis {axis!r}; the mesh has {listed(mesh.axis_names)}."
                    f"{suggest(axis, mesh.axis_names)}"
                )
            if axis == CHAINS:
                raise ModelError(
                    f"sharding[{name!r}] = {spelled(spec)}: the axis 'chains' spreads chains, so it holds all of each array: "
                    "name another axis"
                )
        specs[name] = spec
    under = twin(mesh)
    data = dict(_items(data))
    for name, found in lying:
        if not same_devices(found, mesh):
            raise ModelError(
                f"data[{name!r}] lies on {found.size} devices with the axes {listed(found.axis_names)}, and the run is on "
                f"{mesh.size} with the axes {listed(mesh.axis_names)}: lay all data out on one mesh"
            )
        data[name], own = _under(data[name], under, specs.get(name))
        specs.setdefault(name, own)
    for name, found in drawn:
        if same_devices(found, mesh):
            specs.setdefault(name, PartitionSpec(*tuple(draws[name].sharding.spec)[2:]))
    return Board(under, tuple(sorted(specs.items(), key=lambda item: item[0]))), data


def _items(data):
    return list(data.items()) if hasattr(data, "items") else []


def _mesh_of(value):
    found = [carried(leaf) for leaf in jax.tree.leaves(value, is_leaf=lambda x: hasattr(x, "__next__"))]
    return next((mesh for mesh in found if mesh is not None), None)


def _under(value, mesh, spec):
    """Return a value whose arrays lie on `mesh` as before (or as `spec` says), and the spec of the first of them."""
    own = []

    def move(leaf):
        if carried(leaf) is None:
            return leaf
        own.append(leaf.sharding.spec)
        return jax.device_put(leaf, NamedSharding(mesh, own[-1] if spec is None else spec))

    return jax.tree.map(move, value), next(iter(own), PartitionSpec())


@dataclasses.dataclass(frozen=True)
class Spread:
    """A board fitted to a bound model.

    Args:
      board: the `Board`.
      arrays: `{key: PartitionSpec}` for the data arrays of the bound model.
      values: `{name: PartitionSpec}` for values of variables on their natural scale.
      free: `{name: PartitionSpec}` for free values of latent variables.
    """

    board: Board
    arrays: dict
    values: dict
    free: dict

    @classmethod
    def of(cls, board, bound, drawn=()):
        """Check a board's specs against a bound model; names of `drawn` may be unknown to it."""
        structure, mesh = bound.structure, board.mesh
        entries = {**bound.parts.arguments, **bound.parts.observed}
        given = dict(board.specs)
        for name in given:
            if name not in entries and name not in structure.families and name not in drawn:
                known = list(dict.fromkeys([*entries, *structure.families]))
                raise ModelError(
                    f"sharding has {name!r}, which is neither an entry of data nor a random variable of "
                    f"`{model_name(structure.model)}` ({listed(known)}).{suggest(name, known)}"
                )
        arrays = {}
        for key, array in bound.arrays.items():
            name, turned = entry_of(key), is_turned(key)
            spec = given.get(name, PartitionSpec())
            check(array.shape[::-1] if turned else array.shape, spec, mesh, f"data[{name!r}]", PAD)
            arrays[key] = transposed(spec) if turned else spec
        values, free = {}, {}
        for name, latent in {**structure.latents, **structure.derived}.items():
            spec = given.get(name)
            if spec is None and name.endswith("_base"):  # made by `noncentered`: it lies where its variable lies
                spec = given.get(name.removesuffix("_base"))
            spec = PartitionSpec() if spec is None or latent.missing else spec
            check(latent.shape, spec, mesh, f"{name!r} ({structure.families[name]})")
            values[name] = spec
            if name in structure.latents and latent.free_shape is not None:
                free[name] = _free_spec(spec, latent)
        return cls(board, arrays, values, free)

    @property
    def key(self):
        """What programs compiled for one spread are kept by."""
        return (self.board, *(tuple(part.items()) for part in (self.arrays, self.values, self.free)))

    def lay(self, arrays):
        """Return the data arrays of a bound model on their devices."""
        return {key: put(array, self.board.sharding(*self.arrays[key])) for key, array in arrays.items()}

    @property
    def flat(self):
        """Whether no latent variable is divided, so that a position may be one vector."""
        return not any(self.board.spreads(spec) for spec in self.free.values())

    def constrained(self, values, specs):
        """Return values by name, laid out inside a compiled program."""
        return {
            name: jax.lax.with_sharding_constraint(value, specs.get(name, PartitionSpec()))
            if self.board.mesh.size > 1
            else value
            for name, value in values.items()
        }


def _free_spec(spec, latent):
    """Return the spec of the free value: that of the axes that both have at equal lengths."""
    if len(latent.free_shape) != len(latent.shape):
        count = min(len(latent.free_shape), len(latent.shape)) - 1
        return PartitionSpec(*tuple(spec)[: max(count, 0)])
    return PartitionSpec(
        *(
            part if free == whole else None
            for part, free, whole in zip(spec, latent.free_shape[: len(spec)], latent.shape, strict=False)
        )
    )


def groups(spread, chains):
    """Return how many chains each group of devices runs; refuse a number that the groups do not divide."""
    count = spread.board.groups
    if chains % count:
        below, above = chains - chains % count, chains + count - chains % count
        fit = f"numbers are {below} and {above}" if below else f"number is {above}"
        raise ModelError(
            f"chains={chains}: the mesh has {count} groups of devices along 'chains', which do not divide it: the nearest {fit}"
        )
    return chains // count


def refuse_whole(job, placed, path):
    """Refuse what needs all of a divided variable in one place."""
    divided = [name for name, spec in placed.values.items() if placed.board.spreads(spec)]
    if job.metric == "dense" and not placed.flat:
        raise ModelError(
            f"metric='dense' needs whole positions on each device, and {divided[0]!r} is divided: use metric='diagonal'"
        )
    if path is not None and job.keep is not None and divided:
        raise ModelError(
            f"checkpoint= does not save the running means of divided variables ({listed(divided)}), which keep= asks for: "
            "leave out one of the two"
        )


def joined(blocks, numbers):
    """Return arrays [chain of a block, ...] as one, in the order of the chains; divided ones are left on their devices."""
    order = np.argsort(np.concatenate([np.asarray(n) for n in numbers]))
    if len(blocks) == 1 and (order == np.arange(len(order))).all():
        return blocks[0]
    return (jnp if is_spread(blocks[0]) else np).concatenate(blocks)[order]
