"""Sorts in native code against the reference's, bit for bit: dtypes, special values, several keys, rows and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from loop_plans import plan_of

import rlx
import rlx.numpy as jnp
from rlx.backends.cpu.routines.host_steps import sorted_rows
from rlx.backends.cpu.routines.radix_sort import SHORTEST_ROW, suits_radix_sort
from rlx.backends.cpu.runtime.executable import NativeExecutable
from rlx.ir.kernels import Buffer, Sort
from rlx.storage import from_numpy

DTYPES = ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0]


@pytest.fixture(params=[1, 2, 5], ids=lambda count: f"{count}-threads", autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = rlx.get_num_threads()
    rlx.set_num_threads(request.param)
    yield request.param
    rlx.set_num_threads(before)


def numbers(dtype: str, count: int, seed: int = 0) -> np.ndarray:
    """Random bits, of which floats have equal elements, zeros of both signs, infinities and NaN."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, count).astype(bool)
    if not dtype.startswith("f"):
        return generator.integers(0, 256, (count, np.dtype(dtype).itemsize), np.uint8).view(dtype)[:, 0]
    values = np.round(generator.standard_normal(count) * 50, 1).astype(dtype)
    values[generator.integers(0, count, count // 4)] = generator.choice(np.array(SPECIAL, dtype), count // 4)
    return values


def run(arrays: Sequence[np.ndarray], rows: int, keys: int, index: type | None) -> list[np.ndarray]:
    """The outputs of a Sort kernel, checked against the reference."""
    inputs = [Buffer(a.dtype, a.size, "input") for a in arrays]
    outputs = [Buffer(a.dtype, a.size, "output") for a in arrays]
    if index is not None:
        outputs.append(Buffer(np.dtype(index), arrays[0].size, "output"))
    kernel = Sort(rows, arrays[0].size // rows, tuple(inputs), tuple(outputs), keys, index is not None)
    assert suits_radix_sort(kernel)
    found = NativeExecutable(plan_of([kernel], inputs, outputs)).run([from_numpy(a) for a in arrays])
    results = [s.view((b.size,), b.dtype) for s, b in zip(found, outputs, strict=True)]
    expected = sorted_rows([a.reshape(rows, -1) for a in arrays], keys, index is not None)
    for result, wanted in zip(results, expected, strict=True):
        assert result.tobytes() == wanted.astype(result.dtype).tobytes()
    return results


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [SHORTEST_ROW, 70_001])
def test_every_dtype_alone_and_with_positions(dtype: str, count: int) -> None:
    run([numbers(dtype, count)], 1, 1, None)
    run([numbers(dtype, count)], 1, 1, np.int32)
    run([numbers(dtype, count)], 1, 1, np.int64)


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_are_sorted_separately(dtype: str, rows: int) -> None:
    run([numbers(dtype, rows * 2000)], rows, 1, np.int32)


@pytest.mark.parametrize("keys", [1, 2, 3])
def test_several_keys_move_all_arrays(keys: int) -> None:
    arrays = [np.round(numbers(dtype, 6000, n) % 4).astype(dtype) for n, dtype in enumerate(["i2", "u1", "i4"])]
    others = [numbers("f8", 6000), numbers("bool", 6000), numbers("f8", 12_000).view("c16"), numbers("f2", 6000)]
    run([*arrays, *others], 2, keys, np.int64)
    run([np.round(numbers("f8", 6000) / 50), *arrays, *others], 1, 1 + keys, None)


@pytest.mark.parametrize("value", [0.0, np.nan, -np.inf])
def test_equal_elements_need_no_pass(value: float) -> None:
    (_, order) = run([np.full(5000, value, np.float32)], 1, 1, np.int32)
    assert (order == np.arange(5000)).all()


def test_sorts_in_programs_and_loops() -> None:
    x = numbers("f4", 4 * 5000).reshape(4, 5000)
    np.testing.assert_array_equal(np.asarray(rlx.jit(lambda x: jnp.sort(x, axis=1))(x)), np.sort(x, axis=1))
    np.testing.assert_array_equal(np.asarray(rlx.jit(lambda x: rlx.lax.map(jnp.sort, x))(x)), np.sort(x, axis=1))
    whole = numbers("i1", x.size).reshape(x.T.shape)
    ordered = rlx.jit(lambda x: jnp.argsort(x, axis=0, descending=True))(whole)
    np.testing.assert_array_equal(np.asarray(ordered), np.argsort(-whole.astype(int), axis=0, kind="stable"))


def test_short_rows_are_sorted_by_numpy() -> None:
    for length, short in ((100, True), (5000, False)):
        x, y = Buffer(np.dtype("f4"), length, "input"), Buffer(np.dtype("f4"), length, "output")
        plan = plan_of([Sort(1, length, (x,), (y,))], [x], [y])
        assert ("sort: NumPy's" in NativeExecutable(plan).texts()["host"]) is short
