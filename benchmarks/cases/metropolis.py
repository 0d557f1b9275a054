"""Random-walk Metropolis, 100 chains, every one of 100,000 draws kept: a rate given three counts."""

import numpy as np

NAMES = ("log_rate",)
OPTIONS = {"chains": 100, "draws": 100_000, "warmup": 0, "repeats": 3}
SCALE = 0.6


def data(seed):
    return {"y": np.array([3, 5, 4 + seed], np.int32)}


def log_density(z, y):
    """A Gamma(2, 1) rate, on its logarithm."""
    import jax.numpy as jnp

    return 2 * z - jnp.exp(z) + y.sum().astype(z.dtype) * z - 3 * jnp.exp(z)


def result(draws, options):
    draws = np.asarray(draws)
    return {
        "draws": {"log_rate": draws}, "print": lambda: print(draws.mean(), draws.std()),
        "steps": options.chains * options.draws, "warmup_steps": 0,
    }  # fmt: skip


def ppl(options):
    import ppl as p

    def model():
        rate = yield p.Gamma(2.0, 1.0, name="rate")
        yield p.Poisson(rate, shape=(3,), name="y")

    def run(data, seed):
        posterior = p.infer.metropolis(
            model, data, chains=options.chains, draws=options.draws, warmup=0, scale=SCALE, seed=seed, progress=False
        )
        return result(posterior["rate"], options) | {"draws": {"log_rate": np.log(posterior["rate"])}}

    return run


def jax(options):
    """By hand: one key for each step of all chains."""
    import jax as j
    import jax.numpy as jnp

    @j.jit
    def draw(key, y):
        def step(state, key):
            z, value = state
            noise = j.random.normal(key, (options.chains,))
            new = z + SCALE * noise
            new_value = log_density(new, y)
            accept = jnp.log(j.random.uniform(j.random.fold_in(key, 1), (options.chains,))) < new_value - value
            state = jnp.where(accept, new, z), jnp.where(accept, new_value, value)
            return state, state[0]

        z = jnp.ones(options.chains)
        return j.lax.scan(step, (z, log_density(z, y)), j.random.split(key, options.draws))[1].T

    return lambda data, seed: result(draw(j.random.key(seed), data["y"]), options)


def tfp(options):
    import jax as j
    import jax.numpy as jnp
    from tensorflow_probability.substrates import jax as t

    @j.jit
    def draw(key, y):
        kernel = t.mcmc.RandomWalkMetropolis(lambda z: log_density(z, y), t.mcmc.random_walk_normal_fn(SCALE))
        return t.mcmc.sample_chain(options.draws, jnp.ones(options.chains), kernel=kernel, seed=key, trace_fn=None).T

    return lambda data, seed: result(draw(j.random.PRNGKey(seed), data["y"]), options)


RUNNERS = {"ppl": ppl, "jax": jax, "tfp": tfp}
