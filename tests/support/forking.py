"""Forks of a process in which threads work: run as a program, since libraries that other tests import forbid forks."""

from __future__ import annotations

import os
import sys
import threading
import time

from rlx import forks


def a_fork_waits_and_nobody_begins_meanwhile() -> None:
    """Of two threads at work one is waited for; the other begins when the fork is over."""
    order: list[str] = []
    inside = threading.Event()

    def wait_for_the_fork() -> None:
        while not forks._forking:
            time.sleep(0.001)

    def work(name: str) -> None:
        with forks.unforked(), forks.unforked():
            inside.set()
            if name == "first":
                wait_for_the_fork()
                time.sleep(0.1)  # in which the second one would begin, if it could
            order.append(name)

    first = threading.Thread(target=work, args=("first",))
    first.start()
    inside.wait(60)
    second = threading.Thread(target=lambda: (wait_for_the_fork(), work("second")))
    second.start()
    child = os.fork()
    if child == 0:
        with forks.unforked():
            os._exit(len(order) + 10 * len(forks._inside - {threading.get_ident()}))
    order.append("forked")
    first.join()
    second.join()
    assert os.waitpid(child, 0)[1] == 1 << 8  # when it forked, the first one had ended, and nobody else
    assert order[0] == "first" and sorted(order[1:]) == ["forked", "second"]  # who is next after a fork is the system's
    assert not forks._inside and not forks._forking


def threads_that_all_fork_and_work() -> None:
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


if __name__ == "__main__":
    {f.__name__: f for f in (a_fork_waits_and_nobody_begins_meanwhile, threads_that_all_fork_and_work)}[sys.argv[1]]()
