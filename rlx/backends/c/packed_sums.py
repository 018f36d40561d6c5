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

_BASE = """
/* profiles count the instructions of these functions */
#ifdef __GNUC__
#define RLX_APART static __attribute__((noinline))
#else
#define RLX_APART static
#endif
/* right shifts of negative numbers keep the sign */
typedef char rlx_arithmetic_shift[(-1 >> 1) == -1 ? 1 : -1];
#if defined(__ARM_FEATURE_DSP) && !defined(RLX_PORTABLE)
#define RLX_PAIRS 1
static inline uint32_t rlx_packed_base_even(uint32_t x) {
    uint32_t y;
    __asm__("sxtb16 %0, %1" : "=r"(y) : "r"(x));
    return y;
}
static inline uint32_t rlx_packed_base_odd(uint32_t x) {
    uint32_t y;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(y) : "r"(x));
    return y;
}
static inline uint32_t rlx_packed_base_less(uint32_t x, uint32_t y) {
    uint32_t z;
    __asm__("ssub16 %0, %1, %2" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
static inline int32_t rlx_packed_base_multiply(uint32_t x, uint32_t y, int32_t sum) {
    __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(x), "r"(y));
    return sum;
}
#endif
static inline uint32_t rlx_packed_base_word(const void *at) {
    uint32_t word;
    memcpy(&word, at, 4);
    return word;
}
/* a column of int16: codes less their zero point, then zeros; length is a multiple of 4 */
static void rlx_packed_base_widen(const int8_t *codes, int32_t count, int32_t zero, int16_t *column, int32_t length) {
    int32_t k = 0;
#ifdef RLX_PAIRS
    const uint32_t zeros = ((uint32_t)zero & 0xFFFFu) * 0x10001u;
    uint32_t *pairs = (uint32_t *)column;
    for (; k + 4 <= count; k += 4, pairs += 2) {
        const uint32_t word = rlx_packed_base_word(codes + k);
        pairs[0] = rlx_packed_base_less(rlx_packed_base_even(word), zeros);
        pairs[1] = rlx_packed_base_less(rlx_packed_base_odd(word), zeros);
    }
    for (; k < length; ++k) column[(k & ~3) + ((k & 1) << 1) + ((k >> 1) & 1)] = k < count ? (int16_t)(codes[k] - zero) : 0;
#else
    for (; k < count; ++k) column[k] = (int16_t)(codes[k] - zero);
    for (; k < length; ++k) column[k] = 0;
#endif
}
"""

_Q31 = """
static inline int32_t rlx_packed_q31(int32_t sum, int32_t multiplier, int32_t shift) {
    int32_t high, mask;
    if (shift < 0) {
        const int32_t limit = INT32_MAX >> -shift;
        sum = (int32_t)((uint32_t)(sum > limit ? limit : sum < -limit ? -limit : sum) << -shift);
        shift = 0;
    }
    high = (int32_t)(((int64_t)sum * multiplier + (INT64_C(1) << 30)) >> 31);
    mask = (int32_t)((UINT32_C(1) << shift) - 1u);
    return (high >> shift) + ((high & mask) > (mask >> 1) + (high < 0));
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

_LIMITED = """
static inline int8_t rlx_packed_limited_ROUNDING(
    int32_t sum, NUMBER multiplier, int32_t shift, int32_t zero, int32_t low, int32_t high) {
    int32_t code = rlx_packed_ROUNDING(sum, multiplier, shift);
    code = (code > 1024 ? 1024 : code < -1024 ? -1024 : code) + zero;
    return (int8_t)(code < low ? low : code > high ? high : code);
}
"""

_PARAMETERS = """const int8_t *x, const uint8_t *weights, const int32_t *bias, const NUMBER *multiplier, const int32_t *shift,
    COLUMNint8_t *out, int32_t images, int32_t height, int32_t width, int32_t channels, int32_t rows, int32_t columns,
    int32_t outputs, int32_t kernel_rows, int32_t kernel_columns, int32_t stride_rows, int32_t stride_columns,
    int32_t top, int32_t left, int32_t dilation_rows, int32_t dilation_columns, GROUPSint32_t zero, int32_t out_zero,
    int32_t low, int32_t high"""

_CONVOLUTION = """
RLX_APART void rlx_packed_sum_BITS_ROUNDING(
    PARAMETERS) {
    const int32_t own = channels / groups, length = kernel_rows * kernel_columns * own, per_group = outputs / groups;
    const int32_t padded = (length + STEP - 1) / STEP * STEP;
    const int plain = kernel_rows * kernel_columns == 1 && groups == 1 && top == 0 && left == 0;
    int8_t *patch = (int8_t *)(column + padded);
    for (int32_t position = 0; position < images * rows * columns; ++position) {
        const int32_t image = position / (rows * columns), rest = position - image * rows * columns;
        const int32_t row = rest / columns * stride_rows - top, at = rest % columns * stride_columns - left;
        const int8_t *source = x + image * height * width * channels;
        const uint8_t *packed = weights;
        for (int32_t group = 0; group < groups; ++group) {
            const int8_t *codes = source + (row * width + at) * channels;
            if (!plain) {
                int8_t *to = patch;
                codes = patch;
                for (int32_t i = 0; i < kernel_rows; ++i) {
                    const int32_t y = row + i * dilation_rows;
                    const int8_t *line = source + y * width * channels + group * own;
                    if (y < 0 || y >= height) {
                        memset(to, zero, (size_t)(kernel_columns * own));
                        to += kernel_columns * own;
                    } else if (groups == 1 && dilation_columns == 1 && at >= 0 && at + kernel_columns <= width) {
                        memcpy(to, line + at * channels, (size_t)(kernel_columns * own));
                        to += kernel_columns * own;
                    } else {
                        for (int32_t j = 0; j < kernel_columns; ++j, to += own) {
                            const int32_t z = at + j * dilation_columns;
                            if (z < 0 || z >= width)
                                memset(to, zero, (size_t)own);
                            else
                                memcpy(to, line + z * channels, (size_t)own);
                        }
                    }
                }
            }
            rlx_packed_base_widen(codes, length, zero, column, padded);
            for (int32_t first = 0, count; first < per_group; first += count) {
                const int32_t o = group * per_group + first, left_over = per_group - first;
                int32_t sums[4];
                count = left_over >= 4 ? 4 : left_over >= 2 ? 2 : 1;
                if (count == 4)
                    rlx_packed_dot_BITS_4(column, packed, padded, sums);
                else if (count == 2)
                    rlx_packed_dot_BITS_2(column, packed, padded, sums);
                else
                    rlx_packed_dot_BITS_1(column, packed, padded, sums);
                packed += count * padded * BITS / 8;
                for (int32_t c = 0; c < count; ++c)
                    *out++ = rlx_packed_limited_ROUNDING(
                        bias[o + c] + (sums[c] >> (8 - BITS)), multiplier[o + c], shift[o + c], out_zero, low, high);
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
                int32_t sum = bias[o];
                for (int32_t i = 0; i < kernel_rows; ++i) {
                    const int32_t y = row + i * dilation_rows;
                    for (int32_t j = 0; j < kernel_columns; ++j, weight += outputs) {
                        const int32_t z = at + j * dilation_columns;
                        if (y >= 0 && y < height && z >= 0 && z < width)
                            sum += (source[(y * width + z) * channels + channel] - zero) * *weight;
                    }
                }
                *out++ = rlx_packed_limited_ROUNDING(sum, multiplier[o], shift[o], out_zero, low, high);
            }
    }
}
"""


def packed_sum_call(kernel: Library, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[str, list[str]]:
    """The helper and the arguments of its call; the last input is the column, unless the convolution is depthwise."""
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
    column = inputs[len(kernel.inputs) :]  # other inputs are constants of the block's meaning
    return helper, [*inputs[:5], *column, *outputs, *map(str, numbers)]


def packed_sum_text(name: str) -> str | None:
    """The source of a helper, or None if it is none of these."""
    if name == BASE:
        return _BASE.strip("\n")
    if name.startswith("rlx_packed_dot_"):
        bits, rows = map(int, name.split("_")[-2:])
        return _dot(bits, rows)
    if not name.startswith("rlx_packed_"):
        return None
    *_, rounding = name.split("_")
    fixed = {"rlx_packed_q31": _Q31, "rlx_packed_float": _FLOAT}
    if name in fixed:
        return fixed[name].strip("\n")
    if name.startswith("rlx_packed_limited_"):
        return _filled(_LIMITED, rounding)
    if name.startswith("rlx_packed_depthwise_"):
        return _filled(_DEPTHWISE.replace("PARAMETERS", _PARAMETERS.replace("COLUMN", "").replace("GROUPS", "")), rounding)
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
    mask = f"0x{sum((256 - 2 ** (8 - bits)) << 8 * j for j in range(4)):08X}u"
    lines = [f"static inline void rlx_packed_dot_{bits}_{rows}(", "    const int16_t *x, const uint8_t *w, int32_t length, int32_t *sums) {"]
    lines += ["    int32_t " + ", ".join(f"s{c} = 0" for c in range(rows)) + ";", "#ifdef RLX_PAIRS"]
    lines += ["    const uint32_t *pairs = (const uint32_t *)x;", f"    for (; length > 0; length -= {4 * fields * words}) {{"]
    lines += ["        uint32_t " + ", ".join(f"w{c}" for c in range(rows)) + ";"]
    for word in range(words):
        lines += [f"        w{c} = rlx_packed_base_word(w + {4 * (word * rows + c)});" for c in range(rows)]
        for f in range(fields):
            pair = 2 * (word * fields + f)
            lines.append(f"        {{ const uint32_t a = pairs[{pair}], b = pairs[{pair + 1}];")
            for c in range(rows):
                up = 8 - bits * (f + 1)
                part = f"w{c}" if fields == 1 else f"(w{c} << {up} & {mask})" if up else f"(w{c} & {mask})"
                lines.append(f"        s{c} = rlx_packed_base_multiply(a, rlx_packed_base_even({part}), s{c});")
                lines.append(f"        s{c} = rlx_packed_base_multiply(b, rlx_packed_base_odd({part}), s{c}); ")
            lines.append("        }")
    lines += [f"        pairs += {2 * fields * words};", f"        w += {4 * rows * words};", "    }", "#else"]
    lines += [f"    for (; length > 0; length -= {4 * fields}, x += {4 * fields}, w += {4 * rows})", "        for (int32_t j = 0; j < 4; ++j) {"]
    for c in range(rows):
        for f in range(fields):
            up = 8 - bits * (f + 1)
            byte = f"w[{4 * c} + j]"
            code = f"(int8_t){byte}" if fields == 1 else f"(int8_t)({byte} << {up} & 0x{256 - 2 ** (8 - bits):02X})"
            lines.append(f"            s{c} += x[{4 * f} + j] * {code};")
    lines += ["        }", "#endif", *(f"    sums[{c}] = s{c};" for c in range(rows)), "}"]
    return "\n".join(line.rstrip() for line in lines)


def packed_unit(name: str) -> str:
    """The helper that defines a function."""
    return BASE if name.startswith(BASE) else name
