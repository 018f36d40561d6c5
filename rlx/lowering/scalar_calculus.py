"""Scalar handles and the calculus on them, recorded as nodes of the closed scalar alphabet.

This module computes with machine numbers. scalar_builder.py also computes with complex and narrow numbers, by
formulas over this calculus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rlx.ir.dims import is_sized
from rlx.ir.scalar import SPECIAL, USER_FUNCTIONS
from rlx.ir.sized_scalars import SizedScalar
from rlx.ir.types import bits_of, compute_dtype, dtype_kind
from rlx.lowering.lowered import LoweredValue
from rlx.lowering.nodes import INT64, Node, NodeTable
from rlx.lowering.rounding import rounded
from rlx.lowering.scalar_fold import fold

__all__ = ["Operand", "Scalar", "ScalarCalculus"]

BOOL = np.dtype(bool)


class Scalar:
    """A handle on one scalar value: its nodes and the dtype it has in the program."""

    __slots__ = ("builder", "dtype", "imaginary", "node")

    def __init__(self, builder: ScalarCalculus, dtype: np.dtype, node: Node, imaginary: Node | None = None) -> None:
        self.builder = builder
        self.dtype = dtype
        self.node = node
        self.imaginary = imaginary

    @property
    def is_complex(self) -> bool:
        """Whether the value is a pair of real nodes."""
        return self.imaginary is not None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The real node, or the real and the imaginary one."""
        return (self.node,) if self.imaginary is None else (self.node, self.imaginary)

    def __add__(self, other: Operand) -> Scalar:
        return self.builder.add(self, other)

    def __radd__(self, other: Operand) -> Scalar:
        return self.builder.add(other, self)

    def __sub__(self, other: Operand) -> Scalar:
        return self.builder.sub(self, other)

    def __rsub__(self, other: Operand) -> Scalar:
        return self.builder.sub(other, self)

    def __mul__(self, other: Operand) -> Scalar:
        return self.builder.mul(self, other)

    def __rmul__(self, other: Operand) -> Scalar:
        return self.builder.mul(other, self)

    def __truediv__(self, other: Operand) -> Scalar:
        return self.builder.div(self, other)

    def __rtruediv__(self, other: Operand) -> Scalar:
        return self.builder.div(other, self)

    def __neg__(self) -> Scalar:
        return self.builder.neg(self)

    def __abs__(self) -> Scalar:
        return self.builder.abs(self)

    def __and__(self, other: Operand) -> Scalar:
        return self.builder.and_(self, other)

    def __or__(self, other: Operand) -> Scalar:
        return self.builder.or_(self, other)

    def __xor__(self, other: Operand) -> Scalar:
        return self.builder.xor(self, other)

    def __invert__(self) -> Scalar:
        return self.builder.not_(self)

    def __lt__(self, other: Operand) -> Scalar:
        return self.builder.lt(self, other)

    def __le__(self, other: Operand) -> Scalar:
        return self.builder.le(self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return self.builder.gt(self, other)

    def __ge__(self, other: Operand) -> Scalar:
        return self.builder.ge(self, other)

    def __repr__(self) -> str:
        return f"Scalar({self.dtype.name}, {self.node.op})"


Operand = Scalar | bool | int | float | complex | np.generic


class Tensors(Protocol):
    """A kernel builder that elements are loaded from."""

    def load_element(self, builder: Any, source: LoweredValue, positions: Sequence[Any]) -> Scalar:
        """The element of `source` at computed positions."""
        ...


class ScalarCalculus:
    """One method for each scalar operation.

    Operands have equal dtypes; Python numbers take the dtype of the others. Method names that
    would be Python keywords end in an underscore: `and_`, `or_`, `not_`.
    """

    __slots__ = ("kernels", "rank", "table")

    def __init__(self, kernels: Tensors | None, table: NodeTable, rank: int) -> None:
        self.kernels = kernels
        self.table = table
        self.rank = rank

    # ------------------------------------------------------------ leaves
    def constant(self, value: Any, dtype: Any) -> Scalar:
        """A literal of the given dtype."""
        dtype = np.dtype(dtype)
        if is_sized(value) and dtype.kind != "c":
            return Scalar(self, dtype, self.table.constant(SizedScalar.of(value, dtype), compute_dtype(dtype)))
        value = np.asarray(value)
        with np.errstate(all="ignore"):
            value = value.astype(dtype)
        compute = compute_dtype(dtype)
        if dtype.kind == "c":
            real, imaginary = (self.table.constant(v, compute) for v in (value.real, value.imag))
            return Scalar(self, dtype, real, imaginary)
        return Scalar(self, dtype, self.table.constant(value.astype(compute), compute))

    def constant_like(self, x: Scalar, value: Any) -> Scalar:
        """A literal of x's dtype."""
        return self.constant(value, x.dtype)

    def index(self, axis: int) -> Scalar:
        """The position along an axis of the result, int64."""
        strides = tuple(int(d == axis) for d in range(self.rank))
        return Scalar(self, INT64, self.table.affine(strides, 0))

    def load(self, source: LoweredValue, positions: Sequence[Operand]) -> Scalar:
        """The element of another lowered value at int64 positions, one for each of its axes."""
        assert self.kernels is not None
        return self.kernels.load_element(self, source, positions)

    # ------------------------------------------------------------ plumbing
    def lift(self, x: Operand, dtype: np.dtype) -> Scalar:
        """A handle for an operand that may be a Python number."""
        return x if isinstance(x, Scalar) else self.constant(x, dtype)

    def _common(self, *operands: Operand) -> list[Scalar]:
        dtype = next((x.dtype for x in operands if isinstance(x, Scalar)), None)
        if dtype is None:
            raise TypeError("a scalar operation needs at least one operand that is not a number")
        scalars = [self.lift(x, dtype) for x in operands]
        for x in scalars:
            if x.dtype != dtype:
                raise TypeError(f"scalar operands differ in dtype: {dtype.name}, {x.dtype.name}")
        return scalars

    def _emit(self, op: str, args: tuple[Node, ...], dtype: np.dtype, attribute: Any = None) -> Node:
        return fold(self.table, op, args, dtype, attribute)

    def _unary(self, op: str, x: Operand) -> Scalar:
        return self.same_dtype(op, *self._common(x))

    def _binary(self, op: str, x: Operand, y: Operand) -> Scalar:
        return self.same_dtype(op, *self._common(x, y))

    def _compare(self, op: str, x: Operand, y: Operand) -> Scalar:
        return self.truth(op, *self._common(x, y))

    def same_dtype(self, op: str, *operands: Scalar) -> Scalar:
        """An operation of the alphabet whose result has its operands' dtype."""
        first = operands[0]
        return Scalar(self, first.dtype, self._emit(op, tuple(x.node for x in operands), first.node.dtype))

    def truth(self, op: str, x: Scalar, y: Scalar) -> Scalar:
        """A comparison of the alphabet."""
        return Scalar(self, BOOL, self._emit(op, (x.node, y.node), BOOL))

    def real_scalar(self, node: Node, dtype: np.dtype) -> Scalar:
        """A handle on a node, seen as a real value of `dtype`."""
        return Scalar(self, dtype, node)

    def reducer(self, op: str, x: Operand, y: Operand) -> Scalar:
        """Combine two values by one of REDUCERS."""
        return self._binary(op, x, y)

    # ------------------------------------------------------------ arithmetic
    def add(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("add", x, y)

    def sub(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("sub", x, y)

    def mul(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("mul", x, y)

    def div(self, x: Operand, y: Operand) -> Scalar:
        """Quotient; integers truncate."""
        return self._binary("div", x, y)

    def rem(self, x: Operand, y: Operand) -> Scalar:
        """Remainder with the sign of x."""
        return self._binary("rem", x, y)

    def min(self, x: Operand, y: Operand) -> Scalar:
        """The smaller one; NaN if either is NaN."""
        return self._binary("min", x, y)

    def max(self, x: Operand, y: Operand) -> Scalar:
        """The larger one; NaN if either is NaN."""
        return self._binary("max", x, y)

    def pow(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("pow", x, y)

    def atan2(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("atan2", x, y)

    def nextafter(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("nextafter", x, y)

    def copysign(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("copysign", x, y)

    def fma(self, x: Operand, y: Operand, z: Operand) -> Scalar:
        """x * y + z, rounded once (complex: as written)."""
        x, y, z = self._common(x, y, z)
        if x.is_complex:
            return x * y + z
        return Scalar(self, x.dtype, self._emit("fma", (x.node, y.node, z.node), x.node.dtype))

    def neg(self, x: Operand) -> Scalar:
        return self._unary("neg", x)

    def abs(self, x: Operand) -> Scalar:
        """Magnitude; real for complex x."""
        (x,) = self._common(x)
        return x if dtype_kind(x.dtype) in "bu" else self._unary("abs", x)

    def sign(self, x: Operand) -> Scalar:
        return self._unary("sign", x)

    def square(self, x: Operand) -> Scalar:
        (x,) = self._common(x)
        return self._unary("square", x) if x.is_complex else self.mul(x, x)

    def reciprocal(self, x: Operand) -> Scalar:
        (x,) = self._common(x)
        return self.div(self.constant_like(x, 1), x)

    def clamp(self, low: Operand, x: Operand, high: Operand) -> Scalar:
        """x limited to low..high."""
        return self.min(self.max(x, low), high)

    # ------------------------------------------------------------ rounding and tests
    def floor(self, x: Operand) -> Scalar:
        return self._unary("floor", x)

    def ceil(self, x: Operand) -> Scalar:
        return self._unary("ceil", x)

    def round_even(self, x: Operand) -> Scalar:
        return self._unary("round_even", x)

    def trunc(self, x: Operand) -> Scalar:
        return self._unary("trunc", x)

    def is_finite(self, x: Operand) -> Scalar:
        (x,) = self._common(x)
        tests = [Scalar(self, BOOL, self._emit("is_finite", (n,), BOOL)) for n in x.nodes]
        return tests[0] if len(tests) == 1 else self.and_(*tests)

    def is_nan(self, x: Operand) -> Scalar:
        (x,) = self._common(x)
        return self.ne(x, x)

    # ------------------------------------------------------------ transcendental
    def sqrt(self, x: Operand) -> Scalar:
        return self._unary("sqrt", x)

    def rsqrt(self, x: Operand) -> Scalar:
        return self._unary("rsqrt", x)

    def cbrt(self, x: Operand) -> Scalar:
        return self._unary("cbrt", x)

    def exp(self, x: Operand) -> Scalar:
        return self._unary("exp", x)

    def exp2(self, x: Operand) -> Scalar:
        return self._unary("exp2", x)

    def expm1(self, x: Operand) -> Scalar:
        return self._unary("expm1", x)

    def log(self, x: Operand) -> Scalar:
        return self._unary("log", x)

    def log1p(self, x: Operand) -> Scalar:
        return self._unary("log1p", x)

    def log2(self, x: Operand) -> Scalar:
        return self._unary("log2", x)

    def sin(self, x: Operand) -> Scalar:
        return self._unary("sin", x)

    def cos(self, x: Operand) -> Scalar:
        return self._unary("cos", x)

    def tan(self, x: Operand) -> Scalar:
        return self._unary("tan", x)

    def asin(self, x: Operand) -> Scalar:
        return self._unary("asin", x)

    def acos(self, x: Operand) -> Scalar:
        return self._unary("acos", x)

    def atan(self, x: Operand) -> Scalar:
        return self._unary("atan", x)

    def sinh(self, x: Operand) -> Scalar:
        return self._unary("sinh", x)

    def cosh(self, x: Operand) -> Scalar:
        return self._unary("cosh", x)

    def tanh(self, x: Operand) -> Scalar:
        return self._unary("tanh", x)

    def asinh(self, x: Operand) -> Scalar:
        return self._unary("asinh", x)

    def acosh(self, x: Operand) -> Scalar:
        return self._unary("acosh", x)

    def atanh(self, x: Operand) -> Scalar:
        return self._unary("atanh", x)

    def erf(self, x: Operand) -> Scalar:
        return self._unary("erf", x)

    def erfc(self, x: Operand) -> Scalar:
        return self._unary("erfc", x)

    def erf_inv(self, x: Operand) -> Scalar:
        return self._unary("erf_inv", x)

    def logistic(self, x: Operand) -> Scalar:
        return self._unary("logistic", x)

    def special(self, name: str, *operands: Operand) -> Scalar:
        """A function of ir.scalar.SPECIAL."""
        scalars = self._common(*operands)
        if SPECIAL[name].arity != len(scalars):
            raise TypeError(f"{name} takes {SPECIAL[name].arity} operands, not {len(scalars)}")
        node = self._emit("special", tuple(x.node for x in scalars), scalars[0].node.dtype, name)
        return Scalar(self, scalars[0].dtype, node)

    def user_function(self, name: str, dtype: np.dtype, *operands: Scalar) -> Scalar:
        """A function of ir.scalar.USER_FUNCTIONS, its result seen as one of `dtype`."""
        nodes = tuple(x.node for x in operands)
        node = self.table.make("special", nodes, USER_FUNCTIONS[name].result, name)
        return Scalar(self, dtype, node)

    # ------------------------------------------------------------ comparisons and bits
    def eq(self, x: Operand, y: Operand) -> Scalar:
        return self._compare("eq", x, y)

    def ne(self, x: Operand, y: Operand) -> Scalar:
        return self._compare("ne", x, y)

    def lt(self, x: Operand, y: Operand) -> Scalar:
        return self._compare("lt", x, y)

    def le(self, x: Operand, y: Operand) -> Scalar:
        return self._compare("le", x, y)

    def gt(self, x: Operand, y: Operand) -> Scalar:
        return self._compare("gt", x, y)

    def ge(self, x: Operand, y: Operand) -> Scalar:
        return self._compare("ge", x, y)

    def and_(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("and", x, y)

    def or_(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("or", x, y)

    def xor(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("xor", x, y)

    def not_(self, x: Operand) -> Scalar:
        return self._unary("not", x)

    def shift_left(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("shift_left", x, y)

    def shift_right_logical(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("shift_right_logical", x, y)

    def shift_right_arithmetic(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("shift_right_arithmetic", x, y)

    def population_count(self, x: Operand) -> Scalar:
        return self._unary("population_count", x)

    def count_leading_zeros(self, x: Operand) -> Scalar:
        return self._unary("count_leading_zeros", x)

    def select(self, predicate: Scalar, on_true: Operand, on_false: Operand) -> Scalar:
        """on_true if the bool predicate is true, otherwise on_false."""
        on_true, on_false = self._common(on_true, on_false)
        if predicate.dtype != BOOL:
            raise TypeError(f"the predicate of a select is bool, not {predicate.dtype.name}")
        parts = [
            self._emit("select", (predicate.node, a, b), a.dtype)
            for a, b in zip(on_true.nodes, on_false.nodes, strict=True)
        ]
        return Scalar(self, on_true.dtype, *parts)

    # ------------------------------------------------------------ complex parts
    def complex(self, real: Operand, imaginary: Operand) -> Scalar:
        """A complex value of two real ones (float32 or float64)."""
        real, imaginary = self._common(real, imaginary)
        dtype = np.dtype(f"c{2 * real.node.dtype.itemsize}")
        return Scalar(self, dtype, real.node, imaginary.node)

    def real(self, x: Scalar) -> Scalar:
        """The real part; a real value is its own."""
        return x if x.imaginary is None else Scalar(self, x.node.dtype, x.node)

    def imag(self, x: Scalar) -> Scalar:
        """The imaginary part; zero for a real value."""
        if x.imaginary is None:
            return self.constant_like(x, 0)
        return Scalar(self, x.node.dtype, x.imaginary)

    def conj(self, x: Scalar) -> Scalar:
        """The complex conjugate."""
        return x if x.imaginary is None else self.complex(self.real(x), -self.imag(x))

    # ------------------------------------------------------------ conversions
    def cast(self, x: Scalar, dtype: Any) -> Scalar:
        """x converted to another dtype; a complex value loses its imaginary part."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if dtype == BOOL:
            return self.ne(x, self.constant_like(x, 0))
        compute = compute_dtype(dtype)
        if dtype.kind == "c":
            real = self._cast_node(self.rounded(x).node, compute)
            imaginary = self.table.constant(0, compute)
            if x.imaginary is not None:
                imaginary = self._cast_node(x.imaginary, compute)
            return Scalar(self, dtype, real, imaginary)
        node = self.rounded(self.real(x)).node
        if compute != dtype:  # round to the narrow format, then keep in float32
            return Scalar(self, dtype, self._cast_node(self._emit("cast", (node,), dtype), compute))
        return Scalar(self, dtype, self._cast_node(node, compute))

    convert = cast

    def rounded(self, x: Scalar) -> Scalar:
        """x rounded to its dtype if it was computed in a wider one; integers are already wrapped."""
        node = rounded(self.table, x.node, x.dtype)
        return x if node is x.node else Scalar(self, x.dtype, node)

    def bitcast(self, x: Scalar, dtype: Any) -> Scalar:
        """The same bits read as another dtype of equal width."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if bits_of(dtype) != bits_of(x.dtype) or "c" in (dtype.kind, x.dtype.kind):
            raise TypeError(f"cannot bitcast a {x.dtype.name} scalar to {dtype.name}")
        if BOOL in (dtype, x.dtype):
            return self.cast(x, dtype)
        return self.reread(x, dtype)

    def reread(self, x: Scalar, dtype: np.dtype) -> Scalar:
        """The bits of x as another dtype, which is as wide."""
        return Scalar(self, dtype, self._emit("bitcast", (x.node,), dtype))

    def _cast_node(self, node: Node, dtype: np.dtype) -> Node:
        return self._emit("cast", (node,), dtype)
