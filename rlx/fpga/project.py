"""rlx.fpga.export: the folder of a circuit with its simulation and synthesis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import InputTypeError, OptionError, ShapeError
from rlx.fpga.costs import Estimate, cost_of
from rlx.fpga.designs import Design, design_of
from rlx.fpga.layer_modules import stage_cycles
from rlx.fpga.scripts import makefile, synthesis_script
from rlx.fpga.tune import HwTarget, IoConfig, OptTarget, Tune
from rlx.fpga.verilog import printed
from rlx.quant.integer_program import IntegerProgram

__all__ = ["FpgaProject", "estimate", "export"]

_EXAMPLES = 4
_SIMULATION = ("testbench.sv", "clock.sv", "main.cpp")


@dataclass(frozen=True, slots=True)
class FpgaProject:
    """An exported circuit.

    Attributes:
      folder: with the files.
      name: of the top module.
      program: the integer program that the circuit computes bit for bit.
      tune: how it is built.
      estimate: its resources and cycles.
      sources: the names of the SystemVerilog files, without the testbench.

    >>> import rlx
    >>> rlx.fpga.FpgaProject.__slots__
    ('folder', 'name', 'program', 'tune', 'estimate', 'sources')
    """

    folder: Path
    name: str
    program: IntegerProgram
    tune: Tune
    estimate: Estimate
    sources: tuple[str, ...]


def export(
    program: IntegerProgram,
    folder: str | Path,
    *,
    tune: Tune | OptTarget | str = OptTarget.Precision,
    target: HwTarget | str = HwTarget.Generic,
    io: IoConfig | str = IoConfig.Memory,
    name: str | None = None,
    examples: Any = None,
) -> FpgaProject:
    """Write an integer program as a circuit in SystemVerilog, with a testbench and scripts.

    Args:
      program: with the rounding "q31"; see `rlx.quant.integer_program`.
      folder: is made if it does not exist. It gets a file for each module, `.mem` files for the ROMs, a testbench with
        its vectors, a Makefile, a script for yosys, and report.json. `$readmemh` reads the `.mem` files from the folder
        in which a tool runs: run tools in this folder.
      tune: the choices for the circuit, or a preset by its name; see Tune.
      target: the family of devices, which selects the script of yosys: "generic", "ecp5", "ice40" or "xilinx7".
      io: "memory" for ports with addresses, "stream" for streams of bytes.
      name: of the top module, by default the program's.
      examples: int8 codes [n, ...] for the testbench, a tuple for several inputs; by default four random examples.

    The top module has a clock `clk` and a synchronous reset `rst`. With "memory", write the bytes of the inputs with
    in_valid, in_address and in_data while busy is low. Set start for a cycle, wait for done, and read out_data one
    cycle after out_address. Bytes are in NumPy's order, inputs and outputs one after another; an index is one byte.

    Returns an FpgaProject. Raises InputTypeError for another program; UnsupportedError for an operation without a
    circuit, float multipliers, and values without elements; OptionError for an unknown tune, target or io, or a name
    that is not an identifier; DtypeOverflowError for accumulators or multipliers out of range; ShapeError for examples
    of another shape.

    >>> import numpy as np, tempfile
    >>> import rlx
    >>> w = np.array([[1.0, -1.0], [0.5, 2.0]], np.float32)
    >>> x = np.random.default_rng(0).uniform(-1, 1, (100, 2)).astype(np.float32)
    >>> program = rlx.quant.integer_program(lambda w, x: x @ w, w, x, name="affine")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     project = rlx.fpga.export(program, folder, tune="size", target="ecp5")
    ...     print(project.sources)
    ('requant.sv', 'affine_0_dense_1.sv', 'affine.sv')
    """
    _check_program(program)
    chosen, family, ports = _tune(tune), _member(HwTarget, target, "target"), _member(IoConfig, io, "io")
    design = design_of(program, chosen, name or program.name)
    circuit = design.circuit(ports)
    cost = cost_of(circuit, design.stages, family)
    contents = {f"{module.name}.sv": printed(module) for module in circuit.modules}
    sources = tuple(contents)
    contents |= circuit.roms
    contents |= {file: (files("rlx.fpga") / "simulation" / file).read_text() for file in _SIMULATION}
    contents |= _vectors(design, _codes(design.program, examples), cost, ports)
    contents |= {
        "synthesis.ys": synthesis_script(design.name, sources, family),
        "Makefile": makefile(design.name, sources, family),
        "report.json": json.dumps(_report(design, cost, family, ports), indent=2) + "\n",
    }
    project = FpgaProject(Path(folder), design.name, design.program, chosen, cost, sources)
    project.folder.mkdir(parents=True, exist_ok=True)
    for file, text in contents.items():
        (project.folder / file).write_text(text)
    return project


def estimate(
    program: IntegerProgram,
    *,
    tune: Tune | OptTarget | str = OptTarget.Precision,
    target: HwTarget | str = HwTarget.Generic,
) -> Estimate:
    """The resources and cycles of an integer program's circuit; arguments and errors as for export.

    >>> import numpy as np
    >>> import rlx
    >>> w = np.array([[1.0, -1.0], [0.5, 2.0]], np.float32)
    >>> x = np.random.default_rng(0).uniform(-1, 1, (100, 2)).astype(np.float32)
    >>> program = rlx.quant.integer_program(lambda w, x: x @ w, w, x)
    >>> rlx.fpga.estimate(program, tune="latency").cycles
    14
    """
    _check_program(program)
    design = design_of(program, _tune(tune), program.name)
    return cost_of(design.circuit(), design.stages, _member(HwTarget, target, "target"))


def _check_program(program: Any) -> None:
    if not isinstance(program, IntegerProgram):
        raise InputTypeError(
            f"rlx.fpga takes an IntegerProgram, not {type(program).__name__}.",
            "Make one: rlx.quant.integer_program(f, params, examples).",
        )


def _tune(given: Tune | OptTarget | str) -> Tune:
    return given if isinstance(given, Tune) else Tune.preset(_member(OptTarget, given, "tune"))


def _member(kind: Any, given: Any, option: str) -> Any:
    """A member of an enumeration, also by its value."""
    try:
        return kind(given)
    except ValueError:
        raise OptionError(f"{option} is {given!r}.", f"Write one of {', '.join(m.value for m in kind)}.") from None


def _codes(program: IntegerProgram, examples: Any) -> list[np.ndarray]:
    """Codes [n, ...] for each input: those that are given, or random ones."""
    if examples is None:
        random = np.random.default_rng(0)
        values = [program.values[i] for i in program.inputs]
        return [random.integers(v.low, v.high + 1, (_EXAMPLES, *v.shape)).astype(np.int8) for v in values]
    given = [np.asarray(e, np.int8) for e in (examples if isinstance(examples, tuple) else [examples])]
    shapes = [program.values[i].shape for i in program.inputs]
    if [e.shape[1:] for e in given] != shapes or not len(given[0]) or len({len(e) for e in given}) > 1:
        found, wanted = (", ".join(str(list(s)) for s in group) for group in ([e.shape for e in given], shapes))
        raise ShapeError(f"examples have the shapes {found}.", f"Give codes [n, ...] of one or more of {wanted}.")
    return given


def _report(design: Design, cost: Estimate, target: HwTarget, io: IoConfig) -> dict[str, Any]:
    """The estimate, the choices, the layers, and the addresses of the arena's values."""
    tune = {key: value.value if isinstance(value, Enum) else value for key, value in asdict(design.tune).items()}
    layers = [
        {"name": s.name, "operation": s.operation, "lanes": s.lanes, "depth": s.depth, "cycles": stage_cycles(s)}
        for s in design.stages
    ]
    values = {design.program.values[i].name: address for i, address in sorted(design.addresses.at.items())}
    return {
        "name": design.name, "target": target.value, "io": io.value, "estimate": asdict(cost), "tune": tune,
        "arena_bytes": design.addresses.size, "arena": values, "layers": layers,
    }  # fmt: skip


def _vectors(design: Design, codes: list[np.ndarray], cost: Estimate, io: IoConfig) -> dict[str, str]:
    """The files with the testbench's inputs and expected results."""
    found = design.program(*codes)
    results = [np.asarray(r) for r in (found if isinstance(found, tuple) else (found,))]
    count = len(codes[0])
    sizes = [sum(region.size for region in regions) for regions in (design.inputs, design.outputs)]
    defines = {
        "DESIGN": design.name, "EXAMPLES": count, "INPUT_BYTES": sizes[0], "OUTPUT_BYTES": sizes[1],
        "INPUT_BITS": max(sizes[0] - 1, 0).bit_length() + 1, "OUTPUT_BITS": max(sizes[1] - 1, 0).bit_length() + 1,
        "CYCLE_LIMIT": 2 * cost.cycles + 8 * sum(sizes) + 1000,
    }  # fmt: skip
    lines = [f"`define {name} {value}" for name, value in defines.items()]
    lines += ["`define STREAM"] if io is IoConfig.Stream else []
    return {"testbench.svh": "\n".join(lines) + "\n", "inputs.mem": _bytes(codes), "expected.mem": _bytes(results)}


def _bytes(arrays: Sequence[np.ndarray]) -> str:
    """The bytes of all arrays [n, ...], example after example."""
    rows = np.concatenate([a.reshape(len(a), -1).astype(np.int64) & 255 for a in arrays], axis=1)
    return "".join(f"{byte:02x}\n" for byte in rows.reshape(-1).tolist())
