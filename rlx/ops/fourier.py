"""Discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import multiply
from rlx.ops.contract import cast
from rlx.ops.conversion import conj, real
from rlx.ops.families import LinearPrimitive
from rlx.ops.library import LibraryPrimitive, as_real
from rlx.ops.shape import pad_zeros
from rlx.ops.small_transforms import transform_by_factors
from rlx.trace.primitive import Sample, Zero, primitive, type_of

__all__ = ["fft"]

KINDS = ("fft", "ifft", "rfft", "irfft")
_COMPLEX = {np.dtype("f4"): np.dtype("c8"), np.dtype("f8"): np.dtype("c16")}
_REAL = {c: r for r, c in _COMPLEX.items()}


@primitive
class fft(LibraryPrimitive):
    """The transform over the last axes, one for each of `lengths`, in NumPy's default norm.

    kind: "fft" and "ifft" from complex to complex, "rfft" from real numbers to the half of the spectrum
    that determines it, "irfft" back. lengths are the sizes of the signal (the real side).
    """

    multiple = False
    all_linear = False

    def type(self, x: TensorType, *, kind: str, lengths: tuple[int, ...]) -> TensorType:
        if kind not in KINDS:
            raise UnsupportedError(f"fft has no kind {kind!r}.", f"There are {', '.join(KINDS)}.")
        wanted = _COMPLEX if kind == "rfft" else _REAL
        if x.dtype not in wanted:
            raise DtypeError(f"{kind} does not take {x.dtype.name}.", f"It takes {' and '.join(map(str, wanted))}.")
        if not lengths or len(lengths) > x.ndim or min(lengths) < 1:
            raise ShapeError(f"{kind} got lengths {lengths} for {x!r}.", "One positive length for each last axis.")
        half = (*lengths[:-1], lengths[-1] // 2 + 1)
        given = half if kind == "irfft" else tuple(lengths)
        if x.shape[x.ndim - len(lengths) :] != given:
            raise ShapeError(f"{kind} of lengths {lengths} got {x!r}.", f"Its last axes must have sizes {given}.")
        result = half if kind == "rfft" else tuple(lengths)
        dtype = _COMPLEX[x.dtype] if kind == "rfft" else _REAL[x.dtype] if kind == "irfft" else x.dtype
        return TensorType((*x.shape[: x.ndim - len(lengths)], *result), dtype)

    jvp = LinearPrimitive.jvp

    def transpose(self, cotangent: Any, x: Any, *, kind: str, lengths: tuple[int, ...]) -> tuple[Any, ...]:
        """The matrix of fft is symmetric; the real transforms drop and repeat half of the spectrum."""
        if isinstance(cotangent, Zero):
            return (Zero(x.type),)
        if kind == "rfft":
            missing = lengths[-1] - type_of(cotangent).shape[-1]
            config = ((0, 0, 0),) * (x.type.ndim - 1) + ((0, missing, 0),)
            return (real(self.bind(pad_zeros(cotangent, config), kind="fft", lengths=lengths)),)
        if kind == "irfft":
            spectrum = self.bind(cotangent, kind="rfft", lengths=lengths)
            dtype = type_of(spectrum).dtype
            repeats = np.full(lengths[-1] // 2 + 1, 2.0)
            repeats[0] = 1
            if lengths[-1] % 2 == 0:
                repeats[-1] = 1
            return (conj(multiply(spectrum, cast((repeats / prod(lengths)).astype(dtype), dtype))),)
        return (self.bind(cotangent, kind=kind, lengths=lengths),)

    def decomposition(self, x: Any, *, kind: str, lengths: tuple[int, ...]) -> Any:
        """Computed by products with small matrices."""
        return transform_by_factors(x, kind, lengths)

    def samples(self) -> Iterator[Sample]:
        def sample(x: np.ndarray, dtype: str, kind: str, *lengths: int) -> Sample:
            values = x + 0.5j * np.roll(x, 1) if dtype[0] == "c" else x
            return Sample((values.astype(dtype),), {"kind": kind, "lengths": lengths})

        for kind in ("fft", "ifft"):
            for dtype in ("c8", "c16"):
                yield sample(as_real(2, 5), dtype, kind, 5)
            yield sample(as_real(2, 3, 4), "c16", kind, 3, 4)
            yield sample(np.zeros((0, 4)), "c16", kind, 4)
        for single, double, kind in (("f4", "f8", "rfft"), ("c8", "c16", "irfft")):
            for dtype in (single, double):
                yield sample(as_real(3, 5 if kind == "rfft" else 3), dtype, kind, 5)
            yield sample(as_real(3, 2, 4 if kind == "rfft" else 3), double, kind, 2, 4)
            yield sample(as_real(2, 1), double, kind, 1)
