"""Variational inference: `infer.vi(model, guide, data)`, and its single step.

The guide is a program like the model; its first argument is its parameters. `Problem` aligns the two, an objective and an
estimator make a gradient of them, and any optimizer follows it (`steps`).
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import ModelError, StartError
from ppl.inference import cache, chains, concerns, estimators, minibatch, objectives, steps
from ppl.inference.fit import Fit
from ppl.inference.fit_progress import StepProgress
from ppl.inference.parameters import apart, together
from ppl.inference.placement import Placement
from ppl.inference.start import seed_words
from ppl.inference.variational import Automatic, Guide, Problem, Target
from ppl.tracing.bind import bind
from ppl.tracing.handle import model_name
from ppl.tracing.problems import first_problem
from ppl.tracing.programs import as_key

CHUNK_SECONDS = 0.1


def vi(
    model: Callable[..., Any],
    guide: Any,
    data: Mapping[str, Any] | None = None,
    *,
    init: Any = None,
    objective: Any = objectives.elbo,
    gradient: str | None = None,
    optimizer: Any = None,
    steps: int = 2000,
    samples: int = 8,
    seed: Any = 0,
    align: Mapping[str, str] | None = None,
    batch: Mapping[str, int] | None = None,
    mesh: Any = None,
    sharding: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fit a guide to the posterior by stochastic gradients: `infer.vi(model, infer.mean_field, data)`.

    With a guide of one's own, whose first argument is its parameters:

        def guide(q):
            yield Normal(q["mean"], jnp.exp(q["log_sd"]), name="w")

        fit = infer.vi(model, guide, data, init={"mean": jnp.zeros(3), "log_sd": jnp.zeros(3)})

    An automatic guide has its own parameters:

      >>> fit = infer.vi(coin, infer.mean_field, tosses, steps=1000, progress=False)
      >>> fit.converged, round(float(fit.posterior(draws=2000)["p"].mean()), 1)
      (True, 0.7)

    Args:
      model: a generator function that yields random variables. If it has an argument of the name of the guide's first
        one, it receives the parameters too (the weights of a decoder, for example).
      guide: a generator function of parameters and, by name, of any entries of `data`; it yields the model's latent variables.
        Or an automatic guide: `mean_field`, `full_rank`, `low_rank`, `structured`, `flow`, `laplace`, `map`.
      data: one mapping: arguments of the model and of the guide, and values of the random variables to observe.
      init: the guide's first parameters, any pytree; for an automatic guide, start values of latent variables by name. Or a
        `Fit`: of the same guide to go on from it, of another one to start an automatic guide near it.
      objective: `elbo`, `importance_weighted`, `renyi(alpha)`, `forward_kl`, `density_ratio(discriminator)`, or a function
        of `(log_joint, log_guide)`, arrays [draw], that returns the number to maximize.
      gradient: "pathwise", "sticking", "doubly", "entropy", "score" or "fixed"; by default what suits the guide. See
        `ppl.inference.estimators`.
      optimizer: an optax optimizer, a learning rate or a schedule of it (then Adam). By default Adam with a rate that falls
        to a hundredth over the steps, from 0.02 (from 0.1 for automatic guides, from 0.01 for flows).
      steps: how many.
      samples: draws of the guide for each step, [draw] in the objective.
      seed: an int or a jax key. The same seed gives the same fit.
      align: `{name in the guide: name in the model}` where they differ.
      batch: `{"X": 256, "y": 256}`: entries of data of which each step sees that many rows, the same rows of each. Densities of
        what belongs to rows are weighted so that the gradient has the same expectation as with all rows.
      mesh: a `jax.sharding.Mesh` that `sharding` refers to.
      sharding: `{"X": P("rows"), "z": P("rows")}`: entries of data, latent variables and parameters (by their path, as in
        "encoder/weights") laid out over devices.
      progress: False for none; by default one line on standard error.

    Returns a `Fit`.

    Raises:
      ModelError: model and guide do not fit each other; the message names the variable. Before the first step.
      StartError: the objective is not finite at the first parameters.
    """
    began = time.perf_counter()
    whole_number("steps", steps, 0)
    cache.enable()
    work = prepare(model, guide, data, init, objective, gradient, optimizer, samples, align, batch, mesh, sharding)
    words = seed_words(seed)
    line = StepProgress(int(steps), progress)
    outcome = _run(work, as_key(seed), int(steps), line)
    state, trail, skipped, interrupted, compile_seconds = outcome
    if len(trail) and skipped == len(trail):
        line.close("stopped by an error")
        raise _no_start(work, state)
    line.close("interrupted" if interrupted else None)
    if work.before is not None:
        trail, skipped = np.concatenate([work.before.trail, trail]), skipped + work.before.skipped
    fit = Fit(
        params=together(state.params, work.rest),
        trail=trail,
        problem=work.full,
        trained=state.params,
        state=state,
        settings={
            "algorithm": "vi",
            "model": model_name(model),
            "guide": work.title,
            "objective": getattr(objective, "__name__", type(objective).__name__),
            "gradient": work.gradient,
            "steps": len(trail),
            "samples": int(samples),
        },
        timings={"compile": compile_seconds, "total": time.perf_counter() - began},
        seed=[int(w) for w in words],
        interrupted=interrupted,
        skipped=skipped,
        identity=work.identity,
        placement=work.placement,
    )
    if work.full.spec.finish is not None:
        fit = work.full.spec.finish(fit)
    concerns.warn(fit.warnings())
    return fit


def vi_step(
    model: Callable[..., Any],
    guide: Any,
    data: Mapping[str, Any] | None = None,
    *,
    init: Any = None,
    objective: Any = objectives.elbo,
    gradient: str | None = None,
    optimizer: Any = 0.01,
    samples: int = 8,
    align: Mapping[str, str] | None = None,
    batch: Mapping[str, int] | None = None,
    mesh: Any = None,
    sharding: Mapping[str, Any] | None = None,
) -> tuple[Any, Callable[..., Any]]:
    """Return `(state, step)`: the first state of a fit, and the pure function `step(state, key) -> (state, info)`.

    For loops of one's own: compile it, scan over it, or differentiate through many steps. Step number n draws with
    `fold_in(key, n)`, so one key serves all steps. `state.params` are the parameters, `info.objective` the estimate.

    Args:
      model: as in `vi`.
      guide: as in `vi`.
      data: as in `vi`.
      init: as in `vi`.
      objective: as in `vi`.
      gradient: as in `vi`.
      optimizer: an optax optimizer, a learning rate or a schedule; its numbers may be traced values.
      samples: as in `vi`.
      align: as in `vi`.
      batch: as in `vi`.
      mesh: as in `vi`.
      sharding: as in `vi`.
    """
    if optimizer is None:
        raise ModelError("vi_step knows no last step for a rate to fall to: give optimizer=0.01, or an optax optimizer")
    work = prepare(model, guide, data, init, objective, gradient, optimizer, samples, align, batch, mesh, sharding)
    total = jnp.ones((), jnp.int32)

    def step(state: Any, key: Any) -> tuple[Any, Any]:
        """Make one step. Returns `(state, info)`."""
        return work.step(state, as_key(key), work.arrays, total)

    return work.state, step


@dataclasses.dataclass(frozen=True, eq=False)
class Work:
    """All that a loop of steps needs."""

    problem: Problem  # of one step: with a mini-batch, bound to that many rows
    full: Problem  # of all data
    arrays: Any
    state: Any
    step: Callable
    rest: Any  # parameters that are not trained
    title: str
    gradient: str
    identity: Any  # what the optimizer's state belongs to
    before: Fit | None  # the fit that is gone on from
    placement: Placement
    programs: dict  # compiled
    key: tuple


@dataclasses.dataclass
class Compiled:
    """A loop of steps, and whether it was run, and so compiled, before."""

    run: Callable
    used: bool = False


def prepare(model, guide, data, init, objective, gradient, optimizer, samples, align, batch, mesh, sharding):
    """Align, check and place everything. Returns a `Work`."""
    whole_number("samples", samples, 1)
    if not callable(objective) and not hasattr(objective, "surrogate"):
        raise ModelError(f"objective={objective!r}: give a function of (log_joint, log_guide), such as infer.elbo")
    placement = Placement.of(mesh, sharding)
    data = placement.data(dict(data or {}))
    if batch:
        minibatch.sizes(batch, data)
    before = init if isinstance(init, Fit) and init.identity is not None and init.identity[0] == guide else None
    spec = _guide(model, guide, data, None if before is not None and isinstance(guide, Automatic) else init)
    if hasattr(objective, "surrogate"):
        spec = dataclasses.replace(spec, implicit=True)
    identity = (guide, getattr(optimizer, "update", optimizer))
    if before is not None:
        spec = dataclasses.replace(spec, init=before.params)
    params = placement.params(spec.init)
    plain = minibatch.Plain(model, spec, data, params, align)
    model = placement.model(model)
    if not spec.free:
        spec = dataclasses.replace(spec, program=placement.model(spec.program))
    full = Problem.of(model, spec, data, params, align, tuple(batch or ()))
    placement.check(full, data, params)
    problem, rows = full, None
    if batch:
        problem, rows = minibatch.split(full, plain, model, spec, batch, objective, placement)
    gradient = "implicit" if hasattr(objective, "surrogate") else estimators.choose(gradient, objective, problem)
    trained, rest = apart(params)
    optimizer = steps.optimizer_of(optimizer, spec.rate)
    state = steps.first_state(trained, optimizer)
    if before is not None and before.identity[1] == identity[1] and before.state is not None:
        state = before.state
    whole = functools.partial(_whole, rest)
    step = steps.make_step(problem, whole, objective, gradient, optimizer, int(samples), rows)
    step = placement.keeping(step, trained)
    arrays = placement.arrays(full.arrays) if placement.active else jax.device_put(full.arrays)
    batch_key = None if rows is None else rows.key
    batch_key = (
        (batch_key, object()) if gradient == "implicit" else batch_key
    )  # it holds parameters that are not trained
    key = ("vi", *problem.key(), objective, gradient, optimizer, int(samples), batch_key, placement.key)
    title = guide.name if isinstance(guide, Automatic) else model_name(guide)
    return Work(
        problem, full, arrays, state, step, rest, title, gradient, identity, before, placement,
        problem.model.structure.compiled, key,
    )  # fmt: skip


def _whole(rest, trained):
    return together(trained, rest)


def _guide(model, guide, data, init):
    """Return the `Guide` of what the user gave."""
    if isinstance(guide, Automatic):
        return _automatic(guide, Target(bind(model, data), init))
    if isinstance(guide, Guide):
        return guide
    if not callable(guide):
        raise ModelError(
            f"the guide is {guide!r}: give a generator function of parameters, or infer.mean_field and its kin themselves"
        )
    if init is None:
        raise ModelError(
            f"init= is missing: the first parameters of the guide `{model_name(guide)}`, a pytree such as "
            "{'mean': jnp.zeros(3), 'log_sd': jnp.zeros(3)}"
        )
    init = init.params if isinstance(init, Fit) else init
    return Guide(guide, init)


def _automatic(guide, target):
    """Build an automatic guide; its program is the one of an earlier call with a model of equal structure."""
    spec = guide.build(target, **dict(guide.options))
    try:
        first = target.bound.structure.compiled.setdefault(("guide", guide), spec)
    except TypeError:  # options that cannot be hashed
        return spec
    return dataclasses.replace(spec, program=first.program)


def _run(work, key, count, line):
    """Make `count` steps in chunks. Returns `(state, trail, skipped, interrupted, seconds of compiling)`."""
    programs = work.programs
    title = f"vi of {model_name(work.full.model.structure.model)}"
    if work.key not in programs:
        options = chains.compiler_options()
        programs[work.key] = Compiled(jax.jit(steps.make_run(work.step), compiler_options=options))
    run, state, fresh = programs[work.key].run, work.state, not programs[work.key].used
    trail, skipped, interrupted, compile_seconds = [], 0, False, 0.0
    done, chunk, total = 0, 8, np.int32(max(int(state.count) + count, 1))
    try:
        if fresh and count:
            line.compiling(cache.seconds_last_time(title))
        with cache.healing():
            while done < count:
                began = time.perf_counter()
                n = min(chunk, count - done, steps.LENGTH)
                state, values, missed = run(state, key, work.arrays, np.int32(n), total)
                values = np.asarray(jax.device_get(values))[:n]
                took = time.perf_counter() - began
                if done == 0 and fresh:
                    compile_seconds = took
                    cache.remember_seconds(title, took)
                    programs[work.key].used = True
                elif took > 0:
                    chunk = int(np.clip(n * CHUNK_SECONDS / took, 1, 4 * chunk))
                trail.append(values)
                skipped += int(missed)
                done += n
                line.report(done, float(values[-1]))
                if done == n and skipped == n:
                    break  # nothing moves: say so at once
    except KeyboardInterrupt:
        interrupted = True
    except BaseException:
        line.close("stopped by an error")
        raise
    return state, np.concatenate(trail) if trail else np.zeros(0), skipped, interrupted, compile_seconds


def _no_start(work, state):
    """Return the error for an objective that is not finite at the first parameters, naming the variable."""
    problem, params = work.full, state.params
    structure = problem.model.structure
    values = problem.draw(jax.random.key(0), params, problem.arrays).values
    arguments, ctx = structure.given(
        problem._given("model", params, problem.arrays), **{"free" if problem.spec.free else "values": values}
    )
    found = first_problem(structure.model, arguments, ctx)
    text = "the objective or its gradient is not finite at the first parameters, so no step can be made. "
    text += (
        f"First non-finite term at a draw of the guide: {found}"
        if found
        else (
            "The log density is finite at a draw of the guide: look for sqrt, abs or norm at 0, or a guide with a scale of 0"
        )
    )
    return StartError(text + ("" if text.endswith("?") else "."))


def whole_number(name, value, least):
    """Refuse what is no whole number, or too small."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ModelError(f"{name}={value!r}: give a whole number, at least {least}")
