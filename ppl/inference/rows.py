"""What chains on a mesh drew. Draws of a divided variable stay on their devices, in one buffer each.

A buffer is [group, chain of the group, draw, ...], laid out by ("chains", None, None, *spec of the variable), and is written
in place by small compiled programs: nothing is gathered, and memory is that of the draws.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ppl.inference import chains
from ppl.sharding import gather


class Rows(chains.Rows):
    """`chains.Rows` for a mesh.

    Args:
      job: the `chains.Job`.
      spread: the `Spread`.
      length: rows of what one call draws; a buffer has room for them.
      centers: the `Centers` of the run.
    """

    def __init__(self, job, spread, length, centers):
        super().__init__(job)
        self.spread, self.length, self.centers = spread, length, centers
        self.moments = {}  # of divided variables: name -> (count, mean, sum of squares), on devices

    def stays(self, kind, name):
        """Tell whether draws stay on their devices: those of divided variables."""
        board = self.spread.board
        return kind == "value" and board.spreads(self.spread.values[name])

    def write(self, key, block, at, value, part):
        """Write rows `part` of what a call of `block` drew, at draw `at`."""
        group, kind, name = key
        if not self.stays(kind, name):
            value = np.moveaxis(value[part], 0, 1)
            if key not in self.arrays:
                total = self.job.warmup if group == "warmup" else self.job.draws
                self.arrays[key] = np.empty((self.job.chains, total, *value.shape[2:]), value.dtype)
            room = self.arrays[key].shape[1] - at
            self.arrays[key][block.numbers, at : at + value.shape[1]] = value[:, :room]
            return
        board = self.spread.board
        with board.active:
            sharding = board.sharding(board.chains, None, None, *self.spread.values[name])
            tail = value.shape[2:] if block.program.width is None else value.shape[3:]
            if key not in self.arrays:
                shape = (board.groups, self.job.chains // board.groups, self._total(group), *tail)
                self.arrays[key] = empty_on(shape, value.dtype.name, sharding)
            self.arrays[key] = _writer(sharding, block.program.width is None)(
                self.arrays[key],
                value,
                np.int32(block.within[0]),
                np.int32(at),
                np.int32(part.start),
                np.int32(part.stop),
            )

    def put(self, key, first, at, value):
        """Write whole rows [chain, draw, ...] of all chains: those of a checkpoint."""
        group, kind, name = key
        if not self.stays(kind, name):
            super().put(key, first, at, value)
            return
        board = self.spread.board
        buffer = np.zeros((value.shape[0], self._total(group), *value.shape[2:]), value.dtype)
        buffer[:, : value.shape[1]] = value[:, : buffer.shape[1]]
        buffer = buffer.reshape(board.groups, -1, *buffer.shape[1:])
        sharding = board.sharding(board.chains, None, None, *self.spread.values[name])
        self.arrays[key] = jax.device_put(buffer, sharding)

    def stored(self, filled):
        """Return the first rows of everything as numpy, as many as are filled; divided ones are fetched."""
        out = {}
        for key, rows in self.arrays.items():
            if self.stays(*key[1:]):
                rows = gather(rows)
                rows = rows.reshape(-1, *rows.shape[2:])
            out[key] = rows[:, : filled[key[0]]]
        return out

    def _total(self, group):
        return max(self.job.warmup if group == "warmup" else self.job.draws, self.length)

    def get(self, group, kind, count):
        """Return the first `count` rows of a kind by name, [chain, draw, ...]; divided ones on their devices."""
        out = {}
        for (g, k, name), array in self.arrays.items():
            if (g, k) != (group, kind):
                continue
            out[name] = self._whole(name, array, count) if self.stays(kind, name) else array[:, :count]
        return out

    def _whole(self, name, buffer, count):
        board = self.spread.board
        sharding = board.sharding(board.chains, None, *self.spread.values[name])
        with board.active:
            return _reader(sharding, count)(buffer)

    def accumulate(self, name, block, value, part):
        """Add draws to the running moments of one variable (Chan, Golub, LeVeque 1979)."""
        if not self.stays("value", name):
            block._accumulate(name, np.moveaxis(value[part], 0, 1))
            return
        board = self.spread.board
        with board.active:
            sharding = board.sharding(*self.spread.values[name])
            if name not in self.moments:
                tail = value.shape[2:] if block.program.width is None else value.shape[3:]
                zeros = empty_on(tail, value.dtype.name, sharding)
                self.moments[name] = (0, zeros, empty_on(tail, value.dtype.name, sharding))
            count, mean, square = self.moments[name]
            lead = 2 if block.program.width is None else 3
            more = (part.stop - part.start) * (value.shape[0] * (1 if lead == 2 else value.shape[2]))
            mean, square = _accumulator(sharding, lead)(
                np.float32(count), mean, square, value, np.int32(part.start), np.int32(part.stop)
            )
            self.moments[name] = (count + more, mean, square)


@functools.lru_cache(maxsize=64)
def _filler(shape, dtype, sharding):
    return jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=sharding)


def empty_on(shape, dtype, sharding):
    """Return zeros, made on their devices."""
    return _filler(tuple(shape), dtype, sharding)()


@functools.lru_cache(maxsize=64)
def _writer(sharding, single):
    """Return the program that writes rows `start` to `stop` of a chunk into a buffer at draw `at`."""

    def write(buffer, value, chain, at, start, stop):
        value = jnp.expand_dims(value, 1) if single else jnp.swapaxes(value, 1, 2)  # [group, chain, draw, ...]
        length, total = value.shape[2], buffer.shape[2]
        first = jnp.minimum(at, total - length)  # a window of the chunk's length that holds the rows
        corner = (jnp.int32(0), chain, first, *(jnp.int32(0),) * (buffer.ndim - 3))
        old = jax.lax.dynamic_slice(buffer, corner, value.shape)
        row = jnp.arange(length, dtype=jnp.int32) - (at - first) + start  # the row of the chunk that lands here
        fits = (row >= start) & (row < stop)
        new = jnp.take(value, jnp.clip(row, 0, length - 1), axis=2)
        fits = fits.reshape(1, 1, length, *(1,) * (value.ndim - 3))
        return jax.lax.dynamic_update_slice(buffer, jnp.where(fits, new, old), corner)

    return jax.jit(write, donate_argnums=0, out_shardings=sharding)


@functools.lru_cache(maxsize=64)
def _reader(sharding, count):
    def read(buffer):
        return buffer[:, :, :count].reshape(-1, count, *buffer.shape[3:])

    return jax.jit(read, out_shardings=sharding)


@functools.lru_cache(maxsize=64)
def _accumulator(sharding, lead):
    def accumulate(count0, mean0, square0, value, start, stop):
        row = jnp.arange(value.shape[1], dtype=jnp.int32)
        used = ((row >= start) & (row < stop)).reshape(1, -1, *(1,) * (value.ndim - 2))
        axes = tuple(range(lead))
        width = value.shape[0] * (value.shape[2] if lead == 3 else 1)
        count = ((stop - start) * width).astype(value.dtype)
        count0 = count0.astype(value.dtype)
        mean = jnp.sum(jnp.where(used, value, 0), axes) / count
        far = jnp.where(used, value - jnp.expand_dims(mean, axes), 0)
        change, total = mean - mean0, count0 + count
        square = square0 + jnp.sum(far**2, axes) + change**2 * (count0 * count / total)
        return mean0 + change * (count / total), square

    return jax.jit(accumulate, out_shardings=(sharding, sharding))


def moments(parts):
    """Return `{name: {"mean", "sd"}}` over all draws of all chains, from the running moments."""
    out = {}
    for name in parts[0].moments:
        counts = np.concatenate(
            [np.full(len(p.moments[name][1]), p.moments[name][0]) for p in parts if name in p.moments]
        )
        means = np.concatenate([p.moments[name][1] for p in parts if name in p.moments])
        squares = np.concatenate([p.moments[name][2] for p in parts if name in p.moments])
        weight = counts.reshape(-1, *(1,) * (means.ndim - 1))
        mean = (weight * means).sum(0) / counts.sum()
        square = (squares + weight * (means - mean) ** 2).sum(0)
        out[name] = {"mean": mean, "sd": np.sqrt(square / max(counts.sum() - 1, 1))}
    for name, (count, mean, square) in getattr(parts[0].rows, "moments", {}).items():
        out[name] = {"mean": mean, "sd": jnp.sqrt(square / max(count - 1, 1))}
    return out
