"""Estimates of a program on each device: nothing runs, and arguments may be descriptions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rlx.backends import backend_named, device_names
from rlx.backends.base import Backend
from rlx.call.jit import Jitted
from rlx.columns import aligned
from rlx.config import config
from rlx.errors import DeviceError, RlxError, bytes_text
from rlx.ir.kernels import Plan
from rlx.ir.program import Program
from rlx.passes.pipeline import Context, lower_to_plan
from rlx.placement.model import terms_of
from rlx.placement.rates import DeviceRates, Term
from rlx.placement.stored_rates import rates_of
from rlx.placement.turns import known_turns
from rlx.planning.memory import temporary_bytes

__all__ = ["Estimate", "EstimateTable", "estimate", "estimate_program", "usable_devices"]


class Estimate(NamedTuple):
    """The expected cost of a program on a device, in seconds and bytes.

    seconds: one call whose arguments are on the device. transfer: copying the arguments there. compile: the first
    call, if no kernel is in a cache. memory: arguments, results and temporaries. launches: kernels of one call.
    exact: False if the number of a loop's steps, a branch, or a routine's work is unknown. blockers: reasons why the
    device is not considered. basis: the source of the device's rates: "typical", "published: CARD" or "measured".

    >>> import rlx
    >>> rlx.placement.estimate(lambda x: x @ x, rlx.ShapeDtypeStruct((64, 64), "float32"))["cpu"].launches
    1
    """

    device: str
    seconds: float = 0.0
    transfer: float = 0.0
    compile: float = 0.0
    memory: int = 0
    launches: int = 0
    exact: bool = True
    blockers: tuple[str, ...] = ()
    basis: str = "typical"
    terms: tuple[Term, ...] = ()

    @property
    def total(self) -> float:
        """Seconds of a call with the transfer of its arguments."""
        return self.seconds + self.transfer

    def __repr__(self) -> str:
        blocked = f", blockers={self.blockers}" if self.blockers else ""
        return f"Estimate({self.device!r}, {self.total * 1e3:.4g} ms, {self.basis}{blocked})"


class EstimateTable(tuple[Estimate, ...]):
    """Estimates for several devices, the quickest first: a tuple that prints as a table.

    >>> import rlx
    >>> table = rlx.placement.estimate(lambda x: x + 1.0, 2.0, devices=["reference", "cpu"])
    >>> table[0].device, table["reference"].blockers
    ('cpu', ())
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        """The estimate of a device, by its name or by its place."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        for found in self:
            if found.device == key:
                return found
        raise KeyError(key)

    def __str__(self) -> str:
        head = ("device", "run", "transfer", "compile", "memory", "launches", "rates", "")
        rows = [
            (
                e.device, _shown(e.seconds), _shown(e.transfer), _shown(e.compile), bytes_text(e.memory),
                str(e.launches), e.basis, "; ".join(e.blockers) or ("" if e.exact else "unknown number of steps"),
            )
            for e in self
        ]  # fmt: skip
        return "\n".join(aligned([head, *rows], (1, 2, 3, 4, 5)))

    __repr__ = __str__


def _shown(seconds: float) -> str:
    """A time in a readable unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def estimate(fun: Callable[..., Any], *args: Any, devices: Sequence[str] | None = None, **kwargs: Any) -> EstimateTable:
    """The estimated cost of a function's program on each device, without running or compiling it.

    Args:
      fun: a function of arrays, jitted or not.
      args, kwargs: its arguments: arrays, or anything with .shape and .dtype.
      devices: names of devices; by default all that are usable here, except the interpreter `reference`.

    Raises: DeviceError for a device that does not exist or is not usable.

    >>> import rlx
    >>> x = rlx.ShapeDtypeStruct((512, 512), "float32")
    >>> table = rlx.placement.estimate(lambda x: x @ x, x, devices=["cpu", "c"])
    >>> [e.device for e in table]
    ['cpu', 'c']
    """
    jitted = fun if isinstance(fun, Jitted) else Jitted(fun)
    program = jitted.trace(*args, **kwargs).closed()
    names = usable_devices() if devices is None else list(devices)
    return EstimateTable(sorted((estimate_program(program, name) for name in names), key=_rank))


def _rank(e: Estimate) -> tuple[bool, float]:
    """Devices without blockers first, the quickest of them first."""
    return bool(e.blockers), e.total


def usable_devices() -> list[str]:
    """The names of the devices that can be used on this machine, the default device first, without the interpreter.

    >>> from rlx.placement.estimate import usable_devices
    >>> "cpu" in usable_devices()
    True
    """
    return list(_usable([config.device, *device_names()]))


def _usable(names: Sequence[str]) -> Iterator[str]:
    for name in dict.fromkeys(names):
        if name == "reference" and config.device != name:
            continue
        try:
            present = backend_named(name).present
        except (DeviceError, ImportError):
            continue
        if present:
            yield name


def estimate_program(program: Program, device: str, rates: DeviceRates | None = None) -> Estimate:
    """The estimate for a closed program. rates: instead of the device's own."""
    backend = backend_named(device)
    rates = rates_of(device) if rates is None else rates
    try:
        plan = lower_to_plan(program, context=_context(backend))
    except RlxError as error:
        return Estimate(device, blockers=(error.what,), basis=rates.basis, seconds=float("inf"))
    found = terms_of(plan, backend, known_turns(program))
    inputs = sum(b.nbytes for b in plan.inputs)
    transfer = 0.0 if backend.memory.host else rates.copy_seconds(inputs, len(plan.inputs))
    memory = _memory(plan)
    launches = sum(t.times for t in found.terms)
    basis = f"{rates.basis}, cpu's plan" if backend.takes_programs else rates.basis
    return Estimate(
        device,
        rates.seconds(found.terms),
        transfer,
        rates.costs["compile"] * max(1, len(found.terms)),
        memory,
        round(launches),
        found.exact,
        (*found.blockers, *_too_large(memory, backend)),
        basis,
        found.terms,
    )


def _context(backend: Backend) -> Context:
    """The context for the plan of a device; one that takes programs is judged by a plan with its dtypes."""
    context = Context.of(backend)
    return context if context.plans else Context(claims=context.claims, device=context.device)


def _memory(plan: Plan) -> int:
    """Bytes of arguments, results, constants and temporaries."""
    held = (*plan.inputs, *plan.outputs, *(b for b in plan.buffers if b.role == "constant"))
    return sum(b.nbytes for b in dict.fromkeys(held)) + temporary_bytes(plan)


def _too_large(memory: int, backend: Backend) -> tuple[str, ...]:
    capacity = backend.memory.capacity()
    if capacity is None or memory <= capacity:
        return ()
    return (f"it needs {bytes_text(memory)}, and the device has {bytes_text(capacity)}",)
