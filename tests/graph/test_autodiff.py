"""Derivatives of graphs and functions: values against closed forms, and every refusal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from graph_cases import random

import rlx
import rlx.numpy as jnp
from rlx import autodiff
from rlx.autodiff import AutodiffError, ForceEnergyLossWeights, GradWithLossOptions, HigherOrderOptions
from rlx.graph import Graph, GraphModule, Session, Shape, WrongStageError
from rlx.testing import assert_close, check_grads

W, X = random(3), random(3, seed=1)


def quadratic() -> Graph:
    """sum((w * x)^2), and w + x beside it."""
    graph = Graph("quadratic")
    w, x = graph.param("w", Shape([3])), graph.input("x", Shape([3]))
    graph.set_outputs([graph.reduce("sum", (w * x) ** 2), w + x])
    return graph


# ------------------------------------------------------------------ gradients
def test_loss_gradients_and_other_outputs() -> None:
    graph = autodiff.grad_with_loss(quadratic())
    assert list(graph.params) == ["w"] and list(graph.inputs) == ["x"]
    loss, slope, beside = graph(W, X)
    assert_close(loss, np.float32(((W * X) ** 2).sum()))
    assert_close(slope, 2 * W * X**2)
    assert_close(beside, W + X)
    compiled = Session().compile(graph)
    compiled.set_param("w", W)
    assert_close(compiled.run(x=X)[1], 2 * W * X**2)


def test_wrt_by_name_node_and_number() -> None:
    graph = quadratic()
    node = graph.signature["x"]
    for wrt in ("x", ["x"], node, [node], node.id, [int(node.id)]):
        assert_close(autodiff.grad(graph, wrt)(W, X), 2 * W**2 * X)
    both = autodiff.grad(graph, ["x", "w"])(W, X)
    assert_close(both[0], 2 * W**2 * X)
    assert_close(both[1], 2 * W * X**2)


def test_what_is_not_used_is_an_error_or_zeros_of_its_dtype() -> None:
    graph = Graph.trace(lambda a, b: jnp.sum(a * 2), W, np.ones(2), params=["b"])
    with pytest.raises(AutodiffError, match="does not depend on b"):
        autodiff.grad_with_loss(graph, ["a", "b"])
    found = autodiff.grad_with_loss_opts(graph, ["a", "b"], GradWithLossOptions.TRAINING)(W, np.ones(2))
    assert np.asarray(found[2]).dtype == np.float64 and np.array_equal(found[2], [0.0, 0.0])
    function = autodiff.grad_with_loss(lambda a, b: jnp.sum(a["k"] * 2), (0, 1))
    with pytest.raises(AutodiffError, match="argument 1"):
        function({"k": jnp.asarray(W)}, jnp.ones(2))
    loose = autodiff.grad_with_loss(lambda a, b: jnp.sum(a * 2), (0, 1), GradWithLossOptions.TRAINING)
    assert np.array_equal(loose(jnp.asarray(W), jnp.ones(2))[1][1], [0.0, 0.0])
    value, slope = rlx.jit(autodiff.grad_with_loss(lambda a: jnp.sum(a * a)))(W)
    assert_close(value, np.float32((W * W).sum()))
    assert_close(slope, 2 * W)


def test_refusals() -> None:
    graph = quadratic()
    with pytest.raises(AutodiffError, match="no input or parameter 'z'"):
        autodiff.grad(graph, "z")
    counted = Graph.trace(lambda n, x: jnp.sum(x) * n, np.int32(2), X)
    with pytest.raises(AutodiffError, match="int32"):
        autodiff.grad(counted, "n")
    with pytest.raises(WrongStageError):
        autodiff.grad(GraphModule.from_graph(graph).into_lir())
    with pytest.raises(AutodiffError, match="scalar"):
        autodiff.nth_order_grad(graph, "x", 2)
    with pytest.raises(AutodiffError, match="order=-1"):
        autodiff.nth_order_grad(graph, "x", -1)
    with pytest.raises(AutodiffError, match="no input"):
        autodiff.vmap(graph, ["z"], 2)


@pytest.mark.parametrize("lowered", [False, True])
def test_modules(lowered: bool) -> None:
    module = GraphModule.from_graph(quadratic())
    found = autodiff.grad_with_loss(module.into_mir() if lowered else module)
    assert isinstance(found, GraphModule)
    assert_close(found.graph()(W, X)[1], 2 * W * X**2)
    assert_close(autodiff.vmap(module, ["x"], 2).graph()(W, np.stack([X, X]))[1], np.stack([W + X] * 2))


# ------------------------------------------------------------------ forward mode, products, batches
def test_forward_mode_of_graphs() -> None:
    graph = autodiff.jvp(quadratic(), ["w"])
    assert list(graph.signature) == ["w", "x", "tangent_w"]
    direction = random(3, seed=2)
    loss, beside, moved, moved_beside = graph(W, X, direction)
    assert_close(moved, np.float32((2 * W * X**2) @ direction), rtol=1e-5, atol=1e-6)
    assert_close(moved_beside, direction)
    assert_close(loss, np.float32(((W * X) ** 2).sum()))
    assert_close(beside, W + X)
    assert float(autodiff.jvp(lambda x: x * x, (3.0,), (1.0,))[1]) == 6.0


def test_hessian_products_of_graphs() -> None:
    graph = autodiff.hvp(quadratic(), "w")
    direction = random(3, seed=2)
    loss, slope, product = graph(W, X, tangent_w=direction)
    assert_close(slope, 2 * W * X**2)
    assert_close(product, 2 * X**2 * direction)
    assert_close(loss, np.float32(((W * X) ** 2).sum()))
    assert_close(autodiff.hvp(lambda x: jnp.sum(x**3), (jnp.asarray(W),), (jnp.ones(3),)), 6 * W)


def test_batches_of_graphs() -> None:
    batch = np.stack([X, 2 * X])
    loss, beside = autodiff.vmap(quadratic(), ["x"], 2)(W, batch)
    assert_close(loss, ((W * batch) ** 2).sum(1))
    assert_close(beside, W + batch)
    each = autodiff.vmap(quadratic(), ["w", "x"], 2)(batch, batch)[0]
    assert_close(each, (batch**4).sum(1), rtol=1e-5, atol=1e-6)
    attention = Graph("heads")
    q = attention.input("q", Shape([1, 3, 4]))
    attention.set_outputs(attention.softmax(attention.attention(q, q, q, 2), axis=-1))
    several = random(5, 1, 3, 4)
    assert_close(
        autodiff.vmap(attention, ["q"], 5)(several), np.stack([np.asarray(attention(v)) for v in several])
    )
    assert_close(autodiff.vmap(jnp.sin)(X), np.sin(X))


def test_gradients_of_gradients() -> None:
    """grad_subgraph inside of another graph, differentiated again and pushed forward."""
    inner = autodiff.grad_subgraph(quadratic(), "w")
    outer = Graph("norm")
    w, x = outer.input("w", Shape([3])), outer.input("x", Shape([3]))
    energy, slope = outer.apply(inner, w, x)
    outer.set_outputs(outer.reduce("sum", slope * slope) + energy)
    expected = 8 * W * X**4 + 2 * W * X**2
    assert_close(autodiff.grad(outer, "w")(W, X), expected, rtol=1e-5, atol=1e-5)
    pushed = autodiff.jvp(inner, "w")(W, X, np.ones(3, np.float32))
    assert_close(pushed[3], 2 * X**2)


# ------------------------------------------------------------------ higher orders
@pytest.mark.parametrize("order", range(6))
def test_nth_derivatives(order: int) -> None:
    x = np.asarray(0.7)
    expected = math.sin(0.7 + order * math.pi / 2)
    graph = Graph.trace(lambda x, unused: jnp.sin(x), x, x)
    for fuse in (True, False):
        found = autodiff.nth_order_grad_with_options(
            graph, "x", order, HigherOrderOptions(fuse_elementwise=fuse)
        )
        assert abs(float(found(x, x)) - expected) < 1e-12
    assert abs(float(autodiff.nth_order_grad(jnp.sin, order=order)(x)) - expected) < 1e-12


def test_fusing_changes_the_graph_alone_and_constants_end_in_zero() -> None:
    graph = Graph.trace(lambda x: jnp.exp(jnp.sin(x)) * x, np.asarray(1.0))
    marked, plain = (
        autodiff.nth_order_grad(graph, "x", 3, HigherOrderOptions(fuse)) for fuse in (True, False)
    )
    assert len(marked.program.equations) < len(plain.program.equations)
    assert float(marked(np.asarray(0.3))) == pytest.approx(float(plain(np.asarray(0.3))), rel=1e-12)
    square = Graph.trace(lambda x: x * x, np.float32(1))
    assert float(autodiff.nth_order_grad(square, "x", 3)(np.float32(2))) == 0.0


def test_directional_derivatives() -> None:
    def energy(x: Any) -> Any:
        return jnp.sum(x**4)

    graph = Graph.trace(energy, X)
    u, v, t = (random(3, seed=s) for s in range(4, 7))
    third = autodiff.directional_nth_grad(graph, "x", 3)
    assert list(third.signature) == ["x", "dir_1", "dir_2", "dir_3"]
    assert_close(third(X, u, v, t), np.float32((24 * X * u * v * t).sum()), rtol=1e-4, atol=1e-5)
    second = autodiff.directional_nth_grad(graph, "x", ["left", "right"])
    assert_close(second(x=X, left=u, right=u), np.float32((12 * X**2 * u * u).sum()), rtol=1e-4, atol=1e-5)
    function = autodiff.directional_nth_grad(energy, order=2)
    assert_close(rlx.jit(function)(X, u, v), np.float32((12 * X**2 * u * v).sum()), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ force and energy
def test_force_energy_loss() -> None:
    """Of k/2 * |r|^2, whose force is -k r."""

    def energy(positions: Any, k: Any) -> Any:
        return 0.5 * k * jnp.sum(positions**2)

    r, k = np.asarray(X, np.float64), np.asarray(1.5)
    force_ref, energy_ref = np.asarray(W, np.float64), np.asarray(0.4)
    weights = ForceEnergyLossWeights(force=2.0, energy=3.0)
    expected = 2 * np.mean((-k * r - force_ref) ** 2) + 3 * (0.5 * k * (r @ r) - energy_ref) ** 2
    slope = 2 * np.mean(2 * (-k * r - force_ref) * -r) + 3 * 2 * (0.5 * k * (r @ r) - energy_ref) * 0.5 * (
        r @ r
    )
    graph = autodiff.build_force_energy_loss(Graph.trace(energy, r, k, params=["k"]), "positions", weights)
    assert list(graph.signature) == ["positions", "k", "force_ref", "energy_ref"]
    assert_close(graph(r, k, force_ref, energy_ref), np.asarray(expected))
    assert_close(autodiff.grad(graph, "k")(r, k, force_ref, energy_ref), np.asarray(slope))
    function = autodiff.build_force_energy_loss(energy, weights=weights)
    assert_close(function(jnp.asarray(r), force_ref, energy_ref, k), np.asarray(expected))
    check_grads(lambda k: function(jnp.asarray(r), force_ref, energy_ref, k), (jnp.asarray(k),), order=1)


# ------------------------------------------------------------------ own rules, preparation
def test_custom_functions_with_one_body() -> None:
    reverse_only = autodiff.custom_fn(lambda x, y: x * y, vjp=lambda x, y, out, d: (10.0 * d * out, d * x))
    slopes = rlx.grad(lambda x, y: reverse_only(x, y).sum(), (0, 1))(jnp.asarray(X), jnp.asarray(W))
    assert_close(slopes[0], 10 * X * W)
    assert_close(slopes[1], X)
    with pytest.raises(rlx.errors.CustomRuleError, match="forward-mode"):
        rlx.jvp(lambda x: reverse_only(x, x), (jnp.asarray(X),), (jnp.ones(3),))
    forward_only = autodiff.custom_fn(jnp.sin, jvp=lambda x, t: 10.0 * jnp.cos(x) * t)
    assert_close(rlx.grad(lambda x: forward_only(x).sum())(jnp.asarray(X)), 10 * np.cos(X))
    assert_close(rlx.jvp(forward_only, (jnp.asarray(X),), (jnp.ones(3),))[1], 10 * np.cos(X))
    assert_close(rlx.grad(lambda x: autodiff.custom_fn(jnp.sin)(x).sum())(jnp.asarray(X)), np.cos(X))


def both() -> Any:
    scale = jnp.asarray(np.float32(2.0))
    return autodiff.custom_fn(
        lambda x, y: jnp.sin(x) * y,
        vjp=lambda x, y, out, d: (100.0 * d * jnp.cos(x) * y * scale, 100.0 * d * jnp.sin(x)),
        jvp=lambda x, y, tx, ty: 10.0 * (jnp.cos(x) * y * tx * scale + jnp.sin(x) * ty),
    )


@pytest.mark.parametrize("jitted", [False, True])
def test_custom_functions_with_both_bodies(jitted: bool) -> None:
    """Each mode has its own rule, eagerly, jitted and batched."""
    function = both()
    wrap = rlx.jit if jitted else (lambda f: f)
    x, y = jnp.asarray(X), jnp.asarray(W)
    assert_close(wrap(function)(x, y), np.sin(X) * W)
    pushed = wrap(lambda t: rlx.jvp(lambda v: function(v, y), (x,), (t,))[1])(jnp.ones(3))
    assert_close(pushed, 20 * np.cos(X) * W, rtol=1e-5, atol=1e-5)
    pulled = wrap(rlx.grad(lambda a, b: function(a, b).sum(), (0, 1)))(x, y)
    assert_close(pulled[0], 200 * np.cos(X) * W, rtol=1e-5, atol=1e-4)
    assert_close(pulled[1], 100 * np.sin(X), rtol=1e-5, atol=1e-4)
    each = wrap(rlx.vmap(rlx.grad(lambda a, b: function(a, b)), in_axes=(0, 0)))(x, y)
    assert_close(each, pulled[0], rtol=1e-5, atol=1e-4)
    flow = wrap(rlx.vmap(lambda a, b: rlx.jvp(function, (a, b), (1.0, 0.0))[1]))(x, y)
    assert_close(flow, pushed, rtol=1e-5, atol=1e-5)
    hessian = wrap(rlx.grad(lambda v: rlx.grad(lambda a: function(a, y).sum())(v).sum()))(x)
    assert_close(hessian, -200 * np.sin(X) * W, rtol=1e-4, atol=1e-3)


def test_custom_functions_under_a_trace_of_what_they_close_over() -> None:
    def outer(scale: Any) -> Any:
        own = autodiff.custom_fn(
            lambda x: x * scale, vjp=lambda x, out, d: (7.0 * d * scale,), jvp=lambda x, t: 3.0 * t * scale
        )
        return rlx.grad(own)(jnp.asarray(1.0)) + rlx.jvp(own, (1.0,), (1.0,))[1]

    assert float(rlx.jit(outer)(2.0)) == 20.0
    wrong = autodiff.custom_fn(jnp.sin, vjp=lambda x, out, d: (d[:1],), jvp=lambda x, t: t)
    with pytest.raises(rlx.errors.CustomRuleError, match="vjp body"):
        rlx.grad(lambda x: wrong(x).sum())(jnp.asarray(X))


def test_preparation_inlines_calls_and_keeps_rules() -> None:
    own = autodiff.custom_fn(jnp.sin, jvp=lambda x, t: 5.0 * t)
    graph = Graph.trace(lambda x: jnp.sum(rlx.jit(lambda v: own(rlx.jit(jnp.tanh)(v)))(x)), X)
    ready = autodiff.prepare_graph_for_ad(graph)
    kinds = [e.primitive.name for e in ready.program.equations]
    assert "call" not in kinds and "custom_jvp_call" in kinds
    expected = 5 * (1 - np.tanh(X) ** 2)
    assert_close(autodiff.grad(ready, "x")(X), expected)
    assert_close(autodiff.grad(graph, "x")(X), expected)
    same = rlx.opt.run_passes(graph, [autodiff.PrepareForAutodiff()])
    assert same.program == ready.program
