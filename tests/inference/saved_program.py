"""Read results that another process has pickled and saved, and go on from its checkpoint: `saved_program.py FOLDER`.

Prints, as JSON, a digest of each.
"""

import hashlib
import json
import pickle
import sys
from pathlib import Path

import numpy as np

import ppl
from ppl import infer

FIELDS = ("draws", "stats", "state", "coords", "tracked", "moments")


def digest(posterior, fields=FIELDS):
    """Return all of a result in a few words: equal where all bytes are."""
    told = hashlib.sha256()
    for field in fields:
        for name, array in getattr(posterior, field).items():
            arrays = array.items() if isinstance(array, dict) else [("", array)]
            for part, values in arrays:
                told.update(f"{field} {name} {part} {values.dtype} {values.shape}".encode())
                told.update(np.ascontiguousarray(values).tobytes())
    records = [
        posterior.settings,
        posterior.seed,
        posterior.roles,
        posterior.versions,
        posterior.timings,
        posterior.dims,
    ]
    told.update(json.dumps([*records, posterior.interrupted], default=float).encode())
    return told.hexdigest()


def main(folder):
    """Print the digests of the files in a folder."""
    import warnings

    from models import SCHOOLS, flat_schools

    warnings.simplefilter("ignore")
    found = {path.name: digest(pickle.loads(path.read_bytes())) for path in folder.glob("*.pickle")}
    found |= {path.name: digest(ppl.load(path)) for path in folder.glob("*.nc")}
    for path in folder.glob("*.checkpoint"):
        run = getattr(infer, path.stem)(flat_schools, SCHOOLS, draws=40, warmup=20, checkpoint=path, progress=False)
        found[path.name] = {name: run[name].tobytes().hex() for name in run}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
