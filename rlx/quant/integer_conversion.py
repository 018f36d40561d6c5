"""rlx.quant.integer_program: a function of real numbers as an integer program, by calibration with examples."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import NanError, OptionError, RlxError, ShapeError, UnsupportedError, source_line
from rlx.ir.program import Atom, Equation, Literal, Program, Var, dead_code
from rlx.ops.families import Elementwise
from rlx.quant.calibration import Calibrator
from rlx.quant.integer_nodes import IntegerWriter, Node, Pointwise, SharedSum, Softmax, Sum
from rlx.quant.integer_program import IntegerProgram
from rlx.quant.training import range_of
from rlx.trace.flat import as_array
from rlx.trace.interpret import Environment
from rlx.trace.lower import inline_calls
from rlx.trace.tracing import close_over, trace_program
from rlx.trees import tree

__all__ = ["integer_program"]

_ROUNDINGS = ("q31", "float")
_BATCH = 64  # examples of the calibration that are computed at once
_SAME = ("stop_gradient", "checkpoint_name", "copy", "optimization_barrier")
_KEPT = ("softmax",)  # blocks


def integer_program(
    f: Callable[..., Any],
    params: Any,
    calibration: Any,
    bits: int = 8,
    rounding: str = "q31",
    method: str = "max",
    name: str | None = None,
    **options: Any,
) -> IntegerProgram:
    """A function as an IntegerProgram: int8 activations, and weights of 8, 4 or 2 bits with a scale for each channel.

    Args:
      f: `f(params, x)` of a batch of examples; its results have the same first axis. It consists of convolutions (with
        groups and dilation), products with constant matrices, sums and products of activations, pools and means,
        softmax along the last axis, argmax, elementwise functions of one activation, and reshapes, transpositions,
        concatenations, pads and slices. Affine functions of a convolution's or product's result become part of it. So
        do relu, relu6, clip and the roundings of `fake_quantize` and `lsq` after it: a network that was trained with
        them keeps its scales.
      params: a tree of arrays: constants of the program.
      calibration: examples [n, ...] like those that the program will see; a tuple for several arguments after params.
      bits: of the weights.
      rounding: "q31" has no floating-point operation at all; "float" multiplies accumulators with float32 numbers.
      method, options: of rlx.quant.Calibrator, which limits the ranges of activations.
      name: an identifier; by default the function's name.

    Weights are symmetric, and their scales minimise the squared error of a channel. Activations have a zero point.

    Returns an IntegerProgram. Raises UnsupportedError, with the line, for an operation that has no integer form;
    OptionError for other bits, roundings or methods; NanError where the calibration meets NaN or an infinity;
    DtypeOverflowError where an accumulator can exceed int32 or a ratio of scales exceeds a multiplier's range.

    >>> import numpy as np
    >>> from rlx import quant
    >>> import rlx.numpy as jnp
    >>> w = np.array([[1.0, -1.0], [0.5, 2.0]], np.float32)
    >>> x = np.random.default_rng(0).uniform(-1, 1, (100, 2)).astype(np.float32)
    >>> program = quant.integer_program(lambda w, x: jnp.maximum(x @ w, 0), w, x)
    >>> [type(operation).__name__ for operation in program.operations]
    ['IntegerDense']
    >>> found = program.dequantize(program(program.quantize(x)))
    >>> bool(np.abs(found - np.maximum(x @ w, 0)).max() < 0.03)
    True
    """
    range_of(bits)
    if rounding not in _ROUNDINGS:
        raise OptionError(f"integer_program got rounding={rounding!r}.", f"There are: {', '.join(_ROUNDINGS)}.")
    examples = [np.asarray(x) for x in (calibration if isinstance(calibration, tuple) else (calibration,))]
    _refuse_examples(examples)
    batch = min(_BATCH, len(examples[0]))
    traced = _traced(f, params, [x[:batch] for x in examples])
    program, constants = _without_constants(traced)
    ranges = _Ranges(program, constants, method, options)
    for start in range(0, len(examples[0]), batch):
        rows = np.arange(start, start + batch) % len(examples[0])  # the last batch is filled with the first examples
        ranges.add([x[rows] for x in examples])
    chosen = name or _identifier(getattr(f, "__name__", "program"))
    names = _argument_names(f, len(examples))
    shared: set[Var] = set()
    while True:
        try:
            writer = IntegerWriter(ranges.of, bits, rounding, batch)
            return _Conversion(program, constants, writer, shared).converted(chosen, names)
        except SharedSum as found:  # a sum that is read with and without a function after it
            shared.add(found.var)


def _refuse_examples(examples: Sequence[np.ndarray]) -> None:
    if any(x.ndim == 0 or not len(x) or len(x) != len(examples[0]) for x in examples):
        shapes = ", ".join(str(list(x.shape)) for x in examples)
        raise ShapeError(f"Examples for the calibration have the shapes {shapes}.", "Give at least one: [n, ...].")
    for x in examples:
        if x.dtype.kind != "f":
            raise OptionError(f"Examples for the calibration are {x.dtype}.", "Give floating numbers.")


def _identifier(name: str) -> str:
    found = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return found if found and not found[0].isdigit() else f"program{'_' * bool(found)}{found}"


def _argument_names(f: Callable[..., Any], count: int) -> list[str]:
    try:
        names = list(inspect.signature(f).parameters)[1 : count + 1]
    except (TypeError, ValueError):
        names = []
    return [_identifier(names[i]) if i < len(names) else f"x{i}" for i in range(count)]


# ---------------------------------------------------------------- the traced program
def _traced(f: Callable[..., Any], params: Any, examples: Sequence[np.ndarray]) -> Program:
    """The function of the examples, with parameters as constants, inlined but for the blocks that are known."""

    def flat(*tracers: Any) -> list[Any]:
        return [as_array(leaf) for leaf in tree.leaves(f(params, *tracers))]

    program, captured = trace_program(flat, [as_array(x).type for x in examples], None, "program")
    closed = close_over(program, captured)
    return dead_code(inline_calls(closed, lambda e: e.primitive.name == "block" and e.params["name"] in _KEPT))


def _without_constants(program: Program) -> tuple[Program, dict[Var, np.ndarray]]:
    """The equations that depend on the inputs, and the values of all others."""
    constants = {var: np.asarray(value) for var, value in program.constants}
    rest = []
    for e in program.equations:
        if all(isinstance(a, Literal) or a in constants for a in e.inputs):
            values = [a.value if isinstance(a, Literal) else constants[a] for a in e.inputs]
            found: Any = e.primitive.bind(*map(as_array, values), **e.params)
            outputs = found if e.primitive.multiple else [found]
            constants.update((v, np.asarray(value)) for v, value in zip(e.outputs, outputs, strict=True))
        else:
            rest.append(e)
    return program.replace(equations=rest), constants


class _Ranges:
    """The range of every value over the examples."""

    def __init__(self, program: Program, constants: dict[Var, np.ndarray], method: str, options: Any) -> None:
        self.program, self.constants = program, constants
        floating = [v for v in (*program.inputs, *(v for e in program.equations for v in e.outputs))
                    if v.type.dtype.kind == "f"]  # fmt: skip
        self.seen = {v: Calibrator(method, **options) for v in floating}
        self.ends = dict.fromkeys(floating, (0.0, 0.0))

    def add(self, examples: Sequence[np.ndarray]) -> None:
        environment = Environment(self.program.replace(constants=()), [as_array(x) for x in examples])
        environment.update((v, as_array(value)) for v, value in self.constants.items())
        for e in self.program.equations:
            found: Any = e.primitive.bind(*map(environment.read, e.inputs), **e.params)
            outputs = found if e.primitive.multiple else [found]
            environment.update(zip(e.outputs, outputs, strict=True))
        for v, calibrator in self.seen.items():
            values = np.asarray(environment.read(v))
            low, high = self.ends[v]
            self.ends[v] = min(low, float(values.min(initial=0))), max(high, float(values.max(initial=0)))
            calibrator.add(values[np.isfinite(values)])

    def of(self, var: Var) -> tuple[float, float]:
        """The lowest and highest number, zero included, that codes of a value stand for."""
        low, high = self.ends[var]
        if not np.isfinite([low, high]).all():
            raise NanError("Calibration met NaN or an infinity.", "Look where it comes from: rlx.debug_nans.")
        largest = self.seen[var].threshold()
        return max(low, -largest), min(high, largest)


# ---------------------------------------------------------------- equations to nodes
class _Conversion:
    """A program's equations as nodes, which a writer turns into operations where their codes are needed.

    shared: sums that are not fused with the functions that follow.
    """

    def __init__(
        self, program: Program, constants: dict[Var, np.ndarray], writer: IntegerWriter, shared: set[Var]
    ) -> None:
        self.program, self.constants, self.writer, self.shared = program, constants, writer, shared
        self.nodes: dict[Var, Node] = {}

    def converted(self, name: str, names: Sequence[str]) -> IntegerProgram:
        for var, own in zip(self.program.inputs, names, strict=True):
            self.nodes[var] = self.writer.input(var, own)
        for e in self.program.equations:
            self.writer.origin = "" if e.origin is None else str(e.origin)
            try:
                self.nodes[e.outputs[0]] = self.node(e)
            except RlxError as error:
                if e.origin is not None and not error.line:
                    error.relocate(source_line(*e.origin))
                raise
        outputs = []
        for atom in self.program.outputs:
            if isinstance(atom, Literal) or atom in self.constants:
                raise UnsupportedError("A result does not depend on the input.", "Return it apart from the program.")
            outputs.append(self.writer.codes(self.nodes[atom]).value)
        return self.writer.program(name, outputs)

    def node(self, e: Equation) -> Node:
        """The node of an equation's result."""
        name = e.params["name"] if e.primitive.name == "block" else e.primitive.name
        if name in _SAME:
            return self.nodes[e.inputs[0]]  # ty: ignore[invalid-argument-type]
        if name == "convert" and e.params["dtype"].kind == "f":
            return self.nodes[e.inputs[0]]  # ty: ignore[invalid-argument-type]
        rule = getattr(self, f"_{name}", None)
        found = rule(e) if rule is not None else None
        if found is None and isinstance(e.primitive, Elementwise):
            found = self.elementwise(e)
        if found is None:
            raise UnsupportedError(
                f"{name} of {', '.join(map(str, (a.type for a in e.inputs)))} has no integer form.",
                "Integer programs have convolutions, products with constants, sums, pools, softmax, argmax, functions "
                "of one activation and changes of shape: compute this part outside.",
            )
        if isinstance(found, Sum) and e.outputs[0] in self.shared:
            return self.writer.codes(found)
        return found

    def constant(self, atom: Atom) -> np.ndarray | None:
        return atom.value if isinstance(atom, Literal) else self.constants.get(atom)

    def read(self, atom: Atom) -> Node:
        assert isinstance(atom, Var)
        return self.nodes[atom]

    # ------------------------------------------------ elementwise
    def elementwise(self, e: Equation) -> Node | None:
        """A function of one node's numbers, of the other operands' constants."""
        operands: list[Any] = []
        base: Node | None = None
        for atom in e.inputs:
            value = self.constant(atom)
            if value is not None:
                number = _uniform(value)
                if number is None:
                    return None
                operands.append(number)
                continue
            node = self.read(atom)
            source, function = self.source(node)
            if base is not None and source is not base:
                return None
            base = source
            operands.append(function)

        def compute(x: np.ndarray) -> np.ndarray:
            values = [o(x) if callable(o) else o for o in operands]
            return np.asarray(e.primitive.bind(*map(as_array, values), **e.params))

        assert base is not None
        return Pointwise(e.outputs[0], base, compute)

    def source(self, node: Node) -> tuple[Node, Callable[[np.ndarray], np.ndarray]]:
        if isinstance(node, Pointwise):
            return node.base, node.function
        return node, lambda x: x

    def affine(self, e: Equation, combine: Callable[[Sum, np.ndarray], Sum | None]) -> Sum | None:
        """A sum times or plus constants along its channels."""
        (variable, other) = self.sides(e)
        if variable is None or other is None:
            return None
        node = self.read(variable)
        if not (isinstance(node, Sum) and node.weights is not None) and _uniform(other) is None:
            node = self.writer.channelwise(self.writer.codes(node), e.outputs[0])
        if not isinstance(node, Sum) or node.weights is None:
            return None
        along = _along(other, variable.type.shape, node.channel_axis)
        return None if along is None else combine(node, along)

    def sides(self, e: Equation) -> tuple[Var | None, np.ndarray | None]:
        left, right = e.inputs
        known = [self.constant(a) for a in e.inputs]
        if known[0] is not None and isinstance(right, Var):
            return right, known[0]
        return (left, known[1]) if isinstance(left, Var) and known[1] is not None else (None, None)

    def _add(self, e: Equation) -> Node | None:
        if self.sides(e)[0] is not None:
            return self.affine(e, lambda s, c: s.changed(e.outputs[0], bias=s.bias + c))
        return self.fusable(e) or self.writer.added(e.outputs[0], *map(self.read, e.inputs), signs=(1, 1))

    def _subtract(self, e: Equation) -> Node | None:
        if self.sides(e)[0] is not None:
            if self.constant(e.inputs[0]) is not None:
                return self.affine(e, lambda s, c: s.changed(e.outputs[0], weights=-s.weights, bias=c - s.bias))
            return self.affine(e, lambda s, c: s.changed(e.outputs[0], bias=s.bias - c))
        return self.fusable(e) or self.writer.added(e.outputs[0], *map(self.read, e.inputs), signs=(1, -1))

    def _multiply(self, e: Equation) -> Node | None:
        if self.sides(e)[0] is not None:
            return self.scaled(e, lambda c: c)
        return self.fusable(e) or self.writer.multiplied(e.outputs[0], *map(self.read, e.inputs))

    def _divide(self, e: Equation) -> Node | None:
        if self.constant(e.inputs[1]) is None:
            return None
        return self.scaled(e, lambda c: 1 / c)

    def scaled(self, e: Equation, factor: Callable[[np.ndarray], np.ndarray]) -> Node | None:
        variable, other = self.sides(e)
        assert variable is not None and other is not None
        node, number = self.read(variable), _uniform(other)
        if isinstance(node, Sum) and node.weights is None and number is not None:
            return node.scaled_by(e.outputs[0], float(factor(np.asarray(number, np.float64))))
        return self.affine(
            e,
            lambda s, c: s.changed(
                e.outputs[0],
                weights=s.weights * factor(c).reshape(-1, *[1] * (s.weights.ndim - 1)),
                bias=s.bias * factor(c),
            ),
        )

    def fusable(self, e: Equation) -> Node | None:
        """A function of one node, if both operands are."""
        sources = [self.source(self.read(a))[0] for a in e.inputs]
        return self.elementwise(e) if sources[0] is sources[1] else None

    # ------------------------------------------------ sums of products
    def _conv_general_dilated(self, e: Equation) -> Node | None:
        p = e.params
        kernel = self.constant(e.inputs[1])
        spatial = e.inputs[0].type.ndim - 2
        plain = p["batch_group_count"] == 1 and all(d == 1 for d in p["lhs_dilation"])
        numbers = p["dimension_numbers"]
        if kernel is None or not plain or spatial not in (1, 2) or numbers.lhs_spec[0] or numbers.out_spec[0]:
            return None
        to_last = tuple(a - 1 for a in (*numbers.lhs_spec[2:], numbers.lhs_spec[1]))
        weights = np.transpose(kernel, (numbers.rhs_spec[0], *numbers.rhs_spec[2:], numbers.rhs_spec[1]))
        from_last = np.argsort([a - 1 for a in (*numbers.out_spec[2:], numbers.out_spec[1])])
        strides, dilation, padding = (tuple(p[k]) for k in ("window_strides", "rhs_dilation", "padding"))
        if spatial == 1:
            weights = weights[:, None]
            strides, dilation, padding = (1, *strides), (1, *dilation), ((0, 0), *padding)
        if any(low < 0 or high < 0 for low, high in padding):
            return None
        return self.writer.convolution(
            e.outputs[0], self.read(e.inputs[0]), to_last, weights, strides, dilation, padding,
            p["feature_group_count"],
            tuple(int(a) for a in from_last), numbers.out_spec[1] - 1,
        )  # fmt: skip

    def _dot_general(self, e: Equation) -> Node | None:
        (contracted, batched) = e.params["dimension_numbers"]
        matrix = self.constant(e.inputs[1])
        if matrix is None or any(batched) or len(contracted[0]) != 1 or matrix.ndim != 2 or contracted[0][0] == 0:
            return None
        axes = [a for a in range(e.inputs[0].type.ndim) if a != contracted[0][0]] + [contracted[0][0]]
        weights = matrix.T if contracted[1][0] == 0 else matrix
        return self.writer.dense(e.outputs[0], self.read(e.inputs[0]), tuple(a - 1 for a in axes[1:]), weights)

    # ------------------------------------------------ pools and reductions
    def _reduce_window(self, e: Equation) -> Node | None:
        p = e.params
        shape, window, strides, padding = e.inputs[0].type.shape, p["window"], p["strides"], p["padding"]
        if any(d != 1 for d in (*p["base_dilation"], *p["window_dilation"])) or p["op"] not in ("max", "sum", "add"):
            return None
        moving = [a for a in range(len(shape)) if (window[a], strides[a], *padding[a]) != (1, 1, 0, 0)]
        if 0 in moving or len(moving) > 2 or len(shape) > 4 or len(shape) < 3:
            return None
        return self.pooled(e, moving, window, strides, padding, p["op"] == "max")

    def _reduce_sum(self, e: Equation) -> Node | None:
        return self.reduced(e, False)

    def _reduce_max(self, e: Equation) -> Node | None:
        return self.reduced(e, True)

    def reduced(self, e: Equation, largest: bool) -> Node | None:
        shape = e.inputs[0].type.shape
        axes = sorted(a % len(shape) for a in e.params["axes"])
        if not axes or 0 in axes or len(axes) > 2 or len(shape) > 4:
            return None
        window = [size if a in axes else 1 for a, size in enumerate(shape)]
        return self.pooled(e, axes, window, window, [(0, 0)] * len(shape), largest)

    def pooled(self, e: Equation, moving: list[int], window: Any, strides: Any, padding: Any, largest: bool) -> Node:
        """A pool over at most two axes, which become rows and columns; the others become channels."""
        rank = len(e.inputs[0].type.shape)
        still = [a for a in range(1, rank) if a not in moving]
        permutation = tuple(a - 1 for a in (*moving, *still))
        two = [(1, 1, (0, 0))] * (2 - len(moving)) + [(window[a], strides[a], tuple(padding[a])) for a in moving]
        back = tuple(int(a) for a in np.argsort(permutation))
        return self.writer.pool(e.outputs[0], self.read(e.inputs[0]), permutation, len(moving), two, back, largest)

    def _softmax(self, e: Equation) -> Node | None:
        told, rank = e.params["attributes"], e.inputs[0].type.ndim
        axis = told["axis"]
        if not isinstance(axis, int) or axis % rank != rank - 1 or told.get("where") is not None or len(e.inputs) != 1:
            return None
        return Softmax(e.outputs[0], self.read(e.inputs[0]))

    def _argmax(self, e: Equation) -> Node | None:
        axis = e.params["axis"] % e.inputs[0].type.ndim
        return self.writer.argmax(e.outputs[0], self.read(e.inputs[0]), axis - 1) if axis else None

    # ------------------------------------------------ shapes
    def _reshape(self, e: Equation) -> Node | None:
        before, after = e.inputs[0].type.shape, e.outputs[0].type.shape
        if not after or before[:1] != after[:1]:
            return None
        return self.writer.reshaped(self.writer.codes(self.read(e.inputs[0])), after[1:])

    def _transpose(self, e: Equation) -> Node | None:
        permutation = e.params["permutation"]
        if permutation[0] != 0:
            return None
        node = self.writer.codes(self.read(e.inputs[0]))
        return self.writer.transposed(node, tuple(a - 1 for a in permutation[1:]))

    def _broadcast_in_dim(self, e: Equation) -> Node | None:
        """Axes of size 1 are added."""
        before, after = e.inputs[0].type, e.outputs[0].type.shape
        if before.size != int(np.prod(after)) or e.params["dims"][:1] != (0,):
            return None
        return self._reshape(e)

    def _concatenate(self, e: Equation) -> Node | None:
        axis = e.params["axis"]
        if axis == 0 or any(self.constant(a) is not None for a in e.inputs):
            return None
        return self.writer.concatenated(e.outputs[0], [self.read(a) for a in e.inputs], axis - 1)

    def _pad(self, e: Equation) -> Node | None:
        value = self.constant(e.inputs[1])
        padding = e.params["config"]
        if value is None or any(padding[0]) or any(low < 0 or high < 0 or inner for low, high, inner in padding):
            return None
        return self.writer.padded(self.read(e.inputs[0]), tuple((p[0], p[1]) for p in padding[1:]), float(value))

    def _slice(self, e: Equation) -> Node | None:
        p = e.params
        size = e.inputs[0].type.shape[0]
        starts, stops = p["starts"], p["limits"]
        steps = p.get("strides") or (1,) * len(starts)
        if (starts[0], stops[0], steps[0]) != (0, size, 1):
            return None
        return self.writer.sliced(self.read(e.inputs[0]), tuple(starts[1:]), tuple(stops[1:]), tuple(steps[1:]))


def _uniform(value: np.ndarray) -> np.ndarray | None:
    """The number that all elements are, or None."""
    flat = np.asarray(value).reshape(-1)
    return flat[0] if flat.size and (flat == flat[0]).all() else None


def _along(value: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """A constant as one number for each position along an axis of an example, or None if it differs along another."""
    whole = np.broadcast_to(np.asarray(value, np.float64), shape)
    moved = np.moveaxis(whole, axis + 1, 0).reshape(shape[axis + 1], -1)
    return moved[:, 0].copy() if (moved == moved[:, :1]).all() else None
