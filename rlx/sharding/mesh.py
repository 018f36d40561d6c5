"""Meshes: devices in a grid whose axes have names."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlx.array import Device
from rlx.backends import default_devices, devices_of, own_devices
from rlx.config import config
from rlx.errors import InputTypeError, ShardingError
from rlx.forks import cached_property
from rlx.ir.collectives import communicator

__all__ = ["AbstractDevice", "AbstractMesh", "AxisType", "Mesh", "make_mesh"]


class AxisType(enum.Enum):
    """What divides arrays over a mesh axis: the compiler (Auto), array types (Explicit), or the program (Manual).

    >>> import rlx
    >>> rlx.sharding.AxisType.Auto
    Auto
    """

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class AbstractDevice:
    """A kind of device. No device of this kind needs to exist on the machine.

    >>> import rlx
    >>> rlx.sharding.AbstractDevice("cpu", None, "cpu")
    AbstractDevice(device_kind=cpu, num_cores=None, platform=cpu)
    """

    device_kind: str
    num_cores: int | None
    platform: str

    def __repr__(self) -> str:
        return f"AbstractDevice(device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform})"


def _types_of(owner: str, names: Sequence[Any], types: Any) -> tuple[AxisType, ...]:
    found = (AxisType.Auto,) * len(names) if types is None else types if isinstance(types, tuple) else (types,)
    if not all(isinstance(t, AxisType) for t in found):
        raise InputTypeError(f"{owner} got axis_types={types!r}.", "Pass a tuple of rlx.sharding.AxisType.")
    if len(found) != len(names):
        raise ShardingError(f"{owner} got {len(names)} axis names and {len(found)} axis types.", "Pass one of each.")
    return found


class _MeshAxes:
    """The common part of meshes with and without devices: names, sizes and types of axes."""

    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    size: int

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        """Pairs of name and size."""
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape(self) -> OrderedDict[Any, int]:
        """Sizes by name."""
        return OrderedDict(self.shape_tuple)

    @property
    def empty(self) -> bool:
        """Whether there are no devices."""
        return self.size == 0

    def names_of_type(self, kind: AxisType) -> tuple[Any, ...]:
        """The axes of a type."""
        return tuple(n for n, t in zip(self.axis_names, self.axis_types, strict=True) if t is kind)

    def type_of(self, name: Any) -> AxisType:
        """The type of an axis."""
        return self.axis_types[self.axis_names.index(name)]

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        """The axes of type Auto."""
        return self.names_of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        """The axes of type Explicit."""
        return self.names_of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        """The axes of type Manual."""
        return self.names_of_type(AxisType.Manual)

    def _all(self, kind: AxisType) -> bool:
        return bool(self.axis_types) and all(t is kind for t in self.axis_types)

    @property
    def are_all_axes_auto(self) -> bool:
        """Whether every axis, and at least one, is of type Auto."""
        return self._all(AxisType.Auto)

    @property
    def are_all_axes_explicit(self) -> bool:
        """Whether every axis, and at least one, is of type Explicit."""
        return self._all(AxisType.Explicit)

    @property
    def are_all_axes_manual(self) -> bool:
        """Whether every axis, and at least one, is of type Manual."""
        return self._all(AxisType.Manual)

    def _described(self) -> str:
        return ", ".join(f"'{name}': {size}" for name, size in self.shape_tuple)


class AbstractMesh(_MeshAxes):
    """The names, sizes and types of a mesh's axes, without devices.

    Args:
      axis_sizes: a size for each axis. axis_names: a name for each. axis_types: an AxisType for each; Auto by default.
      abstract_device: the kind of devices, or None.

    Raises: ShardingError if the numbers of names, sizes and types differ.

    >>> import rlx
    >>> mesh = rlx.sharding.AbstractMesh((4, 2), ("data", "model"))
    >>> mesh.shape["model"], mesh.size
    (2, 8)
    >>> rlx.NamedSharding(mesh, rlx.P("data")).shard_shape((64, 3))
    (16, 3)
    """

    def __init__(
        self,
        axis_sizes: Sequence[int],
        axis_names: Any,
        axis_types: Any = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ) -> None:
        self.axis_sizes = tuple(axis_sizes)
        self.axis_names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if len(self.axis_sizes) != len(self.axis_names):
            raise ShardingError(
                f"AbstractMesh got sizes {self.axis_sizes} and names {self.axis_names}.", "Pass both for each axis."
            )
        self.axis_types = _types_of("AbstractMesh", self.axis_names, axis_types)
        self.abstract_device = abstract_device
        self.size = math.prod(self.axis_sizes) if self.axis_sizes else 0

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """Itself."""
        return self

    def update(self, axis_sizes: Any = None, axis_names: Any = None, axis_types: Any = None) -> AbstractMesh:
        """The mesh with other sizes, names or types."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            abstract_device=self.abstract_device,
        )

    def update_axis_types(self, types: dict[Any, AxisType]) -> AbstractMesh:
        """The mesh with the named axes of other types."""
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return self.update(axis_types=tuple(types.get(name, old) for name, old in pairs))

    def _key(self) -> tuple[Any, ...]:
        return self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, AbstractMesh) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> Any:
        return _rebuild_abstract, self._key()

    def __repr__(self) -> str:
        kind = "" if self.abstract_device is None else f", {repr(self.abstract_device)[15:-1]}"
        return f"AbstractMesh({self._described() or '()'}, axis_types={self.axis_types}{kind})"

    def _without_devices(self) -> Any:
        raise ShardingError(
            "An AbstractMesh has no devices, and cannot be entered as a context.",
            "Use rlx.sharding.Mesh, or rlx.sharding.use_abstract_mesh(mesh).",
        )

    devices = device_ids = local_devices = local_mesh = is_multi_process = property(_without_devices)

    def __enter__(self) -> Any:
        return self._without_devices()

    def __exit__(self, *_: object) -> None:
        self._without_devices()


def _rebuild_abstract(sizes: Any, names: Any, types: Any, device: Any) -> AbstractMesh:
    return AbstractMesh(sizes, names, types, abstract_device=device)


class Mesh(_MeshAxes, ContextDecorator):
    """The devices of a program in a grid whose axes have names.

    A `with` block over a mesh gives partition specs in it a meaning, as rlx.set_mesh does.

    Args:
      devices: NumPy array (or nested sequence) of rlx.Device, with an axis for each name.
      axis_names: a name, or a sequence of names.
      axis_types: an AxisType for each axis; Auto by default.

    Raises: ShardingError for more devices than exist, a repeated device, or different numbers of axes and names.

    >>> import numpy as np
    >>> import rlx
    >>> mesh = rlx.sharding.Mesh(np.array(rlx.devices()).reshape(1, 1), ("data", "model"))
    >>> mesh, mesh.shape["data"]
    (Mesh(axis_sizes=(1, 1), axis_names=('data', 'model'), axis_types=(Auto, Auto)), 1)
    """

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        grid = devices if isinstance(devices, np.ndarray) else np.array(devices)
        self.axis_names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if None in self.axis_names:
            raise ShardingError(f"Mesh got axis names {self.axis_names}.", "None is not an axis name.")
        if grid.ndim != len(self.axis_names):
            raise ShardingError(
                f"Mesh got devices of {grid.ndim} axes and {len(self.axis_names)} axis names {self.axis_names}.",
                "Reshape the devices, so that each axis has a name: np.array(rlx.devices()).reshape(...).",
            )
        self.axis_types = _types_of("Mesh", self.axis_names, axis_types)
        self._empty = not self.axis_names and grid.item() is None
        if not self._empty:
            _check_devices("Mesh", grid.ravel().tolist())
        self.devices = grid.astype(object)
        self.devices.flags.writeable = False
        self.axis_sizes = grid.shape
        self.size = 0 if self._empty else grid.size
        # the ranks of processes in a grid: each process has a block of the mesh
        self.processes = np.zeros((1,) * grid.ndim, int) if self._empty else _process_grid(self.devices)

    @property
    def is_scalar(self) -> bool:
        """Whether it is one device without axes."""
        return self.size == 1 and not self.axis_names

    @property
    def is_multi_process(self) -> bool:
        """Whether some of the devices belong to other processes."""
        return len(self.local_devices) < self.size

    @property
    def local_devices(self) -> list[Device]:
        """The devices of this process."""
        return own_devices(self.all_devices)

    @property
    def all_devices(self) -> list[Device]:
        """The devices of all processes."""
        return [] if self._empty else list(self.devices.flat)

    @property
    def process_counts(self) -> tuple[int, ...]:
        """The number of processes along each axis."""
        return self.processes.shape

    @property
    def local_sizes(self) -> tuple[int, ...]:
        """The length of each axis within a process's block."""
        return tuple(n // count for n, count in zip(self.axis_sizes, self.process_counts, strict=True))

    @property
    def process_position(self) -> tuple[int, ...]:
        """This process's position in the grid of processes. Raises ShardingError if it has no device of the mesh."""
        own = communicator().rank
        found = np.argwhere(self.processes == own)
        if not len(found):
            raise ShardingError(
                f"Process {own} has none of the devices of {self}.", "Use it only in processes that have some."
            )
        return tuple(map(int, found[0]))

    @property
    def local_mesh(self) -> Mesh:
        """The block of this process. Raises ShardingError if it has no device of the mesh."""
        if not self.is_multi_process:
            return self
        places = zip(self.process_position, self.local_sizes, strict=True)
        return self.update(self.devices[tuple(slice(at * n, (at + 1) * n) for at, n in places)])

    @property
    def device_ids(self) -> np.ndarray:
        """The devices' numbers."""
        return np.array([d.id for d in self.all_devices], int).reshape(self.devices.shape)

    @cached_property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices."""
        if not self.axis_names:
            return AbstractMesh((), ())
        device = self.devices.flat[0]
        kind = AbstractDevice(device.device_kind, None, device.platform)
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types, abstract_device=kind)

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """The mesh with other devices, names or types."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return tuple(self.devices.flat), self.devices.shape, self.axis_names, self.axis_types

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Mesh) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> Any:
        return Mesh, (self.devices, self.axis_names, self.axis_types)

    def __str__(self) -> str:
        return f"Mesh({self._described()}, axis_types={self.axis_types})" if not self._empty else "Mesh()"

    def __repr__(self) -> str:
        if self._empty:
            return "Mesh(axis_sizes=(), axis_names=())"
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, axis_types={self.axis_types})"

    def __enter__(self) -> Mesh:
        found = current()
        set_current(found._replace(entered=(*found.entered, self)))
        return self

    def __exit__(self, *_: object) -> None:
        found = current()
        set_current(found._replace(entered=found.entered[:-1]))


class MeshContext(NamedTuple):
    """The meshes in force: from set_mesh, from use_abstract_mesh (without devices), and from open `with mesh` blocks.

    casts_by_hand: rlx.auto_pcast(False) is in force.
    """

    concrete: Mesh | None = None
    abstract: AbstractMesh | None = None
    entered: tuple[Mesh, ...] = ()
    casts_by_hand: bool = False


def current() -> MeshContext:
    """The meshes in force in this thread."""
    return config.mesh or MeshContext()


def set_current(context: MeshContext) -> None:
    """Put other meshes in force. Functions are traced again under them."""
    vars(config)["mesh"] = context if any(context) else None
    config.refresh()


def known_devices() -> list[Device]:
    """The devices that programs run on, of all processes."""
    return default_devices()


def local_devices() -> list[Device]:
    """The devices of this process that programs run on."""
    return own_devices(known_devices())


def too_many(owner: str, wanted: int, available: int | None = None) -> ShardingError:
    """The error for a mesh with more devices than exist."""
    found = len(known_devices()) if available is None else available
    return ShardingError(
        f"{owner} needs {wanted} devices, but {_who_has()} {found}.",
        f"Set RLX_NUM_CPU_DEVICES={wanted} before importing rlx to divide the CPU into devices. Otherwise use"
        " size 1 for every axis of the mesh, or map with rlx.vmap.",
    )


def _who_has() -> str:
    count = communicator().size
    return "this process has" if count == 1 else f"{count} processes have"


def _process_grid(devices: np.ndarray) -> np.ndarray:
    """The ranks of the processes that have devices, in a grid: each process has a block of the same shape.

    Raises ShardingError if they do not.
    """
    ranks = np.array([d.process_index for d in devices.flat], int).reshape(devices.shape)
    counts, shape = [], []
    for axis, size in enumerate(devices.shape):
        line = ranks[tuple(slice(None) if i == axis else 0 for i in range(devices.ndim))]
        local = int(np.argmax(line != line[0])) or size  # the length of the first process's block
        counts.append(-(-size // local))
        shape += [counts[-1], local]
    if math.prod(shape) == ranks.size:
        blocks, inside = ranks.reshape(shape), tuple(range(1, len(shape), 2))
        grid = blocks.min(axis=inside)
        if (grid == blocks.max(axis=inside)).all() and len(np.unique(grid)) == grid.size:
            return np.asarray(grid)
    raise ShardingError(
        f"Mesh got devices in an order in which processes have no blocks of the mesh; the devices' processes are"
        f" {ranks.tolist()}.",
        "Order them so that each process has a contiguous block, of the same shape in all processes:"
        " np.array(rlx.devices()).reshape(...) with axes that match the number of devices in each process.",
    )


def _check_devices(owner: str, devices: Sequence[Any]) -> None:
    strangers = [d for d in devices if not isinstance(d, Device)]
    if strangers:
        raise InputTypeError(f"{owner} got {strangers[0]!r} as a device.", "Pass devices of rlx.devices().")
    known = devices_of(devices[0].platform) if devices else []
    if len(devices) > len(known):
        raise too_many(owner, len(devices), len(known))
    twice = [d for d in devices if devices.count(d) > 1]
    if twice or any(d not in known for d in devices):
        raise ShardingError(f"{owner} got the devices {list(devices)}.", f"Pass others, each once, of {known}.")


def sizes_of(owner: str, sizes: Any) -> tuple[int, ...]:
    """Sizes of axes as a tuple. Raises ShardingError unless they are a sequence of integers."""
    try:
        return tuple(int(n.__index__()) for n in sizes)
    except (TypeError, AttributeError):
        raise ShardingError(f"{owner} got sizes {sizes!r}.", "Pass a sequence of integers.") from None


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Any, axis_types: Any = None, *, devices: Sequence[Device] | None = None
) -> Mesh:
    """A mesh of the devices, of all processes.

    Args:
      axis_shapes: the size of each axis. Their product is at most the number of devices.
      axis_names: a name for each axis. axis_types: an AxisType for each; Explicit by default.
      devices: the devices to use; all by default.

    Raises: ShardingError for more devices than exist.

    >>> import rlx
    >>> rlx.make_mesh((1, 1), ("data", "model")).shape["data"]
    1
    """
    sizes = sizes_of("make_mesh", axis_shapes)
    given = known_devices() if devices is None else list(devices)
    count = math.prod(sizes)
    if count > len(given):
        raise too_many("make_mesh", count, len(given))
    types = (AxisType.Explicit,) * len(sizes) if axis_types is None else axis_types
    return Mesh(np.array(given[:count], object).reshape(sizes), axis_names, types)
