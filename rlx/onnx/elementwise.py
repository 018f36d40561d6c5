"""Operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import onnx

import rlx.numpy as jnp
from rlx import lax, nn
from rlx.nn.scaled_products import powers_above
from rlx.onnx.nodes import Node, operator, operators
from rlx.scipy import special

__all__ = ["converted", "dtype_of_number"]


def dtype_of_number(number: int) -> Any:
    """The dtype with ONNX's type number."""
    return jnp.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda node, *inputs: function(*inputs)


def _ratio(x: Any, y: Any) -> Any:
    """Division, truncating for integers."""
    if jnp.issubdtype(x.dtype, jnp.integer):
        return lax.div(*jnp.broadcast_arrays(jnp.asarray(x), jnp.asarray(y)))
    return jnp.divide(x, y)


def _power(x: Any, y: Any) -> Any:
    """Power in the dtype of the base."""
    wide = jnp.promote_types(x.dtype, y.dtype)
    return jnp.power(x.astype(wide), y.astype(wide)).astype(x.dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": jnp.abs, "Acos": jnp.arccos, "Acosh": jnp.arccosh, "Add": jnp.add, "And": jnp.logical_and,
    "Asin": jnp.arcsin, "Asinh": jnp.arcsinh, "Atan": jnp.arctan, "Atanh": jnp.arctanh,
    "BitwiseAnd": jnp.bitwise_and, "BitwiseNot": jnp.bitwise_not, "BitwiseOr": jnp.bitwise_or,
    "BitwiseXor": jnp.bitwise_xor, "Ceil": jnp.ceil, "Cos": jnp.cos, "Cosh": jnp.cosh, "Div": _ratio,
    "Equal": jnp.equal, "Erf": special.erf, "Exp": jnp.exp, "Floor": jnp.floor, "Greater": jnp.greater,
    "GreaterOrEqual": jnp.greater_equal, "Identity": lambda x: x, "IsNaN": jnp.isnan, "Less": jnp.less,
    "LessOrEqual": jnp.less_equal, "Log": jnp.log, "Mul": jnp.multiply, "Neg": jnp.negative,
    "Not": jnp.logical_not, "Or": jnp.logical_or, "Pow": _power, "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: jnp.maximum(x, jnp.zeros((), x.dtype)), "Round": jnp.round, "Sigmoid": nn.sigmoid,
    "Sign": jnp.sign, "Sin": jnp.sin, "Sinh": jnp.sinh, "Softplus": nn.softplus, "Softsign": nn.soft_sign,
    "Sqrt": jnp.sqrt, "Sub": jnp.subtract, "Tan": jnp.tan, "Tanh": jnp.tanh, "Where": jnp.where,
    "Xor": jnp.logical_xor, "Mish": lambda x: x * jnp.tanh(nn.softplus(x)),
}  # fmt: skip
for _name, _function in _FUNCTIONS.items():
    operators["", _name] = _plain(_function)


@operator("Max", "Min", "Sum", "Mean")
def _of_several(node: Node, *inputs: Any) -> Any:
    functions: dict[str, Any] = {"Max": jnp.maximum, "Min": jnp.minimum, "Sum": jnp.add, "Mean": jnp.add}
    found = reduce(functions[node.kind], inputs)
    return found / jnp.asarray(len(inputs), found.dtype) if node.kind == "Mean" else found


@operator("Mod")
def _remainder(node: Node, x: Any, y: Any) -> Any:
    return jnp.fmod(x, y) if node.get("fmod", 0) else jnp.mod(x, y)


@operator("BitShift")
def _shifted(node: Node, x: Any, y: Any) -> Any:
    return jnp.left_shift(x, y) if node["direction"] == "LEFT" else jnp.right_shift(x, y)


@operator("IsInf")
def _infinite(node: Node, x: Any) -> Any:
    negative = jnp.logical_and(jnp.isinf(x), x < 0) if node.get("detect_negative", 1) else False
    positive = jnp.logical_and(jnp.isinf(x), x > 0) if node.get("detect_positive", 1) else False
    return jnp.logical_or(jnp.logical_or(negative, positive), jnp.zeros(x.shape, bool))


@operator("Clip")
def _clipped(node: Node, x: Any, low: Any = None, high: Any = None) -> Any:
    low = node.get("min") if low is None else low
    high = node.get("max") if high is None else high
    x = x if low is None else jnp.maximum(x, jnp.asarray(low, x.dtype))
    return x if high is None else jnp.minimum(x, jnp.asarray(high, x.dtype))


def _scale(node: Node, name: str, default: float, x: Any) -> Any:
    return jnp.asarray(node.get(name, default), x.dtype)


@operator("LeakyRelu")
def _leaky(node: Node, x: Any) -> Any:
    return jnp.where(x < 0, _scale(node, "alpha", 0.01, x) * x, x)


@operator("Elu", "Celu", "Selu")
def _exponential(node: Node, x: Any) -> Any:
    zero = jnp.zeros((), x.dtype)
    if node.kind == "Celu":
        alpha = _scale(node, "alpha", 1.0, x)
        return jnp.maximum(zero, x) + jnp.minimum(zero, alpha * jnp.expm1(x / alpha))
    alpha = _scale(node, "alpha", 1.0 if node.kind == "Elu" else 1.67326319217681884765625, x)
    gamma = _scale(node, "gamma", 1.0 if node.kind == "Elu" else 1.05070102214813232421875, x)
    return gamma * jnp.where(x < 0, alpha * jnp.expm1(jnp.minimum(x, zero)), x)


@operator("Gelu")
def _gelu(node: Node, x: Any) -> Any:
    return nn.gelu(x, approximate=node.get("approximate", "none") == "tanh")


@operator("HardSigmoid", "HardSwish")
def _hard(node: Node, x: Any) -> Any:
    alpha = _scale(node, "alpha", 0.2 if node.kind == "HardSigmoid" else 1 / 6, x)
    found = jnp.clip(alpha * x + _scale(node, "beta", 0.5, x), jnp.zeros((), x.dtype), jnp.ones((), x.dtype))
    return found if node.kind == "HardSigmoid" else x * found


@operator("Swish")
def _swish(node: Node, x: Any) -> Any:
    return x * nn.sigmoid(_scale(node, "alpha", 1.0, x) * x)


@operator("ThresholdedRelu")
def _thresholded(node: Node, x: Any) -> Any:
    return jnp.where(x > _scale(node, "alpha", 1.0, x), x, jnp.zeros((), x.dtype))


@operator("PRelu")
def _parametric(node: Node, x: Any, slope: Any) -> Any:
    if node.version < 7 and slope.ndim == 1:  # one per channel
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return jnp.where(x < 0, slope * x, x)


@operator("Shrink")
def _shrunk(node: Node, x: Any) -> Any:
    bias, limit = (_scale(node, n, d, x) for n, d in (("bias", 0.0), ("lambd", 0.5)))
    zero = jnp.zeros((), x.dtype)
    return jnp.where(x < -limit, x + bias, jnp.where(x > limit, x - bias, zero)).astype(x.dtype)


@operator("Softmax", "LogSoftmax", "Hardmax")
def _normalised(node: Node, x: Any) -> Any:
    functions: dict[str, Any] = {"Softmax": nn.softmax, "LogSoftmax": nn.log_softmax, "Hardmax": _hardmax}
    function = functions[node.kind]
    if node.version >= 13:
        return function(x, axis=node.get("axis", -1))
    axis = node.get("axis", 1) % max(x.ndim, 1)
    rows = int(np.prod(x.shape[:axis]))
    return function(jnp.reshape(x, (rows, -1)), axis=1).reshape(x.shape)


def _hardmax(x: Any, axis: int) -> Any:
    return nn.one_hot(jnp.argmax(x, axis=axis), x.shape[axis], axis=axis, dtype=x.dtype)


# ------------------------------------------------------------------ dtypes
def converted(x: Any, dtype: Any, saturate: bool = True) -> Any:
    """A cast: saturating for floats of at most eight bits, rounding towards zero from floats to integers."""
    dtype = jnp.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize == 1 and jnp.issubdtype(x.dtype, jnp.floating):
        return _to_small_float(x, dtype, saturate)
    if jnp.issubdtype(dtype, jnp.integer) and jnp.issubdtype(x.dtype, jnp.floating) and dtype.itemsize == 1:
        return jnp.asarray(x).astype(jnp.int32).astype(dtype)  # wraps as the reference does
    return jnp.asarray(x).astype(dtype)


def _to_small_float(x: Any, dtype: Any, saturate: bool) -> Any:
    limits = jnp.finfo(dtype)
    high = jnp.asarray(float(limits.max), x.dtype)
    if saturate:
        found = jnp.clip(x, -high, high).astype(dtype)
        return jnp.where(jnp.isnan(x), jnp.asarray(x).astype(dtype), found)
    return jnp.asarray(x).astype(dtype)


@operator("Cast")
def _cast(node: Node, x: Any) -> Any:
    return _cast_to(node, x, dtype_of_number(node["to"]))


def _cast_to(node: Node, x: Any, dtype: Any) -> Any:
    saturate = bool(node.get("saturate", 1))
    if jnp.dtype(dtype) != jnp.dtype(jnp.float8_e8m0fnu) or x.dtype == jnp.dtype(dtype):
        return converted(x, dtype, saturate)
    if node.get("round_mode", "up") != "up":
        raise node.unsupported(f"rounds to E8M0 by {node['round_mode']!r}", "Export the model with round_mode='up'.")
    numbers = jnp.asarray(x).astype(np.float32)
    infinite = jnp.where(jnp.isinf(numbers), np.float32(2.0**127 if saturate else np.nan), numbers)
    return powers_above(infinite).astype(dtype)


@operator("CastLike")
def _cast_like(node: Node, x: Any, like: Any) -> Any:
    return _cast_to(node, x, like.dtype)


@operator("BitCast")
def _bit_cast(node: Node, x: Any) -> Any:
    dtype = dtype_of_number(node["to"])
    bits = jnp.asarray(x).astype(jnp.uint8) if x.dtype == bool else jnp.asarray(x)
    return bits.astype(bool) if jnp.issubdtype(dtype, bool) else lax.bitcast_convert_type(bits, dtype)


@operator("Dropout")
def _dropout(node: Node, x: Any, ratio: Any = None, training: Any = None) -> Any:
    if training is not None and bool(np.asarray(training)) and (ratio is None or float(np.asarray(ratio)) > 0):
        raise node.unsupported("drops values at random", "Export the model for inference.")
    return x, jnp.ones(x.shape, bool)
