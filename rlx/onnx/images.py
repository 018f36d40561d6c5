"""Operators on images: resizing, interpolation, boxes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.onnx.nodes import Node, known, operator

__all__: list[str] = []


# ------------------------------------------------------------------ Resize
def _source(node: Node, i: int, scale: float, size: int, whole: int, roi: tuple[float, float]) -> float:
    """The source position, in an axis of `size` elements, of element i of `whole` = floor(scale * size)."""
    out = scale * size
    mode = node.get("coordinate_transformation_mode", "half_pixel" if node.version >= 11 else "asymmetric")
    if mode == "align_corners":
        return 0.0 if out == 1 else i * (size - 1) / (out - 1)
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        middle = (end - start) * (size - 1) / 2 if out == 1 else i * (end - start) * (size - 1) / (out - 1)
        return middle + start * (size - 1)
    if mode == "pytorch_half_pixel" and out == 1:
        return -0.5
    found = (i + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        found += size / 2 * (1 - whole / out)
    return found


def _coefficients(node: Node, ratio: float, scale: float) -> np.ndarray:
    """Weights of the elements around a position at a distance `ratio` after one element."""
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        way = node.get("nearest_mode", "round_prefer_floor" if node.version >= 11 else "floor")
        left = {"round_prefer_floor": ratio <= 0.5, "round_prefer_ceil": ratio < 0.5, "floor": True, "ceil": False}[way]
        return np.array([1.0, 0.0] if left and ratio != 1 else [0.0, 1.0])
    scale = min(scale, 1.0) if node.get("antialias", 0) else 1.0
    reach = 1 if mode == "linear" else 2
    start = math.floor(-reach / scale) + 1
    places = np.abs((np.arange(start, 2 - start) - ratio) * scale)
    if mode == "linear":
        found = np.clip(1 - places, 0, 1)
    else:
        a = node.get("cubic_coeff_a", -0.75)
        near = ((a + 2) * places - (a + 3)) * places**2 + 1
        far = ((places - 5) * places + 8) * a * places - 4 * a
        found = np.where(places <= 1, near, np.where(places < 2, far, 0.0))
    return found / found.sum() if node.get("antialias", 0) else found


def _weights(node: Node, scale: float, size: int, out: int, roi: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The weight of each element for each result element, and which results are outside."""
    found, outside = np.zeros((out, size)), np.zeros(out, bool)
    for i in range(out):
        x = _source(node, i, scale, size, out, roi)
        ratio = x - math.floor(x) or 1.0
        weights = _coefficients(node, ratio, scale)
        first = math.ceil(x) - len(weights) // 2
        places = np.arange(first, first + len(weights))
        if node.get("exclude_outside", 0):
            weights = np.where((places >= 0) & (places < size), weights, 0.0)
            weights = weights / weights.sum()
        np.add.at(found[i], np.clip(places, 0, size - 1), weights)
        outside[i] = not 0 <= x <= size - 1
    return found, outside


@operator("Resize", "Upsample")
def _resize(node: Node, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    if node.kind == "Upsample" or node.version < 11:
        scales, roi = (node["scales"] if roi is None else roi), None
    axes = [a % x.ndim for a in node.get("axes") or range(x.ndim)]
    given = [x.shape[a] for a in axes]
    if sizes is not None and np.size(sizes):
        outs = [int(n) for n in known(node, sizes, "sizes")]
        factors = [o / s for o, s in zip(outs, given, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors, outs = [factor] * len(axes), [math.floor(factor * s + 0.5) for s in given]
    else:
        numbers = scales if isinstance(scales, list) else known(node, scales, "scales")
        factors = [float(f) for f in numbers]
        outs = [math.floor(s * f) for s, f in zip(given, factors, strict=True)]
    crop = node.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    corners = known(node, roi, "region") if crop else np.array([0.0] * len(axes) + [1.0] * len(axes))
    found = jnp.asarray(x)
    for n, (axis, factor, size, out) in enumerate(zip(axes, factors, given, outs, strict=True)):
        box = float(corners[n]), float(corners[n + len(axes)])
        if size == out and factor == 1.0 and box == (0.0, 1.0):
            continue
        weights, outside = _weights(node, factor, size, out, box)
        found = _along_axis(node, found, weights, axis)
        if crop and outside.any():
            shape = [-1 if a == axis else 1 for a in range(x.ndim)]
            value = jnp.asarray(node.get("extrapolation_value", 0.0), found.dtype)
            found = jnp.where(outside.reshape(shape), value, found)
    return found.astype(x.dtype)


def _along_axis(node: Node, x: Any, weights: np.ndarray, axis: int) -> Any:
    if node.get("mode", "nearest") == "nearest":
        return jnp.take(x, weights.argmax(1), axis=axis)
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float32
    return jnp.moveaxis(jnp.tensordot(x.astype(dtype), jnp.asarray(weights, dtype), ([axis], [1])), -1, axis)


# ------------------------------------------------------------------ GridSample
def _reflected(x: Any, low: float, high: float) -> Any:
    span = high - low
    if span == 0:
        return jnp.full(x.shape, low, x.dtype)
    away = jnp.mod(x - low, 2 * span)
    return low + jnp.where(away > span, 2 * span - away, away)


def _moved_inside(x: Any, size: int, mode: str, aligned: bool) -> Any:
    """Map a coordinate by the padding mode."""
    if mode == "border":
        return jnp.clip(x, 0, size - 1)
    if mode == "reflection":
        low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
        return jnp.where((x < low) | (x > high), _reflected(x, low, high), x)
    return x


def _pixels(image: Any, places: Sequence[Any], mode: str, aligned: bool) -> Any:
    """Pixels of one image (channels, ...) at integer coordinates, by the padding mode."""
    sizes = image.shape[1:]
    inside: Any = True
    index = []
    for place, size in zip(places, sizes, strict=True):
        at = _moved_inside(place, size, mode, aligned)
        inside = inside & (at >= 0) & (at <= size - 1)
        index.append(jnp.clip(jnp.round(at), 0, size - 1).astype(jnp.int32))
    return jnp.where(inside, image[(slice(None), *index)], jnp.zeros((), image.dtype))


def _cubic(t: Any, a: float = -0.75) -> list[Any]:
    def far(s: Any) -> Any:
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    def near(s: Any) -> Any:
        return ((a + 2) * s - (a + 3)) * s * s + 1

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


@operator("GridSample")
def _grid_sample(node: Node, x: Any, grid: Any) -> Any:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.get("mode", "linear"), node.get("mode", "linear"))
    rule, aligned = node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0))
    sizes = x.shape[2:]

    def one(image: Any, points: Any) -> Any:
        coordinates = []
        for n, size in enumerate(sizes):
            p = points[..., len(sizes) - 1 - n]
            at = (p + 1) / 2 * (size - 1) if aligned else ((p + 1) * size - 1) / 2
            coordinates.append(jnp.round(at) if mode == "nearest" else at)
        coordinates = [_moved_inside(c, s, rule, aligned) for c, s in zip(coordinates, sizes, strict=True)]
        if mode == "nearest":
            return _pixels(image, coordinates, rule, aligned)
        floors = [jnp.floor(c) for c in coordinates]
        parts = [c - f for c, f in zip(coordinates, floors, strict=True)]
        weights = [_cubic(t) if mode == "cubic" else [1 - t, t] for t in parts]
        shift = 1 if mode == "cubic" else 0
        total: Any = 0.0
        for offsets in itertools.product(*(range(len(w)) for w in weights)):
            factor = math.prod((w[o] for w, o in zip(weights, offsets, strict=True)), start=jnp.asarray(1.0, x.dtype))
            places = [f + (o - shift) for f, o in zip(floors, offsets, strict=True)]
            total = total + factor * _pixels(image, places, rule, aligned)
        return total

    return jnp.stack([one(jnp.asarray(x)[n], jnp.asarray(grid)[n]) for n in range(x.shape[0])]).astype(x.dtype)


# ------------------------------------------------------------------ boxes
@operator("RoiAlign")
def _roi_align(node: Node, x: Any, rois: Any, batch: Any) -> Any:
    boxes, owners = known(node, rois, "boxes"), known(node, batch, "batch indices")
    oh, ow = node.get("output_height", 1), node.get("output_width", 1)
    ratio, scale = node.get("sampling_ratio", 0), node.get("spatial_scale", 1.0)
    half = node.get("coordinate_transformation_mode", "half_pixel" if node.version >= 16 else "output_half_pixel")
    shift = 0.5 if half == "half_pixel" else 0.0
    average = node.get("mode", "avg") == "avg"
    found = []
    for box, owner in zip(boxes, owners, strict=True):
        x1, y1, x2, y2 = (float(v) * scale - shift for v in box)
        width, height = x2 - x1, y2 - y1
        if not shift:
            width, height = max(width, 1.0), max(height, 1.0)
        ny = ratio or math.ceil(height / oh)
        nx = ratio or math.ceil(width / ow)
        ys = y1 + (np.arange(oh * ny) + 0.5) * height / (oh * ny)
        xs = x1 + (np.arange(ow * nx) + 0.5) * width / (ow * nx)
        points = _samples(jnp.asarray(x)[int(owner)], ys, xs, average)
        blocks = points.reshape(points.shape[0], *((oh, ny, ow, nx) if average else (oh, ny, ow, nx, 4)))
        found.append(blocks.mean(axis=(2, 4)) if average else blocks.max(axis=(2, 4, 5)))
    return jnp.stack(found).astype(x.dtype)


def _samples(image: Any, ys: np.ndarray, xs: np.ndarray, summed: bool) -> Any:
    """Weighted pixels of (channels, height, width) at a grid of positions: their sums, or the four of each position."""
    height, width = image.shape[1:]
    outside = ((ys < -1) | (ys > height))[:, None] | ((xs < -1) | (xs > width))[None, :]
    y, z = np.clip(ys, 0, None), np.clip(xs, 0, None)
    low = np.minimum(np.floor(y), height - 1), np.minimum(np.floor(z), width - 1)
    y, z = np.where(low[0] >= height - 1, low[0], y), np.where(low[1] >= width - 1, low[1], z)
    parts = []
    for a, b in itertools.product((0, 1), repeat=2):
        i, j = np.minimum(low[0] + a, height - 1).astype(int), np.minimum(low[1] + b, width - 1).astype(int)
        wy, wz = np.abs(1 - a - (y - low[0])), np.abs(1 - b - (z - low[1]))
        weight = np.where(outside, 0.0, wy[:, None] * wz[None, :]).astype(np.float32)
        parts.append(image[:, i[:, None], j[None, :]] * weight)
    return sum(parts[1:], parts[0]) if summed else jnp.stack(parts, -1)


@operator("NonMaxSuppression")
def _best_boxes(node: Node, boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None) -> Any:
    boxes, scores = known(node, boxes, "boxes"), known(node, scores, "scores")

    def number(value: Any, default: float) -> float:
        return default if value is None else known(node, value, "limits").reshape(-1)[0].item()

    limit, threshold, floor = number(most, 0), number(overlap, 0.0), number(least, -math.inf)
    chosen: list[list[int]] = []
    for n, kind in itertools.product(range(scores.shape[0]), range(scores.shape[1])):
        kept: list[int] = []
        for box in np.argsort(-scores[n, kind], kind="stable"):
            if len(kept) >= limit or not scores[n, kind, box] > floor:
                break
            corners = [_corners(boxes[n, b], node.get("center_point_box", 0)) for b in (box, *kept)]
            if all(_overlap(corners[0], other) <= threshold for other in corners[1:]):
                kept.append(int(box))
        chosen += [[n, kind, box] for box in kept]
    return np.asarray(chosen, np.int64).reshape(-1, 3)


def _corners(box: np.ndarray, centred: int) -> tuple[float, float, float, float]:
    a, b, c, d = map(float, box)
    if centred:
        return b - d / 2, a - c / 2, b + d / 2, a + c / 2
    return min(a, c), min(b, d), max(a, c), max(b, d)


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    height = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
    width = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (one, other)]
    union = sum(areas) - height * width
    return height * width / union if union > 0 else 0.0
