"""Keys of static values, for caches whose keys are values of the user's program."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np

__all__ = ["static_key"]

_PLAIN = frozenset({int, bool, str, bytes, type(None)})


def static_key(value: Any) -> Any:
    """A key for a hashable value. Values of one type have equal keys if no program can distinguish them.

    Equality is not enough: 1, 1.0 and True are equal, and so are 0.0 and -0.0. Types are distinguished at every level
    of tuples, frozensets and dataclasses, and floats by their bits. A NaN has the key of an equal one.

    >>> from rlx.statics import static_key
    >>> static_key((1, 0.0)) == static_key((True, 0.0)), static_key(0.0) == static_key(-0.0)
    (False, False)
    >>> static_key(float("nan")) == static_key(float("nan"))
    True
    """
    kind = type(value)
    if kind in _PLAIN or isinstance(value, np.dtype):
        return kind, value
    if isinstance(value, (float, complex)):
        return kind, struct.pack("2d", value.real, value.imag)
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    if isinstance(value, tuple):
        return kind, tuple(map(static_key, value))
    if isinstance(value, frozenset):
        return kind, frozenset(map(static_key, value))
    if isinstance(value, slice):
        return kind, tuple(map(static_key, (value.start, value.stop, value.step)))
    if dataclasses.is_dataclass(value) and kind.__dataclass_params__.eq and "__eq__" in vars(kind):  # type: ignore[attr-defined]
        fields = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
        return kind, value, tuple(map(static_key, fields))
    return kind, value
