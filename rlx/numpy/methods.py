"""Methods of arrays, installed on rlx.Array when one of them is first used."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from rlx import errors
from rlx.advice.habits import ARRAY_NAMES, missing_attribute
from rlx.array import Array, ConcreteArray, Device, array_of_type, is_concrete, keys_over, memory_of, parts_of
from rlx.config import config
from rlx.ir.extended import KeyDtype
from rlx.ir.types import is_key
from rlx.numpy import conversion, lookups, manipulation, operators, placement
from rlx.numpy.floats import conj, imag, real
from rlx.numpy.printing import show
from rlx.numpy.promotion import convert_to, to_dtype
from rlx.numpy.protocols import install_protocols
from rlx.numpy.updates import IndexUpdates
from rlx.offered_names import LateAttribute
from rlx.ops import copy as copies
from rlx.trace.stacked import is_stacked

__all__ = ["attributes", "install"]


def _astype(self: Any, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    """The array in another dtype; floats truncate and saturate to integers."""
    placement.check_placement(device)
    result = convert_to(self, config.default_float if dtype is None else to_dtype(dtype))
    return _copy(result) if copy and result is self else result


def _reshape(self: Any, *args: Any, order: str = "C", copy: bool | None = None, out_sharding: Any = None) -> Any:
    """The same elements in another shape, given as ints or as one tuple."""
    return manipulation.reshape(self, args[0] if len(args) == 1 else args, order, out_sharding=out_sharding)


def _transpose(self: Any, *args: Any) -> Any:
    """Axes in another order, given as ints or as one tuple; reversed if none is given."""
    if not args or args == (None,):
        return manipulation.transpose(self)
    return manipulation.transpose(self, args[0] if len(args) == 1 and not isinstance(args[0], int) else args)


def _compress(
    self: Any,
    condition: Any,
    axis: int | None = None,
    *,
    out: None = None,
    size: int | None = None,
    fill_value: Any = 0,
) -> Any:
    """The slices for which a condition is true: see rlx.numpy.compress."""
    return lookups.compress(condition, self, axis, size=size, fill_value=fill_value, out=out)


def _flatten(self: Any, order: str = "C", *, out_sharding: Any = None) -> Any:
    """All elements in one axis."""
    return manipulation.ravel(self, order, out_sharding=out_sharding)


def _copy(self: Any) -> Any:
    """A copy that shares no memory."""
    if is_concrete(self) and memory_of(self) is None:
        copied = array_of_type(self.numpy().copy(), self.type)
        sharding = getattr(self, "_sharding", None)
        return copied if sharding is None else copied.with_sharding(sharding)
    return copies.copy(self)


def _deepcopy(self: Any, memo: Any) -> Any:
    return _copy(self)


def _reduce(self: Any) -> Any:
    if not is_concrete(self):
        if parts_of(self):
            return _reduce(self.concrete())
        raise errors.ConcretizationTypeError(
            f"A traced {self.type!r} cannot be pickled.", "Pickle arrays outside of transformations."
        )
    if is_key(self.dtype):
        dtype: Any = self.dtype
        return _rebuild_keys, (dtype, np.array(dtype.words_of(self.numpy())))
    return _rebuild, (np.ascontiguousarray(self.numpy()).reshape(self.shape), self._weak)


def _rebuild_keys(dtype: KeyDtype, words: np.ndarray) -> ConcreteArray:
    return placement.placed(keys_over(dtype.records_of(words)))


def _rebuild(values: np.ndarray, weak: bool) -> ConcreteArray:
    return placement.placed(ConcreteArray(values, weak))


def _setitem(self: Any, index: Any, value: Any) -> None:
    raise errors.ImmutableArrayError(
        "x[index] = value does not work: rlx arrays are immutable.", "Write x = x.at[index].set(value) instead."
    )


def _delitem(self: Any, index: Any) -> None:
    raise errors.ImmutableArrayError(
        "del x[index] does not work: rlx arrays are immutable.", "Write x = rlx.numpy.delete(x, index)."
    )


def _block(self: Any) -> Any:
    """Wait until the values are there; returns the array. Raises the error of a run that failed to compute them."""
    if is_concrete(self) or parts_of(self):
        self.wait()
    return self


def _is_ready(self: Any) -> bool:
    return self.is_ready() if is_concrete(self) or parts_of(self) else True


def _device(self: Any) -> Any:
    """The device that holds the values; of an array that is on several devices, its sharding."""
    sharding = getattr(self, "_sharding", None)
    if sharding is not None:
        return sharding if sharding.num_devices > 1 else sharding.devices[0]
    memory = memory_of(self)
    return placement.HOST if memory is None else memory.device


def _devices(self: Any) -> set[Device]:
    """The array's devices."""
    device = _device(self)
    return {device} if isinstance(device, Device) else device.device_set


def _address(self: Any) -> int:
    """Where the values are in memory."""
    if not is_concrete(self):
        raise errors.ConcretizationTypeError(
            f"A traced {self.type!r} has no address in memory.", "Take addresses of arrays outside of transformations."
        )
    return self.storage().pointer


def _addressable_data(self: Any, index: int) -> Any:
    """The part of the array on a device, counted in the order of its sharding's devices."""
    return placement.arrays_and_shardings().part_of(self, index)


def _to_device(self: Any, device: Any, *, stream: Any = None) -> Any:
    """The array on a device, or with a sharding."""
    placement.check_placement(device)
    named = isinstance(device, (str, Device)) and self.device == device
    return self if device is None or named else placement.placed(self, device)


def _sharding(self: Any) -> Any:
    """The array's sharding: as requested from device_put or a similar function, or whole on the default device.

    AttributeError for traced values.
    """
    return placement.arrays_and_shardings().sharding_of(self)


def _is_fully_replicated(self: Any) -> bool:
    """Whether each of its devices has the whole array."""
    sharding = getattr(self, "_sharding", None)
    return sharding is None or sharding.is_fully_replicated


def _is_fully_addressable(self: Any) -> bool:
    """Whether this process has every part of the array."""
    sharding = getattr(self, "_sharding", None)
    return sharding is None or is_stacked(self) or sharding.is_fully_addressable


def _committed(self: Any) -> bool:
    """Whether the array was placed explicitly."""
    return placement.arrays_and_shardings().is_committed(self)


def _shards(self: Any) -> Any:
    """The parts of the array, one for each of its sharding's devices."""
    return placement.arrays_and_shardings().shards_of(self)


def _global_shards(self: Any) -> Any:
    """The parts of the array on all devices of its sharding; without data on devices of other processes."""
    return placement.arrays_and_shardings().global_shards_of(self)


def _view(self: Any, dtype: Any = None, type: None = None) -> Any:
    """The same bytes read as another dtype."""
    if type is not None:
        raise errors.UnsupportedError(
            f"view got type={type!r}.",
            "Arrays have one class: leave type out. x.reshape(shape) changes the shape.",
        )
    return self if dtype is None else conversion.view(self, to_dtype(dtype))


def _format(self: Any, spec: str) -> str:
    if parts_of(self):
        return show(self) if self.known() is None else format(self.known(), spec)
    if self.ndim == 0 and not is_key(self.dtype) and (is_concrete(self) or self.known() is not None):
        return format(self.concrete().numpy()[()], spec)
    if not spec:
        return str(self)
    if is_concrete(self):
        raise errors.InputTypeError(
            f"unsupported format string {spec!r} for an array of shape {self.shape}.",
            "Format one element, x[i], or write np.array2string(np.asarray(x), precision=3).",
        )
    raise errors.ConcretizationTypeError(
        f"A traced {self.type!r} is formatted with {spec!r}, but its value is not known while tracing.",
        "Use rlx.debug.print, or return the value and format it outside.",
    )


def _str(self: Any) -> str:
    return str(self.numpy()) if is_concrete(self) and not is_key(self.dtype) else show(self)


def _array_interface(self: Any) -> Any:
    if self.dtype.kind not in "biufc" or self.dtype.isbuiltin != 1:  # 2: of another package, float8
        raise AttributeError(f"{self.dtype.name} has no __array_interface__: NumPy takes __array__.")
    if memory_of(self) is not None:
        raise AttributeError(f"an array on {self.device!r} has no __array_interface__: NumPy takes __array__.")
    return self.lend().__array_interface__  # NumPy keeps the object that it got the address from


def _cuda_array_interface(self: Any) -> Any:
    memory = memory_of(self)
    if memory is None:
        raise AttributeError("an array in the host's memory has no __cuda_array_interface__: NumPy takes __array__.")
    return memory.cuda_array_interface(self.storage(), self.shape, self.dtype)


_PLAIN: dict[str, Callable[..., Any]] = {
    "astype": _astype,
    "reshape": _reshape,
    "transpose": _transpose,
    "flatten": _flatten,
    "conj": conj,
    "conjugate": conj,
    "copy": _copy,
    "compress": _compress,
    "byteswap": conversion.byteswap,
    "addressable_data": _addressable_data,
    "unsafe_buffer_pointer": _address,
    "on_device_size_in_bytes": lambda self: self.nbytes,
    "clone": _copy,
    "__copy__": _copy,
    "__deepcopy__": _deepcopy,
    "__reduce__": _reduce,
    "__setitem__": _setitem,
    "__delitem__": _delitem,
    "__repr__": show,
    "__str__": _str,
    "__format__": _format,
    "block_until_ready": _block,
    "copy_to_host_async": lambda self: None,
    "is_ready": _is_ready,
    "devices": _devices,
    "to_device": _to_device,
    "view": _view,
    "item": conversion.item,
    "tolist": conversion.to_list,
    "tobytes": conversion.to_bytes,
    "__bool__": conversion.to_bool,
    "__int__": conversion.to_int,
    "__float__": conversion.to_float,
    "__complex__": conversion.to_complex,
    "__index__": conversion.to_index,
    "__array__": conversion.to_numpy_array,
    "__dlpack__": conversion.to_dlpack,
    "__mlx_array__": conversion.to_mlx,
    "__dlpack_device__": conversion.dlpack_device,
}
_PROPERTIES: dict[str, Callable[[Any], Any]] = {
    "T": manipulation.transpose,
    "mT": manipulation.matrix_transpose,
    "real": real,
    "imag": imag,
    "at": IndexUpdates,
    "device": _device,
    "committed": _committed,
    "addressable_shards": _shards,
    "global_shards": _global_shards,
    "is_fully_addressable": _is_fully_addressable,
    "is_fully_replicated": _is_fully_replicated,
    "flat": manipulation.ravel,
    "sharding": _sharding,
}
# methods that are the functions of the same name in rlx.numpy
NAMED = (
    "all any argmax argmin argpartition argsort choose clip cumprod cumsum diagonal dot max"
    " mean min nonzero prod ptp ravel repeat round searchsorted sort squeeze std sum swapaxes take"
    " trace var"
).split()


class _Absent:
    """A name from other libraries' arrays: the error suggests an equivalent; hasattr and dir do not see it.

    Array.__getattr__ would slow every access down; Python itself suggests similar names for a misspelt one.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise missing_attribute(self.name)

    def __set__(self, instance: Any, value: Any) -> None:
        raise missing_attribute(self.name)


def attributes(front: ModuleType) -> dict[type, dict[str, Any]]:
    """The operators and methods of each class of arrays; `front` is rlx.numpy, which has the functions of some."""

    def namespace(self: Any, *, api_version: str | None = None) -> ModuleType:
        """The module rlx.numpy, by the array API standard."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"rlx.numpy does not implement version {api_version!r} of the array API.")
        return front

    found = SimpleNamespace(**_PLAIN, __array_namespace__=namespace)
    operators.install_operators(found)
    install_protocols(found, front)
    for name, getter in _PROPERTIES.items():
        setattr(found, name, property(getter, doc=getter.__doc__))
    for name in NAMED:
        setattr(found, name, getattr(front, name))
    own = {name for name, value in vars(Array).items() if not isinstance(value, (LateAttribute, _Absent))}
    absent = {name: _Absent(name) for name in ARRAY_NAMES if name not in vars(found) and name not in own}
    concrete = {
        "__array_interface__": property(_array_interface),
        "__cuda_array_interface__": property(_cuda_array_interface),
    }
    return {Array: vars(found) | absent, ConcreteArray: concrete}


def install(front: ModuleType) -> None:
    """Give the classes of arrays their operators and methods. A second time changes nothing."""
    for array_class, named in attributes(front).items():
        for name, value in named.items():
            setattr(array_class, name, value)
