"""Calibration: ranges of values that a function taps, from batches of its inputs, by five methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rlx.errors import NanError, OptionError
from rlx.quant.records import CalibrationEntry, CalibrationRecord

__all__ = ["METHODS", "Calibrator", "calibrate"]

_LEAST_SCALE = 1e-6
_TOP = 127
METHODS = ("max", "moving_average", "percentile", "entropy", "mse")


class Calibrator:
    """The threshold of values that come batch by batch: what the greatest code stands for.

    Args:
      method: "max": max|x|; "moving_average": of the batches' max|x|; "percentile": what `percentile` of all |x| do not
        exceed; "entropy": where rounding loses the least by the divergence of histograms; "mse": where it loses the
        least by squares.
      bins: of the histogram of |x|, an even number; they become wider as the range grows.
      decay: of the moving average.

    >>> import numpy as np
    >>> from rlx.quant import Calibrator
    >>> c = Calibrator("max")
    >>> c.add(np.array([1.0, -3.0]))
    >>> c.threshold()
    3.0
    """

    def __init__(self, method: str = "max", bins: int = 2048, percentile: float = 99.999, decay: float = 0.9) -> None:
        if method not in METHODS:
            raise OptionError(f"There is no method of calibration {method!r}.", f"There are: {', '.join(METHODS)}.")
        if not 0 < percentile <= 100 or not 0 <= decay < 1 or bins < 2 or bins % 2:
            raise OptionError(
                f"A Calibrator got bins={bins}, percentile={percentile}, decay={decay}.",
                "There is an even number of bins, a percentile in (0, 100] and a decay in [0, 1).",
            )
        self.method, self.bins, self.percentile, self.decay = method, bins, percentile, decay
        self.largest: float | None = None
        self.counts = np.zeros(bins, np.int64)
        self.width = 0.0

    def add(self, values: Any, name: str = "value") -> None:
        """Take a batch in. Raises NanError, with the name of the tap, for NaN and infinities."""
        magnitude = np.abs(np.asarray(values, np.float64)).reshape(-1)
        if not np.isfinite(magnitude).all():
            raise NanError(
                f"Calibration of {name!r} met NaN or an infinity.", "Look where it comes from: rlx.debug_nans."
            )
        if not magnitude.size:
            return
        largest = float(magnitude.max())
        if self.method == "moving_average" and self.largest is not None:
            self.largest = self.decay * self.largest + (1 - self.decay) * largest
        else:
            self.largest = largest if self.largest is None else max(self.largest, largest)
        if self.method in ("percentile", "entropy", "mse"):
            self._count(magnitude, largest)

    def _count(self, magnitude: np.ndarray, largest: float) -> None:
        if not self.width:
            self.width = max(largest, 1e-12) / self.bins
        while largest > self.width * self.bins:  # two bins become one
            merged = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate([merged, np.zeros(self.bins - len(merged), np.int64)])
            self.width *= 2
        at = np.minimum((magnitude / self.width).astype(np.int64), len(self.counts) - 1)
        np.add.at(self.counts, at, 1)

    def threshold(self) -> float:
        """What the greatest code stands for. Raises OptionError where no batch came."""
        if self.largest is None:
            raise OptionError("Calibration has seen no values.", "Give at least one batch.")
        if self.method in ("max", "moving_average") or not self.counts.any():
            return self.largest
        if self.method == "percentile":
            below = np.cumsum(self.counts) / self.counts.sum()
            return float(self.width * (np.searchsorted(below, self.percentile / 100) + 1))
        return float(self.width * (_by_entropy(self.counts) if self.method == "entropy" else self._by_squares()))

    def scale(self) -> float:
        """The scale of int8 codes: threshold / 127, at least 1e-6."""
        return max(self.threshold() / _TOP, _LEAST_SCALE)

    def _by_squares(self) -> int:
        """After how many bins rounding loses the least by squares."""
        middles = (np.arange(len(self.counts)) + 0.5) * self.width

        def lost(bins: int) -> float:
            step = bins * self.width / _TOP
            rounded = np.minimum(np.rint(middles / step), _TOP) * step
            return float((self.counts * (middles - rounded) ** 2).sum())

        return min(range(_TOP // 16, len(self.counts) + 1), key=lost)


def _by_entropy(counts: np.ndarray) -> int:
    """After how many bins of |x| the histogram, as 128 codes see it, is nearest to itself by divergence."""
    codes = _TOP + 1
    if len(counts) <= codes:
        return len(counts)
    best, least = len(counts), np.inf
    for bins in range(codes, len(counts) + 1):
        inside = counts[:bins].astype(np.float64)
        reference = inside.copy()
        reference[-1] += counts[bins:].sum()
        edges = np.arange(codes + 1) * bins // codes
        sums = np.add.reduceat(inside, edges[:-1])
        filled = np.add.reduceat((reference > 0).astype(np.float64), edges[:-1])
        spread = np.repeat(np.divide(sums, filled, out=np.zeros(codes), where=filled > 0), np.diff(edges))
        candidate = np.where(reference > 0, spread, 0)
        divergence = _divergence(reference, candidate)
        if divergence < least:
            best, least = bins, divergence
    return best


def _divergence(reference: np.ndarray, candidate: np.ndarray, floor: float = 1e-4) -> float:
    """Kullback and Leibler's, of histograms whose empty bins have a little of the others."""

    def smooth(counts: np.ndarray) -> np.ndarray:
        empty = counts == 0
        if not empty.any() or empty.all():
            return counts / max(counts.sum(), 1)
        taken = floor * empty.sum() / (~empty).sum()
        moved = np.where(empty, floor, counts - taken)
        return np.maximum(moved, 1e-12) / moved.sum()

    p, q = smooth(reference), smooth(candidate)
    return float((p * np.log(np.maximum(p, 1e-30) / np.maximum(q, 1e-30))).sum())


def calibrate(
    function: Callable[[Any], dict[str, Any]], batches: Iterable[Any], method: str = "max", **options: Any
) -> CalibrationRecord:
    """Scales of the values that a function hands out, from batches of inputs.

    Args:
      function: of a batch; returns the values to look at, by name.
      batches: at least one.
      method, options: as Calibrator's.

    Returns a CalibrationRecord: name to CalibrationEntry. Raises OptionError without batches, NanError with the name.

    >>> import numpy as np
    >>> from rlx import quant
    >>> record = quant.calibrate(lambda x: {"hidden": 127 * x}, [np.array([1.0, -2.0])])
    >>> record["hidden"].scales
    (2.0,)
    """
    seen: dict[str, Calibrator] = {}
    for batch in batches:
        for name, values in function(batch).items():
            seen.setdefault(name, Calibrator(method, **options)).add(values, name)
    if not seen:
        raise OptionError("Calibration got no batches.", "Give at least one, like those that the model will see.")
    return CalibrationRecord({name: CalibrationEntry.per_tensor(c.scale()) for name, c in seen.items()})
