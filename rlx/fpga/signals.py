"""Values in hardware: flags, integers with proven bounds, and vectors of bits.

The bounds of an integer give its width. Arithmetic is exact: the bounds of a sum contain every sum of its operands, so
that no operation wraps unless `wrapped` says so, and no tool needs to guess a width or a sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Bits", "Comparison", "Constant", "Field", "Flag", "FlagOperation", "Integer", "IntegerOperation", "Joined",
    "Selection", "Signal", "Truth", "Value", "all_of", "any_of", "bits_for", "joined", "largest", "select",
]  # fmt: skip

IntegerOperator = Literal["+", "-", "*", ">>>", "<<<", "&", "wrap"]


def bits_for(low: int, high: int) -> int:
    """The width of a signed register for every integer from low to high.

    >>> from rlx.fpga.signals import bits_for
    >>> bits_for(-128, 127), bits_for(0, 127), bits_for(0, 0)
    (8, 8, 1)
    """
    return 1 + max((-low - 1).bit_length() if low < 0 else 0, high.bit_length() if high > 0 else 0)


@dataclass(frozen=True, slots=True)
class Flag:
    """The type of a truth value: one bit."""

    @property
    def width(self) -> int:
        """One bit."""
        return 1


@dataclass(frozen=True, slots=True)
class Integer:
    """The type of the integers from low to high, in two's complement."""

    low: int
    high: int

    @property
    def width(self) -> int:
        """The number of bits that the bounds need."""
        return bits_for(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Bits:
    """The type of a word of memory, or of a bus: bits without a meaning."""

    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Something that a wire carries in every cycle. Its operators build expressions."""

    type: Flag | Integer | Bits

    @property
    def low(self) -> int:
        """The least number that the value can be."""
        assert isinstance(self.type, Integer)
        return self.type.low

    @property
    def high(self) -> int:
        """The greatest number that the value can be."""
        assert isinstance(self.type, Integer)
        return self.type.high

    def __add__(self, other: Value | int) -> Value:
        other = number(other)
        return _arithmetic("+", self, other, (self.low + other.low, self.high + other.high))

    def __sub__(self, other: Value | int) -> Value:
        other = number(other)
        return _arithmetic("-", self, other, (self.low - other.high, self.high - other.low))

    def __mul__(self, other: Value | int) -> Value:
        other = number(other)
        return _arithmetic("*", self, other, [a * b for a in (self.low, self.high) for b in (other.low, other.high)])

    def __rshift__(self, amount: Value | int) -> Value:
        """Division by a power of two, rounded down."""
        amount = number(amount)
        return _arithmetic(
            ">>>", self, amount, [a >> b for a in (self.low, self.high) for b in (amount.low, amount.high)]
        )

    def __lshift__(self, amount: Value | int) -> Value:
        amount = number(amount)
        return _arithmetic(
            "<<<", self, amount, [a << b for a in (self.low, self.high) for b in (amount.low, amount.high)]
        )

    def __and__(self, mask: Value) -> Value:
        """The bits of a mask that is not negative."""
        assert mask.low >= 0
        return IntegerOperation(Integer(0, mask.high), "&", (self, mask))

    def wrapped(self, width: int) -> Value:
        """The integer of `width` bits with the same lowest bits."""
        return IntegerOperation(Integer(-(1 << (width - 1)), (1 << (width - 1)) - 1), "wrap", (self,))

    def less(self, other: Value | int) -> Value:
        """Whether the value is less than another."""
        return Comparison(Flag(), "<", self, number(other))

    def equals(self, other: Value | int) -> Value:
        """Whether two values are equal."""
        return Comparison(Flag(), "==", self, number(other))

    def within(self, low: int, high: int) -> Value:
        """The same value, about which it is known that it is from low to high."""
        return IntegerOperation(Integer(low, high), "wrap", (self,))

    def field(self, low: int, type: Flag | Integer | Bits) -> Value:
        """A part of a vector of bits, from bit `low`."""
        assert isinstance(self.type, Bits) and low + type.width <= self.type.width
        return Field(type, self, low)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Value):
    """A number, or a truth value."""

    value: int


@dataclass(frozen=True, slots=True, eq=False)
class Signal(Value):
    """A port, a wire or a register of a module."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class IntegerOperation(Value):
    """Arithmetic of integers."""

    operator: IntegerOperator
    operands: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison(Value):
    """Whether two integers are in a relation."""

    operator: Literal["<", "=="]
    left: Value
    right: Value


@dataclass(frozen=True, slots=True, eq=False)
class FlagOperation(Value):
    """Logic of flags."""

    operator: Literal["&", "|", "~"]
    operands: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Selection(Value):
    """One of two values."""

    condition: Value
    yes: Value
    no: Value


@dataclass(frozen=True, slots=True, eq=False)
class Field(Value):
    """Some bits of a vector, as a value of a type."""

    of: Value
    low_bit: int


@dataclass(frozen=True, slots=True, eq=False)
class Joined(Value):
    """A vector of the bits of values, the first one lowest."""

    parts: tuple[Value, ...]


Truth = (Constant(Flag(), 0), Constant(Flag(), 1))


def number(value: Value | int) -> Value:
    """A Python integer as a constant."""
    return value if isinstance(value, Value) else Constant(Integer(value, value), value)


def _arithmetic(operator: IntegerOperator, left: Value, right: Value, bounds: Sequence[int]) -> Value:
    low, high = min(bounds), max(bounds)
    if low == high:
        return number(low)
    if operator in ("+", "-", ">>>", "<<<") and isinstance(right, Constant) and right.value == 0:
        return left
    return IntegerOperation(Integer(low, high), operator, (left, right))


def select(condition: Value, yes: Value | int, no: Value | int) -> Value:
    """`yes` where a flag is set, `no` elsewhere."""
    yes, no = (v if isinstance(v, Value) else number(v) for v in (yes, no))
    if isinstance(condition, Constant):
        return yes if condition.value else no
    if not isinstance(yes.type, Integer):
        return Selection(yes.type, condition, yes, no)
    if isinstance(yes, Constant) and isinstance(no, Constant) and yes.value == no.value:
        return yes
    return Selection(Integer(min(yes.low, no.low), max(yes.high, no.high)), condition, yes, no)


def all_of(*flags: Value) -> Value:
    """Whether all flags are set."""
    return _flags("&", flags, 0)


def any_of(*flags: Value) -> Value:
    """Whether any flag is set."""
    return _flags("|", flags, 1)


def _flags(operator: Literal["&", "|"], flags: Sequence[Value], absorbing: int) -> Value:
    constants = [f.value for f in flags if isinstance(f, Constant)]
    others = tuple(f for f in flags if not isinstance(f, Constant))
    if absorbing in constants or not others:
        return Truth[absorbing if absorbing in constants else 1 - absorbing]
    return others[0] if len(others) == 1 else FlagOperation(Flag(), operator, others)


def negated(flag: Value) -> Value:
    """Whether a flag is not set."""
    return Truth[1 - flag.value] if isinstance(flag, Constant) else FlagOperation(Flag(), "~", (flag,))


def largest(left: Value, right: Value) -> Value:
    """The greater one of two integers."""
    return select(left.less(right), right, left)


def clamped(value: Value, low: int, high: int) -> Value:
    """The nearest integer from low to high."""
    above = select(value.less(low), low, value) if value.low < low else value
    found = select(number(high).less(value), high, above) if value.high > high else above
    return found.within(low, high) if (found.low, found.high) != (low, high) else found


def joined(parts: Sequence[Value]) -> Value:
    """The bits of values, the first one lowest."""
    return Joined(Bits(sum(p.type.width for p in parts)), tuple(parts))
