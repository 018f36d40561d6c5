"""How arrays and the operands of an operation are divided: the names of mesh axes for each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from rlx.ir.types import TensorType
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec, names_of_entry

__all__ = ["Division", "Names", "chosen_places", "division_of", "joined", "joined_shardings", "shared_names", "spec_of"]

Names = tuple[Any, ...]  # the mesh axes that an axis of an array is divided over
Division = tuple[Names, ...]  # for each axis of an array


def division_of(sharding: Any, ndim: int) -> Division | None:
    """How a sharding divides the axes of an array; None if it does not specify that."""
    if not isinstance(sharding, NamedSharding):
        return None
    entries = tuple(map(names_of_entry, sharding.spec.partitions))
    return entries + ((),) * (ndim - len(entries))


def spec_of(division: Division) -> PartitionSpec:
    """As a spec that ends with the last divided axis."""
    count = max((axis + 1 for axis, names in enumerate(division) if names), default=0)
    return PartitionSpec(*division[:count])


def shared_names(have: Names, want: Names) -> Names:
    """The leading names that two divisions of an axis share: dividing it further needs no exchange."""
    count = next((i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b), min(len(have), len(want)))
    return have[:count]


def joined(divisions: Sequence[Division | None]) -> Division | None:
    """For each axis, the first division whose mesh axes are still free; None if none is known."""
    known = [division for division in divisions if division is not None]
    if not known:
        return None
    chosen: list[Names] = [()] * len(known[0])
    for division in known:
        for axis, names in enumerate(division):
            if not chosen[axis] and not {name for taken in chosen for name in taken} & set(names):
                chosen[axis] = names
    return tuple(chosen)


def joined_shardings(shardings: Sequence[NamedSharding | None], ndim: int) -> NamedSharding | None:
    """A sharding for values that are divided this way, over the mesh of the first; None if no axis is divided."""
    known = [s for s in shardings if s is not None]
    if not known or all(s == known[0] for s in known):
        return known[0] if known else None
    found = joined([division_of(s, ndim) for s in known if s.mesh == known[0].mesh])
    assert found is not None
    return NamedSharding(known[0].mesh, spec_of(found))


def chosen_places(
    sizes: Mapping[Any, int],
    axis_map: Sequence[Sequence[int | None]],
    operands: Sequence[Division | None],
    result: TensorType,
) -> dict[int, Names]:
    """The division of each axis position: taken from the first operand whose mesh axes are still free."""
    chosen: dict[int, Names] = {}
    for division, places in zip(operands, axis_map, strict=True):
        for place, names in zip(places, division or (), strict=False):
            used = {name for taken in chosen.values() for name in taken}
            if place is None or not names or place in chosen or not used.isdisjoint(names):
                continue
            if place < 0 or result.shape[place] % prod(sizes[name] for name in names) == 0:
                chosen[place] = names
    return chosen
