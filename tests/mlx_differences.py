"""Tests that do not hold on the device mlx, each with the reason: with RLX_DEVICE=mlx they are expected to fail."""

from __future__ import annotations

import os

import pytest

__all__ = ["pytest_itemcollected"]

_PLAN = "the CPU's plan of a convolution in blocks is looked at; here it is mx.conv_general or a product of patches"
_ORDER = "MLX's eigenvalues of triangles in float32 come in another order than LAPACK's"
_COPIES = "arrays of NumPy are copied to MLX, which has none over their memory"
_BLOCKS = ("plain", "channels first", "strided", "dilated", "feature groups", "a prime batch", "kernel out first")
_CONVOLUTIONS, _ROUTINES = "ops/test_convolution_blocks.py", "linalg/test_native_routines.py"
DIFFERENCES = {
    **{f"{_CONVOLUTIONS}::test_blocks[{d}-{b}]": _PLAN for d in ("float32", "complex64") for b in _BLOCKS},
    f"{_CONVOLUTIONS}::test_weights_sum_over_blocks": _PLAN,
    f"{_CONVOLUTIONS}::test_what_two_convolutions_read_is_padded_once": _PLAN,
    **{f"{_ROUTINES}::test_other_routines[{batch}-f4]": _ORDER for batch in ("()", "(3,)", "(2, 20)")},
    "ops/test_shape.py::test_memory_is_shared_by_views": _COPIES,
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that is named here has to fail on the device: one that passes is a failure."""
    reason = DIFFERENCES.get(item.nodeid.removeprefix("tests/"))
    if reason is not None and os.environ.get("RLX_DEVICE") == "mlx":
        item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
