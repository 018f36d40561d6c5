"""A program as StableHLO text: elementwise operations by the scalar alphabet, all others by a rule each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx.ir.mesh_division import MeshDivision
from rlx.ir.program import Equation, Program
from rlx.stablehlo.text import Value
from rlx.stablehlo.writing import control, indexing, products, reductions, shapes
from rlx.stablehlo.writing.elementwise import elementwise, is_complex_function, write_complex
from rlx.stablehlo.writing.shardings import ShardingWriter
from rlx.stablehlo.writing.writer import FORMAT, Rule, Values, Writer, types_of
from rlx.standalone.spelling import is_elementwise, program_for_writing, refused

__all__ = ["write_program"]

RULES = shapes.RULES | reductions.RULES | products.RULES | indexing.RULES | control.RULES


def write_program(
    program: Program,
    name: str,
    aliases: Mapping[int, int] | None = None,
    division: MeshDivision | None = None,
    emulates_float64: bool = False,
) -> str:
    """A module with the program as its function `main`. Raises UnsupportedError, with the user's line.

    aliases: the numbers of inputs whose memory the run may reuse, each with the number of a result of the same type.
    division: how a mesh divides the arrays, as attributes of Shardy. emulates_float64: see Writer.
    """
    program_for_writing(program, FORMAT)
    shardings = ShardingWriter(division or MeshDivision({}, (), {}, ()))
    writer = Writer(_rule_of, shardings.of_variable, emulates_float64)
    inputs = [Value(f"%arg{n}", v.type.shape, v.type.dtype) for n, v in enumerate(program.inputs)]
    writer.depth = 2
    outputs = writer.program(program, inputs)
    shared = {n: f"tf.aliasing_output = {at} : i32" for n, at in (aliases or {}).items()}
    listed = ", ".join(_with_attributes([f"{v}: {v.type}" for v in inputs], shardings.of_arguments(inputs), shared))
    results = ", ".join(v.type for v in outputs)
    returned = ", ".join(_with_attributes([v.type for v in outputs], shardings.of_results(outputs)))
    title = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    mesh = shardings.mesh() if division is not None else ""
    head = f"module @{title} {{\n{mesh}  func.func public @main({listed}) -> ({returned}) {{\n"
    back = f"    func.return {', '.join(outputs)} : {results}\n" if outputs else "    func.return\n"
    return head + "".join(f"{line}\n" for line in writer.lines) + back + "  }\n}\n"


def _with_attributes(declared: Sequence[str], *attributes: Mapping[int, str]) -> list[str]:
    """Declarations of arguments or results with their attributes, by number."""
    found = [", ".join(texts[n] for texts in attributes if n in texts) for n in range(len(declared))]
    return [f"{text} {{{added}}}" if added else text for text, added in zip(declared, found, strict=True)]


def _call(w: Writer, e: Equation, xs: Values) -> Values:
    """The results of a program that the equation calls."""
    return w.program(e.primitive.meaning(e), xs)


def _rule_of(equation: Equation) -> Rule:
    """The writer of an equation. Raises UnsupportedError."""
    if equation.primitive.name in RULES:
        return RULES[equation.primitive.name]
    if equation.primitive.inlined:
        return _call
    if is_complex_function(equation):
        return write_complex
    if is_elementwise(equation, complex_numbers=True):
        return elementwise
    if equation.primitive.decomposes:
        return _without_elements
    raise refused(equation, FORMAT)


def _without_elements(w: Writer, e: Equation, xs: Values) -> Values:
    """The results of a routine whose results are empty; other routines are decomposed."""
    return [w.constant(np.zeros(shape), dtype) for shape, dtype in types_of(e.outputs)]
