"""Operations element by element: arithmetic, functions, comparisons, bits, conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .table import Draw, operation

__all__: list[str] = []

FLOATS = ("float16", "bfloat16", "float32", "float64")
NARROW = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e3m4", "float4_e2m1fn")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SMALL = ("int4", "uint4", "int2", "uint2")


def unary(kinds: str, exact: bool = False, **options: Any) -> Callable[[Any], Draw]:
    """One operand of these kinds."""
    return lambda g: Draw((g.pick(kinds, exact=exact, **options),))


def binary(kinds: str, exact: bool = False) -> Callable[[Any], Draw]:
    """Two operands of these kinds whose shapes broadcast, in either order."""

    def draw(g: Any) -> Draw:
        first = g.pick(kinds, exact=exact)
        second = g.partner(first, kinds, exact=exact)
        return Draw((first, second) if g.coin() else (second, first))

    return draw


SMOOTH = {
    "sin": "jnp.sin({0})",
    "cos": "jnp.cos({0})",
    "tanh": "jnp.tanh({0})",
    "arctan": "jnp.arctan({0})",
    "arcsinh": "jnp.arcsinh({0})",
    "exp": "jnp.exp({0})",
    "expm1": "jnp.expm1({0})",
    "exp_minus_square": "jnp.exp(-{0} * {0})",
    "log_of_square": "jnp.log({0} * {0} + 1)",
    "log1p_of_square": "jnp.log1p({0} * {0})",
    "sqrt_of_square": "jnp.sqrt({0} * {0} + 1)",
    "rsqrt_of_square": "lax.rsqrt({0} * {0} + 0.5)",
    "inverse_of_square": "1 / ({0} * {0} + 1)",
    "sigmoid": "rlx.nn.sigmoid({0})",
    "softplus": "rlx.nn.softplus({0})",
    "gelu": "rlx.nn.gelu({0})",
    "cube": "{0} ** 3",
    "sinc_shifted": "jnp.sinc({0} * {0} + 0.3)",
}
for name, template in SMOOTH.items():
    operation(name, template, unary("f"), "rounded", "smooth", weight=0.5)
operation("erf", "lax.erf({0})", unary("f"), "rounded", weight=0.3)
operation("lgamma", "lax.lgamma({0} * {0} + 1)", unary("f"), "rounded", weight=0.3)
operation("cbrt", "jnp.cbrt({0} * {0} + 0.1)", unary("f"), "rounded", weight=0.3)
operation("complex_exp", "jnp.exp({0} * 0.5)", unary("c"), "rounded", weight=0.4)
operation("complex_square", "{0} * {0} * 0.5", unary("c"), "rounded", weight=0.3)
operation("complex_tanh", "jnp.tan({0} * 0.2)", unary("c"), "rounded", weight=0.3)
operation("magnitude", "jnp.abs({0} + 3)", unary("c"), "rounded", weight=0.3)
operation("parts", "{0}.real + 2 * {0}.imag", unary("c"), "rounded", weight=0.4)
operation("conjugate", "jnp.conj({0})", unary("c"), "exact", weight=0.3)
operation("to_complex", "lax.complex({0}, -{0})", unary("f", among=("float32", "float64")), "exact", weight=0.3)

operation("negative", "-{0}", unary("fic"), "exact", "smooth")
operation("absolute", "jnp.abs({0})", unary("fi"), "exact", "kinked", weight=0.7)
operation("relu", "rlx.nn.relu({0})", unary("f"), "exact", "kinked", weight=0.5)
operation("clip", "jnp.clip({0}, -0.5, 1.5)", unary("f"), "exact", "kinked", weight=0.5)
operation("sign", "jnp.sign({0})", unary("fi", exact=True), "exact", "flat", discrete=(0,), weight=0.4)
for name in ("floor", "ceil", "round", "trunc", "rint"):
    operation(name, f"jnp.{name}({{0}})", unary("f", exact=True), "exact", "flat", discrete=(0,), weight=0.2)
for name in ("isnan", "isfinite", "signbit"):
    operation(name, f"jnp.{name}({{0}})", unary("f", exact=True), "exact", "flat", discrete=(0,), weight=0.15)
operation("nan_to_num", "jnp.nan_to_num({0}, posinf=7, neginf=-7)", unary("f"), "exact", "kinked", weight=0.3)
operation("stop_gradient", "lax.stop_gradient({0})", unary("f", exact=True), "exact", "flat", weight=0.2)
operation("barrier", "lax.optimization_barrier({0})", unary("fiub"), "exact", "smooth", weight=0.2)
operation("halve", "{0} * 0.5", unary("fc"), "exact", "smooth", weight=0.7)
operation("square", "jnp.square({0})", unary("fi"), "product", "smooth", weight=0.7)

operation("add", "{0} + {1}", binary("fiuc"), "sum", "smooth", weight=4)
operation("subtract", "{0} - {1}", binary("fiuc"), "sum", "smooth", weight=4)
operation("multiply", "{0} * {1}", binary("fiu"), "product", "smooth", weight=5)
operation("complex_multiply", "{0} * {1}", binary("c"), "rounded", weight=0.4)
operation("divide", "{0} / ({1} * {1} + 1)", binary("fc"), "rounded", "smooth", weight=2)
operation("maximum", "jnp.maximum({0}, {1})", binary("fiu"), "exact", "kinked", weight=1)
operation("minimum", "jnp.minimum({0}, {1})", binary("fiu"), "exact", "kinked", weight=1)
operation("power", "(jnp.abs({0}) + 0.5) ** jnp.tanh({1})", binary("f"), "rounded", "kinked", weight=0.5)
operation("arctan2", "jnp.arctan2({0}, {1} * {1} + 0.5)", binary("f"), "rounded", weight=0.4)
operation("hypot", "jnp.hypot({0}, {1} * {1} + 0.5)", binary("f"), "rounded", weight=0.3)
operation("logaddexp", "jnp.logaddexp({0}, {1})", binary("f"), "rounded", weight=0.4)
operation("xlogy", "rlx.scipy.special.xlogy({0}, {1} * {1} + 1)", binary("f"), "rounded", weight=0.2)
operation("copysign", "jnp.copysign({0}, {1})", binary("f", exact=True), "exact", "kinked", discrete=(1,), weight=0.3)
for sign, name in {"<": "less", "<=": "less_equal", ">": "greater", "==": "equal", "!=": "not_equal"}.items():
    operation(name, f"{{0}} {sign} {{1}}", binary("fiu", exact=True), "exact", "flat", discrete=(0, 1), weight=0.5)
for name in ("floor_divide", "remainder", "fmod"):
    drawn = binary("f", exact=True)
    spelled = f"jnp.{name}({{0}}, jnp.abs({{1}}) + 1)"
    operation(f"float_{name}", spelled, drawn, "exact", "kinked", discrete=(0, 1), weight=0.15)

for sign, name in {"//": "floor_divide", "%": "remainder"}.items():
    operation(f"int_{name}", f"{{0}} {sign} ({{1}} | 1)", binary("iu"), "exact", "flat", weight=0.7)
for sign, name in {"&": "and", "|": "or", "^": "xor"}.items():
    operation(f"bits_{name}", f"{{0}} {sign} {{1}}", binary("iub"), "exact", "flat", weight=0.4)
operation("shift_left", "{0} << ({1} & 1)", binary("iu"), "exact", "flat", weight=0.3)
operation("shift_right", "{0} >> ({1} & 1)", binary("iu"), "exact", "flat", weight=0.3)
operation("invert", "~{0}", unary("iub"), "exact", "flat", weight=0.3)
operation("bit_count", "lax.population_count({0})", unary("iu"), "exact", "flat", weight=0.2)
operation("leading_zeros", "lax.clz({0})", unary("iu", among=INTEGERS), "exact", "flat", weight=0.2)


def _with_number(kinds: str, signs: tuple[str, ...], numbers: tuple[Any, ...], exact: bool = False) -> Any:
    def draw(g: Any) -> Draw:
        parameters = {"sign_": g.choice(signs), "number": g.choice(numbers)}
        return Draw((g.pick(kinds, exact=exact),), parameters)

    return draw


_TAME = (0.3, -1.7, 2.0, 0.125, 3, 1)
operation("scaled", "{0} * {number}", _with_number("fc", ("*",), (0.3, -1.7, 0.9)), "product", weight=2)
operation("over_number", "{0} / {number}", _with_number("f", ("/",), (3, 0.7, 2)), "exact", weight=0.5)
operation("number_off", "{number} {sign_} {0}", _with_number("fiu", ("+", "-"), (1, 3, 2)), "sum", weight=0.7)
operation("number_on", "{0} {sign_} {number}", _with_number("fc", ("+", "-"), _TAME), "sum", weight=1)
operation("huge_on_off", "({0} + {number}) - {number}", _with_number("f", ("+",), (256, 2048)), "sum", weight=0.2)
operation("int_scaled", "{0} * {number} + 1", _with_number("iu", ("*",), (2, 3, 1)), "exact", "flat", weight=1)
operation("int_modulo", "{0} % {number}", _with_number("iu", ("%",), (2, 3)), "exact", "flat", weight=2)
operation("int_over", "{0} // {number}", _with_number("iu", ("//",), (2, 3)), "exact", "flat", weight=2)


def _three(first: str, rest: str) -> Callable[[Any], Draw]:
    def draw(g: Any) -> Draw:
        value = g.pick(rest)
        return Draw((g.partner(value, first, exact=True), value, g.partner(value, rest)))

    return draw


operation("where", "jnp.where({0}, {1}, {2})", _three("b", "fiuc"), "exact", discrete=(0,), weight=2)
operation("where_number", "jnp.where({0}, {1}, 0)", lambda g: _masked(g, "fiu"), "exact", discrete=(0,), weight=1)
operation("select_by", "jnp.choose({0}, [{1}, {2}], mode='clip')", _three("i", "f"), "exact", discrete=(0,), weight=0.4)
operation("multiply_add", "{0} * {1} + {2}", _three("f", "f"), "rounded", weight=1)


def _masked(g: Any, kinds: str) -> Draw:
    value = g.pick(kinds)
    return Draw((g.partner(value, "b", exact=True), value))


def _converted(kinds: str, targets: tuple[str, ...], exact: bool = False) -> Callable[[Any], Draw]:
    return lambda g: Draw((g.pick(kinds, exact=exact),), {"dtype": g.choice(targets)})


operation("to_float", "{0}.astype({dtype})", _converted("fiub", FLOATS), "exact", weight=1.5)
operation("to_narrow", "{0}.astype({dtype})", _converted("f", NARROW, exact=True), "exact", "flat", weight=0.2)
operation("to_integer", "{0}.astype({dtype})", _converted("iub", INTEGERS), "exact", "flat", weight=1)
operation("to_small", "{0}.astype({dtype})", _converted("iub", SMALL), "exact", "flat", weight=0.2)
operation("to_bool", "{0}.astype(bool)", unary("iu"), "exact", "flat", weight=0.2)
for signed, low in (("int32", -100), ("int8", -100), ("uint8", 0), ("int64", -100)):
    operation(
        f"float_to_{signed}",
        f"jnp.clip(jnp.nan_to_num({{0}} * 2), {low}, 100).astype({signed!r})",
        unary("f", exact=True),
        "exact",
        "flat",
        discrete=(0,),
        weight=0.4,
    )


def _same_bits(g: Any) -> Draw:
    dtype, target = g.choice((("float32", "int32"), ("float64", "int64"), ("int32", "uint32"), ("float16", "int16")))
    return Draw((g.pick("fiu", exact=True, among=(dtype,)),), {"dtype": target})


operation(
    "bitcast", "lax.bitcast_convert_type({0}, {dtype}) % 7", _same_bits, "exact", "flat", discrete=(0,), weight=0.2
)
operation("tame", "jnp.tanh({0})", unary("f"), "rounded", weight=0.0)
operation("tame_complex", "{0} / (1 + jnp.abs({0}))", unary("c"), "rounded", weight=0.0)
operation("tame_clip", "jnp.clip({0}, -2, 2)", unary("f"), "exact", "kinked", weight=0.0)
operation("tame_integer", "{0} % 7", unary("iu"), "exact", "flat", weight=0.0)
operation("tie", "({0} * 0.5 + jnp.mean({1}) * 0.5).astype({dtype})", lambda g: None, "rounded", weight=0.0)
operation("tie_integer", "({0} + jnp.sum({1})).astype({dtype}) % 5", lambda g: None, "exact", "flat", weight=0.0)
