"""IR of packed blocks of numbers: how each scheme decodes, sixteen numbers at a time, in registers.

A scheme is a rule over `BlockText`: it appends loads and arithmetic, and yields the numbers of a block in order as
vectors of sixteen float32. `product_functions` puts such a rule into two loops over the blocks of rows: one multiplies
and sums them directly, one stores them as a tile for BLAS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import cycle
from typing import NamedTuple

from rlx.backends.cpu.emit.ir_text import ATTRIBUTES, literal
from rlx.backends.cpu.runtime.compile import processor

__all__ = ["DECODE", "DOTS", "LANES", "PackedScheme", "packed_scheme", "product_text"]

LANES = 16
DOTS = {1: "rlx_packed_dot", 4: "rlx_packed_dot4"}  # by the number of rows of x that are multiplied at once
DECODE = "rlx_packed_decode"

_FLOATS = f"<{LANES} x float>"
_BYTES = f"<{LANES} x i8>"
_WORDS = f"<{LANES} x i32>"
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_ACCUMULATORS = 4


class BlockText:
    """A block being decoded: pointers to its elements, scales and zeros, and the IR so far."""

    def __init__(self, elements: str, scales: str, zeros: str) -> None:
        self.elements, self.scales, self.zeros = elements, scales, zeros
        self.lines: list[str] = []
        self.declarations: dict[str, None] = {}
        self._count = 0

    def name(self, text: str) -> str:
        """A fresh name for a value."""
        self._count += 1
        self.lines.append(f"%b{self._count} = {text}")
        return f"%b{self._count}"

    def intrinsic(self, name: str, kind: str, *values: str) -> str:
        """A call of an intrinsic whose operands are of its result's type."""
        self.declarations[f"declare {kind} @{name}({', '.join([kind] * len(values))})"] = None
        return self.name(f"call {kind} @{name}({', '.join(f'{kind} {v}' for v in values)})")

    # ------------------------------------------------------------- scalars
    def place(self, start: int, pointer: str | None = None) -> str:
        """The address of a byte."""
        return self.name(f"getelementptr i8, ptr {pointer or self.elements}, i64 {start}")

    def load(self, kind: str, start: int, pointer: str | None = None) -> str:
        """A value at a byte, without alignment."""
        return self.name(f"load {kind}, ptr {self.place(start, pointer)}, align 1")

    def half(self, start: int) -> str:
        """The float16 at a byte, as float32."""
        return self.name(f"fpext half {self.load('half', start)} to float")

    def halves(self, start: int) -> str:
        """The float16 at a byte, as float32 in every lane."""
        return self.name(f"fpext <{LANES} x half> {self.splat(self.load('half', start), 'half')} to {_FLOATS}")

    def single(self, pointer: str, number: int = 0) -> str:
        """The float32 number `number` after a pointer."""
        return self.load("float", 4 * number, pointer)

    def byte(self, start: int) -> str:
        """The byte at a place, as i32."""
        return self.name(f"zext i8 {self.load('i8', start)} to i32")

    def scalar(self, operation: str, x: str, y: str | int) -> str:
        """An operation on i32."""
        return self.name(f"{operation} i32 {x}, {y}")

    def number(self, x: str, operation: str = "sitofp") -> str:
        """An i32 as float32."""
        return self.name(f"{operation} i32 {x} to float")

    def times(self, x: str, y: str) -> str:
        """A product of two float32."""
        return self.name(f"fmul float {x}, {y}")

    def negative(self, x: str) -> str:
        """A float32 with the other sign."""
        return self.name(f"fneg float {x}")

    # ------------------------------------------------------------- vectors
    def splat(self, x: str, kind: str = "float") -> str:
        """A scalar in every lane."""
        one = self.name(f"insertelement <{LANES} x {kind}> poison, {kind} {x}, i64 0")
        return self.name(
            f"shufflevector <{LANES} x {kind}> {one}, <{LANES} x {kind}> poison, <{LANES} x i32> zeroinitializer"
        )

    def bytes(self, start: int) -> str:
        """Sixteen bytes from a place on."""
        return self.load(_BYTES, start)

    def on_bytes(self, operation: str, x: str, y: str | int) -> str:
        """An operation on bytes; a number stands for itself in every lane."""
        other = _constant("i8", y) if isinstance(y, int) else y
        return self.name(f"{operation} {_BYTES} {x}, {other}")

    def low(self, x: str) -> str:
        """Low nibbles."""
        return self.on_bytes("and", x, 15)

    def high(self, x: str) -> str:
        """High nibbles."""
        return self.on_bytes("lshr", x, 4)

    def bits(self, x: str, shift: int, count: int = 2) -> str:
        """`count` bits of each byte."""
        shifted = self.on_bytes("lshr", x, shift) if shift else x
        return self.on_bytes("and", shifted, (1 << count) - 1)

    def flags(self, start: int) -> str:
        """Sixteen bits at a byte as bytes of 0 or 1."""
        word = self.load("i16", start)
        mask = self.name(f"bitcast i16 {word} to <{LANES} x i1>")
        return self.name(f"zext <{LANES} x i1> {mask} to {_BYTES}")

    def unsigned(self, x: str) -> str:
        """Bytes as float32."""
        return self.name(f"uitofp {_WORDS} {self.name(f'zext {_BYTES} {x} to {_WORDS}')} to {_FLOATS}")

    def signed(self, x: str) -> str:
        """Bytes, taken for signed ones, as float32."""
        return self.name(f"sitofp {_WORDS} {self.name(f'sext {_BYTES} {x} to {_WORDS}')} to {_FLOATS}")

    def table(self, name: str, x: str) -> str:
        """Numbers of a table by bytes."""
        if processor()[1].get("avx512f"):
            index = self.name(f"zext {_BYTES} {x} to {_WORDS}")
            numbers = self.name(f"load {_FLOATS}, ptr @{name}, align 64")
            symbol = "@llvm.x86.avx512.permvar.sf.512"
            self.declarations[f"declare {_FLOATS} {symbol}({_FLOATS}, {_WORDS})"] = None
            return self.name(f"call {_FLOATS} {symbol}({_FLOATS} {numbers}, {_WORDS} {index})")
        kind = f"<{LANES} x ptr>"
        index = self.name(f"zext {_BYTES} {x} to <{LANES} x i64>")
        places = self.name(f"getelementptr float, ptr @{name}, <{LANES} x i64> {index}")
        symbol = f"@llvm.masked.gather.v{LANES}f32.v{LANES}p0"
        self.declarations[f"declare {_FLOATS} {symbol}({kind}, i32, <{LANES} x i1>, {_FLOATS})"] = None
        return self.name(
            f"call {_FLOATS} {symbol}({kind} {places}, i32 4, <{LANES} x i1> splat (i1 true), {_FLOATS} poison)"
        )

    def scaled(self, scale: str, x: str) -> str:
        """A vector times another."""
        return self.name(f"fmul {_FLOATS} {scale}, {x}")

    def affine(self, scale: str, x: str, offset: str) -> str:
        """A vector times another, plus a third."""
        return self.intrinsic(f"llvm.fma.v{LANES}f32", _FLOATS, scale, x, offset)


def _constant(kind: str, number: int | str) -> str:
    return f"<{', '.join([f'{kind} {number}'] * LANES)}>"


Rule = Callable[[BlockText], Iterator[str]]


class PackedScheme(NamedTuple):
    """A block of `elements` numbers in `nbytes` bytes, with `scales` and `zeros` bytes stored separately."""

    elements: int
    nbytes: int
    scales: int
    zeros: int
    rule: Rule


# ---------------------------------------------------------------- blocks of 32
def _q4_0(t: BlockText) -> Iterator[str]:
    d, packed = t.halves(0), t.bytes(2)
    for part in (t.low(packed), t.high(packed)):
        yield t.scaled(d, t.signed(t.on_bytes("sub", part, 8)))


def _q4_1(t: BlockText) -> Iterator[str]:
    d, m, packed = t.halves(0), t.halves(2), t.bytes(4)
    for part in (t.low(packed), t.high(packed)):
        yield t.affine(d, t.unsigned(part), m)


def _five(t: BlockText, flags: int, start: int) -> Iterator[str]:
    packed = t.bytes(start)
    for number, part in enumerate((t.low(packed), t.high(packed))):
        yield t.on_bytes("or", part, t.on_bytes("shl", t.flags(flags + 2 * number), 4))


def _q5_0(t: BlockText) -> Iterator[str]:
    d = t.halves(0)
    for part in _five(t, 2, 6):
        yield t.scaled(d, t.signed(t.on_bytes("sub", part, 16)))


def _q5_1(t: BlockText) -> Iterator[str]:
    d, m = t.halves(0), t.halves(2)
    for part in _five(t, 4, 8):
        yield t.affine(d, t.unsigned(part), m)


def _q8_0(t: BlockText) -> Iterator[str]:
    d = t.halves(0)
    for start in (2, 18):
        yield t.scaled(d, t.signed(t.bytes(start)))


def _q8_1(t: BlockText) -> Iterator[str]:
    d = t.halves(0)
    for start in (4, 20):
        yield t.scaled(d, t.signed(t.bytes(start)))


def _q8_k(t: BlockText) -> Iterator[str]:
    d = t.splat(t.load("float", 0))
    for start in range(4, 260, LANES):
        yield t.scaled(d, t.signed(t.bytes(start)))


def _iq4_nl(t: BlockText) -> Iterator[str]:
    d, packed = t.halves(0), t.bytes(2)
    for part in (t.low(packed), t.high(packed)):
        yield t.scaled(d, t.table("iq4", part))


def _power(t: BlockText, e: str) -> str:
    """2^(e - 128) of an i32, as float32; below 2^-126 it is subnormal."""
    normal = t.scalar("shl", t.scalar("sub", e, 1), 23)
    small = t.scalar("shl", str(1 << 21), e)
    bits = t.name(f"select i1 {t.name(f'icmp ult i32 {e}, 2')}, i32 {small}, i32 {normal}")
    return t.name(f"bitcast i32 {bits} to float")


def _mxfp4(t: BlockText) -> Iterator[str]:
    d, packed = t.splat(_power(t, t.byte(0))), t.bytes(1)
    for part in (t.low(packed), t.high(packed)):
        yield t.scaled(d, t.table("e2m1", part))


# ---------------------------------------------------------------- blocks of 256
def _six_bits(t: BlockText, start: int, group: int) -> tuple[str, str]:
    """Scale and minimum of a group, of twelve bytes."""
    if group < 4:
        scale, minimum = (t.scalar("and", t.byte(start + group + 4 * k), 63) for k in (0, 1))
        return scale, minimum
    shared = t.byte(start + group + 4)
    found = []
    for low, above in ((t.scalar("and", shared, 15), group - 4), (t.scalar("lshr", shared, 4), group)):
        high = t.scalar("shl", t.scalar("lshr", t.byte(start + above), 6), 4)
        found.append(t.scalar("or", low, high))
    return found[0], found[1]


def _k_with_minimum(t: BlockText, packed: int, flags: int | None) -> Iterator[str]:
    d, least = t.half(0), t.half(2)
    for group in range(8):
        scale, minimum = _six_bits(t, 4, group)
        scale = t.splat(t.times(d, t.number(scale)))
        minimum = t.splat(t.negative(t.times(least, t.number(minimum))))
        for half in (0, 16):
            byte = t.bytes(packed + 32 * (group // 2) + half)
            part = t.high(byte) if group % 2 else t.low(byte)
            if flags is not None:
                fifth = t.bits(t.bytes(flags + half), group, 1)
                part = t.on_bytes("or", part, t.on_bytes("shl", fifth, 4))
            yield t.affine(scale, t.unsigned(part), minimum)


def _q4_k(t: BlockText) -> Iterator[str]:
    yield from _k_with_minimum(t, 16, None)


def _q5_k(t: BlockText) -> Iterator[str]:
    yield from _k_with_minimum(t, 48, 16)


def _q6_k(t: BlockText) -> Iterator[str]:
    d = t.half(208)
    for group in range(16):
        half, quarter, part = group // 8, group % 8 // 2, group % 2
        byte = t.bytes(64 * half + 32 * (quarter % 2) + 16 * part)
        nibble = t.high(byte) if quarter > 1 else t.low(byte)
        above = t.bits(t.bytes(128 + 32 * half + 16 * part), 2 * quarter)
        number = t.on_bytes("sub", t.on_bytes("or", nibble, t.on_bytes("shl", above, 4)), 32)
        scale = t.name(f"sitofp i8 {t.load('i8', 192 + group)} to float")
        yield t.scaled(t.splat(t.times(d, scale)), t.signed(number))


def _q2_k(t: BlockText) -> Iterator[str]:
    d, least = t.half(80), t.half(82)
    for group in range(16):
        both = t.byte(group)
        scale = t.splat(t.times(d, t.number(t.scalar("and", both, 15))))
        minimum = t.splat(t.negative(t.times(least, t.number(t.scalar("lshr", both, 4)))))
        byte = t.bytes(16 + 32 * (group // 8) + 16 * (group % 2))
        yield t.affine(scale, t.unsigned(t.bits(byte, 2 * (group % 8 // 2))), minimum)


def _q3_k(t: BlockText) -> Iterator[str]:
    d = t.half(108)
    for group in range(16):
        low = t.byte(96 + group % 8)
        low = t.scalar("lshr", low, 4) if group > 7 else t.scalar("and", low, 15)
        high = t.scalar("and", t.scalar("lshr", t.byte(104 + group % 4), 2 * (group // 4)), 3)
        scale = t.scalar("sub", t.scalar("or", low, t.scalar("shl", high, 4)), 32)
        quarter = group % 8 // 2
        two = t.bits(t.bytes(32 + 32 * (group // 8) + 16 * (group % 2)), 2 * quarter)
        third = t.bits(t.bytes(16 * (group % 2)), 4 * (group // 8) + quarter, 1)
        number = t.on_bytes("sub", t.on_bytes("or", two, t.on_bytes("shl", third, 2)), 4)
        yield t.scaled(t.splat(t.times(d, t.number(scale))), t.signed(number))


def _iq4_xs(t: BlockText) -> Iterator[str]:
    d, shared = t.half(0), t.name(f"zext i16 {t.load('i16', 2)} to i32")
    for group in range(8):
        low = t.scalar("and", t.scalar("lshr", t.byte(4 + group // 2), 4 * (group % 2)), 15)
        high = t.scalar("shl", t.scalar("and", t.scalar("lshr", shared, 2 * group), 3), 4)
        scale = t.splat(t.times(d, t.number(t.scalar("sub", t.scalar("or", low, high), 32))))
        packed = t.bytes(8 + 16 * group)
        for part in (t.low(packed), t.high(packed)):
            yield t.scaled(scale, t.table("iq4", part))


# ---------------------------------------------------------------- three values, and two
def _tq2_0(t: BlockText) -> Iterator[str]:
    d = t.halves(64)
    for start in (0, 32):
        packed = [t.bytes(start), t.bytes(start + LANES)]
        for plane in range(4):
            for part in packed:
                yield t.scaled(d, t.signed(t.on_bytes("sub", t.bits(part, 2 * plane), 1)))


def _tq1_0(t: BlockText) -> Iterator[str]:
    """Five digits of base 3 in a byte, the first one in the highest place: 3**n times it, and its upper part of 3."""
    d = t.halves(52)

    def digit(packed: str, powers: str) -> str:
        kind = f"<{LANES} x i16>"
        moved = t.name(f"zext {_BYTES} {t.on_bytes('mul', packed, powers)} to {kind}")
        tripled = t.name(f"mul {kind} {moved}, {_constant('i16', 3)}")
        upper = t.name(f"lshr {kind} {tripled}, {_constant('i16', 8)}")
        return t.scaled(d, t.signed(t.on_bytes("sub", t.name(f"trunc {kind} {upper} to {_BYTES}"), 1)))

    for group in ((0, LANES), (2 * LANES,)):
        packed = [t.bytes(start) for start in group]
        for place in range(5):
            yield from (digit(part, _constant("i8", 3**place)) for part in packed)
    four = t.name(f"bitcast i32 {t.load('i32', 48)} to <4 x i8>")
    mask = ", ".join(f"i32 {lane % 4}" for lane in range(LANES))
    spread = t.name(f"shufflevector <4 x i8> {four}, <4 x i8> poison, <{LANES} x i32> <{mask}>")
    yield digit(spread, f"<{', '.join(f'i8 {3 ** (lane // 4)}' for lane in range(LANES))}>")


def _q1_0(t: BlockText) -> Iterator[str]:
    d = t.halves(0)
    for start in range(2, 18, 2):
        yield t.scaled(d, t.signed(t.on_bytes("sub", t.on_bytes("shl", t.flags(start), 1), 1)))


def _gguf_nvfp4(t: BlockText) -> Iterator[str]:
    """Half of scales without a sign, as above, NaN's pattern for 0; high nibbles are eight numbers after low ones."""
    mask = ", ".join(f"i32 {n + LANES * k}" for k in (0, 1) for n in range(LANES // 2))
    eight = f"<{LANES // 2} x i8>"
    twice = ", ".join(f"i32 {lane % (LANES // 2)}" for lane in range(LANES))
    for group in range(4):
        code = t.load("i8", group)
        wide = t.name(f"zext i8 {t.name(f'and i8 {code}, 127')} to i16")
        bits = t.name(f"shl i16 {wide}, 7")
        number = t.name(f"fpext half {t.name(f'bitcast i16 {bits} to half')} to float")
        none = t.name(f"icmp eq i8 {code}, 127")
        scale = t.name(f"select i1 {none}, float 0.0, float {t.times(number, '128.0')}")
        packed = t.load(eight, 4 + 8 * group)
        spread = t.name(f"shufflevector {eight} {packed}, {eight} poison, <{LANES} x i32> <{twice}>")
        both = t.name(f"shufflevector {_BYTES} {t.low(spread)}, {_BYTES} {t.high(spread)}, <{LANES} x i32> <{mask}>")
        yield t.scaled(t.splat(scale), t.table("e2m1", both))


# ---------------------------------------------------------------- plain numbers
def _f16(t: BlockText) -> Iterator[str]:
    yield t.name(f"fpext <{LANES} x half> {t.load(f'<{LANES} x half>', 0)} to {_FLOATS}")


def _bf16(t: BlockText) -> Iterator[str]:
    wide = t.name(f"zext <{LANES} x i16> {t.load(f'<{LANES} x i16>', 0)} to {_WORDS}")
    bits = t.name(f"shl {_WORDS} {wide}, {_constant('i32', 16)}")
    yield t.name(f"bitcast {_WORDS} {bits} to {_FLOATS}")


def _fp8e5m2(t: BlockText) -> Iterator[str]:
    """The upper halves of float16."""
    kind = f"<{LANES} x i16>"
    high = t.name(f"shl {kind} {t.name(f'zext {_BYTES} {t.bytes(0)} to {kind}')}, {_constant('i16', 8)}")
    halves = t.name(f"bitcast {kind} {high} to <{LANES} x half>")
    yield t.name(f"fpext <{LANES} x half> {halves} to {_FLOATS}")


def _fp8e4m3(t: BlockText) -> Iterator[str]:
    yield t.scaled(_constant("float", "256.0"), _fp8e4m3_part(t, t.bytes(0)))


def _fp8e4m3_part(t: BlockText, codes: str) -> str:
    """Numbers divided by 256: float16 has their mantissa one bit lower, and a greater bias; all ones is NaN."""
    kind = f"<{LANES} x i16>"
    wide = t.name(f"zext {_BYTES} {codes} to {kind}")
    size = t.name(f"and {kind} {wide}, {_constant('i16', 127)}")
    sign = t.name(f"and {kind} {wide}, {_constant('i16', 128)}")
    lower = t.name(f"shl {kind} {size}, {_constant('i16', 7)}")
    above = t.name(f"shl {kind} {sign}, {_constant('i16', 8)}")
    bits = t.name(f"or {kind} {above}, {lower}")
    lost = t.name(f"icmp eq {kind} {size}, {_constant('i16', 127)}")
    bits = t.name(f"select <{LANES} x i1> {lost}, {kind} {_constant('i16', 0x7E00)}, {kind} {bits}")
    halves = t.name(f"bitcast {kind} {bits} to <{LANES} x half>")
    return t.name(f"fpext <{LANES} x half> {halves} to {_FLOATS}")


# ---------------------------------------------------------------- separate scales
def _bytes_rule(elements: int, zeros: bool) -> Rule:
    def rule(t: BlockText) -> Iterator[str]:
        number = t.single(t.scales)
        scale = t.splat(number)
        offset = t.splat(t.negative(t.times(number, t.single(t.zeros)))) if zeros else ""
        for start in range(0, elements, LANES):
            number = t.signed(t.bytes(start))
            yield t.affine(scale, number, offset) if zeros else t.scaled(scale, number)

    return rule


def _single_scale(t: BlockText) -> tuple[str, ...]:
    return (t.splat(t.single(t.scales)),)


def _e8m0_scale(t: BlockText) -> tuple[str, ...]:
    """Half of it, for the table has e2m1 twice as large; all ones is NaN."""
    e = t.name(f"zext i8 {t.load('i8', 0, t.scales)} to i32")
    lost, power = t.name(f"icmp eq i32 {e}, 255"), _power(t, e)
    return (t.splat(t.name(f"select i1 {lost}, float {literal('float', math.nan)}, float {power}")),)


def _e4m3_scales(t: BlockText) -> tuple[str, ...]:
    """Half of each scale, as above."""
    codes = (t.splat(t.load("i8", number, t.scales), "i8") for number in range(2))
    return tuple(t.scaled(_constant("float", "128.0"), _fp8e4m3_part(t, code)) for code in codes)


def _nibbles_rule(
    elements: int,
    table: str = "",
    high_first: bool = False,
    scales_of: Callable[[BlockText], tuple[str, ...]] = _single_scale,
) -> Rule:
    """Two numbers in a byte, neighbours: the codes less 8, or of a table. scales_of: one, or one for each sixteen."""

    def rule(t: BlockText) -> Iterator[str]:
        scales = cycle(scales_of(t))
        for start in range(0, elements // 2, LANES):
            packed = t.bytes(start)
            parts = (t.high(packed), t.low(packed)) if high_first else (t.low(packed), t.high(packed))
            for first in (0, LANES // 2):
                mask = ", ".join(f"i32 {n + LANES * k}" for n in range(first, first + LANES // 2) for k in (0, 1))
                code = t.name(f"shufflevector {_BYTES} {parts[0]}, {_BYTES} {parts[1]}, <{LANES} x i32> <{mask}>")
                number = t.table(table, code) if table else t.signed(t.on_bytes("sub", code, 8))
                yield t.scaled(next(scales), number)

    return rule


_PACKED: dict[str, PackedScheme] = {
    "gguf_q4_0": PackedScheme(32, 18, 0, 0, _q4_0),
    "gguf_q4_1": PackedScheme(32, 20, 0, 0, _q4_1),
    "gguf_q5_0": PackedScheme(32, 22, 0, 0, _q5_0),
    "gguf_q5_1": PackedScheme(32, 24, 0, 0, _q5_1),
    "gguf_q8_0": PackedScheme(32, 34, 0, 0, _q8_0),
    "gguf_q8_1": PackedScheme(32, 36, 0, 0, _q8_1),
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
    block = BlockText("%block", "%scale", "%zero")
    vectors = list(scheme.rule(block))
    fma, add = f"@llvm.fma.v{LANES}f32", f"@llvm.vector.reduce.fadd.v{LANES}f32"
    block.declarations |= {
        f"declare {_FLOATS} {fma}({_FLOATS}, {_FLOATS}, {_FLOATS})": None,
        f"declare float {add}(float, {_FLOATS})": None,
    }
    functions = [_dot_text(dot, rows, scheme, block, vectors) for rows, dot in DOTS.items()]
    functions.append(_decode_text(scheme, block, vectors))
    tables = [_table_text(table, values) for table, values in _TABLES.items()]
    return "\n".join([*block.declarations, *tables, *functions]) + "\n"


def _dot_text(name: str, rows: int, scheme: PackedScheme, block: BlockText, vectors: Sequence[str]) -> str:
    """Each vector is multiplied with `rows` rows of x. For one row there are several sums, so that none waits long."""
    turns = min(len(vectors), max(1, _ACCUMULATORS // rows))
    newest = {(row, k): f"%sum{row}.{k}" for row in range(rows) for k in range(turns)}
    sums = [
        f"{found} = phi {_FLOATS} [ zeroinitializer, %rows ], [ %last{found[4:]}, %blocks ]"
        for found in newest.values()
    ]
    body = list(block.lines)
    body += [f"%x{row} = getelementptr i8, ptr %here, i64 %xoffset{row}" for row in range(rows)]
    for number, vector in enumerate(vectors):
        k = number % turns
        for row in range(rows):
            mark = f"{row}.{number}"
            made = f"%last{row}.{k}" if number + turns >= len(vectors) else f"%s{mark}"
            body += [
                f"%p{mark} = getelementptr float, ptr %x{row}, i64 {LANES * number}",
                f"%v{mark} = load {_FLOATS}, ptr %p{mark}, align 4",
                f"{made} = call {_FLOATS} @llvm.fma.v{LANES}f32({_FLOATS} {vector}, {_FLOATS} %v{mark},"
                f" {_FLOATS} {newest[row, k]})",
            ]
            newest[row, k] = made
    after = []
    for row in range(rows):
        total = newest[row, 0]
        for k in range(1, turns):
            after.append(f"%t{row}.{k} = fadd {_FLOATS} {total}, {newest[row, k]}")
            total = f"%t{row}.{k}"
        after += [
            f"%all{row} = call reassoc float @llvm.vector.reduce.fadd.v{LANES}f32(float -0.0, {_FLOATS} {total})",
            f"%ooffset{row} = mul i64 %outbytes, {row}",
            f"%orow{row} = getelementptr i8, ptr %out, i64 %ooffset{row}",
            f"%o{row} = getelementptr float, ptr %orow{row}, i64 %row",
            f"store float %all{row}, ptr %o{row}, align 4",
        ]
    head = [f"%xoffset{row} = mul i64 %xbytes, {row}" for row in range(rows)]
    given = "ptr %out, ptr %x, i64 %outbytes, i64 %xbytes"
    return _loops(name, given, head, "%x", sums, body, after, scheme)


def _decode_text(scheme: PackedScheme, block: BlockText, vectors: Sequence[str]) -> str:
    body = list(block.lines)
    for number, vector in enumerate(vectors):
        body += [
            f"%p{number} = getelementptr float, ptr %here, i64 {LANES * number}",
            f"store {_FLOATS} {vector}, ptr %p{number}, align 4",
        ]
    head = ["%offset = mul i64 %row, %outbytes", "%start = getelementptr i8, ptr %out, i64 %offset"]
    return _loops(DECODE, "ptr %out, i64 %outbytes", head, "%start", [], body, [], scheme)


def _table_text(name: str, values: Sequence[float]) -> str:
    numbers = ", ".join(f"float {literal('float', value)}" for value in values)
    return f"@{name} = private constant [{len(values)} x float] [{numbers}], align 64"


def _loops(
    name: str, given: str, each: Sequence[str], start: str, sums: Sequence[str], body: Sequence[str],
    after: Sequence[str], scheme: PackedScheme,
) -> str:  # fmt: skip
    """A function with a loop over rows and one over their blocks.

    given: its first parameters. each, after: the code at the beginning and the end of a row. start: the initial
    %here, which advances by the float32 numbers of a block. sums: values that a block passes to the next.
    """
    pointers = {
        "block": ("elements", scheme.nbytes),
        "scale": ("scales", scheme.scales),
        "zero": ("zeros", scheme.zeros),
    }
    head = [
        f"define void @{name}({given}, ptr %elements, ptr %scales, ptr %zeros, i64 %nrows, i64 %nblocks,"
        f" i64 %elementsbytes, i64 %scalesbytes, i64 %zerosbytes) {ATTRIBUTES} {{",
        "entry:",
        "br label %rows",
        "rows:",
        "%row = phi i64 [ 0, %entry ], [ %nextrow, %done ]",
        *each,
    ]
    turn = ["br label %blocks", "blocks:", "%number = phi i64 [ 0, %rows ], [ %next, %blocks ]"]
    turn += [f"%here = phi ptr [ {start}, %rows ], [ %nexthere, %blocks ]"]
    ahead = [f"%nexthere = getelementptr i8, ptr %here, i64 {4 * scheme.elements}"]
    for pointer, (base, nbytes) in pointers.items():
        head += [
            f"%{base}offset = mul i64 %row, %{base}bytes",
            f"%first{pointer} = getelementptr i8, ptr %{base}, i64 %{base}offset",
        ]
        turn.append(f"%{pointer} = phi ptr [ %first{pointer}, %rows ], [ %next{pointer}, %blocks ]")
        ahead.append(f"%next{pointer} = getelementptr i8, ptr %{pointer}, i64 {nbytes}")
    tail = [
        "%next = add i64 %number, 1",
        "%more = icmp ult i64 %next, %nblocks",
        "br i1 %more, label %blocks, label %done",
        "done:",
        *after,
        "%nextrow = add i64 %row, 1",
        "%morerows = icmp ult i64 %nextrow, %nrows",
        "br i1 %morerows, label %rows, label %end",
        "end:",
        "ret void",
        "}",
    ]
    return "\n".join([*head, *turn, *sums, *body, *ahead, *tail])
