"""shard_map with its interface from before rlx.shard_map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.offered_names import offer_names
from rlx.sharding.mapped import shard_map as mapped_over
from rlx.sharding.mesh import AbstractMesh, Mesh

__all__ = ["shard_map"]

offer_names(globals())


def shard_map(
    f: Callable[..., Any],
    mesh: Mesh | AbstractMesh,
    in_specs: Any,
    out_specs: Any,
    check_rep: bool = True,
    auto: frozenset[Any] = frozenset(),
) -> Callable[..., Any]:
    """rlx.shard_map with positional arguments, and the automatic axes instead of the manual ones.

    Args:
      f, mesh, in_specs, out_specs: as for rlx.shard_map. check_rep: its check_vma.
      auto: the axes of the mesh that are left to the compiler.

    >>> import rlx
    >>> from rlx.experimental.shard_map import shard_map
    >>> mesh = rlx.make_mesh((1,), ("x",))
    >>> shard_map(lambda a: rlx.lax.psum(a, "x"), mesh, rlx.P("x"), rlx.P())(rlx.numpy.ones(2)).tolist()
    [1.0, 1.0]
    """
    seen = frozenset(mesh.axis_names) - frozenset(auto) if auto else frozenset()
    return mapped_over(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=seen, check_vma=check_rep)
