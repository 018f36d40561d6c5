"""A new size, offset or length compiles nothing on GPUs: counted with a driver that has no device."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCupy, installed
from gpu_texts import plan_of
from test_new_sizes import PROGRAMS

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import backends
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.gpu.kernel_cache import KernelCache
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.gpu.steps import LaunchStep
from rlx.code.tree import Divisor


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with one device."""
    yield from installed(monkeypatch, FakeCupy(capacity=1 << 30))


def compiled(cupy: FakeCupy, run: Callable[[], Any]) -> int:
    """The number of kernels that a call compiles."""
    before = len(cupy.sources)
    run()
    return len(cupy.sources) - before


def on_device(*shape: int) -> Any:
    """An array on the device."""
    return rlx.device_put(np.ones(shape, np.float32), "cuda")


def test_slices_at_all_offsets_are_one_kernel(cupy: FakeCupy) -> None:
    x = on_device(64, 5)
    assert compiled(cupy, lambda: [x[i : i + 4] for i in range(16)]) == 1
    assert compiled(cupy, lambda: [x[i] for i in range(16)]) == 1
    assert compiled(cupy, lambda: on_device(99, 7)[3:50]) == 0


def test_eager_operations_on_new_shapes(cupy: FakeCupy) -> None:
    def run(n: int) -> Any:
        y = jnp.tanh(on_device(n, 5)) * 2 + 1
        return (y - y.mean()).sum()

    assert compiled(cupy, lambda: run(7)) > 3
    assert [compiled(cupy, lambda: run(n)) for n in (8, 9, 16, 31)] == [0] * 4  # noqa: B023  called at once


def test_a_growing_array(cupy: FakeCupy) -> None:
    def grow(x: Any) -> Any:
        return jnp.concatenate([x, x[-1:]])

    x = grow(grow(on_device(1, 5)))

    def further() -> None:
        y = x
        for _ in range(16):
            y = grow(y)

    assert compiled(cupy, further) == 0


def decode(query: Any, keys: Any, values: Any, key: Any, value: Any, weights: Any) -> Any:
    """A step of a decoder whose cache grows."""
    keys, values = jnp.concatenate([keys, key], 1), jnp.concatenate([values, value], 1)
    mixed = nn.dot_product_attention(query, keys, values)
    return nn.softmax(mixed.reshape(1, -1) @ weights), keys, values


def test_decoding_with_a_growing_cache(cupy: FakeCupy) -> None:
    f, one, cache, weights = rlx.jit(decode), on_device(1, 1, 2, 16), on_device(1, 40, 2, 16), on_device(32, 300)
    keys = values = cache
    found = []
    for _ in range(6):
        before = len(cupy.sources)
        _, keys, values = f(one, keys, values, one, one, weights)
        found.append(len(cupy.sources) - before)
    assert found[0] > 4 and found[2:] == [0] * 4


def attention_loss(weights: Any, x: Any) -> Any:
    """A loss of attention and a map of vectors."""
    batch, time, width = x.shape
    q, k, v = (part.reshape(batch, time, 2, width // 2) for part in jnp.split(x @ weights, 3, -1))
    return (nn.gelu(nn.dot_product_attention(q, k, v, is_causal=True)) ** 2).mean()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["training step", "attention gradient"])
def test_a_new_batch_size_compiles_nothing(name: str, cupy: FakeCupy) -> None:
    if name == "attention gradient":
        function, arguments = rlx.grad(attention_loss), lambda n: (np.ones((32, 96), "f"), np.ones((n, 40, 32), "f"))
    else:
        function, arguments, _, _ = PROGRAMS[name]
    f = rlx.jit(function, device="cuda")
    assert compiled(cupy, lambda: f(*arguments(65))) > 2
    assert [compiled(cupy, lambda: f(*arguments(n))) for n in (66, 72, 80)] == [0] * 3  # noqa: B023  called at once


def test_clear_caches_unloads_code(cupy: FakeCupy) -> None:
    f, x = rlx.jit(nn.softmax), on_device(8, 40)
    for _ in range(3):
        f(x)
    assert cupy.modules_loaded > 0
    del f
    rlx.clear_caches()
    gc.collect()
    backends.memory_named("cuda").clear_pool()  # when the work that runs it is over
    assert cupy.modules_loaded == 0
    np.asarray(jnp.tanh(x))


def test_two_programs_share_a_kernel(cupy: FakeCupy) -> None:
    x = on_device(8, 40)
    assert compiled(cupy, lambda: rlx.jit(lambda x: jnp.tanh(x) * 3)(x)) == 1
    assert compiled(cupy, lambda: rlx.jit(lambda x: (jnp.tanh(x) * 3)[:])(x)) == 0


def test_kernels_that_are_not_used_are_unloaded() -> None:
    cache = KernelCache(most=2)
    made: list[str] = []

    def kernels(*names: str) -> None:
        cache.kernels({name: name for name in names}, lambda source: made.append(source) or source, lambda *_: None)

    kernels("a", "b")
    kernels("a", "c")
    kernels("a")
    kernels("b")
    assert sorted(made[:2]) == ["a", "b"] and made[2:] == ["c", "b"]


def divisors(function: Callable[..., Any], *arguments: np.ndarray) -> list[Divisor]:
    """The divisors that the launches of a program pass."""
    program = DeviceProgram(plan_of(function, *arguments), CudaDialect(), Limits())
    steps: list[LaunchStep] = [step for steps in program.steps.values() for step in steps]
    return [number for step in steps for number in step.numbers if isinstance(number, Divisor)]


def test_positions_are_divided_by_multiplication() -> None:
    found = divisors(lambda x: jnp.transpose(x, (1, 0, 2)) * 2, np.ones((6, 7, 5), np.float32))
    assert found
    for by in found:
        numbers = [0, 1, by.value - 1, by.value, 2**31 - 1, (2**31 - 1) // by.value * by.value]
        assert [(int(n) * by.multiplier >> 32) >> by.shift for n in numbers] == [int(n) // by.value for n in numbers]
