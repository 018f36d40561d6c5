"""Metal's kernels: their text, and what it computes when threads of the processor run it. No Metal has compiled it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from metal_on_threads import COMPILER, Simulated

import rlx
import rlx.numpy as jnp
from rlx.ir.kernels import Loops

mx: Any = pytest.importorskip("mlx.core", reason="mlx is not installed: pip install 'rlx[mlx]'")

from rlx.backends.mlx import metal, program  # noqa: E402
from rlx.backends.mlx.library import is_on_gpu  # noqa: E402
from rlx.passes.pipeline import executables  # noqa: E402

on_the_cpu = pytest.mark.skipif(is_on_gpu(), reason="MLX computes on a GPU, which has no float64")
X = np.random.default_rng(0).normal(size=(5, 300)).astype(np.float32)
TABLE = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)
ROWS = np.array([0, 49, -1, 7, 7, 3], np.int32)


def nests(function: Callable[..., Any], *args: np.ndarray) -> list[Loops]:
    """The nests of a program on the device."""
    with rlx.default_device("mlx"):
        plan = rlx.inspect(function)(*args).plan
    return [k for k in plan.kernels if isinstance(k, Loops)]


def softmax(x: Any) -> Any:
    """In operations of its own: nn.softmax is a function of MLX."""
    shifted = jnp.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def layer_norm(x: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


GATHER = """\
const uint32_t point = 256 * (uint32_t)threadgroup_position_in_grid.x + (int)thread_position_in_threadgroup.x;
if (point < 48u) {
    const int32_t j = point % 8u;
    const int32_t i = point / 8u;
    const int32_t v0 = a[i];
    const int64_t v12 = (int64_t)((uint64_t)rlx_minimum_int64(rlx_maximum_int64((int64_t)((v0 < 0) ? (int32_t)((uint32_t)v0 + (uint32_t)50) : v0), INT64_C(0)), INT64_C(49)) * (uint64_t)INT64_C(8));
    c[8 * i + j] = b[j + v12];
}"""  # noqa: E501
MEAN = """\
threadgroup float group_r1[256];
const int32_t i = (uint32_t)threadgroup_position_in_grid.x;
float r1 = 0.0f;
for (int32_t j = (int)thread_position_in_threadgroup.x; j < 300; j += 256) {
    r1 = r1 + a[300 * i + j];
}
group_r1[(int)thread_position_in_threadgroup.x] = r1;
threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
for (int32_t width = 128; width >= 1; width /= 2) {
    if (((int)thread_position_in_threadgroup.x % 256) < width) {
        group_r1[(int)thread_position_in_threadgroup.x] = group_r1[(int)thread_position_in_threadgroup.x] + group_r1[(int)thread_position_in_threadgroup.x + width];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
}
r1 = group_r1[256 * ((int)thread_position_in_threadgroup.x / 256)];
threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
if ((int)thread_position_in_threadgroup.x == 0) {
    b[i] = r1;
}"""  # noqa: E501


@pytest.mark.parametrize(
    ("function", "args", "text", "threads", "group"),
    [
        (lambda t, r: t[r], (TABLE, ROWS), GATHER, 256, 256),
        (lambda x: x.sum(axis=1), (X,), MEAN, 5 * 256, 256),
    ],
)
def test_texts(function: Any, args: Any, text: str, threads: int, group: int) -> None:
    (kernel,) = nests(function, *args)
    made = metal.metal_kernel(kernel)
    assert made.source == text
    assert (made.threads, made.group, len(made.outputs)) == (threads, group, 1)


def test_functions_are_metals_own() -> None:
    (kernel,) = nests(softmax, X)
    header = metal.metal_kernel(kernel).header
    assert "#define expf metal::exp" in header and "rlx_maximum_float32" in header and "double" not in header


# words before parentheses, and functions of Metal that have no suffix
KNOWN = {"if", "for", "while", "return", "isfinite", "mem_flags", "threadgroup_barrier", "as_type"}


@pytest.mark.parametrize("name", ["softmax", "layer norm", "running sum", "narrow", "integers", "gather", "functions"])
def test_texts_have_words_of_metal_only(name: str) -> None:
    """Brackets are balanced; every function is Metal's, or defined before; no word is another language's."""
    function, args = PROGRAMS[name]
    kernels = [k for k in nests(function, *args) if metal.why_not_metal(k) is None]
    assert kernels
    for kernel in kernels:
        made = metal.metal_kernel(kernel)
        text = f"{made.header}\n{made.source}"
        for first, last in ("()", "[]", "{}"):
            assert text.count(first) == text.count(last) > 0
        called = set(re.findall(r"\b([a-zA-Z_]\w*)\(", text))
        defined = set(re.findall(r"#define (\w+)", text)) | set(re.findall(r"\b(\w+)\([^;{}()]*\) \{", made.header))
        assert called <= defined | KNOWN, called - defined
        assert set(re.findall(r"metal::(\w+)", text)) <= set(metal.METAL_WORDS.overloaded)
        assert not re.search(r"\b(?:__\w+|get_\w+|threadIdx|blockIdx|barrier|double)\b", text)


@pytest.mark.parametrize(
    ("function", "args", "cause"),
    [
        (lambda x: jnp.tanh(x) + 1, (X,), "mx.compile"),
        (lambda x: rlx.lax.erf(x).sum(axis=1), (X,), "Metal lacks"),
        pytest.param(lambda x: x.sum(axis=1), (X.astype(np.float64),), "Metal lacks", marks=on_the_cpu),
        (lambda x, r: jnp.zeros(50).at[r].add(x[0, :6] + x[r][:, 0].sum()), (X[:, :6], ROWS % 5), "a part of an array"),
    ],
)
def test_kernels_that_stay_operations_of_mlx(function: Any, args: Any, cause: str) -> None:
    assert any(cause in (metal.why_not_metal(k) or "") for k in nests(function, *args))


PROGRAMS: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "softmax": (softmax, (X,)),
    "short rows": (softmax, (X[:, :9],)),
    "layer norm": (layer_norm, (X,)),
    "sum": (lambda x: x.sum(axis=1), (X,)),
    "running sum": (partial(jnp.cumsum, axis=1), (X,)),
    "narrow": (layer_norm, (X.astype(ml_dtypes.bfloat16),)),
    "half": (lambda x: x.max(axis=1), (X.astype(np.float16),)),
    "integers": (lambda n: n.sum(axis=1) // 3, ((X * 100).astype(np.int32),)),
    "any": (lambda x: (x > 2.9).any(axis=1), (X,)),
    "argmax": (lambda x: x.argmax(axis=1), (X,)),
    "gather": (lambda t, r: t[r] * 2.0, (TABLE, ROWS)),
    "gather and sum": (lambda t, r: jnp.exp(t[r]).sum(axis=-1), (TABLE, ROWS)),
    "functions": (lambda x: (jnp.sin(x) * jnp.cos(x) + jnp.sqrt(jnp.abs(x)) + jnp.tanh(x) ** 3).sum(axis=1), (X,)),
}


@pytest.mark.skipif(COMPILER is None, reason="there is no g++")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_threads(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the program to MLX's arrays, with threads in place of a GPU: at least one kernel is Metal's."""
    function, args = PROGRAMS[name]
    simulated = Simulated(tmp_path)
    monkeypatch.setattr(program, "is_wanted", lambda: True)
    monkeypatch.setattr(mx.fast, "metal_kernel", simulated)
    executables.clear()
    found = np.asarray(rlx.jit(function, device="mlx")(*args))
    executables.clear()
    expected = np.asarray(rlx.jit(function, device="cpu")(*args))
    assert simulated.launched and found.dtype == expected.dtype
    tolerance = {2: 1e-2}.get(found.dtype.itemsize, 2e-6)
    size = max(1.0, float(np.abs(expected.astype(float)).max(initial=0.0)))  # sums on the CPU are in float64
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance * size)


def test_nothing_is_metals_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = []
    for setting, gpu, available in itertools.product(("", "0", "1"), (False, True), (False, True)):
        monkeypatch.setenv("RLX_METAL_KERNELS", setting)
        monkeypatch.setattr(metal, "is_on_gpu", lambda gpu=gpu: gpu)
        monkeypatch.setattr(mx.metal, "is_available", lambda available=available: available)
        if metal.is_wanted():
            wanted.append((setting, gpu, available))
    assert wanted == [("1", True, True)]
