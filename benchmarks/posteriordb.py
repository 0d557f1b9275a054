"""Reproduce the posteriors of `tests/posteriordb`, and print how well and how fast.

    python benchmarks/posteriordb.py                                   # all, by infer.nuts and infer.hmc
    python benchmarks/posteriordb.py --sampler nuts garch irt          # those whose names contain one of these
    python benchmarks/posteriordb.py --float32 kidiq earnings
    python benchmarks/posteriordb.py --save before.json                # at one commit, and at another:
    python benchmarks/posteriordb.py --against before.json             # who got worse, or says something else

Columns of the table:

    z mean, z sd    the largest |own - reference| / sqrt(own standard error^2 + reference's^2) over all parameters
    grad/ess        gradients of all kept draws (warm-up not counted) over the smallest bulk effective sample size
    seconds         of the whole call, the compilation of the sampler included; of the compilation alone

The solution of the differential equation is by diffrax where that is installed (`pip install -e .[bench]`), otherwise by
a Runge-Kutta method of fixed step.
"""

import argparse
import dataclasses
import importlib.util
import json
import math
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import posteriordb_models as models
import scipy.stats

from ppl import infer
from ppl.errors import InferenceWarning

FOLDER = Path(__file__).parents[1] / "tests" / "posteriordb"
SAMPLERS = {"nuts": infer.nuts, "hmc": infer.hmc}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A run beside its reference, an entry for each number of the posterior: own mean minus the reference's, and so on."""

    names: list
    difference: np.ndarray  # of means, then of standard deviations
    own_error: np.ndarray
    reference_error: np.ndarray

    @property
    def z(self):
        """Differences in units of their standard error."""
        return self.difference / np.hypot(self.own_error, self.reference_error)

    def excess(self, rate, reference_errors=4.0):
        """Return the differences beyond what chance explains, all negative but in a share `rate` of runs.

        Allowed are `reference_errors` standard errors of the reference, which are the same in each run, and own standard
        errors up to the quantile of Student's t with 50 degrees of freedom (a standard error is itself known to about
        10 percent) that all numbers together exceed at most at this rate (Bonferroni).
        """
        quantile = -scipy.stats.t.ppf(rate / (2 * len(self.difference)), 50)
        return np.abs(self.difference) - quantile * self.own_error - reference_errors * self.reference_error


def load(name):
    """Return the posterior's model, its `data`, and the reference values by parameter."""
    posterior = models.POSTERIORS[name]
    content = json.loads((FOLDER / name / "data.json").read_text())
    reference = json.loads((FOLDER / name / "reference.json").read_text())["parameters"]
    return posterior, posterior.data(content), reference


def compare(summary, names, reference):
    """Return the `Comparison` of a run's summary with reference values."""
    rows, columns = [], {"mean": [], "sd": []}
    for parameter, known in reference.items():
        variable, *index = np.atleast_1d(np.array(names.get(parameter, parameter), object))
        own = {column: values[tuple(index)] for column, values in summary[variable].items()}
        if np.shape(own["mean"]) != tuple(known["shape"]):
            raise ValueError(f"{parameter} has shape {known['shape']} in the reference, {np.shape(own['mean'])} here")
        for moment, own_error, known_error in (("mean", "mcse_mean", "mcse"), ("sd", "mcse_sd", "mcse_sd")):
            columns[moment].append(
                [np.ravel(x) for x in (own[moment], known[moment], own[own_error], known[known_error])]
            )
        rows += [f"{parameter}{list(i) if i else ''}" for i in np.ndindex(*known["shape"])]
    own, known, own_error, known_error = np.concatenate(
        [np.concatenate(columns[moment], axis=1) for moment in columns], axis=1
    )
    return Comparison([f"{m} {r}" for m in columns for r in rows], own - known, own_error, known_error)


def run(name, sampler, seed=0, solve=None, handler=None, **settings):
    """Sample one posterior; returns `(posterior, Comparison)`.

    Args:
      name: of its folder.
      sampler: "nuts" or "hmc".
      seed: of the sampler.
      solve: solves its differential equation, if it has one.
      handler: a function from a model to a model.
      **settings: of the sampler.
    """
    known, data, reference = load(name)
    if "solve" in data and solve is not None:
        data["solve"] = solve
    model = known.model if handler is None else handler(known.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        drawn = SAMPLERS[sampler](model, data, seed=seed, progress=False, **{**known.settings, **settings})
    return drawn, compare(drawn.summary(), known.names, reference)


def numbers(drawn, comparison):
    """Return the row of the table as a dict."""
    summary = drawn.summary()
    half = len(comparison.z) // 2
    ess = float(np.min(summary.columns["ess_bulk"]))
    gradients = float(np.sum(drawn.stats["n_steps"], dtype=float))
    return {
        "parameters": half,
        "z mean": float(np.abs(comparison.z[:half]).max()),
        "z sd": float(np.abs(comparison.z[half:]).max()),
        "diverging": int(drawn.stats["diverging"].sum()),
        "r_hat": float(np.nanmax(summary.columns["r_hat"])),
        "ess": ess,
        "grad/ess": gradients / ess,
        "seconds": drawn.timings["total"],
        "compiling": drawn.timings["compile"],
    }


def changes(before, after):
    """Return sentences on what got worse from one saved run to another: other results, less per gradient, more time."""
    found = []
    for run in sorted(before.keys() & after.keys()):
        old, new = before[run], after[run]
        error = np.hypot(old["own_error"], new["own_error"])
        z = np.abs(np.subtract(new["difference"], old["difference"])) / error
        if z.max() > 4:
            found.append(f"{run}: {new['names'][int(z.argmax())]} moved by {z.max():.1f} standard errors")
        # An effective sample size is itself uncertain by some 5 percent.
        for figure, unit in (("grad/ess", "gradients per effective draw"), ("seconds", "seconds")):
            ratio = new[figure] / old[figure]
            if ratio > 1.1:
                found.append(f"{run}: {ratio:.2f} times the {unit}")
    return found or ["no posterior moved, and none got slower by more than a tenth"]


FORMATS = {
    "parameters": "d", "z mean": ".2f", "z sd": ".2f", "diverging": "d", "r_hat": ".4f", "ess": ".0f", "grad/ess": ".1f",
    "seconds": ".1f", "compiling": ".1f",
}  # fmt: skip


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names; by default all posteriors")
    parser.add_argument("--sampler", choices=["nuts", "hmc", "both"], default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--float32", action="store_true", help="single precision; by default double")
    parser.add_argument("--save", type=Path, help="write all figures to this file")
    parser.add_argument("--against", type=Path, help="compare with figures saved at another commit on this machine")
    words = parser.parse_args()
    jax.config.update("jax_enable_x64", not words.float32)
    names = [n for n in models.POSTERIORS if not words.names or any(part in n for part in words.names)]
    if not names:
        sys.exit(f"no posterior is called like {words.names}; there are {', '.join(models.POSTERIORS)}")
    solve = models.diffrax_solve if importlib.util.find_spec("diffrax") else None
    samplers = ["nuts", "hmc"] if words.sampler == "both" else [words.sampler]
    width = max(len(n) for n in names)
    print("  ".join(["posterior".ljust(width), "by  ", *(c.rjust(9) for c in FORMATS), "worst"]))
    efficiency, z, saved = {s: [] for s in samplers}, [], {}
    for name in names:
        for sampler in samplers:
            drawn, comparison = run(name, sampler, words.seed, solve)
            row = numbers(drawn, comparison)
            efficiency[sampler].append(1 / row["grad/ess"])
            z += list(comparison.z)
            own = {"difference": comparison.difference.tolist(), "own_error": comparison.own_error.tolist()}
            saved[f"{name} {sampler}"] = {**row, **own, "names": comparison.names}
            cells = [format(row[column], form).rjust(9) for column, form in FORMATS.items()]
            worst = comparison.names[int(np.argmax(np.abs(comparison.z)))]
            print("  ".join([name.ljust(width), sampler.ljust(4), *cells, worst]), flush=True)
    z = np.abs(z)
    chance = 2 * scipy.stats.norm.sf(4) * len(z)
    print(
        f"\n{len(z)} numbers compared: {(z > 2).mean():.1%} beyond 2, {(z > 4).sum()} beyond 4 (by chance {chance:.2g})"
    )
    if len(samplers) == 2:
        ratio = math.exp(np.mean(np.log(np.divide(efficiency["hmc"], efficiency["nuts"]))))
        print(f"effective draws per gradient, hmc over nuts, geometric mean: {ratio:.2f}")
    for name in names:
        if models.POSTERIORS[name].difficulty:
            settings = ", ".join(f"{k}={v}" for k, v in models.POSTERIORS[name].settings.items())
            print(f"difficult: {name}: {models.POSTERIORS[name].difficulty}{f' ({settings})' if settings else ''}")
    if words.save:
        words.save.write_text(json.dumps(saved))
    if words.against:
        print("\n".join(["", *changes(json.loads(words.against.read_text()), saved)]))


if __name__ == "__main__":
    main()
