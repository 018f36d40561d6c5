"""Operators on signals, and the array operators of classical machine learning."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.onnx.elementwise import dtype_of_number
from rlx.onnx.nodes import Node, known, operator

__all__: list[str] = []


def _number(node: Node, value: Any, what: str) -> int:
    return int(known(node, value, what).reshape(-1)[0])


def _complex(x: Any) -> Any:
    """An array of (real) or (real, imaginary) numbers along the last axis, as complex numbers."""
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _pairs(z: Any, dtype: Any) -> Any:
    return jnp.stack([jnp.real(z), jnp.imag(z)], -1).astype(dtype)


@operator("DFT")
def _dft(node: Node, x: Any, length: Any = None, axis: Any = None) -> Any:
    at = node.get("axis", 1) if node.version < 20 else (-2 if axis is None else _number(node, axis, "axis"))
    at = at % x.ndim
    count = None if length is None else _number(node, length, "length")
    x = jnp.asarray(x)
    values = _complex(x)
    if node.get("inverse", 0) and node.get("onesided", 0):
        return jnp.fft.irfft(values, count, at)[..., None].astype(x.dtype)
    if node.get("inverse", 0):
        return _pairs(jnp.fft.ifft(values, count, at), x.dtype)
    return _pairs(
        jnp.fft.rfft(jnp.real(values), count, at) if node.get("onesided", 0) else jnp.fft.fft(values, count, at),
        x.dtype,
    )


@operator("STFT")
def _stft(node: Node, x: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    size = window.shape[0] if length is None else _number(node, length, "frame length")
    hop = _number(node, step, "frame step")
    values = _complex(jnp.asarray(x))
    starts = np.arange((x.shape[1] - size) // hop + 1) * hop
    frames = values[:, starts[:, None] + np.arange(size)]
    frames = frames if window is None else frames * window
    transform = jnp.fft.rfft if node.get("onesided", 1) else jnp.fft.fft
    return _pairs(transform(frames, axis=-1), x.dtype)


@operator("MelWeightMatrix")
def _mel(node: Node, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    count, size, sampled = (_number(node, v, "sizes") for v in (bins, length, rate))
    least, most = (float(known(node, v, "edges").reshape(())) for v in (low, high))
    spectrum = size // 2 + 1
    edges = 2595 * np.log10(1 + np.array([least, most]) / 700)
    mels = np.arange(count + 2) * ((edges[1] - edges[0]) / (count + 2)) + edges[0]
    places = ((size + 1) * (700 * (10 ** (mels / 2595) - 1)) // sampled).astype(int)
    found = np.zeros((spectrum, count))
    for n in range(count):
        first, middle, last = places[n : n + 3]
        if middle == first:
            found[middle, n] = 1
        else:
            rows = np.arange(first, middle + 1)
            found[rows, n] = (rows - first) / (middle - first)
        if last > middle:
            rows = np.arange(middle, last)
            found[rows, n] = (last - rows) / (last - middle)
    return found.astype(dtype_of_number(node.get("output_datatype", 1)))


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def _features(node: Node, x: Any, chosen: Any) -> Any:
    return jnp.take(jnp.asarray(x), jnp.reshape(chosen, -1), axis=-1).reshape(*x.shape[:-1] or (1,), -1)


@operator("Binarizer", domain="ai.onnx.ml")
def _binary(node: Node, x: Any) -> Any:
    return (x > jnp.asarray(node.get("threshold", 0.0), x.dtype)).astype(x.dtype)


@operator("LabelEncoder", domain="ai.onnx.ml")
def _labels(node: Node, x: Any) -> Any:
    keys, values = _table(node, "keys"), _table(node, "values")
    default = _default(node, values.dtype)
    hits = (
        x[..., None] == keys
        if keys.dtype.kind != "f"
        else (x[..., None] == keys) | (jnp.isnan(x[..., None]) & np.isnan(keys))
    )
    return jnp.where(hits.any(axis=-1), values[jnp.argmax(hits, axis=-1)], default)


def _table(node: Node, name: str) -> np.ndarray:
    for end, dtype in (("int64s", np.int64), ("floats", np.float32), ("tensor", None)):
        found = node.get(f"{name}_{end}")
        if found is not None:
            return np.asarray(found, dtype).reshape(-1)
    raise node.unsupported("has strings as labels")


def _default(node: Node, dtype: Any) -> Any:
    tensor = node.get("default_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(())
    return np.asarray(node.get("default_float", -0.0) if dtype.kind == "f" else node.get("default_int64", -1), dtype)
