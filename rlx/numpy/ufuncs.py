"""ufunc: an elementwise function that can also reduce, accumulate, update at indices and form outer products."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.types import dtype_kind
from rlx.numpy import folds
from rlx.numpy.creation import count_along
from rlx.numpy.functional import vectorize
from rlx.numpy.index_dtypes import index_dtype
from rlx.numpy.lookups import take
from rlx.numpy.manipulation import moveaxis, ravel, reshape
from rlx.numpy.promotion import (
    broadcast_array,
    canonical_axes,
    canonical_axis,
    convert_to,
    fill,
    known_numpy,
    operand,
    to_dtype,
)
from rlx.ops import shape as shapes
from rlx.trace.builder import is_traced
from rlx.trace.flat import as_array

__all__ = ["frompyfunc", "ufunc"]

Function = Callable[..., Any]


class ufunc:
    """An elementwise function with the methods of NumPy's ufuncs.

    Args: func: a function of `nin` scalars with `nout` results; name; nargs; identity: the operand that
    leaves the other unchanged; call, reduce, accumulate, at, reduceat: implementations of the methods of
    these names, instead of implementations that use func.

    >>> import rlx.numpy as jnp
    >>> jnp.add.outer(jnp.array([1, 2]), jnp.array([10, 20]))
    Array([[11, 21],
           [12, 22]], dtype=int32)
    """

    def __init__(
        self,
        func: Function,
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Function | None = None,
        reduce: Function | None = None,
        accumulate: Function | None = None,
        at: Function | None = None,
        reduceat: Function | None = None,
    ) -> None:
        self.__doc__ = func.__doc__
        self.__name__ = self.__qualname__ = name or getattr(func, "__name__", "ufunc")
        self._function = func
        self._counts = operator.index(nin), operator.index(nout), operator.index(nin if nargs is None else nargs)
        self._identity = identity
        self.__signature__ = _signature(self.nin)
        self._call = vectorize(func) if call is None else call
        self._reduce = self._fold if reduce is None else reduce
        self._accumulate = self._fold_all if accumulate is None else accumulate
        self._at = self._update if at is None else at
        self._reduceat = self._fold_between if reduceat is None else reduceat

    @property
    def nin(self) -> int:
        """Number of operands."""
        return self._counts[0]

    @property
    def nout(self) -> int:
        """Number of results."""
        return self._counts[1]

    @property
    def nargs(self) -> int:
        """Number of arguments."""
        return self._counts[2]

    @property
    def identity(self) -> Any:
        """The operand that leaves the other one unchanged, or None."""
        return self._identity

    def __call__(self, *args: Any, out: None = None, where: None = None) -> Array:
        if out is not None or where is not None:
            self._refuse(out=out, where=where)
        return self._call(*args)

    def __repr__(self) -> str:
        return f"<rlx.numpy.ufunc '{self.__name__}'>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.__module__ != __name__:  # one of a module's own: found by its name
            return self.__name__
        return _restored, (self._function, self.nin, self.nout, self.nargs, self.__name__, self.identity)

    def _key(self) -> tuple[Any, ...]:
        return self._function, self.__name__, self.nin, self.nout, self.nargs, self.identity

    # -------------------------------------------------------------- unsupported
    def _refuse(self, **options: Any) -> None:
        for option, value in options.items():
            if value is not None:
                raise UnsupportedError(
                    f"{self.__name__} does not take {option}=.",
                    "Arrays cannot be written to: use the result." if option == "out" else "Use rlx.numpy.where.",
                )

    def _binary_only(self, method: str, out: Any = None) -> None:
        self._refuse(out=out)
        if self.nin != 2 or self.nout != 1:
            raise ValueError(
                f"{self.__name__}.{method} is undefined: it needs a function of two operands with one result,"
                f" this one has {self.nin} and {self.nout}."
            )

    # -------------------------------------------------------------- reduce
    def reduce(
        self,
        a: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """The function applied to all elements along an axis, from left to right.

        Args: a: array; axis: int, or ints, or None for all; dtype: to compute in; keepdims: keep the
        axes with size 1; initial: the start value; where: bool array, the elements that are used.
        Returns: an array. Raises: ValueError unless the function has two operands and one result,
        and without elements (or with `where`) if there is neither identity nor initial.

        >>> import rlx.numpy as jnp
        >>> jnp.subtract.reduce(jnp.array([10, 3, 2]))
        Array(5, dtype=int32)
        """
        self._binary_only("reduce", out)
        if where is not None:
            where = as_array(operand(where, self.__name__))
            if where.dtype.kind != "b":
                raise DtypeError(f"{self.__name__}.reduce got where= of dtype {where.dtype.name}.", "Pass a bool mask.")
            if self.identity is None and initial is None:
                raise ValueError(f"{self.__name__} has no identity: {self.__name__}.reduce with where= needs initial=.")
        return self._reduce(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)

    def _operand(self, a: Any, dtype: Any) -> Any:
        x = as_array(operand(a, self.__name__))
        wanted = folds.result_dtype(self._function, x.dtype, x.dtype) if dtype is None else to_dtype(dtype)
        return convert_to(x, wanted)

    def _fold(self, a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Any:
        x = self._operand(a, dtype)
        axes = canonical_axes(axis, x.ndim, self.__name__)
        kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        result_shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else kept
        front = [x] if where is None else [x, broadcast_array(where, x.shape)]
        front = [reshape(moveaxis(v, axes, tuple(range(len(axes)))), (_size(x, axes), *kept)) for v in front]
        initial = self.identity if initial is None else initial
        if initial is None and front[0].shape[0] == 0:
            raise ValueError(f"{self.__name__}.reduce got no elements, and {self.__name__} has no identity.")
        mask = front[1] if where is not None else None
        return reshape(folds.folded(self._call, front[0], initial, mask), result_shape)

    # -------------------------------------------------------------- accumulate
    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """The intermediate results of `reduce`: element i is the result for the first i + 1 elements.

        Args: a: array; axis: int; dtype: to compute in. Returns: an array of a's shape.
        Raises: ValueError unless the function has two operands and one result.

        >>> import rlx.numpy as jnp
        >>> jnp.multiply.accumulate(jnp.array([2, 3, 4]))
        Array([ 2,  6, 24], dtype=int32)
        """
        self._binary_only("accumulate", out)
        if axis is None or isinstance(axis, (tuple, list)):
            raise ValueError(f"{self.__name__}.accumulate runs along one axis, it got axis={axis}.")
        return self._accumulate(a, axis=axis, dtype=dtype)

    def _fold_all(self, a: Any, axis: int, dtype: Any) -> Any:
        x = self._operand(a, dtype)
        number = canonical_axis(axis, x.ndim, self.__name__)
        return moveaxis(folds.accumulated(self._call, moveaxis(x, number, 0)), 0, number)

    # -------------------------------------------------------------- at
    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Array:
        """An array with the function applied at some indices, once for each occurrence of an index.

        Args: a: array; indices: as in a[indices]; b: the second operands, which broadcast; inplace:
        must be False, since arrays cannot be written to.
        Returns: an array of a's shape and dtype. Raises: UnsupportedError for inplace=True;
        ValueError if b does not go with the number of operands.

        >>> import rlx.numpy as jnp
        >>> jnp.add.at(jnp.zeros(3), jnp.array([0, 2, 2]), 1.0, inplace=False)
        Array([1., 0., 2.], dtype=float32)
        """
        if inplace:
            raise UnsupportedError(
                f"{self.__name__}.at does not write into an array.",
                f"Write x = rlx.numpy.{self.__name__}.at(x, indices, values, inplace=False).",
            )
        if self.nin != (1 if b is None else 2) or self.nout != 1:
            raise ValueError(f"{self.__name__}.at got {'no' if b is None else 'a'} second operand.")
        return self._at(a, indices) if b is None else self._at(a, indices, b)

    def _update(self, a: Any, indices: Any, *operands: Any) -> Any:
        x = as_array(operand(a, self.__name__))
        numbers = reshape(count_along((x.size,), 0, index_dtype(x.size)), x.shape)
        places = numbers.at[indices].get(mode="fill", fill_value=x.size)
        others = [ravel(broadcast_array(as_array(operand(b, self.__name__)), places.shape)) for b in operands]
        return reshape(folds.updated(self._call, ravel(x), ravel(places), others), x.shape)

    # -------------------------------------------------------------- outer
    def outer(self, A: Any, B: Any, /) -> Array:
        """The function of every element of A with every element of B.

        Args: A, B: arrays. Returns: an array of shape A.shape + B.shape.
        Raises: ValueError unless the function has two operands.

        >>> import rlx.numpy as jnp
        >>> jnp.multiply.outer(jnp.array([1, 2]), jnp.array([3, 4])).tolist()
        [[3, 4], [6, 8]]
        """
        if self.nin != 2:
            raise ValueError(f"{self.__name__}.outer is undefined: it needs a function of two operands.")
        x, y = [as_array(operand(v, self.__name__)) for v in (A, B)]
        return self(reshape(x, x.shape + (1,) * y.ndim), y)

    # -------------------------------------------------------------- reduceat
    def reduceat(self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """`reduce` of the parts between indices: a[i0:i1], a[i1:i2], ..., a[in:].

        Args: a: array; indices: 1-d integers; an empty part gives the element at its
        start; axis: int; dtype: to compute in.
        Returns: an array with one element for each index along the axis.
        Raises: IndexError for an index out of bounds; ValueError unless the function has two operands.

        >>> import rlx.numpy as jnp
        >>> jnp.add.reduceat(jnp.array([1, 2, 3, 4]), jnp.array([0, 2]))
        Array([3, 7], dtype=int32)
        """
        self._binary_only("reduceat", out)
        if axis is None or isinstance(axis, (tuple, list)):
            raise ValueError(f"{self.__name__}.reduceat runs along one axis, it got axis={axis}.")
        return self._reduceat(a, indices, axis=axis, dtype=dtype)

    def _fold_between(self, a: Any, indices: Any, axis: int, dtype: Any) -> Any:
        x = self._operand(a, dtype)
        number = canonical_axis(axis, x.ndim, self.__name__)
        x = moveaxis(x, number, 0)
        starts = _piece_starts(self.__name__, indices, x.shape[0])
        if starts.shape[0] == 0:
            return moveaxis(fill((0, *x.shape[1:]), 0, x.dtype), 0, number)
        last = fill((1,), x.shape[0], starts.dtype)
        ends = shapes.concatenate(shapes.slice_along(starts, 1, starts.shape[0], 0), last, axis=0)
        firsts = take(x, starts, axis=0, mode="clip")
        return moveaxis(folds.folded_between(self._call, x, starts, ends, firsts), 0, number)


def _signature(nin: int) -> inspect.Signature:
    """The result of inspect.signature: the operands, by position only, then out and where."""
    names = ("x",) if nin == 1 else tuple(f"x{i + 1}" for i in range(nin))
    operands = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
    options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in ("out", "where")]
    return inspect.Signature([*operands, *options])


def _restored(func: Function, nin: int, nout: int, nargs: int, name: str, identity: Any) -> ufunc:
    return ufunc(func, nin, nout, name=name, nargs=nargs, identity=identity)


def _size(x: Any, axes: tuple[int, ...]) -> int:
    size = 1
    for axis in axes:
        size *= x.shape[axis]
    return size


def _piece_starts(name: str, indices: Any, size: int) -> Any:
    """The indices of reduceat as a 1-d array; known ones out of bounds are refused."""
    starts = as_array(np.asarray(indices) if isinstance(indices, (list, tuple)) else indices, "indices")
    if starts.ndim != 1 or dtype_kind(starts.dtype) not in "iu":
        raise ShapeError(f"{name}.reduceat got indices {starts.type!r}.", "Pass 1-d integers.")
    if starts.shape[0] and not (is_traced(starts) and starts.known() is None):
        values = known_numpy(starts, name, "")
        if values.min() < 0 or values.max() >= size:
            raise IndexError(f"{name}.reduceat got an index that is out of bounds for an axis of size {size}")
    return convert_to(starts, index_dtype(size))


def frompyfunc(func: Function, /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """A ufunc from a function of scalars.

    Args: func: takes `nin` scalars, returns `nout`; identity: the operand that leaves the other unchanged.
    Returns: a ufunc.

    >>> import rlx.numpy as jnp
    >>> larger = jnp.frompyfunc(lambda x, y: jnp.maximum(x, y), 2, 1)
    >>> larger.reduce(jnp.array([3, 7, 5]))
    Array(7, dtype=int32)
    """
    return ufunc(func, nin, nout, identity=identity)
