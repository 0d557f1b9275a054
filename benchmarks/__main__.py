"""Run `ppl` and its peers side by side, and print the table.

    python -m benchmarks                                               # everything; hours
    python -m benchmarks --cases eight_schools,radon --repetitions 1
    python -m benchmarks --peers ppl,numpyro --cases eight_schools     # the other rows stay as last measured
    python -m benchmarks --peers ppl,ppl@/another/checkout             # two sources of `ppl` in one run
    python -m benchmarks --source /another/checkout --peers ppl        # only the other one
    python -m benchmarks --table                                       # print what was measured before

Each runner samples each case in a process of its own: with empty caches (cold), then in a new process with the caches
that it left (warm). Runners take turns, repetitions are spread over the whole run, and medians are printed. Environments
are made at their first use. Results go to benchmarks/results/, and the table to benchmarks/RESULTS.md with `--write`.
"""

import argparse
import datetime
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import cases, environments, table

HERE = Path(__file__).parent
RESULTS = HERE / "results"
CASES = [
    "eight_schools", "logistic", "radon", "gaussian_process", "covertype", "funnel_512", "gaussian_512", "metropolis",
    "posteriordb",
]  # fmt: skip
PEERS = ["ppl", "ppl:hmc", "numpyro", "blackjax", "nutpie", "pymc", "tfp", "stan"]
ENVIRONMENTS = {"jax": "ppl", "pymc": "nutpie"}  # shared ones
DEFAULTS = {"chains": 4, "draws": 1000, "warmup": 1000, "repeats": 10, "most_seconds": 15, "save": True}
WARMUP = {"ppl": 400, "nutpie": 400}  # their defaults, which they are best with


def main():
    """Run what the command line asks for, and print the table."""
    words = parse()
    if importlib.util.find_spec("numpy") is None:  # cases make their data with it
        os.execv(environments.python("evaluate"), ["python", "-m", "benchmarks", *sys.argv[1:]])
    RESULTS.mkdir(exist_ok=True)
    names = cases.expand(words.cases)
    jobs = [(case, peer) for case in names if not words.table for peer in words.peers or runners(case)]
    found = {job: [] for job in jobs}
    skipped = {}
    for repetition in range(words.repetitions):
        for case, peer in jobs:
            if (case, peer) in skipped:
                continue
            print(f"{time.strftime('%H:%M:%S')} {case} by {peer}, {repetition + 1}", file=sys.stderr, flush=True)
            try:
                found[case, peer].append(undisturbed(case, peer, words, repetition))
            except environments.Unavailable as reason:
                skipped[case, peer] = str(reason)
                print(f"  skipped: {reason}", file=sys.stderr, flush=True)
            keep(case, peer, found[case, peer], skipped.get((case, peer)))
    for case in names:
        evaluate(case)
    text = table.text(RESULTS, names, words.best)
    print(text)
    if words.write:
        (HERE / "RESULTS.md").write_text(text + "\n")


def parse():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=lambda s: s.split(","), default=CASES)
    parser.add_argument("--peers", type=lambda s: s.split(","), help="by default all that a case has")
    parser.add_argument("--source", default=str(HERE.parent), help="the checkout whose ppl is measured")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--covertype", default=os.environ.get("COVERTYPE", ""), help="the file covertype.npz")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the last results")
    parser.add_argument("--best", action="store_true", help="print least times, not medians: for a busy machine")
    parser.add_argument("--write", action="store_true", help="write the table to benchmarks/RESULTS.md")
    for name in ("chains", "draws", "warmup", "repeats"):
        parser.add_argument(f"--{name}", type=int, help=f"by default {DEFAULTS[name]} or the case's own")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one process")
    return parser.parse_args()


def runners(case):
    """Return the names of a case's runners."""
    module = cases.load(case)
    own = list(getattr(module, "RUNNERS", ()))
    return own + list(getattr(module, "PEERS", () if own else PEERS))


def undisturbed(case, peer, words, repetition):
    """Measure, again where the processes were stopped meanwhile, at most three times."""
    for _ in range(3):
        row = measure(case, peer, words, repetition)
        if not row["paused"]:
            break
        print(f"  was stopped for {row['paused']:.0f} s, measured again", file=sys.stderr, flush=True)
    return row


def measure(case, peer, words, repetition):
    """Run a process with empty caches, then one with the caches of the first."""
    name, _, source = peer.partition("@")
    base = name.partition(":")[0]
    interpreter = environments.python(ENVIRONMENTS.get(base, base))
    module = cases.load(case)
    options = {**DEFAULTS, "warmup": WARMUP.get(base, DEFAULTS["warmup"]), **getattr(module, "OPTIONS", {})}
    options |= {k: getattr(words, k) for k in ("chains", "draws", "warmup", "repeats") if getattr(words, k) is not None}
    options |= {"case": case, "peer": name, "covertype": words.covertype}
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(source or words.source).resolve()), str(HERE.parent)]
        environment = {**os.environ, **caches(Path(folder), base), "PYTHONPATH": os.pathsep.join(paths)}
        out = {"load": os.getloadavg()[0], "at": datetime.datetime.now().isoformat(timespec="seconds")}
        for how in ("cold", "warm"):
            options |= {"folder": folder, "quick": how == "warm", "began": time.time()}
            out[how] = process(interpreter, options, environment, words.timeout)
        out["paused"] = out["cold"].pop("paused") + out["warm"].pop("paused")
        out["warmup"] = options["warmup"]
        draws = Path(folder) / "draws.npz"
        if draws.exists():
            shutil.move(draws, file(case, peer, f"-{repetition}.npz"))
        return out


def process(interpreter, options, environment, timeout):
    """Run one process and return its row.

    Raises:
      Unavailable: it failed.
    """
    folder = Path(options["folder"])
    command = [interpreter, "-P", "-m", "benchmarks.runner", json.dumps(options)]
    with open(folder / "output.txt", "w") as output:
        child = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=folder)
        paused = wait(child, timeout)
    if child.returncode:
        shutil.copy(folder / "output.txt", RESULTS / "error.txt")
        lines = (folder / "output.txt").read_text().strip().splitlines()
        raise environments.Unavailable(lines[-1] if lines else f"exit status {child.returncode}")
    return json.loads((folder / "row.json").read_text()) | {"paused": paused}


def wait(child, timeout):
    """Wait for a process to end; returns the seconds in which this one was stopped, or the machine asleep.

    Raises:
      Unavailable: it did not end in time.
    """
    began = last = time.monotonic()
    paused = 0.0
    while child.poll() is None:
        time.sleep(0.05)
        now = time.monotonic()
        paused, last = paused + (now - last if now - last > 1 else 0), now
        if now - began - paused > timeout:
            child.kill()
            child.wait()
            raise environments.Unavailable(f"took more than {timeout} s")
    return paused


def caches(folder, peer):
    """Return environment variables that put every cache into `folder`."""
    variables = {
        "XDG_CACHE_HOME": folder / "cache", "NUMBA_CACHE_DIR": folder / "numba", "PPL_CACHE": folder / "ppl",
        "PYTENSOR_FLAGS": f"base_compiledir={folder / 'pytensor'}", 
    }  # fmt: skip
    if peer != "ppl":  # which turns its own on
        variables |= {
            "JAX_COMPILATION_CACHE_DIR": folder / "jax", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0,
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": -1,
        }  # fmt: skip
    return {name: str(value) for name, value in variables.items()}


def file(case, peer, suffix):
    """Return where a runner's results lie."""
    folder = RESULTS / case
    folder.mkdir(exist_ok=True)
    return folder / (peer.replace("/", "_") + suffix)


def keep(case, peer, rows, reason):
    """Save what was measured so far; draws of an earlier run go."""
    for path in RESULTS.glob(f"{case}/{glob_escape(peer.replace('/', '_'))}-[0-9]*.npz"):
        if int(path.stem.rpartition("-")[2]) >= len(rows):
            path.unlink()
    content = {"case": case, "peer": peer, "rows": rows, "skipped": reason}
    file(case, peer, ".json").write_text(json.dumps(content, indent=1))


def glob_escape(name):
    """Return a name as a pattern that matches only itself."""
    return name.replace("[", "[[]")


def evaluate(case):
    """Compute effective sample sizes and compare posteriors, of all runners of a case, in one environment."""
    draws, evaluation = list(RESULTS.glob(f"{case}/*.npz")), RESULTS / case / "evaluation.json"
    done = evaluation.stat().st_mtime if evaluation.exists() else 0
    if draws and max(path.stat().st_mtime for path in (*draws, RESULTS / case)) > done:
        interpreter = environments.python("evaluate")
        subprocess.run([interpreter, HERE / "evaluate.py", RESULTS / case], check=True)


if __name__ == "__main__":
    main()
