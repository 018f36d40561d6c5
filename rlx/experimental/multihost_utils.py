"""Exchange between processes, by JAX's names: trees of arrays that all processes have. See rlx.distributed."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import is_array
from rlx.distributed import arrays, processes
from rlx.errors import ShardingError
from rlx.offered_names import offer_names
from rlx.sharding.arrays import device_put, make_array_from_process_local_data
from rlx.sharding.blocks import local_sharding, whole_of_blocks
from rlx.sharding.mesh import Mesh
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.trees import placed
from rlx.trace.spanning import is_spanning, local_of
from rlx.trees import tree

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "global_array_to_host_local_array",
    "host_local_array_to_global_array",
    "process_allgather",
    "reached_preemption_sync_point",
    "sync_global_devices",
]

offer_names(globals())


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The arrays of the process that has the data, as NumPy arrays.

    Args:
      in_tree: a tree of arrays, of the same structure, shapes and dtypes in all processes.
      is_source: whether this process has the data; None: the process with index 0 has it.

    Raises: ShardingError unless exactly one process has the data; CollectiveError if processes do not meet.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.broadcast_one_to_all({"seed": 3})
    {'seed': array(3)}
    """
    given = tree.map(np.asarray, in_tree)
    root = 0
    if is_source is not None:
        sources = np.flatnonzero(np.asarray(arrays.all_gather(bool(is_source))))
        if len(sources) != 1:
            raise ShardingError(f"broadcast_one_to_all found {len(sources)} sources.", "Set is_source in one process.")
        root = int(sources[0])
    return tree.map(np.asarray, arrays.broadcast(given, root))


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of all processes as NumPy arrays, stacked along a new first axis, or concatenated if `tiled`.

    Args:
      in_tree: a tree of arrays, of the same structure, shapes and dtypes in all processes. An array over devices of all
        processes gives the whole array.
      tiled: concatenate along the existing first axis; numbers, which have none, are stacked.

    Raises: CollectiveError if processes do not meet.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.process_allgather(3), multihost_utils.process_allgather([1.5], tiled=True)
    (array([3]), [array(1.5)])
    """

    def gathered(x: Any) -> np.ndarray:
        if is_spanning(x):
            return whole_of_blocks(np.asarray(arrays.all_gather(local_of(x))), x.shape, x._sharding)
        if is_array(x) and not x.is_fully_addressable:
            return np.asarray(x)
        given = np.asarray(x)
        if tiled and not given.ndim and processes.process_count() == 1:
            return given
        return np.asarray(arrays.all_gather(given, tiled=tiled and given.ndim > 0))

    return tree.map(gathered, in_tree)


def sync_global_devices(name: str) -> None:
    """Wait until all processes have reached this point. name: of the point, equal in all processes.

    Raises: CollectiveError if a process does not arrive, or is at another point.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.sync_global_devices("start")
    """
    processes.barrier(name=name)


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raises AssertionError unless all processes have equal arrays, without NaN.

    Args: in_tree: a tree of arrays. fail_message: the error's message.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.assert_equal({"step": 3})
    """
    for found in map(np.asarray, tree.leaves(in_tree)):
        rows = np.asarray(arrays.all_gather(found))
        if (rows != rows).any():
            raise AssertionError(f"{fail_message} A value is NaN, which equals nothing.")
        if (rows != rows[0]).any():
            ranks = [rank for rank, row in enumerate(rows) if (row != rows[0]).any()]
            raise AssertionError(f"{fail_message} Processes {ranks} have other values than process 0.")


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether processes will be preempted and have reached this step: False, as single processes are not preempted.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.reached_preemption_sync_point(10)
    False
    """
    return False


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """The arrays of each process as parts of arrays over all processes: with one process, the arrays.

    Args:
      local_inputs: a tree of arrays. global_mesh: the mesh.
      pspecs: a PartitionSpec, or a tree of specs that is a prefix of local_inputs.

    Raises: ShardingError for incompatible specs.

    >>> import rlx
    >>> from rlx.experimental import multihost_utils
    >>> mesh = rlx.make_mesh((1,), ("x",))
    >>> multihost_utils.host_local_array_to_global_array(rlx.numpy.ones(2), mesh, rlx.P("x")).sharding.spec
    P('x',)
    """
    shardings = tree.map(lambda spec: NamedSharding(global_mesh, spec), pspecs)
    return make_array_from_process_local_data(shardings, local_inputs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """This process's parts of arrays over all processes: with one process, the arrays.

    Args: as of host_local_array_to_global_array.

    >>> import rlx
    >>> from rlx.experimental import multihost_utils
    >>> mesh = rlx.make_mesh((1,), ("x",))
    >>> multihost_utils.global_array_to_host_local_array(rlx.numpy.ones(2), mesh, rlx.P()).tolist()
    [1.0, 1.0]
    """
    shardings = tree.map(lambda spec: NamedSharding(global_mesh, spec), pspecs)
    divided = device_put(global_inputs, shardings)

    def own(x: Any) -> Any:
        return placed(local_of(x), local_sharding(x._sharding)) if is_spanning(x) else x

    return tree.map(own, divided)
