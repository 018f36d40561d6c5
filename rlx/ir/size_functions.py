"""Functions of numbers that may be symbolic sizes. Those of the second part record no condition."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from rlx.ir.dims import Dim, SizedReal, divided, hint_of, is_sized, least_of, part_key, shared_factors

__all__ = [
    "chosen",
    "common_divisor",
    "computed",
    "decided",
    "divides",
    "exact_half",
    "greatest",
    "kept_with",
    "least",
    "logarithm",
    "plain_size",
    "root",
    "shown_size",
    "slice_indices",
    "span",
    "whole",
    "whole_number",
]


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
    key = ("computed", function, *map(part_key, values))
    at = scope.operation(key, "", found, values, function=function)
    row = SizedReal(scope, at)
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
    if type(value) is SizedReal:
        return value.scope.whole_of(("int", value.number), "int({})", int(hint_of(value)), (value,), 0)
    return value if type(value) is Dim else int(value)


def root(value: Any) -> Any:
    """math.isqrt(value)."""
    if type(value) is Dim:
        return value.scope.whole_of(("isqrt", value.terms), "math.isqrt({})", math.isqrt(value.hint), (value,), 0)
    return math.isqrt(value)


def logarithm(value: Any) -> Any:
    """math.log2(value) of a number that is at least 1."""
    if type(value) is Dim:
        return value.scope.real_of(("log2", value.terms), "math.log2({})", math.log2(value.hint), (value,), 0.0)
    return math.log2(value)


def common_divisor(left: Any, right: Any) -> Any:
    """math.gcd(left, right) of numbers that are not negative; of expressions a divisor that they have for all sizes."""
    if not is_sized(left) and not is_sized(right):
        return math.gcd(left, right)
    scope = left.scope if is_sized(left) else right.scope
    for one, other in ((left, right), (right, left)):
        if type(one) is int and one == 0:
            return other
        if type(other) is Dim and divided(scope, one, other) is not None:
            return other
    shared, left, right = shared_factors(scope, left, right)
    factors = [c for x in (left, right) for _, c in (x.terms if type(x) is Dim else (((), x),))]
    return shared * math.gcd(*factors)


def decided(value: Any) -> Any:
    """An expression's number, with the condition that the expression has this value."""
    return value.hint if type(value) is Dim and value == value.hint else value


def divides(divisor: Any, value: Any) -> bool:
    """Whether a positive number divides another one; of expressions: whether it does for all sizes."""
    sized = value if is_sized(value) else divisor
    return divided(sized.scope, value, divisor) is not None if is_sized(sized) else value % divisor == 0


def exact_half(value: Any) -> Any:
    """value // 2; None for an odd number, and if an expression is not even whatever its sizes are."""
    if type(value) is Dim:
        return divided(value.scope, value, 2)
    return None if value % 2 else value // 2


def _picked(name: str, left: Any, right: Any) -> Any:
    function = getattr(builtins, name)
    sized = left if is_sized(left) else right
    if not is_sized(sized):
        return function(left, right)
    hint = function(hint_of(left), hint_of(right))
    scope, lows = sized.scope, (least_of(left), least_of(right))
    both_whole = float not in (type(hint_of(left)), type(hint_of(right)))
    make = scope.whole_of if both_whole else scope.real_of
    return make((name, part_key(left), part_key(right)), f"{name}({{}}, {{}})", hint, (left, right), function(lows))


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
    key = ("chosen", value.terms, limit, part_key(below), part_key(otherwise))
    parts = (below, value, limit, otherwise)
    return value.scope.whole_of(key, "({} if {} < {} else {})", hint, parts, min(map(least_of, (below, otherwise))))
