"""Rounding, quotients with remainders, and the integers' common divisors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray, is_plain
from rlx.config import config
from rlx.errors import DtypeError
from rlx.ir.types import dtype_kind, is_complex, is_float, is_inexact, is_integer
from rlx.numpy.documentation import alias, document
from rlx.numpy.placement import refuse_out
from rlx.numpy.promotion import broadcast_operands, convert_to, promote, promote_inexact, promote_numeric, scalar_array
from rlx.ops import arithmetic, comparison, reduction
from rlx.ops.arithmetic import select
from rlx.ops.stop_gradient import stop_gradient
from rlx.ops.while_loop import loop_while
from rlx.trace.builder import state
from rlx.trace.replay import replayed, replayed_in_traces

__all__ = [
    "around",
    "ceil",
    "divmod",
    "floor",
    "floor_divide",
    "fmod",
    "gcd",
    "lcm",
    "mod",
    "modf",
    "remainder",
    "right_shift",
    "bitwise_right_shift",
    "rint",
    "round",
    "trunc",
]

_NUMPY_QUOTIENTS = frozenset((np.dtype("f4"), np.dtype("f8")))
_NUMPY_REMAINDERS = _NUMPY_QUOTIENTS | frozenset(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8))


def _whole(name: str, summary: str, primitive: Any, result: str) -> Callable[[Any], Array]:
    """A rounding that leaves integers and bools as they are."""

    def function(x: Any) -> Array:
        (value,) = promote(name, x)
        if is_complex(value.dtype):
            raise DtypeError(f"{name} does not take {value.dtype.name}.", "Round its parts.")
        return primitive(value) if is_float(value.dtype) else value

    return document(function, name, summary, f"float(jnp.{name}(-1.5))", result, 1)


floor = _whole("floor", "The largest integer not above x.", arithmetic.floor, "-2.0")
ceil = _whole("ceil", "The smallest integer not below x.", arithmetic.ceil, "-1.0")
trunc = _whole("trunc", "x without its fraction.", arithmetic.trunc, "-1.0")


def _both_parts(x: Any) -> Any:
    if is_complex(x.dtype):
        parts = arithmetic.real(x), arithmetic.imag(x)
        return arithmetic.complex(*[arithmetic.round(p, mode="even") for p in parts])
    return arithmetic.round(x, mode="even")


def rint(x: Any, /) -> Array:
    """The nearest integer as a float; halves go to the even one.

    Args: x: an array or number. Returns: a floating or complex array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.rint(2.5))
    2.0
    """
    (value,) = promote("rint", x)
    return _both_parts(value if is_inexact(value.dtype) else convert_to(value, config.default_float))


@replayed
def round(a: Any, decimals: int = 0, out: None = None) -> Array:
    """Round to a number of decimals; halves go to the even digit.

    Args: a: array; decimals: a Python int, negative to round before the point.
    Returns: an array of the same dtype. Raises: DtypeError for bools.

    >>> import rlx.numpy as jnp
    >>> float(jnp.round(1.26, 1)) == float(jnp.float32(1.3))
    True
    """
    refuse_out("round", out)
    (x,) = promote("round", a)
    if x.dtype.kind == "b":
        raise DtypeError("round does not take bool.", "Convert it with .astype(...) first.")
    if is_integer(x.dtype):
        if decimals >= 0:
            return x
        step = scalar_array(10**-decimals, x.dtype, True)
        wide = convert_to(x, np.dtype("f8"))
        scaled = arithmetic.divide(wide, convert_to(step, np.dtype("f8")))
        return arithmetic.multiply(convert_to(arithmetic.round(scaled, mode="even"), x.dtype), step)
    if decimals == 0:
        return _both_parts(x)
    factor = scalar_array(10.0**decimals, x.dtype, True)
    return arithmetic.divide(_both_parts(arithmetic.multiply(x, factor)), factor)


around = alias(round, "around")


# ------------------------------------------------------------------ quotients
def _real_operands(name: str, x: Any, y: Any) -> list[Any]:
    operands = promote_numeric(name, x, y)
    dtype = operands[0].dtype
    if is_complex(dtype):
        raise DtypeError(f"{name} does not take {dtype.name}.", "Complex numbers have no order.")
    return operands


def _truncated(x: Any, y: Any) -> tuple[Any, Any]:
    """The remainder with the sign of x (0 by an integer 0), and a mask of the signs that differ from y's."""
    left = arithmetic.remainder(x, y)
    zero = scalar_array(0, x.dtype, True)
    if is_integer(x.dtype):
        left = select(comparison.equal(y, zero), zero, left)
    if dtype_kind(x.dtype) == "u":
        return left, None
    differs = comparison.not_equal(comparison.less(left, zero), comparison.less(y, zero))
    return left, comparison.bitwise_and(differs, comparison.not_equal(left, zero))


def _numpy_does(x: Any, y: Any, dtypes: frozenset[np.dtype]) -> bool:
    """Whether values are known, in a dtype for which NumPy's quotients are rlx's, bit for bit."""
    known = is_plain(x) and is_plain(y) and state.builder is None
    return known and x.dtype in dtypes


def _by_numpy(function: np.ufunc, x: Any, y: Any) -> Any:
    if x.shape and y.shape and x.shape != y.shape:
        x, y = broadcast_operands([x, y], function.__name__)
    with np.errstate(all="ignore"):
        return ConcreteArray(np.asarray(function(x.numpy(), y.numpy())), x.weak_type and y.weak_type)


@replayed_in_traces
def remainder(x: Any, y: Any, /) -> Array:
    """x - y * floor(x / y), with the sign of y, as Python's %.

    Args: x, y: real arrays or numbers. Returns: an array of the promoted dtype.
    Raises: DtypeError for complex operands.

    >>> import rlx.numpy as jnp
    >>> jnp.remainder(-7, 3).item()
    2
    """
    x, y = _real_operands("remainder", x, y)
    if _numpy_does(x, y, _NUMPY_REMAINDERS):
        return _by_numpy(np.remainder, x, y)
    if not is_integer(x.dtype):
        return _float_remainder(x, y)
    left, wrong = _truncated(x, y)
    return left if wrong is None else select(wrong, arithmetic.add(left, y), left)


def _float_remainder(x: Any, y: Any) -> Any:
    """-((-x) % -y) for negative y. For other y the result of fmod, moved up if it is negative."""
    zero = scalar_array(0, x.dtype, True)
    positive = is_plain(y) and y.ndim == 0 and bool(y.numpy() > 0)
    below = None if positive else comparison.less(y, zero)
    if below is not None:
        x, y = select(below, arithmetic.negative(x), x), arithmetic.absolute(y)
    left = arithmetic.remainder(x, y)
    left = select(comparison.less(left, zero), arithmetic.add(left, y), left)
    left = arithmetic.add(left, zero)  # -0 becomes 0, which has the sign of y
    return left if below is None else select(below, arithmetic.negative(left), left)


mod = alias(remainder, "mod")


@replayed
def fmod(x: Any, y: Any, /) -> Array:
    """x - y * trunc(x / y), with the sign of x, as C's %.

    Args: x, y: real arrays or numbers. Returns: an array of the promoted dtype.
    Raises: DtypeError for complex operands.

    >>> import rlx.numpy as jnp
    >>> jnp.fmod(-7, 3).item()
    -1
    """
    return arithmetic.remainder(*_real_operands("fmod", x, y))


@replayed_in_traces
def divmod(x: Any, y: Any, /) -> tuple[Any, Any]:
    """floor_divide and remainder at once.

    Args: x, y: real arrays or numbers. Returns: (quotient, remainder).
    Raises: DtypeError for complex operands.

    >>> import rlx.numpy as jnp
    >>> [v.item() for v in jnp.divmod(-7, 3)]
    [-3, 2]
    """
    x, y = _real_operands("divmod", x, y)
    return floor_divide(x, y), remainder(x, y)


@replayed_in_traces
def floor_divide(x: Any, y: Any, /) -> Array:
    """floor(x / y), as Python's //.

    Args: x, y: real arrays or numbers. Returns: an array of the promoted dtype.
    Raises: DtypeError for complex operands.

    >>> import rlx.numpy as jnp
    >>> jnp.floor_divide(-7, 2).item()
    -4
    """
    x, y = _real_operands("floor_divide", x, y)
    if _numpy_does(x, y, _NUMPY_QUOTIENTS) or (_numpy_does(x, y, _NUMPY_REMAINDERS) and y.numpy().all()):
        return _by_numpy(np.floor_divide, x, y)  # integer quotients by zero are not NumPy's
    integers = is_integer(x.dtype)
    if not integers:  # flat, but the steps below divide, and by zero their derivatives are infinite or NaN
        x, y = stop_gradient(x), stop_gradient(y)
    left, wrong = _truncated(x, y)
    quotient = arithmetic.divide(x if integers else arithmetic.subtract(x, left), y)
    if wrong is not None:
        quotient = select(wrong, arithmetic.subtract(quotient, scalar_array(1, x.dtype, True)), quotient)
    if integers:
        return quotient
    zero = scalar_array(0, y.dtype, True)
    ratio, whole = arithmetic.divide(x, y), arithmetic.round(quotient, mode="even")
    whole = select(comparison.equal(whole, zero), arithmetic.copysign(zero, ratio), whole)
    return select(comparison.equal(y, zero), ratio, whole)


def modf(x: Any, /, out: None = None) -> tuple[Any, Any]:
    """The fraction and the whole part, both with the sign of x.

    Args: x: a real array or number. Returns: (fraction, whole).

    >>> import rlx.numpy as jnp
    >>> [float(v) for v in jnp.modf(-1.5)]
    [-0.5, -1.0]
    """
    refuse_out("modf", out)
    (value,) = promote_inexact("modf", x)
    whole = trunc(value)
    infinite = comparison.equal(arithmetic.absolute(value), scalar_array(np.inf, value.dtype, True))
    fraction = arithmetic.subtract(value, select(infinite, scalar_array(0, value.dtype, True), whole))
    return select(infinite, scalar_array(0, value.dtype, True), fraction), whole


def right_shift(x: Any, y: Any, /) -> Array:
    """x >> y; signed integers keep their sign.

    Args: x, y: integer arrays or numbers. Returns: an array of the promoted dtype.
    Raises: DtypeError for other dtypes.

    >>> import rlx.numpy as jnp
    >>> jnp.right_shift(-8, 1).item()
    -4
    """
    left, right = promote_numeric("right_shift", x, y)
    if not is_integer(left.dtype):
        raise DtypeError(f"right_shift does not take {left.dtype.name}.", "Shift integers.")
    unsigned = dtype_kind(left.dtype) == "u"
    return (comparison.shift_right_logical if unsigned else comparison.shift_right_arithmetic)(left, right)


bitwise_right_shift = alias(right_shift, "bitwise_right_shift")


# ------------------------------------------------------------------ divisors
def _integers(name: str, x: Any, y: Any) -> list[Any]:
    operands = promote(name, x, y)
    if is_inexact(operands[0].dtype) or operands[0].dtype.kind == "b":
        raise DtypeError(f"{name} does not take {operands[0].dtype.name}.", "Pass integers.")
    return [v if dtype_kind(v.dtype) == "u" else arithmetic.absolute(v) for v in operands]


def gcd(x1: Any, x2: Any) -> Array:
    """The greatest common divisor.

    Args: x1, x2: integer arrays or numbers. Returns: an array of the promoted dtype.
    Raises: DtypeError for other dtypes.

    >>> import rlx.numpy as jnp
    >>> jnp.gcd(12, 18).item()
    6
    """
    x, y = _integers("gcd", x1, x2)
    zero = scalar_array(0, x.dtype, True)
    x, y = broadcast_operands([x, y], "gcd")

    def unfinished(x: Any, y: Any) -> Any:
        return reduction.reduce_or(comparison.not_equal(y, zero), axes=tuple(range(y.ndim)))

    def euclid(x: Any, y: Any) -> list[Any]:
        ended = comparison.equal(y, zero)
        return [select(ended, x, y), select(ended, y, arithmetic.remainder(x, y))]

    return loop_while(unfinished, euclid, [x, y])[0]


def lcm(x1: Any, x2: Any) -> Array:
    """The least common multiple.

    Args: x1, x2: integer arrays or numbers. Returns: an array of the promoted dtype.
    Raises: DtypeError for other dtypes.

    >>> import rlx.numpy as jnp
    >>> jnp.lcm(4, 6).item()
    12
    """
    x, y = _integers("lcm", x1, x2)
    divisor = gcd(x, y)
    zero, one = scalar_array(0, x.dtype, True), scalar_array(1, x.dtype, True)
    safe = select(comparison.equal(divisor, zero), one, divisor)
    return arithmetic.multiply(x, arithmetic.divide(y, safe))
