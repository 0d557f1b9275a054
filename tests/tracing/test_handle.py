"""The loop that runs models: what it passes on, what it answers, what it refuses, and that it holds nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl
from ppl import Map, ModelError, Normal, Scan


def run(program, answer):
    """Run a generator to its end by hand: answer each request with `answer(request)`."""
    value, requests = None, []
    while True:
        try:
            request = program.send(value)
        except StopIteration as stop:
            return stop.value, requests
        requests.append(request)
        value = answer(request)


def two():
    a = yield Normal(0.0, 1.0, name="a")
    b = yield Normal(a, 1.0, name="b")
    return a, b


def test_what_is_passed_on_is_answered_outside_and_what_is_returned_is_answered_here():
    def respond(rv):
        if rv.name == "a":
            return 5.0
        return (yield rv)

    returned, requests = run(ppl.handle(two(), respond), lambda rv: rv.loc + 1.0)
    assert [r.name for r in requests] == ["b"]
    assert returned == (5.0, 6.0)


def test_a_handler_may_ask_for_other_variables_before_it_answers():
    def respond(rv):
        extra = yield rv.replace(name=f"{rv.name}_extra")
        value = yield rv
        return value + extra

    returned, requests = run(ppl.handle(two(), respond), lambda rv: jnp.asarray(1.0))
    assert [r.name for r in requests] == ["a_extra", "a", "b_extra", "b"]
    assert returned == (2.0, 2.0)


def test_a_handler_may_catch_what_is_wrong_outside():
    def respond(rv):
        try:
            return (yield rv)
        except ModelError:
            return (yield rv.replace(name="b", value=0.0))

    def twice():
        yield Normal(0.0, 1.0, name="a")
        yield Normal(0.0, 1.0, name="a")

    assert list(ppl.trace(ppl.handler(twice, respond))) == ["a", "b"]


def test_loops_pass_outward_with_the_handlers_noted_on_them():
    def model():
        def group(_):
            yield Normal(0.0, 1.0, name="x")

        yield Map(group, length=2, name="g")

    def respond(rv):
        raise AssertionError("a handler never sees a loop")
        yield rv

    _, (loop,) = run(ppl.handle(ppl.handle(model(), respond, "in"), respond, "out"), lambda loop: None)
    assert loop.name == "out/in/g"
    assert [prefix for _, prefix, _ in loop.wrap] == ["g", "in", "out"]


def test_answers_have_exactly_the_shape_of_the_variable():
    def respond(rv):
        return jnp.zeros(2)
        yield

    with pytest.raises(ModelError, match=r"'a' \(Normal\) has shape \(\) but was given a value of shape \(2,\)"):
        run(ppl.handle(two(), respond), lambda rv: 0.0)


def test_an_answer_that_is_a_random_variable_is_refused():
    def respond(rv):
        return rv
        yield

    with pytest.raises(ModelError, match="this is the random variable 'a', not its value"):
        run(ppl.handle(two(), respond), lambda rv: 0.0)


def test_integers_answer_real_variables_as_floats():
    assert ppl.trace(ppl.do(two, a=1)).returned[0].dtype == jnp.float32


def test_what_a_model_returns_comes_through_every_handler():
    def respond(rv):
        return (yield rv)

    model = two
    for _ in range(50):
        model = ppl.handler(model, respond)
    returned = ppl.trace(model, {"a": 1.0, "b": 2.0}).returned
    assert returned == (1.0, 2.0)


def test_a_closed_model_leaves_nothing_running():
    ended = []

    def model():
        try:
            yield Normal(0.0, 1.0, name="x")
        finally:
            ended.append(True)

    program = ppl.handler(model, lambda rv: (yield rv))()
    next(program)
    program.close()
    del program
    assert ended == [True]


def test_errors_of_the_model_itself_pass_unchanged():
    def model():
        yield Normal(0.0, 1.0, name="x")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        ppl.trace(ppl.scope("a", ppl.noncentered(model, "x")))
    assert str(caught.traceback[-1].statement).strip() == 'raise KeyError("mine")'


@pytest.mark.parametrize("depth", [0, 3])
def test_errors_end_at_the_line_of_the_model_through_any_number_of_handlers(depth):
    def model():
        yield Normal(0.0, 1.0, name="x")  # here

    for i in range(depth):
        model = ppl.scope(f"s{i}", model)
    name = "".join(f"s{i}/" for i in reversed(range(depth))) + "x"
    with pytest.raises(ModelError, match="has shape") as caught:
        ppl.trace(model, {name: np.zeros(2)})
    assert str(caught.traceback[-1].statement).strip().endswith("# here")


def test_loops_are_frozen_and_have_no_state():
    loop = Scan(lambda c, x: (yield), 0.0, length=2, name="s")
    with pytest.raises(AttributeError):
        loop.name = "t"
    noted = loop.under(lambda rv: (yield rv), "p")
    assert loop.name == "s" and noted.name == "p/s" and len(loop.wrap) == 1 and len(noted.wrap) == 2


def test_handlers_work_under_transformations():
    def log_joint(shift):
        return ppl.log_joint(ppl.do(two, a=shift), {"b": jnp.asarray(0.0)})

    np.testing.assert_allclose(jax.grad(log_joint)(2.0), -2.0, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(log_joint)(jnp.arange(3.0)), [log_joint(s) for s in range(3)], rtol=1e-6)
