"""NumPy scalars that depend on named sizes, in the place of 0-d arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.dims import Derived, Dim, hint_of, is_sized

__all__ = ["SizedScalar", "array_of"]


class SizedScalar(Derived):
    """A NumPy scalar that depends on named sizes, in the place of a 0-d array: its dtype, and how it is computed.

    dim: the whole number whose value it is, if it is one.
    """

    __slots__ = ("dim", "dtype")
    shape = ()
    ndim = 0
    size = 1

    def __init__(self, scope: Any, number: int, dtype: np.dtype, dim: Dim | None = None) -> None:
        super().__init__(scope, number)
        self.dtype, self.dim = dtype, dim

    @classmethod
    def of(cls, value: Any, dtype: np.dtype) -> SizedScalar:
        """A Dim or another scalar, converted to a dtype."""
        dim = value if type(value) is Dim else value.dim
        if dim is not None and _holds_sizes(dtype):
            key = ("array", dim.terms, dtype)
            return array_of(key, lambda n: np.asarray(n, dtype), (dim,), dtype, dim)
        if type(value) is Dim:
            return cls.of(cls.of(value, np.dtype(np.int64)), dtype)
        if value.dtype == dtype:
            return value
        return array_of(("astype", value.number, dtype), lambda x: x.astype(dtype), (value,), dtype)

    def astype(self, dtype: Any) -> SizedScalar:
        """Converted to another dtype."""
        return SizedScalar.of(self, np.dtype(dtype))

    def item(self) -> Any:
        """As a number."""
        if self.dim is not None:
            return self.dim
        hint = hint_of(self).item()
        if isinstance(hint, complex):
            return self.pin()
        return self.scope.real_of(("item", self.number), "{}.item()", hint, (self,))

    def any(self) -> bool:
        """Whether it is not zero."""
        return bool(self.item() != 0)

    def pin(self) -> Any:
        """End the attempt to make a template: the number is needed."""
        if not self.scope.closed:
            self.scope.pin("a scalar", "the value of a scalar that a size determines is needed")
        return hint_of(self)

    def tobytes(self) -> bytes:
        """As NumPy's."""
        return self.pin().tobytes()

    def bits(self) -> Any:
        """The scalar's bytes as a whole number."""
        if self.dtype.kind in "iu":
            return self.item()
        kind = f"i{self.dtype.itemsize}"
        key = ("bits", self.number)
        at = self.scope.operation(key, "", _bits(hint_of(self), kind), (self,), function=lambda x: _bits(x, kind))
        return self.scope.polynomial({(at,): 1})

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.pin(), dtype)

    def __float__(self) -> float:
        return float(self.pin())

    def __index__(self) -> int:
        return int(self.pin())

    __int__ = __index__

    def __bool__(self) -> bool:
        return self.any()

    def __eq__(self, other: object) -> Any:
        if type(other) is not SizedScalar:
            return NotImplemented
        return other.scope is self.scope and (other.number, other.dtype) == (self.number, self.dtype)

    def __hash__(self) -> int:
        return hash((id(self.scope), self.number))

    def __repr__(self) -> str:
        return repr(self.pin())


def _holds_sizes(dtype: np.dtype) -> bool:
    """Whether sizes are exact in a dtype, or raise OverflowError; or are rounded, which keeps their order."""
    return dtype.kind in "iuf" and dtype.itemsize >= 4 and dtype.type.__module__ == "numpy"


def _bits(array: np.ndarray, kind: str) -> int:
    return int(array.view(kind))


def array_of(
    key: tuple[Any, ...], function: Callable[..., Any], parts: Sequence[Any], dtype: np.dtype, dim: Dim | None = None
) -> SizedScalar:
    """The 0-d array that a function makes of numbers and 0-d arrays, of which some depend on sizes. key: its name."""
    scope = next(part.scope for part in parts if is_sized(part))
    at = scope.operation(key, "", function(*map(hint_of, parts)), parts, function=function)
    return SizedScalar(scope, at, dtype, dim)
