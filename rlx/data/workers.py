"""Workers that prepare batches: threads of this process, or processes that end with it."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from typing import Any

from rlx.data.prefetch import at_the_loop
from rlx.errors import InputTypeError, JaxRuntimeError

__all__ = ["in_processes", "in_threads", "one_by_one"]

_ENDING = 5.0  # seconds until a process that does not end is killed

Work = Callable[[int], Any]


def one_by_one(work: Work, numbers: range) -> Generator[Any]:
    """The results for these numbers, each computed when it is asked for."""
    for number in numbers:
        yield work(number)


def in_threads(work: Work, numbers: range, workers: int, ahead: int) -> Generator[Any]:
    """The results in order. Each thread is up to `ahead` results in front of the caller."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="rlx-data")
    waiting: deque[Future[Any]] = deque()
    left = iter(numbers)
    try:
        for _ in range(workers * ahead):
            _submit(pool, waiting, work, left)
        while waiting:
            first = waiting.popleft()
            if (error := first.exception()) is not None:
                raise at_the_loop(error)
            found = first.result()
            _submit(pool, waiting, work, left)
            yield found
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ThreadPoolExecutor, waiting: deque[Future[Any]], work: Work, left: Iterable[int]) -> None:
    for number in left:
        waiting.append(pool.submit(work, number))
        return


def in_processes(work: Work, numbers: range, workers: int, ahead: int) -> Generator[Any]:
    """The results in order. Each process is up to `ahead` results in front of the caller, and computes every n-th."""
    started: list[_Worker] = []
    try:
        text = _pickled(work)
        for index in range(min(workers, len(numbers))):
            started.append(_Worker(index, text))
        for place in range(min(len(started) * ahead, len(numbers))):
            started[place % len(started)].ask(numbers[place])
        for place in range(len(numbers)):
            worker = started[place % len(started)]
            found = worker.answer()
            following = place + len(started) * ahead
            if following < len(numbers):
                worker.ask(numbers[following])
            yield found
    finally:
        for worker in started:
            worker.stop()
        for worker in started:
            worker.join()


def _pickled(work: Work) -> bytes:
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputTypeError(
            f"The data set or collate= cannot be sent to worker processes: {error}.",
            "Define its class and functions at the top of a module, open files in __getitem__, or use threads.",
        ) from None


class _Worker:
    """A process that answers numbers with results. Its errors are raised by `answer`."""

    def __init__(self, index: int, work: bytes) -> None:
        self._index = index
        context = multiprocessing.get_context("spawn")  # a forked child inherits locks of other threads
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(other, work), name=f"rlx-data-{index}", daemon=True
        )
        try:
            self._process.start()
        finally:
            other.close()

    def ask(self, number: int) -> None:
        """Ask for a result. The messages are so small that they fit in the pipe while the process is busy."""
        with contextlib.suppress(BrokenPipeError):  # `answer` says why
            self._pipe.send(number)

    def answer(self) -> Any:
        """The next result."""
        try:
            wait([self._pipe, self._process.sentinel])
            kind, value, text = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            raise JaxRuntimeError(
                f"Worker process {self._index} ended with exit code {self._process.exitcode}.",
                "It was killed, perhaps for its memory, or could not start: the main module is imported in it, so that"
                ' the program must be under `if __name__ == "__main__":`.',
            ) from None
        if kind == "result":
            return value
        if not isinstance(value, BaseException):
            raise JaxRuntimeError(f"Worker process {self._index} raised an error that cannot be pickled.\n{text}")
        value.add_note(f"It was raised in worker process {self._index}:\n{text}")
        raise at_the_loop(value)

    def stop(self) -> None:
        """Tell the process to end."""
        self._pipe.close()
        self._process.terminate()

    def join(self) -> None:
        """Wait for the end of the process."""
        self._process.join(_ENDING)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def _serve(pipe: Connection, text: bytes) -> None:
    """The program of a worker: ends with its parent, which alone handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            work = pickle.loads(text)  # from the parent, which is the same program
        except BaseException as error:
            pipe.recv()
            _send_error(pipe, error)
            return
        while True:
            number = pipe.recv()
            try:
                answer = pickle.dumps(("result", work(number), ""), protocol=5)
            except BaseException as error:
                _send_error(pipe, error)
            else:
                pipe.send_bytes(answer)


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _send_error(pipe: Connection, error: BaseException) -> None:
    written = io.StringIO()
    traceback.print_exception(error, file=written)
    text = written.getvalue()
    try:
        answer = pickle.dumps(("error", error, text))
        pickle.loads(answer)
    except Exception:
        answer = pickle.dumps(("error", None, text))
    pipe.send_bytes(answer)
