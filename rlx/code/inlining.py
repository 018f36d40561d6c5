"""Registers that are read once become part of the expression that reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from rlx.code.tree import (
    Assign,
    AtomicUpdate,
    Barrier,
    Block,
    Declare,
    Element,
    Expression,
    ForLoop,
    FreeLoop,
    If,
    Number,
    Register,
    Statement,
    VectorWrite,
    Write,
    arrays_in,
    blocks_of,
    expressions_of,
    mapped,
    postorder,
    statements_in,
    substituted,
)

__all__ = ["inlined"]

# an expression of more nodes stays a separate statement
_LARGEST = 14


def inlined(block: Block) -> Block:
    """The block with small expressions in place of registers that are read once, and without unread registers.

    A value moves past no statement that could change it: a write to memory, if it reads memory, an assignment of a
    register that it reads, or a barrier. It does not move into loops.
    """
    uses = Counter(_registers(statements_in(block)))
    pending: dict[Register, Expression] = {}
    made: list[Statement] = []
    for statement in block:
        made += _next(statement, uses, pending)
    return tuple(made)


def _registers(statements: Iterable[Statement]) -> Iterable[Register]:
    for statement in statements:
        for expression in expressions_of(statement):
            yield from (e for e in postorder(expression) if isinstance(e, Register))


def _next(statement: Statement, uses: Counter[Register], pending: dict[Register, Expression]) -> list[Statement]:
    """The statements to emit for the next one; it reads values in `pending`, and may add one."""
    if blocks_of(statement) and not isinstance(statement, If):
        before = _emitted(pending, list(pending))
        bodies = [inlined(block) for block in blocks_of(statement)]
        return [*before, _with_bodies(statement, bodies)]
    read = [r for e in expressions_of(statement) for r in postorder(e) if isinstance(r, Register) and r in pending]
    values = {register: pending.pop(register) for register in read}
    statement = mapped(statement, lambda e: substituted(e, values))
    if isinstance(statement, Declare) and not statement.changes:
        register, value = statement.register, statement.value
        if not uses[register]:
            return []
        if uses[register] == 1 and register.dtype == value.dtype and _is_small(value):
            pending[register] = value
            return []
        return [statement]
    if isinstance(statement, If):
        return _condition(statement, pending)
    return [*_emitted(pending, _disturbed(statement, pending)), statement]


def _condition(statement: If, pending: dict[Register, Expression]) -> list[Statement]:
    """Values that only one branch reads move into it."""
    inside = set(_registers(s for block in blocks_of(statement) for s in statements_in(block)))
    inner = [*statements_in((statement,))]
    writes = any(written for _, written in arrays_in((statement,))) or any(isinstance(s, Barrier) for s in inner)
    own = {s.register for s in inner if isinstance(s, Assign)}
    before = [
        r for r, value in pending.items() if r not in inside and ((writes and _reads(value)) or own & set(_of(value)))
    ]
    outer = _emitted(pending, before)
    bodies = []
    for block in blocks_of(statement):
        names = set(_registers(statements_in(block)))
        moved = tuple(Declare(r, pending.pop(r)) for r in list(pending) if r in names)
        bodies.append(inlined(moved + block))
    return [*outer, If(statement.condition, *bodies)]


def _with_bodies(statement: Statement, bodies: list[Block]) -> Statement:
    assert isinstance(statement, (ForLoop, FreeLoop))
    return replace(statement, body=bodies[0])


def _emitted(pending: dict[Register, Expression], registers: list[Register]) -> list[Statement]:
    """Declarations of pending values, which are then no longer pending."""
    return [Declare(register, pending.pop(register)) for register in registers]


def _disturbed(statement: Statement, pending: dict[Register, Expression]) -> list[Register]:
    """The pending values that a statement would change if they were computed after it."""
    match statement:
        case Declare():
            return []
        case Write() | AtomicUpdate() | VectorWrite():
            return [r for r, value in pending.items() if _reads(value)]
        case Assign():
            return [r for r, value in pending.items() if statement.register in _of(value)]
    return list(pending)


def _of(value: Expression) -> list[Expression]:
    return [e for e in postorder(value) if isinstance(e, Register)]


def _reads(value: Expression) -> bool:
    return any(isinstance(e, Element) for e in postorder(value))


def _is_small(value: Expression) -> bool:
    return isinstance(value, (Number, Register)) or sum(1 for _ in postorder(value)) <= _LARGEST
