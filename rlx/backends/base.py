"""The interface of a backend, which compiles plans to executables."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from rlx.backends.claims import Claims
from rlx.backends.timing import TimedExecutable
from rlx.device_memory import Memory, host_memory
from rlx.errors import DeviceError, OutOfMemoryError, RlxError, UnsupportedError, source_line
from rlx.ir.kernels import Kernel, Plan
from rlx.ir.mesh_division import MeshDivision
from rlx.ir.options import LoweringOptions
from rlx.ir.program import Origin, Program
from rlx.ir.sizes import SizeScope
from rlx.storage import AllocationError, Storage

__all__ = ["Backend", "Executable", "PlannedExecutable", "SizedExecutable", "failed_run", "shown_lines"]

_SHOWN = 3  # the largest number of the user's lines in a message


def shown_lines(origins: Iterable[Origin | None]) -> str:
    """The first few different lines of the user's program, as messages show them."""
    known = dict.fromkeys(origin for origin in origins if origin is not None)
    return "\n".join(source_line(*origin) for origin in [*known][:_SHOWN])


def failed_run(error: BaseException, kernels: Iterable[Kernel]) -> BaseException:
    """The error that waiting for an asynchronous run raises: the run's error, with the user's lines of these kernels.

    The traceback of the run contains no user code. An rlx error gets the lines as its own; any other (such as one
    that the user's callback raised) is the same object with a note.
    """
    lines = shown_lines(origin for kernel in kernels for origin in getattr(kernel, "origins", ()))
    if isinstance(error, AllocationError):
        return OutOfMemoryError(f"A program ran out of memory: {error}.", "Compute less at once.", lines)
    if isinstance(error, RlxError):
        error.relocate(lines)
    elif lines:
        error.add_note(f"In a program that ran asynchronously:\n{lines}")
    return error


class Executable(ABC):
    """A compiled plan or program. Safe to call from several threads at once. plan: None if the backend took a program.
    """

    plan: Plan | None = None

    @abstractmethod
    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs; returns new (pooled) storages.

        All are in the backend's memory. The run may continue after the return: readers of a storage wait for it
        (`Storage.wait`), which raises the run's error (see `failed_run`). Runs that read another run's results are
        ordered after it; a plan without results, for which no caller can wait, is complete at the return.
        """

    def run_giving(self, inputs: list[Storage]) -> list[Storage]:
        """Like `run`, but consumes the list: inputs without other references can then be reused."""
        return self.run(inputs)

    @abstractmethod
    def texts(self) -> dict[str, str]:
        """Readable forms of the compiled code by name: loop nests, LLVM IR, assembly, ..."""

    def own_frame(self) -> Any:
        """The frame on which native code can run the plan without Python; None if there is no such code."""
        return None

    def predicted(self) -> tuple[Any, Any] | None:
        """The cost by the backend's model, and the device of the model; None without a model."""
        return None

    def timed(self) -> TimedExecutable:
        """The same plan, compiled so that each kernel is timed. Raises UnsupportedError."""
        raise UnsupportedError(
            f"{type(self).__name__} does not time its kernels.",
            "Profile on the CPU: with rlx.default_device('cpu').",
        )


class PlannedExecutable(Executable):
    """A compiled plan."""

    plan: Plan  # ty: ignore[incompatible-mutable-override]  set once, by the constructor


class SizedExecutable(ABC):
    """A compiled plan with symbolic sizes."""

    @abstractmethod
    def at(self, sizes: tuple[int, ...]) -> PlannedExecutable | None:
        """The executable for sizes of the names; None if a condition of the plan does not hold."""


class Backend(ABC):
    """Compiles plans for one kind of device.

    takes_programs: it compiles programs instead (`compile_program`), and plans itself.
    divides: it compiles programs for the devices of a mesh (`compile_divided`).
    """

    name: str
    takes_programs = False
    divides = False

    @property
    def units(self) -> tuple[str, ...]:
        """The units of a platform with several devices, as in "name:unit"."""
        return ()

    def on(self, unit: str) -> Backend:
        """The backend of the device "name:unit". Raises DeviceError."""
        if unit == "0":
            return self
        raise DeviceError(f"There is no device '{self.name}:{unit}'.", f"{self.name} has one device, number 0.")

    @property
    def memory(self) -> Memory:
        """The memory of its programs' inputs and results: by default, the host's."""
        return host_memory

    @property
    def present(self) -> bool:
        """Whether there is a device; without one, programs can only be compiled and shown."""
        return True

    @property
    def hardware(self) -> str:
        """The names of the device's hardware and driver; "" for the processor. Measured rates belong to them."""
        return ""

    def clock(self) -> float:
        """The seconds of a monotonic clock by which runs on this device are timed."""
        return time.perf_counter()

    @property
    def lowering(self) -> LoweringOptions:
        """The costs and limits for lowering and planning on this device."""
        return LoweringOptions()

    @property
    def claims(self) -> Claims:
        """The features that this device has kernels for: kinds of kernels, routines, dtypes, blocks."""
        return Claims()

    def host_reason(self, kernel: Kernel) -> str | None:
        """The reason that a kernel runs on the host, in Python; None if it does not."""
        return self.claims.host_reason(kernel)

    def made_by(self, kernel: Kernel) -> str:
        """The library that computes a product, a sort or a routine, for reports; empty if there is only one way."""
        del kernel
        return ""

    def clear_code(self) -> None:  # noqa: B027  a backend need not have loaded code
        """Unload compiled code that no program uses."""

    @abstractmethod
    def compile(self, plan: Plan) -> Executable:
        """Compile a plan; equal kernels are compiled once per process and cached on disk."""

    def compile_sized(self, plan: Plan, scope: SizeScope) -> SizedExecutable | None:
        """Compile a plan with symbolic sizes, recording conditions; None if the backend cannot."""
        return None

    def compile_program(self, program: Program, given: Sequence[bool] = ()) -> Executable:
        """Compile an optimised program, with its constants, if the backend takes programs.

        given: whether calls donate each input (`Executable.run_giving`); empty: no input.
        """
        raise NotImplementedError(f"{self.name} compiles plans")

    def compile_divided(self, program: Program, given: Sequence[bool], division: MeshDivision) -> Executable:
        """Compile a traced program for the devices of a mesh, if the backend divides programs."""
        raise NotImplementedError(f"{self.name} compiles for one device")
