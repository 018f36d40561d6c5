"""Verification of Plans: every rule that rlx/ir/kernels.py states and that can be checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import prod

from rlx.errors import VerificationError
from rlx.ir.collectives import KINDS
from rlx.ir.kernels import (
    Await,
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
    nested_plans,
)
from rlx.ir.loop_parts import ScanParts, ScanResults
from rlx.ir.row_tiles import iterations, stays_in_row_tiles
from rlx.ir.show_plan import show_kernel
from rlx.ir.types import bits_of, dtype_kind, is_narrow, supported_dtypes
from rlx.ir.user_functions import ArrayCall
from rlx.ir.verify_loops import Refusal, may_share, require, verify_loops
from rlx.routines import LIBRARY_ROUTINES

__all__ = ["LIBRARY_NAMES", "may_share", "verify_plan"]

LIBRARY_NAMES = tuple(LIBRARY_ROUTINES)


def verify_plan(plan: Plan, placed: bool = True, nested: bool = True) -> None:
    """Raise errors.VerificationError if a plan breaks a rule of rlx.ir.kernels.

    placed: whether temporaries already have offsets in the arena. nested: whether to also verify the plans inside
    its kernels.
    """
    _checked(plan, None, _verify_buffers, plan)
    written: set[Buffer] = {b for b in plan.buffers if b.role in ("input", "constant")}
    written.update(plan.outputs[k] for k in plan.held)
    known = set(plan.buffers)
    for kernel in plan.kernels:
        _checked(plan, kernel, _verify_kernel, kernel, known, written)
        written.update(kernel.writes)
        if nested:
            for inner in nested_plans(kernel):
                verify_plan(inner)
    _checked(plan, None, _verify_outputs, plan, written)
    if placed:
        _verify_arena(plan)


def _checked(
    plan: Plan, kernel: Kernel | None, check: Callable[..., None], *arguments: object
) -> None:
    """Run a check; a refusal becomes an error that shows the kernel."""
    try:
        check(*arguments)
    except Refusal as refusal:
        text = "" if kernel is None else f"\n{show_kernel(kernel)}"
        raise VerificationError(f"plan {plan.name}: {refusal}{text}", line="") from None


# ------------------------------------------------------------------ buffers
def _verify_buffers(plan: Plan) -> None:
    for what, buffers in (
        ("buffers", plan.buffers), ("inputs", plan.inputs), ("outputs", plan.outputs)
    ):  # fmt: skip
        require(len(set(buffers)) == len(buffers), f"{what} contains a buffer twice")
    for buffer in plan.buffers:
        name = f"{buffer.role} buffer {buffer.name!r}"
        require(buffer.dtype in supported_dtypes, f"{name} has dtype {buffer.dtype}")
        require(buffer.size >= 0, f"{name} has size {buffer.size}")
        if buffer.role == "constant":
            value = buffer.value
            require(value is not None, f"{name} has no value")
            require(
                value is not None and value.dtype == buffer.dtype and value.size == buffer.size,
                f"{name} is not of its value's dtype and size",
            )
        else:
            require(buffer.value is None, f"{name} has a value")
    for role, bound in (("input", plan.inputs), ("output", plan.outputs)):
        own = {b for b in plan.buffers if b.role == role}
        require(own == set(bound), f"the buffers of role {role} are not the plan's {role}s")


def _verify_outputs(plan: Plan, written: set[Buffer]) -> None:
    for number, buffer in enumerate(plan.outputs):
        require(buffer in written or buffer.size == 0, f"no kernel writes output {number}")


def _verify_kernel(kernel: Kernel, known: set[Buffer], written: set[Buffer]) -> None:
    _verify_kind(kernel)
    for buffer in (*kernel.reads, *kernel.writes):
        require(buffer in known, f"buffer {buffer.name!r} is not among the plan's buffers")
    for buffer in kernel.reads:
        require(
            buffer in written or buffer.size == 0,
            f"reads {buffer.role} buffer {buffer.name!r} before a kernel has written it",
        )
    for buffer in kernel.writes:
        require(
            buffer.role in ("output", "temporary"),
            f"writes {buffer.role} buffer {buffer.name!r}",
        )


def _verify_kind(kernel: Kernel) -> None:
    match kernel:
        case Loops():
            verify_loops(kernel)
        case Contract():
            _verify_contract(kernel)
        case RowTiles():
            _verify_row_tiles(kernel)
        case Sort():
            _verify_sort(kernel)
        case Library():
            if kernel.meaning is None:
                require(kernel.routine in LIBRARY_NAMES, f"no library routine {kernel.routine!r}")
            else:
                _verify_meaning(kernel, kernel.meaning)
            for operand in (*kernel.inputs, *kernel.outputs):
                _verify_operand(operand)
                require(_is_contiguous(operand), "operands of library routines are contiguous")
        case Scan():
            _verify_scan(kernel)
        case While():
            _verify_while(kernel)
        case Branch():
            _verify_branch(kernel)
        case Callback():
            require(callable(kernel.function), "the callback's function cannot be called")
            for operand in (*kernel.inputs, *kernel.outputs):
                _verify_operand(operand)
                dense = not isinstance(kernel.function, ArrayCall) or _is_contiguous(operand)
                require(dense, "operands of compiled callbacks are contiguous")
        case Collective():
            _verify_collective(kernel)
        case Await():
            for operand in (kernel.input, kernel.output):
                _verify_operand(operand)
        case _:
            raise Refusal(f"{type(kernel).__name__} is not a kernel kind")


def _verify_collective(kernel: Collective) -> None:
    exchange, source, target = kernel.exchange, kernel.input, kernel.output
    for operand in (source, target):
        _verify_operand(operand)
        require(_is_contiguous(operand), "operands of collectives are contiguous")
    require(exchange.kind in KINDS, f"there is no exchange of kind {exchange.kind!r}")
    refusal = exchange.refusal(source.shape, source.buffer.dtype)
    require(refusal is None, f"{exchange.kind}: {refusal}")
    require(target.shape == exchange.result(source.shape), "the output has not the exchange's shape")
    require(target.buffer.dtype == source.buffer.dtype, "the output does not have the input's dtype")
    require(target.buffer is not source.buffer, "the output is in the input's buffer")
    require(len(kernel.mark) == 16, "the mark does not have 16 bytes")


# ------------------------------------------------------------------ operands
def _verify_operand(operand: Operand) -> None:
    require(len(operand.shape) == len(operand.strides), "shape and strides differ in length")
    require(all(n >= 0 for n in operand.shape), "a size is negative")
    if 0 in operand.shape:
        return
    reach = [s * (n - 1) for n, s in zip(operand.shape, operand.strides, strict=True)]
    low = operand.offset + sum(r for r in reach if r < 0)
    high = operand.offset + sum(r for r in reach if r > 0)
    require(
        low >= 0 and high < operand.buffer.size,
        f"a view reaches elements {low} to {high} of a buffer of {operand.buffer.size}",
    )


def _is_contiguous(operand: Operand) -> bool:
    if 0 in operand.shape:
        return True
    expected = 1
    for size, stride in zip(reversed(operand.shape), reversed(operand.strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


# ------------------------------------------------------------------ kinds
def _verify_contract(kernel: Contract) -> None:
    operands = {"lhs": kernel.lhs, "rhs": kernel.rhs, "out": kernel.out}
    _verify_product_type(kernel)
    for name, operand in operands.items():
        require(len(operand.shape) == len(kernel.out.shape) in (3, 4), f"{name} has three dimensions, or four")
        _verify_operand(operand)
        if 0 in operand.shape:
            continue
        rows = _is_matrix(operand, unit=-1, other=-2)
        columns = name != "out" and _is_matrix(operand, unit=-2, other=-1)
        require(rows or columns, f"{name} is not a matrix that BLAS takes: {operand.strides}")
    (*batch, rows_, inner), columns_ = kernel.lhs.shape, kernel.rhs.shape[-1]
    require(kernel.rhs.shape == (*batch, inner, columns_), "lhs and rhs do not fit")
    require(kernel.out.shape == (*batch, rows_, columns_), "out does not fit lhs and rhs")
    apart = all(abs(stride) > 0 or size <= 1 for stride, size in zip(kernel.out.strides, batch, strict=False))
    require(apart, "out's batches overlap")
    require(
        kernel.out.buffer not in (kernel.lhs.buffer, kernel.rhs.buffer),
        "out is also an operand",
    )


def _verify_product_type(kernel: Contract) -> None:
    dtype, out, wide = kernel.lhs.buffer.dtype, kernel.out.buffer.dtype, kernel.summed_in
    require(kernel.rhs.buffer.dtype == dtype, "lhs and rhs have one dtype")
    fits = dtype_kind(dtype) == dtype_kind(wide) != "b" and bits_of(dtype) <= bits_of(wide)
    require(fits and not is_narrow(wide), f"no contraction of {dtype} in {wide}")
    require(out in (dtype, wide), f"products of {dtype}, summed in {wide}, are not {out}")
    require(not kernel.tf32 or dtype.name == "float32", "only float32 is rounded to tf32")


def _verify_row_tiles(kernel: RowTiles) -> None:
    require(kernel.count > 0, "there are no row tiles")
    written: set[Buffer] = set()
    for inner in kernel.kernels:
        require(isinstance(inner, (Loops, Contract)), f"{type(inner).__name__} does not run in row tiles")
        _verify_kind(inner)
        require(iterations(inner) % kernel.count == 0, "a kernel cannot be cut in the row tiles")
        for buffer in inner.reads:
            require(buffer in written or buffer not in kernel.local, "a local buffer is read before it is written")
        written.update(inner.writes)
    touching = Counter(buffer for inner in kernel.kernels for buffer in {*inner.reads, *inner.writes})
    for inner in kernel.kernels:
        for buffer in {*inner.reads, *inner.writes} & written:
            alone = touching[buffer] == 1 and buffer not in inner.reads
            fits = alone or stays_in_row_tiles(inner, buffer, kernel.count)
            require(fits, f"buffer {buffer.name!r} is touched across row tiles")
    for buffer in kernel.local:
        require(buffer.role == "temporary", f"{buffer.role} buffer {buffer.name!r} is local to row tiles")
        start = kernel.offsets.get(buffer, -1)
        inside = 0 <= start and start + buffer.nbytes // kernel.count <= kernel.scratch
        require(inside, "a local buffer is outside the scratch")


def _is_matrix(operand: Operand, unit: int, other: int) -> bool:
    """Whether axis `unit` has stride 1 and the other axis steps over whole runs."""
    dense = operand.strides[unit] == 1 or operand.shape[unit] == 1
    return dense and (operand.shape[other] == 1 or operand.strides[other] >= operand.shape[unit])


def _verify_sort(kernel: Sort) -> None:
    require(kernel.rows >= 0 and kernel.length >= 0, "a size is negative")
    require(1 <= kernel.keys <= len(kernel.inputs), "keys are some of the inputs")
    size = kernel.rows * kernel.length
    require(
        all(b.size == size for b in (*kernel.inputs, *kernel.outputs)),
        f"operands have rows * length = {size} elements",
    )
    sorted_outputs = kernel.outputs[: len(kernel.inputs)]
    _verify_pairs("outputs", kernel.inputs, sorted_outputs)
    rest = kernel.outputs[len(kernel.inputs) :]
    require(len(rest) == int(kernel.index), "one output for each input, and one for the index")
    require(all(b.dtype.name in ("int32", "int64") for b in rest), "the index is int32 or int64")


def _verify_pairs(what: str, inner: Sequence[Buffer], given: Sequence[Buffer]) -> None:
    """Buffers that are bound to one another have equal dtypes and sizes."""
    require(len(inner) == len(given), f"{what}: {len(given)} buffers for {len(inner)}")
    for number, (one, other) in enumerate(zip(inner, given, strict=True)):
        require(
            one.dtype == other.dtype and one.size == other.size,
            f"{what} {number}: {other.dtype}[{other.size}] for {one.dtype}[{one.size}]",
        )


def _verify_slices(
    what: str, inner: Sequence[Buffer], given: Sequence[Buffer], length: int
) -> None:
    """Check buffers of which each step takes one slice."""
    require(len(inner) == len(given), f"{what}: {len(given)} buffers for {len(inner)}")
    for number, (one, whole) in enumerate(zip(inner, given, strict=True)):
        require(
            one.dtype == whole.dtype and one.size * length == whole.size,
            f"{what} {number}: {whole.dtype}[{whole.size}] for {length} of {one.dtype}[{one.size}]",
        )


def _verify_meaning(kernel: Library, meaning: Plan) -> None:
    """A block's plan has the inputs and outputs of the kernel."""
    for what, inner, given in (("inputs", meaning.inputs, kernel.inputs), ("outputs", meaning.outputs, kernel.outputs)):
        found = [(o.buffer.dtype, prod(o.shape)) for o in given]
        require(found == [(b.dtype, b.size) for b in inner], f"the block {kernel.routine} has other {what}")
    verify_plan(meaning)


def _verify_scan(kernel: Scan) -> None:
    require(kernel.length >= 0, "the length is negative")
    carries = len(kernel.initial)
    taken = ScanParts.of(kernel.body.inputs, len(kernel.constants), carries)
    given = ScanResults.of(kernel.body.outputs, carries)
    _verify_pairs("constants", taken.constants, kernel.constants)
    _verify_pairs("initial", taken.carries, kernel.initial)
    _verify_slices("xs", taken.xs, kernel.xs, kernel.length)
    _verify_pairs("next carries", kernel.initial, given.carries)
    _verify_pairs("final", kernel.initial, kernel.final)
    _verify_slices("ys", given.ys, kernel.ys, kernel.length)
    _verify_in_place(kernel, taken.carries)


def _verify_while(kernel: While) -> None:
    carries = kernel.initial
    _verify_pairs(
        "condition's inputs", kernel.condition.inputs, (*kernel.condition_constants, *carries)
    )
    _verify_pairs("body's inputs", kernel.body.inputs, (*kernel.body_constants, *carries))
    _verify_pairs("next carries", carries, kernel.body.outputs)
    _verify_pairs("final", carries, kernel.final)
    outputs = [(b.dtype.name, b.size) for b in kernel.condition.outputs]
    require(outputs == [("bool", 1)], "the condition has one bool output")
    _verify_in_place(kernel, kernel.body.inputs[len(kernel.body_constants) :])


def _verify_in_place(kernel: Scan | While, carried: Sequence[Buffer]) -> None:
    """Bodies read carries in place where they write them, and no other carry shares memory."""
    require(len(set(kernel.in_place)) == len(kernel.in_place), "a carry is in place twice")
    read = {buffer for inner in kernel.body.kernels for buffer in inner.reads}
    for number in kernel.in_place:
        require(0 <= number < len(carried), f"there is no carry {number}")
        require(carried[number] not in read, f"carry {number} is in place, but read as an input")
    for number, (first, last) in enumerate(zip(kernel.initial, kernel.final, strict=True)):
        same = [k for k, buffer in enumerate(kernel.reads) if buffer is last]
        alone = first is last and number in kernel.in_place and len(same) == 1
        require(not same or alone, f"final {number} is also read")


def _verify_branch(kernel: Branch) -> None:
    require(len(kernel.branches) > 0, "there is no branch")
    scalar = kernel.index.dtype.name == "int32" and kernel.index.size == 1
    require(scalar, "the index is an int32 scalar")
    for branch in kernel.branches:
        _verify_pairs("branch's inputs", branch.inputs, kernel.inputs)
        _verify_pairs("branch's outputs", branch.outputs, kernel.outputs)


# ------------------------------------------------------------------ arena
def _verify_arena(plan: Plan) -> None:
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for number, kernel in enumerate(plan.kernels):
        for buffer in (*kernel.reads, *kernel.writes):
            first.setdefault(buffer, number)
            last[buffer] = number
    used = [b for b in plan.buffers if b.role == "temporary" and b in first]
    _checked(plan, None, _verify_places, used, plan)
    alive: list[Buffer] = []
    for buffer in sorted((b for b in used if b.size), key=first.__getitem__):
        alive = [other for other in alive if last[other] >= first[buffer]]
        for other in _overlapping(plan, buffer, alive):
            kernel = plan.kernels[first[buffer]]
            handed_over = (
                last[other] == first[buffer] and first[other] < first[buffer]
                and other not in kernel.writes and plan.offsets[buffer] == plan.offsets[other]
                and isinstance(kernel, Loops) and may_share(kernel, other, buffer)
            )  # fmt: skip
            if not handed_over:
                _checked(plan, kernel, _refuse_overlap, plan, other, buffer)
        alive.append(buffer)


def _verify_places(temporaries: Iterable[Buffer], plan: Plan) -> None:
    for buffer in temporaries:
        name = f"temporary {buffer.name!r}"
        require(buffer in plan.offsets, f"{name} has no place in the arena")
        offset = plan.offsets[buffer]
        require(offset % buffer.dtype.itemsize == 0, f"{name} is not aligned: byte {offset}")
        require(
            0 <= offset and offset + buffer.nbytes <= plan.arena,
            f"{name} is at bytes {offset} to {offset + buffer.nbytes} of an arena of {plan.arena}",
        )


def _overlapping(plan: Plan, buffer: Buffer, others: Sequence[Buffer]) -> list[Buffer]:
    offsets = plan.offsets
    start, stop = offsets[buffer], offsets[buffer] + buffer.nbytes
    return [o for o in others if offsets[o] < stop and start < offsets[o] + o.nbytes]


def _refuse_overlap(plan: Plan, one: Buffer, other: Buffer) -> None:
    def place(buffer: Buffer) -> str:
        return f"{buffer.name!r} at {plan.offsets[buffer]}-{plan.offsets[buffer] + buffer.nbytes}"

    raise Refusal(f"live temporaries share bytes: {place(one)}, {place(other)}")
