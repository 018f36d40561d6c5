"""Exchanges between processes that go on while kernels run: each is awaited where its result is first needed."""

from __future__ import annotations

from dataclasses import replace

from rlx.ir.kernels import Await, Buffer, Callback, Collective, Kernel, Plan
from rlx.planning.fuse import has_effect

__all__ = ["overlap_exchanges"]


def overlap_exchanges(plan: Plan, least: int) -> Plan:
    """The plan with an Await for every exchange of at least so many bytes that other kernels can go on beside."""
    if not any(isinstance(kernel, Collective) for kernel in plan.kernels):
        return plan
    kernels: list[Kernel] = [*plan.kernels]
    number = 0
    while number < len(kernels):
        kernel = kernels[number]
        if isinstance(kernel, Collective) and kernel.output.buffer.nbytes >= least:
            end = _first_in_need(kernels, number)
            if not all(isinstance(k, (Collective, Await)) for k in kernels[number + 1 : end]):
                kernels[number] = replace(kernel, awaited=True)
                kernels.insert(end, Await(kernel.input, kernel.output, kernel.origins))
        number += 1
    return replace(plan, kernels=tuple(kernels))


def _first_in_need(kernels: list[Kernel], number: int) -> int:
    """The first kernel that cannot run before the exchange of this number is over, or how many there are."""
    exchange = kernels[number]
    assert isinstance(exchange, Collective)
    used, read = exchange.output.buffer, exchange.input.buffer
    for position in range(number + 1, len(kernels)):
        kernel = kernels[position]
        if used in kernel.reads or _changes(kernel, (used, read)) or _calls(kernel):
            return position
    return len(kernels)


def _changes(kernel: Kernel, buffers: tuple[Buffer, ...]) -> bool:
    return any(buffer in kernel.writes for buffer in buffers)


def _calls(kernel: Kernel) -> bool:
    """Whether a kernel has effects that come after the exchange; other exchanges wait for it by themselves."""
    return isinstance(kernel, Callback) or (not isinstance(kernel, Collective) and has_effect(kernel))
