"""Layers whose conventions in hand-built graphs differ from rlx.nn's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import lax, nn
from rlx import numpy as jnp
from rlx.errors import RlxError, ShapeError
from rlx.ir.scalar import neutral

__all__ = ["MASK_KINDS", "attention", "convolution", "group_norm", "pool", "rope"]

MASK_KINDS = ("none", "causal", "sliding_window", "custom", "bias")


def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    num_heads: int,
    mask_kind: str = "none",
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Any:
    """Attention over (batch, sequence, heads * features).

    mask_kind: with "custom", `mask` is (batch, keys), nonzero for keys to attend to; with "bias", `mask` is added to
    the scores and broadcasts to (batch, heads, queries, keys); with "sliding_window", a query attends to the last
    `window` keys up to its own. softcap c bounds the scaled scores smoothly: c * tanh(scores / c).
    """
    if (mask is None) == (mask_kind in ("custom", "bias")):
        raise RlxError(
            f"attention got mask_kind={mask_kind!r} {'without' if mask is None else 'with'} a mask."
        )
    if (window is None) == (mask_kind == "sliding_window"):
        raise RlxError(f"attention got mask_kind={mask_kind!r} and window={window}.")
    q, k, v = (_heads(x, num_heads) for x in (query, key, value))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    wide = np.dtype(np.float32) if q.dtype.itemsize < 4 else q.dtype
    scores = jnp.einsum("bthf,bshf->bhts", q, k, preferred_element_type=wide) * factor
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    if mask_kind == "bias":
        scores = scores + mask
    allowed = _allowed(mask_kind, mask, window, q.shape[1], k.shape[1])
    weights = nn.softmax(scores, axis=-1, where=allowed)
    mixed = jnp.einsum("bhts,bshf->bthf", weights.astype(v.dtype), v)
    return jnp.reshape(mixed, query.shape)


def _heads(x: Any, num_heads: int) -> Any:
    if x.ndim != 3 or x.shape[2] % num_heads:
        raise ShapeError(f"attention of {num_heads} heads got an operand of shape {x.shape}.",
                         "Operands are (batch, sequence, heads * features).")  # fmt: skip
    return jnp.reshape(x, (*x.shape[:2], num_heads, x.shape[2] // num_heads))


def _allowed(mask_kind: str, mask: Any, window: int | None, queries: int, keys: int) -> Any:
    """The keys that each query attends to, broadcastable to (batch, heads, queries, keys); None for all."""
    if mask_kind == "custom":
        return (mask != 0)[:, None, None, :]
    if mask_kind not in ("causal", "sliding_window"):
        return None
    at = np.arange(keys - queries, keys)[:, None]  # the last query is at the last key
    distance = at - np.arange(keys)[None, :]
    allowed = distance >= 0
    return jnp.asarray(allowed if window is None else allowed & (distance < window))


def rope(x: Any, cosines: Any, sines: Any) -> Any:
    """Rotate pairs (i, i + n) of the first 2n features, n = width of the tables; the rest is unchanged."""
    half = cosines.shape[-1]
    if 2 * half > x.shape[-1]:
        raise ShapeError(f"rope got tables for {2 * half} features and an operand of {x.shape[-1]}.")
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    rotated = [first * cosines - second * sines, second * cosines + first * sines, rest]
    return jnp.concatenate(rotated, axis=-1)


def group_norm(x: Any, gamma: Any, beta: Any, *, num_groups: int, eps: float) -> Any:
    """x (batch, channel, ...) normalised over groups of channels."""
    batch, channels, *space = x.shape
    if channels % num_groups:
        raise ShapeError(f"group_norm got {channels} channels and {num_groups} groups.")
    grouped = jnp.reshape(x, (batch, num_groups, channels // num_groups, *space))
    axes = tuple(range(2, grouped.ndim))
    normal = jnp.reshape(nn.layer_norm(grouped, axis=axes, epsilon=eps), x.shape)
    along = (channels, *[1] * len(space))
    return normal * jnp.reshape(gamma, along) + jnp.reshape(beta, along)


def convolution(
    x: Any,
    kernel: Any,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Any:
    """Convolution of (batch, channel, height, width) with (out, in / groups, height, width)."""
    pads = [(p, p) for p in padding]
    return lax.conv_general_dilated(
        x, kernel, tuple(stride), pads, rhs_dilation=tuple(dilation), feature_group_count=groups
    )


def pool(kind: str, x: Any, window: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> Any:
    """Pooling over the last two axes; the mean excludes padding."""
    if kind not in ("max", "mean", "sum"):
        raise RlxError(f"There is no pooling {kind!r}.", "There are: max, mean, sum.")
    lead = (1,) * (x.ndim - 2)
    pads = [*[(0, 0)] * len(lead), *[(p, p) for p in padding]]
    sizes, steps = (*lead, *window), (*lead, *stride)
    if kind == "max":
        return lax.reduce_window(x, np.asarray(neutral("max", x.dtype), x.dtype), lax.max, sizes, steps, pads)
    zero = np.zeros((), x.dtype)
    total = lax.reduce_window(x, zero, lax.add, sizes, steps, pads)
    if kind == "sum":
        return total
    return total / lax.reduce_window(jnp.ones_like(x), zero, lax.add, sizes, steps, pads)
