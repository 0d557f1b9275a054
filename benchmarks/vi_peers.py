"""How long variational fits take until they are good: `ppl` and its peers, on the same models.

    python -m benchmarks.vi_peers [--cases eight_schools,logistic,radon] [--peers ppl,numpyro]

A fit is good when means are within 0.1 sd and sds within 20 percent of a long run of NUTS. Each peer fits a Gaussian with
a full covariance, 8 draws a step, Adam with a rate that falls from 0.1 to 0.001 (PyMC: its own Adagrad window), with more
steps each time until it is good; each try is a new process without caches. The seconds are those of the fit with its
compilation and of 4,000 draws. `ppl` appears with and without weights, and with Pathfinder.
"""

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS = ("ppl", "ppl:smoothed", "ppl:pathfinder", "numpyro", "blackjax", "pymc")
STEPS = (500, 1000, 2000, 4000, 8000, 16000, 32000)
DRAWS = 4000
ENVIRONMENTS = {"pymc": "nutpie"}


def main():
    """Print, for each case and peer, the fewest steps that are good, and their seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="eight_schools,logistic,radon")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)  # case, peer, steps, reference
    words = parser.parse_args()
    if words.one:
        print(json.dumps(one(*words.one)))
        return
    from benchmarks import environments

    folder = ROOT / "benchmarks" / "results"
    folder.mkdir(exist_ok=True)
    print("| case | peer | steps | seconds | means within | sds within |\n|---|---|---:|---:|---:|---:|")
    for case in words.cases.split(","):
        file = folder / f"vi-{case}.npz"
        run(environments.python("ppl"), case, "reference", 0, file)
        for peer in words.peers.split(","):
            name = peer.partition(":")[0]
            python = environments.python(ENVIRONMENTS.get(name, name))
            for steps in (0,) if peer == "ppl:pathfinder" else STEPS:
                found = run(python, case, peer, steps, file)
                if found["shift"] < 0.1 and found["ratio"] < 0.2:
                    break
            good = found["shift"] < 0.1 and found["ratio"] < 0.2
            print(
                f"| {case} | {peer} | {steps or '-'} | {found['seconds']:.2f}{'' if good else ' (not good)'} | "
                f"{found['shift']:.2f} sd | {found['ratio']:.0%} |",
                flush=True,
            )


def run(python, *words):
    """Return what one process prints last."""
    environment = {**os.environ, "PPL_CACHE": "off", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [python, "-W", "ignore", "-m", "benchmarks.vi_peers", "--one", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def one(case, peer, steps, file):
    """Fit once. Returns its seconds and its distance from the reference, or makes the reference."""
    import numpy as np

    from benchmarks import cases

    case = cases.load(case)
    data = case.data(0)
    if peer == "reference":
        import ppl

        posterior = ppl.infer.nuts(case.ppl(), data, draws=10_000, progress=False)
        np.savez(file, **{n: np.stack([posterior[n].mean((0, 1)), posterior[n].std((0, 1))]) for n in case.NAMES})
        return {}
    name, _, variant = peer.partition(":")
    fit = {"ppl": by_ppl, "numpyro": by_numpyro, "blackjax": by_blackjax, "pymc": by_pymc}[name]
    load = __import__(name)  # the import is not part of the fit
    began = time.perf_counter()
    draws = fit(load, case, data, int(steps), variant)
    seconds = time.perf_counter() - began
    shift = ratio = 0.0
    with np.load(file) as reference:
        for variable in case.NAMES:
            mean, sd = reference[variable]
            shift = max(shift, float(np.max(abs(draws[variable].mean(0) - mean) / sd)))
            ratio = max(ratio, float(np.max(abs(draws[variable].std(0) / sd - 1))))
    return {"seconds": seconds, "shift": shift, "ratio": ratio}


def by_ppl(ppl, case, data, steps, variant):
    if variant == "pathfinder":
        fit = ppl.infer.pathfinder(case.ppl(), data)
    else:
        fit = ppl.infer.vi(case.ppl(), ppl.infer.full_rank, data, steps=steps, progress=False)
    posterior = fit.posterior(DRAWS, smoothed=True if variant else None)
    return {name: posterior[name][0] for name in case.NAMES}


def rate(steps):
    import optax

    return optax.adam(optax.exponential_decay(0.1, steps, 0.01))


def by_numpyro(numpyro, case, data, steps, variant):
    import jax
    import numpy as np
    from numpyro.infer import SVI, Predictive, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal
    from numpyro.optim import optax_to_numpyro

    guide = AutoMultivariateNormal(case.numpyro)
    svi = SVI(case.numpyro, guide, optax_to_numpyro(rate(steps)), Trace_ELBO(num_particles=8))
    params = svi.run(jax.random.key(0), steps, **data, progress_bar=False).params
    latents = guide.sample_posterior(jax.random.key(1), params, sample_shape=(DRAWS,))
    derived = Predictive(case.numpyro, latents)(jax.random.key(2), **data)
    return {name: np.asarray(latents[name] if name in latents else derived[name]) for name in case.NAMES}


def by_blackjax(blackjax, case, data, steps, variant):
    import jax
    import jax.numpy as jnp
    import numpy as np

    method = blackjax.fullrank_vi(lambda z: case.log_density(z, data), rate(steps), 8)
    start = method.init({name: jnp.zeros(shape) for name, shape in case.START.items()})

    @jax.jit
    def loop(state, key):
        return jax.lax.scan(lambda s, k: (method.step(k, s)[0], None), state, jax.random.split(key, steps))[0]

    state = loop(start, jax.random.key(0))
    latents = method.sample(jax.random.key(1), state, DRAWS)
    return {n: np.asarray(v) for n, v in jax.vmap(lambda z: case.natural(z, data))(latents).items()}


def by_pymc(pymc, case, data, steps, variant):
    from benchmarks.peers.pymc import model_of

    with model_of(case, data):
        fit = pymc.fit(steps, method="fullrank_advi", random_seed=0, progressbar=False)
        drawn = fit.sample(DRAWS, random_seed=1).posterior
    return {name: drawn[name].values[0] for name in case.NAMES}


if __name__ == "__main__":
    main()
