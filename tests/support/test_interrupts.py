"""Work that Ctrl-C does not find half done, and forks that wait for it."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rlx import forks, interrupts
from rlx.interrupts import in_background, uninterrupted, wait_for_background

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_the_main_thread_hands_work_over() -> None:
    """Arguments, results, errors and context variables go along; other threads do it themselves."""
    variable = contextvars.ContextVar("variable", default=0)

    @uninterrupted
    def work(a: int, *, b: int) -> tuple[int, int, int]:
        if b < 0:
            raise LookupError("mine")
        return a + b, variable.get(), threading.get_ident()

    variable.set(7)
    total, value, thread = work(1, b=2)
    assert (total, value) == (3, 7) and thread != threading.get_ident()
    with pytest.raises(LookupError, match="mine"):
        work(1, b=-1)
    found: list[object] = []
    other = threading.Thread(target=lambda: found.append(work(1, b=2)[2] == threading.get_ident()))
    other.start()
    other.join()
    assert found == [True]
    assert work.__name__ == "work"


@pytest.mark.skipif(sys.platform == "win32", reason="waits for locks are not interrupted there")
def test_an_interrupt_ends_the_wait_and_not_the_work() -> None:
    steps: list[str] = []

    def interrupt() -> None:
        steps.append("begun")
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        steps.append("ended")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            uninterrupted(interrupt)()
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps == ["begun"]
    wait_for_background()
    assert steps == ["begun", "ended"] and not interrupts._running


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is done all the same."""

    def refuse(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(interrupts._thread, "start_new_thread", refuse)
    assert uninterrupted(threading.get_ident)() == threading.get_ident()
    with in_background(lambda: None):
        pass


@needs_fork
def test_a_fork_waits_and_nobody_begins_meanwhile() -> None:
    """Of two threads at work one is waited for; the other begins when the fork is over."""
    order: list[str] = []
    inside = threading.Event()

    def work(name: str, seconds: float) -> None:
        with forks.unforked(), forks.unforked():
            inside.set()
            time.sleep(seconds)
            order.append(name)

    first = threading.Thread(target=work, args=("first", 0.2))
    first.start()
    inside.wait(10)
    second = threading.Thread(target=lambda: (time.sleep(0.1), work("second", 0)))
    second.start()
    child = os.fork()
    if child == 0:
        with forks.unforked():
            os._exit(len(order) + 10 * len(forks._inside - {threading.get_ident()}))
    order.append("forked")
    first.join()
    second.join()
    assert os.waitpid(child, 0)[1] == 1 << 8
    assert order == ["first", "forked", "second"]
    assert not forks._inside and not forks._forking


@needs_fork
def test_threads_that_all_fork_and_work() -> None:
    """Nobody waits for ever."""

    def work() -> None:
        for _ in range(10):
            with forks.unforked():
                time.sleep(0.0001)
            child = os.fork()
            if child == 0:
                os._exit(bool(forks._inside - {threading.get_ident()}))
            assert os.waitpid(child, 0)[1] == 0
            done.append(1)

    done: list[int] = []
    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 40
    assert not forks._inside and not forks._forking


def test_a_process_ends_when_its_background_has() -> None:
    """And what is begun while it ends is done at once."""
    code = """
import atexit, time
atexit.register(lambda: print("late", interrupts.uninterrupted(lambda: 1)()))
from rlx import interrupts
def work():
    time.sleep(0.3)
    print("worked", flush=True)
interrupts.in_background(work)
print("main")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["main", "worked", "late 1", ""], done.stdout + done.stderr
