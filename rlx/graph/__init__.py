"""Graphs built by hand and sessions that run them: a thin layer over Program."""

from __future__ import annotations

from rlx.graph.graph import Graph, Node, node_label
from rlx.graph.module import GraphModule, GraphStage, WrongStageError
from rlx.graph.session import CompiledGraph, Session
from rlx.graph.types import DType, NodeId, NodeOrigin, Op, OpKind, Shape
from rlx.offered_names import offer_names

__all__ = [
    "CompiledGraph",
    "DType",
    "Graph",
    "GraphModule",
    "GraphStage",
    "Node",
    "NodeId",
    "NodeOrigin",
    "Op",
    "OpKind",
    "Session",
    "Shape",
    "WrongStageError",
    "node_label",
]

offer_names(globals())
