"""Kernels as Python source, which numba.njit compiles and people read."""

from __future__ import annotations

import builtins
import keyword
import math
from collections.abc import Sequence

import numpy as np

from rlx.backends.loops.dialect import Dialect, Parameter
from rlx.ir.kernels import Instruction
from rlx.ir.types import dtype_kind, is_complex, is_narrow

__all__ = ["PythonDialect"]

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_NUMPY = {
    "exp": "exp", "log": "log", "log1p": "log1p", "expm1": "expm1", "sin": "sin", "cos": "cos", "tan": "tan",
    "tanh": "tanh", "sinh": "sinh", "cosh": "cosh", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "abs": "abs", "atan2": "arctan2", "exp2": "exp2", "log2": "log2", "is_finite": "isfinite",
    "copysign": "copysign", "nextafter": "nextafter", "pow": "power",
}  # fmt: skip


def _scalar(dtype: np.dtype) -> str:
    """NumPy's name of a register's type."""
    return "np.bool_" if dtype.kind == "b" else f"np.{dtype.name}"


class PythonDialect(Dialect):
    """Python over NumPy arrays. Helper functions are those of scalar_functions.py."""

    comment_mark = "#"
    reserved = frozenset((*keyword.kwlist, *dir(builtins), "np", "njit", "prange"))

    def function(self, name: str, parameters: Sequence[Parameter], parallel: bool) -> tuple[str, ...]:
        """A function that Numba compiles."""
        mark = "@njit(parallel=True)" if parallel else "@njit"
        return (mark, f"def {name}({', '.join(p.name for p in parameters)}):")

    def loop(self, index: str, start: str, stop: str, parallel: bool = False) -> str:
        """A range, on threads where it is parallel."""
        bounds = stop if start == "0" else f"{start}, {stop}"
        return f"for {index} in {'prange' if parallel else 'range'}({bounds}):"

    def backward_loop(self, index: str, size: str) -> str:
        """A range from the end."""
        return f"for {index} in range({size} - 1, -1, -1):"

    def endless_loop(self) -> str:
        """while True."""
        return "while True:"

    def leave(self) -> str:
        """break."""
        return "break"

    def condition(self, expression: str) -> str:
        """if."""
        return f"if {expression}:"

    def otherwise(self) -> str:
        """else."""
        return "else:"

    # ------------------------------------------------------------------ registers
    def declare(self, name: str, dtype: np.dtype, expression: str) -> str:
        """An assignment."""
        return f"{name} = {expression}"

    def variable(self, name: str, dtype: np.dtype, expression: str) -> str:
        """An assignment."""
        return f"{name} = {expression}"

    def assign(self, name: str, expression: str) -> str:
        """An assignment."""
        return f"{name} = {expression}"

    # ------------------------------------------------------------------ memory
    def load(self, dtype: np.dtype, array: str, position: str) -> str:
        """An element, decoded if it is narrow."""
        element = f"{array}[{position}]"
        return f"{self.helper(f'decode_{dtype.name}')}({element})" if is_narrow(dtype) else element

    def store(self, dtype: np.dtype, value_dtype: np.dtype, array: str, position: str, value: str) -> str:
        """An element, encoded if it is narrow and the value is not."""
        if is_narrow(dtype) and value_dtype != dtype:
            value = f"{self.helper(f'encode_{dtype.name}')}({value})"
        return f"{array}[{position}] = {value}"

    # ------------------------------------------------------------------ values
    def constant(self, dtype: np.dtype, number: bool | int | float) -> str:
        """A number of NumPy's types; Python's own for bool, int64 and float64."""
        if dtype.kind == "b":
            return str(bool(number))
        if isinstance(number, float) and not math.isfinite(number):
            text = "np.nan" if math.isnan(number) else "np.inf" if number > 0 else "-np.inf"
        else:
            text = repr(number)
        if dtype.name in ("float64", "int64"):
            return f"({text})" if text.startswith("-") else text
        return f"np.{'float32' if dtype_kind(dtype) == 'f' else dtype.name}({text})"

    def position(self, terms: Sequence[tuple[int, str]], offset: int) -> str:
        """A sum of products."""
        parts = [name if factor == 1 else f"{factor} * {name}" for factor, name in terms]
        if offset or not parts:
            parts.append(str(offset))
        return " + ".join(parts).replace("+ -", "- ")

    def quotient(self, dividend: str, divisor: int) -> str:
        """Division that rounds down."""
        return f"{dividend} // {divisor}"

    def widened(self, dtype: np.dtype, value: str) -> str:
        """A code decoded."""
        return f"{self.helper(f'decode_{dtype.name}')}({value})"

    def operation(self, instruction: Instruction, arguments: Sequence[str], dtypes: Sequence[np.dtype]) -> str:
        """Operators where Python's mean the same on NumPy's scalars, functions where they do not."""
        op, dtype = instruction.op, instruction.dtype
        if op in _SYMBOLS and (dtypes[0].kind != "i" or op not in ("div",)):
            text = f"({arguments[0]} {_SYMBOLS[op]} {arguments[1]})"
            return text if dtype.kind in "fb" or dtype.name == "int64" else f"{_scalar(dtype)}{text}"
        if op == "neg":
            return f"(-{arguments[0]})" if dtype.kind == "f" else f"{_scalar(dtype)}(-{arguments[0]})"
        if op == "not":
            return f"(not {arguments[0]})" if dtype.kind == "b" else f"{_scalar(dtype)}(~{arguments[0]})"
        if op == "select":
            return f"({arguments[1]} if {arguments[0]} else {arguments[2]})"
        if op in _NUMPY and dtypes[0].kind == "f":
            return f"np.{_NUMPY[op]}({', '.join(arguments)})"
        name = instruction.attribute if op == "special" else {"max": "maximum", "min": "minimum"}.get(op, op)
        return f"{self.helper(name)}({', '.join(arguments)})"

    def combine(self, reducer: str, dtype: np.dtype, left: str, right: str) -> str:
        """The reducer as an operation."""
        text = self.operation(Instruction(reducer, (0, 1), dtype), [left, right], [dtype, dtype])
        return text[1:-1] if text.startswith("(") else text

    # ------------------------------------------------------------------ plans
    def call(self, function: str, arguments: Sequence[str]) -> str:
        """A call."""
        return f"{function}({', '.join(arguments)})"

    def temporary(self, name: str, dtype: np.dtype, size: int, offset: int) -> str:
        """A view of the arena."""
        nbytes = size * dtype.itemsize
        return f"{name} = arena[{offset} : {offset + nbytes}].view({_memory(dtype)})"

    def part(self, array: str, position: str, size: int) -> str:
        """A slice."""
        start = position if position.isidentifier() or position.isdigit() else f"({position})"
        return f"{array}[{start} : {start} + {size}]"

    def alias(self, name: str, dtype: np.dtype, array: str) -> str:
        """An assignment."""
        return f"{name} = {array}"

    def copy(self, dtype: np.dtype, target: str, source: str, size: int) -> str:
        """An assignment to all elements."""
        return f"{target}[:] = {source}"

    def exchange(self, left: str, right: str, dtype: np.dtype) -> tuple[str, ...]:
        """One assignment."""
        return (f"{left}, {right} = {right}, {left}",)


def _memory(dtype: np.dtype) -> str:
    if is_complex(dtype):
        return f"np.float{dtype.itemsize * 4}"
    return f"np.uint{8 * dtype.itemsize}" if is_narrow(dtype) else _scalar(dtype)
