"""Arrays of which there are parts: what traced functions are given of them, and what eager ones are told.

Parts of processes are here, those of devices in stacked.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from rlx.array import Array, Span
from rlx.errors import ShardingError
from rlx.ir.types import TensorType
from rlx.trees import tree

__all__ = ["ArrayOfParts", "SpanningArray", "at_border", "locals_of", "operations", "shardings_in"]


class ArrayOfParts(Array):
    """An array that is known by parts: `local` is an array of those that there are here.

    Traced functions, such as jitted ones, take and return what is local; rlx.shard_map computes with it.
    """

    __slots__ = ("_type", "local")
    _type: Span

    def __init__(self, local: Any, span: Span) -> None:
        self.local = local
        self._type = span

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        """Shape and dtype of the whole array."""
        return self._type.type

    @property
    def _sharding(self) -> Any:
        return self._type.sharding

    @property
    def span(self) -> Span:
        """The type of the whole array, and how it lies, in one way of writing it."""
        return self._type

    def concrete(self) -> Any:
        """The values. Raises ShardingError where they do not follow from what is local."""
        raise NotImplementedError

    def needed(self) -> Any:
        """The values where they are known; raises as `concrete`."""
        return self.concrete()

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.concrete().numpy(), dtype)

    def __repr__(self) -> str:
        return f"Array(shape={self.shape}, dtype={self.dtype}, sharding={self._type.sharding!r})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def is_deleted(self) -> bool:
        """Whether the memory was given away."""
        return self.local.is_deleted()

    def delete(self) -> None:
        """Give the memory back."""
        self.local.delete()

    def is_ready(self) -> bool:
        """Whether the own values are there."""
        return self.local.is_ready()

    def block_until_ready(self, *args: Any) -> Array:
        """Wait for the own values."""
        self.local.wait()
        return self


class SpanningArray(ArrayOfParts):
    """An array that is divided over processes: `local` is what this one has, an array of the parts of its devices.

    In traced functions every operation computes with it (`operations`). What runs eagerly raises ShardingError.
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
            f" {self._type.sharding.spec!r}, and this one has its part only.",
            "Compute with it in a function under rlx.jit, or in rlx.shard_map; or fetch all of it:"
            " rlx.experimental.multihost_utils.process_allgather(x).",
        )

    known = concrete


class _Operations:
    """What does an operation on such arrays: `on_parts(primitive, args, params)`. Set by rlx.sharding, so that tracing
    need not know meshes.
    """

    on_parts: Callable[[Any, Sequence[Any], dict[str, Any]], Any]


operations = _Operations()


class _AtBorder:
    """Stands for such an array where a traced function begins or ends: a node whose one leaf is what is local."""

    __slots__ = ("array",)

    def __init__(self, array: ArrayOfParts) -> None:
        self.array = array


tree.register_node(
    _AtBorder,
    lambda node: ((node.array.local,), (type(node.array), node.array.span)),
    lambda kind, own: kind[0](own[0], kind[1]),
)


def at_border(values: Any, leaves: list[Any]) -> Any:
    """A tree, which has these leaves, with nodes in the place of arrays of parts: unflattened they are such again."""
    if not any(isinstance(x, ArrayOfParts) for x in leaves):
        return values
    return tree.map(lambda x: _AtBorder(x) if isinstance(x, ArrayOfParts) else x, values)


def locals_of(leaves: Any) -> list[Any]:
    """What is local of each leaf: all of it, but of arrays of parts."""
    return [x.local if isinstance(x, ArrayOfParts) else x for x in leaves]


def shardings_in(values: Any) -> list[Any]:
    """How the arrays of a tree lie that span processes."""
    return [x._sharding for x in tree.leaves(values) if type(x) is SpanningArray]
