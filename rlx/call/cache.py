"""The cache of a jitted function: its traced signatures, and the ready calls by the keys of calls."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rlx.array import parts_of
from rlx.call.compiled import CompiledProgram
from rlx.call.divisions import division_of, placed_at, places_of
from rlx.call.explanations import say
from rlx.call.key import CallKey, Key, Signature
from rlx.call.native_calls import KnownCalls, Uses
from rlx.config import config
from rlx.forks import reopen_after_fork
from rlx.ir.program import Program
from rlx.offered_names import LateModule
from rlx.trace.builder import is_traced
from rlx.trace.once import ByFunction
from rlx.trace.references import Cell, Threaded, write_last
from rlx.trace.spanning import local_of
from rlx.trees import tree
from rlx.trees.structure import tree_key

if TYPE_CHECKING:
    from rlx.passes import join_exchanges, place_exchanges
else:
    join_exchanges = LateModule("rlx.passes.join_exchanges")
    place_exchanges = LateModule("rlx.passes.place_exchanges")

__all__ = ["CacheInfo", "ReadyCall", "SignatureEntry", "SignatureTraces", "forget_signatures", "signature_traces"]


class CacheInfo(NamedTuple):
    """What a jitted function's cache did."""

    hits: int
    misses: int
    currsize: int
    maxsize: int


class SignatureEntry:
    """One traced signature: its program, how to call it, what it returns.

    `cells` are the captured Refs: their contents follow `captured` among the program's inputs. `given` are the numbers
    of the Refs among the arguments that it writes to; `flows`: whether a derivative may write to some of them. `marks`
    are the shardings of values that the function stated.
    """

    __slots__ = "_followed captured cells compiled flows given marks out_tree places program".split()
    compiled: CompiledProgram | None

    def __init__(
        self, program: Program, captured: list[Any], out_tree: Any, marks: dict[Any, Any], cells: Threaded | None = None
    ) -> None:
        self.program = program
        self.captured = captured
        self.cells = cells
        self.given: tuple[int, ...] = ()
        self.flows = False
        self.out_tree = out_tree
        self.marks = marks
        self.places: list[Any] | None = None  # the results' shardings, once it is followed and if some are known
        self._followed = False
        self.compiled = None

    def with_program(self, compiled: CompiledProgram) -> SignatureEntry:
        """The entry with a compiled program of some sizes, where this one has symbolic ones."""
        entry = SignatureEntry(compiled.program, self.captured, self.out_tree, self.marks, self.cells)
        entry.given, entry.flows, entry.compiled, entry._followed = self.given, self.flows, compiled, True
        return entry

    def follow(self, arguments: Sequence[Any]) -> list[Any] | None:
        """The results' shardings, by those of the arguments and of marked values; explains what is moved."""
        if self._followed:
            return self.places
        self._followed = True
        arguments = (*self.captured, *arguments)
        if self.marks or any(division_of(x) is not None for x in arguments):
            places = places_of(self.program, arguments, self.marks)
            results = self.out_tree.unflatten(range(self.out_tree.num_leaves))
            blocks = {local_of(x) for x in tree.leaves(results) if parts_of(x)}
            places = [None if n in blocks else place for n, place in enumerate(places)]
            self.places = places if any(places) else None
        if config.explain:
            joined = join_exchanges.join_exchanges(self.program)
            if sent := place_exchanges.explained_exchanges(joined):
                say(sent)
        return self.places

    def operands(self, leaves: list[Any]) -> list[Any]:
        """The program's inputs after the captured values: the cells' current contents, and the arguments."""
        return leaves if self.cells is None else [*self.cells.contents(), *leaves]

    def returned(self, outs: Any, given: Sequence[Cell] = ()) -> Any:
        """The results among the program's outputs; the rest is written to the cells. given: the arguments' cells."""
        outs = outs if self.cells is None else self.cells.write(outs)
        return write_last([given[i] for i in self.given], outs) if self.given else outs

    def placed(self, outs: list[Any]) -> list[Any]:
        """The results, with their shardings where known."""
        return outs if self.places is None else placed_at(outs, self.places)


# what runs for a call's leaves, the results' tree (None: one array alone), whether results are arguments, and a counter
# of calls until native code runs them (None: it cannot)
ReadyCall = tuple[Callable[[Any], Any], Any, bool, Uses | None]
_MOST_TREES = 256
MOST_SIZED = 32


class SignatureTraces:
    """The traced programs of a function with some options, shared by all results of `jit` for these."""

    __slots__ = (
        "__weakref__", "_lock", "_plain_trees", "entries", "families", "known", "latest", "odd", "ready", "sized_keys",
    )  # fmt: skip

    def __init__(self) -> None:
        self.entries: OrderedDict[Key, SignatureEntry] = OrderedDict()
        self.ready: dict[CallKey, ReadyCall] = {}
        self.known = KnownCalls()  # those that native code runs
        self.families: dict[Any, Any] = {}  # of signatures that differ in sizes: see sized.py
        self.sized_keys: deque[CallKey] = deque()  # of calls whose sizes were filled in
        self._plain_trees: set[tree.TreeDef] = set()  # whose keys of dicts are all strings
        self.latest: Signature | None = None  # that was traced
        self.odd = False  # whether there were others
        self._lock = threading.RLock()
        _all_traces.add(self)
        reopen_after_fork(self)

    @property
    def lock(self) -> Any:
        """Held while programs are traced and compiled."""
        return self._lock

    def clear(self) -> None:
        """Forget every signature."""
        with self._lock:
            self.entries.clear()
            self.forget_ready()
            self.families.clear()
            self.latest = None
            self.sized_keys.clear()
            self._plain_trees.clear()

    def forget_ready(self) -> None:
        """Let the next call with each key look for its entry."""
        self.ready.clear()
        self.known.clear()

    def find(self, key: Key, size: int, make: Callable[[], SignatureEntry]) -> SignatureEntry:
        """The entry of a key: made once, and kept among the latest `size` unless it captures traced values."""
        entry = self.entries.get(key)
        if entry is not None:
            return entry
        with self._lock:
            entry = self.entries.get(key)
            if entry is not None:
                return entry
            entry = make()
            if not any(is_traced(c) for c in entry.captured):
                self.entries[key] = entry
                while len(self.entries) > size:
                    self.entries.popitem(last=False)
                    self.forget_ready()
            return entry

    def compiled(self, entry: SignatureEntry, make: Callable[[], CompiledProgram]) -> CompiledProgram:
        """The compiled program of an entry, made once."""
        if entry.compiled is None:
            with self._lock:
                if entry.compiled is None:
                    entry.compiled = make()
        return entry.compiled

    def count(self) -> int:
        """The number of traced programs."""
        return len(self.entries) + sum(len(family.templates) for family in self.families.values())

    def keep_sized(self, key: CallKey, ready: ReadyCall) -> None:
        """What runs for a call with filled-in sizes: kept for the latest of them."""
        with self._lock:
            if key not in self.ready:
                self.sized_keys.append(key)
            self.ready[key] = ready
            if len(self.sized_keys) > MOST_SIZED:
                self.ready.pop(self.sized_keys.popleft(), None)

    def tree_key(self, treedef: tree.TreeDef) -> tuple[Any, Any]:
        """As the function of this name, which visits every node the first time only."""
        if treedef in self._plain_trees:
            return treedef, ()
        found = tree_key(treedef)
        if found[1]:
            self.odd = True
        elif len(self._plain_trees) < _MOST_TREES:
            self._plain_trees.add(treedef)
        return found


_all_traces: weakref.WeakSet[SignatureTraces] = weakref.WeakSet()
signature_traces: ByFunction[SignatureTraces] = ByFunction(SignatureTraces)


def forget_signatures() -> None:
    """Forget what was traced of every jitted function."""
    for traces in list(_all_traces):
        traces.clear()
