"""The algebra of arrays as rewrite rules, each exact for NaN, infinities and signed zeros.

Not here, because they are not exact for floats: x + 0.0 (turns -0.0 into 0.0), x * 0, x - x, x / x,
a sum over no axes (which turns -0.0 into 0.0), and anything that reassociates.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from rlx.ir.dims import is_sized
from rlx.ir.program import Atom, Literal
from rlx.ir.rewrite import Match, Rule, RuleSet
from rlx.ir.types import TensorType, bits_of, broadcast_sizes, dtype_kind, is_float, is_integer
from rlx.passes.fold import folded

__all__ = ["arithmetic", "dtypes", "folding", "logic", "splat", "splats", "spread"]


# ------------------------------------------------------------------ helpers
def full(m: Match, type: TensorType, value: Any) -> Atom:
    """A number as an array of a type."""
    return spread(m, Literal(np.asarray(value, type.dtype), TensorType((), type.dtype, type.weak)), type.shape)


def spread(m: Match, atom: Atom, shape: tuple[int, ...]) -> Atom:
    """`atom` broadcast to a shape like NumPy."""
    own = atom.type.shape
    if own == shape:
        return atom
    lead = len(shape) - len(own)
    result: Atom = m.emit("broadcast_in_dim", atom, shape=shape, dims=tuple(range(lead, len(shape))))
    return result


def splat(m: Match, atom: Atom) -> Literal | None:
    """The number that fills an operand, if that is known."""
    if isinstance(atom, Literal):
        return atom
    source = m.producer(atom, "broadcast_in_dim")
    if source is not None and isinstance(source.inputs[0], Literal):
        return source.inputs[0]
    return None


# ------------------------------------------------------------------ numbers
def _times_inverse(m: Match) -> Atom | None:
    """1 / c if that is exact: c is a power of two and 1 / c neither overflows nor is subnormal.

    Means are divided by their counts: of other counts they have the same code.
    """
    divisor = m.inputs[1]
    if not isinstance(divisor, Literal) or is_sized(divisor.value):
        return None
    if m.producer(m.inputs[0], "reduce_sum") is not None:
        return None
    value = float(divisor.value)
    info = ml_dtypes.finfo(divisor.type.dtype)
    if value == 0 or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    inverse = 1 / value
    if not float(info.smallest_normal) <= abs(inverse) <= float(info.max):
        return None
    literal = Literal(np.asarray(inverse, divisor.type.dtype), divisor.type)
    result: Atom = m.emit("multiply", m.inputs[0], literal)
    return result


def _integer_power(m: Match) -> Atom | None:
    (x,) = m.inputs
    match m.params["exponent"]:
        case 0:
            return full(m, m.type, 1)
        case 1:
            return x
        case 2:
            result: Atom = m.emit("multiply", x, x)
            return result
    return None


def _half_power(m: Match) -> Atom | None:
    """x ** 0.5 or x ** -0.5 of floats in registers: a square root, but for infinity and the sign of zero."""
    x, exponent = m.inputs
    known = splat(m, exponent)
    if m.type.dtype.itemsize < 4 or known is None or abs(float(known.value)) != 0.5:
        return None

    def literal(value: float) -> Literal:
        return Literal(np.asarray(value, m.type.dtype), TensorType((), m.type.dtype))

    x = spread(m, x, m.type.shape)
    values, at_infinity = m.emit("sqrt", m.emit("add", x, literal(0.0))), math.inf
    if float(known.value) < 0:
        values, at_infinity = m.emit("divide", literal(1.0), values), 0.0
    result: Atom = m.emit("select", m.emit("equal", x, literal(-math.inf)), literal(at_infinity), values)
    return result


def _zero(m: Match) -> Atom:
    return full(m, m.type, 0)


def _where_splat(m: Match) -> Atom | None:
    """select with a predicate that is one known value."""
    predicate = splat(m, m.inputs[0])
    if predicate is None:
        return None
    chosen = m.inputs[1] if predicate.value else m.inputs[2]
    return spread(m, chosen, m.type.shape)


def _predicate(m: Match, *, negated: bool) -> Atom | None:
    """A bool that selects itself."""
    if m.type.dtype != np.bool_:
        return None
    p: Atom = m.emit("bitwise_not", m.inputs[0]) if negated else m.inputs[0]
    return spread(m, p, m.type.shape)


def _same_cases(m: Match) -> Atom:
    return spread(m, m["x"], m.type.shape)


arithmetic = RuleSet(
    (
        Rule("multiply(x, 1) -> x", kinds="iuf"),  # complex: inf * (1 + 0j) is not inf
        Rule("multiply(x, 0) -> 0", _zero, kinds="iu"),
        Rule("multiply(x, -1) -> negative(x)", kinds="if"),
        Rule("multiply(negative(x), negative(y)) -> multiply(x, y)", kinds="iuf"),
        Rule("divide(x, 1) -> x", kinds="iuf"),
        Rule("divide(x, -1) -> negative(x)", kinds="f"),
        Rule("divide -> multiply by the inverse of a power of two", _times_inverse, kinds="f"),
        Rule("divide(negative(x), negative(y)) -> divide(x, y)", kinds="f"),
        Rule("add(x, 0) -> x", kinds="iu"),
        Rule("add(x, -0.0) -> x", kinds="f"),
        Rule("add(x, negative(y)) -> subtract(x, y)", kinds="iuf"),
        Rule("subtract(x, 0) -> x", kinds="iuf"),
        Rule("subtract(x, x) -> 0", _zero, kinds="iu"),
        Rule("subtract(x, negative(y)) -> add(x, y)", kinds="iuf"),
        Rule("subtract(0, x) -> negative(x)", kinds="iu"),
        Rule("subtract(-0.0, x) -> negative(x)", kinds="f"),
        Rule("negative(negative(x)) -> x"),
        Rule("absolute(absolute(x)) -> absolute(x)", kinds="iuf"),
        Rule("absolute(negative(x)) -> absolute(x)", kinds="if"),
        Rule("square(x) -> multiply(x, x)", kinds="iuf"),  # of complex numbers it is more exact
        Rule("integer_power(x, exponent=2) -> multiply(x, x)", _integer_power),
        Rule("power(x, 1) -> x", kinds="f"),
        Rule("power(x, 2) -> multiply(x, x)", kinds="f"),
        Rule("power -> sqrt of x if the exponent is 0.5 or -0.5", _half_power, kinds="f"),
        Rule("maximum(x, x) -> x"),
        Rule("minimum(x, x) -> x"),
        Rule("conj(conj(x)) -> x"),
        Rule("real(complex(x, y)) -> x", lambda m: _part(m, 0)),
        Rule("imag(complex(x, y)) -> y", lambda m: _part(m, 1)),
    ),
    commutative=("add", "multiply", "maximum", "minimum"),
)


def _part(m: Match, position: int) -> Atom | None:
    source = m.producer(m.inputs[0], "complex")
    return None if source is None else spread(m, source.inputs[position], m.type.shape)


# ------------------------------------------------------------------ truth and bits
def _known_bits(m: Match) -> tuple[bool, Atom] | None:
    """(whether one operand has all bits set, or none; the other operand), if known."""
    for atom, other in (m.inputs, m.inputs[::-1]):
        known = splat(m, atom)
        if known is not None and known.value == 0:
            return False, spread(m, other, m.type.shape)
        if known is not None and known.value == np.invert(np.zeros((), known.type.dtype)):
            return True, spread(m, other, m.type.shape)
    return None


def _bitwise_and(m: Match) -> Atom | None:
    found = _known_bits(m)
    if found is None:
        return None
    return found[1] if found[0] else full(m, m.type, 0)


def _bitwise_or(m: Match) -> Atom | None:
    found = _known_bits(m)
    if found is None:
        return None
    return full(m, m.type, np.invert(np.zeros((), m.type.dtype))) if found[0] else found[1]


def _bitwise_xor(m: Match) -> Atom | None:
    found = _known_bits(m)
    if found is None:
        return None
    result: Atom = m.emit("bitwise_not", found[1]) if found[0] else found[1]
    return result


logic = RuleSet((
    Rule("bitwise_not(bitwise_not(x)) -> x"),
    Rule("bitwise_and(x, x) -> x"),
    Rule("bitwise_and -> x with all bits set, 0 with none", _bitwise_and),
    Rule("bitwise_or(x, x) -> x"),
    Rule("bitwise_or -> x with no bits set, all bits with all", _bitwise_or),
    Rule("bitwise_xor(x, x) -> 0", _zero),
    Rule("bitwise_xor -> x with no bits set, not x with all", _bitwise_xor),
    Rule("shift_left(x, 0) -> x"),
    Rule("shift_right_logical(x, 0) -> x"),
    Rule("shift_right_arithmetic(x, 0) -> x"),
    Rule("select -> x if the predicate is one value", _where_splat),
    Rule("select(p, x, x) -> x", _same_cases),
    Rule("select(p, 1, 0) -> p where the cases are bools", lambda m: _predicate(m, negated=False)),
    Rule("select(p, 0, 1) -> bitwise_not(p) where the cases are bools", lambda m: _predicate(m, negated=True)),
    Rule("select(bitwise_not(p), x, y) -> select(p, y, x)"),
))  # fmt: skip


# ------------------------------------------------------------------ dtypes
def _digits(dtype: np.dtype) -> int:
    """Binary digits of the integers that a float represents exactly."""
    return int(ml_dtypes.finfo(dtype).nmant) + 1


def lossless(source: np.dtype, target: np.dtype) -> bool:
    """Whether every value of one dtype is a value of the other."""
    if source == target:
        return True
    if source.kind == "b":
        return is_integer(target) or is_float(target)
    if is_integer(source):
        if is_integer(target):
            inner, outer = ml_dtypes.iinfo(source), ml_dtypes.iinfo(target)
            return bool(outer.min <= inner.min and inner.max <= outer.max)
        bits = bits_of(source) - (dtype_kind(source) == "i")
        return is_float(target) and target.itemsize >= 4 and bits <= _digits(target)
    wide = target.itemsize >= 4 and target.itemsize > source.itemsize
    return wide and is_float(source) and is_float(target)


def _convert(m: Match) -> Atom | None:
    """A -> A is removed; A -> B -> C is A -> C if B keeps all of A."""
    (x,) = m.inputs
    if m.type.dtype == x.type.dtype:
        return x
    inner = m.producer(x, "convert")
    if inner is None:
        return None
    (origin,) = inner.inputs
    first, middle, last = origin.type.dtype, x.type.dtype, m.type.dtype
    if not lossless(first, middle):
        return None
    if is_integer(last) and is_float(middle) and not lossless(first, last):
        return None  # floats saturate where integers wrap
    if not (is_integer(last) or is_float(last) or last.kind == "b"):
        return None
    result: Atom = m.emit("convert", origin, **m.params)
    return result


dtypes = RuleSet((Rule("convert -> x of the same dtype, or one exact conversion for two", _convert),))


# ------------------------------------------------------------------ splats
def _splat_operands(m: Match) -> Atom | None:
    """f(x, broadcast_in_dim(c)) -> f(x, c) where x alone has the result's shape."""
    inputs = [a if isinstance(a, Literal) else splat(m, a) or a for a in m.inputs]
    if all(a is b for a, b in zip(inputs, m.inputs, strict=True)):
        return None
    shapes = [a.type.shape for a in inputs if not isinstance(a, Literal)]
    if not shapes:  # f of numbers only: once, then spread
        result: Atom = m.emit(m.equation.primitive.name, *inputs, **m.params)
        return spread(m, result, m.type.shape)
    if broadcast_sizes(*shapes) != m.type.shape:
        return None
    return m.emit(m.equation.primitive.name, *inputs, **m.params)


_ELEMENTWISE = (
    "add subtract multiply divide remainder power maximum minimum clamp select atan2 copysign complex"
    " equal not_equal less less_equal greater greater_equal bitwise_and bitwise_or bitwise_xor"
    " negative absolute sign exp log sqrt rsqrt square integer_power bitwise_not convert real imag"
).split()

splats = RuleSet(
    Rule(f"{name} -> {name} of numbers where arrays are filled with one", _splat_operands)
    for name in _ELEMENTWISE
)


def _fold(m: Match) -> Any:
    return folded(m.equation)


folding = RuleSet((Rule("any -> its value, if all operands are numbers", _fold),))
