"""Supports: round trips, volumes against Jacobians, points that stay inside, finite gradients, membership."""

import functools
import math

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings

from ppl import supports
from ppl.distributions import Tanh

# Compiles twice as fast; for what is no part of the program under test.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
LOWER = np.tril_indices(3)
BELOW = np.tril_indices(3, -1)

# name: (support, shape of a value, its coordinates in the measure that densities refer to)
CASES = {
    "real": (supports.real, (), lambda x: x),
    "positive": (supports.positive, (), lambda x: x),
    "nonnegative": (supports.nonnegative, (), lambda x: x),
    "negative": (supports.negative, (), lambda x: x),
    "greater_than": (supports.greater_than(2.5), (), lambda x: x),
    "less_than": (supports.less_than(-1.0), (), lambda x: x),
    "unit_interval": (supports.unit_interval, (), lambda x: x),
    "interval": (supports.interval(-1.0, 1e-3), (), lambda x: x),
    "real_vector": (supports.real_vector, (3,), lambda x: x),
    "simplex": (supports.simplex, (4,), lambda x: x[:-1]),
    "ordered": (supports.ordered, (4,), lambda x: x),
    "positive_ordered": (supports.positive_ordered, (4,), lambda x: x),
    "corr_cholesky": (supports.corr_cholesky, (3, 3), lambda x: x[BELOW]),
    "cholesky": (supports.cholesky, (3, 3), lambda x: x[LOWER]),
    "covariance": (supports.covariance, (3, 3), lambda x: x[LOWER]),
    "sum_to_zero": (supports.sum_to_zero, (4,), None),
    "circular": (supports.circular, (), None),
    "unit_vector": (supports.unit_vector, (3,), None),
}
MAPS_OF_R_N = [n for n, case in CASES.items() if case[2] is not None]
DIRECTIONS = ["circular", "unit_vector"]  # the length of u is lost on the way
INVERTIBLE = [n for n in CASES if n not in DIRECTIONS]


def free_points(name, scale, count=6, seed=0, dtype=np.float64):
    support, shape, _ = CASES[name]
    free_shape = support.free_shape(shape)
    return (np.random.default_rng(seed).normal(size=(count, *free_shape)) * scale).astype(dtype)


def strictly_inside(name, x):
    """Tell whether points are inside and off the boundary."""
    support = CASES[name][0]
    if name in ("positive", "nonnegative"):
        return (x > 0) & np.isfinite(x)
    if name in ("negative", "less_than", "greater_than"):
        low, high = supports.bounds(support)
        return (x < (np.inf if high is None else high)) & (x > (-np.inf if low is None else low))
    if name in ("unit_interval", "interval"):
        return (x > x.dtype.type(support.low)) & (x < x.dtype.type(support.high))
    if name == "covariance":  # a matrix whose condition exceeds 1 / eps cannot be told from a singular one
        return np.isfinite(x).all((-2, -1)) & (np.diagonal(x, 0, -2, -1) > 0).all(-1)
    inside = np.asarray(support.contains(jnp.asarray(x)))
    if name == "simplex":
        return inside & (x > 0).all(-1)
    if name in ("ordered", "positive_ordered"):
        return inside & (np.diff(x) > 0).all(-1)
    if name in ("corr_cholesky", "cholesky"):
        return inside & (np.diagonal(x, 0, -2, -1) > 0).all(-1)
    return inside


@pytest.mark.parametrize("name", MAPS_OF_R_N)
def test_log_volume_is_the_log_determinant(name, x64):
    """Against forward-mode Jacobians at small, typical and large free values, in single and double precision.

    The tolerance is what rounding of `u` and of the sum costs, and of the entries of the Jacobian through its condition.
    """
    support, _, coordinates = CASES[name]
    flat = lambda u: jnp.reshape(coordinates(support.constrain(u)[0]), (-1,))  # noqa: E731
    log_volume = lambda u: support.constrain(u)[1]  # noqa: E731
    exact = quick_jit(jax.vmap(lambda u: (jax.jacfwd(flat)(u), jax.grad(log_volume)(u))))
    constrain, jacobian_of = jax.jit(support.constrain), jax.jit(jax.vmap(jax.jacfwd(flat)))
    for scale in (1e-4, 1.0, 6.0):
        u = free_points(name, scale, dtype=np.float32)
        n, points = u[0].size, u.reshape(len(u), -1)
        jacobian, gradient = (np.asarray(a).reshape(len(u), n, -1) for a in exact(jnp.asarray(u, float)))
        determinant = np.linalg.slogdet(jacobian)[1]
        condition = np.linalg.cond(jacobian) * np.finfo(float).eps
        rounding = n + abs(determinant) + np.sum(abs(gradient[..., 0] * points), -1)
        for dtype in (np.float32, np.float64):
            found = np.asarray(constrain(jnp.asarray(u, dtype))[1])
            tolerance = 4 * np.finfo(dtype).eps * rounding + 8 * n * condition
            assert found.dtype == dtype and np.all(abs(found - determinant) <= tolerance), (scale, found, determinant)
        single = np.asarray(jacobian_of(jnp.asarray(u)), float).reshape(jacobian.shape)
        largest = 4 * (n + np.max(abs(points))) * np.max(abs(jacobian), (1, 2), keepdims=True)
        assert np.all(abs(single - jacobian) <= np.finfo(np.float32).eps * largest), (scale, single, jacobian)


@pytest.mark.parametrize("name", CASES)
def test_float32_agrees_with_float64(name, x64):
    """Values and log volumes, also where float32 exponentials over- or underflow."""
    constrain = jax.jit(CASES[name][0].constrain)
    for scale in (1e-3, 1.0, 20.0, 300.0):
        u = free_points(name, scale, dtype=np.float32)
        single, double = (constrain(jnp.asarray(u, dtype)) for dtype in (jnp.float32, jnp.float64))
        assert single[0].dtype == single[1].dtype == jnp.float32
        size = max(1, u[0].size) * max(1, float(np.max(abs(u))))
        np.testing.assert_allclose(single[1], double[1], rtol=1e-5, atol=1e-6 * size)
        if scale <= 1:
            np.testing.assert_allclose(single[0], double[0], rtol=2e-5, atol=1e-6)


def test_volume_of_vectors_that_sum_to_zero_is_one(x64):
    jacobian = np.asarray(jax.jacfwd(lambda u: supports.sum_to_zero.constrain(u)[0])(jnp.array([0.3, -2.0, 5.0])))
    np.testing.assert_allclose(jacobian.T @ jacobian, np.eye(3), atol=1e-12)
    assert float(supports.sum_to_zero.constrain(jnp.ones(3))[1]) == 0


@pytest.mark.parametrize("name", DIRECTIONS)
def test_directions_have_unit_jacobian_per_length_and_a_chi_law_of_the_length(name, x64):
    """The area element of the sphere is |u|^(n-1) smaller than that of u, and |u| has a chi law."""
    support = CASES[name][0]
    u = free_points(name, 1.3)
    n, length = u.shape[-1], np.linalg.norm(u, axis=-1)
    jacobian = jax.vmap(jax.jacfwd(lambda u: jnp.reshape(support.constrain(u)[0], (-1,))))(jnp.asarray(u))
    singular = np.linalg.svd(np.asarray(jacobian), compute_uv=False)[:, : n - 1]
    np.testing.assert_allclose(singular, np.repeat(1 / length[:, None], n - 1, 1), rtol=1e-9)
    expected = scipy.stats.chi(n).logpdf(length) - (n - 1) * np.log(length)
    np.testing.assert_allclose(support.constrain(jnp.asarray(u))[1], expected, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_far_out_points_stay_inside_with_finite_gradients(name, dtype, x64):
    """From 0 to 1e30: never on the boundary, never a nan; lengths of directions alone may overflow."""
    support = CASES[name][0]

    def value_and_gradient(u):
        (x, log_volume), pull = jax.vjp(support.constrain, u)
        return x, log_volume, pull((jnp.ones_like(x), jnp.ones_like(log_volume)))[0]

    compiled = jax.jit(value_and_gradient)
    for scale in (0.0, 1e-30, 30.0, 1e3, 1e30):
        x, log_volume, gradient = (np.asarray(a) for a in compiled(jnp.asarray(free_points(name, scale, dtype=dtype))))
        assert np.all(strictly_inside(name, x)), (scale, x)
        assert np.all(np.isfinite(gradient)), (scale, gradient)
        assert np.all(np.isfinite(log_volume)) or (
            name in DIRECTIONS and scale == 1e30 and not np.isnan(log_volume).any()
        )


LARGE = {"covariance": 2.0}  # from there on its condition exceeds 1 / eps


@pytest.mark.parametrize("name", INVERTIBLE)
def test_free_inverts_constrain(name, x64):
    """At small, typical and large free values, in single and double precision.

    The tolerances are what a relative error of a few eps in `u` and in `x` does to first order, by the Jacobians J of
    `constrain` and F of `free`: |F| (|x| + |J| |u|) there, and |J| times that and |x| itself on the way back.
    """
    support = CASES[name][0]

    @jax.jit
    def there_and_back(u):
        x = support.constrain(u)[0]
        return x, support.free(x), support.constrain(support.free(x))[0]

    @quick_jit
    @jax.vmap
    def jacobians(u):
        return jax.jacfwd(lambda u: support.constrain(u)[0])(u), jax.jacfwd(support.free)(support.constrain(u)[0])

    for scale in (1e-4, 1.0, LARGE.get(name, 6.0), LARGE.get(name, 30.0)):
        for dtype in (np.float32, np.float64):
            u = np.clip(free_points(name, scale / 2, dtype=dtype), -scale, scale)
            x, back, again = map(np.asarray, there_and_back(jnp.asarray(u)))
            assert x.dtype == back.dtype == dtype
            flat = (len(u), -1)
            forward, backward = (np.asarray(a) for a in jacobians(jnp.asarray(u, float)))
            size = u[0].size
            forward, backward = abs(forward.reshape(len(u), -1, size)), abs(backward.reshape(len(u), size, -1))
            few = 4 * max(2, size) * np.finfo(dtype).eps
            apply = lambda matrix, vector: np.einsum("nij,nj->ni", matrix, vector)  # noqa: E731
            at, to = abs(u.reshape(flat)), abs(x.reshape(flat))
            error = few * apply(backward, to + apply(forward, at)) + few * at
            assert np.all(abs(back - u).reshape(flat) <= error), (scale, dtype, back, u)
            assert np.all(abs(again - x).reshape(flat) <= few * to + apply(forward, error)), (scale, dtype, again, x)


@pytest.mark.parametrize(
    "method, wrong, comparison",
    [
        ("constrain", lambda right, u: (right(u)[0], jnp.zeros_like(u)), test_log_volume_is_the_log_determinant),
        ("constrain", lambda right, u: (right(u)[0], 1.00001 * u), test_log_volume_is_the_log_determinant),
        ("constrain", lambda right, u: (right(u)[0] * 1.00001, u), test_free_inverts_constrain),
        ("free", lambda right, x: right(x) + 1e-5, test_free_inverts_constrain),
    ],
    ids=["no volume", "volume off", "constrain off", "free off"],
)
def test_a_bug_planted_in_positive_is_seen(method, wrong, comparison, monkeypatch, x64):
    right = getattr(type(supports.positive), method)
    monkeypatch.setattr(type(supports.positive), method, lambda s, v: wrong(functools.partial(right, s), v))
    with pytest.raises(AssertionError):
        comparison("positive", None)


@pytest.mark.parametrize("name", DIRECTIONS)
def test_constrain_inverts_free_for_directions(name, x64):
    support = CASES[name][0]
    x = support.constrain(jnp.asarray(free_points(name, 2.0)))[0]
    np.testing.assert_allclose(support.constrain(support.free(x))[0], x, rtol=1e-12, atol=1e-12)


BOUNDARY = [
    ("positive", [0.0, np.inf]),
    ("negative", [-0.0]),
    ("greater_than", [2.5]),
    ("less_than", [-1.0]),
    ("unit_interval", [0.0, 1.0]),
    ("interval", [-1.0, 1e-3]),
    ("simplex", [[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]),
    ("ordered", [[1.0, 1.0, 1.0, 2.0]]),
    ("positive_ordered", [[0.0, 0.0, 1.0, 2.0]]),
    ("corr_cholesky", [[[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]]]),
    ("cholesky", [[[0.0, 0, 0], [1.0, 1.0, 0], [0, 1.0, 0]]]),
    ("covariance", [[[1.0, 1.0, 1.0]] * 3]),
]


@pytest.mark.parametrize("name, points", BOUNDARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_boundary_points_have_finite_free_values(name, points, dtype, x64):
    support = CASES[name][0]
    free = jax.jit(support.free)(jnp.asarray(points, dtype))
    assert np.all(np.isfinite(free))
    assert np.all(strictly_inside(name, np.asarray(jax.jit(support.constrain)(free)[0])))


@pytest.mark.parametrize("name", CASES)
def test_feasible_points_are_members(name):
    support, shape, _ = CASES[name]
    x = jnp.full((2, *shape), jnp.nan)
    x = jnp.broadcast_to(support.feasible(x), x.shape)
    assert np.all(support.contains(x)) and np.all(strictly_inside(name, np.asarray(x)))
    assert support.contains(x).shape == (2,)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tanh_volume_far_from_zero(dtype, x64):
    log_volume = Tanh().constrain(jnp.asarray([1.0, 20.0, 100.0, -100.0], dtype))[1]
    np.testing.assert_allclose(log_volume, [-0.8675617, -38.6137056, -198.6137056, -198.6137056], rtol=3e-7)
    x = Tanh().constrain(jnp.asarray([1e3, -1e30], dtype))[0]
    assert np.all(abs(np.asarray(x)) < 1)
    assert np.all(np.isfinite(jax.grad(lambda u: jnp.sum(Tanh().constrain(u)[1]))(jnp.asarray([0.0, 1e30], dtype))))


def test_edge_of_an_uneven_interval(x64):
    """The float below the upper end keeps its distance to that end, and comes back inside."""
    support = supports.interval(-1.0, 1e-7)
    edge = jnp.asarray(np.nextafter(1e-7, 0))
    u = support.free(edge)
    x, log_volume = support.constrain(u)
    np.testing.assert_allclose(u, 52.67919, atol=1e-5)
    np.testing.assert_allclose(log_volume - math.log(1 + 1e-7), -52.67919, atol=1e-5)
    assert -1 < x < 1e-7


def test_bounds_may_be_arrays_and_traced():
    low, high = jnp.array([[0.0, 10.0]]), jnp.array([[1.0, 20.0]])

    @jax.jit
    def there_and_back(low, high, u):
        support = supports.interval(low, high)
        x, log_volume = support.constrain(u)
        return x, log_volume, support.free(x), support.contains(x)

    u = jnp.array([[-1.0, 0.5], [0.0, 3.0], [2.0, 40.0]])
    x, log_volume, back, inside = there_and_back(low, high, u)
    assert np.all(inside) and log_volume.shape == u.shape
    np.testing.assert_allclose(back[:, 0], u[:, 0], rtol=1e-5)
    assert np.all(x < high) and np.all(x > low)


def test_ordered_entries_are_never_equal_in_float32():
    """Steps below the rounding of a large entry become one float, and the gradient still is that of the sum."""
    u = jnp.array([1e8, -20.0, -20.0, 3.0], jnp.float32)
    x = np.asarray(supports.ordered.constrain(u)[0])
    assert np.all(np.diff(x) > 0) and x[1] == np.nextafter(x[0], np.float32(np.inf))
    jacobian = jax.jacfwd(lambda u: supports.ordered.constrain(u)[0])(u)
    np.testing.assert_allclose(jacobian, np.tril(np.ones((4, 4))) * np.exp([0.0, -20, -20, 3]), rtol=1e-5)


MEMBERS = [
    (supports.real, [0.0, -1e30], [np.nan, np.inf]),
    (supports.any_real, [0.0, -np.inf, np.inf], [np.nan]),
    (supports.positive, [1e-30, 3.0], [-1.0, np.inf, np.nan]),
    (supports.nonnegative, [0.0, 3.0], [-1.0, np.inf, np.nan]),
    (supports.negative, [-2.0], [1.0, np.nan]),
    (supports.unit_interval, [0.0, 1.0, 0.5], [-1e-6, 1.001, np.nan]),
    (supports.circular, [-3.1415925, 3.1415925, 0.0], [3.2, -4.0, np.nan]),
    (supports.simplex, [[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], [[0.2, 0.3, 0.501], [-0.1, 0.6, 0.5], [np.nan, 0.5, 0.5]]),
    (supports.sum_to_zero, [[1.0, -0.25, -0.75], [0.0, 0.0, 0.0]], [[1.0, -0.5, -0.4], [np.nan, 0.0, 0.0]]),
    (supports.unit_vector, [[0.6, -0.8], [1.0, 0.0]], [[0.6, -0.7], [np.nan, 1.0]]),
    (supports.ordered, [[-1.0, 2.0, 3.0]], [[2.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, np.nan, 2.0]]),
    (supports.positive_ordered, [[1.0, 2.0]], [[-1.0, 2.0], [2.0, 1.0]]),
    (supports.cholesky, [[[1.0, 0], [5.0, 2.0]]], [[[1.0, 0.1], [5.0, 2.0]], [[1.0, 0], [5.0, -2.0]]]),
    (supports.corr_cholesky, [[[1.0, 0], [0.6, 0.8]]], [[[1.0, 0], [0.6, 0.9]], [[1.0, 0], [0.6, -0.8]]]),
    (supports.covariance, [[[2.0, 0.5], [0.5, 1.0]]], [[[2.0, 0.5], [0.4, 1.0]], [[1.0, 2.0], [2.0, 1.0]]]),
    (supports.boolean, [0.0, 1.0], [0.5, 2.0, -1.0, np.nan]),
    (supports.nonnegative_integer, [0.0, 7.0], [-1.0, 0.5, np.inf, np.nan]),
    (supports.positive_integer, [1.0, 7.0], [0.0, 1.5]),
    (supports.integer_interval(-2, 3), [-2.0, 3.0], [-3.0, 4.0, 0.5]),
    (supports.counts(5), [[2.0, 3.0], [0.0, 5.0]], [[2.0, 2.0], [2.5, 2.5], [-1.0, 6.0]]),
]


@pytest.mark.parametrize("support, members, others", MEMBERS, ids=lambda s: repr(s) if hasattr(s, "words") else "")
def test_membership_by_jax_and_by_numpy(support, members, others):
    """Numpy answers without jax, so that checking a parameter compiles nothing."""
    for points, expected in ((members, True), (others, False)):
        for point in points:
            point = np.asarray(point, np.float32)
            by_numpy = support.contains_numpy(point)
            assert not isinstance(by_numpy, jax.Array)
            assert bool(by_numpy) == expected, point
            assert bool(support.contains(jnp.asarray(point))) == expected, point


def test_whole_numbers_take_integers_booleans_and_feasible_values():
    assert np.all(supports.boolean.contains(jnp.array([True, False])))
    assert np.all(supports.boolean.contains_numpy(np.array([True, False])))
    assert np.all(supports.nonnegative_integer.contains(jnp.array([0, 3])))
    assert not supports.integer_interval(0, 2).contains(jnp.array(3))
    x = jnp.array([[1, 4], [2, 3]])
    assert np.array_equal(supports.counts(5).contains(x), [True, True])
    assert np.array_equal(supports.counts(jnp.array([5, 6])).feasible(x), [[5, 0], [6, 0]])
    assert supports.positive_integer.feasible(x).dtype == x.dtype
    assert supports.integer_interval(None, -2).feasible(x) == -2


def test_sums_may_be_off_by_rounding():
    """A thousand probabilities rounded to float32 are still a simplex, also as a float64 parameter."""
    p = np.random.default_rng(0).dirichlet(np.ones(1000))
    assert supports.simplex.contains(jnp.asarray(p, jnp.float32))
    assert supports.simplex.contains_numpy(p.astype(np.float32).astype(np.float64))


numbers = st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False)


@pytest.mark.parametrize("name", ["greater_than", "interval", "simplex", "ordered", "corr_cholesky"])
def test_any_free_point_is_inside(name):
    """Hypothesis looks for free values that leave the support."""
    support, shape, _ = CASES[name]
    constrain = jax.jit(support.constrain)
    contains = jax.jit(support.contains)

    @settings(derandomize=True, deadline=None, max_examples=60)
    @given(hnp.arrays(np.float32, support.free_shape(shape), elements=numbers))
    def inside(u):
        x, log_volume = constrain(u)
        assert contains(x) and np.isfinite(log_volume)

    inside()


@pytest.mark.parametrize("name", ["positive", "interval", "simplex", "ordered", "corr_cholesky", "cholesky"])
def test_any_moderate_free_point_comes_back(name, x64):
    support, shape, _ = CASES[name]
    there_and_back = jax.jit(lambda u: support.free(support.constrain(u)[0]))

    @settings(derandomize=True, deadline=None, max_examples=60)
    @given(hnp.arrays(np.float64, support.free_shape(shape), elements=st.floats(-4, 4, allow_subnormal=False)))
    def comes_back(u):
        np.testing.assert_allclose(there_and_back(u), u, rtol=1e-8, atol=1e-8)

    comes_back()
