"""The errors and warnings of `ppl`.

Each message says what happened with the numbers, where by name, and the next move. Compiled code never raises: it
returns flags, and Python raises these.
"""

import difflib


class ModelError(ValueError):
    """A model, or the way it is used, makes no sense: a name, a shape, a role or a missing `yield`."""


class DataError(ValueError):
    """An entry of `data` cannot be used: NaN, strings, a type or a length that does not fit."""


class StartError(RuntimeError):
    """No starting point with a finite log density was found."""


class FormatError(ValueError):
    """A file is not a saved result of `ppl`, or comes from a newer version."""


class ModelWarning(UserWarning):
    """A line of a model probably does not do what it says; the text names the line."""


class InferenceWarning(UserWarning):
    """A result should not be trusted yet; the text says why and what to try."""


def suggest(name, known):
    """Return `" Did you mean 'x'?"` for the closest of `known`, or an empty string."""
    close = difflib.get_close_matches(str(name), [str(k) for k in known], n=1, cutoff=0.5)
    if not close:
        close = [str(k) for k in known if str(k).lower() == str(name).lower()][:1]
    return f" Did you mean {close[0]!r}?" if close else ""


def listed(names, most=12):
    """Join names for a message, cutting long lists."""
    names = [str(n) for n in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
