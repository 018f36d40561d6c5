"""Operations with programs inside: loops, branches, batching, derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .table import Draw, operation

__all__: list[str] = []


def _start(g: Any, kinds: str = "ffi", **options: Any) -> Any:
    """A value for a loop to begin with."""
    return g.pick(kinds, where=lambda v: 0 < v.size <= 600, **options)


def _scan(g: Any) -> Draw:
    start = _start(g)
    rows = g.pick("fiub", ndim=1, where=lambda v: v.size and v.shape[0] <= 12)
    body = g.endomorphism([start, g.row(rows, 0)], carry=start, also=True)
    return Draw((start, rows), {"reverse": g.coin()}, (body,))


def _counted(g: Any) -> Draw:
    start = _start(g)
    return Draw((start,), {"count": g.integer(0, 4)}, (g.endomorphism([g.number(1), start], carry=start),))


def _computed(g: Any) -> Draw:
    start = _start(g)
    count = g.pick("i", exact=True, most=0)
    return Draw((start, count), {}, (g.endomorphism([g.number(1), start], carry=start),))


def _while(g: Any) -> Draw:
    start = _start(g)
    return Draw((start,), {"count": g.integer(0, 4)}, (g.endomorphism([start], carry=start),))


def _branches(g: Any) -> Draw:
    start = _start(g)
    decides = g.pick("bi", exact=True)
    return Draw((start, decides), {}, tuple(g.endomorphism([start], carry=start) for _ in range(2)))


def _switch(g: Any) -> Draw:
    start = _start(g)
    decides = g.pick("i", exact=True, most=0)
    return Draw((start, decides), {}, tuple(g.endomorphism([start], carry=start) for _ in range(2)))


def _batched(g: Any) -> Draw:
    first = g.pick("fi", ndim=1, where=lambda v: 0 < v.size <= 2000)
    second = g.pick("fiub", where=lambda v: v.size <= 2000)
    axis = g.axis(first)
    body = g.function([g.row(first, axis), second])
    return Draw((first, second), {"axis": axis}, (body,))


def _paired(g: Any) -> Draw:
    first = g.pick("fi", ndim=1, where=lambda v: 0 < v.size <= 2000)
    second = g.pick("fiub", ndim=1, where=lambda v: v.size <= 2000 and v.shape[0] == first.shape[0])
    return Draw((first, second), {}, (g.function([g.row(first, 0), g.row(second, 0)]),))


def _called(derivative: bool = False, kinds: str = "ffi") -> Callable[[Any], Draw]:
    def draw(g: Any) -> Draw:
        start = _start(g, kinds)
        return Draw((start,), {}, (g.endomorphism([start], carry=start, derivative=derivative),))

    return draw


def _rows(derivative: bool) -> Callable[[Any], Draw]:
    def draw(g: Any) -> Draw:
        start = _start(g, "f", ndim=1)
        row = g.row(start, 0)
        return Draw((start,), {}, (g.endomorphism([row], carry=row, derivative=derivative),))

    return draw


operation("scan", "lax.scan({body0}, {0}, {1}, reverse={reverse})", _scan, results=2, weight=1.5)
operation("fori_loop", "lax.fori_loop(0, {count}, {body0}, {0})", _counted, weight=0.6)
operation("computed_loop", "lax.fori_loop(0, {1} % 4, {body0}, {0})", _computed, discrete=(1,), weight=0.6)
operation(
    "while_loop",
    "lax.while_loop(lambda s: s[0] < {count}, lambda s: (s[0] + 1, {body0}(s[1])), (0, {0}))[1]",
    _while,
    weight=0.7,
)
operation("cond", "lax.cond(jnp.any({1}), {body0}, {body1}, {0})", _branches, discrete=(1,), weight=1)
operation("switch", "lax.switch({1}, [{body0}, {body1}, {body0}], {0})", _switch, discrete=(1,), weight=0.6)
operation("vmap", "rlx.vmap({body0}, in_axes=({axis}, None))({0}, {1})", _batched, weight=1)
operation("vmap_pairs", "rlx.vmap({body0})({0}, {1})", _paired, weight=1)
operation("map", "lax.map({body0}, {0})", _rows(False), weight=0.4)
operation("call", "rlx.jit({body0})({0})", _called(), weight=0.4)
operation("checkpoint", "rlx.checkpoint({body0})({0})", _called(), weight=0.4)

_INSIDE: dict[str, Any] = {"derivative_inside": True}
operation("grad", "rlx.grad(lambda x: jnp.sum({body0}(x)))({0})", _called(True, "f"), weight=1.2, **_INSIDE)
operation("jvp", "rlx.jvp({body0}, ({0},), (jnp.cos({0}),))[1]", _called(True, "f"), weight=0.5, **_INSIDE)
operation("vjp", "rlx.vjp({body0}, {0})[1](jnp.cos({0}))[0]", _called(True, "f"), weight=0.5, **_INSIDE)
operation("grad_of_rows", "rlx.vmap(rlx.grad(lambda x: jnp.sum({body0}(x))))({0})", _rows(True), weight=0.6, **_INSIDE)
