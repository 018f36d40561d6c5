"""Circuits of integer programs in SystemVerilog, for FPGAs: `rlx.fpga.export(program, folder)`.

The circuit computes an `IntegerProgram` of `rlx.quant` bit for bit. It is one memory and one pipeline for each layer.
The layers run one after another.
"""

from rlx.fpga.costs import Estimate
from rlx.fpga.project import FpgaProject, estimate, export
from rlx.fpga.tune import HwTarget, IoConfig, OptTarget, RequantPrecision, Tune
from rlx.offered_names import offer_names

__all__ = [
    "Estimate",
    "FpgaProject",
    "HwTarget",
    "IoConfig",
    "OptTarget",
    "RequantPrecision",
    "Tune",
    "estimate",
    "export",
]

offer_names(globals())
