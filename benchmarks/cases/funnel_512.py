"""512 chains on a mild funnel of 10 dimensions: chains whose trees differ in depth, 50 + 50 transitions."""

import numpy as np

NAMES = ("v", "x")
OPTIONS = {"chains": 512, "draws": 50, "warmup": 50, "repeats": 3}
PEERS = ["ppl", "ppl:chees", "blackjax:vmapped", "blackjax:devices", "blackjax:chees", "tfp:chees"]
START = {"v": (), "x": (9,)}


def data(seed):
    return {"mean": np.full(9, seed, np.float32)}


def ppl():
    import jax.numpy as jnp

    from ppl import Normal

    def funnel(mean):
        v = yield Normal(0.0, 1.0, name="v")
        yield Normal(mean, jnp.exp(v / 2), name="x")

    return funnel


def natural(z, data):
    return z


def log_density(z, data):
    import jax.numpy as jnp

    return -(z["v"] ** 2) / 2 - ((z["x"] - data["mean"]) ** 2).sum() * jnp.exp(-z["v"]) / 2 - 9 * z["v"] / 2
