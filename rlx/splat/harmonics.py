"""Real spherical harmonics to degree 3, in the order and with the signs of splat files.

Source: Kerbl, Kopanas, Leimkuehler, Drettakis: 3D Gaussian Splatting for Real-Time Radiance Field Rendering (2023).
"""

from __future__ import annotations

import math
from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.trace.flat import as_array

__all__ = ["BAND_0", "harmonic_basis", "spherical_harmonics"]

BAND_0 = 0.5 / math.sqrt(math.pi)
_BAND_1 = math.sqrt(3 / (4 * math.pi))
_BAND_2 = math.sqrt(15 / (4 * math.pi))
_BAND_2_MIDDLE = math.sqrt(5 / (16 * math.pi))
_BAND_2_LAST = math.sqrt(15 / (16 * math.pi))
_BAND_3_OUTER = math.sqrt(35 / (32 * math.pi))
_BAND_3_PRODUCT = math.sqrt(105 / (4 * math.pi))
_BAND_3_INNER = math.sqrt(21 / (32 * math.pi))
_BAND_3_MIDDLE = math.sqrt(7 / (16 * math.pi))
_BAND_3_SQUARES = math.sqrt(105 / (16 * math.pi))

_COUNTS = (1, 4, 9, 16)


def harmonic_basis(directions: Any, degree: int) -> Array:
    """The harmonics of unit vectors (..., 3) to a degree from 0 to 3: (..., (degree + 1)**2).

    >>> import numpy as np
    >>> from rlx.splat import harmonic_basis
    >>> harmonic_basis(np.array([[0.0, 0.0, 1.0]]), 1).shape
    (1, 4)
    """
    d = as_array(directions)
    x, y, z = d[..., 0], d[..., 1], d[..., 2]
    terms = [jnp.full_like(x, BAND_0)]
    if degree > 0:
        terms += [-_BAND_1 * y, _BAND_1 * z, -_BAND_1 * x]
    if degree > 1:
        terms += [
            _BAND_2 * x * y,
            -_BAND_2 * y * z,
            _BAND_2_MIDDLE * (2 * z * z - x * x - y * y),
            -_BAND_2 * x * z,
            _BAND_2_LAST * (x * x - y * y),
        ]
    if degree > 2:
        terms += [
            -_BAND_3_OUTER * y * (3 * x * x - y * y),
            _BAND_3_PRODUCT * x * y * z,
            -_BAND_3_INNER * y * (4 * z * z - x * x - y * y),
            _BAND_3_MIDDLE * z * (2 * z * z - 3 * x * x - 3 * y * y),
            -_BAND_3_INNER * x * (4 * z * z - x * x - y * y),
            _BAND_3_SQUARES * z * (x * x - y * y),
            -_BAND_3_OUTER * x * (x * x - 3 * y * y),
        ]
    return jnp.stack(terms, axis=-1)


def spherical_harmonics(coefficients: Any, directions: Any) -> Array:
    """Colours seen along unit vectors: 0.5 plus the sum of harmonics, and not below 0.

    Args:
      coefficients: (..., count, channels), with 1, 4, 9 or 16 harmonics.
      directions: (..., 3), from the camera to the splats, of length 1.

    Returns: (..., channels). Raises ShapeError for another count.

    >>> import numpy as np
    >>> from rlx.splat import spherical_harmonics
    >>> spherical_harmonics(np.zeros((1, 1, 3)), np.array([[0.0, 0.0, 1.0]])).tolist()
    [[0.5, 0.5, 0.5]]
    """
    weights = as_array(coefficients)
    degree = harmonic_degree(weights.shape)
    basis = harmonic_basis(as_array(directions).astype(weights.dtype), degree)
    return jnp.maximum(0.5 + jnp.einsum("...k,...kc->...c", basis, weights), 0.0)


def harmonic_degree(shape: tuple[int, ...]) -> int:
    """The degree of coefficients of a shape (..., count, channels). Raises ShapeError."""
    if len(shape) < 2 or shape[-2] not in _COUNTS:
        raise ShapeError(
            f"Spherical harmonics got coefficients of shape {shape}.",
            "The last but one axis has 1, 4, 9 or 16 elements: degree 0, 1, 2 or 3.",
        )
    return _COUNTS.index(shape[-2])
