"""One runner on one case, in a process of its own; the command starts it and reads the JSON that it leaves.

python -m benchmarks.runner '{"case": "radon", "peer": "numpyro", ...}'
"""

import importlib
import importlib.metadata
import json
import logging
import os
import resource
import statistics
import sys
import time
import types
from pathlib import Path

from benchmarks import cases

COMPILING = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")
SAVED = 3  # runs whose draws are saved
WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def main():
    """Run once and, unless only the time to a summary is asked for, with new data, and repeatedly without compiling."""
    options = types.SimpleNamespace(**json.loads(sys.argv[1]))
    folder = Path(options.folder)
    case = cases.load(options.case)
    peer, _, options.variant = options.peer.partition(":")
    if getattr(case, "X64", False):
        os.environ["JAX_ENABLE_X64"] = "1"
    run = start(case, peer, options)
    compiled = count_compilations()
    data = case.data(0)
    began = time.perf_counter()
    outcome = run(data, 0)
    outcome["print"]()
    sys.stdout.flush()
    row = {
        "to_summary": time.time() - options.began,
        "cpu": sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime for who in WHO),
        "first_run": time.perf_counter() - began,
        "compilations": compiled["backend_compile_duration"][0],
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "children_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }
    if not options.quick:
        row |= second(case, run, compiled) | repeated(run, data, outcome, options, folder)
        row["compile"] = row["first_run"] - statistics.median(row["seconds"])
    row["versions"] = versions(peer)
    (folder / "row.json").write_text(json.dumps(row))


def start(case, peer, options):
    """Return the function that draws."""
    if options.peer in getattr(case, "RUNNERS", ()):
        return case.RUNNERS[options.peer](options)
    return importlib.import_module(f"benchmarks.peers.{peer}").sampler(case, options)


def second(case, run, compiled):
    """Time a second run, on other data of equal shape."""
    data, before = case.data(1), compiled["backend_compile_duration"][0]
    began = time.perf_counter()
    run(data, 1)["print"]()
    took = time.perf_counter() - began
    return {"second_run": took, "second_compilations": compiled["backend_compile_duration"][0] - before}


def repeated(run, data, outcome, options, folder):
    """Draw again from the first data, several times, and save the draws of some."""
    import numpy as np

    rows, kept, began = [], [], time.perf_counter()
    cpus = []
    for seed in range(2, 2 + options.repeats):
        before, cpu = time.perf_counter(), time.process_time()
        outcome = run(data, seed)
        took, cpu = time.perf_counter() - before, time.process_time() - cpu
        cpus.append(outcome.get("cpu") or cpu)
        rows.append((outcome.get("seconds") or took, outcome["steps"]))
        kept += [outcome["draws"]] * (len(kept) < SAVED)
        if time.perf_counter() - began > options.most_seconds:
            break
    warmup = outcome["warmup_steps"]
    seconds, steps = zip(*rows, strict=True)
    if options.save and kept[0]:
        np.savez(folder / "draws.npz", **{n: np.stack([draws[n] for draws in kept]) for n in kept[0]})
    warmup = warmup() if callable(warmup) else warmup
    return {"seconds": seconds, "steps": steps, "warmup_steps": warmup, "draw_cpu": min(cpus)}


def count_compilations():
    """Return a dict, kept up to date: how often JAX traced, lowered and compiled, and the seconds of it."""
    found = {name: [0, 0.0] for name in COMPILING}
    if "jax" in sys.modules:
        import jax.monitoring

        def listen(event, seconds, **_):
            for name in found:
                if event.endswith(name):
                    found[name][0] += 1
                    found[name][1] += seconds

        jax.monitoring.register_event_duration_secs_listener(listen)
    return found


def versions(peer):
    """Return the versions of Python and of the packages that the peer names."""
    names = getattr(sys.modules.get(f"benchmarks.peers.{peer}"), "VERSIONS", ("jax",))
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "?"
    return found


if __name__ == "__main__":
    logging.captureWarnings(True)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
