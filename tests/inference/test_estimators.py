"""Objectives and gradient estimators against exact expectations: unbiased, and without variance where that is promised."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from models import LINE, line

import ppl
from ppl import Bernoulli, Categorical, Mixture, Normal, VonMises, infer
from ppl.inference import estimators
from ppl.inference.parameters import apart
from ppl.inference.vi import prepare

Y, MEAN, LOG_SD = 1.5, 0.3, -0.4
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def point():
    x = yield Normal(0.0, 1.0, name="x")
    yield Normal(x, 1.0, name="y")


def guide(q):
    yield Normal(q["mean"], jnp.exp(q["log_sd"]), name="x")


def log_weight(x, mean, log_sd):
    joint = scipy.stats.norm.logpdf(x) + scipy.stats.norm.logpdf(Y, x, 1)
    return joint - scipy.stats.norm.logpdf(x, mean, np.exp(log_sd))


def exact(bound, mean, log_sd, draws):
    """E[bound(log w_1, ..., log w_K)] by quadrature over the K draws."""
    each = log_weight(mean + np.exp(log_sd) * NODES, mean, log_sd)
    x = np.stack(np.meshgrid(*[each] * draws, indexing="ij"))
    weights = functools.reduce(np.multiply.outer, [WEIGHTS] * draws)
    return np.sum(weights * bound(x))


def log_mean_exp(x):
    return np.log(np.mean(np.exp(x - x.max(0)), 0)) + x.max(0)


def contrast(log_joint, log_guide):
    """An objective of a user's own: any smooth function."""
    x = log_joint - log_guide
    return jnp.mean(x) - 0.1 * jnp.mean(jnp.square(x))


OBJECTIVES = {
    "elbo": (infer.elbo, lambda x: x.mean(0)),
    "importance_weighted": (infer.importance_weighted, log_mean_exp),
    "renyi": (infer.renyi(0.5), lambda x: log_mean_exp(0.5 * x) / 0.5),
    "own": (contrast, lambda x: x.mean(0) - 0.1 * np.square(x).mean(0)),
}
WAYS = [
    *[(name, way) for name in OBJECTIVES for way in ("pathwise", "doubly", "score")],
    *[("elbo", "sticking"), ("elbo", "entropy")],
]


def gradients(model, program, data, init, objective, gradient, samples, count, seed, baseline=0.0):
    """Values and gradients of `count` independent estimates."""
    work = prepare(model, program, data, init, objective, gradient, 0.1, samples, None, None, None, None)
    params = apart(work.full.spec.init)[0]

    def one(key):
        def value(params):
            found = estimators.estimate(
                work.full, objective, work.gradient, key, params, work.arrays, samples, jnp.float32(baseline)
            )
            return found.surrogate, found.value

        return jax.grad(value, has_aux=True)(params)

    found, values = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), count))
    return np.asarray(values, float), jax.tree.map(lambda x: np.asarray(x, float), found)


def agree(estimates, truth, error=5e-4):
    """Within six standard errors, and an allowance for float32 and the exact value's own differences."""
    deviation = abs(estimates.mean(0) - truth)
    assert (deviation < 6 * estimates.std(0) / np.sqrt(len(estimates)) + error).all(), (estimates.mean(0), truth)


@pytest.mark.false_alarm(1.2e-7)
@pytest.mark.parametrize("name, way", WAYS)
def test_estimators_are_unbiased(name, way, seed):
    """Two draws a step; value and two gradients against quadrature and central differences of it, six standard errors."""
    objective, bound = OBJECTIVES[name]
    init = {"mean": jnp.float32(MEAN), "log_sd": jnp.float32(LOG_SD)}
    values, found = gradients(point, guide, {"y": Y}, init, objective, way, 2, 40_000, seed)
    agree(values, exact(bound, MEAN, LOG_SD, 2))
    step = 1e-3
    agree(found["mean"], (exact(bound, MEAN + step, LOG_SD, 2) - exact(bound, MEAN - step, LOG_SD, 2)) / (2 * step))
    agree(found["log_sd"], (exact(bound, MEAN, LOG_SD + step, 2) - exact(bound, MEAN, LOG_SD - step, 2)) / (2 * step))


def test_sticking_the_landing_with_another_objective_is_the_double_reparametrization():
    work = prepare(
        point, guide, {"y": Y}, {"mean": 0.0, "log_sd": 0.0}, infer.importance_weighted, "sticking", 0.1, 2, *[None] * 4
    )
    assert work.gradient == "doubly"


@pytest.mark.parametrize(
    "name, way", [("elbo", "sticking"), ("elbo", "doubly"), ("importance_weighted", "doubly"), ("renyi", "doubly")]
)
def test_the_gradient_has_no_variance_at_the_posterior(name, way):
    init = {"mean": jnp.float32(0.75), "log_sd": jnp.log(jnp.float32(0.5)) / 2}
    _, found = gradients(point, guide, {"y": Y}, init, OBJECTIVES[name][0], way, 4, 200, 0)
    _, noisy = gradients(point, guide, {"y": Y}, init, infer.elbo, "pathwise", 4, 200, 0)
    assert all(abs(g).max() < 3e-6 for g in found.values()) and noisy["mean"].std() > 0.1


def test_the_automatic_full_rank_gradient_has_no_variance_at_the_posterior():
    x = np.asarray(LINE["x"], float)
    precision = np.eye(2) + np.array([[8, x.sum()], [x.sum(), (x**2).sum()]]) / 0.25
    covariance = np.linalg.inv(precision)
    factor = np.linalg.cholesky(covariance)
    y = np.asarray(LINE["y"], float)
    mean = covariance @ np.array([y.sum(), (x * y).sum()]) / 0.25
    work = prepare(line, infer.full_rank, LINE, None, infer.elbo, "sticking", 0.1, 4, *[None] * 4)
    at = {
        "loc": jnp.float32(mean),
        "below": jnp.tril(jnp.float32(factor), -1),
        "log_diagonal": jnp.float32(np.log(np.diag(factor))),
    }

    def value(params, key):
        return estimators.estimate(
            work.full, infer.elbo, "sticking", key, params, work.arrays, 4, jnp.float32(0)
        ).surrogate

    found = jax.jit(jax.vmap(jax.grad(value), (None, 0)))(at, jax.random.split(jax.random.key(0), 100))
    assert all(float(abs(g).max()) < 2e-3 for g in jax.tree.leaves(found))  # of terms of the order of 30


# -- draws that no gradient passes through ------------------------------------------------------------------------------


def choice():
    k = yield Bernoulli(probs=0.3, name="k")
    x = yield Normal(jnp.where(k > 0, 1.0, -1.0), 1.0, name="x")
    yield Normal(x, 1.0, name="y")


def choosing(q):
    k = yield Bernoulli(logits=q["logit"], name="k")
    yield Normal(jnp.where(k > 0, q["up"], q["down"]), 0.8, name="x")


AT = {"logit": 0.4, "up": 0.5, "down": -0.2}


def exact_choice(logit, up, down):
    chance, total = 1 / (1 + np.exp(-logit)), 0.0
    for k, share, loc in ((1, chance, up), (0, 1 - chance, down)):
        x = loc + 0.8 * NODES
        value = np.log([0.7, 0.3][k]) + scipy.stats.norm.logpdf(x, 2 * k - 1) + scipy.stats.norm.logpdf(Y, x)
        total += share * np.sum(WEIGHTS * (value - np.log(share) - scipy.stats.norm.logpdf(x, loc, 0.8)))
    return total


@pytest.mark.false_alarm(1.5e-8)
@pytest.mark.parametrize("samples, baseline", [(1, -2.0), (4, 0.0)], ids=["running mean", "leave one out"])
@pytest.mark.parametrize("way", ["pathwise", "sticking", "score"])
def test_discrete_variables_have_an_unbiased_gradient(way, samples, baseline, seed):
    init = {n: jnp.float32(v) for n, v in AT.items()}
    values, found = gradients(choice, choosing, {"y": Y}, init, infer.elbo, way, samples, 60_000, seed, baseline)
    agree(values, exact_choice(**AT))
    for name in AT:
        ahead, behind = exact_choice(**{**AT, name: AT[name] + 1e-3}), exact_choice(**{**AT, name: AT[name] - 1e-3})
        agree(found[name], (ahead - behind) / 2e-3)


def test_control_variates_reduce_the_variance():
    init = {n: jnp.float32(v) for n, v in AT.items()}
    spread = {}
    for kind, samples, baseline in (("none", 1, 0.0), ("running", 1, float(exact_choice(**AT))), ("others", 4, 0.0)):
        _, found = gradients(choice, choosing, {"y": Y}, init, infer.elbo, None, samples, 20_000, 1, baseline)
        spread[kind] = found["logit"].std() * np.sqrt(samples)
    assert spread["running"] < 0.7 * spread["none"] and spread["others"] < 0.8 * spread["none"]


@pytest.mark.false_alarm(1e-8)
def test_a_discrete_posterior_is_found():
    """Exact posterior of k: Bernoulli with odds 0.3 N(1.5; 1, sqrt 2) / (0.7 N(1.5; -1, sqrt 2)).

    Log odds of fits have an sd of 0.017 from seed to seed; a log weight errs by less than the log odds do.
    """

    def model():
        k = yield Bernoulli(probs=0.3, name="k")
        yield Normal(jnp.where(k > 0, 1.0, -1.0), np.sqrt(2.0), name="y")

    def program(q):
        yield Bernoulli(logits=q, name="k")

    odds = np.log(0.3 / 0.7) + scipy.stats.norm.logpdf(Y, 1, np.sqrt(2)) - scipy.stats.norm.logpdf(Y, -1, np.sqrt(2))
    fit = infer.vi(model, program, {"y": Y}, init=0.0, steps=3000, progress=False)
    np.testing.assert_allclose(fit.params, odds, atol=0.12)
    np.testing.assert_allclose(
        fit.log_weights(5),
        np.log(0.3 * scipy.stats.norm.pdf(Y, 1, np.sqrt(2)) + 0.7 * scipy.stats.norm.pdf(Y, -1, np.sqrt(2))),
        atol=0.12,
    )


@pytest.mark.false_alarm(1e-8)
def test_a_mixture_as_guide_has_an_unbiased_gradient(seed):
    """Its draws are no differentiable function of its weights: the score function takes over."""

    def program(q):
        yield Mixture(
            jnp.stack([q["share"], 1 - q["share"]]), Normal(jnp.stack([q["first"], jnp.float32(1.5)]), 0.7), name="x"
        )

    def value(share, first):
        total = 0.0
        grid = np.linspace(-8, 9, 20001)
        density = share * scipy.stats.norm.pdf(grid, first, 0.7) + (1 - share) * scipy.stats.norm.pdf(grid, 1.5, 0.7)
        total = np.trapezoid(
            density * (scipy.stats.norm.logpdf(grid) + scipy.stats.norm.logpdf(Y, grid) - np.log(density)), grid
        )
        return total

    init = {"share": jnp.float32(0.4), "first": jnp.float32(-0.5)}
    values, found = gradients(point, program, {"y": Y}, init, infer.elbo, None, 4, 40_000, seed)
    agree(values, value(0.4, -0.5))
    agree(found["share"], (value(0.401, -0.5) - value(0.399, -0.5)) / 2e-3)
    agree(found["first"], (value(0.4, -0.499) - value(0.4, -0.501)) / 2e-3)


def test_families_say_whether_a_gradient_passes_through_their_draws():
    """Where one says so, the mean's derivative is that of its draws; truncation by bisection has derivative 0, so it may not."""
    stopped = [
        VonMises(0.0, 1.0),
        Mixture(jnp.full(2, 0.5), Normal(jnp.zeros(2), 1.0)),
        ppl.Truncated(Normal(0.0, 1.0), low=0.0),
    ]
    stopped += [ppl.Censored(Normal(0.0, 1.0), high=1.0), ppl.Transformed(VonMises(0.0, 1.0), ppl.Affine(0.0, 2.0))]
    assert not any(rv.pathwise for rv in stopped) and Normal(0.0, 1.0).pathwise


PATHWISE = {
    "Normal": ppl.Normal(0.3, 1.2), "LogNormal": ppl.LogNormal(0.1, 0.5), "HalfNormal": ppl.HalfNormal(1.3),
    "TruncatedNormal": ppl.TruncatedNormal(0.2, 1.1, low=-0.5, high=2.0), "StudentT": ppl.StudentT(7.0, 0.3, 1.2),
    "HalfStudentT": ppl.HalfStudentT(7.0, 1.2), "Laplace": ppl.Laplace(0.2, 0.7), "Logistic": ppl.Logistic(0.2, 0.7),
    "Gumbel": ppl.Gumbel(0.1, 0.8), "Exponential": ppl.Exponential(1.4), "Gamma": ppl.Gamma(2.3, 1.4),
    "InverseGamma": ppl.InverseGamma(9.0, 1.4), "Weibull": ppl.Weibull(1.7, 1.2), "Chi2": ppl.Chi2(3.4),
    "Beta": ppl.Beta(2.0, 3.0), "Uniform": ppl.Uniform(-0.4, 1.2), "Kumaraswamy": ppl.Kumaraswamy(2.0, 3.0),
    "SkewNormal": ppl.SkewNormal(0.2, 1.1, 1.5), "Dirichlet": ppl.Dirichlet(jnp.array([1.5, 2.0, 3.0])),
}  # fmt: skip


@pytest.mark.false_alarm(1e-8)
@pytest.mark.parametrize("family", PATHWISE)
def test_the_derivative_of_the_mean_is_the_mean_derivative_of_the_draws(family, key):
    rv = PATHWISE[family]
    leaves, outline = jax.tree.flatten(rv)
    assert rv.pathwise

    def total(leaves, key=None):
        own = jax.tree.unflatten(outline, leaves)
        x = own.mean if key is None else own.sample(key)
        return jnp.sum(x * jnp.arange(1, x.size + 1).reshape(x.shape).astype(x.dtype))

    truth = jax.grad(total)(leaves)
    found = jax.jit(jax.vmap(jax.grad(total), (None, 0)))(leaves, jax.random.split(key, 20_000))
    for estimates, exact in zip(found, truth, strict=True):
        agree(np.asarray(estimates, float), np.asarray(exact), 1e-4)


# -- forward divergence -------------------------------------------------------------------------------------------------


@pytest.mark.false_alarm(1e-9)
def test_the_forward_divergence_matches_moments():
    """KL(p, q) over normal q is least at the posterior's mean and sd, also where q starts elsewhere."""
    fit = infer.vi(
        point, guide, {"y": Y}, init={"mean": jnp.float32(0.0), "log_sd": jnp.float32(0.3)}, objective=infer.forward_kl,
        samples=256, steps=1500, progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(fit.params["mean"], 0.75, atol=0.02)
    np.testing.assert_allclose(jnp.exp(fit.params["log_sd"]), np.sqrt(0.5), atol=0.02)
    with pytest.raises(ppl.ModelError, match="forward_kl is for fixed draws"):
        infer.vi(
            point, guide, {"y": Y}, init={"mean": 0.0, "log_sd": 0.0}, objective=infer.forward_kl, gradient="pathwise"
        )


@pytest.mark.false_alarm(1e-8)
def test_its_gradient_is_that_of_the_weighted_score(seed):
    """Self-normalized weights of many draws: -d KL(p, q) / d mean = (E_p[x] - mean) / sd^2, with a bias of the order 1 / 400."""
    init = {"mean": jnp.float32(MEAN), "log_sd": jnp.float32(LOG_SD)}
    _, found = gradients(point, guide, {"y": Y}, init, infer.forward_kl, None, 400, 2000, seed)
    variance = np.exp(2 * LOG_SD)
    agree(found["mean"], (0.75 - MEAN) / variance, 0.02)
    agree(found["log_sd"], (0.5 + (0.75 - MEAN) ** 2) / variance - 1, 0.03)


def test_bounds_order_themselves():
    """ELBO <= Renyi 0.5 <= importance weighted <= evidence, at a guide of the wrong width, for the same draws."""
    init = {"mean": jnp.float32(0.5), "log_sd": jnp.float32(0.3)}
    means = [
        gradients(point, guide, {"y": Y}, init, objective, None, 16, 2000, 0)[0].mean()
        for objective in (infer.elbo, infer.renyi(0.5), infer.importance_weighted)
    ]
    assert means[0] < means[1] < means[2] < scipy.stats.norm.logpdf(Y, 0, np.sqrt(2)) + 5e-3
    with pytest.raises(ppl.ModelError, match="alpha=1 is the ELBO"):
        infer.renyi(1)


def test_refusals_of_estimators():
    def program(q):
        yield Categorical(logits=q, name="k")

    def model():
        yield Categorical(probs=jnp.array([0.2, 0.8]), name="k")

    with pytest.raises(ppl.ModelError, match="needs draws that are differentiable .* and 'k' is none"):
        infer.vi(model, program, init=jnp.zeros(2), gradient="doubly")
    with pytest.raises(ppl.ModelError, match="gradient='entropy' is for objective=infer.elbo"):
        infer.vi(
            point, guide, {"y": Y}, init={"mean": 0.0, "log_sd": 0.0}, objective=infer.renyi(0.2), gradient="entropy"
        )
