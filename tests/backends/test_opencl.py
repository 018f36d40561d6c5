"""The OpenCL device: every primitive, every way in which a nest becomes a grid, loops that the host drives.

`make test-opencl` installs a runtime for processors and runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import test_primitives
from primitive_cases import cases

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax

wanted = os.environ.get("RLX_TEST_OPENCL") == "1"
if not wanted:
    pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")

from rlx.backends.gpu.mapping import grid_of, spread  # noqa: E402
from rlx.backends.opencl import OpenCLBackend  # noqa: E402
from rlx.backends.opencl.dialect import OpenCLDialect  # noqa: E402
from rlx.ir.kernels import Loops  # noqa: E402
from rlx.passes.pipeline import lower_to_plan  # noqa: E402


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


# ------------------------------------------------------------------ grids
def grids(function: Any, *arguments: Any) -> list[Any]:
    """The grids of a program's nests."""
    program = rlx.make_program(function)(*arguments)
    plan = lower_to_plan(program, None, OpenCLBackend().lowering)
    return [grid_of(k, 256, OpenCLDialect()) for k in plan.kernels if isinstance(k, Loops)]


def test_elements_are_points(backend: OpenCLBackend) -> None:
    x = numbers(37, 41)
    (grid,) = grids(lambda x: jnp.exp(x) * 2, x)
    assert (grid.points, grid.items, grid.atomic) == (37 * 41, 1, False)
    agree(lambda x: jnp.exp(x) * 2, x)


def test_a_group_shares_a_long_row(backend: OpenCLBackend) -> None:
    x = numbers(5, 1000)
    (grid,) = grids(nn.softmax, x)
    assert (grid.points, grid.items) == (5, 256)
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


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "float64", "int64"])
def test_points_that_meet(dtype: str, backend: OpenCLBackend) -> None:
    """Atomically where memory does that, else one after the other."""
    x = np.arange(1, 3001).astype(dtype)
    index = (np.arange(3000) * 7919 % 13).astype(np.int32)

    def scattered(x: Any, index: Any) -> Any:
        zeros = jnp.zeros(13, dtype)
        return zeros.at[index].add(x), zeros.at[index].max(x), zeros.at[index].min(-x if dtype[0] != "u" else x)

    found = [g.atomic for g in grids(scattered, x, index)]
    assert any(found) == (dtype in ("float32", "int32", "uint32"))
    agree(scattered, x, index, exact=True)  # whole numbers: any order gives the same sum


def test_the_last_of_several_writes_stays(backend: OpenCLBackend) -> None:
    index = (np.arange(500) * 31 % 7).astype(np.int32)
    agree(lambda x, i: jnp.zeros(7).at[i].set(x), numbers(500), index, exact=True)


def test_what_runs_in_order_is_not_spread() -> None:
    """A cumulative sum keeps its row; a map over rows does not."""
    x = numbers(4, 50)
    program = rlx.make_program(lambda x: jnp.cumsum(x, -1))(x)
    kernels = [k for k in lower_to_plan(program, None, OpenCLBackend().lowering).kernels if isinstance(k, Loops)]
    assert all(spread(k) is k for k in kernels if any(i.op == "cumulate" for i in k.instructions))
    agree(lambda x: jnp.cumsum(x, -1), x)


# ------------------------------------------------------------------ programs
def step(carry: Any, x: Any) -> Any:
    """A loop's body."""
    after = jnp.tanh(carry * 0.9 + x)
    return after, (after.sum(), x * 2)


PROGRAMS = {
    "product": (lambda x: (x @ x.T).sum(0), numbers(17, 33)),
    "complex product": (lambda x: (x + 1j) @ (x.T - 2j), numbers(9, 8)),
    "scan": (lambda x: lax.scan(step, jnp.zeros(5), x), numbers(6, 5)),
    "reverse scan": (lambda x: lax.scan(step, jnp.zeros(5), x, reverse=True), numbers(7, 5)),
    "gradient of a scan": (rlx.grad(lambda x: (lax.scan(step, jnp.zeros(5), x)[1][0] ** 2).sum()), numbers(6, 5)),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 100.0, lambda c: c * 1.5 + 1, x), np.abs(numbers(4, 3))),
    "branch": (lambda x: lax.switch((x.sum() > 0).astype("int32"), [jnp.sin, jnp.cos], x), numbers(3, 4)),
    "sort on the host": (lambda x: (jnp.sort(x), jnp.linalg.inv(x[:5] + 4 * jnp.eye(5))), numbers(6, 5)),
    "bfloat16": (lambda x: (x.astype("bfloat16") * 3).sum(-1), numbers(8, 100)),
    "random bits": (lambda x: rlx.random.bits(rlx.random.key(3), (100,)) + x.astype("uint32"), np.arange(100.0)),
    "batched gradient": (rlx.vmap(rlx.grad(lambda x: (nn.softmax(x) * jnp.sin(x)).sum())), numbers(5, 64)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, backend: OpenCLBackend) -> None:
    agree(*PROGRAMS[name])


def test_texts_show_what_is_compiled(backend: OpenCLBackend) -> None:
    executable = rlx.call.compiled.CompiledProgram(rlx.make_program(jnp.exp)(numbers(3)), backend).executable
    assert executable is not None
    assert "__kernel void" in executable.texts()["opencl"]


def test_without_the_package() -> None:
    """An error says what to install."""
    program = "import sys; sys.modules['pyopencl'] = None\nimport rlx\nrlx.jit(lambda x: x, device='opencl')(1.0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "DeviceError" in done.stderr and "pip install 'rlx[opencl]'" in done.stderr, done.stderr
