"""pmap: a function on each device, over an axis with as many members as there are devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from rlx.array import Array
from rlx.call.jit_options import numbers_of, refuse_uncallable
from rlx.call.jitted import Jitted
from rlx.errors import OptionError, ShardingError, VmapAxisError
from rlx.ir.collectives import communicator
from rlx.ops.shape import reshape
from rlx.sharding.blocks import spanning_axes
from rlx.sharding.grid import MappedAxes
from rlx.sharding.mesh import Mesh, known_devices, local_devices, too_many
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec
from rlx.sharding.trees import placed
from rlx.trace.flat import as_array, function_name
from rlx.trace.tracing import devices_in_scope, named_axis
from rlx.transforms.vmap import broadcast_prefix
from rlx.trees import tree

__all__ = ["Parallel", "pmap"]

_NAMELESS = "pmap axis"  # in the shardings of results, if no name was given


def pmap(
    fun: Callable[..., Any],
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
) -> Jitted:
    """A compiled function that runs `fun` on each device, on that device's member of the mapped axes.

    A mapped axis has at most as many elements as there are devices. All devices run as one
    program. rlx.vmap maps over longer axes.

    With several processes, all of them call it, and the devices are the devices of all processes. Each process passes
    and gets the members of its own devices; the axis in `fun` is over all of them.

    Args:
      fun: a function of arrays, or trees of them.
      axis_name: a name for the mapped axis, for rlx.lax.psum and related functions inside `fun`.
      in_axes: which axis of each positional argument is mapped: an int, None, or a tuple of trees of those, each a
        prefix of its argument. Keyword arguments are mapped over axis 0.
      out_axes: the position of the mapped axis in the results, in the same form.
      static_broadcasted_argnums: positional arguments that are constants of the program; hashable.
      devices: the devices to run on; the first of rlx.devices() if left out.
      backend: name of the device to compile for.
      axis_size: the number of members of all processes, if it is to be checked.
      donate_argnums: positional arguments whose memory may be reused.

    Returns: a jitted function of the same arguments.

    Raises: ShardingError for axes that are longer than there are devices; VmapAxisError for axes that do not fit.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> update = rlx.pmap(lambda w, g: w - rlx.lax.pmean(g, "devices"), axis_name="devices")
    >>> update(jnp.ones((1, 2)), jnp.ones((1, 2))).tolist()
    [[0.0, 0.0]]
    """
    refuse_uncallable(fun)
    mesh = _mesh(_NAMELESS if axis_name is None else axis_name, devices, axis_size)
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(type(axis) is int for axis in tree.leaves(axes)):
            raise OptionError(f"pmap got {name}={axes!r}.", "Its leaves are integers and None.")
    static = numbers_of(static_broadcasted_argnums)
    body = _Together(fun, mesh, in_axes, out_axes, static, axis_size)

    @wraps(fun)
    def together(*args: Any, **kwargs: Any) -> Any:
        return body(*args, **kwargs)

    donated = numbers_of(donate_argnums)
    mapped = Parallel(together, mesh, out_axes, static_argnums=static, donate_argnums=donated, device=backend)
    mapped.__wrapped__ = fun
    return mapped


def _mesh(label: Any, devices: Sequence[Any] | None, axis_size: int | None) -> Mesh:
    """The mesh of pmap's devices. Raises ShardingError for devices that it cannot map over."""
    if devices is not None and not devices:
        raise ShardingError("pmap got an empty list of devices.", "Leave it out.")
    every = known_devices() if devices_in_scope() == 1 else local_devices()
    mesh = Mesh(np.array(every if devices is None else devices), (label,))
    if axis_size is not None and axis_size > mesh.size:
        raise too_many("pmap", axis_size, mesh.size)
    return mesh


class _Together(NamedTuple):
    """A function of whole arrays that runs `fun` on each device's members of mapped axes; fields as pmap's options."""

    fun: Callable[..., Any]
    mesh: Mesh
    in_axes: Any
    out_axes: Any
    static: tuple[int, ...]
    axis_size: int | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        held = {i % len(args) for i in self.static if args and -len(args) <= i < len(args)}
        dynamic = tuple(a for i, a in enumerate(args) if i not in held)
        axes = self.in_axes
        if isinstance(axes, tuple):
            axes = tuple(a for i, a in enumerate(axes) if i not in held)
        found = broadcast_prefix(axes, dynamic, "in_axes") + [0] * len(tree.leaves(kwargs))
        leaves, treedef = tree.flatten((dynamic, kwargs))
        values = [as_array(x, "an argument of pmap") for x in leaves]
        pairs = zip(values, found, strict=True)
        places = [None if axis is None else _position(x.shape, axis, x.ndim) for x, axis in pairs]
        size = self._own_size(values, places)
        spanning = {axis.name: axis for axis in spanning_axes(self.mesh)}

        def on_device(*parts: Any) -> Any:
            members = [x if at is None else _without(x, at) for x, at in zip(parts, places, strict=True)]
            inner, keywords = tree.unflatten(treedef, members)
            rest = iter(inner)
            total = self.mesh.size if spanning else size
            return self._one([a if i in held else next(rest) for i, a in enumerate(args)], keywords, total)

        if size == 1 and not spanning:
            return on_device(*values)
        label = self.mesh.axis_names[0]
        grid = MappedAxes(function_name(self.fun), {label: size}, checked=False, spanning=spanning)
        specs = [_spec(label, at) for at in places]
        out, arrays = grid.run(on_device, values, specs, lambda out: _specs_of(label, out, self.out_axes))
        return tree.unflatten(tree.structure(out), arrays)

    def _own_size(self, values: Sequence[Array], places: Sequence[int | None]) -> int:
        """The size of the mapped axes in this process. Raises as `_size`, and ShardingError for other devices."""
        if not self.mesh.is_multi_process:
            size = _size(values, places, self.axis_size)
            if size * devices_in_scope() > self.mesh.size:
                raise too_many("pmap", size * devices_in_scope(), self.mesh.size)
            return size
        count, own, size = communicator().size, self.mesh.local_mesh.size, _size(values, places)
        if size != own or self.axis_size not in (None, self.mesh.size):
            raise ShardingError(
                f"pmap over {self.mesh.size} devices of {count} processes got mapped axes of size {size}"
                f"{'' if self.axis_size is None else f' and axis_size={self.axis_size}'}.",
                f"Each process passes a member for each of its {own} devices, or map over its own devices only:"
                " rlx.pmap(f, devices=rlx.local_devices()).",
            )
        return size

    def _one(self, args: Sequence[Any], kwargs: dict[str, Any], size: int) -> Any:
        """The results for one member of the mapped axes, with mapped axes of size 1."""
        with named_axis(self.mesh.axis_names[0], size, alone=size == 1, devices=size > 1):
            out = self.fun(*args, **kwargs)
        results, outdef = tree.flatten(out)
        wanted = broadcast_prefix(self.out_axes, out, "out_axes")
        return tree.unflatten(outdef, [_stacked(x, axis) for x, axis in zip(results, wanted, strict=True)])


class Parallel(Jitted):
    """A function that runs on each device; see `pmap`. Its results are divided along the mapped axis."""

    __wrapped__: Callable[..., Any]

    def __init__(self, fun: Callable[..., Any], mesh: Mesh, out_axes: Any, **options: Any) -> None:
        super().__init__(fun, **options)
        self.mesh, self.out_axes = mesh, out_axes
        self._shardings: dict[tuple[PartitionSpec, int], NamedSharding] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.delivered(super().__call__(*args, **kwargs))

    def delivered(self, out: Any) -> Any:
        """The results, known to be divided along their mapped axes."""
        leaves, treedef = tree.flatten(out)
        specs = _specs_of(self.mesh.axis_names[0], out, self.out_axes)
        divided = [x.shape[len(spec) - 1] for x, spec in zip(leaves, specs, strict=True) if spec]
        size = divided[0] if divided else self.mesh.size
        return tree.unflatten(treedef, [placed(x, self._on(s, size)) for x, s in zip(leaves, specs, strict=True)])

    def _on(self, spec: PartitionSpec, size: int) -> NamedSharding:
        """By this spec over the first devices."""
        found = self._shardings.get((spec, size))
        if found is None:
            whole = self.mesh.local_mesh if self.mesh.is_multi_process else self.mesh
            mesh = whole if size == whole.size else whole.update(whole.devices[:size])
            found = self._shardings[spec, size] = NamedSharding(mesh, spec)
        return found


def _spec(name: Any, at: int | None) -> PartitionSpec:
    return PartitionSpec() if at is None else PartitionSpec(*[None] * at, name)


def _specs_of(name: Any, out: Any, out_axes: Any) -> list[PartitionSpec]:
    """A spec for each leaf of the results, which have their mapped axes."""
    axes = broadcast_prefix(out_axes, out, "out_axes")
    pairs = zip(tree.leaves(out), axes, strict=True)
    return [_spec(name, None if axis is None else axis % len(x.shape)) for x, axis in pairs]


def _size(values: Sequence[Array], places: Sequence[int | None], axis_size: int | None = None) -> int:
    """The size of the mapped axes. Raises VmapAxisError if there is none, or if they have several sizes."""
    sizes = {x.shape[at] for x, at in zip(values, places, strict=True) if at is not None}
    if not sizes:
        raise VmapAxisError("pmap has no mapped argument.", "Give at least one argument an axis.")
    if axis_size is not None:
        sizes.add(axis_size)
    if len(sizes) > 1:
        raise VmapAxisError(f"pmap got mapped axes of different sizes {sorted(sizes)}.", "They have one size.")
    return sizes.pop()


def _without(x: Array, at: int) -> Array:
    """The member of a mapped axis that a device has."""
    return reshape(x, shape=x.shape[:at] + x.shape[at + 1 :])


def _stacked(x: Any, axis: int | None) -> Array:
    """A result with the mapped axis, of size 1."""
    value = as_array(x, "a result of pmap")
    if axis is None:
        return value
    at = _position(value.shape, axis, value.ndim + 1)
    return reshape(value, shape=(*value.shape[:at], 1, *value.shape[at:]))


def _position(shape: Sequence[int], axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise VmapAxisError(f"pmap was given the axis {axis} for an array of shape {tuple(shape)}.", "Use one it has.")
    return axis % ndim
