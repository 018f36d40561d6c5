"""Programs for several devices: meshes, specs, shardings, and maps over them.

The CPU acts as RLX_NUM_CPU_DEVICES devices that share one memory. A mesh with more devices than exist is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx.offered_names import offer_names
from rlx.sharding.context import auto_pcast, get_abstract_mesh, get_mesh, set_mesh, use_abstract_mesh, use_mesh
from rlx.sharding.mesh import AbstractDevice, AbstractMesh, AxisType, Mesh, make_mesh
from rlx.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding, make_single_device_sharding
from rlx.sharding.spec import PartitionSpec

P = PartitionSpec

if TYPE_CHECKING:  # imported on first use
    from rlx.sharding.arrays import Shard as Shard
    from rlx.sharding.arrays import make_array_from_callback as make_array_from_callback
    from rlx.sharding.arrays import make_array_from_process_local_data as make_array_from_process_local_data
    from rlx.sharding.arrays import make_array_from_single_device_arrays as make_array_from_single_device_arrays
    from rlx.sharding.constraint import auto_axes as auto_axes
    from rlx.sharding.constraint import explicit_axes as explicit_axes
    from rlx.sharding.constraint import reshard as reshard
    from rlx.sharding.manual_axes import ManualAxisType as ManualAxisType
    from rlx.sharding.mapped import shard_map as shard_map
    from rlx.sharding.mapped import smap as smap

    pmap: Any  # of a layer above

_ELSEWHERE = dict.fromkeys(("auto_axes", "explicit_axes", "reshard"), "rlx.sharding.constraint")
_ELSEWHERE["ManualAxisType"] = "rlx.sharding.manual_axes"
_ELSEWHERE |= dict.fromkeys(("shard_map", "smap"), "rlx.sharding.mapped")
_ELSEWHERE |= {"pmap": "rlx", "Shard": "rlx.sharding.arrays"}
_ARRAYS = "make_array_from_callback make_array_from_process_local_data make_array_from_single_device_arrays"
_ELSEWHERE |= dict.fromkeys(_ARRAYS.split(), "rlx.sharding.arrays")

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "NamedSharding",
    "P",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "auto_pcast",
    "get_abstract_mesh",
    "get_mesh",
    "make_mesh",
    "make_single_device_sharding",
    "set_mesh",
    "use_abstract_mesh",
    "use_mesh",
]
__all__.extend(_ELSEWHERE)

offer_names(globals(), _ELSEWHERE)
