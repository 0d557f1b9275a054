"""Implicit guides by density ratios, and networks of other libraries as parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ppl
from ppl import Deterministic, Normal, infer


def model():
    z = yield Normal(0.0, 1.0, name="z")
    yield Normal(z, 1.0, name="y")


def implicit(q):
    noise = yield Normal(0.0, 1.0, name="noise")
    yield Deterministic(q["shift"] + jnp.exp(q["log_scale"]) * noise, name="z")


def discriminator(q, values):
    """Log ratio of two normals: a quadratic."""
    z, d = values["z"], q["ratio"]
    return d[0] + d[1] * z + d[2] * z * z


@pytest.mark.false_alarm(1e-6)
def test_a_density_ratio_fits_a_guide_without_a_density():
    """Exact posterior: mean 0.75, sd 0.7071; at the optimum the discriminator is log p(z) - log q(z).

    From seed to seed mean and sd differ by 0.016, and the discriminator's number by 0.083.
    """
    init = {"shift": 0.0, "log_scale": 0.0, "ratio": jnp.zeros(3)}
    rates = {"fast": optax.adam(0.05), "slow": optax.adam(0.002)}
    optimizer = optax.multi_transform(rates, {"shift": "slow", "log_scale": "slow", "ratio": "fast"})
    fit = infer.vi(
        model, implicit, {"y": 1.5}, init=init, objective=infer.density_ratio(discriminator), samples=64, optimizer=optimizer,
        steps=4000, progress=False,
    )  # fmt: skip
    spread = fit.posterior(4000)["z"]
    assert abs(spread.mean() - 0.75) < 0.1 and abs(spread.std() - np.sqrt(0.5)) < 0.1
    np.testing.assert_allclose(fit.params["ratio"][2], -0.5 + 1.0, atol=0.45)  # -z^2/2 + (z - m)^2 / (2 * 0.5)
    assert fit.pareto_k is None
    with pytest.raises(ppl.ModelError, match="the guide `implicit` is implicit"):
        fit.log_weights()


def test_other_objectives_refuse_what_an_implicit_guide_yields():
    with pytest.raises(
        ppl.ModelError, match="'noise' .Normal. is drawn by the guide, and `model` has no latent variable"
    ):
        infer.vi(model, implicit, {"y": 1.5}, init={"shift": 0.0, "log_scale": 0.0})


def test_leaves_that_are_no_floats_are_carried_along():
    def guide(q):
        assert q["kind"] == "normal" and callable(q["link"])
        yield Normal(q["mean"][q["which"]], q["link"](q["log_sd"]), name="z")

    init = {"mean": jnp.zeros(3), "which": np.int32(1), "kind": "normal", "link": jnp.exp, "log_sd": 0.0, "none": None}
    fit = infer.vi(model, guide, {"y": 1.5}, init=init, gradient="sticking", steps=800, progress=False)
    np.testing.assert_allclose(fit.params["mean"], [0, 0.75, 0], atol=0.02)
    assert fit.params["kind"] == "normal" and fit.params["which"] == 1 and fit.params["none"] is None


def amortized_model():
    z = yield Normal(0.0, 1.0, shape=(4,), name="z")
    yield Normal(z, 1.0, name="y")


DATA = {"y": np.array([1.5, -1.0, 0.3, 2.0], np.float32)}


def test_equinox_modules_are_parameters():
    eqx = pytest.importorskip("equinox")

    def guide(q, y):
        mean = jax.vmap(q["net"])(y[:, None])[:, 0]
        yield Normal(mean, jnp.exp(q["log_sd"]), name="z")

    net = eqx.nn.MLP(1, 1, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    fit = infer.vi(
        amortized_model, guide, DATA, init={"net": net, "log_sd": 0.0}, gradient="sticking", steps=1500, progress=False
    )
    assert isinstance(fit.params["net"], eqx.nn.MLP)
    np.testing.assert_allclose(jax.vmap(fit.params["net"])(DATA["y"][:, None])[:, 0], DATA["y"] / 2, atol=0.08)
    np.testing.assert_allclose(jnp.exp(fit.params["log_sd"]), np.sqrt(0.5), atol=0.03)


def test_equinox_modules_may_be_fixed_or_latent():
    """Fixed: captured by the guide. Latent: each array of weights a variable of the model, put in by `tree_at`."""
    eqx = pytest.importorskip("equinox")
    net = eqx.nn.Linear(1, 1, key=jax.random.key(0))

    def regression(x):
        w = yield Normal(0.0, 1.0, shape=(1, 1), name="weight")
        b = yield Normal(0.0, 1.0, shape=(1,), name="bias")
        own = eqx.tree_at(lambda n: (n.weight, n.bias), net, (w, b))
        yield Normal(jax.vmap(own)(x[:, None])[:, 0], 0.1, name="y")

    x = np.linspace(-1, 1, 8).astype(np.float32)
    fit = infer.vi(regression, infer.mean_field, {"x": x, "y": 2 * x - 1}, progress=False)
    np.testing.assert_allclose(fit.params["weight"]["loc"], 2.0, atol=0.05)
    np.testing.assert_allclose(fit.params["bias"]["loc"], -1.0, atol=0.05)


def test_flax_modules_are_parameters():
    nnx = pytest.importorskip("flax.nnx")
    graph, weights = nnx.split(nnx.Linear(1, 1, rngs=nnx.Rngs(0)))

    def guide(q, y):
        net = nnx.merge(graph, q["net"])
        yield Normal(net(y[:, None])[:, 0], jnp.exp(q["log_sd"]), name="z")

    fit = infer.vi(
        amortized_model, guide, DATA, init={"net": weights, "log_sd": 0.0}, gradient="sticking", progress=False
    )
    net = nnx.merge(graph, fit.params["net"])
    np.testing.assert_allclose(net(DATA["y"][:, None])[:, 0], DATA["y"] / 2, atol=0.03)
