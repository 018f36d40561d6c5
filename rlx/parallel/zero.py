"""ZeRO-1: optimiser state divided over the members that train together.

Rajbhandari, Rasley, Ruwase, He: ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rlx import distributed, lax
from rlx import numpy as jnp
from rlx.ir.collectives import WORLD, communicator
from rlx.optim.transformation import GradientTransformation
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["zero1"]

Tree = Any


class _Members(NamedTuple):
    """Who shares the state: `scatter` maps rows to the sum of each member's own row, `gather` a row to all rows."""

    count: int
    index: Any
    scatter: Callable[[Any], Any]
    gather: Callable[[Any], Any]


def _members(axis_name: Any, group: str) -> _Members:
    """The members of a mapped axis, or of a group of processes."""
    if axis_name is None:
        world = communicator(group)
        return _Members(
            world.size,
            world.rank,
            lambda rows: distributed.reduce_scatter(rows, group=group),
            lambda row: distributed.all_gather(row, group=group),
        )
    return _Members(
        lax.axis_size(axis_name),
        lax.axis_index(axis_name),
        lambda rows: lax.psum_scatter(rows, axis_name),
        lambda row: lax.all_gather(row, axis_name, to="invarying"),
    )


def zero1(optimizer: GradientTransformation, axis_name: Any = None, *, group: str = WORLD) -> GradientTransformation:
    """An optimiser with divided state: member r of n updates part r of each parameter, and all members get the result.

    Gradients are passed in as each member's own. Their mean is computed by a reduce-scatter, so that a member gets only
    its part. Updates are gathered. Together these send as much as one all-reduce of the gradients, 2 (n - 1) / n of
    their bytes, and the state takes 1 / n of its bytes, with parts rounded up.

    Each part is a vector, so `optimizer` must treat all elements of a parameter equally: compute norms over parameters,
    such as clip_by_global_norm, before it. Masks by parameters work as usual.

    Args:
      optimizer: a transformation of rlx.optim.
      axis_name: the name of a mapped axis. None: the members are the processes of `group`.
      group: the name of a group, from rlx.distributed.new_group.

    Returns: a transformation. In a rlx.shard_map its state has the spec P(axis_name) for vectors and P() for numbers.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.parallel import zero1
    >>> rule, w = zero1(rlx.optim.adam(0.1), "x"), jnp.zeros(4)
    >>> def step(gradient):
    ...     state = rule.init(w)
    ...     updates, state = rule.update(gradient, state, w)
    ...     return w + updates, state[0].mu
    >>> new, mu = rlx.vmap(step, axis_name="x")(jnp.array([[1.0, 2.0, 3.0, 4.0], [3.0, 2.0, 1.0, 0.0]]))
    >>> print(new[0].round(3), mu.shape)
    [-0.1 -0.1 -0.1 -0.1] (2, 2)
    """

    def init(params: Tree) -> Any:
        members = _members(axis_name, group)
        return optimizer.init(tree.map(lambda x: _own(_rows(x, members.count), members.index), params))

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        members = _members(axis_name, group)
        leaves, structure = tree.flatten(updates)
        rows = [_rows(x, members.count) for x in leaves]
        parts = [x / members.count for x in _together(members.scatter, rows)]
        own = None
        if params is not None:
            own = tree.map(lambda x: _own(_rows(x, members.count), members.index), params)
        moved, state = optimizer.update(tree.unflatten(structure, parts), state, own)
        gathered = _together(members.gather, tree.leaves(moved))
        whole = [y.reshape(-1)[: x.size].reshape(x.shape) for x, y in zip(map(as_array, leaves), gathered, strict=True)]
        return tree.unflatten(structure, whole), state

    return GradientTransformation(init, update)


def _rows(x: Any, count: int) -> Any:
    """An array as this number of rows, the last one padded with zeros."""
    flat = as_array(x).reshape(-1)
    return jnp.pad(flat, (0, -flat.size % count)).reshape(count, -(-flat.size // count))


def _own(rows: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(rows, index, 0, keepdims=False)


def _together(exchange: Callable[[Any], Any], arrays: Sequence[Any]) -> list[Any]:
    """An exchange of arrays, concatenated along their last axis: one for each dtype."""
    results: list[Any] = [None] * len(arrays)
    for dtype in dict.fromkeys(x.dtype for x in arrays):
        numbers = [n for n, x in enumerate(arrays) if x.dtype == dtype]
        joined = exchange(jnp.concatenate([arrays[n] for n in numbers], axis=-1))
        start = 0
        for n in numbers:
            results[n] = joined[..., start : start + arrays[n].shape[-1]]
            start += arrays[n].shape[-1]
    return results
