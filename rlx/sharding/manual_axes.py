"""The manual axes of an array's type: how the value relates to the mesh axes that a function is mapped over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.sharding.mesh import AbstractMesh, Mesh
from rlx.transforms.reductions import reductions_of
from rlx.transforms.varying import varying_axes

__all__ = ["ManualAxisType", "manual_axis_type"]


@dataclass(frozen=True)
class ManualAxisType:
    """The mesh axes over which a value inside a rlx.shard_map may differ between devices.

    Args:
      varying: names of axes over which it may differ.
      unreduced, reduced: axes over which it is parts of a sum, or copies whose cotangents are parts of a sum.

    >>> import rlx
    >>> rlx.sharding.ManualAxisType(varying=frozenset({"x"})).varying
    frozenset({'x'})
    """

    varying: frozenset[Any] = frozenset()
    unreduced: frozenset[Any] = frozenset()
    reduced: frozenset[Any] = frozenset()

    def invarying(self, mesh: Mesh | AbstractMesh) -> frozenset[Any]:
        """The mapped mesh axes over which the value is the same on all devices."""
        return frozenset(mesh.manual_axes) - self.varying - self.unreduced - self.reduced


def manual_axis_type(x: Any) -> ManualAxisType:
    """The manual axes of a value. No axis is named if it is unknown where the value varies, as for a cotangent."""
    unreduced, reduced = reductions_of(x)
    return ManualAxisType((varying_axes(x) or frozenset()) - unreduced - reduced, unreduced, reduced)
