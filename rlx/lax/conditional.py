"""cond and switch: one of several functions, chosen by a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray
from rlx.config import config
from rlx.errors import ControlFlowTypeError, ShapeError
from rlx.ir.program import Program
from rlx.ir.types import TensorType, is_integer, promote_dtypes
from rlx.lax.bodies import (
    as_weak_as,
    axes_text,
    check_callable,
    has_own_lines,
    leaf_names,
    runs_in_python,
    scalar_bool,
    share_captures,
    trace_threaded,
    with_output_types,
)
from rlx.lax.operands import as_array
from rlx.ops.arithmetic import clamp
from rlx.ops.conditional import cond as cond_op
from rlx.ops.conversion import convert
from rlx.trace.builder import state
from rlx.trace.flat import FlatFunction, flatten_call, named_after
from rlx.trace.interpret import interpret
from rlx.trace.references import Cell, Threaded, write_last
from rlx.transforms.varying import Axes, varying_axes
from rlx.trees import tree

__all__ = ["cond", "switch"]

_ABSENT = object()


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _ABSENT,
) -> Any:
    """true_fun(*operands) where pred holds, else false_fun(*operands); only that one runs.

    Under vmap with a mapped predicate both run, and the result is selected.

    Args:
      pred: a scalar; numbers count as true unless they are zero.
      true_fun, false_fun: functions of the operands whose results have equal structures, shapes and
        dtypes.
      operands: arrays, or trees of arrays. `operand=` passes a single one.

    JAX's older way to call it, cond(pred, true_operand, true_fun, false_operand, false_fun), is understood, too.

    Raises: ControlFlowTypeError where the results' types differ, naming the leaf.

    >>> from rlx import lax
    >>> lax.cond(True, lambda x: x + 1, lambda x: x - 1, 5).item()
    6
    """
    if len(operands) == 2 and not callable(true_fun) and callable(false_fun) and callable(operands[1]):
        first, second = false_fun, operands[1]
        return cond(pred, lambda x, _: first(x), lambda _, y: second(y), true_fun, operands[0])
    check_callable("cond", true_fun=true_fun, false_fun=false_fun)
    arguments = _arguments("cond", operands, operand)
    predicate = as_array(pred)
    if predicate.shape != ():
        raise ShapeError(
            f"lax.cond got a predicate of type {predicate.type!r}.",
            "The predicate is one value: reduce it with .all() or .any(), or use rlx.numpy.where to"
            " choose elementwise.",
        )
    if runs_in_python():
        return _call_branch(true_fun if bool(_value(predicate)) else false_fun, arguments)
    index = convert(scalar_bool(predicate), dtype=np.dtype("i4"), weak=False)
    return _choose("cond", index, [false_fun, true_fun], ["false_fun", "true_fun"], arguments)


def switch(
    index: Any,
    branches: Sequence[Callable[..., Any]],
    *operands: Any,
    operand: Any = _ABSENT,
) -> Any:
    """branches[index](*operands), the index clamped to the branches; only that one runs.

    Args:
      index: an integer scalar.
      branches: functions of the operands whose results have equal structures, shapes and dtypes.
      operands: arrays, or trees of arrays.

    Raises: ControlFlowTypeError where the results' types differ, naming the leaf.

    >>> from rlx import lax
    >>> lax.switch(2, [lambda x: x, lambda x: 2 * x, lambda x: 3 * x], 5).item()
    15
    """
    functions = list(branches)
    if not functions:
        raise ControlFlowTypeError("lax.switch got no branches.", "Pass at least one function.")
    names = [f"branches[{i}]" for i in range(len(functions))]
    check_callable("switch", **dict(zip(names, functions, strict=True)))
    arguments = _arguments("switch", operands, operand)
    number = as_array(index)
    if number.shape != () or not is_integer(number.dtype):
        raise ControlFlowTypeError(
            f"lax.switch got an index of type {number.type!r}.", "The index is an integer scalar."
        )
    last = len(functions) - 1
    if runs_in_python():
        return _call_branch(functions[min(max(int(_value(number)), 0), last)], arguments)
    if number.dtype != np.dtype("i4"):
        wide = convert(number, dtype=np.dtype("i8"), weak=False) if number.dtype.itemsize < 8 else number
        number = convert(clamp(0, wide, last), dtype=np.dtype("i4"), weak=False)
    return _choose("switch", number, functions, names, arguments)


def _arguments(name: str, operands: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    if operand is _ABSENT:
        return operands
    if operands:
        raise ControlFlowTypeError(
            f"lax.{name} got operands by position and by the keyword operand.",
            "Pass them by position only.",
        )
    return (operand,)


def _call_branch(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The chosen function's result; arguments and results are arrays as they are when traced."""
    leaves, treedef = flatten_call(arguments, {}, "an operand")
    flat = FlatFunction(function, treedef)
    return flat.unflatten(flat(*leaves))


def _value(array: Any) -> np.ndarray:
    return array.concrete().numpy()


def choose_known(
    name: str,
    chosen: int,
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    arguments: tuple[Any, ...],
) -> Any:
    """The result of functions[chosen], after checking that all functions return the same types."""
    if runs_in_python():
        return _call_branch(functions[chosen], arguments)
    leaves, in_tree = flatten_call(arguments, {}, f"an operand of lax.{name}")
    known = leaves if state.builder is None else None
    flat, staged, types, cells = _stage_branches(name, functions, names, in_tree, leaves, known)
    program, captured = staged[chosen]
    contents = [cell.read() for cell in cells]
    outs = interpret(program, [*captured, *contents, *leaves])
    return flat.unflatten(write_last(cells, as_weak_as(outs, types)))


def _choose(
    name: str,
    index: Array,
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    arguments: tuple[Any, ...],
) -> Any:
    if state.builder is None and isinstance(index, ConcreteArray):
        chosen = min(max(int(_value(index)), 0), len(functions) - 1)
        return choose_known(name, chosen, functions, names, arguments)
    leaves, in_tree = flatten_call(arguments, {}, f"an operand of lax.{name}")
    flat, staged, types, cells = _stage_branches(name, functions, names, in_tree, leaves, None)
    programs, captured = share_captures(staged)
    contents = [cell.read() for cell in cells]
    outs = cond_op(index, *captured, *contents, *leaves, branches=tuple(programs))
    return flat.unflatten(write_last(cells, as_weak_as(outs, types)))


def _stage_branches(
    name: str,
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    in_tree: tree.TreeDef,
    leaves: Sequence[Array],
    known: Sequence[Array] | None,
) -> tuple[FlatFunction, list[tuple[Program, list[Any]]], list[TensorType], list[Cell]]:
    """Every branch's program, with results of one type, and what it captured; the types of the results, and the cells
    that some branch writes to. Their contents come before the operands, and new ones after the results."""
    types = [x.type for x in leaves]
    flats: list[FlatFunction] = []
    traced: list[tuple[Program, list[Any], Threaded]] = []
    varying: list[list[Axes | None]] = []
    for function in functions:
        watched = _noting(function, varying) if has_own_lines(function) else function
        flat, program, captured, cells = trace_threaded(name, watched, in_tree, types, known, given=leaves)
        flats.append(flat)
        traced.append((program, captured, cells))
    _check_structures(name, names, flats)
    _check_variation(name, names, flats[0], varying)
    written = list(dict.fromkeys(cell for _, _, cells in traced for cell in cells.written))
    staged = [cells.taking(program, captured, written) for program, captured, cells in traced]
    joined = _join_results(name, names, flats[0], [program for program, _ in staged])
    joined += [cell.type for cell in written]
    return flats[0], [(with_output_types(program, joined), captured) for program, captured in staged], joined, written


def _check_structures(name: str, names: Sequence[str], flats: Sequence[FlatFunction]) -> None:
    for other, what in zip(flats[1:], names[1:], strict=True):
        if other.out_tree != flats[0].out_tree:
            raise ControlFlowTypeError(
                f"lax.{name}: {names[0]} returns a result of structure {flats[0].out_tree}, but {what}"
                f" one of structure {other.out_tree}.",
                "All branches return results of one structure: the same nesting of tuples, lists and"
                " dicts, with the same keys.",
            )


def _noting(function: Callable[..., Any], found: list[list[Axes | None]]) -> Callable[..., Any]:
    """The function, of whose results is noted over which axes they vary."""

    @named_after(function)
    def noting(*args: Any) -> Any:
        result = function(*args)
        found.append([varying_axes(x) for x in tree.leaves(result)])
        return result

    return noting


def _check_variation(
    name: str, names: Sequence[str], flat: FlatFunction, varying: Sequence[Sequence[Axes | None]]
) -> None:
    """Raises ControlFlowTypeError unless a result varies over the same axes of a mesh in all branches."""
    paths = leaf_names("result", tree.unflatten(flat.out_tree, range(flat.results)))
    if len(varying) < len(names):  # some are rlx's own
        return
    for path, found in zip(paths, zip(*varying, strict=True), strict=True):
        if None in found or len(set(found)) == 1:
            continue
        known = [axes for axes in found if axes is not None]
        every = frozenset().union(*known)
        what, own = next((what, own) for what, own in zip(names, known, strict=True) if own != every)
        axes = axes_text(every - own)
        raise ControlFlowTypeError(
            f"lax.{name}: {path} of {what} has one value on all devices along {axes}, that of others varies.",
            f"Let it vary in {what}, too: rlx.lax.pcast(result, {axes}, to='varying').",
        )


def _join_results(name: str, names: Sequence[str], flat: FlatFunction, programs: Sequence[Program]) -> list[TensorType]:
    """The type of each result: weak ones yield to the others."""
    paths = leaf_names("result", tree.unflatten(flat.out_tree, range(flat.results)))
    joined = []
    for i, path in enumerate(paths):
        types = [p.output_types[i] for p in programs]
        found = _join(types)
        if found is None:
            texts = ", ".join(f"{t.strong()!r} from {n}" for t, n in zip(types, names, strict=True))
            advice = (
                "Return arrays of one shape: broadcast, pad or slice in the branches."
                if any(t.shape != types[0].shape for t in types)
                else "Convert one of them with .astype(...)."
            )
            raise ControlFlowTypeError(f"lax.{name}: {path} has different types: {texts}.", advice)
        joined.append(found)
    return joined


def _join(types: Sequence[TensorType]) -> TensorType | None:
    """The common type, or None: shapes are equal, and strong dtypes are; of one dtype, the first branch's type."""
    if any(t.shape != types[0].shape for t in types):
        return None
    if all(t.dtype == types[0].dtype for t in types):
        return types[0]
    strong = {t.dtype for t in types if not t.weak}
    if len(strong) > 1:
        return None
    pairs = [(t.dtype, t.weak) for t in types]
    try:
        dtype, weak = promote_dtypes(pairs, config.default_float, config.default_int)
    except TypeError:
        return None
    if strong and dtype not in strong:
        return None
    return TensorType(types[0].shape, dtype, weak)
