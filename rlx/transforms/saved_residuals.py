"""The residuals that a derivative keeps: print_saved_residuals."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlx.errors import short_name
from rlx.ir.program import Equation, Origin, Program, Var
from rlx.ir.types import TensorType
from rlx.ops.checkpoint_name import checkpoint_name
from rlx.trace.flat import flatten_call, function_name, named_after
from rlx.trace.lower import inline_calls
from rlx.trace.tracing import trace_program
from rlx.transforms.forward import LinearizedCall
from rlx.trees import tree

__all__ = ["print_saved_residuals"]


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print a line for each array that `vjp(f, *args)` keeps for the backward pass: its type and origin.

    args, kwargs: the arguments of `f`; nothing is computed with them.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.ad_checkpoint import print_saved_residuals
    >>> def f(x, y):
    ...     return jnp.sum(jnp.sin(x) * y)
    >>> print_saved_residuals(rlx.checkpoint(f), jnp.ones(3), jnp.ones(3))
    float32[3] from the argument x
    float32[3] from the argument y
    >>> print_saved_residuals(f, jnp.ones(3), jnp.ones(3))
    float32[3] from the argument y
    float32[3] output of sin from <doctest...>:2 (f)
    float32[3] output of cos from <doctest...>:2 (f)
    """
    for type, source in _saved(f, args, kwargs):
        print(f"{type.strong()!r} {source}")


def _saved(f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[tuple[TensorType, str]]:
    """Type and source of each residual: literals, constants, arguments, and results in their order."""
    bound = inspect.signature(f).bind(*args, **kwargs)
    names = list(bound.arguments)
    given = tuple(bound.arguments.values())
    leaves, treedef = flatten_call(given, {}, f"an argument of {function_name(f)}")

    @named_after(f)
    def of_bound(*values: Any) -> Any:
        bound.arguments.update(zip(names, values, strict=True))
        return f(*bound.args, **bound.kwargs)

    def residuals(*xs: Any) -> Sequence[Any]:
        values, _ = tree.unflatten(treedef, xs)
        return LinearizedCall(of_bound, values, {}).residuals

    program, captured = trace_program(residuals, [x.type for x in leaves], None, function_name(f))
    paths = [names[path[0].idx] + tree.path_text(path[1:]) for path, _ in tree.leaves_with_path(given)]
    return _sources(inline_calls(program), [None] * len(captured) + paths)


def _sources(program: Program, arguments: Sequence[str | None]) -> Iterator[tuple[TensorType, str]]:
    """`arguments`: the name of each input; None for closed-over values."""
    results = list(dict.fromkeys(program.outputs))
    constants = [var for var, _ in program.constants]
    yield from ((atom.type, "from a literal") for atom in results if not isinstance(atom, Var))
    inputs = [*zip(constants, [None] * len(constants), strict=True), *zip(program.inputs, arguments, strict=True)]
    for var, name in inputs:
        if var in results:
            yield var.type, "from a constant" if name is None else f"from the argument {name}"
    for equation in program.equations:
        yield from ((var.type, _made_by(equation)) for var in equation.outputs if var in results)


def _made_by(equation: Equation) -> str:
    place = "" if equation.origin is None else f" from {_place(equation.origin)}"
    if equation.primitive is checkpoint_name:
        return f"named {equation.params['name']!r}{place}"
    return f"output of {equation.primitive.name}{place}"


def _place(origin: Origin) -> str:
    return str(origin._replace(file=short_name(origin.file)))
