"""Meshes, specs and shardings, against jax; arrays that know where they lie; what is refused."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import jax
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors, lax
from rlx.experimental import mesh_utils, multihost_utils
from rlx.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    P,
    SingleDeviceSharding,
    get_abstract_mesh,
    use_abstract_mesh,
)

LIBRARIES = [rlx, jax]
SPECS: list[tuple[Any, ...]] = [
    (),
    ("x",),
    (None, "x"),
    (("x", "y"),),
    ("y", None, "x"),
    (["x"], ()),
    (("y", "x"), "z"),
]


def alone(*names: str) -> Mesh:
    """A mesh of one device."""
    return rlx.make_mesh((1,) * len(names), names, (AxisType.Auto,) * len(names))


# ------------------------------------------------------------- specs
@pytest.mark.parametrize("entries", SPECS, ids=str)
def test_specs_print_and_compare_as_jax_s(entries: tuple[Any, ...]) -> None:
    ours, theirs = (lib.sharding.PartitionSpec(*entries) for lib in LIBRARIES)
    assert repr(ours) == repr(theirs) and len(ours) == len(theirs) and tuple(ours) == tuple(theirs)
    assert ours == P(*entries) and hash(ours) == hash(P(*entries)) and ours != P(*entries, "w")
    assert repr(ours + ("w",)) == repr(theirs + ("w",)) and repr(("w",) + ours) == repr(("w",) + theirs)
    assert ours + P("w") == P(*entries, "w") and (ours == tuple(ours)) is (theirs == tuple(theirs))
    assert pickle.loads(pickle.dumps(ours)) == ours and ours.update(["w"]) == P("w")


def test_specs_are_leaves_with_tuple_like_parts() -> None:
    spec = P("x", ("y", "z"), P.UNCONSTRAINED, None)
    assert rlx.tree.leaves([spec, {"a": spec}]) == [spec, spec]
    assert spec[1] == ("y", "z") and spec.index("x") == 0 and spec.count(None) == 1 and spec[:2] == ("x", ("y", "z"))
    assert repr(spec) == repr(jax.P("x", ("y", "z"), jax.P.UNCONSTRAINED, None))
    assert pickle.loads(pickle.dumps(spec))[2] is P.UNCONSTRAINED
    kept = P("x", unreduced={"y"})
    assert repr(kept) == "P('x', unreduced={'y'})" and kept.unreduced == {"y"}
    for refused in (lambda: tuple(kept), lambda: kept[0], lambda: P("x", reduced={"x"}), lambda: P(unreduced={None})):
        with pytest.raises(ValueError):
            refused()
    with pytest.raises(TypeError):
        P("x", unreduced="y")
    with pytest.raises(ValueError, match="tuple of names"):
        P((("x", "y"), "z"))


def test_arrays_of_parts_are_made_outside_of_traces() -> None:
    sharding = SingleDeviceSharding(rlx.devices()[0])
    with pytest.raises(ValueError, match="traced value"):
        rlx.jit(lambda x: rlx.make_array_from_single_device_arrays((2,), sharding, [x]))(jnp.ones(2))
    with pytest.raises(errors.UnexpectedTracerError):
        rlx.jit(lambda x: rlx.make_array_from_callback((2,), sharding, lambda index: x[index]))(jnp.ones(2))


# ------------------------------------------------------------- meshes
def test_meshes_print_and_compare() -> None:
    ours, theirs = (lib.make_mesh((1, 1), ("x", "y")) for lib in LIBRARIES)
    assert (repr(ours), str(ours), str(ours.abstract_mesh)) == (repr(theirs), str(theirs), str(theirs.abstract_mesh))
    for name in ("shape", "axis_names", "size", "empty", "axis_sizes", "shape_tuple", "is_multi_process", "is_scalar"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.devices.shape == (1, 1) and ours.local_devices == rlx.devices() and ours.device_ids.tolist() == [[0]]
    again = Mesh(np.array(rlx.devices()).reshape(1, 1), ("x", "y"), (AxisType.Explicit,) * 2)
    assert again == ours and hash(again) == hash(ours) and pickle.loads(pickle.dumps(ours)) == ours
    assert again != ours.update(axis_types=(AxisType.Auto,) * 2) and ours.local_mesh is ours
    with pytest.raises(ValueError, match="read-only"):
        ours.devices[0, 0] = None


def test_meshes_without_devices() -> None:
    sizes, names = (4, 2), ("x", "y")
    ours, theirs = (lib.sharding.AbstractMesh(sizes, names) for lib in LIBRARIES)
    assert repr(ours) == repr(theirs) and ours.shape == theirs.shape and ours.size == 8 and ours.abstract_mesh is ours
    assert ours == AbstractMesh(sizes, names) and pickle.loads(pickle.dumps(ours)) == ours
    manual = ours.update_axis_types({"y": AxisType.Manual})
    assert (manual.manual_axes, manual.auto_axes, manual.are_all_axes_auto) == (("y",), ("x",), False)
    for attribute in ("devices", "local_devices", "device_ids", "local_mesh"):
        with pytest.raises(ValueError):
            getattr(ours, attribute)
    with pytest.raises(ValueError), ours:
        pass
    assert AbstractMesh((), ()).empty and Mesh(np.empty((), object), ()).empty


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda s, d: s.Mesh(d, ("x", "y")), ValueError),
        (lambda s, d: s.Mesh(d, (None,)), ValueError),
        (lambda s, d: s.Mesh(d, ("x",), axis_types=("Auto",)), TypeError),
        (lambda s, d: s.Mesh(d, ("x",), axis_types=(s.AxisType.Auto,) * 2), ValueError),
        (lambda s, d: s.AbstractMesh((1,), ("x",), axis_types=(s.AxisType.Auto,) * 2), ValueError),
        (lambda s, d: s.NamedSharding(s.Mesh(d, ("x",)), s.PartitionSpec("q")), ValueError),
        (lambda s, d: s.NamedSharding(s.Mesh(d, ("x",)), None), TypeError),
        (lambda s, d: s.set_mesh(3), ValueError),
        (lambda s, d: s.use_abstract_mesh(s.Mesh(d, ("x",))), ValueError),
        (lambda s, d: s.reshard(np.ones(2), s.PartitionSpec("x")), ValueError),
        (lambda s, d: s.reshard(np.ones(2), s.NamedSharding(s.Mesh(d, ("x",)), s.PartitionSpec("x"))), ValueError),
    ],
)
def test_what_jax_refuses_is_refused(make: Any, error: type[Exception]) -> None:
    for lib in LIBRARIES:
        with pytest.raises(error):
            make(lib.sharding, np.array(lib.devices("cpu")[:1]))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: rlx.make_mesh((8,), ("x",)),
        lambda: Mesh(np.array(rlx.devices() * 8), ("x",)),
        lambda: rlx.pmap(lambda x: x)(jnp.ones((8, 2))),
        lambda: rlx.pmap(lambda x: x, axis_size=8),
        lambda: rlx.pmap(lambda x: x, devices=rlx.devices() * 8),
        lambda: rlx.shard_map(lambda x: x, mesh=AbstractMesh((8,), ("x",)), in_specs=P("x"), out_specs=P("x"))(
            np.ones(8)
        ),
    ],
)
def test_more_devices_than_there_are_are_named(ask: Any) -> None:
    with pytest.raises(errors.ShardingError, match="8 devices, but this process has 1") as caught:
        ask()
    assert isinstance(caught.value, ValueError)


# ------------------------------------------------------------- shardings
@pytest.mark.parametrize("entries", [e for e in SPECS if "z" not in str(e)], ids=str)
def test_shardings_of_any_mesh_divide_as_jax_s(entries: tuple[Any, ...]) -> None:
    shape = (16, 8, 8)
    ours, theirs = (
        lib.sharding.NamedSharding(lib.sharding.AbstractMesh((4, 2), ("x", "y")), lib.sharding.PartitionSpec(*entries))
        for lib in LIBRARIES
    )
    assert repr(ours) == repr(theirs) and ours.shard_shape(shape) == theirs.shard_shape(shape)
    assert (ours.num_devices, ours.is_fully_replicated) == (theirs.num_devices, theirs.is_fully_replicated)
    assert ours.replicated_axes == theirs.replicated_axes and pickle.loads(pickle.dumps(ours)) == ours
    for other in SPECS[:4]:
        mine = ours.update(spec=P(*other))
        assert ours.is_equivalent_to(mine, 3) == theirs.is_equivalent_to(theirs.update(spec=jax.P(*other)), 3)
    for refused in (lambda: ours.device_set, lambda: ours.devices_indices_map(shape), lambda: ours.shard_shape((9, 7))):
        if entries:
            with pytest.raises(ValueError):
                refused()


def test_parts_of_devices_are_where_jax_has_them() -> None:
    """Positions of all devices of a mesh, which rlx knows without having them."""
    sharding = NamedSharding(AbstractMesh((2, 2, 2), ("a", "b", "c")), P(("c", "a"), None, "b"))
    counts, numbers = sharding.part_numbers(3)
    assert counts == (4, 1, 2)
    positions = np.indices((2, 2, 2)).reshape(3, -1).T
    np.testing.assert_array_equal(numbers, [(2 * c + a, 0, b) for a, b, c in positions])


def test_shardings_on_one_device() -> None:
    mesh = alone("x", "y")
    device = rlx.devices()[0]
    named, single = NamedSharding(mesh, P("x", "y")), SingleDeviceSharding(device)
    assert named.is_equivalent_to(single, 2) and named != single and named.device_set == single.device_set == {device}
    assert named.devices_indices_map((4, 2)) == {device: (slice(None), slice(None))}
    assert named.with_memory_kind("pinned_host").memory_kind == "pinned_host" and single.memory_kind == "device"
    assert named.is_fully_replicated and named.is_fully_addressable and single.shard_shape((3,)) == (3,)
    assert pickle.loads(pickle.dumps(single)) == single and len({single, SingleDeviceSharding(device)}) == 1
    with pytest.raises(ValueError, match="memory of kind"):
        named.with_memory_kind("tape")
    with pytest.raises(ValueError, match="twice"):
        NamedSharding(mesh, P("x", "x"))
    with pytest.raises(TypeError):
        SingleDeviceSharding("cpu")


# ------------------------------------------------------------- arrays
def test_arrays_know_where_they_were_put() -> None:
    sharding = NamedSharding(alone("x"), P("x"))
    x = jnp.ones((4, 2))
    assert not x.committed and isinstance(x.sharding, SingleDeviceSharding) and x.is_fully_replicated
    y = rlx.device_put(x, sharding)
    assert y.sharding is sharding and y.committed and y.device == rlx.devices()[0] and y.devices() == {y.device}
    assert not x.committed and np.shares_memory(np.asarray(x), np.asarray(y))
    assert y.copy().sharding is sharding and rlx.device_put(y).sharding is sharding
    assert isinstance(rlx.device_put(y, rlx.devices()[0]).sharding, SingleDeviceSharding)
    assert isinstance((y + 1).sharding, SingleDeviceSharding) and rlx.jit(lambda v: v)(y).sharding is sharding
    found = rlx.device_put({"a": x, "b": [x, x]}, {"a": sharding, "b": rlx.devices()[0]})
    assert found["a"].sharding is sharding and all(leaf.committed for leaf in found["b"])
    assert jnp.asarray(x, device=sharding).sharding is sharding
    assert all(f((2,), device=sharding).committed for f in (jnp.zeros, jnp.ones, jnp.empty))
    assert jnp.arange(3, device=sharding).committed and lax.full((2,), 1.0, sharding=sharding).committed
    assert x.to_device(sharding).sharding is sharding
    with pytest.raises(IndexError):
        x.addressable_data(1)


def test_traced_values_do_not_know() -> None:
    def f(x: Any) -> Any:
        assert not hasattr(x, "sharding")
        for attribute in ("committed", "addressable_shards"):
            with pytest.raises(errors.ConcretizationTypeError):
                getattr(x, attribute)
        return rlx.device_put(x, NamedSharding(alone("x"), P("x")))

    assert rlx.jit(f)(jnp.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_an_array_that_shares_memory_with_a_donated_one_keeps_its_values() -> None:
    """Memory is given back when nobody refers to it any more."""
    x = jnp.ones(1000)
    y = rlx.device_put(x, NamedSharding(alone("x"), P("x")))
    rlx.jit(lambda v: v + 1, donate_argnums=0)(y)
    assert y.is_deleted() and float(x.sum()) == 1000.0


def test_device_put_refuses() -> None:
    mesh = alone("x", "y")
    for place, error in (
        (3, ValueError),
        (P("x"), RuntimeError),
        (NamedSharding(mesh, P("x", "y")), ValueError),
        (NamedSharding(AbstractMesh((1,), ("x",)), P("x")), ValueError),
        ("toaster", ValueError),
        ([rlx.devices()[0]], ValueError),
    ):
        with pytest.raises(error):
            rlx.device_put(jnp.ones(3), place)
    with pytest.raises(ValueError, match="may_alias"):
        rlx.device_put(1.0, donate=True, may_alias=True)


# ------------------------------------------------------------- contexts
def test_the_mesh_in_force_is_a_thread_s_own_and_nests() -> None:
    mesh, other = alone("x"), alone("y", "z")
    with rlx.set_mesh(mesh):
        with rlx.set_mesh(other):
            assert get_abstract_mesh().axis_names == ("y", "z")
        assert rlx.sharding.get_mesh() is mesh
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(get_abstract_mesh().empty))
        thread.start()
        thread.join()
        assert seen == [True]
        with rlx.set_mesh(None):
            assert get_abstract_mesh().empty
    set_until_exit = rlx.set_mesh(mesh)
    assert rlx.sharding.get_mesh() is mesh
    set_until_exit.__exit__(None, None, None)
    assert rlx.sharding.get_mesh().empty


def test_functions_are_traced_for_each_mesh_in_force() -> None:
    names: list[Any] = []
    f = rlx.jit(lambda x: names.append(get_abstract_mesh().axis_names) or x)
    for mesh in (alone("x"), alone("y"), alone("x")):
        with rlx.set_mesh(mesh):
            f(1.0)
    f(1.0)
    assert names == [("x",), ("y",), ()]


def test_contexts_refuse() -> None:
    with use_abstract_mesh(AbstractMesh((4,), ("x",))):
        with pytest.raises(ValueError), use_abstract_mesh(AbstractMesh((2,), ("x",))):
            pass
    for inside in (lambda x: rlx.set_mesh(alone("x")), lambda x: rlx.sharding.get_mesh()):
        with pytest.raises(ValueError, match="traced function"):
            rlx.jit(inside)(1.0)
    with pytest.raises(ValueError, match="Manual"):
        rlx.set_mesh(alone("x").update(axis_types=(AxisType.Manual,)))


# ------------------------------------------------------------- what does not fit
def test_constraints_and_jit_refuse_what_does_not_fit() -> None:
    mesh = alone("x", "y")
    x, y = jnp.ones((4, 2)), jnp.ones(3)
    flat, deep = NamedSharding(mesh, P("x")), NamedSharding(mesh, P("x", "y"))
    for sharding, error in ((P("x"), RuntimeError), (deep, ValueError), (None, ValueError), ("x", TypeError)):
        with pytest.raises(error):
            lax.with_sharding_constraint(y, sharding)
    with pytest.raises(ValueError):
        lax.with_sharding_constraint({"a": x}, {"b": flat})
    divided = NamedSharding(AbstractMesh((8,), ("x",)), P("x"))
    with pytest.raises(ValueError, match="leaves a rest"):
        lax.with_sharding_constraint(x, divided)
    for options, args, error in (
        ({"in_shardings": P("x")}, (y,), RuntimeError),
        ({"in_shardings": deep}, (y,), ValueError),
        ({"in_shardings": (flat,)}, (x, y), ValueError),
        ({"out_shardings": deep}, (y,), ValueError),
        ({"out_shardings": (flat, flat)}, (y,), ValueError),
    ):
        with pytest.raises(error):
            rlx.jit(lambda *a: a[0], **options)(*args)
    with pytest.raises(ValueError, match="keyword"):
        rlx.jit(lambda a: a, in_shardings=flat)(a=y)
    for options, error in (
        ({"in_shardings": 3}, TypeError),
        ({"out_shardings": rlx.devices()[0]}, TypeError),
        ({"out_shardings": P(P.UNCONSTRAINED)}, ValueError),
        ({"out_shardings": flat, "device": "cpu"}, ValueError),
    ):
        with pytest.raises(error):
            rlx.jit(lambda a: a, **options)


def test_shard_map_refuses_what_does_not_fit() -> None:
    mesh = alone("x", "y")
    x = jnp.ones((4, 2))

    def mapped(in_specs: Any, out_specs: Any, f: Any = lambda a: a, **options: Any) -> Any:
        return rlx.shard_map(f, **{"mesh": mesh, **options}, in_specs=in_specs, out_specs=out_specs)(x)

    cases: list[tuple[Any, type[Exception]]] = [
        (lambda: mapped(P("q"), P()), ValueError),
        (lambda: mapped(P("x", "x"), P()), ValueError),
        (lambda: mapped(P("x", None, "y"), P()), ValueError),
        (lambda: mapped(P(), P("x"), lambda a: a.sum()), ValueError),
        (lambda: mapped((P(), P()), P()), ValueError),
        (lambda: mapped(P(), (P(), P())), ValueError),
        (lambda: mapped(P(), None), ValueError),
        (lambda: mapped("x", P()), TypeError),
        (lambda: mapped(P(), "x"), TypeError),
        (lambda: mapped(P(), P(), mesh=3), TypeError),
        (lambda: mapped(P(), P(), mesh=None), ValueError),
        (lambda: mapped(P(), P(), mesh=Mesh(np.empty((), object), ())), ValueError),
        (lambda: mapped(P(), P(), axis_names={"q"}), ValueError),
        (lambda: mapped(P(), P(), axis_names="x"), TypeError),
        (lambda: mapped(P("y"), P(), axis_names={"x"}), ValueError),
        (lambda: mapped(P(), P(), f=3), TypeError),
        (lambda: mapped(P(), P(), lambda a: lax.psum(a, "z")), NameError),
        (lambda: mapped(P(), P(), lambda a: lax.psum(a, "x", axis_index_groups=[[0, 1]])), errors.ShardingError),
        (lambda: mapped(P(), P(), lambda a: lax.ppermute(a, "x", [(0, 1)])), ValueError),
        (
            lambda: mapped(P(), P(), lambda a: lax.with_sharding_constraint(a, NamedSharding(mesh, P("x")))),
            ValueError,
        ),
        (lambda: rlx.shard_map(lambda a: a, mesh=mesh, out_specs=P())(x), TypeError),
        (lambda: rlx.smap(lambda a: a, in_axes=0, out_axes=0, axis_name=("x", "y")), TypeError),
        (lambda: rlx.smap(lambda a: a, in_axes="x", out_axes=0, axis_name="x"), TypeError),
        (lambda: lax.pcast(x, "x", to="nothing"), ValueError),
        (lambda: lax.pvary(x, "x"), NameError),
    ]
    for ask, error in cases:
        with pytest.raises(error):
            ask()
    with rlx.set_mesh(alone("z")), pytest.raises(ValueError, match="in force"):
        mapped(P(), P())


def test_pmap_refuses_what_does_not_fit() -> None:
    x = jnp.ones((1, 2))
    for ask, error in (
        (lambda: rlx.pmap(lambda a: a, in_axes=(None,))(x), ValueError),
        (lambda: rlx.pmap(lambda a: a, in_axes=2)(x), ValueError),
        (lambda: rlx.pmap(lambda a: a, out_axes=5)(x), ValueError),
        (lambda: rlx.pmap(lambda a: a, in_axes=(0, 0))(x), ValueError),
        (lambda: rlx.pmap(lambda a: a, in_axes="x"), TypeError),
        (lambda: rlx.pmap(lambda a: a, devices=[]), ValueError),
        (lambda: rlx.pmap(lambda a: lax.psum(a, "j"), axis_name="i")(x), NameError),
        (lambda: rlx.pmap(3), TypeError),
    ):
        with pytest.raises(error):
            ask()


def test_pmap_has_the_names_of_a_jitted_function() -> None:
    f = rlx.pmap(lambda x: 2 * x, axis_name="i", donate_argnums=0)
    x = jnp.ones((1, 1000))
    assert f.lower(x).compile()(x).shape == (1, 1000)
    out = f(x)
    assert x.is_deleted() and out.sharding == NamedSharding(Mesh(np.array(rlx.devices()), ("i",)), P("i"))


def test_a_vmapped_axis_hides_one_of_a_device_of_the_same_name() -> None:
    f = rlx.shard_map(
        lambda x: rlx.vmap(lambda v: lax.psum(v, "x"), axis_name="x")(x), mesh=alone("x"), in_specs=P(), out_specs=P()
    )
    assert f(jnp.arange(3.0)).tolist() == [3.0, 3.0, 3.0]


def test_a_jitted_function_inside_and_outside_is_traced_for_both() -> None:
    f = rlx.jit(lambda x: lax.psum(x, "i"))
    x = jnp.arange(3.0)
    mapped = rlx.shard_map(f, mesh=alone("i"), in_specs=P(), out_specs=P())
    assert mapped(x).tolist() == [0.0, 1.0, 2.0] and rlx.vmap(f, axis_name="i")(x).tolist() == [3.0] * 3
    assert rlx.vmap(mapped)(x[None]).tolist() == [[0.0, 1.0, 2.0]]


# ------------------------------------------------------------- beside meshes
def test_grids_of_devices() -> None:
    assert mesh_utils.create_device_mesh((1, 1)).tolist() == [[rlx.devices()[0]]]
    for ask in (
        lambda: mesh_utils.create_device_mesh((2,)),
        lambda: mesh_utils.create_device_mesh("x"),
        lambda: mesh_utils.create_hybrid_device_mesh((1,), (1,)),
        lambda: mesh_utils.create_hybrid_device_mesh((1,), (2,), process_is_granule=True),
    ):
        with pytest.raises(ValueError):
            ask()


def test_one_process_exchanges_as_jax_does() -> None:
    from jax.experimental import multihost_utils as theirs

    tree = {"a": np.arange(3.0), "b": np.float32(2)}
    for name, options in (
        ("process_allgather", {}),
        ("process_allgather", {"tiled": True}),
        ("broadcast_one_to_all", {}),
    ):
        ours, expected = (getattr(m, name)(tree, **options) for m in (multihost_utils, theirs))
        for key in tree:
            assert type(ours[key]) is np.ndarray
            np.testing.assert_array_equal(ours[key], expected[key])
    multihost_utils.sync_global_devices("here")
    multihost_utils.assert_equal(tree)
    with pytest.raises(AssertionError, match="differs"):
        multihost_utils.assert_equal(np.float32("nan"), "differs:")
    placed = multihost_utils.host_local_array_to_global_array(tree, alone("x"), {"a": P("x"), "b": P()})
    assert placed["a"].sharding.spec == P("x") and placed["b"].sharding.spec == P()


def test_one_process_is_all_there_is() -> None:
    rlx.distributed.initialize("localhost:1", 1, 0, [0], initialization_timeout=3)
    assert rlx.distributed.is_initialized()
    rlx.distributed.shutdown()
    assert not rlx.distributed.is_initialized()
    for options in ({"num_processes": 2}, {"process_id": 1}, {"local_device_ids": [0, 1]}):
        with pytest.raises((errors.UnsupportedError, ValueError)):
            rlx.distributed.initialize(**options)
    assert not rlx.distributed.is_initialized()


def test_shapes_carry_shardings() -> None:
    mesh = alone("x")
    shape = rlx.ShapeDtypeStruct((4,), "float32", sharding=NamedSharding(mesh, P("x")))
    assert shape.sharding.spec == P("x") and shape != rlx.ShapeDtypeStruct((4,), "float32")
    assert shape.update(shape=(8,)).sharding is shape.sharding and "sharding=Named" in repr(shape)
    with rlx.set_mesh(mesh):
        assert rlx.ShapeDtypeStruct((4,), "float32", sharding=P("x")).sharding == NamedSharding(mesh, P("x"))
    placed = rlx.device_put(jnp.ones(4), shape.sharding)
    assert rlx.ShapeDtypeStruct.like(placed).sharding is shape.sharding
    for refused in (3, NamedSharding(mesh, P(None, "x")), NamedSharding(AbstractMesh((8,), ("x",)), P("x"))):
        with pytest.raises(ValueError):
            rlx.ShapeDtypeStruct((4,), "float32", sharding=refused)


def test_sharding_is_shown_and_inspected(capsys: Any) -> None:
    seen: list[Any] = []

    @rlx.jit
    def f(x: Any) -> Any:
        rlx.debug.inspect_array_sharding({"x": x}, callback=seen.append)
        return x

    x = rlx.device_put(jnp.ones(4), NamedSharding(alone("x"), P("x")))
    f(x)
    rlx.debug.inspect_array_sharding(x, callback=seen.append)
    assert seen[0].num_devices == 1 and seen[1] is x.sharding
    rlx.debug.visualize_array_sharding(x, use_color=False)
    assert capsys.readouterr().out == "┌───────┐\n│ CPU 0 │\n└───────┘\n"
    for shape in ((), (1, 1, 1)):
        with pytest.raises(ValueError, match="1 or 2 axes"):
            rlx.debug.visualize_sharding(shape, x.sharding)


def test_importing_rlx_does_not_load_it() -> None:
    import subprocess
    import sys

    code = "import sys, rlx; rlx.numpy.ones(2) + 1; rlx.jit(lambda x: x); print('rlx.sharding' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
