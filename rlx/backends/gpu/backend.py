"""The common part of the backends of devices with a queue."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from rlx.backends.base import Backend, Executable
from rlx.backends.claims import Claims
from rlx.backends.drivers import refuse_after_fork
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.engine import Engine
from rlx.backends.gpu.executable import DeviceExecutable, device_host_reason
from rlx.backends.gpu.memory import DeviceMemory
from rlx.backends.gpu.options import claims_of, lowering_options
from rlx.code.cost import Rates
from rlx.device_memory import Memory
from rlx.errors import DeviceError
from rlx.ir.kernels import Contract, Kernel, Library, Plan
from rlx.ir.options import LoweringOptions
from rlx.storage import Device

__all__ = ["DeviceBackend"]


class DeviceBackend(Backend):
    """An engine, the memory of its device, and the dialect that its compiler reads.

    card: the GPU whose published rates predict a program's cost, if known.
    """

    card: ClassVar[Rates | None] = None

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        refuse_after_fork(engine, self.name)
        number = engine.number
        self._memory = DeviceMemory(Device(self.name, number, str(number) if number else ""), engine)

    @property
    def present(self) -> bool:
        """Whether there is a device."""
        return self.engine.present

    @property
    def hardware(self) -> str:
        """The names of the device and its driver."""
        return self.engine.hardware

    @property
    def units(self) -> tuple[str, ...]:
        """The numbers of the devices of this kind; empty if there is none."""
        return tuple(map(str, range(self.engine.count())))

    @abstractmethod
    def numbered(self, number: int) -> DeviceBackend:
        """The backend of another device of this kind."""

    def on(self, unit: str) -> Backend:
        """The backend of a device by its number. Raises DeviceError if there is none."""
        if unit == str(self.engine.number):
            return self
        if unit not in self.units:
            which = ", ".join(f"{self.name}:{number}" for number in self.units) or "none"
            raise DeviceError(f"There is no device '{self.name}:{unit}'; here are: {which}.", "Ask rlx.devices().")
        return self.numbered(int(unit))

    @abstractmethod
    def dialect(self) -> DeviceDialect:
        """The dialect that kernels are written in: a new one for each program."""

    def compiled_texts(self, source: str) -> Mapping[str, str]:
        """The compiler's output for a program, if it can be shown."""
        del source
        return {}

    @property
    def memory(self) -> Memory:
        """The device's memory: arrays stay there between calls."""
        return self._memory

    @property
    def lowering(self) -> LoweringOptions:
        """The lowering options of devices with work-groups."""
        return lowering_options(self.engine.limits)

    @property
    def claims(self) -> Claims:
        """All kernels are supported; attention and splats as blocks."""
        return claims_of(self.dialect().fragments(np.dtype(np.float16)))

    def host_reason(self, kernel: Kernel) -> str | None:
        """The host queues the steps of loops, and runs kernels that the language cannot express."""
        return device_host_reason(kernel, self.dialect(), self.engine.limits)

    def made_by(self, kernel: Kernel) -> str:
        """The library that computes a product or a routine, or rlx itself."""
        if not isinstance(kernel, (Contract, Library)):
            return ""
        return self.dialect().library_of(kernel) or "rlx's own kernel"

    def clear_code(self) -> None:
        """Unload kernels that no program uses."""
        self.engine.code.clear()

    def compile(self, plan: Plan) -> Executable:
        """Compile a plan's kernels."""
        return DeviceExecutable(plan, self._memory, self.dialect(), self.compiled_texts, self.card)
