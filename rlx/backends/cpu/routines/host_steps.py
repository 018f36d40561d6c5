"""Steps that run on the host under the GIL: Sort, Callback, Collective, Await, some Library kernels: on views of slots.

Each function here makes the Python function that such a step calls with the address of its frame.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.backends.routines import LIBRARY_ROUTINES
from rlx.errors import CallbackError, CollectiveError, UnsupportedError
from rlx.ir.collectives import exchange, start_exchange
from rlx.ir.kernels import Await, Buffer, Callback, Collective, Kernel, Library, Operand, Sort
from rlx.ir.types import compute_dtype, is_narrow

__all__ = ["HostStep", "Underway", "host_function", "sorted_rows"]

HostStep = Callable[[int], None]
SlotOf = Callable[[Buffer], int]
View = Callable[[int], np.ndarray]


class Underway:
    """The exchanges that have begun, by the frame of the call and the buffer that each will write.

    It also has the functions that callbacks want to be called if the call fails after them.
    """

    def __init__(self) -> None:
        self._waits: dict[int, dict[Buffer, Callable[[], None]]] = {}
        self._failures: dict[int, dict[Callable[[], None], None]] = {}

    def on_failure(self, frame: int, function: Callable[[], None]) -> None:
        """Call a function if this call, or a later one on the frame, fails."""
        self._failures.setdefault(frame, {})[function] = None

    def begin(self, frame: int, target: Buffer, wait: Callable[[], None]) -> None:
        """Register an exchange in progress; `wait` returns when it has ended."""
        self._waits.setdefault(frame, {})[target] = wait

    def end(self, frame: int, target: Buffer) -> None:
        """Wait for the exchange that writes a buffer, and raise its error."""
        self._waits[frame].pop(target)()

    def abandon(self, frame: int) -> None:
        """Wait until nothing uses a frame whose call has failed.

        Raises: the error of the first exchange that has failed; later errors only repeat it.
        """
        for function in self._failures.pop(frame, {}):
            function()
        errors: list[CollectiveError] = []
        for wait in self._waits.pop(frame, {}).values():
            try:
                wait()
            except CollectiveError as error:
                errors += [error]
        if errors and isinstance(sys.exception(), CollectiveError):
            raise errors[0] from None


def host_function(kernel: Kernel, slot_of: SlotOf, underway: Underway) -> HostStep:
    """The Python function that runs a kernel on the buffers of a frame."""
    if isinstance(kernel, Sort):
        return _sort_step(kernel, slot_of)
    if isinstance(kernel, Library):
        return _library_step(kernel, slot_of)
    if isinstance(kernel, Callback):
        return _callback_step(kernel, slot_of, underway)
    if isinstance(kernel, Collective):
        return _collective_step(kernel, slot_of, underway)
    if isinstance(kernel, Await):
        return lambda frame: underway.end(frame, kernel.output.buffer)
    raise UnsupportedError(f"the CPU has no kernels of kind {type(kernel).__name__}")


def _view(operand: Operand, slot_of: SlotOf) -> View:
    """A function from a frame to the operand as an array over the memory of its slot."""
    buffer, shape = operand.buffer, operand.shape
    place = 8 * slot_of(buffer)
    memory_type = ctypes.c_char * buffer.nbytes
    dtype, item = buffer.dtype, buffer.dtype.itemsize
    strides = tuple(stride * item for stride in operand.strides)
    offset = operand.offset * item
    read_word = ctypes.c_int64.from_address
    if 0 in shape:
        return lambda frame: np.empty(shape, dtype)

    def view(frame: int) -> np.ndarray:
        memory = memory_type.from_address(read_word(frame + place).value)
        return np.ndarray(shape, dtype, memoryview(memory), offset, strides)

    return view


def _rows(buffer: Buffer, kernel: Sort, slot_of: SlotOf) -> View:
    shape = (kernel.rows, kernel.length)
    return _view(Operand(buffer, shape, (kernel.length, 1)), slot_of)


def _views(operands: Sequence[Operand], slot_of: SlotOf) -> list[View]:
    return [_view(operand, slot_of) for operand in operands]


def _sort_step(kernel: Sort, slot_of: SlotOf) -> HostStep:
    inputs = [_rows(buffer, kernel, slot_of) for buffer in kernel.inputs]
    outputs = [_rows(buffer, kernel, slot_of) for buffer in kernel.outputs]
    keys, index = kernel.keys, kernel.index

    def sort(frame: int) -> None:
        results = sorted_rows([view(frame) for view in inputs], keys, index)
        for view, result in zip(outputs, results, strict=True):
            view(frame)[...] = result

    return sort


def sorted_rows(arrays: Sequence[np.ndarray], keys: int, index: bool) -> list[np.ndarray]:
    """Arrays of rows sorted together, stably, by the first `keys`; the permutation if `index`."""
    comparable = [_comparable(array) for array in arrays[:keys]]
    if len(arrays) == 1 and not index and comparable[0] is arrays[0]:
        return [_sorted_alone(arrays[0])]
    if keys == 1:
        order = _stable_order(comparable[0])
    else:
        order = np.lexsort(comparable[::-1], axis=-1)
    results = [np.take_along_axis(array, order, axis=-1) for array in arrays]
    return [*results, order] if index else results


def _stable_order(keys: np.ndarray) -> np.ndarray:
    """The stable sorting permutation of each row.

    Keys of 32 bits are sorted together with their positions as one 64-bit integer, which NumPy sorts
    with vector instructions; its stable argsort is a merge sort, several times slower.
    """
    length = keys.shape[-1]
    if keys.dtype.itemsize != 4 or not 64 <= length < 1 << 32:
        return np.argsort(keys, axis=-1, kind="stable")
    packed = _ordered_bits(keys).astype(np.uint64)
    packed <<= np.uint64(32)
    packed |= np.arange(length, dtype=np.uint64)
    packed.sort(axis=-1)
    packed &= np.uint64(0xFFFFFFFF)
    return packed.astype(np.int64)


def _ordered_bits(keys: np.ndarray) -> np.ndarray:
    """uint32 that order as the 32-bit keys do: NaN last, -0. equal to 0."""
    sign = np.uint32(1 << 31)
    if keys.dtype.kind == "u":
        return keys
    if keys.dtype.kind == "i":
        return keys.view(np.uint32) ^ sign
    bits = (keys + np.float32(0)).view(np.uint32)  # -0. + 0. is 0.
    ordered = np.where(bits & sign, ~bits, bits | sign)
    ordered[np.isnan(keys)] = np.uint32(0xFFFFFFFF)
    return ordered


def _sorted_alone(rows: np.ndarray) -> np.ndarray:
    """Rows sorted fast; equal elements that can be told apart (zeros by their sign, NaN by its
    bits) are put back in their original order."""
    result = np.sort(rows, axis=-1)
    if rows.dtype.kind == "f" and rows.size:
        zeros = result == 0
        if zeros.any():
            result[zeros] = rows[rows == 0]
        if np.isnan(result[..., -1]).any():
            result[np.isnan(result)] = rows[np.isnan(rows)]
    return result


def _comparable(keys: np.ndarray) -> np.ndarray:
    """Keys that NumPy orders as rlx does."""
    return keys.astype(compute_dtype(keys.dtype)) if is_narrow(keys.dtype) else keys


def _write(targets: Sequence[np.ndarray], results: Sequence[Any], what: str) -> None:
    """Copy the results of host code to the outputs, checking its shapes and dtypes."""
    if len(results) != len(targets):
        raise CallbackError(f"{what} returned {len(results)} arrays, not {len(targets)}")
    for target, result in zip(targets, results, strict=True):
        array = np.asarray(result)
        if array.shape != target.shape or array.dtype != target.dtype:
            raise CallbackError(
                f"{what} returned {array.dtype}{list(array.shape)}, "
                f"{target.dtype}{list(target.shape)} was expected"
            )
        target[...] = array


def _library_step(kernel: Library, slot_of: SlotOf) -> HostStep:
    routine = LIBRARY_ROUTINES.get(kernel.routine)
    if routine is None:
        known = ", ".join(sorted(LIBRARY_ROUTINES))
        raise UnsupportedError(
            f"the CPU has no library routine {kernel.routine!r}", f"there are: {known}"
        )
    inputs, outputs = _views(kernel.inputs, slot_of), _views(kernel.outputs, slot_of)
    attributes, what = kernel.attributes, f"library routine {kernel.routine}"

    def run(frame: int) -> None:
        results = routine([view(frame) for view in inputs], attributes)
        _write([view(frame) for view in outputs], results, what)

    return run


def _callback_step(kernel: Callback, slot_of: SlotOf, underway: Underway) -> HostStep:
    inputs, outputs = _views(kernel.inputs, slot_of), _views(kernel.outputs, slot_of)
    function = kernel.function
    what = f"callback {getattr(function, '__name__', 'callback')}"
    on_failure = getattr(function, "on_failure", None)

    def call(frame: int) -> None:
        if on_failure is not None:
            underway.on_failure(frame, on_failure)
        results = function(*(np.array(view(frame), order="C") for view in inputs))
        _write([view(frame) for view in outputs], () if results is None else results, what)

    return call


def _collective_step(kernel: Collective, slot_of: SlotOf, underway: Underway) -> HostStep:
    source, target = _views((kernel.input, kernel.output), slot_of)

    def run(frame: int) -> None:
        exchange(kernel.exchange, kernel.mark, source(frame), target(frame), kernel.origins)

    def begin(frame: int) -> None:
        wait = start_exchange(kernel.exchange, kernel.mark, source(frame), target(frame), kernel.origins)
        underway.begin(frame, kernel.output.buffer, wait)

    return begin if kernel.awaited else run
