"""RNN, GRU and LSTM: scans over time, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rlx.numpy as jnp
from rlx import lax, nn
from rlx.onnx.nodes import Node, operator

__all__: list[str] = []

_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "tanh": lambda x, a, b: jnp.tanh(x),
    "sigmoid": lambda x, a, b: nn.sigmoid(x),
    "relu": lambda x, a, b: nn.relu(x),
    "affine": lambda x, a, b: (1.0 if a is None else a) * x + (0.0 if b is None else b),
    "leakyrelu": lambda x, a, b: jnp.where(x < 0, (0.01 if a is None else a) * x, x),
    "thresholdedrelu": lambda x, a, b: jnp.where(x > (1.0 if a is None else a), x, 0),
    "scaledtanh": lambda x, a, b: (1.0 if a is None else a) * jnp.tanh((1.0 if b is None else b) * x),
    "hardsigmoid": lambda x, a, b: jnp.clip((0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1),
    "elu": lambda x, a, b: jnp.where(x < 0, (1.0 if a is None else a) * jnp.expm1(x), x),
    "softsign": lambda x, a, b: x / (1 + jnp.abs(x)),
    "softplus": lambda x, a, b: nn.softplus(x),
}


def _activations(node: Node, usual: list[str], directions: int) -> list[list[Callable[[Any], Any]]]:
    """The activations of each direction."""
    names = [name.lower() for name in node.get("activations") or usual * directions]
    alphas, betas = iter(node.get("activation_alpha") or ()), iter(node.get("activation_beta") or ())
    limit = node.get("clip")

    def made(name: str) -> Callable[[Any], Any]:
        a, b = next(alphas, None), next(betas, None)
        function = _ACTIVATIONS[name]
        return lambda x: function(x if limit is None else jnp.clip(x, -limit, limit), a, b)

    found = list(map(made, names))
    each = len(usual)
    return [found[n * each : (n + 1) * each] for n in range(directions)]


def _run(
    node: Node, x: Any, lengths: Any, states: list[Any], usual: list[str], step: Callable[..., tuple[Any, ...]]
) -> tuple[Any, ...]:
    """All steps in all directions: (outputs for each step, last states). states: (directions, batch, size) each."""
    x = jnp.asarray(x)
    x = x.swapaxes(0, 1) if node.get("layout", 0) else x
    steps = x.shape[0]
    way = node.get("direction", "forward")
    outputs, last = [], []
    count = states[0].shape[0]
    for number, functions in enumerate(_activations(node, usual, count)):
        reverse = way == "reverse" or number == 1

        def body(carry: Any, given: Any, number: int = number, functions: Any = functions) -> Any:
            now, t = given
            new = step(number, functions, now, *carry)
            if lengths is None:
                return new, new[0]
            going = (t < jnp.asarray(lengths))[:, None]
            kept = tuple(jnp.where(going, a, b) for a, b in zip(new, carry, strict=True))
            return kept, jnp.where(going, new[0], jnp.zeros((), new[0].dtype))

        carry = tuple(state[number] for state in states)
        final, seen = lax.scan(body, carry, (x, jnp.arange(steps)), reverse=reverse)
        outputs.append(seen)
        last.append(final)
    found = jnp.stack(outputs, 1)
    ends = [jnp.stack([final[k] for final in last]) for k in range(len(states))]
    if node.get("layout", 0):
        return found.transpose(2, 0, 1, 3), *(end.swapaxes(0, 1) for end in ends)
    return found, *ends


def _start(node: Node, given: Any, like: Any, x: Any) -> Any:
    """The first state: zeros by default."""
    if given is not None:
        return jnp.asarray(given).swapaxes(0, 1) if node.get("layout", 0) else jnp.asarray(given)
    batch = x.shape[0] if node.get("layout", 0) else x.shape[1]
    return jnp.zeros((like.shape[0], batch, node["hidden_size"]), x.dtype)


def _biases(b: Any, r: Any, x: Any) -> tuple[Any, Any]:
    gates = r.shape[1]
    b = jnp.zeros((r.shape[0], 2 * gates), x.dtype) if b is None else jnp.asarray(b)
    return b[:, :gates], b[:, gates:]


@operator("RNN")
def _rnn(node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    inner, outer = _biases(b, r, x)

    def step(d: int, functions: Any, now: Any, state: Any) -> tuple[Any, ...]:
        return (functions[0](now @ jnp.transpose(w[d]) + state @ jnp.transpose(r[d]) + inner[d] + outer[d]),)

    return _run(node, x, lengths, [_start(node, h, r, x)], ["tanh"], step)


@operator("GRU")
def _gru(node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    inner, outer = _biases(b, r, x)
    after = node.get("linear_before_reset", 0)

    def step(d: int, functions: Any, now: Any, state: Any) -> tuple[Any, ...]:
        gate, candidate = functions
        given = jnp.split(now @ jnp.transpose(w[d]) + inner[d], 3, -1)
        rz, rr, rh = jnp.split(jnp.asarray(r[d]), 3, 0)
        bz, br, bh = jnp.split(outer[d], 3)
        update = gate(given[0] + state @ rz.T + bz)
        reset = gate(given[1] + state @ rr.T + br)
        hidden = reset * (state @ rh.T + bh) if after else (reset * state) @ rh.T + bh
        return ((1 - update) * candidate(given[2] + hidden) + update * state,)

    return _run(node, x, lengths, [_start(node, h, r, x)], ["sigmoid", "tanh"], step)


@operator("LSTM")
def _lstm(
    node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, p: Any = None
) -> Any:
    inner, outer = _biases(b, r, x)
    peep = jnp.zeros((r.shape[0], 3 * node["hidden_size"]), x.dtype) if p is None else jnp.asarray(p)

    def step(d: int, functions: Any, now: Any, state: Any, cell: Any) -> tuple[Any, ...]:
        gate, candidate, shown = functions
        pi, po, pf = jnp.split(peep[d], 3)
        parts = now @ jnp.transpose(w[d]) + state @ jnp.transpose(r[d]) + inner[d] + outer[d]
        i, o, f, new = jnp.split(parts, 4, -1)
        enter = gate(i + pi * cell)
        forget = 1 - enter if node.get("input_forget", 0) else gate(f + pf * cell)
        cell = forget * cell + enter * candidate(new)
        return gate(o + po * cell) * shown(cell), cell

    starts = [_start(node, h, r, x), _start(node, c, r, x)]
    return _run(node, x, lengths, starts, ["sigmoid", "tanh", "tanh"], step)
