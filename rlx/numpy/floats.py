"""Parts of complex numbers, tests of floats, and the anatomy of floats."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from rlx.array import Array
from rlx.config import config
from rlx.errors import DtypeError
from rlx.ir.formats import FLOAT_FORMATS
from rlx.ir.types import bits_of, dtype_kind, is_complex, is_float, is_inexact
from rlx.numpy.documentation import alias
from rlx.numpy.placement import refuse_out
from rlx.numpy.promotion import convert_to, fill, inexact, promote, promote_inexact, scalar_array
from rlx.ops import arithmetic, comparison, transcendental
from rlx.ops.arithmetic import select
from rlx.ops.stop_gradient import stop_gradient
from rlx.trace.replay import replayed

__all__ = [
    "abs",
    "absolute",
    "angle",
    "conj",
    "conjugate",
    "fabs",
    "fmax",
    "fmin",
    "frexp",
    "heaviside",
    "imag",
    "iscomplex",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "ldexp",
    "nan_to_num",
    "positive",
    "real",
    "signbit",
    "spacing",
]


def _constant(x: Any, value: complex) -> Any:
    return scalar_array(value, x.dtype, True)


# ------------------------------------------------------------------ parts
def absolute(x: Any, /) -> Array:
    """|x|; the modulus of complex numbers.

    Args: x: an array or number. Returns: an array of the same dtype, real for complex x.

    >>> import rlx.numpy as jnp
    >>> float(jnp.absolute(3 + 4j))
    5.0
    """
    (value,) = promote("absolute", x)
    return value if dtype_kind(value.dtype) in "bu" else arithmetic.absolute(value)


abs = alias(absolute, "abs")


def fabs(x: Any, /) -> Array:
    """|x| as a float.

    Args: x: a real array or number. Returns: a floating array.
    Raises: DtypeError for complex x.

    >>> import rlx.numpy as jnp
    >>> float(jnp.fabs(-2))
    2.0
    """
    value = inexact(x, "fabs")
    if is_complex(value.dtype):
        raise DtypeError("fabs does not take complex numbers.", "Use rlx.numpy.abs.")
    return arithmetic.absolute(value)


def positive(x: Any, /) -> Array:
    """+x: x itself.

    Args: x: an array or number. Returns: x as an array.

    >>> import rlx.numpy as jnp
    >>> jnp.positive(2).item()
    2
    """
    return promote("positive", x)[0]


def real(val: Any, /) -> Array:
    """The real part.

    Args: val: an array or number. Returns: a real array; val itself if it is real.

    >>> import rlx.numpy as jnp
    >>> float(jnp.real(1 + 2j))
    1.0
    """
    (x,) = promote("real", val)
    return arithmetic.real(x) if is_complex(x.dtype) else x


def imag(val: Any, /) -> Array:
    """The imaginary part.

    Args: val: an array or number. Returns: a real array; zeros if val is real.

    >>> import rlx.numpy as jnp
    >>> float(jnp.imag(1 + 2j))
    2.0
    """
    (x,) = promote("imag", val)
    return arithmetic.imag(x) if is_complex(x.dtype) else fill(x.shape, 0, x.dtype)


def conjugate(x: Any, /) -> Any:
    """The complex conjugate.

    Args: x: an array or number. Returns: an array of the same dtype; x itself if it is real.

    >>> import rlx.numpy as jnp
    >>> complex(jnp.conjugate(1 + 2j))
    (1-2j)
    """
    (value,) = promote("conjugate", x)
    return arithmetic.conj(value) if is_complex(value.dtype) else value


conj = alias(conjugate, "conj")


@replayed
def angle(z: Any, deg: bool = False) -> Array:
    """The angle of complex numbers.

    Args: z: an array or number; deg: degrees instead of radians.
    Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.angle(1j, deg=True))
    90.0
    """
    (x,) = promote("angle", z)
    x = x if is_inexact(x.dtype) else convert_to(x, config.default_float)
    result = transcendental.atan2(imag(x), real(x))
    if deg:
        result = arithmetic.multiply(result, _constant(result, 180 / np.pi))
    return result


# ------------------------------------------------------------------ tests
def _none(x: Any) -> Any:
    return fill(x.shape, False, np.dtype(bool))


def _all(x: Any) -> Any:
    return fill(x.shape, True, np.dtype(bool))


def isnan(x: Any, /) -> Array:
    """Whether elements are NaN.

    Args: x: an array or number. Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.isnan(jnp.nan))
    True
    """
    (value,) = promote("isnan", x)
    return comparison.not_equal(value, value) if is_inexact(value.dtype) else _none(value)


def isfinite(x: Any, /) -> Array:
    """Whether elements are neither infinite nor NaN.

    Args: x: an array or number. Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.isfinite(1.0))
    True
    """
    (value,) = promote("isfinite", x)
    if is_complex(value.dtype):
        parts = arithmetic.real(value), arithmetic.imag(value)
        return comparison.bitwise_and(*[arithmetic.is_finite(p) for p in parts])
    return arithmetic.is_finite(value) if is_float(value.dtype) else _all(value)


def isinf(x: Any, /) -> Array:
    """Whether elements are infinite.

    Args: x: an array or number. Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.isinf(-jnp.inf))
    True
    """
    (value,) = promote("isinf", x)
    if is_complex(value.dtype):
        return comparison.bitwise_or(isinf(arithmetic.real(value)), isinf(arithmetic.imag(value)))
    if not is_float(value.dtype) or not _has_infinity(value.dtype):
        return _none(value)
    return comparison.equal(arithmetic.absolute(value), _constant(value, np.inf))


def _has_infinity(dtype: np.dtype) -> bool:
    return bool(np.isinf(np.asarray(np.inf, dtype).astype("f4")))


@replayed
def isposinf(x: Any, /, out: None = None) -> Array:
    """Whether elements are +infinity.

    Args: x: a real array or number. Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.isposinf(-jnp.inf))
    False
    """
    refuse_out("isposinf", out)
    return _is_infinity("isposinf", x, np.inf)


@replayed
def isneginf(x: Any, /, out: None = None) -> Array:
    """Whether elements are -infinity.

    Args: x: a real array or number. Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.isneginf(-jnp.inf))
    True
    """
    refuse_out("isneginf", out)
    return _is_infinity("isneginf", x, -np.inf)


def _is_infinity(name: str, x: Any, value: float) -> Any:
    (x,) = promote(name, x)
    if is_complex(x.dtype):
        raise DtypeError(f"{name} does not take complex numbers.", "Look at its parts.")
    if not is_float(x.dtype) or not _has_infinity(x.dtype):
        return _none(x)
    return comparison.equal(x, _constant(x, value))


def iscomplex(x: Any) -> Array:
    """Whether elements have a nonzero imaginary part.

    Args: x: an array or number. Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.iscomplex(1 + 0j))
    False
    """
    part = imag(x)
    return comparison.not_equal(part, _constant(part, 0))


def isreal(x: Any) -> Array:
    """Whether elements have no imaginary part.

    Args: x: an array or number. Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.isreal(1 + 0j))
    True
    """
    return comparison.bitwise_not(iscomplex(x))


# ------------------------------------------------------------------ anatomy
def _bits_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"i{dtype.itemsize}")


def signbit(x: Any, /) -> Array:
    """Whether the sign bit is set, also of -0.0 and NaN.

    Args: x: a real array or number. Returns: a bool array.
    Raises: DtypeError for complex x.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.signbit(-0.0))
    True
    """
    (value,) = promote("signbit", x)
    if is_complex(value.dtype):
        raise DtypeError("signbit does not take complex numbers.", "Look at its parts.")
    form = FLOAT_FORMATS.get(value.dtype)
    if form is not None and not form.sign:
        return _none(value)
    if is_float(value.dtype):
        # there is no 6-bit integer
        value = convert_to(value, np.dtype("f4")) if bits_of(value.dtype) < 8 else value
        value = arithmetic.bitcast(value, dtype=_bits_dtype(value.dtype))
    return comparison.less(value, _constant(value, 0)) if dtype_kind(value.dtype) == "i" else _none(value)


def frexp(x: Any, /) -> tuple[Any, Any]:
    """x as mantissa * 2**exponent, with 0.5 <= |mantissa| < 1.

    Args: x: a real array or number. Returns: (mantissa, int32 exponent); 0, inf and NaN are
    their own mantissa, with exponent 0.

    >>> import rlx.numpy as jnp
    >>> [v.item() for v in jnp.frexp(8.0)]
    [0.5, 4]
    """
    value = inexact(x, "frexp")
    if is_complex(value.dtype):
        raise DtypeError("frexp does not take complex numbers.", "Take its parts.")
    info = ml_dtypes.finfo(value.dtype)
    mantissa_bits, bits_dtype = info.nmant, _bits_dtype(value.dtype)
    tiny = comparison.less(arithmetic.absolute(value), _constant(value, float(info.smallest_normal)))
    lift = mantissa_bits + 2
    scaled = select(tiny, arithmetic.multiply(value, _constant(value, 2.0**lift)), value)
    bits = arithmetic.bitcast(scaled, dtype=bits_dtype)
    mask = (1 << (info.bits - 1 - mantissa_bits)) - 1
    field = comparison.bitwise_and(
        comparison.shift_right_logical(bits, _constant(bits, mantissa_bits)), _constant(bits, mask)
    )
    bias = mask // 2
    cleared = comparison.bitwise_and(bits, _constant(bits, ~(mask << mantissa_bits)))
    halved = comparison.bitwise_or(cleared, _constant(bits, (bias - 1) << mantissa_bits))
    mantissa = arithmetic.bitcast(halved, dtype=value.dtype)
    exponent = arithmetic.subtract(convert_to(field, np.dtype("i4")), np.int32(bias - 1))
    exponent = arithmetic.subtract(exponent, select(tiny, np.int32(lift), np.int32(0)))
    infinite = comparison.bitwise_not(arithmetic.is_finite(value))
    kept = comparison.bitwise_or(comparison.equal(value, _constant(value, 0)), infinite)
    # as a product with an exact power of two, so that the mantissa has the derivative that it should
    factor = stop_gradient(arithmetic.divide(mantissa, select(kept, _constant(value, 1), scaled)))
    return select(kept, value, arithmetic.multiply(scaled, factor)), select(kept, np.int32(0), exponent)


def ldexp(x1: Any, x2: Any, /) -> Array:
    """x1 * 2**x2.

    Args: x1: a real array or number; x2: integers. Returns: a floating array.
    Raises: DtypeError if x2 is not integer.

    >>> import rlx.numpy as jnp
    >>> float(jnp.ldexp(0.5, 4))
    8.0
    """
    x = inexact(x1, "ldexp")
    (exponent,) = promote("ldexp", x2)
    if dtype_kind(exponent.dtype) not in "iub":
        raise DtypeError(f"ldexp got exponents of dtype {exponent.dtype.name}.", "Pass integers.")
    exponent = convert_to(exponent, np.dtype("i4"))
    limit = int(ml_dtypes.finfo(x.dtype).maxexp) - 2
    # one factor could over- or underflow where the product does not
    for _ in range(3):
        step = arithmetic.clamp(np.int32(-limit), exponent, np.int32(limit))
        x = arithmetic.multiply(x, transcendental.exp2(convert_to(step, x.dtype)))
        exponent = arithmetic.subtract(exponent, step)
    return x


def spacing(x: Any, /) -> Array:
    """The distance to the next number away from zero.

    Args: x: a real array or number. Returns: a floating array with the sign of x, positive for zeros. In float16
    it is the distance to the next number above, always positive, as NumPy's; it is NaN for infinities.

    >>> import rlx.numpy as jnp
    >>> float(jnp.spacing(1.0)) == 2.0 ** -23
    True
    """
    value = inexact(x, "spacing")
    infinity = _constant(value, np.inf)
    if value.dtype == np.float16:  # NumPy's rule for this dtype alone
        lowest = _constant(value, -np.inf)
        away = select(comparison.equal(value, lowest), lowest, infinity)
    else:
        away = arithmetic.copysign(infinity, arithmetic.add(value, _constant(value, 0)))  # -0 counts as 0
    return arithmetic.subtract(arithmetic.nextafter(value, away), value)


# ------------------------------------------------------------------ NaN
@replayed
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """NaN and infinities replaced by numbers.

    Args: x: array; nan, posinf, neginf: the replacements (None: the largest and smallest number).
    Returns: an array of the same dtype.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nan_to_num(jnp.nan))
    0.0
    """
    (x,) = promote("nan_to_num", x)
    if is_complex(x.dtype):
        parts = arithmetic.real(x), arithmetic.imag(x)
        return arithmetic.complex(*[nan_to_num(p, copy, nan, posinf, neginf) for p in parts])
    if not is_float(x.dtype):
        return x
    info = ml_dtypes.finfo(x.dtype)
    highest = float(info.max) if posinf is None else posinf
    lowest = float(info.min) if neginf is None else neginf
    x = select(isnan(x), convert_to(nan, x.dtype), x)
    x = select(isposinf(x), convert_to(highest, x.dtype), x)
    return select(isneginf(x), convert_to(lowest, x.dtype), x)


def fmax(x1: Any, x2: Any) -> Array:
    """The larger one; if one is NaN, the other one.

    Args: x1, x2: arrays or numbers. Returns: an array of the promoted dtype.

    >>> import rlx.numpy as jnp
    >>> float(jnp.fmax(1.0, jnp.nan))
    1.0
    """
    x, y = promote("fmax", x1, x2)
    larger = arithmetic.maximum(x, y)
    return select(isnan(x), y, select(isnan(y), x, larger)) if is_inexact(x.dtype) else larger


def fmin(x1: Any, x2: Any) -> Array:
    """The smaller one; if one is NaN, the other one.

    Args: x1, x2: arrays or numbers. Returns: an array of the promoted dtype.

    >>> import rlx.numpy as jnp
    >>> float(jnp.fmin(1.0, jnp.nan))
    1.0
    """
    x, y = promote("fmin", x1, x2)
    smaller = arithmetic.minimum(x, y)
    return select(isnan(x), y, select(isnan(y), x, smaller)) if is_inexact(x.dtype) else smaller


@replayed
def heaviside(x: Any, y: Any, /) -> Array:
    """0 where x < 0, y where x is 0, 1 where x > 0, NaN where x is NaN.

    Args: x, y: real arrays or numbers. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.heaviside(0.0, 0.5))
    0.5
    """
    x, y = promote_inexact("heaviside", x, y)
    zero, one = _constant(x, 0), _constant(x, 1)
    step = select(comparison.less(x, zero), zero, select(comparison.less(zero, x), one, y))
    return select(isnan(x), x, step)
