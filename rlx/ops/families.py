"""Families of primitives whose rules are derived once: elementwise, linear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter, signature
from types import FunctionType
from typing import Any

import ml_dtypes
import numpy as np

from rlx.array import ConcreteArray, is_plain, keys_of_number, number_array
from rlx.errors import DtypeError, ShapeError, not_linear
from rlx.ir.program import Atom
from rlx.ir.scalar import ALPHABET
from rlx.ir.types import (
    TensorType,
    broadcast_sizes,
    compute_dtype,
    dtype_kind,
    is_complex,
    is_integer,
    is_key,
    is_narrow,
)
from rlx.trace.builder import Builder
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, registry, type_of
from rlx.trace.strictness import check_ranks

__all__ = [
    "Elementwise",
    "LinearMap",
    "LinearPrimitive",
    "NonDifferentiable",
    "add_values",
    "broadcast_shapes",
    "broadcast_to",
    "full_like",
    "instantiate",
    "in_compute_dtype",
    "move_axis",
    "refuse_keys",
    "samples_of",
    "scalar_like",
    "to_front",
    "unbroadcast",
]

_SCALARS = (bool, int, float, complex)


def refuse_keys(name: str, *types: TensorType) -> None:
    """Raise DtypeError if one of an operation's operands is of keys, which it cannot compute with."""
    for t in types:
        if is_key(t.dtype):
            raise DtypeError(
                f"{name} does not take {t!r}: keys can be moved, but not computed with.",
                "Draw numbers from them with rlx.random, or take their words: rlx.random.key_data(keys).",
            )


def broadcast_shapes(name: str, types: Sequence[TensorType]) -> tuple[int, ...]:
    """The shape that operands broadcast to, as NumPy does; raises ShapeError if they do not."""
    first = types[0].shape
    if all(len(t.shape) == len(first) and t.shape == first for t in types):
        return first
    check_ranks(name, [t.shape for t in types])
    try:
        return broadcast_sizes(*[t.shape for t in types])
    except ValueError:
        shapes = " and ".join(repr(t) for t in types)
        raise ShapeError(
            f"{name} got operands whose shapes do not broadcast: {shapes}.",
            "Axes are aligned from the last one and must be equal or 1: insert axes with x[:, None] or use reshape.",
        ) from None


# ------------------------------------------------------------- helpers for rules
def in_compute_dtype(x: np.ndarray) -> np.ndarray:
    """An array of narrow numbers in the dtype that they are computed in; any other unchanged."""
    return x.astype(compute_dtype(x.dtype)) if is_narrow(x.dtype) else x


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` broadcast to `shape` (NumPy's rule); unchanged if it has that shape."""
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
    if is_key(type.dtype):  # not a NumPy dtype: keys whose words are all that number
        scalar: ConcreteArray = keys_of_number((), value, type.dtype)
    else:
        scalar = ConcreteArray(np.asarray(value, type.dtype), type.weak)
    return registry["broadcast_in_dim"](scalar, shape=type.shape, dims=()) if type.shape else scalar


def scalar_like(x: Any, value: complex) -> Any:
    """A number with x's dtype that yields to other operands: a literal if all others are literals."""
    return full_like(TensorType((), type_of(x).dtype, True), value)


def instantiate(x: Any) -> Any:
    """A Zero as an array of zeros; anything else unchanged."""
    return full_like(x.type, 0) if isinstance(x, Zero) else x


def add_values(x: Any, y: Any) -> Any:
    """x + y for tangents or cotangents; either may be a Zero."""
    if isinstance(x, Zero):
        return y
    if isinstance(y, Zero):
        return x
    return registry["add"](x, y)


def scale(tangent: Any, partial: Any) -> Any:
    """tangent * partial, without a product for 1 or -1; a function is applied to the tangent."""
    if isinstance(partial, FunctionType):
        return partial(tangent)
    if isinstance(partial, int) and abs(partial) == 1:
        return tangent if partial == 1 else registry["negative"](tangent)
    return registry["multiply"](tangent, partial)


def unbroadcast(cotangent: Any, type: TensorType) -> Any:
    """Sum a cotangent over the axes along which an operand of `type` was broadcast."""
    shape = type_of(cotangent).shape
    if shape == type.shape:
        return cotangent
    lead = len(shape) - len(type.shape)
    axes = tuple(range(lead)) + tuple(lead + i for i, d in enumerate(type.shape) if d == 1 and shape[lead + i] != 1)
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

    A subclass defines `compute(*arrays)` (or `reference`), `scalar(s, *scalars)` and
    `partials(out, *inputs)`; `kinds` defines the dtypes that it takes, or `dtypes` if only some of them.
    For the generic tests: `domain` is where the function is smooth (one interval, or one for each
    operand), `sample_params` the parameters to try, `ulp` and `exact_at` how exact it is. Those that are one scalar
    operation, with their own name or the name in `operation`, are as exact as ir.scalar specifies.
    """

    broadcasts = True
    kinds = "biufc"
    dtypes: tuple[np.dtype, ...] = ()
    domain: tuple[Any, Any] | tuple[tuple[float, float], ...] = (-2.0, 2.0)
    sample_params: tuple[dict[str, Any], ...] = ({},)
    operation = ""
    compute: Callable[..., Any]

    @property
    def ulp(self) -> tuple[float, float] | None:
        """The largest errors for float32 and float64 in units of the last place; None if no bound is guaranteed."""
        facts = ALPHABET.get(self.operation or self.name)
        return None if facts is None else facts.ulp

    @property
    def exact_at(self) -> tuple[tuple[float, ...], ...]:
        """Arguments at which the result has no error."""
        facts = ALPHABET.get(self.operation or self.name)
        return () if facts is None else facts.exact_at

    def __init__(self) -> None:
        self._admitted: set[np.dtype] = set()

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """`compute` on the arrays; narrow numbers are computed in a wider dtype."""
        if not is_narrow(arrays[-1].dtype):
            return self.compute(*arrays, **params)
        wide = [in_compute_dtype(a) for a in arrays]
        dtype = self.result_dtype(*[a.dtype for a in arrays], **params)
        return np.asarray(self.compute(*wide, **params)).astype(dtype)

    @property
    def arity(self) -> int:
        """Number of operands."""
        parameters = signature(self.scalar).parameters.values()
        return sum(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in parameters) - 1

    def samples(self) -> Iterator[Sample]:
        """Every dtype kind, broadcasting, 0-d and zero-size operands, within the domain."""
        return elementwise_samples(self)

    def takes(self, dtype: np.dtype) -> bool:
        """Whether operands may be of a dtype."""
        return dtype in self.dtypes if self.dtypes else dtype_kind(dtype) in self.kinds

    def result_dtype(self, *dtypes: np.dtype, **params: Any) -> np.dtype:
        """dtype of the result; by default the operands' dtype."""
        return dtypes[-1]

    def type(self, *types: TensorType, **params: Any) -> TensorType:
        first = types[0].dtype
        for t in types:
            if t.dtype != first:
                raise DtypeError(
                    f"{self.name} got operands of dtypes {', '.join(str(t.dtype) for t in types)}.",
                    "Convert them to one dtype with .astype(...); rlx.numpy functions promote for you.",
                )
        if not self.takes(first):
            raise DtypeError(
                f"{self.name} does not take {first.name}.",
                "Convert the operand with .astype(...) first.",
            )
        shape = broadcast_shapes(self.name, types)
        dtype = self.result_dtype(*[t.dtype for t in types], **params)
        return TensorType(shape, dtype, all(t.weak for t in types))

    def axis_map(self, *types: TensorType, **params: Any) -> tuple[tuple[int | None, ...], ...]:
        """Axes are aligned from the last one; axes of size 1 are undivided, and fit any other."""
        rank = max(t.ndim for t in types)
        return tuple(tuple(range(rank - t.ndim, rank)) for t in types)

    def _literal_dtype(self, args: Sequence[Any]) -> np.dtype | None:
        for a in args:
            if not isinstance(a, _SCALARS):
                return a.dtype
        return next((a.dtype for a in args if isinstance(a, np.generic)), None)

    def lift(self, builder: Builder, args: Sequence[Any]) -> tuple[Atom, ...]:
        """Python scalars take the dtype of the other operands."""
        dtype = self._literal_dtype(args)
        return tuple([builder.lift(a, dtype) for a in args])

    def evaluate(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run eagerly: Python scalars take the dtype of the other operands."""
        for a in args:
            if type(a) is not ConcreteArray:
                args = self._with_arrays_for_scalars(args)
                break
        if getattr(args[-1], "dtype", None) not in self._admitted:
            self._admit(args, params)
        return super().evaluate(args, params)

    def _admit(self, args: Sequence[Any], params: dict[str, Any]) -> None:
        """Refuse a dtype that NumPy would promote or reinterpret; the result is cached."""
        dtype = type_of(args[-1]).dtype
        if not self.takes(dtype):
            self.type(*map(type_of, args), **params)
        self._admitted.add(dtype)

    def _with_arrays_for_scalars(self, args: Sequence[Any]) -> Sequence[Any]:
        dtype = self._literal_dtype(args)
        if dtype is None:
            return args
        # next to strong arrays, weakness makes no difference, and strong operands run faster
        weak = not all(isinstance(a, _SCALARS) or (is_plain(a) and not a._weak) for a in args)
        return [ConcreteArray(number_array(a, dtype), weak) if isinstance(a, _SCALARS) else a for a in args]

    def operands(self, args: Sequence[Any]) -> list[ConcreteArray]:
        """Evaluate; Python scalars take the dtype of the other operands."""
        return super().operands(self._with_arrays_for_scalars(args))

    def scalar(self, s: Any, *xs: Any, **params: Any) -> Any:
        """The operation on scalars, written with a ScalarBuilder."""
        raise NotImplementedError(self.name)

    def partials(self, out: Any, *xs: Any, **params: Any) -> tuple[Any, ...]:
        """Partial derivatives with respect to each operand; None if zero."""
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
        raise not_linear(self.name)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        """Elementwise operations accept one more axis; align ranks so that it is the first."""
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


_SAMPLE_DTYPES = {
    "b": ("?",),
    "i": ("i4", "i1", "int4"),
    "u": ("u1", "u4", "uint2"),
    "f": ("f8", "f4", "f2", "bfloat16", "float8_e4m3fn", "float4_e2m1fn"),
    "c": ("c16", "c8"),
}
_SAMPLE_SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((2, 3), (2, 3), (2, 3), (2, 3)),
    ((3,), (2, 1), (1, 3), (3,)),
    ((), (2,), (), (2,)),
    ((2, 0), (1, 1), (0,), ()),
)


def sample_array(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, low: float, high: float
) -> np.ndarray:
    """Values of `dtype` spread over low..high (for complex: both parts)."""
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if is_integer(dtype):
        info = ml_dtypes.iinfo(dtype)
        low, high = max(int(low), info.min, -100), min(int(high), info.max, 100)
        return np.asarray(generator.integers(low, high + 1, shape)).astype(dtype)
    values = np.asarray(generator.uniform(low, high, shape))
    if is_complex(dtype):
        return np.asarray(values + 1j * generator.uniform(low, high, shape)).astype(dtype)
    return values.astype(dtype)


def elementwise_samples(operation: Elementwise) -> Iterator[Sample]:
    """Samples of an elementwise primitive from its kinds, domain and parameters."""
    generator = np.random.default_rng(len(operation.name))
    domain, arity = operation.domain, operation.arity
    domains = domain if isinstance(domain[0], tuple) else (domain,) * arity

    def sample(dtype: np.dtype, shapes: Sequence[tuple[int, ...]], params: dict[str, Any]) -> Sample:
        arrays = [
            sample_array(generator, shape, dtype, *interval)
            for shape, interval in zip(shapes[:arity], domains, strict=True)
        ]
        return Sample(tuple(arrays), params)

    for params in operation.sample_params:
        for kind in operation.kinds:
            for dtype in filter(operation.takes, map(np.dtype, _SAMPLE_DTYPES[kind])):
                yield sample(dtype, _SAMPLE_SHAPES[0], params)
    widest_kind = "f" if "f" in operation.kinds else operation.kinds[-1]
    widest = next(filter(operation.takes, map(np.dtype, _SAMPLE_DTYPES[widest_kind])))
    for shapes in _SAMPLE_SHAPES[1:]:
        yield sample(widest, shapes, operation.sample_params[0])


class LinearPrimitive(Primitive):
    """Linear in its first operand (or in all, if `all_linear`): the tangents undergo the same operation."""

    all_linear = False

    def linear_in(self, *types: TensorType, **params: Any) -> tuple[tuple[int, ...], ...]:
        """Linear in the operands whose tangents undergo the operation."""
        return (tuple(range(len(types))) if self.all_linear else (0,),)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        """Apply the operation to the tangents."""
        out = self.bind(*primals, **params)
        moving = tangents if self.all_linear else tangents[:1]
        if all(isinstance(t, Zero) for t in moving):
            return out, Zero(type_of(out))
        args = [instantiate(t) for t in moving] + list(primals[len(moving) :])
        return out, self.bind(*args, **params)


class LinearMap(LinearPrimitive):
    """Linear in its single operand. Defines `pull_back(cotangent, type, **params)`."""

    def transpose(self, cotangent: Any, x: Any, **params: Any) -> tuple[Any, ...]:
        """A zero remains zero; others are passed to `pull_back`."""
        if not isinstance(x, Linear):
            return (None,)
        return (Zero(x.type) if isinstance(cotangent, Zero) else self.pull_back(cotangent, x.type, **params),)

    def pull_back(self, cotangent: Any, type: TensorType, **params: Any) -> Any:
        """The cotangent of the operand, which is of this type."""
        raise NotImplementedError(self.name)


def samples_of(*cases: Any) -> Iterator[Sample]:
    """Samples from (args, params) pairs."""
    for args, params in cases:
        yield Sample(tuple(args), dict(params))
