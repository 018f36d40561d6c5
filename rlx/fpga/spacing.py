"""Idle iterations, for sums that a unit scales bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx.fpga.nests import nest_of
from rlx.fpga.requantizers import requantizer_cycles
from rlx.fpga.stages import Stage
from rlx.fpga.tune import Tune

__all__ = ["spaced"]


def spaced(stages: Sequence[Stage], tune: Tune) -> list[Stage]:
    """Stages whose sums are complete in cycles so far apart that their unit is free."""
    if not tune.serial_requant:
        return list(stages)
    rights = [_most_right(stage) for stage in stages]
    most = max((r for r in rights if r is not None), default=0)
    return [
        stage if r is None else _with_idle(stage, most if tune.shared_requant else r)
        for stage, r in zip(stages, rights, strict=True)
    ]


def _most_right(stage: Stage) -> int | None:
    """The most right shifts of a stage's unit, if it has one."""
    scaling = stage.scaling
    return None if scaling is None or scaling.multiplier is None else int(scaling.right.max())


def _with_idle(stage: Stage, rights: int) -> Stage:
    assert stage.scaling is not None
    nest = stage.nest
    idle = -(-requantizer_cycles(stage.scaling.fraction, rights, serial=True) // nest.reduction)
    if idle == 1:
        return replace(stage, rights=rights)
    loops = [(loop.extent, loop.reduced, dict(loop.steps)) for loop in nest.loops]
    spread = nest_of([*loops, (idle, False, {"idle": 1})], {**nest.starts, "idle": 0})
    return replace(stage, nest=spread, idle=idle, rights=rights)
