"""The values of a function on their way to an integer program, and the operations that are written for them.

A value is Codes, which an operation has written; a Sum, which waits for the function that follows it; a Pointwise
function of one of these; or a Softmax. `IntegerWriter.codes` writes the operations that a value needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import DtypeOverflowError
from rlx.ir.program import Var
from rlx.quant.integer_arithmetic import fixed_point
from rlx.quant.integer_program import (
    IntegerAdd,
    IntegerArgmax,
    IntegerClamp,
    IntegerConcatenate,
    IntegerConvolution,
    IntegerDense,
    IntegerMaxPool,
    IntegerMultiply,
    IntegerOperation,
    IntegerPad,
    IntegerProgram,
    IntegerReshape,
    IntegerSlice,
    IntegerSoftmax,
    IntegerSumPool,
    IntegerTable,
    IntegerTranspose,
    IntegerValue,
    Requantization,
    accumulator_bound,
)
from rlx.quant.training import range_of

__all__ = ["Codes", "IntegerWriter", "Node", "Pointwise", "SharedSum", "Softmax", "Sum"]

_LIMIT = 2**31
_PROBES = 4001
_MOST_SHIFT = 22  # of sums of activations
_EXPONENTIAL_BITS = 21  # of the softmax's numerators, fewer for long rows
Real = Callable[[np.ndarray], np.ndarray]


class SharedSum(Exception):
    """A sum was written twice: with the function after it, and without."""

    def __init__(self, var: Var) -> None:
        super().__init__()
        self.var = var


class Grid(NamedTuple):
    """The codes that a value gets."""

    scale: float
    zero_point: int
    low: int = -128
    high: int = 127

    def limited(self, low: float, high: float) -> Grid:
        """The grid with codes of numbers from low to high."""
        codes = [int(np.clip(np.rint(x / self.scale) + self.zero_point, -128, 127)) for x in (low, high)]
        return self._replace(low=max(self.low, codes[0]), high=min(self.high, codes[1]))


class Fit(NamedTuple):
    """A function that limits its argument to [low, high], or rounds it to a grid."""

    low: float
    high: float
    grid: Grid | None = None


@dataclass(eq=False)
class Codes:
    """A value of the program."""

    value: int


@dataclass(eq=False)
class Sum:
    """A value whose codes are a requantised int32 sum, which is not written yet.

    root: the variable of the sum alone. weights, bias: by output channel, in real numbers, or None; factor: that the
    sum is multiplied with. write: `(sum, grid) -> value`. channel_axis: of an example.
    """

    var: Var
    root: Var
    write: Callable[[Sum, Grid], int]
    weights: Any = None
    bias: Any = None
    channel_axis: int = -1
    factor: float = 1.0

    def changed(self, var: Var, **fields: Any) -> Sum:
        """Another affine function of the same products."""
        return replace(self, var=var, **fields)

    def scaled_by(self, var: Var, factor: float) -> Sum | None:
        """The sum times a positive number."""
        return replace(self, var=var, factor=self.factor * factor) if factor > 0 else None


@dataclass(eq=False)
class Pointwise:
    """A function of each number of `base`, which is not Pointwise itself."""

    var: Var
    base: Node
    function: Real


@dataclass(eq=False)
class Softmax:
    """Along the last axis."""

    var: Var
    logits: Node


Node = Codes | Sum | Pointwise | Softmax


class IntegerWriter:
    """Writes the values and operations of an integer program.

    ranges: of a variable's numbers; bits: of weights; origin: of the operations that are written next.
    """

    def __init__(self, ranges: Callable[[Var], tuple[float, float]], bits: int, rounding: str, batch: int) -> None:
        self.ranges, self.bits, self.rounding, self.batch = ranges, bits, rounding, batch
        self.values: list[IntegerValue] = []
        self.operations: list[IntegerOperation] = []
        self.inputs: list[int] = []
        self.origin = ""
        self.written: dict[Var, Var] = {}
        self.known: dict[int, tuple[Node, Codes]] = {}
        self.counts: dict[str, int] = {}

    # ------------------------------------------------ values
    def input(self, var: Var, name: str) -> Codes:
        grid = self.grid(var)
        self.inputs.append(len(self.values))
        self.values.append(IntegerValue(f"{name}_codes", var.type.shape[1:], "int8", grid.scale, grid.zero_point))
        return Codes(self.inputs[-1])

    def grid(self, var: Var) -> Grid:
        """The codes for a variable's range."""
        low, high = self.ranges(var)
        scale = float(np.float32((high - low) / 255)) or 1.0
        return Grid(scale, int(np.clip(np.rint(-128 - low / scale), -128, 127)))

    def value(self, kind: str, shape: Sequence[int], grid: Grid, dtype: str = "int8") -> int:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        name = f"{kind}_{self.counts[kind]}"
        self.values.append(IntegerValue(name, tuple(shape), dtype, *grid))
        return len(self.values) - 1

    def emit(self, operation: Any, kind: str, shape: Sequence[int], grid: Grid, /, *inputs: int, **fields: Any) -> int:
        """Write an operation; -> its value."""
        output = self.value(kind, shape, grid)
        made = operation(inputs=inputs, output=output, origin=self.origin, **fields)
        self.operations.append(made)
        return output

    def grid_of(self, value: int) -> Grid:
        found = self.values[value]
        return Grid(found.scale, found.zero_point, found.low, found.high)

    def shape(self, codes: Codes) -> tuple[int, ...]:
        return self.values[codes.value].shape

    def program(self, name: str, outputs: Sequence[int]) -> IntegerProgram:
        """The program of the operations that its outputs need."""
        needed, kept = set(outputs), []
        for operation in reversed(self.operations):
            if operation.output in needed:
                needed.update(operation.inputs)
                kept.append(operation)
        places = {old: new for new, old in enumerate(sorted(needed | set(self.inputs)))}
        operations = tuple(
            replace(o, inputs=tuple(places[i] for i in o.inputs), output=places[o.output]) for o in reversed(kept)
        )
        values = tuple(self.values[i] for i in places)
        return IntegerProgram(
            name, values, operations, tuple(places[i] for i in self.inputs), tuple(places[i] for i in outputs)
        )

    # ------------------------------------------------ nodes to codes
    def codes(self, node: Node, grid: Grid | None = None) -> Codes:
        """The codes of a node, of the given scale and zero point or of the best."""
        if isinstance(node, Codes):
            return node if grid is None else self.rescaled(node, grid)
        found = self.known.get(id(node))
        if found is None:
            codes = self._new_codes(node, grid)
            self.known[id(node)] = node, codes
        else:
            codes = found[1]
        return codes if grid is None else self.rescaled(codes, grid)

    def _new_codes(self, node: Node, grid: Grid | None) -> Codes:
        if isinstance(node, Sum):
            return self.sum_codes(node, grid or self.grid(node.var))
        if isinstance(node, Softmax):
            return self.softmax_codes(node)
        assert isinstance(node, Pointwise)
        base = node.base
        fit = None if isinstance(base, Codes) else fitted(node.function, self.ranges(base.var))
        if isinstance(base, Sum) and fit is not None and id(base) not in self.known:
            chosen = grid or fit.grid or self.grid(node.var)
            return self.sum_codes(base, chosen if fit.grid else chosen.limited(fit.low, fit.high))
        return self.pointwise_codes(node, self.codes(base), grid)

    def sum_codes(self, node: Sum, grid: Grid) -> Codes:
        if node.root in self.written:
            before = self.written[node.root]
            raise SharedSum(node.var if before is node.var else node.root)
        self.written[node.root] = node.var
        return Codes(node.write(node, grid))

    def pointwise_codes(self, node: Pointwise, source: Codes, grid: Grid | None) -> Codes:
        before = self.grid_of(source.value)
        numbers = (np.arange(-128, 128) - before.zero_point) * before.scale
        found = np.asarray(node.function(numbers.astype(np.float32)), np.float64)
        inside = np.arange(before.low, before.high + 1) + 128
        fit = fitted(node.function, (numbers[inside[0]], numbers[inside[-1]]))
        if fit is not None and fit.grid is None and (grid is None or grid[:2] == before[:2]):
            limited = before.limited(fit.low, fit.high)
            low, high = limited.low, limited.high
            return Codes(
                self.emit(IntegerClamp, "clamp", self.shape(source), limited, source.value, low=low, high=high)
            )
        chosen = grid or (fit.grid if fit is not None and fit.grid else self.grid(node.var))
        return self.table(source, chosen, found)

    def table(self, source: Codes, grid: Grid, numbers: np.ndarray) -> Codes:
        """Real numbers for each code of the source, in codes of a grid."""
        known = np.nan_to_num(numbers / grid.scale, nan=0.0, posinf=1e9, neginf=-1e9)
        table = np.clip(np.rint(known) + grid.zero_point, grid.low, grid.high).astype(np.int8)
        before = self.grid_of(source.value)
        reached = table[before.low + 128 : before.high + 129]
        grid = grid._replace(low=int(reached.min()), high=int(reached.max()))
        return Codes(self.emit(IntegerTable, "table", self.shape(source), grid, source.value, table=table))

    def rescaled(self, source: Codes, grid: Grid) -> Codes:
        before = self.grid_of(source.value)
        if before[:2] == grid[:2]:
            return source
        return self.table(source, grid, (np.arange(-128, 128) - before.zero_point) * before.scale)

    def softmax_codes(self, node: Softmax) -> Codes:
        source = self.codes(node.logits)
        shape = self.shape(source)
        bits = min(_EXPONENTIAL_BITS, 28 - (max(shape[-1], 1) - 1).bit_length())
        if bits < 8:
            raise DtypeOverflowError(f"A softmax of {shape[-1]} numbers overflows int32.", "Compute it outside.")
        table = np.rint(np.exp(-self.grid_of(source.value).scale * np.arange(256.0)) * 2**bits).astype(np.int32)
        return Codes(self.emit(IntegerSoftmax, "softmax", shape, Grid(1 / 256, -128), source.value, table=table))

    # ------------------------------------------------ sums of products
    def requantization(self, ratios: np.ndarray, grid: Grid) -> Requantization:
        if self.rounding == "float":
            return Requantization("float", ratios.astype(np.float32), np.zeros(ratios.shape, np.int32), *grid[1:])
        return Requantization("q31", *fixed_point(ratios), *grid[1:])

    def quantized(self, node: Sum, source: int, grid: Grid) -> dict[str, Any]:
        """Weights, bias and requantisation in integers."""
        weights = node.weights.reshape(len(node.weights), -1)
        scale = channel_scales(weights, range_of(self.bits))
        x_scale = self.values[source].scale
        scale = np.maximum(scale, np.abs(node.bias) / (x_scale * 2**30))
        top = range_of(self.bits)
        codes = np.clip(np.rint(weights / scale[:, None]), -top, top).astype(np.int8)
        return {
            "weights": codes.reshape(node.weights.shape),
            "bias": np.rint(node.bias / (scale * x_scale)).astype(np.int32),
            "bits": self.bits,
            "requantization": self.requantization(scale * x_scale / grid.scale, grid),
        }

    def proved(self, operation: Any, source: int) -> None:
        """Raise DtypeOverflowError if a sum can exceed int32."""
        bound = accumulator_bound(operation, self.values[source])
        if bound >= _LIMIT:
            raise DtypeOverflowError(
                f"A sum of {operation.weights[0].size} products can reach {bound}, and int32 ends at {_LIMIT - 1}.",
                "Divide the sum into several layers, or use fewer bits for the weights.",
            )

    def convolution(
        self, var: Var, node: Node, to_last: tuple[int, ...], weights: np.ndarray, strides: Any, dilation: Any,
        padding: Any, groups: int, from_last: tuple[int, ...], channel_axis: int,
    ) -> Sum:  # fmt: skip
        source = self.transposed(self.codes(node), to_last)
        flat = len(self.shape(source)) == 2
        if flat:
            source = self.reshaped(source, (1, *self.shape(source)))
        rows = [
            (size + low + high - (kernel - 1) * d - 1) // stride + 1
            for size, kernel, stride, d, (low, high) in zip(
                self.shape(source), weights.shape[1:3], strides, dilation, padding, strict=False
            )
        ]

        def write(node: Sum, grid: Grid) -> int:
            told = self.quantized(node, source.value, grid)
            shape = (*rows, len(weights))
            fields = {"strides": strides, "dilation": dilation, "padding": padding, "groups": groups}
            output = self.emit(IntegerConvolution, "conv", shape, grid, source.value, **told, **fields)
            self.proved(self.operations[-1], source.value)
            found = self.reshaped(Codes(output), shape[1:]) if flat else Codes(output)
            return self.transposed(found, from_last).value

        return Sum(var, var, write, weights.astype(np.float64), np.zeros(len(weights)), channel_axis)

    def dense(self, var: Var, node: Node, to_last: tuple[int, ...], weights: np.ndarray) -> Sum:
        source = self.transposed(self.codes(node), to_last)

        def write(node: Sum, grid: Grid) -> int:
            told = self.quantized(node, source.value, grid)
            shape = (*self.shape(source)[:-1], len(weights))
            output = self.emit(IntegerDense, "dense", shape, grid, source.value, **told)
            self.proved(self.operations[-1], source.value)
            return output

        return Sum(var, var, write, weights.astype(np.float64), np.zeros(len(weights)), len(self.shape(source)) - 1)

    def channelwise(self, source: Codes, var: Var) -> Sum:
        """A value times one for each channel, its last axis: a depthwise convolution with one weight."""
        shape = self.shape(source)
        channels = shape[-1]
        image = self.reshaped(source, (1, int(np.prod(shape[:-1], dtype=np.int64)), channels))
        found = self.convolution(
            var, image, (0, 1, 2), np.ones((channels, 1, 1, 1)), (1, 1), (1, 1), ((0, 0), (0, 0)), channels,
            (0, 1, 2), len(shape) - 1,
        )  # fmt: skip
        return replace(found, write=lambda node, grid: self.reshaped(Codes(found.write(node, grid)), shape).value)

    def added(self, var: Var, left: Node, right: Node, signs: tuple[int, int]) -> Sum | None:
        sources = [self.codes(left).value, self.codes(right).value]
        if self.values[sources[0]].shape != self.values[sources[1]].shape:
            return None
        scales = [sign * self.values[i].scale for sign, i in zip(signs, sources, strict=True)]

        def write(node: Sum, grid: Grid) -> int:
            ratios = np.array(scales) * node.factor / grid.scale
            shift = _MOST_SHIFT
            while shift and np.abs(np.rint(ratios * 2**shift)).sum() * 255 + 2**shift >= _LIMIT:
                shift -= 1
            multipliers = tuple(int(m) for m in np.rint(ratios * 2**shift))
            fields = {"multipliers": multipliers, "shift": shift}
            limits = {"zero_point": grid.zero_point, "low": grid.low, "high": grid.high}
            if sum(map(abs, multipliers)) * 255 + 2**shift >= _LIMIT or not any(multipliers):
                raise DtypeOverflowError(
                    f"A sum has operands with scales of {scales} and a result of {grid.scale}.",
                    "Calibrate with inputs like those that the model will see: a value may be constant.",
                )
            return self.emit(IntegerAdd, "add", self.values[sources[0]].shape, grid, *sources, **fields, **limits)

        return Sum(var, var, write)

    def multiplied(self, var: Var, left: Node, right: Node) -> Sum | None:
        sources = [self.codes(left).value, self.codes(right).value]
        if self.values[sources[0]].shape != self.values[sources[1]].shape:
            return None
        scale = self.values[sources[0]].scale * self.values[sources[1]].scale

        def write(node: Sum, grid: Grid) -> int:
            how = self.requantization(np.array([scale * node.factor / grid.scale]), grid)
            shape = self.values[sources[0]].shape
            return self.emit(IntegerMultiply, "multiply", shape, grid, *sources, requantization=how)

        return Sum(var, var, write)

    # ------------------------------------------------ pools and choices
    def pool(
        self, var: Var, node: Node, permutation: tuple[int, ...], moving: int, two: Any, back: Any, largest: bool
    ) -> Node:
        """A pool over the first `moving` axes after the permutation; two: window, stride and pads of each axis."""
        source = self.transposed(self.codes(node), permutation)
        shape = self.shape(source)
        rows = (*(1,) * (2 - moving), *shape[:moving])
        channels = int(np.prod(shape[moving:], dtype=np.int64))
        image = self.reshaped(source, (*rows, channels)).value
        window, strides, padding = (tuple(part[i] for part in two) for i in range(3))
        sizes = [
            (size + sum(pads) - extent) // stride + 1
            for size, extent, stride, pads in zip(rows, window, strides, padding, strict=True)
        ]
        fields = {"window": window, "strides": strides, "padding": padding}

        def restored(output: int) -> int:
            if len(var.type.shape) - 1 != len(shape):
                return self.reshaped(Codes(output), var.type.shape[1:]).value
            whole = self.reshaped(Codes(output), (*sizes[2 - moving :], *shape[moving:]))
            return self.transposed(whole, back).value

        def write(node: Sum, grid: Grid) -> int:
            how = self.requantization(np.array([self.values[image].scale * node.factor / grid.scale]), grid)
            output = self.emit(
                IntegerSumPool, "sum_pool", (*sizes, channels), grid, image, **fields, requantization=how
            )
            return restored(output)

        if not largest:
            return Sum(var, var, write)
        grid = self.grid_of(image)
        grid = grid._replace(low=-128) if any(map(any, padding)) else grid
        return Codes(restored(self.emit(IntegerMaxPool, "max_pool", (*sizes, channels), grid, image, **fields)))

    def argmax(self, var: Var, node: Node, axis: int) -> Codes:
        source = self.codes(node.logits if isinstance(node, Softmax) else node)
        output = self.value("argmax", var.type.shape[1:], Grid(1.0, 0, 0, self.shape(source)[axis] - 1), "int32")
        self.operations.append(IntegerArgmax(inputs=(source.value,), output=output, origin=self.origin, axis=axis))
        return Codes(output)

    # ------------------------------------------------ shapes
    def reshaped(self, source: Codes, shape: Sequence[int]) -> Codes:
        shape = tuple(shape)
        if shape == self.shape(source):
            return source
        grid = self.grid_of(source.value)
        return Codes(self.emit(IntegerReshape, "reshape", shape, grid, source.value, shape=shape))

    def transposed(self, source: Codes, permutation: tuple[int, ...]) -> Codes:
        """A transposition; two after another become one."""
        for before in self.operations:
            if before.output == source.value and isinstance(before, IntegerTranspose):
                permutation = tuple(before.permutation[axis] for axis in permutation)
                source = Codes(before.inputs[0])
        if permutation == tuple(range(len(permutation))):
            return source
        shape = [self.shape(source)[axis] for axis in permutation]
        grid = self.grid_of(source.value)
        return Codes(self.emit(IntegerTranspose, "transpose", shape, grid, source.value, permutation=permutation))

    def concatenated(self, var: Var, nodes: Sequence[Node], axis: int) -> Codes:
        grid = self.grid(var)
        sources = [self.codes(node, grid) for node in nodes]
        shape = list(self.shape(sources[0]))
        shape[axis] = sum(self.shape(s)[axis] for s in sources)
        low, high = (
            pick(getattr(self.values[s.value], end) for s in sources) for pick, end in ((min, "low"), (max, "high"))
        )
        grid = grid._replace(low=low, high=high)
        return Codes(self.emit(IntegerConcatenate, "concatenate", shape, grid, *(s.value for s in sources), axis=axis))

    def padded(self, node: Node, padding: tuple[tuple[int, int], ...], number: float) -> Codes:
        source = self.codes(node)
        grid = self.grid_of(source.value)
        code = int(np.clip(np.rint(number / grid.scale) + grid.zero_point, -128, 127))
        grid = grid._replace(low=min(grid.low, code), high=max(grid.high, code))
        shape = [size + sum(pads) for size, pads in zip(self.shape(source), padding, strict=True)]
        return Codes(self.emit(IntegerPad, "pad", shape, grid, source.value, padding=padding, value=code))

    def sliced(self, node: Node, starts: Any, stops: Any, steps: Any) -> Codes:
        source = self.codes(node)
        shape = [len(range(*part)) for part in zip(starts, stops, steps, strict=True)]
        fields = {"starts": starts, "stops": stops, "steps": steps}
        return Codes(self.emit(IntegerSlice, "slice", shape, self.grid_of(source.value), source.value, **fields))


# ---------------------------------------------------------------- numbers
def channel_scales(weights: np.ndarray, top: int) -> np.ndarray:
    """The scale of each row of [channels, n] whose codes -top, ..., top lose the least by squares; 1 for zeros.

    Among the candidates are the scales of rows that are already on a grid. Few codes may clip the largest weights.
    """
    largest = np.abs(weights).max(axis=1, initial=0)
    divisors = np.arange(1, top + 1, dtype=np.float64)
    if top < 127:
        divisors = np.concatenate([divisors, top / np.linspace(0.3, 1, 71)])
    best, least = np.ones(len(weights)), np.full(len(weights), np.inf)
    for divisor in divisors:
        scale = np.where(largest > 0, largest / divisor, 1.0)[:, None]
        lost = ((weights - np.clip(np.rint(weights / scale), -top, top) * scale) ** 2).sum(axis=1)
        better = lost < least
        best, least = np.where(better, scale[:, 0], best), np.where(better, lost, least)
    return best


def fitted(function: Real, ends: tuple[float, float]) -> Fit | None:
    """The limits or the grid of a function of numbers around [low, high], or None if it is neither."""
    reach = max(ends[1] - ends[0], 1e-6)
    x = np.linspace(ends[0] - reach, ends[1] + reach, _PROBES).astype(np.float32)
    y = np.asarray(function(x), np.float64)
    if y.shape != x.shape or not np.isfinite(y).all():
        return None
    low, high = float(y.min()), float(y.max())
    if np.abs(y - np.clip(x, low, high)).max() <= 1e-6 * reach:
        return Fit(-np.inf if low <= x[0] else low, np.inf if high >= x[-1] else high)
    return _rounded(x.astype(np.float64), y)


def _rounded(x: np.ndarray, y: np.ndarray) -> Fit | None:
    """The grid of a function that rounds to the nearest multiple of a scale, with limits."""
    levels = np.unique(y.astype(np.float32)).astype(np.float64)
    if not 2 <= len(levels) <= 256:
        return None
    low, high = levels[0], levels[-1]
    steps = round((high - low) / np.diff(levels).max())
    scale = (high - low) / max(steps, 1)
    first = round(low / scale)
    if steps > 255 or abs(low / scale - first) > 1e-3:
        return None
    exact = np.clip(np.rint(x / scale), first, first + steps)
    sure = np.abs(np.abs(x / scale - np.floor(x / scale)) - 0.5) > 1e-3
    if np.abs(exact - y / scale)[sure].max(initial=0) > 1e-3:
        return None
    zero = 0 if first >= -128 and first + steps <= 127 else -128 - first
    if not -128 <= zero <= 127:
        return None
    return Fit(low, high, Grid(float(np.float32(scale)), zero, zero + first, zero + first + steps))
