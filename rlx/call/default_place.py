"""The default device: the place of arrays and programs without one, and the exceptions that stay on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rlx.array import is_array
from rlx.backends import backend_named, memory_named
from rlx.config import ChosenDevice, config
from rlx.device_memory import Memory
from rlx.errors import warn
from rlx.ir.program import Program
from rlx.ir.types import is_key, supported_dtypes

__all__ = ["default_memory", "program_stays_on_host"]


def default_memory(values: Iterable[Any] = ()) -> Memory | None:
    """The default device's memory for values; None for the host's.

    If the device was not chosen explicitly, values of dtypes that it lacks are also in the host's memory.
    """
    memory = memory_named(None)
    return None if memory.host or _stay_on_host(_dtypes_of(values)) else memory


def program_stays_on_host(program: Program, memory: Memory | None) -> bool:
    """Whether a program that would run in `memory` runs on the CPU because of its dtypes: see default_memory.

    Operands on the device are copied to the CPU: a mask for values on the CPU may have been computed there.
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
        if is_array(x) or (isinstance(x, (np.ndarray, np.generic)) and x.dtype in supported_dtypes):
            yield x.dtype


def _dtypes_in(program: Program) -> set[np.dtype]:
    """The dtypes of all values of a program and of those inside it."""
    own = [*program.inputs, *(v for v, _ in program.constants), *(v for e in program.equations for v in e.outputs)]
    return {v.type.dtype for v in own}.union(*map(_dtypes_in, program.regions()))
