"""Scatter: updates written into, or combined with, slices of an operand at computed starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError, UnsupportedError, not_linear
from rlx.ir.index_sets import Along, Elements, Pairs, Reading, numbered
from rlx.ir.types import TensorType, is_complex
from rlx.ops.families import add_values, full_like, instantiate, refuse_keys, to_front
from rlx.ops.gather import batched_numbers, gather
from rlx.ops.index_windows import ScatterDimensionNumbers, scatter_windows
from rlx.ops.sample_dtypes import NUMBERS, ORDERED, typed_samples
from rlx.ops.shape import AxisMap, iota, reshape
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, primitive, registry, type_of

__all__ = ["scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul"]

MODES = ("clip", "drop", "fill", "promise_in_bounds")


class Scatter(Primitive):
    """operand with updates combined into its windows, in the order of the batch positions.

    mode: "clip" clamps windows to the operand, "drop" (or "fill") omits windows out of bounds, as does
    "promise_in_bounds". unique_indices promises that no two windows overlap.
    """

    combination = ""  # each process would start from the operand
    ufunc: np.ufunc | None = None
    reducer: str | None = None
    takes_complex = True

    def type(
        self,
        operand: TensorType,
        indices: TensorType,
        updates: TensorType,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        mode: str,
        unique_indices: bool,
        indices_are_sorted: bool,
    ) -> TensorType:
        if mode not in MODES:
            raise UnsupportedError(f"{self.name} has no mode {mode!r}.", f"Use one of {MODES}.")
        if is_complex(operand.dtype) and not self.takes_complex:
            raise DtypeError(
                f"{self.name} does not take {operand.dtype.name}.",
                "Complex numbers have no order: scatter real and imaginary parts.",
            )
        if self.reducer is not None:
            refuse_keys(self.name, operand)
        scatter_windows(self.name, operand, indices, updates, dimension_numbers)
        return operand

    def axis_map(
        self,
        operand: TensorType,
        indices: TensorType,
        updates: TensorType,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        **params: Any,
    ) -> AxisMap:
        """Axes of whole windows; divided positions are combined, if the order does not matter."""
        windows = scatter_windows(self.name, operand, indices, updates, dimension_numbers)
        of_operand, of_indices = windows.axis_maps()
        place = {at: axis for axis, at in enumerate(of_operand) if at is not None}
        if self.ufunc is not None:
            place = {at: -1 - i for i, at in enumerate(windows.batch_places)} | place
        return (
            tuple(None if at is None else axis for axis, at in enumerate(of_operand)),
            tuple(map(place.get, of_indices)),
            tuple(map(place.get, range(updates.ndim))),
        )

    def reads(
        self, known: Any, operand: TensorType, indices: TensorType, updates: TensorType, **params: Any
    ) -> list[Reading | None]:
        """The element that was there, and those that are combined with it; the last one if they replace it."""
        starts = known(1)
        if starts is None:
            written = self.axis_map(operand, indices, updates, **params)[2]
            return [Along(tuple(range(operand.ndim))), None, Along(written, "the indices are not known")]
        if self.ufunc is None:
            kept = self.reference(numbered(operand.shape), starts, np.full(updates.shape, -1), **params)
            taken = self.reference(np.full(operand.shape, -1), starts, numbered(updates.shape), **params)
            return [Elements(lambda: kept[..., None]), None, Elements(lambda: taken[..., None])]
        places = self._places(operand, indices, updates, starts, **params).reshape(-1)
        inside = places >= 0
        return [Along(tuple(range(operand.ndim))), None, Pairs(places[inside], np.nonzero(inside)[0])]

    def _places(
        self,
        operand: TensorType,
        indices: TensorType,
        updates: TensorType,
        starts: np.ndarray,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        mode: str,
        **flags: bool,
    ) -> np.ndarray:
        """The number of the element that each update is combined with; -1 for those that are omitted."""
        windows = scatter_windows(self.name, operand, indices, updates, dimension_numbers)
        sizes = windows.sizes
        return gather.reference(
            numbered(operand.shape),
            starts,
            dimension_numbers=dimension_numbers.gather(),
            slice_sizes=sizes,
            mode="clip" if mode == "clip" else "fill",
            fill_value=-1,
        )

    def reference(
        self,
        operand: np.ndarray,
        indices: np.ndarray,
        updates: np.ndarray,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        mode: str,
        unique_indices: bool,
        indices_are_sorted: bool,
    ) -> np.ndarray:
        types = [type_of(x) for x in (operand, indices, updates)]
        windows = scatter_windows(self.name, *types, dimension_numbers)
        out = operand.copy()
        if updates.size == 0 or operand.size == 0:
            return out
        starts, valid = windows.starts(indices)
        rows = windows.to_rows(updates)
        if mode == "clip" or valid.all():
            places = windows.coordinates(starts)
        else:
            rows, places = rows[valid], windows.coordinates(starts, valid)
        if self.ufunc is None:
            windows.moved(out)[places] = rows
        else:
            self.ufunc.at(windows.moved(out), places, rows)
        return out

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        dimension_numbers: ScatterDimensionNumbers,
        **params: Any,
    ) -> tuple[Any, int]:
        operand, indices, updates = inputs
        operand, updates = to_front(operand, dims[0], size), to_front(updates, dims[2], size)
        together = dims[1] is not None
        if together:
            indices = to_front(indices, dims[1], size)
        numbers = batched_numbers(dimension_numbers.gather(), True, together)
        params["dimension_numbers"] = ScatterDimensionNumbers(*numbers.encode_key())
        return self.bind(operand, indices, updates, **params), 0

    def lower(
        self,
        k: Any,
        operand: Any,
        indices: Any,
        updates: Any,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        mode: str,
        unique_indices: bool,
        indices_are_sorted: bool,
    ) -> Any:
        if operand.type.size == 0:
            return operand
        windows = scatter_windows(self.name, operand.type, indices.type, updates.type, dimension_numbers)
        # with batch axes in front, later windows overwrite earlier ones as in the reference
        updates = k.transpose(updates, windows.leading_order)
        windows = windows.batch_leading()
        dropping = mode != "clip" and bool(windows.started)
        guard = windows.guard(indices) if dropping else None
        reducer = _BOOL_REDUCERS.get(self.reducer) if operand.type.dtype.kind == "b" else self.reducer
        # clipping may move separate windows together
        distinct = windows.single or (unique_indices and mode != "clip")
        return k.scatter(reducer, operand, updates, windows.index(indices), guard, distinct)

    def samples(self) -> Iterator[Sample]:
        rows = ScatterDimensionNumbers((1,), (0,), (0,))
        boxes = ScatterDimensionNumbers((0, 2), (), (1, 0))
        paired = ScatterDimensionNumbers((1,), (), (1,), (0,), (0,))
        x = np.sin(np.arange(20, dtype=np.float64)).reshape(4, 5)

        def case(indices: Any, shape: tuple[int, ...], numbers: Any, mode: str, unique: bool) -> Any:
            updates = np.cos(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape)
            params = {"dimension_numbers": numbers, "mode": mode}
            flags = {"unique_indices": unique, "indices_are_sorted": False}
            return [x, np.array(indices, np.int32), updates], {**params, **flags}

        return typed_samples(
            NUMBERS if self.takes_complex else ORDERED,
            case([[2], [0], [9], [-1]], (4, 5), rows, "drop", True),
            case([[2], [0]], (2, 5), rows, "promise_in_bounds", True),
            case([[1, 2], [3, 0]], (1, 2, 2), boxes, "clip", True),
            case([[1], [3], [0], [2]], (4, 2), paired, "clip", True),
            case(np.zeros((0, 1)), (0, 5), rows, "drop", True),
        )


_BOOL_REDUCERS = {"add": "or", "mul": "and", "min": "and", "max": "or"}


# ------------------------------------------------------------- helpers for derivatives
def windows_of(x: Any, indices: Any, updates: TensorType, params: dict[str, Any], fill: Any) -> Any:
    """The windows of `x` that the scatter with these params writes; `fill` for dropped windows."""
    numbers, operand = params["dimension_numbers"], type_of(x)
    if operand.size == 0:
        return full_like(TensorType(updates.shape, operand.dtype), fill or 0)
    updates = updates.update(dtype=operand.dtype)
    windows = scatter_windows("scatter", operand, type_of(indices), updates, numbers)
    return gather(
        x,
        indices,
        dimension_numbers=numbers.gather(),
        slice_sizes=windows.sizes,
        mode="fill" if params["mode"] in ("drop", "fill") else params["mode"],
        fill_value=fill,
    )


def zero_cotangents(*inputs: Any) -> tuple[Any, ...]:
    """The result of a transpose rule for a zero cotangent."""
    return tuple(Zero(x.type) if isinstance(x, Linear) else None for x in inputs)


class LinearScatter(Scatter):
    """Scatters that are linear in operand and updates together."""

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = self.bind(*primals, **params)
        if isinstance(tangents[0], Zero) and isinstance(tangents[2], Zero):
            return out, Zero(type_of(out))
        operand, updates = instantiate(tangents[0]), instantiate(tangents[2])
        return out, self.bind(operand, primals[1], updates, **params)


@primitive
class scatter_add(LinearScatter):
    """operand with updates added at the windows."""

    ufunc = np.add
    reducer = "add"

    def transpose(self, cotangent: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> tuple[Any, ...]:
        if isinstance(cotangent, Zero):
            return zero_cotangents(operand, indices, updates)
        ct_updates = None
        if isinstance(updates, Linear):
            ct_updates = windows_of(cotangent, indices, updates.type, params, 0)
        return (cotangent if isinstance(operand, Linear) else None, None, ct_updates)


@primitive
class scatter(LinearScatter):
    """operand with its windows replaced by updates; if windows overlap, the last one wins."""

    def transpose(self, cotangent: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> tuple[Any, ...]:
        if isinstance(cotangent, Zero):
            return zero_cotangents(operand, indices, updates)
        ct_operand = ct_updates = None
        update_type = type_of(updates)
        if isinstance(operand, Linear):
            zeros = full_like(update_type.update(dtype=type_of(cotangent).dtype), 0)
            ct_operand = self.bind(cotangent, indices, zeros, **params)
        if isinstance(updates, Linear):
            ct_updates = windows_of(cotangent, indices, update_type, params, 0)
            if not params["unique_indices"]:
                stayed = _survivors(type_of(cotangent), indices, update_type, params)
                ct_updates = registry["select"](stayed, ct_updates, full_like(type_of(ct_updates), 0))
        return ct_operand, None, ct_updates

    def write_in_lanes(self, lanes: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> Any:
        """Lanes that do not write rewrite the old values, so that only windows are read or written."""
        kept = windows_of(operand, indices, type_of(updates), params, 0)
        axes: tuple[int, ...] = ()
        if type_of(lanes).ndim:
            numbers, types = params["dimension_numbers"], list(map(type_of, (operand, indices, kept)))
            windows = scatter_windows("scatter", *types, numbers)
            if 0 in windows.operand_batching:
                axes = (windows.batch_places[windows.indices_batching[windows.operand_batching.index(0)]],)
            elif 0 in windows.window_axes and 0 not in windows.started:
                axes = (windows.window_places[windows.window_axes.index(0)],)
            else:
                return None
        mask = registry["broadcast_in_dim"](lanes, shape=type_of(kept).shape, dims=axes)
        return self.bind(operand, indices, registry["select"](mask, updates, kept), **params)


def _survivors(operand: TensorType, indices: Any, updates: TensorType, params: dict[str, Any]) -> Any:
    """The mask of update elements that no later one overwrote: scatter their indices and compare."""
    dtype = np.dtype(np.int64 if updates.size > np.iinfo(np.int32).max else np.int32)
    numbers = reshape(iota(type=TensorType((updates.size,), dtype), axis=0), shape=updates.shape)
    nobody = full_like(operand.update(dtype=dtype), -1)
    written = scatter(nobody, indices, numbers, **params)
    return registry["equal"](windows_of(written, indices, updates, params, -1), numbers)


def _needs_unique(what: str) -> UnsupportedError:
    return UnsupportedError(f"{what} needs unique indices.", "Pass unique_indices=True if no index occurs twice.")


@primitive
class scatter_mul(Scatter):
    """operand with its windows multiplied by updates."""

    ufunc = np.multiply
    reducer = "mul"

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        operand, indices, updates = primals
        out = self.bind(*primals, **params)
        tangent: Any = Zero(type_of(out))
        if not isinstance(tangents[0], Zero):
            tangent = self.bind(tangents[0], indices, updates, **params)
        if not isinstance(tangents[2], Zero):
            if not params["unique_indices"]:
                raise _needs_unique("The derivative of scatter_mul by its updates")
            zeros = full_like(type_of(operand), 0)
            spread = scatter_add(zeros, indices, tangents[2], **params)
            tangent = add_values(tangent, registry["multiply"](operand, spread))
        return out, tangent

    def transpose(self, cotangent: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> tuple[Any, ...]:
        if isinstance(cotangent, Zero):
            return zero_cotangents(operand, indices, updates)
        if isinstance(operand, Linear):
            return self.bind(cotangent, indices, updates, **params), None, None
        if not params["unique_indices"]:
            raise _needs_unique("The transpose of scatter_mul by its updates")
        scaled = registry["multiply"](cotangent, operand)
        return None, None, windows_of(scaled, indices, updates.type, params, 0)


class ExtremeScatter(Scatter):
    """Minimum and maximum: elements that tie share the derivative equally."""

    takes_complex = False

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        operand, indices, updates = primals
        out = self.bind(*primals, **params)
        if isinstance(tangents[0], Zero) and isinstance(tangents[2], Zero):
            return out, Zero(type_of(out))
        select, equal = registry["select"], registry["equal"]
        multiply, divide = registry["multiply"], registry["divide"]
        update_type, zeros = type_of(updates).strong(), full_like(type_of(out).strong(), 0)
        reached = windows_of(out, indices, update_type, params, None)
        hit = select(equal(updates, reached), full_like(update_type, 1), full_like(update_type, 0))
        hits = scatter_add(zeros, indices, hit, **params)
        ones = full_like(type_of(zeros), 1)
        reached_by = scatter_add(zeros, indices, full_like(update_type, 1), **params)
        # no update reaches a NaN that stays; a NaN that one reaches has no derivative, as in a maximum of two numbers
        kept = select(registry["bitwise_or"](equal(operand, out), equal(reached_by, zeros)), ones, zeros)
        gained: Any = Zero(type_of(out))
        if not isinstance(tangents[0], Zero):
            gained = multiply(tangents[0], kept)
        if not isinstance(tangents[2], Zero):
            moved = scatter_add(zeros, indices, multiply(tangents[2], hit), **params)
            gained = add_values(gained, moved)
        return out, divide(gained, registry["maximum"](registry["add"](hits, kept), ones))

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        raise not_linear(self.name)


@primitive
class scatter_min(ExtremeScatter):
    """operand with its windows replaced by the minimum of window and updates."""

    ufunc = np.minimum
    reducer = "min"


@primitive
class scatter_max(ExtremeScatter):
    """operand with its windows replaced by the maximum of window and updates."""

    ufunc = np.maximum
    reducer = "max"
