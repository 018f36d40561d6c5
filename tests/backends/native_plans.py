"""Plans and helpers of the tests of the CPU's run-time system."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from loop_plans import BOOL, FLOAT, INT, constant, elementwise, load, plan_of

from rlx.backends.base import Backend
from rlx.backends.cpu import CpuBackend
from rlx.backends.reference import ReferenceBackend
from rlx.ir.kernels import (
    Access,
    Buffer,
    Callback,
    Contract,
    Instruction,
    Kernel,
    Loops,
    Operand,
    Plan,
    Scan,
    Store,
    While,
)

ROOT = Path(__file__).resolve().parents[2]


def results(backend: Backend, plan: Plan, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a backend computes, as flat arrays."""
    memory = backend.memory
    storages = backend.compile(plan).run([memory.put(np.ascontiguousarray(a)) for a in arrays])
    return [memory.get(s, (b.size,), b.dtype) for s, b in zip(storages, plan.outputs, strict=True)]


def native(plan: Plan, *arrays: np.ndarray) -> list[np.ndarray]:
    """Results on the CPU backend."""
    return results(CpuBackend(), plan, arrays)


def agree(plan: Plan, *arrays: np.ndarray, rtol: float = 0.0) -> list[np.ndarray]:
    """Check the CPU backend against the reference; its results."""
    actual = native(plan, *arrays)
    expected = results(ReferenceBackend(), plan, arrays)
    for mine, theirs in zip(actual, expected, strict=True):
        if rtol:
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol)
        else:
            assert mine.tobytes() == theirs.tobytes(), (mine, theirs)
    return actual


def operand(buffer: Buffer, *shape: int) -> Operand:
    """A contiguous operand."""
    strides = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
    return Operand(buffer, shape, strides)


def add_kernel(left: Buffer, right: Buffer, out: Buffer, parallel: int = 0) -> Loops:
    """out = left + right."""
    return Loops(
        (out.size,), 1, (left, right, out),
        (load(0, 1, dtype=out.dtype), load(1, 1, dtype=out.dtype),
         Instruction("add", (0, 1), out.dtype)),
        (Store(2, Access(2, (1,))),), parallel,
    )  # fmt: skip


def add_plan(size: int, parallel: int = 0, dtype: np.dtype = FLOAT) -> Plan:
    """One kernel: x + y."""
    x, y, out = Buffer(dtype, size, "input"), Buffer(dtype, size, "input"), Buffer(dtype, size, "output")
    return plan_of([add_kernel(x, y, out, parallel)], [x, y], [out])


def callback_plan(function, size: int = 4) -> Plan:
    """One callback: x -> y."""
    x, y = Buffer(FLOAT, size, "input"), Buffer(FLOAT, size, "output")
    return plan_of([Callback(function, (operand(x, size),), (operand(y, size),))], [x], [y])


def counting_plan(limit: int, kernels_per_turn: int = 1) -> Plan:
    """A while loop from x up to `limit` by ones, in int64; its body is a plan of kernels."""
    value, holds = Buffer(INT, 1, "input"), Buffer(BOOL, 1, "output")
    less = Loops(
        (), 0, (value, holds),
        (load(0, dtype=INT), constant(limit, INT), Instruction("lt", (0, 1), BOOL)),
        (Store(2, Access(1, ())),),
    )  # fmt: skip
    condition = plan_of([less], [value], [holds])
    x, y = Buffer(INT, 1, "input"), Buffer(INT, 1, "output")
    body = plan_of([increment(x, y)] * kernels_per_turn, [x], [y])
    start, final = Buffer(INT, 1, "input"), Buffer(INT, 1, "output")
    loop = While(condition, body, (), (), (start,), (final,))
    return plan_of([loop], [start], [final])


def increment(x: Buffer, y: Buffer) -> Loops:
    """y = x + 1, one int64."""
    return Loops(
        (), 0, (x, y),
        (load(0, dtype=INT), constant(1, INT), Instruction("add", (0, 1), INT)),
        (Store(2, Access(1, ())),),
    )  # fmt: skip


def running_sum_body(size: int, inner: Sequence[Kernel] = ()) -> Plan:
    """(scale, carry, x) -> (carry + scale * x, carry) on vectors."""
    scale, carry, x = (Buffer(FLOAT, size, "input") for _ in range(3))
    following, y = Buffer(FLOAT, size, "output"), Buffer(FLOAT, size, "output")
    product = Buffer(FLOAT, size)
    multiply = Loops(
        (size,), 1, (scale, x, product),
        (load(0, 1), load(1, 1), Instruction("mul", (0, 1), FLOAT)),
        (Store(2, Access(2, (1,))),),
    )  # fmt: skip
    copy = elementwise("neg", carry, y)
    kernels = [multiply, add_kernel(carry, product, following), copy]
    return plan_of(kernels, [scale, carry, x], [following, y], [product], 4 * size)


def scan_kernel(length: int, size: int, reverse: bool, buffers: Sequence[Buffer]) -> Scan:
    """A scan of running_sum_body over (scale, initial, xs, final, ys)."""
    scale, initial, xs, final, ys = buffers
    body = running_sum_body(size)
    return Scan(length, reverse, body, (scale,), (initial,), (xs,), (final,), (ys,))


def scan_plan(length: int, size: int, reverse: bool) -> Plan:
    """One scan over running_sum_body."""
    scale, initial = Buffer(FLOAT, size, "input"), Buffer(FLOAT, size, "input")
    xs = Buffer(FLOAT, size * length, "input")
    final, ys = Buffer(FLOAT, size, "output"), Buffer(FLOAT, size * length, "output")
    kernel = scan_kernel(length, size, reverse, (scale, initial, xs, final, ys))
    return plan_of([kernel], [scale, initial, xs], [final, ys])


def contract_plan(left: Operand, right: Operand, out: Operand, accumulate: bool = False) -> Plan:
    """One Contract; with `accumulate` onto a copy of a third input."""
    inputs, kernels = [left.buffer, right.buffer], []
    if accumulate:
        base = Buffer(out.buffer.dtype, out.buffer.size, "input")
        inputs.append(base)
        kernels.append(copy_kernel(base, out.buffer))
    kernels.append(Contract(left, right, out, accumulate))
    return plan_of(kernels, inputs, [out.buffer])


def copy_kernel(source: Buffer, target: Buffer) -> Loops:
    """target = source, complex ones as real pairs."""
    width = 2 if source.dtype.kind == "c" else 1
    dtype = np.dtype(f"f{source.dtype.itemsize // width}")
    return Loops(
        (source.size * width,), 1, (source, target), (load(0, 1, dtype=dtype),),
        (Store(0, Access(1, (1,))),),
    )  # fmt: skip


def run_python(text: str, timeout: float = 60.0, **environment: str) -> subprocess.CompletedProcess:
    """A fresh interpreter that can import rlx and these helpers."""
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=timeout,
        env={**os.environ, "PYTHONPATH": paths, **environment}, check=False,
    )  # fmt: skip
