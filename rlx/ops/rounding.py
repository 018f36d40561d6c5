"""Rounding and neighbours of floating-point numbers; all with a zero derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.ops.families import NonDifferentiable
from rlx.trace.primitive import primitive

__all__ = ["ceil", "floor", "is_finite", "nextafter", "round", "sign", "trunc"]


@primitive
class floor(NonDifferentiable):
    """The largest integer not above x."""

    kinds = "f"
    compute = staticmethod(np.floor)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.floor(x)


@primitive
class ceil(NonDifferentiable):
    """The smallest integer not below x."""

    kinds = "f"
    compute = staticmethod(np.ceil)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.ceil(x)


@primitive
class trunc(NonDifferentiable):
    """x without its fractional part."""

    kinds = "f"
    compute = staticmethod(np.trunc)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.trunc(x)


def _round_away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    half = np.asarray(0.5, x.dtype)
    return np.where(np.abs(x - whole) >= half, whole + np.copysign(half + half, x), whole)


@primitive
class round(NonDifferentiable):
    """The nearest integer; halves go to the even one, or away from zero (mode "away")."""

    kinds = "f"
    domain = (-9.0, 9.0)
    sample_params = ({"mode": "even"}, {"mode": "away"})

    def compute(self, x: np.ndarray, *, mode: str = "even") -> Any:
        return np.rint(x) if self.is_even(mode) else _round_away(x)

    def scalar(self, s: Any, x: Any, *, mode: str = "even") -> Any:
        if self.is_even(mode):
            return s.round_even(x)
        whole = s.trunc(x)
        is_half = s.ge(s.abs(x - whole), 0.5)
        return s.select(is_half, whole + s.copysign(s.constant_like(x, 1), x), whole)

    @staticmethod
    def is_even(mode: str) -> bool:
        """Whether halves go to even numbers; raises UnsupportedError for an unknown mode."""
        if mode not in ("even", "away"):
            raise UnsupportedError(f"round has no mode {mode!r}.", 'Use "even" or "away".')
        return mode == "even"


@primitive
class nextafter(NonDifferentiable):
    """The next number after x in its dtype, towards y."""

    kinds = "f"

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        x, y = arrays
        # for zeros of different signs, C returns the second, as here; NumPy returns the first in float16
        return np.where(x == y, y, np.nextafter(x, y))

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.nextafter(x, y)


@primitive
class is_finite(NonDifferentiable):
    """Whether x is neither infinite nor NaN."""

    kinds = "f"
    compute = staticmethod(np.isfinite)

    def result_dtype(self, *dtypes: np.dtype, **params: Any) -> np.dtype:
        """bool."""
        return np.dtype(bool)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.is_finite(x)


@primitive
class sign(NonDifferentiable):
    """-1, 0 or 1 (zero keeps its sign); x / |x| for complex numbers."""

    kinds = "iufc"

    def compute(self, x: np.ndarray) -> Any:
        return np.where(x == 0, x, np.sign(x))

    def scalar(self, s: Any, x: Any) -> Any:
        return s.sign(x)
