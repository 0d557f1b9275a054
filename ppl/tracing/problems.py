"""What is wrong at a point where the log density is not finite: one uncompiled run of the model, put into words."""

import dataclasses

import numpy as np

from ppl.errors import ModelError
from ppl.random_variable import concrete
from ppl.supports import nonnegative, positive, unit_interval
from ppl.tracing.programs import run

INSTEAD = {positive: "exp", nonnegative: "exp", unit_interval: "sigmoid"}


def first_problem(model, arguments, ctx):
    """Run a model uncompiled and say which variable first has a log density that is not finite: a text, or None."""
    found = []

    def watch(rv, value, log_prob):
        if found or log_prob is None or concrete(log_prob) is None:
            return
        bad = ~np.isfinite(np.asarray(log_prob))
        if bad.any():
            found.append(_problem(rv, np.asarray(value), np.asarray(log_prob), bad))

    try:
        _, sites = run(model, arguments, dataclasses.replace(ctx, watch=watch))
    except ModelError as e:
        return _parameter(*e.parameter) if hasattr(e, "parameter") else str(e)
    except (ArithmeticError, TypeError) as e:
        return f"{type(e).__name__}: {e}"
    for name, site in sites.items():
        if found or site.log_prob is None:
            continue
        log_prob = np.asarray(site.log_prob)
        bad = ~np.isfinite(log_prob)
        if bad.any():  # inside a loop, where parameters are not seen
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            found.append(f"{name!r} ({site.family}), whose log density is {log_prob[index]:.6g}{_where(index)}")
    return found[0] if found else None


def _parameter(label, name, known, domain):
    """Describe a parameter outside of its domain."""
    is_below = np.all(domain.contains_numpy(np.asarray(known.max()))) if known.ndim and not domain.event_ndim else False
    words = f"has minimum {known.min():.6g}" if is_below else f"has maximum {known.max():.6g}"
    if not known.ndim or np.isnan(known).any():
        words = f"is {known.ravel()[np.argmax(np.isnan(known))]:.6g}"
    meant = f". Was {INSTEAD[domain]}(...) meant?" if domain in INSTEAD else ""
    return f"{label}, whose {name} {words}; it must be {domain.words}{meant}"


def _problem(rv, value, log_prob, bad):
    """Describe a variable whose log density is not finite where `bad`."""
    parameters = {n: concrete(p) for n, p in rv.parameters.items() if rv.domain.get(n) is not None}
    parameters = {n: p for n, p in parameters.items() if p is not None and p.size}
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    given = "".join(f", {n} {_at(p, index)}" for n, p in parameters.items())
    shown = value[index] if value.ndim else value
    return (
        f"{rv._label()}{_where(index)}: log density {log_prob[index]:.6g} for the value {shown}{given} "
        f"(support: {rv.support.words})"
    )


def _where(index):
    return f" at index {tuple(int(i) for i in index)}" if len(index) else ""


def _at(parameter, index):
    """Describe the entry of a parameter that belongs to one draw."""
    if not parameter.ndim:
        return f"{parameter:.6g}"
    try:
        entry = parameter[tuple(0 if n == 1 else i for i, n in zip(index, parameter.shape, strict=False))]
    except IndexError:
        return f"of shape {parameter.shape}"
    return f"{entry:.6g}" if np.ndim(entry) == 0 else f"of shape {parameter.shape}"
