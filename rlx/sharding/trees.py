"""Trees of shardings and specs: one for each leaf of a tree of arrays, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlx.array import Array, ConcreteArray, Device, moved
from rlx.backends import memory_named
from rlx.errors import InputTypeError, ShardingError
from rlx.sharding.blocks import array_of_block, own_block, spans
from rlx.sharding.context import context_mesh
from rlx.sharding.mesh import AxisType, Mesh
from rlx.sharding.partition import resharded
from rlx.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding
from rlx.sharding.spec import UNCONSTRAINED, PartitionSpec, names_in
from rlx.sharding.stacks import restacked, stack_axes
from rlx.trace.builder import Tracer, state
from rlx.trace.spanning import SpanningArray
from rlx.trace.stacked import StackedArray
from rlx.trace.tracing import place_known
from rlx.trees import tree

__all__ = ["check_shape", "placed", "resolve", "resolve_explicit", "spread"]


def spread(owner: str, prefix: Any, full: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """An entry of `prefix` for each leaf of `full`. Raises ShardingError where it is no prefix of that tree."""
    entries, treedef = tree.flatten(prefix, lambda x: x is None or (is_leaf is not None and is_leaf(x)))
    try:
        parts = treedef.flatten_up_to(full)
    except (ValueError, TypeError):
        raise ShardingError(
            f"{owner} has the structure {treedef}, which is no prefix of that of the values, {tree.structure(full)}.",
            "Give one entry for each value, or one for a whole tuple, list or dict of them.",
        ) from None
    return [entry for entry, part in zip(entries, parts, strict=True) for _ in tree.leaves(part)]


def resolve(owner: str, entry: Any) -> Sharding | None:
    """A sharding as itself, a spec with the mesh in force, None as None. Raises InputTypeError for others.

    One over an empty mesh asks for nothing: it is what the type of an array says that nobody divided.
    """
    if entry is None or isinstance(entry, Sharding):
        return None if isinstance(entry, NamedSharding) and entry.mesh.empty else entry
    if isinstance(entry, PartitionSpec):
        return NamedSharding(context_mesh(owner, entry), entry)
    raise InputTypeError(
        f"{owner} got {entry!r:.60}, a {type(entry).__name__}, as a sharding.",
        "Pass a rlx.sharding.Sharding, a PartitionSpec under rlx.set_mesh, or None.",
    )


def resolve_explicit(owner: str, entry: Any) -> Sharding | None:
    """resolve, for functions that say how Explicit axes divide their result. Raises ShardingError for other axes."""
    found = resolve(owner, entry)
    if isinstance(found, NamedSharding):
        named = (*names_in(found.spec.partitions), *found.spec.unreduced, *found.spec.reduced)
        others = [n for n in named if found.mesh.type_of(n) is not AxisType.Explicit]
        if others:
            raise ShardingError(
                f"{owner} got {found.spec!r}, whose axis {others[0]!r} is {found.mesh.type_of(others[0])!r}.",
                "For Auto axes there is rlx.lax.with_sharding_constraint.",
            )
    return found


def check_shape(owner: str, sharding: Sharding | None, shape: Sequence[int]) -> None:
    """Raises ShardingError where an array of this shape cannot be divided so."""
    if sharding is not None:
        sharding.check_rank(owner, shape)
        sharding.shard_shape(shape)


def complete(sharding: NamedSharding, ndim: int) -> NamedSharding:
    """The sharding with an entry for each axis of an array: None for those that it leaves out."""
    spec = sharding.spec
    entries = [None if e is UNCONSTRAINED else e for e in spec.partitions]
    return sharding.update(spec=spec.update([*entries, *[None] * (ndim - len(entries))]))


def typed(sharding: Any, ndim: int) -> Any:
    """The sharding that an operation gives its result: over Explicit axes with an entry for each axis of the array."""
    explicit = isinstance(sharding, NamedSharding) and sharding.mesh.explicit_axes
    return complete(sharding, ndim) if explicit else sharding


def check_described(sharding: Any, shape: Sequence[int]) -> None:
    """Raises where this is no sharding or spec, or does not fit an array of this shape."""
    if not isinstance(sharding, (Sharding, PartitionSpec)):
        raise ShardingError(
            f"ShapeDtypeStruct got {sharding!r:.60}, a {type(sharding).__name__}, as its sharding.",
            "Pass a rlx.sharding.Sharding or a PartitionSpec.",
        )
    if isinstance(sharding, Sharding):
        check_shape("ShapeDtypeStruct", sharding, shape)


def placed(x: Array, sharding: Sharding | Device | None) -> Array:
    """The array where `sharding` says, copied there unless it lies there. None leaves it as it is.

    A traced value stays what it is, too: of one that several devices have is noted how they have it. Of an array that
    processes divide, this one takes its part. Where they divide it otherwise, traced functions exchange it. Raises
    ShardingError where nothing is traced. Parts of a sum are summed where the sharding does not ask for them.
    """
    if sharding is None:
        return x
    if type(x) is StackedArray or stack_axes(sharding):
        x = restacked(x, sharding)
        if type(x) is StackedArray:
            return x
    if isinstance(x, SpanningArray):
        if state.builder is not None and isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
            return resharded(x, sharding)
        return divided_so(x, sharding)
    if isinstance(sharding, NamedSharding) and spans(sharding):
        return array_of_block(own_block(x, sharding), x.shape, sharding)
    if not isinstance(x, ConcreteArray):
        if isinstance(x, Tracer) and isinstance(sharding, Sharding) and sharding.num_devices > 1:
            place_known(x, sharding)
        return x
    if isinstance(sharding, Device):
        sharding = SingleDeviceSharding(sharding)
    for device in sharding.devices[:1]:
        x = moved(x, memory_named(device.name))
    return x.with_sharding(sharding)


def divided_so(x: SpanningArray, sharding: Sharding | Device | None) -> SpanningArray:
    """The array, if processes divide it as a sharding says; raises ShardingError otherwise."""
    if sharding is None or (isinstance(sharding, Sharding) and x._sharding.is_equivalent_to(sharding, x.ndim)):
        return x
    raise ShardingError(
        f"A {x.type!r} that processes divide as {x._sharding.spec!r} would have to be exchanged between them, to lie as"
        f" {sharding!r} says.",
        "Exchange in rlx.shard_map (rlx.lax.all_gather, all_to_all), or on the host: device_put(process_allgather(x),"
        " sharding).",
    )


def placed_all(arrays: Iterable[Array], shardings: Iterable[Any]) -> list[Array]:
    """Each array where its sharding says."""
    return [placed(x, s) for x, s in zip(arrays, shardings, strict=True)]
