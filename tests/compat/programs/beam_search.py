"""Beam search over a toy model with top_k, gathers of trees, an end token, and a while_loop."""

import jax
import jax.numpy as jnp
from jax import lax

V, B, L, EOS = 11, 4, 12, 0


def flatten_beam(x):
    return x.reshape((x.shape[0] * x.shape[1],) + x.shape[2:])


def unflatten_beam(x, b):
    return x.reshape((b, x.shape[0] // b) + x.shape[1:])


def gather_beams(tree, idx):
    batch = jnp.arange(idx.shape[0])[:, None]
    return jax.tree.map(lambda x: x[batch, idx] if jnp.ndim(x) > 1 else x, tree)


def logits_fn(table, tokens, h):
    h = jnp.tanh(h * 0.9 + table[tokens])
    return h @ table.T, h


def beam_search(table, start):
    n = start.shape[0]
    neg = jnp.array(-1e7)
    state = {
        "i": jnp.array(0),
        "live": jnp.tile(jnp.array([0.0] + [-1e7] * (B - 1)), [n, 1]),
        "seqs": jnp.zeros((n, B, L + 1), jnp.int32).at[:, :, 0].set(start[:, None]),
        "fin": jnp.ones((n, B)) * neg,
        "fin_seqs": jnp.zeros((n, B, L + 1), jnp.int32),
        "h": jnp.zeros((n, B, table.shape[1])),
    }

    def cond(s):
        best_live = s["live"][:, :1] / ((5 + L) / 6.0) ** 0.6
        worst = jnp.min(s["fin"], axis=1, keepdims=True)
        return (s["i"] < L) & ~jnp.all(worst > best_live)

    def body(s):
        tok = flatten_beam(lax.dynamic_slice(s["seqs"], (0, 0, s["i"]), (n, B, 1)))[:, 0]
        lg, h = logits_fn(table, tok, flatten_beam(s["h"]))
        lp = jax.nn.log_softmax(unflatten_beam(lg, n)) + s["live"][..., None]
        top, idx = lax.top_k(lp.reshape(n, B * V), 2 * B)
        beam, tok = idx // V, idx % V
        seqs, h = gather_beams((s["seqs"], unflatten_beam(h, n)), beam)
        seqs = lax.dynamic_update_slice(seqs, tok[..., None].astype(jnp.int32), (0, 0, s["i"] + 1))
        done = tok == EOS
        live = top + done * neg
        live, li = lax.top_k(live, B)
        new_seqs, new_h = gather_beams((seqs, h), li)
        score = jnp.where(done, top, neg) / ((5 + s["i"] + 1) / 6.0) ** 0.6
        fs = jnp.concatenate([s["fin"], score], 1)
        fq = jnp.concatenate([s["fin_seqs"], seqs], 1)
        f, fi = lax.top_k(fs, B)
        return {"i": s["i"] + 1, "live": live, "seqs": new_seqs, "fin": f, "fin_seqs": gather_beams(fq, fi), "h": new_h}

    out = lax.while_loop(cond, body, state)
    none = jnp.any(out["fin"] > -1e6, axis=1)
    return (
        jnp.where(none[:, None, None], out["fin_seqs"], out["seqs"]),
        jnp.where(none[:, None], out["fin"], out["live"]),
        out["i"],
    )


def run():
    table = jax.random.normal(jax.random.PRNGKey(9), (V, 8))
    seqs, scores, i = jax.jit(beam_search)(table, jnp.array([3, 7, 1]))
    return {"seqs": seqs, "scores": scores, "i": i}
