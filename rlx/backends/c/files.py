"""A plan as a C file and its header, independent of rlx."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rlx.backends.c.dialect import CDialect
from rlx.backends.c.source import definitions
from rlx.backends.c.types import literal, memory_type
from rlx.backends.c.weights import WeightFile, named_constants
from rlx.backends.loops.executable import elements
from rlx.backends.loops.place import FunctionParameter
from rlx.backends.loops.program import unit_of_plan, unspelled
from rlx.errors import UnsupportedError
from rlx.ir.kernels import Buffer, Plan
from rlx.ir.types import memory_dtype
from rlx.version import __version__

__all__ = ["CFiles", "CFunction", "Pointer", "c_array", "wrapped"]

_WIDTH = 110
_ALIGNMENT = 8  # of all buffers in the arena
_ARRAYS = (
    "Arrays are dense, their last axis is contiguous, and results overlap nothing else. bool is 0 or 1 in a byte, a "
    "complex number is two numbers, its real part and its imaginary part; floats of 16 bits and less, and integers of "
    "less than 8, are their codes in the low bits of an unsigned integer."
)
_STACK = " Matrix products take 9 KB of the stack (18 KB with AVX-512)."


_WEIGHTS = (
    "weights is the address of the contents of a safetensors file of BYTES bytes, aligned to 8, on a little-endian "
    "processor: mapped, or read into memory. NAME only reads it. NAME_accepts tells whether a file has the arrays that "
    "NAME reads, in its places; the numbers in them may be others."
)


class CFiles(NamedTuple):
    """The contents of a C file and of its header; and, if asked for, of a file of weights and of a CMakeLists.txt.

    >>> import rlx
    >>> files = rlx.export_c(lambda x: x + 1, rlx.ShapeDtypeStruct((2,), "float32"), name="next")
    >>> [field for field, content in files._asdict().items() if content]
    ['source', 'header']
    """

    source: str
    header: str
    weights: bytes = b""
    cmake: str = ""


@dataclass(frozen=True)
class Pointer:
    """A parameter of the function, with its buffer. result: the meaning of the result that replaces an argument."""

    place: FunctionParameter
    buffer: Buffer
    written: bool = False
    result: str = ""

    @property
    def declaration(self) -> str:
        """Its declaration in C."""
        return f"{'' if self.written else 'const '}{memory_type(self.buffer.dtype)} *{self.place.name}"

    def __str__(self) -> str:
        return f"  {self.place}{f', replaced by {self.result}' if self.result else ''}"


class CFunction:
    """A function that runs a plan, as it is written in C; see rlx.export_c. `header` is the header's file name.

    replaced: numbers of arguments, each with the number of the result that is written over it: these arguments are not
    read by the plan, whose outputs hold their values at the beginning. weights: the file that contains the constants,
    whose address is the first parameter; by default they are arrays in the source.

    Raises UnsupportedError for kernels that only the host can run.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        arguments: Sequence[FunctionParameter],
        results: Sequence[FunctionParameter],
        header: str,
        blas: bool = False,
        replaced: Mapping[int, int] = MappingProxyType({}),
        weights: WeightFile | None = None,
        tiles: bool = True,
    ) -> None:
        self.constants = {f"{name}_{label}": buffer for label, buffer in named_constants(plan).items()}
        self.weights = weights
        self.plan, self.name, self.header, self.blas = plan, name, header, blas
        self.replaced, self.tiles = replaced, tiles
        self.dialect = self.dialect_of(blas, (name, f"{name}_in", f"{name}_memory", *self.constants))
        missing = ", ".join(unspelled(plan.kernels, self.dialect))
        if missing:
            raise UnsupportedError(
                f"{name} cannot be written in C alone: C and libm have no {missing}.",
                "Export a function without it, and compute that part outside.",
            )
        inputs = tuple(buffer for n, buffer in enumerate(plan.inputs) if n not in replaced)
        self.unit = unit_of_plan(replace(plan, inputs=inputs), self.dialect, f"{name}_steps")
        self.arguments = [
            Pointer(place, plan.inputs[n]) if n not in replaced
            else Pointer(place, plan.outputs[replaced[n]], written=True, result=results[replaced[n]].meaning)
            for n, place in enumerate(arguments)
        ]  # fmt: skip
        pairs = enumerate(zip(results, plan.outputs, strict=True))
        self.results = [Pointer(p, b, written=True) for n, (p, b) in pairs if n not in replaced.values()]
        self.pointers = [*self.arguments, *self.results]
        named = {pointer.buffer: pointer.place.name for pointer in self.pointers}
        self.passed = [*(named[b] for b in (*inputs, *plan.outputs)), *self._constants_passed()]

    def dialect_of(self, blas: bool, taken: Sequence[str]) -> CDialect:
        """The syntax of the kernels."""
        return CDialect(blas, taken, tiles=self.tiles)

    def _constants_passed(self) -> list[str]:
        """The constants as expressions."""
        if self.weights is None:
            return list(self.constants)
        pairs = zip(self.constants.values(), self.weights.offsets, strict=True)
        return [
            f"(const {memory_type(buffer.dtype)} *)(const void *)((const uint8_t *)weights + {offset})"
            for buffer, offset in pairs
        ]

    def texts(self) -> CFiles:
        """Both files."""
        return CFiles(self.source_text(), self.header_text(), self.weights.data if self.weights else b"")

    @property
    def bytes_macro(self) -> str:
        """The macro for the size of the function's memory."""
        return f"{self.name.upper()}_ARENA_BYTES"

    @property
    def weights_macro(self) -> str:
        """The macro for the size of the file of weights."""
        return f"{self.name.upper()}_WEIGHTS_BYTES"

    def parameters(self) -> str:
        """The function's parameters."""
        file = ["const void *weights"] if self.weights else []
        return ", ".join((*file, *(pointer.declaration for pointer in self.pointers)))

    def prototypes(self) -> list[str]:
        """The declarations of both functions."""
        taken = self.parameters()
        within = f"{taken}, void *arena" if taken else "void *arena"
        return [f"void {self.name}({taken or 'void'})", f"void {self.name}_in({within})"]

    # -------------------------------------------------------------- header
    def header_text(self) -> str:
        """The header: declarations, documentation and sizes."""
        arena = f"#define {self.bytes_macro} {self.arena_bytes()}"
        return self.header_of(self.description(), [*self.size_macros(), arena])

    def size_macros(self) -> list[str]:
        """A macro for the number of elements of each parameter."""
        return [
            f"#define {self.name.upper()}_{pointer.place.name.upper()}_SIZE {_numbers(pointer.buffer)}"
            for pointer in self.pointers
        ]

    def header_of(self, description: Iterable[str], macros: Sequence[str]) -> str:
        """A header with this documentation and these macros."""
        guard = f"{self.name.upper()}_H"
        lines = [
            *_comment(description), f"#ifndef {guard}", f"#define {guard}", "", "#include <stdint.h>", "", *macros,
            *([f"#define {self.weights_macro} {len(self.weights.data)}"] if self.weights else []), "",
            "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
            *(line for head in self.prototypes() for line in wrapped(f"{head};")),
            *([f"int {self.name}_accepts(const void *weights, int64_t bytes);"] if self.weights else []), "",
            "#ifdef __cplusplus", "}", "#endif", "", "#endif",
        ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def description(self) -> Iterator[str]:
        """The documentation in the header."""
        needs = "C99, its mathematical library and CBLAS" if self.blas else "C99 and its mathematical library"
        yield f"{self.name}: written by rlx {__version__} (rlx.export_c). It needs {needs}."
        yield ""
        yield "Arguments:"
        yield from map(str, self.arguments)
        if self.results:
            yield "Results:"
        yield from map(str, self.results)
        yield ""
        yield from wrapped(_ARRAYS)
        yield ""
        if self.weights:
            yield from wrapped(_WEIGHTS.replace("NAME", self.name).replace("BYTES", self.weights_macro))
            yield ""
        stack = _STACK if any("_product_" in helper for helper in self.unit.helpers) else ""
        yield from wrapped(
            f"{self.memory_text()}{stack} Compile with -ffp-contract=off, which -std=c99 means in gcc, to have every "
            "product rounded."
        )

    def memory_text(self) -> str:
        """The documentation of the memory that the functions need."""
        return (
            f"{self.name} works in static memory: only one call of it may be at work at a time. {self.name}_in works "
            f"in memory of the caller's: {self.bytes_macro} bytes, aligned to {_ALIGNMENT}, that nothing else uses "
            "meanwhile. Neither allocates."
        )

    def arena_bytes(self) -> int:
        """Bytes of the arena: not zero, even if none is needed."""
        return max(self.unit.arena, _ALIGNMENT)

    # -------------------------------------------------------------- source
    def source_text(self) -> str:
        """The C file."""
        return self.source_of(self.functions_text())

    def functions_text(self) -> str:
        """The functions that do the work."""
        includes = [*(["#include <cblas.h>"] if self.blas else []), f'\n#include "{self.header}"']
        return definitions(self.unit, includes)

    def source_of(self, functions: str) -> str:
        """The C file with these functions."""
        arrays = {} if self.weights else self.constants
        constants = "\n\n".join(c_array(name, buffer.elements) for name, buffer in arrays.items())
        check = self.weights.check_lines(self.name, self.weights_macro) if self.weights else []
        parts = (functions, constants, "\n".join(self.public_lines()), "\n".join(check))
        return "\n".join(filter(None, parts)) + "\n"

    def public_lines(self) -> list[str]:
        """The functions that the header declares."""
        names = [*(["weights"] if self.weights else []), *(pointer.place.name for pointer in self.pointers)]
        passed = ", ".join((*self.passed, "(uint8_t *)arena"))
        plain, within = self.prototypes()
        memory = f"{self.name}_memory"
        return [
            *wrapped(f"{within} {{"), *wrapped(f"    {self.unit.entry.name}({passed});"), "}", "",
            *wrapped(f"{plain} {{"),
            f"    static union {{ double number; int64_t position; uint8_t bytes[{self.bytes_macro}]; }} {memory};",
            *wrapped(f"    {self.name}_in({', '.join((*names, f'{memory}.bytes'))});"), "}",
        ]  # fmt: skip


def _numbers(buffer: Buffer) -> int:
    """The number of elements of a buffer in C."""
    return buffer.nbytes // memory_dtype(buffer.dtype).itemsize


def c_array(name: str, values: np.ndarray) -> str:
    """A constant of an array's elements."""
    array = elements(np.ascontiguousarray(values).reshape(-1))
    dtype = array.dtype if array.dtype.kind != "b" else np.dtype(np.uint8)
    numbers = ", ".join(literal(dtype, x) for x in array.tolist()) or "0"
    body = textwrap.fill(numbers, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
    return f"static const {memory_type(dtype)} {name}[{max(array.size, 1)}] = {{\n{body}\n}};\n"


def _comment(lines: Iterable[str]) -> list[str]:
    safe = [line.replace("*/", "* /").replace("/*", "/ *") for line in lines]
    return [f"/* {safe[0]}", *(f"   {line}".rstrip() for line in safe[1:-1]), f"   {safe[-1]} */", ""]


def wrapped(line: str) -> list[str]:
    """Break a long line."""
    indent = line[: len(line) - len(line.lstrip())]
    follow = f"{indent}    " if line.endswith(("{", ";")) else indent
    return textwrap.wrap(line, _WIDTH, subsequent_indent=follow, break_long_words=False, break_on_hyphens=False)
