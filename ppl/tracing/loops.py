"""Loops and groups: programs that a model may yield.

    carry, out = yield Scan(step, init, xs, name="path")      # step(carry, x): a model that returns (carry, out)
    out = yield Map(group, xs, name="g")                      # group(x): a model

They return what `jax.lax.scan` and `jax.vmap` return. Their variables are recorded stacked, as `path/x` and `g/b`, and are
observed, sharded and handled under these names. A step is traced once or a few times whatever the length, so the time to
compile does not grow with it.

A loop whose carry does not depend on the carry before it, given the values of its variables (a latent path, all observed),
is evaluated in parallel over time.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ppl.errors import ModelError
from ppl.tracing.handle import Program, handle, model_name, pass_on


class _Loop(Program):
    """What loops share: naming, slicing what is given, and running one step as a block."""

    def __post_init__(self):
        if self.wrap == () and self.name is not None:
            object.__setattr__(self, "wrap", ((pass_on, self.name),))  # the naming is innermost

    def body(self, program, index):
        """Return one step's generator under every handler noted on the loop, nearest first."""
        if not hasattr(program, "send"):
            raise ModelError(
                f"{self.name!r}: its body {model_name(self.function)!r} has no `yield`; a step is a generator function"
            )
        length = self.steps

        def stamp(rv):
            return (yield rv.replace(loops=((index, length), *rv.loops)))

        program = handle(program, stamp)
        for respond, prefix in self.wrap:
            program = handle(program, respond, prefix)
        return program

    def slices(self, ctx):
        """Return what `ctx` gives to this loop's variables, each with the loop's length as its first axis."""
        given = ctx.under(f"{self.name}/")
        for field in ("data", "values", "free", "missing"):
            for name, value in given[field].items():
                value = given[field][name] = jnp.asarray(value)
                length = value.shape[0] if value.ndim else None
                if length == self.steps:
                    continue
                if length is None or length > self.steps or ctx.complete:
                    raise ModelError(
                        f"{name!r} runs over the {self.steps} steps of {self.name!r}, but was given "
                        f"{'a single number' if length is None else f'{length} steps'}"
                    )
                short = self.steps - length
                given[field][name] = jnp.concatenate([value, jnp.zeros((short, *value.shape[1:]), value.dtype)])
                given["present"][name] = jnp.arange(self.steps) < length
        return given

    @property
    def steps(self):
        """How many steps there are."""
        if getattr(self, "length", None) is not None:
            return int(self.length)
        lengths = {jnp.shape(x)[0] if jnp.ndim(x) else None for x in jax.tree.leaves(self.xs)}
        if len(lengths) != 1 or None in lengths:
            raise ModelError(
                f"{self.name!r}: " + ("pass xs or length=" if not lengths else f"xs have different lengths {sorted(map(str, lengths))}")
            )
        return lengths.pop()

    def leave(self, returned, sites, order):
        """Put sites back in program order: jax sorts the keys of a dict."""
        return returned, {name: sites[name] for name in order}


def _remember(order, sites):
    order[:] = list(sites)


@dataclasses.dataclass(frozen=True, eq=False)
class Scan(_Loop):
    """A loop with a carry; `(carry, out) = yield Scan(step, init, xs, length=, name=)`.

    Args:
      step: a generator function `step(carry, x)` that returns `(carry, out)`.
      init: the first carry, a pytree.
      xs: a pytree of arrays with a common first axis, or None.
      length: how many steps, when `xs` is None.
      name: the variables of the loop are called `name/...`.
    """

    step: Any
    init: Any
    xs: Any = None
    length: int | None = None

    @property
    def function(self):
        """The body."""
        return self.step

    def run(self, ctx):
        """Run the loop as an interpreter's block; see `programs.run_block`."""
        from ppl.tracing.programs import run_block

        order = []
        init = jax.tree.map(jnp.asarray, self.init)

        def step(carry, inputs):
            index, x, given = inputs
            inner = dataclasses.replace(ctx, **given)
            result, sites = run_block(self.body(self.step(carry, x), index), inner)
            if not isinstance(result, tuple) or len(result) != 2:
                raise ModelError(f"{self.name!r}: a step returns `(carry, out)`, but {model_name(self.step)!r} returned {result!r}")
            _remember(order, sites)
            return _same_types(self, carry, result[0]), (result[1], sites)

        if self.steps == 0:
            return (init, self._nothing(init)), {}
        inputs = (jnp.arange(self.steps), self.xs, self.slices(ctx))
        if ctx.complete and not _carry_depends(step, init, inputs):
            carry, (out, sites) = _parallel(step, init, inputs)
        else:
            carry, (out, sites) = lax.scan(step, init, inputs)
        return self.leave((carry, out), sites, order)

    def _nothing(self, init):
        """Return the empty `out` of a loop without steps."""
        from ppl.tracing.programs import Context, run_block

        def out(carry, x):
            ctx = Context(shapes=True, density=False)
            return run_block(self.body(self.step(carry, x), 0), ctx)[0][1]

        x = jax.tree.map(lambda x: jnp.zeros(jnp.shape(x)[1:], jnp.result_type(x)), self.xs)
        return jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), jax.eval_shape(out, init, x))


def _same_types(loop, before, after):
    """Return the new carry if it has the old one's structure, shapes and dtypes; otherwise refuse."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise ModelError(
            f"{loop.name!r}: the carry starts as {jax.tree.structure(before)} and a step returns {jax.tree.structure(after)}"
        )

    def one(old, new):
        new = jnp.asarray(new)
        if old.shape != new.shape:
            raise ModelError(f"{loop.name!r}: the carry starts with shape {old.shape} and a step returns shape {new.shape}")
        if old.dtype != new.dtype:
            if jnp.issubdtype(new.dtype, jnp.inexact) and not jnp.issubdtype(old.dtype, jnp.inexact):
                raise ModelError(
                    f"{loop.name!r}: the carry starts as {old.dtype} and a step returns {new.dtype}: start with a float, such as 0."
                )
            new = new.astype(old.dtype)
        return new

    return jax.tree.map(one, before, after)


def _carry_depends(step, init, inputs):
    """Tell whether the new carry depends on the old one, by the jaxpr of a step."""
    leaves, structure = jax.tree.flatten(init)
    first = jax.tree.map(lambda x: x[0], inputs)

    def carries(*old):
        return jax.tree.leaves(step(jax.tree.unflatten(structure, old), first)[0])

    jaxpr = jax.make_jaxpr(carries)(*leaves).jaxpr
    return depends(jaxpr, jaxpr.invars)


def depends(jaxpr, variables):
    """Tell whether an output of `jaxpr` depends on one of `variables`."""
    reached = {id(v) for v in variables}
    for equation in jaxpr.eqns:
        if any(id(v) in reached for v in equation.invars):
            reached.update(id(v) for v in equation.outvars)
    return any(id(v) in reached for v in jaxpr.outvars)


def _parallel(step, init, inputs):
    """Run all steps at once: valid when the carry does not depend on the one before it."""
    length = inputs[0].shape[0]
    carries, _ = jax.vmap(step, in_axes=(None, 0))(init, inputs)
    before = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest[: length - 1]]), init, carries)
    _, stacked = jax.vmap(step)(before, inputs)
    return jax.tree.map(lambda c: c[-1], carries), stacked


@dataclasses.dataclass(frozen=True, eq=False)
class Map(_Loop):
    """Independent groups; `out = yield Map(group, xs, name=)`: `group(x)` for each entry along the first axis of `xs`.

    Args:
      group: a generator function of one entry.
      xs: a pytree of arrays with a common first axis.
      name: the variables of the groups are called `name/...`.
    """

    group: Any
    xs: Any = None
    length: int | None = None

    @property
    def function(self):
        """The body."""
        return self.group

    def run(self, ctx):
        """Run all groups as an interpreter's block; see `programs.run_block`."""
        from ppl.tracing.programs import run_block

        order = []

        def one(index, x, given):
            out, sites = run_block(self.body(self.group(x), index), dataclasses.replace(ctx, **given))
            _remember(order, sites)
            return out, sites

        out, sites = jax.vmap(one)(jnp.arange(self.steps), self.xs, self.slices(ctx))
        return self.leave(out, sites, order)
