"""Faults in kernel code: trees with one node changed, and the launches that run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from interpreted import InterpretedProgram

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep
from rlx.code.checking import check_code
from rlx.code.faults import CodeFault
from rlx.code.running import run_code
from rlx.code.tree import (
    Array,
    AtomicUpdate,
    Barrier,
    Block,
    Element,
    Expression,
    If,
    Statement,
    VectorRead,
    VectorWrite,
    Write,
    blocks_of,
    children,
    index,
    mapped,
    postorder,
    rebuilt,
    statements_in,
)
from rlx.code.tree import expressions_of as own_expressions
from rlx.ir.kernels import Plan

Matches = Callable[[Any], bool]


# ------------------------------------------------------------------ changes
def with_blocks(statement: Statement, change: Callable[[Block], Block]) -> Statement:
    """The statement with changed blocks inside it."""
    found = [change(block) for block in blocks_of(statement)]
    if isinstance(statement, If):
        return replace(statement, body=found[0], otherwise=found[1])
    return replace(statement, body=found[0]) if found else statement


def with_statement(block: Block, matches: Matches, number: int, change: Callable[[Any], Sequence[Statement]]) -> Block:
    """The code with other statements in place of the n-th one that matches, in the order of the text."""
    numbers = count()

    def one(statement: Statement) -> Sequence[Statement]:
        if matches(statement) and next(numbers) == number:
            return change(statement)
        return (with_blocks(statement, inside),)

    def inside(block: Block) -> Block:
        return tuple(new for statement in block for new in one(statement))

    made = inside(block)
    assert next(numbers) > number, f"there are {next(numbers) - 1} such statements"
    return made


def with_expression(block: Block, matches: Matches, number: int, change: Callable[[Any], Expression]) -> Block:
    """The code with another expression in place of the n-th one that matches; operands follow their operation."""
    numbers = count()

    def one(expression: Expression) -> Expression:
        if matches(expression) and next(numbers) == number:
            return change(expression)
        below = children(expression)
        changed = [one(child) for child in below]
        return expression if all(a is b for a, b in zip(below, changed, strict=True)) else rebuilt(expression, changed)

    def inside(block: Block) -> Block:
        return tuple(with_blocks(mapped(statement, one), inside) for statement in block)

    made = inside(block)
    assert next(numbers) > number, f"there are {next(numbers) - 1} such expressions"
    return made


def with_array(block: Block, name: str, **changes: Any) -> Block:
    """The code with another array of this name, wherever it occurs."""

    def expression(found: Expression) -> Expression:
        below = [expression(child) for child in children(found)]
        made = rebuilt(found, below) if below else found
        if isinstance(made, Element) and made.array.name == name:
            return replace(made, array=replace(made.array, **changes))
        return made

    def inside(block: Block) -> Block:
        return tuple(with_blocks(one(statement), inside) for statement in block)

    def one(statement: Statement) -> Statement:
        made = mapped(statement, expression)
        array = getattr(made, "array", None)
        if isinstance(array, Array) and array.name == name:
            return replace(made, array=replace(array, **changes))  # type: ignore[call-arg]
        return made

    return inside(block)


# ------------------------------------------------------------------ mechanical faults
def barriers_removed(block: Block) -> Iterator[Block]:
    """The code without each of its barriers."""
    for number in range(sum(isinstance(s, Barrier) for s in statements_in(block))):
        yield with_statement(block, lambda s: isinstance(s, Barrier), number, lambda s: ())


_Access = (Write, AtomicUpdate, VectorRead, VectorWrite)


def indices_moved(block: Block, by: int = 1) -> Iterator[Block]:
    """The code with the last index of each access moved."""
    statements = list(statements_in(block))
    reads = [e for s in statements for x in own_expressions(s) for e in postorder(x) if isinstance(e, Element)]
    for number in range(len(reads)):
        yield with_expression(block, lambda e: isinstance(e, Element), number, lambda e: moved(e, by))
    for number in range(sum(isinstance(s, _Access) for s in statements)):
        yield with_statement(block, lambda s: isinstance(s, _Access), number, lambda s: (moved(s, by),))


def moved(access: Any, by: int) -> Any:
    """An access to a neighbouring element."""
    if isinstance(access.position, tuple):
        *outer, last = access.position
        return replace(access, position=(*outer, index(last) + by))
    return replace(access, position=access.position + by)


# ------------------------------------------------------------------ launches
@dataclass(frozen=True, eq=False)
class Launch:
    """One launch of a program, with its arrays before and after it."""

    step: LaunchStep
    before: Mapping[str, np.ndarray]
    after: Mapping[str, np.ndarray]

    def run(self, code: Block, most_group_bytes: int | None = None) -> bool:
        """Check and run other code in place of the launch's; whether the results are the same. Raises CodeFault.

        It runs twice: with arrays that are aligned to vectors, and with others.
        """
        check_code(code, most_group_bytes)
        return all(self._same(code, alignment) for alignment in (16, 1))

    def _same(self, code: Block, alignment: int) -> bool:
        arrays = {name: array.copy() for name, array in self.before.items()}
        run_code(code, arrays, self.step.groups, self.step.items, alignment)
        return all(np.array_equal(bits(arrays[name]), bits(self.after[name])) for name in arrays)

    def verdict(self, code: Block) -> str:
        """The message of the fault that is found in other code, or "results" if these differ; "" if nothing is."""
        try:
            return "" if self.run(code) else "results"
        except CodeFault as fault:
            return str(fault)


def bits(array: np.ndarray) -> np.ndarray:
    """The bytes of an array."""
    return np.ascontiguousarray(array).view(np.uint8)


class _Recorder(InterpretedProgram):
    """Records all launches."""

    def __init__(self, plan: Plan, dialect: DeviceDialect, limits: Limits) -> None:
        super().__init__(plan, dialect, limits)
        self.launches: list[Launch] = []

    def launch(self, step: LaunchStep, arrays: Mapping[str, np.ndarray]) -> None:
        """Run one launch, and keep its arrays."""
        before = {name: array.copy() for name, array in arrays.items()}
        super().launch(step, arrays)
        self.launches.append(Launch(step, before, {name: array.copy() for name, array in arrays.items()}))


def launches_of(plan: Plan, inputs: list[np.ndarray], dialect: DeviceDialect, limits: Limits) -> list[Launch]:
    """The launches of a plan on a device."""
    program = _Recorder(plan, dialect, limits)
    program.run(inputs)
    return program.launches
