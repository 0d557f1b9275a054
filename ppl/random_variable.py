"""The random variable: the one abstraction of `ppl`.

A random variable holds the parameters of its law, the whole shape of its value, a name, and perhaps a value.
`Normal(mu, tau, shape=(8,), name="theta")` is eight numbers; there is no batch shape to declare and no plate.

    @random_variable
    class Normal(RandomVariable):
        loc: ArrayLike = 0.0
        scale: ArrayLike = 1.0
        support = real                                # where values live: a class attribute or a property
        domain = dict(loc=real, scale=positive)       # where parameters live

        def sample(self, key): ...                    # an array of shape `self.shape`
        def log_prob(self, x): ...                    # an array of shape `self.batch_shape`

Parameters are aligned once, in the constructor: numbers become arrays, and an array of lower rank gets leading axes of
length one, so that families compute on shared parameters at their own size and never broadcast by accident.
"""

import dataclasses
import inspect
from typing import Any, ClassVar, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import ModelError, listed, suggest
from ppl.sharding import elsewhere

ArrayLike = jax.typing.ArrayLike
Family = TypeVar("Family")
SYNONYMS = {  # names of parameters in other libraries
    **dict.fromkeys(("sigma", "sd", "std", "stddev"), ("scale",)),
    **dict.fromkeys(("mu", "mean"), ("loc",)),
    **dict.fromkeys(("lam", "lambda_", "beta"), ("rate", "scale")),
    **dict.fromkeys(("p", "prob", "theta"), ("probs",)),
    **dict.fromkeys(("n", "trials"), ("total_count",)),
    **dict.fromkeys(("nu", "dof"), ("df",)),
    **dict.fromkeys(("cov", "Sigma"), ("covariance",)),
    "alpha": ("concentration",),
    "logit_p": ("logits",),
    "observed": ("value",),
    "dims": ("shape",),
    "size": ("shape",),
}
FIELDS = ("shape", "name", "value", "role", "weight", "sharding", "loops")


def concrete(x):
    """Return `x` as a numpy array, or None while jax traces it (its numbers are not known then) or it lies on other hosts."""
    try:
        return None if elsewhere(x) else np.asarray(x)
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
        return None


def _refuse(self, *_):
    """Stand for every operator: a random variable is not its value."""
    name = f"{self.name!r}" if self.name else f"of the family {type(self).__name__}"
    target = self.name if self.name and self.name.isidentifier() else "x"
    raise ModelError(
        f"this is the random variable {name}, not its value: write `{target} = yield {type(self).__name__}(...)`"
    )


class _Signature:
    """What `help` shows of a constructor: the parameters, and by name alone the fields that all families share."""

    def __get__(self, instance, family):
        names = [(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in family.positional]
        names += [(name, inspect.Parameter.KEYWORD_ONLY) for name in FIELDS[:-1] if name not in family.positional]
        default = lambda name: getattr(family, name, inspect.Parameter.empty)  # noqa: E731
        return inspect.Signature([inspect.Parameter(name, kind, default=default(name)) for name, kind in names])


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
def _fields_by_name(cls: type[Family]) -> type[Family]:
    """Tell type checkers that the fields of a class are arguments by name."""
    return cls


@_fields_by_name
class RandomVariable:
    """Base of all families: parameters, name, shape, value, role, weight and sharding.

    Args:
      shape: the whole shape of the value, and an assertion: parameters must fit it. By default the shape that the
        parameters have together.
      name: how data, draws and handlers refer to it; needed when the variable is yielded.
      value: a fixed value of exactly this shape; the variable is then observed.
      role: "latent", "observed" or "derived" (recorded, and no part of the density).
      weight: multiplies the log density; a number or an array over the batch shape. Entries of weight 0 are left out
        entirely: neither their value nor a nan in it reaches the density or its gradient.
      sharding: a `jax.sharding.PartitionSpec` over the whole value.
    """

    shape: Any = None
    name: str | None = None
    value: Any = None
    role: str | None = None
    weight: Any = 1.0
    sharding: Any = None
    loops: tuple = ()  # the loops around it, outermost first: (index, length)

    __signature__ = _Signature()

    # What a family declares.
    support: ClassVar[Any] = None
    domain: ClassVar[dict] = {}
    event_dims: ClassVar[dict] = {}  # parameter -> how many of its last axes belong to one draw
    event_ndim: ClassVar[int] = 0  # how many of the last axes of a value are one draw
    location_scale: ClassVar[bool] = False  # value = loc + scale * (a draw with loc 0 and scale 1)
    parameter_names: ClassVar[tuple] = ()
    positional: ClassVar[tuple] = ()  # what the constructor takes by position: parameters and fields it declares anew
    pathwise: ClassVar[bool] = True  # a continuous draw is a differentiable function of the parameters
    inside: ClassVar[bool] = False  # set on a copy that is evaluated only at values known to lie in the support

    @property
    def event_shape(self):
        """The shape of one draw, () for families of numbers. Families of vectors and matrices override it."""
        return ()

    @property
    def batch_shape(self):
        """The shape of `log_prob`: the value's shape without the axes of one draw."""
        return self.shape[: len(self.shape) - self.event_ndim]

    @property
    def dtype(self):
        """The dtype of a draw."""
        return jnp.result_type(int if self.support.discrete else float)

    @property
    def parameters(self):
        """The parameters that were given, by name."""
        return {n: getattr(self, n) for n in self.parameter_names if getattr(self, n) is not None}

    def sample(self, key):
        """Draw a value of shape `self.shape`."""
        raise NotImplementedError(f"{type(self).__name__} cannot be drawn from")

    def log_prob(self, x):
        """Return the log density at `x`, of shape `self.batch_shape`."""
        raise NotImplementedError

    def replace(self, **fields):
        """Return a copy with these parameters or fields changed."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        unknown = [f for f in fields if f not in FIELDS and f not in self.parameter_names]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]!r}")
        new.__dict__.update(fields)
        if any(f in self.parameter_names or f in ("shape", "value") for f in fields):
            new.__post_init__()
        return new

    def __init__(self, *values, **fields):
        names, family = self.parameter_names, type(self).__name__
        if len(values) > len(self.positional):
            raise ModelError(
                f"{family} was given {len(values)} values by position and takes {listed(map(repr, self.positional)) or 'none'}: "
                "give the others by name, such as shape=, name= and value="
            )
        given = dict(zip(self.positional, values, strict=False))
        for name in fields:
            if name in given:
                raise ModelError(f"{family} was given {name} twice, by position and by name")
            if name not in names and name not in FIELDS:
                known = (*names, *FIELDS[:-1])
                meant = next((n for n in known if n in SYNONYMS.get(name, ())), name)
                raise ModelError(f"{family} has no parameter {name!r} ({listed(known)}).{suggest(meant, known)}")
        given |= fields
        for name in names:
            if name not in given and not hasattr(type(self), name):
                raise ModelError(f"{family} needs its parameter {name!r}")
        self.__dict__.update({name: getattr(type(self), name) for name in (*names, *FIELDS) if name not in given})
        self.__dict__.update(given)
        self.__post_init__()

    def __setattr__(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}: use replace({name}=...)")

    def __delattr__(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __post_init__(self):
        set_field = self.__dict__.__setitem__
        for name in self.parameter_names:
            parameter = getattr(self, name)
            if parameter is not None:
                set_field(name, self._checked(name, parameter))
            elif self.domain.get(name) is not None and getattr(type(self), name, 0) is not None:
                raise ModelError(f"{self._label()}: {name} must be a number or an array, not None")
        self.check()
        set_field("shape", self._whole_shape())
        for name, parameter in self.parameters.items():
            rank = len(self.batch_shape) + self.event_dims.get(name, 0)
            if isinstance(parameter, RandomVariable) or not hasattr(parameter, "ndim"):
                continue
            if parameter.ndim and parameter.ndim < rank:
                lead = (1,) * (rank - parameter.ndim)
                set_field(name, parameter.reshape(lead + parameter.shape))
        if self.value is not None:
            set_field("value", as_value(self, self.value))
        if self.role is None:
            set_field("role", "latent" if self.value is None else "observed")

    def noncentered(self):
        """Return `(base, place)`: the law with loc 0 and scale 1, and the function that puts its draw in place."""
        if not self.location_scale:
            raise ModelError(
                f"{self._label()} is no location-scale family: it cannot be drawn as loc + scale * standard"
            )
        loc, scale = self.loc, self.scale
        base = self.replace(loc=jnp.zeros_like(loc), scale=jnp.ones_like(scale))
        return base, lambda standard: loc + scale * standard

    def check(self):
        """Refuse combinations of parameters that make no sense; families with alternatives override it."""

    def _label(self):
        return f"{self.name!r} ({type(self).__name__})" if self.name else type(self).__name__

    def _checked(self, name, parameter):
        """Return a parameter as an array of its domain's dtype, refusing what cannot be one."""
        domain = self.domain.get(name)
        if isinstance(parameter, RandomVariable):
            if domain is None:
                return parameter  # wrappers hold random variables
            _refuse(parameter)
        if hasattr(parameter, "gi_frame"):
            raise ModelError(
                f"{self._label()}: {name} is a model that was called and not run: write "
                f"`{name} = yield from {parameter.__name__}(...)`"
            )
        if domain is None:
            return parameter
        if isinstance(parameter, bool | int | float | list | tuple | np.generic | np.ndarray):
            try:
                parameter = np.asarray(parameter)
            except ValueError as e:
                raise ModelError(f"{self._label()}: {name} is ragged: {e}") from None
            if parameter.dtype.kind not in "biuf":
                raise ModelError(
                    f"{self._label()}: {name} must be numbers, but has dtype {parameter.dtype} ({parameter.ravel()[:1]})"
                )
        elif not isinstance(parameter, jax.Array):
            if not hasattr(parameter, "__jax_array__") and not hasattr(parameter, "__array__"):
                raise ModelError(
                    f"{self._label()}: {name} must be a number or an array, not {type(parameter).__name__}"
                )
            parameter = jnp.asarray(parameter)
        if isinstance(parameter, jax.Array) and not (
            jnp.issubdtype(parameter.dtype, jnp.number) or parameter.dtype == bool
        ):
            raise ModelError(f"{self._label()}: {name} must be numbers, but has dtype {parameter.dtype}")
        known = concrete(parameter)
        if known is not None:
            self._check_domain(name, known, domain)
        if not domain.discrete and not jnp.issubdtype(parameter.dtype, jnp.inexact):
            parameter = parameter.astype(jnp.result_type(float))
        return jnp.asarray(parameter)

    def _check_domain(self, name, parameter, domain):
        if parameter.ndim < domain.event_ndim:
            return  # too few axes: refused with the shapes
        inside = domain.contains_numpy(parameter) if parameter.size else True
        if not np.all(inside):
            outside = (
                parameter[~np.broadcast_to(inside, parameter.shape)] if np.ndim(inside) == parameter.ndim else parameter
            )
            if domain.event_ndim and np.ndim(inside) == parameter.ndim - domain.event_ndim:
                first = parameter[~np.asarray(inside)][0]
                first = " ".join(np.array2string(first, precision=6, separator=", ", threshold=20).split())
                raise ModelError(f"{self._label()}: {name} must be {domain.words}, but is {first}")
            worst = np.asarray(outside).ravel()[0]
            error = ModelError(f"{self._label()}: {name} must be {domain.words}, but is {worst:.6g}")
            error.parameter = (self._label(), name, parameter, domain)
            raise error

    def _batch_shapes(self):
        """Return the batch shape of each parameter by name; wrappers override it."""
        shapes = {}
        for name, parameter in self.parameters.items():
            if isinstance(parameter, RandomVariable):
                ndim = len(parameter.shape) - self.event_ndim
                shapes[name] = parameter.shape[: max(ndim, 0)]
            elif self.domain.get(name) is not None:
                keep = parameter.ndim - self.event_dims.get(name, 0)
                if keep < 0:
                    raise ModelError(
                        f"{self._label()}: {name} needs at least {self.event_dims[name]} axes, but has shape {parameter.shape}"
                    )
                shapes[name] = parameter.shape[:keep]
        return shapes

    def _whole_shape(self):
        """Work out the shape of a value from `shape=` and the parameters, or refuse."""
        shapes = self._batch_shapes()
        try:
            batch = np.broadcast_shapes(*shapes.values())
        except ValueError:
            given = ", ".join(f"{n} {getattr(getattr(self, n, None), 'shape', s)}" for n, s in shapes.items())
            raise ModelError(
                f"{self._label()}: the parameters do not fit each other: {given}. Give them one shape; axes of length 1 are shared"
            ) from None
        event = tuple(self.event_shape)
        if self.shape is None:
            return tuple(batch) + event
        try:
            shape = (self.shape,) if isinstance(self.shape, int | np.integer) else tuple(self.shape)
            shape = tuple(int(n) for n in shape)
        except (TypeError, jax.errors.ConcretizationTypeError):
            lengths = self.shape if isinstance(self.shape, tuple | list) else (self.shape,)
            given = ", ".join("?" if isinstance(n, jax.Array) else str(n) for n in lengths)
            raise ModelError(
                f"{self._label()}: shape=({given}) must be whole numbers that are known when the model is traced: use `x.shape` "
                "of an array, or a Python int in `data`"
            ) from None
        lead = shape[: len(shape) - len(event)]
        fits = len(shape) >= len(event) and shape[len(lead) :] == event
        if fits:
            try:
                fits = np.broadcast_shapes(batch, lead) == lead
            except ValueError:
                fits = False
        if not fits:
            given = ", ".join(f"{n} {getattr(getattr(self, n, None), 'shape', s)}" for n, s in shapes.items())
            one = f" (one draw has shape {event})" if event else ""
            raise ModelError(
                f"{self._label()}: the parameters do not fit shape={shape}{one}: {given}. Leave shape= out, or give parameters "
                "that it can hold"
            )
        return shape

    def __repr__(self):
        parts = [f"{n}={_short(p)}" for n, p in self.parameters.items()]
        parts += [f"shape={self.shape}"] if self.shape else []
        parts += [f"name={self.name!r}"] if self.name else []
        parts += [f"value={_short(self.value)}"] if self.value is not None else []
        return f"{type(self).__name__}({', '.join(parts)})"

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __matmul__ = __rmatmul__ = __pow__ = __rpow__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = _refuse
    __neg__ = __pos__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = __invert__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __getitem__ = __len__ = __iter__ = __bool__ = __float__ = __int__ = __index__ = __array__ = __jax_array__ = _refuse


def _short(x):
    """Return an array in a few characters."""
    if isinstance(x, list | tuple) and any(isinstance(e, RandomVariable) for e in x):
        return f"[{', '.join(_short(e) for e in x)}]"
    if not isinstance(x, jax.Array | np.ndarray | np.generic | int | float | list | tuple):
        return repr(x)
    known = concrete(x)
    if known is None or known.size > 6:
        return f"array{tuple(np.shape(x))}"
    return np.array2string(known, precision=6, separator=", ")


def too_large(whole, dtype):
    """Return a number of an array of whole numbers that `dtype` cannot hold, or None."""
    limit = np.iinfo(dtype)
    most, least = (whole.max(), whole.min()) if whole.size else (0, 0)
    return most if most > limit.max else least if least < limit.min else None


def _wide(rv, value):
    """Return integers that JAX would cut to 32 bits as floats where `rv` takes them, else refuse; all else as it is."""
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "iu":
        return value
    target = jax.dtypes.canonicalize_dtype(value.dtype)
    worst = too_large(value, target)
    if worst is None:
        return value
    if not rv.support.discrete:
        return value.astype(jnp.result_type(float))
    raise ModelError(f"{rv._label()} was given the value {worst}, which {target} cannot hold: turn on jax_enable_x64")


def as_value(rv, value):
    """Return `value` as an array of exactly `rv`'s shape, or refuse: values are never broadcast."""
    if isinstance(value, RandomVariable):
        _refuse(value)
    value = jnp.asarray(_wide(rv, value))
    if value.shape != rv.shape:
        fix = f"{_reshaped(rv, value)}declare {type(rv).__name__}(..., shape={value.shape})"
        step = " at each step" if rv.loops else ""
        raise ModelError(
            f"{rv._label()} has shape {rv.shape}{step} but was given a value of shape {value.shape}. "
            f"Values are never broadcast: {fix}."
        )
    if value.dtype == bool and rv.dtype != bool:
        value = value.astype(rv.dtype)
    if not rv.support.discrete and not jnp.issubdtype(value.dtype, jnp.inexact):
        value = value.astype(jnp.result_type(float))
    return value


def _reshaped(rv, value):
    """Return the words "pass y[:, 0], or " for a value that only has axes of length one too many or too few."""
    if value.size != np.prod(rv.shape, dtype=int):
        return ""
    name = (rv.name or "value").rpartition("/")[2]
    more, fewer = (value.shape, rv.shape) if value.ndim > len(rv.shape) else (rv.shape, value.shape)
    index, axes = [], list(fewer)
    for length in more:
        kept = bool(axes) and axes[0] == length and not (length == 1 and len(more) - len(index) > len(axes))
        index.append(":" if kept else "0" if more == value.shape else "None")
        axes = axes[1:] if kept else axes
    if axes or len(more) == len(fewer):
        return f"pass {name}.reshape{rv.shape}, or "
    return f"pass {name}[{', '.join(index)}], or "


def weighted_log_prob(rv, x, inside=False):
    """Return `weight * log_prob(x)`, of `rv.batch_shape`; entries of weight 0 never enter, not even through a gradient."""
    if inside:
        known = object.__new__(type(rv))
        known.__dict__.update(rv.__dict__, inside=True)
        rv = known
    if isinstance(rv.weight, int | float):
        return (
            rv.log_prob(x) if rv.weight == 1 else rv.weight * rv.log_prob(x) if rv.weight else jnp.zeros(rv.batch_shape)
        )
    weight = jnp.broadcast_to(jnp.asarray(rv.weight), rv.batch_shape)
    kept = weight != 0
    x = jnp.where(kept.reshape(kept.shape + (1,) * rv.event_ndim), x, rv.support.feasible(x))
    log_prob = rv.log_prob(x)
    return jnp.where(kept, weight.astype(log_prob.dtype) * log_prob, jnp.zeros((), log_prob.dtype))


@dataclass_transform(frozen_default=True, eq_default=False)
def random_variable(cls: type[Family]) -> type[Family]:
    """Make a family of a class with annotated parameters: they are arguments of the constructor, and it is a pytree."""
    families = [c for c in reversed(cls.__mro__) if issubclass(c, RandomVariable) and c is not RandomVariable]
    declared = {name: hint for c in families for name, hint in inspect.get_annotations(c).items()}
    cls.positional = tuple(name for name, hint in declared.items() if "ClassVar" not in str(hint))
    cls.parameter_names = tuple(name for name in cls.positional if name not in FIELDS)

    def flatten(rv):
        children = [getattr(rv, n) for n in (*rv.parameter_names, "value", "weight")]
        dynamic = [c if _is_dynamic(c) else None for c in children]
        static = tuple(None if _is_dynamic(c) else c for c in children)
        return dynamic, (static, rv.shape, rv.name, rv.role, rv.sharding)

    def unflatten(aux, dynamic):
        static, shape, name, role, sharding = aux
        rv = object.__new__(cls)
        values = [s if d is None else d for s, d in zip(static, dynamic, strict=True)]
        rv.__dict__.update(zip((*cls.parameter_names, "value", "weight"), values, strict=True))
        rv.__dict__.update(shape=shape, name=name, role=role, sharding=sharding, loops=())
        return rv

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def _is_dynamic(x):
    """Tell whether a field is data (arrays and pytrees of them) or structure (numbers, functions, supports)."""
    if isinstance(x, jax.Array | np.ndarray | RandomVariable | list | tuple | dict):
        return True
    return x is not None and not jax.tree_util.treedef_is_leaf(jax.tree_util.tree_structure(x))
