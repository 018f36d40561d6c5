"""Attention on a device's matrix unit: scores are fragments in a warp's registers, and the attention weights computed
from them are fragments of the next product.

Operands have 16 bits, sums are float32. A warp has 16 or 32 rows; two or four items share a row of scores, and read
nothing from other warps except the tiles that the group loads. If only the transposed product can be chained (`Chain`),
all products are transposed, and an item holds columns of a single row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.backends.c.types import literal, register_type
from rlx.backends.gpu.attention_tiles import AttentionText, Tile
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import FRAGMENT_ROWS, FRAGMENT_WORDS, Fragments, numbered
from rlx.backends.gpu.steps import ceiling
from rlx.ir.kernels import Library

__all__ = ["MANY", "ONE_EACH", "FragmentText", "most_features", "takes_fragments"]

_WARPS = 4  # warps of a group
ONE_EACH = _WARPS * FRAGMENT_ROWS  # rows of a group whose warps have one fragment each
_DEEP = 2 * FRAGMENT_WORDS  # 16-bit floats that one matrix instruction multiplies
_MOST = 256  # features: with more, the sums do not fit in registers
MANY = 128  # features: with more, rows or sums do not fit in the registers of every device
_WIDE = 64  # items of a warp in which each item has half the numbers
_APART = 4  # padding words between rows, so that the words that a warp reads at once are in different banks
_MULTIPLIED = ("query", "key", "value", "cotangent")
_AT_ONCE = 8  # features that an item loads at once, if they are contiguous


def takes_fragments(kernel: Library, dialect: DeviceDialect) -> bool:
    """Whether a device can use fragments for attention, or for its gradient: all operands have one 16-bit dtype."""
    given = dict(zip(kernel.attributes["operands"], kernel.inputs, strict=True))
    (dtype, *others) = {given[name].buffer.dtype for name in _MULTIPLIED if name in given}
    if others or dtype.itemsize != 2:
        return False
    return given["query"].shape[-1] <= most_features(dialect.fragments(dtype))


def most_features(fragments: Fragments | None) -> int:
    """The largest number of features for attention with fragments; 0 if fragments cannot be used."""
    if fragments is None or fragments.chain is None:
        return 0
    return MANY if _is_repeated(fragments) else _MOST


def _is_repeated(fragments: Fragments) -> bool:
    """Whether the items that share a row hold all of its words, which do not fit in registers."""
    return len(fragments.left) == FRAGMENT_WORDS


class FragmentText(AttentionText):
    """The statements of an attention kernel whose products use fragments.

    along: rows and words of operands with a word for two neighbouring features; across: for two neighbouring columns.
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
        self.blocks = self.tile.rows // rows  # fragments of a warp, stacked vertically
        row, column = fragments.row, fragments.column
        # words that a warp reads, and words that it holds
        self.moved, self.kept = (
            [(numbered(line), numbered(word)) for line, word in side] for side in (fragments.right, fragments.left)
        )
        if self.chain.turned:
            row, column = column, row
            self.moved, self.kept = self.kept, self.moved
        self.repeated = _is_repeated(fragments)
        number = f"r % {rows} * {self.each_row}"
        self.row = self.row_of(f"r / {rows}", numbered(row, f"({number})"))
        self.column, self.feature = (
            f"{name} / {self.each_row} * {fragments.columns} + {numbered(column, f'({name} % {self.each_row})')}"
            for name in "ce"
        )
        self.at_column, self.at_feature = (
            f"[r / {rows}][{name} / {self.each_row}][{number} + {name} % {self.each_row}]" for name in "ce"
        )
        self.wide = ceiling(self.shape[-1], _DEEP) * _DEEP  # features, padded to whole fragments
        self.made = self.parts * self.sharing  # the features that the group mixes, starting at `ahead`
        self.ahead = f"slice * {self.made} + " if self.tile.slices > 1 else ""
        self.feature = self.ahead + self.feature
        self.along = (self.columns, self.wide // 2 + _APART)
        self.across = (self.made, self.columns // 2 + _APART)

    def fragment_tile(self, columns: int, blocks: int = 1, slices: int = 1) -> Tile:
        """Rows and columns of an item: a group has `columns` columns, a warp `blocks` fragments of rows."""
        return Tile(self.chain.rows * blocks, columns // self.sharing, slices)

    def row_of(self, block: str, row: str) -> str:
        """The row in the tile of a row in one of a warp's fragments."""
        return f"warp * {self.blocks * FRAGMENT_ROWS} + {block} * {FRAGMENT_ROWS} + {row}"

    # ------------------------------------------------------------------ positions
    def begin_words(self, **tiles: tuple[int, int]) -> None:
        """Declare the words shared by the group."""
        for name, (rows, words) in tiles.items():
            self.group_tile(name, rows, words)
        self.number()

    def group_tile(self, name: str, rows: int, words: int) -> None:
        """A tile in the group's memory."""
        aligned = "__attribute__((aligned(16)))"
        self.lines.add(f"{self.dialect.group_space} uint32_t {name}[{rows}][{words}] {aligned};")

    def number(self) -> None:
        """Each warp has rows, which its items share."""
        item, size = self.dialect.number_in_group(), self.fragments.items
        across = f"lane / {self.apart} % {self.sharing}"
        self.lines.add(f"const int lane = {item} % {size}, warp = {item} / {size}, across = {across};")

    def registers(self, name: str, each: int) -> None:
        """An array of fragments."""
        kind, shape = register_type(self.dtype), (self.blocks, each // self.each_row, self.fragments.sums)
        self.lines.add(f"{kind} {name}{''.join(f'[{size}]' for size in shape)};")

    # ------------------------------------------------------------------ memory
    def hold(self, name: str, source: str) -> None:
        """Load the group's rows as fragments into registers, or into shared memory if an item would hold whole rows."""
        self.declare_held(name)
        self.load_held(name, source)

    def declare_held(self, name: str) -> None:
        """Where the rows are kept."""
        if self.repeated:
            self.group_tile(name, self.rows, self.along[1])
        else:
            self.lines.add(f"uint32_t {name}[{self.blocks}][{self.wide // _DEEP}][{len(self.kept)}];")

    def load_held(self, name: str, source: str) -> None:
        """Load the rows to where they are kept."""
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
        """Load a tile with a word for two features of a row: an operand whose rows are multiplied."""
        width = self.at_once(source, 2)
        with self.every((rows or self.columns) * self.wide // width):
            self.lines.add(f"const int d = at % {self.wide // width} * {width}, f = at / {self.wide // width};")
            self.lines.add(self.dialect.fixed("place", f"{first} + f"))
            self.load_codes("code", source, width, "place", "d")
            for pair in range(0, width, 2):
                word = _word(f"code.of[{pair}]", f"code.of[{pair + 1}]")
                self.lines.add(f"{tile}[f][d / 2 + {pair // 2}] = {word};")

    def load_across(self, tile: str, source: str, first: str) -> None:
        """Load a tile with a word for two rows of a feature: a right operand whose rows are mixed."""
        width, pairs = self.at_once(source, 1), self.columns // 2
        with self.every(pairs * self.made // width):
            near, far = f"at % {pairs}", f"at / {pairs} * {width}"
            if width == 1:  # coalesced
                near, far = f"at / {self.made}", f"at % {self.made}"
            self.lines.add(f"const int f = {near}, d = {far};")
            self.lines.add(self.dialect.fixed("feature", f"{self.ahead}d"))
            for name, more in (("low", ""), ("high", " + 1")):
                self.lines.add(self.dialect.fixed(f"{name}_place", f"{first} + 2 * f{more}"))
                self.load_codes(name, source, width, f"{name}_place", "feature")
            for part in range(width):
                self.lines.add(f"{tile}[d + {part}][f] = {_word(f'low.of[{part}]', f'high.of[{part}]')};")

    def every(self, count: int) -> Any:
        """A loop whose iterations are divided among the group's items."""
        return self.lines.block(f"for (int at = {self.dialect.number_in_group()}; at < {count}; at += {self.items}) {{")

    def at_once(self, name: str, least: int) -> int:
        """The number of an operand's features that an item loads at once."""
        return _AT_ONCE if self.is_whole(name, _AT_ONCE) else least

    def is_whole(self, name: str, width: int) -> bool:
        """Whether `count` features are contiguous and aligned for one load."""
        operand = self.given[name]
        apart = [stride for size, stride in zip(operand.shape[:-1], operand.strides[:-1], strict=True) if size > 1]
        others = (operand.shape[-1], operand.offset, *apart)
        return operand.strides[-1] == 1 and all(number % width == 0 for number in others)

    def load_codes(self, name: str, source: str, width: int, place: str, feature: str) -> None:
        """The codes of contiguous features, zero outside the bounds."""
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
        """Multiply the rows by columns whose words run along the features."""
        self.zero(result)
        self.add_fragments(result, left, right)

    def zero(self, name: str) -> None:
        """Declare the accumulators of a tile."""
        with self.each("r", self.tile.rows), self.each("c", self.tile.columns):
            self.lines.add(f"{name}{self.at_column} = {literal(self.dtype, 0)};")

    def add_fragments(self, result: str, left: str, right: str) -> None:
        """Multiply and accumulate."""
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
        """Add the columns, weighted by the attention weights, to rows; weights are rounded to the columns' dtype."""
        count = len(self.kept)
        with self.each("k", self.columns // _DEEP):
            self.lines.add(f"uint32_t left[{self.blocks}][{count}];")
            with self.each("b", self.blocks):
                self.pack(shares, count)
            with self.each("p", self.parts // self.each_row):
                self.multiply(f"{result}[b][p]", [f"left[b][{n}]" for n in range(count)], right)

    def pack(self, shares: str, count: int) -> None:
        """The sums of column fragments k as the words of an operand."""
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
        """Multiply column fragment p, at words k, with each row fragment b."""
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
