"""Nodes of kernel code: typed expressions and statements. All of them are immutable values that compare by content.

Index expressions are integers that do not overflow: `Linear`, `Product`, `Quotient`, `Remainder`, and comparisons of
them. Other arithmetic is `Apply`, an operation of the scalar alphabet (ir/scalar.py), which wraps and rounds as the
alphabet says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from rlx.ir.types import compute_dtype

__all__ = [
    "Aligned", "Allocate", "Apply", "Argument", "Array", "Assign", "AsyncCopy", "AtomicUpdate", "AwaitCopies",
    "Barrier", "Block", "Both", "Call", "CloseCopies", "Coordinate", "Copy", "Declare", "Divisor", "Either", "Element",
    "EndIfSet", "Exchange", "Expression", "ForLoop", "FragmentProduct", "FreeLoop", "If", "LOOSE", "Leave",
    "LibraryCall", "Linear", "LoadMatrix", "Number", "PackedPair", "Part", "Place", "Product", "Quotient", "Register",
    "Remainder", "Return", "Shuffle", "Space", "Statement", "VectorRead", "VectorWrite", "View", "Write", "arrays_in",
    "blocks_of", "children", "expressions_of", "index", "mapped", "minimum", "postorder", "rebuilt", "statements_in",
    "substituted",
]  # fmt: skip

Space = Literal["device", "group", "item"]
Place = Literal["item", "group", "groups"]
BOOL, INT32 = np.dtype(bool), np.dtype(np.int32)
# the attribute of an `Apply` whose result may be a number although an operand of `max` is NaN, or may have the error of
# a device's instruction for `exp2`, which may flush denormal results
LOOSE = "loose"


# ------------------------------------------------------------------ expressions
@dataclass(frozen=True, slots=True)
class Expression:
    """A value that one work-item computes."""

    dtype: np.dtype

    def __add__(self, other: Expression | int) -> Linear:
        return _linear(self, 1, index(other, self.dtype), 1)

    def __radd__(self, other: int) -> Linear:
        return _linear(index(other, self.dtype), 1, self, 1)

    def __sub__(self, other: Expression | int) -> Linear:
        return _linear(self, 1, index(other, self.dtype), -1)

    def __rsub__(self, other: int) -> Linear:
        return _linear(index(other, self.dtype), 1, self, -1)

    def __mul__(self, factor: int) -> Expression:
        return self if factor == 1 else _linear(self, factor, Number(self.dtype, 0), 1)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Expression | int) -> Expression:
        return self if divisor == 1 else Quotient(self.dtype, self, divisor)

    def __mod__(self, divisor: Expression | int) -> Expression:
        return Remainder(self.dtype, self, divisor)

    def __lt__(self, other: Expression | int) -> Apply:
        return Apply(BOOL, "lt", (self, index(other, self.dtype)))

    def __le__(self, other: Expression | int) -> Apply:
        return Apply(BOOL, "le", (self, index(other, self.dtype)))

    def __gt__(self, other: Expression | int) -> Apply:
        return Apply(BOOL, "gt", (self, index(other, self.dtype)))

    def __ge__(self, other: Expression | int) -> Apply:
        return Apply(BOOL, "ge", (self, index(other, self.dtype)))

    def equals(self, other: Expression | int) -> Apply:
        """Whether two values are equal, as an expression."""
        return Apply(BOOL, "eq", (self, index(other, self.dtype)))

    def differs(self, other: Expression | int) -> Apply:
        """Whether two values are not equal, as an expression."""
        return Apply(BOOL, "ne", (self, index(other, self.dtype)))


@dataclass(frozen=True, slots=True)
class Number(Expression):
    """A constant: a bool, an int or a float, infinities and NaN included. Narrow floats have the dtype float32."""

    value: bool | int | float

    def __eq__(self, other: object) -> bool:
        """Equality of bits, so that NaN equals itself and -0.0 differs from 0.0."""
        return isinstance(other, Number) and self.dtype == other.dtype and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((self.dtype, repr(self.value)))


@dataclass(frozen=True, slots=True, eq=False)
class Argument(Number):
    """A number that the launch passes by name; `value`: the value of this launch."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Divisor(Argument):
    """A positive 32-bit argument by which non-negative numbers below 2**31 are divided: n // value is
    (n * multiplier >> 32) >> shift (Granlund and Montgomery, "Division by invariant integers using multiplication",
    1994).

    >>> import numpy as np
    >>> by = Divisor(np.dtype(np.uint32), 7, "size0")
    >>> [(n * by.multiplier >> 32) >> by.shift for n in (6, 7, 2**31 - 1)]
    [0, 1, 306783378]
    """

    @property
    def shift(self) -> int:
        """One less than the bits of the next power of two."""
        return (int(self.value) - 1).bit_length() - 1

    @property
    def multiplier(self) -> int:
        """2**(32 + shift) / value, rounded up."""
        return -(-(1 << 32 + self.shift) // int(self.value))


@dataclass(frozen=True, slots=True)
class Register(Expression):
    """A value that a `Declare` names, or an index of a loop."""

    name: str


@dataclass(frozen=True, slots=True)
class Coordinate(Expression):
    """A work-item's place in the launch: its number in its group, its group's number, or the number of groups."""

    of: Place


@dataclass(frozen=True, slots=True)
class Linear(Expression):
    """offset + the sum of factor * term, as an index."""

    terms: tuple[tuple[int, Expression], ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Product(Expression):
    """The product of two indices."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Quotient(Expression):
    """A non-negative index divided by a positive number or index, rounded down."""

    dividend: Expression
    divisor: int | Expression


@dataclass(frozen=True, slots=True)
class Remainder(Expression):
    """The remainder of a non-negative index by a positive number or index."""

    dividend: Expression
    divisor: int | Expression


@dataclass(frozen=True, slots=True)
class Apply(Expression):
    """An operation of the scalar alphabet; `dtype` is the result's. Comparisons of indices are such operations, too."""

    op: str
    arguments: tuple[Expression, ...]
    attribute: Any = None


@dataclass(frozen=True, slots=True)
class Both(Expression):
    """Whether two conditions hold; the second one is computed only if the first one holds."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Either(Expression):
    """Whether one of two conditions holds; the second one is computed only if the first one does not hold."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Element(Expression):
    """An element of an array, in its compute dtype. Its position has an index for each dimension of the array."""

    array: Array
    position: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Aligned(Expression):
    """Whether the addresses of all arrays are multiples of a number of bytes."""

    arrays: tuple[Array, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class PackedPair(Expression):
    """Two float32 numbers, rounded to a 16-bit dtype, as one word; `low` has its low bits."""

    of: np.dtype
    low: Expression
    high: Expression


@dataclass(frozen=True, slots=True)
class Shuffle(Expression):
    """The value of the work-item in the same warp whose number differs in the bits of `distance`."""

    value: Expression
    distance: Expression
    warp: int


@dataclass(frozen=True, slots=True)
class Array:
    """Memory: of the device (a parameter of the kernel), of a group, or of a single work-item.

    shape: the sizes of the dimensions, known for views and for arrays of groups and work-items. Elements of `device`
    arrays have one index. `dtype` is the elements' dtype in memory; parts of complex numbers are real elements. words:
    the wider dtype in which the array is declared, and other code reads it; None: its own. vector: whether a work-item
    loads and stores its elements at once.
    """

    name: str
    dtype: np.dtype
    space: Space = "device"
    shape: tuple[int, ...] = ()
    words: np.dtype | None = None
    vector: bool = False

    def __getitem__(self, position: Expression | int | tuple[Expression | int, ...]) -> Element:
        """An element as an expression."""
        places = position if isinstance(position, tuple) else (position,)
        return Element(compute_dtype(self.dtype), self, tuple(index(p) for p in places))

    def code(self, position: Expression | int | tuple[Expression | int, ...]) -> Element:
        """An element as it is in memory: for narrow numbers, the code."""
        return replace(self[position], dtype=self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of an array with a shape."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Part:
    """Neighbouring elements of an array, as an array."""

    array: Array
    start: Expression
    size: int


def index(value: Expression | int, dtype: np.dtype = INT32) -> Expression:
    """An index as an expression."""
    return value if isinstance(value, Expression) else Number(dtype, value)


def minimum(left: Expression, right: Expression | int) -> Apply:
    """The smaller one of two indices."""
    other = index(right, left.dtype)
    return Apply(left.dtype, "select", (left < other, left, other))


def _parts(expression: Expression, factor: int) -> tuple[tuple[tuple[int, Expression], ...], int]:
    match expression:
        case Number():
            number = expression.value  # an integer may know more than its value: see code/passed.py
            return (), factor * number if isinstance(number, int) else int(factor * number)
        case Linear():
            return tuple((factor * f, term) for f, term in expression.terms), factor * expression.offset
    return ((factor, expression),), 0


def _linear(left: Expression, factor: int, right: Expression, other: int) -> Linear:
    """A sum of products, with one term for each different expression."""
    gathered: dict[Expression, int] = {}
    offset = 0
    for expression, times in ((left, factor), (right, other)):
        terms, constant = _parts(expression, times)
        offset += constant
        for amount, term in terms:
            gathered[term] = gathered.get(term, 0) + amount
    dtype = right.dtype if isinstance(left, Number) else left.dtype
    return Linear(dtype, tuple((amount, term) for term, amount in gathered.items() if amount), offset)


# ------------------------------------------------------------------ statements
@dataclass(frozen=True, slots=True)
class Statement:
    """What a work-item does next."""


Block = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Declare(Statement):
    """A new register; `changes`: whether an `Assign` follows."""

    register: Register
    value: Expression
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Assign(Statement):
    """A new value of a register."""

    register: Register
    value: Expression


@dataclass(frozen=True, slots=True)
class Write(Statement):
    """A new value of an element, rounded or wrapped to the array's dtype."""

    array: Array
    position: tuple[Expression, ...]
    value: Expression


@dataclass(frozen=True, slots=True)
class AtomicUpdate(Statement):
    """Combine an element with a value; other work-items that do the same do not interfere."""

    reducer: str
    array: Array
    position: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class ForLoop(Statement):
    """A loop over start, start + step, ... below stop; from the last to the first one if it is `backward`.

    step: a positive number; an expression only if the index grows by it. threads: whether iterations may run at the
    same time. unrolled: whether each iteration has its own code, or the number of iterations that have their own.
    advance: how an index follows from the one before. With "multiply" the loop ends at `stop` as well; with "divide"
    the index shrinks, and the last one is at least `stop`. reductions: registers into which the loop only combines
    elements, in any order, with their reducers.
    """

    index: Register
    start: Expression
    stop: Expression
    body: Block
    step: int | Expression = 1
    backward: bool = False
    threads: bool = False
    unrolled: bool | int = False
    advance: Literal["add", "multiply", "divide"] = "add"
    reductions: tuple[tuple[Register, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FreeLoop(Statement):
    """A loop that `Leave` ends, or a condition that is tested before each iteration."""

    body: Block
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class Leave(Statement):
    """End the innermost loop."""


@dataclass(frozen=True, slots=True)
class Return(Statement):
    """End the function with a result."""

    value: Expression


@dataclass(frozen=True, slots=True)
class If(Statement):
    """One of two blocks."""

    condition: Expression
    body: Block
    otherwise: Block = ()


@dataclass(frozen=True, slots=True)
class Allocate(Statement):
    """An array of a group, for which the statement is at the beginning of a kernel, or of a work-item."""

    array: Array


@dataclass(frozen=True, slots=True)
class View(Statement):
    """An array of the device that begins at a byte of another one, and has the dtype and the shape of `array`."""

    array: Array
    source: Array
    offset: Expression


@dataclass(frozen=True, slots=True)
class Exchange(Statement):
    """Two views exchange their places in memory, for all work-items of the launch."""

    left: Array
    right: Array


@dataclass(frozen=True, slots=True)
class Copy(Statement):
    """Copy all elements of an array with a shape to another one, which may be the same."""

    target: Array
    source: Array


@dataclass(frozen=True, slots=True)
class Call(Statement):
    """Call a function of arrays."""

    function: str
    arguments: tuple[Array | Part, ...]


@dataclass(frozen=True, slots=True)
class LibraryCall(Statement):
    """A kernel for which the language has a function.

    of: the kernel (ir/kernels.py), which knows sizes and strides; of a `Contract` one product of its batch. operands:
    the arrays that it reads, then those that it writes.
    """

    of: Any
    operands: tuple[Array | Part, ...]


@dataclass(frozen=True, slots=True)
class EndIfSet(Statement):
    """End the function if the first element of an array, which another thread may set, is true."""

    flag: Array


@dataclass(frozen=True, slots=True)
class VectorRead(Statement):
    """Set a work-item's array to neighbouring elements, which are loaded at once; the array has their alignment."""

    target: Array
    array: Array
    position: Expression


@dataclass(frozen=True, slots=True)
class VectorWrite(Statement):
    """Set neighbouring elements to a work-item's array, as `VectorRead` does."""

    array: Array
    position: Expression
    source: Array


@dataclass(frozen=True, slots=True)
class FragmentProduct(Statement):
    """The work-items of a warp multiply fragments of two matrices and add the products to their sums.

    unit: the matrix unit, which knows the places of a work-item's words and sums. dtype: of the multiplied numbers.
    sums: the work-item's array; its first index is `row`. words: a work-item's words of the left matrix, then of the
    right one.
    """

    unit: Any
    dtype: np.dtype
    sums: Array
    row: Expression
    words: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class LoadMatrix(Statement):
    """The work-items of a warp load square matrices of 8 x 8 16-bit numbers from a group's memory.

    target: the work-item's array, of a word for each of one, two or four matrices. position: the beginning of row
    `lane % 8` of matrix `lane // 8`, aligned to 16 bytes. A work-item gets the numbers 2 * (lane % 4) and the next one
    of row `lane // 4` of each matrix; `turned`: of its column.
    """

    target: Array
    array: Array
    position: tuple[Expression, ...]
    turned: bool = False


@dataclass(frozen=True, slots=True)
class AsyncCopy(Statement):
    """Begin to copy neighbouring elements of the device's memory to a group's array, at once; zeros if a condition does
    not hold.

    The copy is done when its work-item has waited (`AwaitCopies`) for the batch that the next `CloseCopies` ends.
    """

    target: Array
    place: tuple[Expression, ...]
    array: Array
    position: Expression
    size: int
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class CloseCopies(Statement):
    """End a batch of a work-item's copies."""


@dataclass(frozen=True, slots=True)
class AwaitCopies(Statement):
    """Wait for the copies that the work-item began, without those of its last `newer` batches."""

    newer: int = 0


@dataclass(frozen=True, slots=True)
class Barrier(Statement):
    """All work-items of a group, or of the launch, arrive here before any continues; they see each other's writes.

    arrivals: for a launch, the array whose first element counts the groups that arrive, modulo 2**32. awaited: the
    count with which groups continue.
    """

    scope: Literal["group", "launch"] = "group"
    arrivals: Array | None = None
    awaited: Expression | None = None


# ------------------------------------------------------------------ walks
# the fields of an expression that are expressions directly below it
_BELOW: dict[type[Expression], tuple[str, ...]] = {
    **dict.fromkeys((Product, Both, Either), ("left", "right")),
    PackedPair: ("low", "high"),
    Shuffle: ("value", "distance"),
}


def children(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly below an expression."""
    match expression:
        case Linear():
            return tuple(term for _, term in expression.terms)
        case Quotient(_, dividend, divisor) | Remainder(_, dividend, divisor):
            return (dividend, divisor) if isinstance(divisor, Expression) else (dividend,)
        case Apply():
            return expression.arguments
        case Element():
            return expression.position
    return tuple(getattr(expression, name) for name in _BELOW.get(type(expression), ()))


def rebuilt(expression: Expression, below: Sequence[Expression]) -> Expression:
    """The expression with other expressions directly below it."""
    match expression:
        case Linear():
            total: Expression = Number(expression.dtype, expression.offset)
            for (factor, _), term in zip(reversed(expression.terms), reversed(below), strict=True):
                total = _linear(term, factor, total, 1)
            return total
        case Quotient() | Remainder():
            return replace(expression, dividend=below[0], divisor=below[1] if below[1:] else expression.divisor)
        case Apply():
            return replace(expression, arguments=tuple(below))
        case Element():
            return replace(expression, position=tuple(below))
    return replace(expression, **dict(zip(_BELOW.get(type(expression), ()), below, strict=True)))


def postorder(expression: Expression) -> Iterator[Expression]:
    """An expression and all expressions below it, operands first."""
    for child in children(expression):
        yield from postorder(child)
    yield expression


def substituted(expression: Expression, values: dict[Register, Expression]) -> Expression:
    """The expression with some registers replaced."""
    if isinstance(expression, Register):
        return values.get(expression, expression)
    below = children(expression)
    changed = [substituted(child, values) for child in below]
    return expression if all(a is b for a, b in zip(below, changed, strict=True)) else rebuilt(expression, changed)


def _expressions_by_field(statement: Statement) -> Iterator[tuple[str, Any]]:
    """The fields of a statement that are expressions that it computes, or tuples of them."""
    for item in fields(statement):
        value = getattr(statement, item.name)
        if isinstance(value, Expression):
            if not (isinstance(value, Register) and item.name in ("register", "index")):
                yield item.name, value
        elif item.name in ("position", "words", "place"):
            yield item.name, value


def expressions_of(statement: Statement) -> Iterator[Expression]:
    """The expressions that a statement itself computes, without the blocks inside it."""
    for _, value in _expressions_by_field(statement):
        yield from value if isinstance(value, tuple) else (value,)


def blocks_of(statement: Statement) -> tuple[Block, ...]:
    """The blocks inside a statement."""
    match statement:
        case ForLoop() | FreeLoop():
            return (statement.body,)
        case If():
            return statement.body, statement.otherwise
    return ()


def statements_in(block: Block) -> Iterator[Statement]:
    """All statements, those inside of others included."""
    for statement in block:
        yield statement
        for inner in blocks_of(statement):
            yield from statements_in(inner)


def mapped(statement: Statement, change: Callable[[Expression], Expression]) -> Statement:
    """The statement with changed expressions; blocks inside it stay."""
    found = _expressions_by_field(statement)
    made = {name: tuple(map(change, v)) if isinstance(v, tuple) else change(v) for name, v in found}
    return replace(statement, **made) if made else statement


def arrays_in(block: Block) -> Iterator[tuple[Array, bool]]:
    """The arrays that statements read (False) or write (True), in order."""
    for statement in statements_in(block):
        for expression in expressions_of(statement):
            for part in postorder(expression):
                if isinstance(part, Element):
                    yield part.array, False
        match statement:
            case VectorRead(_, array) | View(_, array) | EndIfSet(array):
                yield array, False
            case LoadMatrix(target, array) | AsyncCopy(target, _, array):
                yield array, False
                yield target, True
            case Write(array) | AtomicUpdate(_, array) | VectorWrite(array):
                yield array, True
            case FragmentProduct():
                yield statement.sums, True
            case Copy(target, source):
                yield source, False
                yield target, True
            case Exchange(left, right):
                yield left, True
                yield right, True
            case Call(_, arrays) | LibraryCall(_, arrays):
                yield from ((a.array if isinstance(a, Part) else a, True) for a in arrays)
