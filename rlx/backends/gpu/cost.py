"""The predicted cost of a program on a GPU: a roofline for each kernel, and its launches. A model, never measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.gpu.steps import LaunchStep
from rlx.code.cost import Counts, Rates, cost_of, counts_of_code, counts_of_work
from rlx.ir.kernels import Contract, Kernel, Library, Plan, Scan, While, members
from rlx.ir.work import kernel_work

__all__ = ["H100", "Prediction", "predict", "step_counts"]

_LIBRARY_UNITS = {"float16": "f16", "bfloat16": "bf16"}
# copy bandwidth as published measurements report it; published peaks of float32 without tensor cores, and of dense
# products with them (mma.sync computes products of 8-bit floats as 16-bit ones); launches in queues
_H100_UNITS = {
    **dict.fromkeys(("f16", "bf16", "e4m3", "e5m2"), 989e12), **dict.fromkeys(("s8", "u8"), 1979e12), "tf32": 494e12
}  # fmt: skip
# 132 multiprocessors at 1.755 GHz issue four instructions of warps in a cycle; the second-level cache takes about one
# atomic update in a cycle for each of its 48 parts (an estimate)
H100 = Rates("H100", 3.0e12, 67e12, 2e-6, units=_H100_UNITS, slots=132 * 4 * 1.755e9, atomics=48 * 1.755e9)


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

    def share(self, card: Rates) -> float:
        """The share of the copy bandwidth, or of the peak if products take longer, that the program reaches."""
        least = max(self.least_bytes / card.bandwidth, self.products)
        return least / self.seconds if self.seconds else 0.0


def predict(plan: Plan, program: DeviceProgram, card: Rates, limits: Limits) -> Prediction:
    """The predicted cost of a program on a card."""
    rates = replace(card, barrier=limits.costs.barrier)
    seconds, launches, moved, products = 0.0, 0, 0.0, 0.0
    for part in chain.from_iterable(map(program.launched, plan.kernels)):
        kernel = part.kernel if isinstance(part, LibraryProduct) else part
        steps = program.steps.get(kernel)
        unit = _unit(part, steps or ())
        if steps is not None and all(step.code for step in steps):
            found = [(step_counts(step), _filled(step, limits)) for step in steps]
        else:
            filled = max((_filled(step, limits) for step in steps or ()), default=1.0)
            found = [(counts_of_work(kernel_work(kernel), unit), filled)]
        count = len(steps) if steps is not None else _driven(kernel, program)
        seconds += sum(cost_of(counts, rates, filled).seconds for counts, filled in found)
        seconds += (count - len(found)) * rates.queued
        launches += count
        moved += sum(counts.moved for counts, _ in found)
        products += _product_flops(kernel) / card.product_rate(unit)
    outside = sum(b.nbytes for b in dict.fromkeys((*plan.inputs, *plan.outputs)))
    return Prediction(seconds, launches, outside, round(moved), products)


def step_counts(step: LaunchStep) -> Counts:
    """The counts of a launch."""
    sizes = {p.name: b.nbytes for p, b in zip(step.parameters, step.arrays, strict=True)}
    return counts_of_code(step.code, step.groups, step.items, sizes)


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
