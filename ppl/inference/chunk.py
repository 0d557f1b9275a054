"""The compiled part of sampling: any number of transitions, as one pure function.

    state, outputs = run(state, data, n, options)

One program finds a start, searches a step size, warms up and draws; all of these are calls of the kernel's `step` in
one place, so the log density and its gradient appear once in what is compiled. How many transitions are made, the
length of the warm-up and all other choices are inputs.

Two loops. The outer one goes through stages: a candidate for the start, a trial of the search, or one warm-up
transition, each followed by what is learnt from it. Once nothing is left to learn, the inner loop makes all
remaining transitions, and does nothing but step and record.

Randomness is counter based: two words of a chain are hashed on the host from the user's key and the chain's number, and
the key of a step is these two, with the number of the step added to the second. So draws are equal bit for bit however
they are cut into chunks.

The first state is built in numpy: eager jax would compile dozens of small programs.
"""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppl.inference import hmc, metropolis, nuts, warmup, whitening
from ppl.inference.warmup import Options

START, SEARCH, RUN, FAILED = 0, 1, 2, 3
MOST_STARTS = 100  # candidates
START_RADIUS, HALVED = 2.0, 10  # the first candidate is uniform in (-2, 2) per free entry; halved every 10 candidates
FAR, FIRST_STRIDE = 100, 0.1  # a start where one step uphill gains more than FAR + size climbs first
MOST_CLIMBS = 100  # steps of a climb
AGAIN_SPENT, AGAIN_WALL = 300, 2000  # gradients until which another candidate follows one whose climb led nowhere


class Chain(NamedTuple):
    """One chain.

    Args:
      key: two words.
      tick: steps of the kernel so far, of any kind.
      phase: START, SEARCH, RUN or FAILED.
      attempt: candidates for the start so far.
      start: the start as given, or the last point of the climb.
      free: which of its entries may be redrawn, and may climb.
      stride: the next step of the climb, in each entry.
      climbs: steps of the climb so far.
      kernel: the kernel's state.
      tuning: what the warm-up has learnt.
    """

    key: Any
    tick: Any
    phase: Any
    attempt: Any
    start: Any
    free: Any
    stride: Any
    climbs: Any
    kernel: Any
    tuning: Any


class State(NamedTuple):
    """All that is needed to go on: transitions made so far, and the chain (or chains, with a leading axis)."""

    iteration: Any
    chain: Chain


def options(num_warmup=400, target_accept=None, max_depth=10, num_steps=None):
    """Return `Options` of fixed dtypes; None is the kernel's default (for `num_steps`: learnt)."""
    return Options(
        np.int32(num_warmup),
        np.float32(0.0 if target_accept is None else target_accept),
        np.int32(max_depth),
        np.int32(0 if num_steps is None else num_steps),
    )


def tuner(kernel, metric="diagonal", deepest=10):
    """Return the tuner of a kernel by its name."""
    if kernel == "metropolis":
        return warmup.WalkTuner()
    return warmup.GradientTuner({"hmc": hmc, "nuts": nuts}[kernel], whitening.METRICS[metric], deepest)


def chain_words(key_words, chain):
    """Hash the words of a key and the number of a chain to the two words of the chain's own key."""
    text = np.asarray([*np.asarray(key_words).ravel(), chain], np.uint32).astype("<u4").tobytes()
    return np.frombuffer(hashlib.sha256(text).digest()[:8], "<u4").astype(np.uint32)


def initial_state(
    kernel,
    start,
    free,
    key_words,
    chain,
    metric="diagonal",
    step_size=None,
    scale=None,
    chains=None,
    redraw_first=False,
):
    """Build the state before the first transition, in numpy.

    Args:
      kernel: "nuts", "hmc" or "metropolis".
      start: pytree of float arrays, usually one flat vector; with `chains`, each has a leading axis of that length.
      free: pytree of bools like `start`: entries that are redrawn while the density is not finite.
      key_words: the words of the user's key.
      chain: number of the (first) chain.
      metric: "diagonal", "dense" or "identity".
      step_size: first step size; None to search one.
      scale: first standard deviation of a random walk's proposal; None for 2.38 / sqrt(size).
      chains: None, or the length of the leading axis.
      redraw_first: whether the free entries of the first candidate are drawn too.
    """
    start, free = jax.tree.map(np.asarray, start), jax.tree.map(lambda x: np.asarray(x, np.bool_), free)
    if chains is not None:
        rest = (metric, step_size, scale, None, redraw_first)
        one = initial_state(kernel, *jax.tree.map(lambda x: x[0], (start, free)), key_words, chain, *rest)
        many = jax.tree.map(lambda x: np.repeat(np.expand_dims(x, 0), chains, 0), one.chain)
        words = np.stack([chain_words(key_words, chain + i) for i in range(chains)])
        return State(
            one.iteration,
            many._replace(key=words, start=start, free=free, kernel=many.kernel._replace(position=start)),
        )
    learner = tuner(kernel, metric)
    real = jax.tree.leaves(start)[0].dtype
    lowest, zeros = np.asarray(-np.inf, real), jax.tree.map(np.zeros_like, start)
    if kernel == "metropolis":
        state, tuning = metropolis.State(start, lowest), learner.initial(start, scale)
    else:
        state, tuning = hmc.State(start, lowest, zeros), learner.initial(start, step_size)
    attempt, none = np.int32(1 if redraw_first else 0), np.int32(0)
    words = chain_words(key_words, chain)
    return State(none, Chain(words, none, np.int32(START), attempt, start, free, zeros, none, state, tuning))


class _Progress(NamedTuple):
    """What the loops carry."""

    state: State
    draws: Any
    stats: Any
    done: Any
    kept: Any
    divergences: Any
    gradients: Any
    last: Any  # the last row of statistics


def build(
    kernel: str,
    log_density: Callable,
    record: Callable,
    *,
    length: int,
    metric: str = "diagonal",
    thin: int = 1,
    keep_warmup: bool = False,
    chains: int | None = None,
    deepest: int = 10,
) -> Callable:
    """Return the pure function `run(state, data, n, options) -> (state, outputs)`.

    Args:
      kernel: "nuts", "hmc" or "metropolis".
      log_density: `log_density(position, data)`, a scalar of the position's dtype.
      record: `record(position, data)`, a dict of arrays, evaluated once per kept draw.
      length: rows of the buffers of one call.
      metric: "diagonal", "dense" or "identity".
      thin: every `thin`-th transition after the warm-up is kept.
      keep_warmup: whether warm-up transitions are kept too, all of them.
      chains: None for one chain; k for k chains in lockstep, with a chain axis in states and after the draw axis in
        outputs. Meant for kernels of fixed cost: other kernels wait for the slowest chain.
      deepest: largest `max_depth` that the program has room for (nuts).
    """
    learner = tuner(kernel, metric, deepest)
    log_density, record = jax.jit(log_density, inline=True), jax.jit(record, inline=True)  # so that each is traced once
    gradients = kernel != "metropolis"
    column = learner.names.index("diverging") if gradients else 0
    batched = (lambda f, axes=0: jax.vmap(f, axes)) if chains is not None else (lambda f, axes=0: f)

    def run(state, data, n, options):
        def density(position):
            return log_density(position, data)

        def observe(chain, info):
            return record(chain.kernel.position, data), warmup.row(learner.names, chain.tuning, chain.kernel, info)

        def prepare(chain):
            return _candidate(chain)

        def settings(chain, adapting):
            return learner.settings(chain.tuning, options, chain.phase == SEARCH, adapting)

        def step(chain, told, together):
            return _step(learner, density, chain, told, together)

        def learn(chain, info, iteration, adapting):
            return _learn(learner, chain, info, iteration, adapting, options)

        def transition(carry, told, ready):
            chain, info = batched(step, (0, 0, None))(carry.state.chain, told, ready)
            draws, stats = batched(observe)(chain, info)
            iteration = carry.state.iteration
            sampling = iteration >= options.num_warmup
            keep = ready & jnp.where(sampling, (iteration + 1 - options.num_warmup) % thin == 0, keep_warmup)
            diverged = (stats[..., column] > 0) & ready & sampling if gradients else jnp.bool_(False)
            moved = ready.astype(jnp.int32)
            return _Progress(
                State(iteration + moved, chain),
                *jax.tree.map(lambda b, x: _write(b, x, carry.kept), (carry.draws, carry.stats), (draws, stats)),
                carry.done + moved,
                carry.kept + keep.astype(jnp.int32),
                carry.divergences + diverged.astype(jnp.int32),
                carry.gradients + info.gradients,
                stats,
            )

        def stage(carry):
            chain = batched(prepare)(carry.state.chain)
            ready = jnp.all(chain.phase == RUN)
            adapting = ready & (carry.state.iteration < options.num_warmup)
            told = batched(settings, (0, None))(chain, adapting)
            most = jnp.where(ready & ~adapting, n, carry.done + 1)
            first = carry._replace(state=State(carry.state.iteration, chain))

            def more(inner):
                going, inner = inner
                return going & (inner.done < most) & (inner.kept < length)

            def body(inner):
                return ready, transition(inner[1], told, ready)

            after = jax.lax.while_loop(more, body, (jnp.bool_(True), first))[1]
            iteration = carry.state.iteration
            chain = batched(learn, (0, 0, None, None))(after.state.chain, after.last, iteration, adapting)
            return after._replace(state=State(after.state.iteration, chain))

        def going(carry):
            return (carry.done < n) & (carry.kept < length) & ~jnp.any(carry.state.chain.phase == FAILED)

        n = jnp.asarray(n, jnp.int32)
        rows = jax.eval_shape(batched(lambda chain: record(chain.kernel.position, data)), state.chain)
        carry = jax.lax.while_loop(going, stage, _blank(state, rows, len(learner.names), length))
        chain = carry.state.chain
        outputs = {
            "draws": carry.draws,
            "stats": carry.stats,
            "kept": carry.kept,
            "done": carry.done,
            "divergences": carry.divergences,
            "gradients": carry.gradients,
            "phase": chain.phase,
            "step_size": batched(learner.size)(chain.tuning),
        }
        return carry.state, outputs

    return run


def in_turn(run: Callable) -> Callable:
    """Return `run` for several chains that one call moves one after the other: none waits for another's trajectories.

    States and outputs have the chain axes that `build(chains=)` gives them.
    """

    def runs(state, data, n, options):
        after, outputs = jax.lax.map(lambda chain: run(State(state.iteration, chain), data, n, options), state.chain)
        rows = {name: jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), outputs[name]) for name in ("draws", "stats")}
        counts = {name: jnp.min(outputs[name]) for name in ("kept", "done")}
        return State(jnp.min(after.iteration), after.chain), {**outputs, **rows, **counts}

    return runs


def _blank(state, rows, width, length):
    """Return the loop's first carry: buffers for `rows` and for statistics of `width` numbers, and counters at 0."""
    density = state.chain.kernel.log_density
    last, count = jnp.zeros((*jnp.shape(density), width), density.dtype), jnp.zeros(jnp.shape(density), jnp.int32)
    draws, stats = jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype), (rows, last))
    state = jax.tree.map(jnp.asarray, state)
    return _Progress(state, draws, stats, jnp.int32(0), jnp.int32(0), count, count, last)


def _write(buffer, value, row):
    return jax.lax.dynamic_update_index_in_dim(buffer, value, row, 0)


def _candidate(chain):
    """Before a start is found: put the next candidate into the kernel's state, not yet evaluated."""
    starting = chain.phase == START
    word = hmc.scramble(chain.key[0] ^ hmc.scramble(chain.key[1] + chain.tick.astype(jnp.uint32)))
    leaves, structure = jax.tree.flatten(chain.start)
    free, strides = jax.tree.leaves(chain.free), jax.tree.leaves(chain.stride)
    sizes = [leaf.size for leaf in leaves]
    candidate = []
    for leaf, stride, mask, before in zip(leaves, strides, free, np.cumsum([0, *sizes[:-1]]), strict=True):
        index = jnp.arange(before, before + leaf.size, dtype=jnp.uint32).reshape(leaf.shape)
        radius = START_RADIUS * jnp.exp2((1 - chain.attempt).astype(leaf.dtype) / HALVED)
        drawn = radius * (2 * hmc.uniform(word, index, leaf.dtype) - 1)
        candidate.append(jnp.where(mask & (chain.attempt > 0) & (chain.climbs == 0), drawn, leaf + stride))
    kernel = chain.kernel._replace(
        position=hmc.select(starting, jax.tree.unflatten(structure, candidate), chain.kernel.position),
        log_density=jnp.where(starting, -jnp.inf, chain.kernel.log_density),
    )
    if hasattr(kernel, "gradient"):
        zeros = jax.tree.map(jnp.zeros_like, kernel.gradient)
        kernel = kernel._replace(gradient=hmc.select(starting, zeros, kernel.gradient))
    return chain._replace(kernel=kernel)


def _step(learner, density, chain, told, together):
    """One step of the kernel. `together`: all chains are ready, and move; else only those that are not."""
    count = chain.tick.astype(jnp.uint32)
    key = jax.random.wrap_key_data(jnp.stack([chain.key[0], chain.key[1] + count]), impl="threefry2x32")
    moved, info = learner.step(key, density, told, chain.kernel)
    active = together | (chain.phase != RUN)
    kernel = hmc.select(active & (chain.phase != SEARCH), moved, chain.kernel)
    return chain._replace(kernel=kernel, tick=chain.tick + active.astype(jnp.int32)), info


def _learn(learner, chain, last, iteration, adapting, options):
    """After a stage: judge the candidate, go on with the search, or tune."""
    signal = warmup.Signal(learner.names, last)
    state = chain.kernel

    def judge(chain):
        good = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(state)]))
        begun, search = learner.begin(chain.tuning, state, options)
        fixed = ~jnp.any(jnp.stack([jnp.any(x) for x in jax.tree.leaves(chain.free)]))
        attempt = chain.attempt + (chain.climbs == 0).astype(jnp.int32)
        failed = (attempt >= MOST_STARTS) | fixed
        # A density without a gradient is run all the same: every transition diverges, and the result says so.
        failed = jnp.where(failed & jnp.isfinite(state.log_density), RUN, jnp.where(failed, FAILED, START))
        phase = jnp.where(good, jnp.where(search, SEARCH, RUN), failed)
        tuning = hmc.select(good, begun, chain.tuning)
        if learner.searches:
            again, chain = _climb(chain, good, search & ~fixed & (options.num_warmup > 0))
            phase = jnp.where(again, START, phase)
        return chain._replace(tuning=tuning, attempt=attempt, phase=phase.astype(jnp.int32))

    def search(chain):
        tuning, over = learner.search(chain.tuning, signal, options)
        return chain._replace(tuning=tuning, phase=jnp.where(over, RUN, SEARCH).astype(jnp.int32))

    def adapt(chain):
        tuning, again = learner.update(chain.tuning, state, signal, iteration, options)
        return chain._replace(tuning=tuning, phase=jnp.where(again, SEARCH, RUN).astype(jnp.int32))

    def rest(chain):
        return chain

    branch = jnp.where(adapting, 2, jnp.where(chain.phase < RUN, chain.phase, 3))
    return jax.lax.switch(branch, [judge, search, adapt, rest], chain)


def _climb(chain, good, allowed):
    """From a start far out in the tails, take a step uphill; say whether there is another candidate to evaluate.

    Left alone, a chain falls from there with so much energy that it flies past everything, and in float32 the rounding
    of its log density hides the errors that a step size is tuned by. Far is where the slope promises a gain beyond
    what draws differ by; and until a derivative changes its sign, strides may be short only because a long one was
    taken back. A step uses the signs of the derivatives, since sizes can be astronomic: an entry's stride grows by half
    while its sign stays, and halves when it turns (Riedmiller and Braun 1993, "RPROP"). The first strides go with the
    roots of the slopes, so that entries with little to gain, the scales of groups that are not yet where their data
    are, hardly move. Where the density is not finite, the step is tried at half its length. A climb whose steps are spent
    has led nowhere: before a derivative turned it met a wall, an underflow perhaps; after that, it is held by a cliff, with
    an overflow on one side. Another candidate is drawn, or after `AGAIN_WALL` or `AGAIN_SPENT` gradients the last finite
    point is taken.
    """
    climbed, more = chain.climbs > 0, chain.climbs < MOST_CLIMBS
    gradient, leaves = chain.kernel.gradient, jax.tree.leaves
    steepest = jnp.max(jnp.stack([jnp.max(jnp.abs(g)) for g in leaves(gradient)]))
    flips = jax.tree.map(lambda before, slope: before * jnp.sign(slope) < 0, chain.stride, gradient)

    def forward(before, slope, flipped, free):
        first = FIRST_STRIDE * (jnp.sqrt(jnp.abs(slope)) / jnp.sqrt(jnp.maximum(steepest, 1)))  # roots cannot underflow
        size = jnp.where(climbed, jnp.abs(before) * jnp.where(flipped, 0.5, 1.5), first)
        return jnp.where(free, size * jnp.sign(slope), 0).astype(before.dtype)

    ahead = jax.tree.map(forward, chain.stride, gradient, flips, chain.free)
    gains = hmc.dots((ahead, gradient))[0] > FAR + sum(x.size for x in leaves(gradient))
    turned = jnp.any(jnp.stack([jnp.any(f) for f in leaves(flips)]))
    shorter = jax.tree.map(lambda x: jnp.where(more, 0.5, 0) * x, chain.stride)
    onward = more & good & (gains | (climbed & ~turned))
    anew = climbed & ~more & (chain.tick < jnp.where(turned, AGAIN_SPENT, AGAIN_WALL))
    climbing = allowed & ~anew & (onward | (climbed & ~good))
    return climbing | anew, chain._replace(
        start=hmc.select(climbing & good, chain.kernel.position, chain.start),
        stride=hmc.select(good & ~anew, ahead, shorter),
        climbs=jnp.where(anew, 0, chain.climbs + climbing.astype(jnp.int32)),
    )


def statistics(kernel, outputs):
    """Return the statistics of a call's `outputs` as numpy arrays by ArviZ's names, [kept] or [kept, chain]."""
    rows, names = np.asarray(outputs["stats"])[: int(outputs["kept"])], tuner(kernel).names
    kinds = {"n_steps": np.int32, "tree_depth": np.int32, "diverging": np.bool_, "reached_max_treedepth": np.bool_}
    return {
        name: rows[..., i].astype(kinds.get(name, rows.dtype))
        for i, name in enumerate(names)
        if name not in ("symmetric_acceptance", "turn")
    }


def step_size(state):
    """Return the step size of a state, or the standard deviation of a random walk's proposal."""
    tuning = state.chain.tuning
    if isinstance(tuning, warmup.Walk):
        factor = np.exp(np.asarray(tuning.log_factor))
        return jax.tree.map(
            lambda s: factor.reshape(factor.shape + (1,) * (np.ndim(s) - factor.ndim)) * s, tuning.spread
        )
    return np.asarray(tuning.step_size)


def inverse_metric(state):
    """Return the inverse metric that a state has learnt: A A^T, a vector if it is diagonal."""
    scale = state.chain.tuning.scale
    if isinstance(scale, whitening.Dense):
        factor = np.asarray(scale.factor)
        return factor @ np.swapaxes(factor, -1, -2)
    if isinstance(scale, whitening.Diagonal):
        return jax.tree.map(lambda s: np.asarray(s) ** 2, scale.scale)
    return jax.tree.map(lambda x: np.ones(np.shape(x), np.asarray(x).dtype), state.chain.start)
