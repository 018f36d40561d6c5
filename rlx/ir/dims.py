"""Whole numbers that depend on named sizes, and other numbers that are computed from them.

A `Dim` has a hint, which is its value at the traced sizes. Arithmetic makes another Dim. A comparison is answered by
the hint, and recorded as a condition on the names unless it follows from earlier ones. Code that needs the number
itself (`__index__`, `float`, `str`) gets none: SizePinned ends the attempt, and the program is made for fixed sizes.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "RELATIONS",
    "Derived",
    "Dim",
    "Monomial",
    "SizedReal",
    "SizePinned",
    "Terms",
    "as_int",
    "divided",
    "factors_in",
    "hint_of",
    "is_sized",
    "key_of",
    "least_of",
    "part_key",
    "shared_factors",
]

Monomial = tuple[int, ...]  # numbers of its factors, in order


Terms = tuple[tuple[Monomial, int], ...]


class SizePinned(BaseException):
    """A step needs the number of a symbolic size. A BaseException, so that no handler of errors takes it."""


RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def hint_of(value: Any) -> Any:
    """The number of a size at the traced sizes; nothing is recorded."""
    if type(value) is Dim:
        return value.hint
    return value.scope.factor(value.number).hint if is_sized(value) else value


def key_of(value: Any) -> str:
    """A name of a value that depends on symbolic sizes, different for different values of all scopes."""
    named = value.terms if type(value) is Dim else value.number
    return f"{value.scope.serial}:{named}"


def is_sized(value: Any) -> bool:
    """Whether a value depends on symbolic sizes."""
    return type(value) is Dim or isinstance(value, Derived)


def factors_in(value: Any) -> tuple[int, ...]:
    if type(value) is Dim:
        return tuple(at for monomial, _ in value.terms for at in monomial)
    return (value.number,) if isinstance(value, Derived) else ()


def part_key(value: Any) -> Any:
    if type(value) is Dim:
        return value.terms
    return ("v", value.number) if is_sized(value) else (type(value), value)


def least_of(value: Any) -> float:
    if type(value) is Dim:
        return value.scope.bounds(value.terms)[0]
    return value.scope.factor(value.number).low if type(value) is SizedReal else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, SizedReal)) or type(value) is Dim


def own_number(scope: Any, value: Any) -> Any:
    """A number for use in a scope; a Dim of another one is a number."""
    if type(value) is Dim and value.scope is not scope:
        return operator.index(value)
    return value


def _operated(text: str, reverse: bool = False) -> Callable[[Any, Any], Any]:
    """The method of an operator that is not polynomial; its result is whole if both operands are."""
    function: Any = eval(f"lambda a, b: a {text} b")

    def method(self: Any, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        scope, (left, right) = self.scope, (other, self) if reverse else (self, other)
        left, right = own_number(scope, left), own_number(scope, right)
        hint = function(hint_of(left), hint_of(right))
        key = (text, part_key(left), part_key(right))
        make = scope.whole_of if isinstance(hint, int) else scope.real_of
        return make(key, f"({{}} {text} {{}})", hint, (left, right), _low_of(text, left, right))

    return method


def _low_of(text: str, left: Any, right: Any) -> float:
    """A lower bound of the result of an operation on numbers that are not negative."""
    low, other = least_of(left), least_of(right)
    if text == "/":
        return 0.0 if low >= 0 and other >= 0 else -math.inf
    if low < 0 or other < 0:
        return -math.inf
    return low + other if text == "+" else low * other if text == "*" else -math.inf


class Dim:
    """A whole number that depends on named sizes; see SizeScope. Not an int to C code, an int to isinstance."""

    __slots__ = ("hint", "scope", "terms")
    __array_ufunc__ = None  # NumPy's scalars leave operators to it

    def __init__(self, scope: Any, terms: Terms, hint: int) -> None:
        self.scope, self.terms, self.hint = scope, terms, hint

    @property
    def __class__(self) -> Any:
        return int

    def _with(self, other: Any, sign: int) -> Any:
        if type(other) is Dim:
            other = own_number(self.scope, other)
        elif not isinstance(other, int):
            other = as_int(other)
            if other is None:
                return NotImplemented
        results, key = self.scope.results, (sign, self, other)
        found = results.get(key)
        if found is None:
            terms = dict(self.terms)
            for monomial, factor in other.terms if type(other) is Dim else (((), int(other)),):
                terms[monomial] = terms.get(monomial, 0) + sign * factor
            found = results[key] = self.scope.polynomial(terms)
        return found

    def __add__(self, other: Any) -> Any:
        if isinstance(other, float) or type(other) is SizedReal:
            return _real_add(self, other)
        return self._with(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, float) or type(other) is SizedReal:
            return _real_subtract(self, other)
        return self._with(other, -1)

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, float):
            return _real_subtracted(self, other)
        negative = -self
        return negative._with(other, 1) if type(negative) is Dim else negative + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, float) or type(other) is SizedReal:
            return _real_multiply(self, other)
        if type(other) is Dim:
            other = own_number(self.scope, other)
        elif not isinstance(other, int):
            other = as_int(other)
            if other is None:
                return NotImplemented
        results, key = self.scope.results, ("*", self, other)
        found = results.get(key)
        if found is None:
            found = results[key] = self._times(other)
        return found

    def _times(self, other: Any) -> Any:
        """The product with a whole number."""
        if type(other) is not Dim:
            return self.scope.polynomial({m: c * int(other) for m, c in self.terms}) if other else 0
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
        return quotient(self.scope, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return quotient(self.scope, other, self)

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
            other = own_number(self.scope, other)
        elif not isinstance(other, int):
            other = as_int(other)
            if other is None:
                return None
        return self._with(other, -1)

    def _compare(self, relation: str, other: Any) -> Any:
        if isinstance(other, float) or type(other) is SizedReal:
            if other in (math.inf, -math.inf) if isinstance(other, float) else False:
                return RELATIONS[relation](self.hint, other)
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

    def __hash__(self) -> int:
        """Of the expression, for tables of rlx; other tables contain numbers."""
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return id(self) if caller.partition(".")[0] == "rlx" else hash(self.__index__())

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


class Derived:
    """A result of an operation of a scope that is not a polynomial; `number`: of the operation."""

    __slots__ = ("number", "scope")

    def __init__(self, scope: Any, number: int) -> None:
        self.scope, self.number = scope, number


class SizedReal(Derived):
    """A number that depends on named sizes and is not a polynomial of whole numbers. Comparisons are recorded."""

    __slots__ = ()
    __array_ufunc__ = None

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
            if self.scope.factor(self.number).low >= other:
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
        if type(other) is SizedReal and other.number == self.number:
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


# ------------------------------------------------------------------ division
def as_int(value: Any) -> int | None:
    """A whole number of NumPy as an int; None for other values."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def quotient(scope: Any, left: Any, right: Any) -> Any:
    """left // right."""
    if isinstance(left, float) or isinstance(right, float):
        return NotImplemented
    left, right = (own_number(scope, x) if type(x) is Dim else as_int(x) for x in (left, right))
    if left is None or right is None:
        return NotImplemented
    if right == 0:
        raise ZeroDivisionError("a size is divided by 0")
    exact = divided(scope, left, right)
    if exact is not None:
        return exact
    shared, left, right = shared_factors(scope, left, right)
    if type(shared) is Dim:  # factors are positive
        return quotient(scope, left, right) if is_sized(left) or is_sized(right) else left // right
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
    least_right = least_of(right)
    if low >= 0 and high < least_right:
        return base
    if high < 0 and -low <= least_right:
        return base - 1
    hint = hint_of(left) // hint_of(right)
    bottom = low // right if type(right) is not Dim and low > -math.inf else 0 if low >= 0 < least_right else -math.inf
    return base + scope.whole_of(("//", part_key(left), part_key(right)), "({} // {})", hint, (left, right), bottom)


def divided(scope: Any, left: Any, right: Any) -> Any:
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


def _by_division(scope: Any, left: Dim, right: Dim) -> Any:
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


def shared_factors(scope: Any, left: Any, right: Any) -> tuple[Any, Any, Any]:
    """The positive factors of all terms of two expressions, as a product, and the expressions without them."""
    terms = [m for x in (left, right) for m, _ in (x.terms if type(x) is Dim else (((), x),))]
    shared = []
    for at in terms[0]:
        if scope.factor(at).low >= 1 and all(m.count(at) > shared.count(at) for m in terms):
            shared.append(at)
    if not shared:
        return 1, left, right
    product = scope.polynomial({tuple(shared): 1})
    return product, left // product, right // product
