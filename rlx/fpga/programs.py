"""The integer program that a circuit computes: relus fused or separate, and multipliers of its precision."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.errors import DtypeOverflowError, UnsupportedError
from rlx.fpga.tune import RequantPrecision, Tune
from rlx.quant.integer_program import (
    IntegerClamp,
    IntegerConvolution,
    IntegerDense,
    IntegerOperation,
    IntegerProgram,
    Requantization,
    accumulator_bound,
)

__all__ = ["circuit_program"]


def circuit_program(program: IntegerProgram, tune: Tune) -> IntegerProgram:
    """The program that a circuit computes bit for bit. It differs from `program` in multipliers of 15 bits only.

    Raises UnsupportedError for multipliers that are floats, DtypeOverflowError for numbers out of range.
    """
    for operation in program.operations:
        _check_range(program, operation)
        found = _requantization(operation)
        if found is not None and found.rounding != "q31":
            raise UnsupportedError(
                f"{program.values[operation.output].name} scales its sums with floats, for which there is no circuit.",
                'Make the program with rounding="q31".',
                operation.origin,
            )
    shaped = _fused(program) if tune.fuse_conv_relu else _unfused(program)
    if tune.requant_precision is RequantPrecision.Q0_31:
        return shaped
    return replace(shaped, operations=tuple(map(_short, shaped.operations)))


def _check_range(program: IntegerProgram, operation: IntegerOperation) -> None:
    """Refuse accumulators beyond int32, and multipliers that are not normalised."""
    name, found = program.values[operation.output].name, _requantization(operation)
    if isinstance(operation, (IntegerConvolution, IntegerDense)):
        bound = accumulator_bound(operation, program.values[operation.inputs[0]])
        if bound >= 1 << 31:
            raise DtypeOverflowError(
                f"An accumulator of {name} can be {bound}, which exceeds int32.",
                "Divide the layer's inputs into groups, or its weights and its multiplier by a power of two.",
                operation.origin,
            )
    if found is None or found.rounding != "q31":
        return
    if np.any(found.multiplier < 1 << 30) or np.any((found.shift < -30) | (found.shift > 31)):
        raise DtypeOverflowError(
            f"A multiplier of {name} is out of range: multipliers are in [2**30, 2**31), shifts in [-30, 31].",
            "Use fixed_point of rlx.quant.integer_arithmetic.",
            operation.origin,
        )


def _requantization(operation: IntegerOperation) -> Requantization | None:
    return getattr(operation, "requantization", None)


def _scaled(operation: IntegerOperation, **fields: Any) -> IntegerOperation:
    """An operation with another requantisation."""
    found = _requantization(operation)
    assert found is not None
    return replace(operation, requantization=replace(found, **fields))


def _short(operation: IntegerOperation) -> IntegerOperation:
    """An operation whose multipliers have 15 bits."""
    found = _requantization(operation)
    if found is None:
        return operation
    short = (found.multiplier.astype(np.int64) + (1 << 15)) >> 16
    carried = short == 1 << 15
    multiplier = np.where(carried, short >> 1, short) << 16
    return _scaled(operation, multiplier=multiplier.astype(np.int32), shift=(found.shift - carried).astype(np.int32))


def _fused(program: IntegerProgram) -> IntegerProgram:
    """A program whose clamps are part of the requantisation before them, where it has no other use."""
    uses = Counter(i for operation in program.operations for i in operation.inputs)
    uses.update(program.outputs)
    operations: list[IntegerOperation] = []
    for operation in program.operations:
        before = next((k for k, o in enumerate(operations) if o.output == operation.inputs[0]), None)
        found = None if before is None else _requantization(operations[before])
        if not isinstance(operation, IntegerClamp) or found is None or uses[operation.inputs[0]] > 1:
            operations.append(operation)
            continue
        assert before is not None
        low, high = (int(np.clip(bound, operation.low, operation.high)) for bound in (found.low, found.high))
        operations[before] = replace(_scaled(operations[before], low=low, high=high), output=operation.output)
    return replace(program, operations=tuple(operations))


def _unfused(program: IntegerProgram) -> IntegerProgram:
    """A program in which requantisations that clamp to less than a code's range are followed by a clamp."""
    values, operations = list(program.values), []
    for operation in program.operations:
        found = _requantization(operation)
        if found is None or (found.low, found.high) == (-128, 127):
            operations.append(operation)
            continue
        value = values[operation.output]
        values.append(replace(value, name=f"{value.name}_unclamped", low=-128, high=127))
        operations.append(replace(_scaled(operation, low=-128, high=127), output=len(values) - 1))
        clamp = IntegerClamp(
            inputs=(len(values) - 1,), output=operation.output, origin=operation.origin, low=found.low, high=found.high
        )
        operations.append(clamp)
    return replace(program, values=tuple(values), operations=tuple(operations))
