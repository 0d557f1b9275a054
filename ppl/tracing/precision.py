"""In how many bits accelerators multiply matrices inside a log density."""

import contextlib

import jax


def careful():
    """Return a context in which matrix products are traced with float32 precision, on accelerators and by default.

    A TPU multiplies in bfloat16 and a GPU in TF32 unless told otherwise. The error of a log density that sums many rows is then
    far above 1, and Hamiltonian Monte Carlo rejects. Who sets `jax_default_matmul_precision` decides instead; on a CPU
    products are in float32 anyway, and nothing changes.
    """
    if jax.default_backend() == "cpu" or jax.config.jax_default_matmul_precision is not None:
        return contextlib.nullcontext()
    return jax.default_matmul_precision("float32")
