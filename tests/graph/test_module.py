"""GraphModule: stages, lowering, and the refusal of the wrong stage."""

from __future__ import annotations

import numpy as np
import pytest
from graph_cases import random

import rlx
from rlx.graph import Graph, GraphModule, GraphStage, Session, Shape, WrongStageError
from rlx.testing import assert_close


def module() -> GraphModule:
    def build(graph: Graph) -> rlx.Node:
        x = graph.input("x", Shape([4]))
        w = graph.param("w", Shape([4]))
        return graph.reduce("sum", (x * 1.0 + 0) * w)

    return GraphModule.define("weighted", build)


def test_each_stage_holds_its_own_form() -> None:
    hir = module()
    mir, lir = hir.lower(), hir.lower().lower()
    assert [m.stage for m in (hir, mir, lir)] == [GraphStage.HIR, GraphStage.MIR, GraphStage.LIR]
    assert len(mir.mir.equations) < len(hir.hir.program.equations)
    assert len(lir.lir.kernels) == 1 and "arena" in lir.inspect()
    assert "ops.multiply" in mir.inspect() and "ops.multiply" in hir.inspect()
    assert hir.into_lir().stage is GraphStage.LIR and lir.into_lir() is lir
    assert GraphModule.from_lir(lir.lir).lir is lir.lir


def test_the_wrong_stage_raises() -> None:
    hir = module()
    mir, lir = hir.into_mir(), hir.into_lir()
    for ask in (
        lambda: hir.mir,
        lambda: hir.lir,
        lambda: mir.hir,
        lambda: lir.mir,
        lir.lower,
        lir.into_mir,
        lir.graph,
    ):
        with pytest.raises(WrongStageError, match="This module is at"):
            ask()


@pytest.mark.parametrize("lowered", [False, True])
def test_modules_compile_with_their_names(lowered: bool) -> None:
    found = module().into_mir() if lowered else module()
    compiled = Session().compile(found)
    x, w = random(4), random(4, seed=1)
    compiled.set_param("w", w)
    assert_close(compiled.run(x=x)[0], np.float32(x @ w))


def test_modules_of_functions() -> None:
    traced = GraphModule.trace(lambda x, w: x @ w, random(4), random(4), params=["w"])
    assert list(traced.hir.params) == ["w"]
    again = GraphModule.from_mir(traced.into_mir().mir)
    assert_close(again.graph()(random(4), random(4)), np.float32(random(4) @ random(4)))
