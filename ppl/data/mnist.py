"""The MNIST digits."""

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np

from ppl.data.fetch import fetch
from ppl.errors import DataError

SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist"
FILES = {  # name -> (SHA-256 of the file, of the bytes of its array)
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    ),
    "train-labels-idx1-ubyte.gz": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
    ),
    "t10k-images-idx3-ubyte.gz": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
}


def mnist(local: str | os.PathLike | None = None, folder: str | os.PathLike | None = None) -> dict[str, np.ndarray]:
    """Return the 60,000 + 10,000 handwritten digits of MNIST, downloaded once (11 MB).

    Args:
      local: a folder with the four original files, or with `mnist_train.npz` and `mnist_test.npz`; nothing is then
        downloaded.
      folder: where to keep what is downloaded; by default in the user's cache folder.

    Returns `{"train_images": [60000, 28, 28] uint8, "train_labels": [60000] uint8, "test_images", "test_labels"}`, in the
    original order. LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to document recognition.

    Raises:
      DataError: the files cannot be downloaded, or are not the right ones.
    """
    packed = None if local is None else Path(local).expanduser() / "mnist_train.npz"
    arrays = {}
    for name, (of_file, of_array) in FILES.items():
        part, kind = ("train" if name.startswith("train") else "test"), ("images" if "images" in name else "labels")
        if packed is not None and packed.is_file():
            with np.load(packed.with_name(f"mnist_{part}.npz")) as stored:
                array = stored[kind]
        else:
            array = _unpacked(fetch(name, f"{SOURCE}/{name}", of_file, folder, local))
        if hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() != of_array:
            raise DataError(f"{name}: the {kind} are not those of MNIST. They were not used.")
        arrays[f"{part}_{kind}"] = array
    return arrays


def _unpacked(path):
    """Read an IDX file: two zero bytes, the kind of number (8: bytes), how many axes, their lengths, the numbers."""
    with gzip.open(path) as file:
        content = file.read()
    ndim = content[3]
    shape = tuple(np.frombuffer(content, ">i4", ndim, 4))
    return np.frombuffer(content, np.uint8, offset=4 + 4 * ndim).reshape(shape)
