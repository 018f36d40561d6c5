"""The parts of a decoder as pure functions of parameters: products, norms, attention, feed-forward blocks, experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlx import lax, nn
from rlx import numpy as jnp
from rlx.lm.config import DecoderConfig, Experts, Rope
from rlx.lm.rope import Turns, rotate
from rlx.nn.attention import attention_weights
from rlx.quant.arrays import QuantizedArray, decode
from rlx.quant.products import dequant_matmul
from rlx.quant.ragged_products import dequant_ragged_dot
from rlx.transforms.checkpoint import checkpoint_name

__all__ = [
    "Place",
    "Remembered",
    "activate",
    "alibi_slopes",
    "attend",
    "attention",
    "balance_loss",
    "decoder_layer",
    "embed",
    "feed_forward",
    "linear",
    "mixture",
    "normalise",
]

Parameters = Mapping[str, Any]


def linear(x: Any, parameters: Parameters) -> Any:
    """x @ weight.T + bias; the weight [out, in] may be quantised, and may have a low-rank update ("lora").

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
    """Rows of the embedding; only the requested rows are decoded."""
    weight = parameters["weight"]
    if isinstance(weight, QuantizedArray):
        found = decode(
            weight.elements[tokens], None if weight.scales is None else weight.plain_scales[tokens], None, weight.scheme
        )
    else:
        found = weight[tokens].astype(np.float32)
    return found * np.float32(config.embedding_scale) if config.embedding_scale != 1 else found


# ---------------------------------------------------------------- attention
class Place(NamedTuple):
    """A layer's inputs in addition to x and its parameters.

    rope, turns: the rotation and its angles, or None; window: how many positions queries see, None for all;
    name: under which its values are handed out (see rlx.lm.forward), or "".
    """

    rope: Rope | None
    turns: Turns | None
    window: int | None
    name: str = ""


class Remembered(NamedTuple):
    """The keys and values of a layer [batch, key heads, keys, features], and the positions of keys and queries.

    key_positions: ints [keys] or [batch, keys], below 0 where there is none; positions: of queries, [batch, time];
    handed: what to hand on.
    """

    keys: Any
    values: Any
    key_positions: Any
    positions: Any
    handed: Any = None


def alibi_slopes(heads: int) -> np.ndarray:
    """How much a score loses for each position that a key is away, by head: 2^(-8 i / heads), float32 [heads].

    For a number that is not a power of two: the slopes of the next lower power, then every second slope of its double.

    >>> alibi_slopes(4).tolist(), alibi_slopes(3).tolist()
    ([0.25, 0.0625, 0.015625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    whole = 1 << (heads.bit_length() - 1)
    even = 2.0 ** (-8 * np.arange(1, whole + 1) / whole)
    between = 2.0 ** (-4 * np.arange(1, 2 * whole, 2) / whole)
    return np.concatenate([even, between])[:heads].astype(np.float32)


def attend(
    query: Any, key: Any, value: Any, visible: Any, scale: float, softcap: float | None = None, bias: Any = None,
    sinks: Any = None, name: str = "",
) -> Any:  # fmt: skip
    """softmax(query @ key.T * scale) @ value over keys that are visible; rows that see none give 0.

    Args:
      query: [batch, heads, time, features]; key, value: [batch, key heads, keys, features], for groups of heads.
      visible: bools that broadcast to [batch, time, keys].
      softcap: c of c * tanh(score / c).
      bias: added to scores, broadcasts to [batch, heads, time, keys].
      sinks: [heads], scores that take part in the softmax and have no value.
      name: of the weights, for those who look at them.

    Returns [batch, heads, time, features].
    """
    b, heads, time, features = query.shape
    key_heads, keys = key.shape[1:3]
    groups = heads // key_heads
    grouped = query.reshape(b, key_heads, groups * time, features)
    scores = lax.dot_general(grouped, key, (((3,), (3,)), ((0, 1), (0, 1)))) * np.float32(scale)
    scores = scores.reshape(b, key_heads, groups, time, keys)
    weights = attention_weights(
        scores,
        None if bias is None else bias.reshape(bias.shape[0], key_heads, groups, *bias.shape[2:]),
        jnp.broadcast_to(visible, (b, time, keys))[:, None, None],
        softcap,
        None if sinks is None else sinks.reshape(1, key_heads, groups, 1),
    )
    if name:
        weights = checkpoint_name(weights.reshape(b, heads, time, keys), name)
    found = lax.dot_general(weights.reshape(b, key_heads, groups * time, keys), value, (((3,), (2,)), ((0, 1), (0, 1))))
    return found.reshape(b, heads, time, features)


def attention(
    x: Any, parameters: Parameters, config: DecoderConfig, place: Place, remember: Callable[[Any, Any], Remembered]
) -> tuple[Any, Any]:
    """Self-attention of x [batch, time, width]; remember: keys and values of x -> all that may be looked at.

    Returns the update of x, and the second result of `remember`.
    """
    b, time, _ = x.shape

    def heads(name: str, count: int) -> Any:
        return linear(x, parameters[name]).reshape(b, time, count, config.head_dim)

    query, key, value = heads("q", config.heads), heads("k", config.key_heads), heads("v", config.key_heads)
    if config.qk_norm:
        query, key = (normalise(y, parameters[f"{n}_norm"], config) for y, n in ((query, "q"), (key, "k")))
    query, key, value = (jnp.swapaxes(y, 1, 2) for y in (query, key, value))
    if place.rope is not None and place.turns is not None:
        query, key = (rotate(y, place.turns, place.rope.interleaved) for y in (query, key))
    all_of = remember(key, value)
    places, positions = all_of.key_positions[..., None, :], all_of.positions[..., None]
    visible = places <= positions
    if place.window is not None:
        visible = visible & (places > positions - place.window) & (places >= 0)
    bias = None
    if config.alibi:
        away = (places - positions).astype(np.float32)[:, None]
        bias = alibi_slopes(config.heads)[:, None, None] * away
    found = attend(
        query, all_of.keys, all_of.values, visible, config.scale, config.attention_softcap, bias,
        parameters["sinks"]["weight"] if config.sinks else None, place.name and f"{place.name}.attention",
    )  # fmt: skip
    merged = jnp.swapaxes(found, 1, 2).reshape(b, time, config.heads * config.head_dim)
    return linear(merged, parameters["o"]), all_of.handed


# ---------------------------------------------------------------- feed-forward
def activate(x: Any, name: str) -> Any:
    """The activation function named by DecoderConfig.activation."""
    if name == "relu2":
        return jnp.square(nn.relu(x))
    return nn.silu(x) if name == "silu" else nn.gelu(x, approximate=name == "gelu_tanh")


def feed_forward(x: Any, parameters: Parameters, config: DecoderConfig) -> Any:
    """Two products around an activation, with a gate where the config has one."""
    up = linear(x, parameters["up"])
    gate = linear(x, parameters["gate"]) if config.gated else up
    hidden = activate(gate, config.activation)
    hidden = hidden * up if config.gated else hidden
    return linear(hidden, parameters["down"])


def mixture(x: Any, parameters: Parameters, config: DecoderConfig, experts: Experts, name: str = "") -> Any:
    """Each token's best experts, weighted by a softmax over all. Tokens are sorted by expert for grouped products.

    Args: parameters: "router": a linear; "gate", "up", "down": stacks of weights [experts, out, in]; where an expert is
    shared, linears "shared_gate", "shared_up", "shared_down", and "shared_router" [1, width]; name: of the router's
    scores, for those who look at them.
    """
    flat = x.reshape(-1, x.shape[-1])
    scores = linear(flat, parameters["router"]).astype(np.float32)
    weights = nn.softmax(checkpoint_name(scores, name) if name else scores, axis=-1)
    best, chosen = lax.top_k(weights, experts.chosen)
    if experts.normalised:
        best = best / jnp.sum(best, axis=-1, keepdims=True)
    order = jnp.argsort(chosen.reshape(-1), stable=True)
    rows = flat[order // experts.chosen]
    sizes = jnp.sum(chosen.reshape(-1)[:, None] == jnp.arange(experts.count), axis=0).astype(np.int32)

    def grouped(y: Any, name: str) -> Any:
        weight = parameters[name]["weight"]
        if isinstance(weight, QuantizedArray):
            return dequant_ragged_dot(y, weight, sizes)
        return lax.ragged_dot(y, jnp.swapaxes(weight, 1, 2).astype(y.dtype), sizes)

    hidden = activate(grouped(rows, "gate"), config.activation) * grouped(rows, "up")
    given = grouped(hidden, "down") * best.reshape(-1)[order][:, None]
    found = jnp.zeros_like(flat).at[order // experts.chosen].add(given)
    if experts.shared:
        shared = {name: parameters[f"shared_{name}"] for name in ("gate", "up", "down")}
        found = found + nn.sigmoid(linear(flat, parameters["shared_router"])) * feed_forward(flat, shared, config)
    return found.reshape(x.shape)


def balance_loss(scores: Any, chosen: int) -> Any:
    """A measure of how unevenly routers use their experts. Training adds it, with a small factor, to its loss.

    Args:
      scores: router scores, float32 [..., experts], from `rlx.quant.taps_of(rlx.lm.forward)` as
        "layers.0.router", of one layer or of several together.
      chosen: how many experts each token has.

    Returns float32[]: experts * sum(share of tokens * mean probability), which is `chosen` where all are used alike.

    >>> import numpy as np
    >>> from rlx import lm
    >>> lm.balance_loss(np.zeros((8, 4), np.float32), chosen=4).item()
    4.0
    """
    flat = jnp.asarray(scores).reshape(-1, scores.shape[-1])
    chances = nn.softmax(flat, axis=-1)
    _, best = lax.top_k(chances, chosen)
    taken = jnp.mean(jnp.sum(nn.one_hot(best, flat.shape[-1]), axis=1), axis=0)
    return flat.shape[-1] * jnp.sum(lax.stop_gradient(taken) * jnp.mean(chances, axis=0))


def decoder_layer(
    x: Any, parameters: Parameters, config: DecoderConfig, place: Place, remember: Callable[[Any, Any], Remembered]
) -> tuple[Any, Any]:
    """A layer: attention, then feed-forward, each after a norm and added to its input."""

    def scaled(update: Any) -> Any:
        return update if config.residual_scale == 1 else update * np.float32(config.residual_scale)

    given, handed = attention(normalise(x, parameters["attention_norm"], config), parameters, config, place, remember)
    x = x + scaled(normalise(given, parameters["post_attention_norm"], config) if config.post_norms else given)
    inner = normalise(x, parameters["ffn_norm"], config)
    if config.experts is not None and "router" in parameters:
        given = mixture(inner, parameters, config, config.experts, place.name and f"{place.name}.router")
    else:
        given = feed_forward(inner, parameters, config)
    found = x + scaled(normalise(given, parameters["post_ffn_norm"], config) if config.post_norms else given)
    return checkpoint_name(found, place.name) if place.name else found, handed
