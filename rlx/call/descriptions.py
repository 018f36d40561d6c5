"""ShapeDtypeStruct: an array that is described, without values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.call.hooks import sharding_hooks
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import TensorType
from rlx.trace.flat import shared_array
from rlx.trace.primitive import type_of
from rlx.trace.tracing import place_of

__all__ = ["ShapeDtypeStruct"]


class ShapeDtypeStruct:
    """The shape and dtype of an array, without values.

    Args:
      shape: sizes of the axes. dtype: of the elements. weak_type: whether the dtype yields to others.
      sharding: how the array would be divided: a sharding, or a PartitionSpec under rlx.set_mesh.

    Raises: DtypeError without a dtype; ShapeError for a size that is not a number; ShardingError or InputTypeError for
      a sharding that does not fit.

    >>> import rlx
    >>> rlx.ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("_sharding", "dtype", "shape", "weak_type")

    def __init__(self, shape: Sequence[int], dtype: Any, weak_type: bool = False, *, sharding: Any = None) -> None:
        if dtype is None:
            raise DtypeError("A ShapeDtypeStruct got dtype=None.", "Name a dtype: it has no default.")
        self.shape = tuple(shape)
        if None in self.shape:
            raise ShapeError(f"A ShapeDtypeStruct got shape={self.shape}.", "Every size is a number.")
        self.dtype = TensorType((), dtype).dtype
        self.weak_type = weak_type
        self._sharding = sharding
        if sharding is not None:
            sharding_hooks.check_described(sharding, self.shape)

    @property
    def sharding(self) -> Any:
        """How the array would be divided; None if not specified."""
        found = self._sharding
        return None if found is None else sharding_hooks.resolve("ShapeDtypeStruct", found)

    @classmethod
    def like(cls, array: Any) -> ShapeDtypeStruct:
        """The shape and dtype of an array, or of a number.

        >>> import rlx
        >>> rlx.ShapeDtypeStruct.like(rlx.numpy.ones(3))
        ShapeDtypeStruct(shape=(3,), dtype=float32)
        """
        found = type_of(shared_array(array))
        return cls(found.shape, found.dtype, found.weak, sharding=place_of(array))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return TensorType(self.shape, self.dtype).size

    def update(self, **fields: Any) -> ShapeDtypeStruct:
        """The same with other fields.

        >>> import rlx
        >>> rlx.ShapeDtypeStruct((2,), "float32").update(shape=(3,)).shape
        (3,)
        """
        kept: dict[str, Any] = {"shape": self.shape, "dtype": self.dtype, "weak_type": self.weak_type}
        return ShapeDtypeStruct(**{**kept, "sharding": self._sharding, **fields})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a ShapeDtypeStruct without axes")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShapeDtypeStruct):
            return False
        return (self.shape, self.dtype, self._sharding) == (other.shape, other.dtype, other._sharding)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self._sharding))

    def __repr__(self) -> str:
        sharding = "" if self._sharding is None else f", sharding={self._sharding}"
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding})"
