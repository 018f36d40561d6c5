"""The mesh in force: set_mesh and related functions, and the mesh that a bare partition spec refers to."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx.errors import MeshContextError, ShardingError
from rlx.sharding.mesh import AbstractMesh, Mesh, current, set_current
from rlx.trace.builder import state

__all__ = [
    "auto_pcast",
    "context_mesh",
    "get_abstract_mesh",
    "get_mesh",
    "set_mesh",
    "use_abstract_mesh",
    "use_mesh",
]

EMPTY_MESH = Mesh(np.empty((), object), ())


class set_mesh:
    """Set the current mesh of this thread, or of a `with` block.

    Bare partition specs then refer to it. None removes the mesh.

    Args: mesh: a Mesh, or None.

    Raises: ShardingError for anything else, or inside a traced function.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> with rlx.set_mesh(rlx.make_mesh((1,), ("data",))):
    ...     rlx.device_put(jnp.ones(2), rlx.P("data")).sharding.spec
    P('data',)
    """

    __slots__ = ("_before",)

    def __init__(self, mesh: Mesh | None) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ShardingError(f"set_mesh got {mesh!r:.60}, a {type(mesh).__name__}.", "Pass a Mesh.")
        if state.builder is not None:
            raise ShardingError("set_mesh is called inside a traced function.", "Set the mesh around the call.")
        if mesh is not None and mesh.manual_axes:
            raise ShardingError(f"set_mesh got {mesh} with Manual axes.", "rlx.shard_map makes axes manual.")
        self._before = current()
        abstract = None if mesh is None else mesh.abstract_mesh
        set_current(self._before._replace(concrete=mesh, abstract=abstract))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        set_current(self._before)


use_mesh = set_mesh


class use_abstract_mesh:
    """Set a mesh without devices as the current mesh of a `with` block.

    Args: mesh: an AbstractMesh.

    Raises: ShardingError for anything else, or if a mesh of another size is in force.

    >>> import rlx
    >>> with rlx.sharding.use_abstract_mesh(rlx.sharding.AbstractMesh((4,), ("data",))):
    ...     rlx.sharding.get_abstract_mesh().shape["data"]
    4
    """

    __slots__ = ("_before", "_mesh")

    def __init__(self, mesh: AbstractMesh) -> None:
        if not isinstance(mesh, AbstractMesh):
            raise ShardingError(f"use_abstract_mesh got a {type(mesh).__name__}.", "Pass an AbstractMesh.")
        self._mesh = mesh

    def __enter__(self) -> None:
        self._before = current()
        known = self._before.abstract
        if known is not None and not known.empty and not self._mesh.empty and known.size != self._mesh.size:
            raise ShardingError(
                f"use_abstract_mesh got {self._mesh} inside {known}, which has another size.",
                "A nested mesh must describe the same devices.",
            )
        set_current(self._before._replace(abstract=self._mesh))

    def __exit__(self, *_: object) -> None:
        set_current(self._before)


@contextmanager
def auto_pcast(new_val: bool = True) -> Generator[None]:
    """A `with` block that sets whether operations in a rlx.shard_map accept operands that vary over different axes.

    With False, the operands of an operation must vary over the same mesh axes: rlx.lax.pcast converts them. Numbers and
    the operands of loops and branches may differ. Nothing is checked if check_vma is False.

    Args: new_val: whether rlx.lax.pcast is inserted automatically, which is the default.

    Raises: ShardingError (in shard_map) for an operation whose operands do not agree.

    >>> import rlx
    >>> with rlx.auto_pcast(False):
    ...     rlx.lax.psum(rlx.numpy.ones(2), ())
    Array([1., 1.], dtype=float32)
    """
    before = current()
    set_current(before._replace(casts_by_hand=not new_val))
    try:
        yield
    finally:
        set_current(before)


def get_abstract_mesh() -> AbstractMesh:
    """The current mesh, without its devices. A mesh without axes if none is set.

    >>> import rlx
    >>> rlx.sharding.get_abstract_mesh()
    AbstractMesh((), axis_types=())
    """
    return current().abstract or AbstractMesh((), ())


def get_mesh() -> Mesh:
    """The mesh that set_mesh has set. An empty mesh if there is none.

    Raises: ShardingError inside a traced function.

    >>> import rlx
    >>> rlx.sharding.get_mesh().empty
    True
    """
    if state.builder is not None:
        raise ShardingError(
            "get_mesh is called inside a traced function.", "Call rlx.sharding.get_abstract_mesh there."
        )
    return current().concrete or EMPTY_MESH


def context_mesh(owner: str, spec: Any) -> Mesh | AbstractMesh:
    """The mesh that a bare partition spec refers to. Raises MeshContextError if there is none."""
    found = current()
    for mesh in (found.concrete, found.abstract, *reversed(found.entered)):
        if mesh is not None and not mesh.empty:
            return mesh
    raise MeshContextError(
        f"{owner} got {spec!r}, but no mesh is set that its names could refer to.",
        "Pass rlx.NamedSharding(mesh, spec), or set the mesh around it: with rlx.set_mesh(mesh): ...",
    )
