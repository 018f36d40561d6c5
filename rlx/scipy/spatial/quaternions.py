"""Quaternions (x, y, z, w) along the last axis, and other representations of rotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array

__all__ = [
    "about_axis",
    "canonical",
    "compose",
    "from_matrix",
    "from_modified_rodrigues",
    "from_rotation_vector",
    "inverse",
    "length",
    "magnitude",
    "normalised",
    "to_euler",
    "to_matrix",
    "to_modified_rodrigues",
    "to_rotation_vector",
]

_SMALL_ANGLE = 1e-3  # below, series are as exact as the functions, and differentiable
_DEGENERATE = 1e-7  # two axes of an Euler sequence coincide up to this angle


def _parts(x: Array) -> list[Array]:
    return [x[..., i] for i in range(x.shape[-1])]


def length(x: Array) -> Array:
    """The norms of vectors along the last axis, with the derivative zero where they are zero."""
    squared = jnp.sum(x * x, axis=-1)
    moving = squared > 0
    return jnp.where(moving, jnp.sqrt(jnp.where(moving, squared, 1)), 0)


def normalised(x: Array) -> Array:
    """Quaternions of norm one; NaN for norm zero."""
    return x / jnp.sqrt(jnp.sum(x * x, axis=-1, keepdims=True))


def inverse(x: Array) -> Array:
    """The opposite rotations."""
    return x * np.array([-1, -1, -1, 1], x.dtype)


def canonical(x: Array) -> Array:
    """Of the two quaternions of a rotation the one with the first of w, x, y, z positive that is not zero."""
    ordered = jnp.concatenate([x[..., 3:], x[..., :3]], axis=-1)
    leading = jnp.take_along_axis(ordered, jnp.argmax(ordered != 0, axis=-1, keepdims=True), axis=-1)
    return jnp.where(leading < 0, -x, x)


def compose(first: Array, second: Array) -> Array:
    """The rotations `second` and, after them, `first`: the product of quaternions."""
    a, b, c, d = _parts(first)
    x, y, z, w = _parts(second)
    return jnp.stack(
        [
            d * x + w * a + (b * z - c * y),
            d * y + w * b + (c * x - a * z),
            d * z + w * c + (a * y - b * x),
            d * w - a * x - b * y - c * z,
        ],
        axis=-1,
    )


def magnitude(x: Array) -> Array:
    """The angles of rotations, from 0 to pi."""
    return 2 * jnp.arctan2(length(x[..., :3]), jnp.abs(x[..., 3]))


# ------------------------------------------------------------------ angles about axes
def about_axis(axis: int, angle: Array) -> Array:
    """Rotations about one of the axes of coordinates."""
    parts = [jnp.zeros_like(angle)] * 3
    parts[axis] = jnp.sin(angle / 2)
    return jnp.stack([*parts, jnp.cos(angle / 2)], axis=-1)


def to_euler(x: Array, axes: Sequence[int], extrinsic: bool) -> Array:
    """Angles about three successive axes (Bernardes and Viollet 2022); the third is zero where they are not unique."""
    first, second, third = axes if extrinsic else tuple(reversed(axes))
    symmetric = first == third
    third = 3 - first - second if symmetric else third
    sign = (first - second) * (second - third) * (third - first) // 2
    real, along, across, last = x[..., 3], x[..., first], x[..., second], x[..., third] * sign
    if symmetric:
        a, b, c, d = real, along, across, last
    else:
        a, b, c, d = real - across, along + last, across + real, last - along
    middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
    half_sum, half_difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
    flat, turned = jnp.abs(middle) <= _DEGENERATE, jnp.abs(middle - np.pi) <= _DEGENERATE
    turning = 2 * half_difference * (-1 if extrinsic else 1)
    alone = jnp.where(flat, 2 * half_sum, turning)
    low, high = half_sum - half_difference, half_sum + half_difference
    unique = ~(flat | turned)
    opening = jnp.where(unique, low if extrinsic else high, alone)
    closing = jnp.where(unique, high if extrinsic else low, 0)
    if not symmetric:
        opening, closing = (opening, closing * sign) if extrinsic else (opening * sign, closing)
        middle = middle - np.pi / 2
    angles = jnp.stack([opening, middle, closing], axis=-1)
    angles = jnp.where(angles < -np.pi, angles + 2 * np.pi, angles)
    return jnp.where(angles > np.pi, angles - 2 * np.pi, angles)


# ------------------------------------------------------------------ vectors
def from_rotation_vector(vector: Array) -> Array:
    """Rotations about a vector by its length."""
    angle = length(vector)[..., None]
    squared = angle * angle
    small = angle <= _SMALL_ANGLE
    safe = jnp.where(small, 1, angle)
    scale = jnp.where(small, 0.5 - squared / 48 + squared * squared / 3840, jnp.sin(safe / 2) / safe)
    return jnp.concatenate([scale * vector, jnp.cos(angle / 2)], axis=-1)


def to_rotation_vector(x: Array) -> Array:
    """The axes of rotations, as long as their angles."""
    x = canonical(x)
    angle = 2 * jnp.arctan2(length(x[..., :3]), x[..., 3])[..., None]
    squared = angle * angle
    small = angle <= _SMALL_ANGLE
    safe = jnp.where(small, 1, angle)
    scale = jnp.where(small, 2 + squared / 12 + 7 * squared * squared / 2880, safe / jnp.sin(safe / 2))
    return scale * x[..., :3]


def from_modified_rodrigues(vector: Array) -> Array:
    """Rotations about a vector of length tan(angle / 4)."""
    squared = jnp.sum(vector * vector, axis=-1, keepdims=True)
    return jnp.concatenate([2 * vector, 1 - squared], axis=-1) / (1 + squared)


def to_modified_rodrigues(x: Array) -> Array:
    """The axes of rotations, of length tan(angle / 4)."""
    sign = jnp.where(x[..., 3:] < 0, -1, 1)
    return sign * x[..., :3] / (1 + sign * x[..., 3:])


# ------------------------------------------------------------------ matrices
def to_matrix(quaternion: Array) -> Array:
    """Rotations as matrices, (..., 3, 3)."""
    x, y, z, w = _parts(quaternion)
    rows: list[list[Any]] = [
        [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def from_matrix(matrix: Array) -> Array:
    """Rotations from orthogonal matrices: of four formulas the one that divides by the largest number."""
    m = [[matrix[..., i, j] for j in range(3)] for i in range(3)]
    trace = m[0][0] + m[1][1] + m[2][2]
    formulas: list[list[Any]] = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts: list[Any] = [None] * 4
        parts[i], parts[j], parts[k] = 1 - trace + 2 * m[i][i], m[j][i] + m[i][j], m[k][i] + m[i][k]
        parts[3] = m[k][j] - m[j][k]
        formulas.append(parts)
    formulas.append([m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1], 1 + trace])
    choice = jnp.argmax(jnp.stack([m[0][0], m[1][1], m[2][2], trace], axis=-1), axis=-1)
    candidates = jnp.stack([jnp.stack(parts, axis=-1) for parts in formulas], axis=-2)
    return normalised(jnp.take_along_axis(candidates, choice[..., None, None], axis=-2)[..., 0, :])
