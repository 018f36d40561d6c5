"""Sessions, compiled graphs and their caches, and the stages of compiling a graph for a device."""

from __future__ import annotations

from rlx.graph import CompiledGraph, Session
from rlx.graph.compile import (
    CompileOptions,
    compile_graph_stages,
    compile_hir_stages,
    compile_module_stages,
    fusion_target_for,
    graph_from_lir,
    pipeline_for,
)
from rlx.graph.compiled_sizes import BucketedCompileCache, CompileCache, ModelCompilePipeline
from rlx.offered_names import offer_names

__all__ = [
    "BucketedCompileCache",
    "CompileCache",
    "CompileOptions",
    "CompiledGraph",
    "ModelCompilePipeline",
    "Session",
    "compile_graph_stages",
    "compile_hir_stages",
    "compile_module_stages",
    "fusion_target_for",
    "graph_from_lir",
    "pipeline_for",
]

offer_names(globals())
