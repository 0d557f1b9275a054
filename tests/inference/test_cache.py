"""The compilation cache heals, is shared, stays out of the way, and is the user's to turn off."""

import json
import os
import stat
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time
import jax, jax.numpy as jnp
from ppl.inference import cache

jax.jit(lambda x: x * 3)(1.0)  # compiled before the cache is on: must not hinder it
folder = cache.enable()
assert cache.enable() == folder
misses = []
jax.monitoring.register_event_listener(lambda name, **_: misses.append(name) if name.endswith("cache_misses") else None)
with cache.healing():
    for power in range(int(sys.argv[1])):
        print(float(jax.jit(lambda x: jnp.sum(jnp.sin(x) ** power))(jnp.arange(4.0))))
print(folder, len(misses))
"""


def run(program=PROGRAM, programs=1, **environment):
    """Run a program in a process of its own, with warnings as errors; returns its last line as words."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("PPL_", "JAX_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(programs)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=base | {"JAX_PLATFORMS": "cpu", **environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()[-1].split()


def entries(folder):
    return sorted(Path(folder).glob("*-cache"))


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def test_the_second_process_compiles_nothing(home):
    folder, misses = run(HOME=str(home))
    assert int(misses) > 0 and entries(folder)
    assert Path(folder).is_relative_to(home)
    folder, misses = run(HOME=str(home))
    assert int(misses) == 0


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="modes are POSIX's")
def test_the_folder_belongs_to_its_user_alone(home):
    folder = Path(run(HOME=str(home))[0])
    for path in (folder, folder.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    folder.parent.chmod(0o777)
    run(HOME=str(home))
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
def test_damaged_entries_are_removed_in_silence_and_made_again(home, noted):
    folder = run(HOME=str(home), programs=4)[0]
    if noted:
        run(HOME=str(home))  # this look notes the entries as good
    assert (Path(folder) / "entries.json").exists() == noted
    damages = [
        lambda content, middle: content[:middle],
        lambda content, middle: b"",
        lambda content, middle: bytes(len(content)),
        lambda content, middle: content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
    ]
    before = {path.name: path.read_bytes() for path in entries(folder)}
    assert len(before) >= len(damages)
    for index, (name, content) in enumerate(before.items()):
        damaged = damages[index % len(damages)](content, len(content) // 2)
        (Path(folder) / name).write_bytes(damaged)
    assert int(run(HOME=str(home), programs=4)[1]) > 0  # works, without a word
    assert int(run(HOME=str(home), programs=4)[1]) == 0  # fast, without a word


def test_an_entry_that_breaks_while_the_process_runs_is_removed_in_silence(home):
    folder = run(HOME=str(home))[0]
    late = PROGRAM.replace(
        "misses = []", "[p.write_bytes(p.read_bytes()[:99]) for p in folder.glob('*-cache')]\nmisses = []"
    )
    assert int(run(late, HOME=str(home))[1]) > 0 or not entries(folder)
    run(HOME=str(home))
    assert int(run(HOME=str(home))[1]) == 0


def test_other_warnings_pass_through(home):
    program = """
import warnings
from ppl.inference import cache

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with cache.healing():
        warnings.warn("mine", RuntimeWarning)
        warnings.warn("Error reading persistent compilation cache entry for 'jit_f': gone")
print([str(w.message) for w in caught] == ["mine"])
"""
    assert run(program, HOME=str(home)) == ["True"]


def test_two_processes_share_the_folder_without_a_word(home):
    command = [sys.executable, "-W", "error", "-c", PROGRAM, "6"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PPL_", "JAX_", "XDG_"))}
    environment |= {"HOME": str(home), "JAX_PLATFORMS": "cpu"}
    options = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    both = [subprocess.Popen(command, **options) for _ in range(2)]
    for process in both:
        _, errors = process.communicate()
        assert process.returncode == 0 and errors == "", errors
    assert int(run(programs=6, HOME=str(home))[1]) == 0


def test_no_home_folder_is_no_error(tmp_path):
    assert run(HOME=str(tmp_path / "missing"))[0] == "None"
    assert not (tmp_path / "missing").exists()


def test_a_folder_that_cannot_be_written_is_no_error(home):
    (home / ".cache").write_text("a file where the folder should be")
    assert run(HOME=str(home))[0] == "None"
    if hasattr(os, "getuid") and os.getuid() != 0:
        (home / ".cache").unlink()
        home.chmod(0o500)
        assert run(HOME=str(home))[0] == "None"
        home.chmod(0o700)


def test_the_variable_turns_it_off_or_moves_it(home, tmp_path):
    assert run(HOME=str(home), PPL_CACHE="off")[0] == "None"
    assert Path(run(HOME=str(home), PPL_CACHE=str(tmp_path / "elsewhere"))[0]).is_relative_to(tmp_path / "elsewhere")
    assert not (home / ".cache").exists()


def test_a_cache_that_the_user_chose_is_left_alone(home, tmp_path):
    assert run(HOME=str(home), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine"))[0] == "None"
    assert run(HOME=str(home), JAX_ENABLE_COMPILATION_CACHE="false")[0] == "None"
    program = """
import jax
jax.config.update("jax_compilation_cache_dir", "/tmp/mine")
from ppl.inference import cache
before = dict(jax.config.values)
print(cache.enable(), before == dict(jax.config.values))
"""
    assert run(program, HOME=str(home)) == ["None", "True"]


def test_a_folder_that_grew_too_large_loses_its_oldest_entries(tmp_path, monkeypatch):
    from ppl.inference import cache

    monkeypatch.setattr(cache, "MOST_BYTES", 100)
    for index in range(10):
        path = tmp_path / f"program{index}-cache"
        path.write_bytes(zlib.compress(bytes([index]) * 50))
        os.utime(path, (1000 + index, 1000 + index))
    cache.sweep(tmp_path)
    left = entries(tmp_path)
    assert left and sum(path.stat().st_size for path in left) <= 100
    assert left[-1].name == "program9-cache" and "program0-cache" not in [path.name for path in left]


def test_a_sweep_of_a_thousand_known_entries_is_quick(tmp_path):
    from ppl.inference import cache

    for index in range(1000):
        (tmp_path / f"program{index}-cache").write_bytes(b"\x78\x9c\x03\x00\x00\x00\x00\x01")
    cache.sweep(tmp_path)
    start = time.perf_counter()
    cache.sweep(tmp_path)
    assert time.perf_counter() - start < 0.25
    assert len(json.loads((tmp_path / "entries.json").read_text())) == 1000


def test_seconds_of_compiling_are_remembered(home):
    program = """
from ppl.inference import cache
print(cache.seconds_last_time("hmc"), end=" ")
cache.remember_seconds("hmc", 1.23456)
print(cache.seconds_last_time("hmc"))
"""
    assert run(program, HOME=str(home)) == ["None", "1.235"]
    assert run(program, HOME=str(home)) == ["1.235", "1.235"]
    assert run(program, HOME=str(home), PPL_CACHE="off") == ["None", "None"]
