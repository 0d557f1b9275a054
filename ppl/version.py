"""The version of `ppl`, and the versions of what it runs on."""

import platform

import jax
import jaxlib
import numpy as np

__version__ = "0.1.0"


def versions() -> dict[str, str]:
    """Return the versions that a result depends on, and the kind of device."""
    return {
        "ppl": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "numpy": np.__version__,
        "device": jax.devices()[0].device_kind,
    }
