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
    SpillReason,
    assert_fusion_clean,
    fusion_limits_for_target,
    fusion_report,
    inspect_fusion,
)
from rlx.graph import GraphModule
from rlx.ir.options import RowLimits
from rlx.lowering.nest import Nest
from rlx.lowering.nodes import NodeTable
from rlx.planning.merge import merge

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


def scattered(expensive: bool) -> Callable[..., Any]:
    def count(x: Any) -> Any:
        place = jnp.abs(jnp.sin(x) * jnp.exp(jnp.cos(x)) + jnp.tanh(x) * jnp.log1p(x * x)) if expensive else jnp.abs(x)
        return jnp.zeros(64).at[jnp.floor(place * 9).astype("int32") % 64].add(1.0)

    return count


CASES: dict[MissReason, Case] = {
    MissReason.SCATTERS: (scattered(True), (random(5000),), None),
    MissReason.NOTHING_SHARED: (lambda x: x + 1, (random(8),), None),
    MissReason.RUNS_BEFORE_OPERANDS: (through_product, (random(64, 64), random(64, 64)), None),
    MissReason.BARRIER: (lambda x: (jnp.tanh(x), jnp.sin(rlx.lax.optimization_barrier(x))), (random(64),), None),
    MissReason.MIXED_SUMS: (
        lambda x: (x.sum((1, 2)), x.sum((0, 1))),
        (random(8, 16, 32),),
        limits(mixed_sums=False),
    ),
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
    MissReason.BARRIER: (lambda x: (jnp.tanh(x), jnp.sin(x)), (random(64),), None),
    MissReason.INDEX_MAPS: (lambda x: jnp.tanh(x) + jnp.tanh(x[::-1]), (random(64),), None),
    MissReason.LOOP_SIZES: (lambda x: (jnp.tanh(x), jnp.tanh(x) * 2), (random(64),), None),
    MissReason.RUNNING_ROWS: (lambda x: (jnp.sum(x, 1), jnp.cumsum(x, 1)), (random(5, 24),), None),
    **{
        reason: (*CASES[reason][:2], None)
        for reason in (
            MissReason.TOO_MANY_INSTRUCTIONS,
            MissReason.REDUCTIONS_TOO_DEEP,
            MissReason.TOO_MANY_OPERANDS,
            MissReason.MIXED_SUMS,
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
    reason = merge(NodeTable(), empty, Nest((0,), []), set(), True, RowLimits())
    assert MissReason(reason) is MissReason.NO_ITERATIONS and MissReason.NO_ITERATIONS.hint


def test_reasons_are_those_of_the_compiler() -> None:
    """Every reason that the fusion pass can give has a member, and no other is there."""
    folder = Path(rlx.__file__).parent / "planning"
    text = "".join((folder / name).read_text(encoding="utf-8") for name in ("merge.py", "fuse.py"))
    stated = set(re.findall(r'(?:return|reason =) "([^"]+)"', text))
    assert stated == {reason.value for reason in MissReason}


# ------------------------------------------------------------------ arrays that go through memory
def plus_one(x: Any) -> Any:
    return rlx.pure_callback(lambda v: v + 1, rlx.ShapeDtypeStruct(x.shape, x.dtype), x)


def scanned(x: Any) -> Any:
    return rlx.lax.scan(lambda c, v: (jnp.cumsum(c * v), None), x[0], x)[0]


def scanned_with_everything_inside(x: Any) -> Any:
    return rlx.lax.scan(lambda c, v: (jnp.cumsum(c * jnp.tanh(v)) * 2, None), jnp.ones(12), x)[0]


def choice(x: Any) -> Any:
    return rlx.lax.cond(x[0, 0] > 0, lambda v: jnp.sort(v), lambda v: v, x)


SQUARE = random(12, 12)
SPILLS: dict[SpillReason, Callable[..., Any]] = {
    SpillReason.MADE_BY_PRODUCT: lambda x: jnp.tanh(x @ x),
    SpillReason.READ_BY_PRODUCT: lambda x: jnp.tanh(x) @ x,
    SpillReason.MADE_BY_SORT: lambda x: jnp.sort(x)[:, -1:] * x,
    SpillReason.READ_BY_SORT: lambda x: jnp.sort(jnp.sin(x)),
    SpillReason.MADE_BY_ROUTINE: lambda x: jnp.fft.fft(x).real,
    SpillReason.READ_BY_ROUTINE: lambda x: jnp.fft.fft(jnp.tanh(x)),
    SpillReason.MADE_BY_LOOP: lambda x: scanned(x) * 2,
    SpillReason.READ_BY_LOOP: lambda x: scanned(jnp.tanh(x)),
    SpillReason.MADE_BY_BRANCH: lambda x: choice(x) * 2,
    SpillReason.READ_BY_BRANCH: lambda x: choice(jnp.tanh(x)),
    SpillReason.MADE_BY_HOST: lambda x: plus_one(x) * 2,
    SpillReason.READ_BY_HOST: lambda x: plus_one(jnp.tanh(x)),
    SpillReason.MADE_BY_EXCHANGE: lambda x: rlx.distributed.all_reduce(x) * 2,
    SpillReason.READ_BY_EXCHANGE: lambda x: rlx.distributed.all_reduce(jnp.tanh(x)),
    SpillReason.NESTS_APART: lambda x: jnp.cumsum(x, 1) + jnp.cumsum(x, 1)[::-1],
}
# the same work as a hint says: nothing goes through memory
WITHOUT_SPILLS: dict[SpillReason, Callable[..., Any]] = {
    SpillReason.MADE_BY_PRODUCT: lambda x: jnp.tanh(jnp.sum(x[:, None] * x.T[None], 2)),
    SpillReason.MADE_BY_SORT: lambda x: jnp.max(x, 1, keepdims=True) * x,
    SpillReason.MADE_BY_LOOP: scanned_with_everything_inside,
    SpillReason.READ_BY_LOOP: scanned_with_everything_inside,
    SpillReason.MADE_BY_BRANCH: lambda x: jnp.where(x[0, 0] > 0, jnp.sin(x), x) * 2,
    SpillReason.READ_BY_BRANCH: lambda x: jnp.where(x[0, 0] > 0, jnp.sin(jnp.tanh(x)), jnp.tanh(x)),
}


@pytest.mark.parametrize("reason", SpillReason)
def test_every_way_through_memory_can_be_met(reason: SpillReason) -> None:
    report = fusion_report(SPILLS[reason], SQUARE)
    found = [spill for spill in report.spills if spill.reason is reason]
    assert found, report
    spill = found[0]
    assert spill.moved == spill.nbytes * (1 + len(spill.read_by)) and spill.made_by.startswith("kernel ")
    assert "test_fusion.py" in spill.line
    text = str(report)
    assert str(spill) in text and spill.hint in text and "B moved" in text


@pytest.mark.parametrize("reason", WITHOUT_SPILLS)
def test_what_the_hint_says_keeps_arrays_out_of_memory(reason: SpillReason) -> None:
    before, after = (fusion_report(functions[reason], SQUARE).spills for functions in (SPILLS, WITHOUT_SPILLS))
    if reason is SpillReason.READ_BY_LOOP:  # the first carry is made before the loop
        assert sum(spill.moved for spill in after) * 10 < sum(spill.moved for spill in before)
    else:
        assert before and reason not in [spill.reason for spill in after]


def test_most_bytes_come_first() -> None:
    def function(x: Any) -> Any:
        return jnp.sort(jnp.sin(x)), jnp.sort(jnp.cos(x[:2]))

    moved = [spill.moved for spill in fusion_report(function, SQUARE).spills]
    assert moved == sorted(moved, reverse=True) and len(moved) == 2 and moved[0] == 2 * 12 * 12 * 4


def test_misses_name_the_users_line() -> None:
    report = fusion_report(reversed_operand, random(64))
    assert any("test_fusion.py" in miss.line and miss.line in str(miss) for miss in report.missed)


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
