"""Sums over ten million rows against double precision, and matrix products on accelerators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import LOGISTIC, logistic, mesh_of

import ppl


def located(z):
    m = yield ppl.Normal(0.0, 10.0, name="m")
    yield ppl.Normal(z - m, 1.0, name="y")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1", "8"])
def test_sums_over_ten_million_rows_keep_their_accuracy(name):
    """The density is right to the last bit of float32 or so, and its gradient to one part in a million of the terms."""
    n = 10**7
    z = np.random.default_rng(0).normal(size=n).astype(np.float32)
    rows = NamedSharding(mesh_of(name), P("rows"))
    data = {"z": jax.device_put(z, rows), "y": jax.device_put(np.zeros(n, np.float32), rows)}
    value, gradient = jax.jit(jax.value_and_grad(ppl.log_density(located, data)))({"m": jnp.float32(0.1)})
    exact = z.astype(float) - float(np.float32(0.1))
    prior = -0.5 * 0.01**2 - np.log(10) - 0.5 * np.log(2 * np.pi)
    expected = -0.5 * np.sum(exact**2) - n * 0.5 * np.log(2 * np.pi) + prior
    assert abs(float(value) - expected) < 2 * np.spacing(np.float32(abs(expected)))
    assert abs(float(gradient["m"]) - np.sum(exact)) < 1e-6 * np.sum(np.abs(exact))


def test_products_on_accelerators_are_exact_unless_the_user_decides(monkeypatch):
    density = ppl.log_density(logistic, LOGISTIC)
    at = density.initial(0)
    plain = str(jax.make_jaxpr(jax.grad(density))(at))
    assert "HIGHEST" not in plain and "dot_general" in plain
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    careful = str(jax.make_jaxpr(jax.grad(lambda x: density(x)))(at))
    assert careful.count("dot_general[") > 1  # also those of the gradient
    assert careful.count("HIGHEST") >= careful.count("dot_general[")
    with jax.default_matmul_precision("tensorfloat32"):
        told = str(jax.make_jaxpr(jax.grad(lambda x: density(x) + 0))(at))
    assert "HIGHEST" not in told


def test_bfloat16_products_would_ruin_acceptance():
    """Why the default matters: the error of energy differences with products of 8 bits, on rows like MNIST's."""
    rng = np.random.default_rng(1)
    X = jnp.asarray(rng.random((20_000, 50)), jnp.float32)
    w = jnp.asarray(rng.normal(size=50), jnp.float32)
    near = w + jnp.float32(1e-3)

    def density(w, precision):
        logits = jax.lax.dot(X.astype(precision), w.astype(precision), preferred_element_type=jnp.float32)
        return -jnp.sum(jax.nn.softplus(logits))

    exact = density(near, jnp.float32) - density(w, jnp.float32)
    coarse = density(near, jnp.bfloat16) - density(w, jnp.bfloat16)
    assert abs(coarse - exact) > 1


def test_energies_over_millions_of_rows_are_finer_than_float32_at_the_sum(tmp_path):
    """The density near -3e6 has steps of 0.25 in float32; the centered one is right to a few hundredths of that."""
    n = 2**21
    z = np.random.default_rng(0).normal(size=n).astype(np.float32)
    data = {"z": z, "y": np.zeros(n, np.float32)}
    settings = dict(
        chains=1, draws=8, warmup=24, num_steps=4, target_accept=0.99, seed=1, progress=False,
        mesh=mesh_of("8"), sharding={"z": P("rows"), "y": P("rows")},
    )  # fmt: skip
    with pytest.warns(ppl.InferenceWarning):
        found = ppl.infer.hmc(located, data, **settings)
        assert found.stats["lp"].dtype == np.float64
        errors = []
        for m, density in zip(found["m"][0].astype(float), found.stats["lp"][0], strict=True):
            terms = -0.5 * (z.astype(float) - m) ** 2 - 0.5 * np.log(2 * np.pi)
            exact = np.sum(terms) - 0.5 * (m / 10) ** 2 - np.log(10) - 0.5 * np.log(2 * np.pi)
            errors.append(density - exact)
        assert np.ptp(errors) < 0.02  # differences are what decides; a constant is that of float32's pi, n times
        assert np.max(np.abs(errors)) < 0.25
        assert found.stats["acceptance_rate"].mean() > 0.9
        ppl.infer.hmc(located, data, **{**settings, "draws": 2}, checkpoint=tmp_path / "run")
        again = ppl.infer.hmc(located, data, **settings, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(again["m"], found["m"])
    np.testing.assert_array_equal(again.stats["lp"], found.stats["lp"])
