"""Kernels as readable Python source, compiled by numba.njit.

Numba widens integers: a sum of two int32 numbers is an int64. So integers are wrapped if an operation may leave their
dtype. Otherwise a register's type may be wider than its dtype, but its value is right. float32 and a literal give
float64, so float32 constants have an explicit dtype, except in comparisons, which are exact.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from rlx.backends.loops.dialect import Dialect, Parameter, bare
from rlx.backends.loops.straight_line import ELEMENTARY
from rlx.backends.loops.words import LanguageWords
from rlx.backends.numba.helper_names import HELPER_NAMES
from rlx.code.functions import Function
from rlx.code.tree import Array, ForLoop
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.kernels import Contract, Instruction, Library, Operand
from rlx.ir.scalar import USER_FUNCTIONS
from rlx.ir.types import compute_dtype, dtype_kind, is_complex, is_narrow

__all__ = ["PythonDialect", "memory_name"]

_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OF_BOOL = {"add": "|", "max": "|", "mul": "&", "min": "&", **_BITWISE}
_NUMPY = {
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "sqrt": "sqrt", "cbrt": "cbrt", "floor": "floor",
    "ceil": "ceil", "trunc": "trunc", "round_even": "rint", "atan2": "arctan2", "log2": "log2", "rem": "fmod",
    "is_finite": "isfinite", "copysign": "copysign", "nextafter": "nextafter",
}  # fmt: skip
# other names that a module defines
_MODULE_NAMES = ("Fraction", "intrinsic", "ir", "math", "njit", "np", "numba", "overload", "partial", "prange", "types")
# products of fewer multiplications are loops
_LEAST_PRODUCT = 1 << 12
# a number with a dtype, or a converted loop index
_NUMBER = r"-?(?:\d[\w.+-]*|np\.inf|np\.nan)"
_LITERAL = re.compile(rf"np\.(\w+)\(({_NUMBER})\)|\(?({_NUMBER})\)?")
_INDEX = re.compile(r"np\.int64\(([a-z]\w*)\)")


def _scalar(dtype: np.dtype) -> str:
    """The NumPy name of a register's type."""
    return "np.bool_" if dtype.kind == "b" else f"np.{dtype.name}"


def memory_name(dtype: np.dtype) -> str:
    """The NumPy name of an array's element type: see ir.types.memory_dtype."""
    if is_complex(dtype):
        return f"np.float{dtype.itemsize * 4}"
    return f"np.uint{8 * dtype.itemsize}" if is_narrow(dtype) else _scalar(dtype)


def _call(name: str, *arguments: str) -> str:
    return f"{name}({', '.join(map(bare, arguments))})"


def _tidy(statement: str) -> str:
    """A statement without needless parentheses."""
    return ast.unparse(ast.parse(statement))


def _plain(text: str) -> str:
    """A literal without its dtype if the value stays the same; a loop index without its conversion."""
    index = _INDEX.fullmatch(text)
    if index:
        return index[1]
    found = _LITERAL.fullmatch(text)
    if not found or not found[1]:
        return text
    name, number = found[1], found[2]
    if name == "float32" and number[-1].isdigit() and float(np.float32(number)) != float(number):
        return text
    return text if name == "uint64" else number


def _sum(text: str, number: int) -> str:
    """The sum of an expression and a number."""
    return str(int(text) + number) if text.isdigit() else f"{text} {'-' if number < 0 else '+'} {abs(number)}"


PYTHON_WORDS = LanguageWords(
    comment="#", block_end="", empty="pass", constant="{name} = {value}", variable="{name} = {value}",
    assign="{name} = {value}", give="return {value}", leave="break", condition="if {condition}:", otherwise="else:",
    while_loop="while {condition}:", endless_loop="while True:", both="({left} and {right})",
    either="({left} or {right})", divided="{dividend} // {divisor}", call="{function}({arguments})", ignore="",
    copy="{target}[:] = {source}", swap="{left}, {right} = {right}, {left}",
    # the read stays in its loop: steps write to arrays, which Numba must assume to alias the flag
    end_if_set=("if {flag}[0]:", "    return"),
)  # fmt: skip


class PythonDialect(Dialect):
    """Python over NumPy arrays, with the helper functions of helpers.py.

    standalone: the source is for a module that needs only NumPy and Numba, in which some names are reserved.
    """

    language = "Numba"
    words = PYTHON_WORDS
    reserved = HELPER_NAMES.union(keyword.kwlist, dir(builtins), _MODULE_NAMES)

    def __init__(self, standalone: bool = False, taken: Iterable[str] = ()) -> None:
        super().__init__()
        self.standalone = standalone
        self.stops = not standalone
        self.reserved = self.reserved.union(taken)

    def function(self, name: str, parameters: Sequence[Parameter], parallel: bool) -> tuple[str, ...]:
        """A function that Numba compiles."""
        mark = "@njit(parallel=True)" if parallel else "@njit"
        return (mark, f"def {name}({', '.join(p.name for p in parameters)}):")

    def scalar_function(self, function: Function, name: str) -> tuple[str, ...]:
        """A function that Numba compiles."""
        return ("@njit", f"def {name}({', '.join(p.name for p in function.parameters)}):")

    def statement(self, form: str, **parts: object) -> str:
        """A statement without needless parentheses."""
        text = form.format(**parts)
        return _tidy(f"{text} pass").splitlines()[0] if text.endswith(":") else _tidy(text)

    def for_loop(self, loop: ForLoop, start: str, stop: str, step: str) -> tuple[str, ...]:
        """A range, on threads if it is parallel."""
        bounds = stop if start == "0" else f"{start}, {stop}"
        if loop.backward:
            bounds = f"{_sum(stop, -1)}, {_sum(start, -1)}, -1"
        elif step != "1":
            bounds = f"{start}, {stop}, {step}"
        return (f"for {loop.index.name} in {'prange' if loop.threads else 'range'}({bounds}):",)

    def declare(self, name: str, dtype: np.dtype, expression: str, changes: bool) -> str:
        """A register that changes has an explicit dtype, as in later assignments."""
        return super().declare(name, dtype, self._typed(dtype, expression) if changes else expression, changes)

    # ------------------------------------------------------------------ memory
    def load(self, dtype: np.dtype, array: str, position: str) -> str:
        """Load an element, decoded if it is narrow."""
        element = self._element(array, position)
        return self.widened(dtype, element) if is_narrow(dtype) else element

    def store(self, dtype: np.dtype, value_dtype: np.dtype, array: str, position: str, value: str) -> str:
        """Store an element, encoded if it is narrow and the value is not; a literal takes the array's dtype."""
        if dtype in INTEGER_FORMATS:
            value = f"{value} & {(1 << INTEGER_FORMATS[dtype].bits) - 1}"
        elif dtype in FLOAT_FORMATS and value_dtype != dtype:
            value = _call(self.helper(f"encode_{dtype.name}"), value)
        return _tidy(f"{self._element(array, position)} = {_plain(value)}")

    def _element(self, array: str, position: str) -> str:
        """With unsigned positions, Numba need not check for negative indices, and loops can be vectorised.

        In a loop without threads, LLVM infers this.
        """
        return f"{array}[np.uintp({position})]" if self.threads and not position.isdigit() else f"{array}[{position}]"

    # ------------------------------------------------------------------ values
    def constant(self, dtype: np.dtype, number: bool | int | float) -> str:
        """A literal; with its dtype for float32 and unsigned integers."""
        if dtype.kind == "b":
            return str(bool(number))
        if dtype_kind(dtype) == "f":
            single = dtype != np.dtype(np.float64)
            if not math.isfinite(number):
                text = "np.nan" if math.isnan(number) else "np.inf" if number > 0 else "-np.inf"
            else:
                text = str(np.float32(number)) if single else repr(float(number))
            return f"np.float32({text})" if single else f"({text})" if text.startswith("-") else text
        register = compute_dtype(dtype)
        if register.kind == "u":
            return f"{_scalar(register)}({number})"
        return f"({number})" if number < 0 else str(number)

    def position(self, terms: Sequence[tuple[int, str]], offset: int) -> str:
        """A sum of products."""
        return super().position([(f, _plain(name) if f == 1 else name) for f, name in terms], offset)

    def widened(self, dtype: np.dtype, value: str) -> str:
        """Decode a code."""
        if dtype not in INTEGER_FORMATS:
            return _call(self.helper(f"decode_{dtype.name}"), value)
        form = INTEGER_FORMATS[dtype]
        if not form.signed:
            return _call("np.uint8", f"{value} & {(1 << form.bits) - 1}")
        return _call("np.int8", _call(self.helper("signed_bits"), value, str(form.bits)))

    def _typed(self, dtype: np.dtype, text: str) -> str:
        """Add the dtype to a literal; other expressions have it."""
        found = _LITERAL.fullmatch(bare(text))
        return _call(_scalar(compute_dtype(dtype)), text) if found and found[3] and dtype.kind != "b" else text

    def _wrapped(self, dtype: np.dtype, text: str) -> str:
        """Wrap a number that may be out of its dtype's range."""
        return text if dtype.kind in "bf" else _call(_scalar(compute_dtype(dtype)), text)

    def operation(self, instruction: Instruction, arguments: Sequence[str], dtypes: Sequence[np.dtype]) -> str:
        """Python operators with the same semantics on NumPy scalars, otherwise functions."""
        op, dtype, source = instruction.op, instruction.dtype, dtypes[0]
        if instruction.attribute == "reduction" and op == "add" and dtype_kind(dtype) == "f":
            return _call(self.helper("plus"), *arguments)  # a sum in any order
        if op in _COMPARISONS:
            left, right = map(_plain, arguments)
            return f"({left} {_COMPARISONS[op]} {right})"
        if op == "select":
            yes, no = (self._typed(dtype, a) for a in arguments[1:])
            # a conditional expression needs parentheses as the condition of another one
            condition = arguments[0] if " if " in arguments[0] else bare(arguments[0])
            return f"({yes} if {condition} else {no})"
        if op == "cast":
            return self._cast(dtype, source, arguments[0])
        if op == "bitcast":
            return self._bitcast(dtype, source, arguments[0])
        if op == "special":
            return self._special(instruction.attribute, dtype, arguments)
        if source.kind == "b":
            return f"(not {arguments[0]})" if op == "not" else f"({arguments[0]} {_OF_BOOL[op]} {arguments[1]})"
        of = self._real if dtype_kind(source) == "f" else self._integer
        return of(op, source, arguments)

    def _real(self, op: str, dtype: np.dtype, arguments: Sequence[str]) -> str:
        """An operation of floats."""
        if op in _ARITHMETIC:
            return f"({arguments[0]} {_ARITHMETIC[op]} {arguments[1]})"
        if op == "neg":
            return f"(-{arguments[0]})"
        if op == "abs":
            return _call("abs", arguments[0])
        if op == "rsqrt":
            return f"({self.constant(dtype, 1.0)} / {_call('np.sqrt', arguments[0])})"
        if op in _NUMPY:
            return _call(f"np.{_NUMPY[op]}", *arguments)
        if op in ELEMENTARY:
            self.helper(f"{op}_{dtype.name}")
        name = {"max": "maximum", "min": "minimum"}.get(op, op)
        return _call(self.helper(name), *(self._typed(dtype, a) for a in arguments))

    def _integer(self, op: str, dtype: np.dtype, arguments: Sequence[str]) -> str:
        """An operation of integers."""
        x, y = arguments[0], arguments[-1]
        if op in _BITWISE:
            return f"({x} {_BITWISE[op]} {y})"
        if op in ("min", "max"):
            return _call(op, x, y)
        if op == "neg" or op == "not":
            return self._wrapped(dtype, f"{'-' if op == 'neg' else '~'}{x}")
        if op in ("add", "sub", "mul"):
            return self._wrapped(dtype, f"{x} {_ARITHMETIC[op]} {y}")
        if op == "abs":
            return x if dtype.kind == "u" else self._wrapped(dtype, _call("abs", x))
        if op == "sign":
            return self._wrapped(dtype, f"1 if {x} > 0 else {'0' if dtype.kind == 'u' else f'-1 if {x} < 0 else 0'}")
        if op in ("div", "rem"):
            name = "quotient" if op == "div" else "remainder"
            return self._wrapped(dtype, _call(self.helper(f"unsigned_{name}" if dtype.kind == "u" else name), x, y))
        bits = f"{8 * dtype.itemsize}"
        if op in ("population_count", "count_leading_zeros"):
            return self._wrapped(dtype, _call(self.helper(op), f"np.uint{bits}({bare(x)})"))
        return self._wrapped(dtype, self._shift(op, dtype, x, y, bits))

    def _shift(self, op: str, dtype: np.dtype, x: str, y: str, bits: str) -> str:
        """A shift by an operator if the number of bits is known, otherwise by a helper."""
        read = {"shift_right_arithmetic": "int", "shift_right_logical": "uint"}.get(op, dtype.name.rstrip("12346578"))
        number = f"np.{read}{bits}"
        own = dtype.name == f"{read}{bits}"
        seen = x if own else _call(number, x)
        found = _LITERAL.fullmatch(bare(y))
        count = (found[2] or found[3]) if found else ""
        if count.isdigit() and int(count) < int(bits):
            places = self.constant(np.dtype(f"{read}{bits}"), int(count))
            return f"({seen} {'<<' if op == 'shift_left' else '>>'} {places})"
        name = "shift_right" if op == "shift_right_logical" else op
        return _call(self.helper(name), seen, y if own else _call(number, y), bits)

    def _cast(self, target: np.dtype, source: np.dtype, x: str) -> str:
        """Floats become integers by truncation and saturation; narrow floats are codes."""
        if source in FLOAT_FORMATS:
            x, source = self.widened(source, x), np.dtype(np.float32)
        if target.kind == "b":
            return f"({x} != 0)"
        if target in FLOAT_FORMATS:
            if source.name == "float64" and target.name == "float16":
                x = _call(self.helper("round_to_odd_float64"), x)
            single = x if source.name == "float32" else _call("np.float32", _plain(x))
            return _call(self.helper(f"encode_{target.name}"), self._typed(np.dtype(np.float32), single))
        if dtype_kind(target) == "f":
            return _call(_scalar(target), _plain(x))
        if dtype_kind(source) == "f":
            return self._saturated(target, x)
        register = _call(_scalar(compute_dtype(target)), _plain(x))
        form = INTEGER_FORMATS.get(target)
        return register if form is None else self.widened(target, register)

    def _saturated(self, target: np.dtype, x: str) -> str:
        register = compute_dtype(target)
        if register.itemsize == 8:
            return _call(self.helper(f"to_{register.name}"), x)
        bounds = ml_dtypes.iinfo(target)
        return _call(_scalar(register), _call(self.helper("saturated"), x, str(bounds.min), str(bounds.max)))

    def _bitcast(self, target: np.dtype, source: np.dtype, x: str) -> str:
        """The same bits; registers of narrow floats hold them."""
        if source in INTEGER_FORMATS:
            x = f"({x} & {(1 << INTEGER_FORMATS[source].bits) - 1})"
        if target in INTEGER_FORMATS:
            return self.widened(target, x)
        kept, held = (np.dtype(f"u{d.itemsize}") if is_narrow(d) else d for d in (target, source))
        if kept.kind in "iu" and held.kind in "iu":
            return _call(_scalar(kept), x)
        return f"{_call(_scalar(held), x)}.view({_scalar(kept)})"

    def _special(self, name: str, dtype: np.dtype, arguments: Sequence[str]) -> str:
        """A function of float64 numbers from SciPy or from a user."""
        if name in USER_FUNCTIONS:
            typed = [_call(_scalar(d), a) for d, a in zip(USER_FUNCTIONS[name].operands, arguments, strict=True)]
            return _call(self.helper(name), *typed)
        if dtype.name == "float64":
            return _call(self.helper(name), *arguments)
        return _call(_scalar(dtype), _call(self.helper(name), *(_call("np.float64", a) for a in arguments)))

    # ------------------------------------------------------------------ plans
    def view(self, array: Array, source: Array, offset: str) -> str:
        """The same array, or a slice as an array of another dtype."""
        if (array.dtype, array.shape) == (source.dtype, source.shape):
            return f"{array.name} = {source.name}"
        return f"{array.name} = {source.name}[{offset}:{_sum(offset, array.nbytes)}].view({memory_name(array.dtype)})"

    def part(self, array: Array, position: str, size: int) -> str:
        """A slice."""
        whole = position == "0" and array.shape == (size,)
        return array.name if whole else f"{array.name}[{position}:{_sum(position, size)}]"

    # ------------------------------------------------------------------ whole kernels
    def multiplies(self, kernel: Contract) -> bool:
        """np.dot, but not for small products, and not without SciPy, whose BLAS Numba calls."""
        return not self.standalone and kernel.rows * kernel.columns * kernel.depth >= _LEAST_PRODUCT

    def library_call(self, kernel: Contract | Library, *operands: str) -> str:
        """np.dot."""
        assert isinstance(kernel, Contract), "Numba has no routines"
        lhs, rhs, out = operands
        x, y = self._matrix(kernel.lhs, lhs, False), self._matrix(kernel.rhs, rhs, False)
        z = self._matrix(kernel.out, out, True)
        if kernel.accumulate or not _is_dense(kernel.out):
            return f"{z}[:] {'+=' if kernel.accumulate else '='} np.dot({x}, {y})"
        return f"np.dot({x}, {y}, {z})"

    def _matrix(self, operand: Operand, array: str, written: bool) -> str:
        """A matrix for np.dot: dense, or a dense copy; a matrix that is written is never copied."""
        dtype, (rows, columns), (stride, step) = operand.buffer.dtype, operand.shape[-2:], operand.strides[-2:]
        if is_complex(dtype):
            array = f"{array}.view(np.{dtype.name})"
        if not _is_dense(operand) and not _is_dense(_transposed(operand)):
            parts = f"({rows}, {columns}), ({stride * dtype.itemsize}, {step * dtype.itemsize})"
            strided = f"np.lib.stride_tricks.as_strided({array}, {parts})"
            return strided if written else f"np.ascontiguousarray({strided})"
        if _is_dense(operand):
            return f"{array}.reshape({rows}, {columns})"
        return f"{array}.reshape({columns}, {rows}).T"


def _is_dense(operand: Operand) -> bool:
    """Whether the rows of a matrix are contiguous."""
    (rows, columns), (stride, step) = operand.shape[-2:], operand.strides[-2:]
    return (columns == 1 or step == 1) and (rows == 1 or stride == columns)


def _transposed(operand: Operand) -> Operand:
    return replace(operand, shape=operand.shape[:-3:-1], strides=operand.strides[:-3:-1])
