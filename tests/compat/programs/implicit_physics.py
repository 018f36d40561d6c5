"""Differentiable physics: an implicit solve with custom_vjp, a projectile through contact, a custom_root."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(f, a, x0):
    def cond(s):
        return jnp.max(jnp.abs(s[0] - s[1])) > 1e-6

    def body(s):
        return s[1], f(a, s[1])

    return lax.while_loop(cond, body, (x0, f(a, x0)))[1]


def fp_fwd(f, a, x0):
    x = fixed_point(f, a, x0)
    return x, (a, x)


def fp_rev(f, res, g):
    a, x = res
    _, vjp_a = jax.vjp(lambda a: f(a, x), a)

    def rev(packed, u):
        a, x, g = packed
        _, vjp_x = jax.vjp(lambda x: f(a, x), x)
        return g + vjp_x(u)[0]

    (da,) = vjp_a(fixed_point(rev, (a, x, g), g))
    return da, jnp.zeros_like(x)


fixed_point.defvjp(fp_fwd, fp_rev)


def newton_sqrt(a):
    return fixed_point(lambda a, x: 0.5 * (x + a / x), a, a)


def root(a):
    def f(x):
        return x**3 + x - a

    def solve(f, x0):
        def body(i, x):
            return x - f(x) / jax.grad(f)(x)

        return lax.fori_loop(0, 20, body, x0)

    return lax.custom_root(f, jnp.ones_like(a), solve, lambda g, y: y / g(1.0))


@jax.custom_jvp
def contact(x):
    return jnp.maximum(-x, 0.0)


@contact.defjvp
def contact_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return contact(x), -jax.nn.sigmoid(-50 * x) * dx


def bounce(v0):
    def step(s, _):
        x, v = s
        a = -9.8 + 1e3 * contact(x) - 2.0 * v * (x < 0)
        v = v + 0.01 * a
        return (x + 0.01 * v, v), x

    (x, v), xs = lax.scan(step, (1.0, v0), None, length=80)
    return x + 0.1 * v, xs


def run():
    a = jnp.array([1.0, 2.0, 3.0])
    d1 = jax.vmap(jax.grad(newton_sqrt))(a)
    d2 = jax.grad(jax.grad(newton_sqrt))(2.0)
    r = jax.jit(jax.vmap(jax.value_and_grad(root)))(a)

    def target(v):
        return (bounce(v)[0] - 0.5) ** 2

    v = 1.0
    vs = []
    for _ in range(5):
        v = v - 0.1 * jnp.clip(jax.grad(target)(v), -1, 1)
        vs.append(v)
    fwd = jax.jvp(lambda v: bounce(v)[1], (1.0,), (1.0,))
    return {"d1": d1, "d2": d2, "r": r, "vs": jnp.stack(vs), "fwd": fwd}
