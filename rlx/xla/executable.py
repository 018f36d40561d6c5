"""A program that XLA compiled from StableHLO."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from sys import getrefcount
from typing import Any

import numpy as np

from rlx.backends.base import Executable, shown_lines
from rlx.backends.cpu.runtime.store import CodeStore, user_folder
from rlx.errors import DeviceError, OutOfMemoryError, RlxError, UnsupportedError
from rlx.forks import cached_property
from rlx.ir.mesh_division import MeshDivision
from rlx.ir.program import Program
from rlx.stablehlo.writing import write_program
from rlx.stablehlo.writing.writer import shape_of
from rlx.storage import AllocationError, Storage
from rlx.xla.client import (
    copied_to,
    described_platform,
    is_out_of_memory,
    load_executable,
    modelled_cost,
    serialized_executable,
    xla_error,
)
from rlx.xla.memory import XlaStorage
from rlx.xla.options import emulates_float64

__all__ = ["CompiledByXla", "XlaExecutable", "with_constants_as_inputs"]


class _XlaMaker:
    """XLA for one device, as the store's compiler: code is an executable that PJRT serialised."""

    def __init__(self, place: Any) -> None:
        self.place = place

    def fingerprint(self) -> bytes:
        return hashlib.blake2b(described_platform(self.place).encode(), digest_size=32).digest()

    def compile(self, text: str, symbol: str) -> tuple[bytes, int]:
        del symbol
        return serialized_executable(self.place, text), 0

    def load(self, data: bytes, symbol: str) -> int:
        raise NotImplementedError  # PJRT loads executables: they have no address


def with_constants_as_inputs(program: Program) -> tuple[Program, list[np.ndarray]]:
    """The program with its constants as inputs, after the others, and their values: a text holds no large arrays."""
    constants = list(program.constants)
    inputs = [*program.inputs, *(variable for variable, _ in constants)]
    return program.replace(inputs=inputs, constants=[]), [np.asarray(value) for _, value in constants]


def aliases_of(program: Program, given: Sequence[bool]) -> dict[int, int]:
    """The result, of the same type, that takes the memory of each donated input, if there is one."""
    free: list[Any] = [shape_of(t) for t in program.output_types]
    found: dict[int, int] = {}
    for n, donated in enumerate(given):
        if donated and (wanted := shape_of(program.inputs[n].type)) in free:
            found[n] = free.index(wanted)
            free[found[n]] = None  # taken
    return found


class CompiledByXla(Executable):
    """A program that XLA compiles, for a place that `platform` names. It has no plan: XLA plans.

    given: whether calls donate each input. division: how a mesh of devices divides the arrays.
    """

    _compiled: Any  # an executable of jaxlib's, set by the constructor of a subclass

    def __init__(
        self, program: Program, platform: str, given: Sequence[bool], division: MeshDivision | None = None
    ) -> None:
        self.program, self._values = with_constants_as_inputs(program)
        self._platform = platform
        self._aliases = aliases_of(program, given)
        self._text = self._module(self._aliases, division)

    def _module(self, aliases: dict[int, int], division: MeshDivision | None = None) -> str:
        return write_program(self.program, self.program.name, aliases, division, emulates_float64(self._platform))

    def failed(self, error: BaseException) -> RlxError:
        """XLA's error as rlx's, with the user's lines."""
        lines = shown_lines(equation.origin for equation in self.program.equations)
        what = f"XLA failed on {self._platform}: {str(error).splitlines()[0]}"
        if is_out_of_memory(error):
            return OutOfMemoryError(what, "Compute less at once.", lines)
        if "UNIMPLEMENTED" in str(error):
            return UnsupportedError(what, "Compute it on another device, such as 'cpu'.", lines)
        return DeviceError(what, "Please report it with the program; jit(device='cpu') compiles without XLA.", lines)

    @cached_property
    def _memory(self) -> str:
        told = self._compiled.get_compiled_memory_stats()
        names = ("argument", "output", "temp", "alias", "generated_code")
        return "\n".join(f"{name}: {getattr(told, f'{name}_size_in_bytes')} bytes" for name in names)

    def texts(self) -> dict[str, str]:
        """The StableHLO module, XLA's program after its passes, its bytes, and its cost by XLA's model."""
        try:
            module = self._compiled.hlo_modules()[0].to_string()
        except xla_error() as error:  # a plugin that is newer than jaxlib
            module = f"jaxlib cannot read XLA's program: {error}"
        cost = "\n".join(f"{name}: {value:.6g}" for name, value in modelled_cost(self._compiled).items())
        return {"stablehlo": self._text, "xla": module, "memory": self._memory} | ({"cost": cost} if cost else {})


class XlaExecutable(CompiledByXla):
    """A program on one device of PJRT."""

    def __init__(self, program: Program, place: Any, given: Sequence[bool] = ()) -> None:
        super().__init__(program, place.platform, given)
        self._place = place
        self._constants = [copied_to(place, value) for value in self._values]
        self._types = [(v.type.shape, v.type.dtype) for v in program.inputs]
        self._result_bytes = sum(t.nbytes for t in program.output_types)
        self._compiled = self._loaded(self._text)

    @cached_property
    def _keeping(self) -> Any:
        """The executable that leaves its inputs as they are."""
        return self._loaded(self._module({})) if self._aliases else self._compiled

    def _loaded(self, text: str) -> Any:
        store = CodeStore(user_folder(), maker=_XlaMaker(self._place))
        key = hashlib.blake2b(text.encode(), digest_size=32).digest()
        with suppress(xla_error()):
            return load_executable(self._place, store.code(key, "main", lambda: text))
        try:  # bytes of the folder that PJRT refuses
            return load_executable(self._place, serialized_executable(self._place, text))
        except xla_error() as error:
            raise self.failed(error) from None

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on the device; the results are computed asynchronously."""
        return self._run(self._keeping, inputs)

    def run_giving(self, inputs: list[Storage]) -> list[Storage]:
        """Run, and write results over donated inputs, unless something else refers to one of them."""
        alone = all(_references(inputs, n) == _ALONE for n in self._aliases)
        return self._run(self._compiled if alone else self._keeping, inputs)

    def _run(self, compiled: Any, inputs: Sequence[Storage]) -> list[Storage]:
        arrays = [_of_type(s, *t) for s, t in zip(inputs, self._types, strict=True)]
        try:
            found = compiled.execute_sharded([*arrays, *self._constants]).disassemble_into_single_device_arrays()
        except xla_error() as error:
            if is_out_of_memory(error):
                raise AllocationError(self._result_bytes) from None
            raise self.failed(error) from None
        return [XlaStorage(single, self.failed) for (single,) in found]


def _of_type(storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    assert isinstance(storage, XlaStorage)
    return storage.of_type(shape, dtype)


def _references(inputs: list[Any], number: int) -> tuple[int, int]:
    """The references to a storage of the list, and to its array."""
    return getrefcount(inputs[number]), getrefcount(inputs[number].array)


_ALONE = _references([XlaStorage([])], 0)
