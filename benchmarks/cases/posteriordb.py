"""The posteriors of `tests/posteriordb`, in double precision: gradients for one effective draw.

nutpie and NumPyro sample the very log density that `ppl` samples, so only the samplers differ: nutpie's metric and
step size, and for `numpyro:density` Stan's, which it shares.
"""

import sys
import types
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "tests" / "posteriordb"
PARTS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def select(name):
    """Return one posterior as a case."""
    return types.SimpleNamespace(
        PEERS=["ppl", "ppl:hmc"],
        RUNNERS={"nutpie:density": nutpie, "numpyro:density": numpyro},
        OPTIONS={"repeats": 3, "most_seconds": 60},
        NAMES=None,
        X64=True,
        data=lambda seed: posterior(name)[1],
        ppl=lambda: posterior(name)[0].model,
        settings=lambda: posterior(name)[0].settings,
    )


def posterior(name):
    """Return a posterior's description and its data."""
    sys.path.insert(0, str(FOLDER.parents[1] / "benchmarks"))
    import posteriordb

    known, data, _ = posteriordb.load(name)
    return known, data


def density(options, data):
    """Return the log density of a flat vector, a function to natural values, starts of chains, and settings."""
    import jax
    import numpy as np
    from jax.flatten_util import ravel_pytree

    import ppl

    known, _ = posterior(options.case.partition("+")[2])
    bound = ppl.log_density(known.model, data)
    settings = dict(known.settings)
    init = settings.pop("init", None)
    position = bound.initial(0)
    if init:
        position = {**position, **bound.free({**bound.constrain(position), **init})}
    start, apart = ravel_pytree(position)
    starts = [start if init else ravel_pytree(bound.initial(c))[0] for c in range(options.chains)]
    return (
        lambda vector: bound(apart(vector)),
        jax.vmap(lambda v: bound.constrain(apart(v))),
        np.array(starts),
        settings,
    )


def nutpie(options):
    import jax
    import numpy as np
    import nutpie as n
    from nutpie.compiled_pyfunc import from_pyfunc

    def run(data, seed):
        log_density, natural, starts, settings = density(options, data)
        gradient, size = jax.jit(jax.value_and_grad(log_density)), starts.shape[1]

        def make_function(**_):
            def function(vector, **_):
                value, slope = gradient(vector)
                return float(value), np.asarray(slope)

            return function

        compiled = from_pyfunc(
            size, make_function, lambda *_, **__: lambda vector, **_: {"z": vector}, [np.dtype(float)], [(size,)], ["z"],
            make_initial_point_fn=lambda seed: starts[0] + np.random.default_rng(seed).normal(0, 0.01, size),
        )  # fmt: skip
        drawn = n.sample(
            compiled, draws=options.draws, tune=options.warmup, chains=options.chains, seed=seed, progress_bar=False,
            cores=1, **({"target_accept": settings["target_accept"]} if settings else {}),
        )  # fmt: skip
        return outcome(natural, drawn.posterior["z"].values, drawn.sample_stats["n_steps"].values)

    return run


def numpyro(options):
    import jax
    import numpyro as n

    def run(data, seed):
        log_density, natural, starts, settings = density(options, data)
        kernel = n.infer.NUTS(
            potential_fn=lambda z: -log_density(z), target_accept_prob=settings.get("target_accept", 0.8)
        )
        mcmc = n.infer.MCMC(
            kernel, num_warmup=options.warmup, num_samples=options.draws, num_chains=options.chains,
            chain_method="sequential", progress_bar=False,
        )  # fmt: skip
        mcmc.run(jax.random.key(seed), init_params=starts, extra_fields=("num_steps",))
        steps = mcmc.get_extra_fields()["num_steps"]
        return outcome(natural, mcmc.get_samples(group_by_chain=True), steps)

    return run


def outcome(natural, vectors, steps):
    import jax

    draws = jax.device_get(jax.jit(jax.vmap(natural))(vectors))
    return {"draws": draws, "print": lambda: print(list(draws)), "steps": int(steps.sum()), "warmup_steps": None}
