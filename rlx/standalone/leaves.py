"""The names of the leaves of arguments and results in a program's source code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rlx.backends.loops.names import identifier, unused_name
from rlx.backends.loops.place import FunctionParameter
from rlx.call.stages import Traced
from rlx.ir.types import TensorType
from rlx.trees import tree

__all__ = ["argument_names", "free_name", "places"]


def places(
    f: Callable[..., Any],
    types: Sequence[Any],
    traced: Traced,
    taken: set[str],
    replaced: Mapping[int, int] = MappingProxyType({}),
) -> tuple[list[FunctionParameter], list[FunctionParameter]]:
    """Arguments and results of a traced function, leaf by leaf; their names are not in `taken`, which grows.

    replaced: numbers of arguments, each with the number of the result that has its name.
    """
    program = traced.closed()
    leaves = zip(_arguments(f, types), program.input_types, strict=True)
    arguments = [FunctionParameter(free_name(meaning, taken), meaning, kind) for meaning, kind in leaves]
    routes = tree.leaves_with_path(tree.unflatten(traced.out_tree, program.output_types))
    meanings = [f"result{tree.path_text(route)}" for route, _ in routes]
    names = {result: arguments[argument].name for argument, result in replaced.items()}
    results = [
        FunctionParameter(names.get(number) or free_name("out", taken), meaning, kind)
        for number, (meaning, kind) in enumerate(zip(meanings, program.output_types, strict=True))
    ]
    return arguments, results


def _arguments(f: Callable[..., Any], types: Sequence[Any]) -> Iterable[str]:
    """A Python expression for each leaf of the arguments: `w['bias']`."""
    for own, argument in zip(argument_names(f, types), types, strict=True):
        yield from (own + tree.path_text(route) for route, _ in tree.leaves_with_path(argument, _is_type))


def argument_names(f: Callable[..., Any], arguments: Sequence[Any]) -> list[str]:
    """A name for each argument: the function's own, or x and a number."""
    try:
        names = list(inspect.signature(f).bind(*arguments).arguments)
    except (TypeError, ValueError):
        names = []
    return [names[number] if number < len(names) else f"x{number}" for number in range(len(arguments))]


def _is_type(value: Any) -> bool:
    return isinstance(value, TensorType)


def free_name(meaning: str, taken: set[str]) -> str:
    """A name for the source that is not in `taken`, to which it is added."""
    name = unused_name(identifier(meaning, "x"), taken)
    taken.add(name)
    return name
