"""Products that differ only in the evenly spaced addresses of their operands become one product."""

from __future__ import annotations

from dataclasses import replace

from rlx.ir.kernels import Contract, Operand, merged_numbers
from rlx.lowering.nest import Nests, Step

__all__ = ["stack_products"]


def stack_products(nests: Nests) -> Nests:
    """The nests with every run of matching products merged into one product over a stack of batches."""
    result: list[Step] = []
    run: list[Contract] = []
    for step in nests.steps:
        if run and not (isinstance(step, Contract) and _continues(run, step)):
            result.append(_stacked(run))
            run = []
        if isinstance(step, Contract) and len(step.out.shape) == 3:
            run.append(step)
        else:
            result.append(step)
    return replace(nests, steps=tuple([*result, _stacked(run)] if run else result))


def _operands(kernel: Contract) -> tuple[Operand, Operand, Operand]:
    return kernel.lhs, kernel.rhs, kernel.out


def _steps(first: Contract, second: Contract) -> tuple[int, ...]:
    pairs = zip(_operands(first), _operands(second), strict=True)
    return tuple(after.offset - before.offset for before, after in pairs)


def _continues(run: list[Contract], kernel: Contract) -> bool:
    last = run[-1]
    alike = kernel.accumulate == last.accumulate and len(kernel.out.shape) == 3
    alike = alike and (kernel.accumulator, kernel.tf32) == (last.accumulator, last.tf32)
    for before, after in zip(_operands(last), _operands(kernel), strict=True):
        alike = alike and before.buffer is after.buffer and before.shape == after.shape
        alike = alike and before.strides == after.strides
    steps = _steps(last, kernel)
    if not alike or min(steps) < 0 or steps[2] == 0:
        return False
    return len(run) == 1 or steps == _steps(run[-2], last)


def _stacked(run: list[Contract]) -> Contract:
    if len(run) == 1:
        return run[0]
    lhs, rhs, out = (
        replace(operand, shape=(len(run), *operand.shape), strides=(step, *operand.strides))
        for operand, step in zip(_operands(run[0]), _steps(run[0], run[1]), strict=True)
    )
    origins = tuple(dict.fromkeys(origin for kernel in run for origin in kernel.origins))
    equations = merged_numbers(*(kernel.equations for kernel in run))
    return replace(run[0], lhs=lhs, rhs=rhs, out=out, origins=origins, equations=equations)
