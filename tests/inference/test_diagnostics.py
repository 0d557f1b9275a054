"""Diagnostics against arviz-stats, known values, and what they must say about broken chains."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.special

from ppl.inference import diagnostics

array_stats = pytest.importorskip("arviz_stats.base").array_stats
NEWEST = int(__import__("arviz_stats").__version__.split(".")[0]) >= 1

SHAPES = [(4, 1000), (4, 101), (3, 37), (2, 4), (2, 5), (2, 7), (8, 12), (1, 50), (1, 4), (1, 9)]


def autoregressive(generator, shape, coefficient):
    draws = generator.normal(size=shape)
    for t in range(1, shape[1]):
        draws[:, t] += coefficient * draws[:, t - 1]
    return draws


def repeated(generator, shape):
    """Chains that stay where they are at half of the steps, so ranks are tied."""
    draws = generator.normal(size=shape)
    for t in range(1, shape[1]):
        draws[:, t] = np.where(generator.random(shape[0]) < 0.5, draws[:, t - 1], draws[:, t])
    return draws


KINDS = {
    "independent": lambda g, s: g.normal(size=s),
    "sticky": lambda g, s: autoregressive(g, s, 0.9),
    "sticky, long": lambda g, s: autoregressive(g, s, 0.99),
    "antithetic": lambda g, s: autoregressive(g, s, -0.6),
    "repeated": repeated,
    "heavy tailed": lambda g, s: g.standard_cauchy(size=s),
    "counts": lambda g, s: g.poisson(1.5, size=s),
    "coin": lambda g, s: g.random(s) < 0.5,
    "apart": lambda g, s: g.normal(size=s) + np.arange(s[0])[:, None],
    "drifting": lambda g, s: g.normal(size=s) + np.linspace(0, 4, s[1]),
    "single precision far from zero": lambda g, s: (1e4 + g.normal(size=s)).astype(np.float32),
    "with infinities": lambda g, s: np.where(g.random(s) < 0.05, np.inf, g.normal(size=s)),
    "chains equal within": lambda g, s: np.broadcast_to(np.arange(s[0], dtype=float)[:, None], s),
}


def arviz_columns(draws):
    """The columns of ArviZ's summary of one quantity; only for the newest ArviZ is its error of the sd the same."""
    low, high = array_stats.eti(np.ravel(draws), 0.89)
    columns = {
        "mean": draws.mean(),
        "sd": draws.std(ddof=1),
        "eti89_lb": low,
        "eti89_ub": high,
        "ess_bulk": array_stats.ess(draws, method="bulk"),
        "ess_tail": array_stats.ess(draws, method="tail", prob=0.89),
        "mcse_mean": array_stats.mcse(draws, method="mean"),
    }
    if NEWEST:
        columns["mcse_sd"] = array_stats.mcse(draws, method="sd")
    if len(draws) > 1:
        columns["r_hat"] = array_stats.rhat(draws, method="rank")
    return columns


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_columns_equal_those_of_arviz(kind):
    """Every column agrees to 1e-6, for every number of chains and draws, in one call over several quantities."""
    generator = np.random.default_rng(1)
    for shape in SHAPES:
        draws = np.stack([np.asarray(KINDS[kind](generator, shape)) for _ in range(2)], axis=-1)
        ours = diagnostics.summarize(draws)
        exact = draws.astype(float)
        for place in range(draws.shape[-1]):
            if np.ptp(exact[..., place]) == 0:
                continue
            for column, value in arviz_columns(exact[..., place]).items():
                # A coin's distances from its median are all equal; numpy's quantile between two infinities is nan.
                if np.isnan(value) and (column == "r_hat" or np.isinf(ours[column][place])):
                    continue
                pair = np.minimum([ours[column][place], value], 1e9)  # beyond: rounding errors
                np.testing.assert_allclose(*pair, rtol=1e-6, atol=1e-7, err_msg=f"{column} {shape}")


@pytest.mark.parametrize("kind", ["independent", "sticky", "counts", "with infinities"])
def test_single_functions_equal_the_columns(kind):
    """`r_hat(draws)` and so on give the numbers of `summarize`, and keep the shape after chain and draw."""
    generator = np.random.default_rng(2)
    draws = np.stack([KINDS[kind](generator, (4, 63)) for _ in range(6)], axis=-1).reshape(4, 63, 2, 3)
    columns = diagnostics.summarize(draws)
    for name in ("ess_bulk", "ess_tail", "r_hat", "mcse_mean", "mcse_sd"):
        values = getattr(diagnostics, name)(draws)
        assert values.shape == (2, 3)
        np.testing.assert_array_equal(values, columns[name])
    np.testing.assert_array_equal(diagnostics.eti(draws), [columns["eti89_lb"], columns["eti89_ub"]])


def test_blocks_do_not_change_the_numbers(monkeypatch):
    draws = np.random.default_rng(3).normal(size=(4, 100, 7))
    whole = diagnostics.summarize(draws)
    monkeypatch.setattr(diagnostics, "BLOCK", 900)
    for name, values in diagnostics.summarize(draws).items():
        np.testing.assert_array_equal(values, whole[name])


def test_classic_split_r_hat_of_a_worked_example():
    """Half-chains 1 2, 3 4, 3 4, 5 6: W = 1/2 and B/N = 8/3."""
    chains = np.array([[1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0]])
    np.testing.assert_allclose(diagnostics.split_r_hat(chains), 2.4152295, rtol=1e-7)
    np.testing.assert_allclose(diagnostics.split_r_hat(chains), np.sqrt((0.25 + 8 / 3) / 0.5), rtol=1e-14)


@pytest.mark.parametrize("draws", [10, 11])
def test_one_chain_has_an_r_hat_between_its_halves(draws):
    chain = np.random.default_rng(4).normal(size=(1, draws))
    halves = np.stack([chain[0, : draws // 2], chain[0, -(draws // 2) :]])
    np.testing.assert_allclose(diagnostics.split_r_hat(chain), array_stats.rhat(halves, method="identity"), rtol=1e-12)
    np.testing.assert_array_equal(diagnostics.split_r_hat(chain[0]), diagnostics.split_r_hat(chain))
    drifting = chain + np.linspace(0.0, 20.0, draws)
    assert diagnostics.r_hat(drifting) > 1.5


@pytest.mark.parametrize("value", [0.0, 0.1, -3e30, 7, True])
@pytest.mark.parametrize("shape", [(4, 100), (1, 100), (2, 5)])
def test_equal_draws_never_look_healthy(value, shape):
    """R-hat and effective sample sizes of draws that are all equal are nan, while mean and sd are what they are."""
    draws = np.full(shape, value)
    columns = diagnostics.summarize(draws)
    for name in ("ess_bulk", "ess_tail", "r_hat", "mcse_mean", "mcse_sd"):
        assert np.isnan(columns[name]) and np.isnan(getattr(diagnostics, name)(draws)), name
    assert np.isnan(diagnostics.split_r_hat(draws))
    np.testing.assert_allclose(columns["mean"], float(value), rtol=1e-12)


def test_chains_stuck_at_different_places_disagree_without_bound():
    stuck = np.broadcast_to(np.array([1.0, 1.0, 2.0])[:, None], (3, 20))
    assert diagnostics.split_r_hat(stuck) == np.inf
    assert diagnostics.r_hat(stuck) > 1e6


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinite_draws(value):
    """A nan makes every column nan; an infinity leaves what ranks and quantiles can tell."""
    draws = np.random.default_rng(5).normal(size=(4, 50, 2))
    draws[2, 7, 1] = value
    columns = diagnostics.summarize(draws)
    assert all(np.isfinite(values[0]) for values in columns.values())
    finite = {name for name, values in columns.items() if np.isfinite(values[1])}
    assert finite == (set() if np.isnan(value) else {"eti89_lb", "eti89_ub", "ess_bulk", "ess_tail", "r_hat"})


@pytest.mark.parametrize("draws", [0, 1, 2, 3])
def test_too_few_draws_give_nan(draws):
    columns = diagnostics.summarize(np.arange(4.0 * draws * 3).reshape(4, draws, 3))
    assert np.isnan(columns["r_hat"]).all() and np.isnan(columns["ess_bulk"]).all()
    assert np.isfinite(columns["mean"]).all() == (draws > 0)


def test_no_elements_and_no_chains():
    assert diagnostics.summarize(np.zeros((4, 10, 0)))["mean"].shape == (0,)
    assert np.isnan(diagnostics.summarize(np.zeros((0, 10)))["mean"])


def test_ranks_do_not_see_a_monotone_transformation():
    draws = np.random.default_rng(6).normal(size=(4, 200, 3))
    np.testing.assert_allclose(diagnostics.ess_bulk(np.exp(draws)), diagnostics.ess_bulk(draws), rtol=1e-12)
    np.testing.assert_allclose(diagnostics.ess_tail(np.exp(draws)), diagnostics.ess_tail(draws), rtol=1e-12)


def test_standard_errors_scale_with_the_draws():
    draws = np.random.default_rng(7).normal(size=(4, 200, 3))
    for error in (diagnostics.mcse_mean, diagnostics.mcse_sd):
        np.testing.assert_allclose(error(1e6 + 5.0 * draws), 5.0 * error(draws), rtol=1e-6)


def test_ebfmi_equals_that_of_arviz():
    energy = autoregressive(np.random.default_rng(8), (4, 333), 0.7)
    np.testing.assert_allclose(diagnostics.ebfmi(energy), array_stats.bfmi(energy), rtol=1e-12)
    assert np.isnan(diagnostics.ebfmi(np.ones((2, 1)))).all() and np.isnan(diagnostics.ebfmi(np.ones((2, 9)))).all()


def test_normal_quantiles():
    probability = np.concatenate([np.logspace(-10.9, np.log10(0.5), 500), 1.0 - np.logspace(-10.9, np.log10(0.5), 500)])
    np.testing.assert_allclose(
        diagnostics.normal_quantile(probability), scipy.special.ndtri(probability), rtol=1e-13, atol=1e-15
    )


@pytest.mark.false_alarm(1e-8)
def test_chance_bounds_r_hat_of_chains_in_equilibrium(seed):
    """At 1e-11 a comparison, none of 200 quantities exceeds the bound; a shift by half an sd does.

    The smallest error caught: a bound that grows or shrinks with the wrong power of the effective draws.
    """
    draws = np.random.default_rng(seed).normal(size=(4, 500, 200))
    ess = np.minimum(diagnostics.ess_bulk(draws), diagnostics.ess_tail(draws))
    bound = diagnostics.chance_r_hat(ess, 4, comparisons=400, probability=1e-9)
    assert (diagnostics.r_hat(draws) < bound).all()
    draws[0] += 0.5
    assert (
        diagnostics.r_hat(draws) > diagnostics.chance_r_hat(1500.0, 4, comparisons=400, probability=1e-3)
    ).mean() > 0.5


def test_importing_it_is_light():
    """Neither scipy.stats nor ArviZ, pandas or xarray is imported with a result and its table."""
    code = (
        "import sys, numpy; from ppl.inference.posterior import Posterior; "
        "str(Posterior({'x': numpy.random.default_rng(0).normal(size=(4, 100))})); "
        "sys.exit(' '.join({'scipy.stats', 'arviz_stats', 'arviz_base', 'pandas', 'xarray'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""
