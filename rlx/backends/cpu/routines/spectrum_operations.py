"""Vector operations of Fourier transforms: 64 bytes of complex numbers, one of each transform in a lane.

Real and imaginary parts alternate. Factors are four real numbers in memory, (r, r, -i, i) for r + i j.
A direction is two, (s, -s): with it, a swap of the parts is a product with -j (or j).
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sin

import numpy as np

from rlx.backends.cpu.routines.lane_operations import VectorText, turn_square
from rlx.backends.cpu.runtime.native import Operation

__all__ = ["spectrum_operations"]

_FIFTH = 2 * pi / 5


class _ComplexVectors(VectorText):
    """Emits operations on vectors of complex numbers."""

    def pair(self, argument: int, offset: int = 0) -> str:
        """Two numbers in memory, repeated over all lanes."""
        pair = f"<2 x {self.scalar}>"
        pointer = self.address(argument)
        if offset:
            pointer = self.name(f"getelementptr {self.scalar}, ptr {pointer}, i64 {offset}")
        loaded = self.name(f"load {pair}, ptr {pointer}, align {self.align}")
        mask = ", ".join(f"i32 {lane % 2}" for lane in range(self.lanes))
        return self.name(f"shufflevector {pair} {loaded}, {pair} poison, <{self.lanes} x i32> <{mask}>")

    def exchanged(self, x: str) -> str:
        """Imaginary parts in the place of real ones, and the other way round."""
        mask = ", ".join(f"i32 {lane ^ 1}" for lane in range(self.lanes))
        return self.name(
            f"shufflevector {self.vector} {x}, {self.vector} poison, <{self.lanes} x i32> <{mask}>"
        )  # fmt: skip

    def add(self, x: str, y: str) -> str:
        return self.binary("fadd", x, y)

    def subtract(self, x: str, y: str) -> str:
        return self.binary("fsub", x, y)

    def scaled(self, x: str, factor: float) -> str:
        return self.binary("fmul", x, self.splat(self.literal(factor)))

    def with_product(self, x: str, y: str, factor: float) -> str:
        """x + y * factor."""
        return self.multiply_add(y, self.splat(self.literal(factor)), x)

    def turned(self, x: str, direction: str) -> str:
        """x times -j, or j."""
        return self.binary("fmul", self.exchanged(x), direction)

    def times(self, x: str, argument: int, number: int = 0) -> str:
        """x times the factor of that number."""
        crossed = self.binary("fmul", self.exchanged(x), self.pair(argument, 4 * number + 2))
        return self.multiply_add(x, self.pair(argument, 4 * number), crossed)

    def conjugated(self, x: str) -> str:
        ones = ", ".join(f"{self.scalar} {'-1.0' if lane % 2 else '1.0'}" for lane in range(self.lanes))
        return self.binary("fmul", x, f"<{ones}>")


def _butterfly(text: _ComplexVectors, radix: int) -> Operation:
    """(from, bytes to the next, to, bytes to the next, factors, direction): a transform of `radix` numbers,
    its results but the first multiplied by factors."""
    t = text
    pointers = {0: [t.address(0)], 2: [t.address(2)]}
    for argument, places in pointers.items():
        for _ in range(radix - 1):
            places.append(t.name(f"getelementptr i8, ptr {places[-1]}, i64 {{{argument + 1}}}"))
    values = [t.name(f"load {t.vector}, ptr {place}, align {t.align}") for place in pointers[0]]
    results = _BUTTERFLIES[radix](t, values, t.pair(5))
    for number, (place, result) in enumerate(zip(pointers[2], results, strict=True)):
        value = t.times(result, 4, number - 1) if number else result
        t.lines.append(f"store {t.vector} {value}, ptr {place}, align {t.align}")
    return t.operation()


def _two(t: _ComplexVectors, a: list[str], direction: str) -> list[str]:
    return [t.add(a[0], a[1]), t.subtract(a[0], a[1])]


def _three(t: _ComplexVectors, a: list[str], direction: str) -> list[str]:
    total, gap = t.add(a[1], a[2]), t.subtract(a[1], a[2])
    middle = t.with_product(a[0], total, -0.5)
    side = t.scaled(t.turned(gap, direction), sin(pi / 3))
    return [t.add(a[0], total), t.add(middle, side), t.subtract(middle, side)]


def _four(t: _ComplexVectors, a: list[str], direction: str) -> list[str]:
    even, even_gap = t.add(a[0], a[2]), t.subtract(a[0], a[2])
    odd, odd_gap = t.add(a[1], a[3]), t.turned(t.subtract(a[1], a[3]), direction)
    return [t.add(even, odd), t.add(even_gap, odd_gap), t.subtract(even, odd), t.subtract(even_gap, odd_gap)]


def _five(t: _ComplexVectors, a: list[str], direction: str) -> list[str]:
    outer, inner = t.add(a[1], a[4]), t.add(a[2], a[3])
    outer_gap, inner_gap = t.subtract(a[1], a[4]), t.subtract(a[2], a[3])
    near, far = cos(_FIFTH), cos(2 * _FIFTH)
    near_side, far_side = sin(_FIFTH), sin(2 * _FIFTH)
    first = t.with_product(t.with_product(a[0], outer, near), inner, far)
    second = t.with_product(t.with_product(a[0], outer, far), inner, near)
    first_side = t.turned(t.with_product(t.scaled(outer_gap, near_side), inner_gap, far_side), direction)
    second_side = t.turned(t.with_product(t.scaled(outer_gap, far_side), inner_gap, -near_side), direction)
    return [
        t.add(a[0], t.add(outer, inner)),
        t.add(first, first_side),
        t.add(second, second_side),
        t.subtract(second, second_side),
        t.subtract(first, first_side),
    ]


_BUTTERFLIES: dict[int, Callable[[_ComplexVectors, list[str], str], list[str]]] = {
    2: _two,
    3: _three,
    4: _four,
    5: _five,
}


def _scale(t: _ComplexVectors) -> Operation:
    """(element, factor): times a real number."""
    number = t.name(f"load {t.scalar}, ptr {t.address(1)}, align {t.align}")
    t.store(0, t.binary("fmul", t.load(0), t.splat(number)))
    return t.operation()


def _join_halves(t: _ComplexVectors) -> Operation:
    """(to, spectrum at k, at half - k, factor, direction): of a real signal whose even and odd elements were
    transformed as real and imaginary parts."""
    here, there = t.load(1), t.conjugated(t.load(2))
    even = t.scaled(t.add(here, there), 0.5)
    odd = t.scaled(t.turned(t.subtract(here, there), t.pair(4)), 0.5)
    t.store(0, t.add(even, t.times(odd, 3)))
    return t.operation()


def _part_halves(t: _ComplexVectors) -> Operation:
    """(to, spectrum at k, at half - k, factor, direction): the other way round."""
    here, there = t.load(1), t.conjugated(t.load(2))
    even = t.scaled(t.add(here, there), 0.5)
    odd = t.scaled(t.times(t.subtract(here, there), 3), 0.5)
    t.store(0, t.add(even, t.turned(odd, t.pair(4))))
    return t.operation()


def _multiply(t: _ComplexVectors) -> Operation:
    """(element, factor)."""
    t.store(0, t.times(t.load(0), 1))
    return t.operation()


def _only_real(t: _ComplexVectors) -> Operation:
    ones = ", ".join(f"i1 {int(lane % 2 == 0)}" for lane in range(t.lanes))
    t.store(0, t.select(f"<{ones}>", t.load(0), "zeroinitializer"))
    return t.operation()


def _conjugate(t: _ComplexVectors) -> Operation:
    t.store(0, t.conjugated(t.load(1)))
    return t.operation()


def _copy(t: _ComplexVectors) -> Operation:
    t.store(0, t.load(1))
    return t.operation()


_SPELLINGS: dict[str, Callable[[_ComplexVectors], Operation]] = {
    "butterfly_two": lambda t: _butterfly(t, 2),
    "butterfly_three": lambda t: _butterfly(t, 3),
    "butterfly_four": lambda t: _butterfly(t, 4),
    "butterfly_five": lambda t: _butterfly(t, 5),
    "scale_element": _scale,
    "join_halves": _join_halves,
    "part_halves": _part_halves,
    "multiply_element": _multiply,
    "only_real": _only_real,
    "conjugate_element": _conjugate,
    "copy_element": _copy,
    "turn_to_lanes": lambda t: turn_square(t, True, t.lanes // 2),
    "turn_from_lanes": lambda t: turn_square(t, False, t.lanes // 2),
}


def spectrum_operations(real: np.dtype) -> dict[str, Operation]:
    """The operations by name, for complex numbers whose parts have a dtype."""
    return {name: spell(_ComplexVectors(real)) for name, spell in _SPELLINGS.items()}
