"""Symbolic sizes: integer expressions of a few named sizes, which record the conditions that were decided by a number.

A `Dim` has a hint, which is its value at the traced sizes. Arithmetic makes another Dim. A comparison is answered by
the hint, and recorded as a condition on the names unless it follows from earlier ones. Code that needs the number
itself (`__index__`, `float`, `str`) gets none: SizePinned ends the attempt, and the program is made for fixed sizes.
`Scope.compiled` turns numbers and conditions into one Python function of the names.
"""

from __future__ import annotations

import builtins
import itertools
import math
import operator
import os
import sys
from functools import partial
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Condition",
    "Dim",
    "Real",
    "Scope",
    "SizePinned",
    "SizedScalar",
    "array_of",
    "chosen",
    "common_divisor",
    "computed",
    "decided",
    "exact_half",
    "greatest",
    "hint_of",
    "is_sized",
    "kept_with",
    "key_of",
    "least",
    "plain_size",
    "root",
    "shown_size",
    "slice_indices",
    "span",
    "whole",
    "whole_number",
]

Monomial = tuple[int, ...]  # numbers of its factors, in order
Terms = tuple[tuple[Monomial, int], ...]
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class SizePinned(BaseException):
    """A step needs the number of a symbolic size. A BaseException, so that no handler of errors takes it."""


class Condition(NamedTuple):
    """A decision that a template depends on: its text, the user's line (or ""), and the function that decided."""

    text: str
    line: str
    place: str


class _Factor:
    """A name, or an operation that is not a polynomial. text: Python source over the factors before it."""

    __slots__ = ("function", "high", "hint", "low", "name", "parts", "text")

    def __init__(
        self, name: str, hint: Any, text: str, parts: tuple[int, ...], low: float, high: float, function: Any = None
    ) -> None:
        self.name, self.hint, self.text, self.parts = name, hint, text, parts
        self.low, self.high, self.function = low, high, function


class Scope:
    """The names of one trace, the expressions made of them, and the conditions recorded so far.

    Names are at least 1. Expressions are interned: equal ones are one object. A scope that is closed records nothing:
    what the user's function left elsewhere is a number then.

    >>> scope = Scope({"n": 8})
    >>> (n,) = scope.dims
    >>> (2 * n + 4) // 2 is n + 2, n > 3
    (True, True)
    >>> scope.conditions()[0].text
    'n >= 4'
    >>> run = scope.compiled([n * n, 7])
    >>> run((5,)), run((3,))
    ([25, 7], None)
    """

    serials = itertools.count()

    def __init__(self, hints: Mapping[str, int], origin: Callable[[], Any] = lambda: None) -> None:
        self.closed = False
        self.serial = next(self.serials)
        self.kept: dict[Any, Any] = {}  # types with these sizes
        self.pinned = ""  # why an attempt ended
        self._origin = origin
        self._factors: list[_Factor] = []
        self._objects: list[np.ndarray] = []
        self._interned: dict[Terms, Dim] = {}
        self._operations: dict[tuple[Any, ...], int] = {}
        # bounds of polynomials without their constants, and values that they do not have
        self._ranges: dict[Terms, tuple[float, float]] = {}
        self._excluded: dict[Terms, set[int]] = {}
        self._tests: dict[tuple[Any, ...], bool] = {}
        self._recorded: dict[Any, Condition] = {}
        for name, hint in hints.items():
            self._factors.append(_Factor(name, hint, name, (), 1, math.inf))
        self.names = tuple(hints)
        self._names: set[Terms] = {(((at,), 1),) for at in range(len(hints))}
        self.dims = tuple(self._dim((((at,), 1),)) for at in range(len(self.names)))

    # ------------------------------------------------------------------ expressions
    def _dim(self, terms: Terms) -> Any:
        """The expression of these terms; a number if it has no names."""
        if not terms:
            return 0
        if terms[-1][0] == () and len(terms) == 1:
            return terms[0][1]
        found = self._interned.get(terms)
        if found is None:
            hint = 0
            for monomial, factor in terms:
                for at in monomial:
                    factor *= self._factors[at].hint
                hint += factor
            found = self._interned[terms] = Dim(self, terms, hint)
        return found

    def polynomial(self, terms: Mapping[Monomial, int]) -> Any:
        """The expression with these coefficients."""
        found = [(m, c) for m, c in terms.items() if c]
        if len(found) > 1:
            found.sort(key=lambda term: (len(term[0]), term[0]), reverse=True)
        return self._dim(tuple(found))

    def operation(
        self, key: tuple[Any, ...], text: str, hint: Any, parts: Sequence[Any], low: float = -math.inf,
        high: float = math.inf, function: Any = None,
    ) -> int:  # fmt: skip
        """The number of a factor: `text` with the sources of parts in its braces, or a call of `function` with them."""
        at = self._operations.get(key)
        if at is None:
            used = tuple(dict.fromkeys(n for part in parts for n in _factors_in(part)))
            written = [self.source(part) for part in parts]
            made = f"f{len(self._factors)}({', '.join(written)})" if function else text.format(*written)
            at = self._operations[key] = len(self._factors)
            self._factors.append(_Factor(f"v{at}", hint, made, used, low, high, function))
        return at

    def whole_of(self, key: tuple[Any, ...], text: str, hint: int, parts: Sequence[Any], low: float = -math.inf) -> Any:
        """An operation with a whole result, as a Dim."""
        return self._dim((((self.operation(key, text, hint, parts, low),), 1),))

    def real_of(
        self, key: tuple[Any, ...], text: str, hint: Any, parts: Sequence[Any], low: float = -math.inf,
        function: Any = None,
    ) -> Real:  # fmt: skip
        """An operation with another result."""
        return Real(self, self.operation(key, text, hint, parts, low, function=function))

    def source(self, value: Any) -> str:
        """Python source of a number or an expression."""
        if type(value) is Dim:
            return "(" + " + ".join(self._term(m, c) for m, c in value.terms) + ")"
        if type(value) is Real or type(value) is SizedScalar:
            return self._factors[value.number].name
        if isinstance(value, np.ndarray):
            self._objects.append(value)
            return f"objects[{len(self._objects) - 1}]"
        return "math.inf" if type(value) is float and value == math.inf else repr(value)

    def _term(self, monomial: Monomial, factor: int) -> str:
        names = [self._factors[at].name for at in monomial]
        return "*".join(names if factor == 1 and names else [str(factor), *names])

    def text(self, value: Any) -> str:
        """An expression for a reader, without the names of intermediate results."""
        found = self.source(value)
        for factor in reversed(self._factors):
            if factor.name in found and factor.parts:
                found = found.replace(factor.name, f"({factor.text})")
        return found[1:-1] if found.startswith("(") and found.count("(") == 1 else found

    # ------------------------------------------------------------------ bounds
    def bounds(self, terms: Terms) -> tuple[float, float]:
        """Bounds that follow from the names and from the conditions so far."""
        constant = terms[-1][1] if terms and terms[-1][0] == () else 0
        if constant:
            terms = terms[:-1]
        if not terms:
            return constant, constant
        form, scale = _form(terms)
        low, high = self._ranges.get(form, (-math.inf, math.inf))
        low, high = max(low, self._least(form)), min(high, -self._least(tuple((m, -c) for m, c in form)))
        ends = (low * scale + constant, high * scale + constant)
        return ends if scale > 0 else (ends[1], ends[0])

    def _least(self, terms: Terms) -> float:
        """A lower bound of a polynomial."""
        low = 0.0
        for monomial, factor in terms:
            bottom, top = 1.0, 1.0
            for at in monomial:
                known = self._factors[at]
                if known.low < 0:
                    if len(monomial) > 1:
                        return -math.inf
                    bottom, top = known.low, known.high
                    break
                bottom *= known.low
                top = 0.0 if 0.0 in (top, known.high) else top * known.high
            low += factor * (bottom if factor > 0 else top)
        return max(low, self._shifted(terms)) if low == -math.inf else low

    def _shifted(self, terms: Terms) -> float:
        """The value where every factor is least, if the polynomial grows with all of them from there on."""
        grown: dict[Monomial, float] = {}
        for monomial, factor in terms:
            parts: dict[Monomial, float] = {(): factor}
            for at in monomial:
                low = self._factors[at].low
                if low == -math.inf:
                    return -math.inf
                more: dict[Monomial, float] = {}
                for m, c in parts.items():
                    more[m] = more.get(m, 0) + c * low
                    above = tuple(sorted((*m, at)))
                    more[above] = more.get(above, 0) + c
                parts = more
            for m, c in parts.items():
                grown[m] = grown.get(m, 0) + c
        constant = grown.pop((), 0)
        return constant if min(grown.values(), default=0) >= 0 else -math.inf

    # ------------------------------------------------------------------ conditions
    def at_least(self, value: Any, least: int) -> bool:
        """Whether an expression is at least a number."""
        if type(value) is not Dim:
            return value >= least
        low, high = self.bounds(value.terms)
        if low >= least:
            return True
        if high < least:
            return False
        answer = value.hint >= least
        if not self.closed:
            self._limit(value, least if answer else None, None if answer else least - 1)
        return answer

    def is_zero(self, value: Any) -> bool:
        """Whether an expression is 0."""
        if type(value) is not Dim:
            return value == 0
        low, high = self.bounds(value.terms)
        if low > 0 or high < 0:
            return False
        if low == high:
            return True
        form, scale, constant = _normal(value.terms)
        root, rest = divmod(-constant, scale)
        if rest or root in self._excluded.get(form, ()):
            return False
        if value.hint == 0:
            self._limit(value, 0, 0)
            return True
        if self.closed:
            return False
        if low == 0 or high == 0:
            self._limit(value, *((1, None) if low == 0 else (None, -1)))
        else:
            self._excluded.setdefault(form, set()).add(root)
            self._note(("!=", form, root), f"{self.text(self._dim(form))} != {root}")
        return False

    def _limit(self, value: Dim, low: int | None, high: int | None) -> None:
        """Record bounds of an expression."""
        if self.closed:
            return
        form, scale, constant = _normal(value.terms)
        found: list[float] = [-math.inf, math.inf]
        for bound, upper in ((low, False), (high, True)):
            if bound is not None:
                turned = upper != (scale < 0)
                edge = bound - constant
                found[turned] = edge // scale if turned else -(-edge // scale)
        known = self._ranges.get(form, (-math.inf, math.inf))
        low_now, high_now = max(known[0], found[0]), min(known[1], found[1])
        self._ranges[form] = low_now, high_now
        if len(form) == 1 and len(form[0][0]) == 1:
            factor = self._factors[form[0][0][0]]
            factor.low, factor.high = max(factor.low, low_now), min(factor.high, high_now)
        name = self.text(self._dim(form))
        for sign, edge in zip((">=", "<="), found, strict=True):
            if edge not in (-math.inf, math.inf):
                self._recorded.pop((sign, form), None)
                self._note((sign, form), f"{name} {sign} {edge}")
        if low_now == high_now and form in self._names:
            self.pin(name, f"{name} == {low_now}")

    def test(self, relation: str, left: Any, right: Any) -> bool:
        """Whether a relation holds between numbers, of which some are Reals."""
        answer = bool(_RELATIONS[relation](hint_of(left), hint_of(right)))
        key = (relation, _key(left), _key(right))
        if not self.closed and key not in self._tests:
            at = self.operation(("test", *key), f"{{}} {relation} {{}}", answer, (left, right))
            self._tests[key] = answer
            self._note(key, f"({self._factors[at].text}) is {answer}", at)
        return answer

    def _note(self, key: Any, text: str, factor: int | None = None) -> None:
        origin = self._origin()
        self._recorded.setdefault(key, Condition(text, "" if origin is None else str(origin), _place()))

    def pin(self, name: str, why: str) -> None:
        """End the attempt to make a template: a number is needed."""
        origin = self._origin()
        self.pinned = f"{why}, in {_place()}{'' if origin is None else f' for {origin}'}"
        raise SizePinned(self.pinned)

    def conditions(self) -> list[Condition]:
        """The conditions so far, in order."""
        return list(self._recorded.values())

    # ------------------------------------------------------------------ numbers of a call
    def compiled(self, values: Sequence[Any], checked: bool = True) -> Callable[[tuple[int, ...]], list[Any] | None]:
        """A function from the names' sizes to the values; None if a condition does not hold. checked: they hold."""
        if not checked:
            return self._compiled(values, (), (), ())
        return self._compiled(values, self._ranges.items(), self._excluded.items(), self._tests.items())

    def _compiled(
        self,
        values: Sequence[Any],
        ranges: Iterable[tuple[Terms, tuple[float, float]]],
        excluded: Iterable[tuple[Terms, set[int]]],
        truths: Iterable[tuple[Any, bool]],
    ) -> Callable[[tuple[int, ...]], list[Any] | None]:
        tests = [f"{name} >= 1" for name in self.names]
        later: list[str] = []
        for form, (low, high) in ranges:
            source = self.source(self._dim(form))
            edges = f"{low} <= " if low > -math.inf else "", f" <= {high}" if high < math.inf else ""
            plain = all(at < len(self.names) for monomial, _ in form for at in monomial)
            (tests if plain else later).append(f"{edges[0]}{source}{edges[1]}")
        for form, roots in excluded:
            later += [f"{self.source(self._dim(form))} != {root}" for root in sorted(roots)]
        for key, answer in truths:
            at = self._operations["test", *key]
            later.append(f"{'' if answer else 'not '}{self._factors[at].name}")
        needed: set[int] = {self._operations["test", *key] for key, _ in truths}
        for value in (*values, *map(self._dim, (*dict(ranges), *dict(excluded)))):
            needed.update(_factors_in(value))
        for at in reversed(range(len(self._factors))):
            if at in needed:
                needed.update(self._factors[at].parts)
        lines = [f"{', '.join(self.names)}, = names", f"if not ({' and '.join(tests)}): return None"]
        lines += [f"{self._factors[at].name} = {self._factors[at].text}" for at in sorted(needed) if self._factors[at].parts]
        lines += [f"if not ({' and '.join(later)}): return None"] if later else []
        lines.append(f"return [{', '.join(map(self.source, values))}]")
        space: dict[str, Any] = {"math": math, "objects": self._objects}
        space |= {f"f{at}": factor.function for at, factor in enumerate(self._factors) if factor.function}
        exec("def run(names):\n    " + "\n    ".join(lines), space)
        return partial(_held, space["run"])


def _held(run: Callable[[tuple[int, ...]], list[Any] | None], sizes: tuple[int, ...]) -> list[Any] | None:
    """The values of a compiled function; None where it cannot be evaluated: a condition does not hold there."""
    try:
        return run(sizes)
    except (ArithmeticError, ValueError):
        return None


def _form(terms: Terms) -> tuple[Terms, int]:
    """Terms without a constant as a multiple of a polynomial that is the same for all multiples."""
    scale = math.gcd(*(c for _, c in terms))
    scale = -scale if terms[0][1] < 0 else scale
    return (terms, 1) if scale == 1 else (tuple((m, c // scale) for m, c in terms), scale)


def _normal(terms: Terms) -> tuple[Terms, int, int]:
    constant = terms[-1][1] if terms[-1][0] == () else 0
    form, scale = _form(terms[:-1] if constant else terms)
    return form, scale, constant


def _factors_in(value: Any) -> tuple[int, ...]:
    if type(value) is Dim:
        return tuple(at for monomial, _ in value.terms for at in monomial)
    return (value.number,) if type(value) is Real or type(value) is SizedScalar else ()


def _key(value: Any) -> Any:
    if type(value) is Dim:
        return value.terms
    return ("v", value.number) if is_sized(value) else (type(value), value)


def _place() -> str:
    """The function of rlx that asks."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename.removeprefix(_PACKAGE)}:{frame.f_lineno} ({code.co_name})"


_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def _operated(text: str, reverse: bool = False) -> Callable[[Any, Any], Any]:
    """The method of an operator that is not polynomial; its result is whole if both operands are."""
    function: Any = eval(f"lambda a, b: a {text} b")

    def method(self: Any, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        scope, (left, right) = self.scope, (other, self) if reverse else (self, other)
        left, right = _own(scope, left), _own(scope, right)
        hint = function(hint_of(left), hint_of(right))
        key = (text, _key(left), _key(right))
        make = scope.whole_of if isinstance(hint, int) else scope.real_of
        return make(key, f"({{}} {text} {{}})", hint, (left, right), _low_of(text, left, right))

    return method


def _low_of(text: str, left: Any, right: Any) -> float:
    """A lower bound of the result of an operation on numbers that are not negative."""
    low, other = _least_of(left), _least_of(right)
    if text == "/":
        return 0.0 if low >= 0 and other >= 0 else -math.inf
    if low < 0 or other < 0:
        return -math.inf
    return low + other if text == "+" else low * other if text == "*" else -math.inf


def _least_of(value: Any) -> float:
    if type(value) is Dim:
        return value.scope.bounds(value.terms)[0]
    return value.scope._factors[value.number].low if type(value) is Real else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Real)) or type(value) is Dim


def _own(scope: Scope, value: Any) -> Any:
    """A number for use in a scope; a Dim of another one is a number."""
    if type(value) is Dim and value.scope is not scope:
        return operator.index(value)
    return value


def hint_of(value: Any) -> Any:
    """The number of a size at the traced sizes; nothing is recorded."""
    if type(value) is Dim:
        return value.hint
    return value.scope._factors[value.number].hint if is_sized(value) else value


def key_of(value: Any) -> str:
    """A name of a value that depends on symbolic sizes, different for different values of all scopes."""
    named = value.terms if type(value) is Dim else value.number
    return f"{value.scope.serial}:{named}"


def is_sized(value: Any) -> bool:
    """Whether a value depends on symbolic sizes."""
    return type(value) is Dim or type(value) is Real or type(value) is SizedScalar


class Dim:
    """A whole number that depends on named sizes; see Scope. Not an int to C code, an int to isinstance."""

    __slots__ = ("hint", "scope", "terms")
    __array_ufunc__ = None  # NumPy's scalars leave operators to it

    def __init__(self, scope: Scope, terms: Terms, hint: int) -> None:
        self.scope, self.terms, self.hint = scope, terms, hint

    @property
    def __class__(self) -> Any:
        return int

    def _with(self, other: Any, sign: int) -> Any:
        if type(other) is Dim:
            other = _own(self.scope, other)
        elif not isinstance(other, int):
            other = _as_int(other)
            if other is None:
                return NotImplemented
        terms = dict(self.terms)
        for monomial, factor in other.terms if type(other) is Dim else (((), int(other)),):
            terms[monomial] = terms.get(monomial, 0) + sign * factor
        return self.scope.polynomial(terms)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, float) or type(other) is Real:
            return _real_add(self, other)
        return self._with(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _real_subtract(self, other) if isinstance(other, float) or type(other) is Real else self._with(other, -1)

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, float):
            return _real_subtracted(self, other)
        negative = -self
        return negative._with(other, 1) if type(negative) is Dim else negative + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, float) or type(other) is Real:
            return _real_multiply(self, other)
        if type(other) is Dim:
            other = _own(self.scope, other)
        elif not isinstance(other, int):
            other = _as_int(other)
            if other is None:
                return NotImplemented
        if type(other) is not Dim:
            return self.scope.polynomial({m: c * other for m, c in self.terms}) if other else 0
        terms: dict[Monomial, int] = {}
        for one, factor in self.terms:
            for two, times in other.terms:
                monomial = tuple(sorted(one + two))
                terms[monomial] = terms.get(monomial, 0) + factor * times
        return self.scope.polynomial(terms)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self.scope.polynomial({m: -c for m, c in self.terms})

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        return _quotient(self.scope, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(self.scope, other, self)

    def __mod__(self, other: Any) -> Any:
        quotient = self // other
        return NotImplemented if quotient is NotImplemented else self - quotient * other

    def __rmod__(self, other: Any) -> Any:
        return other - (other // self) * self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    __truediv__ = _operated("/")
    __rtruediv__ = _operated("/", True)
    __and__ = __rand__ = _operated("&")
    __or__ = __ror__ = _operated("|")
    __xor__ = __rxor__ = _operated("^")
    __lshift__ = _operated("<<")
    __rlshift__ = _operated("<<", True)
    __rshift__ = _operated(">>")
    __rrshift__ = _operated(">>", True)
    __rpow__ = _operated("**", True)

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and 0 <= other <= 8:
            found: Any = 1
            for _ in range(other):
                found = found * self
            return found
        return _operated("**")(self, other)

    def bit_length(self) -> Any:
        """As int's."""
        return self.scope.whole_of(("bits", self.terms), "{}.bit_length()", self.hint.bit_length(), (self,), 0)

    def __trunc__(self) -> Any:
        return self

    __floor__ = __ceil__ = __trunc__

    def __round__(self, digits: int | None = None) -> Any:
        return self

    def conjugate(self) -> Any:
        """As int's."""
        return self

    real = numerator = property(conjugate)
    imag = property(lambda self: 0)
    denominator = property(lambda self: 1)

    # ------------------------------------------------------------------ questions
    def _apart(self, other: Any) -> Any:
        """The difference to another whole number; None if that is none."""
        if type(other) is Dim:
            other = _own(self.scope, other)
        elif not isinstance(other, int):
            other = _as_int(other)
            if other is None:
                return None
        return self._with(other, -1)

    def _compare(self, relation: str, other: Any) -> Any:
        if isinstance(other, float) or type(other) is Real:
            if other in (math.inf, -math.inf) if isinstance(other, float) else False:
                return _RELATIONS[relation](self.hint, other)
            return self.scope.test(relation, self, other)
        apart = self._apart(other)
        if apart is None:
            return NotImplemented
        if relation == ">":
            return self.scope.at_least(apart, 1)
        if relation == ">=":
            return self.scope.at_least(apart, 0)
        return not self.scope.at_least(apart, 0 if relation == "<" else 1)

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        if isinstance(other, float):
            return float(other).is_integer() and self == int(other)
        apart = self._apart(other)
        return NotImplemented if apart is None else self.scope.is_zero(apart)

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    # equal expressions are one object; in a table, an expression is no number
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return not self.scope.is_zero(self)

    # ------------------------------------------------------------------ the number itself
    def __index__(self) -> int:
        if not self.scope.closed:
            self.scope.pin(self.scope.text(self), f"the number of {self.scope.text(self)} is needed")
        return self.hint

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __complex__(self) -> complex:
        return complex(self.__index__())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.__index__(), dtype)

    def __repr__(self) -> str:
        return repr(self.__index__())

    def __str__(self) -> str:
        return str(self.__index__())

    def __format__(self, form: str) -> str:
        return format(self.__index__(), form)

    def __reduce__(self) -> Any:
        return int, (self.__index__(),)

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: Any) -> Dim:
        return self


class Real:
    """A number that depends on named sizes and is not a polynomial of whole numbers. Comparisons are recorded."""

    __slots__ = ("number", "scope")
    __array_ufunc__ = None

    def __init__(self, scope: Scope, number: int) -> None:
        self.scope, self.number = scope, number

    __add__ = __radd__ = _operated("+")
    __sub__ = _operated("-")
    __rsub__ = _operated("-", True)
    __mul__ = __rmul__ = _operated("*")
    __truediv__ = _operated("/")
    __rtruediv__ = _operated("/", True)

    def __abs__(self) -> Any:
        return self if self >= 0.0 else -1.0 * self

    def _compare(self, relation: str, other: Any) -> bool:
        if isinstance(other, (int, float)) and type(other) is not Dim and relation in (">=", "<"):
            if self.scope._factors[self.number].low >= other:
                return relation == ">="
        return self.scope.test(relation, self, other)

    def __lt__(self, other: Any) -> bool:
        return self._compare("<", other)

    def __le__(self, other: Any) -> bool:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> bool:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> bool:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> Any:
        if type(other) is Real and other.number == self.number:
            return True
        return self.scope.test("==", self, other) if _is_number(other) else NotImplemented

    def __hash__(self) -> int:
        return hash((id(self.scope), self.number))

    def __bool__(self) -> bool:
        return self.scope.test("!=", self, 0)

    def __float__(self) -> float:
        if not self.scope.closed:
            self.scope.pin("a number", "the number of a size's function is needed")
        return float(hint_of(self))

    def __int__(self) -> int:
        return int(float(self))


_real_add, _real_subtract, _real_multiply = _operated("+"), _operated("-"), _operated("*")
_real_subtracted = _operated("-", True)


class SizedScalar:
    """A NumPy scalar that depends on named sizes, in the place of a 0-d array: its dtype, and how it is computed.

    dim: the whole number whose value it is, if it is one.
    """

    __slots__ = ("dim", "dtype", "number", "scope")
    shape = ()
    ndim = 0
    size = 1

    def __init__(self, scope: Scope, number: int, dtype: np.dtype, dim: Dim | None = None) -> None:
        self.scope, self.number, self.dtype, self.dim = scope, number, dtype, dim

    @classmethod
    def of(cls, value: Any, dtype: np.dtype) -> SizedScalar:
        """A Dim or another scalar, converted to a dtype."""
        dim = value if type(value) is Dim else value.dim
        if dim is not None and _holds_sizes(dtype):
            key = ("array", dim.terms, dtype)
            return array_of(key, lambda n: np.asarray(n, dtype), (dim,), dtype, dim)
        if type(value) is Dim:
            return cls.of(cls.of(value, np.dtype(np.int64)), dtype)
        if value.dtype == dtype:
            return value
        return array_of(("astype", value.number, dtype), lambda x: x.astype(dtype), (value,), dtype)

    def astype(self, dtype: Any) -> SizedScalar:
        """Converted to another dtype."""
        return SizedScalar.of(self, np.dtype(dtype))

    def item(self) -> Any:
        """As a number."""
        if self.dim is not None:
            return self.dim
        hint = hint_of(self).item()
        if isinstance(hint, complex):
            return self.pin()
        return self.scope.real_of(("item", self.number), "{}.item()", hint, (self,))

    def any(self) -> bool:
        """Whether it is not zero."""
        return bool(self.item() != 0)

    def pin(self) -> Any:
        """End the attempt to make a template: the number is needed."""
        if not self.scope.closed:
            self.scope.pin("a scalar", "the value of a scalar that a size determines is needed")
        return hint_of(self)

    def tobytes(self) -> bytes:
        """As NumPy's."""
        return self.pin().tobytes()

    def bits(self) -> Any:
        """The scalar's bytes as a whole number."""
        if self.dtype.kind in "iu":
            return self.item()
        kind = f"i{self.dtype.itemsize}"
        key = ("bits", self.number)
        at = self.scope.operation(key, "", _bits(hint_of(self), kind), (self,), function=lambda x: _bits(x, kind))
        return self.scope.polynomial({(at,): 1})

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.pin(), dtype)

    def __float__(self) -> float:
        return float(self.pin())

    def __index__(self) -> int:
        return int(self.pin())

    __int__ = __index__

    def __bool__(self) -> bool:
        return self.any()

    def __eq__(self, other: object) -> Any:
        if type(other) is not SizedScalar:
            return NotImplemented
        return other.scope is self.scope and (other.number, other.dtype) == (self.number, self.dtype)

    def __hash__(self) -> int:
        return hash((id(self.scope), self.number))

    def __repr__(self) -> str:
        return repr(self.pin())


def _holds_sizes(dtype: np.dtype) -> bool:
    """Whether sizes are exact in a dtype, or raise OverflowError; or are rounded, which keeps their order."""
    return dtype.kind in "iuf" and dtype.itemsize >= 4 and dtype.type.__module__ == "numpy"


def _bits(array: np.ndarray, kind: str) -> int:
    return int(array.view(kind))


def array_of(
    key: tuple[Any, ...], function: Callable[..., Any], parts: Sequence[Any], dtype: np.dtype, dim: Dim | None = None
) -> SizedScalar:
    """The 0-d array that a function makes of numbers and 0-d arrays, of which some depend on sizes. key: its name."""
    scope = next(part.scope for part in parts if is_sized(part))
    at = scope.operation(key, "", function(*map(hint_of, parts)), parts, function=function)
    return SizedScalar(scope, at, dtype, dim)


def _as_int(value: Any) -> int | None:
    """A whole number of NumPy as an int; None for other values."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def _quotient(scope: Scope, left: Any, right: Any) -> Any:
    """left // right."""
    if isinstance(left, float) or isinstance(right, float):
        return NotImplemented
    left, right = (_own(scope, x) if type(x) is Dim else _as_int(x) for x in (left, right))
    if left is None or right is None:
        return NotImplemented
    if right == 0:
        raise ZeroDivisionError("a size is divided by 0")
    exact = _divided(scope, left, right)
    if exact is not None:
        return exact
    shared, left, right = _shared_term(scope, left, right)
    if type(shared) is Dim:  # factors are positive
        return _quotient(scope, left, right) if is_sized(left) or is_sized(right) else left // right
    base: Any = 0
    if type(right) is not Dim:
        if right < 0:
            left, right = -left, -right
        terms = dict(left.terms)
        whole_terms = {m: c // right for m, c in terms.items()}
        rest = {m: c % right for m, c in terms.items()}
        base, left = scope.polynomial(whole_terms), scope.polynomial(rest)
        if type(left) is not Dim:
            return base + left // right
        shared = math.gcd(right, *(c for m, c in left.terms if m))
        if shared > 1:  # the constant's remainder does not matter
            left = scope.polynomial({m: c // shared for m, c in left.terms})
            right //= shared
    low, high = scope.bounds(left.terms) if type(left) is Dim else (left, left)
    least_right = _least_of(right)
    if low >= 0 and high < least_right:
        return base
    hint = hint_of(left) // hint_of(right)
    bottom = low // right if type(right) is not Dim and low > -math.inf else 0 if low >= 0 < least_right else -math.inf
    return base + scope.whole_of(("//", _key(left), _key(right)), "({} // {})", hint, (left, right), bottom)


def _divided(scope: Scope, left: Any, right: Any) -> Any:
    """left / right if the division of polynomials by one term is exact; None otherwise."""
    if type(left) is not Dim:
        return None if type(right) is Dim else left // right
    terms = right.terms if type(right) is Dim else (((), right),)
    if len(terms) != 1:
        return 1 if left is right else _by_division(scope, left, right)
    (divisor, factor), found = terms[0], {}
    for monomial, times in left.terms:
        rest = list(monomial)
        for at in divisor:
            if at not in rest:
                return None
            rest.remove(at)
        if times % factor:
            return None
        found[tuple(rest)] = times // factor
    return scope.polynomial(found)


def _by_division(scope: Scope, left: Dim, right: Dim) -> Any:
    """Division of polynomials with several terms."""
    quotient: dict[Monomial, int] = {}
    rest, (lead, factor) = left, right.terms[0]
    for _ in range(8):
        monomial, times = rest.terms[0]
        remaining = list(monomial)
        for at in lead:
            if at not in remaining:
                return None
            remaining.remove(at)
        if times % factor:
            return None
        step = tuple(remaining)
        quotient[step] = quotient.get(step, 0) + times // factor
        rest = left - scope.polynomial(quotient) * right
        if type(rest) is not Dim:
            return scope.polynomial(quotient) if rest == 0 else None
    return None


# ------------------------------------------------------------------ functions of sizes and of numbers
def whole_number(value: Any) -> Any:
    """operator.index(value), and a Dim itself."""
    return value if type(value) is Dim else operator.index(value)


def plain_size(value: Any) -> Any:
    """int(value), and a Dim itself."""
    return value if type(value) is Dim else int(value)


def shown_size(value: Any) -> str:
    """A size as text for messages; a Dim as its expression."""
    return value.scope.text(value) if type(value) is Dim else str(value)


def kept_with(values: Sequence[Any], usual: dict[Any, Any]) -> dict[Any, Any]:
    """The table for things with these sizes, which lasts as long as their scope; `usual` without symbolic ones."""
    for value in values:
        if type(value) is Dim:
            return value.scope.kept
    return usual


def computed(function: Callable[..., Sequence[int]], values: Sequence[Any], count: int) -> Sequence[Any]:
    """The `count` whole numbers, not negative, that a function makes of numbers; computed again for each call's sizes
    if some are symbolic. No condition is recorded."""
    scope = next((value.scope for value in values if is_sized(value)), None)
    if scope is None:
        return function(*values)
    found = tuple(function(*map(hint_of, values)))
    key = ("computed", function, *map(_key, values))
    at = scope.operation(key, "", found, values, function=function)
    row = Real(scope, at)
    return [scope.whole_of(("item", at, n), f"{{}}[{n}]", found[n], (row,), 0) for n in range(count)]


def slice_indices(part: slice, size: Any) -> tuple[Any, Any, Any]:
    """part.indices(size), of numbers of which some may be symbolic."""
    if not any(map(is_sized, (part.start, part.stop, part.step, size))):
        return part.indices(size)
    step = 1 if part.step is None else part.step
    if step == 0:
        raise ValueError("slice step cannot be zero")
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def inside(bound: Any, default: Any) -> Any:
        if bound is None:
            return default
        return max(bound + size, low) if bound < 0 else min(bound, high)

    ends = (low, high) if step > 0 else (high, low)
    return inside(part.start, ends[0]), inside(part.stop, ends[1]), step


def span(start: Any, stop: Any, step: Any) -> Any:
    """len(range(start, stop, step)), of numbers of which some may be symbolic."""
    return max(0, (stop - start + step - 1) // step if step > 0 else (start - stop - step - 1) // -step)


def whole(value: Any) -> Any:
    """int(value) of a number that is not negative."""
    if type(value) is Real:
        return value.scope.whole_of(("int", value.number), "int({})", int(hint_of(value)), (value,), 0)
    return value if type(value) is Dim else int(value)


def root(value: Any) -> Any:
    """math.isqrt(value)."""
    if type(value) is Dim:
        return value.scope.whole_of(("isqrt", value.terms), "math.isqrt({})", math.isqrt(value.hint), (value,), 0)
    return math.isqrt(value)


def common_divisor(left: Any, right: Any) -> Any:
    """math.gcd(left, right) of numbers that are not negative; of expressions a divisor that they have for all sizes."""
    if not is_sized(left) and not is_sized(right):
        return math.gcd(left, right)
    scope = left.scope if is_sized(left) else right.scope
    for one, other in ((left, right), (right, left)):
        if type(one) is int and one == 0:
            return other
        if type(other) is Dim and _divided(scope, one, other) is not None:
            return other
    shared, left, right = _shared_term(scope, left, right)
    factors = [c for x in (left, right) for _, c in (x.terms if type(x) is Dim else (((), x),))]
    return shared * math.gcd(*factors)


def decided(value: Any) -> Any:
    """An expression's number, with the condition that the expression has this value."""
    return value.hint if type(value) is Dim and value == value.hint else value


def _shared_term(scope: Scope, left: Any, right: Any) -> tuple[Any, Any, Any]:
    """The positive factors of all terms of two expressions, as a product, and the expressions without them."""
    terms = [m for x in (left, right) for m, _ in (x.terms if type(x) is Dim else (((), x),))]
    shared = []
    for at in terms[0]:
        if scope._factors[at].low >= 1 and all(m.count(at) > shared.count(at) for m in terms):
            shared.append(at)
    if not shared:
        return 1, left, right
    product = scope.polynomial({tuple(shared): 1})
    return product, left // product, right // product


def exact_half(value: Any) -> Any:
    """value // 2; None for an odd number, and if an expression is not even whatever its sizes are."""
    if type(value) is Dim:
        return _divided(value.scope, value, 2)
    return None if value % 2 else value // 2


def _picked(name: str, left: Any, right: Any) -> Any:
    function = getattr(builtins, name)
    sized = left if is_sized(left) else right
    if not is_sized(sized):
        return function(left, right)
    hint = function(hint_of(left), hint_of(right))
    scope, lows = sized.scope, (_least_of(left), _least_of(right))
    make = scope.whole_of if isinstance(hint, int) and float not in map(type, map(hint_of, (left, right))) else scope.real_of
    return make((name, _key(left), _key(right)), f"{name}({{}}, {{}})", hint, (left, right), function(lows))


def least(left: Any, right: Any) -> Any:
    """min(left, right), without a condition."""
    return _picked("min", left, right)


def greatest(left: Any, right: Any) -> Any:
    """max(left, right), without a condition."""
    return _picked("max", left, right)


def chosen(value: Any, limit: int, below: Any, otherwise: Any) -> Any:
    """`below` if value < limit, else `otherwise`, without a condition."""
    if type(value) is not Dim:
        return below if value < limit else otherwise
    hint = hint_of(below if value.hint < limit else otherwise)
    key = ("chosen", value.terms, limit, _key(below), _key(otherwise))
    parts = (below, value, limit, otherwise)
    return value.scope.whole_of(key, "({} if {} < {} else {})", hint, parts, min(map(_least_of, (below, otherwise))))
