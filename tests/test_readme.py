"""What the README and the docstrings show is what happens."""

import doctest
import importlib
import math
import operator
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ppl

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.M | re.S)
MODULES = sorted(m.name for m in pkgutil.walk_packages([str(ROOT / "ppl")], "ppl.") if m.name != "ppl.__main__")


def rows(table):
    """Return the numbers of each row of a printed table, by the name at its start."""
    lines = [line for line in table.splitlines() if line.strip()]
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["mean", "sd"])
    columns, found = lines[head].split(), {}
    for line in lines[head + 1 :]:
        words = line.rsplit(maxsplit=len(columns))
        if len(words) != len(columns) + 1:
            break
        found[words[0]] = dict(zip(columns, map(float, words[1:]), strict=True))
    return lines[head], found


@pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")  # short runs, and divergences by chance
@pytest.mark.false_alarm(1e-9)
def test_the_readme_shows_what_its_code_prints(capsys, tmp_path, monkeypatch):
    """Python blocks run in turn. The numbers shown must be those printed, within seven standard errors of each."""
    monkeypatch.chdir(tmp_path)
    namespace, compared = {}, 0
    for (kind, block), following in zip(BLOCKS, BLOCKS[1:] + [("", "")], strict=True):
        if kind != "python":
            continue
        exec(compile(block, "README.md", "exec"), namespace)
        printed = capsys.readouterr().out
        if following[0] == "text":
            header, shown = rows(following[1])
            header_now, now = rows(printed)
            assert header_now.split() == header.split() and list(now) == list(shown)
            for name in shown:
                error = math.hypot(shown[name]["mcse_mean"], now[name]["mcse_mean"]) + 0.1
                assert abs(shown[name]["mean"] - now[name]["mean"]) < 7 * error, name
            compared += 1
        else:
            assert printed == ""
    assert compared == 1


def test_the_first_example_has_at_most_fifteen_lines():
    first = next(block for kind, block in BLOCKS if kind == "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 15


def test_the_commands_of_the_readme_are_those_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    commands = [line.split("#")[0].split() for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
    assert commands == [["make", "demo"], ["make", "test"]]
    for _, target in commands:
        assert re.search(rf"^{target}:", makefile, re.M)


def coin():
    """The model that examples in docstrings share, as `ppl.infer` shows it."""
    p = yield ppl.Beta(1.0, 1.0, name="p")
    yield ppl.Bernoulli(p, shape=(4,), name="y")


SHARED = {"ppl": ppl, "infer": ppl.infer, "coin": coin, "tosses": {"y": [1, 1, 0, 1]}}


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), extraglobs=SHARED, optionflags=flags)
    assert result.failed == 0


@pytest.mark.parametrize(
    "name",
    [f"infer.{n}" for n in ("hmc", "nuts", "vi", "prior", "predict")]
    + ["condition", "do", "mask", "noncentered", "Scan", "Map", "plan"],
)
def test_the_main_entries_have_examples(name):
    thing = operator.attrgetter(name)(ppl)
    assert doctest.DocTestFinder(recurse=False).find(thing, name)[0].examples


@pytest.mark.slow
def test_the_demo_prints_a_table_and_saves_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    healthy_or_not = ["-W", "error", "-W", "ignore::UserWarning"]  # a divergence by chance is said in the table too
    command = [sys.executable, *healthy_or_not, "-m", "ppl", "--plot", str(tmp_path / "picture.png")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PPL_PROGRESS": "off"},
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    _, table = rows(done.stdout)
    assert {"mu", "tau", "theta[St. Paul's]"} <= set(table)
    assert done.stdout.splitlines()[-1] == f"Picture: {tmp_path / 'picture.png'}"
    assert (tmp_path / "picture.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_the_demo_does_without_matplotlib(tmp_path):
    program = "import sys; sys.modules['matplotlib'] = None; from ppl.__main__ import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "No picture: matplotlib is not installed. Install it with: pip install 'ppl-jax[arviz]'" in done.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppl.InferenceWarning")
def test_a_saved_result_is_summarized_from_the_command_line(tmp_path):
    from ppl.__main__ import schools
    from ppl.data import eight_schools

    posterior = ppl.infer.hmc(ppl.noncentered(schools, "theta"), eight_schools(), progress=False)
    posterior.save(tmp_path / "run.nc")
    command = [sys.executable, "-m", "ppl", "summary", str(tmp_path / "run.nc")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, str(posterior).strip())
