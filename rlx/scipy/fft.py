"""rlx.scipy.fft: discrete cosine transforms of types 1 to 4, differentiable, over any axes.

Of a complex array the real and the imaginary part are transformed. float16 and integers are transformed
in the default float. Types 2 and 3 reorder the signal for one transform of the same length (Makhoul 1980).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ir.types import is_complex
from rlx.numpy import fft as fourier
from rlx.numpy import manipulation
from rlx.numpy.fft import axes_and_lengths, fitted
from rlx.numpy.promotion import complex_dtype, convert_to, inexact
from rlx.offered_names import offer_names
from rlx.ops.arithmetic import add, multiply
from rlx.ops.conversion import complex as complex_of
from rlx.ops.conversion import imag, real
from rlx.ops.shape import concatenate, pad_zeros, reverse, slice_along

__all__ = ["dct", "dctn", "idct", "idctn"]

offer_names(globals())

_NORMS = ("backward", "ortho", "forward")
_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


# ------------------------------------------------------------- one axis, the last
def _last(x: Any, start: int, stop: int, step: int = 1) -> Any:
    return slice_along(x, start, stop, x.ndim - 1, step)


def _reversed(x: Any) -> Any:
    return reverse(x, axes=(x.ndim - 1,))


def _joined(*parts: Any) -> Any:
    return concatenate(*parts, axis=parts[0].ndim - 1)


def _phases(x: Any, angles: np.ndarray) -> Any:
    """exp(i angles) in the complex dtype that belongs to x."""
    return np.exp(1j * angles).astype(complex_dtype(x.dtype))


def _ends_scaled(x: Any, factor: float, last: bool) -> Any:
    """The first element (and the last one) multiplied."""
    factors = np.ones(x.shape[-1])
    factors[0] = factor
    if last:
        factors[-1] = factor
    return multiply(x, factors.astype(x.dtype))


def _first_type(x: Any) -> Any:
    """The spectrum of the signal continued as an even one."""
    size = x.shape[-1]
    return real(fourier.rfft(_joined(x, _reversed(_last(x, 1, size - 1)))))


def _second_type(x: Any) -> Any:
    size = x.shape[-1]
    half = size // 2
    ordered = _joined(_last(x, 0, size, 2), _reversed(_last(x, 1, size, 2))) if size > 1 else x
    turned = multiply(fourier.rfft(ordered), _phases(x, -np.pi * np.arange(half + 1) / (2 * size)))
    doubled = add(turned, turned)
    mirrored = _reversed(_last(imag(doubled), 1, size - half))
    return _joined(real(doubled), multiply(mirrored, -1)) if size > 2 else _last(real(doubled), 0, size)


def _third_type(x: Any) -> Any:
    size = x.shape[-1]
    half = size // 2
    edge = ((0, 0, 0),) * (x.ndim - 1)
    mirrored = _reversed(_last(pad_zeros(x, (*edge, (0, 1, 0))), size - half, size + 1))
    halves = complex_of(_last(x, 0, half + 1) if half < size else x, multiply(mirrored, -1))
    spectrum = multiply(halves, _phases(x, np.pi * np.arange(half + 1) / (2 * size)))
    ordered = multiply(fourier.irfft(spectrum, size), size)
    middle = (size + 1) // 2
    even, odd = _last(ordered, 0, middle), _reversed(_last(ordered, middle, size))
    spread = pad_zeros(even, (*edge, (0, size - 2 * middle + 1, 1)))
    return add(spread, pad_zeros(odd, (*edge, (1, size - 2 * (size - middle), 1)))) if size > 1 else spread


def _fourth_type(x: Any) -> Any:
    size = x.shape[-1]
    numbers = np.arange(size)
    turned = multiply(convert_to(x, complex_dtype(x.dtype)), _phases(x, -np.pi * numbers / (2 * size)))
    spectrum = _last(fourier.fft(turned, 2 * size), 0, size)
    doubled = multiply(spectrum, _phases(x, -np.pi * (2 * numbers + 1) / (4 * size)))
    return real(add(doubled, doubled))


_TYPES: dict[int, Callable[[Any], Any]] = {1: _first_type, 2: _second_type, 3: _third_type, 4: _fourth_type}


def _along_last(x: Any, kind: int, norm: str, inverse: bool) -> Any:
    """A transform of real numbers along the last axis, scaled."""
    size = x.shape[-1]
    if kind == 1 and size < 2:
        raise ShapeError("A cosine transform of type 1 got a signal of one point.", "It needs two or more.")
    kind = _INVERSE[kind] if inverse else kind
    period = 2 * (size - 1) if kind == 1 else 2 * size
    if norm == "ortho" and kind in (1, 3):
        x = _ends_scaled(x, sqrt(2), kind == 1)
    out = _TYPES[kind](x)
    if norm == "ortho" and kind in (1, 2):
        out = _ends_scaled(out, sqrt(0.5), kind == 1)
    if norm == "ortho":
        return multiply(out, 1 / sqrt(period))
    return multiply(out, 1 / period) if inverse == (norm == "backward") else out


# ------------------------------------------------------------- any axes
def _transform(
    name: str, x: Any, kind: int, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str | None
) -> Any:
    wanted = "backward" if norm is None else norm
    if wanted not in _NORMS:
        raise ValueError(f"norm must be one of {', '.join(_NORMS)}, not {norm!r}.")
    if kind not in _TYPES:
        raise ValueError(f"{name} got type={kind!r}: cosine transforms have the types 1 to 4.")
    array = inexact(x, name)
    if array.dtype.itemsize < 4:
        array = convert_to(array, np.dtype("f4"))
    chosen, lengths = axes_and_lengths(array, s, axes, name, False)
    for axis, size in zip(chosen, lengths, strict=True):
        moved = manipulation.moveaxis(fitted(array, axis, size), axis, -1)
        if is_complex(moved.dtype):
            parts = [_along_last(part, kind, wanted, name.startswith("i")) for part in (real(moved), imag(moved))]
            out = complex_of(*parts)
        else:
            out = _along_last(moved, kind, wanted, name.startswith("i"))
        array = manipulation.moveaxis(out, -1, axis)
    return array


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The discrete cosine transform along one axis.

    Args: x: array; type: 1 to 4; n: length of the signal (cut, or filled with zeros); axis; norm:
    "backward", "ortho" or "forward". Returns: an array of float or complex numbers.

    >>> import rlx.numpy as jnp
    >>> import rlx.scipy as jsp
    >>> jsp.fft.dct(jnp.array([1.0, 2.0, 4.0])).round(3)
    Array([14.   , -5.196,  1.   ], dtype=float32)
    """
    return _transform("dct", x, type, None if n is None else (n,), (axis,), norm)


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `dct` of the same type.

    Args: as `dct`. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> import rlx.scipy as jsp
    >>> jsp.fft.idct(jsp.fft.dct(jnp.array([1.0, 2.0, 4.0]))).round(3)
    Array([1., 2., 4.], dtype=float32)
    """
    return _transform("idct", x, type, None if n is None else (n,), (axis,), norm)


def dctn(
    x: Any,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The discrete cosine transform over several axes.

    Args: x: array; type: 1 to 4; s: lengths of the signal along the axes; axes: ints (default: all, or
    the last len(s)); norm: "backward", "ortho" or "forward". Returns: an array.

    >>> import rlx.numpy as jnp
    >>> import rlx.scipy as jsp
    >>> jsp.fft.dctn(jnp.array([[1.0, 2.0], [3.0, 5.0]]), norm="ortho").round(3)
    Array([[ 5.5, -1.5],
           [-2.5,  0.5]], dtype=float32)
    """
    return _transform("dctn", x, type, s, axes, norm)


def idctn(
    x: Any,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `dctn` of the same type.

    Args: as `dctn`. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> import rlx.scipy as jsp
    >>> jsp.fft.idctn(jsp.fft.dctn(jnp.array([[1.0, 2.0], [3.0, 4.0]]))).round(3)
    Array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    return _transform("idctn", x, type, s, axes, norm)
