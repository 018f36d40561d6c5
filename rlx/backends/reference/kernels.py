"""Every kernel kind in NumPy, over a mapping from buffers to flat arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.backends.reference.loops import run_loops, strided_view
from rlx.backends.routines import LIBRARY_ROUTINES
from rlx.code.scalars import cast
from rlx.errors import CallbackError
from rlx.ir.collectives import exchange
from rlx.ir.kernels import (
    Branch,
    Buffer,
    Callback,
    Collective,
    Contract,
    Kernel,
    Library,
    Loops,
    Operand,
    Plan,
    RowTiles,
    Scan,
    Sort,
    While,
)
from rlx.ir.types import compute_dtype, is_narrow

__all__ = ["Memory", "RunPlan", "empty_garbage", "run_kernel"]

Memory = dict[Buffer, np.ndarray]
RunPlan = Callable[[Plan, Sequence[np.ndarray], Sequence[np.ndarray]], None]

GARBAGE = 0xAB


def run_kernel(kernel: Kernel, memory: Memory, run: RunPlan) -> None:
    """Run one kernel; `run` runs the plans inside it."""
    _RUNNERS[type(kernel)](kernel, memory, run)


def empty_garbage(size: int, dtype: np.dtype) -> np.ndarray:
    """A flat array whose bytes are an unlikely pattern, so that reads of unwritten elements are noticed."""
    return np.full(size * dtype.itemsize, GARBAGE, np.uint8).view(dtype)


def _array(operand: Operand, memory: Memory) -> np.ndarray:
    return strided_view(memory[operand.buffer], operand.shape, operand.strides, operand.offset)


def _arrays(buffers: Sequence[Buffer], memory: Memory) -> list[np.ndarray]:
    return [memory[b] for b in buffers]


def _fresh(buffers: Sequence[Buffer]) -> list[np.ndarray]:
    return [empty_garbage(b.size, b.dtype) for b in buffers]


def _write(targets: Sequence[Operand], results: Sequence[Any], memory: Memory, what: str) -> None:
    """Copy the results of host code to the output operands, checking shapes and dtypes."""
    if len(results) != len(targets):
        raise CallbackError(f"{what} returned {len(results)} arrays, not {len(targets)}")
    for target, result in zip(targets, results, strict=True):
        array = np.asarray(result)
        dtype = target.buffer.dtype
        if array.shape != target.shape or array.dtype != dtype:
            raise CallbackError(
                f"{what} returned {array.dtype}{list(array.shape)}, "
                f"{dtype}{list(target.shape)} was expected"
            )
        _array(target, memory)[...] = array


# ------------------------------------------------------------------ straight-line kinds
def _loops(kernel: Loops, memory: Memory, run: RunPlan) -> None:
    run_loops(kernel, _arrays(kernel.operands, memory))


def _contract(kernel: Contract, memory: Memory, run: RunPlan) -> None:
    out, wide = _array(kernel.out, memory), kernel.summed_in
    lhs, rhs = (_array(operand, memory).astype(wide, copy=False) for operand in (kernel.lhs, kernel.rhs))
    if kernel.tf32:
        lhs, rhs = _tf32(lhs), _tf32(rhs)
    product = np.matmul(lhs, rhs)
    out[...] = cast(out.astype(wide) + product if kernel.accumulate else product, out.dtype)


def _tf32(array: np.ndarray) -> np.ndarray:
    """Round float32 numbers to a mantissa of ten bits, ties to even; the dtype is unchanged."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0xFFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(array), rounded.view(np.float32), array).astype(array.dtype)


def _row_tiles(kernel: RowTiles, memory: Memory, run: RunPlan) -> None:
    local = dict(zip(kernel.local, _fresh(kernel.local), strict=True))
    for inner in kernel.kernels:
        run_kernel(inner, memory | local, run)


def _sort(kernel: Sort, memory: Memory, run: RunPlan) -> None:
    shape = (kernel.rows, kernel.length)
    rows = [memory[b].reshape(shape) for b in kernel.inputs]
    keys = [_comparable(a) for a in rows[: kernel.keys]]
    # the last key of lexsort is the primary key; it is stable and puts NaN last
    order = np.lexsort(keys[::-1], axis=-1)
    results = [np.take_along_axis(a, order, axis=-1) for a in rows]
    if kernel.index:
        results.append(order)
    for buffer, result in zip(kernel.outputs, results, strict=True):
        memory[buffer].reshape(shape)[...] = result


def _comparable(keys: np.ndarray) -> np.ndarray:
    return keys.astype(compute_dtype(keys.dtype)) if is_narrow(keys.dtype) else keys


def _library(kernel: Library, memory: Memory, run: RunPlan) -> None:
    inputs = [_array(o, memory) for o in kernel.inputs]
    if kernel.meaning is not None:
        flat = [np.empty(b.size, b.dtype) for b in kernel.meaning.outputs]
        run(kernel.meaning, [np.ascontiguousarray(a).reshape(-1) for a in inputs], flat)
        shaped = [a.reshape(o.shape) for a, o in zip(flat, kernel.outputs, strict=True)]
        _write(kernel.outputs, shaped, memory, f"block {kernel.routine}")
        return
    results = LIBRARY_ROUTINES[kernel.routine](inputs, kernel.attributes)
    _write(kernel.outputs, results, memory, f"library routine {kernel.routine}")


def _callback(kernel: Callback, memory: Memory, run: RunPlan) -> None:
    inputs = [np.array(_array(o, memory), order="C", copy=True) for o in kernel.inputs]
    with np.errstate(all="warn"):
        results = kernel.function(*inputs)
    name = getattr(kernel.function, "__name__", "callback")
    _write(kernel.outputs, () if results is None else results, memory, f"callback {name}")


def _collective(kernel: Collective, memory: Memory, run: RunPlan) -> None:
    source, target = (_array(operand, memory) for operand in (kernel.input, kernel.output))
    exchange(kernel.exchange, kernel.mark, source, target, kernel.origins)


# ------------------------------------------------------------------ control flow
def _scan(kernel: Scan, memory: Memory, run: RunPlan) -> None:
    constants = _arrays(kernel.constants, memory)
    xs, ys = _arrays(kernel.xs, memory), _arrays(kernel.ys, memory)
    carries = [a.copy() for a in _arrays(kernel.initial, memory)]
    next_buffers = kernel.body.outputs[: len(carries)]
    for step in range(kernel.length):
        place = kernel.length - 1 - step if kernel.reverse else step
        slices = [_slice(a, place, kernel.length) for a in xs]
        following = _following(next_buffers, carries, kernel.in_place)
        written = [_slice(a, place, kernel.length) for a in ys]
        run(kernel.body, [*constants, *carries, *slices], [*following, *written])
        carries = following
    _assign(kernel.final, carries, memory)


def _following(
    buffers: Sequence[Buffer], carries: Sequence[np.ndarray], in_place: Sequence[int]
) -> list[np.ndarray]:
    """The buffers for a step's next carries: the current buffers for carries updated in place."""
    return [
        carry if number in in_place else fresh
        for number, (carry, fresh) in enumerate(zip(carries, _fresh(buffers), strict=True))
    ]


def _slice(array: np.ndarray, place: int, length: int) -> np.ndarray:
    size = array.size // length
    return array[place * size : (place + 1) * size]


def _assign(buffers: Sequence[Buffer], arrays: Sequence[np.ndarray], memory: Memory) -> None:
    for buffer, array in zip(buffers, arrays, strict=True):
        memory[buffer][...] = array


def _while(kernel: While, memory: Memory, run: RunPlan) -> None:
    condition_constants = _arrays(kernel.condition_constants, memory)
    body_constants = _arrays(kernel.body_constants, memory)
    carries = [a.copy() for a in _arrays(kernel.initial, memory)]
    while True:
        holds = np.zeros(1, bool)
        run(kernel.condition, [*condition_constants, *carries], [holds])
        if not holds[0]:
            break
        following = _following(kernel.body.outputs, carries, kernel.in_place)
        run(kernel.body, [*body_constants, *carries], following)
        carries = following
    _assign(kernel.final, carries, memory)


def _branch(kernel: Branch, memory: Memory, run: RunPlan) -> None:
    number = min(max(int(memory[kernel.index][0]), 0), len(kernel.branches) - 1)
    run(
        kernel.branches[number],
        _arrays(kernel.inputs, memory),
        _arrays(kernel.outputs, memory),
    )


_RUNNERS: dict[type[Kernel], Callable[[Any, Memory, RunPlan], None]] = {
    Loops: _loops,
    Contract: _contract,
    RowTiles: _row_tiles,
    Sort: _sort,
    Library: _library,
    Callback: _callback,
    Collective: _collective,
    Scan: _scan,
    While: _while,
    Branch: _branch,
}
