"""NumPyro: NUTS, a chain on each of as many forced host devices as there are chains."""

import time

import jax
import numpy as np

VERSIONS = ("numpyro", "jax", "jaxlib")


def sampler(case, options):
    if 1 < options.chains <= 8:
        jax.config.update("jax_num_cpu_devices", options.chains)
    from numpyro.infer import MCMC, NUTS

    took = []

    def parallel(function):
        """Do as "parallel" does, and time the compiled program alone: NumPyro compiles it again for each run."""

        def call(arguments):
            compiled = jax.pmap(function).lower(arguments).compile()
            began, cpu = time.perf_counter(), time.process_time()
            out = jax.block_until_ready(compiled(arguments))
            took.append((time.perf_counter() - began, time.process_time() - cpu))
            return out

        return call

    mcmc = MCMC(
        NUTS(case.numpyro), num_warmup=options.warmup, num_samples=options.draws, num_chains=options.chains,
        chain_method=parallel if options.chains > 1 else "sequential", progress_bar=False,
    )  # fmt: skip

    def run(data, seed):
        key = jax.random.key(seed)
        mcmc.run(key, **data, extra_fields=("num_steps",))
        draws = mcmc.get_samples(group_by_chain=True)
        steps = mcmc.get_extra_fields()["num_steps"]

        def warmup_steps():
            mcmc.warmup(key, **data, extra_fields=("num_steps",), collect_warmup=True)
            return int(mcmc.get_extra_fields()["num_steps"].sum())

        return {
            "draws": {name: np.asarray(draws[name]) for name in case.NAMES},
            "print": mcmc.print_summary,
            "seconds": took[-1][0] if took else None,
            "cpu": took[-1][1] if took else None,
            "steps": int(steps.sum()),
            "warmup_steps": warmup_steps,
        }

    return run
