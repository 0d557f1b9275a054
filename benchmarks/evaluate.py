"""Effective sample sizes of saved draws, and whether all runners of a case reached the same posterior.

    python benchmarks/evaluate.py benchmarks/results/radon

Leaves evaluation.json beside the draws, with for each runner

    ess     smallest rank-normalised bulk effective sample size over all variables, of each run of each repetition
    r_hat   largest, over variables and runs
    z       largest |mean - mean of all other runners| in standard errors, and at which variable
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats


def main():
    """Evaluate one folder."""
    folder = Path(sys.argv[1])
    runs = {}
    for path in sorted(folder.glob("*.npz")):
        runs.setdefault(path.stem.rpartition("-")[0], []).append(columns(np.load(path)))
    found, moments = {}, {}
    for runner, repetitions in runs.items():
        ess = [[float(np.nanmin(one(run, "bulk"))) for run in values] for _, values in repetitions]
        worst = max(
            float(array_stats.rhat(run[..., i])) for _, v in repetitions for run in v for i in range(v.shape[-1])
        )
        found[runner] = {"ess": ess, "r_hat": worst}
        moments[runner] = pooled(repetitions)
    for runner, (names, mean, error) in moments.items():
        others = [moments[r] for r in moments if family(r) != family(runner) and moments[r][0] == names]
        if others:
            weights = np.array([1 / e**2 for _, _, e in others])
            rest = (weights * [m for _, m, _ in others]).sum(0) / weights.sum(0)
            z = np.abs(mean - rest) / np.sqrt(error**2 + 1 / weights.sum(0))
            found[runner] |= {"z": float(z.max()), "worst": names[int(z.argmax())], "sd_error": float(error.max())}
    (folder / "evaluation.json").write_text(json.dumps(found, indent=1))


def family(runner):
    """Return the library of a runner."""
    return runner.split(":")[0].split("@")[0]


def columns(file):
    """Return names, and draws [run, chain, draw, column]."""
    names, values = [], []
    for name in sorted(file.files):
        array = file[name].astype(float)
        names += [f"{name}{list(i) if i else ''}" for i in np.ndindex(*array.shape[3:])]
        values.append(array.reshape(*array.shape[:3], -1))
    return names, np.concatenate(values, -1)


def one(run, method):
    """Return the effective sample size of each column of draws [chain, draw, column]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [float(array_stats.ess(run[..., i], method=method)) for i in range(run.shape[-1])]


def pooled(repetitions):
    """Return names, means and standard errors over all runs together, each chain of each run on its own."""
    draws = np.concatenate([values.reshape(-1, *values.shape[2:]) for _, values in repetitions])
    error = [float(array_stats.mcse(draws[..., i], method="mean")) for i in range(draws.shape[-1])]
    return repetitions[0][0], draws.mean((0, 1)), np.array(error)


if __name__ == "__main__":
    main()
