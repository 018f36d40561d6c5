"""A device whose memory counts copies and whose clock is virtual: it advances by secret costs, with noise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
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
        self.ready = 0.0  # when it is written, on the clock that devices share
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

    def take_from(self, memory: Memory, storage: Storage, nbytes: int) -> Storage | None:
        """A copy between two simulated devices, for which the calling thread waits."""
        if not isinstance(memory, SimulatedMemory):
            return None
        assert isinstance(storage, SimulatedStorage) and storage.memory is memory, "memory of another device"
        self.puts += 1
        seconds = sum(b.secret.copy_seconds(nbytes) for b in (self.backend, memory.backend))
        copied = SimulatedStorage(self, host_memory.put(storage.held.view((nbytes,), np.dtype(np.uint8))), nbytes)
        free = self.backend.links.get(memory.device.name, 0.0)
        copied.ready = _thread.now = max(free, storage.ready, _thread.now) + seconds
        self.backend.links[memory.device.name] = copied.ready
        return copied

    def synchronize(self) -> None:
        pass


class _Thread(threading.local):
    """The time at which a thread of the host is, on the clock that devices share."""

    now = 0.0


_thread = _Thread()


class SimulatedExecutable(Executable):
    """A plan that the processor runs, while the device's clock advances by its secret costs."""

    def __init__(self, plan: Plan, backend: SimulatedBackend) -> None:
        self.plan, self.backend = plan, backend
        self.inner = backend.inner.compile(plan)

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        self.backend.runs += 1
        if self.backend.fails:
            raise JaxRuntimeError("The simulated device fails.", "Repair it.")
        taken: list[Storage] = []
        for s in inputs:
            assert isinstance(s, SimulatedStorage) and s.memory is self.backend.memory, "memory of another device"
            taken.append(s.held)
        seconds = self.backend.secret.seconds(terms_of(self.plan, self.backend, self.backend.turns).terms)
        self.backend.advance(seconds)
        self.backend.hook(self.backend.runs)
        found = self.inner.run(taken)
        begin = max([self.backend.free, _thread.now, *(s.ready for s in inputs if isinstance(s, SimulatedStorage))])
        self.backend.free = begin + seconds
        pairs = zip(found, self.plan.outputs, strict=True)
        made = [SimulatedStorage(self.backend.memory, s, b.nbytes) for s, b in pairs]
        for storage in made:
            storage.ready = self.backend.free
        return made

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
        self.turns = 1.0  # of loops of unknown length
        self.hook: Callable[[int], None] = lambda number: None  # called in each run, with its number
        self.restart()
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

    def restart(self) -> None:
        """Begin at the start of the clock that devices share: when kernels, and copies from each device, are over."""
        self.free, self.links = 0.0, dict[str, float]()
        _thread.now = 0.0

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
