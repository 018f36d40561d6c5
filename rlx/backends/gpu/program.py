"""A plan as the text of a device's program: launches of every kernel, and of those in the plans inside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlx.backends.gpu.batched_calls import BatchedCall, batched_call
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.loops import loop_steps
from rlx.backends.gpu.mapping import steps_of
from rlx.backends.gpu.steps import Step
from rlx.backends.loops.names import unused_name
from rlx.ir.fused_products import FusedProduct, fused_product
from rlx.ir.kernels import Buffer, Callback, Contract, Kernel, Library, Plan, RowTiles, Scan, While, nested_plans
from rlx.ir.user_functions import KernelCall

__all__ = ["DeviceProgram", "Parts", "is_call_of"]


def is_call_of(function: object, dialect: DeviceDialect) -> bool:
    """Whether a callback's function is a user's kernel for the device that reads a dialect."""
    return isinstance(function, KernelCall) and function.device == dialect.device


@dataclass(frozen=True, slots=True)
class Parts:
    """What is queued for a kernel that is no launch of rlx's own, in order; local: buffers that it needs meanwhile."""

    members: tuple[Kernel | LibraryProduct, ...]
    local: tuple[Buffer, ...] = ()


class DeviceProgram:
    """What is compiled for a plan, as data: no device is needed to make it.

    steps: the launches of each kernel that has some, under the names that they have in `source`. parts: products that a
    library makes, and kernels that are queued one by one. calls: users' kernels, which have texts of their own; with
    what launches one for a whole batch, if there is such a kernel. routines: those that a library computes.

    >>> import rlx
    >>> from rlx.backends.cuda.dialect import CudaDialect
    >>> from rlx.backends.gpu.limits import Limits
    >>> from rlx.passes.pipeline import lower_to_plan
    >>> plan = lower_to_plan(rlx.make_program(lambda x: x * 2)(1.0), None)
    >>> "__global__" in DeviceProgram(plan, CudaDialect(), Limits()).source
    True
    """

    def __init__(self, plan: Plan, dialect: DeviceDialect, limits: Limits) -> None:
        self.texts: dict[str, str] = {}
        self.steps: dict[Kernel, list[Step]] = {}
        self.parts: dict[Kernel, Parts] = {}
        self.calls: dict[KernelCall, BatchedCall | None] = {}
        self.routines: set[Library] = set()
        self._plan(plan, dialect, limits)
        self.source = dialect.program(self.texts)

    def _plan(self, plan: Plan, dialect: DeviceDialect, limits: Limits) -> None:
        """The launches of a plan, and of the plans inside it that the host drives."""
        for kernel in plan.kernels:
            self._kernel(kernel, dialect, limits)

    def _kernel(self, kernel: Kernel, dialect: DeviceDialect, limits: Limits) -> None:
        if isinstance(kernel, (Scan, While)):
            steps = loop_steps(kernel, limits, dialect)
        else:
            steps = steps_of(kernel, limits, dialect)
        if steps is not None:
            self.steps[kernel] = [self._defined(step, dialect) for step in steps]
            return
        if isinstance(kernel, Callback) and is_call_of(kernel.function, dialect):
            self.calls[kernel.function] = batched_call(kernel.function, dialect)
        if isinstance(kernel, Library) and kernel.meaning is None and dialect.why_not_routine(kernel) is None:
            self.routines.add(kernel)
        parts = _parts(kernel, dialect)
        if parts is not None:
            self.parts[kernel] = parts
            for inner in parts.members:
                if not isinstance(inner, LibraryProduct):
                    self._kernel(inner, dialect, limits)
        for plan in nested_plans(kernel):
            self._plan(plan, dialect, limits)

    def launched(self, kernel: Kernel) -> tuple[Kernel | LibraryProduct, ...]:
        """What of a kernel is launched by itself: it, or its parts."""
        if kernel not in self.parts:
            return (kernel,)
        parts = self.parts[kernel].members
        return tuple(
            found
            for part in parts
            for found in ((part,) if isinstance(part, LibraryProduct) else self.launched(part))
        )

    def shown_launches(self) -> str:
        """A line for each launch: its kernel, how it shares work, groups and items; then those of a library."""
        own = [
            f"{step.label}: {step.strategy}, {step.groups} x {step.items}"
            for steps in self.steps.values()
            for step in steps
        ]
        found = [part for parts in self.parts.values() for part in parts.members]
        return "\n".join([*own, *(part.name for part in found if isinstance(part, LibraryProduct))])

    def _defined(self, step: Step, dialect: DeviceDialect) -> Step:
        """The step under the name of a kernel with its text: equal ones are written once."""
        for name, known in self.texts.items():
            if step.text(name) == known:
                return replace(step, label=name)
        name = unused_name(step.label, self.texts, dialect.reserved)
        self.texts[name] = step.text(name)
        return replace(step, label=name)


def _parts(kernel: Kernel, dialect: DeviceDialect) -> Parts | None:
    """What a product is, or a group around one, where it is no launch of rlx's own."""
    if isinstance(kernel, Contract):
        product = dialect.library_product(FusedProduct(kernel))
        return None if product is None else Parts((product,))
    if not isinstance(kernel, RowTiles):
        return None
    fused = fused_product(kernel)
    product = None
    if fused is not None and fused.reader is not None:
        product = dialect.library_product(FusedProduct(fused.contract, reader=fused.reader, stored=fused.stored))
    if product is None:
        return Parts(kernel.kernels, kernel.local)
    stay = [inner for inner in kernel.kernels if inner is not product.reader]
    inside = [product if inner is product.contract else inner for inner in stay]
    touched = {buffer for part in inside for buffer in _touched(part)}
    return Parts(tuple(inside), tuple(buffer for buffer in kernel.local if buffer in touched))


def _touched(part: Kernel | LibraryProduct) -> tuple[Buffer, ...]:
    if isinstance(part, LibraryProduct):
        return tuple(operand.buffer for operand in part.operands)
    return (*part.reads, *part.writes)
