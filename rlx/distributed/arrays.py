"""Trees of arrays that processes exchange, at once or in jitted functions, differentiated and mapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.config import config
from rlx.errors import OptionError, ShapeError
from rlx.ir.collectives import WORLD, communicator
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

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "permute", "reduce_scatter"]

BUCKET_BYTES = 25 << 20
_REDUCTIONS = ("sum", "mean", "prod", "max", "min", "and", "or", "xor")
_MODES = ("fast", "deterministic")


def _group(group: str) -> dict[str, Any]:
    """What every primitive is told of a group."""
    return {"group": group, "members": communicator(group).size, "place": b""}


def _reduction(name: str, op: str, mode: str) -> str:
    """The reduction of primitives that one for users is made with."""
    for what, given, known in (("op", op, _REDUCTIONS), ("mode", mode, _MODES)):
        if given not in known:
            raise OptionError(f"{name} got {what}={given!r}.", f"It is one of {', '.join(map(repr, known))}.")
    return "sum" if op == "mean" else op


def _operand(x: Any, op: str) -> Any:
    """An array that may be reduced so: bools are counted, integers have a mean with a fraction."""
    x = jnp.asarray(x)
    if op == "mean" and not is_inexact(x.dtype):
        return x.astype(config.default_float)
    return x.astype(config.default_int) if x.dtype == bool and op in ("sum", "prod") else x


def all_reduce(
    tree_of_arrays: Any, op: str = "sum", mode: str = "fast", group: str = WORLD, bucket_bytes: int = BUCKET_BYTES
) -> Any:
    """The sum, or another reduction, over all processes of each array of a tree.

    Arrays of one dtype go together, in messages of up to so many bytes. Every process gets the same bits, in every
    run. Derivatives are those of the sum of all processes' results (see docs/distributed.md).

    Args:
      tree_of_arrays: arrays and numbers, of the same structure, shapes and dtypes in all processes.
      op: "sum", "mean", "prod", "max", "min"; of integers and bools "and", "or", "xor", too. Bools are counted.
      mode: "fast" adds in the arrays' dtype (narrower floats than float32 in that); "deterministic" adds floats in
        float64 and rounds once, so that the result hardly depends on how many processes there are.
      group: the name of a group, of `new_group`.
      bucket_bytes: how many bytes a message has at most, but for larger arrays.

    Returns: the tree, of arrays.

    Raises: CollectiveError where a process is silent, or does something else; DtypeError for an op that is not of a
      dtype.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> def work() -> list[float]:
    ...     mine = rlx.numpy.arange(3.0) * rlx.process_index()
    ...     return rlx.distributed.all_reduce({"gradient": mine}, "mean")["gradient"].tolist()
    >>> threads.run(2, work)
    [[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]]
    """
    params = {"op": _reduction("all_reduce", op, mode), "mode": mode, **_group(group)}
    leaves, structure = tree.flatten(tree_of_arrays)
    arrays = [_operand(leaf, op) for leaf in leaves]
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
    """Numbers of arrays that go together: of one dtype, in order, up to so many bytes."""
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


def all_gather(tree_of_arrays: Any, axis: int = 0, tiled: bool = False, group: str = WORLD) -> Any:
    """The arrays of all processes, in the order of ranks.

    Args:
      tree_of_arrays: arrays and numbers, of the same structure, shapes and dtypes in all processes.
      axis: a new axis along which arrays are stacked; with `tiled` one that they have, along which they are joined.
      group: the name of a group, of `new_group`.

    Returns: the tree, of arrays of the same dtypes; of n processes' float32[3, 4] they are float32[n, 3, 4], with
      `tiled` float32[3 * n, 4].

    Raises: CollectiveError where a process is silent, or does something else.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> threads.run(2, lambda: rlx.distributed.all_gather(10 * rlx.process_index()).tolist())
    [[0, 10], [0, 10]]
    """
    params = _group(group)

    def each(x: Any) -> Any:
        x = jnp.asarray(x)
        if not tiled:
            return jnp.moveaxis(process_all_gather(x, **params), 0, axis)
        rows = process_all_gather(jnp.moveaxis(x, axis, 0), **params)
        return jnp.moveaxis(rows.reshape((-1, *rows.shape[2:])), 0, axis)

    return tree.map(each, tree_of_arrays)


def _rows(name: str, x: Any, axis: int, tiled: bool, size: int) -> Any:
    """An array with an axis in front, of one row for each member; with `tiled` each row is a part of the axis."""
    x = jnp.moveaxis(jnp.asarray(x), axis, 0)
    if not tiled:
        return x
    if x.shape[0] % size:
        raise ShapeError(
            f"{name} got an axis of length {x.shape[0]}, which {size} processes cannot share equally.",
            "Pad it, or share another axis.",
        )
    return x.reshape((size, x.shape[0] // size, *x.shape[1:]))


def reduce_scatter(
    tree_of_arrays: Any, op: str = "sum", axis: int = 0, tiled: bool = False, mode: str = "fast", group: str = WORLD
) -> Any:
    """The sum, or another reduction, over all processes, of which process r gets part r along an axis.

    Args:
      tree_of_arrays: arrays of the same structure, shapes and dtypes in all processes.
      op, mode, group: as of `all_reduce`.
      axis: the axis that is shared: of as many elements as there are processes, and gone in the result; or, with
        `tiled`, of a multiple, of which each process keeps its part.

    Returns: the tree, of arrays without the axis, or with `tiled` with as many elements along it as a part has; dtypes
      as of `all_reduce`.

    Raises: ShapeError for an axis that cannot be shared; CollectiveError as `all_reduce`.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> threads.run(2, lambda: float(rlx.distributed.reduce_scatter(rlx.numpy.array([1.0, 10.0]))))
    [2.0, 20.0]
    """
    params: dict[str, Any] = {"op": _reduction("reduce_scatter", op, mode), "mode": mode, **_group(group)}
    size = params["members"]

    def each(x: Any) -> Any:
        rows = _rows("reduce_scatter", _operand(x, op), axis, tiled, size)
        own = process_reduce_scatter(rows, **params)
        own = own / np.asarray(size, own.dtype) if op == "mean" else own
        return jnp.moveaxis(own, 0, axis) if tiled else own

    return tree.map(each, tree_of_arrays)


def all_to_all(
    tree_of_arrays: Any, split_axis: int = 0, concat_axis: int = 0, tiled: bool = False, group: str = WORLD
) -> Any:
    """Each process sends part r of an array to process r, and gets its own part of every process's.

    Args:
      tree_of_arrays: arrays of the same structure, shapes and dtypes in all processes.
      split_axis: the axis that is shared: of as many elements as there are processes; with `tiled`, of a multiple.
      concat_axis: the axis along which parts are stacked, or with `tiled` joined, in the order of ranks.
      group: the name of a group, of `new_group`.

    Returns: the tree, of arrays of the same dtypes and as many elements.

    Raises: ShapeError for an axis that cannot be shared; CollectiveError as `all_reduce`.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> def work() -> list[int]:
    ...     return rlx.distributed.all_to_all(10 * rlx.process_index() + rlx.numpy.arange(2)).tolist()
    >>> threads.run(2, work)
    [[0, 10], [1, 11]]
    """
    params = _group(group)

    def each(x: Any) -> Any:
        found = process_all_to_all(_rows("all_to_all", x, split_axis, tiled, params["members"]), **params)
        if not tiled:
            return jnp.moveaxis(found, 0, concat_axis)
        parts = jnp.moveaxis(found, 1, split_axis + 1)
        return jnp.concatenate([parts[r] for r in range(params["members"])], concat_axis)

    return tree.map(each, tree_of_arrays)


def permute(tree_of_arrays: Any, pairs: Sequence[tuple[int, int]], group: str = WORLD) -> Any:
    """Arrays sent along (source, destination) pairs of ranks; zeros where none arrives.

    Args:
      tree_of_arrays: arrays and numbers, of the same structure, shapes and dtypes in all processes.
      pairs: no source and no destination twice.
      group: the name of a group, of `new_group`.

    Returns: the tree, of arrays of the same shapes and dtypes.

    Raises: ShapeError for ranks that there are not, or that are named twice; CollectiveError as `all_reduce`.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> threads.run(3, lambda: int(rlx.distributed.permute(rlx.process_index(), ring)))
    [2, 0, 1]
    """
    params = {"pairs": tuple((int(s), int(d)) for s, d in pairs), **_group(group)}
    return tree.map(lambda x: process_permute(jnp.asarray(x), **params), tree_of_arrays)


def broadcast(tree_of_arrays: Any, root: int = 0, group: str = WORLD) -> Any:
    """The arrays of one process, in all of them.

    Args:
      tree_of_arrays: arrays and numbers, of the same structure, shapes and dtypes in all processes.
      root: the rank of the one whose values they are.
      group: the name of a group, of `new_group`.

    Returns: the tree, of arrays of the same shapes and dtypes.

    Raises: ShapeError for a rank that there is not; CollectiveError as `all_reduce`.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> threads.run(2, lambda: int(rlx.distributed.broadcast(rlx.process_index() + 5)))
    [5, 5]
    """
    params = {"root": int(root), **_group(group)}
    return tree.map(lambda x: process_broadcast(jnp.asarray(x), **params), tree_of_arrays)
