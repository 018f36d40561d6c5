"""The functions of a file: programs for all sizes, as text, and how to call them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as brief
from typing import Any

from rlx.array import ConcreteArray, is_concrete
from rlx.call.compiled import prepare_program
from rlx.call.stages import ShapeDtypeStruct
from rlx.errors import FileFormatError, UnsupportedError, source_line
from rlx.export.comparison import same_results
from rlx.export.program_text import Unreadable, read_program
from rlx.export.sizes import Constraint, Size, Unknowns, evaluate_shape
from rlx.export.templates import limits_of, points_of, template
from rlx.ir.program import Equation, Program
from rlx.ir.show import show_bindings, show_program
from rlx.ir.types import TensorType, is_inexact, is_key
from rlx.passes.pipeline import Planned, passes, walk
from rlx.trace.interpret import interpret
from rlx.trace.lower import inline_calls
from rlx.trace.tracing import close_over, trace_program
from rlx.transforms.reverse import vjp
from rlx.trees.structure import TreeDef

__all__ = ["FunctionTemplate", "Source", "derivative_of", "function_of", "has_keys", "refuse_host"]

Sizes = Mapping[str, int]
_PLACE = re.compile(r"(  # [^\n]*?)  [^\n]*$", re.MULTILINE)
Source = Callable[[Sizes], Program]  # the traced program for given sizes


@dataclass(frozen=True, eq=False)
class FunctionTemplate:
    """A function as text: its program, with expressions for unknown sizes, and the arrays that it refers to.

    optimized: the text is optimised MIR. planned: returns the program's stored plan, if there is one.
    written: the programs that the text was written from; None for a function of a file.
    """

    name: str
    text: str
    constants: Mapping[str, ConcreteArray]
    unknowns: Unknowns
    in_tree: TreeDef
    in_avals: tuple[ShapeDtypeStruct, ...]
    out_tree: TreeDef
    out_avals: tuple[ShapeDtypeStruct, ...]
    optimized: bool
    planned: Planned | None = None
    written: Source | None = None
    _programs: dict[tuple[int, ...], Program] = field(default_factory=dict)
    _calls: dict[tuple[int, ...], Callable[[Sequence[Any]], list[Any]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def program(self, sizes: Sizes) -> Program:
        """The program for given sizes. Raises FileFormatError if the text is not a program of the function's types."""
        key = tuple(sizes[name] for name in self.unknowns.names)
        found = self._programs.get(key)
        if found is None:
            reason = ""
            try:
                found = self._read(sizes)
            except Unreadable as error:
                reason = str(error)
            if found is None:
                at = "" if not sizes else f" for {', '.join(f'{n} = {v}' for n, v in sizes.items())}"
                raise FileFormatError(f"The program of {self.name} cannot be read{at}: {reason}.")
            self._programs[key] = found
        return found

    def _read(self, sizes: Sizes) -> Program:
        """The program of the text. Raises Unreadable; kernels rely on the types, so these have to be the function's."""
        found = read_program(self.text, self.constants, sizes)
        for what, avals, types in (
            ("arguments", self.in_avals, found.input_types),
            ("results", self.out_avals, found.output_types),
        ):
            expected = [TensorType(evaluate_shape(t.shape, sizes), t.dtype, t.weak_type) for t in avals]
            if expected != list(types):
                raise Unreadable(f"its {what} are {brief(types)} instead of {brief(expected)}")
        return found

    def check(self) -> None:
        """Read the program for some sizes. Raises FileFormatError if that fails."""
        self.program(points_of(self.unknowns, self.name)[0])

    def read_again(self) -> None:
        """Raise UnsupportedError unless the text reads back as the program that it was written from."""
        if self.written is None:
            return
        reason = "it is another program"
        for sizes in points_of(self.unknowns, self.name)[: 1 + bool(self.unknowns.names)]:
            try:
                if _without_places(self._read(sizes)) == _without_places(self.written(sizes)):
                    continue
            except Unreadable as error:
                reason = str(error)
            raise UnsupportedError(
                f"{self.name} cannot be saved: its text would not be read back as the same program ({reason}).",
                "This is an error of rlx: please report it with the function.",
            )

    def caller(self, sizes: Sizes) -> Callable[[Sequence[Any]], list[Any]]:
        """A callable that runs the program for given sizes, compiled once for each backend."""
        key = tuple(sizes[name] for name in self.unknowns.names)
        found = self._calls.get(key)
        if found is None:
            with self._lock:
                found = self._calls.setdefault(key, prepare_program(self.program(sizes), self.optimized, self.planned))
        return found


def function_of(
    source: Source,
    name: str,
    unknowns: Unknowns,
    in_tree: TreeDef,
    in_avals: Sequence[ShapeDtypeStruct],
    out_tree: Callable[[], TreeDef],
    suspects: Iterable[int] = (),
) -> FunctionTemplate:
    """The function for a source of programs. Raises UnsupportedError if text cannot represent them.

    suspects: sizes that are tried in addition to the usual ones.
    """
    types: list[Any]
    program: Program | None = None

    def written(sizes: Sizes) -> Program:
        return inline_calls(source(sizes)) if program is None else program

    if not unknowns.names:
        program = exported_form(source({}))
        text, constants = show_program(program), show_bindings(program)
        types = [(t.shape, t.dtype, t.weak) for t in program.output_types]
        optimized = not has_keys(program)
    else:
        text, constants, limits = _general_text(source, name, unknowns, suspects)
        example = source(points_of(unknowns, name)[0])
        shapes = _result_shapes(source, name, unknowns)
        types = [(s, t.dtype, t.weak) for s, t in zip(shapes, example.output_types, strict=True)]
        unknowns = unknowns.and_also(limits)
        optimized = False
    out_avals = tuple(ShapeDtypeStruct(shape, dtype, weak) for shape, dtype, weak in types)
    found = FunctionTemplate(
        name, text, constants, unknowns, in_tree, tuple(in_avals), out_tree(), out_avals, optimized, written=written
    )
    if program is not None:
        found._programs[()] = program  # knows the user's lines, unlike its text
    return found


def _without_places(program: Program) -> str:
    """The text of a program without the lines of the user's files."""
    return _PLACE.sub(r"\1", show_program(program))


def exported_form(program: Program) -> Program:
    """The program that is saved: optimised MIR, or, if it has keys, whose words only a compiler knows, plain MIR."""
    inlined = inline_calls(program)
    refuse_host(inlined)
    return inlined if has_keys(inlined) else walk(inlined, passes)[-1].program


def refuse_host(program: Program) -> None:
    """Raise UnsupportedError if a program calls Python, which a file cannot contain."""
    for value in show_bindings(program).values():
        if not is_concrete(value) and not hasattr(value, "dtype"):
            equation = _holder(program, value)
            line = source_line(*equation.origin) if equation is not None and equation.origin is not None else ""
            caller = "something" if equation is None else equation.primitive.name
            called = getattr(value, "__name__", type(value).__name__)
            raise UnsupportedError(
                f"{program.name} cannot be exported: {caller} calls {called!r}, and a file cannot contain Python.",
                "Leave callbacks (pure_callback, io_callback, debug.print, numba functions) out of what you export.",
                line,
            )


def _holder(program: Program, thing: Any) -> Equation | None:
    """The equation whose parameters contain `thing` at any depth."""
    for equation in program.equations:
        inner = [v for p in equation.params.values() for v in (p if isinstance(p, tuple) else (p,))]
        regions = [v for v in inner if isinstance(v, Program)]
        if any(thing in show_bindings(r).values() for r in regions if regions):
            return next((found for r in regions if (found := _holder(r, thing))), equation)
        single = Program(
            [v for v in equation.inputs if hasattr(v, "aval") and not hasattr(v, "value")], [equation], equation.outputs
        )
        if any(v is thing for v in show_bindings(single).values()):
            return equation
    return None


def has_keys(program: Program) -> bool:
    """Whether any value is a random key."""
    constants = (v.type for v, _ in program.constants)
    types = [*program.input_types, *constants, *(v.type for e in program.equations for v in e.outputs)]
    return any(is_key(t.dtype) for t in types) or any(map(has_keys, program.regions()))


def _general_text(
    source: Source, name: str, unknowns: Unknowns, suspects: Iterable[int]
) -> tuple[str, dict[str, Any], tuple[Constraint, ...]]:
    """The text for all sizes, the arrays that it refers to, which must not depend on the sizes, and their limits."""
    seen: list[dict[str, Any]] = []

    def render(sizes: Sizes) -> str:
        program = inline_calls(source(sizes))
        refuse_host(program)
        seen.append(show_bindings(program))
        return show_program(program)

    found = template(render, unknowns, name)
    first = seen[0]
    for other in seen[1:]:
        if other.keys() != first.keys() or any(_differ(first[k], other[k]) for k in first):
            raise UnsupportedError(
                f"{name} has arrays that depend on unknown sizes.",
                "Create them with rlx.numpy inside the function (rlx.numpy.arange(x.shape[0])), not with NumPy.",
            )

    def same(sizes: Sizes) -> bool | None:
        return same_results(read_program(found.text, first, sizes), source(sizes))

    return found.text, first, limits_of(found, render, same, unknowns, name, suspects)


def _differ(one: Any, other: Any) -> bool:
    if one is other:
        return False
    a, b = (x.numpy() if hasattr(x, "numpy") else x for x in (one, other))
    return a is not b and (a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes())


def _result_shapes(source: Source, name: str, unknowns: Unknowns) -> list[tuple[int | Size, ...]]:
    """The shapes of the results, with expressions of sizes."""

    def render(sizes: Sizes) -> str:
        return " ".join(f"[{','.join(map(str, t.shape))}]" for t in source(sizes).output_types)

    parts = [part.strip() for part in template(render, unknowns, name).text.replace("]", "").split("[")[1:]]
    return [tuple(_size(text) for text in part.split(",") if text) for part in parts]


def _size(text: str) -> int | Size:
    size = Size(text)
    return size if size.names else size.evaluate({})


# ------------------------------------------------------------------ derivatives
def derivative_of(source: Source) -> Source:
    """The source of the function (arguments, cotangents of inexact results) -> cotangents of inexact arguments."""

    def derived(sizes: Sizes) -> Program:
        program = source(sizes)
        types = program.input_types
        cotangents = [t.strong() for t in program.output_types if is_inexact(t.dtype)]
        moving = [is_inexact(t.dtype) for t in types]

        def run(*leaves: Any) -> list[Any]:
            given = leaves[: len(types)]

            def inner(*active: Any) -> list[Any]:
                left = iter(active)
                arguments = [next(left) if m else x for x, m in zip(given, moving, strict=True)]
                outs = interpret(program, arguments)
                return [x for x, t in zip(outs, program.output_types, strict=True) if is_inexact(t.dtype)]

            _, pull = vjp(inner, *(x for x, m in zip(given, moving, strict=True) if m))
            return list(pull(list(leaves[len(types) :])))

        staged, captured = trace_program(
            run, [*map(_strong_if_moving, types), *cotangents], None, f"{program.name}_vjp"
        )
        return close_over(staged, captured)

    return derived


def _strong_if_moving(type: TensorType) -> TensorType:
    return type.strong() if is_inexact(type.dtype) else type
