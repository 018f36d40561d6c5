"""Convolution and correlation of arrays of any rank: directly, or by Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.types import is_complex
from rlx.numpy.promotion import canonical_axes, convert_to, promote_inexact

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve"]

_MODES = ("full", "same", "valid")
_METHODS = ("auto", "direct", "fft")
Shape = tuple[int, ...]


# ------------------------------------------------------------------ the part of the full result
def _check_mode(name: str, mode: str) -> None:
    if mode not in _MODES:
        raise ValueError(f"{name} has no mode {mode!r}: use 'full', 'same' or 'valid'.")


def _contains(outer: Shape, inner: Shape) -> bool:
    return all(a >= b for a, b in zip(outer, inner, strict=True))


def _part(name: str, mode: str, first: Shape, second: Shape) -> tuple[list[int], list[int]]:
    """Where the wanted part of the full convolution starts, and how long it is, along each axis."""
    pairs = list(zip(first, second, strict=True))
    if mode == "full":
        return [0] * len(pairs), [a + b - 1 for a, b in pairs]
    if mode == "same":
        return [(b - 1) // 2 for _, b in pairs], list(first)
    if not (_contains(first, second) or _contains(second, first)):
        raise ShapeError(
            f"{name} got operands of shapes {first} and {second} with mode='valid'.",
            "One of them must be as long as the other along every axis, or longer; or use mode='full'.",
        )
    return [min(a, b) - 1 for a, b in pairs], [abs(a - b) + 1 for a, b in pairs]


def _operands(name: str, in1: Any, in2: Any, rank: int | None = None) -> list[Array]:
    """Two floating arrays of equal rank, not empty."""
    operands = promote_inexact(name, in1, in2)
    shapes = [x.shape for x in operands]
    if len(shapes[0]) != len(shapes[1]) or (rank is not None and len(shapes[0]) != rank):
        wanted = "equal rank" if rank is None else f"rank {rank}"
        raise ShapeError(f"{name} got operands of shapes {shapes[0]} and {shapes[1]}.", f"It takes two of {wanted}.")
    if any(0 in shape for shape in shapes):
        raise ShapeError(f"{name} got operands of shapes {shapes[0]} and {shapes[1]}.", "Neither operand may be empty.")
    return operands


# ------------------------------------------------------------------ directly
def _slide(x: Array, y: Array, starts: list[int], sizes: list[int], precision: Any) -> Array:
    """A part of the full convolution, as products of x with y reversed and slid along it."""
    if _contains(y.shape, x.shape):
        x, y = y, x
    lengths = zip(x.shape, y.shape, starts, sizes, strict=True)
    padding = [(short - 1 - start, size - long + start) for long, short, start, size in lengths]
    window = lax.rev(y, tuple(range(y.ndim)))
    return lax.conv_general_dilated(x[None, None], window[None, None], (1,) * x.ndim, padding, precision=precision)[
        0, 0
    ]


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """The convolution of two arrays.

    Args:
      in1, in2: arrays of equal rank, not empty.
      mode: "full"; "same": of in1's shape, from the middle of the full one; "valid": only where the
        smaller array is inside the larger one.
      method: "direct" (also "auto"), or "fft": by Fourier transforms, see `fftconvolve`.
      precision: of products, as in lax.conv_general_dilated.

    Returns: a floating or complex array. Raises: ShapeError for shapes that do not fit.

    >>> import rlx, rlx.numpy as jnp
    >>> rlx.scipy.signal.convolve(jnp.array([1, 2, 3]), jnp.array([1, 1]))
    Array([1., 3., 5., 3.], dtype=float32)
    """
    return _convolve("convolve", in1, in2, mode, method, precision)


def _convolve(name: str, in1: Any, in2: Any, mode: str, method: str, precision: Any) -> Array:
    if method not in _METHODS:
        raise ValueError(f"{name} has no method {method!r}: use 'auto', 'direct' or 'fft'.")
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    _check_mode(name, mode)
    x, y = _operands(name, in1, in2)
    starts, sizes = _part(name, mode, x.shape, y.shape)
    return _slide(x, y, starts, sizes, precision)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """The cross-correlation of two arrays, the second conjugated.

    Args: as `convolve`. Returns: a floating or complex array. Raises: as `convolve`.

    >>> import rlx, rlx.numpy as jnp
    >>> rlx.scipy.signal.correlate(jnp.array([1, 2, 3]), jnp.array([0, 1]), mode="valid")
    Array([2., 3.], dtype=float32)
    """
    x, y = _operands("correlate", in1, in2)
    return _convolve("correlate", x, jnp.flip(jnp.conj(y)), mode, method, precision)


def _check_boundary(name: str, boundary: str, fillvalue: Any) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise UnsupportedError(
            f"{name} has no boundary={boundary!r} with fillvalue={fillvalue!r}; around the arrays are zeros.",
            "Extend in1 with rlx.numpy.pad, and use mode='valid'.",
        )


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Array:
    """The convolution of two matrices.

    Args: in1, in2: matrices, not empty; mode, precision: as in `convolve`; boundary: "fill";
    fillvalue: 0. Returns: a matrix. Raises: UnsupportedError for another boundary, ShapeError.

    >>> import rlx, rlx.numpy as jnp
    >>> rlx.scipy.signal.convolve2d(jnp.eye(2), jnp.ones((2, 2)), mode="same")
    Array([[1., 1.],
           [1., 2.]], dtype=float32)
    """
    _check_boundary("convolve2d", boundary, fillvalue)
    x, y = _operands("convolve2d", in1, in2, rank=2)
    return _convolve("convolve2d", x, y, mode, "direct", precision)


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Array:
    """The cross-correlation of two matrices, the second conjugated.

    With mode="valid", and in1 the smaller one, it is in1 that is conjugated, as in SciPy.

    Args, raises: as `convolve2d`. Returns: a matrix.

    >>> import rlx, rlx.numpy as jnp
    >>> rlx.scipy.signal.correlate2d(jnp.eye(2), jnp.ones((2, 2)), mode="same")
    Array([[2., 1.],
           [1., 1.]], dtype=float32)
    """
    _check_boundary("correlate2d", boundary, fillvalue)
    _check_mode("correlate2d", mode)
    x, y = _operands("correlate2d", in1, in2, rank=2)
    starts, sizes = _part("correlate2d", mode, x.shape, y.shape)
    if mode == "same":  # unlike in a convolution, the middle of an even length is the later one
        starts = [size // 2 for size in y.shape]
    result = _slide(x, jnp.flip(jnp.conj(y)), starts, sizes, precision)
    swapped = mode == "valid" and x.shape != y.shape and _contains(y.shape, x.shape)
    return jnp.conj(result) if swapped else result


# ------------------------------------------------------------------ by Fourier transforms
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: int | Sequence[int] | None = None) -> Array:
    """The convolution of two arrays by Fourier transforms: for long arrays, at the cost of some rounding.

    Args:
      in1, in2: arrays of equal rank, not empty.
      mode: as in `convolve`.
      axes: the axes to convolve over (None: all); along the others both have equal lengths.

    Returns: a floating or complex array. Raises: ShapeError for shapes that do not fit.

    >>> import rlx, rlx.numpy as jnp
    >>> rlx.scipy.signal.fftconvolve(jnp.array([1, 2, 3]), jnp.array([1, 1])).round(3)
    Array([1., 3., 5., 3.], dtype=float32)
    """
    _check_mode("fftconvolve", mode)
    x, y = _operands("fftconvolve", in1, in2)
    chosen = canonical_axes(axes, x.ndim, "fftconvolve")
    if any(x.shape[d] != y.shape[d] for d in range(x.ndim) if d not in chosen):
        raise ShapeError(
            f"fftconvolve got operands of shapes {x.shape} and {y.shape} with axes={axes}.",
            "Along other axes than these they must have equal lengths.",
        )
    lengths = [tuple(v.shape[d] for d in chosen) for v in (x, y)]
    full = [a + b - 1 for a, b in zip(*lengths, strict=True)]
    starts, sizes = _part("fftconvolve", mode, *lengths)
    product = _spectral_product(x, y, chosen, full)
    for axis, start, size in zip(chosen, starts, sizes, strict=True):
        product = lax.slice_in_dim(product, start, start + size, axis=axis)
    return product


def _spectral_product(x: Array, y: Array, axes: Shape, full: list[int]) -> Array:
    """The full convolution over some axes."""
    if all(1 in (x.shape[d], y.shape[d]) for d in axes):
        return jnp.multiply(x, y)
    forward, back = (jnp.fft.fftn, jnp.fft.ifftn) if is_complex(x.dtype) else (jnp.fft.rfftn, jnp.fft.irfftn)
    spectrum = jnp.multiply(forward(x, full, axes), forward(y, full, axes))
    return convert_to(back(spectrum, full, axes), x.dtype)
