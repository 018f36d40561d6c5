"""Shared by the writers of other formats: elementwise operations as steps of the scalar alphabet.

Primitives are an open set, scalar operations a closed one: a format that supports the alphabet supports every
elementwise primitive, including user-defined ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import UnsupportedError, source_line
from rlx.ir.kernels import Loops
from rlx.ir.program import Equation, Program, encode_params
from rlx.ir.types import TensorType, is_complex, is_key
from rlx.passes.pipeline import lower_program
from rlx.trace.primitive import Primitive
from rlx.trace.tracing import trace_program

__all__ = ["ScalarCode", "ScalarStep", "entering", "is_elementwise", "program_for_writing", "refused", "scalar_code"]


class ScalarStep(NamedTuple):
    """A step: an operation of rlx.ir.scalar on earlier steps. "input": the operand whose number is the attribute;
    "constant": the attribute is the value, an array without axes; "real", "imag": the parts of a complex operand;
    "complex": a complex number from its parts."""

    op: str
    args: tuple[int, ...]
    dtype: np.dtype
    attribute: Any = None


class ScalarCode(NamedTuple):
    """An elementwise operation: its steps, and the indices of its results."""

    steps: tuple[ScalarStep, ...]
    results: tuple[int, ...]


def is_elementwise(equation: Equation, complex_numbers: bool = False) -> bool:
    """Whether an equation works element by element on real numbers, or also on `complex_numbers`."""
    types = [*(a.type for a in equation.inputs), *(v.type for v in equation.outputs)]
    strange = any(is_key(t.dtype) or (is_complex(t.dtype) and not complex_numbers) for t in types)
    return not strange and hasattr(equation.primitive, "scalar")


def scalar_code(equation: Equation) -> ScalarCode:
    """The steps of an elementwise equation, each on one element of every operand."""
    dtypes = tuple(a.type.dtype for a in equation.inputs)
    return _code(equation.primitive, dtypes, _Params(encode_params(equation.params), equation.params))


class _Params:
    """Parameters of an equation, equal by content."""

    def __init__(self, content: bytes, values: Any) -> None:
        self.content, self.values = content, values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Params) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)


@lru_cache(maxsize=4096)
def _code(primitive: Primitive, dtypes: tuple[Any, ...], params: _Params) -> ScalarCode:
    def run(*xs: Any) -> Any:
        found = primitive.bind(*xs, **params.values)
        return found if primitive.multiple else (found,)

    program, _ = trace_program(run, [TensorType((), dtype) for dtype in dtypes])
    plan = lower_program(program)
    steps: list[ScalarStep] = []
    written: dict[Any, int] = {b: n for n, b in enumerate(plan.inputs)}
    for n, buffer in enumerate(plan.inputs):
        steps.append(ScalarStep("input", (), buffer.dtype, n))
    for buffer in (b for b in plan.buffers if b.role == "constant"):
        written[buffer] = len(steps)
        steps.append(ScalarStep("constant", (), buffer.dtype, np.asarray(buffer.value).reshape(())))
    for kernel in plan.kernels:
        assert isinstance(kernel, Loops), "an elementwise primitive is lowered to loops"
        numbers: list[int] = []
        for i in kernel.instructions:
            args = tuple(numbers[a] for a in i.args)
            if i.op == "load":
                source = written[kernel.operands[i.attribute.operand]]
                wide = steps[source].dtype != i.dtype
                numbers.append(len(steps) if wide else source)
                if is_complex(steps[source].dtype):
                    steps.append(ScalarStep(("real", "imag")[i.attribute.offset], (source,), i.dtype))
                elif wide:  # small floats are read as float32
                    steps.append(ScalarStep("cast", (source,), i.dtype))
                continue
            value = np.frombuffer(i.attribute, i.dtype)[0].reshape(()) if i.op == "constant" else i.attribute
            numbers.append(len(steps))
            steps.append(ScalarStep(i.op, args, i.dtype, value))
        parts: dict[Any, list[int]] = {}
        for store in sorted(kernel.stores, key=lambda store: store.access.offset):
            parts.setdefault(kernel.operands[store.access.operand], []).append(numbers[store.value])
        for buffer, values in parts.items():
            written[buffer] = values[0]
            if is_complex(buffer.dtype):
                written[buffer] = len(steps)
                steps.append(ScalarStep("complex", tuple(values), buffer.dtype))
    results = []
    for buffer in plan.outputs:
        at = written[buffer]
        if steps[at].dtype != buffer.dtype:  # computed in float32, or in bytes
            steps.append(ScalarStep("cast", (at,), buffer.dtype))
            at = len(steps) - 1
        results.append(at)
    return ScalarCode(tuple(steps), tuple(results))


def program_for_writing(program: Program, format: str) -> Program:
    """The program to write. Raises an error if it has types that the format lacks."""
    for types in (program.input_types, program.output_types):
        if any(is_key(t.dtype) for t in types):
            raise UnsupportedError(
                f"{program.name} takes or returns random keys, for which {format} has no type.",
                "Take a number as seed, and make the key inside: rlx.random.key(seed).",
            )
    return program


def entering(table: dict[str, Any]) -> Callable[..., Callable[[Any], Any]]:
    """A decorator that takes names, and registers a function in a table under each name."""

    def rule(*names: str) -> Callable[[Any], Any]:
        def enter(function: Any) -> Any:
            table.update(dict.fromkeys(names, function))
            return function

        return enter

    return rule


def refused(equation: Equation, format: str, what: str = "") -> UnsupportedError:
    """The error, with the user's line, for an operation that a format lacks."""
    line = source_line(*equation.origin) if equation.origin is not None else ""
    return UnsupportedError(
        f"{equation.primitive.name} cannot be written as {format}{': ' if what else ''}{what}.",
        "Leave it out of the exported function, or use other operations.",
        line,
    )
