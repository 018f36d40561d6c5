"""The parts of a graph: element types, shapes, node numbers, operations and their origins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from rlx.errors import RlxError
from rlx.ir.program import Origin
from rlx.ir.types import TensorType, dtype_of
from rlx.trace.primitive import registry

__all__ = ["DType", "NodeId", "NodeOrigin", "Op", "OpKind", "Shape"]


class DType(Enum):
    """Element types by their short names.

    >>> DType.F32.dtype
    dtype('float32')
    """

    BOOL = np.dtype(bool)
    U8 = np.dtype(np.uint8)
    U16 = np.dtype(np.uint16)
    U32 = np.dtype(np.uint32)
    U64 = np.dtype(np.uint64)
    I8 = np.dtype(np.int8)
    I16 = np.dtype(np.int16)
    I32 = np.dtype(np.int32)
    I64 = np.dtype(np.int64)
    F16 = np.dtype(np.float16)
    BF16 = np.dtype(ml_dtypes.bfloat16)
    F32 = np.dtype(np.float32)
    F64 = np.dtype(np.float64)
    C64 = np.dtype(np.complex64)
    C128 = np.dtype(np.complex128)

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype."""
        found: np.dtype = self.value
        return found

    @classmethod
    def of(cls, dtype: Any) -> DType:
        """The member for a NumPy dtype or its name."""
        return dtype if isinstance(dtype, cls) else cls(dtype_of(dtype))


class Shape:
    """Sizes of the axes and the element type of a node's value. A size may be a name, for a size that is bound later.

    >>> Shape([2, 3], DType.F32)
    Shape([2, 3], F32)
    >>> Shape(["batch", 3]).bind({"batch": 8})
    Shape([8, 3], F32)
    """

    __slots__ = ("_dtype", "dims")

    def __init__(self, dims: Sequence[int | str], dtype: Any = DType.F32) -> None:
        self.dims = tuple([size if isinstance(size, str) else int(size) for size in dims])
        if any(isinstance(size, int) and size < 0 for size in self.dims):
            raise RlxError(f"Shape got the sizes {list(self.dims)}.", "Sizes must be zero or more.")
        unnamed = [size for size in self.dims if isinstance(size, str) and not size.isidentifier()]
        if unnamed:
            raise RlxError(f"Shape got the name {unnamed[0]!r} for a size.", 'Write a single word, such as "batch".')
        self._dtype = DType.of(dtype)

    @property
    def type(self) -> TensorType:
        """The type of such arrays. Raises RlxError if a size is a name."""
        if self.symbols:
            raise RlxError(
                f"{self!r} has sizes without a value: {', '.join(self.symbols)}.",
                "Bind them: shape.bind({...}), graph.specialize(...), or the option dim_binding.",
            )
        return TensorType(tuple(map(int, self.dims)), self._dtype.dtype)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of sizes that are not bound, each once."""
        return tuple(dict.fromkeys(size for size in self.dims if isinstance(size, str)))

    def bind(self, sizes: Mapping[str, int]) -> Shape:
        """The shape with values in place of names; names without a value stay."""
        return Shape([sizes.get(size, size) if isinstance(size, str) else size for size in self.dims], self._dtype)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @classmethod
    def of(cls, value: Any) -> Shape:
        """The shape of anything with .shape and .dtype, or of a pair (sizes, dtype)."""
        if isinstance(value, Shape):
            return value
        if isinstance(value, TensorType):
            return cls(value.shape, value.dtype)
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return cls(value.shape, value.dtype)
        return cls(*value) if len(value) == 2 and isinstance(value[0], (tuple, list)) else cls(value)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.dims)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.type.nbytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and (self.dims, self._dtype) == (other.dims, other._dtype)

    def __hash__(self) -> int:
        return hash((self.dims, self._dtype))

    def __repr__(self) -> str:
        return f"Shape({list(self.dims)}, {self.dtype.name})"


class NodeId(int):
    """The number of a node in its graph; never reused for another node.

    >>> import rlx
    >>> g = rlx.Graph("line")
    >>> x = g.input("x", rlx.Shape([2]))
    >>> g.node(x.id) == x
    True
    """

    def __repr__(self) -> str:
        return f"%{int(self)}"


class NodeOrigin(NamedTuple):
    """The origin of a node: the user's line (None for inputs), and its label.

    >>> import rlx
    >>> g = rlx.Graph("line")
    >>> y = g.input("x", rlx.Shape([2])) + 1.0
    >>> y.origin.label, y.origin.place is None
    ('add%2', False)
    """

    place: Origin | None
    label: str

    def __str__(self) -> str:
        return f"{self.label} at {self.place}" if self.place else self.label


_LEAVES = ("input", "param", "constant")


class OpKind(str):
    """The kind of an operation: a primitive's name, or "input", "param", "constant".

    >>> OpKind("dot_general")
    OpKind('dot_general')
    """

    __slots__ = ()

    def __new__(cls, name: str) -> OpKind:
        """Raises RlxError if there is no such primitive."""
        if name not in _LEAVES and name not in registry:
            raise RlxError(
                f"There is no kind of operation {name!r}.",
                "OpKind.all() lists them; they are the names of the primitives.",
            )
        return super().__new__(cls, name)

    @classmethod
    def all(cls) -> list[OpKind]:
        """Every kind, leaves first."""
        return [cls(name) for name in (*_LEAVES, *sorted(registry))]

    def __repr__(self) -> str:
        return f"OpKind({str(self)!r})"


class Op(NamedTuple):
    """An operation: its kind, and its parameters.

    >>> import rlx
    >>> g = rlx.Graph("line")
    >>> y = g.input("x", rlx.Shape([2])) + 1.0
    >>> y.op.kind
    OpKind('add')
    """

    kind: OpKind
    params: Mapping[str, Any]

    def __str__(self) -> str:
        return str(self.kind)
