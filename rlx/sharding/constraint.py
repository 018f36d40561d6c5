"""Constraints on how values are divided: with_sharding_constraint, reshard, and changes of axis types."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from rlx.errors import MeshContextError, OptionError, ShardingError
from rlx.sharding.blocks import check_reach
from rlx.sharding.context import get_abstract_mesh, use_abstract_mesh
from rlx.sharding.mesh import AbstractMesh, AxisType
from rlx.sharding.shardings import NamedSharding, Sharding
from rlx.sharding.spec import names_in
from rlx.sharding.stacks import stack_axes
from rlx.sharding.trees import check_shape, complete, placed_all, resolve, resolve_explicit, spread
from rlx.trace.flat import as_array
from rlx.trace.stacked import is_stacked
from rlx.trees import tree

__all__ = ["auto_axes", "explicit_axes", "reshard", "with_sharding_constraint"]


def _divided(owner: str, x: Any, shardings: Any, resolve_one: Callable[[str, Any], Sharding | None]) -> Any:
    """x with the checked shardings attached to its arrays."""
    leaves, treedef = tree.flatten(x)
    arrays = [as_array(leaf, f"an argument of {owner}") for leaf in leaves]
    found = []
    for entry, array in zip(spread(f"The tree of shardings of {owner}", shardings, x), arrays, strict=True):
        sharding = resolve_one(owner, entry)
        if sharding is None:
            raise ShardingError(f"{owner} got None as a sharding.", "Pass a sharding or a spec for each value.")
        check_reach(sharding)
        check_shape(owner, sharding, array.shape)
        if isinstance(sharding, NamedSharding):
            # a mesh without devices describes the division, not the placement
            nowhere = isinstance(sharding.mesh, AbstractMesh) and not is_stacked(array)
            sharding = None if nowhere and not stack_axes(sharding) else complete(sharding, array.ndim)
        found.append(sharding)
    return tree.unflatten(treedef, placed_all(arrays, found))


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Constrain how x is divided among devices. On one device it only checks the shardings.

    Args:
      x: an array, or a tree of arrays.
      shardings: a sharding, a PartitionSpec under rlx.set_mesh, or a tree of them that is a prefix of x.

    Returns: x.

    Raises: ShardingError for a spec that names unknown axes, has more entries than an array has axes, or divides an
      axis unevenly; MeshContextError for a spec if no mesh is set; InputTypeError for anything else.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> sharding = rlx.NamedSharding(rlx.make_mesh((1,), ("data",)), rlx.P("data"))
    >>> rlx.jit(lambda x: rlx.lax.with_sharding_constraint(2 * x, sharding))(jnp.ones(2)).tolist()
    [2.0, 2.0]
    """
    return _divided("with_sharding_constraint", x, shardings, _without_manual_axes)


def _without_manual_axes(owner: str, entry: Any) -> Sharding | None:
    """resolve. Raises ShardingError for an axis that rlx.shard_map already maps the function over."""
    found = resolve(owner, entry)
    if isinstance(found, NamedSharding):
        manual = [n for n in names_in(found.spec.partitions) if n in get_abstract_mesh().manual_axes]
        if manual:
            raise ShardingError(
                f"{owner} got {found.spec!r} inside a shard_map over the axis {manual[0]!r}.",
                "Values there belong to one device: leave the axis out of the spec.",
            )
    return found


def reshard(xs: Any, out_shardings: Any) -> Any:
    """Divide xs over mesh axes of type Explicit.

    Args:
      xs: an array, or a tree of arrays.
      out_shardings: a sharding, a PartitionSpec under rlx.set_mesh, or a tree of them that is a prefix of xs.

    Raises: ShardingError for shardings that do not match the arrays, or name Auto or Manual axes.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> with rlx.set_mesh(rlx.make_mesh((1,), ("data",))):
    ...     rlx.reshard(jnp.ones(2), rlx.P("data")).sharding.spec
    P('data',)
    """
    return _divided("reshard", xs, out_shardings, resolve_explicit)


def _names(axes: Any) -> tuple[Any, ...]:
    mesh = get_abstract_mesh()
    return mesh.axis_names if axes is None else axes if isinstance(axes, tuple) else (axes,)


def _take(owner: str, name: str, given: Any, kwargs: dict[str, Any]) -> Any:
    if given is not None:
        return given
    if name not in kwargs:
        raise OptionError(f"{owner} needs {name}.", f"Pass {name}= to it, or to the function.")
    return kwargs.pop(name)


def auto_axes(f: Callable[..., Any] | None = None, /, *, axes: Any = None, out_sharding: Any = None) -> Any:
    """A function in which mesh axes are of type Auto; its result has the sharding `out_sharding`.

    Args:
      f: the function. axes: names of axes; all by default.
      out_sharding: as for rlx.reshard; may be passed to the function instead.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> with rlx.set_mesh(rlx.make_mesh((1,), ("x",))):
    ...     rlx.sharding.auto_axes(lambda x: x + 1, out_sharding=rlx.P("x"))(jnp.ones(2)).tolist()
    [2.0, 2.0]
    """
    if f is None:
        return partial(auto_axes, axes=axes, out_sharding=out_sharding)

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        wanted = _take("auto_axes", "out_sharding", out_sharding, kwargs)
        if get_abstract_mesh().empty:
            return f(*args, **kwargs)
        with use_abstract_mesh(get_abstract_mesh().update_axis_types(dict.fromkeys(_names(axes), AxisType.Auto))):
            out = f(*args, **kwargs)
        return _divided("auto_axes", out, wanted, resolve)

    return function


def explicit_axes(f: Callable[..., Any] | None = None, /, *, axes: Any = None, in_sharding: Any = None) -> Any:
    """A function in which mesh axes are of type Explicit; its arguments have the sharding `in_sharding`.

    Args:
      f: the function. axes: names of axes; all by default.
      in_sharding: as for rlx.reshard, for the tuple of arguments; may be passed to the function instead.

    Raises: MeshContextError (when called) if no mesh is set.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> with rlx.set_mesh(rlx.make_mesh((1,), ("x",), (rlx.sharding.AxisType.Auto,))):
    ...     rlx.sharding.explicit_axes(lambda x: x + 1, in_sharding=rlx.P("x"))(jnp.ones(2)).tolist()
    [2.0, 2.0]
    """
    if f is None:
        return partial(explicit_axes, axes=axes, in_sharding=in_sharding)

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        wanted = _take("explicit_axes", "in_sharding", in_sharding, kwargs)
        mesh = get_abstract_mesh()
        if mesh.empty:
            raise MeshContextError("explicit_axes is called but no mesh is set.", "Use rlx.set_mesh around it.")
        with use_abstract_mesh(mesh.update_axis_types(dict.fromkeys(_names(axes), AxisType.Explicit))):
            return f(*_divided("explicit_axes", args, wanted, resolve), **kwargs)

    return function
