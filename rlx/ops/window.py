"""Windows: reductions over sliding windows and their derivatives (pooling)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError, not_linear
from rlx.ir.index_sets import Along, Elements, Reading
from rlx.ir.scalar import neutral
from rlx.ir.types import TensorType, compute_dtype, dtype_kind, is_narrow
from rlx.ops.families import full_like, to_front
from rlx.ops.overlap import overlap_add, windows
from rlx.ops.sample_dtypes import NUMBERS, ORDERED, typed_samples
from rlx.ops.shape import AxisMap, broadcast_in_dim, pad
from rlx.ops.window_select import select_and_gather_add, select_and_scatter_add
from rlx.ops.window_spec import WindowSpec, lowered_windows, numpy_windows, window_numbers
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, primitive, registry, type_of

__all__ = [
    "general_windows",
    "overlap_add",
    "reduce_window",
    "select_and_gather_add",
    "select_and_scatter_add",
    "windows",
]

_KINDS = {"add": "iufc", "mul": "iufc", "max": "biuf", "min": "biuf"}
_UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
_SELECTS = {"max": ">=", "min": "<="}


@primitive
class reduce_window(Primitive):
    """Sum, product, maximum or minimum over each window; padding counts as the identity."""

    def type(self, x: TensorType, *, op: str, **fields: Any) -> TensorType:
        if dtype_kind(x.dtype) not in _KINDS[op]:
            raise DtypeError(
                f"reduce_window with {op} does not take {x.dtype.name}.",
                "Convert the operand with .astype(...) first.",
            )
        spec = WindowSpec(**fields)
        spec.check(self.name, x.shape)
        return TensorType(spec.positions(x.shape), x.dtype, x.weak)

    def axis_map(self, x: TensorType, *, op: str, **fields: Any) -> AxisMap:
        return (WindowSpec(**fields).axis_map(),)

    def reads(self, known: Any, x: TensorType, *, op: str, **fields: Any) -> list[Reading | None]:
        """The elements of the window."""
        spec = WindowSpec(**fields)
        return [Elements(lambda: window_numbers(x.shape, spec), Along(spec.axis_map()))]

    def reference(self, x: np.ndarray, *, op: str, **fields: Any) -> np.ndarray:
        spec = WindowSpec(**fields)
        working = compute_dtype(x.dtype) if is_narrow(x.dtype) else x.dtype
        start = neutral(op, x.dtype)
        view = numpy_windows(x.astype(working, copy=False), spec, start)
        out = _UFUNCS[op].reduce(view, axis=spec.offsets, initial=start, dtype=working)
        return np.asarray(out).astype(x.dtype, copy=False)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, op: str, **fields: Any) -> tuple[Any, Any]:
        (x,), (tangent,) = primals, tangents
        out = self.bind(x, op=op, **fields)
        if isinstance(tangent, Zero):
            return out, Zero(type_of(out))
        if op == "add":
            return out, self.bind(tangent, op=op, **fields)
        if op in _SELECTS:
            return out, select_and_gather_add(tangent, x, select=_SELECTS[op], **fields)
        spec = WindowSpec(**fields)
        factors, moved = windows_of(x, spec, 1), windows_of(tangent, spec, 0)
        _, product = registry["reduce_prod"].jvp((factors,), (moved,), axes=spec.offsets)
        return out, product

    def transpose(self, cotangent: Any, x: Any, *, op: str, **fields: Any) -> tuple[Any, ...]:
        if op != "add":
            raise not_linear(f"reduce_window with {op}")
        if isinstance(cotangent, Zero) or not isinstance(x, Linear):
            return (Zero(x.type) if isinstance(x, Linear) else None,)
        spec = WindowSpec(**fields)
        positions = type_of(cotangent).shape
        shape, dims = positions + spec.window, tuple(range(len(positions)))
        spread = broadcast_in_dim(cotangent, shape=shape, dims=dims)
        padded = spec.padded_shape(x.type.shape)
        ct = overlap_add(spread, shape=padded, strides=spec.strides, dilation=spec.window_dilation)
        zero = np.zeros((), type_of(ct).dtype)
        return pad.transpose(ct, x, zero, config=spec.config())[:1]

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, op: str, **fields: Any
    ) -> tuple[Any, int]:
        x = to_front(inputs[0], dims[0], size)
        return self.bind(x, op=op, **WindowSpec(**fields).batched().params()), 0

    def lower(self, k: Any, x: Any, *, op: str, **fields: Any) -> Any:
        spec = WindowSpec(**fields)
        view = lowered_windows(k, x, spec, neutral(op, x.type.dtype))
        return k.reduce(op, view, spec.offsets)

    def samples(self) -> Iterator[Sample]:
        x = np.sin(np.arange(1, 31, dtype=np.float64) * 1.7).reshape(5, 6)
        plain = WindowSpec((2, 3), (2, 3), ((0, 0), (0, 0)), (1, 1), (1, 1))
        overlapping = WindowSpec((3, 2), (2, 1), ((1, 1), (0, 2)), (1, 1), (1, 1))
        spread = WindowSpec((2, 2), (1, 2), ((1, -1), (0, 1)), (2, 1), (1, 2))
        empty = WindowSpec((7, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1))
        for op in _UFUNCS:
            yield from typed_samples(
                NUMBERS if op in ("add", "mul") else ORDERED,
                *(([x], {"op": op, **spec.params()}) for spec in (overlapping, plain, spread, empty)),
            )


def windows_of(x: Any, spec: WindowSpec, fill: Any) -> Any:
    """An array with axes (*positions, *offsets) of `x` padded with `fill`."""
    if spec.pads:
        x = pad(x, full_like(type_of(x).update(shape=()), fill), config=spec.config())
    return windows(x, window=spec.window, strides=spec.strides, dilation=spec.window_dilation)


def general_windows(operands: Sequence[Any], inits: Sequence[Any], spec: WindowSpec) -> list[Any]:
    """The windows of arrays that are reduced together; padding counts as the initial value.

    Their last axes, `spec.offsets`, are those to reduce.
    """
    views = []
    for x, init in zip(operands, inits, strict=True):
        spec.check("reduce_window", type_of(x).shape)
        if spec.pads:
            x = pad(x, init, config=spec.config())
        views.append(windows(x, window=spec.window, strides=spec.strides, dilation=spec.window_dilation))
    return views
