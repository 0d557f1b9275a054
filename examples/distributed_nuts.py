"""NUTS over several devices: logistic regression on Covertype, rows over devices and chains side by side.

    python examples/distributed_nuts.py [--local FOLDER] [--rows 50000] [--groups 2]

The data of the paper's benchmark of NUTS: 581,012 rows, 54 features, standardized, and the first cover type against the rest.
"""

import argparse

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

import ppl
from ppl import Bernoulli, Normal, infer


def logistic(X):
    """A logistic regression whose data are kept feature by feature."""
    w = yield Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
    b = yield Normal(0.0, 1.0, name="b")
    yield Bernoulli(logits=ppl.linear(X, w, b), name="y")


def forest(local=None, rows=None):
    """Return standardized features and whether the cover type is the first."""
    raw = ppl.data.covertype(local)
    X, y = raw["X"], (raw["y"] == 1).astype(np.int32)
    X = (X - X.mean(0, dtype=float)) / np.maximum(X.std(0, dtype=float), 1e-6)
    picked = np.random.default_rng(0).permutation(len(X))[:rows]
    return {"X": X[picked].astype(np.float32), "y": y[picked]}


def sample(data, groups=1, **options):
    """Run one chain in each of `groups` groups of devices. Returns the plan of the run and its posterior."""
    mesh = jax.make_mesh((groups, jax.device_count() // groups), ("chains", "rows"))
    sharding = {"X": P("rows"), "y": P("rows")}
    model, data = ppl.pad(logistic, data, mesh=mesh, sharding=sharding)  # rows that make lengths fit, of weight 0
    where = dict(mesh=mesh, sharding=sharding, chains=groups)
    return ppl.plan(model, data, **where), infer.nuts(model, data, **where, **options)


def main():
    """Print the plan, and the posterior with the seconds of a gradient."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", help="a folder that holds Covertype; by default it is downloaded, 11 MB")
    parser.add_argument("--rows", type=int, help="how many rows; by default all")
    parser.add_argument("--devices", type=int, default=8, help="virtual devices on a CPU")
    parser.add_argument("--groups", type=int, default=2, help="chains, each on its own group of devices")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=200)
    words = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", words.devices)
    plan, posterior = sample(forest(words.local, words.rows), words.groups, draws=words.draws, warmup=words.warmup)
    print(plan, posterior, sep="\n\n")
    gradients = int(posterior.stats["n_steps"].sum())
    print(f"\n{1e3 * posterior.timings['sampling'] / gradients:.2f} ms for a gradient of a chain")


if __name__ == "__main__":
    main()
