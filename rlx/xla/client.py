"""PJRT through jaxlib's client: the one module that uses names that JAX does not document.

A PJRT plugin (CUDA, ROCm, TPU, Metal) that jax finds is a platform here. jaxlib alone cannot create buffers, so jax is
needed too. rlx sends StableHLO and gets executables; no function is traced by jax.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import DeviceError
from rlx.installation import install_command

__all__ = [
    "VERSIONS", "copied_to", "described_platform", "devices_of_platform", "is_out_of_memory", "jax", "load_executable",
    "platforms", "serialized_executable", "xla_error",
]  # fmt: skip

VERSIONS = ((0, 10), (0, 11))  # of jaxlib: from the first on, before the second


class _JaxlibClasses(NamedTuple):
    """jaxlib's classes."""

    device_list: Any
    compile_options: Any
    error: type[Exception]


@cache
def jax() -> Any:
    """The module jax. Raises DeviceError if it is missing, or not of a version whose private names are known."""
    try:
        found = importlib.import_module("jax")
        version = tuple(map(int, importlib.import_module("jaxlib").__version__.split(".")[:2]))
    except ImportError as error:
        raise DeviceError(
            f"The device 'xla' compiles with XLA, through jax, which cannot be imported: {error}.",
            f"Install it with: {install_command('xla')}",
        ) from None
    if not VERSIONS[0] <= version < VERSIONS[1]:
        known = f"{_dotted(VERSIONS[0])} to before {_dotted(VERSIONS[1])}"
        raise DeviceError(
            f"The device 'xla' knows jaxlib {known}; {_dotted(version)} is installed.",
            f"Install it with: {install_command('xla')}",
        )
    return found


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


@cache
def _names() -> _JaxlibClasses:
    jax()
    extension = importlib.import_module("jaxlib._jax")
    try:
        return _JaxlibClasses(extension.DeviceList, extension.CompileOptions, extension.JaxRuntimeError)
    except AttributeError as error:
        raise DeviceError(f"jaxlib has other names than rlx expects: {error}.") from None


def xla_error() -> type[Exception]:
    """The class of XLA's errors."""
    return _names().error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of XLA says that the device has no memory left."""
    return "RESOURCE_EXHAUSTED" in str(error)


@cache
def platforms() -> tuple[str, ...]:
    """The platforms that jax has devices of, the preferred one first."""
    found = [device.platform for device in jax().devices()]
    return tuple(dict.fromkeys([*map(_common_name, found), "cpu"]))


def _common_name(platform: str) -> str:
    """JAX's platform "gpu" is CUDA or ROCm."""
    if platform != "gpu":
        return platform
    version = str(jax().devices("gpu")[0].client.platform_version).lower()
    return "rocm" if "rocm" in version else "cuda"


def devices_of_platform(platform: str) -> list[Any]:
    """jax's devices of a platform. Raises DeviceError if there is none."""
    try:
        return list(jax().local_devices(backend=platform))
    except RuntimeError as error:
        known = ", ".join(f"xla:{name}" for name in platforms())
        raise DeviceError(
            f"jax has no device of the platform {platform!r}: {str(error).splitlines()[0]}",
            f"It has {known} here; a PJRT plugin, such as libtpu or jax-cuda13-pjrt, adds a platform.",
        ) from None


def described_platform(device: Any) -> str:
    """The platform, its version and jaxlib's: everything except the text that executables depend on."""
    client = device.client
    version = importlib.import_module("jaxlib").__version__
    return f"{client.platform} {client.platform_version} {device.device_kind} jaxlib {version}"


def copied_to(device: Any, array: np.ndarray) -> Any:
    """A copy of an array in a device's memory, of the same dtype: jax narrows 64 bits unless it is told not to."""
    with jax().enable_x64(True):
        return jax().device_put(array, device, may_alias=False)


def serialized_executable(device: Any, text: str) -> bytes:
    """The executable of a StableHLO module for one device, as bytes. Raises `xla_error`."""
    names = _names()
    client = device.client
    compiled = client.compile_and_load(text, names.device_list((device,)), names.compile_options())
    return client.serialize_executable(compiled)


def load_executable(device: Any, data: bytes) -> Any:
    """The executable, ready to run. Raises `xla_error` if the bytes belong to another compiler."""
    names = _names()
    return device.client.deserialize_executable(data, names.device_list((device,)), names.compile_options())
