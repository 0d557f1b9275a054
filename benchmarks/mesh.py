"""Microseconds per leapfrog on a mesh: `python benchmarks/mesh.py [--full] [--local FOLDER] [--devices 1 2 8]`.

Three workloads, each as a `ppl` model, as hand-written JAX under `jit` (the compiler divides it) and under `shard_map` (sums over
devices written out): MNIST (rows of data divided), Covertype (the same, more rows and fewer columns), and the watch matrix
of MovieLens 1M (rows of data and of latent variables divided). All do the same leapfrogs, in one process, taking turns; the
figure is the best of several rounds. Without `--full`, a tenth of the rows. Data are synthetic unless `--local` has them:
times do not depend on the numbers.
"""

import argparse
import functools
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def model_of_mnist(X):
    import ppl

    w = yield ppl.Normal(0.0, 1.0, shape=(X.shape[1], 10), name="w")
    b = yield ppl.Normal(0.0, 1.0, shape=(1, 10), name="b")
    yield ppl.Categorical(logits=X @ w + b, name="y")


def model_of_covertype(X):
    import ppl

    w = yield ppl.Normal(0.0, 1.0, shape=(X.shape[1],), name="w")
    b = yield ppl.Normal(0.0, 1.0, name="b")
    yield ppl.Bernoulli(logits=X @ w + b, name="y")


def model_of_movielens(users, films):
    import ppl

    U = yield ppl.Normal(0.0, 1.0, shape=(users, 20), name="U")
    u = yield ppl.Normal(0.0, 1.0, shape=(users, 1), name="u")
    V = yield ppl.Normal(0.0, 1.0, shape=(films, 20), name="V")
    v = yield ppl.Normal(0.0, 1.0, shape=(1, films), name="v")
    yield ppl.Bernoulli(logits=U @ V.T + u + v, name="seen")


def likelihood_of_mnist(x, data):
    logits = jax.nn.log_softmax(data["X"] @ x["w"] + x["b"])
    hot = data["y"][:, None] == jnp.arange(10)[None]
    return jnp.sum(jnp.where(hot, logits, 0))


def _bernoulli(logits, y):
    return -jnp.sum(jax.nn.softplus(jnp.where(y == 1, -logits, logits)))


def likelihood_of_covertype(x, data):
    return _bernoulli(data["X"] @ x["w"] + x["b"], data["y"])


def likelihood_of_movielens(x, data):
    return _bernoulli(x["U"] @ x["V"].T + x["u"] + x["v"], data["seen"])


def prior(x):
    return -0.5 * sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(x))


def workload(name, scale):
    """Return the model, the likelihood, data, a start, and what is divided."""
    rng = np.random.default_rng(0)
    rows = {name: P("rows") for name in ("X", "y", "seen", "U", "u")}
    if name == "mnist":
        n = 8 * int(60_000 * scale / 8)
        data = {"X": rng.random((n, 784), np.float32), "y": rng.integers(0, 10, n).astype(np.int32)}
        start = {"w": np.zeros((784, 10), np.float32), "b": np.zeros((1, 10), np.float32)}
        return model_of_mnist, likelihood_of_mnist, data, {}, start, rows
    if name == "covertype":
        n = 8 * int(581_008 * scale / 8)
        data = {"X": rng.normal(size=(n, 54)).astype(np.float32), "y": rng.integers(0, 2, n).astype(np.int32)}
        start = {"w": np.zeros(54, np.float32), "b": np.zeros((), np.float32)}
        return model_of_covertype, likelihood_of_covertype, data, {}, start, rows
    n, m = 8 * int(6040 * scale / 8), max(40, int(3706 * min(1.0, scale * 4)))
    data = {"seen": (rng.random((n, m)) < 0.045).astype(np.int32)}
    shapes = {"U": (n, 20), "u": (n, 1), "V": (m, 20), "v": (1, m)}
    start = {k: (0.1 * rng.normal(size=s)).astype(np.float32) for k, s in shapes.items()}
    return model_of_movielens, likelihood_of_movielens, data, {"users": n, "films": m}, start, rows


def leapfrogs(gradient, steps):
    """Return the hand-written trajectory: `steps` leapfrogs from a position and a momentum."""

    def trajectory(x, p, data, size):
        def one(_, carry):
            x, p, _, g = carry
            p = jax.tree.map(lambda p, g: p + 0.5 * size * g, p, g)
            x = jax.tree.map(lambda x, p: x + size * p, x, p)
            value, g = gradient(x, data)
            return x, jax.tree.map(lambda p, g: p + 0.5 * size * g, p, g), value, g

        value, g = gradient(x, data)
        return jax.lax.fori_loop(0, steps, one, (x, p, value, g))

    return trajectory


def by_jit(likelihood, steps):
    """Global arrays; the compiler divides the work."""
    return jax.jit(leapfrogs(jax.value_and_grad(lambda x, data: prior(x) + likelihood(x, data)), steps))


def by_shard_map(likelihood, steps, mesh, specs_x, specs_data):
    """Local arrays; one sum over devices of the value and of the gradients of what is shared."""
    divided = {name: spec != P() for name, spec in specs_x.items()}

    def gradient(x, data):
        value, g = jax.value_and_grad(likelihood)(x, data)
        own = {name: x[name] for name in x if divided[name]}
        value = value + prior(own)
        shared = {name: g[name] for name in g if not divided[name]}
        value, shared = jax.lax.psum((value, shared), "rows")
        value = value + prior({name: x[name] for name in shared})
        return value, {name: (shared[name] if name in shared else g[name]) - x[name] for name in x}

    run = leapfrogs(gradient, steps)
    specs = (specs_x, specs_x, specs_data, P())
    return jax.jit(
        jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=(specs_x, specs_x, P(), specs_x), check_vma=False)
    )


def measure(name, count, scale, steps, draws, rounds):
    """Return microseconds per leapfrog of each way to run a workload on `count` devices."""
    from jax.sharding import AxisType

    import ppl

    model, likelihood, data, sizes, start, rows = workload(name, scale)
    mesh = jax.make_mesh((count,), ("rows",), axis_types=(AxisType.Auto,), devices=jax.devices()[:count])

    def lay(arrays):
        return {n: jax.device_put(a, NamedSharding(mesh, rows.get(n, P()))) for n, a in arrays.items()}

    laid, x = lay(data), lay(start)
    p = jax.tree.map(jnp.ones_like, x)
    specs = [{n: rows.get(n, P()) for n in part} for part in (start, data)]
    hand = {"jit": by_jit(likelihood, steps), "shard_map": by_shard_map(likelihood, steps, mesh, *specs)}
    size = jnp.float32(1e-6)
    sharding = {n: s for n, s in rows.items() if n in data or n in start}

    def of_ppl():
        run = ppl.infer.hmc(
            model, {**data, **sizes}, chains=1, draws=draws, warmup=0, step_size=1e-6, num_steps=steps, progress=False,
            keep=[], mesh=mesh, sharding=sharding, metric="identity",
        )  # fmt: skip
        return run.timings["sampling"] / (draws * steps)

    def of_hand(which):
        began = time.perf_counter()
        for _ in range(draws):
            jax.block_until_ready(hand[which](x, p, laid, size))
        return (time.perf_counter() - began) / (draws * (steps + 1))

    ways = {"ppl": of_ppl, **{which: functools.partial(of_hand, which) for which in hand}}
    for way in ways.values():
        way()  # compiles
    best = dict.fromkeys(ways, np.inf)
    for _ in range(rounds):
        for which, way in ways.items():
            best[which] = min(best[which], way())
    return {which: round(1e6 * seconds, 1) for which, seconds in best.items()}


def bytes_per_exchange(name, scale=1.0):
    """Return what one gradient sends over the interconnect: the gradient of what is shared, and the density."""
    _, _, _, _, start, rows = workload(name, scale)
    return 4 * (1 + sum(a.size for n, a in start.items() if n not in rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--scale", type=float, help="part of the rows; 1 with --full, else 0.1")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--workloads", nargs="+", default=["mnist", "movielens", "covertype"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    told = parser.parse_args()
    if jax.default_backend() == "cpu" and len(jax.devices()) < max(told.devices):
        parser.error("start with JAX_NUM_CPU_DEVICES=8")
    scale = told.scale or (1.0 if told.full else 0.1)
    table = []
    for name in told.workloads:
        for count in told.devices:
            found = measure(name, count, scale, told.steps, told.draws, told.rounds)
            ratio = found["ppl"] / min(found["jit"], found["shard_map"])
            table.append({"workload": name, "devices": count, **found, "ppl / best by hand": round(ratio, 3)})
            print(json.dumps(table[-1]), flush=True)


if __name__ == "__main__":
    main()
