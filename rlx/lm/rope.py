"""Rotary positions: frequencies by kind of scaling, and the rotation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rlx import numpy as jnp
from rlx.errors import UnsupportedError
from rlx.lm.config import DecoderConfig, Rope
from rlx.trace.replay import block

__all__ = [
    "Turns",
    "angles",
    "changes_with_length",
    "fixed_until",
    "frequencies",
    "rotate",
    "rotate_pairs",
    "switch_length",
]


class Turns(NamedTuple):
    """The rotation of heads: tables, and their inputs if positions are consecutive.

    cosines, sines: float32 [batch, time, dims / 2]. starts: the first position of each sequence, ints [batch];
    frequencies: float32 [dims / 2], and factor: from `frequencies`; starts and frequencies None: tables only.

    >>> import numpy as np
    >>> Turns(*angles(np.zeros((1, 2)), np.ones(3, np.float32), 1.0)).cosines.shape
    (1, 2, 3)
    """

    cosines: Any
    sines: Any
    starts: Any = None
    frequencies: Any = None
    factor: float = 1.0


def frequencies(rope: Rope, length: Any) -> tuple[Any, float]:
    """Angles per position, float32 [dims / 2], and the factor of cosines and sines, for sequences of a length.

    length: an int; or ints of any shape, perhaps traced, whose axes come first in the angles of a rope that
    `changes_with_length`.

    Raises UnsupportedError for a kind of scaling that is not known.

    >>> from rlx.lm import Rope
    >>> frequencies(Rope(dims=4), 10)[0].tolist()
    [1.0, 0.009999999776482582]
    """
    numbers = dict(rope.factors)
    base: Any = rope.base
    factor = float(numbers.get("factor", 1.0) or 1.0)
    if rope.scaling == "dynamic":
        base = _dynamic(rope, numbers, factor, length)
    exponents = np.arange(0, rope.dims, 2, dtype=np.float32) / np.float32(rope.dims)
    inverse = np.float32(1.0) / (np.float32(base) if isinstance(base, (int, float)) else base[..., None]) ** exponents
    if rope.frequency_factors:
        inverse = inverse / np.array(rope.frequency_factors, np.float32)
    if rope.scaling in (None, "dynamic"):
        return inverse, 1.0
    if rope.scaling == "linear":
        return inverse / np.float32(factor), 1.0
    if rope.scaling == "llama3":
        return _llama3(inverse, numbers, factor), 1.0
    if rope.scaling == "yarn":
        return _yarn(rope, inverse, numbers, factor)
    if rope.scaling == "longrope":
        return _longrope(inverse, numbers, length)
    raise UnsupportedError(
        f"No scaling of rotary positions is called {rope.scaling!r}.",
        "There are: linear, dynamic, yarn, longrope, llama3.",
    )


def changes_with_length(rope: Rope) -> bool:
    """Whether the angle of a position depends on how long its sequence is.

    >>> from rlx.lm import Rope
    >>> changes_with_length(Rope(dims=4))
    False
    """
    return rope.scaling in ("dynamic", "longrope")


def switch_length(rope: Rope) -> int | None:
    """The longest sequence with the angles of short ones, of a rope that has others for all positions of longer ones.

    >>> from rlx.lm import Rope
    >>> switch_length(Rope(dims=4, scaling="longrope", factors=(("original_max_position_embeddings", 4096),)))
    4096
    """
    return dict(rope.factors)["original_max_position_embeddings"] if rope.scaling == "longrope" else None


def fixed_until(config: DecoderConfig) -> int | None:
    """The longest sequence whose positions have the angles of shorter ones; None if that is always so.

    >>> from rlx import lm
    >>> fixed_until(lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8))
    """
    key = {"longrope": "original_max_position_embeddings", "dynamic": "max_position_embeddings"}
    ropes = [rope for rope in (config.rope, config.local_rope) if rope is not None]
    return min((dict(r.factors)[key[r.scaling]] for r in ropes if r.scaling in key), default=None)


def _dynamic(rope: Rope, numbers: dict[str, Any], factor: float, length: Any) -> Any:
    """The base of sequences of a length: larger for those that are longer than the model was trained for."""
    longest = numbers["max_position_embeddings"]
    seen = max(length, longest) if isinstance(length, int) else jnp.maximum(length, longest).astype(np.float32)
    return rope.base * ((factor * seen / longest) - (factor - 1)) ** (rope.dims / (rope.dims - 2))


def _llama3(inverse: np.ndarray, numbers: dict[str, Any], factor: float) -> np.ndarray:
    low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
    turns = numbers["original_max_position_embeddings"] * inverse / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return ((1 - smooth) * inverse / factor + smooth * inverse).astype(np.float32)


def _yarn(rope: Rope, inverse: np.ndarray, numbers: dict[str, Any], factor: float) -> tuple[np.ndarray, float]:
    dims, base = rope.dims, rope.base
    original = numbers.get("original_max_position_embeddings") or numbers["max_position_embeddings"]

    def where(turns: float) -> float:
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = where(numbers.get("beta_fast") or 32), where(numbers.get("beta_slow") or 1)
    if numbers.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    ramp = np.clip((np.arange(dims // 2, dtype=np.float32) - low) / max(high - low, 0.001), 0, 1)
    scaled = inverse / np.float32(factor) * ramp + inverse * (1 - ramp)

    def magnitude(scale: float, times: float = 1.0) -> float:
        return 0.1 * times * math.log(scale) + 1.0 if scale > 1 else 1.0

    attention = numbers.get("attention_factor")
    if attention is None:
        all_dims, one = numbers.get("mscale_all_dim"), numbers.get("mscale")
        attention = magnitude(factor, one) / magnitude(factor, all_dims) if one and all_dims else magnitude(factor)
    return scaled.astype(np.float32), float(attention)


def _longrope(inverse: np.ndarray, numbers: dict[str, Any], length: Any) -> tuple[Any, float]:
    original = numbers["original_max_position_embeddings"]
    short, long = (np.array(numbers[f"{name}_factor"], np.float32) for name in ("short", "long"))
    if isinstance(length, int):
        divisors: Any = long if length > original else short
    else:
        divisors = jnp.where(length[..., None] > original, long, short)
    attention = numbers.get("attention_factor")
    if attention is None:
        factor = numbers["max_position_embeddings"] / original
        factor = numbers.get("factor") or factor
        attention = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return inverse / divisors, float(attention)


def angles(positions: Any, inverse: Any, factor: float) -> tuple[Any, Any]:
    """Cosines and sines, float32 [..., dims / 2], at positions [...]; inverse: [dims / 2], or of each position."""
    turned = positions[..., None].astype(np.float32) * inverse
    return jnp.cos(turned) * factor, jnp.sin(turned) * factor


def rotate(x: Any, turns: Turns, interleaved: bool) -> Any:
    """Rotate the first features of heads [batch, heads, time, features] in pairs.

    interleaved: pairs are neighbours; otherwise a feature's partner is half of the turned ones away.

    >>> import numpy as np
    >>> x = np.array([[[[1.0, 0.0]]]], np.float32)
    >>> rotate(x, Turns(np.array([[[0.0]]], np.float32), np.array([[[1.0]]], np.float32)), False).tolist()
    [[[[0.0, 1.0]]]]
    """
    by_tables = {"x": x, "cosines": turns.cosines, "sines": turns.sines}
    if turns.frequencies is not None:
        by_tables |= {"starts": turns.starts, "frequencies": jnp.asarray(turns.frequencies)}
    return rotate_pairs(**by_tables, factor=turns.factor, interleaved=interleaved)


@block()
def rotate_pairs(
    x: Any,
    cosines: Any,
    sines: Any,
    starts: Any = None,
    frequencies: Any = None,
    *,
    factor: float,
    interleaved: bool,
) -> Any:
    """The meaning of `rotate`, by tables. A backend that claims it may compute tables from the frequencies."""
    half = cosines.shape[-1]
    cosines, sines = cosines[:, None], sines[:, None]
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        pairs = turned.reshape(*turned.shape[:-1], half, 2)
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        first, second = turned[..., :half], turned[..., half:]
    parts = (first * cosines - second * sines, second * cosines + first * sines)
    if interleaved:
        found = jnp.stack(parts, axis=-1).reshape(turned.shape)
    else:
        found = jnp.concatenate(parts, axis=-1)
    return jnp.concatenate([found, rest], axis=-1) if rest.shape[-1] else found
