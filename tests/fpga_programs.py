"""Integer programs for circuits: a small network for images, and random graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx.fpga import RequantPrecision, Tune
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
    IntegerPad,
    IntegerProgram,
    IntegerReshape,
    IntegerSlice,
    IntegerSumPool,
    IntegerTable,
    IntegerTranspose,
    IntegerValue,
    Requantization,
)

LARGEST = {8: 127, 4: 7, 2: 1}  # of a weight of so many bits


def requantization(random: np.random.Generator, channels: int, ratio: float, **fields: Any) -> Requantization:
    """A ratio for each channel, near a given one."""
    multiplier, shift = fixed_point(ratio * random.uniform(0.5, 1.5, channels))
    return Requantization("q31", multiplier, shift, **fields)


@dataclass
class Graph:
    """A program while it is built; methods add an operation and return the index of its value."""

    random: np.random.Generator
    bits: int
    values: list[IntegerValue] = field(default_factory=list)
    operations: list[Any] = field(default_factory=list)

    def value(self, shape: Any, zero_point: int = 0, low: int = -128, high: int = 127, dtype: str = "int8") -> int:
        """A new value."""
        name = f"v{len(self.values)}"
        self.values.append(IntegerValue(name, tuple(shape), dtype, 1.0, zero_point, low, high))
        return len(self.values) - 1

    def add(self, kind: Any, inputs: tuple[int, ...], shape: Any, **fields: Any) -> int:
        """A new operation whose value has the bounds of its requantisation."""
        found = fields.get("requantization")
        bounds = (found.zero_point, found.low, found.high) if found else ()
        output = self.value(shape, *bounds)
        self.operations.append(kind(inputs=inputs, output=output, **fields))
        return output

    def weights(self, *shape: int) -> np.ndarray:
        """Weights of the graph's bits."""
        most = LARGEST[self.bits]
        return self.random.integers(-most, most + 1, shape).astype(np.int8)

    def scaled(self, channels: int, terms: int, **fields: Any) -> Requantization:
        """From sums of products of weights and codes to codes that use their range."""
        return requantization(self.random, channels, 0.8 / (LARGEST[self.bits] * math.sqrt(terms)), **fields)

    def dense(self, x: int, outputs: int, **fields: Any) -> int:
        """A dense layer of all elements of x."""
        count = math.prod(self.values[x].shape)
        flat = self.value((count,), *self.bounds(x))
        self.operations.append(IntegerReshape(inputs=(x,), output=flat, shape=(count,)))
        bias = self.random.integers(-500, 500, outputs).astype(np.int32)
        return self.add(
            IntegerDense, (flat,), (outputs,), weights=self.weights(outputs, count), bias=bias, bits=self.bits,
            requantization=self.scaled(outputs, count, **fields),
        )  # fmt: skip

    def argmax(self, x: int) -> int:
        """The index of the largest code."""
        label = self.value((), dtype="int32")
        self.operations.append(IntegerArgmax(inputs=(x,), output=label, axis=0))
        return label

    def bounds(self, x: int) -> tuple[int, int, int]:
        """The zero point and the bounds of a value."""
        found = self.values[x]
        return found.zero_point, found.low, found.high

    def program(self, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> IntegerProgram:
        """The program."""
        return IntegerProgram(name, tuple(self.values), tuple(self.operations), inputs, outputs)


def tiny_conv(side: int = 28, bits: int = 8, seed: int = 0) -> IntegerProgram:
    """Two convolutions with relu and max pooling, and a dense layer: digits in images [side, side, 1]."""
    graph = Graph(np.random.default_rng(seed), bits)
    image = x = graph.value((side, side, 1), -128)
    for channels in (8, 16):
        inner, side = graph.values[x].shape[2], graph.values[x].shape[0]
        x = graph.add(
            IntegerConvolution, (x,), (side, side, channels), weights=graph.weights(channels, 3, 3, inner),
            bias=graph.random.integers(-900, 900, channels).astype(np.int32), bits=bits, padding=((1, 1), (1, 1)),
            requantization=graph.scaled(channels, 9 * inner, zero_point=-128),
        )  # fmt: skip
        pooled = graph.value((side // 2, side // 2, channels), -128)
        graph.operations.append(IntegerMaxPool(inputs=(x,), output=pooled, window=(2, 2), strides=(2, 2)))
        x = pooled
    logits = graph.dense(x, 10, zero_point=4)
    return graph.program("tinyconv", (image,), (logits, graph.argmax(logits)))


def random_graph(seed: int) -> IntegerProgram:
    """Layers of odd sizes, strides, pads, dilations and groups, then a dense layer and argmax."""
    random = np.random.default_rng(seed)
    graph = Graph(random, (8, 4, 2)[seed % 3])
    sizes = (*random.integers(3, 8, 2).tolist(), int(random.choice([1, 2, 3, 4, 8])))
    image = x = graph.value(sizes, int(random.integers(-128, 128)))
    for kind in random.choice(list(_LAYERS), random.integers(1, 5)).tolist():
        if math.prod(graph.values[x].shape) < 700:
            x = _LAYERS[kind](graph, x)
    logits = graph.dense(x, int(random.integers(2, 12)), **_clip(random))
    return graph.program(f"graph{seed}", (image,), (logits, graph.argmax(logits)))


def random_tune(seed: int) -> Tune:
    """Choices of all kinds."""
    random = np.random.default_rng(seed)
    flags = "fold_zero_zp ternary_fast_path shared_requant bram_clock_enable fuse_conv_relu arena_plan".split()
    chosen: dict[str, Any] = {flag: bool(random.integers(2)) for flag in flags}
    chosen["requant_precision"] = list(RequantPrecision)[random.integers(2)]
    chosen["ic_parallelism"] = int(random.choice([1, 1, 2, 4, 8]))
    if random.random() < 0.6:
        return Tune(**{str(random.choice(["weight_stationary", "serial_requant"])): True}, **chosen)
    return Tune(parallelism=int(random.integers(1, 6)), **chosen)


def _clip(random: np.random.Generator) -> dict[str, int]:
    low, high = (-128, 127) if random.random() < 0.5 else (int(random.integers(-100, 0)), int(random.integers(10, 120)))
    return {"zero_point": int(random.integers(-128, 128)), "low": low, "high": high}


def _pads(random: np.random.Generator, most: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple((int(random.integers(0, m + 1)), int(random.integers(0, m + 1))) for m in most)


def _extents(shape: Any, window: Any, strides: Any, pads: Any, dilation: Any = (1, 1)) -> list[int]:
    rows = zip(shape, window, strides, pads, dilation, strict=False)
    return [(n + sum(pad) - (k - 1) * d - 1) // s + 1 for n, k, s, pad, d in rows]


def _convolution(graph: Graph, x: int, depthwise: bool = False) -> int:
    random, shape = graph.random, graph.values[x].shape
    kernel, strides, dilation = (tuple(random.integers(1, most, 2).tolist()) for most in (4, 3, 3))
    pads = _pads(random, (2, 2))
    extents = _extents(shape, kernel, strides, pads, dilation)
    if min(extents) < 1:
        return x
    groups = shape[2] if depthwise else int(random.choice([d for d in range(1, shape[2] + 1) if shape[2] % d == 0]))
    outputs, inner = groups * int(random.integers(1, 6)), shape[2] // groups
    return graph.add(
        IntegerConvolution, (x,), (*extents, outputs), weights=graph.weights(outputs, *kernel, inner),
        bias=random.integers(-500, 500, outputs).astype(np.int32), bits=graph.bits, strides=strides, padding=pads,
        dilation=dilation, groups=groups,
        requantization=graph.scaled(outputs, math.prod(kernel) * inner, **_clip(random)),
    )  # fmt: skip


def _pool(graph: Graph, x: int, largest: bool) -> int:
    random, shape = graph.random, graph.values[x].shape
    window, strides = (tuple(random.integers(1, 4, 2).tolist()) for _ in range(2))
    pads = _pads(random, (window[0] - 1, window[1] - 1))
    extents = _extents(shape, window, strides, pads)
    if min(extents) < 1:
        return x
    if largest:
        return graph.add(IntegerMaxPool, (x,), (*extents, shape[2]), window=window, strides=strides, padding=pads)
    mean = requantization(random, 1, 1 / math.prod(window), **_clip(random))
    fields = {"window": window, "strides": strides, "padding": pads, "requantization": mean}
    return graph.add(IntegerSumPool, (x,), (*extents, shape[2]), **fields)


def _same_shape(graph: Graph, x: int) -> int:
    return int(graph.random.choice([k for k, v in enumerate(graph.values) if v.shape == graph.values[x].shape]))


def _sum(graph: Graph, x: int) -> int:
    terms = (x, *(_same_shape(graph, x) for _ in range(graph.random.integers(1, 3))))
    multipliers = tuple(graph.random.integers(-1500, 3000, len(terms)).tolist())
    return graph.add(
        IntegerAdd, terms, graph.values[x].shape, multipliers=multipliers, shift=int(graph.random.integers(10, 13)),
        zero_point=int(graph.random.integers(-50, 50)),
    )  # fmt: skip


def _product(graph: Graph, x: int) -> int:
    scaling = requantization(graph.random, 1, 0.005, **_clip(graph.random))
    return graph.add(
        IntegerMultiply, (x, _same_shape(graph, x)), graph.values[x].shape, requantization=scaling
    )


def _table(graph: Graph, x: int) -> int:
    table = graph.random.integers(-128, 128, 256).astype(np.int8)
    return graph.add(IntegerTable, (x,), graph.values[x].shape, table=table)


def _clamp(graph: Graph, x: int) -> int:
    return graph.add(IntegerClamp, (x,), graph.values[x].shape, low=int(graph.random.integers(-60, 0)), high=40)


def _joined(graph: Graph, x: int) -> int:
    axis, shape = int(graph.random.integers(0, 3)), list(graph.values[x].shape)
    shape[axis] *= 2
    return graph.add(IntegerConcatenate, (x, _same_shape(graph, x)), shape, axis=axis)


def _transposed(graph: Graph, x: int) -> int:
    order = tuple(graph.random.permutation(3).tolist())
    return graph.add(IntegerTranspose, (x,), [graph.values[x].shape[k] for k in order], permutation=order)


def _padded(graph: Graph, x: int) -> int:
    pads, shape = _pads(graph.random, (2, 2)) + ((0, 1),), graph.values[x].shape
    shape = [n + sum(pad) for n, pad in zip(shape, pads, strict=True)]
    return graph.add(IntegerPad, (x,), shape, padding=pads, value=int(graph.random.integers(-128, 128)))


def _part(graph: Graph, x: int) -> int:
    stops = graph.values[x].shape
    starts = tuple(int(graph.random.integers(0, n)) for n in stops)
    steps = tuple(graph.random.integers(1, 3, 3).tolist())
    shape = [len(range(*part)) for part in zip(starts, stops, steps, strict=True)]
    return graph.add(IntegerSlice, (x,), shape, starts=starts, stops=stops, steps=steps)


_LAYERS: dict[str, Any] = {
    "convolution": _convolution,
    "depthwise": lambda graph, x: _convolution(graph, x, depthwise=True),
    "largest": lambda graph, x: _pool(graph, x, largest=True),
    "mean": lambda graph, x: _pool(graph, x, largest=False),
    "sum": _sum,
    "product": _product,
    "table": _table,
    "clamp": _clamp,
    "concatenate": _joined,
    "transpose": _transposed,
    "pad": _padded,
    "slice": _part,
}
