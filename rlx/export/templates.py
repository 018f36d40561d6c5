"""One text for the programs of all sizes.

A function is traced for several values of its sizes. The texts of the programs must be equal except for numbers, and
each number must be an expression of the sizes that gives all observed values: a polynomial of degree two, or, for
windows and strides, `//` or `%` of a linear expression. The function needs no changes for this.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import gcd, isclose, lcm
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import ShapeError
from rlx.export.program_text import Unreadable, evaluate_number
from rlx.export.sizes import Constraint, Unknowns

__all__ = ["Template", "expression_of", "limits_of", "points_of", "template", "template_of"]

# a number that is not part of a name
_NUMBER = re.compile(r"(?<![\w.\"])-?(?:\d+\.?\d*(?:e[+-]?\d+)?)(?![\w.\"])")
_FEW = (2, 3, 5, 11, 17, 37, 64, 131, 18, 7, 23, 29, 41, 13, 53)
_MANY = (*_FEW, *range(24, 41), 48, 59, 61, 72, 100)
_FAR = (257, 1031, 4099, 1_048_583)
_ROUNDING = 2.0**-7  # of bfloat16
MOST_NAMES = 3
MOST_DIVISOR = 16
Sizes = Mapping[str, int]


class Template(NamedTuple):
    """A text with expressions of sizes in place of numbers: each part but the first is preceded by a number."""

    parts: Sequence[str]
    numbers: Sequence[str]

    @property
    def text(self) -> str:
        """The text."""
        return "".join(itertools.chain(self.parts[:1], *zip(self.numbers, self.parts[1:], strict=True)))

    def fits(self, text: str, point: Sizes) -> bool:
        """Whether the text for a point is `text`. Floats may differ by their rounding."""
        if _NUMBER.split(text) != list(self.parts):
            return False
        pairs = zip(self.numbers, _NUMBER.findall(text), strict=True)
        return all(one == other or _equal(one, other, point) for one, other in pairs)


def _equal(expression: str, number: str, point: Sizes) -> bool:
    try:
        expected = evaluate_number(expression, point)
    except (Unreadable, ZeroDivisionError):
        return False
    found = float(number) if re.search(r"[.e]", number) else int(number)
    return expected == found or (isinstance(found, float) and isclose(expected, found, rel_tol=_ROUNDING))


def template(render: Callable[[Sizes], str], unknowns: Unknowns, what: str) -> Template:
    """The text of a program for any values of sizes.

    Args:
      render: returns the text for given values.
      unknowns: the sizes.
      what: the name of the program, for messages.

    Raises ShapeError if the programs of two sizes differ in more than numbers, if a number follows no rule, and if too
    few sizes satisfy their constraints.
    """
    refused = ""
    for thorough in (False, True):
        points = points_of(unknowns, what, thorough)
        found = _generalised([render(point) for point in points], points, thorough)
        if not isinstance(found, _NoTemplate):
            return found
        refused = found.why
        if found.final:
            break
    raise _no_single_text(what, refused)


class _NoTemplate:
    """The reason why texts have no common template. `final`: more texts would not help."""

    def __init__(self, why: str, final: bool) -> None:
        self.why, self.final = why, final


def points_of(unknowns: Unknowns, what: str, thorough: bool = False) -> list[dict[str, int]]:
    """Values for all names such that none follows from another and all constraints hold."""
    names, values = unknowns.names, _MANY if thorough else _FEW
    if len(names) > MOST_NAMES:
        raise ShapeError(f"{what} has {len(names)} unknown sizes.", f"At most {MOST_NAMES} names are supported.")
    least = 1 + (len(names) + 1) * (len(names) + 2) // 2  # one more than the number of a polynomial's coefficients
    count = len(values) if thorough else 2 + least
    found = [
        # strides that have no divisor in common with the number of values: each name gets odd and even ones
        {name: values[((turn << at) + 2 * at) % len(values)] for at, name in enumerate(names)}
        for turn in range(count)
    ]
    if not any(unknowns.broken(point, strictly=True) for point in found):
        return found
    # include sizes near the numbers in the constraints
    near = [int(n) + v for c in unknowns.constraints for n in re.findall(r"\d+", str(c)) for v in (-1, 0, *_FEW[:6])]
    tried = dict.fromkeys((*(range(1, 33) if len(names) < 3 else _FEW), *(n for n in near if n > 0)))
    every = [dict(zip(names, at, strict=True)) for at in itertools.product(tried, repeat=len(names))]
    allowed = [point for point in every if not unknowns.broken(point)]
    # if two sizes are equal, a function may take a shortcut
    inside = [point for point in allowed if not unknowns.broken(point, strictly=True)]
    allowed = inside if len(inside) >= least else allowed
    if len(allowed) < least:
        listed = ", ".join(map(str, unknowns.constraints))
        raise ShapeError(
            f"{what} has sizes with {listed}, which only {len(allowed)} of {len(every)} candidates satisfy.",
            "Weaken the constraints; instead of an equation, write one size as an expression of the others.",
        )
    # spread over the list, in which the last names change fastest
    stride = next(s for s in range(max(1, len(allowed) // count), len(allowed) + 1) if gcd(s, len(allowed)) == 1)
    return [allowed[turn * stride % len(allowed)] for turn in range(min(count, len(allowed)))]


def limits_of(
    found: Template,
    render: Callable[[Sizes], str],
    same: Callable[[Sizes], bool | None],
    unknowns: Unknowns,
    what: str,
    suspects: Iterable[int],
) -> tuple[Constraint, ...]:
    """Constraints that exclude sizes for which the function has other results than the template, or none.

    Size 1, some far larger sizes than `template` tries, and the `suspects` are tried for one name after the other.
    `same`: whether the two programs for a point have the same results; None if this is unknown.
    """
    base = points_of(unknowns, what)[0]
    limits: list[str] = []
    for name in unknowns.names:

        def fits(size: int, name: str = name) -> bool:
            point = {**base, name: size}
            return bool(unknowns.broken(point)) or _fits(found, render, point)

        def agrees(size: int, name: str = name) -> bool | None:
            return _answered(same, {**base, name: size})

        if not fits(1) and not agrees(1):
            limits.append(f"{name} >= 2")
        last = _largest(fits, agrees, sorted({*_FAR, *suspects}))
        limits += [] if last is None else [f"{name} <= {last}"]
    return tuple(map(Constraint.of, limits))


def _largest(fits: Callable[[int], bool], agrees: Callable[[int], bool | None], sizes: Sequence[int]) -> int | None:
    """The largest size for which template and function agree; None if they do for all of `sizes`.

    A function may choose another algorithm from some size on: then both agree at this size.
    """
    known, changed = set(_FEW), False
    for size in sizes:
        if fits(size):
            known.add(size)
            continue
        edge = size - 1 if changed else _last(fits, max(n for n in known if n < size), size)
        if (not changed and not agrees(edge + 1)) or agrees(size) is False:
            return edge
        changed = True
    return None


def _fits(found: Template, render: Callable[[Sizes], str], point: Sizes) -> bool:
    return bool(_answered(lambda point: found.fits(render(point), point), point))


def _answered(ask: Callable[[Sizes], bool | None], point: Sizes) -> bool | None:
    """An answer for a point; False if the function raises an error, as its file must not accept such sizes."""
    try:
        return ask(point)
    except MemoryError:  # of NumPy arrays in the function
        return True
    except Exception:
        return False


def _last(fits: Callable[[int], bool], good: int, bad: int) -> int:
    """The largest size that fits, if all do up to some size between a good one and a bad one."""
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def template_of(texts: Sequence[str], points: Sequence[Sizes], what: str) -> Template:
    """The template of texts for given values of sizes. Raises ShapeError if there is none."""
    found = _generalised(texts, points, thorough=True)
    if isinstance(found, _NoTemplate):
        raise _no_single_text(what, found.why)
    return found


def _no_single_text(what: str, why: str) -> ShapeError:
    return ShapeError(
        f"{what} has no single program for all sizes: {why}.",
        "A function may depend on the size of a batch only through shapes, without `if`, Python loops over it or NumPy"
        " arrays computed from it. Otherwise export one function for each size.",
    )


def _generalised(texts: Sequence[str], points: Sequence[Sizes], thorough: bool) -> Template | _NoTemplate:
    parts = [_NUMBER.split(text) for text in texts]
    for point, other in zip(points[1:], parts[1:], strict=True):
        if len(other) != len(parts[0]) or other != parts[0]:
            pairs = itertools.zip_longest(parts[0], other, fillvalue="")
            where = next((a.strip().splitlines() or [""])[-1] for a, b in pairs if a != b)
            return _NoTemplate(f"with {_said(points[0])} and {_said(point)} it is different near {where[-80:]!r}", True)
    columns = zip(*map(_NUMBER.findall, texts), strict=True)
    known: dict[tuple[str, ...], str] = {}
    written: list[str] = []
    for at, numbers in enumerate(columns):
        if numbers not in known:
            found = numbers[0] if len(set(numbers)) == 1 else expression_of(numbers, points, thorough)
            if found is None:
                line = Template(parts[0][: at + 1], written).text.splitlines()[-1].strip()
                return _NoTemplate(f"{', '.join(numbers[:5])}, ... follow no rule, in {line[-60:]!r}", thorough)
            known[numbers] = found
        written.append(known[numbers])
    return Template(parts[0], written)


def _said(point: Sizes) -> str:
    return ", ".join(f"{name} = {value}" for name, value in point.items())


# ------------------------------------------------------------------ expressions
def expression_of(numbers: Sequence[str], points: Sequence[Sizes], thorough: bool) -> str | None:
    """An expression with these values at the points; None if there is none. thorough: also // and %."""
    if all(re.fullmatch(r"-?\d+", n) for n in numbers):
        values = list(map(int, numbers))
        return _polynomial(values, points) or (_quotient(values, points) if thorough else None)
    floats: list[float] = [float(n) for n in numbers]
    if all(float(v).is_integer() for v in floats):
        found = _polynomial([int(v) for v in floats], points)
        return None if found is None else f"1.0 * ({found})"
    inverse = [round(1.0 / v) if v else 0 for v in floats]
    if all(n and np.float32(1.0 / n) == np.float32(v) for n, v in zip(inverse, floats, strict=True)):
        found = _polynomial(inverse, points)
        return None if found is None else f"1.0 / ({found})"
    return None


def _polynomial(values: Sequence[int], points: Sequence[Sizes]) -> str | None:
    """A polynomial of degree two."""
    names = list(points[0])
    monomials: list[tuple[str, ...]] = [(), *((n,) for n in names)]
    monomials += itertools.combinations_with_replacement(names, 2)
    rows = [[Fraction(_value(m, p)) for m in monomials] + [Fraction(v)] for p, v in zip(points, values, strict=True)]
    solved = _solve(rows)
    if solved is None:
        return None
    shared = lcm(*(c.denominator for c in solved))
    terms = [_term(int(c * shared), m) for c, m in zip(solved, monomials, strict=True) if c]
    text = " + ".join(reversed(terms)) or "0"
    return text if shared == 1 else f"({text}) // {shared}"


def _value(monomial: Sequence[str], point: Sizes) -> int:
    found = 1
    for name in monomial:
        found *= point[name]
    return found


def _term(factor: int, monomial: Sequence[str]) -> str:
    parts = [*([str(factor)] if factor != 1 or not monomial else []), *monomial]
    return " * ".join(parts)


def _solve(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """The unique solution of an overdetermined linear system; None if there is none."""
    count = len(rows[0]) - 1
    for column in range(count):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column]
        for r, row in enumerate(rows):
            if r != column and row[column]:
                factor = row[column] / head[column]
                rows[r] = [a - factor * b for a, b in zip(row, head, strict=True)]
    if any(row[-1] for row in rows[count:]):
        return None
    return [rows[c][-1] / rows[c][c] for c in range(count)]


def _quotient(values: Sequence[int], points: Sequence[Sizes]) -> str | None:
    """(p * name + q) // d or (p * name + q) % d, times a number, with a number added."""
    for name in points[0]:
        sizes = [point[name] for point in points]
        for text, function in _quotients(name):
            found = _line([function(s) for s in sizes], values)
            if found is not None:
                factor, shift = found
                scaled = f"{factor} * ({text})" if factor != 1 else text
                return f"{scaled} + {shift}" if shift else scaled
    return None


def _line(xs: Sequence[int], ys: Sequence[int]) -> tuple[int, int] | None:
    """Integers a and b with y = a x + b for all pairs, a not zero."""
    at = next((n for n, x in enumerate(xs) if x != xs[0]), None)
    if at is None:
        return None
    factor = (ys[at] - ys[0]) // (xs[at] - xs[0])
    shift = ys[0] - factor * xs[0]
    return (factor, shift) if factor and all(y == factor * x + shift for x, y in zip(xs, ys, strict=True)) else None


def _quotients(name: str) -> Iterator[tuple[str, Callable[[int], Any]]]:
    for d, p, sign in itertools.product(range(2, MOST_DIVISOR + 1), (1, 2, 3, 4), (1, -1)):
        for q in range(d):
            scaled = name if p * sign == 1 else f"{p * sign} * {name}"
            inside = f"({scaled} + {q})" if q else scaled
            yield f"{inside} // {d}", lambda s, p=p * sign, q=q, d=d: (p * s + q) // d
            yield f"{inside} % {d}", lambda s, p=p * sign, q=q, d=d: (p * s + q) % d
