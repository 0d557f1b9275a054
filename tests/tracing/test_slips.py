"""A dropped `yield` is found in the bytecode of a model, with its line and what was called; legal models raise no alarm."""

import functools
import inspect
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import ppl
from ppl import HalfNormal, Map, ModelWarning, Normal, Scan


def part(scale=1.0):
    return (yield Normal(0.0, scale, name="part"))


def helper(x=1):
    return x + 1


def drops_a_variable():
    x = yield Normal(0.0, 1.0, name="x")
    Normal(x, 1.0, name="y")  # dropped


def drops_a_qualified_variable():
    x = yield Normal(0.0, 1.0, name="x")
    ppl.Normal(helper(x), jnp.exp(x), name="y")  # dropped


def drops_a_variable_over_several_lines():
    yield Normal(0.0, 1.0, name="x")
    Normal(  # dropped
        0.0,
        1.0,
        name="y",
    )


def drops_a_variable_with_unpacked_arguments():
    yield Normal(0.0, 1.0, name="x")
    Normal(**{"loc": 0.0, "name": "y"})  # dropped


def drops_a_model():
    yield Normal(0.0, 1.0, name="x")
    part(2.0)  # dropped


def drops_a_scope():
    yield Normal(0.0, 1.0, name="x")
    ppl.scope("a", part())  # dropped


def drops_a_loop():
    def step(c, _):
        c = yield Normal(c, 1.0, name="x")
        return c, None

    yield Normal(0.0, 1.0, name="x")
    Scan(step, 0.0, length=3, name="s")  # dropped


def drops_inside_a_step():
    def step(c, _):
        c = yield Normal(c, 1.0, name="x")
        Normal(c, 1.0, name="y")  # dropped
        return c, None

    yield Scan(step, 0.0, length=3, name="s")


def drops_a_model_of_its_own():
    def inner():
        yield Normal(0.0, 1.0, name="inner")

    yield Normal(0.0, 1.0, name="x")
    inner()  # dropped


def drops_in_a_branch(flag=True):
    yield Normal(0.0, 1.0, name="x")
    if flag:
        HalfNormal(1.0, name="y")  # dropped


def enclosed(sub=part):
    def drops_a_model_from_outside():
        yield Normal(0.0, 1.0, name="x")
        sub()  # dropped

    return drops_a_model_from_outside


handled = ppl.scope("h", part)


def drops_a_handled_model():
    yield Normal(0.0, 1.0, name="x")
    handled()  # dropped


SLIPS = [f for n, f in list(globals().items()) if n.startswith("drops_")] + [enclosed()]


@pytest.mark.parametrize("model", SLIPS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: ppl.scope("a", m)], ids=["plain", "handled"])
def test_a_dropped_yield_is_named_with_its_line(model, wrap):
    lines, first = inspect.getsourcelines(model)
    line = first + next(i for i, text in enumerate(lines) if "# dropped" in text)
    with pytest.warns(ModelWarning) as caught:
        ppl.bind(wrap(model))
    (warning,) = caught
    assert warning.lineno == line and warning.filename == __file__
    assert str(warning.message).startswith(f"`{model.__name__}` makes ")
    assert f"on line {line} and drops it: write `yield" in str(warning.message)


def test_the_warning_says_what_to_write():
    with pytest.warns(
        ModelWarning, match=r"makes ppl.Normal\(...\) on line \d+ and drops it: write `yield ppl.Normal\("
    ):
        ppl.trace(drops_a_qualified_variable)
    with pytest.warns(ModelWarning, match=r"write `yield from part\(...\)`"):
        ppl.trace(drops_a_model)


# -- twenty models that are fine -----------------------------------------------------------------------------------------

FAMILY = {"normal": Normal}
REGISTER = []


class Holder:
    family = Normal

    def model(self, n=2):
        self.note("start")
        yield self.family(0.0, 1.0, shape=(n,), name="x")

    def note(self, text):
        REGISTER.append(text)


def yields_and_discards():
    yield Normal(0.0, 1.0, name="x")
    yield HalfNormal(1.0, name="y")


def yields_from():
    yield from part()
    yield from ppl.scope("a", part())
    yield from ppl.scope("b", ppl.do(part, part=1.0))()


def calls_functions_for_their_effects():
    x = yield Normal(0.0, 1.0, name="x")
    REGISTER.append(Normal(0.0, 1.0))
    helper(x)
    print(end="")
    REGISTER.append(part)
    REGISTER.clear()


def collects_variables():
    laws = [Normal(float(i), 1.0, name=f"x{i}") for i in range(2)]
    values = []
    for law in laws:
        values.append((yield law))
    return values


def keeps_variables():
    law = Normal(0.0, 1.0, name="x")
    x = yield law
    spare = Normal(x, 1.0)
    yield Normal(spare.loc, 1.0, name="y")


def uses_methods_of_variables():
    x = yield Normal(0.0, 1.0, name="x")
    Normal(0.0, 1.0).log_prob(x)
    Normal(0.0, 1.0, name="a").replace(name="b")


def hides_a_name(Normal=helper):
    Normal(1.0)
    yield ppl.Normal(0.0, 1.0, name="x")


def reads_a_table():
    FAMILY["normal"](0.0, 1.0)
    yield FAMILY["normal"](0.0, 1.0, name="x")


def loops_in_python():
    for i in range(2):
        yield Normal(0.0, 1.0, name=f"x{i}")
    while False:
        yield Normal(0.0, 1.0, name="never")


def tries():
    try:
        yield Normal(0.0, 1.0, name="x")
    finally:
        REGISTER.clear()


def asserts(n=2):
    assert Normal(0.0, 1.0, shape=(n,)).shape == (2,)
    yield Normal(0.0, 1.0, shape=(n,), name="x")


def maps():
    def group(x):
        b = yield Normal(0.0, 1.0, name="b")
        return b * x

    out = yield Map(group, jnp.ones(2), name="g")
    yield Map(group, out, name="h")


def scans():
    def step(c, _):
        c = yield Normal(c, 1.0, name="x")
        yield Normal(c, 1.0, name="y")
        return c, None

    yield Scan(step, 0.0, length=2, name="s")


def returns_a_value():
    return (yield Normal(0.0, 1.0, name="x"))


def comprehends():
    x = yield Normal(0.0, 1.0, name="x")
    return {i: helper(x) for i in range(2)}, [helper(i) for i in range(3)], (helper(i) for i in range(3))


def has_a_local_function():
    def square(x):
        return x**2

    x = yield Normal(0.0, 1.0, name="x")
    square(x)
    return square(x)


def passes_models():
    run = functools.partial(part, scale=2.0)
    yield from run()


def walrus():
    yield Normal((x := (yield Normal(0.0, 1.0, name="x"))), 1.0, name="y")
    return x


def matches(kind="a"):
    match kind:
        case "a":
            yield Normal(0.0, 1.0, name="x")
        case _:
            yield HalfNormal(1.0, name="x")


def unpacks():
    a, *rest = yield Normal(0.0, 1.0, shape=(3,), name="x")
    np.asarray([1.0]).sum()
    yield Normal(a, 1.0, name="y")


LEGAL = [
    f
    for f in list(globals().values())
    if inspect.isgeneratorfunction(f) and f.__module__ == __name__ and f not in SLIPS and f is not enclosed
] + [Holder().model, enclosed(helper), functools.partial(part, 2.0), lambda: (yield Normal(0.0, 1.0, name="x"))]


@pytest.mark.parametrize("model", LEGAL, ids=lambda f: getattr(f, "__name__", "partial"))
def test_legal_models_raise_no_alarm(model):
    assert len(LEGAL) > 20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ppl.bind(model).latents
