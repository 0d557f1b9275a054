"""The workloads, one file each; a new one needs nothing but its file.

A case whose peers all sample the same posterior has

    data(seed)      its arrays by name; with another seed other data of equal shape
    NAMES           the variables whose means and effective sample sizes are compared
    ppl(...)        the model of each peer, under the peer's name, as its users write it: `ppl`, `numpyro`, `pymc` (which
                    nutpie samples too), `tfp`, and the string STAN
    START, log_density(z, data), natural(z, data)
                    for BlackJAX: shapes of the free variables, their log density, and the variables in NAMES

Any other case has `RUNNERS`, a function of the options for each runner that returns what a peer's `sampler` does.
Both may have `OPTIONS`, which replace the defaults of the command, and `PEERS`, where not all peers make sense.
A case with `PARTS` is a family: `select(part)` returns the case `family+part`.
"""

import importlib


def load(name):
    """Return a case by name."""
    family, _, part = name.partition("+")
    module = importlib.import_module(f"benchmarks.cases.{family}")
    return module.select(part) if part else module


def expand(names):
    """Return the names of cases, families replaced by their parts."""
    out = []
    for name in names:
        parts = [] if "+" in name else getattr(load(name), "PARTS", [])
        out += [f"{name}+{part}" for part in parts] or [name]
    return out
