"""Families of vectors and matrices: densities, gradients, draws, moments, edges."""

import functools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from families_multivariate import COVARIANCE, FACTOR, FAMILIES, ILL_CONDITIONED, LOC, spread_matrix
from jax.flatten_util import ravel_pytree

from ppl.distributions import Dirichlet, LKJCholesky, MultivariateNormal, MultivariateStudentT, Wishart
from ppl.distributions.multivariate_student_t import log_gamma_ratio
from ppl.errors import ModelError
from ppl.supports import corr_cholesky

# Compiles twice as fast; for what is not about the numbers of the compiled program that users run.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
every_family = pytest.mark.parametrize("row", FAMILIES, ids=lambda row: row.name)


def build(row, dtype=np.float64, **fields):
    parameters = {name: jnp.asarray(p, dtype) for name, p in row.parameters.items()}
    return row.family(**parameters, **row.fixed, **fields)


def some_draws(row, count, seed=0):
    """Members of the support from free space, float64."""
    support, shape = build(row).support, build(row).shape
    u = np.random.default_rng(seed).normal(size=(count, *support.free_shape(shape)))
    return jax.jit(support.constrain)(jnp.asarray(u))[0]


@every_family
def test_log_density_equals_scipy(row, x64):
    """In double precision to 1e-9, in single to 2e-5; shared parameters are not broadcast."""
    x = some_draws(row, 5)
    expected = np.array([row.log_density(np.asarray(v)) for v in x])
    shape = (5, *build(row).event_shape)
    log_prob = jax.jit(lambda rv, x: rv.log_prob(x))
    np.testing.assert_allclose(log_prob(build(row, shape=shape), x), expected, rtol=1e-9, atol=1e-9)
    single = log_prob(build(row, np.float32, shape=shape), x.astype(jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, expected, rtol=2e-5, atol=2e-4)
    one = jax.jit(jax.vmap(build(row).log_prob))(x)
    np.testing.assert_allclose(one, expected, rtol=1e-9, atol=1e-9)


@every_family
def test_parameters_with_a_batch_axis_give_a_row_each(row, x64):
    """Two copies of each parameter, the second changed: each row of values meets its own parameters."""
    x = some_draws(row, 2)
    stacked = {n: np.stack([p, p * 1.1]) for n, p in row.parameters.items()}
    rv = row.family(**stacked, **row.fixed)
    assert rv.shape == x.shape and rv.batch_shape == (2,) and rv.event_ndim == x.ndim - 1
    log_prob = jax.jit(lambda rv, x: rv.log_prob(x))
    alone = [log_prob(row.family(**{n: p[i] for n, p in stacked.items()}, **row.fixed), x[i]) for i in range(2)]
    np.testing.assert_allclose(log_prob(rv, x), alone, rtol=1e-10)
    assert jax.eval_shape(rv.sample, jax.random.key(0)).shape == x.shape


@every_family
def test_gradients_equal_central_differences(row, x64):
    """By the value, through the support, and by each parameter, through its domain; single precision as double."""
    rv = build(row)
    names = list(row.parameters)
    free = [rv.domain[n].free(jnp.asarray(row.parameters[n])) for n in names]
    u = jax.jit(rv.support.free)(some_draws(row, 1, seed=1)[0])

    def log_density(u, *free):
        parameters = {n: rv.domain[n].constrain(p)[0] for n, p in zip(names, free, strict=True)}
        return row.family(**parameters, **row.fixed).log_prob(rv.support.constrain(u)[0])

    point, separate = ravel_pytree((u, *free))
    value = lambda point: log_density(*separate(point))  # noqa: E731
    steps = 1e-5 * np.eye(point.size)
    up, down = quick_jit(jax.vmap(value))(jnp.concatenate([point[None] + steps, point[None] - steps])).reshape(2, -1)
    gradient = jax.grad(log_density, tuple(range(1 + len(free))))
    double = quick_jit(gradient)(u, *free)
    np.testing.assert_allclose(ravel_pytree(double)[0], (up - down) / 2e-5, rtol=1e-5, atol=1e-6)
    with jax.enable_x64(False):
        single = jax.jit(gradient)(*(np.asarray(v, np.float32) for v in (u, *free)))
    for one, two in zip(single, map(np.asarray, double), strict=True):
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(one, two, rtol=0, atol=40 * np.finfo(np.float32).eps * (1 + np.max(abs(two))))


def through(matrix, name, by_covariance):
    """Turn a gradient by the covariance into that by the matrix that gives it; all in mpmath."""
    if name == "covariance":
        return by_covariance
    if name == "precision":
        return -(matrix**-1) * by_covariance * matrix**-1
    full = 2 * by_covariance * matrix
    return mp.matrix([[full[i, j] if j <= i else 0 for j in range(full.cols)] for i in range(full.rows)])


def as_array(matrix):
    return np.array(matrix.tolist(), float).reshape(matrix.rows, matrix.cols)


@pytest.mark.parametrize("name", ILL_CONDITIONED)
@pytest.mark.parametrize("dtype, condition", [(np.float32, 1e3), (np.float64, 1e6)], ids=["float32", "float64"])
def test_ill_conditioned_matrices_cost_no_more_digits_than_they_must(name, dtype, condition):
    """Values and gradients by x and by the matrix, against mpmath at the same rounded inputs.

    An error of eps in a matrix or in its factor costs eps times the condition of that; a few times n of them are allowed.
    """
    build_it, parameter, exact = ILL_CONDITIONED[name]
    covariance = spread_matrix(condition)
    factor, n = np.linalg.cholesky(covariance), 4
    matrix = {"covariance": covariance, "scale_tril": factor, "precision": np.linalg.inv(covariance)}[parameter]
    matrix = ((matrix + matrix.T) / 2 if parameter != "scale_tril" else matrix).astype(dtype)
    noise = np.random.default_rng(2).normal(size=(3, n, 8))
    x = factor @ noise if "Wishart" in name else (factor @ noise)[..., :1]
    x = (x @ x.mT if "Wishart" in name else x[..., 0]).astype(dtype)
    log_prob = jax.value_and_grad(lambda x, m: build_it(m).log_prob(x), (0, 1))
    with jax.enable_x64(dtype is np.float64):
        values, (by_x, by_matrix) = jax.jit(jax.vmap(log_prob, (0, None)))(x, matrix)
    assert values.dtype == by_x.dtype == by_matrix.dtype == dtype
    few = 4 * n * float(np.finfo(dtype).eps)
    for i in range(3):
        with mp.workdps(50):
            given = mp.matrix(matrix.tolist())
            whole = {"covariance": lambda m: m, "scale_tril": lambda m: m * m.T, "precision": lambda m: m**-1}
            value, *wanted = exact(mp.matrix(x[i].tolist()), whole[parameter](given))
            wanted = wanted[0], through(given, parameter, wanted[1])
        worst = max(np.linalg.cond(matrix), np.linalg.cond(x[i]) if "Wishart" in name else 1)
        assert abs(float(values[i]) - float(value)) <= few * worst
        for got, want in zip((by_x[i], by_matrix[i]), map(as_array, wanted), strict=True):
            assert np.max(abs(np.asarray(got, float).reshape(want.shape) - want)) <= few * worst * np.max(abs(want))


@every_family
@pytest.mark.false_alarm(1e-8)
def test_draws_follow_the_law_and_have_finite_densities(row, key):
    """Kolmogorov-Smirnov on functions of 20000 draws, together at 1e-8: finds shifts of 0.025 in a distribution function.

    The log density of each draw and its gradient by each parameter are finite.
    """
    rv = build(row, np.float32, shape=(20_000, *build(row, np.float32).event_shape))

    @jax.jit
    def draw(rv, key):
        x = rv.sample(key)
        return x, jax.value_and_grad(lambda rv: jnp.sum(rv.log_prob(x)))(rv)

    x, (log_density, gradient) = draw(rv, key)
    for function, law in row.laws:
        assert scipy.stats.kstest(function(np.asarray(x, float)), law.cdf).pvalue > 1e-8 / len(row.laws)
    if row.finite:
        assert np.isfinite(log_density)
    for name in row.parameters:
        assert np.all(np.isfinite(getattr(gradient, name))), name


@every_family
def test_moments_equal_scipy(row, x64):
    if row.mean is not None:
        rv = build(row, shape=(2, *build(row).event_shape))
        np.testing.assert_allclose(rv.mean, np.broadcast_to(row.mean, rv.shape), rtol=1e-9)
        np.testing.assert_allclose(rv.variance, np.broadcast_to(row.variance, rv.shape), rtol=1e-9)


@every_family
def test_values_outside_have_density_zero_and_no_gradient(row, x64):
    """nan, infinity, and values that break the constraint."""
    rv = build(row)
    x = some_draws(row, 1)[0]
    others = [x.at[(0,) * x.ndim].set(v) for v in (jnp.nan, jnp.inf, -jnp.inf)]
    if "MultivariateN" not in row.name and "MultivariateS" not in row.name:
        others += [x - 10, x + 0.1 * jnp.triu(jnp.ones(x.shape), 1) if x.ndim == 2 else 2 * x]
    value_and_gradient = jax.jit(jax.value_and_grad(rv.log_prob))
    for other in others:
        value, gradient = value_and_gradient(other)
        assert value == -jnp.inf and np.all(np.isfinite(gradient))


def test_entropies_equal_scipy(x64):
    np.testing.assert_allclose(Dirichlet(LOC**2).entropy(), scipy.stats.dirichlet(LOC**2).entropy(), rtol=1e-10)
    expected = scipy.stats.multivariate_normal(LOC, COVARIANCE).entropy()
    for matrix in (dict(covariance=COVARIANCE), dict(scale_tril=FACTOR), dict(precision=np.linalg.inv(COVARIANCE))):
        rv = MultivariateNormal(LOC, **matrix, shape=(4, 3))
        np.testing.assert_allclose(rv.entropy(), np.full(4, expected), rtol=1e-10)


@pytest.mark.false_alarm(1e-9)
def test_a_dirichlet_gives_its_own_draws_a_finite_density(key):
    """A concentration of 0.002 underflows in most draws."""
    rv = Dirichlet([30.0, 69.998, 0.002], shape=(1000, 3))
    x = rv.sample(key)
    assert np.all(x > 0) and np.all(np.isfinite(rv.log_prob(x)))
    assert np.all(rv.support.contains(x))


def test_a_dirichlet_at_the_corners():
    """Concentration 1 makes an entry of 0 harmless; above 1 the density vanishes; below 1 it has no bound."""
    np.testing.assert_allclose(Dirichlet([1.0, 2.0]).log_prob(jnp.array([0.0, 1.0])), 0.6931472, rtol=1e-6)
    corners = jnp.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert np.allclose(Dirichlet([1.0, 1.0, 1.0], shape=(2, 3)).log_prob(corners), np.log(2))
    assert np.array_equal(Dirichlet([2.0, 1.0, 1.0], shape=(2, 3)).log_prob(corners) > -jnp.inf, [True, False])
    value, gradient = jax.value_and_grad(lambda a: Dirichlet(a).log_prob(corners[1]))(jnp.array([0.5, 1.0, 1.0]))
    assert np.isfinite(value) and value > 30 and np.all(np.isfinite(gradient))


@pytest.mark.parametrize("eta", [0.5, 1.0, 3.0])
def test_lkj_density_integrates_to_one(eta, x64):
    """Two rows: over the correlation. Three rows: over three numbers in a ball, by the volume of free space."""
    one = jax.jit(lambda r: LKJCholesky(2, eta).log_prob(jnp.array([[1.0, 0.0], [r, jnp.sqrt(1 - r * r)]])))
    total = scipy.integrate.quad(lambda t: np.exp(one(np.tanh(t))) / np.cosh(t) ** 2, -18, 18)[0]
    np.testing.assert_allclose(total, 1, rtol=1e-7)
    grid = np.linspace(-12, 12, 81)
    u = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), -1).reshape(-1, 3)
    x, log_volume = corr_cholesky.constrain(jnp.asarray(u))
    log_density = LKJCholesky(3, eta, shape=(len(u), 3, 3)).log_prob(x) + log_volume
    np.testing.assert_allclose(np.sum(np.exp(log_density)) * (grid[1] - grid[0]) ** 3, 1, rtol=1e-4)


def test_a_uniform_correlation_matrix_has_the_known_volume(x64):
    """Correlation matrices of three rows fill pi^2 / 2; the density by L holds one factor L_11."""
    x = jnp.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]])
    np.testing.assert_allclose(LKJCholesky(3, 1.0).log_prob(x), np.log(0.8) - np.log(np.pi**2 / 2), rtol=1e-12)


def test_a_matrix_that_is_not_positive_definite_has_density_zero_when_traced():
    log_prob = jax.jit(lambda s: MultivariateNormal(covariance=s).log_prob(jnp.zeros(2)))
    assert log_prob(jnp.array([[1.0, 2.0], [2.0, 1.0]])) == -jnp.inf
    assert np.isfinite(log_prob(jnp.array([[1.0, 0.2], [0.2, 1.0]])))
    log_prob = jax.jit(lambda df: Wishart(df, scale=jnp.eye(3)).log_prob(jnp.eye(3)))
    assert log_prob(jnp.array(1.5)) == -jnp.inf and np.isfinite(log_prob(jnp.array(2.5)))


def test_student_t_far_out_and_with_many_degrees_of_freedom(x64):
    """The square overflows at 1e200; with 1e9 degrees of freedom it is a normal."""
    rv = MultivariateStudentT(3.0, 0.0, np.eye(2))
    value, gradient = jax.value_and_grad(rv.log_prob)(jnp.array([1e200, 0.0]))
    expected = rv.log_prob(jnp.array([1e100, 0.0])) - 5 * 100 * np.log(10)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    assert np.all(np.isfinite(gradient))
    normal = scipy.stats.multivariate_normal(np.zeros(3), COVARIANCE).logpdf(LOC)
    many = MultivariateStudentT(np.float32(1e9), np.float32(0), FACTOR.astype(np.float32))
    np.testing.assert_allclose(many.log_prob(jnp.asarray(LOC, jnp.float32)), normal, rtol=1e-5)
    a = np.array([0.3, 5.0, 29.0, 31.0, 1e4])
    np.testing.assert_allclose(
        log_gamma_ratio(jnp.asarray(a), 1.5), scipy.special.gammaln(a + 1.5) - scipy.special.gammaln(a), rtol=1e-11
    )


def test_a_loc_of_one_number_serves_all_entries():
    rv = MultivariateNormal(2.0, scale_tril=FACTOR)
    assert rv.shape == (3,) and np.all(rv.mean == 2)
    assert MultivariateNormal(np.zeros((4, 3)), covariance=COVARIANCE).shape == (4, 3)


REFUSED = [
    (lambda: MultivariateNormal(name="z"), "exactly one of covariance, scale_tril and precision"),
    (lambda: MultivariateNormal(covariance=np.eye(2), precision=np.eye(2), name="z"), "has covariance and precision"),
    (lambda: MultivariateNormal(covariance=[[1.0, 2.0], [2.0, 1.0]], name="z"), "symmetric and positive definite"),
    (lambda: MultivariateNormal(covariance=2.0, name="z"), "must be square"),
    (lambda: MultivariateNormal(np.zeros(2), covariance=np.eye(3), name="z"), r"loc has shape \(2,\)"),
    (lambda: MultivariateNormal(covariance=np.eye(3), shape=(4,), name="z"), "do not fit shape"),
    (lambda: MultivariateStudentT(3.0, name="z"), "give scale_tril"),
    (lambda: Dirichlet(1.0, name="z"), "needs at least 1 axes"),
    (lambda: Dirichlet([1.0, -1.0], name="z"), "must be positive, but is -1"),
    (lambda: LKJCholesky(2.5, name="z"), "dimension must be a whole number"),
    (lambda: Wishart(1.5, np.eye(3), name="z"), "df must be more than n - 1 = 2"),
    (lambda: Wishart(5.0, name="z"), "exactly one of scale and scale_tril"),
]


@pytest.mark.parametrize("build_it, words", REFUSED)
def test_parameters_that_make_no_sense_are_refused(build_it, words):
    with pytest.raises(ModelError, match=f"^'z'.*{words}"):
        build_it()
