"""The result of every algorithm: draws, statistics, and what they say about their own quality.

A `Posterior` is a mapping from names to arrays `[chain, draw, ...]`:

    posterior["theta"]                             # [chain, draw, school]
    posterior.sel("theta", school="Choate")        # [chain, draw]
    posterior                                      # a table with warnings; HTML in a notebook
    posterior.save("run.nc"); ppl.load("run.nc")   # no pickle; opens in xarray too

It holds numpy arrays and plain records only, so it can be copied to a process without an accelerator.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ppl.errors import ModelError, listed, suggest
from ppl.inference import concerns, labels
from ppl.inference.summary import Summary, page, records, summarize_draws
from ppl.sharding import gather, is_spread

QUICK = 2**22  # numbers that a printed result reads at most, and
LONG = 2**18  # of one element; `summary()` reads all


PAPERS = {
    "nuts": (
        "Hoffman, Gelman (2014). The No-U-Turn Sampler. JMLR 15, 1593-1623.",
        "Betancourt (2017). A conceptual introduction to Hamiltonian Monte Carlo. arXiv 1701.02434.",
        "Seyboldt, Carlson, Carpenter (2026). Preconditioning Hamiltonian Monte Carlo by minimizing "
        "Fisher divergence. arXiv 2603.18845.",
    ),
    "hmc": (
        "Neal (2011). MCMC using Hamiltonian dynamics. Handbook of Markov Chain Monte Carlo, chapter 5.",
        "Wu, Stoehr, Robert (2018). Faster Hamiltonian Monte Carlo by learning leapfrog scale. arXiv 1810.04449.",
    ),
    "metropolis": (
        "Metropolis, Rosenbluth, Rosenbluth, Teller, Teller (1953). J. Chem. Phys. 21, 1087-1092.",
        "Roberts, Gelman, Gilks (1997). Ann. Appl. Probab. 7, 110-120.",
    ),
    "diagnostics": (
        "Vehtari, Gelman, Simpson, Carpenter, Buerkner (2021). Rank-normalization, folding, and localization. "
        "Bayesian Analysis 16(2).",
    ),
}


def _array(values):
    """Return values as numpy, except what is divided between devices: that stays there."""
    return values if is_spread(values) else np.asarray(values)


def _on_host(values):
    """Return nested dicts with divided arrays as numpy."""
    if type(values) is dict:
        return {name: _on_host(inner) for name, inner in values.items()}
    return gather(values) if is_spread(values) else values


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Posterior(Mapping):
    """Draws by name, in the order of the program, with all that is known about how they came about.

    Args:
      draws: `[chain, draw, ...]` for each variable.
      stats: `[chain, draw]` for each statistic of the sampler, under the names of ArviZ's schema.
      dims: names of the axes after chain and draw, by variable.
      coords: labels along an axis, by its name.
      settings: how the run was made, in values that JSON can hold: algorithm, model, warmup, thin, ...
      timings: seconds, by part: compile, warmup, sampling, total.
      seed: the seed of the run.
      versions: of `ppl` and what it ran on, by name.
      state: the sampler's state at the end, from which a run continues, by name.
      warmup: `{"draws": ..., "stats": ...}` of the warm-up where it was kept.
      interrupted: whether the run was stopped before its last draw.
      tracked: `[chain, draw, ...]` for each function of the state that was asked for.
      roles: "latent" or "derived", by variable; latent where not said.
      moments: `{"mean": ..., "sd": ...}` over all draws of each variable, kept or not, where `keep` was given.

    Raises:
      ModelError: shapes, names of axes or numbers of labels disagree.
    """

    draws: dict[str, Any]
    _: dataclasses.KW_ONLY
    stats: dict[str, Any] = dataclasses.field(default_factory=dict)
    dims: dict[str, Any] = dataclasses.field(default_factory=dict)
    coords: dict[str, Any] = dataclasses.field(default_factory=dict)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    timings: dict[str, float] = dataclasses.field(default_factory=dict)
    seed: Any = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    state: dict[str, Any] = dataclasses.field(default_factory=dict)
    warmup: dict[str, Any] | None = None
    interrupted: bool = False
    tracked: dict[str, Any] = dataclasses.field(default_factory=dict)
    moments: dict[str, Any] = dataclasses.field(default_factory=dict)
    roles: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for field in ("draws", "stats", "state", "tracked"):
            self._set(field, {name: _array(values) for name, values in getattr(self, field).items()})
        for field in ("settings", "timings", "versions", "roles"):
            self._set(field, dict(getattr(self, field)))
        for field in ("warmup", "moments"):
            if (groups := getattr(self, field)) is not None:
                arrays = {group: {n: _array(v) for n, v in values.items()} for group, values in groups.items()}
                self._set(field, arrays)
        self._check_leading_axes()
        dims, coords = labels.tidy_labels(self.shapes, self.dims, self.coords)
        self._set("dims", dims)
        self._set("coords", coords)

    def _set(self, field, value):
        object.__setattr__(self, field, value)

    def __getstate__(self):
        """Return what a pickle holds: numpy arrays, also of what is divided between devices."""
        return _on_host(vars(self))

    def _check_leading_axes(self):
        first = None
        for group in ("draws", "stats", "tracked"):
            for name, values in getattr(self, group).items():
                if values.ndim < 2:
                    raise ModelError(f"{group} of {name!r} have shape {values.shape}; they start with [chain, draw].")
                first = first or (name, values.shape[:2])
                if values.shape[:2] != first[1]:
                    raise ModelError(
                        f"{first[0]!r} has {first[1][0]} chains of {first[1][1]} draws and {name!r} has "
                        f"{values.shape[0]} of {values.shape[1]}. Give every array the same two leading axes."
                    )

    # A mapping from names to draws; compared by identity, since arrays have no single truth value.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> np.ndarray:
        """Draws of one variable, `[chain, draw, ...]`."""
        if name not in self.draws:
            raise KeyError(f"no draws of {name!r}; there are {listed(self.draws)}.{suggest(name, self.draws)}")
        return self.draws[name]

    def __iter__(self):
        return iter(self.draws)

    def __len__(self):
        return len(self.draws)

    def _leading(self):
        arrays = [*self.draws.values(), *self.stats.values(), *self.tracked.values()]
        return arrays[0].shape[:2] if arrays else (0, 0)

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self._leading()[0]

    @property
    def num_draws(self) -> int:
        """Number of draws in each chain."""
        return self._leading()[1]

    @property
    def shapes(self):
        """Shape of one draw of each variable."""
        return {name: values.shape[2:] for name, values in self.draws.items()}

    def sel(self, name: str, where: Mapping[str, Any] | None = None, /, **labels_by_axis: Any) -> np.ndarray:
        """Draws of `name` at the given labels: `posterior.sel("theta", school="Choate")`.

        Args:
          name: of the variable.
          where: labels by axis, for axes whose name is no Python name.
          **labels_by_axis: one label, which drops the axis, or a list of them, which keeps it. Along an axis
            without labels, positions.

        Raises:
          ModelError: there is no such axis or label.
        """
        return labels.select(name, self[name], {**(where or {}), **labels_by_axis}, self.dims, self.coords)

    def summary(self, *names: str, most: int | None = None) -> Summary:
        """Mean, standard deviation, interval, effective sample sizes, R-hat and standard errors of each element.

        Args:
          *names: of the variables; all by default.
          most: how many elements of one variable are read at most, evenly spaced; all by default.
        """
        moments = {n: self.moments[n] for n in names or self.moments if n in self.moments and n not in self.draws}
        draws = {name: self[name] for name in names or self.draws if name not in moments}
        return summarize_draws(draws, self.dims, self.coords, most, moments)

    @property
    def _stride(self):
        """How many draws a printed result goes on by: 1 unless there are very many."""
        return -(-self.chains * self.num_draws // LONG)

    @functools.cached_property
    def _overview(self):
        if not self.num_draws:
            return Summary((), {}, {}, {})
        every = self._stride
        size = max(1, self.chains * (self.num_draws // every) * len(self.draws))
        moments = {n: m for n, m in self.moments.items() if n not in self.draws}
        draws = {name: values[:, ::every] for name, values in self.draws.items()}
        return summarize_draws(draws, self.dims, self.coords, max(20, QUICK // size), moments)

    def warnings(self):
        """Sentences on what is wrong with the draws and what to try; an empty list for a healthy run."""
        return concerns.concerns(self, self._overview)

    @property
    def header(self):
        """One line: the algorithm, how many chains and draws, the seconds it took."""
        s = self.settings
        parts = [f"{self.chains} chain{'s' * (self.chains != 1)} of {self.num_draws} draws"]
        if s.get("thin", 1) not in (1, None):
            parts.append(f"thinned by {s['thin']}")
        if s.get("warmup"):
            parts.append(f"after {s['warmup']} of warm-up")
        title = " of ".join(str(s[key]) for key in ("algorithm", "model") if s.get(key)) or "Draws"
        seconds = self.timings.get("total", sum(self.timings.values()))
        return (
            f"{title}: {' '.join(parts)}"
            + (f", {seconds:.3g} s" if seconds else "")
            + (", interrupted" if self.interrupted else "")
        )

    def __repr__(self):
        lines = [self.header, "", str(self._overview)]
        if self._stride > 1:
            lines += ["", f"Every {self._stride}th draw was read for this table; summary() reads all."]
        lines += ["", *(f"Warning: {sentence}" for sentence in self.warnings())] if self.warnings() else []
        return "\n".join(lines)

    def _repr_html_(self):
        details = records(settings=self.settings, timings=self.timings, versions=self.versions)
        return page(self.header, self._overview, self.warnings(), details)

    def citation(self) -> str:
        """Return the papers whose methods the run used, one a line."""
        return "\n".join(PAPERS.get(self.settings.get("algorithm"), ()) + PAPERS["diagnostics"])

    def save(self, path: Any) -> Any:
        """Write everything to one netCDF file, which `ppl.load` and xarray read; an older file is replaced at once."""
        from ppl.inference.storage import save

        return save(self, path)

    def to_arviz(
        self,
        model: Any = None,
        data: Mapping[str, Any] | None = None,
        *,
        prior: Mapping[str, Any] | None = None,
        predictive: Mapping[str, Any] | None = None,
        predictions: Mapping[str, Any] | None = None,
        new_data: Mapping[str, Any] | None = None,
        log_likelihood: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return an xarray `DataTree` with the groups and attributes of ArviZ's schema (extra `arviz`).

        Args:
          model: with `data`, adds pointwise log likelihoods, log densities of the latent variables, their unconstrained
            values, and predictions.
          data: the mapping that the run was given: observed and constant data.
          prior: what `infer.prior` returned: the groups `prior` and `prior_predictive`.
          predictive: what `infer.predict` returned for the fitted data.
          predictions: what `infer.predict` returned for other data.
          new_data: these other data.
          log_likelihood: what `infer.log_likelihood` returned.
        """
        from ppl.inference.arviz import to_arviz

        return to_arviz(
            self, model, data,
            prior=prior, predictive=predictive, predictions=predictions, new_data=new_data, log_likelihood=log_likelihood,
        )  # fmt: skip

    def plot(self, kind: str = "trace_dist", **options: Any) -> Any:
        """Call `arviz_plots.plot_<kind>` on these draws (extra `arviz`); `options` are passed on."""
        from ppl.inference.arviz import plot

        return plot(self, kind, **options)
