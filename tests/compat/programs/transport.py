"""Optimal transport with Sinkhorn iterations in log space; gradients of the cost."""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp


def sinkhorn(a, b, C, eps, n_iter=30):
    def body(carry, _):
        f, g = carry
        f = eps * (jnp.log(a) - logsumexp((g[None] - C) / eps, axis=1))
        g = eps * (jnp.log(b) - logsumexp((f[:, None] - C) / eps, axis=0))
        err = jnp.abs(jnp.exp((f[:, None] + g[None] - C) / eps).sum(1) - a).sum()
        return (f, g), err

    (f, g), errs = jax.lax.scan(body, (jnp.zeros_like(a), jnp.zeros_like(b)), jnp.arange(n_iter))
    P = jnp.exp((f[:, None] + g[None, :] - C) / eps)
    return jnp.vdot(P, C), (P, errs)


def cost(x, y):
    C = jnp.sum((x[:, None, :] - y[None]) ** 2, axis=-1)
    n, m = C.shape
    return sinkhorn(jnp.ones(n) / n, jnp.ones(m) / m, C / C.mean(), 0.1)


def run():
    k = jax.random.split(jax.random.PRNGKey(0), 2)
    x = jax.random.normal(k[0], (12, 2))
    y = jax.random.uniform(k[1], (9, 2)) + 1
    (c, (P, errs)), g = jax.jit(jax.value_and_grad(cost, has_aux=True))(x, y)
    return {"c": c, "P": P, "errs": errs, "g": g}
