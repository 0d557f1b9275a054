"""Downloads that happen once, and are what they should be.

A file goes to a part file, is compared with its SHA-256, and only then gets its name: what lies under that name is
complete. Nothing is unpacked or unpickled here.
"""

import contextlib
import hashlib
import os
from pathlib import Path

from ppl.data.folder import cache_folder
from ppl.errors import DataError

TIMEOUT = 60.0  # seconds without a byte


def fetch(
    name: str,
    url: str,
    sha256: str,
    folder: str | os.PathLike | None = None,
    local: str | os.PathLike | None = None,
) -> Path:
    """Return the path of a file that was downloaded once, or of a copy that the user has.

    Args:
      name: what to call the file.
      url: where it is.
      sha256: what its bytes must hash to, in hexadecimal digits.
      folder: where to keep it; by default `data` in the user's cache folder for `ppl`.
      local: a file that the user already has, or a folder with a file of this name; nothing is then downloaded.

    Raises:
      DataError: the file cannot be downloaded, or is not the one it should be.
    """
    if local is not None:
        path = Path(local).expanduser()
        path = path / name if path.is_dir() else path
        if not path.is_file():
            raise DataError(f"{name}: there is no file {path}")
        _compare(name, path, _digest(path), sha256)
        return path
    folder = _folder(folder)
    path = folder / name
    if path.is_file() and _digest(path) == sha256:
        return path
    _download(name, url, sha256, path)
    return path


def _folder(folder):
    if folder is not None:
        return Path(folder).expanduser()
    root = cache_folder()
    if root is None:
        raise DataError("there is no home folder to keep data in: pass folder=, or set XDG_CACHE_HOME")
    return root / "data"


def _download(name, url, sha256, path):
    import urllib.request  # not at the top: its import takes as long as all of `ppl`

    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with urllib.request.urlopen(url, timeout=TIMEOUT) as source, open(part, "wb") as target:
            while block := source.read(2**20):
                digest.update(block)
                target.write(block)
        _compare(name, url, digest.hexdigest(), sha256)
        os.replace(part, path)
    except OSError as e:
        reason = getattr(e, "reason", None) or e
        raise DataError(
            f"{name} could not be downloaded from {url}: {reason}. Without a network, put the file at {path}, "
            "or pass local= with the path of a copy."
        ) from e
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _compare(name, where, found, expected):
    if found != expected:
        raise DataError(
            f"{name} from {where} has SHA-256 {found[:16]}... and not {expected[:16]}...: it is cut short or another "
            "version. It was not used."
        )
