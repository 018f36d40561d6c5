"""The kernels that compute each equation of a program, from the numbers that lowering and planning gave them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rlx.backends.base import Backend
from rlx.ir.kernels import Branch, Kernel, Plan, RowTiles, While, members, nested_plans
from rlx.ir.program import Equation, Origin, Program
from rlx.passes.pipeline import Context, Stage, compile_stages

__all__ = ["Attributed", "KernelPart", "attributed", "compiled_program", "lines_of", "merged", "numbered"]
__all__ += ["parts_of", "removed"]

# equations that only change how their operands are read
_MOVEMENTS = frozenset("broadcast_in_dim expand_dims reshape reverse slice squeeze transpose".split())


class KernelPart(NamedTuple):
    """A kernel of a plan by its number, or a kernel in its row tiles ("3.0"). whole: the plan's own kernel."""

    path: str
    kernel: Kernel
    whole: Kernel


class Attributed(NamedTuple):
    """An equation and the kernels that compute it; reason: why there are none, or "".

    regions: the equations of its programs, attributed to the kernels of their own plans.
    """

    equation: Equation
    parts: tuple[KernelPart, ...]
    reason: str
    regions: tuple[tuple[Program, tuple[Attributed, ...]], ...]


def parts_of(plan: Plan, path: str = "") -> Iterator[KernelPart]:
    """The kernels of a plan, and of row tiles the kernels in them."""
    for number, kernel in enumerate(plan.kernels):
        for place, member in enumerate(members(kernel)):
            inner = f".{place}" if isinstance(kernel, RowTiles) else ""
            yield KernelPart(f"{path}{number}{inner}", member, kernel)


def attributed(program: Program, plan: Plan, path: str = "") -> tuple[Attributed, ...]:
    """Each equation of an optimised program with the kernels of its plan that compute it.

    An equation that two kernels compute names both.
    """
    computing: dict[int, list[KernelPart]] = {}
    for part in parts_of(plan, path):
        for number in part.kernel.equations:
            computing.setdefault(number, []).append(part)
    return tuple(
        Attributed(
            equation,
            tuple(computing.get(number, ())),
            "" if number in computing else _reason(equation, plan.unplaced.get(number)),
            tuple(_regions(equation, computing.get(number, ()))),
        )
        for number, equation in enumerate(program.equations)
    )


def _reason(equation: Equation, known: str | None) -> str:
    """Why no kernel computes an equation: lowering needed none, or planning found another place for its copy."""
    if known is not None:
        return known
    return "view" if equation.primitive.name in _MOVEMENTS else "dropped"


def _regions(
    equation: Equation, parts: tuple[KernelPart, ...] | list[KernelPart]
) -> Iterator[tuple[Program, tuple[Attributed, ...]]]:
    regions = list(Program((), (equation,), ()).regions())
    for path, kernel, _ in parts:
        inner = nested_plans(kernel)
        if inner and len(regions) == len(inner):
            for region, plan, name in zip(regions, inner, _region_names(kernel), strict=True):
                yield region, attributed(region, plan, f"{path}.{name}.")
            return  # one kernel runs the regions; others make its operands


def _region_names(kernel: Kernel) -> tuple[str, ...]:
    """What the paths in a profile call the plans inside a kernel: branches of one conditional do not share a path."""
    if isinstance(kernel, Branch):
        return tuple(f"branch{number}" for number in range(len(kernel.branches)))
    return ("condition", "body") if isinstance(kernel, While) else ("body",)


class _Numbered(Origin):
    """The origin of a traced equation, with its number and those of equal ones: every pass hands origins on."""

    numbers: tuple[int, ...]

    def joined(self, other: Origin | None) -> Origin:
        if not isinstance(other, _Numbered):
            return self
        both = _Numbered(*self)
        both.numbers = self.numbers + other.numbers
        return both


def numbered(program: Program) -> Program:
    """A traced program whose equations can be told apart in the programs that passes make of it."""

    def marked(number: int, equation: Equation) -> Equation:
        if equation.origin is None:
            return equation
        origin = _Numbered(*equation.origin)
        origin.numbers = (number,)
        return equation.replace(origin=origin)

    return program.replace(equations=[marked(n, e) for n, e in enumerate(program.equations)])


def removed(stages: Sequence[Stage]) -> Iterator[tuple[int, str]]:
    """The equations of a `numbered` program that the passes removed, by number, and the pass."""
    programs = [stage for stage in stages if isinstance(stage.form, Program)]
    last: dict[int, int] = {}
    for place, stage in enumerate(programs):
        for equation in stage.program.equations:
            if isinstance(equation.origin, _Numbered):
                last[equation.origin.numbers[0]] = place
    for number, place in last.items():
        if place + 1 < len(programs) and not stages[0].program.equations[number].primitive.inlined:
            yield number, programs[place + 1].name


def merged(rows: Iterable[Attributed]) -> dict[int, Attributed]:
    """The equation that took the place of each equal one, by the number of the latter in a `numbered` program."""
    return {
        number: row
        for row in rows
        if isinstance(row.equation.origin, _Numbered)
        for number in row.equation.origin.numbers[1:]
    }


def compiled_program(program: Program, backend: Backend, memory_limit: int | None) -> Program:
    """The optimised program whose equations the kernels of a program's plan number."""
    found = compile_stages(program, memory_limit, context=Context.of(backend))
    return [stage.form for stage in found if isinstance(stage.form, Program)][-1]


def lines_of(program: Program, plan: Plan) -> dict[int, tuple[Origin, ...]]:
    """The user's lines of each kernel of a plan and of the plans in it, by the kernel's id, its result's line first.

    Plans are shared by equal programs, which may come from other lines: these are the lines of this program.
    """
    found: dict[int, dict[Origin, None]] = {}
    for row in reversed(attributed(program, plan)):
        _collect(row, found)
    return {kernel: tuple(lines) for kernel, lines in found.items()}


def _collect(row: Attributed, found: dict[int, dict[Origin, None]]) -> None:
    for part in row.parts:
        for kernel in {id(part.kernel), id(part.whole)}:
            lines = found.setdefault(kernel, {})
            if row.equation.origin is not None:
                lines[row.equation.origin] = None
    for _, rows in row.regions:
        for inner in reversed(rows):
            _collect(inner, found)
