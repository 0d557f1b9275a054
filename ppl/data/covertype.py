"""Forest cover types."""

import gzip
import os
from pathlib import Path

import numpy as np

from ppl.data.fetch import fetch
from ppl.errors import DataError

NAME = "covtype.data.gz"
URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz"
SHA256 = "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771"
COUNTS = (211840, 283301, 35754, 2747, 9493, 17367, 20510)  # of the classes 1 to 7


def covertype(local: str | os.PathLike | None = None, folder: str | os.PathLike | None = None) -> dict[str, np.ndarray]:
    """Return the 581,012 patches of forest of Covertype, downloaded once (11 MB).

    Args:
      local: a folder with the original file `covtype.data.gz`, or with `covertype.npz`; nothing is then downloaded.
      folder: where to keep what is downloaded; by default in the user's cache folder.

    Returns `{"X": [581012, 54] float32, "y": [581012] int32}`: ten numeric columns in their units, then 4 + 40 indicators of the
    wilderness area and of the soil type; the class is 1 to 7, and 2 against the rest is the usual binary task.
    Blackard (1998), Covertype, UCI Machine Learning Repository, doi 10.24432/C50K5N, CC BY 4.0.

    Raises:
      DataError: the file cannot be downloaded, or is not the right one.
    """
    packed = None if local is None else Path(local).expanduser() / "covertype.npz"
    if packed is not None and packed.is_file():
        with np.load(packed) as stored:
            numeric = stored["numeric_t"].T.astype(np.float32)
            area, soil = (np.eye(n, dtype=np.float32)[stored[k]] for k, n in (("wilderness", 4), ("soil", 40)))
            X, y = np.concatenate([numeric, area, soil], axis=1), stored["cover_type"].astype(np.int32)
    else:
        with gzip.open(fetch(NAME, URL, SHA256, folder, local), "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.float32)
        X, y = np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int32)
    if X.shape != (581_012, 54) or tuple(np.bincount(y, minlength=8)[1:]) != COUNTS:
        raise DataError(f"these are not the data of Covertype: shape {X.shape}. They were not used.")
    return {"X": X, "y": y}
