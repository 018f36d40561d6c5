"""Verification of Loops: instructions, index maps, stores, and updates in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Store, reaches_apart
from rlx.ir.scalar import ALPHABET, REDUCERS, SPECIAL, USER_FUNCTIONS
from rlx.ir.types import bits_of, compute_dtype, dtype_kind, element_dtype, is_complex, is_narrow, supported_dtypes

__all__ = [
    "Refusal",
    "element_levels",
    "may_share",
    "may_update",
    "require",
    "store_runs_once",
    "verify_loops",
]

_INT64 = np.dtype(np.int64)
_BOOL = np.dtype(bool)


class Refusal(Exception):
    """A broken rule; the verifier adds where."""


def require(holds: bool, rule: str) -> None:
    """Refuse with a message unless the condition is true."""
    if not holds:
        raise Refusal(rule)


# ------------------------------------------------------------------ levels and passes
def element_levels(kernel: Loops) -> list[bool]:
    """For each instruction: whether its value can differ within a row."""
    levels: list[bool] = []
    for instruction in kernel.instructions:
        own = any(levels[n] for n in instruction.args)
        match instruction.op:
            case "reduce":
                own = False
            case "cumulate":
                own = True
            case "index":
                own = instruction.attribute >= kernel.outer
            case "load":
                own = own or any(instruction.attribute.strides[kernel.outer :])
        levels.append(own)
    return levels


def store_is_of_the_row(kernel: Loops, store: Store, levels: Sequence[bool]) -> bool:
    """Whether place, value, address and guard are the same for all elements of a row."""
    used = (store.value, store.address, store.guard)
    return not any(store.access.strides[kernel.outer :]) and not any(
        levels[n] for n in used if n is not None
    )


def store_runs_once(kernel: Loops, store: Store, levels: Sequence[bool]) -> bool:
    """Whether the store runs once per row, not for each of its elements."""
    return (store.once or store.accumulate is None) and store_is_of_the_row(kernel, store, levels)


def _passes(kernel: Loops) -> list[int]:
    """For each instruction: the number of complete passes over the row that it needs."""
    passes: list[int] = []
    for instruction in kernel.instructions:
        own = max((passes[n] for n in instruction.args), default=0)
        passes.append(own + (instruction.op == "reduce"))
    return passes


def _pass_of(store: Store, passes: Sequence[int]) -> int:
    used = (store.value, store.address, store.guard)
    return max(passes[n] for n in used if n is not None)


def may_share(kernel: Loops, read: Buffer, written: Buffer) -> bool:
    """Whether `written` may take the bytes of `read` when the kernel reads it for the last time.

    So if each element of `read` is loaded by the very iteration that writes its place, through
    one index map without gathers, and the write happens in the last pass over the row.
    """
    if element_dtype(read.dtype).itemsize != element_dtype(written.dtype).itemsize:
        return False
    loads = [
        i for i in kernel.instructions
        if i.op == "load" and kernel.operands[i.attribute.operand] is read
    ]  # fmt: skip
    stores = [s for s in kernel.stores if kernel.operands[s.access.operand] is written]
    if any(i.args for i in loads) or any(s.address is not None or s.accumulate for s in stores):
        return False
    maps = {_index_map(a) for a in (*(i.attribute for i in loads), *(s.access for s in stores))}
    if len(maps) != 1 or not loads:
        return False
    levels, passes = element_levels(kernel), _passes(kernel)
    return all(_writes_last(kernel, s, levels, passes) for s in stores)


def may_update(kernel: Loops, read: Buffer, written: Buffer) -> bool:
    """Whether `read` and `written` may be the same buffer, part of which the kernel writes.

    So if they may share memory, if there is one iteration only, or if each iteration loads and
    stores one element at a computed distance that is the same for all.
    """
    if may_share(kernel, read, written):
        return True
    if kernel.chunks > 1 or max(_passes(kernel), default=0) > 0:
        return False
    return math.prod(kernel.sizes) == 1 or _at_one_place(kernel, read, written)


def _at_one_place(kernel: Loops, read: Buffer, written: Buffer) -> bool:
    accesses = [
        (i.attribute, i.args) for i in kernel.instructions
        if i.op == "load" and kernel.operands[i.attribute.operand] is read
    ]  # fmt: skip
    accesses += [
        (s.access, () if s.address is None else (s.address,)) for s in kernel.stores
        if kernel.operands[s.access.operand] is written
    ]  # fmt: skip
    if len({(_index_map(access), address) for access, address in accesses}) != 1:
        return False
    access, address = accesses[0]
    return reaches_apart(access.strides, kernel.sizes) and not any(_varies(kernel, n) for n in address)


def _varies(kernel: Loops, number: int) -> bool:
    """Whether an instruction may have different values in different iterations."""
    varying: list[bool] = []
    for instruction in kernel.instructions[: number + 1]:
        moves = instruction.op == "load" and any(instruction.attribute.strides)
        own = moves or instruction.op in ("index", "cumulate")
        varying.append(own or any(varying[n] for n in instruction.args))
    return varying[number]


def _writes_last(
    kernel: Loops, store: Store, levels: Sequence[bool], passes: Sequence[int]
) -> bool:
    """Whether no element of a row is loaded after the store, and no other iteration loads the stored element.

    The elements of a row may be stored by threads that run beside the one that stores what the row has once.
    """
    if store_runs_once(kernel, store, levels):
        if not all(store_runs_once(kernel, other, levels) for other in kernel.stores):
            return False
        sizes, last = kernel.sizes[: kernel.outer], max(passes)
    else:
        sizes, last = kernel.sizes, _last_pass(kernel, levels, passes)
    return reaches_apart(store.access.strides, sizes) and _pass_of(store, passes) >= last


def _last_pass(kernel: Loops, levels: Sequence[bool], passes: Sequence[int]) -> int:
    """The last pass that runs over the elements of the row."""
    reduced = [passes[n] - 1 for n, i in enumerate(kernel.instructions) if i.op == "reduce"]
    stored = [
        _pass_of(s, passes) for s in kernel.stores if not store_runs_once(kernel, s, levels)
    ]
    return max((*reduced, *stored), default=0)


def _index_map(access: Access) -> tuple[tuple[int, ...], int, int]:
    return access.strides, access.offset, access.chunk_stride


# ------------------------------------------------------------------ kernels
def verify_loops(kernel: Loops) -> None:
    """Refuse a kernel that breaks a rule."""
    dimensions = len(kernel.sizes)
    require(all(n >= 0 for n in kernel.sizes), "a size is negative")
    require(0 <= kernel.outer <= dimensions, "outer counts some of the dimensions")
    require(0 <= kernel.parallel <= kernel.outer, "parallel counts some outer dimensions")
    require(kernel.chunks >= 1 and (kernel.chunks == 1 or dimensions > 0), "nothing to cut")
    require(len(set(kernel.operands)) == len(kernel.operands), "an operand occurs twice")
    for number, instruction in enumerate(kernel.instructions):
        try:
            _verify_instruction(kernel, number, instruction)
        except Refusal as refusal:
            raise Refusal(f"instruction {number}, {instruction.op}: {refusal}") from None
    levels = element_levels(kernel)
    for number, store in enumerate(kernel.stores):
        try:
            _verify_store(kernel, store, levels)
        except Refusal as refusal:
            raise Refusal(f"store {number}: {refusal}") from None
    for operand in {s.access.operand for s in kernel.stores}:
        _verify_in_place(kernel, operand)


def _verify_in_place(kernel: Loops, operand: int) -> None:
    """Stored elements are loaded in the same iteration, or loads are from other places."""
    loads = [i for i in kernel.instructions if i.op == "load" and i.attribute.operand == operand]
    stores = [s for s in kernel.stores if s.access.operand == operand]
    buffer = kernel.operands[operand]
    if not loads or may_update(kernel, buffer, buffer):
        return
    static = not any(i.args for i in loads) and all(
        s.address is None and s.guard is None for s in stores
    )
    apart = static and all(
        _are_apart(_reach(kernel, i.attribute), _reach(kernel, s.access))
        for i in loads
        for s in stores
    )
    require(apart, f"operand {operand} is loaded where other iterations or passes store")


def _are_apart(one: tuple[int, int] | None, other: tuple[int, int] | None) -> bool:
    return one is None or other is None or one[1] < other[0] or other[1] < one[0]


# ------------------------------------------------------------------ index maps
def _reach(kernel: Loops, access: Access, even_if_empty: bool = False) -> tuple[int, int] | None:
    """The least and the greatest address of a static access; None if it reaches nothing."""
    outer_sizes = kernel.sizes[: kernel.outer]
    if 0 in outer_sizes and not even_if_empty:
        return None
    if any(s and not n for s, n in zip(access.strides, kernel.sizes, strict=True)):
        return None
    low = high = access.offset
    for stride, size in zip(access.strides[1:], kernel.sizes[1:], strict=True):
        low += min(0, stride * (size - 1)) if stride else 0
        high += max(0, stride * (size - 1)) if stride else 0
    ends: list[int] = []
    for chunk in range(kernel.chunks):
        ends.extend(_ends_along_first(kernel, access, chunk))
    return (low + min(ends), high + max(ends)) if ends else None


def _ends_along_first(kernel: Loops, access: Access, chunk: int) -> tuple[int, ...]:
    """Displacements of a chunk's first and last iteration along dimension 0."""
    moved = access.chunk_stride * chunk
    if not kernel.sizes or not access.strides[0]:
        return (moved,)
    size = kernel.sizes[0]
    start, stop = size * chunk // kernel.chunks, size * (chunk + 1) // kernel.chunks
    if start == stop:
        return ()
    return moved + access.strides[0] * start, moved + access.strides[0] * (stop - 1)


def _verify_access(kernel: Loops, access: object) -> Buffer:
    require(isinstance(access, Access), "its attribute is an Access")
    assert isinstance(access, Access)
    require(0 <= access.operand < len(kernel.operands), f"there is no operand {access.operand}")
    require(
        len(access.strides) == len(kernel.sizes),
        f"{len(access.strides)} strides for {len(kernel.sizes)} dimensions",
    )
    return kernel.operands[access.operand]


def _verify_bounds(reach: tuple[int, int] | None, buffer: Buffer) -> None:
    size = buffer.real_size
    if reach is not None:
        require(
            reach[0] >= 0 and reach[1] < size,
            f"reaches elements {reach[0]} to {reach[1]} of a buffer of {size}",
        )


# ------------------------------------------------------------------ instructions
def _verify_instruction(kernel: Loops, number: int, instruction: Instruction) -> None:
    for n in instruction.args:
        require(0 <= n < number, f"uses instruction {n}, which is not an earlier one")
    require(
        instruction.dtype in supported_dtypes and not is_complex(instruction.dtype),
        f"no scalar has dtype {instruction.dtype}",
    )
    arguments = [kernel.instructions[n].dtype for n in instruction.args]
    converts = instruction.op in ("cast", "bitcast")
    require(
        converts or not any(map(is_narrow, (*arguments, instruction.dtype))),
        "narrow numbers are only cast, bitcast and stored",
    )
    rule = _STRUCTURAL.get(instruction.op)
    if rule is not None:
        rule(kernel, instruction, arguments)
    else:
        _verify_operation(instruction, arguments)


def _verify_constant(kernel: Loops, instruction: Instruction, arguments: list[np.dtype]) -> None:
    require(not arguments, "takes no arguments")
    value = instruction.attribute
    require(
        isinstance(value, bytes) and len(value) == instruction.dtype.itemsize,
        "its attribute is the value's bytes",
    )


def _verify_index(kernel: Loops, instruction: Instruction, arguments: list[np.dtype]) -> None:
    require(not arguments, "takes no arguments")
    require(instruction.attribute in range(len(kernel.sizes)), "its attribute is a dimension")
    require(instruction.dtype == _INT64, "is int64")


def _verify_load(kernel: Loops, instruction: Instruction, arguments: list[np.dtype]) -> None:
    buffer = _verify_access(kernel, instruction.attribute)
    require(arguments in ([], [_INT64]), "takes one int64 address at most")
    loaded = compute_dtype(buffer.dtype)
    require(instruction.dtype == loaded, f"loads {loaded}, not {instruction.dtype}")
    if not arguments:
        _verify_bounds(_reach(kernel, instruction.attribute), buffer)


def _verify_reduce(kernel: Loops, instruction: Instruction, arguments: list[np.dtype]) -> None:
    require(arguments == [instruction.dtype], "takes one argument of the instruction's dtype")
    _verify_reducer(instruction.attribute, instruction.dtype)


def _verify_cumulate(kernel: Loops, instruction: Instruction, arguments: list[np.dtype]) -> None:
    _verify_reduce(kernel, instruction, arguments)
    require(len(kernel.sizes) - kernel.outer == 1, "needs exactly one row dimension")


def _verify_reducer(reducer: object, dtype: np.dtype) -> None:
    require(reducer in REDUCERS, f"{reducer!r} is not a reducer")
    accepted = ALPHABET[str(reducer)].kinds
    require(dtype_kind(dtype) in accepted, f"no {reducer} of {dtype}")


_STRUCTURAL: dict[str, Callable[[Loops, Instruction, list[np.dtype]], None]] = {
    "constant": _verify_constant,
    "index": _verify_index,
    "load": _verify_load,
    "reduce": _verify_reduce,
    "cumulate": _verify_cumulate,
}


def _verify_operation(instruction: Instruction, arguments: list[np.dtype]) -> None:
    """An operation of the scalar alphabet: arity, kinds, dtypes."""
    operation = ALPHABET.get(instruction.op)
    if operation is None:
        raise Refusal("is not in the alphabet")
    arity = operation.arity
    if instruction.op == "special" and instruction.attribute in USER_FUNCTIONS:
        called = USER_FUNCTIONS[instruction.attribute]
        require(tuple(arguments) == called.operands, f"takes {called.operands}, not {arguments}")
        require(instruction.dtype == called.result, f"its result is {called.result}")
        return
    if instruction.op == "special":
        require(instruction.attribute in SPECIAL, f"no function {instruction.attribute!r}")
        arity = SPECIAL[instruction.attribute].arity
    require(len(arguments) == arity, f"takes {arity} arguments, not {len(arguments)}")
    if instruction.op == "select":
        require(arguments[0] == _BOOL, "its first argument is bool")
        arguments = arguments[1:]
    dtype = arguments[0]
    require(all(a == dtype for a in arguments), f"its operands' dtypes differ: {arguments}")
    require(dtype_kind(dtype) in operation.kinds, f"no {instruction.op} of {dtype}")
    if operation.result != "attribute":
        result = _BOOL if operation.result == "bool" else dtype
        require(instruction.dtype == result, f"its result is {result}, not {instruction.dtype}")
    elif instruction.op == "bitcast":
        same = bits_of(dtype) == bits_of(instruction.dtype) and instruction.dtype != _BOOL
        require(same, f"{dtype} and {instruction.dtype} differ in width")


# ------------------------------------------------------------------ stores
def _verify_store(kernel: Loops, store: Store, levels: Sequence[bool]) -> None:
    buffer = _verify_access(kernel, store.access)
    used = {"value": store.value, "address": store.address, "guard": store.guard}
    for what, number in used.items():
        exists = number is None or 0 <= number < len(kernel.instructions)
        require(exists, f"its {what} is not an instruction")
    value = kernel.instructions[store.value].dtype
    stored = element_dtype(buffer.dtype)
    fits = value == stored or value == compute_dtype(stored)
    require(fits, f"stores {value} into {stored}")
    if store.address is not None:
        require(kernel.instructions[store.address].dtype == _INT64, "its address is not int64")
    if store.guard is not None:
        require(kernel.instructions[store.guard].dtype == _BOOL, "its guard is not bool")
    if store.accumulate is not None:
        _verify_reducer(store.accumulate, value)
        require(not is_narrow(value), "accumulates a narrow number")
    if store.initialize:
        fits = store.accumulate is not None and store.address is None
        require(fits, "initialize is for accumulating stores without an address")
        _verify_bounds(_reach(kernel, store.access, even_if_empty=True), buffer)
    of_the_row = store_is_of_the_row(kernel, store, levels)
    if store.once:
        require(store.accumulate is not None, "once is for accumulating stores: others of the row run once anyway")
        require(of_the_row, "runs once per row, but its place, value, address or guard differs within a row")
    require(store.order in ("any", "sequential"), f"{store.order!r} is not an order")
    free = store.address is None and store.guard is None and store.accumulate is None
    if store.order == "any" and free:
        sizes = kernel.sizes[: kernel.outer] if of_the_row else kernel.sizes
        still = [d for d, n in enumerate(sizes) if n > 1 and not store.access.strides[d]]
        require(not still, f"overwrites one element in any order, along dimensions {still}")
    if store.address is None and store.guard is None:
        if of_the_row or 0 not in kernel.sizes:
            _verify_bounds(_reach(kernel, store.access), buffer)
        _verify_races(kernel, store)


def _verify_races(kernel: Loops, store: Store) -> None:
    """Iterations that may run at the same time write different elements."""
    strides = store.access.strides
    for dimension in range(kernel.parallel):
        apart = strides[dimension] != 0 or kernel.sizes[dimension] <= 1
        require(apart, f"iterations of parallel dimension {dimension} write the same element")
    if kernel.chunks > 1 and kernel.sizes[0] > 1:
        apart = strides[0] != 0 or store.access.chunk_stride != 0
        require(apart, "chunks write the same element")
