"""Shardings as attributes of Shardy, the dialect in which XLA's partitioner reads them."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.mesh_division import ArrayDivision, MeshDivision
from rlx.ir.program import Var
from rlx.stablehlo.text import Value

__all__ = ["ShardingWriter"]


class ShardingWriter:
    """The shardings of one module; its mesh has the name `mesh`."""

    def __init__(self, division: MeshDivision) -> None:
        self.division = division
        self._names = {axis: f"axis{n}_{_letters(axis)}" for n, axis in enumerate(division.axes)}

    def mesh(self) -> str:
        """The mesh, as an operation of the module."""
        axes = ", ".join(f'"{self._names[axis]}"={size}' for axis, size in self.division.axes.items())
        return f"  sdy.mesh @mesh = <[{axes}]>\n"

    def of_arguments(self, values: Sequence[Value]) -> dict[int, str]:
        """The attribute of each argument whose division is stated."""
        return self._attributes(values, self.division.inputs)

    def of_results(self, values: Sequence[Value]) -> dict[int, str]:
        """The attribute of each result whose division is stated."""
        return self._attributes(values, self.division.results)

    def of_variable(self, variable: Var, value: Value) -> str | None:
        """The sharding that the program states for a variable."""
        found = self.division.variables.get(variable)
        return None if found is None else self._sharding(found, value)

    def _attributes(self, values: Sequence[Value], divisions: Sequence[ArrayDivision | None]) -> dict[int, str]:
        pairs = enumerate(zip(values, divisions, strict=False))  # captured arrays, which come last, have no division
        return {n: f"sdy.sharding = {self._sharding(d, v)}" for n, (v, d) in pairs if d is not None}

    def _sharding(self, division: ArrayDivision, value: Value) -> str:
        entries = (*division, *((),) * (len(value.shape) - len(division)))
        axes = ("{" + ", ".join(f'"{self._names[name]}"' for name in names) + "}" for names in entries)
        return f"#sdy.sharding<@mesh, [{', '.join(axes)}]>"


def _letters(name: object) -> str:
    return "".join(c for c in str(name) if c.isascii() and c.isalnum())
