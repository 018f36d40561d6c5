"""vmap: batch a function over an axis of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

import numpy as np

from rlx.array import Array, is_array_or_numpy, parts_of
from rlx.errors import InputTypeError, ReferenceUseError, VmapAxisError
from rlx.ir.types import TensorType
from rlx.ops.families import move_axis, to_front
from rlx.trace.builder import state
from rlx.trace.flat import FlatFunction, OpaqueLeaf, as_array, function_name, is_float0, named_after
from rlx.trace.primitive import type_of
from rlx.trace.references import (
    Cell,
    GivenCell,
    Threaded,
    cells_given,
    flow_back,
    received,
    refuse_closed_over,
    refuse_twice,
)
from rlx.trace.spanning import local_of, span_of
from rlx.trace.stacked import is_stacked, local_axis, span_with_axis, span_without, stacked_array
from rlx.trace.tracing import named_axis, trace_program
from rlx.transforms.programs import batch_walk
from rlx.transforms.vmappable import MappedCall, is_spec, is_vmappable, registered
from rlx.trees import tree

__all__ = ["vmap"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def broadcast_prefix(prefix: Any, full: Any, what: str) -> list[int | None]:
    """One axis for each leaf of `full`, from an int, None, or a tree prefix."""

    def expand(axes: Any, part: Any) -> list[int | None]:
        if _is_axis(axes):
            return [axes] * len(tree.leaves(part, is_leaf=is_vmappable))
        axes_children, axes_def = tree.flatten(axes, is_leaf=_is_axis)
        full_children = axes_def.flatten_up_to(_replace_none(axes, part))
        out: list[int | None] = []
        for a, child in zip(axes_children, full_children, strict=True):
            if not _is_axis(a):
                raise TypeError(type(a).__name__)
            out += [a] * len(tree.leaves(child, is_leaf=is_vmappable))
        return out

    try:
        return expand(prefix, full)
    except (ValueError, TypeError):
        place = tree.first_difference(prefix, full, is_leaf=_is_axis)
        raise VmapAxisError(
            f"vmap got {what}={prefix!r:.80}, which does not fit the arguments{place}.",
            f"{what} is an int, None, or a tree of both with the arguments' structure (or a prefix of"
            " it), for instance in_axes=(0, None).",
        ) from None


def _is_axis(x: Any) -> bool:
    return x is None or (isinstance(x, int) and not isinstance(x, bool)) or is_spec(x)


def _replace_none(axes: Any, part: Any) -> Any:
    """Lists at the top level count as tuples if the arguments are tuples."""
    return tuple(part) if isinstance(axes, tuple) and isinstance(part, list) else part


def _dividing(fun: Callable[Parameters, Result], names: tuple[Any, ...]) -> Callable[Parameters, Result]:
    """The function, in which these axes of a mesh are taken."""

    @named_after(fun)
    def function(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        before = state.dividing
        state.dividing = (*before, *names)
        try:
            return fun(*args, **kwargs)
        finally:
            state.dividing = before

    return function


def vmap(
    fun: Callable[Parameters, Result],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
) -> Callable[Parameters, Result]:
    """A function that maps `fun` over an axis of its arguments, vectorised.

    Args:
      fun: a function of arrays, or trees of them.
      in_axes: which axis of each positional argument is mapped: an int, None (not mapped; it need not be an
        array), or a tuple of trees of those, each a prefix of its argument. Keyword arguments are mapped over axis 0.
      out_axes: the position of the mapped axis in the results, in the same form.
      axis_name: a name for the axis, for rlx.lax.psum and related functions inside `fun`.
      axis_size: the size, needed only if no argument is mapped.
      spmd_axis_name: a mesh axis, or a tuple of them, that shards the mapped axis: no spec of a rlx.shard_map in
        `fun` may name it.

    Raises: VmapAxisError for axes that do not fit the arguments; ShardingError for such a spec.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x, y: x @ y, in_axes=(0, None))(jnp.ones((3, 2)), jnp.ones(2)).shape
    (3,)
    """
    if spmd_axis_name is not None:
        fun = _dividing(fun, spmd_axis_name if isinstance(spmd_axis_name, tuple) else (spmd_axis_name,))
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (_is_axis(in_axes) or isinstance(in_axes, tuple)):
        raise VmapAxisError(
            f"vmap got in_axes={in_axes!r}, a {type(in_axes).__name__}.",
            "in_axes is an int, None, or a tuple with one entry for each positional argument.",
        )

    @named_after(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise VmapAxisError(
                f"vmap got in_axes with {len(in_axes)} entries for {len(args)} positional arguments.",
                "Give in_axes one entry for each positional argument; None leaves an argument unmapped.",
            )
        given, treedef = tree.flatten((args, kwargs), is_leaf=is_vmappable)
        axes = broadcast_prefix(in_axes, args, "in_axes") + [0] * len(tree.leaves(kwargs, is_leaf=is_vmappable))

        def placed(result: Callable[[], Any], count: int) -> list[int | None]:
            return [out_axes] * count if _is_axis(out_axes) else broadcast_prefix(out_axes, result(), "out_axes")

        if not registered():
            return _mapped(fun, treedef, given, axes, placed, axis_name, axis_size)
        mapping = MappedCall(given, axes, axis_size)

        def on_arrays(*values: Any) -> Any:
            arguments, keywords = tree.unflatten(treedef, mapping.elements(values))
            results, mapping.out_tree = tree.flatten(fun(*arguments, **keywords), is_leaf=is_vmappable)
            wanted = placed(lambda: tree.unflatten(mapping.out_tree, results), len(results))
            return mapping.parts(results, wanted)

        _, flat_tree = tree.flatten((tuple(mapping.arguments), {}))
        arrays = _mapped(
            on_arrays, flat_tree, mapping.arguments, mapping.axes, lambda *_: mapping.out_axes, axis_name, axis_size
        )
        return tree.unflatten(mapping.out_tree, mapping.together(arrays))

    return function


def _mapped(
    fun: Callable[..., Any],
    treedef: Any,
    values: Sequence[Any],
    axes: Sequence[int | None],
    out_axes: Callable[[Callable[[], Any], int], Sequence[int | None]],
    axis_name: Hashable | None,
    axis_size: int | None,
    flowing: bool = False,
) -> Any:
    """The results for the leaves of arguments, each along its axis. `flowing`: cells among them are given so.

    out_axes: the axes of the results' leaves, of a function that makes a tree of their structure, and their number.
    """
    given = {
        i: x for i, (x, axis) in enumerate(zip(values, axes, strict=True)) if isinstance(x, Cell) and axis is not None
    }
    refuse_twice(function_name(fun), [(f"leaf {i} of the arguments", x) for i, x in given.items()])
    cells_of = {i: cells_given([x], flowing) for i, x in given.items()}
    outer = [(cell, axes[i]) for i, cells in cells_of.items() for cell in cells]
    behind = [(cell, axes[i]) for i, cells in cells_of.items() for cell in cells[1:]]
    contents = [x.read() if i in given else x for i, x in enumerate(values)]
    stacks = {i: span_without(x, axis) for i, (x, axis) in enumerate(zip(values, axes, strict=True)) if is_stacked(x)}
    axes = [a if a is None or i not in stacks else local_axis(values[i], a) for i, a in enumerate(axes)]
    contents = [local_of(x) if i in stacks else x for i, x in enumerate(contents)]
    leaves, dims, restore = _mappable(
        [*contents, *[cell.read() for cell, _ in behind]], [*axes, *[axis for _, axis in behind]]
    )
    for x, axis in zip(contents, axes, strict=False):
        axis_size = x.shape[axis] if axis_size is None and axis is not None and _is_described(x) else axis_size
    size, dims = _mapped_size(leaves, dims, axis_size)
    special = False  # whether some results are more than an array

    def noting(*args: Any, **kwargs: Any) -> Any:
        nonlocal special
        result = fun(*args, **kwargs)
        special = any(is_float0(x) or parts_of(x) or _is_described(x) for x in tree.leaves(result))
        return tree.map(lambda x: OpaqueLeaf(x) if _is_described(x) else x, result) if special else result

    flat = FlatFunction(noting, treedef, name=function_name(fun))
    types = [_element(x.type, d) for x, d in zip(leaves, dims, strict=True)]

    own: list[Cell] = []

    def on_leaves(*arrays: Any) -> list[Any]:
        inside = restore(arrays)
        for i, span in stacks.items():
            inside[i] = stacked_array(inside[i], span)
        rest = iter(inside[len(values) :])
        for i, cells in cells_of.items():
            inside[i] = GivenCell(type(given[i]), [inside[i], *[next(rest) for _ in cells[1:]]])
        arguments, own[:] = received(inside[: len(values)])
        return [*flat(*arguments), *[cell.read() for cell in own]]

    cells = Threaded(on_leaves)
    with named_axis(axis_name, size):
        program, captured = trace_program(cells, types, [None] * len(leaves), flat.name, leaves, own_only=True)
    if state.builder is not None and not flowing and flow_back(own):
        return _mapped(fun, treedef, values, axes, out_axes, axis_name, axis_size, True)
    outs, out_dims = batch_walk(program, size, [*captured, *leaves], [*[None] * len(captured), *dims], axis_name)
    if any(dim is not None for dim in out_dims[len(outs) - len(cells.written) :]):
        raise ReferenceUseError(
            f"{flat.name} under vmap writes a value that differs along the mapped axis to a Ref of outside.",
            "Pass the Ref as a mapped argument of the function, or return the values.",
        )
    outs = cells.write(outs)
    refuse_closed_over(flat.name, cells.used, [(f"leaf {i} of the arguments", x) for i, x in given.items()])
    left = len(outs) - len(outer)
    for (cell, axis), x, dim in zip(outer, outs[left:], out_dims[left:], strict=False):
        cell.write(_place(x, dim, axis, size))
    pairs = list(zip(outs, out_dims, strict=False))[: flat.results]
    if not special:
        wanted = out_axes(lambda: tree.unflatten(flat.out_tree, [object()] * flat.results), flat.results)
        placed = [_place(x, dim, w, size) for (x, dim), w in zip(pairs, wanted, strict=True)]
        return tree.unflatten(flat.out_tree, placed)
    result = flat.unflatten(outs)
    leaves = tree.leaves(result)
    computed = iter(pairs)
    placed = [
        _place(x, None, w, size)
        if is_float0(x)
        else _described_place(x, w, size)
        if _is_described(x)
        else _placed_like(x, *next(computed), w, size)
        for x, w in zip(leaves, out_axes(lambda: result, len(leaves)), strict=True)
    ]
    return tree.unflatten(tree.structure(result), placed)


def _is_described(x: Any) -> bool:
    """Whether it is the shape and dtype of an array, and no array."""
    return hasattr(x, "shape") and hasattr(x, "update") and not is_array_or_numpy(x)


def _described_place(x: Any, wanted: int | None, size: int) -> Any:
    """The shape and dtype of the results of all members, of one of them."""
    at = None if wanted is None else wanted % (len(x.shape) + 1)
    return x if at is None else x.update(shape=(*x.shape[:at], size, *x.shape[at:]))


def _placed_like(result: Any, x: Any, dim: int | None, wanted: int | None, size: int) -> Any:
    """A computed value with its mapped axis at the requested position: parts of a sum, or copies, if one result is."""
    if not is_stacked(result):
        return _place(x, dim, wanted, size)
    front = type_of(x).ndim - (dim is not None) - result.ndim
    at = None if wanted is None else front + wanted % (result.ndim + 1)
    return stacked_array(
        _place(x, dim, at, size), span_of(result) if wanted is None else span_with_axis(result, wanted, size)
    )


def _mappable(
    values: Sequence[Any], dims: Sequence[int | None]
) -> tuple[list[Array], list[int | None], Callable[[Sequence[Any]], list[Any]]]:
    """The mapped arrays among an argument's leaves, their axes, and a function that puts the other leaves back.

    A leaf that is not mapped may be anything: a function, a string. InputTypeError for the rest.
    """
    leaves: list[Array] = []
    kept: list[int | None] = []
    others: dict[int, Any] = {}
    for i, (value, dim) in enumerate(zip(values, dims, strict=True)):
        if is_float0(value):
            others[i] = value if dim is None else np.zeros(np.delete(value.shape, dim), value.dtype)
            continue
        if dim is not None and _is_described(value):
            others[i] = value.update(shape=tuple(np.delete(value.shape, dim).tolist()))
            continue
        if dim is not None:
            leaves.append(as_array(value, "an argument of vmap"))
            kept.append(dim)
            continue
        others[i] = value
        with suppress(InputTypeError):
            others[i] = as_array(value)

    def restore(arrays: Sequence[Any]) -> list[Any]:
        rest = iter(arrays)
        return [others[i] if i in others else next(rest) for i in range(len(values))]

    return leaves, kept, restore


def _element(t: TensorType, dim: int | None) -> TensorType:
    return t if dim is None else t.update(shape=t.shape[:dim] + t.shape[dim + 1 :])


def _mapped_size(leaves: Sequence[Array], dims: Sequence[int | None], size: int | None) -> tuple[int, list[int | None]]:
    sizes: set[int] = set()
    normal: list[int | None] = []
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            normal.append(None)
            continue
        if not -x.ndim <= d < x.ndim:
            raise VmapAxisError(
                f"vmap was asked to map axis {d} of an argument of shape {x.shape}, which has {x.ndim} axes.",
                "Use an axis that the argument has, or None to leave it unmapped."
                + ("" if x.ndim else " Keyword arguments are mapped over axis 0: bind scalars with functools.partial."),
            )
        normal.append(d % x.ndim)
        sizes.add(x.shape[d])
    if size is not None:
        sizes.add(size)
    if not sizes:
        raise VmapAxisError(
            "vmap has no mapped argument: every entry of in_axes is None.",
            "Give at least one argument an axis, or pass axis_size.",
        )
    if len(sizes) > 1:
        shapes = ", ".join(f"{x.shape} (axis {d})" for x, d in zip(leaves, dims, strict=True) if d is not None)
        raise VmapAxisError(
            f"vmap got mapped axes of different sizes {sorted(sizes)}: arguments of shapes {shapes}.",
            "All mapped axes have one size; leave an argument unmapped with None in in_axes.",
        )
    return next(iter(sizes)), normal


def _place(x: Any, dim: int | None, wanted: int | None, size: int) -> Any:
    if wanted is None:
        if dim is None:
            return x
        raise VmapAxisError(
            "vmap got out_axes=None for a result that depends on the mapped arguments.",
            "Use an int for this result, or reduce it over the axis inside (rlx.lax.psum).",
        )
    if dim is None:
        x, dim = (np.zeros((size, *x.shape), x.dtype) if is_float0(x) else to_front(x, None, size)), 0
    if not -x.ndim <= wanted < x.ndim:
        raise VmapAxisError(
            f"vmap was asked to put the mapped axis at {wanted} of a result of shape {x.shape}, which has"
            f" {x.ndim} axes with it.",
            f"out_axes counts from {-x.ndim} to {x.ndim - 1} for this result.",
        )
    return np.moveaxis(x, dim, wanted) if is_float0(x) else move_axis(x, dim, wanted % x.ndim)
