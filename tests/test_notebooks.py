"""Notebooks run from top to bottom without an error or a warning, and are stored without outputs."""

import os
import re
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

SHOWN = {
    "02_handlers": {"InferenceWarning"},  # a tempered posterior diverges now and then
    "04_distributed_mnist": {"InferenceWarning"},  # of a run that is short here
}


def read(path):
    import nbformat

    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # of the machinery that runs notebooks; those of cells land in their outputs
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import nbclient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("PPL_SMALL", "1")
    if "PPL_DATA" not in os.environ:
        monkeypatch.setenv("PPL_DATA", str(tmp_path))  # nothing is downloaded: stand-ins are used
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = read(path)
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.create_kernel_manager()
    client.km.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                assert "Traceback" not in output.text and "Error" not in output.text
                warned = set(re.findall(r"\b(\w*Warning)\b", output.text))
                assert warned <= SHOWN.get(path.stem, set()), output.text
