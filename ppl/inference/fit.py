"""The result of a variational fit: parameters, the way to them, draws, and how far they can be trusted."""

import dataclasses
import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl.errors import ModelError
from ppl.inference import psis
from ppl.inference.posterior import Posterior
from ppl.inference.predict import _over_draws
from ppl.inference.start import seed_words
from ppl.inference.summary import page, records
from ppl.tracing.handle import model_name
from ppl.version import versions

GOOD_K = 0.7  # k-hat above which importance weights are no use
DIAGNOSTIC_DRAWS = 2000
OVERSAMPLED = 4  # draws of the guide for each one that is kept by its weight
BATCH_BYTES = 2**28  # of data that are read at once


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """A guide fitted to a posterior.

        fit.params                    # a pytree like `init`
        fit.trail                     # the objective at each step
        fit.posterior(draws=1000)     # draws, the same `Posterior` as that of `infer.hmc`
        fit.log_weights()             # log p(x, z) - log q(z) of fresh draws
        fit.pareto_k                  # how good they are as importance weights: below 0.7 is good
        infer.vi(model, guide, data, init=fit)     # goes on from here

    Args:
      params: the guide's parameters.
      trail: the objective at each step, [step].
      problem: model and guide, aligned and bound to data.
      trained: the trained part of the parameters.
      state: of the optimizer, from which a fit goes on.
      settings: how it was made, in values that JSON can hold.
      timings: seconds: compile, steps, total.
      seed: the words of the seed.
      interrupted: whether it was stopped before its last step.
      skipped: steps whose gradient was not finite.
      smoothed: whether draws of the posterior are resampled by smoothed importance weights.
      identity: what the optimizer's state belongs to; a fit goes on with it only where this is equal.
      placement: where data and parameters lie, if they lie on a mesh.
    """

    params: Any
    trail: np.ndarray
    problem: Any
    trained: Any
    state: Any
    settings: dict
    timings: dict
    seed: list
    interrupted: bool = False
    skipped: int = 0
    smoothed: bool = False
    identity: Any = None
    placement: Any = None

    def posterior(
        self, draws: int = 1000, *, seed: Any = 0, chains: int = 1, smoothed: bool | None = None
    ) -> Posterior:
        """Draw from the fitted guide: a `Posterior` like that of a sampler, derived variables included.

        Args:
          draws: how many draws each chain has; all are independent.
          seed: an int or a jax key.
          chains: how many chains to arrange them in.
          smoothed: whether to resample draws of the guide by their Pareto-smoothed importance weights, which corrects what
            the guide misses as long as `pareto_k` is below 0.7. By default only after `pathfinder`.
        """
        smoothed = self.smoothed if smoothed is None else smoothed
        if smoothed:
            self._has_density()
        if not isinstance(draws, int | np.integer) or draws < 1:
            raise ModelError(f"draws={draws!r}: give a whole number, at least 1")
        problem = self.problem

        def one(key, values, arrays):
            draw = problem.draw(key, arrays["params"], arrays)
            if not smoothed:
                return problem.record(draw.values, arrays["params"], arrays), jnp.zeros(())
            log_joint = problem.log_joint(draw.values, arrays["params"], arrays)
            return problem.record(draw.values, arrays["params"], arrays), log_joint - draw.log_guide

        count = draws * chains
        wanted = max(OVERSAMPLED * count, DIAGNOSTIC_DRAWS) if smoothed else count
        values, log_weights = self._over(("posterior", smoothed), one, wanted, seed)
        if smoothed:
            picked = resample(log_weights[0], count, seed)
            values = {n: v[:, picked] for n, v in values.items()}
        structure = problem.model.structure
        return Posterior(
            draws={n: values[n].reshape(chains, draws, *values[n].shape[2:]) for n in structure.recorded},
            settings={
                "algorithm": self.settings["algorithm"],
                "model": model_name(structure.model),
                "chains": chains,
                "draws": draws,
                "latents": list(structure.latents),
                "observed": list(structure.observed),
                "guide": self.settings.get("guide", ""),
            },
            timings={"total": self.timings.get("total", 0.0)},
            seed=[int(w) for w in seed_words(seed)],
            versions=versions(),
            roles={n: "derived" if n in structure.derived else "latent" for n in structure.recorded},
        )

    def log_weights(self, draws: int = 1000, *, seed: Any = 1) -> np.ndarray:
        """Return log p(x, z) - log q(z) of fresh draws, [draw]: their mean is the ELBO."""
        self._has_density()
        problem = self.problem

        def one(key, values, arrays):
            draw = problem.draw(key, arrays["params"], arrays)
            return problem.log_joint(draw.values, arrays["params"], arrays) - draw.log_guide

        return self._over(("log_weights",), one, int(draws), seed)[0]

    def _has_density(self):
        if self.problem.spec.implicit or not self.problem.spec.volume:
            why = (
                "is implicit: it can be drawn from and has no density"
                if self.problem.spec.implicit
                else "is a single point"
            )
            raise ModelError(f"the guide `{self.settings['guide']}` {why}, so its draws have no importance weights")

    def _over(self, name, one, count, seed):
        """Run `one(key, {}, arrays)` for `count` draws in compiled batches; [1, count, ...]."""
        compiled = self.problem.model.structure.compiled
        arrays = {**self.problem.arrays, "params": self.trained}
        bound = types.SimpleNamespace(structure=types.SimpleNamespace(compiled=compiled), arrays=arrays)
        size = sum(x.nbytes for x in jax.tree.leaves(arrays) if hasattr(x, "nbytes"))
        batch = int(np.clip(BATCH_BYTES // max(size, 1), 1, count))
        layout = None if self.placement is None else self.placement.key
        return _over_draws(None, bound, ("fit", *name, *self.problem.key(), layout), one, {}, (1, count), seed, batch)

    @functools.cached_property
    def pareto_k(self) -> float | None:
        """K-hat of the importance weights of fresh draws; None where the guide has no density."""
        if self.problem.spec.implicit or not self.problem.spec.volume:
            return None
        return psis.smooth(self.log_weights(DIAGNOSTIC_DRAWS, seed=2))[1]

    @property
    def converged(self) -> bool:
        """Whether the objective stopped rising; see `verdict`."""
        return not _rising(self.trail)[0] and not self.interrupted

    def verdict(self) -> list[str]:
        """Sentences on whether the fit has converged, and whether its draws can be trusted."""
        return [sentence for sentence, _ in self._judged()]

    def _judged(self):
        """Return the sentences of the verdict, each with whether one should act on it."""
        sentences = []
        rising, rise, noise = _rising(self.trail)
        if self.skipped:
            sentences.append((self.verdict_of_skipped(), True))
        if len(self.trail) < 40:
            if len(self.trail):
                text = f"{len(self.trail)} steps are too few to tell whether the objective still rises."
                sentences.append((text, False))
        elif rising:
            text = (
                f"The objective still rose by {rise:.3g} (standard error {noise:.2g}) over the last quarter of the "
                f"{len(self.trail)} steps: not converged. Go on with init=fit, or give more steps=."
            )
            sentences.append((text, True))
        else:
            text = f"Converged: over the last quarter of the steps the objective moved by {rise:.2g} (standard error {noise:.2g})."
            sentences.append((text, False))
        k = self.pareto_k
        if k is not None and k <= GOOD_K:
            close = "equal to the posterior up to rounding" if k == -np.inf else "close to the posterior"
            sentences.append((f"Pareto k-hat is {k:.2f}: the guide is {close}.", False))
        elif k is not None:
            text = (
                f"Pareto k-hat is {k:.2f}, above {GOOD_K}: the guide misses parts of the posterior. Trust its means more "
                "than its standard deviations, or try infer.full_rank, infer.flow, or a sampler with init=fit."
            )
            sentences.append((text, True))
        return sentences

    def warnings(self) -> list[str]:
        """The sentences of `verdict` that are known without further draws and that one should act on."""
        rising, rise, noise = _rising(self.trail)
        out = []
        if self.skipped:
            out.append(self.verdict_of_skipped())
        if rising:
            out.append(
                f"the objective still rose by {rise:.3g} (standard error {noise:.2g}) over the last quarter of the "
                f"{len(self.trail)} steps: not converged; go on with init=fit, or give more steps=."
            )
        return out

    def verdict_of_skipped(self) -> str:
        """Say how many steps moved nothing."""
        return (
            f"{self.skipped} of {len(self.trail)} steps had a gradient that is not finite and moved nothing: give a smaller "
            "learning rate as optimizer=, or a start nearer to the posterior as init=."
        )

    def starts(self, chains: int, seed: Any = 0) -> dict[str, np.ndarray]:
        """Return start values of the latent variables for a sampler, one for each chain: draws of the fit."""
        draws = self.posterior(max(chains, 1), seed=seed)
        return {n: draws[n][0] for n in self.problem.model.structure.latents}

    @property
    def header(self):
        """One line: algorithm, model and guide, the steps and the objective, the seconds it took."""
        s = self.settings
        title = f"{s['algorithm']} of {s['model']} with the guide {s['guide']}"
        if len(self.trail):
            last = self.trail[-max(1, len(self.trail) // 10) :]
            title += f": {len(self.trail)} steps, objective {np.mean(last):.6g}"
        seconds = self.timings.get("total")
        title += f", {seconds:.3g} s" if seconds else ""
        return title + (", interrupted" if self.interrupted else "")

    def __repr__(self):
        return "\n".join([self.header, *self.verdict()])

    def _repr_html_(self):
        judged = self._judged()
        concerns, rest = [text for text, act in judged if act], [text for text, act in judged if not act]
        return page(self.header, None, concerns, records(settings=self.settings, timings=self.timings), rest)


def _rising(trail):
    """Return whether the objective still rises at the end, by how much over the last quarter, and the standard error of that."""
    trail = np.asarray(trail, float)
    trail = trail[np.isfinite(trail)]
    quarter = len(trail) // 4
    if quarter < 10:
        return False, 0.0, 0.0
    earlier, later = np.array_split(trail[-quarter:], 2)
    rise = float(later.mean() - earlier.mean())
    noise = float(np.sqrt(later.var() / later.size + earlier.var() / earlier.size))
    least = max(0.05, 1e-6 * abs(float(later.mean())))
    return rise > max(4 * noise, least), rise, noise


def resample(log_weights, count, seed):
    """Return positions of `count` draws taken by their Pareto-smoothed weights, evenly spaced along their sum."""
    weights = np.exp(psis.smooth(log_weights)[0])
    start = np.random.default_rng([int(w) for w in seed_words(seed)]).uniform()
    edges = np.cumsum(weights) / weights.sum()
    picked = np.searchsorted(edges, (start + np.arange(count)) / count, side="right")
    picked = np.minimum(picked, len(weights) - 1)
    return np.random.default_rng([1, *(int(w) for w in seed_words(seed))]).permutation(picked)
