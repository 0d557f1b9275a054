"""Variational auto-encoders of handwritten digits: on one device, and with a prior whose flow is spread over a mesh.

The model takes the parameters too: `q` is its argument and the guide's first one, so that encoder, decoder and prior are
fitted together. A pixel is a count from 0 to 16.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import ppl
from ppl import Autoregressive, Binomial, Inverse, Normal, Transformed, infer

LEVELS, PIXELS = 16, 64


def digits(count=None):
    """Return images [row, 64] with counts from 0 to 16."""
    with np.load(Path(__file__).parent / "digits.npz") as file:
        return file["images"].reshape(-1, PIXELS)[:count].astype(np.int32)


def dense(key, inputs, outputs):
    """Return the parameters of a layer."""
    return {"weight": jax.random.normal(key, (inputs, outputs)) / float(np.sqrt(inputs)), "bias": jnp.zeros(outputs)}


def layer(p, x):
    """Return an affine map of the last axis."""
    out = jnp.matmul(x, p["weight"])
    return out + jnp.broadcast_to(p["bias"], out.shape)


def first_parameters(size, hidden, seed=0):
    """Return an encoder and a decoder with one hidden layer each."""
    keys = jax.random.split(jax.random.key(seed), 5)
    return {
        "encoder": {
            "hidden": dense(keys[0], PIXELS, hidden), "mean": dense(keys[1], hidden, size), "log_sd": dense(keys[2], hidden, size)
        },
        "decoder": {"hidden": dense(keys[3], size, hidden), "logits": dense(keys[4], hidden, PIXELS)},
    }  # fmt: skip


def decode(decoder, z):
    """Return the logits of the pixels."""
    return layer(decoder["logits"], jnp.tanh(layer(decoder["hidden"], z)))


def encode(encoder, x):
    """Return mean and standard deviation of the code of each image."""
    hidden = jnp.tanh(layer(encoder["hidden"], x.astype(jnp.float32) / 8 - 1))
    return layer(encoder["mean"], hidden), jnp.exp(layer(encoder["log_sd"], hidden) - 1)


def vae(q, rows):
    """A code for each image, and its pixels."""
    size = q["decoder"]["hidden"]["weight"].shape[0]
    z = yield Normal(0.0, 1.0, shape=(rows.shape[0], size), name="z")
    yield Binomial(LEVELS, logits=decode(q["decoder"], z), name="x")


def encoder(q, x):
    """The guide reads the images."""
    yield Normal(*encode(q["encoder"], x), name="z")


def fit_vae(images, size=8, hidden=128, steps=4000, batch=128, **options):
    """Fit the auto-encoder; returns the `Fit`."""
    data = {"rows": np.arange(len(images)), "x": images}
    return infer.vi(
        vae, encoder, data, init=first_parameters(size, hidden), gradient="sticking", samples=1, steps=steps,
        batch={"rows": batch, "x": batch}, progress=False, **options,
    )  # fmt: skip


def pictures(fit, images, path):
    """Save images, their reconstructions, and images drawn from the model."""
    import matplotlib.pyplot as plt

    rows = np.arange(12)
    mean, _ = encode(fit.params["encoder"], jnp.asarray(images[:12]))
    again = LEVELS * jax.nn.sigmoid(decode(fit.params["decoder"], mean))
    drawn = ppl.sample(vae, 1, {"q": fit.params, "rows": rows})["x"]
    figure, axes = plt.subplots(3, 12, figsize=(12, 3.4))
    for line, (title, pixels) in enumerate((("data", images[:12]), ("again", again), ("drawn", drawn))):
        for axis, image in zip(axes[line], np.asarray(pixels), strict=True):
            axis.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=LEVELS)
            axis.set(xticks=[], yticks=[])
        axes[line, 0].set_ylabel(title)
    figure.savefig(path, dpi=80, bbox_inches="tight")
    plt.close(figure)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class BlockFlow:
    """Autoregressive flows side by side, one for each block of a matrix [..., block, number], mixed by a turn in between.

    The parameters of all blocks lie in one array each, [block, ...], so a mesh axis can hold the blocks; the turn sends
    half of the numbers of each block to its neighbor.
    """

    layers: Any

    @property
    def event_ndim(self):
        """One value is a matrix."""
        return 2

    @classmethod
    def init(cls, key, blocks, size, depth, hidden=16):
        """Return a flow that is the identity, but for the turns."""
        keys = jax.random.split(key, (depth, blocks))
        make = jax.vmap(lambda k: Autoregressive.init(k, size, "affine", hidden))
        return cls([make(k) for k in keys])

    def constrain(self, u):
        """Return `(x, log volume)`, each block by its own flow."""
        total = jnp.zeros(u.shape[:-2])
        for flow in self.layers:
            u, log_volume = self._apart(lambda f, x: Inverse(f).constrain(x), flow, u)
            u, total = self._turned(u, 1), total + jnp.sum(log_volume, -1)
        return u, total

    def free(self, x):
        """Return the matrix that `constrain` maps to x."""
        for flow in reversed(self.layers):
            x = self._apart(lambda f, x: Inverse(f).free(x), flow, self._turned(x, -1))
        return x

    @staticmethod
    def _apart(apply, flow, x):
        axis = x.ndim - 2
        return jax.vmap(apply, (0, axis), axis)(flow, x)

    @staticmethod
    def _turned(x, way):
        half = x.shape[-1] // 2
        return jnp.concatenate([jnp.roll(x[..., :half], way, -2), x[..., half:]], -1)


def flow_vae(q, rows):
    """The prior of the codes is a flow over blocks."""
    blocks, size = q["prior"].layers[0].net["first"].shape[0], q["prior"].layers[0].size
    z = yield Transformed(Normal(0.0, 1.0, shape=(rows.shape[0], blocks, size)), q["prior"], name="z")
    yield Binomial(LEVELS, logits=decode(q["decoder"], z.reshape(rows.shape[0], blocks * size)), name="x")


def block_encoder(q, x):
    """As `encoder`, with codes in blocks."""
    blocks, size = q["prior"].layers[0].net["first"].shape[0], q["prior"].layers[0].size
    mean, sd = encode(q["encoder"], x)
    yield Normal(mean.reshape(-1, blocks, size), sd.reshape(-1, blocks, size), name="z")


LAYOUT = {
    "rows": P("rows"), "x": P("rows"), "z": P("rows", "blocks"), "prior": P("blocks"),
    "decoder/hidden/weight": P("blocks"), "encoder/mean/weight": P(None, "blocks"), "encoder/log_sd/weight": P(None, "blocks"),
}  # fmt: skip


def fit_flow_vae(images, mesh=None, blocks=4, size=2, hidden=64, depth=2, steps=500, batch=128):
    """Fit the auto-encoder with the flow prior, spread over a mesh with the axes "rows" and "blocks", or on one device."""
    init = {**first_parameters(blocks * size, hidden), "prior": BlockFlow.init(jax.random.key(7), blocks, size, depth)}
    data = {"rows": np.arange(len(images)), "x": images}
    layout = {} if mesh is None else dict(mesh=mesh, sharding=LAYOUT)
    return infer.vi(
        flow_vae, block_encoder, data, init=init, samples=1, steps=steps, batch={"rows": batch, "x": batch} if batch else None,
        optimizer=0.003, progress=False, **layout,
    )  # fmt: skip


def main():
    """Fit both; save pictures of the first, compare the second on one device and on eight."""
    images = digits()
    fit = fit_vae(images)
    print(f"bound per image: {fit.trail[-200:].mean() / len(images):.2f} nats in {fit.timings['total']:.0f} s")
    pictures(fit, images, "vae.png")
    few = images[:256]
    alone = fit_flow_vae(few, steps=100, batch=None)
    mesh = jax.make_mesh((2, 4), ("rows", "blocks"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    spread = fit_flow_vae(few, mesh, steps=100, batch=None)
    print("largest relative difference of the bounds:", np.max(abs(spread.trail / alone.trail - 1)))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
