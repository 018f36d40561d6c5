"""Where temporaries lie: reuse, sharing in place, copies that vanish, and speed."""

from __future__ import annotations

import time

import numpy as np
import pytest
from graphs import Graph, execute, loops

from rlx.ir.kernels import Buffer, Loops
from rlx.ir.types import TensorType
from rlx.planning.memory import place_temporaries, plan_statistics, remove_copies, update_in_place

rng = np.random.default_rng(5)


def products(graph, x, count):
    """A chain of square matrix products, whose results cannot be fused away."""
    for _ in range(count):
        x = graph.op("dot", lambda k, a: k.contract(a, a, ([1], [0]), ([], [])), x.type.shape, x)
        x = graph.map("tanh", lambda s, a: s.tanh(a), x)
    return x


def test_a_chain_needs_two_buffers():
    graph = Graph()
    y = products(graph, graph.input((16, 16)), 10)
    plan = graph.plan(y)
    assert plan.arena <= 2 * 16 * 16 * 4


def test_offsets_are_aligned_and_disjoint_while_live():
    graph = Graph()
    x = graph.input((10, 10))
    values = [products(graph, x, n) for n in range(1, 5)]
    total = values[0]
    for v in values[1:]:
        total = graph.map("add", lambda s, a, b: a + b, total, v)
    plan = graph.plan(total, fuse=False)
    last = {}
    first = {}
    for position, kernel in enumerate(plan.kernels):
        for buffer in (*kernel.reads, *kernel.writes):
            last[buffer] = position
            first.setdefault(buffer, position)
    temporaries = [b for b in plan.buffers if b.role == "temporary"]
    assert temporaries
    for one in temporaries:
        start = plan.offsets[one]
        assert start % 64 == 0 and start + one.nbytes <= plan.arena
        for other in temporaries:
            beginning = plan.offsets[other]
            overlap = start < beginning + other.nbytes and beginning < start + one.nbytes
            live = first[one] < last[other] and first[other] < last[one]
            assert one is other or not (overlap and live)


def test_results_are_right_with_reused_memory():
    graph = Graph()
    x = graph.input((6, 6))
    y = products(graph, x, 4)
    value = rng.normal(size=(6, 6)).astype(np.float32)
    expected = value.astype(np.float64)
    for _ in range(4):
        expected = np.tanh(expected @ expected)
    np.testing.assert_allclose(graph.run([y], value)[0], expected, rtol=1e-3, atol=1e-4)


def test_dying_operand_gives_its_memory():
    graph = Graph()
    x = graph.input((32, 32))
    h = graph.op("dot", lambda k, a: k.contract(a, a, ([1], [0]), ([], [])), (32, 32), x)
    t = graph.map("tanh", lambda s, a: s.tanh(a), h)
    y = graph.op("dot", lambda k, a: k.contract(a, a, ([1], [0]), ([], [])), (32, 32), t)
    assert graph.plan(y).arena == 32 * 32 * 4


def test_updates_of_a_dying_value_happen_in_place():
    graph = Graph()
    x = graph.input((40,))
    y = x
    for position in range(5):

        def update(k, v, position=position):
            one = k.full(TensorType((1,), v.dtype), position)
            return k.scatter(None, v, one, lambda s, i: [i + position], None)

        y = graph.op("update", update, (40,), y)
    plan = graph.plan(y)
    assert plan.arena == 0
    assert sum(k.sizes == (40,) for k in loops(plan)) == 1
    (got,) = execute(plan, [y.type], [np.full(40, 9, np.float32)])
    np.testing.assert_array_equal(got[:6], [0, 1, 2, 3, 4, 9])


def test_a_value_that_is_still_needed_is_copied():
    graph = Graph()
    x = graph.input((8, 8))
    h = products(graph, x, 1)
    updated = graph.op(
        "update",
        lambda k, v: k.scatter(None, v, k.full(TensorType((1, 8), v.dtype), 7), lambda s, i, j: [i, j], None),
        (8, 8),
        h,
    )
    value = rng.normal(size=(8, 8)).astype(np.float32)
    first, second = graph.run([updated, h], value)
    np.testing.assert_array_equal(first[0], 7)
    np.testing.assert_array_equal(first[1:], second[1:])
    np.testing.assert_allclose(second, np.tanh(value @ value), rtol=1e-4, atol=1e-5)


def test_statistics():
    graph = Graph()
    x = graph.input((16, 16))
    found = plan_statistics(graph.plan(products(graph, x, 3)))
    assert found["kernels"] == {"Contract": 3, "Loops": 3}
    assert found["arena"] > 0
    assert found["bytes"] > 0


@pytest.mark.thorough
def test_planning_is_near_linear():
    graph = Graph()
    x = graph.input((4, 4))
    values = [products(graph, x, 1) for _ in range(1500)]
    total = values[0]
    for v in values[1:]:
        total = graph.map("add", lambda s, a, b: a + b, total, v)
    plan = graph.plan(total, fuse=False)
    start = time.process_time()
    place_temporaries(update_in_place(remove_copies(plan)))
    assert time.process_time() - start < 2
    assert all(isinstance(b, Buffer) for b in plan.buffers)
    assert any(isinstance(k, Loops) for k in plan.kernels)
