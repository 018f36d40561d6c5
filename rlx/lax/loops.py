"""while_loop and fori_loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray, is_concrete, memory_of, moved
from rlx.config import config
from rlx.errors import ControlFlowTypeError
from rlx.ir.types import is_complex, is_integer, promote_dtypes
from rlx.lax.bodies import (
    as_weak_as,
    check_callable,
    check_carry,
    converted,
    line_of_result,
    runs_in_python,
    trace_carry,
    trace_threaded,
)
from rlx.lax.operands import as_array
from rlx.lax.scanning import scan
from rlx.ops.arithmetic import add
from rlx.ops.comparison import less
from rlx.ops.conversion import convert
from rlx.ops.while_loop import while_loop as while_op
from rlx.trace.flat import flatten_call
from rlx.trace.tracing import known_value
from rlx.trees import tree

__all__ = ["fori_loop", "while_loop"]


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """Repeat `value = body_fun(value)` while cond_fun(value) is true; returns the last value.

    Differentiable forwards and backwards.

    Args:
      cond_fun: takes the carry, returns a scalar bool.
      body_fun: takes the carry, returns one of the same structure, shapes and dtypes.
      init_val: the initial carry: an array, or a tree of arrays.

    Raises: ControlFlowTypeError if the body changes the carry's type, naming the leaf.

    >>> from rlx import lax
    >>> lax.while_loop(lambda x: x < 100, lambda x: 2 * x, 3).item()
    192
    """
    check_callable("while_loop", cond_fun=cond_fun, body_fun=body_fun)
    leaves, in_tree = flatten_call((init_val,), {}, "the initial carry of lax.while_loop")
    if runs_in_python():
        (value,), _ = tree.unflatten(in_tree, leaves)
        while _is_true(cond_fun(value), cond_fun):
            value = body_fun(value)
        return tree.map(as_array, value)
    flat, body, body_captured, types, cells, leaves, in_tree = trace_carry(
        "while_loop", body_fun, body_fun, in_tree, leaves
    )

    def condition_fun(carry: Any) -> Array:
        holds = cond_fun(carry)
        found, treedef = tree.flatten(holds)
        if len(found) != 1 or treedef != tree.structure(0):
            described = ", ".join(repr(as_array(x).type.strong()) for x in found)
            raise ControlFlowTypeError(
                f"lax.while_loop: cond_fun returned {described or 'nothing'}.",
                "It must return a scalar bool: reduce an array with .all() or .any().",
                line_of_result(holds, cond_fun),
            )
        return _checked_condition(as_array(holds), cond_fun)

    _, condition, condition_captured, asked = trace_threaded("while_loop", condition_fun, in_tree, types, given=leaves)
    asked.refuse_writes("cond_fun of lax.while_loop")
    asking, condition_captured = asked.taking(condition, condition_captured, cells.written)
    condition = asking.replace(outputs=asking.outputs[:1])
    # contents of cells that the body writes to are also carried
    constants = len(body_captured) - len(cells.written)
    starts = [*body_captured[constants:], *converted(leaves, types)]
    outs = while_op(
        *condition_captured,
        *body_captured[:constants],
        *starts,
        condition=condition,
        body=body,
        condition_constants=len(condition_captured),
        body_constants=constants,
    )
    # an unchanged carry of the body is its input, for every transform to see
    kept = [o is i for o, i in zip(body.outputs, body.inputs[constants:], strict=True)]
    results = zip(starts, kept, as_weak_as(outs, body.output_types), strict=True)
    return flat.unflatten(cells.write_first([start if same else out for start, same, out in results]))


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """Repeat `value = body_fun(i, value)` for i from lower to upper - 1; returns the last value.

    Integer bounds that are known while tracing make this a scan, others a while_loop; both can be
    differentiated forwards and backwards.

    Args:
      lower, upper: real scalars; the counter is lower, lower + 1, ... below upper.
      body_fun: takes the counter and the carry, returns a carry of the same type.
      init_val: the initial carry.
      unroll: accepted for JAX compatibility, for known bounds only: the compiler decides.

    >>> from rlx import lax
    >>> lax.fori_loop(0, 5, lambda i, total: total + i, 0).item()
    10
    """
    check_callable("fori_loop", body_fun=body_fun)
    first, last = _bounds(lower, upper)
    start, stop = known_value(first), known_value(last)
    if start is not None and stop is not None and is_integer(start.dtype):
        return _counted(start, int(stop.numpy()), body_fun, init_val)
    if unroll is not None and (unroll is True or unroll > 1):
        raise ControlFlowTypeError(
            f"lax.fori_loop got unroll={unroll} for bounds that are not known while tracing.",
            "Leave out unroll, or make the bounds Python integers.",
        )

    def unfinished(carry: tuple[Any, Any, Any]) -> Array:
        counter, end, _ = carry
        return less(counter, end)

    def advance(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        counter, end, value = carry
        return add(counter, 1), end, _stepped(body_fun, counter, value)

    return while_loop(unfinished, advance, (first, last, init_val))[2]


def _bounds(lower: Any, upper: Any) -> tuple[Array, Array]:
    """Both bounds as integer scalars of one dtype, weak if both are Python numbers."""
    bounds = as_array(lower), as_array(upper)
    for what, bound in zip(("lower", "upper"), bounds, strict=True):
        if bound.shape != () or bound.dtype.kind == "b" or is_complex(bound.dtype):
            raise ControlFlowTypeError(
                f"lax.fori_loop got {what} of type {bound.type!r}.", "Bounds must be real scalars, usually integers."
            )
    pairs = [(b.dtype, b.weak_type) for b in bounds]
    dtype, weak = promote_dtypes(pairs, config.default_float, config.default_int)
    strong = {d for d, is_weak in pairs if not is_weak}
    if len(strong) > 1:
        raise ControlFlowTypeError(
            f"lax.fori_loop got bounds of dtypes {bounds[0].dtype.name} and {bounds[1].dtype.name}.",
            "Bounds must have one dtype: convert one with .astype(...).",
        )
    first, last = (
        b if b.dtype == dtype and b.weak_type == weak else convert(b, dtype=dtype, weak=weak) for b in bounds
    )
    return first, last


def _stepped(body_fun: Callable[[Any, Any], Any], counter: Any, value: Any) -> Any:
    """One step of a fori_loop that is being traced."""
    result = body_fun(counter, value)
    check_carry("fori_loop", body_fun, value, result)
    return result


def _counted(start: ConcreteArray, stop: int, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        counter, value = carry
        return (add(counter, 1), _stepped(body_fun, counter, value)), None

    length = max(stop - int(start.numpy()), 0)
    if runs_in_python():
        value = tree.map(as_array, init_val)
        memory = next((memory_of(x) for x in tree.leaves(value) if is_concrete(x)), None)
        for i in range(length):
            counter = _counter(start, i)
            value = body_fun(counter if memory is None else moved(counter, memory), value)
        return tree.map(as_array, value)
    (_, result), _ = scan(step, (start, init_val), None, length)
    return result


def _checked_condition(value: Array, cond_fun: Callable[[Any], Any]) -> Array:
    if value.dtype != np.dtype(bool) or value.shape != ():
        raise ControlFlowTypeError(
            f"lax.while_loop: cond_fun returned {value.type.strong()!r}.",
            "It must return a scalar bool: compare, for instance with != 0, or reduce with .all() or .any().",
            line_of_result(value, cond_fun),
        )
    return value


def _is_true(value: Any, cond_fun: Callable[[Any], Any]) -> bool:
    concrete: Any = _checked_condition(as_array(value), cond_fun)
    return bool(concrete.concrete().numpy())


def _counter(start: ConcreteArray, i: int) -> ConcreteArray:
    return ConcreteArray(np.asarray(start.numpy() + i, start.dtype), start.weak_type)
