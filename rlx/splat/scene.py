"""Scenes of splats as parameters that are free of bounds, and views of a scene."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import KDTree

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import OptionError, ShapeError
from rlx.nn.activations import sigmoid
from rlx.splat.camera import Camera
from rlx.splat.harmonics import BAND_0, harmonic_degree
from rlx.splat.rendering import Rendered, render

__all__ = ["Splats", "View", "init_from_points"]

_FIRST_OPACITY = 0.1
_NEIGHBOURS = 3
_LEAST_DISTANCE = 1e-7


class Splats(NamedTuple):
    """A scene of N splats. Every number may have any value, so that it can be trained.

    means: (N, 3). quats: (N, 4). log_scales: (N, 3). logits: (N,), of opacities. harmonics: (N, 1 | 4 | 9 | 16, 3).

    >>> import numpy as np
    >>> from rlx.splat import Camera, init_from_points
    >>> scene = init_from_points(np.eye(3), np.ones((3, 3)), degree=1)
    >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=32, height=32)
    >>> scene.harmonics.shape, scene.render(camera, 32, 32).rgb.shape
    ((3, 4, 3), (32, 32, 3))
    """

    means: Any
    quats: Any
    log_scales: Any
    logits: Any
    harmonics: Any

    @property
    def opacities(self) -> Array:
        """From 0 to 1, (N,)."""
        return sigmoid(jnp.asarray(self.logits))

    def render(self, camera: Camera, width: int, height: int, **options: Any) -> Rendered:
        """The scene's image: see `rlx.splat.render` for the options."""
        return render(
            self.means, self.quats, self.log_scales, self.opacities, self.harmonics, camera, width, height, **options
        )


class View(NamedTuple):
    """An image of a scene and its camera.

    image: (height, width, 3), numbers from 0 to 1. name: of its file.

    >>> import numpy as np
    >>> from rlx.splat import Camera, View
    >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=32, height=32)
    >>> View(camera, np.zeros((32, 32, 3), np.float32), "front.png").name
    'front.png'
    """

    camera: Camera
    image: Any
    name: str = ""


def init_from_points(points: Any, colors: Any, *, degree: int = 3) -> Splats:
    """A scene with a round splat at each point, as large as the mean distance to the three nearest points.

    Args:
      points: (N, 3). colors: (N, 3), from 0 to 1. degree: of the spherical harmonics, from 0 to 3.

    Returns: Splats of float32 NumPy arrays. Raises ShapeError, OptionError.

    >>> import numpy as np
    >>> from rlx.splat import init_from_points
    >>> init_from_points(np.eye(3), np.ones((3, 3))).harmonics.shape
    (3, 16, 3)
    """
    points, colors = np.asarray(points, np.float32), np.asarray(colors, np.float32)
    if points.ndim != 2 or points.shape[1] != 3 or colors.shape != points.shape:
        raise ShapeError(
            f"splat.init_from_points got points {points.shape} and colors {colors.shape}.", "Both are (N, 3)."
        )
    if degree not in range(4):
        raise OptionError(f"splat.init_from_points got degree={degree!r}.", "It is 0, 1, 2 or 3.")
    count = len(points)
    if not np.all(np.isfinite(points)):
        raise OptionError("splat.init_from_points got points that are not finite.", "Leave them out.")
    distances = np.ones(count)
    if count > 1:
        nearest = min(_NEIGHBOURS, count - 1)
        found, _ = KDTree(points).query(points, k=nearest + 1)
        distances = np.maximum(found[:, 1:].mean(axis=1), _LEAST_DISTANCE)
    harmonics = np.zeros((count, (degree + 1) ** 2, 3), np.float32)
    harmonics[:, 0] = (colors - 0.5) / BAND_0
    quats = np.zeros((count, 4), np.float32)
    quats[:, 0] = 1.0
    log_scales = np.repeat(np.log(distances)[:, None], 3, axis=1).astype(np.float32)
    logit = np.log(_FIRST_OPACITY / (1 - _FIRST_OPACITY))
    return Splats(points, quats, log_scales, np.full(count, logit, np.float32), harmonics)


def check_splats(splats: Splats) -> int:
    """The number of splats. Raises ShapeError for arrays that do not fit together."""
    count = len(splats.means)
    shapes = ((count, 3), (count, 4), (count, 3), (count,))
    for name, array, shape in zip(Splats._fields, splats, shapes, strict=False):
        if np.shape(array) != shape:
            raise ShapeError(f"Splats have {name} of shape {np.shape(array)}, not {shape}.")
    shape = np.shape(splats.harmonics)
    harmonic_degree(shape)
    if len(shape) != 3 or shape[0] != count or shape[2] != 3:
        raise ShapeError(f"Splats have harmonics of shape {shape}.", f"They are ({count}, 1 | 4 | 9 | 16, 3).")
    return count
