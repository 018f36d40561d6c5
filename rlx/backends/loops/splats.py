"""Splats at pixels as code, for all devices whose kernels are code; and the blocks as loops, one tile after the other.

Tiles share nothing, so that they may run on threads, and results are the same for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from rlx.backends.loops.dialect import Parameter
from rlx.code.functions import CodeValue, where
from rlx.code.tree import Apply, Array, Block, Both, Element, Expression, Leave, Number, Register
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.splats import (
    COLOUR,
    LARGEST_ALPHA,
    LEAST_ALPHA,
    LEAST_TRANSMITTANCE,
    RASTERISE,
    moments,
    row_cotangents,
    splat_layout,
)

__all__ = ["SplatCode", "SplatPixel", "splat_loops", "splat_scratch"]

_BOOL, _INT32, _INT64 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.int64)
_REACH = 2.002 * math.log(255)  # twice an exponent for which opacity 1 is below the least alpha
_SLACK = 1e-5  # of rounded sums


class SplatPixel(NamedTuple):
    """A splat at a pixel. x, y: from its mean. alpha: before it is bounded. inverse: of an exact ray's divisor."""

    x: CodeValue
    y: CodeValue
    exponent: CodeValue
    density: CodeValue
    alpha: CodeValue
    drawn: Expression
    inverse: CodeValue | None

    @property
    def bounded(self) -> CodeValue:
        """The alpha that is drawn."""
        return where(self.alpha <= LARGEST_ALPHA, self.alpha, LARGEST_ALPHA)


class SplatCode:
    """Code of a kernel for a block: its operands by name, the layout of its splats, and a splat at a pixel.

    position: the dtype of positions. parameters: the arrays that the kernel takes, and their buffers.
    """

    def __init__(self, kernel: Library, position: np.dtype) -> None:
        names = (*kernel.attributes["operands"], *_RESULTS[kernel.routine])
        operands = (*kernel.inputs[: len(kernel.attributes["operands"])], *kernel.outputs)
        self.operands: dict[str, Operand] = dict(zip(names, operands, strict=True))
        self.written = {*_RESULTS[kernel.routine]}
        self.layout = splat_layout(kernel)
        self.position = position
        self.code = CodeWriter()
        self.parameters: dict[Buffer, Parameter] = {}
        (self.tiles,) = self.operands["starts"].shape
        (self.capacity,) = self.operands["order"].shape

    # ------------------------------------------------------------------ operands
    def array(self, name: str, buffer: Buffer, written: bool) -> Array:
        """An array that the kernel takes; operands in one buffer share it."""
        known = self.parameters.setdefault(buffer, Parameter(name, buffer.dtype, False))
        known.written |= written
        return Array(known.name, buffer.dtype)

    def element(self, name: str, place: Expression) -> Element:
        """An element of an operand."""
        operand = self.operands[name]
        return self.array(name, operand.buffer, name in self.written)[place + operand.offset]

    def real(self, name: str, place: Expression) -> CodeValue:
        """A float of an operand."""
        return CodeValue(self.element(name, place))

    def write(self, name: str, place: Expression, value: CodeValue | Expression) -> None:
        """A new value of an element of a result."""
        element = self.element(name, place)
        self.code.write(element, value.tree if isinstance(value, CodeValue) else value)

    def place(self, name: str, value: Expression) -> Register:
        """An int32 as a position, in a register."""
        return self.code.declare(name, value if value.dtype == self.position else self.cast(value))

    def cast(self, value: Expression) -> Expression:
        """A number as a position."""
        return Apply(self.position, "cast", (value,))

    def zero(self) -> Number:
        """The float 0."""
        return Number(self.layout.dtype, 0.0)

    def index(self, name: str) -> Register:
        """The index of a loop."""
        return Register(self.position, name)

    # ------------------------------------------------------------------ splats
    def numbers(self, row: Expression) -> list[CodeValue]:
        """The numbers of the splat whose row begins at a position, in registers."""
        return [
            self.real("splats", row + n).declared(self.code, f"number{n}") for n in range(self.layout.numbers)
        ]  # fmt: skip

    def colours(self, numbers: Sequence[CodeValue]) -> Sequence[CodeValue]:
        """Of a splat."""
        return numbers[COLOUR : COLOUR + self.layout.channels]

    def offset(self, corner: CodeValue, number: Expression, mean: CodeValue) -> CodeValue:
        """A coordinate of a pixel's centre, from the mean of a splat; the pixel's number is in its tile."""
        return corner + (CodeValue(Apply(self.layout.dtype, "cast", (number,))) + 0.5) - mean

    def pixel(self, numbers: Sequence[CodeValue], x: CodeValue, y: CodeValue) -> SplatPixel:
        """A splat at a pixel, whose centre is at an offset from the mean; in registers."""
        code, (a, b, c, opacity) = self.code, numbers[2:COLOUR]
        x, y = x.declared(code, "x"), y.declared(code, "y")
        exponent = (a * x * x + c * y * y) * 0.5 + b * x * y
        inverse, ahead = None, None
        if self.layout.perspective:
            e, f, g, h, k = numbers[COLOUR + self.layout.channels :]
            linear = (e * x + f * y).declared(code, "linear")
            divisor = linear * 2.0 + 1.0 + (g * x * x + h * 2.0 * x * y + k * y * y)
            inverse, ahead = (1.0 / divisor).declared(code, "inverse"), (linear > -1.0).tree
            exponent = exponent * inverse
        exponent = exponent.declared(code, "exponent")
        density = (-exponent).apply("exp").declared(code, "density")
        alpha = (opacity * density).declared(code, "alpha")
        drawn = Apply(_BOOL, "and", ((exponent >= 0.0).tree, (alpha >= LEAST_ALPHA).tree))
        drawn = drawn if ahead is None else Apply(_BOOL, "and", (drawn, ahead))
        return SplatPixel(x, y, exponent, density, alpha, drawn, inverse)

    def following(self, tile: Register) -> Register:
        """The place where the list of the next tile begins."""
        following = self.code.declare("following", Number(_INT32, self.capacity), changes=True)
        with self.code.when(tile < self.tiles - 1):
            self.code.assign(following, self.element("starts", tile + 1))
        return following

    def cotangent_terms(
        self, numbers: Sequence[CodeValue], found: SplatPixel, bars: Sequence[CodeValue], light: Expression,
        behind: Expression,
    ) -> tuple[CodeValue, CodeValue, list[CodeValue]]:
        """A pixel's light before a splat, the light from there on as the cotangent weighs it, and the terms of the sums
        of `row_cotangents`; light, behind: those behind the splat."""
        code = self.code
        alpha = found.bounded.declared(code, "bounded")
        passed = (1.0 / (1.0 - alpha)).declared(code, "passed")
        before = (CodeValue(light) * passed).declared(code, "before")
        rest = CodeValue(behind).declared(code, "rest_behind")
        first, *others = (bar * colour for bar, colour in zip(bars, self.colours(numbers), strict=True))
        towards = sum(others, first).declared(code, "towards")
        opacity_bar = (before * towards - rest * passed) * found.density
        # alpha at its bound does not move
        moving = where(found.alpha <= LARGEST_ALPHA, opacity_bar, 0.0).declared(code, "moving")
        weight = (before * alpha).declared(code, "weight")
        terms = [weight * bar for bar in bars]
        return before, rest + weight * towards, [*terms, *self._moving_terms(found, moving)]

    def _moving_terms(self, pixel: SplatPixel, moving: CodeValue) -> list[CodeValue]:
        if pixel.inverse is None:
            return moments(moving, pixel.x, pixel.y)
        over = (moving * pixel.inverse).declared(self.code, "over")
        _, *rest = moments(over, pixel.x, pixel.y)
        # the first sum is for the opacity, which the divisor does not change
        return [moving, *rest, *moments(over * pixel.exponent, pixel.x, pixel.y)]


_RESULTS = {RASTERISE: ("image", "last"), "splat_rasterise_gradient": ("found",)}


# ------------------------------------------------------------------ loops
def splat_scratch(kernel: Library) -> tuple[Buffer, ...]:
    """Memory for the loops of a block: two numbers of each pixel for the gradient."""
    if kernel.routine == RASTERISE:
        return ()
    layout, (tiles,) = splat_layout(kernel), kernel.inputs[2].shape
    return (Buffer(layout.dtype, 2 * tiles * layout.pixels, name="planes"),)


def splat_loops(kernel: Library, scratch: Sequence[Buffer]) -> tuple[dict[Buffer, Parameter], Block]:
    """The parameters of a function for a block, by their buffers, and its body."""
    work = _TileLoops(kernel, scratch)
    tile = work.index("tile")
    with work.code.loop(tile, 0, work.tiles, threads=True):
        (work.draw if kernel.routine == RASTERISE else work.draw_back)(tile)
    return work.parameters, work.code.block


class _TileLoops(SplatCode):
    """A tile is processed splat by splat; of each row, only pixels that a splat can reach."""

    def __init__(self, kernel: Library, scratch: Sequence[Buffer]) -> None:
        super().__init__(kernel, _INT64)
        self.scratch = scratch

    def draw(self, tile: Register) -> None:
        """A tile of the image. The light of a pixel is negative once the pixel is complete."""
        code, layout = self.code, self.layout
        start = code.declare("start", self.element("starts", tile))
        pixel, first = self.index("pixel"), code.declare("first", tile * layout.pixels)
        each = layout.channels + 1
        with code.loop(pixel, 0, layout.pixels):
            for n in range(layout.channels):
                self.write("image", (first + pixel) * each + n, self.zero())
            self.write("image", (first + pixel) * each + layout.channels, Number(layout.dtype, 1.0))
            self.write("last", first + pixel, start)
        unfinished = code.declare("unfinished", Number(_INT32, layout.pixels), changes=True)
        place = Register(_INT32, "place")
        with code.loop(place, start, self.element("ends", tile)):
            with code.when(unfinished.equals(0)):
                code.add(Leave())
            self._draw_splat(tile, first, place, unfinished)
        with code.loop(pixel, 0, layout.pixels):
            light = self.real("image", (first + pixel) * each + layout.channels)
            self.write("image", (first + pixel) * each + layout.channels, light.apply("abs"))

    def _draw_splat(self, tile: Register, first: Register, place: Register, unfinished: Register) -> None:
        code, layout = self.code, self.layout
        numbers, corner = self._splat(tile, place)
        with self._reached(numbers, corner) as (row, column):
            at = self.code.declare("at", (first + row * layout.tile + column) * (layout.channels + 1))
            light = self.real("image", at + layout.channels).declared(code, "light")
            with code.when((light > 0.0).tree):
                found = self._pixel(numbers, corner, row, column)
                with code.when(found.drawn):
                    alpha = found.bounded.declared(code, "bounded")
                    less = (light * (1.0 - alpha)).declared(code, "less")
                    with code.when((less <= LEAST_TRANSMITTANCE).tree):
                        self.write("image", at + layout.channels, -light)
                        code.assign(unfinished, unfinished - 1)
                    with code.otherwise():
                        weight = (light * alpha).declared(code, "weight")
                        for n, colour in enumerate(self.colours(numbers)):
                            self.write("image", at + n, self.real("image", at + n) + weight * colour)
                        self.write("image", at + layout.channels, less)
                        self.write("last", first + row * layout.tile + column, place + 1)

    def draw_back(self, tile: Register) -> None:
        """The cotangents of a tile's splats, and zeros up to the next tile's for those that no pixel has."""
        code, layout = self.code, self.layout
        start, first = code.declare("start", self.element("starts", tile)), code.declare("first", tile * layout.pixels)
        following = self.following(tile)
        end = code.declare("end", start, changes=True)
        pixel, each = self.index("pixel"), layout.channels + 1
        with code.loop(pixel, 0, layout.pixels):
            seen = code.declare("seen", self.element("last", first + pixel))
            with code.when(seen > end):
                code.assign(end, seen)
            at = code.declare("at", (first + pixel) * each + layout.channels)
            light = self.real("image", at).declared(code, "light")
            for n, value in enumerate((light, light * self.real("cotangent", at))):
                code.write(self._plane(first, n, pixel), value.tree)
        place = Register(_INT32, "place")
        with code.loop(place, start, end, backward=True):
            self._draw_splat_back(tile, first, place)
        rest = self.index("rest")
        with code.loop(rest, self.cast(end) * layout.numbers, self.cast(following) * layout.numbers):
            self.write("found", rest, self.zero())

    def _plane(self, first: Register, n: int, pixel: Expression) -> Element:
        """The light in a pixel (0), or that from behind (1)."""
        (buffer,) = self.scratch
        return self.array("planes", buffer, True)[first * 2 + (pixel + n * self.layout.pixels)]

    def _draw_splat_back(self, tile: Register, first: Register, place: Register) -> None:
        code, layout = self.code, self.layout
        numbers, corner = self._splat(tile, place)
        sums = [CodeValue(self.zero()).declared(code, f"sum{n}", changes=True) for n in range(layout.sums)]
        with self._reached(numbers, corner) as (row, column):
            pixel = code.declare("pixel_number", row * layout.tile + column)
            with code.when(place < self.element("last", first + pixel)):
                found = self._pixel(numbers, corner, row, column)
                with code.when(found.drawn):
                    for total, term in zip(sums, self._terms(numbers, found, first, pixel), strict=True):
                        total.assign(code, total + term)
        row_at = self.cast(place) * layout.numbers
        for n, number in enumerate(row_cotangents(layout, numbers, sums)):
            self.write("found", row_at + n, number)

    def _terms(
        self, numbers: Sequence[CodeValue], found: SplatPixel, first: Register, pixel: Register
    ) -> list[CodeValue]:
        """A pixel's terms of the sums; its light and the light from behind are updated."""
        code, layout = self.code, self.layout
        at = code.declare("at", (first + pixel) * (layout.channels + 1))
        bars = [self.real("cotangent", at + n).declared(code, f"bar{n}") for n in range(layout.channels)]
        planes = [self._plane(first, n, pixel) for n in range(2)]
        *changed, terms = self.cotangent_terms(numbers, found, bars, *planes)
        for plane, value in zip(planes, changed, strict=True):
            code.write(plane, value.tree)
        return terms

    # ------------------------------------------------------------------ splats
    def _splat(self, tile: Register, place: Register) -> tuple[list[CodeValue], tuple[CodeValue, CodeValue]]:
        """The numbers of the splat at a place, and the corner of the tile."""
        row = self.place("row_start", self.element("order", self.cast(place))) * self.layout.numbers
        corner = [self.real("origins", tile * 2 + n).declared(self.code, f"corner{n}") for n in range(2)]
        return self.numbers(row), (corner[0], corner[1])

    def _pixel(
        self, numbers: Sequence[CodeValue], corner: tuple[CodeValue, CodeValue], row: Expression, column: Expression
    ) -> SplatPixel:
        x, y = (
            self.offset(edge, number, mean) for edge, number, mean in zip(corner, (column, row), numbers, strict=False)
        )
        return self.pixel(numbers, x, y)

    @contextmanager
    def _reached(
        self, numbers: Sequence[CodeValue], corner: tuple[CodeValue, CodeValue]
    ) -> Generator[tuple[Register, Register]]:  # fmt: skip
        """Loops over the pixels that a splat can reach: all of them if that is not known."""
        code, layout = self.code, self.layout
        row, column = self.index("row"), self.index("column")
        with code.loop(row, 0, layout.tile):
            if layout.perspective:
                with code.loop(column, 0, layout.tile):
                    yield row, column
                return
            low = code.declare("low", Number(self.position, 0), changes=True)
            high = code.declare("high", Number(self.position, layout.tile), changes=True)
            self._bound(numbers, corner, row, low, high)
            with code.loop(column, low, high):
                yield row, column

    def _bound(
        self, numbers: Sequence[CodeValue], corner: tuple[CodeValue, CodeValue], row: Register, low: Register,
        high: Register,
    ) -> None:
        """Bounds of the pixels of a row with a x^2 + 2 b x y + c y^2 <= _REACH, and one more on each side."""
        code, (a, b, c, opacity) = self.code, numbers[2:COLOUR]
        y = self.offset(corner[1], row, numbers[1]).declared(code, "row_y")
        along, across = (b * y).declared(code, "along"), (a * (c * y * y)).declared(code, "across")
        least = along * along * (1.0 + _SLACK) - across * (1.0 - _SLACK) + a * _REACH
        root = least.apply("max", 0.0).apply("sqrt").declared(code, "root")
        middle = numbers[0] - corner[0] - along / a
        known = [(a > 0.0).tree, (opacity <= 1.0).tree, ((root / a) < 1e6).tree]
        with code.when(_every([*known, (middle.apply("abs") < 1e6).tree])):
            for bound, edge in ((low, middle - root / a - 1.0), (high, middle + root / a + 1.0)):
                inside = edge.apply("max", 0.0).apply("min", float(self.layout.tile))
                code.assign(bound, self.cast(inside.tree))
            with code.when((least < 0.0).tree):
                code.assign(high, low)


def _every(conditions: Sequence[Expression]) -> Expression:
    first, *rest = conditions
    return Both(_BOOL, first, _every(rest)) if rest else first
