"""A jitted function: its calls, and its cache of signatures."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any

import optree

from rlx.array import memory_of
from rlx.backends import backend_named, memory_named
from rlx.call.argument_names import leaf_names, named_leaves
from rlx.call.arguments import Arguments, Request, Roles
from rlx.call.cache import CacheInfo, ReadyCall, SignatureEntry, signature_traces
from rlx.call.compiled import CompiledProgram, backend_on
from rlx.call.default_place import program_stays_on_host
from rlx.call.divisions import is_committed
from rlx.call.donation import give
from rlx.call.explanations import say, why_traced_again
from rlx.call.hooks import chooser
from rlx.call.jit_options import chosen_arguments, refuse_both
from rlx.call.key import Key, Signature, call_key, completed_key, program_order
from rlx.call.native_calls import JittedWords, Uses, WithWords
from rlx.call.policy import AUTO, Policy
from rlx.call.run import check_results, ready_call, run_compiled
from rlx.call.sized import sized_entry
from rlx.call.stages import Lowered, Traced
from rlx.call.trace import nesting, trace_entry
from rlx.config import config
from rlx.errors import SwitchError
from rlx.ir.program import Program
from rlx.ops.call import call
from rlx.trace.builder import is_traced, leaked, state
from rlx.trace.flat import function_name
from rlx.trace.places import HOST, common_memory
from rlx.trace.references import refuse_closed_over
from rlx.trace.spanning import locals_of
from rlx.trace.tracing import close_over, lying_so, places_inside, tracked_axes
from rlx.transforms.reductions import reductions_of
from rlx.transforms.varying import varying_axes
from rlx.trees.structure import odd_keys_in

if TYPE_CHECKING:
    from rlx.backends.base import Backend

__all__ = ["Jitted", "Request"]

_unflatten = optree.tree_unflatten


class Jitted(WithWords):
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
        static = chosen_arguments(fun, "static", static_argnums, static_argnames)
        donated = chosen_arguments(fun, "donate", donate_argnums, donate_argnames)
        refuse_both((*static[0], *static[1]), (*donated[0], *donated[1]))
        self.roles = Roles(fun, self.name, *static, *donated)
        self.cache_size = cache_size
        self._has_static = self.roles.has_static
        self._traces = signature_traces.of(fun, (*self.roles[2:], device, memory_limit, cache_size))
        self._ready = self._traces.ready
        self._misses = self._calls = 0
        self._native = JittedWords(self._traces.known)
        self._words = self._native.address

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
        roles = dict(zip(self.roles._fields[2:], self.roles[2:], strict=True))
        own = {"device": self.policy or self.device, "memory_limit": self.memory_limit, "cache_size": self.cache_size}
        return roles | own

    def on(self, device: str) -> Jitted:
        """The same function with the same options on a device."""
        options: dict[str, Any] = {**self._options(), "device": device}
        return Jitted(self.fun, **options)

    # ------------------------------------------------------------------ calling
    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """Any call; see rlx.call.native_calls for those that do not come here."""
        if state.builder is not None:
            return self._record(args, kwargs)
        token: Any = config.token
        given = args
        if kwargs or self._has_static:
            token, given = self._dynamic(args, kwargs)
        leaves, key, foreign = call_key(token, given)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready.get(completed_key(given, leaves, key, self._traces.odd))
        # of NumPy arrays that are results copies are returned
        if ready is None or (foreign and ready[2]):
            return self._first_call(token, given, args, kwargs)
        run, out_tree, _, uses = ready
        self._calls += 1
        results = run(leaves)
        if uses is not None:
            uses.count(Jitted, self._traces.known)
        return results[0] if out_tree is None else _unflatten(out_tree, results)

    __call__ = _call  # until native code replaces it

    def _dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """The token of a call, of which static arguments and the use of keywords are a part, and its other values."""
        if config.disable_jit:
            return config.token, ()
        split = self.roles.split(args, kwargs)
        values = (*split.args, split.kwargs) if split.kwargs else split.args
        return (config.token, split.static(), bool(split.kwargs)), values

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function inside another program."""
        if config.disable_jit:
            return self.fun(*args, **kwargs)
        request = self.request(Arguments(self.roles, args, kwargs))
        entry = self._entry(request)
        if entry.flows:
            request = self.request(Arguments(self.roles, args, kwargs, flowing=True))
            entry = self._entry(request)
        operands = entry.operands(request.arguments.leaves)
        outs = call(*entry.captured, *operands, program=entry.program, name=self.name)
        places_inside(entry.marks)
        outs = [lying_so(x, entry.marks.get(atom)) for x, atom in zip(outs, entry.program.outputs, strict=True)]
        return entry.out_tree.unflatten(entry.returned(outs, request.arguments.cells))

    def _first_call(self, token: Any, given: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call whose key is unknown: trace and compile the function unless its signature is known."""
        if config.disable_jit:
            return self.fun(*args, **kwargs)
        request = self.request(Arguments(self.roles, args, kwargs))
        arguments = request.arguments
        for x in arguments.leaves:
            if is_traced(x):
                raise leaked(x)
        self._calls += 1
        with nesting(self.name):
            sized = sized_entry(self, request, self._traces)
            entry = sized or self._entry(request)
            operands = entry.operands(arguments.leaves)
            compiled = self._traces.compiled(entry, partial(self._compiled, request, entry, operands))
        # contents of cells may be in any memory
        brings = entry.cells is not None or (
            (arguments.away or not compiled.memory.host) and compiled.brings(arguments.leaves)
        )
        ready = ready_call(arguments, entry, compiled, brings, self.automatic)
        if ready is not None:
            self._keep(ready, token, given, request.key.signature.dict_keys, entry, sized is not None)
        outs = entry.placed(run_compiled(compiled, arguments, operands, brings))
        check_results(outs, self.name, compiled.program, operands)
        if self.roles.donates:
            give(locals_of(arguments.donated_values()), outs)
        return entry.out_tree.unflatten(entry.returned(outs, arguments.cells))

    def _keep(
        self,
        ready: ReadyCall,
        token: Any,
        given: tuple[Any, ...],
        odd_keys: tuple[Any, ...],
        entry: SignatureEntry,
        sized: bool,
    ) -> None:
        """Let later calls with the key of these values run at once. sized: the program is filled in for their sizes."""
        leaves, key, _ = call_key(token, given)
        # a key finds no keys of dicts in nodes of users' classes
        if key and len(odd_keys_in(given)) == len(odd_keys):
            run, out_tree, passes_inputs, _ = ready
            order = program_order(given, leaves, key)
            ordered = run if order is None else lambda x: run(order(x))
            key = completed_key(given, leaves, key, bool(odd_keys))
            compiled, donates = entry.compiled, self.roles.donates
            plain = entry.cells is None and entry.places is None and not donates and not self._traces.odd
            uses = Uses.of(key, given, compiled, out_tree) if plain and compiled is not None else None
            ready = ordered, out_tree, passes_inputs, uses
            if sized:
                self._traces.keep_sized(key, ready)
            else:
                self._ready[key] = ready

    # ------------------------------------------------------------------ the program of a call
    def request(self, arguments: Arguments) -> Request:
        """What a call with these arguments depends on. Raises DeviceError if they are on several devices."""
        inside = state.builder is not None
        memory: Any = None
        if (arguments.away or config.watched) and not inside and self.device is None:
            memory = common_memory(self.name, arguments.given)
        committed = self.automatic and any(map(is_committed, arguments.given))
        where = "around" if config.watched and inside else memory
        if committed and where is None:
            where = HOST
        structure, odd_keys = self._traces.tree_key(arguments.in_tree)
        # a function may ask over which axes of a mesh its arguments vary
        axes: Any = state.axes
        if tracked_axes():
            axes = (axes, *map(varying_axes, arguments.leaves), *map(reductions_of, arguments.leaves))
        # a compiled call must have the same signature
        signature = Signature(
            in_tree=structure,
            dict_keys=odd_keys,
            types=tuple([x.type for x in arguments.leaves]),
            places=arguments.explicit_divisions,
            token=config.token,
            static=arguments.split.static(),
            axes=axes,
            where=where,
        )
        return Request(arguments, Key(signature, arguments.divisions), memory, committed)

    def _entry(self, request: Request) -> SignatureEntry:
        entry = self._traces.find(request.key, self.cache_size, partial(self._trace, request))
        if request.arguments.cells and entry.cells is not None:
            refuse_closed_over(self.name, entry.cells.used, named_leaves(request.arguments.tree()))
        return entry

    def count_trace(self, request: Request) -> None:
        """Count a trace for a call, and explain it if the function has been traced before."""
        last, self._traces.latest = self._traces.latest, request.key.signature
        if config.explain and last is not None:
            names = leaf_names(request.arguments.tree())
            say(why_traced_again(self.name, self._traces.count() + 1, last, request.key.signature, names))
        self._misses += 1

    def _trace(self, request: Request) -> SignatureEntry:
        self.count_trace(request)
        if config.no_tracing:
            raise SwitchError(
                f"{self.name} would be traced, which the switch no_tracing forbids.",
                "Call it with arguments of shapes and dtypes that it was traced for, or outside of the `with` block.",
            )
        return trace_entry(request.arguments, request.key.signature.places, self.device_name(request))

    def device_name(self, request: Request) -> str:
        """The name of the device that a call's program is for; inside another program, the other program's device."""
        if state.builder is not None:
            return config.device
        if self.device is not None:
            return self.device
        default = memory_named(None)
        if request.memory is default or (request.memory is None and default.host):
            return config.device
        return HOST.name if request.memory is None else request.memory.device.name

    @property
    def automatic(self) -> bool:
        """Whether a policy chooses the device of each program."""
        return self.policy is not None or (config.auto_device and self.device is None)

    def backend_for(self, request: Request, program: Program, captured: Sequence[Any]) -> Backend:
        """The backend of a call's program: as `device` says, or that of arguments and captured values on devices."""
        if self.device is not None:
            return backend_named(self.device)
        away = [x for x in captured if memory_of(x) is not None]
        memory = common_memory(self.name, [*request.arguments.given, *away]) if away else request.memory
        return backend_on(None if program_stays_on_host(program, memory) else memory)

    def _compiled(self, request: Request, entry: SignatureEntry, operands: list[Any]) -> CompiledProgram:
        """The compiled program of a signature, on its device or the one that a policy chooses."""
        entry.follow(operands)
        closed = close_over(entry.program, entry.captured)
        backend = self.backend_for(request, entry.program, entry.captured)
        if not self.automatic or request.key.divisions or self.memory_limit is not None:
            given = request.arguments.donated(operands)
            return CompiledProgram(closed, backend, self.memory_limit, given=given)
        committed = request.committed or any(map(is_committed, entry.captured))
        return chooser.compiled(closed, operands, self.policy, backend.memory if committed else None)

    def delivered(self, out: Any) -> Any:
        """What a call returns for computed results; with out_shardings they get their shardings."""
        return out

    def shardings_of_arguments(self, undivided: Any) -> Any:
        """The shardings of positional arguments: `undivided`, a tree of shardings, unless stated otherwise."""
        return undivided

    def shardings_of_results(self, undivided: Any) -> Any:
        """The shardings of the results: `undivided`, a tree of shardings, unless stated otherwise."""
        return undivided

    # ------------------------------------------------------------------ the cache
    def cache_info(self) -> CacheInfo:
        """Hits, misses (traces), current and largest number of kept signatures."""
        calls = self._calls + self._native.calls
        return CacheInfo(calls - self._misses, self._misses, self._traces.count(), self.cache_size)

    def clear_cache(self) -> None:
        """Forget every traced signature."""
        self._traces.clear()

    # ------------------------------------------------------------------ ahead of time
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments (arrays, or anything with .shape and .dtype), without compiling."""
        request = self.request(Arguments(self.roles, args, kwargs, abstract=True))
        return Traced(self, request, self._entry(request))

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """trace(...).lower()."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the result, without computing it."""
        return self.trace(*args, **kwargs).out_info
