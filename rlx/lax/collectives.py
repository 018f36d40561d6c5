"""Operations along the named axis of a vmap, shard_map or pmap: psum, all_gather and their kin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.config import config
from rlx.errors import InputTypeError, OptionError, ShapeError, UnsupportedError
from rlx.ir.types import is_inexact
from rlx.lax.elementwise import add, div
from rlx.lax.indexing import dynamic_slice_in_dim
from rlx.lax.operands import as_array, canonical_axis
from rlx.lax.parametric import mul
from rlx.lax.shape import convert_element_type, full_like, index_in_dim, reshape, squeeze
from rlx.ops import collective
from rlx.ops.families import move_axis
from rlx.trace import tracing
from rlx.trace.primitive import Primitive
from rlx.trees import tree

__all__ = [
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "pbroadcast",
    "pcast",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "pshuffle",
    "psum",
    "psum_scatter",
    "pswapaxes",
    "pvary",
]

AxisName = Any


def _names(axis_name: AxisName) -> tuple[Any, ...]:
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def _shared(axis_name: AxisName) -> tuple[Any, ...]:
    """The names of axes that have other members: along an axis of one device there is nobody to exchange with."""
    return tuple(name for name in _names(axis_name) if not tracing.axis_named(name).alone)


def _check_groups(name: str, axis_name: AxisName, axis_index_groups: Any) -> None:
    if axis_index_groups is not None and (_shared(axis_name) or [list(g) for g in axis_index_groups] != [[0]]):
        raise UnsupportedError(
            f"lax.{name} does not support axis_index_groups.",
            "Nest two vmaps with an axis name each, and name the inner one.",
        )


def axis_size(axis_name: AxisName) -> int:
    """The size of a mapped axis, or the product of those of several.

    >>> import rlx
    >>> import numpy as np
    >>> f = lambda x: x * rlx.lax.axis_size("i")
    >>> rlx.vmap(f, axis_name="i")(np.ones(3, np.float32)).tolist()
    [3.0, 3.0, 3.0]
    """
    return tracing.axis_size(axis_name)


def axis_index(axis_name: AxisName) -> Array:
    """The position of this member along a mapped axis; row-major along several.

    >>> import rlx
    >>> import numpy as np
    >>> rlx.vmap(lambda x: rlx.lax.axis_index("i"), axis_name="i")(np.ones(3)).tolist()
    [0, 1, 2]
    """
    total: Any = None
    for name in _names(axis_name):
        size = tracing.axis_size(name)
        own = collective.axis_index(axis_name=name) if _shared(name) else as_array(np.int32(0))
        total = own if total is None else add(mul(total, size), own)
    return total


# ------------------------------------------------------------- reductions
def _sum(value: Array, axis_name: AxisName) -> Array:
    names = _shared(axis_name)
    return collective.psum(value, axis_name=names) if names else value


def psum(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The sum of x (an array, or a tree of arrays) over a mapped axis, or several.

    Python numbers are multiplied by the axis's size without being traced.

    >>> import rlx
    >>> import numpy as np
    >>> f = lambda x: x / rlx.lax.psum(x, "i")
    >>> rlx.vmap(f, axis_name="i")(np.array([1.0, 3.0], np.float32)).tolist()
    [0.25, 0.75]
    """
    _check_groups("psum", axis_name, axis_index_groups)
    size = tracing.axis_size(axis_name)

    def total(leaf: Any) -> Any:
        if isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
            return leaf * size
        value = as_array(leaf)
        if value.dtype == np.dtype(bool):
            value = convert_element_type(value, config.default_int)
        return _sum(value, axis_name)

    return tree.map(total, x)


def pmean(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The mean of x over a mapped axis, or several.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")(jnp.array([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """
    _check_groups("pmean", axis_name, axis_index_groups)
    size = tracing.axis_size(axis_name)

    def mean(leaf: Any) -> Any:
        value = as_array(leaf)
        if not is_inexact(value.dtype):
            value = convert_element_type(value, config.default_float)
        return div(_sum(value, axis_name), size)

    return tree.map(mean, x)


def _extremum(primitive: Primitive, x: Any, axis_name: AxisName) -> Any:
    names = _shared(axis_name)
    return tree.map(lambda leaf: primitive(as_array(leaf), axis_name=names) if names else as_array(leaf), x)


def pmax(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The maximum of x over a mapped axis, or several.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(jnp.array([1, 3, 2])).tolist()
    [3, 3, 3]
    """
    _check_groups("pmax", axis_name, axis_index_groups)
    return _extremum(collective.pmax, x, axis_name)


def pmin(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The minimum of x over a mapped axis, or several.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(jnp.array([1, 3, 2])).tolist()
    [1, 1, 1]
    """
    _check_groups("pmin", axis_name, axis_index_groups)
    return _extremum(collective.pmin, x, axis_name)


# ------------------------------------------------------------- exchanges
def all_gather(
    x: Any,
    axis_name: AxisName,
    *,
    axis_index_groups: Any = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> Any:
    """Every member's x along a new axis, or with `tiled` one after another along an axis it has.

    >>> import rlx
    >>> import numpy as np
    >>> f = lambda x: rlx.lax.all_gather(x, "i").sum() - x
    >>> rlx.vmap(f, axis_name="i")(np.array([1.0, 2.0], np.float32)).tolist()
    [2.0, 1.0]
    """
    _check_groups("all_gather", axis_name, axis_index_groups)
    sizes = [tracing.axis_size(name) for name in _names(axis_name)]

    def gather(leaf: Any) -> Array:
        value = as_array(leaf)
        at = canonical_axis("all_gather", axis, value.ndim + (not tiled))
        shape = value.shape
        for name, size in reversed(list(zip(_names(axis_name), sizes, strict=True))):
            if _shared(name):
                value = collective.all_gather(value, axis_name=name, axis=at, size=size)
        count = math.prod(sizes)
        if tiled:
            return reshape(value, (*shape[:at], count * shape[at], *shape[at + 1 :]))
        return reshape(value, (*shape[:at], count, *shape[at:]))

    return tree.map(gather, x)


def psum_scatter(
    x: Any,
    axis_name: AxisName,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """The sum of x over a mapped axis, of which each member keeps its own part of one axis.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda row: lax.psum_scatter(row, "i"), axis_name="i")(jnp.array([[1, 2], [10, 20]])).tolist()
    [11, 22]
    """
    _check_groups("psum_scatter", axis_name, axis_index_groups)
    size = tracing.axis_size(axis_name)

    def scatter(leaf: Any) -> Array:
        value = as_array(leaf)
        at = canonical_axis("psum_scatter", scatter_dimension, value.ndim)
        if value.shape[at] % size or (not tiled and value.shape[at] != size):
            raise ShapeError(
                f"lax.psum_scatter got an axis of size {value.shape[at]} for {size} members.",
                "The axis has the size of the mapped axis, or with tiled=True a multiple.",
            )
        width = value.shape[at] // size
        if not _shared(axis_name):
            return value if tiled else squeeze(value, (at,))
        start = mul(axis_index(axis_name), width)
        own = dynamic_slice_in_dim(psum(value, axis_name), start, width, at)
        return own if tiled else squeeze(own, (at,))

    return tree.map(scatter, x)


def ppermute(x: Any, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Any:
    """Values sent from member to member along (source, destination) pairs; zeros elsewhere.

    >>> import rlx
    >>> import numpy as np
    >>> f = lambda x: rlx.lax.ppermute(x, "i", [(0, 1), (1, 2)])
    >>> rlx.vmap(f, axis_name="i")(np.array([1.0, 2.0, 3.0], np.float32)).tolist()
    [0.0, 1.0, 2.0]
    """
    size = tracing.axis_size(axis_name)
    pairs = tuple((int(source), int(destination)) for source, destination in perm)
    sources, destinations = [p[0] for p in pairs], [p[1] for p in pairs]
    inside = all(0 <= n < size for n in (*sources, *destinations))
    if not inside or len({*sources}) < len(pairs) or len({*destinations}) < len(pairs):
        raise ShapeError(
            f"lax.ppermute got perm={list(pairs)} for an axis of size {size}.",
            "Each member sends at most once and receives at most once.",
        )
    names = _shared(axis_name)

    def send(leaf: Any) -> Array:
        value = as_array(leaf)
        if not names:
            return value if pairs else full_like(value, 0)
        return collective.ppermute(value, axis_name=names[0] if len(names) == 1 else axis_name, permutation=pairs)

    return tree.map(send, x)


def pshuffle(x: Any, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Member i receives the value of member perm[i].

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), axis_name="i")(jnp.array([10, 20, 30])).tolist()
    [30, 10, 20]
    """
    return ppermute(x, axis_name, [(source, i) for i, source in enumerate(perm)])


def all_to_all(
    x: Any,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Deal out an axis of x to the members, and stack what arrives along another.

    Without `tiled`, split_axis has the size of the mapped axis and disappears, and a new axis
    concat_axis appears. With it, split_axis is divided, and parts are concatenated.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> rlx.vmap(lambda row: lax.all_to_all(row, "i", 0, 0), axis_name="i")(x).tolist()
    [[1, 3], [2, 4]]
    """
    _check_groups("all_to_all", axis_name, axis_index_groups)
    names = _names(axis_name)
    sizes = [tracing.axis_size(name) for name in names]
    count = math.prod(sizes)

    def exchange(leaf: Any) -> Array:
        value = as_array(leaf)
        split = canonical_axis("all_to_all", split_axis, value.ndim)
        concat = canonical_axis("all_to_all", concat_axis, value.ndim)
        width, rest = divmod(value.shape[split], count)
        if rest or (not tiled and width != 1):
            raise ShapeError(
                f"lax.all_to_all got split_axis of size {value.shape[split]} for {count} members.",
                "The axis has the size of the mapped axis, or with tiled=True a multiple.",
            )
        inner = [width] if tiled else []
        moved = reshape(value, (*value.shape[:split], *sizes, *inner, *value.shape[split + 1 :]))
        for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
            if _shared(name):
                moved = collective.all_to_all(moved, axis_name=name, split=split + number, concat=number, size=size)
            else:
                moved = move_axis(moved, split + number, number)
        arrived = move_axis(reshape(moved, (count, *moved.shape[len(names) :])), 0, concat)
        if not tiled:
            return arrived
        shape = arrived.shape
        return reshape(arrived, (*shape[:concat], shape[concat] * shape[concat + 1], *shape[concat + 2 :]))

    return tree.map(exchange, x)


def pbroadcast(x: Any, axis_name: AxisName, source: int) -> Any:
    """Every member receives the value of member `source` of a mapped axis.

    >>> import rlx
    >>> import numpy as np
    >>> f = lambda x: rlx.lax.pbroadcast(x, "i", 1)
    >>> rlx.vmap(f, axis_name="i")(np.array([1.0, 2.0, 3.0], np.float32)).tolist()
    [2.0, 2.0, 2.0]
    """
    size = tracing.axis_size(axis_name)
    if not 0 <= source < size:
        raise ShapeError(f"lax.pbroadcast got source={source} for an axis of size {size}.", "Members count from 0.")
    return tree.map(lambda leaf: index_in_dim(all_gather(leaf, axis_name), source, keepdims=False), x)


def pswapaxes(x: Any, axis_name: AxisName, axis: int, *, axis_index_groups: Any = None) -> Any:
    """The mapped axis and an axis of x of the same size change places.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda row: lax.pswapaxes(row, "i", 0), axis_name="i")(jnp.array([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    _check_groups("pswapaxes", axis_name, axis_index_groups)
    return all_to_all(x, axis_name, axis, axis)


def pcast(x: Any, axis_name: AxisName, *, to: str) -> Any:
    """x (an array, or a tree of arrays), noted as varying over a mapped axis or several, or as reduced or not.

    rlx keeps no such note of a value: only the arguments are checked.

    Args:
      x: arrays of any shape and dtype.
      axis_name: a name, or a tuple of names. to: "varying", "reduced" or "unreduced".

    Returns: x.

    Raises: VmapAxisError for an axis that is not in scope; OptionError for another `to`.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: lax.pcast(x, "i", to="varying"), axis_name="i")(jnp.array([1, 2])).tolist()
    [1, 2]
    """
    if isinstance(axis_name, (set, frozenset)):
        raise InputTypeError(f"lax.pcast got axis_name={axis_name!r}, a set.", "Pass a name or a tuple of names.")
    if to not in ("varying", "reduced", "unreduced"):
        raise OptionError(f"lax.pcast got to={to!r}.", 'It is "varying", "reduced" or "unreduced".')
    tracing.axis_size(axis_name)
    return tree.map(as_array, x)


def pvary(x: Any, axis_name: AxisName) -> Any:
    """pcast(x, axis_name, to="varying"), by the name that it had before.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: lax.pvary(x, "i"), axis_name="i")(jnp.array([1, 2])).tolist()
    [1, 2]
    """
    return pcast(x, axis_name, to="varying")
