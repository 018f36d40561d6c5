"""Operations on whole arrays with unreduced or reduced axes: applied to each device's parts or copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShardingError, UnsupportedError
from rlx.ir.types import TensorType, is_inexact
from rlx.sharding.divisions import chosen_places, division_of, spec_of
from rlx.sharding.grid import MappedAxes
from rlx.sharding.mesh import AbstractMesh, Mesh
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec, names_in
from rlx.sharding.stacks import restacked, stack_axes, stacked_as
from rlx.trace.primitive import Primitive, type_of
from rlx.trace.spanning import is_spanning
from rlx.trace.stacked import is_stacked
from rlx.trace.tracing import place_of
from rlx.transforms.reductions import ReducedOperand, Reductions, reductions_of_result
from rlx.trees import tree

__all__ = ["operation_on_stacks"]


def operation_on_stacks(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of an operation with operands that have unreduced or reduced axes.

    Raises as `reductions_of_result`. ShardingError for arrays of several meshes, and for an elementwise operation on an
    array with reduced axes and another array without them. UnsupportedError for loops and branches.
    """
    if primitive.region or primitive.collective or any(is_spanning(x) for x in args):
        raise UnsupportedError(
            f"{primitive.name} got an array with unreduced or reduced axes.", "Convert it first: rlx.reshard."
        )
    mesh = _common_mesh(primitive.name, args)
    operands = [_operand(x) for x in args]
    found = reductions_of_result(primitive, operands, params)
    if not found.unreduced:
        every = {name for x in operands for name in x.reductions.reduced}
        if primitive.broadcasts:
            _check_alike(primitive.name, operands, every)
        elif _collapses(primitive, operands, params, every):
            return primitive.bind(*[restacked(x, None) if is_stacked(x) else x for x in args], **params)
    sizes = {name: mesh.shape[name] for name in mesh.axis_names if any(name in stack_axes(place_of(x)) for x in args)}
    specs = [_spec(place_of(x), sizes) if is_stacked(x) else None for x in args]
    out = PartitionSpec(unreduced=found.unreduced, reduced=found.reduced)
    grid = MappedAxes(primitive.name, sizes, checked=False)

    def on_device(*parts: Any) -> Any:
        return primitive.bind(*parts, **params)

    results, joined = grid.run(on_device, args, specs, lambda found: [out] * len(tree.leaves(found)))
    types = list(results) if primitive.multiple else [results]
    sharding = _sharding_of_results(primitive, args, params, types[0], mesh, out)
    outs = tuple(stacked_as(x, sharding) for x in joined)
    return outs if primitive.multiple else outs[0]


def _common_mesh(name: str, args: Sequence[Any]) -> Mesh | AbstractMesh:
    """The mesh of all operands with such axes. Raises ShardingError if there are several."""
    meshes = [x._sharding.mesh for x in args if is_stacked(x)]
    if any(mesh.shape_tuple != meshes[0].shape_tuple for mesh in meshes):
        raise ShardingError(f"{name} got arrays on {meshes[0]} and on another mesh.", "Divide them over one mesh.")
    return meshes[0]


def _operand(x: Any) -> ReducedOperand:
    place = place_of(x)
    kinds = stack_axes(place) if is_stacked(x) else {}
    found = Reductions(_of_kind(kinds, "unreduced"), _of_kind(kinds, "reduced"))
    divided = frozenset(names_in(place.spec.partitions)) if isinstance(place, NamedSharding) else frozenset()
    zero = not is_stacked(x) and np.ndim(x) == 0 and hasattr(x, "numpy") and not x.numpy()
    return ReducedOperand(type_of(x), found, divided, zero)


def _of_kind(kinds: dict[Any, str], kind: str) -> frozenset[Any]:
    return frozenset(name for name, found in kinds.items() if found == kind)


def _check_alike(name: str, operands: Sequence[ReducedOperand], reduced: set[Any]) -> None:
    """Raises ShardingError unless all operands with derivatives, except numbers, are reduced over the same axes."""
    moving = [x for x in operands if x.type.ndim and is_inexact(x.type.dtype)]
    other = next((x for x in moving if x.reductions.reduced != reduced), None)
    if other is not None:
        raise ShardingError(
            f"{name} got an operand that is reduced over {sorted(map(str, reduced))}, and a {other.type!r} that is not:"
            " it is ambiguous whose cotangent should be summed.",
            "Give both the same sharding: rlx.reshard(x, rlx.P(...)).",
        )


def _collapses(
    primitive: Primitive, operands: Sequence[ReducedOperand], params: dict[str, Any], reduced: set[Any]
) -> bool:
    """Whether a result has no copies: it has operands that are not copies, or is a product of arrays."""
    arrays = [x for x in operands if x.type.ndim]
    linear = primitive.linear_in(*(x.type for x in operands), **params)
    return any(x.reductions.reduced != reduced for x in arrays) or (len(arrays) > 1 and not linear)


def _spec(sharding: NamedSharding, sizes: dict[Any, int]) -> PartitionSpec:
    """The entries of a spec that mention these axes without dividing over them."""
    spec = sharding.spec
    return PartitionSpec(unreduced=spec.unreduced & sizes.keys(), reduced=spec.reduced & sizes.keys())


def _sharding_of_results(
    primitive: Primitive,
    args: Sequence[Any],
    params: dict[str, Any],
    result: TensorType,
    mesh: Mesh | AbstractMesh,
    out: PartitionSpec,
) -> NamedSharding:
    """How results are divided: as the axes of operands that they come from."""
    types = [type_of(x) for x in args]
    have = [division_of(place_of(x), t.ndim) for x, t in zip(args, types, strict=True)]
    chosen = chosen_places(mesh.shape, primitive.axis_map(*types, **params), have, result)
    entries = spec_of(tuple(chosen.get(axis, ()) for axis in range(result.ndim))).partitions
    alone = [n for n in mesh.axis_names if mesh.shape[n] == 1]
    said = [x._sharding.spec for x in args if is_stacked(x)]
    unreduced = {n for n in alone if any(n in spec.unreduced for spec in said)}
    reduced = {n for n in alone if any(n in spec.reduced for spec in said)} - unreduced
    padded = (*entries, *[None] * (result.ndim - len(entries)))
    return NamedSharding(
        mesh, PartitionSpec(*padded, unreduced=out.unreduced | unreduced, reduced=out.reduced | reduced)
    )
