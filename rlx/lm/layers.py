"""The parts of a decoder as pure functions of parameters: products, norms, attention, feed-forward blocks, experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx import lax, nn
from rlx import numpy as jnp
from rlx.lm.config import DecoderConfig, Experts, Rope
from rlx.lm.rope import Turns, rotate
from rlx.quant.arrays import QuantizedArray, decode, dequantize
from rlx.quant.products import dequant_matmul

__all__ = ["attend", "attention", "decoder_layer", "embed", "feed_forward", "linear", "mixture", "normalise"]

Parameters = Mapping[str, Any]
_LEAST = -1e30  # a score that counts for nothing, and is no infinity


def linear(x: Any, parameters: Parameters) -> Any:
    """x @ weight.T + bias; the weight [out, in] may be quantised, and a low-rank update ("lora") may stand beside it.

    >>> import numpy as np
    >>> linear(np.ones((1, 2), np.float32), {"weight": np.array([[1.0, 2.0]], np.float32)}).tolist()
    [[3.0]]
    """
    weight = parameters["weight"]
    if isinstance(weight, QuantizedArray):
        found = dequant_matmul(x, weight)
    else:
        found = lax.dot_general(x, weight.astype(x.dtype), (((x.ndim - 1,), (1,)), ((), ())))
    if "bias" in parameters:
        found = found + parameters["bias"].astype(found.dtype)
    if "lora" in parameters:
        update = parameters["lora"]
        # stacked updates belong to the sequences of a batch, one each
        scale = update["scale"].reshape(-1, 1, 1) if update["scale"].ndim else update["scale"]
        found = found + (x @ update["a"].mT @ update["b"].mT) * scale
    return found


def normalise(x: Any, parameters: Parameters, config: DecoderConfig) -> Any:
    """The norm of a config over the last axis, in float32."""
    value = x.astype(np.float32)
    if config.norm == "layer":
        value = value - jnp.mean(value, axis=-1, keepdims=True)
    scale = lax.rsqrt(jnp.mean(value * value, axis=-1, keepdims=True) + np.float32(config.norm_eps))
    weight = parameters["weight"].astype(np.float32)
    found = value * scale * (weight + config.norm_offset if config.norm_offset else weight)
    if "bias" in parameters:
        found = found + parameters["bias"]
    return found.astype(x.dtype)


def embed(tokens: Any, parameters: Parameters, config: DecoderConfig) -> Any:
    """Rows of the embedding, of which only those are decoded that are asked for."""
    weight = parameters["weight"]
    if isinstance(weight, QuantizedArray):
        found = decode(
            weight.elements[tokens], None if weight.scales is None else weight.scales[tokens], None, weight.scheme
        )
    else:
        found = weight[tokens].astype(np.float32)
    return found * np.float32(config.embedding_scale) if config.embedding_scale != 1 else found


# ---------------------------------------------------------------- attention
def attend(query: Any, key: Any, value: Any, visible: Any, scale: float, softcap: float | None = None) -> Any:
    """softmax(query @ key.T * scale) @ value over keys that are visible; rows that see none give 0.

    Args:
      query: [batch, heads, time, features]; key, value: [batch, key heads, keys, features], for groups of heads.
      visible: bools that broadcast to [batch, time, keys].
      softcap: c of c * tanh(score / c).

    Returns [batch, heads, time, features].
    """
    b, heads, time, features = query.shape
    key_heads, keys = key.shape[1:3]
    grouped = query.reshape(b, key_heads, heads // key_heads * time, features)
    scores = lax.dot_general(grouped, key, (((3,), (3,)), ((0, 1), (0, 1)))) * np.float32(scale)
    if softcap is not None:
        scores = jnp.tanh(scores / softcap) * softcap
    scores = scores.reshape(b, key_heads, heads // key_heads, time, keys)
    seen = jnp.broadcast_to(visible, (b, time, keys))[:, None, None]
    scores = jnp.where(seen, scores, np.float32(_LEAST))
    weights = jnp.exp(scores - lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
    weights = jnp.where(seen, weights, 0)
    weights = weights / jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), np.float32(1e-30))
    weights = weights.reshape(b, key_heads, heads // key_heads * time, keys)
    found = lax.dot_general(weights, value, (((3,), (2,)), ((0, 1), (0, 1))))
    return found.reshape(b, heads, time, features)


def attention(
    x: Any,
    parameters: Parameters,
    config: DecoderConfig,
    rope: Rope | None,
    turns: Turns | None,
    remember: Any,
    window: int | None,
) -> tuple[Any, Any]:
    """Self-attention of x [batch, time, width].

    rope and turns: rotation and its angles, or None. remember: (keys, values) of x, [batch, key heads, time,
    features] -> (keys, values, positions of queries [batch, time], what to hand on), of all that may be looked at.
    """
    b, time, _ = x.shape

    def heads(name: str, count: int) -> Any:
        return linear(x, parameters[name]).reshape(b, time, count, config.head_dim)

    query, key, value = heads("q", config.heads), heads("k", config.key_heads), heads("v", config.key_heads)
    if config.qk_norm:
        query, key = (normalise(y, parameters[f"{n}_norm"], config) for y, n in ((query, "q"), (key, "k")))
    query, key, value = (jnp.swapaxes(y, 1, 2) for y in (query, key, value))
    if rope is not None and turns is not None:
        query, key = (rotate(y, turns, rope.interleaved) for y in (query, key))
    keys, values, positions, handed = remember(key, value)
    places = jnp.arange(keys.shape[2])
    visible = places <= positions[..., None]
    if window is not None:
        visible = visible & (places > positions[..., None] - window)
    found = attend(query, keys, values, visible, config.scale, config.attention_softcap)
    merged = jnp.swapaxes(found, 1, 2).reshape(b, time, config.heads * config.head_dim)
    return linear(merged, parameters["o"]), handed


# ---------------------------------------------------------------- feed-forward
def _activate(x: Any, name: str) -> Any:
    return nn.silu(x) if name == "silu" else nn.gelu(x, approximate=name == "gelu_tanh")


def feed_forward(x: Any, parameters: Parameters, config: DecoderConfig) -> Any:
    """Two products around an activation, with a gate where the config has one."""
    up = linear(x, parameters["up"])
    gate = linear(x, parameters["gate"]) if config.gated else up
    hidden = _activate(gate, config.activation)
    hidden = hidden * up if config.gated else hidden
    return linear(hidden, parameters["down"])


def mixture(x: Any, parameters: Parameters, config: DecoderConfig, experts: Experts) -> Any:
    """Each token's best experts, weighted by a softmax over all. Tokens are sorted by expert for grouped products.

    Args: parameters: "router": a linear; "gate", "up", "down": stacks of weights [experts, out, in].
    """
    flat = x.reshape(-1, x.shape[-1])
    weights = nn.softmax(linear(flat, parameters["router"]).astype(np.float32), axis=-1)
    best, chosen = lax.top_k(weights, experts.chosen)
    if experts.normalised:
        best = best / jnp.sum(best, axis=-1, keepdims=True)
    order = jnp.argsort(chosen.reshape(-1), stable=True)
    rows = flat[order // experts.chosen]
    sizes = jnp.sum(chosen.reshape(-1)[:, None] == jnp.arange(experts.count), axis=0).astype(np.int32)

    def grouped(y: Any, name: str) -> Any:
        weight = parameters[name]["weight"]
        stack = dequantize(weight) if isinstance(weight, QuantizedArray) else weight
        return lax.ragged_dot(y, jnp.swapaxes(stack, 1, 2), sizes)

    hidden = _activate(grouped(rows, "gate"), config.activation) * grouped(rows, "up")
    given = grouped(hidden, "down") * best.reshape(-1)[order][:, None]
    return jnp.zeros_like(flat).at[order // experts.chosen].add(given).reshape(x.shape)


def decoder_layer(
    x: Any,
    parameters: Parameters,
    config: DecoderConfig,
    rope: Rope | None,
    turns: Turns | None,
    remember: Any,
    window: int | None,
) -> tuple[Any, Any]:
    """A layer: attention, then feed-forward, each behind a norm and added to what came in."""
    given, handed = attention(
        normalise(x, parameters["attention_norm"], config), parameters, config, rope, turns, remember, window
    )
    x = x + (normalise(given, parameters["post_attention_norm"], config) if config.post_norms else given)
    inner = normalise(x, parameters["ffn_norm"], config)
    if config.experts is not None and "router" in parameters:
        given = mixture(inner, parameters, config, config.experts)
    else:
        given = feed_forward(inner, parameters, config)
    return x + (normalise(given, parameters["post_ffn_norm"], config) if config.post_norms else given), handed
