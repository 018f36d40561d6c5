"""Signatures that differ in sizes only: one program for all of them.

The first size of a function's arguments is compiled as it is. When an axis has another size in a later call, the
function is traced with a symbolic size for it. The steps of the compiler run as usual and record the conditions under
which their decisions hold (see ir/sizes.py). Such a template is filled in for the sizes of a call without tracing or
lowering. Where a step needs the number itself there is no template, and calls are compiled for their sizes.
"""

from __future__ import annotations

import copy
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlx.array import ConcreteArray
from rlx.backends.base import Backend, Executable, SizedExecutable
from rlx.call.cache import MOST_SIZED, SignatureEntry, SignatureTraces
from rlx.call.compiled import CompiledProgram
from rlx.call.explanations import say
from rlx.call.trace import trace_entry
from rlx.config import config
from rlx.ir.program import Program
from rlx.ir.sizes import Dim, Scope, SizePinned, hint_of
from rlx.ir.types import TensorType
from rlx.passes.pipeline import Context, has_regions, lower_to_plan
from rlx.trace.builder import Tracer
from rlx.trace.origins import current_origin
from rlx.trace.primitive import watching
from rlx.trace.tracing import close_over

if TYPE_CHECKING:
    from rlx.call.jitted import Jitted, Request

__all__ = ["sized_entry"]

_numbers = itertools.count()  # names are unique, as programs are told apart by their text
MOST_TEMPLATES = 8
MOST_ATTEMPTS = 2
MOST_CHANCES = 8
Axis = tuple[int, int]  # a leaf's number, and its axis


class SizedProgram(CompiledProgram):
    """A compiled program with symbolic sizes."""

    def __init__(self, program: Program, backend: Backend, scope: Scope) -> None:
        self.scope = scope
        super().__init__(program, backend)
        sizes = [n for t in self.types for n in t.shape if type(n) is Dim]
        self._result_sizes = scope.compiled(sizes, checked=False)

    def compiled_core(self, core: Program, usual: Callable[[Program], Executable]) -> Any:
        """The plan of the equations that results need, compiled with symbolic sizes."""
        del usual
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
        return found


class Template:
    """A traced and compiled program for all sizes of some axes.

    names: for each axis of the arguments, in order, its size or the number of its name.
    """

    def __init__(self, pattern: Sequence[Any], entry: SignatureEntry, program: SizedProgram) -> None:
        self._fixed = [(at, size) for at, size in enumerate(pattern) if type(size) is int]
        self._named = [(at, program.scope.dims.index(size)) for at, size in enumerate(pattern) if type(size) is Dim]
        self._entry, self._program = entry, program
        self._made: OrderedDict[tuple[int, ...], SignatureEntry] = OrderedDict()

    def sizes(self, found: Sequence[int]) -> tuple[int, ...] | None:
        """The sizes of the names, if those of all axes fit."""
        if any(found[at] != size for at, size in self._fixed):
            return None
        sizes = [0] * len(self._program.scope.names)
        for at, name in self._named:
            if sizes[name] not in (0, found[at]):
                return None
            sizes[name] = found[at]
        return tuple(sizes)

    def at(self, found: Sequence[int]) -> SignatureEntry | None:
        """The entry for the sizes of all axes; None if it is not for them."""
        sizes = self.sizes(found)
        if sizes is None:
            return None
        known = self._made.get(sizes)
        if known is not None:
            return known
        program = self._program.at(sizes)
        if program is None:
            return None
        own = self._entry
        entry = SignatureEntry(program.program, own.captured, own.out_tree, own.marks, own.cells)
        entry.given, entry.flows, entry.compiled = own.given, own.flows, program
        entry.places, entry._followed = None, True
        self._made[sizes] = entry
        while len(self._made) > MOST_SIZED:
            self._made.popitem(last=False)
        return entry


class Family:
    """What is known of signatures that differ in sizes only: the sizes of the first one, and the templates."""

    def __init__(self, first: tuple[int, ...]) -> None:
        self.first = first
        self.free: set[int] = set()  # the axes whose sizes have changed, numbered through all arguments
        self.templates: list[Template] = []
        self.attempts = self.chances = 0  # failed ones; at sizes that were alone in their range


def sized_entry(function: Jitted, request: Request, traces: SignatureTraces) -> SignatureEntry | None:
    """The entry of a call, whose program has symbolic sizes; None if it must be traced for its sizes."""
    arguments, signature = request.arguments, request.key.signature
    if not config.symbolic_sizes or request.key.divisions or signature.places or request.memory is not None:
        return None
    if function.automatic or function.memory_limit is not None or config.no_tracing or watching() or arguments.cells:
        return None
    types = signature.types
    key = (signature._replace(types=tuple([(len(t.shape), t.dtype, t.weak) for t in types])), request.committed)
    found = tuple([n for t in types for n in t.shape])
    family = traces.families.get(key)
    if family is None:
        plain = set(map(type, arguments.given)) <= {ConcreteArray} and not arguments.away
        if plain and 0 not in found:
            traces.families[key] = Family(found)
        return None
    if found == family.first or 0 in found:
        return None
    for template in family.templates:
        entry = template.at(found)
        if entry is not None:
            return entry
    if request.key in traces.entries:
        return None
    family.free |= {at for at, (a, b) in enumerate(zip(family.first, found, strict=True)) if a != b}
    if family.attempts >= MOST_ATTEMPTS or family.chances >= MOST_CHANCES:
        return None
    if len(family.templates) >= MOST_TEMPLATES:
        return None
    return _attempted(function, request, family, found)


def _attempted(function: Jitted, request: Request, family: Family, found: tuple[int, ...]) -> SignatureEntry | None:
    """The entry of a new template; None if none can be made."""
    names: dict[tuple[int, int], str] = {}
    for at in sorted(family.free):  # axes whose sizes change together have one name
        names.setdefault((family.first[at], found[at]), f"n{next(_numbers)}")
    scope = Scope({name: sizes[1] for sizes, name in names.items()}, current_origin)
    dims = dict(zip(names, scope.dims, strict=True))
    pattern = [dims[family.first[at], n] if at in family.free else n for at, n in enumerate(found)]
    types, rest = [], iter(pattern)
    for t in request.key.signature.types:
        types.append(TensorType(tuple([next(rest) for _ in t.shape]), t.dtype, t.weak))
    try:
        template = _made(function, request, scope, pattern, types)
    except SizePinned:
        template = None
    except Exception as error:  # the same error is raised again for fixed sizes, unless it is of symbolic ones
        template, scope.pinned = None, scope.pinned or f"{type(error).__name__}: {error}"
        if config.explain:
            import traceback

            traceback.print_exc()
    finally:
        scope.closed = True
    if template is not None and not scope.pinned:
        family.templates.append(template)
        function._misses += 1
        entry = template.at(found)
        if entry is not None:
            _explain(function.name, scope, "")
            return entry
    family.attempts += not scope.equal
    family.chances += scope.equal
    _explain(function.name, scope, scope.pinned or "the program holds for no size")
    return None


def _made(
    function: Jitted, request: Request, scope: Scope, pattern: Sequence[Any], types: Sequence[TensorType]
) -> Template | None:
    entry = trace_entry(request.arguments, (), function._device_name(request), types)
    if entry.marks or entry.cells is not None or any(isinstance(c, Tracer) for c in entry.captured):
        return None
    backend = function.backend_for(request, entry.program, entry.captured)
    if has_regions(entry.program):
        return None
    closed = close_over(entry.program, entry.captured)
    return Template(pattern, entry, SizedProgram(closed, backend, scope))


def _explain(name: str, scope: Scope, refused: str) -> None:
    if not config.explain:
        return
    sizes = ", ".join(f"{dim} = {hint_of(size)}" for dim, size in zip(scope.names, scope.dims, strict=True))
    if refused:
        say(f"rlx: {name} has no program for all sizes ({sizes}): {refused}")
        return
    lines = [f"rlx: {name} has one program for sizes ({sizes}) with"]
    lines += [f"  {c.text}   {c.line or c.place}" for c in scope.conditions()]
    say("\n".join(lines))
