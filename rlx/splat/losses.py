"""How far an image is from another: mean absolute difference, structural similarity, and PSNR."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.trace.flat import as_array

__all__ = ["image_loss", "psnr", "ssim"]

_WINDOW, _SIGMA = 11, 1.5
_LUMINANCE, _CONTRAST = 0.01**2, 0.03**2  # for numbers from 0 to 1


def ssim(image: Any, target: Any) -> Array:
    """The mean structural similarity of images (height, width, channels) with numbers from 0 to 1.

    The window is a Gaussian of 11 pixels with a standard deviation of 1.5; images continue with zeros.

    Source: Wang, Bovik, Sheikh, Simoncelli: Image Quality Assessment: From Error Visibility to Structural Similarity
    (2004).

    >>> import numpy as np
    >>> from rlx.splat import ssim
    >>> float(ssim(np.ones((16, 16, 3)), np.ones((16, 16, 3))))
    1.0
    """
    x, y = _pair("ssim", image, target)
    mean_x, mean_y = _blurred(x), _blurred(y)
    spread_x, spread_y = (_blurred(z * z) - m * m for z, m in ((x, mean_x), (y, mean_y)))
    common = _blurred(x * y) - mean_x * mean_y
    above = (2 * mean_x * mean_y + _LUMINANCE) * (2 * common + _CONTRAST)
    below = (mean_x * mean_x + mean_y * mean_y + _LUMINANCE) * (spread_x + spread_y + _CONTRAST)
    return jnp.mean(above / below)


def image_loss(image: Any, target: Any, structure: float = 0.2) -> Array:
    """(1 - structure) times the mean absolute difference, plus structure times (1 - ssim).

    >>> import numpy as np
    >>> from rlx.splat import image_loss
    >>> float(image_loss(np.ones((16, 16, 3)), np.ones((16, 16, 3))))
    0.0
    """
    x, y = _pair("image_loss", image, target)
    return (1 - structure) * jnp.mean(jnp.abs(x - y)) + structure * (1 - ssim(x, y))


def psnr(image: Any, target: Any) -> Array:
    """The ratio of peak signal to noise in decibels, of numbers from 0 to 1.

    >>> import numpy as np
    >>> from rlx.splat import psnr
    >>> round(float(psnr(np.full((4, 4, 3), 0.6), np.full((4, 4, 3), 0.5))), 3)
    20.0
    """
    x, y = _pair("psnr", image, target)
    return -10 * jnp.log10(jnp.mean((x - y) ** 2))


def _pair(name: str, image: Any, target: Any) -> tuple[Array, Array]:
    x, y = as_array(image), as_array(target)
    if x.ndim != 3 or x.shape != y.shape or 0 in x.shape:
        raise ShapeError(
            f"splat.{name} got images of shapes {x.shape} and {y.shape}.", "Both are (height, width, channels)."
        )
    return x, y


def _blurred(x: Array) -> Array:
    """The mean over the window around each pixel."""
    offsets = np.arange(_WINDOW) - _WINDOW // 2
    weights = np.exp(-0.5 * (offsets / _SIGMA) ** 2)
    weights /= weights.sum()
    for axis in (0, 1):
        widths = [(0, 0)] * x.ndim
        widths[axis] = (_WINDOW // 2, _WINDOW // 2)
        padded, size = jnp.pad(x, widths), x.shape[axis]
        parts = [padded[(slice(None),) * axis + (slice(n, n + size),)] for n in range(_WINDOW)]
        x = sum((float(w) * part for w, part in zip(weights[1:], parts[1:], strict=True)), float(weights[0]) * parts[0])
    return x
