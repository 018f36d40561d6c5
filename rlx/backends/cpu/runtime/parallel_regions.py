"""Parallel regions in native code: launch, the workers, and how they share the tasks.

A region calls function(context, task) for every task number. One region is open at a time: a
launcher that finds another one open (from a second Python thread, or nested) runs its tasks itself,
in order, so nothing ever waits for a region to begin. The launcher takes part and can finish
alone: it waits for workers that joined, never for sleeping ones. Between its own tasks it
checks for Ctrl-C; after one, it cancels all tasks that have not begun.
"""

from __future__ import annotations

from rlx.backends.cpu.runtime.frame import (
    ACTIVE,
    CLOSED,
    CONTEXT,
    FUNCTION,
    GENERATION,
    LOCK,
    NEXT,
    PARTICIPANTS,
    POOL,
    SKIPPED,
    SLEEPERS,
    SPIN,
    STARTED,
    STOPPED,
    TASKS,
    THREADS,
    TICKET,
    WAITING,
    WORKERS,
)
from rlx.backends.cpu.runtime.native import (
    NativeSignature,
    Word,
    address_of,
    atomic_add,
    atomic_load,
    atomic_store,
    compare_exchange,
    maximum,
    minimum,
    native,
)
from rlx.backends.cpu.runtime.signals import interrupted, look_soon
from rlx.backends.cpu.runtime.system import current_system, relax

__all__ = ["launch"]

_system = current_system()
nanoseconds = _system.nanoseconds
sleep_while = _system.sleep_while
wake = _system.wake
start_thread = _system.start_thread

WAKING_PARTS = 16
LONG_PARTS = 200  # work for this many threads takes an estimated millisecond; the true time may be a twentieth

call_task = NativeSignature("void", ("i64", "i64"))


@native
def launch(slots: Word, function: Word, context: Word, tasks: Word, parts: Word) -> int:
    """Run a region; `parts` is the number of threads that its work is worth. 1 if Ctrl-C ended it."""
    pool = slots[POOL]
    if parts >= LONG_PARTS:
        look_soon(slots)
    participants = minimum(minimum(parts, pool[THREADS]), tasks)
    if participants < 2 or is_too_small(pool, parts) or not compare_exchange(pool + 8 * LOCK, 0, 1):
        for task in range(tasks):
            call_task(function, context, task)
            if interrupted(slots):
                return 1
        return 0
    if pool[WORKERS] < participants - 1:
        participants = staff(pool, participants)
    pool[FUNCTION] = function
    pool[CONTEXT] = context
    pool[TASKS] = tasks
    pool[PARTICIPANTS] = participants
    pool[TICKET] = 0
    for participant in range(participants):
        pool[NEXT + 8 * participant] = tasks * participant // participants
    atomic_add(pool + 8 * ACTIVE, -CLOSED)
    atomic_add(pool + 8 * GENERATION, 1)
    if atomic_load(pool + 8 * SLEEPERS):
        wake(pool, pool + 8 * GENERATION, participants - 1)
    work(pool, 0, slots)
    atomic_add(pool + 8 * ACTIVE, CLOSED)
    if atomic_load(pool + 8 * ACTIVE) != CLOSED:
        await_workers(pool)
    atomic_store(pool + 8 * LOCK, 0)
    return slots[STOPPED]


@native
def is_too_small(pool: Word, parts: Word) -> int:
    """Whether a region is not worth waking workers that all sleep; every fifth such one is, for
    where there are many, the workers will soon be awake."""
    if parts >= WAKING_PARTS or atomic_load(pool + 8 * SLEEPERS) < maximum(pool[WORKERS], 1):
        return 0
    pool[SKIPPED] = (pool[SKIPPED] + 1) % 5
    return pool[SKIPPED] != 0


@native
def staff(pool: Word, participants: Word) -> int:
    """Start the workers that are missing; returns the number of threads."""
    while pool[WORKERS] < participants - 1:
        if start_thread(address_of(worker), pool) != 0:
            pool[THREADS] = pool[WORKERS] + 1
            break
        pool[WORKERS] += 1
    return minimum(participants, pool[WORKERS] + 1)


@native
def await_workers(pool: Word) -> int:
    """Wait until every worker has left the closed region."""
    start = nanoseconds()
    while nanoseconds() - start < pool[SPIN]:
        for _ in range(32):
            if atomic_load(pool + 8 * ACTIVE) == CLOSED:
                return 0
            relax()
    atomic_store(pool + 8 * WAITING, 1)
    inside = atomic_load(pool + 8 * ACTIVE)
    while inside != CLOSED:
        sleep_while(pool, pool + 8 * ACTIVE, inside)
        inside = atomic_load(pool + 8 * ACTIVE)
    atomic_store(pool + 8 * WAITING, 0)
    return 0


@native
def work(pool: Word, participant: Word, slots: Word) -> int:
    """Run this participant's tasks, then remaining tasks of others; the launcher passes its frame, workers 0."""
    function = pool[FUNCTION]
    context = pool[CONTEXT]
    tasks = pool[TASKS]
    participants = pool[PARTICIPANTS]
    for turn in range(participants):
        owner = (participant + turn) % participants
        counter = pool + 8 * NEXT + 64 * owner
        end = tasks * (owner + 1) // participants
        while atomic_load(counter) < end:
            task = atomic_add(counter, 1)
            if task < end:
                call_task(function, context, task)
                if slots and interrupted(slots):
                    return drop_tasks(pool)
    return 0


@native
def drop_tasks(pool: Word) -> int:
    """Cancel all tasks that have not begun."""
    for participant in range(pool[PARTICIPANTS]):
        atomic_add(pool + 8 * NEXT + 64 * participant, pool[TASKS])
    return 0


@native
def serve(pool: Word) -> int:
    """Take part in the open region, if there is one and it takes more workers."""
    if atomic_add(pool + 8 * ACTIVE, 1) < CLOSED:
        participant = atomic_add(pool + 8 * TICKET, 1) + 1
        if participant < pool[PARTICIPANTS]:
            work(pool, participant, 0)
    atomic_add(pool + 8 * ACTIVE, -1)
    if atomic_load(pool + 8 * WAITING):
        wake(pool, pool + 8 * ACTIVE, 1)
    return 0


@native
def worker(pool: Word) -> int:
    """A worker's life: serve every region, spin a little after each, then sleep."""
    atomic_add(pool + 8 * STARTED, 1)
    served = -1
    idle_since = nanoseconds()
    while 1:
        generation = atomic_load(pool + 8 * GENERATION)
        if generation != served:
            served = generation
            serve(pool)
            idle_since = nanoseconds()
        else:
            for _ in range(16):
                relax()
            if nanoseconds() - idle_since > pool[SPIN]:
                atomic_add(pool + 8 * SLEEPERS, 1)
                sleep_while(pool, pool + 8 * GENERATION, served)
                atomic_add(pool + 8 * SLEEPERS, -1)
                idle_since = nanoseconds()
    return 0
