"""Names of axes and labels along them: `dims={"theta": ["school"]}, coords={"school": ["Choate", ...]}`.

Axes without a name are called `theta_dim_0`, `theta_dim_1`, as in ArviZ, and count from 0. A draw's first two axes are
`chain` and `draw`; shapes here are those of one draw, without them.
"""

import itertools

import numpy as np

from ppl.errors import ModelError, listed, suggest


def axis_names(name, shape, dims):
    """The name of each axis of the variable `name`."""
    given = dims.get(name, ())
    return tuple(given[i] if i < len(given) and given[i] is not None else f"{name}_dim_{i}" for i in range(len(shape)))


def tidy_labels(shapes, dims=None, coords=None):
    """Check `dims` and `coords` against the shapes of the variables; return them as tuples and arrays.

    A driver calls this before it samples, so that a wrong label costs no run. Entries for other names are kept: they
    may belong to data or to predictions.

    Args:
      shapes: the shape of one draw of each variable, by name.
      dims: the names of the axes of a variable, one each (None for the default), by its name.
      coords: the labels along an axis, by its name: strings, numbers or dates.

    Raises:
      ModelError: lengths disagree, or a name is used twice.
    """
    dims = {name: (axes,) if isinstance(axes, str) else tuple(axes) for name, axes in (dims or {}).items()}
    coords = {axis: _label_array(axis, labels) for axis, labels in (coords or {}).items()}
    lengths = {}
    for name, shape in shapes.items():
        if name in dims and len(dims[name]) != len(shape):
            raise ModelError(
                f"{name!r} has {_count(len(shape), 'axis', 'axes')} (shape {tuple(shape)}), but dims has "
                f"{_count(len(dims[name]), 'name', 'names')} for it ({listed(dims[name])}). Give one for each axis."
            )
        axes = axis_names(name, shape, dims)
        for axis, length in zip(axes, shape, strict=True):
            if axes.count(axis) > 1 or axis in ("chain", "draw"):
                raise ModelError(f"dims names two axes of {name!r} {axis!r}. Give each axis a name of its own.")
            if axis in shapes:
                raise ModelError(f"{axis!r} is a variable and also an axis of {name!r} in dims. Rename the axis.")
            if axis in coords and len(coords[axis]) != length:
                raise ModelError(
                    f"{name!r} has length {length} along {axis!r}, but coords has {len(coords[axis])} labels for "
                    f"{axis!r} ({listed(coords[axis], 4)}). Give {length} labels, or another axis name in dims."
                )
            first, known = lengths.setdefault(axis, (name, length))
            if known != length:
                raise ModelError(
                    f"{first!r} has length {known} along {axis!r} and {name!r} has length {length}. Name the axes "
                    "differently in dims."
                )
    return dims, coords


def element_labels(name, shape, dims, coords, positions=None):
    """The name of each element, in row-major order: `mu`, `theta[Choate]`, `w[0, 2]`.

    Args:
      name: of the variable.
      shape: of one draw of it.
      dims: names of axes, as `tidy_labels` returns them.
      coords: labels along axes, as `tidy_labels` returns them.
      positions: flat positions of the elements wanted; all by default.
    """
    if not shape:
        return [name]
    along = [
        [str(label) for label in coords[axis]] if axis in coords else [str(i) for i in range(length)]
        for axis, length in zip(axis_names(name, shape, dims), shape, strict=True)
    ]
    if positions is None:
        return [f"{name}[{', '.join(labels)}]" for labels in itertools.product(*along)]
    places = zip(*np.unravel_index(positions, shape), strict=True)
    return [f"{name}[{', '.join(along[axis][i] for axis, i in enumerate(place))}]" for place in places]


def select(name, draws, labels, dims, coords):
    """Return `draws` (`[chain, draw, ...]`) at the given labels: a single label drops its axis, a list keeps it."""
    axes = axis_names(name, draws.shape[2:], dims)
    for axis in labels:
        if axis not in axes:
            raise ModelError(f"{name!r} has no axis {axis!r}; its axes are {listed(axes)}.{suggest(axis, axes)}")
    for number in reversed(range(len(axes))):
        axis = axes[number]
        if axis in labels:
            draws = np.take(draws, _position(axis, labels[axis], draws.shape[2 + number], coords), axis=2 + number)
    return draws


def _position(axis, label, length, coords):
    if isinstance(label, list | tuple | np.ndarray) and np.ndim(label):
        return [_position(axis, one, length, coords) for one in label]
    if axis in coords:
        found = np.flatnonzero(np.asarray([bool(one == label) for one in coords[axis]], bool))
        if not found.size:
            known = coords[axis]
            raise ModelError(f"{axis!r} has no label {label!r}; it has {listed(known)}.{suggest(label, known)}")
        return int(found[0])
    if not isinstance(label, int | np.integer) or not -length <= label < length:
        raise ModelError(f"{axis!r} has no labels, only positions from 0 to {length - 1}; {label!r} is none of them.")
    return int(label)


def _label_array(axis, labels):
    array = np.asarray(labels)
    if array.dtype.kind not in "biufUM":  # bytes, mixed types, None
        array = np.asarray([str(label) for label in np.ravel(array)])
    if array.ndim != 1:
        raise ModelError(f"coords has an array of shape {array.shape} for {axis!r}. Give one label after another.")
    return array


def _count(number, one, many):
    return f"{number} {one if number == 1 else many}"
