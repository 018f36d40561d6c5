"""Every example runs and checks its own result; the benchmarks' programs trace."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules import load

import rlx

FOLDER = Path(__file__).resolve().parent.parent / "examples"
# what needs a language model runs in tests/lm
WITH_A_MODEL = {"chat", "finetune", "serve"}
# what needs a library written for JAX runs in tests/compat
WITH_A_LIBRARY = {"equinox_digits", "flax_digits"}
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.stem not in WITH_A_MODEL)
# what an example may import: the standard library, NumPy, rlx, and the extras named `examples`
IMPORTS = {"digits", "quantised_digits", "argparse", "functools", "pathlib", "sys", "sysconfig", "time"}
IMPORTS |= {"matplotlib", "numpy", "rlx", "sklearn", "tempfile", "tqdm", "typing"}
# and those named after a library may import it
LIBRARY_IMPORTS = {"equinox", "flax", "jax", "optax"}
# arguments with which an example takes seconds; it asserts its result with these too
ARGUMENTS: dict[str, dict[str, Any]] = {"chargpt": {"steps": 60}, "splat": {"steps": 100}}
ARGUMENTS["digits_mcu"] = {"widths": (8,)}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_reaches_what_it_promises(path: Path, tmp_path: Path) -> None:
    if path.stem in WITH_A_LIBRARY:
        pytest.skip("make test-compat runs it")
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
    assert len((ast.get_docstring(tree) or "").split()) >= 30, "the docstring says what the example does and prints"
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree)), "an example checks its own result"
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        allowed = IMPORTS | (LIBRARY_IMPORTS if path.stem in WITH_A_LIBRARY else set())
        assert {name.split(".")[0] for name in names} <= allowed, path.name


def test_benchmark_programs_trace() -> None:
    """Every program of the benchmarks still traces, and its plain NumPy form gives the shapes that rlx does."""
    module = load(FOLDER.parent / "benchmarks" / "programs.py")
    names = [program.name for program in module.programs]
    assert len(names) == len(set(names)) >= 20
    for program in module.programs:
        function, arguments = program.build(rlx, np.random.default_rng(0))
        shapes = rlx.tree.leaves(rlx.eval_shape(function, *arguments))
        assert shapes and all(isinstance(leaf, rlx.ShapeDtypeStruct) for leaf in shapes), program.name
        if program.name in ("cumulative_sum", "gather_rows", "segment_sum", "matrix_product"):
            assert program.numpy(*arguments).shape == shapes[0].shape, program.name
