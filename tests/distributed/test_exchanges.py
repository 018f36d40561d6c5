"""Every exchange between processes against NumPy and the collectives over a mapped axis; members are threads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.lax as lax
import rlx.numpy as jnp
from rlx import distributed, errors
from rlx.backends.cpu.runtime.texts import plan_texts
from rlx.distributed import threads
from rlx.ir.kernels import Collective
from rlx.ir.show_plan import describe_plan, show_plan
from rlx.ir.types import compute_dtype, is_narrow
from rlx.ir.verify_plan import verify_plan
from rlx.testing import assert_close

DTYPES = "bool int8 int16 int32 int64 uint8 bfloat16 float16 float32 float64 complex64".split()
SIZES = (1, 2, 3, 4)
REDUCTIONS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
REDUCTIONS |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def arrays(size: int, shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    """An array for each member."""
    generator = np.random.default_rng(size)
    kind = rlx.numpy.dtype(dtype)
    if kind.kind in "biu":
        found = generator.integers(0, 2 if dtype == "bool" else 5, (size, *shape))
    else:
        found = generator.normal(size=(size, *shape)) + 1j * (kind.kind == "c")
        found = found if kind.kind == "c" else found.real
    return [*found.astype(kind)]


def every(function: Callable[[Any], Any], given: list[np.ndarray]) -> list[np.ndarray]:
    """What the members get: eagerly, jitted, and on the reference backend; all the same."""

    def work() -> tuple[np.ndarray, ...]:
        x = given[rlx.process_index()]
        compiled, slow = rlx.jit(function), rlx.jit(function, device="reference")
        return tuple(np.asarray(f(x)) for f in (function, compiled, slow))

    results = threads.run(len(given), work)
    for eager, compiled, slow in results:
        for other in (compiled, slow):
            assert eager.dtype == other.dtype
            np.testing.assert_array_equal(eager, other)
    return [eager for eager, _, _ in results]


def combined(op: str, rows: np.ndarray) -> np.ndarray:
    """Rows combined one after the other."""
    wide = compute_dtype(rows.dtype) if is_narrow(rows.dtype) else rows.dtype
    total = rows[0].astype(wide)
    with np.errstate(all="ignore"):
        for row in rows[1:]:
            total = REDUCTIONS[op](total, row.astype(wide))
    return total.astype(rows.dtype)


def has(op: str, dtype: str) -> bool:
    kind = rlx.numpy.dtype(dtype).kind
    if op in ("and", "or", "xor"):
        return kind in "biu"
    return not (kind == "c" and op in ("max", "min")) and not (kind == "b" and op in ("sum", "prod"))


@pytest.mark.parametrize(("size", "dtype"), [*product(SIZES, DTYPES), (8, "float32"), (8, "bfloat16")])
def test_exchanges_are_numpys(size: int, dtype: str) -> None:
    given = arrays(size, (size, 3), dtype)
    stacked = np.stack(given)
    ring = [(r, (r + 1) % size) for r in range(size - 1)]  # nobody sends to 0
    cases: dict[str, tuple[Callable[[Any], Any], Callable[[int], np.ndarray]]] = {
        "all_gather": (distributed.all_gather, lambda r: stacked),
        "tiled": (lambda x: distributed.all_gather(x, 1, True), lambda r: np.concatenate(given, 1)),
        "all_to_all": (distributed.all_to_all, lambda r: stacked[:, r]),
        "permute": (lambda x: distributed.permute(x, ring), lambda r: given[r - 1] if r else np.zeros_like(given[0])),
        "broadcast": (lambda x: distributed.broadcast(x, size - 1), lambda r: given[size - 1]),
    }
    for op in (op for op in REDUCTIONS if has(op, dtype)):
        total = combined(op, stacked)
        cases[op] = lambda x, op=op: distributed.all_reduce(x, op), lambda r, total=total: total
        scattered = lambda x, op=op: distributed.reduce_scatter(x, op)  # noqa: E731
        cases[f"{op} scattered"] = scattered, lambda r, total=total: total[r]
    for name, (function, expected) in cases.items():
        for rank, result in enumerate(every(function, given)):
            assert result.dtype == given[0].dtype, name
            np.testing.assert_array_equal(result, expected(rank), err_msg=name)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "complex64"])
def test_long_arrays_have_the_same_bits_everywhere(dtype: str) -> None:
    given = arrays(3, (4099,), dtype)
    expected = combined("sum", np.stack(given))
    for _ in range(2):
        for result in every(distributed.all_reduce, given):
            np.testing.assert_array_equal(result, expected)


def test_deterministic_sums_are_rounded_once() -> None:
    given = arrays(4, (2000,), "float32")
    exact = np.sum(np.stack(given).astype(np.float64), 0).astype(np.float32)
    slow = every(lambda x: distributed.all_reduce(x, mode="deterministic"), given)[0]
    fast = every(distributed.all_reduce, given)[0]
    np.testing.assert_array_equal(slow, exact)
    assert not np.array_equal(fast, exact)


def test_trees_go_in_buckets_of_a_dtype() -> None:
    tree = {"a": jnp.ones((2, 3)), "b": (jnp.ones(5), jnp.arange(4)), "c": jnp.ones(4, "float64"), "d": jnp.array(True)}

    def work() -> Any:
        size = rlx.process_count()
        whole = distributed.all_reduce(tree)
        for found, x in zip(rlx.tree.leaves(whole), rlx.tree.leaves(tree), strict=True):
            assert found.tolist() == (np.asarray(x) * size).tolist()
        counts = []
        for limit in (1000, 30):
            program = rlx.make_program(lambda t, n=limit: distributed.all_reduce(t, bucket_bytes=n))(tree)
            counts.append(sum(e.primitive.name == "process_all_reduce" for e in program.equations))
        return counts

    # float32 a and b, int32 b and d, float64; then a alone, b alone
    assert threads.run(2, work) == [[3, 4], [3, 4]]


def test_means() -> None:
    def work() -> Any:
        rank = rlx.process_index()
        return [distributed.all_reduce(x, "mean").tolist() for x in (rank, jnp.float32(rank), rank == 1)]

    assert threads.run(2, work) == [[0.5, 0.5, 0.5]] * 2


# ------------------------------------------------------------------ transforms
# what processes exchange, and the same over a mapped axis
PAIRS = [(0, 1), (1, 2)]
TWINS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum": (distributed.all_reduce, lambda x: lax.psum(x, "p")),
    "mean": (lambda x: distributed.all_reduce(x, "mean"), lambda x: lax.pmean(x, "p")),
    "max": (lambda x: distributed.all_reduce(x, "max"), lambda x: lax.pmax(x, "p")),
    "min": (lambda x: distributed.all_reduce(x, "min"), lambda x: lax.pmin(x, "p")),
    "prod": (lambda x: distributed.all_reduce(x, "prod"), lambda x: lax.all_gather(x, "p").prod(0)),
    "gather": (lambda x: distributed.all_gather(x, 1), lambda x: lax.all_gather(x, "p", axis=1)),
    "tiled": (lambda x: distributed.all_gather(x, 1, True), lambda x: lax.all_gather(x, "p", axis=1, tiled=True)),
    "scatter": (lambda x: distributed.reduce_scatter(x), lambda x: lax.psum_scatter(x, "p")),
    "scatter max": (
        lambda x: distributed.reduce_scatter(x, "max"),
        lambda x: lax.pmax(x, "p")[lax.axis_index("p")],
    ),
    "scatter tiled": (
        lambda x: distributed.reduce_scatter(x, axis=1, tiled=True),
        lambda x: lax.psum_scatter(x, "p", scatter_dimension=1, tiled=True),
    ),
    "all_to_all": (
        lambda x: distributed.all_to_all(x, 1, 0, True),
        lambda x: lax.all_to_all(x, "p", 1, 0, tiled=True),
    ),
    "permute": (lambda x: distributed.permute(x, PAIRS), lambda x: lax.ppermute(x, "p", PAIRS)),
    "broadcast": (lambda x: distributed.broadcast(x, 1), lambda x: lax.all_gather(x, "p")[1]),
}


@pytest.mark.parametrize("name", TWINS)
def test_derivatives_and_batches_are_those_of_a_mapped_axis(name: str) -> None:
    ours, theirs = TWINS[name]
    generator = np.random.default_rng(3)
    x, t = generator.normal(size=(2, 3, 3, 6))

    def value(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: f(jnp.sin(x)) * 2.0

    def transforms(f: Callable[[Any], Any], x: Any, t: Any) -> Any:
        out, tangent = rlx.jvp(value(f), (x,), (t,))
        again, pull = rlx.vjp(value(f), x)
        rows = rlx.vmap(value(f), in_axes=1, out_axes=0)(jnp.stack([x, t], 1))
        slopes = rlx.vmap(rlx.grad(lambda x: (value(f)(x) ** 2).sum()))(jnp.stack([x, t]))
        return out, tangent, again, pull(jnp.cos(out))[0], rows, slopes

    expected = rlx.vmap(lambda x, t: transforms(theirs, x, t), axis_name="p")(x, t)

    def work() -> Any:
        mine = x[rlx.process_index()], t[rlx.process_index()]
        return transforms(ours, *mine), rlx.jit(lambda *a: transforms(ours, *a))(*mine)

    for rank, both in enumerate(threads.run(3, work)):
        for found in both:
            for result, rows in zip(found, expected, strict=True):
                assert_close(result, rows[rank], 1e-12, 1e-12, message=name)


def test_exchanges_in_loops_and_branches() -> None:
    def function(x: Any, steps: int) -> Any:
        def body(i: int, x: Any) -> Any:
            summed, sent = lambda x: distributed.all_reduce(x) / 2, lambda x: distributed.permute(x, ring)
            return lax.cond(i % 2 == 0, summed, sent, x)

        return lax.fori_loop(0, steps, body, x)

    ring = [(0, 1), (1, 0)]

    def work() -> Any:
        x = jnp.arange(3.0) + rlx.process_index()
        found = rlx.jit(function)(x, 4)
        _, rows = lax.scan(lambda c, r: (c + distributed.all_reduce(r), c), 0.0, x)
        slope = rlx.grad(lambda x: lax.scan(lambda c, r: (distributed.all_reduce(c * r), c), 1.0, x)[0])(x)
        return found.tolist(), rows.tolist(), slope.tolist()

    (first, rows, slope), (second, _, other) = threads.run(2, work)
    assert first == second == [0.5, 1.5, 2.5]
    assert rows == [0.0, 1.0, 4.0]
    expected = rlx.grad(
        lambda x: rlx.vmap(
            lambda x: lax.scan(lambda c, r: (lax.psum(c * r, "p"), c), lax.psum(0.5, "p"), x)[0], axis_name="p"
        )(x).sum()
    )(jnp.stack([jnp.arange(3.0), jnp.arange(3.0) + 1]))
    assert_close(np.asarray([slope, other], np.float32), expected)


# ------------------------------------------------------------------ in the compiler
def test_a_collective_is_a_kernel_that_nothing_is_fused_with() -> None:
    def work() -> Any:
        def function(x: Any) -> Any:
            y = jnp.exp(x)
            return distributed.all_reduce(y * 2.0) + y, distributed.all_reduce(x * 3.0).sum()

        found = rlx.inspect(function)(jnp.ones((4, 5)))
        kernels = found.plan.kernels
        collectives = [k for k in kernels if isinstance(k, Collective)]
        assert [k.exchange.kind for k in collectives] == ["all_reduce", "all_reduce"]
        assert len({k.mark for k in collectives}) == 2
        assert len(kernels) == 5  # what goes in, the two, and what comes of each
        assert all(k.origins[0].file == __file__ for k in collectives)
        assert "all_reduce: processes meet" in plan_texts(found.plan)["host"]
        assert "all_reduce sum in world[2]" in describe_plan(found.plan)
        rebuilt: dict[str, Any] = {}
        exec(show_plan(found.plan), rebuilt)
        verify_plan(rebuilt["plan"])

    threads.run(2, work)


@pytest.mark.parametrize("device", ["numba", "c"])
def test_other_devices_leave_exchanges_to_the_host(device: str) -> None:
    def function(x: Any) -> Any:
        ring = lax.fori_loop(0, 3, lambda i, x: distributed.permute(x, [(0, 1), (1, 0)]), x)
        return distributed.all_reduce(x * 2.0) + ring

    def work() -> Any:
        x = jnp.arange(3.0) + rlx.process_index()
        return [rlx.jit(function, device=name)(x).tolist() for name in (device, "cpu")]

    assert threads.run(2, work) == [[[3.0, 8.0, 13.0]] * 2, [[2.0, 7.0, 12.0]] * 2]


def test_exchanges_are_saved_with_programs(tmp_path: Path) -> None:
    shape = rlx.ShapeDtypeStruct((3,), "float32")

    def work() -> Any:
        path = tmp_path / f"{rlx.process_index()}.rlx"
        rlx.export(rlx.jit(lambda x: distributed.all_reduce(x) + x))(shape).save(path)
        return rlx.load_exported(path)(jnp.ones(3)).tolist()

    assert threads.run(2, work) == [[3.0] * 3] * 2
    with pytest.raises(errors.CollectiveError, match="A program for 2 processes runs in a group of 1"):
        rlx.load_exported(tmp_path / "0.rlx")(jnp.ones(3))


def test_programs_are_compiled_once_for_each_number_of_processes() -> None:
    function = rlx.jit(lambda x: distributed.all_gather(x))
    assert function(1.0).tolist() == [1.0]
    assert [f.tolist() for f in threads.run(2, lambda: function(1.0))] == [[1.0, 1.0]] * 2
    assert function(1.0).tolist() == [1.0]


# ------------------------------------------------------------------ mistakes
def test_refused_exchanges() -> None:
    for function, error in (
        (lambda: distributed.all_reduce(jnp.ones(2), "median"), errors.OptionError),
        (lambda: distributed.all_reduce(jnp.ones(2), mode="exact"), errors.OptionError),
        (lambda: distributed.all_reduce(jnp.ones(2), "and"), errors.DtypeError),
        (lambda: distributed.all_reduce(jnp.ones(2, "complex64"), "max"), errors.DtypeError),
        (lambda: distributed.reduce_scatter(jnp.ones(3)), errors.ShapeError),
        (lambda: distributed.reduce_scatter(jnp.ones(3), tiled=True), errors.ShapeError),
        (lambda: distributed.all_to_all(jnp.ones(())), ValueError),
        (lambda: distributed.permute(1.0, [(0, 1), (0, 0)]), errors.ShapeError),
        (lambda: distributed.permute(1.0, [(0, 2)]), errors.ShapeError),
        (lambda: distributed.broadcast(1.0, 2), errors.ShapeError),
        (lambda: distributed.all_reduce(1.0, group="others"), errors.ShardingError),
        (lambda: distributed.new_group([0, 2]), errors.ShardingError),
        (lambda: distributed.new_group([0, 0]), errors.ShardingError),
        (lambda: distributed.all_reduce(rlx.random.key(0)), errors.DtypeError),
    ):
        with pytest.raises(error):
            threads.run(2, function)
