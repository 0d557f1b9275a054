"""Binding: what in `data` is an array, what is structure, what is refused; and how often a model is called."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import ppl
from ppl import DataError, HalfNormal, ModelError, Normal


def given(**data):
    """Return what a model receives as its argument `x`, outside and inside compiled code."""
    seen = []

    def model(x, flag=None):
        seen.append(x)
        yield Normal(0.0, 1.0, name="z")

    ppl.trace(model, data)
    ppl.log_density(model, data)
    return seen


@pytest.mark.parametrize(
    "x",
    [3, True, "text", None, (2, 3), (), ("a", "b"), np.int64(3), np.bool_(True), jnp.exp, b"bytes"],
    ids=lambda x: type(x).__name__ + str(x)[:12],
)
def test_python_values_are_structure(x):
    for seen in given(x=x):
        assert seen == x and type(seen) in (type(x), int, bool)
        assert not isinstance(seen, jax.Array | np.generic)


ARRAYS = {
    "float": 1.5,
    "numpy float": np.float64(1.5),
    "0-d": np.array(2),
    "list": [1.0, 2.0],
    "list of ints": [1, 2],
    "tuple of floats": (1.0, 2.5),
    "numpy": np.arange(3.0),
    "bools": np.array([True, False]),
    "jax": jnp.arange(3),
    "not contiguous": np.arange(12.0).reshape(3, 4)[:, ::2],
    "reversed": np.arange(3)[::-1],
    "big endian": np.arange(3, dtype=">f4"),
    "objects that are numbers": np.array([1, 2.5], dtype=object),
    "empty": np.zeros((0, 2)),
    "pandas": pd.Series([1.0, 2.0], name="x"),
    "nullable": pd.Series([1, 2], dtype="Int64"),
    "frame": pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}),
    "xarray": xr.DataArray(np.ones((2, 3)), dims=("row", "column")),
    "dict": {"a": np.ones(2), "b": [1, 2]},
}


@pytest.mark.parametrize("name", ARRAYS)
def test_numbers_and_tables_are_arrays(name):
    x = ARRAYS[name]
    eager, traced = given(x=x)
    for leaf, like in zip(jax.tree.leaves(eager), jax.tree.leaves(traced), strict=True):
        assert leaf.shape == like.shape and leaf.dtype == like.dtype
        assert leaf.dtype in (np.float32, np.int32, bool)
    if name == "dict":
        np.testing.assert_array_equal(eager["a"], 1.0)
    elif not isinstance(x, tuple):
        np.testing.assert_array_equal(np.asarray(eager, float), np.asarray(x, float))


def test_polars_tables_are_arrays():
    polars = pytest.importorskip("polars")
    eager, _ = given(x=polars.Series([1.0, 2.0]))
    np.testing.assert_array_equal(eager, [1.0, 2.0])


def test_labels_of_tables_are_kept():
    rows = pd.Series([1.0, 2.0], index=pd.Index(["a", "b"], name="school"))
    bound = ppl.bind(vector, {"y": rows})
    assert bound.parts.labels == {"y": (("school", ["a", "b"]),)}
    cube = xr.DataArray(np.ones(2), dims=("school",), coords={"school": ["a", "b"]})
    assert ppl.bind(vector, {"y": cube}).parts.labels["y"][0][0] == "school"


def vector():
    mu = yield Normal(0.0, 1.0, name="mu")
    yield Normal(mu, 1.0, shape=(2,), name="y")


DOUBTFUL = {
    "strings": (np.array(["a", "b"]), "has dtype <U1, not numbers: .*codes of categories"),
    "complex": (np.array([1.0, 2j]), "has dtype complex128, not numbers"),
    "complex jax": (jnp.array([1.0, 2j]), "has dtype complex64, not numbers"),
    "dates": (np.array(["2020-01-01", "2021-01-01"], "M8[D]"), r"has dtype datetime64\[D\], not numbers"),
    "objects": (np.array([object(), 1], dtype=object), "holds <object object"),
    "ragged": ([[1.0], [1.0, 2.0]], "cannot be an array"),
    "huge ints": ([1, 2**40], "holds 1099511627776, which int32 cannot hold"),
    "huge floats": ([1.0, 1e300], r"holds 1e\+300, which float32 cannot hold"),
    "nan": ([1.0, np.nan], "holds 1 nan of 2 values"),
    "none": ([1.0, None], "holds 1 nan of 2 values"),
    "a set": ({1, 2}, "holds {1, 2}, not numbers"),
    "a mapping": ({"a": 1.0}, "holds {'a': 1.0}, not numbers"),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_what_is_no_array_of_numbers_is_refused_by_name(name):
    value, words = DOUBTFUL[name]
    with pytest.raises(DataError, match=rf"^data\['y'\] {words}"):
        ppl.bind(vector, {"y": value})


def test_an_array_that_is_too_large_for_single_precision_is_fine_in_double(x64):
    assert ppl.bind(lambda x: vector(), {"x": [1, 2**40]}).arrays["x:0"].dtype == np.int64


def test_a_masked_argument_is_refused():
    def model(x):
        yield Normal(x, 1.0, name="z")

    with pytest.raises(DataError, match=r"data\['x'\] is a masked array and an argument of `model`"):
        ppl.bind(model, {"x": np.ma.masked_invalid([1.0, np.nan])})


def test_data_is_one_mapping_with_names_as_keys():
    with pytest.raises(DataError, match="data is one mapping from names to arrays, not list"):
        ppl.bind(vector, [1.0])
    with pytest.raises(DataError, match="data has the key 3: keys are names"):
        ppl.bind(vector, {3: 1.0})


def counted():
    calls = []

    def model(x, kind="plain"):
        calls.append(kind)
        mu = yield Normal(0.0, 1.0, name="mu")
        yield Normal(mu * jnp.asarray(x, float), 1.0, name="y")

    return model, calls


def test_a_model_is_called_once_to_bind_and_once_to_compile_whatever_the_numbers():
    model, calls = counted()
    density = ppl.log_density(model, {"x": np.ones(3), "y": np.zeros(3)})
    assert len(calls) == 1
    compiled = jax.jit(jax.value_and_grad(density.structure.log_density))
    values = [compiled({"mu": jnp.asarray(0.5)}, density.arrays)[0]]
    assert len(calls) == 2
    for shift in (1.0, 2.0):
        again = ppl.log_density(model, {"x": np.ones(3) + shift, "y": np.zeros(3)})
        assert again.structure is density.structure
        values.append(compiled({"mu": jnp.asarray(0.5)}, again.arrays)[0])
    assert len(calls) == 2
    assert len({float(v) for v in values}) == 3


def test_another_shape_dtype_or_structure_is_another_program():
    model, calls = counted()
    for data in (
        {"x": np.ones(3)},
        {"x": np.ones(2)},
        {"x": np.ones(3, int)},
        {"x": np.ones(3), "kind": "other"},
        {"x": 1},
        {"x": True},
        {"x": 1.0},
    ):
        ppl.bind(model, data)
        ppl.bind(model, data)
    assert len(calls) == 7


def test_handlers_made_again_bind_to_the_same_structure():
    first = ppl.bind(ppl.noncentered(vector_of, "theta"), {"n": 2})
    assert ppl.bind(ppl.noncentered(vector_of, "theta"), {"n": 2}).structure is first.structure
    assert ppl.bind(ppl.do(vector_of, tau=1.0), {"n": 2}).structure is not first.structure


def vector_of(n):
    tau = yield HalfNormal(1.0, name="tau")
    yield Normal(0.0, tau, shape=(n,), name="theta")


def test_data_are_inputs_so_densities_follow_them():
    one, two = (ppl.log_density(vector, {"y": np.full(2, v)}) for v in (0.0, 3.0))
    position = {"mu": jnp.asarray(0.0)}
    np.testing.assert_allclose(one(position) - two(position), 9.0, rtol=1e-5)


def test_bound_maps_to_and_from_natural_values():
    bound = ppl.bind(vector_of, {"n": 2})
    position = bound.initial(3)
    natural = bound.constrain(position)
    assert natural["tau"] > 0
    back = bound.free(natural)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), back, position)
    assert all(abs(v).max() <= 2 for v in position.values())
    assert "tau" in repr(bound) and "vector_of" in repr(bound)


def test_densities_of_bound_models_are_pure_functions_of_a_position():
    bound = ppl.log_density(vector, {"y": np.ones(2)})
    batch = {"mu": jnp.arange(4.0)}
    values = jax.jit(jax.vmap(bound))(batch)
    np.testing.assert_allclose(values, [bound({"mu": m}) for m in batch["mu"]], rtol=1e-6)


def test_a_derived_variable_cannot_be_observed():
    def model():
        x = yield Normal(0.0, 1.0, name="x")
        yield ppl.Deterministic(2 * x, name="twice")

    with pytest.raises(ModelError, match="'twice' .*derived"):
        ppl.bind(model, {"twice": 1.0})


def test_missing_entries_need_independent_entries():
    def model():
        yield ppl.Dirichlet(jnp.ones(3), name="p")
        yield ppl.Poisson(1.0, shape=(2,), name="k")

    with pytest.raises(ModelError, match="'p' .Dirichlet. has missing entries, which only continuous variables"):
        ppl.bind(model, {"p": np.ma.masked_array([0.2, 0.3, 0.5], [True, False, False])})
    with pytest.raises(ModelError, match="'k' .Poisson. has missing entries, .*ppl.mask"):
        ppl.bind(model, {"k": np.ma.masked_array([1, 2], [True, False])})


def test_a_default_argument_may_be_left_out_and_a_needed_one_may_not():
    model, _ = counted()
    with pytest.raises(ModelError, match=r"`model` has the argument 'x', which data does not have \(z\)"):
        ppl.bind(model, {"z": np.ones(2)})


def test_double_precision_data_stay_double(x64):
    density = ppl.log_density(vector, {"y": np.ones(2)})
    assert density.arrays["=y"].dtype == np.float64
    assert density({"mu": jnp.asarray(0.5)}).dtype == jnp.float64
