"""Scenes of splats, and their images by NumPy in float64: every splat at every pixel, without tiles; and random lists
for the two blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.splat import Camera, intersections, render
from rlx.splat.rasterise import splat_rasterise, splat_rasterise_gradient


def drawn(count: int, seed: int = 0, *, spread: float = 1.0, size: float = -1.5, dtype: Any = np.float64) -> list[Any]:
    """means, quats, log_scales, opacities, colors of random splats around the origin."""
    rng = np.random.default_rng(seed)
    arrays = [
        rng.normal(size=(count, 3)) * spread,
        rng.normal(size=(count, 4)),
        rng.normal(size=(count, 3)) * 0.4 + size,
        rng.uniform(0.1, 0.9, size=count),
        rng.uniform(size=(count, 3)),
    ]
    return [a.astype(dtype) for a in arrays]


def camera_at(width: int, height: int, *, angle: float = 0.3, distance: float = 5.0, dtype: Any = "float64") -> Camera:
    """A camera on a circle around the origin."""
    eye = (distance * np.sin(angle), 0.5, -distance * np.cos(angle))
    made = Camera.look_at(eye, (0.0, 0.1, 0.0), fov_y=50.0, width=width, height=height, dtype=dtype)
    return Camera(*(np.asarray(x) for x in made))


def splats_program(count: int, size: int) -> tuple[Any, ...]:
    """A function that renders splats in float32, and its arguments."""
    scene, camera = drawn(count, size=-3.0, dtype=np.float32), camera_at(size, size, dtype="float32")
    capacity = intersections(*scene[:3], camera, size, size)
    return lambda *s: render(*s, camera, size, size, capacity=capacity).rgb, *scene


def listed(tile: int, channels: int, perspective: bool, dtype: Any, seed: int = 0) -> list[np.ndarray]:
    """splats, order, starts, ends, origins of six tiles with random lists: an empty one, and a long opaque one."""
    rng = np.random.default_rng(seed)
    columns, count, lengths = 3, 40, np.array([0, 9, 70, 3, 1, 25])
    y, x = np.divmod(np.arange(6), columns)
    middles = rng.uniform(-2, 1.2, size=(count, 2)) * tile + np.array([tile * 2, tile])
    factors = rng.normal(size=(count, 2, 2)) / tile * 3
    forms = np.einsum("nij,nkj->nik", factors, factors) + 0.01 * np.eye(2)
    numbers = [
        middles,
        np.stack([forms[:, 0, 0], forms[:, 0, 1], forms[:, 1, 1]], -1),
        rng.uniform(0.01, 1.2, size=(count, 1)),
        rng.normal(size=(count, channels)),
        *([rng.normal(size=(count, 5)) * 0.02] if perspective else []),
    ]
    splats = np.concatenate(numbers, -1).astype(dtype)
    splats[:2, 5] = 0.0, 1.0
    ends = np.cumsum(lengths).astype(np.int32)
    order = rng.integers(0, count, size=ends[-1] + 5).astype(np.int32)
    return [splats, order, ends - lengths.astype(np.int32), ends, (np.stack([x, y], -1) * tile).astype(dtype)]


def both_blocks(operands: Any, tile: int, channels: int, cotangent: Any) -> Any:
    """The results of the two blocks."""
    image, seen = splat_rasterise(*operands, tile=tile, channels=channels)
    moved = splat_rasterise_gradient(*operands, image, seen, cotangent, tile=tile, channels=channels)
    return image, seen, moved


def blocks_program(tile: int, channels: int, perspective: bool, dtype: Any) -> tuple[Any, ...]:
    """A function that calls the two blocks, and its arguments."""
    operands = listed(tile, channels, perspective, dtype)
    cotangent = np.random.default_rng(1).normal(size=(6, tile * tile, channels + 1)).astype(dtype)
    return lambda *xs: both_blocks(xs[:-1], tile, channels, xs[-1]), *operands, cotangent


def rotations(quats: np.ndarray) -> np.ndarray:
    w, x, y, z = (quats / np.linalg.norm(quats, axis=-1, keepdims=True)).T
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    ).transpose(2, 0, 1)


def image(
    means: Any, quats: Any, log_scales: Any, opacities: Any, colors: Any, camera: Camera, width: int, height: int,
    *, method: str = "ewa", background: Any = 0.0, near: float = 0.01, far: float = 1e10, eps2d: float = 0.3,
    antialiased: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Colours, alpha and depth."""
    given = [np.asarray(a, np.float64) for a in (means, quats, log_scales, opacities, colors)]
    means, quats, log_scales, opacities, colors = given
    camera = Camera(*(np.asarray(x, np.float64) for x in camera))
    py, px = np.mgrid[:height, :width] + 0.5
    places = means @ camera.rotation.T + camera.translation
    depths = places[:, 2] if method == "ewa" else np.linalg.norm(places, axis=1)
    order = np.argsort(depths, kind="stable")
    light, alpha_stop = np.ones((height, width)), np.ones((height, width), bool)
    colour, depth = np.zeros((height, width, colors.shape[1])), np.zeros((height, width))
    exponent_of = _affine if method == "ewa" else _nearest
    for n in order:
        if not near < places[n, 2] < far:
            continue
        factor = camera.rotation @ rotations(quats[n : n + 1])[0] * np.exp(log_scales[n])
        exponent, dim = exponent_of(places[n], factor, camera, width, height, px, py, eps2d)
        alpha = opacities[n] * (dim if antialiased else 1.0) * np.exp(-exponent)
        drawn = (exponent >= 0) & (alpha >= 1 / 255)
        alpha = np.where(drawn, np.minimum(alpha, 0.99), 0.0)
        less = light * (1 - alpha)
        alpha_stop &= ~(drawn & (less <= 1e-4))
        weight = np.where(alpha_stop, light * alpha, 0.0)
        colour += weight[..., None] * colors[n]
        depth += weight * depths[n]
        light = np.where(alpha_stop, less, light)
    return colour + light[..., None] * np.asarray(background), 1 - light, depth


def _affine(
    t: np.ndarray, factor: np.ndarray, camera: Camera, width: int, height: int, px: np.ndarray, py: np.ndarray,
    eps2d: float,
) -> tuple[np.ndarray, float]:  # fmt: skip
    """EWA: the exponent, and the factor of the opacity."""
    x, y, z = t
    fx, fy, cx, cy = camera.fx, camera.fy, camera.cx, camera.cy
    margin_x, margin_y = 0.3 * 0.5 * width / fx, 0.3 * 0.5 * height / fy
    sx = np.clip(x / z, -(cx / fx + margin_x), (width - cx) / fx + margin_x)
    sy = np.clip(y / z, -(cy / fy + margin_y), (height - cy) / fy + margin_y)
    jacobian = np.array([[fx / z, 0, -fx * sx / z], [0, fy / z, -fy * sy / z]])
    sharp = jacobian @ factor @ factor.T @ jacobian.T
    blurred = sharp + eps2d * np.eye(2)
    d = np.stack([px - (fx * x / z + cx), py - (fy * y / z + cy)], -1)
    exponent = 0.5 * np.einsum("hwi,ij,hwj->hw", d, np.linalg.inv(blurred), d)
    ratio = np.linalg.det(sharp) / np.linalg.det(blurred)
    return exponent, float(np.sqrt(max(ratio, 2.5e-5)))


def _nearest(
    t: np.ndarray, factor: np.ndarray, camera: Camera, width: int, height: int, px: np.ndarray, py: np.ndarray,
    eps2d: float,
) -> tuple[np.ndarray, float]:  # fmt: skip
    """The exponent at the point of each ray where it is smallest; infinite behind the camera."""
    whitening = np.linalg.inv(factor)
    rays = np.stack([(px - camera.cx) / camera.fx, (py - camera.cy) / camera.fy, np.ones_like(px)], -1)
    u, w = -whitening @ t, rays @ whitening.T
    time = -(w @ u) / np.sum(w * w, -1)
    closest = u + time[..., None] * w
    return np.where(time > 0, 0.5 * np.sum(closest**2, -1), np.inf), 1.0
