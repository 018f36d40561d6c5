"""Integer programs for tests: a reference of loops over whole numbers, and random programs with odd sizes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

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
)

TOPS = {8: 127, 4: 7, 2: 1}


def requantized(sums: np.ndarray, how: Requantization) -> np.ndarray:
    """The definition, one Python integer after another; channels are last."""
    channels = np.broadcast_to(how.multiplier, sums.shape[-1:]), np.broadcast_to(how.shift, sums.shape[-1:])
    found = np.empty(sums.shape, np.int64)
    for at, total in np.ndenumerate(sums):
        multiplier, shift = (c[at[-1]] for c in channels)
        if how.rounding == "float":
            product = np.float32(total) * np.float32(multiplier)
            scaled = int(np.sign(product) * np.floor(np.abs(np.float64(product)) + 0.5))
        else:
            scaled = fixed_product(int(total), int(multiplier), int(shift))
        found[at] = min(max(scaled + how.zero_point, how.low), how.high)
    return found.astype(np.int8)


def fixed_product(total: int, multiplier: int, shift: int) -> int:
    """srdhm and rdpot, as gemmlowp defines them, after a saturating shift to the left."""
    if shift < 0:
        limit = (2**31 - 1) >> -shift
        total = min(max(total, -limit), limit) << -shift
    product = total * multiplier
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    high = abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)
    right = max(shift, 0)
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def windows(x: np.ndarray, size: Any, strides: Any, padding: Any, fill: int, dilation: Any = (1, 1)) -> np.ndarray:
    """Windows [rows, columns, height of the window, its width, channels] of an image."""
    padded = np.pad(x, (*padding, (0, 0)), constant_values=fill)
    counts = [
        (length - (extent - 1) * d - 1) // stride + 1
        for length, extent, stride, d in zip(padded.shape, size, strides, dilation, strict=False)
    ]
    found = np.empty((*counts, *size, x.shape[2]), x.dtype)
    for row, column, i, j in itertools.product(*map(range, (*counts, *size))):
        found[row, column, i, j] = padded[row * strides[0] + i * dilation[0], column * strides[1] + j * dilation[1]]
    return found


def computed(operation: IntegerOperation, values: list[IntegerValue], *codes: np.ndarray) -> np.ndarray:
    """An operation on one example."""
    x = [q.astype(np.int64) - v.zero_point for q, v in zip(codes, values, strict=True)]
    match operation:
        case IntegerConvolution():
            seen = windows(
                x[0], operation.weights.shape[1:3], operation.strides, operation.padding, 0, operation.dilation
            )
            own, each = operation.weights.shape[3], len(operation.weights) // operation.groups
            wide = operation.weights.astype(np.int64)
            groups = [slice(o // each * own, (o // each + 1) * own) for o in range(len(wide))]
            sums = np.stack([(seen[..., part] * w).sum((2, 3, 4)) for part, w in zip(groups, wide, strict=True)], -1)
            return requantized(sums + operation.bias, operation.requantization)
        case IntegerDense():
            return requantized(x[0] @ operation.weights.T.astype(np.int64) + operation.bias, operation.requantization)
        case IntegerAdd():
            total = sum(part * m for part, m in zip(x, operation.multipliers, strict=True))
            scaled = np.vectorize(lambda t: fixed_shift(int(t), operation.shift))(total) + operation.zero_point
            return np.clip(scaled, operation.low, operation.high).astype(np.int8)
        case IntegerMultiply():
            return requantized(x[0] * x[1], operation.requantization)
        case IntegerSumPool():
            seen = windows(x[0], operation.window, operation.strides, operation.padding, 0)
            return requantized(seen.sum((2, 3)), operation.requantization)
        case IntegerMaxPool():
            return windows(codes[0], operation.window, operation.strides, operation.padding, -128).max((2, 3))
        case IntegerTable():
            return operation.table[codes[0].astype(int) + 128]
        case IntegerClamp():
            return np.clip(codes[0], operation.low, operation.high)
        case IntegerSoftmax():
            q = codes[0].astype(int)
            e = operation.table.astype(np.int64)[q.max(-1, keepdims=True) - q]
            total = e.sum(-1, keepdims=True)
            return (np.minimum((512 * e + total) // (2 * total), 255) - 128).astype(np.int8)
        case IntegerConcatenate():
            return np.concatenate(codes, operation.axis)
        case IntegerReshape():
            return codes[0].reshape(operation.shape)
        case IntegerTranspose():
            return codes[0].transpose(operation.permutation)
        case IntegerPad():
            return np.pad(codes[0], operation.padding, constant_values=operation.value)
        case IntegerSlice():
            parts = zip(operation.starts, operation.stops, operation.steps, strict=True)
            return codes[0][tuple(slice(*part) for part in parts)]
        case IntegerArgmax():
            return codes[0].argmax(operation.axis).astype(np.int32)
    raise AssertionError(operation)


def fixed_shift(total: int, shift: int) -> int:
    """total / 2**shift, halves away from zero."""
    return (abs(total) + (1 << shift >> 1) >> shift) * (1 if total >= 0 else -1)


def reference(program: IntegerProgram, *codes: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results of a batch."""
    found = []
    for example in zip(*codes, strict=True):
        known = dict(zip(program.inputs, example, strict=True))
        for operation in program.operations:
            values = [program.values[i] for i in operation.inputs]
            known[operation.output] = computed(operation, values, *(known[i] for i in operation.inputs))
        found.append([known[i] for i in program.outputs])
    return tuple(np.stack(column) for column in zip(*found, strict=True))


class _Random:
    """A random program under construction."""

    def __init__(self, seed: int, bits: int, rounding: str) -> None:
        self.draw, self.bits, self.rounding = np.random.default_rng(seed), bits, rounding
        self.values: list[IntegerValue] = []
        self.operations: list[IntegerOperation] = []

    def number(self, low: int, high: int) -> int:
        return int(self.draw.integers(low, high + 1))

    def value(self, shape: Any, dtype: str = "int8") -> int:
        name = f"v{len(self.values)}"
        self.values.append(IntegerValue(name, tuple(map(int, shape)), dtype, 0.1, self.number(-128, 127)))
        return len(self.values) - 1

    def how(self, channels: int, fan: float, output: int) -> Requantization:
        ratios = self.draw.uniform(0.5, 2, channels) * 40 / fan
        if self.rounding == "float":
            multiplier, shift = ratios.astype(np.float32), np.zeros(channels, np.int32)
        else:
            multiplier, shift = fixed_point(ratios)
        low = -128 if self.number(0, 1) else self.values[output].zero_point
        return Requantization(self.rounding, multiplier, shift, self.values[output].zero_point, low, 127)

    def add(self, kind: Any, shape: Any, /, *inputs: int, dtype: str = "int8", **fields: Any) -> int:
        output = self.value(shape, dtype)
        if "how" in fields:
            fields["requantization"] = self.how(*fields.pop("how"), output)
        self.operations.append(kind(inputs=inputs, output=output, **fields))
        return output

    def shape(self, value: int) -> tuple[int, ...]:
        return self.values[value].shape

    def pads(self) -> Any:
        return tuple((self.number(0, 2), self.number(0, 2)) for _ in range(2))

    def convolution(self, x: int) -> int:
        height, width, channels = self.shape(x)
        groups = int(self.draw.choice([g for g in (1, 1, 2, 3, channels) if channels % g == 0]))
        outputs = groups * self.number(1, 7)
        padding, size = self.pads(), [self.number(1, 3), self.number(1, 3)]
        dilation = tuple(self.number(1, 2) for _ in range(2))
        strides = tuple(self.number(1, 2) for _ in range(2))
        rows = [
            (n + sum(p) - (k - 1) * d - 1) // s + 1
            for n, p, k, d, s in zip((height, width), padding, size, dilation, strides, strict=True)
        ]
        if min(rows) < 1:
            return x
        top = TOPS[self.bits]
        weights = self.draw.integers(-top, top + 1, (outputs, *size, channels // groups)).astype(np.int8)
        bias = self.draw.integers(-1000, 1000, outputs).astype(np.int32)
        fan = top * 60 * np.sqrt(weights[0].size)
        return self.add(
            IntegerConvolution, (*rows, outputs), x, weights=weights, bias=bias, bits=self.bits, strides=strides,
            padding=padding, dilation=dilation, groups=groups, how=(outputs, fan),
        )  # fmt: skip

    def pool(self, x: int) -> int:
        height, width, channels = self.shape(x)
        window, strides = (min(height, 2), min(width, self.number(1, 3))), (self.number(1, 2), self.number(1, 2))
        rows = [(n - k) // s + 1 for n, k, s in zip((height, width), window, strides, strict=True)]
        if self.number(0, 1):
            return self.add(IntegerMaxPool, (*rows, channels), x, window=window, strides=strides)
        return self.add(
            IntegerSumPool, (*rows, channels), x, window=window, strides=strides, how=(1, 60 * window[0] * window[1])
        )

    def pair(self, x: int) -> int:
        y = self.add(IntegerTable, self.shape(x), x, table=self.draw.integers(-128, 128, 256).astype(np.int8))
        kind = self.number(0, 2)
        if kind == 0:
            multipliers = tuple(self.number(-(1 << 20), 1 << 20) for _ in range(2))
            return self.add(
                IntegerAdd, self.shape(x), x, y, multipliers=multipliers, shift=20, zero_point=self.number(-9, 9)
            )
        if kind == 1:
            return self.add(IntegerMultiply, self.shape(x), x, y, how=(1, 3000))
        shape = (*self.shape(x)[:-1], 2 * self.shape(x)[-1])
        return self.add(IntegerConcatenate, shape, x, y, axis=len(shape) - 1)

    def moved(self, x: int) -> int:
        height, width, channels = self.shape(x)
        kind = self.number(0, 3)
        if kind == 0:
            return self.add(IntegerTranspose, (width, height, channels), x, permutation=(1, 0, 2))
        if kind == 1:
            padding = ((1, 0), (0, 2), (0, 1))
            return self.add(
                IntegerPad, (height + 1, width + 2, channels + 1), x, padding=padding, value=self.number(-9, 9)
            )
        if kind == 2 and height > 1:
            return self.add(
                IntegerSlice, (height - 1, -(-width // 2), channels), x, starts=(1, 0, 0),
                stops=(height, width, channels), steps=(1, 2, 1),
            )  # fmt: skip
        return self.add(IntegerClamp, self.shape(x), x, low=self.number(-100, 0), high=self.number(1, 100))


def random_program(seed: int, bits: int = 8, rounding: str = "q31") -> IntegerProgram:
    """A program of images with all operations."""
    make = _Random(seed, bits, rounding)
    x = first = make.value((make.number(3, 9), make.number(3, 9), make.number(1, 6)))
    for step in (make.convolution, make.pair, make.moved, make.convolution, make.pool, make.convolution):
        x = step(x)
    flat = make.add(IntegerReshape, (int(np.prod(make.shape(x))),), x, shape=(int(np.prod(make.shape(x))),))
    top, count = TOPS[bits], make.number(1, 11)
    weights = make.draw.integers(-top, top + 1, (count, make.shape(flat)[0])).astype(np.int8)
    bias = make.draw.integers(-1000, 1000, count).astype(np.int32)
    scores = make.add(
        IntegerDense, (count,), flat, weights=weights, bias=bias, bits=bits,
        how=(count, top * 60 * np.sqrt(weights[0].size)),
    )  # fmt: skip
    table = np.rint(np.exp(-np.arange(256) / 30) * 2**20).astype(np.int32)
    likely = make.add(IntegerSoftmax, (count,), scores, table=table)
    best = make.add(IntegerArgmax, (), scores, dtype="int32", axis=0)
    return IntegerProgram(f"random_{seed}", tuple(make.values), tuple(make.operations), (first,), (x, likely, best))


def random_codes(program: IntegerProgram, count: int, seed: int = 0) -> np.ndarray:
    """A batch for the program's input, with the extreme codes."""
    draw = np.random.default_rng(seed)
    found = draw.integers(-128, 128, (count, *program.values[program.inputs[0]].shape)).astype(np.int8)
    found[0] = -128
    found[-1] = 127
    return found
