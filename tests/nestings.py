"""Wrappers from functions of a vector to functions of a vector: each transform and each loop as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import rlx

__all__ = ["ALL", "MORE", "POINT", "WRAPPERS", "Vector", "nest"]

Vector = Callable[[Any], Any]
POINT = np.linspace(0.2, 0.9, 3)
MIX = np.array([[0.5, -0.2, 0.1], [0.3, 0.4, -0.6], [-0.1, 0.2, 0.7]])


def base(library: Any) -> Vector:
    """A smooth function of a vector with a product, an activation and a shift."""
    jnp = library.numpy
    return lambda x: jnp.tanh(MIX @ x) * x + jnp.sin(x)


# ---------------------------------------------------------------------- wrappers: (library, f) -> another f
def _jit(library: Any, f: Vector) -> Vector:
    return library.jit(f)


def _grad(library: Any, f: Vector) -> Vector:
    return library.grad(lambda x: library.numpy.sum(library.numpy.sin(f(x))))


def _jvp(library: Any, f: Vector) -> Vector:
    return lambda x: library.jvp(f, (x,), (0.5 * x + 1.0,))[1]


def _vmap(library: Any, f: Vector) -> Vector:
    jnp = library.numpy
    return lambda x: jnp.mean(library.vmap(f)(jnp.stack([x, 0.5 * x])), axis=0)


def _vmap_last(library: Any, f: Vector) -> Vector:
    jnp = library.numpy
    return lambda x: jnp.sum(library.vmap(f, in_axes=1, out_axes=1)(jnp.stack([x, 0.5 * x], axis=1)), axis=1)


def _scan(library: Any, f: Vector) -> Vector:
    def looped(x: Any) -> Any:
        steps = np.array([0.5, 0.25])
        last, each = library.lax.scan(lambda c, s: (f(c) * s, c * s), x, steps)
        return last + library.numpy.sum(each, axis=0)

    return looped


def _cond(library: Any, f: Vector) -> Vector:
    return lambda x: library.lax.cond(x[0] > 0.15, f, lambda y: 2.0 * y, x)


def _while(library: Any, f: Vector) -> Vector:
    if library is jax:  # jax has no reverse mode for while_loop, but for this
        return lambda x: jax.lax.fori_loop(0, 2, lambda i, c: 0.5 * f(c), x)
    return lambda x: rlx.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, 0.5 * f(s[1])), (0, x))[1]


def _checkpoint(library: Any, f: Vector) -> Vector:
    return library.checkpoint(f)


def _linearize(library: Any, f: Vector) -> Vector:
    def pushed(x: Any) -> Any:
        y, push = library.linearize(f, x)
        return y + push(x)

    return pushed


def _custom_jvp(library: Any, f: Vector) -> Vector:
    wrapped = library.custom_jvp(f)
    wrapped.defjvp(lambda primals, tangents: (f(*primals), 0.5 * library.jvp(f, primals, tangents)[1]))
    return wrapped


WRAPPERS = {
    "jit": _jit,
    "grad": _grad,
    "jvp": _jvp,
    "vmap": _vmap,
    "scan": _scan,
    "cond": _cond,
    "while": _while,
}
MORE = {"vmap_last": _vmap_last, "checkpoint": _checkpoint, "linearize": _linearize, "custom_jvp": _custom_jvp}
ALL = {**WRAPPERS, **MORE}


def nest(library: Any, names: tuple[str, ...]) -> Vector:
    """The base function wrapped by each of `names`, the first outermost."""
    f = base(library)
    for name in reversed(names):
        f = ALL[name](library, f)
    return f
