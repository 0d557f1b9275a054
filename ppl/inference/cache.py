"""The compilation cache: a program that was compiled once is loaded from disk in every later process.

JAX has such a cache and leaves it off. It writes an entry straight to its final name and never replaces one, so an
entry that a kill or a full disk cut short would cost a warning and a compilation at every later run. Therefore:

    enable()      before the first compilation: find a folder, remove its damaged entries, hand it to JAX
    healing()     around compilations: an entry that breaks while the process runs is removed without a word

An entry is taken for good if its size and time are those of the last look, noted in `entries.json` beside it. Others
are decompressed once, or their CRC compared with the one noted; a damaged entry is deleted, and JAX makes it again.

Nothing happens if the user has chosen a cache in JAX's own settings. `PPL_CACHE=off` turns ours off, and
`PPL_CACHE=/a/folder` moves it. Entries are programs that run, so the folder belongs to its user alone.
"""

import contextlib
import json
import logging
import os
import platform
import re
import stat
import threading
import warnings
import zlib
from pathlib import Path

import jax

from ppl.data.folder import cache_folder

logger = logging.getLogger("ppl")

SUFFIX = "-cache"  # of JAX's entries
MOST_BYTES = 2**29  # the oldest entries go when the folder grows larger
ZLIB, ZSTD = b"\x78", b"\x28\xb5\x2f\xfd"  # how a compressed entry starts

_lock = threading.Lock()
_folder: list = []  # once `enable` has run: the folder that is ours, or None


def enable():
    """Turn the cache on, unless the user chose otherwise; returns its folder or None. Later calls do nothing."""
    with _lock:
        if not _folder:
            _folder.append(_enable())
        return _folder[0]


def _enable():
    if jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache:
        return None  # the user's own choice
    folder = _usable_folder()
    if folder is None:
        return None
    sweep(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if jax.config.jax_persistent_cache_min_compile_time_secs == 1.0:  # JAX's default: small programs would be left out
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder


def _usable_folder():
    """Return a folder that we may write to and that nobody else may, or None."""
    chosen = os.environ.get("PPL_CACHE", "")
    if chosen.lower() in ("off", "0", "no", "false"):
        return None
    root = Path(chosen).expanduser() if chosen else cache_folder()
    if root is None:
        return None
    folder = root / f"jax-{jax.__version__}-{platform.machine()}-{_processor():08x}"
    try:
        for path in (root, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not chosen and hasattr(os, "getuid"):
                found = path.stat()
                if found.st_uid != os.getuid():
                    return None
                if stat.S_IMODE(found.st_mode) & 0o077:
                    path.chmod(0o700)
        probe = folder / f"writable.{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as e:
        logger.debug("no compilation cache: %s", e)
        return None
    return folder


def _processor():
    """Return a number for the kind of processor: a program compiled for one kind may not run on another."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            lines = f.read(8192).splitlines()
    except OSError:
        return zlib.crc32(platform.processor().encode())
    kinds = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))][:2]
    return zlib.crc32("\n".join(kinds).encode())


def sweep(folder):
    """Remove the damaged entries of a folder, and its oldest ones if it has grown too large."""
    known = _read(folder / "entries.json")
    found = {}
    for path in folder.glob("*" + SUFFIX):
        with contextlib.suppress(OSError):
            now = path.stat()
            note = known.get(path.name)
            if not (isinstance(note, list) and note[:2] == [now.st_size, now.st_mtime_ns]):
                note = [now.st_size, now.st_mtime_ns, _crc(path, note)]
            if note[2] is None:
                logger.debug("removing the damaged cache entry %s", path.name)
                path.unlink()
            else:
                found[path.name] = note
    total = sum(size for size, _, _ in found.values())
    for name, (size, _, _) in sorted(found.items(), key=lambda item: item[1][1]):
        if total <= MOST_BYTES:
            break
        with contextlib.suppress(OSError):
            (folder / name).unlink()
        total -= size
        del found[name]
    if found != known:
        _write(folder / "entries.json", found)


def _crc(path, note):
    """Return the CRC-32 of an entry, or None if it is damaged."""
    content = path.read_bytes()
    crc = zlib.crc32(content)
    if isinstance(note, list) and len(note) == 3:
        return crc if crc == note[2] else None  # JAX never changes an entry
    try:
        if content[:1] == ZLIB:
            zlib.decompress(content)
        elif content[:4] == ZSTD:
            _decompress_zstd(content)
        else:
            return None
    except Exception:  # each decompressor has errors of its own
        return None
    return crc


def _decompress_zstd(content):
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            import zstandard as zstd
        except ImportError:
            return
    zstd.decompress(content)


def _read(path):
    """Return a JSON object from disk, empty if there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path, content):
    """Write a JSON object in one step, so that no process ever reads half of it; a full disk is no error."""
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        part.write_text(json.dumps(content), encoding="utf-8")
        os.replace(part, path)
    except OSError as e:
        logger.debug("could not write %s: %s", path, e)
        with contextlib.suppress(OSError):
            part.unlink()


TROUBLE = re.compile(r"Error (reading|writing) persistent compilation cache entry for '(?P<name>[^']*)'")


@contextlib.contextmanager
def healing():
    """Keep trouble with our cache from the user: JAX's warnings about it are swallowed, and the entries removed.

    Another process may be writing the entry that this one reads. Other warnings pass through unchanged.
    """
    folder = enable()
    if folder is None:
        yield
        return
    caught = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", message="Error (reading|writing) persistent compilation cache entry")
            yield
    finally:
        for w in caught:
            trouble = TROUBLE.match(str(w.message))
            if trouble is None:
                warnings.warn_explicit(w.message, w.category, w.filename, w.lineno, source=w.source)
                continue
            for path in folder.glob(trouble["name"].replace("[", "[[]") + "*" + SUFFIX):
                with contextlib.suppress(OSError):
                    path.unlink()


def seconds_last_time(program):
    """Return how many seconds the program of this name took to compile the last time, or None."""
    folder = enable()
    seconds = _read(folder / "seconds.json").get(program) if folder else None
    return seconds if isinstance(seconds, int | float) else None


def remember_seconds(program, seconds):
    """Note for the next time how many seconds it took to compile the program of this name."""
    folder = enable()
    if folder:
        known = _read(folder / "seconds.json")
        recent = dict(list(known.items())[-500:])
        recent.pop(program, None)
        _write(folder / "seconds.json", {**recent, program: round(seconds, 3)})
