"""MLX functions in programs: mlx_call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.errors import UnsupportedError
from rlx.host.callback import result_types
from rlx.ir.types import TensorType
from rlx.ops.mlx_call import mlx_array_callback
from rlx.ops.mlx_code import mlx_function
from rlx.trace.flat import as_array
from rlx.trace.primitive import type_of
from rlx.trees import tree

__all__ = ["mlx_call"]


def mlx_call(
    function: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    vmap: Callable[..., tuple[Any, Any]] | None = None,
) -> Any:
    """Call a function of MLX arrays, as part of programs on the device mlx, elsewhere through the host.

    On the device mlx the function is called while a program is built, on lazy mx.arrays, and becomes part of it. It may
    use all of MLX, including mx.fast.metal_kernel, but must not evaluate arrays, and must have no side effects. On
    other devices it is called on copies of the arrays whenever the program runs. Its derivatives are computed by MLX
    (mx.vjp and mx.jvp; mx.custom_function adds a rule to a function without one), and may be nested.

    Args:
      function: takes an mx.array for each of args, of its shape and dtype; returns a tree of mx.arrays.
      result_shape_dtypes: the results' types: a tree of rlx.ShapeDtypeStruct, or of arrays.
      args: arrays or numbers.
      vmap: how a batch is computed: `vmap(size, batched, *args) -> (results, batched)`; the bools of `batched` say
        which arrays have a leading batch axis. The default is MLX's vmap.

    Raises: DeviceError if MLX is not installed; DtypeError for a dtype that MLX lacks; CallbackError if a result has
      another type than declared.

    >>> import numpy as np, rlx
    >>> import mlx.core as mx  # doctest: +SKIP
    >>> smooth = lambda x: mx.sigmoid(x) * x  # doctest: +SKIP
    >>> f = rlx.jit(lambda x: rlx.mlx_call(smooth, x, x) + 1.0, device="mlx")  # doctest: +SKIP
    >>> f(np.zeros(2, np.float32)).tolist()  # doctest: +SKIP
    [1.0, 1.0]
    """
    if not callable(function):
        raise UnsupportedError(
            f"mlx_call got {function!r:.60}, which is not a function.",
            "Pass a function of mx.arrays, then the types of its results.",
        )
    arrays = [as_array(a, "an argument of mlx_call") for a in args]
    inputs = tuple(TensorType(t.shape, t.dtype) for t in map(type_of, arrays))
    types, structure = result_types(result_shape_dtypes)
    called = mlx_function(function, inputs, tuple(types), structure)
    results = mlx_array_callback(*arrays, function=called, moving=(), rule=vmap)
    return tree.unflatten(structure, results)
