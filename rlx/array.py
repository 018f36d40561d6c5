"""Array: the operands and results of every operation, concrete or traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard

import numpy as np

from rlx.config import config
from rlx.errors import DonatedArrayError, DtypeOverflowError, InputTypeError, TracerHashError, out_of_memory
from rlx.ir.extended import key_dtype_of
from rlx.ir.types import TensorType, dtype_of, is_key, supported_dtypes, words_type
from rlx.storage import AllocationError, Device, Storage, from_numpy

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from rlx.device_memory import Memory

    class Updates(Protocol):
        """x.at, for type checkers and editors: rlx.numpy has the class."""

        def __getitem__(self, index: Any) -> Update: ...

    class Update(Protocol):
        """x.at[index], for type checkers and editors: rlx.numpy has the class."""

        def get(self, **options: Any) -> Array: ...
        def set(self, values: Any, **options: Any) -> Array: ...
        def add(self, values: Any, **options: Any) -> Array: ...
        def subtract(self, values: Any, **options: Any) -> Array: ...
        def multiply(self, values: Any, **options: Any) -> Array: ...
        def mul(self, values: Any, **options: Any) -> Array: ...
        def divide(self, values: Any, **options: Any) -> Array: ...
        def power(self, values: Any, **options: Any) -> Array: ...
        def min(self, values: Any, **options: Any) -> Array: ...
        def max(self, values: Any, **options: Any) -> Array: ...
        def apply(self, ufunc: Callable[[Any], Any], **options: Any) -> Array: ...

__all__ = [
    "Array",
    "ConcreteArray",
    "Device",
    "array_of_type",
    "arrays_over",
    "asarray_numpy",
    "ValuesOfParts",
    "beside",
    "fate",
    "gone",
    "is_array",
    "is_array_or_numpy",
    "is_concrete",
    "is_divided",
    "is_here",
    "is_plain",
    "keys_over",
    "values_of_parts",
    "narrowed",
    "may_change",
    "memory_of",
    "moved",
    "number_array",
    "owned",
    "parts_of",
    "unshared",
    "wrap",
]


class _ArrayClass(type):
    """The class of array classes: dir, and so completion, leaves out names that arrays lack and only advise on."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if hasattr(cls, name)]


class Array(metaclass=_ArrayClass):
    """An immutable array: concrete, or a tracer that represents one inside a transformation.

    Operators and methods are installed by `rlx.numpy`; `isinstance(x, rlx.Array)` holds for both.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> x = jnp.ones(3)
    >>> isinstance(x, rlx.Array), x.at[0].set(5.0).tolist()
    (True, [5.0, 1.0, 1.0])
    """

    __slots__ = ("__weakref__",)
    __array_priority__ = 1000
    type: TensorType

    if TYPE_CHECKING:  # installed by rlx.numpy; declared for type checkers and editors

        def __add__(self, other: Any) -> Array: ...
        def __radd__(self, other: Any) -> Array: ...
        def __and__(self, other: Any) -> Array: ...
        def __rand__(self, other: Any) -> Array: ...
        def __floordiv__(self, other: Any) -> Array: ...
        def __rfloordiv__(self, other: Any) -> Array: ...
        def __lshift__(self, other: Any) -> Array: ...
        def __rlshift__(self, other: Any) -> Array: ...
        def __matmul__(self, other: Any) -> Array: ...
        def __rmatmul__(self, other: Any) -> Array: ...
        def __mod__(self, other: Any) -> Array: ...
        def __rmod__(self, other: Any) -> Array: ...
        def __mul__(self, other: Any) -> Array: ...
        def __rmul__(self, other: Any) -> Array: ...
        def __or__(self, other: Any) -> Array: ...
        def __ror__(self, other: Any) -> Array: ...
        def __pow__(self, other: Any) -> Array: ...
        def __rpow__(self, other: Any) -> Array: ...
        def __rshift__(self, other: Any) -> Array: ...
        def __rrshift__(self, other: Any) -> Array: ...
        def __sub__(self, other: Any) -> Array: ...
        def __rsub__(self, other: Any) -> Array: ...
        def __truediv__(self, other: Any) -> Array: ...
        def __rtruediv__(self, other: Any) -> Array: ...
        def __xor__(self, other: Any) -> Array: ...
        def __rxor__(self, other: Any) -> Array: ...
        def __divmod__(self, other: Any) -> tuple[Array, Array]: ...
        def __rdivmod__(self, other: Any) -> tuple[Array, Array]: ...
        def __lt__(self, other: Any) -> Array: ...
        def __le__(self, other: Any) -> Array: ...
        def __gt__(self, other: Any) -> Array: ...
        def __ge__(self, other: Any) -> Array: ...
        def __eq__(self, other: Any) -> Array: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Array: ...  # type: ignore[override]
        def __abs__(self) -> Array: ...
        def __neg__(self) -> Array: ...
        def __pos__(self) -> Array: ...
        def __invert__(self) -> Array: ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __float__(self) -> float: ...
        def __complex__(self) -> complex: ...
        def __index__(self) -> int: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Array]: ...
        def __getitem__(self, index: Any) -> Array: ...
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray: ...
        @property
        def at(self) -> Updates: ...
        @property
        def T(self) -> Array: ...
        @property
        def mT(self) -> Array: ...
        @property
        def sharding(self) -> Any: ...
        @property
        def real(self) -> Array: ...
        @property
        def imag(self) -> Array: ...
        def all(self, *args: Any, **kwargs: Any) -> Array: ...
        def any(self, *args: Any, **kwargs: Any) -> Array: ...
        def argmax(self, *args: Any, **kwargs: Any) -> Array: ...
        def argmin(self, *args: Any, **kwargs: Any) -> Array: ...
        def argsort(self, *args: Any, **kwargs: Any) -> Array: ...
        def astype(self, *args: Any, **kwargs: Any) -> Array: ...
        def clip(self, *args: Any, **kwargs: Any) -> Array: ...
        def conj(self, *args: Any, **kwargs: Any) -> Array: ...
        def conjugate(self, *args: Any, **kwargs: Any) -> Array: ...
        def copy(self, *args: Any, **kwargs: Any) -> Array: ...
        def cumprod(self, *args: Any, **kwargs: Any) -> Array: ...
        def cumsum(self, *args: Any, **kwargs: Any) -> Array: ...
        def diagonal(self, *args: Any, **kwargs: Any) -> Array: ...
        def dot(self, *args: Any, **kwargs: Any) -> Array: ...
        def flatten(self, *args: Any, **kwargs: Any) -> Array: ...
        def max(self, *args: Any, **kwargs: Any) -> Array: ...
        def mean(self, *args: Any, **kwargs: Any) -> Array: ...
        def min(self, *args: Any, **kwargs: Any) -> Array: ...
        def nonzero(self, *args: Any, **kwargs: Any) -> tuple[Array, ...]: ...
        def prod(self, *args: Any, **kwargs: Any) -> Array: ...
        def ptp(self, *args: Any, **kwargs: Any) -> Array: ...
        def ravel(self, *args: Any, **kwargs: Any) -> Array: ...
        def repeat(self, *args: Any, **kwargs: Any) -> Array: ...
        def reshape(self, *args: Any, **kwargs: Any) -> Array: ...
        def round(self, *args: Any, **kwargs: Any) -> Array: ...
        def searchsorted(self, *args: Any, **kwargs: Any) -> Array: ...
        def sort(self, *args: Any, **kwargs: Any) -> Array: ...
        def squeeze(self, *args: Any, **kwargs: Any) -> Array: ...
        def std(self, *args: Any, **kwargs: Any) -> Array: ...
        def sum(self, *args: Any, **kwargs: Any) -> Array: ...
        def swapaxes(self, *args: Any, **kwargs: Any) -> Array: ...
        def take(self, *args: Any, **kwargs: Any) -> Array: ...
        def trace(self, *args: Any, **kwargs: Any) -> Array: ...
        def transpose(self, *args: Any, **kwargs: Any) -> Array: ...
        def var(self, *args: Any, **kwargs: Any) -> Array: ...
        def view(self, *args: Any, **kwargs: Any) -> Array: ...
        def item(self, *args: Any) -> Any: ...
        def tolist(self, *args: Any) -> Any: ...
        def tobytes(self, *args: Any) -> bytes: ...
        def block_until_ready(self, *args: Any) -> Array: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.type.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.type.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.type.dtype.itemsize

    @property
    def weak_type(self) -> bool:
        """Whether the dtype came from a Python scalar and yields to others."""
        return self.type.weak

    @property
    def aval(self) -> TensorType:
        """The array's type; JAX's name for it."""
        return self.type

    def __dir__(self) -> list[str]:
        return dir(type(self))

    def __hash__(self) -> int:
        raise TracerHashError(
            "An rlx array cannot be hashed, so it cannot be a dict key or a set member.",
            "Use a plain Python value as the key, for instance x.item() of a concrete scalar.",
        )


class ConcreteArray(Array):
    """An array with storage. Its type says where: in the host's memory, whole or divided over devices; in a memory
    that NumPy does not compute on, where its values are copied to the host when they are needed; or in parts, where
    the storage is an array, traced or not, of the parts that are here (`local_of`).

    The NumPy array of random keys holds records (`KeyDtype.record`), which NumPy can move but not compute with.
    """

    # _deleted, _lent and _sharding stay unset until they are needed, which costs nothing; _type is None until it is
    # needed for an array of numbers in the host's memory
    __slots__ = ("_deleted", "_lent", "_numpy", "_sharding", "_storage", "_type", "_weak")
    _deleted: bool
    _lent: np.ndarray
    _numpy: Any  # a NumPy array, or None until it is needed
    _sharding: Any
    _storage: Any  # a Storage, the array of the local parts, or None
    _type: Any

    def __init__(self, array: np.ndarray, weak: bool = False) -> None:
        self._numpy = array
        self._weak = weak
        self._storage = None
        self._type = None

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        """Shape, dtype, weakness."""
        t = self._type
        if t is None:
            a = self._numpy
            t = self._type = TensorType(a.shape, a.dtype, self._weak)
        return t.unplaced

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        t = self._type
        return self._numpy.shape if t is None else t.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        t = self._type
        return self._numpy.dtype if t is None else t.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def weak_type(self) -> bool:
        """Whether the dtype came from a Python scalar and yields to others."""
        return self._weak

    def numpy(self) -> np.ndarray:
        """The values as a NumPy array that shares memory, or a copy if the host cannot read it. Do not write to it."""
        a = self._numpy
        if a is None:
            if self._type.parts:
                return self.concrete().numpy()
            a = self._numpy = self._fetched()
        return a

    def _fetched(self) -> np.ndarray:
        storage, type = self._storage, self._type
        if storage is None:
            raise gone(self)
        memory = type.memory
        if memory is None:
            return storage.view(type.shape, getattr(type.dtype, "record", type.dtype))
        words = words_type(type) if is_key(type.dtype) else type
        if memory.addressable:
            storage.wait()
            values = storage.view(words.shape, words.dtype)
        else:
            values = memory.get(storage, words.shape, words.dtype)
        values = values.view()
        values.flags.writeable = False
        return values if words is type else type.dtype.records_of(values)

    def storage(self) -> Storage:
        """The values as dense memory; copies if they are not contiguous."""
        if parts_of(self):
            return self.concrete().storage()
        s = self._storage
        if s is None:
            a = self.numpy()
            if not a.flags.c_contiguous:
                a = np.ascontiguousarray(a).reshape(a.shape)
            s = self._storage = from_numpy(a)
        return s

    def lend(self) -> np.ndarray:
        """A read-only view, whose memory stays allocated while this object lives, even after `delete`.

        For protocols that expose an address: their readers keep the object but not its memory.
        """
        view = self.numpy().view()
        view.flags.writeable = False
        self._lent = view
        return view

    def delete(self) -> None:
        """Release the memory; later use raises DonatedArrayError. NumPy views of the array keep the memory."""
        if parts_of(self):
            return self._storage.delete()
        self.donate()
        self._deleted = True

    def donate(self) -> None:
        """Donate the memory to a call."""
        if parts_of(self):
            return self._storage.donate()
        self.type  # noqa: B018  keep shape and dtype readable
        self._numpy = None
        self._storage = None

    def is_deleted(self) -> bool:
        """Whether the memory was released or donated."""
        if parts_of(self):
            return self._storage.is_deleted()
        return self._numpy is None and self._storage is None

    def is_ready(self) -> bool:
        """Whether the values are there: reading them does not wait."""
        if parts_of(self):
            return self._storage.is_ready()
        return memory_of(self) is None or self.storage().is_ready()

    def wait(self) -> None:
        """Wait until the values are there; raises the error of a run that failed to compute them."""
        if parts_of(self):
            self._storage.wait()
        elif memory_of(self) is not None:
            self.storage().wait()

    def again(self) -> ConcreteArray:
        """Another array over the same memory: deleting or donating one leaves the other."""
        other = _new(ConcreteArray)
        other._numpy, other._storage, other._type, other._weak = self._numpy, self._storage, self._type, self._weak
        if self._type is not None and self._type.device_sharding is not None:
            other._sharding = self._sharding
        return other

    def with_sharding(self, sharding: Any) -> ConcreteArray:
        """An array over the same memory with a known sharding, which is a part of its type if devices divide it."""
        other = self.again()
        other._sharding = sharding
        type = self.type
        if memory_of(self) is None and type.plain:
            divides = sharding is not None and not sharding.is_default
            other._type = type.placed(sharding=sharding) if divides else type
        return other

    def concrete(self) -> ConcreteArray:
        """The array itself; raises ShardingError if its values do not follow from the parts that are here. Tracers
        return their value if it is known."""
        parts = parts_of(self)
        return values_of_parts[parts].concrete(self) if parts else self

    def known(self) -> ConcreteArray | None:
        """The values, if they are known: None if they do not follow from known parts."""
        parts = parts_of(self)
        return values_of_parts[parts].known(self) if parts else self

    def needed(self) -> ConcreteArray | None:
        """The values if they are known or can be computed now; raises like `concrete`."""
        parts = parts_of(self)
        return values_of_parts[parts].needed(self) if parts else self


class ValuesOfParts(NamedTuple):
    """How the values of an array follow from the parts that are here: see the methods of ConcreteArray."""

    concrete: Callable[[ConcreteArray], ConcreteArray]
    known: Callable[[ConcreteArray], ConcreteArray | None]
    needed: Callable[[ConcreteArray], ConcreteArray | None]


values_of_parts: dict[str, ValuesOfParts] = {}  # by TensorType.parts: rlx/trace has them


def parts_of(x: Any) -> str:
    """How an array is known by parts, as TensorType.parts; "" for other values."""
    return "" if type(x) is not ConcreteArray or x._type is None else x._type.parts


def is_array(x: Any) -> TypeIs[Array]:
    """Whether this is an array of rlx, traced or not."""
    return isinstance(x, Array)


def is_array_or_numpy(x: Any) -> TypeIs[Array | np.ndarray]:
    """Whether this is an array of rlx or of NumPy."""
    return isinstance(x, (Array, np.ndarray))


def is_concrete(x: Any) -> TypeIs[ConcreteArray]:
    """Whether this is an array with values of its own: not traced, and not known by parts."""
    return type(x) is ConcreteArray and (x._type is None or not x._type.parts)


def is_plain(x: Any) -> TypeGuard[ConcreteArray]:
    """Whether this is an array of numbers in the host's memory that is not known to be divided over devices."""
    return type(x) is ConcreteArray and (x._type is None or x._type.plain)


def is_here(x: Any) -> TypeGuard[ConcreteArray]:
    """Whether this is an array, of numbers or keys, in the host's memory that is not known to be divided."""
    return type(x) is ConcreteArray and (x._type is None or x._type.unplaced is x._type)


def is_divided(x: Any) -> TypeGuard[ConcreteArray]:
    """Whether this is an array in the host's memory, all of it, that several devices divide."""
    return is_concrete(x) and x._type is not None and x._type.device_sharding is not None


def fate(array: ConcreteArray) -> str:
    """How an array lost its memory: "deleted" by its method, or "donated" to a call."""
    return "deleted" if getattr(array, "_deleted", False) else "donated"


def gone(array: ConcreteArray, name: str = "This array") -> DonatedArrayError:
    """The error for an array whose memory was released or donated; `name`: the user's name for it."""
    if fate(array) == "deleted":
        return DonatedArrayError(
            f"{name} was deleted: its delete method released its memory.",
            "Delete arrays after their last use, or keep a copy: x.copy().",
        )
    return DonatedArrayError(
        f"{name} was donated to a jitted call and its memory has been given away.",
        "Use the call's result instead, or leave the argument out of donate_argnums.",
    )


def keys_of_number(shape: tuple[int, ...], value: Any, dtype: Any) -> ConcreteArray:
    """Keys whose words are single numbers."""
    return keys_over(np.full(shape, value, dtype.record))


def keys_over(records: np.ndarray) -> ConcreteArray:
    """The array of the random keys with these records."""
    keys = ConcreteArray(records)
    keys._type = TensorType(records.shape, records.dtype)
    return keys


def array_of_type(array: Any, type: TensorType) -> ConcreteArray:
    """A NumPy array with values of a type as an rlx array, sharing memory."""
    return keys_over(array) if is_key(type.dtype) else wrap(array, type.weak)


def arrays_over(storages: Iterable[Storage], types: Iterable[TensorType]) -> list[ConcreteArray]:
    """Arrays over dense storages, in the memories of their types; NumPy views are created when they are needed."""
    arrays = []
    for storage, type in zip(storages, types):  # noqa: B905  a check of the lengths costs time
        a = _new(ConcreteArray)
        a._numpy = None
        a._storage = storage
        a._type = type
        a._weak = type.weak
        arrays.append(a)
    return arrays


_new = ConcreteArray.__new__


def memory_of(x: Any) -> Memory | None:
    """The memory of an array with storage; None for the host's, and for other values."""
    return None if type(x) is not ConcreteArray or x._type is None else x._type.memory


def moved(array: ConcreteArray, memory: Memory) -> ConcreteArray:
    """An array of the same values in a memory: the array itself if it is there already."""
    here = memory_of(array)
    if here is memory or (here is None and memory.host):
        return array
    if memory.host:
        return array_of_type(array.numpy(), array.type)
    try:
        storage = _storage_in(memory, array)
    except AllocationError:
        raise out_of_memory((array.type,)) from None
    return arrays_over((storage,), (array.type.placed(memory),))[0]


def beside(array: Any, other: Any) -> Any:
    """A concrete array in the memory of another array; unchanged if that is traced, or on the host."""
    memory = memory_of(other)
    return array if memory is None or not is_concrete(array) else moved(array, memory)


def _storage_in(memory: Memory, array: ConcreteArray) -> Storage:
    """A copy of an array's values in a device's memory: directly between devices if possible, else through the host."""
    here = memory_of(array)
    if here is not None:
        words = words_type(array.type) if is_key(array.dtype) else array.type
        storage = memory.take_from(here, array.storage(), words.nbytes)
        if storage is not None:
            return storage
    values = array.numpy()
    if is_key(array.dtype):
        dtype: Any = array.dtype
        values = dtype.words_of(values)
    return memory.put(np.ascontiguousarray(values).reshape(values.shape))


def wrap(array: Any, weak: bool = False) -> ConcreteArray:
    """A NumPy array or scalar as an rlx array, sharing memory. It must be new, `unshared`, or used in one call only."""
    if type(array) is not np.ndarray:
        array = np.asarray(array)
    return ConcreteArray(array, weak)


# ------------------------------------------------------------------ the border to NumPy's memory
def may_change(array: np.ndarray) -> bool:
    """Whether other code can write to an array's memory: it is writable, or a view of something that is.

    >>> import numpy as np
    >>> x = np.ones(3)
    >>> may_change(np.broadcast_to(x, (2, 3))), may_change(np.frombuffer(b"ab", np.uint8))
    (True, False)
    """
    owner: Any = array
    while isinstance(owner, (np.ndarray, memoryview)):
        if isinstance(owner, np.ndarray):
            if owner.flags.writeable:
                return True
            owner = owner.base
        else:
            owner = owner.obj
    try:
        return owner is not None and not memoryview(owner).readonly
    except TypeError:  # exported by another protocol, as read-only
        return False


def unshared(array: np.ndarray) -> np.ndarray:
    """An array with these values that other code cannot write to: the array itself, or a copy."""
    return array.copy() if may_change(array) else array


def owned(array: ConcreteArray) -> ConcreteArray:
    """An array with these values whose memory other code cannot write to."""
    return array_of_type(unshared(array.numpy()), array.type)


def number_array(value: Any, dtype: np.dtype) -> np.ndarray:
    """A Python number as a 0-d NumPy array; DtypeOverflowError for an integer that the dtype cannot hold."""
    try:
        return np.asarray(value, dtype)
    except OverflowError:
        fits = -(2**63) <= value < 2**64
        instead = "Use a wider dtype, for instance rlx.numpy.int64(value)." if fits else "Pass a float."
        if value < 0 and dtype.kind == "u" and fits:
            instead = "Use a signed dtype, for instance rlx.numpy.int32."
        raise DtypeOverflowError(f"The Python integer {value} does not fit {dtype.name}.", instead) from None


def asarray_numpy(value: Any) -> np.ndarray:
    """`value` (NumPy array or scalar, buffer, nested sequence of numbers) as a NumPy array of a dtype that rlx has.

    Raises InputTypeError for objects, strings and dtypes that rlx does not have.
    """
    if isinstance(value, np.ndarray) and type(value) is not np.ndarray:
        if isinstance(value, np.ma.MaskedArray):
            raise InputTypeError(
                "A masked array was passed; rlx would lose its mask.",
                "Use x.filled(value), or keep the mask as a second array with rlx.numpy.where.",
            )
        value = np.asarray(value)
    array = value if type(value) is np.ndarray else np.asarray(value)
    if array.dtype not in supported_dtypes:
        if key_dtype_of(array.dtype):  # the records of keys
            return array
        try:
            dtype = dtype_of(array.dtype)
        except TypeError:
            raise InputTypeError(
                f"{type(value).__name__} of dtype {array.dtype} is not an array of numbers.",
                "Pass arrays of bool, integer, float or complex dtype; mark other arguments static"
                " (static_argnums / static_argnames) or close over them.",
            ) from None
        array = array.astype(dtype)
    if config.narrow and array.dtype in _NARROW:
        return array.astype(_NARROW[array.dtype])
    return array


# narrowed dtypes of 64-bit numbers at the border, if config.narrow is set
_NARROW = {np.dtype(wide): np.dtype(half) for wide, half in (("f8", "f4"), ("i8", "i4"), ("u8", "u4"), ("c16", "c8"))}


def narrowed(dtype: np.dtype) -> np.dtype:
    """The dtype for arrays from outside of this dtype: 32 bits for 64 if config.narrow is set."""
    return _NARROW.get(dtype, dtype) if config.narrow else dtype
