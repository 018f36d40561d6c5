"""Tensor types: shape, dtype and weakness; the promotion lattice."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dims import hint_of
from rlx.ir.extended import UINT32, KeyDtype, key_dtype_of
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.size_functions import kept_with, plain_size, shown_size

__all__ = [
    "TensorType",
    "bfloat16",
    "bits_of",
    "broadcast_sizes",
    "compute_dtype",
    "dtype_kind",
    "dtype_named",
    "dtype_of",
    "element_dtype",
    "float0",
    "is_complex",
    "is_float",
    "is_inexact",
    "is_integer",
    "is_key",
    "is_narrow",
    "memory_dtype",
    "promote_dtypes",
    "scalar_dtype",
    "supported_dtypes",
    "words_type",
]

bfloat16 = np.dtype(ml_dtypes.bfloat16)
# the dtype of tangents and cotangents of integers and bools, which are zero: its arrays have no contents
float0 = np.dtype([("float0", np.void, 0)])
_small_floats = tuple(d for d, form in FLOAT_FORMATS.items() if form.bits <= 8)
_small_integers = tuple(INTEGER_FORMATS)
_bools = (np.dtype(bool),)
_unsigned = tuple(d for d, form in INTEGER_FORMATS.items() if not form.signed)
_unsigned += tuple(np.dtype(f"u{n}") for n in (1, 2, 4, 8))
_signed = tuple(d for d, form in INTEGER_FORMATS.items() if form.signed)
_signed += tuple(np.dtype(f"i{n}") for n in (1, 2, 4, 8))
_floats = (*_small_floats, np.dtype("f2"), bfloat16, np.dtype("f4"), np.dtype("f8"))
_complexes = (np.dtype("c8"), np.dtype("c16"))
supported_dtypes = frozenset((*_bools, *_unsigned, *_signed, *_floats, *_complexes))
_float_set, _complex_set = frozenset(_floats), frozenset(_complexes)
_integer_set = frozenset((*_unsigned, *_signed))


def is_float(dtype: np.dtype) -> bool:
    """Whether `dtype` is a real floating type, the small ones included."""
    return dtype in _float_set


def is_complex(dtype: np.dtype) -> bool:
    """Whether `dtype` is complex64 or complex128."""
    return dtype in _complex_set


def is_inexact(dtype: np.dtype) -> bool:
    """Whether `dtype` is floating or complex, so that a derivative can exist."""
    return dtype in _float_set or dtype in _complex_set


def is_integer(dtype: np.dtype) -> bool:
    """Whether `dtype` is a signed or unsigned integer (bool is neither)."""
    return dtype in _integer_set


_KINDS = {
    **dict.fromkeys(_bools, "b"),
    **dict.fromkeys(_unsigned, "u"),
    **dict.fromkeys(_signed, "i"),
    **dict.fromkeys(_floats, "f"),
    **dict.fromkeys(_complexes, "c"),
}


def dtype_kind(dtype: np.dtype) -> str:
    """One letter: b(ool), i(nt), u(nsigned), f(loat), c(omplex); small numbers, to NumPy all "V", included."""
    return _KINDS.get(dtype) or dtype.kind


def is_narrow(dtype: np.dtype) -> bool:
    """Whether numbers of `dtype` are computed in a wider dtype, and rounded or wrapped to their own."""
    return dtype in FLOAT_FORMATS or dtype in INTEGER_FORMATS


def bits_of(dtype: np.dtype) -> int:
    """The significant bits of an element: 4 for int4, although it takes a byte of memory; 8 for bool."""
    form = FLOAT_FORMATS.get(dtype) or INTEGER_FORMATS.get(dtype)
    return 8 * dtype.itemsize if form is None else form.bits


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype that one real scalar of an array of `dtype` is computed in."""
    if dtype in _complex_set:
        return np.dtype(f"f{dtype.itemsize // 2}")
    if dtype in FLOAT_FORMATS:
        return _FLOAT32
    integer = INTEGER_FORMATS.get(dtype)
    return dtype if integer is None else _BYTES[integer.signed]


def element_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the elements of a buffer as kernels count them: real numbers, where `dtype` is complex."""
    return compute_dtype(dtype) if is_complex(dtype) else dtype


def memory_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of memory for elements whose dtype a language lacks: real parts of complex numbers, codes of narrow
    floats in unsigned words."""
    return np.dtype(f"u{dtype.itemsize}") if is_narrow(dtype) else element_dtype(dtype)


_FLOAT32 = np.dtype(np.float32)
_INT64 = np.dtype(np.int64)
_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))

def is_key(dtype: Any) -> bool:
    """Whether `dtype` is a dtype of random keys, which can be moved but not computed with."""
    return type(dtype) is KeyDtype


def words_type(keys: TensorType) -> TensorType:
    """The type of the words of keys: one more axis, the last."""
    dtype: Any = keys.dtype
    return TensorType((*keys.shape, dtype.words), UINT32)


MOST_AXES = 64  # as NumPy's
MOST_BYTES = 2**63 - 1
_interned: dict[Any, TensorType] = {}


class TensorType:
    """The abstract value of an array: shape, dtype, and weakness; and of a concrete array, where it is stored.

    A weak type comes from a Python scalar and yields to the other operand's dtype. `memory` is the memory of a device,
    None for the host's; `device_sharding` is the known sharding over several devices, and `parts` says whether only
    parts of the array are here: "spanning" if processes divide it, "stacked" if devices have parts of a sum or copies.
    Values of programs have none of these: `unplaced` is the type without them. `plain`: NumPy computes with such
    arrays, and nothing else is to be done.
    """

    __slots__ = ("_text", "device_sharding", "dtype", "memory", "parts", "plain", "shape", "unplaced", "weak")

    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool
    memory: Any
    device_sharding: Any
    parts: str
    plain: bool
    unplaced: TensorType
    _text: str | None

    def __new__(cls, shape: tuple[int, ...], dtype: Any, weak: bool = False) -> TensorType:
        """One object for each type, so that comparing and hashing use identity."""
        key = (shape, dtype, weak)
        found = _interned.get(key)
        if found is None:
            if not isinstance(dtype, (np.dtype, KeyDtype)):
                return cls(tuple(shape), np.dtype(dtype), bool(weak))
            dtype = cast(np.dtype, key_dtype_of(dtype) or dtype)  # records in memory are keys
            found = object.__new__(cls)
            interned = kept_with(shape, _interned)
            if interned is not _interned and key in interned:
                return interned[key]
            found.shape, found.dtype, found.weak = tuple(map(plain_size, shape)), dtype, weak
            found.memory = found.device_sharding = found._text = None
            found.unplaced, found.parts, found.plain = found, "", not is_key(dtype)
            _refuse_enormous(found)
            found = interned.setdefault((found.shape, dtype, weak), found)
        return found

    def placed(self, memory: Any = None, sharding: Any = None, parts: str = "") -> TensorType:
        """The type of such arrays in a memory, or divided by a sharding over several devices."""
        key = (self.unplaced, memory, sharding, parts)
        found = _interned.get(key)
        if found is None:
            if memory is None and sharding is None:
                return self.unplaced
            found = object.__new__(TensorType)
            found.shape, found.dtype, found.weak = self.shape, self.dtype, self.weak
            found.memory, found.device_sharding, found.unplaced, found._text = memory, sharding, self.unplaced, None
            found.parts, found.plain = parts, False
            found = _interned.setdefault(key, found)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        if self.unplaced is not self:
            return self.unplaced.placed, (self.memory, self.device_sharding, self.parts)
        return (TensorType, (self.shape, self.dtype, self.weak))

    @property
    def weak_type(self) -> bool:
        """Whether the type is weak, by JAX's name."""
        return self.weak

    @property
    def sharding(self) -> Any:
        """How several devices divide such an array, by JAX's name; None if they do not, or it is unknown."""
        return self.device_sharding

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without padding."""
        return self.size * self.dtype.itemsize

    def update(
        self,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
        weak: bool | None = None,
    ) -> TensorType:
        """The unplaced type with the given fields replaced."""
        return TensorType(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.weak if weak is None else weak,
        )

    def strong(self) -> TensorType:
        """The same unplaced type without weakness; a strong type itself."""
        return TensorType(self.shape, self.dtype) if self.weak else self

    def __repr__(self) -> str:
        text = self._text
        if text is None:  # kept, because NumPy takes long over the name of a dtype
            dims = ",".join(map(shown_size, self.shape))
            place = "" if self.memory is None else f" on {self.memory.device!r}"
            place += "" if self.device_sharding is None else f" as {self.device_sharding!r}"
            text = self._text = f"{'weak ' if self.weak else ''}{self.dtype.name}[{dims}]{place}"
        return text


def broadcast_sizes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays broadcast to; ValueError if they do not. NumPy's function takes at most 32 axes."""
    sizes = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for i, n in enumerate(shape, len(sizes) - len(shape)):
            if n != sizes[i] and n != 1:
                if sizes[i] != 1:
                    raise ValueError(f"shapes {shapes} do not broadcast")
                sizes[i] = n
    return tuple(sizes)


def _refuse_enormous(type: TensorType) -> None:
    """Raise ShapeError for a type that no array can have."""
    if len(type.shape) > MOST_AXES:
        raise ShapeError(
            f"An array of {len(type.shape)} axes would be needed.",
            f"Arrays have at most {MOST_AXES} axes: merge some with reshape.",
        )
    if hint_of(type.nbytes) > MOST_BYTES:
        raise ShapeError(
            f"{type!r:.80} has {type.size} elements: more bytes than memory has addresses.",
            "Check the sizes: an array has less than 2**63 bytes.",
        )


# ------------------------------------------------------------------ promotion
# JAX's lattice (jax.dev, "Type promotion semantics"): an edge leads from a dtype to one that it promotes to.
# 'i*', 'f*' and 'c*' are Python scalars.
_EDGES: dict[Any, tuple[Any, ...]] = {
    "b": ("i*",),
    "i*": ("u1", "i1", *_small_integers),
    "u1": ("i2", "u2"),
    "u2": ("i4", "u4"),
    "u4": ("i8", "u8"),
    "u8": ("f*",),
    "i1": ("i2",),
    "i2": ("i4",),
    "i4": ("i8",),
    "i8": ("f*",),
    "f*": (*_small_floats, "f2", bfloat16, "c*"),
    "c*": ("c8",),
    "f2": ("f4",),
    bfloat16: ("f4",),
    "f4": ("f8", "c8"),
    "f8": ("c16",),
    "c8": ("c16",),
    "c16": (),
    **{small: () for small in (*_small_floats, *_small_integers)},
}


def _node(name: Any) -> Any:
    return name if isinstance(name, str) and name.endswith("*") else np.dtype(name)


_LATTICE = {(_node("?") if k == "b" else _node(k)): tuple(_node(v) for v in vs) for k, vs in _EDGES.items()}


@cache
def _upper(node: Any) -> frozenset[Any]:
    """Every lattice node that `node` can be promoted to, itself included."""
    out = {node}
    for n in _LATTICE[node]:
        out |= _upper(n)
    return frozenset(out)


def _weak_node(dtype: np.dtype) -> Any:
    if dtype_kind(dtype) == "b":
        return dtype
    return "c*" if is_complex(dtype) else "f*" if is_float(dtype) else "i*"


@lru_cache(maxsize=4096)
def _join(nodes: frozenset[Any]) -> Any:
    try:
        common = frozenset.intersection(*map(_upper, nodes))
    except KeyError as error:  # keys are not promoted
        raise TypeError(f"no implicit promotion between {error.args[0]} and another dtype") from None
    least = [n for n in common if common <= _upper(n)]
    if not least:
        names = ", ".join(sorted(str(n) for n in nodes))
        raise TypeError(f"no implicit promotion between {names}: convert one operand with .astype(...)")
    return least[0]


def promote_dtypes(
    types: Iterable[tuple[np.dtype, bool]], default_float: np.dtype, default_int: np.dtype
) -> tuple[np.dtype, bool]:
    """The dtype and weakness that operands of the given (dtype, weak) promote to."""
    pairs = list(types)
    first = pairs[0]
    if all(p == first for p in pairs):
        return first
    node = _join(frozenset(_weak_node(d) if w else d for d, w in pairs))
    if not isinstance(node, str):
        if node == _INT64 and default_int.itemsize < 8 and all(d.itemsize < 8 for d, _ in pairs):
            node = default_int  # uint32 with a signed integer: as in JAX, 64 bits come from 64 bits only
        return node, all(w for _, w in pairs)
    # every operand is weak (or bool): keep the widest weak dtype that is present
    kinds = [d for d, w in pairs if w and _weak_node(d) == node]
    if kinds:
        return max(kinds, key=lambda d: d.itemsize), True
    if node == "i*":
        return default_int, True
    if node == "f*":
        return default_float, True
    return (np.dtype("c16") if default_float.itemsize == 8 else np.dtype("c8")), True


def scalar_dtype(value: Any, default_float: np.dtype, default_int: np.dtype) -> np.dtype:
    """The dtype of a Python scalar under the given defaults."""
    if isinstance(value, bool):
        return np.dtype(bool)
    if isinstance(value, int):
        info = np.iinfo(default_int)
        if info.min <= value <= info.max:
            return default_int
        return np.dtype("i8") if value < 2**63 else np.dtype("u8")
    if isinstance(value, float):
        return default_float
    if isinstance(value, complex):
        return np.dtype("c16") if default_float.itemsize == 8 else np.dtype("c8")
    raise TypeError(f"{type(value).__name__} is not a Python scalar")


def dtype_named(name: str) -> np.dtype:
    """The dtype with that name, including the dtypes of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))


def dtype_of(value: Any) -> np.dtype:
    """`value` as a NumPy dtype that rlx supports, or one of keys; raises TypeError by name otherwise."""
    try:
        dtype = np.dtype(value)
    except TypeError:
        if is_key(value):
            return value
        raise
    if dtype not in supported_dtypes:
        dtype = dtype.newbyteorder("=") if dtype.kind in "biufc" else dtype
        if dtype not in supported_dtypes:
            raise TypeError(f"dtype {dtype.name} is not supported by rlx")
    return dtype
