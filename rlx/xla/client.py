"""PJRT through jaxlib's client: the one module that uses names that JAX does not document.

A PJRT plugin (CUDA, ROCm, TPU, Metal) that jax finds is a platform here. jaxlib alone cannot create buffers, so jax is
needed too. rlx sends StableHLO and gets executables; no function is traced by jax.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import DeviceError
from rlx.installation import install_command

__all__ = [
    "VERSIONS", "compiled_for", "copied_to", "described_gpus", "described_platform", "described_tpus",
    "devices_of_platform", "is_out_of_memory", "jax", "load_executable", "modelled_cost", "platforms",
    "serialized_executable", "xla_error",
]  # fmt: skip

VERSIONS = ((0, 10), (0, 11))  # of jaxlib: from the first on, before the second
# libtpu asks the network for the machine's place in a cluster, locks a file, and writes logs, unless it is told not to
_WITHOUT_TPU = {
    "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4", "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_LOG_DIR": "disabled",
}  # fmt: skip
_CUDA_PLUGIN = "jax_plugins.xla_cuda13"


class _JaxlibClasses(NamedTuple):
    """jaxlib's classes."""

    device_list: Any
    compile_options: Any
    error: type[Exception]
    device_assignment: Any


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
        found = extension.DeviceList, extension.CompileOptions, extension.JaxRuntimeError, extension.DeviceAssignment
        return _JaxlibClasses(*found)
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
    with _environment({} if _has_tpu() else _WITHOUT_TPU):  # jax tries libtpu without a TPU, too
        found = [device.platform for device in jax().devices()]
    return tuple(dict.fromkeys([*map(_common_name, found), "cpu"]))


def _has_tpu() -> bool:
    """Whether a TPU is on this machine's bus."""
    jax()
    return importlib.import_module("jax._src.hardware_utils").num_available_tpu_chips_and_device_id()[0] > 0


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


def modelled_cost(executable: Any) -> dict[str, float]:
    """Operations, transcendental functions, bytes and seconds by XLA's model; empty if the platform has no model."""
    try:
        told = executable.cost_analysis()
    except xla_error():
        return {}
    names = ("flops", "transcendentals", "bytes accessed", "optimal_seconds")
    found = told[0] if isinstance(told, list) else told
    return {name.replace("_", " "): found[name] for name in names if name in found}


# ------------------------------------------------------------------ without the device
@cache
def described_tpus(topology: str) -> tuple[Any, ...]:
    """The chips of a TPU topology such as "v5e:2x2", to compile for. Raises DeviceError without libtpu."""
    jax()
    if importlib.util.find_spec("libtpu") is None:
        raise DeviceError(
            "There is no TPU on this machine, and libtpu, which compiles for TPUs, is not installed.",
            f"Install it with: {install_command('tpu')}",
        )
    describe = importlib.import_module("jax.experimental.topologies").get_topology_desc
    with _environment({} if _has_tpu() else _WITHOUT_TPU):
        return _described(f"the TPU topology {topology}", lambda: describe(topology, "tpu").devices)


@cache
def described_gpus(description: str, count: int) -> tuple[Any, ...]:
    """GPUs that a text describes, to compile for. Raises DeviceError without XLA's plugin for CUDA."""
    jax()
    client = importlib.import_module("jaxlib.xla_client")
    if not client.pjrt_plugin_loaded("cuda"):
        client.load_pjrt_plugin_dynamically("cuda", _cuda_library())
    if not client.pjrt_plugin_initialized("cuda"):
        client.initialize_pjrt_plugin("cuda")
    options = {"target_config": description, "topology": f"1x1x{count}"}
    topology = importlib.import_module("jaxlib._jax").get_default_c_api_topology
    return _described("the GPU", lambda: topology("cuda", "", options)._make_compile_only_devices())


def _cuda_library() -> str:
    """The path of XLA's plugin for CUDA."""
    try:
        spec = importlib.util.find_spec(_CUDA_PLUGIN)
    except ImportError:  # no plugin at all
        spec = None
    if spec is None or spec.origin is None:
        raise DeviceError(
            "XLA's plugin for CUDA, which compiles for NVIDIA's GPUs, is not installed.",
            f"Install it with: {install_command('xla-cuda-compile')}",
        )
    return str(Path(spec.origin).with_name("xla_cuda_plugin.so"))


def _described(what: str, find: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        return tuple(find())
    except (xla_error(), RuntimeError) as error:
        raise DeviceError(f"XLA does not describe {what}: {str(error).splitlines()[0]}") from None


@contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    """Set variables that are not set, for libraries that read them in C."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def compiled_for(chips: Sequence[Any], text: str) -> Any:
    """The executable of a StableHLO module for described chips, which divide its arrays. Raises `xla_error`."""
    names = _names()
    options = names.compile_options()
    options.num_replicas, options.num_partitions = 1, len(chips)
    options.device_assignment = names.device_assignment.create(np.array([[chip.id for chip in chips]]))
    build = options.executable_build_options
    build.use_spmd_partitioning = build.use_shardy_partitioner = len(chips) > 1
    with importlib.import_module("jax._src.interpreters.mlir").make_ir_context():
        module = importlib.import_module("jaxlib.mlir.ir").Module.parse(text)
        return chips[0].client.compile(module, names.device_list(tuple(chips)), options)
