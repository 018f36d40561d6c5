"""Results of calibration: scales and zero points for values, per array or along an axis; and schemes for weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import OptionError, ShapeError
from rlx.quant.schemes import QuantScheme, scheme_of
from rlx.trace.flat import as_array
from rlx.trace.replay import block

__all__ = ["CalibrationEntry", "CalibrationRecord", "QuantMap", "quantize_dequantize"]


@dataclass(frozen=True)
class CalibrationEntry:
    """Scales and zero points of a value.

    Args: axis: None for the whole, or the axis that has one of each for every position.

    Raises OptionError for scales that are not positive and finite, and for lists of different lengths.

    >>> from rlx.quant import CalibrationEntry
    >>> CalibrationEntry.per_tensor(0.5)
    CalibrationEntry(axis=None, scales=(0.5,), zero_points=(0,))
    """

    axis: int | None
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.zero_points) or not self.scales or (self.axis is None and len(self.scales) > 1):
            raise OptionError(
                f"An entry has {len(self.scales)} scales and {len(self.zero_points)} zero points, axis {self.axis}.",
                "Give as many of the one as of the other; one of each without an axis.",
            )
        if not all(0 < s < math.inf for s in self.scales):
            raise OptionError("A scale is not positive, or not finite.", "Scales are max|x| / q_max, at least 2**-126.")

    @classmethod
    def per_tensor(cls, scale: float, zero_point: int = 0) -> CalibrationEntry:
        """One scale for the whole."""
        return cls(None, (float(scale),), (int(zero_point),))

    @classmethod
    def per_channel(
        cls, axis: int, scales: Sequence[float], zero_points: Sequence[int] | None = None
    ) -> CalibrationEntry:
        """A scale for each position along an axis."""
        zeros = [0] * len(scales) if zero_points is None else zero_points
        return cls(axis, tuple(map(float, scales)), tuple(map(int, zeros)))


class _Table(Mapping[str, Any]):
    """Entries by name."""

    def __init__(self, entries: Mapping[str, Any] | None = None) -> None:
        self._entries = dict(entries or {})

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._entries!r})"


class CalibrationRecord(_Table):
    """Name of a value to its CalibrationEntry.

    >>> from rlx.quant import CalibrationEntry, CalibrationRecord
    >>> len(CalibrationRecord({"hidden": CalibrationEntry.per_tensor(0.1)}))
    1
    """


class QuantMap(_Table):
    """Name of a weight to its QuantScheme.

    >>> from rlx.quant import QuantMap
    >>> schemes = QuantMap()
    >>> schemes.insert("head", "int8/32")
    >>> schemes["head"].block_size
    32
    """

    def insert(self, name: str, scheme: QuantScheme | str) -> None:
        """Put a scheme in, or another one in its place."""
        self._entries[name] = scheme_of(scheme)


def quantize_dequantize(x: Any, entry: CalibrationEntry) -> Array:
    """(clip(rint(x / scale) + zero, -128, 127) - zero) * scale, of the whole or along the entry's axis.

    Raises ShapeError where the axis is not there or has another length.

    >>> import numpy as np
    >>> from rlx import quant
    >>> quant.quantize_dequantize(np.array([0.3, 99.0], np.float32), quant.CalibrationEntry.per_tensor(0.5)).tolist()
    [0.5, 63.5]
    """
    value = as_array(x)
    scales, zeros = np.array(entry.scales, np.float32), np.array(entry.zero_points, np.float32)
    if entry.axis is not None:
        if not -value.ndim <= entry.axis < value.ndim or value.shape[entry.axis] != len(scales):
            raise ShapeError(
                f"{len(scales)} scales along axis {entry.axis} of an array of {list(value.shape)}.",
                "Give one for each position along an axis that is there.",
            )
    return code_rounding(value, jnp.asarray(scales), jnp.asarray(zeros), entry.axis)


@block()
def code_rounding(x: Any, scales: Any, zeros: Any, axis: int | None) -> Array:
    """quantize_dequantize: in programs it keeps its name, so that rlx.quant.quant_propagate finds it."""
    wanted = [1] * x.ndim
    if axis is not None:
        wanted[axis] = scales.size
    scales, zeros = scales.reshape(wanted), zeros.reshape(wanted)
    codes = jnp.clip(jnp.rint(x / scales) + zeros, -128, 127)
    return (codes - zeros) * scales
