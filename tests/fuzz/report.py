"""A failure as a program that runs alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .checks import ARRAYS, Failure
from .program import Program, source_lines
from .table import templates

__all__ = ["outcome_apart", "source_of"]

HEADER = """import ml_dtypes
import numpy as np

import rlx
import rlx.nn
import rlx.numpy as jnp
import rlx.ops
import rlx.random
import rlx.scipy.special
from rlx import lax
"""
FOOTER = """expected, found = rlx.tree.leaves(expected), rlx.tree.leaves(found)
assert len(expected) == len(found)
for number, (x, y) in enumerate(zip(expected, found)):
    assert (x.shape, x.dtype) == (y.shape, y.dtype), (x, y)
    if number == {output}:
        wide = "complex128" if jnp.issubdtype(x.dtype, jnp.complexfloating) else "float64"
        x, y = np.asarray(x).astype(wide), np.asarray(y).astype(wide)
        np.testing.assert_allclose(y, x, rtol=0, atol={allowed})
        np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
"""
SIGNS = "        np.testing.assert_array_equal(np.signbit(y.real), np.signbit(x.real))\n"


def source_of(program: Program, failure: Failure) -> str:
    """Python that raises if the failure is still there. Its first lines say what was seen."""
    check = failure.check
    seen = [f"# {check.name} {failure.kind}: {line}" for line in failure.detail.splitlines()[:3]]
    lines = [*seen, HEADER, *source_lines(program, templates()), ARRAYS, "before = [np.array(x) for x in inputs]"]
    lines += [*check.preparation(compiled=False), "with rlx.disable_jit():", f"    expected = {check.expected}"]
    lines += [*map(check.filled, (*check.compiled, f"found = {check.found}"))]
    if failure.kind == "writes":
        lines += ["for x, y in zip(before, inputs):", "    np.testing.assert_array_equal(np.asarray(y), x)"]
        return "\n".join(lines) + "\n"
    difference = failure.difference
    output, allowed = (difference.output, difference.allowed) if difference else (0, "np.inf")
    ending = FOOTER.format(output=output, allowed=allowed)
    return "\n".join(lines) + "\n" + ending + (SIGNS if allowed == 0.0 else "")


def outcome_apart(source: str, seconds: float = 60.0) -> str:
    """What a program does in a process of its own: "passes", "raises", "crashes" or "hangs"."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(source)
        root = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
        try:
            done = subprocess.run(
                [sys.executable, str(path)],
                capture_output=True,
                timeout=seconds,
                env={**os.environ, "PYTHONPATH": paths},
            )
        except subprocess.TimeoutExpired:
            return "hangs"
    return "passes" if done.returncode == 0 else "crashes" if done.returncode < 0 else "raises"
