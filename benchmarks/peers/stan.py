"""Stan, through pystan: NUTS in double precision, chains in processes."""

import numpy as np
import stan

VERSIONS = ("pystan", "httpstan")


def sampler(case, options):
    def run(data, seed):
        values = case.stan_data(data) if hasattr(case, "stan_data") else data
        values = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in values.items()}
        posterior = stan.build(case.STAN, data=values, random_seed=seed + 1)
        fit = posterior.sample(
            num_chains=options.chains, num_samples=options.draws, num_warmup=options.warmup, save_warmup=True
        )
        every = {name: by_chain(fit[name], options) for name in (*case.NAMES, "n_leapfrog__")}
        steps = every.pop("n_leapfrog__").squeeze(-1)
        draws = {name: v[:, options.warmup :] for name, v in every.items()}
        draws = {name: v.squeeze(-1) if v.shape[2:] == (1,) else v for name, v in draws.items()}
        return {
            "draws": draws,
            "print": lambda: print({name: (v.mean((0, 1)), v.std((0, 1))) for name, v in draws.items()}),
            "steps": int(steps[:, options.warmup :].sum()),
            "warmup_steps": int(steps[:, : options.warmup].sum()),
        }  # fmt: skip

    return run


def by_chain(values, options):
    """Return pystan's [..., draw * chain], in which the chain varies fastest, as [chain, draw, ...]."""
    values = values.reshape(*values.shape[:-1], -1, options.chains)
    return np.moveaxis(values, (-1, -2), (0, 1))
