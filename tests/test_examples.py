"""The examples run, at a small size, and show what they say."""

import math
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl

FOLDER = Path(__file__).parents[1] / "examples"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")]  # short runs
MESH = (jax.sharding.AxisType.Auto,)


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("vae", "image_transformer", "bayesian_network", "variational_programs", "distributed_nuts"):
        sys.modules.pop(name, None)


def test_beta_bernoulli():
    import variational_programs as programs

    found = programs.beta_bernoulli()
    np.testing.assert_allclose([found["heads"], found["tails"]], [9, 3], rtol=0.1)


def test_a_log_joint_and_an_intervention_by_hand():
    import variational_programs as programs

    values = {"chance": jnp.float32(0.7), "flips": jnp.asarray(programs.FLIPS["flips"])}
    exact = ppl.log_joint(programs.coin, {"chance": 0.7}, programs.FLIPS)
    np.testing.assert_allclose(programs.log_joint_by_hand(values), exact, rtol=1e-6)
    fair = programs.intervene_by_hand(programs.coin, chance=1.0 - 1e-7)
    assert ppl.sample(fair)["flips"].all() and "chance" not in ppl.trace(fair)


def test_a_coin_selects_between_two_networks():
    import variational_programs as programs

    assert programs.select_between_networks(600) > 0.9


def test_a_guide_is_aligned_by_a_map():
    import variational_programs as programs

    assert programs.aligned() == pytest.approx(0.75, abs=0.02)


def test_learning_to_learn_pays():
    import variational_programs as programs

    before, after = programs.learning_to_learn(8)
    assert after > before + 0.5


@pytest.mark.false_alarm(1e-9)
def test_transitions_inside_a_guide_bring_it_to_the_posterior():
    """The sd of 2000 draws has a standard error of 0.011."""
    import variational_programs as programs

    assert programs.transitions_in_a_guide(0) < 0.12
    assert programs.transitions_in_a_guide(10) == pytest.approx(math.sqrt(0.5), abs=0.08)


def test_the_auto_encoder_learns_and_draws(tmp_path):
    import vae

    images = vae.digits(512)
    fit = vae.fit_vae(images, size=4, hidden=32, steps=300, batch=64)
    first, last = fit.trail[:20].mean(), fit.trail[-20:].mean()
    assert last > first + 20 * len(images)
    vae.pictures(fit, images, tmp_path / "vae.png")
    assert (tmp_path / "vae.png").read_bytes()[:4] == b"\x89PNG"


def test_a_flow_over_blocks_is_a_bijection():
    import vae

    flow = vae.BlockFlow.init(jax.random.key(0), 4, 2, 2, 8)
    flow = jax.tree.map(lambda x: x + 0.1, flow)
    u = jax.random.normal(jax.random.key(1), (3, 4, 2))
    x, volume = flow.constrain(u)
    np.testing.assert_allclose(flow.free(x), u, atol=1e-5)
    jacobian = jax.vmap(jax.jacfwd(lambda v: flow.constrain(v)[0]))(u).reshape(3, 8, 8)
    np.testing.assert_allclose(volume, np.linalg.slogdet(np.asarray(jacobian))[1], atol=1e-4)


def test_the_model_parallel_auto_encoder_is_the_one_of_one_device():
    import vae

    images = vae.digits(64)
    options = dict(steps=6, batch=None, hidden=16)
    alone = vae.fit_flow_vae(images, **options)
    spread = vae.fit_flow_vae(images, jax.make_mesh((2, 4), ("rows", "blocks"), axis_types=2 * MESH), **options)
    np.testing.assert_allclose(spread.trail, alone.trail, rtol=1e-4)
    block = spread.params["prior"].layers[0].net["first"]
    assert block.addressable_shards[0].data.shape[0] == 1 and block.shape[0] == 4


def test_the_transformer_looks_back_only_and_learns(tmp_path):
    import image_transformer as transformer

    images = transformer.digits(64)
    sizes = dict(width=16, heads=2, depth=1)
    q = transformer.first_parameters(**sizes)
    changed = images[:2].copy()
    changed[:, 40:] = 16 - changed[:, 40:]
    one, other = (transformer.logits(q, jnp.asarray(x)) for x in (images[:2], changed))
    np.testing.assert_array_equal(one[:, :41], other[:, :41])
    mesh = jax.make_mesh((8,), ("rows",), axis_types=MESH)
    alone, spread = (transformer.fit_transformer(images, m, steps=80, batch=None, **sizes) for m in (None, mesh))
    np.testing.assert_allclose(spread.trail[:20], alone.trail[:20], rtol=1e-4)
    params = jax.device_get(spread.params)
    assert transformer.bits_per_dimension(params, images) < 0.9 * transformer.bits_per_dimension(q, images)
    transformer.picture(params, tmp_path / "drawn.png")


@pytest.mark.false_alarm(1e-7)
def test_intervals_of_the_bayesian_network_hold():
    """110 held-out patients: five binomial standard deviations, 0.24 and 0.14, are 1e-7 each for exact intervals."""
    import bayesian_network

    half, most, error, _ = bayesian_network.coverage(steps=800, hidden=8)
    assert abs(half - 0.5) < 0.24 and most > 0.76 and error < 0.85


@pytest.mark.false_alarm(1e-7)
def test_distributed_nuts():
    """Rows that eight devices do not divide; the posterior is that of one device, within six standard errors of 150 draws."""
    import distributed_nuts as program

    rng = np.random.default_rng(0)
    X = rng.normal(size=(1003, 5)).astype(np.float32)
    data = {"X": X, "y": (rng.random(1003) < 1 / (1 + np.exp(-X @ np.arange(5) / 2))).astype(np.int32)}
    plan, found = program.sample(data, groups=2, draws=150, warmup=150, progress=False)
    assert [row.local for row in plan.rows if row.name == "X"] == [(251, 5)]
    alone = ppl.infer.nuts(program.logistic, data, draws=500, progress=False)
    shift = abs(found["w"].mean((0, 1)) - alone["w"].mean((0, 1))) / alone["w"].std((0, 1))
    assert shift.max() < 6 / np.sqrt(150)
