"""nutpie on the PyMC model: its default warm-up of 400; by default compiled by numba, `nutpie:jax` by JAX."""

import nutpie

from benchmarks.peers.pymc import model_of, result, wide

VERSIONS = ("nutpie", "pymc", "numba")
WARMUP = 400


def sampler(case, options):
    compiled = []

    def run(data, seed):
        if not compiled:
            compiled.append(nutpie.compile_pymc_model(model_of(case, data), backend=options.variant or "numba"))
        given = compiled[0].with_data(**{f"data_{name}": wide(values) for name, values in data.items()})
        drawn = nutpie.sample(
            given, draws=options.draws, tune=options.warmup, chains=options.chains, seed=seed, progress_bar=False
        )
        return result(case, drawn)

    return run
