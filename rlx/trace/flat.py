"""From calls with trees of arguments to flat functions over arrays, and back."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import WRAPPER_ASSIGNMENTS, wraps
from types import NoneType
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray, asarray_numpy, number_array, unshared, wrap
from rlx.config import config
from rlx.errors import InputTypeError, ReferenceUseError, describe, entered
from rlx.ir.types import TensorType, float0, scalar_dtype
from rlx.trace.builder import sized_tracer, state
from rlx.trace.hooks import execution, operations
from rlx.trace.spanning import at_border, is_spanning
from rlx.trees import tree

__all__ = [
    "FlatFunction",
    "as_array",
    "call_untraced",
    "check_function",
    "divided_like",
    "flatten_arrays",
    "function_name",
    "is_float0",
    "named_after",
    "shared_array",
    "tangent_array",
    "zero_tangent",
]


# mutable references are leaves that are not arrays; they are part of the structure if only arrays are wanted
opaque_types: set[type] = set()

_OPERAND = "Pass an array or a number."
_ARGUMENTS = (
    "Pass arrays and numbers. Let the function capture other values, or register their class with"
    " rlx.tree.register_node."
)
_RESULTS = (
    "Return arrays and numbers; keep other objects outside of the function, or return them from one that calls it."
)


def as_array(value: Any, what: str = "argument", instead: str = _OPERAND) -> Array:
    """An argument's leaf as an rlx array or tracer; InputTypeError explains why it is not one.

    Memory that others can write to is copied, so the result may be kept and returned.
    """
    if isinstance(value, Array):
        return value
    return _converted(value, what, _own if state.builder is None else state.builder.snapshot, instead)


def shared_array(value: Any, what: str = "argument") -> Array:
    """As `as_array`, over the memory of NumPy arrays: read before the call returns, and neither kept nor returned.

    While a program is being traced values are copied nevertheless, since they become its constants.
    """
    if isinstance(value, Array):
        return value
    return _converted(value, what, wrap if state.builder is None else state.builder.snapshot)


def _own(array: np.ndarray) -> ConcreteArray:
    return wrap(unshared(array))


def _converted(value: Any, what: str, hold: Callable[[np.ndarray], Array], instead: str = _OPERAND) -> Array:
    """Convert a foreign value to an rlx array; `hold` converts a NumPy array that others may own."""
    if isinstance(value, np.generic):  # first: np.float64 is also a float
        return wrap(asarray_numpy(value))
    if isinstance(value, (bool, int, float, complex)):
        dtype = scalar_dtype(value, config.default_float, config.default_int)
        sized = sized_tracer(value, dtype, True)
        return ConcreteArray(number_array(value, dtype), True) if sized is None else sized
    if isinstance(value, (np.ndarray, memoryview, array)):
        return hold(asarray_numpy(value))
    adopted = execution.adopted(value)
    if adopted is not None:
        return adopted
    for protocol in ("__rlx_array__", "__jax_array__"):
        if hasattr(value, protocol):
            found = getattr(value, protocol)()
            return found if isinstance(found, Array) else _converted(found, what, hold, instead)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return hold(asarray_numpy(np.asarray(value)))
    if type(value) in opaque_types:
        raise ReferenceUseError(
            f"{what[0].upper()}{what[1:]} is a Ref, which is not an array.", "Use its contents: ref[...]."
        )
    raise InputTypeError(
        f"{what[0].upper()}{what[1:]} is of type {type(value).__name__}, which is not an array, a number,"
        f" or a tree of them: {value!r:.80}.",
        instead,
    )


def function_name(function: Any) -> str:
    """A name for a callable, fit for an identifier."""
    while hasattr(function, "func"):
        function = function.func
    name = getattr(function, "__name__", "")
    if not isinstance(name, str) or not name:
        name = type(function).__name__
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "function"


def check_function(function: Any) -> None:
    """Raise InputTypeError if what a transform is applied to is not a function."""
    if not callable(function):
        name = entered()
        raise InputTypeError(
            f"{name} takes a function, but got {describe(function)}.",
            f"Pass the function and not its result: {name}(f), not {name}(f(x)).",
        )


_NAMED = {"__annotations__": dict, "__doc__": (str, NoneType), "__type_params__": tuple}  # and others are text


def named_after(fun: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that gives a function the name, documentation and attributes of `fun`, as far as it has them."""
    check_function(fun)
    # of a callable object with fields they may be anything: in a tree that vmap made they are of no type at all
    names = [n for n in WRAPPER_ASSIGNMENTS if isinstance(getattr(fun, n, None), _NAMED.get(n, str))]
    return wraps(fun, names)


def is_float0(value: Any) -> bool:
    """Whether a leaf is a zero tangent of integers or bools: a NumPy array of dtype float0."""
    return isinstance(value, (np.ndarray, np.void)) and value.dtype == float0


def zero_tangent(type: TensorType) -> Any:
    """The zero tangent that users see of a value without derivative: NumPy zeros of dtype float0."""
    return np.zeros(type.shape, float0)


def tangent_array(value: Any, what: str) -> Array:
    """A tangent or cotangent that a user gave as an array; one of dtype float0 as bools, which have none either."""
    return wrap(np.zeros(value.shape, bool)) if is_float0(value) else as_array(value, what)


class ZeroLeaf:
    """A node without leaves in a result: an array of dtype float0, which no program computes."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


tree.register_node(ZeroLeaf, lambda leaf: ((), leaf.shape), lambda shape, _: np.zeros(shape, float0))


class OpaqueLeaf:
    """A node without leaves in auxiliary data: an object that is not an array."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


tree.register_node(OpaqueLeaf, lambda leaf: ((), leaf.value), lambda value, _: value)


def _is_pythons_number(value: Any) -> bool:
    return type(value) in (bool, int, float, complex)


def _is_traced_data(value: Any) -> bool:
    """Whether auxiliary data passes through the program. Arrays do; Python numbers are returned unchanged."""
    if _is_pythons_number(value):
        return False
    try:
        as_array(value)
    except InputTypeError:
        return False
    return True


class FlatFunction:
    """`function` over flat arrays: unflattens its arguments, flattens and checks its result.

    After a call `out_tree` is the result's structure, and `auxiliary` the second result of a
    function with has_aux, which may have any objects among its arrays.
    """

    def __init__(
        self, function: Callable[..., Any], in_tree: tree.TreeDef, has_aux: bool = False, name: str = ""
    ) -> None:
        check_function(function)
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
                described = f"{len(out)} values" if isinstance(out, tuple) else describe(out)
                raise InputTypeError(
                    f"{self.name} was differentiated with has_aux=True but did not return a pair"
                    f" (result, auxiliary); it returned {described}.",
                    "Return (result, auxiliary) from the function, or leave has_aux out.",
                )
            out, auxiliary = out
            extra, self.auxiliary_tree = _flatten_auxiliary(auxiliary)
        outs, self.out_tree = flatten_values(out)
        self.results = len(outs)
        return [as_array(x, f"the result of {self.name}", _RESULTS) for x in (*outs, *extra)]

    def unflatten(self, values: Sequence[Any]) -> Any:
        """The tree of results."""
        return tree.unflatten(self.out_tree, values[: self.results])

    def auxiliary(self, values: Sequence[Any]) -> Any:
        """The tree of auxiliary results."""
        return tree.unflatten(self.auxiliary_tree, values[self.results :])


def call_untraced(function: Callable[..., Any], args: Sequence[Any], name: str) -> Any:
    """The result for these arguments outside traces: for arrays, and for unchanged Python numbers."""

    def taken(leaves: Sequence[Any], what: str, *hint: str) -> list[Any]:
        return [x if _is_pythons_number(x) else as_array(x, what, *hint) for x in leaves]

    leaves, treedef = flatten_arrays(tuple(args))
    out = function(*tree.unflatten(treedef, taken(leaves, f"an argument of {name}")))
    results, out_tree = flatten_values(out)
    return tree.unflatten(out_tree, taken(results, f"the result of {name}", _RESULTS))


def flatten_values(values: Any) -> tuple[list[Any], tree.TreeDef]:
    """Leaves and structure; arrays of dtype float0 are part of the latter."""
    leaves, treedef = flatten_local(values)
    if any(map(is_float0, leaves)):
        return flatten_local(tree.map(lambda x: ZeroLeaf(x.shape) if is_float0(x) else x, values))
    return leaves, treedef


def local_tree(values: Any) -> Any:
    """The tree with arrays that span processes replaced by nodes whose leaf is this process's part."""
    return at_border(values, tree.leaves(values))


def flatten_local(values: Any) -> tuple[list[Any], tree.TreeDef]:
    """Leaves and structure; for an array that spans processes, the leaf is this process's part."""
    leaves, treedef = tree.flatten(values)
    carried = at_border(values, leaves)
    return (leaves, treedef) if carried is values else tree.flatten(carried)


def divided_like(values: Any, structure: tree.TreeDef) -> Any:
    """Tangents, or cotangents, divided over processes like the arrays of a structure; None for absent ones.

    Values of another structure or shape stay unchanged: a later comparison reports them.
    """
    found, given = tree.flatten(values, _is_none)
    wanted, expected = tree.flatten(tree.unflatten(structure, range(structure.num_leaves)), _is_none)
    if given != expected or not any(is_spanning(x) for x in (*found, *wanted)):
        return values
    return tree.unflatten(given, list(map(_divided_as, found, wanted)))


def _is_none(value: Any) -> bool:
    return value is None


def _divided_as(x: Any, like: Any) -> Any:
    fits = isinstance(x, (Array, np.ndarray)) and not is_float0(x) and x.shape == getattr(like, "shape", x.shape)
    return operations.divided_as(x, like) if fits else x


def flatten_arrays(values: Any) -> tuple[list[Any], tree.TreeDef]:
    """Like flatten_local; opaque values are part of the structure."""
    leaves, treedef = flatten_local(values)
    if opaque_types.isdisjoint(map(type, leaves)):
        return leaves, treedef
    return flatten_local(tree.map(lambda x: OpaqueLeaf(x) if type(x) in opaque_types else x, values))


def _flatten_auxiliary(values: Any) -> tuple[list[Any], tree.TreeDef]:
    """Like flatten_values; Python numbers and objects that are not arrays are also part of the structure."""
    leaves, treedef = flatten_values(values)
    if all(map(_is_traced_data, leaves)):
        return leaves, treedef
    known = tree.unflatten(treedef, [x if _is_traced_data(x) else OpaqueLeaf(x) for x in leaves])
    return flatten_values(known)


def flatten_tangents(args: Sequence[Any], what: str, like: tree.TreeDef) -> tuple[list[Array], tree.TreeDef]:
    """As flatten_call, for tangents of arguments of the structure `like`."""
    leaves, treedef = flatten_local(divided_like((tuple(args), {}), like))
    return [tangent_array(x, what) for x in leaves], treedef


def flatten_call(
    args: Sequence[Any], kwargs: dict[str, Any], what: str = "an argument"
) -> tuple[list[Array], tree.TreeDef]:
    """Leaves of (args, kwargs) as arrays, and their structure; InputTypeError names the path of another leaf."""
    leaves, treedef = flatten_arrays((tuple(args), kwargs))
    arrays = []
    for x in leaves:
        try:
            arrays.append(as_array(x, what, _ARGUMENTS))
        except InputTypeError as error:
            path = next(path for path, leaf in tree.leaves_with_path((tuple(args), kwargs)) if leaf is x)[2:]
            place = f"The leaf {tree.path_text(path)} of {what} is of type"
            said = error.what.replace(f"{what[0].upper()}{what[1:]} is of type", place, 1) if path else error.what
            raise InputTypeError(said, error.instead) from None
    return arrays, treedef
