"""The verifier refuses every broken program, by name and with the place."""

# annotations are the types of printed programs, not Python's
# ruff: noqa: F722, F821

from typing import Any

import numpy as np
import pytest

import rlx.lax  # defines the primitives
from rlx.errors import VerificationError
from rlx.ir.program import Equation, Literal, Origin, Program, Var
from rlx.ir.types import TensorType
from rlx.ir.verify import verify_program
from rlx.trace.builder import Builder, Tracer
from rlx.trace.primitive import registry
from rlx.trace.text import ops, program

FLOATS = TensorType((3,), np.dtype("f4"))
SCALAR = TensorType((), np.dtype("f4"))


def equation(name: str, inputs: Any, outputs: Any, **params: Any) -> Equation:
    return Equation(registry[name], tuple(inputs), params, tuple(outputs), Origin("model.py", 12, "loss"))


def refused(broken: Program, what: str, stage: str = "mir") -> str:
    with pytest.raises(VerificationError, match=what) as caught:
        verify_program(broken, stage)
    return str(caught.value)


def test_correct_programs_pass() -> None:
    @program
    def correct(x: "float32[3]", y: "int32[]"):
        return ops.add(ops.sin(x), 1.0), y

    verify_program(correct, "hir")
    verify_program(correct, "mir")


def test_use_before_definition() -> None:
    x, y = Var(FLOATS), Var(FLOATS)
    message = refused(Program([x], [equation("add", [x, y], [Var(FLOATS)])], [x]), "used before it is defined")
    assert "operand 1 of add" in message and "model.py:12 (loss)" in message and ">>  v0 = ops.add" in message


def test_undefined_output() -> None:
    assert "return (undefined,)" in refused(Program([], [], [Var(FLOATS)]), "output 0")


def test_double_definition() -> None:
    x, y = Var(FLOATS), Var(FLOATS)
    refused(Program([x, x], [], [x]), "defined twice")
    refused(Program([x], [equation("sin", [x], [y]), equation("cos", [x], [y])], [y]), "equation 1 of 2")


def test_wrong_types() -> None:
    x = Var(FLOATS)
    refused(Program([x], [equation("sin", [x], [Var(SCALAR)])], []), r"results in \(float32\[3\]\)")
    refused(Program([x], [equation("sin", [x], [Var(FLOATS), Var(FLOATS)])], []), "its outputs are")
    refused(Program([x], [equation("reshape", [x], [Var(SCALAR)], shape=())], []), "has no type")
    refused(Program([x], [equation("sin", [x, x], [Var(FLOATS)])], []), "takes 1 operands, here are 2")


def test_weakness_may_differ() -> None:
    x = Var(FLOATS)
    verify_program(Program([x], [equation("sin", [x], [Var(FLOATS.update(weak=True))])], []))


def test_literals_are_scalars_of_their_type() -> None:
    for value, type in (
        (np.zeros(3, "f4"), SCALAR),
        (np.zeros((), "f8"), SCALAR),
        (np.zeros((), "f4"), FLOATS),
        (1.0, SCALAR),
    ):
        refused(Program([], [], [Literal(value, type)]), "literal")  # type: ignore[arg-type]


def test_constants_are_of_their_type() -> None:
    x = Var(FLOATS)
    verify_program(Program([], [], [x], [(x, np.zeros(3, "f4"))]))
    refused(Program([], [], [x], [(x, np.zeros(4, "f4"))]), "constant")


def test_traced_values_among_parameters() -> None:
    x = Var(FLOATS)
    with Builder() as builder:
        tracer = builder.input(SCALAR)
    assert isinstance(tracer, Tracer)
    for value in (tracer, (1, [tracer]), {"a": x}):
        refused(Program([x], [equation("sin", [x], [Var(FLOATS)], held=value)], []), "a value of a trace")


def test_regions_are_closed_and_verified() -> None:
    x, free = Var(FLOATS), Var(FLOATS)
    body = Program([x], [equation("add", [x, free], [Var(FLOATS)])], [x], (), "body")
    z = Var(FLOATS)
    params = {"body": body, "constants": 0, "carries": 1, "length": 2, "reverse": False}
    refused(Program([z], [equation("scan", [z], [Var(FLOATS)], **params)], [z]), "program 'body': operand 1 of add")


def test_calls_are_for_hir_only() -> None:
    double = rlx.jit(lambda x: x + x)
    traced = rlx.make_program(lambda x: double(x))(np.ones(3, np.float32))
    verify_program(traced, "hir")
    refused(traced, "calls are inlined in MIR")


def test_only_the_surroundings_are_shown() -> None:
    x = Var(FLOATS)
    equations = [equation("sin", [x], [Var(FLOATS)]) for _ in range(100)]
    equations[50] = equation("sin", [Var(FLOATS)], [Var(FLOATS)])
    message = refused(Program([x], equations, [x]), "equation 50 of 100")
    assert "... 40 equations" in message and len(message.splitlines()) < 30
