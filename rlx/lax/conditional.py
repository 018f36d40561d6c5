"""cond and switch: one of several functions, chosen by a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.array import Array, is_concrete, parts_of
from rlx.config import config
from rlx.errors import ControlFlowTypeError, ShapeError, describe
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
from rlx.sharding.divisions import joined_shardings
from rlx.sharding.trees import placed
from rlx.trace.builder import Builder, state
from rlx.trace.flat import FlatFunction, flatten_call, flatten_local, named_after
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Zero
from rlx.trace.references import Cell, Threaded, write_last
from rlx.trace.spanning import is_spanning, local_of, span_of, spanning_array
from rlx.trace.stacked import is_stacked
from rlx.trace.tracing import finish
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
    """true_fun(*operands) if pred is true, else false_fun(*operands); only the chosen function runs.

    Under vmap with a mapped predicate both run, and the result is selected.

    Args:
      pred: a scalar; numbers count as true unless they are zero.
      true_fun, false_fun: functions of the operands whose results have equal structures, shapes and
        dtypes.
      operands: arrays, or trees of arrays. `operand=` passes a single one.

    JAX's older signature cond(pred, true_operand, true_fun, false_operand, false_fun) is also accepted.

    Raises: ControlFlowTypeError if the results' types differ, naming the leaf.

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
            "The predicate must be a scalar: reduce it with .all() or .any(), or use rlx.numpy.where to"
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
    """branches[index](*operands), the index clamped to the branches; only the chosen function runs.

    Args:
      index: an integer scalar.
      branches: functions of the operands whose results have equal structures, shapes and dtypes.
      operands: arrays, or trees of arrays.

    Raises: ControlFlowTypeError if the results' types differ, naming the leaf.

    >>> from rlx import lax
    >>> lax.switch(2, [lambda x: x, lambda x: 2 * x, lambda x: 3 * x], 5).item()
    15
    """
    if callable(branches):
        raise ControlFlowTypeError(
            f"lax.switch takes a sequence of functions as branches, but got {describe(branches)}.",
            "Write rlx.lax.switch(index, [f, g], x).",
        )
    functions = list(branches)
    if not functions:
        raise ControlFlowTypeError("lax.switch got no branches.", "Pass at least one function.")
    names = [f"branches[{i}]" for i in range(len(functions))]
    check_callable("switch", **dict(zip(names, functions, strict=True)))
    arguments = _arguments("switch", operands, operand)
    number = as_array(index)
    if number.shape != () or not is_integer(number.dtype):
        raise ControlFlowTypeError(
            f"lax.switch got an index of type {number.type!r}.", "The index must be an integer scalar."
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
    flats, staged, types, cells = _stage_branches(name, functions, names, in_tree, leaves, known)
    flat, (program, captured) = flats[chosen], staged[chosen]
    contents = [cell.read() for cell in cells]
    outs = interpret(program, [*captured, *contents, *leaves])
    return _result(flat, write_last(cells, as_weak_as(outs, types)))


def _result(flat: FlatFunction, values: Sequence[Any]) -> Any:
    """A branch's result of these values; results of arrays that processes divide get their dtype."""

    def typed(x: Any) -> Any:
        if not is_spanning(x):
            return x
        own = local_of(x).type
        return spanning_array(local_of(x), x.type.update(dtype=own.dtype, weak=own.weak).placed(sharding=x._sharding))

    return tree.map(typed, flat.unflatten(values))


def _choose(
    name: str,
    index: Array,
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    arguments: tuple[Any, ...],
) -> Any:
    if state.builder is None and is_concrete(index):
        chosen = min(max(int(_value(index)), 0), len(functions) - 1)
        return choose_known(name, chosen, functions, names, arguments)
    leaves, in_tree = flatten_call(arguments, {}, f"an operand of lax.{name}")
    flats, staged, types, cells = _stage_branches(name, functions, names, in_tree, leaves, None)
    flat, staged = _divided_alike(flats, staged)
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
) -> tuple[list[FlatFunction], list[tuple[Program, list[Any]]], list[TensorType], list[Cell]]:
    """Every branch, its program, with results of equal types except for their division, and its captured values; the
    types of the results, and the cells that any branch writes to. Their contents precede the operands, and new contents
    follow the results."""
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
    joined = _join_results(name, names, flats, [program for program, _ in staged])
    joined += [cell.type for cell in written]
    return flats, [(with_output_types(program, joined), captured) for program, captured in staged], joined, written


def _check_structures(name: str, names: Sequence[str], flats: Sequence[FlatFunction]) -> None:
    first, *others = [tree.structure(flat.unflatten(range(flat.results))) for flat in flats]
    for other, what in zip(others, names[1:], strict=True):
        if other != first:
            raise ControlFlowTypeError(
                f"lax.{name}: {names[0]} returns a result of structure {first}, but {what} one of structure {other}.",
                "All branches must return results of one structure: the same nesting of tuples, lists and"
                " dicts, with the same keys.",
            )


def _divided_alike(
    flats: Sequence[FlatFunction], staged: Sequence[tuple[Program, list[Any]]]
) -> tuple[FlatFunction, Sequence[tuple[Program, list[Any]]]]:
    """A branch whose results are divided over processes like all branches' results, and the programs with such
    results. Each axis is divided as in the first branch that divides it."""
    if all(flat.out_tree == flats[0].out_tree for flat in flats):
        return flats[0], staged
    leaves = [tree.leaves(flat.unflatten(range(flat.results))) for flat in flats]
    wanted = [_sharding_of_all(alternatives) for alternatives in zip(*leaves, strict=True)]
    moved = [_divided_as(flat, program, wanted) for flat, (program, _) in zip(flats, staged, strict=True)]
    return flats[0], [(program, captured) for program, (_, captured) in zip(moved, staged, strict=True)]


def _sharding_of_all(alternatives: Sequence[Any]) -> Any:
    """How processes divide a result that branches return with these types; None if they do not."""
    spans = [span_of(x) if parts_of(x) else None for x in alternatives]
    if any(is_stacked(x) for x in alternatives):
        if len(set(spans)) > 1:
            raise ControlFlowTypeError(
                "A result of one branch is partial sums, or copies, and the result of another one is not.",
                "Give them one sharding in the branches: rlx.reshard(x, spec).",
            )
        return None
    known = [span for span in spans if span is not None]
    return joined_shardings([span.device_sharding for span in known], known[0].ndim) if known else None


def _divided_as(flat: FlatFunction, program: Program, wanted: Sequence[Any]) -> Program:
    """A branch's program with results that processes divide so. Sets the branch's structure of results."""
    with Builder(program.name) as builder:
        outs = interpret(program, [builder.input(t) for t in program.input_types])
        leaves, structure = tree.flatten(_result(flat, outs))
        result = tree.unflatten(structure, [placed(x, s) for x, s in zip(leaves, wanted, strict=True)])
        results, flat.out_tree = flatten_local(result)
        return finish(builder, [*results, *outs[flat.results :]])


def _noting(function: Callable[..., Any], found: list[list[Axes | None]]) -> Callable[..., Any]:
    """The function, recording over which axes its results vary."""

    @named_after(function)
    def noting(*args: Any) -> Any:
        result = function(*args)
        found.append([varying_axes(x) for x in tree.leaves(result)])
        return result

    return noting


def _check_variation(
    name: str, names: Sequence[str], flat: FlatFunction, varying: Sequence[Sequence[Axes | None]]
) -> None:
    """Raises ControlFlowTypeError unless a result varies over the same mesh axes in all branches."""
    paths = leaf_names("result", flat.unflatten(range(flat.results)))
    if len(varying) < len(names):  # some branches are rlx's own
        return
    for path, found in zip(paths, zip(*varying, strict=True), strict=True):
        if None in found or len(set(found)) == 1:
            continue
        known = [axes for axes in found if axes is not None]
        every = frozenset().union(*known)
        what, own = next((what, own) for what, own in zip(names, known, strict=True) if own != every)
        axes = axes_text(every - own)
        raise ControlFlowTypeError(
            f"lax.{name}: {path} of {what} has one value on all devices along {axes}, but varies in other branches.",
            f"Let it vary in {what} as well: rlx.lax.pcast(result, {axes}, to='varying').",
        )


def _join_results(
    name: str, names: Sequence[str], flats: Sequence[FlatFunction], programs: Sequence[Program]
) -> list[TensorType]:
    """The type of each result: weak ones yield to the others."""
    paths = leaf_names("result", flats[0].unflatten(range(flats[0].results)))
    whole = [
        [x.type for x in tree.leaves(flat.unflatten(list(map(Zero, p.output_types))))]
        for flat, p in zip(flats, programs, strict=True)
    ]
    joined = []
    for path, *types in zip(paths, *whole, strict=True):
        found = _join(types)
        if found is None:
            texts = ", ".join(f"{t.strong()!r} from {n}" for t, n in zip(types, names, strict=True))
            advice = (
                "The shapes must be equal: broadcast, pad or slice in the branches."
                if any(t.shape != types[0].shape for t in types)
                else "Convert one of them with .astype(...)."
            )
            raise ControlFlowTypeError(f"lax.{name}: {path} has different types: {texts}.", advice)
        joined.append(found)
    return joined


def _join(types: Sequence[TensorType]) -> TensorType | None:
    """The common type, or None. Shapes and strong dtypes must be equal; if all dtypes are, the first branch's type."""
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
