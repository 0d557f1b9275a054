"""What may be done with a model: draws, traces, joint densities with exact values, keys, return values, sub-models."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl
from ppl import Deterministic, Exponential, Factor, Gamma, HalfNormal, ModelError, Normal, Poisson

KINDS = {"typed": jax.random.key, "raw": jax.random.PRNGKey, "int": int}


def rate():
    r = yield Gamma(2.0, 1.0, name="r")
    yield Poisson(r, shape=(3,), name="y")


COUNTS = {"y": np.array([3, 5, 4])}


def test_the_log_joint_without_volume_is_the_plain_sum():
    """Gamma(2, 1) and three Poisson terms at 3, by hand: log(3) - 3 and 12 log(3) - 9 - log(3! 5! 4!)."""
    expected = np.log(3.0) - 3 + 12 * np.log(3.0) - 9 - np.log(6.0 * 120.0 * 24.0)
    density = ppl.log_density(rate, COUNTS)

    @jax.jit
    def three(r):
        plain = ppl.log_joint(rate, {"r": r}, COUNTS)
        return plain, ppl.log_joint(rate, {"r": r}, COUNTS, volume=True), density(density.free({"r": r}))

    plain, with_volume, free = three(jnp.asarray(3.0))
    np.testing.assert_allclose(plain, expected, rtol=1e-6)
    np.testing.assert_allclose((with_volume, free), expected + np.log(3.0), rtol=1e-6)


def test_the_density_on_free_space_integrates_to_the_evidence():
    """By quadrature over the free scale, with the volume term: log evidence -6.6132622, mean 3.5."""
    density = ppl.log_density(rate, COUNTS)
    grid = jnp.linspace(-4.0, 4.0, 2001)
    terms = jax.jit(jax.vmap(lambda u: density({"r": u})))(grid)
    np.testing.assert_allclose(jax.scipy.special.logsumexp(terms) + np.log(0.004), -6.6132622, rtol=1e-6)
    weights = jax.nn.softmax(terms)
    np.testing.assert_allclose((weights * jnp.exp(grid)).sum(), 3.5, rtol=1e-5)


def test_an_observed_scale_family_has_its_exact_joint_density():
    def model():
        bw = yield Exponential(0.1, name="bw")
        yield Exponential(1 / bw, shape=(2,), name="y")

    np.testing.assert_allclose(ppl.log_joint(model, {"bw": 50.0}, {"y": [100.0, 100.0]}), -19.1266311, rtol=1e-7)


def part():
    return (yield Normal(0.0, 1.0, name="x"))


def test_two_parts_with_one_name_need_scopes():
    def clash():
        yield from part()
        yield from part()

    with pytest.raises(
        ModelError, match="two random variables are called 'x': give one another name, or run each part"
    ):
        ppl.trace(clash)

    def scoped():
        yield from ppl.scope("a", part())
        yield from ppl.scope("b", part())

    values = {"a/x": 0.5, "b/x": -1.0}
    np.testing.assert_allclose(ppl.log_joint(scoped, values), -2.4628771, rtol=1e-7)
    assert list(ppl.sample(scoped)) == ["a/x", "b/x"]


def several(n):
    mu = yield Normal(0.0, 5.0, name="mu")
    tau = yield HalfNormal(5.0, name="tau")
    theta = yield Normal(mu, tau, shape=(n,), name="theta")
    yield Deterministic(theta.mean(), name="mean")
    yield Factor(-tau, name="penalty")
    yield Normal(theta, 1.0, name="y")
    return {"effect": theta - mu}


def test_a_trace_has_names_shapes_roles_values_and_what_the_model_returned():
    trace = ppl.trace(several, {"n": 2, "y": [1.0, 2.0]})
    roles = {n: s.role for n, s in trace.items()}
    assert [roles[n] for n in ("mu", "tau", "theta", "mean", "y")] == ["latent"] * 3 + ["derived", "observed"]
    assert trace["theta"].shape == (2,) and trace["theta"].family == "Normal"
    assert trace["mean"].log_prob is None
    np.testing.assert_array_equal(trace.returned["effect"], trace["theta"].value - trace["mu"].value)
    terms = [s.log_prob.sum() for s in trace.values() if s.log_prob is not None]
    np.testing.assert_allclose(trace.log_joint, sum(terms), rtol=1e-6)
    lines = repr(trace).splitlines()
    assert lines[0].split() == ["name", "family", "shape", "role", "log", "density"]
    assert [line.split()[0] for line in lines[1:]] == [*trace, "total"]
    assert all(f"<td>{n}</td>" in trace._repr_html_() for n in trace)


def test_a_sample_has_everything_that_data_does_not_fix_to_draw_and_deterministic_values():
    draw = ppl.sample(several, 1, {"n": 3})
    assert draw["theta"].shape == draw["y"].shape == (3,)
    np.testing.assert_allclose(draw["mean"], draw["theta"].mean(), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_key_gives_the_same_draws(kind):
    key = KINDS[kind](3)
    reference = ppl.sample(several, jax.random.key(3), {"n": 2})
    drawn = ppl.sample(several, key, {"n": 2})
    traced = ppl.trace(several, {"n": 2}, key=key)
    for name in reference:
        np.testing.assert_array_equal(drawn[name], reference[name])
        np.testing.assert_array_equal(traced[name].value, reference[name])
    blocked = ppl.trace(ppl.block(several, "mu", key=key), {"n": 2}, key=key)
    np.testing.assert_array_equal(blocked["theta"].value, reference["theta"])
    density = ppl.log_density(several, {"n": 2})
    jax.tree.map(np.testing.assert_array_equal, density.initial(key), density.initial(jax.random.key(3)))
    family = Normal(0.0, 1.0, shape=(2,))
    if kind != "int":
        np.testing.assert_array_equal(family.sample(key), family.sample(jax.random.key(3)))


@pytest.mark.parametrize("kind", ["typed", "raw"])
def test_keys_work_inside_compiled_and_batched_code(kind):
    keys = jnp.stack([KINDS[kind](i) for i in range(3)])
    drawn = jax.jit(jax.vmap(lambda k: ppl.sample(part, k)["x"]))(keys)
    np.testing.assert_array_equal(drawn, [ppl.sample(part, i)["x"] for i in range(3)])


@pytest.mark.parametrize("seed", [1.5, "a", None, True, np.zeros(2), np.zeros(3, np.uint32)], ids=str)
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(TypeError, match="a seed is an int or a jax key"):
        ppl.sample(part, seed)


@pytest.mark.parametrize("kind", ["typed", "raw"])
def test_drivers_take_both_kinds_of_key(kind):
    prior = ppl.infer.prior(part, draws=4, seed=KINDS[kind](5))
    np.testing.assert_array_equal(prior["x"], ppl.infer.prior(part, draws=4, seed=5)["x"])


def test_adding_or_moving_a_variable_moves_no_other_draw(seed):
    def first():
        yield Normal(0.0, 1.0, name="a")
        yield Normal(0.0, 1.0, shape=(2,), name="b")

    def second():
        yield Normal(0.0, 1.0, shape=(2,), name="b")
        yield Normal(0.0, 1.0, name="new")
        yield Normal(0.0, 1.0, name="a")

    one, two = ppl.sample(first, seed), ppl.sample(second, seed)
    np.testing.assert_array_equal(one["a"], two["a"])
    np.testing.assert_array_equal(one["b"], two["b"])
    observed = ppl.trace(first, {"a": 0.0}, key=seed)
    np.testing.assert_array_equal(one["b"], observed["b"].value)
    assert len({float(v) for v in (two["a"], two["new"], *two["b"])}) == 4


def test_the_next_trace_after_an_error_gives_its_usual_result():
    before = ppl.trace(several, {"n": 2}, key=0)

    def broken():
        yield Normal(0.0, 1.0, name="x")
        raise RuntimeError("mine")

    for _ in range(3):
        with pytest.raises(RuntimeError, match="mine"):
            ppl.trace(broken)
        with pytest.raises(ModelError):
            ppl.trace(several, {"n": 2, "y": np.zeros(3)})
    after = ppl.trace(several, {"n": 2}, key=0)
    jax.tree.map(np.testing.assert_array_equal, dict(before), dict(after))


def test_a_model_may_catch_the_error_and_go_on():
    def model():
        try:
            x = yield Normal(0.0, 1.0)
        except ModelError:
            x = yield Normal(0.0, 1.0, name="x")
        return x

    assert list(ppl.trace(model)) == ["x"]


def test_values_of_unknown_names_are_refused_and_missing_ones_named():
    with pytest.raises(ModelError, match=r"'tua' is no random variable of 'several' .* Did you mean 'tau'\?"):
        ppl.trace(several, {"n": 2}, values={"tua": 1.0})
    with pytest.raises(
        ModelError, match=r"'tau' \(HalfNormal\) is latent and was given no value \(given: mu, tua\).*'tua'"
    ):
        ppl.log_joint(several, {"mu": 0.0, "tua": 1.0}, {"n": 2})


def test_a_value_outside_the_support_has_log_density_minus_infinity():
    def positive():
        yield Exponential(1.0, name="r")

    assert ppl.log_joint(positive, {"r": -1.0}) == -np.inf
    assert ppl.log_joint(positive, {}, {"r": -1.0}) == -np.inf
    with pytest.raises(ModelError, match=r"'y' \(Poisson\): rate must be at least 0, but is -1"):
        ppl.log_joint(rate, {"r": -1.0}, COUNTS)


@dataclasses.dataclass
class Triangle:
    """A law from elsewhere: triangular on (-1, 1)."""

    name: str | None = None
    support = ppl.supports.interval(-1.0, 1.0)

    def sample(self, key):
        return jax.random.triangular(key, -1.0, 0.0, 1.0)

    def log_prob(self, x):
        return jnp.log1p(-abs(x))


class Pair:
    """A law of vectors from elsewhere."""

    support = ppl.supports.simplex
    shape = (3, 2)

    def sample(self, key):
        return jax.random.dirichlet(key, jnp.ones(2), (3,))

    def log_prob(self, x):
        return jnp.zeros(x.shape[:-1])


def test_any_object_with_sample_log_prob_and_support_can_be_yielded_once_named():
    def model():
        t = yield Triangle(name="t")
        p = yield ppl.Foreign(Pair(), name="p")
        yield ppl.Foreign(Triangle(), name="seen", value=0.25)
        return t, p

    trace = ppl.trace(model)
    assert trace["p"].log_prob.shape == (3,) and trace["seen"].role == "observed"
    np.testing.assert_allclose(trace["seen"].log_prob, np.log(0.75), rtol=1e-6)
    density = ppl.log_density(ppl.mask(model, p=np.array([True, False, True])))
    assert {n: a.free_shape for n, a in density.latents.items()} == {"t": (), "p": (3, 1)}
    assert np.isfinite(density(density.initial()))
    with pytest.raises(
        ModelError, match=r"a Triangle was yielded without a name: write `tri = yield ppl.Foreign\(Triangle"
    ):

        def unnamed():
            tri = yield Triangle()
            return tri

        ppl.trace(unnamed)
    with pytest.raises(ModelError, match=r"'seen' \(Triangle\) has shape \(\) but was given a value of shape \(2,\)"):
        ppl.Foreign(Triangle(), name="seen", value=np.zeros(2))


def test_a_foreign_support_that_is_none_of_ours_is_refused():
    class Odd(Pair):
        support = "simplex"

    with pytest.raises(ModelError, match=r"'o' \(Odd\): its support is 'simplex'; give one of ppl.supports"):
        ppl.Foreign(Odd(), name="o")


def test_models_may_be_partials_methods_and_callable_objects():
    import functools

    class Holder:
        def model(self, n):
            yield Normal(0.0, 1.0, shape=(n,), name="x")

        def __call__(self, n):
            yield Normal(0.0, 1.0, shape=(n,), name="x")

    def scaled(n, scale):
        yield Normal(0.0, scale, shape=(n,), name="x")

    for model in (Holder().model, Holder(), functools.partial(scaled, scale=2.0), ppl.scope("a", Holder())):
        (value,) = ppl.sample(model, 0, {"n": 2}).values()
        assert value.shape == (2,)
        assert ppl.log_density(model, {"n": 2}).latents


def test_draws_and_densities_may_be_compiled_batched_and_differentiated():
    keys = jax.random.split(jax.random.key(0), 5)
    draws = jax.jit(jax.vmap(lambda k: ppl.sample(several, k, {"n": 2})))(keys)
    assert draws["theta"].shape == (5, 2)
    slope = jax.jit(jax.grad(lambda y: ppl.log_joint(rate_of, {"r": 3.0}, {"y": y})))(jnp.asarray(1.5))
    np.testing.assert_allclose(slope, -3.0, rtol=1e-6)


def rate_of():
    r = yield Gamma(2.0, 1.0, name="r")
    yield Exponential(r, name="y")


def test_a_discrete_latent_is_refused_for_gradients_and_has_its_density_elsewhere():
    def model():
        k = yield ppl.Categorical(probs=jnp.array([0.3, 0.7]), name="k")
        yield Normal(jnp.array([0.0, 2.0])[k], 0.5, name="y")

    with pytest.raises(
        ModelError, match=r"'k' \(Categorical\) is discrete and latent: a gradient cannot move it\. Sum it out"
    ):
        ppl.log_density(model, {"y": 1.0})
    terms = jnp.stack([ppl.log_joint(model, {"k": k}, {"y": 1.0}) for k in (0, 1)])
    np.testing.assert_allclose(jax.scipy.special.logsumexp(terms), -2.2257914, rtol=1e-6)
    assert ppl.bind(model, {"y": 1.0}).latents["k"].free_shape is None
