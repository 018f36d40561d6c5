"""Fourier transforms side by side, one in each lane: the code of actions for lengths that are products of 2, 3 and 5.

A vector has a complex number of each transform: real and imaginary parts alternate. The matrix of a script (see
scripts.py) is a panel of as many transforms as a vector has numbers. Factors are four real numbers in memory,
(r, r, -i, i) for r + i j. A direction is two, (s, -s): with it, a swap of the parts is a product with -j (or j).
Stockham's algorithm: each stage reads one buffer and writes another, and the results come in order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from rlx.backends.cpu.emit.ir_text import Code, Value, vector
from rlx.backends.cpu.routines.action_code import VECTOR_BYTES, ActionCode, actions_text
from rlx.code.butterflies import butterfly

__all__ = ["RADICES", "SPECTRUM_ACTIONS", "spectrum_text"]

RADICES = (4, 2, 3, 5)
Factor = tuple[Value, Value]  # (r, r, ...), (-i, i, ...)


class _Spectra(ActionCode):
    """Complex numbers in lanes. item: bytes of one; panel: their number in a vector."""

    def __init__(self, code: Code, real: np.dtype) -> None:
        super().__init__(code, real)
        self.item, self.panel = 2 * self.number, self.lanes // 2

    def vector_at(self, pointer: str, number: Value | int) -> str:
        """The address of a vector."""
        return self.at(pointer, number * VECTOR_BYTES)

    def pair(self, pointer: str) -> Value:
        """Two numbers in memory, repeated over all lanes."""
        return self.load(pointer, vector(2, self.real)).shuffled([lane % 2 for lane in range(self.lanes)])

    def factor(self, pointer: str, number: Value | int) -> Factor:
        """A factor in memory."""
        place = self.at(pointer, number * (2 * self.item))
        return self.pair(place), self.pair(self.at(place, self.item))

    def exchanged(self, x: Value) -> Value:
        """Imaginary parts in the place of real ones, and the other way round."""
        return x.shuffled([lane ^ 1 for lane in range(self.lanes)])

    def turned(self, x: Value, direction: Value) -> Value:
        """x times -j, or j."""
        return self.exchanged(x) * direction

    def with_product(self, x: Value, y: Value, factor: float) -> Value:
        """x + y * factor."""
        return self.multiply_add(y, self.constant(factor), x)

    def times(self, x: Value, factor: Factor) -> Value:
        """x times a factor."""
        return self.multiply_add(x, factor[0], self.exchanged(x) * factor[1])

    def by_part(self, real: float, imaginary: float, kind: str = "") -> Value:
        """A constant vector."""
        kind = kind or self.real
        listed = (f"{kind} {self.code.constant(kind, part).name}" for part in (real, imaginary) * self.panel)
        return Value(self.code, f"<{', '.join(listed)}>", vector(self.lanes, kind))

    def conjugated(self, x: Value) -> Value:
        """The conjugates."""
        return x * self.by_part(1.0, -1.0)


# ------------------------------------------------------------- moves
def _move_panel(t: _Spectra, outwards: bool) -> None:
    """[lanes, memory, numbers, bytes from lane to lane, from element to element, transforms side by side, bytes from
    one row of panels to the next, bytes of a number]: numbers, or their real parts, to lanes or from them.

    Lanes that are not in use become zeros.
    """
    lanes, numbers = t.place(0), t.field(8)
    lane_step, step, width, outer_step, nbytes = map(t.field, range(9, 14))
    panels = (width + (t.panel - 1)) >> (t.panel.bit_length() - 1)
    row, column = (t.code.binary(name, t.matrix, panels) for name in ("sdiv", "srem"))
    memory = t.at(t.place(1), row * outer_step + column * t.panel * lane_step)
    filled = t.smaller(t.panel, width - column * t.panel)
    full = filled.equal(t.panel) & nbytes.equal(t.item)
    neighbours = full & lane_step.equal(t.item)
    with t.code.when(neighbours), t.loop(0, numbers) as number:
        places = t.vector_at(lanes, number), t.at(memory, number * step)
        t.copy(*(places[::-1] if outwards else places))
    with t.code.when(~neighbours):
        shift = t.panel.bit_length() - 1
        squares = (full & step.equal(t.item)).where(numbers >> shift, 0)
        with t.loop(0, squares) as square:
            places = t.vector_at(lanes, square << shift), t.at(memory, (square << shift) * t.item)
            t.turn_square(*places, lane_step, outwards, 2)
        if not outwards:
            with t.code.when(~full), t.loop(0, numbers) as number:
                t.store(t.vector_at(lanes, number), t.constant(0.0))
        for kind, size in ((vector(2, t.real), t.item), (t.real, t.number)):
            rest = t.loop(squares << shift, numbers)
            with t.code.when(nbytes.equal(size)), t.loop(0, filled) as lane, rest as number:
                here = t.at(t.vector_at(lanes, number), lane * t.item)
                there = t.at(t.at(memory, lane * lane_step), number * step)
                t.copy(*((there, here) if outwards else (here, there)), kind)


# ------------------------------------------------------------- stages
def _stage(t: _Spectra) -> None:
    """[from, to, factors, direction, radix, groups, width]: one stage of all transforms."""
    source, target, factors = map(t.place, range(3))
    direction, (given, groups, width) = t.pair(t.place(3)), map(t.field, range(14, 17))
    for radix in RADICES:
        with t.code.when(given.equal(radix)), t.loop(0, groups) as group:
            known = [t.factor(factors, group * (radix - 1) + n) for n in range(radix - 1)]
            with t.loop(0, width) as column:
                first = group * width + column
                values = [t.load(t.vector_at(source, first + groups * width * n)) for n in range(radix)]
                results = butterfly(values, lambda x: t.turned(x, direction), t.with_product)
                results[1:] = map(t.times, results[1:], known)
                for n, result in enumerate(results):
                    t.store(t.vector_at(target, (group * radix + n) * width + column), result)


# ------------------------------------------------------------- products and halves
def _scale(t: _Spectra) -> None:
    """[lanes, factor, numbers]: times a real number."""
    lanes, numbers = t.place(0), t.field(8)
    factor = t.load(t.place(1), t.real).splat(t.lanes)
    with t.loop(0, numbers) as number:
        t.store(t.vector_at(lanes, number), t.load(t.vector_at(lanes, number)) * factor)


def _multiply(t: _Spectra) -> None:
    """[lanes, factors, numbers, numbers after these]: the latter become zeros."""
    lanes, factors, numbers, others = t.place(0), t.place(1), t.field(8), t.field(9)
    with t.loop(0, numbers) as number:
        place = t.vector_at(lanes, number)
        t.store(place, t.times(t.load(place), t.factor(factors, number)))
    with t.loop(numbers, numbers + others) as number:
        t.store(t.vector_at(lanes, number), t.constant(0.0))


def _join(t: _Spectra) -> None:
    """[to, from, factors, direction, half]: half + 1 numbers of a real signal's spectrum, whose even and odd elements
    were transformed as real and imaginary parts."""
    target, source, factors = map(t.place, range(3))
    direction, half = t.pair(t.place(3)), t.field(14)
    with t.loop(0, half + 1) as number:
        here, there = (
            t.load(t.vector_at(source, t.code.binary("urem", n, half))) for n in (number, half - number)
        )
        there = t.conjugated(there)
        odd = t.turned(here - there, direction) * 0.5
        t.store(t.vector_at(target, number), (here + there) * 0.5 + t.times(odd, t.factor(factors, number)))


def _part(t: _Spectra) -> None:
    """[to, from, factors, direction, half]: part of the transform of a real signal by one of `half` numbers."""
    target, source, factors = map(t.place, range(3))
    direction, half = t.pair(t.place(3)), t.field(14)
    for end in (source, t.vector_at(source, half)):
        t.store(end, t.by_part(True, False, "i1").where(t.load(end), 0.0))
    with t.loop(0, half) as number:
        here, there = (t.load(t.vector_at(source, n)) for n in (number, half - number))
        there = t.conjugated(there)
        odd = t.times(here - there, t.factor(factors, number)) * 0.5
        t.store(t.vector_at(target, number), (here + there) * 0.5 + t.turned(odd, direction))


def _mirror(t: _Spectra) -> None:
    """[lanes, length]: the other half of a real signal's spectrum."""
    lanes, length = t.place(0), t.field(5)
    with t.loop((length >> 1) + 1, length) as number:
        t.store(t.vector_at(lanes, number), t.conjugated(t.load(t.vector_at(lanes, length - number))))


SPECTRUM_ACTIONS: dict[str, Callable[[_Spectra], None]] = {
    "load_panel": partial(_move_panel, outwards=False),
    "store_panel": partial(_move_panel, outwards=True),
    "transform_stage": _stage,
    "scale_lanes": _scale,
    "multiply_lanes": _multiply,
    "join_spectrum": _join,
    "part_spectrum": _part,
    "mirror_spectrum": _mirror,
}


def spectrum_text(real: np.dtype) -> str:
    """The actions for complex numbers whose parts have a dtype."""
    return actions_text(SPECTRUM_ACTIONS, _Spectra, real)
