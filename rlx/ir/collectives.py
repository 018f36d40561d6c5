"""Collectives: exchanges between the members of a group of processes, and the communicators that run them.

Programs name a group. Its `Communicator` is looked up at run time, so compiled code contains no ranks.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any, Literal, Protocol, get_args

import numpy as np

from rlx.config import UserContext
from rlx.errors import CollectiveError, ShardingError, source_line, user_frame
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
# of a reduction, named like NumPy's functions
OPERATIONS = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective over one array per member, all with the same shape and dtype.

    group, members: the group's name, and its number of members.
    - "all_reduce": every member gets `op` of all arrays, element by element
    - "all_gather": every member gets all arrays, stacked along a new first axis in the order of ranks
    - "reduce_scatter": arrays have a first axis of length `members`; member r gets `op` of all rows r
    - "all_to_all": arrays have a first axis of length `members`; member r gets every member's row r, in their order
    - "permute": `pairs` are (source, destination); members that are not destinations get zeros
    - "broadcast": every member gets the array of `root`
    - "reduce": member `root` gets `op` of all arrays, the others zeros
    mode: "fast" combines in the arrays' dtype (float32 for narrower floats), "deterministic" floats in float64.
    Both combine in the order of ranks: all members get the same bits, in every run.
    name: the user's name for the exchange; members compare it instead of the line of the call.
    call: the call that the exchange belongs to, as members compare it: an array may be several arrays of a tree.
    """

    kind: Kind
    group: str
    members: int
    op: str = ""
    mode: str = "fast"
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()
    name: str = ""
    call: str = ""

    def result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a member's result for an array of `shape`."""
        if self.kind == "all_gather":
            return (self.members, *shape)
        return shape[1:] if self.kind == "reduce_scatter" else shape

    def refusal(self, shape: tuple[int, ...], dtype: np.dtype) -> str | None:
        """Why the exchange does not apply to arrays of this shape and dtype; None if it does."""
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
        name = f" {self.name!r}" if self.name else ""
        call = f" ({self.call})" if self.call else ""
        return f"{self.kind}{op}{name} of {TensorType(shape, dtype)!r}{call}"

    @lru_cache(1024)  # noqa: B019  equal exchanges are one
    def mark(self, shape: tuple[int, ...], dtype: np.dtype, place: bytes = b"") -> bytes:
        """The bytes that members compare before they exchange anything. place: the line of the call and the position in
        which program; ignored if the exchange has a name."""
        what = repr((self, shape, dtype.str if dtype.isbuiltin else dtype.name)).encode()
        return hashlib.blake2b(what if self.name else what + place, digest_size=_DIGEST).digest()


class Communicator(Protocol):
    """Runs exchanges for one member of a group.

    Arrays are dense, and have the same shape and dtype on all members. Results are written to `out`, which does not
    overlap `array`. Raises errors.CollectiveError if another member is silent, has ended, or runs a different exchange.

    >>> from rlx.ir.collectives import WORLD, communicator
    >>> communicator(WORLD).size
    1
    """

    rank: int
    size: int

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """A context that the exchanging thread holds from `agree` on."""
        ...

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the thread that has made the group."""
        ...

    def agree(self, mark: bytes, what: str, named: bool = False) -> None:
        """Wait for all members, and compare their marks. what: for messages. named: the mark contains a user's name,
        so any thread may pass it."""

    def compare(self, mark: bytes, what: str, said: str) -> None:
        """Like `agree`, for marks of values: on a difference, every member raises an error with all
        members' words, and the group remains usable."""

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
        """Run work in the background, in order. The returned function waits for it and raises its error."""

    def settle(self) -> None:
        """Wait for all background work."""

    def subgroup(self, group: str, ranks: Sequence[int]) -> Communicator | None:
        """The subgroup of these members; None for a process that is not among them. All members call it, after they
        have agreed on the members."""


class Alone:
    """The group of one process: every exchange returns its input."""

    rank, size = 0, 1
    turn: AbstractContextManager[Any] = nullcontext()
    is_own_thread = True

    def agree(self, mark: bytes, what: str, named: bool = False) -> None:
        """With itself."""

    def compare(self, mark: bytes, what: str, said: str) -> None:
        """With itself."""

    def barrier(self, name: str = "") -> None:
        """Return at once: there are no other members."""

    def later(self, work: Callable[[], None]) -> Callable[[], None]:
        """Now: it is done at once."""
        work()
        return lambda: None

    def settle(self) -> None:
        """Return at once: there is no background work."""

    def subgroup(self, group: str, ranks: Sequence[int]) -> Communicator:
        """A subgroup of one process is this group."""
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
        """The array, if a pair has this destination."""
        out[...] = array if pairs else 0

    def broadcast(self, array: np.ndarray, out: np.ndarray, root: int) -> None:
        """The array itself."""
        out[...] = array

    def reduce(self, array: np.ndarray, out: np.ndarray, op: str, mode: str, root: int) -> None:
        """The array itself."""
        out[...] = array


class Members:
    """The groups that this process, or this thread where members are threads, belongs to.

    Two are equal if their groups have equal names, sizes and ranks. A program traced for one then also runs with the
    other, because a traced function can only have asked for these.
    """

    def __init__(self, groups: Mapping[str, Communicator | None]) -> None:
        """groups: by name; None if they belong to other groups."""
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


_DIGEST = 16  # bytes

# an exchange's place is the call that it belongs to, a zero byte, and one of: nothing, _NAMED and the exchange's name,
# _UNNAMED and the place that a pass found
_NAMED, _UNNAMED, _END = b"=", b"@", b"\0"


def place_of(call: str, name: str) -> bytes:
    """The place of an exchange of a call; name: the user's, or ""."""
    return call.encode() + _END + (_NAMED + name.encode() if name else b"")


def found_place(place: bytes, found: bytes) -> bytes:
    """The place of an exchange, with the place that a pass has found, unless it has a name or a place already."""
    call, _, rest = place.partition(_END)
    return place if rest else call + _END + _UNNAMED + found


def call_in(place: bytes) -> str:
    """The call that an exchange belongs to, by its place; "" if the array's type says all."""
    return place.partition(_END)[0].decode()


def name_in(place: bytes) -> str:
    """The name of an exchange, by its place; "" if it has none."""
    rest = place.partition(_END)[2]
    return rest[1:].decode() if rest[:1] == _NAMED else ""


@lru_cache(1024)
def line_of(file: str, line: int) -> str:
    """A line of the user's program by its file's name, which is the same in all processes."""
    return f"{os.path.basename(file)}:{line}"


def how_often(times: int | None) -> str:
    """Words for an exchange that is made so often; None: in a loop of unknown length."""
    return "" if times == 1 else ", in each round" if times is None else f", {times} times"


def keep_groups(known: Members) -> None:
    """Let these be the groups from now on: of this thread where members are threads, else of the process."""
    if members.value is members.get_global():
        members.set_global(known)
    else:
        members.set_here(known)


def communicator(group: str = WORLD) -> Communicator:
    """The communicator of this process in a group. Raises ShardingError for a group that it is not in.

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
        mark = hashlib.blake2b(name.encode(), digest_size=_DIGEST).digest()
        communicator(WORLD).compare(mark, "the ranks of a new group", f"{list(ranks)}")
        keep_groups(known.beside(name, communicator(WORLD).subgroup(name, ranks)))
    return name


def exchange(what: Exchange, mark: bytes, array: np.ndarray, out: np.ndarray, origins: Sequence[Origin] = ()) -> None:
    """Carry an exchange out as this member of its group, into `out`. Errors name the user's line in `origins`."""
    own, mark = communicator(what.group), _with_call(what, mark)
    own.settle()
    _carry_out(own, what, mark, array, out, origins)


def start_exchange(
    what: Exchange, mark: bytes, array: np.ndarray, out: np.ndarray, origins: Sequence[Origin] = ()
) -> Callable[[], None]:
    """Begin an exchange. Returns a function that waits for its end. Nothing else may use the two arrays until then."""
    own, mark = communicator(what.group), _with_call(what, mark)
    return own.later(partial(_carry_out, own, what, mark, array, out, origins))


def _with_call(what: Exchange, mark: bytes) -> bytes:
    """The mark, and the line that runs the program, unless the exchange has a name: programs may differ in numbers."""
    frame = None if what.name else user_frame(3)
    return mark if frame is None else mark + line_of(frame.f_code.co_filename, frame.f_lineno).encode()


def exchange_where_it_lies(
    what: Exchange, mark: bytes, shape: tuple[int, ...], dtype: np.dtype, work: Callable[[], None],
    origins: Sequence[Origin] = (),
) -> None:  # fmt: skip
    """As `exchange`, of arrays in another memory, which `work` exchanges once all members have come for the same."""
    own, mark = communicator(what.group), _with_call(what, mark)
    own.settle()

    def meet() -> None:
        with own.turn:
            _agree(own, what, mark, shape, dtype, origins)
            if prod(shape) or prod(what.result(shape)):
                work()

    _at_line(meet, origins)


def _carry_out(
    own: Communicator, what: Exchange, mark: bytes, array: np.ndarray, out: np.ndarray, origins: Sequence[Origin]
) -> None:
    def meet() -> None:
        with own.turn:
            _meet(own, what, mark, array, out, origins)

    _at_line(meet, origins)


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
        text += f" at {line_of(origins[0].file, origins[0].line)}"
    if own.size != what.members:
        raise CollectiveError(
            f"A program for {what.members} processes runs in a group of {own.size}: {text}.",
            "Call rlx.distributed.initialize() before functions are traced and compiled.",
        )
    call = mark[_DIGEST:].decode()
    if call and not text.endswith(call):
        text += f", called at {call}"
    own.agree(mark, text, bool(what.name))


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
