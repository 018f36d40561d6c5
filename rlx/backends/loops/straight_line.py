"""The straight-line functions of the CPU's emitter as code, which other languages print.

`Value` emits LLVM instructions; here the same functions run with values that declare registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from rlx.backends.cpu.emit import error_functions, polynomials, trigonometry
from rlx.backends.cpu.emit.ir_text import Code, Module, Value, is_real
from rlx.backends.cpu.emit.narrow import decode_by_bits, encode_by_bits, round_to_odd
from rlx.backends.cpu.emit.scalar_code import nextafter
from rlx.code.functions import Function
from rlx.code.tree import Apply, Block, Declare, Expression, Number, Register, Return
from rlx.ir.formats import FLOAT_FORMATS

__all__ = ["CONVERSIONS", "ELEMENTARY", "WITHOUT_LIBRARY", "straight_line"]

_BOOL = np.dtype(bool)
_DTYPES = {"float": "float32", "double": "float64", "i1": "bool", "i8": "uint8", "i16": "uint16"}
_OPERATIONS = {"shl": "shift_left", "lshr": "shift_right_logical", "ashr": "shift_right_arithmetic", "fabs": "abs"}
_OF_TWO = frozenset(("atan2", "nextafter", "pow"))
_KINDS = {"float32": "float", "float64": "double"}

# functions that Numba lacks, or for which it is slower
ELEMENTARY: dict[str, Callable[..., Value]] = {
    name: polynomials.FUNCTIONS[name]
    for name in ("exp", "exp2", "expm1", "log", "log1p", "sinh", "cosh", "tanh", "logistic")
}
ELEMENTARY |= error_functions.FUNCTIONS


def _power(x: Value, y: Value) -> Value:
    logarithm = polynomials.FUNCTIONS["log2"](abs(x))
    return polynomials.signed_power(x, y, polynomials.FUNCTIONS["exp2"](logarithm * y))


def _cube_root(x: Value) -> Value:
    """A third of the logarithm, and a step of Newton's method."""
    a = abs(x)
    guess = polynomials.FUNCTIONS["exp2"](polynomials.FUNCTIONS["log2"](a) * (1.0 / 3.0))
    root = guess - (guess - a / (guess * guess)) * (1.0 / 3.0)
    trivial = x.equal(0.0) | x.is_nan() | a.equal(float("inf"))
    return trivial.where(x, root.call("copysign", x))


# for languages without a library of functions
WITHOUT_LIBRARY: dict[str, Callable[..., Value]] = {
    **{name: polynomials.FUNCTIONS[name] for name in ("log2", "asinh", "acosh", "atanh")},
    **{name: trigonometry.FUNCTIONS[name] for name in ("asin", "acos", "atan", "atan2")},
    **{f"small_{name}": function for name, function in trigonometry.SMALL.items()},
    **{"pow": _power, "cbrt": _cube_root, "nextafter": nextafter},
    **ELEMENTARY,
}
# of narrow floats, whose codes are numbers without sign
CONVERSIONS = frozenset(
    ("round_to_odd_float64", *(f"{way}_{dtype.name}" for way in ("decode", "encode") for dtype in FLOAT_FORMATS))
)


@cache
def straight_line(name: str, widens: bool = True) -> Function:
    """One of CONVERSIONS, or a function of WITHOUT_LIBRARY and its dtype: `exp_float32`.

    widens: whether functions of float32 may compute in float64.
    """
    operation, _, rest = name.partition("_") if name in CONVERSIONS else name.rpartition("_")
    body: Callable[..., Value]
    if operation == "decode":
        narrow = np.dtype(rest)
        kind, body = f"i{8 * narrow.itemsize}", partial(decode_by_bits, narrow)
    elif operation == "encode":
        kind, body = "float", partial(encode_by_bits, np.dtype(rest))
    elif name == "round_to_odd_float64":
        kind, body = "double", round_to_odd
    else:
        kind, body = _KINDS[rest], WITHOUT_LIBRARY[operation]
    names = "xy" if operation in _OF_TWO else "x"
    parameters = tuple(Register(_dtype(kind), letter) for letter in names)

    def write() -> Block:
        code = _TreeCode(widens)
        result = body(*(_TreeValue(code, x, kind) for x in parameters))
        return (*code.statements, Return(_tree(result)))

    return Function(name, parameters, write, inline=True)


def _dtype(kind: str) -> np.dtype:
    return np.dtype(_DTYPES.get(kind, f"int{kind[1:]}"))


def _tree(value: Value) -> Expression:
    assert isinstance(value, _TreeValue)
    return value.tree


def _unsigned(tree: Expression) -> Expression:
    dtype = np.dtype(f"u{tree.dtype.itemsize}")
    return Number(dtype, tree.value) if isinstance(tree, Number) else Apply(dtype, "cast", (tree,))


class _TreeValue(Value):
    """A value that is a register or a number."""

    __slots__ = ("declare", "tree", "widens")

    def __init__(self, code: _TreeCode, tree: Expression, kind: str) -> None:
        super().__init__(code, "", kind)
        self.declare, self.tree, self.widens = code.declare, tree, code.widens

    def __neg__(self) -> Value:
        return self.declare(self.kind, "neg", self.tree)

    def compare(self, condition: str, other: Value | float) -> Value:
        left, right = self.tree, _tree(self.lift(other))
        if condition == "uno":
            return self.declare("i1", "ne", left, left)
        if condition == "one":
            return (self < other) | (self > other)
        if condition[0] == "u" and not is_real(self.kind):
            left, right = map(_unsigned, (left, right))
        return self.declare("i1", condition[-2:], left, right)

    def where(self, yes: Value | float, no: Value | float) -> Value:
        model = yes if isinstance(yes, Value) else no
        assert isinstance(model, Value)
        return self.declare(model.kind, "select", self.tree, *(_tree(model.lift(value)) for value in (yes, no)))

    def convert(self, command: str, kind: str) -> Value:
        if kind == self.kind or (command == "fpext" and not self.widens):
            return self
        widens = command == "zext" and self.tree.dtype.kind == "i"
        given = _unsigned(self.tree) if widens else self.tree
        return self.declare(kind, "bitcast" if command == "bitcast" else "cast", given)


class _TreeCode(Code):
    """The statements of a function under construction; equal expressions are equal values.

    widens: whether float32 becomes float64 where the function asks for it.
    """

    def __init__(self, widens: bool) -> None:
        super().__init__(Module())
        self.widens = widens
        self.statements: list[Declare] = []
        self._known: dict[Expression, Value] = {}

    def declare(self, kind: str, op: str, *arguments: Expression) -> Value:
        """The register of an operation's result."""
        value = Apply(_dtype(kind), op, arguments)
        if value not in self._known:
            register = Register(value.dtype, f"v{len(self._known) + 1}")
            self.statements.append(Declare(register, value))
            self._known[value] = _TreeValue(self, register, kind)
        return self._known[value]

    def constant(self, kind: str, number: float) -> Value:
        dtype = _dtype(kind)
        return _TreeValue(self, Number(dtype, dtype.type(number).item()), kind)

    def binary(self, name: str, left: Value, right: Value, flags: str = "") -> Value:
        return self.declare(left.kind, _OPERATIONS.get(name, name), _tree(left), _tree(right))

    def intrinsic(self, name: str, *arguments: Value, flags: str = "") -> Value:
        return self.declare(arguments[0].kind, _OPERATIONS.get(name, name), *map(_tree, arguments))

    def function(self, body: Any, *arguments: Value) -> Value:
        return body(*arguments)
