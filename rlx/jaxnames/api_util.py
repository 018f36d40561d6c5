"""jax.api_util: functions of trees as functions of flat arrays (flax, dm-haiku, distrax, numpyro)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any

from rlx.errors import NonHashableStaticArgumentError, TreeMismatchError
from rlx.jaxnames.avals import AbstractArray, typeof
from rlx.jaxnames.linear_util import WrappedFun, transformation_with_aux
from rlx.trees import tree, tree_util

__all__ = [
    "DebugInfo",
    "argnums_partial",
    "debug_info",
    "donation_vector",
    "flatten_axes",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "infer_argnums_and_argnames",
    "rebase_donate_argnums",
    "safe_map",
    "shaped_abstractify",
]


@dataclass(frozen=True)
class DebugInfo:
    """A function's description for messages.

    >>> from rlx.jaxnames.api_util import debug_info
    >>> debug_info("jit", abs, (1.0,), {}).traced_for
    'jit'
    """

    traced_for: str
    func_src_info: Any
    arg_names: tuple[str, ...] | None = None
    result_paths: tuple[str, ...] | None = None


def debug_info(traced_for: str, fun: Callable[..., Any], args: Any, kwargs: Any, **options: Any) -> DebugInfo:
    """A function's description for messages."""
    return DebugInfo(traced_for, getattr(fun, "__name__", repr(fun)))


@transformation_with_aux
def flatten_fun(in_tree: Any, *leaves: Any) -> Generator[Any, Any, Any]:
    """A function of (args, kwargs) as a function of their leaves; returns also the tree of its result."""
    args, kwargs = tree.unflatten(in_tree, leaves)
    result = yield tuple(args), kwargs
    yield tree.flatten(result)


@transformation_with_aux
def flatten_fun_nokwargs(in_tree: Any, *leaves: Any) -> Generator[Any, Any, Any]:
    """As flatten_fun, for a function of args only."""
    result = yield tuple(tree.unflatten(in_tree, leaves)), {}
    yield tree.flatten(result)


def safe_map(function: Callable[..., Any], *args: Sequence[Any]) -> list[Any]:
    """The list of function(a, b, ...) over sequences of one length; TreeMismatchError if the lengths differ.

    >>> from rlx.jaxnames.api_util import safe_map
    >>> safe_map(max, [1, 5], [4, 2])
    [4, 5]
    """
    lists = [list(a) for a in args]
    if len({len(a) for a in lists}) > 1:
        raise TreeMismatchError(
            f"safe_map got sequences of lengths {', '.join(str(len(a)) for a in lists)}.", "The lengths must be equal."
        )
    return list(map(function, *lists))


def shaped_abstractify(x: Any) -> AbstractArray:
    """The aval of an array or number."""
    return typeof(x)


# ------------------------------------------------------------- arguments by position and by name
def _tuple_of(kind: type, given: Any) -> tuple[Any, ...]:
    """One or several positions or names, as a tuple."""
    return (given,) if isinstance(given, kind) else tuple(given)


def infer_argnums_and_argnames(
    sig: Signature, argnums: int | Iterable[int] | None, argnames: str | Iterable[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of arguments. One may be None and is then inferred from the signature.

    >>> import inspect
    >>> from rlx.jaxnames.api_util import infer_argnums_and_argnames
    >>> infer_argnums_and_argnames(inspect.signature(lambda x, n: x), None, "n")
    ((1,), ('n',))
    """
    if argnums is None and argnames is None:
        return (), ()
    kinds = enumerate(sig.parameters.items())
    places = {name: i for i, (name, p) in kinds if p.kind is Parameter.POSITIONAL_OR_KEYWORD}
    if argnums is None:
        names = _tuple_of(str, argnames)
        return tuple(i for name, i in places.items() if name in names), names
    numbers = _tuple_of(int, argnums)
    if argnames is not None:
        return numbers, _tuple_of(str, argnames)
    return numbers, tuple(name for name, i in places.items() if i in numbers)


def argnums_partial(
    f: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any], require_static_args_hashable: bool = True
) -> tuple[WrappedFun, tuple[Any, ...]]:
    """A function of some of the arguments, with the others bound, and the values of the remaining arguments.

    Raises NonHashableStaticArgumentError for bound arguments that are not hashable, unless they need not be.

    >>> from rlx.jaxnames.api_util import argnums_partial
    >>> from rlx.jaxnames.linear_util import wrap_init
    >>> fun, left = argnums_partial(wrap_init(lambda x, y: x - y), 1, (10, 3))
    >>> fun.call_wrapped(4), left
    (6, (3,))
    """
    numbers = tuple(i % len(args) for i in _tuple_of(int, dyn_argnums))
    for i, value in enumerate(args):
        if require_static_args_hashable and i not in numbers and not isinstance(value, Hashable):
            raise NonHashableStaticArgumentError(
                f"argnums_partial got argument {i} of type {type(value).__name__}, which is not hashable.",
                "Pass require_static_args_hashable=False, or a hashable value.",
            )

    def around(run: Callable[..., Any], *given: Any, **kwargs: Any) -> Any:
        values = list(args)
        for i, value in zip(numbers, given, strict=True):
            values[i] = value
        return run(*values, **kwargs)

    return f.wrap(around), tuple(args[i] for i in numbers)


def donation_vector(donate_argnums: Any, donate_argnames: Any, in_tree: Any, kws: bool = True) -> tuple[bool, ...]:
    """Whether each leaf of (args, kwargs) belongs to a donated argument; of args only without `kws`.

    >>> import rlx
    >>> from rlx.jaxnames.api_util import donation_vector
    >>> donation_vector((0,), ("c",), rlx.tree.structure(((1, (2, 3)), {"c": 4})))
    (True, False, False, True)
    """
    args_tree, kwargs_tree = tree_util.treedef_children(in_tree) if kws else (in_tree, None)
    found: list[bool] = []
    for i, part in enumerate(tree_util.treedef_children(args_tree)):
        found += [i in donate_argnums] * part.num_leaves
    if kwargs_tree is not None:
        parts = tree.unflatten(kwargs_tree, range(kwargs_tree.num_leaves))
        for name, part in sorted(parts.items()):  # in the order of leaves
            found += [name in donate_argnames] * tree.structure(part).num_leaves
    return tuple(found)


def rebase_donate_argnums(donate_argnums: Iterable[int], static_argnums: Iterable[int]) -> tuple[int, ...]:
    """Positions of arguments among the arguments that are not static.

    >>> from rlx.jaxnames.api_util import rebase_donate_argnums
    >>> rebase_donate_argnums((3, 4), (0, 1))
    (1, 2)
    """
    static = sorted(static_argnums)
    return tuple(sorted({i - sum(number < i for number in static) for i in donate_argnums}))


def flatten_axes(name: str, treedef: Any, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False) -> list[Any]:
    """The leaf of `axis_tree`, a prefix, for each leaf of a tree; None is a leaf.

    Raises TreeMismatchError, a ValueError, for a tree that is not a prefix; `name` is for its message.

    >>> import rlx
    >>> from rlx.jaxnames.api_util import flatten_axes
    >>> flatten_axes("in_axes", rlx.tree.structure([1, (2, 3)]), [0, None])
    [0, None, None]
    """
    whole = tree.unflatten(treedef, range(treedef.num_leaves))
    found: list[Any] = []
    try:
        tree.map(
            lambda axis, part: found.extend([axis] * tree.structure(part).num_leaves),
            axis_tree,
            whole,
            is_leaf=lambda x: x is None,
        )
    except ValueError as error:
        raise TreeMismatchError(
            f"{name} specification must be a tree prefix of the corresponding value: {error}",
            "Pass one entry for each part, or one for all.",
        ) from None
    return found
