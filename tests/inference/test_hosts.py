"""Two processes of two devices each, over gloo on this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from meshes import FACTORS, FACTORS_ROWS, LOGISTIC, LOGISTIC_ROWS, factors, logistic, mesh_of

import ppl
from ppl import infer
from ppl.inference import hosts

ROOT = Path(__file__).parents[2]
SECONDS = 8  # PPL_HOST_TIMEOUT of the processes that are stopped


def start(mode, folder, *more):
    """Start both processes; returns them, with their output in files."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    environment = {
        **os.environ, "PPL_CACHE": "off", "JAX_PLATFORMS": "cpu",
        "PPL_HOST_TIMEOUT": str(SECONDS if mode == "long" else 200),
    }  # fmt: skip
    processes = []
    for rank in (0, 1):
        command = [sys.executable, "-W", "ignore", ROOT / "tests/inference/host_program.py", str(rank), str(port), mode]
        with open(folder / f"{rank}.log", "w") as out:
            processes.append(subprocess.Popen([*map(str, command), *more], stdout=out, stderr=out, env=environment))
    return processes


def read(folder, rank):
    return (folder / f"{rank}.log").read_text()


@pytest.fixture
def end():
    """End whatever a test leaves running."""
    running = []
    yield running.extend
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def test_two_processes_draw_what_one_draws(tmp_path, end):
    processes = start("draws", tmp_path, str(tmp_path / "draws.npz"))
    end(processes)
    for rank, process in enumerate(processes):
        assert process.wait(timeout=400) == 0, read(tmp_path, rank)
    with np.load(tmp_path / "draws.npz") as found:
        with pytest.warns(ppl.InferenceWarning):
            one = infer.nuts(
                logistic, LOGISTIC, chains=2, draws=10, warmup=0, step_size=0.2, max_depth=5, seed=5, progress=False,
                mesh=mesh_of("4"), sharding=LOGISTIC_ROWS,
            )  # fmt: skip
            latents = infer.hmc(
                factors, FACTORS, chains=1, draws=4, warmup=0, step_size=0.1, num_steps=3, progress=False,
                mesh=mesh_of("4"), sharding=FACTORS_ROWS,
            )  # fmt: skip
        np.testing.assert_allclose(found["w"], one["w"], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found["lp"], one.stats["lp"], rtol=1e-4)
        np.testing.assert_allclose(found["users"], np.asarray(latents["users"]), rtol=1e-3, atol=1e-4)
    assert "ppl:" not in read(tmp_path, 1)  # only the first process prints


@pytest.mark.slow
@pytest.mark.parametrize("mode, word", [("seeds", "other seeds"), ("shapes", "other data shapes")])
def test_processes_with_different_runs_are_refused(tmp_path, end, mode, word):
    processes = start(mode, tmp_path)
    end(processes)
    for rank, process in enumerate(processes):
        assert process.wait(timeout=300) != 0
        assert f"was given {word} than process {rank}" in read(tmp_path, rank)


@pytest.mark.parametrize(
    "victim, kind",
    [
        pytest.param(1, signal.SIGSTOP),
        pytest.param(1, signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(0, signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(0, signal.SIGSTOP, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_dies_or_stops_ends_the_other_in_time(tmp_path, end, victim, kind):
    processes = start("long", tmp_path)
    end(processes)
    deadline = time.monotonic() + 300
    while not all("drawing" in read(tmp_path, rank) for rank in (0, 1)):
        assert time.monotonic() < deadline and all(p.poll() is None for p in processes), read(tmp_path, 0) + read(
            tmp_path, 1
        )
        time.sleep(0.2)
    processes[victim].send_signal(kind)
    began = time.monotonic()
    code = processes[1 - victim].wait(timeout=120)
    assert code != 0 and time.monotonic() - began < 2 * SECONDS + 30
    text = read(tmp_path, 1 - victim)
    if (
        victim == 0 and "leader" in text
    ):  # with the first process the service is gone, and jax itself may be first to end
        return
    assert f"process {victim} was not heard of for {SECONDS} s" in text and code == hosts.EXIT, text


def test_what_a_barrier_says_is_read():
    head = "Barrier timed out. Id: ppl/0/beat/3::0. # of tasks that reached the barrier: 1/3.\nThe first task at the barrier: 0. "
    for names in ("3\n5\n\n", "/job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:5"):
        assert hosts._missing(f"{head}Some timed out task names:\n{names}") == [3, 5]
    assert hosts._missing("") == [0] == hosts._missing(None)
    assert "process 3, process 5 were not heard of" in hosts._lost([3, 5], 60.0)
