"""Products of arrays: matmul, dot, tensordot and related functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.numpy.elementwise import multiply
from rlx.numpy.floats import conj
from rlx.numpy.manipulation import moveaxis, ravel, reshape
from rlx.numpy.placement import asks_for_parts, check_placement, refuse_out, sums_in_parts
from rlx.numpy.promotion import canonical_axes, canonical_axis, convert_to, promote, shared, to_dtype
from rlx.ops import shape as shapes
from rlx.ops.precision import product
from rlx.trace.replay import replayed, replayed_in_traces

__all__ = [
    "cross",
    "dot",
    "inner",
    "kron",
    "matmul",
    "matvec",
    "outer",
    "tensordot",
    "vdot",
    "vecdot",
    "vecmat",
]

Axes = tuple[int, ...]


def contract(
    x: Any,
    y: Any,
    contracting: tuple[Axes, Axes],
    batch: tuple[Axes, Axes] = ((), ()),
    precision: Any = None,
    preferred: Any = None,
    out_sharding: Any = None,
) -> Any:
    """dot_general of promoted operands, cast to the preferred dtype; only unreduced axes of out_sharding are used."""
    wanted = None if preferred is None else to_dtype(preferred)
    if asks_for_parts(out_sharding):
        in_parts = sums_in_parts().product_in_parts
        return in_parts("a product", x, y, (contracting, batch), precision, wanted, out_sharding)
    if wanted is not None and wanted.itemsize < x.dtype.itemsize:
        return convert_to(product(x, y, (contracting, batch), precision, None), wanted)
    return product(x, y, (contracting, batch), precision, wanted)


def _mismatch(name: str, x: Any, y: Any) -> ShapeError:
    return ShapeError(
        f"{name} got operands of shapes {x.shape} and {y.shape}, which do not fit.",
        "The contracted sizes must be equal: transpose or reshape one of the operands.",
    )


@replayed_in_traces
def matmul(
    a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Array:
    """The matrix product, over broadcast leading axes.

    Args: a, b: arrays of one axis or more; a 1-d one is a row (a) or a column (b) vector;
    precision: as for lax.dot_general; preferred_element_type: dtype of the result and the sums.
    Returns: an array. Raises: ShapeError if the shapes are incompatible.

    >>> import rlx.numpy as jnp
    >>> jnp.matmul(jnp.ones((2, 3)), jnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    check_placement(None, out_sharding)
    x, y = promote("matmul", shared(a), shared(b))
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError("matmul got a 0-d operand.", "Use * to multiply by a scalar.")
    row = max(y.ndim - 2, 0)
    if x.shape[-1] != y.shape[row]:
        raise _mismatch("matmul", x, y)
    if y.ndim <= 2 or x.ndim == 1:
        return contract(x, y, ((x.ndim - 1,), (row,)), ((), ()), precision, preferred_element_type, out_sharding)
    if asks_for_parts(out_sharding):
        return _matmul_in_parts(x, y, precision, preferred_element_type, out_sharding)
    return _batched_matmul(x, y, precision, preferred_element_type)


def _matmul_in_parts(x: Any, y: Any, precision: Any, preferred: Any, out_sharding: Any) -> Any:
    """matmul if devices have parts of the sum: the parts are leading axes, also of the operands."""
    rank = max(x.ndim, y.ndim)
    x, y = (reshape(v, (*[1] * (rank - v.ndim), *v.shape)) for v in (x, y))
    output = [("x", axis) for axis in range(rank - 1)] + [("y", axis) for axis in range(rank) if axis != rank - 2]
    summed = "sum", 0
    terms = [
        [*(("x", axis) for axis in range(rank - 1)), summed],
        [summed if axis == rank - 2 else ("y", axis) for axis in range(rank)],
    ]
    module = sums_in_parts()
    (x, y), _, sharding = module.split_in_parts("matmul", [x, y], terms, output, out_sharding)
    return module.of_parts("matmul", _batched_matmul(x, y, precision, preferred), sharding)


def _batched_matmul(x: Any, y: Any, precision: Any, preferred: Any) -> Any:
    """Leading axes of equal size are batch axes; an axis that is missing or 1 in one operand is left out of it."""
    rank = max(x.ndim, y.ndim) - 2
    left, right = _aligned(x, rank), _aligned(y, rank)
    batch, left_free, right_free, left_gone, right_gone = [], [], [], [], []
    for i, (n, m) in enumerate(zip(left, right, strict=True)):
        if n == m:
            batch.append(i)
        elif m is not None and n in (None, 1):
            right_free.append(i)
            left_gone += [i] if n == 1 else []
        elif m in (None, 1):
            left_free.append(i)
            right_gone += [i] if m == 1 else []
        else:
            raise _mismatch("matmul", x, y)
    x, left_axes = _without_axes(x, rank, left_gone)
    y, right_axes = _without_axes(y, rank, right_gone)
    batch_axes = tuple(left_axes[i] for i in batch), tuple(right_axes[i] for i in batch)
    result = contract(x, y, ((x.ndim - 1,), (y.ndim - 2,)), batch_axes, precision, preferred)
    produced = [*batch, *left_free, rank, *right_free, rank + 1]
    order = tuple(produced.index(i) for i in range(rank + 2))
    if order == tuple(range(rank + 2)):
        return result
    return shapes.transpose(result, permutation=order)


def _aligned(x: Any, rank: int) -> list[int | None]:
    """Sizes of the leading axes, None if an operand lacks the axis."""
    own = x.shape[:-2]
    return [None] * (rank - len(own)) + list(own)


def _without_axes(x: Any, rank: int, gone: list[int]) -> tuple[Any, dict[int, int]]:
    """x without some leading axes, and the new positions of the others."""
    lead = rank - (x.ndim - 2)
    kept = [i for i in range(lead, rank) if i not in gone]
    if gone:
        x = shapes.reshape(x, shape=tuple(x.shape[i - lead] for i in kept) + x.shape[-2:])
    return x, {axis: position for position, axis in enumerate(kept)}


@replayed_in_traces
def dot(
    a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Array:
    """The sum of products over the last axis of a and the second to last (or only) one of b.

    Args: a, b: arrays or numbers; preferred_element_type: dtype of the result.
    Returns: an array. Raises: ShapeError if the sizes differ.

    >>> import rlx.numpy as jnp
    >>> float(jnp.dot(jnp.ones(3), jnp.ones(3)))
    3.0
    """
    check_placement(None, out_sharding)
    x, y = promote("dot", shared(a), shared(b))
    if x.ndim == 0 or y.ndim == 0:
        result = multiply(x, y)
        return result if preferred_element_type is None else convert_to(result, to_dtype(preferred_element_type))
    row = max(y.ndim - 2, 0)
    if x.shape[-1] != y.shape[row]:
        raise _mismatch("dot", x, y)
    return contract(x, y, ((x.ndim - 1,), (row,)), ((), ()), precision, preferred_element_type, out_sharding)


@replayed
def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The sum of products over the last axes.

    Args: a, b: arrays or numbers. Returns: an array. Raises: ShapeError if the sizes differ.

    >>> import rlx.numpy as jnp
    >>> float(jnp.inner(jnp.ones(2), jnp.array([3.0, 4.0])))
    7.0
    """
    x, y = promote("inner", a, b)
    if x.ndim == 0 or y.ndim == 0:
        return multiply(x, y)
    if x.shape[-1] != y.shape[-1]:
        raise _mismatch("inner", x, y)
    return contract(x, y, ((x.ndim - 1,), (y.ndim - 1,)), precision=precision, preferred=preferred_element_type)


@replayed
def outer(a: Any, b: Any, out: None = None) -> Array:
    """All products of elements of a with elements of b.

    Args: a, b: arrays, made 1-d. Returns: a 2-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.outer(jnp.arange(2), jnp.arange(3))
    Array([[0, 0, 0],
           [0, 1, 2]], dtype=int32)
    """
    refuse_out("outer", out)
    x, y = promote("outer", a, b)
    return multiply(reshape(x, (x.size, 1)), reshape(y, (1, y.size)))


@replayed
def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The sum of products of all elements, the first operand conjugated.

    Args: a, b: arrays of equal size. Returns: a 0-d array. Raises: ShapeError if the sizes differ.

    >>> import rlx.numpy as jnp
    >>> complex(jnp.vdot(jnp.array([1j]), jnp.array([1j])))
    (1+0j)
    """
    return dot(ravel(conj(a)), ravel(b), precision=precision, preferred_element_type=preferred_element_type)


@replayed
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """Products of vectors along an axis, the first conjugated, over the broadcast others.

    Args: x1, x2: arrays; axis. Returns: an array. Raises: ShapeError if the sizes differ.

    >>> import rlx.numpy as jnp
    >>> jnp.vecdot(jnp.ones((2, 3)), jnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    x, y = promote("vecdot", x1, x2)
    x, y = [moveaxis(v, canonical_axis(axis, v.ndim, "vecdot"), -1) for v in (conj(x), y)]
    if x.shape[-1] != y.shape[-1]:
        raise _mismatch("vecdot", x, y)
    result = matmul(
        reshape(x, (*x.shape[:-1], 1, x.shape[-1])),
        reshape(y, (*y.shape, 1)),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    return shapes.reshape(result, shape=result.shape[:-2])


@replayed
def matvec(x1: Any, x2: Any, /) -> Array:
    """Matrices times vectors, over broadcast leading axes.

    Args: x1: (..., n, m); x2: (..., m). Returns: (..., n). Raises: ShapeError.

    >>> import rlx.numpy as jnp
    >>> jnp.matvec(jnp.eye(2), jnp.ones((3, 2))).shape
    (3, 2)
    """
    x, y = promote("matvec", x1, x2)
    result = matmul(x, reshape(y, (*y.shape, 1)))
    return shapes.reshape(result, shape=result.shape[:-1])


@replayed
def vecmat(x1: Any, x2: Any, /) -> Array:
    """Conjugated vectors times matrices, over broadcast leading axes.

    Args: x1: (..., n); x2: (..., n, m). Returns: (..., m). Raises: ShapeError.

    >>> import rlx.numpy as jnp
    >>> jnp.vecmat(jnp.ones((3, 2)), jnp.eye(2)).shape
    (3, 2)
    """
    x, y = promote("vecmat", x1, x2)
    result = matmul(reshape(conj(x), (*x.shape[:-1], 1, x.shape[-1])), y)
    return shapes.reshape(result, shape=(*result.shape[:-2], result.shape[-1]))


@replayed
def tensordot(
    a: Any,
    b: Any,
    axes: Any = 2,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The sum of products over given axes.

    Args: a, b: arrays; axes: a number (last ones of a with first ones of b), or a pair of axes lists.
    Returns: an array: free axes of a, then of b. Raises: ShapeError if the axes are incompatible.

    >>> import rlx.numpy as jnp
    >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    check_placement(None, out_sharding)
    x, y = promote("tensordot", shared(a), shared(b))
    if isinstance(axes, (int, np.integer)):
        if axes > min(x.ndim, y.ndim) or axes < 0:
            raise ShapeError(f"tensordot got axes={axes} for {x.ndim} and {y.ndim} axes.", "")
        left, right = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    else:
        left = canonical_axes(axes[0], x.ndim, "tensordot")
        right = canonical_axes(axes[1], y.ndim, "tensordot")
    if [x.shape[i] for i in left] != [y.shape[i] for i in right]:
        raise _mismatch("tensordot", x, y)
    return contract(x, y, (left, right), ((), ()), precision, preferred_element_type, out_sharding)


@replayed
def kron(a: Any, b: Any) -> Array:
    """The Kronecker product.

    Args: a, b: arrays. Returns: an array whose sizes are the products of theirs.

    >>> import rlx.numpy as jnp
    >>> jnp.kron(jnp.array([1, 2]), jnp.array([1, 1]))
    Array([1, 1, 2, 2], dtype=int32)
    """
    x, y = promote("kron", a, b)
    rank = max(x.ndim, y.ndim)
    left, right = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - y.ndim) + y.shape
    spread = reshape(x, tuple(n for size in left for n in (size, 1)))
    other = reshape(y, tuple(n for size in right for n in (1, size)))
    return reshape(multiply(spread, other), tuple(n * m for n, m in zip(left, right, strict=True)))


@replayed
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Array:
    """The vector product of vectors of two or three components.

    Args: a, b: arrays; axisa, axisb, axisc: axes of the components in a, b and the result;
    axis: all three at once. Returns: an array, without component axis if all have two.
    Raises: ShapeError for other numbers of components.

    >>> import rlx.numpy as jnp
    >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promote("cross", a, b)
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    sizes = x.shape[-1], y.shape[-1]
    if not set(sizes) <= {2, 3}:
        raise ShapeError(f"cross got vectors of {sizes} components.", "They need 2 or 3.")
    left, right = [_components(v) for v in (x, y)]

    def minor(i: int, j: int) -> Any:
        first = _product(left[i], right[j])
        second = _product(left[j], right[i])
        if first is None or second is None:
            return first if second is None else -second
        return first - second

    last = minor(0, 1)
    if sizes == (2, 2):
        return last
    parts = [minor(1, 2), minor(2, 0), last]
    stacked = shapes.concatenate(*[reshape(p, (*p.shape, 1)) for p in parts], axis=last.ndim)
    return moveaxis(stacked, -1, axisc)


def _components(x: Any) -> list[Any]:
    """Components of vectors; the third is None if there are two."""
    parts = [shapes.squeeze(p, (x.ndim - 1,)) for p in shapes.split(x, (1,) * x.shape[-1], x.ndim - 1)]
    return parts if len(parts) == 3 else [*parts, None]


def _product(x: Any, y: Any) -> Any:
    return None if x is None or y is None else multiply(x, y)
