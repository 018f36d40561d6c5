"""Special functions as programs: their code, run for all elements of arrays at once.

When elements diverge, at a branch or at the end of a loop, a mask selects the active elements; the others keep their
values. A loop continues while any element is active in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.code.functions import Function
from rlx.code.scalars import apply
from rlx.code.special import FUNCTIONS
from rlx.code.tree import (
    Apply,
    Assign,
    Block,
    Both,
    Declare,
    Either,
    Expression,
    ForLoop,
    FreeLoop,
    If,
    Leave,
    Number,
    Register,
    Return,
    statements_in,
)
from rlx.ir.kernels import Instruction
from rlx.ir.program import Program
from rlx.ir.scalar import SPECIAL
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import absolute, add, copysign, divide, multiply, negative, power, select, subtract
from rlx.ops.comparison import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    not_equal,
)
from rlx.ops.families import broadcast_to
from rlx.ops.reduction import reduce_or
from rlx.ops.rounding import floor, trunc
from rlx.ops.special import erf_inv, erfc, lgamma
from rlx.ops.transcendental import atan2, cos, cosh, exp, expm1, log, log1p, sin, sinh, sqrt, tan
from rlx.ops.while_loop import loop_while
from rlx.trace.primitive import type_of
from rlx.trace.tracing import trace_program

__all__ = ["has_special_program", "special_program"]

_FLOAT64 = np.dtype(np.float64)
# functions that a format may lack, with the names of their code
_PLAIN = {"lgamma": "log_gamma", "erf": "error", "erfc": "error_complement", "erf_inv": "inverse_erf"}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "abs": absolute, "add": add, "atan2": atan2, "copysign": copysign, "cos": cos, "cosh": cosh, "div": divide,
    "eq": equal, "erf_inv": erf_inv, "erfc": erfc, "exp": exp, "expm1": expm1, "floor": floor, "ge": greater_equal,
    "gt": greater, "le": less_equal, "lgamma": lgamma, "log": log, "log1p": log1p, "lt": less, "mul": multiply,
    "ne": not_equal, "neg": negative, "pow": power, "sin": sin, "sinh": sinh, "sqrt": sqrt, "sub": subtract, "tan": tan,
    "trunc": trunc,
}  # fmt: skip


def has_special_program(name: str, plain: bool = False) -> bool:
    """Whether a function of `ir.scalar.SPECIAL` has code to convert to a program; `plain` as in `special_program`."""
    return (name in SPECIAL and name in FUNCTIONS) or (plain and name in _PLAIN)


@lru_cache(maxsize=256)
def special_program(name: str, shape: tuple[int, ...], plain: bool = False, dtype: np.dtype = _FLOAT64) -> Program:
    """A function of `ir.scalar.SPECIAL` as a program of arrays of one shape and dtype.

    plain: the program uses neither error functions nor lgamma, and these have programs, too.
    dtype: float64, or float32 for devices that only emulate float64; the coefficients are rounded.
    """
    function = FUNCTIONS[_PLAIN[name] if plain and name in _PLAIN else name]

    def run(*xs: Any) -> list[Any]:
        return [broadcast_to(_array(_Call(function, xs, True, shape, plain, dtype).value(), dtype), shape)]

    program, _ = trace_program(run, [TensorType(shape, dtype)] * len(function.parameters), name=name)
    return program


# ------------------------------------------------------------------ masks: True, False or an array
def _both(x: Any, y: Any) -> Any:
    if x is False or y is False:
        return False
    return y if x is True else x if y is True else bitwise_and(x, y)


def _either(x: Any, y: Any) -> Any:
    if x is True or y is True:
        return True
    return y if x is False else x if y is False else bitwise_or(x, y)


def _opposite(x: Any) -> Any:
    return not x if isinstance(x, bool) else bitwise_not(x)


def _is_known(x: Any) -> bool:
    return isinstance(x, (bool, float))


def _array(x: Any, dtype: np.dtype) -> Any:
    """A number as an array without axes, a large one as the largest of the dtype; an array as it is."""
    if not _is_known(x):
        return x
    if isinstance(x, bool) or dtype == _FLOAT64 or not np.isfinite(x):
        return np.asarray(x, None if isinstance(x, bool) else dtype)
    most = np.finfo(dtype).max
    return np.asarray(np.clip(x, -most, most), dtype)


def _where(mask: Any, x: Any, y: Any, dtype: np.dtype) -> Any:
    if mask is True or x is y:
        return x
    return y if mask is False else select(mask, *_of_one_shape(dtype, x, y))


def _of_one_shape(dtype: np.dtype, *xs: Any) -> list[Any]:
    arrays = [_array(x, dtype) for x in xs]
    shape = np.broadcast_shapes(*(type_of(x).shape for x in arrays))
    return [broadcast_to(x, shape) for x in arrays]


class _Call:
    """A call of a function: its variables, the elements active at the current statement, and its results.

    born: the elements active when a variable was declared; the others never read it. plain, dtype: see
    `special_program`. Numbers are computed in float64 until they meet an array.
    """

    def __init__(
        self,
        function: Function,
        arguments: Sequence[Any],
        live: Any,
        shape: tuple[int, ...],
        plain: bool,
        dtype: np.dtype,
    ) -> None:
        names = [register.name for register in function.parameters]
        self.function = function
        self.shape = shape
        self.plain = plain
        self.dtype = dtype
        self.live = live
        self.values = dict(zip(names, arguments, strict=True))
        self.born = dict.fromkeys(names, live)
        self.result: Any = None
        self.returned: Any = False

    def value(self) -> Any:
        """The function's result."""
        self.follow(self.function.body)
        return self.result

    # ------------------------------------------------------------------ statements
    def follow(self, block: Block) -> None:
        """Execute statements for the active elements."""
        for statement in block:
            if self.live is False:
                return
            match statement:
                case Declare(register, expression):
                    self.born[register.name] = self.live
                    self.values[register.name] = self.evaluate(expression)
                case Assign(register, expression):
                    self.assign(register.name, self.evaluate(expression))
                case If():
                    self.branch(statement)
                case ForLoop():
                    self.loop(statement.body, Apply(np.dtype(bool), "lt", (statement.index, statement.stop)), statement)
                case FreeLoop(body, Expression() as condition):
                    self.loop(body, condition)
                case Return(expression):
                    value = self.evaluate(expression)
                    self.result = value if self.result is None else _where(self.live, value, self.result, self.dtype)
                    self.returned = _either(self.returned, self.live)
                    self.live = False
                case Leave():
                    self.live = False
                case _:
                    raise AssertionError(f"{type(statement).__name__} has no program")

    def assign(self, name: str, value: Any) -> None:
        known = self.born[name] is self.live
        self.values[name] = value if known else _where(self.live, value, self.values[name], self.dtype)

    def branch(self, statement: If) -> None:
        test, before = self.evaluate(statement.condition), self.live
        self.live = first = _both(before, test)
        self.follow(statement.body)
        after, self.live = self.live, _both(before, _opposite(test))
        second = self.live
        self.follow(statement.otherwise)
        self.live = before if after is first and self.live is second else _either(after, self.live)

    def loop(self, block: Block, condition: Expression, counted: ForLoop | None = None) -> None:
        """A while loop over the variables assigned in it; its counter is the same for all elements."""
        before, counters = self.live, [counted.index.name] if counted else []
        if counted:
            self.values[counted.index.name] = self.evaluate(counted.start)
        inside = list(statements_in(block))
        assigned = dict.fromkeys(s.register.name for s in inside if isinstance(s, Assign))
        changed = [n for n in assigned if n in self.values]
        returning = any(isinstance(s, Return) for s in inside)

        def carried(call: _Call) -> list[Any]:
            last = [call.result, call.returned] if returning else []
            arrays = [call.live, *(call.values[n] for n in changed), *last]
            counted_so_far = [_array(call.values[n], self.dtype) for n in counters]
            return [*(broadcast_to(_array(x, self.dtype), self.shape) for x in arrays), *counted_so_far]

        def resumed(running: Any, *values: Any) -> _Call:
            call = copy(self)
            if returning:
                call.result, call.returned = values[len(changed) : len(changed) + 2]
            own = values[len(values) - len(counters) :]
            call.values = self.values | dict(zip(changed, values, strict=False)) | dict(zip(counters, own, strict=True))
            call.born = dict(self.born)
            call.live = running
            return call

        def body(*state: Any) -> list[Any]:
            call = resumed(*state)
            call.follow(block)
            for name in counters:
                call.values[name] = add(call.values[name], self.dtype.type(1))
            call.live = _both(call.live, call.evaluate(condition))
            return carried(call)

        first = copy(self)
        first.live = _both(before, self.evaluate(condition))
        if returning and self.result is None:
            first.result = np.nan
        found = resumed(*loop_while(lambda running, *_: _any(running), body, carried(first)))
        self.values, self.result = {n: found.values[n] for n in self.values}, found.result
        self.live = before
        if returning:
            self.returned = found.returned
            self.live = _both(before, _opposite(found.returned))

    # ------------------------------------------------------------------ expressions
    def evaluate(self, expression: Expression) -> Any:
        """Evaluate an expression for the active elements: a number, or an array."""
        match expression:
            case Number(_, value):
                return np.float64(value)
            case Register(_, name):
                return self.values[name]
            case Both(_, left, right):
                return _both(self.evaluate(left), self.evaluate(right))
            case Either(_, left, right):
                return _either(self.evaluate(left), self.evaluate(right))
            case Apply(_, "select", (test, first, second)):
                return self.chosen(test, first, second)
        assert isinstance(expression, Apply)
        operands = [self.evaluate(argument) for argument in expression.arguments]
        called = expression.attribute if expression.op == "special" else expression.op
        if self.plain:
            called = _PLAIN.get(called, called)
        if called in FUNCTIONS:
            return _Call(FUNCTIONS[called], operands, self.live, self.shape, self.plain, self.dtype).value()
        if called == "not":
            return _opposite(*operands)
        if all(map(_is_known, operands)):
            found = apply(Instruction(expression.op, (), expression.dtype), list(map(np.asarray, operands)))[()]
            return bool(found) if isinstance(found, np.bool_) else found
        return _OPERATIONS[called](*(_array(x, self.dtype) for x in operands))

    def chosen(self, test: Expression, first: Expression, second: Expression) -> Any:
        mask, before = self.evaluate(test), self.live
        if mask is True or mask is False:
            return self.evaluate(first if mask else second)
        self.live = _both(before, mask)
        x = self.evaluate(first)
        self.live = _both(before, _opposite(mask))
        y = self.evaluate(second)
        self.live = before
        return _where(mask, x, y, self.dtype)


def _any(mask: Any) -> Any:
    return reduce_or(mask, axes=tuple(range(type_of(mask).ndim)))
