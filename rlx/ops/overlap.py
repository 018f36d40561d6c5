"""All windows of an array as one array, and its transpose, which adds overlapping windows up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.index_sets import Pairs, Reading, numbered
from rlx.ir.types import TensorType
from rlx.ops.families import refuse_keys, to_front
from rlx.ops.sample_dtypes import NUMBERS, typed_samples
from rlx.ops.shape import Movement, check_lengths, reshape
from rlx.ops.window_spec import (
    WindowSpec,
    dilated,
    lowered_windows,
    numpy_windows,
    window_count,
)
from rlx.trace.primitive import Sample, primitive, type_of

__all__ = [
    "lower_overlap",
    "lower_side_by_side",
    "offset_number",
    "overlap_add",
    "settled",
    "spec_of",
    "windows",
]

Axes = tuple[int, ...]


def spec_of(window: Axes, strides: Axes, dilation: Axes) -> WindowSpec:
    """Windows over an array without padding."""
    rank = len(window)
    return WindowSpec(window, strides, ((0, 0),) * rank, (1,) * rank, dilation)


@primitive
class windows(Movement):
    """result[*position, *offset] = x[position * stride + offset * dilation]."""

    def type(self, x: TensorType, *, window: Axes, strides: Axes, dilation: Axes) -> TensorType:
        spec = spec_of(window, strides, dilation)
        spec.check(self.name, x.shape)
        return TensorType(spec.positions(x.shape) + tuple(window), x.dtype, x.weak)

    def reference(self, x: np.ndarray, *, window: Axes, strides: Axes, dilation: Axes) -> np.ndarray:
        return numpy_windows(x, spec_of(window, strides, dilation), 0)

    def pull_back(self, ct: Any, x: Any, *, window: Axes, strides: Axes, dilation: Axes) -> tuple[Any, ...]:
        return (overlap_add(ct, shape=x.type.shape, strides=strides, dilation=dilation),)

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        window: Axes,
        strides: Axes,
        dilation: Axes,
    ) -> tuple[Any, int]:
        x = to_front(inputs[0], dims[0], size)
        out = self.bind(x, window=(1, *window), strides=(1, *strides), dilation=(1, *dilation))
        # the batch axis has an offset axis of size 1 among the offsets
        return _without_axis(out, 1 + len(window)), 0

    def lower(self, k: Any, x: Any, *, window: Axes, strides: Axes, dilation: Axes) -> Any:
        return lowered_windows(k, x, spec_of(window, strides, dilation), 0)

    def samples(self) -> Iterator[Sample]:
        x = np.sin(np.arange(1, 31, dtype=np.float64)).reshape(5, 6)
        return typed_samples(
            NUMBERS,
            ([x], {"window": (2, 3), "strides": (2, 3), "dilation": (1, 1)}),
            ([x], {"window": (3, 2), "strides": (1, 2), "dilation": (2, 3)}),
            ([x[:0]], {"window": (1, 2), "strides": (1, 1), "dilation": (1, 1)}),
        )


@primitive
class overlap_add(Movement):
    """An array of `shape` in which every window of x is added at its position."""

    moves_only = False

    def type(self, x: TensorType, *, shape: Axes, strides: Axes, dilation: Axes) -> TensorType:
        refuse_keys(self.name, x)
        rank = len(shape)
        check_lengths(self.name, rank, strides=strides, dilation=dilation)
        check_lengths(self.name, 2 * rank, shape_of_windows=x.shape)
        sizes = (shape, x.shape[rank:], strides, dilation)
        if tuple(map(window_count, *sizes)) != x.shape[:rank]:
            raise ShapeError(
                f"overlap_add got {x!r} for an array of shape {shape}.",
                "The first axes must count the windows that fit, the last ones their elements.",
            )
        return TensorType(tuple(shape), x.dtype, x.weak)

    def reference(self, x: np.ndarray, *, shape: Axes, strides: Axes, dilation: Axes) -> np.ndarray:
        rank = len(shape)
        out = np.zeros(shape, x.dtype)
        for offset in np.ndindex(*x.shape[rank:]):
            where = tuple(
                slice(o * d, o * d + dilated(n, step), step)
                for o, d, n, step in zip(offset, dilation, x.shape, strides, strict=False)
            )
            out[where] += x[(..., *offset)]
        return out

    def reads(self, known: Any, x: TensorType, *, shape: Axes, strides: Axes, dilation: Axes) -> list[Reading | None]:
        """The elements of the windows that reach a place."""
        window = x.shape[len(shape) :]
        places = windows.reference(numbered(shape), window=window, strides=strides, dilation=dilation)
        return [Pairs(places.reshape(-1), np.arange(x.size))]

    def pull_back(self, ct: Any, x: Any, *, shape: Axes, strides: Axes, dilation: Axes) -> tuple[Any, ...]:
        window = x.type.shape[len(shape) :]
        return (windows(ct, window=window, strides=strides, dilation=dilation),)

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        shape: Axes,
        strides: Axes,
        dilation: Axes,
    ) -> tuple[Any, int]:
        x = to_front(inputs[0], dims[0], size)
        x = _with_axis(x, 1 + len(shape))
        out = self.bind(x, shape=(size, *shape), strides=(1, *strides), dilation=(1, *dilation))
        return out, 0

    def lower(self, k: Any, x: Any, *, shape: Axes, strides: Axes, dilation: Axes) -> Any:
        rank = len(shape)
        spec = spec_of(x.type.shape[rank:], strides, dilation)
        if x.type.size == 0:
            return k.full(x.type.update(shape=shape), 0)
        spec = settled(spec, x.type.shape[:rank])
        if spec.overlaps:
            return lower_overlap(k, (x,), spec, shape, lambda s, number, value: value)
        return lower_side_by_side(k, x, spec, shape)

    def samples(self) -> Iterator[Sample]:
        x = np.sin(np.arange(1, 25, dtype=np.float64))
        return typed_samples(
            NUMBERS,
            ([x.reshape(2, 2, 2, 3)], {"shape": (5, 6), "strides": (2, 3), "dilation": (1, 1)}),
            ([x.reshape(3, 2, 2, 2)], {"shape": (5, 6), "strides": (1, 2), "dilation": (2, 3)}),
            ([x[:0].reshape(0, 2)], {"shape": (1,), "strides": (1,), "dilation": (1,)}),
        )


def _without_axis(x: Any, axis: int) -> Any:
    shape = type_of(x).shape
    return reshape(x, shape=shape[:axis] + shape[axis + 1 :])


def _with_axis(x: Any, axis: int) -> Any:
    shape = type_of(x).shape
    return reshape(x, shape=(*shape[:axis], 1, *shape[axis:]))


def settled(spec: WindowSpec, positions: Axes) -> WindowSpec:
    """The same windows; unused strides are increased, so that windows do not overlap."""
    sizes = zip(spec.strides, spec.window, positions, strict=True)
    strides = tuple(max(step, n) if count <= 1 else step for step, n, count in sizes)
    return replace(spec, strides=strides)


def offset_number(s: Any, spec: WindowSpec) -> Any:
    """Over axes (*positions, *offsets): the index of the offset in its window."""
    number = s.constant(0, np.dtype(np.int64))
    for axis, size in zip(spec.offsets, spec.window, strict=True):
        number = s.add(s.mul(number, size), s.index(axis))
    return number


def lower_side_by_side(k: Any, x: Any, spec: WindowSpec, shape: Axes) -> Any:
    """Windows that do not overlap: pad each to its stride and concatenate them."""
    rank = len(shape)
    zero = k.full(x.type.update(shape=()), 0)
    gaps = [(0, step - n, 0) for step, n in zip(spec.strides, spec.window, strict=True)]
    if any(gap != (0, 0, 0) for gap in gaps):
        x = k.pad(x, zero, ((0, 0, 0),) * rank + tuple(gaps))
    x = k.transpose(x, tuple(a for i in range(rank) for a in (i, rank + i)))
    joined = tuple(x.type.shape[2 * i] * x.type.shape[2 * i + 1] for i in range(rank))
    x = k.reshape(x, joined)
    if joined == shape:
        return x
    return k.pad(x, zero, tuple((0, n - m, 0) for n, m in zip(shape, joined, strict=True)))


def lower_overlap(
    k: Any, values: Sequence[Any], spec: WindowSpec, shape: Axes, contribution: Callable[..., Any]
) -> Any:
    """Each element of `shape` sums the contributions of the windows that cover it.

    values have axes (*positions) or (*positions, *offsets);
    contribution(s, index of the offset in its window, *values) -> scalar, of values[-1]'s dtype;
    it is zero if the last value is.
    """
    if prod(spec.window) <= _MOST_TERMS and prod(_phases(spec)) <= _MOST_PHASES:
        return _lower_shifted(k, values, spec, shape, contribution)
    rank = len(shape)
    positions = values[0].type.shape[:rank]

    def position(s: Any, element: Any, offset: Any, axis: int) -> tuple[Any, Any]:
        """The window that has the element at the offset, and whether there is one."""
        window, step, d = spec.window[axis], spec.strides[axis], spec.window_dilation[axis]
        start = s.sub(element, s.mul(offset, d)) if window > 1 else element
        where = s.div(start, step) if step > 1 else start
        exists = s.and_(s.ge(start, 0), s.lt(where, positions[axis]))
        if step > 1:
            exists = s.and_(exists, s.eq(s.mul(where, step), start))
        return s.clamp(0, where, positions[axis] - 1), exists

    def source_index(s: Any, value: Any, *at: Any) -> list[Any]:
        found = [position(s, at[a], at[rank + a], a)[0] for a in range(rank)]
        return found + list(at[rank:]) if value.type.ndim > rank else found

    covering = [k.gather(v, lambda s, *at, v=v: source_index(s, v, *at), shape + spec.window) for v in values]

    def contribute(s: Any, *elements: Any) -> Any:
        at = [s.index(a) for a in range(2 * rank)]
        exists = s.constant(True, np.dtype(bool))
        for axis in range(rank):
            exists = s.and_(exists, position(s, at[axis], at[rank + axis], axis)[1])
        value = contribution(s, offset_number(s, spec), *elements)
        return s.select(exists, value, s.constant_like(value, 0))

    out = values[-1].type.update(shape=shape + spec.window)
    return k.reduce("add", k.elementwise(contribute, covering, out), spec.offsets)


# ------------------------------------------------------------- overlap of small windows
_MOST_TERMS = 49
_MOST_PHASES = 16


def _phases(spec: WindowSpec) -> Axes:
    """The number of kinds of elements along each axis, which differ in their offsets."""
    return tuple(1 if n == 1 and step == 1 else step for n, step in zip(spec.window, spec.strides, strict=True))


def _lower_shifted(
    k: Any, values: Sequence[Any], spec: WindowSpec, shape: Axes, contribution: Callable[..., Any]
) -> Any:
    """`lower_overlap` without computed positions: each kind of element sums shifted values.

    An element `step * place + phase` is at offset o of window `place - shift` where
    `o * dilation == step * shift + phase`.
    """
    rank = len(shape)
    counts = tuple(-(-n // step) for n, step in zip(shape, spec.strides, strict=True))
    reach = tuple((n - 1) * d // step for n, d, step in _steps(spec))
    padded = []
    for value in values:
        positions = value.type.shape[:rank]
        around = [(low, n - m, 0) for low, n, m in zip(reach, counts, positions, strict=True)]
        around += [(0, 0, 0)] * (value.type.ndim - rank)
        zero = k.full(value.type.update(shape=()), 0)
        padded.append(k.pad(value, zero, tuple(around)))
    pieces = {
        phase: _phase(k, padded, spec, counts, reach, phase, contribution) for phase in np.ndindex(*_phases(spec))
    }
    return _joined(k, pieces, shape)


def _steps(spec: WindowSpec) -> Iterator[tuple[int, int, int]]:
    return zip(spec.window, spec.window_dilation, spec.strides, strict=True)


def _phase(
    k: Any,
    values: Sequence[Any],
    spec: WindowSpec,
    counts: Axes,
    reach: Axes,
    phase: Axes,
    contribution: Callable[..., Any],
) -> Any:
    """The elements of one phase, from values padded by `reach` in front."""
    rank = len(counts)
    numbers: list[int] = []
    shifted: list[Any] = []
    for number, offset in enumerate(np.ndindex(*spec.window)):
        places = [divmod(o * d, step) for o, (_, d, step) in zip(offset, _steps(spec), strict=True)]
        if tuple(rest for _, rest in places) != tuple(phase):
            continue
        numbers.append(number)
        starts = [low - shift for low, (shift, _) in zip(reach, places, strict=True)]
        limits = [start + n for start, n in zip(starts, counts, strict=True)]
        for value in values:
            inside = list(offset) if value.type.ndim > rank else []
            part = k.slice(value, starts + inside, limits + [o + 1 for o in inside])
            shifted.append(k.reshape(part, counts))
    type = values[-1].type.update(shape=counts)
    if not numbers:
        return k.full(type, 0)

    def total(s: Any, *elements: Any) -> Any:
        result = None
        for place, number in enumerate(numbers):
            own = elements[place * len(values) : (place + 1) * len(values)]
            term = contribution(s, s.constant(number, np.dtype(np.int64)), *own)
            result = term if result is None else s.add(result, term)
        return result

    return k.elementwise(total, shifted, type)


def _joined(k: Any, pieces: dict[Axes, Any], shape: Axes) -> Any:
    """The phases' elements, interleaved along each axis."""
    for axis in reversed(range(len(shape))):
        groups: dict[Axes, list[Any]] = {}
        for phase in sorted(pieces):
            groups.setdefault(phase[:axis], []).append(pieces[phase])
        pieces = {phase: _interleaved(k, parts, axis, shape[axis]) for phase, parts in groups.items()}
    return pieces[()]


def _interleaved(k: Any, parts: Sequence[Any], axis: int, size: int) -> Any:
    """The parts' elements, interleaved along an axis, up to `size` of them."""
    before, (count, *after) = parts[0].type.shape[:axis], parts[0].type.shape[axis:]
    joined = parts[0]
    if len(parts) > 1:
        apart = [k.reshape(part, (*before, count, 1, *after)) for part in parts]
        joined = k.reshape(k.concatenate(apart, axis + 1), (*before, count * len(parts), *after))
    return k.slice(joined, (0,) * len(joined.type.shape), (*before, size, *after))
