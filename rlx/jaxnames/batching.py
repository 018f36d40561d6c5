"""jax.interpreters.batching: vmap rules for a library's primitives (equinox)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx import numpy as jnp
from rlx.jaxnames.rules import BATCHING
from rlx.ops.families import to_front
from rlx.transforms.vmappable import register_vmappable, unregister_vmappable

__all__ = [
    "axis_primitive_batchers",
    "bdim_at_front",
    "broadcast",
    "defbroadcasting",
    "defreducer",
    "defvectorized",
    "fancy_primitive_batchers",
    "moveaxis",
    "not_mapped",
    "primitive_batchers",
    "register_vmappable",
    "unregister_vmappable",
]

not_mapped = None
primitive_batchers = BATCHING.plain
axis_primitive_batchers = BATCHING.with_axis
fancy_primitive_batchers = BATCHING.with_axis_data


def moveaxis(x: Any, source: int | None, destination: int) -> Any:
    """The array with its batch axis moved; unchanged if it has none."""
    return x if source is None else jnp.moveaxis(x, source, destination)


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """The array with its batch axis in front, broadcast if it has none."""
    return to_front(x, bdim, size)


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Any:
    """The array repeated along a new axis."""
    return jnp.moveaxis(jnp.broadcast_to(x, (sz, *jnp.shape(x))), 0, axis)


def defvectorized(prim: Any) -> None:
    """An elementwise primitive, of operands whose batch axes are at one position.

    >>> import rlx
    >>> from rlx.jaxnames.batching import defvectorized
    >>> from rlx.jaxnames.foreign_primitive import ForeignPrimitive
    >>> own = ForeignPrimitive("own")
    >>> _ = own.def_impl(lambda x: x + 1)
    >>> defvectorized(own)
    >>> rlx.vmap(own.bind)(rlx.numpy.zeros(2)).tolist()
    [1.0, 1.0]
    """

    def rule(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        (dim,) = {d for d in dims if d is not None}
        return prim.bind(*args, **params), dim

    primitive_batchers[prim] = rule


def defbroadcasting(prim: Any) -> None:
    """An elementwise primitive, of operands of one shape."""

    def rule(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        size = next(jnp.shape(x)[d] for x, d in zip(args, dims, strict=True) if d is not None)
        return prim.bind(*[to_front(x, d, size) for x, d in zip(args, dims, strict=True)], **params), 0

    primitive_batchers[prim] = rule


def defreducer(prim: Any) -> None:
    """A primitive that reduces its operand over the axes of its parameter `axes`.

    >>> import rlx
    >>> from rlx.jaxnames.batching import defreducer
    >>> from rlx.jaxnames.foreign_primitive import ForeignPrimitive
    >>> own = ForeignPrimitive("own")
    >>> _ = own.def_impl(lambda x, axes: x.sum(axes))
    >>> defreducer(own)
    >>> rlx.vmap(lambda x: own.bind(x, axes=(0,)), in_axes=1)(rlx.numpy.ones((3, 2))).tolist()
    [3.0, 3.0]
    """

    def rule(args: Sequence[Any], dims: Sequence[int], *, axes: Sequence[int], **params: Any) -> Any:
        (operand,), (dim,) = args, dims
        moved = tuple(axis + (axis >= dim) for axis in axes)
        return prim.bind(operand, axes=moved, **params), dim - sum(axis < dim for axis in moved)

    primitive_batchers[prim] = rule
