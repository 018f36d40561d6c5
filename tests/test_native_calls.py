"""Calls of jitted functions that native code runs: the same results, errors and lifetimes as in Python."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.call import native_calls
from rlx.errors import DonatedArrayError

USES = native_calls._USES + 1  # the first call is not counted


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """The native code is there, which otherwise is compiled in the background."""
    jitted: Any = rlx.jit(lambda a: a - 1.0)
    for _ in range(2 * USES):
        jitted(jnp.ones(3))


def warm(function: Callable[..., Any], *args: Any) -> Any:
    """A jitted function after so many calls that native code runs the next one, where it can."""
    jitted: Any = rlx.jit(function)
    for _ in range(USES):
        jitted(*args)
    return jitted


def native(jitted: Any, *args: Any) -> Any:
    """The result of a call, which must not run in Python."""
    jitted._call(*args)  # NumPy's arrays become storages
    before = jitted._native.calls
    result = jitted(*args)
    assert jitted._native.calls == before + native_calls.layout.known
    return result


def in_python(jitted: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a call that native code must leave to Python."""
    before = jitted._native.calls
    result = jitted(*args, **kwargs)
    assert jitted._native.calls == before
    return result


def test_layouts_are_known_where_they_should_be() -> None:
    """CPython with the GIL on a 64-bit machine."""
    usual = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
    assert native_calls.layout.known == (usual and sys.maxsize > 2**32)


x = jnp.arange(6.0).reshape(2, 3)
y = jnp.array([[1.0, np.nan, np.inf], [-0.0, 2.0, 3.0]])
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "array": (lambda a: a + 1.0, (x,)),
    "list of pairs": (lambda p, a: [(w * a, b - a) for w, b in p], ([(x, y), (y, x), (x, x)], x)),
    "nested": (lambda p: p["z"][1]["k"] - p["a"][0], ({"z": [x, {"k": y, "b": ()}], "a": (x + 1.0, {})},)),
    "order of nested": (
        lambda p, q: (p["b"]["z"] - p["b"]["a"], q[0] + 1.0),
        ({"b": {"z": x, "a": y}, "a": x}, [x * 2.0]),
    ),
    "no argument": (lambda: jnp.ones(3) * 2.0, ()),
    "arrays": (lambda a, b: a * b, (x, y)),
    "order": (lambda a, b: a - b, (y, x)),
    "unused": (lambda a, b, c: a - c, (x, y, x)),
    "twice": (lambda a, b: a @ b.T, (x, x)),
    "0-d": (lambda a: a * 2.0, (jnp.array(3.0),)),
    "empty": (lambda a: a + 1.0, (jnp.zeros((0, 3)),)),
    "dict": (lambda d: d["b"] - d["a"], ({"b": x, "a": y},)),
    "empty dict": (lambda d, a: a + 1.0, ({}, x)),
    "dict and array": (lambda d, a: {"z": d["k"] + a, "a": d["k"] * 2.0}, ({"k": x}, y)),
    "dict result": (lambda a: {"z": a + 1.0, "a": a.sum(), "m": a.T * 2.0}, (x,)),
    "tuple result": (lambda a: (a + 1.0, a * 2.0), (x,)),
    "list result": (lambda a: [a + 1.0], (x,)),
    "nested result": (lambda a: {"z": [a + 1.0, None], "a": (a * 3.0,)}, (x,)),
    "weak result": (lambda a: 2.0 * jnp.sum(a), (jnp.array(1.0),)),
    "integers": (lambda a: a // 2, (jnp.arange(7),)),
    "booleans": (lambda a: ~a, (jnp.array([True, False]),)),
    "many": (lambda d: {k: v + 1.0 for k, v in d.items()}, ({f"k{n}": x + n for n in range(30)},)),
    "large result": (lambda a: jnp.tile(a, (400, 3)), (x,)),
    "long": (lambda a: jnp.sin(jnp.cumsum(a)).sum(), (jnp.ones(300_000),)),
    "loop": (lambda a: rlx.lax.fori_loop(0, 5, lambda _, v: v * 1.5, a), (x,)),
}


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", PROGRAMS)
def test_native_calls_equal_calls_in_python(name: str) -> None:
    """Values, dtypes, weakness and structure; results that are kept do not change."""
    function, args = PROGRAMS[name]
    jitted = warm(function, *args)
    expected = jitted._call(*args)
    found = [native(jitted, *args) for _ in range(2 * native_calls._SETS)]
    for result in found:
        assert rlx.tree.structure(result) == rlx.tree.structure(expected)
        assert type(result) is not dict or list(result) == list(expected)
        for a, b in zip(rlx.tree.leaves(result), rlx.tree.leaves(expected), strict=True):
            assert a.dtype == b.dtype and a.weak_type == b.weak_type
            np.testing.assert_array_equal(a, b)


def test_other_arguments_run_in_python() -> None:
    """Of other types, shapes, numbers and structures; by keyword; NumPy's; numbers; other keys, or in other order."""
    jitted = warm(lambda d, a=x: d["a"] + d["b"] * a, {"a": x, "b": y}, x)
    wants = np.asarray(x + y * x)
    cases: list[tuple[Any, ...]] = [
        ({"b": y, "a": x}, x),
        ({"a": x, "b": y, "c": x}, x),
        ({"a": x, "b": y},),
        ({"a": np.asarray(x), "b": y}, x),
        ({"a": x, "b": y}, np.asarray(x)),
        ({"a": x.astype("float64"), "b": y}, x),
        ({"a": x[None], "b": y}, x),
        (OrderedDict(a=x, b=y), x),
    ]
    for args in cases:
        np.testing.assert_array_equal(np.squeeze(in_python(jitted, *args)), wants)
    np.testing.assert_array_equal(in_python(jitted, {"a": x, "b": y}, a=x), wants)
    np.testing.assert_array_equal(native(jitted, {"a": x, "b": y}, x), wants)
    with pytest.raises(TypeError, match="dict|array"):
        jitted(None, object())


def test_other_structures_run_in_python() -> None:
    """Tuples for lists, other lengths, other depths, None, and classes derived from the built-in ones."""

    class Layers(list[Any]):
        """Not a node of trees: a leaf, which jit refuses."""

    jitted = warm(lambda p: sum(rlx.tree.leaves(p)), [(x, y), (y, {"k": x})])
    for other in [
        ((x, y), (y, {"k": x})),
        [[x, y], (y, {"k": x})],
        [(x, y), (y, {"k": x}, x)],
        [(x, y), (y, {"k": x}), x],
        [(x, y), (y, [x])],
        [(x, y), (y, {"j": x})],
        [(x, None), (y, {"k": x})],
        [(x, y), (y, {"k": None})],
    ]:
        np.testing.assert_array_equal(in_python(jitted, other), sum(rlx.tree.leaves(other)))
    with pytest.raises(TypeError):
        jitted(Layers([(x, y), (y, {"k": x})]))
    native(jitted, [(x, y), (y, {"k": x})])


def test_switches_and_tracing() -> None:
    """Another switch is another key; inside of another program the call is traced."""
    jitted = warm(lambda a: a / 0.0 - a, x)
    native(jitted, x)
    with rlx.debug_nans(True), pytest.raises(rlx.errors.NanError):
        jitted(jnp.zeros_like(x))
    with rlx.disable_jit():
        in_python(jitted, x)
    text = str(rlx.make_program(lambda a: jitted(a))(x))
    assert "divide" in text
    tangent = rlx.jvp(warm(lambda a: a * a, x), (x,), (x,))[1]
    np.testing.assert_array_equal(tangent, 2.0 * x * x)
    native(jitted, x)


def test_caches_are_cleared() -> None:
    """A cleared function is traced again."""
    traced = []
    jitted = warm(lambda a: traced.append(1) or a + 1.0, x)
    native(jitted, x)
    rlx.clear_caches()
    in_python(jitted, x)
    assert len(traced) == 2
    info = jitted.cache_info()
    assert (info.hits, info.misses) == (USES + 1, 2)


def test_deleted_arguments_are_refused() -> None:
    """As in Python: an array without memory raises."""
    jitted, a = warm(lambda a: a + 1.0, x), x + 0.0
    native(jitted, a)
    a.delete()
    with pytest.raises(DonatedArrayError, match="deleted"):
        jitted(a)
    native(jitted, x)


def test_references_are_counted() -> None:
    """Thousands of calls leave the counts of arguments, memory, types and keys as they were; results are freed."""
    mapping = {"a": x, "b": x + 1.0}
    jitted = warm(lambda d: {"s": d["a"] + d["b"], "t": d["b"] * 2.0}, mapping)
    jitted_one = warm(lambda a: a + 1.0, x)
    objects = [x, x._storage, x._type, mapping, None, True, False, jitted, np.ndarray, type(x)]
    objects += [*mapping, *mapping.values()]
    native(jitted, mapping)
    gc.collect()
    before = [sys.getrefcount(o) for o in objects]
    count = len(gc.get_objects())
    for _ in range(1000):
        native(jitted, mapping)
        native(jitted_one, x)
    after = [sys.getrefcount(o) for o in objects]
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 50
    gc.collect()
    assert abs(len(gc.get_objects()) - count) < 100
    result = native(jitted_one, x)
    alive = weakref.ref(result)
    del result
    assert alive() is None


def test_functions_are_freed() -> None:
    """Neither counting calls nor native code keeps a jitted function."""

    def alive_after(calls: int) -> bool:
        jitted: Any = rlx.jit(lambda a: a + float(calls))
        for _ in range(calls):
            jitted(x)
        alive = weakref.ref(jitted)
        del jitted
        return alive() is not None

    assert not alive_after(2) and not alive_after(2 * USES)


def test_memory_of_views_is_not_reused() -> None:
    """Results whose arrays are gone, but not the NumPy arrays over their memory."""
    jitted = warm(lambda a: (a + 1.0, a * 0.0), x)
    views = [np.asarray(native(jitted, x)[0]) for _ in range(3 * native_calls._SETS)]
    native(jitted, x)
    for view in views:
        np.testing.assert_array_equal(view, x + 1.0)


def test_many_signatures() -> None:
    """More known calls than native code keeps; the latest ones are native."""
    jitted: Any = rlx.jit(lambda a: a * 2.0)
    arrays = [jnp.ones(n + 1) for n in range(native_calls._MOST_KNOWN + 3)]
    for a in arrays:
        for _ in range(USES):
            jitted(a)
    for a in arrays[-native_calls._MOST_KNOWN :]:
        assert native(jitted, a).shape == a.shape
    np.testing.assert_array_equal(in_python(jitted, arrays[0]), [2.0])


@pytest.mark.parametrize("size", [5, 200_000])
def test_threads_share_a_function(size: int) -> None:
    """Calls from several threads, during which others may run: each gets its own results."""
    jitted = warm(lambda a, b: jnp.cos(a) + b, jnp.ones(size), jnp.ones(size))
    wrong: list[int] = []

    def work(number: int) -> None:
        a, b = jnp.full(size, float(number)), jnp.full(size, number * 10.0)
        expected = np.asarray(jitted._call(a, b))
        wrong.extend(number for _ in range(60) if not np.array_equal(jitted(a, b), expected))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    native(jitted, jnp.ones(size), jnp.ones(size))


def test_arguments_that_change_during_a_call() -> None:
    """Another thread clears the dict and deletes the arrays while a long plan runs without the GIL."""
    size = 300_000
    mapping = {"a": jnp.ones(size), "b": jnp.ones(size)}
    jitted = warm(lambda d: jnp.sin(d["a"]) + jnp.cumsum(d["b"]), mapping)
    expected = np.asarray(jitted(mapping))
    for _ in range(5):
        given = {"a": jnp.ones(size) * 1.0, "b": jnp.ones(size) * 1.0}
        thread = threading.Thread(target=given.clear)
        thread.start()
        try:
            np.testing.assert_array_equal(jitted(given), expected)
        except (KeyError, TypeError, ValueError):  # it was cleared before the call
            assert not given
        thread.join()


def test_callbacks_run_in_python() -> None:
    """A plan that calls Python functions may call the function itself."""
    seen: list[float] = []

    def step(a: Any) -> Any:
        rlx.debug.callback(lambda v: seen.append(float(v)), a.sum())
        return a + 1.0

    jitted = warm(step, x)
    in_python(jitted, x)
    assert len(seen) == USES + 1


def test_methods_and_subclasses() -> None:
    """A jitted method, a class called without its constructor, and an instance called through its class."""

    class Model:
        @rlx.jit
        def twice(a: Any) -> Any:
            return a * 2.0

    for _ in range(2 * USES):
        Model.twice(x)
    np.testing.assert_array_equal(Model.twice(x), 2.0 * x)
    jitted = warm(lambda a: a + 1.0, x)
    np.testing.assert_array_equal(type(jitted).__call__(jitted, x), x + 1.0)
    with pytest.raises(TypeError):
        type(jitted).__call__(object(), x)
    if native_calls.layout.known:
        with pytest.raises(SystemError):
            type(jitted).__new__(type(jitted))(x)


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_forked_processes() -> None:
    """A child goes on with native calls."""
    code = f"""
import os, rlx, rlx.numpy as jnp
f = rlx.jit(lambda a: jnp.sin(a).sum())
small, large = jnp.ones(3), jnp.ones(200_000)
for _ in range({2 * USES}): f(small), f(large)
child = os.fork()
for _ in range(50): same = float(f(large)) == float(f._call(large)) and float(f(small)) == float(f._call(small))
if not child: os._exit(not same)
assert os.waitpid(child, 0)[1] == 0 and same
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
