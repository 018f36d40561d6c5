"""Recurrent and state-space layers as scans: LSTM, GRU, selective scan (Mamba 1 and 2), gated delta rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx import lax, nn
from rlx import numpy as jnp

__all__ = ["gated_delta_rule", "gru", "lstm", "selective_scan", "state_space_dual"]

Parameters = Mapping[str, Any]


def _times_first(x: Any) -> Any:
    return jnp.moveaxis(x, 1, 0)


def lstm(x: Any, parameters: Parameters, state: tuple[Any, Any] | None = None) -> tuple[Any, tuple[Any, Any]]:
    """A layer of long short-term memory, with gates in torch's order: input, forget, cell, output.

    Args:
      x: [batch, time, in].
      parameters: "input" [4 hidden, in], "hidden" [4 hidden, hidden], "bias" [4 hidden].
      state: a pair of [batch, hidden]; None: zeros.

    Returns [batch, time, hidden] and the last state.

    >>> import numpy as np
    >>> sizes = {"input": (8, 3), "hidden": (8, 2), "bias": (8,)}
    >>> lstm(np.ones((1, 5, 3), np.float32), {k: np.zeros(s, np.float32) for k, s in sizes.items()})[0].shape
    (1, 5, 2)
    """
    size = parameters["hidden"].shape[1]
    if state is None:
        zeros = jnp.zeros((x.shape[0], size), np.float32)
        state = zeros, zeros
    given = x @ parameters["input"].T + parameters["bias"]

    def step(carry: Any, row: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(row + h @ parameters["hidden"].T, 4, axis=-1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    last, rows = lax.scan(step, state, _times_first(given))
    return _times_first(rows), last


def gru(x: Any, parameters: Parameters, state: Any = None) -> tuple[Any, Any]:
    """A layer of gated recurrent units, with gates in torch's order: reset, update, new.

    Args:
      x: [batch, time, in].
      parameters: "input" [3 hidden, in], "hidden" [3 hidden, hidden], "bias" and "hidden_bias" [3 hidden].
      state: [batch, hidden]; None: zeros.

    Returns [batch, time, hidden] and the last state.

    >>> import numpy as np
    >>> sizes = {"input": (6, 3), "hidden": (6, 2), "bias": (6,), "hidden_bias": (6,)}
    >>> gru(np.ones((1, 5, 3), np.float32), {k: np.zeros(s, np.float32) for k, s in sizes.items()})[1].shape
    (1, 2)
    """
    size = parameters["hidden"].shape[1]
    state = jnp.zeros((x.shape[0], size), np.float32) if state is None else state
    given = x @ parameters["input"].T + parameters["bias"]

    def step(h: Any, row: Any) -> Any:
        r, z, n = jnp.split(row, 3, axis=-1)
        hr, hz, hn = jnp.split(h @ parameters["hidden"].T + parameters["hidden_bias"], 3, axis=-1)
        update = nn.sigmoid(z + hz)
        h = (1 - update) * jnp.tanh(n + nn.sigmoid(r + hr) * hn) + update * h
        return h, h

    last, rows = lax.scan(step, state, _times_first(given))
    return _times_first(rows), last


def selective_scan(x: Any, step: Any, a: Any, b: Any, c: Any, d: Any = None, state: Any = None) -> tuple[Any, Any]:
    """Mamba's recurrence: h = exp(step a) h + step b x, y = c h + d x, for each channel.

    Args:
      x, step: [batch, time, channels]; step is positive.
      a: [channels, states], negative; b, c: [batch, time, states]; d: [channels] or None.
      state: [batch, channels, states]; None: zeros.

    Returns [batch, time, channels] and the last state.

    >>> import numpy as np
    >>> one = np.ones((1, 2, 1), np.float32)
    >>> selective_scan(one, one, np.zeros((1, 1), np.float32), one, one)[0].tolist()
    [[[1.0], [2.0]]]
    """
    state = jnp.zeros((x.shape[0], *a.shape), np.float32) if state is None else state

    def turn(h: Any, now: Any) -> Any:
        value, width, into, out = now
        h = jnp.exp(width[..., None] * a) * h + (width * value)[..., None] * into[:, None]
        return h, (h * out[:, None]).sum(-1)

    last, rows = lax.scan(turn, state, tuple(_times_first(v) for v in (x, step, b, c)))
    found = _times_first(rows)
    return (found if d is None else found + d * x), last


def state_space_dual(x: Any, step: Any, a: Any, b: Any, c: Any, d: Any = None, state: Any = None) -> tuple[Any, Any]:
    """Mamba 2's recurrence, with one decay for each head: h = exp(step a) h + step x b', y = h c + d x.

    Args:
      x: [batch, time, heads, features]; step: [batch, time, heads]; a: [heads], negative.
      b, c: [batch, time, groups, states], groups divide heads; d: [heads] or None.
      state: [batch, heads, features, states]; None: zeros.

    Returns [batch, time, heads, features] and the last state.

    >>> import numpy as np
    >>> x, one = np.ones((1, 2, 1, 1), np.float32), np.ones((1, 2, 1), np.float32)
    >>> state_space_dual(x, one, np.zeros(1, np.float32), x, x)[0].reshape(-1).tolist()
    [1.0, 2.0]
    """
    batch, _, heads, features = x.shape
    times = heads // b.shape[2]
    b, c = (jnp.repeat(v, times, axis=2) for v in (b, c))
    state = jnp.zeros((batch, heads, features, b.shape[-1]), np.float32) if state is None else state

    def turn(h: Any, now: Any) -> Any:
        value, width, into, out = now
        h = jnp.exp(width * a)[..., None, None] * h + (width[..., None] * value)[..., None] * into[:, :, None]
        return h, (h * out[:, :, None]).sum(-1)

    last, rows = lax.scan(turn, state, tuple(_times_first(v) for v in (x, step, b, c)))
    found = _times_first(rows)
    return (found if d is None else found + d[:, None] * x), last


def gated_delta_rule(query: Any, key: Any, value: Any, decay: Any, rate: Any, state: Any = None) -> tuple[Any, Any]:
    """A memory of keys and values with decay and error correction: S = g S, S += rate k (v - S'k)', y = S'q.

    Args:
      query, key: [batch, time, heads, features], of length one; value: [batch, time, heads, values].
      decay: [batch, time, heads], logarithms of g; rate: [batch, time, heads], from 0 to 1.
      state: [batch, heads, features, values]; None: zeros.

    Returns [batch, time, heads, values] and the last state.

    >>> import numpy as np
    >>> k, v = np.array([[[[1.0, 0.0]], [[1.0, 0.0]]]], np.float32), np.array([[[[2.0]], [[5.0]]]], np.float32)
    >>> one = np.ones((1, 2, 1), np.float32)
    >>> gated_delta_rule(k, k, v, 0 * one, one)[0].reshape(-1).tolist()
    [2.0, 5.0]
    """
    batch, _, heads, features = key.shape
    state = jnp.zeros((batch, heads, features, value.shape[-1]), np.float32) if state is None else state

    def turn(s: Any, now: Any) -> Any:
        q, k, v, g, b = now
        s = s * jnp.exp(g)[..., None, None]
        missing = (v - (s * k[..., None]).sum(-2)) * b[..., None]
        s = s + k[..., None] * missing[..., None, :]
        return s, (s * q[..., None]).sum(-2)

    last, rows = lax.scan(turn, state, tuple(_times_first(v) for v in (query, key, value, decay, rate)))
    return _times_first(rows), last
