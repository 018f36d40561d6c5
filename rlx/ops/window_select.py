"""The first extreme element of each window, for the derivative of max pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError
from rlx.ir.index_sets import Along, Elements, Pairs, Reading
from rlx.ir.scalar import neutral
from rlx.ir.types import TensorType, dtype_kind, is_float
from rlx.ops.families import in_compute_dtype, refuse_keys, to_front
from rlx.ops.overlap import lower_overlap, lower_side_by_side, offset_number, overlap_add, settled
from rlx.ops.sample_dtypes import ORDERED, typed_samples
from rlx.ops.shape import AxisMap, Movement, pad
from rlx.ops.window_spec import WindowSpec, lowered_windows, numpy_windows, window_numbers
from rlx.trace.primitive import Sample, primitive

__all__ = ["select_and_gather_add", "select_and_scatter_add"]

_EXTREMES = {">=": "max", "<=": "min"}


def _check(name: str, operand: TensorType, select: str, spec: WindowSpec) -> None:
    refuse_keys(name, operand)
    spec.check(name, operand.shape)
    if select not in _EXTREMES:
        raise ShapeError(f"{name} cannot select by {select!r}.", "Use '>=' or '<='.")
    if dtype_kind(operand.dtype) not in "biuf":
        raise DtypeError(f"{name} does not take {operand.dtype.name}.", "It has no order.")


def _first_extreme(operand: np.ndarray, select: str, spec: WindowSpec) -> np.ndarray:
    """Axes (*positions, offset number): True at the first extreme element that is not padding."""
    view = numpy_windows(operand, spec, 0)
    present = numpy_windows(np.ones(operand.shape, bool), spec, False)
    flat = (*view.shape[: operand.ndim], prod(spec.window))
    view, present = view.reshape(flat), present.reshape(flat)
    if view.size == 0:
        return np.zeros(flat, bool)
    view = in_compute_dtype(view)
    extreme = np.maximum if select == ">=" else np.minimum
    first = np.argmax(present, -1)[..., None]
    # padding is replaced by the first element, so that it never wins alone
    filled = np.where(present, view, np.take_along_axis(view, first, -1))
    best = extreme.reduce(filled, axis=-1, keepdims=True)
    match = present & ((filled == best) | (_is_nan(filled) & _is_nan(best)))
    number = np.argmax(match, -1)[..., None]
    return match & (np.arange(flat[-1]) == number)


def _is_nan(x: np.ndarray) -> np.ndarray:
    return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


def _lowered_first_extreme(k: Any, operand: Any, select: str, spec: WindowSpec) -> Any:
    """Lowered int32 over (*positions): the index of the first extreme offset, or their count."""
    rank, count = len(spec.window), prod(spec.window)
    view = lowered_windows(k, operand, spec, neutral(_EXTREMES[select], operand.type.dtype))
    best = k.reduce(_EXTREMES[select], view, spec.offsets)
    spread = k.broadcast(best, view.type.shape, tuple(range(rank)))
    shape, int32 = operand.type.shape, np.dtype(np.int32)

    def candidate(s: Any, element: Any, extreme: Any) -> Any:
        wins = s.eq(element, extreme)
        if is_float(operand.type.dtype):
            wins = s.or_(wins, s.and_(s.is_nan(element), s.is_nan(extreme)))
        at = [s.index(a) for a in range(2 * rank)]
        number = offset_number(s, spec)
        for axis in range(rank):
            wins = s.and_(wins, _is_element(s, spec, axis, shape[axis], at[axis], at[rank + axis]))
        return s.cast(s.select(wins, number, s.constant_like(number, count)), int32)

    numbers = k.elementwise(candidate, (view, spread), TensorType(view.type.shape, int32))
    return k.reduce("min", numbers, spec.offsets)


def _is_element(s: Any, spec: WindowSpec, axis: int, size: int, position: Any, offset: Any) -> Any:
    """Whether a position in a window is an element of the operand, not padding."""
    (low, high), base = spec.padding[axis], spec.base_dilation[axis]
    if (low, high, base) == (0, 0, 1):
        return s.constant(True, np.dtype(bool))
    place = s.add(s.sub(s.mul(position, spec.strides[axis]), low), s.mul(offset, spec.window_dilation[axis]))
    inside = s.and_(s.ge(place, 0), s.le(place, (size - 1) * base))
    return s.and_(inside, s.eq(s.rem(place, base), 0)) if base > 1 else inside


@primitive
class select_and_gather_add(Movement):
    """tangents at the first largest (or smallest) element of each window of operand."""

    moves_only = False

    def type(self, tangents: TensorType, operand: TensorType, *, select: str, **fields: Any) -> TensorType:
        spec = WindowSpec(**fields)
        _check(self.name, operand, select, spec)
        if tangents.shape != operand.shape:
            raise ShapeError(
                f"{self.name} got tangents {tangents!r} for an operand {operand!r}.",
                "Their shapes must be equal.",
            )
        return TensorType(spec.positions(operand.shape), tangents.dtype, tangents.weak)

    def axis_map(self, tangents: TensorType, operand: TensorType, *, select: str, **fields: Any) -> AxisMap:
        return (WindowSpec(**fields).axis_map(),) * 2

    def reads(self, known: Any, tangents: TensorType, operand: TensorType, **params: Any) -> list[Reading | None]:
        """Any element of the window."""
        spec = WindowSpec(**{name: value for name, value in params.items() if name != "select"})
        return [Elements(lambda: window_numbers(operand.shape, spec), Along(spec.axis_map())), None]

    def reference(self, tangents: np.ndarray, operand: np.ndarray, *, select: str, **fields: Any) -> np.ndarray:
        spec = WindowSpec(**fields)
        first = _first_extreme(operand, select, spec)
        view = numpy_windows(tangents, spec, 0).reshape(first.shape)
        picked = np.where(first, view, np.zeros((), tangents.dtype))
        return np.add.reduce(picked, axis=-1, dtype=tangents.dtype)

    def pull_back(self, ct: Any, tangents: Any, operand: Any, *, select: str, **fields: Any) -> tuple[Any, None]:
        return select_and_scatter_add(ct, operand, select=select, **fields), None

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, select: str, **fields: Any
    ) -> tuple[Any, int]:
        tangents, operand = (to_front(x, d, size) for x, d in zip(inputs, dims, strict=True))
        params = WindowSpec(**fields).batched().params()
        return self.bind(tangents, operand, select=select, **params), 0

    def lower(self, k: Any, tangents: Any, operand: Any, *, select: str, **fields: Any) -> Any:
        spec = WindowSpec(**fields)
        rank = len(spec.window)
        first = _lowered_first_extreme(k, operand, select, spec)
        view = lowered_windows(k, tangents, spec, 0)
        spread = k.broadcast(first, view.type.shape, tuple(range(rank)))

        def picked(s: Any, value: Any, chosen: Any) -> Any:
            here = s.eq(offset_number(s, spec), s.cast(chosen, np.dtype(np.int64)))
            return s.select(here, value, s.constant_like(value, 0))

        return k.reduce("add", k.elementwise(picked, (view, spread), view.type), spec.offsets)

    def samples(self) -> Iterator[Sample]:
        x = np.sin(np.arange(1, 31, dtype=np.float64) * 1.7).reshape(5, 6)
        return typed_samples(ORDERED, *(([np.cos(x), x], params) for params in _sample_params()))


@primitive
class select_and_scatter_add(Movement):
    """Each source added at the first largest (or smallest) element of its window of operand."""

    moves_only = False

    def type(self, source: TensorType, operand: TensorType, *, select: str, **fields: Any) -> TensorType:
        spec = WindowSpec(**fields)
        _check(self.name, operand, select, spec)
        if source.shape != spec.positions(operand.shape):
            raise ShapeError(
                f"{self.name} got source {source!r} for an operand {operand!r}.",
                f"The source has one element for each window: {spec.positions(operand.shape)}.",
            )
        return TensorType(operand.shape, source.dtype, source.weak)

    def axis_map(self, source: TensorType, operand: TensorType, *, select: str, **fields: Any) -> AxisMap:
        return (WindowSpec(**fields).axis_map(),) * 2

    def reads(self, known: Any, source: TensorType, operand: TensorType, **params: Any) -> list[Reading | None]:
        """The elements of the windows that an element is in."""
        spec = WindowSpec(**{name: value for name, value in params.items() if name != "select"})
        places = window_numbers(operand.shape, spec).reshape(source.size, -1)
        inside = places >= 0
        return [Pairs(places[inside], np.nonzero(inside)[0]), None]

    def reference(self, source: np.ndarray, operand: np.ndarray, *, select: str, **fields: Any) -> np.ndarray:
        spec = WindowSpec(**fields)
        first = _first_extreme(operand, select, spec)
        spread = np.where(first, source[..., None], np.zeros((), source.dtype))
        out = overlap_add.reference(
            spread.reshape(source.shape + spec.window),
            shape=spec.padded_shape(operand.shape),
            strides=spec.strides,
            dilation=spec.window_dilation,
        )
        return _without_padding(out, spec)

    def pull_back(self, ct: Any, source: Any, operand: Any, *, select: str, **fields: Any) -> tuple[Any, None]:
        return select_and_gather_add(ct, operand, select=select, **fields), None

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, select: str, **fields: Any
    ) -> tuple[Any, int]:
        source, operand = (to_front(x, d, size) for x, d in zip(inputs, dims, strict=True))
        params = WindowSpec(**fields).batched().params()
        return self.bind(source, operand, select=select, **params), 0

    def lower(self, k: Any, source: Any, operand: Any, *, select: str, **fields: Any) -> Any:
        spec = WindowSpec(**fields)
        padded = spec.padded_shape(operand.type.shape)
        if source.type.size == 0 or 0 in spec.window:
            return k.full(source.type.update(shape=operand.type.shape), 0)
        first = _lowered_first_extreme(k, operand, select, spec)

        def chosen(s: Any, number: Any, extreme: Any, value: Any) -> Any:
            here = s.eq(number, s.cast(extreme, np.dtype(np.int64)))
            return s.select(here, value, s.constant_like(value, 0))

        spec = settled(spec, source.type.shape)
        if spec.overlaps:
            out = lower_overlap(k, (first, source), spec, padded, chosen)
        else:
            out = lower_side_by_side(k, self._spread(k, first, source, spec, chosen), spec, padded)
        return _lowered_without_padding(k, out, spec)

    def _spread(self, k: Any, first: Any, source: Any, spec: WindowSpec, chosen: Any) -> Any:
        """Axes (*positions, *offsets): the source at its window's first extreme element."""
        rank = len(spec.window)
        shape, dims = source.type.shape + spec.window, tuple(range(rank))

        def element(s: Any, extreme: Any, value: Any) -> Any:
            return chosen(s, offset_number(s, spec), extreme, value)

        parts = [k.broadcast(v, shape, dims) for v in (first, source)]
        return k.elementwise(element, parts, source.type.update(shape=shape))

    def samples(self) -> Iterator[Sample]:
        x = np.sin(np.arange(1, 31, dtype=np.float64) * 1.7).reshape(5, 6)
        for params in _sample_params():
            fields = {name: value for name, value in params.items() if name != "select"}
            shape = WindowSpec(**fields).positions(x.shape)
            source = np.cos(np.arange(prod(shape), dtype=np.float64)).reshape(shape)
            yield Sample((source, x), params)


def _without_padding(x: np.ndarray, spec: WindowSpec) -> np.ndarray:
    """The original elements of a padded array."""
    crop = tuple((-low, -high, 0) for low, high in spec.padding)
    inner = pad.reference(x, np.zeros((), x.dtype), config=crop)
    return inner[tuple(slice(None, None, step) for step in spec.base_dilation) + (...,)]


def _lowered_without_padding(k: Any, x: Any, spec: WindowSpec) -> Any:
    if not spec.pads:
        return x
    crop = tuple((-low, -high, 0) for low, high in spec.padding)
    inner = k.pad(x, k.full(x.type.update(shape=()), 0), crop)
    shape = inner.type.shape
    return k.slice(inner, (0,) * len(shape), shape, spec.base_dilation)


def _sample_params() -> Iterator[dict[str, Any]]:
    for select in (">=", "<="):
        for spec in (
            WindowSpec((2, 3), (2, 3), ((0, 0), (0, 0)), (1, 1), (1, 1)),
            WindowSpec((3, 2), (2, 1), ((1, 1), (0, 2)), (1, 1), (1, 1)),
            WindowSpec((2, 2), (1, 2), ((1, -1), (0, 1)), (2, 1), (1, 2)),
        ):
            yield {"select": select, **spec.params()}
