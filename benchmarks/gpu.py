"""Figures for one accelerator, in under eight minutes: `python benchmarks/gpu.py [--small] [--out table.json]`.

Microseconds per leapfrog of Covertype and MNIST, `ppl` on a mesh of one device against hand-written JAX (`benchmarks.mesh`), and
useful leapfrogs per second of many chains of eight schools. `--small` is what the test suite runs on a CPU. Each row is stored
as soon as it is there.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import mesh  # noqa: E402

SECONDS = 460.0  # no row is begun after this


def many_chains(chains, draws):
    """Return leapfrogs per second of `chains` chains of fixed length, moved together on one device."""
    import numpy as np
    from jax.sharding import PartitionSpec as P

    import ppl

    def schools(sigma):
        mu = yield ppl.Normal(0.0, 5.0, name="mu")
        tau = yield ppl.HalfNormal(5.0, name="tau")
        theta = yield ppl.Normal(mu, tau, shape=sigma.shape, name="theta")
        yield ppl.Normal(theta, sigma, name="y")

    model = ppl.noncentered(schools, "theta")
    one = jax.make_mesh((1,), ("chains",), devices=jax.devices()[:1])
    data = {k: np.asarray(v) for k, v in ppl.data.eight_schools().items()}

    def run(seed):
        return ppl.infer.hmc(
            model, data, chains=chains, draws=draws, warmup=0, step_size=0.3, num_steps=16, keep=["mu"], seed=seed, progress=False,
            mesh=one, sharding={"sigma": P()},
        )  # fmt: skip

    run(0)
    found = run(1)
    return chains * draws * 16 / found.timings["sampling"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", default="gpu.json")
    told = parser.parse_args()
    began, table = time.perf_counter(), []
    scale, draws, rounds = (0.002, 2, 1) if told.small else (1.0, 10, 3)

    def keep(row):
        table.append({"device": jax.devices()[0].device_kind, "jax": jax.__version__, **row})
        Path(told.out).write_text(json.dumps(table, indent=1))
        print(json.dumps(table[-1]), flush=True)

    for name in ("covertype", "mnist"):
        if time.perf_counter() - began < SECONDS:
            found = mesh.measure(name, 1, scale, 5 if told.small else 50, draws, rounds)
            keep({"row": f"{name}, microseconds per leapfrog", **found})
    for chains in (8,) if told.small else (64, 1024, 16_384):
        if time.perf_counter() - began < SECONDS:
            speed = many_chains(chains, 5 if told.small else 200)
            keep({"row": f"eight schools, {chains} chains, leapfrogs per second", "ppl": round(speed)})


if __name__ == "__main__":
    main()
