"""A closed program ready to run on arrays: what is computed, what is passed through, what is constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.array import Array, ConcreteArray, array_of_type, arrays_over, from_storage, unshared
from rlx.backends import backend_named
from rlx.backends.base import Backend, Executable
from rlx.call.exhausted import memory_exhausted
from rlx.forks import reopen_after_fork
from rlx.ir.program import Literal, Program, Var
from rlx.ir.types import TensorType, is_key
from rlx.passes.pipeline import executables
from rlx.storage import AllocationError, Storage

__all__ = ["CompiledProgram", "prepare_program", "run_program"]

reopen_after_fork(executables)


class CompiledProgram:
    """Runs a closed program (its constants are arrays) on concrete arrays.

    Results that are an input, a constant or a literal are handed through without a kernel, and
    inputs that nothing reads are not handed to the executable. memory_limit: most bytes of temporaries.
    """

    def __init__(self, program: Program, backend: Backend, memory_limit: int | None = None) -> None:
        self.program = program
        self.backend = backend
        computed: dict[Any, int] = {}
        # per result: (position among computed results, or -1; the array to hand through, or input number)
        self.results: list[tuple[int, Any]] = []
        inputs = {v: i for i, v in enumerate(program.inputs)}
        constants = dict(program.constants)
        for a in program.outputs:
            if isinstance(a, Literal):
                self.results.append((-1, ConcreteArray(a.value, a.type.weak)))
            elif a in inputs:
                self.results.append((-1, inputs[a]))
            elif a in constants:
                self.results.append((-1, constants[a]))
            else:
                self.results.append((computed.setdefault(a, len(computed)), None))
        used = {a for e in program.equations for a in e.inputs if isinstance(a, Var)}
        self.used = [i for i, v in enumerate(program.inputs) if v in used]
        core = program.replace(inputs=[program.inputs[i] for i in self.used], outputs=list(computed))
        needed = bool(computed) or any(e.primitive.effect(**e.params) for e in program.equations)
        self.executable: Executable | None = executables.get(core, backend, memory_limit) if needed else None
        self.types = [v.type for v in computed]
        self.over = _arrays_or_keys if any(is_key(t.dtype) for t in self.types) else arrays_over
        self.passes_inputs = any(type(value) is int for _, value in self.results)
        self.direct = all(at == i for i, (at, _) in enumerate(self.results)) and len(self.results) == len(self.types)
        self.whole = len(self.used) == len(program.inputs)

    def caller(self) -> Callable[[Sequence[ConcreteArray]], list[ConcreteArray]]:
        """What does as `run` does, without what this program has no need of."""
        executable, types = self.executable, self.types
        if executable is None or not (self.whole and self.direct):
            return self.run
        run, over = executable.run, self.over

        def call(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
            try:
                return over(run([x._storage or x.storage() for x in args]), types)
            except AllocationError:
                raise memory_exhausted(self.program, executable.plan) from None

        return call

    def run(self, args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        """The results for concrete arguments."""
        executable = self.executable
        if executable is None:
            found = []
        else:
            taken = args if self.whole else [args[i] for i in self.used]
            storages = [x._storage or x.storage() for x in taken]
            try:
                found = self.over(executable.run(storages), self.types)
            except AllocationError:
                raise memory_exhausted(self.program, executable.plan) from None
        if self.direct:
            return found
        out: list[ConcreteArray] = []
        for at, value in self.results:
            if at >= 0:
                out.append(found[at])
            else:
                # a constant belongs to the program: the caller may delete or donate what it gets
                out.append(args[value] if type(value) is int else value.again())
        return out


def _arrays_or_keys(storages: Sequence[Storage], types: Sequence[TensorType]) -> list[ConcreteArray]:
    """As arrays_over, where some are of keys."""
    return list(map(from_storage, storages, types))


def _concrete(args: Sequence[Any], program: Program) -> list[ConcreteArray]:
    """The arguments of a program as arrays of rlx."""
    types = program.input_types
    pairs = zip(args, types, strict=True)
    return [x if isinstance(x, ConcreteArray) else array_of_type(unshared(x), t) for x, t in pairs]


def run_program(program: Program, args: Sequence[Any]) -> list[Array]:
    """Compile (or find) a closed program and run it on concrete arguments."""
    compiled = CompiledProgram(program, backend_named(None))
    return list(compiled.run(_concrete(args, program)))


def prepare_program(program: Program) -> Callable[[Sequence[Any]], list[Array]]:
    """A function that runs a closed program on concrete arguments, compiled once for each backend."""
    callers: dict[Backend, Callable[[Sequence[ConcreteArray]], list[ConcreteArray]]] = {}

    def call(args: Sequence[Any]) -> list[Array]:
        backend = backend_named(None)
        caller = callers.get(backend)
        if caller is None:
            caller = callers[backend] = CompiledProgram(program, backend).caller()
        return list(caller(_concrete(args, program)))

    return call
