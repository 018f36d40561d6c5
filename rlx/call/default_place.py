"""The default device: where arrays and programs go that have no place, and what of them stays on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.backends import backend_named, memory_named
from rlx.config import ChosenDevice, config
from rlx.device_memory import Memory
from rlx.errors import warn
from rlx.ir.program import Program
from rlx.ir.types import is_key, supported_dtypes

__all__ = ["default_memory", "program_stays_on_host"]


def default_memory(values: Iterable[Any] = ()) -> Memory | None:
    """The default device's memory for values; None for the host's.

    Of a device that nobody has asked for it is the host's, too, for what the device has no numbers for.
    """
    memory = memory_named(None)
    return None if memory.host or _stay_on_host(_dtypes_of(values)) else memory


def program_stays_on_host(program: Program, memory: Memory | None) -> bool:
    """Whether a program that would run in `memory` has dtypes for which it runs on the CPU: see default_memory.

    Operands that lie on the device come to it: a mask of what is on the CPU may have been made there.
    """
    if type(config.device) is not ChosenDevice or memory is None or memory is not memory_named(None):
        return False
    return _stay_on_host(_dtypes_in(program))


def _stay_on_host(dtypes: Iterable[np.dtype]) -> bool:
    global _said
    if type(config.device) is not ChosenDevice:
        return False
    claimed = backend_named(None).claims.dtypes
    lacking = next((d for d in dtypes if not is_key(d) and d not in claimed), None)
    if lacking is not None and not _said:
        _said = True
        warn(
            f"The default device {config.device!r} has no {lacking.name}: arrays and programs with it stay on the CPU."
            " RLX_DEVICE=cpu says so for all of them; .astype('float32') brings them to the device."
        )
    return lacking is not None


_said = False  # once is enough


def _dtypes_of(values: Iterable[Any]) -> Iterator[np.dtype]:
    for x in values:
        if isinstance(x, Array) or (isinstance(x, (np.ndarray, np.generic)) and x.dtype in supported_dtypes):
            yield x.dtype


def _dtypes_in(program: Program) -> set[np.dtype]:
    """The dtypes of all values of a program and of those inside it."""
    own = [*program.inputs, *(v for v, _ in program.constants), *(v for e in program.equations for v in e.outputs)]
    return {v.type.dtype for v in own}.union(*map(_dtypes_in, program.regions()))
