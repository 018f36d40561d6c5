"""NVRTC and hiprtc that compile nothing: they check options as the libraries do, and keep the text in the code.

With RLX_TEST_GPU_COMPILE=1 NVRTC itself compiles each text, too, with the options that reached the fake.
"""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from itertools import count as _numbers
from typing import Any

# options that the libraries know, with the values that they take
KNOWN = {
    "nvrtc": (
        r"--gpu-architecture=sm_\d+a?", r"--std=c\+\+(14|17|20)", "--device-as-default-execution-space",
        "--(fmad|ftz|prec-div|prec-sqrt)=(true|false)", "--ptxas-options=.+", "--no-cache", "-I.+",
    ),
    "hiprtc": (
        r"--offload-arch=gfx[0-9a-f]+", r"-std=c\+\+(14|17|20)", "-O[0-3]", "-ffp-contract=(off|on|fast)",
        "-f(no-)?gpu-flush-denormals-to-zero", "-I.+",
    ),
}  # fmt: skip


@cache
def real_compiler() -> Any:
    """NVRTC itself, where tests are asked to compile for GPUs."""
    from rlx.backends.cuda import nvrtc
    from rlx.backends.gpu.runtime_compiler import RuntimeCompiler

    return RuntimeCompiler("CUDA", "nvrtc", nvrtc._library_paths, nvrtc._remedy, list)


def compile_as_well(text: bytes, options: tuple[str, ...]) -> None:
    """Raise DeviceError with NVRTC's message if it refuses a text, or an option. Headers may be missing."""
    if os.environ.get("RLX_TEST_GPU_COMPILE") == "1" and b"#include" not in text:
        real_compiler().compile(text.decode(), options[0], options, ["CUBIN"])


MARK = b"\x7fFAKE "
REFUSED, INVALID_OPTION = 6, 5  # NVRTC's and hiprtc's numbers


class FakeCompiler:
    """The library of a prefix. `options`: what reached it, for each program. `words`: what it refuses programs with."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.words = prefix, ""
        self.options: list[tuple[str, ...]] = []
        self.programs: dict[int, dict[str, bytes]] = {}
        self.numbers = _numbers(1)

    def __getattr__(self, name: str) -> Any:
        assert name.startswith(self.prefix), name
        return getattr(self, f"do_{name.removeprefix(self.prefix)}")

    def do_Version(self, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 99, 0
        return 0

    def do_GetErrorString(self, status: int) -> bytes:
        return {REFUSED: b"COMPILATION", INVALID_OPTION: b"INVALID_OPTION"}[status]

    def do_CreateProgram(self, program: Any, text: bytes, name: bytes, headers: int, *_: Any) -> int:
        assert headers == 0
        program._obj.value = next(self.numbers)
        self.programs[program._obj.value] = {"text": text, "ProgramLog": b"\0"}
        return 0

    def do_CompileProgram(self, program: Any, count: int, given: Any) -> int:
        made, options = self.programs[program.value], tuple(option.decode() for option in given)
        assert count == len(options)
        self.options.append(options)
        names = [option.split("=")[0] for option in options]
        assert len(set(names)) == len(names), f"an option is given twice: {options}"
        for option in options:
            if not any(re.fullmatch(known, option) for known in KNOWN[self.prefix]):
                made["ProgramLog"] = f"error: unrecognized option {option} found\0".encode()
                return INVALID_OPTION
        if self.prefix == "nvrtc" and b"__global__" in made["text"]:
            compile_as_well(made["text"], options)
        if self.words:
            made["ProgramLog"] = f"{self.words}\0".encode()
            return REFUSED
        architecture = re.split("[= ]", options[0])[1].encode()
        made["CUBIN"] = made["Code"] = MARK + architecture + b"\n" + made["text"]
        made["PTX"] = b"// none\0"
        return 0

    def _size(self, program: Any, size: Any, what: str) -> int:
        size._obj.value = len(self.programs[program.value][what])
        return 0

    def _content(self, program: Any, data: Any, what: str) -> int:
        ctypes.memmove(data, self.programs[program.value][what], len(self.programs[program.value][what]))
        return 0

    def do_DestroyProgram(self, program: Any) -> int:
        del self.programs[program._obj.value]
        return 0


def _asked(what: str) -> None:
    def size(self: FakeCompiler, program: Any, size: Any) -> int:
        return self._size(program, size, what)

    def content(self: FakeCompiler, program: Any, data: Any) -> int:
        return self._content(program, data, what)

    setattr(FakeCompiler, f"do_Get{what}Size", size)
    setattr(FakeCompiler, f"do_Get{what}", content)


for _what in ("ProgramLog", "CUBIN", "PTX", "Code"):
    _asked(_what)
