"""What a backend is: it compiles plans to executables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from rlx.backends.claims import Claims
from rlx.backends.timing import TimedExecutable
from rlx.device_memory import Memory, host_memory
from rlx.errors import DeviceError, OutOfMemoryError, RlxError, UnsupportedError, source_line
from rlx.ir.kernels import Kernel, Plan
from rlx.ir.options import LoweringOptions
from rlx.storage import AllocationError, Storage

__all__ = ["Backend", "Executable", "failed_run"]

_SHOWN = 3  # so many of the user's lines are named


def failed_run(error: BaseException, kernels: Iterable[Kernel]) -> BaseException:
    """What somebody who waits for an asynchronous run gets: its error, which names the user's lines of these kernels.

    Where it was raised nobody of the user's stands. An error of rlx gets the lines as its own, others (what a callback
    of the user's has raised) are the same object with a note.
    """
    origins = dict.fromkeys(origin for kernel in kernels for origin in getattr(kernel, "origins", ()))
    lines = "\n".join(source_line(*origin) for origin in [*origins][:_SHOWN])
    if isinstance(error, AllocationError):
        return OutOfMemoryError(f"A program ran out of memory: {error}.", "Compute less at once.", lines)
    if isinstance(error, RlxError):
        error.relocate(lines)
    elif lines:
        error.add_note(f"In a program that ran asynchronously:\n{lines}")
    return error


class Executable(ABC):
    """A compiled plan. Safe to call from several threads at once."""

    plan: Plan

    @abstractmethod
    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs; fresh (pooled) storages come back.

        All are of the backend's memory. The run may go on after the return: whoever reads a storage waits for it
        (`Storage.wait`), and gets the run's error there (see `failed_run`). Runs that read what another one writes
        come after it; a plan without results, which nobody can wait for, is over at the return.
        """

    def run_giving(self, inputs: list[Storage]) -> list[Storage]:
        """As `run`, of a list that is the executable's: it may empty it, so that what nobody else holds is reused."""
        return self.run(inputs)

    @abstractmethod
    def texts(self) -> dict[str, str]:
        """Readable forms of the compiled code by name: loop nests, LLVM IR, assembly, ..."""

    def timed(self) -> TimedExecutable:
        """The same plan, compiled so that the time of each kernel is taken. Raises UnsupportedError."""
        raise UnsupportedError(
            f"{type(self).__name__} does not take the time of its kernels.",
            "Profile on the CPU: with rlx.default_device('cpu').",
        )


class Backend(ABC):
    """Compiles plans for one kind of device."""

    name: str

    @property
    def units(self) -> tuple[str, ...]:
        """What the devices of a platform that has several are called behind its name."""
        return ()

    def on(self, unit: str) -> Backend:
        """The backend of the device "name:unit". Raises DeviceError."""
        if unit == "0":
            return self
        raise DeviceError(f"There is no device '{self.name}:{unit}'.", f"{self.name} has one, of number 0.")

    @property
    def memory(self) -> Memory:
        """Where the inputs and results of its programs lie: the host's memory, unless it says otherwise."""
        return host_memory

    @property
    def lowering(self) -> LoweringOptions:
        """Costs and limits that lowering and planning go by on this device."""
        return LoweringOptions()

    @property
    def claims(self) -> Claims:
        """What this device has kernels for: kinds of kernels, routines, dtypes, blocks."""
        return Claims()

    def host_reason(self, kernel: Kernel) -> str | None:
        """Why a kernel runs on the host, in Python; None if it does not."""
        return self.claims.host_reason(kernel)

    def made_by(self, kernel: Kernel) -> str:
        """Which library makes a product, a sort or a routine, as reports name it; empty where there is but one way."""
        del kernel
        return ""

    @abstractmethod
    def compile(self, plan: Plan) -> Executable:
        """Compile a plan; equal kernels are compiled once per process and cached on disk."""
