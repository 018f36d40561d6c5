"""The costs of this machine's devices: measured ones from their files, typical ones, and what runs teach."""

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
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlx.backends import backend_named
from rlx.backends.cpu.runtime.folder import Folder
from rlx.backends.cpu.runtime.store import user_folder
from rlx.backends.cpu.runtime.threads import get_num_threads
from rlx.code.cost import Counts
from rlx.forks import reopen_after_fork
from rlx.placement.fitting import fitted
from rlx.placement.rates import COSTS, WAITS, DeviceRates, Observation, Term, typical_rates
from rlx.profiling.peaks import processor_name
from rlx.version import __version__

__all__ = ["FILES", "forget_rates", "keep_rates", "learn", "private_folder", "rates_of", "read_rates", "write_rates"]

_FORM = 2
_LARGEST = 1 << 20  # bytes of a file
_MOST_KEPT = 128  # observations
_MOST_TERMS = 64  # of an observation
# file names of rates, and of unfinished files
FILES = re.compile(r"rates-[0-9a-f]{24}\.json"), re.compile(r"\.rates-[0-9a-f]{24}\.json\.[0-9a-f]+")
_LEARNING = 0.98  # the weight of a run relative to the next one
_base: dict[str, DeviceRates] = {}  # without what was learned from runs
_known: dict[str, DeviceRates] = {}
_lock = threading.RLock()
reopen_after_fork(sys.modules[__name__])


def rates_of(device: str) -> DeviceRates:
    """The costs of a device: measured ones if rlx.placement.calibrate has stored them, else typical ones, and in either
    case what was learned from runs.

    >>> from rlx.placement.stored_rates import rates_of
    >>> rates_of("reference").device
    'reference'
    """
    with _lock:
        if device not in _known:
            keep_rates(read_rates(device) or typical_rates(device, backend_named(device).hardware))
        return _known[device]


def keep_rates(rates: DeviceRates) -> None:
    """Use these costs, and what their observations teach, from now on in this process."""
    with _lock:
        _base[rates.device] = rates
        _known[rates.device] = _taught(rates)


def learn(device: str, observation: Observation) -> None:
    """Take a run into account in later estimates, of later processes, too."""
    with _lock:
        rates_of(device)
        base = _base[device]
        keep_rates(replace(base, observations=(*base.observations, observation)[-_MOST_KEPT:]))
        write_rates(_base[device])


def forget_rates() -> None:
    """Read the files again when costs are needed."""
    with _lock:
        _base.clear()
        _known.clear()


def _taught(base: DeviceRates) -> DeviceRates:
    """The costs that the observations teach; measured costs weigh more beside them than typical ones."""
    if not base.observations:
        return base
    prior = 0.3 if base.basis.startswith("measured") else 0.05
    found = fitted(base, base.observations, prior, _LEARNING)
    return replace(found, basis=f"{base.basis}, {len(base.observations)} runs")


def read_rates(device: str) -> DeviceRates | None:
    """The stored costs of a device; None if there is no valid file of this user's."""
    folder = private_folder()
    content = None if folder is None else folder.read(_name(device))
    if content is None or len(content) > _LARGEST:
        return None
    try:
        fields = json.loads(content)
        if fields["form"] != _FORM or fields["device"] != device:
            return None
        costs = {name: _positive(fields["costs"][name]) for name in COSTS}
        costs |= {str(n): _positive(v) for n, v in fields["costs"].items() if str(n).startswith("routine.")}
        observations = tuple(map(_observation, fields["observations"][-_MOST_KEPT:]))
        return DeviceRates(device, costs, str(fields["basis"])[:200], observations)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def write_rates(rates: DeviceRates) -> None:
    """Store costs for later processes, readable by this user only; without a writable folder, nothing is stored."""
    kept = [o for o in rates.observations if len(o.terms) <= _MOST_TERMS][-_MOST_KEPT:]
    told = {
        "form": _FORM,
        "device": rates.device,
        "basis": rates.basis,
        "costs": dict(rates.costs),
        "observations": [{"seconds": o.seconds, "terms": [_told(t) for t in o.terms]} for o in kept],
    }
    folder = private_folder()
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.write(_name(rates.device), json.dumps(told).encode())


def private_folder() -> Folder | None:
    """The user's folder; None without one that only this user can write to."""
    path = user_folder()
    with contextlib.suppress(OSError):
        return None if path is None else Folder(path.parent)
    return None


def _name(device: str) -> str:
    """The file of a device's costs: by the machine, the driver, the number of threads, and rlx's version."""
    facts = (processor_name(), platform.machine(), str(os.cpu_count()), __version__, str(get_num_threads()))
    told = repr((*facts, device, backend_named(device).hardware))
    return f"rates-{hashlib.blake2b(told.encode(), digest_size=12).hexdigest()}.json"


def _positive(value: Any) -> float:
    """A finite number that is not negative. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a cost")
    return float(value)


def _told(term: Term) -> dict[str, Any]:
    counts = term.counts
    return {
        "operations": counts.operations,
        "functions": counts.functions,
        "products": dict(counts.products),
        "moved": counts.moved,
        "times": term.times,
        "wait": term.wait,
    }


def _observation(fields: Any) -> Observation:
    """Parse an observation in a file. Raises ValueError, TypeError or KeyError if it is invalid."""
    terms = tuple(map(_term, fields["terms"][:_MOST_TERMS]))
    seconds = _positive(fields["seconds"])
    if not seconds or not terms:
        raise ValueError("an observation without time or kernels")
    return Observation(terms, seconds)


def _term(fields: Any) -> Term:
    if fields["wait"] not in WAITS:
        raise ValueError("an unknown wait")
    read: Callable[[str], float] = lambda name: _positive(fields[name])  # noqa: E731
    products = {str(unit): _positive(number) for unit, number in fields["products"].items()}
    if any(unit.partition(".")[0] not in COSTS for unit in products):
        raise ValueError("an unknown class")
    counts = Counts(read("operations"), read("functions"), 0.0, products, read("moved"))
    return Term(counts, read("times"), fields["wait"])
