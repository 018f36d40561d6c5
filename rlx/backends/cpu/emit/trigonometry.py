"""Sine, cosine, tangent and their inverses as straight-line code that LLVM vectorises.

Arguments up to `_LIMIT` are reduced by three-part multiples of pi/2 with fused multiply-adds.
Larger ones are corrected by a call that has separate vector variants: they test the whole vector
at once and call the C library only for the rare lanes, so the surrounding loop is still vectorised.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.backends.cpu.emit.ir_text import Code, Module, Value, literal
from rlx.backends.cpu.emit.polynomials import horner

__all__ = ["COSINE", "FUNCTIONS", "QUARTER", "SINE", "SMALL", "repair", "vector_cos", "vector_sin"]

# (sin r - r) / r^3 and (cos r - 1 + r^2 / 2) / r^4 in z = r^2, for |r| <= pi / 4
SINE = {
    "float": (-0.16666653752326965, 0.008332131430506706, -0.00019510838319547474),
    "double": (
        -0.16666666666666627, 0.008333333333321286, -0.00019841269828869905,
        2.7557313355947404e-06, -2.505070403024162e-08, 1.5893583416970286e-10,
    ),
}  # fmt: skip
COSINE = {
    "float": (0.04166664555668831, -0.0013887305976822972, 2.4431205019936897e-05),
    "double": (
        0.04166666666666659, -0.0013888888888872598, 2.4801587288491705e-05,
        -2.755731405646965e-07, 2.0875681865589457e-09, -1.1357447961891365e-11,
    ),
}  # fmt: skip
# (atan r - r) / r^3 in z = r^2, for |r| <= tan(pi / 8)
_ARCTANGENT = {
    "float": (
        -0.3333331346511841, 0.1999843418598175, -0.14242741465568542, 0.10587364435195923,
        -0.06060530245304108,
    ),
    "double": (
        -0.33333333333333326, 0.1999999999999745, -0.14285714285360657, 0.1111111108647181,
        -0.09090908082979104, 0.07692281367780938, -0.06666206237652166, 0.05876821093640813,
        -0.05217114044575755, 0.044983094671214176, -0.03335262563397228, 0.015071580252851283,
    ),
}  # fmt: skip
# (asin r - r) / r^3 in z = r^2, for |r| <= 1 / 2
_ARCSINE = {
    "float": (
        0.16666659712791443, 0.07500512152910233, 0.044515468180179596, 0.03181983903050423,
        0.014393731020390987, 0.03757825493812561,
    ),
    "double": (
        0.16666666666666763, 0.0749999999997009, 0.04464285717529214, 0.030381942675029354,
        0.02237221591204488, 0.017351595403793555, 0.013981019541573927, 0.011397285892430362,
        0.0107893559601125, 0.003672071164305601, 0.021790886740079236, -0.021117011324636396,
        0.03270231846492144,
    ),
}  # fmt: skip
QUARTER = {
    "float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
_LIMIT = {"float": 1e5, "double": 1e9}
_SHIFTER = {"float": 12582912.0, "double": 6755399441055744.0}
_LANES = {"float": (4, 8, 16), "double": (2, 4, 8)}


def _reduce_quarter(x: Value) -> tuple[Value, Value]:
    """x = n pi/2 + r: r, and n as an integer. The first difference is exact."""
    shifted = x.fma(2.0 / math.pi, _SHIFTER[x.kind])
    n = shifted - _SHIFTER[x.kind]
    r = x
    for part in QUARTER[x.kind]:
        r = n.fma(-part, r)
    return r, shifted.bits()


def _sine_cosine(r: Value) -> tuple[Value, Value]:
    z = r * r
    sine = (z * r).fma(horner(z, SINE[r.kind]), r)
    half = z * 0.5
    head = 1.0 - half
    return sine, head + (z * z).fma(horner(z, COSINE[r.kind]), (1.0 - head) - half)


def _circular(x: Value, quarters: int) -> Value:
    r, n = _reduce_quarter(x)
    if quarters:
        n = n + quarters
    sine, cosine = _sine_cosine(r)
    chosen = (n & 1).not_equal(0).where(cosine, sine)
    return (n & 2).not_equal(0).where(-chosen, chosen)


def _small_sin(x: Value) -> Value:
    return x.equal(0.0).where(x, _circular(x, 0))


def _small_cos(x: Value) -> Value:
    return _circular(x, 1)


def vector_sin(x: Value) -> Value:
    return repair("sin", x, _small_sin(x))


def vector_cos(x: Value) -> Value:
    return repair("cos", x, _small_cos(x))


def _tan(x: Value) -> Value:
    return repair("tan", x, _small_tan(x))


def _small_tan(x: Value) -> Value:
    wide = x.convert("fpext", "double")
    r, n = _reduce_quarter(wide)
    sine, cosine = _sine_cosine(r)
    odd = (n & 1).not_equal(0)
    quotient = odd.where(-cosine, sine) / odd.where(sine, cosine)
    return x.equal(0.0).where(x, quotient.convert("fptrunc", x.kind))


def repair(name: str, x: Value, approximate: Value) -> Value:
    """`approximate`, or the C library's value where |x| is beyond the reduction's range."""
    kind = x.kind
    symbol = f"repair_{name}_{kind}"
    _define_repair(x.code.module, symbol, name, kind)
    variants = ",".join(f"_ZGV_LLVM_N{n}vv_{symbol}({symbol}_{n})" for n in _LANES[kind])
    attribute = f' "vector-function-abi-variant"="{variants}" nounwind willreturn memory(none)'
    return x.code.call(symbol, kind, x, approximate, attributes=attribute)


_PURE = 'noinline nounwind willreturn memory(none) "prefer-vector-width"="512"'


def _define_repair(module: Module, symbol: str, name: str, kind: str) -> None:
    if symbol in module.definitions:
        return
    external = f"llvm.{name}.f64"
    module.declare(external, "double", ("double",))
    code = Code(module)
    x = Value(code, "%x", kind)
    exact = code.call(external, "double", x.convert("fpext", "double"))
    result = exact.convert("fptrunc", kind)
    limit = literal(kind, _LIMIT[kind])
    module.definitions[f"{symbol}_exact"] = (
        f"define internal {kind} @{symbol}_exact({kind} %x) {_PURE} {{\n"
        f"{code.text()}\n  ret {kind} {result.name}\n}}"
    )
    module.definitions[symbol] = f"""
define internal {kind} @{symbol}({kind} %x, {kind} %y) {_PURE} {{
  %size = call {kind} @llvm.fabs.{_suffix(kind)}({kind} %x)
  %large = fcmp ogt {kind} %size, {limit}
  br i1 %large, label %repair, label %fine
fine:
  ret {kind} %y
repair:
  %exact = call {kind} @{symbol}_exact({kind} %x)
  ret {kind} %exact
}}"""
    module.declare(f"llvm.fabs.{_suffix(kind)}", kind, (kind,))
    module.apart.add(symbol)
    kept = {symbol}
    for lanes in _LANES[kind]:
        module.definitions[f"{symbol}_{lanes}"] = _vector_repair(module, symbol, kind, lanes)
        kept.add(f"{symbol}_{lanes}")
    module.retained.update(kept)


def _suffix(kind: str) -> str:
    return {"float": "f32", "double": "f64"}[kind]


def _vector_repair(module: Module, symbol: str, kind: str, lanes: int) -> str:
    vector, limit = f"<{lanes} x {kind}>", literal(kind, _LIMIT[kind])
    size, any_lane = f"llvm.fabs.v{lanes}{_suffix(kind)}", f"llvm.vector.reduce.or.v{lanes}i1"
    module.declare(size, vector, (vector,))
    module.declare(any_lane, "i1", (f"<{lanes} x i1>",))
    limits = ", ".join([f"{kind} {limit}"] * lanes)
    return f"""
define internal {vector} @{symbol}_{lanes}({vector} %x, {vector} %y) {_PURE} {{
entry:
  %size = call {vector} @{size}({vector} %x)
  %large = fcmp ogt {vector} %size, <{limits}>
  %any = call i1 @{any_lane}(<{lanes} x i1> %large)
  br i1 %any, label %head, label %fine
fine:
  ret {vector} %y
head:
  %lane = phi i64 [ 0, %entry ], [ %next, %head ]
  %sofar = phi {vector} [ %y, %entry ], [ %after, %head ]
  %value = extractelement {vector} %x, i64 %lane
  %before = extractelement {vector} %y, i64 %lane
  %repaired = call {kind} @{symbol}({kind} %value, {kind} %before)
  %after = insertelement {vector} %sofar, {kind} %repaired, i64 %lane
  %next = add i64 %lane, 1
  %more = icmp ult i64 %next, {lanes}
  br i1 %more, label %head, label %done
done:
  ret {vector} %after
}}"""


def _atan(x: Value) -> Value:
    """Three ranges of |x| share one division: t, (t - 1) / (t + 1), -1 / t."""
    a = abs(x)
    middle = a > math.tan(math.pi / 8)
    large = a > math.tan(3 * math.pi / 8)
    numerator = large.where(-1.0, middle.where(a - 1.0, a))
    denominator = large.where(a, middle.where(a + 1.0, 1.0))
    r = numerator / denominator
    high, low, _ = QUARTER[x.kind]
    base = large.where(high, middle.where(x.lift(high / 2), 0.0))
    base_low = large.where(low, middle.where(x.lift(low / 2), 0.0))
    z = r * r
    polynomial = (z * r).fma(horner(z, _ARCTANGENT[x.kind]), base_low)
    return (base + (polynomial + r)).call("copysign", x)


def _atan2(y: Value, x: Value) -> Value:
    # float32 quotients are formed in float64, where they neither overflow nor vanish
    a, b = abs(y.convert("fpext", "double")), abs(x.convert("fpext", "double"))
    swap = a > b
    larger, smaller = swap.where(a, b), swap.where(b, a)
    same = a.equal(b)
    zero = larger.equal(0.0)
    ratio = zero.where(0.0, same.where(1.0, smaller / larger))
    angle = _atan(ratio)
    angle = swap.where(math.pi / 2 - angle, angle)
    angle = (x.bits() < 0).where(math.pi - angle, angle)
    result = angle.convert("fptrunc", y.kind).call("copysign", y)
    return (x.is_nan() | y.is_nan()).where(x + y, result)


def _arcsine_core(r: Value) -> Value:
    """asin(r) - r for |r| <= 1/2."""
    z = r * r
    return (z * r) * horner(z, _ARCSINE[r.kind])


def _asin(x: Value) -> Value:
    a = abs(x)
    outer = a > 0.5
    root = ((1.0 - a) * 0.5).call("sqrt")
    r = outer.where(root, a)
    core = _arcsine_core(r)
    high, low, _ = QUARTER[x.kind]
    folded = (high - r * 2.0) - (core * 2.0 - low)
    return outer.where(folded, r + core).call("copysign", x)


def _acos(x: Value) -> Value:
    a = abs(x)
    outer = a > 0.5
    r = outer.where(((1.0 - a) * 0.5).call("sqrt"), x)
    core = _arcsine_core(r)
    high, low, _ = QUARTER[x.kind]
    double = (r + core) * 2.0
    far = (x < 0.0).where(2.0 * high - (double - 2.0 * low), double)
    return outer.where(far, high - (r - (low - core)))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "sin": vector_sin,
    "cos": vector_cos,
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "atan2": _atan2,
}
# of arguments up to 1e5, or 1e9 in float64
SMALL: dict[str, Callable[..., Value]] = {"sin": _small_sin, "cos": _small_cos, "tan": _small_tan}
