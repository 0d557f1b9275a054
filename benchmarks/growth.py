"""How the time of a gradient grows with rows, columns and chains: `python -m benchmarks.growth`, a plot in docs/growth.png.

Logistic regression: a value and gradient of `ppl`'s log density against hand-written JAX, over rows (10 columns) and over
columns (1000 rows); and microseconds per leapfrog of NUTS on eight schools over the number of chains. Slopes are those of
straight lines through the last three points on logarithmic axes.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import environments

ROOT = Path(__file__).parents[1]
FILE = ROOT / "benchmarks" / "results" / "growth.json"
ROWS = [10**k for k in range(3, 8)]
COLUMNS = [10**k for k in range(1, 5)]
CHAINS = [4**k for k in range(6)]


def main():
    """Measure in the environment of `ppl`, and draw where matplotlib is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["measure", "draw"])
    parser.add_argument("--source", default=str(ROOT), help="the checkout whose ppl is measured")
    parser.add_argument("--rows", type=int, default=ROWS[-1], help="at most")
    words = parser.parse_args()
    if words.part:
        return draw() if words.part == "draw" else measure(words.rows)
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(words.source).resolve()), str(ROOT)])}
    for part, name in (("measure", "ppl"), ("draw", "evaluate")):
        command = [environments.python(name), "-P", "-m", "benchmarks.growth", part, "--rows", str(words.rows)]
        subprocess.run(command, env=paths, check=True)


def measure(most_rows):
    """Time everything and save it."""
    out = {"rows": [], "columns": [], "chains": []}
    for rows in (n for n in ROWS if n <= most_rows):
        out["rows"].append([rows, *gradient(rows, 10)])
        print("rows", out["rows"][-1], flush=True)
    for columns in COLUMNS:
        out["columns"].append([columns, *gradient(1000, columns)])
        print("columns", out["columns"][-1], flush=True)
    for chains in CHAINS:
        out["chains"].append([chains, leapfrog(chains)])
        print("chains", out["chains"][-1], flush=True)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(out, indent=1))


def gradient(rows, columns):
    """Return seconds of a value and gradient by `ppl`, and by hand."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import ppl

    def model(X):
        w = yield ppl.Normal(0.0, 1.0, shape=X.shape[1], name="w")
        yield ppl.Bernoulli(logits=X @ w, name="y")

    def by_hand(w, X, y):
        logits = X @ w
        return (y.astype(float) * logits - jax.nn.softplus(logits)).sum() - (w**2).sum() / 2

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((rows, columns), np.float32), rng.integers(0, 2, rows).astype(np.int32)
    bound, w = ppl.log_density(model, {"X": X, "y": y}), jnp.zeros(columns)

    def ours(w, arrays):
        return bound.structure.log_density({"w": w}, arrays)

    return seconds(ours, w, jax.device_put(bound.arrays)), seconds(by_hand, w, *jax.device_put((X, y)))


def seconds(function, *arguments):
    """Return the least time of one value and gradient, within a loop of compiled code."""
    import jax

    def repeat(n, w, *rest):
        step = jax.value_and_grad(function)
        return jax.lax.fori_loop(0, n, lambda _, w: w + 1e-6 * step(w, *rest)[1], w)

    compiled, count = jax.jit(repeat), 1
    compiled(1, *arguments).block_until_ready()
    while True:
        took = []
        for _ in range(3):
            began = time.perf_counter()
            compiled(count, *arguments).block_until_ready()
            took.append(time.perf_counter() - began)
        if min(took) > 0.05:
            return min(took) / count
        count *= 4


def leapfrog(chains):
    """Return seconds per leapfrog of NUTS, all chains together."""
    import warnings

    import ppl
    from benchmarks.cases import eight_schools

    warnings.simplefilter("ignore", ppl.InferenceWarning)  # the runs are short
    model, data = eight_schools.ppl(), eight_schools.data(0)
    settings = dict(chains=chains, draws=1000 if chains < 64 else 100, warmup=200, progress=False, keep_warmup=True)
    took = []
    for seed in range(3):
        drawn = ppl.infer.nuts(model, data, seed=seed, **settings)
        steps = drawn.stats["n_steps"].sum(dtype=float) + drawn.warmup["stats"]["n_steps"].sum(dtype=float)
        took.append((drawn.timings["total"] - drawn.timings["compile"]) / steps)
    return float(min(took[1:]))


def draw():
    """Draw docs/growth.png."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    found = json.loads(FILE.read_text())
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), constrained_layout=True)
    titles = {"rows": "rows, 10 columns", "columns": "columns, 1000 rows", "chains": "chains, eight schools"}
    for panel, (name, title) in zip(panels, titles.items(), strict=True):
        x, *lines = zip(*found[name], strict=True)
        for label, marker, values in zip(("ppl", "by hand"), "ox", lines, strict=False):  # chains have one line
            slope = math.log(values[-1] / values[-3]) / math.log(x[-1] / x[-3])
            panel.loglog(x, values, marker + "-", label=f"{label}, slope {slope:.2f}", alpha=0.8)
        panel.set(xlabel=title, ylabel="seconds per leapfrog" if name == "chains" else "seconds per gradient")
        panel.legend(frameon=False)
    figure.savefig(ROOT / "docs" / "growth.png", dpi=110)


if __name__ == "__main__":
    sys.exit(main())
