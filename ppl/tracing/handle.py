"""The tracer: one loop.

A model is a generator function that yields random variables, and receives their values. So "running a model" means to
answer what it yields, and a *handler* is whoever answers. `handle` is a generator around a generator: it takes each random
variable that `program` yields to the generator `respond(rv)`, which may

    return a value          to answer it here: nobody further out sees the variable (an intervention);
    return (yield rv)       to pass it on, changed or not, and take the answer from further out;

    def do(model, **values):
        def respond(rv):
            if rv.name in values:
                return values[rv.name]
            return (yield rv)
        return handler(model, respond)

The handler nearest the model sees a variable first, always. There is no stack of handlers, no global state and nothing to
clean up: when a model raises, its generators are gone. What the outermost handler passes on is answered by an interpreter
(`programs.run_block`), which records values and densities.

Loops (`Scan`, `Map`) are programs, the second kind of thing a model may yield. `respond` never sees one: `handle` notes itself
on it and passes it outward, and whoever runs its body applies the notes again, nearest first. So a handler written for
ordinary variables works inside loops unchanged.

Mistakes are thrown into the generator, so that a traceback ends at the user's own `yield`.
"""

import dataclasses
import dis
import functools
import inspect
from collections.abc import Callable, Generator, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from ppl.errors import ModelError, listed, suggest
from ppl.random_variable import RandomVariable, as_value


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """A program that a model may yield: it has a name, and notes the handlers it passed on its way out."""

    name: str | None = None
    wrap: tuple = ()

    def under(self, respond, prefix, names=()):
        """Note one more handler; `names` are those that it must meet, as they are called further out."""
        name = f"{prefix}/{self.name}" if prefix else self.name
        inside = tuple(n for n in names if n.startswith(f"{name}/"))
        return dataclasses.replace(self, name=name, wrap=(*self.wrap, (respond, prefix, inside)))


def handle(
    program: Generator[Any, Any, Any], respond: Callable[..., Any], prefix: str = "", names: Iterable[str] = ()
) -> Generator[Any, Any, Any]:
    """Run `program`; answer each random variable it yields with the generator `respond(rv)`.

    Args:
      program: a running model: a generator.
      respond: a generator function of a random variable: `return` answers it, `yield` passes one on.
      prefix: put before the names of everything that `program` yields, as `prefix/name`.
      names: the names that the handler is about. One that `program` never yields is a mistake.

    Returns (as a generator) what `program` returns.
    """
    value, error, met = None, None, []
    while True:
        try:
            request = program.send(value) if error is None else program.throw(error)
        except StopIteration as stop:
            _refuse_unmet(names, met, respond)
            return stop.value
        try:
            request = checked(request, program)
            name = f"{prefix}/{request.name}" if prefix else request.name
            met.append(f"{name}/" if isinstance(request, Program) else name)
            if isinstance(request, Program):
                value = yield request.under(respond, prefix, names)
            else:
                rv = request.replace(name=name) if prefix else request
                value = fit(rv, (yield from _answering(respond, rv)))
            error = None
        except ModelError as e:  # complain at the user's own line
            error = e if isinstance(request, Program) else e.with_traceback(None)


def pass_on(rv):
    """Respond to nothing."""
    return (yield rv)


def _answering(respond, rv):
    """Return the running `respond(rv)`."""
    answering = respond(rv)
    if not hasattr(answering, "send"):
        raise ModelError(
            f"the handler {_handler_name(respond)!r} answered {rv._label()} and has no `yield`: a handler's function passes on "
            "what it does not answer: `return (yield rv)`"
        )
    return answering


def _handler_name(respond):
    """Return what a handler is called: the function that `respond` was defined in."""
    return getattr(respond, "__qualname__", type(respond).__name__).removesuffix(".<locals>.respond").rpartition(".")[2]


def _refuse_unmet(names, met, respond):
    """Refuse names that a handler is about and that no variable had. What is inside loops is looked for there."""
    for name in names:
        if name not in met and not any(m.endswith("/") and name.startswith(m) for m in met):
            known = [m for m in met if not m.endswith("/")] + [f"{m}..." for m in met if m.endswith("/")]
            raise ModelError(
                f"{_handler_name(respond)} was given {name!r}, which is no random variable of the model inside "
                f"({listed(known) or 'it has none'}).{suggest(name, known)}"
            )


def fit(rv, value):
    """Return `value` as an answer to `rv`: of its shape, or, inside loops, stacked over all steps (then its own slice)."""
    lengths = tuple(length for _, length in rv.loops)
    if lengths and not isinstance(value, RandomVariable) and jnp.shape(value) == lengths + rv.shape:
        value = jnp.asarray(value)[tuple(index for index, _ in rv.loops)]
    return as_value(rv, value)


class Around:
    """What is called as its `model` is, and has its signature and its name."""

    @property
    def __signature__(self):
        return inspect.signature(self.model)

    @property
    def __name__(self):
        return model_name(self.model)


@dataclasses.dataclass(frozen=True, eq=False)
class Handled(Around):
    """A model under a handler: called as the model is. Equal handlers around equal models are equal."""

    model: object
    respond: object
    prefix: str = ""
    names: tuple = ()

    def __call__(self, *args, **kwargs):
        """Return the running model."""
        program = self.model(*args, **kwargs)
        if not hasattr(program, "send"):
            refuse_model(self.model, program)
        return handle(program, self.respond, self.prefix, self.names)

    def _identity(self):
        """Two handlers are equal if their code and all that they hold are; 1, 1. and True are different."""
        holds = [cell.cell_contents for cell in getattr(self.respond, "__closure__", None) or ()]
        holds += [
            *(getattr(self.respond, "__defaults__", None) or ()),
            *(getattr(self.respond, "__kwdefaults__", None) or {}).items(),
        ]
        holds = tuple((type(h), h) for h in holds)
        try:
            hash(holds)
        except TypeError:
            return self.model, self.respond, self.prefix
        return self.model, getattr(self.respond, "__code__", self.respond), holds, self.prefix

    def __eq__(self, other):
        return isinstance(other, Handled) and self._identity() == other._identity()

    def __hash__(self):
        return hash(self._identity())


def handler(
    model: Callable[..., Any], respond: Callable[..., Any], prefix: str = "", names: Iterable[str] = ()
) -> Callable[..., Any]:
    """Return `model` with `respond` around it: a model again, with the same arguments.

    Args:
      model: a model.
      respond: a generator function of a random variable; see `handle`.
      prefix: put before the names of everything in the model.
      names: the names that the handler is about, if it should refuse those that the model does not have.
    """
    return Handled(model, respond, prefix, tuple(names))


def model_name(model):
    """Return a name for messages."""
    if isinstance(model, functools.partial):
        return model_name(model.func)
    return getattr(model, "__name__", type(model).__name__)


def model_function(model):
    """Return the function at the bottom of a model, or None: under handlers, partials, wrappers, methods, callable objects."""
    for _ in range(100):
        if isinstance(model, Handled):
            model = model.model
        elif isinstance(model, functools.partial):
            model = model.func
        elif hasattr(model, "__wrapped__"):
            model = model.__wrapped__
        elif inspect.ismethod(model):
            model = model.__func__
        elif inspect.isfunction(model):
            return model
        else:
            model = type(model).__dict__.get("__call__")
    return None


def refuse_model(model, result):
    """Raise for a model that, called with its arguments, gave `result` in place of a generator, or returned it at its end."""
    function = model_function(model)
    where = f" (line {function.__code__.co_firstlineno} of {function.__code__.co_filename})" if function else ""
    if isinstance(result, RandomVariable):
        raise ModelError(
            f"the model {model_name(model)!r}{where} returns the random variable {result._label()}, not its value: write "
            f"`return (yield {type(result).__name__}(...))`"
        )
    raise ModelError(
        f"the model {model_name(model)!r}{where} has no `yield`: a model is a generator function; write `x = yield Normal(...)`"
    )


def checked(request, program):
    """Return what `program` yielded if it can be answered; otherwise raise a ModelError that says what to write."""
    if isinstance(request, RandomVariable | Program):
        if request.name is None:
            name = _target(program) or "x"
            raise ModelError(
                f"a {type(request).__name__} was yielded without a name: write "
                f"`{name} = yield {type(request).__name__}(..., name={name!r})`"
            )
        return request
    if inspect.isgenerator(request):
        raise ModelError(f"a running model was yielded: write `yield from {request.__name__}(...)`")
    if all(hasattr(request, a) for a in ("sample", "log_prob", "support")):
        if getattr(request, "name", None) is None:
            name = _target(program) or "x"
            raise ModelError(
                f"a {type(request).__name__} was yielded without a name: write "
                f"`{name} = yield ppl.Foreign({type(request).__name__}(...), name={name!r})`, or give it an attribute `name`"
            )
        return Foreign(request, name=request.name)
    raise ModelError(
        f"yielded {describe(request)}, which is no random variable. A model yields random variables and returns "
        "everything else; to record a value, yield Deterministic(value, name=...)"
    )


def describe(x):
    """Return what something is in a few characters, for messages."""
    if x is None:
        return "nothing (None)"
    if isinstance(x, jax.Array):
        return f"an array of shape {x.shape}"
    text = repr(x)
    return f"{text if len(text) < 60 else text[:57] + '...'} ({type(x).__name__})"


def _target(program):
    """Return the name that the yielded value is about to be assigned to, if any."""
    while getattr(program, "gi_yieldfrom", None) is not None:
        program = program.gi_yieldfrom
    frame = getattr(program, "gi_frame", None)
    if frame is None:
        return None
    following = (i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti)
    for instruction in following:
        if instruction.opname.startswith("STORE"):
            return str(instruction.argval)
        if instruction.opname not in ("RESUME", "CACHE", "NOP"):
            return None
    return None


class Foreign(RandomVariable):
    """Any object with `sample(key)`, `log_prob(x)` and `support` (one of `ppl.supports`) as a random variable.

    Its shape is `shape`, or the object's own `shape`, or that of a draw.
    """

    def __init__(self, distribution, *, name=None, shape=None, value=None):
        if shape is None:
            shape = getattr(distribution, "shape", None)
        if shape is None:
            shape = jax.eval_shape(distribution.sample, jax.random.key(0)).shape
        support = distribution.support
        for need in ("contains", "feasible", "discrete", "event_ndim"):
            if not hasattr(support, need):
                raise ModelError(
                    f"{name!r} ({type(distribution).__name__}): its support is {support!r}; give one of ppl.supports, such as "
                    "ppl.supports.real"
                )
        self.__dict__.update(
            distribution=distribution, support=support, shape=tuple(shape), name=name, value=value, sharding=None, weight=1.0,
            loops=(), role="latent" if value is None else "observed", event_ndim=support.event_ndim,
        )  # fmt: skip
        self.__post_init__()

    def _label(self):
        return f"{self.name!r} ({type(self.distribution).__name__})"

    def __post_init__(self):
        if self.value is not None:
            self.__dict__["value"] = as_value(self, self.value)

    def sample(self, key):
        """Draw with the object's own `sample`."""
        return self.distribution.sample(key)

    def log_prob(self, x):
        """Evaluate the object's own `log_prob`."""
        return self.distribution.log_prob(x)

    def __repr__(self):
        return f"Foreign({self.distribution!r}, name={self.name!r})"
