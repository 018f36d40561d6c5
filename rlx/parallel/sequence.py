"""Attention over a sequence that is divided over a named axis: keys and values are passed around a ring.

Liu, Zaharia, Abbeel: Ring Attention with Blockwise Transformers for Near-Infinite Context, 2023.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.trace.flat import as_array
from rlx.transforms.custom_reverse import custom_vjp

__all__ = ["ring_attention"]


class _Ring(NamedTuple):
    """The ring's axis, and which keys a query sees."""

    axis_name: Any
    members: int
    scale: float
    is_causal: bool

    def pass_on(self, values: Any) -> Any:
        """Send each member's values to the next member."""
        return lax.ppermute(values, self.axis_name, [(n, (n + 1) % self.members) for n in range(self.members)])

    def scores(self, q: Any, k: Any, turn: Any) -> Any:
        """Scores of queries and the keys of a step, starting with its own: (..., K, G, T, S); -inf for masked keys."""
        wide = np.promote_types(q.dtype, np.float32)
        scores = jnp.einsum("...tkgh,...skh->...kgts", q, k, preferred_element_type=wide) * self.scale
        if not self.is_causal:
            return scores
        own, length = lax.axis_index(self.axis_name), k.shape[-3]
        position = jnp.arange(length)
        seen = (own * length + position)[:, None] >= ((own - turn) % self.members * length + position)[None, :]
        return jnp.where(seen, scores, -np.inf)


def ring_attention(
    query: Any, key: Any, value: Any, axis_name: Any, *, scale: float | None = None, is_causal: bool = False
) -> Array:
    """nn.dot_product_attention of a sequence that is divided over an axis; no member has all of the sequence.

    Every member has the same number of consecutive positions. Keys and values are passed to the next member n - 1
    times, while softmax is accumulated from part to part. In reverse mode they are passed around again with their
    cotangents, and a last step returns them. So a member has one part at a time, with (T / n, T / n) scores for each
    head.

    Letters: B batch, T length of the sequence, n members, N query heads, K key heads (a divisor of N), H features.

    Args:
      query: (B, T / n, N, H), or without B. key, value: (B, T / n, K, H), or without B.
      axis_name: the name of a mapped axis of n members.
      scale: 1 / sqrt(H) by default. is_causal: position t sees positions up to t only.

    Returns: an array of query's shape and dtype. Scores and softmax are computed in float32 at least.

    Raises: ShapeError for other shapes. Forward-mode derivatives raise CustomRuleError.

    >>> import numpy as np, rlx
    >>> from rlx.parallel import ring_attention
    >>> x = np.random.default_rng(0).normal(size=(2, 3, 1, 4)).astype(np.float32)
    >>> ring = rlx.vmap(lambda x: ring_attention(x, x, x, "s", is_causal=True), axis_name="s")
    >>> whole = rlx.nn.dot_product_attention(*[x.reshape(6, 1, 4)] * 3, is_causal=True)
    >>> bool(abs(ring(x).reshape(6, 1, 4) - whole).max() < 1e-6)
    True
    """
    q, k, v = (as_array(x) for x in (query, key, value))
    fits = q.ndim == k.ndim and q.ndim in (3, 4) and k.shape == v.shape and q.shape[:-2] == k.shape[:-2]
    if not fits or q.shape[-1] != k.shape[-1] or not k.shape[-2] or q.shape[-2] % k.shape[-2]:
        raise ShapeError(
            f"parallel.ring_attention got query {q.shape}, key {k.shape} and value {v.shape}.",
            "The shapes must be (B, T, N, H), (B, T, K, H) and (B, T, K, H), with N a multiple of K; all may lack B.",
        )
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    ring = _Ring(axis_name, lax.axis_size(axis_name), factor, is_causal)
    heads, shape = k.shape[-2], q.shape
    queries = q.reshape((*shape[:-2], heads, shape[-2] // heads, shape[-1]))
    # parts vary over all members: the cotangent of an invariant value would be summed over them
    return _attention(ring)(*lax.pcast((queries, k, v), axis_name, to="varying")).reshape(shape)


def _attention(ring: _Ring) -> Any:
    """Attention of queries (..., T, K, G, H), with a reverse derivative that passes around the ring again."""

    @custom_vjp
    def attend(q: Any, k: Any, v: Any) -> Any:
        return _forward(ring, q, k, v)[0]

    def ahead(q: Any, k: Any, v: Any) -> Any:
        out, mass = _forward(ring, q, k, v)
        return out, (q, k, v, out, mass)

    attend.defvjp(ahead, lambda kept, cotangent: _backward(ring, *kept, cotangent))
    return attend


def _part(ring: _Ring, q: Any, k: Any, v: Any, turn: Any) -> tuple[Any, Any]:
    """Attention to the keys of a step, and the logarithm of its softmax's denominator, (..., K, G, T)."""
    scores = ring.scores(q, k, turn)
    top = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - jnp.where(top == -np.inf, 0.0, top))
    mass = jnp.sum(weights, axis=-1, keepdims=True)
    shares = weights / jnp.where(mass == 0, 1.0, mass)
    out = jnp.einsum("...kgts,...skh->...tkgh", shares, v.astype(scores.dtype))
    return out, jnp.where(mass == 0, -np.inf, jnp.log(jnp.where(mass == 0, 1.0, mass)) + top)[..., 0]


def _of_heads(weights: Any) -> Any:
    """(..., K, G, T) as factors of (..., T, K, G, H)."""
    return jnp.moveaxis(weights, -1, -3)[..., None]


def _forward(ring: _Ring, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """The result, and the logarithm of the whole softmax's denominator."""

    def turn(carry: Any, number: Any) -> Any:
        (k, v), out, mass = ring.pass_on(carry[0]), *carry[1:]
        more, own = _part(ring, q, k, v, number)
        both = jnp.logaddexp(mass, own)
        mixed = out * _of_heads(jnp.exp(mass - both)) + more * _of_heads(jnp.exp(own - both))
        return ((k, v), mixed, both), None

    first = _part(ring, q, k, v, 0)
    (_, out, mass), _ = lax.scan(turn, ((k, v), *first), jnp.arange(1, ring.members))
    return out.astype(q.dtype), mass


def _backward(ring: _Ring, q: Any, k: Any, v: Any, out: Any, mass: Any, cotangent: Any) -> tuple[Any, Any, Any]:
    """Cotangents of queries, keys and values; each step computes its part of the softmax again."""
    wide = np.promote_types(q.dtype, np.float32)
    given = cotangent.astype(wide)
    common = jnp.sum(given * out.astype(wide), axis=-1)

    def part(number: Any, k: Any, v: Any) -> Any:
        shares = jnp.exp(ring.scores(q, k, number) - mass[..., None])
        moved = jnp.einsum("...tkgh,...skh->...kgts", given, v.astype(wide))
        steep = shares * (moved - jnp.moveaxis(common, -3, -1)[..., None]) * ring.scale
        of_q = jnp.einsum("...kgts,...skh->...tkgh", steep, k.astype(wide))
        of_k = jnp.einsum("...kgts,...tkgh->...skh", steep, q.astype(wide))
        return of_q, of_k, jnp.einsum("...kgts,...tkgh->...skh", shares, given)

    def turn(carry: Any, number: Any) -> Any:
        (k, v, of_k, of_v), of_q = ring.pass_on(carry[0]), carry[1]
        more_q, more_k, more_v = part(number, k, v)
        return ((k, v, of_k + more_k, of_v + more_v), of_q + more_q), None

    of_q, of_k, of_v = part(0, k, v)
    ((_, _, of_k, of_v), of_q), _ = lax.scan(turn, ((k, v, of_k, of_v), of_q), jnp.arange(1, ring.members))
    of_k, of_v = ring.pass_on((of_k, of_v))
    return of_q.astype(q.dtype), of_k.astype(k.dtype), of_v.astype(v.dtype)
