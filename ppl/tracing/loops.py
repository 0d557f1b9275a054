"""Loops and groups: programs that a model may yield.

    carry, out = yield Scan(step, init, xs, name="path")      # step(carry, x): a model that returns (carry, out)
    out = yield Map(group, xs, name="g")                      # group(x): a model

They return what `jax.lax.scan` and `jax.vmap` return. Their variables are recorded stacked, as `path/x` and `g/b`, and are
observed, sharded and handled under these names. A step is traced once or a few times whatever the length, so the time to
compile does not grow with it. A loop without steps has no variables.

A loop whose carry does not depend on the carry before it, given the values of its variables (a latent path, all observed),
is evaluated in parallel over time.
"""

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ppl.errors import ModelError
from ppl.tracing.handle import Program, describe, handle, model_name, pass_on
from ppl.tracing.programs import Context, run_block


class _Loop(Program):
    """What loops share: naming, slicing what is given, and running one step as a block."""

    def __post_init__(self):
        if self.wrap == () and self.name is not None:
            object.__setattr__(self, "wrap", ((pass_on, self.name, ()),))  # the naming is innermost
        if not callable(self.function):
            raise ModelError(f"{self._label()}: its body is {self.function!r}; it must be a generator function")
        try:
            inspect.signature(self.function).bind(*self.takes)
        except TypeError as e:
            call = f"{model_name(self.function)}({', '.join(self.takes)})"
            raise ModelError(f"{self._label()}: its body is called as {call}: {e}") from None
        except ValueError:  # no signature to look at
            pass

    def _label(self):
        return f"{self.name!r} ({type(self).__name__})" if self.name else type(self).__name__

    @property
    def function(self):
        """The body."""
        return getattr(self, self.body_name)

    def body(self, program, index):
        """Return one step's generator under every handler noted on the loop, nearest first."""
        if not hasattr(program, "send"):
            raise ModelError(
                f"{self._label()}: its body {model_name(self.function)!r} has no `yield`; a step is a generator function"
            )
        length = self.steps

        def stamp(rv):
            return (yield rv.replace(loops=((index, length), *rv.loops)))

        program = handle(program, stamp)
        for respond, prefix, names in self.wrap:
            program = handle(program, respond, prefix, names)
        return program

    def slices(self, ctx):
        """Return what `ctx` gives to this loop's variables, each with the loop's length as its first axis."""
        given = ctx.under(f"{self.name}/")
        present = given["present"] = {n: jnp.broadcast_to(p, (self.steps,)) for n, p in given["present"].items()}
        for field in ("data", "values", "free", "missing"):
            for name, value in given[field].items():
                value = given[field][name] = jnp.asarray(value)
                length = value.shape[0] if value.ndim else None
                if length == self.steps:
                    continue
                if length is None or length > self.steps or ctx.complete:
                    raise ModelError(
                        f"{name!r} runs over the {self.steps} steps of {self.name!r}, but was given "
                        f"{'a single number' if length is None else f'{length} steps'}: "
                        "give one value a step, or change how many steps there are"
                    )
                rest = jnp.zeros((self.steps - length, *value.shape[1:]), value.dtype)
                given[field][name] = jnp.concatenate([value, rest])
                known = jnp.arange(self.steps) < length
                present[name] = present.get(name, True) & known  # those of outer loops, and of this one
        return given

    @property
    def steps(self):
        """How many steps there are."""
        shapes = [jnp.shape(x) for x in jax.tree.leaves(self.xs)]
        if () in shapes:
            raise ModelError(
                f"{self._label()}: xs runs along the first axis of arrays, but holds a single number: pass arrays, such as "
                "jnp.asarray of a list"
            )
        lengths = sorted({shape[0] for shape in shapes})
        length = self.length
        if length is not None and (not isinstance(length, int | np.integer) or isinstance(length, bool) or length < 0):
            given = "an array" if isinstance(length, jax.Array) else repr(length)
            raise ModelError(
                f"{self._label()}: length is {given}: it must be a Python int, at least 0: an entry of `data`, or x.shape[0]"
            )
        if len(lengths) > 1:
            raise ModelError(f"{self._label()}: xs have different lengths {lengths} along their first axes")
        if length is not None and lengths and lengths != [length]:
            raise ModelError(
                f"{self._label()}: length={length}, but xs have length {lengths[0]}: leave one of them out"
            )
        if length is None and not lengths:
            raise ModelError(f"{self._label()}: how many steps? Pass xs or length=")
        return int(length) if length is not None else lengths[0]

    def nothing(self, body):
        """Return the `out` of a loop without steps: empty arrays. `body(x)` is a running step."""
        x = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)), self.xs)
        like = jax.eval_shape(
            lambda x: self.out(run_block(self.body(body(x), 0), Context(shapes=True, density=False))[0]), x
        )
        return jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), like)

    def stackable(self, out):
        """Return what a step returns, as arrays; refuse what cannot be stacked."""
        try:
            return jax.tree.map(jnp.asarray, out)
        except TypeError:
            raise ModelError(
                f"{self._label()}: what a step returns is stacked, so it must be arrays, but {model_name(self.function)!r} "
                f"returned {describe(out)}"
            ) from None


@dataclasses.dataclass(frozen=True, eq=False)
class Scan(_Loop):
    """A loop with a carry; `(carry, out) = yield Scan(step, init, xs, length=, name=)`.

      >>> def step(x, _):
      ...     x = yield ppl.Normal(x, 1.0, name="x")
      ...     return x, x
      >>> def walk(steps):
      ...     end, path = yield ppl.Scan(step, 0.0, length=steps, name="path")
      >>> ppl.sample(walk, 0, {"steps": 5})["path/x"].shape
      (5,)

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

    body_name = "step"
    takes = ("carry", "x")

    def run(self, ctx):
        """Run the loop as an interpreter's block; see `programs.run_block`."""
        order = []
        try:
            if any(isinstance(leaf, str | bytes) for leaf in jax.tree.leaves(self.init)):
                raise TypeError("text")
            init = jax.tree.map(jnp.asarray, self.init)
        except TypeError:
            raise ModelError(f"{self._label()}: the carry must be arrays, but starts as {self.init!r}") from None

        def step(carry, inputs):
            index, x, given = inputs
            result, sites = run_block(self.body(self.step(carry, x), index), dataclasses.replace(ctx, **given))
            out = self.out(result)
            order[:] = list(sites)
            return _same_types(self, carry, result[0]), (out, sites)

        if self.steps == 0:
            return (init, self.nothing(lambda x: self.step(init, x))), {}
        inputs = (jnp.arange(self.steps), self.xs, self.slices(ctx))
        if ctx.complete and not _carry_depends(step, init, inputs):
            carry, (out, sites) = _parallel(step, init, inputs)
        else:
            carry, (out, sites) = lax.scan(step, init, inputs)
        return (carry, out), {name: sites[name] for name in order}  # jax has sorted them

    def out(self, result):
        """Return the second part of what a step returned."""
        if not isinstance(result, tuple) or len(result) != 2:
            raise ModelError(
                f"{self._label()}: a step returns a pair, `return carry, out`, but {model_name(self.step)!r} returned "
                f"{describe(result)}"
            )
        return self.stackable(result[1])


def _same_types(loop, before, after):
    """Return the new carry if it has the old one's structure, shapes and dtypes; otherwise refuse."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise ModelError(
            f"{loop._label()}: the carry starts as {_outline(before)}, and a step returns {_outline(after)}: they must have the "
            "same structure"
        )

    def one(old, new):
        try:
            new = jnp.asarray(new)
        except TypeError:
            raise ModelError(f"{loop._label()}: the carry must be arrays, but a step returns {new!r}") from None
        if old.shape != new.shape:
            raise ModelError(
                f"{loop._label()}: the carry starts with shape {old.shape}, and a step returns shape {new.shape}: start with "
                f"jnp.zeros({new.shape}), or return one of the first shape"
            )
        if jnp.issubdtype(new.dtype, jnp.inexact) and not jnp.issubdtype(old.dtype, jnp.inexact):
            raise ModelError(
                f"{loop._label()}: the carry starts as {old.dtype}, and a step returns {new.dtype}: start with a float, such as 0."
            )
        return new.astype(old.dtype)

    return jax.tree.map(one, before, after)


def _outline(carry):
    """Return a carry's structure in a few characters, with its shapes."""
    return str(jax.tree.map(lambda x: f"array{jnp.shape(x)}", carry)).replace("'", "")


def _carry_depends(step, init, inputs):
    """Tell whether the new carry depends on the old one, by the jaxpr of a step."""
    leaves, structure = jax.tree.flatten(init)
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)), inputs)

    def carries(old, inputs):
        return jax.tree.leaves(step(jax.tree.unflatten(structure, old), inputs)[0])

    jaxpr = jax.make_jaxpr(carries)(leaves, first).jaxpr
    return depends(jaxpr, jaxpr.invars[: len(leaves)])


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

      >>> def group(size):
      ...     b = yield ppl.Normal(0.0, size, name="b")
      >>> def groups(sizes):
      ...     yield ppl.Map(group, sizes, name="g")
      >>> ppl.sample(groups, 0, {"sizes": [1.0, 2.0, 3.0]})["g/b"].shape
      (3,)

    Args:
      group: a generator function of one entry.
      xs: a pytree of arrays with a common first axis, or None.
      length: how many groups, when `xs` is None.
      name: the variables of the groups are called `name/...`.
    """

    group: Any
    xs: Any = None
    length: int | None = None

    body_name = "group"
    takes = ("x",)

    def run(self, ctx):
        """Run all groups as an interpreter's block; see `programs.run_block`."""
        order = []

        def one(index, x, given):
            out, sites = run_block(self.body(self.group(x), index), dataclasses.replace(ctx, **given))
            order[:] = list(sites)
            return self.out(out), sites

        if self.steps == 0:
            return self.nothing(self.group), {}
        out, sites = jax.vmap(one)(jnp.arange(self.steps), self.xs, self.slices(ctx))
        return out, {name: sites[name] for name in order}  # jax has sorted them

    def out(self, result):
        """Return what a group returned."""
        return self.stackable(result)
