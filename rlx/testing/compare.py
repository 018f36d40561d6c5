"""Comparison of arrays with tolerances that follow from the dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.types import is_complex, is_float
from rlx.trace.primitive import to_numpy
from rlx.trees import tree

__all__ = ["assert_close", "gradient_tolerance", "tolerance"]

# bytes of a real number -> relative error of a few operations, and of finite differences
_VALUES = {1: 0.15, 2: 2e-3, 4: 2e-6, 8: 1e-13}
_GRADIENTS = {1: 1.0, 2: 5e-2, 4: 2e-3, 8: 1e-5}
_BFLOAT16_FACTOR = 8


def _by_width(table: dict[int, float], dtype: np.dtype) -> float:
    if is_complex(dtype):
        return table[dtype.itemsize // 2]
    if not is_float(dtype):
        return 0.0
    return table[dtype.itemsize] * (_BFLOAT16_FACTOR if dtype.name == "bfloat16" else 1)


def tolerance(dtype: Any) -> float:
    """The expected relative error of a few operations in `dtype`; 0 for integers and bools.

    >>> from rlx.testing import tolerance
    >>> tolerance("float32")
    2e-06
    """
    return _by_width(_VALUES, np.dtype(dtype))


def gradient_tolerance(dtype: Any) -> float:
    """The relative error of a derivative by finite differences in `dtype`.

    >>> import rlx
    >>> rlx.testing.gradient_tolerance("float64") < rlx.testing.gradient_tolerance("float32")
    True
    """
    return _by_width(_GRADIENTS, np.dtype(dtype))


def assert_close(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    check_dtype: bool = True,
    message: str = "",
) -> None:
    """Raise AssertionError unless two trees of arrays agree in structure, shape, dtype and values.

    Args:
      actual, expected: arrays, numbers, or trees of them.
      rtol, atol: default to the `tolerance` of the dtype.
      check_dtype: whether dtypes must be equal.
      message: a prefix of the error message.

    NaN equals NaN, and infinities must be equal.

    >>> import rlx.numpy as jnp
    >>> from rlx.testing import assert_close
    >>> assert_close(jnp.sin(0.0), jnp.float32(0.0))
    """
    leaves, structure = tree.flatten(actual)
    others, other_structure = tree.flatten(expected)
    assert structure == other_structure, f"{message}: {structure} is not {other_structure}"
    for x, y in zip(leaves, others, strict=True):
        _assert_array_close(to_numpy(x), to_numpy(y), rtol, atol, check_dtype, message)


def _assert_array_close(
    x: np.ndarray,
    y: np.ndarray,
    rtol: float | None,
    atol: float | None,
    check_dtype: bool,
    message: str,
) -> None:
    assert x.shape == y.shape, f"{message}: shape {x.shape}, expected {y.shape}"
    if check_dtype:
        assert x.dtype == y.dtype, f"{message}: dtype {x.dtype}, expected {y.dtype}"
    default = max(tolerance(x.dtype), tolerance(y.dtype))
    x, y = (np.asarray(v, np.float64) if is_float(v.dtype) else v for v in (x, y))
    np.testing.assert_allclose(
        x,
        y,
        rtol=default if rtol is None else rtol,
        atol=default if atol is None else atol,
        err_msg=message,
    )
