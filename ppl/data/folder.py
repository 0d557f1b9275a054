"""Where things live that may be deleted at any time: compiled programs and downloads."""

import os
import sys
from pathlib import Path


def cache_folder():
    """Return the folder for `ppl` in the user's cache folder, whether or not it exists; None without a home folder."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "ppl"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "ppl" / "Cache"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if not home.is_dir():
        return None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "ppl"
