"""Trees of shardings and specs, checked and expanded to one for each leaf of a tree of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlx.array import Array, ConcreteArray, Device, is_concrete, moved
from rlx.backends import memory_named
from rlx.errors import InputTypeError, ShardingError
from rlx.sharding.blocks import array_of_block, own_block, spans
from rlx.sharding.context import context_mesh
from rlx.sharding.mesh import AxisType, Mesh, current
from rlx.sharding.partition import resharded
from rlx.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding
from rlx.sharding.spec import UNCONSTRAINED, PartitionSpec, names_in
from rlx.sharding.stacks import restacked, stack_axes
from rlx.trace.builder import Tracer
from rlx.trace.flat import as_array
from rlx.trace.spanning import is_spanning
from rlx.trace.stacked import is_stacked
from rlx.trace.tracing import place_known
from rlx.trees import tree

__all__ = ["check_shape", "divided_as", "on_devices", "placed", "resolve", "resolve_explicit", "spread"]


def spread(owner: str, prefix: Any, full: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """An entry of `prefix` for each leaf of `full`. Raises ShardingError if it is not a prefix of that tree."""
    entries, treedef = tree.flatten(prefix, lambda x: x is None or (is_leaf is not None and is_leaf(x)))
    try:
        parts = treedef.flatten_up_to(full)
    except (ValueError, TypeError):
        raise ShardingError(
            f"{owner} has the structure {treedef}, which is not a prefix of the values', {tree.structure(full)}.",
            "Pass one entry for each value, or one for a whole tuple, list or dict of values.",
        ) from None
    return [entry for entry, part in zip(entries, parts, strict=True) for _ in tree.leaves(part)]


def resolve(owner: str, entry: Any) -> Sharding | None:
    """A sharding unchanged, a spec with the mesh in force, None as None. Raises InputTypeError for anything else.

    A sharding over an empty mesh counts as None: it is the type of an array that was never divided.
    """
    if entry is None or isinstance(entry, Sharding):
        return None if isinstance(entry, NamedSharding) and entry.mesh.empty else entry
    if isinstance(entry, PartitionSpec):
        return NamedSharding(context_mesh(owner, entry), entry)
    raise InputTypeError(
        f"{owner} got {entry!r:.60}, a {type(entry).__name__}, as a sharding.",
        "Pass a rlx.sharding.Sharding, a PartitionSpec under rlx.set_mesh, or None.",
    )


def on_devices(sharding: Sharding | None) -> Sharding | None:
    """A sharding over the abstract mesh in force, over the mesh's devices; other shardings unchanged."""
    mesh = current().concrete
    if mesh is None or not isinstance(sharding, NamedSharding) or sharding.mesh != mesh.abstract_mesh:
        return sharding
    return NamedSharding(mesh, sharding.spec)


def resolve_explicit(owner: str, entry: Any) -> Sharding | None:
    """resolve, for functions that specify how Explicit axes divide a result. Raises ShardingError for other axes."""
    found = resolve(owner, entry)
    if isinstance(found, NamedSharding):
        named = (*names_in(found.spec.partitions), *found.spec.unreduced, *found.spec.reduced)
        others = [n for n in named if found.mesh.type_of(n) is not AxisType.Explicit]
        if others:
            raise ShardingError(
                f"{owner} got {found.spec!r}, whose axis {others[0]!r} is {found.mesh.type_of(others[0])!r}.",
                "Use rlx.lax.with_sharding_constraint for Auto axes.",
            )
    return found


def check_shape(owner: str, sharding: Sharding | None, shape: Sequence[int]) -> None:
    """Raises ShardingError if an array of this shape cannot be divided this way."""
    if sharding is not None:
        sharding.check_rank(owner, shape)
        sharding.shard_shape(shape)


def complete(sharding: NamedSharding, ndim: int) -> NamedSharding:
    """The sharding with an entry for each axis of an array; axes without an entry get None."""
    spec = sharding.spec
    entries = [None if e is UNCONSTRAINED else e for e in spec.partitions]
    return sharding.update(spec=spec.update([*entries, *[None] * (ndim - len(entries))]))


def typed(sharding: Any, ndim: int) -> Any:
    """The sharding of an operation's result: over Explicit axes, with an entry for each axis of the array."""
    explicit = isinstance(sharding, NamedSharding) and sharding.mesh.explicit_axes
    return complete(sharding, ndim) if explicit else sharding


def check_described(sharding: Any, shape: Sequence[int]) -> None:
    """Raises if this is not a sharding or spec, or does not match an array of this shape."""
    if not isinstance(sharding, (Sharding, PartitionSpec)):
        raise ShardingError(
            f"ShapeDtypeStruct got {sharding!r:.60}, a {type(sharding).__name__}, as its sharding.",
            "Pass a rlx.sharding.Sharding or a PartitionSpec.",
        )
    if isinstance(sharding, Sharding):
        check_shape("ShapeDtypeStruct", sharding, shape)


def placed(x: Array, sharding: Sharding | Device | None) -> Array:
    """The array with the sharding `sharding`, copied only if necessary. None leaves it unchanged.

    The sharding of a traced value is recorded if it has several devices. If the sharding spans processes, this process
    takes its part of the array; parts that are already divided over processes are exchanged. Parts of a sum are summed
    if the sharding does not have these unreduced axes.
    """
    if sharding is None:
        return x
    if is_stacked(x) or stack_axes(sharding):
        x = restacked(x, sharding)
        if is_stacked(x):
            return x
    if is_spanning(x):
        if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
            return resharded(x, sharding)
        return divided_so(x, sharding)
    if isinstance(sharding, NamedSharding) and spans(sharding):
        return array_of_block(own_block(x, sharding), x.shape, sharding)
    if not is_concrete(x):
        if isinstance(x, Tracer) and isinstance(sharding, Sharding) and sharding.num_devices > 1:
            place_known(x, sharding)
        return x
    if isinstance(sharding, Device):
        sharding = SingleDeviceSharding(sharding)
    for device in sharding.devices[:1]:
        x = moved(x, memory_named(device.name))
    return x.with_sharding(sharding)


def divided_as(x: Array, like: Any) -> Array:
    """The array divided over processes like another value. Every process has all of it if that is not divided."""
    if is_spanning(like):
        return placed(as_array(x), like._sharding)
    return placed(x, NamedSharding(x._sharding.mesh, PartitionSpec())) if is_spanning(x) else x


def divided_so(x: ConcreteArray, sharding: Sharding | Device | None) -> ConcreteArray:
    """The array, if processes divide it according to the sharding. Raises ShardingError otherwise."""
    if sharding is None or (isinstance(sharding, Sharding) and x._sharding.is_equivalent_to(sharding, x.ndim)):
        return x
    raise ShardingError(
        f"A {x.type!r} that processes divide as {x._sharding.spec!r} would have to be exchanged between them to get"
        f" {sharding!r}.",
        "Exchange in rlx.shard_map (rlx.lax.all_gather, all_to_all), or on the host: device_put(process_allgather(x),"
        " sharding).",
    )


def placed_all(arrays: Iterable[Array], shardings: Iterable[Any]) -> list[Array]:
    """Each array with its sharding."""
    return [placed(x, s) for x, s in zip(arrays, shardings, strict=True)]
