"""Checkpoints: a run that can be stopped at any time and goes on as if it had not been.

A checkpoint holds the state of every chain (position, step size, metric, keys, counters) and the draws so far: arrays
and JSON in numpy's format, no pickle, with a checksum. It is written under a new name and renamed, so that a kill
leaves the old one or the new one. A checkpoint of another model, other data or other settings is refused, naming what
differs.
"""

import hashlib
import io
import json
import os
import zlib

import jax
import numpy as np

from ppl.errors import FormatError, ModelError
from ppl.sharding import elsewhere, gather
from ppl.tracing.handle import model_name

FORMAT = 1
MAGIC = b"ppl checkpoint\n"


def flat_states(chains):
    """Return the states of all chains as one dict of numpy arrays."""
    out = {}
    for chain in chains:
        leaves, _ = jax.tree_util.tree_flatten_with_path(chain.host_state())
        for path, leaf in leaves:
            out[f"{chain.first}{jax.tree_util.keystr(path)}"] = leaf
    return out


class Checkpoint:
    """One file of one run."""

    def __init__(self, path, bound, job, settings, words):
        self.path, self.job = os.fspath(path), job
        self.identity = {
            "model": model_name(bound.structure.model),
            "variables": [f"{n} ({f})" for n, f in bound.structure.families.items()],
            "program": _program_digest(bound),
            "data": _data_digest(bound.arrays),
            "seed": [int(w) for w in words],
            "kernel": job.kernel,
            "chains": job.chains,
            "warmup": job.warmup,
            "thin": job.thin,
            "metric": job.metric,
            "keep": None if job.keep is None else list(job.keep),
            "keep_warmup": job.keep_warmup,
            "step_size": job.step_size,
            "scale": None if job.scale is None else np.asarray(job.scale).tolist(),
            **settings,
        }

    def save(self, chains):
        """Write the checkpoint; no chain may be moving."""
        arrays, counts = {}, []
        filled = {"draws": max(c.kept for c in chains), "warmup": max(c.kept_warmup for c in chains)}
        for (group, kind, name), rows in chains[0].rows.stored(filled).items():
            arrays[f"rows|{group}|{kind}|{name}"] = rows
        for chain in chains:
            for name, (count, mean, square) in chain.moments.items():
                arrays[f"moments|{chain.first}|{name}|mean"] = mean
                arrays[f"moments|{chain.first}|{name}|square"] = square
                arrays[f"moments|{chain.first}|{name}|count"] = np.asarray(count)
            counts.append([chain.done, chain.kept, chain.kept_warmup])
            arrays[f"told|{chain.first}"] = np.stack(
                [chain.divergences.astype(float), chain.gradients, chain.phase.astype(float)]
            )
        arrays |= {f"state|{name}": gather(value) for name, value in flat_states(chains).items()}
        arrays |= {f"extra|{name}": value for name, value in chains[0].extra().items()}
        if jax.process_index():
            return  # the first of several processes writes
        buffer = io.BytesIO()
        np.savez(buffer, **{f"a{i}": value for i, value in enumerate(arrays.values())})
        head = json.dumps(
            {
                "format": FORMAT,
                "identity": self.identity,
                "counts": counts,
                "names": list(arrays),
                "moments": list(chains[0].moments),
            }
        ).encode()
        body = buffer.getvalue()
        _write(self.path, MAGIC + b"%d %d %d\n" % (len(head), len(body), zlib.crc32(head + body)) + head + body)

    def restore(self, chains):
        """Put chains where the checkpoint left them, if there is one."""
        if not os.path.exists(self.path):
            return
        head, stored = _read(self.path)
        mine = json.loads(json.dumps(self.identity))
        for name, value in mine.items():
            if head["identity"].get(name) != value:
                what = {
                    "program": "the log density",
                    "data": "the numbers in data",
                    "variables": "the random variables",
                }.get(name, name)
                told = "" if name in ("program", "data") else f": {head['identity'].get(name)} there, {value} here"
                raise ModelError(
                    f"the checkpoint {self.path} is of another run: {what} differ{'s' if what == name else ''}{told}. "
                    "Give another file, or delete it to start again."
                )
        for chain, (done, kept, kept_warmup) in zip(chains, head["counts"], strict=True):
            chain.done, chain.kept, chain.kept_warmup = done, min(kept, self.job.draws), kept_warmup
            chain.divergences, chain.gradients, chain.phase = stored[f"told|{chain.first}"]
            chain.divergences = chain.divergences.astype(int)
            leaves, structure = jax.tree_util.tree_flatten_with_path(chain.state)
            chain.adopt(
                jax.tree.unflatten(
                    structure, [stored[f"state|{chain.first}{jax.tree_util.keystr(path)}"] for path, _ in leaves]
                )
            )
            for name in head["moments"]:
                of = f"moments|{chain.first}|{name}"
                chain.moments[name] = (int(stored[f"{of}|count"]), stored[f"{of}|mean"], stored[f"{of}|square"])
        extra = {name.partition("|")[2]: value for name, value in stored.items() if name.startswith("extra|")}
        if extra:
            chains[0].adopt_extra(extra)
        for name, value in stored.items():
            kind, *key = name.split("|", 3)
            if kind == "rows":
                chains[0].rows.put(tuple(key), 0, 0, value)


def _program_digest(bound):
    """Return a digest of the log density as jax sees it."""
    shapes = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in bound.arrays.items()}
    dtype = np.dtype("float64" if jax.config.read("jax_enable_x64") else "float32")
    position = {n: jax.ShapeDtypeStruct(latent.free_shape, dtype) for n, latent in bound.latents.items()}
    text = jax.jit(bound.structure.log_density).lower(position, shapes).as_text()
    return hashlib.sha256(text.encode()).hexdigest()


def _data_digest(arrays):
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        if elsewhere(array):
            digest.update(f"{name}{array.shape}{array.dtype}".encode())  # its numbers lie on several hosts
            continue
        array = np.asarray(array)
        digest.update(f"{name}{array.shape}{array.dtype}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _write(path, content):
    """Replace a file at once: the old content or the new is there at any time."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    temporary = f"{path}.{os.getpid()}.part"
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    if os.name == "posix":  # make the new name last through a power failure
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read(path):
    """Return the head and the arrays of a checkpoint, or raise a FormatError."""
    with open(path, "rb") as file:
        content = file.read()
    refuse = FormatError(f"{path} is no checkpoint of ppl, or it was damaged: delete it to start again")
    if not content.startswith(MAGIC):
        raise refuse
    try:
        line, rest = content[len(MAGIC) :].split(b"\n", 1)
        head_size, body_size, crc = (int(n) for n in line.split())
    except ValueError:
        raise refuse from None
    if len(rest) != head_size + body_size or zlib.crc32(rest) != crc:
        raise refuse
    head = json.loads(rest[:head_size])
    if head["format"] > FORMAT:
        raise FormatError(
            f"{path} has checkpoint format {head['format']}; this version of ppl reads up to {FORMAT}: update ppl"
        )
    with np.load(io.BytesIO(rest[head_size:])) as arrays:
        return head, {name: arrays[f"a{i}"] for i, name in enumerate(head["names"])}
