"""Equations of numbers are evaluated at compile time."""

# annotations are the types of printed programs, not Python's
# ruff: noqa: F722

import numpy as np

import rlx.lax  # defines the primitives
from rlx.ir.program import Literal
from rlx.ir.verify import verify_program
from rlx.passes.fold import fold_constants
from rlx.trace.text import bool_, float32, int32, ops, program

assert rlx.lax


def test_chains_of_numbers_are_numbers() -> None:
    @program
    def before(x: "float32[3]"):
        scale = ops.sqrt(ops.add(float32(8.0), float32(8.0)))
        return ops.multiply(x, scale), ops.convert(ops.select(bool_(True), int32(3), int32(4)), dtype=np.dtype("f4"))

    @program
    def after(x: "float32[3]"):
        return ops.multiply(x, float32(4.0)), float32(3.0)

    found = fold_constants(before)
    verify_program(found)
    assert found == after


def test_weak_numbers_stay_weak() -> None:
    @program
    def before(x: "float32[3]"):
        return ops.multiply(x, ops.add(1.0, 2.0))

    (equation,) = fold_constants(before).equations
    literal = equation.inputs[1]
    assert isinstance(literal, Literal) and literal.type.weak and literal.value == 3


def test_division_by_zero_is_silent() -> None:
    @program
    def before():
        return ops.divide(float32(1.0), float32(0.0)), ops.divide(int32(1), int32(0)), ops.log(float32(-1.0))

    infinity, ones, nan = fold_constants(before).outputs
    assert isinstance(infinity, Literal) and np.isposinf(infinity.value)
    assert isinstance(ones, Literal) and ones.value == -1
    assert isinstance(nan, Literal) and np.isnan(nan.value)


def test_what_is_not_folded() -> None:
    @program
    def body(c: "float32[]"):
        return ops.sin(c)

    @program
    def before(x: "float32[]"):
        filled = ops.broadcast_in_dim(float32(1.0), shape=(1000,), dims=())
        (held,) = ops.optimization_barrier(float32(2.0))
        (looped,) = ops.scan(float32(1.0), body=body, constants=0, carries=1, length=3, reverse=False)
        return filled, held, looped, ops.add(x, float32(1.0))

    assert fold_constants(before) is before
