"""Arrays that are known by parts, for traced and eager functions.

Parts of processes are here, parts of devices in stacked.py. Traced functions, such as jitted ones, take and return
local parts; rlx.shard_map computes with them. Every operation computes with an array that processes divide, traced or
not (`operations`). Reading its values raises ShardingError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeGuard

from rlx.array import ConcreteArray, ValuesOfParts, parts_of, values_of_parts
from rlx.errors import ShardingError
from rlx.ir.types import TensorType
from rlx.trees import tree

__all__ = [
    "at_border",
    "is_spanning",
    "known_by_parts",
    "local_of",
    "locals_of",
    "of_parts",
    "span_of",
    "spanning_array",
]


def of_parts(local: Any, type: TensorType) -> ConcreteArray:
    """The array of a type with parts, the ones that are here being an array."""
    array = ConcreteArray.__new__(ConcreteArray)
    array._numpy, array._storage, array._weak = None, local, type.weak
    array._type, array._sharding = type, type.device_sharding
    return array


def spanning_array(local: Any, type: TensorType) -> ConcreteArray:
    """The array that processes divide by the sharding of its type: `local` are the parts of this process's devices."""
    return of_parts(local, type.placed(sharding=type.device_sharding, parts="spanning"))


def is_spanning(x: Any) -> TypeGuard[ConcreteArray]:
    """Whether processes divide this array."""
    return parts_of(x) == "spanning"


def local_of(x: Any) -> Any:
    """The array of the parts that are here: the whole array, unless it is known by parts."""
    return x._storage if parts_of(x) else x


def span_of(x: Any) -> TensorType:
    """The type of an array of parts with its sharding, in canonical form: with an entry of the spec for each axis."""
    type, sharding = x._type, x._sharding
    if type.parts == "spanning":
        return type
    entries = (*sharding.spec.partitions, *[None] * (x.ndim - len(sharding.spec)))
    return type.placed(sharding=sharding.update(spec=sharding.spec.update(entries)), parts=type.parts)


def _not_here(x: ConcreteArray) -> NoReturn:
    raise ShardingError(
        f"The values of a {x.type!r} are needed here, but it is divided over processes as {x._sharding.spec!r}, and"
        " this one has its part only.",
        "Compute with it by functions of rlx; or fetch all of it:"
        " rlx.experimental.multihost_utils.process_allgather(x).",
    )


values_of_parts["spanning"] = ValuesOfParts(_not_here, lambda x: None, _not_here)


class _AtBorder:
    """Replaces such an array at the border of a traced function: a node whose one leaf is the local part."""

    __slots__ = ("array",)

    def __init__(self, array: ConcreteArray) -> None:
        self.array = array


tree.register_node(
    _AtBorder, lambda node: ((local_of(node.array),), span_of(node.array)), lambda span, own: of_parts(own[0], span)
)


def known_by_parts(args: Sequence[Any]) -> bool:
    """Whether some of the operands are arrays of parts."""
    return any(map(parts_of, args))


def at_border(values: Any, leaves: list[Any]) -> Any:
    """A tree, which has these leaves, with nodes in the place of arrays of parts: unflattened they are such again."""
    return tree.map(lambda x: _AtBorder(x) if parts_of(x) else x, values) if known_by_parts(leaves) else values


def locals_of(leaves: Any) -> list[Any]:
    """The local part of each leaf: the whole leaf, except for arrays of parts."""
    return list(map(local_of, leaves))
