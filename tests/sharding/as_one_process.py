"""Uses of divided arrays that run with the devices of one process, run with two and four processes.

Each row gives values, shardings and types, which must be equal for 4 devices of one process, 2 processes of 2 devices
and 4 processes of one. Processes are threads; start it with RLX_NUM_CPU_DEVICES=4. It prints what differs in each row.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.distributed import threads
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P
from tests.sharding.partitioned import gathered
from tests.sharding.spanning import X, device_mesh

ADAM = rlx.optim.adam(0.1)
ROWS: dict[str, Callable[[Any], Any]] = {}


def row(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Take a function of a divided array as a row of the table."""
    ROWS[function.__name__] = function
    return function


def on(x: Any, *spec: Any) -> NamedSharding:
    """A sharding over the array's mesh."""
    return NamedSharding(x.sharding.mesh, P(*spec))


def turned(x: Any) -> Mesh:
    """The array's mesh with its devices in the reverse order."""
    return Mesh(x.sharding.mesh.devices[::-1], ("i",))


@row
def arithmetic(x: Any) -> Any:
    return x + 1, 2.0 - x, x * x, -x, x // 0.3, x % 0.3, x**2, x @ x, x == x, x > 0, abs(x), divmod(x, 0.7), x + X


@row
def functions(x: Any) -> Any:
    return jnp.tanh(x), jnp.where(x > 0, x, 0), rlx.nn.softmax(x, 0), rlx.nn.gelu(x), jnp.round(x), jnp.isnan(x)


@row
def reductions(x: Any) -> Any:
    return x.sum(), x.sum(0), x.mean(1), x.max(), x.min(0), x.argmax(), x.argmin(1), jnp.std(x), jnp.linalg.norm(x)


@row
def more_reductions(x: Any) -> Any:
    return x.prod(0), (x > 0).any(), (x > 0).all(1), jnp.median(x, 0), jnp.quantile(x, 0.3), jnp.percentile(x, 50, 1)


@row
def conversions_to_python(x: Any) -> Any:
    return f"{float(x.sum()):.9f}", bool((x > 0).any()), int(x.argmax()), f"{x.sum():.3f}", len(x), x.max() > 0.5


@row
def indexing(x: Any) -> Any:
    return x[0], x[-1, 2], x[2:6], x[::2], x[..., 1], x[None], x[jnp.array([3, 1])], x[[0, 5]], x[:, jnp.array([3, 1])]


@row
def masks(x: Any) -> Any:
    return jnp.where(x > 0, x, 0).sum(), jnp.nonzero(x > 0, size=4), jnp.extract(x > 0, x, size=3), jnp.count_nonzero(x)


@row
def updates(x: Any) -> Any:
    return x.at[3].set(1.0), x.at[:, 3].add(1.0), x.at[jnp.array([1, 6])].multiply(2.0), x.at[2:5, 1].set(0.0)


@row
def shapes(x: Any) -> Any:
    return (
        x.T,
        x.reshape(4, 2, 8),
        x.ravel(),
        jnp.stack([x, x]),
        jnp.concatenate([x, x]),
        jnp.split(x, 2),
        jnp.tile(x, 2),
    )


@row
def more_shapes(x: Any) -> Any:
    return (
        jnp.roll(x, 1, 0),
        jnp.roll(x, 1, 0),
        jnp.roll(x, 3, 1),
        jnp.pad(x, 1),
        jnp.repeat(x, 2, 0),
        x[::-1],
        jnp.expand_dims(x, 1),
        jnp.squeeze(x[None]),
    )


@row
def order(x: Any) -> Any:
    return (
        jnp.sort(x, 0),
        jnp.argsort(x, 1),
        jnp.cumsum(x, 0),
        lax.top_k(x, 2),
        jnp.diff(x, axis=0),
        jnp.unique(x, size=9),
    )


@row
def iteration(x: Any) -> Any:
    return list(x)[5], [v.sum() for v in x], [*map(jnp.max, x)]


@row
def copies(x: Any) -> Any:
    return x.copy(), jnp.array(x), jnp.asarray(x), copy.copy(x), copy.deepcopy(x), x.astype("float32"), x.view("int64")


@row
def like_another(x: Any) -> Any:
    return (
        jnp.zeros_like(x),
        jnp.ones_like(x),
        jnp.full_like(x, 3, "int32"),
        jnp.empty_like(x) * 0,
        lax.full_like(x, 2.0),
    )


@row
def states_of_optimisers(x: Any) -> Any:
    state = ADAM.init({"w": x})
    updates, state = ADAM.update({"w": x}, state, {"w": x})
    jitted = rlx.jit(ADAM.init)({"w": x})
    return state[0].mu, updates, jitted[0].nu, rlx.optim.sgd(0.1, momentum=0.9).init(x)[0].trace


@row
def linear_algebra(x: Any) -> Any:
    whole = x @ x.T + 9 * np.eye(8)
    return jnp.linalg.solve(whole, x), jnp.linalg.cholesky(whole), jnp.linalg.inv(whole), jnp.linalg.det(whole)


@row
def transforms(x: Any) -> Any:
    def loss(x):
        return (jnp.sin(x) ** 2).sum()

    return (
        rlx.grad(loss)(x),
        rlx.value_and_grad(loss)(x),
        rlx.jvp(loss, (x,), (x,)),
        rlx.vmap(lambda v: v * v.sum())(x),
        rlx.hessian(lambda v: (v**3).sum())(x[0]),
        rlx.checkpoint(loss)(x),
    )


@row
def control_flow(x: Any) -> Any:
    return (
        lax.scan(lambda c, v: (c + v, c.sum()), np.zeros(8), x),
        lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
        lax.while_loop(lambda c: (c**2).sum() < 100, lambda c: c * 2, x),
        lax.fori_loop(0, 3, lambda n, c: c + n * x, np.zeros((8, 8))),
        lax.map(jnp.sum, x),
        lax.associative_scan(jnp.add, x, axis=0),
    )


@row
def random_numbers(x: Any) -> Any:
    key = rlx.random.key(0)
    return x + rlx.random.normal(key, x.shape), rlx.random.permutation(key, x), rlx.random.choice(key, x, (3,))


@row
def device_put(x: Any) -> Any:
    back = rlx.device_put(rlx.device_put(x, on(x)), on(x, "i"))
    return (
        rlx.device_put(x, on(x)),
        rlx.device_put(x, on(x, None, "i")),
        back,
        rlx.device_put({"a": x}, on(x, None, "i")),
    )


@row
def device_put_over_a_mesh_of_other_axes(x: Any) -> Any:
    grid = Mesh(x.sharding.mesh.devices.reshape(2, 2), ("a", "b"))
    y = rlx.device_put(x, NamedSharding(grid, P("b", "a")))
    return y, y + 1, rlx.device_put(y, on(x, "i"))


@row
def meshes_in_another_order(x: Any) -> Any:
    y = rlx.device_put(X, NamedSharding(turned(x), P("i")))
    return y * 2, rlx.device_put(x, y.sharding), rlx.device_put(y, x.sharding) + x, rlx.device_put(y, on(x))


@row
def jitted_over_a_mesh_in_another_order(x: Any) -> Any:
    place = NamedSharding(turned(x), P("i"))
    return rlx.jit(lambda x: x * 2, out_shardings=place)(X), rlx.jit(jnp.cumsum)(rlx.device_put(X, place))


@row
def a_mesh_of_swapped_axes(x: Any) -> Any:
    grid = Mesh(x.sharding.mesh.devices.reshape(2, 2).T, ("a", "b"))
    y = rlx.device_put(X, NamedSharding(grid, P("a", "b")))
    return y.sum(0), y @ y.T, rlx.device_put(y, NamedSharding(grid, P("b")))


@row
def pmap_over_all_devices(x: Any) -> Any:
    """A process passes and gets the members of its own devices."""
    devices, own = [*x.sharding.mesh.devices.flat], 4 // rlx.process_count()
    every, first = len(devices), rlx.process_index() * own
    summed = rlx.pmap(lambda v: lax.psum(v, "d") + lax.axis_index("d"), axis_name="d", devices=devices)
    found = summed(X[first : first + own])
    np.testing.assert_allclose(found, X[:every].sum(0) + np.arange(first, first + own)[:, None])
    return (found.shape[0] * rlx.process_count(),)


@row
def shapes_of_results(x: Any) -> Any:
    found = rlx.eval_shape(lambda x: (x * 2, x.sum(0)), x)
    return [(type(f).__name__, f.shape, f.dtype.name, getattr(f.sharding, "spec", None)) for f in found]


@row
def stages(x: Any) -> Any:
    compiled = rlx.jit(lambda x: x * 2).lower(x).compile()
    return type(compiled.output_shardings).__name__, compiled.output_shardings.spec, compiled(x)


@row
def donation(x: Any) -> Any:
    given = x + 0
    found = rlx.jit(lambda x: x * 2, donate_argnums=0)(given)
    return given.is_deleted(), found


@row
def files(x: Any) -> Any:
    """All processes write to one path; a process reads the file that is there when all have written."""
    folder = folders[0]
    for name in ("one.safetensors", "one.npz", "many.shards"):
        rlx.save(folder / name, {"x": x, "n": 3})
    rlx.distributed.barrier()
    read = [rlx.load(folder / name)["x"] for name in ("one.safetensors", "one.npz", "many.shards")]
    return *read, rlx.load(folder / "many.shards", {"x": x, "n": 3})["x"]


@row
def files_with_shardings(x: Any) -> Any:
    """`like` says how an array of one file is divided."""
    folder = folders[0]
    rlx.save(folder / "one.safetensors", {"x": x})
    rlx.distributed.barrier()
    return rlx.load(folder / "one.safetensors", {"x": x})["x"]


@row
def text(x: Any) -> Any:
    return str(x.sum().round(3)), x.shape, x.dtype.name, x.nbytes, x.ndim, x.size, x.itemsize, type(x.sharding).__name__


@row
def types(x: Any) -> Any:
    inside, mesh = [], x.sharding.mesh
    rlx.jit(
        lambda x: inside.append(
            rlx.typeof(lax.with_sharding_constraint(2 * x, NamedSharding(mesh, P(None, "i")))).sharding.spec
        )
    )(x)
    specs = rlx.typeof(x).sharding.spec, rlx.typeof(x + 1).sharding.spec, *inside
    return rlx.typeof(x).shape, specs, rlx.typeof(X).sharding is None


@row
def shards(x: Any) -> Any:
    own = {str(s.index) for s in x.global_shards if s.data is not None}
    here = {str(s.index) for s in x.addressable_shards}
    return len(x.global_shards), str([(s.index, s.replica_id) for s in x.global_shards]), own == here


@row
def trees(x: Any) -> Any:
    return (
        rlx.tree.map(jnp.zeros_like, {"a": [x]}),
        rlx.tree.leaves([x, 1])[0],
        rlx.flatten_util.ravel_pytree([x, x])[0],
    )


@row
def comparisons(x: Any) -> Any:
    return (
        bool(jnp.allclose(x, x)),
        bool(jnp.array_equal(x, x)),
        jnp.isclose(x, X),
        x.sharding.is_equivalent_to(on(x, "i"), 2),
    )


@row
def libraries(x: Any) -> Any:
    return (
        rlx.scipy.special.logsumexp(x, 0),
        jnp.fft.fft(x, axis=1),
        jnp.fft.fft(x, axis=0),
        jnp.einsum("ij,ik->jk", x, x),
    )


@row
def windows(x: Any) -> Any:
    return (
        lax.dynamic_slice(x, (1, 0), (2, 8)),
        lax.dynamic_update_slice(x, np.zeros((2, 8)), (3, 0)),
        lax.reduce_window(x, -np.inf, lax.max, (2, 1), (2, 1), "VALID"),
        jnp.convolve(x[0], x[1]),
    )


folders: list[Path] = []  # of the row that runs, for files


def described(leaf: Any) -> Any:
    """A result by its values and its division; other values unchanged."""
    if not isinstance(leaf, rlx.Array):
        return leaf, None
    return gathered(leaf), getattr(leaf.sharding, "spec", P())


def results(name: str) -> list[Any]:
    """Each result of a row, with its division."""
    x = rlx.device_put(X, NamedSharding(device_mesh({"i": 4}, False), P("i")))
    return list(map(described, rlx.tree.leaves(ROWS[name](x), lambda v: v is None or isinstance(v, (str, P)))))


def run(name: str) -> str:
    """What differs in a row, or nothing."""
    found = []
    for count in (1, 2, 4):
        with tempfile.TemporaryDirectory() as folder:
            folders[:] = [Path(folder)]
            try:
                found.append((count, threads.run(count, results, name)))
            except Exception:
                return f"{count} processes:\n{traceback.format_exc()[-1500:]}"
    try:
        expected = found[0][1][0]
        for count, members in found[1:]:
            for member in members:
                for number, ((value, lies), (wanted, should)) in enumerate(zip(member, expected, strict=True)):
                    where = f"result {number} over {count} processes"
                    if isinstance(wanted, np.ndarray):
                        np.testing.assert_allclose(value, wanted, rtol=1e-9, atol=1e-12, err_msg=where)
                    else:
                        assert value == wanted, (where, value, wanted)
                    assert lies == should, (where, lies, should)
    except AssertionError:
        return traceback.format_exc()[-1500:]
    return ""


if __name__ == "__main__":
    print(json.dumps({name: run(name) for name in sys.argv[1:] or ROWS}))
