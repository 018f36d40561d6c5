"""Programs written for several devices, on one: the same programs run on rlx and on jax, with equal results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import rlx

X = np.linspace(-1.0, 2.0, 24, dtype=np.float32).reshape(8, 3)
W = np.linspace(-0.5, 0.5, 12, dtype=np.float32).reshape(3, 4)
Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """Takes a library (rlx or jax), returns a tree of arrays and numbers, to be compared."""
    PROGRAMS[function.__name__] = function
    return function


def mesh_of(lib: Any, *names: str, kind: str = "Auto") -> Any:
    types = (getattr(lib.sharding.AxisType, kind),) * len(names)
    return lib.make_mesh((1,) * len(names), names, axis_types=types)


def spec_of(array: Any) -> tuple[Any, ...]:
    """The spec of an array's sharding, without what says nothing."""
    entries = list(array.sharding.spec)
    while entries and entries[-1] is None:
        entries.pop()
    return tuple(entries)


# ------------------------------------------------------------- data-parallel training
def network(lib: Any, params: Any, x: Any) -> Any:
    hidden = lib.numpy.tanh(x @ params["w"] + params["b"])
    return lib.numpy.sum(hidden, axis=-1)


def loss(lib: Any, params: Any, x: Any, y: Any) -> Any:
    return lib.numpy.mean((network(lib, params, x) - y) ** 2)


def parameters() -> dict[str, np.ndarray]:
    return {"w": W, "b": np.zeros(4, np.float32)}


@program
def data_parallel_step(lib: Any) -> Any:
    """Batches divided, parameters copied, by NamedSharding and jit."""
    mesh = mesh_of(lib, "data")
    P, NS = lib.sharding.PartitionSpec, lib.sharding.NamedSharding
    copied, divided = NS(mesh, P()), NS(mesh, P("data"))
    params = lib.device_put(parameters(), copied)
    x, y = lib.device_put((X, X.sum(1)), divided)

    @partial(lib.jit, in_shardings=(copied, divided, divided), out_shardings=(copied, None))
    def step(params: Any, x: Any, y: Any) -> Any:
        value, grads = lib.value_and_grad(partial(loss, lib))(params, x, y)
        return lib.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    values = []
    for _ in range(5):
        params, value = step(params, x, y)
        values.append(value)
    assert params["w"].sharding == copied and x.sharding == divided
    return params, values


@program
def shard_map_training_step(lib: Any) -> Any:
    """The gradient of each device's loss, averaged by pmean."""
    mesh = mesh_of(lib, "data")
    P = lib.sharding.PartitionSpec

    def step(params: Any, x: Any, y: Any) -> Any:
        grads = lib.grad(partial(loss, lib))(params, x, y)
        grads = lib.lax.pmean(grads, "data")
        return lib.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    mapped = lib.shard_map(step, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P(), check_vma=False)
    return mapped(parameters(), X, X.sum(1)), lib.jit(mapped)(parameters(), X, X.sum(1))


@program
def pmapped_update(lib: Any) -> Any:
    """The same by pmap, with a leading axis of one device."""

    @partial(lib.pmap, axis_name="batch", in_axes=(None, 0, 0), out_axes=None)
    def step(params: Any, x: Any, y: Any) -> Any:
        grads = lib.lax.pmean(lib.grad(partial(loss, lib))(params, x, y), axis_name="batch")
        return lib.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    return step(parameters(), X[None], X.sum(1)[None])


@program
def pmap_of_trees(lib: Any) -> Any:
    """Trees, keyword arguments, static arguments and axes elsewhere than in front."""

    def f(power: int, tree: Any, *, scale: Any) -> Any:
        total = lib.lax.psum(tree["a"] ** power, "i")
        return {"total": total, "index": lib.lax.axis_index("i")}, scale * tree["b"]

    in_axes, out_axes = (None, {"a": 1, "b": None}), ({"total": 1, "index": 0}, 0)
    g = lib.pmap(f, axis_name="i", in_axes=in_axes, out_axes=out_axes, static_broadcasted_argnums=0)
    return g(3, {"a": X[:, None], "b": W}, scale=np.float32([2.0]))


@program
def pmap_under_transformations(lib: Any) -> Any:
    """grad, vmap and jit of pmap."""
    f = lib.pmap(lambda x: lib.numpy.sin(x) * lib.lax.psum(x, "i"), axis_name="i")
    return (
        lib.grad(lambda x: f(x).sum())(X[None]),
        lib.vmap(f)(X[:, None]),
        lib.jit(f)(X[None]),
        lib.jvp(f, (X[None],), (X[None],))[1],
    )


# ------------------------------------------------------------- shard_map
@program
def matrix_product_with_psum(lib: Any) -> Any:
    """Each device has a part of the contracted axis."""
    mesh = mesh_of(lib, "x", "y")
    P = lib.sharding.PartitionSpec

    @partial(lib.shard_map, mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))
    def product(a: Any, b: Any) -> Any:
        return lib.lax.psum(lib.numpy.dot(a, b), "y")

    out = product(X, W)
    assert spec_of(out) == ("x",) and isinstance(out.sharding, lib.sharding.NamedSharding)
    return out, lib.jit(product)(X, W), lib.grad(lambda b: (product(X, b) ** 2).sum())(W)


@program
def every_collective(lib: Any) -> Any:
    """What the operations along an axis mean for one member."""
    mesh = mesh_of(lib, "i", "j")
    P, L = lib.sharding.PartitionSpec, lib.lax

    def body(x: Any) -> Any:
        return {
            "sum": L.psum(x, "i"),
            "sum of all": L.psum(x, ("i", "j")),
            "mean": L.pmean(x, ("i", "j")),
            "max": L.pmax(x, "i"),
            "min": L.pmin(x, ("i", "j")),
            "gather": L.all_gather(x, "i"),
            "gather at 1": L.all_gather(x, "j", axis=1),
            "gather tiled": L.all_gather(x, ("i", "j"), axis=1, tiled=True),
            "scatter": L.psum_scatter(x[None], "i"),
            "scatter tiled": L.psum_scatter(x, ("i", "j"), scatter_dimension=1, tiled=True),
            "permuted": L.ppermute(x, "i", [(0, 0)]),
            "permuted away": L.ppermute(x, "i", []),
            "shuffled": L.pshuffle(x, "i", [0]),
            "dealt": L.all_to_all(x[None], "i", 0, 1),
            "dealt tiled": L.all_to_all(x, "i", 0, 1, tiled=True),
            "index": L.axis_index("i") + L.axis_index(("i", "j")),
            "size": L.axis_size(("i", "j")) * x,
            "number": L.psum(1, "i") * x,
            "groups": L.psum(x, "i", axis_index_groups=[[0]]),
            "bools": L.psum(x > 0, "i"),
        }

    mapped = lib.shard_map(body, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    return mapped(X), lib.jit(mapped)(X), lib.vmap(mapped)(np.stack([X, 2 * X]))


@program
def derivatives_of_collectives(lib: Any) -> Any:
    mesh = mesh_of(lib, "i")
    P, L, N = lib.sharding.PartitionSpec, lib.lax, lib.numpy

    def body(x: Any) -> Any:
        y = N.sin(L.psum(x, "i")) + L.ppermute(N.cos(x), "i", [(0, 0)]) * L.pmean(x, "i")
        z = L.all_gather(y, "i", tiled=True) * L.psum_scatter(x, "i", tiled=True)
        return z * L.all_to_all(x, "i", 0, 0, tiled=True)

    f = lib.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)
    gradient = lib.grad(lambda x: f(x).sum())
    return gradient(X), lib.jvp(f, (X,), (N.ones_like(X),)), lib.jit(lib.vmap(gradient))(X[None])


@program
def control_flow_in_shard_map(lib: Any) -> Any:
    """Loops, branches, a nested jit and a custom rule in the body, and a gradient through all of it."""
    mesh = mesh_of(lib, "i")
    P, L, N = lib.sharding.PartitionSpec, lib.lax, lib.numpy

    @lib.jit
    def normalise(x: Any) -> Any:
        return x - L.pmean(x, "i")

    @lib.custom_vjp
    def reduced(x: Any) -> Any:
        return L.psum(x, "i")

    reduced.defvjp(lambda x: (L.psum(x, "i"), x), lambda x, g: (2 * L.psum(g, "i") * N.cos(x),))

    def body(x: Any) -> Any:
        y = L.scan(lambda c, _: (c + normalise(N.sin(c)), L.psum(c.sum(), "i")), x, None, length=3)
        z = L.cond(L.psum(y[1].sum(), "i") > 0, lambda v: L.pmean(v, "i"), lambda v: -v, x)
        return L.fori_loop(0, 2, lambda _, c: c + L.psum(c, "i"), y[0] * z) + reduced(x)

    f = lib.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)
    return f(X), lib.jit(f)(X), lib.grad(lambda x: f(x).sum())(X), lib.jit(lib.grad(lambda x: f(x).sum()))(X)


@program
def trees_of_specs(lib: Any) -> Any:
    """Specs that are prefixes of trees; an argument that is no array."""
    mesh = mesh_of(lib, "x")
    P = lib.sharding.PartitionSpec

    def body(tree: Any, how: str, rest: Any) -> Any:
        return {"a": (tree["w"] * 2, [tree["b"]]), "b": rest if how == "keep" else None}

    f = lib.shard_map(
        body, mesh=mesh, in_specs=({"w": P(None, "x"), "b": P()}, None, P("x")), out_specs={"a": P(), "b": P("x")},
        check_vma=False,
    )  # fmt: skip
    return f({"w": W, "b": np.float32(1)}, "keep", (X, X[0]))


@program
def some_axes_manual(lib: Any) -> Any:
    """A function mapped over one axis of two, in another mapped over the rest."""
    mesh = mesh_of(lib, "i", "j")
    P = lib.sharding.PartitionSpec

    def inner(x: Any) -> Any:
        return lib.lax.psum(x, "j") + lib.lax.axis_index("i")

    def outer(x: Any) -> Any:
        nested = lib.shard_map(inner, in_specs=P("j"), out_specs=P(), axis_names={"j"}, check_vma=False)
        return lib.lax.psum(nested(x), "i")

    f = lib.shard_map(outer, mesh=mesh, in_specs=P("i"), out_specs=P(), axis_names={"i"}, check_vma=False)
    return lib.jit(f)(X)


@program
def mesh_in_force(lib: Any) -> Any:
    """Specs alone refer to the mesh of set_mesh; so does a shard_map without mesh, and smap."""
    P, L = lib.sharding.PartitionSpec, lib.lax
    with lib.set_mesh(mesh_of(lib, "x", "y")):
        placed = lib.device_put(X, P("x", "y"))
        f = lib.jit(lambda x: L.with_sharding_constraint(2 * x, P("y")), in_shardings=P("x"), out_shardings=P("y"))
        mapped = lib.shard_map(lambda x: L.psum(x, "x"), in_specs=P("x"), out_specs=P(), check_vma=False)
        single = lib.smap(lambda x: x * L.axis_size("x"), in_axes=0, out_axes=0, axis_name="x")
        found = lib.sharding.get_abstract_mesh()
        assert lib.sharding.get_mesh().shape == found.shape
        out = [f(X), mapped(X), lib.jit(single)(X), placed]
        assert [spec_of(out[0]), spec_of(placed)] == [("y",), ("x", "y")]
    assert lib.sharding.get_abstract_mesh().empty and lib.sharding.get_mesh().empty
    return out, found.axis_sizes


@program
def old_mesh_context(lib: Any) -> Any:
    """`with mesh:`, as it was before set_mesh."""
    P = lib.sharding.PartitionSpec
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with lib.sharding.Mesh(np.array(lib.devices("cpu")[:1]), ("x",)):
            return lib.jit(lambda x: lib.lax.with_sharding_constraint(x * x, P("x")))(X)


@program
def constraint_within_a_model(lib: Any) -> Any:
    """Activations constrained between layers, under grad and remat."""
    mesh = mesh_of(lib, "data", "model")
    P, NS = lib.sharding.PartitionSpec, lib.sharding.NamedSharding

    @lib.checkpoint
    def layer(x: Any, w: Any) -> Any:
        x = lib.lax.with_sharding_constraint(x, NS(mesh, P("data", None)))
        return lib.lax.with_sharding_constraint(lib.numpy.tanh(x @ w), NS(mesh, P("data", "model")))

    f = lib.jit(lib.value_and_grad(lambda ws: layer(layer(X, ws[0]), ws[1]).sum()))
    return f((W, W.T))


@program
def explicit_axes(lib: Any) -> Any:
    """Axes of type Explicit: reshard, out_sharding, auto_axes, shard_map without in_specs."""
    P = lib.sharding.PartitionSpec
    with lib.set_mesh(mesh_of(lib, "x", kind="Explicit")):
        x = lib.reshard(X, P("x"))
        zeros = lib.numpy.zeros((4, 2), np.float32, out_sharding=P("x"))
        product = lib.numpy.einsum("ij,jk->ik", x, W, out_sharding=P("x"))
        doubled = lib.sharding.auto_axes(lambda a: 2 * a, out_sharding=P("x"))(x)
        summed = lib.shard_map(lambda a: lib.lax.psum(a.sum(0), "x"), out_specs=P())(x)
        assert [spec_of(a) for a in (x, zeros, doubled)] == [("x",)] * 3
        assert lib.typeof(x).shape == X.shape
    return x, zeros, product, doubled, summed


@program
def arrays_of_parts(lib: Any) -> Any:
    """Arrays from callbacks, from devices' arrays and from a process's data; and their parts."""
    mesh = mesh_of(lib, "x")
    sharding = lib.sharding.NamedSharding(mesh, lib.sharding.PartitionSpec("x"))
    made = [
        lib.make_array_from_callback(X.shape, sharding, lambda index: X[index]),
        lib.make_array_from_single_device_arrays(X.shape, sharding, [lib.device_put(X, lib.devices("cpu")[0])]),
        lib.make_array_from_process_local_data(sharding, X),
    ]
    for array in made:
        (part,) = array.addressable_shards
        assert array.sharding == sharding and array.committed and array.is_fully_addressable
        assert part.index == (slice(None),) * 2 and part.replica_id == 0 and part.device == lib.devices("cpu")[0]
        assert array.devices() == {part.device} == sharding.device_set and len(array.global_shards) == 1
        np.testing.assert_array_equal(part.data, X)
        assert isinstance(array.addressable_data(0).sharding, lib.sharding.SingleDeviceSharding)
    return made


@program
def staged_ahead_of_time(lib: Any) -> Any:
    """lower and compile for shapes with shardings."""
    mesh = mesh_of(lib, "x")
    sharding = lib.sharding.NamedSharding(mesh, lib.sharding.PartitionSpec("x"))
    shape = lib.ShapeDtypeStruct(X.shape, X.dtype, sharding=sharding)
    f = lib.jit(lambda x: (2 * x, x.sum()), in_shardings=sharding, out_shardings=(sharding, None))
    compiled = f.lower(shape).compile()
    out = compiled(lib.device_put(X, sharding))
    assert shape.sharding == sharding and out[0].sharding == sharding
    assert compiled.input_shardings[0][0].is_equivalent_to(sharding, 2)
    assert compiled.output_shardings[0].is_equivalent_to(sharding, 2)
    return out


@program
def donated_and_static(lib: Any) -> Any:
    """jit with shardings beside its other options."""
    mesh = mesh_of(lib, "x")
    sharding = lib.sharding.NamedSharding(mesh, lib.sharding.PartitionSpec())
    f = lib.jit(
        lambda n, x, y: x * n + y, static_argnums=0, donate_argnums=1, in_shardings=[sharding, None],
        out_shardings=sharding,
    )  # fmt: skip
    x = lib.device_put(X, sharding)
    out = f(3, x, X)
    return out, f(4, lib.numpy.asarray(X) + 1, X)


@program
def random_numbers_and_loops(lib: Any) -> Any:
    """Keys divided among devices, each with numbers of its own."""
    mesh = mesh_of(lib, "x")
    P = lib.sharding.PartitionSpec

    def body(key: Any) -> Any:
        key = lib.random.fold_in(key, lib.lax.axis_index("x"))
        return lib.random.normal(key, (3,), np.float32)

    return lib.jit(lib.shard_map(body, mesh=mesh, in_specs=P(), out_specs=P("x"), check_vma=False))(
        lib.random.PRNGKey(3)
    )


@program
def matmul_in_a_ring(lib: Any) -> Any:
    """The ring of ppermutes of JAX's tutorial, of as many steps as there are devices."""
    mesh = mesh_of(lib, "i")
    P, L = lib.sharding.PartitionSpec, lib.lax

    @lib.jit
    @partial(lib.shard_map, mesh=mesh, in_specs=(P("i", None), P("i", None)), out_specs=P("i", None), check_vma=False)
    def product(a: Any, b: Any) -> Any:
        size, index = L.axis_size("i"), L.axis_index("i")
        width = b.shape[0]
        total = lib.numpy.zeros((a.shape[0], b.shape[1]), a.dtype)
        for step in range(size):
            start = ((index - step) % size) * width
            total = total + L.dynamic_slice_in_dim(a, start, width, 1) @ b
            b = L.ppermute(b, "i", [(n, (n + 1) % size) for n in range(size)])
        return total

    return product(X, W)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.selected(1)
def test_a_program_gives_what_it_gives_on_jax(name: str) -> None:
    ours, theirs = PROGRAMS[name](rlx), PROGRAMS[name](jax)
    found, treedef = rlx.tree.flatten(ours)
    expected = jax.tree.leaves(theirs)
    assert len(found) == len(expected) == treedef.num_leaves
    for x, y in zip(found, expected, strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-5, atol=2e-6)
