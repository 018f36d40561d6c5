"""Operators that sum, normalise and multiply matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.onnx.nodes import Node, known, operator
from rlx.scipy.special import logsumexp

__all__: list[str] = []

_REDUCTIONS: dict[str, Any] = {
    "ReduceSum": jnp.sum, "ReduceMean": jnp.mean, "ReduceMax": jnp.max, "ReduceMin": jnp.min, "ReduceProd": jnp.prod,
    "ReduceL1": lambda x, **o: jnp.sum(jnp.abs(x), **o), "ReduceL2": lambda x, **o: jnp.sqrt(jnp.sum(x * x, **o)),
    "ReduceLogSum": lambda x, **o: jnp.log(jnp.sum(x, **o)), "ReduceLogSumExp": lambda x, **o: logsumexp(x, **o),
    "ReduceSumSquare": lambda x, **o: jnp.sum(x * x, **o),
}  # fmt: skip


@operator(*_REDUCTIONS)
def _reduced(node: Node, x: Any, axes: Any = None) -> Any:
    chosen = node.get("axes") if axes is None else [int(n) for n in known(node, axes, "axes").reshape(-1)]
    if not chosen and node.get("noop_with_empty_axes", 0):
        return _of_one(node.kind, x)
    x = jnp.asarray(x)
    over = tuple(a % x.ndim for a in chosen) if chosen else tuple(range(x.ndim))
    if node.kind in ("ReduceMax", "ReduceMin") and 0 in (x.shape[a] for a in over):
        return _empty_extreme(node, x, over)
    return _REDUCTIONS[node.kind](x, axis=over, keepdims=bool(node.get("keepdims", 1))).astype(x.dtype)


def _of_one(kind: str, x: Any) -> Any:
    """A reduction over no axes, applied to single elements."""
    same = {"ReduceL1": jnp.abs, "ReduceL2": jnp.abs, "ReduceLogSum": jnp.log, "ReduceSumSquare": jnp.square}
    return same[kind](x) if kind in same else x


def _empty_extreme(node: Node, x: Any, over: tuple[int, ...]) -> Any:
    highest = node.kind == "ReduceMin"
    if jnp.issubdtype(x.dtype, jnp.floating):
        value: Any = math.inf if highest else -math.inf
    elif x.dtype == bool:
        value = highest
    else:
        value = jnp.iinfo(x.dtype).max if highest else jnp.iinfo(x.dtype).min
    keep = node.get("keepdims", 1)
    shape = [1 if a in over else n for a, n in enumerate(x.shape) if keep or a not in over]
    return jnp.full(shape, value, x.dtype)


# ------------------------------------------------------------------ products
@operator("MatMul")
def _product(node: Node, x: Any, y: Any) -> Any:
    return jnp.matmul(x, y)


@operator("Gemm")
def _general_product(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    a = jnp.transpose(a) if node.get("transA", 0) else a
    b = jnp.transpose(b) if node.get("transB", 0) else b
    found = jnp.matmul(a, b)
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    found = found if alpha == 1.0 else jnp.asarray(alpha, found.dtype) * found
    if c is None:
        return found
    return found + (c if beta == 1.0 else jnp.asarray(beta, found.dtype) * c)


@operator("Einsum")
def _einsum(node: Node, *xs: Any) -> Any:
    return jnp.einsum(node["equation"].replace(" ", ""), *xs)


@operator("Det")
def _determinant(node: Node, x: Any) -> Any:
    return jnp.linalg.det(x)


# ------------------------------------------------------------------ normalisation
def _per_channel(values: Any, ndim: int) -> Any:
    return jnp.reshape(values, (1, -1, *[1] * (ndim - 2)))


@operator("BatchNormalization")
def _batch_norm(node: Node, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    epsilon, momentum = node.get("epsilon", 1e-5), node.get("momentum", 0.9)
    running = mean, var
    if node.get("training_mode", 0):
        over = tuple(a for a in range(x.ndim) if a != 1)
        here = jnp.mean(x, axis=over), jnp.var(x, axis=over)
        running = tuple(momentum * r + (1 - momentum) * h for r, h in zip((mean, var), here, strict=True))
        mean, var = here
    scale, bias, mean, var = (_per_channel(v, x.ndim) for v in (scale, bias, mean, var))
    found = (scale * (x - mean) / jnp.sqrt(var + jnp.asarray(epsilon, var.dtype)) + bias).astype(x.dtype)
    return found, *running


@operator("InstanceNormalization")
def _instance_norm(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    over = tuple(range(2, x.ndim))
    centred = x - jnp.mean(x, axis=over, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(centred * centred, axis=over, keepdims=True) + node.get("epsilon", 1e-5))
    return _per_channel(scale, x.ndim) * centred / deviation + _per_channel(bias, x.ndim)


@operator("GroupNormalization")
def _group_norm(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    groups = node["num_groups"]
    split = jnp.reshape(jnp.asarray(x).astype(jnp.float32), (x.shape[0], groups, -1))
    centred = split - split.mean(axis=2, keepdims=True)
    found = centred / jnp.sqrt((centred**2).mean(axis=2, keepdims=True) + node.get("epsilon", 1e-5))
    if node.version < 21:
        found = found * jnp.reshape(scale, (1, -1, 1)) + jnp.reshape(bias, (1, -1, 1))
        return found.reshape(x.shape).astype(x.dtype)
    found = found.reshape(x.shape).astype(x.dtype)
    return found * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)


@operator("LayerNormalization")
def _layer_norm(node: Node, x: Any, scale: Any, bias: Any = None) -> Any:
    axis = node.get("axis", -1) % x.ndim
    over = tuple(range(axis, x.ndim))
    wide = jnp.asarray(x).astype(jnp.float32) if x.dtype.itemsize < 4 else jnp.asarray(x)
    mean = wide.mean(axis=over, keepdims=True)
    centred = wide - mean
    inverse = 1 / jnp.sqrt((centred * centred).mean(axis=over, keepdims=True) + node.get("epsilon", 1e-5))
    found = (centred * inverse).astype(x.dtype) * scale
    return found if bias is None else found + bias, mean, inverse


@operator("RMSNormalization")
def _rms_norm(node: Node, x: Any, scale: Any) -> Any:
    axis = node.get("axis", -1) % x.ndim
    over = tuple(range(axis, x.ndim))
    wide = jnp.asarray(x).astype(jnp.float32) if x.dtype.itemsize < 4 else jnp.asarray(x)
    root = jnp.sqrt((wide * wide).mean(axis=over, keepdims=True) + node.get("epsilon", 1e-5))
    return (wide / root).astype(x.dtype) * scale


@operator("LpNormalization")
def _lp_norm(node: Node, x: Any) -> Any:
    axis, p = node.get("axis", -1), node.get("p", 2)
    norm = jnp.sum(jnp.abs(x), axis, keepdims=True) if p == 1 else jnp.sqrt(jnp.sum(x * x, axis, keepdims=True))
    return jnp.where(norm == 0, jnp.zeros((), x.dtype), x / jnp.where(norm == 0, jnp.ones((), x.dtype), norm))


@operator("LRN")
def _local_response(node: Node, x: Any) -> Any:
    size, alpha, beta, bias = node["size"], node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    window = (1, size, *[1] * (x.ndim - 2))
    padding = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)]
    sums = lax.reduce_window(x * x, np.zeros((), x.dtype), lax.add, window, (1,) * x.ndim, padding)
    return x / (bias + alpha / size * sums) ** beta


@operator("Momentum", domain="ai.onnx.preview.training")
def _momentum(node: Node, rate: Any, count: Any, *tensors: Any) -> Any:
    n = len(tensors) // 3
    alpha, decay = node["alpha"], node["norm_coefficient"]
    found = []
    for x, gradient, velocity in zip(tensors[:n], tensors[n : 2 * n], tensors[2 * n :], strict=True):
        slope = gradient + decay * x
        new = alpha * velocity + jnp.where(count > 0, node["beta"], 1.0).astype(x.dtype) * slope
        step = slope + alpha * new if node["mode"] == "nesterov" else new
        found.append((x - rate * step, new))
    return *(x for x, _ in found), *(v for _, v in found)


@operator("Adagrad", domain="ai.onnx.preview.training")
def _adagrad(node: Node, rate: Any, count: Any, *tensors: Any) -> Any:
    n = len(tensors) // 3
    rate = rate / (1 + count.astype(rate.dtype) * node.get("decay_factor", 0.0))
    found = []
    for x, gradient, squares in zip(tensors[:n], tensors[n : 2 * n], tensors[2 * n :], strict=True):
        slope = gradient + node.get("norm_coefficient", 0.0) * x
        new = squares + slope * slope
        found.append((x - rate * slope / (jnp.sqrt(new) + node.get("epsilon", 1e-6)), new))
    return *(x for x, _ in found), *(s for _, s in found)


@operator("Adam", domain="ai.onnx.preview.training")
def _adam(node: Node, rate: Any, count: Any, *tensors: Any) -> Any:
    n = len(tensors) // 4
    alpha, beta = node.get("alpha", 0.9), node.get("beta", 0.999)
    steps = count.astype(rate.dtype)
    corrected = rate * jnp.sqrt(1 - beta**steps) / (1 - alpha**steps)
    rate = jnp.where(count > 0, corrected, rate).astype(rate.dtype)
    found = []
    columns = (tensors[k * n : (k + 1) * n] for k in range(4))
    for x, gradient, mean, square in zip(*columns, strict=True):
        slope = gradient + node.get("norm_coefficient", 0.0) * x
        mean = alpha * mean + (1 - alpha) * slope
        square = beta * square + (1 - beta) * slope * slope
        x = x - rate * mean / (jnp.sqrt(square) + node.get("epsilon", 1e-6))
        found.append(((1 - node.get("norm_coefficient_post", 0.0)) * x, mean, square))
    return tuple(part[k] for k in range(3) for part in found)
