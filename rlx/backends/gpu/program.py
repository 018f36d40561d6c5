"""A plan as the source of a device program: the launches of every kernel, including those of inner plans."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlx.backends.gpu.batched_calls import BatchedCall, batched_call
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.loops import loop_steps
from rlx.backends.gpu.mapping import copy_steps, steps_of
from rlx.backends.gpu.steps import LaunchStep
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
    """The steps queued for a kernel that is not one of rlx's launches, in order; local: their temporary buffers."""

    members: tuple[Kernel | LibraryProduct, ...]
    local: tuple[Buffer, ...] = ()


class DeviceProgram:
    """The compiled form of a plan, as data: building it needs no device.

    steps: the launches of each kernel that has some, under their names in `sources`. parts: products that a library
    computes, and kernels that are queued one by one. calls: users' kernels, which have separate sources, and the kernel
    that launches each for a whole batch, if there is one. routines: routines that a library computes.

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
        self.steps: dict[Kernel, list[LaunchStep]] = {}
        self.parts: dict[Kernel, Parts] = {}
        self.calls: dict[KernelCall, BatchedCall | None] = {}
        self.routines: set[Library] = set()
        self._plan(plan, dialect, limits)
        self._dialect, self._limits = dialect, limits

    @property
    def source(self) -> str:
        """All kernels in one text, as they are shown."""
        return self._dialect.program(self.texts)

    @property
    def sources(self) -> dict[str, str]:
        """The source of each kernel by name, with the functions that it calls."""
        return {name: self._dialect.program({name: text}) for name, text in self.texts.items()}

    def _plan(self, plan: Plan, dialect: DeviceDialect, limits: Limits) -> None:
        """The launches of a plan, and of its inner plans that the host drives."""
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

    def copy_steps(self, source: Buffer, target: Buffer) -> list[LaunchStep]:
        """The launches that copy an array to another one, and their kernels in `texts`."""
        return [self._defined(step, self._dialect) for step in copy_steps(source, target, self._limits, self._dialect)]

    def launched(self, kernel: Kernel) -> tuple[Kernel | LibraryProduct, ...]:
        """The separately launched parts of a kernel: the kernel, or its parts."""
        if kernel not in self.parts:
            return (kernel,)
        parts = self.parts[kernel].members
        return tuple(
            found
            for part in parts
            for found in ((part,) if isinstance(part, LibraryProduct) else self.launched(part))
        )

    def shown_launches(self) -> str:
        """A line for each launch: kernel, strategy, groups and work-items; then the calls of libraries."""
        own = [
            f"{step.label}: {step.strategy}, {step.groups} x {step.items}"
            for steps in self.steps.values()
            for step in steps
        ]
        found = [part for parts in self.parts.values() for part in parts.members]
        return "\n".join([*own, *(part.name for part in found if isinstance(part, LibraryProduct))])

    def _defined(self, step: LaunchStep, dialect: DeviceDialect) -> LaunchStep:
        """The step, renamed to an existing kernel with the same source: equal kernels are written once."""
        for name, known in self.texts.items():
            if step.text(name) == known:
                return replace(step, label=name)
        name = unused_name(step.label, self.texts, dialect.reserved)
        self.texts[name] = step.text(name)
        return replace(step, label=name)


def _parts(kernel: Kernel, dialect: DeviceDialect) -> Parts | None:
    """The steps of a product, or of a group around one, that is not one of rlx's launches."""
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
