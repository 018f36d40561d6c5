"""Calls of Python functions from inside programs: pure_callback and io_callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.array import Array, keys_over, wrap
from rlx.errors import CallbackError, UnsupportedError
from rlx.ir.types import TensorType, dtype_of, is_key
from rlx.ops import callback as ops
from rlx.ops.callback import VMAP_METHODS, HostFunction
from rlx.ops.random_keys import random_unwrap
from rlx.trace.flat import flatten_call, function_name
from rlx.trace.tracing import devices_in_scope
from rlx.trees import tree

__all__ = ["host_function", "io_callback", "pure_callback", "result_types"]


def result_types(result_shape_dtypes: Any) -> tuple[list[TensorType], tree.TreeDef]:
    """Types and structure of the declared results. Raises CallbackError for leaves without shape and dtype."""
    leaves, treedef = tree.flatten(result_shape_dtypes)
    types = []
    for leaf in leaves:
        shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
        if shape is None or dtype is None:
            raise CallbackError(
                f"A callback's result type is {leaf!r:.60}, which has no shape and dtype.",
                "Use rlx.ShapeDtypeStruct(shape, dtype), or an array of the result's type.",
            )
        types.append(TensorType(tuple(int(d) for d in shape), dtype_of(dtype)))
    return types, treedef


def host_function(
    callback: Callable[..., Any],
    leaves: Sequence[Array],
    in_tree: tree.TreeDef,
    types: Sequence[TensorType],
    out_tree: tree.TreeDef | None,
) -> tuple[HostFunction, list[Any]]:
    """`callback` as a function of flat rlx arrays, and its operands: the leaves, with keys represented by their words.

    It receives keys as keys. If out_tree is None, its result is dropped.
    """
    name = function_name(callback)
    keys: dict[int, Any] = {i: x.dtype for i, x in enumerate(leaves) if is_key(x.dtype)}

    def call(*arrays: Any) -> Sequence[Any]:
        given = [keys_over(keys[i].records_of(a)) if i in keys else wrap(a) for i, a in enumerate(arrays)]
        args, kwargs = tree.unflatten(in_tree, given)
        result = callback(*args, **kwargs)
        if out_tree is None:
            return ()
        leaves, found = tree.flatten(result)
        if len(leaves) != len(types):
            raise CallbackError(
                f"The callback {name} returned a result of structure {found} instead of {out_tree}.",
                "Return the tree of arrays that the result types describe.",
            )
        return leaves

    operands = [random_unwrap(x) if i in keys else x for i, x in enumerate(leaves)]
    return HostFunction(call, types, name), operands


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a Python function of arrays whenever a program needs its result.

    The function must have no side effects: the call may be skipped or repeated.

    Args:
      callback: takes concrete arrays (in the trees of args), which NumPy accepts; returns rlx or NumPy arrays.
      result_shape_dtypes: the result's type: a tree of rlx.ShapeDtypeStruct, or of arrays.
      vmap_method: how a batch is computed: "sequential", one call for each element; "expand_dims", one call with a
        leading batch axis on all arguments, of size 1 if they are not mapped; "broadcast_all", of the full size for
        all; "legacy_vectorized", without the axis if they are not mapped. Over several devices (rlx.shard_map,
        rlx.pmap) the default is "sequential".

    Raises: CallbackError if the result has another type than declared; 64-bit results are converted to declared 32-bit
      types, unless x64 is enabled. CallbackTransformError if the call is differentiated.

    >>> import numpy as np, rlx
    >>> from rlx.host.callback import pure_callback
    >>> x = np.ones(3, np.float32)
    >>> rlx.jit(lambda x: pure_callback(lambda v: np.flip(v) * 2, x, x))(x).tolist()
    [2.0, 2.0, 2.0]
    """
    if vmap_method is None and devices_in_scope() > 1:
        vmap_method = "sequential"  # once per device
    if vmap_method not in (None, *VMAP_METHODS):
        raise UnsupportedError(f"pure_callback has no vmap_method {vmap_method!r}.", f"Use one of {VMAP_METHODS}.")
    leaves, in_tree = flatten_call(args, kwargs, "an argument of a callback")
    types, out_tree = result_types(result_shape_dtypes)
    function, operands = host_function(callback, leaves, in_tree, types, out_tree)
    return tree.unflatten(out_tree, ops.pure_callback(*operands, function=function, vmap_method=vmap_method))


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function with side effects each time the program runs.

    Args:
      callback: takes concrete arrays (in the trees of args), returns arrays, as for pure_callback.
      result_shape_dtypes: the result's type: a tree of rlx.ShapeDtypeStruct or of arrays; None for no
        result.
      ordered: calls keep their order; such a call cannot be mapped by vmap.

    Raises: CallbackError as for pure_callback; CallbackTransformError if the call is differentiated, mapped although it
      is ordered, or in a branch or loop that vmap would run for elements that do not take it.

    >>> import rlx
    >>> from rlx.host.callback import io_callback
    >>> seen = []
    >>> _ = rlx.jit(lambda x: io_callback(lambda v: seen.append(v.item()), None, x))(3)
    >>> seen
    [3]
    """
    leaves, in_tree = flatten_call(args, kwargs, "an argument of a callback")
    types, out_tree = result_types(result_shape_dtypes)
    function, operands = host_function(callback, leaves, in_tree, types, out_tree)
    return tree.unflatten(out_tree, ops.io_callback(*operands, function=function, ordered=bool(ordered)))
