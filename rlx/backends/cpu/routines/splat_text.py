"""IR that draws lists of splats into a tile of an image, and its derivative, for a dtype and a layout of splats.

The loops are over a splat, the rows of the tile that it can reach, and the pixels of a row, which LLVM turns into
vectors. A tile's state is planes of its pixels in memory that stays in the first-level cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from rlx.backends.cpu.emit.ir_text import Code, FunctionBody, Value, functions_text
from rlx.backends.cpu.emit.polynomials import exp
from rlx.ir.splats import (
    COLOUR,
    LARGEST_ALPHA,
    LEAST_ALPHA,
    LEAST_TRANSMITTANCE,
    SplatLayout,
    moments,
    row_cotangents,
)

__all__ = ["SPLAT_FUNCTIONS", "splat_text", "state_numbers"]

_REACH = 2.002 * math.log(255)  # twice an exponent for which opacity 1 is below the least alpha
_SLACK = 1e-6  # a relative error of float32

BEGIN = "rlx_splat_begin"
DRAW = "rlx_splat_draw"
FINISH = "rlx_splat_finish"
BEGIN_BACK = "rlx_splat_begin_back"
DRAW_BACK = "rlx_splat_draw_back"


def state_numbers(layout: SplatLayout) -> int:
    """Numbers of the state of a tile, for either direction."""
    return (layout.channels + 2) * layout.pixels + layout.sums * layout.tile


def splat_text(layout: SplatLayout) -> str:
    """The functions, of one tile; first, last: numbers of places in `order`.

    BEGIN(state, seen, first). DRAW(state, seen, splats, order, origin, first, last) -> the pixels that are not opaque.
    FINISH(state, image). BEGIN_BACK(state, seen, image, cotangent) -> the last place that any pixel has seen.
    DRAW_BACK(state, seen, splats, order, origin, found, first, last): cotangents of splats, from back to front.
    """
    return functions_text(_BODIES, lambda code: _PixelTile(code, layout), "ptr noalias")


class _Splat(NamedTuple):
    """The numbers of a splat, and the corner of the tile."""

    numbers: list[Value]
    corner: tuple[Value, Value]


class _Pixel(NamedTuple):
    """A splat at a pixel. alpha: before it is bounded. inverse: of the divisor of an exact ray's exponent."""

    x: Value
    y: Value
    exponent: Value
    density: Value
    alpha: Value
    drawn: Value
    inverse: Value | None


class _PixelTile:
    """Code for the pixels of a tile."""

    def __init__(self, code: Code, layout: SplatLayout) -> None:
        self.code, self.layout = code, layout
        self.real = "float" if layout.dtype.itemsize == 4 else "double"

    def word(self, number: int) -> Value:
        return self.code.constant("i64", number)

    def number(self, value: float) -> Value:
        return self.code.constant(self.real, value)

    def plane(self, state: str, n: int) -> str:
        """The address of a plane of a tile's state."""
        return self.code.element(self.real, state, n * self.layout.pixels)

    def load(self, pointer: str, index: Value | int) -> Value:
        return self.code.load(self.real, self.code.element(self.real, pointer, index))

    def store(self, value: Value, pointer: str, index: Value | int) -> None:
        self.code.store(value, self.code.element(self.real, pointer, index))

    def integer(self, pointer: str, index: Value) -> Value:
        """An int32 as i64."""
        return self.code.load("i32", self.code.element("i32", pointer, index)).convert("sext", "i64")

    def store_integer(self, value: Value, pointer: str, index: Value) -> None:
        self.code.store(value.convert("trunc", "i32"), self.code.element("i32", pointer, index))

    # ------------------------------------------------------------- splats
    def splat(self, splats: str, order: str, origin: str, place: Value) -> _Splat:
        """The splat at a place of the order."""
        row = self.code.element(self.real, splats, self.integer(order, place) * self.layout.numbers)
        numbers = [self.load(row, n) for n in range(self.layout.numbers)]
        return _Splat(numbers, (self.load(origin, 0), self.load(origin, 1)))

    def rows(self, splat: _Splat) -> tuple[Value, Value]:
        """The first row that a splat can reach, and the row behind the last; all rows if that is not known."""
        tile = self.layout.tile
        if self.layout.perspective:
            return self.word(0), self.word(tile)
        _, mean, a, b, c, opacity = splat.numbers[:COLOUR]
        least = a * c * (1.0 - _SLACK) - b * b  # of thin splats, rounding leaves little of the determinant
        half = (a * _REACH / least).call("sqrt")
        middle = mean - splat.corner[1]
        known = (opacity <= 1.0) & (least > 0.0) & (half < 1e6) & (abs(middle) < 1e6)
        low, high = (known.where(edge, other) for edge, other in ((middle - half, 0.0), (middle + half, float(tile))))
        bounds = (self.bounded(low - 1.0), self.bounded(high + 1.0))
        return bounds[0].convert("fptosi", "i64"), bounds[1].convert("fptosi", "i64")

    def bounded(self, x: Value) -> Value:
        """x from 0 to the side of the tile."""
        tile = float(self.layout.tile)
        return (x < 0.0).where(0.0, (x > tile).where(tile, x))

    def centre(self, corner: Value, number: Value) -> Value:
        """A coordinate of a pixel's centre."""
        return corner + (number.convert("sitofp", self.real) + 0.5)

    def pixel(self, splat: _Splat, row: Value, column: Value) -> _Pixel:
        """The splat at a pixel."""
        mean_x, mean_y, a, b, c, opacity = splat.numbers[:COLOUR]
        x = self.centre(splat.corner[0], column) - mean_x
        y = self.centre(splat.corner[1], row) - mean_y
        exponent = x.fma((a * 0.5) * x + b * y, (c * 0.5) * y * y)
        inverse, ahead = None, None
        if self.layout.perspective:
            e, f, g, h, k = splat.numbers[COLOUR + self.layout.channels :]
            linear = e * x + f * y
            divisor = linear * 2.0 + 1.0 + (g * x * x + h * 2.0 * x * y + k * y * y)
            inverse, ahead = self.number(1.0) / divisor, linear > -1.0
            exponent = exponent * inverse
        density = self.code.function(exp, -exponent)
        alpha = opacity * density
        drawn = (exponent >= 0.0) & (alpha >= LEAST_ALPHA)
        drawn = drawn if ahead is None else drawn & ahead
        return _Pixel(x, y, exponent, density, alpha, drawn, inverse)

    def colours(self, splat: _Splat) -> list[Value]:
        return splat.numbers[COLOUR : COLOUR + self.layout.channels]

    def largest(self, alpha: Value) -> Value:
        """alpha with its bound."""
        return (alpha > LARGEST_ALPHA).where(LARGEST_ALPHA, alpha)


# ------------------------------------------------------------- forward: planes of colours, light, and gates
def _begin(t: _PixelTile, pointers: list[str], words: list[Value]) -> None:
    state, seen = pointers
    with t.code.loop(t.word(0), t.word(t.layout.pixels)) as pixel:
        for n in range(t.layout.channels):
            t.store(t.number(0.0), t.plane(state, n), pixel)
        t.store(t.number(1.0), t.plane(state, t.layout.channels), pixel)
        t.store(t.number(LEAST_TRANSMITTANCE), t.plane(state, t.layout.channels + 1), pixel)
        t.store_integer(words[0], seen, pixel)


def _draw(t: _PixelTile, pointers: list[str], words: list[Value]) -> Value:
    """The light that a pixel must keep is its gate, which is infinite once the pixel is opaque."""
    state, seen, splats, order, origin = pointers
    light, gate = (t.plane(state, t.layout.channels + n) for n in range(2))
    planes = [t.plane(state, n) for n in range(t.layout.channels)]
    with t.code.loop(words[0], words[1]) as place:
        splat = t.splat(splats, order, origin, place)
        first, last = t.rows(splat)
        with t.code.loop(first, last) as row, t.code.loop(t.word(0), t.word(t.layout.tile)) as column:
            at = row * t.layout.tile + column
            found = t.pixel(splat, row, column)
            alpha = t.largest(found.alpha)
            before, bound = t.load(light, at), t.load(gate, at)
            less = before * (1.0 - alpha)
            shown = found.drawn & (less > bound)
            weight = shown.where(before * alpha, 0.0)
            for plane, colour in zip(planes, t.colours(splat), strict=True):
                t.store(weight.fma(colour, t.load(plane, at)), plane, at)
            t.store(shown.where(less, before), light, at)
            t.store((found.drawn & ~shown).where(math.inf, bound), gate, at)
            t.store_integer(shown.where(place + 1, t.integer(seen, at)), seen, at)
    return _count(t, lambda pixel: (t.load(gate, pixel) < 1.0).convert("zext", "i64"), "add")


def _count(t: _PixelTile, value: Callable[[Value], Value], operation: str) -> Value:
    """The sum ("add") or the largest ("smax") of an integer over all pixels."""
    slot = t.code.stack_slot("i64")
    t.code.store(t.word(0), slot)
    with t.code.loop(t.word(0), t.word(t.layout.pixels)) as pixel:
        total, one = t.code.load("i64", slot), value(pixel)
        t.code.store(total + one if operation == "add" else total.call("smax", one), slot)
    return t.code.load("i64", slot)


def _finish(t: _PixelTile, pointers: list[str], words: list[Value]) -> None:
    """Colours and light side by side."""
    state, image = pointers
    with t.code.loop(t.word(0), t.word(t.layout.pixels)) as pixel:
        for n in range(t.layout.channels + 1):
            t.store(t.load(t.plane(state, n), pixel), image, pixel * (t.layout.channels + 1) + n)


# ------------------------------------------------------------- back: planes of cotangents of colours, light, and behind
def _begin_back(t: _PixelTile, pointers: list[str], words: list[Value]) -> Value:
    state, seen, image, cotangent = pointers
    channels = t.layout.channels
    with t.code.loop(t.word(0), t.word(t.layout.pixels)) as pixel:
        at = pixel * (channels + 1)
        for n in range(channels):
            t.store(t.load(cotangent, at + n), t.plane(state, n), pixel)
        light = t.load(image, at + channels)
        t.store(light, t.plane(state, channels), pixel)
        t.store(light * t.load(cotangent, at + channels), t.plane(state, channels + 1), pixel)
    return _count(t, lambda pixel: t.integer(seen, pixel), "smax")


def _draw_back(t: _PixelTile, pointers: list[str], words: list[Value]) -> None:
    """Sums over pixels are kept for each column of the tile, and added up at last."""
    state, seen, splats, order, origin, found = pointers
    first, last = words
    sums = t.plane(state, t.layout.channels + 2)
    with t.code.loop(t.word(0), last - first) as step:
        place = last - 1 - step
        splat = t.splat(splats, order, origin, place)
        with t.code.loop(t.word(0), t.word(t.layout.sums * t.layout.tile)) as n:
            t.store(t.number(0.0), sums, n)
        top, bottom = t.rows(splat)
        with t.code.loop(top, bottom) as row, t.code.loop(t.word(0), t.word(t.layout.tile)) as column:
            for n, term in enumerate(_terms(t, state, seen, splat, place, row, column)):
                at = column + n * t.layout.tile
                t.store(t.load(sums, at) + term, sums, at)
        totals = [_total(t, sums, n) for n in range(t.layout.sums)]
        for n, number in enumerate(row_cotangents(t.layout, splat.numbers, totals)):
            t.store(number, found, place * t.layout.numbers + n)


def _terms(
    t: _PixelTile, state: str, seen: str, splat: _Splat, place: Value, row: Value, column: Value
) -> list[Value]:
    """A pixel's terms of the sums; its light and the light from behind are updated."""
    channels = t.layout.channels
    light, behind = (t.plane(state, channels + n) for n in range(2))
    at = row * t.layout.tile + column
    pixel = t.pixel(splat, row, column)
    shown = pixel.drawn & (place < t.integer(seen, at))
    alpha = shown.where(t.largest(pixel.alpha), 0.0)
    passed = t.number(1.0) / (1.0 - alpha)
    before = t.load(light, at) * passed
    bars = [t.load(t.plane(state, n), at) for n in range(channels)]
    towards = t.number(0.0)
    for bar, colour in zip(bars, t.colours(splat), strict=True):
        towards = bar.fma(colour, towards)
    rest, weight = t.load(behind, at), before * alpha
    moving = shown & (pixel.alpha <= LARGEST_ALPHA)
    opacity_bar = moving.where((before * towards - rest * passed) * pixel.density, 0.0)
    t.store(before, light, at)
    t.store(weight.fma(towards, rest), behind, at)
    terms = [weight * bar for bar in bars]
    if pixel.inverse is None:
        return terms + moments(opacity_bar, pixel.x, pixel.y)
    over = moving.where(opacity_bar * pixel.inverse, 0.0)
    # the first sum is for the opacity, which the divisor does not change
    _, *rest = moments(over, pixel.x, pixel.y)
    bent = moving.where(over * pixel.exponent, 0.0)
    return [*terms, opacity_bar, *rest, *moments(bent, pixel.x, pixel.y)]


def _total(t: _PixelTile, sums: str, n: int) -> Value:
    """The sum over the columns of a tile."""
    kind = f"<{t.layout.tile} x {t.real}>"
    nbytes = 4 if t.real == "float" else 8
    vector = t.code.load(kind, t.code.element(t.real, sums, n * t.layout.tile), f", align {nbytes}")
    name = f"llvm.vector.reduce.fadd.v{t.layout.tile}f{8 * nbytes}"
    return t.code.call(name, t.real, t.number(-0.0), vector, flags="reassoc")


_BODIES: dict[str, FunctionBody[_PixelTile]] = {
    BEGIN: (_begin, 2, 1),
    DRAW: (_draw, 5, 2),
    FINISH: (_finish, 2, 0),
    BEGIN_BACK: (_begin_back, 4, 0),
    DRAW_BACK: (_draw_back, 6, 2),
}
SPLAT_FUNCTIONS = tuple(_BODIES)
