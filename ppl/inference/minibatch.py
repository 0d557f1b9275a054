"""Mini-batches: each step sees some rows of the data, the same rows of each named entry, and densities are weighted.

    batch={"X": 256, "y": 256}

Whose density belongs to rows is found by tracing at two batch sizes: a variable whose first axis follows the batch is local
and gets the weight N / B, in the model and in the guide; one that stays is global. Then

    E[log density of a batch] = log density of all rows,

if no row's term depends on other rows, and no global term on rows. Both are found out before the first step: the first by
changing all rows but some, the second by changing all of them.

Rows are drawn one from each of B equal strata of the N rows, turned by a random offset: each row has probability B / N, none
is drawn twice, and the cost does not depend on N. Rows that are spread over devices are drawn on each device from its own.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import DataError, ModelError, listed, suggest
from ppl.inference.objectives import elbo
from ppl.inference.parameters import apart
from ppl.inference.variational import Problem
from ppl.tracing.bind import entry_of
from ppl.tracing.handle import handler


@dataclasses.dataclass(frozen=True)
class Rows:
    """Draws rows, as a function of `(key, arrays)`.

    Args:
      total: how many rows there are.
      size: how many of them a step sees.
      names: keys of the arrays that rows are taken of, for each program.
      parts: over how many devices the rows are spread.
      spec: their layout, or None.
    """

    total: int
    size: int
    names: tuple
    parts: int = 1
    spec: Any = None

    @property
    def key(self):
        """What compiled programs depend on."""
        return self

    def index(self, key):
        """Return the rows of a batch, [parts, size / parts], counted within each part."""
        total, size = self.total // self.parts, self.size // self.parts
        edges = np.arange(size + 1, dtype=np.int64) * total // size
        start_key, within_key = jax.random.split(key)
        start = jax.random.randint(start_key, (self.parts, 1), 0, total)
        low = jnp.asarray(edges[:-1], jnp.int32)[None]
        widths = jnp.broadcast_to(jnp.asarray(np.diff(edges), jnp.int32)[None], (self.parts, size))
        within = jax.random.randint(within_key, (self.parts, size), 0, widths)
        return (jnp.broadcast_to(start, within.shape) + jnp.broadcast_to(low, within.shape) + within) % total

    def __call__(self, key, arrays):
        """Return arrays with the rows of one batch."""
        index = self.index(key)

        def take(x):
            if self.parts == 1:
                return jnp.take(x, index[0], axis=0, unique_indices=True, mode="clip")
            shape = (self.parts, self.total // self.parts, *x.shape[1:])
            split = _laid(x.reshape(shape), self.spec)
            rows = jax.vmap(lambda part, i: jnp.take(part, i, axis=0, mode="clip"))(split, _laid(index, self.spec))
            return _laid(rows.reshape(self.size, *x.shape[1:]), self.spec)

        return {
            which: {n: take(x) if n in dict(self.names)[which] else x for n, x in given.items()}
            for which, given in arrays.items()
        }


def _laid(x, spec):
    return x if spec is None else jax.lax.with_sharding_constraint(x, spec)


@dataclasses.dataclass(frozen=True)
class Plain:
    """What `Problem.of` takes: a model, a guide, data, parameters and a map of names."""

    model: Any
    spec: Any
    data: dict
    params: Any
    align: Any

    def at(self, batch, size):
        """Return the problem bound to the first `size` rows."""
        rows = slice(0, size)
        part = {n: jax.tree.map(lambda x: np.asarray(x)[rows], v) if n in batch else v for n, v in self.data.items()}
        return Problem.of(self.model, self.spec, part, self.params, self.align, tuple(batch))


def split(full, plain, model, spec, batch, objective, placement):
    """Return `(problem, rows)`: the problem bound to one batch, reweighted, and the function that draws batches."""
    size, total = sizes(batch, plain.data)
    if objective is not elbo and not hasattr(objective, "surrogate"):
        raise ModelError(
            f"batch= needs an objective that is linear in the log densities, and {getattr(objective, '__name__', objective)!r} is "
            "none: its gradient from a part of the rows would be biased. Use objective=infer.elbo"
        )
    _all_rows_named(batch, plain.data, total)
    other = size + 1 if size < total else size - 1
    problem, second = (plain.at(batch, n) for n in (size, other))
    local = {w: _local(getattr(problem, w), getattr(second, w), w) for w in ("model", "guide")}
    rows = [n for n in local["model"] if n in full.model.structure.latents]
    if spec.free and rows:
        raise ModelError(
            f"{rows[0]!r} has a row for each row of batch, and an automatic guide would have parameters for the rows of one batch "
            "alone: write a guide that takes the data, or one that picks its parameters by an argument `rows`, with "
            "data={..., 'rows': jnp.arange(N)}"
        )
    if size > 1:
        _independent(problem, local, plain.params, size, batch)
    if local["model"]:
        model = _weighted(model, local["model"], total / size)
    if local["guide"]:
        spec = dataclasses.replace(spec, program=_weighted(spec.program, local["guide"], total / size))
    problem = dataclasses.replace(plain, model=model, spec=spec).at(batch, size)
    keys = tuple((w, _keys(getattr(problem, w), batch)) for w in ("model", "guide"))
    parts, layout = _parts(batch, placement, total, size)
    return problem, Rows(total, size, keys, parts, layout)


def _weighted(program, names, weight):
    """Return a program whose named variables have their densities multiplied; equal for equal arguments."""

    def respond(rv):
        if rv.name in names:
            rv = rv.replace(weight=weight * rv.weight)
        return (yield rv)

    return handler(program, respond, names=names)


def sizes(batch, data):
    """Return the batch size and the number of rows."""
    for name in batch:
        if name not in data:
            raise ModelError(f"batch has {name!r}, which data does not have ({listed(data)}).{suggest(name, data)}")
    sizes, lengths = set(batch.values()), {n: _length(data[n], n) for n in batch}
    if len(sizes) > 1:
        raise ModelError(f"batch has different sizes {sorted(sizes)}: its entries share their rows, so give one size")
    if len(set(lengths.values())) > 1:
        raise ModelError(
            f"batch names entries with different numbers of rows ({', '.join(f'{n}: {v}' for n, v in lengths.items())}): they "
            "share their rows"
        )
    size, total = sizes.pop(), next(iter(lengths.values()))
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 1 <= size <= total:
        raise ModelError(f"batch={size!r}: give a whole number of rows, from 1 to {total}")
    if total < 2:
        raise ModelError("batch= needs at least two rows")
    return int(size), int(total)


def _length(value, name):
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(f"batch names {name!r}, which is a masked array: leave missing entries out with ppl.mask")
    shapes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(value)}
    if len(shapes) != 1 or () in shapes:
        raise ModelError(f"batch names {name!r}, which has no first axis to take rows of")
    return shapes.pop()[0]


def _all_rows_named(batch, data, total):
    """Refuse an array of as many rows that is left out of the batch."""
    for name, value in data.items():
        if name in batch or not isinstance(value, np.ndarray | jax.Array | list) and not hasattr(value, "to_numpy"):
            continue
        if np.ndim(value) and np.shape(value)[0] == total:
            raise ModelError(
                f"data[{name!r}] has {total} rows as the entries of batch have, and is not among them: add {name!r} to batch, or "
                "give it another shape if its axis is no axis of rows"
            )


def _local(first, second, which):
    """Return the names of variables whose first axis follows the batch."""
    one, two = _shapes(first), _shapes(second)
    found = []
    for name, shape in one.items():
        other = two.get(name)
        if other == shape:
            continue
        if other is None or len(other) != len(shape) or not shape or shape[1:] != other[1:]:
            raise ModelError(
                f"{name!r} in the {which} has shape {shape}, and {other} for a batch of another size: only its first axis may "
                "follow the rows of batch"
            )
        found.append(name)
    return tuple(found)


def _shapes(bound):
    """Return the shapes of all variables of a bound program."""
    structure = bound.structure
    if ("shapes",) not in structure.compiled:
        like = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in bound.arrays.items()}
        sites = jax.eval_shape(lambda a: structure.run(a, shapes=True, density=False)[1], like)
        structure.compiled[("shapes",)] = {n: sites[n].value.shape for n in structure.families}
    return structure.compiled[("shapes",)]


def _independent(problem, local, params, size, batch):
    """Refuse rows whose terms depend on other rows, and global terms that depend on rows or on local variables.

    All is evaluated at one draw of the guide (at parameters near the first ones), and again with some rows exchanged.
    """
    key = jax.random.key(0)
    trained = apart(params)[0]
    leaves, outline = jax.tree.flatten(trained)
    keys = jax.random.split(key, max(len(leaves), 1))
    near = [x + 0.1 * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=False)]
    trained = jax.tree.unflatten(outline, near)
    wanted = dict(problem.names)
    local_noise = set(local["guide"])
    local_values = {wanted[n] for n in local_noise if n in wanted} | {n for n in local["model"]}

    def terms(noise, values, arrays):
        _, ours = problem.guide.structure.run(problem._given("guide", trained, arrays), values=noise)
        theirs = problem.sites(values, trained, arrays)
        return {
            w: {n: s.log_prob for n, s in found.items() if s.log_prob is not None}
            for w, found in (("guide", ours), ("model", theirs))
        }

    terms = jax.jit(terms)

    def drawn(arrays):
        draw = problem.draw(key, trained, arrays)
        return draw.noise, draw.values

    first_noise, first_values = jax.jit(drawn)(problem.arrays)
    before = jax.device_get(terms(first_noise, first_values, problem.arrays))
    batch_keys = {w: _keys(getattr(problem, w), batch) for w in ("model", "guide")}
    kept = np.arange(size) % 2 == 0
    for exchanged, whose in ((np.flatnonzero(~kept), "others"), (np.arange(size), "all")):
        order = np.arange(size)
        order[exchanged] = np.roll(exchanged, 1) if whose == "all" else exchanged - 1  # rows that are kept too
        arrays = {
            w: {n: a[order] if n in batch_keys[w] else a for n, a in given.items()}
            for w, given in problem.arrays.items()
        }
        noise = {n: v[order] if n in local_noise else v for n, v in first_noise.items()}
        values = {n: v[order] if n in local_values else v for n, v in first_values.items()}
        after = jax.device_get(terms(noise, values, arrays))
        for which, found in before.items():
            for name, term in found.items():
                is_local = name in local[which]
                if is_local and np.shape(term)[:1] != (size,):
                    raise ModelError(
                        f"{name!r} in the {which} has one density for all rows, not one for each: batch= is for independent rows; "
                        "leave it out here"
                    )
                if is_local and whose == "others" and not _same(term[kept], after[which][name][kept]):
                    raise ModelError(
                        f"{name!r} in the {which} has terms that depend on other rows than their own, so a part of the rows would "
                        "change them: batch= is for independent rows; leave it out here"
                    )
                if not is_local and not _same(term, after[which][name]):
                    raise ModelError(
                        f"{name!r} in the {which} depends on the rows of batch or on variables that belong to them, and has no "
                        "row for each: from a part of the rows its term would be another one. Give it a row for each, or leave "
                        "batch= out"
                    )


def _same(a, b):
    return np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)


def _keys(bound, batch):
    """Return the keys of arrays that belong to entries of batch."""
    return frozenset(key for key in bound.arrays if entry_of(key) in batch)


def _parts(batch, placement, total, size):
    """Return over how many devices rows are spread, and the layout of their first axis."""
    specs = {spec for name, spec in placement.specs if name in batch}
    firsts = {(spec[0] if len(spec) else None) for spec in specs}
    if not specs or firsts == {None}:
        return 1, None
    axes = firsts.pop()
    if firsts or any(n not in dict(placement.specs) for n in batch):
        raise ModelError(
            f"sharding spreads the rows of some entries of batch and not of others ({listed(batch)}): spread all alike"
        )
    count = int(np.prod([placement.mesh.shape[a] for a in ((axes,) if isinstance(axes, str) else axes)]))
    if size % count or total % count:
        raise ModelError(
            f"batch takes {size} of {total} rows, which lie on {count} devices: both numbers must be multiples of {count}, so that "
            "each device draws from its own rows"
        )
    return count, jax.sharding.NamedSharding(placement.mesh, jax.sharding.PartitionSpec(axes))
