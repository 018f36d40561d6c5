"""A vendor's runtime compiler, called with ctypes: it compiles the source of a program for an architecture.

NVRTC and hiprtc have the same functions under two prefixes. rlx calls them directly, without another package, so that
its options are the only ones: the code that `rlx.inspect` shows is the code that runs. Code is kept on disk.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rlx.backends.cpu.runtime.store import CodeStore, user_folder
from rlx.backends.gpu.engine import is_present
from rlx.errors import DeviceError
from rlx.forks import cached_property

__all__ = ["DeviceCode", "RuntimeCompiler"]

_SHOWN_LINES = 12
_REPORT = "Please report it with the program; the CPU runs it: rlx.default_device('cpu')."
_INCLUDES = re.compile(r"^\s*#\s*include\b", re.MULTILINE)  # only in users' kernels: rlx's need no headers
_OF_ARCHITECTURES = ("gpu-architecture", "offload-arch", "target ID", "unknown target")


class _Made(NamedTuple):
    """The results of a compilation, in the order of the request, and the compiler's messages."""

    results: list[bytes]
    log: str


class RuntimeCompiler:
    """NVRTC or hiprtc.

    platform: its name in messages. prefix: of its functions. paths: of its library. install: how to install it.
    headers: folders of the platform's headers.
    """

    def __init__(
        self,
        platform: str,
        prefix: str,
        paths: Callable[[], Sequence[str]],
        install: Callable[[], str],
        headers: Callable[[], Sequence[str]],
    ) -> None:
        self.platform = platform
        self._prefix, self._paths, self._install, self._headers = prefix, paths, install, headers

    @cached_property
    def _library(self) -> Any:
        for path in self._paths():
            try:
                library = ctypes.CDLL(path)
            except OSError:
                continue
            getattr(library, f"{self._prefix}GetErrorString").restype = ctypes.c_char_p
            return library
        raise DeviceError(
            f"{self.platform}'s runtime compiler, lib{self._prefix}, is not installed.", self._install()
        )

    @property
    def present(self) -> bool:
        """Whether the library was found."""
        return is_present(lambda: self._library)

    def _function(self, name: str) -> Any:
        return getattr(self._library, self._prefix + name)

    def _checked(self, status: int) -> None:
        if status:
            words = self._function("GetErrorString")(status).decode()
            raise DeviceError(f"{self.platform}'s runtime compiler failed: {words}.", self._install())

    @property
    def version(self) -> tuple[int, int]:
        """The version: major and minor."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._checked(self._function("Version")(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def _taken(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._checked(self._function(f"Get{what}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value + 1)
        self._checked(self._function(f"Get{what}")(program, data))
        return data.raw[: size.value]

    def compile(self, source: str, architecture: str, options: Sequence[str], wanted: Sequence[str]) -> _Made:
        """Compile a program with these options and no others. wanted: results, as the library names them.

        Raises: DeviceError with the compiler's message.
        """
        program = ctypes.c_void_p()
        create, compile_it, destroy = map(self._function, ("CreateProgram", "CompileProgram", "DestroyProgram"))
        self._checked(create(ctypes.byref(program), source.encode(), b"rlx.cu", 0, None, None))
        try:
            array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = compile_it(program, len(options), array)
            log = self._taken(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if status:
                raise self._refusal(log or self._function("GetErrorString")(status).decode(), architecture)
            return _Made([self._taken(program, what) for what in wanted], log)
        finally:
            destroy(ctypes.byref(program))

    def include_options(self, source: str) -> tuple[str, ...]:
        """Include options for a user's kernel that includes headers; empty for other sources."""
        return tuple(f"-I{folder}" for folder in self._headers()) if _INCLUDES.search(source) else ()

    def _refusal(self, log: str, architecture: str) -> DeviceError:
        words = "\n".join(log.splitlines()[:_SHOWN_LINES])
        if any(said in words for said in _OF_ARCHITECTURES):
            return DeviceError(
                f"The installed release of {self.platform} does not compile for this GPU, {architecture}: {words}",
                f"Install a newer release. {self._install()}",
            )
        return DeviceError(f"{self.platform}'s compiler refused a program for {architecture}:\n{words}", _REPORT)


class DeviceCode:
    """The code of programs for one architecture, on disk under the source, the options and the compiler's version."""

    def __init__(self, compiler: RuntimeCompiler, architecture: str, options: Sequence[str], result: str) -> None:
        self._compiler, self._architecture = compiler, architecture
        self._options, self._result = tuple(options), result
        self._store = CodeStore(user_folder(), maker=self)

    def of(self, source: str) -> bytes:
        """The code of a program. Raises DeviceError with the compiler's message."""
        if self._compiler.include_options(source):  # headers may change while the source does not
            return self.compile(source, "")[0]
        key = hashlib.blake2b(source.encode(), digest_size=32).digest()
        return self._store.code(key, self._architecture, lambda: source)

    def fingerprint(self) -> bytes:
        """Everything that the code depends on except its source."""
        parts = (self._compiler.platform, *map(str, self._compiler.version), self._architecture, *self._options)
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=64).digest()

    def compile(self, text: str, symbol: str) -> tuple[bytes, int]:
        """The code; it has no address on the host."""
        del symbol
        options = (*self._options, *self._compiler.include_options(text))
        return self._compiler.compile(text, self._architecture, options, [self._result]).results[0], 0

    def load(self, data: bytes, symbol: str) -> int:
        """Never called: a driver loads the code."""
        raise NotImplementedError
