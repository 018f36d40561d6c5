"""NumPy's views of arrays keep their values when the array is donated or deleted, and when its memory is used again."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp

WAYS: dict[str, Callable[[Any], np.ndarray]] = {
    "np.asarray": np.asarray,
    "np.array without copy": lambda p: np.array(p, copy=False),
    "np.asanyarray": np.asanyarray,
    "device_get": rlx.device_get,
    "device_get of a tree": lambda p: rlx.device_get({"p": p})["p"],
    "tree.map": lambda p: rlx.tree.map(np.asarray, [p])[0],
    "__array__": lambda p: p.__array__(),
    "numpy()": lambda p: p.numpy(),
    "__array_interface__": lambda p: np.asarray(_Interface(p)),
    "DLPack": lambda p: np.from_dlpack(p),
    "memoryview": lambda p: np.asarray(memoryview(np.asarray(p))),
    "frombuffer": lambda p: np.frombuffer(np.asarray(p), p.dtype),
    "a view": lambda p: np.asarray(p).view(),
    "a view as bytes": lambda p: np.asarray(p).view(np.uint8).view(p.dtype),
    "ravel": lambda p: np.asarray(p).ravel(),
    "a slice of a reshaped view": lambda p: np.asarray(p).reshape(2, -1)[:, 1:],
    "an array that is a view": lambda p: np.asarray(p[1:]),
    "an array of another shape": lambda p: np.asarray(p.reshape(2, -1)),
    "a copy of the array object": lambda p: np.asarray(rlx.device_put(p, rlx.devices()[0])),
    "a callback's argument": lambda p: _given_to_a_callback(p),
}


class _Interface:
    """Hands on an array's interface and keeps the array, as the protocol asks."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


def _given_to_a_callback(p: Any) -> np.ndarray:
    seen: list[np.ndarray] = []
    rlx.jit(lambda v: rlx.debug.callback(lambda a: seen.append(np.asarray(a)), v))(p)
    return seen[0]


def _made(kind: str) -> Any:
    """An array in memory of its own, made by a kernel or eagerly, that nothing else refers to."""
    values = np.arange(3000, dtype=np.float32)
    if kind == "compiled":
        return rlx.jit(lambda x: x * 2.0)(values)
    if kind == "one of several small results":
        return rlx.jit(lambda x: (x + 1.0, x * 2.0))(values[:8])[1]
    return jnp.asarray(values) * 2.0


def _churn(like: np.ndarray) -> None:
    """Use memory of every kind again."""
    for _ in range(4):
        rlx.jit(lambda x: x - 77.0)(np.zeros(like.shape, like.dtype))
        rlx.jit(lambda x: (x - 77.0, x + 77.0))(np.zeros(8, np.float32))
        _ = jnp.zeros(like.shape) - 77.0


@pytest.mark.parametrize("end", ["donated", "deleted"])
@pytest.mark.parametrize("kind", ["compiled", "one of several small results", "eager"])
@pytest.mark.parametrize("way", WAYS)
def test_a_view_keeps_its_values(way: str, kind: str, end: str) -> None:
    p = _made(kind)
    view = WAYS[way](p)
    before = view.copy()
    if end == "donated":
        step = rlx.jit(lambda x: x * 0.5, donate_argnums=0)
        for _ in range(4):
            p = step(p)
    else:
        p.delete()
        assert p.is_deleted()
    gc.collect()
    _churn(before)
    np.testing.assert_array_equal(view, before)
    del p
    gc.collect()
    _churn(before)
    np.testing.assert_array_equal(view, before)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "bool", "complex128"])
def test_views_of_other_dtypes(dtype: str) -> None:
    p = jnp.asarray(np.ones(3000)).astype(dtype)
    view, before = np.asarray(p), np.array(p)
    p.delete()
    gc.collect()
    _churn(np.zeros(3000, before.dtype.name if before.dtype.kind in "fc" else "f4"))
    np.testing.assert_array_equal(view, before)


def test_a_history_of_donated_parameters() -> None:
    """Each step's parameters are looked at, then given away."""
    step = rlx.jit(lambda p: p * 0.5, donate_argnums=0)
    p = jnp.ones(1000) * 1
    history = []
    for _ in range(6):
        history.append(np.asarray(p))
        p = step(p)
    assert [float(h[0]) for h in history] == [0.5**n for n in range(6)]


def test_memory_comes_back_when_the_views_are_gone() -> None:
    """A view keeps the memory; nothing does that was not asked for."""
    p = _made("compiled")
    address = p.unsafe_buffer_pointer()
    view = np.asarray(p)
    p.delete()
    del p, view
    gc.collect()
    taken = [rlx.jit(lambda x: x * 2.0)(np.zeros(3000, np.float32)) for _ in range(12)]
    assert address in {t.unsafe_buffer_pointer() for t in taken}


@pytest.mark.thorough
def test_a_big_buffer_is_not_unmapped_under_a_view() -> None:
    """In a process of its own: what goes wrong here ends it."""
    code = (
        "import numpy as np, rlx, rlx.numpy as jnp\n"
        "from rlx.storage import clear_pool\n"
        "p = jnp.ones(50_000_000) * 1\n"
        "before, part = np.asarray(p), np.asarray(p)[7:9]\n"
        "p = rlx.jit(lambda p: p * 0.5, donate_argnums=0)(p)\n"
        "clear_pool()\n"
        "q = np.asarray(p)\n"
        "p.delete()\n"
        "clear_pool()\n"
        "print(before[:2], part, q[-2:])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["[1.", "1.]", "[1.", "1.]", "[0.5", "0.5]"]), done.stderr


@pytest.mark.parametrize("end", ["donated", "deleted"])
def test_constants_of_a_program_survive_their_results(end: str) -> None:
    """What a jitted function closes over, or returns as a number, is handed out again at each call."""
    kept = jnp.arange(5.0)
    f = rlx.jit(lambda x: (kept, 3.0, x))
    for _ in range(3):
        constant, number, _ = f(1.0)
        if end == "donated":
            rlx.jit(lambda a, b: a * b, donate_argnums=(0, 1))(constant, number)
        else:
            constant.delete()
            number.delete()
    assert kept.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [a.tolist() for a in f(1.0)] == [[0.0, 1.0, 2.0, 3.0, 4.0], 3.0, 1.0]
