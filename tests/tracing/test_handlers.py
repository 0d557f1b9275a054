"""Laws of handlers: each does what it says to one variable, leaves every other alone, and works in loops unchanged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import ppl
from ppl import HalfNormal, Map, ModelError, Normal, Poisson, Scan

SIGMA = np.array([1.5, 1.0, 1.6], np.float32)
Y = np.array([2.8, 0.8, -0.3], np.float32)


def schools(sigma):
    mu = yield Normal(0.0, 5.0, name="mu")
    tau = yield HalfNormal(5.0, name="tau")
    theta = yield Normal(mu, tau, shape=sigma.shape, name="theta")
    yield Normal(theta, sigma, name="y")
    return {"effect": theta - mu}


def local_level(T):
    s = yield HalfNormal(1.0, name="s")

    def step(x, _):
        x = yield Normal(x, s, name="x")
        yield Normal(x, 0.5, name="y")
        return x, None

    yield Scan(step, 0.0, length=T, name="path")


def panel(x):
    tau = yield HalfNormal(1.0, name="tau")

    def group(x):
        b = yield Normal(0.0, tau, name="b")
        yield Normal(b * x, 1.0, name="y")

    yield Map(group, x, name="g")


DATA = {"sigma": SIGMA, "y": Y}
LATENT = {"mu": 0.3, "tau": 1.2, "theta": np.array([0.5, -0.2, 0.1], np.float32)}
PANEL = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "g/y": np.ones((3, 2), np.float32)}
MODELS = [(schools, DATA), (local_level, {"T": 4, "path/y": np.ones(4)}), (panel, PANEL)]


def jaxpr(model, data):
    density = ppl.log_density(model, data)
    position = {n: jnp.full(latent.free_shape, 0.1) for n, latent in density.latents.items()}
    return str(jax.make_jaxpr(jax.value_and_grad(density))(position))


def identity(model):
    def respond(rv):
        return (yield rv)

    return ppl.handler(model, respond)


def temper(model, power, *names):
    """What a user would write."""

    def respond(rv):
        if rv.name in names:
            rv = rv.replace(weight=power * rv.weight)
        return (yield rv)

    return ppl.handler(model, respond)


@pytest.mark.parametrize("model, data", MODELS, ids=lambda m: getattr(m, "__name__", ""))
@pytest.mark.parametrize("empty", [identity, ppl.condition, ppl.do, ppl.substitute, ppl.reweight, ppl.mask, ppl.shard])
def test_a_handler_with_nothing_to_do_leaves_the_program_unchanged(model, data, empty):
    assert jaxpr(empty(model), data) == jaxpr(model, data)


def test_do_removes_a_variable_from_the_density_and_gives_its_value_to_the_model():
    rest = {n: v for n, v in LATENT.items() if n != "mu"}
    intervened = ppl.log_joint(ppl.do(schools, mu=0.3), rest, DATA)
    whole = ppl.trace(schools, DATA, values=LATENT)
    np.testing.assert_allclose(intervened, whole.log_joint - whole["mu"].log_prob, rtol=1e-6)
    assert "mu" not in ppl.trace(ppl.do(schools, mu=0.3), DATA)


def test_condition_equals_data():
    conditioned = ppl.condition(schools, y=Y, mu=0.3)
    assert jaxpr(ppl.condition(schools, y=Y), {"sigma": SIGMA}).count("reduce_sum") == jaxpr(schools, DATA).count(
        "reduce_sum"
    )
    rest = {n: v for n, v in LATENT.items() if n != "mu"}
    np.testing.assert_allclose(
        ppl.log_joint(conditioned, rest, {"sigma": SIGMA}), ppl.log_joint(schools, LATENT, DATA), rtol=1e-6
    )
    trace = ppl.trace(conditioned, {"sigma": SIGMA})
    assert trace["mu"].role == trace["y"].role == "observed"


def test_observing_what_is_observed_inside_is_refused():
    with pytest.raises(ModelError, match="'y' .* is observed inside the model, and `data` has 'y' too"):
        ppl.trace(ppl.condition(schools, y=Y), DATA)


def test_substitute_keeps_the_role():
    trace = ppl.trace(ppl.substitute(schools, mu=0.3), DATA)
    assert trace["mu"].role == "latent" and trace["mu"].value == np.float32(0.3)
    assert trace["mu"].log_prob is not None


@pytest.mark.parametrize("model, data", MODELS, ids=lambda m: getattr(m, "__name__", ""))
def test_replay_of_a_trace_gives_its_log_joint(model, data, seed):
    trace = ppl.trace(model, data, key=seed)
    again = ppl.trace(ppl.replay(model, trace), data, key=seed + 1)
    assert again.log_joint == trace.log_joint
    values = {n: site.value for n, site in trace.items() if site.role == "latent"}
    assert ppl.trace(ppl.replay(model, values), data).log_joint == trace.log_joint


def test_block_hides_variables_and_their_density():
    trace = ppl.trace(ppl.block(schools, "mu", "tau", key=3), DATA, key=1)
    assert list(trace) == ["theta", "y"]
    again = ppl.trace(ppl.block(schools, "mu", "tau", key=3), DATA, key=2)
    assert (again["theta"].value != trace["theta"].value).all()
    mu = ppl.trace(schools, DATA, key=3)["mu"].value
    np.testing.assert_array_equal(ppl.trace(ppl.do(schools, mu=mu), DATA, key=1)["tau"].value > 0, True)
    density = ppl.log_density(ppl.block(schools, "mu", key=3), DATA)
    assert list(density.latents) == ["tau", "theta"]


def test_scopes_nest_and_rename_loops_too():
    model = ppl.scope("outer", ppl.scope("inner", local_level))
    names = list(ppl.trace(model, {"T": 2}))
    assert names == ["outer/inner/s", "outer/inner/path/x", "outer/inner/path/y"]
    observed = ppl.trace(model, {"T": 2, "outer/inner/path/y": [1.0, 2.0]})
    assert observed["outer/inner/path/y"].role == "observed"


def test_handlers_outside_a_scope_see_full_names_and_those_inside_see_short_ones():
    outside = ppl.do(ppl.scope("a", schools), {"a/mu": 1.0})
    inside = ppl.scope("a", ppl.do(schools, mu=1.0))
    assert jaxpr(outside, {"sigma": SIGMA, "a/y": Y}) == jaxpr(inside, {"sigma": SIGMA, "a/y": Y})


def test_submodels_run_under_a_scope_and_return_their_values():
    def slopes(n):
        scale = yield HalfNormal(1.0, name="scale")
        return (yield Normal(0.0, scale, shape=(n,), name="coef"))

    def model():
        a = yield from ppl.scope("a", slopes(2))
        b = yield from ppl.scope("b", slopes)(3)
        return a, b

    trace = ppl.trace(model)
    assert list(trace) == ["a/scale", "a/coef", "b/scale", "b/coef"]
    np.testing.assert_array_equal(trace.returned[0], trace["a/coef"].value)
    np.testing.assert_array_equal(trace.returned[1], trace["b/coef"].value)


def test_weights_multiply_and_a_mask_is_a_weight():
    plain = ppl.trace(schools, DATA, values=LATENT)["y"].log_prob
    keep = np.array([True, False, True])
    model = ppl.mask(ppl.reweight(ppl.reweight(schools, y=2.0), y=np.array([1.0, 1.0, 0.5])), y=keep)
    weighted = ppl.trace(model, DATA, values=LATENT)["y"].log_prob
    np.testing.assert_allclose(weighted, plain * np.array([2.0, 0.0, 1.0]), rtol=1e-6)
    whole, part = ppl.trace(schools, DATA, values=LATENT), ppl.trace(temper(schools, 0.25, "y"), DATA, values=LATENT)
    np.testing.assert_allclose(part.log_joint, whole.log_joint - 0.75 * plain.sum(), rtol=1e-6)


def missing_model():
    x = yield Normal(0.0, 1.0, name="x")
    yield Normal(x, 0.5, shape=(3,), name="y")


GAP = np.array([1.0, np.nan, 2.0])


@pytest.mark.parametrize("filler", [np.nan, np.inf, 1e30])
def test_a_mask_keeps_what_lies_under_it_out_of_value_and_gradient(filler):
    """Two of three observations: log joint and gradient at 0.5 by hand."""
    y = np.where(np.isnan(GAP), filler, GAP)
    density = ppl.log_density(ppl.mask(missing_model, y=~np.isnan(GAP)), {"y": y})
    value, gradient = jax.value_and_grad(density)({"x": jnp.asarray(0.5)})
    np.testing.assert_allclose(value, -6.4955212, rtol=1e-6)
    np.testing.assert_allclose(gradient["x"], 7.5, rtol=1e-6)


def test_nan_without_a_mask_is_refused_with_the_count():
    with pytest.raises(ppl.DataError, match=r"data\['y'\] holds 1 nan of 3 values"):
        ppl.log_density(missing_model, {"y": GAP})
    with pytest.raises(ppl.DataError, match=r"data\['y'\] holds 1 nan of 3 values"):
        ppl.log_density(missing_model, {"y": jnp.asarray(GAP)})
    with pytest.raises(ppl.DataError, match=r"data\['y'\] holds 1 nan of 3 values"):
        ppl.log_density(ppl.mask(missing_model, y=np.array([False, True, True])), {"y": GAP})


def test_masked_arrays_make_missing_entries_latent_and_leave_the_posterior_of_the_rest():
    """Integrating the missing entry out gives the masked density, up to the grid's error."""
    density = ppl.log_density(missing_model, {"y": np.ma.masked_invalid(GAP)})
    assert density.latents["y"].shape == (1,)
    masked = ppl.log_density(ppl.mask(missing_model, y=~np.isnan(GAP)), {"y": GAP})
    grid = np.linspace(-6.0, 8.0, 1401, dtype=np.float32)
    for x in (0.5, 1.5):
        terms = jax.vmap(lambda y, x=x: density({"x": jnp.asarray(x), "y": y[None]}))(grid)
        integral = jax.scipy.special.logsumexp(terms) + jnp.log(0.01)
        np.testing.assert_allclose(integral, masked({"x": jnp.asarray(x)}), rtol=1e-5)
    values = density.constrain({"x": jnp.asarray(0.5), "y": jnp.array([0.7])})
    np.testing.assert_allclose(values["y"], [0.7])


def test_all_missing_leaves_the_prior():
    density = ppl.log_density(ppl.mask(missing_model, y=np.zeros(3, bool)), {"y": np.full(3, np.nan)})
    value, gradient = jax.value_and_grad(density)({"x": jnp.asarray(0.5)})
    np.testing.assert_allclose((value, gradient["x"]), (-0.125 - 0.9189385, -0.5), rtol=1e-6)


def location_scale_families():
    families = [f for f in vars(ppl).values() if isinstance(f, type) and issubclass(f, ppl.RandomVariable)]
    return sorted({f for f in families if f.location_scale}, key=lambda f: f.__name__)


@pytest.mark.parametrize("family", location_scale_families(), ids=lambda f: f.__name__)
def test_noncentered_draws_loc_plus_scale_times_standard(family):
    """The joint density of the standard variable is that of the original times the scale, entry by entry."""
    more = {"df": 4.0} if "df" in family.parameter_names else {}
    more |= {"shape_parameter": 2.0} if "shape_parameter" in family.parameter_names else {}

    def model():
        tau = yield HalfNormal(1.0, name="tau")
        yield family(loc=jnp.array([1.0, -1.0]), scale=tau, name="theta", **more)

    base = jnp.array([0.3, 1.5])
    trace = ppl.trace(ppl.noncentered(model, "theta"), values={"tau": 2.0, "theta_base": base})
    assert [trace[n].role for n in trace] == ["latent", "latent", "derived"]
    np.testing.assert_allclose(trace["theta"].value, jnp.array([1.0, -1.0]) + 2.0 * base, rtol=1e-6)
    original = ppl.trace(model, values={"tau": 2.0, "theta": trace["theta"].value})
    np.testing.assert_allclose(trace.log_joint, original.log_joint + 2 * np.log(2.0), rtol=1e-5)


def test_noncentered_twice_in_loops_and_nested():
    twice = ppl.noncentered(ppl.noncentered(schools, "theta"), "theta")
    once = ppl.noncentered(schools, "theta")
    assert jaxpr(twice, DATA) == jaxpr(once, DATA)
    deeper = ppl.trace(ppl.noncentered(once, "theta_base"), DATA)
    assert list(deeper) == ["mu", "tau", "theta_base_base", "theta_base", "theta", "y"]
    trace = ppl.trace(ppl.noncentered(local_level, "path/x"), {"T": 3})
    np.testing.assert_allclose(
        trace["path/x"].value, np.cumsum(trace["path/x_base"].value) * trace["s"].value, rtol=1e-5
    )
    grouped = ppl.trace(ppl.noncentered(panel, "g/b"), PANEL)
    np.testing.assert_allclose(grouped["g/b"].value, grouped["tau"].value * grouped["g/b_base"].value, rtol=1e-6)


def test_the_handler_nearest_the_model_sees_a_variable_first():
    seen = []

    def note(model, word):
        def respond(rv):
            seen.append((word, rv.name))
            return (yield rv)

        return ppl.handler(model, respond)

    def model():
        yield Normal(0.0, 1.0, name="x")

        def group(_):
            yield Normal(0.0, 1.0, name="y")

        yield Map(group, length=2, name="g")

    ppl.trace(note(ppl.do(note(model, "near"), {"g/y": 1.0}), "far"))
    assert seen == [("near", "x"), ("far", "x"), ("near", "g/y")]


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_shard_sets_the_field_and_the_layout(kind):
    found = {}

    def look(rv):
        found[rv.name] = rv.sharding
        return (yield rv)

    model = ppl.handler(ppl.shard(schools, theta=P("rows")), look)
    axis_types = (getattr(jax.sharding.AxisType, kind),)
    mesh = jax.make_mesh((3,), ("rows",), axis_types=axis_types, devices=jax.devices()[:3])
    plain = ppl.trace(schools, DATA, values=LATENT)
    with jax.set_mesh(mesh):
        trace = ppl.trace(model, DATA)
        sharded = jax.jit(lambda: dict(ppl.trace(model, DATA, values=LATENT)))()
    assert found == {"mu": None, "tau": None, "theta": P("rows"), "y": None}
    assert trace["theta"].value.sharding.spec == P("rows")
    assert sharded["theta"].value.sharding.spec == P("rows")
    np.testing.assert_allclose(sharded["y"].log_prob, plain["y"].log_prob, rtol=1e-6)


def test_a_sharding_without_a_mesh_is_refused():
    with pytest.raises(ModelError, match="'theta' .* has sharding .*, but there is no mesh"):
        ppl.trace(ppl.shard(schools, theta=P("rows")), DATA)


@pytest.mark.parametrize("wrap", [ppl.condition, ppl.do, ppl.substitute])
def test_values_given_from_outside_reach_the_steps_of_a_loop(wrap):
    path = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    stacked = ppl.trace(wrap(local_level, {"path/x": path}), {"T": 4})
    shared = ppl.trace(wrap(local_level, {"path/x": 0.5}), {"T": 4})
    if wrap is ppl.do:
        assert "path/x" not in stacked and "path/x" not in shared
    else:
        np.testing.assert_array_equal(stacked["path/x"].value, path)
        np.testing.assert_array_equal(shared["path/x"].value, np.full(4, 0.5, np.float32))
    with pytest.raises(ModelError, match=r"'path/x' \(Normal\) has shape \(\) at each step but .* shape \(3,\)"):
        ppl.trace(wrap(local_level, {"path/x": path[:3]}), {"T": 4})


def test_weights_and_masks_from_outside_are_sliced_by_step():
    data = {"T": 4, "path/y": np.array([1.0, np.nan, 0.5, np.nan])}
    keep = np.array([True, False, True, False])
    position = {"s": jnp.asarray(0.2), "path/x": jnp.arange(4.0)}
    value, gradient = jax.value_and_grad(ppl.log_density(ppl.mask(local_level, {"path/y": keep}), data))(position)
    filled = {"T": 4, "path/y": np.array([1.0, 7.0, 0.5, 7.0])}
    trace = ppl.trace(local_level, filled, values={"s": jnp.exp(0.2), "path/x": np.arange(4.0)})
    kept = trace["s"].log_prob + 0.2 + trace["path/x"].log_prob.sum() + trace["path/y"].log_prob[keep].sum()
    np.testing.assert_allclose(value, kept, rtol=1e-5)
    assert np.isfinite(np.concatenate([np.ravel(g) for g in gradient.values()])).all()
    with pytest.raises(ppl.DataError, match=r"data\['path/y'\] holds 2 nan of 4 values"):
        ppl.log_density(local_level, data)
    half = ppl.trace(ppl.reweight(local_level, {"path/y": np.array([0.5, 1.0, 0.0, 2.0])}), filled, values=LOOP)
    plain = ppl.trace(local_level, filled, values=LOOP)
    np.testing.assert_allclose(
        half["path/y"].log_prob, plain["path/y"].log_prob * np.array([0.5, 1.0, 0.0, 2.0]), rtol=1e-6
    )


LOOP = {"s": 1.0, "path/x": np.arange(4.0)}


def test_a_handler_of_a_user_works_inside_loops():
    filled = {"T": 4, "path/y": np.ones(4)}
    plain = ppl.trace(local_level, filled, values=LOOP)
    tempered = ppl.trace(temper(local_level, 0.5, "path/y"), filled, values=LOOP)
    np.testing.assert_allclose(tempered["path/y"].log_prob, plain["path/y"].log_prob / 2, rtol=1e-6)
    np.testing.assert_array_equal(tempered["path/x"].log_prob, plain["path/x"].log_prob)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda m: ppl.do(m, thta=1.0),
        lambda m: ppl.condition(m, {"thta": 1.0}),
        lambda m: ppl.mask(m, thta=True),
        lambda m: ppl.noncentered(m, "thta"),
        lambda m: ppl.block(m, "thta", key=0),
    ],
)
def test_a_name_that_the_model_does_not_have_is_refused(wrap):
    with pytest.raises(ModelError, match=r"was given 'thta', which is no random variable .*Did you mean 'theta'\?"):
        ppl.trace(wrap(schools), DATA)


def test_a_name_that_a_loop_does_not_have_is_refused():
    with pytest.raises(ModelError, match=r"do was given 'path/z', which is no random variable .*\(path/x, path/y\)"):
        ppl.trace(ppl.do(local_level, {"path/z": 1.0}), {"T": 2})


def test_a_respond_without_yield_is_refused():
    with pytest.raises(ModelError, match="the handler 'bare' answered 'mu' .* and has no `yield`"):

        def bare(model):
            return ppl.handler(model, lambda rv: 1.0)

        def respond_bare(rv):
            return 1.0

        respond_bare.__qualname__ = "bare.<locals>.respond"
        ppl.trace(ppl.handler(schools, respond_bare), DATA)


def test_equal_handlers_around_one_model_are_equal_and_different_ones_are_not():
    assert ppl.noncentered(schools, "theta") == ppl.noncentered(schools, "theta")
    assert hash(ppl.noncentered(schools, "theta")) == hash(ppl.noncentered(schools, "theta"))
    assert ppl.noncentered(schools, "theta") != ppl.noncentered(schools, "mu")
    assert temper(schools, 1, "mu") != temper(schools, True, "mu")
    assert ppl.do(schools, mu=1.0) != ppl.do(schools, mu=2.0)
    assert ppl.scope("a", schools) != ppl.scope("b", schools)


@pytest.mark.parametrize(
    "weight, words",
    [
        (-1.0, "weights must be at least 0"),
        (np.ones(2), r"log densities of shape \(3,\), but a weight of shape \(2,\)"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weight, words):
    with pytest.raises(ModelError, match=words):
        ppl.trace(ppl.reweight(schools, y=weight), DATA)
    with pytest.raises(ModelError, match="a mask is an array of bools"):
        ppl.trace(ppl.mask(schools, y=np.ones(3)), DATA)


def effects():
    center = yield Normal(0.0, 5.0, name="center")
    effect = yield Normal(center, 1.0, shape=(2,), name="effect")
    yield Normal(effect, 0.1, name="y")


@pytest.mark.parametrize("handler", [ppl.do, ppl.condition, ppl.substitute])
def test_a_noncentered_variable_can_still_be_set(handler):
    """From outside, too, what is set under its own name is what the rest of the model sees."""
    model = handler(ppl.noncentered(effects, "effect"), effect=jnp.array([100.0, 200.0]))
    site = ppl.trace(model, {"y": jnp.array([100.0, 200.0])})["y"]
    np.testing.assert_allclose(site.log_prob, 2 * [-0.5 * np.log(2 * np.pi) - np.log(0.1)], rtol=1e-5)


def test_an_intervention_on_a_noncentered_variable_reaches_predictions():
    model = ppl.do(ppl.noncentered(effects, "effect"), effect=jnp.array([100.0, 200.0]))
    drawn = ppl.infer.predict(model, {"center": np.zeros((1, 3))})["y"]
    np.testing.assert_allclose(drawn, np.broadcast_to([100.0, 200.0], (1, 3, 2)), atol=2)


def test_whole_numbers_beyond_32_bits_are_kept_or_refused():
    big = np.array([3_000_000_000])
    assert Normal(0.0, 1e9, shape=(1,), value=big).value == 3e9
    with pytest.raises(ModelError, match="3000000000, which int32 cannot hold"):
        Poisson(3.0, shape=(1,), value=big)
