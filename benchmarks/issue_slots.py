"""The most that kernels can reach on an H100, counted from machine code, without a GPU.

    python -m benchmarks.issue_slots [--only NAME,NAME] [--write]

NVRTC compiles each kernel, and nvdisasm shows its instructions (`pip install '.[cuda-compile]'`). The main loop is the
loop with the most products of matrices, or else the most multiplications. The script counts the instructions of one
iteration: on the path through the loop with the most products, then the most accesses of memory, then the fewest
instructions. This is the path of a tile that needs no masks; a loop inside counts once. A multiprocessor issues four
instructions of warps in a cycle, which bounds the rate of products from above. Other bounds are the throughput of the
matrix unit, of shared memory, and of exponentials. `--write` puts the table into docs/gpu_reference.md.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends.cuda import nvrtc
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.cuda.report import disassembly
from rlx.backends.gpu.cost import step_counts
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.options import claims_of, lowering_options
from rlx.backends.gpu.program import DeviceProgram
from rlx.ir.options import LoweringOptions, ProductType
from rlx.passes.pipeline import Context, lower_to_plan

__all__ = ["BEGIN", "END", "PAGE", "PROGRAMS", "MainLoop", "main_loop", "measured", "table"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu_reference.md"
BEGIN, END = "<!-- benchmarks.issue_slots -->\n", "<!-- end of benchmarks.issue_slots -->\n"
ARCHITECTURE = "sm_90"
UNITS, CLOCK = 132, 1.755e9  # multiprocessors of an H100, and their clock under load
SCHEDULERS = 4  # of a multiprocessor; each issues one instruction in a cycle
# operations of a warp's instruction, by the beginning of its name; multiplication and addition are two
_OPERATIONS = {"HMMA.16816": 4096, "HMMA.1688": 2048, "IMMA.16832": 8192, "IMMA.16816": 4096, "QMMA.16832": 8192}
_WITHOUT_UNIT = {"FFMA": 64, "DFMA": 64}
# cycles for which an instruction of a warp occupies a unit that one scheduler has
_MATRIX = {"HMMA.16816": 4, "HMMA.1688": 4, "IMMA.16832": 4, "IMMA.16816": 2, "QMMA.16832": 4}
_FUNCTIONS = {"MUFU": 8}
# cycles of shared memory, whose 128 bytes a cycle the four schedulers share, without conflicts of banks
_SHARED = {
    "LDS.128": 16, "LDS.64": 8, "LDS": 4, "STS.128": 16, "STS.64": 8, "STS": 4, "LDSM.16.M88.2": 8,
    "LDSM.16.MT88.2": 8, "LDSM": 16, "LDGSTS": 16, "ATOMS": 4,
}  # fmt: skip
_ACCESSES = ("LDG", "STG", "LDS", "STS")
_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_TARGET = re.compile(r"\bBRA(?:\.\w+)*\s+.*?`\((\.L_x_\d+)\)")
_GUARD = re.compile(r"^@!?U?P\w+\s+")


@dataclass(frozen=True, slots=True)
class MainLoop:
    """A path through the main loop of a kernel: its instructions by name, their operations, and those that multiply."""

    names: Counter[str]
    operations: int
    products: int

    @property
    def slots(self) -> int:
        """Instructions of an iteration."""
        return self.names.total()

    def ceiling(self) -> float:
        """Operations per second if schedulers issue an instruction in each cycle."""
        return self._rate(self.slots)

    def bounds(self) -> dict[str, float]:
        """Operations per second of the matrix unit, of shared memory, and of exponentials, if the loop uses them."""
        tables = {"matrix": _MATRIX, "shared memory": _SHARED, "functions": _FUNCTIONS}
        cycles = {name: sum(_of(table, n) * count for n, count in self.names.items()) for name, table in tables.items()}
        return {name: self._rate(count) for name, count in cycles.items() if count}

    def _rate(self, cycles: float) -> float:
        return self.operations * SCHEDULERS * UNITS * CLOCK / max(cycles, 1)


def _of(table: Mapping[str, int], name: str) -> int:
    """The entry of the longest beginning of a name."""
    return max(((len(key), number) for key, number in table.items() if name.startswith(key)), default=(0, 0))[1]


class _Code(NamedTuple):
    """A kernel's instructions, and the instruction at each label."""

    instructions: list[str]
    labels: dict[str, int]


def _codes(text: str) -> dict[str, _Code]:
    """The kernels of a listing by name."""
    found = {}
    for section in re.split(r"\n\s*\.section\s+\.text\.", text)[1:]:
        instructions: list[str] = []
        labels: dict[str, int] = {}
        for line in section.splitlines():
            if label := _LABEL.match(line):
                labels[label[1]] = len(instructions)
            elif instruction := _INSTRUCTION.match(line):
                instructions.append(instruction[1])
        found[section.split(",")[0].split()[0]] = _Code(instructions, labels)
    return found


def _name(instruction: str) -> str:
    return _GUARD.sub("", instruction).split()[0]


class _Merit(NamedTuple):
    """What a path is chosen by."""

    operations: int
    accesses: int
    fewer: int

    def with_one(self, name: str, counted: Mapping[str, int]) -> _Merit:
        """The merit of a path with one more instruction."""
        operations, accesses = _of(counted, name), name.startswith(_ACCESSES)
        return _Merit(self.operations + operations, self.accesses + accesses, self.fewer - 1)


def main_loop(text: str, kernel: str) -> MainLoop | None:
    """The main loop of a kernel in a listing of nvdisasm; None if it has no loop with products."""
    code = _codes(text)[kernel]
    by_unit = any(_of(_OPERATIONS, _name(instruction)) for instruction in code.instructions)
    counted = _OPERATIONS if by_unit else _WITHOUT_UNIT
    loops = []
    for at, instruction in enumerate(code.instructions):
        target = _TARGET.search(instruction)
        if target and code.labels.get(target[1], at + 1) <= at:
            loops.append(_path(code, code.labels[target[1]], at, counted))
    best = max(loops, key=lambda loop: (loop.operations, -loop.slots), default=None)
    return best if best is not None and best.operations else None


def _path(code: _Code, first: int, last: int, counted: Mapping[str, int]) -> MainLoop:
    """The path from the first to the last instruction of a loop with the most operations, then the shortest."""
    best: dict[int, tuple[_Merit, int]] = {first: (_Merit(0, 0, 0), -1)}  # and the instruction before
    for at in range(first, last):
        if at not in best:
            continue
        merit = best[at][0].with_one(_name(code.instructions[at]), counted)
        for following in _after(code, at, code.instructions[at]):
            if at < following <= last and (following not in best or merit > best[following][0]):
                best[following] = merit, at
    merit, before = best.get(last, (_Merit(0, 0, 0), -1))
    names = Counter([_name(code.instructions[last])])
    while before >= 0:
        names[_name(code.instructions[before])] += 1
        before = best[before][1]
    products = sum(count for name, count in names.items() if _of(counted, name))
    return MainLoop(names, merit.operations, products)


def _after(code: _Code, at: int, instruction: str) -> list[int]:
    """The instructions that may follow one."""
    target = _TARGET.search(instruction)
    if target is None:
        return [at + 1]
    jump = [code.labels[target[1]]] if target[1] in code.labels else []
    return [at + 1, *jump] if _GUARD.match(instruction) or "," in instruction else jump


# ------------------------------------------------------------------ programs
class Case(NamedTuple):
    """A program with one kernel of interest, and the rate that its best library is known for, in TFLOP/s."""

    function: Callable[..., Any]
    types: tuple[tuple[tuple[int, ...], str], ...]
    kernel: str  # a part of the name or of the strategy of the launch
    goal: float = 0.0


def _attention(*shape: int, **how: Any) -> Case:
    goal = 450.0 if shape[-1] == 128 else 0.0
    return Case(lambda q, k, v: nn.dot_product_attention(q, k, v, **how), ((shape, "bfloat16"),) * 3, "attention", goal)


def _gradient(*shape: int, which: str, **how: Any) -> Case:
    def function(cotangent: Any, *given: Any) -> Any:
        return rlx.vjp(lambda *x: nn.dot_product_attention(*x, **how), *given)[1](cotangent)

    return Case(function, ((shape, "bfloat16"),) * 4, which, 300.0 if shape[-1] == 128 else 0.0)


def _product(dtype: str, *axes: str, goal: float = 0.0) -> Case:
    size = 4096
    sums = {"int8": "int32"}.get(dtype, "float32")

    def function(x: Any, y: Any) -> Any:
        left = x if axes[0] == "n" else x.T
        right = y if axes[1] == "n" else y.T
        return jnp.matmul(left, right, preferred_element_type=sums).astype(dtype if sums == "float32" else sums)

    return Case(function, (((size, size), dtype),) * 2, "product", goal)


def _convolution(dtype: str, channels: int) -> Case:
    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return Case(function, (((32, 56, 56, channels), dtype), ((3, 3, channels, channels), dtype)), "product")


PROGRAMS: dict[str, Case] = {
    "product, bf16": _product("bfloat16", "n", "n", goal=400.0),
    "product, f16, left transposed": _product("float16", "t", "n", goal=400.0),
    "product, bf16, right transposed": _product("bfloat16", "n", "t", goal=400.0),
    "product, int8": _product("int8", "n", "n"),
    "product, f8": _product("float8_e4m3fn", "n", "n"),
    "product, f32": _product("float32", "n", "n"),
    "scores of heads, bf16": Case(
        lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k), (((4, 2048, 4, 256), "bfloat16"),) * 2, "product", 400.0
    ),
    "convolution 3x3, bf16, 256 channels": _convolution("bfloat16", 256),
    "convolution 3x3, f32, 64 channels": _convolution("float32", 64),
    "attention, 64 features": _attention(4, 2048, 16, 64),
    "attention, 128 features": _attention(4, 2048, 16, 128),
    "causal attention, 64 features": _attention(4, 2048, 16, 64, is_causal=True),
    "causal attention, 128 features": _attention(4, 2048, 16, 128, is_causal=True),
    "gradient of queries, 64 features": _gradient(4, 2048, 16, 64, which="gradient of queries"),
    "gradient of keys and values, 64 features": _gradient(4, 2048, 16, 64, which="gradient of keys and values"),
    "gradient of queries, 128 features": _gradient(4, 2048, 16, 128, which="gradient of queries"),
    "gradient of keys, 128 features": _gradient(4, 2048, 16, 128, which="gradient of keys"),
    "gradient of values, 128 features": _gradient(4, 2048, 16, 128, which="gradient of values"),
    "causal gradient of keys, 128 features": _gradient(
        4, 2048, 16, 128, which="gradient of keys", is_causal=True
    ),
}  # fmt: skip


def _options() -> LoweringOptions:
    """An H100's, without libraries: all products are rlx's own."""
    narrow = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    options = lowering_options(Limits())
    wide = [ProductType.of(name, "float32") for name in narrow]
    types = (*options.products.types, *wide, ProductType.of("int8", "int32"))
    return replace(options, products=replace(options.products, types=types))


class Measured(NamedTuple):
    """A kernel: its main loop, registers, and spilled bytes."""

    loop: MainLoop | None
    registers: int
    spilled: int
    shared: int
    strategy: str
    items: int
    predicted: float  # operations per second that the cost model's count of instructions allows

    def ratio(self) -> float:
        """The model's ceiling divided by the ceiling of the machine code."""
        return self.predicted / self.loop.ceiling() if self.loop else 0.0


def measured(case: Case) -> list[Measured]:
    """The kernels of a program that the case names."""
    dialect = CudaDialect(tensor_cores=True, narrowest_floats=True)
    units = dialect.fragments(np.dtype("float16"))
    types = [rlx.ShapeDtypeStruct(shape, dtype) for shape, dtype in case.types]
    context = Context(_options(), claims_of(units))
    plan = lower_to_plan(rlx.make_program(case.function)(*types), context=context)
    program = DeviceProgram(plan, dialect, Limits())
    compiled = nvrtc.compile_program(program.source, ARCHITECTURE)
    text = disassembly(compiled)
    found = []
    for steps in program.steps.values():
        for step in steps:
            if case.kernel in step.strategy:
                facts = compiled.facts[step.label]
                loop = main_loop(text, step.label)
                counts = step_counts(step)
                products = sum(counts.products.values()) or counts.operations
                rate = products / counts.slots * SCHEDULERS * UNITS * CLOCK
                sizes = facts.registers, facts.spilled, facts.shared
                found.append(Measured(loop, *sizes, step.strategy, step.items, rate))
    return found


def table(wanted: Sequence[str]) -> list[str]:
    """The lines of the table."""
    lines = [
        "| kernel | instructions | products | ceiling, TFLOP/s | by the model | other bounds, TFLOP/s | registers |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in wanted:
        for found in measured(PROGRAMS[name]):
            if found.loop is None:
                lines.append(f"| {name} | no loop | | | | | {found.registers} |")
                continue
            bounds = ", ".join(f"{n} {rate / 1e12:.0f}" for n, rate in found.loop.bounds().items())
            ceiling, model = found.loop.ceiling() / 1e12, found.predicted / 1e12
            counts = f"{found.loop.slots} | {found.loop.products} | {ceiling:.0f} | {model:.0f}"
            lines.append(f"| {name} | {counts} | {bounds} | {found.registers} |")
    return lines


def main() -> None:
    """Print the table, and perhaps write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of programs, or parts of them, divided by semicolons")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--mix", action="store_true", help="also the instructions of each loop")
    given = parser.parse_args()
    wanted = [n for n in PROGRAMS if not given.only or any(part in n for part in given.only.split(";"))]
    lines = table(wanted)
    print("\n".join(lines))
    if given.mix:
        for name in wanted:
            for found in measured(PROGRAMS[name]):
                short = Counter[str]()
                for n, count in (found.loop.names if found.loop else Counter()).items():
                    short[".".join(n.split(".")[:2])] += count
                print(name, found.strategy, found.items, found.spilled, found.shared, dict(short.most_common(40)))
    if given.write:
        page = PAGE.read_text()
        before, rest = page.split(BEGIN)
        PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
