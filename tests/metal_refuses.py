"""With RLX_TEST_METAL=1, mlx[cpu] says that it computes on a GPU, and refuses what MLX's Metal refuses.

Elementary functions are the processor's all the same, and their precision is not the GPU's: run tests of indices.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["pytest_configure"]


def _refuse(dtype: Any) -> None:
    if dtype.size == 8:
        raise RuntimeError(f"[Scatter::eval_gpu] Does not support {str(dtype).removeprefix('mlx.core.')}")


def _indexes_by_arrays(place: Any, array: type) -> bool:
    return any(isinstance(part, array) for part in (place if isinstance(place, tuple) else (place,)))


def _refusing(method: Any, allowed: Any) -> Any:
    def combine(self: Any, value: Any) -> Any:
        result = method(self, value)
        if allowed is None or result.dtype != allowed:
            _refuse(result.dtype)
        return result

    return combine


def pytest_configure() -> None:
    """Before any test imports the device."""
    if os.environ.get("RLX_TEST_METAL") != "1":
        return
    import mlx.core as mx

    from rlx.backends import mlx as backend
    from rlx.backends.mlx import library

    units = tuple(library.MlxDevice(name, library.UNITS[0].stream) for name in ("gpu", "cpu"))
    backend.UNITS = library.UNITS = units
    library._Current.unit = units[0]

    assign = mx.array.__setitem__

    def set_items(self: Any, place: Any, value: Any) -> None:
        if _indexes_by_arrays(place, mx.array):
            _refuse(self.dtype)
        assign(self, place, value)

    mx.array.__setitem__ = set_items
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
        setattr(mx.ArrayAt, name, _refusing(getattr(mx.ArrayAt, name), mx.complex64 if name == "add" else None))
