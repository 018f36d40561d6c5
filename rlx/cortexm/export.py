"""rlx.cortexm.export: a function or an integer program as a firmware project in C."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlx.backends.c.dialect import C_KEYWORDS
from rlx.backends.c.files import CFunction, Pointer
from rlx.call.jit import jit
from rlx.cortexm.emulation import Run, built, missing_tools, run, sizes_of
from rlx.cortexm.processors import Processor, processor_of
from rlx.cortexm.texts import project_files
from rlx.errors import MemoryLimitError, OptionError, ShapeError
from rlx.ir.types import TensorType, memory_dtype
from rlx.quant.integer_program import IntegerConvolution, IntegerDense, IntegerProgram
from rlx.quant.packed_sums import with_packed_weights
from rlx.standalone.c_files import c_function
from rlx.trees import tree

__all__ = ["Firmware", "export"]


@dataclass(frozen=True)
class Firmware:
    """A firmware project in a folder.

    Attributes:
      folder, name: of the project; the C function has this name.
      processor: that it is written for.
      function: the function's arguments and results.
      report: as in the file report.json: "arena", "constants" (bytes); "macs" of an integer program, or None; and, if
        the tools are installed, "flash" and "ram" (bytes of the function, without main.c and start.c), "stack" (bytes)
        and "instructions" by function, of the self test. Without the tools these are None, and "missing" names them.

    >>> import tempfile, rlx, rlx.cortexm
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     x = rlx.ShapeDtypeStruct((2,), "float32")
    ...     firmware = rlx.cortexm.export(lambda x: x * 2, folder, x, cpu="generic", name="twice")
    >>> firmware.name, firmware.report["macs"]
    ('twice', None)
    """

    folder: Path
    name: str
    processor: Processor
    function: CFunction
    report: Mapping[str, Any]

    def self_test(self, count: bool = False) -> Run:
        """Build the project and run its self test. Raises DeviceError if a result differs, or without the tools."""
        return run(self.folder, self.name, self.processor, None, count)

    def call(self, *arguments: Any, count: bool = False) -> tuple[list[np.ndarray], Run]:
        """Results of calls in QEMU, or on this computer for "generic".

        Args:
          arguments: for each leaf of the function's arguments an array with an axis of calls in front; for one that a
            result replaces, its value before the first call.
          count: count instructions.

        Returns the results: of each call, with an axis of calls in front, then the replaced arguments after the last
        call; and the Run. Raises ShapeError for other shapes, DeviceError as `self_test`.
        """
        kept, given = self._sorted(arguments)
        calls = len(given[0][1]) if given else 1
        parts = [x.tobytes() for _, x in kept]
        for n in range(calls):
            parts += [np.ascontiguousarray(x[n]).tobytes() for _, x in given]
        found = run(self.folder, self.name, self.processor, b"".join(parts), count)
        return self._read(found.output, calls), found

    def _sorted(self, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Pointers with their arrays: those that results replace, and the others."""
        leaves = tree.leaves(arguments)
        if len(leaves) != len(self.function.arguments):
            raise ShapeError(
                f"{self.name} got {len(leaves)} arrays.", f"It has {len(self.function.arguments)} arguments."
            )
        kept, given = [], []
        for pointer, leaf in zip(self.function.arguments, leaves, strict=True):
            x = np.ascontiguousarray(np.asarray(leaf))
            kind = pointer.place.type
            own = x.shape if pointer.written else x.shape[1:]
            if own != kind.shape or x.dtype != memory_dtype(kind.dtype) or (not pointer.written and x.ndim == 0):
                axis = "" if pointer.written else "an axis of calls and "
                raise ShapeError(
                    f"{self.name} got {x.dtype}{list(x.shape)} for {pointer.place.name}.", f"Give {axis}{kind}."
                )
            (kept if pointer.written else given).append((pointer, x))
        return kept, given

    def _read(self, output: bytes, calls: int) -> list[np.ndarray]:
        arrays: list[list[np.ndarray]] = [[] for _ in self.function.results]
        at = 0

        def one(pointer: Pointer) -> np.ndarray:
            nonlocal at
            kind = pointer.place.type
            dtype = memory_dtype(kind.dtype)
            count = int(np.prod(kind.shape, dtype=np.int64))
            found = np.frombuffer(output, dtype, count, at).reshape(kind.shape)
            at += count * dtype.itemsize
            return found

        for _ in range(calls):
            for pointer, column in zip(self.function.results, arrays, strict=True):
                column.append(one(pointer))
        return [np.stack(column) for column in arrays] + [one(p) for p in self.function.arguments if p.written]


def export(
    subject: Callable[..., Any] | IntegerProgram,
    folder: str | Path,
    *types: Any,
    cpu: str = "cortex-m4",
    name: str | None = None,
    ram: int | None = None,
    donate_argnums: int | Sequence[int] = (),
    example: Sequence[Any] | None = None,
) -> Firmware:
    """A firmware project: C files of a function, a start file, a linker script, a Makefile and a self test.

    The function is rlx.export_c's: it needs no heap and no library but libm, its constants are in flash, and its
    temporaries in one arena. Convolutions and products of an IntegerProgram have packed weights, which SMLAD multiplies
    on processors with the DSP extension (Cortex-M4, M7, M33 and M55). `make run` in the folder runs the self test in
    QEMU.

    Args:
      subject: an IntegerProgram, which becomes a function of one example [1, ...]; or a function of arrays, as for jit,
        also a training step.
      folder: receives the files, and is made if it does not exist.
      types: of a function's arguments, as for rlx.export_c. An IntegerProgram has its own.
      cpu: "cortex-m0", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", or "generic" for this
        computer.
      name: the C function's name; by default the subject's.
      ram: bytes that the arena, the arguments and the results may take.
      donate_argnums: arguments of a function that results replace, such as parameters: see rlx.export_c.
      example: arguments for the self test; by default random ones.

    Returns a Firmware; its report is also in report.json. Raises OptionError for an unknown processor or a name that
    is not an identifier of C, MemoryLimitError for more than `ram` bytes, UnsupportedError as rlx.export_c, DeviceError
    if the compiler rejects the project or the self test fails.

    >>> import tempfile, rlx.cortexm, rlx.numpy as jnp
    >>> x = rlx.ShapeDtypeStruct((8,), "float32")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     firmware = rlx.cortexm.export(lambda x: jnp.maximum(x, 0), folder, x, cpu="generic", name="relu")
    ...     sorted(path.name for path in firmware.folder.iterdir() if path.suffix in (".c", ".h"))
    ['board.h', 'host.c', 'main.c', 'relu.c', 'relu.h']
    """
    processor = processor_of(cpu)
    macs = None
    if isinstance(subject, IntegerProgram):
        if types or donate_argnums:
            raise OptionError("An integer program has its own types and no donated arguments.", "Leave them out.")
        types = tuple(TensorType((1, *subject.values[i].shape), np.dtype(np.int8)) for i in subject.inputs)
        name, macs, subject = name or subject.name, multiplications(subject), with_packed_weights(subject)
    _refuse_name(name)
    function = c_function(subject, types, name, donate_argnums=donate_argnums, tiles=False)
    needed = function.arena_bytes() + sum(p.buffer.nbytes for p in function.pointers)
    if ram is not None and needed > ram:
        raise MemoryLimitError(
            f"{function.name} needs {needed} bytes of RAM, {function.arena_bytes()} of them for temporaries, and "
            f"ram={ram}.",
            "Export a smaller function, or a smaller batch.",
        )
    arguments = _example(types, example)
    results = _results(subject, types, arguments, function)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    leaves = [np.asarray(leaf) for leaf in tree.leaves(arguments)]
    for file, text in project_files(function, processor, leaves, results).items():
        (place / file).write_text(text, encoding="utf-8")
    report = _report(place, processor, function, macs)
    (place / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return Firmware(place, function.name, processor, function, report)


def _refuse_name(name: str | None) -> None:
    taken = C_KEYWORDS | {"main"}
    if name is not None and (not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in taken):
        raise OptionError(f"{name!r} is not the name of a function in C.", "Choose letters, digits and underscores.")


def multiplications(program: IntegerProgram) -> int:
    """Multiplications with weights, for one example."""
    found = 0
    for operation in program.operations:
        if isinstance(operation, IntegerConvolution | IntegerDense):
            outputs = int(np.prod(program.values[operation.output].shape, dtype=np.int64))
            found += outputs * operation.weights[0].size
    return found


def _example(types: Sequence[Any], example: Sequence[Any] | None) -> Any:
    """Arguments: the given ones, or random ones of the types."""
    if example is not None:
        return tuple(example)
    generator = np.random.default_rng(0)

    def made(kind: Any) -> np.ndarray:
        shape, dtype = np.shape(kind), np.dtype(getattr(kind, "dtype", type(kind)))
        if dtype.kind in "iu":
            least = -128 if dtype == np.int8 else 0
            low, high = (0, 2) if dtype.itemsize > 1 else (least, least + 256)
            return np.asarray(generator.integers(low, high, shape)).astype(dtype)
        if dtype.kind == "b":
            return np.asarray(generator.integers(0, 2, shape)).astype(dtype)
        return np.asarray(generator.uniform(-1, 1, shape)).astype(dtype)

    return tree.map(made, tuple(types), is_leaf=lambda kind: hasattr(kind, "dtype"))


def _results(subject: Any, types: Any, arguments: Any, function: CFunction) -> list[np.ndarray]:
    """The host's results for the pointers that are written: replaced arguments, then the others."""
    traced = jit(subject)(*arguments)
    leaves = [np.asarray(leaf) for leaf in tree.leaves(traced)]
    replaced = function.replaced
    own = [leaves[replaced[n]] for n in range(len(function.arguments)) if n in replaced]
    return own + [leaf for n, leaf in enumerate(leaves) if n not in replaced.values()]


def _report(folder: Path, processor: Processor, function: CFunction, macs: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cpu": processor.name,
        "arena": function.arena_bytes(),
        "constants": sum(buffer.nbytes for buffer in function.constants.values()),
        "macs": macs,
        "flash": None,
        "ram": None,
        "stack": None,
        "instructions": None,
    }
    missing = missing_tools(processor)
    if missing:
        return found | {"missing": [*missing]}
    program = built(folder, function.name, processor)
    ran = run(folder, function.name, processor, None, count=True)
    if processor.machine is not None:
        found |= sizes_of(folder, program) | {"stack": ran.stack, "instructions": dict(ran.instructions)}
    return found
