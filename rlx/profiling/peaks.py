"""The peaks of this machine: measured, cached in the user's folder, and raised by kernels that exceed them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlx.backends.cpu.runtime.folder import Folder
from rlx.backends.cpu.runtime.store import user_folder
from rlx.backends.cpu.runtime.threads import get_num_threads
from rlx.config import config
from rlx.forks import reopen_after_fork
from rlx.profiling.probes import measure_peaks
from rlx.profiling.roofline import Evidence, Peaks, Rates, front
from rlx.version import __version__

__all__ = ["Peaks", "machine_peaks", "measure_peaks", "peaks_for"]

_known: dict[tuple[str, int], Peaks] = {}
_doubted: set[tuple[str, int]] = set()  # measured again in this process because a kernel exceeded them
_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])


def machine_peaks(threads: int | None = None, again: bool = False) -> Peaks:
    """The peaks of the default device with `threads` threads (None: the current number).

    They are the best of several tries, which take one or two seconds, and are stored in rlx's cache folder. Each
    process that reads them tries once more, and stores better numbers. RLX_CACHE=0 keeps them in this process only.
    `again` measures now, and keeps the better numbers.

    >>> import rlx
    >>> peaks = rlx.profiling.machine_peaks()
    >>> peaks.device, peaks.threads == rlx.get_num_threads()
    ('cpu', True)
    """
    count = get_num_threads() if threads is None else threads
    key = (config.device, count)
    with _lock:
        known = _known.get(key)
        if known is not None and not again:
            return known
        kept = _load(_file(*key)) if known is None else known
        measured = measure_peaks(count, None if kept is None or again else 1)
        return _keep(measured if kept is None else kept.or_better(measured))


def peaks_for(evidence: Sequence[Evidence]) -> Peaks:
    """The peaks of the default device, which no certain work exceeds.

    If the counted work exceeds them, they are measured again; for uncertain work, only once per process. Certain work
    that still exceeds them raises them, as the machine evidently can do it.
    """
    peaks = machine_peaks()
    key = (peaks.device, peaks.threads)
    beaten = [e for e in evidence if not peaks.allow(e)]
    proved = any(peaks.raised_to(e) != peaks for e in beaten)
    if proved or (beaten and key not in _doubted):
        _doubted.add(key)
        peaks = machine_peaks(again=True)
        raised = reduce(Peaks.raised_to, beaten, peaks)
        if raised != peaks:
            with _lock:
                peaks = _keep(raised.or_better(_known[key]))
    return peaks


# ------------------------------------------------------------------ the file
_LARGEST = 1 << 16  # bytes of a file of peaks
# file names of peaks, and of unfinished files
FILES = re.compile(r"peaks-[0-9a-f]{24}\.json"), re.compile(r"\.peaks-[0-9a-f]{24}\.json\.[0-9a-f]+")


class _UserFile(NamedTuple):
    """A file in the user's folder."""

    folder: Folder
    name: str


def _file(device: str, threads: int) -> _UserFile | None:
    """The file of a device's peaks; None without a folder that only this user can write to."""
    folder = user_folder()
    if folder is None:
        return None
    machine = (processor_name(), platform.machine(), str(os.cpu_count()))
    told = (*machine, np.__version__, __version__, device, str(threads))
    name = f"peaks-{hashlib.blake2b(repr(told).encode(), digest_size=12).hexdigest()}.json"
    try:
        return _UserFile(Folder(folder.parent), name)
    except OSError:
        return None


def processor_name() -> str:
    """The processor's model, if the system reports it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _load(file: _UserFile | None) -> Peaks | None:
    """The peaks in a file; None if it does not exist or is invalid."""
    content = file.folder.read(file.name) if file is not None else None
    if content is None or len(content) > _LARGEST:
        return None
    try:
        fields = json.loads(content)
        copies, reads = (_read_rates(fields.pop(name)) for name in ("copies", "reads"))
        found = Peaks(copies=copies, reads=reads, **fields)
        products = (found.float32_products, found.float64_products)
        return found if all(0 < rate < math.inf for rate in products) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _read_rates(points: Iterable[tuple[int, float]]) -> Rates:
    """Parse the rates in a file. Raises ValueError if they are invalid."""
    rates = front((int(size), float(rate)) for size, rate in points)
    if not rates or not all(size > 0 and 0 < rate < math.inf for size, rate in rates):
        raise ValueError("no rates")
    return rates


def _keep(peaks: Peaks) -> Peaks:
    """Store them here and in the file, in which another process may have stored better ones; -> the best."""
    key = (peaks.device, peaks.threads)
    file = _file(*key)
    there = _load(file)
    best = _known[key] = peaks if there is None else peaks.or_better(there)
    if best != there:
        _save(file, best)
    return best


def _save(file: _UserFile | None, peaks: Peaks) -> None:
    """Write atomically, readable by this user only; without a writable folder, nothing is stored."""
    if file is not None:
        with contextlib.suppress(OSError):
            file.folder.write(file.name, json.dumps(asdict(peaks)).encode())
