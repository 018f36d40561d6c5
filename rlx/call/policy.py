"""The policy by which jit(device="auto") chooses a device: data, and the environment variables that set it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from rlx.backends import device_names
from rlx.errors import DeviceError, OptionError

if TYPE_CHECKING:
    from rlx.call.compiled import CompiledProgram
    from rlx.device_memory import Memory
    from rlx.ir.program import Program

__all__ = ["AUTO", "Policy", "chooser"]

AUTO = "auto"


class _Chooser:
    """`compiled(program, arguments, policy, memory)` compiles a program for the device that a policy chooses, the
    environment's if it is None; memory: where arguments are that were put on a device. `decided` gives the decision."""

    compiled: Callable[[Program, Sequence[Any], Policy | None, Memory | None], CompiledProgram]
    decided: Callable[[Program, Policy | None, Memory | None], Any]


chooser = _Chooser()


@dataclass(frozen=True)
class Policy:
    """The rules of an automatic choice of a device, a value of jit's `device`; "auto" is the environment's policy.

    only: the devices to consider; all usable ones if empty. deny: devices that are not considered. prefer: devices
    that are taken, in this order, unless another one is quicker by `margin`; without them the default device is.
    measure: time the two quickest devices on the arguments of the first call, and keep the quicker one. margin: the
    factor by which a device must be quicker. calls: the expected number of calls, over which the time of compiling
    counts. fallback: also consider devices on which some kernels run on the host. split: also consider plans of
    several devices. memory: the bytes that programs may use on devices, as a mapping or pairs, if less than the device
    has.

    Raises: DeviceError for unknown devices, OptionError for other invalid values.

    >>> import rlx
    >>> rlx.placement.Policy(deny=["opencl"]).deny
    ('opencl',)
    """

    only: Sequence[str] = ()
    deny: Sequence[str] = ()
    prefer: Sequence[str] = ()
    measure: bool = False
    margin: float = 1.3
    calls: int = 1000
    fallback: bool = False
    split: bool = False
    memory: Mapping[str, int] | Sequence[tuple[str, int]] = ()

    def __post_init__(self) -> None:
        for name in ("only", "deny", "prefer"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        pairs = self.memory.items() if isinstance(self.memory, Mapping) else self.memory
        object.__setattr__(self, "memory", tuple(sorted((str(name), int(limit)) for name, limit in pairs)))
        _names("memory", [name for name, _ in self.memory])
        if not (isinstance(self.margin, (int, float)) and 1 <= self.margin < math.inf):
            raise OptionError(f"Policy got margin={self.margin!r}.", "It is a factor of at least 1, for example 1.3.")
        if isinstance(self.calls, bool) or not isinstance(self.calls, int) or self.calls < 1:
            raise OptionError(f"Policy got calls={self.calls!r}.", "It is the expected number of calls, at least 1.")

    @classmethod
    def from_env(cls) -> Policy:
        """The policy of RLX_DEVICES (only), RLX_DENY_DEVICES, RLX_PREFER_DEVICES (lists with commas between the names)
        and RLX_BENCHMARK_PICK (measure). Raises DeviceError for unknown devices in them.

        >>> import rlx
        >>> rlx.placement.Policy.from_env().margin
        1.3
        """
        only, deny, prefer = (
            [word.strip() for word in text.split(",") if word.strip()]
            for text in (
                os.environ.get("RLX_DEVICES", ""),
                os.environ.get("RLX_DENY_DEVICES", ""),
                os.environ.get("RLX_PREFER_DEVICES", ""),
            )
        )
        measure = os.environ.get("RLX_BENCHMARK_PICK", "").lower() not in ("", "0", "false", "off", "no")
        return cls(only, deny, prefer, measure)

    @property
    def memory_limits(self) -> dict[str, int]:
        """The limits of `memory` by device."""
        return dict(self.memory)

    def __repr__(self) -> str:
        changed = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return f"Policy({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in changed)})"


def _names(option: str, given: Sequence[str]) -> tuple[str, ...]:
    """Devices by name. Raises DeviceError for an unknown one."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name.partition(":")[0] not in device_names():
            raise DeviceError(
                f"Policy got the unknown device {name!r} in {option}.", f"Devices are: {', '.join(device_names())}."
            )
    return names
