"""An autoregressive transformer over the pixels of small images; its log density is a program, its data lie on many devices.

    log p(image) = sum_i log p(pixel_i | pixels before i)

A pixel is one of 17 levels. The weights are parameters; the biases of the last layer are latent variables, so that the fit is
variational inference.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from vae import PIXELS, dense, digits, layer

from ppl import Factor, Normal, infer

KINDS = 17  # levels of a pixel


def first_parameters(width=32, heads=2, depth=2, seed=0):
    """Return the weights of a transformer."""
    keys = iter(jax.random.split(jax.random.key(seed), 3 + 4 * depth))
    blocks = [
        {
            "mix": dense(next(keys), width, 3 * width), "out": dense(next(keys), width, width),
            "up": dense(next(keys), width, 2 * width), "down": dense(next(keys), 2 * width, width),
        }
        for _ in range(depth)
    ]  # fmt: skip
    return {
        "level": 0.3 * jax.random.normal(next(keys), (KINDS + 1, width)),
        "place": 0.3 * jax.random.normal(next(keys), (PIXELS, width)),
        "blocks": blocks,
        "last": dense(next(keys), width, KINDS),
        "bias": jnp.zeros(KINDS),
        "heads": heads,
    }


def scaled(x):
    """Return vectors of unit mean square."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5)


def attention(p, x, heads):
    """Return the attention of each pixel over itself and those before it, [row, pixel, width]."""
    rows, pixels, width = x.shape
    parts = layer(p["mix"], scaled(x)).reshape(rows, pixels, 3, heads, width // heads)
    query, key, value = (parts[:, :, i] for i in range(3))
    scores = jnp.einsum("nihd,njhd->nhij", query, key) / math.sqrt(width // heads)
    before = jnp.broadcast_to(jnp.tril(jnp.ones((pixels, pixels), bool)), scores.shape)
    weights = jax.nn.softmax(jnp.where(before, scores, -1e9))
    return layer(p["out"], jnp.einsum("nhij,njhd->nihd", weights, value).reshape(rows, pixels, width))


def logits(q, images):
    """Return logits of each pixel's level given the pixels before it, [row, pixel, level]."""
    rows = images.shape[0]
    shifted = jnp.concatenate([jnp.full((rows, 1), KINDS, images.dtype), images[:, :-1]], 1)
    x = jnp.asarray(q["level"])[shifted]
    x = x + jnp.broadcast_to(q["place"], x.shape)
    for p in q["blocks"]:
        x = x + attention(p, x, q["heads"])
        x = x + layer(p["down"], jax.nn.gelu(layer(p["up"], scaled(x))))
    return layer(q["last"], scaled(x))


def log_density(q, bias, images):
    """Return log p(image), [row]."""
    scores = logits(q, images)
    scores = jax.nn.log_softmax(scores + jnp.broadcast_to(bias, scores.shape))
    return jnp.sum(jnp.take_along_axis(scores, images[..., None], -1)[..., 0], -1)


def transformer(q, images):
    """The model: a density of the user's own as a term."""
    bias = yield Normal(0.0, 1.0, shape=(KINDS,), name="bias")
    yield Factor(log_density(q, bias, images), name="pixels")


def guide(q):
    """Independent normals for the biases."""
    yield Normal(q["bias"], 0.05, name="bias")


def fit_transformer(images, mesh=None, steps=1500, batch=64, **sizes):
    """Fit it; with a mesh of one axis "rows", each device holds a part of the images and draws from its own."""
    layout = {} if mesh is None else dict(mesh=mesh, sharding={"images": P("rows")})
    return infer.vi(
        transformer, guide, {"images": images}, init=first_parameters(**sizes), samples=1, optimizer=0.003, steps=steps,
        batch={"images": batch} if batch else None, progress=False, **layout,
    )  # fmt: skip


def bits_per_dimension(params, images):
    """Return the mean of -log2 p(image) / 64."""
    score = jax.jit(lambda part: log_density(params, params["bias"], part))
    scores = [score(part) for part in np.array_split(images, max(1, len(images) // 200))]
    return float(-np.mean(np.concatenate(scores)) / (PIXELS * math.log(2)))


def draw(params, count, seed=0):
    """Return images drawn pixel by pixel, [row, 64]."""

    def pixel(i, images):
        scores = logits(params, images)[:, i]
        key = jax.random.fold_in(jax.random.key(seed), i)
        return images.at[:, i].set(jax.random.categorical(key, scores + jnp.broadcast_to(params["bias"], scores.shape)))

    return jax.lax.fori_loop(0, PIXELS, pixel, jnp.zeros((count, PIXELS), jnp.int32))


def picture(params, path):
    """Save drawn images."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 12, figsize=(12, 2.2))
    for axis, image in zip(axes.ravel(), np.asarray(draw(params, 24)), strict=True):
        axis.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=KINDS - 1)
        axis.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=80, bbox_inches="tight")
    plt.close(figure)


def main():
    """Fit on eight devices, and say how many bits a pixel takes on images that were held out."""
    images = digits()[:1792]
    held_out, images = images[:256], images[256:]
    mesh = jax.make_mesh((8,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    fit = fit_transformer(images, mesh)
    print(
        f"{bits_per_dimension(jax.device_get(fit.params), held_out):.3f} bits a pixel (uniform: {math.log2(KINDS):.3f})"
    )
    picture(jax.device_get(fit.params), "transformer.png")


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
