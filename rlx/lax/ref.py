"""Mutable references to arrays that functions under jit, scan and other transforms read and write: rlx.ref."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import Array, is_array_or_numpy
from rlx.config import config
from rlx.errors import DtypeError, InputTypeError, ReferenceUseError, ShapeError, describe
from rlx.ir.types import TensorType, promote_dtypes
from rlx.offered_names import offer_names
from rlx.ops.arithmetic import add
from rlx.ops.conversion import convert
from rlx.trace.flat import as_array
from rlx.trace.references import Cell
from rlx.trees import tree

__all__ = ["Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]

offer_names(globals())


class Ref(Cell):
    """A mutable reference to an array: `ref[...]` and `ref[index]` read, `ref[index] = value` writes.

    Its shape and dtype are fixed. It is not an array: operations take `ref[...]`. Functions under jit, scan and other
    transforms may close over a Ref, or take it as an argument, but may not return one.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> total = rlx.new_ref(jnp.zeros(2))
    >>> @rlx.jit
    ... def count(x):
    ...     total[...] += x
    >>> count(jnp.ones(2)), count(jnp.ones(2))
    (None, None)
    >>> total[...].tolist()
    [2.0, 2.0]
    """

    __slots__ = ("_freed",)

    def __init__(self, value: Any) -> None:
        if isinstance(value, Ref):
            raise InputTypeError("new_ref got a Ref.", "Pass an array, for instance the contents of the Ref: ref[...].")
        super().__init__(value)
        self._freed = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        """dtype of the array."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """Number of axes of the array."""
        return self.type.ndim

    @property
    def size(self) -> int:
        """Number of elements of the array."""
        return self.type.size

    @property
    def sharding(self) -> Any:
        """The array's sharding."""
        return getattr(self.read(), "sharding", None)

    @property
    def at(self) -> _At:
        """`ref.at[index]`: a part, which is read and written with a further index."""
        return _At(self, ())

    def unsafe_buffer_pointer(self) -> int:
        """The address of the contents, which each write replaces."""
        content: Any = get(self)
        return content.unsafe_buffer_pointer()

    def addupdate(self, value: Any, idx: Any = None) -> None:
        """As the function of this name."""
        addupdate(self, idx, value)

    def __getitem__(self, index: Any) -> Array:
        return get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        set(self, index, value)

    def __len__(self) -> int:
        return len(get(self))

    def __repr__(self) -> str:
        return f"Ref({self._content!r})"


class _At:
    """`ref.at`: an index gives a part."""

    def __init__(self, ref: Ref, path: tuple[Any, ...]) -> None:
        self._ref, self._path = ref, path

    def __getitem__(self, index: Any) -> _Part:
        return _Part(self._ref, (*self._path, index))


class _Part:
    """A part of a reference, named by indices one after another: a tree of the reference and of traced indices."""

    def __init__(self, ref: Ref, path: tuple[Any, ...]) -> None:
        self._ref, self._path = ref, path

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the part."""
        return self[...].shape

    @property
    def dtype(self) -> np.dtype:
        """dtype of the part."""
        return self._ref.dtype

    @property
    def at(self) -> _At:
        """`part.at[index]`: a further part."""
        return _At(self._ref, self._path)

    def __getitem__(self, index: Any) -> Array:
        value = get(self._ref)
        for part in (*self._path, index):
            value = _part(value, part)
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        wholes = [get(self._ref)]
        for part in self._path:
            wholes.append(_part(wholes[-1], part))
        for whole, part in zip(reversed(wholes), reversed((*self._path, index)), strict=True):
            value = _with_part(whole, part, value, "set")
        self._ref.write(value)


def _divided(part: _Part) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The reference and the arrays among the indices, and the indices without them."""
    arrays: list[Any] = []

    def static(index: Any) -> Any:
        if isinstance(index, tuple):
            return tuple(map(static, index))
        if isinstance(index, slice):
            return slice, index.start, index.stop, index.step
        if is_array_or_numpy(index):
            arrays.append(index)
            return Array
        return index

    path = static(part._path)
    return (part._ref, *arrays), path


def _joined(path: tuple[Any, ...], children: Sequence[Any]) -> _Part:
    ref, *rest = children
    arrays = iter(rest)

    def dynamic(index: Any) -> Any:
        if index is Array:
            return next(arrays)
        if isinstance(index, tuple):
            return slice(*index[1:]) if index[:1] == (slice,) else tuple(map(dynamic, index))
        return index

    return _Part(ref, dynamic(path))


tree.register_node(_Part, _divided, _joined)


def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None) -> Ref:
    """A mutable reference to an array or a number. memory_space and kind are ignored, as in JAX on one memory.

    >>> import rlx
    >>> ref = rlx.new_ref(rlx.numpy.zeros(2))
    >>> ref[0] = 3.0
    >>> ref[...].tolist()
    [3.0, 0.0]
    """
    return Ref(init_val)


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A mutable reference to an array of zeros, with the shape and dtype of an object that has both.

    >>> import rlx
    >>> rlx.empty_ref(rlx.ShapeDtypeStruct((2,), "float32"))[...].tolist()
    [0.0, 0.0]
    """
    return Ref(np.zeros(ty.shape, ty.dtype))


def free_ref(ref: Ref) -> None:
    """Free a reference. Later reads and writes raise ReferenceUseError.

    >>> import rlx
    >>> ref = rlx.new_ref(1.0)
    >>> rlx.free_ref(ref)
    >>> ref[...]
    Traceback (most recent call last):
        ...
    rlx.errors.ReferenceUseError: A Ref of weak float32[] is used after free_ref...
    """
    get(ref)
    ref._freed = True


def freeze(ref: Ref) -> Array:
    """The contents of a reference after its last write.

    >>> import rlx
    >>> rlx.freeze(rlx.new_ref(2.0)).item()
    2.0
    """
    return get(ref)


def get(ref: Ref, idx: Any = None) -> Array:
    """The contents of a reference, or the part that an index selects; None selects everything.

    >>> import rlx
    >>> rlx.ref.get(rlx.new_ref(rlx.numpy.arange(3)), slice(1, 3)).tolist()
    [1, 2]
    """
    if not isinstance(ref, Ref):
        raise InputTypeError(f"ref.get takes a Ref, got {describe(ref)}.", "Make one of an array with rlx.new_ref.")
    if ref._freed:
        raise ReferenceUseError(f"A Ref of {ref.type!r} is used after free_ref.", "Free it after its last use.")
    return _part(ref.read(), idx)


def set(ref: Ref, idx: Any, value: Any) -> None:
    """Write to a reference, or to the part that an index selects.

    value: of the part's shape, which is not broadcast, and of the reference's dtype, or a Python number.
    Raises: ShapeError, DtypeError.

    >>> import rlx
    >>> ref = rlx.new_ref(rlx.numpy.zeros(2))
    >>> rlx.ref.set(ref, 1, 5.0)
    >>> ref[...].tolist()
    [0.0, 5.0]
    """
    ref.write(_with_part(get(ref), idx, value, "set"))


def swap(ref: Ref, idx: Any, value: Any) -> Array:
    """Write to a reference as `set` does; returns the previous contents.

    >>> import rlx
    >>> ref = rlx.new_ref(1.0)
    >>> rlx.ref.swap(ref, ..., 2.0).item(), ref[...].item()
    (1.0, 2.0)
    """
    before = get(ref, idx)
    set(ref, idx, value)
    return before


def addupdate(ref: Ref, idx: Any, x: Any) -> None:
    """Add to a reference, or to a part: an element that the index selects twice is added to twice.

    x: as the `value` of `set`.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> ref = rlx.new_ref(jnp.zeros(2))
    >>> rlx.ref.addupdate(ref, jnp.array([1, 1]), jnp.array([2.0, 3.0]))
    >>> ref[...].tolist()
    [0.0, 5.0]
    """
    ref.write(_with_part(get(ref), idx, x, "add"))


def _is_whole(index: Any) -> bool:
    return index is None or index is ... or (isinstance(index, tuple) and all(part is ... for part in index))


def _part(value: Array, index: Any) -> Array:
    return value if _is_whole(index) else value[index]


def _with_part(whole: Array, index: Any, value: Any, how: str) -> Array:
    """An array with a part replaced (how: "set") or added to ("add"); the type stays."""
    part = _fitting(as_array(value, "the value written to a Ref"), _part(whole, index).type)
    if _is_whole(index):
        return part if how == "set" else _of_type(add(whole, part), whole.type)
    return _of_type(getattr(whole.at[index], how)(part), whole.type)


def _fitting(value: Array, part: TensorType) -> Array:
    """A value converted to the type of the part that it is written to."""
    if value.shape != part.shape:
        raise ShapeError(
            f"A value of shape {value.shape} is written to a part of a Ref of shape {part.shape}.",
            "The shapes must be equal: use rlx.numpy.broadcast_to(value, shape), or another index.",
        )
    pairs = [(value.dtype, value.weak_type), (part.dtype, False)]
    if promote_dtypes(pairs, config.default_float, config.default_int)[0] != part.dtype or not (
        value.weak_type or value.dtype == part.dtype
    ):
        raise DtypeError(
            f"A value of dtype {value.dtype} is written to a Ref of dtype {part.dtype}.",
            "A Ref keeps its dtype: write value.astype(ref.dtype).",
        )
    return _of_type(value, part)


def _of_type(value: Array, type: TensorType) -> Array:
    same = value.dtype == type.dtype and value.weak_type == type.weak
    return value if same else convert(value, dtype=type.dtype, weak=type.weak)
