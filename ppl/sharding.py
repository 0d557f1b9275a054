"""Placing values on devices: the only file that knows meshes and axis types.

Programs run under meshes whose axes are all `Auto`: the compiler then lays out everything that is not said, and loops
need no types of axes. A mesh with `Explicit` axes, `jax.make_mesh`'s default, is replaced by its twin of the same devices.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ppl.errors import ModelError

CHAINS = "chains"  # the axis of a mesh that spreads chains; all others spread data and latents


def place(value, spec, label):
    """Lay `value` out over devices as `spec` says, inside or outside compiled code.

    Args:
      value: an array.
      spec: a `NamedSharding`, a `PartitionSpec` (of the mesh set by `jax.set_mesh`), or None for no wish.
      label: how messages call the value.

    A length that the devices do not divide is refused, naming the nearest lengths that fit: jax would drop the
    constraint silently inside compiled code.
    """
    if spec is None:
        return value
    if not isinstance(spec, NamedSharding | PartitionSpec):
        raise ModelError(
            f"{label}: a sharding is a jax.sharding.PartitionSpec or NamedSharding, not {type(spec).__name__}"
        )
    mesh = spec.mesh if isinstance(spec, NamedSharding) else jax.sharding.get_abstract_mesh()
    partition = spec.spec if isinstance(spec, NamedSharding) else spec
    if not mesh.axis_names:
        raise ModelError(
            f"{label} has sharding {spelled(partition)}, but there is no mesh: run inside `jax.set_mesh(mesh)`"
        )
    check(value.shape, partition, mesh, label)
    running = jax.sharding.get_abstract_mesh()
    if isinstance(spec, NamedSharding) and dict(running.shape) == dict(mesh.shape):
        mesh, spec = running, partition  # a driver runs under the mesh's twin
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    if any(types[name] == AxisType.Explicit for name in named(partition)):  # there, a constraint would only assert
        return jax.sharding.reshard(value, spec)
    return jax.lax.with_sharding_constraint(value, spec)


def spelled(partition):
    """Return a spec as one writes it; jax's own spelling differs between its versions."""
    return f"P({', '.join(repr(part) for part in partition)})"


def transposed(partition):
    """Return the spec of the transpose of a matrix that is laid out by `partition`."""
    return PartitionSpec(*reversed((*partition, None)[:2])) if len(partition) else partition


def axes_of(part):
    """Return the mesh axes that one entry of a spec names."""
    return (part,) if isinstance(part, str) else tuple(part or ())


def named(partition):
    """Return all mesh axes that a spec names."""
    return {name for part in partition for name in axes_of(part)}


def check(shape, partition, mesh, label, advice=""):
    """Refuse a spec with unknown axes, with more axes than `shape` has, or with lengths that the devices do not divide."""
    if len(partition) > len(shape):
        raise ModelError(
            f"{label} has shape {tuple(shape)}, but its sharding {spelled(partition)} names {len(partition)} axes"
        )
    for axis, part in enumerate(partition):
        count = 1
        for name in axes_of(part):
            if name not in mesh.axis_names:
                raise ModelError(
                    f"{label}: sharding {spelled(partition)} names the axis {name!r}; the mesh has {mesh.axis_names}"
                )
            count *= mesh.shape[name]
        length = shape[axis]
        if length % count:
            below, above = length - length % count, length + count - length % count
            fit = f"lengths that fit are {below} and {above}" if below else f"length that fits is {above}"
            raise ModelError(
                f"{label} has length {length} on axis {axis}, which {count} devices do not divide: the nearest {fit}{advice}"
            )


def twin(mesh):
    """Return the mesh of the same devices whose axes are all Auto."""
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def same_devices(first, second):
    """Tell whether two meshes have the same devices under the same axes."""
    return first.axis_names == second.axis_names and np.array_equal(first.devices, second.devices)


def carried(value):
    """Return the mesh of several devices that an array lies on, or None."""
    sharding = getattr(value, "sharding", None)
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh) and sharding.mesh.size > 1:
        return sharding.mesh
    return None


def elsewhere(value):
    """Tell whether parts of an array lie on other hosts; a value that jax traces is here."""
    try:
        return isinstance(value, jax.Array) and not value.is_fully_addressable
    except jax.errors.ConcretizationTypeError:
        return False


def put(value, sharding):
    """Return an array on devices, also where some of them belong to other processes."""
    if elsewhere(value) or sharding.is_fully_addressable:
        return jax.device_put(value, sharding)
    return jax.make_array_from_callback(np.shape(value), sharding, lambda index: np.asarray(value)[index])


def gather(value: Any) -> np.ndarray:
    """Return an array as numpy. Of one that lies on several processes, all of them fetch all: call it on each."""
    if elsewhere(value) and not value.is_fully_replicated:
        mesh = twin(value.sharding.mesh)
        with jax.set_mesh(mesh):
            value = jax.device_put(value, NamedSharding(mesh, value.sharding.spec))
            value = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))(value)
    return np.asarray(value)


def settled(value):
    """Return an array as numpy if this process has all of it and only chains divide it; else as it is."""
    if not is_spread(value):
        return np.asarray(value)
    only_chains = named(value.sharding.spec) <= {CHAINS} if isinstance(value.sharding, NamedSharding) else False
    return np.asarray(value) if only_chains and value.is_fully_addressable else value


def is_spread(value):
    """Tell whether an array is divided between devices: not on one, and not the same on all."""
    return isinstance(value, jax.Array) and not value.is_fully_replicated


@dataclasses.dataclass(frozen=True)
class Board:
    """A mesh and what is laid out on it: the `mesh=` and `sharding=` of one call, checked.

    Args:
      mesh: with Auto axes.
      specs: `{name: PartitionSpec}` of entries of data and of variables.
    """

    mesh: Mesh
    specs: tuple  # of (name, spec), so that it can be a key

    @property
    def groups(self):
        """How many groups of devices run chains side by side."""
        return dict(self.mesh.shape).get(CHAINS, 1)

    def spec(self, name):
        """Return the spec of an entry or a variable; one without axes where nothing was said."""
        return dict(self.specs).get(name, PartitionSpec())

    def sharding(self, *parts):
        """Return the sharding by these parts of a spec."""
        return NamedSharding(self.mesh, PartitionSpec(*parts))

    @property
    def chains(self):
        """The part of a spec that lays out an axis of chains."""
        return CHAINS if CHAINS in self.mesh.axis_names else None

    def spreads(self, spec):
        """Tell whether a spec divides anything."""
        return any(self.mesh.shape[name] > 1 for name in named(spec))

    @property
    def active(self):
        """A context in which programs run under this mesh."""
        return jax.set_mesh(self.mesh)
