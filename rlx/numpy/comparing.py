"""Whether arrays are equal or nearly so."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import RlxError
from rlx.ir.types import is_inexact
from rlx.numpy.elementwise import equal, less_equal
from rlx.numpy.floats import absolute, isfinite, isnan
from rlx.numpy.promotion import convert_to, float_of, operand, promote, promote_inexact
from rlx.numpy.reductions import all as all_
from rlx.ops import arithmetic, comparison
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["allclose", "array_equal", "array_equiv", "isclose"]

_BOOL = np.dtype(bool)


@replayed
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Array:
    """Whether |a - b| <= atol + rtol * |b|; equal infinities are close.

    Args: a, b: arrays or numbers; rtol, atol: tolerances; equal_nan: whether NaN is close to NaN.
    Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.isclose(1.0, 1.000001))
    True
    """
    x, y = promote("isclose", a, b)
    if not is_inexact(x.dtype):
        x, y = promote_inexact("isclose", x, y)
    magnitude = float_of(x.dtype)
    bound = arithmetic.add(
        convert_to(operand(atol), magnitude, True),
        arithmetic.multiply(convert_to(operand(rtol), magnitude, True), absolute(y)),
    )
    near = less_equal(absolute(arithmetic.subtract(x, y)), bound)
    finite = comparison.bitwise_and(isfinite(x), isfinite(y))
    close = comparison.bitwise_or(comparison.bitwise_and(finite, near), comparison.equal(x, y))
    if equal_nan:
        close = comparison.bitwise_or(close, comparison.bitwise_and(isnan(x), isnan(y)))
    return close


@replayed
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Array:
    """Whether all elements are close, see `isclose`.

    Args: as `isclose`. Returns: a 0-d bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.allclose(jnp.ones(2), 1.0))
    True
    """
    return all_(isclose(a, b, rtol, atol, equal_nan))


def _convert(value: Any) -> Any:
    return as_array(np.asarray(value) if isinstance(value, (list, tuple)) else value)


@replayed
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Array:
    """Whether two arrays have the same shape and elements.

    Args: a1, a2: arrays; equal_nan: whether NaN equals NaN. Returns: a 0-d bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.array_equal(jnp.ones(2), jnp.ones(3)))
    False
    """
    x: Any = None
    y: Any = None
    with suppress(RlxError):
        x, y = _convert(a1), _convert(a2)
    if x is None or y is None or x.shape != y.shape:
        return convert_to(False, _BOOL)
    same = equal(x, y)
    if equal_nan:
        same = comparison.bitwise_or(same, comparison.bitwise_and(isnan(x), isnan(y)))
    return all_(same)


def array_equiv(a1: Any, a2: Any) -> Array:
    """Whether two arrays broadcast to the same elements.

    Args: a1, a2: arrays. Returns: a 0-d bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.array_equiv(jnp.ones(2), 1.0))
    True
    """
    x, y = _convert(a1), _convert(a2)
    sizes = zip(reversed(x.shape), reversed(y.shape), strict=False)
    fits = all(m == n or 1 in (m, n) for m, n in sizes)
    return all_(equal(x, y)) if fits else convert_to(False, _BOOL)
