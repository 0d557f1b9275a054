"""The driver: one loop for every sampler.

It binds the model to its data, compiles one program for warm-up and draws (`chunk`), and runs chains in chunks of
some 75 milliseconds. Between chunks Python has the control: that is what progress, Ctrl-C, checkpoints and time
limits rest on, and no callback is needed inside compiled code. On a CPU chains run in parallel threads (compiled code
runs without Python's lock), any number of chains in turn; elsewhere they run batched.

Draws depend on the seed, the chain and the number of the draw alone: not on chunks, threads, progress or checkpoints.
"""

import concurrent.futures
import dataclasses
import os
import threading
import time
from typing import Any

import jax
import numpy as np

from ppl.inference import cache, chunk
from ppl.inference.start import starts
from ppl.tracing.handle import model_name

CHUNK_SECONDS = 0.075
CHUNK_BYTES = 8e6
MANY = 32  # chains from which on several of them share a call
FIRST_CHUNK, GROWTH = 32, 8  # transitions before the speed is known; how much longer the next chunk may be
CHECKPOINT_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class Job:
    """What one call of a sampler asks for; see `ppl.infer.nuts` for the meaning of each."""

    kernel: str
    chains: int
    draws: int
    warmup: int
    thin: int = 1
    metric: str = "diagonal"
    keep: tuple | None = None
    track: Any = None
    keep_warmup: bool = False
    step_size: float | None = None
    scale: Any = None
    options: Any = None

    @property
    def transitions(self):
        """How many transitions each chain makes."""
        return self.warmup + self.draws * self.thin


class Program:
    """The compiled chunk of one bound model, and how many chains one call of it moves."""

    def __init__(self, bound, layout, job, block):
        structure = bound.structure
        self.block, self.compiled = block, False
        self.speed = 0.0  # transitions a second, of the latest chunk of any chain
        self.title = f"{job.kernel} of {model_name(structure.model)}"
        names = structure.recorded
        self.kept = names if job.keep is None else tuple(n for n in names if n in job.keep)
        wide = job.keep is not None or job.track is not None  # then moments or functions of everything are wanted

        def log_density(vector, arrays):
            return structure.log_density(layout.apart(vector), arrays)

        def record(vector, arrays):
            values = structure.record(layout.apart(vector), arrays, None if wide else self.kept)
            out = {"value": values}
            if job.track is not None:
                out["track"] = job.track(values)
            return out

        shapes = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in bound.arrays.items()}
        row = jax.eval_shape(record, jax.ShapeDtypeStruct((layout.size,), layout.dtype), shapes)
        row_bytes = sum(np.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(row)) * (block or 1)
        turns = block is not None and waits(job)
        most = 1000 if block is None else max(16, 8000 // block) if turns else 8000
        self.length = int(np.clip(CHUNK_BYTES // max(row_bytes, 1), 1, most))
        run = chunk.build(
            job.kernel, log_density, record, length=self.length, metric=job.metric, thin=job.thin,
            keep_warmup=job.keep_warmup, chains=None if turns else block,
        )  # fmt: skip
        run = chunk.in_turn(run) if turns else run
        self.call = jax.jit(run, donate_argnums=0, compiler_options=compiler_options())


def compiler_options():
    """Return XLA options that compile a sampler faster at equal speed."""
    return {"xla_backend_optimization_level": 2} if jax.default_backend() == "cpu" else None


def workers():
    """Return how many chains may run at once: the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def waits(job):
    """Tell whether chains in lockstep would wait for each other, where that costs more than it saves."""
    return job.kernel != "metropolis" and jax.default_backend() == "cpu"


def block_size(job):
    """Return how many chains one call moves, or None for one chain without a batch axis.

    On a CPU, chains of a sampler whose trajectories differ in length would wait for each other in lockstep: they run one
    by one, and where they are many, a block of them in turn, which saves the cost of calls. Metropolis steps all cost
    the same and go in lockstep, as all chains do on other devices.
    """
    if jax.default_backend() != "cpu":
        return job.chains
    parts = min(workers(), job.chains)
    if not waits(job):
        return None if job.chains == 1 else job.chains // parts if job.chains % parts == 0 else job.chains
    if job.chains < MANY:
        return None
    return max(d for d in range(1, job.chains // parts + 1) if job.chains % d == 0)


def prepare(bound, layout, job):
    """Return the `Program` for a job, compiled for an earlier one if that differed in numbers only."""
    block = block_size(job)
    key = (job.kernel, job.metric, job.thin, job.keep, job.track, job.keep_warmup, block)
    programs = bound.structure.compiled
    if key not in programs:
        programs[key] = Program(bound, layout, job, block)
    return programs[key]


class Rows:
    """What all chains drew: `{(group, kind, name): [chain, draw, ...]}`, each array made when its first draw arrives."""

    def __init__(self, job):
        self.job, self.arrays, self._lock = job, {}, threading.Lock()

    def put(self, key, first, at, value):
        """Write rows [chain, draw, ...] of the chains from `first` on, at draw `at`."""
        total = self.job.warmup if key[0] == "warmup" else self.job.draws
        with self._lock:
            if key not in self.arrays:
                self.arrays[key] = np.empty((self.job.chains, total, *value.shape[2:]), value.dtype)
        value = value[:, : total - at]
        self.arrays[key][first : first + value.shape[0], at : at + value.shape[1]] = value

    def stored(self, filled):
        """Return the first rows of everything, as many as are filled: `{"draws": count, "warmup": count}`."""
        return {key: rows[:, : filled[key[0]]] for key, rows in self.arrays.items()}

    def get(self, group, kind, count):
        """Return the first `count` rows of a kind by name."""
        return {name: array[:, :count] for (g, k, name), array in self.arrays.items() if (g, k) == (group, kind)}


class Chain:
    """The state of one chain, or of one block of chains, as it runs, and the way of its draws into `rows`."""

    def __init__(self, program, job, first, state, rows):
        self.program, self.job, self.first, self.state, self.rows = program, job, first, state, rows
        self.numbers = range(first, first + (program.block or 1))
        self.done = self.kept = self.kept_warmup = 0
        self.divergences = np.zeros(program.block or 1, int)
        self.gradients = np.zeros(program.block or 1)
        self.moments = {}  # name -> running [count, mean, sum of squares] per chain
        self.phase = np.zeros(program.block or 1, int)
        self.step_size, self.seconds, self.warmup_seconds = np.nan, 0.0, 0.0
        self.chunk = max(FIRST_CHUNK, int(program.speed * CHUNK_SECONDS))

    def advance(self, arrays):
        """Make one chunk of transitions and keep what it drew. Called from worker threads."""
        job, program = self.job, self.program
        before = self.done
        limit = job.warmup - before if before < job.warmup and not job.keep_warmup else job.transitions - before
        rows_left = program.length if before < job.warmup and not job.keep_warmup else program.length * job.thin
        n = self.agree(int(max(1, min(self.chunk, limit, rows_left))))
        began = time.perf_counter()
        self.state, outputs = program.call(self.state, arrays, np.int32(n), job.options)
        outputs = self.fetch(outputs)
        took = time.perf_counter() - began
        done = int(outputs["done"])
        self.done += done
        self.seconds += took
        if before < job.warmup:
            self.warmup_seconds += took
        if program.compiled and took > 0 and done:
            program.speed = done / took
            self.chunk = int(np.clip(program.speed * CHUNK_SECONDS, 1, GROWTH * self.chunk))
        self.phase = np.atleast_1d(outputs["phase"])
        self.step_size = float(np.mean(outputs["step_size"]))
        self.divergences = self.divergences + np.atleast_1d(outputs["divergences"])
        self.gradients = self.gradients + np.atleast_1d(outputs["gradients"])
        if outputs["kept"]:
            self._keep(outputs, before)
        return done

    def agree(self, n):
        """Return the number of transitions of the next chunk; on several hosts all take the first one's."""
        return n

    def fetch(self, outputs):
        """Return the outputs of a call as numpy arrays; `draws` and `stats` only if any were kept."""
        rows = {name: outputs.pop(name) for name in ("draws", "stats")}
        outputs = jax.device_get(outputs)
        return {**outputs, **jax.device_get(rows)} if outputs["kept"] else outputs

    def extra(self):
        """Return what a checkpoint keeps besides the state, arrays by name."""
        return {}

    def adopt_extra(self, stored):
        """Go on from what a checkpoint kept besides the state."""

    def adopt(self, state):
        """Go on from a state of numpy arrays."""
        self.state = state

    def host_state(self):
        """Return the state as numpy arrays."""
        return jax.tree.map(np.asarray, jax.device_get(self.state))

    def inverse_metric(self):
        """Return `{"inv_metric": [chain, ...]}`."""
        found = np.asarray(chunk.inverse_metric(self.state))
        return {"inv_metric": found if self.program.block else found[None]}

    def failure(self):
        """Return the last start that was tried by a chain that found none, as one vector, and how many were."""
        state = jax.device_get(self.state)
        position, attempt = state.chain.kernel.position, state.chain.attempt
        if self.program.block:
            row = int(np.argmax(np.asarray(state.chain.phase) == chunk.FAILED))
            position, attempt = position[row], np.asarray(attempt)[row]
        return position, int(attempt)

    def _keep(self, outputs, before):
        job, kept = self.job, int(outputs["kept"])
        split = min(max(job.warmup - before, 0), kept) if job.keep_warmup else 0
        draws, stats = outputs["draws"], chunk.statistics(job.kernel, outputs)
        for group, part in (("warmup", slice(0, split)), ("draws", slice(split, kept))):
            if part.stop <= part.start:
                continue
            for name in self.program.kept:
                self._write(group, "value", name, draws["value"][name][part])
            for name, value in stats.items():
                self._write(group, "stats", name, value[part])
            if job.track is not None:
                for name, value in draws["track"].items():
                    self._write(group, "track", name, value[part])
            if group == "draws" and job.keep is not None:
                for name, value in draws["value"].items():
                    self._accumulate(name, self._by_chain(value[part]))
        self.kept += kept - split
        self.kept_warmup += split

    def _by_chain(self, value):
        """Return rows [draw, ...] or [draw, chain, ...] as [chain, draw, ...]."""
        return value[None] if self.program.block is None else np.moveaxis(value, 0, 1)

    def _write(self, group, kind, name, value):
        at = self.kept if group == "draws" else self.kept_warmup
        self.rows.put((group, kind, name), self.first, at, self._by_chain(value))

    def _accumulate(self, name, value):
        """Add draws to the running moments (Chan, Golub, LeVeque 1979)."""
        value = value.astype(float)
        count, mean = value.shape[1], value.mean(1)
        square = ((value - mean[:, None]) ** 2).sum(1)
        if name in self.moments:
            count0, mean0, square0 = self.moments[name]
            delta, total = mean - mean0, count0 + count
            square = square + square0 + delta**2 * (count0 * count / total)
            mean, count = mean0 + delta * (count / total), total
        self.moments[name] = (count, mean, square)

    @property
    def finished(self):
        """Whether all transitions were made."""
        return self.done >= self.job.transitions

    @property
    def failed(self):
        """Whether no start was found, for one of its chains."""
        return bool((self.phase == 3).any())


def first_states(bound, layout, job, program, words, init):
    """Return the `Chain`s of a run, at their starts."""
    vectors, free = starts(bound, layout, init, job.chains)
    job = dataclasses.replace(job, options=jax.device_put(job.options))  # once, and not in each call
    out, rows = [], Rows(job)
    for first in range(0, job.chains, program.block or 1):
        block = slice(first, first + (program.block or 1))
        start, may_draw = (vectors[block], free[block]) if program.block else (vectors[first], free[first])
        state = chunk.initial_state(
            job.kernel, start, may_draw, words, first, metric=job.metric, step_size=job.step_size, scale=job.scale,
            chains=program.block, redraw_first=True,
        )  # fmt: skip
        out.append(Chain(program, job, first, state, rows))
    return out


@dataclasses.dataclass
class Outcome:
    """How a run went: whether it was stopped early, and the seconds of compiling."""

    interrupted: bool
    compile_seconds: float


def run(chains, arrays, progress, save=None):
    """Run all chains to their ends, in chunks, in parallel threads. Ctrl-C ends it early and keeps what was drawn.

    Args:
      chains: a list of `Chain`.
      arrays: the model's data on the device.
      progress: a `Progress`.
      save: called about every half minute, and at the end, when no chain moves; or None.
    """
    saved = time.perf_counter()
    interrupted, compile_seconds = False, 0.0
    pool = concurrent.futures.ThreadPoolExecutor(
        max_workers=min(workers(), len(chains)), thread_name_prefix="ppl-chain"
    )
    try:
        with cache.healing():
            unfinished = [c for c in chains if not c.finished]
            if unfinished and not unfinished[0].program.compiled:
                compile_seconds = _first(pool, unfinished[0], arrays, progress)
            running = {pool.submit(c.advance, arrays): c for c in chains if not c.finished and not c.failed}
            while running:
                done, _ = concurrent.futures.wait(running, timeout=0.5, return_when=concurrent.futures.FIRST_COMPLETED)
                due = save is not None and time.perf_counter() - saved > CHECKPOINT_SECONDS
                for future in done:
                    chain = running.pop(future)
                    future.result()
                    _report(progress, chain)
                    if not (chain.finished or due or any(c.failed for c in chains)):
                        running[pool.submit(chain.advance, arrays)] = chain
                if due and not running:
                    save()
                    saved = time.perf_counter()
                    running = {pool.submit(c.advance, arrays): c for c in chains if not c.finished and not c.failed}
    except KeyboardInterrupt:
        interrupted = True
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    if save is not None:
        save()
    return Outcome(interrupted, compile_seconds)


def _first(pool, chain, arrays, progress):
    """Compile by making a chain's first chunk in a thread, so that Ctrl-C and the progress line stay alive."""
    began, program = time.perf_counter(), chain.program
    progress.compiling(cache.seconds_last_time(program.title))
    future = pool.submit(chain.advance, arrays)
    while not future.done():
        concurrent.futures.wait([future], timeout=0.2)
    future.result()
    took = time.perf_counter() - began
    cache.remember_seconds(program.title, took)
    program.compiled = True
    _report(progress, chain)
    return took


def _report(progress, chain):
    for number, divergences, gradients in zip(chain.numbers, chain.divergences, chain.gradients, strict=True):
        progress.update(int(number), chain.done, int(divergences), chain.step_size, float(gradients))
