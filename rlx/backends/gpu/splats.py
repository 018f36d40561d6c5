"""Splats drawn into tiles, and their gradient: a group for each tile.

Forward, a work-item has some pixels, and the group loads runs of splats into its memory. The gradient is a pipeline: a
work-item has a splat, and pixels pass the work-items one after the other, from the last splat to the first. Each
work-item sums over the pixels in their order, without atomic additions, so that results have the same bits in every
run.
"""

from __future__ import annotations

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM, combine_group, unsigned
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling, code_step, position_dtype
from rlx.backends.loops.splats import SplatCode, SplatPixel
from rlx.code.functions import CodeValue
from rlx.code.tree import (
    Array,
    Barrier,
    Both,
    Coordinate,
    Element,
    Expression,
    Number,
    Register,
    minimum,
)
from rlx.ir.kernels import Library
from rlx.ir.splats import COLOUR, LEAST_TRANSMITTANCE, PERSPECTIVE, RASTERISE, row_cotangents
from rlx.ir.types import TensorType

__all__ = ["fits_groups", "splat_steps"]

_MEMORY = 16 << 10  # bytes of a group's memory for splats, or for the light in pixels
_PIPELINE = 64  # work-items with a splat: with more, short lists leave most of them idle
_WIDE = 1 << 30  # elements: with more, positions have 64 bits
_BOOL, _INT32 = np.dtype(bool), np.dtype(np.int32)
_K = Register(_INT32, "k")  # a pixel of a work-item


def fits_groups(types: tuple[TensorType, ...], tile: int, channels: int) -> bool:
    """Whether a splat, and the light of a tile's pixels, fit in the memory of a group."""
    numbers = max(COLOUR + channels + PERSPECTIVE, 2 * tile * tile)
    return numbers * types[0].dtype.itemsize <= _MEMORY


def splat_steps(kernel: Library, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep]:
    """The launch of a claimed block."""
    largest = max(operand.buffer.size for operand in (*kernel.inputs, *kernel.outputs))
    position = position_dtype(limits.wide or largest >= _WIDE)
    work = (_Drawing if kernel.routine == RASTERISE else _Pipeline)(kernel, position, limits)
    work.run()
    return [
        code_step(
            kernel.routine, work.strategy, dialect, [*work.parameters.values()], [*work.parameters], work.code.block,
            work.tiles, work.items, roomy=1,
        )
    ]  # fmt: skip


class _SplatGroup(SplatCode):
    """Code of a group that processes the tile of its number."""

    strategy: str
    items: int

    def __init__(self, kernel: Library, position: np.dtype) -> None:
        super().__init__(kernel, position)
        number = Coordinate(unsigned(position), "group")
        self.tile = self.code.declare("tile", number, position)
        self.first = self.code.declare("first", self.tile * self.layout.pixels)
        self.start = self.code.declare("start", self.element("starts", self.tile))
        self.corner = [self.real("origins", self.tile * 2 + n).declared(self.code, f"corner{n}") for n in range(2)]

    def meet(self) -> None:
        """A barrier."""
        self.code.add(Barrier())

    def memory(self, name: str, size: int, dtype: np.dtype | None = None) -> Array:
        """Memory of the group."""
        return self.code.allocate(Array(name, dtype or self.layout.dtype, "group", (size,)))

    def largest(self, register: Register, memory: Array, result: Array) -> Element:
        """The largest value that the work-items have, which is the same for all of them."""
        combine_group(self.code, register, "max", self.items, self.items, False, memory)
        with self.code.when(ITEM.equals(0)):
            self.code.write(result[0], register)
        self.meet()
        return result[0]

    def offsets(self, numbers: list[CodeValue], pixel: Expression) -> tuple[CodeValue, CodeValue]:
        """A pixel's centre, from the mean of a splat."""
        column, row = pixel % self.layout.tile, pixel // self.layout.tile
        return self.offset(self.corner[0], column, numbers[0]), self.offset(self.corner[1], row, numbers[1])


class _Drawing(_SplatGroup):
    """The image: a work-item has every `items`-th pixel of the tile."""

    strategy = "runs of splats in the memory of a group"

    def __init__(self, kernel: Library, position: np.dtype, limits: Limits) -> None:
        super().__init__(kernel, position)
        layout = self.layout
        self.items = min(limits.group, 1 << (layout.pixels - 1).bit_length())
        self.each = ceiling(layout.pixels, self.items)
        self.length = min(self.items, _MEMORY // (layout.numbers * layout.dtype.itemsize))  # of a run
        self.rows = self.memory("rows", self.length * layout.numbers)
        self.colour, self.light, self.seen, self.open = (
            self.code.allocate(Array(name, dtype, "item", (self.each, *shape)))
            for name, dtype, shape in (
                ("colour", layout.dtype, (layout.channels,)), ("light", layout.dtype, ()), ("seen", _INT32, ()),
                ("open", _BOOL, ()),
            )
        )  # fmt: skip

    def run(self) -> None:
        """All runs of splats, until the list ends or all pixels are complete."""
        code = self.code
        votes, vote = self.memory("votes", self.items, _INT32), self.memory("vote", 1, _INT32)
        with code.loop(_K, 0, self.each, unrolled=True):
            self._begin()
        end = code.declare("end", self.element("ends", self.tile))
        place = code.declare("place", self.start, changes=True)
        unfinished = code.declare("unfinished", Number(_INT32, 1), changes=True)
        number = Register(_INT32, "number")
        with code.free_loop(Both(_BOOL, place < end, unfinished > 0)):
            count = code.declare("count", minimum(end - place, self.length))
            self._load(place, count)
            self.meet()
            with code.loop(number, 0, count):
                self._draw(place + number, number)
            opened = code.declare("opened", Number(_INT32, 0), changes=True)
            with code.loop(_K, 0, self.each, unrolled=True), code.when(self.open[_K]):
                code.assign(opened, Number(_INT32, 1))
            code.assign(unfinished, self.largest(opened, votes, vote))
            code.assign(place, place + self.length)
        with code.loop(_K, 0, self.each, unrolled=True), code.when(self._pixel() < self.layout.pixels):
            self._store()

    def _pixel(self) -> Expression:
        return ITEM + _K * self.items

    def _begin(self) -> None:
        code, channel = self.code, Register(_INT32, "channel")
        with code.loop(channel, 0, self.layout.channels, unrolled=True):
            code.write(self.colour[_K, channel], self.zero())
        code.write(self.light[_K], Number(self.layout.dtype, 1.0))
        code.write(self.seen[_K], self.start)
        code.write(self.open[_K], self._pixel() < self.layout.pixels)

    def _load(self, place: Register, count: Register) -> None:
        """The rows of a run, into the memory of the group."""
        code, each, element = self.code, self.layout.numbers, Register(_INT32, "element")
        with code.loop(element, ITEM, count * each, self.items):
            splat = self.place("splat", self.element("order", place + element // each))
            code.write(self.rows[element], self.element("splats", splat * each + element % each))

    def _draw(self, place: Expression, number: Register) -> None:
        code, layout = self.code, self.layout
        numbers = [
            CodeValue(self.rows[number * layout.numbers + n]).declared(code, f"number{n}")
            for n in range(layout.numbers)
        ]
        with code.loop(_K, 0, self.each, unrolled=True), code.when(self.open[_K]):
            found = self.pixel(numbers, *self.offsets(numbers, self._pixel()))
            with code.when(found.drawn):
                alpha = found.bounded.declared(code, "bounded")
                light = CodeValue(self.light[_K]).declared(code, "before")
                less = (light * (1.0 - alpha)).declared(code, "less")
                with code.when((less <= LEAST_TRANSMITTANCE).tree):
                    code.write(self.open[_K], Number(_BOOL, False))
                with code.otherwise():
                    weight = (light * alpha).declared(code, "weight")
                    for n, colour in enumerate(self.colours(numbers)):
                        element = self.colour[_K, n]
                        code.write(element, (CodeValue(element) + weight * colour).tree)
                    code.write(self.light[_K], less.tree)
                    code.write(self.seen[_K], place + 1)

    def _store(self) -> None:
        code, layout = self.code, self.layout
        at = code.declare("at", (self.first + self._pixel()) * (layout.channels + 1))
        for n in range(layout.channels):
            self.write("image", at + n, self.colour[_K, n])
        self.write("image", at + layout.channels, self.light[_K])
        self.write("last", self.first + self._pixel(), self.seen[_K])


class _Pipeline(_SplatGroup):
    """The gradient: pixels are divided in parts, at least as many as work-items. In step s, the work-item with number i
    has the part with number s - i, modulo the number of parts."""

    strategy = "pixels pass the splats of a group"

    def __init__(self, kernel: Library, position: np.dtype, limits: Limits) -> None:
        super().__init__(kernel, position)
        self.items = 1 << min(_PIPELINE, limits.group, self.layout.pixels).bit_length() - 1
        self.each = self.layout.pixels // self.items  # pixels of a part
        self.parts = ceiling(self.layout.pixels, self.each)
        self.light, self.behind = (self.memory(name, self.layout.pixels) for name in ("light", "behind"))

    def run(self) -> None:
        """The cotangents of the tile's splats, and zeros up to the next tile's for those that no pixel has."""
        code, layout = self.code, self.layout
        end = self._begin()
        numbers = self._registers("number", layout.numbers)
        sums = self._registers("sum", layout.sums)
        turns = (end - self.start + (self.items - 1)) // self.items
        steps = code.declare("steps", turns * self.parts + (self.items - 1), _INT32)
        step = Register(_INT32, "step")
        with code.loop(step, 0, steps):
            passed = code.declare("passed_steps", step - ITEM)
            with code.when(passed >= 0):
                part = code.declare("part", passed % self.parts)
                place = code.declare("place", end - 1 - ITEM - passed // self.parts * self.items)
                with code.when(place >= self.start):
                    self._pass(place, part, numbers, sums)
            self.meet()
        self._clear(end)

    def _registers(self, name: str, count: int) -> list[CodeValue]:
        return [CodeValue(self.zero()).declared(self.code, f"{name}{n}", changes=True) for n in range(count)]

    def _begin(self) -> Register:
        """The light in all pixels, and behind them; the end of the part of the list that is drawn in any pixel."""
        code, layout = self.code, self.layout
        ends, end = self.memory("ends_of_items", self.items, _INT32), self.memory("end_of_tile", 1, _INT32)
        pixel, seen = Register(_INT32, "pixel"), code.declare("seen", self.start, changes=True)
        with code.loop(pixel, ITEM, layout.pixels, self.items):
            found = code.declare("found_end", self.element("last", self.first + pixel))
            with code.when(found > seen):
                code.assign(seen, found)
            at = code.declare("at", (self.first + pixel) * (layout.channels + 1) + layout.channels)
            light = self.real("image", at).declared(code, "light_left")
            code.write(self.light[pixel], light.tree)
            code.write(self.behind[pixel], (light * self.real("cotangent", at)).tree)
        return code.declare("end", self.largest(seen, ends, end))

    def _pass(self, place: Register, part: Register, numbers: list[CodeValue], sums: list[CodeValue]) -> None:
        """A part passes a work-item. Its splat is loaded for the first one, and its sums are written after the last."""
        code, layout = self.code, self.layout
        with code.when(part.equals(0)):
            row = self.place("row_start", self.element("order", place)) * layout.numbers
            for n, number in enumerate(numbers):
                number.assign(code, self.real("splats", row + n))
            for total in sums:
                total.assign(code, CodeValue(self.zero()))
        with code.loop(_K, 0, self.each):
            pixel = code.declare("pixel", part + _K * self.parts)
            drawn = place < self.element("last", self.first + pixel)
            with code.when(Both(_BOOL, pixel < layout.pixels, drawn) if layout.pixels % self.parts else drawn):
                found = self.pixel(numbers, *self.offsets(numbers, pixel))
                with code.when(found.drawn):
                    for total, term in zip(sums, self._terms(numbers, found, pixel), strict=True):
                        total.assign(code, total + term)
        with code.when(part.equals(self.parts - 1)):
            for n, number in enumerate(row_cotangents(layout, numbers, sums)):
                self.write("found", self.cast(place) * layout.numbers + n, number)

    def _terms(self, numbers: list[CodeValue], found: SplatPixel, pixel: Register) -> list[CodeValue]:
        """A pixel's terms of the sums; its light and the light from behind are updated."""
        code, channels = self.code, self.layout.channels
        at = code.declare("at", (self.first + pixel) * (channels + 1))
        bars = [self.real("cotangent", at + n).declared(code, f"bar{n}") for n in range(channels)]
        light, behind, terms = self.cotangent_terms(numbers, found, bars, self.light[pixel], self.behind[pixel])
        code.write(self.light[pixel], light.tree)
        code.write(self.behind[pixel], behind.tree)
        return terms

    def _clear(self, end: Register) -> None:
        code, numbers, rest = self.code, self.layout.numbers, self.index("rest")
        following = self.following(self.tile)
        with code.loop(rest, self.cast(end) * numbers + ITEM, self.cast(following) * numbers, self.items):
            self.write("found", rest, self.zero())
