"""Services of the operating system for native code: clock, threads, sleeping until a word changes."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from functools import cache

from rlx.backends.cpu.runtime.frame import CONDITION, MUTEX
from rlx.backends.cpu.runtime.native import (
    NativeFunction,
    Word,
    atomic_load,
    external,
    native,
    relax_operation,
    stack,
)

__all__ = ["System", "current_system", "relax"]

relax = relax_operation(platform.machine())

CLOCK_MONOTONIC = 6 if sys.platform == "darwin" else 1
SET_MASK = 3 if sys.platform == "darwin" else 2
FUTEX_CALL = 98 if platform.machine() in ("aarch64", "arm64") else 202
FUTEX_WAIT_PRIVATE = 128
FUTEX_WAKE_PRIVATE = 129
INFINITE = 0xFFFFFFFF

clock_gettime = external("clock_gettime", "i32", "i32", "ptr")
system_call = external("syscall", "i64", "i64", "ptr", "i64", "i64", "ptr", "ptr", "i64")
sigfillset = external("sigfillset", "i32", "ptr")
pthread_sigmask = external("pthread_sigmask", "i32", "i32", "ptr", "ptr")
pthread_create = external("pthread_create", "i32", "ptr", "ptr", "ptr", "ptr")
pthread_detach = external("pthread_detach", "i32", "ptr")
pthread_mutex_lock = external("pthread_mutex_lock", "i32", "ptr")
pthread_mutex_unlock = external("pthread_mutex_unlock", "i32", "ptr")
pthread_cond_wait = external("pthread_cond_wait", "i32", "ptr", "ptr")
pthread_cond_broadcast = external("pthread_cond_broadcast", "i32", "ptr")
query_performance_counter = external("QueryPerformanceCounter", "i32", "ptr")
create_thread = external("CreateThread", "ptr", "ptr", "i64", "ptr", "ptr", "i32", "ptr")
close_handle = external("CloseHandle", "i32", "ptr")
wait_on_address = external("WaitOnAddress", "i32", "ptr", "ptr", "i64", "i32")
wake_by_address_all = external("WakeByAddressAll", "void", "ptr")


@dataclass(frozen=True)
class System:
    """The four services; each operating system implements them differently.

    nanoseconds(): a monotonic clock.
    sleep_while(pool, address, value): sleep while the low 32 bits at address equal value;
    may return early. wake(pool, address, count): wake at least that many sleepers, if there are.
    start_thread(function, argument): 0 when the thread was started; it receives no signals.
    """

    nanoseconds: NativeFunction
    sleep_while: NativeFunction
    wake: NativeFunction
    start_thread: NativeFunction


def posix_clock() -> NativeFunction:
    @native
    def nanoseconds() -> int:
        time = stack(2)
        clock_gettime(CLOCK_MONOTONIC, time)
        return time[0] * 1000000000 + time[1]

    return nanoseconds


def posix_threads() -> NativeFunction:
    @native
    def start_thread(function: Word, argument: Word) -> int:
        mask = stack(16)
        previous = stack(16)
        thread = stack(1)
        sigfillset(mask)
        pthread_sigmask(SET_MASK, mask, previous)
        status = pthread_create(thread, 0, function, argument)
        pthread_sigmask(SET_MASK, previous, 0)
        if status == 0:
            pthread_detach(thread[0])
        return status

    return start_thread


def linux() -> System:
    """Linux: futexes."""

    @native
    def sleep_while(pool: Word, address: Word, value: Word) -> int:
        system_call(FUTEX_CALL, address, FUTEX_WAIT_PRIVATE, value, 0, 0, 0)
        return 0

    @native
    def wake(pool: Word, address: Word, count: Word) -> int:
        system_call(FUTEX_CALL, address, FUTEX_WAKE_PRIVATE, count, 0, 0, 0)
        return 0

    return System(posix_clock(), sleep_while, wake, posix_threads())


def posix() -> System:
    """Any POSIX system: one mutex and one condition for all sleepers."""

    @native
    def sleep_while(pool: Word, address: Word, value: Word) -> int:
        pthread_mutex_lock(pool + 8 * MUTEX)
        if (atomic_load(address) ^ value) & INFINITE == 0:
            pthread_cond_wait(pool + 8 * CONDITION, pool + 8 * MUTEX)
        pthread_mutex_unlock(pool + 8 * MUTEX)
        return 0

    @native
    def wake(pool: Word, address: Word, count: Word) -> int:
        pthread_mutex_lock(pool + 8 * MUTEX)
        pthread_cond_broadcast(pool + 8 * CONDITION)
        pthread_mutex_unlock(pool + 8 * MUTEX)
        return 0

    return System(posix_clock(), sleep_while, wake, posix_threads())


def windows() -> System:
    """Windows: WaitOnAddress; the performance counter ticks at 10 MHz."""

    @native
    def nanoseconds() -> int:
        ticks = stack(1)
        query_performance_counter(ticks)
        return ticks[0] * 100

    @native
    def sleep_while(pool: Word, address: Word, value: Word) -> int:
        undesired = stack(1)
        undesired[0] = value
        wait_on_address(address, undesired, 4, INFINITE)
        return 0

    @native
    def wake(pool: Word, address: Word, count: Word) -> int:
        wake_by_address_all(address)
        return 0

    @native
    def start_thread(function: Word, argument: Word) -> int:
        handle = create_thread(0, 0, function, argument, 0, 0)
        if handle == 0:
            return 1
        close_handle(handle)
        return 0

    return System(nanoseconds, sleep_while, wake, start_thread)


@cache
def current_system() -> System:
    """The services of the operating system that this process runs on."""
    if sys.platform.startswith("linux"):
        return linux()
    return windows() if sys.platform == "win32" else posix()
