"""Joining and splitting: concatenate, stack, split and related functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import Array, is_array, is_array_or_numpy
from rlx.errors import InputTypeError, ShapeError, describe
from rlx.numpy.documentation import alias
from rlx.numpy.manipulation import atleast_1d, atleast_2d, atleast_3d, expand_dims, ravel
from rlx.numpy.operators import unstacked
from rlx.numpy.placement import refuse_out
from rlx.numpy.promotion import (
    beside_arrays,
    canonical_axis,
    convert_to,
    known_numpy,
    operand,
    promote,
    to_dtype,
)
from rlx.ops import shape as shapes
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed
from rlx.trees.tree import leaves

__all__ = [
    "append",
    "array_split",
    "block",
    "column_stack",
    "concat",
    "concatenate",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "row_stack",
    "split",
    "stack",
    "unstack",
    "vsplit",
    "vstack",
]


def _parts(name: str, arrays: Any, option: Any = None) -> list[Any]:
    """The arrays of a sequence, or the rows of an array; `option`: the next argument of the call."""
    if is_array_or_numpy(option) and option.ndim:  # arrays side by side
        raise InputTypeError(
            f"{name} got a second array, {describe(option)}: it takes one sequence of arrays.",
            f"Put the arrays into brackets: {name}([a, b]).",
        )
    if is_array_or_numpy(arrays):
        arrays = unstacked(as_array(arrays))
    elif not isinstance(arrays, Sequence):
        raise InputTypeError(
            f"{name} got a {type(arrays).__name__}; it takes a sequence of arrays.", "Pass a list or a tuple."
        )
    if not len(arrays):
        raise ShapeError(f"{name} got an empty sequence.", "It needs one array at least.")
    return beside_arrays(*[_part(a) for a in arrays])


def _part(value: Any) -> Any:
    """A nested list as an array; rlx's arrays in it keep their derivatives."""
    if not isinstance(value, (list, tuple)):
        return value
    if any(is_array(x) for x in leaves(value)):
        return stack(value)
    return np.asarray(value)


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Array:
    """Arrays joined along an existing axis.

    Args: arrays: sequence of arrays; axis: int (None: all made 1-d first); dtype: of the result.
    Returns: an array of the promoted dtype. Raises: ShapeError if other axes differ.

    >>> import rlx.numpy as jnp
    >>> jnp.concatenate([jnp.zeros(1), jnp.ones(2)])
    Array([0., 1., 1.], dtype=float32)
    """
    operands = promote("concatenate", *_parts("concatenate", arrays, axis))
    if dtype is not None:
        operands = [convert_to(x, to_dtype(dtype)) for x in operands]
    if axis is None:
        return shapes.concatenate(*[ravel(x) for x in operands], axis=0)
    if operands[0].ndim == 0:
        raise ShapeError(
            "concatenate got 0-d arrays, which have no axis to join.", "Use rlx.numpy.stack([a, b]), which makes one."
        )
    number = canonical_axis(axis, operands[0].ndim, "concatenate")
    return operands[0] if len(operands) == 1 else shapes.concatenate(*operands, axis=number)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """`concatenate` in the array API standard.

    Args: arrays: sequence of arrays; axis. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.concat([jnp.zeros(1), jnp.ones(1)])
    Array([0., 1.], dtype=float32)
    """
    return concatenate(arrays, axis)


@replayed
def stack(arrays: Any, axis: int = 0, out: None = None, dtype: Any = None) -> Array:
    """Arrays of one shape joined along a new axis.

    Args: arrays: sequence of arrays; axis: position of the new axis; dtype: of the result.
    Returns: an array. Raises: ShapeError if the shapes differ.

    >>> import rlx.numpy as jnp
    >>> jnp.stack([jnp.zeros(2), jnp.ones(2)])
    Array([[0., 0.],
           [1., 1.]], dtype=float32)
    """
    refuse_out("stack", out)
    operands = promote("stack", *_parts("stack", arrays, axis))
    if any(x.shape != operands[0].shape for x in operands):
        raise ShapeError(
            f"stack got arrays of different shapes: {', '.join(str(x.shape) for x in operands)}.",
            "Broadcast or pad them to one shape first.",
        )
    number = canonical_axis(axis, operands[0].ndim + 1, "stack")
    return concatenate([expand_dims(x, number) for x in operands], number, dtype)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices of an array along an axis.

    Args: x: array; axis. Returns: a tuple of arrays without the axis.

    >>> import rlx.numpy as jnp
    >>> [v.item() for v in jnp.unstack(jnp.arange(2))]
    [0, 1]
    """
    array = as_array(operand(x, "unstack"))
    return tuple(unstacked(array, canonical_axis(axis, array.ndim, "unstack")))


@replayed
def vstack(tup: Any, dtype: Any = None) -> Array:
    """Arrays joined along the first axis; 1-d ones are rows.

    Args: tup: sequence of arrays; dtype: of the result. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.vstack([jnp.zeros(2), jnp.ones(2)]).shape
    (2, 2)
    """
    return concatenate([atleast_2d(x) for x in _parts("vstack", tup, dtype)], 0, dtype)


row_stack = alias(vstack, "row_stack")


@replayed
def hstack(tup: Any, dtype: Any = None) -> Array:
    """Arrays joined along the second axis; 1-d ones along their only one.

    Args: tup: sequence of arrays; dtype: of the result. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.hstack([jnp.zeros(2), jnp.ones(2)]).shape
    (4,)
    """
    arrays = [atleast_1d(x) for x in _parts("hstack", tup, dtype)]
    return concatenate(arrays, 0 if arrays[0].ndim == 1 else 1, dtype)


@replayed
def dstack(tup: Any, dtype: Any = None) -> Array:
    """Arrays joined along the third axis.

    Args: tup: sequence of arrays; dtype: of the result. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.dstack([jnp.zeros(2), jnp.ones(2)]).shape
    (1, 2, 2)
    """
    return concatenate([atleast_3d(x) for x in _parts("dstack", tup, dtype)], 2, dtype)


@replayed
def column_stack(tup: Any) -> Array:
    """Arrays joined along the second axis; 1-d ones are columns.

    Args: tup: sequence of arrays. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.column_stack([jnp.zeros(3), jnp.ones(3)]).shape
    (3, 2)
    """
    arrays = [as_array(x) for x in _parts("column_stack", tup)]
    return concatenate([x if x.ndim > 1 else expand_dims(ravel(x), 1) for x in arrays], 1)


def block(arrays: Any) -> Array:
    """An array put together from nested lists of blocks.

    Args: arrays: nested lists of arrays; the innermost ones are joined along the last axis.
    Returns: an array. Raises: ShapeError for incompatible blocks.

    >>> import rlx.numpy as jnp
    >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 2))]])
    Array([[1., 0., 0.]], dtype=float32)
    """

    parts = iter(beside_arrays(*_innermost(arrays)))

    def build(part: Any) -> tuple[Any, int]:
        if not isinstance(part, list):
            return as_array(next(parts)), 1
        if not part:
            raise ShapeError("block got an empty list.", "Leave it out.")
        built = [build(p) for p in part]
        depth = built[0][1]
        rank = max(depth, *[x.ndim for x, _ in built])
        level = [_at_least(x, rank) for x, _ in built]
        return concatenate(level, -depth), depth + 1

    return build(arrays)[0]


def _innermost(arrays: Any) -> list[Any]:
    """The leaves of nested lists, in order."""
    return [x for part in arrays for x in _innermost(part)] if isinstance(arrays, list) else [arrays]


def _at_least(x: Any, rank: int) -> Any:
    return shapes.reshape(x, shape=(1,) * (rank - x.ndim) + x.shape) if x.ndim < rank else x


def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """Values joined to the end of an array.

    Args: arr, values: arrays; axis: int (None: both made 1-d). Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.append(jnp.arange(2), 7)
    Array([0, 1, 7], dtype=int32)
    """
    parts = [*map(ravel, beside_arrays(arr, values))] if axis is None else [arr, values]
    return concatenate(parts, 0 if axis is None else axis)


# ------------------------------------------------------------------ splitting
def _split(name: str, ary: Any, indices_or_sections: Any, axis: int, even: bool) -> list[Array]:
    x = as_array(operand(ary, name))
    number = canonical_axis(axis, x.ndim, name)
    size = x.shape[number]
    if isinstance(indices_or_sections, (int, np.integer)) or np.ndim(indices_or_sections) == 0:
        count = _whole_number(indices_or_sections, name)
        if count <= 0:
            raise ShapeError(f"{name} got {count} sections.", "Pass one or more.")
        quotient, rest = divmod(size, count)
        if even and rest:
            raise ShapeError(
                f"{name} cannot cut axis {number} of size {size} in {count} equal parts.",
                "Use rlx.numpy.array_split for parts of different sizes.",
            )
        sizes = [quotient + 1] * rest + [quotient] * (count - rest)
        edges = np.cumsum([0, *sizes]).tolist()
    else:
        inner = known_numpy(indices_or_sections, name, "Pass Python integers.")
        edges = [0, *[slice(int(i)).indices(size)[1] for i in inner], size]
    pieces = zip(edges[:-1], edges[1:], strict=True)
    return [shapes.slice_along(x, start, max(start, stop), number) for start, stop in pieces]


def _whole_number(value: Any, name: str) -> int:
    """A number of sections, which may be a float."""
    if isinstance(value, (int, np.integer)):
        return int(value)
    number = known_numpy(value, name, "Pass a Python integer.").item()
    if number != int(number):
        raise ShapeError(f"{name} got {number} sections.", "Pass a whole number.")
    return int(number)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """An array cut in equal parts, or at given indices.

    Args: ary: array; indices_or_sections: number of parts, or where to cut; axis.
    Returns: a list of arrays. Raises: ShapeError if the parts would not be equal.

    >>> import rlx.numpy as jnp
    >>> [x.shape for x in jnp.split(jnp.arange(6), 3)]
    [(2,), (2,), (2,)]
    """
    return _split("split", ary, indices_or_sections, axis, True)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """An array cut in nearly equal parts, or at given indices.

    Args: as `split`. Returns: a list of arrays.

    >>> import rlx.numpy as jnp
    >>> [x.shape for x in jnp.array_split(jnp.arange(5), 2)]
    [(3,), (2,)]
    """
    return _split("array_split", ary, indices_or_sections, axis, False)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """`split` along the second axis, or the only one.

    Args: ary: array; indices_or_sections. Returns: a list of arrays.

    >>> import rlx.numpy as jnp
    >>> len(jnp.hsplit(jnp.ones((2, 4)), 2))
    2
    """
    return split(ary, indices_or_sections, 0 if np.ndim(ary) == 1 else 1)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """`split` along the first axis.

    Args: ary: array; indices_or_sections. Returns: a list of arrays.

    >>> import rlx.numpy as jnp
    >>> len(jnp.vsplit(jnp.ones((4, 2)), 2))
    2
    """
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """`split` along the third axis.

    Args: ary: array; indices_or_sections. Returns: a list of arrays.

    >>> import rlx.numpy as jnp
    >>> len(jnp.dsplit(jnp.ones((1, 1, 4)), 2))
    2
    """
    return split(ary, indices_or_sections, 2)
