"""Predictions, prior draws, returned values and pointwise log likelihoods."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from models import LINE, SCHOOLS, flat_schools, line, mean_of, schools

import ppl
from ppl import HalfNormal, ModelError, Normal, Poisson, Scan, infer

quiet = pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")


def rows():
    theta = yield Normal(0.0, 1.0, name="theta")
    yield Normal(theta, 1.0, shape=(5,), name="y")


@pytest.mark.parametrize("data", [None, {"y": np.zeros(5, np.float32)}], ids=["without", "with data"])
@pytest.mark.false_alarm(6e-6)
def test_predictions_are_new_draws(data, seed):
    """theta fixed at 2: rows of mean 2 and sd 1, within 5 standard errors (0.11), whether or not data has the old y."""
    posterior = {"theta": np.full((1, 2000), 2.0, np.float32)}
    new = infer.predict(rows, posterior, data, seed=seed)["y"]
    assert new.shape == (1, 2000, 5)
    assert np.abs(new.mean((0, 1)) - 2).max() < 5 / np.sqrt(2000)
    assert np.abs(new.std((0, 1)) - 1).max() < 5 / np.sqrt(2 * 2000)


def two_groups(n, m):
    mu = yield Normal(0.0, 1.0, name="mu")
    yield Normal(mu, 1.0, shape=(n,), name="y")
    yield Poisson(jnp.exp(mu), shape=(m,), name="counts")


def test_the_log_likelihood_is_pointwise_and_one_array_for_each_observed_variable():
    posterior = {"mu": np.array([[0.0, 1.0]], np.float32)}
    found = infer.log_likelihood(two_groups, posterior, {"n": 2, "m": 3, "y": [0.0, 2.0], "counts": [0, 1, 2]})
    expected = [[-0.9189385, -2.9189385], [-1.4189385, -1.4189385]]
    assert np.allclose(found["y"][0], expected, rtol=1e-5)
    assert found["counts"].shape == (1, 2, 3)
    pointwise = scipy.special.logsumexp(found["y"][0], axis=0) - np.log(2)
    assert np.isclose(pointwise.sum(), -3.0486812, rtol=1e-5)


def test_batches_change_nothing():
    posterior = {"mu": np.random.default_rng(0).normal(size=(2, 37)).astype(np.float32)}
    data = {"n": 2, "m": 3, "y": [0.0, 2.0], "counts": [0, 1, 2]}
    whole, pieces = (infer.log_likelihood(two_groups, posterior, data, batch=b)["y"] for b in (None, 5))
    assert np.array_equal(whole, pieces)
    whole, pieces = (infer.predict(two_groups, posterior, {"n": 2, "m": 3}, batch=b)["y"] for b in (None, 5))
    assert np.array_equal(whole, pieces)


@quiet
def test_what_a_model_returns_is_recomputed():
    posterior = infer.nuts(flat_schools, SCHOOLS, draws=50)
    effect = infer.returned(flat_schools, posterior, SCHOOLS)["effect"]
    assert np.allclose(effect, posterior["theta"] - posterior["mu"][..., None], atol=1e-4)


@quiet
def test_prediction_needs_no_observed_values_and_takes_new_arguments():
    posterior = infer.nuts(line, LINE, draws=50)
    x = np.linspace(0, 1, 11, dtype=np.float32)
    new = infer.predict(line, posterior, {"x": x})
    assert list(new) == ["y"] and new["y"].shape == (4, 50, 11)
    assert not np.array_equal(infer.predict(line, posterior, {"x": x}, seed=1)["y"], new["y"])


@quiet
def test_the_centered_model_takes_draws_of_the_noncentered_one():
    posterior = infer.nuts(flat_schools, SCHOOLS, draws=50)
    found = infer.log_likelihood(schools, posterior, SCHOOLS)["y"]
    assert np.allclose(found, infer.log_likelihood(flat_schools, posterior, SCHOOLS)["y"], atol=1e-4)


def test_prior_draws_are_a_posterior_too():
    prior = infer.prior(schools, {"sigma": SCHOOLS["sigma"]}, draws=500)
    assert isinstance(prior, ppl.Posterior)
    assert list(prior) == ["mu", "tau", "theta", "y"] and prior["y"].shape == (1, 500, 8)
    assert "mu" in str(prior)


@quiet
def test_a_variable_that_was_not_kept_is_missed_by_name():
    posterior = infer.nuts(line, LINE, draws=50, keep=["a"])
    with pytest.raises(ModelError, match="no draws of 'b'"):
        infer.predict(line, posterior, {"x": LINE["x"]})
    with pytest.raises(ModelError, match="no draws of 'b'"):
        infer.log_likelihood(line, posterior, LINE)


def test_a_likelihood_needs_observations():
    with pytest.raises(ModelError, match="data observes no random variable"):
        infer.log_likelihood(rows, {"theta": np.zeros((1, 2), np.float32)}, {})


def level(steps, horizon=0):
    s = yield HalfNormal(1.0, name="s")

    def step(x, _):
        x = yield Normal(x, s, name="x")
        yield Normal(x, 0.1, name="y")
        return x, None

    last, _ = yield Scan(step, 5.0, length=steps, name="path")
    yield Scan(step, last, length=horizon, name="future")


@pytest.mark.false_alarm(1e-9)
@quiet
def test_forecasts_start_where_the_path_ends():
    y = np.linspace(5, 8, 12, dtype=np.float32)
    posterior = infer.nuts(ppl.noncentered(level, "path/x"), {"steps": 12, "path/y": y}, draws=50)
    new = infer.predict(level, posterior, {"steps": 12, "horizon": 4})
    assert new["future/y"].shape == (4, 50, 4)
    assert abs(np.median(new["future/y"][..., 0]) - 8) < 1
    assert infer.log_likelihood(level, posterior, {"steps": 12, "path/y": y})["path/y"].shape == (4, 50, 12)


def test_a_value_shorter_than_its_loop_gives_the_first_steps():
    posterior = {"s": np.full((1, 3), 0.5, np.float32)}
    new = infer.predict(level, posterior, {"steps": 6, "path/y": np.arange(4, dtype=np.float32)})
    assert np.array_equal(new["path/y"][0, :, :4], np.tile(np.arange(4.0), (3, 1)))
    assert np.abs(new["path/y"][0, :, 4:]).min() > 0


@pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")
def test_a_variable_with_missing_entries_is_predicted_whole():
    data = {"n": 3, "y": np.ma.masked_invalid([1.0, np.nan, 2.0])}
    posterior = infer.hmc(mean_of, data, chains=2, draws=20, warmup=20, progress=False)
    assert posterior["y"].shape == (2, 20, 1)
    for given in (data, {"n": 3}):
        new = infer.predict(mean_of, posterior, given)
        assert list(new) == ["y"] and new["y"].shape == (2, 20, 3)
