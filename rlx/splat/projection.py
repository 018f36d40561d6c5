"""Gaussians seen by a camera: their footprints in the image plane.

A footprint is the exponent as a function of the offset d = (x, y) of a pixel's centre from the projected mean. The
method "ewa" takes the affine approximation of the projection at the mean, where the exponent is a quadratic form
q(d) = (a x^2 + c y^2) / 2 + b x y. The method "ray" takes the largest density on each ray. With the whitening matrix A
of a splat, its centre u = -A mean and a ray w(d), the square of the distance is |u x w|^2 / |w|^2. For the ray through
the mean the product vanishes, and w is linear in d, so that the exponent is q(d) / p(d) for a polynomial
p(d) = 1 + 2 (e x + f y) + g x^2 + 2 h x y + k y^2. The terms of q(d) cancel where splats are thin and oblique: with
method "ray", float32 is inexact for splats that are much thinner than a pixel.

Source: Zwicker, Pfister, van Baar, Gross: EWA Splatting (2002).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.splat.camera import Camera

__all__ = ["RADIUS", "Footprints", "covariances", "project", "rotation_matrices"]

RADIUS = 3.33  # standard deviations: there, opacity 1 is below the cutoff 1/255
_LEAST_COMPENSATION = 2.5e-5
_MARGIN = 0.3  # of the image's tangent, to which the affine approximation's place is clamped


class Footprints(NamedTuple):
    """Splats in the image plane.

    means: (N, 2); conics: (N, 3), the numbers a, b, c; perspective: (N, 5) the numbers e to k for the method "ray",
    (N, 0) else; opacity_factors: (N,), below 1 for antialiased splats; depths: (N,), by which splats are sorted and the
    value of a depth image; lows, highs: (N, 2), bounds in pixels; visible: bools (N,).

    >>> import numpy as np
    >>> from rlx.splat import Camera, init_from_points, project
    >>> scene = init_from_points(np.eye(3), np.ones((3, 3)))
    >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=32, height=32)
    >>> project(scene.means, scene.quats, scene.log_scales, camera, 32, 32).conics.shape
    (3, 3)
    """

    means: Array
    conics: Array
    perspective: Array
    opacity_factors: Array
    depths: Array
    lows: Array
    highs: Array
    visible: Array


def rotation_matrices(quats: Any) -> Array:
    """The rotations (..., 3, 3) of quaternions w, x, y, z (..., 4) of any length but 0.

    >>> import numpy as np
    >>> from rlx.splat import rotation_matrices
    >>> rotation_matrices(np.array([[2.0, 0.0, 0.0, 0.0]])).tolist()
    [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]
    """
    q = jnp.asarray(quats)
    w, x, y, z = jnp.moveaxis(q / jnp.sqrt(jnp.sum(q * q, axis=-1, keepdims=True)), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def covariances(quats: Any, log_scales: Any) -> Array:
    """Covariance matrices (..., 3, 3): R diag(exp(2 log_scales)) R.T.

    >>> import numpy as np
    >>> from rlx.splat import covariances
    >>> covariances(np.array([[1.0, 0.0, 0.0, 0.0]]), np.zeros((1, 3))).shape
    (1, 3, 3)
    """
    factors = rotation_matrices(quats) * jnp.exp(jnp.asarray(log_scales))[..., None, :]
    return _product(factors, jnp.swapaxes(factors, -1, -2))


def project(
    means: Array,
    quats: Array,
    log_scales: Array,
    camera: Camera,
    width: int,
    height: int,
    *,
    method: str = "ewa",
    near: float = 0.01,
    far: float = 1e10,
    eps2d: float = 0.3,
) -> Footprints:
    """The footprints of N Gaussians: means (N, 3), quats (N, 4), log_scales (N, 3).

    Splats outside of (near, far), behind the camera, off the image, or not representable are not visible.

    >>> import numpy as np
    >>> from rlx.splat import Camera, project
    >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=64, height=48)
    >>> seen = project(np.zeros((1, 3)), np.array([[1.0, 0.0, 0.0, 0.0]]), np.zeros((1, 3)), camera, 64, 48)
    >>> seen.means.round(3).tolist()
    [[32.0, 24.0]]
    """
    means, quats, log_scales = jnp.asarray(means), jnp.asarray(quats), jnp.asarray(log_scales)
    camera = Camera(*(jnp.asarray(x).astype(means.dtype) for x in camera))
    finite = representable(means, quats, log_scales)
    places = jnp.where(finite[:, None], means, 0.0) @ jnp.swapaxes(camera.rotation, -1, -2) + camera.translation
    depth = places[:, 2]
    ahead = finite & (depth > near) & (depth < far)
    # splats that are not drawn get a harmless place, so that their derivatives are zeros and not NaN
    places = jnp.where(ahead[:, None], places, jnp.array([0.0, 0.0, 1.0], means.dtype))
    quats = jnp.where(ahead[:, None], quats, jnp.array([1.0, 0.0, 0.0, 0.0], quats.dtype))
    log_scales = jnp.where(ahead[:, None], log_scales, 0.0)
    turned = _product(camera.rotation, rotation_matrices(quats))
    focal, centre = jnp.stack([camera.fx, camera.fy]), jnp.stack([camera.cx, camera.cy])
    middles = places[:, :2] / places[:, 2:] * focal + centre
    if method == "ray":
        conics, perspective, lows, highs = _along_rays(places, turned, log_scales, focal, middles)
        factors, depths = jnp.ones_like(depth), jnp.sqrt(jnp.sum(places * places, -1))
    else:
        factor = turned * jnp.exp(log_scales)[:, None, :]
        conics, factors, radii = _affine(places, factor, focal, centre, (width, height), eps2d)
        perspective, depths = jnp.zeros((len(means), 0), means.dtype), places[:, 2]
        lows, highs = middles - radii, middles + radii
    size = jnp.array([width, height], means.dtype)
    drawn = jnp.all(jnp.isfinite(conics), -1) & jnp.all(jnp.isfinite(middles), -1) & jnp.all(lows <= highs, -1)
    visible = ahead & drawn & jnp.all((highs > 0) & (lows < size), -1)
    return Footprints(middles, conics, perspective, factors, depths, lows, highs, visible)


def representable(means: Array, quats: Array, log_scales: Array) -> Array:
    """Which splats have finite numbers, and scales and places whose fourth powers do not overflow: bools (N,)."""
    largest = float(np.log(np.finfo(means.dtype).max)) / 4
    places = jnp.all(jnp.abs(means) < math.exp(largest), -1) & jnp.all(jnp.isfinite(quats), -1)
    return places & jnp.all(jnp.abs(log_scales) < largest, -1)


def _product(a: Array, b: Array) -> Array:
    """The product of 3x3 matrices, as sums of products: a batch of small matrices is one loop."""
    first, second, third = (a[..., :, n, None] * b[..., None, n, :] for n in range(3))
    return first + second + third


def _affine(
    places: Array, factor: Array, focal: Array, centre: Array, size: tuple[int, int], eps2d: float
) -> tuple[Array, Array, Array]:
    """Conics, factors of the opacity, and radii per axis, of covariances factor @ factor.T at places."""
    z = places[:, 2:]
    sizes = jnp.array(size, places.dtype)
    margin = _MARGIN * 0.5 * sizes / focal
    slope = jnp.clip(places[:, :2] / z, -(centre / focal + margin), (sizes - centre) / focal + margin)
    # the rows of J @ factor, with J = (focal / z, -focal slope / z)
    rows = (factor[:, :2] - slope[:, :, None] * factor[:, 2:]) * (focal / z)[:, :, None]
    xx, xy, yy = (jnp.sum(rows[:, i] * rows[:, j], -1) for i, j in ((0, 0), (0, 1), (1, 1)))
    wide_x, wide_y = xx + eps2d, yy + eps2d
    determinant = wide_x * wide_y - xy * xy
    positive = determinant > 0
    safe = jnp.where(positive, determinant, 1.0)
    conics = jnp.stack([wide_y / safe, -xy / safe, wide_x / safe], -1)
    conics = jnp.where(positive[:, None], conics, jnp.nan)
    factors = jnp.sqrt(jnp.maximum((xx * yy - xy * xy) / safe, _LEAST_COMPENSATION))
    radii = jnp.ceil(RADIUS * jnp.sqrt(jnp.stack([wide_x, wide_y], -1)))
    return conics, factors, radii


def _along_rays(
    places: Array, turned: Array, log_scales: Array, focal: Array, middles: Array
) -> tuple[Array, Array, Array, Array]:
    """Conics, perspective and bounds of the largest density on the ray through each pixel."""
    whitening = jnp.swapaxes(turned * jnp.exp(-log_scales)[:, None, :], -1, -2)
    z = places[:, 2:]
    middle = jnp.sum(whitening * places[:, None, :], -1) / z  # the ray through the mean, whitened
    steps = [whitening[:, :, n] / focal[n] for n in range(2)]
    square = jnp.sum(middle * middle, -1)
    # u x w for u = -z middle and w = middle + x steps[0] + y steps[1]; the signs cancel in the square
    moments = [jnp.cross(middle, step) * z for step in steps]
    pairs = ((0, 0), (0, 1), (1, 1))
    conics = jnp.stack([jnp.sum(moments[i] * moments[j], -1) / square for i, j in pairs], -1)
    linear = [jnp.sum(middle * step, -1) / square for step in steps]
    quadratic = [jnp.sum(steps[i] * steps[j], -1) / square for i, j in pairs]
    lows, highs = _tangents(places, turned * jnp.exp(log_scales)[:, None, :], focal, middles)
    return conics, jnp.stack([*linear, *quadratic], -1), lows, highs


def _tangents(places: Array, factor: Array, focal: Array, middles: Array) -> tuple[Array, Array]:
    """Bounds of an ellipsoid of RADIUS standard deviations in the image: its tangent planes through the camera.

    An ellipsoid that reaches the plane of the camera has no bounds.
    """
    z = places[:, 2:]
    slope = places[:, :2] / z
    reach = RADIUS**2 * jnp.sum(factor[:, 2] ** 2, -1, keepdims=True)
    # the tangent slope + s: (s z)^2 = RADIUS^2 (across - 2 s along + s^2 reach)
    rows = factor[:, :2] - slope[:, :, None] * factor[:, 2:]
    across = RADIUS**2 * jnp.sum(rows * rows, -1)
    along = RADIUS**2 * jnp.sum(rows * factor[:, 2:], -1)
    leading = z * z - reach
    root = jnp.sqrt(jnp.maximum(along * along + leading * across, 0.0))
    bounded = leading > 0
    safe = jnp.where(bounded, leading, 1.0)
    lows = jnp.where(bounded, middles + focal * (-along - root) / safe, -jnp.inf)
    highs = jnp.where(bounded, middles + focal * (-along + root) / safe, jnp.inf)
    return lows, highs
