"""jax.dtypes' names: properties of element types."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.array import is_array_or_numpy
from rlx.errors import DtypeError, TypePromotionError
from rlx.ir.extended import KeyDtype, extended, prng_key
from rlx.ir.types import bits_of, float0
from rlx.numpy import bfloat16, finfo, iinfo, result_type
from rlx.numpy.promotion import to_dtype
from rlx.offered_names import offer_names

__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]

offer_names(globals())


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype of arrays that are created with `dtype`: the same, or its half for 64 bits if config.narrow is set.

    Raises DtypeError unless it is a dtype of rlx, and for key dtypes unless `allow_extended_dtype`.

    >>> import rlx
    >>> rlx.dtypes.canonicalize_dtype("float64")
    dtype('float64')
    """
    if isinstance(dtype, KeyDtype):
        if not allow_extended_dtype:
            raise DtypeError(f"{dtype} is not a dtype of numbers.", "Take random.key_data(key), an array of uint32.")
        return dtype
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return to_dtype(dtype)


def issubdtype(a: Any, b: Any) -> bool:
    """rlx.numpy.issubdtype with JAX's names of the parameters.

    >>> import rlx
    >>> rlx.dtypes.issubdtype("float32", rlx.numpy.floating)
    True
    """
    return jnp.issubdtype(a, b)


def itemsize_bits(dtype: Any) -> int:
    """The number of significant bits of an element: 4 for int4, though it takes a byte of memory.

    Raises DtypeError unless it is a dtype; None is not one.

    >>> import rlx
    >>> rlx.dtypes.itemsize_bits("float16")
    16
    """
    if dtype is None:
        raise DtypeError("itemsize_bits got None.", "Pass a dtype.")
    return bits_of(to_dtype(dtype))


def scalar_type_of(x: Any) -> type:
    """The Python type of numbers like the elements of `x`: bool, int, float or complex.

    Raises DtypeError unless x is a number or an array.

    >>> import rlx
    >>> rlx.dtypes.scalar_type_of(rlx.numpy.ones(3, "bfloat16"))
    <class 'float'>
    """
    dtype = x.dtype if is_array_or_numpy(x) or isinstance(x, np.generic) else np.asarray(x).dtype
    for category, kind in ((np.bool_, bool), (np.integer, int), (np.floating, float), (np.complexfloating, complex)):
        if issubdtype(dtype, category):
            return kind
    raise DtypeError(f"{x!r:.60} is not a number.", "Pass an array, or a Python number.")
