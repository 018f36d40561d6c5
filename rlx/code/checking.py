"""The checker of kernel code: dtypes, scopes, known bounds, shared memory, and barriers that all items reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlx.code.faults import CodeFault
from rlx.code.tree import (
    Allocate,
    Apply,
    Array,
    Assign,
    AtomicUpdate,
    Barrier,
    Block,
    Both,
    Coordinate,
    Declare,
    Either,
    Element,
    Expression,
    ForLoop,
    FragmentProduct,
    FreeLoop,
    If,
    Number,
    Register,
    Shuffle,
    Statement,
    VectorRead,
    Write,
    children,
    expressions_of,
    postorder,
    statements_in,
)
from rlx.ir.scalar import ALPHABET
from rlx.ir.types import dtype_kind

__all__ = ["check_code", "group_bytes"]


def group_bytes(block: Block) -> int:
    """Bytes of the memory that a group shares."""
    arrays = {s.array for s in statements_in(block) if isinstance(s, Allocate) and s.array.space == "group"}
    return sum(array.nbytes for array in arrays)


def check_code(block: Block, most_group_bytes: int | None = None) -> None:
    """Raise CodeFault if code is not well formed.

    Each register is declared once in its scope before it is read, with one dtype; operations have the arguments that
    the alphabet says; arrays are declared and have an index for each dimension; all items of a group arrive at barriers
    and products of fragments together.

    >>> import numpy as np
    >>> from rlx.code.tree import Coordinate, Barrier
    >>> from rlx.code.writing import CodeWriter
    >>> code = CodeWriter()
    >>> with code.when(Coordinate(np.dtype(np.int32), "item") < 16):
    ...     code.add(Barrier())
    >>> check_code(code.block)
    Traceback (most recent call last):
    ...
    rlx.code.faults.CodeFault: Barrier in control flow that depends on the work-item
    """
    used = group_bytes(block)
    if most_group_bytes is not None and used > most_group_bytes:
        raise CodeFault(f"a group needs {used} bytes of shared memory; the device has {most_group_bytes}")
    _block(block, _Scope({}, {}, set(), uniform=True))


@dataclass
class _Scope:
    """Registers and arrays by name, the registers that differ between items, whether all items of a group arrive."""

    registers: dict[str, tuple[Register, bool]]
    arrays: dict[str, Array]
    varying: set[str]
    uniform: bool

    def declare(self, register: Register, changes: bool) -> None:
        """Add a register, whose name must be new here."""
        if register.name in self.registers:
            raise CodeFault(f"{register.name} is declared twice")
        self.registers[register.name] = (register, changes)

    def inside(self, uniform: bool) -> _Scope:
        """The scope of a block inside a statement."""
        return _Scope(dict(self.registers), dict(self.arrays), self.varying, self.uniform and uniform)


def _block(block: Block, scope: _Scope) -> None:
    for statement in block:
        _statement(statement, scope)


def _statement(statement: Statement, scope: _Scope) -> None:
    for expression in expressions_of(statement):
        _expression(expression, scope)
    match statement:
        case Declare(register, value, changes):
            scope.declare(register, changes)
            _note(register, value, scope)
        case Assign(register, value):
            known, changes = scope.registers.get(register.name, (None, False))
            if known != register or not changes:
                raise CodeFault(f"{register.name} is assigned; it is not declared as a {register.dtype} that changes")
            _note(register, value, scope)
        case Write(array, position, _):
            _access(array, position, scope)
        case AtomicUpdate(_, array, position, _):
            _access(array, (position,), scope)
        case Allocate(array):
            scope.arrays[array.name] = array
        case VectorRead(target):
            scope.arrays[target.name] = target
        case ForLoop():
            _for(statement, scope)
        case FreeLoop(body, condition):
            _until_steady(body, scope, condition)
        case If(condition, body, otherwise):
            uniform = not _varies(condition, scope)
            before = set(scope.varying)
            for part in (body, otherwise):
                _block(part, scope.inside(uniform))
            if not uniform:  # registers that only some items assign differ afterwards
                scope.varying |= {s.register.name for s in statements_in(body + otherwise) if isinstance(s, Assign)}
            scope.varying |= before
        case Barrier() | FragmentProduct() if not scope.uniform:
            raise CodeFault(f"{type(statement).__name__} in control flow that depends on the work-item")


def _for(loop: ForLoop, scope: _Scope) -> None:
    bounds = (loop.start, loop.stop)
    inner = scope.inside(uniform=True)
    inner.declare(loop.index, False)
    if any(_varies(bound, scope) for bound in bounds):
        scope.varying.add(loop.index.name)
        inner.uniform = False
    else:
        scope.varying.discard(loop.index.name)
    _twice(loop.body, inner)


def _until_steady(body: Block, scope: _Scope, condition: Expression | None) -> None:
    """A loop whose condition may depend on what its body assigns."""
    uniform = condition is None or not _varies(condition, scope)
    _twice(body, scope.inside(uniform))
    if condition is not None and uniform and _varies(condition, scope):
        _block(body, scope.inside(uniform=False))


def _twice(body: Block, scope: _Scope) -> None:
    """Check a loop's body with the registers that differ in its first iteration, then in later ones."""
    for _ in range(2):
        inner = scope.inside(uniform=True)
        _block(body, inner)


def _note(register: Register, value: Expression, scope: _Scope) -> None:
    if _varies(value, scope) or not scope.uniform:
        scope.varying.add(register.name)
    else:
        scope.varying.discard(register.name)


def _varies(expression: Expression, scope: _Scope) -> bool:
    """Whether a value may differ between the items of a group."""
    match expression:
        case Coordinate(_, of):
            return of == "item"
        case Register(_, name):
            return name in scope.varying
        case Shuffle():
            return True
        case Element(_, array) if array.space == "item":
            return True
    return any(_varies(child, scope) for child in children(expression))


# ------------------------------------------------------------------ expressions
def _expression(expression: Expression, scope: _Scope) -> None:
    for part in postorder(expression):
        match part:
            case Register(dtype, name):
                known = scope.registers.get(name)
                if known is None:
                    raise CodeFault(f"{name} is read where it is not declared")
                if known[0].dtype != dtype:
                    raise CodeFault(f"{name} is declared as {known[0].dtype} and read as {dtype}")
            case Element(_, array, position):
                _access(array, position, scope)
            case Apply():
                _operation(part)
            case Both() | Either() if any(side.dtype.kind != "b" for side in (part.left, part.right)):
                raise CodeFault(f"{type(part).__name__} takes conditions")


def _operation(part: Apply) -> None:
    if part.op not in ALPHABET:
        raise CodeFault(f"{part.op} is not an operation of the scalar alphabet")
    arity = ALPHABET[part.op].arity
    if arity >= 0 and len(part.arguments) != arity:
        raise CodeFault(f"{part.op} takes {arity} arguments, got {len(part.arguments)}")
    kinds = {dtype_kind(argument.dtype) for argument in _alike(part)}
    if len({"i" if kind in "iu" else kind for kind in kinds}) > 1:
        raise CodeFault(f"{part.op} takes arguments of one kind, got {', '.join(sorted(kinds))}")


def _alike(part: Apply) -> Iterator[Expression]:
    """The arguments that have one dtype."""
    yield from part.arguments[1:] if part.op == "select" else () if part.op == "special" else part.arguments


def _access(array: Array, position: tuple[Expression, ...], scope: _Scope) -> None:
    if array.space == "device":
        rank = 1
    elif array.name not in scope.arrays:
        raise CodeFault(f"the array {array.name} is not declared")
    else:
        rank = len(array.shape)
        for place, extent in zip(position, array.shape, strict=False):
            if isinstance(place, Number) and not 0 <= place.value < extent:
                raise CodeFault(f"{array.name}[{place.value}] is out of bounds: the extent is {extent}")
    if len(position) != rank:
        raise CodeFault(f"{array.name} has {rank} dimensions, and is read with {len(position)} indices")
