"""The continuous families of numbers, each against scipy and mpmath; `families.py` is the table."""

import functools
import importlib
import inspect
import math
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import scipy.stats
from families import FAMILIES, IMPROPER

import ppl.distributions as d
from ppl.errors import ModelError
from ppl.random_variable import RandomVariable
from ppl.supports import ordered, positive

# Compiles twice as fast; for what is not about the numbers of the compiled program that users run.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
NAMES = [row.name for row in FAMILIES]
DTYPES = (np.float32, np.float64)
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-10}
QUANTILES = (1e-6, 1e-3, 0.05, 0.3, 0.5, 0.8, 0.99, 1 - 1e-6)

every_family = pytest.mark.parametrize("name", NAMES)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=("float32", "float64"))
mostly_double = pytest.mark.parametrize(
    "dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64], ids=("float32", "float64")
)


def named(name):
    return FAMILIES[NAMES.index(name)]


@pytest.fixture
def double(dtype):
    """Double precision where the test asks for it."""
    with jax.enable_x64(dtype is np.float64):
        yield


def grid(row, parameters):
    """Points at quantiles, ends, next to ends, and outside; all are float32 numbers."""
    with np.errstate(all="ignore"):
        quantiles = np.asarray(row.twin(*parameters).ppf(np.array(QUANTILES)), float)
    points = [*quantiles, *row.points(*parameters), np.inf, -np.inf, 1e30, -1e30, 0.0, 1e-30]
    for end, inwards in zip(row.ends(*parameters), (1, -1), strict=True):
        if mp.isfinite(end):
            near = np.float32(float(end))
            points += [near + inwards, near - inwards, near + inwards * 2e-6 * (1 + abs(near))]
            if mp.mpf(float(near)) == end:  # the ends of the circle are no floats
                points += [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, -np.float32(np.inf))]
    with np.errstate(over="ignore"):
        points = np.asarray(points, np.float32)
    return np.where(np.isnan(points) | (abs(points) < np.finfo(np.float32).tiny), 0, points).astype(np.float32)


@functools.cache
def truth(name):
    """Return `(inputs, log density, gradients, curvatures)`: inputs `[1 + parameter, case, point]` are float32 numbers.

    Gradients and second derivatives `[1 + parameter, case, point]`, by the value and each parameter, are nan where the
    law has none (at a kink, and outside).
    """
    row = named(name)
    cases = [tuple(float(np.float32(p)) for p in case) for case in row.cases + row.extreme]
    points = np.stack([grid(row, case) for case in cases])
    inputs = np.stack(
        [points, *(np.repeat([[case[i]] for case in cases], points.shape[1], 1) for i in range(len(cases[0])))]
    )
    inputs = inputs.astype(float)
    values, gradients = np.full(points.shape, -np.inf), np.full((2, *inputs.shape), np.nan)
    with mp.workdps(100):
        for at in np.ndindex(points.shape):
            x, *parameters = (mp.mpf(v) for v in inputs[(slice(None), *at)])
            low, high = row.ends(*parameters)
            if not (low <= x <= high and mp.isfinite(x)):
                continue
            value = row.density(x, *parameters)
            values[at] = float(value)
            if low < x < high:
                gradients[(slice(None), slice(None), *at)] = exact_derivatives(row, low, high, x, *parameters)
    return inputs, values, *gradients


def exact_derivatives(row, low, high, *inputs):
    """Central differences with 100 digits: exact to about 1e-30."""
    room = min(abs(inputs[0] - end) for end in (low, high))
    center, gradient, curvature = row.density(*inputs), [], []
    for i, v in enumerate(inputs):
        step = mp.mpf(10) ** -35 * min(abs(v) if v else 1, room)
        up, down = (row.density(*inputs[:i], v + s, *inputs[i + 1 :]) for s in (step, -step))
        second = up + down - 2 * center
        kink = abs(second) > step * mp.mpf(10) ** -15
        gradient.append(float("nan") if kink else float((up - down) / (2 * step)))
        curvature.append(float(second / step**2))
    return gradient, curvature


@functools.cache
def computed(name, dtype):
    """Return ppl's log density and gradients at the inputs of `truth`: one compiled program for the family."""
    row = named(name)
    inputs = jnp.asarray(truth(name)[0].astype(dtype))

    @(jax.jit if dtype is np.float32 else quick_jit)
    def evaluate(inputs):
        value, pull = jax.vjp(lambda x, *parameters: row.make(*parameters, shape=x.shape).log_prob(x), *inputs)
        return value, jnp.stack(pull(jnp.ones_like(value)))

    value, gradients = evaluate(inputs)
    assert value.dtype == gradients.dtype == dtype
    return np.asarray(value, float), np.asarray(gradients, float)


def report(where, inputs, got, want):
    at = tuple(np.argwhere(where)[0])
    return (
        f"{where.sum()} points; first at (value, parameters) {inputs[(slice(None), *at)]}: {got[at]}, exact {want[at]}"
    )


@every_family
@both_dtypes
def test_log_density_equals_the_exact_one(name, dtype, double):
    """Relative 1e-5 (float32) and 1e-10 (float64), beside what rounding of the inputs and products alone must do."""
    inputs, want, gradients, _ = truth(name)
    got, _ = computed(name, dtype)
    assert not np.isnan(got).any(), report(np.isnan(got), inputs, got, want)
    limit = float(np.finfo(dtype).max)
    with np.errstate(over="ignore", invalid="ignore"):
        want = np.where(abs(want) > limit, np.sign(want) * np.inf, want)
        conditioning = np.nansum(abs(inputs * gradients), 0) * 4 * np.finfo(dtype).eps
        wrong = abs(got - want) > TOLERANCE[dtype] * (abs(want) + 0.1) + conditioning
        wrong = np.where(np.isfinite(want), wrong, got != want)
    assert not wrong.any(), report(wrong, inputs, got, want)


@every_family
@both_dtypes
def test_gradients_equal_central_differences(name, dtype, double):
    """By value and each parameter: relative 1e-7 (float64) or 1e-4, beside what rounding of the input alone must do."""
    inputs, values, want, curvature = truth(name)
    _, got = computed(name, dtype)
    nan = np.isnan(got).any(0)
    assert not nan.any(), report(nan, inputs, got[0], want[0])
    limit = float(np.finfo(dtype).max)
    rtol, atol = (1e-7, 1e-9) if dtype is np.float64 else (1e-4, 1e-4)
    for i, wanted in enumerate(want):
        with np.errstate(over="ignore", invalid="ignore"):
            unit = (1 + abs(values)) / np.where(inputs[i] == 0, 1, abs(inputs[i]))
            rounding = 4 * np.finfo(dtype).eps * abs(inputs[i] * curvature[i]) + np.finfo(dtype).tiny
            wrong = abs(got[i] - wanted) > rtol * abs(wanted) + atol * unit + rounding
            wrong &= np.isfinite(values) & ~np.isnan(wanted) & (abs(wanted) < limit) & (abs(values) < limit)
        assert not wrong.any(), f"input {i}: " + report(wrong, inputs, got[i], wanted)


@both_dtypes
@pytest.mark.parametrize(
    "comparison", [test_log_density_equals_the_exact_one, test_gradients_equal_central_differences]
)
def test_a_scale_two_percent_off_is_seen(comparison, dtype, double, monkeypatch):
    """In `Normal.log_prob` itself, until this test ends."""
    right = d.Normal.log_prob
    monkeypatch.setattr(d.Normal, "log_prob", lambda rv, x: right(rv.replace(scale=1.02 * rv.scale), x))
    monkeypatch.setattr(sys.modules[__name__], "computed", computed.__wrapped__)
    with pytest.raises(AssertionError):
        comparison("Normal", dtype, double)


@every_family
def test_density_equals_scipy(name, dtype=np.float64):
    """At usual parameters, so that the table's own formula cannot be wrong alone."""
    row = named(name)
    twin = [row.twin(*case) for case in row.cases]
    if not hasattr(twin[0], "logpdf"):
        pytest.skip("scipy has no twin")
    inputs, want, *_ = truth(name)
    for i, law in enumerate(twin):
        x = inputs[0, i, : len(QUANTILES)]
        np.testing.assert_allclose(want[i, : len(QUANTILES)], law.logpdf(x), rtol=1e-4, atol=1e-5)


@every_family
@pytest.mark.false_alarm(1e-8)
def test_draws_follow_the_law_and_lie_inside(name, key):
    """The place and spread of F(draw), and its largest distance from uniform, over 200,000 float32 draws of each case.

    The bounds share the false-alarm rate equally. The one on spread catches a scale 2 percent off in a normal family.
    At extreme parameters too, each draw lies in the support and its own log density is finite: draws that would round
    to an end are kept off it where it matters.
    """
    row = named(name)
    size, rate = 200_000, 1e-8 / (3 * len(row.cases))
    parameters = jnp.asarray(np.array(row.cases + row.extreme).T[:, :, None], jnp.float32)

    @jax.jit
    def draw(key, parameters):
        rv = row.make(*parameters, shape=(len(row.cases + row.extreme), size))
        x = rv.sample(key)
        return x, jnp.all(rv.support.contains(x), 1), jnp.all(jnp.isfinite(rv.log_prob(x)), 1)

    draws, inside, finite = draw(key, parameters)
    assert draws.dtype == jnp.float32 and draws.shape == (len(row.cases + row.extreme), size)
    assert np.all(inside) and np.all(finite), [inside, finite]
    deviations = -scipy.stats.norm.ppf(rate / 2)
    for case, x in zip(row.cases, np.asarray(draws, float), strict=False):
        u = np.sort(row.twin(*case).cdf(x))
        assert abs(u.mean() - 0.5) < deviations * math.sqrt(1 / 12 / size), case
        assert abs(abs(u - 0.5).mean() - 0.25) < deviations * math.sqrt(1 / 48 / size), case
        distance = max((np.arange(1, size + 1) / size - u).max(), (u - np.arange(size) / size).max())
        assert distance < math.sqrt(math.log(2 / rate) / (2 * size)), case  # Dvoretzky, Kiefer, Wolfowitz, Massart


def allclose(got, want, dtype, case, factor=1):
    if not np.isfinite(want):  # infinite or undefined: scipy's choices between the two differ
        assert not np.isfinite(got), case
        return
    rtol = factor * (2e-5 if dtype is np.float32 else 1e-8)
    np.testing.assert_allclose(np.asarray(got, float), want, rtol=rtol, atol=rtol / 10, err_msg=str(case))


@every_family
@mostly_double
def test_moments_and_entropy_equal_scipy(name, dtype, double):
    row = named(name)
    parameters = jnp.asarray(np.array(row.cases).T, dtype)

    @quick_jit
    def evaluate(parameters):
        rv = row.make(*parameters)
        entropy = rv.entropy() if hasattr(rv, "entropy") else None
        return rv.mean, rv.variance, entropy

    mean, variance, entropy = evaluate(parameters)
    assert mean.shape == variance.shape == parameters.shape[1:]
    for i, case in enumerate(row.cases):
        law = row.twin(*(float(p) for p in np.asarray(case, dtype)))
        allclose(mean[i], law.mean(), dtype, case)
        allclose(variance[i], law.var(), dtype, case)
        if entropy is not None and hasattr(law, "entropy"):
            allclose(entropy[i], law.entropy(), dtype, case, factor=5)


@every_family
@mostly_double
def test_distribution_functions_equal_scipy(name, dtype, double):
    """cdf, log_cdf and log_survival against scipy; icdf inverts cdf, and is right at both ends."""
    row = named(name)
    points = np.array([0.001, 0.02, 0.3, 0.5, 0.9, 0.999])
    parameters = np.array(row.cases, np.float32).astype(float)
    laws = [row.twin(*case) for case in parameters]
    x = np.stack([np.asarray(law.ppf(points), np.float32).astype(float) for law in laws])
    methods = [m for m in ("cdf", "log_cdf", "log_survival", "icdf") if hasattr(row.make(*row.cases[0]), m)]

    @quick_jit
    def evaluate(x, q, *parameters):
        rv = row.make(*parameters, shape=x.shape)
        return {m: getattr(rv, m)(q if m == "icdf" else x) for m in methods}

    parameters = [jnp.asarray(p[:, None], dtype) for p in parameters.T]
    q = np.broadcast_to(points, x.shape)
    got = evaluate(jnp.asarray(x, dtype), jnp.asarray(q, dtype), *parameters)
    assert methods or row.name == "VonMises"
    lower = np.stack([law.cdf(v) for law, v in zip(laws, x, strict=True)])
    upper = np.stack([getattr(law, "sf", law.cdf)(v) for law, v in zip(laws, x, strict=True)])
    # An x rounded to its dtype moves the mass by at most its density times the rounding.
    eps = float(np.finfo(dtype).eps)
    density = np.exp(truth_density(row, x, np.array(row.cases, np.float32)))
    slack = (1e-5 if dtype is np.float32 else 1e-9) + 4 * eps * density * abs(x)
    for method, want in (("cdf", lower), ("log_cdf", lower), ("log_survival", upper)):
        if method in methods:
            value = np.asarray(got[method], float)
            error = abs((value if method == "cdf" else np.exp(value)) - want)
            assert (error <= slack).all(), (method, error.max())
    if "icdf" in methods:
        back = np.stack([law.cdf(np.asarray(v, float)) for law, v in zip(laws, got["icdf"], strict=True)])
        assert (abs(back - points) <= 2 * slack).all(), back - points  # the error of the cdf, and that of rounding x


def truth_density(row, x, parameters):
    return np.array(
        [
            [float(row.density(mp.mpf(float(v)), *(mp.mpf(float(p)) for p in case))) for v in line]
            for line, case in zip(x, parameters, strict=True)
        ]
    )


@every_family
def test_jit_and_vmap_agree_and_a_pytree_comes_back(name):
    """One number under jit, and a stack of two variables under vmap."""
    row = named(name)
    rv = row.make(*(np.float32(p) for p in row.cases[0]))
    x = np.float32(row.twin(*row.cases[0]).ppf(0.3))
    stacked, points = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), rv), np.stack([x, x])

    @quick_jit
    def evaluate(rv, x, rvs, xs):
        return rv.log_prob(x), jax.vmap(lambda rv, x: rv.log_prob(x))(rvs, xs)

    one, many = evaluate(rv, x, stacked, points)
    assert one.shape == ()
    np.testing.assert_allclose(one, truth_density(row, [[x]], [np.float32(row.cases[0])])[0, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(many, [one, one], rtol=1e-6, atol=1e-6)
    leaves, structure = jax.tree.flatten(rv)
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(rv) and again.shape == rv.shape and set(again.parameters) == set(rv.parameters)
    assert all(again.parameters[n] is p for n, p in rv.parameters.items())


def test_a_variable_is_of_use_without_jit(key):
    rv = d.Laplace(2.0, np.array([1.0, 3.0]))
    x = rv.sample(key)
    np.testing.assert_allclose(rv.log_prob(x), scipy.stats.laplace(2, [1, 3]).logpdf(x), rtol=1e-5, atol=1e-5)
    assert rv.mean.shape == rv.variance.shape == rv.cdf(x).shape == (2,)


EXACT = [
    (d.HalfNormal(1.0), 0.0, -0.2257914),
    (d.HalfCauchy(1.0), 0.0, -0.4515827),
    (d.Exponential(5.0), 0.0, 1.6094379),
    (d.LogNormal(0.0, 1.0), 0.0, -np.inf),
    (d.Beta(1.0, 8.0), 0.0, 2.0794415),
    (d.Beta(8.0, 1.0), 1.0, 2.0794415),
    (d.Beta(1.0, 1.0), 0.0, 0.0),
    (d.Beta(1.0, 1.0), 1.0, 0.0),
    (d.Beta(5.0, 5.0), 0.0, -np.inf),
    (d.Kumaraswamy(1.0, 8.0), 0.0, 2.0794415),
    (d.Gamma(0.5), 0.0, np.inf),
    (d.Gamma(1.0, 5.0), 0.0, 1.6094379),
    (d.Gamma(2.0), -1.0, -np.inf),
    (d.Weibull(0.2, 1.0), 0.0, 1.6094379),
    (d.HalfNormal(1.0), -1.0, -np.inf),
    (d.HalfCauchy(1.0), -1.0, -np.inf),
    (d.Exponential(1.0), -1.0, -np.inf),
    (d.Uniform(0.5, 1.0), 2.0, -np.inf),
    (d.Uniform(0.5, 1.0), 0.7, 0.6931472),
    (d.TruncatedNormal(1.0, 0.1, low=0.0), -0.1, -np.inf),
    (d.TruncatedNormal(1.0, 0.1, low=0.0), 0.5, -11.1163534),
    (d.TruncatedNormal(1.0, 0.1, low=0.0), 1.0, 1.3836466),
    (d.TruncatedNormal(1.0, 0.1, low=0.0), 1.2, -0.6163534),
]


@pytest.mark.parametrize("rv, x, want", EXACT, ids=lambda v: re.sub(r"\s", "", str(v)))
def test_known_values_at_ends_and_outside(rv, x, want):
    np.testing.assert_allclose(rv.log_prob(x), want, rtol=1e-5, atol=1e-6)


def test_the_gradient_at_a_closed_end_is_that_of_the_finite_density():
    @quick_jit
    @jax.grad
    def slopes(p):
        beta, mirrored, gamma, weibull, kumaraswamy = p
        return (
            d.Beta(1.0, beta).log_prob(0.0)
            + d.Beta(mirrored, 1.0).log_prob(1.0)
            + d.Gamma(1.0, gamma).log_prob(0.0)
            + d.Weibull(weibull, 1.0).log_prob(0.0)
            + d.Kumaraswamy(1.0, kumaraswamy).log_prob(0.0)
        )

    np.testing.assert_allclose(
        slopes(jnp.array([8.0, 8.0, 5.0, 5.0, 8.0])), [0.125, 0.125, 0.2, -0.2, 0.125], rtol=1e-5
    )


@both_dtypes
def test_a_normal_truncated_far_out_in_its_tail(dtype, double):
    want = [-1308989.935, -470421.167, -169055.833, -60751.4028, -21829.46368]
    want += [-7842.297939, -2816.222245, -1010.587847, -362.3023684, -129.9117276]
    scale = jnp.asarray(np.geomspace(0.01, 1, 10), dtype)
    log_prob = jax.jit(
        lambda scale: d.TruncatedNormal(dtype(1.35), scale, dtype(-20), dtype(-1)).log_prob(jnp.full(10, -15, dtype))
    )
    np.testing.assert_allclose(log_prob(scale), want, rtol=1e-5 if dtype is np.float32 else 1e-9)


@both_dtypes
def test_tails_keep_their_logarithm(dtype, double):
    """Where the mass itself is too small to hold: against mpmath, relative 1e-5 (float32) and 1e-9."""
    with mp.workdps(40):
        gamma = mp.log(mp.gammainc(3, 200, regularized=True))
        small = mp.log(mp.gammainc(50, 0, mp.mpf(0.01), regularized=True))
        student = mp.log(mp.betainc(2.5, 0.5, 0, 5 / (5 + mp.mpf(10) ** 24), regularized=True) / 2)
        beta = mp.log(mp.betainc(60, 3, 0, mp.mpf("0.0078125"), regularized=True))
        normal = mp.log(mp.ncdf(-40))
    laws = [d.Gamma, d.Gamma, d.StudentT, d.Beta, d.Normal, d.Exponential, d.Gumbel]
    parameters = [(3, 1), (50, 1), (5, 0, 1), (60, 3), (0, 1), (2,), (0, 1)]
    points = [200, 0.01, 1e12, 0.0078125, 40, 200, 500]
    methods = ["log_survival", "log_cdf", "log_survival", "log_cdf", "log_survival", "log_survival", "log_survival"]

    @quick_jit
    def evaluate(parameters, points):
        return [getattr(f(*p), m)(x) for f, p, x, m in zip(laws, parameters, points, methods, strict=True)]

    found = evaluate(*jax.tree.map(dtype, (parameters, points)))
    want = [float(v) for v in (gamma, small, student, beta, normal, -400, -500)]
    np.testing.assert_allclose(np.asarray(found, float), want, rtol=1e-5 if dtype is np.float32 else 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64])
def test_distribution_functions_have_gradients_by_all_parameters(dtype, double):
    """Also by the concentrations of Beta and Gamma and by Student's df: against differences of the function itself."""
    cases = [(d.Beta, (0.3, 0.5, 40.0)), (d.Gamma, (2.0, 2.5, 1.5)), (d.StudentT, (1.2, 4.0, 0.0, 1.0))]
    for family, inputs in cases:

        def functions(inputs, family=family):
            rv, x = family(*inputs[1:]), inputs[0]
            return jnp.stack([rv.log_cdf(x), rv.log_survival(x)])

        inputs = np.asarray(inputs, dtype)
        steps = 1e-5 * np.concatenate([np.eye(len(inputs)), -np.eye(len(inputs))])
        both = jax.jit(jax.vmap(lambda p, functions=functions: (functions(p), jax.jacfwd(functions)(p))))
        values, slopes = (np.asarray(v) for v in both(np.concatenate([inputs[None], inputs + steps])))
        up, down = np.split(values[1:], 2)
        np.testing.assert_allclose(slopes[0], ((up - down) / 2e-5).T, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64])
def test_an_uneven_interval_is_left_by_neither_map(dtype, double):
    rv = d.Uniform(-1.0, 1e-7)
    start = np.nextafter(1e-7, 0)
    free = rv.support.free(jnp.asarray(start))
    x, log_volume = rv.support.constrain(free)
    assert float(free) == pytest.approx(52.67919, abs=1e-4)
    assert -1 <= float(x) <= 1e-7
    assert float(rv.log_prob(x) + log_volume) == pytest.approx(-52.67919, abs=1e-4)


@pytest.mark.parametrize("rv, members, others", IMPROPER, ids=lambda v: repr(v)[:40])
def test_flat_is_zero_on_its_support_and_minus_infinity_outside(rv, members, others):
    for points, want in ((members, 0.0), (others, -np.inf)):
        for x in points:
            value = rv.log_prob(jnp.asarray(x, jnp.float32))
            assert value.shape == rv.batch_shape and (value == want).all()
            assert not np.isnan(jax.grad(lambda x: rv.log_prob(x).sum())(jnp.asarray(x, jnp.float32))).any()


def test_flat_aligns_the_ends_of_its_support_with_its_shape():
    from ppl.supports import greater_than

    rv = d.Flat(greater_than(np.array([0.0, 1.0, 2.0])), shape=(2, 3))
    value = rv.log_prob(jnp.array([[0.5, 0.5, 2.5], [-1.0, 1.5, 1.5]]))
    np.testing.assert_array_equal(value, [[0, -np.inf, 0], [-np.inf, 0, -np.inf]])


def test_flat_cannot_be_drawn_and_needs_a_shape_for_vectors():
    with pytest.raises(ModelError, match=r"'mu' \(Flat\) is improper.*`init=\{'mu': \.\.\.\}`, or a proper prior"):
        d.Flat(positive, name="mu").sample(jax.random.key(0))
    with pytest.raises(ModelError, match="give `shape=`"):
        d.Flat(ordered)
    with pytest.raises(ModelError, match="must be a support"):
        d.Flat(0.0)


@pytest.mark.parametrize(
    "family", [d.Uniform, functools.partial(d.TruncatedNormal, 0.0, 1.0)], ids=["Uniform", "TruncatedNormal"]
)
def test_ends_that_leave_no_room_are_refused(family):
    with pytest.raises(ModelError, match="low must be below high, but low is 2 and high is 1"):
        family(2.0, 1.0)
    with pytest.raises(ModelError, match="low is 3 and high is 3"):
        family(np.array([0.0, 3.0]), 3.0)


@pytest.mark.parametrize("dtype", [np.float32])
def test_extremes_of_student_and_beta_keep_their_digits(dtype, double):
    """The normal limit of Student's t: its density at 1 differs from the normal's by 1 / (2 df) there, not by noise."""
    value = d.StudentT(np.float32(1e6), np.float32(0), np.float32(1)).log_prob(np.float32(1))
    assert float(value) == pytest.approx(-1.4189385, abs=1e-6)
    value = d.Beta(np.float32(1e6), np.float32(1e6)).log_prob(np.float32(0.5))
    assert float(value) == pytest.approx(0.5 * math.log(4e6 / math.pi), abs=2e-6)


def test_every_exported_family_stands_in_a_table():
    """The families and wrappers of `ppl.distributions`: one without a row in a table is one without tests."""
    exported = {
        n for n, v in vars(d).items() if inspect.isclass(v) and issubclass(v, RandomVariable) and not n.startswith("_")
    }
    tables = [Path(__file__).with_name(f"families{part}.py") for part in ("", "_discrete", "_multivariate")]
    rows = "\n".join(line for t in tables if t.exists() for line in t.read_text().splitlines() if "import" not in line)
    missing = {n for n in exported if not re.search(rf"\b{n}\(|\b{n},|\"{n}\b", rows)}
    assert not missing, f"without a row in tests/distributions/families*.py: {sorted(missing)}"
    assert importlib.util.find_spec("families")
