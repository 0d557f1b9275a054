"""The samplers as users call them: two arguments, exact posteriors, starts, seeds, errors, what is kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import (
    COUNTS,
    LINE,
    LINE_MEAN,
    LINE_SD,
    SCHOOLS,
    flat_schools,
    gaussian,
    half_space,
    line,
    mean_of,
    rate,
    unreachable,
)

import ppl
from ppl import (
    Bernoulli,
    Categorical,
    Factor,
    HalfNormal,
    InferenceWarning,
    ModelError,
    Normal,
    Scan,
    StartError,
    Uniform,
    infer,
)

SAMPLERS = [infer.hmc, infer.nuts, infer.metropolis]
GRADIENT = [infer.hmc, infer.nuts]
quiet = pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")


def z_scores(posterior, name, mean, sd):
    """Return the distances of mean and sd from the truth, in standard errors."""
    rows = posterior.summary(name).to_dict()
    table = [rows[row] for row in rows]
    found = np.array([[r["mean"], r["sd"], r["mcse_mean"], r["mcse_sd"]] for r in table])
    return np.stack([(found[:, 0] - mean) / found[:, 2], (found[:, 1] - sd) / found[:, 3]])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda f: f.__name__)
@quiet
def test_two_arguments_are_enough(sampler):
    posterior = sampler(flat_schools, SCHOOLS)
    assert list(posterior) == ["mu", "tau", "theta_base", "theta"]
    assert posterior["theta"].shape == (4, 1000, 8)
    assert np.isfinite(posterior["theta"]).all() and (posterior["tau"] > 0).all()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda f: f.__name__)
@pytest.mark.false_alarm(5e-6)
@quiet
def test_a_positive_latent_has_its_exact_posterior(sampler, seed):
    """Gamma(14, 4): a missing volume term shifts the mean by 0.25, some 10 standard errors. Fails beyond 5 of them."""
    posterior = sampler(rate, COUNTS, seed=seed, draws=4000 if sampler is infer.metropolis else 1000)
    assert (posterior["r"] > 0).all()
    assert np.abs(z_scores(posterior, "r", 3.5, 0.9354143)).max() < 5


@pytest.mark.parametrize("sampler", GRADIENT, ids=lambda f: f.__name__)
@pytest.mark.false_alarm(5e-6)
def test_a_regression_has_its_exact_posterior(sampler, seed):
    """Sees errors of 8 percent of a standard deviation. Fails beyond 5 standard errors."""
    posterior = sampler(line, LINE, seed=seed)
    for i, name in enumerate(["a", "b"]):
        assert np.abs(z_scores(posterior, name, LINE_MEAN[i], LINE_SD[i])).max() < 5


@pytest.mark.false_alarm(3e-6)
def test_draws_of_an_interval_stay_inside(seed):
    """A Uniform(0, 1) prior and an observation of 1.02: truncated normal posterior."""

    def model():
        x = yield Uniform(0.0, 1.0, name="x")
        yield Normal(x, 0.05, name="y")

    posterior = infer.nuts(model, {"y": 1.02}, seed=seed, target_accept=0.95)
    assert ((posterior["x"] >= 0) & (posterior["x"] <= 1)).all()
    assert np.abs(z_scores(posterior, "x", 0.9665622, 0.0267050)).max() < 5


def missing(n):
    x = yield Normal(0.0, 1.0, name="x")
    yield Normal(x, 0.5, shape=(n,), name="y")


@pytest.mark.parametrize("how", ["mask", "masked array"])
@pytest.mark.false_alarm(3e-6)
def test_missing_observations_leave_the_posterior_of_the_rest(how, seed):
    """Exact: mean 4/3, sd 1/3 from the two entries that exist."""
    y = np.array([1.0, np.nan, 2.0], np.float32)
    if how == "mask":
        posterior = infer.nuts(ppl.mask(missing, y=~np.isnan(y)), {"n": 3, "y": y}, seed=seed)
    else:
        posterior = infer.nuts(missing, {"n": 3, "y": np.ma.masked_invalid(y)}, seed=seed)
        assert posterior["y"].shape == (4, 1000, 1)
    assert np.abs(z_scores(posterior, "x", 4 / 3, 1 / 3)).max() < 5


@pytest.mark.false_alarm(3e-6)
def test_with_all_entries_missing_the_posterior_is_the_prior(seed):
    y = np.full(3, np.nan, np.float32)
    posterior = infer.nuts(ppl.mask(missing, y=~np.isnan(y)), {"n": 3, "y": y}, seed=seed)
    assert np.abs(z_scores(posterior, "x", 0.0, 1.0)).max() < 5


@pytest.mark.parametrize("sampler", GRADIENT, ids=lambda f: f.__name__)
@pytest.mark.false_alarm(1e-6)
def test_a_plain_gaussian_is_accepted_near_the_target(sampler, seed):
    """No divergence, acceptance between 0.65 and 0.95, and all 10 means and deviations within 6 standard errors."""
    posterior = sampler(gaussian, seed=seed)
    assert 0.65 < posterior.stats["acceptance_rate"].mean() < 0.95
    assert not posterior.stats["diverging"].any()
    assert np.abs(z_scores(posterior, "x", 0.0, 1.0)).max() < 6


@pytest.mark.parametrize(("dimension", "target", "right"), [(1, None, 0.44), (5, None, 0.234), (5, 0.6, 0.6)])
@quiet
@pytest.mark.false_alarm(1e-8)
def test_a_random_walk_is_accepted_near_its_target(dimension, target, right, seed):
    """Over 8000 transitions of four chains; the scale is learned to about a tenth, and so the acceptance to 0.05."""
    posterior = infer.metropolis(
        gaussian, {"dimension": dimension}, draws=2000, warmup=1000, seed=seed, target_accept=target, progress=False
    )
    assert abs(posterior.stats["acceptance_rate"].mean() - right) < 0.1
    assert posterior.settings.get("target_accept") == target


class TestStart:
    @pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda f: f.__name__)
    def test_a_density_that_is_never_finite_names_the_variable(self, sampler):
        with pytest.raises(StartError, match=r"(?s)not finite at any of \d+ starting points.*'count' \(Poisson\).*-1"):
            sampler(unreachable, {"count": -1}, progress=False)

    def test_a_negative_scale_names_the_parameter(self):
        def model():
            x = yield Normal(0.0, 1.0, name="x")
            yield Normal(0.0, -1.0 - x * x, name="y")

        with pytest.raises(StartError, match=r"'y' \(Normal\), whose scale is -[\d.]+; it must be positive"):
            infer.nuts(model, {"y": 0.0}, progress=False)

    @pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda f: f.__name__)
    @pytest.mark.false_alarm(1e-29)
    @quiet
    def test_a_density_that_is_finite_in_half_of_space_starts(self, sampler, seed):
        """Each of a hundred candidates of a chain is good with chance 1/2."""
        posterior = sampler(half_space, {"y": 0.3}, seed=seed, draws=100)
        assert (posterior["x"] > 0).all()

    @pytest.mark.parametrize("sampler", GRADIENT, ids=lambda f: f.__name__)
    def test_initial_values_are_on_the_natural_scale(self, sampler):
        def model():
            mu = yield Normal(0.0, 10.0, name="mu")
            sigma = yield HalfNormal(10.0, name="sigma")
            yield Normal(mu, sigma, shape=(3,), name="y")

        with pytest.warns(InferenceWarning):
            posterior = sampler(
                model, {"y": [49.0, 50.0, 51.0]}, init={"sigma": 3.0, "mu": 50.0}, step_size=1e-8, warmup=0, draws=10
            )
        assert np.allclose(posterior["sigma"][:, 0], 3.0, atol=1e-4) and np.allclose(
            posterior["mu"][:, 0], 50.0, atol=1e-4
        )

    def test_a_start_outside_of_the_support_is_refused(self):
        with pytest.raises(StartError, match=r"init\['r'\] = -1 is outside of its support"):
            infer.nuts(rate, COUNTS, init={"r": -1.0})

    def test_a_start_of_another_name_or_shape_is_refused(self):
        with pytest.raises(ModelError, match="init has 'rr', which is no latent variable"):
            infer.nuts(rate, COUNTS, init={"rr": 1.0})
        with pytest.raises(ModelError, match=r"init\['r'\] has shape \(2,\), but 'r' has shape \(\)"):
            infer.nuts(rate, COUNTS, init={"r": [1.0, 1.0]})

    @quiet
    def test_a_partial_start_leaves_the_rest_to_chance(self):
        posterior = infer.nuts(line, LINE, init={"a": 0.25}, step_size=1e-8, warmup=0, draws=5)
        assert np.allclose(posterior["a"], 0.25, atol=1e-4)
        assert len(np.unique(posterior["b"][:, 0].round(3))) == 4

    @quiet
    def test_each_chain_may_have_its_own_start(self):
        posterior = infer.nuts(line, LINE, init={"a": np.arange(4.0)}, step_size=1e-8, warmup=0, draws=5)
        assert np.allclose(posterior["a"][:, 0], np.arange(4.0), atol=1e-4)


@pytest.mark.parametrize("sampler", GRADIENT, ids=lambda f: f.__name__)
@quiet
def test_when_every_transition_diverges_the_result_says_so(sampler):
    def model():
        x = yield Normal(0.0, 1.0, name="x")
        yield Factor(jnp.sqrt(x - x), name="cliff")  # value 0, gradient nan

    with pytest.warns(InferenceWarning, match="all 400 transitions diverged"):
        posterior = sampler(model, draws=100, warmup=50)
    assert posterior.stats["diverging"].all()
    assert "(chain 0: 100, chain 1: 100, chain 2: 100, chain 3: 100)" in str(posterior)
    assert not posterior.summary()["x"]["r_hat"] < 1.1


class TestDiscrete:
    def model(self):
        k = yield Categorical(jnp.array([0.3, 0.7]), name="k")
        yield Normal(jnp.array([0.0, 2.0])[k], 0.5, name="y")

    @pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda f: f.__name__)
    def test_a_discrete_latent_is_refused_by_name(self, sampler):
        with pytest.raises(ModelError, match=r"'k' \(Categorical\) is discrete and latent"):
            sampler(self.model, {"y": 1.0})

    @quiet
    def test_observed_it_is_fine(self):
        def model():
            p = yield Uniform(0.0, 1.0, name="p")
            yield Bernoulli(p, shape=(5,), name="k")

        assert infer.nuts(model, {"k": [True, False, True, True, True]}, draws=200)["p"].shape == (4, 200)

    def test_everything_observed_leaves_nothing_to_infer(self):
        with pytest.raises(ModelError, match="no latent variable left"):
            infer.nuts(rate, {**COUNTS, "r": 1.0})


class TestSeeds:
    @pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda f: f.__name__)
    @quiet
    def test_an_int_and_both_kinds_of_key_give_the_same_draws(self, sampler):
        runs = [sampler(line, LINE, draws=20, seed=s)["a"] for s in (7, jax.random.key(7), jax.random.PRNGKey(7))]
        assert np.array_equal(runs[0], runs[1]) and np.array_equal(runs[0], runs[2])

    @quiet
    def test_seeds_and_chains_differ(self):
        first, second = (infer.nuts(line, LINE, draws=20, seed=s)["a"] for s in (0, 1))
        assert not np.any(first == second)
        assert len(np.unique(first[:, 0])) == 4

    def test_something_else_is_no_seed(self):
        with pytest.raises(TypeError, match="a seed is an int or a jax key"):
            infer.nuts(line, LINE, seed="today")

    @pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda f: f.__name__)
    @quiet
    def test_draws_do_not_depend_on_progress_or_on_the_number_of_chains(self, sampler, capsys):
        shown = sampler(line, LINE, draws=50, progress=True)
        silent = sampler(line, LINE, draws=50, progress=False)
        more = sampler(line, LINE, draws=50, chains=6, progress=False)
        assert np.array_equal(shown["a"], silent["a"])
        if sampler is infer.metropolis:  # its chains move in blocks, whose size changes the rounding
            assert np.allclose(shown["a"], more["a"][:4], rtol=1e-4)
        else:
            assert np.array_equal(shown["a"], more["a"][:4])


class TestKeep:
    @quiet
    def test_only_what_is_asked_for_is_kept_and_moments_of_all(self):
        every = infer.nuts(flat_schools, SCHOOLS, draws=300)
        some = infer.nuts(flat_schools, SCHOOLS, draws=300, keep=["mu"])
        assert list(some) == ["mu"] and np.array_equal(some["mu"], every["mu"])
        theta = every["theta"].astype(float)
        assert np.allclose(some.moments["theta"]["mean"], theta.mean((0, 1)), rtol=1e-5, atol=1e-5)
        assert np.allclose(some.moments["theta"]["sd"], theta.std((0, 1), ddof=1), rtol=1e-4)

    @quiet
    def test_a_function_of_the_state_is_tracked(self):
        posterior = infer.nuts(line, LINE, draws=100, keep=[], track=lambda v: {"sum": v["a"] + v["b"]})
        every = infer.nuts(line, LINE, draws=100)
        assert not posterior.draws and np.allclose(posterior.tracked["sum"], every["a"] + every["b"], rtol=1e-5)

    @quiet
    def test_thinning_keeps_every_third(self):
        every, third = infer.nuts(line, LINE, draws=90), infer.nuts(line, LINE, draws=30, thin=3)
        assert np.array_equal(every["a"][:, 2::3], third["a"])

    @quiet
    def test_the_warmup_is_kept_on_request_only(self):
        assert infer.nuts(line, LINE, draws=20).warmup is None
        posterior = infer.nuts(line, LINE, draws=20, warmup=60, keep_warmup=True)
        assert posterior.warmup["draws"]["a"].shape == (4, 60) and posterior["a"].shape == (4, 20)
        assert np.array_equal(posterior["a"], infer.nuts(line, LINE, draws=20, warmup=60)["a"])

    def test_an_unknown_name_is_refused(self):
        with pytest.raises(ModelError, match="keep has 'm'"):
            infer.nuts(line, LINE, keep=["m"])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda f: f.__name__)
def test_odd_arguments_are_refused_in_words(sampler):
    for arguments, words in [
        (dict(chains=0), "chains=0: give a whole number, at least 1"),
        (dict(draws=-1), "draws=-1: give a whole number"),
        (dict(warmup=2.5), "warmup=2.5: give a whole number"),
        (dict(keep="a"), r"keep='a': give a list"),
    ]:
        with pytest.raises(ModelError, match=words):
            sampler(line, LINE, **arguments)
    usual = "0.234 is usual, 0.44 for one number" if sampler is infer.metropolis else "0.8 is usual, 0.95 careful"
    with pytest.raises(ModelError) as error:
        sampler(line, LINE, target_accept=1.5)
    assert str(error.value) == f"target_accept=1.5 must be between 0 and 1; {usual}"


@pytest.mark.parametrize("metric", ["diagonal", "dense", "identity"])
@pytest.mark.parametrize("sampler", GRADIENT, ids=lambda f: f.__name__)
@pytest.mark.false_alarm(1e-6)
def test_every_metric_has_the_exact_posterior(sampler, metric, seed):
    posterior = sampler(line, LINE, metric=metric, seed=seed)
    for i, name in enumerate(["a", "b"]):
        assert np.abs(z_scores(posterior, name, LINE_MEAN[i], LINE_SD[i])).max() < 6


@pytest.mark.false_alarm(5e-6)
def test_the_textbook_sampler_has_the_exact_posterior(seed):
    # Three steps would make half a turn of the ellipse, from which draws alternate and mix slowly.
    posterior = infer.hmc(line, LINE, num_steps=2, seed=seed)
    assert (posterior.stats["n_steps"] == 2).all()
    for i, name in enumerate(["a", "b"]):
        assert np.abs(z_scores(posterior, name, LINE_MEAN[i], LINE_SD[i])).max() < 5


@quiet
def test_the_metric_is_dense_for_few_numbers_and_diagonal_for_many():
    for size, metric in ((32, "dense"), (33, "diagonal")):
        for sampler in GRADIENT:
            found = sampler(independent, {"n": size}, chains=1, draws=2, warmup=2, progress=False)
            assert found.settings["metric"] == metric
    assert infer.metropolis(independent, {"n": 2}, chains=1, draws=2, warmup=2).settings["metric"] == "diagonal"


def independent(n):
    yield Normal(0.0, 1.0, shape=(n,), name="x")


def walk(n):
    s = yield HalfNormal(1.0, name="s")

    def step(x, _):
        x = yield Normal(x, s, name="x")
        yield Normal(x, 0.5, name="y")
        return x, None

    yield Scan(step, 0.0, length=n, name="path")


def path_given(y):
    """Return mean and sd of the path of `walk` given y: normal for each s, averaged over a grid of s."""
    square = np.minimum.outer(np.arange(1.0, len(y) + 1), np.arange(1.0, len(y) + 1))
    log_weights, means, variances = [], [], []
    for s in np.linspace(1e-3, 5, 500):
        prior, marginal = s**2 * square, s**2 * square + 0.25 * np.eye(len(y))
        gain = np.linalg.solve(marginal, prior).T
        log_weights.append(-0.5 * (y @ np.linalg.solve(marginal, y) + np.linalg.slogdet(marginal)[1] + s**2))
        means.append(gain @ y)
        variances.append(np.diag(prior - gain @ prior))
    weights = np.exp(log_weights - np.max(log_weights))
    weights, means = weights / np.sum(weights), np.array(means)
    mean = weights @ means
    return mean, np.sqrt(weights @ np.array(variances) + weights @ (means - mean) ** 2)


@pytest.mark.parametrize("model", [walk, ppl.noncentered(walk, "path/x")], ids=["centered", "noncentered"])
@pytest.mark.false_alarm(5e-7)
@quiet
def test_latents_inside_loops_are_sampled(model, seed):
    """Means and sds of the 20 steps are within 6.5 standard errors of the exact ones."""
    y = np.cumsum(np.random.default_rng(seed).normal(size=20)).astype(np.float32)
    posterior = infer.nuts(model, {"n": 20, "path/y": y}, draws=300, seed=seed)
    assert posterior["path/x"].shape == (4, 300, 20)
    assert np.abs(z_scores(posterior, "path/x", *path_given(y.astype(float)))).max() < 6.5


@quiet
def test_labels_reach_the_table():
    names = [f"school {i}" for i in range(8)]
    posterior = infer.nuts(flat_schools, SCHOOLS, dims={"theta": ["school"]}, coords={"school": names}, draws=200)
    assert "theta[school 3]" in str(posterior)
    assert posterior.sel("theta", school="school 3").shape == (4, 200)


@quiet
def test_sampling_works_in_double_precision(x64):
    posterior = infer.hmc(flat_schools, {n: v.astype(float) for n, v in SCHOOLS.items()}, draws=200)
    assert posterior["theta"].dtype == np.float64


@pytest.mark.false_alarm(1e-9)
@quiet
def test_new_data_of_equal_shape_gives_a_new_posterior_without_tracing():
    """The model function runs as often for two runs as for one."""
    calls = []

    def counted(n):
        calls.append(n)
        return (yield from mean_of(n))

    generator = np.random.default_rng(0)
    first = infer.nuts(counted, {"n": 100, "y": (3 + generator.normal(size=100)).astype(np.float32)})
    count = len(calls)
    second = infer.nuts(counted, {"n": 100, "y": (-3 + generator.normal(size=100)).astype(np.float32)})
    assert len(calls) == count
    assert abs(first["mu"].mean() - 3) < 0.5 and abs(second["mu"].mean() + 3) < 0.5


@quiet
def test_labels_come_along_with_data_and_wrong_ones_cost_no_run():
    xarray = pytest.importorskip("xarray")
    sigma = xarray.DataArray(SCHOOLS["sigma"], dims=["school"], coords={"school": list("ABCDEFGH")})
    posterior = infer.nuts(flat_schools, {**SCHOOLS, "sigma": sigma}, dims={"theta": ["school"]}, draws=50)
    assert "theta[C]" in str(posterior)
    with pytest.raises(ModelError, match="(?s)school.*7.*8|8.*7"):
        infer.nuts(flat_schools, SCHOOLS, dims={"theta": ["school"]}, coords={"school": list("ABCDEFG")})
    with pytest.raises(ModelError, match="dims has 'thta'"):
        infer.nuts(flat_schools, SCHOOLS, dims={"thta": ["school"]})


STATISTICS = {
    infer.nuts: {
        "lp": "f", "acceptance_rate": "f", "step_size": "f", "tree_depth": "i", "n_steps": "i", "reached_max_treedepth": "b",
        "diverging": "b", "energy": "f", "energy_error": "f", "max_energy_error": "f",
    },
    infer.hmc: {
        "lp": "f", "acceptance_rate": "f", "step_size": "f", "n_steps": "i", "int_time": "f", "diverging": "b", "energy": "f",
        "energy_error": "f",
    },
}  # fmt: skip


@pytest.mark.parametrize("sampler", GRADIENT, ids=lambda f: f.__name__)
@quiet
def test_statistics_have_the_names_shapes_and_types_of_the_schema(sampler):
    """ArviZ's schema of 2026-08, `sample_stats`."""
    posterior = sampler(line, LINE, draws=30)
    assert {name: value.dtype.kind for name, value in posterior.stats.items()} == STATISTICS[sampler]
    assert all(value.shape == (4, 30) for value in posterior.stats.values())
    assert posterior.settings["metric"] == "dense" and posterior.state["inv_metric"].shape == (4, 2, 2)
    assert "arXiv" in posterior.citation()
