"""shard_map: a function of one device's parts, with the names of the mesh's axes in scope.

The program is the function's program batched over the mesh's axes: the batching rules of vmap define collectives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import zip_longest
from typing import Any

from rlx.array import Array
from rlx.errors import AxisError, InputTypeError, ShardingError, UnsupportedError
from rlx.ops.spanning_axis import SpanningAxis
from rlx.sharding.blocks import array_of_block, check_processes, own_block, spanning_axes, spans, whole_shape
from rlx.sharding.context import context_mesh, use_abstract_mesh
from rlx.sharding.grid import MappedAxes, check_entries
from rlx.sharding.mesh import AbstractMesh, AxisType, Mesh, current, known_devices, local_devices, too_many
from rlx.sharding.shardings import NamedSharding, check_names
from rlx.sharding.spec import PartitionSpec, names_in, names_of_entry
from rlx.sharding.stacks import stack_axes, stacked_as
from rlx.sharding.traced_places import here, traced_sharding, undivided
from rlx.sharding.trees import complete, placed, spread, typed
from rlx.trace.builder import Tracer, state
from rlx.trace.flat import as_array, function_name, named_after
from rlx.trace.references import Cell, as_given, cells_in, received, refuse_twice
from rlx.trace.spanning import is_spanning, local_of
from rlx.trace.stacked import is_stacked
from rlx.trace.tracing import named_axis, place_known, tracked_axes
from rlx.transforms.reductions import reductions_of
from rlx.transforms.varying import varying_axes
from rlx.trees import tree

__all__ = ["shard_map", "smap"]


class _Infer:
    """The default of in_specs, for a call without them."""

    def __repr__(self) -> str:
        return "Infer"


Infer = _Infer()


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = Infer,
    mesh: Mesh | AbstractMesh | None = None,
    axis_names: set[Any] | frozenset[Any] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """A function that runs `f` on each device, on that device's part of the arguments.

    In `f` the names of the mesh's axes are in scope for collectives such as rlx.lax.psum. All devices run together, as
    one program. On one device, `f` receives the whole arguments.

    Args:
      f: a function of arrays, or trees of them. If left out, shard_map returns a decorator.
      out_specs: how the results are put together: a PartitionSpec, or a tree of them that is a prefix of the result.
      in_specs: how the arguments are divided, a prefix of the tuple of arguments. None as an entry: the argument is
        passed through and need not be an array. Left out: as the arguments are divided over Explicit axes.
        mesh: the mesh; the mesh of rlx.set_mesh if left out.
      axis_names: the axes that `f` sees; all by default.
      check_vma: refuse results that may vary along an axis that out_specs leave out, and let derivatives inside of `f`
        count values that are equal on all devices once. Without it, results are taken from the first device, and
        derivatives are each device's own, as under rlx.vmap.

    Returns: a function of the same positional arguments.

    Raises: ShardingError for a mesh with more devices than exist; for specs that name other axes, have more entries
      than an array has axes, divide an axis unevenly, or are not a prefix; and for results that vary along an axis that
      their spec leaves out. InputTypeError if specs are not specs; MeshContextError if there is no mesh.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> mesh = rlx.make_mesh((1,), ("x",))
    >>> P = rlx.P
    >>> @rlx.shard_map(mesh=mesh, in_specs=(P(None, "x"), P("x")), out_specs=P())
    ... def product(a, b):
    ...     return rlx.lax.psum(a @ b, "x")
    >>> product(jnp.ones((2, 3)), jnp.ones((3, 2))).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    if f is None:
        options = dict(out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names, check_vma=check_vma)
        return partial(shard_map, **options)
    if not callable(f):
        raise InputTypeError(f"shard_map got {f!r:.60}, a {type(f).__name__}.", "Pass a function.")
    if not isinstance(axis_names, (set, frozenset)):
        raise InputTypeError(f"shard_map got axis_names={axis_names!r}.", "Pass a set of names.")
    return _mapped(f, mesh, in_specs, out_specs, frozenset(axis_names), check_vma)


def smap(
    f: Callable[..., Any] | None = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: Any
) -> Callable[..., Any]:
    """shard_map over one axis of the mesh in force, with axis numbers of arrays in place of specs.

    Args:
      f: a function of arrays, or trees of them. If left out, smap returns a decorator.
      in_axes: which axis of each argument is divided: an integer, None, or a tuple of trees of them.
      out_axes: the axis along which results are joined, in the same form.
      axis_name: the name of the mesh axis.

    Raises: InputTypeError for axes that are not integers or None; AxisError for a negative axis; else as shard_map.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> with rlx.set_mesh(rlx.make_mesh((1,), ("x",))):
    ...     rlx.smap(lambda x: rlx.lax.psum(x, "x"), in_axes=0, out_axes=None, axis_name="x")(jnp.ones(2)).tolist()
    [1.0, 1.0]
    """
    if f is None:
        return partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, (list, tuple)):
        raise InputTypeError(f"smap got axis_name={axis_name!r}.", "Pass one name; shard_map takes several.")
    if in_axes is not Infer and not (in_axes is None or isinstance(in_axes, (int, tuple))):
        raise InputTypeError(f"smap got in_axes={in_axes!r}.", "Pass an integer, None, or a tuple.")
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if axes is not Infer and not all(isinstance(axis, int) for axis in tree.leaves(axes)):
            raise InputTypeError(f"smap got {name}={axes!r}.", "Its leaves are integers and None.")
        if axes is not Infer and any(axis < 0 for axis in tree.leaves(axes)):
            raise AxisError(f"smap got {name}={axes!r}.", "Its axes are counted from the front: 0 or more.")

    def specs(axes: Any) -> Any:
        return tree.map(lambda axis: _spec_of(axis_name, axis), axes, is_leaf=lambda axis: axis is None)

    in_specs = Infer if in_axes is Infer else specs(in_axes)
    return _mapped(f, None, in_specs, specs(out_axes), frozenset([axis_name]))


def _spec_of(axis_name: Any, axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, axis_name)


def _mapped(
    f: Callable[..., Any], mesh: Any, in_specs: Any, out_specs: Any, axis_names: frozenset[Any], check_vma: bool = True
) -> Callable[..., Any]:
    name = function_name(f)

    @wraps(f)
    def function(*args: Any) -> Any:
        found = _mesh_of(mesh)
        manual = _manual_axes(found, axis_names)
        specs = _input_specs(name, found, manual, in_specs, args)
        _check_specs(f"out_specs of {name}", out_specs, found, manual)
        leaves, treedef = tree.flatten(args)
        pairs = list(zip(leaves, specs, strict=True))
        keeps = [spec is None or isinstance(x, Cell) for x, spec in pairs]
        values = [x if kept else as_array(x, "an argument of shard_map") for x, kept in zip(leaves, keeps, strict=True)]
        for value, spec in zip(values, specs, strict=True):
            if spec is not None:
                shape = value.type.shape if isinstance(value, Cell) else value.shape
                _check_shape(f"in_specs of {name}", found, spec, shape)
                _check_stacked(f"in_specs of {name}", NamedSharding(found, spec), value)
        if isinstance(found, AbstractMesh) and state.builder is None:
            found = _mesh_of_arguments(name, found, values)
        mapped = {n: size for n, size in found.shape.items() if n in manual and found.type_of(n) is not AxisType.Manual}
        rest = _Rest.of(found, manual)
        beyond = [rest.of_argument(x) for x in values]

        def on_device(*parts: Any) -> Any:
            with ExitStack() as scope:
                scope.enter_context(use_abstract_mesh(rest.inside))
                for axis, size in mapped.items():
                    kinds = dict(alone=size == 1, devices=size > 1, tracked=check_vma and size > 1)
                    scope.enter_context(named_axis(axis, size, **kinds))
                for part, value, sharding in zip(parts, values, beyond, strict=True):
                    if sharding is not None and part is not value:
                        place_known(part, sharding)
                out = f(*tree.unflatten(treedef, parts))
                rest.note(out)
                if tracked_axes():
                    _check_reductions(name, out, _output_specs(name, out, out_specs))
                return out

        if all(size == 1 for size in mapped.values()):
            return _results(name, found, on_device(*values), out_specs, rest)
        cells = [spec for x, spec in pairs if isinstance(x, Cell) and spec is not None]
        if cells:
            given = [x if spec is None else as_given(x, False) for x, spec in pairs]
            options = mesh, tuple(specs), (out_specs, cells), axis_names, check_vma
            refuse_twice(name, [(f"args{tree.path_text(path)}", x) for path, x in tree.leaves_with_path(args)])
            out, contents = _mapped(_over_contents(f, treedef), *options)(*given)
            for cell, content in zip(cells_in(leaves), contents, strict=True):
                cell.write(content)
            return out
        spanning, local = _over_processes(found)
        pairs = zip(values, specs, strict=True)
        values = [x if spec is None else _of_process(name, found, x, spec) for x, spec in pairs]
        sizes = {axis: local[axis] for axis, size in mapped.items() if size > 1}
        grid = MappedAxes(name, sizes, check_vma, {axis.name: axis for axis in spanning if axis.name in sizes})
        out, joined = grid.run(on_device, values, specs, lambda out: _output_specs(name, out, out_specs))
        return _placed(found, out, joined, _output_specs(name, out, out_specs), rest)

    return function


@dataclass
class _Rest:
    """The axes with several devices that the function is not mapped over, but that still divide values in it.

    inside: the mesh as the function sees it. names: the axes; Auto axes, which types do not record, only if nothing
    is traced. results: how the function's results are divided over them.
    """

    inside: AbstractMesh
    names: frozenset[Any]
    results: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, mesh: Mesh | AbstractMesh, manual: frozenset[Any]) -> _Rest:
        """The axes of a mesh."""
        told = (AxisType.Explicit,) if state.builder is not None else (AxisType.Explicit, AxisType.Auto)
        others = (n for n, size in mesh.shape.items() if n not in manual and size > 1 and mesh.type_of(n) in told)
        return cls(_manual(mesh.abstract_mesh, manual), frozenset(others))

    def of_argument(self, x: Any) -> NamedSharding | None:
        """How an argument is divided over these axes."""
        known = here(traced_sharding(x)) if self.names and isinstance(x, Array) else None
        if not isinstance(known, NamedSharding) or known.mesh.shape_tuple != self.inside.shape_tuple:
            return None
        return NamedSharding(self.inside, PartitionSpec(*map(self._kept, known.spec.partitions)))

    def _kept(self, entry: Any) -> tuple[Any, ...]:
        return tuple(n for n in names_of_entry(entry) if n in self.names)

    def note(self, out: Any) -> None:
        """Note how the function's results are divided, while its program is open."""
        if self.names:
            self.results = [traced_sharding(x) for x in tree.leaves(out)]

    def sharding(self, number: int, mesh: Mesh | AbstractMesh, spec: PartitionSpec, ndim: int) -> NamedSharding:
        """The sharding of a result whose out_specs describe the division over the mapped axes."""
        found = self.results[number] if self.names else None
        if isinstance(found, NamedSharding):
            pairs = zip_longest(spec.partitions, found.spec.partitions)
            entries = [(*names_of_entry(own), *self._kept(other)) for own, other in pairs]
            last = max((axis + 1 for axis, names in enumerate(entries) if names), default=0)
            spec = spec.update(entries[: max(last, len(spec))])
        sharding = NamedSharding(mesh, spec)
        return typed(sharding, ndim) if self.names else sharding


def _mesh_of_arguments(name: str, mesh: AbstractMesh, values: Sequence[Any]) -> Mesh:
    """The mesh, with devices, of the arguments. Raises ShardingError if no argument has one, or the axes differ."""
    known = current().concrete
    if known is not None and known.shape_tuple == mesh.shape_tuple:
        return known.update(axis_types=mesh.axis_types)
    shardings = [getattr(x, "_sharding", None) for x in values]
    meshes = [s.mesh for s in shardings if isinstance(s, NamedSharding)]
    for other in meshes:
        if other.shape_tuple != mesh.shape_tuple:
            raise ShardingError(
                f"{name} is mapped over {mesh!r}, and an argument is on {other!r}.", "Divide it over the same axes."
            )
    if not meshes:
        raise ShardingError(
            f"{name} is mapped over {mesh!r}, which has no devices, and no argument is on devices.",
            "Pass a rlx.sharding.Mesh, or arrays placed by rlx.device_put with a NamedSharding over one.",
        )
    return meshes[0].update(axis_types=mesh.axis_types)


def _over_contents(f: Callable[..., Any], treedef: Any) -> Callable[..., Any]:
    """`f` with the contents of cells passed as leaves; it returns the cells' new contents after its result."""

    @named_after(f)
    def function(*leaves: Any) -> tuple[Any, list[Array]]:
        inside, own = received(list(leaves))
        return f(*tree.unflatten(treedef, inside)), [cell.read() for cell in own]

    return function


def _mesh_of(mesh: Any) -> Mesh | AbstractMesh:
    """The mesh of a call: the argument, or the mesh in force. Raises ShardingError if there are fewer devices."""
    known = current().abstract
    if mesh is None:
        if known is None or known.empty:
            mesh = context_mesh("shard_map", None)
        else:
            mesh = _with_devices(known)
    if not isinstance(mesh, (Mesh, AbstractMesh)):
        raise InputTypeError(f"shard_map got {mesh!r:.60} as its mesh.", "Pass a rlx.sharding.Mesh.")
    if mesh.empty:
        raise ShardingError(f"shard_map got {mesh!r}, which is empty.", "Pass a mesh with devices.")
    if isinstance(mesh, Mesh):
        check_processes(mesh)
    same = known is None or known.empty or (mesh.shape_tuple, mesh.axis_types) == (known.shape_tuple, known.axis_types)
    if not same:
        raise ShardingError(
            f"shard_map got {mesh!r}, but the mesh in force is {known!r}.", "Leave mesh out, or pass the same one."
        )
    known_here = known_devices() if isinstance(mesh, Mesh) else local_devices()
    if mesh.size > len(known_here):
        raise too_many("shard_map", mesh.size, len(known_here))
    return mesh


def _over_processes(mesh: Mesh | AbstractMesh) -> tuple[list[SpanningAxis], dict[Any, int]]:
    """The axes that span processes, and the length of each axis within one process."""
    if isinstance(mesh, Mesh):
        return spanning_axes(mesh), dict(zip(mesh.axis_names, mesh.local_sizes, strict=True))
    return [], dict(mesh.shape)


def _of_process(name: str, mesh: Mesh | AbstractMesh, x: Array, spec: PartitionSpec) -> Array:
    """This process's data of an argument: its block if the argument spans processes, else the whole array."""
    if not isinstance(mesh, Mesh):
        return x
    wanted = NamedSharding(mesh, spec)
    if not is_spanning(x):
        return own_block(x, wanted) if spans(wanted) else x
    if not x._sharding.is_equivalent_to(wanted, x.ndim):
        raise ShardingError(
            f"in_specs of {name} has {spec!r} for an array that is divided over processes as {x._sharding.spec!r}.",
            "Pass its own spec, and exchange inside: rlx.lax.all_gather(x, axis, tiled=True), or rlx.lax.all_to_all.",
        )
    return local_of(x)


def _with_devices(abstract: AbstractMesh) -> Mesh | AbstractMesh:
    """The mesh in force with its devices, if they are known, and the current axis types."""
    concrete = current().concrete
    if concrete is not None and concrete.shape_tuple == abstract.shape_tuple:
        return concrete.update(axis_types=abstract.axis_types)
    return abstract


def _manual_axes(mesh: Mesh | AbstractMesh, axis_names: frozenset[Any]) -> frozenset[Any]:
    unknown = axis_names - frozenset(mesh.axis_names)
    if unknown:
        raise ShardingError(
            f"shard_map got axis_names={set(axis_names)} for a mesh with the axes {mesh.axis_names}.",
            f"The mesh has no axis {min(unknown, key=str)!r}.",
        )
    return axis_names or frozenset(mesh.axis_names)


def _manual(mesh: AbstractMesh, manual: frozenset[Any]) -> AbstractMesh:
    return mesh.update_axis_types(dict.fromkeys(manual, AxisType.Manual))


# ------------------------------------------------------------- specs
def _check_specs(owner: str, specs: Any, mesh: Mesh | AbstractMesh, manual: frozenset[Any]) -> None:
    """Raises unless the leaves are specs that name manual axes only, each once."""
    for spec in tree.leaves(specs):
        if not isinstance(spec, PartitionSpec):
            raise InputTypeError(
                f"{owner}: {spec!r:.60} is a {type(spec).__name__}.", "Its leaves are PartitionSpecs: rlx.P('x')."
            )
        if (spec.unreduced or spec.reduced) and manual != frozenset(mesh.axis_names):
            raise UnsupportedError(
                f"{owner} got {spec!r}, but the function is mapped over {sorted(map(str, manual))} only.",
                "Unreduced and reduced axes require a function that is mapped over all axes: leave axis_names out.",
            )
        check_names(owner, mesh, spec)
        taken = [n for n in names_in(spec.partitions) if n in state.dividing]
        if taken:
            raise ShardingError(
                f"{owner} got {spec!r} inside a rlx.vmap with spmd_axis_name={taken[0]!r}.",
                f"Leave {taken[0]!r} out of the spec, or spmd_axis_name={taken[0]!r} out of vmap.",
            )
        others = [n for n in names_in(spec.partitions) if n not in manual]
        if others:
            raise ShardingError(
                f"{owner} got {spec!r}, but the function is mapped over {sorted(map(str, manual))} only.",
                f"Leave {others[0]!r} out of the spec, or add it to axis_names.",
            )


def _input_specs(
    name: str, mesh: Mesh | AbstractMesh, manual: frozenset[Any], in_specs: Any, args: tuple[Any, ...]
) -> list[Any]:
    """A spec for each leaf of the arguments; None for leaves that are passed through."""
    owner = f"in_specs of {name}"
    if in_specs is Infer:
        others = [n for n in mesh.axis_names if n in manual and mesh.type_of(n) is not AxisType.Explicit]
        if others:
            raise InputTypeError(
                f"{name} is mapped without in_specs over the axis {others[0]!r}, which is {mesh.type_of(others[0])!r}.",
                "Pass in_specs: arrays record their division only for Explicit axes.",
            )
        return [_own_spec(name, x, manual, mesh.size > 1) for x in tree.leaves(args)]
    _check_specs(owner, in_specs, mesh, manual)
    return spread(owner, in_specs, args)


def _own_spec(name: str, x: Any, manual: frozenset[Any], several: bool) -> PartitionSpec:
    x = x.read() if isinstance(x, Cell) else x
    sharding = here(traced_sharding(x))
    if sharding is None and several and not undivided(x):
        raise ShardingError(
            f"{name} is mapped without in_specs over a traced {x.type!r}, whose division is unknown.",
            "Pass in_specs, or divide it before: rlx.reshard(x, rlx.P(...)).",
        )
    spec = sharding.spec if isinstance(sharding, NamedSharding) else PartitionSpec()
    return spec.update(tuple(n for n in names_of_entry(entry) if n in manual) for entry in spec.partitions)


def _check_shape(owner: str, mesh: Mesh | AbstractMesh, spec: PartitionSpec, shape: Sequence[int]) -> None:
    check_entries(owner, spec, shape)
    sizes = mesh.shape
    for axis, (size, entry) in enumerate(zip(shape, spec.partitions, strict=False)):
        count = math.prod(sizes[n] for n in names_of_entry(entry))
        if size % count:
            raise ShardingError(
                f"{owner}: {spec!r} divides axis {axis} of an array of shape {tuple(shape)} by {count}, which leaves a"
                " rest.",
                "Pad the array, or divide it otherwise.",
            )


def _check_stacked(owner: str, wanted: NamedSharding, x: Any) -> None:
    """Raises ShardingError unless an argument is parts of a sum, or copies, over the axes in its spec."""
    want, have = stack_axes(wanted), stack_axes(x._sharding) if is_stacked(x) else {}
    if want != have:
        raise ShardingError(
            f"{owner} has {wanted.spec!r} for a {x.type!r} with the spec"
            f" {x._sharding.spec if have else PartitionSpec()!r}.",
            "Unreduced and reduced axes must match the argument's. Convert it first: rlx.reshard(x, spec).",
        )


def _check_reductions(name: str, out: Any, specs: Sequence[PartitionSpec]) -> None:
    """Raises ShardingError unless results are parts of a sum, or copies, over the axes in their specs.

    A value that varies over an axis counts as a part of a sum if its spec has that axis as unreduced.
    """
    names = frozenset(tracked_axes())
    for number, (x, spec) in enumerate(zip(tree.leaves(out), specs, strict=True)):
        found, unreduced = reductions_of(x), spec.unreduced & names
        made = unreduced - found.unreduced
        varying = varying_axes(x) if made else None
        equal = frozenset() if varying is None else made - varying
        if equal or found.unreduced - unreduced or found.reduced != spec.reduced & names:
            raise ShardingError(
                f"out_specs of {name} has {spec!r} for result {number}, which is unreduced over"
                f" {sorted(map(str, found.unreduced))} and reduced over {sorted(map(str, found.reduced))}.",
                "The unreduced axes of out_specs are axes over which the result is parts of a sum, or varies. Reduced"
                ' axes are axes over which it was copied: rlx.lax.pcast(result, axis, to="reduced").',
            )


def _output_specs(name: str, out: Any, out_specs: Any) -> list[PartitionSpec]:
    specs = spread(f"out_specs of {name}", out_specs, out)
    if None in specs:
        raise ShardingError(f"out_specs of {name} has None for a result.", "Pass a PartitionSpec: P() for a copy.")
    return specs


def _results(name: str, mesh: Mesh | AbstractMesh, out: Any, out_specs: Any, rest: _Rest) -> Any:
    specs = _output_specs(name, out, out_specs)
    arrays = [as_array(leaf, f"a result of {name}") for leaf in tree.leaves(out)]
    for array, spec in zip(arrays, specs, strict=True):
        _check_shape(f"out_specs of {name}", mesh, spec, array.shape)
    return _placed(mesh, out, arrays, specs, rest)


def _placed(
    mesh: Mesh | AbstractMesh, out: Any, arrays: Sequence[Array], specs: Sequence[PartitionSpec], rest: _Rest
) -> Any:
    """The arrays in the structure of `out`, marked as divided over the mesh's devices."""
    pairs = enumerate(zip(arrays, specs, strict=True))
    arrays = [_known(x, rest.sharding(number, mesh, spec, x.ndim)) for number, (x, spec) in pairs]
    return tree.unflatten(tree.structure(out), arrays)


def _known(x: Array, sharding: NamedSharding) -> Array:
    """The array with this sharding: x, or the array that x is a block of, or holds the devices' parts of."""
    if stack_axes(sharding):
        ndim = x.ndim - len(stack_axes(sharding))
        return stacked_as(x, complete(sharding, ndim) if isinstance(x, Tracer) else sharding)
    if isinstance(sharding.mesh, AbstractMesh):  # the arguments' mesh has the devices
        if isinstance(x, Tracer) and sharding.mesh.size > 1:
            place_known(x, sharding)
        return x
    return array_of_block(x, whole_shape(sharding, x.shape), sharding) if spans(sharding) else placed(x, sharding)
