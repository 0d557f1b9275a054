"""Bayesian logistic regression on MNIST, rows over devices: `python benchmarks/mnist.py [--full] [--local FOLDER]`.

The protocol of the TensorFlow Probability notebook "Distributed inference with JAX": 60,000 x 784, 10 classes, HMC of 100
leapfrogs, 1,000 iterations of warm-up and 1,000 draws of one chain. There, on 8 TPU cores: average accuracy 0.9189, accuracy of
the model average 0.9264. Without `--full`, a small run of the same program.
"""

import argparse
import json
import time

import jax


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="60,000 rows, 1,000 + 1,000 iterations")
    parser.add_argument("--local", help="a folder that holds MNIST")
    parser.add_argument("--devices", type=int, default=8, help="virtual devices on a CPU")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--warmup", type=int)
    parser.add_argument("--draws", type=int)
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


def logistic(X):
    import ppl

    w = yield ppl.Normal(0.0, 1.0, shape=(X.shape[1], 10), name="w")
    b = yield ppl.Normal(0.0, 1.0, shape=(1, 10), name="b")
    yield ppl.Categorical(logits=X @ w + b, name="y")


def load(local, rows):
    """Return train and test data, pixels in [0, 1]."""
    import numpy as np

    from ppl.data import mnist

    raw = mnist(local)
    X = {part: raw[f"{part}_images"].reshape(-1, 784).astype(np.float32) / 255 for part in ("train", "test")}
    y = {part: raw[f"{part}_labels"].astype(np.int32) for part in ("train", "test")}
    return {"X": X["train"][:rows], "y": y["train"][:rows]}, {"X": X["test"], "y": y["test"]}


def accuracies(w, b, test):
    """Return the mean accuracy of the draws, and the accuracy of their mean probabilities."""
    import jax.numpy as jnp
    import numpy as np

    @jax.jit
    def probabilities(w, b):
        return jax.nn.softmax(test["X"] @ w + b, axis=-1)

    total, single = 0.0, []
    for draw in zip(w, b, strict=True):
        p = probabilities(*draw)
        total = total + p
        single.append(float(jnp.mean(jnp.argmax(p, -1) == test["y"])))
    return float(np.mean(single)), float(jnp.mean(jnp.argmax(total, -1) == test["y"]))


def run(rows, warmup, draws, steps, devices, local=None, data=None):
    """Sample, and return the figures of a run as one record."""
    from jax.sharding import PartitionSpec as P

    import ppl

    train, test = load(local, rows) if data is None else data
    mesh = jax.make_mesh((devices,), ("rows",), devices=jax.devices()[:devices])
    began = time.perf_counter()
    posterior = ppl.infer.hmc(
        logistic, train, chains=1, draws=draws, warmup=warmup, num_steps=steps, target_accept=0.8,
        mesh=mesh, sharding={"X": P("rows"), "y": P("rows")},
    )  # fmt: skip
    seconds = time.perf_counter() - began
    average, together = accuracies(posterior["w"][0], posterior["b"][0], test)
    return {
        "rows": len(train["y"]), "devices": devices, "warmup": warmup, "draws": draws, "leapfrogs": steps,
        "seconds": round(seconds, 1), "ms_per_leapfrog": round(1000 * posterior.timings["sampling"] / (draws * steps), 3),
        "acceptance": round(float(posterior.stats["acceptance_rate"].mean()), 3),
        "average_accuracy": round(average, 4), "model_average_accuracy": round(together, 4),
    }  # fmt: skip


def main():
    told = arguments()
    jax.config.update("jax_num_cpu_devices", told.devices)
    rows, warmup, draws = (60_000, 1000, 1000) if told.full else (8_000, 60, 60)
    devices = len(jax.devices()) if jax.default_backend() != "cpu" else told.devices
    record = run(told.rows or rows, told.warmup or warmup, told.draws or draws, told.steps, devices, told.local)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
