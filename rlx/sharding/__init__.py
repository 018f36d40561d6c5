"""Programs for several devices: meshes, specs, shardings, and maps over them.

The CPU is as many devices as RLX_NUM_CPU_DEVICES says, over one memory; a mesh of more than there are is an error.
"""

from __future__ import annotations

import importlib
from typing import Any

from rlx.habits import missing_name
from rlx.sharding.context import auto_pcast, get_abstract_mesh, get_mesh, set_mesh, use_abstract_mesh, use_mesh
from rlx.sharding.mesh import AbstractDevice, AbstractMesh, AxisType, Mesh, make_mesh
from rlx.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding, make_single_device_sharding
from rlx.sharding.spec import PartitionSpec

P = PartitionSpec

# imported on first use
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


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        value = globals()[name] = getattr(importlib.import_module(_ELSEWHERE[name]), name)
        return value
    raise missing_name(__name__, name, __all__)
