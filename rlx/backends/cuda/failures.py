"""Errors of CuPy, of the driver and of CUDA's and ROCm's libraries, as rlx's: what happened, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.errors import DeviceError, RlxError
from rlx.installation import install_command

__all__ = ["ELSEWHERE", "FAILURES", "device_error", "is_out_of_memory"]

# CuPy's errors of the driver, of compilers and of libraries are RuntimeErrors. It looks for libraries, headers and
# hipcc on first use, and raises ImportError, RuntimeError or OSError for a missing one
FAILURES = (RuntimeError, ImportError, OSError)

ELSEWHERE = "Arrays on other devices stay as they are; the CPU runs the program: rlx.default_device('cpu')."
_OUT_OF_MEMORY = 2  # the number of this error in CUDA and in HIP
# errors after which every call of the process to the driver returns the same error: an uncorrectable
# memory error, then illegal and misaligned addresses, launches that took too long, assertions and the like
_LOST = frozenset((214, 700, 702, 710, 714, 715, 716, 717, 718, 719))
_LOST_REMEDY = (
    "All arrays on this device are lost, and the driver refuses it to this process: start a new one. "
    "A kernel of your own (rlx.cuda_call) may be the cause, else please report the program. " + ELSEWHERE
)
# the remedy for a missing library, header or compiler
_MISSING = {
    "cuda": lambda: f"{install_command('cuda')} installs it.",
    "rocm": lambda: (
        "Install ROCm 7 with hipcc and its libraries, put its folder bin into PATH, and set ROCM_HOME to its folder"
        " (such as /opt/rocm)."
    ),
}
_MISSING_WORDS = ("CUDA headers", "CUDA root", "ROCm root", "ROCM_HOME", "hipcc", "Failure finding", "shared object")
_OTHER_ARCHITECTURES = ("NO_BINARY_FOR_GPU", "no kernel image", "no code object")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device has no memory left."""
    return isinstance(error, MemoryError) or getattr(error, "status", None) == _OUT_OF_MEMORY


def device_error(error: BaseException, name: str, platform: str, doing: str = "") -> RlxError:
    """An error with its remedy; an rlx error is returned unchanged.

    name: of the device. platform: its readable name. doing: the operation, if the error does not name it.
    """
    if isinstance(error, RlxError):
        return error
    where = f"{platform}, {doing}" if doing else platform
    what = f"{where}: {str(error).strip() or type(error).__name__}."
    if getattr(error, "status", None) in _LOST:
        return DeviceError(what, _LOST_REMEDY)
    if isinstance(error, (ImportError, OSError)) or _says(error, _MISSING_WORDS):
        return DeviceError(what, _MISSING[name]())
    if _says(error, _OTHER_ARCHITECTURES):
        command = install_command(name, upgrade=True)
        return DeviceError(what, f"Install a release that knows this GPU: {command}. {ELSEWHERE}")
    return DeviceError(what, ELSEWHERE)


def _says(error: BaseException, words: Iterable[str]) -> bool:
    return any(word in str(error) for word in words)
