"""Running a model once for every draw, on a mesh: what `predict` and its kin do with `mesh=` and `sharding=`.

Draws go by in batches of one compiled program. Chains lie along the axis `chains`, where it divides them; results of divided
variables are written into one buffer on their devices, and nothing is gathered.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from ppl.errors import ModelError
from ppl.inference.rows import empty_on
from ppl.sharding import is_spread, put
from ppl.tracing.programs import as_key

BATCH_BYTES = 64e6


def over_draws(bound, spread, name, one, values, lead, seed, batch):
    """Run `one(key, values, arrays)` for every draw; returns arrays [chain, draw, ...], divided ones on their devices.

    Args:
      bound: a bound model.
      spread: its `Spread`.
      name: what the compiled program is kept by.
      one: a function of one draw; its results by name are laid out as the variables are.
      values: `{name: [chain, draw, ...]}`, given to it.
      lead: (chains, draws).
      seed: an int or a jax key. Draw (c, d) uses the key of number `c * draws + d`, on every mesh.
      batch: how many draws are made at once in all, or None.
    """
    board, (chains, draws) = spread.board, lead
    if chains * draws == 0:
        raise ModelError("the posterior holds no draws")
    chain = board.chains if chains % board.groups == 0 else None
    arrays, root = spread.lay(bound.arrays), as_key(seed)
    tails = {n: _fitted(spread, n, np.ndim(v) - 2) for n, v in values.items()}
    values = {
        n: put(v if is_spread(v) else np.asarray(v), board.sharding(chain, None, *tails[n])) for n, v in values.items()
    }

    def some(root, index, values, arrays):
        def each(i, v):
            return one(jax.random.fold_in(root, i), v, arrays)

        return jax.vmap(jax.vmap(each))(index, values)

    given = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in arrays.items()}
    probe = jax.eval_shape(some, root, jax.ShapeDtypeStruct((1, 1), jnp.int32), _shapes(values), given)
    size = sum(np.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves((probe, _shapes(values)))) * chains
    rows = BATCH_BYTES // max(size, 1) if batch is None else batch // chains
    rows = int(np.clip(rows, 1, draws))
    shardings = jax.tree_util.tree_map_with_path(
        lambda path, x: _sharding(board, chain, _fitted(spread, _name(path), x.ndim - 2)), probe
    )
    key = ("over_draws", name, spread.key, chain)
    compiled = bound.structure.compiled
    if key not in compiled:
        compiled[key] = jax.jit(some, out_shardings=shardings)
    out = None
    for first in range(0, draws, rows):
        first = min(first, draws - rows)  # the last batch overlaps the one before: equal shapes, one program
        index = np.arange(chains, dtype=np.int32)[:, None] * np.int32(draws) + np.arange(
            first, first + rows, dtype=np.int32
        )
        part = compiled[key](root, index, {n: v[:, first : first + rows] for n, v in values.items()}, arrays)
        jax.block_until_ready(part)  # programs that exchange numbers run one after another
        if out is None:
            out = jax.tree.map(lambda x, s: _room(x, s, chains, draws), part, shardings)
        out = jax.tree.map(lambda whole, x, s: _put(whole, x, s, first), out, part, shardings)  # noqa: B023
    return out


def _shapes(arrays):
    """Return the shapes of one draw of one chain: [1, 1, ...]."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, 1, *x.shape[2:]), x.dtype), arrays)


def _name(path):
    return path[0].key if path and isinstance(path[0], jax.tree_util.DictKey) else None


def _fitted(spread, name, ndim):
    """Return the spec of a variable, cut to `ndim` axes; none for what is no variable."""
    spec = spread.values.get(name)
    if spec is None:
        spec = spread.board.spec(name)
    return (*tuple(spec)[:ndim],)


def _sharding(board, chain, tail):
    """Divided results stay where they are made; others come to every device, and so to this host."""
    return board.sharding(chain, None, *tail) if board.spreads(PartitionSpec(*tail)) else board.sharding()


def _room(value, sharding, chains, draws):
    shape = (chains, draws, *value.shape[2:])
    return empty_on(shape, value.dtype.name, sharding) if is_spread(value) else np.empty(shape, value.dtype)


def _put(whole, value, sharding, first):
    if is_spread(value):
        return _writer(sharding)(whole, value, np.int32(first))
    whole[:, first : first + value.shape[1]] = np.asarray(value)
    return whole


@functools.lru_cache(maxsize=64)
def _writer(sharding):
    def write(whole, value, first):
        return jax.lax.dynamic_update_slice_in_dim(whole, value, first, 1)

    return jax.jit(write, donate_argnums=0, out_shardings=sharding)
