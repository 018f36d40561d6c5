"""A function as an ONNX model: one node for each operation, elementwise ones by the scalar alphabet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

import rlx
from rlx.ir.program import Equation
from rlx.onnx.exporting import control, indexing, products, reductions, shapes
from rlx.onnx.exporting.elementwise import elementwise
from rlx.onnx.exporting.writer import FORMAT, IR_VERSION, OPSET, Rule, Writer, value_info
from rlx.standalone.spelling import is_elementwise, program_for_writing, refused

__all__ = ["export"]

RULES = shapes.RULES | reductions.RULES | products.RULES | indexing.RULES | control.RULES


def export(f: Callable[..., Any], *types: Any, path: Any = None) -> Any:
    """See rlx.onnx.export."""
    exported = rlx.export(f)(*types)
    program = program_for_writing(exported.program(), FORMAT)
    writer = Writer(_rule_of, itertools.count())
    inputs = [f"x{n}" for n in range(len(program.inputs))]
    outputs = writer.program(program, inputs)
    results = [f"y{n}" for n in range(len(outputs))]
    for name, result in zip(outputs, results, strict=True):
        writer.nodes.append(helper.make_node("Identity", [name], [result]))
    graph = helper.make_graph(
        _without_detours(writer.nodes, results), exported.fun_name,
        [value_info(n, v.type) for n, v in zip(inputs, program.inputs, strict=True)],
        [value_info(n, t) for n, t in zip(results, program.output_types, strict=True)],
        list(writer.tensors.values()),
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="rlx"
    )
    onnx.checker.check_model(model)
    if path is not None:
        Path(path).write_bytes(model.SerializeToString())
    return model


def _without_detours(nodes: list[Any], results: Sequence[str]) -> list[Any]:
    """Merge renaming nodes into the nodes that compute their inputs."""
    users: dict[str, int] = {}
    for name in (name for node in nodes for name in node.input):
        users[name] = users.get(name, 0) + 1
    inner = {n for node in nodes for a in node.attribute for n in _names_in(a.g)}
    makers = {name: node for node in nodes for name in node.output}
    dropped = set()
    for node in nodes[len(nodes) - len(results) :]:
        source, result = node.input[0], node.output[0]
        if source in makers and users[source] == 1 and source not in inner and source not in results:
            maker = makers[source]
            maker.output[list(maker.output).index(source)] = result
            dropped.add(id(node))
    return [node for node in nodes if id(node) not in dropped]


def _names_in(graph: Any) -> set[str]:
    inner = {n for node in graph.node for a in node.attribute for n in _names_in(a.g)}
    return inner | {n for node in graph.node for n in node.input}


def _rule_of(equation: Equation) -> Rule:
    """The writer of an equation. Raises UnsupportedError."""
    if equation.primitive.name in RULES:
        return RULES[equation.primitive.name]
    if is_elementwise(equation):
        return elementwise
    raise refused(equation, FORMAT)
