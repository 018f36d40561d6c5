"""A mapped axis whose members are divided among processes: its interface for the rules of collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import add
from rlx.ops.families import to_front
from rlx.ops.process_collective import (
    process_all_gather,
    process_all_reduce,
    process_copy,
    process_part,
    process_rows,
)
from rlx.ops.shape import iota, reshape
from rlx.trace.primitive import type_of

__all__ = ["SpanningAxis", "meets"]


@dataclass(frozen=True)
class SpanningAxis:
    """An axis of `size` members; each process of a `group` has `local` members, in the order of ranks.

    index: the rank of this process in the group. Values not mapped over the axis are equal in all processes.

    >>> from rlx.ops.spanning_axis import SpanningAxis
    >>> SpanningAxis("data", 8, 2, "world", 3).members
    4
    """

    name: Any
    size: int
    local: int
    group: str
    index: int

    @property
    def members(self) -> int:
        """The number of processes."""
        return self.size // self.local

    @property
    def params(self) -> dict[str, Any]:
        """The params of collectives along the axis."""
        return {"group": self.group, "members": self.members, "place": b""}

    def all_rows(self, x: Any) -> Any:
        """The processes' values as one value, stacked along a new first axis."""
        return process_rows(x, index=self.index, **self.params)

    def own_row(self, x: Any) -> Any:
        """This process's row of a value that all processes have, which has a row for each process."""
        return process_part(x, group=self.group, members=self.members, index=self.index)

    def reduce(self, x: Any, op: str) -> Any:
        """The reduction of the processes' values."""
        return process_all_reduce(x, op=op, mode="fast", **self.params)

    def positions(self) -> Any:
        """The positions of this process's members along the axis, int32.

        They are unknown while programs are optimised: a collective must not be removed in some processes only.
        """
        first = process_copy(np.int32(self.index * self.local), group=self.group, members=self.members)
        return add(iota(type=TensorType((self.local,), np.dtype("i4")), axis=0), first)

    def rows(self, x: Any, dim: int | None) -> Any:
        """The values of all members, along a new first axis."""
        blocks = process_all_gather(to_front(x, dim, self.local), **self.params)
        return reshape(blocks, shape=(self.size, *type_of(blocks).shape[2:]))


def meets(program: Program) -> bool:
    """Whether a program, or one inside it, has collectives."""
    here = any(e.primitive.exchanges or e.primitive.collective for e in program.equations)
    return here or any(map(meets, program.regions()))
