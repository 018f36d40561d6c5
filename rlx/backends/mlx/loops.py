"""Loop nests over MLX: each instruction runs over the iteration space, each store gives its buffer a new value."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from rlx.backends.mlx.library import MxArray, dtype_of_memory, is_on_gpu, mx
from rlx.backends.mlx.narrow import decode
from rlx.backends.mlx.places import EntryAddress, checked_place, place_of
from rlx.backends.mlx.reductions import cumulate, reduce, scatter
from rlx.backends.mlx.scalar import ScalarArray, combine, constant, encode, operation
from rlx.backends.mlx.views import addresses, dimensions_of_whole, entries, flat, overwrite, read, reshaped, shape_of
from rlx.backends.mlx.wide import is_refused, place_wide
from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Store, reaches_apart
from rlx.ir.scalar import neutral
from rlx.ir.types import dtype_kind, element_dtype, is_narrow
from rlx.ir.verify_loops import element_levels, store_runs_once

__all__ = ["Buffers", "run_loops", "why_not"]

# the elements of each buffer, of MLX's dtype for it (see ir.types.memory_dtype) and of any shape
Buffers = dict[Buffer, MxArray]
# the indices of entries, and the dimensions that run through one entry
_Whole = tuple[EntryAddress, list[int]]


def why_not(kernel: Loops) -> str | None:
    """The feature of a kernel that MLX has no operation for; None if all of it runs there."""
    for instruction in kernel.instructions:
        if instruction.op == "special":
            return f"{instruction.attribute}: MLX has no such function"
    for store in kernel.stores:
        if store.accumulate not in ("and", "or", "xor", "mul") or _is_separable(kernel, store):
            continue
        if store.accumulate == "mul":
            if is_refused(kernel.instructions[store.value].dtype.itemsize):
                return "products scattered to 8-byte numbers: Metal scatters numbers of 4 bytes"
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
        _RowRange(kernel, buffers, levels, start, stop, chunk).run()


def _is_separable(kernel: Loops, store: Store) -> bool:
    """Whether every iteration along the dimensions that move a store reaches a different element."""
    return store.address is None and reaches_apart(store.access.strides, kernel.sizes)


@dataclass(slots=True)
class _RowRange:
    """A range of dimension 0. A value has no dimensions, or as many as the kernel, each of size 1 or the extent."""

    kernel: Loops
    buffers: Buffers
    levels: list[bool]
    start: int
    stop: int
    chunk: int
    values: list[ScalarArray] = field(default_factory=list)

    @property
    def extents(self) -> tuple[int, ...]:
        """Sizes of the block."""
        return (self.stop - self.start, *self.kernel.sizes[1:]) if self.kernel.sizes else ()

    def run(self) -> None:
        """Evaluate every instruction, then write every store."""
        if 0 not in self.extents[: self.kernel.outer] or any(s.initialize for s in self.kernel.stores):
            put_off = self.put_off()
            for number, instruction in enumerate(self.kernel.instructions):
                arguments = [self.values[n] for n in instruction.args]
                self.values.append(self.evaluate(instruction, arguments, number in put_off))
            written: Buffers = {}
            for store in self.kernel.stores:
                self.store(store, written, store.value in put_off)
            self.buffers.update(written)

    def put_off(self) -> set[int]:
        """Reductions of rows that are only used by stores that reduce further: both are one reduction.

        Not for a processor's sums of floats: MLX's sum of all of a large array has few accurate digits there.
        """
        kernel, found = self.kernel, set[int]()
        elsewhere = {n for i in kernel.instructions for n in i.args}
        elsewhere |= {n for s in kernel.stores for n in (s.address, s.guard) if n is not None}
        for store in kernel.stores:
            made = kernel.instructions[store.value]
            if made.op == "reduce" and made.attribute == store.accumulate and store.guard is None:
                exact = made.attribute not in ("add", "mul") or dtype_kind(made.dtype) in "iu" or is_on_gpu()
                apart = store.address is None and not any(store.access.strides[kernel.outer :])
                if exact and apart:
                    found.add(store.value)
            else:
                elsewhere.add(store.value)
        return found - elsewhere

    # -------------------------------------------------------------- values
    def evaluate(self, instruction: Instruction, arguments: list[ScalarArray], is_put_off: bool) -> ScalarArray:
        """The instruction's value over the block; of a deferred reduction, its rows."""
        op, dtype = instruction.op, instruction.dtype
        if op == "constant":
            number = np.frombuffer(instruction.attribute, dtype.newbyteorder("<")).astype(dtype)[0]
            if is_narrow(dtype):
                code = np.array(number).view(np.dtype(f"u{dtype.itemsize}"))
                return ScalarArray(constant(code, code.dtype), dtype)
            return ScalarArray(constant(number, dtype), dtype, number)
        if op == "index":
            return ScalarArray(self.index(instruction.attribute), dtype)
        if op == "load":
            return ScalarArray(self.load(instruction), dtype)
        if op == "reduce":
            axes = range(self.kernel.outer, len(self.extents))
            row = self.spread(arguments[0].array, self.extents[self.kernel.outer :])
            if is_put_off:
                return ScalarArray(row, dtype)
            return ScalarArray(reduce(instruction.attribute, row, tuple(axes), dtype), dtype)
        if op == "cumulate":
            row = self.spread(arguments[0].array, self.extents[-1:])
            return ScalarArray(cumulate(instruction.attribute, row, dtype), dtype)
        return ScalarArray(operation(instruction, arguments), dtype)

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

    def load(self, instruction: Instruction) -> MxArray:
        """Elements of an operand through its index map, or gathered."""
        access: Access = instruction.attribute
        buffer = self.kernel.operands[access.operand]
        memory = self.buffers[buffer]
        if not instruction.args:
            loaded = read(memory, self.extents, access.strides, access.first(self.start, self.chunk))
        else:
            loaded = self.gathered(memory, access, instruction.args[0])
        return decode(buffer.dtype, loaded) if is_narrow(buffer.dtype) else loaded

    def gathered(self, memory: MxArray, access: Access, address: int) -> MxArray:
        """Entries by their numbers where entries do not overlap, else elements by their addresses."""
        if 0 in self.extents or not memory.size:
            return mx.zeros(self.extents, memory.dtype)
        place = place_of(self.kernel.instructions, address)
        base = access.first(self.start, self.chunk)
        known = place.count if place.clamped else None
        table = entries(memory, self.extents, access.strides, base, place.distance, known)
        if table is not None and place.wraps and (table.origin, table.entries.shape[0]) != (0, place.count):
            table = None  # MLX would count from another end
        chosen = self.values[place.index].array
        along = [n for n, size in enumerate(chosen.shape) if size != 1]
        if table is None or any(access.strides[n] and self.extents[n] != 1 for n in along):
            return mx.take(flat(memory), self.addresses(access, self.values[address]))
        numbers = mx.reshape(place.numbers(self.values), tuple(chosen.shape[n] for n in along))
        return _in_place(mx.take(table.entries, table.places(numbers, place.distance), axis=0), along)

    def addresses(self, access: Access, moved: ScalarArray | None) -> MxArray:
        """Indices of the elements that an index map reaches, moved by `moved` elements."""
        fixed = access.offset + access.chunk_stride * self.chunk
        if moved is not None and not fixed and not any(access.strides):
            return moved.array
        places = addresses(self.extents, access.strides, fixed, self.start)
        return places if moved is None else places + moved.array

    # -------------------------------------------------------------- stores
    def store(self, store: Store, written: Buffers, is_put_off: bool) -> None:
        """The buffer's new value after one store over the whole block."""
        kernel, access = self.kernel, store.access
        buffer = kernel.operands[access.operand]
        extents, values = self.extents, self.values
        if not is_put_off and store_runs_once(kernel, store, self.levels):
            extents = extents[: kernel.outer] + (1,) * (len(extents) - kernel.outer)
        target = _Target(buffer, written.get(buffer, self.buffers.get(buffer)))
        value, guard = values[store.value], None if store.guard is None else values[store.guard].array
        if store.address is not None or not reaches_apart(access.strides, shape_of(extents, access.strides)):
            if store.initialize:
                self.initialize(target, store)
            target.scatter(store, self.scattered(target, store, value, guard, extents), value.dtype)
        else:
            self.store_static(target, store, value, guard, extents)
        assert target.array is not None
        written[buffer] = target.array

    def scattered(
        self, target: _Target, store: Store, value: ScalarArray, guard: MxArray | None, extents: tuple[int, ...]
    ) -> _Scattered:
        """The positions of a store: indices of whole entries if it writes such, else of elements."""
        whole = self.place_of_whole(target, store, extents)
        if whole is None:
            where = self.addresses(store.access, None if store.address is None else self.values[store.address])
            return _Scattered.of(where, value.array, guard, extents, [], 1)
        place, inside = whole
        if guard is None:
            return _Scattered.of(place.numbers(self.values), value.array, None, extents, inside, place.distance)
        where, taken = self.values[place.index].array, place.are_inside(self.values)
        return _Scattered.of(where, value.array, taken, extents, inside, place.distance)

    def place_of_whole(self, target: _Target, store: Store, extents: tuple[int, ...]) -> _Whole | None:
        """The entries that a store's address counts, if it writes whole entries; in assignments the last write wins."""
        if store.address is None or (store.accumulate is None and (store.order != "any" or store.guard is not None)):
            return None
        instructions = self.kernel.instructions
        if store.guard is None:
            place = place_of(instructions, store.address)
        else:
            place = checked_place(instructions, store.address, store.guard)
        if place is None:
            return None
        base = store.access.first(self.start, self.chunk)
        inside = dimensions_of_whole(extents, store.access.strides, base, place.distance)
        chosen = self.values[place.index].array
        if inside is None or any(chosen.ndim and chosen.shape[n] != 1 for n in inside):
            return None
        entries, rest = divmod(target.buffer.real_size, place.distance)
        return (place, inside) if not rest and place.count in (entries, None) else None

    def initialize(self, target: _Target, store: Store) -> None:
        """Set the elements that an accumulating store reaches to its reducer's identity."""
        assert store.accumulate is not None
        target.fill(self.addresses(store.access, None), target.identity(store.accumulate))

    def store_static(
        self, target: _Target, store: Store, value: ScalarArray, guard: MxArray | None, extents: tuple[int, ...]
    ) -> None:
        """Write through an index map that reaches no element twice, except along dimensions that do not move it."""
        access, base = store.access, store.access.first(self.start, self.chunk)
        array = value.array
        if guard is not None:
            if store.accumulate is None:
                # elements that are not written keep their values
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
    """The identity of a reducer, which preserves the signs of zeros."""
    number = neutral(reducer, dtype)
    return constant(-0.0 if reducer == "add" and dtype_kind(dtype) == "f" else number, dtype)


class _Scattered(NamedTuple):
    """Indices of a buffer's elements, or of its entries of several elements; and which are written, if not all."""

    places: MxArray
    numbers: MxArray
    taken: MxArray | None
    length: int

    @classmethod
    def of(
        cls,
        places: MxArray,
        numbers: MxArray,
        taken: MxArray | None,
        extents: tuple[int, ...],
        inside: list[int],
        length: int,
    ) -> _Scattered:
        """The places of a nest's iterations, whose dimensions `inside` run through an entry."""
        outside = [n for n in range(len(extents)) if n not in inside]
        apart = tuple(1 if n in inside else size for n, size in enumerate(extents))
        count = prod(apart)
        shape = (count, length) if inside else (count,)

        def in_row(array: MxArray) -> MxArray:
            return mx.reshape(mx.broadcast_to(array, apart), (count,))

        whole = mx.broadcast_to(numbers, extents)
        ordered = mx.transpose(whole, outside + inside) if inside else whole
        where = in_row(places)
        if taken is None:
            return cls(where, mx.reshape(ordered, shape), None, length if inside else 1)
        taken = in_row(taken)
        where = mx.where(taken, where, mx.array(0, where.dtype))
        return cls(where, mx.reshape(ordered, shape), taken[:, None] if inside else taken, length if inside else 1)


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
        """The reducer's identity in the buffer's representation."""
        number = np.array(neutral(reducer, self.element)).astype(self.element)
        if is_narrow(self.element):
            number = number.view(np.dtype(f"u{number.itemsize}"))
        return constant(number, number.dtype)

    def keep(self) -> None:
        """Write nothing."""
        if self.array is None:
            self.array = mx.zeros((self.buffer.real_size,), dtype_of_memory(self.buffer.dtype))

    def codes(self, value: MxArray) -> MxArray:
        """Numbers in the buffer's representation."""
        return encode(self.element, value)

    def load(self, extents: tuple[int, ...], strides: tuple[int, ...], base: int) -> MxArray:
        """The old values at the written positions, as numbers."""
        self.keep()
        loaded = read(self.array, extents, strides, base)
        return decode(self.element, loaded) if is_narrow(self.element) else loaded

    def held(self, array: MxArray, dtype: np.dtype) -> MxArray:
        """A value of `dtype` in the buffer's representation."""
        return self.codes(array) if is_narrow(self.element) and not is_narrow(dtype) else array

    def write(
        self, extents: tuple[int, ...], strides: tuple[int, ...], base: int, array: MxArray, dtype: np.dtype
    ) -> None:
        """Write a value through an index map that reaches no element twice."""
        value = self.held(array, dtype)
        size = self.buffer.real_size
        shape = shape_of(extents, strides)
        result = overwrite(self.array, size, shape, strides, base, value)
        if result is None:
            self.keep()
            result = _placed(flat(self.array), addresses(shape, strides, base, 0), value)
        self.array = result

    def scatter(self, store: Store, given: _Scattered, dtype: np.dtype) -> None:
        """Write or combine values of `dtype` at computed places."""
        self.keep()
        if not given.numbers.size or not self.buffer.real_size:
            return
        where, numbers, taken = given.places, given.numbers, given.taken
        memory = flat(self.array) if given.length == 1 else mx.reshape(self.array, (-1, given.length))
        if store.accumulate is None:
            held = self.held(numbers, dtype)
            distinct = store.order == "any" and taken is None
            self.array = _placed(memory, where, held) if distinct else _last(memory, where, held, taken)
            return
        if taken is not None:
            numbers = mx.where(taken, numbers, _nothing(store.accumulate, dtype))
        narrow = is_narrow(self.element)
        old = decode(self.element, memory) if narrow else memory
        combined = scatter(store.accumulate, old, where, numbers)
        self.array = self.codes(combined) if narrow else combined

    def fill(self, places: MxArray, number: MxArray) -> None:
        """Set elements to a number in the buffer's representation."""
        self.keep()
        if 0 not in places.shape:
            self.array = _placed(flat(self.array), places, number)


def _in_place(array: MxArray, along: list[int]) -> MxArray:
    """An array reordered so that the dimensions at these positions are first; the dimensions after them have size 1."""
    leading = len(along)
    order = [along.index(n) if n in along else leading + n for n in range(array.ndim - leading)]
    shape = tuple(array.shape[n] for n in order)
    moved = [n for n in order if array.shape[n] != 1]
    if moved != sorted(moved):
        array = mx.transpose(array, order + [leading + n for n in along])
    return reshaped(array, shape)


def _placed(memory: MxArray, where: MxArray, numbers: MxArray) -> MxArray:
    """Memory with numbers at places; equal places have equal numbers."""
    if is_refused(memory.dtype.size):
        return place_wide(memory, where, numbers)
    result = mx.reshape(memory, memory.shape)  # an assignment changes this handle alone
    result[where] = numbers
    return result


def _last(memory: MxArray, where: MxArray, numbers: MxArray, taken: MxArray | None) -> MxArray:
    """Memory with numbers at places: the last one wins at each place, which a scatter of MLX does not guarantee."""
    order = mx.arange(0, where.size, dtype=mx.int32)
    if taken is not None:
        order = mx.where(taken, order, mx.array(-1, mx.int32))
    winner = mx.full(memory.shape, -1, dtype=mx.int32).at[where].maximum(order)
    return mx.where(winner >= 0, mx.take(numbers, mx.maximum(winner, 0)), memory)
