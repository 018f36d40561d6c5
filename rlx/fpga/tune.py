"""How a circuit is built: the choices, presets, and the families of devices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rlx.errors import OptionError

__all__ = ["HwTarget", "IoConfig", "OptTarget", "RequantPrecision", "Tune"]

_MOST_LANES = 64


class RequantPrecision(Enum):
    """The fraction bits of the multipliers that scale accumulators.

    >>> import rlx
    >>> rlx.fpga.RequantPrecision.Q0_15.bits
    15
    """

    Q0_31 = "q31"
    Q0_15 = "q15"

    @property
    def bits(self) -> int:
        """The number of fraction bits."""
        return 31 if self is RequantPrecision.Q0_31 else 15


class OptTarget(Enum):
    """The aim of a preset: see `Tune.preset`.

    >>> import rlx
    >>> rlx.fpga.Tune.preset(rlx.fpga.OptTarget.Latency).parallelism
    4
    """

    Latency = "latency"
    Size = "size"
    Energy = "energy"
    Precision = "precision"
    Bandwidth = "bandwidth"


class HwTarget(Enum):
    """A family of devices: it selects the synthesis script, and the units of an estimate.

    >>> import rlx
    >>> rlx.fpga.HwTarget("ice40").name
    'Ice40'
    """

    Generic = "generic"
    Ecp5 = "ecp5"
    Ice40 = "ice40"
    Xilinx7 = "xilinx7"


class IoConfig(Enum):
    """How inputs enter and results leave: by addressed bytes, or as streams of bytes with valid and ready.

    >>> import rlx
    >>> [io.name for io in rlx.fpga.IoConfig]
    ['Memory', 'Stream']
    """

    Memory = "memory"
    Stream = "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """The choices for a circuit. No choice but requant_precision changes a result.

    Attributes:
      fold_zero_zp: add the zero point's part of a sum to the bias, so that codes enter the multipliers as they are.
      ternary_fast_path: multiply with weights of 2 bits by selection instead of multipliers.
      shared_requant: one unit scales the accumulators of all layers; otherwise each layer has one.
      bram_clock_enable: read memories only in cycles that use the word.
      requant_precision: the multipliers' fraction bits. Q0_15 rounds the program's multipliers to 15 bits.
      parallelism: output channels that are computed at once.
      fuse_conv_relu: clamp where an accumulator is scaled; otherwise a relu is a layer.
      arena_plan: values whose lifetimes do not overlap share memory.
      ic_parallelism: input channels that are read at once, a power of two; it must divide a layer's channels to apply.
      weight_stationary: read each weight once, and keep partial sums of all positions in memory.
      serial_requant: scale a sum bit by bit, without a multiplier. A layer that sums up few products waits for it.

    Raises OptionError for numbers out of range, for weight_stationary or serial_requant together with parallelism, and
    for both.

    >>> import rlx
    >>> rlx.fpga.Tune(parallelism=8).parallelism
    8
    """

    fold_zero_zp: bool = True
    ternary_fast_path: bool = True
    shared_requant: bool = False
    bram_clock_enable: bool = False
    requant_precision: RequantPrecision = RequantPrecision.Q0_31
    parallelism: int = 1
    fuse_conv_relu: bool = True
    arena_plan: bool = True
    ic_parallelism: int = 1
    weight_stationary: bool = False
    serial_requant: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("parallelism", range(1, _MOST_LANES + 1)), ("ic_parallelism", (1, 2, 4, 8, 16))):
            if getattr(self, name) not in allowed:
                values = f"1 to {_MOST_LANES}" if isinstance(allowed, range) else "1, 2, 4, 8 or 16"
                raise OptionError(f"{name} is {getattr(self, name)!r}.", f"Write {values}.")
        for name in ("weight_stationary", "serial_requant"):
            if getattr(self, name) and self.parallelism > 1:
                raise OptionError(
                    f"{name} was given with parallelism {self.parallelism}, and works on one output channel at a time.",
                    "Set parallelism to 1, or use ic_parallelism.",
                )
        if self.weight_stationary and self.serial_requant:
            raise OptionError(
                "weight_stationary was given with serial_requant, but its sums are complete one after another.",
                "Set one of them.",
            )

    @classmethod
    def preset(cls, target: OptTarget | str) -> Tune:
        """The choices for an aim.

        Latency: 4 output channels at once. Size: one scaling unit, which works bit by bit, and memories with a clock
        enable, which saves logic, too. Energy: no multiplier for weights of 2 bits, 15-bit multipliers, and memories
        that are read only if needed. Precision: 31-bit multipliers for each layer, and a multiplier for every weight.
        Bandwidth: each weight is read once.

        >>> import rlx
        >>> rlx.fpga.Tune.preset("bandwidth").weight_stationary
        True
        """
        return _PRESETS[target if isinstance(target, OptTarget) else OptTarget(target)]


_Q15 = RequantPrecision.Q0_15
_PRESETS = {
    OptTarget.Latency: Tune(parallelism=4),
    OptTarget.Size: Tune(shared_requant=True, requant_precision=_Q15, serial_requant=True, bram_clock_enable=True),
    OptTarget.Energy: Tune(shared_requant=True, requant_precision=_Q15, bram_clock_enable=True),
    OptTarget.Precision: Tune(ternary_fast_path=False),
    OptTarget.Bandwidth: Tune(weight_stationary=True),
}
