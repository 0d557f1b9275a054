"""Several processes that run one program together, each with its own devices, after `jax.distributed.initialize()`.

    digest     processes with different models, shapes, seeds or settings are refused before anything is exchanged
    agree      the first process says how long the next chunk is
    watch      all processes meet every few seconds; one that stays away is named, and the others end

A process that dies or is stopped leaves the others waiting inside an exchange, which nothing can interrupt. So the watch, a
thread of each process, ends its process with the exit code `EXIT`, after a last line on standard error. It meets through
jax's coordination service, whose barriers have a deadline: `PPL_HOST_TIMEOUT` seconds, 60 by default.
"""

import hashlib
import itertools
import json
import os
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ppl.errors import ModelError
from ppl.sharding import elsewhere, spelled

EXIT = 75  # "temporary failure": run the job again
TIMEOUT = 60.0  # seconds until a process that stays away is given up
_numbers = itertools.count()  # of runs: equal on all processes, since all make the same runs


def several():
    """Tell whether this process is one of several."""
    return jax.process_count() > 1


def first():
    """Tell whether this process is the one that prints and writes files."""
    return jax.process_index() == 0


def timeout():
    """Return the seconds after which a process that stays away is given up."""
    return float(os.environ.get("PPL_HOST_TIMEOUT", TIMEOUT))


def _service():
    """Return the client of jax's coordination service. Jax has no other public way to it than this attribute."""
    return multihost_utils.distributed.global_state.client


class Together:
    """The processes of one run. Used as a context: they are watched inside it.

    Args:
      describe: what all must have equal, by name: values that JSON can hold.
    """

    def __init__(self, describe):
        self.number, self.chunk = next(_numbers), 0
        self.seconds, self.service = timeout(), _service()
        self._over = threading.Event()
        self._compare(describe)

    def _key(self, *parts):
        return "/".join(["ppl", str(self.number), *map(str, parts)])

    def _compare(self, describe):
        """Refuse to go on unless all processes have equal descriptions."""
        own = {name: _digest(value) for name, value in describe.items()}
        self.service.key_value_set(self._key("digest", jax.process_index()), json.dumps([own, _told(describe)]))
        mine = _told(describe)
        for process in range(jax.process_count()):
            theirs, told = json.loads(self._get(self._key("digest", process), process))
            for name in own:
                if own[name] != theirs.get(name):
                    raise ModelError(
                        f"process {process} was given other {name} than process {jax.process_index()}"
                        f"{_difference(told.get(name), mine.get(name))}: all processes must make the same run, each with its own "
                        "rows of the same data"
                    )

    def _get(self, key, process):
        try:
            return self.service.blocking_key_value_get(key, int(1000 * self.seconds))
        except Exception as e:  # jax raises an error type of its own runtime
            raise RuntimeError(_lost([process], self.seconds)) from e

    def agree(self, n, due):
        """Return `(n, due)` of the first process: transitions of the next chunk, and whether to save after it."""
        self.chunk += 1
        key = self._key("chunk", self.chunk)
        if first():
            self.service.key_value_set(key, f"{int(n)} {int(due)}")
            if self.chunk > 2:
                self.service.key_value_delete(self._key("chunk", self.chunk - 2))
            return n, due
        told, due = self._get(key, 0).split()
        return int(told), bool(int(due))

    def __enter__(self):
        threading.Thread(target=self._watch, daemon=True, name="ppl-hosts").start()
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self._meet("end")
        elif not isinstance(error, KeyboardInterrupt):
            self._name_missing(error)
        self._over.set()

    def _watch(self):
        for beat in itertools.count():
            if self._over.wait(min(5.0, self.seconds / 4)):
                return
            self._meet("beat", beat)

    def _meet(self, *parts):
        """Wait for all processes at one barrier; end this process if one stays away."""
        answer = []
        thread = threading.Thread(target=self._barrier, args=(self._key(*parts), answer), daemon=True)
        thread.start()
        thread.join(self.seconds + 5.0)  # the service itself may be stopped, and answer nobody
        if self._over.is_set() or (answer and answer[0] is None):
            return
        self._end(_missing(answer[0]) if answer else [0])

    def _barrier(self, name, answer):
        try:
            self.service.wait_at_barrier(name, int(1000 * self.seconds))
            answer.append(None)
        except Exception as e:  # as above
            answer.append(str(e))

    def _name_missing(self, error):
        """After an error inside an exchange: if a process is missing, name it and end; else let the error go on."""
        answer = []
        thread = threading.Thread(target=self._barrier, args=(self._key("after an error"), answer), daemon=True)
        thread.start()
        thread.join(self.seconds + 5.0)
        if not answer or answer[0] is not None:
            sys.stderr.write(f"{type(error).__name__}: {str(error).splitlines()[0][:300]}\n")
            self._end(_missing(answer[0]) if answer else [0])

    def _end(self, missing):
        sys.stdout.flush()
        sys.stderr.write(f"{_lost(missing, self.seconds)}\n")
        sys.stderr.flush()
        os._exit(EXIT)


def _missing(message):
    """Return the numbers of processes that a failed barrier's message names; the first, if the service is gone."""
    told = (message or "").partition("task names:")[2]
    found = {int(number) for number in re.findall(r"(?:task:|^|[\s,])(\d+)\b", told)}
    return sorted(found - {jax.process_index()}) or [0]


def _lost(missing, seconds):
    who = ", ".join(f"process {n}" for n in missing)
    verb = "was" if len(missing) == 1 else "were"
    return (
        f"ppl: {who} {verb} not heard of for {seconds:g} s (dead, stopped or cut off), so process {jax.process_index()} ends "
        f"with exit code {EXIT}. Start the job again; with checkpoint= it goes on from there. PPL_HOST_TIMEOUT sets the seconds."
    )


def _digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _told(describe):
    """Return the descriptions that are short enough for a message."""
    return {name: text for name, value in describe.items() if len(text := json.dumps(value, default=str)) < 2000}


def _difference(theirs, mine):
    if not theirs or not mine or max(len(theirs), len(mine)) > 300:
        return ""
    return f" ({theirs} there, {mine} here)"


def description(bound, placed, job, settings, words):
    """Return what all processes of a run must have equal."""
    structure = bound.structure
    shapes = {name: [list(a.shape), str(a.dtype), spelled(placed.arrays[name])] for name, a in bound.arrays.items()}
    whole = {
        name: hashlib.sha256(np.asarray(a).tobytes()).hexdigest()
        for name, a in bound.arrays.items()
        if not elsewhere(a)
    }
    latents = {
        n: jax.ShapeDtypeStruct(v.free_shape, np.dtype(jax.numpy.result_type(float))) for n, v in bound.latents.items()
    }
    arrays = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in bound.arrays.items()}
    program = str(jax.make_jaxpr(structure.log_density)(latents, arrays))
    return {
        "random variables": [f"{n} ({f})" for n, f in structure.families.items()],
        "data shapes": shapes,
        "data": whole,
        "models": re.sub(r"0x[0-9a-f]+", "", program),
        "seeds": [int(w) for w in words],
        "meshes": [list(placed.board.mesh.shape.items()), [d.id for d in placed.board.mesh.devices.flat]],
        "settings": [
            job.kernel,
            job.chains,
            job.draws,
            job.warmup,
            job.thin,
            job.metric,
            job.keep,
            job.keep_warmup,
            settings,
        ],
        "versions": [jax.__version__],
    }


def from_process_local(
    data: Mapping[str, Any], *, mesh: jax.sharding.Mesh, sharding: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `data` as arrays over all processes: each gives its own rows, and none ever holds all of them.

    Args:
      data: `{name: array}`: of each divided entry the part that belongs to this process's devices, in the order of its
        devices; of others the whole, equal on all processes.
      mesh: a mesh over the devices of all processes.
      sharding: `{name: jax.sharding.PartitionSpec}`.

    Example, on each of two processes with half of the rows:

        data = ppl.from_process_local({"X": my_rows, "y": my_labels}, mesh=mesh, sharding={"X": P("rows"), "y": P("rows")})
        posterior = ppl.infer.hmc(model, data)
    """
    unknown = [name for name in sharding if name not in data]
    if unknown:
        raise ModelError(f"sharding has {unknown[0]!r}, which data does not have")
    out = dict(data)
    for name, spec in sharding.items():
        laid = jax.sharding.NamedSharding(mesh, spec)
        out[name] = jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(laid, np.asarray(leaf)),  # noqa: B023
            data[name],
        )
    return out
