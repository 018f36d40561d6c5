"""Plans as text: Python source that rebuilds them, and one line for each kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from rlx.errors import bytes_text
from rlx.ir.collectives import Exchange
from rlx.ir.kernels import (
    Access,
    Await,
    Branch,
    Buffer,
    Callback,
    Collective,
    Contract,
    Instruction,
    Kernel,
    Library,
    Loops,
    Operand,
    Plan,
    RowTiles,
    Scan,
    Sort,
    Store,
    nested_plans,
)
from rlx.ir.program import Equation, Origin

__all__ = [
    "buffer_names",
    "describe_kernel",
    "describe_plan",
    "kernel_name",
    "plan_functions",
    "show_host_steps",
    "show_kernel",
    "show_plan",
]

_HEADER = """\
import ml_dtypes
import numpy as np

from rlx.ir.collectives import Exchange
from rlx.ir.kernels import *
from rlx.ir.program import Origin
"""


def show_plan(plan: Plan) -> str:
    """Python source that rebuilds the plan as `plan`; its report is left out.

    Of an equation among `origins` the user's line is printed. Host functions are free names,
    `function_0`, `function_1`...: see `plan_functions`.
    """
    writer = _PlanWriter()
    name = writer.plan(plan)
    return "\n".join([_HEADER, *writer.lines, f"plan = {name}", ""])


def show_kernel(kernel: Kernel) -> str:
    """The kernel's part of `show_plan`, with the buffers and plans that it uses."""
    writer = _PlanWriter()
    writer.kernel(kernel)
    return "\n".join(writer.lines) + "\n"


def plan_functions(plan: Plan) -> dict[str, Any]:
    """The host functions of a plan by the names that `show_plan` gives them."""
    writer = _PlanWriter()
    writer.plan(plan)
    return {name: function for function, name in writer.functions.values()}


# ------------------------------------------------------------------ source
class _PlanWriter:
    """Collects assignments; an object that is used twice is written once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.functions: dict[int, tuple[Any, str]] = {}
        self.counts: dict[str, int] = {}

    def define(self, thing: object, prefix: str, text: str) -> str:
        """Assign to a fresh name that stands for `thing` from now on."""
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        name = self.names[id(thing)] = f"{prefix}_{number}"
        self.lines.append(f"{name} = {text}")
        return name

    def plan(self, plan: Plan) -> str:
        """The name of a plan, written with everything it needs."""
        if id(plan) in self.names:
            return self.names[id(plan)]
        for buffer in plan.buffers:
            self.buffer(buffer)
        kernels = [self.kernel(kernel) for kernel in plan.kernels]
        arguments = ",\n".join((
            f"    inputs={self.value(plan.inputs)}",
            f"    outputs={self.value(plan.outputs)}",
            f"    buffers={self.value(plan.buffers)}",
            f"    kernels={_tuple(kernels)}",
            f"    arena={plan.arena}",
            f"    offsets={self.value(dict(plan.offsets))}",
            f"    held={plan.held!r}",
            f"    barriers={plan.barriers!r}",
            f"    name={plan.name!r}",
        ))  # fmt: skip
        return self.define(plan, "plan", f"Plan(\n{arguments},\n)")

    def kernel(self, kernel: Kernel) -> str:
        """The name of a kernel, one field a line."""
        if id(kernel) in self.names:
            return self.names[id(kernel)]
        arguments = []
        for field in fields(kernel):
            value = getattr(kernel, field.name)
            if field.name in ("instructions", "stores") and value:
                items = "".join(f"        {self.value(item)},\n" for item in value)
                arguments.append(f"    {field.name}=(\n{items}    ),\n")
            else:
                arguments.append(f"    {field.name}={self.value(value)},\n")
        text = f"{type(kernel).__name__}(\n{''.join(arguments)})"
        return self.define(kernel, "kernel", text)

    def buffer(self, buffer: Buffer) -> str:
        """The name of a buffer."""
        if id(buffer) in self.names:
            return self.names[id(buffer)]
        text = f"Buffer({_dtype(buffer.dtype)}, {buffer.size}, role={buffer.role!r}"
        if buffer.value is not None:
            text += f", value={_array(buffer.value)}"
        if buffer.name:
            text += f", name={buffer.name!r}"
        return self.define(buffer, "buffer", text + ")")

    def function(self, function: Any) -> str:
        """The free name of a host function."""
        name = f"function_{len(self.functions)}"
        return self.functions.setdefault(id(function), (function, name))[1]

    def value(self, value: Any) -> str:
        """An expression for a field's value."""
        if isinstance(value, Buffer):
            return self.buffer(value)
        if isinstance(value, Plan):
            return self.plan(value)
        if isinstance(value, Kernel):
            return self.kernel(value)
        if isinstance(value, Equation):
            return self.value(value.origin)
        if isinstance(value, Origin):
            return f"Origin({value.file!r}, {value.line!r}, {value.function!r})"
        if isinstance(value, (Access, Exchange, Instruction, Store, Operand)):
            parts = ", ".join(f"{f.name}={self.value(getattr(value, f.name))}" for f in fields(value))
            return f"{type(value).__name__}({parts})"
        if isinstance(value, tuple):
            return _tuple([self.value(v) for v in value])
        if isinstance(value, list):
            return f"[{', '.join(self.value(v) for v in value)}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self.value(k)}: {self.value(v)}' for k, v in value.items())}}}"
        if callable(value) and not isinstance(value, type):
            return self.function(value)
        return _literal(value)


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _dtype(dtype: np.dtype) -> str:
    if dtype.isbuiltin == 1:
        return f"np.dtype({dtype.name!r})"
    return f"np.dtype(ml_dtypes.{dtype.name})"


def _array(array: np.ndarray) -> str:
    content = np.ascontiguousarray(array).tobytes().hex()
    return f"np.ndarray({array.shape!r}, {_dtype(array.dtype)}, bytes.fromhex({content!r}))"


def _literal(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.dtype):
        return _dtype(value)
    if isinstance(value, np.generic):
        return _literal(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    raise TypeError(f"a {type(value).__name__} in a plan has no text")


# ------------------------------------------------------------------ for people
def describe_plan(plan: Plan) -> str:
    """One line a kernel (kind, space, reads, writes, bytes), then the map of the arena."""
    return "\n".join(_plan_lines(plan)) + "\n"


def _plan_lines(plan: Plan) -> Iterator[str]:
    names = buffer_names(plan)
    inputs = ", ".join(_typed(b, names) for b in plan.inputs)
    outputs = ", ".join(_typed(b, names) for b in plan.outputs)
    yield f"{plan.name}({inputs}) -> ({outputs})"
    for number, kernel in enumerate(plan.kernels):
        yield f"  {number:3}  {_kernel_line(kernel, names)}"
        if isinstance(kernel, RowTiles):
            yield from (f"       | {_kernel_line(inner, names)}" for inner in kernel.kernels)
        for inner in nested_plans(kernel):
            yield from (f"       | {line}" for line in _plan_lines(inner))
    yield f"  arena {bytes_text(plan.arena)}"
    yield from (f"  {line}" for line in _arena_lines(plan, names))


def show_host_steps(
    plan: Plan, reason: Callable[[Kernel], str | None], whole: Callable[[Kernel], bool] = lambda kernel: False
) -> str:
    """A line with the reason for each kernel that the host runs, including loops and branches, from `reason`.

    whole: whether a kernel runs without the host, including its nested kernels.
    """
    return "\n".join(dict.fromkeys(_host_steps(plan, reason, whole)))


def _host_steps(plan: Plan, reason: Callable[[Kernel], str | None], whole: Callable[[Kernel], bool]) -> Iterator[str]:
    for kernel in plan.kernels:
        if whole(kernel):
            continue
        if (found := reason(kernel)) is not None:
            yield found
        for inner in nested_plans(kernel):
            yield from _host_steps(inner, reason, whole)


def describe_kernel(kernel: Kernel, plan: Plan) -> str:
    """The kernel's line of `describe_plan`."""
    return _kernel_line(kernel, buffer_names(plan))


def kernel_name(kernel: Kernel) -> str:
    """The operations that a kernel computes, or its kind if they are unknown."""
    return getattr(kernel, "label", "") or type(kernel).__name__


def buffer_names(plan: Plan) -> dict[Buffer, str]:
    """Short names, unique in the plan."""
    prefixes = {"input": "in", "output": "out", "constant": "const", "temporary": "tmp"}
    counts = dict.fromkeys(prefixes, 0)
    names: dict[Buffer, str] = {}
    for buffer in plan.buffers:
        name = f"{prefixes[buffer.role]}{counts[buffer.role]}"
        counts[buffer.role] += 1
        names[buffer] = f"{name}:{buffer.name}" if buffer.name else name
    return names


def _typed(buffer: Buffer, names: dict[Buffer, str]) -> str:
    return f"{names.get(buffer, '?')} {buffer.dtype.name}[{buffer.size}]"


def _kernel_line(kernel: Kernel, names: dict[Buffer, str]) -> str:
    reads = " ".join(names.get(b, "?") for b in dict.fromkeys(kernel.reads)) or "-"
    writes = " ".join(names.get(b, "?") for b in dict.fromkeys(kernel.writes)) or "-"
    moved = sum(b.nbytes for b in dict.fromkeys((*kernel.reads, *kernel.writes)))
    label = getattr(kernel, "label", "")
    kind = type(kernel).__name__ + (f" {label}" if label else "")
    return f"{kind:24} {_space(kernel):20} {reads} -> {writes}  {bytes_text(moved)}"


def _space(kernel: Kernel) -> str:
    """The iteration space of the kernel."""
    match kernel:
        case Loops():
            outer = "x".join(map(str, kernel.sizes[: kernel.outer]))
            row = "x".join(map(str, kernel.sizes[kernel.outer :]))
            cut = f" in {kernel.chunks} chunks" if kernel.chunks > 1 else ""
            return f"[{outer}|{row}]{cut}, {len(kernel.instructions)} instructions"
        case Contract():
            batch = "x".join(map(str, kernel.out.shape[:-2]))
            wide = f" in {kernel.accumulator.name}" if kernel.accumulator is not None else ""
            return f"[{batch}|{kernel.rows}x{kernel.columns}x{kernel.depth}]{' tf32' if kernel.tf32 else ''}{wide}"
        case RowTiles():
            return f"{kernel.count} row tiles of {len(kernel.kernels)} kernels"
        case Sort():
            return f"[{kernel.rows}|{kernel.length}]"
        case Library():
            return kernel.routine
        case Scan():
            return f"{kernel.length} steps{' backwards' if kernel.reverse else ''}"
        case Branch():
            return f"{len(kernel.branches)} branches"
        case Callback():
            return getattr(kernel.function, "__name__", "function")
        case Await():
            return "the exchange before"
        case Collective():
            what = kernel.exchange
            return " ".join(filter(None, (what.kind, what.op, f"in {what.group}[{what.members}]")))
    return ""


def _arena_lines(plan: Plan, names: dict[Buffer, str]) -> Iterator[str]:
    """The offset of each temporary, and the kernels of its first and last use."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for number, kernel in enumerate(plan.kernels):
        for buffer in (*kernel.reads, *kernel.writes):
            first.setdefault(buffer, number)
            last[buffer] = number
    local = {b for kernel in plan.kernels if isinstance(kernel, RowTiles) for b in kernel.local}
    placed = [b for b in plan.offsets if b not in local]
    for buffer in sorted(placed, key=lambda b: (plan.offsets[b], first.get(b, -1))):
        use = f"kernels {first[buffer]}-{last[buffer]}" if buffer in first else "unused"
        offset = plan.offsets[buffer]
        yield f"  {offset:>10}-{offset + buffer.nbytes:<10} {_typed(buffer, names)}  {use}"
