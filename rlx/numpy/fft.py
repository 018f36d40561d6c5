"""rlx.numpy.fft: numpy.fft on rlx arrays, differentiable, over any axes.

float16 and integers are transformed in the default float; float32 gives complex64, float64 complex128.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from rlx.array import Array, is_array, wrap
from rlx.config import config
from rlx.errors import ShapeError
from rlx.ir.types import is_complex
from rlx.numpy import manipulation
from rlx.numpy.editing import roll
from rlx.numpy.placement import check_placement, placed
from rlx.numpy.promotion import (
    canonical_axes,
    canonical_axis,
    canonical_size,
    complex_dtype,
    convert_to,
    inexact,
    operand,
    to_dtype,
)
from rlx.offered_names import offer_names as _offer_names
from rlx.ops import fourier
from rlx.ops.arithmetic import multiply
from rlx.ops.matrices import conjugate
from rlx.ops.shape import pad_zeros, slice_along
from rlx.trace.flat import as_array

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

_NORMS = ("backward", "ortho", "forward")
_SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


# ------------------------------------------------------------- the general transform
def _signal(a: Any, name: str, real: bool) -> Any:
    """An operand in a dtype that the transform takes."""
    x = inexact(a, name)
    if real and is_complex(x.dtype):
        raise ValueError(f"{name} takes real numbers, not {x.dtype.name}: use {name[1:]}.")
    if x.dtype.itemsize < 4:
        x = convert_to(x, np.dtype("f4"))
    return convert_to(x, x.dtype if real else complex_dtype(x.dtype))


def axes_and_lengths(
    x: Any, s: Sequence[int] | None, axes: Sequence[int] | None, name: str, halved: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The transformed axes, and the lengths of the signal along them."""
    if axes is None:
        count = x.ndim if s is None else len(s)
        if count > x.ndim:
            raise ShapeError(f"{name} got s={tuple(s or ())} for shape {x.shape}.", "There are fewer axes.")
        numbers: Sequence[int] = range(x.ndim - count, x.ndim)
    else:
        numbers = [canonical_axis(a, x.ndim, name) for a in axes]
    chosen = canonical_axes(tuple(numbers), x.ndim, name)
    if not chosen:
        return (), ()
    lengths = [x.shape[a] for a in chosen]
    if halved:
        lengths[-1] = 2 * (lengths[-1] - 1)
    if s is not None:
        if len(s) != len(chosen):
            raise ShapeError(f"{name} got s={tuple(s)} for axes {chosen}.", "Give one length for each axis.")
        lengths = [n if given in (None, -1) else operator.index(given) for n, given in zip(lengths, s, strict=True)]
    if min(lengths) < 1 and (halved or s is not None):
        raise ShapeError(f"{name} got lengths {tuple(lengths)}.", "A transform needs at least one point.")
    return chosen, tuple(lengths)


def fitted(x: Any, axis: int, size: int) -> Any:
    """x cut or filled with zeros at the end of one axis."""
    own = x.shape[axis]
    if own < size:
        return pad_zeros(x, tuple((0, size - own if a == axis else 0, 0) for a in range(x.ndim)))
    return slice_along(x, 0, size, axis)


def _scale(kind: str, norm: str | None, count: int) -> float:
    """The factor that a transform in NumPy's default norm is multiplied by."""
    wanted = "backward" if norm is None else norm
    if wanted not in _NORMS:
        raise ValueError(f"norm must be one of {', '.join(_NORMS)}, not {norm!r}.")
    if wanted == "ortho":
        return sqrt(count) if kind in ("ifft", "irfft") else 1 / sqrt(count)
    if wanted == "forward":
        return float(count) if kind in ("ifft", "irfft") else 1 / count
    return 1.0


def _transform(
    kind: str, name: str, a: Any, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str | None
) -> Any:
    """A transform over several axes: fitted, moved to the end, transformed, scaled and moved back."""
    x = _signal(a, name, kind == "rfft")
    chosen, lengths = axes_and_lengths(x, s, axes, name, kind == "irfft")
    scale = _scale(kind, norm, prod(lengths))
    if not chosen:
        if kind in ("rfft", "irfft"):
            raise ShapeError(f"{name} got no axes to transform.", "Name at least one axis.")
        return x
    if min(lengths) < 1:
        return convert_to(x, complex_dtype(x.dtype))  # the spectrum of nothing
    for axis, size in zip(chosen, lengths, strict=True):
        half = kind == "irfft" and axis == chosen[-1]
        x = fitted(x, axis, size // 2 + 1 if half else size)
    last = tuple(range(x.ndim - len(chosen), x.ndim))
    out = fourier.fft(manipulation.moveaxis(x, chosen, last), kind=kind, lengths=lengths)
    if scale != 1:
        out = multiply(out, scale)
    return manipulation.moveaxis(out, last, chosen)


# ------------------------------------------------------------- functions from tables
_ONE = {
    "fft": ("fft", "The discrete Fourier transform along one axis.", "complex"),
    "ifft": ("ifft", "The inverse discrete Fourier transform along one axis.", "complex"),
    "rfft": ("rfft", "The nonnegative half of the spectrum of a real signal.", "complex"),
    "irfft": ("irfft", "The real signal from the nonnegative half of its spectrum.", "real"),
}
_MANY = {
    "fft": "The discrete Fourier transform over several axes.",
    "ifft": "The inverse discrete Fourier transform over several axes.",
    "rfft": "The transform of a real signal over several axes, halved along the last one.",
    "irfft": "The real signal from its spectrum over several axes, halved along the last one.",
}


def _along_one_axis(name: str) -> Callable[..., Array]:
    kind, summary, result = _ONE[name]

    def transform(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
        _one_axis(name, axis)
        return _transform(kind, name, a, None if n is None else (n,), (axis,), norm)

    transform.__doc__ = (
        f"{summary}\n\n"
        f"    Args: a: array; n: length of the signal (cut, or filled with zeros); axis; norm:"
        f' "backward", "ortho" or "forward". Returns: a {result} array.\n\n'
        "    >>> import rlx.numpy as jnp\n"
        f"    >>> jnp.fft.{name}(jnp.ones((2, 4)), n=4).shape\n"
        f"    {'(2, 3)' if name == 'rfft' else '(2, 4)'}\n    "
    )
    return _named(transform, name)


def _one_axis(name: str, axis: Any) -> None:
    if isinstance(axis, (tuple, list)):
        raise ValueError(f"{name} takes one axis, not {axis!r}: use {name}n.")


def _over_axes(kind: str, suffix: str) -> Callable[..., Array]:
    name = kind + suffix
    default = (-2, -1) if suffix == "2" else None

    def transform(
        a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = default, norm: str | None = None
    ) -> Array:
        if suffix == "2" and len(axes or ()) != 2:
            raise ValueError(f"{name} takes two axes, not {axes!r}: use {kind}n.")
        return _transform(kind, name, a, s, axes, norm)

    transform.__doc__ = (
        f"{_MANY[kind]}\n\n"
        f"    Args: a: array; s: lengths of the signal along the axes; axes: ints (default:"
        f' {"the last two" if default else "all, or the last len(s)"}); norm: "backward", "ortho" or'
        ' "forward". Returns: an array.\n\n'
        "    >>> import rlx.numpy as jnp\n"
        f"    >>> jnp.fft.{name}(jnp.ones((2, 4)), s=(2, 4)).shape\n"
        f"    {'(2, 3)' if kind == 'rfft' else '(2, 4)'}\n    "
    )
    return _named(transform, name)


def _named(function: Any, name: str) -> Callable[..., Array]:
    function.__name__ = function.__qualname__ = name
    return function


fft, ifft, rfft, irfft = map(_along_one_axis, ("fft", "ifft", "rfft", "irfft"))
fft2, ifft2, rfft2, irfft2 = (_over_axes(kind, "2") for kind in _MANY)
fftn, ifftn, rfftn, irfftn = (_over_axes(kind, "n") for kind in _MANY)


def _swapped(norm: str | None) -> str:
    wanted = "backward" if norm is None else norm
    if wanted not in _SWAPPED:
        raise ValueError(f"norm must be one of {', '.join(_NORMS)}, not {norm!r}.")
    return _SWAPPED[wanted]


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The real spectrum of a signal with Hermitian symmetry, from half of the signal.

    Args: as `irfft`. Returns: a real array.

    >>> import rlx.numpy as jnp
    >>> jnp.fft.hfft(jnp.ones(3)).shape
    (4,)
    """
    _one_axis("hfft", axis)
    return irfft(conjugate(_signal(a, "hfft", False)), n, axis, _swapped(norm))


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The half of the Hermitian signal whose spectrum is real.

    Args: as `rfft`. Returns: a complex array.

    >>> import rlx.numpy as jnp
    >>> jnp.fft.ihfft(jnp.ones(4)).shape
    (3,)
    """
    _one_axis("ihfft", axis)
    return conjugate(rfft(a, n, axis, _swapped(norm)))


# ------------------------------------------------------------- frequencies and shifts
def _points(name: str, n: Any, d: Any) -> int:
    """n, checked, and d with it."""
    if not isinstance(n, (int, np.integer)):
        raise ValueError(f"{name} needs an integer n, not {n!r}.")
    if isinstance(d, (tuple, list)):
        raise ValueError(f"{name} needs a number d, not {d!r}.")
    return canonical_size(n, name)


def _frequencies(numbers: np.ndarray, n: int, d: Any, dtype: Any, device: Any) -> Array:
    wanted = config.default_float if dtype is None else to_dtype(dtype)
    if is_array(d):
        return placed(convert_to(wrap((numbers / n).astype(wanted)) / d, wanted), device, None, d)
    return placed(wrap((numbers / (n * d)).astype(wanted)), device)


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of the elements of fft's result.

    Args: n: length of the signal; d: its spacing; dtype: of the result. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.fft.fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    check_placement(device)
    count = _points("fftfreq", n, d)
    numbers = np.arange(count)
    return _frequencies(np.where(numbers < (count + 1) // 2, numbers, numbers - count), count, d, dtype, device)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of the elements of rfft's result.

    Args: n: length of the signal; d: its spacing; dtype: of the result. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    check_placement(device)
    count = _points("rfftfreq", n, d)
    return _frequencies(np.arange(count // 2 + 1), count, d, dtype, device)


def _shift(x: Any, axes: Any, back: bool) -> Any:
    array = as_array(operand(x, "fftshift"))
    chosen = canonical_axes(axes, array.ndim, "fftshift")
    steps = [-(array.shape[a] // 2) if back else array.shape[a] // 2 for a in chosen]
    return roll(array, steps, chosen)


def fftshift(x: Any, axes: Any = None) -> Array:
    """Frequency 0 moved to the middle.

    Args: x: array; axes: int, several, or None for all. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.fft.fftshift(jnp.arange(4))
    Array([2, 3, 0, 1], dtype=int32)
    """
    return _shift(x, axes, False)


def ifftshift(x: Any, axes: Any = None) -> Array:
    """The inverse of `fftshift`.

    Args: as `fftshift`. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.fft.ifftshift(jnp.arange(3))
    Array([1, 2, 0], dtype=int32)
    """
    return _shift(x, axes, True)


_offer_names(globals())
