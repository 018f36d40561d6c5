"""Families of primitives whose rules are derived once: elementwise, linear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray
from rlx.errors import DtypeError, ShapeError, describe
from rlx.ir.program import Atom, Literal
from rlx.ir.types import TensorType, is_complex, is_float, is_integer
from rlx.trace.builder import Builder, Tracer
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, registry, type_of

__all__ = [
    "Elementwise",
    "LinearPrimitive",
    "NonDifferentiable",
    "add_values",
    "broadcast_shapes",
    "broadcast_to",
    "dtype_kind",
    "full_like",
    "instantiate",
    "move_axis",
    "to_front",
    "unbroadcast",
]

_SCALARS = (bool, int, float, complex)


def dtype_kind(dtype: np.dtype) -> str:
    """One letter: b(ool), i(nt), u(nsigned), f(loat, small ones included), c(omplex)."""
    return "f" if is_float(dtype) else dtype.kind


def broadcast_shapes(name: str, types: Sequence[TensorType]) -> tuple[int, ...]:
    """The shape that operands broadcast to, as NumPy does; ShapeError where they do not."""
    first = types[0].shape
    if all(t.shape == first for t in types):
        return first
    try:
        return np.broadcast_shapes(*[t.shape for t in types])
    except ValueError:
        shapes = " and ".join(repr(t) for t in types)
        raise ShapeError(
            f"{name} got operands whose shapes do not broadcast: {shapes}.",
            "Axes are aligned from the last one and must be equal or 1: insert axes with x[:, None]"
            " or use reshape.",
        ) from None


# ------------------------------------------------------------- helpers for rules
def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` broadcast to `shape` (NumPy's rule); itself where it has that shape already."""
    t = type_of(x)
    if t.shape == shape:
        return x
    lead = len(shape) - len(t.shape)
    keep = tuple(i for i, d in enumerate(t.shape) if d == shape[lead + i] or d != 1)
    if len(keep) != len(t.shape):
        x = registry["reshape"](x, shape=tuple(t.shape[i] for i in keep))
    return registry["broadcast_in_dim"](x, shape=shape, dims=tuple(lead + i for i in keep))


def full_like(type: TensorType, value: complex) -> Any:
    """An array of `type`'s shape and dtype filled with a number."""
    scalar = np.asarray(value, type.dtype)
    if not type.shape:
        from_literal = ConcreteArray(scalar, type.weak)
        return from_literal
    return registry["broadcast_in_dim"](ConcreteArray(scalar, type.weak), shape=type.shape, dims=())


def instantiate(x: Any) -> Any:
    """A Zero as an array of zeros; anything else as it is."""
    return full_like(x.type, 0) if isinstance(x, Zero) else x


def add_values(x: Any, y: Any) -> Any:
    """x + y for tangents or cotangents, either of which may be a Zero."""
    if isinstance(x, Zero):
        return y
    if isinstance(y, Zero):
        return x
    return registry["add"](x, y)


def scale(tangent: Any, partial: Any) -> Any:
    """tangent * partial, sparing the product with 1 or -1."""
    if isinstance(partial, int) and abs(partial) == 1:
        return tangent if partial == 1 else registry["negative"](tangent)
    return registry["multiply"](tangent, partial)


def unbroadcast(cotangent: Any, type: TensorType) -> Any:
    """Sum a cotangent over the axes along which an operand of `type` was broadcast."""
    shape = type_of(cotangent).shape
    if shape == type.shape:
        return cotangent
    lead = len(shape) - len(type.shape)
    axes = tuple(range(lead)) + tuple(
        lead + i for i, d in enumerate(type.shape) if d == 1 and shape[lead + i] != 1
    )
    cotangent = registry["reduce_sum"](cotangent, axes=axes) if axes else cotangent
    if type_of(cotangent).shape != type.shape:
        cotangent = registry["reshape"](cotangent, shape=type.shape)
    return cotangent


def move_axis(x: Any, source: int, destination: int) -> Any:
    """`x` with one axis moved, the others in order."""
    if source == destination:
        return x
    order = [i for i in range(type_of(x).ndim) if i != source]
    order.insert(destination, source)
    return registry["transpose"](x, permutation=tuple(order))


def to_front(x: Any, dim: int | None, size: int) -> Any:
    """`x` with its batch axis in front; broadcast along a new one if it has none."""
    if dim is None:
        shape = type_of(x).shape
        dims = tuple(range(1, len(shape) + 1))
        return registry["broadcast_in_dim"](x, shape=(size, *shape), dims=dims)
    return move_axis(x, dim, 0)


# ------------------------------------------------------------- elementwise
class Elementwise(Primitive):
    """A scalar function applied elementwise; operands broadcast and have one dtype.

    A subclass states `reference(*arrays)`, `scalar(s, *scalars)` and `partials(out, *inputs)`.
    """

    kinds = "biufc"

    def result_dtype(self, *dtypes: np.dtype, **params: Any) -> np.dtype:
        """dtype of the result; that of the operands unless a subclass says otherwise."""
        return dtypes[-1]

    def type(self, *types: TensorType, **params: Any) -> TensorType:
        first = types[0].dtype
        for t in types:
            if t.dtype != first:
                raise DtypeError(
                    f"{self.name} got operands of dtypes {', '.join(str(t.dtype) for t in types)}.",
                    "Convert them to one dtype with .astype(...); rlx.numpy functions promote for you.",
                )
        if dtype_kind(first) not in self.kinds:
            raise DtypeError(
                f"{self.name} does not take {first.name}.",
                "Convert the operand with .astype(...) first.",
            )
        shape = broadcast_shapes(self.name, types)
        dtype = self.result_dtype(*[t.dtype for t in types], **params)
        return TensorType(shape, dtype, all(t.weak for t in types))

    def _literal_dtype(self, args: Sequence[Any]) -> np.dtype | None:
        for a in args:
            if not isinstance(a, _SCALARS):
                return a.dtype
        return None

    def lift(self, builder: Builder, args: Sequence[Any]) -> tuple[Atom, ...]:
        """Python scalars take the dtype of the other operands."""
        dtype = self._literal_dtype(args)
        return tuple([builder.lift(a, dtype) for a in args])

    def evaluate(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run eagerly: Python scalars take the dtype of the other operands."""
        dtype = None
        for a in args:
            if type(a) is not ConcreteArray:
                dtype = self._literal_dtype(args)
                args = [
                    ConcreteArray(np.asarray(a, dtype), True) if isinstance(a, _SCALARS) and dtype is not None else a
                    for a in args
                ]
                break
        return super().evaluate(args, params)

    def scalar(self, s: Any, *xs: Any, **params: Any) -> Any:
        """The operation on scalars, spelled with a ScalarBuilder."""
        raise NotImplementedError(self.name)

    def partials(self, out: Any, *xs: Any, **params: Any) -> tuple[Any, ...]:
        """Partial derivatives with respect to each operand; None where zero."""
        raise NotImplementedError(self.name)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        """Sum of partial times tangent."""
        out = self.bind(*primals, **params)
        result: Any = Zero(type_of(out))
        if all(isinstance(t, Zero) for t in tangents):
            return out, result
        for partial, t in zip(self.partials(out, *primals, **params), tangents, strict=True):
            if partial is not None and not isinstance(t, Zero):
                result = add_values(result, scale(t, partial))
        if not isinstance(result, Zero):
            result = broadcast_to(result, type_of(out).shape)
        return out, result

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        """Only linear operations are transposed; they override `linear_transpose`."""
        if isinstance(cotangent, Zero):
            return tuple(Zero(x.type) if isinstance(x, Linear) else None for x in inputs)
        results = self.linear_transpose(cotangent, *inputs, **params)
        return tuple(
            unbroadcast(ct, x.type) if isinstance(x, Linear) and ct is not None and not isinstance(ct, Zero) else None
            for ct, x in zip(results, inputs, strict=True)
        )

    def linear_transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        """Cotangents of the operands that are Linear, before unbroadcasting; None for others."""
        raise AssertionError(f"{self.name} is not linear: a derivative rule is wrong")

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        """Elementwise work does not mind one more axis; align ranks so that it leads."""
        types = [type_of(x) for x in inputs]
        batched = {(t.ndim, d) for t, d in zip(types, dims, strict=True) if d is not None}
        plain = max((t.ndim for t, d in zip(types, dims, strict=True) if d is None), default=0)
        if len(batched) == 1:
            ndim, dim = next(iter(batched))
            if plain == 0 or (dim == 0 and plain < ndim):
                return self.bind(*inputs, **params), dim
        rank = max(t.ndim - (d is not None) for t, d in zip(types, dims, strict=True))
        aligned = []
        for x, t, d in zip(inputs, types, dims, strict=True):
            if d is not None:
                x = move_axis(x, d, 0)
                missing = rank - (t.ndim - 1)
                if missing:
                    shape = type_of(x).shape
                    x = registry["reshape"](x, shape=(shape[0], *(1,) * missing, *shape[1:]))
            aligned.append(x)
        return self.bind(*aligned, **params), 0

    def lower(self, k: Any, *values: Any, **params: Any) -> Any:
        """One scalar expression over the broadcast operands."""
        out = self.type(*[v.type for v in values], **params)
        return k.elementwise(lambda s, *xs: self.scalar(s, *xs, **params), values, out)


class NonDifferentiable(Elementwise):
    """Elementwise with a zero derivative everywhere: comparisons, rounding, bits."""

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        """The tangent is zero."""
        out = self.bind(*primals, **params)
        return out, Zero(type_of(out))


class LinearPrimitive(Primitive):
    """Linear in its first operand (or in all, if `all_linear`): the tangent goes the same way."""

    all_linear = False

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        """Apply the operation to the tangents."""
        out = self.bind(*primals, **params)
        moving = tangents if self.all_linear else tangents[:1]
        if all(isinstance(t, Zero) for t in moving):
            return out, Zero(type_of(out))
        args = [instantiate(t) for t in moving] + list(primals[len(moving) :])
        return out, self.bind(*args, **params)


def samples_of(*cases: Any) -> Iterator[Sample]:
    """Samples from (args, params) pairs."""
    for args, params in cases:
        yield Sample(tuple(args), dict(params))


