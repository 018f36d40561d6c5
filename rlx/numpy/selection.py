"""Choosing between values: where, clip, select, piecewise, choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from rlx.array import Array, is_array_or_numpy
from rlx.config import config
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import dtype_kind, is_complex
from rlx.numpy.elementwise import aligned, truth
from rlx.numpy.lookups import nonzero
from rlx.numpy.placement import refuse_out
from rlx.numpy.promotion import (
    broadcast_array,
    broadcast_operands,
    convert_to,
    fill,
    known_numpy,
    operand,
    promote,
    scalar_array,
    shared,
)
from rlx.numpy.rounding import remainder
from rlx.ops import arithmetic, comparison
from rlx.ops.arithmetic import select as choose_between
from rlx.trace.builder import state
from rlx.trace.flat import FlatFunction, as_array, flatten_call, function_name
from rlx.trace.interpret import interpret
from rlx.trace.once import traces_of
from rlx.trace.replay import replayed, replayed_in_traces
from rlx.trees import tree

__all__ = ["choose", "clip", "piecewise", "select", "where"]


@overload
def where(condition: Any, /, *, size: int | None = ..., fill_value: Any = ...) -> tuple[Array, ...]: ...
@overload
def where(condition: Any, x: Any, y: Any, /) -> Array: ...
@replayed_in_traces
def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """x where the condition holds, elsewhere y; with one argument, `nonzero`.

    Args: condition: bool (or number) array; x, y: arrays or numbers that broadcast;
    size, fill_value: for the form with one argument, see `nonzero`.
    Returns: an array of the promoted dtype, or a tuple of index arrays.
    Raises: ShapeError if shapes do not broadcast; ConcretizationTypeError for one traced argument.

    >>> import rlx.numpy as jnp
    >>> jnp.where(jnp.array([True, False]), 1, 0)
    Array([1, 0], dtype=int32, weak_type=True)
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ShapeError("where got one of x and y.", "Pass both, or neither.")
    x, y = aligned(x, y) or promote("where", shared(x), shared(y))
    return choose_between(truth(condition, "where"), x, y)


@replayed
def clip(
    arr: Any = None, /, min: Any = None, max: Any = None, *, a: Any = None, a_min: Any = None, a_max: Any = None
) -> Array:
    """Values limited to an interval.

    Args: arr: array; min, max: bounds that broadcast (None: no bound).
    Returns: an array of the promoted dtype; where min > max it is max.
    Raises: DtypeError for complex operands.

    >>> import rlx.numpy as jnp
    >>> jnp.clip(jnp.arange(4), 1, 2)
    Array([1, 1, 2, 2], dtype=int32)
    """
    x = a if arr is None else arr
    low = a_min if min is None else min
    high = a_max if max is None else max
    x = as_array(operand(x, "clip"))
    for bound in (x, low, high):
        if isinstance(bound, complex) or (is_array_or_numpy(bound) and is_complex(bound.dtype)):
            raise DtypeError("clip does not take complex numbers.", "Clip their parts.")
    if low is not None:
        x = arithmetic.maximum(*promote("clip", x, low))
    if high is not None:
        x = arithmetic.minimum(*promote("clip", x, high))
    return x


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """The choice of the first condition that is true.

    Args: condlist: bool arrays; choicelist: one array for each; default: used if no condition is true.
    Returns: an array. Raises: ShapeError if the lists differ in length or are empty.

    >>> import rlx.numpy as jnp
    >>> x = jnp.arange(4)
    >>> jnp.select([x < 1, x > 2], [-x - 1, x], 9)
    Array([-1,  9,  9,  3], dtype=int32)
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ShapeError(
            f"select got {len(condlist)} conditions and {len(choicelist)} choices.", "Give one choice each."
        )
    *choices, result = promote("select", *choicelist, default)
    for condition, choice in zip(list(condlist)[::-1], choices[::-1], strict=True):
        mask = as_array(operand(condition, "select"))
        if mask.dtype.kind != "b":
            raise DtypeError(f"select got a condition of dtype {mask.dtype.name}.", "Pass bool arrays.")
        result = choose_between(mask, choice, result)
    return result


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """Functions of x, each where its condition is true.

    Args: x: array; condlist: bool arrays; funclist: functions or numbers, perhaps one more as default.
    Returns: an array of x's dtype; if several conditions are true, the last one counts.
    Raises: ShapeError if the lists do not match.

    >>> import rlx.numpy as jnp
    >>> jnp.piecewise(jnp.array([-1.0, 2.0]), [jnp.array([True, False])], [lambda v: -v, 0.0])
    Array([1., 0.], dtype=float32)
    """
    value = as_array(operand(x, "piecewise"))
    if isinstance(condlist, (list, tuple)) and condlist and not np.isscalar(condlist[0]):
        conditions = [as_array(operand(c, "piecewise")) for c in condlist]
    else:
        conditions = [
            as_array(np.asarray(condlist) if isinstance(condlist, (list, tuple)) else operand(condlist, "piecewise"))
        ]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ShapeError(
            f"piecewise got {len(conditions)} conditions and {len(funclist)} functions.",
            "Give one function for each condition, and perhaps a default.",
        )
    result = fill(value.shape, 0, value.dtype)
    if len(funclist) > len(conditions):
        result = _piece(funclist[-1], value, args, kw)
    for condition, function in zip(conditions, funclist, strict=False):
        result = choose_between(truth(condition), _piece(function, value, args, kw), result)
    return result


def _piece(function: Callable[..., Any] | Any, x: Any, args: Any, kw: Any) -> Any:
    value = _called(function, x, args, kw) if callable(function) else function
    return broadcast_array(convert_to(operand(value, "piecewise"), x.dtype), x.shape)


def _called(function: Callable[..., Any], x: Any, args: Any, kw: Any) -> Any:
    """The function's result; it is traced once for arrays of these types and these other arguments."""
    if state.builder is not None or config.watched:
        return function(x, *args, **kw)
    given = dict(enumerate(args)) | kw
    arrays = {where: value for where, value in given.items() if is_array_or_numpy(value)}
    rest = [(where, value) for where, value in given.items() if where not in arrays]

    def call(x: Any, values: dict[Any, Any]) -> Any:
        found = dict(rest) | values
        return function(x, *[found.pop(n) for n in range(len(args))], **found)

    leaves, in_tree = flatten_call((x, arrays), {})
    flat = FlatFunction(call, in_tree, name=function_name(function))
    found = traces_of(function).find(flat, leaves, [part for pair in rest for part in pair])
    outs = interpret(found.program, [*found.captured, *leaves])
    return tree.unflatten(found.out_tree, found.cells.write(outs))


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """For each element of a, the element of the choice with that number.

    Args: a: integer array; choices: arrays that broadcast with a; mode: "clip", "wrap", or "raise"
    (needs a to be known while tracing).
    Returns: an array. Raises: ValueError for an index out of bounds with mode "raise".

    >>> import rlx.numpy as jnp
    >>> jnp.choose(jnp.array([1, 0]), [jnp.array([10, 20]), jnp.array([30, 40])])
    Array([30, 20], dtype=int32)
    """
    refuse_out("choose", out)
    index = as_array(operand(a, "choose"))
    if dtype_kind(index.dtype) not in "iu":
        raise DtypeError(f"choose got indices of dtype {index.dtype.name}.", "Pass integers.")
    options = promote("choose", *(choices if isinstance(choices, (list, tuple)) else list(choices)))
    count = len(options)
    if mode == "raise":
        values = known_numpy(index, "choose with mode='raise'", 'Pass mode="clip" or mode="wrap".')
        if values.size and (values.min() < 0 or values.max() >= count):
            raise ValueError(f"choose got an index outside of the {count} choices.")
    elif mode == "wrap":
        index = remainder(index, count)
    elif mode != "clip":
        raise ValueError(f"choose has no mode {mode!r}: use 'raise', 'wrap' or 'clip'.")
    index, *options = broadcast_operands([index, *options], "choose")
    result = options[-1]
    for number in range(count - 2, -1, -1):
        here = comparison.less_equal(index, scalar_array(number, index.dtype, True))
        result = choose_between(here, options[number], result)
    return result
