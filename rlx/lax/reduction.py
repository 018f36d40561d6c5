"""Reductions, cumulative reductions and positions of extrema."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.program import Literal, Program
from rlx.ir.scalar import neutral
from rlx.ir.types import TensorType, is_inexact, is_integer
from rlx.lax.operands import as_array, as_dtype, canonical_axes, canonical_axis, scalar_of
from rlx.lax.shape import broadcast_in_dim, concatenate, index_in_dim, reshape, slice_in_dim, transpose
from rlx.numpy.placement import asks_for_parts, check_placement, sums_in_parts
from rlx.numpy.promotion import yielding
from rlx.ops import cumulative, reduction
from rlx.ops.conversion import convert
from rlx.ops.families import full_like
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Zero, registry
from rlx.trace.tracing import trace_program
from rlx.transforms.custom import custom_jvp
from rlx.transforms.forward import jvp
from rlx.trees import tree

__all__ = [
    "argmax",
    "argmin",
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "reduce",
    "reduce_and",
    "reduce_max",
    "reduce_min",
    "reduce_or",
    "reduce_prod",
    "reduce_sum",
    "reduce_xor",
]

_MONOIDS = {
    "add": reduction.reduce_sum,
    "multiply": reduction.reduce_prod,
    "maximum": reduction.reduce_max,
    "minimum": reduction.reduce_min,
    "bitwise_and": reduction.reduce_and,
    "bitwise_or": reduction.reduce_or,
    "bitwise_xor": reduction.reduce_xor,
}


def _reduced(primitive: Any, name: str, operand: Any, axes: Sequence[int]) -> Array:
    x = as_array(operand)
    if name in ("reduce_sum", "reduce_prod") and x.dtype.kind == "b":
        raise DtypeError(f"lax.{name} got a bool array.", "Convert it with .astype(int), or use lax.reduce_or.")
    axes = canonical_axes(name, axes, x.ndim)
    return primitive(x, axes=axes) if axes else x


def reduce_sum(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """The sum over some axes.

    >>> from rlx import lax
    >>> lax.reduce_sum(lax.iota("int32", 4), (0,)).item()
    6
    """
    check_placement(None, out_sharding)
    if asks_for_parts(out_sharding):
        x = as_array(operand)
        over = canonical_axes("reduce_sum", axes, x.ndim)
        return sums_in_parts().sum_in_parts("lax.reduce_sum", x, over, out_sharding)
    return _reduced(reduction.reduce_sum, "reduce_sum", operand, axes)


def reduce_prod(operand: Any, axes: Sequence[int]) -> Array:
    """The product over some axes.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.reduce_prod(jnp.array([[1, 5], [7, 2]]), (0, 1)).item()
    70
    """
    return _reduced(reduction.reduce_prod, "reduce_prod", operand, axes)


def reduce_max(operand: Any, axes: Sequence[int]) -> Array:
    """The maximum over some axes; NaN if there is one.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.reduce_max(jnp.array([[1, 5], [7, 2]]), (0,)).tolist()
    [7, 5]
    """
    return _reduced(reduction.reduce_max, "reduce_max", operand, axes)


def reduce_min(operand: Any, axes: Sequence[int]) -> Array:
    """The minimum over some axes; NaN if there is one.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.reduce_min(jnp.array([[1, 5], [7, 2]]), (0,)).tolist()
    [1, 2]
    """
    return _reduced(reduction.reduce_min, "reduce_min", operand, axes)


def reduce_and(operand: Any, axes: Sequence[int]) -> Array:
    """The bitwise (of bools: logical) and over some axes.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.reduce_and(jnp.array([[True, True], [True, False]]), (1,)).tolist()
    [True, False]
    """
    return _reduced(reduction.reduce_and, "reduce_and", operand, axes)


def reduce_or(operand: Any, axes: Sequence[int]) -> Array:
    """The bitwise (of bools: logical) or over some axes.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.reduce_or(jnp.array([[False, False], [True, False]]), (1,)).tolist()
    [False, True]
    """
    return _reduced(reduction.reduce_or, "reduce_or", operand, axes)


def reduce_xor(operand: Any, axes: Sequence[int]) -> Array:
    """The bitwise (of bools: logical) exclusive or over some axes.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.reduce_xor(jnp.array([6, 3]), (0,)).item()
    5
    """
    return _reduced(reduction.reduce_xor, "reduce_xor", operand, axes)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Array:
    """The position of the first maximum along an axis; of the first NaN, if there is one.

    >>> import numpy as np
    >>> from rlx import lax
    >>> lax.argmax(np.array([1, 5, 5]), 0, "int32").item()
    1
    """
    return _position(reduction.argmax, operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Array:
    """The position of the first minimum along an axis; of the first NaN, if there is one.

    Args: operand: real numbers; axis; index_dtype: the integer dtype of the result.
    Returns: an array of operand's shape without the axis.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.argmin(jnp.array([[3, 1, 2], [0, 5, 0]]), 1, jnp.int32).tolist()
    [1, 0]
    """
    return _position(reduction.argmin, operand, axis, index_dtype)


def _position(primitive: Any, operand: Any, axis: int, index_dtype: Any) -> Array:
    x, dtype = as_array(operand), as_dtype(index_dtype)
    if not is_integer(dtype):
        raise DtypeError(f"lax.{primitive.name} got index_dtype={dtype.name}.", "Positions are integers.")
    return primitive(x, axis=canonical_axis(primitive.name, axis, x.ndim), index_dtype=dtype)


# ------------------------------------------------------------- any monoid
def monoid_of(computation: Callable[..., Any], dtype: np.dtype, treedef: Any) -> str | None:
    """The name of the primitive of a computation of two (trees of one) scalars, if it is one known monoid."""

    def flat(*scalars: Any) -> list[Any]:
        leaves, out_tree = tree.flatten(computation(*(tree.unflatten(treedef, [x]) for x in scalars)))
        return leaves if out_tree == treedef else []

    scalar = TensorType((), dtype)
    program, captured = trace_program(flat, [scalar, scalar])
    if captured or len(program.equations) != 1 or len(program.outputs) != 1:
        return None
    (equation,) = program.equations
    if equation.outputs != program.outputs or set(equation.inputs) != set(program.inputs):
        return None
    return equation.primitive.name if equation.primitive.name in _MONOIDS else None


def is_identity(value: Any, monoid: str, dtype: np.dtype) -> bool:
    """Whether an initial value is known, and the monoid's identity."""
    known = _known(value)
    return known is not None and bool(known == np.asarray(neutral(_MONOIDS[monoid].reducer, dtype)).astype(dtype))


def _known(value: Any) -> np.ndarray | None:
    atom = getattr(value, "atom", None)
    if atom is not None:
        return atom.value if isinstance(atom, Literal) else None
    return value.numpy()


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:
    """Reduce an array, or a tree of arrays together, by an associative function of scalars.

    `computation(accumulator, element)` returns the new accumulator (trees for trees). Sums, products,
    extrema and bitwise functions are recognised; other computations run element by element.

    >>> from rlx import lax
    >>> lax.reduce(lax.iota("float32", 4), 0.0, lax.add, (0,)).item()
    6.0
    """
    leaves, treedef = tree.flatten(operands)
    inits, init_tree = tree.flatten(init_values)
    if treedef != init_tree or not leaves:
        raise ShapeError(
            f"lax.reduce got operands of structure {treedef} and initial values of {init_tree}.",
            "Give one initial value for each operand.",
        )
    arrays = [as_array(x) for x in leaves]
    axes = canonical_axes("reduce", dimensions, arrays[0].ndim)
    starts = [initial(i, x) for i, x in zip(inits, arrays, strict=True)]
    if len(arrays) == 1:
        monoid = monoid_of(computation, arrays[0].dtype, treedef)
        if monoid is not None:
            reduced = _reduce_monoid(monoid, arrays[0], starts[0], axes)
            return tree.unflatten(treedef, [_as_weak_as(reduced, arrays[0], inits[0])])
    program = scalar_program("reduce", computation, arrays, treedef)
    results = reduce_by(program, arrays, starts, axes)
    return tree.unflatten(treedef, [_as_weak_as(r, x, i) for r, x, i in zip(results, arrays, inits, strict=True)])


def _as_weak_as(result: Array, x: Array, start: Any) -> Array:
    """A result of x's dtype, weak if both the array and the initial value are."""
    weak = x.weak_type and as_array(yielding(start)).weak_type
    return result if result.weak_type == weak else convert(result, dtype=result.dtype, weak=weak)


def reduce_by(
    program: Program, arrays: Sequence[Array], starts: Sequence[Array], axes: tuple[int, ...]
) -> Sequence[Any]:
    """Arrays reduced together by a program of scalars; derivatives go through a tree of its combinations."""

    def direct(*values: Any) -> tuple[Any, ...]:
        return tuple(reduction.reduce(*values, computation=program, axes=axes))

    if not any(is_inexact(x.dtype) for x in arrays):
        return direct(*arrays, *starts)
    ruled = custom_jvp(direct)

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        zeros = [full_like(t.type, 0) if isinstance(t, Zero) else t for t in tangents]
        return jvp(lambda *values: _combined(program, values, axes), tuple(primals), tuple(zeros))

    ruled.defjvp(rule, symbolic_zeros=True)
    return ruled(*arrays, *starts)


def _combined(program: Program, values: Sequence[Any], axes: tuple[int, ...]) -> tuple[Any, ...]:
    """The reduction as a tree of combinations of whole arrays."""
    count = len(values) // 2
    arrays, starts = values[:count], values[count:]
    shape = arrays[0].shape
    kept = [a for a in range(len(shape)) if a not in axes]
    size = math.prod(shape[a] for a in axes)
    rest = tuple(shape[a] for a in kept)
    rows = [reshape(transpose(x, (*axes, *kept)), (size, *rest)) for x in arrays]
    while size > 1:  # neighbours, so that elements keep their order
        half = size // 2
        left = [slice_in_dim(x, 0, 2 * half, 2) for x in rows]
        right = [slice_in_dim(x, 1, 2 * half, 2) for x in rows]
        paired = interpret(program, [*left, *right])
        last = [slice_in_dim(x, 2 * half, size) for x in rows]
        rows = [concatenate([p, x], 0) for p, x in zip(paired, last, strict=True)] if size % 2 else paired
        size -= half
    result = [broadcast_in_dim(s, rest, ()) for s in starts]
    if not size:
        return tuple(result)
    return tuple(interpret(program, [*result, *(index_in_dim(x, 0, keepdims=False) for x in rows)]))


def initial(value: Any, x: Array) -> Array:
    """An initial value as a scalar of x's dtype."""
    start = as_array(yielding(value))
    if start.shape != () or (start.dtype != x.dtype and not start.weak_type):
        raise DtypeError(
            f"lax.reduce got an operand {x.type!r} and an initial value {start.type!r}.",
            "The initial value must be a scalar of the operand's dtype.",
        )
    return scalar_of(value, x.dtype)


def _reduce_monoid(monoid: str, x: Array, start: Array, axes: tuple[int, ...]) -> Array:
    reduced = _MONOIDS[monoid](x, axes=axes) if axes else x
    return reduced if is_identity(start, monoid, x.dtype) else registry[monoid](start, reduced)


def scalar_program(name: str, computation: Callable[..., Any], arrays: Sequence[Array], treedef: Any) -> Program:
    """A computation on trees of scalars as a program of the elements of `arrays`."""
    types = [TensorType((), x.dtype) for x in arrays]
    count = len(types)

    def flat(*scalars: Any) -> list[Any]:
        first, second = scalars[:count], scalars[count:]
        out = computation(tree.unflatten(treedef, first), tree.unflatten(treedef, second))
        found, out_tree = tree.flatten(out)
        if out_tree != treedef:
            raise ShapeError(
                f"lax.{name}'s computation returned a result of structure {out_tree}.",
                f"It must take and return trees of structure {treedef}.",
            )
        return [as_array(v) for v in found]

    program, captured = trace_program(flat, [*types, *types], None, name)
    if captured:
        raise ShapeError(
            f"lax.{name}'s computation uses an array from outside.",
            "It may use only its two arguments and numbers.",
        )
    return program


# ------------------------------------------------------------- cumulative
def _cumulated(primitive: Any, operand: Any, axis: int, reverse: bool) -> Array:
    x = as_array(operand)
    if x.dtype.kind == "b":
        raise DtypeError(f"lax.{primitive.name} got a bool array.", "Convert it with .astype(int).")
    return primitive(x, axis=canonical_axis(primitive.name, axis, x.ndim), reverse=bool(reverse))


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """The running sum along an axis, from its end if `reverse`.

    >>> from rlx import lax
    >>> lax.cumsum(lax.iota("int32", 4)).tolist()
    [0, 1, 3, 6]
    """
    return _cumulated(cumulative.cumsum, operand, axis, reverse)


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """The running product along an axis.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.cumprod(jnp.array([2, 3, 4]), reverse=True).tolist()
    [24, 12, 4]
    """
    return _cumulated(cumulative.cumprod, operand, axis, reverse)


def cummax(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """The running maximum along an axis.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.cummax(jnp.array([2, 1, 3])).tolist()
    [2, 2, 3]
    """
    return _cumulated(cumulative.cummax, operand, axis, reverse)


def cummin(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """The running minimum along an axis.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.cummin(jnp.array([2, 1, 3])).tolist()
    [2, 1, 1]
    """
    return _cumulated(cumulative.cummin, operand, axis, reverse)


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """The running log(sum(exp(x))) along an axis.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> print(lax.cumlogsumexp(jnp.zeros(3)).round(4))
    [0.     0.6931 1.0986]
    """
    return _cumulated(cumulative.cumlogsumexp, operand, axis, reverse)
