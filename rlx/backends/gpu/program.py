"""A plan as the text of a device's program: launches of every kernel, and of those in the plans inside it."""

from __future__ import annotations

from dataclasses import replace

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.mapping import steps_of
from rlx.backends.gpu.steps import Step
from rlx.backends.loops.names import unused_name
from rlx.ir.kernels import Callback, Kernel, Library, Plan, members, nested_plans
from rlx.ir.user_functions import KernelCall

__all__ = ["DeviceProgram", "is_call_of"]


def is_call_of(function: object, dialect: DeviceDialect) -> bool:
    """Whether a callback's function is a user's kernel for the device that reads a dialect."""
    return isinstance(function, KernelCall) and function.device == dialect.device


class DeviceProgram:
    """What is compiled for a plan, as data: no device is needed to make it.

    steps: the launches of each kernel that has some, under the names that they have in `source`. calls: users' kernels,
    which have texts of their own. routines: those that a library of the device's computes.

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
        self.calls: list[KernelCall] = []
        self.routines: set[Library] = set()
        self._plan(plan, dialect, limits)
        self.source = dialect.program(self.texts)

    def _plan(self, plan: Plan, dialect: DeviceDialect, limits: Limits) -> None:
        """The launches of a plan, and of the plans inside it that the host drives."""
        for kernel in plan.kernels:
            self._kernel(kernel, dialect, limits)

    def _kernel(self, kernel: Kernel, dialect: DeviceDialect, limits: Limits) -> None:
        steps = steps_of(kernel, limits, dialect)
        if steps is not None:
            self.steps[kernel] = [self._defined(step, dialect) for step in steps]
            return
        if isinstance(kernel, Callback) and is_call_of(kernel.function, dialect):
            self.calls.append(kernel.function)
        if isinstance(kernel, Library) and kernel.meaning is None and dialect.why_not_routine(kernel) is None:
            self.routines.add(kernel)
        for inner in members(kernel):
            if inner is not kernel:
                self._kernel(inner, dialect, limits)
        for plan in nested_plans(kernel):
            self._plan(plan, dialect, limits)

    def launched(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """What of a kernel is launched by itself: it, or what runs in row tiles."""
        return (kernel,) if kernel in self.steps else members(kernel)

    def shown_launches(self) -> str:
        """A line for each launch: its kernel, how it shares work, groups and items."""
        return "\n".join(
            f"{step.label}: {step.strategy}, {step.groups} x {step.items}"
            for steps in self.steps.values()
            for step in steps
        )

    def _defined(self, step: Step, dialect: DeviceDialect) -> Step:
        """The step under the name of a kernel with its text: equal ones are written once."""
        for name, known in self.texts.items():
            if step.text(name) == known:
                return replace(step, label=name)
        name = unused_name(step.label, self.texts, dialect.reserved)
        self.texts[name] = step.text(name)
        return replace(step, label=name)
