"""The scripts that measure meshes and accelerators run, at sizes that a test can afford."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


def run(folder, script, *arguments):
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2", "PPL_CACHE": "off",
        "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{") and line.endswith("}")]


@pytest.mark.slow
def test_the_script_for_an_accelerator_runs_small_on_a_cpu(tmp_path):
    rows = run(tmp_path, "gpu.py", "--small", "--out", str(tmp_path / "table.json"))
    assert [row["row"].split(",")[0] for row in rows] == ["covertype", "mnist", "eight schools"]
    assert json.loads((tmp_path / "table.json").read_text()) == rows and all(row["ppl"] > 0 for row in rows)


@pytest.mark.slow
def test_the_table_of_meshes(tmp_path):
    arguments = "--scale 0.002 --devices 2 --workloads movielens --rounds 1 --draws 1 --steps 2".split()
    (row,) = run(tmp_path, "mesh.py", *arguments)
    assert row["workload"] == "movielens" and min(row[way] for way in ("ppl", "jit", "shard_map")) > 0


def test_hand_written_trajectories_agree():
    """What `benchmarks/mesh.py` compares with is the same computation, written twice."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P
    from meshes import mesh_of

    from benchmarks import mesh as bench

    _, likelihood, data, _, start, rows = bench.workload("movielens", 0.01)
    mesh = mesh_of("4")
    x, laid = (
        {n: jax.device_put(a, NamedSharding(mesh, rows.get(n, P()))) for n, a in part.items()} for part in (start, data)
    )
    p, size = jax.tree.map(jnp.ones_like, x), jnp.float32(1e-3)
    specs = [{n: rows.get(n, P()) for n in part} for part in (start, data)]
    one = bench.by_jit(likelihood, 3)(x, p, laid, size)
    two = bench.by_shard_map(likelihood, 3, mesh, *specs)(x, p, laid, size)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-4)
