"""A device whose memory counts copies and whose clock is virtual: it advances by secret costs, with noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx import backends
from rlx.backends import backend_named, register_backend
from rlx.backends.base import Backend, Executable
from rlx.backends.claims import Claims
from rlx.device_memory import Memory, host_memory
from rlx.errors import JaxRuntimeError
from rlx.ir.kernels import Plan
from rlx.ir.options import LoweringOptions
from rlx.placement.model import terms_of
from rlx.placement.rates import COSTS, DeviceRates
from rlx.storage import AllocationError, Device, Storage

__all__ = ["SimulatedBackend", "simulated"]


class SimulatedStorage(Storage):
    """Memory that only its device can address."""

    def __init__(self, memory: SimulatedMemory, held: Storage, nbytes: int) -> None:
        if memory.room is not None and memory.used + nbytes > memory.room:
            raise AllocationError(f"{nbytes} bytes beyond {memory.used} of {memory.room}")
        self.memory, self.held, self.nbytes = memory, held, nbytes
        self.pointer = held.pointer
        memory.used += nbytes

    def __del__(self) -> None:
        if hasattr(self, "nbytes"):
            self.memory.used -= self.nbytes


class SimulatedMemory(Memory):
    """Counts the copies in both directions, and the bytes in use."""

    def __init__(self, device: Device, backend: SimulatedBackend) -> None:
        super().__init__(device)
        self.backend = backend
        self.room: int | None = None
        self.puts = self.gets = self.used = 0

    def capacity(self) -> int | None:
        return self.room

    def allocate(self, nbytes: int) -> Storage:
        return SimulatedStorage(self, host_memory.allocate(nbytes), nbytes)

    def put(self, array: np.ndarray) -> Storage:
        self.puts += 1
        self.backend.advance(self.backend.secret.copy_seconds(array.nbytes))
        return SimulatedStorage(self, host_memory.put(array), array.nbytes)

    def get(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        assert isinstance(storage, SimulatedStorage) and storage.memory is self, "memory of another device"
        self.gets += 1
        self.backend.advance(self.backend.secret.copy_seconds(storage.nbytes))
        return storage.held.view(shape, dtype).copy()

    def synchronize(self) -> None:
        pass


class SimulatedExecutable(Executable):
    """A plan that the processor runs, while the device's clock advances by its secret costs."""

    def __init__(self, plan: Plan, backend: SimulatedBackend) -> None:
        self.plan, self.backend = plan, backend
        self.inner = backend.inner.compile(plan)
        self.terms = terms_of(plan, backend).terms

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        self.backend.runs += 1
        if self.backend.fails:
            raise JaxRuntimeError("The simulated device fails.", "Repair it.")
        taken: list[Storage] = []
        for s in inputs:
            assert isinstance(s, SimulatedStorage) and s.memory is self.backend.memory, "memory of another device"
            taken.append(s.held)
        self.backend.advance(self.backend.secret.seconds(self.terms))
        found = self.inner.run(taken)
        pairs = zip(found, self.plan.outputs, strict=True)
        return [SimulatedStorage(self.backend.memory, s, b.nbytes) for s, b in pairs]

    def texts(self) -> dict[str, str]:
        return self.inner.texts()


class SimulatedBackend(Backend):
    """The processor's kernels in a memory of its own. secret: the costs by which the clock advances."""

    def __init__(self, name: str, factors: dict[str, float], noise: float = 0.0, routines: bool = True) -> None:
        self.name = name
        base = {**COSTS, "latency": 1e-5, "link": 1e-10}
        self.secret = DeviceRates(name, {n: base[n] * factors.get(n, 1.0) for n in base}, "secret")
        self.inner = backend_named("cpu")
        self.noise, self.random = noise, np.random.default_rng(7)
        self.now, self.runs, self.fails, self.routines = 0.0, 0, False, routines
        self._memory = SimulatedMemory(Device(name), self)

    @property
    def memory(self) -> SimulatedMemory:
        return self._memory

    @property
    def lowering(self) -> LoweringOptions:
        return self.inner.lowering

    @property
    def claims(self) -> Claims:
        claims = self.inner.claims
        return claims if self.routines else Claims(kinds=claims.kinds, routines=frozenset())

    def clock(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.now += seconds * float(np.exp(self.noise * self.random.standard_normal()))

    def compile(self, plan: Plan) -> Executable:
        return SimulatedExecutable(plan, self)


@contextmanager
def simulated(name: str = "simulated", factors: dict[str, float] | None = None, **options: Any) -> Iterator[Any]:
    """A simulated device, registered while the block runs."""
    backend = SimulatedBackend(name, factors or {}, **options)
    register_backend(name, lambda: backend)  # ty: ignore[invalid-argument-type]
    try:
        yield backend
    finally:
        backends._BACKENDS.pop(name, None)
        backends._loaded.pop(name, None)
