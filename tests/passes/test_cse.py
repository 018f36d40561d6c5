"""Common subexpressions are computed once, where that cannot be noticed."""

# annotations are the types of printed programs, not Python's
# ruff: noqa: F722

from typing import Any

import numpy as np

import rlx.lax  # defines the primitives
from rlx.ir.program import Equation, Program, Var
from rlx.ir.types import TensorType
from rlx.ir.verify import verify_program
from rlx.passes.cse import eliminate_common
from rlx.trace.primitive import registry
from rlx.trace.text import float32, ops, program

assert rlx.lax


def test_equal_equations_become_one() -> None:
    @program
    def before(x: "float32[3]"):
        return ops.add(ops.sin(x), ops.sin(x)), ops.add(ops.sin(x), ops.sin(x))

    @program
    def after(x: "float32[3]"):
        y = ops.sin(x)
        z = ops.add(y, y)
        return z, z

    found = eliminate_common(before)
    verify_program(found)
    assert found == after


def test_params_and_literals_tell_equations_apart() -> None:
    @program
    def before(x: "float32[1,1]"):
        return (
            ops.reshape(x, shape=(1,)), ops.reshape(x, shape=()), ops.reshape(x, shape=(1,)),
            ops.multiply(x, float32(0.0)), ops.multiply(x, float32(-0.0)), ops.multiply(x, 0.0),
        )  # fmt: skip

    found = eliminate_common(before)
    assert len(found.equations) == 5 and found.outputs[0] is found.outputs[2]


def test_equal_regions_are_equal() -> None:
    def loop(x: Any) -> Any:
        @program
        def body(c: "float32[]"):
            return ops.sin(c)

        return ops.scan(x, body=body, constants=0, carries=1, length=3, reverse=False)

    @program
    def before(x: "float32[]"):
        return (*loop(x), *loop(x))

    assert len(eliminate_common(before).equations) == 1


def test_barriers_and_effects_are_kept() -> None:
    @program
    def before(x: "float32[3]"):
        return (*ops.optimization_barrier(x), *ops.optimization_barrier(x))

    assert len(eliminate_common(before).equations) == 2
    printed: list[Any] = []
    x = Var(TensorType((), np.dtype("f4")))

    def call(y: Var) -> Equation:
        primitive = registry["io_callback"]
        params = {"function": printed.append, "types": (y.type,), "ordered": True}
        return Equation(primitive, (x,), params, (y,))

    class Effectful:
        name, opaque = "effectful", False

        def effect(self, **params: Any) -> bool:
            return True

    outputs = [Var(x.type), Var(x.type)]
    calls = [Equation(Effectful(), (x,), {}, (y,)) for y in outputs]
    assert len(eliminate_common(Program([x], calls, outputs)).equations) == 2


def test_different_weakness_is_different() -> None:
    x = Var(TensorType((), np.dtype("f4")))
    strong, weak = Var(x.type), Var(x.type.update(weak=True))
    sine = registry["sin"]
    before = Program([x], [Equation(sine, (x,), {}, (strong,)), Equation(sine, (x,), {}, (weak,))], [strong, weak])
    assert len(eliminate_common(before).equations) == 2
