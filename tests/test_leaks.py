"""Models run under jax's leak checker, in single and double precision: values, gradients, draws, and no tracer stays behind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl
from ppl import (
    Bernoulli,
    Categorical,
    Deterministic,
    Dirichlet,
    Exponential,
    Factor,
    Gamma,
    HalfNormal,
    LKJCholesky,
    Map,
    MultivariateNormal,
    Normal,
    Poisson,
    Scan,
    StudentT,
    Uniform,
)


def schools():
    mu = yield Normal(0.0, 5.0, name="mu")
    tau = yield HalfNormal(5.0, name="tau")
    theta = yield Normal(mu, tau, shape=(3,), name="theta")
    yield Normal(theta, 1.5, name="y")
    return theta - mu


def logistic(X):
    w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
    yield Bernoulli(logits=X @ w, name="y")


def counts():
    r = yield Gamma(2.0, 1.0, name="r")
    yield Poisson(r, shape=(3,), name="y")


def simplexes():
    p = yield Dirichlet(jnp.ones(3), name="p")
    yield Categorical(probs=p, shape=(4,), name="y")


def matrices():
    chol = yield LKJCholesky(2, 2.0, name="chol")
    yield MultivariateNormal(jnp.zeros(2), scale_tril=chol, name="y")


def intervals():
    low = yield Uniform(0.0, 1.0, name="low")
    x = yield Uniform(low, 2.0, name="x")
    yield Deterministic(x - low, name="width")
    yield Factor(-x, name="penalty")
    yield StudentT(4.0, x, 1.0, name="y")


def level(T):
    s = yield HalfNormal(1.0, name="s")

    def step(x, _):
        x = yield Normal(x, s, name="x")
        yield Normal(x, 1.0, name="y")
        return x, x

    return (yield Scan(step, 0.0, length=T, name="path"))


def grouped(X):
    tau = yield Exponential(1.0, name="tau")

    def group(x):
        b = yield Normal(0.0, tau, name="b")
        yield Normal(b * x, 1.0, name="y")

    yield Map(group, X, name="g")


def nested():
    yield from ppl.scope("a", schools())
    yield from ppl.scope("b", ppl.noncentered(schools, "theta"))()


X = np.linspace(-1.0, 1.0, 6).reshape(3, 2)
MODELS = {
    "schools": (schools, {"y": np.ones(3)}),
    "noncentered": (ppl.noncentered(schools, "theta"), {"y": np.ones(3)}),
    "logistic": (logistic, {"X": X, "y": np.array([0, 1, 1])}),
    "counts": (counts, {"y": np.array([3, 5, 4])}),
    "masked": (ppl.mask(schools, y=np.array([True, False, True])), {"y": np.array([1.0, np.nan, 2.0])}),
    "missing": (schools, {"y": np.ma.masked_invalid([1.0, np.nan, 2.0])}),
    "simplexes": (simplexes, {"y": np.array([0, 1, 2, 2])}),
    "matrices": (matrices, {"y": np.array([0.5, -0.5])}),
    "intervals": (intervals, {"y": 0.5}),
    "level": (level, {"T": 3, "path/y": np.ones(3)}),
    "level noncentered": (ppl.noncentered(level, "path/x"), {"T": 3, "path/y": np.ones(3)}),
    "grouped": (ppl.do(grouped, tau=1.0), {"X": X, "g/y": np.ones((3, 2))}),
    "nested": (nested, {"b/y": np.ones(3)}),
}


FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # to compile sooner


def everything(model, data):
    """Return the function that binds, evaluates, differentiates, maps back and draws, and where to do so."""
    density = ppl.log_density(model, data)
    position = {n: jnp.full(latent.free_shape, 0.1, latent.dtype) for n, latent in density.latents.items()}
    arguments = {n: v for n, v in data.items() if n in ("X", "T")}

    def all_of_it(position, key):
        return jax.value_and_grad(density)(position), density.constrain(position), ppl.sample(model, key, arguments)

    return all_of_it, position, jax.random.key(0)


@pytest.mark.parametrize("name", MODELS)
def test_no_model_leaks_in_single_precision_and_all_is_finite(name):
    model, data = MODELS[name]
    with jax.checking_leaks():
        function, *arguments = everything(model, data)
        out = jax.jit(function, compiler_options=FAST)(*arguments)
    for leaf in jax.tree.leaves(out):
        assert leaf.dtype == jnp.float32 or jnp.issubdtype(leaf.dtype, jnp.integer)
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("name", MODELS)
def test_no_model_leaks_or_loses_digits_in_double_precision(name, x64):
    model, data = MODELS[name]
    if name == "masked":
        data = {"y": np.array([1.0, 9.0, 2.0])}
    with jax.checking_leaks():
        function, *arguments = everything(model, data)
        out = jax.eval_shape(function, *arguments)
    for leaf in jax.tree.leaves(out):
        assert leaf.dtype == jnp.float64 or jnp.issubdtype(leaf.dtype, jnp.integer)
