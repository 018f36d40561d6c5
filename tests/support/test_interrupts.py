"""Work that Ctrl-C does not find half done, and forks that wait for it."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rlx import interrupts
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
    seen = threading.Event()

    def interrupt() -> None:
        steps.append("begun")
        os.kill(os.getpid(), signal.SIGINT)
        assert seen.wait(60)
        steps.append("ended")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            uninterrupted(interrupt)()
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps == ["begun"]
    seen.set()
    wait_for_background()
    assert steps == ["begun", "ended"]
    until = time.monotonic() + 60
    while interrupts._running and time.monotonic() < until:  # other tests' work
        wait_for_background()
    assert not interrupts._running


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is done all the same."""

    def refuse(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(interrupts._thread, "start_new_thread", refuse)
    assert uninterrupted(threading.get_ident)() == threading.get_ident()
    with in_background(lambda: None):
        pass


@needs_fork
@pytest.mark.parametrize("what", ["a_fork_waits_and_nobody_begins_meanwhile", "threads_that_all_fork_and_work"])
@pytest.mark.selected(1)
def test_forks_among_threads(what: str) -> None:
    program = Path(__file__).with_name("forking.py")
    done = subprocess.run([sys.executable, str(program), what], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


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
