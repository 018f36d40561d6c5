"""The predicted cost of a program on a GPU: a roofline for each kernel, and its launches. A model, never measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.gpu.steps import LaunchStep
from rlx.ir.kernels import Contract, Kernel, Library, Plan, Scan, While, members
from rlx.ir.work import kernel_work

__all__ = ["H100", "Card", "Prediction", "predict"]

_LIBRARY_UNITS = {"float16": "f16", "bfloat16": "bf16"}
_TRANSCENDENTAL = 20  # operations that a function such as exp counts as


@dataclass(frozen=True, slots=True)
class Card:
    """Published or measured rates of a GPU, per second. launch: seconds of a launch; launch_queued: if others wait.
    units: rates of its matrix units, by operand type.

    >>> H100.name
    'H100'
    """

    name: str
    bandwidth: float
    flops: float
    launch: float
    launch_queued: float
    units: Mapping[str, float] = field(default_factory=dict)

    def product_rate(self, unit: str) -> float:
        """Operations of matrix products per second, on a matrix unit or without one."""
        return self.units.get(unit, self.flops)


# copy bandwidth as published measurements report it; published peaks of float32 without tensor cores, and of dense
# products with them (mma.sync computes products of 8-bit floats as 16-bit ones); launches in graphs and queues
_H100_UNITS = {
    **dict.fromkeys(("f16", "bf16", "e4m3", "e5m2"), 989e12), **dict.fromkeys(("s8", "u8"), 1979e12), "tf32": 494e12
}  # fmt: skip
H100 = Card("H100", 3.0e12, 67e12, 6.4e-6, 2e-6, _H100_UNITS)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of a program; launches, counting a loop that the host drives once per step; bytes of inputs and results,
    which the program has to move at least; bytes that its kernels move; products: seconds of its matrix products at the
    peak rate."""

    seconds: float
    launches: int
    least_bytes: int
    moved_bytes: int
    products: float

    def share(self, card: Card) -> float:
        """The share of the copy bandwidth, or of the peak if products take longer, that the program reaches."""
        least = max(self.least_bytes / card.bandwidth, self.products)
        return least / self.seconds if self.seconds else 0.0


def predict(plan: Plan, program: DeviceProgram, card: Card, limits: Limits) -> Prediction:
    """The predicted cost of a program on a card."""
    seconds, launches, moved, products = 0.0, 0, 0, 0.0
    for part in chain.from_iterable(map(program.launched, plan.kernels)):
        kernel = part.kernel if isinstance(part, LibraryProduct) else part
        work, steps = kernel_work(kernel), program.steps.get(kernel)
        count = len(steps) if steps is not None else _driven(kernel, program)
        filled = max((_filled(step, limits) for step in steps or ()), default=1.0)
        unit = _unit(part, steps or ())
        operations = work.flops / card.product_rate(unit) + _TRANSCENDENTAL * work.transcendentals / card.flops
        seconds += max(work.bytes / card.bandwidth, operations) / filled
        launches += count
        seconds += sum(step.barriers for step in steps or ()) * limits.costs.barrier
        moved += work.bytes
        products += _product_flops(kernel) / card.product_rate(unit)
    seconds += launches * card.launch_queued
    outside = sum(b.nbytes for b in dict.fromkeys((*plan.inputs, *plan.outputs)))
    return Prediction(seconds, launches, outside, moved, products)


def _unit(kernel: Kernel | LibraryProduct, steps: Iterable[LaunchStep]) -> str:
    """The matrix unit that computes a kernel's products, in its own launches or in a library."""
    if not isinstance(kernel, LibraryProduct):
        return next((step.unit for step in steps if step.unit), "")
    product = kernel.contract
    return "tf32" if product.tf32 else _LIBRARY_UNITS.get(product.lhs.buffer.dtype.name, "")


def _product_flops(kernel: Kernel) -> float:
    """Operations of a kernel's matrix products; for a claimed block, nearly all of its operations."""
    if isinstance(kernel, Library) and kernel.meaning is not None:
        return kernel_work(kernel).flops
    return sum(kernel_work(k).flops for k in members(kernel) if isinstance(k, Contract))


def _driven(kernel: Kernel, program: DeviceProgram) -> int:
    """The number of launches of a kernel that a library runs or the host drives."""
    if isinstance(kernel, Scan):
        return kernel.length * _queued(kernel.body.kernels, program)
    if isinstance(kernel, While):
        return _queued((*kernel.condition.kernels, *kernel.body.kernels), program)
    return 1


def _queued(kernels: Iterable[Kernel], program: DeviceProgram) -> int:
    parts = [part for kernel in kernels for part in program.launched(kernel)]
    return sum(1 if isinstance(p, LibraryProduct) else len(program.steps.get(p, ())) or 1 for p in parts)


def _filled(step: LaunchStep, limits: Limits) -> float:
    """The share of the device that is busy: one group per multiprocessor is enough to saturate memory."""
    return min(1.0, 2 * step.groups / limits.units)
