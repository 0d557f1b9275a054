"""Mini-batches: unbiased in the model and in the guide, and refused where they would not be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import ppl
from ppl import Bernoulli, Map, MultivariateNormal, Normal, infer
from ppl.inference.minibatch import Rows
from ppl.inference.vi import prepare

N = 30
X = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
LABELS = (np.random.default_rng(1).uniform(size=N) < 0.4).astype(np.int32)
OUT = (X @ np.array([1.0, -0.5], np.float32) + 0.1 * np.arange(N)).astype(np.float32)


def logistic(X):
    w = yield Normal(0.0, 1.0, shape=(2,), name="w")
    yield Bernoulli(logits=jnp.matmul(X, w), name="y")


def by_feature(X):
    """The same; alone, its data would be kept feature by feature."""
    w = yield Normal(0.0, 1.0, shape=(2,), name="w")
    yield Bernoulli(logits=ppl.linear(X, w), name="y")


def coded(X):
    """A code for each row, and a global noise."""
    s = yield ppl.HalfNormal(1.0, name="s")
    z = yield Normal(0.0, 1.0, shape=(X.shape[0],), name="z")
    yield Normal(z[:, None] + 0 * X, s, name="out")


def amortized(q, X):
    yield ppl.LogNormal(q["s"], 0.3, name="s")
    yield Normal(jnp.matmul(X, q["w"]), 0.5, name="z")


def grouped(X):
    tau = yield ppl.HalfNormal(1.0, name="tau")

    def group(x):
        b = yield Normal(0.0, tau, name="b")
        yield Normal(b * x, 1.0, name="y")

    yield Map(group, X, name="g")


def of_groups(q, X):
    yield ppl.LogNormal(q["tau"], 0.3, name="tau")

    def group(x):
        yield Normal(q["slope"] * x[0], 1.0, name="b")

    yield Map(group, X, name="g")


def by_rows(q, rows):
    yield ppl.LogNormal(q["s"], 0.3, name="s")
    yield Normal(q["mean"][rows], 0.5, name="z")


def work(model, guide, data, init, batch):
    return prepare(model, guide, data, init, infer.elbo, None, 0.01, 1, None, batch, None, None)


CASES = {
    "global": (logistic, infer.mean_field, {"X": X, "y": LABELS}, None, {"X": 6, "y": 6}),
    "by feature": (by_feature, infer.mean_field, {"X": X, "y": LABELS}, None, {"X": 6, "y": 6}),
    "local": (coded, amortized, {"X": X, "out": X}, {"s": 0.1, "w": jnp.array([0.3, -0.2])}, {"X": 7, "out": 7}),
    "rows": (
        coded, by_rows, {"X": X, "out": X, "rows": np.arange(N)}, {"s": 0.1, "mean": jnp.linspace(-1.0, 1.0, N)},
        {"X": 7, "out": 7, "rows": 7},
    ),
    "map": (grouped, of_groups, {"X": X, "g/y": X}, {"tau": 0.1, "slope": 0.4}, {"X": 5, "g/y": 5}),
}  # fmt: skip


def bound(problem, params, arrays, key):
    draw = problem.draw(key, params, arrays)
    return problem.log_joint(draw.values, params, arrays) - draw.log_guide


@pytest.mark.false_alarm(1e-7)
@pytest.mark.parametrize("name", CASES)
def test_the_mean_over_batches_is_the_value_of_all_rows(name, seed):
    """Value and every gradient of the bound, over fresh draws in both; seven standard errors of the difference of means."""
    model, guide, data, init, batch = CASES[name]
    part = work(model, guide, data, init, batch)
    whole = work(model, guide, data, init, None)
    rows = Rows(N, next(iter(batch.values())), tuple((w, frozenset(_keys(part, w, batch))) for w in ("model", "guide")))

    def of_batch(key):
        first, second = jax.random.split(key)
        return jax.value_and_grad(lambda p: bound(part.problem, p, rows(first, part.arrays), second))(part.state.params)

    def of_all(key):
        return jax.value_and_grad(lambda p: bound(whole.problem, p, whole.arrays, key))(whole.state.params)

    keys = jax.random.split(jax.random.key(seed), 20_000)
    ours, truth = (jax.tree.leaves(jax.jit(jax.vmap(f))(keys)) for f in (of_batch, of_all))
    for one, other in zip(ours, truth, strict=True):
        one, other = np.asarray(one, float), np.asarray(other, float)
        error = np.sqrt((one.var(0) + other.var(0)) / len(keys))
        assert (abs(one.mean(0) - other.mean(0)) < 7 * error + 1e-3).all()


def _keys(part, which, batch):
    arrays = getattr(part.problem, which).arrays
    return {k for k in arrays if (k[1:] if k.startswith("=") else k.rpartition(":")[0]) in batch}


@pytest.mark.false_alarm(1e-8)
@pytest.mark.parametrize("total, size, parts", [(30, 7, 1), (30, 30, 1), (32, 8, 4), (5, 1, 1)])
def test_each_row_is_drawn_equally_often_and_none_twice(total, size, parts, seed):
    rows = Rows(total, size, (), parts)
    index = np.asarray(jax.vmap(rows.index)(jax.random.split(jax.random.key(seed), 4000)))
    assert index.shape == (4000, parts, size // parts)
    assert all(len(set(part)) == size // parts for draw in index[:500] for part in draw)
    counts = np.stack([np.bincount(index[:, p].ravel(), minlength=total // parts) for p in range(parts)])
    expected = 4000 * size / total
    spread = max(expected * (1 - size / total), 1e-9)
    assert scipy.stats.chi2.sf(np.sum((counts - expected) ** 2) / spread, total) > 1e-8 or size == total


@pytest.mark.false_alarm(1e-8)
def test_batches_find_the_posterior_of_all_rows():
    """Means of fits differ by 0.2 sd from seed to seed, and sds by 5 percent: batches are small. They start 4 to 6 sd off."""

    def model(X):
        w = yield Normal(0.0, 1.0, shape=(2,), name="w")
        yield Normal(jnp.matmul(X, w), 0.5, name="y")

    precision = np.eye(2) + X.T.astype(float) @ X / 0.25
    mean = np.linalg.solve(precision, X.T.astype(float) @ OUT / 0.25)
    fit = infer.vi(model, infer.full_rank, {"X": X, "y": OUT}, batch={"X": 10, "y": 10}, steps=3000, progress=False)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose((fit.params["loc"] - mean) / sd, 0, atol=1.3)
    np.testing.assert_allclose(fit.posterior(4000)["w"][0].std(0) / sd, 1, atol=0.35)


def refusal(model, data, batch, guide=infer.mean_field, init=None):
    return str(pytest.raises(ppl.ModelError, work, model, guide, data, init, batch).value)


def test_models_whose_rows_are_not_independent_are_refused():
    def process(X):
        spread = jnp.exp(-0.5 * jnp.sum(jnp.square(X[:, None] - X[None]), -1)) + 0.1 * jnp.eye(X.shape[0])
        a = yield Normal(0.0, 1.0, name="a")
        yield MultivariateNormal(jnp.broadcast_to(a, X.shape[:1]), covariance=spread, name="y")

    def sums(X):
        a = yield Normal(0.0, 1.0, name="a")
        yield Normal(jnp.sum(X) * a, 1.0, name="t")

    def of_codes(X):
        z = yield Normal(0.0, 1.0, shape=(X.shape[0],), name="z")
        yield Normal(jnp.mean(z), 1.0, name="t")
        yield Normal(z, 1.0, name="y")

    def codes(q, X):
        yield Normal(q * jnp.ones(X.shape[0]), 1.0, name="z")

    def centered(X):
        a = yield Normal(0.0, 1.0, name="a")
        yield Normal(a * (X[:, 0] - jnp.mean(X[:, 0])), 1.0, name="y")

    def square(X):
        a = yield Normal(0.0, 1.0, name="a")
        gram = yield ppl.Deterministic(jnp.matmul(X, X.T), name="gram")
        yield Normal(a * gram[:, 0], 1.0, name="y")

    both, data = {"X": 6, "y": 6}, {"X": X, "y": OUT}
    assert "'y' in the model has one density for all rows" in refusal(process, data, both)
    assert "'t' in the model depends on the rows of batch" in refusal(sums, {"X": X, "t": 0.0}, {"X": 6})
    assert "'t' in the model depends on the rows" in refusal(of_codes, {**data, "t": 0.0}, both, codes, 0.0)
    assert "'y' in the model has terms that depend on other rows than their own" in refusal(centered, data, both)
    assert "only its first axis may follow" in refusal(square, data, both)


def test_guides_whose_rows_are_not_independent_are_refused():
    def standardized(q, X):
        yield ppl.LogNormal(q["s"], 0.3, name="s")
        yield Normal(q["w"] * (X[:, 0] - jnp.mean(X[:, 0])), 0.5, name="z")

    def of_all_rows(q, X):
        yield ppl.LogNormal(q["s"] + jnp.mean(X), 0.3, name="s")
        yield Normal(q["w"] * X[:, 0], 0.5, name="z")

    data, both, init = {"X": X, "out": X}, {"X": 6, "out": 6}, {"s": 0.0, "w": 0.5}
    assert "'z' in the guide has terms that depend on other rows" in refusal(coded, data, both, standardized, init)
    assert "'s' in the guide depends on the rows of batch" in refusal(coded, data, both, of_all_rows, init)


def test_other_slips_with_batches_are_named():
    data, both = {"X": X, "y": LABELS}, {"X": 6, "y": 6}
    assert "an automatic guide would have parameters for the rows of one batch alone" in refusal(
        coded, {"X": X, "out": X}, {"X": 6, "out": 6}
    )
    assert "data['y'] has 30 rows as the entries of batch have" in refusal(logistic, data, {"X": 6})
    assert "batch has different sizes [6, 7]" in refusal(logistic, data, {"X": 6, "y": 7})
    assert "batch has 'Y', which data does not have (X, y). Did you mean 'y'?" in refusal(
        logistic, data, {"X": 6, "Y": 6}
    )
    assert "different numbers of rows (X: 30, y: 29)" in refusal(logistic, {"X": X, "y": LABELS[1:]}, both)
    assert "batch=40: give a whole number of rows, from 1 to 30" in refusal(logistic, data, {"X": 40, "y": 40})
    with pytest.raises(ppl.ModelError, match="needs an objective that is linear"):
        infer.vi(logistic, infer.mean_field, data, batch=both, objective=infer.importance_weighted)
