"""Names of the leaves of a call's arguments, for messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rlx.call.jit_options import parameter_at
from rlx.errors import InputTypeError
from rlx.trees import tree

__all__ = ["ArgumentTree", "leaf_names", "named_leaves", "refused_argument"]


class ArgumentTree(NamedTuple):
    """The dynamic arguments of a call of a function with their positions and names."""

    fun: Callable[..., Any]
    name: str
    numbered: Sequence[tuple[int, Any]]
    named: Sequence[tuple[str, Any]]


def _leaf_places(arguments: ArgumentTree) -> list[tuple[Any, str]]:
    """For each leaf the argument's position or keyword, and the path in it as text."""
    every: list[tuple[Any, Any]] = [*arguments.numbered, *arguments.named]
    return [(where, tree.path_text(path)) for where, value in every for path, _ in tree.leaves_with_path(value)]


def named_leaves(arguments: ArgumentTree) -> list[tuple[str, Any]]:
    """Each leaf, as it was passed, after the parameter that it belongs to and its path there: "x['a']"."""
    named = [(parameter_at(arguments.fun, i) or f"argument {i}", a) for i, a in arguments.numbered]
    named += arguments.named
    return [(name + tree.path_text(path), x) for name, value in named for path, x in tree.leaves_with_path(value)]


def leaf_names(arguments: ArgumentTree) -> list[str]:
    """The place of each leaf in the call: 0['a'], or 'y'[1] for a keyword."""
    return [f"{where!r}{path}" for where, path in _leaf_places(arguments)]


def refused_argument(arguments: ArgumentTree, number: int, error: InputTypeError) -> InputTypeError:
    """The error for a leaf that is not an array, with its place in the call and what to do with such an argument."""
    where, path = _leaf_places(arguments)[number]
    parameter = parameter_at(arguments.fun, where) if isinstance(where, int) else where
    place = f"Argument {where if parameter is None else repr(parameter)}{path} of {arguments.name}"
    general = f"An argument of {arguments.name}"
    if not error.what.startswith(general):  # an array, of something else than numbers
        return InputTypeError(f"{place}: {error.what}", error.instead)
    return InputTypeError(error.what.replace(general, place, 1), _instead(where, parameter, path))


def _instead(where: Any, parameter: str | None, path: str) -> str:
    """What to write instead of an argument that is not an array."""
    option = f"static_argnums={where}" if parameter is None else f"static_argnames={parameter!r}"
    if where == 0 and parameter == "self":
        return (
            "A method's object is its first argument: mark it static, @functools.partial(rlx.jit, static_argnums=0),"
            " which traces once for each object; or register its class with rlx.tree.register_dataclass, so that its"
            " arrays are traced."
        )
    if path:
        return (
            f"Trees hold arrays and numbers: take it out of the tree, or mark the whole argument static ({option})"
            " if it can be hashed, or register its class with rlx.tree.register_node."
        )
    return (
        f"Pass an array or a number; mark a setting static, rlx.jit(f, {option}); or register its class with"
        " rlx.tree.register_node."
    )
