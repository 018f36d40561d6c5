"""The processors that firmware is written for, with the machine of QEMU that runs it."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.errors import OptionError, did_you_mean

__all__ = ["PROCESSORS", "Processor", "processor_of"]

_KIB = 1024


@dataclass(frozen=True)
class Processor:
    """A processor: its name, the options of gcc, QEMU's machine, and where the machine has flash and RAM.

    machine: None for "generic", which is the computer itself.

    >>> from rlx.cortexm.processors import processor_of
    >>> processor_of("cortex-m4").machine
    'mps2-an386'
    """

    name: str
    options: str
    machine: str | None = None
    flash: tuple[int, int] = (0, 4096 * _KIB)
    ram: tuple[int, int] = (0x20000000, 4096 * _KIB)


def _arm(name: str, floats: str, *places: object) -> Processor:
    return Processor(name, f"-O2 -mthumb -mcpu={name} {floats}", *places)  # ty: ignore[invalid-argument-type]


_SOFT = "-mfloat-abi=soft"
_KNOWN = (
    _arm("cortex-m0", _SOFT, "microbit", (0, 256 * _KIB), (0x20000000, 16 * _KIB)),
    _arm("cortex-m3", _SOFT, "mps2-an385"),
    _arm("cortex-m4", "-mfloat-abi=hard -mfpu=fpv4-sp-d16", "mps2-an386"),
    _arm("cortex-m7", "-mfloat-abi=hard -mfpu=fpv5-d16", "mps2-an500"),
    # the secure aliases of the memory
    _arm(
        "cortex-m33", "-mfloat-abi=hard -mfpu=fpv5-sp-d16", "mps2-an505", (0x10000000, 4096 * _KIB),
        (0x38000000, 2048 * _KIB),
    ),
    _arm("cortex-m55", "-mfloat-abi=hard", "mps3-an547", (0, 512 * _KIB), (0x20000000, 512 * _KIB)),
    Processor("generic", "-O2"),
)  # fmt: skip
PROCESSORS = {processor.name: processor for processor in _KNOWN}


def processor_of(name: str) -> Processor:
    """The processor of a name. Raises OptionError for another name."""
    if name not in PROCESSORS:
        raise OptionError(
            f"There is no processor {name!r} to export for.",
            did_you_mean(name, [*PROCESSORS]) or f"There are: {', '.join(PROCESSORS)}.",
        )
    return PROCESSORS[name]
