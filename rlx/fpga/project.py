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

from rlx.errors import OptionError, ShapeError
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
    """Write an integer program as a circuit in SystemVerilog."""
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
    """The resources and cycles of an integer program's circuit."""
    design = design_of(program, _tune(tune), program.name)
    return cost_of(design.circuit(), design.stages, _member(HwTarget, target, "target"))


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
    given = [np.asarray(e, np.int8) for e in (examples if isinstance(examples, Sequence) else [examples])]
    if not len(given[0]):
        raise ShapeError("examples is empty.", "Give one example or more, or leave it out.")
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
