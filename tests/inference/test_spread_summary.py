"""Summaries of divided draws: computed on their devices, equal to those of numpy."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import mesh_of

import ppl
from ppl.inference import diagnostics, spread_summary
from ppl.inference.exchanges import exchanges


def some_draws(chains=4, length=60, rows=16):
    """Autocorrelated chains, one of them shifted; one element constant and one with ties."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(chains, length, rows)).astype(np.float32)
    x = x + np.roll(x, 1, 1) * np.linspace(-0.8, 1.5, rows, dtype=np.float32)
    x[0] += 0.4
    x[:, :, 1], x[:, :, 2] = 2.5, np.round(x[:, :, 2])
    return x


@pytest.mark.parametrize("name, chain", [("8 explicit", None), ("2x4", "chains")])
def test_the_columns_are_those_of_numpy(name, chain):
    x = some_draws()
    expected = diagnostics.summarize(x)
    found = spread_summary.summarize(jax.device_put(x, NamedSharding(mesh_of(name), P(chain, None, "rows"))))
    for column in diagnostics.COLUMNS:
        np.testing.assert_allclose(found[column], expected[column], rtol=2e-3, atol=1e-5, err_msg=column)


def test_nothing_is_exchanged_but_chains():
    mesh = mesh_of("8")
    program = spread_summary._program(mesh, ("rows",), 4, 60)
    with jax.set_mesh(mesh):
        draws = jax.device_put(some_draws(), NamedSharding(mesh, P(None, None, "rows")))
        assert exchanges(program.lower(draws).compile().as_text()) == []


def test_a_posterior_of_divided_draws_prints_and_exports(tmp_path):
    x = some_draws()
    laid = jax.device_put(x, NamedSharding(mesh_of("8"), P(None, None, "rows")))
    posterior, plain = ppl.Posterior({"x": laid}), ppl.Posterior({"x": x})
    assert posterior["x"] is laid
    np.testing.assert_allclose(posterior.summary()["x"]["r_hat"], plain.summary()["x"]["r_hat"], rtol=1e-3)
    few = posterior.summary("x", most=5)
    np.testing.assert_allclose(few.columns["mean"], plain.summary("x", most=5).columns["mean"], rtol=1e-5)
    assert repr(posterior).splitlines()[2].split()[:2] == ["mean", "sd"]
    loaded = ppl.load(posterior.save(tmp_path / "run.nc"))
    np.testing.assert_array_equal(loaded["x"], x)


def test_arviz_gathers_variable_by_variable():
    pytest.importorskip("arviz_base")
    x = some_draws()
    tree = ppl.Posterior({"x": jax.device_put(x, NamedSharding(mesh_of("8"), P(None, None, "rows")))}).to_arviz()
    np.testing.assert_array_equal(tree["posterior"]["x"].values, x)
