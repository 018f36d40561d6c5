"""Helpers of control flow functions: staging bodies, checking carries, sharing captured values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlx.array import Array, parts_of
from rlx.config import config
from rlx.errors import ControlFlowTypeError, describe, line_of_function, source_line, user_line
from rlx.ir.program import Program, Var
from rlx.ir.types import TensorType, promote_dtypes
from rlx.ops.conversion import convert
from rlx.sharding.divisions import joined_shardings
from rlx.sharding.stacks import stack_axes
from rlx.sharding.trees import divided_as, placed
from rlx.trace.builder import Builder, is_traced, state
from rlx.trace.flat import FlatFunction, as_array, flatten_arrays, function_name
from rlx.trace.interpret import interpret
from rlx.trace.primitive import type_of
from rlx.trace.references import Threaded
from rlx.trace.spanning import is_spanning, local_of, span_of
from rlx.trace.stacked import is_stacked, stacked_array
from rlx.trace.tracing import finish, trace_program, tracked_axes
from rlx.transforms.varying import varying_axes
from rlx.trees import tree

__all__ = [
    "as_weak_as",
    "axes_text",
    "check_callable",
    "check_carry",
    "converted",
    "has_own_lines",
    "leaf_names",
    "line_of_result",
    "runs_in_python",
    "share_captures",
    "trace_carry",
    "trace_flat",
    "trace_threaded",
    "unify_weak",
    "with_output_types",
]


def runs_in_python() -> bool:
    """Whether loops run as Python loops: jit is disabled, and nothing is being traced."""
    return config.disable_jit and state.builder is None


def check_callable(name: str, **functions: Any) -> None:
    """Raise ControlFlowTypeError unless every argument is a function."""
    for what, function in functions.items():
        if not callable(function):
            raise ControlFlowTypeError(
                f"lax.{name} takes a function as {what}, but got {describe(function)}.",
                _FUNCTIONS.get(name, f"Pass a function as {what}."),
            )


_FUNCTIONS = {
    "cond": "Pass functions, or choose between two values with rlx.numpy.where(condition, x, y).",
    "switch": "Pass functions, or choose between values with rlx.numpy.select or an index.",
    "scan": "Write rlx.lax.scan(f, init, xs), with f(carry, x) returning (carry, y).",
    "while_loop": "Write rlx.lax.while_loop(cond_fun, body_fun, init_val).",
    "fori_loop": "Write rlx.lax.fori_loop(lower, upper, body_fun, init_val), with body_fun(i, value).",
    "map": "Write rlx.lax.map(f, xs).",
}


def trace_flat(
    name: str, function: Callable[..., Any], in_tree: tree.TreeDef, types: Sequence[TensorType]
) -> tuple[FlatFunction, Program, list[Any]]:
    """A function of trees staged over leaves of the given types: with its program and captures."""
    flat = FlatFunction(function, in_tree)
    program, captured = trace_program(flat, types, None, f"{name}_{flat.name}")
    return flat, program, captured


def trace_threaded(
    name: str,
    function: Callable[..., Any],
    in_tree: tree.TreeDef,
    types: Sequence[TensorType],
    known: Sequence[Any] | None = None,
    title: str = "",
    given: Sequence[Any] | None = None,
) -> tuple[FlatFunction, Program, list[Any], Threaded]:
    """As trace_flat, of a function that may use outer cells; returns these cells too.

    `known`: values of the leaves with which tracers may answer bool(), int(), ... while tracing; `title`: the
    function's name in messages, if it differs; `given`: the values of the leaves.
    """
    flat = FlatFunction(function, in_tree, name=title)
    cells = Threaded(flat)
    program, captured = trace_program(cells, types, known, f"{name}_{flat.name}", given)
    return flat, program, captured, cells


def leaf_names(root: str, value: Any) -> list[str]:
    """The name of each leaf of a tree in a message."""
    return [root + tree.path_text(path) for path, _ in tree.leaves_with_path(value)]


def converted(values: Sequence[Array], types: Sequence[TensorType]) -> list[Array]:
    """Values with the dtypes of the given types."""
    return [
        x if x.dtype == t.dtype else convert(x, dtype=t.dtype, weak=t.weak) for x, t in zip(values, types, strict=True)
    ]


def as_weak_as(values: Sequence[Any], types: Sequence[TensorType]) -> list[Any]:
    """The strong results of a region, with the weakness of the given types."""
    return [
        x if x.weak_type == t.weak else convert(x, dtype=x.dtype, weak=t.weak)
        for x, t in zip(values, types, strict=True)
    ]


def unify_weak(enters: TensorType, leaves: TensorType) -> TensorType:
    """The type of a carry whose weak initial value yields to the body's result."""
    if enters.dtype == leaves.dtype or not enters.weak:
        return enters
    pairs = [(enters.dtype, True), (leaves.dtype, leaves.weak)]
    try:
        dtype, _ = promote_dtypes(pairs, config.default_float, config.default_int)
    except TypeError:
        return enters
    return TensorType(enters.shape, dtype)


class TracedLoop(NamedTuple):
    """The body of a loop: the flat function, its program, the captured values, and the types of the carry's leaves.
    Weak initial values have the dtype that the body returned.

    cells: from outside. The contents of cells that it writes to are carries before the others, the last captures and
    the first results. starts, in_tree: the carry's initial leaves, and the structure of the arguments.
    """

    flat: FlatFunction
    program: Program
    captured: list[Any]
    types: list[TensorType]
    cells: Threaded
    starts: Sequence[Any]
    in_tree: tree.TreeDef


def trace_carry(
    name: str,
    function: Callable[..., Any],
    body: Callable[..., Any],
    in_tree: tree.TreeDef,
    starts: Sequence[Array],
    others: Sequence[tuple[TensorType, Array]] = (),
    carry_of: Callable[[Any], Any] | None = None,
) -> TracedLoop:
    """A loop's body staged, so that its carry has the same types as argument and as result.

    `body` is the user's function that `function` calls, `starts` are the initial carry's leaves, `others` the types of
    the body's other arguments, and the arrays that these are slices of; `carry_of` finds the carry in the result. A
    carry that the body divides over processes is divided from the beginning. Raises ControlFlowTypeError for other
    differences.
    """
    entering = [x.type for x in starts]
    wanted: list[Any] = []  # for each leaf of the carry that was traced last, how processes should divide it

    def checked(given: Any, *rest: Any) -> Any:
        before = tree.map(lambda x: x, given)  # the body may change lists and objects that it was given
        result = function(given, *rest)
        carry = result if carry_of is None else carry_of(result)
        check_carry(name, body, before, carry)
        if not any(parts_of(x) for x in (*tree.leaves(before), *tree.leaves(result))):
            return result
        wanted[:] = map(_joined, tree.leaves(before), tree.leaves(carry))
        carry = tree.map(_lying_as, carry, before)
        return carry if carry_of is None else (carry, *result[1:])

    # a changed dtype or division may change another carry's; both only go up a lattice, so that this terminates
    while True:
        given = [*starts, *(x for _, x in others)]
        wanted.clear()
        flat, program, captured, cells = trace_threaded(
            name, checked, in_tree, [*entering, *(t for t, _ in others)], title=function_name(body), given=given
        )
        leaving = program.output_types[: len(entering)]
        unified = [unify_weak(a, b) for a, b in zip(entering, leaving, strict=True)]
        leaves, divided_tree = _carry_divided(in_tree, given, wanted)
        if unified == entering and divided_tree == in_tree:
            n = len(program.outputs) - len(cells.written)
            carried = (
                program.replace(outputs=(*program.outputs[n:], *program.outputs[:n])) if cells.written else program
            )
            return TracedLoop(flat, carried, captured, entering, cells, starts, in_tree)
        starts, in_tree = leaves[: len(starts)], divided_tree
        entering = [t.update(shape=x.shape) for t, x in zip(unified, starts, strict=True)]


def _joined(before: Any, after: Any) -> Any:
    """How processes divide a carry with these types in and out of a body; None if they do not."""
    spanning = [x._sharding if is_spanning(x) else None for x in (before, after)]
    return joined_shardings(spanning, before.ndim) if any(spanning) else None


def _carry_divided(in_tree: tree.TreeDef, leaves: Sequence[Any], wanted: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """The leaves and structure of a body's arguments, the carry first, with each leaf divided as `wanted`."""
    if not any(wanted):
        return leaves, in_tree
    (carry, *rest), keywords = tree.unflatten(in_tree, leaves)
    values, structure = tree.flatten(carry)
    divided = [placed(x, s) for x, s in zip(values, wanted, strict=True)]
    return flatten_arrays(((tree.unflatten(structure, divided), *rest), keywords))


def _lying_as(x: Any, before: Any) -> Any:
    """A carry that a body returns, divided over processes as its argument was.

    Raises ControlFlowTypeError if one is partial sums, or copies, over axes over which the other is not.
    """
    if is_stacked(before) or is_stacked(x):
        took, gave = (stack_axes(v._sharding) if is_stacked(v) else {} for v in (before, x))
        if took != gave:
            raise ControlFlowTypeError(
                f"A loop's body took a carry that is partial sums, or copies, over {took}, and returned one that is"
                f" so over {gave}.",
                "Give the initial value the sharding of the body's result: rlx.reshard(x, spec).",
            )
        return stacked_array(local_of(x), span_of(before))
    return divided_as(x, before)


def check_carry(name: str, body: Callable[..., Any], before: Any, after: Any) -> None:
    """Raise ControlFlowTypeError, with the carry's line, unless a body's carry has the type of its argument.

    A weak carry may take the dtype of the body's result: see unify_weak.
    """
    if tree.structure(after) != tree.structure(before):
        raise ControlFlowTypeError(
            f"lax.{name}: the body returns a carry of another structure than it takes"
            f"{tree.first_difference(after, before) or tree.first_difference(before, after)}.",
            "The body must return a carry with the structure of the initial one: the same nesting of"
            " tuples, lists and dicts, with the same keys.",
            line_of_result(after, body),
        )
    for leaf, x, y in zip(leaf_names("carry", before), tree.leaves(before), tree.leaves(after), strict=True):
        enters, leaves = x.type, as_array(y, f"the carry that lax.{name} got back").type
        kept = enters.dtype == leaves.dtype or unify_weak(enters, leaves) != enters
        if enters.shape != leaves.shape or not kept:
            raise ControlFlowTypeError(
                f"lax.{name}: {leaf} enters the body as {enters.strong()!r} and leaves it as {leaves.strong()!r}.",
                _carry_advice(leaf, enters, leaves),
                line_of_result(y, body),
            )
        entering, leaving = (varying_axes(x), varying_axes(y)) if has_own_lines(body) else (None, None)
        if entering is not None and leaving is not None and leaving != entering:
            before_after = ("with one value on all devices", "varying between them")
            starts = bool(leaving - entering)
            axes = axes_text(leaving - entering if starts else entering - leaving)
            first, then = before_after if starts else before_after[::-1]
            raise ControlFlowTypeError(
                f"lax.{name}: {leaf} enters the body {first} along {axes}, and leaves it {then}.",
                f"Let the {'initial value' if starts else 'result'} vary: rlx.lax.pcast(value, {axes}, to='varying').",
                line_of_result(y, body),
            )


def has_own_lines(function: Callable[..., Any]) -> bool:
    """Whether a function is the user's. Loops and branches of rlx need not state what varies in an rlx.shard_map."""
    while isinstance(function, partial):
        function = function.func
    return bool(tracked_axes()) and not str(getattr(function, "__module__", "")).startswith("rlx.")


def axes_text(axes: Iterable[Any]) -> str:
    """Mesh axes as a user writes them: a name, or a tuple of names."""
    names = sorted(axes, key=str)
    return repr(names[0] if len(names) == 1 else tuple(names))


def line_of_result(result: Any, function: Callable[..., Any]) -> str:
    """The user's line that computed a function's result, if it was an operation in it; else the function's line."""
    for value in tree.leaves(result):
        if is_traced(value):
            made = next((e for e in value.builder.equations if value.atom in e.outputs), None)
            if value.builder is state.builder and made is not None and made.origin is not None:
                return source_line(*made.origin)
    return line_of_function(function) or user_line()


def _carry_advice(leaf: str, enters: TensorType, leaves: TensorType) -> str:
    if enters.shape != leaves.shape:
        return (
            f"A carry must keep its shape: return {leaf} with shape {enters.shape}, or start with an"
            f" initial value of shape {leaves.shape}."
        )
    return (
        f"A carry must keep its dtype: return {leaf}.astype({enters.dtype.name!r}), or start with an"
        f" initial value of dtype {leaves.dtype.name}."
    )


# ------------------------------------------------------------- captured values
def share_captures(
    staged: Sequence[tuple[Program, Sequence[Any]]],
) -> tuple[list[Program], list[Any]]:
    """Programs with common leading inputs, which are the union of their captured values; and those values."""
    union: dict[int, Any] = {}
    for _, captured in staged:
        for value in captured:
            union.setdefault(_identity(value), value)
    programs = []
    for program, captured in staged:
        own = dict(zip(map(_identity, captured), program.inputs, strict=False))
        lead = [own.get(key) or Var(type_of(value)) for key, value in union.items()]
        programs.append(program.replace(inputs=(*lead, *program.inputs[len(captured) :])))
    return programs, list(union.values())


def _identity(value: Any) -> int:
    return id(value.atom) if is_traced(value) else id(value)


def with_output_types(program: Program, types: Sequence[TensorType]) -> Program:
    """The program with its outputs converted to the dtypes of the given types."""
    if all(a.dtype == b.dtype for a, b in zip(program.output_types, types, strict=True)):
        return program
    with Builder(program.name) as builder:
        outs = interpret(program, [builder.input(t) for t in program.input_types])
        return finish(builder, converted(outs, types))


def scalar_bool(value: Array) -> Array:
    """A number as a bool: whether it is nonzero."""
    return value if value.dtype == np.dtype(bool) else convert(value, dtype=np.dtype(bool), weak=False)
