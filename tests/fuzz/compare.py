"""Results side by side: to the last bit, or within what rounding may do."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import rlx

from .interpret import epsilon
from .program import kind_of

__all__ = ["Difference", "compare", "leaves", "tolerances"]


@dataclasses.dataclass(frozen=True)
class Difference:
    """Where results differ: the output, the worst element's values, and what was allowed there."""

    kind: str
    output: int
    text: str
    allowed: float = 0.0


def leaves(value: Any) -> list[np.ndarray]:
    """The arrays of a result."""
    return [np.asarray(x) for x in rlx.tree.leaves(value)]


def _real(x: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs, floats as float64."""
    kind = kind_of(x.dtype.name)
    if kind == "c":
        return np.stack([x.real, x.imag], -1).astype("float64")
    return x.astype("float64") if kind == "f" else x


def tolerances(expected: list[np.ndarray], moved: list[list[np.ndarray]], least: float = 0.0) -> list[np.ndarray]:
    """How far each element may be off, from runs in which every rounding went otherwise.

    least: of numbers about 1, at any rate.
    """
    found = []
    for place, value in enumerate(expected):
        if kind_of(value.dtype.name) not in "fc" or not moved:
            found.append(np.zeros(()))
            continue
        wide = _real(value)
        with np.errstate(all="ignore"):
            spread = np.max([np.abs(_real(run[place]) - wide) for run in moved], axis=0)
            typical = np.mean(spread[np.isfinite(spread)]) if np.isfinite(spread).any() else 0.0
            # programs deal in numbers about 1: what cancels leaves the error of such numbers
            finite = np.abs(wide[np.isfinite(wide)])
            scale = np.abs(wide) + (finite.mean() if finite.size else 0) + 1
            allowed = 16 * spread + 4 * typical + max(least, 16 * epsilon(value.dtype.name)) * scale
        unstable = np.logical_or.reduce([np.isfinite(_real(run[place])) != np.isfinite(wide) for run in moved])
        found.append(np.where(unstable, np.inf, np.where(np.isfinite(allowed), allowed, 0.0)))
    return found


def compare(
    expected: list[np.ndarray], found: list[np.ndarray], allowed: list[np.ndarray], exact: list[bool]
) -> Difference | None:
    """The first output that differs."""
    if len(expected) != len(found):
        return Difference("wrong type", 0, f"{len(found)} outputs, expected {len(expected)}")
    exact = exact if len(exact) == len(expected) else [False] * len(expected)
    for place, (x, y, room, bits) in enumerate(zip(expected, found, allowed, exact, strict=True)):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            text = f"output {place} is {y.dtype}{list(y.shape)}, expected {x.dtype}{list(x.shape)}"
            return Difference("wrong type", place, text)
        if x.dtype.name == "float0":
            continue
        difference = _compared(place, _real(x), _real(y), room, bits)
        if difference is not None:
            return difference
    return None


def _compared(place: int, x: np.ndarray, y: np.ndarray, room: np.ndarray, bits: bool) -> Difference | None:
    if x.dtype.kind != "f":
        wrong = x != y
        distance = wrong.astype("float64")
    else:
        with np.errstate(all="ignore"):
            distance = np.abs(x - y)
        same = (x == y) & (np.signbit(x) == np.signbit(y) if bits else True) | np.isnan(x) & np.isnan(y)
        distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
        wrong = ~same if bits else ~same & ~(distance <= room)
    if not wrong.any():
        return None
    excess = np.where(wrong, distance - np.broadcast_to(room, x.shape), -np.inf)
    worst = tuple(map(int, np.unravel_index(np.argmax(excess), x.shape)))
    limit = 0.0 if bits or x.dtype.kind != "f" else float(np.broadcast_to(room, x.shape)[worst])
    text = f"output {place} at {worst}: {y[worst]!r}, expected {x[worst]!r} (allowed: {limit:.3g})"
    text += f"; {int(wrong.sum())} of {wrong.size} differ"
    return Difference("differs", place, text, limit)
