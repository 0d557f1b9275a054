"""Imports point down the list only, so that every file can be read knowing the ones below it.

ppl  >  inference drivers  >  tracing  >  random_variable  >  supports, sharding  >  errors
        inference kernels  >  jax and each other (they take a log density)
        guides             >  drivers, distributions (they are programs)
        distributions      >  random_variable, supports    (tracing never imports distributions)
        data               >  errors
"""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "ppl").rglob("*.py"))
KERNELS = ("hmc", "nuts", "metropolis", "whitening", "warmup", "chunk", "diagnostics")
GUIDES = ("guides", "flow_guides", "pathfinder", "neutra")
MAY_IMPORT = {
    "errors": set(),
    "version": set(),
    "supports": {"supports", "errors"},
    "sharding": {"errors"},
    "random_variable": {"supports", "sharding", "errors"},
    "distributions": {"distributions", "random_variable", "supports", "errors"},
    "tracing": {"tracing", "random_variable", "supports", "sharding", "errors"},
    "kernels": {"kernels"},
    "data": {"data", "errors"},
    "inference": {
        "inference", "kernels", "tracing", "random_variable", "supports", "sharding", "data", "errors", "version",
    },
    "guides": {
        "guides", "inference", "tracing", "distributions", "random_variable", "supports", "errors",
    },
    "ppl": {
        "ppl", "guides", "inference", "kernels", "tracing", "random_variable", "distributions", "supports", "sharding", "data",
        "errors", "version",
    },
}  # fmt: skip
LIBRARIES = {"jax", "jaxlib", "numpy", "scipy", "optax", "tqdm"}
LATE = {"arviz_base", "arviz_stats", "arviz_plots", "matplotlib", "xarray", "pandas", "zarr", "IPython", "zstandard"}


def layer(module):
    """Return the layer of a dotted module name."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in ("__main__", "infer"):
        return "ppl"
    if parts[1] == "inference" and len(parts) > 2 and parts[2] in KERNELS:
        return "kernels"
    if parts[1] == "inference" and len(parts) > 2 and parts[2] in GUIDES:
        return "guides"
    return parts[1]


def modules(node):
    """Return the modules that an import statement names, as far down as they are files."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, "imports are absolute"
    below = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name if is_file(name) else node.module for name in below]


def is_file(module):
    path = ROOT.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for module in modules(node):
                yield module, node.lineno, id(node) in top


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_down(path):
    here = layer(name_of(path))
    assert here in MAY_IMPORT, f"{name_of(path)} has no place in the list of layers"
    for module, line, _ in imports(path):
        if module.split(".")[0] == "ppl":
            assert layer(module) in MAY_IMPORT[here], f"{path}:{line}: {here} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_the_libraries_of_the_core_are_imported_at_the_top(path):
    for module, line, top in imports(path):
        first = module.split(".")[0]
        allowed = LIBRARIES | {"ppl"} | set(sys.stdlib_module_names) | (set() if top else LATE | {"compression"})
        assert first in allowed, f"{path}:{line}: imports {module}"


def test_kernels_know_no_driver_and_drivers_exist():
    names = {path.stem for path in (ROOT / "ppl" / "inference").glob("*.py")}
    assert set(KERNELS) <= names and {"chains", "posterior"} <= names
