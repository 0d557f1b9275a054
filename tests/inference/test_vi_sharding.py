"""One mapping lays out data, latent variables and parameters; values are those of one device, and sums are few."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import ppl
from ppl import Normal, infer
from ppl.inference import steps
from ppl.inference.vi import prepare

X = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
Y = (X @ np.array([1.0, -1.0, 0.5], np.float32)).astype(np.float32)


def mesh(kind=AxisType.Auto):
    return jax.make_mesh((4, 2), ("rows", "columns"), axis_types=(kind, kind))


def regression(X):
    w = yield Normal(0.0, 1.0, shape=(3,), name="w")
    yield Normal(jnp.matmul(X, w), 0.5, name="y")


def by_feature(X):
    w = yield Normal(0.0, 1.0, shape=(3,), name="w")
    yield Normal(ppl.linear(X, w), 0.5, name="y")


def effects(X):
    """A latent variable for each row."""
    s = yield ppl.HalfNormal(1.0, name="s")
    z = yield Normal(0.0, 1.0, shape=X.shape[:1], name="z")
    yield Normal(z + X[:, 0], s, name="y")


ROWS = {"X": P("rows"), "y": P("rows"), "z": P("rows")}
DATA = {"X": X, "y": Y}
CASES = {
    "global": (regression, {"X": P("rows"), "y": P("rows")}),
    "by feature": (by_feature, {"X": P("rows"), "y": P("rows")}),
    "local": (effects, ROWS),
}


def fit(model, guide=infer.mean_field, **options):
    return infer.vi(model, guide, DATA, steps=40, optimizer=0.01, progress=False, **options)


@pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")  # short runs
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("name", CASES)
def test_spread_over_devices_is_the_same_fit(name, kind):
    model, sharding = CASES[name]
    alone = fit(model)
    spread = fit(model, mesh=mesh(kind), sharding=sharding)
    np.testing.assert_allclose(spread.trail, alone.trail, rtol=1e-4)
    for one, other in zip(jax.tree.leaves(spread.params), jax.tree.leaves(alone.params), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    if name == "local":
        assert spread.params["z"]["loc"].sharding.spec == P("rows")
        moments = [x for x in jax.tree.leaves(spread.state.optimizer) if getattr(x, "shape", ()) == (64,)]
        assert moments and all(
            len(x.sharding.device_set) == 8 and x.addressable_shards[0].data.shape == (16,) for x in moments
        )


def compiled_text(model, guide, sharding, **options):
    work = prepare(model, guide, DATA, None, infer.elbo, None, 0.01, 4, None, None, mesh(), sharding, **options)
    run = jax.jit(steps.make_run(work.step))
    return run.lower(work.state, jax.random.key(0), work.arrays, np.int32(1), np.int32(1)).compile().as_text()


def hierarchy(X):
    """Three global variables of different shapes."""
    a = yield Normal(0.0, 1.0, name="a")
    s = yield ppl.HalfNormal(1.0, name="s")
    w = yield Normal(0.0, 1.0, shape=(3,), name="w")
    yield Normal(a + jnp.matmul(X, w), s, name="y")


@pytest.mark.parametrize("model, sharding", [*CASES.values(), (hierarchy, CASES["global"][1])], ids=[*CASES, "several"])
def test_one_sum_over_devices_a_step_and_no_gathering(model, sharding):
    """The bound and the gradients of all shared parameters are summed over devices together, in one call."""
    text = compiled_text(model, infer.mean_field, sharding)
    assert len(re.findall(r" all-reduce(?:-start)?\(", text)) == 1
    assert not re.search(r"all-gather|all-to-all|collective-permute", text)


@pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")  # short runs
def test_rows_are_drawn_on_each_device_from_its_own():
    options = dict(mesh=mesh(), sharding={"X": P("rows"), "y": P("rows")}, batch={"X": 16, "y": 16})
    found = infer.vi(regression, infer.full_rank, DATA, steps=1500, progress=False, **options)
    precision = np.eye(3) + X.T.astype(float) @ X / 0.25
    mean = np.linalg.solve(precision, X.T.astype(float) @ Y / 0.25)
    np.testing.assert_allclose(found.params["loc"], mean, atol=0.05)
    work = prepare(
        regression,
        infer.full_rank,
        DATA,
        None,
        infer.elbo,
        None,
        0.01,
        4,
        None,
        options["batch"],
        *(options[k] for k in ("mesh", "sharding")),
    )
    run = jax.jit(steps.make_run(work.step))
    text = run.lower(work.state, jax.random.key(0), work.arrays, np.int32(1), np.int32(1)).compile().as_text()
    assert len(re.findall(r" all-reduce(?:-start)?\(", text)) == 1
    assert not re.search(r"all-gather|all-to-all|collective-permute", text)


def test_gradients_go_through_sharded_steps():
    def after(log_rate, **layout):
        optimizer = __import__("optax").sgd(jnp.exp(log_rate))
        state, step = infer.vi_step(regression, infer.mean_field, DATA, optimizer=optimizer, samples=2, **layout)
        for _ in range(3):
            state, info = step(state, jax.random.key(1))
        return info.objective

    alone = jax.grad(after)(-6.0)
    spread = jax.grad(lambda r: after(r, mesh=mesh(), sharding={"X": P("rows"), "y": P("rows")}))(-6.0)
    np.testing.assert_allclose(spread, alone, rtol=1e-3)
    assert abs(alone) > 0.1


def test_parameters_lie_as_their_paths_say():
    def guide(q, X):
        hidden = jnp.tanh(jnp.matmul(X, q["net"]["first"]))
        yield ppl.LogNormal(q["s"], 0.2, name="s")
        yield Normal(jnp.matmul(hidden, q["net"]["last"]), 0.5, name="z")

    init = {"net": {"first": 0.1 * jnp.ones((3, 8)), "last": 0.1 * jnp.ones(8)}, "s": 0.0}
    sharding = {**ROWS, "net/first": P(None, "columns"), "net/last": P("columns")}
    options = dict(init=init, steps=20, optimizer=0.01, progress=False)
    alone = infer.vi(effects, guide, DATA, **options)
    spread = infer.vi(effects, guide, DATA, mesh=mesh(), sharding=sharding, **options)
    np.testing.assert_allclose(spread.trail, alone.trail, rtol=1e-4)
    assert spread.params["net"]["first"].addressable_shards[0].data.shape == (3, 4)


def test_slips_of_placement_are_named():
    with pytest.raises(ppl.ModelError, match="sharding names X, but there is no mesh"):
        fit(regression, sharding={"X": P("rows")})
    with pytest.raises(ppl.ModelError, match="sharding has 'x', which is no entry of data, .* Did you mean 'X'"):
        fit(regression, mesh=mesh(), sharding={"x": P("rows")})
    with pytest.raises(ppl.ModelError, match=r"data\['X'\] has length 63 on axis 0, which 4 devices do not divide"):
        infer.vi(regression, infer.mean_field, {"X": X[1:], "y": Y[1:]}, mesh=mesh(), sharding={"X": P("rows")})
