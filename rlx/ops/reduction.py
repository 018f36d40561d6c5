"""Reductions over axes: sums, products, extrema, bits, positions of extrema, and any monoid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from rlx.errors import DtypeError, DtypeOverflowError, ShapeError, UnsupportedError, not_linear
from rlx.ir.program import Program
from rlx.ir.scalar import neutral
from rlx.ir.types import TensorType, dtype_kind, is_complex, is_integer
from rlx.ops.arithmetic import add, convert, divide, multiply
from rlx.ops.comparison import equal
from rlx.ops.families import in_compute_dtype, refuse_keys, to_front
from rlx.ops.scalar_program import array_function, check_elementwise, scalar_function
from rlx.ops.shape import AxisMap, check_axes, concatenate, reshape, slice_along, transpose
from rlx.trace.primitive import Primitive, Sample, Zero, primitive, registry, type_of
from rlx.trace.tracing import trace_program

__all__ = [
    "argmax",
    "argmin",
    "keep_axes",
    "reduce",
    "reduce_and",
    "reduce_max",
    "reduce_min",
    "reduce_or",
    "reduce_prod",
    "reduce_sum",
    "reduce_xor",
]

Axes = tuple[int, ...]


def keep_axes(reduced: Any, shape: Sequence[int], axes: Axes) -> Any:
    """A reduction's result with its axes restored, with size 1."""
    kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
    return reshape(reduced, shape=kept)


def _without(shape: Sequence[int], axes: Axes) -> tuple[int, ...]:
    return tuple(n for a, n in enumerate(shape) if a not in axes)


def _behind(axes: Axes, dim: int) -> Axes:
    """Axis numbers after inserting a batch axis at `dim`."""
    return tuple(a + (a >= dim) for a in axes)


class Reduction(Primitive):
    """Combines the elements along `axes` with `ufunc`, in compiled code with the reducer `reducer`."""

    kinds: str
    ufunc: np.ufunc
    reducer: str

    def type(self, x: TensorType, *, axes: Axes) -> TensorType:
        if dtype_kind(x.dtype) not in self.kinds:
            raise DtypeError(
                f"{self.name} does not take {x.dtype.name}.",
                "Convert the operand with .astype(...) first.",
            )
        check_axes(self.name, axes, x.ndim)
        return TensorType(_without(x.shape, axes), x.dtype, x.weak)

    def axis_map(self, x: TensorType, *, axes: Axes) -> AxisMap:
        """The remaining axes move up; the others are combined."""
        kept = [a for a in range(x.ndim) if a not in axes]
        return (tuple(kept.index(a) if a in kept else -1 - a for a in range(x.ndim)),)

    @property
    def combination(self) -> str:  # type: ignore[override]
        return {"add": "sum", "mul": "prod"}.get(self.reducer, self.reducer)

    def reference(self, x: np.ndarray, *, axes: Axes) -> Any:
        wide = in_compute_dtype(x)
        return np.asarray(self.reduce_array(wide, tuple(axes))).astype(x.dtype, copy=False)

    def reduce_array(self, x: np.ndarray, axes: Axes) -> Any:
        """The reduction in NumPy."""
        return self.ufunc.reduce(x, axis=axes, dtype=x.dtype)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes) -> Any:
        """The zero tangent if the operand's is, otherwise `derivative`."""
        out = self.bind(*primals, axes=axes)
        if isinstance(tangents[0], Zero):
            return out, Zero(type_of(out))
        return out, self.derivative(out, primals[0], tangents[0], axes)

    def derivative(self, out: Any, x: Any, tangent: Any, axes: Axes) -> Any:
        """The tangent of the result."""
        return Zero(type_of(out))

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        raise not_linear(self.name)

    def batch(self, size: int, inputs: Any, dims: Any, *, axes: Axes) -> tuple[Any, int]:
        (x,), (dim,) = inputs, dims
        moved = _behind(axes, dim)
        return self.bind(x, axes=moved), dim - sum(a < dim for a in moved)

    def lower(self, k: Any, x: Any, *, axes: Axes) -> Any:
        return k.reduce(self.reducer, x, axes)

    def samples(self) -> Iterator[Sample]:
        """Every kind; one, several, all and no axes; zero size."""
        generator = np.random.default_rng(7)
        names = {"b": "?", "i": "i4 i1", "u": "u1", "f": "f8 f4 f2 bfloat16 float8_e5m2", "c": "c16 c8"}
        for kind in self.kinds:
            for dtype in names[kind].split():
                yield Sample((_draw(generator, (2, 3, 4), dtype),), {"axes": (1,)})
        dtype = "f8" if "f" in self.kinds else "i4"
        for shape, axes in _SAMPLE_AXES:
            yield Sample((_draw(generator, shape, dtype),), {"axes": axes})


_SAMPLE_AXES: tuple[tuple[tuple[int, ...], Axes], ...] = (
    ((2, 3, 4), (0, 2)),
    ((3, 5), (0, 1)),
    ((3, 5), ()),
    ((), ()),
    ((0, 3), (0,)),
    ((0, 3), (1,)),
    ((1, 7), (0,)),
)


def _draw(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Different values, in no order, so that extrema have no ties."""
    size = prod(shape)
    values = np.asarray(generator.permutation(size) - size / 2 + 0.25).reshape(shape)
    if np.dtype(dtype).kind == "c":
        return np.asarray(values + 1j * generator.permutation(size).reshape(shape)).astype(dtype)
    if dtype_kind(np.dtype(dtype)) in "biu":
        return np.asarray(generator.permutation(size).reshape(shape) % 5).astype(dtype)
    return values.astype(dtype)


# ------------------------------------------------------------- sums and products
@primitive
class reduce_sum(Reduction):
    """The sum; floats of less than 32 bits are added in float32."""

    linear_groups = ((0,),)
    kinds = "iufc"
    ufunc = np.add
    reducer = "add"

    def reduce_array(self, x: np.ndarray, axes: Axes) -> Any:
        """NumPy adds pairwise only along the last axis: longer float32 columns are added in float64."""
        long_columns = x.ndim - 1 not in axes and prod(x.shape[a] for a in axes) > 512
        wide = np.float64 if x.dtype == np.float32 and long_columns else x.dtype
        return np.add.reduce(x, axis=axes, dtype=wide)

    def derivative(self, out: Any, x: Any, tangent: Any, axes: Axes) -> Any:
        return reduce_sum(tangent, axes=axes)

    def transpose(self, cotangent: Any, *inputs: Any, axes: Axes) -> tuple[Any, ...]:
        shape = inputs[0].type.shape
        if isinstance(cotangent, Zero):
            return (Zero(inputs[0].type),)
        kept = tuple(a for a in range(len(shape)) if a not in axes)
        return (registry["broadcast_in_dim"](cotangent, shape=shape, dims=kept),)


@primitive
class reduce_prod(Reduction):
    """The product."""

    kinds = "iufc"
    ufunc = np.multiply
    reducer = "mul"

    def derivative(self, out: Any, x: Any, tangent: Any, axes: Axes) -> Any:
        """Products of halves: no division by zero, for derivatives of any order."""
        shape = type_of(x).shape
        kept = tuple(a for a in range(len(shape)) if a not in axes)
        count = prod(shape[a] for a in axes)
        if count == 0:
            return Zero(type_of(out))
        merged = (count, *(shape[a] for a in kept))
        value, moving = (_merged_first(v, axes, kept, merged) for v in (x, tangent))
        while (length := type_of(value).shape[0]) > 1:
            half = length // 2
            low, high = (slice_along(value, n * half, (n + 1) * half, 0) for n in (0, 1))
            low_t, high_t = (slice_along(moving, n * half, (n + 1) * half, 0) for n in (0, 1))
            product: Any = multiply(low, high)
            change: Any = add(multiply(low_t, high), multiply(high_t, low))
            if length % 2:
                product = concatenate(product, slice_along(value, length - 1, length, 0), axis=0)
                change = concatenate(change, slice_along(moving, length - 1, length, 0), axis=0)
            value, moving = product, change
        return reshape(moving, shape=merged[1:])


def _merged_first(x: Any, axes: Axes, kept: Axes, shape: tuple[int, ...]) -> Any:
    """`x` with the axes in `axes` moved to the front and merged."""
    return reshape(transpose(x, permutation=(*axes, *kept)), shape=shape)


# ------------------------------------------------------------- extrema
class ReduceExtremum(Reduction):
    """reduce_max or reduce_min: NaN wins; elements that tie share the derivative equally."""

    kinds = "biufc"

    def reference(self, x: np.ndarray, *, axes: Axes) -> Any:
        if x.size or not axes:
            return super().reference(x, axes=axes)
        return np.full(_without(x.shape, axes), neutral(self.reducer, x.dtype), x.dtype)

    def reduce_array(self, x: np.ndarray, axes: Axes) -> Any:
        return self.ufunc.reduce(x, axis=axes)

    def derivative(self, out: Any, x: Any, tangent: Any, axes: Axes) -> Any:
        shape, dtype = type_of(x).shape, type_of(x).dtype
        if 0 in shape:
            return Zero(type_of(out))
        chosen = convert(equal(x, keep_axes(out, shape, axes)), dtype=dtype)
        total = reduce_sum(multiply(tangent, chosen), axes=axes)
        return divide(total, reduce_sum(chosen, axes=axes))


@primitive
class reduce_max(ReduceExtremum):
    """The largest element; complex numbers compare by real, then imaginary part."""

    ufunc = np.maximum
    reducer = "max"


@primitive
class reduce_min(ReduceExtremum):
    """The smallest element; complex numbers compare by real, then imaginary part."""

    ufunc = np.minimum
    reducer = "min"


# ------------------------------------------------------------- bits
@primitive
class reduce_and(Reduction):
    """The bits that all elements have; whether all are true."""

    kinds = "biu"
    ufunc = np.bitwise_and
    reducer = "and"

    def reduce_array(self, x: np.ndarray, axes: Axes) -> Any:
        ones = x.dtype.type(neutral("and", x.dtype))  # NumPy's own identity, -1, does not fit unsigned
        return np.bitwise_and.reduce(x, axis=axes, initial=ones)


@primitive
class reduce_or(Reduction):
    """The bits that any element has; whether any is true."""

    kinds = "biu"
    ufunc = np.bitwise_or
    reducer = "or"


@primitive
class reduce_xor(Reduction):
    """The bits that an odd number of elements has."""

    kinds = "biu"
    ufunc = np.bitwise_xor
    reducer = "xor"


# ------------------------------------------------------------- positions
class ArgExtremum(Primitive):
    """The position of the first extremum along `axis`; NaN counts as one."""

    reducer: str

    def type(self, x: TensorType, *, axis: int, index_dtype: np.dtype) -> TensorType:
        check_axes(self.name, (axis,), x.ndim)
        refuse_keys(self.name, x)
        if is_complex(x.dtype) or not is_integer(index_dtype):
            raise DtypeError(
                f"{self.name} got an operand of dtype {x.dtype.name} and index_dtype={index_dtype.name}.",
                "Complex numbers have no order; positions are integers.",
            )
        self.check_positions(x.shape[axis], index_dtype)
        if x.shape[axis] == 0:
            raise ShapeError(
                f"{self.name} got {x!r}: axis {axis} has no elements.",
                "The reduced axis needs at least one element.",
            )
        return TensorType(_without(x.shape, (axis,)), index_dtype)

    def axis_map(self, x: TensorType, *, axis: int, index_dtype: np.dtype) -> AxisMap:
        return (tuple(None if a == axis else a - (a > axis) for a in range(x.ndim)),)

    def reference(self, x: np.ndarray, *, axis: int, index_dtype: np.dtype) -> Any:
        self.check_positions(x.shape[axis], index_dtype)
        wide = in_compute_dtype(x)
        return np.asarray(self.position(wide, axis)).astype(index_dtype)

    def check_positions(self, size: int, index_dtype: np.dtype) -> None:
        """Raise DtypeOverflowError if a position among `size` elements may not fit."""
        if size - 1 > ml_dtypes.iinfo(index_dtype).max:
            raise DtypeOverflowError(
                f"{self.name} got index_dtype={index_dtype.name} for an axis of {size} elements.",
                "Positions must fit: pass a wider index_dtype.",
            )

    def position(self, x: np.ndarray, axis: int) -> Any:
        """The position in NumPy."""
        raise NotImplementedError(self.name)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """Positions are integers: they have no derivative."""
        out = self.bind(*primals, **params)
        return out, Zero(type_of(out))

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        raise not_linear(self.name)

    def batch(self, size: int, inputs: Any, dims: Any, *, axis: int, index_dtype: np.dtype) -> tuple[Any, int]:
        (x,), (dim,) = inputs, dims
        (moved,) = _behind((axis,), dim)
        return self.bind(x, axis=moved, index_dtype=index_dtype), dim - (moved < dim)

    def lower(self, k: Any, x: Any, *, axis: int, index_dtype: np.dtype) -> Any:
        """Find the extremum, then its first position."""
        shape = x.type.shape
        kept = tuple(a for a in range(len(shape)) if a != axis)
        best = k.broadcast(k.reduce(self.reducer, x, (axis,)), shape, kept)
        indices = TensorType(shape, index_dtype)
        last = shape[axis] - 1

        def where_best(s: Any, element: Any, extremum: Any, position: Any) -> Any:
            found = s.eq(element, extremum) | s.ne(element, element)
            return s.select(found, position, last)

        positions = k.iota(indices, axis)
        return k.reduce("min", k.elementwise(where_best, [x, best, positions], indices), (axis,))

    def samples(self) -> Iterator[Sample]:
        """Every kind, ties and NaN."""
        generator = np.random.default_rng(3)
        index_dtype = np.dtype("i4")
        for dtype in ("?", "i4", "u1", "f8", "f4", "f2", "bfloat16", "float8_e5m2"):
            x = generator.integers(0, 3, (3, 4)).astype(dtype)
            yield Sample((x,), {"axis": 1, "index_dtype": index_dtype})
        x = np.array([[1.0, np.nan, 2.0, np.nan], [3.0, 3.0, -1.0, -1.0]])
        yield Sample((x,), {"axis": 1, "index_dtype": np.dtype("i8")})
        yield Sample((x,), {"axis": 0, "index_dtype": np.dtype("u1")})
        yield Sample((x[:, :0],), {"axis": 0, "index_dtype": index_dtype})


@primitive
class argmax(ArgExtremum):
    """The position of the first largest element along an axis."""

    reducer = "max"

    def position(self, x: np.ndarray, axis: int) -> Any:
        return np.argmax(x, axis=axis)


@primitive
class argmin(ArgExtremum):
    """The position of the first smallest element along an axis."""

    reducer = "min"

    def position(self, x: np.ndarray, axis: int) -> Any:
        return np.argmin(x, axis=axis)


# ------------------------------------------------------------- any monoid
@primitive
class reduce(Primitive):
    """Reduce several operands together by an associative program of scalars.

    Operands: the arrays, of one shape, then one initial scalar for each. `computation` takes the
    accumulators and the elements and returns the accumulators. Elements are combined in order.
    """

    multiple = True

    def type(self, *types: TensorType, computation: Program, axes: Axes) -> tuple[TensorType, ...]:
        count = len(types) // 2
        arrays, inits = types[:count], types[count:]
        refuse_keys("reduce", *arrays)
        check_axes("reduce", axes, arrays[0].ndim)
        if any(t.shape != arrays[0].shape for t in arrays) or any(t.shape for t in inits):
            raise ShapeError(
                f"reduce got operands {list(arrays)} and initial values {list(inits)}.",
                "Operands must have one shape, and an initial scalar each.",
            )
        dtypes = [t.dtype for t in arrays]
        if dtypes != [t.dtype for t in inits] or dtypes != [t.dtype for t in computation.output_types]:
            raise DtypeError(
                f"reduce got operands of dtypes {', '.join(d.name for d in dtypes)}, but initial"
                " values or results of the computation of others.",
                "Convert the initial values, or the computation's results, with .astype(...).",
            )
        check_elementwise("reduce", computation)
        shape = _without(arrays[0].shape, axes)
        return tuple(TensorType(shape, d) for d in dtypes)

    def reference(self, *inputs: np.ndarray, computation: Program, axes: Axes) -> Any:
        count = len(inputs) // 2
        arrays, inits = inputs[:count], inputs[count:]
        combine = array_function(computation)
        kept = _without(arrays[0].shape, axes)
        others = [a for a in range(arrays[0].ndim) if a not in axes]
        rows = tuple(np.transpose(x, (*axes, *others)).reshape(-1, *kept) for x in arrays)
        result = tuple(np.full(kept, init, init.dtype) for init in inits)
        for index in range(len(rows[0])):
            combined = combine(*result, *(row[index] for row in rows))
            result = tuple(np.asarray(np.broadcast_to(r, kept)) for r in combined)
        return result

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """General monoids have no derivative rule."""
        outs = self.bind(*primals, **params)
        if not all(isinstance(t, Zero) for t in tangents):
            raise UnsupportedError(
                "reduce by a general computation has no derivative.",
                "Use a sum, product, maximum or minimum, or give the function a custom_jvp.",
            )
        return outs, tuple(Zero(type_of(o)) for o in outs)

    def transpose(self, cotangents: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        raise not_linear("reduce")

    def batch(self, size: int, inputs: Any, dims: Any, *, computation: Program, axes: Axes) -> tuple[Any, Any]:
        """Operands keep a leading axis; batched initial values make one reduction for each."""
        count = len(inputs) // 2
        front = [to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        if all(d is None for d in dims[count:]):
            axes = tuple(a + 1 for a in axes)
            outs = self.bind(*front[:count], *inputs[count:], computation=computation, axes=axes)
            return outs, (0,) * count
        singles = [self.bind(*(_take(x, i) for x in front), computation=computation, axes=axes) for i in range(size)]
        stacked = [concatenate(*map(_with_front, outs), axis=0) for outs in zip(*singles, strict=True)]
        return tuple(stacked), (0,) * count

    def lower(self, k: Any, *values: Any, computation: Program, axes: Axes) -> Any:
        count = len(values) // 2
        function = scalar_function(computation)
        return k.reduce_general(function, values[:count], values[count:], axes)

    def samples(self) -> Iterator[Sample]:
        """Sums and maxima of one and of two operands."""
        return _reduce_samples()


def _take(x: Any, index: int) -> Any:
    """x[index]."""
    return reshape(slice_along(x, index, index + 1, 0), shape=type_of(x).shape[1:])


def _with_front(x: Any) -> Any:
    """x[None]."""
    return reshape(x, shape=(1, *type_of(x).shape))


def _reduce_samples() -> Iterator[Sample]:
    scalar = TensorType((), np.dtype("f8"))
    x = np.arange(12.0).reshape(3, 4) / 4 - 1
    half = np.asarray(0.5)

    def program(function: Any, count: int) -> Program:
        return trace_program(function, [scalar] * count)[0]

    product = program(lambda a, b: [multiply(a, b)], 2)
    both = program(lambda a, b, c, d: [add(a, c), registry["maximum"](b, d)], 4)
    yield Sample((x, half), {"computation": product, "axes": (1,)})
    yield Sample((x, x * -1, half, half), {"computation": both, "axes": (0, 1)})
    yield Sample((x[:0], half), {"computation": product, "axes": (0,)})
    yield Sample((x, half), {"computation": product, "axes": ()})
