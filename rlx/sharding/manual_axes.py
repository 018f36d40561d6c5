"""What the type of an array says of the mesh axes that a function is mapped over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.sharding.mesh import AbstractMesh, Mesh
from rlx.transforms.reductions import reductions_of
from rlx.transforms.varying import varying_axes

__all__ = ["ManualAxisType", "manual_axis_type"]


@dataclass(frozen=True)
class ManualAxisType:
    """Over which mesh axes a value inside of a rlx.shard_map may differ between devices.

    Args:
      varying: names of axes over which it may differ.
      unreduced, reduced: axes over which it is parts of a sum, or copies whose cotangents are such parts.

    >>> import rlx
    >>> rlx.sharding.ManualAxisType(varying=frozenset({"x"})).varying
    frozenset({'x'})
    """

    varying: frozenset[Any] = frozenset()
    unreduced: frozenset[Any] = frozenset()
    reduced: frozenset[Any] = frozenset()

    def invarying(self, mesh: Mesh | AbstractMesh) -> frozenset[Any]:
        """Those of the mesh's axes that a function is mapped over, over which it is one value."""
        return frozenset(mesh.manual_axes) - self.varying - self.unreduced - self.reduced


def manual_axis_type(x: Any) -> ManualAxisType:
    """That of a value; where nobody knows over which axes it varies, as of a cotangent, none is named."""
    unreduced, reduced = reductions_of(x)
    return ManualAxisType((varying_axes(x) or frozenset()) - unreduced - reduced, unreduced, reduced)
