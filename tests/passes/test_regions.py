"""Scans, while loops, branches and callbacks: nested plans over whole buffers."""

from __future__ import annotations

import numpy as np
from graphs import Graph, execute

from rlx.ir.kernels import Branch, Callback, Scan, While
from rlx.ir.types import TensorType

rng = np.random.default_rng(11)
FLOAT = np.dtype(np.float32)


def running_sum_body():
    """(weight, carry, x) -> (carry * weight + x, carry): a y that passes a carry through."""
    body = Graph()
    weight, carry, x = body.input((3,)), body.input((3,)), body.input((3,))
    following = body.map("step", lambda s, w, c, v: c * w + v, weight, carry, x)
    return body.program(following, carry)


def test_scan():
    for reverse in (False, True):
        graph = Graph()
        weight, start, xs = graph.input((3,)), graph.input((3,)), graph.input((5, 3))
        body = running_sum_body()

        def lower(k, w, c, x, body=body, reverse=reverse):
            (final,), (ys,) = k.scan(body, (w,), (c,), (x,), 5, reverse)
            return final, ys

        outs = [TensorType((3,), FLOAT), TensorType((5, 3), FLOAT)]
        final, ys = graph.op("scan", lower, outs, weight, start, xs)
        plan = graph.plan(final, ys)
        assert [type(k) for k in plan.kernels] == [Scan]
        w, c, x = (rng.normal(size=s).astype(FLOAT) for s in [(3,), (3,), (5, 3)])
        got, seen = execute(plan, outs, [w, c, x])
        expected = np.empty((5, 3), FLOAT)
        for t in reversed(range(5)) if reverse else range(5):
            expected[t] = c
            c = c * w + x[t]
        np.testing.assert_allclose(got, c, rtol=1e-5)
        np.testing.assert_allclose(seen, expected, rtol=1e-5)


def test_scan_of_views_and_expressions():
    graph = Graph()
    xs = graph.input((3, 5))

    def lower(k, x):
        w = k.full(TensorType((3,), FLOAT), 2.0)
        c = k.full(TensorType((3,), FLOAT), 0.0)
        (final,), _ = k.scan(running_sum_body(), (w,), (c,), (k.transpose(x, (1, 0)),), 5)
        return final

    y = graph.op("scan", lower, (3,), xs)
    x = rng.normal(size=(3, 5)).astype(FLOAT)
    (got,) = graph.run([y], x)
    np.testing.assert_allclose(got, (x * 2.0 ** np.arange(4, -1, -1)).sum(1), rtol=1e-5)


def test_body_outputs_that_are_one_value_are_copies():
    body = Graph()
    a, b = body.input(()), body.input(())
    total = body.map("add", lambda s, p, q: p + q, a, b)
    program = body.program(total, total)
    graph = Graph()
    start = graph.input(())
    outs = [TensorType((), FLOAT)] * 2
    first, second = graph.op("scan", lambda k, s: k.scan(program, (), (s, s), (), 3)[0], outs, start)
    results = graph.run([first, second], np.float32(1))
    assert [float(r) for r in results] == [8.0, 8.0]


def test_while_loop():
    condition, body = Graph(), Graph()
    limit, x = condition.input(()), condition.input(())
    below = condition.map("less", lambda s, n, v: s.lt(v, n), limit, x, dtype=bool)
    y = body.input(())
    double = body.map("double", lambda s, v: v * 2, y)
    graph = Graph()
    n, start = graph.input(()), graph.input(())

    def lower(k, n, s):
        programs = condition.program(below), body.program(double)
        return k.while_loop(*programs, (n,), (), (s,))[0]

    end = graph.op("while", lower, (), n, start)
    assert [type(k) for k in graph.plan(end).kernels] == [While]
    assert float(graph.run([end], np.float32(100), np.float32(3))[0]) == 192.0


def test_branch():
    branches = []
    for factor in (2.0, 3.0):
        branch = Graph()
        v = branch.input((4,))
        branches.append(branch.program(branch.map("mul", lambda s, p, f=factor: p * f, v)))
    graph = Graph()
    index, x = graph.input((), np.int32), graph.input((4,))
    lower = lambda k, i, v: k.branch(i, branches, (v,))[0]  # noqa: E731
    y = graph.op("cond", lower, TensorType((4,), FLOAT), index, x)
    plan = graph.plan(y)
    assert [type(k) for k in plan.kernels] == [Branch]
    values = rng.normal(size=4).astype(FLOAT)
    for number, factor in ((0, 2), (1, 3), (9, 3), (-1, 2)):
        (got,) = execute(plan, [y.type], [np.int32(number), values])
        np.testing.assert_allclose(got, values * np.float32(factor))


def test_callbacks_run_in_order_and_are_kept():
    calls = []

    def note(number):
        def function(x):
            calls.append((number, x.copy()))
            return (x + 1,)

        return function

    graph = Graph()
    x = graph.input((2, 3))
    y = graph.op(
        "first",
        lambda k, v: k.callback(note(1), (k.transpose(v, (1, 0)),), [out])[0],
        out := TensorType((3, 2), FLOAT),
        x,
    )
    graph.op("second", lambda k, v: k.callback(note(2), (v,), [v.type])[0], (2, 3), x)
    z = graph.map("mul", lambda s, a: a * 2, y)
    plan = graph.plan(z)
    assert [type(k) for k in plan.kernels].count(Callback) == 2
    values = rng.normal(size=(2, 3)).astype(FLOAT)
    (got,) = execute(plan, [z.type], [values])
    np.testing.assert_allclose(got, (values.T + 1) * 2)
    assert [number for number, _ in calls] == [1, 2]


def test_inlined_programs_fuse():
    inner = Graph()
    a = inner.input((6,))
    program = inner.program(inner.map("exp", lambda s, p: s.exp(p), a))
    graph = Graph()
    x = graph.input((6,))
    y = graph.op("call", lambda k, v: k.inline(program, (v,))[0], (6,), x)
    z = graph.map("add", lambda s, p: p + 1, y)
    assert len(graph.plan(z).kernels) == 1
    values = rng.normal(size=6).astype(FLOAT)
    np.testing.assert_allclose(graph.run([z], values)[0], np.exp(values) + 1, rtol=1e-6)
