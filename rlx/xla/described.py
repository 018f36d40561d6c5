"""Compilation for chips that the machine does not have: XLA takes a description of a TPU or GPU in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from rlx.backends.base import Backend, Executable
from rlx.backends.claims import Claims
from rlx.device_memory import Memory
from rlx.errors import DeviceError, UnsupportedError
from rlx.ir.kernels import Plan
from rlx.ir.mesh_division import MeshDivision
from rlx.ir.program import Program
from rlx.storage import Device, Storage
from rlx.xla.client import compiled_for, described_gpus, described_tpus, xla_error
from rlx.xla.executable import CompiledByXla
from rlx.xla.options import CLAIMS, TPUS

__all__ = ["CARDS", "TPUS", "DescribedBackend", "DescribedExecutable", "chips_of"]

# NVIDIA's published figures of an H100 SXM
_H100 = """
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
dnn_version_info { major: 9 minor: 10 }
gpu_device_info {
  name: "NVIDIA H100 80GB HBM3"
  cuda_compute_capability { major: 9 }
  core_count: 132  fpus_per_core: 128  clock_rate_ghz: 1.98
  threads_per_warp: 32  threads_per_block_limit: 1024  threads_per_core_limit: 2048
  registers_per_block_limit: 65536  registers_per_core_limit: 65536
  shared_memory_per_block: 49152  shared_memory_per_block_optin: 232448  shared_memory_per_core: 233472
  thread_dim_limit_x: 1024  thread_dim_limit_y: 1024  thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  device_memory_size: 84942979072  memory_bandwidth: 3352320000000  l2_cache_size: 52428800
  driver_version: "13.0.0"  runtime_version: "13.0.0"  compile_time_toolkit_version: "13.0.0"
}
"""
CARDS = {"h100": _H100}


def chips_of(kind: str, count: int = 1) -> tuple[Any, ...]:
    """Chips of a kind that are connected. Raises DeviceError for a number of TPUs that is not a power of 2."""
    if kind in CARDS:
        return described_gpus(CARDS[kind], count)
    bits = count.bit_length() - 1
    if count != 1 << bits:
        raise DeviceError(f"There is no grid of {count} TPUs of the kind {kind}.", "Use a power of 2.")
    return described_tpus(f"{kind}:{1 << bits // 2}x{1 << bits - bits // 2}")


class DescribedBackend(Backend):
    """Compiles for a chip of a kind that the machine does not have. Its programs can be inspected, but not run."""

    takes_programs = True
    divides = True

    def __init__(self, name: str, kind: str) -> None:
        chips_of(kind)
        self.name, self.kind = name, kind
        self._memory = _MissingMemory(Device(name, 0, kind))

    def on(self, unit: str) -> Backend:
        """The backend of another kind of TPU. Raises DeviceError."""
        if unit in ("0", self.kind):
            return self
        if self.kind in TPUS and unit in TPUS:
            return DescribedBackend(self.name, unit)
        kinds = ", ".join(f"'{self.name}:{kind}'" for kind in TPUS)
        raise DeviceError(
            f"There is no device '{self.name}:{unit}': this machine has no TPU.", f"Inspect programs for {kinds}."
        )

    @property
    def memory(self) -> Memory:
        """The memory of the missing chip: it refuses arrays."""
        return self._memory

    @property
    def claims(self) -> Claims:
        """As for every device of XLA's."""
        return CLAIMS

    def compile(self, plan: Plan) -> Executable:
        """Raises UnsupportedError: XLA plans."""
        raise UnsupportedError(
            f"The device {self.name!r} compiles programs, not plans.", f"Use rlx.inspect(f, device={self.name!r})."
        )

    def compile_program(self, program: Program, given: Sequence[bool] = ()) -> Executable:
        """Compile optimised MIR. Raises UnsupportedError, with the user's line, for operations StableHLO lacks."""
        return DescribedExecutable(program, self.kind, given)

    def compile_divided(self, program: Program, given: Sequence[bool], division: MeshDivision) -> Executable:
        """Compile a traced program for as many chips as the mesh has devices."""
        return DescribedExecutable(program, self.kind, given, division)


class DescribedExecutable(CompiledByXla):
    """A program compiled for chips of a kind, which divide its arrays if there are several."""

    def __init__(
        self, program: Program, kind: str, given: Sequence[bool] = (), division: MeshDivision | None = None
    ) -> None:
        super().__init__(program, kind, given, division)
        chips = chips_of(kind, 1 if division is None else division.devices)
        try:
            self._compiled = compiled_for(chips, self._text)
        except (xla_error(), RuntimeError) as error:
            raise self.failed(error) from None

    def run(self, inputs: Sequence[Storage]) -> NoReturn:
        """Raises DeviceError: the chip is missing."""
        raise _missing(self._platform)


class _MissingMemory(Memory):
    """The memory of a chip that the machine does not have."""

    def allocate(self, nbytes: int) -> NoReturn:
        """Raises DeviceError."""
        raise _missing(self.device.unit)

    def put(self, array: np.ndarray) -> NoReturn:
        """Raises DeviceError."""
        raise _missing(self.device.unit)

    def get(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> NoReturn:
        """Raises DeviceError."""
        raise _missing(self.device.unit)

    def synchronize(self) -> None:
        """Nothing is pending."""


def _missing(kind: str) -> DeviceError:
    what = f"There is no {kind} TPU on this machine" if kind in TPUS else f"There is no {kind} for XLA on this machine"
    return DeviceError(
        f"{what}: programs can be compiled for it and inspected, but not run.",
        "Inspect it, rlx.inspect(f, device=...)(x), or compute on another device: jit(f, device='cpu').",
    )
