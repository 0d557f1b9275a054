"""Placing values on devices: the only file that knows meshes."""

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ppl.errors import ModelError


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
        raise ModelError(f"{label} has sharding {partition}, but there is no mesh: run inside `jax.set_mesh(mesh)`")
    if len(partition) > value.ndim:
        raise ModelError(f"{label} has shape {value.shape}, but its sharding {partition} names {len(partition)} axes")
    for axis, names in enumerate(partition):
        count = 1
        for name in (names,) if isinstance(names, str) else names or ():
            if name not in mesh.axis_names:
                raise ModelError(
                    f"{label}: sharding {partition} names the axis {name!r}; the mesh has {mesh.axis_names}"
                )
            count *= mesh.shape[name]
        length = value.shape[axis]
        if length % count:
            below, above = length - length % count, length + count - length % count
            raise ModelError(
                f"{label} has length {length} on axis {axis}, which {count} devices do not divide: the nearest lengths that "
                f"fit are {below} and {above}"
            )
    named = {name for names in partition for name in ((names,) if isinstance(names, str) else names or ())}
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    if any(types[name] == AxisType.Explicit for name in named):  # there, a constraint would only assert
        return jax.sharding.reshard(value, spec)
    return jax.lax.with_sharding_constraint(value, spec)
