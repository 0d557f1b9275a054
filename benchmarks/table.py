"""The table: medians over repetitions, and their ratio to the best peer's."""

import json
import statistics
from pathlib import Path

COLUMNS = {  # title -> (format, which is better)
    "cold s": (".2f", min),
    "cpu s": (".2f", min),
    "warm s": (".2f", min),
    "second s": (".3f", min),
    "compilations": (".0f", None),
    "compile s": (".2f", min),
    "draw s": (".3f", min),
    "draw cpu s": (".3f", min),
    "min ESS": (".0f", None),
    "ESS/s": (".0f", max),
    "ESS/cpu s": (".0f", max),
    "grad/ESS": (".1f", min),
    "us/leapfrog": (".3f", min),
    "MB": (".0f", min),
    "max z": (".1f", None),
}

EXPLANATION = """\
Medians; in brackets the ratio to the best peer of the column (below 1 is better, for ESS/s above 1).

- cold s, warm s: from process start to printed summary, with empty caches and with the peer's own caches.
- cpu s: processor time of the cold run until then, of all threads and ended child processes; less at the mercy of others
  on the machine than wall time.
- second s, compilations: a second run in the same process, on other data of equal shape, and JAX programs compiled in it.
- compile s: the first run less a run that compiles nothing. draw s: such a run, warm-up and draws;
  draw cpu s: the processor time of the whole call (for NumPyro of its compiled program), without child processes.
- min ESS: smallest rank-normalised bulk ESS (arviz-stats) over all variables. ESS/s: by draw s; ESS/cpu s: by
  draw cpu s.
- grad/ESS: gradients of the kept draws by min ESS. us/leapfrog: draw s by the leapfrogs of all chains, warm-up included.
- MB: peak memory of the process after the first run. max z: distance of the means from those of all other peers, in
  standard errors; `!` from 4.5 on.
"""


def text(results, cases, best=False):
    """Return the whole table in Markdown; with `best`, of the least times instead of medians."""
    statistic = least if best else median
    parts = ["# Side by side\n", EXPLANATION.replace("Medians", "Least times" if best else "Medians")]
    versions = {}
    for case in cases:
        rows = load(results, case)
        if rows:
            parts.append(block(case, rows, versions, statistic))
    parts.append("Versions: " + "; ".join(f"{p}: {v}" for p, v in sorted(versions.items())))
    return "\n".join(parts)


def load(results, case):
    """Return `(content, evaluation)` of each runner of a case that was measured or skipped."""
    path = Path(results) / case / "evaluation.json"
    evaluation = json.loads(path.read_text()) if path.exists() else {}
    contents = [json.loads(p.read_text()) for p in sorted((Path(results) / case).glob("*.json")) if p != path]
    contents.sort(key=lambda c: (not c["peer"].startswith("ppl"), c["peer"]))
    return [(c, evaluation.get(c["peer"].replace("/", "_"), {})) for c in contents]


def block(case, rows, versions, statistic):
    """Return the table of one case, and note versions."""
    numbers = {c["peer"]: row(c["rows"], e, statistic) for c, e in rows if c["rows"]}
    used = [name for name in COLUMNS if any(r.get(name) is not None for r in numbers.values())]
    best = {name: best_peer(name, numbers) for name in used}
    lines = [f"## {case}\n", "| runner | " + " | ".join([*used, "at", "load"]) + " |"]
    lines.append("|---|" + "---:|" * (len(used) + 2))
    for content, _ in rows:
        if content["skipped"]:
            lines.append(f"| {content['peer']} | skipped: {content['skipped'][:150]} |" + " |" * (len(used) + 1))
            continue
        first = content["rows"][0]
        load = statistics.median(r["load"] for r in content["rows"])
        cells = [cell(name, numbers[content["peer"]].get(name), best[name]) for name in used]
        warmup = f" ({first['warmup']})" if "warmup" in first else ""
        lines.append(f"| {content['peer']}{warmup} | " + " | ".join([*cells, first["at"][5:16], f"{load:.1f}"]) + " |")
        versions[content["peer"].split(":")[0]] = ", ".join(f"{k} {v}" for k, v in first["cold"]["versions"].items())
    return "\n".join(lines) + "\n"


def row(repetitions, evaluation, statistic):
    """Return the numbers of a runner by column."""
    cold = [r["cold"] for r in repetitions]
    out = {
        "cold s": statistic(r["to_summary"] for r in cold),
        "warm s": statistic(r["warm"]["to_summary"] for r in repetitions),
        "cpu s": statistic(r.get("cpu") for r in cold),
        "draw cpu s": statistic(r.get("draw_cpu") for r in cold),
        "second s": statistic(r.get("second_run") for r in cold),
        "compilations": median(r.get("second_compilations") for r in cold),
        "compile s": statistic(r.get("compile") for r in cold),
        "draw s": statistic(s for r in cold for s in r.get("seconds", ())),
        "MB": median(max(r["memory_mb"], r["children_mb"]) for r in cold),
        "max z": evaluation.get("z"),
    }
    if all(r.get("steps") and r.get("warmup_steps") is not None for r in cold):
        out["us/leapfrog"] = statistic(
            1e6 * s / (n + r["warmup_steps"]) for r in cold for s, n in zip(r["seconds"], r["steps"], strict=True)
        )
    if evaluation:
        saved = [
            (ess, steps)
            for r, every in zip(cold, evaluation["ess"], strict=True)
            for ess, steps in zip(every, r["steps"], strict=False)  # not all runs are saved
        ]
        out["min ESS"] = median(ess for ess, _ in saved)
        out["ESS/s"] = out["min ESS"] / out["draw s"]
        out["grad/ESS"] = median(steps / ess for ess, steps in saved)
        if out["draw cpu s"]:
            out["ESS/cpu s"] = out["min ESS"] / out["draw cpu s"]
    return out


def median(values):
    """Return the median of those that are there, or None."""
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def least(values):
    """Return the least of those that are there, or None."""
    return min((v for v in values if v is not None), default=None)


def best_peer(name, numbers):
    """Return the best value of a column among the peers, hand-written code left out."""
    better = COLUMNS[name][1]
    values = [
        r[name] for p, r in numbers.items() if p.split(":")[0].split("@")[0] not in ("ppl", "jax") and r.get(name)
    ]
    return better(values) if better and values else None


def cell(name, value, best):
    """Return one entry."""
    if value is None:
        return ""
    written = format(value, COLUMNS[name][0])
    if name == "max z":
        return written + ("!" if value >= 4.5 else "")
    return f"{written} ({value / best:.2f})" if best else written
