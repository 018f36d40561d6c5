"""The scripts of a project: synthesis by yosys, and a Makefile for simulation, synthesis, placement and routing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlx.fpga.tune import HwTarget

__all__ = ["makefile", "synthesis_script"]


class _Family(NamedTuple):
    """The commands of yosys for a family, and the command that places and routes; "" where none is free."""

    commands: tuple[str, ...]
    place: str = ""


_FAMILIES = {
    HwTarget.Generic: _Family(("synth -flatten -top {name}", "write_json {name}.json")),
    HwTarget.Ecp5: _Family(
        ("synth_ecp5 -top {name} -json {name}.json",),
        "nextpnr-ecp5 --25k --package CABGA381 --freq 25 --lpf-allow-unconstrained --json {name}.json"
        " --textcfg {name}.config",
    ),
    HwTarget.Ice40: _Family(
        ("synth_ice40 -top {name} -json {name}.json",),
        "nextpnr-ice40 --hx8k --package ct256 --freq 25 --pcf-allow-unconstrained --json {name}.json --asc {name}.asc",
    ),
    HwTarget.Xilinx7: _Family(("synth_xilinx -family xc7 -top {name}", "write_edif {name}.edif")),
}


def synthesis_script(name: str, sources: Sequence[str], target: HwTarget) -> str:
    """A script of yosys: `yosys -s synthesis.ys`. It fails where the circuit has problems such as loops of logic."""
    commands = [command.format(name=name) for command in _FAMILIES[target].commands]
    lines = [f"read_verilog -sv {' '.join(sources)}", *commands, "check -assert", "stat"]
    return "\n".join(lines) + "\n"


def makefile(name: str, sources: Sequence[str], target: HwTarget) -> str:
    """The Makefile of a project."""
    rules = {
        "simulate": [
            "iverilog -g2012 -o simulation -s clock clock.sv testbench.sv $(SOURCES)",
            "vvp -n simulation",
        ],
        "verilate": [
            "verilator --cc --exe --build -O1 -Wno-WIDTH -CFLAGS -O1 --top-module testbench main.cpp testbench.sv"
            " $(SOURCES)",
            "obj_dir/Vtestbench",
        ],
        "synthesis": ["yosys -q -l synthesis.log -s synthesis.ys"],
    }
    place = _FAMILIES[target].place.format(name=name)
    if place:
        rules["place: synthesis"] = [place]
    lines = [
        "# make simulate: Icarus Verilog; make verilate: Verilator; make synthesis: yosys; make place: nextpnr",
        f"SOURCES := {' '.join(sources)}",
        f".PHONY: {' '.join(rule.partition(':')[0] for rule in rules)}",
    ]
    for rule, commands in rules.items():
        lines += ["", rule if ":" in rule else f"{rule}:", *(f"\t{command}" for command in commands)]
    return "\n".join(lines) + "\n"
