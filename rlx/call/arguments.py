"""The arguments of one call of a jitted function: which are static, and the arrays in the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.array import ConcreteArray, is_array, memory_of
from rlx.call.argument_names import ArgumentTree, named_leaves, refused_argument
from rlx.call.descriptions import ShapeDtypeStruct
from rlx.call.divisions import division_of, explicit_division
from rlx.call.donation import check_given
from rlx.call.key import Key
from rlx.errors import InputTypeError, NonHashableStaticArgumentError
from rlx.forks import cached_property
from rlx.ir.types import TensorType
from rlx.statics import static_key
from rlx.trace.flat import flatten_values, shared_array
from rlx.trace.references import as_given, cells_given, refuse_twice
from rlx.trees import tree

__all__ = ["Arguments", "Request", "Roles", "SplitArguments"]

_KEY = "Static arguments are part of the cache key: "
_UNHASHABLE = {
    list: f"{_KEY}pass a tuple instead of a list, or make the argument dynamic.",
    dict: f"{_KEY}pass a tuple of pairs or a frozen dataclass instead of a dict, or make the argument dynamic.",
    set: f"{_KEY}pass a frozenset instead of a set.",
    ConcreteArray: f"{_KEY}leave an array out of static_argnums and static_argnames, so that it is traced.",
    np.ndarray: f"{_KEY}leave an array out of static_argnums and static_argnames, so that it is traced.",
    object: f"{_KEY}give its class __hash__ and __eq__ (a frozen dataclass has them), or make the argument dynamic.",
}


class SplitArguments(NamedTuple):
    """Arguments of a call without the static ones, and these, by position and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    held: dict[int, Any]
    held_names: dict[str, Any]

    def static(self) -> tuple[tuple[Any, Any, Any], ...]:
        """For each static argument its position or name, a key for it, and its value."""
        static = (*sorted(self.held.items()), *sorted(self.held_names.items()))
        return tuple((k, static_key(v), v) for k, v in static)

    def complete(self, dynamic: tuple[Any, ...]) -> tuple[Any, ...]:
        """All positional arguments, with these in place of the dynamic ones."""
        rest = iter(dynamic)
        count = len(self.args) + len(self.held)
        return tuple(self.held[i] if i in self.held else next(rest) for i in range(count))


class Roles(NamedTuple):
    """A function, and which of its arguments are static or donated."""

    fun: Callable[..., Any]
    name: str
    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()

    @property
    def has_static(self) -> bool:
        """Whether some arguments may be static."""
        return bool(self.static_argnums or self.static_argnames)

    @property
    def donates(self) -> bool:
        """Whether a call may donate arguments."""
        return bool(self.donate_argnums or self.donate_argnames)

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SplitArguments:
        """Static arguments apart from others. Raises NonHashableStaticArgumentError."""
        n = len(args)
        numbers = {i % n if n and -n <= i < n else i for i in self.static_argnums}
        held = {i: args[i] for i in numbers if i < n}
        held_names = {k: v for k, v in kwargs.items() if k in self.static_argnames}
        for where, value in (*sorted(held.items()), *sorted(held_names.items())):
            try:
                hash(value)
            except TypeError:
                raise _unhashable(self.name, where, value) from None
        dynamic = tuple(a for i, a in enumerate(args) if i not in held)
        return SplitArguments(dynamic, {k: v for k, v in kwargs.items() if k not in held_names}, held, held_names)

    def donated_numbers(self, args: Sequence[Any]) -> set[int]:
        """Positions of donated arguments, counted from the front."""
        n = len(args)
        return {i % n for i in self.donate_argnums if -n <= i < n}


def _unhashable(name: str, where: Any, value: Any) -> NonHashableStaticArgumentError:
    kind = "an rlx array" if is_array(value) else f"a {type(value).__name__}"
    return NonHashableStaticArgumentError(
        f"Static argument {where!r} of {name} is {kind}, which cannot be hashed: {value!r:.60}.",
        _UNHASHABLE.get(type(value), _UNHASHABLE[object]),
    )


class DescribedArray:
    """An argument described by its shape, its dtype and, if it is not None, its sharding."""

    __slots__ = ("described_sharding", "dtype", "ndim", "shape", "type")

    def __init__(self, type: TensorType, sharding: Any) -> None:
        self.type, self.described_sharding = type, sharding
        self.shape, self.dtype, self.ndim = type.shape, type.dtype, type.ndim


class Arguments:
    """The arguments of one call.

    `given` are the dynamic leaves as passed, `leaves` the same as arrays, `in_tree` their structure, and `cells` the
    Refs among them, whose contents are the leaves. abstract: objects with shape and dtype are accepted as arrays.
    flowing: derivatives may write to the cells.
    """

    def __init__(
        self,
        roles: Roles,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        abstract: bool = False,
        flowing: bool = False,
    ) -> None:
        self.roles, self.args, self.kwargs, self.flowing = roles, args, kwargs, flowing
        self.split = split = roles.split(args, kwargs)
        given, self.in_tree = flatten_values((split.args, split.kwargs))
        self.cells = cells_given(given, flowing)
        if self.cells:
            given, self.in_tree = flatten_values(as_given((split.args, split.kwargs), flowing))
            refuse_twice(roles.name, named_leaves(self.tree()))
        try:
            self.leaves = [_leaf(x, roles.name, abstract) for x in given]
        except InputTypeError as error:
            number = [_is_array(x, roles.name, abstract) for x in given].index(False)
            raise refused_argument(self.tree(), number, error) from None
        # arrays of other libraries stay where they were made
        self.given = [a if memory_of(a) is not None else x for x, a in zip(given, self.leaves, strict=True)]
        check_given(roles.name, self.leaves, self.donated_leaves() if roles.donates else ())

    def tree(self) -> ArgumentTree:
        """The dynamic arguments with their positions and names, for messages."""
        split = self.split
        numbered = [(i, a) for i, a in enumerate(self.args) if i not in split.held]
        return ArgumentTree(self.roles.fun, self.roles.name, numbered, sorted(split.kwargs.items()))

    def again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Arguments of another call of the same function. All static ones may be left out."""
        split = self.split
        if split.held and len(args) == len(split.args):
            args = split.complete(args)
        return Arguments(self.roles, args, {**split.held_names, **kwargs})

    @property
    def away(self) -> bool:
        """Whether some arrays are not in the host's memory."""
        return any(memory_of(x) is not None for x in self.leaves)

    @cached_property
    def divisions(self) -> tuple[Any, ...]:
        """The shardings of the leaves over several devices, or None; () if none has one."""
        found = tuple(map(division_of, self.leaves))
        return found if any(found) else ()

    @property
    def explicit_divisions(self) -> tuple[Any, ...]:
        """The shardings over Explicit axes, which a function may ask for, in the same form."""
        found = tuple(map(explicit_division, self.leaves))
        return found if any(found) else ()

    # ------------------------------------------------------------------ donation
    def donated(self, operands: Sequence[Any]) -> list[bool]:
        """Which operands of the program a call donates: the last ones are the leaves."""
        return [False] * (len(operands) - len(self.leaves)) + self.donated_leaves()

    def donated_leaves(self) -> list[bool]:
        """Which leaves a call donates."""
        given: list[bool] = []
        numbers = self.roles.donated_numbers(self.args)
        for i, a in enumerate(self.args):
            if i not in self.split.held:
                given += [i in numbers] * len(tree.leaves(a))
        for k, v in sorted(self.split.kwargs.items()):
            given += [k in self.roles.donate_argnames] * len(tree.leaves(v))
        return given

    def donated_values(self) -> list[Any]:
        """The leaves that a call donates, as passed."""
        given = [self.args[i] for i in sorted(self.roles.donated_numbers(self.args))]
        return tree.leaves(given + [self.kwargs[k] for k in self.roles.donate_argnames if k in self.kwargs])


class Request(NamedTuple):
    """One call: its arguments, the key of its program, the arguments' memory (None: the host's), and whether a policy
    may not move them, since the user put some on a device."""

    arguments: Arguments
    key: Key
    memory: Any
    committed: bool


def _leaf(x: Any, name: str, abstract: bool) -> Any:
    if is_array(x):
        return x
    if abstract and not hasattr(x, "__array__") and hasattr(x, "shape") and hasattr(x, "dtype"):
        type = TensorType(tuple(x.shape), x.dtype, getattr(x, "weak_type", False))
        return DescribedArray(type, x.sharding if isinstance(x, ShapeDtypeStruct) else None)
    return shared_array(x, f"An argument of {name}")


def _is_array(x: Any, name: str, abstract: bool) -> bool:
    """Whether a leaf of the arguments is an array or can be converted to one."""
    try:
        _leaf(x, name, abstract)
    except InputTypeError:
        return False
    return True
