"""Signatures that differ in sizes only: one program for all of them.

The first size of a function's arguments is compiled as it is. When an axis has another size in a later call, the
function is traced with a symbolic size for it. The steps of the compiler run as usual and record the conditions under
which their decisions hold (see ir/sizes.py). Such a template is filled in for the sizes of a call without tracing or
lowering. Where a step needs the number itself there is no template, and calls are compiled for their sizes.
"""

from __future__ import annotations

import copy
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlx.array import is_plain, wrap
from rlx.backends.base import Backend, Executable, SizedExecutable
from rlx.call.arguments import Request
from rlx.call.cache import MOST_SIZED, SignatureEntry, SignatureTraces
from rlx.call.compiled import CompiledProgram
from rlx.call.explanations import say
from rlx.call.trace import trace_entry
from rlx.config import config
from rlx.ir.dims import Dim, SizePinned, hint_of, is_sized
from rlx.ir.program import Program
from rlx.ir.sizes import SizeScope
from rlx.passes.pipeline import Context, has_regions, lower_to_plan
from rlx.trace.builder import is_traced
from rlx.trace.origins import current_origin
from rlx.trace.primitive import watching
from rlx.trace.tracing import close_over

__all__ = ["sized_entry"]

_logger = logging.getLogger("rlx")
_numbers = itertools.count()  # names are unique, as programs are told apart by their text
MOST_TEMPLATES = 16
MOST_REFUSALS = 8


class SizedProgram(CompiledProgram):
    """A compiled program with symbolic sizes."""

    def __init__(self, program: Program, backend: Backend, scope: SizeScope) -> None:
        self.scope = scope
        super().__init__(program, backend)
        # results that are numbers of sizes are not computed by the plan
        scalars = [(n, x._numpy) for n, (_, x) in enumerate(self.results) if is_plain(x) and is_sized(x._numpy)]
        self._scalars = [(number, scalar.dtype) for number, scalar in scalars]
        sizes = [n for t in self.types for n in t.shape if type(n) is Dim]
        self._result_sizes = scope.compiled([*sizes, *(scalar for _, scalar in scalars)], checked=False)

    def compiled_core(self, core: Program, usual: Callable[[Program], Executable]) -> Any:
        """The plan of the equations that results need, compiled with symbolic sizes."""
        del usual
        level = logging.WARNING if config.log_compiles else logging.DEBUG
        _logger.log(level, "Compiling %s for %s: %s", core.name, self.backend.name, core.input_types)
        made = self.backend.compile_sized(lower_to_plan(core, context=Context.of(self.backend)), self.scope)
        if made is None:
            self.scope.pin("sizes", f"the device {self.backend.name!r} has no symbolic sizes")
        return made

    def at(self, sizes: tuple[int, ...]) -> CompiledProgram | None:
        """The program for sizes of the names; None if a condition does not hold."""
        made: Any = self.executable
        assert isinstance(made, SizedExecutable)
        executable = made.at(sizes)
        if executable is None:
            return None
        found = copy.copy(self)
        found.executable = executable
        numbers = iter(self._result_sizes(sizes) or ())
        found.types = [t.update(tuple(next(numbers) if type(n) is Dim else n for n in t.shape)) for t in self.types]
        if self._scalars:
            found.results = list(self.results)
            for (number, dtype), value in zip(self._scalars, numbers, strict=True):
                known: Any = self.results[number][1]
                found.results[number] = -1, wrap(np.asarray(value, dtype), known.weak_type)
        return found


class TracedForSizes(Protocol):
    """What is asked of a jitted function here."""

    name: str
    memory_limit: int | None
    cache_size: int

    @property
    def automatic(self) -> bool:
        """Whether a policy chooses the device of each program."""
        ...

    def device_name(self, request: Request) -> str:
        """The name of the device that a call's program is for."""
        ...

    def backend_for(self, request: Request, program: Program, captured: Sequence[Any]) -> Backend:
        """The backend of a call's program."""
        ...

    def count_trace(self, request: Request) -> None:
        """Count a trace for a call."""
        ...


class SizePattern:
    """The sizes of all axes of a call's arguments, in order: numbers, and names of sizes."""

    def __init__(self, sizes: Sequence[Any], scope: SizeScope) -> None:
        self._count = len(scope.names)
        self._fixed = [(at, size) for at, size in enumerate(sizes) if type(size) is int]
        self._named = [(at, scope.dims.index(size)) for at, size in enumerate(sizes) if type(size) is Dim]

    def sizes(self, found: Sequence[int]) -> tuple[int, ...] | None:
        """The sizes of the names; None if those of the axes do not fit."""
        if any(found[at] != size for at, size in self._fixed):
            return None
        sizes = [0] * self._count
        for at, name in self._named:
            if sizes[name] not in (0, found[at]):
                return None
            sizes[name] = found[at]
        return tuple(sizes)


class SizedTemplate(NamedTuple):
    """A traced and compiled program for all sizes of some axes; `made`: the entries of the latest sizes."""

    pattern: SizePattern
    entry: SignatureEntry
    program: SizedProgram
    made: OrderedDict[tuple[int, ...], SignatureEntry]

    def at(self, found: Sequence[int]) -> SignatureEntry | None:
        """The entry for the sizes of all axes; None if the program does not hold for them."""
        sizes = self.pattern.sizes(found)
        known = None if sizes is None else self.made.get(sizes)
        if sizes is None or known is not None:
            return known
        program = self.program.at(sizes)
        if program is None:
            return None
        entry = self.made[sizes] = self.entry.with_program(program)
        while len(self.made) > MOST_SIZED:
            self.made.popitem(last=False)
        return entry


class RefusedSizes(NamedTuple):
    """The sizes for which no template can be made: its steps would make the same decisions, and end as they did."""

    pattern: SizePattern
    holds: Callable[[tuple[int, ...]], Any]

    def covers(self, found: Sequence[int]) -> bool:
        """Whether the sizes of all axes are among them."""
        sizes = self.pattern.sizes(found)
        return sizes is not None and self.holds(sizes) is not None


class SizeFamily:
    """What is known of signatures that differ in sizes only: the sizes of the first one, and the templates."""

    def __init__(self, first: tuple[int, ...]) -> None:
        self.first = first
        self.free: set[int] = set()  # the axes whose sizes have changed, numbered through all arguments
        self.templates: list[SizedTemplate] = []
        self.refusals: list[RefusedSizes] = []

    def takes_more(self, found: Sequence[int]) -> bool:
        """Whether to try to make another template, for sizes of all axes that no template has."""
        if len(self.templates) >= MOST_TEMPLATES or len(self.refusals) >= MOST_REFUSALS:
            return False
        return not any(refusal.covers(found) for refusal in self.refusals)

    def pattern(self, found: tuple[int, ...]) -> tuple[SizeScope, list[Any]]:
        """Names for the free axes, and the sizes of all axes with them. Axes that change together have one name."""
        pairs = {(self.first[at], found[at]): "" for at in sorted(self.free)}
        scope = SizeScope({f"n{next(_numbers)}": size for _, size in pairs}, current_origin)
        dims = dict(zip(pairs, scope.dims, strict=True))
        return scope, [dims[self.first[at], n] if at in self.free else n for at, n in enumerate(found)]


def sized_entry(function: TracedForSizes, request: Request, traces: SignatureTraces) -> SignatureEntry | None:
    """The entry of a call, whose program has symbolic sizes; None if it must be traced for its sizes."""
    if not config.symbolic_sizes or not _may_vary(function, request):
        return None
    types = request.key.signature.types
    kinds: Any = tuple([(len(t.shape), t.dtype, t.weak) for t in types])
    key = (request.key.signature._replace(types=kinds), request.committed)
    found = tuple([n for t in types for n in t.shape])
    family = traces.families.get(key)
    if family is None:
        with traces.lock:
            traces.families[key] = SizeFamily(found)
            while len(traces.families) > function.cache_size:
                traces.families.pop(next(iter(traces.families)))
        return None
    if found == family.first or 0 in found or 0 in family.first:
        return None
    with traces.lock:
        entry = next(filter(None, (template.at(found) for template in family.templates)), None)
        if entry is None and request.key not in traces.entries and family.takes_more(found):
            entry = _attempted(function, request, traces, family, found)
        return entry


def _may_vary(function: TracedForSizes, request: Request) -> bool:
    """Whether a call is of the kind that has templates: on the host, undivided, without Refs, limits and checks."""
    arguments, signature = request.arguments, request.key.signature
    plain = not (request.key.divisions or signature.places or request.memory is not None or arguments.away)
    known = not (function.automatic or function.memory_limit is not None or arguments.cells)
    return plain and known and not (config.no_tracing or config.dump or watching())


def _attempted(
    function: TracedForSizes, request: Request, traces: SignatureTraces, family: SizeFamily, found: tuple[int, ...]
) -> SignatureEntry | None:
    """The entry of a new template; None if none can be made."""
    family.free |= {at for at, (a, b) in enumerate(zip(family.first, found, strict=True)) if a != b}
    scope, sizes = family.pattern(found)
    entry, pattern = None, SizePattern(sizes, scope)
    try:
        made, program = _made(function, request, scope, sizes)
        template = SizedTemplate(pattern, made, program, OrderedDict())
        entry = None if scope.pinned else template.at(found)
    except SizePinned:
        pass
    except Exception as error:  # tracing for the call's sizes raises it again, unless it is of symbolic ones only
        scope.pinned = scope.pinned or f"{type(error).__name__}: {error}"
    scope.closed = True
    if entry is None:
        family.refusals.append(RefusedSizes(pattern, scope.compiled([])))
    else:
        function.count_trace(request)
        family.templates.append(template)
    if config.explain:
        say(_explanation(function.name, scope, entry is not None))
    return entry


def _made(
    function: TracedForSizes, request: Request, scope: SizeScope, sizes: Sequence[Any]
) -> tuple[SignatureEntry, SizedProgram]:
    """The traced and the compiled program."""
    rest = iter(sizes)
    types = [t.update(tuple([next(rest) for _ in t.shape])) for t in request.key.signature.types]
    entry = trace_entry(request.arguments, (), function.device_name(request), types)
    if entry.marks or entry.cells is not None or any(map(is_traced, entry.captured)):
        scope.pin("a size", "shardings, Refs and captured traced values have no symbolic sizes")
    backend = function.backend_for(request, entry.program, entry.captured)
    if has_regions(entry.program):
        scope.pin("a size", "regions on devices of their own have no symbolic sizes")
    return entry, SizedProgram(close_over(entry.program, entry.captured), backend, scope)


def _explanation(name: str, scope: SizeScope, made: bool) -> str:
    sizes = ", ".join(f"{dim} = {hint_of(size)}" for dim, size in zip(scope.names, scope.dims, strict=True))
    if not made:
        return f"rlx: {name} has no program for all sizes like {sizes}: {scope.pinned}"
    lines = [f"rlx: {name} has one program for all sizes like {sizes}, as long as"]
    return "\n".join([*lines, *(f"  {c.text}   {c.line} in {c.place}" for c in scope.conditions())])
