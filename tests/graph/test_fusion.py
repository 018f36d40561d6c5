"""Fusion reports: every reason for a miss reproduced, and what the hint says makes the nests fuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_cases import random

import rlx
import rlx.numpy as jnp
from rlx.errors import RlxError
from rlx.fusion import (
    FusionLimits,
    FusionOptions,
    FusionReport,
    FusionTarget,
    MissedFusion,
    MissReason,
    assert_fusion_clean,
    fusion_limits_for_target,
    fusion_report,
    inspect_fusion,
)
from rlx.graph import GraphModule
from rlx.passes.merge import merge
from rlx.passes.nest import Nest
from rlx.passes.nodes import NodeTable

Case = tuple[Callable[..., Any], tuple[Any, ...], FusionOptions | None]


def limits(**values: int) -> FusionOptions:
    return FusionOptions(limits=FusionLimits(**values))


def through_product(x: Any, w: Any) -> Any:
    u = jnp.tanh(x)
    return u, jnp.sin(x) + u @ w


def reversed_operand(x: Any) -> Any:
    y = jnp.tanh(x)
    return y, y + y[::-1]


def part_of_operand(x: Any) -> Any:
    y = jnp.tanh(x)
    return y, y[:12] * 2


def other_rows(x: Any) -> Any:
    return jnp.sum(x, axis=(0, 2)), jnp.cumsum(x.reshape(-1))


def running_over_two_axes(x: Any) -> Any:
    y = jnp.cumsum(jnp.transpose(x, (1, 0, 2)).reshape(5, 24), axis=1)
    return jnp.sum(x, axis=(0, 2)), y


def normalised(x: Any) -> Any:
    y = x - x.max(1, keepdims=True)
    return y / jnp.exp(y).sum(1, keepdims=True)


CASES: dict[MissReason, Case] = {
    MissReason.NOTHING_SHARED: (lambda x: x + 1, (random(8),), None),
    MissReason.RUNS_BEFORE_OPERANDS: (through_product, (random(64, 64), random(64, 64)), None),
    MissReason.INDEX_MAPS: (reversed_operand, (random(64),), None),
    MissReason.LOOP_SIZES: (part_of_operand, (random(64),), None),
    MissReason.ROW_LENGTHS: (other_rows, (random(4, 5, 6),), None),
    MissReason.RUNNING_ROWS: (running_over_two_axes, (random(4, 5, 6),), None),
    MissReason.TOO_MANY_INSTRUCTIONS: (
        lambda x: (jnp.tanh(x), jnp.sin(x)),
        (random(64),),
        limits(instructions=2),
    ),
    MissReason.REDUCTIONS_TOO_DEEP: (normalised, (random(64, 64),), limits(reduce_depth=1)),
    MissReason.TOO_MANY_OPERANDS: (lambda a, b, c: (a + b, a + c), (random(9),) * 3, limits(operands=3)),
}
# the same work as a hint says: the nests fuse
CURES: dict[MissReason, Case] = {
    MissReason.INDEX_MAPS: (lambda x: jnp.tanh(x) + jnp.tanh(x[::-1]), (random(64),), None),
    MissReason.LOOP_SIZES: (lambda x: (jnp.tanh(x), jnp.tanh(x) * 2), (random(64),), None),
    MissReason.RUNNING_ROWS: (lambda x: (jnp.sum(x, 1), jnp.cumsum(x, 1)), (random(5, 24),), None),
    **{
        reason: (*CASES[reason][:2], None)
        for reason in (
            MissReason.TOO_MANY_INSTRUCTIONS,
            MissReason.REDUCTIONS_TOO_DEEP,
            MissReason.TOO_MANY_OPERANDS,
        )
    },
}


@pytest.mark.parametrize("reason", CASES)
def test_every_reason_can_be_met(reason: MissReason) -> None:
    function, args, options = CASES[reason]
    report = fusion_report(function, *args, options=options)
    assert reason in [miss.reason for miss in report.missed]
    assert isinstance(report, FusionReport) and all(isinstance(miss, MissedFusion) for miss in report.missed)
    assert reason.hint in str(report) and reason.value in inspect_fusion(function, *args, options=options)
    if reason is MissReason.NOTHING_SHARED:
        assert_fusion_clean(function, *args)
    else:
        assert report.kernels > 1
        with pytest.raises(RlxError, match=re.escape(reason.hint[:20])):
            assert_fusion_clean(function, *args, options=options)


@pytest.mark.parametrize("reason", CURES)
def test_hints_help(reason: MissReason) -> None:
    function, args, options = CURES[reason]
    report = fusion_report(function, *args, options=options)
    assert report.kernels == 1
    assert_fusion_clean(report)


def test_empty_nests_are_not_merged() -> None:
    """Programs have none (empty values are constants); the reason guards nests that are made otherwise."""
    empty = Nest((0,), [])
    reason = merge(NodeTable(), empty, Nest((0,), []), set(), True)
    assert MissReason(reason) is MissReason.NO_ITERATIONS and MissReason.NO_ITERATIONS.hint


def test_reasons_are_those_of_the_compiler() -> None:
    """Every reason that the fusion pass can give has a member, and no other is there."""
    folder = Path(rlx.__file__).parent / "passes"
    text = "".join((folder / name).read_text(encoding="utf-8") for name in ("merge.py", "fuse.py"))
    stated = set(re.findall(r'(?:return|reason =) "([^"]+)"', text))
    assert stated == {reason.value for reason in MissReason}


def test_options_reach_the_kernels() -> None:
    def function(x: Any) -> Any:
        return jnp.tanh(x), jnp.sin(x)

    x = random(64)
    assert fusion_report(function, x).kernels == 1
    apart = fusion_report(function, x, options=FusionOptions(skip_fusion=True))
    assert apart.kernels == 2 and not apart.fused and not apart.missed
    assert fusion_limits_for_target(FusionTarget.CPU) == FusionLimits()


def test_reports_of_graphs_modules_and_nested_plans() -> None:
    def looped(x: Any) -> Any:
        return rlx.lax.scan(lambda c, v: (c, (jnp.tanh(v), v[::-1] + jnp.tanh(v))), np.float32(0), x)[1]

    inside = fusion_report(looped, random(4, 8))
    assert inside.kernels >= 2
    module = GraphModule.trace(normalised, random(8, 8))
    assert fusion_report(module).kernels == fusion_report(module.into_lir()).kernels == 1
    assert fusion_report(module.hir) == fusion_report(module.hir.program)
