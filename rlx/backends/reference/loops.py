"""Loops in NumPy: every instruction at once over the iteration space, block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.code.scalars import apply, identity, reducer_function
from rlx.ir.kernels import Access, Instruction, Loops, Store, reaches_apart
from rlx.ir.types import compute_dtype, is_complex, is_narrow
from rlx.ir.verify_loops import element_levels, store_runs_once

__all__ = ["run_loops", "strided_view"]

# elements of the iteration space held at once, if the outermost dimension can be split
_BLOCK_ELEMENTS = 1 << 22


def run_loops(kernel: Loops, operands: Sequence[np.ndarray]) -> None:
    """Run the kernel on flat arrays, one for each of its operands."""
    memory = [_real(array) for array in operands]
    levels = element_levels(kernel)
    for chunk in range(kernel.chunks):
        whole = _ChunkRows(kernel, memory, levels, *_chunk_range(kernel, chunk), chunk)
        for store in kernel.stores:
            if store.initialize:
                whole.initialize(store)
        for start, stop in _cut(kernel, whole.start, whole.stop):
            _ChunkRows(kernel, memory, levels, start, stop, chunk).run()


def strided_view(memory: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> np.ndarray:
    """A view of flat memory, strides and offset in elements; ValueError beyond its bounds."""
    if 0 in shape:
        return np.empty(shape, memory.dtype)
    size = memory.itemsize
    view = np.ndarray(
        shape, np.uint8 if size == 1 else f"V{size}", memory.view(np.uint8), offset * size,
        tuple(s * size for s in strides),
    )  # fmt: skip
    return view.view(memory.dtype)


def _real(array: np.ndarray) -> np.ndarray:
    if is_complex(array.dtype):
        return array.view(np.dtype(f"f{array.dtype.itemsize // 2}"))
    return array


def _chunk_range(kernel: Loops, chunk: int) -> tuple[int, int]:
    size = kernel.sizes[0] if kernel.sizes else 1
    return size * chunk // kernel.chunks, size * (chunk + 1) // kernel.chunks


def _cut(kernel: Loops, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Ranges of dimension 0 that are small enough to compute at once."""
    if kernel.outer == 0:
        yield start, stop
        return
    step = max(1, _BLOCK_ELEMENTS // max(1, math.prod(kernel.sizes[1:])))
    for first in range(start, stop, step):
        yield first, min(first + step, stop)


@dataclass(slots=True)
class _ChunkRows:
    """A range of dimension 0 of one chunk, in which everything is computed at once.

    A value is an array with the nest's number of dimensions; its size along each is the block's
    extent, or 1 if it is constant along it.
    """

    kernel: Loops
    memory: list[np.ndarray]
    levels: list[bool]
    start: int
    stop: int
    chunk: int

    @property
    def extents(self) -> tuple[int, ...]:
        if not self.kernel.sizes:
            return ()
        return (self.stop - self.start, *self.kernel.sizes[1:])

    def run(self) -> None:
        """Evaluate every instruction, then write every store."""
        if 0 in self.extents[: self.kernel.outer]:
            return
        values: list[np.ndarray] = []
        for instruction in self.kernel.instructions:
            values.append(self.evaluate(instruction, [values[n] for n in instruction.args]))
        for store in self.kernel.stores:
            self.store(store, values)

    # -------------------------------------------------------------- values
    def evaluate(self, instruction: Instruction, arguments: list[np.ndarray]) -> np.ndarray:
        """The instruction's value over the block."""
        op = instruction.op
        if op == "constant":
            little = np.frombuffer(instruction.attribute, instruction.dtype.newbyteorder("<"))
            return little.astype(instruction.dtype).reshape((1,) * len(self.extents))
        if op == "index":
            return self.index(instruction.attribute)
        if op == "load":
            return self.load(instruction, arguments)
        if op == "reduce":
            return self.reduce(instruction, arguments[0])
        if op == "cumulate":
            shape = (*arguments[0].shape[:-1], self.extents[-1])
            function = reducer_function(instruction.attribute)
            row = np.broadcast_to(arguments[0], shape)
            return function.accumulate(row, axis=-1, dtype=instruction.dtype)
        return apply(instruction, arguments)

    def index(self, dimension: int) -> np.ndarray:
        """Iteration numbers along a dimension."""
        first = self.start if dimension == 0 else 0
        numbers = np.arange(first, first + self.extents[dimension], dtype=np.int64)
        rest = len(self.extents) - dimension - 1
        return numbers.reshape((1,) * dimension + (-1,) + (1,) * rest)

    def addresses(self, access: Access) -> np.ndarray:
        """Element numbers of the access, broadcastable over the block."""
        total = np.full((1,) * len(self.extents), access.offset, np.int64)
        total = total + access.chunk_stride * self.chunk
        for dimension, stride in enumerate(access.strides):
            if stride:
                total = total + self.index(dimension) * stride
        return total

    def load(self, instruction: Instruction, arguments: list[np.ndarray]) -> np.ndarray:
        """Elements of an operand through a static access, or gathered."""
        access: Access = instruction.attribute
        memory = self.memory[access.operand]
        if arguments:
            addresses = self.addresses(access) + arguments[0]
            _check_bounds(addresses, memory.size, "gather")
            loaded = memory[addresses]
        else:
            shape = tuple(e if s else 1 for e, s in zip(self.extents, access.strides, strict=True))
            loaded = strided_view(memory, shape, access.strides, access.first(self.start, self.chunk))
            if self.is_stored(memory):
                loaded = loaded.copy()
        return loaded.astype(compute_dtype(memory.dtype)) if is_narrow(memory.dtype) else loaded

    def is_stored(self, memory: np.ndarray) -> bool:
        """Whether a store of the kernel may touch the bytes of an operand."""
        targets = (self.memory[s.access.operand] for s in self.kernel.stores)
        return any(np.may_share_memory(memory, target) for target in targets)

    def reduce(self, instruction: Instruction, argument: np.ndarray) -> np.ndarray:
        """Combine an argument over all row dimensions."""
        outer = self.kernel.outer
        row = np.broadcast_to(argument, argument.shape[:outer] + self.extents[outer:])
        axes = tuple(range(outer, len(self.extents)))
        reduced = reducer_function(instruction.attribute).reduce(
            row, axis=axes, dtype=instruction.dtype, keepdims=True,
            initial=identity(instruction.attribute, instruction.dtype),
        )  # fmt: skip
        return np.asarray(reduced)

    # -------------------------------------------------------------- stores
    def initialize(self, store: Store) -> None:
        """Set the elements that an accumulating store reaches to its reducer's identity."""
        memory = self.memory[store.access.operand]
        shape = tuple(e if s else 1 for e, s in zip(self.extents, store.access.strides, strict=True))
        view = strided_view(memory, shape, store.access.strides, store.access.first(self.start, self.chunk))
        assert store.accumulate is not None
        view[...] = identity(store.accumulate, memory.dtype)

    def store(self, store: Store, values: list[np.ndarray]) -> None:
        """Write one store over the whole block, in iteration order."""
        extents = self.extents
        if store_runs_once(self.kernel, store, self.levels):
            extents = extents[: self.kernel.outer] + (1,) * (len(extents) - self.kernel.outer)
        memory = self.memory[store.access.operand]
        value = np.broadcast_to(values[store.value], extents)
        static = store.address is None and store.guard is None
        if static and reaches_apart(store.access.strides, extents):
            view = strided_view(memory, extents, store.access.strides, store.access.first(self.start, self.chunk))
            view[...] = _combined(view, value, store.accumulate).astype(memory.dtype)
            return
        addresses = self.addresses(store.access)
        if store.address is not None:
            addresses = addresses + values[store.address]
        addresses = np.broadcast_to(addresses, extents).ravel()
        value = value.ravel()
        if store.guard is not None:
            taken = np.broadcast_to(values[store.guard], extents).ravel()
            addresses, value = addresses[taken], value[taken]
        _check_bounds(addresses, memory.size, "store")
        _scatter(memory, addresses, value, store.accumulate)


def _combined(old: np.ndarray, value: np.ndarray, accumulate: str | None) -> np.ndarray:
    """The result of an accumulating store, before rounding to a narrow dtype."""
    if accumulate is None:
        return value
    return np.asarray(reducer_function(accumulate)(old.astype(value.dtype), value))


def _scatter(memory: np.ndarray, addresses: np.ndarray, value: np.ndarray, accumulate: str | None) -> None:
    """Write values at addresses in order; the last one wins, or each is combined."""
    if accumulate is None:
        memory[addresses] = value.astype(memory.dtype)
    elif memory.dtype == value.dtype:
        reducer_function(accumulate).at(memory, addresses, value)
    else:
        for wave in _waves(addresses):
            where = addresses[wave]
            combined = _combined(memory[where], value[wave], accumulate)
            memory[where] = combined.astype(memory.dtype)


def _waves(addresses: np.ndarray) -> Iterator[np.ndarray]:
    """Positions of the first, second, ... occurrence of each address."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    first = np.searchsorted(ordered, ordered, side="left")
    occurrence = np.arange(len(ordered)) - first
    for number in range(int(occurrence.max(initial=-1)) + 1):
        yield order[occurrence == number]


def _check_bounds(addresses: np.ndarray, size: int, what: str) -> None:
    if addresses.size and (addresses.min() < 0 or addresses.max() >= size):
        raise IndexError(f"{what} reaches elements {addresses.min()} to {addresses.max()} of a buffer of {size}")
