"""How arrays and the operands of an operation are divided, as the names of mesh axes for each of their axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from rlx.ir.types import TensorType
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec, names_of_entry

__all__ = ["Division", "Names", "chosen_places", "division_of", "shared_names", "spec_of"]

Names = tuple[Any, ...]  # the mesh axes that an axis of an array is divided over
Division = tuple[Names, ...]  # of each axis of an array


def division_of(sharding: Any, ndim: int) -> Division | None:
    """How a sharding divides the axes of an array; None where it says nothing of them."""
    if not isinstance(sharding, NamedSharding):
        return None
    entries = tuple(map(names_of_entry, sharding.spec.partitions))
    return entries + ((),) * (ndim - len(entries))


def spec_of(division: Division) -> PartitionSpec:
    """As a spec, which ends with the last axis that is divided."""
    count = max((axis + 1 for axis, names in enumerate(division) if names), default=0)
    return PartitionSpec(*division[:count])


def shared_names(have: Names, want: Names) -> Names:
    """The leading names that two divisions of an axis share: what is divided further needs no exchange."""
    count = next((i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b), min(len(have), len(want)))
    return have[:count]


def chosen_places(
    sizes: Mapping[Any, int],
    axis_map: Sequence[Sequence[int | None]],
    operands: Sequence[Division | None],
    result: TensorType,
) -> dict[int, Names]:
    """For each place of axes how it is divided: as the first operand has it whose mesh axes are still free."""
    chosen: dict[int, Names] = {}
    for division, places in zip(operands, axis_map, strict=True):
        for place, names in zip(places, division or (), strict=False):
            used = {name for taken in chosen.values() for name in taken}
            if place is None or not names or place in chosen or not used.isdisjoint(names):
                continue
            if place < 0 or result.shape[place] % prod(sizes[name] for name in names) == 0:
                chosen[place] = names
    return chosen
