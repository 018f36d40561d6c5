"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.nn.normalisation import logsumexp, softmax
from rlx.trace.flat import as_array

__all__ = ["dot_product_attention"]


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """softmax(query @ key.T * scale + bias) @ value, for each head.

    Letters: B batch, T queries, S keys, N query heads, K key heads (a divisor of N), H features.

    Args:
      query: (B, T, N, H), or without B.
      key, value: (B, S, K, H), or without B.
      bias: added to the scores; (B or 1, N or 1, T, S).
      mask: bools of such a shape; False leaves a key out.
      scale: 1 / sqrt(H) by default.
      is_causal: query t sees keys up to t only.
      query_seq_lengths, key_value_seq_lengths: int32 (B,), how many queries and keys count.
      local_window_size: how many keys before and after its own position a query sees.
      implementation: accepted for JAX's sake: None or "xla".
      return_residual: also return the logarithm of each softmax's denominator, (B, T, N).

    Returns: an array of query's shape and dtype. Scores and softmax are computed in float32 at least.

    >>> import numpy as np, rlx
    >>> q = k = v = np.ones((1, 3, 2, 4), np.float32)
    >>> rlx.nn.dot_product_attention(q, k, v, is_causal=True).shape
    (1, 3, 2, 4)
    """
    if implementation not in (None, "xla"):
        raise UnsupportedError(
            f"nn.dot_product_attention has no implementation {implementation!r}.", "Leave it out."
        )
    q, k, v = (_with_batch(x) for x in (query, key, value))
    _check(q, k, v)
    b, t, n, h = q.shape
    s, heads = k.shape[1:3]
    groups = n // heads
    factor = 1.0 / math.sqrt(h) if scale is None else scale
    scores = _scores(lax.reshape(q, (b, t, heads, groups, h)), k) * factor
    if bias is not None:
        scores = scores + _grouped(bias, heads, groups)
    allowed = _allowed(
        t,
        s,
        mask,
        heads,
        groups,
        is_causal,
        query_seq_lengths,
        key_value_seq_lengths,
        local_window_size,
    )
    if allowed is not None:
        lowest = -0.7 * float(np.finfo(np.float32).max)
        scores = jnp.where(allowed, scores, lowest)
    weights = lax.convert_element_type(softmax(scores, axis=-1), k.dtype)
    mixed = lax.dot_general(weights, v, (((4,), (1,)), ((0, 1), (0, 2))))
    result = lax.reshape(lax.transpose(mixed, (0, 3, 1, 2, 4)), (b, t, n, h))
    if query_seq_lengths is not None:
        counted = lax.iota(np.int32, t)[None, :] < as_array(query_seq_lengths)[:, None]
        result = result * lax.convert_element_type(counted[:, :, None, None], result.dtype)
    out = lax.reshape(result, as_array(query).shape)
    if not return_residual:
        return out
    residual = lax.convert_element_type(logsumexp(scores, axis=-1), k.dtype)
    residual = lax.reshape(lax.transpose(residual, (0, 3, 1, 2)), (b, t, n))
    return out, lax.stop_gradient(lax.reshape(residual, out.shape[:-1]))


def _with_batch(x: Any) -> Array:
    array = as_array(x)
    return lax.expand_dims(array, (0,)) if array.ndim == 3 else array


def _check(q: Array, k: Array, v: Array) -> None:
    fits = (
        q.ndim == k.ndim == 4
        and k.shape == v.shape
        and q.shape[0] == k.shape[0]
        and q.shape[3] == k.shape[3]
        and k.shape[2] != 0
        and q.shape[2] % k.shape[2] == 0
    )
    if not fits:
        raise ShapeError(
            f"nn.dot_product_attention got query {q.shape}, key {k.shape} and value {v.shape}.",
            "Shapes are (B, T, N, H), (B, S, K, H) and (B, S, K, H), with N a multiple of K.",
        )
    if not q.dtype == k.dtype == v.dtype:
        raise DtypeError(
            f"nn.dot_product_attention got dtypes {q.dtype.name}, {k.dtype.name}, {v.dtype.name}.",
            "Query, key and value have one dtype.",
        )


def _scores(q: Array, k: Array) -> Array:
    """Products of queries (B, T, K, G, H) and keys (B, S, K, H): (B, K, G, T, S)."""
    dtype = np.dtype(np.float32) if q.dtype.itemsize < 4 else q.dtype
    numbers = (((4,), (3,)), ((0, 2), (0, 2)))
    products = lax.dot_general(q, k, numbers, preferred_element_type=dtype)
    return lax.transpose(products, (0, 1, 3, 2, 4))


def _grouped(x: Any, heads: int, groups: int) -> Array:
    """A bias or mask (B, N or 1, T, S) as (B, K or 1, G or 1, T, S)."""
    array = as_array(x)
    if array.ndim == 3:
        array = lax.expand_dims(array, (0,))
    if array.ndim != 4 or array.shape[1] not in (1, heads * groups):
        raise ShapeError(
            f"nn.dot_product_attention got a bias or mask of shape {array.shape}.",
            f"Its shape is (B or 1, {heads * groups} or 1, T, S).",
        )
    split = (1, 1) if array.shape[1] == 1 else (heads, groups)
    return lax.reshape(array, (array.shape[0], *split, *array.shape[2:]))


def _allowed(
    t: int,
    s: int,
    mask: Any,
    heads: int,
    groups: int,
    is_causal: bool,
    query_lengths: Any,
    key_lengths: Any,
    window: int | tuple[int, int] | None,
) -> Any:
    """Which keys each query sees, broadcastable to (B, K, G, T, S); None for all."""
    queries = lax.broadcasted_iota(np.int32, (t, 1), 0)
    keys = lax.broadcasted_iota(np.int32, (1, s), 1)
    conditions: list[Any] = []
    if mask is not None:
        if as_array(mask).dtype != np.dtype(bool):
            raise DtypeError(
                f"nn.dot_product_attention got a mask of dtype {as_array(mask).dtype.name}.",
                "A mask is an array of bools; add numbers through bias.",
            )
        conditions.append(_grouped(mask, heads, groups))
    if is_causal:
        conditions.append(queries >= keys)
    if window is not None:
        before, after = (window, window) if isinstance(window, int) else window
        conditions.append((queries <= keys + before) & (queries >= keys - after))
    for lengths, positions in ((query_lengths, queries), (key_lengths, keys)):
        if lengths is not None:
            conditions.append(positions < as_array(lengths)[:, None, None, None, None])
    if not conditions:
        return None
    allowed = conditions[0]
    for condition in conditions[1:]:
        allowed = allowed & condition
    return allowed
