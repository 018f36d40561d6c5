"""Inspection of a compiled function: every stage, as readable text."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rlx.backends import backend_named
from rlx.backends.base import Backend, Executable
from rlx.backends.claims import Claims
from rlx.call.compiled import CompiledProgram
from rlx.call.jitted import Jitted
from rlx.explain.attribution import Attributed, attributed, lines_of, merged, numbered, removed
from rlx.explain.memory_report import MemoryPlan
from rlx.explain.page import frame, page
from rlx.explain.page.contents import graph_of, kernels_of, memory_of, sources_of
from rlx.explain.prediction import show_prediction
from rlx.explain.show_form import counted, form_lines, form_text
from rlx.explain.spills import spills_of
from rlx.forks import cached_property
from rlx.ir.kernels import Contract, Library, Plan, RowTiles, Sort
from rlx.ir.program import Equation, Program
from rlx.ir.show import show_lines
from rlx.ir.show_plan import describe_plan, show_plan
from rlx.ir.work import Work, plan_work
from rlx.lowering.nest import Nests
from rlx.passes.pipeline import Context, Stage, compile_stages, steps
from rlx.passes.simplify import rules
from rlx.planning.memory import plan_statistics
from rlx.trace.flat import check_function

__all__ = ["Dispatch", "DispatchReport", "Inspection", "Kernels", "StageView", "Statistics", "Text", "inspect"]

_SECTION_LINES = 60  # longer sections are cut on the page


class _TimedKernel(Protocol):
    path: str
    seconds: float


class Timed(Protocol):
    """The times of kernels by their paths, as in a Profile."""

    kernels: tuple[_TimedKernel, ...]


class Text(str):
    """Text whose repr is the text itself, so that a notebook shows it unescaped."""

    def __repr__(self) -> str:
        return str(self)


class StageView:
    """The result of a compiler step: its name, the program, nests or plan, its text, and the time."""

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
    """How an equation, a named call or a block was compiled, and the kernels that compute it.

    `how`: inlined (a call or a block, which its equations replace), claimed (a block that the device has a
    kernel for), fused (in a kernel with others), kernel (a separate one), library (a matrix product, a sort or
    another routine: `reason` names the library, if the device has several), decomposed (a matrix product or a
    routine that the device does not take, as loops), host (a kernel that Python runs: `reason` says why).
    No kernel computes an equation that is a constant (known without the arguments), a view (only the way that kernels
    index its operand), an alias (its operand itself) or dropped (no kernel needs it). Traced equations that a pass
    removed come first: `reason` names the pass, `kernel` the kernel that computes an equal equation.
    `kernel` is "kernel 3", "kernels 3, 5" if both compute it, "kernel 3.0" for the first kernel in the row tiles of
    kernel 3, "kernel 3.body.0" for the first in a loop that is kernel 3 (3.condition.0, 3.branch1.0 likewise), or "".
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
    """How each block, call and equation was compiled: a list that prints as a table, with counts first."""

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
        if self._executable is not None and (cost := self._executable.predicted()) is not None:
            found["predicted"] = show_prediction(*cost)
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
        self,
        name: str,
        found: Sequence[Stage],
        executable: Executable | None,
        fired: Counter[str],
        backend: Backend,
        names: Sequence[str] = (),
        placement: Any = None,
    ) -> None:
        self.name = name
        self.placement = placement  # the decision, if a policy chose the device
        count = len(found[0].program.inputs)
        self._names = tuple(names) if len(names) == count else tuple(f"x{number}" for number in range(count))
        self.backend = backend
        self.hir = StageView(found[0])
        views = [StageView(s) for s in found[1:]]
        self.mir = [view for view in views if isinstance(view.form, Program)]
        self.lowering = views[len(self.mir) :]
        self.executable = executable
        self.kernels = Kernels(executable)
        self._fired = fired
        self._removed = tuple(removed(found))

    @property
    def plan(self) -> Plan | None:
        """The LIR plan; None if nothing is computed."""
        return None if self.executable is None else self.executable.plan

    @property
    def lir(self) -> Text:
        """The plan: one line a kernel, and the map of the arena."""
        if self.executable is not None and self.plan is None:
            return Text(f"the device {self.backend.name!r} plans by itself: see kernels.texts")
        return Text("nothing is computed" if self.plan is None else describe_plan(self.plan))

    @property
    def lir_source(self) -> Text:
        """The plan as Python source that rebuilds it."""
        return Text("" if self.plan is None else show_plan(self.plan))

    @property
    def fusion(self) -> Text:
        """The fused kernels, the reasons why others were not fused, and the arrays that are passed through memory."""
        if self.plan is None:
            return Text("")
        return Text("\n".join(map(str, (*(self.plan.report or ()), *spills_of(self.plan)))))

    @cached_property
    def dispatch(self) -> DispatchReport:
        """How each block, named call and equation was compiled."""
        calls = [*_inlined(self.hir.program, self.backend.claims), *self._decomposed]
        if self.plan is None:
            return DispatchReport(calls)
        program = self.mir[-1].program
        rows = attributed(program, self.plan)
        return DispatchReport([*calls, *self._gone(rows), *_dispatch(program, rows, self._how)])

    def _gone(self, rows: Sequence[Attributed]) -> Iterator[Dispatch]:
        """A row for each traced equation that the passes computed at once, merged with an equal one or left out."""
        if self._removed:
            lines, equal = show_lines(self.hir.program), merged(rows)
            why = {step.name: step.why for step in steps}
            for number, name in self._removed:
                how = "constant" if name == "fold" else "dropped"
                kernel = _kernels(equal[number]) if number in equal else ""
                yield Dispatch(lines[number], how, kernel, f"{name}: {why.get(name, 'it is planned again')}")

    def _how(self, row: Attributed) -> tuple[str, str]:
        """The role of the kernel that makes an equation's result, and why it runs on the host, if it does."""
        if not row.parts:
            return row.reason, ""
        _, kernel, whole = row.parts[-1]  # earlier ones make copies of its operands
        if isinstance(whole, RowTiles):
            return "fused", ""
        reason = self.backend.host_reason(kernel)
        if reason is not None:
            return "host", reason
        if isinstance(kernel, Library) and kernel.meaning is not None:
            return "claimed", ""
        if isinstance(kernel, (Contract, Sort, Library)):
            return "library", self.backend.made_by(kernel)
        if Contract not in self.backend.claims.kinds and row.equation in self._products:
            return "decomposed", ""
        return "fused" if len(kernel.equations) > 1 else "kernel", ""

    @property
    def _decomposed(self) -> Iterator[Dispatch]:
        """A row for each routine that loops and products replace."""
        names = [view.name for view in self.mir]
        if "decompose_routines" in names:
            before = self.mir[names.index("decompose_routines") - 1].program
            yield from _unclaimed(before, self.backend.claims)

    @cached_property
    def _products(self) -> set[Equation]:
        """Equations that lowering made a matrix product of."""
        lowered = self.stage("lower").form
        assert isinstance(lowered, Nests)
        equations = self.mir[-1].program.equations
        return {equations[n] for step in lowered.steps if isinstance(step, Contract) for n in step.equations}

    @cached_property
    def memory(self) -> MemoryPlan:
        """Bytes of arguments, outputs and temporaries; the offset of each temporary, and when it is needed."""
        program = self.hir.program
        found = MemoryPlan(self.name) if self.plan is None else MemoryPlan.of(self.plan)
        arguments, outputs = (sum(t.nbytes for t in types) for types in (program.input_types, program.output_types))
        return replace(found, arguments=arguments, outputs=outputs)

    @cached_property
    def work(self) -> Work:
        """The operations and memory traffic of the kernels, from their index maps."""
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
        """Every step of the compiler in order, from the traced program to the plan."""
        return [self.hir, *self.mir, *self.lowering]

    def stage(self, name: str) -> StageView:
        """The result of the step `name`, including "hir": see `stages` for all steps."""
        for view in self.stages:
            if view.name == name:
                return view
        known = ", ".join(v.name for v in self.stages)
        raise KeyError(f"there is no stage {name!r}; there are: {known}")

    def diff(self, before: str, after: str) -> Text:
        """The changes from one stage to another, as a unified diff of their equations or kernels."""
        one, other = self.stage(before), self.stage(after)
        lines = difflib.unified_diff(form_lines(one.form), form_lines(other.form), before, after, lineterm="", n=2)
        return Text("\n".join(lines))

    # -------------------------------------------------------------- pages
    def sections(self) -> Iterator[tuple[str, str]]:
        """(title, text) of each section of the page."""
        yield "statistics", str(self.statistics)
        yield "placement", "" if self.placement is None else str(self.placement)
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

    def page(self, profile: Timed | None = None) -> str:
        """An interactive page of HTML: the graph of equations between your lines and the compiled kernels.

        Pointing at a line, an equation, a kernel or its code highlights related parts. One file, nothing is fetched.

        Args:
          profile: what rlx.profile returned for the same call; the page shows its time of each kernel.
        """
        return page(self._title(), self._contents(profile))

    def save(self, path: str | os.PathLike[str], profile: Timed | None = None) -> Path:
        """Write the page to a file; -> its path. profile: as in `page`.

        >>> import rlx, tempfile, pathlib
        >>> found = rlx.inspect(lambda x: x + 1.0)(rlx.ShapeDtypeStruct((3,), "float32"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found.save(pathlib.Path(folder) / "page.html").name
        'page.html'
        """
        target = Path(path)
        target.write_text(self.page(profile), encoding="utf-8")
        return target

    def _contents(self, profile: Timed | None) -> dict[str, Any]:
        """The contents of the page."""
        program, plan = self.mir[-1].program, self.plan
        rows = () if plan is None else attributed(program, plan)
        kernels = [[part.path for part in row.parts] for row in rows]
        lines = {} if plan is None else lines_of(program, plan)
        seconds = {} if profile is None else {kernel.path: kernel.seconds for kernel in profile.kernels}
        texts = {name: self.kernels.texts.get(name, "") for name in ("loops", "llvm", "assembly")}
        return {
            "title": self._title(),
            "inputs": len(program.inputs),
            "graph": graph_of(program, self._names, kernels, [self._how(row)[0] for row in rows]),
            "sources": sources_of(e.origin for e in program.equations if e.origin is not None),
            "kernels": [] if plan is None else kernels_of(plan, texts["loops"], lines, seconds),
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
Role = Callable[[Attributed], tuple[str, str]]


def _inlined(program: Program, claims: Claims) -> Iterator[Dispatch]:
    """A row for each call of a program, and each block in calls and regions, that its equations replace."""
    for equation in program.equations:
        if claims.takes(equation):
            continue
        if equation.primitive.inlined:
            yield Dispatch(_call_name(equation), "inlined", "")
        for region in Program((), (equation,), ()).regions():
            yield from (row for row in _inlined(region, claims) if row.equation.startswith("block "))


def _unclaimed(program: Program, claims: Claims) -> Iterator[Dispatch]:
    """A row for each equation of a program and its regions that other equations replace."""
    for equation, line in zip(program.equations, show_lines(program), strict=False):
        if claims.decomposes(equation):
            yield Dispatch(line, "decomposed", "")
        for region in Program((), (equation,), ()).regions():
            yield from _unclaimed(region, claims)


def _call_name(equation: Equation) -> str:
    name = equation.params.get("name", equation.primitive.name)
    place = f"  {equation.origin}" if equation.origin else ""
    return f"{'block' if equation.primitive.claimable else 'call of'} {name}{place}"


def _kernels(row: Attributed) -> str:
    paths = ", ".join(part.path for part in row.parts)
    return f"kernel{'s' if len(row.parts) > 1 else ''} {paths}" if paths else ""


def _dispatch(program: Program, rows: Sequence[Attributed], role: Role) -> Iterator[Dispatch]:
    """A row for each equation; equations of regions follow the enclosing equation."""
    for row, line in zip(rows, show_lines(program), strict=False):
        how, reason = role(row)
        yield Dispatch(line, how, _kernels(row), reason)
        for region, inner in row.regions:
            yield from _dispatch(region, inner, role)


# ------------------------------------------------------------------ the function
def inspect(fun: Callable[..., Any], device: str | None = None) -> Callable[..., Inspection]:
    """A function of the same arguments as `fun` that compiles it and returns an Inspection.

    Args:
      fun: a plain function or a jitted one. Arguments may be arrays or anything with .shape and .dtype;
        nothing is run.
      device: the device to compile for; None leaves the choice to the function and its arguments. "cuda", "rocm" and
        "tpu" show their programs on machines without a GPU or TPU as well; "tpu" divides arguments with a sharding.
        With "auto" or a policy, `placement` is the decision.

    >>> import rlx
    >>> found = rlx.inspect(lambda x: x + 1.0)(rlx.ShapeDtypeStruct((3,), "float32"))
    >>> found.statistics.kernels
    {'Loops': 1}
    """
    check_function(fun)
    jitted = fun if isinstance(fun, Jitted) else Jitted(fun, device=device)
    if device is not None:
        jitted = jitted.on(device)

    def inspected(*args: Any, **kwargs: Any) -> Inspection:
        traced = jitted.trace(*args, **kwargs)
        closed = traced.closed()
        placement = traced.placement()
        backend = traced.backend() if placement is None else backend_named(placement.device)
        before = Counter(rules.hits)
        found = compile_stages(numbered(closed), jitted.memory_limit, context=Context.of(backend))
        fired = Counter(rules.hits)
        fired.subtract(before)
        if backend.divides and (division := traced.division()) is not None:
            executable = backend.compile_divided(closed, traced.donated(), division)
        else:
            executable = CompiledProgram(closed, backend, jitted.memory_limit, given=traced.donated()).executable
        return Inspection(jitted.name, found, executable, +fired, backend, traced.leaf_names(), placement)

    return inspected
