"""Benchmark programs as one who knows MLX writes them: what the backend's calls are compared with.

`compared` are the five of several operations, which `make check-mac` times. `careful` are those that mean the same as
NumPy's and JAX's also for numbers of rows that are out of bounds: MLX's own gathers and scatters promise nothing then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def softmax_rows(mx: Any) -> Function:
    """Softmax of rows."""
    return lambda x: mx.softmax(x, axis=-1)


def _layer_norm(mx: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - mx.mean(x, axis=-1, keepdims=True)
    return centred / mx.sqrt(mx.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * scale + shift


def layer_norm_gradient(mx: Any) -> Function:
    """Gradients of layer norm with respect to all three operands."""

    def loss(x: Any, scale: Any, shift: Any, weights: Any) -> Any:
        return mx.sum(_layer_norm(mx, x, scale, shift) * weights)

    return mx.grad(loss, argnums=(0, 1, 2))


def mlp_adam_step(mx: Any) -> Function:
    """A training step with Adam of a perceptron with two hidden layers."""

    def loss(layers: Any, x: Any, labels: Any) -> Any:
        for layer in layers[:-1]:
            x = mx.maximum(mx.addmm(layer["bias"], x, layer["weight"]), 0.0)
        scores = mx.addmm(layers[-1]["bias"], x, layers[-1]["weight"])
        return -mx.mean(mx.sum((scores - mx.logsumexp(scores, axis=-1, keepdims=True)) * labels, axis=-1))

    gradient_of = mx.value_and_grad(loss)

    def step(state: Any, x: Any, labels: Any) -> Any:
        layers, mean, square, count = state
        value, gradient = gradient_of(layers, x, labels)
        count = count + 1.0
        rate = 1e-3 * mx.sqrt(1.0 - 0.999**count) / (1.0 - 0.9**count)
        made: list[list[dict[str, Any]]] = [[], [], []]
        for p, m, s, g in zip(layers, mean, square, gradient, strict=True):
            m = {k: 0.9 * m[k] + 0.1 * g[k] for k in g}
            s = {k: 0.999 * s[k] + 0.001 * g[k] * g[k] for k in g}
            p = {k: p[k] - rate * m[k] / (mx.sqrt(s[k]) + 1e-8) for k in g}
            for part, new in zip(made, (p, m, s), strict=True):
                part.append(new)
        return (*made, count), value

    return step


def nbody_forces(mx: Any) -> Function:
    """The gradient of the softened potential energy of bodies."""

    def energy(places: Any, masses: Any) -> Any:
        apart = places[:, None, :] - places[None, :, :]
        return -mx.sum(masses[:, None] * masses / mx.sqrt(mx.sum(apart * apart, axis=-1) + 0.01))

    return mx.grad(energy)


def transformer_gradient(mx: Any) -> Function:
    """Loss and gradient of a small GPT."""
    width, heads, length = 96, 3, 96

    def attend(x: Any, block: Any) -> Any:
        batch = x.shape[0]
        parts = mx.split(x @ block["attend"], 3, axis=-1)
        query, key, value = (mx.transpose(mx.reshape(p, (batch, length, heads, -1)), (0, 2, 1, 3)) for p in parts)
        scores = query @ mx.transpose(key, (0, 1, 3, 2)) * (heads / width) ** 0.5
        visible = mx.arange(length)[:, None] >= mx.arange(length)
        mixed = mx.softmax(mx.where(visible, scores, -1e30), axis=-1) @ value
        return mx.reshape(mx.transpose(mixed, (0, 2, 1, 3)), (batch, length, width)) @ block["mix"]

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1.0 + mx.tanh((2.0 / 3.141592653589793) ** 0.5 * (x + 0.044715 * x * x * x)))

    def loss(weights: Any, tokens: Any) -> Any:
        x = weights["words"][tokens[:, :-1]] + weights["places"]
        for block in weights["blocks"]:
            x = x + attend(_layer_norm(mx, x, *block["norm"]), block)
            x = x + gelu(_layer_norm(mx, x, *block["norm"]) @ block["up"]) @ block["down"]
        scores = x @ mx.transpose(weights["words"])
        picked = mx.take_along_axis(scores, tokens[:, 1:, None], axis=-1)[..., 0]
        return mx.mean(mx.logsumexp(scores, axis=-1) - picked)

    return mx.value_and_grad(loss)


def elementwise_chain(mx: Any) -> Function:
    """Cheap operations."""
    return lambda x, y: mx.sqrt(x * x + y * y + 1.0) - 0.5 * mx.abs(x - y) + 3.0 * x


def elementwise_functions(mx: Any) -> Function:
    """exp, cos, tanh and log1p."""
    return lambda x: mx.exp(-0.5 * x * x) * mx.cos(3.0 * x) + mx.tanh(x) * mx.log1p(mx.abs(x))


def elementwise_gradient(mx: Any) -> Function:
    """The gradient of a summed chain."""
    function = elementwise_functions(mx)
    return mx.grad(lambda x: mx.sum(function(x)))


def hessian_vector_product(mx: Any) -> Function:
    """Forward over reverse through a logistic regression."""

    def product(weights: Any, vector: Any, features: Any, labels: Any) -> Any:
        def loss(weights: Any) -> Any:
            scores = features @ weights
            return mx.mean(mx.logaddexp(scores, 0.0) - labels * scores)

        return mx.jvp(mx.grad(loss), (weights,), (vector,))[1][0]

    return product


def layer_norm_rows(mx: Any) -> Function:
    """Layer norm of rows, written out."""
    return lambda x, scale, shift: _layer_norm(mx, x, scale, shift)


def dispatch_tree(mx: Any) -> Function:
    """A dict of arrays, doubled."""
    return lambda leaves: {name: x * 2.0 for name, x in leaves.items()}


def _products(mx: Any) -> Function:
    return mx.matmul


def gather_rows_in_bounds(mx: Any) -> Function:
    """Rows; numbers beyond the ends are those of the ends."""
    return lambda table, rows: table[mx.clip(rows, -table.shape[0], table.shape[0] - 1)]


def segment_sum_in_bounds(mx: Any) -> Function:
    """Sums of groups; numbers of no group are left out."""

    def sums(x: Any, groups: Any) -> Any:
        inside = mx.logical_and(groups >= -500, groups < 500)
        return mx.zeros(500).at[mx.where(inside, groups, 0)].add(mx.where(inside, x, 0.0))

    return sums


compared: dict[str, Callable[[Any], Function]] = {
    f.__name__: f for f in (softmax_rows, layer_norm_gradient, mlp_adam_step, nbody_forces, transformer_gradient)
}
programs: dict[str, Callable[[Any], Function]] = {
    **compared,
    **{f.__name__: f for f in (elementwise_chain, elementwise_functions, elementwise_gradient, layer_norm_rows)},
    **{f.__name__: f for f in (hessian_vector_product, dispatch_tree)},
    "variance_of_columns": lambda mx: lambda x: mx.var(x, axis=0),
    "sum_of_all": lambda mx: mx.sum,
    "sum_of_squares": lambda mx: lambda x: mx.sum(x * x),
    "argsort_vector": lambda mx: mx.argsort,
    "gather_rows": lambda mx: lambda table, rows: table[rows],
    "segment_sum": lambda mx: lambda x, groups: mx.zeros(500).at[groups].add(x),
    "sum_of_columns": lambda mx: lambda x: mx.sum(x, axis=0),
    "sort_vector": lambda mx: mx.sort,
    "cumulative_sum": lambda mx: lambda x: mx.cumsum(x, axis=1),
    "dispatch_one_array": lambda mx: lambda x: x * 2.0,
    "matrix_product": _products,
    "batched_matrix_product": _products,
}
careful: dict[str, Callable[[Any], Function]] = {
    "gather_rows": gather_rows_in_bounds,
    "segment_sum": segment_sum_in_bounds,
}
