"""What the members of a group of processes do together: what an exchange is, and who carries it out.

Programs name a group; which `Communicator` that is, is found when they run, so that compiled code holds no rank.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Literal, Protocol, get_args

import numpy as np

from rlx.config import UserContext
from rlx.errors import CollectiveError, ShardingError, source_line
from rlx.ir.program import Origin
from rlx.ir.types import TensorType

__all__ = [
    "KINDS",
    "OPERATIONS",
    "WORLD",
    "Alone",
    "Communicator",
    "Exchange",
    "Members",
    "communicator",
    "exchange",
    "exchange_where_it_lies",
    "group_among",
    "members",
    "start_exchange",
]

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "broadcast", "reduce"]
KINDS: tuple[Kind, ...] = get_args(Kind)
WORLD = "world"  # the group of all processes
# of a reduction: as NumPy's functions
OPERATIONS = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the members of a group do together with an array that each of them has, all of one shape and dtype.

    group, members: which group, and how many it has.
    - "all_reduce": every member gets `op` of all arrays, element by element
    - "all_gather": every member gets all arrays, stacked along a new first axis in the order of ranks
    - "reduce_scatter": arrays have a first axis of length `members`; member r gets `op` of all rows r
    - "all_to_all": arrays have a first axis of length `members`; member r gets every member's row r, in their order
    - "permute": `pairs` are (source, destination); who is no destination gets zeros
    - "broadcast": every member gets the array of `root`
    - "reduce": member `root` gets `op` of all arrays, the others zeros
    mode: "fast" combines in the arrays' dtype (float32 for narrower floats), "deterministic" floats in float64.
    Both combine in the order of ranks: all members get the same bits, in every run.
    """

    kind: Kind
    group: str
    members: int
    op: str = ""
    mode: str = "fast"
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()

    def result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what a member gets for an array of `shape`."""
        if self.kind == "all_gather":
            return (self.members, *shape)
        return shape[1:] if self.kind == "reduce_scatter" else shape

    def refusal(self, shape: tuple[int, ...], dtype: np.dtype) -> str | None:
        """What is wrong with it for arrays of this shape and dtype; None if nothing is."""
        rows = self.kind in ("reduce_scatter", "all_to_all")
        if rows and (not shape or shape[0] != self.members):
            return f"the first axis has length {shape[0] if shape else 'none'}, the group {self.members} members"
        reduces = self.kind in ("all_reduce", "reduce_scatter", "reduce")
        if reduces and self.op not in OPERATIONS:
            return f"there is no reduction {self.op!r}"
        if reduces and self.op in ("max", "min") and dtype.kind == "c":
            return "complex numbers have no order"
        if reduces and self.op in ("sum", "prod") and dtype.kind == "b":
            return "sums and products of bools are of integers"
        if reduces and self.op in ("and", "or", "xor") and dtype.kind not in "biu":
            return f"{self.op} is of bools and integers"
        if not 0 <= self.root < self.members:
            return f"there is no member {self.root} among {self.members}"
        ends = [end for pair in self.pairs for end in pair]
        if any(not 0 <= end < self.members for end in ends):
            return f"a pair names a member that is not among {self.members}"
        sources, destinations = ({pair[side] for pair in self.pairs} for side in (0, 1))
        if not len(sources) == len(destinations) == len(self.pairs):
            return "a source or a destination is named twice"
        return None

    def described(self, shape: tuple[int, ...], dtype: np.dtype) -> str:
        """A few words for people."""
        op = f" ({self.op})" if self.op else ""
        return f"{self.kind}{op} of {TensorType(shape, dtype)!r}"

    def mark(self, shape: tuple[int, ...], dtype: np.dtype, place: bytes = b"") -> bytes:
        """What members compare before they exchange anything. place: where in which program it stands."""
        what = repr((self, shape, dtype.str if dtype.isbuiltin else dtype.name)).encode()
        return hashlib.blake2b(what + place, digest_size=16).digest()


class Communicator(Protocol):
    """Who carries exchanges out for one member of a group.

    Arrays are dense, of one shape and dtype on all members; results are written to `out`, which is no part of
    `array`. Raises errors.CollectiveError where another member is silent, gone, or does something else.

    >>> from rlx.ir.collectives import WORLD, communicator
    >>> communicator(WORLD).size
    1
    """

    rank: int
    size: int

    def agree(self, mark: bytes, what: str) -> None:
        """Wait for all members, and see whether they come with the same mark. what: for messages."""

    def all_reduce(self, array: np.ndarray, out: np.ndarray, op: str, mode: str) -> None:
        """See Exchange; so with the others."""

    def all_gather(self, array: np.ndarray, out: np.ndarray) -> None: ...

    def reduce_scatter(self, array: np.ndarray, out: np.ndarray, op: str, mode: str) -> None: ...

    def all_to_all(self, array: np.ndarray, out: np.ndarray) -> None: ...

    def permute(self, array: np.ndarray, out: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> None: ...

    def broadcast(self, array: np.ndarray, out: np.ndarray, root: int) -> None: ...

    def reduce(self, array: np.ndarray, out: np.ndarray, op: str, mode: str, root: int) -> None: ...

    def barrier(self, name: str = "") -> None: ...

    def later(self, work: Callable[[], None]) -> Callable[[], None]:
        """Let work go on beside what this thread does next, in turn; what is returned waits for it, and raises."""

    def settle(self) -> None:
        """Wait for all work that goes on."""

    def subgroup(self, group: str, ranks: Sequence[int]) -> Communicator | None:
        """The group of these of its members; None for who is not among them. All members call it."""


class Alone:
    """The group of one process: what it gives is what it gets."""

    rank, size = 0, 1

    def agree(self, mark: bytes, what: str) -> None:
        """With itself."""

    def barrier(self, name: str = "") -> None:
        """Nobody is waited for."""

    def later(self, work: Callable[[], None]) -> Callable[[], None]:
        """Now: it is done at once."""
        work()
        return lambda: None

    def settle(self) -> None:
        """Nothing goes on."""

    def subgroup(self, group: str, ranks: Sequence[int]) -> Communicator:
        """Of one process, too."""
        return self

    def all_reduce(self, array: np.ndarray, out: np.ndarray, op: str, mode: str) -> None:
        """The array itself."""
        out[...] = array

    def all_gather(self, array: np.ndarray, out: np.ndarray) -> None:
        """The array as the only row."""
        out[0] = array

    def reduce_scatter(self, array: np.ndarray, out: np.ndarray, op: str, mode: str) -> None:
        """The only row."""
        out[...] = array[0]

    def all_to_all(self, array: np.ndarray, out: np.ndarray) -> None:
        """The array itself."""
        out[...] = array

    def permute(self, array: np.ndarray, out: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> None:
        """The array, if a pair says so."""
        out[...] = array if pairs else 0

    def broadcast(self, array: np.ndarray, out: np.ndarray, root: int) -> None:
        """The array itself."""
        out[...] = array

    def reduce(self, array: np.ndarray, out: np.ndarray, op: str, mode: str, root: int) -> None:
        """The array itself."""
        out[...] = array


class Members:
    """The groups that this process, or this thread where members are threads, belongs to.

    Two are equal where their groups are of equal names, sizes and ranks: programs that were traced for one run with
    the other, since that is what a traced function may have asked for.
    """

    def __init__(self, groups: Mapping[str, Communicator | None]) -> None:
        """groups: by name; None where it is one of others."""
        self.groups = dict(groups)
        self._places = frozenset((name, g.rank, g.size) for name, g in groups.items() if g is not None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Members) and self._places == other._places

    def __hash__(self) -> int:
        return hash(self._places)

    def beside(self, name: str, group: Communicator | None) -> Members:
        """These groups and another one."""
        return Members({**self.groups, name: group})


members = UserContext(Members({WORLD: Alone()}))  # jitted functions are traced again where groups have changed


def keep_groups(known: Members) -> None:
    """Let these be the groups from now on: of this thread where members are threads, else of the process."""
    if members.value is members.get_global():
        members.set_global(known)
    else:
        members.set_here(known)


def communicator(group: str = WORLD) -> Communicator:
    """Who carries out exchanges of this process in a group. Raises ShardingError for a group that it is not in.

    >>> from rlx.ir.collectives import communicator
    >>> communicator("world").rank
    0
    """
    found = members.value.groups.get(group)
    if found is None:
        known = ", ".join(sorted(name for name, own in members.value.groups.items() if own is not None))
        raise ShardingError(f"This process belongs to no group {group!r}.", f"It belongs to: {known}.")
    return found


def group_among(ranks: Sequence[int]) -> str:
    """The name of the group of these processes, made if there is none. All processes call it, in the same order."""
    name = f"{WORLD}:{','.join(map(str, ranks))}"
    known = members.value
    if name not in known.groups:
        keep_groups(known.beside(name, communicator(WORLD).subgroup(name, ranks)))
    return name


def exchange(
    what: Exchange, mark: bytes, array: np.ndarray, out: np.ndarray, origins: Sequence[Origin] = ()
) -> None:
    """Carry an exchange out as this member of its group, into `out`. Errors name the user's line in `origins`."""
    own = communicator(what.group)
    own.settle()
    _carry_out(own, what, mark, array, out, origins)


def start_exchange(
    what: Exchange, mark: bytes, array: np.ndarray, out: np.ndarray, origins: Sequence[Origin] = ()
) -> Callable[[], None]:
    """Begin an exchange, and return what waits for its end; until then nobody else uses the two arrays."""
    own = communicator(what.group)
    return own.later(partial(_carry_out, own, what, mark, array, out, origins))


def exchange_where_it_lies(
    what: Exchange, mark: bytes, shape: tuple[int, ...], dtype: np.dtype, work: Callable[[], None],
    origins: Sequence[Origin] = (),
) -> None:  # fmt: skip
    """As `exchange`, of arrays in another memory, which `work` exchanges once all members have come for the same."""
    own = communicator(what.group)
    own.settle()

    def meet() -> None:
        _agree(own, what, mark, shape, dtype, origins)
        if prod(shape) or prod(what.result(shape)):
            work()

    _at_line(meet, origins)


def _carry_out(
    own: Communicator, what: Exchange, mark: bytes, array: np.ndarray, out: np.ndarray, origins: Sequence[Origin]
) -> None:
    _at_line(partial(_meet, own, what, mark, array, out, origins), origins)


def _at_line(work: Callable[[], None], origins: Sequence[Origin]) -> None:
    """Do it; errors of exchanges name the user's line."""
    try:
        work()
    except CollectiveError as error:
        refused = error
    else:
        return
    if origins:
        refused.relocate(source_line(*origins[0]))
    raise refused


def _agree(
    own: Communicator, what: Exchange, mark: bytes, shape: tuple[int, ...], dtype: np.dtype, origins: Sequence[Origin]
) -> None:
    """See whether all members have come for the same."""
    text = what.described(shape, dtype)
    if origins:
        text += f" at {os.path.basename(origins[0].file)}:{origins[0].line}"
    if own.size != what.members:
        raise CollectiveError(
            f"A program for {what.members} processes runs in a group of {own.size}: {text}.",
            "Call rlx.distributed.initialize() before functions are traced and compiled.",
        )
    own.agree(mark, text)


def _meet(
    own: Communicator, what: Exchange, mark: bytes, array: np.ndarray, out: np.ndarray, origins: Sequence[Origin]
) -> None:
    _agree(own, what, mark, array.shape, array.dtype, origins)
    if not prod(out.shape) and not prod(array.shape):
        return
    match what.kind:
        case "all_reduce":
            own.all_reduce(array, out, what.op, what.mode)
        case "all_gather":
            own.all_gather(array, out)
        case "reduce_scatter":
            own.reduce_scatter(array, out, what.op, what.mode)
        case "all_to_all":
            own.all_to_all(array, out)
        case "permute":
            own.permute(array, out, what.pairs)
        case "broadcast":
            own.broadcast(array, out, what.root)
        case "reduce":
            own.reduce(array, out, what.op, what.mode, what.root)
