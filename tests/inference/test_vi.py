"""Variational inference: exact evidence, alignment, one compiled program, resuming, differentiating through steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from models import LINE, LINE_MEAN, LINE_SD, line

import ppl
from ppl import Bernoulli, Deterministic, Gamma, LogNormal, Normal, Scan, infer

EVIDENCE, AT_PRIOR = -1.8280121, -2.5439385  # of `point`, and the ELBO of a guide equal to the prior
EXACT = {"mean": jnp.float32(0.75), "log_sd": jnp.log(jnp.float32(0.5)) / 2}
Y = {"y": 1.5}


def point():
    x = yield Normal(0.0, 1.0, name="x")
    yield Normal(x, 1.0, name="y")


def guide(q):
    yield Normal(q["mean"], jnp.exp(q["log_sd"]), name="x")


def point_in_a_loop():
    def step(carry, _):
        x = yield Normal(0.0, 1.0, name="x")
        yield Normal(x, 1.0, name="y")
        return carry, None

    yield Scan(step, 0.0, length=3, name="path")


def guide_in_a_loop(q):
    def step(carry, _):
        yield Normal(q["mean"], jnp.exp(q["log_sd"]), name="x")
        return carry, None

    yield Scan(step, 0.0, length=3, name="path")


LOOP_DATA = {"path/y": np.full(3, 1.5, np.float32)}


def start(model, guide, data, init, **options):
    """A fit of no steps: the guide as it is."""
    return infer.vi(model, guide, data, init=init, steps=0, progress=False, **options)


@pytest.mark.parametrize(
    "model, program, data, times",
    [(point, guide, Y, 1), (point_in_a_loop, guide_in_a_loop, LOOP_DATA, 3)],
    ids=["flat", "loop"],
)
def test_each_draw_of_the_exact_guide_is_the_log_evidence(model, program, data, times):
    weights = start(model, program, data, EXACT).log_weights(100)
    np.testing.assert_allclose(weights, times * EVIDENCE, rtol=2e-6)


@pytest.mark.false_alarm(2e-8)
@pytest.mark.parametrize(
    "model, program, data, times",
    [(point, guide, Y, 1), (point_in_a_loop, guide_in_a_loop, LOOP_DATA, 3)],
    ids=["flat", "loop"],
)
def test_the_elbo_of_the_prior_is_the_known_number(model, program, data, times):
    """The standard error is that of 20,000 draws."""
    weights = start(model, program, data, {"mean": 0.0, "log_sd": 0.0}).log_weights(20_000)
    assert abs(weights.mean() - times * AT_PRIOR) < 5.6 * weights.std() / np.sqrt(weights.size)


def test_a_guide_of_ones_own_finds_the_posterior():
    fit = infer.vi(
        point,
        guide,
        Y,
        init={"mean": jnp.float32(-1.0), "log_sd": jnp.float32(0.5)},
        gradient="sticking",
        progress=False,
    )
    np.testing.assert_allclose(fit.params["mean"], 0.75, atol=2e-3)
    np.testing.assert_allclose(jnp.exp(fit.params["log_sd"]), np.sqrt(0.5), rtol=4e-3)
    assert fit.trail.shape == (2000,) and fit.converged and fit.pareto_k < 0.7
    assert fit.trail[-100:].mean() == pytest.approx(EVIDENCE, abs=1e-3)
    assert "Converged" in str(fit) and "close to the posterior" in str(fit)


@pytest.mark.false_alarm(1e-8)
def test_its_posterior_is_the_posterior_of_samplers_in_kind():
    fit = start(line, full_rank_by_hand, LINE, exact_line())
    posterior = fit.posterior(draws=4000, chains=2, seed=3)
    assert isinstance(posterior, ppl.Posterior) and posterior["a"].shape == (2, 4000)
    for name, mean, sd in zip("ab", LINE_MEAN, LINE_SD, strict=True):
        assert abs(posterior[name].mean() - mean) < 5.8 * sd / np.sqrt(8000)
    new = infer.predict(line, posterior, {"x": LINE["x"]})
    assert new["y"].shape == (2, 4000, 8)
    assert infer.log_likelihood(line, posterior, LINE)["y"].shape == (2, 4000, 8)


@pytest.mark.false_alarm(1e-15)
def test_parameters_may_be_the_matrix_of_a_linear_predictor():
    """A bound model keeps such a matrix turned; one that is trained stays as it is."""

    def guide(q, x):
        both = ppl.linear(q["matrix"], x[:3])
        yield Normal(both[0], 1.0, name="a")
        yield Normal(both[1], 1.0, name="b")

    start = np.arange(6, dtype=np.float32).reshape(2, 3)
    fit = infer.vi(line, guide, LINE, init={"matrix": start}, steps=0, progress=False)
    draws = fit.posterior(2000)
    for name, mean in zip("ab", start @ LINE["x"][:3], strict=True):
        assert abs(draws[name].mean() - mean) < 0.2  # nine standard errors
    assert infer.vi(line, guide, LINE, init=fit, steps=3, progress=False).params["matrix"].shape == (2, 3)


@pytest.mark.false_alarm(1e-7)
def test_smoothed_weights_correct_a_guide_that_is_off():
    """Half a standard deviation off and half as wide again: 8000 draws resampled from 32,000 are worth 5000 at least."""
    off = exact_line()
    off |= {"a": off["a"] + 0.5 * LINE_SD[0], "sd_a": 1.5 * off["sd_a"], "sd_b": 1.5 * off["sd_b"]}
    fit = start(line, full_rank_by_hand, LINE, off)
    posterior = fit.posterior(draws=4000, chains=2, seed=3, smoothed=True)
    for name, mean, sd in zip("ab", LINE_MEAN, LINE_SD, strict=True):
        assert abs(posterior[name].mean() - mean) < 5.8 * sd / np.sqrt(5000)
        assert abs(posterior[name].std() / sd - 1) < 5.8 / np.sqrt(2 * 5000)
    assert abs(fit.posterior(draws=4000)["a"].mean() - LINE_MEAN[0]) > 0.3 * LINE_SD[0]
    with pytest.raises(ppl.ModelError, match="no importance weights"):
        infer.vi(line, infer.map, LINE, steps=0, progress=False).posterior(smoothed=True)


def full_rank_by_hand(q):
    b = yield Normal(q["b"], q["sd_b"], name="b")
    yield Normal(q["a"] + q["slope"] * (b - q["b"]), q["sd_a"], name="a")


def exact_line():
    x = np.asarray(LINE["x"], float)
    covariance = np.linalg.inv(np.eye(2) + np.array([[8, x.sum()], [x.sum(), (x**2).sum()]]) / 0.25)
    slope = covariance[0, 1] / covariance[1, 1]
    sd_a = np.sqrt(covariance[0, 0] - slope * covariance[0, 1])
    values = dict(a=LINE_MEAN[0], b=LINE_MEAN[1], sd_b=np.sqrt(covariance[1, 1]), slope=slope, sd_a=sd_a)
    return {n: jnp.float32(v) for n, v in values.items()}


def test_a_guide_may_take_data_by_name_also_data_that_the_model_observes():
    def amortized(q, y):
        yield Normal(q["slope"] * y, jnp.exp(q["log_sd"]), name="x")

    init = {"slope": jnp.float32(0.5), "log_sd": EXACT["log_sd"]}
    np.testing.assert_allclose(start(point, amortized, Y, init).log_weights(10), EVIDENCE, rtol=2e-6)


def test_a_guide_may_take_data_that_the_model_does_not_know():
    def informed(q, hint):
        yield Normal(q["mean"] * hint, jnp.exp(q["log_sd"]), name="x")

    fit = start(point, informed, {"y": 1.5, "hint": 1.0}, EXACT)
    np.testing.assert_allclose(fit.log_weights(10), EVIDENCE, rtol=2e-6)


def test_the_model_may_take_the_parameters_too():
    """Maximum likelihood of the noise beside the guide of the mean: the marginal of y is Normal(0, 1 + noise^2)."""

    def model(q, n):
        x = yield Normal(0.0, 1.0, shape=(n,), name="x")
        yield Normal(x, jnp.exp(q["log_noise"]), name="y")

    def exact(q, y):
        share = 1 / (1 + jnp.exp(2 * q["log_noise"]))
        yield Normal(share * y, jnp.sqrt(1 - share), name="x")

    y = np.random.default_rng(0).normal(0, np.sqrt(1 + 0.64), 400).astype(np.float32)
    best = np.log(np.mean(np.square(y)) - 1) / 2
    init = {"log_noise": jnp.float32(0.3)}
    fit = infer.vi(model, exact, {"n": 400, "y": y}, init=init, gradient="sticking", progress=False)
    np.testing.assert_allclose(fit.params["log_noise"], best, atol=2e-2)
    weights = fit.log_weights(20)
    np.testing.assert_allclose(weights, weights[0], rtol=1e-5)  # the exact guide has no variance
    new = infer.predict(model, fit.posterior(10), {"n": 400, "q": fit.params})
    assert new["y"].shape == (1, 10, 400)


def test_a_derived_variable_of_the_guide_is_a_point_estimate():
    def pointlike(q):
        yield Deterministic(q["x"], name="x")

    fit = infer.vi(point, pointlike, Y, init={"x": 0.0}, optimizer=0.05, steps=800, progress=False)
    np.testing.assert_allclose(fit.params["x"], 0.75, atol=1e-3)


def test_alignment_by_a_map_of_names():
    def other(q):
        yield Normal(q["mean"], jnp.exp(q["log_sd"]), name="z")

    fit = start(point, other, Y, EXACT, align={"z": "x"})
    np.testing.assert_allclose(fit.log_weights(10), EVIDENCE, rtol=2e-6)
    assert list(fit.posterior(5)) == ["x"]


def test_a_map_of_names_reaches_into_loops():
    def other(q):
        def step(carry, _):
            yield Normal(q["mean"], jnp.exp(q["log_sd"]), name="z")
            return carry, None

        yield Scan(step, 0.0, length=3, name="walk")

    fit = start(point_in_a_loop, other, LOOP_DATA, EXACT, align={"walk/z": "path/x"}, gradient="sticking")
    np.testing.assert_allclose(fit.log_weights(10), 3 * EVIDENCE, rtol=2e-6)


def two():
    a = yield Normal(0.0, 1.0, name="a")
    r = yield Gamma(2.0, 1.0, name="r")
    k = yield Bernoulli(probs=0.5, name="k")
    yield Normal(jnp.where(k > 0, a + 1, a), r, name="y")


def complete(q):
    yield Normal(q, 1.0, name="a")
    yield LogNormal(q, 1.0, name="r")
    yield Bernoulli(logits=q, name="k")


def refusal(program, **options):
    with pytest.raises(ppl.ModelError) as caught:
        infer.vi(two, program, Y, init=0.0, steps=1, progress=False, **options)
    return str(caught.value), str(caught.traceback[-1].statement).strip()


def test_a_forgotten_latent_variable_is_named():
    def forgets(q):
        yield Normal(q, 1.0, name="a")
        yield Bernoulli(logits=q, name="k")

    text, _ = refusal(forgets)
    assert "the guide `forgets` does not draw 'r' (Gamma, shape ()), which is latent in `two`" in text


def test_a_variable_too_many_is_named_at_its_line():
    def adds(q):
        yield from complete(q)
        yield Normal(q, 1.0, name="b")  # here

    text, line = refusal(adds)
    assert text.startswith(
        "'b' (Normal) is drawn by the guide, and `two` has no latent variable of that name (a, r, k)"
    )
    assert line.endswith("# here")


def test_a_variable_that_the_model_observes_is_named():
    def draws_data(q):
        yield from complete(q)
        yield Normal(q, 1.0, name="y")  # here

    text, line = refusal(draws_data)
    assert "'y' (Normal) is drawn by the guide, and observed in `two`" in text and line.endswith("# here")


def test_a_wrong_shape_is_named_with_both_shapes_at_its_line():
    def wide(q):
        yield Normal(q, 1.0, shape=(3,), name="a")  # here

    text, line = refusal(wide)
    assert text.startswith("'a' (Normal) has shape (3,) in the guide, and 'a' (Normal) has shape () in `two`")
    assert line.endswith("# here")


def test_a_wrong_shape_inside_a_loop_is_named():
    def short(q):
        def step(carry, _):
            yield Normal(q, 1.0, name="x")  # here
            return carry, None

        yield Scan(step, 0.0, length=2, name="path")

    with pytest.raises(ppl.ModelError) as caught:
        start(point_in_a_loop, short, LOOP_DATA, 0.0)
    assert "'path/x' (Normal) has shape (2,) in the guide, and 'path/x' (Normal) has shape (3,)" in str(caught.value)


def test_continuous_for_discrete_is_named():
    def smooth(q):
        yield Normal(q, 1.0, name="k")  # here

    text, line = refusal(smooth)
    assert (
        "'k' (Normal) is continuous in the guide, and 'k' (Bernoulli) is discrete in `two`" in text
        and line.endswith("# here")
    )


def test_wrong_names_in_the_map_are_named():
    assert "align has 'c', which is no variable of the guide (a, r, k)" in refusal(complete, align={"c": "a"})[0]
    assert (
        "align sends 'a' to 'aa', which is no latent variable of the model (a, r, k). Did you mean 'a'?"
        in refusal(complete, align={"a": "aa"})[0]
    )


def test_other_slips_are_named():
    assert "init= is missing" in str(pytest.raises(ppl.ModelError, infer.vi, point, guide, Y).value)
    with pytest.raises(ppl.ModelError, match="takes no arguments"):
        infer.vi(point, lambda: iter(()), Y, init=0.0)
    with pytest.raises(ppl.ModelError, match="gradient='pathwize' is none of .* Did you mean 'pathwise'"):
        infer.vi(point, guide, Y, init=EXACT, gradient="pathwize")
    with pytest.raises(ppl.ModelError, match="samples=0: give a whole number, at least 1"):
        infer.vi(point, guide, Y, init=EXACT, samples=0)
    with pytest.raises(ppl.DataError, match="data has 'q', which is the first argument of the guide"):
        infer.vi(point, guide, {**Y, "q": 1.0}, init=EXACT)


def test_an_objective_that_is_not_finite_names_the_variable():
    def model():
        r = yield Gamma(2.0, 1.0, name="r")
        yield Normal(0.0, r, name="y")

    def negative(q):
        yield Normal(q, 0.1, name="r")

    with pytest.raises(ppl.StartError, match="not finite at the first parameters.*'y' .Normal., whose scale is -3"):
        infer.vi(model, negative, Y, init=-3.0, steps=10, progress=False)


# -- one program ---------------------------------------------------------------------------------------------------------


def test_new_data_and_more_steps_do_not_trace_again():
    count = []

    def counted(n):
        count.append(1)
        x = yield Normal(0.0, 1.0, name="x")
        yield Normal(x, 1.0, shape=(n,), name="y")

    def fit(seed, steps, program=guide, init=EXACT):
        y = np.random.default_rng(seed).normal(size=4).astype(np.float32)
        return infer.vi(counted, program, {"n": 4, "y": y}, init=init, steps=steps, progress=False)

    first = fit(0, 20)
    before = len(count)
    second = fit(1, 50, init={"mean": jnp.float32(1.0), "log_sd": jnp.float32(0.0)})
    assert len(count) == before and first.params["mean"] != second.params["mean"]
    fit(2, 30, infer.mean_field, {"x": 0.1})
    before = len(count)
    fit(3, 60, infer.mean_field, {"x": 0.3})
    assert len(count) == before


def test_a_fit_depends_on_the_seed_and_not_on_chunks(monkeypatch):
    from ppl.inference import vi as module

    def fit(seed):
        return infer.vi(
            point, guide, Y, init=EXACT, gradient="pathwise", optimizer=0.01, steps=300, seed=seed, progress=False
        )

    first = fit(5)
    monkeypatch.setattr(module, "CHUNK_SECONDS", 1e-9)
    again = fit(5)
    assert np.array_equal(first.trail, again.trail) and first.params["mean"] == again.params["mean"]
    assert not np.array_equal(first.trail, fit(6).trail)


def test_going_on_is_as_if_it_had_never_stopped():
    optimizer = optax.adam(0.01)

    def fit(init, steps):
        return infer.vi(
            point, guide, Y, init=init, gradient="pathwise", optimizer=optimizer, steps=steps, progress=False
        )

    half = fit(EXACT, 120)
    whole, resumed = fit(EXACT, 250), fit(half, 130)
    assert np.array_equal(whole.trail, resumed.trail)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), whole.params, resumed.params))


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.sgd(0.01),
        0.01,
        optax.cosine_decay_schedule(0.05, 500),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.01)),
    ],
    ids=["sgd", "number", "schedule", "chain"],
)
def test_any_optimizer_is_taken(optimizer):
    init = {"mean": jnp.float32(0.0), "log_sd": jnp.float32(0.0)}
    fit = infer.vi(point, guide, Y, init=init, gradient="sticking", optimizer=optimizer, steps=1500, progress=False)
    np.testing.assert_allclose(fit.params["mean"], 0.75, atol=0.02)


def test_the_verdict_says_what_is_wrong():
    init = {"mean": jnp.float32(-30.0), "log_sd": jnp.float32(-2.0)}
    with pytest.warns(ppl.InferenceWarning, match="still rose by .* not converged; go on with init=fit"):
        fit = infer.vi(point, guide, Y, init=init, optimizer=0.01, steps=200, progress=False)
    assert not fit.converged and "not converged" in str(fit)
    narrow = start(point, guide, Y, {"mean": jnp.float32(0.75), "log_sd": jnp.float32(-2.0)})
    assert narrow.pareto_k > 0.7 and "misses parts of the posterior" in " ".join(narrow.verdict())


def test_one_line_of_progress(capsys, monkeypatch):
    monkeypatch.setattr("ppl.inference.progress.PATIENCE", 0.0)
    monkeypatch.delenv("PPL_PROGRESS", raising=False)

    def fresh(q):
        yield Normal(q["mean"], jnp.exp(q["log_sd"]), name="x")

    infer.vi(point, fresh, Y, init=EXACT, steps=50)
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[0].startswith("ppl: compiling")
        and lines[-1].startswith("ppl: 50 steps in")
        and "objective -1.8" in lines[-1]
    )


def test_interrupting_keeps_the_steps_so_far(monkeypatch):
    from ppl.inference.fit_progress import StepProgress

    def stop(self, done, objective):
        if done > 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(StepProgress, "report", stop)
    fit = infer.vi(point, guide, Y, init=EXACT, steps=100_000, progress=False)
    assert fit.interrupted and 20 < len(fit.trail) < 100_000 and "interrupted" in str(fit)


# -- one step ------------------------------------------------------------------------------------------------------------


def test_a_step_is_pure_and_repeats_the_fit():
    state, step = infer.vi_step(point, guide, Y, init=EXACT, gradient="pathwise", optimizer=0.01)
    fit = infer.vi(point, guide, Y, init=EXACT, gradient="pathwise", optimizer=0.01, steps=5, progress=False)
    compiled, trail = jax.jit(step), []
    for _ in range(5):
        state, info = compiled(state, jax.random.key(0))
        trail.append(float(info.objective))
    np.testing.assert_allclose(trail, fit.trail, rtol=1e-6)
    assert int(state.count) == 5 and not info.skipped and info.log_weights.shape == (8,)


def test_gradients_go_through_steps():
    """Learning to learn: the derivative of the objective after five steps by the logarithm of each learning rate."""

    def after(log_rates):
        def update(gradients, state, params=None):
            return jax.tree.map(lambda g, r: -jnp.exp(r) * g, gradients, log_rates), state

        optimizer = optax.GradientTransformation(lambda params: optax.EmptyState(), update)
        init = {"mean": jnp.float32(-1.0), "log_sd": jnp.float32(0.5)}
        state, step = infer.vi_step(point, guide, Y, init=init, gradient="pathwise", optimizer=optimizer, samples=4)
        for _ in range(5):
            state, _ = step(state, jax.random.key(1))
        _, info = step(state, jax.random.key(2))
        return info.objective

    at = {"mean": jnp.float32(-3.0), "log_sd": jnp.float32(-3.0)}
    after = jax.jit(after)
    found = jax.grad(after)(at)
    for name in at:
        ahead, behind = ({**at, name: at[name] + d} for d in (0.02, -0.02))
        np.testing.assert_allclose(found[name], (after(ahead) - after(behind)) / 0.04, rtol=0.02)
    better = after(jax.tree.map(lambda a, g: a + 0.5 * g / (1e-6 + abs(g)), at, found))
    assert better > after(at)
