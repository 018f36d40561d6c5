"""The checker of kernel code: dtypes, scopes, known bounds, shared memory, and barriers that all work-items reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlx.code.faults import CodeFault
from rlx.code.functions import Function
from rlx.code.tree import (
    Allocate,
    Apply,
    Array,
    Assign,
    AsyncCopy,
    AtomicUpdate,
    Barrier,
    Block,
    Both,
    Coordinate,
    Declare,
    Either,
    Element,
    Exchange,
    Expression,
    ForLoop,
    FragmentProduct,
    FreeLoop,
    If,
    LoadMatrix,
    Number,
    Register,
    Shuffle,
    Statement,
    VectorRead,
    View,
    Write,
    blocks_of,
    children,
    expressions_of,
    index,
    postorder,
    statements_in,
)
from rlx.ir.scalar import ALPHABET
from rlx.ir.types import dtype_kind

__all__ = ["check_code", "check_function", "group_bytes", "item_bytes"]

_LAUNCH, _GROUP, _ITEM = range(3)  # where values are the same


def group_bytes(block: Block) -> int:
    """Bytes of the memory that a group shares."""
    arrays = {s.array for s in statements_in(block) if isinstance(s, Allocate) and s.array.space == "group"}
    return sum(array.nbytes for array in arrays)


def item_bytes(block: Block) -> int:
    """Bytes that a work-item keeps in registers at the same time: its arrays, and the registers that change."""
    kept, inside = 0, 0
    for statement in block:
        match statement:
            case Allocate(array) if array.space == "item":
                kept += array.nbytes
            case Declare(register, _, True):
                kept += register.dtype.itemsize
        inside = max([inside, *map(item_bytes, blocks_of(statement))])
    return kept + inside


def check_code(block: Block, most_group_bytes: int | None = None, most_item_bytes: int | None = None) -> None:
    """Raise CodeFault if code is not well formed.

    Each register is declared once in its scope before it is read, with one dtype; operations have the arguments that
    the alphabet says; arrays are declared and have an index for each dimension; all work-items of a group arrive at
    barriers and products of fragments together.

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
    used = item_bytes(block)
    if most_item_bytes is not None and used > most_item_bytes:
        raise CodeFault(f"a work-item needs {used} bytes of registers; the device has {most_item_bytes}")
    _block(block, _Scope({}, {}, {}))


def check_function(function: Function) -> None:
    """Raise CodeFault if a function is not well formed: see `check_code`. Its parameters may change."""
    scope = _Scope({}, {}, {})
    for register in function.parameters:
        scope.declare(register, True)
    _block(function.body, scope)


@dataclass
class _Scope:
    """Registers and arrays by name, how far registers differ, and how far the work-items that arrive here.

    Values and control flow are the same in the launch (`_LAUNCH`, as registers that `varying` does not name), or they
    differ between groups or between the work-items of a group.
    """

    registers: dict[str, tuple[Register, bool]]
    arrays: dict[str, Array]
    varying: dict[str, int]
    level: int = _LAUNCH

    def declare(self, register: Register, changes: bool) -> None:
        """Add a register, whose name must be new here."""
        if register.name in self.registers:
            raise CodeFault(f"{register.name} is declared twice")
        self.registers[register.name] = (register, changes)

    def inside(self, level: int = _LAUNCH) -> _Scope:
        """The scope of a block inside a statement, which work-items enter or not at this level."""
        return _Scope(dict(self.registers), dict(self.arrays), self.varying, max(self.level, level))


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
        case LoadMatrix(target, array, position):
            _access(array, position, scope)
            if target.space != "item" or array.space != "group" or array.dtype.itemsize != 2:
                raise CodeFault(f"matrices of {array.name} are not 16-bit numbers of a group")
            _whole_group(statement, scope)
        case AsyncCopy(target, place, array, _, size):
            _access(target, place, scope)
            if target.space != "group" or array.space != "device" or target.dtype != array.dtype:
                raise CodeFault(f"a copy from {array.name} to {target.name} is not one from the device to a group")
            if size * array.dtype.itemsize not in (4, 8, 16):
                raise CodeFault(f"a copy of {size} elements of {array.name} has not 4, 8 or 16 bytes")
        case Allocate(array):
            scope.arrays[array.name] = array
        case VectorRead(target):
            scope.arrays[target.name] = target
        case ForLoop():
            _for(statement, scope)
        case FreeLoop(body, condition):
            _until_steady(body, scope, condition)
        case View(array, source) | Exchange(array, source):
            _view(statement, array, source, scope)
        case If(condition, body, otherwise):
            level = _level(condition, scope)
            before = dict(scope.varying)
            for part in (body, otherwise):
                _block(part, scope.inside(level))
            for inner in statements_in(body + otherwise):
                if isinstance(inner, Assign):  # registers that only some work-items assign differ afterwards
                    _raise(scope.varying, inner.register.name, level)
            for name, known in before.items():
                _raise(scope.varying, name, known)
        case Barrier("launch") if scope.level > _LAUNCH:
            raise CodeFault("a barrier of the launch in control flow that depends on the group or the work-item")
        case Barrier() | FragmentProduct():
            _whole_group(statement, scope)


def _whole_group(statement: Statement, scope: _Scope) -> None:
    if scope.level > _GROUP:
        raise CodeFault(f"{type(statement).__name__} in control flow that depends on the work-item")


def _view(statement: Statement, array: Array, source: Array, scope: _Scope) -> None:
    """Declare a view of an array, or check that two views may be exchanged."""
    if array.space != "device" or source.space != "device":
        raise CodeFault(f"{array.name} or {source.name} is not in the device's memory")
    if isinstance(statement, View):
        if array.name in scope.arrays:
            raise CodeFault(f"{array.name} is declared twice")
        scope.arrays[array.name] = array
    elif scope.arrays.get(array.name) != array or scope.arrays.get(source.name) != source:
        raise CodeFault(f"{array.name} and {source.name} are exchanged; one is not a view")
    elif (array.dtype, array.shape) != (source.dtype, source.shape):
        raise CodeFault(f"{array.name} and {source.name} are exchanged; they have different dtypes or shapes")
    elif scope.level > _LAUNCH:
        raise CodeFault("an exchange of views in control flow that depends on the group or the work-item")


def _raise(varying: dict[str, int], name: str, level: int) -> None:
    varying[name] = max(varying.get(name, _LAUNCH), level)


def _for(loop: ForLoop, scope: _Scope) -> None:
    level = max(_level(index(bound), scope) for bound in (loop.start, loop.stop, loop.step))
    inner = scope.inside(level)
    inner.declare(loop.index, False)
    scope.varying[loop.index.name] = level
    _twice(loop.body, inner)


def _until_steady(body: Block, scope: _Scope, condition: Expression | None) -> None:
    """A loop whose condition may depend on what its body assigns."""
    level = _LAUNCH if condition is None else _level(condition, scope)
    _twice(body, scope.inside(level))
    if condition is not None and _level(condition, scope) > level:
        _block(body, scope.inside(_level(condition, scope)))


def _twice(body: Block, scope: _Scope) -> None:
    """Check a loop's body with the registers that differ in its first iteration, then in later ones."""
    for _ in range(2):
        _block(body, scope.inside())


def _note(register: Register, value: Expression, scope: _Scope) -> None:
    scope.varying[register.name] = max(_level(value, scope), scope.level)


def _level(expression: Expression, scope: _Scope) -> int:
    """How far a value may differ."""
    own = _LAUNCH
    match expression:
        case Coordinate(_, of):
            return {"item": _ITEM, "group": _GROUP, "groups": _LAUNCH}[of]
        case Register(_, name):
            return scope.varying.get(name, _LAUNCH)
        case Shuffle():
            return _ITEM
        case Element(_, array):
            own = {"item": _ITEM, "group": _GROUP, "device": _LAUNCH}[array.space]
    return max([own, *(_level(child, scope) for child in children(expression))])


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
