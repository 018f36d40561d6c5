"""Small scans and while loops as one native loop, carries in registers or updated in place.

The function is `i64 symbol(i64* slots, i64* row, i64 begin, i64 end, i64 chunk)`. It runs steps
[begin, end) and returns the number of the next step; a while loop that stops early returns less
than `end`. With begin 0 the carries start from the initial buffers, else from the final ones;
they are left in the final ones. So a loop can run in slices: one call with [0, 0) at least.
Carries in place are in memory: the first call copies them there, and steps load and store them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.backends.cpu.emit.ir_text import ATTRIBUTES, Code, Module, Value
from rlx.backends.cpu.emit.kernel_code import (
    KernelCode,
    external_symbols,
    instruction_signature,
    kernel_code,
)
from rlx.backends.cpu.emit.scalar_code import (
    load_scalar,
    register_kind,
    storage_kind,
    store_scalar,
)
from rlx.backends.cpu.emit.unroll import (
    BufferContents,
    Cells,
    can_unroll,
    unroll,
)
from rlx.ir.kernels import Buffer, Contract, Kernel, Loops, Operand, Plan, Scan, While
from rlx.ir.types import compute_dtype, element_dtype

__all__ = ["carried_code", "carried_row"]

_CONSTANT = ", !invariant.load !0"


def carried_code(kernel: Scan | While) -> KernelCode | None:
    """The loop's code, or None if its body is not small enough."""
    if not _is_small(kernel):
        return None
    external: set[str] = set()
    for plan in _plans(kernel):
        for inner in plan.kernels:
            if isinstance(inner, Loops):
                external.update(external_symbols(inner))
    emitter = _ScanEmitter if isinstance(kernel, Scan) else _WhileEmitter
    return kernel_code(
        "carried",
        _signature(kernel),
        tuple(sorted(external)),
        lambda symbol: emitter(kernel).module(symbol),
    )


def carried_row(kernel: Scan | While, slot_of: Callable[[Buffer], int]) -> list[int]:
    """The run-time arguments: the length, then the slots of all buffers that are in memory."""
    length = kernel.length if isinstance(kernel, Scan) else 0
    return [length, *(slot_of(buffer) for buffer in _in_memory(kernel))]


def _plans(kernel: Scan | While) -> tuple[Plan, ...]:
    return (kernel.body,) if isinstance(kernel, Scan) else (kernel.condition, kernel.body)


def _is_small(kernel: Scan | While) -> bool:
    mutable = [kernel.body.outputs[k] for k in kernel.in_place]
    if isinstance(kernel, Scan):
        body, carries = kernel.body, len(kernel.initial)
        start = len(kernel.constants)
        inputs = (*body.inputs[:start], *body.inputs[start + carries :])
        held = [body.inputs[start + k] for k in kernel.in_place]
        streams = body.outputs[carries:]
        return can_unroll(body, (*inputs, *held, *_plan_constants(body)), mutable, streams)
    return all(
        can_unroll(
            plan,
            (
                *plan.inputs[: len(constants)],
                *(plan.inputs[len(constants) + k] for k in kernel.in_place),
                *_plan_constants(plan),
            ),
            mutable,
        )
        for plan, constants in (
            (kernel.condition, kernel.condition_constants),
            (kernel.body, kernel.body_constants),
        )
    )


def _plan_constants(plan: Plan) -> list[Buffer]:
    return [b for b in plan.buffers if b.value is not None]


def _in_memory(kernel: Scan | While) -> list[Buffer]:
    """Buffers by order of their slots in the row, after the length."""
    own = [buffer for plan in _plans(kernel) for buffer in _plan_constants(plan)]
    if isinstance(kernel, Scan):
        return [
            *own, *kernel.constants, *kernel.initial, *kernel.final, *kernel.xs, *kernel.ys
        ]  # fmt: skip
    constants = (*kernel.condition_constants, *kernel.body_constants)
    return [*own, *constants, *kernel.initial, *kernel.final]


# ------------------------------------------------------------------ content
def _signature(kernel: Scan | While) -> tuple[object, ...]:
    plans = tuple(_plan_signature(plan) for plan in _plans(kernel))
    sizes = tuple(kernel.final[k].nbytes for k in kernel.in_place)
    numbers: dict[int, int] = {}  # code has one pointer for a buffer that occurs twice
    same = tuple(numbers.setdefault(id(buffer), len(numbers)) for buffer in _in_memory(kernel))
    if isinstance(kernel, Scan):
        groups = tuple(map(len, (kernel.constants, kernel.initial, kernel.xs, kernel.ys)))
        return ("scan", kernel.reverse, groups, kernel.in_place, sizes, same, plans)
    groups = tuple(map(len, (kernel.condition_constants, kernel.body_constants, kernel.initial)))
    return ("while", groups, kernel.in_place, sizes, same, plans)


def _plan_signature(plan: Plan) -> tuple[object, ...]:
    numbers: dict[int, int] = {}
    for buffer in (*plan.inputs, *plan.outputs, *plan.buffers):
        numbers.setdefault(id(buffer), len(numbers))
    kernels = tuple(_kernel_signature(kernel, numbers) for kernel in plan.kernels)
    ordered = {id(b): b for b in (*plan.inputs, *plan.outputs, *plan.buffers)}
    buffers = tuple((b.dtype.name, b.size, b.value is not None) for b in ordered.values())
    return (len(plan.inputs), len(plan.outputs), buffers, kernels)


def _kernel_signature(kernel: Kernel, numbers: dict[int, int]) -> tuple[object, ...]:
    if isinstance(kernel, Contract):
        views = (kernel.lhs, kernel.rhs, kernel.out)
        return ("contract", kernel.accumulate, *(_operand_signature(v, numbers) for v in views))
    assert isinstance(kernel, Loops)
    return (
        kernel.sizes,
        kernel.outer,
        tuple(numbers[id(buffer)] for buffer in kernel.operands),
        tuple(
            (*instruction_signature(i), i.attribute if i.op == "load" else None)
            for i in kernel.instructions
        ),
        kernel.stores,
    )


def _operand_signature(operand: Operand, numbers: dict[int, int]) -> tuple[object, ...]:
    return (numbers[id(operand.buffer)], operand.shape, operand.strides, operand.offset)


# ------------------------------------------------------------------ code
class _Emitter:
    """The parts that both kinds of loops have."""

    def __init__(self, kernel: Scan | While) -> None:
        self.kernel = kernel
        self.code = Code(Module(scalar=True))
        self.begin, self.end = (Value(self.code, n, "i64") for n in ("%begin", "%end"))
        self.pointers: dict[int, str] = {}
        self.moving = [k for k in range(len(kernel.final)) if k not in kernel.in_place]

    def module(self, symbol: str) -> str:
        """The whole module's text."""
        self._read_arguments()
        self._copy_in_place()
        self._loop()
        head = f"define i64 @{symbol}(ptr %slots, ptr %row, i64 %begin, i64 %end, i64 %chunk)"
        function = f"{head} {ATTRIBUTES} {{\n{self.code.text()}\n}}"
        return "\n".join((self.code.module.text(), function, "!0 = !{}", ""))

    def _read_arguments(self) -> None:
        code = self.code
        self.length = code.load("i64", "%row")
        for number, buffer in enumerate(_in_memory(self.kernel), 1):
            slot = code.load("i64", code.element("i64", "%row", number))
            address = code.load("i64", code.element("i64", "%slots", slot))
            self.pointers[id(buffer)] = address.convert("inttoptr", "ptr").name

    def _copy_in_place(self) -> None:
        """Copy carries in place to their memory, in the first call."""
        code = self.code
        pairs = [(self.kernel.initial[k], self.kernel.final[k]) for k in self.kernel.in_place]
        copied = [(first, last) for first, last in pairs if first is not last]
        if not copied:
            return
        kinds = ("ptr", "ptr", "i64", "i1")
        code.module.declare("llvm.memcpy.p0.p0.i64", "void", kinds)
        with code.when(self.begin.equal(0)):
            for first, last in copied:
                source, target = self.pointers[id(first)], self.pointers[id(last)]
                arguments = f"ptr {target}, ptr {source}, i64 {last.nbytes}, i1 false"
                code.line(f"call void @llvm.memcpy.p0.p0.i64({arguments})")

    def _first_carries(self) -> list[Cells]:
        fresh = self.begin.equal(0)
        carries: list[Cells] = []
        for number in self.moving:
            initial, final = self.kernel.initial[number], self.kernel.final[number]
            sources = (self.pointers[id(buffer)] for buffer in (initial, final))
            first, later = (Value(self.code, pointer, "ptr") for pointer in sources)
            carries.append(self._load_all(final, fresh.where(first, later).name))
        return carries

    def _load_all(self, buffer: Buffer, pointer: str) -> Cells:
        dtype = element_dtype(buffer.dtype)
        kind = storage_kind(dtype)
        return [
            load_scalar(self.code, dtype, self.code.element(kind, pointer, n))
            for n in range(buffer.real_size)
        ]

    def _store_all(self, buffer: Buffer, cells: Sequence[Value | None], pointer: str) -> None:
        dtype = element_dtype(buffer.dtype)
        for number, value in enumerate(cells):
            if value is not None:
                place = self.code.element(storage_kind(dtype), pointer, number)
                store_scalar(self.code, dtype, value, place)

    def _memory(self, plan: Plan, constants: Sequence[Buffer], carries: list[Cells]) -> BufferContents:
        """Memory with the plan's constants and carries bound."""
        memory = BufferContents(self.code)
        for buffer in _plan_constants(plan):
            memory.point(buffer, self.pointers[id(buffer)], _CONSTANT)
        for inside, outside in zip(plan.inputs, constants, strict=False):
            memory.point(inside, self.pointers[id(outside)], _CONSTANT)
        inputs = plan.inputs[len(constants) :]
        for number, cells in zip(self.moving, carries, strict=True):
            memory.hold(inputs[number], cells)
        for number in self.kernel.in_place:
            place = self.pointers[id(self.kernel.final[number])]
            for inside in (inputs[number], self.kernel.body.outputs[number]):
                memory.point_mutable(inside, place)
        return memory

    def _carry_phis(self, first: list[Cells]) -> list[Cells]:
        """A phi for each carried value: their second edges come with `_close`."""
        self.before = self.code.block
        self.code.start_block("step")
        self.counter = Value(self.code, "%counter", "i64")
        self.code.line(f"%counter = phi i64 [ %begin, %{self.before} ], [ %next, %again ]")
        phis: list[Cells] = []
        for carry, cells in enumerate(first):
            kind = register_kind(compute_dtype(element_dtype(self.kernel.final[self.moving[carry]].dtype)))
            names: Cells = []
            for number, value in enumerate(cells):
                assert value is not None
                name = f"%carry{carry}.{number}"
                self.code.line(
                    f"{name} = phi {kind} [ {value.name}, %{self.before} ], "
                    f"[ %after{carry}.{number}, %again ]"
                )
                names.append(Value(self.code, name, kind))
            phis.append(names)
        return phis

    def _close(self, memory: BufferContents, outputs: Sequence[Buffer], carries: list[Cells]) -> None:
        """Continue with the next step; at the end leave the carries in the final buffers."""
        code = self.code
        after = [
            [memory.read(outputs[number], n) for n in range(len(cells))]
            for number, cells in zip(self.moving, carries, strict=True)
        ]
        code.start_block("again")
        for carry, values in enumerate(after):
            for number, value in enumerate(values):
                # a copy that gives the value the name that the phi expects
                kind, name = value.kind, f"%after{carry}.{number}"
                code.line(f"{name} = select i1 true, {kind} {value.name}, {kind} {value.name}")
        code.line("%next = add nuw nsw i64 %counter, 1")
        code.line("br label %step")
        code.enter_block("finish")
        for number, cells in zip(self.moving, carries, strict=True):
            buffer = self.kernel.final[number]
            self._store_all(buffer, cells, self.pointers[id(buffer)])
        code.line("ret i64 %counter")

    def _loop(self) -> None:
        raise NotImplementedError


class _ScanEmitter(_Emitter):
    """A loop over slices."""

    kernel: Scan

    def _loop(self) -> None:
        code, kernel, body = self.code, self.kernel, self.kernel.body
        carries = self._carry_phis(self._first_carries())
        inside = self.counter < self.end
        code.line(f"br i1 {inside.name}, label %work, label %finish")
        code.enter_block("work")
        at = self.length - 1 - self.counter if kernel.reverse else self.counter
        memory = self._memory(body, kernel.constants, carries)
        start = len(kernel.constants) + len(kernel.initial)
        for inside_buffer, outside in zip(body.inputs[start:], kernel.xs, strict=True):
            memory.point(inside_buffer, self._slice(inside_buffer, outside, at))
        unroll(body, memory)
        count = len(kernel.initial)
        for inside_buffer, outside in zip(body.outputs[count:], kernel.ys, strict=True):
            place = self._slice(inside_buffer, outside, at)
            self._store_all(inside_buffer, memory.of(inside_buffer), place)
        self._close(memory, body.outputs, carries)

    def _slice(self, inside: Buffer, outside: Buffer, at: Value) -> str:
        kind = storage_kind(element_dtype(inside.dtype))
        start = at * inside.real_size
        return self.code.element(kind, self.pointers[id(outside)], start)


class _WhileEmitter(_Emitter):
    """A loop with a condition."""

    kernel: While

    def _loop(self) -> None:
        code, kernel = self.code, self.kernel
        carries = self._carry_phis(self._first_carries())
        more = self.counter < self.end
        code.line(f"br i1 {more.name}, label %test, label %finish")
        code.enter_block("test")
        memory = self._memory(kernel.condition, kernel.condition_constants, carries)
        unroll(kernel.condition, memory)
        holds = memory.read(kernel.condition.outputs[0], 0)
        code.line(f"br i1 {holds.name}, label %work, label %finish")
        code.enter_block("work")
        memory = self._memory(kernel.body, kernel.body_constants, carries)
        unroll(kernel.body, memory)
        self._close(memory, kernel.body.outputs, carries)
