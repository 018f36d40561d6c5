"""Shape: operations that move elements without computing."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError
from rlx.ir.index_sets import Along, Elements, Reading, numbered
from rlx.ir.types import TensorType
from rlx.ops.families import (
    LinearPrimitive,
    broadcast_to,
    full_like,
    refuse_keys,
    samples_of,
    to_front,
)
from rlx.ops.sample_dtypes import ANY, typed_samples
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, primitive, registry, type_of

__all__ = [
    "Movement",
    "broadcast_in_dim",
    "concatenate",
    "expand_dims",
    "iota",
    "pad",
    "reshape",
    "reverse",
    "slice",
    "slice_along",
    "split",
    "squeeze",
    "transpose",
]

PadConfig = tuple[tuple[int, int, int], ...]
AxisMap = tuple[tuple[int | None, ...], ...]


class Movement(LinearPrimitive):
    """Linear operations whose transpose is `pull_back`, for nonzero cotangents.

    moves_only: whether each element of the result is an element of an operand.
    """

    moves_only = True

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        """A zero cotangent remains zero; others are passed to `pull_back`."""
        if isinstance(cotangent, Zero):
            return tuple(Zero(x.type) if isinstance(x, Linear) else None for x in inputs)
        return self.pull_back(cotangent, *inputs, **params)

    def pull_back(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        """One cotangent for each Linear input, None for the others."""
        raise NotImplementedError(self.name)

    def reads(self, known: Any, *types: TensorType, **params: Any) -> list[Reading | None]:
        """The elements that are moved: the reference of their numbers. Other operands say where from."""
        count = len(types) if self.all_linear else 1
        places = [known(number) for number in range(count, len(types))]
        maps = self.axis_map(*types, **params)[:count]
        if any(place is None for place in places):
            return [*(Along(axes, "the indices are not known") for axes in maps), *[None] * len(places)]

        def numbers(number: int) -> np.ndarray:
            arrays = [numbered(t.shape) if i == number else np.full(t.shape, -1) for i, t in enumerate(types[:count])]
            return np.asarray(self.reference(*arrays, *places, **params))[..., None]

        moved = [Elements(partial(numbers, i), Along(axes), not self.all_linear) for i, axes in enumerate(maps)]
        return [*moved, *[None] * len(places)]


def check_axes(name: str, axes: Sequence[int], ndim: int) -> None:
    """Raise ShapeError unless `axes` are different axes of an array with `ndim` axes."""
    if len(set(axes)) != len(axes) or not all(0 <= a < ndim for a in axes):
        raise ShapeError(
            f"{name} got axes {tuple(axes)} for an array of {ndim} dimensions.",
            f"Name each axis at most once, counting from 0 to {ndim - 1}.",
        )


def check_lengths(name: str, ndim: int, **sequences: Sequence[Any]) -> None:
    """Raise ShapeError unless every parameter has one entry for each axis."""
    for parameter, values in sequences.items():
        if len(values) != ndim:
            raise ShapeError(
                f"{name} got {parameter}={tuple(values)} for an array of {ndim} dimensions.",
                f"Give {parameter} one entry for each axis.",
            )


# ------------------------------------------------------------- maps of axes
def axes_but(ndim: int, axes: Sequence[int]) -> tuple[int | None, ...]:
    """Axes that keep their positions, for an axis_map; the axes in `axes` are needed whole."""
    return tuple(None if a in axes else a for a in range(ndim))


def rotated(x: Any, distance: int, axis: int) -> Any:
    """x with its elements moved on along an axis; those that leave one end enter the other. 0 < distance < size."""
    size = type_of(x).shape[axis]
    parts = slice_along(x, size - distance, size, axis), slice_along(x, 0, size - distance, axis)
    return concatenate(*parts, axis=axis)


def _long_axes(shape: Sequence[int]) -> list[int]:
    """Axes with more than one element."""
    return [a for a, n in enumerate(shape) if n > 1]


# ------------------------------------------------------------- helpers
def squeeze(x: Any, axes: Sequence[int]) -> Any:
    """`x` without the given axes, which have size 1."""
    shape = type_of(x).shape
    check_axes("squeeze", axes, len(shape))
    for axis in axes:
        if shape[axis] != 1:
            raise ShapeError(
                f"squeeze got axis {axis} of size {shape[axis]} in an array of shape {shape}.",
                "Only axes of size 1 can be squeezed; use x[..., 0] to pick one element.",
            )
    return reshape(x, shape=tuple(d for i, d in enumerate(shape) if i not in axes))


def expand_dims(x: Any, axes: Sequence[int]) -> Any:
    """`x` with axes of size 1 at the given positions of the result."""
    shape = list(type_of(x).shape)
    check_axes("expand_dims", axes, len(shape) + len(axes))
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return reshape(x, shape=tuple(shape))


def slice_along(x: Any, start: int, limit: int, axis: int, stride: int = 1) -> Any:
    """x[start:limit:stride] along one axis."""
    shape = type_of(x).shape
    if (start, limit, stride) == (0, shape[axis], 1):
        return x
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return slice(x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def split(x: Any, sizes: Sequence[int], axis: int) -> tuple[Any, ...]:
    """`x` cut along `axis` in pieces of the given sizes."""
    shape = type_of(x).shape
    if sum(sizes) != shape[axis]:
        raise ShapeError(
            f"split got sizes {tuple(sizes)} for axis {axis} of an array of shape {shape}.",
            f"The sizes must add up to {shape[axis]}.",
        )
    edges = np.cumsum([0, *sizes]).tolist()
    return tuple(slice_along(x, start, limit, axis) for start, limit in itertools.pairwise(edges))


# ------------------------------------------------------------- broadcasting and reshaping
@primitive
class broadcast_in_dim(Movement):
    """Axis i of x becomes axis dims[i] of the result; it has that size, or size 1."""

    def type(self, x: TensorType, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> TensorType:
        check_axes(self.name, dims, len(shape))
        check_lengths(self.name, x.ndim, dims=dims)
        if list(dims) != sorted(dims) or any(d not in (1, shape[i]) for d, i in zip(x.shape, dims, strict=True)):
            raise ShapeError(
                f"broadcast_in_dim cannot broadcast {x!r} to shape {shape} along axes {dims}.",
                "An axis has size 1 or the size of its axis in the result, and dims increase.",
            )
        return TensorType(tuple(shape), x.dtype, x.weak)

    def axis_map(self, x: TensorType, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> AxisMap:
        return (tuple(dims),)

    def of_parts(self, shape: tuple[int, ...], /, **params: Any) -> dict[str, Any]:
        return {**params, "shape": shape}

    def reference(self, x: np.ndarray, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> np.ndarray:
        aligned = [1] * len(shape)
        for d, i in zip(x.shape, dims, strict=True):
            aligned[i] = d
        return np.broadcast_to(x.reshape(aligned), shape)

    def pull_back(self, ct: Any, x: Any, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[Any, ...]:
        own = {i: d for d, i in zip(x.type.shape, dims, strict=True)}
        axes = tuple(i for i, n in enumerate(shape) if i not in own or (own[i] == 1 and n != 1))
        ct = registry["reduce_sum"](ct, axes=axes) if axes else ct
        if type_of(ct).shape != x.type.shape:
            ct = reshape(ct, shape=x.type.shape)
        return (ct,)

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        bdims: Sequence[int | None],
        *,
        shape: tuple[int, ...],
        dims: tuple[int, ...],
    ) -> tuple[Any, int]:
        x = to_front(inputs[0], bdims[0], size)
        return self.bind(x, shape=(size, *shape), dims=(0, *(d + 1 for d in dims))), 0

    def lower(self, k: Any, x: Any, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
        return k.broadcast(x, shape, dims)

    def samples(self) -> Iterator[Sample]:
        return typed_samples(
            ANY,
            ([_floats(3)], {"shape": (2, 3), "dims": (1,)}),
            ([_floats(2, 1)], {"shape": (2, 4, 3), "dims": (0, 2)}),
            ([_floats()], {"shape": (2, 2), "dims": ()}),
            ([_floats(1)], {"shape": (0, 3), "dims": (0,)}),
        )


@primitive
class reshape(Movement):
    """The same elements, in row-major order, in another shape."""

    def type(self, x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
        result = TensorType(tuple(shape), x.dtype, x.weak)
        if result.size != x.size or any(d < 0 for d in shape):
            raise ShapeError(
                f"cannot reshape {x!r} of {x.size} elements to shape {tuple(shape)}.",
                "The product of the new sizes must equal the number of elements.",
            )
        return result

    def axis_map(self, x: TensorType, *, shape: tuple[int, ...]) -> AxisMap:
        """The first of merged or split axes keeps whole blocks."""
        found: list[int | None] = [None] * x.ndim
        reached = {prod(shape[:a]): a for a in _long_axes(shape)}
        for a in _long_axes(x.shape):
            found[a] = reached.get(prod(x.shape[:a]))
        return (tuple(found),)

    def of_parts(self, shape: tuple[int, ...], /, **params: Any) -> dict[str, Any]:
        return {"shape": shape}

    def reference(self, x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
        return x.reshape(shape)

    def pull_back(self, ct: Any, x: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (reshape(ct, shape=x.type.shape),)

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, shape: tuple[int, ...]
    ) -> tuple[Any, int]:
        return self.bind(to_front(inputs[0], dims[0], size), shape=(size, *shape)), 0

    def lower(self, k: Any, x: Any, *, shape: tuple[int, ...]) -> Any:
        return k.reshape(x, shape)

    def samples(self) -> Iterator[Sample]:
        return typed_samples(
            ANY,
            ([_floats(2, 3)], {"shape": (3, 2)}),
            ([_floats(4)], {"shape": (2, 1, 2)}),
            ([_floats(1, 1)], {"shape": ()}),
            ([_floats(0, 3)], {"shape": (5, 0)}),
        )


@primitive
class transpose(Movement):
    """Axis permutation[i] of x becomes axis i."""

    def type(self, x: TensorType, *, permutation: tuple[int, ...]) -> TensorType:
        check_lengths(self.name, x.ndim, permutation=permutation)
        check_axes(self.name, permutation, x.ndim)
        return TensorType(tuple(x.shape[p] for p in permutation), x.dtype, x.weak)

    def axis_map(self, x: TensorType, *, permutation: tuple[int, ...]) -> AxisMap:
        return (tuple(map(permutation.index, range(x.ndim))),)

    def reference(self, x: np.ndarray, *, permutation: tuple[int, ...]) -> np.ndarray:
        return np.transpose(x, permutation)

    def pull_back(self, ct: Any, x: Any, *, permutation: tuple[int, ...]) -> tuple[Any, ...]:
        return (transpose(ct, permutation=tuple(np.argsort(permutation).tolist())),)

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, permutation: tuple[int, ...]
    ) -> tuple[Any, int]:
        dim = dims[0]
        if dim is None:
            dim, inputs = 0, [to_front(inputs[0], None, size)]
        order = (dim, *(p + (p >= dim) for p in permutation))
        return self.bind(inputs[0], permutation=order), 0

    def lower(self, k: Any, x: Any, *, permutation: tuple[int, ...]) -> Any:
        return k.transpose(x, permutation)

    def samples(self) -> Iterator[Sample]:
        return typed_samples(
            ANY,
            ([_floats(2, 3, 4)], {"permutation": (2, 0, 1)}),
            ([_floats(2, 0)], {"permutation": (1, 0)}),
            ([_floats()], {"permutation": ()}),
        )


@primitive
class reverse(Movement):
    """The elements in reverse order along the given axes."""

    def type(self, x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
        check_axes(self.name, axes, x.ndim)
        return x

    def axis_map(self, x: TensorType, *, axes: tuple[int, ...]) -> AxisMap:
        return (axes_but(x.ndim, axes),)

    def reference(self, x: np.ndarray, *, axes: tuple[int, ...]) -> np.ndarray:
        return np.flip(x, axes)

    def pull_back(self, ct: Any, x: Any, *, axes: tuple[int, ...]) -> tuple[Any, ...]:
        return (reverse(ct, axes=axes),)

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, axes: tuple[int, ...]
    ) -> tuple[Any, int]:
        x = to_front(inputs[0], dims[0], size)
        return self.bind(x, axes=tuple(a + 1 for a in axes)), 0

    def lower(self, k: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
        return k.reverse(x, axes)

    def samples(self) -> Iterator[Sample]:
        return typed_samples(
            ANY,
            ([_floats(2, 3)], {"axes": (1,)}),
            ([_floats(2, 3)], {"axes": (1, 0)}),
            ([_floats(0)], {"axes": (0,)}),
        )


# ------------------------------------------------------------- cutting and joining
@primitive
class slice(Movement):
    """x[start:limit:stride] along every axis, with positive strides."""

    def type(
        self, x: TensorType, *, starts: tuple[int, ...], limits: tuple[int, ...], strides: tuple[int, ...]
    ) -> TensorType:
        check_lengths(self.name, x.ndim, starts=starts, limits=limits, strides=strides)
        cuts = list(zip(starts, limits, strides, x.shape, strict=True))
        if not all(0 <= start <= limit <= d and stride > 0 for start, limit, stride, d in cuts):
            raise ShapeError(
                f"slice got starts {starts}, limits {limits}, strides {strides} for {x!r}.",
                "Needed: 0 <= start <= limit <= size and stride > 0; use reverse to go backwards.",
            )
        shape = tuple(-(-(limit - start) // stride) for start, limit, stride, _ in cuts)
        return TensorType(shape, x.dtype, x.weak)

    def axis_map(self, x: TensorType, *, starts: Any, limits: Any, strides: Any) -> AxisMap:
        cuts = enumerate(zip(starts, limits, strides, x.shape, strict=True))
        return (axes_but(x.ndim, [a for a, (*cut, size) in cuts if cut != [0, size, 1]]),)

    def of_parts(self, shape: tuple[int, ...], /, *, starts: Any, limits: Any, strides: Any) -> dict[str, Any]:
        """An axis whose slice is shorter is not divided."""
        ends = enumerate(zip(starts, limits, strides, shape, strict=True))
        own = tuple(n if -(-(limit - start) // stride) != n else limits[a] for a, (start, limit, stride, n) in ends)
        return {"starts": starts, "limits": own, "strides": strides}

    def reference(
        self, x: np.ndarray, *, starts: tuple[int, ...], limits: tuple[int, ...], strides: tuple[int, ...]
    ) -> np.ndarray:
        return x[tuple(map(builtins.slice, starts, limits, strides)) + (...,)]

    def pull_back(
        self, ct: Any, x: Any, *, starts: tuple[int, ...], limits: tuple[int, ...], strides: tuple[int, ...]
    ) -> tuple[Any, ...]:
        config = []
        for n, d, start, stride in zip(type_of(ct).shape, x.type.shape, starts, strides, strict=True):
            covered = start + (n - 1) * stride + 1 if n else start
            config.append((start, d - covered, stride - 1))
        return (pad_zeros(ct, tuple(config)),)

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        starts: tuple[int, ...],
        limits: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> tuple[Any, int]:
        x = to_front(inputs[0], dims[0], size)
        return self.bind(x, starts=(0, *starts), limits=(size, *limits), strides=(1, *strides)), 0

    def lower(
        self, k: Any, x: Any, *, starts: tuple[int, ...], limits: tuple[int, ...], strides: tuple[int, ...]
    ) -> Any:
        return k.slice(x, starts, limits, strides)

    def samples(self) -> Iterator[Sample]:
        return typed_samples(
            ANY,
            ([_floats(5, 4)], {"starts": (1, 0), "limits": (5, 3), "strides": (3, 1)}),
            ([_floats(6)], {"starts": (0,), "limits": (6,), "strides": (4,)}),
            ([_floats(3, 2)], {"starts": (2, 0), "limits": (2, 2), "strides": (1, 2)}),
        )


def padded_size(size: int, low: int, high: int, interior: int) -> int:
    """Size of an axis after padding."""
    return size + max(size - 1, 0) * interior + low + high


def pad_zeros(x: Any, config: PadConfig) -> Any:
    """`x` padded with zeros; itself if there is nothing to pad."""
    if all(entry == (0, 0, 0) for entry in config):
        return x
    return pad(x, full_like(type_of(x).update(shape=()), 0), config=config)


@primitive
class pad(Movement):
    """x with `value` around it and between its elements: config has (low, high, interior) per axis.

    Negative low and high cut elements off, after the interior padding.
    """

    all_linear = True

    def type(self, x: TensorType, value: TensorType, *, config: PadConfig) -> TensorType:
        check_lengths(self.name, x.ndim, config=config)
        if x.dtype != value.dtype:
            raise DtypeError(
                f"pad got {x!r} and a padding value of dtype {value.dtype.name}.",
                "Convert the padding value with .astype(...) first.",
            )
        if value.shape != ():
            raise ShapeError(f"pad got a padding value of type {value!r}.", "Pass a scalar.")
        shape = tuple(padded_size(d, *entry) for d, entry in zip(x.shape, config, strict=True))
        if any(n < 0 for n in shape) or any(interior < 0 for _, _, interior in config):
            raise ShapeError(
                f"pad got config {config} for {x!r}, which would leave shape {shape}.",
                "Cut at most the size of an axis, and use an interior of 0 or more.",
            )
        return TensorType(shape, x.dtype, x.weak and value.weak)

    def axis_map(self, x: TensorType, value: TensorType, *, config: PadConfig) -> AxisMap:
        return axes_but(x.ndim, [a for a, entry in enumerate(config) if any(entry)]), ()

    def reference(self, x: np.ndarray, value: np.ndarray, *, config: PadConfig) -> np.ndarray:
        full = [max(padded_size(d, max(low, 0), max(high, 0), interior), 0)
                for d, (low, high, interior) in zip(x.shape, config, strict=True)]  # fmt: skip
        out = np.empty(full, x.dtype)
        out[...] = value
        inner, crop = [], []
        for d, n, (low, high, interior) in zip(x.shape, full, config, strict=True):
            start = max(low, 0)
            stop = start + padded_size(d, 0, 0, interior)
            inner.append(builtins.slice(start, stop, interior + 1))
            crop.append(builtins.slice(max(-low, 0), n - max(-high, 0)))
        out[tuple(inner)] = x
        return out[tuple(crop) + (...,)]

    def pull_back(self, ct: Any, x: Any, value: Any, *, config: PadConfig) -> tuple[Any, ...]:
        ct_x = ct_value = None
        if isinstance(x, Linear):
            cut = pad_zeros(ct, tuple((-low, -high, 0) for low, high, _ in config))
            strides = tuple(interior + 1 for _, _, interior in config)
            shape = type_of(cut).shape
            ct_x = slice(cut, starts=(0,) * len(shape), limits=shape, strides=strides)
        if isinstance(value, Linear):
            outside = padding_mask(type_of(x).shape, config)
            zeros = full_like(type_of(ct), 0)
            masked = registry["select"](outside, ct, zeros)
            ct_value = registry["reduce_sum"](masked, axes=tuple(range(type_of(ct).ndim)))
        return (ct_x, ct_value)

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, config: PadConfig
    ) -> tuple[Any, int]:
        x, value = inputs
        x = to_front(x, dims[0], size)
        config = ((0, 0, 0), *config)
        if dims[1] is None:
            return self.bind(x, value, config=config), 0
        moved = pad_zeros(x, config)
        shape = type_of(moved).shape
        values = broadcast_to(reshape(value, shape=(size, *(1,) * (len(shape) - 1))), shape)
        return registry["select"](padding_mask(type_of(x).shape, config), values, moved), 0

    def lower(self, k: Any, x: Any, value: Any, *, config: PadConfig) -> Any:
        return k.pad(x, value, config)

    def samples(self) -> Iterator[Sample]:
        value = np.float64(0.5)
        return typed_samples(
            ANY,
            ([_floats(2, 3), value], {"config": ((1, 2, 0), (0, 1, 2))}),
            ([_floats(5), value], {"config": ((-1, -2, 0),)}),
            ([_floats(4), value], {"config": ((-2, 3, 1),)}),
            ([_floats(0, 2), value], {"config": ((1, 1, 3), (0, 0, 0))}),
            ([_floats(), value], {"config": ()}),
        )


def padding_mask(shape: tuple[int, ...], config: PadConfig) -> Any:
    """A mask of the padding in an array of `shape` after padding."""
    boolean = TensorType(shape, np.dtype(bool))
    return pad(full_like(boolean, False), full_like(boolean.update(shape=()), True), config=config)


@primitive
class concatenate(Movement):
    """Arrays joined along an existing axis."""

    all_linear = True

    def type(self, *types: TensorType, axis: int) -> TensorType:
        first = types[0]
        check_axes(self.name, (axis,), first.ndim)
        for t in types[1:]:
            if t.dtype != first.dtype:
                raise DtypeError(
                    f"concatenate got dtypes {first.dtype.name} and {t.dtype.name}.",
                    "Convert them to one dtype with .astype(...).",
                )
            if t.ndim != first.ndim or any(
                a != b for i, (a, b) in enumerate(zip(first.shape, t.shape, strict=True)) if i != axis
            ):
                raise ShapeError(
                    f"concatenate along axis {axis} got {first!r} and {t!r}.",
                    "All axes but that one must have equal sizes.",
                )
        shape = list(first.shape)
        shape[axis] = sum(t.shape[axis] for t in types)
        return TensorType(tuple(shape), first.dtype, all(t.weak for t in types))

    def axis_map(self, *types: TensorType, axis: int) -> AxisMap:
        return (axes_but(types[0].ndim, (axis,)),) * len(types)

    def reference(self, *arrays: np.ndarray, axis: int) -> np.ndarray:
        return np.concatenate(arrays, axis)

    def pull_back(self, ct: Any, *inputs: Any, axis: int) -> tuple[Any, ...]:
        cotangents: list[Any] = []
        start = 0
        for x in inputs:
            limit = start + type_of(x).shape[axis]
            cotangents.append(slice_along(ct, start, limit, axis) if isinstance(x, Linear) else None)
            start = limit
        return tuple(cotangents)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, axis: int) -> tuple[Any, int]:
        fronted = [to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        return self.bind(*fronted, axis=axis + 1), 0

    def lower(self, k: Any, *values: Any, axis: int) -> Any:
        return k.concatenate(values, axis)

    def samples(self) -> Iterator[Sample]:
        return typed_samples(
            ANY,
            ([_floats(2, 3), _floats(1, 3)], {"axis": 0}),
            ([_floats(2, 3), _floats(2, 0), _floats(2, 1)], {"axis": 1}),
            ([_floats(3)], {"axis": 0}),
        )


# ------------------------------------------------------------- creation
@primitive
class iota(Primitive):
    """An array of `type` whose elements count up along `axis`."""

    def type(self, *, type: TensorType, axis: int) -> TensorType:
        check_axes(self.name, (axis,), type.ndim)
        refuse_keys(self.name, type)
        if type.dtype.kind == "b":
            raise DtypeError("iota cannot count in bool.", "Count in int32 and compare.")
        return type

    def reference(self, *, type: TensorType, axis: int) -> np.ndarray:
        size = type.shape[axis]
        aligned = [1] * type.ndim
        aligned[axis] = size
        return np.broadcast_to(np.arange(size).astype(type.dtype).reshape(aligned), type.shape)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        out = self.bind(**params)
        return out, Zero(type_of(out))

    def transpose(self, cotangent: Any, **params: Any) -> tuple[Any, ...]:
        return ()

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, None]:
        return self.bind(**params), None

    def lower(self, k: Any, *, type: TensorType, axis: int) -> Any:
        return k.iota(type, axis)

    def samples(self) -> Iterator[Sample]:
        return samples_of(
            ([], {"type": TensorType((3, 2), np.dtype("i4")), "axis": 0}),
            ([], {"type": TensorType((2, 4), np.dtype("f4")), "axis": 1}),
            ([], {"type": TensorType((0,), np.dtype("i8")), "axis": 0}),
        )


def _floats(*shape: int) -> np.ndarray:
    """Deterministic numbers for samples."""
    n = int(np.prod(shape, dtype=np.int64))
    return np.sin(np.arange(1, n + 1, dtype=np.float64) * 1.7).reshape(shape)
