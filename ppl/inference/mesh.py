"""The driver on a mesh: one compiled program for all devices, chains over the axis `chains`, everything else over the rest.

The axis `chains` is manual (`shard_map`): each group of devices runs chains of its own and never waits for another group
inside a chunk. All other axes are automatic: the compiler divides the model as its data and latent variables are laid
out, and puts in the sums over devices. A position stays a tuple of arrays where a latent variable is divided, so that
its momentum, its metric and its draws lie where it lies; else it is the one vector of `chains`.

Calls are made one after another, since programs that exchange numbers between devices must start in one order on all of
them. Chains that belong to one group take turns, or move together where all cost the same (`together`).

Random numbers are those of `chains`, bit for bit, on every mesh; sums over devices agree to rounding.
"""

import concurrent.futures
import contextlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from ppl.inference import cache, chains, chunk, whitening
from ppl.inference.centering import Centers, arrays_of, centered, centered_sites
from ppl.inference.rows import Rows
from ppl.inference.spread import groups
from ppl.inference.start import starts
from ppl.sharding import CHAINS, gather, put, settled, spelled
from ppl.tracing.handle import model_name

BUFFER_BYTES = 1e6  # of the draws of one call: gradients are costly here, so few draws are made, and buffers are copied


def together(job):
    """Tell whether the chains of one group move in lockstep: where none would wait for another, or an accelerator waits anyway."""
    fixed = job.kernel == "metropolis" or (job.kernel == "hmc" and int(job.options.num_steps) > 0)
    return fixed or jax.default_backend() != "cpu"


class Program:
    """The compiled chunk of a model on a mesh. One call moves `block` chains: `width` in each group, or one.

    Args:
      bound: the bound model.
      layout: the `start.Layout` of its free values.
      job: the `chains.Job`.
      spread: the `Spread`.
    """

    def __init__(self, bound, layout, job, spread):
        structure, board = bound.structure, spread.board
        self.spread, self.layout, self.compiled = spread, layout, False
        self.speed = 0.0  # transitions a second, of the latest chunk
        per_group = groups(spread, job.chains)
        self.width = per_group if together(job) and per_group > 1 else None
        self.block = board.groups * (self.width or 1)
        self.where = {"mesh": dict(board.mesh.shape), "sharding": {n: spelled(spec) for n, spec in board.specs}}
        self.turns = job.chains // self.block
        self.title = f"{job.kernel} of {model_name(structure.model)} on {board.mesh.size} devices"
        names = structure.recorded
        self.kept = names if job.keep is None else tuple(n for n in names if n in job.keep)
        wide = job.keep is not None or job.track is not None

        def free_values(position):
            values = layout.apart(position) if spread.flat else dict(zip(layout.shapes, position, strict=True))
            return spread.constrained(values, spread.free)

        def log_density(position, arrays):
            if not self.centered:
                return structure.log_density(free_values(position), arrays)
            return centered(structure, free_values(position), arrays, self.centered)[0]

        def record(position, arrays):
            values = structure.record(free_values(position), arrays, None if wide else self.kept)
            out = {"value": spread.constrained(values, spread.values)}
            if job.track is not None:
                out["track"] = spread.constrained(job.track(values), {})
            return out

        shapes = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in bound.arrays.items()}
        one = [jax.ShapeDtypeStruct(s, layout.dtype) for s in layout.shapes.values()]
        one = jax.ShapeDtypeStruct((layout.size,), layout.dtype) if spread.flat else tuple(one)
        row = jax.eval_shape(record, one, shapes)
        with_names = {n: jax.ShapeDtypeStruct(s, layout.dtype) for n, s in layout.shapes.items()}
        self.centered = centered_sites(structure, with_names, shapes)
        row_bytes = sum(np.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(row)) * (self.width or 1)
        self.length = int(np.clip(BUFFER_BYTES // max(row_bytes, 1), 1, 1000))
        run = chunk.build(
            job.kernel, log_density, record, length=self.length, metric=job.metric, thin=job.thin,
            keep_warmup=job.keep_warmup, chains=self.width,
        )  # fmt: skip

        def group(state, arrays, n, options):
            state, outputs = run(jax.tree.map(lambda x: x[0], state), arrays, n, options)
            return jax.tree.map(lambda x: jnp.expand_dims(x, 0), (state, outputs))

        def evaluate(state, arrays):
            def one(position):
                return centered(structure, free_values(position), arrays, self.centered)

            position = jax.tree.map(lambda x: x[0], state.chain.kernel.position)
            found = (one if self.width is None else jax.vmap(one))(position)
            return jax.tree.map(lambda x: jnp.expand_dims(x, 0), found)

        if board.chains:
            own, all_groups = PartitionSpec(CHAINS), PartitionSpec()
            group = jax.shard_map(
                group, mesh=board.mesh, in_specs=(own, all_groups, all_groups, all_groups), out_specs=own,
                axis_names={CHAINS}, check_vma=False,
            )  # fmt: skip
            evaluate = jax.shard_map(
                evaluate,
                mesh=board.mesh,
                in_specs=(own, all_groups),
                out_specs=own,
                axis_names={CHAINS},
                check_vma=False,
            )
        local = board.sharding().is_fully_addressable  # then the host puts the groups' numbers together
        everywhere = board.sharding(board.chains) if local else board.sharding()
        between = (None,) if self.width is None else (None, None)  # draws, and chains of a group
        value = {n: board.sharding(board.chains, *between, *spread.values[n]) for n in row["value"]}
        draws = {"value": value, **{k: jax.tree.map(lambda _: everywhere, row[k]) for k in row if k != "value"}}
        small = ("stats", "kept", "done", "divergences", "gradients", "phase", "step_size")
        self.state_shardings = None
        self._outputs = {"draws": draws, **dict.fromkeys(small, everywhere)}
        self._run = group
        self._evaluate = jax.jit(evaluate, out_shardings=(board.sharding(board.chains), everywhere))

    def call(self, state, arrays, n, options):
        """Run a chunk: `(state, outputs)`, each with a leading axis of groups."""
        if self.state_shardings is None:
            self.state_shardings = jax.tree.map(lambda x: x.sharding, state)
            self._jitted = jax.jit(
                self._run, donate_argnums=0, compiler_options=chains.compiler_options(),
                out_shardings=(self.state_shardings, self._outputs),
            )  # fmt: skip
        with self.spread.board.active:
            return self._jitted(state, arrays, n, options)

    def evaluate(self, state, arrays):
        """Return the log densities of all chains of a state, and the sums of their centered terms."""
        with self.spread.board.active:
            return jax.block_until_ready(self._evaluate(state, arrays))

    def compiled_text(self, state, arrays, n, options):
        """Return the program that the compiler made, as text: what tests and `plan` count exchanges in."""
        shardings = jax.tree.map(lambda x: x.sharding, state)
        with self.spread.board.active:
            jitted = jax.jit(
                self._run, donate_argnums=0, compiler_options=chains.compiler_options(),
                out_shardings=(shardings, self._outputs),
            )  # fmt: skip
            return jitted.lower(state, arrays, n, options).compile().as_text()

    def on_devices(self, state):
        """Return a state built in numpy, with a leading axis of groups, on its devices."""
        board, free = self.spread.board, list(self.spread.free.values())
        ndims = [len(shape) for shape in self.layout.shapes.values()]

        def one(path, leaf):
            leaf, last = np.asarray(leaf), path[-1]
            tail = (None,) * (leaf.ndim - 1)
            if not self.spread.flat and isinstance(
                last, jax.tree_util.SequenceKey
            ):  # an entry of a tuple like the position
                ndim = ndims[last.idx]
                spec = (*free[last.idx], *(None,) * ndim)[:ndim]
                tail = (*(None,) * (leaf.ndim - 1 - ndim), *spec)
            return put(leaf, board.sharding(board.chains, *tail))

        return jax.tree_util.tree_map_with_path(one, state)


def prepare(bound, layout, job, spread):
    """Return the `Program` for a job, compiled for an earlier one if that differed in numbers only."""
    key = (
        "mesh",
        spread.key,
        job.kernel,
        job.metric,
        job.thin,
        job.keep,
        job.track,
        job.keep_warmup,
        together(job),
        job.chains,
    )
    programs = bound.structure.compiled
    if key not in programs:
        programs[key] = Program(bound, layout, job, spread)
    return programs[key]


class Block(chains.Chain):
    """The chains that one call moves: one of each group, or all."""

    def __init__(self, program, job, turn, state, rows):
        super().__init__(program, job, 0, state, rows)
        per_group = job.chains // program.spread.board.groups
        within = np.arange(per_group) if program.width else np.array([turn])
        self.turn, self.within = turn, within
        self.first = turn
        self.centers = rows.centers
        self.numbers = (np.arange(program.spread.board.groups)[:, None] * per_group + within[None]).ravel()

    def fetch(self, outputs):
        """Return the outputs of a call as the driver wants them; draws of divided variables stay on their devices."""
        draws, stats = outputs.pop("draws"), outputs.pop("stats")
        small = {name: np.asarray(value) for name, value in outputs.items()}
        out = {name: small[name][0] for name in ("kept", "done")}
        out |= {name: small[name].ravel() for name in ("divergences", "gradients", "phase", "step_size")}
        if not out["kept"]:
            return out
        out["stats"] = self._merged(np.asarray(stats))
        out["draws"] = {
            kind: {
                name: value if self.rows.stays(kind, name) else self._merged(np.asarray(value))
                for name, value in values.items()
            }
            for kind, values in draws.items()
        }
        return out

    def _merged(self, value):
        """Return [group, draw, (chain,) ...] as [draw, chain of the block, ...]."""
        if self.program.width is None:
            return np.moveaxis(value, 0, 1)
        value = np.moveaxis(value, 1, 0)
        return value.reshape(value.shape[0], -1, *value.shape[3:])

    def _keep(self, outputs, before):
        job, kept = self.job, int(outputs["kept"])
        split = min(max(job.warmup - before, 0), kept) if job.keep_warmup else 0
        draws, stats = outputs["draws"], chunk.statistics(job.kernel, outputs)
        if self.centers.sizes:
            stats["lp"] = stats["lp"].astype(float) + self.centers.offset
            if "energy" in stats:
                stats["energy"] = stats["energy"].astype(float) - self.centers.offset
        for group, part in (("warmup", slice(0, split)), ("draws", slice(split, kept))):
            if part.stop <= part.start:
                continue
            at = self.kept if group == "draws" else self.kept_warmup
            kinds = {"value": {n: draws["value"][n] for n in self.program.kept}, "track": draws.get("track", {})}
            for kind, values in (*kinds.items(), ("stats", stats)):
                for name, value in values.items():
                    self.rows.write((group, kind, name), self, at, value, part)
            if group == "draws" and job.keep is not None:
                for name, value in draws["value"].items():
                    self.rows.accumulate(name, self, value, part)
        self.kept += kept - split
        self.kept_warmup += split

    def evaluate(self, arrays):
        """Return the log densities of its chains, and the sums of their centered terms."""
        return self.program.evaluate(self.state, arrays)

    def set_log_density(self, value):
        """Replace the log densities of its chains, except of those that are not evaluated yet."""
        kernel = self.state.chain.kernel
        value = jnp.where(jnp.isneginf(kernel.log_density), kernel.log_density, value)
        value = jax.device_put(value, kernel.log_density.sharding)
        self.state = self.state._replace(chain=self.state.chain._replace(kernel=kernel._replace(log_density=value)))

    def extra(self):
        """Return what a checkpoint keeps besides."""
        return self.centers.as_arrays() if self.centers.sizes else {}

    def adopt_extra(self, stored):
        """Go on from what a checkpoint kept besides."""
        if self.centers.sizes:
            self.centers.restore(stored)

    def adopt(self, state):
        """Go on from a state of numpy arrays."""
        self.state = self.program.on_devices(state)

    def host_state(self):
        """Return the state; what is divided between devices stays there."""
        return jax.tree.map(settled, self.state)

    def inverse_metric(self):
        """Return `{name: [chain of the block, ...]}`, divided entries on their devices."""
        spread = self.program.spread
        scale = self.state.chain.tuning.scale
        if spread.flat or not isinstance(scale, whitening.Diagonal):
            scale = jax.tree.map(gather, scale)
            found = jax.tree.leaves(chunk.inverse_metric(_with_scale(self.state, scale)))
        else:
            found = [settled(s) ** 2 for s in scale.scale]
        names = [""] if spread.flat else [f"/{n}" for n in self.program.layout.shapes]
        merged = (lambda x: x) if self.program.width is None else (lambda x: x.reshape(-1, *x.shape[2:]))
        return {f"inv_metric{name}": merged(value) for name, value in zip(names, found, strict=True)}

    def failure(self):
        """Return the last start that was tried by a chain that found none, as one vector, and how many were."""
        phase = gather(self.state.chain.phase)
        place = np.unravel_index(int(np.argmax(phase == chunk.FAILED)), phase.shape)
        parts = [np.ravel(gather(x)[place]) for x in jax.tree.leaves(self.state.chain.kernel.position)]
        return np.concatenate(parts), int(gather(self.state.chain.attempt)[place])


def _with_scale(state, scale):
    return state._replace(chain=state.chain._replace(tuning=state.chain.tuning._replace(scale=scale)))


def first_states(bound, layout, job, program, words, init):
    """Return the `Block`s of a run, at their starts."""
    vectors, free = starts(bound, layout, init, job.chains)
    board, rows, out = (
        program.spread.board,
        Rows(job, program.spread, program.length, Centers(program.centered, job.warmup)),
        [],
    )
    per_group = job.chains // board.groups
    shape = (lambda v: v) if program.spread.flat else (lambda v: tuple(layout.apart_numpy(v).values()))
    for turn in range(program.turns):
        parts = []
        for group in range(board.groups):
            first = group * per_group + turn
            own = first if program.width is None else slice(first, first + program.width)
            state = chunk.initial_state(
                job.kernel, shape(vectors[own]), shape(free[own]), words, first, metric=job.metric,
                step_size=job.step_size, scale=job.scale, chains=program.width, redraw_first=True,
            )  # fmt: skip
            parts.append(state)
        state = jax.tree.map(lambda *leaves: np.stack(leaves), *parts)
        out.append(Block(program, job, turn, program.on_devices(state), rows))
    return out


def run(blocks, arrays, progress, save=None, together=None):
    """Run all chains to their ends, in chunks, one block after another; see `chains.run`.

    Args:
      blocks: a list of `Block`.
      arrays: the model's data on its devices.
      progress: a `Progress`.
      save: called about every half minute and at the end, or None.
      together: the `hosts.Together` of several processes, or None.
    """
    saved, compile_seconds, interrupted = time.perf_counter(), 0.0, False
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="ppl-mesh")
    due = False

    centers, arrays = blocks[0].centers, dict(arrays)
    arrays.update(arrays_of(centers.values))

    def agree(n):
        nonlocal due
        due = time.perf_counter() - saved > chains.CHECKPOINT_SECONDS
        if together is not None:
            n, due = together.agree(n, due)
        return n

    for block in blocks:
        block.agree = lambda n, block=block: agree(n if pause is None else min(n, pause - block.done))
    pause = centers.next_pause
    try:
        with cache.healing(), contextlib.nullcontext() if together is None else together:
            if not any(b.done for b in blocks):
                compile_seconds = chains._first(pool, blocks[0], arrays, progress)
            while any(not b.finished for b in blocks) and not any(b.failed for b in blocks):
                if pause is not None and all(b.done >= pause for b in blocks):
                    centers.choose(blocks, arrays)
                    pause = centers.next_pause
                for block in blocks:
                    if block.finished or (pause is not None and block.done >= pause):
                        continue
                    future = pool.submit(block.advance, arrays)
                    while not future.done():
                        concurrent.futures.wait([future], timeout=0.5)
                    future.result()
                    chains._report(progress, block)
                    if block.failed:
                        break
                if save is not None and due:
                    save()
                    saved = time.perf_counter()
            if save is not None:
                save()
    except KeyboardInterrupt:
        interrupted = True
        if save is not None and together is None:
            save()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return chains.Outcome(interrupted, compile_seconds)
