"""A jitted function: its calls, and its cache of signatures."""

from __future__ import annotations

import importlib
import inspect
import itertools
import operator
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial, update_wrapper
from typing import Any, NamedTuple

import numpy as np
import optree
from optree import _C as _optree

from rlx.array import Array, ConcreteArray, DeviceArray, DividedArray, gone, owned
from rlx.backends import backend_named, memory_named
from rlx.backends.base import Backend
from rlx.call.compiled import CompiledProgram, backend_on
from rlx.call.default_place import program_stays_on_host
from rlx.call.jit_options import chosen_arguments, parameter_at, refuse_both
from rlx.call.policy import AUTO, Policy, chooser
from rlx.call.stages import Lowered, ShapeDtypeStruct, Traced, placed_at
from rlx.config import config, scoped
from rlx.errors import (
    DonatedArrayError,
    InputTypeError,
    NanError,
    NestingError,
    NonHashableStaticArgumentError,
    RlxError,
    SwitchError,
)
from rlx.forks import reopen_after_fork
from rlx.ir.collectives import communicator
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.ops.call import call
from rlx.passes.place_exchanges import explained_exchanges
from rlx.statics import static_key
from rlx.trace.builder import Tracer, leaked, state
from rlx.trace.flat import FlatFunction, flatten_values, function_name, shared_array
from rlx.trace.interpret import interpret
from rlx.trace.lower import inline_calls
from rlx.trace.once import ByFunction
from rlx.trace.places import HOST, common_memory
from rlx.trace.primitive import refused, watching
from rlx.trace.references import (
    Cell,
    Threaded,
    as_given,
    cells_given,
    flow_back,
    received,
    refuse_closed_over,
    refuse_twice,
    write_last,
)
from rlx.trace.spanning import ArrayOfParts, locals_of
from rlx.trace.tracing import (
    close_over,
    explicit,
    lying_so,
    place_known,
    place_of,
    places_inside,
    places_known,
    trace_program,
    tracked_axes,
)
from rlx.transforms.reductions import reductions_of
from rlx.transforms.varying import varying_axes
from rlx.trees import tree
from rlx.trees.structure import odd_keys_in, tree_key

__all__ = ["CacheInfo", "Jitted", "Key", "Signature", "forget_signatures", "places_of"]

_flatten: Any = _optree.flatten
_unflatten = optree.tree_unflatten
_type_of = operator.attrgetter("_type")
_ON_HOST = frozenset((ConcreteArray, DividedArray))
_OF_NUMBERS = frozenset((ConcreteArray, DeviceArray, DividedArray))  # whose memory can be given away


def _key_of(args: tuple[Any, ...]) -> tuple[list[Any], list[Any], bool]:
    """The leaves of any arguments, the key of a call with them, and whether some were no arrays of ours.

    Those are arrays over the caller's memory then. If no key can be built, an empty key is returned; it never matches.
    """
    given, in_tree = _flatten(args, None, False, tree.NAMESPACE)
    try:
        return given, [config.token, in_tree, *map(_type_of, given)], False
    except AttributeError:
        pass
    try:
        leaves: list[Any] = list(map(shared_array, given))
        return leaves, [config.token, in_tree, *[x._type or x.type for x in leaves]], True
    except (AttributeError, RlxError):  # told by who traces the call
        return given, [], True


def _find_types(leaves: Sequence[Any]) -> bool:
    """Whether arrays did not know their types; they do then."""
    unknown = [x for x in leaves if type(x) is ConcreteArray and x._type is None and not x.is_deleted()]
    return [x.type for x in unknown] != []


@contextmanager
def _nesting(name: str) -> Generator[None]:
    """Raises NestingError where Python's limit of calls inside one another is reached."""
    try:
        yield
    except RecursionError as error:
        if isinstance(error, NestingError):
            raise
        raise NestingError(
            f"Tracing {name} went more than {sys.getrecursionlimit()} calls deep, Python's limit.",
            "Write a recursion that a traced value ends as a loop of rlx.lax, leave rlx.jit off functions that jitted"
            " ones call, or raise the limit: sys.setrecursionlimit(n).",
        ) from None


class CacheInfo(NamedTuple):
    """What a jitted function's cache did."""

    hits: int
    misses: int
    currsize: int
    maxsize: int


class Signature(NamedTuple):
    """The properties of a call that its program depends on, apart from how devices divide the arguments."""

    in_tree: tree.TreeDef
    dict_keys: tuple[Any, ...]  # keys that equal keys of other types
    types: tuple[TensorType, ...]  # of the dynamic leaves
    places: tuple[Any, ...]  # their shardings over Explicit axes
    token: Any  # of the switches
    static: tuple[tuple[Any, Any, Any], ...]  # position or name, key, value
    axes: Any  # mapped axes with their sizes, and over which of them the arguments vary
    where: Any  # the memory of the arguments, HOST if a policy may not move them, or "around" in another program


class Key(NamedTuple):
    """The key of a traced signature. The divisions of the arguments determine the divisions of the results."""

    signature: Signature
    divisions: tuple[Any, ...]


class _Entry:
    """One traced signature: its program, how to call it, what it returns."""

    __slots__ = "captured cells compiled flows followed given marks out_tree places program".split()
    compiled: CompiledProgram | None

    def __init__(
        self, program: Program, captured: list[Any], out_tree: Any, marks: dict[Any, Any], cells: Threaded | None = None
    ) -> None:
        self.program = program
        self.captured = captured
        self.cells = cells  # those that it closes over: their contents follow `captured` among the program's inputs
        self.given: tuple[int, ...] = ()  # which of the cells among the arguments it writes to
        self.flows = False  # whether a derivative may write to some of those
        self.out_tree = out_tree
        self.marks = marks  # shardings of values, where the function said them
        self.places: list[Any] | None = None  # the results' shardings, where some are known, once it is followed
        self.followed = False
        self.compiled = None

    def follow(self, arguments: Sequence[Any]) -> list[Any] | None:
        """The results' shardings, by those of what comes in and what the function said; explain what is moved."""
        if self.followed:
            return self.places
        self.followed = True
        arguments = (*self.captured, *arguments)
        if self.marks or any(map(_divided, arguments)):
            places = places_of(self.program, arguments, self.marks)
            results = self.out_tree.unflatten(range(self.out_tree.num_leaves))
            blocks = {x.local for x in tree.leaves(results) if isinstance(x, ArrayOfParts)}
            places = [None if n in blocks else place for n, place in enumerate(places)]
            self.places = places if any(places) else None
        if config.explain and (sent := explained_exchanges(self.program)):
            _say(sent)
        return self.places

    def operands(self, leaves: list[Any]) -> list[Any]:
        """What the program takes after what is captured: contents of cells, as they are now, and the arguments."""
        return leaves if self.cells is None else [*self.cells.contents(), *leaves]

    def returned(self, outs: Any, given: Sequence[Cell] = ()) -> Any:
        """The results, of what the program gave; the rest is written to the cells. given: those among the arguments."""
        outs = outs if self.cells is None else self.cells.write(outs)
        return write_last([given[i] for i in self.given], outs) if self.given else outs

    def placed(self, outs: list[Any]) -> list[Any]:
        """The results, known to lie where the function said while it was traced."""
        return outs if self.places is None else placed_at(outs, self.places)


def places_of(program: Program, arguments: Sequence[Any], marks: Any = None) -> list[Any]:
    """How the results of a program are divided, None where it is unknown; explain what devices exchange."""
    propagation = importlib.import_module("rlx.sharding.propagation")
    places, exchanges = propagation.propagated(program, [_divided(x) for x in arguments], marks or {})
    if config.explain and exchanges:
        _say(propagation.explained(program.name, exchanges))
    return places


class _JitTraces:
    """What was traced of a function with some options: shared by all that jit gave for these."""

    __slots__ = ("__weakref__", "_lock", "_plain_trees", "entries", "odd", "ready")

    def __init__(self) -> None:
        self.entries: OrderedDict[Key, _Entry] = OrderedDict()
        # by the key that a plain call makes fast: what runs, the results' tree (None: one array alone), what puts the
        # leaves in order, and whether some results are arguments
        self.ready: dict[Any, tuple[Callable[[Any], Any], Any, Callable[[Any], Any] | None, bool]] = {}
        self._plain_trees: set[tree.TreeDef] = set()  # whose keys of dicts are all strings
        self.odd = False  # whether there were others
        self._lock = threading.RLock()
        _all_traces.add(self)
        reopen_after_fork(self)

    def clear(self) -> None:
        """Forget every signature."""
        with self._lock:
            self.entries.clear()
            self.ready.clear()
            self._plain_trees.clear()

    def tree_key(self, treedef: tree.TreeDef) -> tuple[Any, Any]:
        """As the function of this name, which goes through every node the first time only."""
        if treedef in self._plain_trees:
            return treedef, ()
        found = tree_key(treedef)
        if found[1]:
            self.odd = True
        elif len(self._plain_trees) < _MOST_TREES:
            self._plain_trees.add(treedef)
        return found


_MOST_TREES = 256
_all_traces: weakref.WeakSet[_JitTraces] = weakref.WeakSet()
_traces: ByFunction[_JitTraces] = ByFunction(_JitTraces)


def forget_signatures() -> None:
    """Forget what was traced of every jitted function."""
    for traces in list(_all_traces):
        traces.clear()


class Jitted:
    """A jitted function; see `jit`."""

    def __init__(
        self,
        fun: Callable[..., Any],
        static_argnums: Sequence[int] = (),
        static_argnames: Sequence[str] = (),
        donate_argnums: Sequence[int] = (),
        donate_argnames: Sequence[str] = (),
        device: str | Policy | None = None,
        memory_limit: int | None = None,
        cache_size: int = 256,
    ) -> None:
        update_wrapper(self, fun, updated=())
        self.fun = fun
        self.name = function_name(fun)
        self.policy = Policy.from_env() if device == AUTO else device if isinstance(device, Policy) else None
        self.device = device if isinstance(device, str) and device != AUTO else None
        self.memory_limit = memory_limit
        self.static_argnums, self.static_argnames = chosen_arguments(fun, "static", static_argnums, static_argnames)
        self.donate_argnums, self.donate_argnames = chosen_arguments(fun, "donate", donate_argnums, donate_argnames)
        refuse_both((*self.static_argnums, *self.static_argnames), (*self.donate_argnums, *self.donate_argnames))
        self.cache_size = cache_size
        # calls without static arguments and keywords have a shorter way from the second one on
        self._plain = not (self.static_argnums or self.static_argnames)
        arguments = self.static_argnums, self.static_argnames, self.donate_argnums, self.donate_argnames
        self._traces = _traces.of(fun, (*arguments, device, memory_limit, cache_size))
        self._entries, self._ready = self._traces.entries, self._traces.ready
        self._misses = self._calls = 0

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A jitted method: the instance is its first argument."""
        return self if instance is None else partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        """What the user's function was given as an attribute, and its signature for inspect."""
        if name == "__signature__":
            return inspect.signature(self.__dict__["fun"])
        try:
            return self.__dict__["fun"].__dict__[name]
        except (KeyError, AttributeError):
            raise AttributeError(f"a jitted function has no attribute {name!r}") from None

    def __repr__(self) -> str:
        return f"<jitted {self.name}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name where a module holds it, as functions are; else by its function, without what was traced."""
        name, module = getattr(self.fun, "__qualname__", ""), getattr(self.fun, "__module__", None)
        # another process has a __main__ of its own
        if module != "__main__" and getattr(sys.modules.get(str(module)), name, None) is self:
            return name
        return partial(Jitted, **self._options()), (self.fun,)

    def _options(self) -> dict[str, Any]:
        options = {option: getattr(self, option) for option in list(inspect.signature(Jitted).parameters)[1:]}
        return options | {"device": self.policy or self.device}

    def on(self, device: str) -> Jitted:
        """The same function with the same options on a device."""
        options: dict[str, Any] = {**self._options(), "device": device}
        return Jitted(self.fun, **options)

    # ------------------------------------------------------------------ calling
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._plain and not kwargs and state.builder is None:
            # entries are never kept for a token of disable_jit; an unknown type (None) finds nothing
            key: list[Any] | None = [config.token]
            leaves: list[Any] = []
            foreign = False
            try:
                for x in args:
                    if type(x) is ConcreteArray:
                        key.append(x._type)
                        leaves.append(x)
                    elif type(x) is dict:
                        key.append(tuple(x))
                        key += map(_type_of, x.values())
                        leaves += x.values()
                    else:
                        key = None  # something else, or deeper
                        break
            except AttributeError:
                key = None
            # outside of the handler: what the user's function raises is no consequence of ours
            if key is None:
                leaves, key, foreign = _key_of(args)
            found = self._ready.get(tuple(key))
            if found is None and _find_types(leaves):
                return self(*args)
            if found is None and self._traces.odd:
                found = self._ready.get((*key, odd_keys_in(args)))
            if found is not None and not (foreign and found[3]):
                run, out_tree, order, _ = found
                self._calls += 1
                results = run(order(leaves) if order else leaves)
                return results[0] if out_tree is None else _unflatten(out_tree, results)
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if config.disable_jit:
            return self.fun(*args, **kwargs)
        request = _Request(self, args, kwargs)
        if state.builder is not None:
            entry = self._entry(request)
            if entry.flows and not request.flowing:
                request = _Request(self, args, kwargs, flowing=True)
                entry = self._entry(request)
            operands = entry.operands(request.leaves)
            outs = call(*entry.captured, *operands, program=entry.program, name=self.name)
            places_inside(entry.marks)
            outs = [lying_so(x, entry.marks.get(atom)) for x, atom in zip(outs, entry.program.outputs, strict=True)]
            return entry.out_tree.unflatten(entry.returned(outs, request.cells))
        for x in request.leaves:
            if isinstance(x, Tracer):
                raise leaked(x)
        self._calls += 1
        with _nesting(self.name):
            entry = self._entry(request)
        operands = entry.operands(request.leaves)
        if entry.compiled is None:
            with self._traces._lock, _nesting(self.name):
                if entry.compiled is None:
                    entry.follow(operands)
                    closed = close_over(entry.program, entry.captured)
                    entry.compiled = self._compiled(request, closed, entry, operands)
        compiled = entry.compiled
        # contents of cells may lie anywhere
        brings = entry.cells is not None or (
            (request.away or not compiled.memory.host) and compiled.brings(request.leaves)
        )
        # keys of the fast path do not say whether arrays on the host were put there
        moves = self.automatic and not compiled.memory.host
        giving = request.donated_leaves() if self.donate_argnums else None
        short = giving is None or _may_give(request, compiled, brings)
        if request.fast_key is not None and not watching() and not moves and short:
            out_tree = None if entry.out_tree.spec.is_leaf() else entry.out_tree.maker()
            caller = compiled.run if brings else compiled.caller()
            run = caller if entry.places is None else lambda args: entry.placed(caller(args))
            if entry.cells is not None:
                pure = run
                run = lambda args: entry.returned(pure(entry.operands(args)))  # noqa: E731
            if giving is not None:
                run = _giving(self.name, run, giving)
            self._ready[request.fast_key] = (run, out_tree, request.order, compiled.passes_inputs)
        outs = entry.placed(request.run(compiled, operands, brings))
        if watching() and (found := refused(outs)):
            _refuse_results(found, self.name, compiled.program, operands)
        request.donate(outs)
        return entry.out_tree.unflatten(entry.returned(outs, request.cells))

    def _compiled(self, request: _Request, closed: Program, entry: _Entry, operands: list[Any]) -> CompiledProgram:
        """The compiled program of a signature, on its device or the one that a policy chooses."""
        backend = self.backend_for(request, entry.program, entry.captured)
        if not self.automatic or request.divided or self.memory_limit is not None:
            return CompiledProgram(closed, backend, self.memory_limit, given=request.donated(operands))
        committed = request.committed or any(map(_is_committed, entry.captured))
        return chooser.compiled(closed, operands, self.policy, backend.memory if committed else None)

    @property
    def automatic(self) -> bool:
        """Whether a policy chooses the device of each program."""
        return self.policy is not None or (config.auto_device and self.device is None)

    def _entry(self, request: _Request) -> _Entry:
        entry = self._entry_of(request)
        if request.cells and entry.cells is not None:
            refuse_closed_over(self.name, entry.cells.used, named_leaves(request))
        return entry

    def _entry_of(self, request: _Request) -> _Entry:
        entry = self._entries.get(request.key)
        if entry is not None:
            return entry
        with self._traces._lock:
            entry = self._entries.get(request.key)
            if entry is not None:
                return entry
            if config.explain and self._entries:
                _say(_explain(self, request))
            self._misses += 1
            entry = self._trace(request)
            if not any(isinstance(c, Tracer) for c in entry.captured):
                self._entries[request.key] = entry
                while len(self._entries) > self.cache_size:
                    self._entries.popitem(last=False)
                    self._ready.clear()
            return entry

    def memory_for(self, leaves: Sequence[Any]) -> Any:
        """Where arguments lie: None for the host's memory, and where `device` says where they have to come.

        Raises DeviceError if they lie on several devices.
        """
        return None if self.device is not None else common_memory(self.name, leaves)

    def backend_for(self, request: _Request, program: Program, captured: Sequence[Any]) -> Backend:
        """What compiles a call's program: as `device` says, or the arguments and what was closed over on devices."""
        if self.device is not None:
            return backend_named(self.device)
        away = [x for x in captured if type(x) is DeviceArray]
        memory = common_memory(self.name, [*request.given, *away]) if away else request.memory
        return backend_on(None if program_stays_on_host(program, memory) else memory)

    def _trace(self, request: _Request) -> _Entry:
        if config.no_tracing:
            raise SwitchError(
                f"{self.name} would be traced, which the switch no_tracing forbids.",
                "Call it with arguments of shapes and dtypes that it was traced for, or outside of the `with` block.",
            )
        flat = FlatFunction(request.function, request.in_tree, name=self.name)
        types = [x.type for x in request.leaves]
        marks: dict[Any, Any] = {}

        def placed(*leaves: Any) -> list[Any]:
            for x, place in zip(leaves, request.places, strict=False):
                if place is not None:
                    place_known(x, place)
            outs = flat(*leaves)
            marks.update(places_known())
            return [*outs, *request.left_in_cells()] if request.cells else outs

        threaded = Threaded(placed)
        # what asks for the default device means the one that the program is for
        with scoped(device=self._device(request)):
            program, captured = trace_program(threaded, types, None, self.name, request.leaves)
        threaded.forget()
        count = len(captured) - len(threaded.used)
        entry = _Entry(program, captured[:count], flat.out_tree, marks, threaded if threaded.used else None)
        entry.given, entry.flows = request.written, request.flow_back()
        return entry

    def _device(self, request: _Request) -> str:
        """The name of the device that a call's program is for; inside of another program that one's."""
        if state.builder is not None:
            return config.device
        if self.device is not None:
            return self.device
        default = memory_named(None)
        if request.memory is default or (request.memory is None and default.host):
            return config.device
        return HOST.name if request.memory is None else request.memory.device.name

    def delivered(self, out: Any) -> Any:
        """What a call returns, of what was computed; with out_shardings arrays know where they lie."""
        return out

    def shardings_of_arguments(self, undivided: Any) -> Any:
        """How positional arguments are divided: as `undivided`, a tree of shardings, where nobody says otherwise."""
        return undivided

    def shardings_of_results(self, undivided: Any) -> Any:
        """How the results are divided: as `undivided`, a tree of shardings, where nobody says otherwise."""
        return undivided

    # ------------------------------------------------------------------ the cache
    def cache_info(self) -> CacheInfo:
        """Hits, misses (traces), current and largest number of kept signatures."""
        return CacheInfo(self._calls - self._misses, self._misses, len(self._entries), self.cache_size)

    def clear_cache(self) -> None:
        """Forget every traced signature."""
        self._traces.clear()

    # ------------------------------------------------------------------ ahead of time
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments (arrays, or anything with .shape and .dtype), without compiling."""
        request = _Request(self, args, kwargs, abstract=True)
        entry = self._entry(request)
        return Traced(request, entry)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """trace(...).lower()."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the result, without computing it."""
        traced = self.trace(*args, **kwargs)
        return traced.out_info


def _refuse_results(found: str, name: str, program: Program, args: Sequence[Any]) -> None:
    """Run the program again op by op; raise NanError with the user's line where a NaN or infinity is first made."""
    interpret(inline_calls(program), args)
    raise NanError(
        f"{name} returned {found} that no operation made: it came in with the arguments or a constant.",
        "Look at what is passed in, and at the constants that the function uses.",
    )


_KEY = "Static arguments are part of the cache key: "
_UNHASHABLE = {
    list: f"{_KEY}pass a tuple instead of a list, or make the argument dynamic.",
    dict: f"{_KEY}pass a tuple of pairs or a frozen dataclass instead of a dict, or make the argument dynamic.",
    set: f"{_KEY}pass a frozenset instead of a set.",
    ConcreteArray: f"{_KEY}leave an array out of static_argnums and static_argnames, so that it is traced.",
    np.ndarray: f"{_KEY}leave an array out of static_argnums and static_argnames, so that it is traced.",
    object: f"{_KEY}give its class __hash__ and __eq__ (a frozen dataclass has them), or make the argument dynamic.",
}


def _kind_of(value: Any) -> str:
    return "an rlx array" if isinstance(value, Array) else f"a {type(value).__name__}"


class _Request:
    """The arguments of one call: dynamic leaves, static values, the cache key."""

    def __init__(
        self,
        jitted: Jitted,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        abstract: bool = False,
        flowing: bool = False,
    ) -> None:
        self.jitted = jitted
        static: list[tuple[Any, Any]] = []
        n = len(args)
        numbers = {i % n if n and -n <= i < n else i for i in jitted.static_argnums}
        held = {i: args[i] for i in numbers if i < n}
        held_names = {k: v for k, v in kwargs.items() if k in jitted.static_argnames}
        for where, value in (*sorted(held.items()), *sorted(held_names.items())):
            try:
                hash(value)
            except TypeError:
                raise NonHashableStaticArgumentError(
                    f"Static argument {where!r} of {jitted.name} is {_kind_of(value)}, which cannot be hashed:"
                    f" {value!r:.60}.",
                    _UNHASHABLE.get(type(value), _UNHASHABLE[object]),
                ) from None
            static.append((where, value))
        dynamic = tuple(a for i, a in enumerate(args) if i not in held)
        dynamic_kwargs = {k: v for k, v in kwargs.items() if k not in held_names}
        leaves, self.in_tree = flatten_values((dynamic, dynamic_kwargs))
        self.args, self.kwargs = args, kwargs
        # the cells among the arguments, and those that the function got in their place while it was traced
        self.cells, self._inner_cells = cells_given(leaves, flowing), list[tuple[Cell, Array]]()
        self.written: tuple[int, ...] = ()  # which of them the function wrote to
        self.flowing = flowing
        if self.cells:
            leaves, self.in_tree = flatten_values(as_given((dynamic, dynamic_kwargs), flowing))
        self.given = leaves
        self.held, self.held_names, self.count = held, held_names, n
        if self.cells:
            refuse_twice(jitted.name, named_leaves(self))
        try:
            self.leaves = [_leaf(x, jitted, abstract) for x in leaves]
        except InputTypeError as error:
            raise _refused_argument(self, [_takes(x, jitted, abstract) for x in leaves].index(False), error) from None
        # whether there are arrays that do not lie in the host's memory
        self.away = DeviceArray in set(map(type, self.leaves))
        if self.away:
            # arrays of other libraries lie where they were made
            self.given = [made if type(made) is DeviceArray else x for x, made in zip(leaves, self.leaves, strict=True)]
        types = [x.type for x in self.leaves]
        values = tuple((k, static_key(v), v) for k, v in static)
        structure, odd_keys = jitted._traces.tree_key(self.in_tree)
        # where the arguments lie: None for the host's memory
        self.memory: Any = None
        if (self.away or config.watched) and state.builder is None:
            self.memory = jitted.memory_for(self.given)
        # a policy does not move arrays that the user put somewhere
        self.committed = jitted.automatic and any(map(_is_committed, self.given))
        # inside of another program it is that one's
        where = "around" if config.watched and state.builder is not None else self.memory
        if self.committed and where is None:
            where = HOST
        # how Explicit axes of a mesh of several devices divide the arguments, which a function may ask
        places = tuple(map(_explicit_place, self.leaves))
        self.places = places if any(places) else ()
        # over which axes of a mesh they vary, which a function may ask as well
        axes = state.axes
        if tracked_axes():
            axes = (axes, *map(varying_axes, self.leaves), *map(reductions_of, self.leaves))
        # a compiled call must have the same signature
        self.signature = Signature(
            in_tree=structure,
            dict_keys=odd_keys,
            types=tuple(types),
            places=self.places,
            token=config.token,
            static=values,
            axes=axes,
            where=where,
        )
        self.divisions = tuple(map(_divided, self.leaves))
        self.divided = any(self.divisions)
        self.key = Key(self.signature, self.divisions if self.divided else ())
        self.fast_key: Any = None
        self.order: Callable[[Any], Any] | None = None
        if jitted._plain and not (kwargs or self.cells) and state.builder is None:
            self._describe(args, types)
            if odd_keys and self.fast_key is not None:
                seen = odd_keys_in(args)
                self.fast_key = (*self.fast_key, seen) if len(seen) == len(odd_keys) else None
        self._check_donated()

    def _describe(self, args: tuple[Any, ...], types: Sequence[Any]) -> None:
        """The key that Jitted.__call__ makes of such arguments, and how it has to order the leaves."""
        if (self.away or config.watched) and not _ON_HOST.isdisjoint(map(type, self.given)):
            return  # whether somebody has put an array on the host is looked at in each call
        token = config.token
        given = tree.leaves(args)
        if self.away or self.divided:
            types = [_placed_type(x) for x in self.leaves]
        if any(isinstance(x, ArrayOfParts) for x in given):
            kinds = [x._type if isinstance(x, ArrayOfParts) else t for x, t in zip(given, types, strict=True)]
            self.fast_key = (token, tree.structure(args).spec, *kinds)
            self.order = locals_of
            return
        if not all(type(a) is ConcreteArray or _is_flat_dict(a) for a in args):
            self.fast_key = (token, tree.structure(args).spec, *types)
            return
        parts: list[Any] = []
        numbers = itertools.count()
        numbered = []
        for a in args:
            values = [a] if type(a) is ConcreteArray else list(a.values())
            types = [_placed_type(x) if self.away or self.divided else x.type for x in values]
            parts += types if type(a) is ConcreteArray else [tuple(a), *types]
            numbered.append(next(numbers) if type(a) is ConcreteArray else {k: next(numbers) for k in a})
        order = tree.leaves(tuple(numbered))
        self.fast_key = (token, *parts)
        if order != sorted(order):
            self.order = operator.itemgetter(*order)

    def run(self, compiled: CompiledProgram, operands: list[Any], brings: bool = True) -> list[ConcreteArray]:
        """The results of the program for these operands, the last of which are the arguments; `brings`: some may lie in
        other memories. It reads NumPy arrays where they are; of one that is handed through the caller gets a copy."""
        if self._gives and not compiled.memory.host and not watching():
            outs = compiled.run_giving(operands, self.donated(operands))
        else:
            outs = compiled.run(operands) if brings else compiled.run_there(operands)
        if not compiled.passes_inputs:
            return outs
        foreign = {id(x) for x, given in zip(self.leaves, self.given, strict=True) if x is not given}
        return [owned(x) if id(x) in foreign else x for x in outs]

    def function(self, *dynamic: Any, **keywords: Any) -> Any:
        """The user's function with its static arguments put back."""
        if self.cells:
            (dynamic, keywords), own = received((dynamic, keywords))
            self._inner_cells = [(cell, cell.read()) for cell in own]
        return self.jitted.fun(*self._complete(dynamic), **keywords, **self.held_names)

    def left_in_cells(self) -> list[Array]:
        """What the function that was just called left in those cells among its arguments that it wrote to."""
        found = [cell.read() for cell, _ in self._inner_cells]
        self.written = tuple(i for i, (_, before) in enumerate(self._inner_cells) if found[i] is not before)
        return [found[i] for i in self.written]

    def flow_back(self) -> bool:
        """Whether the function that was just called is one whose derivative may write to those cells."""
        return flow_back(cell for cell, _ in self._inner_cells)

    def _complete(self, dynamic: tuple[Any, ...]) -> tuple[Any, ...]:
        """All positional arguments, of those that are not static."""
        rest = iter(dynamic)
        return tuple(self.held[i] if i in self.held else next(rest) for i in range(self.count))

    def again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Request:
        """Another call of the same function. Static arguments may be left out, all or none of them."""
        if self.held and len(args) == self.count - len(self.held):
            args = self._complete(args)
        return _Request(self.jitted, args, {**self.held_names, **kwargs})

    def donated(self, operands: Sequence[Any]) -> list[bool]:
        """Which operands of the program a call would give away: the last ones are the leaves."""
        return [False] * (len(operands) - len(self.leaves)) + self.donated_leaves()

    def donated_leaves(self) -> list[bool]:
        """Which leaves a call would give away."""
        given: list[bool] = []
        numbers = self._donated_numbers()
        for i, a in enumerate(self.args):
            if i not in self.held:
                given += [i in numbers] * len(tree.leaves(a))
        for k, v in sorted(self.kwargs.items()):
            if k not in self.held_names:
                given += [k in self.jitted.donate_argnames] * len(tree.leaves(v))
        return given

    def _donated_numbers(self) -> set[int]:
        """Positions of the arguments that a call gives away, counted from the front."""
        n = len(self.args)
        return {i % n for i in self.jitted.donate_argnums if -n <= i < n}

    @property
    def _gives(self) -> bool:
        """Whether a call may give arguments away."""
        return bool(self.jitted.donate_argnums or self.jitted.donate_argnames)

    def _check_donated(self) -> None:
        _check_given(self.jitted.name, self.leaves, self.donated_leaves() if self._gives else ())

    def donate(self, results: Sequence[Any]) -> None:
        """After a successful call: give donated arguments' memory back."""
        given = [self.args[i] for i in sorted(self._donated_numbers())]
        given += [self.kwargs[k] for k in self.jitted.donate_argnames if k in self.kwargs]
        if given:
            _give(locals_of(tree.leaves(given)), results)


def _check_given(name: str, leaves: Sequence[Any], donated: Sequence[bool]) -> None:
    """Raise an error if an array to donate is another argument, too, or if an argument's memory is gone."""
    given, every = [id(x) for x in itertools.compress(leaves, donated) if type(x) in _OF_NUMBERS], list(map(id, leaves))
    if any(every.count(i) > 1 for i in given):
        raise DonatedArrayError(
            f"{name} was called with an array to donate that is another argument, too.",
            "Pass a copy, or leave the argument out of donate_argnums.",
        )
    for x in leaves:
        if type(x) in _OF_NUMBERS and x.is_deleted():
            raise gone(x, f"An argument of {name} ({x.type!r})")


def _give(given: Iterable[Any], results: Sequence[Any]) -> None:
    """Give back the memory of arrays that are not results."""
    kept = set(map(id, results))
    for x in given:
        if type(x) in _OF_NUMBERS and id(x) not in kept:
            x.donate()


def _may_give(request: _Request, compiled: CompiledProgram, brings: bool) -> bool:
    """Whether a call that donates has the shorter way: on the host, with its own arrays only."""
    return compiled.memory.host and not brings and set(map(type, request.given)) <= {ConcreteArray}


def _giving(name: str, run: Callable[[Any], Any], donated: Sequence[bool]) -> Callable[[Any], Any]:
    """`run`, which gives the memory of donated leaves back."""

    def call(leaves: Sequence[Any]) -> Any:
        _check_given(name, leaves, donated)
        results = run(leaves)
        _give(itertools.compress(leaves, donated), results)
        return results

    return call


def _is_committed(x: Any) -> bool:
    """Whether the user put an array on a device, the host included."""
    return type(x) is DeviceArray or hasattr(x, "_sharding")


def _is_flat_dict(x: Any) -> bool:
    return type(x) is dict and all(isinstance(v, ConcreteArray) for v in x.values())


def _traced_place(x: Tracer) -> Any:
    """The sharding of a traced value, where one is known: what was said of it, or under a mesh what follows."""
    said = place_of(x)
    if said is not None or (config.mesh is None and not state.axes):
        return said
    return importlib.import_module("rlx.sharding.traced_places").traced_sharding(x)


def _explicit_place(x: Array) -> Any:
    """The sharding of an argument that Explicit axes of a mesh of several devices divide; None for others."""
    return explicit(_traced_place(x) if isinstance(x, Tracer) else getattr(x, "_sharding", None))


def _divided(x: Any) -> Any:
    """The sharding of an array, unless it is on the process's first device alone; None for others."""
    if type(x) is _Abstract:
        return None if x._sharding is None or x._sharding.is_default else x._sharding
    return x._type.sharding if type(x) is DividedArray else None


def _placed_type(x: Array) -> Any:
    """An array's type, and where it lies if that is not one device of the host."""
    return x._type if type(x) is DeviceArray or type(x) is DividedArray else x.type


class _Abstract(Array):
    """An argument of which only shape and dtype are known, and how it is divided if somebody said."""

    __slots__ = ("_sharding", "type")

    def __init__(self, type: TensorType, sharding: Any) -> None:
        self.type, self._sharding = type, sharding


def _leaf(x: Any, jitted: Jitted, abstract: bool) -> Any:
    if isinstance(x, Array):
        return x
    if abstract and not hasattr(x, "__array__") and hasattr(x, "shape") and hasattr(x, "dtype"):
        type = TensorType(tuple(x.shape), x.dtype, getattr(x, "weak_type", False))
        return _Abstract(type, x.sharding if isinstance(x, ShapeDtypeStruct) else None)
    return shared_array(x, f"An argument of {jitted.name}")


def _takes(x: Any, jitted: Jitted, abstract: bool) -> bool:
    """Whether a leaf of the arguments is an array, or can be one."""
    try:
        _leaf(x, jitted, abstract)
    except InputTypeError:
        return False
    return True


def _refused_argument(request: _Request, number: int, error: InputTypeError) -> InputTypeError:
    """The error for a leaf that is no array, with its place in the call and what to do with such an argument."""
    name, (where, path) = request.jitted.name, _leaf_places(request)[number]
    parameter = parameter_at(request.jitted.fun, where) if isinstance(where, int) else where
    place = f"Argument {where if parameter is None else repr(parameter)}{path} of {name}"
    general = f"An argument of {name}"
    if not error.what.startswith(general):  # an array, of something else than numbers
        return InputTypeError(f"{place}: {error.what}", error.instead)
    what = error.what.replace(general, place, 1)
    option = f"static_argnums={where}" if parameter is None else f"static_argnames={parameter!r}"
    if where == 0 and parameter == "self":
        instead = (
            "A method's object is its first argument: mark it static, @functools.partial(rlx.jit, static_argnums=0),"
            " which traces once for each object; or register its class with rlx.tree.register_dataclass, so that its"
            " arrays are traced."
        )
    elif path:
        instead = (
            f"Trees hold arrays and numbers: take it out of the tree, or mark the whole argument static ({option})"
            " if it can be hashed, or register its class with rlx.tree.register_node."
        )
    else:
        instead = (
            f"Pass an array or a number; mark a setting static, rlx.jit(f, {option}); or register its class with"
            " rlx.tree.register_node."
        )
    return InputTypeError(what, instead)


def _leaf_places(request: _Request) -> list[tuple[Any, str]]:
    """For each dynamic leaf the argument's number or keyword, and the path in it as text."""
    named: list[tuple[Any, Any]] = [(i, a) for i, a in enumerate(request.args) if i not in request.held]
    named += sorted((k, v) for k, v in request.kwargs.items() if k not in request.held_names)
    return [(where, tree.path_text(path)) for where, value in named for path, _ in tree.leaves_with_path(value)]


def named_leaves(request: _Request) -> list[tuple[str, Any]]:
    """Each dynamic leaf, as it was given, after the parameter that it belongs to and its path there: "x['a']"."""
    function, held = request.jitted.fun, request.held
    named: list[tuple[str, Any]] = [
        (parameter_at(function, i) or f"argument {i}", a) for i, a in enumerate(request.args) if i not in held
    ]
    named += sorted((k, v) for k, v in request.kwargs.items() if k not in request.held_names)
    return [(name + tree.path_text(path), x) for name, value in named for path, x in tree.leaves_with_path(value)]


def _leaf_names(request: _Request) -> list[str]:
    """Where each dynamic leaf stands in the call: 0['a'], or 'y'[1] for a keyword."""
    return [f"{where!r}{path}" for where, path in _leaf_places(request)]


def _readable(structure: tree.TreeDef) -> str:
    """A structure of arguments in which arrays that processes divide are called by their types and specs."""
    leaves = tree.leaves(tree.unflatten(structure, range(structure.num_leaves)))
    divided = [f"{x.type!r} as {x._sharding.spec!r}" for x in leaves if isinstance(x, ArrayOfParts)]
    shape = tree.structure(tree.unflatten(structure, range(structure.num_leaves)))
    return f"{shape} with {', '.join(divided)}" if divided else str(structure)


def _say(text: str) -> None:
    """Print an explanation at once; of several processes each puts its rank before every line."""
    own = communicator()
    lines = [f"[{own.rank}] {line}" if own.size > 1 else line for line in text.splitlines()]
    sys.stderr.write("\n".join([*lines, ""]))


def _explain(jitted: Jitted, request: _Request) -> str:
    """Why this call was traced: what differs from the nearest earlier signature."""
    lines = [f"rlx: {jitted.name} is traced again ({len(jitted._entries) + 1} signatures)"]
    last, now = next(reversed(jitted._entries)).signature, request.signature
    if last.in_tree != now.in_tree:
        lines.append(f"  structure of the arguments: {_readable(last.in_tree)} -> {_readable(now.in_tree)}")
    for name, a, b in zip(_leaf_names(request), last.types, now.types, strict=False):
        if a != b:
            lines.append(f"  argument {name}: {a!r} -> {b!r}")
    before, after = ({k: v for k, _, v in key.static} for key in (last, now))
    for where in (*before, *(k for k in after if k not in before)):
        a, b = (repr(held[where]) if where in held else "absent" for held in (before, after))
        if a != b:
            lines.append(f"  static argument {where!r}: {a:.60} -> {b:.60}")
    if len(lines) == 1:
        lines.append("  a switch (default dtype, device), the mapped axes or how devices divide arguments changed")
    return "\n".join(lines)
