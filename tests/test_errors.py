"""The texts of errors: what happened with the numbers, where by name, and the next move; at the user's own line.

The texts are in golden/errors.txt. `python tests/test_errors.py` writes that file anew, to be read before it is committed.
"""

import inspect
import re
import traceback
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import ppl
from ppl import Deterministic, HalfNormal, Map, Normal, Poisson, Scan
from ppl.tracing.problems import first_problem

GOLDEN = Path(__file__).parent / "golden" / "errors.txt"
CASES = {}
SIGMA = np.full(8, 10.0, np.float32)


def mistake(function):
    """Note a mistake: a function that makes it. Where a line is marked `# here`, the traceback must end at it."""
    CASES[function.__name__] = function
    return function


def schools(sigma):
    mu = yield Normal(0.0, 5.0, name="mu")
    tau = yield HalfNormal(5.0, name="tau")
    theta = yield Normal(mu, tau, shape=sigma.shape, name="theta")
    yield Normal(theta, sigma, name="y")  # here


def bind(model, **data):
    return ppl.log_density(model, data)


# -- shapes and names ----------------------------------------------------------------------------------------------------


@mistake
def a_column_given_for_a_vector():
    bind(schools, sigma=SIGMA, y=np.zeros((8, 1)))


@mistake
def too_few_values():
    bind(schools, sigma=SIGMA, y=np.zeros(7))


@mistake
def another_spelling():
    ppl.log_density(schools, {"sigma": SIGMA, "Y": np.zeros(8)})


@mistake
def an_argument_left_out():
    ppl.log_density(schools, {"sgma": SIGMA})


@mistake
def no_name():
    def model():
        mu = yield Normal(0.0, 1.0)  # here
        return mu

    bind(model)


@mistake
def one_name_twice():
    def model():
        yield Normal(0.0, 1.0, name="x")
        yield Normal(0.0, 1.0, name="x")  # here

    bind(model)


@mistake
def parameters_of_two_lengths():
    def model():
        yield Normal(jnp.zeros(3), jnp.ones(4), name="x")  # here

    bind(model)


@mistake
def parameters_against_the_shape():
    def model():
        yield Normal(jnp.zeros(3), 1.0, shape=(4,), name="x")  # here

    bind(model)


@mistake
def a_shape_that_is_not_known():
    def model(n):
        yield Normal(0.0, 1.0, shape=(n,), name="x")  # here

    bind(model, n=jnp.asarray(3))


@mistake
def a_negative_scale():
    def model():
        yield Normal(0.0, -1.5, name="x")  # here

    bind(model)


@mistake
def a_parameter_that_is_text():
    def model():
        yield Normal("zero", 1.0, name="x")  # here

    bind(model)


# -- yield ---------------------------------------------------------------------------------------------------------------


@mistake
def a_parameter_that_the_family_does_not_have():
    def model():
        yield Normal(0.0, sigma=1.0, name="x")  # here

    bind(model)


@mistake
def a_parameter_left_out():
    def model():
        yield ppl.Gamma(rate=2.0, name="x")  # here

    bind(model)


@mistake
def a_shape_by_position():
    def model():
        yield Normal(0.0, 1.0, (3,), name="x")  # here

    bind(model)


@mistake
def start_values_that_are_no_mapping():
    ppl.infer.nuts(schools, {"sigma": SIGMA}, init=3.0)


@mistake
def an_objective_that_is_text():
    ppl.infer.vi(schools, ppl.infer.mean_field, {"sigma": SIGMA}, objective="elbo")


@mistake
def a_variable_used_as_a_number():
    def model():
        mu = Normal(0.0, 1.0, name="mu")
        yield Normal(mu + 1.0, 1.0, name="y")  # here

    bind(model)


@mistake
def a_variable_used_as_a_parameter():
    def model():
        mu = Normal(0.0, 1.0, name="mu")
        yield Normal(mu, 1.0, name="y")  # here

    bind(model)


@mistake
def a_variable_given_to_a_function_of_jax():
    def model():
        mu = Normal(0.0, 1.0, name="mu")
        yield Normal(jnp.exp(mu), 1.0, name="y")  # here

    bind(model)


def part():
    return (yield Normal(0.0, 1.0, name="part"))


@mistake
def a_model_used_as_a_parameter():
    def model():
        yield Normal(part(), 1.0, name="y")  # here

    bind(model)


@mistake
def a_model_yielded():
    def model():
        yield part()  # here

    bind(model)


@mistake
def a_number_yielded():
    def model():
        x = yield Normal(0.0, 1.0, name="x")
        yield 2 * x  # here

    bind(model)


@mistake
def nothing_yielded():
    def model():
        yield  # here

    bind(model)


@mistake
def a_variable_returned():
    def model():
        yield Normal(0.0, 1.0, name="x")
        return Normal(0.0, 1.0, name="y")

    bind(model)


@mistake
def a_model_without_yield():
    def model():
        return 3.0

    bind(model)


@mistake
def an_observation_whose_yield_is_missing():
    def model():
        x = yield Normal(0.0, 1.0, name="x")
        Normal(x, 1.0, name="count")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ppl.ModelWarning)
        bind(model, count=1.0)


# -- data ----------------------------------------------------------------------------------------------------------------


@mistake
def nan_in_observations():
    bind(schools, sigma=SIGMA, y=np.array([1.0, np.nan, 2.0, np.nan, 3.0, 4.0, 5.0, 6.0]))


@mistake
def text_in_data():
    bind(schools, sigma=SIGMA, y=np.array(["a", "b"]))


@mistake
def objects_in_data():
    bind(schools, sigma=SIGMA, y=[{}, 1.0])


@mistake
def integers_too_large():
    bind(schools, sigma=np.array([2**40]))


@mistake
def data_that_is_no_mapping():
    ppl.log_density(schools, [1.0, 2.0])


@mistake
def a_masked_argument():
    bind(schools, sigma=np.ma.masked_less(SIGMA, 3.0))


@mistake
def missing_counts():
    def model():
        yield Poisson(2.0, shape=(2,), name="k")

    bind(model, k=np.ma.masked_array([1, 2], [True, False]))


@mistake
def a_derived_variable_observed():
    def model():
        x = yield Normal(0.0, 1.0, name="x")
        yield Deterministic(2 * x, name="twice")

    bind(model, twice=1.0)


@mistake
def observed_twice():
    def model():
        yield Normal(0.0, 1.0, name="x", value=1.0)  # here

    bind(model, x=2.0)


@mistake
def a_discrete_latent_variable():
    def model():
        yield Poisson(2.0, name="k")

    bind(model)


@mistake
def a_value_left_out():
    ppl.log_joint(schools, {"mu": 0.0, "tua": 1.0}, {"sigma": SIGMA, "y": SIGMA})


# -- handlers ------------------------------------------------------------------------------------------------------------


@mistake
def a_handler_about_another_name():
    bind(ppl.noncentered(schools, "theta_"), sigma=SIGMA)


@mistake
def noncentered_without_location():
    def model():
        yield HalfNormal(1.0, name="tau")
        yield ppl.Beta(1.0, 2.0, name="p")  # here

    bind(ppl.noncentered(model, "p"))


@mistake
def a_mask_of_numbers():
    ppl.trace(ppl.mask(schools, y=np.ones(8)), {"sigma": SIGMA})


@mistake
def a_weight_of_another_shape():
    ppl.trace(ppl.reweight(schools, y=np.ones(7)), {"sigma": SIGMA})


@mistake
def a_sharding_without_devices():
    def model():
        yield Normal(0.0, 1.0, shape=(8,), name="x")  # here

    bind(ppl.shard(model, x=P("rows")))


@mistake
def a_length_that_devices_do_not_divide():
    def model():
        yield Normal(0.0, 1.0, shape=(401,), name="x")  # here

    mesh = jax.make_mesh((4,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])
    with jax.set_mesh(mesh):
        bind(ppl.shard(model, x=P("rows")))


# -- loops ---------------------------------------------------------------------------------------------------------------


def level(c, _):
    c = yield Normal(c, 1.0, name="x")
    return c, None


@mistake
def steps_that_do_not_fit():
    def model():
        yield Scan(level, 0.0, length=4, name="path")  # here

    bind(model, **{"path/x": np.zeros(5)})


@mistake
def a_carry_that_starts_as_an_integer():
    def model():
        yield Scan(level, 0, length=4, name="path")  # here

    bind(model)


@mistake
def a_carry_that_changes_shape():
    def step(c, _):
        x = yield Normal(0.0, 1.0, shape=(2,), name="x")
        return x, None

    def model():
        yield Scan(step, 0.0, length=4, name="path")  # here

    bind(model)


@mistake
def a_step_that_returns_no_pair():
    def step(c, _):
        c = yield Normal(c, 1.0, name="x")
        return c

    def model():
        yield Scan(step, 0.0, length=4, name="path")  # here

    bind(model)


@mistake
def a_step_without_yield():
    def step(c, _):
        return c, None

    def model():
        yield Scan(step, 0.0, length=4, name="path")  # here

    bind(model)


@mistake
def a_loop_without_length():
    def model():
        yield Scan(level, 0.0, name="path")  # here

    bind(model)


@mistake
def a_length_and_other_steps():
    def model():
        yield Scan(level, 0.0, jnp.zeros(3), length=4, name="path")  # here

    bind(model)


@mistake
def a_group_with_two_arguments():
    def model():
        yield Map(level, jnp.zeros(3), name="g")  # here

    bind(model)


# -- starts --------------------------------------------------------------------------------------------------------------


@mistake
def a_rate_that_may_be_negative():
    def model(x):
        b = yield Normal(0.0, 1.0, name="b")
        yield Poisson(jnp.stack([b, -x * b]), name="count")

    bound = bind(model, x=0.31, count=np.array([1, 2]))
    problem = first_problem(model, *bound.structure.given(bound.arrays, free={"b": jnp.asarray(1.0)}))
    raise ppl.StartError(f"First non-finite term: {problem}")


@mistake
def a_value_outside_its_support():
    def model():
        rate = yield HalfNormal(1.0, name="rate")
        yield Poisson(rate, shape=(2,), name="count")

    bound = bind(model, count=np.array([1, -1]))
    problem = first_problem(model, *bound.structure.given(bound.arrays, free={"rate": jnp.asarray(0.0)}))
    raise ppl.StartError(f"First non-finite term: {problem}")


ERRORS = (ppl.ModelError, ppl.DataError, ppl.StartError)


# -- meshes --------------------------------------------------------------------------------------------------------------


def on_mesh(sharding, rows=8, chains=4, **more):
    mesh = jax.make_mesh((2, 4), ("chains", "rows"))
    data = {"sigma": SIGMA[:rows], "y": SIGMA[:rows]}
    ppl.infer.hmc(schools, data, mesh=mesh, sharding=sharding, chains=chains, progress=False, **more)


@mistake
def an_unknown_name_in_sharding():
    on_mesh({"thet": P("rows")})


@mistake
def an_unknown_axis_in_sharding():
    on_mesh({"theta": P("row")})


@mistake
def a_spec_over_chains():
    on_mesh({"theta": P("chains")})


@mistake
def a_string_for_a_spec():
    on_mesh({"theta": "rows"})


@mistake
def rows_that_the_devices_do_not_divide():
    on_mesh({"sigma": P("rows")}, rows=7)


@mistake
def a_latent_that_the_devices_do_not_divide():
    on_mesh({"theta": P("rows")}, rows=7)


@mistake
def chains_that_the_groups_do_not_divide():
    on_mesh({"theta": P("rows")}, chains=3)


@mistake
def sharding_without_a_mesh():
    ppl.infer.nuts(schools, {"sigma": SIGMA}, sharding={"sigma": P("rows")})


@mistake
def a_dense_metric_for_a_divided_latent():
    on_mesh({"theta": P("rows")}, metric="dense")


@mistake
def a_plan_without_a_mesh():
    ppl.plan(schools, {"sigma": SIGMA})


def text_of(name):
    """Return `(the error's text in one line, the traceback's last line)` for one mistake."""
    try:
        CASES[name]()
    except ERRORS as e:
        last = [f for f in traceback.extract_tb(e.__traceback__)][-1]
        path = re.sub(r"/\S*/(?=\w+\.py)", "", str(e))
        return f"{type(e).__name__}: {re.sub(r' line [0-9]+', ' line N', path)}", last
    raise AssertionError(f"{name} went unnoticed")


def golden():
    """Return the texts by name."""
    blocks = GOLDEN.read_text().strip().split("\n\n")
    return dict(block.split("\n", 1) for block in blocks)


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_each_mistake(name):
    text, _ = text_of(name)
    assert text == golden()[name]


def at_line(name):
    return "# here" in inspect.getsource(CASES[name]) or name in ("a_column_given_for_a_vector", "too_few_values")


@pytest.mark.parametrize("name", [n for n in CASES if at_line(n)])
def test_the_traceback_ends_at_the_line_of_the_user(name):
    _, last = text_of(name)
    assert last.line.endswith("# here"), f"{last.filename}:{last.lineno}: {last.line}"


def test_every_text_says_which_and_what_next_and_blames_nobody():
    for name, text in golden().items():
        assert name in CASES, "the file has a text that nothing raises"
        assert not re.search(r"\b(invalid|please|check)\b", text, re.IGNORECASE), name
        assert re.search(r"'\w|`\w|\[['\"]|data|yielded", text), f"{name} names nothing"
        assert len(text) < 450, name


# -- notes on errors that are not ours -----------------------------------------------------------------------------------


def note_of(model, error, **data):
    with pytest.raises(error) as caught:
        bind(model, **data)
    notes = [n for n in caught.value.__notes__ if n.startswith("ppl:")]
    assert len(notes) == 1
    return notes[0], str(caught.traceback[-1].statement).strip()


def test_a_branch_on_a_value_has_a_note():
    def model(x):
        b = yield Normal(0.0, 1.0, name="b")
        if b > 0:  # here
            yield Normal(0.0, 1.0, name="c")

    note, line = note_of(model, jax.errors.TracerBoolConversionError, x=1.0)
    assert "jnp.where in place of a branch" in note and "Python bool, int or string in `data`" in note
    assert line.endswith("# here")


def test_a_branch_inside_a_loop_has_one_note():
    def step(c, x):
        c = yield Normal(c, 1.0, name="c")
        return (c if x > 0 else -c), None

    def model():
        yield Scan(step, 0.0, jnp.ones(3), name="s")

    note, _ = note_of(model, jax.errors.TracerBoolConversionError)
    assert "jnp.where" in note


@pytest.mark.parametrize("use", [np.exp, lambda n: range(n), float], ids=["numpy", "range", "float"])
def test_python_and_numpy_on_a_value_have_a_note(use):
    def model(n):
        use(n)
        yield Normal(0.0, 1.0, name="x")

    note, _ = note_of(model, (TypeError, jax.errors.ConcretizationTypeError), n=np.asarray(3))
    assert "values are unknown when the model is compiled" in note


@pytest.mark.parametrize("use", [lambda m: m + 1.0, lambda m: m[0]], ids=["sum", "index"])
def test_a_model_that_was_called_and_not_run_has_a_note(use):
    def model():
        yield Normal(use(part()), 1.0, name="x")

    note, _ = note_of(model, TypeError)
    assert "`x = yield from ...`" in note


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("\n\n".join(f"{name}\n{text_of(name)[0]}" for name in CASES) + "\n")
