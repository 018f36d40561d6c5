"""A function as an ONNX model: one node for each operation, elementwise ones by the scalar alphabet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

import rlx
from rlx.errors import OptionError, UnsupportedError
from rlx.export.exported import Exported
from rlx.ir.program import Equation, Program
from rlx.ir.types import is_key
from rlx.onnx.exporting import control, indexing, products, reductions, shapes
from rlx.onnx.exporting.complex_numbers import has_complex, write_complex
from rlx.onnx.exporting.elementwise import elementwise
from rlx.onnx.exporting.sizes import graph_for_sizes
from rlx.onnx.exporting.writer import FORMAT, Names, Rule, Writer, flat, infos_of, named
from rlx.standalone.spelling import is_elementwise, program_for_writing, refused

__all__ = ["export"]

OLDEST, OPSET = 17, 21
# these take complex numbers as they are
EITHER = frozenset("scan while_loop cond cumprod copy stop_gradient checkpoint_name optimization_barrier".split())
RULES = shapes.RULES | reductions.RULES | products.RULES | indexing.RULES | control.RULES


def export(f: Callable[..., Any], *types: Any, path: Any = None, opset: int = OPSET) -> Any:
    """See rlx.onnx.export."""
    newest = onnx.defs.onnx_opset_version()
    if opset not in range(OLDEST, newest + 1):
        raise OptionError(f"opset is {opset!r}.", f"Write a number from {OLDEST} to {newest}; {OPSET} is the default.")
    exported = f if isinstance(f, Exported) and not types else rlx.export(f)(*types)
    graph = graph_for_sizes(exported, partial(_graph, exported, opset))
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets), producer_name="rlx"
    )
    _check(model, exported.fun_name, opset)
    if path is not None:
        Path(path).write_bytes(model.SerializeToString())
    return model


def _graph(exported: Exported, opset: int, program: Program) -> Any:
    program_for_writing(program, FORMAT)
    writer = Writer(_rule_of, opset, bool(exported.unknowns.names), itertools.count())
    inputs, results = named("x", program.input_types), named("y", program.output_types)
    outputs = flat(writer.program(program, inputs))
    for source, result in zip(outputs, flat(results), strict=True):
        writer.nodes.append(helper.make_node("Identity", [source], [result]))
    return helper.make_graph(
        _without_detours(writer.nodes, flat(results)), exported.fun_name,
        infos_of(inputs, program.input_types), infos_of(results, program.output_types), list(writer.tensors.values()),
    )  # fmt: skip


def _check(model: Any, name: str, opset: int) -> None:
    """Raise UnsupportedError if onnx finds an operator that does not take its operands' dtypes in this opset."""
    reason = ""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = str(error)
    if reason:
        raise UnsupportedError(f"{name} cannot be written for opset {opset}: {reason}", "Try a newer opset.")


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
    results = [v.type for v in equation.outputs]
    if results and not any(t.size or is_key(t.dtype) for t in results) and not equation.effects:
        return _without_elements
    if is_elementwise(equation, complex_numbers=True) and equation.primitive.name not in RULES:
        return elementwise
    if has_complex(equation) and equation.primitive.name not in EITHER:
        return write_complex
    if equation.primitive.name in RULES:
        return RULES[equation.primitive.name]
    raise refused(equation, FORMAT)


def _without_elements(w: Writer, e: Equation, xs: Names) -> Names:
    """Empty results, over which runtimes stumble."""
    return [w.empty(v.type) for v in e.outputs]
