"""Products with an unreduced sum: each device has the sum over its part of the contracted axis."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import Any

from rlx.array import Array
from rlx.errors import ShardingError
from rlx.ops.precision import product
from rlx.ops.reduction import reduce_sum
from rlx.ops.shape import reshape, transpose
from rlx.sharding.arrays import abstract_sharding
from rlx.sharding.divisions import Names
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import names_of_entry
from rlx.sharding.stacks import restacked, stack_axes, stacked_as
from rlx.sharding.traced_places import traced_sharding, undivided
from rlx.sharding.trees import check_shape, complete, resolve_explicit
from rlx.trace.spanning import local_of, span_of
from rlx.trace.stacked import is_stacked

__all__ = ["of_parts", "product_in_parts", "split_in_parts", "sum_in_parts"]

Labels = Sequence[Hashable]


def product_in_parts(
    owner: str, x: Array, y: Array, numbers: Any, precision: Any, preferred: Any, out_sharding: Any
) -> Array:
    """dot_general whose out_sharding has unreduced axes: devices have the parts of the sum over them.

    Args: as for rlx.lax.dot_general, with axes counted from the front. Raises: as split_in_parts.
    """
    (x_sum, y_sum), (x_batch, y_batch) = numbers
    shared = {**dict(zip(y_sum, x_sum, strict=True)), **dict(zip(y_batch, x_batch, strict=True))}
    terms: list[Labels] = [list(range(x.ndim)), [shared.get(axis, (axis,)) for axis in range(y.ndim)]]
    output = [label for term in terms for label in term if label not in x_sum]
    (x, y), names, sharding = split_in_parts(owner, [x, y], terms, output, out_sharding)
    count = len(names)
    moved = [tuple(axis + count for axis in axes) for axes in (x_sum, y_sum, x_batch, y_batch)]
    lead = tuple(range(count))
    numbers = (moved[0], moved[1]), ((*lead, *moved[2]), (*lead, *moved[3]))
    return of_parts(owner, product(x, y, numbers, precision, preferred), sharding)


def sum_in_parts(owner: str, x: Array, axes: Sequence[int], out_sharding: Any) -> Array:
    """The sum over some axes, counted from the front. Devices have the parts over the unreduced axes of an
    out_sharding; over other axes the parts are summed.

    Raises: ShardingError for unreduced axes over which the array is not unreduced, and that divide no summed axis.
    """
    sharding = resolve_explicit(owner, out_sharding)
    assert isinstance(sharding, NamedSharding)
    stacked = is_stacked(x)
    own = span_of(x).device_sharding if stacked else abstract_sharding(x)
    entries = list(map(names_of_entry, own.spec.partitions))
    wanted, sizes = sharding.spec.unreduced, sharding.mesh.shape
    stays = wanted & own.spec.unreduced if stacked else frozenset()
    if not wanted <= own.spec.unreduced | {name for axis in axes for name in entries[axis]}:
        raise ShardingError(
            f"{owner} got out_sharding={sharding.spec!r} for a {x.type!r} with the spec {own.spec!r}.",
            "Its unreduced axes must be the array's, or divide the axes that are summed over.",
        )
    names = [name for name in sharding.mesh.axis_names if name in wanted - stays and sizes[name] > 1]
    base = restacked(x, own.update(spec=own.spec.update(unreduced=stays))) if stacked else x
    parts = _split(base, list(range(x.ndim)), {axis: entries[axis] for axis in axes}, names, sharding)
    total = reduce_sum(parts, axes=tuple(axis + len(names) for axis in axes))
    order = [*(stack_axes(total._sharding) if is_stacked(total) else ()), *names]
    local = local_of(total)
    front = [order.index(name) for name in stack_axes(sharding)]
    return of_parts(owner, transpose(local, permutation=(*front, *range(len(order), local.ndim))), sharding)


def of_parts(owner: str, local: Array, sharding: NamedSharding) -> Array:
    """The array from these parts of a sum on the devices. Raises ShardingError if it cannot be divided this way."""
    found = stacked_as(local, sharding)
    check_shape(owner, sharding, found.shape)
    return stacked_as(local, complete(sharding, found.ndim))


def split_in_parts(
    owner: str, arrays: Sequence[Array], terms: Sequence[Labels], output: Labels, out_sharding: Any
) -> tuple[list[Any], list[Any], NamedSharding]:
    """Operands with the unreduced mesh axes in front, these axes, and the sharding of the result.

    `terms` are labels of the operands' axes, `output` the labels of the result's axes: the others are summed over.

    Raises: ShardingError unless the axes that are summed over are divided over exactly the unreduced axes, equally in
      both operands. Traced operands with an unknown division are divided this way here.
    """
    sharding = resolve_explicit(owner, out_sharding)
    assert isinstance(sharding, NamedSharding)
    summed: dict[Hashable, Names] = {}
    unknown = [traced_sharding(x) is None and not undivided(x) for x in arrays]
    for x, term, lost in zip(arrays, terms, unknown, strict=True):
        for label, entry in zip(term, abstract_sharding(x).spec.partitions, strict=True):
            names = names_of_entry(entry)
            if label in output or lost:
                continue
            if summed.setdefault(label, names) != names:
                raise ShardingError(
                    f"{owner} sums over an axis that one operand has divided over {summed[label]}, another over"
                    f" {names}.",
                    "Divide both equally: rlx.reshard(x, rlx.P(...)).",
                )
    if any(unknown):
        labelled = [pair for x, term in zip(arrays, terms, strict=True) for pair in zip(term, x.shape, strict=True)]
        _assign(summed, {label: size for label, size in labelled if label not in output}, sharding)
    found = [name for names in summed.values() for name in names]
    if set(found) != sharding.spec.unreduced:
        raise ShardingError(
            f"{owner} got out_sharding={sharding.spec!r}, and sums over axes that are divided over"
            f" {sorted(map(str, found))}.",
            "Its unreduced axes must be the axes that divide the summed axes: rlx.reshard(operand, rlx.P(...)).",
        )
    names = list(stack_axes(sharding))
    return [_split(x, term, summed, names, sharding) for x, term in zip(arrays, terms, strict=True)], names, sharding


def _assign(summed: dict[Hashable, Names], sizes: Mapping[Hashable, int], sharding: NamedSharding) -> None:
    """Divide summed axes by the unreduced axes that divide none yet, as far as their sizes allow."""
    counts = sharding.mesh.shape
    divided = {name for names in summed.values() for name in names}
    for name in sharding.mesh.axis_names:
        if name not in sharding.spec.unreduced or name in divided:
            continue
        for label, size in sizes.items():
            names = (*summed.get(label, ()), name)
            if size % prod(counts[n] for n in names) == 0:
                summed[label] = names
                break


def _split(x: Any, term: Labels, summed: dict[Hashable, Names], names: Sequence[Any], sharding: NamedSharding) -> Any:
    """An operand with an axis for each of the names in front, of size 1 if no axis is divided over it."""
    sizes = sharding.mesh.shape
    shape: list[int] = []
    at: dict[Any, int] = {}
    rest: list[int] = []
    for label, size in zip(term, x.shape, strict=True):
        over = [name for name in summed.get(label, ()) if name in names]
        for name in over:
            at[name] = len(shape)
            shape.append(sizes[name])
        rest.append(len(shape))
        shape.append(size // prod(sizes[name] for name in over))
    for name in names:
        if name not in at:
            at[name] = len(shape)
            shape.append(1)
    return transpose(reshape(x, shape=tuple(shape)), permutation=(*(at[name] for name in names), *rest))
