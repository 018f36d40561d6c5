"""Run notebooks in clean kernels, and keep what they print and draw: python notebooks/run.py [NAME ...]."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).resolve().parent


def run(path: Path, kernel: str = "python3", timeout: int = 120) -> nbformat.NotebookNode:
    """The notebook at `path` with the outputs of a run in a fresh kernel; nothing is written."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    options = {"record_timing": False, "coalesce_streams": True}
    nbclient.NotebookClient(notebook, timeout=timeout, kernel_name=kernel, **options).execute(cwd=str(FOLDER))
    return notebook


def main(names: list[str]) -> None:
    """Run the notebooks of these names, or all, and write them back with their outputs."""
    for path in [FOLDER / f"{Path(name).stem}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        start = time.perf_counter()
        nbformat.write(run(path), path)
        print(f"{path.stem}: {time.perf_counter() - start:.1f} s, {path.stat().st_size // 1024} KiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
