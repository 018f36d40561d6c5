"""docs/seed_names.md is what its script makes, and its claims about fusion hold."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from graph_cases import random

from rlx.compile import CompilePipeline
from rlx.fusion import fusion_report
from rlx.graph import Graph, Shape
from rlx.ir.kernels import Contract

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "make_seed_names.py"


def test_the_table_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_seed_names", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.TARGET.read_text(encoding="utf-8") == script.page(), "run python docs/make_seed_names.py"


def graph_of(build: Callable[..., Any], **shapes: tuple[int, ...]) -> Graph:
    graph = Graph("pattern")
    graph.set_outputs(
        build(graph, **{name: graph.input(name, Shape(shape)) for name, shape in shapes.items()})
    )
    return graph


WIDE, SQUARE, ROW = (64, 32), (32, 32), (32,)
# the seeds' patterns: (graph, products, other kernels)
PATTERNS: dict[str, tuple[Graph, int, int]] = {
    "ResidualLN": (
        graph_of(lambda g, x, r, a, b: g.layer_norm(x + r, a, b), x=WIDE, r=WIDE, a=ROW, b=ROW),
        0,
        1,
    ),
    "ResidualRmsNorm": (graph_of(lambda g, x, r, a: g.rms_norm(x + r, a), x=WIDE, r=WIDE, a=ROW), 0, 1),
    "RmsNormReshape": (graph_of(lambda g, x, a: g.reshape(g.rms_norm(x, a), (-1,)), x=WIDE, a=ROW), 0, 1),
    "SwiGLU": (graph_of(lambda g, x, u, v: g.swiglu(x, u, v), x=WIDE, u=SQUARE, v=SQUARE), 2, 1),
    "MatMulBiasAct": (graph_of(lambda g, x, w, b: g.linear(x, w, b, "relu"), x=WIDE, w=SQUARE, b=ROW), 1, 1),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_fuse_without_patterns(name: str) -> None:
    graph, products, others = PATTERNS[name]
    plan = CompilePipeline().compile(graph).lir
    found = sum(isinstance(kernel, Contract) for kernel in plan.kernels)
    assert (found, len(plan.kernels) - found) == (products, others)
    assert not fusion_report(plan).opportunities
    values = [random(*node.shape.dims, seed=k) for k, node in enumerate(graph.signature.values())]
    assert graph(*values).shape == graph.outputs[0].shape.dims
