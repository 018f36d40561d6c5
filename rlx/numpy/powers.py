"""Powers, logarithms of other bases, and functions built from exponentials."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.array import Array, is_array
from rlx.config import config
from rlx.errors import DtypeError
from rlx.ir.types import bits_of, dtype_kind, is_complex, is_float, is_inexact, is_integer
from rlx.numpy.documentation import alias
from rlx.numpy.elementwise import aligned
from rlx.numpy.promotion import convert_to, inexact, operand, promote_inexact, promote_numeric, scalar_array
from rlx.ops import arithmetic, comparison, transcendental
from rlx.ops.arithmetic import select
from rlx.ops.rounding import is_finite
from rlx.ops.special import bessel_i0
from rlx.ops.stop_gradient import stop_gradient
from rlx.trace.replay import replayed

__all__ = [
    "deg2rad",
    "degrees",
    "float_power",
    "hypot",
    "i0",
    "log10",
    "log2",
    "pow",
    "power",
    "rad2deg",
    "radians",
    "reciprocal",
    "sinc",
]

_multiply, _divide, _add = arithmetic.multiply, arithmetic.divide, arithmetic.add


def _constant(x: Any, value: complex) -> Any:
    return scalar_array(value, x.dtype, True)


# ------------------------------------------------------------------ powers
def power(x: Any, y: Any, /) -> Array:
    """x to the power y.

    Args: x, y: arrays or numbers; a Python int exponent multiplies repeatedly.
    Returns: an array of the promoted dtype; integers stay integers.
    Raises: DtypeError for an integer to a negative Python int.

    >>> import rlx.numpy as jnp
    >>> jnp.power(2, 10).item()
    1024
    """
    if type(y) is int or (isinstance(y, np.integer) and config.narrow):
        base, y = operand(x, "power"), int(y)
        if is_array(base):
            if base.dtype.kind == "b":
                base = convert_to(base, np.dtype("i4"), base.weak_type)
            return _integer_power(base, y)
    pair = aligned(x, y)
    if pair is None or not is_inexact(pair[0].dtype):
        pair = promote_numeric("power", x, y)
    left, right = pair
    if is_inexact(left.dtype):
        return arithmetic.power(left, right)
    return _integers_to_integers(left, right)


pow = alias(power, "pow")


def _integer_power(x: Any, exponent: int) -> Any:
    if exponent < 0 and is_integer(x.dtype):
        raise DtypeError(
            f"An integer array ({x.dtype.name}) cannot be raised to the negative power {exponent}.",
            "Convert the base with .astype(float), or use rlx.numpy.float_power.",
        )
    if exponent == 1:
        return arithmetic.integer_power(x, exponent=1)
    if exponent == 2:
        return arithmetic.square(x)
    return arithmetic.integer_power(x, exponent=exponent)


def _integers_to_integers(x: Any, y: Any) -> Any:
    """Powers by repeated squaring over the bits of the exponents; negative exponents give 0, 1 or -1."""
    bits = bits_of(x.dtype)
    zero, one = _constant(x, 0), _constant(x, 1)
    result, square, rest = one, x, y
    for _ in range(bits if dtype_kind(x.dtype) == "u" else bits - 1):
        odd = comparison.equal(comparison.bitwise_and(rest, one), one)
        result = select(odd, _multiply(result, square), result)
        square = _multiply(square, square)
        rest = comparison.shift_right_logical(rest, one)
    if dtype_kind(x.dtype) == "u":
        return result
    unit = comparison.equal(arithmetic.absolute(x), one)
    negative = comparison.less(y, zero)
    return select(comparison.bitwise_and(negative, comparison.bitwise_not(unit)), zero, result)


@replayed
def float_power(x: Any, y: Any, /) -> Array:
    """x to the power y, computed in floating dtypes.

    Args: x, y: arrays or numbers. Returns: a floating or complex array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.float_power(2, -1))
    0.5
    """
    return arithmetic.power(*promote_inexact("float_power", x, y))


def reciprocal(x: Any, /) -> Array:
    """1 / x, always floating.

    Args: x: an array or number. Returns: a floating or complex array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.reciprocal(4))
    0.25
    """
    value = inexact(x, "reciprocal")
    return _divide(_constant(value, 1), value)


# ------------------------------------------------------------------ logarithms and angles
@replayed
def log2(x: Any, /) -> Array:
    """The logarithm to base 2.

    Args: x: an array or number. Returns: a floating or complex array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.log2(8.0))
    3.0
    """
    return _log_of_base(inexact(x, "log2"), 2.0)


@replayed
def log10(x: Any, /) -> Array:
    """The logarithm to base 10.

    Args: x: an array or number. Returns: a floating or complex array.

    >>> import rlx.numpy as jnp
    >>> round(float(jnp.log10(1000.0)), 5)
    3.0
    """
    return _log_of_base(inexact(x, "log10"), 10.0)


def _log_of_base(x: Any, base: float) -> Any:
    scale = np.log(np.asarray(base, "f4" if x.dtype.itemsize <= 4 else "f8")).item()
    log = transcendental.log(x)
    if is_complex(x.dtype):  # a complex quotient would make -inf + 0j a NaN
        factor = _constant(arithmetic.real(log), scale)
        return arithmetic.complex(_divide(arithmetic.real(log), factor), _divide(arithmetic.imag(log), factor))
    return _divide(log, _constant(x, scale))


def deg2rad(x: Any, /) -> Array:
    """Degrees to radians.

    Args: x: a real array or number. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> round(float(jnp.deg2rad(180.0)), 5)
    3.14159
    """
    angle = inexact(x, "deg2rad")
    return _multiply(angle, _constant(angle, math.pi / 180))


def rad2deg(x: Any, /) -> Array:
    """Radians to degrees.

    Args: x: a real array or number. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> round(float(jnp.rad2deg(jnp.pi)), 3)
    180.0
    """
    angle = inexact(x, "rad2deg")
    return _multiply(angle, _constant(angle, 180 / math.pi))


radians, degrees = alias(deg2rad, "radians"), alias(rad2deg, "degrees")


# ------------------------------------------------------------------ sums in other scales
@replayed
def logaddexp(x: Any, y: Any, /) -> Any:
    """log(exp(x) + exp(y)) without overflow.

    Args: x, y: arrays or numbers. Returns: a floating or complex array.

    >>> import rlx.numpy as jnp
    >>> round(float(jnp.logaddexp(0.0, 0.0)), 5)
    0.69315
    """
    x, y = promote_inexact("logaddexp", x, y)
    return _complex_log_sum(x, y) if is_complex(x.dtype) else transcendental.logaddexp(x, y)


@replayed
def logaddexp2(x: Any, y: Any, /) -> Any:
    """log2(2**x + 2**y) without overflow.

    Args: x, y: arrays or numbers. Returns: a floating or complex array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.logaddexp2(3.0, 3.0))
    4.0
    """
    x, y = promote_inexact("logaddexp2", x, y)
    scale = _constant(x, math.log(2))
    if is_complex(x.dtype):
        return _divide(_complex_log_sum(_multiply(x, scale), _multiply(y, scale)), scale)
    # where both are the same infinity the difference is NaN, and the sum is that infinity
    both = comparison.bitwise_and(comparison.equal(x, y), comparison.bitwise_not(is_finite(x)))
    smaller = comparison.less(x, y)
    larger, lower = select(smaller, y, x), select(smaller, x, y)
    difference = select(both, _constant(x, 0), arithmetic.subtract(lower, larger))
    rest = _divide(transcendental.log1p(transcendental.exp(_multiply(difference, scale))), scale)
    # shared by halves, so that the derivatives at the same infinity are 1/2 each
    middle = _add(_multiply(x, _constant(x, 0.5)), _multiply(y, _constant(x, 0.5)))
    return _add(select(both, middle, larger), rest)


def _complex_log_sum(x: Any, y: Any) -> Any:
    smaller = comparison.less(arithmetic.real(x), arithmetic.real(y))
    larger, lower = select(smaller, y, x), select(smaller, x, y)
    rest = transcendental.log1p(transcendental.exp(arithmetic.subtract(lower, larger)))
    total = _add(larger, rest)
    # the angle of a logarithm is known only up to full turns: bring it to (-pi, pi]
    turn = scalar_array(2 * math.pi, arithmetic.imag(total).dtype, True)
    angle = arithmetic.imag(total)
    turns = arithmetic.round(_divide(angle, turn), mode="even")
    return arithmetic.complex(arithmetic.real(total), arithmetic.subtract(angle, _multiply(turns, turn)))


@replayed
def hypot(x: Any, y: Any, /) -> Array:
    """sqrt(x**2 + y**2) without overflow.

    Args: x, y: real arrays or numbers. Returns: a floating array.
    Raises: DtypeError for complex operands.

    >>> import rlx.numpy as jnp
    >>> float(jnp.hypot(3.0, 4.0))
    5.0
    """
    x, y = promote_inexact("hypot", x, y)
    if not is_float(x.dtype):
        raise DtypeError(f"hypot does not take {x.dtype.name}.", "Use rlx.numpy.abs.")
    x, y = arithmetic.absolute(x), arithmetic.absolute(y)
    infinity, one = _constant(x, math.inf), _constant(x, 1)
    infinite = comparison.bitwise_or(comparison.equal(x, infinity), comparison.equal(y, infinity))
    larger = arithmetic.maximum(x, y)
    nothing = comparison.equal(larger, _constant(x, 0))
    special = comparison.bitwise_or(infinite, nothing)
    # the scale is a constant to derivatives: the larger one has none where both are equal
    scale = stop_gradient(select(special, one, larger))
    squares = [arithmetic.square(_divide(select(special, one, side), scale)) for side in (x, y)]
    length = _multiply(scale, transcendental.sqrt(_add(*squares)))
    return select(infinite, infinity, select(nothing, larger, length))


# ------------------------------------------------------------------ special
@replayed
def sinc(x: Any, /) -> Array:
    """sin(pi x) / (pi x), and 1 at 0, smooth there.

    Args: x: an array or number. Returns: a floating or complex array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.sinc(0.0))
    1.0
    """
    x = inexact(x, "sinc")
    angle = _multiply(x, _constant(x, math.pi))
    small = comparison.less(arithmetic.absolute(angle), scalar_array(1e-3, arithmetic.absolute(angle).dtype, True))
    safe = select(small, _constant(x, 1), angle)
    squared = arithmetic.square(select(small, angle, _constant(x, 0)))
    # the Taylor series near 0 gives derivatives where the quotient is 0 / 0
    series = _constant(x, 1.0)
    for order in (9, 8, 7, 6, 5, 4, 3, 2, 1):
        factor = _constant(x, -1.0 / (2 * order * (2 * order + 1)))
        series = _add(_constant(x, 1.0), _multiply(_multiply(squared, factor), series))
    quotient = _divide(transcendental.sin(safe), safe)
    return select(small, series, quotient)


def i0(x: Any) -> Array:
    """The modified Bessel function of the first kind of order 0.

    Args: x: a real array or number. Returns: a floating array.
    Raises: DtypeError for complex operands.

    >>> import rlx.numpy as jnp
    >>> float(jnp.i0(0.0))
    1.0
    """
    value = inexact(x, "i0")
    if not is_float(value.dtype):
        raise DtypeError(f"i0 does not take {value.dtype.name}.", "Pass a real array.")
    return bessel_i0(value)
