"""Log densities of very many rows, in float32, relative to where the chain is.

    sum_i (log p_i(x) - c),        c the mean of log p_i at a point of the typical set

A sum near -1e7 has steps of 1 in float32, and the differences of energy that a sampler decides by are of that size. The centered
sum is near 0 where the chain moves, so it keeps the differences to a thousandth; the constant n c returns, in double precision,
when statistics are recorded. The centers are chosen after the first transitions and once more half way through
the warm-up, at transitions that do not depend on chunks, from the first chain.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ppl.sharding import gather
from ppl.tracing.programs import total

LEAST = 2**16  # terms; fewer are summed as they are
EARLY = 10  # transitions before the first choice


def centered_sites(structure, position, shapes):
    """Return `{name: how many terms}` of the observed variables with so many terms that they are centered."""
    sites = jax.eval_shape(lambda p, a: structure.run(a, free=p)[1], position, shapes)
    found = {name: sites[name].log_prob for name in structure.observed if sites[name].log_prob is not None}
    return {name: x.size for name, x in found.items() if x.size >= LEAST and x.dtype == jnp.float32}


def arrays_of(centers):
    """Return the centers as entries of a model's data arrays, where the model does not look."""
    return {f"~{name}": np.float32(value) for name, value in centers.items()}


def centered(structure, position, arrays, names):
    """Return `(log density, {name: sum})` with the terms of `names` less their centers."""
    _, sites = structure.run(arrays, free=position)
    sums = {name: jnp.sum(sites[name].log_prob - arrays[f"~{name}"]) for name in names}
    rest = {name: _without(site) if name in names else site for name, site in sites.items()}
    return sum(sums.values(), total(rest, volume=True)), sums


def _without(site):
    return dataclasses.replace(site, log_prob=None)


class Centers:
    """The centers of one run. `pauses` are the transitions after which they are chosen anew."""

    def __init__(self, sizes, warmup):
        self.sizes, self.values, self.chosen = sizes, dict.fromkeys(sizes, 0.0), 0
        self.pauses = sorted({p for p in (min(EARLY, warmup // 4), warmup // 2) if p > 0}) if sizes else []

    @property
    def offset(self):
        """What the centered density lacks, in double precision."""
        return float(sum(size * np.float64(np.float32(self.values[name])) for name, size in self.sizes.items()))

    @property
    def next_pause(self):
        """The transition at which all chains stop for the next choice, or None."""
        return self.pauses[self.chosen] if self.chosen < len(self.pauses) else None

    def choose(self, blocks, arrays):
        """Choose the centers by the first chain, and evaluate all chains there. Returns the data arrays with them."""
        self.chosen += 1
        _, sums = blocks[0].evaluate(arrays)
        fresh = {n: self.values[n] + float(gather(s).ravel()[0]) / self.sizes[n] for n, s in sums.items()}
        if all(np.isfinite(v) for v in fresh.values()):
            self.values = {n: float(np.float32(v)) for n, v in fresh.items()}
            arrays.update(arrays_of(self.values))
            for block in blocks:
                block.set_log_density(block.evaluate(arrays)[0])

    def as_arrays(self):
        """Return what a checkpoint keeps."""
        return {"centers": np.array([self.chosen, *self.values.values()], np.float64)}

    def restore(self, stored):
        """Go on from what a checkpoint kept."""
        self.chosen, values = int(stored["centers"][0]), stored["centers"][1:]
        self.values = dict(zip(self.sizes, map(float, values), strict=True))
