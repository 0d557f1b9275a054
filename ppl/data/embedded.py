"""Data sets that come with `ppl`."""

import json
from pathlib import Path

import numpy as np

SCHOOLS = (
    "Choate", "Deerfield", "Phillips Andover", "Phillips Exeter",
    "Hotchkiss", "Lawrenceville", "St. Paul's", "Mt. Hermon",
)  # fmt: skip


def eight_schools() -> dict[str, np.ndarray]:
    """Return the effects of coaching `y` on test scores in eight schools, and their standard errors `sigma`.

    The names of the schools, for `coords={"school": SCHOOLS}`, are `ppl.data.SCHOOLS`. Source: Rubin (1981).

    Example:
      >>> eight_schools()["y"]
      array([28.,  8., -3.,  7., -1.,  1., 18., 12.], dtype=float32)
    """
    table = json.loads((Path(__file__).parent / "eight_schools.json").read_text(encoding="utf-8"))
    return {name: np.asarray(table[name], np.float32) for name in ("sigma", "y")}
