"""The search for the scales of K types over candidates, for all groups at once.

Groups are columns, [width, groups]: reductions run over the first axis, element by element in a group's order, so
that sums are rounded as in the format's reference implementation.
"""

from __future__ import annotations

import numpy as np

__all__ = ["affine_search", "nearest", "symmetric_descent", "symmetric_search"]

_F = np.float32
_NOTHING = _F(1e-15)  # a group whose elements are all smaller in magnitude has the scale 0


def nearest(x: np.ndarray) -> np.ndarray:
    """Round to the nearest integer, ties to even."""
    return np.rint(x)


def _sum(x: np.ndarray) -> np.ndarray:
    return np.add.reduce(x, axis=0)


def affine_search(
    x: np.ndarray, weights: np.ndarray, top: int, first: float, steps: int, magnitude: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find scales s, offsets m >= 0 and numbers q from 0 to top with a small weighted error of s q - m.

    Tries `steps` + 1 ranges in steps of a tenth of a number, and for each the least squares of its numbers.
    `magnitude`: minimise magnitudes of the error, not squares. Returns s, m: [groups], q: [width, groups].
    """

    def numbers(inverse: np.ndarray, low: np.ndarray) -> np.ndarray:
        return np.clip(nearest(inverse * (x - low)), 0, top)

    def error(s: np.ndarray, q: np.ndarray, low: np.ndarray) -> np.ndarray:
        difference = s * q + low - x
        return _sum(weights * (np.abs(difference) if magnitude else difference * difference))

    total, total_x = _sum(weights), _sum(weights * x)
    low, high = np.minimum(x.min(axis=0), 0), x.max(axis=0)
    flat = high == low
    with np.errstate(all="ignore"):  # for flat groups, whose results are replaced
        inverse = _F(top) / (high - low)
        scale, q = _F(1) / inverse, numbers(inverse, low)
        best = error(scale, q, low)
        for step in range(steps + 1):
            tried = numbers((_F(first) + _F(0.1) * _F(step) + _F(top)) / (high - low), low)
            wq = weights * tried
            sum_q, sum_qq, sum_xq = _sum(wq), _sum(wq * tried), _sum(wq * x)
            determinant = total * sum_qq - sum_q * sum_q
            new_scale = (total * sum_xq - total_x * sum_q) / determinant
            new_low = (sum_qq * total_x - sum_q * sum_xq) / determinant
            new_scale = np.where(new_low > 0, sum_xq / sum_qq, new_scale)
            new_low = np.minimum(new_low, 0)
            found = error(new_scale, tried, new_low)
            better = (determinant > 0) & (found < best)
            scale, low, best = (np.where(better, *p) for p in ((new_scale, scale), (new_low, low), (found, best)))
            q = np.where(better, tried, q)
    return np.where(flat, _F(0), scale), -low, np.where(flat, _F(0), q)


def _first_largest(x: np.ndarray) -> np.ndarray:
    return np.take_along_axis(x, np.abs(x).argmax(axis=0, keepdims=True), axis=0)[0]


def symmetric_search(x: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """Find scales s and numbers q from 0 to 2 half - 1 with a small error of s (q - half), weighted by x^2.

    Tries 19 ranges in steps of a tenth of a number. Returns s: [groups], q: [width, groups].
    """
    largest = _first_largest(x)
    empty = np.abs(largest) < _NOTHING
    weights = x * x

    def sums(inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        q = np.clip(nearest(inverse * x), -half, half - 1)
        return q, _sum(weights * x * q), _sum(weights * q * q)

    with np.errstate(all="ignore"):  # for empty groups, whose results are replaced
        q, xq, qq = sums(_F(-half) / largest)
        scale = np.where(qq != 0, xq / qq, _F(0))
        best = scale * xq
        for step in (s for s in range(-9, 10) if s):
            tried, xq, qq = sums(-(_F(half) + _F(0.1) * _F(step)) / largest)
            better = (qq > 0) & (xq * xq > best * qq)
            scale = np.where(better, xq / qq, scale)
            best = np.where(better, scale * xq, best)
            q = np.where(better, tried, q)
    return np.where(empty, _F(0), scale), np.where(empty, _F(0), q + half)


def symmetric_descent(x: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """As symmetric_search, by coordinate descent over the numbers in at most five rounds."""
    largest = _first_largest(x)
    empty = np.abs(largest) < _NOTHING
    weights = x * x
    with np.errstate(all="ignore"):  # for empty groups, and for rejected numbers
        q = np.clip(nearest(_F(-half) / largest * x), -half, half - 1)
        xq, qq = _sum(weights * x * q), _sum(weights * q * q)
        for _ in range(5):
            changed = False
            for row, w, old in zip(x, weights, q, strict=True):
                other_xq, other_qq = xq - w * row * old, qq - w * old * old
                new = np.clip(nearest(row * other_qq / other_xq), -half, half - 1)
                new_xq, new_qq = other_xq + w * row * new, other_qq + w * new * new
                better = (other_xq > 0) & (new != old) & (new_qq > 0) & (new_xq * new_xq * qq > xq * xq * new_qq)
                old[:], xq, qq = np.where(better, new, old), np.where(better, new_xq, xq), np.where(better, new_qq, qq)
                changed |= bool(better.any())
            if not changed:
                break
        scale = np.where(qq > 0, xq / qq, _F(0))
    return np.where(empty, _F(0), scale), np.where(empty, _F(0), q + half)
