"""Integer programs: a quantised network as operations on int8 codes, with one meaning on every device.

`rlx.quant.integer_program` makes one from a function. `rlx.cortexm` writes it in C, `rlx.fpga` in SystemVerilog.

A code q of a value stands for the real number `scale * (q - zero_point)`. An IntegerProgram is called with int8 codes
[n, *shape] and returns codes. It is made of rlx's functions, so that it can be compiled, printed and exported, and it
computes the same integers everywhere. In NumPy's terms, with x the int32 codes of the operand less its zero point:

- IntegerConvolution, IntegerDense: `accumulator = bias + sum(x * weights)` in int32, then the requantisation. Padding
  is x = 0, which is the code zero_point. No accumulator overflows: see `accumulator_bound`.
- IntegerAdd: `rounding_shift(sum(x_i * multipliers[i]), shift) + zero_point`, clipped to [low, high].
- IntegerMultiply: `x_0 * x_1`, then the requantisation.
- IntegerSumPool: the sum of x over a window, then the requantisation, which divides by the window's size.
- IntegerMaxPool: the largest code of a window; padding is -128.
- IntegerTable: `table[q + 128]` of int8: sigmoid, tanh and all other functions of one number, and changes of scale.
- IntegerClamp: `clip(q, low, high)`: relu and relu6.
- IntegerSoftmax: `e = table[largest q - q]` of int32 along the last axis, then
  `min((512 * e + sum(e)) // (2 * sum(e)), 255) - 128`.
- IntegerConcatenate, IntegerReshape, IntegerTranspose, IntegerPad, IntegerSlice: as NumPy's, of codes.
- IntegerArgmax: the int32 index of the first largest code along an axis.

A Requantization with rounding "q31" multiplies an accumulator with `multiplier * 2**-31 * 2**-shift`:
`rounding_shift(high_product(saturating_left_shift(accumulator, -shift), multiplier), shift)`, where a negative shift is
to the left first and a positive one to the right last; `+ zero_point`, clipped to [low, high]. It rounds twice, as the
reference kernels of TensorFlow Lite do:

- `high_product(a, b) = (a * b + 2**30) >> 31` in 64 bits: to the nearest, halves up;
- `rounding_shift(a, s) = (a >> s) + ((a & m) > (m >> 1) + (a < 0))` with `m = 2**s - 1`: halves away from zero;
- `saturating_left_shift(a, s) = clip(a, -limit, limit) << s` with `limit = (2**31 - 1) >> s`: the results are the exact
  ones, for a saturated accumulator is beyond every code.

With rounding "float" it is `round_half_away(float32(accumulator) * multiplier)` with float32 multipliers.

Jacob, Kligys, Chen, Zhu, Tang, Howard, Adam, Kalenichenko: Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference. 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.quant.integer_arithmetic import requantize, rounding_shift
from rlx.trace.flat import as_array
from rlx.trace.tracing import close_over, trace_program
from rlx.trees import tree

__all__ = [
    "IntegerAdd", "IntegerArgmax", "IntegerClamp", "IntegerConcatenate", "IntegerConvolution", "IntegerDense",
    "IntegerMaxPool", "IntegerMultiply", "IntegerOperation", "IntegerPad", "IntegerProgram", "IntegerReshape",
    "IntegerSlice", "IntegerSoftmax", "IntegerSumPool", "IntegerTable", "IntegerTranspose", "IntegerValue",
    "Requantization",
]  # fmt: skip

Pads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class IntegerValue:
    """A value of an integer program: the input, or the result of an operation.

    Attributes:
      name: an identifier of C and SystemVerilog, unique in the program.
      shape: of one example, without the axis of the batch. Images are [height, width, channels].
      dtype: "int8", or "int32" for indices, whose scale is 1.
      scale, zero_point: code q is the number scale * (q - zero_point).
      low, high: all codes are in low, ..., high.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "int8"
    scale: float = 1.0
    zero_point: int = 0
    low: int = -128
    high: int = 127


@dataclass(frozen=True, eq=False)
class Requantization:
    """From int32 accumulators to int8 codes; see the module.

    Attributes:
      rounding: "q31" or "float".
      multiplier: [channels] or [1]: int32 in [2**30, 2**31), or float32.
      shift: int32, of the multiplier's shape: right if positive, left if negative, in [-30, 31]. Zeros for "float".
      zero_point, low, high: of the result.
    """

    rounding: str
    multiplier: np.ndarray
    shift: np.ndarray
    zero_point: int = 0
    low: int = -128
    high: int = 127

    def apply(self, accumulator: Array) -> Array:
        """int8 codes of int32 accumulators [..., channels]."""
        return requantize(accumulator, self.multiplier, self.shift, self.zero_point, self.low, self.high)


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerOperation:
    """An operation: `inputs` and `output` are indices of the program's values; `origin` is the line of the user's code.

    `compute(values, *codes)` is the result for a batch of codes; `values` are the IntegerValues of the inputs.
    """

    inputs: tuple[int, ...]
    output: int
    origin: str = ""

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes [n, ...] of the result."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerConvolution(IntegerOperation):
    """A convolution of an image [height, width, channels] with int8 weights.

    Attributes:
      weights: int8 [outputs, kernel height, kernel width, channels / groups]. Depthwise: groups = channels.
      bias: int32 [outputs].
      bits: of a weight: 8 (-127 to 127), 4 (-7 to 7) or 2 (-1, 0, 1).
      strides, dilation: of the rows and of the columns; padding: before and after them.
      groups: output o reads the channels of group o // (outputs / groups).
    """

    weights: np.ndarray
    bias: np.ndarray
    bits: int = 8
    strides: tuple[int, int] = (1, 1)
    padding: Pads = ((0, 0), (0, 0))
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    requantization: Requantization = field(repr=False)

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes [n, height, width, outputs]."""
        x = _centred(codes[0], values[0])
        sums = lax.conv_general_dilated(
            x, self.weights.astype(np.int32), self.strides, self.padding, rhs_dilation=self.dilation,
            dimension_numbers=("NHWC", "OHWI", "NHWC"), feature_group_count=self.groups,
        )  # fmt: skip
        return self.requantization.apply(sums + self.bias)


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerDense(IntegerOperation):
    """A product with a matrix along the last axis.

    Attributes: weights: int8 [outputs, inputs]; bias: int32 [outputs]; bits: of a weight: 8, 4 or 2.
    """

    weights: np.ndarray
    bias: np.ndarray
    bits: int = 8
    requantization: Requantization = field(repr=False)

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes [n, ..., outputs]."""
        sums = _centred(codes[0], values[0]) @ self.weights.T.astype(np.int32)
        return self.requantization.apply(sums + self.bias)


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerAdd(IntegerOperation):
    """A sum of values of one shape, with a difference's sign in its multiplier.

    Attributes: multipliers: an integer for each input, the ratio of the scales times 2**shift; zero_point, low, high:
    of the result.
    """

    multipliers: tuple[int, ...]
    shift: int
    zero_point: int = 0
    low: int = -128
    high: int = 127

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        terms = [_centred(q, v) * np.int32(m) for q, v, m in zip(codes, values, self.multipliers, strict=True)]
        total = sum(terms[1:], terms[0])
        scaled = rounding_shift(jnp.asarray(total), np.int32(self.shift)) + np.int32(self.zero_point)
        return jnp.clip(scaled, self.low, self.high).astype(np.int8)


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerMultiply(IntegerOperation):
    """The product of two values of one shape."""

    requantization: Requantization = field(repr=False)

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        return self.requantization.apply(_centred(codes[0], values[0]) * _centred(codes[1], values[1]))


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerSumPool(IntegerOperation):
    """The requantised sum over windows of an image, such as a mean.

    Attributes: window, strides: of the rows and of the columns; padding: before and after them.
    """

    window: tuple[int, int]
    strides: tuple[int, int]
    padding: Pads = ((0, 0), (0, 0))
    requantization: Requantization = field(repr=False)

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes [n, height, width, channels]."""
        x = _centred(codes[0], values[0])
        return self.requantization.apply(
            lax.reduce_window(x, np.int32(0), lax.add, *_windows(self.window, self.strides, self.padding))
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerMaxPool(IntegerOperation):
    """The largest codes in windows of an image.

    Attributes: window, strides: of the rows and of the columns; padding: before and after them.
    """

    window: tuple[int, int]
    strides: tuple[int, int]
    padding: Pads = ((0, 0), (0, 0))

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes [n, height, width, channels]."""
        windows = _windows(self.window, self.strides, self.padding)
        return lax.reduce_window(codes[0], np.int8(-128), lax.max, *windows)


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerTable(IntegerOperation):
    """A function of each code. Attributes: table: int8 [256], for the codes -128, ..., 127."""

    table: np.ndarray

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        return jnp.asarray(self.table)[codes[0].astype(np.int32) + 128]


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerClamp(IntegerOperation):
    """clip(q, low, high)."""

    low: int
    high: int

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        return jnp.clip(codes[0], np.int8(self.low), np.int8(self.high))


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerSoftmax(IntegerOperation):
    """Softmax along the last axis; the result has scale 1/256 and zero point -128.

    Attributes: table: int32 [256]: exp(-scale * d) for d = 0, ..., 255, as integers so small that no sum overflows.
    """

    table: np.ndarray

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        q = codes[0].astype(np.int32)
        e = jnp.asarray(self.table)[jnp.max(q, axis=-1, keepdims=True) - q]
        total = jnp.sum(e, axis=-1, keepdims=True, dtype=np.int32)
        return (jnp.minimum((512 * e + total) // (2 * total), 255) - 128).astype(np.int8)


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerConcatenate(IntegerOperation):
    """Values of one scale joined along an axis of an example."""

    axis: int

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        return jnp.concatenate(codes, axis=self.axis + 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerReshape(IntegerOperation):
    """The same codes, in order, in the result's shape, which is `shape`."""

    shape: tuple[int, ...]

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        return codes[0].reshape((codes[0].shape[0], *self.shape))


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerTranspose(IntegerOperation):
    """Axes of an example in another order: axis k of the result is axis permutation[k] of the operand."""

    permutation: tuple[int, ...]

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        return jnp.transpose(codes[0], (0, *(axis + 1 for axis in self.permutation)))


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerPad(IntegerOperation):
    """Codes `value` before and after each axis of an example."""

    padding: Pads
    value: int

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        return jnp.pad(codes[0], ((0, 0), *self.padding), constant_values=np.int8(self.value))


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerSlice(IntegerOperation):
    """A part of each axis of an example: start:stop:step."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Codes."""
        parts = zip(self.starts, self.stops, self.steps, strict=True)
        return codes[0][(slice(None), *(slice(*part) for part in parts))]


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerArgmax(IntegerOperation):
    """The index of the first largest code along an axis of an example, as int32."""

    axis: int

    def compute(self, values: Sequence[IntegerValue], *codes: Array) -> Array:
        """Indices."""
        return jnp.argmax(codes[0], axis=self.axis + 1).astype(np.int32)


@dataclass(frozen=True, eq=False)
class IntegerProgram:
    """A function of int8 codes; see the module for its meaning, and `rlx.quant.integer_program` for an example.

    Attributes:
      name: an identifier.
      values: all values; operations refer to them by index.
      operations: in order; each writes one value.
      inputs, outputs: indices of values.

    >>> import numpy as np
    >>> from rlx.quant.integer_program import IntegerClamp, IntegerProgram, IntegerValue
    >>> values = IntegerValue("x", (3,)), IntegerValue("y", (3,), low=0)
    >>> clamp = IntegerClamp(inputs=(0,), output=1, low=0, high=127)
    >>> program = IntegerProgram("relu", values, (clamp,), (0,), (1,))
    >>> program(np.array([[-1, 0, 5]], np.int8)).tolist()
    [[0, 0, 5]]
    """

    name: str
    values: tuple[IntegerValue, ...]
    operations: tuple[IntegerOperation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def __call__(self, *codes: Any) -> Any:
        """Results of a batch: an array, or a tuple where the program has several outputs.

        Raises ShapeError for another number of inputs or another shape, DtypeError for codes that are not int8.
        """
        found: dict[int, Array] = dict(zip(self.inputs, self._checked(codes), strict=True))
        for operation in self.operations:
            operands = [found[i] for i in operation.inputs]
            found[operation.output] = operation.compute([self.values[i] for i in operation.inputs], *operands)
        results = tuple(found[i] for i in self.outputs)
        return results[0] if len(results) == 1 else results

    def _checked(self, codes: Sequence[Any]) -> list[Array]:
        if len(codes) != len(self.inputs):
            raise ShapeError(f"{self.name} got {len(codes)} inputs.", f"Give {len(self.inputs)}.")
        arrays = [as_array(q) for q in codes]
        for q, i in zip(arrays, self.inputs, strict=True):
            value = self.values[i]
            if q.shape[1:] != value.shape or q.ndim == 0:
                raise ShapeError(
                    f"{self.name} got {list(q.shape)} for {value.name}.",
                    f"Give a batch: [n, {', '.join(map(str, value.shape))}].",
                )
            if q.dtype != np.int8:
                raise DtypeError(f"{self.name} got {q.dtype} for {value.name}.", "Give codes: program.quantize(x).")
        return arrays

    def quantize(self, x: Any, which: int = 0) -> Array:
        """int8 codes of real numbers [n, *shape] for an input, rounded half to even."""
        value = self.values[self.inputs[which]]
        codes = jnp.rint(as_array(x) / np.float32(value.scale)) + np.float32(value.zero_point)
        return jnp.clip(codes, value.low, value.high).astype(np.int8)

    def dequantize(self, codes: Any, which: int = 0) -> Array:
        """The real numbers, as float32, of codes of an output; indices are returned as they are."""
        value = self.values[self.outputs[which]]
        if value.dtype != "int8":
            return as_array(codes)
        return (as_array(codes).astype(np.float32) - np.float32(value.zero_point)) * np.float32(value.scale)

    def program(self, batch: int = 1) -> Program:
        """The traced Program for a batch, which can be printed."""
        types = [TensorType((batch, *self.values[i].shape), np.dtype(np.int8)) for i in self.inputs]

        def flat(*codes: Any) -> list[Any]:
            return tree.leaves(self(*codes))

        return close_over(*trace_program(flat, types, None, self.name))


def accumulator_bound(operation: IntegerConvolution | IntegerDense, value: IntegerValue) -> int:
    """The largest magnitude of any partial sum: the largest of sum(|w|) * max|q - zero_point| + |bias|."""
    weights = np.abs(operation.weights.astype(np.int64)).reshape(len(operation.weights), -1).sum(axis=1)
    largest = max(abs(value.low - value.zero_point), abs(value.high - value.zero_point))
    return int((weights * largest + np.abs(operation.bias.astype(np.int64))).max(initial=0))


def _centred(codes: Array, value: IntegerValue) -> Array:
    return codes.astype(np.int32) - np.int32(value.zero_point)


def _windows(window: tuple[int, int], strides: tuple[int, int], padding: Pads) -> tuple[Any, ...]:
    return (1, *window, 1), (1, *strides, 1), ((0, 0), *padding, (0, 0))
