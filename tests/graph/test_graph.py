"""Graphs built by hand: operations, names, runs, use as functions, the way back from functions."""

from __future__ import annotations

import numpy as np
import pytest
from graph_cases import DEVICES, random, run_one

import rlx
import rlx.numpy as jnp
from rlx.graph import DType, Graph, NodeId, OpKind, Session, Shape
from rlx.testing import assert_close


def hello() -> Graph:
    graph = Graph("hello")
    x = graph.input("x", Shape([1, 4], DType.F32))
    w = graph.param("w", Shape([4, 2], DType.F32))
    graph.set_outputs([graph.matmul(x, w, Shape([1, 2], DType.F32))])
    return graph


@pytest.mark.parametrize("device", DEVICES)
def test_the_seeds_first_pattern(device: str) -> None:
    compiled = Session(rlx.Device(device)).compile(hello())
    assert isinstance(compiled, rlx.CompiledGraph) and compiled.device == device
    compiled.set_param("w", [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0])
    for given in ([("x", [1.0, 2.0, 3.0, 4.0])], {"x": np.array([[1, 2, 3, 4]], np.float32)}):
        (out,) = compiled.run(given)
        assert np.array_equal(out, [[4.0, 6.0]])


def test_parameters_are_kept_and_can_be_overridden() -> None:
    compiled = Session().compile(hello())
    compiled.set_params({"w": np.ones((4, 2), np.float32)})
    assert float(compiled.run(x=np.ones((1, 4), np.float32))[0][0, 0]) == 4.0
    other = 2 * np.ones((4, 2), np.float32)
    assert float(compiled.run(x=np.ones((1, 4), np.float32), w=other)[0][0, 0]) == 8.0
    assert np.array_equal(compiled.param("w"), np.ones((4, 2)))


def test_mistakes_are_named() -> None:
    graph = hello()
    compiled = Session().compile(graph)
    with pytest.raises(rlx.errors.RlxError, match="no value for: w"):
        compiled.run({"x": np.ones((1, 4), np.float32)})
    with pytest.raises(rlx.errors.RlxError, match="no parameter 'x'"):
        compiled.set_param("x", 1.0)
    with pytest.raises(rlx.errors.ShapeError, match="'w' has shape"):
        compiled.set_param("w", np.ones((2, 2), np.float32))
    with pytest.raises(rlx.errors.DtypeError, match="float64"):
        compiled.set_param("w", np.ones((4, 2)))
    with pytest.raises(rlx.errors.RlxError, match="no input 'z'"):
        compiled.run(x=np.ones((1, 4), np.float32), w=np.ones((4, 2), np.float32), z=1.0)
    with pytest.raises(rlx.errors.RlxError, match="already"):
        graph.input("x", Shape([1]))
    with pytest.raises(rlx.errors.ShapeError, match="expected"):
        graph.matmul(*graph.signature.values(), Shape([2, 1]))
    with pytest.raises(rlx.errors.RlxError, match="graph 'hello'"):
        Graph("other").relu(graph.signature["x"])
    with pytest.raises(rlx.errors.RlxError, match="no outputs"):
        Graph("empty").program  # noqa: B018
    with pytest.raises(rlx.errors.DeviceError):
        Session("abacus")
    with pytest.raises(rlx.errors.RlxError, match="neither true nor false"):
        bool(graph.signature["x"])
    with pytest.raises(rlx.errors.RlxError, match="graph.apply"):
        jnp.sin(graph.signature["x"])
    with pytest.raises(rlx.errors.RlxError, match="There are: "):
        graph.activation("softmin", graph.signature["x"])


def test_integers_stay_exact() -> None:
    big = np.array([2**53 + 1, 2**24 + 1], np.int64)
    assert run_one(lambda g, x: x + 1, x=big).tolist() == [2**53 + 2, 2**24 + 2]
    graph = Graph("index")
    i = graph.input("i", Shape([2], DType.I32))
    graph.set_outputs(i * 2)
    compiled = Session().compile(graph)
    assert compiled.run(i=[3, 4])[0].tolist() == [6, 8]
    with pytest.raises(rlx.errors.RlxError, match="int32"):
        compiled.run(i=[1.5, 2.0])


def test_nodes_know_what_they_are() -> None:
    graph = Graph("nodes")
    x = graph.input("x", Shape([2, 3], DType.F64))
    w = graph.param("w", Shape([3], DType.F64))
    y = graph.add(x, w)
    z = graph.relu(y)
    assert (x.id, w.id) == (0, 1) and isinstance(x.id, NodeId)
    assert y.op.kind == OpKind("add") and x.op.kind == "input" and w.op.params == {"name": "w"}
    assert set(y.inputs) == {x, w}
    assert (
        isinstance(y.op, rlx.Op)
        and isinstance(y.origin, rlx.NodeOrigin)
        and y.origin.label == rlx.graph.node_label(y)
    )
    assert y.shape == Shape([2, 3], DType.F64) and y.shape.size == 6 and y.shape.nbytes == 48
    assert y.origin.place is not None and y.origin.place.file == __file__
    assert str(x.origin) == "x" and rlx.graph.node_label(y) == f"add%{int(y.id)}"
    assert [n.id for n in graph.nodes] == list(range(len(graph))) and graph.node(int(z.id)) == z
    assert list(graph.inputs) == ["x"] and list(graph.params) == ["w"]
    graph.set_outputs(z)
    assert "ops.select" in str(graph)
    with pytest.raises(rlx.errors.RlxError, match="no kind"):
        OpKind("frobnicate")
    assert "dot_general" in OpKind.all()


def test_operators_and_indexing() -> None:
    x, y = random(2, 3), random(2, 3, seed=1)
    found = run_one(lambda g, x, y: (2.0 - x) * y / (abs(y) + 1) @ g.transpose(-x, (1, 0)), x=x, y=y)
    assert_close(found, (2 - x) * y / (abs(y) + 1) @ (-x).T)
    assert_close(run_one(lambda g, x: x[1:, ::2] ** 2, x=x), x[1:, ::2] ** 2)
    assert run_one(lambda g, x: x > 0, x=x).tolist() == (x > 0).tolist()


def test_a_graph_is_a_function_under_every_transformation() -> None:
    graph = Graph("energy")
    x = graph.input("x", Shape([3]))
    scale = graph.constant(np.array([1.0, 2.0, 3.0], np.float32))
    graph.set_outputs(graph.reduce("sum", graph.activation("tanh", x) * scale))
    point = random(3)
    slope = np.array([1.0, 2.0, 3.0]) * (1 - np.tanh(point) ** 2)
    assert_close(graph(point), np.sum(np.tanh(point) * [1, 2, 3]).astype(np.float32))
    assert_close(rlx.jit(rlx.grad(graph))(point), slope.astype(np.float32))
    assert_close(rlx.grad(graph)(jnp.asarray(point)), slope.astype(np.float32))
    batch = np.stack([point, 2 * point])
    assert_close(rlx.vmap(graph)(batch), (np.tanh(batch) * [1, 2, 3]).sum(1).astype(np.float32))
    assert_close(rlx.jit(lambda v: graph(x=v) * 2)(point), 2 * np.asarray(graph(point)))
    with pytest.raises(rlx.errors.RlxError, match="no value for: x"):
        graph()


def test_functions_become_graphs_and_come_back() -> None:
    def model(weights: dict, x: jnp.ndarray) -> tuple:
        hidden = jnp.tanh(x @ weights["first"])
        return hidden @ weights["second"], hidden

    weights = {"first": random(3, 4), "second": random(4, 2, seed=1)}
    x = random(5, 3, seed=2)
    graph = Graph.trace(model, weights, x, params=["weights"])
    assert list(graph.params) == ["weights['first']", "weights['second']"] and list(graph.inputs) == ["x"]
    compiled = Session().compile(graph)
    compiled.set_params({f"weights['{k}']": v for k, v in weights.items()})
    for found, expected in zip(
        compiled.run(x=x), model({k: jnp.asarray(v) for k, v in weights.items()}, x), strict=True
    ):
        assert_close(found, expected)
    grown = Graph.trace(lambda x: x * 2, x)
    before = grown.program
    assert grown.program is before
    grown.set_outputs(grown.relu(grown.outputs[0]))
    assert grown.program is not before
    assert_close(grown(x), np.maximum(x * 2, 0))
    assert graph.program == Graph.from_program(graph.program).program


def test_control_flow() -> None:
    x = random(3)
    small, large = Graph.trace(lambda v: v * 2, x), Graph.trace(lambda v: v - 1, x)
    for sign in (1.0, -1.0):
        given = {"p": np.float32(sign), "x": x}
        found = run_one(lambda g, p, x: g.cond(p > 0, small, large, x), **given)
        assert_close(found, x * 2 if sign > 0 else x - 1)

    def counted(g: Graph, x: rlx.Node) -> rlx.Node:
        return g.while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, v * 2), g.constant(0), x)[1]

    assert_close(run_one(counted, x=x), x * 16)
    stacked = run_one(lambda g, x: g.scan(lambda c, v: (c + v, c), g.constant(np.float32(0)), x)[1], x=x)
    assert_close(stacked, np.concatenate([[0], np.cumsum(x)[:-1]]).astype(np.float32))
