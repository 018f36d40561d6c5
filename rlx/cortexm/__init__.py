"""Firmware for microcontrollers: functions and integer programs in C, in a project that builds and runs in QEMU.

`import rlx` does not load this package.
"""

from rlx.cortexm.emulation import Run, missing_tools
from rlx.cortexm.export import Firmware, export
from rlx.cortexm.processors import PROCESSORS, Processor
from rlx.cortexm.tiny_conv import TinyConv, read_rlxm, write_rlxm
from rlx.offered_names import offer_names

__all__ = [
    "PROCESSORS",
    "Firmware",
    "Processor",
    "Run",
    "TinyConv",
    "export",
    "missing_tools",
    "read_rlxm",
    "write_rlxm",
]

offer_names(globals())
