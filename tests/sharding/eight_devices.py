"""Programs on eight CPU devices, each run on rlx and on jax: a process of its own runs all and prints what failed.

Both libraries read the number of devices when they are imported, so that tests start this file (test_eight_devices.py).
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import ml_dtypes
import numpy as np

import rlx

Case = Callable[[Any], Any]
CASES: dict[str, Case] = {}  # takes a library, rlx or jax; the results are compared
CHECKS: dict[str, Callable[[], None]] = {}  # of rlx alone
X = np.linspace(-1.0, 2.0, 48, dtype=np.float32).reshape(16, 3)
W = np.linspace(-0.5, 0.5, 12, dtype=np.float32).reshape(3, 4)


def case(function: Case) -> Case:
    """A program of a library."""
    CASES[function.__name__] = function
    return function


def check(function: Callable[[], None]) -> Callable[[], None]:
    """A test of rlx alone."""
    CHECKS[function.__name__] = function
    return function


def mesh_of(lib: Any, kind: str = "Auto", **sizes: int) -> Any:
    types = (getattr(lib.sharding.AxisType, kind),) * len(sizes)
    return lib.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=types)


# ------------------------------------------------------------- comparing
def places(x: Any) -> Any:
    """Where an array's parts are, as plain data. AssertionError if one is another part of the array than it says."""
    for part in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(part.data), np.asarray(x)[part.index])
    return [(s.device.id, str(s.index), s.replica_id, s.data.shape) for s in x.addressable_shards]


def same(ours: Any, theirs: Any) -> None:
    """Raises AssertionError unless both have equal values and dtypes, and parts on the same devices."""
    mine, others = rlx.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(mine) == len(others), (mine, others)
    for a, b in zip(mine, others, strict=True):
        if isinstance(b, str):
            assert a == b, (a, b)
            continue
        x, y = np.asarray(a), np.asarray(b)
        assert x.shape == y.shape, (x.shape, y.shape)
        if isinstance(b, jax.Array):
            assert x.dtype == y.dtype, (x.dtype, y.dtype)
            if hasattr(a, "_sharding") and b.sharding.num_devices > 1:
                assert places(a) == places(b), (a.sharding, b.sharding)
        exact = x.dtype.kind in "biu" or x.dtype == object
        x, y = (z.astype(np.complex128 if z.dtype.kind == "c" else np.float64) for z in (x, y))
        np.testing.assert_allclose(x, y, rtol=0 if exact else 2e-5, atol=0 if exact else 2e-5)


def run(name: str) -> str:
    """What went wrong with a case, or nothing."""
    try:
        if name in CHECKS:
            CHECKS[name]()
        else:
            same(CASES[name](rlx), CASES[name](jax))
    except Exception:
        return traceback.format_exc()
    return ""


# ------------------------------------------------------------- shard_map: bodies, with derivatives from outside
def derived(lib: Any, f: Callable[..., Any], *args: Any) -> Any:
    """A function's results, and its derivatives of first and second order, in one program; and the results eagerly."""

    def score(*args: Any) -> Any:
        return sum(lib.numpy.sum(lib.numpy.sin(out) * (1.0 + out)) for out in lib.tree.leaves(f(*args)))

    def every(*args: Any) -> Any:
        gradient = lib.grad(score, argnums=tuple(range(len(args))))
        tangents = tuple(0.5 * a for a in args)
        curved = lib.grad(lambda *xs: sum(lib.numpy.sum(g * t) for g, t in zip(gradient(*xs), tangents, strict=True)))
        return f(*args), gradient(*args), lib.jvp(f, args, tangents)[1], curved(*args)

    return lib.jit(every)(*args), f(*args) if lib is rlx else lib.jit(f)(*args)


BOTH = ("x", "y")
# name: (body, in_specs, out_specs), of the axes x (4) and y (2); X has the shape (16, 3)
BODIES: dict[str, tuple[Callable[[Any, Any], Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "psum": (lambda L, a: L.psum(a * a, "x"), ("x",), ()),
    "psum_of_both": (lambda L, a: L.psum(a * a, ("x", "y")), (("x", "y"),), ()),
    "psum_of_one_of_two": (lambda L, a: L.psum(a * a, "y"), (("x", "y"),), ("x",)),
    "psum_of_a_copy": (lambda L, a: L.psum(a, "x") * a, ("y",), ("y",)),
    "pmean": (lambda L, a: a - L.pmean(a, ("y", "x")), (("x", "y"),), (("x", "y"),)),
    "pmax": (lambda L, a: L.pmax(L.stop_gradient(a), "x") * a, ("x",), ("x",)),
    "all_gather": (lambda L, a: L.all_gather(a, "x").sum(0) * a, ("x",), ("x",)),
    "all_gather_tiled": (lambda L, a: L.all_gather(a, "x", axis=1, tiled=True) * 2.0, ("x",), ("x",)),
    "all_gather_of_both": (lambda L, a: L.all_gather(a, ("y", "x"), tiled=True)[:2] * a, (("x", "y"),), (("x", "y"),)),
    "psum_scatter": (lambda L, a: L.psum_scatter(a, "x", tiled=True), ("y",), (("y", "x"),)),
    "psum_scatter_of_both": (
        lambda L, a: L.psum_scatter(a * a, ("x", "y"), scatter_dimension=0, tiled=True),
        (),
        (("x", "y"),),
    ),
    "ppermute": (lambda L, a: L.ppermute(a, "x", [(0, 1), (1, 2), (2, 3), (3, 0)]) * a, ("x",), ("x",)),
    "ppermute_of_some": (lambda L, a: L.ppermute(a, "x", [(0, 3), (2, 1)]), ("x",), ("x",)),
    "ppermute_of_both": (lambda L, a: L.ppermute(a, ("x", "y"), [(0, 7), (7, 0), (3, 5)]), (BOTH,), (BOTH,)),
    "all_to_all": (lambda L, a: L.all_to_all(a, "x", 0, 1, tiled=True), ("x",), (None, "x")),
    "all_to_all_stacked": (lambda L, a: L.all_to_all(a, "x", 0, 0), ("x",), ("x",)),
    "all_to_all_of_both": (
        lambda L, a: L.all_to_all(a.reshape(2, 3, 1).repeat(8, 2), BOTH, 2, 0, tiled=True),
        (BOTH,),
        (BOTH,),
    ),
    "axis_index": (lambda L, a: a * L.axis_index(("y", "x")), (("x", "y"),), (("x", "y"),)),
    "axis_index_of_a_copy": (lambda L, a: a[:2] * (1.0 + L.axis_index("x")), (), ("x",)),
    "copies": (lambda L, a: a[:2] * 2.0, (), ("x",)),
    "scalars": (lambda L, a: L.psum((a * a).sum(), ("x", "y")), (("x", "y"),), ()),
    "transposed": (lambda L, a: a.T * 2.0, (("y", "x"),), (None, ("y", "x"))),
    "swapped": (lambda L, a: a * 2.0, (("x", "y"),), (("y", "x"),)),
    "pvary": (lambda L, a: L.psum(L.pcast(a, "x", to="varying") * (1.0 + L.axis_index("x")), "x"), ("y",), ("y",)),
}


def body_case(name: str, checked: bool) -> Case:
    def run_body(lib: Any) -> Any:
        body, into, out = BODIES[name]
        P = lib.sharding.PartitionSpec
        options = {"mesh": mesh_of(lib, x=4, y=2), "in_specs": P(*into), "out_specs": P(*out), "check_vma": checked}
        return derived(lib, lib.shard_map(lambda a: body(lib.lax, a), **options), X)

    return run_body


for _name in BODIES:
    CASES[f"{_name}_checked"] = body_case(_name, True)
    if _name in ("psum_of_both", "psum_of_a_copy", "pmean", "all_gather", "psum_scatter", "all_to_all", "scalars"):
        CASES[_name] = body_case(_name, False)


# ------------------------------------------------------------- derivatives inside of a body
def inner_gradients(lib: Any, checked: bool) -> Any:
    """grad, vjp, hvp and jacobians in the body, by what is divided and by what is copied, of losses of both kinds."""
    P, L, jnp = lib.sharding.PartitionSpec, lib.lax, lib.numpy

    def body(w: Any, x: Any) -> Any:
        def local(w: Any, x: Any) -> Any:
            return jnp.sum(jnp.sin(x @ w))

        def reduced(w: Any, x: Any) -> Any:
            return L.pmean(local(w, x), "x") ** 2

        def gathered(w: Any, x: Any) -> Any:
            return jnp.sum(jnp.cos(L.all_gather(x @ w, "x")))

        copied: list[Any] = []
        own: list[Any] = []
        for loss in (local, reduced, gathered):
            by_w, by_x = lib.grad(loss, argnums=(0, 1))(w, x)
            curved = lib.grad(lambda w, loss=loss: jnp.sum(lib.grad(loss)(w, x) ** 2))(w)
            pulled = lib.vjp(lambda x, loss=loss: (loss(w, x), 2.0 * x), x)[1]
            hidden, hessian = lib.jit(lib.grad(loss))(w, x), lib.jacrev(lib.grad(loss))(w, x)
            copied += [by_w, curved, hidden, hessian, lib.jvp(lib.grad(loss), (w, x), (w, x))[1]]
            if checked:
                own += [by_x]
            else:
                own += [by_x, pulled((jnp.ones(()), x))[0]]

        def step(total: Any, row: Any) -> Any:
            return total + lib.grad(reduced)(w, row[None]), L.psum(row.sum(), "x")

        zeros = jnp.zeros_like(w)
        copied += [L.scan(step, zeros, x)[0]]
        if not checked:
            copied = lib.tree.map(lambda g: L.pmean(g, "x"), copied)
        return copied, own

    f = lib.shard_map(body, mesh=mesh_of(lib, x=4), in_specs=(P(), P("x")), out_specs=(P(), P("x")), check_vma=checked)
    return lib.jit(f)(W, X), lib.jit(f)(W, X)


CASES["inner_gradients_checked"] = partial(inner_gradients, checked=True)
CASES["inner_gradients"] = partial(inner_gradients, checked=False)


# ------------------------------------------------------------- trees, axis types, meshes in force, part of the axes
@case
def trees_of_specs(lib: Any) -> Any:
    """in_specs as prefixes, None for what is handed on, several results."""
    P = lib.sharding.PartitionSpec

    def f(tree: Any, scale: Any, mode: str) -> Any:
        total = lib.lax.psum(tree["a"], "x")
        return {"total": total, "parts": [tree["b"] * scale, tree["a"] + (mode == "on")]}

    into = ({"a": P("x"), "b": P(None, "y")}, P(), None)
    out = {"total": P(), "parts": [P(None, "y"), P("x")]}
    mapped = lib.shard_map(f, mesh=mesh_of(lib, x=4, y=2), in_specs=into, out_specs=out)
    return mapped({"a": X, "b": W}, 3.0, "on")


@case
def some_axes_only(lib: Any) -> Any:
    """axis_names: the other axes are the compiler's."""
    P = lib.sharding.PartitionSpec
    mesh = mesh_of(lib, x=4, y=2)

    @partial(lib.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    def f(a: Any) -> Any:
        return lib.lax.psum(a, "x") + a * lib.lax.axis_index("x")

    placed = lib.device_put(X, lib.sharding.NamedSharding(mesh, P("x", None)))
    return np.asarray(lib.jit(f)(placed))


@case
def one_in_another(lib: Any) -> Any:
    """A shard_map over one axis in the body of one over the other."""
    P = lib.sharding.PartitionSpec

    def inner(a: Any) -> Any:
        return lib.lax.psum(a, "y") + lib.lax.axis_index("x")

    def outer(a: Any) -> Any:
        nested = lib.shard_map(inner, in_specs=P(None, "y"), out_specs=P(), axis_names={"y"})
        return nested(a) * lib.lax.axis_index("x")

    mesh = mesh_of(lib, x=4, y=2)
    f = lib.shard_map(outer, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    return np.asarray(lib.jit(f)(np.ones((8, 6), np.float32)))


@case
def mesh_in_force(lib: Any) -> Any:
    """set_mesh, smap, and specs alone; in_specs left out for Explicit axes."""
    P = lib.sharding.PartitionSpec
    with lib.set_mesh(mesh_of(lib, x=4, y=2)):
        a = lib.shard_map(lambda a: lib.lax.pmean(a, "y"), in_specs=P("y"), out_specs=P())(X)
        b = lib.device_put(X, P("x"))
    with lib.set_mesh(mesh_of(lib, "Explicit", x=8)):
        x = lib.device_put(X, P("x"))
        c = lib.shard_map(lambda a: lib.lax.psum(a, "x"), out_specs=P())(x)
        inner = lib.jit(lib.shard_map(lambda a: lib.lax.psum(a, "x"), out_specs=P()))
        f, g = inner(x), lib.jit(lambda x: lib.jit(inner)(x))(x)
        d = lib.smap(lambda a: a.sum(0), in_axes=0, out_axes=0, axis_name="x")(x)
        e = lib.smap(lambda a, b: a * b, in_axes=(0, None), out_axes=0, axis_name="x")(x, 2.0)
    return a, b, c, d, e, f, g


@case
def groups(lib: Any) -> Any:
    """axis_index_groups, which jax takes without check_vma."""
    P, L = lib.sharding.PartitionSpec, lib.lax
    pairs, halves = [[0, 3], [1, 2]], [[2, 0], [3, 1]]

    def f(a: Any) -> Any:
        return (
            L.psum(a, "x", axis_index_groups=pairs),
            L.pmean(a, "x", axis_index_groups=pairs),
            L.pmax(a, "x", axis_index_groups=[[0, 1, 2], [3]]),
            L.psum(a, "x", axis_index_groups=[[0, 1, 2], [3]]),
            L.all_gather(a, "x", axis_index_groups=halves),
            L.all_gather(a, "x", axis_index_groups=halves, axis=1, tiled=True),
            L.psum_scatter(a, "x", axis_index_groups=halves, tiled=True),
            L.all_to_all(a, "x", 0, 1, axis_index_groups=halves, tiled=True),
        )

    return lib.jit(lib.shard_map(f, mesh=mesh_of(lib, x=4), in_specs=P("x"), out_specs=P("x"), check_vma=False))(X)


@case
def loops_and_branches(lib: Any) -> Any:
    """Collectives in scan, while_loop, cond, jit, vmap, checkpoint and custom rules."""
    P, L, jnp = lib.sharding.PartitionSpec, lib.lax, lib.numpy

    @lib.custom_vjp
    def doubled(x: Any) -> Any:
        return 2.0 * x

    doubled.defvjp(lambda x: (2.0 * x, None), lambda _, ct: (3.0 * ct,))

    def f(a: Any) -> Any:
        total, each = L.scan(lambda c, row: (c + L.psum(row, "x"), L.ppermute(row, "x", [(0, 1)])), jnp.zeros(3), a)
        steps = L.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, L.pmean(c[1], "x") + c[1] * 0.5), (0, a))[1]
        chosen = L.cond(L.axis_index("x") > 1, lambda v: v * 2.0, lambda v: v - 1.0, a)
        row = lib.vmap(lambda v: L.psum(v, "x") * v)(a)
        kept = lib.checkpoint(lambda v: jnp.sin(L.psum(v, "x") * v))(a)
        slope = lib.grad(lambda v: jnp.sum(doubled(v) * v))(a)
        inside = lib.jit(lambda v: v - L.pmean(v, "x"))(a)
        return total[None] + 0.0 * a[:1], each, steps, chosen, row, kept, slope, inside

    mapped = lib.shard_map(f, mesh=mesh_of(lib, x=4), in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return derived(lib, lambda x: [mapped(x)[i] for i in (0, 4, 5)], X), lib.jit(mapped)(X)


@case
def compositions(lib: Any) -> Any:
    """vmap, scan, checkpoint, linearize and hessian of a shard_map, and what its body closes over."""
    P, L, jnp = lib.sharding.PartitionSpec, lib.lax, lib.numpy
    mesh = mesh_of(lib, x=4, y=2)

    @lib.jit
    def every(x: Any, w: Any) -> Any:
        def body(a: Any) -> Any:
            return L.psum(jnp.sin(a @ w), "x") * L.pmean(a.sum(), "x")

        f = lib.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P())
        several = jnp.stack([x, 2.0 * x])
        _, kept = L.scan(lambda c, a: (c + f(a), c), f(x), several)
        plane = lib.shard_map(lambda v: L.psum(v**3, BOTH).sum(), mesh=mesh, in_specs=P(BOTH), out_specs=P())
        hessian = lib.jacfwd(lib.jacrev(plane))(x[:8, 0])
        pushed = lib.linearize(f, x)[1](x)

        def closed_over(w: Any) -> Any:
            return jnp.sum(lib.shard_map(lambda a: a @ w, mesh=mesh, in_specs=P("y"), out_specs=P("y"))(x))

        by_x = lib.grad(lambda x: lib.checkpoint(f)(x).sum())(x)
        return lib.vmap(f)(several), kept, hessian, pushed, by_x, lib.grad(closed_over)(w)

    return every(X, W)


@case
def random_keys(lib: Any) -> Any:
    """Keys folded with the axis index: each device draws its own; a key that is copied draws the same."""
    P = lib.sharding.PartitionSpec
    key = lib.random.key(3)

    def f(key: Any) -> Any:
        own = lib.random.fold_in(key, lib.lax.axis_index("x"))
        return lib.random.normal(own, (2,)), lib.random.uniform(key, (2,))

    return lib.jit(lib.shard_map(f, mesh=mesh_of(lib, x=8), in_specs=P(), out_specs=(P("x"), P())))(key)


@case
def callbacks(lib: Any) -> Any:
    """Of Python functions without a word on batches: each device calls them."""
    P = lib.sharding.PartitionSpec
    shape = lib.ShapeDtypeStruct((2, 3), np.float32)
    part = lambda a: lib.pure_callback(lambda v: np.cumsum(np.asarray(v)).reshape(2, 3), shape, a)  # noqa: E731
    mapped = lib.shard_map(part, mesh=mesh_of(lib, x=8), in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return lib.jit(mapped)(X), lib.pmap(part)(X.reshape(8, 2, 3))


@case
def rules_of_a_body(lib: Any) -> Any:
    """custom_vjp functions whose rules are collectives, as layers that are divided by columns and rows have."""
    P, L, jnp = lib.sharding.PartitionSpec, lib.lax, lib.numpy

    @lib.custom_vjp
    def reduced(x: Any) -> Any:
        return L.psum(x, "x")

    reduced.defvjp(lambda x: (L.psum(x, "x"), None), lambda _, ct: (ct,))

    @lib.custom_vjp
    def copied(x: Any) -> Any:
        return x

    copied.defvjp(lambda x: (x, None), lambda _, ct: (L.psum(ct, "x"),))

    def block(x: Any, up: Any, down: Any) -> Any:
        return reduced(jnp.tanh(copied(x) @ up) @ down)

    def gradients(x: Any, up: Any, down: Any) -> Any:
        return lib.value_and_grad(lambda *a: jnp.sum(block(*a) ** 2), argnums=(0, 1, 2))(x, up, down)

    into = P(), P(None, "x"), P("x", None)
    options = {"mesh": mesh_of(lib, x=4), "in_specs": into, "out_specs": (P(), into), "check_vma": False}
    layers = lib.jit(lib.shard_map(gradients, **options))(X, W, W.T.copy())
    # with check_vma jax asks for the type of the argument
    reduced.defvjp(lambda x: (L.psum(x, "x"), None), lambda _, ct: (L.pcast(ct, "x", to="varying"),))
    whole = lib.shard_map(reduced, mesh=mesh_of(lib, x=4), in_specs=P("x"), out_specs=P())
    by_x = lib.grad(lambda x: jnp.sum(jnp.sin(whole(x))))(X)
    return layers, whole(X), by_x


# ------------------------------------------------------------- pmap
@case
def pmaps(lib: Any) -> Any:
    """Sizes up to the number of devices, axes elsewhere, nested vmap, static arguments, gradients on both sides."""
    L, jnp = lib.lax, lib.numpy
    x = X[:8]

    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.sin(x @ w))

    def update(w: Any, x: Any) -> Any:
        return w - L.pmean(lib.grad(loss)(w, x), "i")

    step = lib.pmap(update, axis_name="i", in_axes=(None, 0), out_axes=None)
    powers = lib.pmap(lambda n, x: x**n, static_broadcasted_argnums=0)
    nested = lib.pmap(lib.vmap(lambda v: L.psum(v, ("i", "j")) * v, axis_name="j"), axis_name="i")
    outside = lib.grad(lambda x: jnp.sum(lib.pmap(lambda v: L.psum(v * v, "i") * v, axis_name="i")(x)))
    return [
        *(lib.pmap(lambda v: L.psum(v, "i") * v, axis_name="i")(x[:n]) for n in (1, 2, 3, 8)),
        lib.pmap(lambda v: v * 2.0, in_axes=1, out_axes=1)(x),
        lib.pmap(lambda tree, *, k: {"s": L.axis_index("i") + tree["a"], "k": k}, axis_name="i")({"a": x}, k=x),
        np.asarray(step(W, x[:, None])),
        powers(3, x),
        nested(X.reshape(4, 4, 3)),
        outside(x),
        lib.pmap(lambda v: L.all_to_all(v, "i", 0, 0), axis_name="i")(np.arange(16.0, dtype=np.float32).reshape(4, 4)),
        lib.pmap(lambda v: v, devices=lib.devices()[4:6])(x[:2]).sum(),
    ]


# ------------------------------------------------------------- arrays and jit
@case
def arrays(lib: Any) -> Any:
    """device_put, parts, arrays made of parts."""
    P, NS = lib.sharding.PartitionSpec, lib.sharding.NamedSharding
    mesh = mesh_of(lib, x=4, y=2)
    shardings = [NS(mesh, P(*s)) for s in ((), ("x",), ("y",), (("x", "y"),), (("y", "x"),), (None, "y"), ("x", "y"))]
    a = np.arange(64, dtype=np.float32).reshape(16, 4)
    put = [lib.device_put(a, s) for s in shardings]
    calls: list[int] = []

    def part(index: Any) -> Any:
        calls.append(1)
        return a[index]

    called = [lib.make_array_from_callback(a.shape, s, part) for s in shardings]
    parts = [lib.device_put(a[2 * d.id : 2 * d.id + 2], d) for d in reversed(mesh.devices.ravel().tolist())]
    made = lib.make_array_from_single_device_arrays((16, 4), shardings[3], parts)
    local = lib.make_array_from_process_local_data(shardings[1], a)
    again = lib.device_put(put[1], shardings[4])
    one = lib.device_put(a, lib.devices()[5])
    facts = [
        [s.is_fully_replicated, s.num_devices, s.shard_shape(a.shape), s.is_equivalent_to(shardings[1], 2), repr(s)]
        for s in shardings
    ]
    facts += [[x.is_fully_replicated, x.committed, x.is_fully_addressable, len(x.devices())] for x in (*put, one)]
    facts += [len(calls), one.device.id, str(put[3].device), put[2].global_shards[3].replica_id]
    return [put, called, made, local, again, one, list(map(str, facts))]


@case
def jitted_shardings(lib: Any) -> Any:
    """in_shardings, out_shardings and constraints: the program is of whole arrays, and results know where they lie."""
    P, NS = lib.sharding.PartitionSpec, lib.sharding.NamedSharding
    mesh = mesh_of(lib, x=4, y=2)
    rows, columns, copied = NS(mesh, P("x")), NS(mesh, P(None, "y")), NS(mesh, P())

    def f(x: Any, w: Any) -> Any:
        h = lib.lax.with_sharding_constraint(x @ w, NS(mesh, P("x", "y")))
        return lib.numpy.tanh(h), h.sum()

    a = lib.jit(f, in_shardings=(rows, columns), out_shardings=(NS(mesh, P(("y", "x"))), copied))(X, W)
    b = lib.jit(lambda x, w: f(x, w)[0], out_shardings=rows)(X, W)
    with lib.set_mesh(mesh):
        c = lib.jit(lambda x: 2 * x, in_shardings=P("y"), out_shardings=P("x"))(X)
    g = lib.jit(lib.grad(lambda x, w: f(x, w)[1]), in_shardings=(rows, copied), out_shardings=rows)(X, W)
    d = lib.lax.with_sharding_constraint(lib.numpy.asarray(X), rows)
    mapped = lib.shard_map(lambda v: lib.lax.psum(v, "y"), mesh=mesh, in_specs=P(("x", "y")), out_specs=P("x"))
    inner = lib.jit(lambda x: (mapped(x), lib.lax.with_sharding_constraint(x + 1.0, NS(mesh, P("y", None)))))
    noted = lib.jit(lambda x: inner(x)), inner
    known = [f(X) for _ in range(2) for f in noted]
    assert all(x.sharding.num_devices == 8 for x in lib.tree.leaves(known))
    return a, b, c, d, known, g, lib.numpy.sum(lib.device_put(X, rows))


@case
def on_one_device(lib: Any) -> Any:
    """Results of operations, transformed and jitted functions are on the device of their operands."""
    one = lib.devices()[5]
    mesh = lib.sharding.Mesh(np.array([one]), ("x",))
    named = lib.sharding.NamedSharding(mesh, lib.sharding.PartitionSpec("x"))
    found = []
    f = lib.jit(lambda x: {"all": 2 * x, "sum": x.sum(), "argument": x})
    for x in (lib.numpy.asarray(X), lib.device_put(X, one), lib.device_put(X, named)):
        found += [f(x), f(x), lib.jit(f)(x), f.lower(x).compile()(x)]
        found += [x + 1, x + X, x[0], lib.numpy.sin(x), lib.numpy.zeros_like(x), x.astype("int32"), lib.numpy.copy(x)]
        found += [lib.grad(lambda x: f(x)["sum"])(x), lib.vmap(lib.numpy.sum)(x)]
        found += [lib.lax.scan(lambda carry, row: (carry + row, row), x[0], x)]
    found.append(lib.device_put(2 * lib.device_put(X, one), lib.devices()[0]))
    assert lib.jit(lambda x: (x, lib.numpy.ones(2)))(lib.device_put(X, one))[1].devices() == {one}
    return found, [sorted(d.id for d in x.devices()) for x in lib.tree.leaves(found)]


@case
def places_that_contradict(lib: Any) -> Any:
    """Arrays that were put on different devices, and arguments that are divided unlike in_shardings, are refused."""
    P, NS, devices = lib.sharding.PartitionSpec, lib.sharding.NamedSharding, np.array(lib.devices())
    whole, half, other = (lib.sharding.Mesh(d, ("x",)) for d in (devices, devices[:4], devices[4:]))
    x = lib.device_put(X, NS(whole, P("x")))
    add = lib.numpy.add

    def is_refused(f: Any, *args: Any) -> bool:
        try:
            f(*args)
        except ValueError:
            return True
        return False

    apart = [
        (x, lib.device_put(X, NS(half, P("x")))),
        (lib.device_put(X, NS(half, P("x"))), lib.device_put(X, NS(other, P()))),
        (lib.device_put(X, devices[1]), lib.device_put(X, devices[2])),
        (lib.device_put(X, devices[1]), x),
        (x, lib.numpy.asarray(X)),
        (lib.device_put(X, devices[1]), X),
    ]
    given = [x, X, lib.numpy.asarray(X), 2 * x, lib.device_put(X, NS(half, P("x")))]
    wanted = [NS(whole, P("x")), NS(whole, P()), NS(half, P("x"))]
    differ = [is_refused(lib.jit(lambda x: 2 * x, in_shardings=s), v) for v in given for s in wanted]
    return [is_refused(f, *pair) for f in (add, lib.jit(add)) for pair in apart], differ


# ------------------------------------------------------------- of rlx alone
DTYPES = "bool int8 int16 int32 int64 uint8 uint32 float16 float32 float64 complex64".split()


@check
def collectives_equal_numpy() -> None:
    """Each collective, dtype and number of devices, over one axis and two."""
    P = rlx.P
    drawn = np.random.default_rng(7)
    for sizes in ((1,), (2,), (3,), (4,), (8,), (2, 2), (2, 4)):
        names = ("x", "y")[: len(sizes)]
        axis: Any = names if len(sizes) > 1 else "x"
        n = int(np.prod(sizes))
        mesh = mesh_of(rlx, **dict(zip(names, sizes, strict=True)))
        body = partial(exchanges, axis=axis, n=n)
        mapped = rlx.shard_map(body, mesh=mesh, in_specs=P(names), out_specs=P(names))
        for dtype in (*map(np.dtype, DTYPES), np.dtype(ml_dtypes.bfloat16)):
            values = drawn.integers(-3, 4, (n, n, 2))
            x = (abs(values) if dtype.kind == "u" else values).astype(dtype)
            # compiled for one dtype, eager for the others
            got = (rlx.jit(mapped) if dtype == np.float32 else mapped)(x.reshape(n * n, 2))
            for number, (a, b) in enumerate(zip(got, exchanged(x), strict=True)):
                assert a.dtype == dtype and a.shape == b.shape, (sizes, dtype, number, a.shape, b.shape)
                np.testing.assert_array_equal(np.asarray(a), b, f"{sizes} {dtype} {number}")


def exchanges(a: Any, axis: Any, n: int) -> list[Any]:
    """The results of the collectives that a dtype has, each with an axis for devices."""
    lax = rlx.lax
    turned = [(i, (i + 1) % n) for i in range(n)]
    found = [lax.all_gather(a, axis), lax.ppermute(a, axis, turned), lax.all_to_all(a, axis, 0, 1, tiled=True)]
    if a.dtype.kind != "b":
        found += [lax.psum(a, axis), lax.psum_scatter(a, axis, tiled=True)]
    if a.dtype.kind != "c":
        found += [lax.pmax(a, axis), lax.pmin(a, axis)]
    return [x[None] for x in found]


def exchanged(x: np.ndarray) -> list[np.ndarray]:
    """The same by NumPy, of an array whose first axis is that of devices."""
    n, dtype = len(x), x.dtype
    wide = x.astype(np.float64) if dtype.itemsize == 2 and dtype.kind in "fV" else x
    total = wide.sum(0).astype(dtype)
    dealt = [np.concatenate(list(x[:, i : i + 1]), 1) for i in range(n)]
    found = [np.stack([x] * n), x[np.roll(np.arange(n), 1)], np.stack(dealt)]
    if dtype.kind != "b":
        found += [np.stack([total] * n), total[:, None]]
    if dtype.kind != "c":
        found += [np.stack([extreme.astype(dtype)] * n) for extreme in (wide.max(0), wide.min(0))]
    return found


@check
def groups_under_vmap() -> None:
    """axis_index_groups of vmap, which jax lacks."""
    lax, x = rlx.lax, np.arange(8.0, dtype=np.float32).reshape(4, 2)
    pairs = [[0, 3], [1, 2]]
    f = rlx.vmap(lambda v: lax.psum(v * v, "i", axis_index_groups=pairs), axis_name="i")
    expected = (x**2 + (x**2)[[3, 2, 1, 0]]).tolist()
    assert f(x).tolist() == expected == rlx.jit(f)(x).tolist()
    assert rlx.grad(lambda x: (f(x) * np.ones((4, 2), np.float32)).sum())(x).tolist() == (4 * x).tolist()
    # each collective of a group is that of an axis of the group's size
    halves = np.arange(24.0, dtype=np.float32).reshape(2, 2, 2, 3)
    some = [partial(getattr(lax, n), axis_name="i") for n in "pmean pmax pmin all_gather psum_scatter".split()]
    some += [partial(lax.all_to_all, axis_name="i", split_axis=0, concat_axis=0)]
    some += [partial(lax.pswapaxes, axis_name="i", axis=0)]
    for operation in some:
        whole = rlx.vmap(partial(operation, axis_index_groups=[[0, 1], [2, 3]]), axis_name="i")
        parts = rlx.vmap(rlx.vmap(operation, axis_name="i"))
        given = halves.reshape(4, 2, 3)
        assert np.array_equal(whole(given).reshape(parts(halves).shape), parts(halves)), operation


def refused(ask: Callable[[], Any], *words: str) -> None:
    """Raises AssertionError unless `ask` is refused with an error that says these words, and the line of this file."""
    try:
        ask()
    except (rlx.errors.ShardingError, rlx.errors.ControlFlowTypeError) as error:
        said = str(error)
        assert all(word in said for word in (*words, "eight_devices.py")), said
        return
    raise AssertionError(f"nothing was refused: {words}")


@check
def bad_input() -> None:
    lax, P, mesh = rlx.lax, rlx.P, mesh_of(rlx, x=4, y=2)
    x, rows = rlx.numpy.asarray(X), P("x")

    def mapped(body: Any, into: Any = rows, out: Any = rows, **options: Any) -> Callable[[], Any]:
        return lambda: rlx.shard_map(body, mesh=mesh, in_specs=into, out_specs=out, **options)(x)

    refused(lambda: rlx.make_mesh((16,), ("x",)), "16 devices", "RLX_NUM_CPU_DEVICES=16")
    refused(lambda: rlx.sharding.Mesh(np.array(rlx.devices()[:1] * 2), ("x",)), "each once")
    refused(lambda: rlx.pmap(lambda v: v)(np.ones((9, 2))), "9 devices, but this process has 8")
    refused(lambda: rlx.pmap(rlx.pmap(lambda v: v))(np.ones((4, 3))), "12 devices")
    refused(lambda: rlx.pmap(lambda v: v, devices=rlx.devices()[:2])(np.ones((3, 2))), "3 devices")
    refused(mapped(lambda a: a, P(None, "y")), "divides axis 1", "by 2")
    refused(mapped(lambda a: a, P("z")), "no axis 'z'")
    refused(mapped(lambda a: a, P("x", None, None)), "3 entries")
    refused(mapped(lambda a: a.sum()), "1 entries")
    refused(mapped(lambda a: lax.psum(a, "z")), "'z'")
    refused(mapped(lambda a: lax.ppermute(a, "x", [(0, 1), (2, 1)])), "at most once")
    refused(mapped(lambda a: lax.psum(a, "x", axis_index_groups=[[0, 1]])), "axis_index_groups")
    refused(mapped(lambda a: lax.psum(a, "x", axis_index_groups=[[0, 0], [1, 2]])), "axis_index_groups")
    refused(mapped(lambda a: lax.all_gather(a, "x", axis_index_groups=[[0, 1, 2], [3]])), "one size")
    refused(mapped(lambda a: lax.psum(a, "y"), axis_names={"x"}), "'y'")
    explicit = mesh_of(rlx, "Explicit", x=4)
    within = rlx.shard_map(lambda a: a, mesh=mesh, in_specs=rows, out_specs=rows)
    refused(lambda: rlx.vmap(within, spmd_axis_name="x")(X.reshape(1, 16, 3)), "rlx.vmap with spmd_axis_name='x'")
    assert np.array_equal(rlx.vmap(within, spmd_axis_name="y")(X.reshape(2, 8, 3)), X.reshape(2, 8, 3))
    unreduced = P(unreduced={"x"})
    total = rlx.shard_map(lambda a: lax.psum(a, "x"), mesh=explicit, in_specs=P("x"), out_specs=unreduced)
    refused(lambda: total(x), "unreduced over []")
    for body in (
        lambda a: a,
        lambda a: lax.psum(a, "y"),
        lambda a: lax.all_gather(a, "x"),
        lambda a: lax.ppermute(lax.psum(a, "x"), "x", [(0, 0)]),
        lambda a: lax.psum(a, "x") * lax.axis_index("x"),
        lambda a: lax.pcast(lax.psum(a, "x"), "x", to="varying"),
        lambda a: lax.scan(lambda c, row: (c + row, None), lax.pcast(rlx.numpy.zeros(3), "x", to="varying"), a)[0],
        lambda a: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + a), (0, a))[1],
    ):
        refused(mapped(body, P("x"), P()), "may vary along the axis 'x'")
    for body in (
        lambda a: lax.scan(lambda c, row: (c + row, None), rlx.numpy.zeros(3), a)[0],
        lambda a: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + a), (0, lax.psum(a, "x")))[1],
        lambda a: lax.fori_loop(0, 3, lambda i, c: c + lax.axis_index("x"), 0),
    ):
        refused(mapped(body, P("x"), P()), "carry", "with one value on all devices along 'x'", "to='varying'")
    for body in (
        lambda a: lax.scan(lambda c, _: (lax.psum(c, "x"), None), a, None, length=2)[0],
        lambda a: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, lax.psum(c[1], "x")), (0, a))[1],
        lambda a: lax.fori_loop(0, 3, lambda i, c: rlx.numpy.zeros((4, 3)), a),
    ):
        refused(mapped(body), "enters the body varying between them along 'x'", "Let the result vary", "to='varying'")
    tangent = lambda a: rlx.linearize(rlx.numpy.sin, lax.psum(a, "x"))[1](a)  # noqa: E731
    refused(mapped(tangent), "a tangent that varies along ('x',)")
    with rlx.auto_pcast(False):
        for body in (lambda a: a * rlx.numpy.ones(3), lambda a: rlx.jit(lambda v: v - lax.pmean(v, "x"))(a)):
            refused(mapped(body), "operands of which some vary along 'x'", "to='varying'")
        refused(lambda: rlx.jit(mapped(lambda a: a + lax.psum(a, "x")))(), "operands of which some vary")
        agreed = lambda a: 2.0 * a - lax.pcast(lax.pmean(a, "x"), "x", to="varying")  # noqa: E731
        assert np.allclose(mapped(agreed)(), 2 * X - np.tile(X.reshape(4, 4, 3).mean(0), (4, 1)))
    mapped(lambda a: a * rlx.numpy.ones(3))()
    part = rlx.NamedSharding(mesh, P("x"))
    abstract = rlx.shard_map(lambda a: a, mesh=mesh.abstract_mesh, in_specs=P("x"), out_specs=P("x"))
    refused(lambda: abstract(X), "no argument is on devices")
    refused(lambda: abstract(rlx.device_put(X, rlx.NamedSharding(mesh_of(rlx, z=8), P("z")))), "an argument is on")
    refused(lambda: rlx.device_put(np.ones(6), part), "by 4")
    on_one = mapped(lambda a: a + rlx.device_put(1.0, rlx.devices()[0]))
    refused(on_one, "device_put", "cpu:0")
    assert np.allclose(rlx.jit(on_one)(), X + 1)  # compiled, it says nothing
    refused(lambda: rlx.device_put(np.ones(()), part), "1 entries")
    refused(lambda: rlx.jit(lambda a: a, in_shardings=part)(np.ones(6)), "by 4")
    refused(lambda: rlx.jit(lambda a: a, out_shardings=part)(np.ones(6)), "by 4")
    refused(lambda: rlx.make_array_from_callback((8,), part, lambda i: np.ones(3)), "shape (3,)")
    refused(lambda: rlx.make_array_from_single_device_arrays((8,), part, [x] * 3), "3 arrays for 8 devices")
    refused(lambda: rlx.make_array_from_single_device_arrays((128,), part, [rlx.numpy.ones(32)] * 8), "cpu:1")
    try:
        rlx.config.update("jax_num_cpu_devices", 4)
    except rlx.errors.DeviceError as error:
        assert "RLX_NUM_CPU_DEVICES=4" in str(error)
    else:
        raise AssertionError("the number of devices changed")


@check
def without_the_check_the_first_device_s_result_counts() -> None:
    f = rlx.shard_map(lambda a: a, mesh=mesh_of(rlx, x=4), in_specs=rlx.P("x"), out_specs=rlx.P(), check_vma=False)
    assert np.array_equal(f(X), X[:4])


@check
def traced_values_know_what_was_said_of_them() -> None:
    part = rlx.NamedSharding(mesh_of(rlx, "Explicit", x=8), rlx.P("x"))
    seen: list[Any] = []

    @rlx.jit
    def f(x: Any) -> Any:
        y = rlx.lax.with_sharding_constraint(x + 1.0, part)
        rlx.debug.inspect_array_sharding([x * 1.0, y], callback=seen.append)
        return rlx.shard_map(lambda v: rlx.lax.psum(v, "x"), mesh=part.mesh, out_specs=rlx.P())(y)

    assert np.allclose(f(X), (X + 1.0).reshape(8, 2, 3).sum(0))
    assert [s.num_devices for s in seen] == [1, 8] and seen[1].spec == rlx.P("x", None)
    own = rlx.jit(rlx.shard_map(lambda v: v + rlx.lax.axis_index("x"), mesh=part.mesh, out_specs=rlx.P("x")))
    assert np.allclose(own(X), np.tile(X, (8, 1)) + np.arange(8).repeat(16)[:, None])  # nobody divided it: whole
    # for each way in which an argument is divided there is a program
    rows = rlx.device_put(X, part)
    copies = rlx.device_put(X[:2], rlx.NamedSharding(part.mesh, rlx.P()))
    for _ in range(2):
        assert own(rows).shape == (16, 3) and own(copies).shape == (16, 3)
        assert np.allclose(own(rows), X + np.arange(8).repeat(2)[:, None])
        assert np.allclose(own(copies)[2:4], X[:2] + 1)


@case
def what_values_vary_over(lib: Any) -> list[str]:
    """As their types say inside of a body, and in functions that are traced there."""
    lax, jnp, P = lib.lax, lib.numpy, lib.P
    typeof = rlx.compat.typeof if lib is rlx else lib.typeof
    found: list[str] = []

    def note(*values: Any) -> Any:
        found.extend(str(sorted(typeof(x).manual_axis_type.varying)) for x in values)
        return values[0]

    def body(a: Any, b: Any, c: Any) -> Any:
        note(a, b, c, a + b, a[0], jnp.zeros(2), jnp.zeros_like(a), jnp.full_like(b, 2.0), lax.axis_index("y"))
        note(lax.psum(a, "x"), lax.psum(a + b, ("x", "y")), lax.pmax(a, "x"), lax.pcast(c, ("x", "y"), to="varying"))
        note(lax.all_gather(a, "x"), lax.ppermute(b, "y", [(0, 1)]), lax.psum_scatter(jnp.ones(4) * a[0], "x"))
        lib.vmap(lambda row: note(row + a, row))(b[None])
        note(lib.grad(lambda v: note(v * a * c).sum())(b), lib.jacrev(lambda v: (v * 2.0).sum())(a))
        again = lib.jit(lambda v: note(v * 2, lax.psum(jnp.sum(v), "x")))
        note(lib.jit(lambda v: note(v * b, lax.psum(v, "x")))(a), again(b), again(lax.psum(b, "y")), again(b * a))
        lib.checkpoint(lambda v: note(v * b))(c)
        lax.scan(lambda k, row: (note(k * row, k), lax.psum(row, "x")), lax.pcast(0.0, "x", to="varying"), a)
        lax.while_loop(lambda k: note(k[0]) < 3, lambda k: note(k + 1), b)
        lax.cond(note(a[0]) > 0, lambda v: note(v), lambda v: 2 * v, b)
        return a

    mesh = mesh_of(lib, x=4, y=2)
    x = jnp.asarray(X[:4, 0])
    lib.shard_map(body, mesh=mesh, in_specs=(P("x"), P("y"), P()), out_specs=P("x"))(jnp.tile(x, 4)[:4], x[:2], x[:1])
    outer = lambda a: body_of_one(lib, note, a)  # noqa: E731
    with lib.set_mesh(mesh):
        lib.jit(lib.shard_map(outer, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))(x)
    return found


def body_of_one(lib: Any, note: Callable[..., Any], a: Any) -> Any:
    """A shard_map over one axis in another over the other."""
    inner = lambda v: note(v * 2, lib.lax.psum(v, "y"))  # noqa: E731
    ones = lib.numpy.ones(4)
    return a + note(lib.shard_map(inner, in_specs=lib.P("y"), out_specs=lib.P("y"), axis_names={"y"})(ones * a))[:1]


@check
def what_is_one_value_decides_what_the_body_does() -> None:
    """In one that runs at once; where devices have other values, and under jit, nothing is known."""
    mesh, P = mesh_of(rlx, x=4, y=2), rlx.P

    def body(a: Any) -> Any:
        total = rlx.lax.psum(rlx.numpy.sum(a), ("x", "y"))
        count = int(rlx.lax.psum(1 + 0 * rlx.lax.axis_index("x"), "x"))
        return (a if total > 1e6 else -a) * count + float(rlx.lax.pmax(rlx.lax.axis_index("y"), "y"))

    f = rlx.shard_map(body, mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")))
    assert np.allclose(f(X), 1 - 4 * X)
    own = rlx.shard_map(lambda a: a if a[0, 0] > 0 else -a, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    for call, words in ((lambda: own(X), "bool()"), (lambda: rlx.jit(f)(X), "int()")):
        try:
            call()
        except rlx.errors.ConcretizationTypeError as error:
            assert words in str(error)
        else:
            raise AssertionError("the value was known")


@case
def shardings_that_types_tell(lib: Any) -> list[str]:
    """Over Explicit axes: of what follows from arguments, in the body of a function mapped over some of the axes."""
    P, jnp = lib.P, lib.numpy
    typeof = rlx.compat.typeof if lib is rlx else lib.typeof
    found: list[str] = []

    def note(*values: Any) -> Any:
        found.extend(f"{typeof(x).sharding.mesh.axis_types} {typeof(x).sharding.spec}" for x in values)
        return values[0]

    def f(x: Any) -> Any:
        y = note(jnp.sin(x), x.T, x.sum(0), jnp.sin(x).sum())
        inner = lib.shard_map(lambda v: note(v.T, v * 2, v), in_specs=P("x"), out_specs=P(None, "x"), axis_names={"x"})
        return note(inner(y), lib.grad(lambda v: note(v * y).sum())(x), lib.jit(lambda v: note(v.T))(y))

    mesh = mesh_of(lib, "Explicit", x=4, y=2)
    with lib.set_mesh(mesh):
        x = lib.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), P("x", "y"))
        out = lib.jit(f)(x)
        part = lib.shard_map(lambda v: v.T, out_specs=P(None, "x"), axis_names={"x"})
        whole = lib.shard_map(lambda v: v.T, out_specs=P("y", "x"))
        inferred = lib.jit(lib.grad(lambda v: whole(v * 2).sum()))
        results = out, part(x), lib.jit(part)(x), whole(x), lib.jit(whole)(x), jnp.sin(lib.device_put(x, P("x")))
        return [*found, *(str(r.sharding.spec) for r in results), *map(str, inferred(x).shape)]


@case
def meshes_without_devices(lib: Any) -> list[str]:
    """The arguments' mesh has them."""
    P, mesh = lib.P, mesh_of(lib, x=4, y=2)
    x = lib.device_put(X, lib.NamedSharding(mesh, P("x")))
    double = lib.shard_map(lambda v: v * 2, mesh=mesh.abstract_mesh, in_specs=P("y"), out_specs=P("y"))
    return [str(f(x).sharding.spec) + str(f(x).sharding.mesh.axis_names) for f in (double, lib.jit(double))]


@check
def carries_that_need_no_cast() -> None:
    """Those that vary from the start, as zeros_like of what varies does, and those of rlx's own loops."""
    P, mesh, x = rlx.P, mesh_of(rlx, x=4), rlx.numpy.asarray(X[:4, 0] + 2)

    def body(a: Any) -> Any:
        last, _ = rlx.lax.scan(lambda c, row: (c + row, None), rlx.numpy.zeros_like(a[0]), a)
        return last + rlx.random.gamma(rlx.random.key(3), a)

    found = rlx.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)
    one_by_one = [body(x[i : i + 1])[0] for i in range(4)]
    np.testing.assert_allclose(found, one_by_one, rtol=1e-6)


@check
def devices_write_to_their_part_of_a_reference() -> None:
    mesh, x = mesh_of(rlx, x=4, y=2), rlx.numpy.asarray(X)
    rows, total = rlx.new_ref(x), rlx.new_ref(0.0)

    def f(rows: Any, total: Any, x: Any) -> Any:
        rows[...] += x
        total[...] = rlx.lax.psum(rlx.numpy.sum(x), "x")
        return rlx.lax.psum(rows[0, 0], "x")

    mapped = rlx.shard_map(f, mesh=mesh, in_specs=(rlx.P("x"), rlx.P(), rlx.P("x")), out_specs=rlx.P())
    for n, call in enumerate((mapped, rlx.jit(mapped)), 2):
        assert np.allclose(call(rows, total, x), n * X[::4, 0].sum())
        assert np.allclose(rows[...], n * X) and np.allclose(total[...], X.sum())
    with rlx.set_mesh(mesh_of(rlx, "Explicit", x=4)):
        part = rlx.new_ref(rlx.numpy.zeros(8, out_sharding=rlx.P("x")))
        add = rlx.shard_map(lambda r: r.addupdate(1.0 * rlx.lax.axis_index("x") + r[...] * 0.0), out_specs=None)
        add(part), rlx.jit(add)(part)
    assert np.allclose(part[...], 2 * np.arange(4).repeat(2))
    own = rlx.shard_map(lambda r, x: r.addupdate(x[0, 0]), mesh=mesh, in_specs=(rlx.P(), rlx.P("x")), out_specs=None)
    refused(lambda: own(total, x), "may vary")


@check
def gradients_of_integers_may_be_told_where_to_lie() -> None:
    part = rlx.NamedSharding(mesh_of(rlx, x=4), rlx.P())
    f = rlx.jit(rlx.grad(lambda x, n: (x * n).sum(), argnums=(0, 1), allow_int=True), out_shardings=part)
    slope, nothing = f(rlx.numpy.ones(4), rlx.numpy.arange(4))
    assert slope.sharding == part and slope.tolist() == [0, 1, 2, 3] and nothing.dtype == rlx.dtypes.float0


@check
def parts_share_memory() -> None:
    x = rlx.device_put(rlx.numpy.asarray(X), rlx.NamedSharding(mesh_of(rlx, x=4, y=2), rlx.P("x")))
    assert all(np.shares_memory(np.asarray(s.data), np.asarray(x)) for s in x.addressable_shards)
    assert x.addressable_shards[3].data.sharding == rlx.sharding.SingleDeviceSharding(rlx.devices()[3])
    assert x.addressable_data(2).device == "cpu:2" and rlx.devices()[2] != "cpu" and rlx.devices()[0] == "cpu"


def _picture(text: str) -> str:
    return textwrap.dedent(text.strip("\n").rstrip(" "))


@check
def pictures() -> None:
    """What jax prints where rich is installed."""
    mesh = mesh_of(rlx, x=4, y=2)
    for shape, spec, picture in PICTURES:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            rlx.debug.visualize_array_sharding(rlx.device_put(np.ones(shape), rlx.NamedSharding(mesh, rlx.P(*spec))))
        assert shown.getvalue() == picture, shown.getvalue()


PICTURES = (
    (
        (8,),
        ("x",),
        _picture("""
        ┌───────┬───────┬───────┬───────┐
        │CPU 0,1│CPU 2,3│CPU 4,5│CPU 6,7│
        └───────┴───────┴───────┴───────┘
    """),
    ),
    (
        (8, 8),
        ("y", "x"),
        _picture("""
        ┌───────┬───────┬───────┬───────┐
        │       │       │       │       │
        │ CPU 0 │ CPU 2 │ CPU 4 │ CPU 6 │
        │       │       │       │       │
        │       │       │       │       │
        ├───────┼───────┼───────┼───────┤
        │       │       │       │       │
        │ CPU 1 │ CPU 3 │ CPU 5 │ CPU 7 │
        │       │       │       │       │
        │       │       │       │       │
        └───────┴───────┴───────┴───────┘
    """),
    ),
    (
        (8, 16),
        ("x", "y"),
        _picture("""
        ┌───────────────────────┬───────────────────────┐
        │         CPU 0         │         CPU 1         │
        ├───────────────────────┼───────────────────────┤
        │         CPU 2         │         CPU 3         │
        ├───────────────────────┼───────────────────────┤
        │         CPU 4         │         CPU 5         │
        ├───────────────────────┼───────────────────────┤
        │         CPU 6         │         CPU 7         │
        └───────────────────────┴───────────────────────┘
    """),
    ),
)


def main() -> None:
    chosen = [name for name in sys.argv[1:] if name != "-v"] or [*CASES, *CHECKS]
    found = {}
    for name in chosen:
        start = time.process_time()
        found[name] = run(name)
        if "-v" in sys.argv:
            print(f"{name}: {time.process_time() - start:.2f} s", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
