"""scan, map and associative_scan: loops over the leading axis of arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rlx.array import Array
from rlx.errors import ConcretizationTypeError, ControlFlowTypeError, InputTypeError, ShapeError, describe
from rlx.lax.bodies import as_weak_as, check_callable, converted, line_of_result, runs_in_python, trace_carry
from rlx.lax.operands import as_array, canonical_axis
from rlx.lax.shape import concatenate, index_in_dim, reshape, rev, slice_in_dim, stack
from rlx.ops.families import move_axis
from rlx.ops.scan import scan as scan_op
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec
from rlx.sharding.trees import placed
from rlx.trace.builder import is_traced, state
from rlx.trace.flat import flatten_arrays, flatten_call, named_after
from rlx.trace.references import as_given, cells_given, cells_in, flow_back, received, refuse_closed_over, refuse_twice
from rlx.trace.spanning import is_spanning, local_of, spanning_array
from rlx.trace.stacked import is_stacked, local_axis, span_with_axis, span_without, stacked_array
from rlx.transforms.vmap import vmap
from rlx.trees import tree

__all__ = ["associative_scan", "map", "scan"]


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Loop over the leading axis of xs with a carry: `carry, y = f(carry, x)`.

    Differentiable forwards and backwards, and compiled once for every length.

    Args:
      f: takes the carry and a slice of xs; returns the carry, of the same type, and a result.
      init: the initial carry: an array, or a tree of arrays.
      xs: arrays of one leading size, in a tree; None to loop `length` times without slices.
      length: the number of steps; needed if xs is None.
      reverse: go from the end to the start; results keep their positions.
      unroll: accepted for JAX compatibility and checked as there; the compiler decides.

    Returns: the last carry, and the results stacked along a new leading axis.
    Raises: ControlFlowTypeError if f changes the carry's type, naming the leaf; ShapeError if the
      leading sizes differ.

    >>> from rlx import lax
    >>> total, partial = lax.scan(lambda c, x: (c + x, c), 0, lax.iota("int32", 4))
    >>> total.item(), partial.tolist()
    (6, [0, 0, 1, 3])
    """
    check_callable("scan", f=f)
    if is_traced(unroll) and unroll.known() is None:
        raise ConcretizationTypeError(
            f"lax.scan got the traced unroll={unroll.type!r}.", "It must be a Python bool or int: mark it static."
        )
    if not isinstance(unroll, bool) and operator.index(unroll) < 0:
        raise ShapeError(f"lax.scan got unroll={unroll}.", "It must be a bool, or an integer from 0 on.")
    if cells_in(tree.leaves(xs)):
        try:
            return _scan_over_cells(f, init, xs, length, reverse, False)
        except _FlowBackError:
            pass
        return _scan_over_cells(f, init, xs, length, reverse, True)
    carries, _ = flatten_call((init,), {}, "the initial carry of lax.scan")
    xs = tree.map(_to_slice, xs)
    slices, _ = flatten_call((xs,), {}, "xs of lax.scan")
    count = _length(slices, length)
    if runs_in_python() and count:
        return _python_scan(f, init, xs, count, reverse)
    _, in_tree = flatten_arrays(((init, xs), {}))

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        out = f(carry, x)
        _check_pair(out, f)
        return tuple(out)

    elements = [(x.type.update(shape=x.shape[1:]), x) for x in slices]
    flat, body, captured, types, cells, carries, _ = trace_carry(
        "scan",
        step,
        f,
        in_tree,
        carries,
        elements,
        lambda out: out[0],
    )
    # contents of cells that the body writes to are also carried
    kept_captures = len(captured) - len(cells.written)
    starts = [*captured[kept_captures:], *converted(carries, types)]
    outs = scan_op(
        *captured[:kept_captures],
        *starts,
        *slices,
        body=body,
        constants=kept_captures,
        carries=len(starts),
        length=count,
        reverse=bool(reverse),
    )
    n, lead = len(starts), kept_captures
    # an unchanged carry of the body is its input, for every transform to see
    kept = [o is i for o, i in zip(body.outputs[:n], body.inputs[lead : lead + n], strict=True)]
    outs = as_weak_as(outs, body.output_types)
    last = cells.write_first([start if same else out for start, same, out in zip(starts, kept, outs[:n], strict=True)])
    carry, ys = tree.unflatten(flat.out_tree, [*last, *outs[n:]])
    return carry, tree.map(partial(_stacked, count), ys)


def _to_slice(x: Any) -> Any:
    """An array that processes divide, as this process's parts of all slices, each divided like one slice. Partial sums
    (or copies) give slices that are partial sums (or copies).

    The axis of the loop is whole in every process: it is gathered if it is divided.
    """
    if is_stacked(x) and x.ndim:
        return stacked_array(move_axis(local_of(x), local_axis(x, 0), 0), span_without(x, 0))
    if not is_spanning(x) or not x.ndim:
        return x
    mesh, others = x._sharding.mesh, x._sharding.spec.partitions[1:]
    whole = placed(x, NamedSharding(mesh, PartitionSpec(None, *others)))
    if not is_spanning(whole):  # nothing else was divided
        return whole
    element = x.type.update(shape=x.shape[1:]).placed(sharding=NamedSharding(mesh, PartitionSpec(*others)))
    return spanning_array(local_of(whole), element)


def _stacked(count: int, y: Any) -> Any:
    """The stacked results of `count` steps, divided over processes like one result."""
    if is_stacked(y):
        return stacked_array(move_axis(local_of(y), 0, local_of(y).ndim - 1 - y.ndim), span_with_axis(y, 0, count))
    if not is_spanning(y):
        return y
    sharding = NamedSharding(y._sharding.mesh, PartitionSpec(None, *y._sharding.spec.partitions))
    return spanning_array(local_of(y), y.type.update(shape=(count, *y.shape)).placed(sharding=sharding))


class _FlowBackError(Exception):
    """A derivative may write to cells in xs that were not marked as flowing."""


def _scan_over_cells(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: int | None, reverse: bool, flowing: bool
) -> tuple[Any, Any]:
    """As scan, with cells in xs: f gets cells of their slices, and the slices' contents are written back."""

    @named_after(f)
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        x, own = received(x)
        out = f(carry, x)
        _check_pair(out, f)
        if around is not None and not flowing and flow_back(own):
            raise _FlowBackError
        refuse_closed_over("the body of lax.scan", state.builder.cells or () if state.builder else (), named)
        return out[0], (out[1], [cell.read() for cell in own])

    named = [(f"xs{tree.path_text(path)}", leaf) for path, leaf in tree.leaves_with_path(xs)]
    refuse_twice("lax.scan", named)
    around = state.builder
    carry, (ys, contents) = scan(step, init, as_given(xs, flowing), length, reverse)
    for cell, content in zip(cells_given(tree.leaves(xs), flowing), contents, strict=True):
        cell.write(content)
    return carry, ys


def _check_pair(out: Any, f: Callable[..., Any]) -> None:
    if not (isinstance(out, (tuple, list)) and len(out) == 2):
        described = f"{len(out)} values" if isinstance(out, (tuple, list)) else describe(out)
        raise ControlFlowTypeError(
            f"lax.scan: f must return a pair (carry, y), got {described}.",
            "Return (carry, y); y may be None.",
            line_of_result(out, f),
        )


def _whole(length: Any) -> int:
    try:
        return operator.index(length)
    except TypeError:
        raise InputTypeError(
            f"lax.scan got length={describe(length)}.", "The number of steps is an integer: use // or int(...)."
        ) from None


def _length(slices: Sequence[Array], length: int | None) -> int:
    for x in slices:
        if x.ndim == 0:
            raise ShapeError(
                f"lax.scan got a scalar {x.type!r} among xs.",
                "Arrays in xs must have a leading axis to loop over; close over the others.",
            )
    sizes = sorted({x.shape[0] for x in slices})
    if len(sizes) > 1:
        raise ShapeError(
            f"lax.scan got xs with leading axes of different sizes {sizes}.",
            "All arrays in xs must have one leading size.",
        )
    if length is not None:
        count = _whole(length)
        if count < 0:
            raise ShapeError(f"lax.scan got length={count}.", "A loop runs 0 times or more: use max(length, 0).")
        if sizes and sizes[0] != count:
            raise ShapeError(
                f"lax.scan got length={count}, but xs with a leading axis of size {sizes[0]}.",
                "Leave out length if there are xs.",
            )
        return count
    if not sizes:
        raise ShapeError("lax.scan got neither xs nor length.", "Pass length=n to loop n times.")
    return sizes[0]


def _python_scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, count: int, reverse: bool
) -> tuple[Any, Any]:
    carry, results = tree.map(as_array, init), []
    for i in reversed(range(count)) if reverse else range(count):
        out = f(carry, tree.map(lambda x, at=i: index_in_dim(x, at, keepdims=False), xs))
        _check_pair(out, f)
        carry, y = out
        results.append(y)
    if reverse:
        results.reverse()
    stacked = tree.map(lambda *ys: stack(ys), *results)
    return tree.map(as_array, carry), stacked


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """Apply f to each slice of xs along its leading axis, one after another; stack the results.

    With batch_size, f is vmapped over that many slices at a time. Raises ShapeError if it is below 1.

    >>> from rlx import lax
    >>> lax.map(lambda x: x * x, lax.iota("int32", 4)).tolist()
    [0, 1, 4, 9]
    """
    check_callable("map", f=f)
    if batch_size is None:
        return scan(lambda _, x: ((), f(x)), (), xs)[1]
    slices, treedef = tree.flatten(xs)
    arrays = [as_array(x) for x in slices]
    count, size = _length(arrays, None), operator.index(batch_size)
    if size < 1:
        raise ShapeError(f"lax.map got batch_size={size}.", "Pass the number of slices to take at a time: 1 or more.")
    whole = count // size * size
    batched = vmap(f)
    parts = []
    if whole:
        chunks = [reshape(slice_in_dim(x, 0, whole), (whole // size, size, *x.shape[1:])) for x in arrays]
        out = scan(lambda _, x: ((), batched(x)), (), tree.unflatten(treedef, chunks))[1]
        parts.append(tree.map(lambda y: reshape(y, (whole, *y.shape[2:])), out))
    if whole < count or not parts:
        rest = [slice_in_dim(x, whole, count) for x in arrays]
        parts.append(batched(tree.unflatten(treedef, rest)))
    return tree.map(lambda *ys: concatenate(ys, 0), *parts)


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """All prefixes of an axis combined by an associative function, in logarithmic depth.

    Args:
      fn: takes two trees of slices (along `axis`, of any length) and combines them elementwise;
        fn(a, fn(b, c)) equals fn(fn(a, b), c).
      elems: an array, or a tree of arrays of one size along `axis`.
      reverse: combine suffixes instead; fn's first argument is nearer to the end.
      axis: the axis to scan over.

    >>> from rlx import lax
    >>> lax.associative_scan(lax.add, lax.iota("int32", 5)).tolist()
    [0, 1, 3, 6, 10]
    """
    check_callable("associative_scan", fn=fn)
    leaves, treedef = tree.flatten(elems)
    arrays = [as_array(x) for x in leaves]
    if not arrays:
        return elems
    at = canonical_axis("associative_scan", axis, arrays[0].ndim)
    sizes = {x.shape[at] for x in arrays if x.ndim > at}
    if len(sizes) != 1 or any(x.ndim <= at for x in arrays):
        raise ShapeError(
            f"lax.associative_scan got arrays of shapes {[x.shape for x in arrays]} for axis {axis}.",
            "All arrays must have one size along the axis.",
        )

    def combine(a: Sequence[Array], b: Sequence[Array]) -> list[Array]:
        out, out_tree = tree.flatten(fn(tree.unflatten(treedef, a), tree.unflatten(treedef, b)))
        if out_tree != treedef:
            raise ControlFlowTypeError(
                f"lax.associative_scan: fn returned a result of structure {out_tree}.",
                f"It must return trees of the structure that it takes, {treedef}.",
            )
        return [as_array(x) for x in out]

    if reverse:
        arrays = [rev(x, (at,)) for x in arrays]
    prefixes = _prefixes(combine, arrays, at)
    return tree.unflatten(treedef, [rev(x, (at,)) for x in prefixes] if reverse else prefixes)


def _prefixes(
    combine: Callable[[Sequence[Array], Sequence[Array]], list[Array]],
    elems: Sequence[Array],
    axis: int,
) -> list[Array]:
    """Combine neighbours, scan those, and fill in the positions between."""
    count = elems[0].shape[axis]
    if count < 2:
        return list(elems)

    def part(x: Array, start: int, limit: int | None, stride: int = 1) -> Array:
        return slice_in_dim(x, start, limit, stride, axis)

    pairs = combine([part(x, 0, count - 1, 2) for x in elems], [part(x, 1, None, 2) for x in elems])
    odd = _prefixes(combine, pairs, axis)
    before = odd if count % 2 else [part(x, 0, x.shape[axis] - 1) for x in odd]
    first = [part(x, 0, 1) for x in elems]
    if before[0].shape[axis]:
        later = combine(before, [part(x, 2, None, 2) for x in elems])
        even = [concatenate([a, b], axis) for a, b in zip(first, later, strict=True)]
    else:
        even = first
    return [_interleave(a, b, axis) for a, b in zip(even, odd, strict=True)]


def _interleave(even: Array, odd: Array, axis: int) -> Array:
    """Elements of both, alternating; `even` may have one more."""
    common = odd.shape[axis]
    paired = stack([slice_in_dim(even, 0, common, axis=axis), odd], axis + 1)
    merged = reshape(paired, (*odd.shape[:axis], 2 * common, *odd.shape[axis + 1 :]))
    if even.shape[axis] == common:
        return merged
    return concatenate([merged, slice_in_dim(even, common, None, axis=axis)], axis)
