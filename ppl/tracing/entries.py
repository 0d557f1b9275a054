"""The entries of `data`: sorted into arguments of the model and observed values, and checked.

Arrays are inputs of compiled programs; Python ints, bools, strings, tuples of those, None and functions are structure.
"""

import dataclasses
import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import DataError, ModelError, listed, suggest
from ppl.random_variable import concrete, too_large
from ppl.sharding import elsewhere
from ppl.tracing.handle import model_name

STRUCTURE = (bool, int, str, bytes, type(None), type, np.dtype)


@dataclasses.dataclass(frozen=True)
class Parts:
    """`data`, sorted: arguments of the model, observed values (nan filled), masks of missing entries, labels."""

    model: Any
    arguments: dict
    observed: dict
    missing: dict
    labels: dict  # name -> tuple of (dimension name, labels)
    nans: dict  # observed name -> how many nan

    def check_names(self, sites):
        """Refuse observed names that are no random variables, and nan where the density sees it."""
        for name in self.observed:
            if name in sites:
                continue
            arguments = list(signature(self.model))
            known = [*arguments, *sites]
            close = suggest(name, known)
            raise ModelError(
                f"data has {name!r}, which is neither an argument of `{model_name(self.model)}` nor one of its random variables "
                f"({listed(sites) or 'it has none'}).{close or ' Is its `yield` missing?'}"
            )
        for name in self.nans:
            log_prob = sites[name].log_prob
            if log_prob is None or isinstance(log_prob, jax.Array) and concrete(log_prob) is None:
                continue
            gone = np.isnan(np.asarray(self.observed[name])).reshape(*log_prob.shape, -1).any(-1)
            if np.any(np.asarray(log_prob)[gone]):  # a term of weight 0 is exactly 0
                self.refuse_nan(name)

    def refuse_nan(self, name):
        """Refuse the nan in one observed variable."""
        raise DataError(
            f"data[{name!r}] holds {self.nans[name]} nan of {np.size(self.observed[name])} values: say which entries are missing "
            f"with np.ma.masked_invalid(...), which makes them latent, or leave them out with ppl.mask(model, {name}=...)"
        )


def signature(model):
    """Return the parameters of a model by name."""
    return {
        n: p
        for n, p in inspect.signature(model).parameters.items()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY)
    }


def split(model, data):
    """Sort the entries of `data`; see `Parts`."""
    if data is None:
        data = {}
    if not hasattr(data, "items"):
        raise DataError(f"data is one mapping from names to arrays, not {type(data).__name__}: data={{'x': x, 'y': y}}")
    parameters = signature(model)
    arguments, observed, missing, labels, nans = {}, {}, {}, {}, {}
    for name, value in data.items():
        if not isinstance(name, str):
            raise DataError(f"data has the key {name!r}: keys are names of arguments or random variables")
        if isinstance(value, np.ma.MaskedArray):
            if name in parameters:
                raise DataError(
                    f"data[{name!r}] is a masked array and an argument of `{model_name(model)}`, which would see what lies under "
                    "the mask: fill it, or pass the mask as an argument too. Only observed variables may have missing entries"
                )
            gone = np.ma.getmaskarray(value)
            if gone.any():
                missing[name] = gone
            value = np.where(gone, np.zeros((), value.dtype), value.data)
        value, labels[name] = unlabelled(value)
        if name in parameters:
            arguments[name] = jax.tree.map(functools.partial(_argument, name), value, is_leaf=is_leaf)
        else:
            observed[name] = as_array(f"data[{name!r}]", value)
            count = _count_nan(observed[name])
            if count:
                nans[name] = count
    for name, parameter in parameters.items():
        if name not in arguments and parameter.default is inspect.Parameter.empty:
            raise ModelError(
                f"`{model_name(model)}` has the argument {name!r}, which data does not have ({listed(data) or 'no entries'})."
                f"{suggest(name, [d for d in data if d not in parameters])}"
            )
    labels = {n: v for n, v in labels.items() if v}
    return Parts(model, arguments, observed, missing, labels, nans)


def _count_nan(value):
    """Return how many entries are nan; 0 for integers, and for values that are not known yet."""
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return 0
    if elsewhere(value):
        return 0
    known = concrete(value) if value.size < 10**6 else value  # large ones stay on their devices
    try:
        return 0 if known is None else int((np if isinstance(known, np.ndarray) else jnp).isnan(known).sum())
    except jax.errors.ConcretizationTypeError:
        return 0


def unlabelled(value):
    """Return a pandas, polars or xarray object as an array and its labels: ((dimension, labels), ...)."""
    if hasattr(value, "dims") and hasattr(value, "coords") and hasattr(value, "values"):  # xarray
        dims = [(d, list(np.asarray(value.coords[d].values)) if d in value.coords else None) for d in value.dims]
        return value.values, tuple(dims)
    if hasattr(value, "to_numpy") and hasattr(value, "index") and not isinstance(value, jax.Array):  # pandas
        array = value.to_numpy()
        dims = [(value.index.name, list(value.index))] if value.index.name else [(None, None)]
        if hasattr(value, "columns"):
            dims.append((value.columns.name or None, list(value.columns)))
        return array, tuple(dims) if any(d for d, _ in dims) else ()
    if hasattr(value, "to_numpy") and not isinstance(value, jax.Array | np.ndarray):  # polars
        return value.to_numpy(), ()
    return value, ()


def is_leaf(x):
    """Treat lists and tuples of numbers as arrays, except tuples of ints, which are structure."""
    if hasattr(x, "__next__"):
        return True
    if isinstance(x, list):
        return not any(isinstance(i, dict) for i in x)
    return x is None or (isinstance(x, tuple) and all(isinstance(i, int | str) for i in x))


def _argument(name, value):
    """Return an entry of an argument: an array (an input of the compiled program), or structure."""
    if isinstance(value, STRUCTURE) or callable(value):
        return value
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, tuple):
        return value
    return as_array(f"data[{name!r}]", value)


def as_array(label, value):
    """Return an entry of `data` or of `values` as an array that jax can hold, or refuse."""
    if isinstance(value, jax.Array):
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return value
        if not jnp.issubdtype(value.dtype, jnp.complexfloating):
            return value
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as e:
        raise DataError(f"{label} cannot be an array: {e}") from None
    if array.dtype == object:
        try:
            array = array.astype(float)  # None and missing values of tables become nan
        except (ValueError, TypeError):
            raise DataError(
                f"{label} holds {_first_odd(array)}, not numbers: give an array of floats, ints or bools"
            ) from None
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{label} has dtype {array.dtype}, not numbers: give an array of floats, ints or bools"
            + (" (codes of categories, for example)" if array.dtype.kind in "US" else "")
        )
    target = jax.dtypes.canonicalize_dtype(array.dtype.newbyteorder("="))
    if target == np.float16:
        target = np.dtype(jnp.result_type(float))  # half precision is for storage
    worst = too_large(array, target) if array.dtype.kind in "iu" else None
    if worst is not None:
        raise DataError(f"{label} holds {worst}, which {target} cannot hold: give floats, or turn on jax_enable_x64")
    if array.dtype.kind == "f" and array.dtype != target and np.isfinite(array).any():
        worst = np.abs(array[np.isfinite(array)]).max()
        if worst > np.finfo(target).max:
            raise DataError(
                f"{label} holds {worst:.3g}, which {target} cannot hold: rescale it, or turn on jax_enable_x64"
            )
    return np.ascontiguousarray(array).astype(target).reshape(array.shape)


def _first_odd(array):
    for x in array.ravel():
        if not isinstance(x, int | float | np.number | type(None)):
            return repr(x)
    return "objects"
