"""Helper functions in WGSL: operations that operators and built-in functions lack, and what those call."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from rlx.backends.c.types import helper_name
from rlx.backends.loops.printing import Printer
from rlx.backends.loops.straight_line import CONVERSIONS, WITHOUT_LIBRARY, straight_line
from rlx.backends.wgpu.types import literal, memory_bits, type_name, wrapped
from rlx.ir.formats import INTEGER_FORMATS
from rlx.ir.types import compute_dtype, dtype_kind, supported_dtypes

__all__ = ["Features", "helpers_of"]

_DTYPES = {d.name: d for d in supported_dtypes}
_NAME = re.compile(rf"rlx_([a-z0-9_]+?)((?:_(?:{'|'.join(_DTYPES)}))*)")
_CALL = re.compile(r"\brlx_\w+(?=\()")
_SUM = re.compile(r"let (v\d+): f(\d+) = (\S+ [-+] \S+);")
_PLAIN = {
    "rlx_bits": "fn rlx_bits(code: u32) -> u32 { return code; }",
    # Mesa 22.3 compares numbers that it sees being sign-extended wrongly with constants
    "rlx_wide": "fn rlx_wide(x: i32) -> i64 { return i64(x) | i64(launch[0].x >> 31u); }",
}
_KNOWN: dict[tuple[str, Features], str] = {}


@dataclass(frozen=True, slots=True)
class Features:
    """What a device has beyond WGSL.

    longs: 64-bit integers. doubles: float64. fused: whether its `fma` rounds once.
    """

    longs: bool = False
    doubles: bool = False
    fused: bool = False


def helpers_of(text: str, features: Features, printer: Printer) -> list[str]:
    """The helpers that a text calls, and those that they call, each once. printer: for trees."""
    found: dict[str, str] = {}

    def add(called: str) -> None:
        for name in dict.fromkeys(_CALL.findall(called)):
            if name not in found:
                key = (name, features)
                _KNOWN[key] = found[name] = _KNOWN.get(key) or _text(name, features, printer)
                add(found[name])

    add(text)
    return list(found.values())


def _text(name: str, features: Features, printer: Printer) -> str:
    if name in _PLAIN:
        return _PLAIN[name]
    match = _NAME.fullmatch(name)
    assert match, name
    operation, rest = match.groups()
    dtypes = [_DTYPES[d] for d in re.findall("|".join(sorted(_DTYPES, key=len, reverse=True)), rest)]
    own = name.removeprefix("rlx_")
    if operation in WITHOUT_LIBRARY or own in CONVERSIONS:
        return _kept_sums(printer.function(straight_line(own, features.doubles), name))
    return _HELPERS[operation](features, *dtypes)


def _kept_sums(text: str) -> str:
    """A function in which no sum becomes a part of another one: compilers may reorder them, and lose exact parts."""
    sums = {match[1]: match for match in _SUM.finditer(text)}
    terms = {name for match in sums.values() for name in re.findall(r"\bv\d+\b", match[3])}
    kept = {name: match for name, match in sums.items() if name in terms}
    return _SUM.sub(lambda m: m[0] if m[1] not in kept else m[0].replace(m[3], f"rlx_kept_float{m[2]}({m[3]})"), text)


def _kept(features: Features, dtype: np.dtype) -> str:
    """A float as it is, of which compilers know nothing: a launch has fewer than 2^31 groups."""
    word = "u32" if dtype.itemsize == 4 else "u64"
    body = f"bitcast<T>(bitcast<{word}>(x) | {word}(launch[0].x >> 31u))"
    return _same("kept", 1, f"return {body};")(features, dtype)


Helper = Callable[..., str]


def _same(operation: str, arity: int, *body: str) -> Helper:
    """A helper with operands and a result of one dtype.

    In its body T is the type, W the dtype's width, N(0.5) a number, `B(x)` the bits of an integer as an unsigned one.
    """

    def text(features: Features, dtype: np.dtype) -> str:
        kind = type_name(dtype, features.longs)
        unsigned = f"u{kind[1:]}"

        def bits(match: re.Match[str]) -> str:
            own = f"{unsigned}({match[1]})"
            return own if dtype.itemsize >= 4 else f"({own} & {(1 << memory_bits(dtype)) - 1}u)"

        lines = []
        for line in body:
            of_text = float if dtype_kind(dtype) == "f" else int
            line = re.sub(r"\bN\(([^()]*)\)", lambda m, of=of_text: literal(of(m[1]), kind), line)
            line = re.sub(r"\bB\((\w+)\)", bits, line)
            line = re.sub(r"\bT\b", kind, line)
            line = re.sub(r"\bU\b", unsigned, line)
            line = re.sub(r"\bD\b", dtype.name, line)
            line = re.sub(r"_D\b", f"_{dtype.name}", line)
            line = re.sub(r"\bW\b", f"{memory_bits(dtype)}u", line)
            line = re.sub(r"\bwrap\((.*)\);", lambda m: f"{wrapped(f'({m[1]})', dtype)};", line)
            lines.append(f"    {line}")
        parameters = ", ".join(f"{name}: {kind}" for name in "xyz"[:arity])
        return "\n".join([f"fn {helper_name(operation, dtype)}({parameters}) -> {kind} {{", *lines, "}"])

    return text


def _by_sign(operation: str, arity: int, signed: tuple[str, ...], unsigned: tuple[str, ...]) -> Helper:
    """A helper that differs for integers without sign."""

    def text(features: Features, dtype: np.dtype) -> str:
        return _same(operation, arity, *(unsigned if dtype.kind == "u" else signed))(features, dtype)

    return text


def _is_nan(features: Features, dtype: np.dtype) -> str:
    head = f"fn {helper_name('is_nan', dtype)}(x: {type_name(dtype, features.longs)}) -> bool {{ return "
    if dtype.itemsize == 4:
        return head + "(bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }"
    return head + "(bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu; }"


def _is_finite(features: Features, dtype: np.dtype) -> str:
    head = f"fn {helper_name('is_finite', dtype)}(x: {type_name(dtype, features.longs)}) -> bool {{ return "
    if dtype.itemsize == 4:
        return head + "(bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u; }"
    return head + "(bitcast<u64>(x) & 0x7ff0000000000000lu) != 0x7ff0000000000000lu; }"


def _copysign(features: Features, dtype: np.dtype) -> str:
    kind, word, end = ("f32", "u32", "u") if dtype.itemsize == 4 else ("f64", "u64", "lu")
    sign = f"{1 << (8 * dtype.itemsize - 1):#x}{end}"
    body = f"bitcast<{kind}>((bitcast<{word}>(x) & ~{sign}) | (bitcast<{word}>(y) & {sign}))"
    return f"fn {helper_name('copysign', dtype)}(x: {kind}, y: {kind}) -> {kind} {{ return {body}; }}"


def _decode(features: Features, dtype: np.dtype) -> str:
    form = INTEGER_FORMATS[dtype]
    kind, mask, sign = type_name(compute_dtype(dtype), features.longs), (1 << form.bits) - 1, 1 << (form.bits - 1)
    value = f"((x & {mask}) ^ {sign}) - {sign}" if form.signed else f"x & {mask}"
    return f"fn {helper_name('decode', dtype)}(x: {kind}) -> {kind} {{ return {value}; }}"


def _encode(features: Features, dtype: np.dtype) -> str:
    kind, mask = type_name(compute_dtype(dtype), features.longs), (1 << INTEGER_FORMATS[dtype].bits) - 1
    return f"fn {helper_name('encode', dtype)}(x: {kind}) -> {kind} {{ return x & {mask}; }}"


def _cast(features: Features, source: np.dtype, target: np.dtype) -> str:
    """Convert a float to an integer: truncated and saturated, NaN as 0."""
    info, wide = ml_dtypes.iinfo(target), compute_dtype(target)
    given, kind = (type_name(d, features.longs) for d in (source, wide))
    low, high = (literal(float(int(bound)), given) for bound in (info.min, info.max))
    least, largest = (literal(int(bound), kind) for bound in (info.min, info.max))
    return f"""fn {helper_name("cast", source, target)}(x: {given}) -> {kind} {{
    if (!(abs(x) >= {literal(1, given)})) {{ return {literal(0, kind)}; }}
    if (x <= {low}) {{ return {least}; }}
    if (x >= {high}) {{ return {largest}; }}
    return {kind}(x);
}}"""


def _fma(features: Features, dtype: np.dtype) -> str:
    """A product and a sum that are rounded once: in float64, or with the errors of both, by Dekker and Knuth."""
    if dtype.itemsize == 4 and features.doubles:
        return _same("fma", 3, "return f32(f64(x) * f64(y) + f64(z));")(features, dtype)
    return _same(
        "fma", 3,
        f"let splitter = N({4097.0 if dtype.itemsize == 4 else 134217729.0});",
        "let product = x * y;",
        "let left = splitter * x; let x_high = rlx_kept_D(left - rlx_kept_D(left - x));",
        "let right = splitter * y; let y_high = rlx_kept_D(right - rlx_kept_D(right - y));",
        "let x_low = rlx_kept_D(x - x_high); let y_low = rlx_kept_D(y - y_high);",
        "var lost = rlx_kept_D(product - x_high * y_high);",
        "lost = rlx_kept_D(rlx_kept_D(lost - x_low * y_high) - x_high * y_low);",
        "let total = rlx_kept_D(product + z);",
        "let virtual_z = rlx_kept_D(total - product);",
        "let missed = rlx_kept_D(product - rlx_kept_D(total - virtual_z)) + rlx_kept_D(z - virtual_z);",
        "let error = rlx_kept_D(missed) + rlx_kept_D(x_low * y_low - lost);",
        "if (!rlx_is_finite_D(error)) { return total; }",
        "return total + error;",
    )(features, dtype)  # fmt: skip


def _circular(name: str) -> Helper:
    """A circular function: of small arguments, else reduced in float64, or as exact as the device's own."""

    def text(features: Features, dtype: np.dtype) -> str:
        if dtype.itemsize == 8:
            return _same(name, 1, f"return rlx_small_{name}_D(x);")(features, dtype)
        far = f"f32(rlx_small_{name}_float64(f64(x)))" if features.doubles else f"{name}(x)"
        return _same(name, 1, f"if (abs(x) > N(1e5)) {{ return {far}; }}", f"return rlx_small_{name}_D(x);")(
            features, dtype
        )

    return text


def _counted(name: str, builtin: str) -> Helper:
    def text(features: Features, dtype: np.dtype) -> str:
        wide = type_name(dtype, features.longs).endswith("64")
        if name == "population_count":
            body = [f"return T({builtin}(B(x)));"]
            if wide:
                body = [f"return T({builtin}(u32(B(x) & 0xfffffffflu)) + {builtin}(u32(B(x) >> 32u)));"]
        else:
            body = [f"return T({builtin}(B(x)) - (32u - W));"]
            if wide:
                body = [
                    "let high = u32(B(x) >> 32u);",
                    f"return T(select({builtin}(high), 32u + {builtin}(u32(B(x) & 0xfffffffflu)), high == 0u));",
                ]
        return _same(name, 1, *body)(features, dtype)

    return text


_HELPERS: dict[str, Helper] = {
    "divide": _by_sign(
        "divide", 2,
        ("if (y == 0) { return N(-1); }", "if (y == -1) { return wrap(N(0) - x); }", "return wrap(x / y);"),
        ("if (y == 0) { return wrap(~N(0)); }", "return x / y;"),
    ),
    "remainder": lambda features, dtype: (_real_remainder if dtype.kind == "f" else _remainder)(features, dtype),
    "sign": lambda features, dtype: (_real_sign if dtype.kind == "f" else _integer_sign)(features, dtype),
    "maximum": _same("maximum", 2, "return select(y, x, x > y || rlx_is_nan_D(x));"),
    "minimum": _same("minimum", 2, "return select(y, x, x < y || rlx_is_nan_D(x));"),
    "shift_left": _same(
        "shift_left", 2, "let moved = T(B(x) << (u32(B(y)) & (W - 1u)));", "if (B(y) >= U(W)) { return T(0); }",
        "return wrap(moved);",
    ),
    "shift_right_logical": _same(
        "shift_right_logical", 2, "let moved = T(B(x) >> (u32(B(y)) & (W - 1u)));",
        "if (B(y) >= U(W)) { return T(0); }", "return wrap(moved);",
    ),
    "shift_right_arithmetic": _same(
        "shift_right_arithmetic", 2, "let steps = select(W - 1u, u32(B(y)), B(y) < U(W));",
        "if ((B(x) >> (W - 1u)) == U(0)) { return T(B(x) >> steps); }",
        "let turned = T(~x);", "return wrap(T(~(B(turned) >> steps)));",
    ),
    "population_count": _counted("population_count", "countOneBits"),
    "count_leading_zeros": _counted("count_leading_zeros", "countLeadingZeros"),
    "kept": _kept,
    "is_nan": _is_nan,
    "is_finite": _is_finite,
    "copysign": _copysign,
    "decode": _decode,
    "encode": _encode,
    "cast": _cast,
    "fma": _fma,
    **{name: _circular(name) for name in ("sin", "cos", "tan")},
}  # fmt: skip
_remainder = _by_sign(
    "remainder", 2, ("if (y == 0 || y == -1) { return N(0); }", "return x % y;"),
    ("if (y == 0) { return N(0); }", "return x % y;"),
)  # fmt: skip
_integer_sign = _by_sign("sign", 1, ("return T(x > 0) - T(x < 0);",), ("return T(x > 0);",))
_real_sign = _same("sign", 1, "if (x == N(0) || rlx_is_nan_D(x)) { return x; }", "return rlx_copysign_D(N(1), x);")
# long division in base 2: each difference is exact
_real_remainder = _same(
    "remainder", 2,
    "let y_size = abs(y);",
    "if (!(y_size > N(0)) || !rlx_is_finite_D(x)) { return N(nan); }",
    "var rest = abs(x); var step = y_size;",
    "while (step <= rest * N(0.5)) { step *= N(2); }",
    "while (rest >= y_size) {",
    "    if (rest >= step) { rest -= step; }",
    "    step *= N(0.5);",
    "}",
    "return rlx_copysign_D(rest, x);",
)  # fmt: skip
