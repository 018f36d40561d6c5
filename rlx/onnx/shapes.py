"""Operators that move elements, create arrays, and inspect shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.onnx.elementwise import dtype_of_number
from rlx.onnx.nodes import Node, known, operator

__all__: list[str] = []


def _numbers(node: Node, value: Any, what: str) -> list[int]:
    return [int(n) for n in known(node, value, what).reshape(-1)]


@operator("Reshape")
def _reshape(node: Node, x: Any, shape: Any = None) -> Any:
    sizes = node["shape"] if shape is None else _numbers(node, shape, "shape")
    if not node.get("allowzero", 0):
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return jnp.reshape(x, sizes)


@operator("Flatten")
def _flatten(node: Node, x: Any) -> Any:
    axis = node.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return jnp.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _axes(node: Node, axes: Any) -> list[int] | None:
    return node.get("axes") if axes is None else _numbers(node, axes, "axes")


@operator("Squeeze")
def _squeeze(node: Node, x: Any, axes: Any = None) -> Any:
    found = _axes(node, axes)
    return jnp.squeeze(x, None if found is None else tuple(found))


@operator("Unsqueeze")
def _unsqueeze(node: Node, x: Any, axes: Any = None) -> Any:
    return jnp.expand_dims(x, tuple(_axes(node, axes) or ()))


@operator("Transpose")
def _transpose(node: Node, x: Any) -> Any:
    return jnp.transpose(x, node.get("perm"))


@operator("Concat")
def _concatenate(node: Node, *xs: Any) -> Any:
    return jnp.concatenate(xs, node["axis"])


@operator("Split")
def _split(node: Node, x: Any, sizes: Any = None) -> Any:
    axis = node.get("axis", 0)
    parts = node.get("split") if sizes is None else _numbers(node, sizes, "sizes")
    if parts is None:
        count = node.get("num_outputs", len(node.results))
        part = -(-x.shape[axis] // count)
        parts = [part] * (count - 1) + [x.shape[axis] - part * (count - 1)]
    return tuple(jnp.split(x, np.cumsum(parts)[:-1].tolist(), axis))


@operator("Slice")
def _slice(node: Node, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    first = node["starts"] if starts is None else _numbers(node, starts, "starts")
    last = node["ends"] if ends is None else _numbers(node, ends, "ends")
    where = node.get("axes") if axes is None else _numbers(node, axes, "axes")
    strides = [1] * len(first) if steps is None else _numbers(node, steps, "steps")
    slices = [slice(None)] * x.ndim
    for axis, start, end, step in zip(where or range(len(first)), first, last, strides, strict=True):
        size = x.shape[axis]
        start = start + size if start < 0 else start
        end = end + size if end < 0 else end
        if step > 0:
            slices[axis] = slice(min(max(start, 0), size), min(max(end, 0), size), step)
        else:
            start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
            slices[axis] = slice(start, None if end < 0 else end, step) if start > end else slice(0, 0)
    return jnp.asarray(x)[tuple(slices)]


@operator("Shape")
def _shape(node: Node, x: Any) -> Any:
    return np.asarray(x.shape[node.get("start", 0) : node.get("end")], np.int64)


@operator("Size")
def _size(node: Node, x: Any) -> Any:
    return np.asarray(math.prod(x.shape), np.int64)


@operator("Expand")
def _expand(node: Node, x: Any, shape: Any) -> Any:
    return jnp.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(_numbers(node, shape, "shape"))))


@operator("Tile")
def _tile(node: Node, x: Any, repeats: Any) -> Any:
    return jnp.tile(x, _numbers(node, repeats, "repeats"))


@operator("Pad")
def _pad(node: Node, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    amounts = node.get("pads", node.get("paddings")) if pads is None else _numbers(node, pads, "pads")
    where = list(range(x.ndim)) if axes is None else [a % x.ndim for a in _numbers(node, axes, "axes")]
    widths = [(0, 0)] * x.ndim
    for number, axis in enumerate(where):
        widths[axis] = (amounts[number], amounts[number + len(where)])
    x = jnp.asarray(x)
    # negative amounts cut
    x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(widths, x.shape, strict=True))]
    widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    mode = node.get("mode", "constant")
    if mode == "constant":
        fill = node.get("value", 0) if value is None else value
        return jnp.pad(x, widths, constant_values=jnp.asarray(fill, x.dtype).reshape(()))
    return jnp.pad(x, widths, mode=mode)


@operator("Constant")
def _constant(node: Node) -> Any:
    (name, value), *_ = node.attributes.items()
    if name in ("value", "sparse_value"):
        return value
    if "string" in name:
        raise node.unsupported("is a text")
    return np.asarray(value, np.float32 if "float" in name else np.int64)


@operator("ConstantOfShape")
def _filled(node: Node, shape: Any) -> Any:
    value = node.get("value")
    value = np.zeros(1, np.float32) if value is None else value
    return np.full(tuple(_numbers(node, shape, "shape")), value.reshape(()), value.dtype)


@operator("Range")
def _range(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    first, last, step = (known(node, x, "limits").reshape(()) for x in (start, limit, delta))
    count = max(math.ceil((last.item() - first.item()) / step.item()), 0)
    return np.asarray(first + np.arange(count, dtype=np.int64).astype(step.dtype) * step, first.dtype)


@operator("EyeLike")
def _eye_like(node: Node, x: Any) -> Any:
    dtype = dtype_of_number(node["dtype"]) if node.get("dtype") else x.dtype
    return jnp.eye(*x.shape, k=node.get("k", 0), dtype=dtype)


@operator("Trilu")
def _triangle(node: Node, x: Any, k: Any = None) -> Any:
    diagonal = 0 if k is None else int(known(node, k, "diagonal").reshape(()))
    return jnp.triu(x, diagonal) if node.get("upper", 1) else jnp.tril(x, diagonal)


@operator("OneHot")
def _one_hot(node: Node, indices: Any, depth: Any, values: Any) -> Any:
    count = int(known(node, depth, "depth").reshape(-1)[0])
    axis = node.get("axis", -1)
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    wrapped = jnp.where(indices < 0, indices + count, indices)
    places = jnp.arange(count, dtype=wrapped.dtype).reshape([-1 if a == axis else 1 for a in range(indices.ndim + 1)])
    return jnp.where(jnp.expand_dims(wrapped, axis) == places, values[1], values[0])


@operator("DepthToSpace")
def _depth_to_space(node: Node, x: Any) -> Any:
    n, c, h, w = x.shape
    b = node["blocksize"]
    if node.get("mode", "DCR") == "DCR":
        return (
            jnp.reshape(x, (n, b, b, c // b**2, h, w)).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)
        )
    return jnp.reshape(x, (n, c // b**2, b, b, h, w)).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)


@operator("SpaceToDepth")
def _space_to_depth(node: Node, x: Any) -> Any:
    n, c, h, w = x.shape
    b = node["blocksize"]
    if node.get("mode", "DCR") == "DCR":
        order = (0, 3, 5, 1, 2, 4)
    else:
        order = (0, 1, 3, 5, 2, 4)
    return jnp.reshape(x, (n, c, h // b, b, w // b, b)).transpose(order).reshape(n, c * b * b, h // b, w // b)


@operator("ReverseSequence")
def _reverse_sequence(node: Node, x: Any, lengths: Any) -> Any:
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    moved = jnp.moveaxis(x, (batch, time), (0, 1))
    steps = jnp.arange(moved.shape[1])[None, :]
    ends = jnp.asarray(lengths)[:, None]
    order = jnp.where(steps < ends, ends - 1 - steps, steps)
    found = rlx.vmap(lambda row, at: row[at])(moved, order)
    return jnp.moveaxis(found, (0, 1), (batch, time))


# ------------------------------------------------------------------ elements by index
def _wrapped(indices: Any, size: int) -> Any:
    return jnp.where(indices < 0, indices + size, indices)


@operator("Gather")
def _gather(node: Node, x: Any, indices: Any) -> Any:
    axis = node.get("axis", 0)
    return jnp.take(x, _wrapped(jnp.asarray(indices), x.shape[axis]), axis=axis)


@operator("GatherElements")
def _gather_elements(node: Node, x: Any, indices: Any) -> Any:
    axis = node.get("axis", 0) % x.ndim
    return jnp.asarray(x)[_grid(_wrapped(jnp.asarray(indices), x.shape[axis]), axis)]


def _grid(indices: Any, axis: int) -> tuple[Any, ...]:
    """The index of each element, except along one axis."""
    places = jnp.meshgrid(*(jnp.arange(n) for n in indices.shape), indexing="ij", sparse=True)
    return tuple(indices if a == axis else p for a, p in enumerate(places))


@operator("GatherND")
def _gather_places(node: Node, x: Any, indices: Any) -> Any:
    def read(x: Any, places: Any) -> Any:
        return jnp.asarray(x)[tuple(_wrapped(places[..., k], x.shape[k]) for k in range(places.shape[-1]))]

    one: Callable[..., Any] = read
    for _ in range(node.get("batch_dims", 0)):
        one = rlx.vmap(one)
    return one(jnp.asarray(x), jnp.asarray(indices))


def _updated(x: Any, index: Any, updates: Any, reduction: str) -> Any:
    at = jnp.asarray(x).at[index]
    ways = {"none": at.set, "add": at.add, "mul": at.multiply, "max": at.max, "min": at.min}
    return ways[reduction](updates)


@operator("Scatter", "ScatterElements")
def _scatter_elements(node: Node, x: Any, indices: Any, updates: Any) -> Any:
    axis = node.get("axis", 0) % x.ndim
    index = _grid(_wrapped(jnp.asarray(indices), x.shape[axis]), axis)
    return _updated(x, index, updates, node.get("reduction", "none"))


@operator("ScatterND")
def _scatter_places(node: Node, x: Any, indices: Any, updates: Any) -> Any:
    indices = jnp.asarray(indices)
    index = tuple(_wrapped(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))
    return _updated(x, index, updates, node.get("reduction", "none"))


@operator("TensorScatter")
def _written(node: Node, past: Any, update: Any, at: Any = None) -> Any:
    axis = node.get("axis", -2) % past.ndim
    size, steps = past.shape[axis], update.shape[axis]
    starts = jnp.zeros(past.shape[0], jnp.int32) if at is None else jnp.asarray(at)

    def one(row: Any, new: Any, start: Any) -> Any:
        places = start + jnp.arange(steps)
        places = places % size if node.get("mode", "linear") == "circular" else places
        return jnp.moveaxis(jnp.moveaxis(row, axis - 1, 0).at[places].set(jnp.moveaxis(new, axis - 1, 0)), 0, axis - 1)

    return rlx.vmap(one)(jnp.asarray(past), jnp.asarray(update), starts)


# ------------------------------------------------------------------ value-dependent shapes
@operator("Compress")
def _compress(node: Node, x: Any, condition: Any) -> Any:
    chosen = np.flatnonzero(known(node, condition, "condition"))
    return jnp.take(x, chosen, axis=node.get("axis"))


@operator("NonZero")
def _non_zero(node: Node, x: Any) -> Any:
    return np.asarray(np.nonzero(known(node, x, "values")), np.int64)


@operator("Unique")
def _unique(node: Node, x: Any) -> Any:
    array, axis = known(node, x, "values"), node.get("axis")
    values, first, inverse, counts = np.unique(array, True, True, True, axis=axis)
    if not node.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        places = np.argsort(order, kind="stable")
        values = np.take(values, order, 0 if axis is None else axis)
        first, inverse, counts = first[order], places[inverse], counts[order]
    return values, first.astype(np.int64), inverse.reshape(-1).astype(np.int64), counts.astype(np.int64)


# ------------------------------------------------------------------ sorting
@operator("TopK")
def _largest(node: Node, x: Any, k: Any = None) -> Any:
    count = node["k"] if k is None else int(known(node, k, "number").reshape(-1)[0])
    axis = node.get("axis", -1)
    x = jnp.asarray(x)
    order = jnp.argsort(x, axis=axis, descending=bool(node.get("largest", 1)), stable=True)
    chosen = lax.slice_in_dim(order, 0, count, axis=axis % x.ndim)
    return jnp.take_along_axis(x, chosen, axis=axis), chosen.astype(jnp.int64)


@operator("ArgMax", "ArgMin")
def _extreme(node: Node, x: Any) -> Any:
    axis, keep = node.get("axis", 0) % x.ndim, bool(node.get("keepdims", 1))
    find = jnp.argmax if node.kind == "ArgMax" else jnp.argmin
    if not node.get("select_last_index", 0):
        return find(x, axis=axis, keepdims=keep).astype(jnp.int64)
    return (x.shape[axis] - 1 - find(jnp.flip(x, axis), axis=axis, keepdims=keep)).astype(jnp.int64)


@operator("CumSum", "CumProd")
def _cumulated(node: Node, x: Any, axis: Any) -> Any:
    at = int(known(node, axis, "axis").reshape(-1)[0]) % x.ndim
    function, one = (lax.cumsum, 0) if node.kind == "CumSum" else (lax.cumprod, 1)
    reverse = bool(node.get("reverse", 0))
    x = jnp.asarray(x)
    if node.get("exclusive", 0):
        first = jnp.full([1 if a == at else n for a, n in enumerate(x.shape)], one, x.dtype)
        size = x.shape[at]
        parts = (
            [lax.slice_in_dim(x, 1, size, axis=at), first]
            if reverse
            else [first, lax.slice_in_dim(x, 0, size - 1, axis=at)]
        )
        x = jnp.concatenate(parts, at)
    return function(x, axis=at, reverse=reverse)
