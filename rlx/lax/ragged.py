"""Products with one axis cut into groups of computed sizes, as in mixtures of experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.types import is_integer
from rlx.lax.operands import as_array, canonical_axis
from rlx.lax.product import dot_general
from rlx.lax.reduction import cumsum
from rlx.lax.shape import broadcast_in_dim, broadcasted_iota, convert_element_type, expand_dims, transpose
from rlx.ops.arithmetic import subtract
from rlx.ops.comparison import bitwise_and, greater_equal, less
from rlx.ops.conversion import select
from rlx.ops.families import broadcast_to, full_like

__all__ = ["RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general"]


class RaggedDotDimensionNumbers(NamedTuple):
    """Axes of ragged_dot_general: the axes of dot_general, lhs's axis that is cut, rhs's axis of groups.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> products = (((1,), (1,)), ((), ()))
    >>> numbers = lax.RaggedDotDimensionNumbers(products, lhs_ragged_dimensions=[0], rhs_group_dimensions=[0])
    >>> rows, weights = jnp.ones((3, 2)), jnp.stack([jnp.ones((2, 1)), 10 * jnp.ones((2, 1))])
    >>> lax.ragged_dot_general(rows, weights, jnp.array([1, 2]), numbers).tolist()
    [[2.0], [20.0], [20.0]]
    """

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]


_MATRICES = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Each group of lhs's rows times its own matrix.

    Args:
      lhs: (m, k); the first group_sizes[0] rows are group 0, the next group_sizes[1] group 1, and so on.
      rhs: (groups, k, n), a matrix for each group.
      group_sizes: (groups,) integers. Rows after the last group give zeros.
      precision, preferred_element_type: as for dot_general.

    Returns: (m, n).

    >>> import numpy as np
    >>> from rlx import lax
    >>> rows, matrices = np.ones((3, 1), np.float32), np.array([[[1.0]], [[10.0]]], np.float32)
    >>> lax.ragged_dot(rows, matrices, np.array([2, 1])).tolist()
    [[1.0], [1.0], [10.0]]
    """
    return ragged_dot_general(
        lhs, rhs, group_sizes, _MATRICES, precision, preferred_element_type, group_offset, out_sharding
    )


def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Array:
    """dot_general with one axis of lhs cut into groups.

    The cut axis determines the result: a free axis multiplies each group with its own part of
    rhs (along rhs_group_dimensions); a contracting axis sums each group separately, along a new
    leading axis of the result; a batch axis changes nothing.

    Args:
      group_sizes: integers (..., groups); leading axes, if there are any, are lhs's batch axes and the
        axes before the cut one in the same role.
      ragged_dot_dimension_numbers: see RaggedDotDimensionNumbers.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> products = (((0,), (0,)), ((), ()))
    >>> numbers = lax.RaggedDotDimensionNumbers(products, lhs_ragged_dimensions=[0], rhs_group_dimensions=[])
    >>> lax.ragged_dot_general(jnp.ones((3, 1)), jnp.ones((3, 1)), jnp.array([1, 2]), numbers).tolist()
    [[[1.0]], [[2.0]]]
    """
    if group_offset is not None:
        raise UnsupportedError("lax.ragged_dot got a group_offset.", "Leave it out: all groups are present.")
    x, y, sizes = as_array(lhs), as_array(rhs), as_array(group_sizes)
    numbers, ragged, groups = ragged_dot_dimension_numbers
    (contracting, others), (batch, rhs_batch) = numbers
    if len(ragged) != 1 or not is_integer(sizes.dtype) or sizes.ndim < 1:
        raise ShapeError(
            f"lax.ragged_dot got lhs_ragged_dimensions={tuple(ragged)} and group sizes {sizes.type!r}.",
            "One axis of lhs must be cut, and group sizes must be integers (..., groups).",
        )
    (axis,) = ragged
    options = (precision, preferred_element_type)
    if not 0 <= axis < x.ndim or (groups and (axis in batch or axis in contracting)):
        raise ShapeError(
            f"lax.ragged_dot got lhs_ragged_dimensions={tuple(ragged)} and rhs_group_dimensions={tuple(groups)} for"
            f" {x.type!r} and {y.type!r}.",
            "rhs may have an axis of groups only if a free axis of lhs is cut.",
        )
    free = [a for a in range(x.ndim) if a not in contracting and a not in batch]
    role = list(batch if axis in batch else contracting if axis in contracting else free)
    before = role[: role.index(axis)] if axis in batch else [*batch, *role[: role.index(axis)]]
    _check_sizes(x, sizes, before)
    if axis in batch:
        return dot_general(x, y, numbers, *options)
    parts = _parts(x, sizes, axis, before)
    lead = ([a + 1 for a in contracting], [a + 1 for a in batch])
    if axis in contracting:
        product = dot_general(parts, y, ((lead[0], others), (lead[1], rhs_batch)), *options)
        at = len(batch)
        return transpose(product, (at, *(a for a in range(product.ndim) if a != at)))
    grouped = [canonical_axis("ragged_dot", a, y.ndim) for a in groups]
    if len(grouped) != 1 or grouped[0] in (*others, *rhs_batch) or y.shape[grouped[0]] != sizes.shape[-1]:
        raise ShapeError(
            f"lax.ragged_dot got {y.type!r} with group axes {tuple(groups)} for {sizes.shape[-1]} groups.",
            "One free axis of rhs must have the size of the number of groups.",
        )
    return dot_general(parts, y, (([0, *lead[0]], [*grouped, *others]), (lead[1], rhs_batch)), *options)


def _check_sizes(x: Array, sizes: Array, before: Sequence[int]) -> None:
    lead = tuple(x.shape[a] for a in before)
    if sizes.ndim != 1 and sizes.shape[:-1] != lead:
        raise ShapeError(
            f"lax.ragged_dot got group sizes of shape {sizes.shape}.",
            f"They must have one axis, or axes {lead} before it.",
        )


def _parts(x: Array, sizes: Array, axis: int, before: Sequence[int]) -> Array:
    """(groups, *x.shape): x, zero outside of each group."""
    sizes = convert_element_type(sizes, np.int32 if x.shape[axis] < 2**31 else np.int64)
    ends = cumsum(sizes, sizes.ndim - 1)
    shape = (sizes.shape[-1], *x.shape)
    if sizes.ndim > 1:  # groups to the front, then x's axes in order
        order = sorted(range(len(before)), key=lambda i: before[i])
        ends, sizes = (transpose(v, (len(before), *order)) for v in (ends, sizes))
    dims = (0,) if sizes.ndim == 1 else (0, *(a + 1 for a in sorted(before)))
    low, high = (broadcast_in_dim(b, shape, dims) for b in (subtract(ends, sizes), ends))
    position = broadcasted_iota(sizes.dtype, shape, axis + 1)
    inside = bitwise_and(greater_equal(position, low), less(position, high))
    spread = broadcast_to(expand_dims(x, (0,)), shape)
    return select(inside, spread, full_like(spread.type.strong(), 0))
