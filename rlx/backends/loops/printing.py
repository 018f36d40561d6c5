"""Kernel code as source text: one walk over the tree, in the words of a dialect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.loops.dialect import Dialect, bare
from rlx.code.functions import Function
from rlx.code.tree import (
    Aligned,
    Allocate,
    Apply,
    Argument,
    Array,
    Assign,
    AsyncCopy,
    AtomicUpdate,
    AwaitCopies,
    Barrier,
    Block,
    Both,
    Call,
    CloseCopies,
    Coordinate,
    Copy,
    Declare,
    Divisor,
    Either,
    Element,
    EndIfSet,
    Exchange,
    Expression,
    ForLoop,
    FragmentProduct,
    FreeLoop,
    If,
    Leave,
    LibraryCall,
    Linear,
    LoadMatrix,
    Number,
    PackedPair,
    Part,
    Product,
    Quotient,
    Register,
    Remainder,
    Return,
    Shuffle,
    Statement,
    VectorRead,
    VectorWrite,
    View,
    Write,
    index,
    statements_in,
)
from rlx.ir.kernels import Instruction

__all__ = ["Printer", "enclosed", "has_threads", "printed"]


def printed(block: Block, dialect: Dialect) -> list[str]:
    """The lines of a block, indented from its own level."""
    dialect.threads = has_threads(block)
    return Printer(dialect).block(block)


def has_threads(block: Block) -> bool:
    """Whether iterations of a loop may run at the same time."""
    return any(isinstance(s, ForLoop) and s.threads for s in statements_in(block))


def enclosed(head: Sequence[str], body: Sequence[str], dialect: Dialect) -> list[str]:
    """The lines of a block in the text."""
    end = [dialect.words.block_end] if dialect.words.block_end else []
    body = body or [dialect.words.empty]
    return [*head, *(dialect.extent + line for line in body), *end]


class Printer:
    """Prints statements and expressions; the dialect knows the words, the tree the order."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def function(self, function: Function, name: str) -> str:
        """The definition of a function."""
        return "\n".join(self._nested(self.dialect.scalar_function(function, name), function.body))

    # ------------------------------------------------------------------ statements
    def block(self, block: Block) -> list[str]:
        """The lines of statements."""
        return [line for statement in block for line in self.statement(statement)]

    def _nested(self, head: tuple[str, ...], block: Block) -> list[str]:
        return enclosed(head, self.block(block), self.dialect)

    def statement(self, statement: Statement) -> list[str]:
        """The lines of one statement."""
        dialect, text, words = self.dialect, self.expression, self.dialect.words
        match statement:
            case Declare(register, value, changes):
                return [dialect.declare(register.name, register.dtype, self._fitted(value, register.dtype), changes)]
            case Assign(register, value):
                return [dialect.assign(register.name, self._fitted(value, register.dtype))]
            case Write(array, position, value):
                return [self._write(array, position, value)]
            case AtomicUpdate(reducer, array, position, value):
                return [dialect.atomic(reducer, array, text(position), text(value))]
            case ForLoop():
                kind, stop = statement.index.dtype, statement.stop
                # an operand of a comparison
                last = dialect.fitted((self._factor if isinstance(stop, Apply) else self.plain)(stop), stop.dtype, kind)
                bounds = self._index(statement.start, kind), last, self._index(index(statement.step), kind)
                return self._nested(dialect.for_loop(statement, *bounds), statement.body)
            case FreeLoop(body, condition):
                head = words.endless_loop if condition is None else self._head(words.while_loop, condition)
                return self._nested((head,), body)
            case If():
                return self._condition(statement)
            case Leave():
                return [words.leave]
            case Return(value):
                return [dialect.statement(words.give, value=bare(text(value)))]
            case Allocate(array):
                return [dialect.array(array)]
            case View(array, source, offset):
                return [dialect.view(array, source, self.plain(offset))]
            case Exchange(left, right):
                kind = dialect.pointer(left.dtype)
                return [words.swap.format(left=left.name, right=right.name, pointer=kind)]
            case Copy(target, source):
                return [words.copy.format(target=target.name, source=source.name, nbytes=source.nbytes)]
            case Call(function, arguments):
                return [dialect.call(function, [self._argument(a) for a in arguments])]
            case LibraryCall(of, operands):
                return [dialect.library_call(of, *map(self._argument, operands))]
            case EndIfSet(flag):
                return [line.format(flag=flag.name) for line in words.end_if_set]
            case VectorRead(target, array, position):
                return [dialect.vector_read(target, array, self.plain(position))]
            case VectorWrite(array, position, source):
                return [dialect.vector_write(array, self.plain(position), source)]
            case FragmentProduct(unit, _, sums, row, words):
                operands = [f"{sums.name}[{self.plain(row)}]", *map(self.plain, words)]
                return [f"{dialect.fragment_product(unit)}({', '.join(operands)});"]
            case LoadMatrix(target, array, position, turned):
                return [dialect.load_matrix(target, self._pointed(array, position), turned)]
            case AsyncCopy(target, place, array, position, size, condition):
                source, holds = f"{array.name} + {self._factor(position)}", text(condition) if condition else None
                return [dialect.async_copy(array, self._pointed(target, place), source, size, holds)]
            case CloseCopies():
                return [*dialect.close_copies()]
            case AwaitCopies(newer):
                return [*dialect.await_copies(newer)]
            case Barrier("launch", Array() as arrivals, Expression() as awaited):
                return [*dialect.launch_barrier(arrivals.name, self.expression(awaited))]
            case Barrier("group"):
                return [words.barrier]
        raise AssertionError(f"{type(statement).__name__} has no text")

    def _argument(self, argument: Array | Part) -> str:
        if isinstance(argument, Array):
            return argument.name
        return self.dialect.part(argument.array, self.plain(argument.start), argument.size)

    def _pointed(self, array: Array, position: tuple[Expression, ...]) -> str:
        """The address of an element."""
        name, last = self._place(array, position)
        return f"&{name}[{last}]"

    def _condition(self, statement: If) -> list[str]:
        words = self.dialect.words
        lines = self._nested((self._head(words.condition, statement.condition),), statement.body)
        if statement.otherwise:
            lines += self._nested((words.otherwise,), statement.otherwise)
        return lines

    def _head(self, form: str, condition: Expression) -> str:
        return self.dialect.statement(form, condition=bare(self.expression(condition)))

    def _write(self, array: Array, position: tuple[Expression, ...], value: Expression) -> str:
        name, last = self._place(array, position)
        return self.dialect.write(array, name, last, value.dtype, self.expression(value))

    # ------------------------------------------------------------------ expressions
    def expression(self, expression: Expression) -> str:
        """The text of an expression, valid as an operand."""
        dialect = self.dialect
        match expression:
            case Register(_, name):
                return name
            case Argument():
                return expression.name
            case Number(dtype, value):
                return dialect.constant(dtype, value)
            case Apply(dtype, op, arguments, attribute):
                instruction = Instruction(op, tuple(range(len(arguments))), dtype, attribute)
                kinds = dialect.operands(instruction, [argument.dtype for argument in arguments])
                texts = [self._fitted(argument, kind) for argument, kind in zip(arguments, kinds, strict=True)]
                return dialect.operation(instruction, texts, kinds)
            case Element():
                return self._element(expression)
            case Coordinate(dtype, of):
                return dialect.coordinate(of, dtype)
            case Both(_, left, right):
                return dialect.words.both.format(left=self.expression(left), right=self.expression(right))
            case Either(_, left, right):
                return dialect.words.either.format(left=self.expression(left), right=self.expression(right))
            case PackedPair(_, of, low, high):
                return dialect.packed(of, self.expression(low), self.expression(high))
            case Shuffle(dtype, value, distance, warp):
                return dialect.shuffle(dtype, self.expression(value), self.expression(distance), warp)
            case Aligned(_, arrays, nbytes):
                return dialect.aligned([array.name for array in arrays], nbytes)
        return f"({self.plain(expression)})"

    def plain(self, expression: Expression) -> str:
        """The text of an index, without outer parentheses and without the dtype of numbers."""
        dialect = self.dialect
        match expression:
            case Argument():
                return expression.name
            case Number(_, value):
                return str(value)
            case Linear(dtype, terms, offset):
                return dialect.position([(factor, self._term(term, dtype)) for factor, term in terms], offset)
            case Product(dtype, left, right):
                return " * ".join(dialect.fitted(self._factor(side), side.dtype, dtype) for side in (left, right))
            case Quotient(dtype, dividend, int() as divisor):
                words = dialect.words.divided
                return words.format(dividend=self._factor(dividend), divisor=dialect.divisor(dtype, divisor))
            case Remainder(dtype, dividend, int() as divisor):
                words = dialect.words.remainder
                return words.format(dividend=self._factor(dividend), divisor=dialect.divisor(dtype, divisor))
            case Quotient(dtype, dividend, Divisor() as divisor):
                return dialect.divided_by(self.expression(dividend), dtype, divisor.name)
            case Remainder(dtype, dividend, Divisor() as divisor):
                return dialect.remainder_by(self.expression(dividend), dtype, divisor.name)
            case Quotient(dtype, dividend, Argument() as divisor):
                return f"{self._factor(dividend)} / {divisor.name}"
            case Remainder(dtype, dividend, Argument() as divisor):
                return f"{self._factor(dividend)} % {divisor.name}"
            case Apply(dtype, "cast", (Register() as register,)) if register.dtype.kind == dtype.kind == "i":
                return dialect.fitted(register.name, register.dtype, dtype)
            case Quotient() | Remainder():
                raise AssertionError("a divisor that is an index has no text")
        return bare(self.expression(expression))

    def _fitted(self, expression: Expression, dtype: np.dtype) -> str:
        """The text of an expression as a register of dtype."""
        return self.dialect.fitted(self.expression(expression), expression.dtype, dtype)

    def _index(self, expression: Expression, dtype: np.dtype) -> str:
        """The text of an index of dtype."""
        text = self.plain(expression)
        return text if isinstance(expression, Number) else self.dialect.fitted(text, expression.dtype, dtype)

    def _term(self, term: Expression, dtype: np.dtype) -> str:
        compound = isinstance(term, (Linear, Product, Quotient, Remainder))
        return self.dialect.fitted(f"({self.plain(term)})" if compound else self._factor(term), term.dtype, dtype)

    def _factor(self, term: Expression) -> str:
        if isinstance(term, (Linear, Product)):
            return f"({self.plain(term)})"
        if isinstance(term, (Quotient, Remainder, Number, Apply)):
            text = self.plain(term)
            return text if not isinstance(term, Apply) or text.isidentifier() else self.expression(term)
        return self.expression(term)

    def _element(self, element: Element) -> str:
        name, last = self._place(element.array, element.position)
        return self.dialect.read(element.array, name, last, element.dtype)

    def _place(self, array: Array, position: tuple[Expression, ...]) -> tuple[str, str]:
        """The innermost array's text, and the position in it."""
        *outer, last = map(self.plain, position)
        name = f"{array.name}.of" if array.vector else array.name
        name += "".join(f"[{place}]" for place in outer)
        return (self.dialect.viewed(array, name) if array.words else name), last
