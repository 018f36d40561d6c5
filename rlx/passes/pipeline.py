"""The compiler on one screen: from a traced program to an executable."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rlx.backends.base import Backend, Executable
from rlx.config import config
from rlx.ir.kernels import Plan
from rlx.ir.program import Program, dead_code
from rlx.ir.verify import verify_program
from rlx.lowering.lower import lower_program
from rlx.lowering.options import LoweringOptions
from rlx.passes.accumulate_in_place import join_sums
from rlx.passes.cse import eliminate_common
from rlx.passes.dump import dump
from rlx.passes.fold import fold_constants
from rlx.passes.hoist_loop_products import join_loop_products
from rlx.passes.key_words import keys_to_words
from rlx.passes.simplify import simplify
from rlx.planning.rematerialize import plan_within
from rlx.trace.lower import inline_calls, map_regions

__all__ = ["Stage", "lower_to_plan", "optimize", "passes", "stages"]

_logger = logging.getLogger("rlx")
Pass = Callable[[Program], Program]


class Stage(NamedTuple):
    """A program as a pass left it, and how long the pass took."""

    name: str
    program: Program
    seconds: float


# MIR -> MIR, in order: each runs on the program and on every region in it
passes: tuple[tuple[str, Pass], ...] = (
    ("fold", fold_constants),
    ("simplify", simplify),
    ("cse", eliminate_common),
    ("sums", join_sums),
    ("loops", join_loop_products),
    ("dce", dead_code),
)


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


def stages(program: Program, sequence: Sequence[tuple[str, Pass]] = passes) -> list[Stage]:
    """The program after each step: HIR, inlined MIR (words in place of keys, if it has any), MIR after each pass."""
    found = [Stage("hir", program, 0.0)]
    everywhere_named = [(name, everywhere(function)) for name, function in sequence]
    for name, function in (("inline", inline_calls), ("keys", keys_to_words), *everywhere_named):
        start = time.perf_counter()
        before, program = program, function(program)
        if name == "keys" and program is before:
            continue
        found.append(Stage(name, program, time.perf_counter() - start))
        if config.check:
            verify_program(program, "mir")
    return found


def optimize(program: Program) -> Program:
    """The optimised MIR of a traced program."""
    if config.check:
        verify_program(program, "hir")
    return stages(program)[-1].program


def lower_to_plan(program: Program, memory_limit: int | None = None, options: LoweringOptions | None = None) -> Plan:
    """HIR or MIR -> LIR: optimise, lower to kernels, fuse, schedule, place in (at most so much) memory."""
    if config.check:
        verify_program(program, "hir")
    found = stages(program)
    optimized = found[-1].program
    if memory_limit is None:
        plan = lower_program(optimized, options)
    else:
        plan = plan_within(optimized, memory_limit, options)
    if config.dump:
        dump(found, plan, config.dump)
    return plan


class ExecutableCache:
    """Compiled programs by structure, the least recently used dropped beyond `limit`."""

    def __init__(self, limit: int = 1024) -> None:
        self.limit = limit
        self.hits = self.misses = 0
        self._entries: OrderedDict[tuple[Any, ...], tuple[Program, Executable]] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, program: Program, backend: Backend, memory_limit: int | None = None) -> Executable:
        """The executable of a program, compiled now if it is not there."""
        options = LoweringOptions(least_bands=backend.least_bands)
        key = (backend.name, options, memory_limit, program.fingerprint)
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                self.hits += 1
                return found[1]
            self.misses += 1
            level = logging.WARNING if config.log_compiles else logging.DEBUG
            _logger.log(level, "Compiling %s for %s: %s", program.name, backend.name, program.input_types)
            executable = backend.compile(lower_to_plan(program, memory_limit, options))
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
