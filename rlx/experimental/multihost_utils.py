"""Exchange between processes, of which there is one."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.sharding.arrays import device_put
from rlx.sharding.mesh import Mesh
from rlx.sharding.shardings import NamedSharding
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


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The arrays of the process that has the data, as NumPy arrays: of this one.

    Args: in_tree: a tree of arrays. is_source: whether this process has the data; it is the only one.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.broadcast_one_to_all({"seed": 3})
    {'seed': array(3)}
    """
    return tree.map(np.asarray, in_tree)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of all processes as NumPy arrays, stacked along a new first axis, or with `tiled` joined.

    Args: in_tree: a tree of arrays. tiled: join them along the first axis that they have.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.process_allgather(3), multihost_utils.process_allgather([1.5], tiled=True)
    (array([3]), [array(1.5)])
    """
    return tree.map(lambda x: np.asarray(x) if tiled else np.asarray(x)[None], in_tree)


def sync_global_devices(name: str) -> None:
    """Wait until all processes have come here: there is one. name: of the place.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.sync_global_devices("start")
    """


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raises AssertionError unless all processes have equal arrays, not NaN: there is one.

    Args: in_tree: a tree of arrays. fail_message: the error's text.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.assert_equal({"step": 3})
    """
    if any((array != array).any() for array in map(np.asarray, tree.leaves(in_tree))):
        raise AssertionError(f"{fail_message} A value is NaN, which equals nothing.")


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether processes are about to be stopped, and have all come to this step: nobody stops one process.

    >>> from rlx.experimental import multihost_utils
    >>> multihost_utils.reached_preemption_sync_point(10)
    False
    """
    return False


def _put(inputs: Any, mesh: Mesh, specs: Any) -> Any:
    return device_put(inputs, tree.map(lambda spec: NamedSharding(mesh, spec), specs))


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """The arrays of each process as parts of arrays over all processes: with one process, the arrays.

    Args:
      local_inputs: a tree of arrays. global_mesh: the mesh.
      pspecs: a PartitionSpec, or a tree of them that is a prefix of local_inputs.

    Raises: ShardingError for specs that do not fit.

    >>> import rlx
    >>> from rlx.experimental import multihost_utils
    >>> mesh = rlx.make_mesh((1,), ("x",))
    >>> multihost_utils.host_local_array_to_global_array(rlx.numpy.ones(2), mesh, rlx.P("x")).sharding.spec
    P('x',)
    """
    return _put(local_inputs, global_mesh, pspecs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """This process's parts of arrays over all processes: with one process, the arrays.

    Args: as of host_local_array_to_global_array.

    >>> import rlx
    >>> from rlx.experimental import multihost_utils
    >>> mesh = rlx.make_mesh((1,), ("x",))
    >>> multihost_utils.global_array_to_host_local_array(rlx.numpy.ones(2), mesh, rlx.P()).tolist()
    [1.0, 1.0]
    """
    return _put(global_inputs, global_mesh, pspecs)
