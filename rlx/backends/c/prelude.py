"""Helper functions in C: operations that operators and libm lack, by name, with the functions that they call.

A name is `rlx_`, the operation, and its dtypes: rlx_divide_int32, rlx_cast_float32_uint8. A unit's source contains the
helpers that it uses, see `helpers_of`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

import ml_dtypes
import numpy as np

from rlx.backends.c.dialect import CDialect
from rlx.backends.c.packed_sums import packed_sum_text, packed_unit
from rlx.backends.c.types import helper_name, literal, memory_type, register_type, suffix, unsigned
from rlx.backends.loops.printing import Printer
from rlx.backends.loops.straight_line import straight_line
from rlx.code.special import FUNCTIONS
from rlx.ir.formats import INTEGER_FORMATS
from rlx.ir.types import compute_dtype, dtype_kind, supported_dtypes
from rlx.storage import ALIGNMENT

__all__ = ["helpers_of"]

_DTYPES = {d.name: d for d in supported_dtypes}
_NAME = re.compile(rf"rlx_([a-z0-9_]+?)((?:_(?:{'|'.join(_DTYPES)}))*)")
_CALL = re.compile(r"\brlx_\w+(?=\()")


def helpers_of(names: Iterable[str]) -> list[str]:
    """The sources of helpers and of the helpers that they call, each once and before its first use."""
    found: dict[str, str] = {}

    def add(name: str) -> None:
        name = packed_unit(name)
        if name in found:
            return
        text = _text(name)
        for called in dict.fromkeys(_CALL.findall(text)):
            if not called.startswith(name):  # a helper's additional functions have its name as prefix
                add(called)
        found[name] = text

    for name in names:
        add(name)
    return list(found.values())


_SIMD = """
#ifdef RLX_OPENMP_SIMD /* the compiler was asked to read OpenMP's directives for vectors: -fopenmp-simd */
#define RLX_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define RLX_SIMD(...) RLX_PRAGMA(omp simd __VA_ARGS__)
#else
#define RLX_SIMD(...)
#endif
"""
# the bytes of an array of n bytes whose end is aligned as its start is
_ALIGNED = f"#define RLX_ALIGNED(n) (((int64_t)(n) + {ALIGNMENT - 1}) & -{ALIGNMENT})"
_MACROS = {"RLX_SIMD": _SIMD, "RLX_ALIGNED": _ALIGNED}


@cache
def _text(name: str) -> str:
    if name in _MACROS:
        return _MACROS[name].strip("\n")
    packed = packed_sum_text(name)
    if packed is not None:
        return packed
    match = _NAME.fullmatch(name)
    assert match, name
    operation, rest = match.groups()
    if operation in FUNCTIONS:
        return Printer(CDialect()).function(FUNCTIONS[operation], name)
    dtypes: list[np.dtype] = []
    while rest:
        found = max((d for d in _DTYPES if rest[1:] == d or rest.startswith(f"_{d}_")), key=len)
        dtypes.append(_DTYPES[found])
        rest = rest[1 + len(found) :]
    return _HELPERS[operation](*dtypes).strip("\n")


def _function(name: str, result: str, parameters: str, *body: str) -> str:
    lines = [f"static inline {result} {name}({parameters}) {{", *(f"    {line}" for line in body), "}"]
    return "\n".join(lines)


def _same(operation: str, arity: int, *body: str) -> Callable[[np.dtype], str]:
    """A helper with operands and a result of one dtype.

    In its body T is the type, U the unsigned type for computation, W the width in bits, F the suffix of libm's names,
    and N(0.5) a number.
    """

    def text(dtype: np.dtype) -> str:
        kind = register_type(dtype)
        parameters = ", ".join(f"{kind} {name}" for name in "xyz"[:arity])
        return _function(helper_name(operation, dtype), kind, parameters, *(_filled(line, dtype) for line in body))

    return text


def _filled(line: str, dtype: np.dtype) -> str:
    of_text = float if dtype_kind(dtype) == "f" else int
    line = re.sub(r"\bN\(([^()]*)\)", lambda m: literal(dtype, of_text(m[1])), line)
    line = re.sub(r"\bT\b", register_type(dtype), line)
    line = re.sub(r"\bU\b", unsigned(dtype), line)
    line = re.sub(r"\bW\b", str(8 * dtype.itemsize), line)
    return re.sub(r"F\(", f"{suffix(dtype)}(", line) if dtype.kind == "f" else line


# ------------------------------------------------------------------ integers
def _divide(dtype: np.dtype) -> str:
    if dtype.kind == "u":
        return _same("divide", 2, "return y == 0 ? (T)~(U)0 : (T)(x / y);")(dtype)
    # the least number cannot be negated: compute in unsigned numbers
    return _same("divide", 2, "return y == 0 ? N(-1) : y == N(-1) ? (T)(0 - (U)x) : (T)(x / y);")(dtype)


def _remainder(dtype: np.dtype) -> str:
    trivial = "y == 0" if dtype.kind == "u" else "y == 0 || y == N(-1)"
    return _same("remainder", 2, f"return {trivial} ? 0 : (T)(x % y);")(dtype)


def _sign(dtype: np.dtype) -> str:
    if dtype.kind == "f":
        return _same("sign", 1, "return x == N(0) || x != x ? x : copysignF(N(1), x);")(dtype)
    return _same("sign", 1, "return x > 0;" if dtype.kind == "u" else "return (T)((x > 0) - (x < 0));")(dtype)


def _bits(dtype: np.dtype) -> str:
    """The unsigned type of the same width."""
    return f"uint{8 * dtype.itemsize}_t"


def _shift(direction: str) -> Callable[[np.dtype], str]:
    def text(dtype: np.dtype) -> str:
        return _same(direction, 2, *(line.replace("B(", f"({_bits(dtype)})(") for line in _SHIFTS[direction]))(dtype)

    return text


# B(x): the bits of x as an unsigned number of the same width
_SHIFTS = {
    "shift_left": ["return B(y) < W ? (T)((U)x << B(y)) : 0;"],
    "shift_right_logical": ["return B(y) < W ? (T)(B(x) >> B(y)) : 0;"],
    # avoid shifts of negative numbers: shift the complement, and complement the result
    "shift_right_arithmetic": [
        "const int steps = B(y) < W ? (int)B(y) : W - 1;",
        "return (T)(B(x) >> (W - 1) != 0 ? ~((U)B(~B(x)) >> steps) : (U)B(x) >> steps);",
    ],
}


def _population_count(dtype: np.dtype) -> str:
    wide = dtype.itemsize == 8
    kind = "uint64_t" if wide else "uint32_t"
    ones = (1 << (64 if wide else 32)) - 1
    masks = [literal(np.dtype(kind.removesuffix("_t")), ones // part) for part in (3, 5, 17, 255)]
    return _same(
        "population_count", 1,
        f"{kind} n = ({_bits(dtype)})x;",
        f"n -= n >> 1 & {masks[0]};",
        f"n = (n & {masks[1]}) + (n >> 2 & {masks[1]});",
        f"n = (n + (n >> 4)) & {masks[2]};",
        f"return (T)(n * {masks[3]} >> {56 if wide else 24});",
    )(dtype)  # fmt: skip


def _count_leading_zeros(dtype: np.dtype) -> str:
    width, kind = 8 * dtype.itemsize, "uint64_t" if dtype.itemsize == 8 else "uint32_t"
    steps = [f"n |= n >> {s};" for s in (1, 2, 4, 8, 16, 32) if s < width]
    count = helper_name("population_count", np.dtype(kind.removesuffix("_t")))
    first, last = f"{kind} n = ({_bits(dtype)})x;", f"return (T)(W - {count}(n));"
    return _same("count_leading_zeros", 1, first, *steps, last)(dtype)


def _less_than(dtype: np.dtype) -> str:
    """A comparison without compiler warnings if one side is always 0."""
    kind = register_type(dtype)
    return _function(helper_name("less_than", dtype), "bool", f"{kind} x, {kind} y", "return x < y;")


# ------------------------------------------------------------------ reals
def _extremum(name: str, symbol: str) -> Callable[[np.dtype], str]:
    def text(dtype: np.dtype) -> str:
        nan = " || x != x" if dtype.kind == "f" else ""
        return _same(name, 2, f"return x {symbol} y{nan} ? x : y;")(dtype)

    return text


# ------------------------------------------------------------------ bits and narrow numbers
def _reinterpret(source: np.dtype, target: np.dtype) -> str:
    result = register_type(target)
    return _function(
        helper_name("bits", source, target), result, f"{register_type(source)} x",
        f"union {{ {register_type(source)} given; {result} taken; }} bits;", "bits.given = x;", "return bits.taken;",
    )  # fmt: skip


def _decode(dtype: np.dtype) -> str:
    name, code = helper_name("decode", dtype), memory_type(dtype)
    if dtype in INTEGER_FORMATS:
        form = INTEGER_FORMATS[dtype]
        mask, sign = (1 << form.bits) - 1, 1 << (form.bits - 1)
        value = f"((x & {mask}) ^ {sign}) - {sign}" if form.signed else f"x & {mask}"
        return _function(name, register_type(dtype), f"{code} x", f"return ({register_type(dtype)})({value});")
    return _conversion(name)


def _encode(dtype: np.dtype) -> str:
    name, code = helper_name("encode", dtype), memory_type(dtype)
    if dtype in INTEGER_FORMATS:
        mask = (1 << INTEGER_FORMATS[dtype].bits) - 1
        return _function(name, code, f"{register_type(dtype)} x", f"return ({code})(x & {mask});")
    return _conversion(name)


def _conversion(name: str) -> str:
    return Printer(CDialect()).function(straight_line(name.removeprefix("rlx_")), name)


def _cast(source: np.dtype, target: np.dtype) -> str:
    """Convert a float to an integer: truncated and saturated, NaN as 0.

    Numbers between -1 and 1 are an explicit 0: GCC 12 computes (float)(int)x as trunc(x), which is -0 for x = -0.5.
    """
    info, kind = ml_dtypes.iinfo(target), register_type(target)
    low, high = literal(source, float(int(info.min))), literal(source, float(int(info.max)))
    wide, magnitude = compute_dtype(target), "fabs" if register_type(source) == "double" else "fabsf"
    least, largest = literal(wide, int(info.min)), literal(wide, int(info.max))
    return _function(
        helper_name("cast", source, target), kind, f"{register_type(source)} x",
        f"return !({magnitude}(x) >= 1) ? 0 : x <= {low} ? {least} : x >= {high} ? {largest} : ({kind})x;",
    )  # fmt: skip


# ------------------------------------------------------------------ matrix products
def _product(dtype: np.dtype) -> str:
    """Tiles of out stay in registers during the loop over a panel of rhs, which is packed on the stack."""
    kind = register_type(dtype)
    fma = f"fma{suffix(dtype)}"
    columns = 128 // dtype.itemsize
    name = helper_name("product", dtype)
    return f"""
#ifdef __AVX512F__
enum {{ {name}_rows = 6, {name}_columns = {columns}, {name}_depth = 128 }};
#else
enum {{ {name}_rows = 4, {name}_columns = {columns // 2}, {name}_depth = 128 }};
#endif
#ifdef FP_FAST_{fma.upper()}
#define {name}_fma(x, y, z) {fma}(x, y, z)
#else
#define {name}_fma(x, y, z) ((x) * (y) + (z))
#endif

/* out[m, n] (+)= sum of x[m, k] * y[k, n]; x and y have a stride for each of their axes */
static void {name}(
    int64_t rows, int64_t columns, int64_t depth, const {kind} *x, int64_t x_row, int64_t x_depth, const {kind} *y,
    int64_t y_depth, int64_t y_column, {kind} *out, int64_t out_row, bool accumulate) {{
    enum {{ R = {name}_rows, C = {name}_columns, K = {name}_depth }};
    {kind} panel[K][C], sums[R][C];
    const {kind} *at[R];
    for (int64_t column = 0; column < columns; column += C)
        for (int64_t first = 0; first < depth; first += K) {{
            const int64_t width = columns - column < C ? columns - column : C;
            const int64_t steps = depth - first < K ? depth - first : K;
            const bool add = accumulate || first > 0;
            for (int64_t k = 0; k < steps; ++k)
                for (int64_t c = 0; c < C; ++c)
                    panel[k][c] = c < width ? y[(first + k) * y_depth + (column + c) * y_column] : 0;
            for (int64_t row = 0; row < rows; row += R) {{
                const int64_t height = rows - row < R ? rows - row : R;
                for (int64_t r = 0; r < R; ++r) {{
                    at[r] = x + (row + (r < height ? r : 0)) * x_row + first * x_depth;
                    for (int64_t c = 0; c < C; ++c)
                        sums[r][c] = add && r < height && c < width ? out[(row + r) * out_row + column + c] : 0;
                }}
                for (int64_t k = 0; k < steps; ++k)
                    for (int c = 0; c < C; ++c)
                        for (int r = 0; r < R; ++r)
                            sums[r][c] = {name}_fma(at[r][k * x_depth], panel[k][c], sums[r][c]);
                for (int64_t r = 0; r < height; ++r)
                    for (int64_t c = 0; c < width; ++c) out[(row + r) * out_row + column + c] = sums[r][c];
            }}
        }}
}}
"""


def _of_sizes(operation: str, result: str) -> str:
    return _function(f"rlx_{operation}", "int64_t", "int64_t x, int64_t y", f"return {result};")


_HELPERS: dict[str, Callable[..., str]] = {
    "divide": _divide,
    "remainder": _remainder,
    "absolute": _same("absolute", 1, "return x < 0 ? (T)(0 - (U)x) : x;"),
    "sign": _sign,
    "maximum": _extremum("maximum", ">"),
    "minimum": _extremum("minimum", "<"),
    "less_than": _less_than,
    **{name: _shift(name) for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic")},
    "population_count": _population_count,
    "count_leading_zeros": _count_leading_zeros,
    "lgamma": _same("lgamma", 1, "return lgamma(x);"),
    "logistic": _same(
        "logistic", 1, "const T small = expF(-fabsF(x));", "return (x >= 0 ? N(1) : small) / (N(1) + small);"
    ),
    "bits": _reinterpret,
    "decode": _decode,
    "encode": _encode,
    "round_to_odd": lambda dtype: _conversion(helper_name("round_to_odd", dtype)),
    "cast": _cast,
    # the bits of a float rounded to a mantissa of ten bits, ties to even
    "round_to_tf32": _same(
        "round_to_tf32", 1, "return (x & 0x7F800000u) == 0x7F800000u ? x : (x + 0xFFFu + (x >> 13 & 1u)) & 0xFFFFE000u;"
    ),
    "product": _product,
    # of sizes, rounded down as Python does
    "floor_divide": lambda: _of_sizes("floor_divide", "x / y - (x % y < 0)"),
    "modulo": lambda: _of_sizes("modulo", "(x % y + y) % y"),
}
