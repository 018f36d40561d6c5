"""The XLA backend: programs as StableHLO, compiled and run by PJRT on a processor, a GPU or a TPU.

This backend takes programs, not plans: XLA fuses, schedules and places in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.backends.base import Backend, Executable
from rlx.backends.claims import Claims
from rlx.device_memory import Memory
from rlx.errors import DeviceError, UnsupportedError
from rlx.ir.kernels import Plan
from rlx.ir.program import Program
from rlx.storage import Device
from rlx.xla.client import devices_of_platform, platforms
from rlx.xla.described import CARDS, TPUS, DescribedBackend
from rlx.xla.executable import XlaExecutable
from rlx.xla.memory import XlaMemory
from rlx.xla.options import CLAIMS

__all__ = ["TpuBackend", "XlaBackend", "tpu_backend"]


class XlaBackend(Backend):
    """Programs on a device of PJRT; by default the first one of jax's preferred platform."""

    name = "xla"
    takes_programs = True

    def __init__(self, platform: str | None = None, number: int = 0) -> None:
        self.platform = platforms()[0] if platform is None else platform
        places = devices_of_platform(self.platform)
        if number >= len(places):
            raise DeviceError(f"There is no device 'xla:{self.platform}:{number}': it has {len(places)}.")
        place = places[number]
        unit = f"{self.platform}:{number}" if number else self.platform
        at = self.units.index(unit)
        self._memory = XlaMemory(Device(self.name, at, unit), place)

    @property
    def units(self) -> tuple[str, ...]:
        """The devices of all platforms: the first one of each by the platform's name."""
        return tuple(
            f"{platform}:{number}" if number else platform
            for platform in platforms()
            for number in range(len(devices_of_platform(platform)))
        )

    def on(self, unit: str) -> Backend:
        """The backend of a device such as "cpu" or "cuda:1". Raises DeviceError."""
        if unit in ("0", self._memory.device.unit):
            return self
        if unit in CARDS:
            return DescribedBackend(self.name, unit)
        platform, _, number = unit.partition(":")
        if platform not in platforms() or not (number or "0").isdecimal():
            which = ", ".join(f"xla:{name}" for name in self.units)
            raise DeviceError(f"There is no device 'xla:{unit}': jax has {which} here.", "Use one of these, or 'xla'.")
        return XlaBackend(platform, int(number or 0))

    @property
    def memory(self) -> Memory:
        """The device's memory."""
        return self._memory

    @property
    def claims(self) -> Claims:
        """The routines that StableHLO has operations for, and XLA's dtypes."""
        return CLAIMS

    def compile(self, plan: Plan) -> Executable:
        """Raises UnsupportedError: XLA plans."""
        raise UnsupportedError("The device 'xla' compiles programs, not plans.", "Use rlx.jit(f, device='xla').")

    def compile_program(self, program: Program, given: Sequence[bool] = ()) -> Executable:
        """Compile optimised MIR. Raises UnsupportedError, with the user's line, for operations StableHLO lacks."""
        return XlaExecutable(program, self._memory.place, given)


class TpuBackend(XlaBackend):
    """Programs on a TPU, by libtpu."""

    name = "tpu"

    def __init__(self) -> None:
        super().__init__("tpu")

    def on(self, unit: str) -> Backend:
        """The backend of a TPU by its number, or of a kind of TPU, to compile for. Raises DeviceError."""
        return DescribedBackend(self.name, unit) if unit in TPUS else super().on(unit)


def tpu_backend() -> Backend:
    """The machine's first TPU; without one, a description of a v5e. Raises DeviceError without libtpu."""
    return TpuBackend() if "tpu" in platforms() else DescribedBackend("tpu", TPUS[0])
