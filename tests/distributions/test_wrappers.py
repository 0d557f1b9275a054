"""Mixture, Truncated, Censored, Transformed, Factor, Deterministic: densities, gradients, draws, edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from families_multivariate import TERMS, WRAPPERS
from jax.test_util import check_grads

from ppl.distributions import (
    Affine,
    Censored,
    Deterministic,
    Dirichlet,
    Factor,
    Gamma,
    Geometric,
    Logistic,
    Mixture,
    MultivariateNormal,
    Normal,
    Poisson,
    StudentT,
    Tanh,
    Transformed,
    Truncated,
    TruncatedNormal,
    Uniform,
    VonMises,
)
from ppl.errors import ModelError
from ppl.supports import corr_cholesky, positive, simplex, unit_interval

every_wrapper = pytest.mark.parametrize("name, build, law, points", WRAPPERS, ids=[row[0] for row in WRAPPERS])


@every_wrapper
def test_log_density_equals_scipy(name, build, law, points, x64):
    """Inside, at closed ends and outside; the gradient by the value is never nan."""
    rv = build((len(points),))
    x = jnp.asarray(points)
    expected = law[0](np.asarray(points, float))
    log_density, gradient = jax.jit(jax.vmap(jax.value_and_grad(build(()).log_prob)))(x.astype(float))
    np.testing.assert_allclose(log_density, expected, rtol=1e-8, atol=1e-9)
    assert np.all(np.isfinite(gradient))
    np.testing.assert_allclose(jax.jit(lambda rv, x: rv.log_prob(x))(rv, x), expected, rtol=1e-8, atol=1e-9)


@every_wrapper
def test_single_precision_stays_single(name, build, law, points):
    rv = build((len(points),))
    expected = law[0](np.asarray(points, float))
    log_density = jax.jit(lambda rv, x: rv.log_prob(x))(rv, jnp.asarray(points))
    assert log_density.dtype == jnp.float32
    np.testing.assert_allclose(log_density, expected, rtol=2e-5, atol=2e-5)


@every_wrapper
@pytest.mark.false_alarm(2e-8)
def test_draws_follow_the_law(name, build, law, points, key):
    """Kolmogorov-Smirnov, or chi-squared for whole numbers, on 20000 draws: finds shifts of 0.025 in the cdf."""
    rv = build((20_000,))
    x = np.asarray(jax.jit(lambda rv, key: rv.sample(key))(rv, key))
    assert x.shape == rv.shape and np.all(rv.support.contains(jnp.asarray(x)))
    if name.startswith("Censored"):
        for value, probability in ((-1, np.exp(law[0](-1.0))), (2, np.exp(law[0](2.0)))):
            assert scipy.stats.binomtest(int(np.sum(x == value)), len(x), probability).pvalue > 1e-8
    elif rv.support.discrete:
        assert x.dtype == jnp.result_type(int)
        values = np.arange(30)
        expected = np.exp(law[0](values)) * len(x)
        kept = expected > 20
        counts = np.bincount(x, minlength=30)
        observed = [*counts[kept], len(x) - counts[kept].sum()]
        expected = [*expected[kept], len(x) - expected[kept].sum()]
        if expected[-1] < 1:
            observed, expected = observed[:-1], expected[:-1]
        expected = np.array(expected) * (sum(observed) / sum(expected))
        assert scipy.stats.chisquare(observed, expected).pvalue > 1e-8
    else:
        assert scipy.stats.kstest(x.astype(float), law[1]).pvalue > 1e-8


# ------------------------------------------------------------------------------------------------------------- mixtures


def normal_and_gamma(weights, loc, concentration, rate, x):
    return Mixture(weights, [Normal(loc, 2.0), Gamma(concentration, rate)]).log_prob(x)


def test_a_component_outside_its_support_adds_nothing():
    """Neither to the value nor to any gradient; the same under jit and vmap."""
    parameters = (jnp.array([0.5, 0.5]), jnp.array(0.0), jnp.array(0.9), jnp.array(2.0))
    value_and_gradient = jax.value_and_grad(normal_and_gamma, (0, 1, 2, 3))
    mapped = jax.vmap(value_and_gradient, (None, None, None, None, 0))
    answers = [jax.jit(value_and_gradient)(*parameters, jnp.array(-1.0))]
    answers += [jax.tree_util.tree_map(lambda a: a[0], jax.jit(mapped)(*parameters, jnp.array([-1.0, 2.0])))]
    for value, (by_weights, by_loc, *by_gamma) in answers:
        np.testing.assert_allclose(value, -2.4302329, rtol=1e-6)
        np.testing.assert_allclose(by_weights, [2.0, 0.0], rtol=1e-5)
        np.testing.assert_allclose(by_loc, -0.25, rtol=1e-5)
        assert by_gamma == [0, 0]


def test_gradients_of_a_mixture_equal_central_differences(x64):
    parameters = (jnp.array([0.4, 0.6]), jnp.array(0.3), jnp.array(0.9), jnp.array(2.0), jnp.array(0.7))
    check_grads(
        jax.jit(lambda loc, c, r, x: normal_and_gamma(parameters[0], loc, c, r, x)), parameters[1:], 1, ("rev",)
    )
    components = [Normal(0.0, 1.0), Normal(3.0, 1.0)]
    by_logits = jax.jit(lambda logits: Mixture(logits=logits, components=components).log_prob(1.0))
    check_grads(by_logits, (jnp.array([0.2, -0.5]),), 1, ("rev",))


def test_a_weight_of_zero_switches_a_component_off():
    """Its density does not enter, and the gradient by its weight is the ratio of densities."""
    log_prob = lambda w: Mixture(w, [Poisson(3.0), Geometric(0.3)]).log_prob(jnp.array(2))  # noqa: E731
    value, gradient = jax.value_and_grad(log_prob)(jnp.array([0.0, 1.0]))
    expected = Geometric(0.3).log_prob(jnp.array(2))
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, [np.exp(Poisson(3.0).log_prob(jnp.array(2)) - expected), 1], rtol=1e-5)
    far = lambda w: Mixture(w, [Normal(0.0, 1.0), Normal(1e3, 1.0)]).log_prob(jnp.array(1e3))  # noqa: E731
    value, gradient = jax.value_and_grad(far)(jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(value, -0.9189385 - 5e5, rtol=1e-6)
    assert np.all(np.isfinite(gradient))
    logits = Mixture(logits=[-jnp.inf, 0.0], components=[Normal(0.0, 1.0), Normal(1.0, 1.0)])
    np.testing.assert_allclose(logits.log_prob(jnp.array(1.0)), -0.9189385, rtol=1e-6)


@pytest.mark.false_alarm(1e-9)
def test_mixtures_of_vectors(x64, key):
    """A list and one stacked random variable agree; moments are those of the mixture."""
    loc = np.array([[0.0, 1.0], [3.0, -1.0]])
    stacked = Mixture([0.3, 0.7], MultivariateNormal(loc, covariance=np.eye(2)), shape=(5, 2))
    listed = Mixture([0.3, 0.7], [MultivariateNormal(m, covariance=np.eye(2)) for m in loc], shape=(5, 2))
    x, other = jax.jit(stacked.sample)(key), jax.jit(listed.sample)(key)
    assert stacked.event_ndim == 1 and stacked.batch_shape == (5,) and other.shape == (5, 2)
    np.testing.assert_allclose(jax.jit(stacked.log_prob)(x), jax.jit(listed.log_prob)(x), rtol=1e-12)
    np.testing.assert_allclose(listed.mean[0], 0.3 * loc[0] + 0.7 * loc[1])
    np.testing.assert_allclose(stacked.variance[0], 1 + 0.21 * (loc[0] - loc[1]) ** 2)
    pair = Mixture([0.5, 0.5], [Dirichlet([1.0, 2.0, 3.0]), Dirichlet([3.0, 2.0, 1.0])])
    assert pair.support is simplex and np.isfinite(jax.jit(lambda key: pair.log_prob(pair.sample(key)))(key))


def test_weights_may_differ_from_row_to_row(x64):
    weights = np.array([[0.2, 0.8], [0.9, 0.1]])
    rv = Mixture(weights, Normal(np.array([0.0, 4.0]), 1.0))
    assert rv.shape == (2,)
    log_prob = jax.jit(lambda rv, x: rv.log_prob(x))
    alone = [log_prob(Mixture(w, Normal(np.array([0.0, 4.0]), 1.0)), jnp.array(1.0)) for w in weights]
    np.testing.assert_allclose(log_prob(rv, jnp.ones(2)), alone)


def test_the_support_of_a_mixture_is_common_or_the_hull():
    assert Mixture([0.5, 0.5], [Gamma(1.0, 1.0), Gamma(2.0, 1.0)]).support is positive
    hull = Mixture([0.5, 0.5], [Uniform(0.0, 1.0), Uniform(2.0, 3.0)])
    assert hull.support.low == 0 and hull.support.high == 3
    np.testing.assert_allclose(jax.vmap(hull.log_prob)(jnp.array([0.5, 1.5, 2.5])), [-0.6931472, -np.inf, -0.6931472])
    assert repr(Mixture([0.5, 0.5], [Normal(0.0, 1.0), Gamma(1.0, 1.0)]).support) == "a_finite_number"


# ------------------------------------------------------------------------------------------- truncation and censoring


def test_a_normal_truncated_below_at_zero():
    rv = Truncated(Normal(1.0, 0.1), low=0, shape=(4,))
    expected = [-np.inf, -11.1163534, 1.3836466, -0.6163534]
    np.testing.assert_allclose(rv.log_prob(jnp.array([-0.1, 0.5, 1.0, 1.2])), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_truncation_far_out_in_a_tail(dtype, x64):
    """Density, gradient and draws where the distribution function itself is 0 or 1 to rounding."""
    scale = jnp.geomspace(0.01, 1, 10, dtype=dtype)
    loc, low, high = (jnp.asarray(v, dtype) for v in (1.35, -20.0, -1.0))
    expected = [-1308989.935, -470421.167, -169055.833, -60751.4028, -21829.46368]
    expected += [-7842.297939, -2816.222245, -1010.587847, -362.3023684, -129.9117276]

    def log_prob(loc, scale):
        log_density = Truncated(Normal(loc, scale), low, high).log_prob(jnp.full(10, -15, dtype))
        return jnp.sum(log_density), log_density

    gradients, log_density = jax.jit(jax.grad(log_prob, (0, 1), has_aux=True))(loc, scale)
    np.testing.assert_allclose(log_density, expected, rtol=1e-5)
    assert all(np.all(np.isfinite(g)) for g in gradients)
    draws = jax.jit(
        lambda low, key: Truncated(Normal(jnp.zeros((), dtype), jnp.ones((), dtype)), low, shape=(9,)).sample(key)
    )
    for low in (30.0, 5e3):
        x = np.asarray(draws(jnp.asarray(low, dtype), jax.random.key(1)), float)
        assert np.all((x >= low) & (x < low + 30 / low))


def test_ends_differ_from_entry_to_entry_and_may_be_infinite():
    low = jnp.array([-jnp.inf, 0.0, 1.0])
    rv = Truncated(Normal(0.0, 1.0), low, jnp.array([0.0, jnp.inf, 2.0]))
    x = jax.jit(rv.sample)(jax.random.key(0))
    assert x[0] <= 0 <= x[1] and 1 <= x[2] <= 2
    expected = scipy.stats.truncnorm(np.asarray(low), [0, np.inf, 2]).logpdf(np.asarray(x))
    np.testing.assert_allclose(jax.jit(rv.log_prob)(x), expected, rtol=1e-4)
    np.testing.assert_allclose(
        jax.jit(rv.cdf)(x), scipy.stats.truncnorm(np.asarray(low), [0, np.inf, 2]).cdf(x), rtol=1e-4
    )


def test_truncation_beyond_the_support_has_density_zero():
    assert Truncated(Gamma(2.0, 1.0), high=-1.0).log_prob(jnp.array(-2.0)) == -jnp.inf


@pytest.mark.parametrize("bound", [5, 5.0, np.int32(5)])
def test_counts_censored_at_a_bound(bound):
    """The bound and the record may be integers or floats."""
    rv = Censored(Poisson(3.0), high=bound, shape=(3,))
    for x in (jnp.array([3, 5, 6]), jnp.array([3.0, 5.0, 6.0])):
        np.testing.assert_allclose(rv.log_prob(x), [-1.4959226, -1.6888234, -np.inf], rtol=1e-6)
    assert rv.sample(jax.random.key(0)).dtype == jnp.result_type(int)
    below = Censored(Poisson(3.0), low=2)
    np.testing.assert_allclose(below.log_prob(jnp.array(2)), scipy.stats.poisson(3).logcdf(2), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_normal_censored_deep_in_its_tail(dtype, x64):
    log_prob = lambda mean: Censored(Normal(mean, jnp.ones((), dtype)), high=40).log_prob(jnp.asarray(40, dtype))  # noqa: E731
    value, gradient = jax.value_and_grad(log_prob)(jnp.zeros((), dtype))
    np.testing.assert_allclose([value, gradient], [-804.6084420, 40.0249688], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_truncated_normal_censored_deep_in_its_tail(dtype, sign, x64):
    """From either side: twice the mass of a normal, whose other half is cut off."""
    end = {"low" if sign > 0 else "high": jnp.zeros((), dtype)}
    bound = dict(high=40) if sign > 0 else dict(low=-40)

    def log_prob(mean):
        return Censored(TruncatedNormal(mean, jnp.ones((), dtype), **end), **bound).log_prob(
            jnp.asarray(sign * 40, dtype)
        )

    value, gradient = jax.value_and_grad(log_prob)(jnp.zeros((), dtype))
    np.testing.assert_allclose(value, scipy.stats.norm.logsf(40) + np.log(2), rtol=1e-6)
    np.testing.assert_allclose(gradient, sign * (40.0249688 - np.sqrt(2 / np.pi)), rtol=1e-5)
    law, far = TruncatedNormal(jnp.zeros((), dtype), jnp.ones((), dtype), **end), jnp.asarray(sign * -50, dtype)
    beyond = (law.log_cdf(far), law.log_survival(far))
    assert beyond[::sign] == (-np.inf, 0)


def test_an_infinite_bound_censors_nothing():
    """Rows with and without censoring share one variable; gradients stay finite."""
    high = jnp.array([jnp.inf, 2.0])

    def log_prob(loc):
        return jnp.sum(Censored(Normal(loc, 1.0), high=high).log_prob(jnp.array([3.0, 2.0])))

    value, gradient = jax.value_and_grad(log_prob)(0.5)
    law = scipy.stats.norm(0.5)
    np.testing.assert_allclose(value, law.logpdf(3) + law.logsf(2), rtol=1e-6)
    np.testing.assert_allclose(gradient, 2.5 + law.pdf(2) / law.sf(2), rtol=1e-5)


# ---------------------------------------------------------------------------------------------------- transformations


@pytest.mark.parametrize("name", [None, "z"])
def test_the_volume_is_counted_once_whatever_the_name(name):
    rv = Transformed(Normal(0.0, 1.0), Affine(0.0, 2.0), name=name)
    np.testing.assert_allclose(rv.log_prob(jnp.array(0.0)), -1.6120857, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.false_alarm(1e-9)
def test_a_wide_normal_through_tanh_has_a_finite_density_of_its_draws(dtype, x64, key):
    """With the draw at hand it equals the exact one; from the rounded value it is finite."""
    base = Normal(jnp.zeros((), dtype), jnp.asarray(np.exp(10), dtype))
    rv = Transformed(base, Tanh(), shape=(1000,))
    x, log_density = jax.jit(rv.sample_and_log_prob)(key)
    assert np.all(abs(np.asarray(x)) < 1) and np.array_equal(x, jax.jit(rv.sample)(key))
    u = np.asarray(rv.base.sample(key), float)
    exact = scipy.stats.norm(scale=np.exp(10)).logpdf(u) - 2 * (np.log(2) - abs(u) - np.log1p(np.exp(-2 * abs(u))))
    np.testing.assert_allclose(log_density, exact, rtol=1e-5)
    assert np.all(np.isfinite(jax.jit(rv.log_prob)(x)))


@pytest.mark.false_alarm(1e-9)
def test_numbers_become_a_simplex_or_a_correlation_matrix(x64, key):
    """The event axes of the value are those of the bijection; densities with respect to its coordinates."""
    rv = Transformed(Normal(0.0, 1.0), simplex, shape=(4, 3))
    x = jax.jit(rv.sample)(key)
    assert rv.base.shape == (4, 2) and rv.batch_shape == (4,) and rv.support is simplex
    u = np.asarray(simplex.free(x))
    expected = np.sum(scipy.stats.norm.logpdf(u), -1) - np.sum(np.log(x), -1) - np.log(3) / 2
    np.testing.assert_allclose(jax.jit(rv.log_prob)(x), expected, rtol=1e-10)
    matrix = Transformed(Normal(np.zeros(3), 1.0), corr_cholesky)
    assert matrix.shape == (3, 3) and matrix.event_ndim == 2
    assert np.isfinite(jax.jit(lambda key: matrix.log_prob(matrix.sample(key)))(key))
    vector = Transformed(MultivariateNormal(covariance=np.eye(3)), positive, shape=(2, 3))
    x = jax.jit(vector.sample)(key)
    expected = np.sum(scipy.stats.lognorm(1).logpdf(np.asarray(x)), -1)
    np.testing.assert_allclose(jax.jit(vector.log_prob)(x), expected, rtol=1e-10)


def test_the_support_of_a_transformed_variable_is_an_image(x64):
    """Its map from R^n goes through the base, and its log volume is the sum of both."""
    rv = Transformed(Gamma(2.0, 1.0), Affine(1.0, np.array([-2.0, 3.0])))
    u = jnp.array([0.4, -1.2])
    x, log_volume = rv.support.constrain(u)
    np.testing.assert_allclose(x, 1 + np.array([-2, 3]) * np.exp(u))
    np.testing.assert_allclose(log_volume, np.log([2, 3]) + u)
    np.testing.assert_allclose(rv.support.free(x), u, rtol=1e-12)
    assert np.array_equal(rv.support.contains(jnp.array([2.0, 2.0])), [False, True])
    assert Transformed(Logistic(0.0, 1.0), unit_interval).support is unit_interval


def test_a_users_own_bijection(x64):
    """Two methods are enough."""

    class Cube:
        def constrain(self, u):
            return u**3, jnp.log(3 * u**2)

        def free(self, x):
            return jnp.cbrt(x)

    rv = Transformed(Normal(0.0, 1.0), Cube())
    np.testing.assert_allclose(rv.log_prob(jnp.array(8.0)), scipy.stats.norm.logpdf(2) - np.log(12), rtol=1e-12)


# ---------------------------------------------------------------------------------------------------------- terms


def test_a_factor_is_its_term():
    rv = Factor(jnp.array([1.0, -2.5]), name="term")
    assert rv.role == "observed" and np.array_equal(rv.value, [1.0, -2.5])
    assert np.array_equal(rv.log_prob(rv.value), [1.0, -2.5]) and np.array_equal(rv.sample(jax.random.key(0)), rv.value)
    assert np.array_equal(jax.grad(lambda t: jnp.sum(Factor(t).log_prob(t)))(jnp.ones(2)), [1.0, 1.0])
    assert Factor(-jnp.inf).log_prob(0.0) == -jnp.inf and Factor(2).value.dtype == jnp.float32
    with pytest.raises(ModelError, match="log_density"):
        Factor(float("nan"), name="term")


def test_a_deterministic_keeps_its_value_and_dtype():
    for value in (2.5, jnp.arange(3), np.array([True, False])):
        rv = Deterministic(value, name="effect")
        assert rv.role == "derived" and rv.shape == np.shape(value) and rv.dtype == jnp.asarray(value).dtype
        assert np.array_equal(rv.sample(jax.random.key(0)), value) and np.array_equal(rv.value, value)
        assert np.all(rv.log_prob(rv.value) == 0) and np.all(rv.support.contains(rv.value))
    with pytest.raises(ModelError, match="yield"):
        Deterministic(Normal(0.0, 1.0), name="effect")
    with pytest.raises(ModelError, match="shape"):
        Deterministic(jnp.zeros(3), shape=(2,), name="effect")


@pytest.mark.parametrize("rv", TERMS + [build((3,)) for _, build, *_ in WRAPPERS], ids=lambda rv: repr(rv)[:40])
def test_wrappers_are_pytrees_and_print(rv):
    leaves, structure = jax.tree_util.tree_flatten(rv)
    back = jax.tree_util.tree_unflatten(structure, leaves)
    assert repr(back) == repr(rv) and back.shape == rv.shape and back.name == rv.name


REFUSED = [
    (lambda: Mixture([0.5, 0.5], [Normal(0.0, 1.0), Poisson(1.0)], name="z"), "mix densities and probabilities"),
    (lambda: Mixture([0.5, 0.6], [Normal(0.0, 1.0)] * 2, name="z"), r"sum to 1, but is \[0.5, 0.6\]"),
    (lambda: Mixture([0.5, 0.5], [Normal(0.0, 1.0)] * 3, name="z"), "2 weights for 3 components"),
    (lambda: Mixture([0.5, 0.5], Normal(0.0, 1.0), name="z"), "needs a last batch axis"),
    (lambda: Mixture([0.5, 0.5], [1.0, 2.0], name="z"), "must be random variables"),
    (lambda: Mixture(components=[Normal(0.0, 1.0)], name="z"), "exactly one of weights and logits"),
    (lambda: Mixture([0.5, 0.5], [Normal(jnp.zeros(n), 1.0) for n in (2, 3)], name="z"), "do not fit each other"),
    (lambda: Mixture([0.5, 0.5], [Normal(0.0, 1.0), Dirichlet(jnp.ones(3))], name="z"), "same shape in all components"),
    (lambda: Truncated(VonMises(0.0, 1.0), 0.0, 1.0, name="z"), "cannot be truncated"),
    (lambda: Truncated(Normal(0.0, 1.0), 2.0, 1.0, name="z"), "low must not exceed high"),
    (lambda: Truncated(Normal(0.0, 1.0), name="z"), "give low, high or both"),
    (lambda: Truncated(2.0, 1.0, name="z"), "must be a random variable"),
    (lambda: Censored(Poisson(2.0), high=2.5, name="z"), "must be a whole number"),
    (lambda: Censored(StudentT(3.0, 0.0, 1.0, shape=(3,)), high=1.0, shape=(2,), name="z"), "do not fit shape"),
    (lambda: Transformed(Poisson(1.0), positive, name="z"), "is discrete"),
    (lambda: Transformed(Normal(jnp.zeros(2), 1.0), positive, shape=(3,), name="z"), "does not fit its base"),
    (lambda: Transformed(Normal(0.0, 1.0), jnp.exp, name="z"), "not a bijection"),
]


@pytest.mark.parametrize("build_it, words", REFUSED)
def test_combinations_that_make_no_sense_are_refused(build_it, words):
    with pytest.raises(ModelError, match=f"^'z'.*{words}"):
        build_it()


def test_an_affine_map_with_scale_zero_is_refused():
    with pytest.raises(ModelError, match="scale must not be 0"):
        Affine(1.0, 0.0)
