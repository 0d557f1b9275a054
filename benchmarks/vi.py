"""Steps per second of a variational auto-encoder: `infer.vi` against the same steps written by hand in JAX and optax.

    python -m benchmarks.vi

Both draw rows, code, loss and update in one compiled loop of equal length; the ratio of the median times is printed. Also printed:
seconds, compilation included, until means are within 0.1 sd and sds within 20 percent of long runs of NUTS on eight schools.
"""

import statistics
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import vae  # noqa: E402

import ppl  # noqa: E402
from ppl import infer  # noqa: E402
from ppl.data import eight_schools  # noqa: E402
from ppl.inference import chains, steps  # noqa: E402
from ppl.inference.vi import prepare  # noqa: E402

BATCH, STEPS, SIZE, HIDDEN, RATE = 128, 500, 8, 256, 1e-3


def by_hand(images):
    """Return a compiled loop of `STEPS` steps and its first state."""
    x = jnp.asarray(images)
    total, optimizer = len(images), optax.adam(RATE)
    params = vae.first_parameters(SIZE, HIDDEN)

    def loss(params, key, rows):
        batch = x[rows]
        mean, sd = vae.encode(params["encoder"], batch)
        z = mean + sd * jax.random.normal(key, mean.shape)
        logits = vae.decode(params["decoder"], z)
        counts = batch.astype(jnp.float32)
        choose = (
            jax.scipy.special.gammaln(17.0)
            - jax.scipy.special.gammaln(counts + 1)
            - jax.scipy.special.gammaln(17 - counts)
        )
        likelihood = jnp.sum(choose + counts * logits - 16 * jax.nn.softplus(logits))
        prior = jnp.sum(-0.5 * z * z)
        guide = jnp.sum(-0.5 * jnp.square((z - mean) / sd) - jnp.log(sd))
        return -(total / BATCH) * (likelihood + prior - guide)

    @jax.jit
    def run(state, key):
        def body(i, carry):
            params, moments, trail = carry
            row_key, draw_key = jax.random.split(jax.random.fold_in(key, i))
            rows = jax.random.randint(row_key, (BATCH,), 0, total)
            value, gradient = jax.value_and_grad(loss)(params, draw_key, rows)
            updates, moments = optimizer.update(gradient, moments)
            return optax.apply_updates(params, updates), moments, trail.at[i].set(-value)

        return jax.lax.fori_loop(0, STEPS, body, (*state, jnp.zeros(STEPS)))

    return lambda state: run(state, jax.random.key(0)), (params, optimizer.init(params))


def by_ppl(images):
    """Return the loop of `infer.vi` for `STEPS` steps and its first state."""
    data = {"rows": np.arange(len(images)), "x": images}
    batch = {"rows": BATCH, "x": BATCH}
    work = prepare(
        vae.vae,
        vae.encoder,
        data,
        vae.first_parameters(SIZE, HIDDEN),
        infer.elbo,
        "pathwise",
        RATE,
        1,
        None,
        batch,
        None,
        None,
    )
    run = jax.jit(steps.make_run(work.step), compiler_options=chains.compiler_options())
    return lambda state: run(state, jax.random.key(0), work.arrays, np.int32(STEPS), np.int32(STEPS)), work.state


def auto_encoder(repeats=7):
    """Print seconds a step of both, and their ratio; they take turns."""
    images = vae.digits()
    runs = {"by hand": by_hand(images), "ppl": by_ppl(images)}
    times = {name: [] for name in runs}
    for run, state in runs.values():
        jax.block_until_ready(run(state))
    for _ in range(repeats):
        for name, (run, state) in runs.items():
            began = time.perf_counter()
            jax.block_until_ready(run(state))
            times[name].append((time.perf_counter() - began) / STEPS)
    best = {name: min(t) for name, t in times.items()}
    median = {name: statistics.median(t) for name, t in times.items()}
    print(
        "vae, microseconds a step:",
        {n: round(1e6 * t, 1) for n, t in median.items()},
        "best:",
        {n: round(1e6 * t, 1) for n, t in best.items()},
    )
    print(
        f"ratio ppl / by hand: {median['ppl'] / median['by hand']:.3f} (median), {best['ppl'] / best['by hand']:.3f} (best)"
    )


def schools(sigma):
    """Eight schools."""
    mu = yield ppl.Normal(0.0, 5.0, name="mu")
    tau = yield ppl.HalfNormal(5.0, name="tau")
    theta = yield ppl.Normal(mu, tau, shape=sigma.shape, name="theta")
    yield ppl.Normal(theta, sigma, name="y")


def eight():
    """Print seconds of each method and how far it is from a long run of NUTS."""
    data, model = eight_schools(), ppl.noncentered(schools, "theta")
    exact = infer.nuts(model, data, draws=20_000, progress=False)
    methods = {
        "pathfinder": lambda: infer.pathfinder(model, data),
        "mean_field": lambda: infer.vi(model, infer.mean_field, data, progress=False),
        "full_rank": lambda: infer.vi(model, infer.full_rank, data, progress=False),
        "full_rank after pathfinder": lambda: infer.vi(
            model, infer.full_rank, data, init=infer.pathfinder(model, data), steps=300, progress=False
        ),
    }
    for name, method in methods.items():
        began = time.perf_counter()
        fit = method()
        took = time.perf_counter() - began
        draws = fit.posterior(4000)
        shift = max(
            np.max(abs(draws[n].mean((0, 1)) - exact[n].mean((0, 1))) / exact[n].std((0, 1)))
            for n in ("mu", "tau", "theta")
        )
        ratio = max(np.max(abs(draws[n].std((0, 1)) / exact[n].std((0, 1)) - 1)) for n in ("mu", "tau", "theta"))
        print(
            f"{name}: {took:.2f} s with compilation, means within {shift:.2f} sd, sds within {ratio:.0%}, k-hat {fit.pareto_k:.2f}"
        )


if __name__ == "__main__":
    auto_encoder()
    eight()
