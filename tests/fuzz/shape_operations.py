"""Operations that move elements: shapes, slices, joins, repeats."""

from __future__ import annotations

import math
from typing import Any

from .table import Draw, NoDraw, operation

__all__: list[str] = []

ANY = "bfiuc"


def _reshape(g: Any) -> Draw:
    value = g.pick(ANY)
    shapes = [s for s in g.shapes() if math.prod(s) == value.size and s != value.shape]
    shapes += [(value.size,), (1, *value.shape), (*value.shape, 1), tuple(n for n in value.shape if n != 1)]
    return Draw((value,), {"shape": g.choice(shapes)})


def _transpose(g: Any) -> Draw:
    value = g.pick(ANY, ndim=2)
    return Draw((value,), {"axes": tuple(g.random.sample(range(value.ndim), value.ndim))})


def _broadcast(g: Any) -> Draw:
    value = g.pick(ANY)
    shapes = [s for s in g.shapes() if broadcasts(value.shape, s) and s != value.shape]
    return Draw((value,), {"shape": g.choice(shapes or [(2, *value.shape)])})


def broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether an array of a shape can be broadcast to another."""
    pairs = zip(shape[::-1], target[::-1], strict=False)
    return len(shape) <= len(target) and all(n in (1, m) for n, m in pairs)


def _slice(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1)
    parts = []
    for size in value.shape:
        start, stop = sorted((g.integer(0, size), g.integer(0, size)))
        parts.append(g.choice([":", ":", "::-1", "1:", ":-1", "::2", "-2:", "None, :", f"{start}:{stop}", "::-2"]))
    if g.coin(0.2):
        parts[g.integer(0, len(parts) - 1)] = "..."
    return Draw((value,), {"slice_": ", ".join(parts)})


def _one(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1)
    axis = g.axis(value)
    place = g.choice([0, -1, value.shape[axis] // 2])
    return Draw((value,), {"slice_": ", ".join([":"] * axis + [str(place)])})


def _axis(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1)
    return Draw((value,), {"axis": g.axis(value)})


def _amount(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1)
    return Draw((value,), {"amount": g.integer(-2, 3), "axis": g.axis(value)})


def _joined(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1)
    axis = g.axis(value)

    def fits(other: Any) -> bool:
        same = [n == m for k, (n, m) in enumerate(zip(value.shape, other.shape, strict=True)) if k != axis]
        return all(same) and other.kind == value.kind

    other = g.pick(ANY, ndim=value.ndim, most=value.ndim, where=fits)
    return Draw((value, other, g.choice([value, other])), {"axis": axis})


def _stacked(g: Any) -> Draw:
    value = g.pick(ANY)
    other = g.pick(ANY, where=lambda v: v.shape == value.shape and v.kind == value.kind)
    return Draw((value, other), {"axis": g.integer(-value.ndim - 1, value.ndim)})


def _repeat(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1)
    return Draw((value,), {"repeats": g.choice([2, 3, 1]), "axis": g.axis(value)})


def _tile(g: Any) -> Draw:
    value = g.pick(ANY)
    return Draw((value,), {"repeats": tuple(g.choice([1, 1, 2]) for _ in range(max(value.ndim, 1)))})


def _pad(g: Any) -> Draw:
    value = g.pick("fiu", ndim=1, most=3)
    widths = tuple((g.integer(0, 2), g.integer(0, 2)) for _ in value.shape)
    return Draw((value,), {"widths": widths, "mode": g.choice(["constant", "edge", "wrap", "reflect"])})


def _lax_pad(g: Any) -> Draw:
    value = g.pick("f", ndim=1, most=3)
    config = tuple((g.integer(-1, 2), g.integer(-1, 2), g.integer(0, 2)) for _ in value.shape)
    return Draw((value,), {"config": config})


def _iota(g: Any) -> Draw:
    shape = g.choice([s for s in g.shapes() if s] or [(4,)])
    return Draw(
        (), {"dtype": g.choice(["int32", "uint8", "int64"]), "shape": shape, "axis": g.integer(0, len(shape) - 1)}
    )


def _square(g: Any) -> Draw:
    return Draw((g.pick("fiu", ndim=2),), {"offset": g.choice([0, 0, 1, -1])})


operation("reshape", "jnp.reshape({0}, {shape})", _reshape, "exact", weight=2)
operation("transpose", "jnp.transpose({0}, {axes})", _transpose, "exact", weight=2)
operation("last_axes", "jnp.swapaxes({0}, -1, -2)", lambda g: Draw((g.pick("f", ndim=2),)), "exact", weight=1)
operation("broadcast_to", "jnp.broadcast_to({0}, {shape})", _broadcast, "exact", weight=2)
operation("slice", "{0}[{slice_}]", _slice, "exact", weight=3)
operation("element", "{0}[{slice_}]", _one, "exact", weight=1)
operation("flip", "jnp.flip({0}, {axis})", _axis, "exact", weight=1)
operation("roll", "jnp.roll({0}, {amount}, {axis})", _amount, "exact", weight=1)
operation("concatenate", "jnp.concatenate([{0}, {1}, {2}], {axis})", _joined, "exact", weight=1.5)
operation("stack", "jnp.stack([{0}, {1}], {axis})", _stacked, "exact", weight=1)
operation("repeat", "jnp.repeat({0}, {repeats}, axis={axis})", _repeat, "exact", weight=2.5)
operation("tile", "jnp.tile({0}, {repeats})", _tile, "exact", weight=1)
operation("pad", "jnp.pad({0}, {widths}, {mode})", _pad, "exact", weight=1)
operation("lax_pad", "lax.pad({0}, jnp.asarray(0.5, {0}.dtype), {config})", _lax_pad, "exact", weight=1)
operation("ravel", "jnp.ravel({0})", lambda g: Draw((g.pick(ANY, ndim=2),)), "exact", weight=0.5)
operation("new_axes", "{0}[:, None]", lambda g: Draw((g.pick(ANY, ndim=1),)), "exact", weight=1.5)
operation("squeeze", "jnp.squeeze({0})", lambda g: Draw((g.pick(ANY, ndim=2),)), "exact", weight=0.5)
operation("diagonal", "jnp.diagonal({0}, {offset})", _square, "exact", weight=0.5)
operation("lower_triangle", "jnp.tril({0}, {offset})", _square, "exact", weight=0.5)
operation("upper_triangle", "jnp.triu({0}, {offset})", _square, "exact", weight=0.3)
operation("rotate", "jnp.rot90({0})", lambda g: Draw((g.pick(ANY, ndim=2),)), "exact", weight=0.3)
operation("iota", "lax.broadcasted_iota({dtype}, {shape}, {axis})", _iota, "exact", weight=1)
operation("halves", "jnp.split({0}, 2, {axis})[1]", lambda g: _halves(g), "exact", weight=0.6)
operation("difference", "jnp.diff({0}, axis={axis})", lambda g: _float_axis(g), "sum", weight=0.7)
operation(
    "minus_own_row",
    "jnp.min({0} - jnp.min({0}, {axis}, keepdims=True), {axis})",
    lambda g: _own(g),
    "identity",
    weight=2,
)
operation(
    "most_minus_own",
    "jnp.min(jnp.max({0}, {axis}, keepdims=True) - {0}, {axis})",
    lambda g: _own(g),
    "identity",
    weight=2,
)
operation(
    "own_pairs",
    "jnp.diagonal({0}[..., :, None] - {0}[..., None, :], 0, -1, -2)",
    lambda g: _own(g, 400),
    "identity",
    weight=2,
)
operation(
    "own_again", "jnp.where(jnp.broadcast_to({0}, (2, *{0}.shape)) == {0}, 1, 0)", lambda g: _own(g), "identity", "flat"
)


def _own(g: Any, most: int = 1 << 16) -> Draw:
    products = g.coin(0.7)  # rather than any value: these are what a sum may round once with
    value = g.pick("f", ndim=1, where=lambda v: 0 < v.size <= most and v.finite and (v.fact.product or not products))
    return Draw((value,), {"axis": g.axis(value)})


def _halves(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1, where=lambda v: any(n % 2 == 0 for n in v.shape))
    return Draw((value,), {"axis": g.choice([k for k, n in enumerate(value.shape) if n % 2 == 0])})


def _float_axis(g: Any) -> Draw:
    value = g.pick("f", ndim=1, where=lambda v: 0 not in v.shape)
    return Draw((value,), {"axis": g.axis(value)})


def _wanted(g: Any) -> Any:
    """A value, and an axis of it that is not empty."""
    value = g.pick(ANY, ndim=1, where=lambda v: v.size > 0)
    if not value.size:
        raise NoDraw
    return value
