"""Prefetching: the elements of an iterator, computed in advance in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from rlx.call.device import device_put
from rlx.errors import InputTypeError, OptionError, RlxError, describe, user_line

__all__ = ["at_the_loop", "prefetch"]

Item = TypeVar("Item")
_PATIENCE = 0.1  # seconds until the thread checks again whether the iterator is still in use


def prefetch(items: Iterable[Item], ahead: int = 2, device: Any = None) -> Generator[Item]:
    """The same items in the same order; a thread prepares up to `ahead` items while the caller computes.

    Compiled programs and NumPy's large operations release the GIL, so reading, decoding and shuffling are free if a
    core is idle.

    Args:
      items: any iterable; it runs in the thread, starting at the first `next`.
      ahead: the maximum number of prepared items.
      device: a device or sharding; the thread copies the items, trees of arrays, there.

    Yields the items; an exception in the iterable is raised in place of its item. The thread ends with the items, or
    when the iterator is closed or garbage-collected. Raises OptionError for ahead below 1,
    InputTypeError for an object that is not iterable.

    >>> from rlx.data import prefetch
    >>> list(prefetch(range(4)))
    [0, 1, 2, 3]
    """
    if ahead < 1:
        raise OptionError(f"prefetch prepares at least one item, got ahead={ahead}.")
    if not isinstance(items, Iterable):
        raise InputTypeError(
            f"prefetch takes an iterable, but got {describe(items)}.", "Pass batches: prefetch(rlx.data.batches(...))."
        )
    return _read_ahead(items if device is None else (device_put(item, device) for item in items), ahead)


def _read_ahead(items: Iterable[Item], ahead: int) -> Generator[Item]:
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(ahead)
    unwanted = threading.Event()
    reader = threading.Thread(target=_read, args=(items, ready, unwanted), name="rlx-prefetch", daemon=True)
    reader.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise at_the_loop(value)
            yield value
    finally:
        unwanted.set()
        reader.join()


def at_the_loop(error: BaseException) -> BaseException:
    """An error of another thread or process; the line of one that has none is the caller's."""
    if isinstance(error, RlxError) and not error.line:
        error.relocate(user_line())
    return error


def _read(items: Iterable[Any], ready: queue.Queue[tuple[str, Any]], unwanted: threading.Event) -> None:
    """Put each item into the queue, then the end or the error."""
    last: tuple[str, Any] = ("end", None)
    try:
        for item in items:
            if not _put(("item", item), ready, unwanted):
                return
    except BaseException as error:
        last = ("error", error)
    _put(last, ready, unwanted)


def _put(entry: tuple[str, Any], ready: queue.Queue[tuple[str, Any]], unwanted: threading.Event) -> bool:
    """Put an entry into the queue; False if the iterator was closed first."""
    while not unwanted.is_set():
        try:
            ready.put(entry, timeout=_PATIENCE)
            return True
        except queue.Full:
            continue
    return False
