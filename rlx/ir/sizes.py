"""Scopes of symbolic sizes: their names, their expressions (see dims.py), and the conditions of decisions about them.

`SizeScope.compiled` turns numbers and conditions into one Python function of the names.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlx.ir.dims import (
    RELATIONS,
    Derived,
    Dim,
    Monomial,
    SizedReal,
    SizePinned,
    Terms,
    factors_in,
    hint_of,
    part_key,
)

__all__ = ["Condition", "SizeScope"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FILES = tuple(f"{_PACKAGE}ir{os.sep}{name}.py" for name in ("sizes", "dims", "size_functions", "sized_scalars"))


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


class SizeScope:
    """The names of one trace, the expressions made of them, and the conditions recorded so far.

    Names are at least 1. Expressions are interned: equal ones are one object. A scope that is closed records nothing:
    what the user's function left elsewhere is a number then.

    >>> scope = SizeScope({"n": 8})
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
        self._answers: dict[tuple[Dim, int | None], bool] = {}  # once given, they follow from the conditions
        self.results: dict[tuple[Any, ...], Any] = {}  # of operations on expressions
        self._tests: dict[tuple[Any, ...], bool] = {}
        self._recorded: dict[Any, Condition] = {}
        for name, hint in hints.items():
            self._factors.append(_Factor(name, hint, name, (), 1, math.inf))
        self.names = tuple(hints)
        self._names: set[Terms] = {(((at,), 1),) for at in range(len(hints))}
        self.dims = tuple(self._dim((((at,), 1),)) for at in range(len(self.names)))

    # ------------------------------------------------------------------ expressions
    def factor(self, number: int) -> _Factor:
        """The name or the operation of this number."""
        return self._factors[number]

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
            used = tuple(dict.fromkeys(n for part in parts for n in factors_in(part)))
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
    ) -> SizedReal:  # fmt: skip
        """An operation with another result."""
        return SizedReal(self, self.operation(key, text, hint, parts, low, function=function))

    def source(self, value: Any) -> str:
        """Python source of a number or an expression."""
        if type(value) is Dim:
            return "(" + " + ".join(self._term(m, c) for m, c in value.terms) + ")"
        if isinstance(value, Derived):
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
        answer = self._answers.get((value, least))
        if answer is None:
            answer = self._answers[value, least] = self._at_least(value, least)
        return answer

    def _at_least(self, value: Dim, least: int) -> bool:
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
        answer = self._answers.get((value, None))
        if answer is None:
            answer = self._answers[value, None] = self._is_zero(value)
        return answer

    def _is_zero(self, value: Dim) -> bool:
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
        answer = bool(RELATIONS[relation](hint_of(left), hint_of(right)))
        key = (relation, part_key(left), part_key(right))
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
            needed.update(factors_in(value))
        for at in reversed(range(len(self._factors))):
            if at in needed:
                needed.update(self._factors[at].parts)
        lines = [f"{', '.join(self.names)}, = names", f"if not ({' and '.join(tests)}): return None"]
        operations = [self._factors[at] for at in sorted(needed) if at >= len(self.names)]
        lines += [f"{operation.name} = {operation.text}" for operation in operations]
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


def _place() -> str:
    """The function of rlx that asks."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in _FILES:
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename.removeprefix(_PACKAGE)}:{frame.f_lineno} ({code.co_name})"
