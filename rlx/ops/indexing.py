"""Indexing: gathers, scatters and dynamic slices under one name."""

from __future__ import annotations

from rlx.ops.dynamic import dynamic_slice, dynamic_update_slice
from rlx.ops.gather import default_fill, gather
from rlx.ops.index_windows import GatherDimensionNumbers, ScatterDimensionNumbers
from rlx.ops.scatter import scatter, scatter_add, scatter_max, scatter_min, scatter_mul

__all__ = [
    "GatherDimensionNumbers",
    "ScatterDimensionNumbers",
    "default_fill",
    "dynamic_slice",
    "dynamic_update_slice",
    "gather",
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
]
