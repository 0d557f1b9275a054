"""The discrete families: one generic set of tests over the table, and exact values of awkward cases."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.stats
from families_discrete import ROWS

from ppl.distributions import (
    Bernoulli,
    BetaBinomial,
    Binomial,
    Categorical,
    DirichletMultinomial,
    DiscreteUniform,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OrderedLogistic,
    Poisson,
    ZeroInflated,
)
from ppl.errors import ModelError

over_rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
over_laws = pytest.mark.parametrize("row", [r for r in ROWS if "logits" not in r.name], ids=lambda row: row.name)
DRAWS = 20_000


@jax.jit
def density(rv, x):
    return rv.log_prob(x)


@functools.cache
def slope_of(law):
    """Return a compiled gradient of the log density of `law(parameter)` at a value."""
    return jax.jit(jax.grad(lambda parameter, x: law(parameter).log_prob(x)))


def spread(row, values, dtype):
    """Return parameters of shape (cases, values, ...), each value having its own copy, and the values beside them."""
    values = np.asarray(values)
    parameters = {}
    for name, p in row.parameters.items():
        p = p.astype(dtype) if p.dtype.kind == "f" else p
        parameters[name] = jnp.asarray(np.repeat(p[:, None], len(values), 1))
    return parameters, jnp.asarray(np.broadcast_to(values, (row.cases, *values.shape)))


def build(row, parameters, x):
    return row.family(**parameters, shape=x.shape)


@functools.cache
def log_prob_and_gradient(row):
    """Return a compiled function from parameters and values to log densities and their gradients by free parameters."""

    @jax.jit
    def run(parameters, x):
        free = {n: p for n, p in parameters.items() if n not in row.fixed}
        fixed = {n: p for n, p in parameters.items() if n in row.fixed}
        log_prob, pull = jax.vjp(lambda f: build(row, {**fixed, **f}, x).log_prob(x), free)
        return log_prob, pull(jnp.ones_like(log_prob))[0]

    return run


def expected(row, values, dtype):
    with np.errstate(all="ignore"):
        rows = []
        for i in range(row.cases):
            case = {n: p.astype(dtype).astype(float) if p.dtype.kind == "f" else p for n, p in row.case(i).items()}
            rows.append(row.twin(**case).logpmf(values))
    return np.array(rows)


def each(parameter):
    return np.abs(parameter).reshape(*parameter.shape[:2], -1)


def everything(row):
    """Return the values that carry the mass of each case, padded with -1000, which carries none."""
    values = [np.asarray(row.everything(**row.case(i))) for i in range(row.cases)]
    length = max(map(len, values))
    return np.stack(
        [np.pad(v, [(0, length - len(v))] + [(0, 0)] * (v.ndim - 1), constant_values=-1000) for v in values]
    )


@functools.cache
def in_double_precision(row):
    """Return parameters, values, log densities and gradients: at the values of the table, outside, and everywhere."""
    all_mass = everything(row)
    near = np.concatenate([np.asarray(row.values, float), np.asarray(row.outside, float)])
    parameters, _ = spread(row, np.concatenate([near, all_mass[0]]), np.float64)
    x = jnp.asarray(np.concatenate([np.broadcast_to(near, (row.cases, *near.shape)), all_mass], 1))
    return parameters, x, *log_prob_and_gradient(row)(parameters, x)


@over_rows
def test_log_density_and_gradient_in_double_precision(row, x64):
    """Density to 1e-10 of scipy; gradient to 1e-6 of central differences; -inf outside the support; never nan."""
    run = log_prob_and_gradient(row)
    parameters, x, log_prob, gradient = in_double_precision(row)
    end = len(row.values)
    want = expected(row, row.values, np.float64)
    np.testing.assert_allclose(log_prob[:, :end], want, rtol=1e-10, atol=1e-11)
    assert np.all(np.isneginf(log_prob[:, end : end + len(row.outside)]))
    for name, slope in gradient.items():
        assert np.all(np.isfinite(slope)), name
        at = np.asarray(parameters[name])
        for index in np.ndindex(at.shape[2:]):
            here = at[(..., *index)]
            step = 1e-5 * np.minimum(np.abs(here), 1) if name not in ("logits", "predictor", "cutpoints") else 1e-5
            step = np.where((name == "probs") & (here < 1), np.minimum(step, 3e-4 * (1 - here)), step)
            unsure = ~np.isfinite(here) | (step == 0) | ((name == "probs") & (at.ndim == 2) & (here == 1))
            step, here = np.where(unsure, 0, step), np.where(unsure, 0, here)
            shift = np.zeros_like(at)
            shift[(..., *index)] = step
            up, _ = run({**parameters, name: at + shift}, x)
            down, _ = run({**parameters, name: at - shift}, x)
            finite = ~unsure & np.isfinite(log_prob)
            difference = (np.where(finite, up, 0) - np.where(finite, down, 0)) / np.where(
                unsure, 1, (here + step) - (here - step)
            )
            got = np.where(finite, slope[(..., *index)], 0)
            noise = 1e-14 * (1 + np.abs(np.where(finite, log_prob, 0))) / np.where(unsure, 1, step)
            size = np.abs(got) + np.where(unsure, 0, 1e-2)
            np.testing.assert_array_less(np.abs(got - difference), 1e-6 * size + 30 * noise + 1e-12, err_msg=name)


@over_rows
def test_log_density_in_single_precision(row):
    """To 1e-5 of scipy in double precision, at float32 parameters and beyond what their own rounding does."""
    run = log_prob_and_gradient(row)
    parameters, x = spread(row, np.asarray(row.values), np.float32)
    log_prob, gradient = run(parameters, x)
    assert log_prob.dtype == jnp.float32
    condition = sum(
        np.sum(np.where(np.isfinite(each(parameters[n])), each(parameters[n]), 0) * each(g), -1)
        for n, g in gradient.items()
    )
    want = expected(row, row.values, np.float32)
    finite = np.isfinite(want)
    assert np.array_equal(np.isfinite(log_prob), finite)
    error = np.abs(np.where(finite, log_prob, 0) - np.where(finite, want, 0))
    np.testing.assert_array_less(error, 1e-5 * np.abs(np.where(finite, want, 0)) + 3e-7 * condition + 2e-6)
    assert all(np.all(np.isfinite(g)) for g in gradient.values())


@over_rows
def test_probabilities_sum_to_one(row, x64):
    log_prob = in_double_precision(row)[2]
    np.testing.assert_allclose(np.sum(np.exp(log_prob[:, len(row.values) + len(row.outside) :]), -1), 1, atol=1e-9)


@over_laws
def test_moments(row, x64):
    parameters, x = spread(row, np.asarray(row.values)[:1], np.float64)
    mean, variance = jax.jit(lambda p: (build(row, p, x).mean, build(row, p, x).variance))(parameters)
    with np.errstate(all="ignore"):
        twins = [row.twin(**row.case(i)) for i in range(row.cases)]
        moments = [t.mean() for t in twins], [t.var() for t in twins]
    np.testing.assert_allclose(mean[:, 0], moments[0], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(variance[:, 0], moments[1], rtol=1e-6, atol=1e-9)


@over_laws
def test_cumulative_probabilities(row, x64):
    """Also between whole numbers, below 0, and at infinity."""
    if not hasattr(row.twin(**row.case(0)), "cdf") or row.name == "BetaBinomial":
        return
    values = np.array([-np.inf, -1, -0.5, 0, 0.5, 1, 2, 3, 3.5, 10, 40, 149, np.inf])
    parameters, x = spread(row, values, np.float64)
    rv = build(row, parameters, x)
    got = jax.jit(lambda p, x: (lambda rv: (rv.cdf(x), rv.log_cdf(x), rv.log_survival(x)))(build(row, p, x)))(
        parameters, x
    )
    assert not any(np.any(np.isnan(g)) for g in got)
    with np.errstate(all="ignore"):
        twins = [row.twin(**row.case(i)) for i in range(row.cases)]
        cdf, survival = np.array([t.cdf(values) for t in twins]), np.array([t.sf(values) for t in twins])
    np.testing.assert_allclose(got[0], cdf, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.exp(got[1]), cdf, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(np.exp(got[2]), survival, rtol=1e-9, atol=1e-14)
    assert rv.cdf(x).shape == x.shape


@over_laws
def test_vmap_and_jit_agree(row):
    """One draw at a time under vmap, against all at once; whole numbers are compared as integers here."""
    parameters, x = spread(row, np.asarray(row.values), np.float32)
    at_once, _ = log_prob_and_gradient(row)(parameters, x)
    event = x.shape[2:]
    one = jax.vmap(jax.vmap(lambda p, x: row.family(**p, shape=event).log_prob(x)))
    np.testing.assert_allclose(jax.jit(one)(parameters, x), at_once, rtol=3e-6, atol=1e-6)


def goodness_of_fit(observed, probabilities, draws):
    """Return the p-value of a chi-square test; cells are joined, the rarest first, until 20 draws are expected."""
    cells, waiting = [], np.zeros(2)
    for i in np.argsort(probabilities):
        waiting = waiting + [observed[i], draws * probabilities[i]]
        if waiting[1] >= 20:
            cells.append(waiting)
            waiting = np.zeros(2)
    cells[-1] = cells[-1] + waiting
    observed, expected = np.transpose(cells)
    if len(cells) == 1:
        return 1.0
    return scipy.stats.chi2.sf(np.sum((observed - expected) ** 2 / expected), len(cells) - 1)


@pytest.mark.false_alarm(1.2e-7)
@over_rows
def test_draws_follow_the_density(row, key):
    """Chi-square of 20,000 draws a case, each at 1e-8.

    Finds a probability of 0.5 that is off by 0.03, or one of 0.1 that is off by 0.02.
    """
    values, event = everything(row), np.shape(row.values)[1:]

    @jax.jit
    def inside(case, drawn):
        rv = row.family(**case, shape=drawn.shape)
        return jnp.all(jnp.isfinite(rv.log_prob(drawn))) & jnp.all(rv.support.contains(drawn))

    for i in range(row.cases):
        case = {
            n: jnp.asarray(p.astype(np.float32 if p.dtype.kind == "f" else np.int32)) for n, p in row.case(i).items()
        }
        drawn = row.family(**case, shape=(DRAWS, *event)).sample(jax.random.fold_in(key, i))
        assert drawn.dtype == jnp.int32 and drawn.shape == (DRAWS, *event)
        assert inside(case, drawn)
        with np.errstate(all="ignore"):
            probabilities = np.exp(row.twin(**row.case(i)).logpmf(values[i]))
        _, which = np.unique(np.concatenate([values[i], drawn]), axis=0, return_inverse=True)
        counts = np.bincount(which[len(values[i]) :], minlength=len(which))[which[: len(values[i])]]
        counts = np.where(probabilities > 0, counts, 0)
        assert counts.sum() == DRAWS, "draws where the density has no mass"
        assert goodness_of_fit(counts, probabilities, DRAWS) > 1e-8, row.case(i)


LARGE = {
    "Poisson": (Poisson(1e6, shape=(DRAWS,)), scipy.stats.poisson(1e6)),
    "Poisson-1e4": (Poisson(1e4, shape=(DRAWS,)), scipy.stats.poisson(1e4)),
    "Binomial": (Binomial(1_000_000, 0.3, shape=(DRAWS,)), scipy.stats.binom(1_000_000, np.float32(0.3))),
    "Binomial-rare": (Binomial(10_000_000, 3e-7, shape=(DRAWS,)), scipy.stats.binom(10_000_000, np.float32(3e-7))),
    "NegativeBinomial": (NegativeBinomial(1e5, 3.0, shape=(DRAWS,)), scipy.stats.nbinom(3, 3 / (3 + 1e5))),
    "BetaBinomial": (BetaBinomial(100_000, 2.0, 3.0, shape=(DRAWS,)), scipy.stats.betabinom(100_000, 2, 3)),
    "Geometric": (Geometric(1e-5, shape=(DRAWS,)), scipy.stats.geom(1e-5, loc=-1)),
}


@pytest.mark.false_alarm(1e-8)
@pytest.mark.parametrize("name", LARGE)
def test_large_counts_are_drawn_exactly(name, key):
    """Chi-square over 40 cells of about equal mass: finds a mean that is off by 0.05 standard deviations."""
    rv, twin = LARGE[name]
    drawn = np.asarray(rv.sample(key))
    edges = np.unique(twin.ppf(np.linspace(0, 1, 41)[1:-1]))
    probabilities = np.diff(np.concatenate([[0], twin.cdf(edges), [1]]))
    observed = np.bincount(np.searchsorted(edges, drawn), minlength=len(probabilities))
    assert goodness_of_fit(observed, probabilities, DRAWS) > 1e-8


def exact_binomial(x, n, p):
    p = mpmath.mpf(float(p))
    return mpmath.log(mpmath.binomial(n, x)) + x * mpmath.log(p) + (n - x) * mpmath.log(1 - p)


def exact_negative_binomial(x, m, r):
    m, r, g = mpmath.mpf(float(m)), mpmath.mpf(float(r)), mpmath.loggamma
    return g(x + r) - g(r) - g(x + 1) + r * mpmath.log(r / (r + m)) + x * mpmath.log(m / (r + m))


def exact_dirichlet_multinomial(x, a):
    a, g = [mpmath.mpf(float(v)) for v in a], mpmath.loggamma
    n, s = sum(x), sum(a)
    return g(n + 1) + g(s) - g(n + s) + sum(g(k + v) - g(v) - g(k + 1) for k, v in zip(x, a, strict=True))


def test_large_counts_keep_their_digits_in_single_precision():
    """Relative 1e-5, plus what the rounding of the parameter itself does."""
    f = np.float32
    with mpmath.workdps(40):
        for x, n, p in ((300_500, 1_000_000, f(0.3)), (3, 1_000_000, f(2e-6)), (999_990, 1_000_000, f(0.99999))):
            slack = 1.2e-7 * abs(x - n * float(p)) / (1 - float(p))
            want = float(exact_binomial(x, n, p))
            assert abs(float(density(Binomial(n, p), x)) - want) < 1e-5 * abs(want) + slack
        for x, rate in ((1_000_500, 1e6), (990_000, 1e6), (12, 1e4), (1_000_000, 3.0)):
            want = float(x * mpmath.log(rate) - rate - mpmath.loggamma(x + 1))
            assert abs(float(density(Poisson(rate), x)) - want) < 1e-5 * abs(want)
        for x, m, r in ((1_000_500, 1e6, 1e6), (5, 3.0, 1e8), (100_000, 1e5, f(0.3)), (0, 1e5, f(0.3)), (7, 1e-3, 1e6)):
            want = float(exact_negative_binomial(x, m, r))
            assert abs(float(density(NegativeBinomial(m, r), x)) - want) < 1e-5 * abs(want)
        for x, a in (((300_500, 699_500), (2.0, 3.0)), ((3, 7), (1e7, 3e7)), ((5, 20), (1e-4, 1e5))):
            want = float(exact_dirichlet_multinomial(x, np.float32(a)))
            assert abs(float(density(BetaBinomial(sum(x), *a), x[0])) - want) < 1e-5 * abs(want)
            assert abs(float(density(DirichletMultinomial(sum(x), a), jnp.array(x))) - want) < 1e-5 * abs(want)


def test_counts_without_trials_have_density_one():
    zeros = jnp.zeros(3, int)
    assert density(Binomial(0, 0.3), 0) == 0
    assert density(BetaBinomial(0, 2, 3), 0) == pytest.approx(0, abs=1e-6)
    assert density(Multinomial(0, [0.2, 0.3, 0.5]), zeros) == 0
    assert density(DirichletMultinomial(0, [1.0, 2.0, 3.0]), zeros) == pytest.approx(0, abs=1e-6)
    assert DirichletMultinomial(0, [1.0, 2.0, 3.0]).sample(jax.random.key(0)).tolist() == [0, 0, 0]
    assert density(Binomial(0, 0.3), 1) == -np.inf
    assert Binomial(jnp.array([0, 3, 0]), 0.5).sample(jax.random.key(0))[jnp.array([0, 2])].tolist() == [0, 0]


def three_trials(p):
    return Binomial(3, p)


def test_certain_outcomes():
    assert density(Binomial(3, 0), 0) == 0
    assert density(Binomial(1, 1), 1) == 0
    assert density(Binomial(1, 1.0), 0) == -np.inf
    assert density(Binomial(1, logits=90.5229), 1) == pytest.approx(0, abs=1e-38)
    assert density(Binomial(1, logits=90.5229), 0) == pytest.approx(-90.5229, rel=1e-6)
    assert density(Binomial(7, logits=-200.0), 3) == pytest.approx(np.log(35) - 600, rel=1e-6)
    assert density(Bernoulli(logits=90.5229), 1) == pytest.approx(0, abs=1e-38)
    assert density(BetaBinomial(10, 2, 3), 4) == pytest.approx(-1.9671124, rel=1e-6)
    assert density(Poisson(0), 0) == 0
    assert density(Poisson(0.0), 1) == -np.inf
    assert [float(Poisson(0.0).log_cdf(0)), float(Poisson(0.0).log_survival(0))] == [0, -np.inf]


def test_slopes_at_certain_outcomes():
    for law in (three_trials, Bernoulli, Geometric):
        assert np.all(np.isfinite([slope_of(law)(end, x) for end in (0.0, 1.0) for x in (0, 1, 2)])), law
    assert slope_of(three_trials)(0.0, 0) == -3
    assert slope_of(three_trials)(1.0, 3) == 3
    assert [float(slope_of(Poisson)(0.0, x)) for x in (0, 1)] == [-1, 0]


def partly_off(free):
    return Categorical(logits=jnp.array([-jnp.inf, 0, 1]) + free)


def test_a_class_that_is_switched_off():
    """Logits of -inf are accepted; values beyond the classes are never clamped to one of them."""
    off = Categorical(logits=[-np.inf, 0.0], shape=(100,))
    assert np.all(off.sample(jax.random.key(0)) == 1)
    assert density(Categorical(logits=[-np.inf, 0.0]), jnp.array([0, 1])).tolist() == [-np.inf, 0]
    assert np.all(np.isfinite([slope_of(partly_off)(0.0, x) for x in (0, 1, 2)]))
    for parameter in ([0.2, 0.3, 0.5], np.tile([0.2, 0.3, 0.5], (4, 1))):
        assert np.all(np.isneginf(density(Categorical(parameter), jnp.array([3, -1, 4, -3]))))
    assert density(Categorical(logits=[-np.inf, -np.inf]), 0) == -np.inf


def test_right_censored_counts():
    """The probability of at least 5 is what a Poisson(3) count recorded as 5 and censored contributes."""
    for bound in (4, 4.0):
        assert Poisson(3).log_survival(bound) == pytest.approx(-1.6888234, rel=1e-6)
    assert Poisson(3).log_prob(3) == pytest.approx(-1.4959226, rel=1e-6)


TAILED = {
    "Poisson": (Poisson, (3.0,)),
    "Binomial": (lambda t: Binomial(60, t), (0.3,)),
    "Binomial-logits": (lambda t: Binomial(60, logits=t), (-1.0,)),
    "NegativeBinomial": (NegativeBinomial, (9.0, 2.5)),
    "NegativeBinomial-small": (NegativeBinomial, (9.0, 0.4)),
    "Geometric": (Geometric, (0.3,)),
    "OrderedLogistic": (lambda t: OrderedLogistic(t, [-1.0, 0.0, 2.0]), (0.4,)),
    "ZeroInflated": (lambda m, t: ZeroInflated(Poisson(m), t), (3.0, 0.2)),
    "Categorical": (lambda t: Categorical(logits=jnp.array([[0, 1.0, 0]]) * t[:, None]), (0.4,)),
}


@pytest.mark.parametrize("name", TAILED)
def test_gradients_of_tails(name, x64):
    """Against central differences, from the middle to where next to nothing is left."""
    law, at = TAILED[name]
    x = jnp.array([0, 1, 2, 8, 15, 30])

    @jax.jit
    def run(*t):
        (cdf, survival), pull = jax.vjp(lambda *t: (law(*t).log_cdf(x), law(*t).log_survival(x)), *t)
        ones, zeros = jnp.ones_like(cdf), jnp.zeros_like(cdf)
        return (cdf, survival), (pull((ones, zeros)), pull((zeros, ones)))

    at = [jnp.full(x.shape, a) for a in at]
    values, slopes = run(*at)
    h = 1e-5
    for i in range(len(at)):
        up, _ = run(*(a + h * (i == j) for j, a in enumerate(at)))
        down, _ = run(*(a - h * (i == j) for j, a in enumerate(at)))
        for side in (0, 1):
            slope, finite = slopes[side][i], np.isfinite(values[side])
            assert np.all(np.isfinite(slope))
            difference = np.where(finite, up[side] - down[side], 0) / (2 * h)
            noise = 1e-14 * (1 + np.abs(values[side])) / h
            assert np.all(np.abs(slope - difference)[finite] < (1e-6 * np.abs(slope) + 30 * noise)[finite])


def test_tails_below_the_smallest_float():
    """The sum of a tail by mpmath; a censored count keeps a slope however surprising."""
    with mpmath.workdps(30):
        tail = mpmath.nsum(lambda k: mpmath.exp(-3) * mpmath.mpf(3) ** k / mpmath.factorial(k), [501, 560])
        assert float(Poisson(3.0).log_survival(500)) == pytest.approx(float(mpmath.log(tail)), rel=1e-5)
    slope = jax.grad(lambda rate: Poisson(rate).log_survival(500))(3.0)
    assert slope == pytest.approx(501 / 3 - 1 + 3 / 502 / 3, rel=1e-3)
    assert np.isfinite(Binomial(1000, 0.01).log_survival(900))


def test_parameters_that_make_no_sense_are_refused():
    for make in (Bernoulli, Geometric, Categorical, lambda: Binomial(3), lambda: Multinomial(3)):
        with pytest.raises(ModelError, match="was given neither probs nor logits: pass one of them"):
            make()
    with pytest.raises(ModelError, match="was given both probs and logits: leave one of them out"):
        Bernoulli(0.3, logits=0.1)
    with pytest.raises(ModelError, match="low is 3, above high, which is 2"):
        DiscreteUniform(jnp.array([0, 3]), 2)
    with pytest.raises(ModelError, match="base must be a random variable of whole numbers"):
        ZeroInflated(0.3, 0.2)
    with pytest.raises(ModelError, match="total_count must be a whole number"):
        Binomial(2.5, 0.5)
    with pytest.raises(ModelError, match="probs must be between"):
        Bernoulli(1.2)


def test_supports_tell_the_values():
    assert Binomial(4, 0.5).support.high == 4
    assert Categorical([0.2, 0.3, 0.5]).support.high == 2
    assert OrderedLogistic(0.0, [0.0, 1.0]).support.high == 2
    assert (DiscreteUniform(-2, 3).support.low, DiscreteUniform(-2, 3).support.high) == (-2, 3)
    assert Multinomial(4, [0.5, 0.5]).support.total == 4
    assert DiscreteUniform(0.0, 5.0).log_prob(5.0) == pytest.approx(-np.log(6))


def test_entropies_are_minus_the_mean_log_density(x64):
    for rv, x in (
        (Bernoulli(0.3), [0, 1]),
        (Categorical([0.2, 0.3, 0.5]), [0, 1, 2]),
        (DiscreteUniform(2, 4), [2, 3, 4]),
    ):
        log_prob = rv.log_prob(jnp.array(x))
        assert rv.entropy() == pytest.approx(-float(jnp.sum(jnp.exp(log_prob) * log_prob)))
    assert Bernoulli(0.0).entropy() == 0
