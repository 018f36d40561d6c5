"""Numba functions in programs: numba_call for arrays, numba_scalar for elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from rlx.array import Array
from rlx.config import config
from rlx.errors import DtypeError, UnsupportedError
from rlx.ir.types import TensorType, dtype_of, is_complex, promote_dtypes
from rlx.ops.arithmetic import convert
from rlx.ops.numba_call import numba_array_callback, numba_scalar_callback
from rlx.ops.numba_code import array_function, checked, scalar_function
from rlx.trace.flat import as_array
from rlx.trace.primitive import type_of
from rlx.trees import tree

__all__ = ["numba_call", "numba_scalar"]


def _result_type(leaf: Any) -> TensorType:
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        raise UnsupportedError(
            f"numba_call got the result type {leaf!r:.60}, which has no shape and dtype.",
            "Use rlx.ShapeDtypeStruct(shape, dtype), or an array of the result's type.",
        )
    return TensorType(tuple(int(d) for d in shape), dtype_of(dtype))


def numba_call(
    function: Callable[..., None],
    result_shape_dtypes: Any,
    *args: Any,
    vmap: Callable[..., tuple[Any, Any]] | None = None,
) -> Any:
    """The outputs of a @numba.njit function, called from compiled programs without Python or the GIL.

    The function is called as `function(*outputs, *inputs)` on row-major arrays, with arrays of shape () for scalars. It
    must write every element of its outputs, which are uninitialised; it returns nothing and must not write to its
    inputs (Numba prevents that, unless the function declares signatures). It must have no side effects: the call may be
    skipped or repeated. It has no derivative: wrap the call in rlx.custom_jvp or rlx.custom_vjp.

    Args:
      function: a function compiled by numba.njit.
      result_shape_dtypes: the outputs' types: a tree of rlx.ShapeDtypeStruct, or of arrays.
      args: arrays or numbers.
      vmap: how a batch is computed: `vmap(size, batched, *args) -> (results, batched)`; the bools of `batched` say
        which arrays have a leading batch axis. By default the function is called in a native loop.

    Raises: UnsupportedError if the function is not a Numba function, or cannot be compiled in nopython mode;
      CallbackError if it raises an exception.

    >>> import numba, numpy as np, rlx
    >>> @numba.njit
    ... def running_maximum(out, x):
    ...     best = x[0]
    ...     for i in range(x.size):
    ...         best = max(best, x[i])
    ...         out[i] = best
    >>> x = np.array([1.0, 3.0, 2.0])
    >>> rlx.jit(lambda x: rlx.numba_call(running_maximum, x, x) + 1)(x).tolist()
    [2.0, 4.0, 4.0]
    """
    dispatcher = checked(function, "numba_call")
    leaves, treedef = tree.flatten(result_shape_dtypes)
    outputs = tuple(map(_result_type, leaves))
    arrays = [as_array(a, "an argument of numba_call") for a in args]
    inputs = tuple(TensorType(t.shape, t.dtype) for t in map(type_of, arrays))
    compiled = array_function(dispatcher, inputs, outputs)
    results = numba_array_callback(*arrays, function=compiled, levels=(), rule=vmap)
    return tree.unflatten(treedef, results)


def numba_scalar(function: Callable[..., Any], dtype: Any = None) -> Callable[..., Array]:
    """A @numba.njit function of scalars as an elementwise operation, which fuses with others.

    Operands broadcast and keep their dtypes (bool, integers and floats; float16 and narrower ones
    are float32 inside); numbers take the arrays' dtype. In compiled programs a kernel calls the
    function's machine code for each element, on any thread and without the GIL. It must have no
    side effects and must not raise: from compiled programs Numba can only print an exception, and
    the element is undefined. So use numba.njit(error_model="numpy") for a function that divides.
    It has no derivative: wrap the call in rlx.custom_jvp or rlx.custom_vjp.

    Args:
      function: a function compiled by numba.njit.
      dtype: the result's dtype. By default, a float result has the dtype of the float operands, and any
        other the dtype that Numba infers.

    >>> import numba, rlx, rlx.numpy as jnp
    >>> @numba.njit
    ... def collatz(n):
    ...     steps = 0
    ...     while n != 1:
    ...         n = n // 2 if n % 2 == 0 else 3 * n + 1
    ...         steps += 1
    ...     return steps
    >>> rlx.jit(lambda n: rlx.numba_scalar(collatz)(n) * 10)(jnp.array([1, 6, 27])).tolist()
    [0, 80, 1110]
    """
    dispatcher = checked(function, "numba_scalar")
    result = None if dtype is None else dtype_of(dtype)
    if result is not None and is_complex(result):
        raise _no_complex(dispatcher.__name__)

    @wraps(dispatcher.py_func)
    def operation(*args: Any) -> Array:
        operands = _operands([as_array(a, "an argument of numba_scalar") for a in args])
        dtypes = tuple(type_of(x).dtype for x in operands)
        if any(map(is_complex, dtypes)):
            raise _no_complex(dispatcher.__name__)
        compiled = scalar_function(dispatcher, dtypes, result)
        return numba_scalar_callback(*operands, function=compiled)

    return operation


def _no_complex(name: str) -> DtypeError:
    return DtypeError(
        f"numba_scalar of {name} does not accept complex numbers.",
        "Pass real and imaginary parts separately, or use rlx.numba_call on whole arrays.",
    )


def _operands(arrays: list[Array]) -> list[Array]:
    """Convert weakly typed numbers to the dtype that they promote to with the arrays."""
    strong = [(x.dtype, False) for x in arrays if not type_of(x).weak]
    found = []
    for x in arrays:
        t = type_of(x)
        if t.weak:
            pairs = [(t.dtype, True), *strong]
            dtype, _ = promote_dtypes(pairs, config.default_float, config.default_int)
            x = convert(x, dtype=dtype, weak=False)
        found.append(x)
    return found
