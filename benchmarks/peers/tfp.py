"""TFP on JAX: its windowed adaptive NUTS, all chains batched, as its driver does; with the variant `chees` its ChEES."""

import jax
import jax.numpy as jnp
import numpy as np

VERSIONS = ("tfp-nightly", "jax", "jaxlib")
CHEES = {"draws": 200, "warmup": 200, "step_size": 0.1, "learning_rate": 0.025}


def sampler(case, options):
    draw = chees(case, options) if options.variant == "chees" else nuts(case, options)

    def run(data, seed):
        key = jax.random.PRNGKey(seed)
        values, steps, warmup_steps = jax.device_get(draw(key, data))
        draws = {name: np.moveaxis(values[name], 0, 1) for name in case.NAMES}
        return {
            "draws": draws,
            "print": lambda: print({name: (v.mean((0, 1)), v.std((0, 1))) for name, v in draws.items()}),
            "steps": int(steps),
            "warmup_steps": int(warmup_steps),
        }

    return run


def nuts(case, options):
    """Return a compiled function of key and data that draws by NUTS."""
    import tensorflow_probability.substrates.jax as tfp

    def draw(key, data):
        model, natural = case.tfp(tfp.distributions, data)
        joint = tfp.distributions.JointDistributionCoroutineAutoBatched(model)
        values, trace = tfp.experimental.mcmc.windowed_adaptive_nuts(
            options.draws, joint, n_chains=options.chains, num_adaptation_steps=options.warmup, seed=key,
            discard_tuning=False, y=data["y"],
        )  # fmt: skip
        values = {name: value[-options.draws :] for name, value in natural(values).items()}
        steps = trace["n_steps"]
        return values, steps[-options.draws :].sum(), steps[: -options.draws].sum()

    return jax.jit(draw)


def chees(case, options):
    """Return a compiled function of key and data that draws by ChEES, without a metric."""
    from tensorflow_probability.substrates import jax as tfp

    sizes = [int(np.prod(shape)) for shape in case.START.values()]
    warmup, draws = CHEES["warmup"], CHEES["draws"]

    def apart(vector):
        parts = jnp.split(vector, np.cumsum(sizes)[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(case.START.items(), parts, strict=True)}

    def draw(key, data):
        log_density = jax.vmap(lambda vector: case.log_density(apart(vector), data))
        first, key = jax.random.split(key)
        start = jax.random.uniform(first, (options.chains, sum(sizes)), minval=-2, maxval=2)
        kernel = tfp.mcmc.HamiltonianMonteCarlo(log_density, CHEES["step_size"], 1)
        kernel = tfp.experimental.mcmc.GradientBasedTrajectoryLengthAdaptation(
            kernel, warmup, adaptation_rate=CHEES["learning_rate"], max_leapfrog_steps=1000
        )
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            kernel, warmup, target_accept_prob=0.65, reduce_fn=tfp.math.reduce_log_harmonic_mean_exp
        )

        def trace(_, results):
            inner = results.inner_results
            return inner.inner_results.accepted_results.num_leapfrog_steps

        vectors, steps = tfp.mcmc.sample_chain(warmup + draws, start, kernel=kernel, seed=key, trace_fn=trace)
        values = jax.vmap(jax.vmap(lambda vector: case.natural(apart(vector), data)))(vectors[warmup:])
        return values, steps[warmup:].sum() * options.chains, steps[:warmup].sum() * options.chains

    return jax.jit(draw)
