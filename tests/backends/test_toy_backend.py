"""The backend that docs/backends.md writes down: a memory that NumPy cannot address, runs on a thread of its own."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from primitive_cases import Case, cases, run_lowered

import rlx
import rlx.numpy as jnp
from rlx import backends, lax
from rlx.array import memory_of
from rlx.backends import backend_named, register_backend
from rlx.device_memory import host_memory
from rlx.errors import CallbackError, DeviceError, DonatedArrayError, JaxRuntimeError, OutOfMemoryError
from rlx.passes.pipeline import executables
from rlx.storage import AllocationError
from rlx.testing import assert_close

PAGE = Path(__file__).resolve().parents[2] / "docs" / "backends.md"
VALUES = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def forget(*names: str) -> None:
    """Take devices out of the tables."""
    for name in names:
        backends._BACKENDS.pop(name, None)
        backends._loaded.pop(name, None)


@pytest.fixture(scope="module")
def toy() -> Iterator[ModuleType]:
    """The page's block, run; its backend is registered by the block itself."""
    forget("toy")
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    module = ModuleType("toy_backend")
    exec(compile(source, "<docs/backends.md>", "exec"), module.__dict__)
    yield module
    forget("toy")


@pytest.fixture
def x(toy: ModuleType) -> Any:
    """An array on the toy."""
    return rlx.device_put(VALUES, "toy")


def on_toy(value: Any) -> np.ndarray:
    """The values of an array that lies on the toy."""
    assert memory_of(value) is not None and value.device == "toy"
    return np.asarray(value)


# ------------------------------------------------------------- what it computes
def sampled() -> list[Case]:
    """A few samples of each primitive: the first, the last and one between."""
    found: dict[str, list[Case]] = {}
    for case in cases():
        found.setdefault(case.primitive.name, []).append(case)
    return [some[n] for some in found.values() for n in sorted({0, len(some) // 2, len(some) - 1})]


@pytest.mark.parametrize("part", range(8))
def test_compiled_code_computes_the_reference(toy: ModuleType, part: int) -> None:
    for case in sampled()[part::8]:
        results = run_lowered(backend_named("toy"), case.bind, case.arrays)
        for found, expected in zip(results, case.reference(*case.arrays), strict=True):
            assert_close(found, expected, 1e-5, 1e-5, message=repr(case))


@pytest.mark.parametrize("part", range(4))
def test_eager_operations_run_there(toy: ModuleType, part: int) -> None:
    """Every primitive by itself on arrays of the toy, and its weakness and dtype are those of the host."""
    chosen = {c.primitive.name: c for c in cases() if not c.primitive.collective}
    for case in [*chosen.values()][part::4]:
        if not case.arrays:
            continue
        given = [rlx.device_put(a, "toy") for a in case.arrays]
        expected = case.bind(*map(jnp.asarray, case.arrays))
        for found, wanted in zip(case.bind(*given), expected, strict=True):
            assert found.type == wanted.type, case
            assert_close(on_toy(found), np.asarray(wanted), 1e-5, 1e-5, message=repr(case))


def test_operations_are_compiled_once(x: Any) -> None:
    compiled = executables.misses
    first = [jnp.tanh(x * 3.5), x + x]
    again = executables.misses
    assert again > compiled
    for number in range(4):
        jnp.tanh(x * float(number)), x + x
    assert executables.misses == again
    np.testing.assert_allclose(on_toy(first[0]), np.tanh(VALUES * 3.5), rtol=1e-6)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "operators": lambda v: (2.0 * v - 1) / (v + 3) ** 2,
    "comparison": lambda v: jnp.where(v > 2, v, 0.0),
    "with NumPy": lambda v: v + np.ones(3, np.float32),
    "with NumPy before": lambda v: np.ones(3, np.float32) * v,
    "jnp.add of NumPy": lambda v: jnp.add(VALUES, v),
    "index": lambda v: v[1, ::-1],
    "index by NumPy": lambda v: v[:, np.array([2, 0])],
    "update": lambda v: v.at[0].add(5.0),
    "matmul": lambda v: v @ v.T,
    "std": lambda v: jnp.std(v, axis=1),
    "triangle": lambda v: jnp.tril(v),
    "sort": lambda v: jnp.sort(-v, axis=None),
    "nonzero": lambda v: jnp.nonzero(v)[1],
    "concatenate": lambda v: jnp.concatenate([v, np.zeros((1, 3), np.float32)]),
    "softmax": lambda v: rlx.nn.softmax(v),
    "inverse": lambda v: jnp.linalg.inv(v[:, :2] + 3 * np.eye(2, dtype=np.float32)),
    "fft": lambda v: jnp.fft.rfft(v).real,
    "interp": lambda v: jnp.interp(v, np.arange(4.0), np.arange(4.0) ** 2),
    "astype": lambda v: v.astype(jnp.int8),
    "ones_like": jnp.ones_like,
    "copy": lambda v: v.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "jnp.array": jnp.array,
    "jit": rlx.jit(lambda v: jnp.cumsum(v, axis=1) * 2),
    "jit of a tree": lambda v: rlx.jit(lambda t: {k: w + 1 for k, w in t.items()})({"b": v, "a": v})["a"],
    "jit that hands through": lambda v: rlx.jit(lambda a, b: (b, a))(VALUES, v)[1],
    "jit that gives a constant": lambda v: rlx.jit(lambda a: (jnp.ones(2), 3.0, a))(v)[0],
    "jit over what it closes over": lambda v: rlx.jit(lambda: v * 2)(),
    "jit of NumPy and what it closes over": lambda v: rlx.jit(lambda n: v * n)(VALUES),
    "ahead of time": lambda v: rlx.jit(lambda w: w * 3).lower(v).compile()(v),
    "grad": rlx.grad(lambda v: (jnp.sin(v) ** 2).sum()),
    "grad that asks for values": rlx.grad(lambda v: (v * v).sum() if v.sum() > 0 else v.sum()),
    "jitted grad": rlx.jit(rlx.grad(lambda v: (jnp.sin(v) ** 2).sum())),
    "jvp": lambda v: rlx.jvp(jnp.exp, (v,), (VALUES,))[1],
    "vjp": lambda v: rlx.vjp(jnp.cumprod, v)[1](np.ones(6, np.float32))[0],
    "jacobian": lambda v: rlx.jacfwd(lambda w: w**2)(v[0]),
    "vmap": rlx.vmap(lambda row: row / row.sum()),
    "scan": lambda v: lax.scan(lambda c, row: (c + row, c * 2), jnp.zeros_like(v[0]), v)[1],
    "grad of scan": rlx.grad(lambda v: lax.scan(lambda c, row: (c * row + 1, None), v[0], v)[0].sum()),
    "while": lambda v: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2, v),
    "cond": lambda v: lax.cond(v[0, 0] > 1, jnp.sin, jnp.cos, v),
    "fori": lambda v: lax.fori_loop(0, 3, lambda i, c: c + i, v),
    "callback": lambda v: rlx.pure_callback(np.sort, rlx.ShapeDtypeStruct((2, 3), np.float32), v),
    "random": lambda v: v + rlx.random.normal(rlx.device_put(rlx.random.key(3), "toy"), (3,)),
}


def test_functions_of_numpy_give_numpy_arrays(x: Any) -> None:
    for found in (np.add(x, VALUES), np.sum(x, axis=0)):
        assert type(found) is np.ndarray and found.flags.writeable


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_run_there(x: Any, name: str) -> None:
    """The result lies on the toy, and is what the host computes."""
    function = FUNCTIONS[name]
    if name == "random":
        expected = jnp.asarray(VALUES) + rlx.random.normal(rlx.random.key(3), (3,))
    else:
        expected = function(jnp.asarray(VALUES))
    found = function(x)
    assert found.dtype == expected.dtype and found.weak_type == expected.weak_type
    np.testing.assert_allclose(on_toy(found), np.asarray(expected), rtol=2e-6, atol=1e-6)


def test_switches_look_at_its_results(x: Any) -> None:
    with rlx.debug_nans(True), pytest.raises(rlx.errors.NanError, match="log made a NaN"):
        jnp.log(x - 3)
    with rlx.debug_nans(True), pytest.raises(rlx.errors.NanError):
        rlx.jit(lambda v: jnp.log(v - 3))(x)
    with rlx.disable_jit():
        assert on_toy(rlx.jit(lambda v: lax.fori_loop(0, 2, lambda i, c: c + i, v))(x))[0, 0] == 1


# ------------------------------------------------------------- arrays
def test_an_array_says_where_it_is(toy: ModuleType, x: Any) -> None:
    (device,) = rlx.devices("toy")
    assert x.device == device and x.devices() == {device} and x.sharding.device_set == {device}
    assert x.block_until_ready() is x and x.is_ready()
    assert x.addressable_data(0).device == device and x.addressable_shards[0].device == device
    assert (x.shape, x.dtype, x.ndim, x.nbytes, x.weak_type) == ((2, 3), np.float32, 2, 24, False)
    assert repr(x) == repr(jnp.asarray(VALUES)) and str(x) == str(VALUES)
    assert x.unsafe_buffer_pointer() == x.storage().pointer
    assert x.tolist() == VALUES.tolist() and float(x[0, 1]) == 1.0 and f"{x[1, 2]:.1f}" == "5.0"
    assert any(found is x for found in rlx.live_arrays("toy"))
    assert not any(found is x for found in rlx.live_arrays("cpu"))
    assert rlx.device_count() == 1 and rlx.devices() == rlx.devices("cpu")


def test_values_come_to_the_host_once(toy: ModuleType, x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Any] = []
    get = toy.ToyMemory.get
    monkeypatch.setattr(toy.ToyMemory, "get", lambda *args: fetched.append(args) or get(*args))
    assert x.numpy() is x.numpy() and np.asarray(x).base is not None and len(fetched) == 1
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 1
    assert rlx.device_get({"a": x})["a"].tolist() == VALUES.tolist() and len(fetched) == 1


def test_device_put_both_ways(x: Any) -> None:
    home = rlx.device_put(x, "cpu")
    assert home.device == "cpu" and np.array_equal(home, VALUES) and memory_of(home) is None
    for place in ("toy", "toy:0", rlx.devices("toy")[0], x.sharding):
        assert on_toy(rlx.device_put(home, place)).tolist() == VALUES.tolist()
        assert rlx.device_put(x, place).storage() is x.storage()
    assert rlx.device_put(x).storage() is x.storage() and on_toy(home.to_device("toy")).shape == (2, 3)
    assert x.to_device("toy") is x and x.to_device("cpu").device == "cpu"
    tree = rlx.device_put({"a": 1, "b": [np.ones(2)]}, "toy")
    assert on_toy(tree["a"]) == 1 and tree["a"].weak_type and on_toy(tree["b"][0]).dtype == np.float64
    mesh = rlx.make_mesh((1,), ("x",), devices=rlx.devices("toy"))
    assert on_toy(rlx.device_put(VALUES, rlx.NamedSharding(mesh, rlx.P(None)))).shape == (2, 3)
    assert on_toy(jnp.zeros(2, device="toy")).tolist() == [0, 0] and on_toy(jnp.asarray([1], device="toy")) == 1
    for place in ("toy:1", "toyz"):
        with pytest.raises(DeviceError):
            rlx.device_put(x, place)


def test_memory_that_was_put_is_a_copy(x: Any) -> None:
    values = VALUES.copy()
    for put in (lambda v: rlx.device_put(v, "toy"), lambda v: rlx.jit(lambda a: a, device="toy")(v)):
        there = put(values)
        values[0, 0] += 1
        assert there.numpy()[0, 0] == values[0, 0] - 1


@pytest.mark.parametrize("dtype", ["?", "i8", "u1", "f2", "bfloat16", "float8_e4m3fn", "int4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)])
def test_every_dtype_and_size(toy: ModuleType, dtype: str, shape: tuple[int, ...]) -> None:
    host = jnp.ones(shape, dtype)
    there = rlx.device_put(host, "toy")
    assert there.dtype == host.dtype and on_toy(there).tolist() == host.tolist()
    assert on_toy(jnp.reshape(there, (-1,)) if host.size else there[:0] if shape else there).size == host.size


def test_keys(toy: ModuleType) -> None:
    key = rlx.device_put(rlx.random.key(7), "toy")
    assert key.device == "toy" and key.dtype == rlx.random.key(7).dtype
    parts = rlx.random.split(key)
    assert parts.device == "toy" and repr(parts) == repr(rlx.random.split(rlx.random.key(7)))
    drawn = rlx.random.uniform(parts[1], (5000,))
    expected = rlx.random.uniform(rlx.random.split(rlx.random.key(7))[1], (5000,))
    assert np.array_equal(on_toy(drawn), expected)
    assert np.array_equal(rlx.random.key_data(pickle.loads(pickle.dumps(key))), rlx.random.key_data(rlx.random.key(7)))
    assert rlx.device_put(key, "cpu").device == "cpu"


def test_pickles_come_back_on_the_default_device(x: Any) -> None:
    text = pickle.dumps({"x": x, "weak": rlx.device_put(2.0, "toy")})
    back = pickle.loads(text)
    assert back["x"].device == "cpu" and np.array_equal(back["x"], VALUES) and back["weak"].weak_type
    with rlx.default_device("toy"):
        assert on_toy(pickle.loads(text)["x"]).tolist() == VALUES.tolist()


def test_dlpack_and_the_array_interface(x: Any) -> None:
    with pytest.raises(BufferError, match="toy"):
        x.__dlpack__()
    with pytest.raises(BufferError, match="toy"):
        x.__dlpack_device__()
    with pytest.raises(BufferError, match="copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    assert np.from_dlpack(_OnHost(x)).tolist() == VALUES.tolist()
    assert not hasattr(x, "__array_interface__") and np.asarray(x).tolist() == VALUES.tolist()


class _OnHost:
    """Asks an array for a copy on the host, as a consumer of DLPack does."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(dl_device=(1, 0))


def test_donated_arrays_are_gone(toy: ModuleType, x: Any) -> None:
    cells = len(toy.ToyBackend.memory.cells)
    step = rlx.jit(lambda v: v + 1, donate_argnums=0)
    for _ in range(3):
        before, x = x, step(x)
        assert before.is_deleted() and before.shape == (2, 3) and before.device == "toy"
        for use in (np.asarray, lambda v: v + 1, step, rlx.jit(jnp.sin), lambda v: v.block_until_ready()):
            with pytest.raises(DonatedArrayError):
                use(before)
    assert on_toy(x).tolist() == (VALUES + 3).tolist()
    rlx.effects_barrier()
    assert len(toy.ToyBackend.memory.cells) <= cells + 2


def test_memory_is_given_back(toy: ModuleType, x: Any) -> None:
    memory = toy.ToyBackend.memory
    jnp.sin(x + 1).block_until_ready()
    memory.synchronize()
    before = memory.pool_bytes()
    for _ in range(20):
        jnp.sin(x + 1).block_until_ready()
    memory.synchronize()
    assert memory.pool_bytes() <= before + 100


# ------------------------------------------------------------- where things run
def test_the_default_device(toy: ModuleType) -> None:
    """New arrays lie there, and what has no place runs there; arrays that were put on the host stay there."""
    host = rlx.device_put(np.ones(3, "f4"), "cpu")
    free = jnp.ones(3)
    with rlx.default_device("toy"):
        assert rlx.devices() == rlx.devices("toy") and rlx.default_backend() == "toy"
        makers: list[Callable[[], Any]] = [
            lambda: jnp.ones(3), lambda: jnp.arange(3), lambda: jnp.linspace(0, 1, 3), lambda: jnp.eye(2),
            lambda: jnp.array([1, 2]), lambda: jnp.asarray(3), lambda: jnp.float32(3), lambda: jnp.sin(1.0),
            lambda: jnp.add(np.ones(2), 1), lambda: jnp.zeros_like(VALUES), lambda: jnp.hanning(3),
            lambda: rlx.random.key(0), lambda: rlx.random.normal(rlx.random.key(0), (3,)), lambda: jnp.tri(3),
            lambda: rlx.jit(lambda v: v + 1)(VALUES), lambda: rlx.grad(lambda v: v * v)(3.0), lambda: rlx.device_put(1),
            lambda: rlx.vmap(jnp.sin)(VALUES), lambda: lax.scan(lambda c, v: (c + v, c), 0.0, np.ones(3))[1],
            lambda: jnp.linalg.inv(np.eye(2)), lambda: jnp.where(VALUES > 0, 1.0, 2.0), lambda: lax.iota("int32", 3),
            lambda: jnp.frombuffer(b"ab", np.uint8), lambda: jnp.from_dlpack(VALUES), lambda: jnp.fft.fftfreq(4),
            lambda: jnp.std(VALUES), lambda: jnp.stack([VALUES, VALUES]), lambda: jnp.ones(3)[jnp.array([1])],
        ]  # fmt: skip
        for number, make in enumerate(makers):
            assert make().device == "toy", number
        assert on_toy(jnp.ones(3) + jnp.arange(3)).tolist() == [1, 2, 3]
        for found in (host + 1, jnp.sin(host), rlx.jit(jnp.sin)(host), jnp.asarray(host), rlx.device_put(host)):
            assert found.device == "cpu"
        with pytest.raises(DeviceError):
            host + jnp.ones(3)
        assert (free + 1).device == rlx.jit(jnp.sin)(free).device == "toy" and free.device == "cpu"
    assert jnp.ones(3).device == "cpu" and (host + VALUES).device == "cpu"


def test_jit_brings_arguments_to_its_device(x: Any) -> None:
    host = jnp.asarray(VALUES)
    there = rlx.jit(lambda a, b: (a + b, a), device="toy")
    home = rlx.jit(lambda a, b: (a + b, a), device="cpu")
    for first, second in ((host, host), (host, x), (x, host), (x, x), (VALUES, x), (host, VALUES)) * 2:
        for result in there(first, second):
            assert result.device == "toy"
        for result in home(first, second):
            assert result.device == "cpu"
        for results in (there(first, second), home(first, second)):
            assert np.array_equal(results[0], VALUES * 2)
    assert rlx.jit(jnp.sin, device=rlx.devices("toy")[0])(host).device == "toy"


def test_graphs_run_there(toy: ModuleType) -> None:
    graph = rlx.Graph.trace(lambda w, v: w * v, jnp.ones(2), jnp.ones(2), params=["w"])
    compiled = rlx.Session("toy").compile(graph)
    compiled.set_param("w", [2.0, 3.0])
    assert on_toy(compiled.run({"v": [1.0, 10.0]})[0]).tolist() == [2.0, 30.0]
    limited = rlx.Session("toy").compile(graph, supported_ops=["multiply"])
    there = rlx.device_put(np.ones(2, "f4"), "toy")
    assert on_toy(limited.run({"w": [2.0, 3.0], "v": there})[0]).tolist() == [2.0, 3.0]


def test_one_jitted_function_on_both_devices(x: Any) -> None:
    """The cache tells arrays of one type on two devices apart, in lists and dicts, too."""
    f = rlx.jit(lambda t: rlx.tree.map(lambda v: v * 2, t))
    host = jnp.asarray(VALUES)
    for make in (lambda v: v, lambda v: [v, v], lambda v: {"b": v, "a": v}, lambda v: {"a": [v], "k": (v,)}):
        for _ in range(3):
            for array, name in ((host, "cpu"), (x, "toy"), (VALUES, "cpu")):
                for leaf in rlx.tree.leaves(f(make(array))):
                    assert leaf.device == name and np.array_equal(leaf, VALUES * 2)


MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "<": lambda a, b: a < b,
    "jnp.add": jnp.add,
    "jnp.arctan2": jnp.arctan2,
    "lax.add": lax.add,
    "power": jnp.power,
    "where": lambda a, b: jnp.where(a > 0, a, b),
    "concatenate": lambda a, b: jnp.concatenate([a, b]),
    "operator of NumPy's operand": lambda a, b: b + a,
    "dot_general": lambda a, b: lax.dot_general(a, b, (((1,), (1,)), ((), ()))),
    "jit": lambda a, b: rlx.jit(lambda v, w: v + w)(a, b),
    "jit of a tree": lambda a, b: rlx.jit(lambda t: t["a"] + t["b"])({"a": a, "b": b}),
    "vmap": lambda a, b: rlx.vmap(lambda v, w: v + w)(a, b),
    "grad": lambda a, b: rlx.grad(lambda v, w: (v * w).sum())(a, b),
    "what jit closes over": lambda a, b: rlx.jit(lambda v: v + b)(a) if b.device == "toy" else a + b,
}


FOLLOWING: dict[str, Callable[[Any, Any], Any]] = {
    "@": lambda a, b: a @ b.T,
    "append": jnp.append,
    "index": lambda a, b: a[b.astype(int) % 2],
    "update": lambda a, b: a.at[0].set(b[0]),
    "scan": lambda a, b: lax.scan(lambda c, v: (c + v, None), a[0], b)[0],
    "solve": lambda a, b: jnp.linalg.solve(a[:, :2] + jnp.eye(2), b[:, 0]),
    "argument of a mask": lambda a, b: jnp.where(b > 0, a, 0),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixing_devices_is_an_error(x: Any, name: str) -> None:
    """It names both devices, the user's line, and what to write. Arrays have a place where somebody has put them."""
    mix, host = MIXED[name], rlx.device_put(VALUES, "cpu")
    for pair in ((host, x), (x, host)):
        with pytest.raises(DeviceError, match=r"(?s)Device\((cpu|toy):0\).* and .*Device\((cpu|toy):0\)") as caught:
            mix(*pair)
        assert "test_toy_backend.py" in str(caught.value) and "rlx.device_put(x, y.device)" in str(caught.value)
        mix(pair[0], rlx.device_put(pair[1], pair[0].device))


@pytest.mark.parametrize("name", [*MIXED, *FOLLOWING])
def test_arrays_that_nobody_has_put_follow(x: Any, name: str) -> None:
    mix, host = {**MIXED, **FOLLOWING}[name], jnp.asarray(VALUES)
    wanted = mix(host, host)
    for pair in ((host, x), (x, host)):
        assert np.allclose(mix(*pair), wanted)
    assert name == "grad" or on_toy(mix(x, host)).shape == wanted.shape


def test_two_devices_that_are_not_the_host(toy: ModuleType, x: Any) -> None:
    class Other(toy.ToyBackend):
        name = "other"
        memory = toy.ToyMemory(rlx.Device("other"))

    try:
        register_backend("other", Other)
        y = rlx.device_put(x, "other")
        assert y.device == "other" and (y + 1).device == "other" and rlx.jit(jnp.sin)(y).device == "other"
        for mix in (lambda a, b: a + b, rlx.jit(lambda a, b: a + b)):
            with pytest.raises(DeviceError, match="toy.* and .*other"):
                mix(x, y)
        assert np.array_equal(x + rlx.device_put(y, x.device), VALUES * 2)
    finally:
        forget("other")


def test_registering(toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class, where a class is, or an entry point of an installed package; one of each name."""
    with pytest.raises(DeviceError, match="already"):
        register_backend("cpu", toy.ToyBackend)
    try:
        monkeypatch.setitem(sys.modules, "toy_backend", toy)
        register_backend("elsewhere", "toy_backend:ToyBackend")
        assert rlx.devices("elsewhere") == [rlx.Device("elsewhere")] and "elsewhere" in backends.device_names()
        point = backends.importlib.metadata.EntryPoint("installed", "toy_backend:ToyBackend", "rlx.backends")
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == "rlx.backends" else [])
        assert type(backend_named("installed")) is toy.ToyBackend
        with pytest.raises(DeviceError, match="rlx has backends for: cpu, .*, elsewhere, installed"):
            backend_named("nowhere")
    finally:
        forget("elsewhere", "installed")


# ------------------------------------------------------------- runs behind the caller's back
def test_a_call_returns_before_its_run_is_over(x: Any) -> None:
    go, seen = threading.Event(), []

    def wait(v: np.ndarray) -> np.ndarray:
        seen.append(go.wait(30))
        return v

    f = rlx.jit(lambda v: rlx.pure_callback(wait, rlx.ShapeDtypeStruct((2, 3), np.float32), v) * 2)
    y = f(x)
    z = jnp.sin(y) + 1  # eager operations do not wait, either
    assert not y.is_ready() and not z.is_ready()
    go.set()
    np.testing.assert_allclose(z.block_until_ready(), np.sin(VALUES * 2) + 1, rtol=1e-6)
    assert y.is_ready() and seen == [True]


def test_errors_of_runs_surface_where_somebody_waits(x: Any) -> None:
    mine = RuntimeError("mine")

    def fail(v: np.ndarray) -> np.ndarray:
        raise mine

    shape = rlx.ShapeDtypeStruct((2, 3), np.float32)
    f = rlx.jit(lambda v: rlx.pure_callback(fail, shape, v) * 2)
    for wait in (rlx.block_until_ready, lambda v: v.block_until_ready(), np.asarray, lambda v: float(v[0, 0]), str):
        y = f(x)
        with pytest.raises(RuntimeError) as caught:
            wait(jnp.cos(y))  # what reads it fails in the same way
        assert caught.value is mine and any("test_toy_backend.py" in note for note in mine.__notes__)
    assert on_toy(jnp.cos(x)).shape == (2, 3)  # the device goes on


def test_errors_of_rlx_name_the_users_line(x: Any) -> None:
    f = rlx.jit(lambda v: rlx.pure_callback(lambda a: a[0], rlx.ShapeDtypeStruct((2, 3), np.float32), v))
    y = f(x)
    with pytest.raises(CallbackError, match="returned float32") as caught:
        y.block_until_ready()
    assert isinstance(caught.value, JaxRuntimeError)
    assert "test_toy_backend.py" in str(caught.value) and "threading.py" not in str(caught.value)


def test_no_memory(toy: ModuleType, x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, nbytes: int) -> Any:
        raise AllocationError(nbytes)

    f = rlx.jit(lambda v: v * 2)
    f(x).block_until_ready()
    with monkeypatch.context() as patch:
        patch.setattr(toy.ToyMemory, "allocate", full)
        for use in (lambda: f(x), lambda: rlx.device_put(VALUES, "toy"), lambda: x + 1):
            with pytest.raises(OutOfMemoryError):
                use()
    with monkeypatch.context() as patch:
        patch.setitem(toy.ToyExecutable.compute.__globals__, "run_plan", lambda *args: full(None, 10**15))
        y = f(x)
        with pytest.raises(OutOfMemoryError, match=r"(?s)1000000000000000.*test_toy_backend.py"):
            y.block_until_ready()


def test_programs_without_results_have_run(x: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rlx.jit(lambda v: rlx.debug.print("sum {}", v.sum()))(x)
    assert capsys.readouterr().out == "sum 15.0\n"
    y = rlx.jit(lambda v: (rlx.debug.print("again {}", v[0, 1]), v)[1])(x)
    rlx.effects_barrier()
    assert capsys.readouterr().out == "again 1.0\n" and y.device == "toy"


def test_callbacks_may_compute_there(x: Any) -> None:
    """On the thread of the device itself, whose own results they wait for."""

    def inner(v: np.ndarray) -> np.ndarray:
        return np.asarray(rlx.jit(lambda w: w + 1)(rlx.device_put(v, "toy")))

    y = rlx.pure_callback(inner, rlx.ShapeDtypeStruct((2, 3), np.float32), x)
    assert on_toy(y).tolist() == (VALUES + 1).tolist()


def test_several_threads(x: Any) -> None:
    f = rlx.jit(lambda v, n: jnp.sin(v) * n)
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        total = x * 0
        for _ in range(20):
            total = total + f(x, float(number))
        found[number] = np.asarray(total)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(4):
        np.testing.assert_allclose(found[number], 20 * number * np.sin(VALUES), rtol=1e-5)


def test_the_host_memory_is_a_memory_like_others() -> None:
    storage = host_memory.put(VALUES)
    assert np.array_equal(host_memory.get(storage, (2, 3), np.dtype("f4")), VALUES) and storage.is_ready()
    assert host_memory.device == "cpu" and host_memory.dlpack_device() == (1, 0) and host_memory.pool_bytes() > 0
    assert backend_named("reference").memory is backend_named("cpu").memory is host_memory


def test_a_choice_by_platform_is_that_of_the_program(x: Any) -> None:
    """Of jit(device=), of where arguments lie, of the program around, and outside of programs."""

    def choice(v: Any) -> Any:
        return rlx.lax.platform_dependent(v, toy=lambda v: v + 1, cpu=lambda v: v - 1)

    host = np.zeros(3)
    away = rlx.device_put(host, "toy")
    inner = rlx.jit(choice)
    for function in (choice, rlx.jit(choice), rlx.jit(lambda v: inner(v)), rlx.jit(rlx.vmap(inner))):
        for _ in range(2):
            assert function(away).tolist() == [1, 1, 1] and function(host).tolist() == [-1, -1, -1]
    for device, expected in (("toy", 1), ("cpu", -1), ("reference", -1)):
        assert rlx.jit(lambda v: inner(v) * 1, device=device)(host)[0].item() == expected
    with rlx.default_device("toy"):
        assert choice(host)[0].item() == inner(host)[0].item() == 1
        assert choice(rlx.device_put(host, "cpu"))[0].item() == inner(rlx.device_put(host, "cpu"))[0].item() == -1
