"""Indexing with computed positions: gather, scatter, dynamic slices."""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.array import Array, is_concrete, wrap
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.types import dtype_kind, is_integer
from rlx.lax.operands import as_array, canonical_axis, canonical_shape, scalar_of
from rlx.lax.shape import concatenate, expand_dims, full, index_in_dim, squeeze
from rlx.numpy.index_dtypes import holding
from rlx.numpy.promotion import beside_arrays
from rlx.ops import indexing
from rlx.ops.arithmetic import add, negative
from rlx.ops.comparison import less
from rlx.ops.conversion import convert, select
from rlx.ops.indexing import GatherDimensionNumbers, ScatterDimensionNumbers

__all__ = [
    "GatherDimensionNumbers",
    "GatherScatterMode",
    "ScatterDimensionNumbers",
    "dynamic_index_in_dim",
    "dynamic_slice",
    "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim",
    "dynamic_update_slice",
    "dynamic_update_slice_in_dim",
    "gather",
    "index_take",
    "scatter",
    "scatter_add",
    "scatter_apply",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_sub",
]


class GatherScatterMode(enum.Enum):
    """The handling of windows that are partly out of bounds.

    CLIP moves them back inside; FILL_OR_DROP reads a fill value, or drops the update;
    PROMISE_IN_BOUNDS promises that there are none: if there are, they are read inside, and dropped from updates
    and derivatives.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    >>> x, index = jnp.array([1, 2, 3]), jnp.array([[7]])
    >>> lax.gather(x, index, numbers, (1,), mode=lax.GatherScatterMode.CLIP).tolist()
    [3]
    >>> lax.gather(x, index, numbers, (1,), mode=lax.GatherScatterMode.FILL_OR_DROP, fill_value=0).tolist()
    [0]
    """

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @staticmethod
    def from_any(mode: str | GatherScatterMode | None) -> GatherScatterMode:
        """The mode of that name; FILL_OR_DROP for None."""
        if isinstance(mode, GatherScatterMode):
            return mode
        if mode is None or mode == "drop":
            return GatherScatterMode.FILL_OR_DROP
        try:
            return GatherScatterMode(mode)
        except ValueError:
            raise UnsupportedError(
                f"There is no gather or scatter mode {mode!r}.",
                "Use 'clip', 'fill' (or 'drop'), or 'promise_in_bounds'.",
            ) from None


# ------------------------------------------------------------- gather, scatter
def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Array:
    """Slices of the operand at computed starts, as XLA's Gather.

    `operand[indices]` of rlx.numpy arrays is a simpler notation.

    Args:
      operand: the array that is read.
      start_indices: integers; the last axis holds the components of one index.
      dimension_numbers: which axes belong together.
      slice_sizes: the size of a slice along each axis of the operand.
      mode: the handling of reads out of bounds, see GatherScatterMode; None is PROMISE_IN_BOUNDS.
      fill_value: the value that FILL_OR_DROP reads out of bounds; by default NaN, or an extreme integer.

    Returns: an array of the indices' shape without its last axis, and the slices' axes at offset_dims.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(jnp.array([[1, 2], [3, 4]]), jnp.array([[1], [1]]), numbers, (1, 2)).tolist()
    [[3, 4], [3, 4]]
    """
    return indexing.gather(
        as_array(operand),
        _indices("gather", start_indices),
        dimension_numbers=_numbers(GatherDimensionNumbers, dimension_numbers),
        slice_sizes=canonical_shape(slice_sizes),
        mode=(GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)).value,
        fill_value=None if fill_value is None else np.asarray(fill_value).item(),
    )


def index_take(src: Any, idxs: Any, axes: Sequence[int]) -> Array:
    """src indexed along some axes by vectors of positions, which are read in parallel.

    Args:
      src: an array. idxs: a vector of integers for each of `axes`, all of one size.

    Returns: an array with an axis for the positions in front, and src's other axes.

    >>> import numpy as np
    >>> from rlx import lax
    >>> x = lax.reshape(lax.iota("int32", 6), (2, 3))
    >>> lax.index_take(x, (np.array([0, 1]), np.array([2, 0])), (0, 1)).tolist()
    [2, 3]
    """
    x = as_array(src)
    taken = tuple(canonical_axis("index_take", a, x.ndim) for a in axes)
    columns = [expand_dims(_indices("index_take", i), (1,)) for i in idxs]
    numbers = GatherDimensionNumbers(tuple(range(1, x.ndim - len(taken) + 1)), taken, taken)
    sizes = tuple(1 if a in taken else d for a, d in enumerate(x.shape))
    return gather(x, concatenate(columns, 1), numbers, sizes, mode=GatherScatterMode.CLIP)


def _indices(name: str, indices: Any) -> Array:
    found = as_array(indices)
    if not is_integer(found.dtype):
        raise DtypeError(f"lax.{name} got indices of dtype {found.dtype.name}.", "Indices must be integers.")
    return found


def _numbers(kind: Any, numbers: Any) -> Any:
    """Dimension numbers with tuples in every field."""
    names = (field.name for field in dataclasses.fields(kind))
    return kind(**{name: tuple(operator.index(a) for a in getattr(numbers, name)) for name in names})


def _scattered(
    primitive: Any,
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    mode: str | GatherScatterMode | None,
    unique_indices: bool,
    indices_are_sorted: bool,
) -> Array:
    x, values = as_array(operand), as_array(updates)
    if values.dtype != x.dtype:
        if not values.weak_type:
            raise DtypeError(
                f"lax.{primitive.name} got {x.type!r} and updates {values.type!r}.",
                "Convert the updates with .astype(...).",
            )
        values = convert(values, dtype=x.dtype, weak=False)
    return primitive(
        x,
        _indices(primitive.name, scatter_indices),
        values,
        dimension_numbers=_numbers(ScatterDimensionNumbers, dimension_numbers),
        mode=GatherScatterMode.from_any(mode).value,
        unique_indices=bool(unique_indices),
        indices_are_sorted=bool(indices_are_sorted),
    )


def _scatter(name: str, primitive: Any, summary: str, sign: int = 1) -> Callable[..., Array]:
    """A function that writes updates to windows of an operand in one way."""

    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Array:
        values = updates if sign > 0 else negative(as_array(updates))
        flags = (mode, unique_indices, indices_are_sorted)
        return _scattered(primitive, operand, scatter_indices, values, dimension_numbers, *flags)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{summary}

    Args:
      operand: an array.
      scatter_indices: integers; the last axis holds the components of one index.
      updates: an array of the operand's dtype: windows, one for each index.
      dimension_numbers: which axes belong together, as in XLA's Scatter.
      indices_are_sorted, unique_indices: promises that may make the operation faster.
      mode: the handling of windows out of bounds, see GatherScatterMode; None drops them.

    Returns: an array like the operand.

    >>> import numpy as np
    >>> from rlx import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.{name}(np.array([1, 2, 3]), np.array([[1]]), np.array([5]), numbers).tolist()
    {_SCATTERED[name]}
    """
    return function


_SCATTERED = {
    "scatter": [1, 5, 3],
    "scatter_add": [1, 7, 3],
    "scatter_sub": [1, -3, 3],
    "scatter_mul": [1, 10, 3],
    "scatter_min": [1, 2, 3],
    "scatter_max": [1, 5, 3],
}
scatter = _scatter(
    "scatter",
    indexing.scatter,
    "The operand with windows replaced by updates; if several write one element, the last one counts.",
)
scatter_add = _scatter("scatter_add", indexing.scatter_add, "The operand with updates added to windows.")
scatter_sub = _scatter("scatter_sub", indexing.scatter_add, "The operand with updates subtracted from windows.", -1)
scatter_mul = _scatter("scatter_mul", indexing.scatter_mul, "The operand with windows multiplied by updates.")
scatter_min = _scatter(
    "scatter_min", indexing.scatter_min, "The operand with windows lowered to updates where those are smaller."
)
scatter_max = _scatter(
    "scatter_max", indexing.scatter_max, "The operand with windows raised to updates where those are larger."
)


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """The operand with an elementwise function applied to windows (once to each element).

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = jnp.array([1.0, 2.0, 3.0])
    >>> lax.scatter_apply(x, jnp.array([[1]]), lambda x: -x, numbers, update_shape=(1,)).tolist()
    [1.0, -2.0, 3.0]
    """
    x = as_array(operand)
    touched = scatter(
        full(x.shape, False),
        scatter_indices,
        full(canonical_shape(update_shape), True),
        dimension_numbers,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        mode=mode,
    )
    return select(touched, func(x), x)


# ------------------------------------------------------------- dynamic slices
def _starts(name: str, starts: Any, shape: Sequence[int], negative: bool | Sequence[bool]) -> list[Any]:
    """One start for each axis; negative ones count from the end if that is allowed."""
    if isinstance(starts, (tuple, list)):
        found = [_indices(name, s) for s in starts]
    else:
        vector = _indices(name, starts)
        if vector.ndim != 1:
            raise ShapeError(
                f"lax.{name} got start indices of shape {vector.shape}.",
                "Pass a sequence of scalars, or a vector, with one start for each axis.",
            )
        found = [index_in_dim(vector, i, keepdims=False) for i in range(vector.shape[0])]
    strong = {s.dtype.name for s in found if not s.weak_type}
    if len(strong) > 1:
        raise DtypeError(f"lax.{name} got start indices of dtypes {', '.join(sorted(strong))}.", "Use one dtype.")
    if len(found) != len(shape):
        raise ShapeError(
            f"lax.{name} got {len(found)} start indices for an array of {len(shape)} dimensions.",
            "Pass one start for each axis.",
        )
    allowed = [negative] * len(shape) if isinstance(negative, bool) else list(negative)
    return [_from_end(s, size) if allow else s for s, size, allow in zip(found, shape, allowed, strict=True)]


def _from_end(start: Array, size: int) -> Any:
    if dtype_kind(start.dtype) == "u":
        return start
    if is_concrete(start):
        position = int(start.numpy())
        return start if position >= 0 else wrap(np.asarray(position + size, np.int64))
    start = holding(start, size)
    return select(less(start, 0), add(start, size), start)


def dynamic_slice(
    operand: Any,
    start_indices: Any,
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """A slice of constant size at a computed start, moved back inside if it is out of bounds.

    >>> from rlx import lax
    >>> lax.dynamic_slice(lax.iota("int32", 5), (3,), (2,)).tolist()
    [3, 4]
    """
    x = as_array(operand)
    starts = _starts("dynamic_slice", start_indices, x.shape, allow_negative_indices)
    return indexing.dynamic_slice(x, *starts, sizes=canonical_shape(slice_sizes))


def dynamic_update_slice(
    operand: Any,
    update: Any,
    start_indices: Any,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The operand with the slice at a computed start replaced by `update`.

    >>> import numpy as np
    >>> from rlx import lax
    >>> lax.dynamic_update_slice(lax.iota("int32", 4), np.array([9, 9], np.int32), (1,)).tolist()
    [0, 9, 9, 3]
    """
    x = as_array(operand)
    value = as_array(beside_arrays(x, update)[1])
    if value.dtype != x.dtype and value.weak_type:
        value = convert(value, dtype=x.dtype, weak=False)
    starts = _starts("dynamic_update_slice", start_indices, x.shape, allow_negative_indices)
    return indexing.dynamic_update_slice(x, value, *starts)


def _along(name: str, index: Any, axis: int, ndim: int) -> list[Any]:
    """Starts that are zero on every axis but one."""
    start = _indices(name, index)
    return [start if i == axis else scalar_of(0, start.dtype) for i in range(ndim)]


def dynamic_slice_in_dim(
    operand: Any,
    start_index: Any,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """A slice along one axis at a computed start.

    A start that is too close to the end for the slice is moved back; negative ones count from the end.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> [lax.dynamic_slice_in_dim(jnp.arange(5), start, 2).tolist() for start in (1, 9, -2)]
    [[1, 2], [3, 4], [3, 4]]
    """
    x = as_array(operand)
    axis = canonical_axis("dynamic_slice_in_dim", axis, x.ndim)
    starts = _along("dynamic_slice_in_dim", start_index, axis, x.ndim)
    sizes = [int(slice_size) if i == axis else d for i, d in enumerate(x.shape)]
    allowed = [allow_negative_indices and i == axis for i in range(x.ndim)]
    return dynamic_slice(x, starts, sizes, allow_negative_indices=allowed)


def dynamic_index_in_dim(
    operand: Any,
    index: Any,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """operand[index] along one axis, for a computed index.

    >>> from rlx import lax
    >>> lax.dynamic_index_in_dim(lax.iota("int32", 4), 2, keepdims=False).item()
    2
    """
    row = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return row if keepdims else squeeze(row, (axis,))


def dynamic_update_slice_in_dim(
    operand: Any,
    update: Any,
    start_index: Any,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """The operand with a slice along one axis replaced.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.dynamic_update_slice_in_dim(jnp.arange(5), jnp.array([7, 8]), 1, 0).tolist()
    [0, 7, 8, 3, 4]
    """
    x = as_array(operand)
    axis = canonical_axis("dynamic_update_slice_in_dim", axis, x.ndim)
    starts = _along("dynamic_update_slice_in_dim", start_index, axis, x.ndim)
    allowed = [allow_negative_indices and i == axis for i in range(x.ndim)]
    return dynamic_update_slice(x, update, starts, allow_negative_indices=allowed)


def dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """The operand with operand[index] along one axis replaced; `update` has that axis of size 1, or not.

    >>> from rlx import lax
    >>> lax.dynamic_update_index_in_dim(lax.iota("int32", 3), 9, 1, 0).tolist()
    [0, 9, 2]
    """
    x = as_array(operand)
    value = as_array(beside_arrays(x, update)[1])
    axis = canonical_axis("dynamic_update_index_in_dim", axis, x.ndim)
    if value.ndim != x.ndim:
        value = expand_dims(value, (axis,))
    return dynamic_update_slice_in_dim(x, value, index, axis, allow_negative_indices=allow_negative_indices)
