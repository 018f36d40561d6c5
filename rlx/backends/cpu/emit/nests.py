"""The code of a Loops kernel whose sizes, strides and offsets are arguments: the walk of all devices, over ranges."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager
from functools import lru_cache

import numpy as np

from rlx.backends.cpu.emit.ir_text import ATTRIBUTES, Code, Module, Value
from rlx.backends.cpu.emit.layout import AccessForm, Layout
from rlx.backends.cpu.emit.printing import LlvmPrinter, Location
from rlx.backends.cpu.emit.scalar_code import register_kind
from rlx.backends.loops.row_schedule import row_schedule
from rlx.backends.loops.walk import Mapping, Reductions, Walk
from rlx.code.tree import Apply, Element, Expression, Linear, Number, Product, Register, index, minimum
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Access, Loops, Store
from rlx.ir.types import compute_dtype

__all__ = ["NestWalk", "nest_module"]

_INT64 = np.dtype(np.int64)
_BEGIN, _END = Register(_INT64, "begin"), Register(_INT64, "end")


def nest_module(walk: NestWalk, symbol: str) -> str:
    """The LLVM IR of a kernel's function."""
    walk.kernel()
    code = Code(Module())
    metadata, tags = _alias_metadata(walk.layout.classes)
    LlvmPrinter(code, *_arguments(code, walk, tags)).block(walk.code.block)
    code.line("ret void")
    head = f"define void @{symbol}(ptr %slots, ptr %row, i64 %begin, i64 %end, i64 %chunk)"
    return "\n".join((code.module.text(), f"{head} {ATTRIBUTES} {{\n{code.text()}\n}}", metadata, ""))


class NestWalk(Walk):
    """Makes the code of a kernel. positions: the element of each group of accesses, as far as entered loops say."""

    def __init__(self, layout: Layout) -> None:
        kernel = layout.tiling.kernel
        super().__init__(kernel, CodeWriter(), _Ranges())
        self.plan = row_schedule(layout.tiling.source)
        self.layout = layout
        self.positions = [Register(_INT64, f"at{number}") for number in range(len(layout.groups))]
        self.forms: dict[Access, AccessForm] = {}
        for number, form in layout.load_forms.items():
            self.forms[kernel.instructions[number].attribute] = form
        for number, form in layout.store_forms.items():
            self.forms[kernel.stores[number].access] = form

    def size(self, dimension: int) -> Expression:
        """The size of a dimension: a number or an argument."""
        static = self.layout.static_sizes[dimension]
        return Register(_INT64, f"size{dimension}") if static is None else Number(_INT64, static)

    def bounds(self, dimension: int) -> tuple[Expression, Expression]:
        """The range of a dimension; the last tile ends with the full size."""
        tiling, zero = self.layout.tiling, index(0, _INT64)
        if dimension in tiling.blocks:
            full, (block, _) = Register(_INT64, f"full{dimension}"), tiling.blocks[dimension]
            size = self.size(dimension)
            before = self.index(block) * tiling.tile if tiling.tile else Product(_INT64, self.index(block), size)
            return zero, minimum(full - before, size)
        if dimension == 0 and self.loops.chunks > 1:
            return _BEGIN, _END
        return zero, self.size(dimension)

    def open(self, dimension: int, nest: ExitStack, reductions: Reductions = ()) -> None:
        """Open a loop, and move along in memory."""
        super().open(dimension, nest, reductions)
        self.advance(dimension, nest)

    def advance(self, dimension: int, nest: ExitStack) -> None:
        """Inside of a loop over a dimension, add its index to the positions."""
        nest.callback(setattr, self, "positions", self.positions)
        here = self.index(dimension)
        moved = list(self.positions)
        for number, (group, position) in enumerate(zip(self.layout.groups, self.positions, strict=True)):
            stride = group.strides[dimension]
            if stride is None:
                step: tuple[int, Expression] = (1, Product(_INT64, here, _stride(number, dimension)))
            else:
                step = (stride, here)
            if stride != 0:
                at = Linear(_INT64, ((1, position), step))
                moved[number] = self.code.declare(f"at{number}_{dimension}", at)
        self.positions = moved

    def place(self, access: Access, extra: Expression | None = None) -> Linear:
        """The position of an access, plus `extra` elements."""
        form = self.forms[access]
        near: tuple[tuple[int, Expression], ...] = ((1, self.positions[form.group]),)
        return Linear(_INT64, near if extra is None else (*near, (1, extra)), form.delta)

    def value(self, number: int, values: dict[int, Expression]) -> None:
        """Compute a value; a constant may be an argument."""
        if number in self.layout.constant_slots:
            values[number] = _constant(self.loops, number)
        else:
            super().value(number, values)

    def accumulate(self, store: Store, element: Element, value: Expression) -> None:
        """Combine a value with the value in memory, in any order."""
        dtype = compute_dtype(value.dtype)
        self.code.write(element, Apply(dtype, store.accumulate or "", (element, value), "reduction"))


class _Ranges(Mapping):
    """A function runs the iterations [begin, end) of the independent dimensions, or of a chunk."""

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Loops over [begin, end)."""
        assert isinstance(walk, NestWalk)
        count = walk.loops.parallel if walk.loops.chunks == 1 else 0
        if count == 1:
            nest.enter_context(walk.code.loop(walk.index(0), _BEGIN, _END))
            walk.advance(0, nest)
        elif count:
            nest.enter_context(_lines(walk, count, nest))
        return range(count)


@contextmanager
def _lines(walk: NestWalk, count: int, nest: ExitStack) -> Generator[None]:
    """Loops over [begin, end) of the flattened parallel dimensions, line by line."""
    code, last = walk.code, count - 1
    counters, rest = [Register(_INT64, f"first{d}") for d in range(count)], _BEGIN
    for d in range(last, 0, -1):
        code.declare(counters[d].name, rest % walk.size(d), changes=True)
        rest = code.declare(f"above{d}", rest // walk.size(d))
    code.declare(counters[0].name, rest, changes=True)
    done = code.declare("done", _BEGIN, changes=True)
    with code.free_loop(done < _END):
        for d in range(last):
            code.declare(walk.index(d).name, counters[d])
            walk.advance(d, nest)
        start = code.declare("start", counters[last])
        stop = code.declare("stop", minimum(start + (_END - done), walk.size(last)))
        with code.loop(walk.index(last), start, stop):
            walk.advance(last, nest)
            yield
        code.assign(done, done + (stop - start))
        code.assign(counters[last], index(0, _INT64))
        carry: Expression = index(1, _INT64)
        for d in range(last - 1, -1, -1):
            ahead = code.declare(f"ahead{d}", counters[d] + carry)
            full = code.declare(f"full_line{d}", ahead.equals(walk.size(d)))
            code.assign(counters[d], Apply(_INT64, "select", (full, index(0, _INT64), ahead)))
            carry = Apply(_INT64, "cast", (full,))


# ------------------------------------------------------------------ arguments
def _stride(group: int, dimension: int) -> Register:
    return Register(_INT64, f"stride{group}_{dimension}")


def _constant(kernel: Loops, number: int) -> Register:
    return Register(kernel.instructions[number].dtype, f"constant{number}")


def _arguments(code: Code, walk: NestWalk, tags: tuple[str, ...]) -> tuple[dict[str, Value], dict[str, Location]]:
    """The registers and the arrays that the function's row of arguments contains."""
    layout, kernel = walk.layout, walk.loops

    def argument(number: int) -> Value:
        return code.load("i64", code.element("i64", "%row", number))

    def memory(number: int) -> Location:
        address = code.load("i64", code.element("i64", "%slots", argument(number)))
        return Location(address.convert("inttoptr", "ptr").name, tags[layout.alias[number]])

    arrays: dict[str, Location] = {}
    for number, array in enumerate(walk.arrays):
        if array.name not in arrays:
            arrays[array.name] = memory(number)
    values = {name: Value(code, f"%{name}", "i64") for name in ("begin", "end", "chunk")}
    for dimension, slot in enumerate(layout.size_slots):
        values[f"size{dimension}"] = argument(slot)
    for dimension, slot in layout.full_size_slots.items():
        values[f"full{dimension}"] = argument(slot)
    for number, slot in layout.constant_slots.items():
        register = _constant(kernel, number)
        kind = register_kind(register.dtype)
        word = argument(slot) if register.dtype.itemsize == 8 else argument(slot).convert("trunc", "i32")
        values[register.name] = word if word.kind == kind else word.convert("bitcast", kind)
    for number, group in enumerate(layout.groups):
        for dimension, slot in enumerate(group.stride_slots):
            if slot >= 0:
                values[_stride(number, dimension).name] = argument(slot)
        position = argument(group.offset_slot)
        if group.chunk_slot is not None:
            position = position + values["chunk"] * argument(group.chunk_slot)
        values[f"at{number}"] = position
    return values, arrays


@lru_cache(maxsize=256)
def _alias_metadata(classes: int) -> tuple[str, tuple[str, ...]]:
    """Scopes that tell LLVM that buffers of different classes do not overlap: the module's
    metadata, and the annotations of each class's accesses."""
    if classes < 2:
        return "", ("",) * classes
    lines = ["!0 = distinct !{!0}"]
    lines += [f"!{n + 1} = distinct !{{!{n + 1}, !0}}" for n in range(classes)]
    own, others = 1 + classes, 1 + 2 * classes
    for n in range(classes):
        lines.append(f"!{own + n} = !{{!{n + 1}}}")
        rest = ", ".join(f"!{m + 1}" for m in range(classes) if m != n)
        lines.append(f"!{others + n} = !{{{rest}}}")
    tags = tuple(f", !alias.scope !{own + n}, !noalias !{others + n}" for n in range(classes))
    return "\n".join(lines), tags
