"""jax.interpreters.batching: rules of vmap for a library's own primitives (equinox)."""

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
    """The array with its batch axis elsewhere; one without a batch axis as it is."""
    return x if source is None else jnp.moveaxis(x, source, destination)


def bdim_at_front(x: Any, dim: int | None, size: int) -> Any:
    """The array with its batch axis in front, broadcast if it has none."""
    return to_front(x, dim, size)


def broadcast(x: Any, size: int, axis: int) -> Any:
    """The array repeated along a new axis."""
    return jnp.moveaxis(jnp.broadcast_to(x, (size, *jnp.shape(x))), 0, axis)


def defvectorized(primitive: Any) -> None:
    """A primitive that works element by element, of operands whose batch axes are at one place.

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
        return primitive.bind(*args, **params), dim

    primitive_batchers[primitive] = rule


def defbroadcasting(primitive: Any) -> None:
    """A primitive that works element by element, of operands of one shape."""

    def rule(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        size = next(jnp.shape(x)[d] for x, d in zip(args, dims, strict=True) if d is not None)
        return primitive.bind(*[to_front(x, d, size) for x, d in zip(args, dims, strict=True)], **params), 0

    primitive_batchers[primitive] = rule
