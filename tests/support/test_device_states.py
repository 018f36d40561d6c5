"""The devices of `rlx info`: usable, installable with a command, or impossible with a reason, on every machine."""

from __future__ import annotations

from typing import Any

import pytest

from rlx.backends import device_names
from rlx.cli.device_states import STATES, Machine, device_states
from rlx.installation import install_command


class Fake(Machine):
    """A machine with exactly the given facts; a question about anything else is an error."""

    def __init__(self, system: str, processor: str, known: dict[str, Any]) -> None:
        self.system, self.processor = system, processor
        self._known = known

    def _fact(self, name: str) -> Any:
        return self._known[name]

    def has_package(self, name: str) -> bool:
        return self._fact(name)

    def has_library(self, name: str) -> bool:
        return self._fact(name)

    def has_path(self, path: str) -> bool:
        return self._fact(path)

    def has_opencl_driver(self) -> bool:
        return self._fact("OpenCL")

    def failure(self, device: str) -> str:
        return self._fact(f"{device} fails")


BARE = {"libcuda.so.1": False, "/dev/kfd": False, "mlx": False, "pyopencl": False, "OpenCL": False, "c fails": "",
        "jax": False, "libtpu": False, "wgpu": False}
GPU = {**BARE, "libcuda.so.1": True, "cupy": False}
USABLE, NVIDIA = ("usable", ""), "there is no NVIDIA GPU"
CASES: dict[str, tuple[tuple[str, str], dict[str, Any], dict[str, tuple[str, str]]]] = {
    "a bare Linux": (
        ("Linux", "x86_64"), BARE,
        {"cuda": ("impossible", NVIDIA), "rocm": ("impossible", "no AMD GPU"), "c": USABLE, "cpu": USABLE,
         "mlx": ("installable", "[mlx]"), "opencl": ("installable", "[opencl-cpu]"), "reference": USABLE,
         "xla": ("installable", "[xla]"), "tpu": ("installable", "[tpu]"), "wgpu": ("installable", "[wgpu]")},
    ),
    "without a C compiler": (
        ("Linux", "x86_64"), {**BARE, "c fails": "no compiler"}, {"c": ("impossible", "no compiler")},
    ),
    "an NVIDIA GPU without CuPy": (("Linux", "x86_64"), GPU, {"cuda": ("installable", "[cuda]")}),
    "an NVIDIA GPU with CuPy": (("Linux", "x86_64"), {**GPU, "cupy": True, "cuda fails": ""}, {"cuda": USABLE}),
    "an NVIDIA GPU with an old driver": (
        ("Linux", "x86_64"), {**GPU, "cupy": True, "cuda fails": "the driver is too old"},
        {"cuda": ("impossible", "the driver is too old")},
    ),
    "an AMD GPU": (("Linux", "x86_64"), {**BARE, "/dev/kfd": True, "cupy": False}, {"rocm": ("installable", "[rocm]")}),
    "an OpenCL driver": (("Linux", "aarch64"), {**BARE, "OpenCL": True}, {"opencl": ("installable", "[opencl]")}),
    "OpenCL that fails": (
        ("Linux", "x86_64"), {**BARE, "OpenCL": True, "pyopencl": True, "opencl fails": "no device"},
        {"opencl": ("impossible", "no device")},
    ),
    "OpenCL without a runtime": (
        ("Linux", "x86_64"), {**BARE, "pyopencl": True, "opencl fails": "no device"},
        {"opencl": ("installable", "[opencl-cpu]")},
    ),
    "OpenCL that works": (("Linux", "aarch64"), {**BARE, "pyopencl": True, "opencl fails": ""}, {"opencl": USABLE}),
    "a Mac": (
        ("Darwin", "arm64"), {"mlx": True, "mlx fails": "", "pyopencl": False, "OpenCL": False, "c fails": "",
         "jax": True, "xla fails": "", "libtpu": False, "wgpu": True, "wgpu fails": ""},
        {"mlx": USABLE, "xla": USABLE, "wgpu": USABLE, "cuda": ("impossible", "Darwin"),
         "rocm": ("impossible", "Darwin"), "opencl": ("impossible", "no driver of OpenCL")},
    ),
    "an old Mac": (
        ("Darwin", "x86_64"), {"pyopencl": False, "OpenCL": False, "c fails": "", "jax": False, "libtpu": False,
         "wgpu": False},
        {"mlx": ("impossible", "Apple silicon")},
    ),
    "Windows": (
        ("Windows", "amd64"),
        {"nvcuda.dll": True, "cupy": False, "pyopencl": False, "OpenCL": False, "c fails": "no cc",
         "jax": False, "libtpu": False, "wgpu": False},
        {"cuda": ("installable", "[cuda]"), "mlx": ("impossible", "Windows"), "c": ("impossible", "no cc")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.selected("all")
def test_the_state_of_each_device(name: str) -> None:
    machine, facts, expected = CASES[name]
    found = {state.name: state for state in device_states(Fake(*machine, facts))}
    assert list(found) == device_names() and {state.state for state in found.values()} <= set(STATES)
    for device, (state, text) in expected.items():
        assert found[device].state == state and text in found[device].text, found[device]
        if state == "installable":
            assert found[device].text == install_command(text.strip("[]"))
        assert bool(found[device].text) == (state != "usable")


def test_facts_of_this_machine() -> None:
    machine = Machine()
    assert machine.has_package("numpy") and not machine.has_package("no_such_package")
    assert not machine.has_library("no-such-library.so") and machine.has_path(__file__)
    assert machine.failure("reference") == "" and "There is no device 'abacus'" in machine.failure("abacus")
