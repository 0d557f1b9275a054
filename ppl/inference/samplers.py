"""The samplers as users call them: `hmc`, `nuts`, `metropolis`.

Each describes a `chains.Job`, runs it and returns a `Posterior`.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ppl.errors import DataError, ModelError, listed, suggest
from ppl.inference import cache, chains, checkpoint, chunk, concerns, hosts, rows, spread, whitening
from ppl.inference import mesh as meshes
from ppl.inference.fit import Fit
from ppl.inference.labels import tidy_labels
from ppl.inference.posterior import Posterior
from ppl.inference.progress import Progress
from ppl.inference.start import Layout, no_start, seed_words
from ppl.tracing.bind import Bound, bind
from ppl.tracing.handle import model_name
from ppl.version import versions

METRICS = ("auto", *whitening.METRICS)
DENSE_MOST = 32  # free numbers up to which a dense metric costs little


def nuts(
    model: Callable[..., Any],
    data: Mapping[str, Any] | None = None,
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 400,
    seed: Any = 0,
    init: Mapping[str, Any] | Fit | None = None,
    keep: Sequence[str] | None = None,
    track: Callable[[dict], dict] | None = None,
    thin: int = 1,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike | None = None,
    keep_warmup: bool = False,
    mesh: jax.sharding.Mesh | None = None,
    sharding: Mapping[str, Any] | None = None,
    target_accept: float = 0.8,
    max_depth: int = 10,
    step_size: float | None = None,
    metric: str = "auto",
) -> Posterior:
    """Sample the posterior by the No-U-Turn Sampler. Two arguments are enough: `infer.nuts(model, data)`.

      >>> posterior = infer.nuts(coin, tosses, progress=False)
      >>> posterior["p"].shape, round(float(posterior["p"].mean()), 1)
      ((4, 1000), 0.7)

    Args:
      model: a generator function that yields random variables.
      data: one mapping: arguments of the model, and values of the random variables to observe.
      chains: how many chains.
      draws: how many draws each chain keeps.
      warmup: how many transitions each chain makes before, to tune itself; they are not kept.
      seed: an int, or a jax key of either kind. The same seed gives the same draws.
      init: starting values on the natural scale, by name; the rest starts at random. With a leading axis of length
        `chains`, one for each chain. Or a `Fit`: chains start at draws of it.
      keep: names of the variables whose draws are kept; by default all. With `keep`, running means and standard
        deviations of all variables are in `posterior.moments`, and memory does not grow with the number of draws.
      track: a function of `{name: value}` that returns a dict of arrays; recorded for each draw in `posterior.tracked`.
      thin: keep every `thin`-th draw.
      dims: names of the axes of variables, `{"theta": ["school"]}`.
      coords: labels along these axes, `{"school": names}`.
      progress: False for none; by default one line on standard error.
      checkpoint: a file. The run is saved there now and then and at its end; the same call again goes on from it, also
        inside warm-up, and with more `draws` it adds draws. Draws are those of an uninterrupted run, bit for bit.
      keep_warmup: whether `posterior.warmup` keeps the draws of the warm-up.
      mesh: devices to run on, such as `jax.make_mesh((2, 4), ("chains", "rows"))`. An axis called `chains` spreads chains.
      sharding: `{name: jax.sharding.PartitionSpec}` of entries of `data` and of latent variables alike, over axes of the
        mesh. Data that already carry a `NamedSharding` need no entry. The model stays as it is, and so do its draws, up
        to the rounding of sums.
      target_accept: the mean acceptance that the step size is tuned for; closer to 1 means smaller steps.
      max_depth: at most `2**max_depth` gradients a draw.
      step_size: the first step size; with `warmup=0` the one that is used. By default it is searched.
      metric: "diagonal", "dense" (both from draws and gradients) or "identity". By default dense for up to 32 free numbers in
        one place, which takes fewer gradients, and diagonal for more.

    Multinomial NUTS with the generalized U-turn criterion, iterative. References: Hoffman and Gelman (2014), JMLR 15;
    Betancourt (2017), arXiv 1701.02434; Seyboldt, Carlson, Carpenter (2026), arXiv 2603.18845 for the metric.

    Raises:
      ModelError: a name, a shape or a role does not fit; a latent variable is discrete.
      DataError: an entry of `data` cannot be used.
      StartError: no starting point with a finite density was found.
    """
    job = _job(
        "nuts", chains=chains, draws=draws, warmup=warmup, thin=thin, keep=keep, track=track, keep_warmup=keep_warmup,
        metric=metric, step_size=step_size, target_accept=target_accept, max_depth=max_depth,
    )  # fmt: skip
    return _run(job, model, data, seed, init, dims, coords, progress, checkpoint, mesh, sharding)


def hmc(
    model: Callable[..., Any],
    data: Mapping[str, Any] | None = None,
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 400,
    seed: Any = 0,
    init: Mapping[str, Any] | Fit | None = None,
    keep: Sequence[str] | None = None,
    track: Callable[[dict], dict] | None = None,
    thin: int = 1,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike | None = None,
    keep_warmup: bool = False,
    mesh: jax.sharding.Mesh | None = None,
    sharding: Mapping[str, Any] | None = None,
    target_accept: float = 0.9,
    num_steps: int | None = None,
    step_size: float | None = None,
    metric: str = "auto",
) -> Posterior:
    """Sample the posterior by Hamiltonian Monte Carlo. Two arguments are enough: `infer.hmc(model, data)`.

      >>> posterior = infer.hmc(coin, tosses, chains=2, progress=False)
      >>> posterior.summary().rows, posterior.warnings()
      (('p',), [])

    Args:
      model: a generator function that yields random variables.
      data: one mapping: arguments of the model, and values of the random variables to observe.
      chains: how many chains.
      draws: how many draws each chain keeps.
      warmup: transitions before, to tune itself.
      seed: an int, or a jax key of either kind.
      init: starting values, as in `nuts`.
      keep: names of the variables to keep, as in `nuts`.
      track: a function recorded for each draw, as in `nuts`.
      thin: keep every `thin`-th draw.
      dims: names of the axes of variables.
      coords: labels along these axes.
      progress: False for none.
      checkpoint: a file to save to and to go on from, as in `nuts`.
      keep_warmup: whether `posterior.warmup` keeps the draws of the warm-up.
      mesh: devices to run on, as in `nuts`.
      sharding: what lies on which of them, as in `nuts`.
      target_accept: the mean acceptance that the step size is tuned for; closer to 1 means smaller steps.
      num_steps: leapfrog steps of each trajectory. By default the length is learned in warm-up, from the times at which
        trajectories turn back, and drawn anew for each trajectory.
      step_size: the first step size; with `warmup=0` the one that is used. By default it is searched.
      metric: "diagonal", "dense" (both from draws and gradients) or "identity". By default dense for up to 32 free numbers in
        one place, which takes fewer gradients, and diagonal for more.

    References: Neal (2011), Handbook of MCMC, ch. 5; Wu, Stoehr, Robert (2018), arXiv 1810.04449 for the
    trajectory length.

    Raises:
      ModelError: a name, a shape or a role does not fit; a latent variable is discrete.
      DataError: an entry of `data` cannot be used.
      StartError: no starting point with a finite density was found.
    """
    job = _job(
        "hmc", chains=chains, draws=draws, warmup=warmup, thin=thin, keep=keep, track=track, keep_warmup=keep_warmup,
        metric=metric, step_size=step_size, target_accept=target_accept, num_steps=num_steps,
    )  # fmt: skip
    return _run(job, model, data, seed, init, dims, coords, progress, checkpoint, mesh, sharding)


def metropolis(
    model: Callable[..., Any],
    data: Mapping[str, Any] | None = None,
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 400,
    seed: Any = 0,
    init: Mapping[str, Any] | Fit | None = None,
    keep: Sequence[str] | None = None,
    track: Callable[[dict], dict] | None = None,
    thin: int = 1,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike | None = None,
    keep_warmup: bool = False,
    mesh: jax.sharding.Mesh | None = None,
    sharding: Mapping[str, Any] | None = None,
    target_accept: float | None = None,
    scale: float | None = None,
) -> Posterior:
    """Sample the posterior by random-walk Metropolis: many cheap steps in many chains, every position kept.

    Args:
      model: a generator function that yields random variables.
      data: one mapping: arguments of the model, and values of the random variables to observe.
      chains: how many chains.
      draws: how many draws each chain keeps.
      warmup: transitions before, to tune itself.
      seed: an int, or a jax key of either kind.
      init: starting values, as in `nuts`.
      keep: names of the variables to keep, as in `nuts`.
      track: a function recorded for each draw, as in `nuts`.
      thin: keep every `thin`-th draw.
      dims: names of the axes of variables.
      coords: labels along these axes.
      progress: False for none.
      checkpoint: a file to save to and to go on from, as in `nuts`.
      keep_warmup: whether `posterior.warmup` keeps the draws of the warm-up.
      mesh: devices to run on, as in `nuts`.
      sharding: what lies on which of them, as in `nuts`.
      target_accept: the mean acceptance that the scale is tuned for; closer to 1 means smaller steps. By default 0.44 for
        one free number and 0.234 for more.
      scale: standard deviation of the proposal on free space; with `warmup=0` the one that is used. By default it is
        learned in warm-up, for each variable.

    References: Metropolis et al. (1953), J. Chem. Phys. 21; Roberts, Gelman, Gilks (1997), Ann. Appl. Probab. 7, for
    the acceptance.

    Raises:
      ModelError: a name, a shape or a role does not fit; a latent variable is discrete.
      DataError: an entry of `data` cannot be used.
      StartError: no starting point with a finite density was found.
    """
    job = _job(
        "metropolis", chains=chains, draws=draws, warmup=warmup, thin=thin, keep=keep, track=track, keep_warmup=keep_warmup,
        target_accept=target_accept, scale=scale,
    )  # fmt: skip
    return _run(job, model, data, seed, init, dims, coords, progress, checkpoint, mesh, sharding)


def _job(kernel, *, keep, num_steps=None, target_accept=None, max_depth=10, metric="diagonal", **fields):
    """Return a checked `chains.Job`."""
    for name, least in (("chains", 1), ("draws", 0), ("warmup", 0), ("thin", 1)):
        value = fields[name]
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ModelError(f"{name}={value!r}: give a whole number, at least {least}")
    for name in ("step_size", "scale"):
        value = fields.get(name)
        if value is not None and not np.all((np.asarray(value) > 0) & np.isfinite(np.asarray(value))):
            raise ModelError(f"{name}={value!r} must be positive")
    if target_accept is not None and not 0 < target_accept < 1:
        usual = "0.234 is usual, 0.44 for one number" if kernel == "metropolis" else "0.8 is usual, 0.95 careful"
        raise ModelError(f"target_accept={target_accept!r} must be between 0 and 1; {usual}")
    if num_steps is not None and (not isinstance(num_steps, int | np.integer) or num_steps < 1):
        raise ModelError(f"num_steps={num_steps!r}: give a whole number, at least 1")
    if not isinstance(max_depth, int | np.integer) or not 1 <= max_depth <= 10:
        raise ModelError(f"max_depth={max_depth!r}: give a whole number from 1 to 10")
    if metric not in METRICS:
        raise ModelError(f"metric={metric!r} is none of {listed(map(repr, METRICS))}.{suggest(metric, METRICS)}")
    if isinstance(keep, str):
        raise ModelError(f"keep={keep!r}: give a list of names, [{keep!r}]")
    options = chunk.options(
        num_warmup=fields["warmup"], target_accept=target_accept, max_depth=max_depth, num_steps=num_steps
    )
    settings = dict(num_steps=num_steps, target_accept=target_accept)
    if kernel == "nuts":
        settings["max_depth"] = max_depth
    job = chains.Job(kernel, keep=None if keep is None else tuple(keep), metric=metric, options=options, **fields)
    return job, settings


def _run(job_settings, model, data, seed, init, dims, coords, progress, path, mesh, sharding):
    """Run a job from model to result, on one device or on a mesh."""
    board, data = spread.board(mesh, sharding, data)
    with contextlib.nullcontext() if board is None else board.active:
        posterior = _run_on(board, job_settings, model, data, seed, init, dims, coords, progress, path)
    if board is None or not hosts.several():  # of several processes none prints on its own
        concerns.warn(posterior.warnings())
    return posterior


def _run_on(board, job_settings, model, data, seed, init, dims, coords, progress, path):
    began = time.perf_counter()
    job, settings = job_settings
    cache.enable()
    bound = bind(model, data)
    layout = Layout.of(bound.structure)
    known = bound.structure.recorded
    for name in job.keep or ():
        if name not in known:
            raise ModelError(
                f"keep has {name!r}, which is no random variable to keep ({listed(known)}).{suggest(name, known)}"
            )
    if hasattr(init, "starts"):  # a fit
        init = init.starts(job.chains, seed)
    words = seed_words(seed)
    dims, coords = _labels(bound, dims, coords)
    driver, arrays, where, together = chains, None, (), None
    if board is None:
        job = _with_metric(job, layout)
    else:
        placed = spread.Spread.of(board, bound)
        job = _with_metric(job, layout, placed.flat)
        spread.refuse_whole(job, placed, path)
        if hosts.several():
            together = hosts.Together(hosts.description(bound, placed, job, settings, words))
        driver, arrays, where = meshes, placed.lay(bound.arrays), (placed,)
    arrays = jax.device_put(bound.arrays) if arrays is None else arrays
    program = driver.prepare(bound, layout, job, *where)
    parts = driver.first_states(bound, layout, job, program, words, init)
    stored = None
    if path is not None:
        stored = checkpoint.Checkpoint(path, bound, job, {**settings, **getattr(program, "where", {})}, words)
        stored.restore(parts)
    line = Progress(job.transitions, job.warmup, job.chains, progress if hosts.first() else False)
    more = {} if together is None else {"together": together}
    try:
        outcome = driver.run(parts, arrays, line, save=None if stored is None else lambda: stored.save(parts), **more)
    except BaseException:
        line.close("stopped by an error")
        raise
    failed = next((c for c in parts if c.failed), None)
    if failed is not None:
        line.close("no start found")
        raise no_start(bound, layout, *failed.failure())
    line.close("interrupted" if outcome.interrupted else None)
    return _posterior(bound, job, settings, words, dims, coords, parts, outcome, time.perf_counter() - began)


def _with_metric(job, layout, whole=True):
    """Return the job with the metric that "auto" stands for; `whole` says that each device has all of a position."""
    if job.metric != "auto":
        return job
    return dataclasses.replace(job, metric="dense" if whole and layout.size <= DENSE_MOST else "diagonal")


def _posterior(bound, job, settings, words, dims, coords, parts, outcome, seconds):
    """Put the chains together."""
    structure = bound.structure
    count = min(c.kept for c in parts)
    count_warmup = min(c.kept_warmup for c in parts)

    drawn = parts[0].rows
    draws, stats = drawn.get("draws", "value", count), drawn.get("draws", "stats", count)
    if not count:
        draws = _empty(structure, job)
    moments = rows.moments(parts)
    state = checkpoint.flat_states(parts)
    warmup = None
    if job.keep_warmup:
        warmup = {
            "draws": drawn.get("warmup", "value", count_warmup),
            "stats": drawn.get("warmup", "stats", count_warmup),
        }
    if job.kernel != "metropolis":
        inverse = [c.inverse_metric() for c in parts]
        state |= {name: spread.joined([m[name] for m in inverse], [c.numbers for c in parts]) for name in inverse[0]}
    return Posterior(
        draws=draws,
        stats=stats,
        dims=dims,
        coords=coords,
        settings={
            "algorithm": job.kernel,
            "model": model_name(structure.model),
            "chains": job.chains,
            "draws": job.draws,
            "warmup": job.warmup,
            "thin": job.thin,
            "metric": job.metric,
            "latents": list(structure.latents),
            "observed": list(structure.observed),
            **getattr(parts[0].program, "where", {}),
            **{k: v for k, v in settings.items() if v is not None},
        },
        timings={
            "compile": outcome.compile_seconds,
            "warmup": sum(c.warmup_seconds for c in parts),
            "sampling": sum(c.seconds - c.warmup_seconds for c in parts),
            "total": seconds,
        },
        seed=[int(w) for w in words],
        versions=versions(),
        state=state,
        warmup=warmup,
        interrupted=outcome.interrupted,
        tracked=drawn.get("draws", "track", count),
        moments=moments,
        roles={n: "derived" if n in structure.derived else "latent" for n in draws},
    )


def _empty(structure, job):
    every = {**structure.latents, **structure.derived}
    return {
        n: np.zeros((job.chains, 0, *every[n].shape), every[n].dtype)
        for n in structure.recorded
        if job.keep is None or n in job.keep
    }


def _labels(bound: Bound, dims, coords):
    """Return dims and coords, with those that labelled arrays in `data` bring along; refuse wrong ones before the run."""
    found, labels = {}, {}
    for name, axes in bound.parts.labels.items():
        if all(dim for dim, _ in axes):
            found[name] = tuple(dim for dim, _ in axes)
        for dim, values in axes:
            if dim and values is not None:
                if dim in labels and list(labels[dim]) != list(values):
                    raise DataError(f"data[{name!r}] labels the axis {dim!r} otherwise than another entry of data does")
                labels[dim] = values
    structure = bound.structure
    shapes = {n: v.shape for n, v in {**structure.latents, **structure.derived}.items()}
    for name in dims or {}:
        if name not in structure.families:
            raise ModelError(
                f"dims has {name!r}, which is no random variable ({listed(structure.families)}).{suggest(name, shapes)}"
            )
    return tidy_labels(shapes, {**found, **(dims or {})}, {**labels, **(coords or {})})
