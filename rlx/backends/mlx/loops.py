"""Loop nests over MLX: each instruction at once over the iteration space, each store a new value of its buffer."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from rlx.backends.mlx.library import MxArray, dtype_of_memory, mx
from rlx.backends.mlx.narrow import decode, encode
from rlx.backends.mlx.reductions import cumulate, reduce, scatter
from rlx.backends.mlx.scalar import Value, combine, constant, operation
from rlx.backends.mlx.views import addresses, flat, overwrite, read, shape_of
from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Store, reaches_apart
from rlx.ir.scalar import neutral
from rlx.ir.types import dtype_kind, element_dtype, is_narrow
from rlx.ir.verify_loops import element_levels, store_runs_once

__all__ = ["Buffers", "run_loops", "why_not"]

# the elements of each buffer, of MLX's dtype for it (see ir.types.memory_dtype) and of any shape
Buffers = dict[Buffer, MxArray]


def why_not(kernel: Loops) -> str | None:
    """What in a kernel MLX has no operation for; None where all of it runs there."""
    for instruction in kernel.instructions:
        if instruction.op == "special":
            return f"{instruction.attribute}: MLX has no such function"
    for store in kernel.stores:
        if store.accumulate not in ("and", "or", "xor") or _is_separable(kernel, store):
            continue
        if dtype_kind(kernel.instructions[store.value].dtype) != "b" or store.accumulate == "xor":
            return f"scatter of {store.accumulate}: MLX scatters sums, products and extrema"
    return None


def run_loops(kernel: Loops, buffers: Buffers) -> None:
    """Run the kernel; the buffers that it writes get new arrays."""
    levels = element_levels(kernel)
    size = kernel.sizes[0] if kernel.sizes else 1
    for chunk in range(kernel.chunks):
        start, stop = size * chunk // kernel.chunks, size * (chunk + 1) // kernel.chunks
        _Block(kernel, buffers, levels, start, stop, chunk).run()


def _is_separable(kernel: Loops, store: Store) -> bool:
    """Whether each element that a store reaches is one of the iterations along the dimensions that it moves along."""
    return store.address is None and reaches_apart(store.access.strides, kernel.sizes)


def _memory_size(buffer: Buffer) -> int:
    return buffer.size * (2 if buffer.dtype.kind == "c" else 1)


@dataclass(slots=True)
class _Block:
    """A range of dimension 0. A value has no dimensions, or as many as the kernel, each of size 1 or the extent."""

    kernel: Loops
    buffers: Buffers
    levels: list[bool]
    start: int
    stop: int
    chunk: int

    @property
    def extents(self) -> tuple[int, ...]:
        """Sizes of the block."""
        return (self.stop - self.start, *self.kernel.sizes[1:]) if self.kernel.sizes else ()

    def run(self) -> None:
        """Evaluate every instruction, then write every store."""
        values: list[Value] = []
        if 0 not in self.extents[: self.kernel.outer] or any(s.initialize for s in self.kernel.stores):
            for instruction in self.kernel.instructions:
                values.append(self.evaluate(instruction, [values[n] for n in instruction.args]))
            written: Buffers = {}
            for store in self.kernel.stores:
                self.store(store, values, written)
            self.buffers.update(written)

    # -------------------------------------------------------------- values
    def evaluate(self, instruction: Instruction, arguments: list[Value]) -> Value:
        """The instruction's value over the block."""
        op, dtype = instruction.op, instruction.dtype
        if op == "constant":
            number = np.frombuffer(instruction.attribute, dtype.newbyteorder("<")).astype(dtype)[0]
            if is_narrow(dtype):
                code = np.array(number).view(np.dtype(f"u{dtype.itemsize}"))
                return Value(constant(code, code.dtype), dtype)
            return Value(constant(number, dtype), dtype, number)
        if op == "index":
            return Value(self.index(instruction.attribute), dtype)
        if op == "load":
            return Value(self.load(instruction.attribute, arguments), dtype)
        if op == "reduce":
            axes = range(self.kernel.outer, len(self.extents))
            row = self.spread(arguments[0].array, self.extents[self.kernel.outer :])
            return Value(reduce(instruction.attribute, row, tuple(axes), dtype), dtype)
        if op == "cumulate":
            row = self.spread(arguments[0].array, self.extents[-1:])
            return Value(cumulate(instruction.attribute, row, dtype), dtype)
        return Value(operation(instruction, arguments), dtype)

    def spread(self, array: MxArray, last: tuple[int, ...]) -> MxArray:
        """The array with its last dimensions of these sizes."""
        rank = len(self.extents)
        shape = array.shape if array.ndim == rank else (1,) * rank
        wanted = (*shape[: rank - len(last)], *last)
        return array if array.shape == wanted else mx.broadcast_to(array, wanted)

    def index(self, dimension: int) -> MxArray:
        """Iteration numbers along a dimension."""
        first = self.start if dimension == 0 else 0
        extent, rank = self.extents[dimension], len(self.extents)
        numbers = mx.arange(first, first + extent, dtype=mx.int64)
        return mx.reshape(numbers, (1,) * dimension + (extent,) + (1,) * (rank - dimension - 1))

    def load(self, access: Access, arguments: list[Value]) -> MxArray:
        """Elements of an operand through its index map, or gathered."""
        buffer = self.kernel.operands[access.operand]
        memory = self.buffers[buffer]
        if not arguments:
            loaded = read(memory, self.extents, access.strides, access.first(self.start, self.chunk))
        else:
            places = self.addresses(access, arguments[0])
            if 0 in places.shape or not memory.size:
                loaded = mx.zeros(places.shape, memory.dtype)
            else:
                loaded = mx.take(flat(memory), places)
        return decode(buffer.dtype, loaded) if is_narrow(buffer.dtype) else loaded

    def addresses(self, access: Access, moved: Value | None) -> MxArray:
        """Numbers of the elements that an index map reaches, `moved` elements further."""
        fixed = access.offset + access.chunk_stride * self.chunk
        if moved is not None and not fixed and not any(access.strides):
            return moved.array
        places = addresses(self.extents, access.strides, fixed, self.start)
        return places if moved is None else places + moved.array

    # -------------------------------------------------------------- stores
    def store(self, store: Store, values: list[Value], written: Buffers) -> None:
        """The buffer's new value after one store over the whole block."""
        kernel, access = self.kernel, store.access
        buffer = kernel.operands[access.operand]
        extents = self.extents
        if store_runs_once(kernel, store, self.levels):
            extents = extents[: kernel.outer] + (1,) * (len(extents) - kernel.outer)
        target = _Target(buffer, written.get(buffer, self.buffers.get(buffer)))
        value, guard = values[store.value], None if store.guard is None else values[store.guard].array
        if store.address is not None or not reaches_apart(access.strides, shape_of(extents, access.strides)):
            if store.initialize:
                self.initialize(target, store)
            places = self.addresses(access, None if store.address is None else values[store.address])
            target.scatter(store, places, value, guard, extents)
        else:
            self.store_static(target, store, value, guard, extents)
        assert target.array is not None
        written[buffer] = target.array

    def initialize(self, target: _Target, store: Store) -> None:
        """Set what an accumulating store reaches to its reducer's identity."""
        assert store.accumulate is not None
        target.fill(self.addresses(store.access, None), target.identity(store.accumulate))

    def store_static(
        self, target: _Target, store: Store, value: Value, guard: MxArray | None, extents: tuple[int, ...]
    ) -> None:
        """Write through an index map that reaches no element twice but along the dimensions it stands still in."""
        access, base = store.access, store.access.first(self.start, self.chunk)
        array = value.array
        if guard is not None:
            if store.accumulate is None:
                # what is not written keeps its value
                kept = target.load(extents, access.strides, base)
                array = mx.where(guard, array, kept if not is_narrow(value.dtype) else target.codes(kept))
            else:
                array = mx.where(guard, array, _nothing(store.accumulate, value.dtype))
        array = mx.broadcast_to(array, extents) if array.shape != extents else array
        still = tuple(n for n, (size, s) in enumerate(zip(extents, access.strides, strict=True)) if not s and size != 1)
        if store.accumulate is None:
            if any(extents[n] == 0 for n in still):
                target.keep()
                return
            if still:
                array = array[tuple(slice(-1, None) if n in still else slice(None) for n in range(len(extents)))]
        else:
            if still:
                array = reduce(store.accumulate, array, still, value.dtype)
            if not store.initialize:
                array = combine(store.accumulate, target.load(extents, access.strides, base), array)
        target.write(extents, access.strides, base, array, value.dtype)


def _nothing(reducer: str, dtype: np.dtype) -> MxArray:
    """What leaves any number unchanged under a reducer, the signs of zeros included."""
    number = neutral(reducer, dtype)
    return constant(-0.0 if reducer == "add" and dtype_kind(dtype) == "f" else number, dtype)


@dataclass(slots=True)
class _Target:
    """A buffer that a store gives a new value."""

    buffer: Buffer
    array: MxArray | None

    @property
    def element(self) -> np.dtype:
        """The dtype of its numbers."""
        return element_dtype(self.buffer.dtype)

    def identity(self, reducer: str) -> MxArray:
        """The reducer's identity as the buffer holds it."""
        number = np.array(neutral(reducer, self.element)).astype(self.element)
        if is_narrow(self.element):
            number = number.view(np.dtype(f"u{number.itemsize}"))
        return constant(number, number.dtype)

    def keep(self) -> None:
        """Nothing is written."""
        if self.array is None:
            self.array = mx.zeros((_memory_size(self.buffer),), dtype_of_memory(self.buffer.dtype))

    def codes(self, value: MxArray) -> MxArray:
        """Numbers as the buffer holds them."""
        return encode(self.element, value)

    def load(self, extents: tuple[int, ...], strides: tuple[int, ...], base: int) -> MxArray:
        """What the buffer holds where a store writes, as numbers."""
        self.keep()
        loaded = read(self.array, extents, strides, base)
        return decode(self.element, loaded) if is_narrow(self.element) else loaded

    def held(self, array: MxArray, dtype: np.dtype) -> MxArray:
        """A value of `dtype` as the buffer holds it."""
        return self.codes(array) if is_narrow(self.element) and not is_narrow(dtype) else array

    def write(
        self, extents: tuple[int, ...], strides: tuple[int, ...], base: int, array: MxArray, dtype: np.dtype
    ) -> None:
        """Write a value through an index map that reaches no element twice."""
        value = self.held(array, dtype)
        size = _memory_size(self.buffer)
        shape = shape_of(extents, strides)
        result = overwrite(self.array, size, shape, strides, base, value)
        if result is None:
            self.keep()
            result = _placed(flat(self.array), addresses(shape, strides, base, 0), value)
        self.array = result

    def scatter(
        self, store: Store, places: MxArray, value: Value, guard: MxArray | None, extents: tuple[int, ...]
    ) -> None:
        """Write or combine values at computed places."""
        self.keep()
        count = prod(extents)
        if not count or not _memory_size(self.buffer):
            return
        where, numbers = (mx.reshape(mx.broadcast_to(a, extents), (count,)) for a in (places, value.array))
        taken = None if guard is None else mx.reshape(mx.broadcast_to(guard, extents), (count,))
        if taken is not None:
            where = mx.where(taken, where, mx.array(0, mx.int64))
        memory = flat(self.array)
        if store.accumulate is None:
            held = self.held(numbers, value.dtype)
            distinct = store.order == "any" and taken is None
            self.array = _placed(memory, where, held) if distinct else _last(memory, where, held, taken)
            return
        if taken is not None:
            numbers = mx.where(taken, numbers, _nothing(store.accumulate, value.dtype))
        narrow = is_narrow(self.element)
        old = decode(self.element, memory) if narrow else memory
        combined = scatter(store.accumulate, old, where, numbers)
        self.array = self.codes(combined) if narrow else combined

    def fill(self, places: MxArray, number: MxArray) -> None:
        """Set elements to a number as the buffer holds it."""
        self.keep()
        if 0 not in places.shape:
            self.array = _placed(flat(self.array), places, number)


def _placed(memory: MxArray, where: MxArray, numbers: MxArray) -> MxArray:
    """Memory with numbers at places, of which no two differ about an element."""
    result = mx.reshape(memory, memory.shape)  # an assignment changes this handle alone
    result[where] = numbers
    return result


def _last(memory: MxArray, where: MxArray, numbers: MxArray, taken: MxArray | None) -> MxArray:
    """Memory with numbers at places: of several at one place the last, which a scatter of MLX does not promise."""
    order = mx.arange(0, where.size, dtype=mx.int32)
    if taken is not None:
        order = mx.where(taken, order, mx.array(-1, mx.int32))
    winner = mx.full(memory.shape, -1, dtype=mx.int32).at[where].maximum(order)
    return mx.where(winner >= 0, mx.take(numbers, mx.maximum(winner, 0)), memory)
