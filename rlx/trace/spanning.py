"""Arrays that are known by parts, for traced and eager functions.

Parts of processes are here, parts of devices in stacked.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from rlx.array import Array
from rlx.errors import ShardingError
from rlx.ir.types import TensorType
from rlx.trees import tree

__all__ = ["ArrayOfParts", "SpanningArray", "at_border", "known_by_parts", "locals_of"]


class ArrayOfParts(Array):
    """An array that is known by parts: `local` is an array of the parts that are here.

    Traced functions, such as jitted ones, take and return local parts; rlx.shard_map computes with them.
    """

    __slots__ = ("_type", "local")
    _type: TensorType

    def __init__(self, local: Any, type: TensorType) -> None:
        self.local = local
        self._type = type

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        """Shape and dtype of the whole array."""
        return self._type.unplaced

    @property
    def _sharding(self) -> Any:
        return self._type.device_sharding

    @property
    def span(self) -> TensorType:
        """The type of the whole array with its sharding, in canonical form."""
        return self._type

    def concrete(self) -> Any:
        """The values. Raises ShardingError if they do not follow from the local parts."""
        raise NotImplementedError

    def needed(self) -> Any:
        """The values if they are known; raises like `concrete`."""
        return self.concrete()

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.concrete().numpy(), dtype)

    def __repr__(self) -> str:
        return f"Array(shape={self.shape}, dtype={self.dtype}, sharding={self._type.device_sharding!r})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def is_deleted(self) -> bool:
        """Whether the memory was given away."""
        return self.local.is_deleted()

    def delete(self) -> None:
        """Give the memory back."""
        self.local.delete()

    def donate(self) -> None:
        """Give the memory to a call."""
        self.local.donate()

    def is_ready(self) -> bool:
        """Whether the array has its own values."""
        return self.local.is_ready()

    def block_until_ready(self, *args: Any) -> Array:
        """Wait for the own values."""
        self.local.wait()
        return self


class SpanningArray(ArrayOfParts):
    """An array that is divided over processes: `local` is an array of the parts of this process's devices.

    Every operation computes with it (`operations`), traced or not. Reading its values raises ShardingError.
    """

    __slots__ = ()

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process has every part."""
        return False

    def concrete(self) -> NoReturn:
        """Raises ShardingError: the values are not here."""
        raise ShardingError(
            f"The values of a {self.type!r} are needed here, but it is divided over processes as"
            f" {self._type.device_sharding.spec!r}, and this one has its part only.",
            "Compute with it by functions of rlx; or fetch all of it:"
            " rlx.experimental.multihost_utils.process_allgather(x).",
        )

    known = concrete


class _AtBorder:
    """Replaces such an array at the border of a traced function: a node whose one leaf is the local part."""

    __slots__ = ("array",)

    def __init__(self, array: ArrayOfParts) -> None:
        self.array = array


tree.register_node(
    _AtBorder,
    lambda node: ((node.array.local,), (type(node.array), node.array.span)),
    lambda kind, own: kind[0](own[0], kind[1]),
)


def known_by_parts(args: Sequence[Any]) -> bool:
    """Whether some of the operands are arrays of parts."""
    return any(isinstance(x, ArrayOfParts) for x in args)


def at_border(values: Any, leaves: list[Any]) -> Any:
    """A tree, which has these leaves, with nodes in the place of arrays of parts: unflattened they are such again."""
    if not any(isinstance(x, ArrayOfParts) for x in leaves):
        return values
    return tree.map(lambda x: _AtBorder(x) if isinstance(x, ArrayOfParts) else x, values)


def locals_of(leaves: Any) -> list[Any]:
    """The local part of each leaf: the whole leaf, except for arrays of parts."""
    return [x.local if isinstance(x, ArrayOfParts) else x for x in leaves]
