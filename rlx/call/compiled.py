"""A closed program ready to run on arrays: computed, passed-through and constant results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.array import (
    Array,
    ConcreteArray,
    array_of_type,
    arrays_over,
    is_concrete,
    memory_of,
    moved,
    unshared,
)
from rlx.backends import backend_named, backend_of, memory_of_foreign
from rlx.call.default_place import program_stays_on_host
from rlx.call.hooks import reports
from rlx.config import ChosenDevice, config
from rlx.device_memory import Memory, host_memory
from rlx.errors import MemoryLimitError
from rlx.garbage import collector_rests
from rlx.ir.program import Literal, Program, Var
from rlx.ir.types import TensorType
from rlx.offered_names import LateModule
from rlx.storage import AllocationError, Storage
from rlx.trace.places import common_memory

if TYPE_CHECKING:
    from rlx.backends.base import Backend, Executable
    from rlx.ir.kernels import Plan
    from rlx.passes import pipeline
    from rlx.passes.pipeline import Planned
    from rlx.planning import memory as plan_memory
else:
    pipeline = LateModule("rlx.passes.pipeline")
    plan_memory = LateModule("rlx.planning.memory")

__all__ = ["CompiledProgram", "adopted", "backend_on", "borrowed", "prepare_program", "run_program"]


def backend_on(memory: Memory | None) -> Backend:
    """The backend that compiles programs for a memory; None for the host's."""
    return backend_of(memory or host_memory)


def adopted(value: Any) -> ConcreteArray | None:
    """An rlx array over another library's array in a device's memory; None for other values."""
    memory = memory_of_foreign(value)
    if memory is None:
        return None
    return _array_in(memory, *memory.adopt(value))


def borrowed(value: Any, may_copy: bool) -> ConcreteArray | None:
    """As `adopted`, over the same memory, even if others can write to it; see Memory.borrow."""
    memory = memory_of_foreign(value)
    return None if memory is None else _array_in(memory, *memory.borrow(value, may_copy))


def _array_in(memory: Memory, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> ConcreteArray:
    return arrays_over((storage,), (TensorType(shape, dtype).placed(memory),))[0]


class CompiledProgram:
    """Runs a closed program (its constants are arrays) on concrete arrays, in the memory of a backend.

    Results that are an input, a constant or a literal are passed through without a kernel, and
    unread inputs are not passed to the executable. memory_limit: most bytes of temporaries.
    optimized: the program is optimised MIR. planned: a possible source of the plan. given: whether calls donate each
    input, for backends whose executables depend on it; empty: no input.
    """

    def __init__(
        self,
        program: Program,
        backend: Backend,
        memory_limit: int | None = None,
        optimized: bool = False,
        planned: Planned | None = None,
        given: Sequence[bool] = (),
    ) -> None:
        self.program = program
        self.backend = backend
        self.memory = backend.memory
        computed, self.results = _sources(program, self.memory)
        used = {a for e in program.equations for a in e.inputs if isinstance(a, Var)}
        self.used = [i for i, v in enumerate(program.inputs) if v in used]
        core = program.replace(inputs=[program.inputs[i] for i in self.used], outputs=list(computed))
        self.core = core
        # whether a run that was given up halfway may begin again
        self.repeats = not any(e.primitive.effect(**e.params) for e in program.equations)
        needed = bool(computed) or any(e.primitive.effect(**e.params) for e in program.equations)
        self.executable: Executable | None = None
        if needed:
            with reports.announced(program.name, len(program.equations)), collector_rests():
                how = (self.backend, memory_limit, optimized, planned, self._donated(given))
                self.executable = self.compiled_core(core, lambda program: pipeline.executables.get(program, *how))
        self.types: list[Any] = [v.type for v in computed]
        if not self.memory.host:
            self.types = [t.placed(self.memory) for t in self.types]
        self.passes_inputs = any(type(value) is int for _, value in self.results)
        self.direct = all(at == i for i, (at, _) in enumerate(self.results)) and len(self.results) == len(self.types)
        self.whole = len(self.used) == len(program.inputs)

    def _donated(self, given: Sequence[bool]) -> tuple[bool, ...]:
        """Whether calls donate each input of the executable, which none passes through; () if no code depends on it."""
        if not (self.backend.takes_programs and any(given)):
            return ()
        through = {value for _, value in self.results if type(value) is int}
        return tuple(given[i] and i not in through for i in self.used)

    def compiled_core(self, core: Program, usual: Callable[[Program], Executable]) -> Executable:
        """The executable of the equations that results need; usual: compiles them for the backend."""
        return usual(core)

    def caller(self) -> Callable[[Sequence[ConcreteArray]], list[ConcreteArray]]:
        """A function like `run_there`, without steps that this program does not need."""
        executable, types = self.executable, self.types
        if executable is None or not (self.whole and self.direct):
            return self.run_there
        run = executable.run

        def call(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
            try:
                return arrays_over(run([x._storage or x.storage() for x in args]), types)
            except AllocationError:
                pass
            return self._in_less_memory(args, executable.plan)

        return call

    def _in_less_memory(self, args: Sequence[ConcreteArray], plan: Plan | None) -> list[ConcreteArray]:
        """The results, with half the temporaries: the device had too little memory, even with its pool emptied.

        Raises: OutOfMemoryError on the host, for programs with effects, and if half the temporaries are also too much.
        """
        storages = [x.storage() for x in args]
        if plan is not None and not self.memory.host and self.repeats:
            with suppress(AllocationError, MemoryLimitError):
                smaller = pipeline.executables.get(self.core, self.backend, plan_memory.temporary_bytes(plan) // 2)
                return arrays_over(smaller.run(storages), self.types)
        raise reports.memory_exhausted(self.program, plan)

    def run(self, args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        """The results for concrete arguments, which come to the program's memory from others."""
        return self.run_there(self.brought(args))

    def run_giving(self, args: Sequence[ConcreteArray], given: Sequence[bool]) -> list[ConcreteArray]:
        """Like `run`, with some donated arguments, which the run may reuse: they are deleted before it begins.

        They are restored if the run cannot begin.
        """
        executable = self.executable
        if executable is None:
            return self.run(args)
        args = self.brought(args)
        through = {value for _, value in self.results if type(value) is int}
        storages = [args[i].storage() for i in self.used]
        gone = [(n, args[i]) for n, i in enumerate(self.used) if given[i] and i not in through]
        for _, x in gone:
            x.donate()
        begun = False
        try:
            found = arrays_over(executable.run_giving(storages), self.types)
            begun = True
        except AllocationError:
            raise reports.memory_exhausted(self.program, executable.plan) from None
        finally:
            if not begun:
                for n, x in gone:
                    x._storage = storages[n]
        return self._in_order(found, args)

    def brought(self, args: Sequence[ConcreteArray]) -> Sequence[ConcreteArray]:
        """The arguments in the program's memory."""
        return [moved(x, self.memory) for x in args] if self.brings(args) else args

    def brings(self, args: Sequence[ConcreteArray]) -> bool:
        """Whether some of the arguments are in another memory."""
        own = None if self.memory.host else self.memory
        return any(memory_of(x) is not own for x in args)

    def run_there(self, args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        """The results for arguments in the program's memory."""
        executable = self.executable
        if executable is None:
            found = []
        else:
            taken = args if self.whole else [args[i] for i in self.used]
            found = None
            try:
                found = arrays_over(executable.run([x._storage or x.storage() for x in taken]), self.types)
            except AllocationError:
                pass
            if found is None:
                found = self._in_less_memory(taken, executable.plan)
        return self._in_order(found, args)

    def _in_order(self, found: list[ConcreteArray], args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        """The results in order: computed ones and passed-through ones."""
        if self.direct:
            return found
        out: list[ConcreteArray] = []
        for at, value in self.results:
            if at >= 0:
                out.append(found[at])
            else:
                # a constant belongs to the program: the caller may delete or donate the result
                out.append(args[value] if type(value) is int else value.again())
        return out


def _sources(program: Program, memory: Memory) -> tuple[dict[Any, int], list[tuple[int, Any]]]:
    """The computed results of a program, numbered; and for each result its number, or -1 and the array in this memory,
    or the number of the input, that is passed through."""
    computed: dict[Any, int] = {}
    results: list[tuple[int, Any]] = []
    inputs = {v: i for i, v in enumerate(program.inputs)}
    constants = dict(program.constants)
    for a in program.outputs:
        if isinstance(a, Literal):
            results.append((-1, moved(ConcreteArray(a.value, a.type.weak), memory)))
        elif a in inputs:
            results.append((-1, inputs[a]))
        elif a in constants:
            results.append((-1, moved(constants[a], memory)))
        else:
            results.append((computed.setdefault(a, len(computed)), None))
    return computed, results


def _concrete(args: Sequence[Any], program: Program) -> list[ConcreteArray]:
    """The arguments of a program as arrays of rlx."""
    types = program.input_types
    pairs = zip(args, types, strict=True)
    return [x if is_concrete(x) else array_of_type(unshared(x), t) for x, t in pairs]


def _backend_for(program: Program, args: Sequence[Any]) -> Backend:
    """The backend for a program that runs in the memory of its operands."""
    if config.watched or any(memory_of(x) is not None for x in args):
        memory = common_memory(program.name, args)
        return backend_on(None if program_stays_on_host(program, memory) else memory)
    return backend_named(None)


def run_program(program: Program, args: Sequence[Any]) -> list[Array]:
    """Compile (or find) a closed program and run it on concrete arguments, in their memory."""
    return list(CompiledProgram(program, _backend_for(program, args)).run(_concrete(args, program)))


def prepare_program(
    program: Program, optimized: bool = False, planned: Planned | None = None
) -> Callable[[Sequence[Any]], list[Array]]:
    """A function that runs a closed program on concrete arguments, in their memory; compiled once for each backend.

    optimized, planned: as in CompiledProgram.
    """
    callers: dict[Backend, Callable[[Sequence[ConcreteArray]], list[ConcreteArray]]] = {}

    def call(args: Sequence[Any]) -> list[Array]:
        backend = _backend_for(program, args)
        caller = callers.get(backend)
        if caller is None:
            compiled = CompiledProgram(program, backend, optimized=optimized, planned=planned)
            # numbers and NumPy arrays must be copied to a device, and arrays on a chosen device to the host
            comes = not compiled.memory.host or type(config.device) is ChosenDevice
            caller = callers[backend] = compiled.run if comes else compiled.caller()
        return list(caller(_concrete(args, program)))

    return call
