"""The interpreter of kernel code: all work-items of a launch at once, in NumPy, with the checks that a device lacks.

It knows groups, barriers, warps and matrix fragments, so that code for any device runs without the device. Every access
is checked: its bounds, whether the memory was written before, and whether another work-item touches the same element
without a barrier in between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlx.code.faults import CodeFault
from rlx.code.functions import Function
from rlx.code.scalars import apply, cast, reducer_function
from rlx.code.special import FUNCTIONS
from rlx.code.tree import (
    Aligned,
    Allocate,
    Apply,
    Array,
    Assign,
    AsyncCopy,
    AtomicUpdate,
    AwaitCopies,
    Barrier,
    Block,
    Both,
    CloseCopies,
    Coordinate,
    Declare,
    Either,
    Element,
    Exchange,
    Expression,
    ForLoop,
    FragmentProduct,
    FreeLoop,
    If,
    Leave,
    Linear,
    LoadMatrix,
    Number,
    PackedPair,
    Product,
    Quotient,
    Register,
    Remainder,
    Return,
    Shuffle,
    Statement,
    VectorRead,
    VectorWrite,
    View,
    Write,
)
from rlx.code.tree import index as index_of
from rlx.ir.kernels import Instruction
from rlx.ir.types import compute_dtype

__all__ = ["run_code", "run_function"]

_Places = tuple[np.ndarray, np.ndarray]  # owners, positions
_WARP = 32  # work-items that load matrices together
_NOBODY, _SEVERAL, _OF_GROUP = -1, -2, -3  # several work-items of group g are _OF_GROUP - g


def run_code(
    code: Block, memory: Mapping[str, np.ndarray], groups: int = 1, items: int = 1, vector: int = 16
) -> None:
    """Run `groups` groups of `items` work-items. `memory`: the device arrays by name, flat, which are written.

    vector: the alignment of all arrays, in bytes. Raises CodeFault.

    >>> import numpy as np
    >>> from rlx.code.tree import Array, Coordinate
    >>> from rlx.code.writing import CodeWriter
    >>> code, y = CodeWriter(), Array("y", np.dtype(np.int32))
    >>> item = Coordinate(np.dtype(np.int32), "item")
    >>> code.write(y[item], y[3 - item])
    >>> run_code(code.block, {"y": np.arange(4, dtype=np.int32)}, items=4)
    Traceback (most recent call last):
    ...
    rlx.code.faults.CodeFault: y[0]: work-item 3 read what work-item 0 of the same group writes, without a barrier in
    between
    """
    with np.errstate(all="ignore"):
        _Launch(memory, groups, items, vector).run(code, np.ones(groups * items, bool))


def run_function(function: Function, *arguments: np.ndarray) -> np.ndarray:
    """A function of arrays with one dimension, element by element."""
    launch = _Launch({}, 1, arguments[0].size, 0)
    launch.registers = {p.name: a for p, a in zip(function.parameters, arguments, strict=True)}
    with np.errstate(all="ignore"):
        launch.run(function.body, np.ones(launch.lanes.shape, bool))
    if not launch.returned.all():
        raise CodeFault(f"{function.name} ends without a result")
    return launch.result


@dataclass
class _TrackedMemory:
    """An array's elements by owner (the device, a group, a work-item), and who touched each since when.

    grain: the bytes of the parts that are watched: an element, or less if code reads or writes less of it.
    """

    array: Array
    elements: np.ndarray  # owners x elements
    defined: np.ndarray  # owners x parts, as all that follow
    grain: int = field(init=False)
    writer: np.ndarray = field(init=False)
    written: np.ndarray = field(init=False)
    reader: np.ndarray = field(init=False)
    read: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        shape, self.grain = self.elements.shape, self.array.dtype.itemsize
        self.writer, self.reader = np.full(shape, _NOBODY), np.full(shape, _NOBODY)
        self.written, self.read = np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def parts(
        self, array: Array, owner: np.ndarray, place: np.ndarray, lanes: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """The parts of elements in an array's dtype, and the work-items that touch them."""
        size = array.dtype.itemsize
        if size < self.grain:
            for name in ("defined", "writer", "written", "reader", "read"):
                setattr(self, name, np.repeat(getattr(self, name), self.grain // size, axis=1))
            self.grain = size
        count = size // self.grain
        if count == 1:
            return (owner, place), lanes
        places = place[:, None] * count + np.arange(count)
        return (np.repeat(owner, count), places.reshape(-1)), np.repeat(lanes, count)


@dataclass
class _ViewedMemory:
    """Where a view begins, for each work-item, and how far it extends: bytes of memory."""

    memory: _TrackedMemory
    offset: np.ndarray
    nbytes: int


@dataclass
class _UnderWay:
    """Copies that work-items have begun: the array, the places and values of elements, and the number of the batch."""

    array: Array
    place: np.ndarray
    values: np.ndarray
    items: np.ndarray
    batch: np.ndarray


def _tracked(memory: Mapping[str, np.ndarray]) -> dict[str, _TrackedMemory]:
    """The device arrays. Two that are one piece of memory, since a plan puts a result in place, are watched as one."""
    tracked: dict[str, _TrackedMemory] = {}
    pieces: dict[tuple[int, int], _TrackedMemory] = {}
    for name, values in memory.items():
        elements = values.reshape(1, -1)
        found = _TrackedMemory(Array(name, values.dtype), elements, np.ones(elements.shape, bool))
        piece = (values.__array_interface__["data"][0], values.itemsize)
        tracked[name] = pieces.setdefault(piece, found) if values.size else found
    return tracked


class _Launch:
    """The state of all work-items: registers by name, memory by array, views, and the time of each group.

    A group's time is how often it met at a barrier. All groups have the same time, later than any before, when the
    launch meets; `met` is that time, so that every access before it is known to every work-item.
    """

    def __init__(self, memory: Mapping[str, np.ndarray], groups: int, items: int, vector: int) -> None:
        self.groups, self.items, self.vector = groups, items, vector
        self.lanes = np.arange(groups * items)
        self.group = self.lanes // items
        self.registers: dict[str, np.ndarray] = {}
        self.epochs = np.zeros(groups, np.int64)
        self.met = 0
        self.views: dict[str, _ViewedMemory] = {}
        self.memory = _tracked(memory)
        self.returned = np.zeros(self.lanes.shape, bool)
        self.result = np.zeros(self.lanes.shape)
        self.leaving: list[np.ndarray] = []  # by open loop: the work-items that have left it
        self.closed = np.zeros(self.lanes.shape, np.int64)  # batches of copies that work-items have closed
        self.copies: list[_UnderWay] = []

    # ------------------------------------------------------------------ statements
    def run(self, block: Block, mask: np.ndarray) -> None:
        """Run statements for the work-items in `mask`."""
        for statement in block:
            active = mask & ~self.returned
            if self.leaving:
                active &= ~self.leaving[-1]
            if active.any():
                self.statement(statement, active)

    def statement(self, statement: Statement, mask: np.ndarray) -> None:
        """Run one statement."""
        match statement:
            case Declare(register, value) | Assign(register, value):
                self._set(register, self.value(value, mask), mask)
            case Write(array, position, value):
                self._write(array, self._place(array, position, mask), self.value(value, mask), mask)
            case AtomicUpdate(reducer, array, position, value):
                self._update(reducer, array, self._place(array, (position,), mask), self.value(value, mask), mask)
            case ForLoop():
                self._for(statement, mask)
            case FreeLoop(body, condition):
                self._free(body, condition, mask)
            case If(condition, body, otherwise):
                holds = self.value(condition, mask)
                self._if_any(body, mask & holds)
                self._if_any(otherwise, mask & ~holds)
            case Leave():
                self.leaving[-1] |= mask
            case Return(value):
                self.result = np.where(mask, self.value(value, mask), self.result)
                for items in (self.returned, *self.leaving):
                    items |= mask
            case Allocate(array):
                self._allocate(array)
            case View():
                self._view(statement, mask)
            case Exchange(left, right):
                if not mask.all():
                    raise CodeFault(f"{left.name} and {right.name} are exchanged by some work-items of the launch only")
                self.views[left.name], self.views[right.name] = self.views[right.name], self.views[left.name]
            case VectorRead(target, array, position):
                self._allocate(target)
                self._copy(target, array, position, mask, reads=True)
            case VectorWrite(array, position, source):
                self._copy(source, array, position, mask, reads=False)
            case FragmentProduct():
                self._multiply(statement, mask)
            case LoadMatrix():
                self._load_matrices(statement, mask)
            case AsyncCopy():
                self._begin_copy(statement, mask)
            case CloseCopies():
                self.closed += mask
            case AwaitCopies(newer):
                self._end_copies(self.closed - newer, mask)
            case Barrier("launch"):
                self._meet_all(statement, mask)
            case Barrier():
                self._meet(mask)
            case _:
                raise AssertionError(f"{type(statement).__name__} is not interpreted")

    def _if_any(self, block: Block, mask: np.ndarray) -> None:
        if mask.any():
            self.run(block, mask)

    def _set(self, register: Register, value: np.ndarray, mask: np.ndarray) -> None:
        value = np.broadcast_to(value, self.lanes.shape)
        if register.dtype.kind in "iu" and value.dtype.kind in "iu" and value.dtype != register.dtype:
            bounds = np.iinfo(register.dtype)
            if np.any(mask & ((value < bounds.min) | (value > bounds.max))):
                raise CodeFault(f"{register.name} is beyond the range of {register.dtype}")
        value = cast(value, register.dtype)
        if register.name not in self.registers or self.registers[register.name].dtype != register.dtype:
            self.registers[register.name] = np.zeros(self.lanes.shape, register.dtype)
        self.registers[register.name] = np.where(mask, value, self.registers[register.name]).astype(
            register.dtype, copy=False
        )

    # ------------------------------------------------------------------ loops
    def _for(self, loop: ForLoop, mask: np.ndarray) -> None:
        start, stop = (np.broadcast_to(self.value(b, mask), self.lanes.shape) for b in (loop.start, loop.stop))
        index = (stop.astype(np.int64) - 1) if loop.backward else start.astype(np.int64)
        grows = loop.advance == "multiply"
        step = np.asarray(self.value(index_of(loop.step), mask), np.int64)
        self.leaving.append(np.zeros(self.lanes.shape, bool))
        while True:
            goes_on = index >= start if loop.backward else index >= stop if loop.advance == "divide" else index < stop
            active = mask & goes_on & ~self.leaving[-1]
            if not active.any():
                break
            self._set(loop.index, index, active)
            self.run(loop.body, active)
            if loop.advance == "add":
                index = index + (-1 if loop.backward else step)
            else:
                index = index * step if grows else index // step
        self.leaving.pop()

    def _free(self, body: Block, condition: Expression | None, mask: np.ndarray) -> None:
        self.leaving.append(np.zeros(self.lanes.shape, bool))
        while True:
            active = mask & ~self.leaving[-1]
            if condition is not None and active.any():
                holds = self.value(condition, active)
                self.leaving[-1] |= active & ~holds
                active = active & holds
            if not active.any():
                break
            self.run(body, active)
        self.leaving.pop()

    # ------------------------------------------------------------------ values
    def value(self, expression: Expression, mask: np.ndarray) -> np.ndarray:
        """An expression for all work-items; only those in `mask` count."""
        match expression:
            case Register(dtype, name):
                if name not in self.registers:
                    raise CodeFault(f"the register {name} has no value")
                return self.registers[name]
            case Number(dtype, number):
                return np.asarray(number).astype(compute_dtype(dtype)).astype(dtype)
            case Coordinate(_, of):
                return {"item": self.lanes % self.items, "group": self.group, "groups": np.asarray(self.groups)}[of]
            case Linear(_, terms, offset):
                parts = (factor * self.value(term, mask).astype(np.int64) for factor, term in terms)
                return sum(parts, np.asarray(offset, np.int64))
            case Product(_, left, right):
                return self.value(left, mask).astype(np.int64) * self.value(right, mask).astype(np.int64)
            case Quotient(_, dividend, divisor):
                return self._index(dividend, mask) // self._index(index_of(divisor), mask)
            case Remainder(_, dividend, divisor):
                return self._index(dividend, mask) % self._index(index_of(divisor), mask)
            case Apply():
                return self._apply(expression, mask)
            case Both(_, left, right):
                first = self.value(left, mask)
                return first & self._decided(right, mask & first)
            case Either(_, left, right):
                first = self.value(left, mask)
                return first | self._decided(right, mask & ~first)
            case Element(dtype, array, position):
                return cast(self._read(array, self._place(array, position, mask), mask), dtype)
            case PackedPair(dtype, of, low, high):
                pair = [cast(np.asarray(self.value(number, mask)), of).view(np.uint16) for number in (low, high)]
                return pair[0].astype(dtype) | pair[1].astype(dtype) << 16
            case Shuffle():
                return self._shuffle(expression, mask)
            case Aligned(_, arrays, nbytes):
                aligned = [self._begin(array) % nbytes == 0 for array in arrays]
                return np.all(aligned, 0) & (nbytes <= self.vector)
        raise AssertionError(f"{type(expression).__name__} is not interpreted")

    def _decided(self, expression: Expression, mask: np.ndarray) -> np.ndarray:
        return self.value(expression, mask) if mask.any() else np.asarray(False)

    def _index(self, expression: Expression, mask: np.ndarray) -> np.ndarray:
        found = self.value(expression, mask).astype(np.int64)
        if np.any(mask & (found < 0)):
            raise CodeFault(f"the dividend {expression} is negative")
        return found

    def _apply(self, expression: Apply, mask: np.ndarray) -> np.ndarray:
        if expression.op == "select":  # only the chosen operand is computed
            condition, yes, no = expression.arguments
            holds = self.value(condition, mask)
            chosen = [self._decided(yes, mask & holds), self._decided(no, mask & ~holds)]
            return np.where(holds, *(cast(np.asarray(c), expression.dtype) for c in chosen)).astype(
                expression.dtype, copy=False
            )
        arguments = [np.asarray(self.value(argument, mask)) for argument in expression.arguments]
        if expression.op == "special" and expression.attribute in FUNCTIONS:
            given = (np.broadcast_to(argument, mask.shape)[mask].astype(np.float64) for argument in arguments)
            found = np.zeros(mask.shape, expression.dtype)
            found[mask] = run_function(FUNCTIONS[expression.attribute], *given)
            return found
        instruction = Instruction(expression.op, (), expression.dtype, expression.attribute)
        return np.asarray(apply(instruction, arguments))

    def _shuffle(self, expression: Shuffle, mask: np.ndarray) -> np.ndarray:
        value = np.broadcast_to(self.value(expression.value, mask), self.lanes.shape)
        distance = np.broadcast_to(self.value(expression.distance, mask), self.lanes.shape)
        within = self.lanes % self.items
        other = within ^ distance
        outside = (other >= self.items) | (other // expression.warp != within // expression.warp)
        source = np.where(outside, within, other) + self.group * self.items
        if np.any(mask & (outside | ~mask[source])):
            raise CodeFault("a shuffle reads the register of a work-item that does not take part")
        return value[source]

    # ------------------------------------------------------------------ memory
    def _allocate(self, array: Array) -> None:
        owners = {"group": self.groups, "item": self.lanes.size}[array.space]
        size = math.prod(array.shape)
        known = self.memory.get(array.name)
        if array.space == "group" and known is not None:
            return  # declared once for all
        elements = np.zeros((owners, size), array.dtype)
        self.memory[array.name] = _TrackedMemory(array, elements, np.zeros((owners, size), bool))

    def _found(self, array: Array) -> tuple[_TrackedMemory, np.ndarray]:
        """The memory of an array, and its elements in the dtype in which it is read here."""
        if array.name not in self.memory:
            raise CodeFault(f"the array {array.name} is not declared")
        memory = self.memory[array.name]
        return memory, memory.elements.view(array.dtype) if array.words is not None else memory.elements

    def _view(self, view: View, mask: np.ndarray) -> None:
        """Where a view begins, from where its source does."""
        array, source = view.array, self.views.get(view.source.name)
        offset = np.broadcast_to(self.value(view.offset, mask), self.lanes.shape).astype(np.int64)
        if source is None:
            source = _ViewedMemory(self._found(view.source)[0], np.zeros_like(offset), 0)
        first = source.offset + np.where(mask, offset, 0)
        if source.memory.elements.dtype.itemsize != 1:
            raise CodeFault(f"{array.name} is a view of {view.source.name}, which is not an array of bytes")
        extent = source.memory.elements.shape[1]
        if array.nbytes and np.any(mask & ((first < 0) | (first + array.nbytes > extent))):
            raise CodeFault(f"{array.name} extends beyond {view.source.name}, of {extent} bytes")
        if np.any(mask & (first % array.dtype.itemsize != 0)):
            raise CodeFault(f"{array.name} is not aligned to its elements")
        self.views[array.name] = _ViewedMemory(source.memory, first, array.nbytes)

    def _begin(self, array: Array) -> np.ndarray:
        """The byte where an array begins in its memory, for each work-item."""
        view = self.views.get(array.name)
        return np.zeros_like(self.lanes) if view is None else view.offset

    def _cells(
        self, array: Array, place: np.ndarray, mask: np.ndarray
    ) -> tuple[_TrackedMemory, np.ndarray, _Places, _Places, np.ndarray]:
        """The memory of elements; the cells that hold them (the bytes, for a view), and their places there; the parts
        of which accesses are noted, and the work-item that touches each part."""
        lanes, view = self.lanes[mask], self.views.get(array.name)
        if view is None:
            memory, elements = self._found(array)
            at = self._owner(array)[mask], place[mask]
            return memory, elements, at, *memory.parts(array, *at, lanes)
        size = array.dtype.itemsize
        cells = (view.offset[mask] + place[mask] * size)[:, None] + np.arange(size)
        where = np.zeros(cells.size, np.int64), cells.reshape(-1)
        return view.memory, view.memory.elements, where, where, np.repeat(lanes, size)

    def _place(self, array: Array, position: tuple[Expression, ...], mask: np.ndarray) -> np.ndarray:
        """The flat position of an element, within bounds."""
        shape = array.shape
        if array.space == "device":
            view = self.views.get(array.name)
            shape = (view.nbytes // array.dtype.itemsize if view else self._found(array)[1].shape[1],)
        flat = np.zeros(self.lanes.shape, np.int64)
        for expression, extent in zip(position, shape, strict=True):
            place = np.broadcast_to(self.value(expression, mask), self.lanes.shape).astype(np.int64)
            outside = mask & ((place < 0) | (place >= extent))
            if outside.any():
                lane = int(np.argmax(outside))
                raise CodeFault(f"{array.name}[{place[lane]}] is out of bounds: the extent is {extent}")
            flat = flat * extent + np.where(mask, place, 0)
        return flat

    def _owner(self, array: Array) -> np.ndarray:
        if array.space == "device":
            return np.zeros_like(self.lanes)
        return self.group if array.space == "group" else self.lanes

    def _read(self, array: Array, place: np.ndarray, mask: np.ndarray) -> np.ndarray:
        memory, elements, at, where, lanes = self._cells(array, place, mask)
        if not memory.defined[where].all():
            raise CodeFault(f"{array.name} is read before it is written")
        self._check(memory, where, lanes, "reads")
        self._note_read(memory, where, lanes)
        found = np.zeros(self.lanes.shape, array.dtype)
        found[mask] = elements[at].view(array.dtype)
        return found

    def _write(self, array: Array, place: np.ndarray, value: np.ndarray, mask: np.ndarray) -> None:
        memory, elements, at, where, lanes = self._cells(array, place, mask)
        value = cast(np.broadcast_to(value, self.lanes.shape)[mask], array.dtype)
        value = np.ascontiguousarray(value).view(elements.dtype)
        self._check(memory, where, lanes, "writes")
        elements[at] = value
        if array.space != "item" and not np.array_equal(_bits(elements[at]), _bits(value)):
            raise CodeFault(f"{array.name}: several work-items write different values to one element")
        memory.defined[where] = True
        memory.writer[where] = lanes
        memory.written[where] = self.epochs[self.group[lanes]]

    def _check(self, memory: _TrackedMemory, where: tuple[np.ndarray, ...], lanes: np.ndarray, does: str) -> None:
        """Fail if another work-item touched an element of which it could still be under way."""
        if memory.array.space == "item":
            return
        seen = [(memory.writer[where], memory.written[where], "wrote")]
        if does == "writes":
            seen.append((memory.reader[where], memory.read[where], "read"))
        for other, epoch, did in seen:
            own = self.group[lanes]
            near = self._group_of(other) == own
            ordered = (near & (epoch < self.epochs[own])) | (epoch < self.met)
            meets = (other != _NOBODY) & (other != lanes) & ~ordered
            if meets.any():
                at = int(np.argmax(meets))
                item = lanes[at] % self.items
                by = "several work-items" if other[at] < 0 else f"work-item {other[at] % self.items}"
                which = "the same group" if near[at] or other[at] == _SEVERAL else "another group"
                place = where[1][at] * memory.grain // memory.array.dtype.itemsize
                raise CodeFault(
                    f"{memory.array.name}[{place}]: {by} {did} what work-item {item} of {which} {does}, "
                    "without a barrier in between"
                )

    def _note_read(self, memory: _TrackedMemory, where: tuple[np.ndarray, ...], lanes: np.ndarray) -> None:
        if memory.array.space == "item":
            return
        before, epoch = memory.reader[where], memory.read[where]
        own = self.group[lanes]
        near = self._group_of(before) == own
        fresh = (before == _NOBODY) | (before == lanes) | (epoch < self.met) | (near & (epoch < self.epochs[own]))
        several = _OF_GROUP - own
        readers = np.where(fresh, lanes, np.where(near, several, _SEVERAL))
        memory.reader[where] = readers
        memory.read[where] = self.epochs[own]
        # work-items that read the same element in this statement: first those of one group, then those of several
        last = memory.reader[where]
        alike = self._group_of(last) == own
        for unlike, mark in ((alike & (last != readers), several), (~alike, np.full_like(own, _SEVERAL))):
            memory.reader[tuple(part[unlike] for part in where)] = mark[unlike]

    def _group_of(self, items: np.ndarray) -> np.ndarray:
        """The group of each work-item, or of several work-items of one group; -1 for others."""
        several = np.where(items <= _OF_GROUP, _OF_GROUP - items, -1)
        return np.where(items >= 0, self.group[np.maximum(items, 0)], several)

    def _update(
        self, reducer: str, array: Array, place: np.ndarray, value: np.ndarray, mask: np.ndarray
    ) -> None:
        """Combine elements, work-item by work-item; other plain accesses of the same elements are races."""
        memory, elements, at, where, lanes = self._cells(array, place, mask)
        self._check(memory, where, lanes, "reads")
        combine, wide = reducer_function(reducer), compute_dtype(array.dtype)
        given = np.broadcast_to(value, self.lanes.shape)[mask]
        owners, positions = (part.reshape(given.size, -1) for part in at)
        for owner, cells, number in zip(owners, positions, given, strict=True):
            held = cast(elements[owner, cells].view(array.dtype), wide)
            result = cast(np.asarray(combine(held, number), wide), array.dtype)
            elements[owner, cells] = np.ascontiguousarray(result).view(elements.dtype)

    def _copy(self, vector: Array, array: Array, position: Expression, mask: np.ndarray, reads: bool) -> None:
        """Elements of a device array from or to a work-item's vector."""
        (width,) = vector.shape
        first = np.broadcast_to(self.value(position, mask), self.lanes.shape).astype(np.int64)
        size = array.dtype.itemsize
        if np.any(mask & ((self._begin(array) + first * size) % min(self.vector, width * size) != 0)):
            raise CodeFault(f"a vector of {array.name} is not aligned")
        part = Register(np.dtype(np.int64), "part of a vector")
        for number in range(width):
            self._set(part, np.asarray(number), mask)
            place = self._place(array, (position + Number(part.dtype, number),), mask)
            inside = np.full(self.lanes.shape, number)
            if reads:
                self._write(vector, inside, self._read(array, place, mask), mask)
            else:
                self._write(array, place, self._read(vector, inside, mask), mask)

    def _begin_copy(self, copy: AsyncCopy, mask: np.ndarray) -> None:
        """Read the source; until the copy ends, the elements of the target are not written."""
        holds = mask if copy.condition is None else mask & self.value(copy.condition, mask)
        first = np.broadcast_to(self.value(copy.position, mask), self.lanes.shape).astype(np.int64)
        nbytes = copy.size * copy.array.dtype.itemsize
        begin = self._begin(copy.array) + first * copy.array.dtype.itemsize
        if np.any(holds & (begin % min(self.vector, nbytes) != 0)):
            raise CodeFault(f"a copy from {copy.array.name} is not aligned")
        target = self._place(copy.target, copy.place, mask)
        if np.any(mask & (target * copy.target.dtype.itemsize % nbytes != 0)):
            raise CodeFault(f"a copy to {copy.target.name} is not aligned")
        if np.any(mask & (target % copy.target.shape[-1] + copy.size > copy.target.shape[-1])):
            raise CodeFault(f"a copy extends beyond a row of {copy.target.name}")
        part = Register(np.dtype(np.int64), "part of a copy")
        for number in range(copy.size):
            self._set(part, np.asarray(number), mask)
            values = np.zeros(self.lanes.shape, copy.array.dtype)
            if holds.any():
                source = self._place(copy.array, (copy.position + part,), holds)
                values = np.where(holds, self._read(copy.array, source, holds), values)
            memory, _, _, where, lanes = self._cells(copy.target, target + number, mask)
            self._check(memory, where, lanes, "writes")
            memory.defined[where] = False
            self.copies.append(_UnderWay(copy.target, target + number, values, mask.copy(), self.closed.copy()))

    def _end_copies(self, before: np.ndarray, mask: np.ndarray) -> None:
        """Write what was copied in batches whose numbers are smaller."""
        for copy in self.copies:
            done = copy.items & mask & (copy.batch < before)
            if done.any():
                self._write(copy.array, copy.place, copy.values, done)
                copy.items &= ~done
        self.copies = [copy for copy in self.copies if copy.items.any()]

    # ------------------------------------------------------------------ groups
    def _load_matrices(self, statement: LoadMatrix, mask: np.ndarray) -> None:
        """Gather each work-item's numbers from the rows that the warp's work-items point to."""
        (count,), array, lane = statement.target.shape, statement.array, self.lanes % _WARP
        if not np.all(mask.reshape(-1, _WARP) == mask.reshape(-1, _WARP)[:, :1]):
            raise CodeFault("a load of matrices in which some work-items of a warp do not take part")
        pointing = mask & (lane < 8 * count)
        first = self._place(array, statement.position, pointing)
        if np.any(pointing & (first * array.dtype.itemsize % 16 != 0)):
            raise CodeFault(f"a row of a matrix in {array.name} is not aligned")
        for number in range(count):
            codes = []
            for more in range(2):
                row, column = lane // 4, lane % 4 * 2 + more
                if statement.turned:
                    row, column = column, row
                place = first[self.lanes - lane + number * 8 + row] + column
                codes.append(self._read(array, place, mask).view(np.uint16).astype(np.uint32))
            self._write(statement.target, np.full(self.lanes.shape, number), codes[0] | codes[1] << 16, mask)

    def _meet(self, mask: np.ndarray) -> None:
        by_group = mask.reshape(self.groups, self.items)
        if np.any(by_group.any(1) & ~by_group.all(1)):
            raise CodeFault("a barrier that some work-items of a group do not reach")
        self.epochs[by_group.any(1)] += 1

    def _meet_all(self, barrier: Barrier, mask: np.ndarray) -> None:
        """Count the arrivals of all groups, and compare the count with the one for which work-items wait."""
        if not mask.all():
            raise CodeFault("a barrier of the launch that some of its work-items do not reach")
        assert barrier.arrivals is not None and barrier.awaited is not None
        place = np.zeros_like(self.lanes)
        _, elements, at, _, _ = self._cells(barrier.arrivals, place, self.lanes == 0)
        count = elements[at].view(np.uint32) + np.uint32(self.groups)
        elements[at] = count.view(elements.dtype)
        if np.any(self.value(barrier.awaited, mask) != count):
            raise CodeFault(f"a barrier of the launch awaits another count of arrivals than {count[0]}")
        self.met = int(self.epochs.max()) + 1
        self.epochs[:] = self.met

    def _multiply(self, statement: FragmentProduct, mask: np.ndarray) -> None:
        """Gather each warp's words, multiply, and give each work-item its sums."""
        unit, count = statement.unit, len(statement.unit.left)
        if not np.all(mask.reshape(-1, unit.items) == mask.reshape(-1, unit.items)[:, :1]):
            raise CodeFault("a matrix product in which some work-items of a warp do not take part")
        words = [self.value(word, mask).astype(np.uint32) for word in statement.words]
        left = self._matrix(unit.left, words[:count], 16, statement.dtype, unit.items)
        right = self._matrix(unit.right, words[count:], unit.columns, statement.dtype, unit.items)
        products = np.einsum("wrk,wck->wrc", left, right)
        lane = self.lanes % unit.items
        warp = self.lanes // unit.items
        for number in range(unit.sums):
            row, column = (self._at(e, lane, number) for e in (unit.row, unit.column))
            place = self._place(
                statement.sums, (statement.row, Number(np.dtype(np.int32), number)), mask
            )
            held = self._read(statement.sums, place, mask)
            added = products[warp, row, column].astype(statement.sums.dtype)
            self._write(statement.sums, place, held + added, mask)

    def _at(self, expression: Expression, lane: np.ndarray, number: int = 0) -> np.ndarray:
        """The value of an expression of fragments."""
        self.registers["lane"], self.registers["number"] = lane.astype(np.int32), np.full_like(lane, number, np.int32)
        return np.broadcast_to(self.value(expression, np.ones(lane.shape, bool)), lane.shape)

    def _matrix(
        self, places: Sequence[tuple[Expression, Expression]], words: Sequence[np.ndarray], rows: int,
        dtype: np.dtype, items: int,
    ) -> np.ndarray:  # fmt: skip
        """The rows of each warp's matrix, as numbers to multiply."""
        lane, warp = self.lanes % items, self.lanes // items
        found = np.zeros((warp[-1] + 1, rows, 8), np.uint32)
        for (row, word), value in zip(places, words, strict=True):
            found[warp, self._at(row, lane), self._at(word, lane)] = value
        wide = np.dtype(np.int64) if dtype.kind in "iu" else np.dtype(np.float64)
        return found.view(dtype).astype(wide)


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(f"V{values.dtype.itemsize}")
