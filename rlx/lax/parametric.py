"""Elementwise functions with parameters, of three operands or more, and selections."""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import dtype_kind, is_complex, is_float, is_inexact, is_integer
from rlx.lax.elementwise import abs, add, bitwise_and, ne, shift_right_arithmetic, shift_right_logical
from rlx.lax.operands import as_array, as_dtype, operands
from rlx.ops import arithmetic, beta, comparison, conversion, rounding, special
from rlx.ops.stop_gradient import stop_gradient as stop_gradient_op
from rlx.transforms.custom import custom_jvp
from rlx.transforms.linear import linear_call
from rlx.trees import tree

__all__ = [
    "RoundingMethod",
    "betainc",
    "clamp",
    "conj",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "integer_pow",
    "mul",
    "mulhi",
    "nextafter",
    "polygamma",
    "pow",
    "random_gamma_grad",
    "reciprocal",
    "reduce_precision",
    "round",
    "select",
    "select_n",
    "stop_gradient",
    "zeta",
]


def betainc(a: Any, b: Any, x: Any) -> Array:
    """The regularised incomplete beta function of a, b and x.

    Args: a, b: positive floats; x: floats from 0 to 1; one dtype, shapes that broadcast.

    >>> from rlx import lax
    >>> f"{lax.betainc(2.0, 3.0, 0.5).item():.4f}"
    '0.6875'
    """
    return beta.betainc(*operands("betainc", a, b, x))


def conj(x: Any) -> Array:
    """The complex conjugate; of real floats the complex number of the same value.

    >>> from rlx import lax
    >>> lax.conj(1 + 2j).item()
    (1-2j)
    """
    value = as_array(x)
    if is_float(value.dtype):
        return conversion.complex(value, 0.0)
    return conversion.conj(value)


def igamma(a: Any, x: Any) -> Array:
    """The regularised lower incomplete gamma function of a and x.

    >>> from rlx import lax
    >>> f"{lax.igamma(1.0, 1.0).item():.4f}"
    '0.6321'
    """
    return special.igamma(*operands("igamma", a, x))


def igamma_grad_a(a: Any, x: Any) -> Array:
    """The derivative of igamma with respect to a.

    >>> from rlx import lax
    >>> f"{lax.igamma_grad_a(2.0, 1.0).item():.4f}"
    '-0.2762'
    """
    return special.igamma_grad_a(*operands("igamma_grad_a", a, x))


def igammac(a: Any, x: Any) -> Array:
    """The regularised upper incomplete gamma function of a and x.

    Args: a: positive floats; x: floats, not negative; one dtype, shapes that broadcast.

    >>> from rlx import lax
    >>> f"{lax.igammac(2.0, 1.0).item():.4f}"
    '0.7358'
    """
    return special.igammac(*operands("igammac", a, x))


def random_gamma_grad(a: Any, x: Any) -> Array:
    """The derivative of a gamma sample x with respect to its parameter a.

    >>> from rlx import lax
    >>> f"{lax.random_gamma_grad(2.0, 1.0).item():.4f}"
    '0.7508'
    """
    return special.random_gamma_grad(*operands("random_gamma_grad", a, x))


def polygamma(m: Any, x: Any) -> Array:
    """The derivative of order m of digamma.

    >>> from rlx import lax
    >>> f"{lax.polygamma(1.0, 2.0).item():.4f}"
    '0.6449'
    """
    return special.polygamma(*operands("polygamma", m, x))


def zeta(x: Any, q: Any) -> Array:
    """The Hurwitz zeta function of x and q.

    >>> from rlx import lax
    >>> f"{lax.zeta(2.0, 1.0).item():.4f}"
    '1.6449'
    """
    return special.zeta(*operands("zeta", x, q))


def nextafter(x1: Any, x2: Any) -> Array:
    """The next float after x1 in the direction of x2.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.nextafter(jnp.float64(1.0), jnp.float64(2.0)).item()
    1.0000000000000002
    """
    return rounding.nextafter(*operands("nextafter", x1, x2))


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Array:
    """x * y, computed in `out_dtype` if it is given.

    >>> from rlx import lax
    >>> lax.mul(2, 3).item()
    6
    """
    if out_dtype is None:
        return arithmetic.multiply(*operands("mul", x, y))
    dtype = as_dtype(out_dtype)
    wide = [conversion.convert(as_array(v), dtype=dtype, weak=False) for v in (x, y)]
    return arithmetic.multiply(*wide)


def mulhi(x: Any, y: Any, /) -> Array:
    """The upper half of the bits of the product of two integers, in their dtype.

    >>> import numpy as np
    >>> from rlx import lax
    >>> lax.mulhi(np.uint32(1 << 31), np.uint32(6)).item()
    3
    """
    first, second = map(as_array, operands("mulhi", x, y))
    dtype = first.dtype
    if not is_integer(dtype):
        raise DtypeError(f"lax.mulhi got {dtype.name}.", "It takes integers: convert first.")
    if dtype.itemsize == 8:
        return _upper_product(first, second)
    wide = np.dtype(f"{dtype.kind}8")
    product = arithmetic.multiply(*(conversion.convert(v, dtype=wide, weak=False) for v in (first, second)))
    shift = shift_right_arithmetic if dtype_kind(dtype) == "i" else shift_right_logical
    return conversion.convert(shift(product, _word(8 * dtype.itemsize, wide)), dtype=dtype, weak=False)


def _upper_product(x: Array, y: Array) -> Array:
    """mulhi of 64-bit integers, from products of their halves."""
    shift = shift_right_arithmetic if dtype_kind(x.dtype) == "i" else shift_right_logical
    half, mask = _word(32, x.dtype), _word((1 << 32) - 1, x.dtype)
    x_low, x_high = bitwise_and(x, mask), shift(x, half)
    y_low, y_high = bitwise_and(y, mask), shift(y, half)
    carried = add(mul(x_high, y_low), shift_right_logical(mul(x_low, y_low), half))
    crossed = add(mul(x_low, y_high), bitwise_and(carried, mask))
    return add(add(mul(x_high, y_high), shift(carried, half)), shift(crossed, half))


def clamp(min: Any, x: Any, max: Any) -> Array:
    """x limited to the range from min to max.

    >>> from rlx import lax
    >>> lax.clamp(0.0, 3.0, 1.0).item()
    1.0
    """
    return arithmetic.clamp(*operands("clamp", min, x, max))


def integer_pow(x: Any, y: int) -> Array:
    """x to a power that is a Python integer.

    >>> from rlx import lax
    >>> lax.integer_pow(3.0, 2).item()
    9.0
    """
    base = as_array(x)
    if base.dtype.kind == "b" or (y < 0 and is_integer(base.dtype)):
        raise DtypeError(
            f"lax.integer_pow cannot raise {base.dtype.name} to the power {y}.", "Convert the base with .astype(...)."
        )
    return arithmetic.integer_power(base, exponent=int(y))


def pow(x: Any, y: Any) -> Array:
    """x to the power y; x is floating or complex, y of the same dtype or an integer.

    >>> from rlx import lax
    >>> lax.pow(2.0, 3.0).item()
    8.0
    """
    base = as_array(x)
    if not is_inexact(base.dtype):
        raise DtypeError(
            f"lax.pow got a base of {base.dtype.name}.", "Convert it with .astype(float), or use lax.integer_pow."
        )
    if isinstance(y, int) and not isinstance(y, bool):
        return integer_pow(base, y)
    exponent = as_array(y)
    if is_integer(exponent.dtype):
        exponent = conversion.convert(exponent, dtype=base.dtype, weak=exponent.weak_type)
        return arithmetic.power(base, exponent)
    return arithmetic.power(*operands("pow", x, y))


def reciprocal(x: Any) -> Array:
    """1 / x.

    >>> from rlx import lax
    >>> lax.reciprocal(4.0).item()
    0.25
    """
    return integer_pow(x, -1)


class RoundingMethod(enum.IntEnum):
    """The rounding of halves.

    >>> from rlx import lax
    >>> lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN).item()
    2.0
    >>> lax.round(2.5, lax.RoundingMethod.AWAY_FROM_ZERO).item()
    3.0
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """The nearest integer.

    >>> from rlx import lax
    >>> lax.round(2.5).item(), lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN).item()
    (3.0, 2.0)
    """
    away = RoundingMethod(rounding_method) is RoundingMethod.AWAY_FROM_ZERO
    return rounding.round(as_array(x), mode="away" if away else "even")


def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """on_true where the bool pred is true, elsewhere on_false.

    >>> import numpy as np
    >>> from rlx import lax
    >>> np.asarray(lax.select(np.array([True, False]), np.array([1, 2]), np.array([3, 4])))
    array([1, 4])
    """
    return select_n(pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Array:
    """cases[which], elementwise: `which` is a bool (of two cases) or an int32 array.

    >>> import numpy as np
    >>> from rlx import lax
    >>> which = np.array([2, 0, 1], np.int32)
    >>> np.asarray(lax.select_n(which, *np.arange(9).reshape(3, 3)))
    array([6, 1, 5])
    """
    if not cases:
        raise ShapeError("lax.select_n got no cases.", "Pass at least one array to select from.")
    selector = as_array(which)
    chosen = operands("select_n", *cases)
    shape = as_array(chosen[0]).shape
    if any(as_array(c).shape != shape for c in chosen) or selector.shape not in ((), shape):
        shapes = ", ".join(str(as_array(c).shape) for c in chosen)
        raise ShapeError(
            f"lax.select_n got `which` of shape {selector.shape} and cases of shapes {shapes}.",
            "Cases must have one shape, and `which` must have that shape or be a scalar; rlx.numpy.where broadcasts.",
        )
    if len(chosen) == 1:
        return as_array(chosen[0])
    if selector.dtype == np.dtype(bool):
        if len(chosen) > 2:
            raise DtypeError(f"lax.select_n got a bool `which` for {len(chosen)} cases.", "Use an int32 `which`.")
        return conversion.select(selector, chosen[1], chosen[0])
    if selector.dtype != np.dtype("i4"):
        raise DtypeError(f"lax.select_n got `which` of dtype {selector.dtype.name}.", "Use a bool or int32 array.")
    result = chosen[-1]
    for number in reversed(range(len(chosen) - 1)):
        result = conversion.select(comparison.less_equal(selector, number), chosen[number], result)
    return result


def stop_gradient(x: Any) -> Any:
    """x (an array or a tree of arrays), which is a constant for derivatives.

    >>> import rlx
    >>> rlx.grad(lambda x: x * rlx.lax.stop_gradient(x))(3.0).item()
    3.0
    """

    def stop(leaf: Any) -> Any:
        value = as_array(leaf)
        return stop_gradient_op(value) if is_inexact(value.dtype) else leaf

    return tree.map(stop, x)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Array:
    """The floats rounded to a format with fewer bits, in their own dtype; so are their derivatives.

    >>> from rlx import lax
    >>> lax.reduce_precision(1.2345678, 8, 7).item()
    1.234375
    """
    x = as_array(operand)
    if not is_float(x.dtype) or is_complex(x.dtype):
        raise DtypeError(f"lax.reduce_precision got {x.dtype.name}.", "It takes floating arrays: convert first.")
    if exponent_bits < 1 or mantissa_bits < 0:
        raise ShapeError(
            f"lax.reduce_precision got exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}.",
            "A format must have at least one exponent bit and no negative number of mantissa bits.",
        )
    bits = (int(exponent_bits), int(mantissa_bits))

    def rounded(value: Any) -> Array:
        return _round_to_format(value, *bits)

    @custom_jvp
    def ruled(value: Any) -> Array:
        return rounded(value)

    def rule(primals: Any, tangents: Any) -> tuple[Any, Any]:
        tangent = linear_call(lambda _, t: rounded(t), lambda _, ct: rounded(ct), (), tangents[0])
        return ruled(*primals), tangent

    ruled.defjvp(rule)
    return ruled(x)


def _round_to_format(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    info = ml_dtypes.finfo(x.dtype)
    word = np.dtype(f"u{x.dtype.itemsize}")
    bits = conversion.bitcast(x, dtype=word)
    rounded = bits
    spare = int(info.nmant) - mantissa_bits
    if spare > 0:
        half = (1 << (spare - 1)) - 1
        last = bitwise_and(shift_right_logical(bits, _word(spare, word)), _word(1, word))
        mask = _word((1 << 8 * word.itemsize) - (1 << spare), word)
        rounded = bitwise_and(add(bits, add(last, _word(half, word))), mask)
    result = conversion.bitcast(rounded, dtype=x.dtype)
    bias = (1 << (exponent_bits - 1)) - 1
    if bias < info.maxexp - 1:
        largest = (2.0 - 2.0**-mantissa_bits) * 2.0**bias
        too_large = comparison.greater(abs(result), largest)
        result = conversion.select(too_large, arithmetic.copysign(float("inf"), x), result)
        too_small = comparison.less(abs(result), 2.0 ** (1 - bias))
        result = conversion.select(too_small, arithmetic.copysign(0.0, x), result)
    return conversion.select(ne(x, x), x, result)


def _word(value: int, dtype: np.dtype) -> Array:
    return as_array(np.asarray(value, dtype))
