"""Predictions, prior draws and log likelihoods on a mesh: random numbers bit for bit, layouts kept."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from meshes import FACTORS, FACTORS_ROWS, LOGISTIC, LOGISTIC_ROWS, factors, logistic, mesh_of

import ppl
from ppl import infer


def quick(n):
    """Families that draw all numbers at once."""
    yield ppl.Normal(0.0, 1.0, shape=(n,), name="normal")
    yield ppl.Categorical(probs=np.ones(3, np.float32) / 3, shape=(n,), name="category")
    yield ppl.Uniform(0.0, 2.0, shape=(n, 2), name="uniform")
    yield ppl.Normal(0.0, 1.0, name="shared")


def rejecting(n):
    """Families that draw until they accept."""
    yield ppl.Gamma(0.7, 1.0, shape=(n,), name="gamma")
    yield ppl.Poisson(3.0, shape=(n,), name="poisson")


def equal_bits(model, name):
    names = [n for n in ppl.trace(model, {"n": 24}) if n != "shared"]
    plain = infer.prior(model, {"n": 24}, draws=6, chains=2, seed=3)
    rows = dict.fromkeys(names, P("rows"))
    found = infer.prior(model, {"n": 24}, draws=6, chains=2, seed=3, mesh=mesh_of(name), sharding=rows)
    for family, draws in plain.items():
        np.testing.assert_array_equal(np.asarray(found[family]), draws, err_msg=family)
    if name != "1":
        assert found[names[0]].sharding.spec == P("chains" if "x" in name.split()[0] else None, None, "rows")


@pytest.mark.parametrize("name", ["1", "2", "4", "8 explicit", "2x4"])
def test_prior_draws_are_equal_bit_for_bit_on_every_mesh(name):
    equal_bits(quick, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4", "2x4"])
def test_prior_draws_of_rejecting_families_too(name):
    equal_bits(rejecting, name)


@pytest.fixture(scope="module")
def posterior():
    with pytest.warns(ppl.InferenceWarning):
        return infer.hmc(
            factors, FACTORS, chains=2, draws=7, warmup=0, step_size=0.1, num_steps=4, progress=False, seed=2,
            mesh=mesh_of("2x4"), sharding=FACTORS_ROWS,
        )  # fmt: skip


def fetched(posterior):
    return {name: np.asarray(value) for name, value in posterior.items()}


def test_predictions_follow_the_draws_to_their_devices(posterior):
    plain = infer.predict(factors, fetched(posterior), {"num_users": 48}, seed=4)
    found = infer.predict(factors, posterior, {"num_users": 48}, seed=4, batch=6, sharding={"rating": P("rows")})
    np.testing.assert_allclose(np.asarray(found["rating"]), plain["rating"], rtol=1e-5, atol=1e-5)
    assert found["rating"].sharding.spec == P("chains", None, "rows")
    assert isinstance(infer.predict(factors, posterior, {"num_users": 48})["rating"], np.ndarray)


def test_log_likelihoods_are_divided_like_the_observations(posterior):
    plain = infer.log_likelihood(factors, fetched(posterior), FACTORS)["rating"]
    found = infer.log_likelihood(factors, posterior, FACTORS, mesh=mesh_of("2x4"), sharding=FACTORS_ROWS)["rating"]
    np.testing.assert_allclose(np.asarray(found), plain, rtol=1e-4, atol=1e-5)
    assert found.sharding.spec == P("chains", None, "rows")


def test_returned_values_come_to_the_host(posterior):
    def model(num_users):
        yield from factors(num_users)
        return {"twice": 2.0}

    assert infer.returned(model, posterior, {"num_users": 48})["twice"].shape == (2, 7)


def test_a_prediction_with_divided_rows_of_new_data():
    with pytest.warns(ppl.InferenceWarning):
        fit = infer.hmc(logistic, LOGISTIC, chains=2, draws=6, warmup=0, step_size=0.1, num_steps=3, progress=False)
    new = {"X": LOGISTIC["X"][:40]}
    plain = infer.predict(logistic, fit, new, seed=1)["y"]
    found = infer.predict(logistic, fit, new, seed=1, mesh=mesh_of("8"), sharding=LOGISTIC_ROWS)["y"]
    np.testing.assert_array_equal(np.asarray(found), plain)
    assert len({d.id for d in found.sharding.device_set}) == 8 and isinstance(found, jax.Array)
