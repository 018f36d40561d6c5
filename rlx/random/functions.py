"""Transcendental functions for samplers: float32 ones have the same bits on every backend."""

from __future__ import annotations

from rlx import lax
from rlx.array import Array
from rlx.ops.portable import FLOAT32, portable_erf_inv, portable_log, portable_log1p

__all__ = ["erf_inv", "log", "log1p"]


def log(x: Array) -> Array:
    """The natural logarithm."""
    return portable_log(x) if x.dtype == FLOAT32 else lax.log(x)


def log1p(x: Array) -> Array:
    """log(1 + x)."""
    return portable_log1p(x) if x.dtype == FLOAT32 else lax.log1p(x)


def erf_inv(x: Array) -> Array:
    """The inverse of the error function."""
    return portable_erf_inv(x) if x.dtype == FLOAT32 else lax.erf_inv(x)
