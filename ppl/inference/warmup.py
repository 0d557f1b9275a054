"""Warm-up: what the first draws teach a kernel.

A tuner is five functions of a `Tuning` and never of a loop: `initial` (numpy, before anything is compiled), `begin`
(once a start is found), `search` (a first step size, by trajectories of one leapfrog), `settings` (what the kernel is
told next) and `update` (after each warm-up transition). `chunk` calls them.

Gradient kernels follow nutpie's schedule. A whitening is estimated from a foreground window after every draw, while a
background window fills; when it is full it becomes the foreground. Windows are short during the first 30 percent
and long afterwards; the last 15 percent only tune the step size. From the last window on, the step size follows the
symmetric acceptance statistic, which weighs gains and losses of energy alike.

References: Hoffman and Gelman (2014), section 3.2 (dual averaging); Seyboldt, Carlson, Carpenter (2026),
arXiv 2603.18845 (windows, symmetric statistic); Wu, Stoehr, Robert (2018), arXiv 1810.04449 (lengths of trajectories
from the times at which they turn back); Andrieu and Thoms (2008) (random walks).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppl.inference import hmc, metropolis, nuts, whitening

FIRST_STEP_SIZE = 0.1
MOST_TRIES = 40  # of the step-size search, each doubling or halving
MEMORY = 128  # times at which trajectories turned back that hmc remembers
UNTUNED_STEPS = 10  # leapfrogs of an hmc trajectory when nothing was given or learnt


class Options(NamedTuple):
    """Choices that a compiled program takes as inputs.

    Args:
      num_warmup: transitions used for tuning.
      target_accept: the acceptance statistic that the tuning aims at; 0 means the kernel's default.
      max_depth: most doublings of a trajectory (nuts).
      num_steps: leapfrogs of a trajectory (hmc); 0 means learnt.
    """

    num_warmup: Any
    target_accept: Any
    max_depth: Any
    num_steps: Any


class Averaging(NamedTuple):
    """Dual averaging of the logarithm of a step size."""

    center: Any
    error: Any
    count: Any
    log_average: Any


class Tuning(NamedTuple):
    """What a gradient kernel has learnt so far."""

    step_size: Any
    averaging: Averaging
    direction: Any  # of the step-size search: -1, 0 or 1
    tries: Any  # of the search; negative: no search wanted
    scale: Any  # the whitening
    rough: Any  # whether the whitening comes from the starting point alone
    windows: Any  # moments with a leading axis of 2: foreground, background
    times: Any  # hmc: integration times after which trajectories turned back; a ring
    measured: Any  # hmc: how many of them


def restart(step_size):
    """Dual averaging from a step size found by the search."""
    log_step, zero = jnp.log(step_size), jnp.zeros_like(step_size)
    return Averaging(log_step + jnp.log(jnp.asarray(10, step_size.dtype)), zero, zero, log_step)


def average(averaging, acceptance, target):
    """One step of dual averaging; returns it and the next step size."""
    count = averaging.count + 1
    share = 1 / (count + 10)
    error = (1 - share) * averaging.error + share * (target - acceptance)
    log_step = jnp.clip(averaging.center - jnp.sqrt(count) / 0.05 * error, -50, 50)
    weight = count**-0.75
    log_average = weight * log_step + (1 - weight) * averaging.log_average
    return Averaging(averaging.center, error, count, log_average), jnp.exp(log_step)


class Schedule(NamedTuple):
    """What happens after a warm-up transition."""

    estimate: Any  # use the draw for the whitening
    switch: Any  # the background window becomes the foreground
    late: Any  # no more windows begin
    last: Any


def schedule(iteration, num_warmup, filled, every):
    """Return the `Schedule` after transition `iteration` (from 0), with `filled` draws in the background window."""
    early = 10 * iteration < 3 * num_warmup
    final = num_warmup - jax.lax.div(3 * num_warmup + 19, jnp.int32(20))
    length = jnp.where(early, max(10, every), jnp.maximum(80, jax.lax.div(num_warmup, jnp.int32(5))))
    estimate = iteration < final
    late = iteration + length > final
    return Schedule(estimate, estimate & ~late & (filled >= length), late, iteration + 1 >= num_warmup)


class GradientTuner:
    """Tunes `hmc` or `nuts`.

    Args:
      kernel: the module.
      metric: an estimator of `whitening`.
      deepest: largest max_depth the program has room for (nuts).
    """

    searches = True

    def __init__(self, kernel, metric, deepest=10):
        self.kernel, self.metric, self.deepest = kernel, metric, deepest

    def initial(self, position, step_size=None):
        """Return the first `Tuning`, in numpy."""
        real = jax.tree.leaves(position)[0].dtype
        zero = np.zeros((), real)
        first = np.asarray(FIRST_STEP_SIZE if step_size is None else step_size, real)
        averaging = Averaging(np.log(10 * first), zero, zero, np.log(first))
        tries = np.int32(0 if step_size is None else -1)
        moments, blank = self.metric.init(position), self.metric.blank(position)
        windows = jax.tree.map(lambda x: np.stack([x, x]), moments)
        times = np.zeros(MEMORY if self.kernel is hmc else 0, real)
        return Tuning(*(first, averaging, np.int32(0), tries, blank, np.bool_(True), windows, times, np.int32(0)))

    def step(self, key, log_density, settings, state):
        """One transition of the kernel."""
        if self.kernel is nuts:
            return nuts.step(key, log_density, settings, state, deepest=self.deepest)
        return self.kernel.step(key, log_density, settings, state)

    def begin(self, tuning, state, options):
        """Take a first whitening from the gradient at the start; say whether a search is wanted."""
        scale = self.metric.first(state.position, state.gradient)
        scale = hmc.select(options.num_warmup > 0, scale, tuning.scale)
        return tuning._replace(scale=scale), tuning.tries >= 0

    def search(self, tuning, signal, options):
        """Double or halve the step size until the acceptance crosses the target; say whether it has."""
        up = signal.symmetric_acceptance > self.target(tuning, options)
        direction = jnp.where(up, 1, -1).astype(jnp.int32)
        over = ((tuning.direction != 0) & (direction != tuning.direction)) | (tuning.tries >= MOST_TRIES)
        step_size = jnp.where(over, tuning.step_size, tuning.step_size * jnp.where(up, 2, 0.5))
        return (
            tuning._replace(
                step_size=step_size,
                averaging=restart(step_size),
                direction=jnp.where(over, 0, direction),
                tries=jnp.where(over, 0, tuning.tries + 1),
            ),
            over,
        )

    def target(self, tuning, options):
        """Return the acceptance statistic aimed at."""
        target = jnp.asarray(options.target_accept, tuning.step_size.dtype)
        return jnp.where(target > 0, target, 0.8)

    def settings(self, tuning, options, searching, adapting):
        """Return the kernel's settings for the next transition."""
        if self.kernel is nuts:
            return nuts.Settings(tuning.step_size, tuning.scale, jnp.where(searching, 1, options.max_depth))
        learning = options.num_steps <= 0
        table = jnp.where(learning, lengths(tuning), options.num_steps)
        return hmc.Settings(tuning.step_size, jnp.where(searching, 1, table), tuning.scale, adapting & learning)

    def update(self, tuning, state, signal, iteration, options):
        """Learn from one warm-up transition; say whether the step size should be searched again."""
        filled = tuning.windows.count[1].astype(jnp.int32)
        every = self.metric.every(sum(jnp.size(x) for x in jax.tree.leaves(state.position)))
        plan = schedule(iteration, options.num_warmup, filled, every)
        grown = jax.vmap(self.metric.update, (0, None, None))(tuning.windows, state.position, state.gradient)
        windows = hmc.select(plan.estimate & ~(signal.diverging > 0), grown, tuning.windows)
        shifted = jax.tree.map(lambda x: jnp.stack([x[1], jnp.zeros_like(x[1])]), windows)
        windows = hmc.select(plan.switch, shifted, windows)
        foreground = jax.tree.map(lambda x: x[0], windows)
        count = foreground.count.astype(jnp.int32)
        due = plan.estimate & (count >= 3) & ((count % every == 0) | plan.switch)
        if every > 1:
            scale = jax.lax.cond(due, self.metric.estimate, lambda moments, scale: scale, foreground, tuning.scale)
        else:
            scale = hmc.select(due, self.metric.estimate(foreground, tuning.scale), tuning.scale)
        statistic = jnp.where(plan.late, signal.symmetric_acceptance, signal.acceptance_rate)
        averaging, step_size = average(tuning.averaging, statistic, self.target(tuning, options))
        step_size = jnp.where(plan.last, jnp.exp(averaging.log_average), step_size)
        times, measured = tuning.times, tuning.measured
        if self.kernel is hmc:
            time = tuning.step_size * signal.turn
            times, measured = times.at[measured % MEMORY].set(time), measured + 1
        again = tuning.rough & due & (tuning.tries >= 0) & ~plan.last
        return (
            Tuning(
                *(step_size, averaging, jnp.zeros_like(tuning.direction), tuning.tries, scale),
                *(tuning.rough & ~due, windows, times, measured),
            ),
            again,
        )

    def size(self, tuning):
        """Return the step size, for display."""
        return tuning.step_size

    @property
    def names(self):
        """Names of the statistics in a recorded row: ArviZ's first, then what only the warm-up reads."""
        names = ("lp", "acceptance_rate", "step_size", "n_steps", "diverging", "energy", "energy_error")
        if self.kernel is nuts:
            return *names, "max_energy_error", "tree_depth", "reached_max_treedepth", "symmetric_acceptance"
        return *names, "int_time", "symmetric_acceptance", "turn"


def lengths(tuning):
    """Return numbers of leapfrogs, one of which hmc draws for each transition.

    Each remembered time at which a trajectory turned back is cut to a part of it, spread evenly over (1/3, 2/3): half
    of the way to the turn is where draws are least correlated, and the spread keeps any direction from being periodic.
    (Smallest effective sample size per gradient over means and squares: 1.4 to 2.2 times that of nuts on five models,
    while whole times gave at most a fifth of it.) Before anything is measured all are `UNTUNED_STEPS`; a ring that is
    not yet full repeats.
    """
    entry = np.arange(MEMORY, dtype=np.int32)
    part = jnp.asarray((1 + (entry * 0.618034) % 1) / 3, tuning.times.dtype)
    times = tuning.times[entry % jnp.clip(tuning.measured, 1, MEMORY)]
    steps = jnp.ceil(part * times / tuning.step_size)
    steps = jnp.where(tuning.measured > 0, steps, UNTUNED_STEPS)
    return jnp.clip(steps, 1, hmc.LONGEST).astype(jnp.int32)


class Walk(NamedTuple):
    """What a random walk has learnt so far."""

    log_factor: Any
    spread: Any  # standard deviation per coordinate, a pytree like the position
    count: Any
    mean: Any
    square: Any


class WalkTuner:
    """Tunes `metropolis`: the spread of each coordinate, and one factor that sets the acceptance rate.

    The factor follows Robbins and Monro towards an acceptance of 0.44 in one dimension and 0.234 in more.
    """

    searches = False

    def initial(self, position, scale=None):
        """Return the first `Walk`, in numpy."""
        leaves, structure = jax.tree.flatten(position)
        real = leaves[0].dtype
        size = sum(leaf.size for leaf in leaves)
        factor = np.asarray(0.0 if scale is not None else np.log(2.38 / np.sqrt(max(size, 1))), real)
        given = jax.tree.leaves(1.0 if scale is None else scale)
        given = given if len(given) == len(leaves) else given * len(leaves)
        filled = [np.array(np.broadcast_to(np.asarray(g, real), x.shape)) for g, x in zip(given, leaves, strict=True)]
        zeros = [np.zeros(x.shape, real) for x in leaves]
        spread, mean, square = (jax.tree.unflatten(structure, part) for part in (filled, zeros, zeros))
        return Walk(factor, spread, np.zeros((), real), mean, square)

    def step(self, key, log_density, settings, state):
        """One transition of the kernel."""
        return metropolis.step(key, log_density, settings, state)

    def begin(self, tuning, state, options):
        """Nothing to learn from the start; no search is wanted."""
        return tuning, jnp.bool_(False)

    def search(self, tuning, signal, options):
        """No search."""
        return tuning, jnp.bool_(True)

    def settings(self, tuning, options, searching, adapting):
        """Return the kernel's settings for the next transition."""
        factor = jnp.exp(tuning.log_factor)
        return metropolis.Settings(jax.tree.map(lambda s: factor * s, tuning.spread))

    def update(self, tuning, state, signal, iteration, options):
        """Learn from one warm-up transition."""
        real = tuning.log_factor.dtype
        size = sum(leaf.size for leaf in jax.tree.leaves(state.position))
        target = jnp.asarray(options.target_accept, real)
        target = jnp.where(target > 0, target, 0.44 if size == 1 else 0.234)
        gain = 1.5 * (iteration + 1).astype(real) ** -0.6
        change = gain * (signal.acceptance_rate - target)
        log_factor = tuning.log_factor + jnp.where(jnp.isfinite(change), change, 0)
        forget = (iteration == options.num_warmup // 4) | (iteration == options.num_warmup // 2)
        count, mean, square = hmc.select(
            forget,
            jax.tree.map(jnp.zeros_like, (tuning.count, tuning.mean, tuning.square)),
            (tuning.count, tuning.mean, tuning.square),
        )
        count = count + 1
        mean, square = whitening.grow(count, mean, square, state.position)
        enough = count >= 50

        def deviation(square, before):
            value = jnp.sqrt(square / jnp.maximum(count - 1, 1))
            return jnp.where(enough & (value > 0) & jnp.isfinite(value), value, before)

        spread = jax.tree.map(deviation, square, tuning.spread)
        return Walk(log_factor, spread, count, mean, square), jnp.bool_(False)

    def size(self, tuning):
        """Return the mean standard deviation of the proposal, for display."""
        return jnp.exp(tuning.log_factor) * jnp.mean(jax.tree.leaves(tuning.spread)[0])

    names = ("lp", "acceptance_rate")


def row(names, tuning, state, info):
    """Return the statistics of a transition as one vector, so that recording them is one write.

    Counts and flags are exact as floats.
    """
    known = {"lp": state.log_density, "step_size": getattr(tuning, "step_size", None)}
    values = [known[name] if name in known else getattr(info, name) for name in names]
    return jnp.stack([jnp.asarray(value).astype(state.log_density.dtype) for value in values])


class Signal:
    """A recorded row, read by name."""

    def __init__(self, names, values):
        self._names, self._values = names, values

    def __getattr__(self, name):
        return self._values[..., self._names.index(name)]
