"""What the compiler did with a function: every stage, in text that a person can read."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rlx.backends.base import Backend, Executable
from rlx.backends.claims import Claims
from rlx.call.compiled import CompiledProgram
from rlx.call.jitted import Jitted
from rlx.call.page import frame, page
from rlx.call.page.contents import graph_of, kernels_of, memory_of, sources_of
from rlx.ir.kernels import Contract, Kernel, Library, Plan, Sort, nested_plans
from rlx.ir.program import Equation, Program, Var
from rlx.ir.show import show_lines
from rlx.ir.show_plan import describe_plan, show_plan
from rlx.ir.work import Work, plan_work
from rlx.lowering.nest import Nests
from rlx.passes.pipeline import Context, Stage, compile_stages
from rlx.passes.show_form import counted, form_lines, form_text
from rlx.passes.simplify import rules
from rlx.planning.memory import plan_statistics
from rlx.planning.memory_report import MemoryPlan
from rlx.planning.spills import spills_of

__all__ = ["Dispatch", "DispatchReport", "Inspection", "Kernels", "StageView", "Statistics", "Text", "inspect"]

_MOVEMENTS = frozenset("broadcast_in_dim iota reshape reverse slice transpose".split())
_SECTION_LINES = 60  # longer sections are cut on the page


class Text(str):
    """Text whose repr is the text itself, so that a notebook shows it as it is."""

    def __repr__(self) -> str:
        return str(self)


class StageView:
    """What one step of the compiler made: its name, the program, nests or plan, its text, and how long it took."""

    def __init__(self, stage: Stage) -> None:
        self.name = stage.name
        self.form = stage.form
        self.seconds = stage.seconds

    @property
    def program(self) -> Program:
        """The program of a step before lowering; TypeError after it."""
        if not isinstance(self.form, Program):
            raise TypeError(f"{self.name} makes {type(self.form).__name__}, no program: see .form and .text")
        return self.form

    @cached_property
    def text(self) -> Text:
        """A program as Python that runs; nests and plans as one line a kernel."""
        return Text(form_text(self.form))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"# {self.name}: {counted(self.form)}, {self.seconds * 1e3:.3f} ms\n{self.text}"


class Dispatch(NamedTuple):
    """What became of an equation, a named call or a block.

    `how`: inlined (a call or a block, whose equations stand in its place), claimed (a block that the device has a
    kernel for), fused (in a kernel with others), kernel (one of its own), library (a matrix product, a sort or
    another routine: `reason` names who makes it, where the device has several), decomposed (a matrix product or a
    routine that the device does not take, as loops), host (a kernel that Python runs: `reason` says why), view (only
    the way a kernel indexes its operands).
    """

    equation: str
    how: str
    kernel: str
    reason: str = ""

    def __str__(self) -> str:
        place = f" {self.kernel}" if self.kernel else ""
        why = f"  ({self.reason})" if self.reason else ""
        return f"{self.how:10}{place:12} {self.equation}{why}"


class DispatchReport(list[Dispatch]):
    """What became of each block, call and equation: a list that prints as a table, with counts in front."""

    @property
    def counts(self) -> dict[str, int]:
        """How often each `how` occurs."""
        return dict(Counter(row.how for row in self))

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {how}" for how, count in self.counts.items())
        return "\n".join([counts, *map(str, self)]) if self else ""

    def __repr__(self) -> str:
        return str(self)


class Statistics(NamedTuple):
    """Counts: equations after each pass, primitives, rules that fired, kernels by kind, bytes moved, work."""

    equations: dict[str, int]
    primitives: dict[str, int]
    rules: dict[str, int]
    kernels: dict[str, int]
    bytes: int
    seconds: dict[str, float]
    work: Work

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {count}" for name, count in self.equations.items())
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kernels.items()) or "none"
        lines = [f"equations: {steps}", f"kernels: {kinds}; they read and write {self.bytes} B"]
        if self.work.flops or self.work.transcendentals:
            lines.append(
                f"work: {self.work.flops:.3g} flops, {self.work.transcendentals:.3g} transcendentals,"
                f" {self.work.intensity:.3g} operations a byte"
            )
        if self.rules:
            lines.append("rules:")
            lines += [f"  {count:4} x {rule}" for rule, count in self.rules.items()]
        return "\n".join(lines)


class Kernels:
    """The compiled code: `plan` and `loops` as Python-like text, `llvm` and `assembly`."""

    def __init__(self, executable: Executable | None) -> None:
        self._executable = executable

    @cached_property
    def texts(self) -> dict[str, Text]:
        """Every form that the backend offers, by name."""
        found = {} if self._executable is None else self._executable.texts()
        return {name: Text(text) for name, text in found.items()}

    def _form(self, name: str) -> Text:
        return self.texts.get(name, Text(""))

    @property
    def plan(self) -> Text:
        """The plan as Python source that rebuilds it."""
        return self._form("plan")

    @property
    def loops(self) -> Text:
        """The loop nests of the kernels as Python-like loops."""
        return self._form("loops")

    @property
    def llvm(self) -> Text:
        """Optimised LLVM IR."""
        return self._form("llvm")

    @property
    def assembly(self) -> Text:
        """Machine code."""
        return self._form("assembly")

    def __repr__(self) -> str:
        return self.loops or "nothing is computed"


class Inspection:
    """Every stage of one compiled call; print it for a page that shows the most telling ones."""

    def __init__(
        self, name: str, found: Sequence[Stage], executable: Executable | None, fired: Counter[str], backend: Backend
    ) -> None:
        self.name = name
        self.backend = backend
        self.hir = StageView(found[0])
        views = [StageView(s) for s in found[1:]]
        self.mir = [view for view in views if isinstance(view.form, Program)]
        self.lowering = views[len(self.mir) :]
        self.executable = executable
        self.kernels = Kernels(executable)
        self._fired = fired

    @property
    def plan(self) -> Plan | None:
        """The LIR plan; None where nothing is computed."""
        return None if self.executable is None else self.executable.plan

    @property
    def lir(self) -> Text:
        """The plan: one line a kernel, and the map of the arena."""
        return Text("nothing is computed" if self.plan is None else describe_plan(self.plan))

    @property
    def lir_source(self) -> Text:
        """The plan as Python source that rebuilds it."""
        return Text("" if self.plan is None else show_plan(self.plan))

    @property
    def fusion(self) -> Text:
        """Which kernels were fused, for the others why they were not, and what goes through memory between them."""
        if self.plan is None:
            return Text("")
        return Text("\n".join(map(str, (*(self.plan.report or ()), *spills_of(self.plan)))))

    @cached_property
    def dispatch(self) -> DispatchReport:
        """What became of each block and named call, and of each equation."""
        calls = [*_inlined(self.hir.program, self.backend.claims), *self._decomposed]
        if self.plan is None:
            return DispatchReport(calls)
        rows = _dispatch(self.mir[-1].program, self.plan, "", self._how)
        return DispatchReport([*calls, *rows])

    def _how(self, equation: Equation, kernel: Kernel) -> tuple[str, str]:
        """What a kernel is to an equation that it computes, and why it runs on the host, if it does."""
        reason = self.backend.host_reason(kernel)
        if reason is not None:
            return "host", reason
        if isinstance(kernel, Library) and kernel.meaning is not None:
            return "claimed", ""
        if isinstance(kernel, (Contract, Sort, Library)):
            return "library", self.backend.made_by(kernel)
        if Contract not in self.backend.claims.kinds and equation in self._products:
            return "decomposed", ""
        return "fused" if "+" in _label(kernel) else "kernel", ""

    @property
    def _decomposed(self) -> Iterator[Dispatch]:
        """A row for each routine in whose place loops and products stand."""
        names = [view.name for view in self.mir]
        if "decompose_routines" in names:
            before = self.mir[names.index("decompose_routines") - 1].program
            yield from _unclaimed(before, self.backend.claims)

    @cached_property
    def _products(self) -> set[Equation]:
        """Equations that lowering made a matrix product of."""
        lowered = self.stage("lower").form
        assert isinstance(lowered, Nests)
        made = {(step.label, step.origins) for step in lowered.steps if isinstance(step, Contract)}
        return {
            e
            for e in self.mir[-1].program.equations
            if (e.primitive.name, () if e.origin is None else (e.origin,)) in made
        }

    @cached_property
    def memory(self) -> MemoryPlan:
        """Bytes of arguments, outputs and temporaries; where each temporary lies, and when it is needed."""
        program = self.hir.program
        found = MemoryPlan(self.name) if self.plan is None else MemoryPlan.of(self.plan)
        arguments, outputs = (sum(t.nbytes for t in types) for types in (program.input_types, program.output_types))
        return replace(found, arguments=arguments, outputs=outputs)

    @cached_property
    def work(self) -> Work:
        """What the kernels compute and move, by their index maps."""
        return Work() if self.plan is None else plan_work(self.plan)

    @property
    def statistics(self) -> Statistics:
        """Counts of equations, rules, kernels and bytes."""
        kernels = {} if self.plan is None else plan_statistics(self.plan)["kernels"]
        views = [self.hir, *self.mir, *self.lowering]
        return Statistics(
            {v.name: len(v.program.equations) for v in (self.hir, *self.mir)},
            dict(Counter(e.primitive.name for e in self.mir[-1].program.equations).most_common()),
            dict(self._fired.most_common()),
            kernels,
            self.work.bytes,
            {v.name: v.seconds for v in views},
            self.work,
        )

    @property
    def stages(self) -> list[StageView]:
        """Every step of the compiler in order, from the traced program to the plan; without memory_limit."""
        return [self.hir, *self.mir, *self.lowering]

    def stage(self, name: str) -> StageView:
        """What the step `name` made, "hir" included: see `stages` for all of them."""
        for view in self.stages:
            if view.name == name:
                return view
        known = ", ".join(v.name for v in self.stages)
        raise KeyError(f"there is no stage {name!r}; there are: {known}")

    def diff(self, before: str, after: str) -> Text:
        """What changed from one stage to another, as a unified diff of their equations or kernels."""
        one, other = self.stage(before), self.stage(after)
        lines = difflib.unified_diff(form_lines(one.form), form_lines(other.form), before, after, lineterm="", n=2)
        return Text("\n".join(lines))

    # -------------------------------------------------------------- pages
    def sections(self) -> Iterator[tuple[str, str]]:
        """(title, text) of each section of the page."""
        yield "statistics", str(self.statistics)
        yield "program", str(self.mir[-1])
        yield "plan", self.lir
        yield "fusion", self.fusion
        yield "dispatch", str(self.dispatch)
        yield "memory", str(self.memory)
        yield "loops", self.kernels.loops

    def _title(self) -> str:
        program = self.hir.program
        ins, outs = (", ".join(map(repr, types)) for types in (program.input_types, program.output_types))
        return f"{self.name}({ins}) -> ({outs})"

    def __repr__(self) -> str:
        parts = [self._title()]
        for title, text in self.sections():
            if text:
                parts.append(f"---- {title} {'-' * (74 - len(title))}\n{_cut(text)}")
        parts.append(
            "More: .stages .hir .mir .diff(before, after) .lir .lir_source .kernels.llvm .kernels.assembly .dispatch"
            " .memory"
        )
        return "\n\n".join(parts)

    def page(self) -> str:
        """An interactive page of HTML: the graph of equations between your lines and what the compiler made of them.

        Pointing at a line, an equation, a kernel or its code lights what belongs to it. One file, nothing is fetched.
        """
        return page(self._title(), self._contents())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file; -> its path.

        >>> import rlx, tempfile, pathlib
        >>> found = rlx.inspect(lambda x: x + 1.0)(rlx.ShapeDtypeStruct((3,), "float32"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found.save(pathlib.Path(folder) / "page.html").name
        'page.html'
        """
        target = Path(path)
        target.write_text(self.page(), encoding="utf-8")
        return target

    def _contents(self) -> dict[str, Any]:
        """What the page shows."""
        program, plan = self.mir[-1].program, self.plan
        places = {} if plan is None else _places(program, plan, self._how)
        found = [places.get(equation, (None, "", "")) for equation in program.equations]
        texts = {name: self.kernels.texts.get(name, "") for name in ("loops", "llvm", "assembly")}
        return {
            "title": self._title(),
            "inputs": len(program.inputs),
            "graph": graph_of(program, [number for number, _, _ in found], [how for _, how, _ in found]),
            "sources": sources_of(e.origin for e in program.equations if e.origin is not None),
            "kernels": [] if plan is None else kernels_of(plan, texts["loops"]),
            "fusion": self.fusion,
            "memory": memory_of(self.memory),
            "texts": {**texts, "hir": self.hir.text, "statistics": str(self.statistics)},
        }

    def _repr_html_(self) -> str:
        return frame(self.page())


def _cut(text: str) -> str:
    lines = text.rstrip().split("\n")
    if len(lines) <= _SECTION_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:_SECTION_LINES], f"... {len(lines) - _SECTION_LINES} more lines"])


# ------------------------------------------------------------------ dispatch
Role = Callable[[Equation, Kernel], tuple[str, str]]


def _inlined(program: Program, claims: Claims) -> Iterator[Dispatch]:
    """A row for each call of a program, and each block in calls and regions, that its equations stand in place of."""
    for equation in program.equations:
        if claims.takes(equation):
            continue
        if equation.primitive.inlined:
            yield Dispatch(_call_name(equation), "inlined", "")
        for region in Program((), (equation,), ()).regions():
            yield from (row for row in _inlined(region, claims) if row.equation.startswith("block "))


def _unclaimed(program: Program, claims: Claims) -> Iterator[Dispatch]:
    """A row for each equation of a program and its regions that other equations stand in place of."""
    for equation, line in zip(program.equations, show_lines(program), strict=False):
        if claims.decomposes(equation):
            yield Dispatch(line, "decomposed", "")
        for region in Program((), (equation,), ()).regions():
            yield from _unclaimed(region, claims)


def _call_name(equation: Equation) -> str:
    name = equation.params.get("name", equation.primitive.name)
    place = f"  {equation.origin}" if equation.origin else ""
    return f"{'block' if equation.primitive.claimable else 'call of'} {name}{place}"


def _dispatch(program: Program, plan: Plan, path: str, role: Role) -> Iterator[Dispatch]:
    """A row for each equation, those of regions after the equation that holds them."""
    places = _places(program, plan, role)
    for equation, line in zip(program.equations, show_lines(program), strict=False):
        number, how, reason = places[equation]
        place = "" if number is None else f"{path}{number}"
        yield Dispatch(line, how, f"kernel {place}" if place else "", reason)
        inner = () if number is None else nested_plans(plan.kernels[number])
        regions = list(Program((), (equation,), ()).regions())
        if inner and len(regions) == len(inner):
            for region, part in zip(regions, inner, strict=True):
                yield from _dispatch(region, part, f"{place}.", role)


def _places(program: Program, plan: Plan, role: Role) -> dict[Equation, tuple[int | None, str, str]]:
    """The kernel of each equation, and what it is there.

    A kernel is labelled with the primitives that it was made for. Equations that no kernel is
    labelled with are computed, or only indexed, where their results are used.
    """
    by_name: dict[str, list[int]] = {}
    for number, kernel in enumerate(plan.kernels):
        for name in _label(kernel).split("+"):
            by_name.setdefault(name, []).append(number)
    places: dict[Equation, tuple[int | None, str, str]] = {}
    for equation in program.equations:
        found = _kernel_of(equation, plan, by_name.get(equation.primitive.name, []))
        if found is not None:
            places[equation] = (found, *role(equation, plan.kernels[found]))
    users: dict[Any, int] = {}
    for equation in reversed(program.equations):
        if equation not in places:
            view = equation.primitive.name in _MOVEMENTS
            used = [users[v] for v in equation.outputs if v in users]
            places[equation] = (used[0] if used else None, "view" if view else "fused", "")
        place = places[equation][0]
        if place is not None:
            users.update((a, place) for a in equation.inputs if isinstance(a, Var))
    return places


def _kernel_of(equation: Equation, plan: Plan, candidates: list[int]) -> int | None:
    """The kernel that computes an equation: one of its name, and of its line if there is one."""
    same_line = [n for n in candidates if equation.origin in getattr(plan.kernels[n], "origins", ())]
    if not same_line:  # a long label is cut: what it does not name is in the kernel of the equation's line
        cut = [n for n, k in enumerate(plan.kernels) if _label(k).endswith("...")]
        same_line = [n for n in cut if equation.origin in getattr(plan.kernels[n], "origins", ())]
    for number in same_line or candidates:
        if number in candidates and "+" not in _label(plan.kernels[number]):  # it computes one equation
            candidates.remove(number)
        return number
    return None


def _label(kernel: Kernel) -> str:
    return getattr(kernel, "label", "")


# ------------------------------------------------------------------ the function
def inspect(fun: Callable[..., Any], device: str | None = None) -> Callable[..., Inspection]:
    """A function of the same arguments as `fun` that compiles it and returns an Inspection.

    Args:
      fun: a plain function or a jitted one. Arguments may be arrays or anything with .shape and .dtype;
        nothing is run.
      device: what it is compiled for; None leaves that to the function and its arguments. "cuda" and "rocm" show their
        programs on machines without a GPU, too.

    >>> import rlx
    >>> found = rlx.inspect(lambda x: x + 1.0)(rlx.ShapeDtypeStruct((3,), "float32"))
    >>> found.statistics.kernels
    {'Loops': 1}
    """
    jitted = fun if isinstance(fun, Jitted) and device is None else Jitted(fun, device=device)

    def inspected(*args: Any, **kwargs: Any) -> Inspection:
        traced = jitted.trace(*args, **kwargs)
        closed = traced.closed()
        backend = jitted.backend_for(traced._request, traced.program, traced._captured)
        before = Counter(rules.hits)
        found = compile_stages(closed, context=Context.of(backend))
        fired = Counter(rules.hits)
        fired.subtract(before)
        executable = CompiledProgram(closed, backend, jitted.memory_limit).executable
        return Inspection(jitted.name, found, executable, +fired, backend)

    return inspected
