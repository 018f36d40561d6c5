"""Notebooks run from top to bottom in a fresh kernel, and are committed with the outputs of such a run."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from needs import LM

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
RUNS = [pytest.param(path, marks=LM if path.stem == "language_model" else ()) for path in NOTEBOOKS]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a kernel that is this very interpreter, whatever kernels the machine has."""
    folder = tmp_path / "kernels" / "rlx-test"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "rlx", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", os.pathsep.join([str(tmp_path), os.environ.get("JUPYTER_PATH", "")]))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", tempfile.mkdtemp(dir=tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    monkeypatch.delenv("RLX_CHECK", raising=False)  # notebooks show what users see; the verifier has its own tests
    return "rlx-test"


def test_there_are_fourteen_notebooks() -> None:
    assert len(NOTEBOOKS) == 14


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, kernel: str) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name=kernel).execute(cwd=str(FOLDER))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_as_it_ran(path: Path) -> None:
    """Every cell once, from top to bottom, without errors and without the paths of somebody's machine."""
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run notebooks/run.py"
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs), "a notebook shows a picture"
    text = "".join("".join(o.get("text", [])) + "".join(o.get("data", {}).get("text/plain", [])) for o in outputs)
    assert not re.search(r"/(home|tmp|root|Users|work)/", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_takes_a_quarter_of_an_hour_at_most_to_read(path: Path) -> None:
    """200 words of prose, or 20 lines of code, are a minute."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    words = sum(len("".join(c["source"]).split()) for c in cells if c["cell_type"] == "markdown")
    lines = sum(len("".join(c["source"]).splitlines()) for c in cells if c["cell_type"] == "code")
    assert 4 <= words / 200 + lines / 20 <= 15
