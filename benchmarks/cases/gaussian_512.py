"""512 chains on an ill-conditioned Gaussian: 100 dimensions, standard deviations from 0.01 to 100."""

import numpy as np

NAMES = ("x",)
OPTIONS = {"chains": 512, "draws": 50, "warmup": 200, "repeats": 2, "most_seconds": 60}
PEERS = ["ppl", "ppl:chees", "blackjax:vmapped", "blackjax:devices", "blackjax:chees", "tfp:chees"]
START = {"x": (100,)}


def data(seed):
    return {"mean": np.full(100, seed, np.float32), "scale": np.logspace(-2, 2, 100, dtype=np.float32)}


def ppl():
    from ppl import Normal

    def gaussian(mean, scale):
        yield Normal(mean, scale, name="x")

    return gaussian


def natural(z, data):
    return z


def log_density(z, data):
    return -(((z["x"] - data["mean"]) / data["scale"]) ** 2).sum() / 2
