"""WindowSpec: windows that slide over a padded and dilated array."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.index_sets import numbered
from rlx.ops.shape import pad, padded_size

__all__ = ["WindowSpec", "dilated", "lowered_windows", "numpy_windows", "window_numbers"]

Axes = tuple[int, ...]


def dilated(size: int, dilation: int) -> int:
    """The extent of `size` elements at distance `dilation`."""
    return (size - 1) * dilation + 1 if size else 0


def window_count(size: int, window: int, stride: int, dilation: int) -> int:
    """The number of windows that fit into an axis of `size`."""
    reach = dilated(window, dilation)
    return (size - reach) // stride + 1 if size >= reach else 0


@dataclass(frozen=True)
class WindowSpec:
    """One entry for each axis: window size, stride, (low, high) padding, dilations of both."""

    window: Axes
    strides: Axes
    padding: tuple[tuple[int, int], ...]
    base_dilation: Axes
    window_dilation: Axes

    def check(self, name: str, shape: Axes) -> None:
        """Raise ShapeError unless every field fits an array of `shape`."""
        fields = self.params()
        for field, values in fields.items():
            if len(values) != len(shape):
                raise ShapeError(
                    f"{name} got {field}={values} for an array of shape {shape}.",
                    f"Give {field} one entry for each axis.",
                )
        positive = (*self.strides, *self.base_dilation, *self.window_dilation)
        if any(n < 1 for n in positive) or any(n < 0 for n in self.window):
            raise ShapeError(
                f"{name} got {fields}.",
                "Window sizes are 0 or more, strides and dilations positive.",
            )
        if any(n < 0 for n in self.padded_shape(shape)):
            raise ShapeError(
                f"{name} got padding {self.padding} for an array of shape {shape}.",
                "Negative padding may not cut more than there is.",
            )

    def axis_map(self) -> tuple[int | None, ...]:
        """For an axis_map: axes along which each element is a window keep their positions."""
        entries = zip(self.window, self.strides, self.padding, self.base_dilation, self.window_dilation, strict=True)
        return tuple(axis if entry == (1, 1, (0, 0), 1, 1) else None for axis, entry in enumerate(entries))

    def params(self) -> dict[str, Any]:
        """The fields as parameters of a primitive."""
        names = ("window", "strides", "padding", "base_dilation", "window_dilation")
        return {name: getattr(self, name) for name in names}

    def config(self) -> tuple[tuple[int, int, int], ...]:
        """The padding and the dilation of the base as a configuration of `pad`."""
        return tuple((low, high, d - 1) for (low, high), d in zip(self.padding, self.base_dilation, strict=True))

    def padded_shape(self, shape: Axes) -> Axes:
        """The shape of the padded, dilated array."""
        return tuple(padded_size(n, *c) for n, c in zip(shape, self.config(), strict=True))

    def positions(self, shape: Axes) -> Axes:
        """The number of windows along each axis of an array of `shape`."""
        sizes = (self.padded_shape(shape), self.window, self.strides, self.window_dilation)
        return tuple(map(window_count, *sizes))

    def unpadded(self) -> WindowSpec:
        """The same windows over an array that is already padded."""
        rank = len(self.window)
        return replace(self, padding=((0, 0),) * rank, base_dilation=(1,) * rank)

    def batched(self) -> WindowSpec:
        """The same windows once the array has a leading batch axis."""
        return WindowSpec(
            (1, *self.window),
            (1, *self.strides),
            ((0, 0), *self.padding),
            (1, *self.base_dilation),
            (1, *self.window_dilation),
        )

    @property
    def pads(self) -> bool:
        """Whether there is padding or dilation of the base."""
        return any(entry != (0, 0, 0) for entry in self.config())

    @property
    def overlaps(self) -> bool:
        """Whether windows may share elements, or leave gaps inside."""
        entries = zip(self.window, self.strides, self.window_dilation, strict=True)
        return any(window > 1 and (d > 1 or stride < window) for window, stride, d in entries)

    @property
    def offsets(self) -> Axes:
        """The axes inside a window, of an array with axes (*positions, *offsets)."""
        rank = len(self.window)
        return tuple(range(rank, 2 * rank))


def numpy_windows(x: np.ndarray, spec: WindowSpec, fill: Any) -> np.ndarray:
    """A view with axes (*positions, *offsets) of `x` padded with `fill`."""
    shape = spec.positions(x.shape) + spec.window
    if 0 in shape:
        return np.empty(shape, x.dtype)
    if spec.pads:
        x = pad.reference(x, np.asarray(fill, x.dtype), config=spec.config())
    reach = tuple(map(dilated, spec.window, spec.window_dilation))
    # as bytes: NumPy's strided views identify dtypes by name, which ml_dtypes' dtypes may share with none
    view = np.lib.stride_tricks.sliding_window_view(x.view(f"V{x.itemsize}"), reach).view(x.dtype)
    steps = spec.strides + spec.window_dilation
    return view[tuple(slice(None, None, step) for step in steps) + (...,)]


def window_numbers(shape: Axes, spec: WindowSpec) -> np.ndarray:
    """The numbers of the elements in each window of an array of `shape`: (*positions, elements), -1 for padding."""
    found = numpy_windows(numbered(shape), spec, -1)
    return found.reshape(*spec.positions(shape), prod(spec.window))


def lowered_windows(k: Any, x: Any, spec: WindowSpec, fill: Any) -> Any:
    """The lowered view with axes (*positions, *offsets) of `x` padded with `fill`."""
    if spec.pads:
        value = k.full(x.type.update(shape=()), fill)
        x = k.pad(x, value, spec.config())
    reach = tuple(map(dilated, spec.window, spec.window_dilation))
    view = k.window(x, reach, spec.strides)
    if reach == spec.window:
        return view
    shape = view.type.shape
    rank = len(reach)
    steps = (1,) * rank + spec.window_dilation
    return k.slice(view, (0,) * (2 * rank), shape, steps)
