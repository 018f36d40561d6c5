"""Exchanges between processes that overlap kernels: each is awaited before its result is first needed."""

from __future__ import annotations

from dataclasses import replace

from rlx.ir.kernels import Await, Buffer, Callback, Collective, Kernel, Plan
from rlx.planning.fuse import has_effect

__all__ = ["overlap_exchanges"]


def overlap_exchanges(plan: Plan, least: int) -> Plan:
    """The plan with an Await for every exchange of at least `least` bytes that other kernels can overlap."""
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
                kernels.insert(end, _await(kernel))
        number += 1
    return replace(plan, kernels=tuple(kernels))


def _await(exchange: Collective) -> Await:
    return Await(exchange.input, exchange.output, exchange.origins, equations=exchange.equations)


def _first_in_need(kernels: list[Kernel], number: int) -> int:
    """The number of the first kernel that must wait for this exchange, or the number of kernels."""
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
    """Whether a kernel has effects that must follow the exchange; other exchanges wait for it automatically."""
    return isinstance(kernel, Callback) or (not isinstance(kernel, Collective) and has_effect(kernel))
