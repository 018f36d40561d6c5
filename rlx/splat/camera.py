"""Pinhole cameras: world to camera coordinates, and focal lengths in pixels."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import OptionError, ShapeError
from rlx.trace.flat import as_array

__all__ = ["Camera"]


class Camera(NamedTuple):
    """A pinhole camera. A point x of the world is at rotation @ x + translation: right, down, forward.

    A tree of arrays: it can be differentiated, and mapped over a leading axis by vmap.

    Args:
      rotation: (3, 3), of world into camera coordinates.
      translation: (3,).
      fx, fy: focal lengths in pixels.
      cx, cy: the principal point in pixels; the centre of the first pixel is at 0.5.

    >>> from rlx.splat import Camera
    >>> camera = Camera.look_at((1.0, 2.0, -4.0), (0.0, 0.0, 0.0), fov_y=60.0, width=64, height=48)
    >>> [round(float(x), 3) for x in camera.position]
    [1.0, 2.0, -4.0]
    """

    rotation: Any
    translation: Any
    fx: Any
    fy: Any
    cx: Any
    cy: Any

    @property
    def position(self) -> Array:
        """The camera's centre in the world, (3,)."""
        return -jnp.einsum("ji,j->i", as_array(self.rotation), as_array(self.translation))

    @classmethod
    def look_at(
        cls,
        position: Any,
        target: Any,
        up: Any = (0.0, 1.0, 0.0),
        *,
        fov_y: Any = 60.0,
        width: int,
        height: int,
        dtype: Any = "float32",
    ) -> Camera:
        """A camera at `position` that sees `target` in the middle of the image.

        Args:
          position, target, up: (3,); up is not parallel to the direction of view.
          fov_y: the vertical angle of view in degrees, between 0 and 180.
          width, height: of the image in pixels.

        Raises: OptionError for an angle or size that is outside of these bounds.
        """
        check_size(width, height)
        if isinstance(fov_y, (int, float)) and not 0.0 < fov_y < 180.0:
            raise OptionError(f"A camera got fov_y={fov_y}.", "It is an angle in degrees between 0 and 180.")
        eye, goal, above = (jnp.asarray(x, dtype) for x in (position, target, up))
        forward = _unit(goal - eye)
        right = _unit(jnp.cross(forward, above))
        rotation = jnp.stack([right, jnp.cross(forward, right), forward])
        focal = jnp.asarray(0.5 * height, dtype) / jnp.tan(jnp.asarray(fov_y, dtype) * (math.pi / 360))
        centre = (jnp.asarray(0.5 * size, dtype) for size in (width, height))
        return cls(rotation, -rotation @ eye, focal, focal, *centre)

    def scaled(self, factor: float) -> Camera:
        """The camera of an image that is resized by a factor.

        >>> from rlx.splat import Camera
        >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=64, height=48)
        >>> float(camera.scaled(0.5).cx)
        16.0
        """
        return self._replace(fx=self.fx * factor, fy=self.fy * factor, cx=self.cx * factor, cy=self.cy * factor)


def _unit(x: Array) -> Array:
    return x / jnp.linalg.norm(x)


def check_size(width: int, height: int) -> None:
    """Raises OptionError unless an image has pixels."""
    for name, size in (("width", width), ("height", height)):
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise OptionError(f"A picture got {name}={size!r}.", "It is a positive integer.")


def camera_arrays(camera: Camera, dtype: Any) -> Camera:
    """The camera with arrays of a dtype. Raises ShapeError for arrays of other shapes."""
    made = Camera(*(as_array(x).astype(dtype) for x in camera))
    for name, value, shape in zip(Camera._fields, made, ((3, 3), (3,), (), (), (), ()), strict=True):
        if value.shape != shape:
            raise ShapeError(
                f"A camera has {name} of shape {value.shape}, not {shape}.", "Render several cameras with vmap."
            )
    return made
