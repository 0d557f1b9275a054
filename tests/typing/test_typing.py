"""Type checkers accept a use of every public name, and find ten wrong uses."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHECKERS = {
    "mypy": ["-m", "mypy", "--no-error-summary", "--hide-error-context", "--config-file", "setup.cfg", "--cache-dir"],
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable],
}


@pytest.fixture(scope="module", params=sorted(CHECKERS))
def check(request, tmp_path_factory):
    """Return a function from a file to the lines at which this checker finds errors."""

    def lines(name):
        command = [sys.executable, *CHECKERS[request.param]]
        if request.param == "mypy":
            command.append(str(tmp_path_factory.getbasetemp() / "mypy"))
        done = subprocess.run([*command, str(HERE / name)], capture_output=True, text=True, cwd=ROOT)
        found = re.findall(rf"{re.escape(name)}:(\d+)(?::\d+)?(?: -|:) error: (.*)", done.stdout)
        assert found or done.returncode == 0, done.stdout + done.stderr
        return {int(line): text for line, text in found}

    return lines


@pytest.mark.slow
def test_every_public_name_is_accepted(check):
    assert check("public_api.py") == {}


@pytest.mark.slow
def test_wrong_uses_are_found_and_nothing_else(check):
    marked = {n for n, line in enumerate((HERE / "wrong_uses.py").read_text().splitlines(), 1) if "# wrong: " in line}
    assert len(marked) == 10
    assert set(check("wrong_uses.py")) == marked


def test_the_file_uses_every_public_name():
    used = set()
    for node in ast.walk(ast.parse((HERE / "public_api.py").read_text())):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
    names = (ROOT / "tests" / "golden" / "public_names.txt").read_text().split()
    missing = [n for n in names if n.rsplit(".", 1)[1] not in used and not n.startswith("ppl.supports.")]
    assert missing == []


def test_public_functions_are_fully_annotated():
    import inspect

    import ppl

    for module in (ppl, ppl.infer, ppl.data):
        for name, thing in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(thing):
                continue
            signature = inspect.signature(thing)
            missing = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
            assert not missing, f"{name}: {missing}"
            assert signature.return_annotation is not signature.empty, name
