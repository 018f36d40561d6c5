"""Operations along the named axis of a vmap, shard_map or pmap: psum, all_gather and others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.config import config
from rlx.errors import InputTypeError, OptionError, ShapeError, ShardingError
from rlx.ir.types import is_inexact
from rlx.lax.elementwise import add, div
from rlx.lax.indexing import dynamic_index_in_dim, dynamic_slice_in_dim, index_take
from rlx.lax.operands import as_array, canonical_axis
from rlx.lax.parametric import mul
from rlx.lax.shape import concatenate, convert_element_type, full, full_like, index_in_dim, reshape, squeeze, stack
from rlx.ops import collective, variation
from rlx.ops.families import move_axis
from rlx.ops.reduction import reduce_max, reduce_min, reduce_sum
from rlx.trace import tracing
from rlx.trace.primitive import Primitive
from rlx.transforms.named_axes import axis_names, check_reductions, over_axes, shared_axes
from rlx.transforms.reductions import reductions_of
from rlx.transforms.varying import varying_axes
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


class _Groups:
    """The members of an axis in groups that exchange values separately. All have one size unless `equal` is False.

    Every member's value is gathered; a member then combines the values of its group.
    """

    def __init__(self, name: str, axis_name: AxisName, groups: Any, equal: bool = True) -> None:
        self.axis_name = axis_name
        self.groups = [tuple(int(n) for n in group) for group in groups]
        self.size = len(self.groups[0]) if self.groups else 0
        every = sorted(n for group in self.groups for n in group)
        if every != list(range(tracing.axis_size(axis_name))):
            raise ShardingError(
                f"lax.{name} got axis_index_groups={groups} for an axis of size {tracing.axis_size(axis_name)}.",
                "Each member, counted from 0, must be in exactly one group.",
            )
        if equal and any(len(group) != self.size for group in self.groups):
            what = f"lax.{name} got axis_index_groups={groups}, of several sizes."
            raise ShardingError(what, "Its groups must have one size.")

    def _own(self, of_members: Sequence[int]) -> Array:
        """This member's element of a list."""
        return dynamic_index_in_dim(as_array(np.array(of_members, np.int32)), axis_index(self.axis_name), 0, False)

    def number(self) -> Array:
        """The number of this member's group."""
        return self._own([i for _, i in sorted((n, i) for i, group in enumerate(self.groups) for n in group)])

    def position(self) -> Array:
        """This member's position in its group."""
        return self._own([p for _, p in sorted((n, p) for group in self.groups for p, n in enumerate(group))])

    def reduce(self, primitive: Any, value: Array) -> Array:
        """One of the values of this member's group, by a reduction."""
        rows = _rows(value, self.axis_name)
        found = [primitive(index_take(rows, [np.array(group)], (0,)), axes=(0,)) for group in self.groups]
        return dynamic_index_in_dim(stack(found), self.number(), 0, False)

    def rows(self, value: Array) -> Array:
        """The values of this member's group, along a new axis in front."""
        rows = index_take(_rows(value, self.axis_name), [np.array(self.groups).reshape(-1)], (0,))
        grouped = reshape(rows, (len(self.groups), self.size, *value.shape))
        return dynamic_index_in_dim(grouped, self.number(), 0, False)


def _grouped(name: str, axis_name: AxisName, axis_index_groups: Any, equal: bool = True) -> _Groups | None:
    """The groups, None if all members are one group in their order."""
    found = None if axis_index_groups is None else _Groups(name, axis_name, axis_index_groups, equal)
    return None if found is None or found.groups == [tuple(range(found.size))] else found


def _rows(value: Array, axis_name: AxisName) -> Array:
    """Every member's value along a new axis in front, row-major along several axes."""
    names, shape = axis_names(axis_name), value.shape
    for name in reversed(names):
        size = tracing.axis_size(name)
        if shared_axes(name):
            value = collective.all_gather(value, axis_name=name, axis=0, size=size)
    return reshape(value, (tracing.axis_size(names), *shape))


def axis_size(axis_name: AxisName) -> int:
    """The size of a mapped axis, or the product of several sizes.

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
    for name in axis_names(axis_name):
        size = tracing.axis_size(name)
        own = collective.axis_index(axis_name=name) if shared_axes(name) else as_array(np.int32(0))
        total = own if total is None else add(mul(total, size), own)
    return total


# ------------------------------------------------------------- reductions
def _sum(value: Array, axis_name: AxisName, groups: _Groups | None = None) -> Array:
    if groups is not None:
        return groups.reduce(reduce_sum, value)
    return over_axes(collective.psum, value, axis_name)


def psum(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The sum of x (an array, or a tree of arrays) over a mapped axis, or several.

    Python numbers are multiplied by the axis's size without being traced. axis_index_groups: lists of members that
    contain each member once; the sum is then over the member's list. The other functions likewise exchange within such
    lists. Raises ShardingError for other groups, and for groups of several sizes if the operation needs equal ones.

    >>> import rlx
    >>> import numpy as np
    >>> f = lambda x: x / rlx.lax.psum(x, "i")
    >>> rlx.vmap(f, axis_name="i")(np.array([1.0, 3.0], np.float32)).tolist()
    [0.25, 0.75]
    """
    groups = _grouped("psum", axis_name, axis_index_groups, equal=False)
    size = tracing.axis_size(axis_name)

    def total(leaf: Any) -> Any:
        if groups is None and isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
            return leaf * size
        value = check_reductions("psum", as_array(leaf), axis_name, sums=True)
        if value.dtype == np.dtype(bool):
            value = convert_element_type(value, config.default_int)
        return _sum(value, axis_name, groups)

    return tree.map(total, x)


def pmean(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The mean of x over a mapped axis, or several.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")(jnp.array([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """
    groups = _grouped("pmean", axis_name, axis_index_groups)
    size = tracing.axis_size(axis_name) if groups is None else groups.size

    def mean(leaf: Any) -> Any:
        value = check_reductions("pmean", as_array(leaf), axis_name, sums=True)
        if not is_inexact(value.dtype):
            value = convert_element_type(value, config.default_float)
        return div(_sum(value, axis_name, groups), size)

    return tree.map(mean, x)


def _extremum(primitive: Primitive, reducer: Primitive, x: Any, axis_name: AxisName, groups: _Groups | None) -> Any:
    if groups is not None:
        return tree.map(lambda leaf: groups.reduce(reducer, as_array(leaf)), x)

    def extremum(leaf: Any) -> Any:
        value = check_reductions(primitive.name, as_array(leaf), axis_name)
        return over_axes(primitive, value, axis_name)

    return tree.map(extremum, x)


def pmax(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The maximum of x over a mapped axis, or several.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(jnp.array([1, 3, 2])).tolist()
    [3, 3, 3]
    """
    groups = _grouped("pmax", axis_name, axis_index_groups, equal=False)
    return _extremum(collective.pmax, reduce_max, x, axis_name, groups)


def pmin(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The minimum of x over a mapped axis, or several.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(jnp.array([1, 3, 2])).tolist()
    [1, 1, 1]
    """
    groups = _grouped("pmin", axis_name, axis_index_groups, equal=False)
    return _extremum(collective.pmin, reduce_min, x, axis_name, groups)


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
    """Every member's x along a new axis, or with `tiled` concatenated along an existing axis.

    In an rlx.shard_map with check_vma the result varies for derivatives and out_specs, though it is equal on
    all members; with to="invarying" it does not, and with to="reduced" it is reduced: cotangents are partial sums.

    >>> import rlx
    >>> import numpy as np
    >>> f = lambda x: rlx.lax.all_gather(x, "i").sum() - x
    >>> rlx.vmap(f, axis_name="i")(np.array([1.0, 2.0], np.float32)).tolist()
    [2.0, 1.0]
    """
    if to not in ("varying", "reduced", "invarying"):
        raise OptionError(f"lax.all_gather got to={to!r}.", 'It must be "varying", "reduced" or "invarying".')
    groups = _grouped("all_gather", axis_name, axis_index_groups)
    tracked = tracing.tracked_axes(axis_names(axis_name)) if to != "invarying" else ()

    def gather(leaf: Any) -> Array:
        value = check_reductions("all_gather", as_array(leaf), axis_name)
        at = canonical_axis("all_gather", axis, value.ndim + (not tiled))
        shape = value.shape
        rows = _rows(value, axis_name) if groups is None else groups.rows(value)
        rows = move_axis(rows, 0, at)
        if tracked and to == "varying":
            rows = variation.pvary(rows, axis_name=tracked)
        elif tracked:
            rows = variation.recast(rows, axis_name=tracked, to=to)
        return reshape(rows, (*shape[:at], rows.shape[at] * shape[at], *shape[at + 1 :])) if tiled else rows

    return tree.map(gather, x)


def psum_scatter(
    x: Any,
    axis_name: AxisName,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """The sum of x over a mapped axis, divided along one axis: each member keeps its own part.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda row: lax.psum_scatter(row, "i"), axis_name="i")(jnp.array([[1, 2], [10, 20]])).tolist()
    [11, 22]
    """
    groups = _grouped("psum_scatter", axis_name, axis_index_groups)
    size = tracing.axis_size(axis_name) if groups is None else groups.size

    def scatter(leaf: Any) -> Array:
        value = check_reductions("psum_scatter", as_array(leaf), axis_name, sums=True)
        at = canonical_axis("psum_scatter", scatter_dimension, value.ndim)
        if value.shape[at] % size or (not tiled and value.shape[at] != size):
            raise ShapeError(
                f"lax.psum_scatter got an axis of size {value.shape[at]} for {size} members.",
                "The axis must have the size of the mapped axis, or with tiled=True a multiple.",
            )
        if groups is not None:
            width = value.shape[at] // size
            own = dynamic_slice_in_dim(groups.reduce(reduce_sum, value), mul(groups.position(), width), width, at)
            return own if tiled else squeeze(own, (at,))
        own = value
        for name in shared_axes(axis_name):
            parts = (tracing.axis_size(name), own.shape[at] // tracing.axis_size(name))
            rows = reshape(own, (*own.shape[:at], *parts, *own.shape[at + 1 :]))
            own = collective.psum_scatter(rows, axis_name=name, axis=at)
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
        raise ShardingError(
            f"lax.ppermute got perm={list(pairs)} for an axis of size {size}.",
            "Each member may send at most once and receive at most once.",
        )
    names = shared_axes(axis_name)

    def send(leaf: Any) -> Array:
        value = check_reductions("ppermute", as_array(leaf), axis_name)
        if not names:
            return value if pairs else full_like(value, 0)
        if len(names) == 1:
            return collective.ppermute(value, axis_name=names[0], permutation=pairs)
        rows = concatenate([_rows(value, axis_name), full((1, *value.shape), 0, value.dtype)], 0)
        sender = {destination: source for source, destination in pairs}
        senders = as_array(np.array([sender.get(n, size) for n in range(size)], np.int32))
        own = dynamic_index_in_dim(senders, axis_index(axis_name), 0, False)
        return dynamic_index_in_dim(rows, own, 0, False)

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
    """Split an axis of x among the members, and stack the received parts along another.

    Without `tiled`, split_axis has the size of the mapped axis and disappears, and a new axis
    concat_axis appears. With it, split_axis is divided, and parts are concatenated.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> rlx.vmap(lambda row: lax.all_to_all(row, "i", 0, 0), axis_name="i")(x).tolist()
    [[1, 3], [2, 4]]
    """
    groups = _grouped("all_to_all", axis_name, axis_index_groups)
    names = axis_names(axis_name)
    sizes = [tracing.axis_size(name) for name in names] if groups is None else [groups.size]
    count = math.prod(sizes)

    def exchange(leaf: Any) -> Array:
        value = check_reductions("all_to_all", as_array(leaf), axis_name)
        split = canonical_axis("all_to_all", split_axis, value.ndim)
        concat = canonical_axis("all_to_all", concat_axis, value.ndim)
        width, rest = divmod(value.shape[split], count)
        if rest or (not tiled and width != 1):
            raise ShapeError(
                f"lax.all_to_all got split_axis of size {value.shape[split]} for {count} members.",
                "The axis must have the size of the mapped axis, or with tiled=True a multiple.",
            )
        inner = [width] if tiled else []
        moved = reshape(value, (*value.shape[:split], *sizes, *inner, *value.shape[split + 1 :]))
        if groups is not None:  # the parts of the whole group, from which this member takes its own
            rows = groups.rows(moved)
            moved = dynamic_index_in_dim(rows, groups.position(), split + 1, False)
        for number, (name, size) in enumerate(zip(names, sizes, strict=True) if groups is None else ()):
            if shared_axes(name):
                moved = collective.all_to_all(moved, axis_name=name, split=split + number, concat=number, size=size)
            else:
                moved = move_axis(moved, split + number, number)
        arrived = move_axis(reshape(moved, (count, *moved.shape[len(sizes) :])), 0, concat)
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
    """Swap the mapped axis with an axis of x of the same size.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda row: lax.pswapaxes(row, "i", 0), axis_name="i")(jnp.array([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pcast(x: Any, axis_name: AxisName, *, to: str) -> Any:
    """x (an array, or a tree of arrays) as varying over a mapped axis or several, or as reduced or unreduced.

    In an rlx.shard_map with check_vma the derivative by a varying value is each member's own, and by a reduced value
    it is partial sums. A value that is equal on all members becomes varying or reduced, a varying one unreduced, and a
    reduced one varying. Outside of such a shard_map only the arguments are checked.

    Args:
      x: arrays of any shape and dtype.
      axis_name: a name, or a tuple of names. to: "varying", "reduced" or "unreduced".

    Returns: x.

    Raises: VmapAxisError for an axis that is not in scope; OptionError for another `to`; ShardingError for x that
      cannot be converted.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: lax.pcast(x, "i", to="varying"), axis_name="i")(jnp.array([1, 2])).tolist()
    [1, 2]
    """
    if isinstance(axis_name, (set, frozenset)):
        raise InputTypeError(f"lax.pcast got axis_name={axis_name!r}, a set.", "Pass a name or a tuple of names.")
    if to not in ("varying", "reduced", "unreduced"):
        raise OptionError(f"lax.pcast got to={to!r}.", 'It must be "varying", "reduced" or "unreduced".')
    tracing.axis_size(axis_name)
    names = tracing.tracked_axes(axis_names(axis_name))

    def cast(leaf: Any) -> Array:
        value = as_array(leaf)
        if not names:
            return value
        state = _state(value, names)
        if to == "varying" and state != "reduced":
            return variation.pvary(check_reductions("pcast", value, names), axis_name=names)
        if (state, to) not in _CASTS:
            raise ShardingError(
                f"lax.pcast over {sorted(map(str, names))} got to={to!r} for a {value.type!r} that is {state} there.",
                "A value that is equal on all members becomes varying or reduced, a varying one unreduced, and a"
                " reduced one varying.",
            )
        return variation.recast(value, axis_name=names, to=to)

    return tree.map(cast, x)


_CASTS = {("equal", "reduced"), ("varying", "unreduced"), ("reduced", "varying")}


def _state(value: Array, names: Sequence[Any]) -> str:
    """Whether a value is unreduced, reduced, varying, or equal over all of these axes; "different" if the axes
    differ."""
    found, varying = reductions_of(value), varying_axes(value)

    def over(name: Any) -> str:
        if name in found.unreduced or name in found.reduced:
            return "unreduced" if name in found.unreduced else "reduced"
        return "varying" if varying is None or name in varying else "equal"

    states = {over(name) for name in names}
    return states.pop() if len(states) == 1 else "different"


def pvary(x: Any, axis_name: AxisName) -> Any:
    """pcast(x, axis_name, to="varying"), by its former name.

    >>> from rlx import lax
    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x: lax.pvary(x, "i"), axis_name="i")(jnp.array([1, 2])).tolist()
    [1, 2]
    """
    return pcast(x, axis_name, to="varying")
