"""Which devices are usable on this machine, which an installation adds, and why the others are impossible here."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import rlx
from rlx.backends import device_names
from rlx.errors import RlxError
from rlx.installation import install_command

__all__ = ["STATES", "DeviceState", "Machine", "device_states"]

STATES = ("usable", "installable", "impossible")


class DeviceState(NamedTuple):
    """Whether a device can be used; if not, the command that installs it, or the reason."""

    name: str
    state: Literal["usable", "installable", "impossible"]
    text: str = ""


class Machine:
    """The facts of this machine that decide about devices."""

    system = platform.system()
    processor = platform.machine().lower()

    def has_package(self, name: str) -> bool:
        """Whether a Python package is installed."""
        return importlib.util.find_spec(name) is not None

    def has_library(self, name: str) -> bool:
        """Whether a shared library of the system can be loaded."""
        with suppress(OSError):
            ctypes.CDLL(name)
            return True
        return False

    def has_path(self, path: str) -> bool:
        """Whether there is such a file."""
        return os.path.exists(path)

    def has_opencl_driver(self) -> bool:
        """Whether the system registers a driver of OpenCL."""
        if self.system != "Linux":
            return self.has_library("OpenCL.dll") if self.system == "Windows" else False
        folder = Path(os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"))
        return folder.is_file() or any(folder.glob("*.icd"))

    def failure(self, device: str) -> str:
        """Why a device does not compute; empty if it does."""
        try:
            with rlx.default_device(device):
                return "" if float(rlx.jit(lambda x: x + 1.0)(1.0)) == 2.0 else "it computes wrong results"
        except RlxError as error:
            return " ".join(filter(None, (error.what, error.instead)))
        except Exception as error:  # a driver's own
            return f"{type(error).__name__}: {error}"


def device_states(machine: Machine) -> list[DeviceState]:
    """The state of each device that rlx has a backend for."""
    return [_RULES.get(name, _by_trying)(name, machine) for name in device_names()]


def _by_trying(name: str, machine: Machine) -> DeviceState:
    failure = machine.failure(name)
    return DeviceState(name, "impossible", failure) if failure else DeviceState(name, "usable")


def _built_in(name: str, machine: Machine) -> DeviceState:
    return DeviceState(name, "usable")


def _with_package(package: str, name: str, machine: Machine) -> DeviceState:
    """A device that the machine has: its package decides."""
    if not machine.has_package(package):
        return DeviceState(name, "installable", install_command(name))
    return _by_trying(name, machine)


def _cuda(name: str, machine: Machine) -> DeviceState:
    if machine.system not in ("Linux", "Windows"):
        return DeviceState(name, "impossible", f"CUDA does not exist for {machine.system}")
    driver = "libcuda.so.1" if machine.system == "Linux" else "nvcuda.dll"
    if not machine.has_library(driver):
        return DeviceState(name, "impossible", f"there is no NVIDIA GPU, or no driver for it ({driver})")
    return _with_package("cupy", name, machine)


def _rocm(name: str, machine: Machine) -> DeviceState:
    if machine.system != "Linux":
        return DeviceState(name, "impossible", f"CuPy has no ROCm for {machine.system}")
    if not machine.has_path("/dev/kfd"):
        return DeviceState(name, "impossible", "there is no AMD GPU, or no driver for it (/dev/kfd)")
    return _with_package("cupy", name, machine)


def _mlx(name: str, machine: Machine) -> DeviceState:
    known = {"Darwin": ("arm64",), "Linux": ("x86_64", "aarch64")}
    if machine.processor not in known.get(machine.system, ()):
        what = f"MLX has no package for {machine.system} on {machine.processor}"
        return DeviceState(name, "impossible", f"{what}, only for Macs with Apple silicon and for Linux")
    return _with_package("mlx", name, machine)


def _opencl(name: str, machine: Machine) -> DeviceState:
    package = machine.has_package("pyopencl")
    failure = machine.failure(name) if package else ""
    if package and not failure:
        return DeviceState(name, "usable")
    if machine.has_opencl_driver():
        return DeviceState(name, "impossible", failure) if package else _with_package("pyopencl", name, machine)
    if (machine.system, machine.processor) == ("Linux", "x86_64"):
        return DeviceState(name, "installable", install_command("opencl-cpu"))
    return DeviceState(name, "impossible", failure or "no driver of OpenCL is registered")


_RULES: dict[str, Callable[[str, Machine], DeviceState]] = {
    "cpu": _built_in,
    "numba": _built_in,
    "reference": _built_in,
    "cuda": _cuda,
    "rocm": _rocm,
    "mlx": _mlx,
    "opencl": _opencl,
    "tpu": partial(_with_package, "libtpu"),
    "wgpu": partial(_with_package, "wgpu"),
    "xla": partial(_with_package, "jax"),
}
