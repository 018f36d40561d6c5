"""Running sums, products, extrema and log-sum-exps along an axis, from either end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError, not_linear
from rlx.ir.scalar import neutral
from rlx.ir.types import TensorType, dtype_kind
from rlx.ops.arithmetic import absolute, add, maximum, minimum, multiply, select, subtract
from rlx.ops.comparison import equal
from rlx.ops.families import in_compute_dtype
from rlx.ops.shape import AxisMap, axes_but, check_axes, concatenate, pad, reverse, slice_along
from rlx.ops.transcendental import exp, logaddexp
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, primitive, type_of

__all__ = ["associative_scan", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"]

Pair = tuple[Any, Any]


def associative_scan(combine: Callable[[Pair, Pair], Pair], pair: Pair, axis: int) -> Pair:
    """Running combination of pairs of arrays: neighbours first, then the pairs of pairs.

    O(n) work in O(log n) steps of differentiable operations.
    """

    def part(start: int, limit: int, stride: int, of: Pair) -> Pair:
        first, second = (slice_along(x, start, max(limit, start), axis, stride) for x in of)
        return first, second

    length = type_of(pair[0]).shape[axis]
    if length < 2:
        return pair
    odd = associative_scan(combine, combine(part(0, length - 1, 2, pair), part(1, length, 2, pair)), axis)
    before = odd if length % 2 else part(0, length // 2 - 1, 1, odd)
    even = part(0, 1, 1, pair)
    if length > 2:
        later = combine(before, part(2, length, 2, pair))
        first, second = (concatenate(a, b, axis=axis) for a, b in zip(even, later, strict=True))
        even = (first, second)
    return _interleave(even[0], odd[0], axis), _interleave(even[1], odd[1], axis)


def _interleave(even: Any, odd: Any, axis: int) -> Any:
    """Elements of `even` and `odd`, interleaved; `even` may have one more."""
    shape, more = type_of(even).shape, type_of(even).shape[axis] - type_of(odd).shape[axis]
    zero = np.zeros((), type_of(even).dtype)

    def spread(x: Any, low: int, high: int) -> Any:
        config = [(0, 0, 0)] * len(shape)
        config[axis] = (low, high, 1)
        return pad(x, zero, config=tuple(config))

    return add(spread(even, 0, 1 - more), spread(odd, 1, more))


class Cumulative(Primitive):
    """A running reduction; `ufunc` in NumPy, `reducer` in compiled code."""

    kinds = "iufc"
    ufunc: np.ufunc
    reducer: str

    def type(self, x: TensorType, *, axis: int, reverse: bool = False) -> TensorType:
        if dtype_kind(x.dtype) not in self.kinds:
            raise DtypeError(
                f"{self.name} does not take {x.dtype.name}.",
                "Convert the operand with .astype(...) first.",
            )
        check_axes(self.name, (axis,), x.ndim)
        return x

    def axis_map(self, x: TensorType, *, axis: int, reverse: bool = False) -> AxisMap:
        return (axes_but(x.ndim, (axis,)),)

    def reference(self, x: np.ndarray, *, axis: int, reverse: bool = False) -> Any:
        wide = in_compute_dtype(x)
        result = self.accumulate(np.flip(wide, axis) if reverse else wide, axis)
        return (np.flip(result, axis) if reverse else result).astype(x.dtype, copy=False)

    def accumulate(self, x: np.ndarray, axis: int) -> Any:
        """The running reduction in NumPy."""
        return self.ufunc.accumulate(x, axis=axis, dtype=x.dtype)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool = False
    ) -> tuple[Any, Any]:
        """Scan values and tangents together with `combine`."""
        (x,), (tangent,) = primals, tangents
        out = self.bind(x, axis=axis, reverse=reverse)
        if isinstance(tangent, Zero):
            return out, tangent
        return out, self.derivative(x, tangent, axis, reverse)

    def derivative(self, x: Any, tangent: Any, axis: int, backwards: bool) -> Any:
        """The tangent of the result."""
        pair = (x, tangent)
        if backwards:
            pair = (reverse(x, axes=(axis,)), reverse(tangent, axes=(axis,)))
        _, moving = associative_scan(self.combine, pair, axis)
        return reverse(moving, axes=(axis,)) if backwards else moving

    def combine(self, left: Pair, right: Pair) -> Pair:
        """Two neighbouring (value, tangent) pairs as one."""
        raise NotImplementedError(self.name)

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        raise not_linear(self.name)

    def batch(self, size: int, inputs: Any, dims: Any, *, axis: int, reverse: bool = False) -> tuple[Any, int]:
        (x,), (dim,) = inputs, dims
        return self.bind(x, axis=axis + (axis >= dim), reverse=reverse), dim

    def lower(self, k: Any, x: Any, *, axis: int, reverse: bool = False) -> Any:
        return k.cumulate(self.reducer, x, axis, reverse)

    def samples(self) -> Iterator[Sample]:
        """Every kind, both directions, lengths odd, even, one and zero."""
        generator = np.random.default_rng(5)
        names = {"b": "?", "i": "i4 i1", "u": "u1", "f": "f8 f4 f2 bfloat16 float8_e5m2", "c": "c16 c8"}

        def draw(shape: tuple[int, ...], dtype: str) -> np.ndarray:
            values = np.asarray(generator.uniform(-2, 2, shape))
            if dtype[0] == "c":
                values = values + 1j * generator.uniform(-2, 2, shape)
            return (np.trunc(values) if dtype in ("i4", "i1", "u1") else values).astype(dtype)

        for kind in self.kinds:
            for dtype in names[kind].split():
                values = np.abs(draw((2, 5), dtype)) if kind == "u" else draw((2, 5), dtype)
                yield Sample((values,), {"axis": 1, "reverse": dtype == "f4"})
        for shape, axis in (((6, 2), 0), ((1,), 0), ((0, 3), 0), ((2, 0), 0), ((9,), 0)):
            for backwards in (False, True):
                yield Sample((draw(shape, "f8"),), {"axis": axis, "reverse": backwards})


@primitive
class cumsum(Cumulative):
    """Running sum; floats of less than 32 bits are added in float32, float32 in float64 if the device supports it."""

    linear_groups = ((0,),)
    ufunc = np.add
    reducer = "add"

    def accumulate(self, x: np.ndarray, axis: int) -> Any:
        wide = {np.dtype("f4"): np.dtype("f8"), np.dtype("c8"): np.dtype("c16")}.get(x.dtype, x.dtype)
        return np.add.accumulate(x, axis=axis, dtype=wide).astype(x.dtype, copy=False)

    def derivative(self, x: Any, tangent: Any, axis: int, backwards: bool) -> Any:
        return cumsum(tangent, axis=axis, reverse=backwards)

    def transpose(self, cotangent: Any, *inputs: Any, axis: int, reverse: bool = False) -> tuple[Any, ...]:
        if isinstance(cotangent, Zero):
            return (Zero(inputs[0].type),)
        assert isinstance(inputs[0], Linear)
        return (cumsum(cotangent, axis=axis, reverse=not reverse),)


@primitive
class cumprod(Cumulative):
    """Running product."""

    ufunc = np.multiply
    reducer = "mul"

    def combine(self, left: Pair, right: Pair) -> Pair:
        (x, x_tangent), (y, y_tangent) = left, right
        return multiply(x, y), add(multiply(x_tangent, y), multiply(y_tangent, x))


class CumulativeExtremum(Cumulative):
    """cummax or cummin: NaN propagates; neighbours that tie share the derivative."""

    kinds = "biuf"
    choose: Any

    def combine(self, left: Pair, right: Pair) -> Pair:
        return self.choose.jvp((left[0], right[0]), (left[1], right[1]))


@primitive
class cummax(CumulativeExtremum):
    """Running maximum."""

    ufunc = np.maximum
    reducer = "max"
    choose = maximum


@primitive
class cummin(CumulativeExtremum):
    """Running minimum."""

    ufunc = np.minimum
    reducer = "min"
    choose = minimum


# ------------------------------------------------------------- log-sum-exp
@primitive
class cumlogsumexp(Cumulative):
    """log of the running sum of exponentials."""

    kinds = "f"
    ufunc = np.logaddexp

    def combine(self, left: Pair, right: Pair) -> Pair:
        (x, x_tangent), (y, y_tangent) = left, right
        total = logaddexp(x, y)
        shift = select(equal(absolute(total), np.inf), 0, total)  # a NaN stays
        weights = (exp(subtract(_without_infinity(v), shift)) for v in (x, y))
        moving = (multiply(t, w) for t, w in zip((x_tangent, y_tangent), weights, strict=True))
        return total, add(*moving)

    def lower(self, k: Any, x: Any, *, axis: int, reverse: bool = False) -> Any:
        """Combine with the element 1, 2, 4, ... positions before: log(n) steps."""
        value = k.reverse(x, (axis,)) if reverse else x
        shape = x.type.shape
        lowest = k.full(TensorType((), x.type.dtype), neutral("max", x.type.dtype))
        pad = k.pad_where_read if k.options.products.fused else k.pad
        distance = 1
        while distance < shape[axis]:
            k.realise(value)
            config = [(0, 0, 0)] * len(shape)
            config[axis] = (distance, 0, 0)
            limits = [n - distance * (a == axis) for a, n in enumerate(shape)]
            before = pad(k.slice(value, (0,) * len(shape), limits, (1,) * len(shape)), lowest, tuple(config))
            value = k.elementwise(logaddexp.scalar, [before, value], x.type)
            distance *= 2
        return k.reverse(value, (axis,)) if reverse else value


def _without_infinity(x: Any) -> Any:
    return select(equal(x, np.inf), 0, x)
