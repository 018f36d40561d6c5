"""A character language model: a GRU with scan, truncated, Adam written out."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

TEXT = "the quick brown fox jumps over the lazy dog. " * 6
VOCAB = sorted(set(TEXT))
IDS = jnp.array([VOCAB.index(c) for c in TEXT])


class Params(NamedTuple):
    embed: jax.Array
    gates: jax.Array
    gates_b: jax.Array
    cand: jax.Array
    cand_b: jax.Array
    out: jax.Array


def init(key, v, d):
    k = jax.random.split(key, 4)
    g = jax.nn.initializers.glorot_uniform()
    return Params(
        jax.random.normal(k[0], (v, d)) * 0.1,
        g(k[1], (2 * d, 2 * d)),
        jnp.zeros(2 * d),
        g(k[2], (2 * d, d)),
        jnp.zeros(d),
        g(k[3], (d, v)),
    )


def cell(p, h, x):
    zr = jax.nn.sigmoid(jnp.concatenate([x, h]) @ p.gates + p.gates_b)
    z, r = jnp.split(zr, 2)
    n = jnp.tanh(jnp.concatenate([x, r * h]) @ p.cand + p.cand_b)
    h = (1 - z) * n + z * h
    return h, h


def forward(p, ids):
    h0 = jnp.zeros(p.cand_b.shape)
    _, hs = lax.scan(partial(cell, p), h0, p.embed[ids])
    return hs @ p.out


@jax.jit
def loss_fn(p, batch):
    logits = jax.vmap(forward, in_axes=(None, 0))(p, batch[:, :-1])
    logp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logp, batch[:, 1:, None], axis=-1).mean()


@partial(jax.jit, donate_argnums=(0, 1, 2))
def step(p, m, v, t, batch):
    loss, g = jax.value_and_grad(loss_fn)(p, batch)
    norm = jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 1.0 / norm), g)
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b**2, v, g)

    def upd(p, m, v):
        return p - 0.01 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8)

    return jax.tree.map(upd, p, m, v), m, v, loss


def sample(p, key, n):
    def body(carry, key):
        h, c = carry
        h, _ = cell(p, h, p.embed[c])
        c = jax.random.categorical(key, h @ p.out)
        return (h, c), c

    _, out = lax.scan(body, (jnp.zeros(p.cand_b.shape), jnp.int32(0)), jax.random.split(key, n))
    return out


def run():
    key = jax.random.PRNGKey(0)
    p = init(key, len(VOCAB), 16)
    m = jax.tree.map(jnp.zeros_like, p)
    v = jax.tree.map(jnp.zeros_like, p)
    losses = []
    for t in range(1, 11):
        key, k = jax.random.split(key)
        starts = jax.random.randint(k, (8,), 0, len(IDS) - 21)
        batch = jax.vmap(lambda s: lax.dynamic_slice(IDS, (s,), (21,)))(starts)
        p, m, v, loss = step(p, m, v, t, batch)
        losses.append(float(loss))
    return {"losses": losses, "sample": sample(p, key, 12), "embed": p.embed}
