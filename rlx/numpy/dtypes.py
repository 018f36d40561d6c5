"""Scalar types, properties of dtypes, and constants."""

from __future__ import annotations

import builtins
import math
from typing import Any

import ml_dtypes
import numpy as np

from rlx.array import Array, is_array, is_array_or_numpy, narrowed
from rlx.config import config
from rlx.errors import DtypeError, TypePromotionError
from rlx.ir.extended import KeyDtype, extended
from rlx.ir.types import dtype_kind, dtype_of, is_complex, is_float, is_integer, promote_dtypes, scalar_dtype
from rlx.numpy.creation import asarray
from rlx.numpy.promotion import (
    SCALARS,
    WIDE_SCALARS,
    canonical_axes,
    complex_dtype,
    to_dtype,
    wide_scalars_yield,
)
from rlx.trace.strictness import check_dtypes

__all__ = [
    "ComplexWarning",
    "complex_",
    "float_",
    "int_",
    "ndarray",
    "uint",
    "bfloat16",
    "bool_",
    "can_cast",
    "cdouble",
    "character",
    "complex128",
    "complex64",
    "complexfloating",
    "csingle",
    "double",
    "dtype",
    "e",
    "euler_gamma",
    "finfo",
    "flexible",
    "float16",
    "float32",
    "float64",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "floating",
    "generic",
    "iinfo",
    "inexact",
    "inf",
    "int16",
    "int32",
    "int64",
    "int8",
    "integer",
    "iscomplexobj",
    "isdtype",
    "isrealobj",
    "isscalar",
    "issubdtype",
    "iterable",
    "nan",
    "ndim",
    "newaxis",
    "number",
    "object_",
    "pi",
    "promote_types",
    "result_type",
    "shape",
    "signedinteger",
    "single",
    "size",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unsignedinteger",
    "int1",
    "int2",
    "int4",
    "uint1",
    "uint2",
    "uint4",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e8m0fnu",
]

dtype = np.dtype
generic = np.generic
number = np.number
integer = np.integer
signedinteger = np.signedinteger
unsignedinteger = np.unsignedinteger
inexact = np.inexact
floating = np.floating
complexfloating = np.complexfloating
character = np.character
flexible = np.flexible
object_ = np.object_

pi = math.pi
e = math.e
euler_gamma = 0.5772156649015329
inf = math.inf
nan = math.nan
newaxis = None


class ScalarType(type):
    """The class of dtypes that can be called: `float32(3)` is a 0-d array, and `float32` can be a dtype argument.

    As in JAX they are classes: an enumeration of numbers may derive from one.

    >>> import rlx.numpy as jnp
    >>> jnp.float32(3).dtype, jnp.zeros(2, jnp.bfloat16).dtype
    (dtype('float32'), dtype(bfloat16))
    """

    dtype: np.dtype

    @property
    def type(cls) -> Any:
        """NumPy's scalar class."""
        return cls.dtype.type

    def __call__(cls, x: Any = 0) -> Array:
        return asarray(np.asarray(x, cls.dtype) if isinstance(x, str) else x, cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        """Whether a NumPy scalar is of this type, for isinstance."""
        return isinstance(instance, cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        if isinstance(other, ScalarType):
            return cls.dtype == other.dtype
        if not isinstance(other, (np.dtype, builtins.type, str)):
            return False
        try:
            return cls.dtype == np.dtype(other)
        except (TypeError, ValueError):  # ValueError: a string that is not a dtype
            return False

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)  # as JAX's: tensorflow_probability looks NumPy's scalar types up among these

    def __repr__(cls) -> str:
        return f"<rlx dtype {cls.__name__}>"


class DefaultType(ScalarType):
    """The class of dtypes that rlx.config names as defaults for a kind of numbers.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> jnp.float_(3).dtype == rlx.config.default_float
    True
    """

    kind: str

    @property
    def dtype(cls) -> np.dtype:  # type: ignore[override]  # ty: ignore[incompatible-property-override]
        """The default now."""
        if cls.kind == "f":
            return config.default_float
        if cls.kind == "c":
            return complex_dtype(config.default_float)
        return np.dtype(f"{cls.kind}{config.default_int.itemsize}")


def _scalar_type(name: str) -> ScalarType:
    """The callable dtype of a name."""
    dtype = np.dtype(name)
    text = f"""The dtype {dtype.name}. Calling it converts a value to an array of this dtype.

    >>> import rlx.numpy as jnp
    >>> jnp.{name if name != "bool" else "bool_"}(1).dtype.name
    {dtype.name!r}
    """
    return ScalarType(dtype.name, (), {"dtype": dtype, "__module__": "rlx.numpy", "__doc__": text})


def _default_type(name: str, kind: str) -> DefaultType:
    """The callable dtype that is the default for a kind of numbers: "i", "u", "f" or "c"."""
    text = f"""The default dtype of a kind of numbers. Calling it converts a value to an array of this dtype.

    >>> import rlx.numpy as jnp
    >>> jnp.{name}(1).dtype == jnp.{name}.dtype
    True
    """
    return DefaultType(name, (), {"kind": kind, "__module__": "rlx.numpy", "__doc__": text})


bool_ = _scalar_type("bool")
int8 = _scalar_type("int8")
int16 = _scalar_type("int16")
int32 = _scalar_type("int32")
int64 = _scalar_type("int64")
uint8 = _scalar_type("uint8")
uint16 = _scalar_type("uint16")
uint32 = _scalar_type("uint32")
uint64 = _scalar_type("uint64")
float16 = _scalar_type("float16")
bfloat16 = _scalar_type("bfloat16")
float32 = _scalar_type("float32")
float64 = _scalar_type("float64")
complex64 = _scalar_type("complex64")
complex128 = _scalar_type("complex128")
int1 = _scalar_type("int1")
int2 = _scalar_type("int2")
int4 = _scalar_type("int4")
uint1 = _scalar_type("uint1")
uint2 = _scalar_type("uint2")
uint4 = _scalar_type("uint4")
float4_e2m1fn = _scalar_type("float4_e2m1fn")
float6_e2m3fn = _scalar_type("float6_e2m3fn")
float6_e3m2fn = _scalar_type("float6_e3m2fn")
float8_e3m4 = _scalar_type("float8_e3m4")
float8_e4m3 = _scalar_type("float8_e4m3")
float8_e8m0fnu = _scalar_type("float8_e8m0fnu")
float8_e4m3fn = _scalar_type("float8_e4m3fn")
float8_e4m3b11fnuz = _scalar_type("float8_e4m3b11fnuz")
float8_e4m3fnuz = _scalar_type("float8_e4m3fnuz")
float8_e5m2 = _scalar_type("float8_e5m2")
float8_e5m2fnuz = _scalar_type("float8_e5m2fnuz")
int_, uint = _default_type("int_", "i"), _default_type("uint", "u")
float_, complex_ = _default_type("float_", "f"), _default_type("complex_", "c")
ComplexWarning = np.exceptions.ComplexWarning
ndarray = Array
single, double, csingle, cdouble = float32, float64, complex64, complex128


def finfo(dtype: Any) -> Any:
    """Limits of a floating dtype.

    Args: dtype: a floating or complex dtype, or an array.
    Returns: an object with eps, max, min, tiny, bits, ... as NumPy's.
    Raises: DtypeError if the dtype is not floating.

    >>> import rlx.numpy as jnp
    >>> float(jnp.finfo(jnp.float32).eps) == 2.0 ** -23
    True
    """
    wanted = _dtype_argument(dtype)
    if not (is_float(wanted) or is_complex(wanted)):
        raise DtypeError(f"finfo got {wanted.name}, which is not floating.", "Use iinfo instead.")
    return ml_dtypes.finfo(wanted)


def iinfo(int_type: Any) -> Any:
    """Limits of an integer dtype.

    Args: int_type: an integer dtype, or an array.
    Returns: an object with min, max and bits.
    Raises: DtypeError if the dtype is not an integer.

    >>> import rlx.numpy as jnp
    >>> jnp.iinfo(jnp.int8).max
    127
    """
    wanted = _dtype_argument(int_type)
    if not is_integer(wanted):
        raise DtypeError(f"iinfo got {wanted.name}, which is not an integer dtype.", "Use finfo instead.")
    return ml_dtypes.iinfo(wanted)


def _dtype_argument(value: Any) -> np.dtype:
    return value.dtype if is_array_or_numpy(value) else to_dtype(value)


_CATEGORIES = {
    np.generic: lambda d: True,
    np.number: lambda d: dtype_kind(d) in "iufc",
    np.integer: is_integer,
    np.signedinteger: lambda d: dtype_kind(d) == "i",
    np.unsignedinteger: lambda d: dtype_kind(d) == "u",
    np.inexact: lambda d: is_float(d) or is_complex(d),
    np.floating: is_float,
    np.complexfloating: is_complex,
}


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether the first dtype is, or belongs to, the second.

    Args: arg1: a dtype or NumPy scalar class; arg2: a dtype or a category such as floating.
    Returns: a bool. The small floats of ml_dtypes count as floating.

    >>> import rlx.numpy as jnp
    >>> jnp.issubdtype(jnp.bfloat16, jnp.floating)
    True
    """
    if isinstance(arg1, KeyDtype) or (isinstance(arg2, type) and issubclass(arg2, extended)):
        kind = arg1.type if isinstance(arg1, KeyDtype) else arg1
        return arg1 == arg2 or (isinstance(kind, type) and isinstance(arg2, type) and issubclass(kind, arg2))
    if isinstance(arg1, type) and (arg1 in _CATEGORIES or issubclass(arg1, extended)):
        return isinstance(arg2, type) and issubclass(arg1, arg2)
    first = np.dtype(_dtype_like(arg1))
    if isinstance(arg2, type) and arg2 in _CATEGORIES:
        return bool(_CATEGORIES[arg2](first))
    if isinstance(arg2, type) and arg2 in (character, flexible):
        return bool(np.issubdtype(first, arg2))
    return first == np.dtype(_dtype_like(arg2))


def _dtype_like(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") and not isinstance(value, type) else value


_KINDS = {
    "bool": lambda d: d.kind == "b",
    "signed integer": lambda d: dtype_kind(d) == "i",
    "unsigned integer": lambda d: dtype_kind(d) == "u",
    "integral": is_integer,
    "real floating": is_float,
    "complex floating": is_complex,
    "numeric": lambda d: d.kind not in "bk",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind, as the array API standard names kinds.

    Args: dtype: a dtype; kind: a dtype, a kind such as "real floating", or a tuple of kinds.
    Returns: a bool. Raises: DtypeError for an unknown kind.

    >>> import rlx.numpy as jnp
    >>> jnp.isdtype(jnp.float32, ("integral", "real floating"))
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    wanted = to_dtype(dtype)
    if isinstance(kind, str) and kind in _KINDS:
        return bool(_KINDS[kind](wanted))
    return wanted == to_dtype(kind)


def _promotion_pair(value: Any) -> tuple[np.dtype, bool]:
    if is_array(value):
        return value.dtype, value.weak_type
    if isinstance(value, np.generic):
        return narrowed(value.dtype), False
    if isinstance(value, SCALARS):
        return scalar_dtype(value, config.default_float, config.default_int), True
    if any(value is kind for kind in SCALARS):
        return to_dtype(value), value is not bool
    return narrowed(dtype_of(value.dtype)) if isinstance(value, np.ndarray) else to_dtype(value), False


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype that arrays, scalars and dtypes promote to.

    Args: args: arrays, Python scalars (weak) and dtypes (None: the default float);
        return_weak_type_flag: also return whether the result is weak.
    Returns: a NumPy dtype, or (dtype, bool). Raises: TypePromotionError if no implicit promotion exists.

    >>> import rlx.numpy as jnp
    >>> jnp.result_type(jnp.int32, 1.0)
    dtype('float32')
    """
    if not args:
        raise DtypeError("result_type got no arguments.", "Pass at least one array or dtype.")
    pairs = [(config.default_float, False) if a is None else _promotion_pair(a) for a in args]
    if wide_scalars_yield() and not all(isinstance(a, (*SCALARS, np.generic)) for a in args):
        pairs = [(d, isinstance(a, WIDE_SCALARS) or w) for a, (d, w) in zip(args, pairs, strict=True)]
    if config.numpy_dtype_promotion == "strict":
        check_dtypes(tuple(pairs))
    try:
        dtype, weak = promote_dtypes(pairs, config.default_float, config.default_int)
    except TypeError:
        names = " and ".join(dtype.name for dtype, _ in pairs)
        raise TypePromotionError(f"No implicit promotion between {names}.", "Convert with .astype(...).") from None
    if weak:
        dtype = _at_least_default(dtype)
    return (dtype, weak) if return_weak_type_flag else dtype


def _at_least_default(dtype: np.dtype) -> np.dtype:
    """The dtype of a weak number on its own: the default of its kind, unless that is narrower than `dtype`."""
    kind = dtype_kind(dtype)
    if kind == "b":
        return dtype
    default = complex_dtype(config.default_float) if kind == "c" else config.default_float
    if kind in "iu":
        default = np.dtype(f"{kind}{config.default_int.itemsize}")
    return default if default.itemsize >= dtype.itemsize else dtype


def promote_types(a: Any, b: Any) -> np.dtype:
    """The dtype to which two dtypes promote.

    Args: a, b: dtypes. Returns: a NumPy dtype. Raises: TypePromotionError if there is none.

    >>> import rlx.numpy as jnp
    >>> jnp.promote_types("int32", "float16")
    dtype('float16')
    """
    return result_type(a, b)


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether NumPy's casting rules allow a conversion.

    Args: from_, to: dtypes (or an array as from_); casting: NumPy's name of a rule.
    Returns: a bool.

    >>> import rlx.numpy as jnp
    >>> jnp.can_cast("int32", "float64")
    True
    """
    rule: Any = casting
    return bool(np.can_cast(_dtype_argument(from_), to_dtype(to), rule))


def unwrapped(value: Any) -> Any:
    """The array of an object's __jax_array__, or the object itself."""
    return value.__jax_array__() if hasattr(value, "__jax_array__") else value


def isscalar(element: Any) -> bool:
    """Whether the argument is a number or a 0-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.isscalar(3.0), jnp.isscalar(jnp.ones(1))
    (True, False)
    """
    element = unwrapped(element)
    return bool(np.isscalar(element)) or (is_array_or_numpy(element) and element.ndim == 0)


def iscomplexobj(x: Any) -> bool:
    """Whether the argument has a complex dtype.

    >>> import rlx.numpy as jnp
    >>> jnp.iscomplexobj(1j)
    True
    """
    x = unwrapped(x)
    return is_complex(x.dtype) if is_array(x) else bool(np.iscomplexobj(x))


def isrealobj(x: Any) -> bool:
    """Whether the argument has a dtype that is not complex.

    >>> import rlx.numpy as jnp
    >>> jnp.isrealobj(1.0)
    True
    """
    return not iscomplexobj(x)


def ndim(a: Any) -> int:
    """Number of axes of an array or nested sequence.

    >>> import rlx.numpy as jnp
    >>> jnp.ndim([[1, 2]])
    2
    """
    return len(shape(a))


def shape(a: Any) -> tuple[int, ...]:
    """Sizes of the axes of an array or nested sequence.

    >>> import rlx.numpy as jnp
    >>> jnp.shape(jnp.zeros((2, 3)))
    (2, 3)
    """
    a = unwrapped(a)
    return tuple(a.shape) if hasattr(a, "shape") else np.shape(a)


def size(a: Any, axis: Any = None) -> int:
    """Number of elements, in all or along an axis or several.

    >>> import rlx.numpy as jnp
    >>> jnp.size(jnp.zeros((2, 3))), jnp.size(jnp.zeros((2, 3)), 1)
    (6, 3)
    """
    sizes = shape(a)
    return math.prod(sizes[i] for i in canonical_axes(axis, len(sizes), "size"))


def iterable(y: Any) -> bool:
    """Whether the argument is iterable.

    >>> import rlx.numpy as jnp
    >>> jnp.iterable(jnp.ones(3)), jnp.iterable(1)
    (True, False)
    """
    if is_array(y):
        return y.ndim > 0
    return bool(np.iterable(y))
