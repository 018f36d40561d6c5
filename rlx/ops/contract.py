"""Contraction: dot_general, the one product of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import TensorType, bits_of, compute_dtype, is_complex, is_float, is_integer, is_narrow
from rlx.ops.families import add_values, refuse_keys
from rlx.ops.sample_dtypes import ANY, typed_samples
from rlx.ops.shape import AxisMap, check_axes
from rlx.ops.shape import transpose as transpose_axes
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, primitive, registry, type_of

__all__ = ["DotDimensionNumbers", "dot_general", "matmul"]

Axes = tuple[int, ...]
DotDimensionNumbers = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]


class DotLayout(NamedTuple):
    """Axes of both operands by their roles. Result axes: batch, lhs free, rhs free."""

    lhs_contracting: Axes
    rhs_contracting: Axes
    lhs_batch: Axes
    rhs_batch: Axes
    lhs_free: Axes
    rhs_free: Axes


@lru_cache(maxsize=4096)
def layout(lhs_ndim: int, rhs_ndim: int, dimension_numbers: DotDimensionNumbers) -> DotLayout:
    """The dimension numbers with explicit free axes of both operands."""
    (lc, rc), (lb, rb) = dimension_numbers
    lhs_free = tuple(i for i in range(lhs_ndim) if i not in lc and i not in lb)
    rhs_free = tuple(i for i in range(rhs_ndim) if i not in rc and i not in rb)
    return DotLayout(tuple(lc), tuple(rc), tuple(lb), tuple(rb), lhs_free, rhs_free)


def accumulation_dtype(operand: np.dtype, preferred: np.dtype | None) -> np.dtype:
    """The dtype of the sums: for narrow numbers the dtype they are computed in, else the result's."""
    result = operand if preferred is None else np.dtype(preferred)
    if is_narrow(operand) and is_narrow(result):
        return compute_dtype(operand)
    return result


def cast(x: Any, dtype: np.dtype) -> Any:
    """`x` in `dtype`; unchanged if it has that dtype."""
    return x if type_of(x).dtype == dtype else registry["convert"](x, dtype=dtype, weak=False)


def matmul(lhs: Any, rhs: Any) -> Any:
    """The product of two matrices."""
    numbers = (((1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers=numbers, preferred_dtype=None)


@primitive
class dot_general(Primitive):
    """Sum of products over the contracting axes, for each index of the batch axes.

    dimension_numbers = ((lhs contracting, rhs contracting), (lhs batch, rhs batch)). The result has
    the batch axes, then lhs's free axes, then rhs's. preferred_dtype: the dtype of the sum, at
    least as wide as the operands'; None for theirs. tf32: a device that multiplies float32 faster if it is
    first rounded to ten fraction bits may do so.
    """

    def type(
        self,
        lhs: TensorType,
        rhs: TensorType,
        *,
        dimension_numbers: DotDimensionNumbers,
        preferred_dtype: np.dtype | None,
        tf32: bool = False,
    ) -> TensorType:
        refuse_keys(self.name, lhs, rhs)
        if lhs.dtype != rhs.dtype:
            raise DtypeError(
                f"dot_general got operands {lhs!r} and {rhs!r}.",
                "Convert them to one dtype with .astype(...); rlx.numpy functions promote for you.",
            )
        (lc, rc), (lb, rb) = dimension_numbers
        check_axes(self.name, (*lc, *lb), lhs.ndim)
        check_axes(self.name, (*rc, *rb), rhs.ndim)
        for left, right, role in ((lc, rc, "contracting"), (lb, rb, "batch")):
            if [lhs.shape[i] for i in left] != [rhs.shape[i] for i in right]:
                raise ShapeError(
                    f"dot_general got {lhs!r} with {role} axes {tuple(left)} and {rhs!r} with"
                    f" {role} axes {tuple(right)}, whose sizes differ.",
                    "Contracted and batch axes must have equal sizes in both operands.",
                )
        d = layout(lhs.ndim, rhs.ndim, _hashable(dimension_numbers))
        shape = [lhs.shape[i] for i in d.lhs_batch + d.lhs_free]
        shape += [rhs.shape[i] for i in d.rhs_free]
        dtype = lhs.dtype if preferred_dtype is None else np.dtype(preferred_dtype)
        _check_preferred(lhs.dtype, dtype)
        return TensorType(tuple(shape), dtype, lhs.weak and rhs.weak)

    def axis_map(
        self,
        lhs: TensorType,
        rhs: TensorType,
        *,
        dimension_numbers: DotDimensionNumbers,
        preferred_dtype: np.dtype | None,
        tf32: bool = False,
    ) -> AxisMap:
        """Contracted axes are combined with one another."""
        d = layout(lhs.ndim, rhs.ndim, _hashable(dimension_numbers))
        left, right = d.lhs_batch + d.lhs_free, d.rhs_batch + (None,) * len(d.lhs_free) + d.rhs_free
        return tuple(
            tuple(kept.index(a) if a in kept else -1 - contracted.index(a) for a in range(ndim))
            for kept, contracted, ndim in (
                (left, d.lhs_contracting, lhs.ndim),
                (right, d.rhs_contracting, rhs.ndim),
            )
        )

    def reference(
        self,
        lhs: np.ndarray,
        rhs: np.ndarray,
        *,
        dimension_numbers: DotDimensionNumbers,
        preferred_dtype: np.dtype | None,
        tf32: bool = False,
    ) -> np.ndarray:
        if preferred_dtype is None and rhs.ndim <= 2 and lhs.dtype.char in "fdFD":
            contracting, batch_axes = dimension_numbers
            if not batch_axes[0] and contracting == ((lhs.ndim - 1,), (0,)):  # NumPy's own product
                return np.asarray(np.matmul(lhs, rhs))
        d = layout(lhs.ndim, rhs.ndim, _hashable(dimension_numbers))
        result = lhs.dtype if preferred_dtype is None else np.dtype(preferred_dtype)
        working = accumulation_dtype(lhs.dtype, preferred_dtype)
        lhs, rhs = lhs.astype(working, copy=False), rhs.astype(working, copy=False)
        batch = tuple(lhs.shape[i] for i in d.lhs_batch)
        rows = tuple(lhs.shape[i] for i in d.lhs_free)
        columns = tuple(rhs.shape[i] for i in d.rhs_free)
        inner = _size(lhs.shape[i] for i in d.lhs_contracting)
        left = lhs.transpose(d.lhs_batch + d.lhs_free + d.lhs_contracting)
        right = rhs.transpose(d.rhs_batch + d.rhs_contracting + d.rhs_free)
        product = np.matmul(
            left.reshape((_size(batch), _size(rows), inner)),
            right.reshape((_size(batch), inner, _size(columns))),
        )
        return product.astype(result, copy=False).reshape(batch + rows + columns)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        dimension_numbers: DotDimensionNumbers,
        preferred_dtype: np.dtype | None,
        tf32: bool = False,
    ) -> tuple[Any, Any]:
        params = _params(dimension_numbers, preferred_dtype, tf32)
        (lhs, rhs), (lhs_dot, rhs_dot) = primals, tangents
        out = self.bind(lhs, rhs, **params)
        tangent: Any = Zero(type_of(out))
        if not isinstance(lhs_dot, Zero):
            tangent = self.bind(lhs_dot, rhs, **params)
        if not isinstance(rhs_dot, Zero):
            tangent = add_values(tangent, self.bind(lhs, rhs_dot, **params))
        return out, tangent

    def transpose(
        self,
        cotangent: Any,
        lhs: Any,
        rhs: Any,
        *,
        dimension_numbers: DotDimensionNumbers,
        preferred_dtype: np.dtype | None,
        tf32: bool = False,
    ) -> tuple[Any, ...]:
        if isinstance(cotangent, Zero):
            return tuple(Zero(x.type) if isinstance(x, Linear) else None for x in (lhs, rhs))
        d = layout(type_of(lhs).ndim, type_of(rhs).ndim, _hashable(dimension_numbers))
        if isinstance(lhs, Linear):
            return _cotangent_of_lhs(cotangent, lhs.type, rhs, d, False, tf32), None
        mirrored = DotLayout(d.rhs_contracting, d.lhs_contracting, d.rhs_batch, d.lhs_batch, d.rhs_free, d.lhs_free)
        return None, _cotangent_of_lhs(cotangent, rhs.type, lhs, mirrored, True, tf32)

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        dimension_numbers: DotDimensionNumbers,
        preferred_dtype: np.dtype | None,
        tf32: bool = False,
    ) -> tuple[Any, int]:
        (lhs, rhs), (ldim, rdim) = inputs, dims
        (lc, rc), (lb, rb) = dimension_numbers
        lc, lb = _shifted(lc, ldim), _shifted(lb, ldim)
        rc, rb = _shifted(rc, rdim), _shifted(rb, rdim)
        if ldim is not None and rdim is not None:
            numbers = ((lc, rc), ((ldim, *lb), (rdim, *rb)))
            out_dim = 0
        else:
            numbers = ((lc, rc), (lb, rb))
            d = layout(type_of(lhs).ndim, type_of(rhs).ndim, numbers)
            if ldim is not None:
                out_dim = len(lb) + d.lhs_free.index(ldim)
            else:
                out_dim = len(lb) + len(d.lhs_free) + d.rhs_free.index(rdim)
        params = _params(numbers, preferred_dtype, tf32)
        return self.bind(lhs, rhs, **params), out_dim

    def lower(
        self,
        k: Any,
        lhs: Any,
        rhs: Any,
        *,
        dimension_numbers: DotDimensionNumbers,
        preferred_dtype: np.dtype | None,
        tf32: bool = False,
    ) -> Any:
        result = lhs.type.dtype if preferred_dtype is None else np.dtype(preferred_dtype)
        contracting, batch = dimension_numbers
        accumulator = accumulation_dtype(lhs.type.dtype, preferred_dtype)
        return k.contract(lhs, rhs, contracting, batch, accumulator, result, tf32)

    def samples(self) -> Iterator[Sample]:
        def case(lhs: Axes, rhs: Axes, numbers: DotDimensionNumbers) -> Any:
            arrays = [_numbers(*lhs), _numbers(*rhs)]
            return arrays, {"dimension_numbers": numbers, "preferred_dtype": None}

        return typed_samples(
            ANY,
            case((2, 3), (3, 4), (((1,), (0,)), ((), ()))),
            case((3,), (3,), (((0,), (0,)), ((), ()))),
            case((4, 2, 3), (3, 5, 4), (((2,), (0,)), ((0,), (2,)))),
            case((2, 3, 4, 5), (5, 3, 2), (((3, 1), (0, 1)), ((0,), (2,)))),
            case((2, 0), (0, 3), (((1,), (0,)), ((), ()))),
            case((2,), (3,), (((), ()), ((), ()))),
        )


def _params(numbers: DotDimensionNumbers, preferred: np.dtype | None, tf32: bool) -> dict[str, Any]:
    """The parameters of an equation: tf32 is included only if requested."""
    params: dict[str, Any] = {"dimension_numbers": numbers, "preferred_dtype": preferred}
    return params | {"tf32": True} if tf32 else params


def _cotangent_of_lhs(
    cotangent: Any, lhs: TensorType, rhs: Any, d: DotLayout, swapped: bool, tf32: bool
) -> Any:
    """The cotangent contracted with rhs over rhs's free axes, its axes put in lhs's order.

    `swapped`: lhs was the second operand, so that its free axes come last in the cotangent.
    """
    batches, rows, columns = len(d.lhs_batch), len(d.lhs_free), len(d.rhs_free)
    first = batches if swapped else batches + rows
    over = tuple(range(first, first + columns))
    numbers = ((over, d.rhs_free), (tuple(range(batches)), d.rhs_batch))
    rhs = cast(rhs, type_of(cotangent).dtype)
    product = dot_general(cotangent, rhs, **_params(numbers, None, tf32))
    # the product has lhs's batch and free axes, then the contracted ones in rhs's own order
    contracted = sorted(range(len(d.rhs_contracting)), key=lambda i: d.rhs_contracting[i])
    order = d.lhs_batch + d.lhs_free + tuple(d.lhs_contracting[i] for i in contracted)
    permutation = tuple(np.argsort(order).tolist())
    if permutation != tuple(range(len(permutation))):
        product = transpose_axes(product, permutation=permutation)
    return cast(product, lhs.dtype)


def _check_preferred(operand: np.dtype, result: np.dtype) -> None:
    kinds = [
        "float" if is_float(d) else "complex" if is_complex(d) else "integer" if is_integer(d) else "bool"
        for d in (operand, result)
    ]
    fits = kinds[0] == kinds[1] or kinds[:2] == ["integer", "float"] or kinds[0] == "bool"
    if not fits or bits_of(result) < bits_of(operand):
        raise DtypeError(
            f"dot_general of {operand.name} cannot accumulate in {result.name}.",
            "preferred_dtype must be of the operands' kind and at least as wide.",
        )


def _hashable(dimension_numbers: Any) -> DotDimensionNumbers:
    (lc, rc), (lb, rb) = dimension_numbers
    return (tuple(lc), tuple(rc)), (tuple(lb), tuple(rb))


def _shifted(axes: Sequence[int], dim: int | None) -> Axes:
    """`axes` counted in an operand that has a batch axis at `dim`."""
    return tuple(axes) if dim is None else tuple(a + (a >= dim) for a in axes)


def _size(sizes: Any) -> int:
    n = 1
    for d in sizes:
        n *= d
    return n


def _numbers(*shape: int) -> np.ndarray:
    n = _size(shape)
    return np.cos(np.arange(n, dtype=np.float64) * 1.3).reshape(shape)
