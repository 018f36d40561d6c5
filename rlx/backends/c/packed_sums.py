"""Convolutions of int8 codes with packed weights, in C: with SMLAD where the processor has it, or with loops.

The numbers under a kernel become a column of int16 without the zero point, which up to four rows of weights share. With
SMLAD the column is in the order 0, 2, 1, 3, in which SXTB16 takes bytes apart, so that weights stay packed. Weights of
less than eight bits are read in the high bits of a byte, and sums are shifted back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.ir.kernels import Library
from rlx.ir.packed_sums import is_depthwise, padded_row

__all__ = ["packed_sum_call", "packed_sum_text", "packed_unit"]

BASE = "rlx_packed_base"  # a helper of several functions, which begin with its name

_APART = """
#ifndef RLX_APART
/* profiles count the instructions of these functions */
#ifdef __GNUC__
#define RLX_APART static __attribute__((noinline))
#else
#define RLX_APART static
#endif
/* right shifts of negative numbers keep the sign */
typedef char rlx_arithmetic_shift[(-1 >> 1) == -1 ? 1 : -1];
#endif
"""

_BASE = """
#if defined(__ARM_FEATURE_DSP) && !defined(RLX_PORTABLE)
#define RLX_PAIRS 1
/* volatile: loads stay next to their use, or gcc moves them ahead and runs out of registers */
static inline uint32_t rlx_packed_base_even(uint32_t x) {
    uint32_t y;
    __asm__ volatile("sxtb16 %0, %1" : "=r"(y) : "r"(x));
    return y;
}
static inline uint32_t rlx_packed_base_odd(uint32_t x) {
    uint32_t y;
    __asm__ volatile("sxtb16 %0, %1, ror #8" : "=r"(y) : "r"(x));
    return y;
}
static inline uint32_t rlx_packed_base_less(uint32_t x, uint32_t y) {
    uint32_t z;
    __asm__("ssub16 %0, %1, %2" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
static inline int32_t rlx_packed_base_multiply(uint32_t x, uint32_t y, int32_t sum) {
    __asm__ volatile("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(x), "r"(y));
    return sum;
}
#define RLX_NEXT_PAIRS(x, a, b) \\
    __asm__ volatile("ldrd %0, %1, [%2], #8" : "=&r"(a), "=&r"(b), "+r"(x) : : "memory")
#define RLX_WORD(v, w, offset) __asm__ volatile("ldr %0, [%1, %2]" : "=r"(v) : "r"(w), "I"(offset) : "memory")
#define RLX_NEXT_WORD(v, w) __asm__ volatile("ldr %0, [%1], #4" : "=r"(v), "+r"(w) : : "memory")
#define RLX_FIELD(v, mask, place) __asm__ volatile("and %0, %1, %0, lsl %2" : "+r"(v) : "r"(mask), "I"(place))
#define RLX_PUT_PAIRS(x, a, b) __asm__ volatile("strd %1, %2, [%0], #8" : "+r"(x) : "r"(a), "r"(b) : "memory")
#endif
/* a column of int16: codes less their zero point, then zeros; length is a multiple of 4 */
RLX_APART void rlx_packed_base_widen(
    const int8_t *codes, int32_t count, int32_t zero, int16_t *column, int32_t length) {
    int32_t k = 0;
#ifdef RLX_PAIRS
    const uint32_t zeros = ((uint32_t)zero & 0xFFFFu) * 0x10001u;
    int16_t *pairs = column;
    const int8_t *from = codes, *const end = codes + (count & ~3);
    while (from != end) {
        uint32_t word;
        RLX_NEXT_WORD(word, from);
        RLX_PUT_PAIRS(
            pairs, rlx_packed_base_less(rlx_packed_base_even(word), zeros),
            rlx_packed_base_less(rlx_packed_base_odd(word), zeros));
        if (from == end) break;
        RLX_NEXT_WORD(word, from);
        RLX_PUT_PAIRS(
            pairs, rlx_packed_base_less(rlx_packed_base_even(word), zeros),
            rlx_packed_base_less(rlx_packed_base_odd(word), zeros));
    }
    k = count & ~3;
    for (; k < length; ++k)
        column[(k & ~3) + ((k & 1) << 1) + ((k >> 1) & 1)] = k < count ? (int16_t)(codes[k] - zero) : 0;
#else
    for (; k < count; ++k) column[k] = (int16_t)(codes[k] - zero);
    for (; k < length; ++k) column[k] = 0;
#endif
}
/* the codes under a part of the kernel, or zeros outside of the image: in the column if `direct`, else in the patch */
static void rlx_packed_base_put(
    const int8_t *codes, int32_t count, int32_t zero, int direct, int16_t **column, int8_t **patch) {
    if (direct) {
        if (codes)
            rlx_packed_base_widen(codes, count, zero, *column, count);
        else
            memset(*column, 0, (size_t)count * sizeof **column);
        *column += count;
    } else {
        if (codes)
            for (int32_t n = 0; n < count; ++n) (*patch)[n] = codes[n];
        else
            for (int32_t n = 0; n < count; ++n) (*patch)[n] = (int8_t)zero;
        *patch += count;
    }
}
"""

_Q31 = """
static inline int32_t rlx_packed_q31(int32_t sum, int32_t multiplier, int32_t shift) {
    int32_t high;
    if (shift <= 0) {
        const int32_t limit = INT32_MAX >> -shift;
        sum = (int32_t)((uint32_t)(sum > limit ? limit : sum < -limit ? -limit : sum) << -shift);
        return (int32_t)(((int64_t)sum * multiplier + (INT64_C(1) << 30)) >> 31);
    }
    high = (int32_t)(((int64_t)sum * multiplier + (INT64_C(1) << 30)) >> 31);
    return (((high + (high >> 31)) >> (shift - 1)) + 1) >> 1; /* halves away from zero */
}
"""

_FLOAT = """
static inline int32_t rlx_packed_float(int32_t sum, float multiplier, int32_t shift) {
    float product = (float)sum * multiplier, whole;
    (void)shift;
    product = product > 1024 ? 1024 : product < -1024 ? -1024 : product;
    whole = (float)(int32_t)product;
    return (int32_t)whole + (product - whole >= 0.5f) - (product - whole <= -0.5f);
}
"""

_CODES = """
/* codes of sums; low and high are less the zero point */
RLX_APART void rlx_packed_codes_ROUNDING(
    const int32_t *sums, int32_t places, int32_t count, const int32_t *bias, const NUMBER *multiplier,
    const int32_t *shift, int32_t zero, int32_t low, int32_t high, int8_t *out) {
    for (int32_t c = 0; c < count; ++c) {
        const int32_t code = rlx_packed_ROUNDING(bias[c] + (sums[c] >> places), multiplier[c], shift[c]);
        out[c] = (int8_t)((code < low ? low : code > high ? high : code) + zero);
    }
}
"""

_PARAMETERS = """const int8_t *x, const uint8_t *weights, const int32_t *bias, const NUMBER *multiplier,
    const int32_t *shift, COLUMNint8_t *out, int32_t images, int32_t height, int32_t width, int32_t channels,
    int32_t rows, int32_t columns, int32_t outputs, int32_t kernel_rows, int32_t kernel_columns, int32_t stride_rows,
    int32_t stride_columns, int32_t top, int32_t left, int32_t dilation_rows, int32_t dilation_columns,
    GROUPSint32_t zero, int32_t out_zero, int32_t low, int32_t high"""

_CONVOLUTION = """
RLX_APART void rlx_packed_sum_BITS_ROUNDING(
    PARAMETERS) {
    const int32_t own = channels / groups, length = kernel_rows * kernel_columns * own, per_group = outputs / groups;
    const int32_t padded = (length + STEP - 1) / STEP * STEP;
    const int direct = own % 4 == 0, whole = groups == 1 && dilation_columns == 1;
    int8_t *const patch = (int8_t *)(column + padded);
    if (direct) memset(column + length, 0, (size_t)(padded - length) * sizeof *column);
    for (int32_t position = 0; position < images * rows * columns; ++position) {
        const int32_t image = position / (rows * columns), rest = position - image * rows * columns;
        const int32_t row = rest / columns * stride_rows - top, at = rest % columns * stride_columns - left;
        const int8_t *source = x + image * height * width * channels;
        const uint8_t *packed = weights;
        for (int32_t group = 0; group < groups; ++group) {
            int16_t *into = column;
            int8_t *to = patch;
            for (int32_t i = 0; i < kernel_rows; ++i) {
                const int32_t y = row + i * dilation_rows;
                const int8_t *line = source + y * width * channels + group * own;
                const int outside = y < 0 || y >= height;
                if (outside || (whole && at >= 0 && at + kernel_columns <= width)) {
                    rlx_packed_base_put(
                        outside ? NULL : line + at * channels, kernel_columns * own, zero, direct, &into, &to);
                } else {
                    for (int32_t j = 0; j < kernel_columns; ++j) {
                        const int32_t z = at + j * dilation_columns;
                        rlx_packed_base_put(
                            z < 0 || z >= width ? NULL : line + z * channels, own, zero, direct, &into, &to);
                    }
                }
            }
            if (!direct) rlx_packed_base_widen(patch, length, zero, column, padded);
            for (int32_t first = 0; first < per_group; first += 16) {
                const int32_t o = group * per_group + first, rest = per_group - first, count = rest < 16 ? rest : 16;
                int32_t sums[16], c = 0;
                for (; c + 4 <= count; c += 4, packed += 4 * padded * BITS / 8)
                    rlx_packed_dot_BITS_4(column, packed, padded, sums + c);
                if (c + 2 <= count) {
                    rlx_packed_dot_BITS_2(column, packed, padded, sums + c);
                    packed += 2 * padded * BITS / 8;
                    c += 2;
                }
                if (c < count) {
                    rlx_packed_dot_BITS_1(column, packed, padded, sums + c);
                    packed += padded * BITS / 8;
                }
                rlx_packed_codes_ROUNDING(
                    sums, 8 - BITS, count, bias + o, multiplier + o, shift + o, out_zero, low - out_zero,
                    high - out_zero, out);
                out += count;
            }
        }
    }
}
"""

_DEPTHWISE = """
RLX_APART void rlx_packed_depthwise_ROUNDING(
    PARAMETERS) {
    const int32_t times = outputs / channels;
    for (int32_t position = 0; position < images * rows * columns; ++position) {
        const int32_t image = position / (rows * columns), rest = position - image * rows * columns;
        const int32_t row = rest / columns * stride_rows - top, at = rest % columns * stride_columns - left;
        const int8_t *source = x + image * height * width * channels;
        for (int32_t channel = 0, o = 0; channel < channels; ++channel)
            for (int32_t t = 0; t < times; ++t, ++o) {
                const int8_t *weight = (const int8_t *)weights + o;
                int32_t sum = 0;
                for (int32_t i = 0; i < kernel_rows; ++i) {
                    const int32_t y = row + i * dilation_rows;
                    for (int32_t j = 0; j < kernel_columns; ++j, weight += outputs) {
                        const int32_t z = at + j * dilation_columns;
                        if (y >= 0 && y < height && z >= 0 && z < width)
                            sum += (source[(y * width + z) * channels + channel] - zero) * *weight;
                    }
                }
                rlx_packed_codes_ROUNDING(
                    &sum, 0, 1, bias + o, multiplier + o, shift + o, out_zero, low - out_zero, high - out_zero, out++);
            }
    }
}
"""


def packed_sum_call(kernel: Library, operands: Sequence[str]) -> tuple[str, list[str]]:
    """The helper and the arguments of its call. The column precedes the result; a depthwise convolution has none."""
    told = kernel.attributes
    images, height, width, channels = kernel.inputs[0].shape
    _, rows, columns, features = kernel.outputs[0].shape
    rounding = "float" if kernel.inputs[3].buffer.dtype == np.float32 else "q31"
    (top, _), (left, _) = told["padding"]
    sizes = [
        images, height, width, channels, rows, columns, features, *told["kernel"], *told["strides"], top, left,
        *told["dilation"],
    ]  # fmt: skip
    depthwise = is_depthwise(told["groups"], channels)
    ends = [told[name] for name in ("operand_zero", "zero_point", "low", "high")]
    numbers = [*sizes, *([] if depthwise else [told["groups"]]), *ends]
    helper = f"rlx_packed_depthwise_{rounding}" if depthwise else f"rlx_packed_sum_{told['bits']}_{rounding}"
    passed = operands[len(kernel.inputs) :]  # other inputs than the first five are constants of the block's meaning
    return helper, [*operands[:5], *passed, *map(str, numbers)]


def packed_sum_text(name: str) -> str | None:
    """The source of a helper, or None if it is none of these."""
    if name == BASE:
        return (_APART + _BASE.lstrip("\n")).strip("\n")
    if name.startswith("rlx_packed_dot_"):
        bits, rows = map(int, name.split("_")[-2:])
        return _dot(bits, rows)
    if not name.startswith("rlx_packed_"):
        return None
    *_, rounding = name.split("_")
    fixed = {"rlx_packed_q31": _Q31, "rlx_packed_float": _FLOAT}
    if name in fixed:
        return (_APART + fixed[name].lstrip("\n")).strip("\n")
    if name.startswith("rlx_packed_codes_"):
        return _filled(_CODES, rounding)
    if name.startswith("rlx_packed_depthwise_"):
        taken = _PARAMETERS.replace("COLUMN", "").replace("GROUPS", "")
        return _filled(_DEPTHWISE.replace("PARAMETERS", taken), rounding)
    if name.startswith("rlx_packed_sum_"):
        bits = int(name.split("_")[-2])
        taken = _PARAMETERS.replace("COLUMN", "int16_t *column, ").replace("GROUPS", "int32_t groups, ")
        text = _CONVOLUTION.replace("PARAMETERS", taken).replace("BITS", str(bits))
        return _filled(text.replace("STEP", str(padded_row(1, bits))), rounding)
    return None


def _filled(text: str, rounding: str) -> str:
    number = "float" if rounding == "float" else "int32_t"
    return text.replace("ROUNDING", rounding).replace("NUMBER", number).strip("\n")


def _dot(bits: int, rows: int) -> str:
    """Sums of products of a column and some rows, times 2**(8 - bits)."""
    fields = 8 // bits
    words = 2 if fields == 1 else 1  # of a row, in a step
    numbers = 4 * fields
    high = 256 - 2 ** (8 - bits)
    places = [8 - bits * (field + 1) for field in range(fields)]
    pairs, loops = [], []
    for word in range(words):
        for place in places:
            pairs.append("RLX_NEXT_PAIRS(x, a, b);")
            for c in range(rows):
                last = place == places[-1]
                pairs += [
                    "RLX_NEXT_WORD(v, w);" if last else f"RLX_WORD(v, w, {4 * (word * rows + c)});",
                    *([] if fields == 1 else [f"RLX_FIELD(v, mask, {place});"]),
                    f"s{c} = rlx_packed_base_multiply(a, rlx_packed_base_even(v), s{c});",
                    f"s{c} = rlx_packed_base_multiply(b, rlx_packed_base_odd(v), s{c});",
                ]
    for c in range(rows):
        for field, place in enumerate(places):
            code = f"(int8_t)w[{4 * c} + j]" if fields == 1 else f"(int8_t)(w[{4 * c} + j] << {place} & 0x{high:02X})"
            loops.append(f"s{c} += x[{4 * field} + j] * {code};")
    lines = [
        f"RLX_APART void rlx_packed_dot_{bits}_{rows}(",
        "    const int16_t *x, const uint8_t *w, int32_t length, int32_t *sums) {",
        "    int32_t " + ", ".join(f"s{c} = 0" for c in range(rows)) + ";",
        "#ifdef RLX_PAIRS",
        f"    const uint8_t *end = w + length / {numbers} * {4 * rows};",
        *([] if fields == 1 else [f"    const uint32_t mask = 0x{high * 0x01010101:08X}u;"]),
        "    while (w != end) {",
        "        uint32_t a, b, v;",
        *(f"        {line}" for line in pairs),
        "    }",
        "#else",
        f"    for (; length > 0; length -= {numbers}, x += {numbers}, w += {4 * rows})",
        "        for (int32_t j = 0; j < 4; ++j) {",
        *(f"            {line}" for line in loops),
        "        }",
        "#endif",
        *(f"    sums[{c}] = s{c};" for c in range(rows)),
        "}",
    ]
    return "\n".join(lines)


def packed_unit(name: str) -> str:
    """The helper that defines a function."""
    return BASE if name.startswith(BASE) else name
