"""jax.api_util: functions of trees as functions of flat arrays (flax, dm-haiku, distrax, numpyro)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.errors import TreeMismatchError
from rlx.jaxnames.avals import AbstractArray, typeof
from rlx.jaxnames.linear_util import transformation_with_aux
from rlx.trees import tree

__all__ = ["DebugInfo", "debug_info", "flatten_fun", "flatten_fun_nokwargs", "safe_map", "shaped_abstractify"]


@dataclass(frozen=True)
class DebugInfo:
    """What a function is, for messages.

    >>> from rlx.jaxnames.api_util import debug_info
    >>> debug_info("jit", abs, (1.0,), {}).traced_for
    'jit'
    """

    traced_for: str
    func_src_info: Any
    arg_names: tuple[str, ...] | None = None
    result_paths: tuple[str, ...] | None = None


def debug_info(traced_for: str, fun: Callable[..., Any], args: Any, kwargs: Any, **options: Any) -> DebugInfo:
    """What a function is, for messages."""
    return DebugInfo(traced_for, getattr(fun, "__name__", repr(fun)))


@transformation_with_aux
def flatten_fun(in_tree: Any, *leaves: Any) -> Generator[Any, Any, Any]:
    """A function of (args, kwargs) as one of their leaves; beside it the tree of its result."""
    args, kwargs = tree.unflatten(in_tree, leaves)
    result = yield tuple(args), kwargs
    yield tree.flatten(result)


@transformation_with_aux
def flatten_fun_nokwargs(in_tree: Any, *leaves: Any) -> Generator[Any, Any, Any]:
    """As flatten_fun, for a function of args alone."""
    result = yield tuple(tree.unflatten(in_tree, leaves)), {}
    yield tree.flatten(result)


def safe_map(function: Callable[..., Any], *args: Sequence[Any]) -> list[Any]:
    """The list of function(a, b, ...) over sequences of one length; TreeMismatchError for several.

    >>> from rlx.jaxnames.api_util import safe_map
    >>> safe_map(max, [1, 5], [4, 2])
    [4, 5]
    """
    lists = [list(a) for a in args]
    if len({len(a) for a in lists}) > 1:
        raise TreeMismatchError(
            f"safe_map got sequences of lengths {', '.join(str(len(a)) for a in lists)}.", "Give them one length."
        )
    return list(map(function, *lists))


def shaped_abstractify(x: Any) -> AbstractArray:
    """The aval of an array or number."""
    return typeof(x)
