"""The progress line says the right thing in a terminal and in a log file, and nothing when asked to be silent."""

import io
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ppl.inference import progress
from ppl.inference.progress import Progress, _duration

ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.delenv("PPL_PROGRESS", raising=False)
    return clock


def run(file, clock, seconds=20.0, chains=2, compiling=True, note="", **options):
    """Report a run of 100 transitions a chain, 40 of them warm-up, evenly over some seconds."""
    line = Progress(100, 40, chains, file=file, **options)
    if compiling:
        line.compiling(2.0)
    for iteration in range(0, 101):
        for chain in range(chains):
            line.update(chain, iteration, iteration // 50, 0.5, 7 * iteration)
        clock.now += seconds / 100
    line.close(note)
    return file.getvalue()


def test_a_terminal_sees_one_line_that_changes(clock):
    text = run(Terminal(), clock)
    assert text.count("\n") == 1 and text.endswith("\n")
    lines = [line.strip() for line in text.split("\r")]
    assert "compiling, about 2.0 s last time" in lines
    assert any(line.startswith("warm-up |") for line in lines) and any(line.startswith("draws |") for line in lines)
    middle = next(line for line in lines if " 70% " in line)
    assert re.search(
        r" 1\d\d/200, 2 divergences, step 0.5, 7.0 gradients a draw, [\d.]+ draws/s, [56]\.\d s left, slowest .+%$",
        middle,
    )
    assert lines[-1].startswith(
        "200 draws (warm-up included) of 2 chains in 20 s, 0.0 s of it compiling, 4 divergences"
    )


def test_a_log_file_gets_at_most_a_line_for_each_tenth(clock):
    lines = run(io.StringIO(), clock).splitlines()
    assert 7 <= len(lines) <= 11
    assert all(line.startswith("ppl: ") and line.isprintable() for line in lines)
    assert re.match(r"ppl: draws 70% \(14\d/200\), 2 divergences, step 0.5, ", lines[-4])
    assert lines[-1].startswith("ppl: 200 draws")


def test_a_log_file_does_not_hear_of_a_short_run(clock):
    assert run(io.StringIO(), clock, seconds=2.0) == ""


@pytest.mark.parametrize("file", [Terminal, io.StringIO])
def test_it_can_be_silent(clock, monkeypatch, file):
    assert run(file(), clock, enabled=False) == ""
    monkeypatch.setenv("PPL_PROGRESS", "off")
    assert run(file(), clock, enabled=True) == ""


def test_a_note_ends_the_line(clock):
    assert run(Terminal(), clock, note="interrupted").strip().endswith("4 divergences, interrupted")


def test_one_chain_is_no_slowest_chain(clock):
    text = run(Terminal(), clock, chains=1, compiling=False)
    assert "slowest" not in text and "of 1 chain in" in text and "compiling" not in text


def test_the_slowest_chain_shows(clock):
    file = Terminal()
    line = Progress(100, 40, 3, file=file)
    for chain, iteration in enumerate([90, 30, 60]):
        clock.now += 1
        line.update(chain, iteration, 0, 0.1, 10)
    line.close()
    assert "warm-up |" in file.getvalue() and "slowest chain 30%" in file.getvalue()


def test_the_line_changes_at_most_ten_times_a_second(clock):
    text = run(Terminal(), clock, seconds=1.0)
    assert text.count("\r") <= 3 + 11 + 2


def test_a_log_file_hears_within_a_second_that_it_compiles():
    file = io.StringIO()
    line = Progress(100, 40, 2, file=file)
    line.compiling(4.2)
    time.sleep(1.0)
    assert file.getvalue() == "ppl: compiling, about 4.2 s last time\n"
    line.close()


def test_a_terminal_hears_at_once_that_it_compiles_and_for_how_long():
    file = Terminal()
    line = Progress(100, 40, 2, file=file)
    line.compiling()
    assert "compiling" in file.getvalue()
    time.sleep(1.3)
    assert "compiling (1 s so far)" in file.getvalue()
    line.close()
    time.sleep(0.1)
    assert not any(t.name == "ppl-progress" for t in threading.enumerate())


def test_a_report_costs_less_than_a_hundredth_of_a_fast_run():
    """The shortest chunk takes 50 ms and reports once: half a millisecond at most."""
    line = Progress(100_000, 0, 4, file=Terminal())
    line.update(0, 0, 0, 0.1, 0)
    start = time.perf_counter()
    for iteration in range(1000):
        line.update(iteration % 4, iteration, 0, 0.1, iteration)
    assert (time.perf_counter() - start) / 1000 < 0.0005
    line.close()


def test_many_threads_may_report_at_once():
    file = Terminal()
    line = Progress(1000, 0, 8, file=file)

    def chain(index):
        for iteration in range(0, 1001, 10):
            line.update(index, iteration, 0, 0.1, iteration)

    threads = [threading.Thread(target=chain, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    line.close()
    assert "8,000 draws (warm-up included) of 8 chains" in file.getvalue()


def test_a_closed_log_file_does_not_end_the_run(clock):
    file = io.StringIO()
    line = Progress(100, 40, 1, file=file)
    file.close()
    clock.now += 10
    line.update(0, 50, 0, 0.1, 10)
    line.close()


def test_tqdm_is_imported_only_when_shown():
    program = """
import sys
from ppl.inference.progress import Progress
line = Progress(10, 5, 1)
line.compiling(); line.update(0, 5, 0, 0.1, 3); line.close()
assert "tqdm" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_terminal_of_its_own_kind_sees_the_line():
    """A real pseudo-terminal, not a stand-in."""
    pty = pytest.importorskip("pty", reason="pseudo-terminals are POSIX's")
    program = """
from ppl.inference.progress import Progress
line = Progress(10, 5, 1)
line.compiling()
for i in range(11):
    line.update(0, i, 0, 0.1, 3 * i)
line.close()
"""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-c", program], stdout=theirs, stderr=theirs, stdin=theirs, cwd=ROOT)
        text = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    assert "compiling" in text and "10 draws (warm-up included) of 1 chain in" in text


@pytest.mark.parametrize(
    "seconds, words",
    [(0.04, "0.0 s"), (9.9, "9.9 s"), (9.99, "10 s"), (59.0, "59 s"), (61.0, "1 min 01 s"), (7300.0, "2 h 01 min")],
)
def test_times_read_well(seconds, words):
    assert _duration(seconds) == words
