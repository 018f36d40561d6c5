"""What control flow functions share: staging bodies, checking carries, sharing captured values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.config import config
from rlx.errors import ControlFlowTypeError, line_of_function, source_line, user_line
from rlx.ir.program import Program, Var
from rlx.ir.types import TensorType, promote_dtypes
from rlx.ops.conversion import convert
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec
from rlx.sharding.stacks import stack_axes
from rlx.sharding.trees import placed
from rlx.trace.builder import Builder, Tracer, state
from rlx.trace.flat import FlatFunction, as_array, function_name
from rlx.trace.interpret import interpret
from rlx.trace.primitive import type_of
from rlx.trace.references import Threaded
from rlx.trace.spanning import ArrayOfParts, SpanningArray
from rlx.trace.stacked import StackedArray
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
                f"lax.{name} got {what}={function!r:.60}, which cannot be called.",
                f"Pass a function as {what}.",
            )


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
    """As trace_flat, of a function that may use cells of outside; with those.

    `known`: values of the leaves with which tracers may answer bool(), int(), ... while tracing; `title`: what to
    call the function in messages, if not by its own name; `given`: the values that the leaves stand for.
    """
    flat = FlatFunction(function, in_tree, name=title)
    cells = Threaded(flat)
    program, captured = trace_program(cells, types, known, f"{name}_{flat.name}", given)
    return flat, program, captured, cells


def leaf_names(root: str, value: Any) -> list[str]:
    """What to call each leaf of a tree in a message."""
    return [root + tree.path_text(path) for path, _ in tree.leaves_with_path(value)]


def converted(values: Sequence[Array], types: Sequence[TensorType]) -> list[Array]:
    """Values with the dtypes of the given types."""
    return [
        x if x.dtype == t.dtype else convert(x, dtype=t.dtype, weak=t.weak) for x, t in zip(values, types, strict=True)
    ]


def as_weak_as(values: Sequence[Any], types: Sequence[TensorType]) -> list[Any]:
    """What came out of a region, whose results are strong, with the weakness of the given types."""
    return [
        x if x.weak_type == t.weak else convert(x, dtype=x.dtype, weak=t.weak)
        for x, t in zip(values, types, strict=True)
    ]


def unify_weak(enters: TensorType, leaves: TensorType) -> TensorType:
    """The type that a carry gets whose weak initial value yields to what the body returns."""
    if enters.dtype == leaves.dtype or not enters.weak:
        return enters
    pairs = [(enters.dtype, True), (leaves.dtype, leaves.weak)]
    try:
        dtype, _ = promote_dtypes(pairs, config.default_float, config.default_int)
    except TypeError:
        return enters
    return TensorType(enters.shape, dtype)


def trace_carry(
    name: str,
    function: Callable[..., Any],
    body: Callable[..., Any],
    in_tree: tree.TreeDef,
    starts: Sequence[Array],
    others: Sequence[tuple[TensorType, Array]] = (),
    carry_of: Callable[[Any], Any] | None = None,
) -> tuple[FlatFunction, Program, list[Any], list[TensorType], Threaded]:
    """A loop's body staged, with carries of equal types going in and out.

    `body` is the user's function that `function` calls, `starts` are the initial carry's leaves, `others` the types of
    what else the body takes, and what they are slices of; `carry_of` finds the carry in the result. Returns the flat
    function, the program, its captures, and the carry's types, where weak initial values
    took the dtype that the body gave them, and its cells: the contents of those that it writes to are carries before
    the others, the last captures and the first results. Raises ControlFlowTypeError for other differences.
    """
    entering, given = [x.type for x in starts], [*starts, *(x for _, x in others)]

    def checked(given: Any, *rest: Any) -> Any:
        before = tree.map(lambda x: x, given)  # the body may change lists and objects that it was given
        result = function(given, *rest)
        check_carry(name, body, before, result if carry_of is None else carry_of(result))
        if not any(isinstance(x, ArrayOfParts) for x in (*tree.leaves(before), *tree.leaves(result))):
            return result
        if carry_of is None:
            return tree.map(_lying_as, result, before)
        return (tree.map(_lying_as, carry_of(result), before), *result[1:])

    while True:  # a changed dtype may change another carry's; it goes up the lattice, so that this ends
        flat, program, captured, cells = trace_threaded(
            name, checked, in_tree, [*entering, *(t for t, _ in others)], title=function_name(body), given=given
        )
        leaving = program.output_types[: len(entering)]
        unified = [unify_weak(a, b) for a, b in zip(entering, leaving, strict=True)]
        if unified == entering:
            n = len(program.outputs) - len(cells.written)
            carried = (
                program.replace(outputs=(*program.outputs[n:], *program.outputs[:n])) if cells.written else program
            )
            return flat, carried, captured, entering, cells
        entering = unified


def _lying_as(x: Any, before: Any) -> Any:
    """What a body returns for a carry, as processes divide what it took.

    Raises ControlFlowTypeError where one is parts of a sum, or copies, over axes over which the other is not.
    """
    if type(before) is StackedArray or type(x) is StackedArray:
        took, gave = (stack_axes(v._sharding) if type(v) is StackedArray else {} for v in (before, x))
        if took != gave:
            raise ControlFlowTypeError(
                f"A loop's body took a carry that is parts of a sum, or copies, over {took}, and returned one that is"
                f" so over {gave}.",
                "Bring the initial value where the body's result is: rlx.reshard(x, spec).",
            )
        return StackedArray(x.local, before.span)
    if type(before) is SpanningArray:
        return placed(as_array(x), before._sharding)
    return placed(x, NamedSharding(x._sharding.mesh, PartitionSpec())) if type(x) is SpanningArray else x


def check_carry(name: str, body: Callable[..., Any], before: Any, after: Any) -> None:
    """Raise ControlFlowTypeError, with the line that made it, unless a body's carry has the type of the one it took.

    A weak carry may take the dtype that the body gives it: see unify_weak.
    """
    if tree.structure(after) != tree.structure(before):
        raise ControlFlowTypeError(
            f"lax.{name}: the body takes a carry of structure {tree.structure(before)}, but returns"
            f" one of structure {tree.structure(after)}.",
            "The body returns a carry with the structure of the initial one: the same nesting of"
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
    """Whether a function is not one of rlx, whose loops and branches need not say what varies in a rlx.shard_map."""
    while isinstance(function, partial):
        function = function.func
    return bool(tracked_axes()) and not str(getattr(function, "__module__", "")).startswith("rlx.")


def axes_text(axes: Iterable[Any]) -> str:
    """Mesh axes as one writes them: a name, or a tuple of names."""
    names = sorted(axes, key=str)
    return repr(names[0] if len(names) == 1 else tuple(names))


def line_of_result(result: Any, function: Callable[..., Any]) -> str:
    """The user's line that made what a function returned, if it was an operation in it; else where the function is."""
    for value in tree.leaves(result):
        if isinstance(value, Tracer):
            made = next((e for e in value.builder.equations if value.atom in e.outputs), None)
            if value.builder is state.builder and made is not None and made.origin is not None:
                return source_line(*made.origin)
    return line_of_function(function) or user_line()


def _carry_advice(leaf: str, enters: TensorType, leaves: TensorType) -> str:
    if enters.shape != leaves.shape:
        return (
            f"A carry keeps its shape: return {leaf} with shape {enters.shape}, or start with an"
            f" initial value of shape {leaves.shape}."
        )
    return (
        f"A carry keeps its dtype: return {leaf}.astype({enters.dtype.name!r}), or start with an"
        f" initial value of dtype {leaves.dtype.name}."
    )


# ------------------------------------------------------------- captured values
def share_captures(
    staged: Sequence[tuple[Program, Sequence[Any]]],
) -> tuple[list[Program], list[Any]]:
    """Programs with common leading inputs: the union of what they captured; and those values."""
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
    return id(value.atom) if isinstance(value, Tracer) else id(value)


def with_output_types(program: Program, types: Sequence[TensorType]) -> Program:
    """The program with its outputs converted to the dtypes of the given types."""
    if all(a.dtype == b.dtype for a, b in zip(program.output_types, types, strict=True)):
        return program
    with Builder(program.name) as builder:
        outs = interpret(program, [builder.input(t) for t in program.input_types])
        return finish(builder, converted(outs, types))


def scalar_bool(value: Array) -> Array:
    """A number as a bool: whether it is not zero."""
    return value if value.dtype == np.dtype(bool) else convert(value, dtype=np.dtype(bool), weak=False)
