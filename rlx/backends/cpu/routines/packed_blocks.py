"""IR of packed blocks of numbers: how each scheme decodes, sixteen numbers at a time, in registers.

A scheme is a rule over `BlockCode`: it yields the numbers of a block in order as vectors of sixteen float32.
`product_text` puts such a rule into two loops over the blocks of rows: one multiplies and sums them directly, one
stores them as a tile for BLAS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, reduce
from itertools import chain, cycle
from operator import add
from typing import NamedTuple

from rlx.backends.cpu.emit.ir_text import Code, Module, Value, literal, vector
from rlx.backends.cpu.runtime.compile import processor

__all__ = ["DECODE", "DOTS", "LANES", "PackedScheme", "packed_scheme", "product_text"]

LANES = 16
DOTS = {1: "rlx_packed_dot", 4: "rlx_packed_dot4"}  # by the number of rows of x that are multiplied at once
DECODE = "rlx_packed_decode"

_FLOATS, _HALVES, _BYTES, _WORDS = (vector(LANES, kind) for kind in ("float", "half", "i8", "i32"))
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_ACCUMULATORS = 4


class BlockCode:
    """A block being decoded: the addresses of its elements, scales and zeros, and the function that it is part of."""

    def __init__(self, code: Code, elements: str, scales: str, zeros: str) -> None:
        self.code, self.elements, self.scales, self.zeros = code, elements, scales, zeros

    def load(self, kind: str, start: int, pointer: str | None = None) -> Value:
        """A value at a byte, without alignment."""
        return self.code.load(kind, self.code.element("i8", pointer or self.elements, start), ", align 1")

    def half(self, start: int) -> Value:
        """The float16 at a byte, as float32."""
        return self.load("half", start).convert("fpext", "float")

    def halves(self, start: int) -> Value:
        """The float16 at a byte, as float32 in every lane."""
        return self.load("half", start).splat(LANES).convert("fpext", _FLOATS)

    def byte(self, start: int) -> Value:
        """The byte at a place, as i32."""
        return self.load("i8", start).convert("zext", "i32")

    def bytes(self, start: int) -> Value:
        """Sixteen bytes from a place on."""
        return self.load(_BYTES, start)

    def flags(self, start: int) -> Value:
        """Sixteen bits at a byte as bytes of 0 or 1."""
        return self.load("i16", start).convert("bitcast", vector(LANES, "i1")).convert("zext", _BYTES)

    def table(self, name: str, x: Value) -> Value:
        """Numbers of a table by bytes."""
        if processor()[1].get("avx512f"):
            numbers = self.code.load(_FLOATS, f"@{name}", ", align 64")
            return self.code.call("llvm.x86.avx512.permvar.sf.512", _FLOATS, numbers, x.convert("zext", _WORDS))
        kind, index = vector(LANES, "ptr"), x.convert("zext", vector(LANES, "i64"))
        places = self.code.emit(kind, f"getelementptr float, ptr @{name}, {index.kind} {index.name}")
        every = self.code.constant(vector(LANES, "i1"), True)
        aligned, unread = self.code.constant("i32", 4), Value(self.code, "poison", _FLOATS)
        gather = f"llvm.masked.gather.v{LANES}f32.v{LANES}p0"
        return self.code.call(gather, _FLOATS, places, aligned, every, unread)


def _numbers(kind: str, values: Sequence[int]) -> str:
    return f"<{', '.join(f'{kind} {value}' for value in values)}>"


def _bits(x: Value, shift: int, count: int = 2) -> Value:
    """`count` bits of each byte."""
    return (x >> shift if shift else x) & ((1 << count) - 1)


def _nibbles(x: Value) -> tuple[Value, Value]:
    """The low and the high nibble of each byte."""
    return x & 15, x >> 4


def _unsigned(x: Value) -> Value:
    """Bytes as float32."""
    return x.convert("zext", _WORDS).convert("uitofp", _FLOATS)


def _signed(x: Value) -> Value:
    """Bytes, taken for signed ones, as float32."""
    return x.convert("sext", _WORDS).convert("sitofp", _FLOATS)


DecodeRule = Callable[[BlockCode], Iterator[Value]]


class PackedScheme(NamedTuple):
    """A block of `elements` numbers in `nbytes` bytes, with `scales` and `zeros` bytes stored separately."""

    elements: int
    nbytes: int
    scales: int
    zeros: int
    rule: DecodeRule


# ---------------------------------------------------------------- blocks of 32
def _q4_0(t: BlockCode) -> Iterator[Value]:
    d, packed = t.halves(0), t.bytes(2)
    for part in _nibbles(packed):
        yield d * _signed(part - 8)


def _q4_1(t: BlockCode) -> Iterator[Value]:
    d, m, packed = t.halves(0), t.halves(2), t.bytes(4)
    for part in _nibbles(packed):
        yield d.fma(_unsigned(part), m)


def _five(t: BlockCode, flags: int, start: int) -> Iterator[Value]:
    for number, part in enumerate(_nibbles(t.bytes(start))):
        yield part | (t.flags(flags + 2 * number) << 4)


def _q5_0(t: BlockCode) -> Iterator[Value]:
    d = t.halves(0)
    for part in _five(t, 2, 6):
        yield d * _signed(part - 16)


def _q5_1(t: BlockCode) -> Iterator[Value]:
    d, m = t.halves(0), t.halves(2)
    for part in _five(t, 4, 8):
        yield d.fma(_unsigned(part), m)


def _bytes_at(*starts: int) -> DecodeRule:
    """Bytes at some places, after a float16."""

    def rule(t: BlockCode) -> Iterator[Value]:
        d = t.halves(0)
        for start in starts:
            yield d * _signed(t.bytes(start))

    return rule


def _q8_k(t: BlockCode) -> Iterator[Value]:
    d = t.load("float", 0).splat(LANES)
    for start in range(4, 260, LANES):
        yield d * _signed(t.bytes(start))


def _iq4_nl(t: BlockCode) -> Iterator[Value]:
    d, packed = t.halves(0), t.bytes(2)
    for part in _nibbles(packed):
        yield d * t.table("iq4", part)


def _power(e: Value) -> Value:
    """2^(e - 128) of an i32, as float32; below 2^-126 it is subnormal."""
    normal, small = (e - 1) << 23, e.lift(1 << 21) << e
    return e.compare("ult", 2).where(small, normal).as_float()


def _mxfp4(t: BlockCode) -> Iterator[Value]:
    d, packed = _power(t.byte(0)).splat(LANES), t.bytes(1)
    for part in _nibbles(packed):
        yield d * t.table("e2m1", part)


# ---------------------------------------------------------------- blocks of 256
def _six_bits(t: BlockCode, start: int, group: int) -> tuple[Value, Value]:
    """Scale and minimum of a group, of twelve bytes."""
    if group < 4:
        scale, minimum = (t.byte(start + group + 4 * k) & 63 for k in (0, 1))
        return scale, minimum
    scale, minimum = (
        low | ((t.byte(start + above) >> 6) << 4)
        for low, above in zip(_nibbles(t.byte(start + group + 4)), (group - 4, group), strict=True)
    )
    return scale, minimum


def _times(d: Value, number: Value) -> Value:
    """A scale times an integer."""
    return d * number.convert("sitofp", "float")


def _k_with_minimum(t: BlockCode, packed: int, flags: int | None) -> Iterator[Value]:
    d, least = t.half(0), t.half(2)
    for group in range(8):
        numbers = _six_bits(t, 4, group)
        scale, minimum = _times(d, numbers[0]).splat(LANES), (-_times(least, numbers[1])).splat(LANES)
        for half in (0, 16):
            part = _nibbles(t.bytes(packed + 32 * (group // 2) + half))[group % 2]
            if flags is not None:
                part = part | (_bits(t.bytes(flags + half), group, 1) << 4)
            yield scale.fma(_unsigned(part), minimum)


def _q4_k(t: BlockCode) -> Iterator[Value]:
    yield from _k_with_minimum(t, 16, None)


def _q5_k(t: BlockCode) -> Iterator[Value]:
    yield from _k_with_minimum(t, 48, 16)


def _q6_k(t: BlockCode) -> Iterator[Value]:
    d = t.half(208)
    for group in range(16):
        half, quarter, part = group // 8, group % 8 // 2, group % 2
        nibble = _nibbles(t.bytes(64 * half + 32 * (quarter % 2) + 16 * part))[quarter > 1]
        above = _bits(t.bytes(128 + 32 * half + 16 * part), 2 * quarter)
        scale = _times(d, t.load("i8", 192 + group)).splat(LANES)
        yield scale * _signed((nibble | (above << 4)) - 32)


def _q2_k(t: BlockCode) -> Iterator[Value]:
    d, least = t.half(80), t.half(82)
    for group in range(16):
        low, high = _nibbles(t.byte(group))
        scale, minimum = _times(d, low).splat(LANES), (-_times(least, high)).splat(LANES)
        byte = t.bytes(16 + 32 * (group // 8) + 16 * (group % 2))
        yield scale.fma(_unsigned(_bits(byte, 2 * (group % 8 // 2))), minimum)


def _q3_k(t: BlockCode) -> Iterator[Value]:
    d = t.half(108)
    for group in range(16):
        low = _nibbles(t.byte(96 + group % 8))[group > 7]
        high = (t.byte(104 + group % 4) >> 2 * (group // 4)) & 3
        scale = _times(d, (low | (high << 4)) - 32).splat(LANES)
        quarter = group % 8 // 2
        two = _bits(t.bytes(32 + 32 * (group // 8) + 16 * (group % 2)), 2 * quarter)
        third = _bits(t.bytes(16 * (group % 2)), 4 * (group // 8) + quarter, 1)
        yield scale * _signed((two | (third << 2)) - 4)


def _iq4_xs(t: BlockCode) -> Iterator[Value]:
    d, shared = t.half(0), t.load("i16", 2).convert("zext", "i32")
    for group in range(8):
        low = (t.byte(4 + group // 2) >> 4 * (group % 2)) & 15
        high = ((shared >> 2 * group) & 3) << 4
        scale = _times(d, (low | high) - 32).splat(LANES)
        for part in _nibbles(t.bytes(8 + 16 * group)):
            yield scale * t.table("iq4", part)


# ---------------------------------------------------------------- three values, and two
def _tq2_0(t: BlockCode) -> Iterator[Value]:
    d = t.halves(64)
    for start in (0, 32):
        packed = [t.bytes(start), t.bytes(start + LANES)]
        for plane in range(4):
            for part in packed:
                yield d * _signed(_bits(part, 2 * plane) - 1)


def _tq1_0(t: BlockCode) -> Iterator[Value]:
    """Five digits of base 3 in a byte, the first one in the highest place: 3**n times it, and its upper part of 3."""
    d = t.halves(52)

    def digit(packed: Value, powers: Value | int) -> Value:
        tripled = (packed * powers).convert("zext", vector(LANES, "i16")) * 3
        return d * _signed((tripled >> 8).convert("trunc", _BYTES) - 1)

    for group in ((0, LANES), (2 * LANES,)):
        packed = [t.bytes(start) for start in group]
        for place in range(5):
            yield from (digit(part, 3**place) for part in packed)
    four = t.load("i32", 48).convert("bitcast", vector(4, "i8")).shuffled([lane % 4 for lane in range(LANES)])
    yield digit(four, Value(t.code, _numbers("i8", [3 ** (lane // 4) for lane in range(LANES)]), _BYTES))


def _q1_0(t: BlockCode) -> Iterator[Value]:
    d = t.halves(0)
    for start in range(2, 18, 2):
        yield d * _signed((t.flags(start) << 1) - 1)


def _gguf_nvfp4(t: BlockCode) -> Iterator[Value]:
    """Half of scales without a sign, as above, NaN's pattern for 0; high nibbles are eight numbers after low ones."""
    half = range(LANES // 2)
    for group in range(4):
        code = t.load("i8", group)
        number = ((code & 127).convert("zext", "i16") << 7).as_float().convert("fpext", "float")
        scale = code.equal(127).where(0.0, number * 128.0)
        low, high = _nibbles(t.load(vector(LANES // 2, "i8"), 4 + 8 * group).shuffled([*half, *half]))
        both = low.shuffled([*half, *(LANES + n for n in half)], high)
        yield scale.splat(LANES) * t.table("e2m1", both)


# ---------------------------------------------------------------- plain numbers
def _f16(t: BlockCode) -> Iterator[Value]:
    yield t.load(_HALVES, 0).convert("fpext", _FLOATS)


def _bf16(t: BlockCode) -> Iterator[Value]:
    yield (t.load(vector(LANES, "i16"), 0).convert("zext", _WORDS) << 16).convert("bitcast", _FLOATS)


def _fp8e5m2(t: BlockCode) -> Iterator[Value]:
    """The upper halves of float16."""
    high = t.bytes(0).convert("zext", vector(LANES, "i16")) << 8
    yield high.convert("bitcast", _HALVES).convert("fpext", _FLOATS)


def _fp8e4m3(t: BlockCode) -> Iterator[Value]:
    yield _fp8e4m3_part(t.bytes(0)) * 256.0


def _fp8e4m3_part(codes: Value) -> Value:
    """Numbers divided by 256: float16 has their mantissa one bit lower, and a greater bias; all ones is NaN."""
    wide = codes.convert("zext", vector(LANES, "i16"))
    size, sign = wide & 127, wide & 128
    bits = (sign << 8) | (size << 7)
    return size.equal(127).where(0x7E00, bits).convert("bitcast", _HALVES).convert("fpext", _FLOATS)


# ---------------------------------------------------------------- separate scales
def _bytes_rule(elements: int, zeros: bool) -> DecodeRule:
    def rule(t: BlockCode) -> Iterator[Value]:
        number = t.load("float", 0, t.scales)
        scale = number.splat(LANES)
        offset = (-(number * t.load("float", 0, t.zeros))).splat(LANES) if zeros else None
        for start in range(0, elements, LANES):
            number = _signed(t.bytes(start))
            yield scale * number if offset is None else scale.fma(number, offset)

    return rule


def _single_scale(t: BlockCode) -> tuple[Value, ...]:
    return (t.load("float", 0, t.scales).splat(LANES),)


def _e8m0_scale(t: BlockCode) -> tuple[Value, ...]:
    """Half of it, for the table has e2m1 twice as large; all ones is NaN."""
    e = t.load("i8", 0, t.scales).convert("zext", "i32")
    return (e.equal(255).where(math.nan, _power(e)).splat(LANES),)


def _e4m3_scales(t: BlockCode) -> tuple[Value, ...]:
    """Half of each scale, as above."""
    return tuple(_fp8e4m3_part(t.load("i8", number, t.scales).splat(LANES)) * 128.0 for number in range(2))


def _nibbles_rule(
    elements: int,
    table: str = "",
    high_first: bool = False,
    scales_of: Callable[[BlockCode], tuple[Value, ...]] = _single_scale,
) -> DecodeRule:
    """Two numbers in a byte, neighbours: the codes less 8, or of a table. scales_of: one, or one for each sixteen."""

    def rule(t: BlockCode) -> Iterator[Value]:
        scales = cycle(scales_of(t))
        for start in range(0, elements // 2, LANES):
            first, second = _nibbles(t.bytes(start))[:: -1 if high_first else 1]
            for begin in (0, LANES // 2):
                order = [n + LANES * k for n in range(begin, begin + LANES // 2) for k in (0, 1)]
                code = first.shuffled(order, second)
                yield next(scales) * (t.table(table, code) if table else _signed(code - 8))

    return rule


_PACKED: dict[str, PackedScheme] = {
    "gguf_q4_0": PackedScheme(32, 18, 0, 0, _q4_0),
    "gguf_q4_1": PackedScheme(32, 20, 0, 0, _q4_1),
    "gguf_q5_0": PackedScheme(32, 22, 0, 0, _q5_0),
    "gguf_q5_1": PackedScheme(32, 24, 0, 0, _q5_1),
    "gguf_q8_0": PackedScheme(32, 34, 0, 0, _bytes_at(2, 18)),
    "gguf_q8_1": PackedScheme(32, 36, 0, 0, _bytes_at(4, 20)),
    "gguf_q8_k": PackedScheme(256, 292, 0, 0, _q8_k),
    "gguf_q2_k": PackedScheme(256, 84, 0, 0, _q2_k),
    "gguf_q3_k": PackedScheme(256, 110, 0, 0, _q3_k),
    "gguf_q4_k": PackedScheme(256, 144, 0, 0, _q4_k),
    "gguf_q5_k": PackedScheme(256, 176, 0, 0, _q5_k),
    "gguf_q6_k": PackedScheme(256, 210, 0, 0, _q6_k),
    "gguf_iq4_nl": PackedScheme(32, 18, 0, 0, _iq4_nl),
    "gguf_iq4_xs": PackedScheme(256, 136, 0, 0, _iq4_xs),
    "gguf_mxfp4": PackedScheme(32, 17, 0, 0, _mxfp4),
    "gguf_nvfp4": PackedScheme(64, 36, 0, 0, _gguf_nvfp4),
    "gguf_tq1_0": PackedScheme(256, 54, 0, 0, _tq1_0),
    "gguf_tq2_0": PackedScheme(256, 66, 0, 0, _tq2_0),
    "gguf_q1_0": PackedScheme(128, 18, 0, 0, _q1_0),
    "gguf_f16": PackedScheme(LANES, 2 * LANES, 0, 0, _f16),
    "gguf_bf16": PackedScheme(LANES, 2 * LANES, 0, 0, _bf16),
    "fp8e4m3": PackedScheme(LANES, LANES, 0, 0, _fp8e4m3),
    "fp8e5m2": PackedScheme(LANES, LANES, 0, 0, _fp8e5m2),
    "mxfp4/32": PackedScheme(32, 16, 1, 0, _nibbles_rule(32, "e2m1", scales_of=_e8m0_scale)),
    "nvfp4/16": PackedScheme(32, 16, 2, 0, _nibbles_rule(32, "e2m1", scales_of=_e4m3_scales)),  # two blocks
}
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
_TABLES = {"iq4": _IQ4, "e2m1": _E2M1, "nf4": _NF4}


@cache
def packed_scheme(name: str) -> PackedScheme | None:
    """The decoding rule of a scheme; None if this backend has none."""
    if name in _PACKED:
        return _PACKED[name]
    kind, _, block = name.partition("/")
    if not block.isdecimal():
        return None
    elements = int(block)
    if kind in ("int8", "int8a") and elements % LANES == 0:
        zeros = kind == "int8a"
        return PackedScheme(elements, elements, 4, 4 * zeros, _bytes_rule(elements, zeros))
    if kind in ("int4", "nf4") and elements % (2 * LANES) == 0:
        rule = _nibbles_rule(elements, "nf4", True) if kind == "nf4" else _nibbles_rule(elements)
        return PackedScheme(elements, elements // 2, 4, 0, rule)
    return None


def product_text(name: str) -> str:
    """The IR of a scheme's functions, over rows of blocks: DOTS of few rows of x, and DECODE.

    dot(out, x, bytes between rows of out, of x, elements, scales, zeros, rows, blocks, bytes of a row's elements,
    scales, zeros): sums of products of each row with rows of x, float32.
    DECODE(out, bytes between its rows, elements, ...): rows of numbers.
    """
    scheme = packed_scheme(name)
    assert scheme is not None
    module = Module()
    for rows, dot in DOTS.items():
        _dot(_Rows(module, dot, ("out", "x"), scheme), rows)
    _decode(_Rows(module, DECODE, ("out",), scheme))
    return "\n".join([*(_table_text(table, values) for table, values in _TABLES.items()), module.text()]) + "\n"


def _table_text(name: str, values: Sequence[float]) -> str:
    numbers = ", ".join(f"float {literal('float', value)}" for value in values)
    return f"@{name} = private constant [{len(values)} x float] [{numbers}], align 64"


class _Rows:
    """A function of rows of blocks; given: the arrays that it takes first, each with the bytes between its rows."""

    def __init__(self, module: Module, name: str, given: Sequence[str], scheme: PackedScheme) -> None:
        self.code, self.scheme, self.module, self.name = Code(module), scheme, module, name
        self.arrays: tuple[str, ...] = (*given, "elements", "scales", "zeros")
        sizes = [f"i64 %{array}bytes" for array in given]
        parts = ["ptr %elements", "ptr %scales", "ptr %zeros", "i64 %nrows", "i64 %nblocks"]
        parts += [f"i64 %{array}bytes" for array in self.arrays[len(given) :]]
        self.parameters = ", ".join([*(f"ptr %{array}" for array in given), *sizes, *parts])

    def word(self, name: str | int) -> Value:
        """A parameter or a number."""
        return self.code.constant("i64", name) if isinstance(name, int) else Value(self.code, f"%{name}", "i64")

    def at(self, pointer: str, offset: Value | int) -> str:
        """The address of a byte."""
        return self.code.element("i8", pointer, offset)

    def row(self, array: str, number: Value | int) -> str:
        """Where a row of an array begins."""
        return self.at(f"%{array}", self.word(f"{array}bytes") * number)

    def each_row(self) -> AbstractContextManager[Value]:
        """A loop over the rows."""
        return self.code.loop(self.word(0), self.word("nrows"))

    @contextmanager
    def blocks(self, row: Value) -> Generator[tuple[Value, Iterator[Value]]]:
        """A loop over a row's blocks: the bytes of float32 numbers before a block, and its numbers."""
        scheme = self.scheme
        starts = [self.row(array, row) for array in self.arrays[-3:]]
        with self.code.loop(self.word(0), self.word("nblocks")) as number:
            sizes = (scheme.nbytes, scheme.scales, scheme.zeros)
            places = [self.at(start, number * size) for start, size in zip(starts, sizes, strict=True)]
            yield number * (4 * scheme.elements), scheme.rule(BlockCode(self.code, *places))

    def define(self) -> None:
        """Add the function to its module."""
        self.module.define(self.name, self.code, self.parameters)


def _dot(t: _Rows, rows: int) -> None:
    """Each vector is multiplied with `rows` rows of x. For one row there are several sums, so that none waits long."""
    code, turns = t.code, min(t.scheme.elements // LANES, max(1, _ACCUMULATORS // rows))
    x = [t.row("x", row) for row in range(rows)]
    out = [t.row("out", row) for row in range(rows)]
    sums = [[code.stack_slot(_FLOATS) for _ in range(turns)] for _ in range(rows)]
    with t.each_row() as number:
        for slot in chain.from_iterable(sums):
            code.store(code.constant(_FLOATS, 0.0), slot)
        with t.blocks(number) as (start, vectors):
            here = [t.at(place, start) for place in x]
            for n, numbers in enumerate(vectors):
                for place, slots in zip(here, sums, strict=True):
                    factors = code.load(_FLOATS, code.element("float", place, LANES * n), ", align 4")
                    total = numbers.fma(factors, code.load(_FLOATS, slots[n % turns]))
                    code.store(total, slots[n % turns])
        for place, slots in zip(out, sums, strict=True):
            total = reduce(add, (code.load(_FLOATS, slot) for slot in slots))
            zero = code.constant("float", -0.0)
            found = code.call(f"llvm.vector.reduce.fadd.v{LANES}f32", "float", zero, total, flags="reassoc")
            code.store(found, code.element("float", place, number), ", align 4")
    t.define()


def _decode(t: _Rows) -> None:
    with t.each_row() as number:
        out = t.row("out", number)
        with t.blocks(number) as (start, vectors):
            here = t.at(out, start)
            for n, numbers in enumerate(vectors):
                t.code.store(numbers, t.code.element("float", here, LANES * n), ", align 4")
    t.define()
