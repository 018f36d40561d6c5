"""What an iterator yields, made ahead of time in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rlx.errors import OptionError

__all__ = ["prefetch"]

Item = TypeVar("Item")
_PATIENCE = 0.1  # seconds until the reader looks again whether anybody still wants an item


def prefetch(items: Iterable[Item], ahead: int = 2) -> Iterator[Item]:
    """The same items in the same order; a thread makes up to `ahead` of them while the caller computes.

    Compiled programs and NumPy's large operations let other threads run, so reading, decoding and shuffling cost
    nothing where there is a core to spare.

    Args:
      items: any iterable; it is run in the thread, from the first `next` on.
      ahead: how many items wait at most.

    Yields the items; an exception of the iterable's comes out where its item would have. The thread ends with the
    items, or when the iterator is closed or forgotten. Raises OptionError for ahead below 1.

    >>> from rlx.data import prefetch
    >>> list(prefetch(range(4)))
    [0, 1, 2, 3]
    """
    if ahead < 1:
        raise OptionError(f"prefetch makes at least one item ahead, not {ahead}.")
    return _read_ahead(items, ahead)


def _read_ahead(items: Iterable[Item], ahead: int) -> Iterator[Item]:
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
                raise value
            yield value
    finally:
        unwanted.set()
        reader.join()


def _read(items: Iterable[Any], ready: queue.Queue[tuple[str, Any]], unwanted: threading.Event) -> None:
    """Put each item where the caller takes it, then the end or the error."""
    last: tuple[str, Any] = ("end", None)
    try:
        for item in items:
            if not _put(("item", item), ready, unwanted):
                return
    except BaseException as error:
        last = ("error", error)
    _put(last, ready, unwanted)


def _put(entry: tuple[str, Any], ready: queue.Queue[tuple[str, Any]], unwanted: threading.Event) -> bool:
    """Whether the entry found a place before nobody wanted it any more."""
    while not unwanted.is_set():
        try:
            ready.put(entry, timeout=_PATIENCE)
            return True
        except queue.Full:
            continue
    return False
