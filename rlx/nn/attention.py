"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.nn.normalisation import logsumexp, softmax
from rlx.trace.flat import as_array
from rlx.trace.replay import BlockDerivative, block
from rlx.transforms.custom import checkpoint

__all__ = ["attention_weights", "dot_product_attention"]


_OF_SCORES, _LENGTHS = frozenset({"bias", "mask"}), frozenset({"query_seq_lengths", "key_value_seq_lengths"})


def _folded(names: Sequence[str], values: Sequence[Any], batched: Sequence[bool], size: int) -> list[Any] | None:
    """A batch axis in front of operands of attention, or of its gradient, as a part of the batch that attention has.

    None if queries, keys or arrays of their shape are shared by the whole batch, or if each element has its own sinks.
    """
    query = values[names.index("query")]
    count = query.shape[1] if query.ndim == 5 else 1  # of the batch that a call has
    made = []
    for name, value, is_batched in zip(names, values, batched, strict=True):
        if name in _OF_SCORES:
            made.append(_folded_scores(value, is_batched, size, count))
        elif name in _LENGTHS:
            own = value if is_batched else lax.expand_dims(value, (0,))
            made.append(lax.reshape(jnp.broadcast_to(own, (size, count)), (size * count,)))
        elif is_batched != (name != "sinks"):
            return None
        else:
            made.append(lax.reshape(value, (size * count, *value.shape[query.ndim - 3 :])) if is_batched else value)
    return made


def _folded_scores(value: Any, batched: bool, size: int, count: int) -> Any:
    """A bias or mask of the scores as an array of rank 4, with the batch axis in front if it is batched."""
    if not batched and (value.ndim < 4 or value.shape[0] == 1):
        return value
    shape = value.shape[1:] if batched else value.shape
    whole = lax.reshape(value, (size if batched else 1, *(1,) * (4 - len(shape)), *shape))
    return lax.reshape(jnp.broadcast_to(whole, (size, count, *whole.shape[2:])), (size * count, *whole.shape[2:]))


@block(fold=_folded)
def attention_and_sums(
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
    softcap: float | None = None,
    sinks: Any = None,
) -> tuple[Array, Array, Array]:
    """Attention as in dot_product_attention; each query's largest score, and the sum of exp(score - largest),
    both (B, T, N) in the dtype of the scores. A gradient recomputes every softmax from them.

    >>> import numpy as np
    >>> q = k = v = np.ones((1, 3, 2, 4), np.float32)
    >>> [x.shape for x in attention_and_sums(q, k, v)]
    [(1, 3, 2, 4), (1, 3, 2), (1, 3, 2)]
    """
    lengths = query_seq_lengths, key_value_seq_lengths
    q, k, v, rules = _prepared(
        query, key, value, bias, mask, scale, is_causal, lengths, local_window_size, softcap, sinks
    )
    mixed, *sums = _attend_in_blocks(q, k, v, rules, _sums)
    out = lax.reshape(mixed, as_array(query).shape)
    largest, total = (lax.reshape(x, out.shape[:-1]) for x in sums)
    return out, largest, total


@block(derivative=BlockDerivative(attention_and_sums, ("output", "largest", "total")), fold=_folded)
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
    softcap: float | None = None,
    sinks: Any = None,
) -> Any:
    """softmax(query @ key.T * scale + bias) @ value, for each head.

    Letters: B batch, T queries, S keys, N query heads, K key heads (a divisor of N), H features.

    Args:
      query: (B, T, N, H), or without B.
      key, value: (B, S, K, H), or without B.
      bias: added to the scores; of a shape that broadcasts to (B, N, T, S).
      mask: bools of a shape that broadcasts to (B, N, T, S); False excludes a key.
      scale: 1 / sqrt(H) by default.
      is_causal: query t sees keys up to t only.
      query_seq_lengths, key_value_seq_lengths: int32 (B,), how many queries and keys count.
      local_window_size: how many keys before and after its own position a query sees.
      implementation: accepted for JAX compatibility: None or "xla".
      return_residual: also return the logarithm of each softmax's denominator, (B, T, N).
      softcap: c of c * tanh(score / c), before the bias is added; not in JAX.
      sinks: floats (N,): a score for each head that takes part in the softmax and has no value; not in JAX.

    Returns: an array of query's shape and dtype. Scores and softmax are computed in float32 at least.
      Many scores exist for a block of queries at a time only, in derivatives too.

    >>> import numpy as np, rlx
    >>> q = k = v = np.ones((1, 3, 2, 4), np.float32)
    >>> rlx.nn.dot_product_attention(q, k, v, is_causal=True).shape
    (1, 3, 2, 4)
    """
    if implementation not in (None, "xla"):
        raise UnsupportedError(f"nn.dot_product_attention has no implementation {implementation!r}.", "Leave it out.")
    lengths = query_seq_lengths, key_value_seq_lengths
    q, k, v, rules = _prepared(
        query, key, value, bias, mask, scale, is_causal, lengths, local_window_size, softcap, sinks
    )
    mixed, residual = _attend_in_blocks(q, k, v, rules, _denominators)
    out = lax.reshape(mixed, as_array(query).shape)
    if not return_residual:
        return out
    residual = lax.reshape(lax.convert_element_type(residual, k.dtype), out.shape[:-1])
    return out, lax.stop_gradient(residual)


# queries per block, if there are more than _FEW_SCORES scores
_BLOCK = 128
_FEW_SCORES = 1 << 18


class _Rules(NamedTuple):
    """The bias and masks of the scores; arrays are (B or 1, K or 1, G or 1, T or 1, S or 1)."""

    factor: float
    bias: Any
    mask: Any
    is_causal: bool
    query_lengths: Any
    key_lengths: Any
    window: int | tuple[int, int] | None
    softcap: float | None
    sinks: Any


def _prepared(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    mask: Any,
    scale: float | None,
    is_causal: bool,
    lengths: tuple[Any, Any],
    window: int | tuple[int, int] | None,
    softcap: float | None,
    sinks: Any,
) -> tuple[Array, Array, Array, _Rules]:
    """The arguments, checked: queries (B, T, K, G, H), keys and values, and rules."""
    given = tuple(map(as_array, (query, key, value)))
    q, k, v = map(_with_batch, given)
    _check(q, k, v, given)
    b, t, n, h = q.shape
    heads = k.shape[2]
    groups = n // heads
    rules = _Rules(
        1.0 / math.sqrt(h) if scale is None else scale,
        None if bias is None else _grouped(bias, heads, groups),
        _checked_mask(mask, heads, groups),
        is_causal,
        *map(_lengths, lengths),
        window,
        softcap,
        None if sinks is None else _checked_sinks(sinks, heads, groups),
    )
    return lax.reshape(q, (b, t, heads, groups, h)), k, v, rules


_Sums = Callable[[Array, Any], tuple[Array, ...]]  # (scores, sinks) -> the terms of a softmax's denominator


def _attend_in_blocks(q: Array, k: Array, v: Array, rules: _Rules, sums: _Sums) -> tuple[Array, ...]:
    """Attention, block of queries by block of queries if the scores of all of them are many.

    A block's scores are computed again in the derivative, so that they never exist for all queries
    (Dao et al., FlashAttention, 2022).
    """
    t, s = q.shape[1], k.shape[1]
    blocks = t // _BLOCK
    if t * s <= _FEW_SCORES or blocks < 2:
        return _attend(q, k, v, rules, 0, sums)

    def block(start: Any, queries: Array) -> tuple[Array, ...]:
        return _attend(queries, k, v, _at_block(rules, start, queries.shape[1], t), start, sums)

    recomputed = checkpoint(block)
    whole = blocks * _BLOCK
    starts = lax.iota(np.int32, blocks) * _BLOCK
    split = lax.reshape(q[:, :whole], (q.shape[0], blocks, _BLOCK, *q.shape[2:]))
    found = [_joined(part) for part in lax.map(lambda x: recomputed(*x), (starts, jnp.moveaxis(split, 1, 0)))]
    if whole == t:
        return tuple(found)
    rest = recomputed(np.int32(whole), q[:, whole:])
    return tuple(lax.concatenate([*pair], 1) for pair in zip(found, rest, strict=True))


def _joined(blocks: Array) -> Array:
    """(blocks, B, queries, ...) as (B, all queries, ...)."""
    moved = jnp.moveaxis(blocks, 0, 1)
    return lax.reshape(moved, (moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:]))


def _at_block(rules: _Rules, start: Any, count: int, total: int) -> _Rules:
    """The rules for `count` of all queries from `start` on."""

    def part(x: Any) -> Any:
        if x is None or x.shape[3] != total:
            return x
        return lax.dynamic_slice_in_dim(x, start, count, 3)

    return rules._replace(bias=part(rules.bias), mask=part(rules.mask))


def _attend(q: Array, k: Array, v: Array, rules: _Rules, start: Any, sums: _Sums) -> tuple[Array, ...]:
    """Attention of queries (B, T, K, G, H) from position `start` on: (B, T, K, G, H) and the sums (B, T, K, G)."""
    allowed = _allowed(q.shape[1], k.shape[1], rules, start)
    scores = _adjusted(_scores(q, k) * rules.factor, rules.bias, allowed, rules.softcap)
    weights = lax.convert_element_type(_shares(scores, rules.sinks), k.dtype)
    mixed = lax.dot_general(weights, v, (((4,), (1,)), ((0, 1), (0, 2))))
    result = lax.transpose(mixed, (0, 3, 1, 2, 4))
    if rules.query_lengths is not None:
        counted = start + lax.iota(np.int32, q.shape[1])[None, :] < rules.query_lengths[:, None]
        result = result * lax.convert_element_type(counted[:, :, None, None, None], result.dtype)
    return result, *(lax.transpose(x, (0, 3, 1, 2)) for x in sums(scores, rules.sinks))


def attention_weights(
    scores: Array, bias: Any = None, allowed: Any = None, softcap: float | None = None, sinks: Any = None
) -> Array:
    """The attention weights from scores [..., queries, keys]: their softmax, with a cap, a bias, a mask and sinks.

    Args: bias, allowed: broadcast to scores; sinks: to all axes but the last. Rows that are allowed no key give 0.

    >>> import numpy as np
    >>> attention_weights(np.zeros((1, 2), np.float32), allowed=np.array([[True, False]])).tolist()
    [[1.0, 0.0]]
    """
    found = _shares(_adjusted(as_array(scores), bias, allowed, softcap), sinks)
    return found if allowed is None else jnp.where(allowed, found, 0)


def _adjusted(scores: Array, bias: Any, allowed: Any, softcap: float | None) -> Array:
    """Scores after cap, bias and masks; the scores of masked keys are very low."""
    if softcap is not None:
        scores = jnp.tanh(scores / softcap) * softcap
    if bias is not None:
        scores = scores + bias
    return scores if allowed is None else jnp.where(allowed, scores, -0.7 * float(np.finfo(np.float32).max))


def _denominator(scores: Array, sinks: Any) -> Array:
    """The logarithm of the sum of exp(scores) and exp(sinks)."""
    found = logsumexp(scores, axis=-1)
    return found if sinks is None else jnp.logaddexp(found, sinks)


def _denominators(scores: Array, sinks: Any) -> tuple[Array, ...]:
    return (_denominator(scores, sinks),)


def _sums(scores: Array, sinks: Any) -> tuple[Array, ...]:
    """The largest score, and the sum of exp(x - largest) over scores and sinks; both are constants for derivatives."""
    fixed = lax.stop_gradient(scores)
    largest = lax.reduce_max(fixed, (4,))
    if sinks is None:
        return largest, lax.reduce_sum(jnp.exp(fixed - largest[..., None]), (4,))
    sunk = lax.stop_gradient(sinks)
    largest = jnp.maximum(largest, sunk)
    return largest, lax.reduce_sum(jnp.exp(fixed - largest[..., None]), (4,)) + jnp.exp(sunk - largest)


def _shares(scores: Array, sinks: Any) -> Array:
    if sinks is None:
        return softmax(scores, axis=-1)
    return jnp.exp(scores - _denominator(scores, sinks)[..., None])


def _checked_sinks(sinks: Any, heads: int, groups: int) -> Array:
    """Sinks (N,) as (1, K, G, 1)."""
    array = as_array(sinks)
    if array.shape != (heads * groups,):
        raise ShapeError(
            f"nn.dot_product_attention got sinks of shape {array.shape}.",
            f"Give one for each of {heads * groups} heads.",
        )
    return lax.reshape(array, (1, heads, groups, 1))


def _lengths(lengths: Any) -> Any:
    return None if lengths is None else as_array(lengths)


def _checked_mask(mask: Any, heads: int, groups: int) -> Any:
    if mask is None:
        return None
    if as_array(mask).dtype != np.dtype(bool):
        raise DtypeError(
            f"nn.dot_product_attention got a mask of dtype {as_array(mask).dtype.name}.",
            "A mask is an array of bools; add numbers through bias.",
        )
    return _grouped(mask, heads, groups)


def _with_batch(x: Any) -> Array:
    array = as_array(x)
    return lax.expand_dims(array, (0,)) if array.ndim == 3 else array


def _check(q: Array, k: Array, v: Array, given: tuple[Array, ...]) -> None:
    """Raise ShapeError or DtypeError unless the operands fit; the message has the shapes as they were given."""
    fits = (
        q.ndim == k.ndim == 4
        and k.shape == v.shape
        and q.shape[0] == k.shape[0]
        and q.shape[3] == k.shape[3]
        and k.shape[2] != 0
        and q.shape[2] % k.shape[2] == 0
    )
    if not fits:
        query, key, value = given
        raise ShapeError(
            f"nn.dot_product_attention got query {query.shape}, key {key.shape} and value {value.shape}.",
            "Shapes are (B, T, N, H), (B, S, K, H) and (B, S, K, H), with or without B, and N a multiple of K.",
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
    """A bias or mask that broadcasts to (B, N, T, S) as (B or 1, K or 1, G or 1, T or 1, S or 1)."""
    array = as_array(x)
    if array.ndim < 4:
        array = lax.expand_dims(array, tuple(range(4 - array.ndim)))
    if array.ndim != 4 or array.shape[1] not in (1, heads * groups):
        raise ShapeError(
            f"nn.dot_product_attention got a bias or mask of shape {array.shape}.",
            f"Its shape is (B or 1, {heads * groups} or 1, T or 1, S or 1), or the last of these.",
        )
    split = (1, 1) if array.shape[1] == 1 else (heads, groups)
    return lax.reshape(array, (array.shape[0], *split, *array.shape[2:]))


def _allowed(count: int, s: int, rules: _Rules, start: Any) -> Any:
    """Which of `s` keys each of `count` queries sees, broadcastable to (B, K, G, T, S); None for all."""
    queries = start + lax.broadcasted_iota(np.int32, (1, 1, 1, count, 1), 3)
    keys = lax.broadcasted_iota(np.int32, (1, 1, 1, 1, s), 4)
    conditions: list[Any] = [] if rules.mask is None else [rules.mask]
    if rules.is_causal:
        conditions.append(queries >= keys)
    if rules.window is not None:
        before, after = (rules.window, rules.window) if isinstance(rules.window, int) else rules.window
        conditions.append((queries <= keys + before) & (queries >= keys - after))
    for lengths, positions in ((rules.query_lengths, queries), (rules.key_lengths, keys)):
        if lengths is not None:
            conditions.append(positions < lengths[:, None, None, None, None])
    if not conditions:
        return None
    allowed = conditions[0]
    for condition in conditions[1:]:
        allowed = allowed & condition
    return allowed
