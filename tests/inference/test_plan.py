"""Plans and padding: what a run on a mesh would do, and how lengths are made to fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from meshes import FACTORS, FACTORS_ROWS, LOGISTIC, LOGISTIC_ROWS, factors, logistic, mesh_of

import ppl
from ppl import Map, ModelError, Normal, infer


def test_a_plan_tells_shapes_bytes_and_exchanges():
    plan = ppl.plan(factors, FACTORS, mesh=mesh_of("2x4 explicit"), sharding=FACTORS_ROWS, chains=2, draws=100)
    rows = {row.name: row for row in plan.rows}
    assert rows["rating"].local == (12, 6) and rows["rating"].bytes == 12 * 6 * 4
    assert rows["users"].local == (12, 2) and rows["users"].kind == "latent" and rows["users"].spec == "rows"
    assert rows["movies"].local == rows["movies"].shape == (6, 2)
    assert [e.kind for e in plan.exchanges] == ["all-reduce"]
    assert plan.draws_bytes == {"device": 100 * (12 * 2 + 12) * 4, "host": 2 * 100 * 13 * 4}
    assert "Exchanged for one gradient: all-reduce of" in repr(plan) and "<pre>" in plan._repr_html_()


def test_a_plan_names_what_lies_everywhere_and_what_is_gathered():
    def per_row(X):
        effects = yield Normal(0.0, 1.0, shape=(len(X),), name="effects")
        yield Normal(effects + X, 1.0, name="y")

    n = 80_000
    data = {"X": np.zeros(n, np.float32), "y": np.zeros(n, np.float32)}
    rows = {"X": P("rows"), "y": P("rows")}
    notes = ppl.plan(per_row, data, mesh=mesh_of("8"), sharding=rows).notes
    assert "'effects' lies on every device in full, 320 kB each, and is as long as" in notes[0]
    assert not ppl.plan(per_row, data, mesh=mesh_of("8"), sharding={**rows, "effects": P("rows")}).notes

    def nothing(y):
        m = yield Normal(0.0, 1.0, name="m")
        yield ppl.Factor(m * jnp.sum(y), name="f")

    assert "nothing is divided" in ppl.plan(nothing, {"y": np.ones(3, np.float32)}, mesh=mesh_of("8")).notes[0]


def test_a_plan_refuses_what_a_run_would_refuse():
    with pytest.raises(ModelError, match="a plan is for several devices: give mesh="):
        ppl.plan(logistic, LOGISTIC)
    with pytest.raises(ModelError, match="chains=3"):
        ppl.plan(logistic, LOGISTIC, mesh=mesh_of("2x4"), sharding=LOGISTIC_ROWS, chains=3)


def uneven(n):
    return {name: values[:n] for name, values in LOGISTIC.items()}


def test_padded_rows_reach_neither_the_density_nor_its_gradient():
    model, data = ppl.pad(logistic, uneven(61), mesh=mesh_of("8"), sharding=LOGISTIC_ROWS)
    assert data["X"].shape == (64, 3) and data["y"].shape == (64,)
    data["y"][61:] = 7  # outside of the support
    density, padded = ppl.log_density(logistic, uneven(61)), ppl.log_density(model, data)
    at = density.initial(1)
    (value, gradient), (same, also) = (jax.value_and_grad(d)(at) for d in (density, padded))
    np.testing.assert_allclose(same, value, rtol=1e-6)
    np.testing.assert_allclose(also["b"], gradient["b"], rtol=1e-5)


def test_a_run_on_padded_data_gives_the_draws_of_the_data():
    settings = dict(chains=2, draws=10, warmup=0, seed=5, step_size=0.2, num_steps=5, progress=False)
    model, data = ppl.pad(logistic, uneven(61), mesh=mesh_of("8"), sharding=LOGISTIC_ROWS)
    with pytest.warns(ppl.InferenceWarning):
        expected = infer.hmc(logistic, uneven(61), **settings)
        found = infer.hmc(model, data, mesh=mesh_of("8"), sharding=LOGISTIC_ROWS, **settings)
    np.testing.assert_allclose(found["w"], expected["w"], rtol=2e-3, atol=2e-3)


def test_padding_reaches_groups_and_leaves_what_fits_alone():
    def group(x):
        yield Normal(x, 1.0, name="y")

    def model(x):
        yield Map(group, x, name="g")

    x = np.arange(6, dtype=np.float32)
    data = {"x": x, "g/y": x + 1}
    longer, padded = ppl.pad(model, data, mesh=mesh_of("4"), sharding={"x": P("rows"), "g/y": P("rows")})
    assert padded["x"].tolist() == [0, 1, 2, 3, 4, 5, 5, 5]
    np.testing.assert_allclose(ppl.trace(longer, padded).log_joint, ppl.trace(model, data).log_joint, rtol=1e-6)
    assert ppl.pad(logistic, LOGISTIC, mesh=mesh_of("8"), sharding=LOGISTIC_ROWS)[0] is logistic


def test_masked_arrays_are_not_padded():
    data = {"X": uneven(61)["X"], "y": np.ma.masked_equal(uneven(61)["y"], 7)}
    with pytest.raises(ppl.DataError, match="masked array, which pad cannot make longer"):
        ppl.pad(logistic, data, mesh=mesh_of("8"), sharding=LOGISTIC_ROWS)
