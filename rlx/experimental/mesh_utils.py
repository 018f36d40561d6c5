"""Grids of devices for meshes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShardingError
from rlx.offered_names import offer_names
from rlx.sharding.mesh import known_devices, sizes_of

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]

offer_names(globals())


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """The devices in a grid, for rlx.sharding.Mesh.

    Args:
      mesh_shape: the grid's shape. devices: the devices to use; by default all.
      contiguous_submeshes, allow_split_physical_axes: ignored: they describe how devices are wired.

    Returns: a NumPy array of devices.

    Raises: ShardingError if the number of devices differs from the grid's.

    >>> from rlx.experimental import mesh_utils
    >>> mesh_utils.create_device_mesh((1, 1)).shape
    (1, 1)
    """
    shape = sizes_of("create_device_mesh", mesh_shape)
    given = known_devices() if devices is None else list(devices)
    if math.prod(shape) != len(given):
        raise ShardingError(
            f"create_device_mesh was asked for a grid of {math.prod(shape)} devices, but was given {len(given)}.",
            "The numbers must be equal: pass rlx.devices()[:n], or set RLX_NUM_CPU_DEVICES.",
        )
    grid = np.empty(len(given), object)
    grid[:] = given
    return grid.reshape(shape)


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """The devices in a grid of grids of nearby devices; with one process, of one grid.

    Args:
      mesh_shape: the shape of a grid of nearby devices. dcn_mesh_shape: the number of grids along each axis: 1.
      devices: the devices to use; by default all.
      process_is_granule: devices of one process are near each other. Otherwise devices state by `slice_index` which
        devices are near, and rlx's do not.
      should_sort_granules_by_key, allow_split_physical_axes: accepted for JAX compatibility.

    Returns: a NumPy array of devices.

    Raises: ShardingError if devices do not state which ones are near, or the numbers of devices or grids differ.

    >>> from rlx.experimental import mesh_utils
    >>> mesh_utils.create_hybrid_device_mesh((1, 1), (1, 1), process_is_granule=True).shape
    (1, 1)
    """
    given = known_devices() if devices is None else list(devices)
    key = "process_index" if process_is_granule else "slice_index"
    if not all(hasattr(device, key) for device in given):
        raise ShardingError(f"{given[0]!r} has no {key}.", "Pass process_is_granule=True.")
    groups = {getattr(device, key) for device in given}
    if len(groups) != 1 or math.prod(dcn_mesh_shape) != 1:
        raise ShardingError(
            f"create_hybrid_device_mesh was asked for {math.prod(dcn_mesh_shape)} grids of nearby devices, but the"
            f" devices form {len(groups)}.",
            "This process has one device, which is one grid.",
        )
    return create_device_mesh(mesh_shape, given)
