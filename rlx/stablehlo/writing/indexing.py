"""Gathers, scatters and slices at computed positions, as StableHLO."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.ir.program import Equation
from rlx.ir.types import dtype_kind, is_key
from rlx.stablehlo.text import Value, array_attribute
from rlx.stablehlo.writing.reductions import limits_of
from rlx.stablehlo.writing.writer import BOOL, FORMAT, INT64, Rule, Values, Writer, shape_of
from rlx.standalone.spelling import entering, refused

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


def _fits(w: Writer, indices: Value, limits: Sequence[int]) -> Value:
    """For each index, whether a window that starts there is inside the operand."""
    most = w.constant(np.asarray(limits), indices.dtype)
    zero = w.spread(w.constant(0, indices.dtype), indices.shape)
    inside = w.op(
        "stablehlo.and",
        [w.compare("GE", indices, zero), w.compare("LE", indices, w.spread(most, indices.shape))],
        indices.shape,
        BOOL,
    )
    return w.reduce("and", inside, [len(indices.shape) - 1], True)


def _limit(operand: Value, axis: int, size: int, dtype: np.dtype) -> int:
    return min(operand.shape[axis] - size, limits_of(dtype)[1])


@rule("gather")
def _gather(w: Writer, e: Equation, xs: Values) -> Values:
    operand, indices = xs
    p, n = e.params, e.params["dimension_numbers"]
    shape, dtype = shape_of(e.outputs[0].type)
    if is_key(e.inputs[0].type.dtype):
        raise refused(e, FORMAT, "its elements are random keys")
    numbers = (
        f"#stablehlo.gather<offset_dims = {[*n.offset_dims]}, collapsed_slice_dims = {[*n.collapsed_slice_dims]},"
        f" operand_batching_dims = {[*n.operand_batching_dims]},"
        f" start_indices_batching_dims = {[*n.start_indices_batching_dims]},"
        f" start_index_map = {[*n.start_index_map]}, index_vector_dim = {len(indices.shape) - 1}>"
    )
    found = w.op(
        "stablehlo.gather",
        xs,
        shape,
        dtype,
        dimension_numbers=numbers,
        slice_sizes=array_attribute(p["slice_sizes"]),
        indices_are_sorted="false",
    )
    if p["mode"] != "fill":
        return [found]
    fill = p["fill_value"]
    if fill is None:
        kind = dtype_kind(dtype)
        fill = np.nan if kind in "fc" else True if kind == "b" else limits_of(dtype)[0 if kind == "i" else 1]
    limits = [_limit(operand, a, p["slice_sizes"][a], indices.dtype) for a in n.start_index_map]
    inside = _fits(w, indices, limits)
    batch = [a for a in range(len(shape)) if a not in n.offset_dims]
    return [w.select(w.broadcast(inside, shape, batch), found, w.constant(fill, dtype))]


_SCATTERS = {
    "scatter": "",
    "scatter_add": "add",
    "scatter_mul": "multiply",
    "scatter_max": "maximum",
    "scatter_min": "minimum",
}


@rule(*_SCATTERS)
def _scatter(w: Writer, e: Equation, xs: Values) -> Values:
    operand, indices, updates = xs
    p, n = e.params, e.params["dimension_numbers"]
    if is_key(e.inputs[0].type.dtype):
        raise refused(e, FORMAT, "its elements are random keys")
    if p["mode"] == "clip":
        inner = iter(n.update_window_dims)
        skipped = (*n.inserted_window_dims, *n.operand_batching_dims)
        sizes = [1 if a in skipped else updates.shape[next(inner)] for a in range(len(operand.shape))]
        limits = [_limit(operand, a, sizes[a], indices.dtype) for a in n.scatter_dims_to_operand_dims]
        most = w.spread(w.constant(np.asarray(limits), indices.dtype), indices.shape)
        low = w.spread(w.constant(0, indices.dtype), indices.shape)
        indices = w.op("stablehlo.clamp", [low, indices, most], indices.shape, indices.dtype)
    kind = _SCATTERS[e.primitive.name]
    numbers = (
        f"#stablehlo.scatter<update_window_dims = {[*n.update_window_dims]},"
        f" inserted_window_dims = {[*n.inserted_window_dims]}, input_batching_dims = {[*n.operand_batching_dims]},"
        f" scatter_indices_batching_dims = {[*n.scatter_indices_batching_dims]},"
        f" scatter_dims_to_operand_dims = {[*n.scatter_dims_to_operand_dims]},"
        f" index_vector_dim = {len(indices.shape) - 1}>"
    )
    scalar = ((), operand.dtype)

    def body(a: Values) -> Values:
        return [w.op(f"stablehlo.{kind}", a, (), operand.dtype)] if kind else [a[1]]

    return w.with_regions(
        "stablehlo.scatter",
        [operand, indices, updates],
        [(operand.shape, operand.dtype)],
        [([scalar, scalar], body)],
        scatter_dimension_numbers=numbers,
        indices_are_sorted="false",
        unique_indices="false",
    )


@rule("dynamic_slice")
def _dynamic_slice(w: Writer, e: Equation, xs: Values) -> Values:
    sizes = e.params["sizes"]
    return [w.op("stablehlo.dynamic_slice", _starts(w, xs, 1), sizes, xs[0].dtype, slice_sizes=array_attribute(sizes))]


@rule("dynamic_update_slice")
def _dynamic_update(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.op("stablehlo.dynamic_update_slice", _starts(w, xs, 2), xs[0].shape, xs[0].dtype)]


def _starts(w: Writer, xs: Values, count: int) -> Values:
    """Operands with all starts in one dtype."""
    return [*xs[:count], *(w.convert(x, INT64) for x in xs[count:])]
