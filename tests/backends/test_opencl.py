"""The OpenCL device: every primitive, every way in which a nest becomes a grid, loops that the host drives.

`make test-opencl` installs a runtime for processors and runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_primitives
from primitive_cases import cases
from special_samples import DRAWS, drawn
from trainings import losses

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax

wanted = os.environ.get("RLX_TEST_OPENCL") == "1"
pytestmark = [] if wanted else pytest.mark.thorough  # make test runs test_strategies.py
if not wanted:
    pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")

from rlx.backends.cuda.dialect import CudaDialect  # noqa: E402
from rlx.backends.gpu.dialect import DeviceDialect  # noqa: E402
from rlx.backends.gpu.fragments import Fragments  # noqa: E402
from rlx.backends.gpu.limits import Limits  # noqa: E402
from rlx.backends.gpu.memory import DeviceMemory  # noqa: E402
from rlx.backends.gpu.program import DeviceProgram  # noqa: E402
from rlx.backends.gpu.steps import LaunchStep  # noqa: E402
from rlx.backends.opencl import OpenCLBackend  # noqa: E402
from rlx.backends.opencl.dialect import OpenCLDialect  # noqa: E402
from rlx.backends.rocm.dialect import HipDialect  # noqa: E402
from rlx.code.tree import Array  # noqa: E402
from rlx.installation import install_command  # noqa: E402
from rlx.ir.kernels import Contract, members  # noqa: E402
from rlx.ir.options import LoweringOptions, ProductType  # noqa: E402
from rlx.ir.scalar import SPECIAL  # noqa: E402
from rlx.passes.pipeline import Context, lower_to_plan  # noqa: E402
from rlx.storage import AllocationError  # noqa: E402


@pytest.fixture(scope="module")
def backend() -> OpenCLBackend:
    """The backend, or a reason why there is none."""
    try:
        return OpenCLBackend()
    except rlx.errors.DeviceError as error:
        if wanted:
            raise
        pytest.skip(str(error))


def agree(function: Any, *arguments: Any, exact: bool = False) -> None:
    """The device's results are the CPU's."""
    expected = rlx.tree.leaves(rlx.jit(function, device="cpu")(*arguments))
    found = rlx.tree.leaves(rlx.jit(function, device="opencl")(*arguments))
    for x, y in zip(expected, found, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        wide = [np.asarray(v).astype("complex128" if jnp.iscomplexobj(v) else "float64") for v in (y, x)]
        np.testing.assert_allclose(*wide, rtol=0 if exact else 2e-5, atol=0 if exact else 1e-5)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


# ------------------------------------------------------------------ every primitive
@pytest.mark.parametrize("name", sorted({c.primitive.name for c in cases()}))
def test_a_primitive_computes_the_reference(name: str, backend: OpenCLBackend) -> None:
    test_primitives.check_compiled(backend, test_primitives.cases_of(name))


def test_special_functions_run_in_kernels(backend: OpenCLBackend) -> None:
    """Over their ranges: SciPy's values, without a step of the host."""
    functions = {c.primitive.name: c.primitive for c in cases()}

    names = [name for name in DRAWS if name in functions]  # those of complex numbers have one for each part

    def every(arguments: Any) -> list[Any]:
        return [functions[name].bind(*arguments[name]) for name in names]

    given = {name: drawn(name, 200) for name in names}
    assert not rlx.inspect(rlx.jit(every, device="opencl"))(given).kernels.texts["host"]
    for name, found in zip(names, rlx.jit(every, device="opencl")(given), strict=True):
        np.testing.assert_allclose(found, SPECIAL[name].evaluate(*given[name]), rtol=1e-10, atol=1e-13, err_msg=name)


# ------------------------------------------------------------------ grids
def steps(function: Any, *arguments: Any, limits: Limits | None = None) -> list[LaunchStep]:
    """The launches of a program."""
    plan = lower_to_plan(rlx.make_program(function)(*arguments), None, OpenCLBackend().lowering)
    return [s for found in DeviceProgram(plan, OpenCLDialect(), limits or Limits()).steps.values() for s in found]


def strategies(function: Any, *arguments: Any) -> list[str]:
    """How the launches of a program share work."""
    return [s.strategy for s in steps(function, *arguments)]


def test_elements_are_points(backend: OpenCLBackend) -> None:
    x = numbers(37, 41)
    (step,) = steps(lambda x: jnp.exp(x) * 2, x)
    assert (step.groups, step.items, step.strategy) == (-(-37 * 41 // 256), 256, "items")
    agree(lambda x: jnp.exp(x) * 2, x)


def test_a_group_shares_a_long_row(backend: OpenCLBackend) -> None:
    x = numbers(5, 1000)
    (step,) = steps(nn.softmax, x)
    assert (step.groups, step.items, step.strategy) == (5, 256, "groups")
    agree(nn.softmax, x)
    agree(lambda x: (x.max(-1), x.prod(-1), (x > 0).all(-1)), x)


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("length", [0, 1, 31, 32, 255, 256, 257, 1000])
def test_rows_of_every_length(rows: int, length: int, backend: OpenCLBackend) -> None:
    x = numbers(rows, length) if rows * length else np.zeros((rows, length), np.float32)
    agree(lambda x: (x.sum(-1), jnp.exp(x) / (1 + jnp.abs(x).sum(-1, keepdims=True))), x)


def test_points_own_columns(backend: OpenCLBackend) -> None:
    """Sums over rows run in order, each column by a work-item of its own."""
    x = numbers(9, 70)
    agree(lambda x: x.sum(0), x, exact=True)


@pytest.mark.parametrize("dtype", "float32 int32 uint32 float64 int64 int8 uint16 float16 bfloat16 bool".split())
def test_points_that_meet(dtype: str, backend: OpenCLBackend) -> None:
    """Memory combines them, whatever their width."""
    x = (np.arange(1, 3001) % (3000 if np.dtype(dtype).itemsize > 2 else 3)).astype(dtype)
    index = (np.arange(3000) * 7919 % 13).astype(np.int32)

    def scattered(x: Any, index: Any) -> Any:
        zeros = jnp.zeros(13, dtype)
        return zeros.at[index].add(x), zeros.at[index].max(x), zeros.at[index].min(x)

    assert "atomic items" in strategies(scattered, x, index)
    agree(scattered, x, index, exact=True)  # whole numbers: any order gives the same sum


def unequal(*shape: int) -> np.ndarray:
    """Numbers of different sizes: another order gives another sum."""
    random = np.random.default_rng(sum(shape))
    return (random.normal(size=shape) * 10.0 ** random.integers(-3, 4, shape)).astype("float32")


SOME = np.random.default_rng(0).integers(-3, 105, 2500)
SUMMED: dict[str, tuple[int, Any, tuple[np.ndarray, ...]]] = {
    "elements": (2500, lambda x, i: jnp.zeros(99).at[i].add(x), (unequal(2500), SOME)),
    "rows": (2500 * 8, lambda x, i: jnp.zeros((99, 8)).at[i % 99].add(x), (unequal(2500, 8), SOME)),
    "columns": (2500 * 3, lambda x, i: jnp.zeros((3, 99)).at[:, i].add(x), (unequal(3, 2500), SOME)),
    "places of a row": (
        2500, lambda x, i: jnp.zeros((5, 99)).at[jnp.arange(5)[:, None], i].add(x),
        (unequal(5, 500), SOME.reshape(5, 500)),
    ),
    "windows that overlap": (
        2500 * 4, lambda x, i: jnp.zeros(110).at[(i % 99)[:, None] + jnp.arange(4)].add(x), (unequal(2500, 4), SOME),
    ),
    "complex numbers": (
        2500, lambda x, i: jnp.ones(99, "complex64").at[i].add(x + 1j * x[::-1]), (unequal(2500), SOME),
    ),
    "products of narrow numbers": (
        2500, lambda x, i: jnp.ones(99, "bfloat16").at[i].multiply(x.astype("bfloat16")),
        (1 + numbers(2500) / 100, SOME),
    ),
    "batches": (2500, rlx.vmap(lambda x, i: jnp.zeros(99).at[i].add(x)), (unequal(5, 500), SOME.reshape(5, 500))),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMMED)
def test_sums_in_order(name: str, backend: OpenCLBackend) -> None:
    """With the switch they are the CPU's to the last bit; without it memory adds in any order."""
    points, function, arguments = SUMMED[name]
    assert "atomic items" in strategies(function, *arguments)
    with rlx.scoped(deterministic=True):
        (last,) = [s for s in steps(function, *arguments) if s.strategy == "ordered sums"]
        assert last.groups == -(-points // 256)
        agree(function, *arguments, exact=True)
        merged = next(s.arrays[0].size for s in steps(function, *arguments) if s.strategy == "merge")
    assert merged == (2500 * 4 if "overlap" in name else 2500), "rows and columns are sorted once for all they hold"


def test_sums_in_order_are_rare(backend: OpenCLBackend) -> None:
    """Whole numbers and extrema are the same in any order."""
    with rlx.scoped(deterministic=True):
        for function in (lambda x, i: jnp.zeros(99).at[i].max(x), lambda x, i: jnp.zeros(99, "int64").at[i].add(i)):
            assert "ordered sums" not in strategies(function, unequal(2500), SOME)


def test_the_last_of_several_writes_stays(backend: OpenCLBackend) -> None:
    index = (np.arange(500) * 31 % 7).astype(np.int32)

    def scattered(x: Any, i: Any) -> Any:
        return jnp.zeros(7).at[i].set(x), jnp.zeros((7, 3), "complex64").at[i, 1].set(x + 1j)

    assert strategies(scattered, numbers(500), index).count("last writes") >= 1
    agree(scattered, numbers(500), index, exact=True)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 255, 256, 257, 1000])
def test_running_results_of_every_length(length: int, backend: OpenCLBackend) -> None:
    """A group scans tiles of a row; short rows are taken by one item each."""
    x = numbers(3, length) if length else np.zeros((3, 0), np.float32)
    found = strategies(lambda x: jnp.cumsum(x, -1), x)
    assert ("scans" in found) == (length >= 32)
    agree(lambda x: (jnp.cumsum(x, -1), lax.cummax(x, 1, reverse=True), jnp.cumprod(x, 0)), x)


def computed(backend: OpenCLBackend, function: Any, *arguments: Any) -> tuple[list[str], list[np.ndarray]]:
    """How the launches of a program share work on a backend, and its results there: twice the same."""
    plan = lower_to_plan(rlx.make_program(function)(*arguments), None, backend.lowering)
    launches = DeviceProgram(plan, OpenCLDialect(), backend.engine.limits).steps.values()
    made = backend.compile(plan)
    results = [made.run([backend.memory.put(a) for a in arguments]) for _ in range(2)]
    types = [(x.shape, x.dtype) for x in rlx.tree.leaves(rlx.eval_shape(function, *arguments))]
    found, again = ([backend.memory.get(y, *t) for y, t in zip(ys, types, strict=True)] for ys in results)
    for x, y in zip(found, again, strict=True):
        np.testing.assert_array_equal(x, y)
    return [s.strategy for each in launches for s in each], found


def running(x: Any, signs: Any) -> list[Any]:
    """Running results from both ends."""
    reverse = [f(x, axis=1, reverse=True) for f in (lax.cumsum, lax.cummax, lax.cummin)]
    return [*reverse, lax.cumsum(x, axis=1), lax.cumprod(signs, axis=1)]


@pytest.mark.parametrize("dtype", "float16 bfloat16 float32 float64 int32 int8 uint8".split())
@pytest.mark.parametrize("length", [2047, 8191])
def test_long_rows_are_scanned_in_parts(length: int, dtype: str) -> None:
    """By groups that find what the parts before theirs come to."""
    x = np.sin(np.arange(2 * length)).reshape(2, length) * (100 if dtype[-1] in "28" and "int" in dtype else 1)
    if dtype == "uint8":
        x = np.abs(x)
    signs = np.where(np.arange(2 * length).reshape(2, length) % 7 == 3, -1, 1)
    given = x.astype(dtype), signs.astype(dtype)
    how, results = computed(forced(group=64, units=8, least_row=8), running, *given)
    assert set(how) == ({"scans"} if length < 2048 else {"parts of scans", "scans of parts"})
    coarse = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}.get(dtype, 0)
    for found, expected in zip(results, rlx.jit(running, device="cpu")(*given), strict=True):
        wide = [np.asarray(v).astype("float64") for v in (found, expected)]
        np.testing.assert_allclose(*wide, rtol=coarse, atol=10 * coarse)


def test_running_results_that_need_one_another_are_scanned_whole() -> None:
    """What a reduction, or another running result, goes into; the log of running sums is a map for each doubling."""
    backend, x = forced(group=64, units=8, least_row=8), wave(8191)
    for function in (lambda x: jnp.cumsum(x / x.max()), lambda x: jnp.cumsum(jnp.cumsum(x)), lax.cumlogsumexp):
        how, (found,) = computed(backend, function, x)
        expected = np.asarray(rlx.jit(function, device="cpu")(x))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found / scale, expected / scale, atol=2e-5)
    assert how == ["items"] * 13




@pytest.mark.parametrize("length", [1, 2, 3, 31, 64, 257, 1024, 1025, 5000])
def test_sorts_of_every_length(length: int, backend: OpenCLBackend) -> None:
    """In a group's memory, or in parts that are merged: stable, with NaN last."""
    x = np.random.default_rng(length).integers(0, 9, (3, length)).astype("float32")
    x[:, ::7] = np.nan
    agree(lambda x: (jnp.sort(x, -1), jnp.argsort(x, -1)), x, exact=True)
    y = np.random.default_rng(1).integers(0, 3, x.shape).astype("int8")
    agree(lambda x, y: lax.sort((y, x, x > 3), num_keys=2), x, y, exact=True)


SHAPES = [(64, 64, 16), (65, 130, 17), (16, 200, 1), (100, 16, 300), (1, 300, 70), (5, 1, 999)]


@pytest.mark.parametrize("sizes", SHAPES)
def test_products_of_every_shape(sizes: tuple[int, int, int], backend: OpenCLBackend) -> None:
    """In tiles, as rows, or as columns; operands lie either way round."""
    m, n, k = sizes
    x, y = numbers(2, m, k), numbers(2, k, n)
    thin = min(m, n) < 16
    assert any("tiled product" in how for how in strategies(lambda x, y: x @ y, x, y)) == (not thin and k > 1)
    agree(lambda x, y: x @ y, x, y)
    agree(lambda x, y: jnp.einsum("bkm,bnk->bmn", x, y), x.transpose(0, 2, 1).copy(), y.transpose(0, 2, 1).copy())
    agree(lambda x, y: x[0] @ y[1], x.astype("float64"), y.astype("float64"))


def convolved(groups: int = 1, **how: Any) -> Any:
    """A convolution and what is elementwise behind it."""
    how = {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": groups, **how}
    return lambda x, w: jnp.maximum(lax.conv_general_dilated(x, w, **how) * 2 + 1, 0)


CONVOLUTIONS = {
    "same": (convolved(), (2, 5, 9, 11), (20, 5, 3, 3)),
    "strides": (convolved(window_strides=(2, 1), padding="VALID"), (3, 4, 12, 9), (17, 4, 3, 2)),
    "dilated": (convolved(rhs_dilation=(2, 1)), (2, 16, 9, 9), (16, 16, 3, 3)),
    "groups": (convolved(groups=2), (2, 8, 7, 7), (40, 4, 3, 3)),
    "few filters": (convolved(), (2, 5, 9, 11), (3, 5, 3, 3)),
    "few filters of groups": (convolved(groups=2), (2, 8, 9, 9), (10, 4, 3, 3)),
    "NHWC": (convolved(dimension_numbers=("NHWC", "HWIO", "NHWC")), (2, 9, 9, 16), (3, 3, 16, 16)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_read_their_windows_where_they_lie(name: str, backend: OpenCLBackend) -> None:
    """No buffer holds the windows, forwards and backwards."""
    function, *shapes = CONVOLUTIONS[name]
    x, w = (numbers(*shape) / 4 for shape in shapes)
    gradient = rlx.grad(lambda x, w: jnp.sin(function(x, w)).sum(), (0, 1))
    assert "tiled product of computed operands with an epilogue" in strategies(function, x, w)
    features = w.shape[-1 if name == "NHWC" else 0]
    windows = function(x, w).size // features * w.size // features
    plan = lower_to_plan(rlx.make_program(function)(x, w), None, backend.lowering)
    assert all(b.size < windows for b in plan.buffers if b.role == "temporary" and b in plan.offsets)
    agree(function, x, w)
    agree(gradient, x, w)


BIASED = {
    "bias": (lambda x, w: x @ w + jnp.arange(70.0), (65, 40), (40, 70)),
    "gelu": (lambda x, w: nn.gelu(x @ w * 0.1), (64, 40), (40, 64)),
    "what it reads": (lambda x, w: x @ w + x, (33, 33), (33, 33)),
    "itself": (lambda x, w: x @ x.T * x - w, (33, 33), (33, 33)),
    "two results": (lambda x, w: (jnp.tanh(x @ w), x @ w * 2), (40, 20), (20, 50)),
    "two readers": (lambda x, w: (jnp.tanh(x @ w), (x @ w).sum()), (40, 20), (20, 50)),
    "flat": (lambda x, w: jnp.maximum(x @ w, 0).reshape(-1), (40, 20), (20, 50)),
    "transposed": (lambda x, w: (x @ w).T + 1, (40, 20), (20, 50)),
    "batches": (lambda x, w: jnp.einsum("bihd,bjhd->bhij", x, w) * 2 + 1, (3, 20, 4, 30), (3, 20, 4, 30)),
    "narrow operands": (lambda x, w: x @ (w.astype("int8").astype("float32") * 0.5).T, (40, 20), (50, 20)),
}


@pytest.mark.parametrize("name", BIASED)
def test_what_follows_a_product_is_done_where_it_stores(name: str, backend: OpenCLBackend) -> None:
    function, *shapes = BIASED[name]
    x, w = (numbers(*shape) for shape in shapes)
    assert sum("tiled product" in how for how in strategies(function, x, w)) == 1
    assert len(strategies(function, x, w)) <= (3 if name in ("two readers", "narrow operands") else 1)
    agree(function, x, w)


def forced(**changes: Any) -> OpenCLBackend:
    """A backend that takes another strategy than sizes ask for."""
    found = OpenCLBackend()
    found.engine.shuffles &= changes.pop("shuffles", True)
    found.engine.limits = replace(found.engine.limits, **changes)
    return found


FORCED = {
    "vectors": {"vector_points": 1},
    "wide positions": {"wide": True, "vector_points": 1},
    "groups for every row": {"warp_row": 1, "least_row": 2},
    "warps for every row": {"warp_row": 1 << 20, "units": 1, "least_row": 2},
    "wavefronts of 64": {"warp": 64, "least_row": 2},
    "memory instead of shuffles": {"shuffles": False, "least_row": 2},
    "loops by the host": {"loop_work": 0},
    "small groups": {"group": 64, "warp": 16},
    "small sorts": {"sorted_row": 2},
    "small tiles": {"tile": 8, "vector_points": 1},
}


@pytest.mark.parametrize("how", FORCED)
def test_forced_strategies(how: str) -> None:
    """What no size here asks for is run as well: samples, and programs of odd sizes."""
    backend = forced(**FORCED[how])
    for name in "add exp reduce_sum cumsum transpose scatter_add sort pad gather threefry2x32".split():
        test_primitives.check_compiled(backend, test_primitives.cases_of(name))
    for function, *arguments in FORCED_PROGRAMS:
        program = rlx.make_program(function)(*arguments)
        plan = lower_to_plan(program, None, backend.lowering)
        given = [backend.memory.put(a) for a in arguments]
        for x, y in zip(
            rlx.tree.leaves(rlx.jit(function, device="cpu")(*arguments)), backend.compile(plan).run(given), strict=True
        ):
            found = backend.memory.get(y, x.shape, x.dtype)
            wide = [np.asarray(v).astype("complex128" if jnp.iscomplexobj(x) else "float64") for v in (found, x)]
            np.testing.assert_allclose(*wide, rtol=2e-5, atol=1e-5, err_msg=str(program))


def wave(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Numbers that differ."""
    return np.sin(np.arange(np.prod(shape))).reshape(shape).astype(dtype)


def step(carry: Any, x: Any) -> Any:
    """A loop's body."""
    after = jnp.tanh(carry * 0.9 + x)
    return after, (after.sum(), x * 2)


FORCED_PROGRAMS: list[tuple[Any, ...]] = [
    (lambda x: jnp.exp(x) * 2 + 1, wave(1023)),
    (lambda x, b: (x * b + jnp.arange(64), x > b), wave(33, 64), np.ones(64, "float32")),
    (lambda x: (x.T * 2 + 1, x[1:].copy(), x.astype("bfloat16")), wave(37, 70)),
    (lambda x: jnp.transpose(x, (2, 0, 1)) + 1, wave(3, 33, 41, dtype="float64")),
    (lambda x: (nn.softmax(x), x.sum(), x.sum(0), x.max(1)), wave(65, 129)),
    (lambda x: jnp.cumsum(x, 1) + x.sum(1, keepdims=True), wave(5, 700)),
    (lambda x: (x + 1j).conj() * x, wave(1001)),
    (lambda x: lax.scan(step, jnp.zeros(5), x), wave(6, 5)),
    (lambda x: lax.scan(step, jnp.zeros(5), x, reverse=True), wave(7, 5)),
    (lambda x: lax.while_loop(lambda c: jnp.abs(c).sum() < 100.0, lambda c: c * 1.5 + 1, x), wave(4, 3)),
    (lambda x: lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, i, lambda j, d: d @ d / 9 + j, c), x), wave(9, 9)),
    (
        lambda x: lax.scan(lambda c, r: (c + nn.softmax(r), lax.cond(r[0] > 0, jnp.sin, jnp.cos, r)), x[0], x),
        wave(5, 300),
    ),
]  # fmt: skip


def gradient_of_norm(x: Any, w: Any, c: Any) -> Any:
    """Of rows, and of what they are multiplied by."""
    return rlx.vjp(lambda x, w: nn.standardize(x) * w, x, w)[1](c)


HELD: dict[str, tuple[Any, ...]] = {
    "softmax": (nn.softmax, (7, 1000)),
    "softmax by warps": (nn.softmax, (300, 129)),
    "softmax of long rows": (nn.softmax, (3, 5000)),
    "softmax of rows that are too long": (nn.softmax, (2, 32769)),
    "sums of exponentials": (lambda x: (nn.logsumexp(x, -1), x - x.mean(-1, keepdims=True)), (300, 40)),
    "gradient of a norm": (gradient_of_norm, (40, 700), (700,), (40, 700)),
    "a row in two dimensions": (lambda x: x - x.max((1, 2), keepdims=True), (5, 33, 65)),
    "what follows a whole row": (lambda x: jnp.where(x > x.mean(-1, keepdims=True), x, 0).sum(-1), (9, 300)),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in HELD), ("softmax by warps", "float16"), ("gradient of a norm", "float64")],
)
def test_rows_in_registers(name: str, dtype: str) -> None:
    """Results are those of items that read their rows again, to the last bit."""
    function, *shapes = HELD[name]
    arguments = [numbers(*shape, dtype=dtype) for shape in shapes]
    results = []
    for held in (0, 64):
        backend = forced(held=held)
        plan = lower_to_plan(rlx.make_program(function)(*arguments), None, backend.lowering)
        found = backend.compile(plan).run([backend.memory.put(a) for a in arguments])
        results.append([backend.memory.get(y, (b.size,), b.dtype) for y, b in zip(found, plan.outputs, strict=True)])
    for again, kept in zip(*results, strict=True):
        np.testing.assert_array_equal(again, kept)
    if dtype != "float16":
        agree(function, *arguments)


@pytest.mark.parametrize("length", [16385, 32768])
def test_large_groups_keep_rows_in_registers(length: int) -> None:
    """Rows too long for a group's registers: results are those of as many items that read their rows again."""
    x = numbers(2, length)
    results = []
    for strategy, changes in (("large groups", {"held": 64}), ("groups", {"held": 0, "group": 1024, "units": 1})):
        backend = forced(**changes)
        plan = lower_to_plan(rlx.make_program(nn.softmax)(x), None, backend.lowering)
        made = DeviceProgram(plan, backend.dialect(), backend.engine.limits).steps.values()
        assert [(s.strategy, s.items) for steps in made for s in steps] == [(strategy, 1024)]
        (storage,) = backend.compile(plan).run([backend.memory.put(x)])
        results.append(backend.memory.get(storage, x.shape, x.dtype))
    np.testing.assert_array_equal(*results)
    agree(nn.softmax, x)


DEEP: dict[str, tuple[Any, ...]] = {
    "epilogue": (lambda x, w: jnp.maximum(x @ w + 1, 0), wave(20, 1500), wave(1500, 40)),
    "batches": (lambda x, w: jnp.einsum("bij,bjk->kbi", x, w) + 1, wave(3, 20, 700), wave(3, 700, 70)),
    "float64": (lambda x, w: x @ w, wave(17, 1100, dtype="float64"), wave(1100, 33, dtype="float64")),
    "windows": (
        rlx.grad(lambda w, x: jnp.sin(lax.conv_general_dilated(x, w, (1, 1), "SAME")).sum()), wave(16, 16, 3, 3),
        wave(3, 16, 20, 20),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEEP)
def test_groups_share_a_tile_where_there_are_few(name: str) -> None:
    """Each of them a part of the depth."""
    backend = forced(units=264)
    function, *arguments = DEEP[name]
    plan = lower_to_plan(rlx.make_program(function)(*arguments), None, backend.lowering)
    found = [s for steps in DeviceProgram(plan, OpenCLDialect(), Limits()).steps.values() for s in steps]
    assert any(s.strategy.endswith("in parts") and s.groups > 3 for s in found)
    (storage,) = backend.compile(plan).run([backend.memory.put(a) for a in arguments])
    expected = rlx.jit(function, device="cpu")(*arguments)
    found = backend.memory.get(storage, expected.shape, np.asarray(expected).dtype)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-4)


# ------------------------------------------------------------------ attention
def seen(*shape: int) -> np.ndarray:
    """A mask; its first row hides every key."""
    mask = numbers(*shape) > 0
    mask[..., 0, :] = False
    return mask


LENGTHS = {"query_seq_lengths": np.array([70, 5], "int32"), "key_value_seq_lengths": np.array([0, 33], "int32")}
ATTENTION: dict[str, dict[str, Any]] = {
    "all keys": {},
    "causal": {"is_causal": True},
    "scaled and capped": {"scale": 0.5, "softcap": 2.0},
    "bias": {"bias": numbers(1, 4, 70, 90)},
    "bias of a row": {"bias": numbers(90)},
    "bias that hides": {"bias": np.where(seen(2, 1, 70, 90) | (np.arange(90) == 80), 0, -np.inf).astype("float32")},
    "mask": {"mask": seen(2, 4, 70, 90)},
    "mask for all heads": {"mask": seen(70, 90), "is_causal": True},
    "window": {"local_window_size": (7, 3)},
    "causal window": {"local_window_size": 9, "is_causal": True},
    "lengths": LENGTHS,
    "sinks": {"sinks": numbers(4)},
    "sinks and a mask": {"sinks": numbers(4), "mask": seen(70, 90), "return_residual": True},
    "residual": {"return_residual": True, "is_causal": True},
}


def attended(how: dict[str, Any]) -> tuple[Any, list[np.ndarray]]:
    """A function of query, key, value and the arrays of `how`; and those arrays."""
    arrays = {name: value for name, value in how.items() if isinstance(value, np.ndarray)}
    static = {name: value for name, value in how.items() if name not in arrays}

    def function(q: Any, k: Any, v: Any, *given: Any) -> Any:
        return nn.dot_product_attention(q, k, v, **dict(zip(arrays, given, strict=True)), **static)

    return function, [*arrays.values()]


def attention_steps(backend: OpenCLBackend, function: Any, *arguments: Any) -> tuple[list[str], int]:
    """How the launches of a program share work on a device, and the bytes of its temporaries."""
    plan = lower_to_plan(rlx.make_program(function)(*arguments), context=Context.of(backend))
    found = DeviceProgram(plan, backend.dialect(), backend.engine.limits).steps.values()
    return [s.strategy for made in found for s in made], plan.arena


@pytest.mark.parametrize("shuffles", [True, False])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_one_launch(name: str, shuffles: bool, backend: OpenCLBackend) -> None:
    """Query heads share heads of keys; sizes are no multiples of tiles. No scores lie in memory."""
    backend = backend if shuffles else forced(shuffles=False, wide=True)
    function, arrays = attended(ATTENTION[name])
    arguments = [numbers(2, 70, 4, 33), numbers(2, 90, 2, 33), numbers(2, 90, 2, 33) * 2, *arrays]
    assert attention_steps(backend, function, *arguments) == (["attention"], 0)
    plan = lower_to_plan(rlx.make_program(function)(*arguments), context=Context.of(backend))
    found = backend.compile(plan).run([backend.memory.put(a) for a in arguments])
    for x, y in zip(rlx.tree.leaves(rlx.jit(function, device="cpu")(*arguments)), found, strict=True):
        np.testing.assert_allclose(backend.memory.get(y, x.shape, x.dtype), x, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "features"), [("float16", 64), ("bfloat16", 16), ("float64", 70), ("float32", 256)])
def test_attention_of_dtypes(dtype: str, features: int, backend: OpenCLBackend) -> None:
    """Sums are float32 at least; tiles are smaller where features are many or wide."""
    q, k, v = (numbers(20 + n, 3, features).astype(dtype) for n in range(3))
    given = [q, k, k[::-1].copy() * 2]

    def function(q: Any, k: Any, v: Any) -> Any:
        return nn.dot_product_attention(q, k, v, is_causal=True)

    assert attention_steps(backend, function, *given) == (["attention"], 0)
    expected = function(*(x.astype("float64") for x in given))
    found = rlx.jit(function, device="opencl")(*given)
    assert found.dtype == np.dtype(dtype) and found.shape == q.shape
    apart = {"float16": 1e-3, "bfloat16": 1e-2, "float64": 1e-12}.get(dtype, 1e-5)
    np.testing.assert_allclose(np.asarray(found).astype("float64"), expected, rtol=apart, atol=apart)


def test_attention_that_is_no_launch(backend: OpenCLBackend) -> None:
    """Too few queries, too many features; a batch is one more axis."""
    q = numbers(2, 40, 2, 16)
    function = nn.dot_product_attention
    assert attention_steps(backend, rlx.vmap(function), q, q, q) == (["attention"], 0)
    agree(rlx.vmap(function), q, q, q)
    for few in (q[:, :3], numbers(1, 20, 1, 2000)):
        assert "attention" not in attention_steps(backend, function, few, few, few)[0]
        agree(function, few, few, few)


def pulled(how: dict[str, Any], wanted: Sequence[int] = (0, 1, 2)) -> tuple[Any, list[np.ndarray]]:
    """Cotangents of some operands of attention, as a function of a cotangent and those operands; and the rest."""
    function, arrays = attended({name: value for name, value in how.items() if name != "return_residual"})

    def pull(cotangent: Any, *operands: Any) -> Any:
        def of_wanted(*values: Any) -> Any:
            given = dict(zip(wanted, values, strict=True))
            return function(*(given.get(n, x) for n, x in enumerate(operands)))

        return rlx.vjp(of_wanted, *(operands[n] for n in wanted))[1](cotangent)

    return pull, arrays


GRADIENT = ["attention", "gradient of queries", "gradient of keys and values"]


@pytest.mark.parametrize(("name", "shuffles"), [*((name, True) for name in ATTENTION), ("lengths", False)])
def test_gradients_of_attention_are_two_launches(name: str, shuffles: bool, backend: OpenCLBackend) -> None:
    """Of shared heads, too; nothing is larger than the queries, and no order of sums is left open."""
    backend = backend if shuffles else forced(shuffles=False, wide=True)
    function, arrays = pulled(ATTENTION[name])
    arguments = [numbers(2, 70, 4, 33) * 3, numbers(2, 70, 4, 33), numbers(2, 90, 2, 33), numbers(2, 90, 2, 33) * 2]
    arguments += arrays
    assert attention_steps(backend, function, *arguments)[0] == GRADIENT
    plan = lower_to_plan(rlx.make_program(function)(*arguments), context=Context.of(backend))
    assert all(b.size <= arguments[0].size for b in plan.buffers if b.role == "temporary")
    run = backend.compile(plan).run
    found, again = (run([backend.memory.put(a) for a in arguments]) for _ in range(2))
    for x, y, z in zip(rlx.jit(function, device="cpu")(*arguments), found, again, strict=True):
        first, second = (backend.memory.get(made, x.shape, x.dtype) for made in (y, z))
        np.testing.assert_allclose(first, x, rtol=2e-5, atol=2e-5)
        np.testing.assert_array_equal(first, second)


def test_gradients_of_some_operands_of_attention(backend: OpenCLBackend) -> None:
    """A launch that nobody asks for is left out; the gradients of sinks are those of the equations."""
    q, k, v = numbers(2, 40, 4, 16), numbers(2, 30, 2, 16), numbers(2, 30, 2, 16) * 2
    rest = {"bias": numbers(4, 40, 30), "sinks": numbers(4), "softcap": 1.5}
    for wanted, count in (((0,), 2), ((1,), 3), ((2,), 3), ((0, 2), 3), ((0, 3), 2), ((4,), 0)):
        function, arrays = pulled(rest, wanted)
        assert [s for s in attention_steps(backend, function, q, q, k, v, *arrays)[0] if s in GRADIENT] == GRADIENT[
            :count
        ]
        if wanted in ((1,), (0, 2)):
            agree(function, q, q, k, v, *arrays)


BIASES: dict[str, dict[str, Any]] = {
    "of each head": {"bias": numbers(2, 4, 70, 90), "is_causal": True, "softcap": 2.0},
    "of all batches": {"bias": numbers(4, 70, 90), "mask": seen(2, 1, 70, 90)},
    "of all heads": {"bias": numbers(2, 1, 70, 90), "local_window_size": (7, 3)},
    "of all": {"bias": numbers(70, 90), **LENGTHS},
}


BY_UNITS = [("of all batches", units) for units in ("tensor cores", "wmma")]


@pytest.mark.parametrize(("name", "units"), [*((name, "") for name in BIASES), *BY_UNITS])
def test_gradients_of_biases(name: str, units: str, backend: OpenCLBackend) -> None:
    """One more launch, in which a group adds what heads and batches give that share a bias: always in one order."""
    if units and not backend.engine.shuffles:
        pytest.skip("the runtime has no sub-groups")
    function, arrays = pulled(BIASES[name], (0, 1, 2, 3))
    dtype = "float16" if units else "float32"
    given = [numbers(2, size, heads, 33).astype(dtype) for size, heads in ((70, 4), (70, 4), (90, 2), (90, 2))]
    launches = [*GRADIENT, "gradient of a bias"]
    launches = [f"{how} by fragments" for how in launches] if units else launches
    computed_by_fragments(function, [*given, *arrays], 4e-3 if units else 2e-5, launches, units)


def test_gradients_of_biases_that_are_no_launch(backend: OpenCLBackend) -> None:
    """Of those that all queries or keys share."""
    q, bias = numbers(1, 40, 2, 16), numbers(2, 1, 40)
    gradient = rlx.grad(lambda bias: (nn.dot_product_attention(q, q, q, bias) ** 2).sum())
    assert not {*GRADIENT} & {*attention_steps(backend, gradient, bias)[0]}
    agree(gradient, bias)


@pytest.mark.parametrize(
    ("dtype", "features"), [("bfloat16", 128), ("float64", 70), ("float16", 16), ("float32", 64), ("float32", 224)]
)
def test_gradients_of_attention_of_dtypes(dtype: str, features: int, backend: OpenCLBackend) -> None:
    """Every size of tiles; shares are made again in float32 at least, from sums that are not rounded."""
    function, _ = pulled({"is_causal": True})
    given = [numbers(40 + n, 3, features).astype(dtype) for n in (0, 0, 3, 3)]
    assert attention_steps(backend, function, *given)[0] == GRADIENT
    expected = function(*(x.astype("float64") for x in given))
    apart = {"float16": 5e-3, "bfloat16": 5e-2, "float64": 1e-11}.get(dtype, 2e-5)
    for x, y in zip(rlx.jit(function, device="opencl")(*given), expected, strict=True):
        assert x.dtype == np.dtype(dtype)
        np.testing.assert_allclose(np.asarray(x).astype("float64"), y, rtol=apart, atol=apart * float(abs(y).max()))


def test_gradients_of_attention_in_loops_and_checkpoints(backend: OpenCLBackend) -> None:
    """Layers keep queries, keys, values and sums for their gradients, nothing of queries by keys."""
    x, weights = numbers(2, 40, 2, 16), numbers(3, 16, 16) / 4

    def loss(weights: Any, layer: Any) -> Any:
        return (lax.scan(lambda c, w: (layer(c, w), None), x, weights)[0] ** 2).sum()

    def attend(c: Any, w: Any) -> Any:
        return nn.dot_product_attention(c @ w, c, c, is_causal=True)

    for layer in (attend, rlx.checkpoint(attend)):
        gradient = rlx.grad(lambda weights, layer=layer: loss(weights, layer))
        assert {*GRADIENT} <= {*attention_steps(backend, gradient, weights)[0]}
        agree(gradient, weights)


def test_gradients_of_examples_are_those_of_a_batch(backend: OpenCLBackend) -> None:
    """vmap of grad: the same launches, and none in front of them."""
    q, mask = numbers(3, 40, 2, 16), seen(3, 1, 40, 40)

    def gradient(q: Any, mask: Any) -> Any:
        return rlx.grad(lambda q: (nn.dot_product_attention(q, q, q, mask=mask) ** 2).sum())(q)

    made = attention_steps(backend, rlx.vmap(gradient), q, mask)[0]
    assert made == attention_steps(backend, gradient, q, mask)[0] and {*GRADIENT} <= {*made}
    agree(rlx.vmap(gradient), q, mask)


def test_attention_is_claimed_by_name(backend: OpenCLBackend) -> None:
    q = numbers(2, 40, 2, 16)
    report = rlx.inspect(rlx.jit(nn.dot_product_attention, device="opencl"))(q, q, q)
    assert "claimed" in str(report.dispatch) and not report.kernels.texts["host"]


# ------------------------------------------------------------------ programs
PROGRAMS = {
    "product": (lambda x: (x @ x.T).sum(0), numbers(17, 33)),
    "complex product": (lambda x: (x + 1j) @ (x.T - 2j), numbers(9, 8)),
    "scan": (lambda x: lax.scan(step, jnp.zeros(5), x), numbers(6, 5)),
    "reverse scan": (lambda x: lax.scan(step, jnp.zeros(5), x, reverse=True), numbers(7, 5)),
    "gradient of a scan": (rlx.grad(lambda x: (lax.scan(step, jnp.zeros(5), x)[1][0] ** 2).sum()), numbers(6, 5)),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 100.0, lambda c: c * 1.5 + 1, x), np.abs(numbers(4, 3))),
    "branch": (lambda x: lax.switch((x.sum() > 0).astype("int32"), [jnp.sin, jnp.cos], x), numbers(3, 4)),
    "sort and inverse": (lambda x: (jnp.sort(x), jnp.linalg.inv(x[:5] + 4 * jnp.eye(5))), numbers(6, 5)),
    "bfloat16": (lambda x: (x.astype("bfloat16") * 3).sum(-1), numbers(8, 100)),
    "random bits": (lambda x: rlx.random.bits(rlx.random.key(3), (100,)) + x.astype("uint32"), np.arange(100.0)),
    "batched gradient": (rlx.vmap(rlx.grad(lambda x: (nn.softmax(x) * jnp.sin(x)).sum())), numbers(5, 64)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, backend: OpenCLBackend) -> None:
    agree(*PROGRAMS[name])


# ------------------------------------------------------------------ memory
def test_arrays_stay_on_the_device(backend: OpenCLBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed from an array on the device is computed there, and only what is looked at comes back."""
    x = rlx.device_put(numbers(100), "opencl")
    memory = rlx.backends.memory_named("opencl")
    assert isinstance(memory, DeviceMemory) and x.device == "opencl"
    step = rlx.jit(lambda x: x * 2 + 1)
    step(x)
    reads: list[int] = []
    download = memory.engine.download
    monkeypatch.setattr(memory.engine, "download", lambda view, array: (reads.append(1), download(view, array)))
    y = step(step(x)) + x
    assert y.device == "opencl" and not reads
    np.testing.assert_allclose(y, np.asarray(x) * 5 + 3, rtol=1e-5, atol=1e-6)
    assert len(reads) == 2  # y and x
    assert rlx.device_put(y, "cpu").device == "cpu"


def test_memory_is_used_again(backend: OpenCLBackend) -> None:
    memory = rlx.backends.memory_named("opencl")
    x = rlx.device_put(numbers(1000), "opencl")
    for _ in range(3):
        x = jnp.sin(x)
    before = memory.pool_bytes()
    for _ in range(50):
        x = jnp.sin(x)
    assert memory.pool_bytes() == before
    memory.clear_pool()
    assert memory.pool_bytes() < before
    assert np.isfinite(np.asarray(x)).all()


def test_results_wait(backend: OpenCLBackend) -> None:
    """A run is queued; block_until_ready waits for it."""
    x = rlx.device_put(numbers(300, 300), "opencl")
    y = x
    for _ in range(20):
        y = jnp.tanh(y @ x)
    y.block_until_ready()
    assert y.is_ready()


def test_what_a_device_has_no_room_for(backend: OpenCLBackend) -> None:
    """An error that says so; the device stays usable."""
    with pytest.raises(AllocationError):
        rlx.backends.memory_named("opencl").allocate(1 << 45)
    with pytest.raises(rlx.errors.OutOfMemoryError, match="test_opencl.py"):
        rlx.jit(lambda x: jnp.broadcast_to(x, (1 << 43,)) + 1, device="opencl")(1.0)
    agree(jnp.sin, numbers(5))


def test_threads_take_turns(backend: OpenCLBackend) -> None:
    """They share a queue and a pool."""
    f = rlx.jit(lambda x, n: jnp.cumsum(nn.softmax(x + n), -1) @ x.T, device="opencl")
    x = numbers(20, 300)
    expected = {n: np.asarray(f(x, float(n))) for n in range(4)}

    def work(n: int) -> bool:
        return all(np.array_equal(f(x, float(n)), expected[n]) for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_callbacks_between_launches(backend: OpenCLBackend) -> None:
    """What a callback asks of the device comes in between."""
    seen: list[float] = []

    def look(x: Any) -> Any:
        seen.append(float(jnp.sum(rlx.device_put(np.asarray(x), "opencl"))))
        return np.asarray(x) * 2

    x = numbers(50)
    f = rlx.jit(lambda x: rlx.pure_callback(look, x, jnp.sin(x)) + x, device="opencl")
    np.testing.assert_allclose(f(x), 2 * np.sin(x) + x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(seen, [np.sin(x).sum()], rtol=1e-4)


def test_a_device_without_float64(backend: OpenCLBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so before anything is compiled."""
    loaded = rlx.backends.backend_named("opencl")
    assert isinstance(loaded, OpenCLBackend)
    monkeypatch.setattr(loaded.engine, "has_doubles", False)
    rlx.clear_caches()
    with pytest.raises(rlx.errors.DtypeError, match="has no float64"):
        rlx.jit(jnp.sin, device="opencl")(numbers(3, dtype="float64"))
    agree(jnp.sin, numbers(3))
    rlx.clear_caches()


def test_training_on_the_device(backend: OpenCLBackend) -> None:
    """Steps of gradient descent on the device end where the CPU's do."""
    x, y = numbers(64, 10), numbers(64, 1)

    def loss(w: Any, x: Any, y: Any) -> Any:
        return ((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2).mean()

    def trained(device: str) -> Any:
        place = lambda v: rlx.device_put(v, device)  # noqa: E731
        w = {"a": place(numbers(10, 16)), "b": place(numbers(16, 1))}
        step = rlx.jit(lambda w, x, y: rlx.tree.map(lambda p, g: p - 0.1 * g, w, rlx.grad(loss)(w, x, y)))
        xs, ys = place(x), place(y)
        for _ in range(20):
            w = step(w, xs, ys)
        return np.asarray(loss(w, xs, ys))

    np.testing.assert_allclose(trained("opencl"), trained("cpu"), rtol=1e-4)


def test_small_loops_are_one_launch(backend: OpenCLBackend) -> None:
    """A group runs all steps; what one group is too small for is queued by the host."""
    x = wave(6, 5)
    assert strategies(lambda x: lax.scan(step, jnp.zeros(5), x), x).count("loop") == 1
    assert "loop" in strategies(lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c * 2 + 1, x), x)
    large = wave(6, 200, 200)
    assert "loop" not in strategies(lambda x: lax.scan(lambda c, r: (c @ r, r.sum()), x[0], x), large)


def test_texts_show_what_is_compiled(backend: OpenCLBackend) -> None:
    executable = rlx.call.compiled.CompiledProgram(rlx.make_program(jnp.exp)(numbers(3)), backend).executable
    assert executable is not None
    assert "__kernel __attribute__" in executable.texts()["opencl"]


def test_without_the_package() -> None:
    """An error says what to install."""
    program = "import sys; sys.modules['pyopencl'] = None\nimport rlx\nrlx.jit(lambda x: x, device='opencl')(1.0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "DeviceError" in done.stderr and install_command("opencl") in done.stderr, done.stderr


# ------------------------------------------------------------------ trainings
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("example", "steps"), [("digits", 4), ("chargpt", 3)])
def test_trainings_reach_the_losses_of_the_cpu(example: str, steps: int, backend: OpenCLBackend) -> None:
    found, expected = losses("opencl", steps, example), losses("cpu", steps, example)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert found[-1] < found[0]


# ------------------------------------------------------------------ units for matrices
NUMBERS = """
static float fragment_number_f16(uint word, int part) { return rlx_decode_float16((uint16_t)(word >> (16 * part))); }
static float fragment_number_bf16(uint word, int part) { return rlx_decode_bfloat16((uint16_t)(word >> (16 * part))); }
static float fragment_number_tf32(uint word, int part) { return as_float(word); }
static float fragment_number_e4m3(uint word, int part) {
    return rlx_decode_float8_e4m3fn((uint8_t)(word >> (8 * part)));
}
static float fragment_number_e5m2(uint word, int part) {
    return rlx_decode_float8_e5m2((uint8_t)(word >> (8 * part)));
}
static int fragment_number_s8(uint word, int part) { return (int8_t)(word >> (8 * part)); }
static int fragment_number_i8(uint word, int part) { return (int8_t)(word >> (8 * part)); }
static uint fragment_number_u8(uint word, int part) { return (uint8_t)(word >> (8 * part)); }
"""
MMA = """
static __attribute__((noinline)) void fragment_product_UNITS(
    KIND *sums, uint a, uint b, uint c, uint d, uint e, uint f) {
    const int lane = (int)get_sub_group_local_id(), row = lane / 4, column = lane % 4 * 2;
    for (int word = 0; word < 8; ++word) {
        const uint upper = sub_group_shuffle(word < 4 ? a : c, row * 4 + word % 4);
        const uint lower = sub_group_shuffle(word < 4 ? b : d, row * 4 + word % 4);
        const uint left = sub_group_shuffle(word < 4 ? e : f, column * 4 + word % 4);
        const uint right = sub_group_shuffle(word < 4 ? e : f, (column + 1) * 4 + word % 4);
        for (int part = 0; part < PARTS; ++part) {
            const KIND x = fragment_number_UNITS(upper, part), y = fragment_number_UNITS(lower, part);
            const KIND u = fragment_number_UNITS(left, part), v = fragment_number_UNITS(right, part);
            sums[0] += x * u;
            sums[1] += x * v;
            sums[2] += y * u;
            sums[3] += y * v;
        }
    }
}
"""
MFMA = """
static __attribute__((noinline)) void fragment_product_mfma_UNITS(KIND *sums, uint a, uint b, uint c, uint d) {
    const int lane = (int)get_sub_group_local_id();
    for (int number = 0; number < 4; ++number) {
        for (int word = 0; word < 8; ++word) {
            const uint left = sub_group_shuffle(word % 2 ? b : a, word / 2 * 16 + lane / 16 * 4 + number);
            const uint right = sub_group_shuffle(word % 2 ? d : c, word / 2 * 16 + lane % 16);
            for (int part = 0; part < PARTS; ++part)
                sums[number] += fragment_number_UNITS(left, part) * fragment_number_UNITS(right, part);
        }
    }
}
"""
WMMA = """
static __attribute__((noinline)) void fragment_product_wmma_UNITS(
    KIND *sums, uint a0, uint a1, uint a2, uint a3, uint a4, uint a5, uint a6, uint a7,
    uint b0, uint b1, uint b2, uint b3, uint b4, uint b5, uint b6, uint b7) {
    const int lane = (int)get_sub_group_local_id(), upper = lane / 16;
    const uint a[8] = {a0, a1, a2, a3, a4, a5, a6, a7}, b[8] = {b0, b1, b2, b3, b4, b5, b6, b7};
    for (int number = 0; number < 8; ++number) {
        for (int word = 0; word < 8; ++word) {
            const uint left = sub_group_shuffle(a[word], upper * 16 + number * 2 + upper);
            const uint right = sub_group_shuffle(b[word], lane);
            for (int part = 0; part < PARTS; ++part)
                sums[number] += fragment_number_UNITS(left, part) * fragment_number_UNITS(right, part);
        }
    }
}
"""
MOVES = """
static void load_matrix(uint *words, const __local void *row, int count, int turned) {
    const int lane = (int)get_sub_group_local_id();
    for (int number = 0; number < count; ++number) {
        words[number] = 0;
        for (int more = 0; more < 2; ++more) {
            const int near = lane % 4 * 2 + more, far = lane / 4;
            const ulong from = sub_group_shuffle((ulong)row, number * 8 + (turned ? near : far));
            words[number] |= (uint)((const __local ushort *)from)[turned ? far : near] << 16 * more;
        }
    }
}

static void async_copy(__local void *place, const __global void *source, int size, bool holds) {
    for (int word = 0; word < size; ++word)
        ((__local uint *)place)[word] = holds ? ((const __global uint *)source)[word] : 0;
}
"""
# by the name of a unit: the type of sums where they are no floats, and the numbers of a word where they are not two
SUMS = {"s8": "int", "i8": "int", "u8": "uint"}
PARTS = {"tf32": "1", "f16": "2", "bf16": "2"}
UNITS: dict[str, tuple[DeviceDialect, str]] = {
    "tensor cores": (CudaDialect(tensor_cores=True, narrowest_floats=True), MMA),
    "mfma": (HipDialect("gfx90a"), MFMA),
    "wmma": (HipDialect("gfx1100"), WMMA),
}


class FragmentDialect(OpenCLDialect):
    """Words of a device that multiplies fragments: here a warp's items ask each other, as the hardware is described."""

    def __init__(self, device: DeviceDialect, text: str) -> None:
        found = device.fragments(np.dtype("float16"))
        assert found is not None
        super().__init__(True, found.items)
        # compilers would take seconds for what shuffles stand for
        self.words = replace(self.words, unroll="__attribute__((opencl_unroll_hint(1)))")
        self.device_dialect, self.text, self.units = device, text, ""

    def fragments(self, dtype: np.dtype) -> Fragments | None:
        return self.device_dialect.fragments(dtype)

    def fragment_product(self, fragments: Fragments) -> str:
        self.units = fragments.name.rpartition("_")[2]
        for dtype in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
            self.helper(f"rlx_decode_{dtype}")
        return f"fragment_product_{fragments.name}"

    def load_matrix(self, target: Array, row: str, turned: bool) -> str:
        return f"load_matrix({target.name}, {row}, {target.shape[0]}, {int(turned)});"

    def async_copy(self, array: Array, place: str, source: str, size: int, condition: str | None) -> str:
        return f"async_copy({place}, {source}, {size * array.dtype.itemsize // 4}, {condition or 'true'});"

    def close_copies(self) -> tuple[str, ...]:
        return ()

    def await_copies(self, newer: int) -> tuple[str, ...]:
        return ()

    def helper_text(self, helpers: Iterable[str]) -> str:
        kind = SUMS.get(self.units, "float")
        text = self.text.replace("UNITS", self.units).replace("PARTS", PARTS.get(self.units, "4")).replace("KIND", kind)
        own = NUMBERS + MOVES + text if self.units else ""
        return super().helper_text({**dict.fromkeys(helpers), **self.helpers}) + own


class MixedBackend(OpenCLBackend):
    """A device that multiplies narrow numbers, and sums in float32."""

    units = "tensor cores"

    def dialect(self) -> OpenCLDialect:
        return FragmentDialect(*UNITS[self.units]) if self.units else super().dialect()

    @property
    def lowering(self) -> LoweringOptions:
        options = super().lowering
        held = {"int8": "int32", "uint8": "uint32"}
        types = (*(ProductType.of(dtype, held.get(dtype, "float32")) for dtype in NARROW), TF32)
        return replace(options, products=replace(options.products, types=types))


TF32 = ProductType.of("float32", tf32=True)
NARROW = ("float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
MIXED: dict[str, Any] = {
    "epilogue": lambda x, w: jnp.maximum(x @ w + 1, 0),
    "transposed operands": lambda x, w: (w.T @ x.T) * 2,
    "what is loaded": lambda x, w: (x * 2) @ w,
    "thin": lambda x, w: x[:3] @ w,
}


@pytest.mark.parametrize("units", [*UNITS, ""], ids=[*UNITS, "tiles"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_products_are_summed_in_float32(dtype: str, units: str, backend: OpenCLBackend) -> None:
    if units and not backend.engine.shuffles:
        pytest.skip("the runtime has no sub-groups")
    device = MixedBackend()
    device.units = units
    x, w = (numbers(*shape).astype(dtype) for shape in ((70, 37), (37, 90)))
    for name, function in MIXED.items():
        with rlx.default_matmul_precision("tensorfloat32"):
            program = rlx.make_program(function)(x, w)
        plan = lower_to_plan(program, None, device.lowering)
        products = [k for kernel in plan.kernels for k in members(kernel) if isinstance(k, Contract)]
        assert products and all(k.tf32 or k.accumulator for k in products)
        expected = rlx.jit(function, device="cpu")(x, w)
        made = DeviceProgram(plan, device.dialect(), device.engine.limits).steps.values()
        fragments = device.dialect().fragments(x.dtype)
        assert {step.unit for each in made for step in each} == {fragments.name if fragments else ""}
        (storage,) = device.compile(plan).run([device.memory.put(a) for a in (x, w)])
        found = device.memory.get(storage, expected.shape, np.asarray(expected).dtype)
        wide = [np.asarray(v).astype("float64") for v in (found, expected)]
        coarse = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 4e-3}[dtype]
        np.testing.assert_allclose(*wide, rtol=coarse, atol=coarse * 6, err_msg=name)


INTEGRAL: dict[str, Any] = {
    "epilogue": lambda x, w: jnp.maximum(summed(x, w) + 1, 5),
    "transposed operands": lambda x, w: summed(w.T, x.T) * 2,
    "what is loaded": lambda x, w: summed(x * 2, w),
    "wrapped": lambda x, w: x @ w,
    "thin": lambda x, w: summed(x[:3], w),
}


def summed(x: Any, w: Any) -> Any:
    wide = jnp.promote_types(x.dtype, "int32") if x.dtype == jnp.int8 else "uint32"
    return jnp.matmul(x, w, preferred_element_type=wide)


@pytest.mark.parametrize("units", [*UNITS, ""], ids=[*UNITS, "tiles"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_are_summed_exactly(dtype: str, units: str, backend: OpenCLBackend) -> None:
    """By units where they have such numbers, by tiles elsewhere: NumPy's integers."""
    if units and not backend.engine.shuffles:
        pytest.skip("the runtime has no sub-groups")
    device = MixedBackend()
    device.units = units
    draws = np.random.default_rng(7)
    x, w = (draws.integers(0, 256, shape).astype(dtype) for shape in ((70, 37), (37, 90)))
    for name, function in INTEGRAL.items():
        plan = lower_to_plan(rlx.make_program(function)(x, w), None, device.lowering)
        (product,) = [k for kernel in plan.kernels for k in members(kernel) if isinstance(k, Contract)]
        assert product.accumulator is not None
        expected = np.asarray(rlx.jit(function, device="cpu")(x, w))
        fragments = device.dialect().fragments(x.dtype)
        made = DeviceProgram(plan, device.dialect(), device.engine.limits).steps.values()
        assert {step.unit for each in made for step in each} == {fragments.name if fragments else ""}
        (storage,) = device.compile(plan).run([device.memory.put(a) for a in (x, w)])
        found = device.memory.get(storage, expected.shape, expected.dtype)
        np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_products_of_the_narrowest_floats(dtype: str, backend: OpenCLBackend) -> None:
    """Infinities and NaN as their numbers say; sums are float32's."""
    if not backend.engine.shuffles:
        pytest.skip("the runtime has no sub-groups")
    device = MixedBackend()
    x, w = (numbers(*shape).astype(dtype) for shape in ((70, 37), (37, 90)))
    x[3, 5] = np.nan
    function = lambda x, w: jnp.matmul(x, w, preferred_element_type="float32")  # noqa: E731
    plan = lower_to_plan(rlx.make_program(function)(x, w), None, device.lowering)
    made = DeviceProgram(plan, device.dialect(), device.engine.limits).steps.values()
    assert {step.unit for each in made for step in each} == {dtype[7:11]}
    (storage,) = device.compile(plan).run([device.memory.put(a) for a in (x, w)])
    expected = x.astype("float64") @ w.astype("float64")
    found = device.memory.get(storage, expected.shape, np.dtype("f4"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_by_fragments(name: str, backend: OpenCLBackend) -> None:
    """Every rule, with features that are loaded one by one: scores, shares and sums never leave a warp's registers."""
    if not backend.engine.shuffles:
        pytest.skip("the runtime has no sub-groups")
    function, arrays = attended(ATTENTION[name])
    arguments = [*(x.astype("float16") for x in (numbers(2, 70, 4, 33), *[numbers(2, 90, 2, 33)] * 2)), *arrays]
    computed_by_fragments(function, arguments, 2e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("queries", "features"), [(16, 8), (130, 64), (65, 40), (64, 128), (20, 6)])
def test_attention_by_fragments_of_sizes(queries: int, features: int, dtype: str, backend: OpenCLBackend) -> None:
    """A warp has one fragment of rows or two; an item loads eight features at once, two or one."""
    if not backend.engine.shuffles:
        pytest.skip("the runtime has no sub-groups")
    given = [numbers(queries + n, 2, features).astype(dtype) for n in (0, 70, 70)]
    given[2] = given[2][::-1].copy()
    coarse = {"float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    computed_by_fragments(lambda *x: nn.dot_product_attention(*x, is_causal=True), given, coarse)


FRAGMENT_GRADIENT = [f"{how} by fragments" for how in GRADIENT]


@pytest.mark.parametrize(
    ("units", "dtype", "queries", "features"), [("mfma", "float16", 70, 33), ("wmma", "bfloat16", 20, 72)]
)
def test_attention_by_matrix_cores(units: str, dtype: str, queries: int, features: int, backend: OpenCLBackend) -> None:
    """An item has a part of one row, in sub-groups of 64 and of 32; its gradient, too."""
    if not backend.engine.shuffles:
        pytest.skip("the runtime has no sub-groups")
    how = {"is_causal": True, "softcap": 2.0, "sinks": numbers(4)}
    shapes = (2, queries, 4, features), (2, queries, 4, features), *[(2, queries + 20, 2, features)] * 2
    given = [numbers(*shape).astype(dtype) for shape in shapes]
    coarse = {"float16": 4e-3, "bfloat16": 3e-2}[dtype]
    function, arrays = pulled(how)
    launches = FRAGMENT_GRADIENT if features <= 64 else [*FRAGMENT_GRADIENT, FRAGMENT_GRADIENT[-1]]
    computed_by_fragments(function, [*given, *arrays], coarse, launches, units)


@pytest.mark.parametrize("name", ATTENTION)
def test_gradients_of_attention_by_fragments(name: str, backend: OpenCLBackend) -> None:
    """Every rule; shares and cotangents of scores are rounded where they are multiplied."""
    if not backend.engine.shuffles:
        pytest.skip("the runtime has no sub-groups")
    function, arrays = pulled(ATTENTION[name])
    arguments = [numbers(2, 70, 4, 33), numbers(2, 70, 4, 33), numbers(2, 90, 2, 33), numbers(2, 90, 2, 33)]
    computed_by_fragments(function, [*(x.astype("float16") for x in arguments), *arrays], 4e-3, FRAGMENT_GRADIENT)


@pytest.mark.parametrize(
    ("dtype", "features", "count"), [("bfloat16", 64, 3), ("bfloat16", 72, 4), ("float16", 136, 4)]
)
def test_gradients_of_attention_by_fragments_of_sizes(
    dtype: str, features: int, count: int, backend: OpenCLBackend
) -> None:
    """Of many features, keys and values have a launch each; of more, groups share features, and the last has fewer."""
    if not backend.engine.shuffles:
        pytest.skip("the runtime has no sub-groups")
    function, _ = pulled({"is_causal": True})
    given = [numbers(70 + n, 2, features).astype(dtype) for n in (0, 0, 3, 3)]
    coarse = {"float16": 4e-3, "bfloat16": 3e-2}[dtype]
    computed_by_fragments(function, given, coarse, [*FRAGMENT_GRADIENT, FRAGMENT_GRADIENT[-1]][:count])


def computed_by_fragments(
    function: Any,
    arguments: Sequence[np.ndarray],
    coarse: float,
    launches: Sequence[str] = ("attention by fragments",),
    units: str = "tensor cores",
) -> None:
    """The launches; twice the same results, and those of numbers in float64 but for rounding."""
    device = MixedBackend()
    device.units = units
    assert attention_steps(device, function, *arguments)[0] == [*launches]
    run = device.compile(lower_to_plan(rlx.make_program(function)(*arguments), context=Context.of(device))).run
    found, again = (run([device.memory.put(a) for a in arguments]) for _ in range(2))
    wide = [a.astype("float64") if a.dtype.itemsize == 2 else a for a in arguments]
    expected = rlx.tree.leaves(rlx.jit(function, device="cpu")(*wide))
    types = rlx.tree.leaves(rlx.eval_shape(function, *arguments))
    for x, t, y, z in zip(expected, types, found, again, strict=True):
        first, second = (device.memory.get(made, t.shape, t.dtype) for made in (y, z))
        apart = coarse * max(1.0, float(np.abs(x).max()))
        np.testing.assert_allclose(first.astype("float64"), x, rtol=coarse, atol=apart)
        np.testing.assert_array_equal(first, second)


def test_reading_an_array_does_not_wait_for_later_work(backend: OpenCLBackend) -> None:
    """A copy between devices runs beside kernels that are queued after the value."""
    engine: Any = backend.engine
    x = rlx.device_put(np.arange(8, dtype=np.float32), "opencl")
    y = rlx.jit(lambda x: x + 1.0)(x).block_until_ready()
    gate = engine._cl.UserEvent(engine._context)
    engine._cl.enqueue_marker(engine._queue, wait_for=[gate])
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(np.asarray(y)))
    try:
        later = rlx.jit(lambda x: x * 2.0)(y)
        reader.start()
        reader.join(60)
        assert found and found[0].tolist() == list(range(1, 9))
        assert not engine.is_done(engine.mark())
    finally:
        gate.set_status(engine._cl.command_execution_status.COMPLETE)
    np.testing.assert_array_equal(later, 2.0 * np.arange(1, 9))
