"""The steps of loops of unknown length, inferred from the times of earlier runs."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict

from rlx.forks import reopen_after_fork
from rlx.ir.program import Program
from rlx.placement.rates import DeviceRates, Term

__all__ = ["forget_turns", "known_turns", "learn_turns"]

_MOST_KEPT = 4096
_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])
_turns: OrderedDict[bytes, float] = OrderedDict()  # by the programs' fingerprints


def known_turns(program: Program) -> float:
    """The steps of each loop of unknown length in a program: as in earlier runs of it in this process, else one."""
    with _lock:
        return _turns.get(program.fingerprint, 1.0)


def learn_turns(
    program: Program, rates: DeviceRates, once: tuple[Term, ...], twice: tuple[Term, ...], seconds: float
) -> None:
    """Remember the number of steps that explains the time of a run.

    once, twice: the terms of the program if its loops have one step, or two.
    """
    first = rates.seconds(once)
    step = rates.seconds(twice) - first
    if step > 0:
        with _lock:
            _turns[program.fingerprint] = max(1.0, 1.0 + (seconds - first) / step)
            _turns.move_to_end(program.fingerprint)
            while len(_turns) > _MOST_KEPT:
                _turns.popitem(last=False)


def forget_turns() -> None:
    """Forget all runs."""
    with _lock:
        _turns.clear()
