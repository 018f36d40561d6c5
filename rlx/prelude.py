"""The names for graphs built by hand: `from rlx.prelude import *`."""

from __future__ import annotations

from rlx.backends import register_backend
from rlx.graph import (
    CompiledGraph,
    DType,
    Graph,
    GraphModule,
    GraphStage,
    Node,
    NodeId,
    NodeOrigin,
    Op,
    OpKind,
    Session,
    Shape,
)
from rlx.graph.autodiff import hvp, jvp, vmap
from rlx.graph.compile import CompileOptions, CompilePipeline, CompileResult, PipelineInspect
from rlx.graph.fusion import FusionOptions, FusionReport, FusionTarget, MissedFusion, MissReason, fusion_passes
from rlx.graph.kinds import Activation, BinaryOp, CmpOp, MaskKind
from rlx.graph.protocol import Pass
from rlx.offered_names import offer_names
from rlx.precision import Precision, PrecisionPolicy
from rlx.quant import CalibrationRecord, QuantMap, QuantScheme
from rlx.storage import Device

__all__ = [
    "Activation",
    "BinaryOp",
    "CalibrationRecord",
    "CmpOp",
    "CompileOptions",
    "CompilePipeline",
    "CompileResult",
    "CompiledGraph",
    "DType",
    "Device",
    "FusionOptions",
    "FusionReport",
    "FusionTarget",
    "Graph",
    "GraphModule",
    "GraphStage",
    "MaskKind",
    "MissReason",
    "MissedFusion",
    "Node",
    "NodeId",
    "NodeOrigin",
    "Op",
    "OpKind",
    "Pass",
    "PipelineInspect",
    "Precision",
    "PrecisionPolicy",
    "QuantMap",
    "QuantScheme",
    "Session",
    "Shape",
    "fusion_passes",
    "hvp",
    "jvp",
    "register_backend",
    "vmap",
]

offer_names(globals())
