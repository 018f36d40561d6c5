"""Attention by a device's unit for matrices: scores are fragments in the registers of a warp, and shares made of them
are fragments of the next product.

Of 16-bit floats, summed in float32. A warp has 16 or 32 rows; two or four items share a row of scores, and none of them
asks other warps for anything but what the group has loaded. Where only the transposed product is chained (`Chain`), all
products are that one, and an item has columns of a single row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.backends.c.types import literal, register_type
from rlx.backends.gpu.attention_tiles import AttentionText, Tile
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import FRAGMENT_ROWS, FRAGMENT_WORDS, Fragments
from rlx.backends.gpu.steps import ceiling
from rlx.ir.kernels import Library

__all__ = ["MANY", "ONE_EACH", "FragmentText", "most_features", "takes_fragments"]

_WARPS = 4  # of a group
ONE_EACH = _WARPS * FRAGMENT_ROWS  # rows of which each warp has a fragment
_DEEP = 2 * FRAGMENT_WORDS  # 16-bit floats that go into a product at a time
_MOST = 256  # features: of more the sums do not fit in registers
MANY = 128  # of which rows or sums do not fit in those of all devices
_WIDE = 64  # items of a warp, each of which has half as many numbers
_APART = 4  # words between rows: those that a warp reads at once lie in different banks
_MULTIPLIED = ("query", "key", "value", "cotangent")
_AT_ONCE = 8  # features that an item loads, if they lie next to each other


def takes_fragments(kernel: Library, dialect: DeviceDialect) -> bool:
    """Whether a device makes the products of attention, or of its gradient, by fragments: those of one 16-bit dtype."""
    given = dict(zip(kernel.attributes["operands"], kernel.inputs, strict=True))
    (dtype, *others) = {given[name].buffer.dtype for name in _MULTIPLIED if name in given}
    if others or dtype.itemsize != 2:
        return False
    return given["query"].shape[-1] <= most_features(dialect.fragments(dtype))


def most_features(fragments: Fragments | None) -> int:
    """How many features attention by fragments has at most; 0: none is."""
    if fragments is None or fragments.chain is None:
        return 0
    return MANY if _is_repeated(fragments) else _MOST


def _is_repeated(fragments: Fragments) -> bool:
    """Whether items that share a row have all its words: too many for registers."""
    return len(fragments.left) == FRAGMENT_WORDS


class FragmentText(AttentionText):
    """The statements of a kernel of attention whose products are those of fragments.

    along: rows and words of what has a word for two neighbouring features; across: of what has one for two columns.
    """

    def __init__(self, kernel: Library, dialect: DeviceDialect) -> None:
        self.held = kernel.inputs[kernel.attributes["operands"].index("query")].buffer.dtype
        fragments = dialect.fragments(self.held)
        assert fragments is not None and fragments.chain is not None
        self.fragments, self.unit, self.chain = fragments, fragments.name, fragments.chain
        rows, self.each_row = self.chain.rows, fragments.sums // self.chain.rows
        self.items, self.sharing, self.apart = (
            _WARPS * fragments.items, fragments.columns // self.each_row, self.chain.apart
        )  # fmt: skip
        self.crowded = fragments.items < _WIDE
        super().__init__(kernel, dialect)
        self.blocks = self.tile.rows // rows  # fragments of a warp, one below the other
        row, column = fragments.row, fragments.column
        self.moved, self.kept = fragments.right, fragments.left  # words that a warp reads, and those that it has
        if self.chain.turned:
            row, column = column, row
            self.moved, self.kept = self.kept, self.moved
        self.repeated = _is_repeated(fragments)
        number = f"r % {rows} * {self.each_row}"
        self.row = self.row_of(f"r / {rows}", row.format(f"({number})"))
        self.column, self.feature = (
            f"{name} / {self.each_row} * {fragments.columns} + {column.format(f'({name} % {self.each_row})')}"
            for name in "ce"
        )
        self.at_column, self.at_feature = (
            f"[r / {rows}][{name} / {self.each_row}][{number} + {name} % {self.each_row}]" for name in "ce"
        )
        self.wide = ceiling(self.shape[-1], _DEEP) * _DEEP  # features, and what fills the last fragment
        self.made = self.parts * self.sharing  # of them those that the group mixes, from here on
        self.ahead = f"slice * {self.made} + " if self.tile.slices > 1 else ""
        self.feature = self.ahead + self.feature
        self.along = (self.columns, self.wide // 2 + _APART)
        self.across = (self.made, self.columns // 2 + _APART)

    def fragment_tile(self, columns: int, blocks: int = 1, slices: int = 1) -> Tile:
        """Rows and columns of an item: a group has `columns`, a warp so many fragments of rows."""
        return Tile(self.chain.rows * blocks, columns // self.sharing, slices)

    def row_of(self, block: str, row: str) -> str:
        """Where in the tile a row of one of a warp's fragments lies."""
        return f"warp * {self.blocks * FRAGMENT_ROWS} + {block} * {FRAGMENT_ROWS} + {row}"

    # ------------------------------------------------------------------ places
    def begin_words(self, **tiles: tuple[int, int]) -> None:
        """Words that the group shares."""
        for name, (rows, words) in tiles.items():
            self.group_tile(name, rows, words)
        self.number()

    def group_tile(self, name: str, rows: int, words: int) -> None:
        """A tile in the group's memory."""
        aligned = "__attribute__((aligned(16)))"
        self.lines.add(f"{self.dialect.group_space} uint32_t {name}[{rows}][{words}] {aligned};")

    def number(self) -> None:
        """Warps have rows; their items share them."""
        item, size = self.dialect.number_in_group(), self.fragments.items
        across = f"lane / {self.apart} % {self.sharing}"
        self.lines.add(f"const int lane = {item} % {size}, warp = {item} / {size}, across = {across};")

    def registers(self, name: str, each: int) -> None:
        """An array of fragments."""
        kind, shape = register_type(self.dtype), (self.blocks, each // self.each_row, self.fragments.sums)
        self.lines.add(f"{kind} {name}{''.join(f'[{size}]' for size in shape)};")

    # ------------------------------------------------------------------ memory
    def hold(self, name: str, source: str) -> None:
        """The rows of the group as fragments: in registers, or in the group's memory if items would have whole rows."""
        self.declare_held(name)
        self.load_held(name, source)

    def declare_held(self, name: str) -> None:
        """Where rows are held."""
        if self.repeated:
            self.group_tile(name, self.rows, self.along[1])
        else:
            self.lines.add(f"uint32_t {name}[{self.blocks}][{self.wide // _DEEP}][{len(self.kept)}];")

    def load_held(self, name: str, source: str) -> None:
        """Rows, where they are held."""
        deep, words = self.wide // _DEEP, self.kept
        if self.repeated:
            self.load_along(name, source, "first_row", self.rows)
            return
        with self.each("b", self.blocks), self.each("k", deep):
            for number, (row, word) in enumerate(words):
                with self.lines.block("{"):
                    self.lines.add(self.dialect.fixed("place", f"first_row + {self.row_of('b', row)}"))
                    self.lines.add(self.dialect.fixed("first", f"k * {_DEEP} + 2 * ({word})"))
                    self.load_codes("code", source, 2, "place", "first")
                    self.lines.add(f"{name}[b][k][{number}] = {_word('code.of[0]', 'code.of[1]')};")

    def load_along(self, tile: str, source: str, first: str, rows: int | None = None) -> None:
        """A tile with a word for two features of a row: an operand whose rows are multiplied."""
        width = self.at_once(source, 2)
        with self.every((rows or self.columns) * self.wide // width):
            self.lines.add(f"const int d = at % {self.wide // width} * {width}, f = at / {self.wide // width};")
            self.lines.add(self.dialect.fixed("place", f"{first} + f"))
            self.load_codes("code", source, width, "place", "d")
            for pair in range(0, width, 2):
                word = _word(f"code.of[{pair}]", f"code.of[{pair + 1}]")
                self.lines.add(f"{tile}[f][d / 2 + {pair // 2}] = {word};")

    def load_across(self, tile: str, source: str, first: str) -> None:
        """A tile with a word for two rows of a feature: a right operand whose rows are mixed."""
        width, pairs = self.at_once(source, 1), self.columns // 2
        with self.every(pairs * self.made // width):
            near, far = f"at % {pairs}", f"at / {pairs} * {width}"
            if width == 1:  # neighbours read neighbours
                near, far = f"at / {self.made}", f"at % {self.made}"
            self.lines.add(f"const int f = {near}, d = {far};")
            self.lines.add(self.dialect.fixed("feature", f"{self.ahead}d"))
            for name, more in (("low", ""), ("high", " + 1")):
                self.lines.add(self.dialect.fixed(f"{name}_place", f"{first} + 2 * f{more}"))
                self.load_codes(name, source, width, f"{name}_place", "feature")
            for part in range(width):
                self.lines.add(f"{tile}[d + {part}][f] = {_word(f'low.of[{part}]', f'high.of[{part}]')};")

    def every(self, count: int) -> Any:
        """A loop in which the items of the group take turns."""
        return self.lines.block(f"for (int at = {self.dialect.number_in_group()}; at < {count}; at += {self.items}) {{")

    def at_once(self, name: str, least: int) -> int:
        """How many features of an operand an item loads."""
        return _AT_ONCE if self.is_whole(name, _AT_ONCE) else least

    def is_whole(self, name: str, width: int) -> bool:
        """Whether so many features lie next to each other, and begin where devices load them at once."""
        operand = self.given[name]
        apart = [stride for size, stride in zip(operand.shape[:-1], operand.strides[:-1], strict=True) if size > 1]
        others = (operand.shape[-1], operand.offset, *apart)
        return operand.strides[-1] == 1 and all(number % width == 0 for number in others)

    def load_codes(self, name: str, source: str, width: int, place: str, feature: str) -> None:
        """The codes of features next to each other: zero beyond the ends."""
        operand = self.given[source]
        head, count = self.ends(source)
        ended = f" && {found}" if (found := self.ended(source, place)) else ""
        array, add = self.parameter(source, operand.buffer), self.lines.add
        kind = self.dialect.vector(self.held, width)
        add(f"{kind} {name} = {{{{0}}}};")
        if self.is_whole(source, width):
            at = self.position(operand, ("batch", place, head, feature))
            pointer = f"({self.dialect.global_space} const {kind} *)".replace("( ", "(")
            inside = f"{place} < {count}{ended}"
            reached = max(self.wide, self.made * self.tile.slices)
            inside += f" && {feature} < {self.shape[-1]}" if self.shape[-1] < reached else ""
            add(f"if ({inside}) {name} = *{pointer}&{array}[{at}];")
            return
        for part in range(width):
            at = self.position(operand, ("batch", place, head, f"({feature} + {part})"))
            inside = f"{place} < {count}{ended} && {feature} + {part} < {self.shape[-1]}"
            add(f"if ({inside}) {name}.of[{part}] = {array}[{at}];")

    # ------------------------------------------------------------------ numbers
    def fragment_product(self, result: str, left: str, right: str) -> None:
        """Products of rows that are held and of columns along which words lie."""
        self.zero(result)
        self.add_fragments(result, left, right)

    def zero(self, name: str) -> None:
        """Numbers of a tile that something is added to."""
        with self.each("r", self.tile.rows), self.each("c", self.tile.columns):
            self.lines.add(f"{name}{self.at_column} = {literal(self.dtype, 0)};")

    def add_fragments(self, result: str, left: str, right: str) -> None:
        """The products, added."""
        count = len(self.kept)
        with self.each("k", self.wide // _DEEP):
            words = [f"{left}[b][k][{n}]" for n in range(count)]
            if self.repeated:
                words = [f"held[b][{n}]" for n in range(count)]
                self.lines.add(f"uint32_t held[{self.blocks}][{count}];")
                with self.each("b", self.blocks):
                    places = [f"{left}[{self.row_of('b', r)}][k * {FRAGMENT_WORDS} + {word}]" for r, word in self.kept]
                    self.lines.add(*(f"{name} = {place};" for name, place in zip(words, places, strict=True)))
            with self.each("p", self.tile.columns // self.each_row):
                self.multiply(f"{result}[b][p]", words, right)

    def fragment_mix(self, result: str, shares: str, right: str) -> None:
        """Columns by their shares, added to rows: the shares are rounded as the columns are."""
        count = len(self.kept)
        with self.each("k", self.columns // _DEEP):
            self.lines.add(f"uint32_t left[{self.blocks}][{count}];")
            with self.each("b", self.blocks):
                self.pack(shares, count)
            with self.each("p", self.parts // self.each_row):
                self.multiply(f"{result}[b][p]", [f"left[b][{n}]" for n in range(count)], right)

    def pack(self, shares: str, count: int) -> None:
        """Sums of the fragments k of columns as the words of an operand."""
        sums, fragments = self.fragments.sums, _DEEP // self.fragments.columns
        given = sums * fragments // 2
        with self.each("n", given):
            pair = (f"{shares}[b][k * {fragments} + 2 * n / {sums}][2 * n % {sums}{more}]" for more in ("", " + 1"))
            packed = self.dialect.packed(self.held, *pair)
            if given == count:
                self.lines.add(f"left[b][n] = {packed};")
                return
            assert 2 * given == count, "an item has every second number"
            other = self.dialect.shuffle(np.dtype(np.uint32), "own", str(self.apart), self.fragments.items)
            self.lines.add(f"const uint32_t own = {packed};", f"const uint32_t other = {other};")
            self.lines.add("const uint32_t even = across ? other : own, odd = across ? own : other;")
            self.lines.add("left[b][2 * n] = (even & 0xffffu) | odd << 16;")
            self.lines.add("left[b][2 * n + 1] = even >> 16 | (odd & 0xffff0000u);")

    def multiply(self, result: str, held: list[str], tile: str) -> None:
        """A fragment p of columns, at words k, for each fragment b of rows."""
        places = [
            f"{tile}[p * {self.fragments.columns} + {column}][k * {FRAGMENT_WORDS} + {word}]"
            for column, word in self.moved
        ]
        names = [f"moved{n}" for n in range(len(places))]
        self.lines.add(*(f"const uint32_t {n} = {place};" for n, place in zip(names, places, strict=True)))
        words = [*names, *held] if self.chain.turned else [*held, *names]
        with self.each("b", self.blocks):
            self.lines.add(f"{self.dialect.fragment_product(self.fragments)}({result}, {', '.join(words)});")


def _word(low: str, high: str) -> str:
    """Two codes as a word."""
    return f"{low} | (uint32_t){high} << 16"
