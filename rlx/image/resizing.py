"""Images in another size, scaled and moved: each axis is a product with a matrix of weights."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.image.kernels import cubic, lanczos, triangle
from rlx.lax.operands import canonical_axis, canonical_shape
from rlx.trace.flat import as_array

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """The interpolation method of `resize`.

    >>> import rlx
    >>> rlx.image.ResizeMethod.from_string("bilinear")
    <ResizeMethod.LINEAR: 1>
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name. Raises UnsupportedError for an unknown one."""
        for method, names in _NAMES.items():
            if s in names:
                return method
        raise UnsupportedError(f"There is no resize method {s!r}.", f"Use one of {sorted(sum(_NAMES.values(), ()))}.")


_NAMES: dict[ResizeMethod, tuple[str, ...]] = {
    ResizeMethod.NEAREST: ("nearest",),
    ResizeMethod.LINEAR: ("linear", "bilinear", "trilinear", "triangle"),
    ResizeMethod.LANCZOS3: ("lanczos3",),
    ResizeMethod.LANCZOS5: ("lanczos5",),
    ResizeMethod.CUBIC: ("cubic", "bicubic", "tricubic"),
    ResizeMethod.CUBIC_PYTORCH: ("cubic-pytorch", "bicubic-pytorch"),
    ResizeMethod.AREA: ("area",),
}
_KERNELS: dict[ResizeMethod, Callable[[Any], Any]] = {
    ResizeMethod.LINEAR: triangle,
    ResizeMethod.LANCZOS3: lanczos(3.0),
    ResizeMethod.LANCZOS5: lanczos(5.0),
    ResizeMethod.CUBIC: cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: cubic(-0.75),
}
_EDGE = 2  # how many pixels beyond the edge the cubic kernel reads


def _method(method: Any, antialias: bool) -> ResizeMethod:
    found = ResizeMethod.from_string(method) if isinstance(method, str) else ResizeMethod(method)
    return ResizeMethod.CUBIC if found is ResizeMethod.CUBIC_PYTORCH and antialias else found


def _overlaps(length: int, count: int, step: Any, shift: Any) -> Any:
    """The overlap of each output pixel, mapped back to the input, with each input pixel."""
    begin = jnp.arange(count, dtype=step.dtype) * step - shift * step
    pixel = jnp.arange(length, dtype=step.dtype)[:, None]
    return jnp.maximum(0, jnp.minimum(begin + step, pixel + 1) - jnp.maximum(begin, pixel))


def _weights(length: int, count: int, scale: Any, shift: Any, method: ResizeMethod, antialias: bool) -> Any:
    """The matrix (length, count) that takes an axis of the input to one of the output."""
    step = 1 / scale
    centers = (jnp.arange(count, dtype=step.dtype) + 0.5) * step - shift * step - 0.5
    edge = _EDGE if method is ResizeMethod.CUBIC_PYTORCH else 0
    if method is ResizeMethod.AREA:
        weights = _overlaps(length, count, step, shift)
    else:
        width = jnp.maximum(step, 1) if antialias else 1.0
        pixels = jnp.arange(-edge, length + edge, dtype=step.dtype)
        weights = _KERNELS[method](jnp.abs(centers - pixels[:, None]) / width)
    if edge:  # the edge pixels are repeated beyond the edges
        inner = weights[edge : length + edge]
        weights = inner.at[0].add(weights[:edge].sum(0)).at[-1].add(weights[length + edge :].sum(0))
    total = weights.sum(0, keepdims=True)
    tiny = 1000 * float(np.finfo(np.float32).eps)
    weights = jnp.where(jnp.abs(total) > tiny, weights / jnp.where(total == 0, 1, total), 0)
    return jnp.where((centers >= -0.5) & (centers <= length - 0.5), weights, 0)


def _apply(
    x: Array,
    shape: tuple[int, ...],
    axes: Sequence[int],
    scale: Sequence[Any],
    shift: Sequence[Any],
    method: ResizeMethod,
    antialias: bool,
) -> Array:
    for axis, factor, move in zip(axes, scale, shift, strict=True):
        weights = _weights(x.shape[axis], shape[axis], factor, move, method, antialias).astype(x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, weights, ((axis,), (0,)), precision="highest"), -1, axis)
    return x


def _inexact(image: Any) -> Array:
    x = as_array(image)
    return x.astype(jnp.result_type(x, float)) if not jnp.issubdtype(x.dtype, np.inexact) else x


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = None,
) -> Array:
    """An image scaled and moved along some axes: output pixel centres are input ones, times scale, plus translation.

    Args:
      image: an array; integers become the default float.
      shape: of the result; as the image's along the other axes.
      spatial_dims: the axes that change.
      scale, translation: vectors with a number for each of them; differentiable.
      method: a ResizeMethod or its name, but "nearest": "linear", "cubic", "lanczos3", ...
      antialias: widen the kernel where the image shrinks.
      precision: accepted for JAX compatibility; products are in full precision.

    Pixels whose centre is outside the image are 0. Raises ShapeError for incompatible shapes, and UnsupportedError
    for the method "nearest".

    >>> import numpy as np, rlx
    >>> image = np.array([1.0, 2.0, 4.0], np.float32)
    >>> rlx.image.scale_and_translate(image, (3,), (0,), np.ones(1), np.ones(1), "linear").tolist()
    [0.0, 1.0, 2.0]
    """
    x, sizes = _inexact(image), canonical_shape(shape)
    if len(sizes) != x.ndim:
        raise ShapeError(f"image.scale_and_translate got shape {sizes} for an image of shape {x.shape}.")
    wanted = _method(method, antialias)
    if wanted is ResizeMethod.NEAREST:
        raise UnsupportedError('scale_and_translate has no method "nearest".', 'Use "linear", or image.resize.')
    dtype = jnp.result_type(as_array(scale), as_array(translation), np.float32)
    factors, moves = as_array(scale).astype(dtype), as_array(translation).astype(dtype)
    axes = [canonical_axis("image.scale_and_translate", d, x.ndim) for d in spatial_dims]
    if factors.shape != (len(axes),) or moves.shape != (len(axes),):
        raise ShapeError(
            f"image.scale_and_translate got scale of shape {factors.shape} and translation of shape {moves.shape}"
            f" for {len(axes)} axes.",
            "They are vectors with a number for each of spatial_dims.",
        )
    numbers = range(len(axes))
    return _apply(x, sizes, axes, [factors[n] for n in numbers], [moves[n] for n in numbers], wanted, antialias)


def resize(
    image: Any, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True, precision: Any = None
) -> Array:
    """An image in another size.

    Args:
      image: an array.
      shape: of the result, all axes included.
      method: a ResizeMethod, or its name: "nearest", "linear", "cubic" (Keys), "cubic-pytorch", "lanczos3", "lanczos5",
        "area".
      antialias: widen the kernel where the image shrinks.
      precision: accepted for JAX compatibility; products are in full precision.

    Returns an array of the image's dtype for "nearest", else of a floating one. Raises ShapeError for a shape of
    another number of axes, UnsupportedError for an unknown method.

    >>> import numpy as np, rlx
    >>> rlx.image.resize(np.array([0.0, 4.0], np.float32), (4,), "linear").tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    x, sizes = as_array(image), canonical_shape(shape)
    if len(sizes) != x.ndim:
        raise ShapeError(
            f"image.resize got shape {sizes} for an image of shape {x.shape}.",
            "Name the size of every axis, those that stay included.",
        )
    wanted = _method(method, antialias)
    axes = [d for d in range(x.ndim) if x.shape[d] != sizes[d]]
    if wanted is ResizeMethod.NEAREST:
        return _nearest(x, sizes, axes)
    x = _inexact(x)
    scale = [np.float32(1 if sizes[d] == 0 else sizes[d] / x.shape[d]) for d in axes]
    return _apply(x, sizes, axes, [as_array(f) for f in scale], [np.float32(0)] * len(axes), wanted, antialias)


def _nearest(x: Array, shape: tuple[int, ...], axes: Sequence[int]) -> Array:
    for axis in axes:
        places = (np.arange(shape[axis], dtype=np.float32) + np.float32(0.5)) * np.float32(x.shape[axis])
        x = jnp.take(x, np.floor(places / np.float32(shape[axis])).astype(np.int32), axis=axis)
    return x
