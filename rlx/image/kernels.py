"""Interpolation kernels: functions of the distance to a pixel, in pixels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlx import numpy as jnp

__all__ = ["cubic", "lanczos", "triangle"]


def triangle(x: Any) -> Any:
    """1 at the pixel, falling to 0 at its neighbours."""
    return jnp.maximum(0, 1 - x)


def cubic(a: float) -> Callable[[Any], Any]:
    """Keys's kernel, IEEE Transactions on Acoustics, Speech, and Signal Processing 29 (1981).

    a = -0.5 is third-order exact; OpenCV and PyTorch use a = -0.75.
    """

    def kernel(x: Any) -> Any:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return jnp.where(x >= 2, 0, jnp.where(x >= 1, far, near))

    return kernel


def lanczos(radius: float) -> Callable[[Any], Any]:
    """sinc(x) sinc(x / radius) within the radius."""

    def kernel(x: Any) -> Any:
        safe = jnp.where(x > 1e-3, x, 1)
        value = radius * jnp.sin(math.pi * safe) * jnp.sin(math.pi * safe / radius) / (math.pi * safe) ** 2
        return jnp.where(x > radius, 0, jnp.where(x > 1e-3, value, 1))

    return kernel
