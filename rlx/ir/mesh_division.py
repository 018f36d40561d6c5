"""How the devices of a mesh divide the arrays of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from rlx.ir.program import Var

__all__ = ["ArrayDivision", "MeshDivision"]

ArrayDivision = tuple[tuple[object, ...], ...]  # for each axis of an array: the mesh axes that divide it


class MeshDivision(NamedTuple):
    """The sizes of a mesh's axes, and the divisions of a program's inputs, of some variables, and of its results.

    None: not stated. A compiler chooses it.
    """

    axes: Mapping[object, int]
    inputs: Sequence[ArrayDivision | None]
    variables: Mapping[Var, ArrayDivision]
    results: Sequence[ArrayDivision | None]

    @property
    def devices(self) -> int:
        """The number of the mesh's devices."""
        return prod(self.axes.values())
