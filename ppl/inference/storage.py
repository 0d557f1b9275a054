"""A posterior as one netCDF file: no pickle, nothing that runs, bit for bit the same when read back.

`xarray.open_dataset(path)` shows draws under their names, statistics as `sample_stats.lp` and so on. Attributes of each
variable say what it was: `ppl_group`, `ppl_name`, `ppl_dtype` and, where the file cannot hold it as it is, `ppl_shape`.
Records such as the settings are one JSON text. The first attribute holds the version of this format and a SHA-256
of the whole file, in which the 64 digits themselves count as zeros: a file cut short or with a flipped bit is noticed.
"""

import contextlib
import hashlib
import json
import mmap
import os
import re
import tempfile

import numpy as np

from ppl.errors import FormatError, ModelError
from ppl.inference import labels, netcdf
from ppl.inference.posterior import Posterior

FORMAT = 1
SEAL = re.compile(rb"ppl posterior, format (\d{1,9}), sha256 ([0-9a-f]{64})")
HEAD = 2**24  # bytes within which the seal stands
RECORDS = ("settings", "timings", "seed", "versions", "dims", "interrupted", "roles")
PREFIXES = {"draws": "", "stats": "sample_stats.", "tracked": "tracked.", "state": "state."}
WARMUP, MOMENTS = "warmup.", "moments."
PLAIN = ("int8", "int16", "int32", "float32", "float64")
WIDER = {"uint8": "int16", "uint16": "int32", "float16": "float32", "bfloat16": "float32"}


def save(posterior: Posterior, path: str | os.PathLike) -> str:
    """Write `posterior` to the file `path`; a file that is there is replaced in one step, or stays as it is.

    Returns:
      the path.

    Raises:
      ModelError: settings or another record hold something that JSON cannot.
    """
    file = _File(posterior)
    path = os.fspath(path)
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".ppl-")
    try:
        with open(handle, "w+b") as stream:
            netcdf.write(stream, file.axes, file.attributes, file.variables)
            stream.flush()
            with mmap.mmap(stream.fileno(), 0) as content:
                seal = SEAL.search(content, 0, HEAD)
                assert seal, "the file was written without its seal"
                at = seal.start(2)
                content[at : at + 64] = hashlib.sha256(content).hexdigest().encode()
                content.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)
    return path


def load(path: str | os.PathLike) -> Posterior:
    """Read a posterior that `Posterior.save` wrote; nothing in the file is run, so it may come from anyone.

    Raises:
      FormatError: the file is something else, is damaged, or comes from a newer `ppl`.
    """
    path = os.fspath(path)
    with open(path, "rb") as stream:
        if not os.fstat(stream.fileno()).st_size:
            raise FormatError(f"{path!r} is empty. Give a file that posterior.save wrote.")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _check_seal(path, content)
            try:
                return _posterior(*netcdf.read(content))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
                raise FormatError(f"{path!r} has the seal of ppl but not its content: {error}.") from error


def _check_seal(path, content):
    found = SEAL.search(content, 0, HEAD) if content[:4] == netcdf.MAGIC else None
    if not found:
        raise FormatError(
            f"{path!r} is not a saved posterior: it begins with {content[:8]!r}. Nothing in it was run. "
            "Give a file that posterior.save wrote."
        )
    if int(found[1]) > FORMAT:
        raise FormatError(
            f"{path!r} has format {int(found[1])}, and this version of ppl reads formats up to {FORMAT}. "
            "Install a newer version to read it."
        )
    digest, (start, end) = found[2].decode(), found.span(2)
    digests = hashlib.sha256()
    with memoryview(content) as view:
        for part in (view[:start], b"0" * 64, view[end:]):
            digests.update(part)
            if isinstance(part, memoryview):
                part.release()
    if digests.hexdigest() != digest:
        raise FormatError(
            f"{path!r} is damaged: its content has not the checksum that was written with it. Copy it again from "
            "where it was saved."
        )


def _posterior(attributes, variables):
    records = json.loads(attributes["ppl_records"])
    groups = {}
    for array, notes in variables.values():
        groups.setdefault(notes["ppl_group"], {})[notes["ppl_name"]] = _decoded(array, notes)
    fields = {name: groups.get(name, {}) for name in (*PREFIXES, "coords")}
    if "warmup" in records:
        fields["warmup"] = {name: groups.get(WARMUP + name, {}) for name in records["warmup"]}
    fields["moments"] = {}
    for kind in (group for group in groups if group.startswith(MOMENTS)):
        for name, array in groups[kind].items():
            fields["moments"].setdefault(name, {})[kind.removeprefix(MOMENTS)] = array
    return Posterior(**fields, **{name: records[name] for name in RECORDS})


class _File:
    """The axes, attributes and variables that stand for a posterior."""

    def __init__(self, posterior):
        self.axes, self.variables, self.places = {}, [], {}
        records = {name: getattr(posterior, name) for name in RECORDS}
        if posterior.warmup is not None:
            records["warmup"] = list(posterior.warmup)
        self.attributes = {
            "ppl": f"ppl posterior, format {FORMAT}, sha256 {'0' * 64}",
            "ppl_records": _json(records),
            "inference_library": "ppl",
            "inference_library_version": str(posterior.versions.get("ppl", "")),
        }
        self.taken = {"chain", "draw", "warmup_draw"}
        self.places = {(name, length): name for name, length in self._sampled(posterior).items()}
        self.axes = {name: length for (name, length) in self.places if length}
        variables = {name: self._free_name(name) for name in posterior.draws}
        for axis, values in posterior.coords.items():
            self._add("coords", axis, values, [axis], self._axis(axis, len(values)))
        for name, array in posterior.draws.items():
            over = ["chain", "draw", *labels.axis_names(name, array.shape[2:], posterior.dims)]
            self._add("draws", name, array, over, variables[name])
        for group in ("stats", "tracked", "state"):
            leading = [] if group == "state" else ["chain", "draw"]
            for name, array in getattr(posterior, group).items():
                self._add_other(group, PREFIXES[group] + name, name, array, leading)
        for name, moments in posterior.moments.items():
            for kind, array in moments.items():
                self._add_other(MOMENTS + kind, f"{MOMENTS}{kind}.{name}", name, array, [])
        for group, arrays in (posterior.warmup or {}).items():
            for name, array in arrays.items():
                wanted = WARMUP + PREFIXES.get(group, f"{group}.") + name
                self._add_other(WARMUP + group, wanted, name, array, ["chain", "warmup_draw"])

    def _sampled(self, posterior):
        lengths = {"chain": posterior.chains, "draw": posterior.num_draws}
        warmup = [array for arrays in (posterior.warmup or {}).values() for array in arrays.values()]
        return lengths | ({"warmup_draw": warmup[0].shape[1]} if warmup else {})

    def _free_name(self, name):
        """A name that netCDF allows and nothing else in the file has: `slopes/tau` becomes `slopes.tau`."""
        legal = legal_name(name)
        free, number = legal, 1
        while free in self.taken:
            number += 1
            free = f"{legal}_{number}"
        self.taken.add(free)
        return free

    def _axis(self, name, length):
        """The name in the file of an axis; one name stands for one length."""
        if (name, length) not in self.places:
            self.places[name, length] = self._free_name(name)
            self.axes |= {self.places[name, length]: length} if length else {}
        return self.places[name, length]

    def _add_other(self, group, wanted, name, array, leading):
        over = leading + [f"{wanted}_dim_{i}" for i in range(array.ndim - len(leading))]
        self._add(group, name, array, over, self._free_name(wanted))

    def _add(self, group, name, array, over, own_name):
        notes = {"ppl_group": group, "ppl_name": name, "ppl_dtype": str(array.dtype)}
        if not array.size:  # an axis of length 0 cannot be stored
            self.variables.append((own_name, [], np.zeros((), np.int8), notes | {"ppl_shape": json.dumps(array.shape)}))
            return
        stored, extra, more = _encoded(array)
        lengths = [*zip(over, array.shape, strict=True), *((f"{kind}_{length}", length) for kind, length in extra)]
        self.variables.append((own_name, [self._axis(*pair) for pair in lengths], stored, notes | more))


def legal_name(name):
    """The name with all but letters, digits, `_` and `.` replaced; scopes `a/b` become `a.b`."""
    legal = re.sub(r"[^A-Za-z0-9_.]", "_", name.replace("/", "."))
    return legal if re.match(r"[A-Za-z_]", legal) else f"_{legal}"


def _encoded(array):
    """Return an array of a dtype that the file has, its extra axes `(kind, length)`, and attributes.

    Numbers of types that netCDF lacks are stored in a type that holds these values exactly, as bits where none does.
    """
    name = array.dtype.name
    if name in PLAIN:
        return array, (), {}
    if name == "bool":
        return array.astype(np.int8), (), {"dtype": "bool"}  # the attribute by which xarray knows
    if array.dtype.kind in "UM":
        texts = [str(text).encode() for text in array]
        length = max([1, *map(len, texts)])
        data = np.frombuffer(b"".join(text.ljust(length, b"\0") for text in texts), "S1").reshape(-1, length)
        return data, (("characters", length),), {"_Encoding": "utf-8"}
    if name in WIDER:
        return array.astype(WIDER[name]), (), {}
    if array.dtype.kind in "iu":
        for wider in ("int32", "float64"):
            limit = 2**31 - 1 if wider == "int32" else 2**53
            if not array.size or (int(array.max()) <= limit and int(array.min()) >= -limit):
                return array.astype(wider), (), {}
    if array.dtype.hasobject:
        raise ModelError(f"an array of dtype {array.dtype} cannot be saved; give numbers.")
    bits = np.ascontiguousarray(array)[..., None].view(np.int8)
    return bits, (("bytes", bits.shape[-1]),), {"ppl_bits": "little" if np.little_endian else "big"}


def _decoded(array, notes):
    name = notes["ppl_dtype"]
    dtype = _dtype(name)
    if "ppl_shape" in notes:
        return np.zeros([int(length) for length in json.loads(notes["ppl_shape"])], dtype)
    if "ppl_bits" in notes:
        return array.view(dtype.newbyteorder("<" if notes["ppl_bits"] == "little" else ">"))[..., 0].astype(dtype)
    if dtype.kind in "UM":
        return np.array([row.tobytes().rstrip(b"\0").decode() for row in array], dtype)
    return array.astype(dtype)


def _dtype(name):
    if not re.fullmatch(r"bool|u?int\d+|b?float\d+|complex\d+|[<>]U\d+|datetime64\[\w+\]", name):
        raise ValueError(f"there is no number type {name!r}")
    if name == "bfloat16":
        import jax.numpy as jnp

        return np.dtype(jnp.bfloat16)
    return np.dtype(name)


def _json(records):
    for name, record in records.items():
        try:
            json.dumps(record, default=_plain)
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"{name} of the posterior cannot be saved as JSON: {error}. Use numbers and text."
            ) from error
    return json.dumps(records, default=_plain)


def _plain(value):
    if hasattr(value, "tolist"):
        return np.asarray(value).tolist()
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder):
    """Ask for the new name to be on the disk too, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
