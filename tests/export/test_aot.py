"""rlx.aot: bundles under the names of ahead-of-time compilers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.errors import FileFormatError


def scaled(weights: Any, x: Any) -> Any:
    return jnp.tanh(x @ weights["w"]) + weights["b"]


WEIGHTS = {"w": np.full((3, 2), 0.5, np.float32), "b": np.arange(2, dtype=np.float32)}


def test_parameters_are_saved_with_the_function(tmp_path: Path) -> None:
    """The file's function has the name, and takes what follows; sizes may be open, and derivatives are there."""
    (rows,) = rlx.export.symbolic_shape("rows")
    path = tmp_path / "scaled.rlx"
    written = rlx.aot.save(scaled, rlx.ShapeDtypeStruct((rows, 3), "float32"), path=path, params=WEIGHTS, vjp_order=1)
    for function in (written, rlx.aot.load(path), rlx.aot.load(path, trust=True)):
        assert repr(function) == "<Exported scaled: (float32[rows,3]) -> (float32[rows,2])>"
        for n in (1, 5):
            x = np.ones((n, 3), np.float32)
            np.testing.assert_allclose(function(x), scaled(WEIGHTS, x), rtol=1e-6)
        slope = rlx.grad(lambda x, f=function: f(x).sum())(x)
        np.testing.assert_allclose(slope, rlx.grad(lambda x: scaled(WEIGHTS, x).sum())(x), rtol=1e-6)


def test_parameters_may_stay_arguments(tmp_path: Path) -> None:
    path = tmp_path / "scaled.rlx"
    x = np.ones((1, 3), np.float32)
    rlx.aot.save(scaled, WEIGHTS, x, path=path, object_code=False)
    np.testing.assert_allclose(rlx.aot.load(path)(WEIGHTS, x), scaled(WEIGHTS, x), rtol=1e-6)
    assert b"native/" not in path.read_bytes()
    rlx.aot.save(scaled, WEIGHTS, x, path=path)
    assert b"native/" in path.read_bytes()


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "not.rlx"
    path.write_bytes(b"not a bundle")
    with pytest.raises(FileFormatError):
        rlx.aot.load(path)
