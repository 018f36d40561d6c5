"""Meshes and arrays over several processes, which are threads here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.distributed import threads
from rlx.errors import CollectiveError, DeviceError, DonatedArrayError, ShardingError
from rlx.experimental import multihost_utils
from rlx.ir.collectives import members
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P
from tests.sharding.exchanged import recorded

HERE = Path(__file__).parent
X = np.arange(24.0).reshape(8, 3)


def mesh_of(*axes: str, shape: tuple[int, ...] = (-1,)) -> Mesh:
    return Mesh(np.array(rlx.devices()).reshape(shape), axes)


def check_programs(module: str, *names: str) -> int:
    """Run cases of a module beside this one, all if none is named; returns how many."""
    environment = {**os.environ, "RLX_NUM_CPU_DEVICES": "4"}
    command = [sys.executable, "-m", f"tests.sharding.{module}", *names]
    root = HERE.parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    failed = {name: text for name, text in found.items() if text}
    assert not failed, "\n".join(f"{name}:\n{text}" for name, text in failed.items())
    return len(found)


@pytest.mark.thorough
def test_programs_over_processes_are_those_of_one() -> None:
    check_programs("spanning", "product", "gradient_inside")


@pytest.mark.thorough
def test_every_program_over_processes_is_that_of_one() -> None:
    assert check_programs("spanning") >= 18


@pytest.mark.thorough
def test_jit_divides_whole_arrays_as_one_process_does() -> None:
    check_programs("partitioned", "two_axes_divide_one", "constraints", "branches_that_are_divided_differently")


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_every_program_of_whole_arrays_is_that_of_one_process() -> None:
    assert check_programs("partitioned") >= 45


@pytest.mark.thorough
def test_a_random_program_over_processes_is_that_of_one() -> None:
    check_programs("random_programs", "3", "8")


@pytest.mark.thorough
def test_random_programs_over_processes_are_those_of_one() -> None:
    assert check_programs("random_programs") == 30


@pytest.mark.thorough
def test_operations_outside_of_jit_are_those_of_one_process() -> None:
    assert check_programs("outside_of_jit") >= 6


def test_devices_are_those_of_all_processes() -> None:
    def work() -> None:
        own = rlx.process_index()
        assert [(d.id, d.process_index, d.local_hardware_id) for d in rlx.devices()] == [(n, n, 0) for n in range(3)]
        assert rlx.local_devices() == [rlx.devices()[own]] == rlx.local_devices(own)
        assert (rlx.device_count(), rlx.local_device_count()) == (3, 1)
        assert rlx.local_devices()[0] == "cpu"
        assert rlx.local_devices()[0] == f"cpu:{own}"
        assert jnp.ones(2).sharding.devices == tuple(rlx.local_devices())
        with pytest.raises(DeviceError, match=f"belongs to process {(own + 1) % 3}"):
            rlx.device_put(1.0, rlx.devices()[(own + 1) % 3])
        with pytest.raises(DeviceError, match="no process 3"):
            rlx.local_devices(3)

    threads.run(3, work)


def test_a_mesh_is_made_of_blocks() -> None:
    def work() -> None:
        mesh = mesh_of("a", "b", shape=(2, 2))
        assert mesh.is_multi_process
        assert mesh.processes.tolist() == [[0, 1], [2, 3]]
        assert mesh.local_mesh.devices.tolist() == [[rlx.local_devices()[0]]]
        assert mesh.device_ids.tolist() == [[0, 1], [2, 3]]
        sharding = NamedSharding(mesh, P("b"))
        assert sharding.addressable_devices == set(rlx.local_devices())
        assert not sharding.is_fully_addressable
        assert len(sharding.devices_indices_map((4,))) == 4
        own = rlx.process_index() % 2
        assert [*sharding.addressable_devices_indices_map((4,)).values()] == [(slice(2 * own, 2 * own + 2),)]
        alone = Mesh(np.array(rlx.local_devices()), ("a",))
        assert not alone.is_multi_process
        some = Mesh(np.array(rlx.devices()[:2]), ("a",))
        with pytest.raises(ShardingError, match="on 2 of 4 processes"):
            rlx.shard_map(lambda x: x, mesh=some, in_specs=P("a"), out_specs=P("a"))(X)

    threads.run(4, work)


@pytest.mark.parametrize("order", [[[0, 0, 1], [1, 2, 2]], [[0, 1, 1], [1, 0, 0]], [[0, 1], [1, 0]], [[0, 0, 1]]])
def test_a_mesh_of_something_else_than_blocks_is_refused(order: list[list[int]]) -> None:
    device = rlx.devices()[0]
    grid = np.array(order)
    count = int(np.bincount(grid.ravel()).max())
    seen = [0] * 3
    devices = np.empty(grid.shape, object)
    for place, rank in np.ndenumerate(grid):
        devices[place] = type(device)("cpu", seen[rank]).of_process(rank, count)
        seen[rank] += 1

    with pytest.raises(ShardingError, match="no blocks of the mesh"):
        rlx.sharding.mesh._process_grid(devices)


HALF, SUMMED = np.arange(4.0), {"in_specs": P("a"), "out_specs": P()}


def total(x: Any) -> Any:
    return rlx.lax.psum(x, "a")


# ways to a mesh of some processes: of x, which all processes divide
OF_SOME: dict[str, Callable[[Any, NamedSharding], Any]] = {
    "device_put": lambda x, some: rlx.device_put(HALF, some),
    "device_put of copies": lambda x, some: rlx.device_put(HALF, some.update(spec=P())),
    "device_put of parts": lambda x, some: rlx.device_put(x, some),
    "device_put of a tree": lambda x, some: rlx.device_put([x, x], [x.sharding.update(spec=P()), some]),
    "from a callback": lambda x, some: rlx.make_array_from_callback((4,), some, lambda index: HALF[index]),
    "from local data": lambda x, some: rlx.make_array_from_process_local_data(some, HALF),
    "from single devices": lambda x, some: rlx.make_array_from_single_device_arrays((4,), some, [jnp.ones(2)]),
    "global from local": lambda x, some: multihost_utils.host_local_array_to_global_array(HALF, some.mesh, P("a")),
    "local from global": lambda x, some: multihost_utils.global_array_to_host_local_array(x, some.mesh, P("a")),
    "in_shardings": lambda x, some: rlx.jit(jnp.sin, in_shardings=some)(HALF),
    "in_shardings of parts": lambda x, some: rlx.jit(jnp.sin, in_shardings=some)(x),
    "out_shardings": lambda x, some: rlx.jit(jnp.sin, out_shardings=some)(HALF),
    "out_shardings of parts": lambda x, some: rlx.jit(jnp.sin, out_shardings=some)(x),
    "out_shardings of a sum": lambda x, some: rlx.jit(jnp.sum, out_shardings=some.update(spec=P()))(x),
    "constraint": lambda x, some: rlx.jit(lambda y: rlx.lax.with_sharding_constraint(y, some))(HALF),
    "constraint of parts": lambda x, some: rlx.jit(lambda y: rlx.lax.with_sharding_constraint(y, some))(x),
    "shard_map": lambda x, some: rlx.shard_map(total, mesh=some.mesh, **SUMMED)(HALF),
    "shard_map of parts": lambda x, some: rlx.shard_map(total, mesh=some.mesh, **SUMMED)(x),
    "shard_map in jit": lambda x, some: rlx.jit(rlx.shard_map(total, mesh=some.mesh, **SUMMED))(x),
    "zeros": lambda x, some: jnp.zeros(4, device=some),
    "zeros_like": lambda x, some: jnp.zeros_like(x, device=some),
}


@pytest.mark.parametrize(("count", "members"), [(2, [0]), (2, [1]), (4, [1, 2])])
@pytest.mark.parametrize("way", OF_SOME.values(), ids=OF_SOME.keys())
def test_a_mesh_of_some_processes_is_refused_before_anything_is_sent(way: Any, count: int, members: list[int]) -> None:
    """In processes that are not on it; in all of them if others cannot compute it alone. The group stays usable."""

    def work() -> bool:
        mesh = mesh_of("a")
        x = rlx.device_put(np.arange(4.0 * count), NamedSharding(mesh, P("a")))
        some = NamedSharding(Mesh(mesh.devices[members], ("a",)), P("a"))
        refused = False
        try:
            way(x, some)
        except ShardingError:
            refused = True
        assert int(rlx.distributed.all_reduce(1)) == count
        return refused

    refused = threads.run(count, work)
    assert all(refused[rank] for rank in range(count) if rank not in members or len(members) > 1)


def test_arrays_know_where_their_parts_are() -> None:
    def work() -> None:
        own = rlx.process_index()
        mesh = mesh_of("a", "b", shape=(2, 2))
        x = rlx.device_put(X, NamedSharding(mesh, P("a")))
        assert isinstance(x, rlx.Array)
        assert (x.shape, x.dtype, x.ndim, x.size) == ((8, 3), np.float64, 2, 24)
        assert (x.is_fully_addressable, x.is_fully_replicated, x.committed) == (False, False, True)
        (part,) = x.addressable_shards
        assert (part.device, part.replica_id) == (rlx.local_devices()[0], own % 2)
        np.testing.assert_array_equal(part.data, X[part.index])
        assert part.index[0] == slice(4 * (own // 2), 4 * (own // 2) + 4)
        assert "shape=(8, 3)" in repr(x)
        np.testing.assert_array_equal(multihost_utils.process_allgather(x), X)

    threads.run(4, work)


def test_arrays_are_made_of_what_processes_have() -> None:
    def work() -> None:
        own = rlx.process_index()
        mesh = mesh_of("a")
        rows, copies = NamedSharding(mesh, P("a")), NamedSharding(mesh, P())
        mine = X[4 * own : 4 * own + 4]
        made = [
            rlx.make_array_from_process_local_data(rows, mine),
            rlx.make_array_from_process_local_data(rows, mine, (8, 3)),
            rlx.make_array_from_process_local_data(rows, X, (8, 3)),
            rlx.make_array_from_callback((8, 3), rows, lambda index: X[index]),
            rlx.make_array_from_single_device_arrays((8, 3), rows, [rlx.device_put(mine, rlx.local_devices()[0])]),
            multihost_utils.host_local_array_to_global_array(mine, mesh, P("a")),
        ]
        for x in made:
            assert x.sharding == rows
            np.testing.assert_array_equal(multihost_utils.process_allgather(x), X)
        local = multihost_utils.global_array_to_host_local_array(made[0], mesh, P("a"))
        np.testing.assert_array_equal(local, mine)
        replicated = rlx.make_array_from_process_local_data(copies, X)
        assert (replicated.is_fully_addressable, replicated.is_fully_replicated) == (False, True)
        np.testing.assert_array_equal(replicated + 1, X + 1)
        np.testing.assert_array_equal(multihost_utils.process_allgather(replicated), X)
        with pytest.raises(ShardingError, match=r"data of shape \(4, 3\) for an array of shape \(6, 3\)"):
            rlx.make_array_from_process_local_data(rows, mine, (6, 3))
        with pytest.raises(ShardingError, match="1 device"):
            rlx.make_array_from_single_device_arrays((8, 3), rows, [jnp.ones((4, 3))] * 2)

    threads.run(2, work)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: np.asarray(x),
        lambda x: x.tolist(),
        lambda x: rlx.jit(lambda x: rlx.distributed.all_reduce(x))(x),
        lambda x: rlx.distributed.all_reduce(x),
    ],
)
def test_values_of_all_processes_are_not_read(use: Any) -> None:
    def work() -> None:
        x = rlx.device_put(X, NamedSharding(mesh_of("a"), P("a")))
        with pytest.raises(ShardingError, match="process_allgather"):
            use(x)

    threads.run(2, work)


def test_what_does_not_fit_is_refused() -> None:
    def work() -> None:
        mesh = mesh_of("a")
        x = rlx.device_put(X, NamedSharding(mesh, P("a")))
        with pytest.raises(ShardingError, match="divided over processes as"):
            rlx.shard_map(lambda x: x, mesh=mesh, in_specs=P(), out_specs=P())(x)
        with pytest.raises(ShardingError, match="would have to be exchanged"):
            rlx.device_put(x, rlx.local_devices()[0])
        with pytest.raises(ShardingError, match="a member for each of its 1 devices"):
            rlx.pmap(lambda x: x, devices=rlx.devices())(X)

    threads.run(2, work)


def test_a_call_that_is_refused_leaves_the_group_as_it_was() -> None:
    def work() -> None:
        own, count = rlx.process_index(), rlx.process_count()
        rows = NamedSharding(mesh_of("a"), P("a"))
        first, some = (NamedSharding(Mesh(np.array(rlx.devices()[:n]), ("a",)), P("a")) for n in (1, 2))
        with pytest.raises(CollectiveError, match=r"rank 1: a float64\[8,3\], whose values have the digest"):
            rlx.device_put(X + own, rows)
        with pytest.raises(CollectiveError, match="rank 2, 3: a float64"):
            rlx.device_put(X[: 4 + 4 * (own < 2)], rows)
        for rows_here, dtype in ((3 + (own == 1), "f8"), (3, "f4" if own else "f8")):
            said = r"data of shape \(3, 2\) and dtype float64; rank .*: data of shape"
            with pytest.raises(CollectiveError, match=said):
                rlx.make_array_from_process_local_data(rows, np.ones((rows_here, 2), dtype))
        with pytest.raises(ShardingError, match="on 2 of 4 processes"):
            rlx.device_put(X, some)
        if own:
            with pytest.raises(ShardingError, match=f"on process 0, and this is process {own}"):
                rlx.device_put(X, first)
        else:
            np.testing.assert_array_equal(rlx.device_put(X, first) + 1, X + 1)
        assert rlx.distributed.all_reduce(1) == count

    threads.run(4, work)


def test_local_data_of_another_thread_is_not_compared() -> None:
    def work() -> None:
        rows, made = NamedSharding(mesh_of("a"), P("a")), []

        def load() -> None:
            with members(known):
                made.append(rlx.make_array_from_process_local_data(rows, X))

        known = members.value
        loader = threading.Thread(target=load)
        loader.start()
        assert rlx.distributed.all_reduce(1) == 2
        loader.join()
        assert made[0].shape == (16, 3)

    threads.run(2, work)


def test_transformations_take_and_give_them() -> None:
    def work() -> None:
        mesh = mesh_of("a")
        x = rlx.device_put(X, NamedSharding(mesh, P("a")))
        mapped = rlx.shard_map(lambda x: x * rlx.lax.pmean(x.mean(), "a"), mesh=mesh, in_specs=P("a"), out_specs=P("a"))

        def plain(x: Any) -> Any:
            return x * x.mean()

        def thrice(f: Any, x: Any) -> Any:
            return rlx.lax.fori_loop(0, 3, lambda _, x: f(x), x)

        for over, expected in (
            (rlx.vjp(mapped, x)[1](x)[0], rlx.vjp(plain, X)[1](X)[0]),
            (rlx.linearize(mapped, x)[1](x), rlx.linearize(plain, X)[1](X)),
            (rlx.jit(rlx.checkpoint(mapped))(x), plain(X)),
            (rlx.lax.cond(True, mapped, lambda x: x, x), plain(X)),
            (thrice(mapped, x), thrice(plain, X)),
            (rlx.jit(lambda x: 2 * x, out_shardings=x.sharding)(X), 2 * X),
            (rlx.jit(lambda y: mapped(rlx.lax.with_sharding_constraint(y, x.sharding)))(X), plain(X)),
        ):
            assert over.sharding == x.sharding
            np.testing.assert_allclose(multihost_utils.process_allgather(over), expected, rtol=1e-13)
        total, _ = rlx.lax.scan(lambda c, row: (c + row, None), np.zeros(3), x)
        np.testing.assert_allclose(total, X.sum(0))
        _, rows = rlx.lax.scan(lambda c, _: (c, x), 0, None, length=2)
        assert rows.shape == (2, *X.shape) and rows.sharding.spec == P(None, "a")

    threads.run(2, work)


def test_tangents_and_cotangents_are_divided_as_their_values() -> None:
    @rlx.custom_jvp
    def turned(x: Any) -> Any:
        return x.T

    # not a derivative, but of the shape of one, divided as the argument
    turned.defjvp(lambda primals, tangents: (primals[0].T, 2 * tangents[0]))

    @rlx.custom_vjp
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct.T,))
    square, given = np.sin(np.arange(64.0)).reshape(8, 8), np.cos(np.arange(64.0)).reshape(8, 8)
    uses = [
        lambda x, t: rlx.jvp(turned, (x,), (x,)),
        lambda x, t: rlx.grad(lambda x: (sine(x) * t).sum())(x),
        lambda x, t: rlx.jvp(jnp.sin, (x,), (t,)),
        lambda x, t: rlx.linearize(jnp.sin, x)[1](t),
        lambda x, t: rlx.vjp(lambda x: 2 * x.T, x)[1](t),
        lambda x, t: rlx.vjp(lambda x: 2 * x.T, x)[1](x),
    ]
    expected = [rlx.tree.leaves(use(square, given)) for use in uses]

    def work() -> None:
        x = rlx.device_put(square, NamedSharding(mesh_of("a", "b", shape=(2, 2)), P("a", "b")))
        for use, values in zip(uses, expected, strict=True):
            for found, value in zip(rlx.tree.leaves(use(x, given)), values, strict=True):
                np.testing.assert_allclose(multihost_utils.process_allgather(found), value, rtol=1e-12)

    threads.run(4, work)


def test_a_described_call_has_whole_arrays() -> None:
    def work() -> None:
        rows = NamedSharding(mesh_of("a"), P("a"))
        x = rlx.device_put(X, rows)
        assert rlx.eval_shape(lambda x: 2 * x, x) == rlx.ShapeDtypeStruct(X.shape, X.dtype, sharding=rows)
        assert rlx.eval_shape(jnp.sum, x) == rlx.ShapeDtypeStruct((), X.dtype)
        assert jnp.zeros_like(rlx.eval_shape(jnp.sin, x)).sharding == rows
        compiled = rlx.jit(lambda x: (x, x.sum())).lower(x).compile()
        assert compiled.output_shardings[0] == rows == compiled.input_shardings[0][0]
        assert compiled.output_shardings[1].is_fully_replicated
        assert compiled.args_info[0][0].shape == X.shape == compiled.out_avals[0].shape == compiled.in_avals[0][0].shape
        assert compiled(x)[0].sharding == rows

    threads.run(2, work)


def test_what_is_donated_is_deleted() -> None:
    def work() -> None:
        x = rlx.device_put(X, NamedSharding(mesh_of("a"), P("a")))
        double = rlx.jit(lambda x: 2 * x, donate_argnums=0)
        y = double(x)
        assert x.is_deleted() and not y.is_deleted()
        with pytest.raises(DonatedArrayError):
            double(x)
        np.testing.assert_array_equal(multihost_utils.process_allgather(double(y)), 4 * X)

    threads.run(2, work)


def test_what_jit_exchanges_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        x = rlx.device_put(X, NamedSharding(mesh_of("a"), P("a")))
        with rlx.scoped(explain=rlx.process_index() == 0):
            rlx.jit(lambda x: jnp.sin(2 * x))(x)
            rlx.jit(lambda: (x * 2).sum(0))()
            rlx.jit(lambda x: jnp.sort(x, 0))(x)
            rlx.jit(lambda x: rlx.lax.fori_loop(0, 50, lambda _, c: jnp.sin(c) + x.sum(), 0.0))(x)
            rlx.jit(lambda x: rlx.lax.while_loop(lambda c: c.sum() < 9, lambda c: 2 * c, x))(x)

    threads.run(2, work)
    said = [line for line in capsys.readouterr().err.splitlines() if "exchange" in line or " in the group " in line]
    assert len(said) == 8 and all(line.startswith("[0] ") for line in said)
    assert "8 bytes on each process, 50 times at " in said[5] and "8 bytes on each process, in each round" in said[7]
    assert "all_reduce (sum) of float64[3] in the group 'world', 24 bytes on each process at " in said[1]
    assert "all_gather of float64[1,4,3] in the group 'world', 192 bytes on each process at " in said[3]
    assert "test_spanning.py" in said[1]


def test_jit_refuses_what_lies_otherwise_than_its_in_shardings() -> None:
    def work() -> None:
        rows, columns = (NamedSharding(mesh_of("a"), spec) for spec in (P("a"), P(None, "a")))
        x = rlx.device_put(X[:, :2], rows)
        with pytest.raises(ShardingError, match="has in_shardings of"):
            rlx.jit(lambda x: x, in_shardings=columns)(x)

    threads.run(2, work)


def test_arrays_over_several_meshes_are_brought_to_the_first() -> None:
    def work() -> None:
        rows = NamedSharding(mesh_of("a"), P("a"))
        turned = NamedSharding(Mesh(np.array(rlx.devices())[::-1], ("a",)), P("a"))
        x, y = rlx.device_put(X, rows), rlx.device_put(2 * X, turned)
        for found, lies in (
            (rlx.jit(jnp.add)(x, y), rows),
            (y + x, turned),
            (rlx.device_put(x, turned) + rlx.jit(lambda x: 2 * x, out_shardings=turned)(x), turned),
        ):
            assert found.sharding == lies
            np.testing.assert_array_equal(multihost_utils.process_allgather(found), 3 * X)

    threads.run(2, work)


def test_explicit_axes_say_how_arguments_lie(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        mesh = rlx.make_mesh((2,), ("a",))
        x = rlx.device_put(X, NamedSharding(mesh, P("a")))
        found = rlx.shard_map(lambda x: 2 * x, mesh=mesh, out_specs=P("a"))(x)
        np.testing.assert_array_equal(multihost_utils.process_allgather(found), 2 * X)
        if rlx.process_index() == 0:
            rlx.debug.visualize_array_sharding(x)

    threads.run(2, work)
    shown = capsys.readouterr().out
    assert "CPU 0" in shown
    assert "CPU 1" in shown


def test_pmap_is_over_the_devices_of_all_processes() -> None:
    def work() -> None:
        own = rlx.process_index()
        scale = rlx.pmap(lambda v, w: w * v / rlx.lax.psum(v, "i"), axis_name="i", in_axes=(0, None))
        found = scale(X[own : own + 1], 2.0)
        np.testing.assert_allclose(found, 2 * X[own : own + 1] / X[:2].sum(0))
        gradient = rlx.grad(lambda v: rlx.pmap(lambda v: rlx.lax.psum(v**2, "i"), axis_name="i")(v).sum())
        np.testing.assert_allclose(gradient(X[own : own + 1]), 4 * X[own : own + 1])
        alone = rlx.pmap(lambda v: rlx.lax.psum(v, "i"), axis_name="i", devices=rlx.local_devices())
        np.testing.assert_allclose(alone(X[own : own + 1]), X[own : own + 1])

    threads.run(2, work)


def test_jit_finds_what_it_has_compiled() -> None:
    def work() -> None:
        mesh = mesh_of("a")
        x = rlx.device_put(X, NamedSharding(mesh, P("a")))
        traces = []

        @rlx.jit
        def double(tree: dict[str, Any], factor: Any) -> dict[str, Any]:
            traces.append(tree["x"].shape)
            return {"x": rlx.shard_map(lambda x: factor * x, mesh=mesh, in_specs=P("a"), out_specs=P("a"))(tree["x"])}

        for n in range(3):
            found = double({"x": x}, float(n))["x"]
            assert found.sharding == x.sharding
            np.testing.assert_array_equal(multihost_utils.process_allgather(found), n * X)
        assert traces == [(8, 3)]

    threads.run(2, work)


@pytest.mark.thorough
def test_programs_of_one_process_run_in_several() -> None:
    assert check_programs("as_one_process") >= 35


def test_a_gradient_is_exchanged_by_parts_and_a_value_once() -> None:
    def work() -> None:
        mesh = mesh_of("a")
        rows = NamedSharding(mesh, P("a"))
        w, x = rlx.device_put(np.ones((4, 4)), rows), rlx.device_put(np.ones((4, 4)), rows)
        gradient = rlx.jit(rlx.grad(lambda w: ((x @ w) ** 2).sum() + (jnp.sin(x) @ w).sum()))
        assert gradient(w).sharding == rows

        def added(w: Any) -> Any:
            return rlx.lax.scan(lambda g, _: (g + x.T @ (x @ w), None), jnp.zeros_like(w), None, length=5)[0]

        rlx.jit(added)(rlx.device_put(np.ones((4, 4)), NamedSharding(mesh, P())))

    with recorded() as record:
        threads.run(2, work)
    assert record.kinds == {"all_gather": 2, "reduce_scatter": 2, "all_reduce": 2}


@pytest.mark.thorough
def test_programs_send_parts_and_each_value_once() -> None:
    """The bytes of each pattern are within its budget, and results are divided."""
    assert check_programs("exchanged") >= 50


@pytest.mark.thorough
def test_a_step_of_a_divided_model_sends_its_parameters_one_and_a_half_times() -> None:
    assert check_programs("divided_model") == 2
