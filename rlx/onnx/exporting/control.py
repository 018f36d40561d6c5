"""Loops and branches as ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rlx.ir.program import Equation, Program
from rlx.onnx.exporting.writer import FORMAT, Name, Names, Rule, Writer, flat, infos_of, paired
from rlx.standalone.spelling import entering, refused

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


def _graph(
    w: Writer, name: str, program: Program, prefix: Names, extra: Sequence[Any] = (), lead: Sequence[Name] = ()
) -> Any:
    inner, inputs, outputs = w.graph(program, prefix, extra)
    head = [_first(inner, n) for n in lead]
    return helper.make_graph(inner.nodes, name, inputs, [*head, *outputs])


def _first(inner: Writer, name: str) -> Any:
    result = inner.node("Identity", name)
    return helper.make_tensor_value_info(result, onnx.TensorProto.BOOL, ())


@rule("scan")
def _scan(w: Writer, e: Equation, xs: Names) -> Names:
    p = e.params
    constants, carries = p["constants"], p["carries"]
    body: Program = p["body"]
    if p["length"] == 0:  # which onnxruntime refuses
        return [*xs[constants : constants + carries], *(w.empty(v.type) for v in e.outputs[carries:])]
    if len(xs) == constants + carries:  # ONNX takes the number of steps from the scanned inputs
        return _counted(w, e, xs)
    graph = _graph(w, "body", body, xs[:constants])
    scanned, kept = flat(xs[constants + carries :]), flat(xs[constants : constants + carries])
    way, stacked = int(p["reverse"]), len(graph.output) - len(kept)
    found = w.several(
        "Scan", [*kept, *scanned], len(graph.output), body=graph, num_scan_inputs=len(scanned),
        scan_input_directions=[way] * len(scanned), **({"scan_output_directions": [way] * stacked} if stacked else {}),
    )  # fmt: skip
    return _results(found, e)


def _results(found: Sequence[str], e: Equation) -> Names:
    return paired(found, (v.type for v in e.outputs))


def _counted(w: Writer, e: Equation, xs: Names) -> Names:
    """A scan without inputs: a loop with a given number of steps."""
    p = e.params
    body: Program = p["body"]
    if p["reverse"] and len(body.outputs) > p["carries"]:
        raise refused(e, FORMAT, "it stacks results backwards without scanned inputs")
    condition = w.fresh()
    extra = [
        helper.make_tensor_value_info(w.fresh(), onnx.TensorProto.INT64, ()),
        helper.make_tensor_value_info(condition, onnx.TensorProto.BOOL, ()),
    ]
    graph = _graph(w, "body", body, xs[: p["constants"]], extra, [condition])
    steps, going = w.constant(p["length"], np.int64), w.constant(True)
    found = w.several("Loop", [steps, going, *flat(xs[p["constants"] :])], len(graph.output) - 1, body=graph)
    return _results(found, e)


@rule("while_loop")
def _while(w: Writer, e: Equation, xs: Names) -> Names:
    p = e.params
    c, b = p["condition_constants"], p["body_constants"]
    held, moved, carries = xs[:c], xs[c : c + b], xs[c + b :]
    (start,) = w.program(p["condition"], [*held, *carries])
    inner = w.inner()
    types = p["body"].output_types
    names = w.inputs(types)
    found = [inner.node("Identity", n) for n in flat(inner.program(p["body"], [*moved, *names]))]
    (going,) = inner.program(p["condition"], [*held, *paired(found, types)])
    count = helper.make_tensor_value_info(w.fresh(), onnx.TensorProto.INT64, ())
    before = helper.make_tensor_value_info(w.fresh(), onnx.TensorProto.BOOL, ())
    inputs = [count, before, *infos_of(names, types)]
    outputs = [_first(inner, going), *infos_of(paired(found, types), types)]
    graph = helper.make_graph(inner.nodes, "body", inputs, outputs)
    return _results(w.several("Loop", ["", start, *flat(carries)], len(found), body=graph), e)


@rule("cond")
def _cond(w: Writer, e: Equation, xs: Names) -> Names:
    branches: Mapping[int, Program] = dict(enumerate(e.params["branches"]))
    index = w.cast(xs[0], np.int64)
    return _choose(w, index, branches, xs[1:], 0, len(branches) - 1)


def _choose(w: Writer, index: str, branches: Mapping[int, Program], xs: Names, first: int, last: int) -> Names:
    """The results of one of several branches, selected by binary search."""
    if first == last:
        return w.program(branches[first], xs)
    middle = (first + last) // 2
    graphs = []
    for low, high in ((first, middle), (middle + 1, last)):
        inner = w.inner()
        values = inner.renamed(_choose(inner, index, branches, xs, low, high), branches[0].output_types)
        graphs.append(helper.make_graph(inner.nodes, f"branch_{low}", [], values))
    which = w.node("LessOrEqual", index, w.constant(middle, np.int64))
    found = w.several("If", [which], len(graphs[0].output), then_branch=graphs[0], else_branch=graphs[1])
    return paired(found, branches[0].output_types)
