"""The compiler on one screen: every step from a traced program to a plan, and the cache of executables."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from rlx.backends.base import Backend, Executable
from rlx.backends.claims import Claims, refuse_unclaimed_dtypes
from rlx.config import config
from rlx.errors import UnsupportedError, VerificationError
from rlx.forks import reopen_after_fork
from rlx.ir.dims import is_sized
from rlx.ir.kernels import Await, Plan, RowTiles
from rlx.ir.options import LoweringOptions
from rlx.ir.plan_data import FORM
from rlx.ir.program import Program, Var, dead_code
from rlx.ir.verify import verify_program
from rlx.ir.verify_plan import verify_plan
from rlx.lowering.lower import lower_to_nests
from rlx.lowering.lowered import LoweredValue
from rlx.lowering.nest import Nest, Nests
from rlx.passes.accumulate_in_place import accumulate_in_place
from rlx.passes.claimed_alone import claim_alone
from rlx.passes.claimed_primitives import claim_primitives
from rlx.passes.cse import eliminate_common
from rlx.passes.decompose_routines import decompose_routines
from rlx.passes.fold import fold_constants
from rlx.passes.hoist_loop_products import hoist_loop_products
from rlx.passes.hooks import observer, regions
from rlx.passes.join_exchanges import join_exchanges
from rlx.passes.key_words import keys_to_words
from rlx.passes.order_exchanges import order_exchanges
from rlx.passes.place_exchanges import place_exchanges
from rlx.passes.rematerialize import plan_within
from rlx.passes.simplify import simplify
from rlx.planning.choose_product_layouts import choose_product_layouts
from rlx.planning.fuse import fuse, fuse_chunks
from rlx.planning.fuse_products import fuse_products
from rlx.planning.memory import place_temporaries, remove_copies, update_carries_in_place, update_in_place
from rlx.planning.overlap import overlap_exchanges
from rlx.planning.row_tiles import group_row_tiles
from rlx.planning.schedule import schedule, split_chunks
from rlx.planning.short_rows import unroll_short_rows
from rlx.planning.stack_products import stack_products
from rlx.trace.lower import inline_calls, map_regions
from rlx.version import __version__

__all__ = [
    "Context",
    "Planned",
    "Stage",
    "Step",
    "compile_stages",
    "executable_of",
    "executables",
    "has_regions",
    "lower_program",
    "lower_stages",
    "lower_to_plan",
    "observer",
    "optimize",
    "passes",
    "program_pass",
    "regions",
    "stages",
    "steps",
    "take",
    "walk",
]

_logger = logging.getLogger("rlx")


Pass = Callable[[Program], Program]
Form = Program | Nests | Plan


@dataclass(frozen=True)
class Context:
    """The context of steps: the options, claims and name of the device.

    loop: if the program is a loop's body, the numbers of its leading constants and of the carries that follow.
    plans: whether programs become plans; else the backend takes them as they are.
    """

    options: LoweringOptions = field(default_factory=LoweringOptions)
    claims: Claims = field(default_factory=Claims)
    device: str = "cpu"
    loop: tuple[int, int] | None = None
    plans: bool = True

    @classmethod
    def of(cls, backend: Backend) -> Context:
        """The context of a backend's device."""
        return cls(backend.lowering, backend.claims, backend.name, plans=not backend.takes_programs)

    @property
    def identity(self) -> bytes:
        """A digest of everything except the program that plans depend on; the same in every process."""
        claims = self.claims
        kinds, dtypes = (kind.__name__ for kind in claims.kinds), (dtype.name for dtype in claims.dtypes)
        names = [sorted(named) for named in (kinds, dtypes, claims.routines, claims.blocks)]
        taken = (names, claims.loops_up_to, _name_of(claims.fits))
        told = repr((__version__, FORM, self.device, self.options, taken, self.loop, self.plans))
        return hashlib.blake2b(told.encode(), digest_size=16).digest()

    def plan_region(self, program: Program, loop: tuple[int, int] | None) -> Plan:
        """The plan of a program inside the one that is lowered."""
        plan = walk(program, lowering, replace(self, loop=loop))[-1].form
        assert isinstance(plan, Plan)
        return plan


def _name_of(function: Callable[..., Any] | None) -> object:
    """A function as text, with the arguments that it was given before."""
    if isinstance(function, partial):
        return _name_of(function.func), function.args, sorted(function.keywords.items())
    return getattr(function, "__qualname__", None)


class Step(NamedTuple):
    """A step of the compiler: `form` names the argument and result of `run`; `why` is for the reader."""

    name: str
    form: str
    run: Callable[[Any, Context], Any]
    why: str


class Stage(NamedTuple):
    """The result of a step (a Program, Nests or a Plan) and its time."""

    name: str
    form: Form
    seconds: float

    @property
    def program(self) -> Program:
        """The program of a step that makes one."""
        assert isinstance(self.form, Program), f"{self.name} makes no program"
        return self.form


Verify = Callable[[Step, Any, Any], None]  # called with a step, its argument, and its result


def everywhere(function: Pass) -> Pass:
    """The pass applied to the regions of a program, innermost first, and then to the program."""
    memo: dict[int, tuple[Program, Program]] = {}

    def run(program: Program) -> Program:
        found = memo.get(id(program))
        if found is not None:
            return found[1]
        equations = [map_regions(e, run) for e in program.equations]
        changed = any(a is not b for a, b in zip(equations, program.equations, strict=True))
        result = function(program.replace(equations=equations) if changed else program)
        memo[id(program)] = (program, result)
        return result

    return run


def program_pass(name: str, function: Pass, why: str) -> Step:
    """The step that applies a pass to a program and to every region in it."""
    return Step(name, "program", lambda program, _: everywhere(function)(program), why)


def _update_carries(plan: Plan, context: Context) -> Plan:
    return plan if context.loop is None else update_carries_in_place(plan, *context.loop)


def _inlined(program: Program, context: Context) -> Program:
    """The program with calls inlined, except blocks that the device takes. Raises DtypeError for missing dtypes."""
    inlined = claim_alone(inline_calls(program, context.claims.takes), everywhere(simplify))
    refuse_unclaimed_dtypes(inlined, context.claims, context.device)
    return everywhere(lambda p: claim_primitives(p, context.claims))(inlined)


def _decomposed(program: Program, context: Context) -> Program:
    """The program and its regions with decompositions in place of routines that the device does not take."""
    return everywhere(partial(decompose_routines, claims=context.claims))(program)


# HIR -> MIR -> MIR, in order; passes run on the program and on every region in it
passes: tuple[Step, ...] = (
    program_pass("fold", fold_constants, "values that depend only on literals are computed now"),
    program_pass("simplify", simplify, "operations are replaced by cheaper ones with the same value"),
    program_pass("cse", eliminate_common, "repeated computations are merged"),
    program_pass("accumulate_in_place", accumulate_in_place, "sums with mostly zero terms become updates"),
    Step(
        "hoist_loop_products", "program",
        lambda p, c: everywhere(partial(hoist_loop_products, limits=c.options.products))(p),
        "products of a loop's steps become one product outside the loop",
    ),
    program_pass("dce", dead_code, "unused equations are removed"),
)  # fmt: skip
entry: tuple[Step, ...] = (
    Step("join_exchanges", "program", lambda p, _: join_exchanges(p), "a value is exchanged once, a sum by parts"),
    Step("place_exchanges", "program", lambda p, _: place_exchanges(p), "exchanges get their place in the program"),
    Step("order_exchanges", "program", lambda p, _: order_exchanges(p), "exchanges follow the order of their operands"),
    Step("inline", "program", _inlined, "calls are inlined, except claimed blocks"),
    Step("keys", "program", lambda p, _: keys_to_words(p), "random keys become arrays of their words"),
    Step(
        "decompose_routines",
        "program",
        _decomposed,
        "factorisations and transforms that the device has no routine for become loops and products",
    ),
)
# MIR -> nests -> LIR: for the program, and for each program in a loop or a branch
lowering: tuple[Step, ...] = (
    Step(
        "lower", "program -> nests", lambda p, c: lower_to_nests(p, c.options, c.plan_region),
        "equations become loop nests, matrix products, sorts and loops over buffers",
    ),
    Step(
        "choose_product_layouts", "nests", lambda n, c: choose_product_layouts(n, c.options.products),
        "a matrix product is written in the layout that its readers need",
    ),
    Step("stack_products", "nests", lambda n, _: stack_products(n), "equal products, evenly spaced, become one"),
    Step("fuse", "nests", lambda n, c: fuse(n, c.options), "nests that share an index space become one"),
    Step(
        "unroll_short_rows", "nests", lambda n, c: unroll_short_rows(n, c.options.rows),
        "rows of a few elements become straight code",
    ),
    Step(
        "split_chunks", "nests", lambda n, c: split_chunks(n, c.options),
        "accumulations over the outermost dimension are cut for several threads",
    ),
    Step("fuse_chunks", "nests", lambda n, c: fuse_chunks(n, c.options), "combining nests join their readers"),
    Step("schedule", "nests -> plan", lambda n, _: schedule(n), "nests become kernels, in order"),
    Step("remove_copies", "plan", lambda p, _: remove_copies(p), "copies of otherwise unused values are removed"),
    Step("update_in_place", "plan", lambda p, _: update_in_place(p), "a partly overwritten copy is updated in place"),
    Step("update_carries_in_place", "plan", _update_carries, "a loop's body updates parts of carries in place"),
    Step(
        "group_row_tiles", "plan", lambda p, c: group_row_tiles(p, c.options) if RowTiles in c.claims.kinds else p,
        "kernels that work along one dimension run part by part, so that the values between them stay in cache",
    ),
    Step(
        "fuse_products", "plan", lambda p, c: fuse_products(p, c.options) if RowTiles in c.claims.kinds else p,
        "products fuse with nests that only produce their operands or only read their result",
    ),
    Step(
        "overlap_exchanges", "plan",
        lambda p, c: overlap_exchanges(p, c.options.least_overlap) if Await in c.claims.kinds else p,
        "exchanges overlap kernels, and are awaited before their results are needed",
    ),
    Step(
        "place_temporaries", "plan", lambda p, c: place_temporaries(p, c.options.alignment),
        "temporaries get places in one arena",
    ),
)  # fmt: skip
steps: tuple[Step, ...] = (*entry, *passes, *lowering)
_before_inlining = ("join_exchanges", "place_exchanges", "order_exchanges")
# these do not apply to most programs: they are stages only if they change the program
_rare = (*_before_inlining, "keys", "decompose_routines")


def walk(start: Form, sequence: Sequence[Step], context: Context | None = None) -> list[Stage]:
    """Run the steps in order and return all results; config.check verifies each."""
    context = context or Context()
    found: list[Stage] = []
    form = start
    for step in sequence:
        stage = take(step, form, context, verify_step if config.check else None)
        if stage.form is not form or step.name not in _rare:
            found.append(stage)
        form = stage.form
    return found


def take(step: Step, form: Form, context: Context, verify: Verify | None) -> Stage:
    """Run a step on a form; `verify`, if set, checks the changed result."""
    begin = time.perf_counter()
    made = step.run(form, context)
    seconds = time.perf_counter() - begin
    if verify is not None and made is not form:
        verify(step, form, made)
    return Stage(step.name, made, seconds)


def verify_step(step: Step, before: Form, form: Form) -> None:
    """Raise VerificationError, naming the step, if its result is invalid."""
    try:
        if isinstance(form, Program):
            verify_program(form, "hir" if step.name in _before_inlining else "mir")
        elif any(is_sized(buffer.size) for buffer in (*form.inputs, *form.outputs)):
            pass  # it is verified when sizes are filled in: questions about symbolic ones would restrict them
        elif isinstance(form, Nests):
            _verify_rows(form)
            verify_plan(schedule(form), placed=False, nested=False)
        else:
            verify_plan(form, placed=step.name == "place_temporaries", nested=False)
    except VerificationError as error:
        raise VerificationError(f"After the step {step.name}: {error.what}", line="") from None


def _verify_rows(nests: Nests) -> None:
    for step in nests.steps:
        if isinstance(step, Nest) and max(step.row, step.preferred_row) > len(step.sizes):
            label = "+".join(step.label)
            raise VerificationError(f"nest {label} of {step.sizes} has a row of more dimensions", line="")


def stages(program: Program, sequence: Sequence[Step] = passes, context: Context | None = None) -> list[Stage]:
    """The program after each step: HIR, MIR (inlined; words in place of keys and decompositions in place of routines
    if it has any), MIR after each pass."""
    return [Stage("hir", program, 0.0), *walk(program, (*entry, *sequence), context)]


def optimize(program: Program) -> Program:
    """The optimised MIR of a traced program."""
    if config.check:
        verify_program(program, "hir")
    return stages(program)[-1].program


def lower_stages(
    program: Program, options: LoweringOptions | None = None, context: Context | None = None
) -> list[Stage]:
    """The result of each step from a closed MIR program to its plan."""
    return walk(program, lowering, _context(options, context))


def lower_program(program: Program, options: LoweringOptions | None = None, context: Context | None = None) -> Plan:
    """The plan of a closed MIR program."""
    return _plan(lower_stages(program, options, context))


def _context(options: LoweringOptions | None, context: Context | None) -> Context:
    """The context of a device; the caller may pass only its options, or nothing."""
    if context is not None:
        return context
    return Context() if options is None else Context(options)


def _plan(found: Sequence[Stage]) -> Plan:
    plan = found[-1].form
    assert isinstance(plan, Plan)
    return plan


def compile_stages(
    program: Program,
    memory_limit: int | None = None,
    options: LoweringOptions | None = None,
    context: Context | None = None,
) -> list[Stage]:
    """All stages from HIR or MIR to a plan whose temporaries take at most `memory_limit` bytes.

    For a device that takes programs they end with MIR.

    With a limit, the stages from MIR on belong to the last attempt: values are computed again until the plan fits.
    """
    if config.check:
        verify_program(program, "hir")
    known = _context(options, context)
    found = stages(program, context=known)
    if not known.plans:
        return found
    lowered: list[Stage] = []
    tried = found[-1].program

    def attempt(program: Program) -> tuple[Plan, Mapping[Var, LoweredValue]]:
        nonlocal tried
        tried = program
        lowered[:] = lower_stages(program, context=known)
        nests = lowered[0].form
        assert isinstance(nests, Nests)
        return _plan(lowered), nests.values

    if memory_limit is None:
        attempt(found[-1].program)
    else:
        plan_within(found[-1].program, memory_limit, attempt, known.options.alignment)
    again = [] if tried is found[-1].program else [Stage("rematerialize", tried, 0.0)]
    return [*found, *again, *lowered]


def lower_to_plan(
    program: Program,
    memory_limit: int | None = None,
    options: LoweringOptions | None = None,
    context: Context | None = None,
) -> Plan:
    """HIR or MIR -> LIR: optimise, lower to kernels, fuse, schedule, place in memory (within the limit).

    For the device that the context describes; or, with options alone, one that claims no blocks.
    """
    found = compile_stages(program, memory_limit, options, context)
    if config.dump:
        observer.compiled(found, config.dump)
    return _plan(found)


Planned = Callable[[Program, Context], Plan | None]


def _planned_now(program: Program, memory_limit: int | None, context: Context, optimized: bool) -> Plan:
    if optimized and memory_limit is None and _decomposed(program, context) is program:
        return lower_program(program, context=context)
    return lower_to_plan(program, memory_limit, context=context)


def executable_of(program: Program, backend: Backend) -> Executable:
    """The executable of a closed, optimised program, which is not kept in the cache."""
    if backend.takes_programs:
        return backend.compile_program(program)
    return backend.compile(lower_program(program, backend.lowering))


def has_regions(program: Program) -> bool:
    """Whether a program, or one inside it, has regions that the user put on devices."""
    return any(e.primitive.name == "placed_call" for e in program.equations) or any(
        map(has_regions, program.regions())
    )


def _program_compiled(
    program: Program, backend: Backend, memory_limit: int | None, optimized: bool, given: tuple[bool, ...]
) -> Executable:
    """The executable of a backend that plans itself. Raises UnsupportedError for a memory limit."""
    if memory_limit is not None:
        raise UnsupportedError(
            f"The device {backend.name!r} plans memory itself, and takes no memory_limit.",
            "Leave memory_limit out, or compile for another device.",
        )
    context = Context.of(backend)
    if not optimized or _decomposed(program, context) is not program:
        program = compile_stages(program, context=context)[-1].program
    return backend.compile_program(program, given)


class ExecutableKey(NamedTuple):
    """Everything that the code of a program depends on."""

    backend: Backend
    options: LoweringOptions
    claims: Any
    memory_limit: int | None
    program: Any  # its fingerprint
    given: tuple[bool, ...]  # whether calls donate each input, for backends that take programs


class ExecutableCache:
    """Compiled programs by structure, the least recently used dropped beyond `limit`."""

    def __init__(self, limit: int = 1024) -> None:
        self.limit = limit
        self.hits = self.misses = 0
        self._entries: OrderedDict[ExecutableKey, tuple[Program, Executable]] = OrderedDict()
        self._lock = threading.RLock()
        reopen_after_fork(self)

    def get(
        self,
        program: Program,
        backend: Backend,
        memory_limit: int | None = None,
        optimized: bool = False,
        planned: Planned | None = None,
        given: tuple[bool, ...] = (),
    ) -> Executable:
        """The executable of a program, compiled now if it is missing; of `optimized` MIR without passes, unless the
        device decomposes its routines. planned: a possible source of the plan. given: see Backend.compile_program."""
        context = Context.of(backend)
        key = ExecutableKey(backend, context.options, context.claims, memory_limit, program.fingerprint, given)
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                self.hits += 1
                return found[1]
            self.misses += 1
            level = logging.WARNING if config.log_compiles else logging.DEBUG
            _logger.log(level, "Compiling %s for %s: %s", program.name, backend.name, program.input_types)
            if has_regions(program):
                executable = regions.executable(program, backend, memory_limit)
            elif backend.takes_programs:
                executable = _program_compiled(program, backend, memory_limit, optimized, given)
            else:
                plan = planned(program, context) if planned is not None and memory_limit is None else None
                executable = backend.compile(plan or _planned_now(program, memory_limit, context, optimized))
            self._entries[key] = (program, executable)
            while len(self._entries) > self.limit:
                self._entries.popitem(last=False)
            return executable

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


executables = ExecutableCache()
