"""Rewrite rules for operations that only move elements: compositions become one, identities none."""

from __future__ import annotations

from rlx.ir.program import Atom, Literal
from rlx.ir.rewrite import Match, Rule, RuleSet
from rlx.passes.algebra import splat, spread

__all__ = ["movement"]


def _transpose(m: Match) -> Atom | None:
    (x,) = m.inputs
    permutation = m.params["permutation"]
    if permutation == tuple(range(len(permutation))):
        return x
    inner = m.producer(x, "transpose")
    if inner is None:
        return None
    first = inner.params["permutation"]
    result: Atom = m.emit("transpose", inner.inputs[0], permutation=tuple(first[p] for p in permutation))
    return result


def _reshape(m: Match) -> Atom | None:
    (x,) = m.inputs
    if m.type.shape == x.type.shape:
        return x
    inner = m.producer(x, "reshape")
    if inner is None:
        return None
    result: Atom = m.emit("reshape", inner.inputs[0], **m.params)
    return result


def _broadcast(m: Match) -> Atom | None:
    (x,) = m.inputs
    dims = m.params["dims"]
    if m.type.shape == x.type.shape:
        return x
    inner = m.producer(x, "broadcast_in_dim")
    if inner is None:
        return None
    first = inner.params["dims"]
    result: Atom = m.emit(
        "broadcast_in_dim", inner.inputs[0], shape=m.params["shape"], dims=tuple(dims[d] for d in first)
    )
    return result


def _reverse(m: Match) -> Atom | None:
    (x,) = m.inputs
    axes = m.params["axes"]
    moving = tuple(a for a in axes if x.type.shape[a] > 1)
    inner = m.producer(x, "reverse")
    if inner is not None:
        x = inner.inputs[0]
        moving = tuple(sorted(set(moving) ^ set(inner.params["axes"])))
    elif moving == axes:
        return None
    if not moving:
        return x
    result: Atom = m.emit("reverse", x, axes=moving)
    return result


def _slice(m: Match) -> Atom | None:
    (x,) = m.inputs
    if m.type.shape == x.type.shape:
        return x
    inner = m.producer(x, "slice")
    if inner is None:
        return None
    starts, limits, strides = [], [], []
    for size, start, stride, first, step in zip(
        m.type.shape, m.params["starts"], m.params["strides"],
        inner.params["starts"], inner.params["strides"], strict=True,
    ):  # fmt: skip
        begin, jump = first + start * step, step * stride
        if size == 0:
            begin, jump = 0, 1
        starts.append(begin)
        limits.append(begin + (size - 1) * jump + 1 if size else begin)
        strides.append(jump)
    result: Atom = m.emit(
        "slice", inner.inputs[0], starts=tuple(starts), limits=tuple(limits), strides=tuple(strides)
    )
    return result


def _pad(m: Match) -> Atom | None:
    x, value = m.inputs
    axes = zip(x.type.shape, m.params["config"], strict=True)
    if all(low == high == 0 and (between == 0 or n <= 1) for n, (low, high, between) in axes):
        return x
    number = splat(m, x)
    same = number is not None and isinstance(value, Literal) and number.value.tobytes() == value.value.tobytes()
    return spread(m, value, m.type.shape) if same or x.type.size == 0 else None


def _concatenate(m: Match) -> Atom | None:
    axis = m.params["axis"]
    kept = tuple(a for a in m.inputs if a.type.shape[axis] > 0) or m.inputs[:1]
    if len(kept) == 1:
        return kept[0]
    if len(kept) == len(m.inputs):
        return None
    result: Atom = m.emit("concatenate", *kept, axis=axis)
    return result


def _of_splat(m: Match) -> Atom | None:
    """An array filled with one number is that, however its elements are moved."""
    number = splat(m, m.inputs[0])
    return None if number is None else spread(m, number, m.type.shape)


def _dynamic_slice(m: Match) -> Atom | None:
    """dynamic_slice at known places is slice."""
    x, *starts = m.inputs
    sizes = m.params["sizes"]
    if sizes == x.type.shape:
        return x
    begins = []
    for start, size, whole in zip(starts, sizes, x.type.shape, strict=True):
        if size == whole:
            begins.append(0)
        elif isinstance(start, Literal):
            begins.append(min(max(int(start.value), 0), whole - size))
        else:
            return None
    result: Atom = m.emit(
        "slice",
        x,
        starts=tuple(begins),
        limits=tuple(b + n for b, n in zip(begins, sizes, strict=True)),
        strides=(1,) * len(sizes),
    )
    return result


def _reduce(m: Match) -> Atom | None:
    """A reduction over no axes is its operand; not a sum, where 0.0 + -0.0 is 0.0."""
    (x,) = m.inputs
    if m.params["axes"] or m.type.dtype != x.type.dtype:
        return None
    return x


def _reduce_one(m: Match) -> Atom | None:
    """A reduction over axes of size 1 is a reshape."""
    (x,) = m.inputs
    if m.type.dtype != x.type.dtype or any(x.type.shape[a] != 1 for a in m.params["axes"]):
        return None
    result: Atom = m.emit("reshape", x, shape=m.type.shape)
    return result


_SELECTIONS = ("reduce_max", "reduce_min", "reduce_and", "reduce_or")
_REDUCTIONS = ("reduce_prod", "reduce_xor", *_SELECTIONS)

movement = RuleSet((
    *[Rule(f"{name} -> itself in another shape, of an array filled with a number", _of_splat)
      for name in ("transpose", "reshape", "reverse", "slice")],
    Rule("transpose -> x if nothing moves, or one for two", _transpose),
    Rule("reshape -> x of the same shape, or one reshape for two", _reshape),
    Rule("broadcast_in_dim -> x of the same shape, or one for two", _broadcast),
    Rule("reverse -> one for two, or x", _reverse),
    Rule("slice -> x of the same shape, or one for two", _slice),
    Rule("pad -> x if there is nothing to pad", _pad),
    Rule("concatenate -> without empty operands, or its only operand", _concatenate),
    Rule("dynamic_slice -> slice if the start is known", _dynamic_slice),
    *[Rule(f"{name} -> x if there are no axes", _reduce) for name in _REDUCTIONS],
    *[Rule(f"{name} -> reshape if the axes have size 1", _reduce_one) for name in _SELECTIONS],
))  # fmt: skip
