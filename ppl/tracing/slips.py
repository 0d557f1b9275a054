"""Slips of the pen: what can be said about a model that is legal Python and not what was meant.

    Normal(0., 1., name="y")          a random variable, a loop or a running model is made and dropped: its `yield` is missing
    if x > 0: ...                     a Python branch on a value that is not known when the model is compiled
    sub() + 1.                        a model that was called and not run

and about where: `own_line` cuts the library's frames off the end of a traceback, so that it ends at the user's line.
"""

import dis
import functools
import inspect
import types
import warnings

import jax

from ppl.errors import ModelWarning
from ppl.random_variable import RandomVariable
from ppl.tracing.handle import Handled, Program, model_function
from ppl.tracing.handlers import scope

LIBRARIES = ("ppl", "jax")
UNKNOWN = (
    jax.errors.ConcretizationTypeError,  # a branch, bool(x), float(x), a shape
    jax.errors.TracerArrayConversionError,  # a numpy function
    jax.errors.TracerIntegerConversionError,  # a Python index, range(n)
)
CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")


def own_line(traceback):
    """Return a traceback without the library's frames at its end; None if there are no others."""
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    while entries and _is_library(entries[-1].tb_frame):
        entries.pop()
    following = None
    for entry in reversed(entries):
        following = types.TracebackType(following, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return following


def _is_library(frame):
    """Tell whether a frame is of this library, of jax, or of a constructor that a dataclass wrote."""
    written = frame.f_code.co_filename == "<string>" and frame.f_code.co_name == "__init__"
    return written or frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES


def explain(error):
    """Add a note to an error of jax or Python whose text does not say what to write in a model."""
    if any(note.startswith("ppl:") for note in getattr(error, "__notes__", ())):
        return
    if isinstance(error, UNKNOWN):
        error.add_note(
            "ppl: values are unknown when the model is compiled: use jnp.where in place of a branch, jnp in place of numpy, "
            "or pass what decides as a Python bool, int or string in `data`."
        )
    elif "'generator'" in str(error):
        error.add_note("ppl: a model was called and not run: write `x = yield from ...` before the call.")


def warn_dropped(model):
    """Warn of each call in `model` that makes a random variable, a loop or a running model and drops it."""
    function = model_function(model)
    if function is None:
        return
    for line, callee, is_global in _dropped(function.__code__):
        made = _what(callee, is_global, function)
        if made is None:
            continue
        called = ".".join(callee)
        verb = "yield from" if made == "model" else "yield"
        warnings.warn_explicit(
            f"`{function.__name__}` makes {called}(...) on line {line} and drops it: write `{verb} {called}(...)`",
            ModelWarning,
            function.__code__.co_filename,
            line,
        )


@functools.lru_cache(maxsize=256)
def _dropped(code):
    """Return `(line, dotted callee, whether it is global)` of each call in a code object whose result is dropped.

    A dropped call is a CALL followed by a POP_TOP. The callee is what was loaded from where the call starts in the source.
    """
    found, loads, previous = [], [], None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "POP_TOP" and previous is not None and previous.opname in CALLS:
            callee = [i for i in loads if _start(i) == _start(previous) and None not in _start(i)]
            if callee:
                names = tuple(i.argval for i in callee)
                found.append((callee[0].positions.lineno, names, callee[0].opname in ("LOAD_GLOBAL", "LOAD_NAME")))
        if instruction.opname.startswith("LOAD") and isinstance(instruction.argval, str):
            loads.append(instruction)
        previous = instruction
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.extend(_dropped(constant))
    return tuple(dict.fromkeys(found))


def _start(instruction):
    return instruction.positions.lineno, instruction.positions.col_offset


def _what(callee, is_global, function):
    """Return "variable", "loop" or "model" for what a call makes, or None for anything else or unknown."""
    first, *rest = callee
    known = function.__globals__ if is_global else _enclosed(function)
    if first not in known:
        return "model" if not is_global and not rest and first in _local_models(function.__code__) else None
    made = known[first]
    for attribute in rest:
        if not isinstance(made, types.ModuleType | type):
            return None
        made = getattr(made, attribute, None)
    if isinstance(made, type):
        return "variable" if issubclass(made, RandomVariable) else "loop" if issubclass(made, Program) else None
    if made is scope or isinstance(made, Handled) or inspect.isgeneratorfunction(made):
        return "model"
    return None


def _enclosed(function):
    """Return the variables of enclosing functions that a function uses, by name."""
    variables = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            variables[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return variables


def _local_models(code):
    """Return the names of the generator functions that are defined inside a function, at any depth."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    names = {c.co_name for c in inner if c.co_flags & inspect.CO_GENERATOR}
    return names.union(*(_local_models(c) for c in inner))
