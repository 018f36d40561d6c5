"""Collectives over trees of arrays between processes: eager or jitted, differentiable and batchable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.config import config
from rlx.errors import OptionError, ShapeError
from rlx.ir.collectives import WORLD, communicator, place_of
from rlx.ir.types import is_inexact
from rlx.ops.process_collective import (
    process_all_gather,
    process_all_reduce,
    process_all_to_all,
    process_broadcast,
    process_permute,
    process_reduce_scatter,
)
from rlx.trees import tree
from rlx.trees.keys import keystr

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "permute", "reduce_scatter"]

BUCKET_BYTES = 25 << 20
_REDUCTIONS = ("sum", "mean", "prod", "max", "min", "and", "or", "xor")
_MODES = ("fast", "deterministic")
_LONGEST_CALL = 120


def _group(group: str, name: str, call: str = "") -> dict[str, Any]:
    """The parameters of every primitive that describe the group, and the name and the call of the collective."""
    return {"group": group, "members": communicator(group).size, "place": place_of(call, name)}


def _call(*parts: str) -> str:
    """A description of a call for messages. Long ones are cut, and end with their digest."""
    text = ", ".join(part for part in parts if part).replace("\0", " ")
    if len(text) <= _LONGEST_CALL:
        return text
    return f"{text[:_LONGEST_CALL]}... {hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def _each(function: Callable[..., Any], trees: Any, group: str, name: str, *options: str) -> Any:
    """The tree of function(array, the parameters of its exchange). options: of the call, if not the default ones."""

    def one(path: Any, x: Any) -> Any:
        return function(jnp.asarray(x), _group(group, name, _call(*options, keystr(path))))

    return tree.map_with_path(one, trees)


def _axis(name: str, axis: int) -> str:
    """An option for `_each`."""
    return f"{name}={axis}" if axis else ""


def _reduction(name: str, op: str, mode: str) -> str:
    """The primitive reduction that a user-facing one is computed with."""
    for what, given, known in (("op", op, _REDUCTIONS), ("mode", mode, _MODES)):
        if given not in known:
            raise OptionError(f"{name} got {what}={given!r}.", f"It must be one of {', '.join(map(repr, known))}.")
    return "sum" if op == "mean" else op


def _operand(x: Any, op: str) -> Any:
    """The array prepared for the reduction: bools are counted, integers have a floating-point mean."""
    x = jnp.asarray(x)
    if op == "mean" and not is_inexact(x.dtype):
        return x.astype(config.default_float)
    return x.astype(config.default_int) if x.dtype == bool and op in ("sum", "prod") else x


def all_reduce(
    tree_of_arrays: Any,
    op: str = "sum",
    mode: str = "fast",
    group: str = WORLD,
    bucket_bytes: int = BUCKET_BYTES,
    name: str = "",
) -> Any:
    """The sum, or another reduction, over all processes of each array of a tree.

    Arrays of one dtype are sent together, in messages of up to `bucket_bytes`. All processes get the same bits, in
    every run. Derivatives are derivatives of the sum of all processes' results (see docs/distributed.md).

    Args:
      tree_of_arrays: arrays and numbers, of the same structure, shapes and dtypes in all processes.
      op: "sum", "mean", "prod", "max", "min"; for integers and bools also "and", "or", "xor". Bools are counted.
      mode: "fast" adds in the arrays' dtype (float32 for narrower floats); "deterministic" adds floats in
        float64 and rounds once, so that the result hardly depends on the number of processes.
      group: the name of a group, from `new_group`.
      bucket_bytes: the largest message in bytes, except for larger arrays.
      name: a name for this collective, compared between processes. Without one the line of the call is compared, and
        collectives that are swapped on one line, as in a loop over unordered names, may go unnoticed.

    Returns: the tree, of arrays.

    Raises: CollectiveError if a process does not arrive, or calls something else; DtypeError if the dtype does not
      support the op.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> def work() -> list[float]:
    ...     mine = rlx.numpy.arange(3.0) * rlx.process_index()
    ...     return rlx.distributed.all_reduce({"gradient": mine}, "mean")["gradient"].tolist()
    >>> threads.run(2, work)
    [[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]]
    """
    reduction = _reduction("all_reduce", op, mode)
    pairs, structure = tree.flatten_with_path(tree_of_arrays)
    arrays = [_operand(leaf, op) for _, leaf in pairs]
    described = [f"{keystr(path)} {x.type!r}" for (path, _), x in zip(pairs, arrays, strict=True) if path]
    call = _call("mean" if op == "mean" else "", *described)
    params = {"op": reduction, "mode": mode, **_group(group, name, call)}
    results: list[Any] = [None] * len(arrays)
    for bucket in _buckets(arrays, bucket_bytes):
        if len(bucket) == 1:
            (only,) = bucket
            results[only] = process_all_reduce(arrays[only], **params)
            continue
        together = process_all_reduce(jnp.concatenate([arrays[n].reshape(-1) for n in bucket]), **params)
        start = 0
        for n in bucket:
            results[n] = together[start : start + arrays[n].size].reshape(arrays[n].shape)
            start += arrays[n].size
    if op == "mean":
        results = [x / np.asarray(params["members"], x.dtype) for x in results]
    return tree.unflatten(structure, results)


def _buckets(arrays: Sequence[Any], nbytes: int) -> list[list[int]]:
    """Indices of arrays that are sent together: of one dtype, in order, up to `bucket_bytes` in total."""
    open_buckets: dict[np.dtype, tuple[list[int], int]] = {}
    buckets: list[list[int]] = []
    for number, array in enumerate(arrays):
        own = array.size * array.dtype.itemsize
        bucket, filled = open_buckets.get(array.dtype, ([], 0))
        if not bucket or filled + own > nbytes:
            bucket, filled = [], 0
            buckets.append(bucket)
        bucket.append(number)
        open_buckets[array.dtype] = bucket, filled + own
    return buckets


def all_gather(tree_of_arrays: Any, axis: int = 0, tiled: bool = False, group: str = WORLD, name: str = "") -> Any:
    """Gather the arrays of all processes, in the order of ranks.

    Args:
      tree_of_arrays: arrays and numbers, of the same structure, shapes and dtypes in all processes.
      axis: a new axis along which arrays are stacked; with `tiled`, an existing axis along which they are joined.
      group: the name of a group, from `new_group`. name: of the collective, as in `all_reduce`.

    Returns: the tree, of arrays of the same dtypes. float32[3, 4] of n processes become float32[n, 3, 4], with
      `tiled` float32[3 * n, 4].

    Raises: CollectiveError if a process does not arrive, or calls something else.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> threads.run(2, lambda: rlx.distributed.all_gather(10 * rlx.process_index()).tolist())
    [[0, 10], [0, 10]]
    """

    def each(x: Any, params: dict[str, Any]) -> Any:
        if not tiled:
            return jnp.moveaxis(process_all_gather(x, **params), 0, axis)
        rows = process_all_gather(jnp.moveaxis(x, axis, 0), **params)
        return jnp.moveaxis(rows.reshape((-1, *rows.shape[2:])), 0, axis)

    return _each(each, tree_of_arrays, group, name, _axis("axis", axis), "tiled" if tiled else "")


def _rows(name: str, x: Any, axis: int, tiled: bool, size: int) -> Any:
    """An array with a leading axis that has one row for each member; with `tiled` each row is a part of the axis."""
    x = jnp.moveaxis(jnp.asarray(x), axis, 0)
    if not tiled:
        return x
    if x.shape[0] % size:
        raise ShapeError(
            f"{name} got an axis of length {x.shape[0]}, which {size} processes cannot divide equally.",
            "Pad it, or choose another axis.",
        )
    return x.reshape((size, x.shape[0] // size, *x.shape[1:]))


def reduce_scatter(
    tree_of_arrays: Any,
    op: str = "sum",
    axis: int = 0,
    tiled: bool = False,
    mode: str = "fast",
    group: str = WORLD,
    name: str = "",
) -> Any:
    """The sum, or another reduction, over all processes; process r gets part r along an axis.

    Args:
      tree_of_arrays: arrays of the same structure, shapes and dtypes in all processes.
      op, mode, group, name: as in `all_reduce`.
      axis: the axis that is divided. Its length is the number of processes, and it is removed from the result. With
        `tiled`, its length is a multiple of that, and each process keeps its part.

    Returns: the tree, of arrays without the axis, or with `tiled` with one part along it; dtypes
      as in `all_reduce`.

    Raises: ShapeError for an axis that cannot be divided; CollectiveError as in `all_reduce`.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> threads.run(2, lambda: float(rlx.distributed.reduce_scatter(rlx.numpy.array([1.0, 10.0]))))
    [2.0, 20.0]
    """
    reduction, mean = _reduction("reduce_scatter", op, mode), op == "mean"

    def each(x: Any, params: dict[str, Any]) -> Any:
        size = params["members"]
        rows = _rows("reduce_scatter", _operand(x, op), axis, tiled, size)
        own = process_reduce_scatter(rows, op=reduction, mode=mode, **params)
        own = own / np.asarray(size, own.dtype) if mean else own
        return jnp.moveaxis(own, 0, axis) if tiled else own

    options = "mean" if mean else "", _axis("axis", axis), "tiled" if tiled else ""
    return _each(each, tree_of_arrays, group, name, *options)


def all_to_all(
    tree_of_arrays: Any,
    split_axis: int = 0,
    concat_axis: int = 0,
    tiled: bool = False,
    group: str = WORLD,
    name: str = "",
) -> Any:
    """Send part r of an array to process r, and receive this process's part of every array.

    Args:
      tree_of_arrays: arrays of the same structure, shapes and dtypes in all processes.
      split_axis: the axis that is divided. Its length is the number of processes; with `tiled`, a multiple of that.
      concat_axis: the axis along which parts are stacked, or with `tiled` joined, in the order of ranks.
      group: the name of a group, from `new_group`. name: of the collective, as in `all_reduce`.

    Returns: the tree, of arrays of the same dtypes and number of elements.

    Raises: ShapeError for an axis that cannot be divided; CollectiveError as in `all_reduce`.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> def work() -> list[int]:
    ...     return rlx.distributed.all_to_all(10 * rlx.process_index() + rlx.numpy.arange(2)).tolist()
    >>> threads.run(2, work)
    [[0, 10], [1, 11]]
    """

    def each(x: Any, params: dict[str, Any]) -> Any:
        found = process_all_to_all(_rows("all_to_all", x, split_axis, tiled, params["members"]), **params)
        if not tiled:
            return jnp.moveaxis(found, 0, concat_axis)
        parts = jnp.moveaxis(found, 1, split_axis + 1)
        return jnp.concatenate([parts[r] for r in range(params["members"])], concat_axis)

    axes = _axis("split_axis", split_axis), _axis("concat_axis", concat_axis)
    return _each(each, tree_of_arrays, group, name, *axes, "tiled" if tiled else "")


def permute(tree_of_arrays: Any, pairs: Sequence[tuple[int, int]], group: str = WORLD, name: str = "") -> Any:
    """Send arrays along (source, destination) pairs of ranks; processes that receive nothing get zeros.

    Args:
      tree_of_arrays: arrays and numbers, of the same structure, shapes and dtypes in all processes.
      pairs: each rank at most once as source and at most once as destination.
      group: the name of a group, from `new_group`. name: of the collective, as in `all_reduce`.

    Returns: the tree, of arrays of the same shapes and dtypes.

    Raises: ShapeError for ranks that do not exist or are repeated; CollectiveError as in `all_reduce`.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> threads.run(3, lambda: int(rlx.distributed.permute(rlx.process_index(), ring)))
    [2, 0, 1]
    """
    ends = tuple((int(s), int(d)) for s, d in pairs)
    return _each(lambda x, params: process_permute(x, pairs=ends, **params), tree_of_arrays, group, name)


def broadcast(tree_of_arrays: Any, root: int = 0, group: str = WORLD, name: str = "") -> Any:
    """Copy the arrays of one process to all processes.

    Args:
      tree_of_arrays: arrays and numbers, of the same structure, shapes and dtypes in all processes.
      root: the rank of the process whose values are sent.
      group: the name of a group, from `new_group`. name: of the collective, as in `all_reduce`.

    Returns: the tree, of arrays of the same shapes and dtypes.

    Raises: ShapeError for a rank that does not exist; CollectiveError as in `all_reduce`.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> threads.run(2, lambda: int(rlx.distributed.broadcast(rlx.process_index() + 5)))
    [5, 5]
    """
    rank = int(root)
    return _each(lambda x, params: process_broadcast(x, root=rank, **params), tree_of_arrays, group, name)
