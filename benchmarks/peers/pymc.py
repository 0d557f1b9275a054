"""PyMC: its own NUTS, chains in processes, one for each core."""

import os

import numpy as np
import pymc as pm

VERSIONS = ("pymc", "pytensor", "numpy")


def model_of(case, data):
    """Return a PyMC model whose data can be exchanged."""
    with pm.Model() as model:
        case.pymc(**{name: pm.Data(f"data_{name}", wide(values)) for name, values in data.items()})
    return model


def wide(values):
    """Return data in double precision, in which this peer computes."""
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def result(case, drawn, seconds=None):
    """Return what `run` returns, from ArviZ data."""
    import arviz as az

    def steps(group):
        return int(group["n_steps"].sum()) if "n_steps" in group else int((2.0 ** group["tree_depth"] - 1).sum())

    return {
        "draws": {name: drawn.posterior[name].values for name in case.NAMES},
        "print": lambda: print(az.summary(drawn)),
        "seconds": seconds,
        "steps": steps(drawn.sample_stats),
        "warmup_steps": steps(drawn.warmup_sample_stats),
    }


def sampler(case, options):
    def run(data, seed):
        with model_of(case, data):
            drawn = pm.sample(
                options.draws, tune=options.warmup, chains=options.chains, cores=len(os.sched_getaffinity(0)),
                random_seed=seed, progressbar=False, discard_tuned_samples=False, nuts_sampler="pymc",
            )  # fmt: skip
        return result(case, drawn, float(drawn.posterior.attrs["sampling_time"]))

    return run
