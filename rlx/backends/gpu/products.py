"""Matrix products: tiles of the result in registers, of the operands in a group's memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import ExitStack

import numpy as np

from rlx.backends.c.prelude import helper_name
from rlx.backends.c.types import literal, memory_type, register_type, suffix
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import FRAGMENT_ROWS, FRAGMENT_WORDS, Fragments
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import Step, ceiling, is_wide, step_of
from rlx.backends.loops.decompose import contract_as_loops
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.walk import Lines, Mapping, Walk
from rlx.ir.fused_products import Digit, FusedProduct, fused_product, operand_digits, result_digits
from rlx.ir.kernels import Access, Buffer, Contract, Instruction, Loops, Operand, RowTiles, Store
from rlx.ir.types import is_narrow

__all__ = ["is_mixed", "product_as_loops", "product_steps", "tiled_product"]

_TILE = 64  # rows and columns of the result that a group computes
_LEAST_TILE = 16  # for a thin result: the same number of elements, in fewer rows or columns
_DEPTH = 16  # the depth of the operands' tiles without fragments
_FRAGMENT_BYTES = 4 * FRAGMENT_WORDS
_EACH = 4  # rows and columns of an item
_ITEMS = _TILE * _TILE // (_EACH * _EACH)
_LEAST = 16  # smaller results are computed by single items, or as rows
_LEAST_PART = 256  # depth of a product that a group takes at least if several groups share a tile
_LONG = 64  # if there are few sums, items share a sum of at least this many products


def product_as_loops(kernel: Contract, limits: Limits) -> Loops | None:
    """A nest for a product; None if tiles are better."""
    dtype = kernel.out.buffer.dtype
    results = kernel.batches * kernel.rows * kernel.columns
    if is_mixed(kernel):  # rounded operands, or wider sums: tiles support them
        return None
    plain = dtype.kind == "f" and kernel.summed_in == dtype
    if plain and results < limits.units * limits.group and kernel.depth >= _LONG and _is_thin(kernel):
        return _as_rows(kernel)
    if plain and not _is_thin(kernel) and kernel.depth and results:
        return None
    return contract_as_loops(kernel)


def is_mixed(kernel: Contract) -> bool:
    """Whether operands are narrower than their sums, or rounded before they are multiplied."""
    return kernel.tf32 or kernel.lhs.buffer.dtype != kernel.summed_in


def _is_thin(kernel: Contract) -> bool:
    return min(kernel.rows, kernel.columns) < _LEAST


def _as_rows(kernel: Contract) -> Loops:
    """Every element of the result as a reduced row."""
    shape = (*kernel.out.shape[:-2], kernel.rows, kernel.columns, kernel.depth)
    dtype = kernel.out.buffer.dtype

    def strides(operand: Operand, row: int, column: int, deep: int) -> tuple[int, ...]:
        return (*operand.strides[:-2], row, column, deep)

    left = Access(0, strides(kernel.lhs, kernel.lhs.strides[-2], 0, kernel.lhs.strides[-1]), kernel.lhs.offset)
    right = Access(1, strides(kernel.rhs, 0, kernel.rhs.strides[-1], kernel.rhs.strides[-2]), kernel.rhs.offset)
    out = Access(2, strides(kernel.out, kernel.out.strides[-2], kernel.out.strides[-1], 0), kernel.out.offset)
    instructions = (
        Instruction("load", (), dtype, left),
        Instruction("load", (), dtype, right),
        Instruction("mul", (0, 1), dtype),
        Instruction("reduce", (2,), dtype, "add"),
    )
    added = "add" if kernel.accumulate else None
    return Loops(
        shape, len(shape) - 1, (kernel.lhs.buffer, kernel.rhs.buffer, kernel.out.buffer), instructions,
        (Store(3, out, accumulate=added, once=kernel.accumulate),), len(shape) - 1,
        origins=kernel.origins, label=kernel.label or "matmul", equations=kernel.equations,
    )  # fmt: skip


def product_steps(kernel: RowTiles, limits: Limits, dialect: DeviceDialect) -> list[Step] | None:
    """A product with its fused nests as one launch; None if each of them is launched separately."""
    fused = fused_product(kernel)
    if fused is None or not (dialect.fuses(fused) and all(map(dialect.spells, _nests(fused)))):
        return None
    spread = fused.grows and fused.contract.summed_in.kind == "f"  # thin, but of windows that are not stored
    if product_as_loops(fused.contract, limits) is not None and not spread:
        return None
    return tiled_product(fused, limits, dialect, kernel.label)


def _nests(fused: FusedProduct) -> list[Loops]:
    return [nest for nest in (fused.lhs, fused.rhs, fused.reader) if nest is not None]


def tiled_product(fused: FusedProduct, limits: Limits, dialect: DeviceDialect, label: str = "") -> list[Step]:
    """A group computes 64 rows and columns of a result, or as many elements of a thin one; an item 4 of each. Operands
    are read in slices of 16.

    If a result has few tiles, several groups share one: each sums a part of the depth, a second launch adds their sums.
    """
    product = fused.contract
    operands = (product.lhs, product.rhs, product.out)
    tile = _tile(product, limits, dialect)
    groups = _groups(product, tile)
    parts = max(1, min(limits.units // groups, product.depth // _LEAST_PART))
    results = product.batches * product.rows * product.columns
    partial = Buffer(product.summed_in, parts * results)
    largest = max(partial.size, *(o.buffer.size for o in operands))
    wide = limits.wide or largest + _TILE * _TILE >= 1 << 30 or any(is_wide(nest, limits) for nest in _nests(fused))
    with dialect.positions(wide):
        text = _Text(fused, dialect, tile, parts, partial)
        text.write()
        last = _Text(fused, dialect, tile, parts, partial)
        if parts > 1:
            last.add_parts(limits.group)
    strategy = "tiled product" + (" of computed operands" if fused.lhs or fused.rhs else "")
    end = " with an epilogue" if fused.reader else ""
    name = label or product.label or "matmul"

    def step(text: _Text, how: str, groups: int, items: int) -> Step:
        buffers = [*text.parameters.values()]
        unit = text.units.name if text.units else ""
        return step_of(name, how, dialect, [*text.parameters], buffers, text.lines.text, groups, items, unit=unit)

    if parts == 1:
        return [step(text, strategy + end, groups, _ITEMS)]
    first = step(text, f"{strategy} in parts", groups * parts, _ITEMS)
    return [first, step(last, f"sum of parts{end}", ceiling(results, limits.group), limits.group)]


def _tile(product: Contract, limits: Limits, dialect: DeviceDialect) -> tuple[int, int]:
    """Rows and columns that a group computes: for a thin result fewer of one and more of the other, if there are
    enough groups then; if units are idle, square tiles take no longer."""
    side, least = _LEAST_TILE, min(product.rows, product.columns)
    while side < min(least, _TILE):
        side *= 2
    long = _TILE * _TILE // side
    tile = (side, long) if product.rows <= product.columns else (long, side)
    if _fragments(product, dialect) or _groups(product, tile) < limits.units:
        return _TILE, _TILE
    return tile


def _fragments(product: Contract, dialect: DeviceDialect) -> Fragments | None:
    """The device's matrix unit for a product's operands, if it has one."""
    units = dialect.fragments(product.lhs.buffer.dtype) if is_mixed(product) else None
    return units if units is not None and product.summed_in.name == units.summed_in else None


def _groups(product: Contract, tile: tuple[int, int]) -> int:
    return math.prod(_tiles(product, tile)) * product.batches


def _tiles(product: Contract, tile: tuple[int, int]) -> tuple[int, int]:
    return ceiling(product.rows, tile[0]), ceiling(product.columns, tile[1])


class _Text:
    """The statements of a product. `parameters`: the arrays that the kernel takes. tile: rows and columns of a group.

    parts: the number of groups that share a tile; their sums are stored in `partial`, one after the other.
    """

    def __init__(
        self, fused: FusedProduct, dialect: DeviceDialect, tile: tuple[int, int], parts: int, partial: Buffer
    ) -> None:
        self.fused = fused
        self.parts, self.partial = parts, partial
        self.product = fused.contract
        self.dialect = dialect
        self.lines = Lines(dialect)
        self.dtype = self.product.summed_in
        self.held = self.product.lhs.buffer.dtype
        self.units = _fragments(self.product, dialect)
        self.kind, self.zero = register_type(self.dtype), literal(self.dtype, 0)
        self.slice = max(_DEPTH, _FRAGMENT_BYTES // self.held.itemsize) if self.units else _DEPTH
        self.tiles = _tiles(self.product, tile)
        self.rows, self.columns = tile
        self.held_sums = self._of_warps() if self.units else (_EACH, _EACH)
        self.down, self.across = self.rows // _EACH, self.columns // _EACH  # items along each axis
        self.parameters: dict[Parameter, Buffer] = {}
        self.axes = [f"batch{n}" for n in range(len(self.product.out.shape) - 2)]

    def write(self) -> None:
        """All statements of the kernel."""
        dialect, add, product = self.dialect, self.lines.add, self.product
        for name, size in (("lhs", self.rows), ("rhs", self.columns)):
            shape = f"uint32_t {name}_words[{size}][{self._words + 4}]" if self.units else ""
            add(f"{dialect.group_space} {shape or f'{self.kind} {name}_tile[{self.slice}][{size} + 1]'};")
        add(dialect.number("point", f"({dialect.number_type}){dialect.group_number()}"))
        add(dialect.fixed("first_column", f"point % {self.tiles[1]}u * {self.columns}"))
        add(dialect.fixed("first_row", f"point / {self.tiles[1]}u % {self.tiles[0]}u * {self.rows}"))
        rest = f"point / {math.prod(self.tiles)}u"
        for axis, size in reversed([*zip(self.axes, product.out.shape[:-2], strict=True)]):
            add(dialect.fixed(axis, f"{rest} % {size}u"))
            rest = f"{rest} / {size}u"
        start, stop = "0", str(product.depth)
        if self.parts > 1:
            span = ceiling(ceiling(product.depth, self.parts), self.slice) * self.slice
            add(dialect.fixed("part_number", rest), dialect.fixed("start", f"part_number * {span}"))
            add(dialect.fixed("stop", f"start + {span} < {product.depth} ? start + {span} : {product.depth}"))
            start, stop = "start", "stop"
        item = dialect.number_in_group()
        if self.units:
            add(f"const int lane = {item} % {self.units.items}, warp = {item} / {self.units.items};")
        else:
            add(f"const int across = {item} % {self.across}, down = {item} / {self.across};")
        parts, each = self.held_sums
        add(f"{self.kind} sums[{parts}][{each}];")
        add(f"for (int r = 0; r < {parts}; ++r) for (int c = 0; c < {each}; ++c) sums[r][c] = {self.zero};")
        with self.lines.block(dialect.loop("depth", start, stop).replace("++depth", f"depth += {self.slice}")):
            self.load("lhs", product.lhs, self.fused.lhs, "row", product.rows)
            self.load("rhs", product.rhs, self.fused.rhs, "column", product.columns)
            add(dialect.barrier())
            self.multiply_fragments() if self.units else self.multiply()
            add(dialect.barrier())
        self.store()

    def load(self, name: str, operand: Operand, maker: Loops | None, free: str, size: int) -> None:
        """Load a slice of an operand; accesses are coalesced along either axis."""
        dialect, walk, digits = self.dialect, None, []
        deep = 1 if name == "lhs" else 0  # which of the operand's two axes
        side = self.rows if deep else self.columns
        if maker is None:
            parameter = self.parameter(name, operand.buffer, False)
            near = operand.strides[-2 + deep] == 1 and operand.strides[-1 - deep] != 1
        else:
            walk = self.walk(name, maker, _Slice(self, name))
            digits = operand_digits(maker, operand) or []
            batches = len(self.axes)
            near = _run(maker, digits, batches + deep) > _run(maker, digits, batches + 1 - deep)
        split = (
            f"const int d = at % {self.slice}, f = at / {self.slice};" if near
            else f"const int f = at % {side}, d = at / {side};"
        )  # fmt: skip
        head = f"for (int at = {dialect.number_in_group()}; at < {side * self.slice}; at += {_ITEMS}) {{"
        with self.lines.block(head):
            self.lines.add(split, dialect.fixed(free, f"first_{free} + f"), dialect.fixed("deep", "depth + d"))
            with self.lines.block(dialect.condition(f"{free} < {size} && deep < {self.product.depth}")):
                axes = [*self.axes, *((free, "deep") if deep else ("deep", free))]
                if walk is None:
                    terms = [(s, axis) for s, axis in zip(operand.strides, axes, strict=True) if s]
                    place = dialect.position(terms, operand.offset)
                    self.lines.add(self.tiled(name, f"{parameter}[{place}]", operand.buffer.dtype))
                else:
                    self.indices(walk, digits, axes)
                    walk.row()
            with self.lines.block(dialect.otherwise()):
                self.lines.add(self._into(name, "0" if self.units else self.zero))

    @property
    def _words(self) -> int:
        """The number of words of a row of a tile from which fragments are read."""
        return self.slice * self.held.itemsize // 4

    def _into(self, name: str, value: str) -> str:
        if not self.units:
            return f"{name}_tile[d][f] = {value};"
        if self.held.itemsize == 4:
            return f"{name}_words[f][d] = {value};"
        kind = f"{self.dialect.group_pointer} uint{8 * self.held.itemsize}_t".strip()
        return f"(({kind} *){name}_words[f])[d] = {value};"

    def tiled(self, name: str, value: str, given: np.dtype) -> str:
        """The statement that stores an element in a tile: a number, or its code for fragments."""
        def call(operation: str, dtypes: Sequence[np.dtype], argument: str) -> str:
            return f"{self.dialect.helper(helper_name(operation, *dtypes))}({argument})"

        narrow = is_narrow(self.held)
        if narrow and given != self.held:
            value = call("encode", [self.held], value)
        if narrow and not self.units:
            value = call("decode", [self.held], value)
        if self.product.tf32:
            bits = np.dtype(np.uint32)
            value = call("round_to_tf32", [bits], call("bits", [self.dtype, bits], value))
            value = value if self.units else call("bits", [bits, self.dtype], value)
        return self._into(name, value)

    def _of_warps(self) -> tuple[int, int]:
        """The number of a warp's adjacent fragments of sums, and of an item's sums in each."""
        assert self.units is not None
        warps = _ITEMS // self.units.items
        return self.rows * self.columns // (warps * FRAGMENT_ROWS * self.units.columns), self.units.sums

    def _row_of_warp(self, row: str) -> str:
        """The row in the tile of a row of a warp's fragments."""
        return f"warp % {self.rows // FRAGMENT_ROWS} * {FRAGMENT_ROWS} + {row}"

    def _column_of_warp(self, column: str, part: str) -> str:
        """The column in the tile of a column of a warp's fragment: warps of other rows have the same columns."""
        assert self.units is not None
        width = self.units.columns
        return f"warp / {self.rows // FRAGMENT_ROWS} * {self.held_sums[0] * width} + {part} * {width} + {column}"

    def multiply_fragments(self) -> None:
        """A slice's products on the matrix unit."""
        units = self.units
        assert units is not None
        for first in range(0, self._words, FRAGMENT_WORDS):
            left = [f"lhs_words[{self._row_of_warp(row)}][{word} + {first}]" for row, word in units.left]
            right = [f"rhs_words[{self._column_of_warp(c, 'part')}][{word} + {first}]" for c, word in units.right]
            call = f"{self.dialect.fragment_product(units)}(sums[part], {', '.join([*left, *right])});"
            loop = f"for (int part = 0; part < {self.held_sums[0]}; ++part)"
            self.lines.add(self.dialect.unroll, loop, f"    {call}")

    def multiply(self) -> None:
        """A slice's products."""
        added = "sums[r][c] + left[r] * right[c]"
        if self.dtype.kind == "f":
            added = f"fma{suffix(self.dtype)}(left[r], right[c], sums[r][c])"
        self.lines.add(
            self.dialect.unroll,
            f"for (int d = 0; d < {self.slice}; ++d) {{",
            f"    {self.kind} left[{_EACH}], right[{_EACH}];",
            f"    for (int e = 0; e < {_EACH}; ++e) {{",
            f"        left[e] = lhs_tile[d][down + {self.down} * e];",
            f"        right[e] = rhs_tile[d][across + {self.across} * e];",
            "    }",
            f"    for (int r = 0; r < {_EACH}; ++r)",
            f"        for (int c = 0; c < {_EACH}; ++c) sums[r][c] = {added};",
            "}",
        )

    def store(self) -> None:
        """Store the tile's part of the result, or the values that its reader computes from it."""
        dialect, product = self.dialect, self.product
        parts, each = self.held_sums
        with self.lines.block(f"for (int r = 0; r < {parts}; ++r)" + " {"), self.lines.block(
            f"for (int c = 0; c < {each}; ++c)" + " {"
        ):
            row, column = f"down + {self.down} * r", f"across + {self.across} * c"
            if self.units:
                row = self._row_of_warp(self.units.row.format("c"))
                column = self._column_of_warp(self.units.column.format("c"), "r")
            self.lines.add(dialect.fixed("row", f"first_row + {row}"))
            self.lines.add(dialect.fixed("column", f"first_column + {column}"))
            with self.lines.block(dialect.condition(f"row < {product.rows} && column < {product.columns}")):
                self.finish() if self.parts == 1 else self.keep()

    def keep(self) -> None:
        """Store a partial sum for the launch that adds them."""
        product = self.product
        strides = [math.prod(product.out.shape[d + 1 :]) for d in range(len(product.out.shape))]
        axes = [*zip(strides, [*self.axes, "row", "column"], strict=True)]
        place = self.dialect.position([(math.prod(product.out.shape), "part_number"), *axes], 0)
        self.lines.add(f"{self.parameter('partial', self.partial, True)}[{place}] = sums[r][c];")

    def add_parts(self, items: int) -> None:
        """The launch that adds the partial sums: an item for each element of the result."""
        dialect, product = self.dialect, self.product
        number = f"({dialect.number_type}){dialect.group_number()} * {items} + {dialect.number_in_group()}"
        count = math.prod(product.out.shape)
        partial = self.parameter("partial", self.partial, False)
        self.lines.add(dialect.number("point", number))
        with self.lines.block(dialect.condition(f"point < {count}")):
            rest = "point"
            for axis, size in reversed([*zip([*self.axes, "row", "column"], product.out.shape, strict=True)]):
                self.lines.add(dialect.fixed(axis, f"{rest} % {size}u"))
                rest = f"{rest} / {size}u"
            self.lines.add(f"{self.kind} sums[1][1];", "const int r = 0, c = 0;", f"sums[r][c] = {partial}[point];")
            place = dialect.position([(count, "part"), (1, "point")], 0)
            with self.lines.block(dialect.loop("part", "1", str(self.parts))):
                self.lines.add(f"sums[r][c] += {partial}[{place}];")
            self.finish()

    def finish(self) -> None:
        """Store an element of the result, or the values that its reader computes from it."""
        dialect, product, reader = self.dialect, self.product, self.fused.reader
        axes, kept = [*self.axes, "row", "column"], product.out.buffer.dtype
        if self.fused.stored:
            out = self.parameter("out", product.out.buffer, True)
            terms = [(s, axis) for s, axis in zip(product.out.strides, axes, strict=True) if s]
            place = dialect.position(terms, product.out.offset)
            before = f"{dialect.load(kept, out, place)} + " if product.accumulate else ""
            self.lines.add(dialect.store(kept, self.dtype, out, place, f"{before}sums[r][c]"))
        if reader is None:
            return
        walk = self.walk("out", reader, _Result(reader, product.out.buffer))
        if is_narrow(kept):
            self.lines.add(f"{memory_type(kept)} rounded[1];")
            self.lines.add(dialect.store(kept, self.dtype, "rounded", "0", "sums[r][c]"))
        self.indices(walk, result_digits(reader, product.out) or [], axes)
        walk.row()

    # ------------------------------------------------------------------ nests
    def parameter(self, name: str, buffer: Buffer, written: bool) -> str:
        """The name of an array that the kernel takes; two nests' references to an array share a name."""
        for known, other in self.parameters.items():
            if other is buffer:
                known.written |= written
                return known.name
        self.parameters[Parameter(name, buffer.dtype, written)] = buffer
        return name

    def walk(self, name: str, nest: Loops, mapping: Mapping) -> Walk:
        """The walk that writes a nest inside the kernel."""
        walk = Walk(nest, self.dialect, self.lines, mapping)
        written = {s.access.operand for s in nest.stores}
        made = self.product.out.buffer if nest is self.fused.reader else nest.operands[nest.stores[0].access.operand]
        for number, buffer in enumerate(nest.operands):
            if buffer is not made:
                walk.arrays[number] = self.parameter(f"{name}_{walk.arrays[number]}", buffer, number in written)
        return walk

    def indices(self, walk: Walk, digits: Sequence[Sequence[Digit]], axes: Sequence[str]) -> None:
        """The indices of a nest's loops, as digits of the axes."""
        for dimension, parts in enumerate(digits):
            terms = [(digit.weight, self._digit(digit, axes[digit.axis])) for digit in parts]
            self.lines.add(self.dialect.fixed(walk.index(dimension), self.dialect.position(terms, 0)))

    def _digit(self, digit: Digit, axis: str) -> str:
        if digit.divisor == 1 and digit.modulus is None:
            return axis
        text = f"({self.dialect.number_type}){axis}" + (f" / {digit.divisor}u" if digit.divisor > 1 else "")
        return f"({text}{'' if digit.modulus is None else f' % {digit.modulus}u'})"


def _run(maker: Loops, digits: Sequence[Sequence[Digit]], axis: int) -> int:
    """The number of neighbours along an operand's axis that are contiguous in memory."""
    loads = [i.attribute for i in maker.instructions if i.op == "load"]
    for dimension, parts in enumerate(digits):
        first = [digit for digit in parts if digit.axis == axis and digit.divisor == 1 and digit.weight == 1]
        if first and any(a.strides[dimension] == 1 for a in loads):
            return first[0].modulus or maker.sizes[dimension]
    return 0


class _Inside(Mapping):
    """The body of a map with known indices."""

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Nothing to do: all dimensions are open."""
        return range(len(walk.loops.sizes))


class _Slice(_Inside):
    """A nest that computes an operand: its stores write to the tile."""

    def __init__(self, text: _Text, name: str) -> None:
        self.text, self.name = text, name

    def overwrite(self, walk: Walk, store: Store, array: str, place: str, value: str) -> None:
        """Store to the tile."""
        walk.lines.add(self.text.tiled(self.name, value, walk.loops.instructions[store.value].dtype))


class _Result(_Inside):
    """A nest that reads a result, which is in registers."""

    def __init__(self, reader: Loops, result: Buffer) -> None:
        self.reader, self.result = reader, result

    def memory(self, walk: Walk, access: Access, extra: str | None = None) -> tuple[str, str]:
        """Load from the item's sums, or from memory."""
        if walk.loops.operands[access.operand] is self.result:
            return ("rounded", "0") if is_narrow(self.result.dtype) else ("sums[r]", "c")
        return super().memory(walk, access, extra)
