"""Wrappers composed of the transforms: hvp, jacobians, hessian, eval_shape, closure_convert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from rlx.array import Array, beside, wrap
from rlx.errors import DtypeError, TreeMismatchError
from rlx.ir.types import is_complex, is_inexact
from rlx.ops.shape import reshape, slice_along
from rlx.trace.builder import is_traced
from rlx.trace.flat import FlatFunction, as_array, flatten_call, function_name, is_float0, named_after, shared_array
from rlx.trace.interpret import interpret
from rlx.trace.tracing import trace_program
from rlx.transforms.forward import jvp
from rlx.transforms.reverse import grad, vjp
from rlx.transforms.vmap import vmap
from rlx.trees import tree

__all__ = ["closure_convert", "hessian", "hvp", "jacfwd", "jacrev"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def hvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of the Hessian of a scalar function with a vector, without forming the Hessian.

    Forward over reverse: the derivative of `grad(fun)` along `tangents`.

    Args:
      fun: returns one real number; differentiated with respect to its first argument.
      primals, tangents: tuples of arguments and directions, as for `jvp`.

    Returns: an array (or tree) like the first argument.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.hvp(lambda x: jnp.sum(x ** 3), (jnp.array([1.0, 2.0]),), (jnp.array([1.0, 1.0]),))
    Array([ 6., 12.], dtype=float32)
    """
    return jvp(grad(fun), primals, tangents)[1]


def _basis(leaves: Sequence[Array]) -> list[Array]:
    """The standard basis of a list of arrays: one leading axis over all their elements."""
    total, start, out = sum(x.size for x in leaves), 0, []
    for x in leaves:
        rows = np.zeros((total, x.size), x.dtype)
        rows[np.arange(start, start + x.size), np.arange(x.size)] = 1
        out.append(beside(wrap(rows.reshape(total, *x.shape)), x))
        start += x.size
    return out


def _unstack(matrix: Any, leaves: Sequence[Array], axis: int) -> list[Any]:
    """Cut axis `axis` (over all elements of `leaves`) and give each piece the leaf's shape."""
    out, start = [], 0
    for x in leaves:
        piece = slice_along(matrix, start, start + x.size, axis)
        shape = (*piece.shape[:axis], *x.shape, *piece.shape[axis + 1 :])
        out.append(reshape(piece, shape=shape))
        start += x.size
    return out


def _zeros_of(argument: Array, leaves: Sequence[Array]) -> list[Any]:
    """The Jacobian of each leaf by an argument of integers."""
    zeros = [wrap(np.zeros((*x.shape, *argument.shape), argument.dtype)) for x in leaves]
    return [beside(z, argument) for z in zeros]


def select_arguments(args: Sequence[Any], argnums: int | Sequence[int]) -> Any:
    return args[argnums] if isinstance(argnums, int) else tuple(args[i] for i in argnums)


def restricted(
    fun: Callable[..., Any], args: Sequence[Any], argnums: int | Sequence[int], kwargs: dict[str, Any]
) -> Callable[[Any], Any]:
    """The function of the chosen arguments alone."""

    def chosen(part: Any) -> Any:
        full = list(args)
        for i, value in [(argnums, part)] if isinstance(argnums, int) else zip(argnums, part, strict=True):
            full[i] = value
        return fun(*full, **kwargs)

    return chosen


def _check(name: str, fun: Any, part: Any, holomorphic: bool, allow_int: bool) -> None:
    complex_too = holomorphic or name == "jacrev"  # a real function of complex numbers has a gradient
    for x in tree.leaves(part):
        dtype = shared_array(x).dtype
        if holomorphic and not is_complex(dtype):
            raise DtypeError(
                f"{name} of {function_name(fun)} with holomorphic=True takes complex arguments, got {dtype}.",
                "Convert the argument to complex, or leave holomorphic out.",
            )
        if (is_complex(dtype) and not complex_too) or not (is_inexact(dtype) or allow_int):
            raise DtypeError(
                f"{name} of {function_name(fun)} with respect to an argument of dtype {dtype}.",
                "Convert it to float, choose other argnums, or pass holomorphic=True for complex functions.",
            )


def jacfwd(
    fun: Callable[Parameters, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[Parameters, Any]:
    """The Jacobian, column by column in forward mode: for functions with more results than arguments.

    Returns: a function whose result has, for each result array of shape R and each chosen argument of
    shape A, an array of shape R + A (trees of results outside, of arguments inside).

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.jacfwd(lambda x: x ** 2)(jnp.array([1.0, 3.0]))
    Array([[2., 0.],
           [0., 6.]], dtype=float32)
    """

    @named_after(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        part = select_arguments(args, argnums)
        _check("jacfwd", fun, part, holomorphic, False)
        leaves, treedef = tree.flatten(part)
        arrays = [as_array(x) for x in leaves]
        chosen = restricted(fun, args, argnums, kwargs)

        def push(*directions: Any) -> Any:
            out = jvp(chosen, (part,), (tree.unflatten(treedef, directions),), has_aux)
            return (out[1], out[0], out[2]) if has_aux else (out[1], out[0])

        columns, *rest = vmap(push, out_axes=(-1, *[None] * (2 if has_aux else 1)))(*_basis(arrays))
        result = tree.map(lambda m: tree.unflatten(treedef, _unstack(m, arrays, m.ndim - 1)), columns)
        return (result, rest[1]) if has_aux else result

    return function


def jacrev(
    fun: Callable[Parameters, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Parameters, Any]:
    """The Jacobian, row by row in reverse mode: for functions with fewer results than arguments.

    Returns as `jacfwd`.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.jacrev(lambda x: jnp.sum(x ** 2, keepdims=True))(jnp.array([1.0, 3.0]))
    Array([[2., 6.]], dtype=float32)
    """

    @named_after(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        part = select_arguments(args, argnums)
        _check("jacrev", fun, part, holomorphic, allow_int)
        chosen = restricted(fun, args, argnums, kwargs)
        result, pull, *auxiliary = vjp(chosen, part, has_aux=has_aux)
        leaves, treedef = tree.flatten(result)
        arrays = [as_array(x) for x in leaves]
        if not holomorphic and any(is_complex(x.dtype) for x in arrays):
            raise DtypeError(
                f"jacrev takes a function with real results; {function_name(fun)} returned complex ones.",
                "Pass holomorphic=True for a holomorphic function, or use the real and imaginary parts.",
            )
        rows = vmap(lambda *cts: pull(tree.unflatten(treedef, cts))[0])(*_basis(arrays))
        row_leaves, row_tree = tree.flatten(rows)
        pieces = [
            _zeros_of(as_array(x), arrays) if is_float0(m) else _unstack(m, arrays, 0)
            for m, x in zip(row_leaves, tree.leaves(part), strict=True)
        ]
        by_result = [tree.unflatten(row_tree, [p[i] for p in pieces]) for i in range(len(arrays))]
        jacobian = tree.unflatten(treedef, by_result)
        return (jacobian, auxiliary[0]) if has_aux else jacobian

    return function


def hessian(
    fun: Callable[Parameters, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[Parameters, Any]:
    """The Hessian of a function, forward over reverse.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.hessian(lambda x: x[0] * x[1])(jnp.array([2.0, 3.0]))
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """`fun` with the traced floats that it closes over made explicit.

    Derivatives flow through explicit arguments only: for custom derivative rules of functions that
    close over values being differentiated. Constant arrays stay closed over.

    Returns: (converted, values) with converted(*args, *values) equal to fun(*args).

    >>> import rlx
    >>> def scaled(scale):
    ...     converted, values = rlx.closure_convert(lambda x: x * scale, 1.0)
    ...     return converted(2.0, *values)
    >>> float(rlx.grad(scaled)(3.0))
    2.0
    """
    leaves, treedef = flatten_call(example_args, {})
    flat = FlatFunction(fun, treedef)
    types = [x.type for x in leaves]
    program, captured = trace_program(flat, types, leaves, flat.name, leaves)
    explicit = [is_traced(v) and is_inexact(v.dtype) for v in captured]

    def converted(*args_and_values: Any) -> Any:
        args = args_and_values[: len(example_args)]
        values = iter(args_and_values[len(example_args) :])
        found, given = flatten_call(args, {})
        if given != treedef or len(args_and_values) != len(example_args) + sum(explicit):
            raise TreeMismatchError(
                f"The converted {flat.name} got {len(args_and_values)} arguments, the first of structure {given};"
                f" it takes arguments of structure {treedef}, and then {sum(explicit)} values.",
                "Call it as converted(*args, *values), with arguments of the structure of the examples.",
            )
        held = [next(values) if e else v for v, e in zip(captured, explicit, strict=True)]
        return flat.unflatten(interpret(program, [*held, *found]))

    return converted, [v for v, e in zip(captured, explicit, strict=True) if e]
