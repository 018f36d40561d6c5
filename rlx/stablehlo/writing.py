"""A program as StableHLO text: elementwise operations by the scalar alphabet, a rule for each of the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx.backends.claims import Claims
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.ir.types import TensorType, dtype_kind, is_complex, is_float, is_key, is_narrow
from rlx.passes.decompose_routines import decompose_routines
from rlx.stablehlo.text import Value, array_attribute, attributes, literal
from rlx.standalone.spelling import entering, is_elementwise, program_for_writing, refused, scalar_code

__all__ = ["write_program"]

FORMAT = "StableHLO"
Values = list[Value]
Rule = Callable[["Writer", Equation, Values], Values]
rules: dict[str, Rule] = {}
INT32, INT64, BOOL = np.dtype(np.int32), np.dtype(np.int64), np.dtype(bool)
FLOAT32 = np.dtype(np.float32)
# the other factorisations and solutions become loops and products
ROUTINES = Claims(routines=frozenset({"cholesky", "triangular_solve", "fft"}))


def write_program(program: Program, name: str) -> str:
    """A module with the program as its function `main`. Raises UnsupportedError, with the user's line."""
    program_for_writing(program, FORMAT)
    writer = Writer()
    inputs = [Value(f"%arg{n}", v.type.shape, v.type.dtype) for n, v in enumerate(program.inputs)]
    writer.depth = 2
    outputs = writer.program(program, inputs)
    listed = ", ".join(f"{v}: {v.type}" for v in inputs)
    results = ", ".join(v.type for v in outputs)
    title = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    head = f"module @{title} {{\n  func.func public @main({listed}) -> ({results}) {{\n"
    back = f"    func.return {', '.join(outputs)} : {results}\n" if outputs else "    func.return\n"
    return head + "".join(f"{line}\n" for line in writer.lines) + back + "  }\n}\n"


def _shape_of(type: TensorType) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype; keys are their words."""
    if is_key(type.dtype):
        key: Any = type.dtype
        return (*type.shape, key.words), np.dtype(np.uint32)
    return type.shape, type.dtype


class Writer:
    """Lines of a function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.numbers = itertools.count()
        self.known: list[dict[Any, Value]] = [{}]  # constants, for each region

    def put(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.depth + line)

    def fresh(self, shape: Sequence[int], dtype: Any) -> Value:
        """A new value."""
        return Value(f"%{next(self.numbers)}", shape, dtype)

    def op(self, name: str, inputs: Sequence[Value], shape: Sequence[int], dtype: Any, **values: str) -> Value:
        """The result of an operation."""
        return self.several(name, inputs, [(shape, dtype)], **values)[0]

    def several(self, name: str, inputs: Sequence[Value], results: Sequence[Any], **values: str) -> Values:
        """The results of an operation, of these shapes and dtypes."""
        found = [self.fresh(*r) for r in results]
        self.put(self._head(name, inputs, found) + attributes(values) + self._tail(inputs, found))
        return found

    def _head(self, name: str, inputs: Sequence[Value], found: Values) -> str:
        left = f"{', '.join(found)} = " if found else ""
        return f'{left}"{name}"({", ".join(inputs)})'

    def _tail(self, inputs: Sequence[Value], found: Values) -> str:
        return f" : ({', '.join(v.type for v in inputs)}) -> ({', '.join(v.type for v in found)})"

    def with_regions(
        self,
        name: str,
        inputs: Sequence[Value],
        results: Sequence[Any],
        regions: Sequence[tuple[Sequence[Any], Callable[[Values], Values]]],
        **values: str,
    ) -> Values:
        """The results of an operation with regions: for each types of its arguments, and what it computes of them."""
        found = [self.fresh(*r) for r in results]
        self.put(self._head(name, inputs, found) + attributes(values) + " ({")
        for number, (types, body) in enumerate(regions):
            if number:
                self.put("}, {")
            with self.region():
                arguments = [self.fresh(*t) for t in types]
                if arguments:
                    self.put(f"^bb0({', '.join(f'{a}: {a.type}' for a in arguments)}):")
                outs = body(arguments)
                self.put(f'"stablehlo.return"({", ".join(outs)}) : ({", ".join(v.type for v in outs)}) -> ()')
        self.put("})" + self._tail(inputs, found))
        return found

    @contextmanager
    def region(self) -> Generator[None]:
        """Constants of a region are its own."""
        self.depth += 1
        self.known.append({})
        yield
        self.known.pop()
        self.depth -= 1

    def constant(self, value: Any, dtype: Any) -> Value:
        """An array that is known."""
        array = np.asarray(value).astype(dtype)
        key = (array.dtype, array.shape, array.tobytes())
        found = self.known[-1].get(key)
        if found is None:
            found = self.known[-1][key] = self.fresh(array.shape, array.dtype)
            self.put(
                f'{found} = "stablehlo.constant"() <{{value = {literal(array)} : {found.type}}}> : () -> {found.type}'
            )
        return found

    def spread(self, x: Value, shape: Sequence[int]) -> Value:
        """An operand broadcast as NumPy does."""
        if x.shape == tuple(shape):
            return x
        return self.broadcast(x, shape, range(len(shape) - len(x.shape), len(shape)))

    def broadcast(self, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """An array with more axes or larger ones."""
        return self.op("stablehlo.broadcast_in_dim", [x], shape, x.dtype, broadcast_dimensions=array_attribute(dims))

    def convert(self, x: Value, dtype: Any) -> Value:
        """Another dtype."""
        return x if x.dtype == dtype else self.op("stablehlo.convert", [x], x.shape, dtype)

    def binary(self, name: str, x: Value, y: Value) -> Value:
        """An operation on two arrays of one type."""
        return self.op(f"stablehlo.{name}", [x, self.spread(y, x.shape)], x.shape, x.dtype)

    def compare(self, direction: str, x: Value, y: Value) -> Value:
        """A comparison."""
        kind = {"f": "FLOAT", "c": "FLOAT", "i": "SIGNED"}.get(dtype_kind(x.dtype), "UNSIGNED")
        return self.op(
            "stablehlo.compare",
            [x, self.spread(y, x.shape)],
            x.shape,
            BOOL,
            comparison_direction=f"#stablehlo<comparison_direction {direction}>",
            compare_type=f"#stablehlo<comparison_type {kind}>",
        )

    def select(self, test: Value, x: Value, y: Value) -> Value:
        """x where the test holds, else y."""
        return self.op("stablehlo.select", [self.spread(test, x.shape), x, self.spread(y, x.shape)], x.shape, x.dtype)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Other axes."""
        return x if x.shape == tuple(shape) else self.op("stablehlo.reshape", [x], shape, x.dtype)

    def slice(self, x: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] = ()) -> Value:
        """A part of an array."""
        steps = strides or [1] * len(starts)
        shape = [max(0, -(-(b - a) // s)) for a, b, s in zip(starts, limits, steps, strict=True)]
        return self.op(
            "stablehlo.slice",
            [x],
            shape,
            x.dtype,
            start_indices=array_attribute(starts),
            limit_indices=array_attribute(limits),
            strides=array_attribute(steps),
        )

    def pad(self, x: Value, value: Value, config: Sequence[tuple[int, int, int]]) -> Value:
        """Padding before, behind and between."""
        shape = [low + high + n + max(n - 1, 0) * d for n, (low, high, d) in zip(x.shape, config, strict=True)]
        lows, highs, between = zip(*config, strict=True) if config else ((), (), ())
        return self.op(
            "stablehlo.pad",
            [x, value],
            shape,
            x.dtype,
            edge_padding_low=array_attribute(lows),
            edge_padding_high=array_attribute(highs),
            interior_padding=array_attribute(between),
        )

    def reduce(self, kind: str, x: Value, axes: Sequence[int], start: Any) -> Value:
        """A reduction by an operation of StableHLO; of small floats in float32."""
        if not axes:
            return x
        wide = self.convert(x, FLOAT32) if is_float(x.dtype) and is_narrow(x.dtype) else x
        shape = [n for a, n in enumerate(x.shape) if a not in axes]
        scalar = ((), wide.dtype)
        body = lambda xs: [self.op(f"stablehlo.{kind}", xs, (), wide.dtype)]  # noqa: E731
        (found,) = self.with_regions(
            "stablehlo.reduce",
            [wide, self.constant(start, wide.dtype)],
            [(shape, wide.dtype)],
            [([scalar, scalar], body)],
            dimensions=array_attribute(axes),
        )
        return self.convert(found, x.dtype)

    def iota(self, shape: Sequence[int], dtype: Any, axis: int) -> Value:
        """The place along an axis."""
        return self.op("stablehlo.iota", [], shape, dtype, iota_dimension=f"{axis} : i64")

    # -------------------------------------------------------------- programs
    def program(self, program: Program, inputs: Sequence[Value]) -> Values:
        """The values of a program's results."""
        program = decompose_routines(program, ROUTINES)
        names: dict[Any, Value] = dict(zip(program.inputs, inputs, strict=True))
        arrays = {v: value.numpy() if hasattr(value, "numpy") else np.asarray(value) for v, value in program.constants}

        def read(atom: Atom) -> Value:
            if isinstance(atom, Literal):
                return self.constant(atom.value, atom.type.dtype)
            if atom not in names:
                array = arrays[atom]
                if is_key(atom.type.dtype):
                    key: Any = atom.type.dtype
                    array = key.words_of(array)
                names[atom] = self.constant(array, array.dtype)
            return names[atom]

        for equation in program.equations:
            found = self.equation(equation, list(map(read, equation.inputs)))
            names.update(zip(equation.outputs, found, strict=True))
        return list(map(read, program.outputs))

    def equation(self, equation: Equation, inputs: Values) -> Values:
        """The values of an equation's results. Raises UnsupportedError."""
        name = equation.primitive.name
        if name in rules:
            return rules[name](self, equation, inputs)
        types = [*(a.type for a in equation.inputs), *(v.type for v in equation.outputs)]
        if any(is_complex(t.dtype) for t in types) and (name in _COMPLEX or name in _COMPLEX_CHLO):
            return [_complex(self, equation, inputs)]
        if is_elementwise(equation):
            return _elementwise(self, equation, inputs)
        if equation.primitive.decomposes:  # a routine whose results have no elements
            return [self.constant(np.zeros(shape), dtype) for shape, dtype in _types(equation.outputs)]
        raise refused(equation, FORMAT)


def _types(variables: Sequence[Var]) -> list[Any]:
    return [_shape_of(v.type) for v in variables]


# ------------------------------------------------------------------ elementwise operations
_SAME = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negate",
    "abs": "abs",
    "sign": "sign",
    "pow": "power",
    "atan2": "atan2",
    "floor": "floor",
    "ceil": "ceil",
    "round_even": "round_nearest_even",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "cbrt": "cbrt",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log": "log",
    "log1p": "log_plus_one",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "tanh": "tanh",
    "logistic": "logistic",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "not": "not",
    "shift_left": "shift_left",
    "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "population_count": "popcnt",
    "count_leading_zeros": "count_leading_zeros",
    "rem": "remainder",
    "min": "minimum",
    "max": "maximum",
    "select": "select",
}
_CHLO = "asin acos atan sinh cosh asinh acosh atanh erf erfc erf_inv".split()
_SPECIAL = {
    "lgamma": "lgamma",
    "digamma": "digamma",
    "polygamma": "polygamma",
    "zeta": "zeta",
    "bessel_i1e": "bessel_i1e",
}
_COMPARED = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


def _elementwise(w: Writer, equation: Equation, inputs: Values) -> Values:
    code = scalar_code(equation)
    shape = np.broadcast_shapes(*(x.shape for x in inputs)) if inputs else equation.outputs[0].type.shape
    found: Values = []
    for step in code.steps:
        args = [found[a] for a in step.args]
        if step.op == "input":
            found.append(w.spread(inputs[step.attribute], shape))
        elif step.op == "constant":
            scalar = w.constant(step.attribute, step.dtype)
            found.append(w.broadcast(scalar, shape, ()) if shape else scalar)
        else:
            found.append(_step(w, equation, step, args, shape))
    return [found[at] for at in code.results]


def _step(w: Writer, equation: Equation, step: Any, args: Values, shape: tuple[int, ...]) -> Value:
    op, dtype = step.op, step.dtype
    if op in _COMPARED:
        return w.compare(_COMPARED[op], *args)
    if op == "cast":
        return w.convert(args[0], dtype)
    if op == "bitcast":
        return w.op("stablehlo.bitcast_convert", args, shape, dtype)
    if op == "is_finite":
        return w.op("stablehlo.is_finite", args, shape, BOOL)
    if op == "fma":
        return w.binary("add", w.binary("multiply", *args[:2]), args[2])
    if op == "trunc":
        return w.binary("multiply", w.op("stablehlo.sign", args, shape, dtype), _of_size(w, "floor", args[0]))
    if op in ("exp2", "log2"):
        factor = w.spread(w.constant(np.log(2.0), dtype), shape)
        if op == "exp2":
            return w.binary("power", w.spread(w.constant(2, dtype), shape), args[0])
        return w.binary("divide", w.op("stablehlo.log", args, shape, dtype), factor)
    if op == "sign" and dtype_kind(dtype) == "u":
        return w.binary("minimum", args[0], w.constant(1, dtype))
    if op == "copysign":
        return _copysign(w, *args)
    if op in _CHLO:
        return w.op(f"chlo.{op}", args, shape, dtype)
    if op == "nextafter":
        return w.op("chlo.next_after", args, shape, dtype)
    if op == "special" and step.attribute in _SPECIAL:
        return w.op(f"chlo.{_SPECIAL[step.attribute]}", args, shape, dtype)
    if op not in _SAME:
        raise refused(equation, FORMAT, f"there is no {step.attribute if op == 'special' else op}")
    return w.op(f"stablehlo.{_SAME[op]}", args, shape, dtype)


def _of_size(w: Writer, name: str, x: Value) -> Value:
    return w.op(f"stablehlo.{name}", [w.op("stablehlo.abs", [x], x.shape, x.dtype)], x.shape, x.dtype)


def _copysign(w: Writer, x: Value, sign: Value) -> Value:
    """By the bits, as zeros and NaN have signs."""
    bits = np.dtype(f"u{x.dtype.itemsize}")
    top = w.spread(w.constant(1 << (8 * bits.itemsize - 1), bits), x.shape)
    rest = w.spread(w.constant((1 << (8 * bits.itemsize - 1)) - 1, bits), x.shape)
    first, second = (w.op("stablehlo.bitcast_convert", [v], v.shape, bits) for v in (x, sign))
    joined = w.binary("or", w.binary("and", first, rest), w.binary("and", second, top))
    return w.op("stablehlo.bitcast_convert", [joined], x.shape, x.dtype)


_COMPLEX = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "divide": "divide",
    "negative": "negate",
    "exp": "exponential",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "tanh": "tanh",
    "power": "power",
    "absolute": "abs",
    "real": "real",
    "imag": "imag",
    "complex": "complex",
    "logistic": "logistic",
    "expm1": "exponential_minus_one",
    "log1p": "log_plus_one",
    "square": "",
    "conj": "",
    "convert": "",
    "select": "",
    "equal": "",
    "not_equal": "",
    "integer_power": "",
    "exp2": "",
}
_COMPLEX_CHLO = "asin acos atan sinh cosh asinh acosh atanh".split()


def _complex(w: Writer, e: Equation, xs: Values) -> Value:
    name, dtype = e.primitive.name, e.outputs[0].type.dtype
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    xs = [w.spread(x, shape) for x in xs]
    if name == "select":
        return w.select(*xs)
    if name in ("equal", "not_equal"):
        return w.compare("EQ" if name == "equal" else "NE", *xs)
    if name in _COMPLEX_CHLO:
        return w.op(f"chlo.{name}", xs, shape, dtype)
    if name == "exp2":
        return w.op(
            "stablehlo.exponential", [w.binary("multiply", xs[0], w.constant(np.log(2.0), dtype))], shape, dtype
        )
    if name == "square":
        return w.binary("multiply", xs[0], xs[0])
    if name == "integer_power":
        return w.binary("power", xs[0], w.constant(e.params["exponent"], dtype))
    if name == "convert":
        real = xs[0]
        if is_complex(real.dtype) and not is_complex(dtype):
            real = w.op("stablehlo.real", [real], shape, np.dtype(f"f{real.dtype.itemsize // 2}"))
        return w.convert(real, dtype)
    if name == "conj":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        real, imaginary = (w.op(f"stablehlo.{n}", xs, shape, part) for n in ("real", "imag"))
        return w.op("stablehlo.complex", [real, w.op("stablehlo.negate", [imaginary], shape, part)], shape, dtype)
    return w.op(f"stablehlo.{_COMPLEX[name]}", xs, shape, dtype)


# ------------------------------------------------------------------ shapes
rule = entering(rules)  # how primitives of these names are written


@rule("stop_gradient", "copy", "checkpoint_name", "random_wrap", "random_unwrap")
def _same(w: Writer, e: Equation, xs: Values) -> Values:
    return xs


@rule("optimization_barrier")
def _barrier(w: Writer, e: Equation, xs: Values) -> Values:
    return w.several("stablehlo.optimization_barrier", xs, [(x.shape, x.dtype) for x in xs])


@rule("reshape")
def _reshape(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.reshape(xs[0], _shape_of(e.outputs[0].type)[0])]


@rule("transpose")
def _transpose(w: Writer, e: Equation, xs: Values) -> Values:
    shape, dtype = _shape_of(e.outputs[0].type)
    order = [*e.params["permutation"], *range(len(e.params["permutation"]), len(shape))]
    return [w.op("stablehlo.transpose", xs, shape, dtype, permutation=array_attribute(order))]


@rule("broadcast_in_dim")
def _broadcast(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.broadcast(xs[0], e.params["shape"], e.params["dims"])]


@rule("iota")
def _iota(w: Writer, e: Equation, xs: Values) -> Values:
    kind = e.params["type"]
    return [w.iota(kind.shape, kind.dtype, e.params["axis"])]


@rule("slice")
def _slice(w: Writer, e: Equation, xs: Values) -> Values:
    rest = xs[0].shape[len(e.params["starts"]) :]
    p = e.params
    return [w.slice(xs[0], (*p["starts"], *[0] * len(rest)), (*p["limits"], *rest), (*p["strides"], *[1] * len(rest)))]


@rule("reverse")
def _reverse(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.op("stablehlo.reverse", xs, xs[0].shape, xs[0].dtype, dimensions=array_attribute(e.params["axes"]))]


@rule("concatenate")
def _concatenate(w: Writer, e: Equation, xs: Values) -> Values:
    shape, dtype = _shape_of(e.outputs[0].type)
    return [w.op("stablehlo.concatenate", xs, shape, dtype, dimension=f"{e.params['axis']} : i64")]


@rule("pad")
def _pad(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.pad(xs[0], xs[1], e.params["config"])]


# ------------------------------------------------------------------ reductions and order
def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if is_float(dtype) else False if dtype_kind(dtype) == "b" else _limits(dtype)[0]


def _highest(dtype: np.dtype) -> Any:
    return np.inf if is_float(dtype) else True if dtype_kind(dtype) == "b" else _limits(dtype)[1]


def _limits(dtype: np.dtype) -> tuple[int, int]:
    bits = int("".join(c for c in dtype.name if c.isdigit()))
    return (0, 2**bits - 1) if dtype_kind(dtype) == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _all_ones(dtype: np.dtype) -> Any:
    return True if dtype_kind(dtype) == "b" else _limits(dtype)[1] if dtype_kind(dtype) == "u" else -1


_REDUCTIONS: dict[str, tuple[str, Callable[[np.dtype], Any]]] = {
    "reduce_sum": ("add", lambda d: 0),
    "reduce_prod": ("multiply", lambda d: 1),
    "reduce_max": ("maximum", _lowest),
    "reduce_min": ("minimum", _highest),
    "reduce_and": ("and", _all_ones),
    "reduce_or": ("or", lambda d: 0),
    "reduce_xor": ("xor", lambda d: 0),
}


@rule(*_REDUCTIONS)
def _reduce(w: Writer, e: Equation, xs: Values) -> Values:
    kind, start = _REDUCTIONS[e.primitive.name]
    return [w.reduce(kind, xs[0], e.params["axes"], start(xs[0].dtype))]


@rule("reduce")
def _general_reduce(w: Writer, e: Equation, xs: Values) -> Values:
    count = len(xs) // 2
    computation: Program = e.params["computation"]
    scalars = [((), x.dtype) for x in xs[:count]]
    return w.with_regions(
        "stablehlo.reduce",
        xs,
        _types(e.outputs),
        [([*scalars, *scalars], lambda a: w.program(computation, a))],
        dimensions=array_attribute(e.params["axes"]),
    )


@rule("argmax", "argmin")
def _extreme(w: Writer, e: Equation, xs: Values) -> Values:
    x, axis, dtype = xs[0], e.params["axis"], e.params["index_dtype"]
    kind, start = ("maximum", _lowest) if e.primitive.name == "argmax" else ("minimum", _highest)
    best = w.reduce(kind, x, [axis], start(x.dtype))
    rest = [a for a in range(len(x.shape)) if a != axis]
    whole = w.broadcast(best, x.shape, rest)
    hit = w.compare("EQ", x, whole)
    if is_float(x.dtype):
        hit = w.op("stablehlo.or", [hit, w.compare("NE", x, x)], x.shape, BOOL)
    places = w.iota(x.shape, dtype, axis)
    shown = w.select(hit, places, w.constant(_limits(np.dtype(dtype))[1], dtype))
    return [w.reduce("minimum", shown, [axis], _limits(np.dtype(dtype))[1])]


_CUMULATED = {
    "cumsum": ("add", 0),
    "cumprod": ("multiply", 1),
    "cummax": ("maximum", None),
    "cummin": ("minimum", None),
}


@rule(*_CUMULATED, "cumlogsumexp")
def _cumulate(w: Writer, e: Equation, xs: Values) -> Values:
    """In steps of 1, 2, 4, ... places."""
    x, axis = xs[0], e.params["axis"]
    name = e.primitive.name
    kind, neutral = _CUMULATED.get(name, ("", -np.inf))
    if neutral is None:
        neutral = _lowest(x.dtype) if name == "cummax" else _highest(x.dtype)
    size, distance = x.shape[axis], 1
    wide = w.convert(x, FLOAT32) if is_float(x.dtype) and is_narrow(x.dtype) else x
    while distance < size:
        ends = (-distance, distance) if e.params["reverse"] else (distance, -distance)
        config = [(*ends, 0) if a == axis else (0, 0, 0) for a in range(len(x.shape))]
        moved = w.pad(wide, w.constant(neutral, wide.dtype), config)
        wide = _log_add(w, wide, moved) if not kind else w.binary(kind, wide, moved)
        distance *= 2
    return [w.convert(wide, x.dtype)]


def _log_add(w: Writer, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y))."""
    most = w.binary("maximum", x, y)
    gap = w.op("stablehlo.abs", [w.binary("subtract", x, y)], x.shape, x.dtype)
    less = w.op("stablehlo.exponential", [w.op("stablehlo.negate", [gap], x.shape, x.dtype)], x.shape, x.dtype)
    found = w.binary("add", most, w.op("stablehlo.log_plus_one", [less], x.shape, x.dtype))
    return w.select(w.compare("EQ", x, y), w.binary("add", most, w.constant(np.log(2.0), x.dtype)), found)


def _before(w: Writer, x: Value, y: Value) -> Value:
    """Whether x comes before y: ascending, NaN last; complex numbers by their real part, then the imaginary one."""
    if is_complex(x.dtype):
        part = np.dtype(f"f{x.dtype.itemsize // 2}")
        (a, b), (c, d) = ([w.op(f"stablehlo.{n}", [v], v.shape, part) for n in ("real", "imag")] for v in (x, y))
        same = w.op("stablehlo.not", [w.op("stablehlo.or", [_before(w, a, c), _before(w, c, a)], (), BOOL)], (), BOOL)
        return w.op(
            "stablehlo.or", [_before(w, a, c), w.op("stablehlo.and", [same, _before(w, b, d)], (), BOOL)], (), BOOL
        )
    less = w.compare("LT", x, y)
    if not is_float(x.dtype):
        return less
    last = w.op("stablehlo.and", [w.compare("EQ", x, x), w.compare("NE", y, y)], x.shape, BOOL)
    return w.op("stablehlo.or", [less, last], x.shape, BOOL)


def _sorted(w: Writer, xs: Values, axis: int, keys: int, descending: bool = False) -> Values:
    def earlier(args: Values) -> Values:
        found = None
        for k in reversed(range(keys)):
            a, b = args[2 * k], args[2 * k + 1]
            a, b = (b, a) if descending else (a, b)
            first, later = _before(w, a, b), _before(w, b, a)
            if found is None:
                found = first
            else:
                same = w.op("stablehlo.not", [later], (), BOOL)
                tied = w.op("stablehlo.and", [same, found], (), BOOL)
                found = w.op("stablehlo.or", [first, tied], (), BOOL)
        return [found] if found is not None else []

    pairs = [((), x.dtype) for x in xs for _ in range(2)]
    return w.with_regions(
        "stablehlo.sort",
        xs,
        [(x.shape, x.dtype) for x in xs],
        [(pairs, earlier)],
        dimension=f"{axis} : i64",
        is_stable="true",
    )


@rule("sort")
def _sort(w: Writer, e: Equation, xs: Values) -> Values:
    return _sorted(w, xs, e.params["axis"], e.params["keys"])


@rule("top_k")
def _top(w: Writer, e: Equation, xs: Values) -> Values:
    x, axis = xs[0], e.params.get("axis", len(xs[0].shape) - 1) % len(xs[0].shape)
    places = w.iota(x.shape, e.outputs[1].type.dtype, axis)
    found = _sorted(w, [x, places], axis, 1, descending=True)
    limits = [e.params["k"] if a == axis else n for a, n in enumerate(x.shape)]
    return [w.slice(v, [0] * len(limits), limits) for v in found]


def _window_attributes(p: Any) -> dict[str, str]:
    padding = ", ".join(f"[{a}, {b}]" for a, b in p["padding"])
    return {
        "window_dimensions": array_attribute(p["window"]),
        "window_strides": array_attribute(p["strides"]),
        "base_dilations": array_attribute(p["base_dilation"]),
        "window_dilations": array_attribute(p["window_dilation"]),
        "padding": f"dense<[{padding}]> : tensor<{len(p['padding'])}x2xi64>",
    }


@rule("reduce_window")
def _reduce_window(w: Writer, e: Equation, xs: Values) -> Values:
    p, x = e.params, xs[0]
    kinds: dict[str, Any] = {"add": _REDUCTIONS["reduce_sum"], "mul": _REDUCTIONS["reduce_prod"]}
    kinds |= {"max": _REDUCTIONS["reduce_max"], "min": _REDUCTIONS["reduce_min"]}
    kind, start = kinds[p["op"]]
    if not x.shape:
        return xs
    wide = w.convert(x, FLOAT32) if is_float(x.dtype) and is_narrow(x.dtype) else x
    scalar = ((), wide.dtype)
    (found,) = w.with_regions(
        "stablehlo.reduce_window",
        [wide, w.constant(start(wide.dtype), wide.dtype)],
        [(e.outputs[0].type.shape, wide.dtype)],
        [([scalar, scalar], lambda a: [w.op(f"stablehlo.{kind}", a, (), wide.dtype)])],
        **_window_attributes(p),
    )
    return [w.convert(found, x.dtype)]


@rule("select_and_scatter_add")
def _select_and_scatter(w: Writer, e: Equation, xs: Values) -> Values:
    """Over an operand that is padded with what no window chooses; the padding of the result is cut off."""
    p, (source, operand) = e.params, xs
    if {*p["base_dilation"], *p["window_dilation"]} - {1}:
        raise refused(e, FORMAT, "its windows are dilated")
    largest = p["select"] == ">="
    config = [(a, b, 0) for a, b in p["padding"]]
    edge = _lowest(operand.dtype) if largest else _highest(operand.dtype)
    padded = w.pad(operand, w.constant(edge, operand.dtype), config)
    chosen, added = ((), operand.dtype), ((), source.dtype)
    (found,) = w.with_regions(
        "stablehlo.select_and_scatter",
        [padded, source, w.constant(0, source.dtype)],
        [(padded.shape, source.dtype)],
        [
            ([chosen, chosen], lambda a: [w.compare("GE" if largest else "LE", *a)]),
            ([added, added], lambda a: [w.binary("add", *a)]),
        ],
        window_dimensions=array_attribute(p["window"]),
        window_strides=array_attribute(p["strides"]),
    )
    return [w.pad(found, w.constant(0, source.dtype), [(-a, -b, 0) for a, b, _ in config])]


@rule("select_and_gather_add")
def _select_and_gather(w: Writer, e: Equation, xs: Values) -> Values:
    """The tangent beside each window's first extreme element: NaN is the most extreme, padding never is."""
    p, (tangents, operand) = e.params, xs
    direction = "GT" if p["select"] == ">=" else "LT"
    edge = _lowest(operand.dtype) if p["select"] == ">=" else _highest(operand.dtype)
    count = math.prod(operand.shape)
    starts = [w.constant(edge, operand.dtype), w.constant(0, tangents.dtype), w.constant(count, INT64)]
    arrays = [operand, tangents, w.reshape(w.iota((count,), INT64, 0), operand.shape)]
    numbers = [((), x.dtype) for x in arrays]

    def first(a: Values) -> Values:
        """The one of two (value, tangent, place) that comes before the other."""
        left, right = a[:3], a[3:]
        more = w.compare(direction, left[0], right[0])
        same = w.compare("EQ", left[0], right[0])
        if is_float(operand.dtype):
            one, other = (w.compare("NE", x[0], x[0]) for x in (left, right))
            more = w.binary("or", more, w.binary("and", one, w.op("stablehlo.not", [other], (), BOOL)))
            same = w.binary("or", same, w.binary("and", one, other))
        earlier = w.binary("and", same, w.compare("LT", left[2], right[2]))
        wins = w.binary("or", more, earlier)
        return [w.select(wins, x, y) for x, y in zip(left, right, strict=True)]

    shape = e.outputs[0].type.shape
    results = [(shape, x.dtype) for x in arrays]
    region = ([*numbers, *numbers], first)
    found = w.with_regions("stablehlo.reduce_window", [*arrays, *starts], results, [region], **_window_attributes(p))
    return [found[1]]


@rule("windows")
def _windows(w: Writer, e: Equation, xs: Values) -> Values:
    """Slices, one for each place of a window, side by side."""
    p, out = e.params, e.outputs[0].type
    rank = len(p["window"])
    counts = out.shape[:rank]
    if 0 in out.shape:
        return [w.constant(np.zeros(out.shape), out.dtype)]
    parts = []
    for place in itertools.product(*map(range, p["window"])):
        starts = [o * d for o, d in zip(place, p["dilation"], strict=True)]
        limits = [s + (n - 1) * t + 1 for s, n, t in zip(starts, counts, p["strides"], strict=True)]
        parts.append(w.reshape(w.slice(xs[0], starts, limits, p["strides"]), (*counts, 1)))
    shape = (*counts, len(parts))
    joined = w.op("stablehlo.concatenate", parts, shape, out.dtype, dimension=f"{rank} : i64")
    return [w.reshape(joined, out.shape)]


@rule("overlap_add")
def _overlap_add(w: Writer, e: Equation, xs: Values) -> Values:
    """Each place of a window spread out over the whole array, and all added."""
    p, out, x = e.params, e.outputs[0].type, xs[0]
    rank = len(p["shape"])
    counts, window = x.shape[:rank], x.shape[rank:]
    total = w.spread(w.constant(0, out.dtype), out.shape)
    if 0 in x.shape:
        return [total]
    for place in itertools.product(*map(range, window)):
        limits = (*counts, *(o + 1 for o in place))
        part = w.reshape(w.slice(x, (*[0] * rank, *place), limits), counts)
        config = []
        for size, n, o, d, s in zip(p["shape"], counts, place, p["dilation"], p["strides"], strict=True):
            config.append((o * d, size - o * d - (n - 1) * s - 1, s - 1))
        total = w.binary("add", total, w.pad(part, w.constant(0, out.dtype), config))
    return [total]


# ------------------------------------------------------------------ products
@rule("dot_general")
def _dot(w: Writer, e: Equation, xs: Values) -> Values:
    (left, right), (left_batch, right_batch) = e.params["dimension_numbers"]
    out = e.outputs[0].type
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {[*left_batch]}, rhs_batching_dimensions = {[*right_batch]},"
        f" lhs_contracting_dimensions = {[*left]}, rhs_contracting_dimensions = {[*right]}>"
    )
    operands = [w.convert(x, out.dtype) if not is_float(x.dtype) else x for x in xs]
    return [w.op("stablehlo.dot_general", operands, out.shape, out.dtype, dot_dimension_numbers=numbers)]


@rule("conv_general_dilated")
def _convolution(w: Writer, e: Equation, xs: Values) -> Values:
    p, spec, out = e.params, e.params["dimension_numbers"], e.outputs[0].type

    def layout(places: Sequence[int], names: str) -> str:
        letters = [""] * len(places)
        for letter, at in zip([*names, *map(str, range(len(places) - 2))], places, strict=True):
            letters[at] = letter
        return f"[{', '.join(letters)}]"

    numbers = f"{layout(spec.lhs_spec, 'bf')}x{layout(spec.rhs_spec, 'oi')}->{layout(spec.out_spec, 'bf')}"
    rank = len(p["window_strides"])
    padding = ", ".join(f"[{a}, {b}]" for a, b in p["padding"])
    return [
        w.op(
            "stablehlo.convolution",
            xs,
            out.shape,
            out.dtype,
            window_strides=array_attribute(p["window_strides"]),
            padding=f"dense<{f'[{padding}]' if rank else ''}> : tensor<{rank}x2xi64>",
            lhs_dilation=array_attribute(p["lhs_dilation"]),
            rhs_dilation=array_attribute(p["rhs_dilation"]),
            dimension_numbers=f"#stablehlo.conv<{numbers}>",
            batch_group_count=f"{p['batch_group_count']} : i64",
            feature_group_count=f"{p['feature_group_count']} : i64",
        )
    ]


@rule("cholesky")
def _cholesky(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.op("stablehlo.cholesky", xs, xs[0].shape, xs[0].dtype, lower="true")]


@rule("triangular_solve")
def _triangular(w: Writer, e: Equation, xs: Values) -> Values:
    p = e.params
    if p["conjugate_a"] and not p["transpose_a"]:
        raise refused(e, FORMAT, "its matrix is conjugated without being transposed")
    way = "ADJOINT" if p["conjugate_a"] else "TRANSPOSE" if p["transpose_a"] else "NO_TRANSPOSE"
    said = {name: str(bool(p[name])).lower() for name in ("left_side", "lower", "unit_diagonal")}
    transposed = f"#stablehlo<transpose {way}>"
    return [w.op("stablehlo.triangular_solve", xs, xs[1].shape, xs[1].dtype, transpose_a=transposed, **said)]


@rule("fft")
def _fft(w: Writer, e: Equation, xs: Values) -> Values:
    out, lengths = e.outputs[0].type, e.params["lengths"]
    kind = e.params["kind"].upper()
    return [
        w.op(
            "stablehlo.fft",
            xs,
            out.shape,
            out.dtype,
            fft_type=f"#stablehlo<fft_type {kind}>",
            fft_length=array_attribute(lengths),
        )
    ]


# ------------------------------------------------------------------ elements by index
def _fits(w: Writer, indices: Value, limits: Sequence[int]) -> Value:
    """For each index whether a window that begins there lies inside."""
    most = w.constant(np.asarray(limits), indices.dtype)
    zero = w.spread(w.constant(0, indices.dtype), indices.shape)
    inside = w.op(
        "stablehlo.and",
        [w.compare("GE", indices, zero), w.compare("LE", indices, w.spread(most, indices.shape))],
        indices.shape,
        BOOL,
    )
    return w.reduce("and", inside, [len(indices.shape) - 1], True)


def _limit(operand: Value, axis: int, size: int, dtype: np.dtype) -> int:
    return min(operand.shape[axis] - size, _limits(dtype)[1])


@rule("gather")
def _gather(w: Writer, e: Equation, xs: Values) -> Values:
    operand, indices = xs
    p, n = e.params, e.params["dimension_numbers"]
    shape, dtype = _shape_of(e.outputs[0].type)
    if is_key(e.inputs[0].type.dtype):
        raise refused(e, FORMAT, "its elements are random keys")
    numbers = (
        f"#stablehlo.gather<offset_dims = {[*n.offset_dims]}, collapsed_slice_dims = {[*n.collapsed_slice_dims]},"
        f" operand_batching_dims = {[*n.operand_batching_dims]},"
        f" start_indices_batching_dims = {[*n.start_indices_batching_dims]},"
        f" start_index_map = {[*n.start_index_map]}, index_vector_dim = {len(indices.shape) - 1}>"
    )
    found = w.op(
        "stablehlo.gather",
        xs,
        shape,
        dtype,
        dimension_numbers=numbers,
        slice_sizes=array_attribute(p["slice_sizes"]),
        indices_are_sorted="false",
    )
    if p["mode"] != "fill":
        return [found]
    fill = p["fill_value"]
    if fill is None:
        kind = dtype_kind(dtype)
        fill = np.nan if kind in "fc" else True if kind == "b" else _limits(dtype)[0 if kind == "i" else 1]
    limits = [_limit(operand, a, p["slice_sizes"][a], indices.dtype) for a in n.start_index_map]
    inside = _fits(w, indices, limits)
    batch = [a for a in range(len(shape)) if a not in n.offset_dims]
    return [w.select(w.broadcast(inside, shape, batch), found, w.constant(fill, dtype))]


_SCATTERS = {
    "scatter": "",
    "scatter_add": "add",
    "scatter_mul": "multiply",
    "scatter_max": "maximum",
    "scatter_min": "minimum",
}


@rule(*_SCATTERS)
def _scatter(w: Writer, e: Equation, xs: Values) -> Values:
    operand, indices, updates = xs
    p, n = e.params, e.params["dimension_numbers"]
    if is_key(e.inputs[0].type.dtype):
        raise refused(e, FORMAT, "its elements are random keys")
    if p["mode"] == "clip":
        inner = iter(n.update_window_dims)
        skipped = (*n.inserted_window_dims, *n.operand_batching_dims)
        sizes = [1 if a in skipped else updates.shape[next(inner)] for a in range(len(operand.shape))]
        limits = [_limit(operand, a, sizes[a], indices.dtype) for a in n.scatter_dims_to_operand_dims]
        most = w.spread(w.constant(np.asarray(limits), indices.dtype), indices.shape)
        low = w.spread(w.constant(0, indices.dtype), indices.shape)
        indices = w.op("stablehlo.clamp", [low, indices, most], indices.shape, indices.dtype)
    kind = _SCATTERS[e.primitive.name]
    numbers = (
        f"#stablehlo.scatter<update_window_dims = {[*n.update_window_dims]},"
        f" inserted_window_dims = {[*n.inserted_window_dims]}, input_batching_dims = {[*n.operand_batching_dims]},"
        f" scatter_indices_batching_dims = {[*n.scatter_indices_batching_dims]},"
        f" scatter_dims_to_operand_dims = {[*n.scatter_dims_to_operand_dims]},"
        f" index_vector_dim = {len(indices.shape) - 1}>"
    )
    scalar = ((), operand.dtype)

    def body(a: Values) -> Values:
        return [w.op(f"stablehlo.{kind}", a, (), operand.dtype)] if kind else [a[1]]

    return w.with_regions(
        "stablehlo.scatter",
        [operand, indices, updates],
        [(operand.shape, operand.dtype)],
        [([scalar, scalar], body)],
        scatter_dimension_numbers=numbers,
        indices_are_sorted="false",
        unique_indices="false",
    )


@rule("dynamic_slice")
def _dynamic_slice(w: Writer, e: Equation, xs: Values) -> Values:
    sizes = e.params["sizes"]
    return [w.op("stablehlo.dynamic_slice", _starts(w, xs, 1), sizes, xs[0].dtype, slice_sizes=array_attribute(sizes))]


@rule("dynamic_update_slice")
def _dynamic_update(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.op("stablehlo.dynamic_update_slice", _starts(w, xs, 2), xs[0].shape, xs[0].dtype)]


def _starts(w: Writer, xs: Values, count: int) -> Values:
    """Operands with starts of one dtype."""
    return [*xs[:count], *(w.convert(x, INT64) for x in xs[count:])]


# ------------------------------------------------------------------ control flow
@rule("while_loop")
def _while(w: Writer, e: Equation, xs: Values) -> Values:
    p = e.params
    c, b = p["condition_constants"], p["body_constants"]
    types = [(x.shape, x.dtype) for x in xs]

    def condition(args: Values) -> Values:
        return w.program(p["condition"], [*args[:c], *args[c + b :]])

    def body(args: Values) -> Values:
        return [*args[: c + b], *w.program(p["body"], args[c:])]

    return w.with_regions("stablehlo.while", xs, types, [(types, condition), (types, body)])[c + b :]


@rule("scan")
def _scan(w: Writer, e: Equation, xs: Values) -> Values:
    """A loop with a counter; stacked results are written place by place."""
    p = e.params
    n, k, length = p["constants"], p["carries"], p["length"]
    stacks = e.outputs[k:]
    if not length:
        empty = [w.constant(np.zeros(_shape_of(v.type)[0]), _shape_of(v.type)[1]) for v in stacks]
        return [*xs[n : n + k], *empty]
    start = [w.spread(w.constant(0, d), s) for s, d in _types(stacks)]
    state = [w.constant(0, INT64), *xs, *start]
    types = [(v.shape, v.dtype) for v in state]
    fixed = 1 + n

    def condition(args: Values) -> Values:
        return [w.compare("LT", args[0], w.constant(length, INT64))]

    def body(args: Values) -> Values:
        i = args[0]
        at = w.binary("subtract", w.constant(length - 1, INT64), i) if p["reverse"] else i
        scanned = args[fixed + k : 1 + len(xs)]
        found = w.program(p["body"], [*args[1 : fixed + k], *(_row(w, x, at) for x in scanned)])
        written = [_put(w, s, y, at) for s, y in zip(args[1 + len(xs) :], found[k:], strict=True)]
        return [w.binary("add", i, w.constant(1, INT64)), *args[1:fixed], *found[:k], *scanned, *written]

    found = w.with_regions("stablehlo.while", state, types, [(types, condition), (types, body)])
    return [*found[fixed : fixed + k], *found[1 + len(xs) :]]


def _row(w: Writer, x: Value, at: Value) -> Value:
    zeros = [w.constant(0, INT64)] * (len(x.shape) - 1)
    shape = (1, *x.shape[1:])
    part = w.op("stablehlo.dynamic_slice", [x, at, *zeros], shape, x.dtype, slice_sizes=array_attribute(shape))
    return w.reshape(part, x.shape[1:])


def _put(w: Writer, x: Value, row: Value, at: Value) -> Value:
    zeros = [w.constant(0, INT64)] * (len(x.shape) - 1)
    part = w.reshape(row, (1, *row.shape))
    return w.op("stablehlo.dynamic_update_slice", [x, part, at, *zeros], x.shape, x.dtype)


@rule("cond")
def _cond(w: Writer, e: Equation, xs: Values) -> Values:
    branches: Sequence[Program] = e.params["branches"]
    index = w.convert(xs[0], INT32)
    index = w.op("stablehlo.clamp", [w.constant(0, INT32), index, w.constant(len(branches) - 1, INT32)], (), INT32)
    bodies = [([], lambda _, b=b: w.program(b, xs[1:])) for b in branches]
    return w.with_regions("stablehlo.case", [index], _types(e.outputs), bodies)
