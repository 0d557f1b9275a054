"""What a run on a mesh would look like, told before it starts.

    print(ppl.plan(model, data, mesh=mesh, sharding=sharding))

Where each array lies, what each device holds, which numbers are exchanged for one gradient, and what lies on all devices
though it looks as if it could be divided. The gradient is compiled for this, and nothing is run.
"""

import contextlib
import dataclasses
import html
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ppl.errors import ModelError
from ppl.inference import spread
from ppl.inference.exchanges import exchanges
from ppl.inference.start import Layout
from ppl.sharding import axes_of, transposed
from ppl.tracing.bind import bind, entry_of, is_turned
from ppl.tracing.handle import model_name

LARGE = 2**16  # bytes; smaller arrays may lie on all devices without a remark


@dataclasses.dataclass(frozen=True)
class Row:
    """One array: its name, kind ("data", "latent", "derived"), spec, whole shape, shape and bytes on one device."""

    name: str
    kind: str
    spec: str
    shape: tuple
    local: tuple
    bytes: int


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """The table of a run on a mesh. Printing it shows it.

    Args:
      title: what would run where.
      rows: a `Row` for each array.
      exchanges: of one evaluation of the density and its gradient, in the compiled program.
      draws_bytes: what the draws of all chains take on one device, where they are divided, and on the host otherwise.
      notes: sentences on what may be unintended.
    """

    title: str
    rows: tuple
    exchanges: tuple
    draws_bytes: dict
    notes: tuple

    def __repr__(self):
        head = ("name", "kind", "spec", "shape", "on each device", "bytes there")
        table = [head, *((r.name, r.kind, r.spec, str(r.shape), str(r.local), _bytes(r.bytes)) for r in self.rows)]
        widths = [max(len(row[i]) for row in table) for i in range(len(head))]
        lines = [self.title, ""]
        for row in table:
            cells = [c.rjust(w) if i == 5 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
            lines.append("  ".join(cells).rstrip())
        lines += ["", *self._sentences()]
        return "\n".join(lines)

    def _sentences(self):
        if self.exchanges:
            told = ", ".join(f"{e.kind} of {_bytes(e.bytes)}" for e in self.exchanges)
            yield f"Exchanged for one gradient: {told}."
        else:
            yield "Exchanged for one gradient: nothing."
        yield (
            f"Draws: {_bytes(self.draws_bytes['device'])} on each device, {_bytes(self.draws_bytes['host'])} on the host."
        )
        for note in self.notes:
            yield f"Note: {note}"

    def _repr_html_(self):
        return f"<pre>{html.escape(repr(self))}</pre>"


def plan(
    model: Callable[..., Any],
    data: Mapping[str, Any] | None = None,
    *,
    mesh: jax.sharding.Mesh | None = None,
    sharding: Mapping[str, Any] | None = None,
    chains: int = 4,
    draws: int = 1000,
) -> Plan:
    """Return a table of what lies where, and of what is exchanged, in a run with these arguments. Nothing is run.

      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> plan = ppl.plan(coin, tosses, mesh=mesh, sharding={"y": jax.sharding.PartitionSpec("rows")})
      >>> [(row.name, row.kind, row.shape) for row in plan.rows]
      [('y', 'data', (4,)), ('p', 'latent', ())]

    Args:
      model: a generator function.
      data: one mapping, as for the samplers.
      mesh: the devices, as for the samplers.
      sharding: what lies on which of them, as for the samplers.
      chains: how many chains the run will have.
      draws: how many draws each chain will keep.

    Raises:
      ModelError: a spec, a length or a number of chains does not fit the mesh.
    """
    board, data = spread.board(mesh, sharding, data)
    if board is None:
        raise ModelError("a plan is for several devices: give mesh=, such as jax.make_mesh((8,), ('rows',))")
    with contextlib.ExitStack() as stack:
        stack.enter_context(board.active)
        bound = bind(model, data)
        layout = Layout.of(bound.structure)
        placed = spread.Spread.of(board, bound)
        spread.groups(placed, chains)
        rows = tuple(_rows(bound, placed))
        found = tuple(exchanges(_gradient_text(bound, placed, layout)))
    return Plan(
        f"{model_name(model)} on {board.mesh.size} devices: "
        + ", ".join(f"{name} {size}" for name, size in board.mesh.shape.items()),
        rows,
        found,
        _draws_bytes(bound, placed, chains, draws),
        tuple(_notes(rows, found, board)),
    )


def _rows(bound, placed):
    structure = bound.structure
    for key, array in bound.arrays.items():
        name, spec, shape = entry_of(key), placed.arrays[key], array.shape
        part = "0" if key.startswith("=") else key.removeprefix(f"{name}:").removesuffix(".T")
        name = name if part == "0" else f"{name}[{part}]"
        if is_turned(key):
            spec, shape = transposed(spec), shape[::-1]
        yield _row(name, "data", spec, shape, array.dtype, placed.board)
    for kind, variables in (("latent", structure.latents), ("derived", structure.derived)):
        for name, variable in variables.items():
            yield _row(name, kind, placed.values[name], variable.shape, variable.dtype, placed.board)


def _row(name, kind, spec, shape, dtype, board):
    local = board.sharding(*spec).shard_shape(tuple(shape))
    words = ", ".join("+".join(axes_of(part)) or "." for part in spec) or "all"
    return Row(name, kind, words, tuple(shape), local, int(np.prod(local)) * np.dtype(dtype).itemsize)


def _gradient_text(bound, placed, layout):
    """Return the compiled density and gradient, with all arrays where the plan puts them."""
    board = placed.board

    def density(position, arrays):
        return bound.structure.log_density(placed.constrained(position, placed.free), arrays)

    shapes = {
        n: jax.ShapeDtypeStruct(s, layout.dtype, sharding=board.sharding(*placed.free[n]))
        for n, s in layout.shapes.items()
    }
    arrays = {
        n: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=board.sharding(*placed.arrays[n]))
        for n, a in bound.arrays.items()
    }
    out = board.sharding(), {n: x.sharding for n, x in shapes.items()}
    return jax.jit(jax.value_and_grad(density), out_shardings=out).lower(shapes, arrays).compile().as_text()


def _draws_bytes(bound, placed, chains, draws):
    structure, board = bound.structure, placed.board
    total = {"device": 0, "host": 0}
    for name in structure.recorded:
        variable = (structure.latents | structure.derived)[name]
        spec = placed.values[name]
        item = np.dtype(variable.dtype).itemsize * chains * draws
        if board.spreads(spec):
            local = board.sharding(*spec).shard_shape(tuple(variable.shape))
            total["device"] += int(np.prod(local)) * item // board.groups
        else:
            total["host"] += int(np.prod(variable.shape)) * item
    return total


def _notes(rows, found, board):
    divided = {}
    for row in rows:
        for whole, local in zip(row.shape, row.local, strict=True):
            if whole != local:
                divided.setdefault(whole, row.name)
    for row in rows:
        if row.shape == row.local and row.bytes >= LARGE and row.shape and row.shape[0] in divided:
            yield (
                f"{row.name!r} lies on every device in full, {_bytes(row.bytes)} each, and is as long as "
                f"{divided[row.shape[0]]!r}, which is divided: does it need an entry in sharding=?"
            )
    for exchange in found:
        if exchange.kind != "all-reduce" and exchange.bytes >= LARGE:
            yield (
                f"an {exchange.kind} of {_bytes(exchange.bytes)} for each gradient: the model needs parts of a "
                "divided array on devices that do not hold them (an index into it, for example); order rows so that "
                "they lie with what they point to, or leave that array undivided"
            )
    if not divided:
        yield "nothing is divided: give sharding= for data or latent variables" + (
            "" if board.groups > 1 else ", or name an axis of the mesh 'chains'"
        )


def _bytes(count):
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return ""
