"""Operators on windows of images: convolutions and pooling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.onnx.nodes import Node, known, operator

__all__ = ["convolution"]

Pairs = list[tuple[int, int]]


def _pairs(pads: Sequence[int]) -> Pairs:
    half = len(pads) // 2
    return [(pads[n], pads[n + half]) for n in range(half)]


def _padding(
    node: Node, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Pairs:
    """The padding of each axis, by the attributes auto_pad and pads."""
    way = node.get("auto_pad", "NOTSET")
    if way in ("NOTSET", ""):
        return _pairs(node.get("pads") or [0] * (2 * len(sizes)))
    if way == "VALID":
        return [(0, 0)] * len(sizes)
    found = []
    for size, k, stride, dilation in zip(sizes, window, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        small = total // 2
        found.append((small, total - small) if way == "SAME_UPPER" else (total - small, small))
    return found


def _layout(ndim: int) -> Any:
    return lax.conv_dimension_numbers((1,) * ndim, (1,) * ndim, None)


def convolution(node: Node, x: Any, w: Any) -> Any:
    """The convolution of a node without its bias."""
    window = w.shape[2:]
    n = len(window)
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    padding = _padding(node, x.shape[2:], window, strides, dilations)
    return lax.conv_general_dilated(
        jnp.asarray(x),
        jnp.asarray(w),
        strides,
        padding,
        rhs_dilation=dilations,
        feature_group_count=node.get("group", 1),
    )


def _with_bias(found: Any, bias: Any) -> Any:
    return found if bias is None else found + jnp.reshape(bias, (1, -1, *[1] * (found.ndim - 2)))


@operator("Conv")
def _convolution(node: Node, x: Any, w: Any, bias: Any = None) -> Any:
    return _with_bias(convolution(node, x, w), bias)


@operator("ConvTranspose")
def _transposed(node: Node, x: Any, w: Any, bias: Any = None) -> Any:
    window = w.shape[2:]
    n = len(window)
    groups = node.get("group", 1)
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    extra = node.get("output_padding") or [0] * n
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    full = [(size - 1) * s + span for size, s, span in zip(x.shape[2:], strides, spans, strict=True)]
    way = node.get("auto_pad", "NOTSET")
    if node.get("output_shape") or way.startswith("SAME"):
        wanted = node.get("output_shape") or [size * s for size, s in zip(x.shape[2:], strides, strict=True)]
        wanted = wanted[-n:]
        totals = [max(f + e - size, 0) for f, e, size in zip(full, extra, wanted, strict=True)]
        halves = [(t // 2, t - t // 2) for t in totals]
        cuts = halves if way == "SAME_UPPER" else [(b, a) for a, b in halves]
        extra = [size - (f - a - b) for size, f, (a, b) in zip(wanted, full, cuts, strict=True)]
    else:
        cuts = _pairs(node.get("pads") or [0] * (2 * n))
    # convolve the image, with zeros between its pixels, with the flipped kernel
    kernel = jnp.flip(jnp.asarray(w), tuple(range(2, 2 + n)))
    inner, outer = w.shape[0] // groups, w.shape[1]
    kernel = kernel.reshape(groups, inner, outer, *window).swapaxes(1, 2).reshape(groups * outer, inner, *window)
    padding = [(span - 1 - a, span - 1 - b + e) for span, (a, b), e in zip(spans, cuts, extra, strict=True)]
    found = lax.conv_general_dilated(
        jnp.asarray(x), kernel, (1,) * n, padding, strides, dilations, feature_group_count=groups
    )
    return _with_bias(found, bias)


# ------------------------------------------------------------------ pooling
def _pool(node: Node, x: Any) -> tuple[list[int], list[int], list[int], Pairs]:
    """Window, strides, dilations and padding of a pooling node, with the padding that ceil_mode adds at the end."""
    window = node["kernel_shape"]
    n = len(window)
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    padding = _padding(node, x.shape[2:], window, strides, dilations)
    if node.get("ceil_mode", 0):
        padding = [
            _ceiled(size, k, s, d, pair)
            for size, k, s, d, pair in zip(x.shape[2:], window, strides, dilations, padding, strict=True)
        ]
    return window, strides, dilations, padding


def _ceiled(size: int, k: int, stride: int, dilation: int, pair: tuple[int, int]) -> tuple[int, int]:
    """Padding that includes a last, partial window, unless it starts in the padding at the end."""
    span = (k - 1) * dilation + 1
    count = -(-(size + sum(pair) - span) // stride) + 1
    if (count - 1) * stride >= size + pair[0]:
        count -= 1
    return pair[0], max(pair[1], (count - 1) * stride + span - size - pair[0])


def _reduced(x: Any, start: Any, function: Any, window: Any, strides: Any, dilations: Any, padding: Any) -> Any:
    ones = (1, 1)
    return lax.reduce_window(
        jnp.asarray(x), start, function, (*ones, *window), (*ones, *strides), [(0, 0), (0, 0), *padding],
        window_dilation=(*ones, *dilations),
    )  # fmt: skip


def _lowest(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(-np.inf).astype(dtype)
    return np.asarray(jnp.iinfo(dtype).min, dtype)


@operator("MaxPool")
def _max_pool(node: Node, x: Any) -> Any:
    window, strides, dilations, padding = _pool(node, x)
    found = _reduced(x, _lowest(x.dtype), lax.max, window, strides, dilations, padding)
    if not node.wants(1):
        return found
    # the position of each maximum: pair the windows' elements with their indices
    sizes = x.shape[2:]
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    if node.get("storage_order", 0):
        numbers = np.arange(math.prod(sizes)).reshape(sizes[::-1]).T
    places = np.pad(numbers, padding, constant_values=-1)
    values = jnp.pad(jnp.asarray(x), [(0, 0), (0, 0), *padding], constant_values=_lowest(x.dtype))
    shape = found.shape[2:]
    best, at = None, None
    for offsets in itertools.product(*map(range, window)):
        cut = tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, n, s in zip(offsets, dilations, shape, strides, strict=True)
        )
        here, place = values[(slice(None), slice(None), *cut)], jnp.asarray(places[cut])
        better = here > best if best is not None else None
        best = here if better is None else jnp.where(better, here, best)
        at = jnp.broadcast_to(place, here.shape) if better is None else jnp.where(better, place, at)
    offsets = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(shape)) * math.prod(sizes)
    return found, jnp.asarray(at) + offsets


@operator("AveragePool")
def _average_pool(node: Node, x: Any) -> Any:
    window, strides, dilations, padding = _pool(node, x)
    zero = np.zeros((), x.dtype)
    sums = _reduced(x, zero, lax.add, window, strides, dilations, padding)
    if node.get("count_include_pad", 0):
        plain = _padding(node, x.shape[2:], window, strides, dilations)
        around = jnp.pad(jnp.ones((1, 1, *x.shape[2:]), x.dtype), [(0, 0), (0, 0), *plain], constant_values=1)
        rest = [(0, b - q) for (_, b), (_, q) in zip(padding, plain, strict=True)]
        return sums / _reduced(around, zero, lax.add, window, strides, dilations, rest)
    counts = _reduced(jnp.ones((1, 1, *x.shape[2:]), x.dtype), zero, lax.add, window, strides, dilations, padding)
    return sums / counts


@operator("LpPool")
def _lp_pool(node: Node, x: Any) -> Any:
    p = node.get("p", 2)
    sums = _reduced(jnp.abs(x) ** p, np.zeros((), x.dtype), lax.add, *_pool(node, x))
    return sums ** (1.0 / p)


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(node: Node, x: Any) -> Any:
    over = tuple(range(2, x.ndim))
    if node.kind == "GlobalAveragePool":
        return jnp.mean(x, axis=over, keepdims=True)
    if node.kind == "GlobalMaxPool":
        return jnp.max(x, axis=over, keepdims=True)
    p = node.get("p", 2)
    return jnp.sum(jnp.abs(x) ** p, axis=over, keepdims=True) ** (1.0 / p)


@operator("MaxUnpool")
def _unpool(node: Node, x: Any, places: Any, shape: Any = None) -> Any:
    n = x.ndim - 2
    window, strides = node["kernel_shape"], node.get("strides") or [1] * n
    pads = _pairs(node.get("pads") or [0] * (2 * n))
    plain = [(s - 1) * t - a - b + k for s, t, (a, b), k in zip(x.shape[2:], strides, pads, window, strict=True)]
    sizes = [*x.shape[:2], *plain]
    flat = jnp.zeros(math.prod(sizes), x.dtype).at[jnp.reshape(places, -1)].set(jnp.reshape(x, -1)).reshape(sizes)
    if shape is None:
        return flat
    wanted = [int(v) for v in known(node, shape, "output shape")]
    return jnp.pad(flat, [(0, w - s) for w, s in zip(wanted, sizes, strict=True)])


@operator("Col2Im")
def _image_of_columns(node: Node, x: Any, shape: Any, block: Any) -> Any:
    sizes = [int(v) for v in known(node, shape, "image shape")]
    window = [int(v) for v in known(node, block, "block shape")]
    n = len(sizes)
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    pads = _pairs(node.get("pads") or [0] * (2 * n))
    full = [s + a + b for s, (a, b) in zip(sizes, pads, strict=True)]
    counts = [(f - (k - 1) * d - 1) // s + 1 for f, k, d, s in zip(full, window, dilations, strides, strict=True)]
    columns = jnp.reshape(x, (x.shape[0], -1, *window, *counts))
    found = jnp.zeros((x.shape[0], columns.shape[1], *full), x.dtype)
    every = (slice(None), slice(None))
    for offsets in itertools.product(*map(range, window)):
        cut = tuple(
            slice(o * d, o * d + (c - 1) * s + 1, s)
            for o, d, c, s in zip(offsets, dilations, counts, strides, strict=True)
        )
        found = found.at[(*every, *cut)].add(columns[(*every, *offsets)])
    return found[(*every, *(slice(a, f - b) for f, (a, b) in zip(full, pads, strict=True)))]


@operator("DeformConv")
def _deformed(node: Node, x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """Windows with offset sampling points, interpolated between pixels."""
    kh, kw = w.shape[2:]
    (sh, sw), (dh, dw) = node.get("strides") or [1, 1], node.get("dilations") or [1, 1]
    (top, _), (left, _) = _pairs(node.get("pads") or [0] * 4)
    groups, parts = node.get("group", 1), node.get("offset_group", 1)
    n, c, height, width = x.shape
    oh, ow = offset.shape[2:]
    moves = jnp.reshape(offset, (n, parts, kh * kw, 2, oh, ow))
    rows = (jnp.arange(oh) * sh - top)[None, :, None] + (jnp.arange(kh * kw) // kw * dh)[:, None, None]
    columns = (jnp.arange(ow) * sw - left)[None, None, :] + (jnp.arange(kh * kw) % kw * dw)[:, None, None]
    y, z = rows + moves[:, :, :, 0], columns + moves[:, :, :, 1]
    images = jnp.reshape(x, (n, parts, c // parts, height, width))

    def read(image: Any, y: Any, z: Any) -> Any:
        total: Any = 0.0
        for a, b in itertools.product((0, 1), repeat=2):
            i, j = jnp.floor(y) + a, jnp.floor(z) + b
            weight = (1 - jnp.abs(y - i)) * (1 - jnp.abs(z - j))
            inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
            at = jnp.clip(i, 0, height - 1).astype(jnp.int32), jnp.clip(j, 0, width - 1).astype(jnp.int32)
            total = total + jnp.where(inside, weight, 0.0) * image[:, at[0], at[1]]
        return total

    taken = rlx.vmap(rlx.vmap(read))(images, y, z)  # n, parts, channels, points, oh, ow
    if mask is not None:
        taken = taken * jnp.reshape(mask, (n, parts, 1, kh * kw, oh, ow))
    taken = taken.reshape(n, groups, c // groups, kh * kw, oh, ow)
    kernel = jnp.reshape(w, (groups, -1, c // groups, kh * kw))
    found = jnp.einsum("ngckyx,gock->ngoyx", taken, kernel).reshape(n, -1, oh, ow)
    return _with_bias(found, bias)
