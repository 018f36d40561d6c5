"""Attention by a device's unit for matrices: scores are fragments in the registers of a warp, and shares made of them
are fragments of the next product.

Of 16-bit floats, summed in float32. A warp has 16 or 32 rows; four items share a row of scores, and none of them asks
other warps for anything but what the group has loaded.
"""

from __future__ import annotations

from typing import Any

from rlx.backends.c.types import literal, register_type
from rlx.backends.gpu.attention_tiles import AttentionText, Tile
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import FRAGMENT_ROWS, FRAGMENT_WORDS
from rlx.ir.kernels import Library

__all__ = ["ONE_EACH", "FragmentText", "fragment_tile", "takes_fragments"]

_WARPS = 4  # of a group
ONE_EACH = _WARPS * FRAGMENT_ROWS  # rows of which each warp has a fragment
_SHARING = 4  # items that have parts of one row of a fragment
_ROWS, _PAIR = 2, 2  # rows and neighbouring columns of a fragment that an item has
_DEEP = 2 * FRAGMENT_WORDS  # 16-bit floats that go into a product at a time
_MOST = 128  # features: of more the sums do not fit in registers
_APART = 4  # words between rows: those that a warp reads at once lie in different banks
_MULTIPLIED = ("query", "key", "value", "cotangent")
_AT_ONCE = 8  # features that an item loads, if they lie next to each other


def takes_fragments(kernel: Library, dialect: DeviceDialect) -> bool:
    """Whether a device makes the products of attention, or of its gradient, by fragments: those of one 16-bit dtype."""
    given = dict(zip(kernel.attributes["operands"], kernel.inputs, strict=True))
    (dtype, *others) = {given[name].buffer.dtype for name in _MULTIPLIED if name in given}
    if others or dtype.itemsize != 2:
        return False
    fragments = dialect.fragments(dtype)
    return fragments is not None and fragments.chained and given["query"].shape[-1] <= _MOST


def fragment_tile(columns: int, blocks: int = 1) -> Tile:
    """Rows and columns of an item: a group has `columns`, a warp so many fragments of rows."""
    return Tile(_ROWS * blocks, columns // _SHARING)


class FragmentText(AttentionText):
    """The statements of a kernel of attention whose products are those of fragments.

    along: rows and words of what has a word for two neighbouring features; across: of what has one for two columns.
    """

    items = _WARPS * 32
    sharing = _SHARING
    at_column = "[r / 2][c / 2][r % 2 * 2 + c % 2]"
    at_feature = "[r / 2][e / 2][r % 2 * 2 + e % 2]"

    def __init__(self, kernel: Library, dialect: DeviceDialect, tile: Tile | None) -> None:
        super().__init__(kernel, dialect, tile)
        self.held = self.given["query"].buffer.dtype
        fragments = dialect.fragments(self.held)
        assert fragments is not None and fragments.items * _WARPS == self.items
        self.fragments, self.unit = fragments, fragments.name
        self.blocks = self.tile.rows // _ROWS  # fragments of a warp, one below the other
        self.row = self.row_of("r / 2", fragments.row.format("(r % 2 * 2)"))
        self.column, self.feature = (
            f"{name} / 2 * {fragments.columns} + {fragments.column.format(f'({name} % 2)')}" for name in "ce"
        )
        self.wide = self.parts * self.sharing  # features, and what fills the last fragment
        self.along = (self.columns, self.wide // 2 + _APART)
        self.across = (self.wide, self.columns // 2 + _APART)

    def row_of(self, block: str, row: str) -> str:
        """Where in the tile a row of one of a warp's fragments lies."""
        return f"warp * {self.blocks * FRAGMENT_ROWS} + {block} * {FRAGMENT_ROWS} + {row}"

    # ------------------------------------------------------------------ places
    def begin_words(self, **tiles: tuple[int, int]) -> None:
        """Words that the group shares."""
        for name, (rows, words) in tiles.items():
            shape = f"{name}[{rows}][{words}]"
            self.lines.add(f"{self.dialect.group_space} uint32_t {shape} __attribute__((aligned(16)));")
        self.number()

    def number(self) -> None:
        """Warps have rows; their items share them."""
        item, size = self.dialect.number_in_group(), self.fragments.items
        self.lines.add(f"const int lane = {item} % {size}, warp = {item} / {size}, across = lane % {_SHARING};")

    def registers(self, name: str, each: int) -> None:
        """An array of fragments: of rows in pairs, and of columns in pairs."""
        kind, shape = register_type(self.dtype), (self.blocks, each // _PAIR, _ROWS * _PAIR)
        self.lines.add(f"{kind} {name}{''.join(f'[{size}]' for size in shape)};")

    # ------------------------------------------------------------------ memory
    def hold(self, name: str, source: str) -> None:
        """The rows of the group as left fragments, in registers."""
        deep, words = self.wide // _DEEP, self.fragments.left
        self.lines.add(f"uint32_t {name}[{self.blocks}][{deep}][{len(words)}];")
        with self.each("b", self.blocks), self.each("k", deep):
            for number, (row, word) in enumerate(words):
                with self.lines.block("{"):
                    self.lines.add(self.dialect.fixed("place", f"first_row + {self.row_of('b', row)}"))
                    self.lines.add(self.dialect.fixed("first", f"k * {_DEEP} + 2 * ({word})"))
                    self.load_codes("code", source, 2, "place", "first")
                    self.lines.add(f"{name}[b][k][{number}] = {_word('code.of[0]', 'code.of[1]')};")

    def load_along(self, tile: str, source: str, first: str) -> None:
        """A tile with a word for two features of a row: a right operand whose rows are multiplied."""
        width = self.at_once(source, 2)
        with self.every(self.columns * self.wide // width):
            self.lines.add(f"const int d = at % {self.wide // width} * {width}, f = at / {self.wide // width};")
            self.lines.add(self.dialect.fixed("place", f"{first} + f"))
            self.load_codes("code", source, width, "place", "d")
            for pair in range(0, width, 2):
                word = _word(f"code.of[{pair}]", f"code.of[{pair + 1}]")
                self.lines.add(f"{tile}[f][d / 2 + {pair // 2}] = {word};")

    def load_across(self, tile: str, source: str, first: str) -> None:
        """A tile with a word for two rows of a feature: a right operand whose rows are mixed."""
        width, pairs = self.at_once(source, 1), self.columns // 2
        with self.every(pairs * self.wide // width):
            near, far = f"at % {pairs}", f"at / {pairs} * {width}"
            if width == 1:  # neighbours read neighbours
                near, far = f"at / {self.wide}", f"at % {self.wide}"
            self.lines.add(f"const int f = {near}, d = {far};")
            for name, more in (("low", ""), ("high", " + 1")):
                self.lines.add(self.dialect.fixed(f"{name}_place", f"{first} + 2 * f{more}"))
                self.load_codes(name, source, width, f"{name}_place", "d")
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
            inside += f" && {feature} < {self.shape[-1]}" if self.shape[-1] < self.wide else ""
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
        with self.each("k", self.wide // _DEEP), self.each("p", self.tile.columns // _PAIR):
            words = [f"{left}[b][k][{n}]" for n in range(len(self.fragments.left))]
            self.multiply(f"{result}[b][p]", words, right)

    def fragment_mix(self, result: str, shares: str, right: str) -> None:
        """Columns by their shares, added to rows: the shares are rounded as the columns are."""
        count = len(self.fragments.left)
        with self.each("k", self.columns // _DEEP):
            self.lines.add(f"uint32_t left[{self.blocks}][{count}];")
            with self.each("b", self.blocks), self.each("n", count):
                pair = (f"{shares}[b][2 * k + n / 2][n % 2 * 2{more}]" for more in ("", " + 1"))
                self.lines.add(f"left[b][n] = {self.dialect.packed(self.held, *pair)};")
            with self.each("p", self.parts // _PAIR):
                self.multiply(f"{result}[b][p]", [f"left[b][{n}]" for n in range(count)], right)

    def multiply(self, result: str, left: list[str], right: str) -> None:
        """A fragment p of columns, at words k, for each fragment b of rows."""
        places = [
            f"{right}[p * {self.fragments.columns} + {column}][k * {FRAGMENT_WORDS} + {word}]"
            for column, word in self.fragments.right
        ]
        names = [f"right{n}" for n in range(len(places))]
        self.lines.add(*(f"const uint32_t {n} = {place};" for n, place in zip(names, places, strict=True)))
        with self.each("b", self.blocks):
            self.lines.add(f"{self.dialect.fragment_product(self.fragments)}({result}, {', '.join([*left, *names])});")


def _word(low: str, high: str) -> str:
    """Two codes as a word."""
    return f"{low} | (uint32_t){high} << 16"
