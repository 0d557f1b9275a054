"""The peers' environments: a virtual environment each, `.venv/bench-<name>`, made at its first use.

python -m benchmarks.environments           # make them all
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = {"stan": ["3.12", "3.11"]}  # its models do not load in 3.13; others get the first of
NEWEST = ["3.13", "3.12", "3.11"]

REQUIREMENTS = {  # what `ppl` itself needs is in setup.cfg; its source comes from `--source`
    "ppl": ["jax>=0.10.2", "numpy", "scipy", "optax", "tqdm"],
    "numpyro": ["numpyro>=0.22", "optax"],
    "blackjax": ["blackjax>=1.7"],
    "tfp": ["tfp-nightly", "jax"],
    "nutpie": ["nutpie[pymc]>=0.16", "numba", "jax", "optax", "tqdm", "arviz-stats"],
    "stan": ["pystan>=3.10", "setuptools"],
    "evaluate": ["arviz-stats>=0.8", "matplotlib"],
}


class Unavailable(Exception):
    """A peer cannot be had on this machine; the message is the reason."""


def python(name):
    """Return the interpreter of an environment, which is made if it is not there as asked for.

    Raises:
      Unavailable: it cannot be installed.
    """
    folder = ROOT / ".venv" / f"bench-{name}"
    interpreter, marker = folder / "bin" / "python", folder / "installed.json"
    wanted = REQUIREMENTS[name]
    made = json.loads(marker.read_text()) if marker.exists() else {}
    if made.get("requirements") != wanted:
        print(f"making {folder.relative_to(ROOT)}: {' '.join(wanted)}", file=sys.stderr, flush=True)
        made = {"requirements": wanted, "reason": _make(folder, wanted)}
        folder.mkdir(parents=True, exist_ok=True)
        marker.write_text(json.dumps(made))
    if made["reason"]:
        raise Unavailable(f"{made['reason']} (remove {marker.relative_to(ROOT)} to try again)")
    return str(interpreter)


def _make(folder, wanted):
    """Make a virtual environment; returns why it could not be made, or None."""
    quiet = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    made = subprocess.run([_interpreter(folder.name.removeprefix("bench-")), "-m", "venv", "--clear", folder], **quiet)
    if made.returncode:
        return _last_line(made)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    installed = subprocess.run(pip, **quiet)
    return _last_line(installed) if installed.returncode else None


def _last_line(process):
    lines = [line for line in (process.stderr or process.stdout).splitlines() if "ERROR" in line]
    return lines[-1] if lines else f"exit status {process.returncode}"


def _interpreter(name):
    """Return the Python that an environment is made of; a version manager's folder is the way past its shim."""
    found = []
    for version in VERSIONS.get(name, NEWEST):
        managed = sorted(map(str, Path.home().glob(f".pyenv/versions/{version}*/bin/python")))
        found += [*managed, f"python{version}"]
    for candidate in [*found, sys.executable]:
        try:
            if subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
                return candidate
        except OSError:
            continue
    raise Unavailable("no Python with venv and pip")


if __name__ == "__main__":
    for each in sys.argv[1:] or REQUIREMENTS:
        try:
            print(each, python(each), flush=True)
        except Unavailable as reason:
            print(each, "skipped:", reason, flush=True)
