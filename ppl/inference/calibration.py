"""Simulation-based calibration: does a sampler find the posteriors of data that the model itself made?

Draw parameters from the prior and data given them; sample the posterior of these data; note the rank of the parameter
among its draws. If model, density and sampler are right, ranks are uniform. Reference: Talts et al. (2018), arXiv
1804.06788.
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ppl.errors import InferenceWarning, ModelError, listed
from ppl.inference.predict import prior
from ppl.inference.samplers import nuts
from ppl.inference.start import seed_words

BINS = 20


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """Ranks of the true values among the draws, by variable, and how well they look uniform.

    Attributes:
      ranks: `{name: [simulation, ...]}`, from 0 to `draws`.
      draws: how many draws each rank is among.
      p_values: `{name: [...]}` of uniformity, for each number of a variable: by counts in twenty bins (chi-square), by the
        mean rank and by the spread of the ranks.
    """

    ranks: dict[str, np.ndarray]
    draws: int
    p_values: dict[str, np.ndarray]

    @property
    def smallest(self) -> float:
        """The smallest p-value times the number of tests (Bonferroni): below 1e-4 something is wrong."""
        every = np.concatenate([np.ravel(p) for p in self.p_values.values()])
        return float(min(1.0, every.min() * every.size))

    def __repr__(self):
        count = len(next(iter(self.ranks.values())))
        lines = [f"{count} simulations, ranks among {self.draws} draws", ""]
        width = max(map(len, self.ranks))
        for name, p in self.p_values.items():
            lines.append(
                f"{name:<{width}}  p = {np.min(p):.2g}" + (f" (smallest of {np.size(p)})" if np.size(p) > 1 else "")
            )
        verdict = (
            "ranks look uniform"
            if self.smallest > 1e-4
            else "ranks are not uniform: the sampler, the density or the model is wrong"
        )
        return "\n".join([*lines, "", f"{verdict} (p = {self.smallest:.2g} after correction)"])


def calibrate(
    model: Callable[..., Any],
    data: Mapping[str, Any] | None = None,
    *,
    observed: Sequence[str],
    sampler: Callable[..., Any] = nuts,
    simulations: int = 1000,
    draws: int = 99,
    thin: int = 5,
    seed: Any = 0,
    **options: Any,
) -> Calibration:
    """Check a sampler on a model in one call: `infer.calibrate(schools, {"sigma": sigma}, observed=["y"])`.

    Args:
      model: a generator function with proper priors.
      data: its arguments.
      observed: names of the variables that the simulated data consist of.
      sampler: `infer.nuts`, `infer.hmc`, `infer.metropolis`, or a function called as they are.
      simulations: how many data sets are made and fitted.
      draws: posterior draws that each rank is among; one less than a multiple of 20 makes equal bins.
      thin: transitions from one of them to the next, so that they are nearly independent.
      seed: an int or a jax key.
      **options: passed on to the sampler, such as `target_accept` or `warmup`.

    Returns a `Calibration`, which prints what it found.
    """
    truth = prior(model, data, draws=simulations, seed=seed)
    for name in observed:
        if name not in truth:
            raise ModelError(f"observed has {name!r}, which is no random variable of the model ({listed(truth)})")
    word = int(np.bitwise_xor.reduce(seed_words(seed)))
    ranks: dict[str, np.ndarray] = {}
    for i in range(simulations):
        made = {name: truth[name][0, i] for name in observed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InferenceWarning)
            posterior = sampler(
                model,
                {**(data or {}), **made},
                chains=1,
                draws=draws,
                thin=thin,
                seed=word * 1_000_003 + i + 1,
                **{"progress": False, **options},
            )
        for name in posterior:
            if name in truth:
                rank = (posterior[name][0] < truth[name][0, i]).sum(0)
                ranks.setdefault(name, np.zeros((simulations, *np.shape(rank)), int))[i] = rank
    return Calibration(ranks, draws, {name: _p_values(r, draws) for name, r in ranks.items()})


def _p_values(ranks, draws):
    """Return a p-value of uniformity for each number: the smallest of three tests, times three.

    Counts in bins see any shape; the mean of the ranks and their mean squared distance from the middle see a shift and a
    wrong spread with fewer simulations.
    """
    from scipy.stats import chi2, norm

    edges = np.linspace(0, draws + 1, BINS + 1)
    expected = np.diff(np.ceil(edges)) / (draws + 1) * len(ranks)
    flat = ranks.reshape(len(ranks), -1)
    counts = np.stack([np.histogram(column, np.ceil(edges) - 0.5)[0] for column in flat.T], -1)
    statistic = ((counts - expected[:, None]) ** 2 / expected[:, None]).sum(0)
    found = [chi2.sf(statistic, BINS - 1)]
    every = np.arange(draws + 1) - draws / 2
    for power in (1, 2):
        values, known = (flat - draws / 2) ** power, every**power
        error = known.std() / np.sqrt(len(ranks))
        found.append(2 * norm.sf(abs(values.mean(0) - known.mean()) / error))
    return np.minimum(1, len(found) * np.min(found, 0)).reshape(ranks.shape[1:])
