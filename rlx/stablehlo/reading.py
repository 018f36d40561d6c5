"""StableHLO modules as exported functions: parsed and verified by jaxlib's MLIR, run by rlx.lax."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.call.scopes import ensure_compile_time_eval
from rlx.call.stages import ShapeDtypeStruct
from rlx.errors import FileFormatError, InputTypeError, UnsupportedError
from rlx.export.exported import Exported, export
from rlx.export.sizes import symbolic_shape
from rlx.installation import install_command
from rlx.ir.types import dtype_kind, is_narrow
from rlx.scipy import special
from rlx.stablehlo.custom_calls import DYNAMIC_WINDOWS, call_by_name, is_known_call
from rlx.stablehlo.text import DTYPES
from rlx.standalone.spelling import entering
from rlx.trace.text import dtype as dtype_named
from rlx.transforms.reverse import vjp

__all__ = ["import_stablehlo"]

Values = Sequence[Any]
Rule = Callable[["_Reader", Any, Values], Any]
rules: dict[str, Rule] = {}


def import_stablehlo(text: str | bytes) -> Exported:
    """Import a StableHLO module, for example from `Exported.stablehlo()` or `jax.export`.

    Args:
      text: MLIR text, MLIR bytecode, or a portable artifact (`jax.export.Exported.mlir_module_serialized`), with a
        public function `main`.

    Returns: an Exported: takes the arguments of `main`, returns its result or a tuple of results. Unknown sizes are
      symbolic; jax.export's names of sizes are kept.

    Raises: FileFormatError if the module does not parse or verify; UnsupportedError, which lists all unsupported
      operations, or if the package jaxlib, which provides the parser, is not installed.

    >>> import rlx, numpy as np
    >>> text = rlx.export(lambda x: x * 2.0 + 1.0)(np.ones(3, np.float32)).stablehlo()
    >>> rlx.import_stablehlo(text).call(np.ones(3, np.float32)).tolist()
    [3.0, 3.0, 3.0]
    """
    module = _parsed(text)
    reader = _Reader(module)
    main = reader.functions.get("main")
    if main is None:
        raise FileFormatError("The module has no function main.", "Its public function must have this name.")
    if missing := reader.missing():
        raise UnsupportedError(f"The module has operations that rlx does not read: {', '.join(missing)}.")
    types = _argument_types(main)

    def function(*arguments: Any) -> Any:
        found = reader.call(main, arguments)
        return found[0] if len(found) == 1 else tuple(found)

    function.__name__ = _title(module)
    return export(function)(*types)


def _argument_types(main: Any) -> list[Any]:
    """The types of the arguments; the names of their unknown sizes are in the messages of jax.export's assertions."""
    arguments = list(main.regions[0].blocks[0].arguments)
    said = next(iter(re.findall(r"polymorphic shapes specifications: (.*?)\. Obtained", str(main))), "")
    shapes = iter([symbolic_shape(f"({s})") for s in re.findall(r"\.shape = \(([^()]*(?:\([^()]*\)[^()]*)*)\)", said)])
    known = [str(a.type) for a in arguments]
    names = itertools.count()
    types: list[Any] = []
    for text in known:
        shape, dtype = _type_with_unknowns(text)
        if None in shape:
            fresh = [f"size_{next(names)}" if n is None else str(n) for n in shape]
            shape = next(shapes, None) or symbolic_shape(", ".join(fresh))
        types.append(_struct(shape, dtype))
    return types


def _struct(shape: Any, dtype: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, dtype)


def _title(module: Any) -> str:
    found = re.search(r"module @([\w$.-]+)", str(module.operation).split("\n", 1)[0])
    return re.sub(r"\W", "_", found[1]) if found else "main"


def _bindings() -> Any:
    """jaxlib's MLIR, and a context with the StableHLO dialect."""
    if importlib.util.find_spec("jaxlib") is None:
        raise UnsupportedError("Reading StableHLO needs the package jaxlib.", install_command("stablehlo"))
    ir = importlib.import_module("jaxlib.mlir.ir")
    context, registry = ir.Context(), ir.DialectRegistry()
    importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for name in ("stablehlo", "chlo", "sdy"):
        importlib.import_module(f"jaxlib.mlir.dialects.{name}").register_dialect(context)
    return ir, context


def _parsed(text: str | bytes) -> Any:
    if not isinstance(text, (str, bytes, bytearray)):
        raise InputTypeError(f"import_stablehlo got a {type(text).__name__}.", "Give the module's text or bytes.")
    ir, context = _bindings()
    reason = ""
    try:
        with context:
            module = ir.Module.parse(text) if isinstance(text, str) else _from_bytes(ir, context, bytes(text))
            module.operation.verify()
        return module
    except (ir.MLIRError, ValueError) as error:
        reason = str(error)
    raise FileFormatError(f"The text is not a StableHLO module: {reason[:2000]}")


def _from_bytes(ir: Any, context: Any, data: bytes) -> Any:
    """A module from text, bytecode, or a portable artifact, which is bytecode of a versioned dialect."""
    if data.startswith(_BYTECODE) and _ARTIFACT in data[:64]:
        dialect = importlib.import_module("jaxlib.mlir.dialects.stablehlo")
        return dialect.deserialize_portable_artifact(context, data)
    return ir.Module.parse(data)


_BYTECODE, _ARTIFACT = b"ML\xefR", b"StableHLO_v"


def _dtype(text: str) -> Any:
    if text in DTYPES:
        return dtype_named(DTYPES[text])
    if text.startswith("ui"):
        return dtype_named(f"uint{text[2:]}")
    return dtype_named(f"int{text[1:]}")


def _type_of(type: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of an MLIR type. Raises UnsupportedError except for arrays with known shapes."""
    shape, dtype = _type_with_unknowns(str(type))
    if None in shape:
        raise UnsupportedError(f"The sizes of a value of type {type} are not known.")
    return shape, dtype


def _type_with_unknowns(text: str) -> tuple[tuple[Any, ...], Any]:
    """Shape and dtype of an MLIR type; None for unknown sizes."""
    found = re.fullmatch(r"tensor<((?:(?:\d+|\?)x)*)(complex<\w+>|\w+)(?:, #stablehlo\.bounds<[^>]*>)?>", text)
    if found is None:
        raise UnsupportedError(f"rlx has no values of type {text}.", "Arrays must have a known rank.")
    return tuple(None if n == "?" else int(n) for n in found[1].split("x") if n), _dtype(found[2])


class _Reader:
    """The functions of a module, and the values of one call."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.functions = {
            str(f.attributes["sym_name"]).strip('"'): f for f in module.body.operations if "sym_name" in f.attributes
        }
        self.stack: list[dict[Any, Any]] = []

    def missing(self) -> list[str]:
        """The unsupported operations."""
        found: set[str] = set()

        def look(operation: Any) -> None:
            for region in operation.regions:
                for block in region.blocks:
                    for inner in block.operations:
                        name = inner.operation.name
                        if name == "stablehlo.custom_call" and not is_known_call(inner.operation):
                            found.add(f"{name} @{inner.operation.attributes['call_target_name']}".replace('"', ""))
                        elif name not in rules and name not in _ENDS:
                            found.add(name)
                        look(inner.operation)

        for function in self.functions.values():
            look(function.operation)
        return sorted(found)

    def call(self, function: Any, arguments: Values) -> list[Any]:
        """The results of a function."""
        outer, self.stack = self.stack, []
        try:
            return self.block(function.regions[0].blocks[0], arguments)
        finally:
            self.stack = outer

    def block(self, block: Any, arguments: Values) -> list[Any]:
        """The results of a block."""
        self.stack.append(dict(zip(block.arguments, arguments, strict=True)))
        try:
            for operation in block.operations:
                op = operation.operation
                if op.name in _ENDS:
                    return [self.read(v) for v in op.operands]
                found = self.results(op, [self.read(v) for v in op.operands])
                found = found if isinstance(found, (tuple, list)) else [found]
                self.stack[-1].update(zip(op.results, found, strict=True))
            return []
        finally:
            self.stack.pop()

    def results(self, op: Any, operands: list[Any]) -> Any:
        """The results of an operation; of integers that are known, now: shapes are computed from sizes."""
        if not operands or op.regions or op.name in _NEVER_NOW or not all(map(_is_size, operands)):
            return rules[op.name](self, op, operands)
        with ensure_compile_time_eval():
            found = rules[op.name](self, op, operands)
            return [np.asarray(x) for x in (found if isinstance(found, (tuple, list)) else [found])]

    def read(self, value: Any) -> Any:
        """The value of an operand, from this block or an enclosing one."""
        for scope in reversed(self.stack):
            if value in scope:
                return scope[value]
        raise FileFormatError(f"The value {value} is used where it is not defined.")

    def region(self, operation: Any, number: int = 0) -> Callable[..., list[Any]]:
        """A region as a function; it captures the current values of the enclosing blocks."""
        block, scopes = operation.regions[number].blocks[0], list(self.stack)

        def run(*arguments: Any) -> list[Any]:
            outer, self.stack = self.stack, [*scopes]
            try:
                return self.block(block, arguments)
            finally:
                self.stack = outer

        return run


def _is_size(x: Any) -> bool:
    small = isinstance(x, (np.ndarray, np.generic)) and (x.ndim < 2 or x.size <= 64)  # paddings have two axes
    return small and x.dtype.kind in "biu"


_NEVER_NOW = {
    "func.call", "stablehlo.composite", "stablehlo.custom_call", "stablehlo.optimization_barrier",
    "stablehlo.dynamic_broadcast_in_dim", "stablehlo.dynamic_iota",
}  # fmt: skip
_ENDS = {"func.return", "stablehlo.return", "sdy.return"}


# ------------------------------------------------------------------ attributes
def _list(op: Any, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
    return tuple(int(n) for n in op.attributes[name]) if name in op.attributes else tuple(default)


def _array(op: Any, name: str) -> np.ndarray:
    return np.array(op.attributes[name])


def _padding(op: Any, rank: int) -> list[tuple[int, int]]:
    if "padding" not in op.attributes:
        return [(0, 0)] * rank
    return [(int(a), int(b)) for a, b in _array(op, "padding").reshape(rank, 2)]


def _word(op: Any, name: str) -> str:
    """The word of an attribute like #stablehlo<comparison_direction LT>."""
    return str(op.attributes[name]).rstrip(">").split()[-1] if name in op.attributes else ""


def _numbers(op: Any, name: str) -> dict[str, Any]:
    """The lists in an attribute like #stablehlo.gather<offset_dims = [0], ...>."""
    text = str(op.attributes[name])
    found: dict[str, Any] = {
        k: tuple(int(n) for n in v.split(",") if n.strip()) for k, v in re.findall(r"(\w+) = \[([\d, ]*)\]", text)
    }
    found |= {k: int(v) for k, v in re.findall(r"(\w+) = (\d+)", text)}
    return found


def _dtype_out(op: Any) -> Any:
    return _type_with_unknowns(str(op.results[0].type))[1]


def _out(op: Any) -> tuple[tuple[int, ...], Any]:
    return _type_of(op.results[0].type)


rule = entering(rules)  # registers the implementation of operations by name


# ------------------------------------------------------------------ elementwise operations
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lax.add,
    "subtract": lax.sub,
    "multiply": lax.mul,
    "divide": lax.div,
    "negate": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "power": lax.pow,
    "atan2": lax.atan2,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "sqrt": lax.sqrt,
    "round_nearest_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "rsqrt": lax.rsqrt,
    "round_nearest_afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "cbrt": lax.cbrt,
    "exponential": lax.exp,
    "exponential_minus_one": lax.expm1,
    "log": lax.log,
    "log_plus_one": lax.log1p,
    "sine": lax.sin,
    "cosine": lax.cos,
    "tan": lax.tan,
    "tanh": lax.tanh,
    "logistic": lax.logistic,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "not": lax.bitwise_not,
    "shift_left": lax.shift_left,
    "shift_right_logical": lax.shift_right_logical,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "popcnt": lax.population_count,
    "count_leading_zeros": lax.clz,
    "remainder": lax.rem,
    "minimum": lax.min,
    "maximum": lax.max,
    "is_finite": lax.is_finite,
    "select": lambda p, x, y: lax.select(jnp.broadcast_to(p, x.shape), x, y),
    "real": lax.real,
    "imag": lax.imag,
    "complex": lax.complex,
    "clamp": lax.clamp,
    "reshape": lambda x: x,
}
_CHLO: dict[str, Callable[..., Any]] = {
    "asin": lax.asin,
    "acos": lax.acos,
    "atan": lax.atan,
    "sinh": lax.sinh,
    "cosh": lax.cosh,
    "asinh": lax.asinh,
    "acosh": lax.acosh,
    "atanh": lax.atanh,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erf_inv": lax.erf_inv,
    "tan": lax.tan,
    "lgamma": lax.lgamma,
    "digamma": lax.digamma,
    "polygamma": special.polygamma,
    "zeta": lax.zeta,
    "bessel_i1e": lax.bessel_i1e,
    "next_after": lax.nextafter,
    "square": lax.square,
}


def _plain(function: Callable[..., Any]) -> Rule:
    return lambda reader, op, xs: function(*xs)


rules.update({f"stablehlo.{name}": _plain(function) for name, function in _FUNCTIONS.items()})
rules.update({f"chlo.{name}": _plain(function) for name, function in _CHLO.items()})
_COMPARED = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}


@rule("stablehlo.compare")
def _compare(r: _Reader, op: Any, xs: Values) -> Any:
    return _COMPARED[_word(op, "comparison_direction")](*xs)


@rule("stablehlo.convert")
def _convert(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.convert_element_type(xs[0], _dtype_out(op))


@rule("stablehlo.bitcast_convert")
def _bitcast(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.bitcast_convert_type(xs[0], _dtype_out(op))


@rule("stablehlo.reduce_precision")
def _reduce_precision(r: _Reader, op: Any, xs: Values) -> Any:
    bits = [int(str(op.attributes[n]).split(":")[0]) for n in ("exponent_bits", "mantissa_bits")]
    return lax.reduce_precision(xs[0], *bits)


@rule("stablehlo.constant")
def _constant(r: _Reader, op: Any, xs: Values) -> Any:
    shape, dtype = _out(op)
    if is_narrow(dtype) or dtype_kind(dtype) == "c":
        return _constant_of(str(op), shape, dtype)
    found = np.array(op.attributes["value"])
    return np.broadcast_to(found.astype(dtype), shape).copy()  # a literal if it has no axes


_TOKEN = re.compile(r"0x[0-9A-Fa-f]+|true|false|-?\d[\d.]*(?:[eE][+-]?\d+)?")


def _constant_of(text: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array from text like dense<[1, 2]>, as the bindings do not support narrow and complex numbers."""
    body = text[text.index("dense<") + 6 : text.rindex("> : ")]
    if body.startswith('"0x'):
        found = np.frombuffer(bytes.fromhex(body[3:-1]), dtype)
    else:
        part = np.dtype(f"f{dtype.itemsize // 2}") if dtype_kind(dtype) == "c" else dtype
        numbers = np.array([_number_of(token, part) for token in _TOKEN.findall(body)], part)
        found = numbers.view(dtype)
    return (np.full(shape, found[0], dtype) if found.size == 1 else found.reshape(shape)).copy()


def _number_of(token: str, dtype: Any) -> Any:
    if token.startswith("0x") and dtype_kind(dtype) == "f":
        return np.frombuffer(int(token, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
    if token in ("true", "false"):
        return token == "true"
    return np.asarray(float(token) if dtype_kind(dtype) == "f" else int(token, 0)).astype(dtype)[()]


@rule("stablehlo.optimization_barrier")
def _barrier(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.optimization_barrier(tuple(xs))


@rule("func.call", "stablehlo.composite")
def _call(r: _Reader, op: Any, xs: Values) -> Any:
    name = str(op.attributes["callee" if op.name == "func.call" else "decomposition"]).lstrip("@")
    return r.call(r.functions[name], xs)


@rule("stablehlo.custom_call")
def _custom_call(r: _Reader, op: Any, xs: Values) -> Any:
    if str(op.attributes["call_target_name"]).strip('"') == DYNAMIC_WINDOWS:
        return _dynamic_reduce_window(r, op, xs)
    return call_by_name(op, xs)


def _dynamic_reduce_window(r: _Reader, op: Any, xs: Values) -> Any:
    """A reduce_window whose window and padding follow from sizes, which jax.export writes as a call."""
    called = r.functions[str(op.attributes["called_computations"][0]).lstrip("@")]
    known = _COMBINE.get(_body_kind(called))
    *settings, padding = (_known(x, "a window") for x in xs[2:])
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    window, strides, base, spread = settings
    combine = known or (lambda a, b: r.call(called, [a, b])[0])
    return lax.reduce_window(xs[0], xs[1], combine, window, strides, pairs, base, spread)


@rule("sdy.sharding_constraint", "sdy.mesh")
def _sharding(r: _Reader, op: Any, xs: Values) -> Any:
    """Values are the same, however they are divided."""
    return xs


@rule("stablehlo.rng_bit_generator")
def _random_bits(r: _Reader, op: Any, xs: Values) -> Any:
    shape, dtype = _type_of(op.results[1].type)
    return lax.rng_bit_generator(xs[0], shape, dtype, lax.RandomAlgorithm[f"RNG_{_word(op, 'rng_algorithm')}"])


# ------------------------------------------------------------------ sizes that are computed
def _known(x: Any, what: str) -> tuple[int, ...]:
    """The numbers of an operand that follows from sizes."""
    if not isinstance(x, (np.ndarray, np.generic)):
        raise UnsupportedError(f"The module computes {what} from values of arrays.", "Only sizes may determine sizes.")
    return tuple(int(n) for n in np.ravel(x))


@rule("stablehlo.get_dimension_size")
def _dimension_size(r: _Reader, op: Any, xs: Values) -> Any:
    return np.asarray(xs[0].shape[int(op.attributes["dimension"])], np.int32)


@rule("stablehlo.dynamic_broadcast_in_dim")
def _dynamic_broadcast(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.broadcast_in_dim(xs[0], _known(xs[1], "a shape"), _list(op, "broadcast_dimensions"))


@rule("stablehlo.dynamic_reshape")
def _dynamic_reshape(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.reshape(xs[0], _known(xs[1], "a shape"))


@rule("stablehlo.dynamic_iota")
def _dynamic_iota(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.broadcasted_iota(_dtype_out(op), _known(xs[0], "a shape"), int(op.attributes["iota_dimension"]))


@rule("stablehlo.real_dynamic_slice")
def _real_dynamic_slice(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.slice(xs[0], *(_known(x, "the limits of a slice") for x in xs[1:]))


@rule("stablehlo.dynamic_pad")
def _dynamic_pad(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.pad(xs[0], xs[1], list(zip(*(_known(x, "a padding") for x in xs[2:]), strict=True)))


@rule("stablehlo.dynamic_gather")
def _dynamic_gather(r: _Reader, op: Any, xs: Values) -> Any:
    return _gathered(op, xs[0], xs[1], _known(xs[2], "the sizes of slices"))


# ------------------------------------------------------------------ shapes
@rule("stablehlo.reshape")
def _reshape(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.reshape(xs[0], _out(op)[0])


@rule("stablehlo.transpose")
def _transpose(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.transpose(xs[0], _list(op, "permutation"))


@rule("stablehlo.broadcast_in_dim")
def _broadcast(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.broadcast_in_dim(xs[0], _out(op)[0], _list(op, "broadcast_dimensions"))


@rule("stablehlo.iota")
def _iota(r: _Reader, op: Any, xs: Values) -> Any:
    shape, dtype = _out(op)
    return lax.broadcasted_iota(dtype, shape, int(op.attributes["iota_dimension"]))


@rule("stablehlo.slice")
def _slice(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.slice(xs[0], _list(op, "start_indices"), _list(op, "limit_indices"), _list(op, "strides"))


@rule("stablehlo.reverse")
def _reverse(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.rev(xs[0], _list(op, "dimensions"))


@rule("stablehlo.concatenate")
def _concatenate(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.concatenate(xs, int(op.attributes["dimension"]))


@rule("stablehlo.pad")
def _pad(r: _Reader, op: Any, xs: Values) -> Any:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return lax.pad(xs[0], xs[1], list(zip(*(_list(op, n) for n in names), strict=True)))


@rule("stablehlo.dynamic_slice")
def _dynamic_slice(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.dynamic_slice(xs[0], xs[1:], _list(op, "slice_sizes"))


@rule("stablehlo.dynamic_update_slice")
def _dynamic_update(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.dynamic_update_slice(xs[0], xs[1], xs[2:])


# ------------------------------------------------------------------ reductions and order
def _body_kind(op: Any, number: int = 0) -> str:
    """The single operation of a region of two scalars; "second" if it returns the second; "" otherwise."""
    block = op.regions[number].blocks[0]
    operations = [o.operation for o in block.operations]
    if len(operations) == 1 and len(operations[0].operands) == 1:
        return "second" if operations[0].operands[0] == block.arguments[1] else ""
    if len(operations) != 2 or len(block.arguments) != 2 or operations[1].operands[0] != operations[0].results[0]:
        return ""
    same = set(operations[0].operands) == set(block.arguments)
    return operations[0].name.removeprefix("stablehlo.") if same else ""


_COMBINE = {
    "add": lax.add,
    "multiply": lax.mul,
    "maximum": lax.max,
    "minimum": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
}


@rule("stablehlo.reduce")
def _reduce(r: _Reader, op: Any, xs: Values) -> Any:
    count, axes = len(xs) // 2, _list(op, "dimensions")
    known = _COMBINE.get(_body_kind(op))
    if known is not None:
        return lax.reduce(xs[0], xs[1], known, axes)
    body = r.region(op)
    if count == 1:
        return lax.reduce(xs[0], xs[1], lambda a, b: body(a, b)[0], axes)
    return lax.reduce(tuple(xs[:count]), tuple(xs[count:]), lambda a, b: tuple(body(*a, *b)), axes)


@rule("stablehlo.reduce_window")
def _reduce_window(r: _Reader, op: Any, xs: Values) -> Any:
    if len(xs) != 2:
        raise UnsupportedError("rlx reads reduce_window of one operand only.")
    window = _list(op, "window_dimensions")
    ones = [1] * len(window)
    kind = _COMBINE.get(_body_kind(op))
    body = r.region(op)
    return lax.reduce_window(
        xs[0],
        xs[1],
        kind or (lambda a, b: body(a, b)[0]),
        window,
        _list(op, "window_strides", ones),
        _padding(op, len(window)),
        _list(op, "base_dilations", ones),
        _list(op, "window_dilations", ones),
    )


@rule("stablehlo.select_and_scatter")
def _select_and_scatter(r: _Reader, op: Any, xs: Values) -> Any:
    """Apply the derivative of the windows' extremes to the sources."""
    operand, source, start = xs
    block = op.regions[0].blocks[0]
    direction = _word(block.operations[0].operation, "comparison_direction")
    if _body_kind(op, 1) != "add" or direction not in ("GE", "GT", "LE", "LT"):
        raise UnsupportedError("rlx reads select_and_scatter of extremes and sums only.")
    largest = direction in ("GE", "GT")
    window = _list(op, "window_dimensions")
    ones = [1] * len(window)
    extreme, edge = (lax.max, -np.inf) if largest else (lax.min, np.inf)
    first = jnp.asarray(edge, operand.dtype)

    def pool(x: Any) -> Any:
        return lax.reduce_window(
            x, first, extreme, window, _list(op, "window_strides", ones), _padding(op, len(window))
        )

    (found,) = vjp(pool, operand)[1](source)
    return lax.add(found, jnp.broadcast_to(start, found.shape))


@rule("stablehlo.sort")
def _sort(r: _Reader, op: Any, xs: Values) -> Any:
    """Infer the order (ascending or descending) and the number of keys by calling the comparator on small numbers."""
    block = op.regions[0].blocks[0]
    looked = {a for o in block.operations for a in o.operation.operands}
    keys = [n for n in range(len(xs)) if any(block.arguments[2 * n + k] in looked for k in range(2))]
    if keys != list(range(len(keys))):
        raise UnsupportedError("rlx reads sorts by leading operands only.")
    body, axis = r.region(op), int(op.attributes["dimension"])

    def earlier(a: int, b: int) -> bool:
        pairs = [np.asarray(v).astype(x.dtype) for x in xs for v in (a, b)]
        with ensure_compile_time_eval():
            return bool(np.asarray(body(*pairs)[0]))

    order = earlier(0, 1), earlier(1, 0), earlier(0, 0)
    if order == (True, False, False):
        return lax.sort(tuple(xs), dimension=axis, num_keys=len(keys), is_stable=True)
    if order == (False, True, False) and len(keys) == 1:
        at = lax.broadcasted_iota(jnp.int32, xs[0].shape, axis)
        last = lax.rev(
            lax.sort((lax.rev(xs[0], (axis,)), lax.rev(at, (axis,))), dimension=axis, num_keys=1)[1], (axis,)
        )
        return tuple(jnp.take_along_axis(x, last, axis) for x in xs)
    raise UnsupportedError("rlx reads sorts in ascending and descending order only.")


# ------------------------------------------------------------------ products
@rule("stablehlo.dot_general")
def _dot(r: _Reader, op: Any, xs: Values) -> Any:
    n = _numbers(op, "dot_dimension_numbers")
    contracting = n.get("lhs_contracting_dimensions", ()), n.get("rhs_contracting_dimensions", ())
    batch = n.get("lhs_batching_dimensions", ()), n.get("rhs_batching_dimensions", ())
    return lax.dot_general(xs[0], xs[1], (contracting, batch), _precision(op), preferred_element_type=_dtype_out(op))


def _precision(op: Any) -> str | None:
    """The precision to which both operands may be rounded; None for the global setting."""
    asked = str(op.attributes["precision_config"]) if "precision_config" in op.attributes else ""
    return "high" if asked.count("precision HIGH>") == 2 else None


@rule("stablehlo.convolution")
def _convolution(r: _Reader, op: Any, xs: Values) -> Any:
    text = str(op.attributes["dimension_numbers"])
    left, right, out = re.findall(r"\[([^\]]*)\]", text)

    def places(layout: str, names: str) -> tuple[int, ...]:
        letters = [part.strip() for part in layout.split(",")]
        rank = len(letters) - 2
        return tuple(letters.index(letter) for letter in (*names, *map(str, range(rank))))

    numbers = lax.ConvDimensionNumbers(places(left, "bf"), places(right, "oi"), places(out, "bf"))
    rank = len(xs[0].shape) - 2
    ones = [1] * rank
    kernel = xs[1]
    if "window_reversal" in op.attributes and any(map(bool, op.attributes["window_reversal"])):
        turned = [numbers.rhs_spec[2 + n] for n, t in enumerate(op.attributes["window_reversal"]) if bool(t)]
        kernel = lax.rev(kernel, turned)
    return lax.conv_general_dilated(
        xs[0],
        kernel,
        _list(op, "window_strides", ones),
        _padding(op, rank),
        _list(op, "lhs_dilation", ones),
        _list(op, "rhs_dilation", ones),
        numbers,
        int(op.attributes["feature_group_count"]),
        int(op.attributes["batch_group_count"]),
        _precision(op),
    )


@rule("stablehlo.cholesky")
def _cholesky(r: _Reader, op: Any, xs: Values) -> Any:
    lower = "lower" in op.attributes and str(op.attributes["lower"]) == "true"
    found = lax.linalg.cholesky(xs[0] if lower else jnp.swapaxes(xs[0], -1, -2).conj(), symmetrize_input=False)
    return found if lower else jnp.swapaxes(found, -1, -2).conj()


@rule("stablehlo.triangular_solve")
def _triangular(r: _Reader, op: Any, xs: Values) -> Any:
    way = _word(op, "transpose_a")
    said = {n: str(op.attributes[n]) == "true" for n in ("left_side", "lower", "unit_diagonal")}
    return lax.linalg.triangular_solve(
        xs[0], xs[1], transpose_a=way != "NO_TRANSPOSE", conjugate_a=way == "ADJOINT", **said
    )


@rule("stablehlo.fft")
def _fft(r: _Reader, op: Any, xs: Values) -> Any:
    return lax.fft(xs[0], _word(op, "fft_type"), _list(op, "fft_length"))


# ------------------------------------------------------------------ elements by index
def _indices(indices: Any, at: int) -> Any:
    """Indices with components along the last axis."""
    return indices[..., None] if at == indices.ndim else jnp.moveaxis(indices, at, -1)


@rule("stablehlo.gather")
def _gather(r: _Reader, op: Any, xs: Values) -> Any:
    return _gathered(op, xs[0], xs[1], _list(op, "slice_sizes"))


def _gathered(op: Any, operand: Any, indices: Any, sizes: Sequence[int]) -> Any:
    n = _numbers(op, "dimension_numbers")
    numbers = lax.GatherDimensionNumbers(
        n.get("offset_dims", ()),
        n.get("collapsed_slice_dims", ()),
        n.get("start_index_map", ()),
        n.get("operand_batching_dims", ()),
        n.get("start_indices_batching_dims", ()),
    )
    return lax.gather(operand, _indices(indices, n.get("index_vector_dim", 0)), numbers, sizes, mode="clip")


@rule("stablehlo.scatter")
def _scatter(r: _Reader, op: Any, xs: Values) -> Any:
    if len(xs) != 3:
        raise UnsupportedError("rlx reads scatters of one operand only.")
    n = _numbers(op, "scatter_dimension_numbers")
    numbers = lax.ScatterDimensionNumbers(
        n.get("update_window_dims", ()),
        n.get("inserted_window_dims", ()),
        n.get("scatter_dims_to_operand_dims", ()),
        n.get("input_batching_dims", ()),
        n.get("scatter_indices_batching_dims", ()),
    )
    functions: dict[str, Any] = {
        "second": lax.scatter,
        "add": lax.scatter_add,
        "multiply": lax.scatter_mul,
        "maximum": lax.scatter_max,
        "minimum": lax.scatter_min,
    }
    kind = _body_kind(op)
    if kind not in functions:
        raise UnsupportedError("rlx reads scatters that set, add, multiply or take extremes only.")
    where = _indices(xs[1], n.get("index_vector_dim", 0))
    return functions[kind](xs[0], where, xs[2], numbers, mode="drop")


# ------------------------------------------------------------------ control flow
@rule("stablehlo.while")
def _while(r: _Reader, op: Any, xs: Values) -> Any:
    condition, body = r.region(op, 0), r.region(op, 1)
    return lax.while_loop(lambda c: condition(*c)[0], lambda c: tuple(body(*c)), tuple(xs))


def _results(region: Callable[..., list[Any]]) -> tuple[Any, ...]:
    return tuple(region())


@rule("stablehlo.case", "stablehlo.if")
def _case(r: _Reader, op: Any, xs: Values) -> Any:
    branches = [partial(_results, r.region(op, n)) for n in range(len(op.regions))]
    if op.name == "stablehlo.if":
        return lax.cond(xs[0], *branches)
    inside = (xs[0] >= 0) & (xs[0] < len(branches))
    return lax.switch(jnp.where(inside, xs[0], len(branches) - 1), branches)
