"""nutpie on the PyMC model: its default warm-up of 400; by default compiled by numba, `nutpie:jax` by JAX."""

import time

import nutpie

from benchmarks.peers.pymc import model_of, result, wide

VERSIONS = ("nutpie", "pymc", "numba")


def sampler(case, options):
    compiled = []

    def run(data, seed):
        if not compiled:
            compiled.append(nutpie.compile_pymc_model(model_of(case, data), backend=options.variant or "numba"))
        given = compiled[0].with_data(**{f"data_{name}": wide(values) for name, values in data.items()})
        began = time.perf_counter()
        sampling = nutpie.sample(
            given, draws=options.draws, tune=options.warmup, chains=options.chains, seed=seed, progress_bar=False,
            blocking=False,
        )  # fmt: skip
        sampling._sampler.wait(None)
        took = time.perf_counter() - began
        return result(case, sampling.wait(), took)

    return run
