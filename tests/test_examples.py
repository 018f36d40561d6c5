"""Every example runs, checks its own result, and is one that the table below knows."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
# what an example may import: the standard library, NumPy, rlx, and the extras named `examples`
IMPORTS = {"argparse", "functools", "matplotlib", "numpy", "pathlib", "rlx", "sklearn", "sys", "sysconfig", "time", "tqdm"}
# arguments with which an example takes seconds; it asserts its result with these too
ARGUMENTS: dict[str, dict[str, Any]] = {"chargpt": {"steps": 60}}


def load(path: Path) -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_reaches_what_it_promises(path: Path, tmp_path: Path) -> None:
    arguments = dict(ARGUMENTS.get(path.stem, {}))
    if path.stem == "digits":
        arguments["picture"] = tmp_path / "curve.png"
    result = load(path).main(**arguments)
    assert isinstance(result, float)
    if path.stem == "digits":
        assert result >= 0.97
        assert (tmp_path / "curve.png").stat().st_size > 1000


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_documented(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 140
    assert "What one sees" in (ast.get_docstring(tree) or "")
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree)), "an example checks its own result"
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {name.split(".")[0] for name in names} <= IMPORTS, path.name
