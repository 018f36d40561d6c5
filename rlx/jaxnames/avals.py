"""JAX's avals: the types of arrays, with the attributes that its libraries read from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from rlx.array import ConcreteArray, is_array
from rlx.ir.types import TensorType, float0, is_inexact, is_key
from rlx.lax.ref import Ref
from rlx.numpy.promotion import to_dtype
from rlx.sharding.arrays import abstract_sharding, explicit_part
from rlx.sharding.manual_axes import ManualAxisType, manual_axis_type
from rlx.sharding.mesh import AbstractMesh
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec
from rlx.trace.builder import Tracer
from rlx.trace.flat import as_array
from rlx.trace.primitive import Linear, type_of
from rlx.trace.stacked import is_stacked

__all__ = ["AbstractArray", "AbstractValue", "aval_of", "tensor_type", "typeof"]

_NOT_VARYING = ManualAxisType()


_SHORT = (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c"))


def _axes_text(entry: Any) -> str:
    """An entry of a spec, without quotes."""
    return f"({','.join(map(str, entry))})" if isinstance(entry, tuple) else str(entry)


class AbstractValue:
    """jax.core.AbstractValue: the base class of all avals.

    >>> import rlx.compat
    >>> from rlx.jaxnames.avals import AbstractValue
    >>> isinstance(rlx.compat.typeof(1.0), AbstractValue)
    True
    """


class _ArrayTypes(type):
    """The class of AbstractArray. rlx's types, such as x.aval, count as its instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TensorType) or super().__instancecheck__(instance)


@dataclass(frozen=True, repr=False, eq=False)
class AbstractArray(AbstractValue, metaclass=_ArrayTypes):
    """The result of jax.typeof and jax.core.ShapedArray: an array's type and sharding.

    >>> import rlx
    >>> import rlx.compat
    >>> with rlx.compat.as_jax():
    ...     import jax
    ...     kind = jax.typeof(jax.numpy.ones(3))
    >>> kind.shape, kind.dtype, kind.weak_type
    ((3,), dtype('float32'), False)
    """

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool = False
    sharding: Any = None
    manual_axis_type: ManualAxisType = _NOT_VARYING
    memory_space: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(map(int, self.shape)))
        object.__setattr__(self, "dtype", self.dtype if self.dtype == float0 else to_dtype(self.dtype))
        if isinstance(self.sharding, NamedSharding):
            object.__setattr__(self, "sharding", explicit_part(self.sharding, len(self.shape)))

    def __eq__(self, other: object) -> bool:
        """Whether both have the same type of values. Shardings may differ."""
        other = aval_of(other) if isinstance(other, TensorType) else other
        if type(other) is not AbstractArray:
            return NotImplemented
        return tensor_type(self) == tensor_type(other) and self.manual_axis_type == other.manual_axis_type

    def __hash__(self) -> int:
        return hash(tensor_type(self))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def mat(self) -> ManualAxisType:
        """The manual_axis_type."""
        return self.manual_axis_type

    @property
    def vma(self) -> frozenset[Any]:
        """The mesh axes over which the value may differ between devices."""
        return self.manual_axis_type.varying

    def update(self, **fields: Any) -> AbstractArray:
        """A copy with the given fields replaced."""
        return replace(self, **fields)

    def strip_weak_type(self) -> AbstractArray:
        """A copy that is not weak."""
        return replace(self, weak_type=False)

    def to_tangent_aval(self) -> AbstractArray:
        """The aval of its tangents: of dtype float0 for integers and bools."""
        moves = is_key(self.dtype) or is_inexact(self.dtype)
        return replace(self, dtype=self.dtype if moves else float0, weak_type=False)

    to_cotangent_aval = at_least_vspace = to_tangent_aval

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        """The type as a string: with the mesh axes that divide it, and the axes over which it varies (V), is partial
        sums (U) or copies (R). short_dtypes: "f32" for float32.
        """
        name = np.dtype(self.dtype).name if self.dtype == float0 else tensor_type(self).dtype.name
        for long, short in _SHORT if short_dtypes else ():
            name = name.replace(long, short)
        spec = self.sharding.spec if isinstance(self.sharding, NamedSharding) else PartitionSpec()
        pairs = zip_longest(self.shape, spec.partitions)
        dims = ",".join(str(size) if not entry else f"{size}@{_axes_text(entry)}" for size, entry in pairs)
        sets = {"V": self.vma, "U": spec.unreduced | self.mat.unreduced, "R": spec.reduced | self.mat.reduced}
        said = ", ".join(f"{mark}:{','.join(sorted(map(str, axes)))}" for mark, axes in sets.items() if axes)
        return f"{name}[{dims}]" + (f"{{{said}}}" if said else "")

    def __str__(self) -> str:
        varying = f"{{V:{','.join(sorted(map(str, self.vma)))}}}" if self.vma else ""
        return f"{'~' if self.weak_type else ''}{tensor_type(self).strong()!r}{varying}"

    def __repr__(self) -> str:
        return f"ShapedArray({tensor_type(self).strong()!r}{', weak_type=True' if self.weak_type else ''})"


@dataclass(frozen=True, repr=False)
class AbstractRef(AbstractValue):
    """The type of a Ref: the type of its contents.

    >>> import rlx
    >>> from rlx.jaxnames.avals import typeof
    >>> typeof(rlx.new_ref(rlx.numpy.zeros(3)))
    Ref{float32[3]}
    """

    inner_aval: Any
    memory_space: Any = None
    kind: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the contents."""
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        """dtype of the contents."""
        return self.inner_aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes of the contents."""
        return self.inner_aval.ndim

    @property
    def size(self) -> int:
        """The number of elements of the contents."""
        return self.inner_aval.size

    @property
    def weak_type(self) -> bool:
        """Whether the contents yield to other dtypes."""
        return self.inner_aval.weak_type

    @property
    def sharding(self) -> Any:
        """The sharding of the contents."""
        return self.inner_aval.sharding

    def update(self, inner_aval: Any) -> AbstractRef:
        """The type of a Ref to another type."""
        return replace(self, inner_aval=inner_aval)

    def __repr__(self) -> str:
        return f"Ref{{{tensor_type(self.inner_aval).strong()!r}}}"


def tensor_type(aval: Any) -> TensorType:
    """rlx's type for an aval, a ShapeDtypeStruct, or anything else with .shape and .dtype."""
    if isinstance(aval, TensorType):
        return aval
    dtype = aval.dtype if aval.dtype == float0 else to_dtype(aval.dtype)
    return TensorType(tuple(aval.shape), dtype, bool(getattr(aval, "weak_type", False)))


def aval_of(type: TensorType, sharding: Any = None, axes: ManualAxisType = _NOT_VARYING) -> AbstractArray:
    """The aval of a value of an rlx type."""
    return AbstractArray(type.shape, type.dtype, type.weak, sharding, axes)


def typeof(x: Any) -> Any:
    """The type of an array or number for JAX's libraries; an aval is its own type.

    >>> import rlx.compat
    >>> rlx.compat.typeof(rlx.numpy.ones(3)).shape
    (3,)
    """
    if type(x) is AbstractArray:
        return x
    if isinstance(x, Ref):
        return AbstractRef(aval_of(x.type, abstract_sharding(x._content)))
    if isinstance(x, TensorType):
        return aval_of(x)
    if isinstance(x, Linear):
        return aval_of(x.type)
    if isinstance(x, np.ndarray) and x.dtype == float0:
        return AbstractArray(x.shape, float0)
    array = x if is_array(x) else as_array(x)
    return aval_of(type_of(array), abstract_sharding(array), manual_axis_type(array))


def _undivided(ndim: int) -> NamedSharding:
    """The sharding in the type of an array that was never divided."""
    return NamedSharding(AbstractMesh((), ()), PartitionSpec(*[None] * ndim))


def _jax_name(name: str, value: Any) -> None:
    """An attribute that JAX's libraries read from an array's type: x.aval is rlx's own."""
    setattr(TensorType, name, value)


setattr(Ref, "aval", property(typeof))  # noqa: B010  types are not known to have it
setattr(Tracer, "aval", property(typeof))  # noqa: B010  its type alone does not say over which axes it varies
setattr(Tracer, "mat", property(manual_axis_type))  # noqa: B010
# nor does the type of an array say over which axes it is to be summed
setattr(ConcreteArray, "aval", property(lambda x: typeof(x) if is_stacked(x) else x.type))  # noqa: B010
_jax_name("sharding", property(lambda t: t.device_sharding or _undivided(t.ndim)))
_jax_name("vma", frozenset())
_jax_name("mat", _NOT_VARYING)
_jax_name("manual_axis_type", _NOT_VARYING)
_jax_name("memory_space", None)
_jax_name("strip_weak_type", TensorType.strong)
_jax_name("str_short", lambda t, *_, **__: repr(t.strong()))
for _name in ("to_tangent_aval", "to_cotangent_aval", "at_least_vspace"):
    _jax_name(_name, lambda t: aval_of(t).to_tangent_aval())
