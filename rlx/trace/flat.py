"""From calls with trees of arguments to flat functions over arrays, and back."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx import tree
from rlx.array import Array, ConcreteArray, asarray_numpy, wrap
from rlx.config import config
from rlx.errors import InputTypeError
from rlx.ir.types import scalar_dtype

__all__ = ["FlatFunction", "as_array", "function_name"]

_WEAK_GENERIC = (np.float64, np.int64, np.complex128)


def as_array(value: Any, what: str = "argument") -> Array:
    """An argument's leaf as an rlx array or tracer; InputTypeError names what was wrong with it."""
    if isinstance(value, Array):
        return value
    if isinstance(value, (bool, int, float, complex, *_WEAK_GENERIC)):
        plain = value.item() if isinstance(value, np.generic) else value
        dtype = scalar_dtype(plain, config.default_float, config.default_int)
        return ConcreteArray(np.asarray(plain, dtype), True)
    if isinstance(value, (np.ndarray, np.generic, memoryview, array)):
        return wrap(asarray_numpy(value))
    for protocol in ("__rlx_array__", "__jax_array__"):
        if hasattr(value, protocol):
            return as_array(getattr(value, protocol)(), what)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return wrap(asarray_numpy(np.asarray(value)))
    raise InputTypeError(
        f"{what[0].upper()}{what[1:]} is of type {type(value).__name__}, which is not an array, a number,"
        f" or a tree of them: {value!r:.80}.",
        "Pass arrays or numbers; in jit mark other arguments with static_argnums or static_argnames,"
        " or register the class with rlx.tree.register_node.",
    )


def function_name(function: Any) -> str:
    """A name for a callable, fit for an identifier."""
    while hasattr(function, "func"):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "function"


class FlatFunction:
    """`function` over flat arrays: unflattens its arguments, flattens and checks its result.

    After a call `out_tree` is the result's structure, and `auxiliary` the second result of a
    function with has_aux.
    """

    def __init__(
        self, function: Callable[..., Any], in_tree: tree.TreeDef, has_aux: bool = False, name: str = ""
    ) -> None:
        self.function = function
        self.in_tree = in_tree
        self.has_aux = has_aux
        self.name = name or function_name(function)
        self.out_tree: Any = None
        self.auxiliary_tree: Any = None
        self.results = 0

    def __call__(self, *leaves: Any) -> list[Array]:
        args, kwargs = tree.unflatten(self.in_tree, leaves)
        out = self.function(*args, **kwargs)
        extra: list[Any] = []
        if self.has_aux:
            if not (isinstance(out, tuple) and len(out) == 2):
                raise InputTypeError(
                    f"{self.name} was differentiated with has_aux=True but did not return a pair"
                    f" (result, auxiliary); it returned a {type(out).__name__}.",
                    "Return (result, auxiliary) from the function, or leave has_aux out.",
                )
            out, auxiliary = out
            extra, self.auxiliary_tree = tree.flatten(auxiliary)
        outs, self.out_tree = tree.flatten(out)
        self.results = len(outs)
        return [as_array(x, f"the result of {self.name}") for x in (*outs, *extra)]

    def unflatten(self, values: Sequence[Any]) -> Any:
        """The tree of results."""
        return tree.unflatten(self.out_tree, values[: self.results])

    def auxiliary(self, values: Sequence[Any]) -> Any:
        """The tree of auxiliary results."""
        return tree.unflatten(self.auxiliary_tree, values[self.results :])


def flatten_call(
    args: Sequence[Any], kwargs: dict[str, Any], what: str = "an argument"
) -> tuple[list[Array], tree.TreeDef]:
    """Leaves of (args, kwargs) as arrays, and their structure."""
    leaves, treedef = tree.flatten((tuple(args), kwargs))
    return [as_array(x, what) for x in leaves], treedef
