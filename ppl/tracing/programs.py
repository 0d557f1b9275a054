"""What may be done with a model: draw from it, trace it, evaluate its joint density.

    sample(model, key, data)                 one draw of everything
    trace(model, data)                       a table of its variables
    log_joint(model, values, data)           the sum of the log densities at given values
    log_density(model, data)                 that sum as a pure function on unconstrained space (see `bind`)

All rest on `run_block`, the interpreter at the end of every chain of handlers. What it knows is a `Context`, a plain value.
"""

import dataclasses
import html
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import ModelError, listed, suggest
from ppl.random_variable import RandomVariable, as_value, weighted_log_prob
from ppl.sharding import place
from ppl.tracing.entries import as_array, split
from ppl.tracing.handle import Program, checked, model_name, refuse_model
from ppl.tracing.slips import UNKNOWN, explain, own_line, warn_dropped


@dataclasses.dataclass(frozen=True)
class Context:
    """What the interpreter knows while it runs a block.

    `data`, `values`, `free`, `missing` and `present` map full names to arrays; inside a loop they hold the current slices.
    """

    data: dict = dataclasses.field(default_factory=dict)  # observed values
    values: dict = dataclasses.field(default_factory=dict)  # latent values, natural scale
    free: dict = dataclasses.field(default_factory=dict)  # latent values, unconstrained
    missing: dict = dataclasses.field(default_factory=dict)  # True where an observed entry is missing, and latent
    present: dict = dataclasses.field(default_factory=dict)  # inside loops: whether this step's given value exists
    key: Any = None  # for drawing what is not given
    shapes: bool = False  # stand any member of the support in for what is not given: for finding names and shapes
    density: bool = True  # whether log densities are wanted
    inside: frozenset = frozenset()  # observed names whose values are known to lie in their supports
    watch: Any = None  # called with each variable, its value and its log density

    GIVEN = ("data", "values", "free", "missing", "present")

    @property
    def complete(self):
        """Whether everything must be given."""
        return self.key is None and not self.shapes

    def draw(self, rv):
        """Return a value for a variable that was given none."""
        if self.shapes:
            like = jnp.zeros(rv.shape, rv.dtype)
            return jnp.broadcast_to(jnp.asarray(rv.support.feasible(like), rv.dtype), rv.shape)
        return as_value(rv, rv.sample(draw_key(self.key, rv)))

    def log_prob(self, rv, value, inside):
        """Return the weighted log density of one variable at its value."""
        return weighted_log_prob(rv, value, inside)

    def under(self, prefix):
        """Return the given arrays whose names start with `prefix`, by field."""
        return {f: {n: v for n, v in getattr(self, f).items() if n.startswith(prefix)} for f in self.GIVEN}


@dataclasses.dataclass(frozen=True)
class Site:
    """What one variable contributed to a run: a pytree, stacked over the steps of the loops around it."""

    value: Any
    log_prob: Any  # of the batch shape; None for derived variables, or when no density was asked for
    log_volume: Any  # of the map from free space, summed; 0 where nothing was mapped
    free: Any  # the free value of a latent variable, where a value was given on either scale
    inside: Any  # whether a value given on the natural scale lies in the support
    role: str
    family: str
    shape: tuple  # of one step
    free_shape: tuple | None  # of one step; None if discrete


jax.tree_util.register_dataclass(
    Site,
    data_fields=["value", "log_prob", "log_volume", "free", "inside"],
    meta_fields=["role", "family", "shape", "free_shape"],
)


def draw_key(key, rv):
    """Return the key of one variable: a function of its name and its place in the loops around it, of nothing else."""
    key = jax.random.fold_in(as_key(key), zlib.crc32(rv.name.encode()))
    for index, _ in rv.loops:
        key = jax.random.fold_in(key, index)
    return key


def as_key(seed):
    """Return a typed jax key for an int, a typed key or a raw uint32 key."""
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
        return jax.random.key(int(seed) % 2**63) if seed >= 0 else jax.random.key(int(seed))
    if isinstance(seed, jax.Array | np.ndarray):
        if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
            return seed
        if seed.dtype == np.uint32 and seed.shape == (2,):
            return jax.random.wrap_key_data(jnp.asarray(seed))
    raise TypeError(f"a seed is an int or a jax key (jax.random.key(0) or PRNGKey(0)), not {seed!r}")


def run_block(program, ctx):
    """Run a generator to its end. Returns `(what it returned, {full name: Site})`, sites in program order."""
    sites, value, error = {}, None, None
    while True:
        try:
            request = program.send(value) if error is None else program.throw(error)
        except StopIteration as stop:
            return stop.value, sites
        except (TypeError, *UNKNOWN) as e:
            explain(e)
            raise
        try:
            request = checked(request, program)
            if isinstance(request, Program):
                value, more = request.run(ctx)
            else:
                site = answer(request, ctx)
                value, more = site.value, {request.name: site}
            for name in more:
                if name in sites:
                    raise ModelError(
                        f"two random variables are called {name!r}: give one another name, or run each part under "
                        "`yield from ppl.scope(name, part(...))`"
                    )
            sites.update(more)
            error = None
        except ModelError as e:
            error = e if isinstance(request, Program) else e.with_traceback(None)


def answer(rv, ctx):
    """Give one variable its value: observed, given, or drawn. Returns its `Site`."""
    name, role = rv.name, rv.role
    free, log_volume, inside = None, 0.0, None
    if rv.value is not None:
        if name in ctx.data:
            raise ModelError(
                f"{rv._label()} is {role} inside the model, and `data` has {name!r} too: remove it from one of them"
            )
        value = rv.value
    elif name in ctx.data and name not in ctx.missing:
        role, value = "observed", as_value(rv, ctx.data[name])
    else:
        value, free, log_volume, inside = _latent(rv, ctx)
        if name in ctx.missing:
            role, gone = "observed", _may_miss(rv, ctx.missing[name])
            value = jnp.where(gone, value, as_value(rv, ctx.data[name]))
            log_volume = jnp.where(gone, log_volume, 0.0)
            inside = None if inside is None else inside | ~gone
    if name in ctx.present:
        value = jnp.where(ctx.present[name], value, ctx.draw(rv))
    value = place(value, _step_sharding(rv), rv._label())
    log_prob = None
    if ctx.density and role != "derived":
        mapped = name in ctx.free and role == "latent"
        log_prob = ctx.log_prob(rv, value, mapped or (name in ctx.inside and name in ctx.data))
    if ctx.watch is not None:
        ctx.watch(rv, value, log_prob)
    free_shape = None if rv.support.discrete else tuple(rv.support.free_shape(rv.shape))
    return Site(value, log_prob, log_volume, free, inside, role, type(rv).__name__, rv.shape, free_shape)


def _step_sharding(rv):
    """Return the sharding of one step's value: a spec names the axes of the whole value, the loops' axes first."""
    if rv.sharding is None or not rv.loops:
        return rv.sharding
    spec = getattr(rv.sharding, "spec", rv.sharding)
    outer, inner = tuple(spec)[: len(rv.loops)], tuple(spec)[len(rv.loops) :]
    if any(axis is not None for axis in outer):
        raise ModelError(f"{rv._label()}: the axis of a loop cannot be sharded, but its sharding is {spec}")
    spec = jax.sharding.PartitionSpec(*inner)
    mesh = getattr(rv.sharding, "mesh", None)
    return spec if mesh is None else jax.sharding.NamedSharding(mesh, spec)


def _latent(rv, ctx):
    """Return `(value, free value, log volume, inside)` of what is latent; the last three where they are known."""
    name, support = rv.name, rv.support
    if name in ctx.free:
        if support.discrete:
            raise ModelError(discrete_latent(name, type(rv).__name__))
        free = jnp.asarray(ctx.free[name])
        value, log_volume = support.constrain(free)
        return as_value(rv, value), free, log_volume, None
    if name in ctx.values:
        value = as_value(rv, ctx.values[name])
        if not ctx.density or support.discrete:
            return value, None, 0.0, None
        free = support.free(value)
        return value, free, support.constrain(free)[1], support.contains(value)
    if not ctx.complete:
        return ctx.draw(rv), None, 0.0, None
    known = listed([*ctx.values, *ctx.free])
    raise ModelError(
        f"{rv._label()} is latent and was given no value (given: {known or 'none'}).{suggest(name, ctx.values)}"
    )


def _may_miss(rv, gone):
    """Return the mask of missing entries if a variable's entries may be missing one by one; otherwise refuse."""
    if rv.support.discrete or rv.event_ndim or tuple(rv.support.free_shape(rv.shape)) != rv.shape:
        raise ModelError(
            f"{rv._label()} has missing entries, which only continuous variables with independent entries may have. "
            f"Leave them out with ppl.mask(model, {rv.name}=...)"
        )
    return gone


def discrete_latent(name, family):
    """Word the refusal of a discrete latent variable."""
    return (
        f"{name!r} ({family}) is discrete and latent: a gradient cannot move it. Sum it out (Mixture, or a log density "
        f"in a Factor), observe it in `data`, or fix it with ppl.do(model, {name}=...)"
    )


def run(model, arguments, ctx):
    """Run `model(**arguments)` as the outermost block. The traceback of a ModelError ends at the user's own line."""
    try:
        program = model(**arguments)
        if not hasattr(program, "send"):
            refuse_model(model, program)
        warn_dropped(model)
        returned, sites = run_block(program, ctx)
        if isinstance(returned, RandomVariable):
            refuse_model(model, returned)
    except ModelError as e:
        e.__traceback__ = own_line(e.__traceback__)
        raise
    return returned, sites


def run_parts(model, parts, ctx):
    """Run a model with sorted data, and compare the data's names and its nan with what the model had."""
    try:
        returned, sites = run(model, parts.arguments, ctx)
    except ModelError as e:
        for name in parts.nans:  # the likely cause
            parts.refuse_nan(name)
        raise e
    parts.check_names(sites)
    return returned, sites


def total(sites, volume):
    """Return the joint log density: the sum of all log densities, and of the volume terms if asked for."""
    terms = [jnp.sum(site.log_prob) for site in sites.values() if site.log_prob is not None]
    if volume:
        terms += [jnp.sum(s.log_volume) for s in sites.values() if s.free is not None and s.role != "derived"]
    return sum(terms[1:], terms[0]) if terms else jnp.zeros(())


class Trace(dict):
    """The sites of one run by full name, in program order; prints as a table. `returned` is what the model returned."""

    def __init__(self, sites, returned=None):
        super().__init__(sites)
        self.returned = returned

    @property
    def log_joint(self):
        """The sum of the log densities."""
        return total(self, volume=False)

    def table(self):
        """Return rows of (name, family, shape, role, log density)."""
        return [
            (
                name,
                site.family,
                str(tuple(np.shape(site.value))),
                site.role,
                "" if site.log_prob is None else f"{float(jnp.sum(site.log_prob)):.4f}",
            )
            for name, site in self.items()
        ]

    def __repr__(self):
        rows = [("name", "family", "shape", "role", "log density"), *self.table()]
        rows.append(("", "", "", "total", f"{float(self.log_joint):.4f}"))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = [
            "  ".join(
                cell.rjust(w) if i == 4 else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self):
        cells = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in self.table())
        head = "".join(f"<th>{h}</th>" for h in ("name", "family", "shape", "role", "log density"))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{cells}</tbody></table>"


def trace(
    model: Callable[..., Any],
    data: Mapping[str, Any] | None = None,
    key: Any = 0,
    values: Mapping[str, Any] | None = None,
) -> Trace:
    """Run a model once and return a `Trace`: names, families, shapes, roles, values and log densities.

    Args:
      model: a generator function.
      data: arguments of the model and values of its observed variables, by name.
      key: an int or a jax key, for what neither `data` nor `values` gives.
      values: values of latent variables on their natural scale.
    """
    parts = split(model, data)
    values = _given(values or {}, parts)
    ctx = Context(data=parts.observed, missing=parts.missing, values=values, key=as_key(key))
    returned, sites = run_parts(model, parts, ctx)
    _known(values, sites, model)
    return Trace(sites, returned)


def _given(values, parts):
    """Return given values as arrays; those of missing entries alone are put in their places in the whole."""
    given = {name: jnp.asarray(as_array(f"values[{name!r}]", v)) for name, v in values.items()}
    for name, gone in parts.missing.items():
        if name in given and given[name].shape == (gone.sum(),):
            given[name] = jnp.zeros(gone.shape, given[name].dtype).at[np.nonzero(gone)].set(given[name])
    return given


def _known(values, sites, model):
    for name in values:
        if name not in sites:
            raise ModelError(
                f"{name!r} is no random variable of {model_name(model)!r} ({listed(sites)}).{suggest(name, sites)}"
            )


def sample(model: Callable[..., Any], key: Any = 0, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Draw every variable of a model that `data` does not fix: `{name: value}`, deterministic values included."""
    parts = split(model, data)
    ctx = Context(data=parts.observed, missing=parts.missing, key=as_key(key), density=bool(parts.nans))
    _, sites = run_parts(model, parts, ctx)
    return {name: site.value for name, site in sites.items()}


def log_joint(
    model: Callable[..., Any], values: Mapping[str, Any], data: Mapping[str, Any] | None = None, volume: bool = False
) -> jax.Array:
    """Return the sum of the log densities of all variables at `values` and `data`.

    Args:
      model: a generator function.
      values: the values of all latent variables, on their natural scale.
      data: arguments and observed values, by name.
      volume: whether to add the log volume terms of the maps from free space; the sum is then the log density of the free
        values, the one that samplers see.
    """
    parts = split(model, data)
    values = _given(values, parts)
    _, sites = run_parts(model, parts, Context(data=parts.observed, missing=parts.missing, values=values))
    _known(values, sites, model)
    return total(sites, volume)
