"""A plan on a device with a queue: runs are queued, and their results marked with the run's end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rlx.backends.base import PlannedExecutable, failed_run
from rlx.backends.gpu.cost import Prediction, predict
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.engine import View
from rlx.backends.gpu.launches import LaunchProgram
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.loops import host_loop_reason
from rlx.backends.gpu.mapping import routine_steps
from rlx.backends.gpu.memory import DeviceMemory, DeviceStorage
from rlx.backends.gpu.program import DeviceProgram, is_call_of
from rlx.backends.gpu.timed import Clock, TimedDeviceExecutable, timed_steps
from rlx.backends.loops.program import host_reason
from rlx.backends.timing import TimedExecutable
from rlx.code.cost import Rates
from rlx.errors import DeviceError
from rlx.ir.kernels import Branch, Callback, Collective, Kernel, Library, Plan, Scan, While
from rlx.ir.show_plan import describe_plan, show_host_steps, show_plan
from rlx.storage import Storage

__all__ = ["DeviceExecutable", "device_host_reason"]


class DeviceExecutable(PlannedExecutable):
    """A plan's launches. Calls are serialised: they share a queue.

    card: the GPU for which `predicted` gives the plan's time.
    """

    def __init__(
        self,
        plan: Plan,
        memory: DeviceMemory,
        dialect: DeviceDialect,
        compiled_texts: Callable[[str], Mapping[str, str]],
        card: Rates | None = None,
    ) -> None:
        self.plan = plan
        self._memory = memory
        self._dialect = dialect
        self._compiled_texts = compiled_texts
        self._card = card
        self.program = DeviceProgram(plan, dialect, memory.engine.limits)
        self._launches = LaunchProgram(plan, self.program, memory.pool) if memory.engine.present else None

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Queue a run on dense inputs in the order of plan.inputs; results are marked with its end."""
        return self._queued(self._present_launches().run, inputs)

    def _present_launches(self) -> LaunchProgram:
        assert self._launches is not None, "a missing device has no inputs"
        return self._launches

    def _queued(
        self, run: Callable[[Plan, Sequence[View], Sequence[View]], None], inputs: Sequence[Storage]
    ) -> list[Storage]:
        engine = self._memory.engine
        stored = [storage for storage in inputs if isinstance(storage, DeviceStorage)]
        given = [storage.view_on_device for storage in stored]
        made = [DeviceStorage(self._memory.pool, buffer.nbytes) for buffer in self.plan.outputs]
        with engine.lock, engine.current(), self._memory.pool.run() as ended:
            try:
                for storage in stored:
                    if storage.upload is not None:
                        storage.follow()
                run(self.plan, given, [storage.view_on_device for storage in made])
                mark = ended()
            except DeviceError as error:
                raise failed_run(error, self.plan.kernels) from None
        for storage in made:
            storage.written_by(mark, self.plan.kernels)
        if not made:
            engine.wait(mark)
        return [*made]

    def timed(self) -> TimedExecutable:
        """The same launches, with the device's time stamps between them."""
        launches = self._present_launches()

        def run(inputs: Sequence[Storage], clock: Clock) -> list[Storage]:
            return self._queued(partial(launches.run_stamped, clock=clock), inputs)

        steps = timed_steps(self.plan, lambda kernel: kernel in self.program.steps)
        return TimedDeviceExecutable(steps, self._memory.engine, run)

    def predicted(self) -> tuple[Prediction, Rates] | None:
        """The predicted cost, and the GPU that it is for."""
        limits, card = self._memory.engine.limits, self._card
        return (predict(self.plan, self.program, card, limits), card) if card else None

    def texts(self) -> dict[str, str]:
        """The plan, its kernels, the compiled program, its launches, and the kernels that the host runs."""
        limits = self._memory.engine.limits
        return {
            "plan": show_plan(self.plan),
            "kernels": describe_plan(self.plan),
            self._dialect.language.split()[0].lower(): self.program.source,
            **self._compiled_texts(self.program.source),
            "launches": self.program.shown_launches(),
            "host": show_host_steps(
                self.plan,
                lambda kernel: device_host_reason(kernel, self._dialect, limits),
                whole=lambda kernel: kernel in self.program.steps,
            ),
        }


def device_host_reason(kernel: Kernel, dialect: DeviceDialect, limits: Limits) -> str | None:
    """The reason that the host runs or drives a kernel: it queues the steps of loops too large for one group."""
    if isinstance(kernel, (Scan, While)):
        return host_loop_reason(kernel, limits, dialect)
    if isinstance(kernel, Callback) and is_call_of(kernel.function, dialect):
        return None
    if isinstance(kernel, Collective):
        return None if dialect.exchanges(kernel) else "data of collectives is copied to the host and back"
    if isinstance(kernel, Library) and kernel.meaning is None:
        reason = dialect.why_not_routine(kernel)
        return reason if reason is None or routine_steps(kernel, limits, dialect) is None else None
    if isinstance(kernel, Branch):
        return "the host reads which branch is taken"
    return host_reason(kernel, dialect)
