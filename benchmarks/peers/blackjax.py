"""BlackJAX: window adaptation and NUTS, a chain on each of as many forced host devices as there are chains.

Variants for many chains: `devices`, chains in turn on a forced device for each core; `vmapped`, all in lockstep on one;
`chees`, its ChEES. It has no driver and no table of its own: the loop is the one of its documentation, and means and
standard deviations are printed.
"""

import os

import jax
import numpy as np
from jax.sharding import PartitionSpec

VERSIONS = ("blackjax", "jax", "jaxlib")
CHEES = {"draws": 200, "warmup": 200, "step_size": 0.1, "learning_rate": 0.025}


def sampler(case, options):
    devices = {"": options.chains, "devices": len(os.sched_getaffinity(0))}.get(options.variant, 1)
    jax.config.update("jax_num_cpu_devices", devices)
    draw = chees(case, options) if options.variant == "chees" else nuts(case, options, devices)

    def run(data, seed):
        draws, steps, warmup_steps = jax.device_get(draw(jax.random.key(seed), data))
        draws = {name: np.asarray(draws[name]) for name in case.NAMES}
        return {
            "draws": draws,
            "print": lambda: print({name: (v.mean((0, 1)), v.std((0, 1))) for name, v in draws.items()}),
            "steps": int(steps.sum()),
            "warmup_steps": int(warmup_steps.sum()),
        }

    return run


def random_start(case, key):
    """Return a start uniform in (-2, 2)."""
    keys = jax.random.split(key, len(case.START))
    shapes = zip(keys, case.START.items(), strict=True)
    return {name: jax.random.uniform(key, shape, minval=-2, maxval=2) for key, (name, shape) in shapes}


def nuts(case, options, devices):
    """Return a compiled function of key and data that draws by NUTS."""
    import blackjax

    def chain(key, data):
        def log_density(z):
            return case.log_density(z, data)

        start, warm, cold = jax.random.split(key, 3)
        warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, parameters), adaptation = warmup.run(warm, random_start(case, start), num_steps=options.warmup)
        kernel = blackjax.nuts(log_density, **parameters).step

        def step(state, key):
            state, info = kernel(key, state)
            return state, (case.natural(state.position, data), info.num_integration_steps)

        _, (draws, steps) = jax.lax.scan(step, state, jax.random.split(cold, options.draws))
        return draws, steps.sum(), adaptation.info.num_integration_steps.sum()

    def several(keys, data):
        if options.variant == "vmapped":
            return jax.vmap(lambda key: chain(key, data))(keys)
        if len(keys) == 1:
            return jax.tree.map(lambda x: x[None], chain(keys[0], data))
        return jax.lax.map(lambda key: chain(key, data), keys)

    mesh = jax.make_mesh((devices,), ("chains",), axis_types=(jax.sharding.AxisType.Auto,))
    each, same = PartitionSpec("chains"), PartitionSpec()
    spread = jax.shard_map(several, mesh=mesh, in_specs=(each, same), out_specs=each, check_vma=False)
    return jax.jit(lambda key, data: spread(jax.random.split(key, options.chains), data))


def chees(case, options):
    """Return a compiled function of key and data that draws by ChEES."""
    import blackjax
    import optax

    def draw(key, data):
        def log_density(z):
            return case.log_density(z, data)

        start, warm, cold = jax.random.split(key, 3)
        starts = jax.vmap(lambda key: random_start(case, key))(jax.random.split(start, options.chains))
        warmup = blackjax.chees_adaptation(log_density, options.chains)
        optimizer = optax.adam(CHEES["learning_rate"])
        (states, parameters), adaptation = warmup.run(warm, starts, CHEES["step_size"], optimizer, CHEES["warmup"])
        kernel = blackjax.dynamic_hmc(log_density, **parameters).step

        def step(states, key):
            states, info = jax.vmap(kernel)(jax.random.split(key, options.chains), states)
            draws = jax.vmap(lambda z: case.natural(z, data))(states.position)
            return states, (draws, info.num_integration_steps)

        _, (draws, steps) = jax.lax.scan(step, states, jax.random.split(cold, CHEES["draws"]))
        draws = jax.tree.map(lambda x: x.swapaxes(0, 1), draws)
        return draws, steps.sum(), adaptation.info.num_integration_steps.sum()

    return jax.jit(draw)
