"""Fourier transforms of a few numbers, written once for scalars and for vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sin
from typing import Any

__all__ = ["butterfly", "radices"]


def radices(length: int, known: Sequence[int]) -> tuple[int, ...]:
    """The factors of a length that are `known`, in this order; their product is less if it has others.

    >>> radices(60, (4, 2, 3, 5)), radices(14, (4, 2, 3, 5))
    ((4, 3, 5), (2,))
    """
    for radix in known:
        if length % radix == 0:
            return (radix, *radices(length // radix, known))
    return ()


def butterfly(
    a: Sequence[Any], turned: Callable[[Any], Any], with_product: Callable[[Any, Any, float], Any]
) -> list[Any]:
    """The transform of 2, 4, or an odd number of values, which are added, subtracted, and multiplied by floats.

    turned(x): x times -j, or j for the inverse transform. with_product(x, y, factor): x + y * factor.
    """
    match len(a):
        case 2:
            return [a[0] + a[1], a[0] - a[1]]
        case 4:
            even, even_gap = a[0] + a[2], a[0] - a[2]
            odd, odd_gap = a[1] + a[3], turned(a[1] - a[3])
            return [even + odd, even_gap + odd_gap, even - odd, even_gap - odd_gap]
    radix, half = len(a), range(1, len(a) // 2 + 1)
    totals, gaps = [a[k] + a[radix - k] for k in half], [turned(a[k] - a[radix - k]) for k in half]
    total = totals[0]
    for other in totals[1:]:
        total = total + other
    results = [a[0] + total] * radix
    for number in half:
        middle, side = a[0], gaps[0] * _sine(number, radix)
        for k in half:
            middle = with_product(middle, totals[k - 1], _cosine(number * k, radix))
        for k in half[1:]:
            side = with_product(side, gaps[k - 1], _sine(number * k, radix))
        results[number], results[radix - number] = middle + side, middle - side
    return results


def _cosine(turns: int, of: int) -> float:
    """cos(2 pi turns / of), as the sine of a small angle."""
    rest = min(turns % of, -turns % of)
    return sin(pi * (of - 4 * rest) / (2 * of))


def _sine(turns: int, of: int) -> float:
    rest = turns % of
    return sin(2 * pi * rest / of) if 2 * rest < of else -sin(2 * pi * (of - rest) / of)
