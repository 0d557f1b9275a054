"""The result of a run: access, labels, table, HTML, warnings and export."""

import dataclasses
import html.parser
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from models import LINE, line
from scipy import stats

from ppl import Dirichlet, Normal, infer
from ppl.errors import InferenceWarning, ModelError
from ppl.inference import concerns
from ppl.inference.posterior import Posterior
from ppl.inference.summary import number

SCHOOLS = ["Choate", "Deerfield", "Phillips Andover", "Hotchkiss"]
GOLDEN = Path(__file__).parents[1] / "golden" / "results.html"
STATISTICS = {
    "lp": np.float32,
    "acceptance_rate": np.float32,
    "step_size": np.float32,
    "tree_depth": np.int32,
    "n_steps": np.int32,
    "reached_max_treedepth": bool,
    "diverging": bool,
    "energy": np.float32,
    "energy_error": np.float32,
    "max_energy_error": np.float32,
}


def waves(chains=4, draws=200, shape=(), shift=0.0, scale=1.0):
    """Draws without randomness that mix well: a low-discrepancy sequence through a bell-shaped map."""
    count = int(np.prod(shape, dtype=int))
    steps = np.arange(1, chains * draws + 1).reshape(chains, draws, 1)
    uniform = (steps * np.sqrt(np.arange(2, 2 + count) + 0.37)) % 1.0
    return (shift + scale * np.log(uniform / (1.0 - uniform))).reshape(chains, draws, *shape)


def healthy(**more):
    generator = np.random.default_rng(0)
    stats = {n: np.zeros((4, 500), d) for n, d in STATISTICS.items()}
    stats["energy"] = generator.normal(size=(4, 500)).astype(np.float32)
    draws = {"mu": generator.normal(size=(4, 500)), "theta": generator.normal(size=(4, 500, 4))}
    return Posterior(draws, **{"stats": stats, "dims": {"theta": "school"}, "coords": {"school": SCHOOLS}, **more})


def test_it_is_a_mapping_in_program_order():
    posterior = healthy()
    assert list(posterior) == ["mu", "theta"] and len(posterior) == 2 and "mu" in posterior and "nu" not in posterior
    assert posterior["theta"].shape == (4, 500, 4) and dict(posterior).keys() == {"mu", "theta"}
    assert (posterior.chains, posterior.num_draws) == (4, 500)
    assert posterior.get("nu") is None and posterior == posterior and posterior != healthy()
    with pytest.raises(KeyError, match=r"no draws of 'thet'; there are mu, theta\. Did you mean 'theta'\?"):
        posterior["thet"]
    with pytest.raises(AttributeError):
        posterior.draws = {}


def test_selection_by_label_and_by_position():
    posterior = healthy()
    np.testing.assert_array_equal(posterior.sel("theta", school="Deerfield"), posterior["theta"][..., 1])
    np.testing.assert_array_equal(
        posterior.sel("theta", school=["Hotchkiss", "Choate"]), posterior["theta"][..., [3, 0]]
    )
    plain = Posterior({"w": np.arange(24.0).reshape(1, 2, 3, 4)})
    np.testing.assert_array_equal(plain.sel("w", w_dim_1=-1, w_dim_0=1), plain["w"][:, :, 1, -1])
    np.testing.assert_array_equal(plain.sel("w", {"w_dim_0": [2, 1]}), plain["w"][:, :, [2, 1]])
    years = Posterior({"w": np.ones((1, 2, 2))}, dims={"w": ["year"]}, coords={"year": [1999, 2024]})
    assert years.sel("w", year=2024).shape == (1, 2)
    assert posterior.sel("mu") is posterior["mu"]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (
            dict(school="choate"),
            "'school' has no label 'choate'; it has Choate, Deerfield, Phillips Andover, Hotchkiss",
        ),
        (dict(shool="Choate"), "'theta' has no axis 'shool'; its axes are school. Did you mean 'school'?"),
    ],
)
def test_a_selection_that_is_not_there(where, text):
    with pytest.raises(ModelError) as error:
        healthy().sel("theta", **where)
    assert str(error.value).startswith(text)
    with pytest.raises(ModelError, match="'w_dim_0' has no labels, only positions from 0 to 2; 3 is none of them"):
        Posterior({"w": np.ones((1, 1, 3))}).sel("w", w_dim_0=3)


DRAWS = {"theta": np.zeros((2, 3, 8)), "w": np.zeros((2, 3, 4, 5)), "mu": np.zeros((2, 3))}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            dict(dims={"theta": ["school"]}, coords={"school": SCHOOLS}),
            "'theta' has length 8 along 'school', but coords has 4 labels for 'school' (Choate, Deerfield, Phillips "
            "Andover, Hotchkiss). Give 8 labels, or another axis name in dims.",
        ),
        (
            dict(dims={"theta": ["school", "year"]}),
            "'theta' has 1 axis (shape (8,)), but dims has 2 names for it (school, year). Give one for each axis.",
        ),
        (
            dict(dims={"theta": ["a"], "w": ["a", "b"]}),
            "'theta' has length 8 along 'a' and 'w' has length 4. Name the axes differently in dims.",
        ),
        (dict(dims={"w": ["a", "a"]}), "dims names two axes of 'w' 'a'. Give each axis a name of its own."),
        (dict(dims={"theta": ["mu"]}), "'mu' is a variable and also an axis of 'theta' in dims. Rename the axis."),
        (dict(coords={"a": [[1, 2]]}), "coords has an array of shape (1, 2) for 'a'. Give one label after another."),
        (
            dict(stats={"lp": np.zeros((2, 4))}),
            "'theta' has 2 chains of 3 draws and 'lp' has 2 of 4. Give every array the same two leading axes.",
        ),
        (dict(stats={"lp": np.zeros(3)}), "stats of 'lp' have shape (3,); they start with [chain, draw]."),
    ],
)
def test_shapes_and_labels_that_disagree_are_refused(arguments, text):
    with pytest.raises(ModelError) as error:
        Posterior(DRAWS, **arguments)
    assert str(error.value) == text


def test_an_axis_may_be_left_unnamed():
    posterior = Posterior(DRAWS, dims={"w": [None, "side"]}, coords={"side": list("abcde")})
    assert posterior.summary("w").rows[:2] == ("w[0, a]", "w[0, b]")


def test_the_table_reads_as_expected():
    """Golden text: digits end where the standard error begins, long arrays fold, labels name rows."""
    draws = {
        "mu": 5.0 + 30.0 * waves(),
        "theta": waves(shape=(2,)),
        "count": np.floor(4.0 * np.abs(waves())).astype(np.int32),
        "big": 1e5 * waves(shape=(30,), shift=1.0),
        "fixed": np.ones((4, 200)),
    }
    posterior = Posterior(
        draws,
        dims={"theta": ["school"]},
        coords={"school": SCHOOLS[:2]},
        settings={"algorithm": "nuts", "model": "schools", "warmup": 300, "thin": 2},
        timings={"compile": 0.9, "total": 1.2345},
    )
    lines = str(posterior).split("\n")
    assert lines[0] == "nuts of schools: 4 chains of 200 draws thinned by 2 after 300 of warm-up, 1.23 s"
    assert lines[2].split() == "mean sd eti89_lb eti89_ub ess_bulk ess_tail r_hat mcse_mean mcse_sd".split()
    names = [line.split("  ")[0] for line in lines[3:] if line and not line.startswith(("  ", "Warning"))]
    assert names[:4] == ["mu", "theta[Choate]", "theta[Deerfield]", "count"] and names[-1] == "fixed"
    assert len([name for name in names if name.startswith("big[")]) == 5
    folded = [line for line in lines if line.startswith("  ... and 25 more, r_hat at most ")]
    assert len(folded) == 1
    assert len({len(line) for line in lines[2:] if line and not line.startswith(("  ...", "Warning"))}) == 1
    assert (
        next(line for line in lines if line.startswith("fixed")).split() == "fixed 1 0 1 1 nan nan nan nan nan".split()
    )


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (4.3821, 0.058, "4.38"),
        (4.3821, 0.58, "4.4"),
        (4.3821, 5.8, "4"),
        (43821.0, 580.0, "43800"),
        (-0.0004, 0.01, "0.00"),
        (0.0004, 3.0, "0"),
        (0.0, 0.1, "0"),
        (1.2345678e-9, 2e-12, "1.235e-09"),
        (1.2345678e9, 2e5, "1.2346e+09"),
        (2.5, np.nan, "2.5"),
        (1234.567, 0.0, "1.23e+03"),
    ],
)
def test_a_number_ends_where_its_error_begins(value, error, text):
    assert number(value, error) == text


def test_summary_by_row_by_variable_as_dict_and_as_frame():
    pandas = pytest.importorskip("pandas")
    posterior = healthy()
    summary = posterior.summary()
    assert summary.rows == ("mu", *(f"theta[{school}]" for school in SCHOOLS)) and len(summary) == 5
    np.testing.assert_allclose(summary["mu"]["mean"], posterior["mu"].mean())
    np.testing.assert_allclose(summary["theta"]["sd"], posterior["theta"].std((0, 1), ddof=1))
    assert summary["theta[Hotchkiss]"]["sd"] == summary["theta"]["sd"][3] == summary.to_dict()["theta[Hotchkiss]"]["sd"]
    frame = summary.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame.loc["mu", "r_hat"] == summary["mu"]["r_hat"]
    assert posterior.summary("mu").rows == ("mu",)
    with pytest.raises(KeyError, match=r"no row 'theta\[choate\]'\. Did you mean 'theta\[Choate\]'"):
        summary["theta[choate]"]
    with pytest.raises(KeyError, match="no draws of 'nu'"):
        posterior.summary("nu")


def test_summary_equals_that_of_arviz():
    arviz_stats = pytest.importorskip("arviz_stats")
    posterior = healthy()
    frame = arviz_stats.summary(posterior.to_arviz(), round_to="none")
    ours = posterior.summary().to_pandas()
    if arviz_stats.__version__ < "1":  # it divided by the number of draws, and had another error of the sd
        frame, ours = (f.drop(columns=["sd", "mcse_sd"]) for f in (frame, ours))
    assert list(frame.columns) == list(ours.columns) and list(frame.index) == list(ours.index)
    np.testing.assert_allclose(ours.to_numpy(float), frame.to_numpy(float), rtol=1e-6)


def test_a_printed_result_reads_a_part_of_a_huge_array(monkeypatch):
    monkeypatch.setattr("ppl.inference.posterior.QUICK", 4 * 50 * 100)
    posterior = Posterior({"users": waves(4, 50, (700,))})
    assert "and 95 more" in str(posterior)
    assert "(600 others were not read; summary('users') reads all)" in str(posterior)
    assert len(posterior.summary()) == 700 and len(posterior.summary(most=30)) == 30
    assert posterior.summary(most=7).rows == tuple(f"users[{i}]" for i in range(0, 700, 100))


def test_moments_stand_in_for_draws_that_were_not_kept():
    posterior = Posterior({}, stats={"lp": np.zeros((2, 9))}, moments={"w": {"mean": np.arange(2.0), "sd": np.ones(2)}})
    np.testing.assert_array_equal(posterior.summary("w")["w"]["mean"], [0.0, 1.0])
    assert "w[1]" in str(posterior) and posterior.warnings() == []


def test_a_result_without_draws_says_so():
    posterior = Posterior({"x": np.zeros((4, 0))}, interrupted=True)
    assert posterior.header == "Draws: 4 chains of 0 draws, interrupted"
    assert "(no draws)" in str(posterior) and "holds no draws" in posterior.warnings()[0]
    assert "no draws" in posterior._repr_html_()


class Page(html.parser.HTMLParser):
    """The tags, attributes and words of a page; refuses tags that do not close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_html_is_harmless_and_readable_in_the_dark():
    """Hostile names and labels are text; no script, no address, no color of text or opaque background."""
    bad = "<script>alert(1)</script>"
    posterior = Posterior(
        {bad: waves(shape=(2,)), "long": waves(shape=(30,))},
        stats={"diverging": np.ones((4, 200), bool)},
        dims={bad: ["axis"]},
        coords={"axis": ["<b>", '"&']},
        settings={"algorithm": bad, "model": bad},
    )
    page = Page(posterior._repr_html_())
    assert {tag for tag, _ in page.tags} == {
        "div",
        "b",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
    }
    assert {name for _, attributes in page.tags for name in attributes} <= {"style", "colspan"}
    styles = " ".join(attributes.get("style", "") for _, attributes in page.tags)
    assert "url" not in styles and "#fff" not in styles and ";color" not in styles and "background:#" not in styles
    assert f"{bad}[<b>]" in page.words and f'{bad}["&]' in page.words
    assert any(word.startswith("all 800 transitions diverged") for word in page.words)
    assert any(word.startswith("long: 30 rows") for word in page.words)
    assert Page(posterior.summary()._repr_html_()).words


def example_fit():
    """A fit with the numbers of a poor one."""
    fit = infer.vi(line, infer.mean_field, LINE, steps=0, progress=False)
    fit = dataclasses.replace(fit, trail=np.arange(100.0) - 100, timings={"steps": 0.5, "total": 1.25}, skipped=2)
    vars(fit)["pareto_k"] = 0.91
    return fit


def example_result():
    """Draws without randomness, and a divergence."""
    diverging = np.zeros((4, 200), bool)
    diverging[2, 7] = True
    return Posterior(
        {"mu": 5.0 + 30.0 * waves(), "theta": waves(shape=(2,))},
        stats={"diverging": diverging},
        settings={"algorithm": "nuts", "model": "schools", "warmup": 300},
        timings={"compile": 0.9, "total": 1.2345},
    )


def test_html_is_that_of_the_golden_file():
    """Both kinds of result; browsers show the file. `python tests/inference/test_posterior.py` writes it anew."""
    for result in (example_result(), example_fit()):
        assert Page(result._repr_html_()).words
        assert result._repr_html_() in GOLDEN.read_text(encoding="utf-8").splitlines()


def test_the_page_of_a_fit_says_what_it_prints_and_marks_what_to_act_on():
    fit = example_fit()
    page = Page(fit._repr_html_())
    marked = [tag for tag, attributes in page.tags if "border-left" in attributes.get("style", "")]
    assert len(marked) == len(fit.verdict()) == 3 and "script" not in dict(page.tags)
    assert all(sentence in page.words for sentence in [fit.header, *fit.verdict()])
    vars(fit)["pareto_k"] = 0.2
    assert fit._repr_html_().count("border-left") == 2


# Warnings.


def test_a_healthy_run_gets_no_warning():
    posterior = healthy()
    assert posterior.warnings() == [] and "Warning" not in str(posterior)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        concerns.warn(posterior.warnings())


@pytest.mark.false_alarm(1e-8)
def test_fifty_healthy_runs_get_no_warning(seed):
    """Ten variables, four chains of 1000 independent draws: no word in fifty runs.

    R-hat beyond 1.01 needs a chi-square with 7 degrees of freedom above 70. The smallest error caught: a warning in one
    run of fifty.
    """
    generator = np.random.default_rng(seed)
    for _ in range(50):
        stats = {"energy": generator.normal(size=(4, 1000)), "diverging": np.zeros((4, 1000), bool)}
        assert Posterior({"x": generator.normal(size=(4, 1000, 10))}, stats=stats).warnings() == []


@pytest.mark.false_alarm(2e-6)
def test_r_hat_above_its_threshold_by_chance_alone_is_no_concern(seed):
    """A third of such runs, of ten variables with 900 effective draws each, has an R-hat above 1.01.

    The bound fails once in 1e6 runs. The smallest error caught: a fixed threshold at 1.01.
    """
    generator = np.random.default_rng(seed)
    draws = generator.normal(size=(4, 720, 10))
    for t in range(1, 720):
        draws[:, t] += 0.5 * draws[:, t - 1]
    assert Posterior({"x": draws[:, 20:]}).warnings() == []


def stats_with(**changed):
    return {**healthy().stats, **changed}


def test_divergences_are_counted_by_chain():
    diverging = np.zeros((4, 500), bool)
    diverging[1, :3] = diverging[3, 7] = True
    (sentence,) = healthy(stats=stats_with(diverging=diverging)).warnings()
    assert sentence == (
        "4 of 2000 transitions diverged (chain 1: 3, chain 3: 1): the draws miss a part of the distribution; try "
        "ppl.noncentered on variables whose scale is itself drawn, or target_accept closer to 1."
    )


def test_a_run_in_which_everything_diverges_does_not_look_healthy():
    """All draws equal: R-hat is nan, the count of divergences is in the text, and the variables are named."""
    posterior = Posterior(
        {"mu": np.full((2, 50), 0.3), "w": np.ones((2, 50, 3))}, stats={"diverging": np.ones((2, 50), bool)}
    )
    first, second = posterior.warnings()
    assert first.startswith("all 100 transitions diverged (chain 0: 50, chain 1: 50): no draw can be used;")
    assert second.startswith("all draws are equal in chains 0, 1 ('mu', 'w'): the sampler did not move;")
    assert np.isnan(posterior.summary()["mu"]["r_hat"]) and first in str(posterior)


def test_one_chain_that_does_not_move_is_named():
    draws = np.random.default_rng(0).normal(size=(4, 500))
    draws[2] = draws[2, 0]
    sentences = Posterior({"mu": draws, "one": np.ones((4, 500))}, roles={"one": "derived"}).warnings()
    assert sentences[0].startswith("all draws are equal in chain 2 ('mu')")
    assert sentences[1].startswith("R-hat of 'mu' is ")


def test_constant_elements_of_a_variable_are_no_concern():
    """The corner of a Cholesky factor is 1 always."""
    factor = np.zeros((4, 500, 2, 2))
    factor[..., 0, 0], factor[..., 1, 0] = 1.0, np.random.default_rng(0).normal(size=(4, 500))
    assert Posterior({"factor": factor}).warnings() == []


def test_large_r_hat_names_the_worst_variable():
    posterior = healthy()
    draws = {"mu": posterior["mu"] + 0.4 * np.arange(4)[:, None], "theta": posterior["theta"].copy()}
    draws["theta"][0, :, 2] += 3.0
    r_hat, ess = Posterior(draws, dims=posterior.dims, coords=posterior.coords).warnings()
    assert r_hat.startswith("R-hat of 'theta[Phillips Andover]' is 1.") and "and so for 1 more: the chains do" in r_hat
    assert "effective draws (bulk), fewer than 100 for each of 4 chains, and so for 1 more" in ess
    (short,) = Posterior({"x": np.random.default_rng(0).normal(size=(4, 40))}).warnings()
    assert short.startswith("'x' has ") and short.endswith("its estimates are unreliable; give draws=300.")


def test_few_effective_draws_of_the_tail():
    """Long stays beyond the 5% quantile leave the center well known."""
    draws = np.random.default_rng(0).normal(size=(4, 500))
    draws[0, 100:150] = -4.0 - np.abs(draws[0, 100:150])
    draws[2, 300:350] = -4.0 - np.abs(draws[2, 300:350])
    sentences = Posterior({"x": draws}).warnings()
    assert any("effective draws (tail)" in sentence for sentence in sentences)


def test_saturated_trees_and_low_energy_fraction_name_the_slowest_variable():
    reached = np.zeros((4, 500), bool)
    reached[1, :26] = True
    energy = np.cumsum(np.random.default_rng(0).normal(size=(4, 500)), axis=1)
    depth, fraction = healthy(stats=stats_with(reached_max_treedepth=reached, energy=energy)).warnings()
    assert (
        depth.startswith("5% of the transitions of chain 1 reached the largest tree depth") and "moves slowest" in depth
    )
    assert fraction.startswith("E-BFMI of chain ") and "below 0.3" in fraction and "moves slowest" in fraction
    reached[1, 25] = False
    assert healthy(stats=stats_with(reached_max_treedepth=reached)).warnings() == []


def test_draws_that_are_not_numbers_are_counted():
    draws = np.random.default_rng(0).normal(size=(4, 500))
    draws[0, :3] = [np.nan, np.inf, -np.inf]
    (sentence,) = Posterior({"x": draws}).warnings()
    assert sentence.startswith("3 of 2000 numbers of 'x' are nan or infinite")


def test_every_warning_is_given_once_as_an_inference_warning():
    posterior = Posterior({"mu": np.full((2, 50), 0.3)}, stats={"diverging": np.ones((2, 50), bool)})
    with pytest.warns(InferenceWarning) as record:
        concerns.warn(posterior.warnings())
    assert [str(w.message) for w in record] == posterior.warnings() and len(record) == 2


# Export.


@pytest.fixture
def arviz_base():
    return pytest.importorskip("arviz_base")


def test_export_has_the_groups_names_dtypes_and_attributes_of_the_schema(arviz_base):
    posterior = healthy(
        settings={"model": "schools", "algorithm": "nuts", "warmup": 300},
        versions={"ppl": "0.1.0"},
        warmup={"draws": {"mu": np.ones((4, 7))}, "stats": {"lp": np.ones((4, 7))}},
        roles={"theta": "derived"},
        state={"inv_metric": np.ones((4, 5))},
    )
    tree = posterior.to_arviz()
    assert tree.name == "schools"
    assert set(tree.children) == {"posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats"}
    assert tree["posterior"]["theta"].dims == ("chain", "draw", "school")
    assert list(tree["posterior"]["school"].values) == SCHOOLS
    assert tree["posterior"].attrs["sampled_variables"] == ["mu"]
    for name, dtype in STATISTICS.items():
        assert tree["sample_stats"][name].dims == ("chain", "draw") and tree["sample_stats"][name].dtype == dtype
    assert tree["sample_stats"]["inv_metric"].dims == ("chain", "inv_metric_dim_0")
    for group in tree.children:
        attributes = tree[group].attrs
        assert attributes["creation_library"] == attributes["inference_library"] == "ppl"
        assert attributes["creation_library_version"] == attributes["inference_library_version"] == "0.1.0"
        assert attributes["creation_library_language"] == "Python" and "created_at" in attributes
        assert list(attributes["sample_dims"]) == ["chain", "draw"]
    np.testing.assert_array_equal(tree["posterior"]["theta"], posterior["theta"])


def test_export_names_axes_as_arviz_does(arviz_base):
    tree = Posterior({"slopes/tau": np.ones((2, 3, 4))}).to_arviz()
    assert tree["posterior"]["slopes.tau"].dims == ("chain", "draw", "slopes.tau_dim_0")


def fitted(model, dims=None, coords=None):
    return infer.nuts(model, LINE, chains=2, draws=200, warmup=200, dims=dims, coords=coords, progress=False)


def level(x):
    """The line without its slope."""
    a = yield Normal(0.0, 1.0, name="a")
    yield Normal(a + 0.0 * x, 0.5, name="y")


@pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")
def test_export_has_every_group_that_a_model_and_its_results_give(arviz_base):
    names = [f"row {i}" for i in range(8)]
    posterior = fitted(line, {"y": ["row"]}, {"row": names})
    new = {"x": np.array([2.0, 3.0, 4.0], np.float32)}
    prior = infer.prior(line, LINE, draws=50)
    predictions = infer.predict(line, posterior, new)
    tree = posterior.to_arviz(line, LINE, prior=prior, predictions=predictions, new_data=new)
    assert set(tree.children) == {
        *("posterior", "sample_stats", "log_likelihood", "log_prior", "unconstrained_posterior"),
        *("posterior_predictive", "prior", "prior_predictive", "predictions"),
        *("observed_data", "constant_data", "predictions_constant_data"),
    }
    for group in ("log_likelihood", "posterior_predictive", "prior_predictive"):
        assert tree[group]["y"].dims == ("chain", "draw", "row") and list(tree[group]["row"].values) == names
    for group, name, axis in (
        ("observed_data", "y", "row"),
        ("constant_data", "x", "x_dim_0"),
        ("predictions_constant_data", "x", "x_dim_0"),
    ):
        assert list(tree[group].data_vars) == [name] and tree[group][name].dims == (axis,)
    assert tree["prior"].sizes == {"chain": 1, "draw": 50} and set(tree["prior"].data_vars) == {"a", "b"}
    np.testing.assert_array_equal(tree["prior_predictive"]["y"], prior["y"])
    np.testing.assert_array_equal(tree["predictions"]["y"], predictions["y"])
    assert list(tree["predictions"]["row"].values) == [0, 1, 2]  # other rows than those that have names
    np.testing.assert_array_equal(tree["predictions_constant_data"]["x"], new["x"])
    np.testing.assert_array_equal(tree["unconstrained_posterior"]["b"], posterior["b"])
    right = -0.5 * posterior["a"] ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(tree["log_prior"]["a"], right, rtol=1e-5)


def test_export_takes_what_was_computed_before(arviz_base):
    posterior = healthy(settings={"observed": ["y"]})
    likelihood = {"y": np.zeros((4, 500, 3))}
    predictive = Posterior({"y": np.ones((4, 500, 3))})
    data = {"y": np.ma.masked_invalid([1.0, np.nan, 2.0]), "tree": [np.ones(1), np.ones(2)], "kind": "word"}
    tree = posterior.to_arviz(
        data=data, predictive=predictive, log_likelihood=likelihood, prior={"mu": np.ones((1, 9))}
    )
    np.testing.assert_array_equal(tree["log_likelihood"]["y"], likelihood["y"])
    np.testing.assert_array_equal(tree["posterior_predictive"]["y"], predictive["y"])
    np.testing.assert_array_equal(tree["observed_data"]["y"], [1.0, np.nan, 2.0])
    assert "constant_data" not in tree.children and "prior_predictive" not in tree.children
    with pytest.raises(ModelError, match="a model without data. Give both, or neither"):
        posterior.to_arviz(object())


def test_free_values_and_missing_entries_have_axes_of_their_own(arviz_base):
    def model():
        p = yield Dirichlet(np.ones(3, np.float32), name="p")
        yield Normal(p.sum(), 1.0, shape=(2, 2), name="y")

    p = np.full((2, 5, 3), 1 / 3, np.float32)
    draws = {"p": p, "y": np.ones((2, 5, 1), np.float32)}
    posterior = Posterior(draws, dims={"p": ["side"]}, settings={"observed": ["y"]})
    data = {"y": np.ma.masked_invalid([[1.0, 2.0], [np.nan, 0.5]])}
    tree = posterior.to_arviz(model, data)
    assert tree["unconstrained_posterior"]["p"].sizes == {"chain": 2, "draw": 5, "side": 2}
    assert tree["unconstrained_posterior"]["y"].shape == tree["posterior"]["y"].shape == (2, 5, 1)
    assert tree["log_prior"]["p"].shape == (2, 5) and set(tree["log_prior"].data_vars) == {"p"}
    assert tree["observed_data"]["y"].shape == (2, 2) and tree["posterior_predictive"]["y"].shape == (2, 5, 2, 2)


@pytest.mark.filterwarnings("ignore")
def test_loo_and_compare_of_arviz_rank_two_models(arviz_base):
    """A line whose slope is three standard deviations from 0 beats a level; loo is near the exact sum of the conjugate model."""
    arviz_stats = pytest.importorskip("arviz_stats")
    trees = {model.__name__: fitted(model).to_arviz(model, LINE) for model in (line, level)}
    rows = np.stack([np.ones(8), LINE["x"].astype(float)], 1)
    exact = 0.0
    for i in range(8):
        kept = np.delete(np.arange(8), i)
        covariance = np.linalg.inv(np.eye(2) + rows[kept].T @ rows[kept] / 0.25)
        mean = covariance @ rows[kept].T @ LINE["y"][kept] / 0.25
        exact += stats.norm.logpdf(LINE["y"][i], rows[i] @ mean, np.sqrt(0.25 + rows[i] @ covariance @ rows[i]))
    assert abs(arviz_stats.loo(trees["line"]).elpd - exact) < 0.5
    table = arviz_stats.compare(trees)
    assert list(table.index) == ["line", "level"]


@pytest.mark.filterwarnings("ignore")
def test_plots_pass_through_to_arviz(arviz_base):
    matplotlib = pytest.importorskip("matplotlib")
    try:
        pytest.importorskip("arviz_plots")
    except AttributeError:
        pytest.skip("this arviz_plots cannot be imported beside this matplotlib")
    matplotlib.use("agg")
    assert healthy().plot("trace_dist", var_names=["mu"], backend="matplotlib") is not None
    with pytest.raises(ModelError, match="arviz_plots has no plot 'trace_dst'.*Did you mean 'trace_dist'"):
        healthy().plot("trace_dst")


def test_a_missing_extra_names_the_line_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    monkeypatch.setitem(sys.modules, "arviz_plots", None)
    for call in (healthy().to_arviz, healthy().plot):
        with pytest.raises(ImportError, match=r'type: pip install "ppl-jax\[arviz\]"'):
            call()


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{r._repr_html_()}\n" for r in (example_result(), example_fit())), encoding="utf-8")
