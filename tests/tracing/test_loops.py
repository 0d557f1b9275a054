"""Loops equal the models that they abbreviate, whatever is given to them, and cost the same whatever their length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl
from ppl import HalfNormal, Map, ModelError, Normal, Scan, Uniform


def local_level(T, horizon=0):
    s = yield HalfNormal(1.0, name="s")
    r = yield HalfNormal(1.0, name="r")

    def step(x, _):
        x = yield Normal(x, s, name="x")
        yield Normal(x, r, name="y")
        return x, 2 * x

    last, out = yield Scan(step, 0.0, length=T, name="path")
    yield Scan(step, last, length=horizon, name="future")
    return last, out


def recursive(X):
    """The carry depends on the carry before it."""
    a = yield Normal(0.0, 1.0, name="a")

    def step(carry, x):
        m, v = carry
        e = yield Normal(0.0, 0.5, name="e")
        m = a * m + e + x["u"]
        yield Normal(m, v, name="y")
        return (m, v * 1.1), {"m": m}

    (last, _), out = yield Scan(step, (1.0, jnp.asarray(0.3)), {"u": X}, name="walk")
    return last, out["m"]


def narrowing(T):
    """Supports whose ends depend on the carry; the order of names is not the order of the program."""

    def step(low, _):
        x = yield Uniform(low, 3.0, name="x")
        yield Normal(x, 1.0, shape=(2,), name="b")
        return x, None

    yield Scan(step, -1.0, length=T, name="n")


def groups(X):
    tau = yield HalfNormal(1.0, name="tau")

    def group(x):
        b = yield Normal(0.0, tau, name="b")
        yield Normal(b * x, 1.0, name="y")
        return b + x

    return (yield Map(group, X, name="g"))


def map_of_scan(X):
    def series(x):
        m = yield Normal(0.0, 1.0, name="m")

        def step(carry, u):
            z = yield Normal(carry + m, 0.5, name="z")
            yield Normal(z * u, 1.0, name="y")
            return z, None

        yield Scan(step, 0.0, x, name="in")

    yield Map(series, X, name="out")


def scan_of_map(X):
    def step(carry, x):
        def cell(u):
            c = yield Normal(carry, 1.0, name="c")
            yield Normal(c * u, 1.0, name="y")
            return c

        cells = yield Map(cell, x, name="in")
        return cells.mean(), cells

    yield Scan(step, 0.5, X, name="out")


def scan_of_scan(X):
    def outer(carry, x):
        def inner(carry, u):
            z = yield Normal(0.5 * carry, 1.0, name="z")
            yield Normal(z + u, 1.0, name="y")
            return z, z

        carry, zs = yield Scan(inner, carry, x, name="in")
        return carry, zs

    yield Scan(outer, 0.2, X, name="out")


def scoped(T):
    yield from ppl.scope("a", groups(jnp.ones((2, 3))))

    def step(c, _):
        w = yield from ppl.scope("sub", part(c))
        return w, None

    yield Scan(step, 0.0, length=T, name="s")


def part(c):
    w = yield Normal(c, 1.0, name="w")
    yield Normal(w, 1.0, name="y")
    return w


X = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(3, 2)
CASES = [
    (local_level, {"T": 3}, "path/y"),
    (recursive, {"X": X[:, 0]}, "walk/y"),
    (narrowing, {"T": 3}, "n/b"),
    (groups, {"X": X}, "g/y"),
    (map_of_scan, {"X": X}, "out/in/y"),
    (scan_of_map, {"X": X}, "out/in/y"),
    (scan_of_scan, {"X": X}, "out/in/y"),
    (scoped, {"T": 2}, "s/sub/y"),
]
NONCENTERED = [
    (ppl.noncentered(local_level, "path/x"), {"T": 3}, "path/y"),
    (ppl.noncentered(map_of_scan, "out/in/z", "out/m"), {"X": X}, "out/in/y"),
]
IDS = [m.__name__ for m, *_ in CASES] + ["noncentered level", "noncentered series"]


# -- a second implementation: loops written out in Python, each variable under its own name -------------------------------


def write_out(program, path="", index=()):
    """Run a model with its loops written out; `x` at steps (2, 0) of a loop `a/b` is called `a/b/x@2,0`."""
    value = None
    while True:
        try:
            request = program.send(value)
        except StopIteration as stop:
            return stop.value
        if isinstance(request, Scan):
            carry, out = jax.tree.map(jnp.asarray, request.init), []
            for t in range(request.steps):
                x = jax.tree.map(lambda a, t=t: a[t], request.xs)
                inside = request.step(carry, x)
                carry, o = yield from write_out(inside, f"{path}{request.name}/", (*index, t))
                out.append(o)
            value = carry, jax.tree.map(lambda *o: jnp.stack(o), *out) if out else None
        elif isinstance(request, Map):
            out = []
            for t in range(request.steps):
                inside = request.group(jax.tree.map(lambda a, t=t: a[t], request.xs))
                out.append((yield from write_out(inside, f"{path}{request.name}/", (*index, t))))
            value = jax.tree.map(lambda *o: jnp.stack(o), *out) if out[0] is not None else None
        else:
            at = f"@{','.join(map(str, index))}" if index else ""
            value = yield request.replace(name=f"{path}{request.name}{at}")


def written_out(model, names=()):
    """Return a model with its loops written out and the variables `names` noncentered in it."""
    if isinstance(model, type(ppl.scope("a", local_level))):
        return written_out(model.model, NAMES[model.__name__])

    def model_out(**data):
        return write_out(model(**data))

    model_out.__signature__ = __import__("inspect").signature(model)

    def respond(rv):
        stem, at, index = rv.name.partition("@")
        if stem not in names:
            return (yield rv)
        base, place = rv.noncentered()
        return place((yield base.replace(name=f"{stem}_base{at}{index}")))

    return ppl.handler(model_out, respond)


NAMES = {"local_level": ("path/x",), "map_of_scan": ("out/in/z", "out/m")}


def entries(values, lengths):
    """Return stacked values entry by entry, under the names of `write_out`."""
    out = {}
    for name, value in values.items():
        for index in np.ndindex(*lengths.get(name, ())):
            at = f"@{','.join(map(str, index))}" if index else ""
            out[f"{name}{at}"] = value[index] if index else value
    return out


def loop_axes(model, arguments):
    """Return the lengths of the loops around each variable, as `rv.loops` tells a handler."""
    lengths = {}

    def respond(rv):
        lengths[rv.name] = tuple(length for _, length in rv.loops)
        value = yield rv
        return value

    jax.eval_shape(lambda: ppl.sample(ppl.handler(model, respond), 0, arguments))
    return lengths


@pytest.mark.parametrize("model, arguments, observed", CASES + NONCENTERED, ids=IDS)
def test_a_loop_equals_the_model_written_out(model, arguments, observed, seed):
    """Value and gradient, with and without observations, to the rounding of single precision."""
    lengths = loop_axes(model, arguments)
    shape = jax.eval_shape(lambda: ppl.sample(model, 0, arguments))[observed].shape
    y = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    loop = ppl.log_density(model, {**arguments, observed: y})
    plain = ppl.log_density(written_out(model), {**arguments, **entries({observed: y}, lengths)})
    position = {n: 0.3 * jax.random.normal(jax.random.key(seed), a.free_shape) for n, a in loop.latents.items()}
    assert set(entries(position, lengths)) == set(plain.latents)

    @jax.jit
    def both(p):
        return jax.value_and_grad(loop)(p), jax.value_and_grad(lambda p: plain(entries(p, lengths)))(p)

    (value, gradient), (expected, expected_gradient) = both(position)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for name in gradient:
        np.testing.assert_allclose(gradient[name], expected_gradient[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    "model, arguments, observed", CASES[:2] + CASES[3:6], ids=[m.__name__ for m, *_ in CASES[:2] + CASES[3:6]]
)
def test_a_loop_returns_what_the_written_out_model_returns(model, arguments, observed, seed):
    trace = ppl.trace(model, arguments, key=seed)
    lengths = loop_axes(model, arguments)
    values = {n: s.value for n, s in trace.items() if s.role == "latent"}
    again = ppl.trace(written_out(model), arguments, values=entries(values, lengths))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), trace.returned, again.returned)
    np.testing.assert_allclose(trace.log_joint, again.log_joint, rtol=1e-5)
    assert trace[observed].log_prob.shape == trace[observed].value.shape


def test_variables_come_in_the_order_of_the_program():
    assert list(ppl.log_density(narrowing, {"T": 2}).latents) == ["n/x", "n/b"]


def test_a_longer_loop_repeats_the_draws_of_the_shorter_one(seed):
    short = ppl.sample(local_level, seed, {"T": 3})
    long = ppl.sample(local_level, seed, {"T": 5})
    for name in ("path/x", "path/y"):
        np.testing.assert_array_equal(short[name], long[name][:3])
        assert len(set(np.asarray(long[name]).tolist())) == 5
    few, many = ppl.sample(groups, seed, {"X": X[:2]}), ppl.sample(groups, seed, {"X": X})
    np.testing.assert_array_equal(few["g/y"], many["g/y"][:2])


def test_missing_steps_become_latent():
    y = np.ma.masked_invalid([1.0, np.nan, 0.5, np.nan])
    density = ppl.log_density(local_level, {"T": 4, "path/y": y})
    assert density.latents["path/y"].shape == (2,) and density.latents["path/y"].missing == 2
    position = {"s": jnp.zeros(()), "r": jnp.zeros(()), "path/x": jnp.arange(4.0), "path/y": jnp.array([3.0, 4.0])}
    whole = ppl.log_density(local_level, {"T": 4, "path/y": np.array([1.0, 3.0, 0.5, 4.0])})
    rest = {n: v for n, v in position.items() if n != "path/y"}
    np.testing.assert_allclose(density(position), whole(rest), rtol=1e-6)
    np.testing.assert_array_equal(density.constrain(position)["path/y"], [3.0, 4.0])
    values = {"s": 1.0, "r": 1.0, "path/x": np.arange(4.0)}
    np.testing.assert_allclose(
        ppl.log_joint(local_level, {**values, "path/y": [3.0, 4.0]}, {"T": 4, "path/y": y}),
        ppl.log_joint(local_level, values, {"T": 4, "path/y": [1.0, 3.0, 0.5, 4.0]}),
        rtol=1e-6,
    )


def test_a_value_shorter_than_the_loop_gives_its_first_steps_and_the_rest_is_drawn(seed):
    given = np.array([0.1, 0.2], np.float32)
    drawn = ppl.sample(local_level, seed, {"T": 4, "path/x": given})
    np.testing.assert_array_equal(drawn["path/x"][:2], given)
    free = ppl.sample(local_level, seed, {"T": 4})
    assert (drawn["path/x"][2:] != free["path/x"][2:]).all(), "the rest goes on from what was given"
    np.testing.assert_allclose(np.diff(drawn["path/x"])[2], np.diff(free["path/x"])[2], rtol=1e-3)
    with pytest.raises(ModelError, match=r"'path/y' runs over the 4 steps of 'path', but was given 2 steps"):
        ppl.log_density(local_level, {"T": 4, "path/y": given})({"s": 0.0, "r": 0.0, "path/x": jnp.zeros(4)})


def test_short_values_in_nested_loops(seed):
    given = np.ones((3, 1), np.float32)
    drawn = ppl.sample(scan_of_scan, seed, {"X": X, "out/in/z": given})
    np.testing.assert_array_equal(drawn["out/in/z"][:, 0], 1.0)
    fewer = ppl.sample(scan_of_scan, seed, {"X": X, "out/in/z": np.ones((2, 2), np.float32)})
    np.testing.assert_array_equal(fewer["out/in/z"][:2], 1.0)
    assert (fewer["out/in/z"][2] != 1.0).all()


def test_a_second_loop_forecasts_from_the_end_of_the_first(seed):
    assert list(ppl.log_density(local_level, {"T": 3}).latents) == ["s", "r", "path/x", "path/y"]
    path = np.array([0.0, 1.0, 2.0], np.float32)
    values = {"s": 1e-6, "r": 1.0, "path/x": path}
    trace = ppl.trace(local_level, {"T": 3, "horizon": 2}, key=seed, values=values)
    np.testing.assert_allclose(trace["future/x"].value, 2.0, atol=1e-4)


def test_loops_without_steps_have_no_variables_and_return_empty_arrays():
    def model(n):
        def step(c, x):
            z = yield Normal(c, 1.0, shape=(2,), name="z")
            return c, z + x

        carry, out = yield Scan(step, 0.5, jnp.zeros(n), name="s")

        def group(x):
            return (yield Normal(x, 1.0, name="z"))

        return carry, out, (yield Map(group, jnp.zeros(n), name="g"))

    trace = ppl.trace(model, {"n": 0})
    assert list(trace) == [] and trace.returned[0] == 0.5
    assert trace.returned[1].shape == (0, 2) and trace.returned[2].shape == (0,)
    assert float(ppl.log_density(model, {"n": 0})({})) == 0.0


def test_a_loop_whose_carry_is_given_is_evaluated_in_parallel():
    """Detected by dependence: the program of the log density has no loop, unless the carry needs the one before it."""

    def loops(model, data):
        density = ppl.log_density(model, data)
        position = {n: jnp.zeros(a.free_shape) for n, a in density.latents.items()}
        text = str(jax.make_jaxpr(jax.grad(density))(position))
        return text.count("scan[") + text.count("while[")

    data = {"T": 5, "path/y": np.zeros(5)}
    assert loops(local_level, data) == 0
    assert loops(scan_of_scan, {"X": X}) == 0
    assert loops(ppl.noncentered(local_level, "path/x"), data) > 0
    assert loops(recursive, {"X": X[:, 0]}) > 0
    assert loops(narrowing, {"T": 3}) > 0
    assert loops(ppl.do(local_level, {"path/x": 0.0}), data) == 0


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: ppl.noncentered(m, "path/x")], ids=["parallel", "sequential"])
def test_the_program_does_not_grow_with_the_length(wrap):
    def size(T):
        density = ppl.log_density(wrap(local_level), {"T": T, "path/y": np.zeros(T)})
        position = {n: jnp.zeros(a.free_shape) for n, a in density.latents.items()}
        text = str(jax.make_jaxpr(jax.value_and_grad(density))(position))
        return text.count("\n")

    assert size(50) == size(2000)


def test_a_step_is_traced_a_fixed_number_of_times():
    calls = []

    def model(T):
        def step(x, _):
            calls.append(T)
            x = yield Normal(x, 1.0, name="x")
            return x, None

        yield Scan(step, 0.0, length=T, name="path")

    for T in (2, 200):
        density = ppl.log_density(model, {"T": T})
        jax.make_jaxpr(density)({"path/x": jnp.zeros(T)})
    assert calls.count(2) == calls.count(200) <= 6


def test_draws_inside_loops_do_not_move_when_variables_are_added(seed):
    def more(T):
        yield Normal(0.0, 1.0, name="first")
        return (yield from local_level(T))

    a, b = ppl.sample(local_level, seed, {"T": 3}), ppl.sample(more, seed, {"T": 3})
    np.testing.assert_array_equal(a["path/y"], b["path/y"])


def good_step(c, x):
    c = yield Normal(c, 1.0, name="x")
    return c, None


def no_pair(c, x):
    yield Normal(c, 1.0, name="x")
    return c


def wide(c, x):
    yield Normal(c, 1.0, name="x")
    return jnp.zeros(2), None


def floats(c, x):
    yield Normal(0.0, 1.0, name="x")
    return c + 0.5, None


def words(c, x):
    yield Normal(0.0, 1.0, name="x")
    return c, "text"


def bare(c, x):
    return c, None


def keeps(c, x):
    yield Normal(0.0, 1.0, name="x")
    return (c, c), None


LOOP_ERRORS = [
    (lambda: Scan(no_pair, 0.0, length=2, name="s"), r"'s' \(Scan\): a step returns a pair, .* but 'no_pair' returned"),
    (
        lambda: Scan(wide, 0.0, length=2, name="s"),
        r"carry starts with shape \(\), and a step returns shape \(2,\): start with",
    ),
    (
        lambda: Scan(floats, 0, length=2, name="s"),
        "carry starts as int32, and a step returns float32: start with a float",
    ),
    (
        lambda: Scan(keeps, 0.0, length=2, name="s"),
        r"carry starts as array\(\), and a step returns \(array\(\), array\(\)\)",
    ),
    (lambda: Scan(words, 0.0, length=2, name="s"), "must be arrays, but 'words' returned 'text'"),
    (lambda: Scan(bare, 0.0, length=2, name="s"), "its body 'bare' has no `yield`"),
    (lambda: Scan(good_step, "a", length=2, name="s"), "the carry must be arrays, but starts as 'a'"),
    (lambda: Scan(good_step, 0.0, name="s"), r"how many steps\? Pass xs or length="),
    (lambda: Scan(good_step, 0.0, jnp.zeros(3), length=2, name="s"), "length=2, but xs have length 3"),
    (lambda: Scan(good_step, 0.0, (jnp.zeros(3), jnp.zeros(2)), name="s"), r"xs have different lengths \[2, 3\]"),
    (
        lambda: Scan(good_step, 0.0, [1.0, 2.0], name="s"),
        "xs runs along the first axis of arrays, but holds a single number",
    ),
    (lambda: Scan(good_step, 0.0, length=-1, name="s"), "length is -1: it must be a Python int, at least 0"),
    (lambda: Scan(good_step, 0.0, length=2.0, name="s"), "length is 2.0: it must be a Python int"),
    (lambda: Scan(good_step, 0.0, length=2), "a Scan was yielded without a name"),
    (lambda: Scan(3, 0.0, length=2, name="s"), "its body is 3; it must be a generator function"),
    (
        lambda: Map(good_step, jnp.zeros(2), name="g"),
        r"its body is called as good_step\(x\): missing a required argument",
    ),
    (lambda: Map(bare, jnp.zeros(2), name="g"), "its body is called as"),
]


@pytest.mark.parametrize("make, message", LOOP_ERRORS, ids=[m[:24] for _, m in LOOP_ERRORS])
def test_slips_in_loops_are_refused_at_the_line_of_the_yield(make, message):
    def model():
        yield make()  # here

    with pytest.raises(ModelError, match=message) as caught:
        ppl.log_density(model)
    lines = [str(entry.statement).strip() for entry in caught.traceback]
    assert "yield make()  # here" in lines


def test_the_length_must_be_known():
    def model(n):
        yield Scan(good_step, 0.0, length=n, name="s")

    with pytest.raises(ModelError, match="length is an array: it must be a Python int"):
        ppl.log_density(model, {"n": jnp.asarray(3)})


def test_both_the_loop_and_the_line_inside_it_show_in_a_traceback():
    def model():
        def step(c, _):
            yield Normal(jnp.zeros(2), 1.0, shape=(3,), name="x")  # inside
            return c, None

        yield Scan(step, 0.0, length=2, name="s")  # outside

    with pytest.raises(ModelError, match=r"the parameters do not fit shape=\(3,\)") as caught:
        ppl.log_density(model)
    lines = [str(entry.statement).strip() for entry in caught.traceback]
    assert lines[-1].endswith("# inside") and any(line.endswith("# outside") for line in lines)


@pytest.mark.parametrize("value, given", [(1.0, "a single number"), (np.ones(5), "5 steps")])
def test_data_that_do_not_fit_a_loop_are_refused(value, given):
    with pytest.raises(ModelError, match=f"'path/y' runs over the 3 steps of 'path', but was given {given}"):
        ppl.log_density(local_level, {"T": 3, "path/y": value})
    with pytest.raises(ModelError, match=r"'path/y' \(Normal\) has shape \(\) at each step but was given .* \(2,\)"):
        ppl.log_density(local_level, {"T": 3, "path/y": np.ones((3, 2))})


def test_one_name_twice_in_two_loops_is_refused():
    def model():
        yield Scan(good_step, 0.0, length=2, name="s")
        yield Scan(good_step, 0.0, length=2, name="s")

    with pytest.raises(ModelError, match="two random variables are called 's/x'"):
        ppl.trace(model)


def test_groups_over_devices_need_no_gather():
    """Data and latents sharded over the groups: one sum over devices in the gradient, and nothing is gathered."""
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    x = np.linspace(-1.0, 1.0, 16, dtype=np.float32).reshape(8, 2)
    local = ppl.log_density(groups, {"X": x, "g/y": x})
    position = {"tau": jnp.asarray(0.1), "g/b": jnp.linspace(0.0, 1.0, 8)}
    expected = jax.jit(jax.value_and_grad(local))(position)
    placed = {"tau": position["tau"], "g/b": jax.device_put(position["g/b"], sharding)}
    structure, arrays = local.structure, jax.device_put(local.arrays, sharding)
    compiled = jax.jit(jax.value_and_grad(structure.log_density)).lower(placed, arrays).compile()
    text = compiled.as_text()
    assert text.count("all-gather") == 0
    assert 1 <= text.count("all-reduce(") <= 2
    value, gradient = compiled(placed, arrays)
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradient["g/b"], expected[1]["g/b"], rtol=1e-5)
    assert gradient["g/b"].sharding.spec == sharding.spec
