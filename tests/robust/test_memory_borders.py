"""What rlx hands out does not change when somebody writes to the NumPy arrays that it was made from."""

from __future__ import annotations

import array
import importlib
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.array
import rlx.numpy as jnp
from rlx import errors, lax, tree
from rlx.ops import shape


# ---------------------------------------------------------------------- every function
def buffers() -> list[np.ndarray]:
    return [
        np.arange(1.0, 5.0),
        np.arange(9.0).reshape(3, 3) + 2 * np.eye(3),
        np.ones((1, 1), np.float32),
        np.array(1.5),
        np.array([1, 0, 2]),
        np.array([[True, False], [False, True]]),
        np.array([[1 + 2j, 2], [2, 3]]),
    ]


CALLS: dict[str, Callable[..., Any]] = {
    "f(a)": lambda f, a, b: f(a),
    "f(a, 0)": lambda f, a, b: f(a, 0),
    "f(a, 1)": lambda f, a, b: f(a, 1),
    "f(a, b)": lambda f, a, b: f(a, b),
    "f(a, a.shape)": lambda f, a, b: f(a, a.shape),
    "f(a, axes)": lambda f, a, b: f(a, tuple(range(a.ndim))),
    "f(a, ())": lambda f, a, b: f(a, ()),
    "f(a, (-1,))": lambda f, a, b: f(a, (-1,)),
    "f([a])": lambda f, a, b: f([a]),
    "f([a, b])": lambda f, a, b: f([a, b]),
    "f(a, b, b)": lambda f, a, b: f(a, b, b),
    "f(a, 0, 1)": lambda f, a, b: f(a, 0, 1),
    "f(a, 0, 0)": lambda f, a, b: f(a, 0, 0),
    "f(0, a)": lambda f, a, b: f(0, a),
    "f('...->...', a)": lambda f, a, b: f("...->...", a),
    "f(True, a, b)": lambda f, a, b: f(True, a, b),
    "f(a, dtype)": lambda f, a, b: f(a, a.dtype),
    "f(b, a, b > 0)": lambda f, a, b: f(b, a, b > 0),
    "f(last, a)": lambda f, a, b: f(lambda *x: x[-1], a),
}
MODULES = (
    "rlx.numpy rlx.numpy.linalg rlx.numpy.fft rlx.lax rlx.lax.linalg rlx.nn rlx.image rlx.flatten_util rlx.optim"
    " rlx.scipy.special rlx.scipy.linalg rlx.scipy.signal rlx.scipy.stats rlx.scipy.fft"
    " rlx.scipy.spatial.transform rlx.scipy.cluster.vq"
).split()
# they share memory because they say so, or write files
OTHERS = {"from_dlpack", "save", "savez", "fromfile", "load"}


def functions(module: str) -> Iterator[tuple[str, Any]]:
    found = importlib.import_module(module)
    for name in sorted(getattr(found, "__all__", dir(found))):
        function = getattr(found, name)
        if callable(function) and name not in OTHERS and getattr(function, "__module__", "").startswith("rlx"):
            yield name, function


def arrays_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """The arrays of a tree, of objects of rlx and of what functions close over."""
    if isinstance(value, rlx.Array):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from arrays_in(part, depth)
    elif isinstance(value, dict):
        yield from arrays_in(list(value.values()), depth)
    elif depth < 3 and inspect.isfunction(value):
        yield from arrays_in([c.cell_contents for c in value.__closure__ or ()], depth + 1)
    elif depth < 3 and type(value).__module__.startswith("rlx") and hasattr(value, "__dict__"):
        yield from arrays_in(vars(value), depth + 1)


def is_number_array(x: Any) -> bool:
    return isinstance(x, rlx.Array) and not jnp.issubdtype(x.dtype, rlx.dtypes.prng_key)


def overwrite(x: np.ndarray) -> None:
    """Other bytes everywhere."""
    raw = x.reshape(-1).view(np.uint8) if x.flags.c_contiguous else None
    if raw is None or x.dtype == bool:
        x[...] = ~x if x.dtype == bool else x + 1
    else:
        raw ^= 1


@pytest.mark.parametrize("module", MODULES)
def test_no_function_returns_its_arguments_memory(module: str) -> None:
    """Every public function, called in every way that fits."""
    changed, ran = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for (name, function), (how, call) in itertools.product(functions(module), CALLS.items()):
            for a in buffers():
                b = a.copy()
                try:
                    found = [x for x in arrays_in(call(function, a, b)) if is_number_array(x)]
                    before = [np.array(x) for x in found]
                except Exception:
                    continue
                ran += 1
                overwrite(a)
                overwrite(b)
                if any(np.array(x).tobytes() != y.tobytes() for x, y in zip(found, before, strict=True)):
                    changed.append(f"{name}: {how} of {a.dtype}{a.shape}")
    assert not changed and ran > 3, changed


# ---------------------------------------------------------------------- every way in
class Wrapped:
    """Not an array, but made of one."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values


class Named(np.ndarray):
    """As libraries have that give arrays names and units."""


class Standing:
    """Stands for an array."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __jax_array__(self) -> Any:
        return self.values


def _read_only_view(x: np.ndarray) -> np.ndarray:
    view = x.view()
    view.flags.writeable = False
    return view


WAYS_IN: dict[str, Callable[[np.ndarray], Any]] = {
    "the array": lambda x: x,
    "a view": lambda x: x[:],
    "a read-only view": _read_only_view,
    "a broadcast view": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "every other element": lambda x: x[::2],
    "reversed": lambda x: x[::-1],
    "a memoryview": memoryview,
    "a read-only memoryview": lambda x: memoryview(x).toreadonly(),
    "an array of a memoryview": lambda x: np.asarray(memoryview(x).toreadonly()),
    "an array of a class of its own": lambda x: x.view(Named),
    "an object with __array__": Wrapped,
    "an object with __jax_array__": Standing,
}


@rlx.custom_vjp
def _squared(x: Any) -> Any:
    return x * x


_squared.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))


@rlx.custom_vjp
def _passed(x: Any) -> Any:
    return x


_passed.defvjp(lambda x: (x, None), lambda _, ct: (ct,))


@rlx.custom_jvp
def _kept(x: Any) -> Any:
    return x


_kept.defjvp(lambda primals, tangents: (primals[0], tangents[0]))


def _graph(x: Any) -> Any:
    values = jnp.asarray(x, copy=True)
    graph = rlx.Graph.trace(lambda w, v: (w, v), values, values, params=["w"])
    compiled = rlx.Session("cpu").compile(graph)
    compiled.set_param("w", x)
    return lambda: compiled.run({"v": np.zeros(values.shape, values.dtype)})[0]


def _scanned(x: Any) -> Any:
    return lax.scan(lambda c, v: (c, v), x, jnp.arange(3.0))


def _with_option(function: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    return lambda x: function(x, **options)


# each gives arrays, or a function that gives them later
USES: dict[str, Callable[[Any], Any]] = {
    "asarray": jnp.asarray,
    "asarray of its dtype": lambda x: jnp.asarray(x, np.float64),
    "array": jnp.array,
    "array, copy=None": _with_option(jnp.array, copy=None),
    "copy": jnp.copy,
    "device_put": rlx.device_put,
    "device_put on a device": lambda x: rlx.device_put(x, rlx.devices()[0]),
    "device_put with a sharding": lambda x: rlx.device_put(x, rlx.sharding.SingleDeviceSharding(rlx.devices()[0])),
    "device_put, may_alias=False": _with_option(rlx.device_put, may_alias=False),
    "jit": rlx.jit(lambda x: x),
    "jit, a second time": lambda x: (rlx.jit(lambda v: (v, v + 1))(x), rlx.jit(lambda v: (v, v + 1))(x)),
    "jit of a tree": lambda x: rlx.jit(lambda d: {"b": d["a"], "c": (d["a"], 1.0)})({"a": x}),
    "jit with a keyword": lambda x: rlx.jit(lambda *, x: x)(x=x),
    "jit with donation": rlx.jit(lambda x: (x, x + 1), donate_argnums=0),
    "jit with a static argument": lambda x: rlx.jit(lambda n, x: (x,) * n, static_argnums=0)(2, x),
    "jit inside jit": lambda x: rlx.jit(lambda v: rlx.jit(lambda w: w)(v))(x),
    "jit, closing over it": lambda x: _later(rlx.jit(lambda: (jnp.asarray(x), jnp.asarray(x) + 1))),
    "jit of a computation on it": lambda x: _later(rlx.jit(lambda: jnp.ones(()) * jnp.asarray(x))),
    "jit under a sharding": lambda x: rlx.jit(
        lambda v: v, in_shardings=rlx.sharding.SingleDeviceSharding(rlx.devices()[0])
    )(x),
    "compiled ahead of time": lambda x: rlx.jit(lambda v: v).lower(x).compile()(x),
    "vmap": rlx.vmap(lambda x: x),
    "vmap, not mapped": lambda x: rlx.vmap(lambda i, v: v, in_axes=(0, None), out_axes=None)(jnp.arange(2.0), x),
    "vmap, transposed": rlx.vmap(lambda x: x, out_axes=-1),
    "grad, auxiliary": lambda x: rlx.grad(lambda v: (v.sum(), v), has_aux=True)(jnp.asarray(x)),
    "value_and_grad, auxiliary": lambda x: rlx.value_and_grad(lambda w, v: (w * jnp.sum(v), v), has_aux=True)(2.0, x),
    "grad, the gradient is an argument": lambda x: rlx.grad(lambda w, v: jnp.multiply(w, v).sum())(jnp.asarray(x), x),
    "vjp": lambda x: rlx.vjp(lambda v: v, x)[0],
    "vjp, residuals": lambda x: (lambda y, pull: lambda: pull(jnp.ones(y.shape, y.dtype)))(*rlx.vjp(_product, x)),
    "vjp, closing over it": lambda x: (lambda y, pull: lambda: pull(y))(*rlx.vjp(lambda w: w * jnp.asarray(x), 2.0)),
    "vjp, a custom rule": lambda x: (lambda y, pull: lambda: pull(jnp.ones(y.shape, y.dtype)))(*rlx.vjp(_squared, x)),
    "vjp of jit": lambda x: (lambda y, pull: lambda: pull(jnp.ones(y.shape, y.dtype)))(*rlx.vjp(rlx.jit(_product), x)),
    "linearize": lambda x: (lambda y, push: lambda: push(jnp.ones(y.shape, y.dtype)))(*rlx.linearize(_product, x)),
    "jvp": lambda x: rlx.jvp(lambda v: v, (x,), (x,)),
    "custom_jvp": _kept,
    "custom_vjp": _passed,
    "checkpoint": rlx.checkpoint(lambda x: x),
    "linear_transpose": lambda x: rlx.linear_transpose(lambda v: v, x)(x),
    "scan": _scanned,
    "scan under jit": rlx.jit(_scanned),
    "scan over it": lambda x: lax.scan(lambda c, v: (c, v), 0.0, x),
    "scan, closing over it": lambda x: lax.scan(lambda c, v: (c, jnp.asarray(x)), 0.0, jnp.arange(2.0)),
    "while_loop": lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1]), (0, x)),
    "fori_loop": lambda x: lax.fori_loop(0, 2, lambda i, c: c, x),
    "fori_loop that does not run": lambda x: lax.fori_loop(0, 0, lambda i, c: c, x),
    "cond": lambda x: lax.cond(True, lambda v: v, lambda v: v + 1, x),
    "switch": lambda x: lax.switch(1, [lambda v: v + 1, lambda v: v], x),
    "map": lambda x: lax.map(lambda v: v, x),
    "associative_scan": lambda x: lax.associative_scan(lambda a, b: b, x),
    "stop_gradient": lambda x: lax.stop_gradient(jnp.asarray(x)),
    "optimization_barrier": lax.optimization_barrier,
    "a transposition": jnp.transpose,
    "a primitive": lambda x: shape.transpose(_plain(x), permutation=tuple(range(np.ndim(_plain(x))))[::-1]),
    "a callback's result": lambda x: rlx.pure_callback(lambda: np.asarray(_plain(x)), jnp.asarray(x)),
    "a callback's result under jit": lambda x: rlx.jit(
        lambda: rlx.pure_callback(lambda: np.asarray(_plain(x)), jnp.asarray(x))
    )(),
    "make_array_from_callback": lambda x: rlx.make_array_from_callback(
        np.shape(_plain(x)), rlx.sharding.SingleDeviceSharding(rlx.devices()[0]), lambda i: np.asarray(_plain(x))[i]
    ),
    "an interpolator's values": lambda x: (lambda f: lambda: f(jnp.asarray([1.5])))(
        rlx.scipy.interpolate.RegularGridInterpolator((np.arange(float(np.shape(_plain(x))[0])),), x)
    ),
    "an optimizer's state": lambda x: rlx.optim.adam(1e-3).init(x),
    "ravel_pytree": lambda x: rlx.flatten_util.ravel_pytree(x)[0],
    "tree.map": lambda x: tree.map(jnp.asarray, [x]),
    "partial": lambda x: _later(rlx.tree_util.Partial(rlx.jit(lambda v: v), jnp.asarray(x))),
    "a graph's parameter": _graph,
}


def _product(v: Any) -> Any:
    return v * v


def _later(function: Callable[[], Any]) -> Callable[[], Any]:
    """It has been called once: a jitted function has been traced."""
    function()
    return function


def _plain(x: Any) -> Any:
    return x.__jax_array__() if isinstance(x, Standing) else x


def _values(result: Any) -> list[np.ndarray]:
    found = result() if inspect.isfunction(result) or isinstance(result, rlx.tree_util.Partial) else result
    found = found() if callable(found) and not isinstance(found, rlx.Array) else found
    leaves = [x for x in tree.leaves(found) if hasattr(x, "shape")]
    assert leaves
    return [np.array(x) for x in leaves]


@pytest.mark.parametrize("use", USES)
def test_results_keep_their_values(use: str) -> None:
    """Whichever kind of NumPy memory goes in, and whatever is done with it."""
    for way, enter in WAYS_IN.items():
        memory = np.arange(1.0, 7.0)
        try:
            result = USES[use](enter(memory))
        except (errors.InputTypeError, errors.VmapAxisError):
            assert way not in ("the array", "a view")
            continue
        before = _values(result)
        memory[:] = -77.0
        after = _values(result)
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=way)


@pytest.mark.parametrize(
    "make",
    [lambda: bytearray(16), lambda: array.array("d", [0.0, 0.0]), lambda: memoryview(bytearray(16)).toreadonly()],
)
def test_other_buffers(make: Callable[[], Any]) -> None:
    """Python's own buffers that can be written to."""
    buffer = make()
    target = np.frombuffer(buffer.obj if isinstance(buffer, memoryview) else buffer, np.uint8)
    for found in (jnp.frombuffer(buffer, np.uint8), jnp.asarray(np.frombuffer(buffer, np.uint8))):
        before = found.tolist()
        target ^= 5
        assert found.tolist() == before


def test_a_buffer_that_is_filled_while_a_function_is_traced() -> None:
    """Each use gives the program the values of its moment."""
    buffer = np.zeros(3)

    def f(x: Any) -> Any:
        for n in range(3):
            buffer[:] = 10.0**n
            x = x + buffer
        return x

    for of in (f, rlx.jit(f), rlx.vmap(f, in_axes=None, axis_size=2, out_axes=None)):
        np.testing.assert_array_equal(of(jnp.zeros(3, np.float64)), np.full(3, 111.0))
    np.testing.assert_array_equal(rlx.jvp(f, (np.zeros(3),), (np.ones(3),))[0], np.full(3, 111.0))


def test_a_closed_over_array_is_copied_once() -> None:
    """However often a function uses it, in inner functions too."""
    weights = np.eye(3)

    def f(x: Any) -> Any:
        for _ in range(5):
            x = weights @ x + jnp.sin(weights)
        inner = rlx.jit(lambda y: weights @ y)
        return lax.scan(lambda c, _: (weights @ c, None), inner(x), None, length=2)[0]

    program = rlx.make_program(f)(np.ones((3, 3)))
    held = {id(value) for _, value in program.constants}
    assert len(held) == 1


# ---------------------------------------------------------------------- what is not copied
def _frozen(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


def shares(found: Any, memory: np.ndarray) -> bool:
    return np.shares_memory(np.asarray(found), memory)


def test_files_in_memory_are_shared(tmp_path: Path) -> None:
    """Those that are mapped for reading; others are copied."""
    np.save(tmp_path / "x.npy", np.arange(6.0))
    fixed = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert shares(jnp.asarray(fixed), fixed) and jnp.asarray(fixed).sum() == 15
    for mode in ("r+", "c"):
        found = np.load(tmp_path / "x.npy", mmap_mode=mode)
        assert not shares(jnp.asarray(found), found)


def test_read_only_memory_is_shared() -> None:
    """What nobody can write to need not be copied."""
    fixed = _frozen(np.arange(6.0))
    raw = bytes(range(16))
    for f in (jnp.asarray, rlx.device_put, rlx.jit(lambda x: x), lambda x: rlx.vjp(lambda v: v, x)[0], jnp.ravel):
        assert shares(f(fixed), fixed) and shares(f(fixed[1:].reshape(5, 1)), fixed)
    assert shares(jnp.frombuffer(raw, np.uint8), np.frombuffer(raw, np.uint8))
    x = jnp.arange(5.0)
    assert shares(jnp.asarray(np.asarray(x)), np.asarray(x))


def test_memory_is_shared_on_request() -> None:
    """copy=False, may_alias=True and DLPack."""
    x = np.arange(6.0)
    asked = (
        lambda v: jnp.asarray(v, copy=False),
        lambda v: jnp.array(v, copy=False),
        lambda v: rlx.device_put(v, may_alias=True),
        lambda v: rlx.device_put(v, rlx.devices()[0], may_alias=True),
        jnp.from_dlpack,
    )
    for f in asked:
        assert shares(f(x), x)


READS: dict[str, Callable[[Any], Any]] = {
    "sin": jnp.sin,
    "add": lambda x: jnp.add(x, x),
    "an operator": lambda x: jnp.ones(x.shape) * x,
    "a comparison": lambda x: jnp.less(x, x),
    "sum": jnp.sum,
    "max": jnp.max,
    "mean": lambda x: jnp.mean(x, 0),
    "matmul": jnp.matmul,
    "where": lambda x: jnp.where(x, x, 0.0),
    "jit": rlx.jit(lambda x: x * 2.0),
    "jit that passes a number through": rlx.jit(lambda x: (x.sum(), 2.0)),
    "lax": lax.sin,
    "a shape": rlx.eval_shape(lambda x: x, np.ones(2)) and (lambda x: rlx.eval_shape(lambda v: v, x)),
    "zeros_like": jnp.zeros_like,
}


@pytest.mark.parametrize("read", READS)
def test_reading_copies_nothing(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that compute new values read NumPy arrays where they are."""
    x = np.arange(4.0).reshape(2, 2)
    READS[read](x) if read != "matmul" else jnp.matmul(x, x)
    copied: list[Any] = []
    for module in ("rlx.array", "rlx.trace.flat", "rlx.trace.builder", "rlx.trace.primitive", "rlx.call.compiled"):
        monkeypatch.setattr(importlib.import_module(module), "unshared", lambda a: (copied.append(a), a.copy())[1])
    READS[read](x) if read != "matmul" else jnp.matmul(x, x)
    assert not any(np.shares_memory(a, x) for a in copied)


@pytest.mark.parametrize(
    ("memory", "changes"),
    [
        (lambda: np.ones(2), True),
        (lambda: _frozen(np.ones(2)), False),
        (lambda: _read_only_view(np.ones(2)), True),
        (lambda: _frozen(np.ones(2))[1:], False),
        (lambda: np.frombuffer(b"ab", np.uint8), False),
        (lambda: np.frombuffer(bytearray(2), np.uint8), True),
        (lambda: np.frombuffer(memoryview(bytearray(2)).toreadonly(), np.uint8), True),
        (lambda: np.frombuffer(memoryview(b"ab"), np.uint8), False),
        (lambda: np.asarray(jnp.ones(2)), False),
    ],
)
def test_who_can_write(memory: Callable[[], np.ndarray], changes: bool) -> None:
    assert rlx.array.may_change(memory()) is changes
