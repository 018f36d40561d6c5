"""What a program should cost on a GPU: a roofline for each kernel, and its launches. A model, never a measurement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.gpu.steps import Step
from rlx.ir.kernels import Contract, Kernel, Plan, Scan, While, members
from rlx.ir.work import kernel_work

__all__ = ["H100", "Card", "Prediction", "predict"]

_TRANSCENDENTAL = 20  # operations that a function such as exp is worth


@dataclass(frozen=True, slots=True)
class Card:
    """Published or measured rates of a GPU, by the second; launch: seconds of one, launch_queued: when others wait.

    >>> H100.name
    'H100'
    """

    name: str
    bandwidth: float
    flops: float
    launch: float
    launch_queued: float


# copy bandwidth as others have measured it; float32 without tensor cores; launches as graphs and queues hide them
H100 = Card("H100", 3.0e12, 67e12, 6.4e-6, 2e-6)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of a program; launches, those of a loop that the host drives once for each step; bytes that its inputs
    and results have, which it has to move at least; bytes that its kernels move."""

    seconds: float
    launches: int
    least_bytes: int
    moved_bytes: int
    products: float

    def share(self, card: Card) -> float:
        """The share of the copy bandwidth, or of the peak if products take longer, that the program reaches."""
        least = max(self.least_bytes / card.bandwidth, self.products / card.flops)
        return least / self.seconds if self.seconds else 0.0


def predict(plan: Plan, program: DeviceProgram, card: Card, limits: Limits) -> Prediction:
    """What a program should cost on a card."""
    seconds, launches, moved, products = 0.0, 0, 0, 0.0
    for kernel in chain.from_iterable(map(program.launched, plan.kernels)):
        work, steps = kernel_work(kernel), program.steps.get(kernel)
        count = len(steps) if steps is not None else _driven(kernel, program)
        filled = max((_filled(step, limits) for step in steps or ()), default=1.0)
        operations = work.flops + _TRANSCENDENTAL * work.transcendentals
        seconds += max(work.bytes / card.bandwidth / filled, operations / card.flops / filled)
        launches += count
        moved += work.bytes
        products += sum(kernel_work(k).flops for k in members(kernel) if isinstance(k, Contract))
    seconds += launches * card.launch_queued
    outside = sum(b.nbytes for b in dict.fromkeys((*plan.inputs, *plan.outputs)))
    return Prediction(seconds, launches, outside, moved, products)


def _driven(kernel: Kernel, program: DeviceProgram) -> int:
    """Launches of a kernel that a library runs, or that the host drives."""
    if isinstance(kernel, Scan):
        return kernel.length * _queued(kernel.body.kernels, program)
    if isinstance(kernel, While):
        return _queued((*kernel.condition.kernels, *kernel.body.kernels), program)
    return 1


def _queued(kernels: Iterable[Kernel], program: DeviceProgram) -> int:
    return sum(len(program.steps.get(k, ())) or 1 for kernel in kernels for k in program.launched(kernel))


def _filled(step: Step, limits: Limits) -> float:
    """The share of the device that is busy: a group for each multiprocessor is enough to move bytes."""
    return min(1.0, 2 * step.groups / limits.units)
