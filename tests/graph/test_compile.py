"""The pipeline as an object, stages as text and as files, statistics, golden texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_cases import random

import rlx
import rlx.compile as compiling
import rlx.numpy as jnp
from rlx.compile import CompilePipeline
from rlx.fusion import FusionOptions, FusionTarget
from rlx.graph import Graph, GraphModule, Shape, WrongStageError
from rlx.opt import LegalizeError
from rlx.testing import assert_close

GOLDEN = Path(__file__).parent / "golden"


def layer() -> Graph:
    graph = Graph("layer")
    x, w, b = graph.input("x", Shape([2, 3])), graph.param("w", Shape([3, 4])), graph.param("b", Shape([4]))
    graph.set_outputs(graph.linear(x, w, b, "tanh") * 1.0)
    return graph


def stable(text: str) -> str:
    """Without line numbers, which tests may change."""
    return re.sub(r"\s*(?:# |//)?\s*\S*test_compile\.py:\d+.*", "", text).rstrip() + "\n"


def test_a_pipeline_gives_every_stage() -> None:
    result = CompilePipeline().compile(layer())
    assert isinstance(result, compiling.CompileResult)
    assert [step.name for step in result.steps][:2] == ["inline", "fold"] and result.steps[
        0
    ].before.name == "layer"
    assert result.fusion.kernels == len(result.lir.kernels) == 2 and result.dispatch is None
    again = compiling.graph_from_lir(result)
    assert list(again.params) == ["w", "b"] and len(again.program.equations) < len(layer().program.equations)
    values = random(2, 3), random(3, 4), random(4)
    assert_close(again(*values), np.tanh(values[0] @ values[1] + values[2]), rtol=1e-5, atol=1e-6)


def test_options_of_the_pipeline() -> None:
    apart = CompilePipeline(options=FusionOptions(skip_fusion=True)).compile(layer())
    assert len(apart.lir.kernels) >= 2
    claims = rlx.opt.supported_for_target() - {"tanh"}
    result = compiling.compile_graph_stages("reference", layer(), supported_ops=claims)
    assert result.dispatch is not None and result.dispatch.backend == "reference"
    assert "tanh" not in {e.primitive.name for e in result.mir.equations}
    with pytest.raises(LegalizeError):
        compiling.compile_graph_stages("cpu", layer(), supported_ops=["add"])
    clashing = Graph.trace(lambda x: (jnp.tanh(x), jnp.tanh(x) + jnp.tanh(x)[::-1]), random(64))
    assert CompilePipeline().compile(clashing).fusion.opportunities
    with pytest.raises(rlx.errors.RlxError, match="not fused"):
        CompilePipeline(assert_fusion_clean=True).compile(clashing)
    assert compiling.pipeline_for("reference").target is FusionTarget.REFERENCE
    with pytest.raises(rlx.errors.RlxError, match="no target"):
        compiling.fusion_target_for("abacus")


def test_modules_at_each_stage() -> None:
    module = GraphModule.from_graph(layer())
    full = compiling.compile_module_stages("cpu", module)
    short = compiling.compile_module_stages("cpu", module.into_mir())
    assert len(full.steps) > len(short.steps) == 1
    assert full.mir == short.mir == compiling.compile_hir_stages("cpu", layer().program).mir
    with pytest.raises(WrongStageError):
        compiling.compile_module_stages("cpu", module.into_lir())
    with pytest.raises(WrongStageError):
        compiling.inspect_hir(module.into_mir())
    with pytest.raises(WrongStageError):
        compiling.inspect_mir(module)


def test_stages_as_text() -> None:
    module = GraphModule.from_graph(layer())
    assert compiling.inspect_hir(module) == compiling.inspect_graph(module) == str(module.hir)
    expected = "HIR layer: 4 equations, 1 outputs (1 add, 1 dot_general, 1 multiply, 1 tanh)"
    assert compiling.inspect_hir_stats(module) == expected
    assert compiling.inspect_mir_stats(module.lower()).startswith("MIR layer: ")
    difference = compiling.inspect_mir_diff(module, module.lower())
    assert difference == compiling.inspect_graph_diff(module, module.lower())
    assert any(line.startswith("-") and "multiply" in line for line in difference.splitlines())
    assert "arena" in compiling.inspect_lir(module.into_lir())


def test_pipeline_inspection_and_dumps(tmp_path: Path) -> None:
    found = compiling.inspect_pipeline(layer())
    assert isinstance(found, compiling.PipelineInspect)
    assert all(found) and [t in str(found) for t in ("==== hir ====", "==== fusion ====")] == [True, True]
    assert compiling.maybe_dump_pipeline(found, "layer") is None
    with rlx.scoped(dump=str(tmp_path)):
        path = compiling.maybe_dump_pipeline(found, "layer")
        CompilePipeline().compile(layer())
    assert path is not None and path.read_text(encoding="utf-8") == f"{found}\n"
    (folder,) = [p for p in tmp_path.iterdir() if p.is_dir()]
    names = {p.name for p in folder.iterdir()}
    assert {"00-hir.py", "01-inline.py", "plan.txt", "fusion.txt"} <= names


@pytest.mark.parametrize("name", ["hir", "mir_optimized", "fusion", "stats"])
def test_golden_texts(name: str) -> None:
    """The texts that users see; delete a file to write it anew."""
    result: Any = CompilePipeline().compile(layer())
    found = (
        compiling.inspect_mir_stats(result)
        if name == "stats"
        else getattr(compiling.inspect_compiled(result), name)
    )
    path = GOLDEN / f"{name}.txt"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(stable(found), encoding="utf-8")
        pytest.fail(f"{path.name} was not there and has been written: look at it and run again")
    assert stable(found) == path.read_text(encoding="utf-8")
