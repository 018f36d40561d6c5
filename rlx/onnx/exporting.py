"""A function as an ONNX model: one node for each operation, elementwise ones by the scalar alphabet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import rlx
from rlx.errors import UnsupportedError
from rlx.ir.program import Atom, Equation, Literal, Program
from rlx.ops.portable import CENTRE, TAIL
from rlx.standalone.spelling import entering, is_elementwise, program_for_writing, refused, scalar_code

__all__ = ["export"]

OPSET, IR_VERSION = 21, 10
FORMAT = "ONNX"
Names = list[str]
Rule = Callable[["_Writer", Equation, Names], Names]
rules: dict[str, Rule] = {}


def export(f: Callable[..., Any], *types: Any, path: Any = None) -> Any:
    """See rlx.onnx.export."""
    exported = rlx.export(f)(*types)
    program = program_for_writing(exported.program(), FORMAT)
    writer = _Writer(itertools.count())
    inputs = [f"x{n}" for n in range(len(program.inputs))]
    outputs = writer.program(program, inputs)
    results = [f"y{n}" for n in range(len(outputs))]
    for name, result in zip(outputs, results, strict=True):
        writer.nodes.append(helper.make_node("Identity", [name], [result]))
    graph = helper.make_graph(
        _without_detours(writer.nodes, results), exported.fun_name,
        [_value(n, v.type) for n, v in zip(inputs, program.inputs, strict=True)],
        [_value(n, t) for n, t in zip(results, program.output_types, strict=True)],
        list(writer.tensors.values()),
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="rlx"
    )
    onnx.checker.check_model(model)
    if path is not None:
        Path(path).write_bytes(model.SerializeToString())
    return model


def _without_detours(nodes: list[Any], results: Sequence[str]) -> list[Any]:
    """Nodes whose result is renamed only take the name themselves."""
    users: dict[str, int] = {}
    for name in (name for node in nodes for name in node.input):
        users[name] = users.get(name, 0) + 1
    inner = {n for node in nodes for a in node.attribute for n in _names_in(a.g)}
    makers = {name: node for node in nodes for name in node.output}
    dropped = set()
    for node in nodes[len(nodes) - len(results) :]:
        source, result = node.input[0], node.output[0]
        if source in makers and users[source] == 1 and source not in inner and source not in results:
            maker = makers[source]
            maker.output[list(maker.output).index(source)] = result
            dropped.add(id(node))
    return [node for node in nodes if id(node) not in dropped]


def _names_in(graph: Any) -> set[str]:
    inner = {n for node in graph.node for a in node.attribute for n in _names_in(a.g)}
    return inner | {n for node in graph.node for n in node.input}


def _number(dtype: Any) -> int:
    try:
        return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    except (KeyError, ValueError, TypeError):
        found = None
    raise UnsupportedError(f"ONNX has no {dtype}." if found is None else "")


def _value(name: str, type: Any) -> Any:
    return helper.make_tensor_value_info(name, _number(type.dtype), type.shape)


class _Writer:
    """Nodes and tensors of a graph; the graphs in it share names and tensors."""

    def __init__(self, numbers: Any, tensors: dict[Any, Any] | None = None) -> None:
        self.numbers = numbers
        self.nodes: list[Any] = []
        self.tensors: dict[Any, Any] = {} if tensors is None else tensors

    def fresh(self) -> str:
        """A new name."""
        return f"v{next(self.numbers)}"

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The result of a node."""
        return self.several(kind, inputs, 1, **attributes)[0]

    def several(self, kind: str, inputs: Sequence[str], count: int, **attributes: Any) -> Names:
        """The results of a node."""
        results = [self.fresh() for _ in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, **attributes))
        return results

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of an array that is known."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str + array.dtype.name, array.shape, array.tobytes() if array.size < 1 << 12 else id(value))
        if key not in self.tensors:
            self.tensors[key] = numpy_helper.from_array(array, f"c{len(self.tensors)}")
        return self.tensors[key].name

    def integers(self, values: Sequence[int]) -> str:
        """A list of numbers as the inputs of operators want it."""
        return self.constant(np.asarray(list(values), np.int64))

    def cast(self, x: str, dtype: Any) -> str:
        """Another dtype."""
        return self.node("Cast", x, to=_number(dtype))

    def program(self, program: Program, inputs: Sequence[str]) -> Names:
        """The names of a program's results."""
        names: dict[Any, str] = dict(zip(program.inputs, inputs, strict=True))
        for variable, value in program.constants:
            names[variable] = self.constant(value.numpy() if hasattr(value, "numpy") else value)

        def read(atom: Atom) -> str:
            return self.constant(atom.value) if isinstance(atom, Literal) else names[atom]

        for equation in program.equations:
            found = self.equation(equation, list(map(read, equation.inputs)))
            names.update(zip(equation.outputs, found, strict=True))
        return list(map(read, program.outputs))

    def equation(self, equation: Equation, inputs: Names) -> Names:
        """The names of an equation's results. Raises UnsupportedError."""
        rule = rules.get(equation.primitive.name)
        if rule is not None:
            return rule(self, equation, inputs)
        if is_elementwise(equation):
            return _elementwise(self, equation, inputs)
        raise refused(equation, FORMAT)

    def graph(self, program: Program, prefix: Sequence[str] = (), extra: Sequence[Any] = ()) -> Any:
        """A program in a node: its writer, inputs and outputs. Its first inputs are `prefix`, names around it; `extra`
        come before its own."""
        inner = _Writer(self.numbers, self.tensors)
        own = program.inputs[len(prefix) :]
        names = [self.fresh() for _ in own]
        outputs = inner.program(program, [*prefix, *names])
        fresh = [inner.node("Identity", name) for name in outputs]
        values = [_value(n, v.type) for n, v in zip(names, own, strict=True)]
        results = [_value(n, t) for n, t in zip(fresh, program.output_types, strict=True)]
        return inner, [*extra, *values], results


# ------------------------------------------------------------------ elementwise operations
_SAME = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "abs": "Abs", "sign": "Sign", "pow": "Pow",
    "floor": "Floor", "ceil": "Ceil", "round_even": "Round", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "logistic": "Sigmoid",
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "select": "Where",
    "min": "Min", "max": "Max",
}  # fmt: skip
_BITS = {
    "and": ("And", "BitwiseAnd"),
    "or": ("Or", "BitwiseOr"),
    "xor": ("Xor", "BitwiseXor"),
    "not": ("Not", "BitwiseNot"),
}
_SHIFTS = {"shift_left": "LEFT", "shift_right_logical": "RIGHT"}
_WIDE = (np.dtype(np.int32), np.dtype(np.int64))


def _elementwise(w: _Writer, equation: Equation, inputs: Names) -> Names:
    """Step by step; bool and narrow integers by way of int64, which operators take."""
    code = scalar_code(equation)
    found: Names = []
    dtypes = [step.dtype for step in code.steps]
    for step in code.steps:
        args = [found[a] for a in step.args]
        operands = [dtypes[a] for a in step.args]
        if step.op == "input":
            found.append(inputs[step.attribute])
        elif step.op == "constant":
            found.append(w.constant(step.attribute, step.dtype))
        else:
            found.append(_step(w, equation, step, args, operands))
    results = []
    for at, variable in zip(code.results, equation.outputs, strict=True):
        whole = (
            code.steps[at].op in ("input", "constant") and _shape_of(equation, code.steps[at]) != variable.type.shape
        )
        results.append(w.node("Expand", found[at], w.integers(variable.type.shape)) if whole else found[at])
    return results


def _shape_of(equation: Equation, step: Any) -> Any:
    return equation.inputs[step.attribute].type.shape if step.op == "input" else None


def _step(w: _Writer, equation: Equation, step: Any, args: Names, operands: list[np.dtype]) -> str:
    op, dtype = step.op, step.dtype
    one = w.constant(1, dtype) if dtype.kind in "iuf" else ""
    if op in _BITS:
        return w.node(_BITS[op][dtype.kind != "b"], *args)
    if op in _SHIFTS:
        return _shift(w, op, args, dtype)
    if op == "cast":
        return _converted(w, args[0], operands[0], dtype)
    if op == "bitcast":
        if operands[0] != np.uint32 or dtype != np.float32:
            raise refused(equation, FORMAT, f"it reads the bits of {operands[0]} as {dtype}")
        return _float_of_bits(w, args[0])
    if op == "ne":
        return w.node("Not", _step(w, equation, step._replace(op="eq"), args, operands))
    if op == "trunc":
        return w.node("Mul", w.node("Sign", args[0]), w.node("Floor", w.node("Abs", args[0])))
    if op == "rsqrt":
        return w.node("Div", one, w.node("Sqrt", args[0]))
    if op == "fma":
        return w.node("Add", w.node("Mul", *args[:2]), args[2])
    if op == "log1p":
        return _log1p(w, args[0], dtype)
    if op == "expm1":
        return _expm1(w, args[0], dtype)
    if op == "exp2":
        return w.node("Exp", w.node("Mul", args[0], w.constant(np.log(2.0), dtype)))
    if op == "log2":
        return w.node("Div", w.node("Log", args[0]), w.constant(np.log(2.0), dtype))
    if op == "erfc":
        return w.node("Sub", one, w.node("Erf", args[0]))
    if op == "is_finite":
        return w.node("Not", w.node("Or", w.node("IsInf", args[0]), w.node("IsNaN", args[0])))
    if op == "rem":
        return w.node("Mod", *args, fmod=1)
    if op == "copysign":
        size, sign = w.node("Abs", args[0]), w.node("Less", args[1], w.constant(0, dtype))
        return w.node("Where", sign, w.node("Neg", size), size)
    if op == "cbrt":
        root = w.node("Pow", w.node("Abs", args[0]), w.constant(1 / 3, dtype))
        return w.node("Mul", w.node("Sign", args[0]), root)
    if op == "atan2":
        return _atan2(w, args[0], args[1], dtype)
    if op not in _SAME:
        raise refused(equation, FORMAT, f"there is no {op}")
    if op == "select":
        return w.node("Where", *args)
    working = operands[0]
    if working.kind in "iub" and working not in _WIDE:
        wide = [w.cast(a, np.int64) for a in args]
        found = w.node(_SAME[op], *wide)
        return found if dtype.kind == "b" and op in ("eq", "lt", "le", "gt", "ge") else w.cast(found, dtype)
    return w.node(_SAME[op], *args)


def _converted(w: _Writer, x: str, given: np.dtype, wanted: np.dtype) -> str:
    """Floats to integers saturate, and NaN is zero, which ONNX leaves open."""
    if given.kind == "f" and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        high = np.nextafter(given.type(2.0 ** (limits.bits - (wanted.kind == "i"))), given.type(0))
        known = w.node("Where", w.node("IsNaN", x), w.constant(0, given), x)
        x = w.node("Clip", known, w.constant(limits.min, given), w.constant(high, given))
    return w.cast(x, wanted)


def _float_of_bits(w: _Writer, bits: str) -> str:
    """The float32 number of 32 bits, from its sign, exponent and fraction."""
    wide = w.cast(bits, np.int64)

    def number(value: float) -> str:
        return w.constant(value, np.float32)

    def part(shift: int, size: int) -> str:
        return w.node("Mod", w.node("Div", wide, w.constant(1 << shift, np.int64)), w.constant(1 << size, np.int64))

    fraction = w.node("Mul", w.cast(part(0, 23), np.float32), number(2.0**-23))
    power = part(23, 8)
    normal = w.node("Greater", power, w.constant(0, np.int64))
    whole = w.node("Where", normal, w.node("Add", fraction, number(1)), fraction)
    exponent = w.cast(w.node("Max", power, w.constant(1, np.int64)), np.float32)
    size = w.node("Mul", whole, w.node("Pow", number(2), w.node("Sub", exponent, number(127))))
    odd = w.node("Equal", power, w.constant(255, np.int64))
    infinite = w.node("Where", w.node("Equal", fraction, number(0)), number(np.inf), number(np.nan))
    size = w.node("Where", odd, infinite, size)
    return w.node("Where", w.node("Equal", part(31, 1), w.constant(1, np.int64)), w.node("Neg", size), size)


def _shift(w: _Writer, op: str, args: Names, dtype: np.dtype) -> str:
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = dtype.itemsize * 8
    x, by = [*args] if dtype == unsigned else [w.cast(a, unsigned) for a in args]
    inside = w.node("Less", w.cast(by, np.int64), w.constant(bits, np.int64))
    low = w.node("Where", inside, by, w.constant(0, unsigned))
    found = w.node("Where", inside, w.node("BitShift", x, low, direction=_SHIFTS[op]), w.constant(0, unsigned))
    return found if dtype == unsigned else w.cast(found, dtype)


def _log1p(w: _Writer, x: str, dtype: np.dtype) -> str:
    """log(u) x / (u - 1) with u = 1 + x, whose errors cancel; x where u is 1."""
    one = w.constant(1, dtype)
    u = w.node("Add", x, one)
    past = w.node("Sub", u, one)
    plain = w.node("Or", w.node("Equal", past, w.constant(0, dtype)), w.node("IsInf", u))
    corrected = w.node("Mul", w.node("Log", u), w.node("Div", x, w.node("Where", plain, one, past)))
    return w.node("Where", w.node("IsInf", u), u, w.node("Where", plain, x, corrected))


def _expm1(w: _Writer, x: str, dtype: np.dtype) -> str:
    """tanh(x / 2) (exp(x) + 1), which is exact near zero."""
    half = w.node("Tanh", w.node("Mul", x, w.constant(0.5, dtype)))
    power = w.node("Exp", x)
    near = w.node("Mul", half, w.node("Add", power, w.constant(1, dtype)))
    small = w.node("Less", w.node("Abs", x), w.constant(1, dtype))
    return w.node("Where", small, near, w.node("Sub", power, w.constant(1, dtype)))


def _atan2(w: _Writer, y: str, x: str, dtype: np.dtype) -> str:
    zero, pi = w.constant(0, dtype), w.constant(np.pi, dtype)
    safe = w.node("Where", w.node("Equal", x, zero), w.constant(1, dtype), x)
    base = w.node("Atan", w.node("Div", y, safe))
    below = w.node("Less", y, zero)
    left = w.node("Where", below, w.node("Sub", base, pi), w.node("Add", base, pi))
    half = w.constant(np.pi / 2, dtype)
    middle = w.node("Where", below, w.node("Neg", half), w.node("Where", w.node("Equal", y, zero), zero, half))
    return w.node("Where", w.node("Less", x, zero), left, w.node("Where", w.node("Equal", x, zero), middle, base))


# ------------------------------------------------------------------ shapes
rule = entering(rules)  # how primitives of these names are written


@rule("portable_log", "portable_log1p", "portable_erf_inv")
def _portable(w: _Writer, e: Equation, xs: Names) -> Names:
    """To rounding what rlx computes to the same bits everywhere."""
    dtype, (x,) = e.inputs[0].type.dtype, xs
    if e.primitive.name == "portable_log":
        return [w.node("Log", x)]
    if e.primitive.name == "portable_log1p":
        return [_log1p(w, x, dtype)]

    def number(value: float) -> str:
        return w.constant(value, dtype)

    logarithm = w.node("Neg", _log1p(w, w.node("Neg", w.node("Mul", x, x)), dtype))
    central = w.node("Less", logarithm, number(5))
    far = w.node("Sub", w.node("Sqrt", logarithm), number(3))
    shifted = w.node("Where", central, w.node("Sub", logarithm, number(2.5)), far)
    found = number(0)
    for centre, tail in zip(CENTRE, TAIL, strict=True):
        chosen = w.node("Where", central, number(centre), number(tail))
        found = w.node("Add", w.node("Mul", found, shifted), chosen)
    edge = w.node("Equal", w.node("Abs", x), number(1))
    return [w.node("Where", edge, w.node("Mul", x, number(np.inf)), w.node("Mul", found, x))]


@rule("stop_gradient", "copy", "checkpoint_name", "random_wrap", "random_unwrap")
def _same(w: _Writer, e: Equation, xs: Names) -> Names:
    return xs


@rule("optimization_barrier")
def _barrier(w: _Writer, e: Equation, xs: Names) -> Names:
    return xs


@rule("reshape")
def _reshape(w: _Writer, e: Equation, xs: Names) -> Names:
    return [w.node("Reshape", xs[0], w.integers(e.params["shape"]), allowzero=1)]


@rule("transpose")
def _transpose(w: _Writer, e: Equation, xs: Names) -> Names:
    return [w.node("Transpose", xs[0], perm=list(e.params["permutation"]))]


@rule("broadcast_in_dim")
def _broadcast(w: _Writer, e: Equation, xs: Names) -> Names:
    shape, dims = e.params["shape"], e.params["dims"]
    sizes = dict(zip(dims, e.inputs[0].type.shape, strict=True))
    placed = w.node("Reshape", xs[0], w.integers([sizes.get(a, 1) for a in range(len(shape))]), allowzero=1)
    return [w.node("Expand", placed, w.integers(shape))]


@rule("iota")
def _iota(w: _Writer, e: Equation, xs: Names) -> Names:
    kind, axis = e.params["type"], e.params["axis"]
    bounds = [w.constant(n, np.int64) for n in (0, kind.shape[axis], 1)]
    line = w.cast(w.node("Range", *bounds), kind.dtype)
    placed = w.node("Reshape", line, w.integers([-1 if a == axis else 1 for a in range(len(kind.shape))]))
    return [w.node("Expand", placed, w.integers(kind.shape))]


def _sliced(w: _Writer, x: str, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> str:
    axes = range(len(starts))
    return (
        w.node("Slice", x, w.integers(starts), w.integers(ends), w.integers(axes), w.integers(steps)) if starts else x
    )


@rule("slice")
def _slice(w: _Writer, e: Equation, xs: Names) -> Names:
    p = e.params
    return [_sliced(w, xs[0], p["starts"], p["limits"], p["strides"])]


@rule("reverse")
def _reverse(w: _Writer, e: Equation, xs: Names) -> Names:
    axes = list(e.params["axes"])
    if not axes:
        return xs
    ends = w.integers([np.iinfo(np.int64).min] * len(axes))
    minus = w.integers([-1] * len(axes))
    return [w.node("Slice", xs[0], minus, ends, w.integers(axes), minus)]


@rule("concatenate")
def _concatenate(w: _Writer, e: Equation, xs: Names) -> Names:
    return [w.node("Concat", *xs, axis=e.params["axis"])]


@rule("pad")
def _pad(w: _Writer, e: Equation, xs: Names) -> Names:
    return [_padded(w, xs[0], xs[1], e.params["config"], e.inputs[0].type.shape, e.inputs[0].type.dtype)]


def _padded(w: _Writer, x: str, value: str, config: Any, shape: Sequence[int], dtype: np.dtype) -> str:
    """Padding before, behind and between; what is negative cuts."""
    sizes = list(shape)
    for axis, (_, _, between) in enumerate(config):
        if between and sizes[axis]:
            apart = w.node("Unsqueeze", x, w.integers([axis + 1]))
            amounts = [0] * (2 * len(sizes) + 2)
            amounts[len(sizes) + 1 + axis + 1] = between
            apart = _plain_pad(w, apart, amounts, value, dtype)
            sizes[axis] *= between + 1
            x = w.node("Reshape", apart, w.integers(sizes))
            sizes[axis] -= between
            x = _sliced(w, x, [0] * len(sizes), sizes, [1] * len(sizes))
    lows, highs = [low for low, _, _ in config], [high for _, high, _ in config]
    amounts = [max(n, 0) for n in (*lows, *highs)]
    if any(amounts):
        x = _plain_pad(w, x, amounts, value, dtype)
    if min([*lows, *highs], default=0) < 0:
        grown = [n + max(a, 0) + max(b, 0) for n, a, b in zip(sizes, lows, highs, strict=True)]
        starts = [max(-a, 0) for a in lows]
        x = _sliced(w, x, starts, [n + min(b, 0) for n, b in zip(grown, highs, strict=True)], [1] * len(sizes))
    return x


def _plain_pad(w: _Writer, x: str, amounts: Sequence[int], value: str, dtype: np.dtype) -> str:
    if dtype.name in ("bool", "int16", "uint16"):
        wide = w.node("Pad", w.cast(x, np.int32), w.integers(amounts), w.cast(value, np.int32))
        return w.cast(wide, dtype)
    return w.node("Pad", x, w.integers(amounts), value)


# ------------------------------------------------------------------ reductions and order
_REDUCTIONS = {
    "reduce_sum": "ReduceSum", "reduce_prod": "ReduceProd", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
    "reduce_and": "ReduceMin", "reduce_or": "ReduceMax",
}  # fmt: skip


@rule(*_REDUCTIONS)
def _reduce(w: _Writer, e: Equation, xs: Names) -> Names:
    dtype = e.inputs[0].type.dtype
    if e.primitive.name in ("reduce_and", "reduce_or") and dtype.kind != "b":
        raise refused(e, FORMAT, "it combines bits")
    if not e.params["axes"]:
        return xs
    narrow = dtype.kind in "iub" and dtype not in _WIDE
    x = w.cast(xs[0], np.int64) if narrow else xs[0]
    found = w.node(_REDUCTIONS[e.primitive.name], x, w.integers(e.params["axes"]), keepdims=0)
    return [w.cast(found, dtype) if narrow else found]


@rule("argmax", "argmin")
def _extreme(w: _Writer, e: Equation, xs: Names) -> Names:
    kind = "ArgMax" if e.primitive.name == "argmax" else "ArgMin"
    dtype = e.inputs[0].type.dtype
    x = w.cast(xs[0], np.int32) if dtype.kind in "iub" and dtype not in _WIDE else xs[0]
    return [w.cast(w.node(kind, x, axis=e.params["axis"], keepdims=0), e.params["index_dtype"])]


@rule("cumsum")
def _cumsum(w: _Writer, e: Equation, xs: Names) -> Names:
    dtype = e.inputs[0].type.dtype
    narrow = dtype.kind in "iub" and dtype not in _WIDE
    x = w.cast(xs[0], np.int64) if narrow else xs[0]
    found = w.node("CumSum", x, w.constant(e.params["axis"], np.int64), reverse=int(e.params["reverse"]))
    return [w.cast(found, dtype) if narrow else found]


@rule("sort")
def _sort(w: _Writer, e: Equation, xs: Names) -> Names:
    axis, keys = e.params["axis"], e.params["keys"]
    size = e.inputs[0].type.shape[axis]
    if keys != 1:
        raise refused(e, FORMAT, "it sorts by several keys")
    dtype = e.inputs[0].type.dtype
    key = w.cast(xs[0], np.int64) if dtype.kind in "iub" and dtype not in _WIDE else xs[0]
    _, order = w.several("TopK", [key, w.integers([size])], 2, axis=axis, largest=0, sorted=1)
    return [w.node("GatherElements", x, order, axis=axis) for x in xs]


@rule("top_k")
def _top(w: _Writer, e: Equation, xs: Names) -> Names:
    axis = e.params.get("axis", len(e.inputs[0].type.shape) - 1)
    values, order = w.several("TopK", [xs[0], w.integers([e.params["k"]])], 2, axis=axis, largest=1, sorted=1)
    return [values, w.cast(order, e.outputs[1].type.dtype)]


@rule("reduce_window")
def _reduce_window(w: _Writer, e: Equation, xs: Names) -> Names:
    """Slices, one for each place of a window, combined."""
    p, kind = e.params, e.inputs[0].type
    combine = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}[p["op"]]
    start = {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf}[p["op"]]
    if kind.dtype.kind != "f" and p["op"] in ("max", "min"):
        start = np.iinfo(kind.dtype).min if p["op"] == "max" else np.iinfo(kind.dtype).max
    config = [(low, high, d - 1) for (low, high), d in zip(p["padding"], p["base_dilation"], strict=True)]
    x = _padded(w, xs[0], w.constant(start, kind.dtype), config, kind.shape, kind.dtype)
    counts = e.outputs[0].type.shape
    parts = []
    for place in itertools.product(*map(range, p["window"])):
        starts = [o * d for o, d in zip(place, p["window_dilation"], strict=True)]
        ends = [s + (n - 1) * t + 1 for s, n, t in zip(starts, counts, p["strides"], strict=True)]
        parts.append(_sliced(w, x, starts, ends, p["strides"]))
    found = parts[0]
    for part in parts[1:]:
        found = w.node(combine, found, part)
    return [found]


# ------------------------------------------------------------------ products
@rule("dot_general")
def _dot(w: _Writer, e: Equation, xs: Names) -> Names:
    (left, right), (left_batch, right_batch) = e.params["dimension_numbers"]
    a, b = (operand.type for operand in e.inputs)
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    one = [next(letters) for _ in a.shape]
    other: list[str] = [next(letters) for _ in b.shape]
    for i, j in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        other[j] = one[i]
    batch = [one[i] for i in left_batch]
    free = [x for i, x in enumerate(one) if i not in (*left, *left_batch)]
    free += [x for j, x in enumerate(other) if j not in (*right, *right_batch)]
    dtype = e.outputs[0].type.dtype
    working = (
        dtype if dtype.kind == "f" and dtype.itemsize >= 4 else np.dtype(np.float32 if dtype.kind == "f" else np.int64)
    )
    operands = [x if t.dtype == working else w.cast(x, working) for x, t in zip(xs, (a, b), strict=True)]
    found = w.node("Einsum", *operands, equation=f"{''.join(one)},{''.join(other)}->{''.join(batch + free)}")
    return [found if working == dtype else w.cast(found, dtype)]


@rule("conv_general_dilated")
def _convolution(w: _Writer, e: Equation, xs: Names) -> Names:
    p, spec = e.params, e.params["dimension_numbers"]
    if p["batch_group_count"] != 1:
        raise refused(e, FORMAT, "its batch is in groups")
    x = w.node("Transpose", xs[0], perm=list(spec.lhs_spec))
    kernel = w.node("Transpose", xs[1], perm=list(spec.rhs_spec))
    dtype = e.inputs[0].type.dtype
    shape = [e.inputs[0].type.shape[a] for a in spec.lhs_spec]
    between = [(0, 0, 0), (0, 0, 0)]
    # negative padding cuts before, and what is put between elements is there before, too
    between += [(min(a, 0), min(b, 0), d - 1) for (a, b), d in zip(p["padding"], p["lhs_dilation"], strict=True)]
    x = _padded(w, x, w.constant(0, dtype), between, shape, dtype)
    pads = [max(a, 0) for a, _ in p["padding"]] + [max(b, 0) for _, b in p["padding"]]
    found = w.node(
        "Conv", x, kernel, strides=list(p["window_strides"]), pads=pads, dilations=list(p["rhs_dilation"]),
        group=p["feature_group_count"],
    )  # fmt: skip
    return [w.node("Transpose", found, perm=np.argsort(spec.out_spec).tolist())]


# ------------------------------------------------------------------ elements by index
def _places(w: _Writer, e: Equation, indices: str, numbers: Any, shape: Sequence[int], clamp: bool) -> tuple[str, str]:
    """For each element of a gather's result (or of a scatter's updates, of that shape) its place in the operand, and
    whether the window that it belongs to lies inside. numbers: those of the gather."""
    operand, given = e.inputs[0].type.shape, e.inputs[1].type.shape
    offset = list(numbers.offset_dims)
    batch = [a for a in range(len(shape)) if a not in offset]
    inner = [a for a in range(len(operand)) if a not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)]
    sizes = [1] * len(operand)
    for axis, at in zip(inner, offset, strict=True):
        sizes[axis] = shape[at]
    wide = w.cast(indices, np.int64)
    columns, inside = [], ""
    for axis in range(len(operand)):
        parts = []
        if axis in numbers.start_index_map:
            k = numbers.start_index_map.index(axis)
            last = len(given) - 1
            start = w.node("Gather", wide, w.constant(k, np.int64), axis=last)
            placed = [given[batch.index(a)] if a in batch else 1 for a in range(len(shape))]
            start = w.node("Reshape", start, w.integers(placed), allowzero=1)
            zero, most = w.constant(0, np.int64), w.constant(operand[axis] - sizes[axis], np.int64)
            fits = w.node("And", w.node("GreaterOrEqual", start, zero), w.node("LessOrEqual", start, most))
            inside = fits if not inside else w.node("And", inside, fits)
            parts.append(w.node("Min", w.node("Max", start, zero), most) if clamp else start)
        if axis in numbers.operand_batching_dims:
            where = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(axis)]
            parts.append(_line(w, operand[axis], batch[where], len(shape)))
        if axis in inner:
            parts.append(_line(w, sizes[axis], offset[inner.index(axis)], len(shape)))
        total = parts[0] if parts else w.constant(np.zeros([1] * len(shape), np.int64))
        for part in parts[1:]:
            total = w.node("Add", total, part)
        columns.append(w.node("Unsqueeze", w.node("Expand", total, w.integers(shape)), w.integers([len(shape)])))
    places = w.node("Concat", *columns, axis=len(shape)) if len(columns) > 1 else columns[0]
    return places, inside or w.constant(True)


def _line(w: _Writer, size: int, axis: int, rank: int) -> str:
    return w.constant(np.arange(size, dtype=np.int64).reshape([-1 if a == axis else 1 for a in range(rank)]))


@rule("gather")
def _gather(w: _Writer, e: Equation, xs: Names) -> Names:
    numbers, mode, out = e.params["dimension_numbers"], e.params["mode"], e.outputs[0].type
    operand = e.inputs[0].type
    if not operand.shape:
        return [w.node("Expand", xs[0], w.integers(out.shape))]
    places, inside = _places(w, e, xs[1], numbers, out.shape, True)
    found = w.node("GatherND", xs[0], places)
    if mode != "fill":
        return [found]
    fill = e.params["fill_value"]
    if fill is None:
        low = np.nan if out.dtype.kind == "f" else True if out.dtype == bool else None
        fill = (
            low if low is not None else (np.iinfo(out.dtype).min if out.dtype.kind == "i" else np.iinfo(out.dtype).max)
        )
    return [w.node("Where", inside, found, w.constant(fill, out.dtype))]


_SCATTERS = {"scatter": "none", "scatter_add": "add", "scatter_mul": "mul", "scatter_max": "max", "scatter_min": "min"}


@rule(*_SCATTERS)
def _scatter(w: _Writer, e: Equation, xs: Names) -> Names:
    """Updates that lie outside go to one more row, which is cut off."""
    numbers = e.params["dimension_numbers"].gather()
    operand, updates = e.inputs[0].type, e.inputs[2].type
    if not operand.shape:
        raise refused(e, FORMAT, "its operand has no axes")
    clamp = e.params["mode"] == "clip"
    places, inside = _places(w, e, xs[1], numbers, updates.shape, clamp)
    target = xs[0]
    rank = len(operand.shape)
    drops = e.params["mode"] not in ("clip", "promise_in_bounds")
    if drops:
        target = _plain_pad(w, target, [0] * rank + [1] + [0] * (rank - 1), w.constant(0, operand.dtype), operand.dtype)
        away = w.constant(np.array([operand.shape[0]] + [0] * (rank - 1), np.int64))
        shown = w.node(
            "Unsqueeze", w.node("Expand", inside, w.integers(updates.shape)), w.integers([len(updates.shape)])
        )
        places = w.node("Where", shown, places, away)
    reduction = _SCATTERS[e.primitive.name]
    found = w.node("ScatterND", target, places, xs[2], reduction=reduction)
    return [_sliced(w, found, [0] * rank, operand.shape, [1] * rank) if drops else found]


@rule("dynamic_slice")
def _dynamic_slice(w: _Writer, e: Equation, xs: Names) -> Names:
    starts, ends = _bounds(w, e, xs[1:], e.params["sizes"])
    return [w.node("Slice", xs[0], starts, ends)] if xs[1:] else xs[:1]


def _bounds(w: _Writer, e: Equation, starts: Names, sizes: Sequence[int]) -> tuple[str, str]:
    """First and last places of a slice, moved inside."""
    columns = [w.node("Reshape", w.cast(s, np.int64), w.integers([1])) for s in starts]
    if not columns:
        return "", ""
    first = w.node("Concat", *columns, axis=0) if len(columns) > 1 else columns[0]
    most = w.integers([n - k for n, k in zip(e.inputs[0].type.shape, sizes, strict=True)])
    inside = w.node("Min", w.node("Max", first, w.integers([0])), most)
    return inside, w.node("Add", inside, w.integers(sizes))


@rule("dynamic_update_slice")
def _dynamic_update(w: _Writer, e: Equation, xs: Names) -> Names:
    sizes = e.inputs[1].type.shape
    if not sizes:
        return [xs[1]]
    first, _ = _bounds(w, e, xs[2:], sizes)
    grid = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).astype(np.int64)
    return [w.node("ScatterND", xs[0], w.node("Add", w.constant(grid), first), xs[1])]


# ------------------------------------------------------------------ control flow
def _graph(
    w: _Writer, name: str, program: Program, prefix: Names, extra: Sequence[Any] = (), lead: Names | None = None
) -> Any:
    inner, inputs, outputs = w.graph(program, prefix, extra)
    head = [_first(inner, n) for n in lead or ()]
    return helper.make_graph(inner.nodes, name, inputs, [*head, *outputs])


def _first(inner: _Writer, name: str) -> Any:
    result = inner.node("Identity", name)
    return helper.make_tensor_value_info(result, onnx.TensorProto.BOOL, ())


@rule("scan")
def _scan(w: _Writer, e: Equation, xs: Names) -> Names:
    p = e.params
    constants, carries = p["constants"], p["carries"]
    body: Program = p["body"]
    if len(xs) == constants + carries:  # ONNX counts steps by what it scans
        return _counted(w, e, xs)
    graph = _graph(w, "body", body, xs[:constants])
    scanned, stacked = len(xs) - constants - carries, len(body.outputs) - carries
    way = int(p["reverse"])
    return w.several(
        "Scan", xs[constants:], len(body.outputs), body=graph, num_scan_inputs=scanned,
        scan_input_directions=[way] * scanned, **({"scan_output_directions": [way] * stacked} if stacked else {}),
    )  # fmt: skip


def _counted(w: _Writer, e: Equation, xs: Names) -> Names:
    """A scan over nothing: a loop of so many steps."""
    p = e.params
    body: Program = p["body"]
    if p["reverse"] and len(body.outputs) > p["carries"]:
        raise refused(e, FORMAT, "it stacks results backwards over nothing")
    condition = w.fresh()
    extra = [
        helper.make_tensor_value_info(w.fresh(), onnx.TensorProto.INT64, ()),
        helper.make_tensor_value_info(condition, onnx.TensorProto.BOOL, ()),
    ]
    graph = _graph(w, "body", body, xs[: p["constants"]], extra, [condition])
    steps, going = w.constant(p["length"], np.int64), w.constant(True)
    return w.several("Loop", [steps, going, *xs[p["constants"] :]], len(body.outputs), body=graph)


@rule("while_loop")
def _while(w: _Writer, e: Equation, xs: Names) -> Names:
    p = e.params
    c, b = p["condition_constants"], p["body_constants"]
    held, moved, carries = xs[:c], xs[c : c + b], xs[c + b :]
    (start,) = w.program(p["condition"], [*held, *carries])
    inner = _Writer(w.numbers, w.tensors)
    types = p["body"].output_types
    names = [w.fresh() for _ in carries]
    found = [inner.node("Identity", n) for n in inner.program(p["body"], [*moved, *names])]
    (going,) = inner.program(p["condition"], [*held, *found])
    count = helper.make_tensor_value_info(w.fresh(), onnx.TensorProto.INT64, ())
    before = helper.make_tensor_value_info(w.fresh(), onnx.TensorProto.BOOL, ())
    inputs = [count, before, *(_value(n, t) for n, t in zip(names, types, strict=True))]
    outputs = [_first(inner, going), *(_value(n, t) for n, t in zip(found, types, strict=True))]
    graph = helper.make_graph(inner.nodes, "body", inputs, outputs)
    return w.several("Loop", ["", start, *carries], len(carries), body=graph)


@rule("cond")
def _cond(w: _Writer, e: Equation, xs: Names) -> Names:
    branches: Mapping[int, Program] = dict(enumerate(e.params["branches"]))
    index = w.cast(xs[0], np.int64)
    return _choose(w, index, branches, xs[1:], 0, len(branches) - 1)


def _choose(w: _Writer, index: str, branches: Mapping[int, Program], xs: Names, first: int, last: int) -> Names:
    """The results of one of several branches, found by halving."""
    if first == last:
        return w.program(branches[first], xs)
    middle = (first + last) // 2
    graphs = []
    for low, high in ((first, middle), (middle + 1, last)):
        inner = _Writer(w.numbers, w.tensors)
        found = [inner.node("Identity", n) for n in _choose(inner, index, branches, xs, low, high)]
        values = [_value(n, t) for n, t in zip(found, branches[0].output_types, strict=True)]
        graphs.append(helper.make_graph(inner.nodes, f"branch_{low}", [], values))
    which = w.node("LessOrEqual", index, w.constant(middle, np.int64))
    return w.several("If", [which], len(branches[0].outputs), then_branch=graphs[0], else_branch=graphs[1])
