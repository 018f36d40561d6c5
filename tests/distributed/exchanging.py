"""A program for processes of MPI: every exchange of every dtype against NumPy; derivatives; groups."""

import os
import tempfile

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import distributed
from rlx.experimental.multihost_utils import process_allgather
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P

DTYPES = "bool int8 int16 int32 int64 bfloat16 float16 float32 float64 complex64".split()


def rows(size, shape, dtype):
    """The arrays of all ranks: small whole numbers, of which every sum is exact."""
    found = np.random.default_rng(size).integers(0, 2 if dtype == "bool" else 5, (size, *shape))
    return found.astype(jnp.dtype(dtype))


def check(rank, size, dtype, length):
    """Each exchange of arrays of shape (size, length)."""
    given = rows(size, (size, length), dtype)
    ring = [(r, (r + 1) % size) for r in range(size)]
    op = "or" if dtype == "bool" else "sum"
    total = (given.any(0) if dtype == "bool" else given.astype("complex128").sum(0)).astype("complex128")
    total = (total if dtype == "complex64" else total.real).astype(given.dtype)
    for function, expected in (
        (lambda x: distributed.all_reduce(x, op), total),
        (lambda x: distributed.all_reduce(x, op, "deterministic"), total),
        (lambda x: distributed.reduce_scatter(x, op), total[rank]),
        (distributed.all_gather, given),
        (distributed.all_to_all, given[:, rank]),
        (lambda x: distributed.permute(x, ring), given[rank - 1]),
        (lambda x: distributed.permute(x, ring[:1]), given[0] if rank == 1 % size else np.zeros_like(given[0])),
        (lambda x: distributed.broadcast(x, size - 1), given[size - 1]),
    ):
        for called in (function, rlx.jit(function)):
            result = np.asarray(called(given[rank]))
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result, expected)


def check_derivatives(rank, size):
    """Those of a sum over all processes, and of the same over a mapped axis."""
    x = np.random.default_rng(0).normal(size=(size, 3))

    def function(x, total):
        return (jnp.sin(total(jnp.cos(x))) * x).sum()

    slope = rlx.jit(rlx.grad(lambda x: function(x, distributed.all_reduce)))(x[rank])
    expected = rlx.vmap(rlx.grad(lambda x: function(x, lambda y: rlx.lax.psum(y, "p"))), axis_name="p")(x)[rank]
    np.testing.assert_allclose(slope, expected, rtol=1e-12)
    rlx.jit(lambda x: rlx.hvp(lambda x: function(x, distributed.all_reduce), (x,), (x,)))(x[rank])


def check_mesh(rank, size):
    """A mesh over all processes, and a folder that they write and read."""
    mesh = Mesh(np.array(rlx.devices()), ("rows",))
    x = np.arange(6.0 * size).reshape(2 * size, 3)
    rows = rlx.make_array_from_process_local_data(NamedSharding(mesh, P("rows")), x[2 * rank : 2 * rank + 2])

    def means(x):
        return rlx.lax.pmean(x.mean(0), "rows")

    found = rlx.jit(rlx.shard_map(means, mesh=mesh, in_specs=P("rows"), out_specs=P()))(rows)
    np.testing.assert_allclose(found, x.mean(0))
    with tempfile.TemporaryDirectory() as folder:
        root = bytes(distributed.broadcast(np.frombuffer(folder.encode().ljust(256), np.uint8))).decode().strip()
        rlx.save(f"{root}/rows.shards", rows)
        np.testing.assert_array_equal(process_allgather(rlx.load(f"{root}/rows.shards", rows)), x)
        distributed.barrier()


def check_overlap(rank, size):
    """Large exchanges beside products, in a function and in a loop in it, are those that nothing is beside."""
    weights = jnp.asarray(np.random.default_rng(3).normal(size=(192, 192)).astype(np.float32) / 14)

    def turn(x):
        summed = distributed.all_reduce(x)
        return jnp.tanh(x @ weights) + summed / size, distributed.all_reduce(jnp.cos(x @ weights), "max")

    def function(x):
        found, most = turn(x)
        return rlx.lax.fori_loop(0, 3, lambda i, x: turn(x)[0], found), most

    x = jnp.asarray(np.random.default_rng(rank).normal(size=(192, 192)).astype(np.float32))
    kernels = {type(k).__name__ for k in rlx.inspect(function)(x).plan.kernels}
    assert ("Await" in kernels) == (size > 1)
    expected, most = turn(x)
    for _ in range(3):
        expected = turn(expected)[0]
    for _ in range(3):
        found, highest = rlx.jit(function)(x)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(highest, most, rtol=1e-4, atol=1e-5)


def main():
    """All of it; the last line says that it went well."""
    distributed.initialize()
    rank, size = rlx.process_index(), rlx.process_count()
    for dtype in DTYPES:
        check(rank, size, dtype, 5)
    check(rank, size, "float32", 5003)
    check_derivatives(rank, size)
    check_overlap(rank, size)
    groups = "MLX_RANK" not in os.environ  # MLX's ring has none
    if groups:
        check_mesh(rank, size)
    last = distributed.new_group([size - 1, 0][: min(2, size)]) if groups else ""
    if groups and rank in (0, size - 1):
        assert distributed.all_gather(rank, group=last).tolist() == [size - 1, 0][: min(2, size)]
    distributed.barrier()
    distributed.shutdown()
    assert rlx.process_count() == 1
    print(f"rank {rank} of {size}: fine", flush=True)


if __name__ == "__main__":
    main()
