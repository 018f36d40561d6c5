"""What fuses, into how many kernels, and what must not."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import Graph, execute, loops, ops_of

from rlx.ir.kernels import Contract, Loops
from rlx.ir.options import FusionLimits
from rlx.ir.types import TensorType

rng = np.random.default_rng(3)


def spread(graph, v, shape, dims):
    return graph.op("spread", lambda k, x: k.broadcast(x, shape, dims), shape, v)


def rows(graph, v, shape):
    return spread(graph, v, shape, tuple(range(len(shape) - 1)))


def softmax(graph, x):
    shape = x.type.shape
    last = [len(shape) - 1]
    m = graph.reduce("max", x, last)
    e = graph.map("exp", lambda s, a, b: s.exp(a - b), x, rows(graph, m, shape))
    return graph.map("div", lambda s, a, b: a / b, e, rows(graph, graph.reduce("add", e, last), shape))


def standardised(graph, x):
    shape = x.type.shape
    last, n = [len(shape) - 1], shape[-1]
    mean = graph.map("mean", lambda s, a: a / float(n), graph.reduce("add", x, last))
    d = graph.map("sub", lambda s, a, b: a - b, x, rows(graph, mean, shape))
    square = graph.reduce("add", graph.map("square", lambda s, a: a * a, d), last)
    scale = graph.map("rsqrt", lambda s, a: s.rsqrt(a / float(n) + 1e-5), square)
    return graph.map("mul", lambda s, a, b: a * b, d, rows(graph, scale, shape)), scale


def numpy_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_softmax_is_one_kernel():
    for shape in [(6, 50), (2, 3, 50), (2, 3, 4, 20)]:
        graph = Graph()
        y = softmax(graph, graph.input(shape))
        plan = graph.plan(y)
        assert len(plan.kernels) == 1
        assert len(loops(plan)[0].sizes) == 2
        assert loops(plan)[0].parallel == 1
        x = rng.normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(execute(plan, [y.type], [x])[0], numpy_softmax(x), rtol=1e-5)


def test_layer_norm_is_one_kernel():
    graph = Graph()
    x, gamma, beta = graph.input((4, 8, 64)), graph.input((64,)), graph.input((64,))
    normal, _ = standardised(graph, x)
    y = graph.map("affine", lambda s, a, g, b: a * g + b, normal, gamma, beta)
    plan = graph.plan(y)
    assert len(plan.kernels) == 1
    assert plan.arena == 0


def layer_norm_backward(count, width):
    graph = Graph()
    x, dy, gamma = graph.input((count, width)), graph.input((count, width)), graph.input((width,))
    normal, scale = standardised(graph, x)
    dbeta = graph.reduce("add", dy, [0])
    dgamma = graph.reduce("add", graph.map("mul", lambda s, a, b: a * b, dy, normal), [0])
    dn = graph.map("mul", lambda s, a, g: a * g, dy, gamma)
    mean = graph.reduce("add", dn, [1])
    inner = graph.reduce("add", graph.map("mul", lambda s, a, b: a * b, dn, normal), [1])
    shape = (count, width)
    dx = graph.map(
        "dx",
        lambda s, d, m, n, i, r: (d - m / float(width) - n * i / float(width)) * r,
        dn,
        rows(graph, mean, shape),
        normal,
        rows(graph, inner, shape),
        rows(graph, scale, shape),
    )
    return graph, [dx, dgamma, dbeta]


def numpy_layer_norm_backward(x, dy, gamma):
    d = x - x.mean(1, keepdims=True)
    r = 1 / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5)
    n, dn = d * r, dy * gamma
    dx = (dn - dn.mean(1, keepdims=True) - n * (dn * n).mean(1, keepdims=True)) * r
    return dx, (dy * n).sum(0), dy.sum(0)


@pytest.mark.parametrize(("count", "kernels"), [(40, 1), (1200, 2)])
def test_layer_norm_backward_with_column_sums(count, kernels):
    graph, outputs = layer_norm_backward(count, 100)
    plan = graph.plan(*outputs)
    assert len(plan.kernels) == kernels
    assert loops(plan)[0].chunks == (1 if kernels == 1 else 16)
    arrays = [rng.normal(size=s).astype(np.float32) for s in [(count, 100), (count, 100), (100,)]]
    results = execute(plan, [v.type for v in outputs], arrays)
    for result, expected in zip(results, numpy_layer_norm_backward(*arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


def test_cross_entropy_and_its_gradient_are_one_kernel():
    graph = Graph()
    x, labels = graph.input((8, 30)), graph.input((8,), np.int32)
    shape = (8, 30)
    m = graph.reduce("max", x, [1])
    shifted = graph.map("sub", lambda s, a, b: a - b, x, rows(graph, m, shape))
    total = graph.reduce("add", graph.map("exp", lambda s, a: s.exp(a), shifted), [1])
    log_p = graph.map("log_p", lambda s, a, t: a - s.log(t), shifted, rows(graph, total, shape))

    def one_hot(k, y):
        wide = k.broadcast(y, shape, (0,))
        column = k.iota(TensorType(shape, np.dtype(np.int32)), 1)
        type = TensorType(shape, np.dtype(np.float32))
        return k.elementwise(lambda s, a, b: s.cast(s.eq(a, b), np.float32), (wide, column), type)

    hot = graph.op("one_hot", one_hot, TensorType(shape, np.dtype(np.float32)), labels)
    picked = graph.reduce("add", graph.map("mul", lambda s, a, b: a * b, log_p, hot), [1])
    loss = graph.map("mean", lambda s, a: -a / 8.0, graph.reduce("add", picked, [0]))
    gradient = graph.map("dx", lambda s, a, h: (s.exp(a) - h) / 8.0, log_p, hot)
    plan = graph.plan(gradient, loss)
    assert len(plan.kernels) <= 2
    a, y = rng.normal(size=shape).astype(np.float32), rng.integers(0, 30, 8).astype(np.int32)
    got, value = execute(plan, [gradient.type, loss.type], [a, y])
    p = numpy_softmax(a)
    np.testing.assert_allclose(value, -np.log(p[np.arange(8), y]).mean(), rtol=1e-5)
    np.testing.assert_allclose(got, (p - np.eye(30)[y]) / 8, rtol=1e-4, atol=1e-6)


def test_optimiser_step_is_one_kernel():
    graph = Graph()
    p, g, m, v = (graph.input((50, 7)) for _ in range(4))
    m1 = graph.map("m", lambda s, a, b: a * 0.9 + b * 0.1, m, g)
    v1 = graph.map("v", lambda s, a, b: a * 0.99 + b * b * 0.01, v, g)
    p1 = graph.map("p", lambda s, a, b, c: a - b / (s.sqrt(c) + 1e-8), p, m1, v1)
    plan = graph.plan(p1, m1, v1)
    (kernel,) = loops(plan)
    assert kernel.sizes == (350,)
    assert ops_of(kernel).count("load") == 4


def test_bias_and_activation_follow_a_product_in_one_kernel():
    graph = Graph()
    x, w, b = graph.input((16, 32)), graph.input((32, 24)), graph.input((24,))
    h = graph.op("dot", lambda k, a, c: k.contract(a, c, ([1], [0]), ([], [])), (16, 24), x, w)
    y = graph.map("tanh", lambda s, a, c: s.tanh(a + c), h, b)
    assert [type(k).__name__ for k in graph.plan(y).kernels] == ["Contract", "Loops"]


def test_attention_scores():
    graph = Graph()
    q, key = graph.input((2, 8, 3, 4)), graph.input((2, 8, 3, 4))
    scores = graph.op("dot", lambda k, a, b: k.contract(a, b, ([3], [3]), ([0, 2], [0, 2])), (2, 3, 8, 8), q, key)
    masked = graph.map("scale", lambda s, a: a * 0.5, scores)
    plan = graph.plan(softmax(graph, masked))
    assert [type(k) for k in plan.kernels] == [Contract, Loops]
    assert plan.kernels[0].out.shape == (2, 3, 8, 8)


def test_small_reductions_unroll_into_their_users():
    graph = Graph()
    x = graph.input((100, 3))
    norm = graph.reduce("add", graph.map("square", lambda s, a: a * a, x), [1])
    y = graph.map("mul", lambda s, a, n: a * s.sqrt(n), x, rows(graph, norm, (100, 3)))
    plan = graph.plan(y)
    assert len(plan.kernels) == 1
    assert "reduce" not in ops_of(loops(plan)[0])


def test_diamond_does_not_make_a_cycle():
    """b = f(a), c = matmul(b), d = b + c: d may not run inside b's kernel."""
    graph = Graph()
    x = graph.input((8, 8))
    b = softmax(graph, x)
    c = graph.op("dot", lambda k, p, q: k.contract(p, q, ([1], [0]), ([], [])), (8, 8), b, b)
    d = graph.map("add", lambda s, p, q: p + q, b, c)
    kinds = [type(k).__name__ for k in graph.plan(d).kernels]
    assert kinds == ["Loops", "Contract", "Loops"]


def test_unused_results_are_not_computed():
    graph = Graph()
    x = graph.input((8, 40))
    graph.reduce("add", x, [1])
    y = graph.map("exp", lambda s, a: s.exp(a), x)
    (kernel,) = loops(graph.plan(y))
    assert ops_of(kernel) == ["load", "exp"]


def test_limits_split_kernels():
    graph = Graph()
    x = graph.input((64,))
    for _ in range(40):
        x = graph.map("sin", lambda s, a: s.sin(a) + 1, x)
    whole = graph.plan(x)
    parts = graph.plan(x, fusion=FusionLimits(instructions=30), expression_operations=10)
    assert len(whole.kernels) == 1
    assert len(parts.kernels) > 2


def test_concatenated_parts_join_their_producers():
    graph = Graph()
    x = graph.input((4, 30))
    y = softmax(graph, x)
    z = graph.op("concatenate", lambda k, a, b: k.concatenate((a, b), 1), (4, 60), y, x)
    plan = graph.plan(z)
    assert len(plan.kernels) == 1


def test_report_names_reasons():
    graph = Graph()
    x = graph.input((8, 40))
    total = graph.reduce("add", x, [0])
    y = graph.map("sub", lambda s, a, b: a - b, x, total)
    plan = graph.plan(y)
    lines = [str(decision) for decision in plan.report]
    assert any("own kernel" in line for line in lines)
    assert len(plan.kernels) == 2


def test_transposed_producer_joins():
    graph = Graph()
    x = graph.input((5, 40))
    y = softmax(graph, x)
    z = graph.map("tanh", lambda s, a: s.tanh(a), graph.transpose(y, (1, 0)))
    assert len(graph.plan(z).kernels) == 1


def test_transposed_product_is_written_transposed():
    """A weight gradient, (x^T dy)^T: the product is computed the other way round, not copied."""
    graph = Graph()
    x, dy = graph.input((9, 4)), graph.input((9, 6))
    product = graph.op("dot", lambda k, a, b: k.contract(b, a, ([0], [0]), ([], [])), (6, 4), x, dy)
    gradient = graph.transpose(product, (1, 0))
    updated = graph.map("step", lambda s, a: a * 0.1, gradient)
    plan = graph.plan(gradient)
    assert [type(k) for k in plan.kernels] == [Contract]
    a, b = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(9, 6)).astype(np.float32)
    (got,) = execute(plan, [gradient.type], [a, b])
    np.testing.assert_allclose(got, a.T @ b, rtol=1e-5, atol=1e-5)
    (kernel,) = loops(graph.plan(updated))
    assert kernel.sizes == (24,)
    np.testing.assert_allclose(graph.run([updated], a, b)[0], 0.1 * (a.T @ b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outer", [1, 2, 40, 80])
def test_heads_are_merged_by_the_product(outer):
    graph = Graph()
    p, v = graph.input((outer, 3, 5, 7)), graph.input((outer, 3, 7, 4))
    heads = graph.op(
        "dot",
        lambda k, a, b: k.contract(a, b, ([3], [2]), ([0, 1], [0, 1])),
        (outer, 3, 5, 4),
        p,
        v,
    )
    merged = graph.reshape(graph.transpose(heads, (0, 2, 1, 3)), (outer, 5, 12))
    plan = graph.plan(merged)
    wanted = [Contract] if outer <= 64 else [Contract, Loops]
    assert [type(k) for k in plan.kernels] == wanted
    a = rng.normal(size=p.type.shape).astype(np.float32)
    b = rng.normal(size=v.type.shape).astype(np.float32)
    (got,) = execute(plan, [merged.type], [a, b])
    expected = (a @ b).transpose(0, 2, 1, 3).reshape(outer, 5, 12)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_residual_stream_is_stored_once():
    """Sums that many kernels read are stored, not added up again from ever more arrays."""
    graph = Graph()
    x = graph.input((16, 64))
    for _ in range(4):
        h = graph.op("dot", lambda k, a: k.contract(a, a, ([0], [0]), ([], [])), (64, 64), x)
        g = graph.op("dot", lambda k, a, b: k.contract(a, b, ([1], [0]), ([], [])), (16, 64), x, h)
        x = graph.map("add", lambda s, a, b: a + b, x, g)
    most = max(len(k.reads) for k in loops(graph.plan(softmax(graph, x))))
    assert most <= 2
