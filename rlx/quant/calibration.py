"""Calibration: ranges of values that a function taps, from batches of its inputs, by five methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rlx.errors import NanError, OptionError
from rlx.quant.records import CalibrationEntry, CalibrationRecord
from rlx.quant.scales import LEAST_SCALE

__all__ = ["METHODS", "Calibrator", "calibrate"]

_TOP = 127
_CODES = 128  # that a histogram is seen through
_EMPTY = 1e-4  # counts that an empty bin has
_MOST_BINS = 1 << 12
METHODS = ("max", "moving_average", "percentile", "entropy", "mse")


class Calibrator:
    """The threshold of values from several batches: the value of the largest code.

    Args:
      method: "max": max|x|; "moving_average": of the batches' max|x|; "percentile": the `percentile` of
        all |x|; "entropy": minimises the divergence of the histograms; "mse": minimises the
        least by squares.
      bins: of the histogram of |x|, or for "entropy" of x, that the first batch makes; an even number. There are more
        as the range grows, and where these are too many, wider ones.
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
        self.counts = np.zeros((2, bins // 2 if method == "entropy" else bins), np.int64)  # from 0 up, and from 0 down
        self.width = 0.0

    def add(self, values: Any, name: str = "value") -> None:
        """Take a batch in. Raises NanError, with the name of the tap, for NaN and infinities."""
        given = np.asarray(values, np.float64).reshape(-1)
        magnitude = np.abs(given)
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
            self._count(magnitude, given < 0, largest)

    def _count(self, magnitude: np.ndarray, below: np.ndarray, largest: float) -> None:
        there = self.counts.shape[1]
        if not self.width:
            self.width = max(largest, 1e-12) / there
        while self._wanted(largest) > max(2 * self.bins, _MOST_BINS):  # two bins become one
            self.counts = np.pad(self.counts, ((0, 0), (0, there % 2))).reshape(2, -1, 2).sum(axis=2)
            self.width, there = 2 * self.width, self.counts.shape[1]
        self.counts = np.pad(self.counts, ((0, 0), (0, self._wanted(largest) - there)))
        there = self.counts.shape[1]
        at = np.minimum((magnitude / self.width).astype(np.int64), there - 1)
        self.counts += np.bincount(below * there + at, minlength=2 * there).reshape(2, there)

    def _wanted(self, largest: float) -> int:
        """How many bins it takes to hold a number, at least as many as there are."""
        there = self.counts.shape[1]
        beyond = largest - there * self.width
        return there + (int(beyond // self.width) + 1 if beyond > 0 else 0)

    def threshold(self) -> float:
        """The value of the largest code. Raises OptionError without batches."""
        if self.largest is None:
            raise OptionError("Calibration has seen no values.", "Give at least one batch.")
        if self.method in ("max", "moving_average") or not self.counts.any():
            return self.largest
        if self.method == "percentile":
            below = np.cumsum(self.counts.sum(axis=0)) / self.counts.sum()
            bins = int(np.searchsorted(below, self.percentile / 100)) + 1
        else:
            bins = _by_entropy(self.counts) if self.method == "entropy" else self._by_squares()
        return min(float(self.width * bins), self.largest)

    def scale(self) -> float:
        """The scale of int8 codes: threshold / 127, at least the smallest normal float32."""
        return max(self.threshold() / _TOP, LEAST_SCALE)

    def _by_squares(self) -> int:
        """After how many bins rounding loses the least by squares."""
        counts = self.counts.sum(axis=0)
        middles = (np.arange(len(counts)) + 0.5) * self.width

        def lost(bins: int) -> float:
            step = bins * self.width / _TOP
            rounded = np.minimum(np.rint(middles / step), _TOP) * step
            return float((counts * (middles - rounded) ** 2).sum())

        return min(range(_TOP // 16, len(counts) + 1), key=lost)


def _by_entropy(counts: np.ndarray) -> int:
    """After how many bins the histogram of x, as 128 codes see it, is nearest to itself by divergence.

    As in onnxruntime: a range extends one bin further up than down, codes have the same number of bins, the remainder
    belongs to the last code, and a code's count is distributed in whole numbers.
    """
    there = counts.shape[1]
    whole = np.concatenate([counts[1, ::-1], counts[0]])
    best, least = there, np.inf
    for bins in range(_CODES // 2, there + 1):
        first, last = there - bins, min(there + bins + 1, 2 * there)
        inside = whole[first:last]
        reference = inside.copy()
        reference[0] += whole[:first].sum()
        reference[-1] += whole[last:].sum()
        size = len(inside) // _CODES
        shared = _CODES * size
        sums = inside[:shared].reshape(_CODES, size).sum(axis=1)
        sums[-1] += inside[shared:].sum()
        filled = (reference[:shared].reshape(_CODES, size) > 0).sum(axis=1)
        candidate = np.zeros_like(inside)
        candidate[:shared] = np.repeat(np.where(filled > 0, sums // np.maximum(filled, 1), 0), size)
        divergence = _divergence(reference, candidate)
        if divergence < least:
            best, least = last - there, divergence
    return best


def _divergence(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Kullback and Leibler's, of histograms whose empty bins have a little of the others; infinity if one is empty."""
    if not reference.any() or not candidate.any():
        return np.inf

    def smooth(counts: np.ndarray) -> np.ndarray:
        empty = counts == 0
        found = counts + np.where(empty, _EMPTY, -_EMPTY * empty.sum() / (~empty).sum())
        return found / found.sum()

    p, q = smooth(reference), smooth(candidate)
    return float((p * np.log(p / q)).sum())


def calibrate(
    function: Callable[[Any], dict[str, Any]], batches: Iterable[Any], method: str = "max", **options: Any
) -> CalibrationRecord:
    """Scales of the values that a function exposes, computed from batches of inputs.

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
