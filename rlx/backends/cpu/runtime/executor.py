"""The executor in native code: it runs a table of steps over a frame of slots.

A frame is an array of words; slot n (a word number of the frame) contains the address of a buffer.
A row is [step, length in words, fields...]; a step returns 0, or 1 with a Python error set.
Tables of loop bodies and branches are inside the rows of their Scan, While or Branch.
"""

from __future__ import annotations

from rlx.backends.cpu.runtime.frame import (
    CLOCK,
    COUNTDOWN,
    FIRST_SLOT,
    INPUTS,
    INTERRUPTIBLE,
    MAIN_THREAD,
    OUTPUTS,
    PERIOD,
    POINTER_NAME,
    POOL,
    RELEASE,
    SIGNALS_CHECKED,
    STOPPED,
    TABLE,
    TABLE_END,
    THREAD_STATE,
    THREADS,
)
from rlx.backends.cpu.runtime.kernel_calls import call_kernel, run_chunk
from rlx.backends.cpu.runtime.native import (
    NativeSignature,
    Word,
    address_of,
    copy_bytes,
    external,
    load_byte,
    load_int32,
    maximum,
    minimum,
    native,
    stack_of,
)
from rlx.backends.cpu.runtime.parallel_regions import launch, nanoseconds
from rlx.backends.cpu.runtime.signals import interrupted, look_soon, restore_thread, save_thread, thread_identity

__all__ = [
    "branch_step",
    "carried_step",
    "chunked_step",
    "clock_step",
    "copy_step",
    "entry",
    "host_step",
    "kernel_step",
    "long_kernel_step",
    "parallel_step",
    "run_released",
    "run_table",
    "scan_step",
    "while_step",
]

integer_value = external("PyLong_AsLongLong", "i64", "ptr")
make_integer = external("PyLong_FromLongLong", "ptr", "i64")
sequence_item = external("PySequence_GetItem", "ptr", "ptr", "i64")
get_attribute = external("PyObject_GetAttr", "ptr", "ptr", "ptr")
call_object = external("PyObject_CallOneArg", "ptr", "ptr", "ptr")
error_occurred = external("PyErr_Occurred", "ptr")
acquire_reference = external("Py_IncRef", "void", "ptr")
release_reference = external("Py_DecRef", "void", "ptr")

TASK_PARTS = 50  # a task is worth no more threads than this, so Ctrl-C need not wait for it

call_step = NativeSignature("i64", ("i64", "i64"))
call_loop = NativeSignature("i64", ("i64", "i64", "i64", "i64", "i64"))

# Fields of rows. The words that follow the last field belong to the kernel, or are entries.
KERNEL = 2
EXTENT = 3
PARTS = 4
KERNEL_ROW = 5
FUNCTION_OBJECT = 2
TASK_COUNT = 5
CHUNKED_ROW = 6
SLICE = 3
TRIPS = 4
CARRIED_ROW = 5
LENGTH = 2
CARRIES = 3
STREAMS = 4
SCAN_ENTRIES = 5
FLAG_SLOT = 2
BODY_OFFSET = 4
WHILE_ENTRIES = 5
INDEX_SLOT = 2
BRANCHES = 3
BRANCH_OFFSETS = 4
COPY_SOURCE = 2
COPY_TARGET = 3
COPY_BYTES = 4
CLOCK_SLOT = 2
CELL = 3

# A log of times, which rows of clock_step write: its head, a cell for each kernel, then events.
LAST_TIME = 0  # when the last clock step ended
NEXT_EVENT = 1  # word number of the next event
EVENTS_END = 2  # word number after the last event that fits
LOG_HEAD = 3
CELL_WORDS = 2  # nanoseconds in all, how often
EVENT_WORDS = 3  # cell, begin, end

# A carry of a loop: the slots that its body reads and writes, its source, its target, and its temporary.
CARRY_WORDS = 6
READ = 0
WRITTEN = 1
INITIAL = 2
FINAL = 3
SCRATCH = 4
BYTES = 5
# A stream of a scan: the body's slot, the whole array's slot, first byte, bytes from step to step.
STREAM_WORDS = 4
SLICE_SLOT = 0
WHOLE_SLOT = 1
START = 2
STRIDE = 3


@native
def run_table(slots: Word, row: Word, end: Word) -> int:
    """Run the rows from `row` up to `end`."""
    while row != end:
        if call_step(row[0], slots, row) != 0:
            return 1
        row = row + 8 * row[1]
    return 0


@native
def kernel_step(slots: Word, row: Word) -> int:
    call_kernel(row[KERNEL], slots, row + 8 * KERNEL_ROW, 0, row[EXTENT], 0)
    return 0


@native
def long_kernel_step(slots: Word, row: Word) -> int:
    """A kernel that cannot be cut, and is long enough to check for Ctrl-C after it."""
    call_kernel(row[KERNEL], slots, row + 8 * KERNEL_ROW, 0, row[EXTENT], 0)
    look_soon(slots)
    return interrupted(slots)


@native
def kernel_task(context: Word, task: Word) -> int:
    """One task of a parallel kernel; context is [slots, row, elements per task]."""
    row = context[1]
    begin = task * context[2]
    end = minimum(begin + context[2], row[EXTENT])
    call_kernel(row[KERNEL], context[0], row + 8 * KERNEL_ROW, begin, end, 0)
    return 0


@native
def parallel_step(slots: Word, row: Word) -> int:
    """Cut the range in up to four tasks a thread, more if those were long; long ranges at multiples of 64."""
    extent = row[EXTENT]
    limit = minimum(row[PARTS], slots[POOL][THREADS])
    tasks = row[PARTS] // TASK_PARTS
    if limit > 1:
        tasks = maximum(tasks, minimum(row[PARTS], 4 * limit))
    if tasks < 2:
        kernel_step(slots, row)
        return interrupted(slots)
    size = maximum(extent // tasks, 1)
    if size > 1024:
        size = (size + 63) & -64
    tasks = (extent + size - 1) // size
    return launch(slots, address_of(kernel_task), stack_of(slots, row, size), tasks, row[PARTS])


@native
def chunk_task(context: Word, chunk: Word) -> int:
    row = context[1]
    run_chunk(row[KERNEL], context[0], row + 8 * CHUNKED_ROW, row[EXTENT], row[TASK_COUNT], chunk)
    return 0


@native
def chunked_step(slots: Word, row: Word) -> int:
    """Run every chunk of a kernel; PARTS limits how many run at once."""
    return launch(slots, address_of(chunk_task), stack_of(slots, row), row[TASK_COUNT], row[PARTS])


@native
def carried_step(slots: Word, row: Word) -> int:
    """A loop compiled as one function: it runs in slices and returns the next iteration."""
    begin = 0
    while 1:
        end = minimum(begin + row[SLICE], row[TRIPS])
        begin = call_loop(row[KERNEL], slots, row + 8 * CARRIED_ROW, begin, end, 0)
        if begin < end or begin == row[TRIPS]:
            return 0
        if interrupted(slots):
            return 1


@native
def host_step(slots: Word, row: Word) -> int:
    """Call a Python function with the address of the frame."""
    state = slots[THREAD_STATE]
    if state:
        restore_thread(state)
    argument = make_integer(slots)
    result = 0
    if argument:
        result = call_object(row[FUNCTION_OBJECT], argument)
        release_reference(argument)
    if result:
        release_reference(result)
    if state:
        slots[THREAD_STATE] = save_thread()
    return result == 0


@native
def copy_step(slots: Word, row: Word) -> int:
    """Copy a buffer unless source and target are the same."""
    if slots[row[COPY_TARGET]] != slots[row[COPY_SOURCE]]:
        copy_bytes(slots[row[COPY_TARGET]], slots[row[COPY_SOURCE]], row[COPY_BYTES])
    return 0


@native
def clock_step(slots: Word, row: Word) -> int:
    """Count the time since the last clock step for the kernel before this one. Only profiles have these."""
    now = nanoseconds()
    log = slots[row[CLOCK_SLOT]]
    cell = log + 8 * row[CELL]
    cell[0] += now - log[LAST_TIME]
    cell[1] += 1
    if log[NEXT_EVENT] < log[EVENTS_END]:
        event = log + 8 * log[NEXT_EVENT]
        event[0] = row[CELL]
        event[1] = log[LAST_TIME]
        event[2] = now
        log[NEXT_EVENT] += EVENT_WORDS
    log[LAST_TIME] = nanoseconds()
    return 0


@native
def swap_carries(slots: Word, carries: Word, end: Word) -> int:
    """Swap the two buffers of each carry: the body next reads its last result."""
    carry = carries
    while carry != end:
        written = slots[carry[WRITTEN]]
        slots[carry[READ]] = written
        slots[carry[WRITTEN]] = slots[carry[FINAL]] + slots[carry[SCRATCH]] - written
        carry = carry + 8 * CARRY_WORDS
    return 0


@native
def copy_carries(slots: Word, carries: Word, end: Word, source: Word) -> int:
    """Copy each carry from the slot that field `source` names to its final place."""
    carry = carries
    while carry != end:
        if slots[carry[FINAL]] != slots[carry[source]]:
            copy_bytes(slots[carry[FINAL]], slots[carry[source]], carry[BYTES])
        carry = carry + 8 * CARRY_WORDS
    return 0


@native
def scan_step(slots: Word, row: Word) -> int:
    """A counted loop. The carries alternate between two places so that the last one is `final`."""
    trips = row[LENGTH]
    carries = row + 8 * SCAN_ENTRIES
    streams = carries + 8 * CARRY_WORDS * row[CARRIES]
    body = streams + 8 * STREAM_WORDS * row[STREAMS]
    if trips == 0:
        return copy_carries(slots, carries, streams, INITIAL)
    carry = carries
    while carry != streams:
        slots[carry[READ]] = slots[carry[INITIAL]]
        slots[carry[WRITTEN]] = slots[carry[FINAL + 1 - trips % 2]]
        carry = carry + 8 * CARRY_WORDS
    stream = streams
    while stream != body:
        slots[stream[SLICE_SLOT]] = slots[stream[WHOLE_SLOT]] + stream[START]
        stream = stream + 8 * STREAM_WORDS
    for _ in range(trips):
        if run_table(slots, body, row + 8 * row[1]) != 0:
            return 1
        swap_carries(slots, carries, streams)
        stream = streams
        while stream != body:
            slots[stream[SLICE_SLOT]] += stream[STRIDE]
            stream = stream + 8 * STREAM_WORDS
        if interrupted(slots):
            return 1
    return 0


@native
def while_step(slots: Word, row: Word) -> int:
    """A loop under a condition; the last carries are copied to `final` unless they are already there."""
    carries = row + 8 * WHILE_ENTRIES
    condition = carries + 8 * CARRY_WORDS * row[CARRIES]
    body = row + 8 * row[BODY_OFFSET]
    carry = carries
    while carry != condition:
        slots[carry[READ]] = slots[carry[INITIAL]]
        slots[carry[WRITTEN]] = slots[carry[FINAL]]
        carry = carry + 8 * CARRY_WORDS
    while 1:
        if run_table(slots, condition, body) != 0:
            return 1
        if not load_byte(slots[row[FLAG_SLOT]]):
            return copy_carries(slots, carries, condition, READ)
        if run_table(slots, body, row + 8 * row[1]) != 0:
            return 1
        swap_carries(slots, carries, condition)
        if interrupted(slots):
            return 1
    return 0


@native
def branch_step(slots: Word, row: Word) -> int:
    """Run the branch that the int32 index names, clamped; offsets are words from the row."""
    branch = load_int32(slots[row[INDEX_SLOT]])
    branch = minimum(maximum(branch, 0), row[BRANCHES] - 1)
    begin = row + 8 * row[BRANCH_OFFSETS + branch]
    end = row + 8 * row[BRANCH_OFFSETS + 1 + branch]
    return run_table(slots, begin, end)


@native
def bind_slots(slots: Word, first: Word, count: Word, storages: Word) -> int:
    """Fill slots with the `pointer` of each item of a Python sequence."""
    for position in range(count):
        storage = sequence_item(storages, position)
        if not storage:
            return 1
        pointer = get_attribute(storage, slots[POINTER_NAME])
        release_reference(storage)
        if not pointer:
            return 1
        address = integer_value(pointer)
        release_reference(pointer)
        if address == -1 and error_occurred():
            return 1
        slots[first + position] = address
    return 0


@native
def run_released(slots: Word) -> int:
    """Run the whole table without the GIL."""
    pool = slots[POOL]
    now = nanoseconds()
    slots[CLOCK] = now
    slots[SIGNALS_CHECKED] = now
    slots[PERIOD] = 1
    slots[COUNTDOWN] = 1
    slots[STOPPED] = 0
    slots[INTERRUPTIBLE] = thread_identity() == pool[MAIN_THREAD]
    slots[THREAD_STATE] = save_thread()
    status = run_table(slots, slots[TABLE], slots[TABLE_END])
    restore_thread(slots[THREAD_STATE])
    slots[THREAD_STATE] = 0
    slots[INTERRUPTIBLE] = 0
    return status


@native
def entry(module: Word, arguments: Word, count: Word) -> int:
    """The Python function call(frame, inputs, outputs) -> outputs (METH_FASTCALL)."""
    slots = integer_value(arguments[0])
    if bind_slots(slots, FIRST_SLOT, slots[INPUTS], arguments[1]):
        return 0
    if bind_slots(slots, FIRST_SLOT + slots[INPUTS], slots[OUTPUTS], arguments[2]):
        return 0
    if slots[RELEASE]:
        status = run_released(slots)
    else:
        status = run_table(slots, slots[TABLE], slots[TABLE_END])
    if status != 0:
        return 0
    acquire_reference(arguments[2])
    return arguments[2]
