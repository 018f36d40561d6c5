"""The elementary functions of the CPU's emitter as Python source: straight-line code that LLVM vectorises.

`Value` emits LLVM instructions; here the same functions run with values that emit Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rlx.backends.cpu.emit import error_functions, polynomials
from rlx.backends.cpu.emit.ir_text import Code, Module, Value, bit_width, is_real
from rlx.backends.cpu.emit.narrow import decode_by_bits, encode_by_bits, round_to_odd
from rlx.ir.formats import FLOAT_FORMATS

__all__ = ["ELEMENTARY", "source_of"]

_TYPES = {"float": "np.float32", "double": "np.float64", "i1": "np.bool_"}
_TYPES |= {f"i{bits}": f"np.int{bits}" for bits in (8, 16, 32, 64)}
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_SYMBOLS |= {"shl": "<<", "ashr": ">>"}
_CALLS = {"fma": "fma", "sqrt": "np.sqrt", "copysign": "np.copysign", "fabs": "abs"}
_CONDITIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _unsigned(kind: str, text: str) -> str:
    """An integer reinterpreted as unsigned."""
    return f"np.uint{bit_width(kind)}({text})"


def _wrapped(kind: str, text: str) -> str:
    """Convert an integer to its type, as Numba widens the results of operators."""
    return text if is_real(kind) or kind == "i1" else f"{_TYPES[kind]}({text})"


class _PythonValue(Value):
    """A value whose name is a Python variable or a literal."""

    __slots__ = ()

    def __neg__(self) -> Value:
        return self.code.emit(self.kind, f"-{self.name}") if is_real(self.kind) else 0 - self

    def compare(self, condition: str, other: Value | float) -> Value:
        left, right = self.name, self.lift(other).name
        if condition == "uno":
            return self.code.emit("i1", f"{left} != {left}")
        if condition == "one":
            return self.code.emit("i1", f"({left} < {right}) | ({left} > {right})")
        if condition[0] == "u" and not is_real(self.kind):
            left, right = (text if text.isdigit() else _unsigned(self.kind, text) for text in (left, right))
        return self.code.emit("i1", f"{left} {_CONDITIONS[condition[-2:]]} {right}")

    def where(self, yes: Value | float, no: Value | float) -> Value:
        model = yes if isinstance(yes, Value) else no
        assert isinstance(model, Value)
        first, second = model.lift(yes), model.lift(no)
        text = f"{first.name} if {self.name} else {second.name}"
        return self.code.emit(first.kind, _wrapped(first.kind, text))

    def convert(self, command: str, kind: str) -> Value:
        if kind == self.kind:
            return self
        if command == "bitcast":
            # Numba requires an explicit dtype before .view
            return self.code.emit(kind, f"{_TYPES[self.kind]}({self.name}).view({_TYPES[kind]})")
        text = _unsigned(self.kind, self.name) if command in ("zext", "uitofp") and self.kind != "i1" else self.name
        return self.code.emit(kind, f"{_TYPES[kind]}({text})")


class _PythonCode(Code):
    """The source of a Python function under construction."""

    def __init__(self) -> None:
        super().__init__(Module())
        self._known: dict[str, Value] = {}

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"v{self._count}"

    def emit(self, kind: str, text: str) -> Value:
        if text not in self._known:  # no side effects: equal expressions are equal values
            self._known[text] = _PythonValue(self, self.fresh(), kind)
            self.lines.append(f"    {self._known[text].name} = {text}")
        return self._known[text]

    def constant(self, kind: str, number: float) -> Value:
        if not is_real(kind):
            return _PythonValue(self, str(bool(number) if kind == "i1" else int(number)), kind)
        text = repr(float(number)).replace("inf", "np.inf").replace("nan", "np.nan")
        return _PythonValue(self, f"{_TYPES[kind]}({text})", kind)

    def binary(self, name: str, left: Value, right: Value, flags: str = "") -> Value:
        first, second = left.name, right.name
        if name == "lshr":
            first = _unsigned(left.kind, first)
            return self.emit(left.kind, f"{_TYPES[left.kind]}({first} >> {second})")
        if name in ("and", "or", "xor") and not second.isidentifier() and int(second) < 0:
            second = f"({second})"
        text = f"{first} {_SYMBOLS[name]} {second}"
        return self.emit(left.kind, _wrapped(left.kind, text))

    def intrinsic(self, name: str, *arguments: Value, flags: str = "") -> Value:
        return self.emit(arguments[0].kind, f"{_CALLS[name]}({', '.join(v.name for v in arguments)})")

    def function(self, body: Any, *arguments: Value) -> Value:
        return body(*arguments)


# functions that Numba lacks, or for which it is slower
ELEMENTARY: dict[str, Callable[..., Value]] = {
    name: polynomials.FUNCTIONS[name]
    for name in ("exp", "exp2", "expm1", "log", "log1p", "sinh", "cosh", "tanh", "logistic")
}
ELEMENTARY |= error_functions.FUNCTIONS


@cache
def source_of(name: str) -> str:
    """The source of `exp_float32`, `decode_bfloat16`, `encode_float8_e5m2`, `round_to_odd` and the like."""
    operation, _, dtype = name.rpartition("_")
    code = _PythonCode()
    if name == "round_to_odd":
        result = round_to_odd(_PythonValue(code, "x", "double"))
        return _function(name, "A float64 as a float32 that rounds to float16 as the float64 does.", code, result.name)
    if operation in ELEMENTARY:
        result = ELEMENTARY[operation](_PythonValue(code, "x", "float" if dtype == "float32" else "double"))
        return _function(name, f"{operation} of a {dtype}.", code, result.name)
    operation, _, dtype = name.partition("_")
    form = FLOAT_FORMATS[np.dtype(dtype)]
    bits = 8 if form.bits <= 8 else 16
    if operation == "decode":
        result = decode_by_bits(np.dtype(dtype), _PythonValue(code, "x", f"i{bits}"))
        return _function(name, f"The float32 value of a {dtype} code.", code, result.name)
    result = encode_by_bits(np.dtype(dtype), _PythonValue(code, "x", "float"))
    return _function(name, f"The code of the {dtype} nearest to a float32.", code, f"np.uint{bits}({result.name})")


def _function(name: str, summary: str, code: _PythonCode, result: str) -> str:
    return "\n".join((f"def {name}(x):", f'    """{summary}"""', *code.lines, f"    return {result}"))
