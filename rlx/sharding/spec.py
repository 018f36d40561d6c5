"""PartitionSpec: the mesh axes that the axes of an array are divided over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rlx.errors import InputTypeError, ShardingError

__all__ = ["PartitionSpec"]


class _Unconstrained:
    """An entry of a spec that leaves an array's axis to the compiler."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()


def _entry(entry: Any) -> Any:
    """One mesh axis as its name, several as a tuple, none as None."""
    if not isinstance(entry, (tuple, list)):
        return entry
    if any(isinstance(part, (tuple, list)) for part in entry):
        raise ShardingError(f"PartitionSpec got the entry {entry!r}.", "An entry is a name, or a tuple of names.")
    return None if not entry else entry[0] if len(entry) == 1 else tuple(entry)


class PartitionSpec:
    """The mesh axes that each axis of an array is divided over: a name, a tuple of names, or None.

    Axes after the last entry are not divided. `P.UNCONSTRAINED` leaves an axis to the compiler. A spec behaves like a
    tuple (length, entries, order) and is a leaf of a tree.

    Args:
      partitions: the entries.
      unreduced, reduced: sets of mesh axes over which values are parts of a sum, or copies of one value.

    Raises: ShardingError if an axis is both an entry and in unreduced or reduced; InputTypeError if
      these are not sets.

    >>> import rlx
    >>> spec = rlx.P("data", None, ("x", "y"))
    >>> spec, len(spec), spec[2]
    (P('data', None, ('x', 'y')), 3, ('x', 'y'))
    >>> rlx.tree.leaves({"w": spec})
    [P('data', None, ('x', 'y'))]
    """

    __slots__ = ("__weakref__", "_partitions", "reduced", "unreduced")

    UNCONSTRAINED = UNCONSTRAINED

    def __init__(self, *partitions: Any, unreduced: Any = frozenset(), reduced: Any = frozenset()) -> None:
        for name, value in (("unreduced", unreduced), ("reduced", reduced)):
            if not isinstance(value, (set, frozenset)):
                raise InputTypeError(f"PartitionSpec got {name}={value!r}, a {type(value).__name__}.", "Pass a set.")
        self._partitions = tuple(map(_entry, partitions))
        self.unreduced = frozenset(unreduced)
        self.reduced = frozenset(reduced)
        named = set(names_in(self._partitions))
        twice = (named & self.unreduced) | (named & self.reduced) | (self.unreduced & self.reduced)
        if twice or None in self.unreduced | self.reduced:
            raise ShardingError(
                f"PartitionSpec got entries {self._partitions}, unreduced={set(self.unreduced)} and"
                f" reduced={set(self.reduced)}.",
                "The three must name different axes of a mesh.",
            )

    def __init_subclass__(cls) -> None:
        what = f"{cls.__qualname__} derives from PartitionSpec, which cannot be subclassed."
        raise InputTypeError(what, "Create specs with rlx.P(...), and store other data separately.")

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The entries."""
        return self._partitions

    def update(self, partitions: Iterable[Any] | None = None, unreduced: Any = None, reduced: Any = None) -> Any:
        """The spec with other entries, or other sets."""
        return PartitionSpec(
            *(self._partitions if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def _plain(self) -> tuple[Any, ...]:
        if self.unreduced or self.reduced:
            raise ShardingError(
                f"The entries of {self!r} were read, which would lose its unreduced and reduced axes.",
                "Write spec.partitions.",
            )
        return self._partitions

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plain())

    def __getitem__(self, index: Any) -> Any:
        return self._plain()[index]

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            sets = {"unreduced": self.unreduced | other.unreduced, "reduced": self.reduced | other.reduced}
            return PartitionSpec(*self._partitions, *other._partitions, **sets)
        return PartitionSpec(*self._joined(other), *other)

    def __radd__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*other, *self._joined(other))

    def _joined(self, other: Any) -> tuple[Any, ...]:
        if not isinstance(other, tuple) or self.unreduced or self.reduced:
            raise InputTypeError(f"{self!r} and {other!r} cannot be added.", "Add a PartitionSpec, or a tuple.")
        return self._partitions

    def index(self, value: Any) -> int:
        """The position of an entry."""
        return self._partitions.index(_entry(value))

    def count(self, value: Any) -> int:
        """How often an entry occurs."""
        return self._partitions.count(_entry(value))

    def _key(self) -> tuple[Any, ...]:
        return self._partitions, self.unreduced, self.reduced

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> Any:
        return _rebuild, self._key()

    def __repr__(self) -> str:
        parts = [repr(self._partitions)[1:-1]] if self._partitions else []
        parts += [f"{name}={set(value)!r}" for name in ("unreduced", "reduced") if (value := getattr(self, name))]
        return f"P({', '.join(parts)})".replace(",, ", ", ")


def _rebuild(partitions: tuple[Any, ...], unreduced: Any, reduced: Any) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced)


def names_of_entry(entry: Any) -> tuple[Any, ...]:
    """The mesh axes of one entry."""
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def names_in(partitions: Iterable[Any]) -> list[Any]:
    """The mesh axes of all entries, in order."""
    return [name for entry in partitions for name in names_of_entry(entry)]
