"""Special functions as programs: their C sources, interpreted for all elements of arrays at once.

When elements diverge, at a branch or at the end of a loop, a mask selects the active elements; the others keep their
values. A loop continues while any element is active in it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.backends.c.special import SPECIAL_TEXTS
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
from rlx.standalone.c_statements import (
    Assign,
    Break,
    CFunction,
    Expression,
    For,
    If,
    Return,
    Statement,
    assigned,
    read_function,
    returns,
)
from rlx.trace.primitive import type_of
from rlx.trace.tracing import trace_program

__all__ = ["has_special_program", "special_program"]

_FLOAT64 = np.dtype(np.float64)
_NUMBERS = {"INFINITY": np.inf, "NAN": np.nan}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fabs": absolute, "pow": power, "copysign": copysign, "floor": floor, "exp": exp, "expm1": expm1, "log": log,
    "log1p": log1p, "sin": sin, "cos": cos, "tan": tan, "sqrt": sqrt, "sinh": sinh,
    "cosh": cosh, "atan2": atan2, "erfc": erfc, "lgamma": lgamma,
    "rlx_inverse_erf_float64": erf_inv,
}  # fmt: skip
# the implementation of each symbol for known numbers, and for arrays
_BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (operator.add, add), "-": (operator.sub, subtract), "*": (operator.mul, multiply),
    "/": (np.divide, divide), "==": (operator.eq, equal), "!=": (operator.ne, not_equal), "<": (operator.lt, less),
    "<=": (operator.le, less_equal), ">": (operator.gt, greater), ">=": (operator.ge, greater_equal),
}  # fmt: skip


def has_special_program(name: str) -> bool:
    """Whether a function of `ir.scalar.SPECIAL` has a C source to convert to a program."""
    return name in SPECIAL and name in SPECIAL_TEXTS


@lru_cache(maxsize=256)
def special_program(name: str, shape: tuple[int, ...]) -> Program:
    """A function of `ir.scalar.SPECIAL` as a program of float64 arrays of one shape."""

    def run(*xs: Any) -> list[Any]:
        return [broadcast_to(_array(_Call(_function(name), xs, True, shape).value()), shape)]

    program, _ = trace_program(run, [TensorType(shape, _FLOAT64)] * SPECIAL[name].arity, name=name)
    return program


@lru_cache(maxsize=256)
def _function(name: str) -> CFunction:
    return read_function(SPECIAL_TEXTS[name])


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


def _array(x: Any) -> Any:
    """A number as an array without axes; an array as it is."""
    return np.asarray(x) if _is_known(x) else x


def _where(mask: Any, x: Any, y: Any) -> Any:
    if mask is True or x is y:
        return x
    return y if mask is False else select(mask, *_of_one_shape(x, y))


def _of_one_shape(*xs: Any) -> list[Any]:
    arrays = list(map(_array, xs))
    shape = np.broadcast_shapes(*(type_of(x).shape for x in arrays))
    return [broadcast_to(x, shape) for x in arrays]


class _Call:
    """A call of a function: its variables, the elements active at the current statement, and its results.

    born: the elements active when a variable was declared; the others never read it.
    """

    def __init__(self, function: CFunction, arguments: Sequence[Any], live: Any, shape: tuple[int, ...]) -> None:
        self.function = function
        self.shape = shape
        self.live = live
        self.values = dict(zip(function.parameters, arguments, strict=True))
        self.born = dict.fromkeys(function.parameters, live)
        self.result: Any = None
        self.returned: Any = False

    def value(self) -> Any:
        """The function's result."""
        self.follow(self.function.body)
        return self.result

    # ------------------------------------------------------------------ statements
    def follow(self, statements: Sequence[Statement]) -> None:
        """Execute statements for the active elements."""
        for statement in statements:
            if self.live is False:
                return
            match statement:
                case Assign(name, expression, declares):
                    self.assign(name, self.evaluate(expression), declares)
                case If():
                    self.branch(statement)
                case For():
                    self.loop(statement)
                case Return(expression):
                    value = self.evaluate(expression)
                    self.result = value if self.result is None else _where(self.live, value, self.result)
                    self.returned = _either(self.returned, self.live)
                    self.live = False
                case Break():
                    self.live = False

    def assign(self, name: str, value: Any, declares: bool) -> None:
        if declares:
            self.born[name] = self.live
        self.values[name] = value if self.born[name] is self.live else _where(self.live, value, self.values[name])

    def branch(self, statement: If) -> None:
        test, before = self.truth(statement.condition), self.live
        self.live = first = _both(before, test)
        self.follow(statement.then)
        after, self.live = self.live, _both(before, _opposite(test))
        second = self.live
        self.follow(statement.otherwise)
        self.live = before if after is first and self.live is second else _either(after, self.live)

    def loop(self, statement: For) -> None:
        """A while loop over the variables assigned in it; its counters are the same for all elements."""
        self.follow(statement.start)
        before = self.live
        counters = [s.name for s in statement.start if isinstance(s, Assign)]
        changed = [n for n in assigned((statement,)) if n in self.values]
        returning = returns(statement.body)

        def carried(call: _Call) -> list[Any]:
            last = [call.result, call.returned] if returning else []
            arrays = [call.live, *(call.values[n] for n in changed), *last]
            return [*(broadcast_to(_array(x), self.shape) for x in arrays), *(_array(call.values[n]) for n in counters)]

        def resumed(running: Any, *values: Any) -> _Call:
            call = copy(self)
            if returning:
                call.result, call.returned = values[len(changed) : len(changed) + 2]
            own = values[len(values) - len(counters) :]
            call.values = self.values | dict(zip(changed, values, strict=False)) | dict(zip(counters, own, strict=True))
            call.born = self.born | dict.fromkeys(counters, running)
            call.live = running
            return call

        def body(*state: Any) -> list[Any]:
            call = resumed(*state)
            call.follow(statement.body)
            live, call.live = call.live, state[0]  # the counters of finished elements do not matter
            for change in statement.step:
                assert isinstance(change, Assign)
                if change.name not in counters:
                    call.live = live
                call.follow([change])
            call.live = _both(live, call.truth(statement.condition))
            return carried(call)

        first = copy(self)
        first.live = _both(before, self.truth(statement.condition))
        if returning and self.result is None:
            first.result = np.nan
        found = resumed(*loop_while(lambda running, *_: _any(running), body, carried(first)))
        self.values, self.result = {n: found.values[n] for n in self.values}, found.result
        self.live = before
        if returning:
            self.returned = found.returned
            self.live = _both(before, _opposite(found.returned))

    # ------------------------------------------------------------------ expressions
    def truth(self, expression: Expression) -> Any:
        """The mask of elements for which an expression is true."""
        found = self.evaluate(expression)
        if _is_known(found):
            return bool(found)
        return found if type_of(found).dtype == bool else not_equal(found, np.float64(0))

    def evaluate(self, expression: Expression) -> Any:
        """Evaluate an expression for the active elements: a number, or an array."""
        parts = expression.parts
        match expression.operation:
            case "number":
                text = expression.name
                return np.float64(float.fromhex(text) if text.startswith("0x") else float(text))
            case "name":
                name = expression.name
                return np.float64(_NUMBERS[name]) if name in _NUMBERS else self.values[name]
            case "call":
                return self.called(expression.name, [self.evaluate(p) for p in parts])
            case "?":
                return self.chosen(*parts)
            case "&&":
                return _both(self.truth(parts[0]), self.truth(parts[1]))
            case "||":
                return _either(self.truth(parts[0]), self.truth(parts[1]))
            case "!":
                return _opposite(self.truth(parts[0]))
            case "trunc":
                return trunc(_array(self.evaluate(parts[0])))
            case "-" if len(parts) == 1:
                inner = self.evaluate(parts[0])
                return -inner if _is_known(inner) else negative(inner)
        x, y = map(self.evaluate, parts)
        of_numbers, of_arrays = _BINARY[expression.operation]
        if _is_known(x) and _is_known(y):
            found = of_numbers(x, y)
            return bool(found) if isinstance(found, np.bool_) else found
        return of_arrays(*map(_array, (x, y)))

    def chosen(self, test: Expression, first: Expression, second: Expression) -> Any:
        mask, before = self.truth(test), self.live
        if mask is True or mask is False:
            return self.evaluate(first if mask else second)
        self.live = _both(before, mask)
        x = self.evaluate(first)
        self.live = _both(before, _opposite(mask))
        y = self.evaluate(second)
        self.live = before
        return _where(mask, x, y)

    def called(self, name: str, arguments: Sequence[Any]) -> Any:
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_array, arguments))
        text = "gamma" if name == "tgamma" else name.removeprefix("rlx_").removesuffix("_float64")
        return _Call(_function(text), arguments, self.live, self.shape).value()


def _any(mask: Any) -> Any:
    return reduce_or(mask, axes=tuple(range(type_of(mask).ndim)))
