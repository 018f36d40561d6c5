"""What a backend is: it compiles plans to executables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rlx.backends.claims import Claims
from rlx.backends.timing import TimedExecutable
from rlx.errors import UnsupportedError
from rlx.ir.kernels import Kernel, Plan
from rlx.ir.options import LoweringOptions
from rlx.storage import Storage

__all__ = ["Backend", "Executable"]


class Executable(ABC):
    """A compiled plan. Safe to call from several threads at once."""

    plan: Plan

    @abstractmethod
    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs; fresh (pooled) storages come back."""

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

    @abstractmethod
    def compile(self, plan: Plan) -> Executable:
        """Compile a plan; equal kernels are compiled once per process and cached on disk."""
