"""`linear`: the value of X @ w + b, and data that are kept feature by feature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl
from ppl import Bernoulli, Categorical, ModelError, Normal, Poisson, infer
from ppl.tracing.bind import entry_of, is_turned

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 3)).astype(np.float32)
DATA = {"X": X, "y": (X[:, 0] > 0).astype(np.int32)}


def plain(X):
    w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
    b = yield Normal(0.0, 1.0, name="b")
    yield Bernoulli(logits=X @ w + b, name="y")


def known(X):
    w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
    b = yield Normal(0.0, 1.0, name="b")
    yield Bernoulli(logits=ppl.linear(X, w, b), name="y")


def classes(X):
    w = yield Normal(0.0, 1.0, shape=(X.shape[1], 4), name="w")
    b = yield Normal(0.0, 1.0, shape=(4,), name="b")
    yield Categorical(logits=ppl.linear(X, w, b), name="y")


@pytest.mark.parametrize("w, b", [((3,), ()), ((3, 4), ()), ((3, 4), (4,))])
def test_the_value_is_that_of_the_product(w, b):
    w, b = GENERATOR.normal(size=w).astype(np.float32), GENERATOR.normal(size=b).astype(np.float32)
    np.testing.assert_allclose(ppl.linear(X, w, b), X @ w + b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ppl.linear(X, w), X @ w, rtol=1e-5, atol=1e-6)


def test_density_and_gradient_are_those_of_the_plain_model():
    one, two = ppl.log_density(known, DATA), ppl.log_density(plain, DATA)
    position = one.initial(3)
    for a, b in zip(*(jax.tree.leaves(jax.value_and_grad(f)(position)) for f in (one, two)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_the_data_of_a_linear_are_kept_transposed_and_those_of_a_product_are_not():
    assert {n: a.shape for n, a in ppl.bind(known, DATA).arrays.items()} == {"X:0.T": (3, 40), "=y": (40,)}
    assert {n: a.shape for n, a in ppl.bind(plain, DATA).arrays.items()} == {"X:0": (40, 3), "=y": (40,)}
    assert "X:0.T" in ppl.bind(classes, {"X": X, "y": np.zeros(40, np.int32)}).arrays


def test_the_program_of_a_gradient_has_no_transpose_of_the_data():
    bound = ppl.bind(known, DATA)

    def gradient(position, arrays):
        return jax.value_and_grad(bound.structure.log_density)(position, arrays)

    text = jax.jit(gradient).lower(bound.initial(0), bound.arrays).compile().as_text()
    assert "f32[3,40]" in text
    assert "f32[40,3]" not in text


def test_the_array_may_be_used_otherwise_too():
    def both(X):
        w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
        yield Normal(ppl.linear(X, w) + X[:, 0] * w[1], 1.0, name="y")

    def written(X):
        w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
        yield Normal(X @ w + X[:, 0] * w[1], 1.0, name="y")

    data = {"X": X, "y": X[:, 1]}
    position = {"w": jnp.array([0.3, -0.2, 1.0])}
    np.testing.assert_allclose(
        ppl.log_density(both, data)(position), ppl.log_density(written, data)(position), rtol=1e-5
    )


@pytest.mark.filterwarnings("ignore::ppl.errors.InferenceWarning")
def test_samplers_and_predictions_take_it(seed):
    def counts(X):
        w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
        yield Poisson(jnp.exp(ppl.linear(X, w)), name="count")

    data = {"X": X, "count": np.ones(40, np.int32)}
    posterior = infer.nuts(counts, data, seed=seed, draws=50, warmup=100, chains=2)
    assert infer.predict(counts, posterior, {"X": X})["count"].shape == (2, 50, 40)
    likelihood = infer.log_likelihood(counts, posterior, data)["count"]
    rates = np.exp(np.asarray(posterior["w"]) @ X.T)
    np.testing.assert_allclose(likelihood, np.log(rates) - rates, rtol=2e-4, atol=2e-4)


def test_inside_a_group_it_is_a_product():
    def panel(X):
        w = yield Normal(0.0, 1.0, shape=(3,), name="w")

        def group(x):
            yield Normal(ppl.linear(x, w), 1.0, name="y")

        yield ppl.Map(group, X, name="g")

    data = {"X": X.reshape(8, 5, 3), "g/y": np.zeros((8, 5), np.float32)}
    density = ppl.log_density(panel, data)
    assert set(density.arrays) == {"X:0", "=g/y"}
    w = np.float32([0.3, -0.2, 1.0])
    want = -0.5 * np.sum((X @ w) ** 2) - 0.5 * np.sum(w**2) - 43 * 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(density({"w": jnp.asarray(w)}), want, rtol=1e-5)


@pytest.mark.parametrize(
    "X, w, b, words",
    [
        (X, X[:4, 0], 0.0, r"X has shape \(40, 3\) and w \(4,\)"),
        (X[0], X[0], 0.0, r"X is \[row, feature\]"),
        (X, X[0], X[0], r"b has shape \(3,\); it is a scalar"),
    ],
)
def test_shapes_that_do_not_fit_are_named(X, w, b, words):
    with pytest.raises(ModelError, match=words):
        ppl.linear(X, w, b)


def test_an_observed_variable_may_be_called_as_if_it_were_turned():
    def model(X):
        w = yield ppl.Normal(0.0, 1.0, shape=(2,), name="w")
        yield ppl.Normal(ppl.linear(X, w), 1.0, name="y:0.T")

    bound = ppl.bind(model, {"X": np.ones((3, 2), np.float32), "y:0.T": np.zeros(3, np.float32)})
    assert {(entry_of(key), is_turned(key)) for key in bound.arrays} == {("X", True), ("y:0.T", False)}
