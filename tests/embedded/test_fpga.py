"""Circuits in Icarus Verilog, Verilator, yosys and nextpnr: equal to the integer program, and as fast as estimated."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fpga_programs import random_graph, random_tune, tiny_conv

from rlx import fpga, lax, quant
from rlx import numpy as jnp
from rlx.fpga import FpgaProject, OptTarget, RequantPrecision, Tune

RUNTIME = ("verilated.cpp", "verilated_threads.cpp")


def tool(name: str) -> str:
    """The path of a tool; without it the test is skipped, or fails if RLX_REQUIRE_TOOLS is 1."""
    found = shutil.which(name)
    if found is None:
        text = f"{name} is not installed: apt-get install verilator iverilog yosys nextpnr-ice40"
        (pytest.fail if os.environ.get("RLX_REQUIRE_TOOLS") == "1" else pytest.skip)(text)
    return str(found)


def run(command: list[str], folder: Path) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def icarus(project: FpgaProject) -> str:
    """The output of the testbench in Icarus Verilog, which has no warnings about the circuit."""
    compiler, simulator = tool("iverilog"), tool("vvp")
    sources = ["clock.sv", "testbench.sv", *project.sources]
    said = run([compiler, "-g2012", "-Wall", "-o", "simulation", "-s", "clock", *sources], project.folder)
    warnings = [line for line in said.splitlines() if "timescale" not in line and "testbench" not in line]
    assert not warnings, warnings[:5]
    return run([simulator, "-n", "simulation"], project.folder)


@pytest.fixture(scope="session")
def verilated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that runs a project's testbench in Verilator, whose runtime library is compiled once."""
    translator, compiler = tool("verilator"), tool("g++")
    root = run([translator, "--getenv", "VERILATOR_ROOT"], Path.cwd()).strip()
    include = Path(root) / "include"
    if not include.is_dir():
        include = Path("/usr/share/verilator/include")
    flags = ["-O1", "-std=gnu++17", f"-I{include}", f"-I{include}/vltstd", "-DVM_COVERAGE=0", "-DVM_TRACE=0"]
    library = tmp_path_factory.mktemp("verilator")
    run([compiler, *flags, "-c", *(str(include / file) for file in RUNTIME)], library)

    def simulate(project: FpgaProject) -> str:
        options = ["--cc", "-O3", "-Wno-WIDTH", "--top-module", "testbench", "--Mdir", "model"]
        run([translator, *options, "testbench.sv", *project.sources], project.folder)
        objects = [str(library / file.replace(".cpp", ".o")) for file in RUNTIME]
        made = sorted(str(path) for path in (project.folder / "model").glob("*.cpp"))
        command = [compiler, *flags, "-Imodel", *made, "main.cpp", *objects, "-lpthread", "-latomic", "-o", "run"]
        run(command, project.folder)
        return run(["./run"], project.folder)

    return simulate


def assert_equal(said: str, project: FpgaProject, examples: int) -> None:
    """All bytes of all examples are equal, in the cycles of the estimate."""
    assert f"PASS {examples} examples" in said, said[-1000:]
    cycles = int(re.findall(r"cycles (\d+)", said)[0])
    assert cycles == project.estimate.cycles


# ------------------------------------------------------------------ equal bit for bit
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.thorough
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    """Odd sizes, pads, strides, dilations and groups, 8, 4 and 2 bits, choices of all kinds."""
    project = fpga.export(random_graph(seed), tmp_path, tune=random_tune(seed))
    assert_equal(icarus(project), project, 4)


@pytest.mark.parametrize("io", ["memory", "stream"])
def test_a_small_graph_with_both_ports(io: str, tmp_path: Path) -> None:
    """Streams stop and go on in the testbench."""
    project = fpga.export(random_graph(3), tmp_path, tune="latency", io=io)
    assert_equal(icarus(project), project, 4)


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("preset", list(OptTarget), ids=lambda preset: preset.value)
@pytest.mark.thorough
def test_presets_with_a_hundred_images(preset: OptTarget, bits: int, verilated: Any, tmp_path: Path) -> None:
    program = tiny_conv(8, bits)
    images = np.random.default_rng(1).integers(-128, 128, (100, 8, 8, 1)).astype(np.int8)
    project = fpga.export(program, tmp_path, tune=preset, examples=images)
    assert_equal(verilated(project), project, 100)
    expected = program(images) if project.tune.requant_precision is RequantPrecision.Q0_31 else project.program(images)
    assert len(np.unique(np.asarray(expected[0]), axis=0)) > 90, "the images have different results"


@pytest.mark.parametrize("preset", ["latency", "size", "bandwidth"])
@pytest.mark.thorough
def test_a_function_of_real_numbers(preset: str, tmp_path: Path) -> None:
    """Calibrated, quantised and exported; the circuit's program is near the function."""
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (40, 6, 7, 2)).astype(np.float32)
    weights = {
        "kernel": random.normal(0, 0.3, (3, 3, 2, 4)).astype(np.float32),
        "out": random.normal(0, 0.2, (2 * 3 * 4, 5)).astype(np.float32),
    }

    def f(weights: dict[str, Any], x: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        x = jnp.tanh(lax.conv_general_dilated(x, weights["kernel"], (1, 1), "SAME", dimension_numbers=names))
        x = lax.reduce_window(x, -np.inf, lax.max, (1, 3, 2, 1), (1, 3, 2, 1), "VALID")
        return jnp.maximum(x.reshape(len(x), -1) @ weights["out"], 0)

    program = quant.integer_program(f, weights, images)
    project = fpga.export(program, tmp_path, tune=preset, examples=program.quantize(images[:4]))
    assert_equal(icarus(project), project, 4)
    found = project.program.dequantize(project.program(project.program.quantize(images)))
    assert np.abs(found - f(weights, images)).max() < 0.15


def test_a_wrong_byte_is_found(tmp_path: Path) -> None:
    project = fpga.export(random_graph(3), tmp_path)
    weights = sorted(tmp_path.glob("*_weights.mem"))[-1]
    words = weights.read_text().split()
    weights.write_text("\n".join(f"{int(word, 16) ^ 1:0{len(word)}x}" for word in words) + "\n")
    assert "FAIL" in icarus(project)


# ------------------------------------------------------------------ speed and size
def test_latency_and_bandwidth_are_what_they_say() -> None:
    """Latency needs at most 0.35 of Precision's cycles; with Bandwidth each weight is read once for all positions."""
    program = tiny_conv()
    found = {preset: fpga.estimate(program, tune=preset) for preset in OptTarget}
    assert found[OptTarget.Latency].cycles <= 0.35 * found[OptTarget.Precision].cycles
    weights = sum(o.weights.size for o in program.operations if hasattr(o, "weights"))
    assert found[OptTarget.Bandwidth].weight_reads == weights < found[OptTarget.Precision].weight_reads / 20
    assert found[OptTarget.Size].dsp < found[OptTarget.Precision].dsp


def synthesised(project: FpgaProject) -> dict[str, int]:
    """The cells of a circuit by kind; yosys has no warnings, and finds no latches."""
    run([tool("yosys"), "-q", "-l", "synthesis.log", "-s", "synthesis.ys"], project.folder)
    log = (project.folder / "synthesis.log").read_text()
    warned = [line for line in log.splitlines() if line.startswith("Warning:") or "Latch inferred" in line]
    assert not warned, warned[:5]
    assert "Found and reported 0 problems" in log
    statistics = log[log.rindex("Number of cells:") :]
    return {kind: int(count) for kind, count in re.findall(r"^ +(\S+) +(\d+)$", statistics, re.MULTILINE)}


@pytest.mark.parametrize("target", ["ice40", "ecp5"])
@pytest.mark.thorough
def test_tinyconv_is_synthesised(target: str, tmp_path: Path) -> None:
    """The arena and the large ROMs are block RAM, and there are no latches."""
    cells = synthesised(fpga.export(tiny_conv(), tmp_path, tune="size", target=target))
    blocks = {"ice40": ("SB_RAM40_4K", 36, 40), "ecp5": ("DP16KD", 8, 12)}[target]
    assert blocks[1] <= cells[blocks[0]] <= blocks[2], cells
    assert not [kind for kind in cells if "LATCH" in kind.upper()]


@pytest.mark.parametrize(
    ("target", "presets"), [("ecp5", list(OptTarget)), ("ice40", [OptTarget.Size, OptTarget.Energy])]
)
@pytest.mark.thorough
def test_size_has_the_fewest_cells(target: str, presets: list[OptTarget], tmp_path: Path) -> None:
    """On iCE40, where multipliers are logic, the presets with 31-bit multipliers are far behind and take long."""
    program = tiny_conv(8)
    cells = {
        preset: sum(synthesised(fpga.export(program, tmp_path / preset.value, tune=preset, target=target)).values())
        for preset in presets
    }
    assert min(cells, key=lambda preset: cells[preset]) is OptTarget.Size, cells


@pytest.mark.thorough
def test_a_circuit_is_placed_and_routed(tmp_path: Path) -> None:
    """nextpnr reaches 25 MHz on an iCE40 HX8K."""
    project = fpga.export(tiny_conv(8), tmp_path, tune="size", target="ice40")
    synthesised(project)
    options = ["--hx8k", "--package", "ct256", "--freq", "25", "--pcf-allow-unconstrained"]
    said = run([tool("nextpnr-ice40"), *options, "--json", "tinyconv.json", "--asc", "tinyconv.asc"], tmp_path)
    reached = re.findall(r"Max frequency for clock.*: ([\d.]+) MHz", said)
    assert float(reached[-1]) >= 25


def test_tunes_change_the_circuit() -> None:
    """Each choice has the effect that it names."""
    program = tiny_conv(8, 2)
    plain = fpga.estimate(program, tune=Tune(arena_plan=False, ternary_fast_path=False))
    assert fpga.estimate(program, tune=Tune(arena_plan=False)).dsp < plain.dsp
    assert fpga.estimate(program, tune=Tune(ternary_fast_path=False)).bram_bytes < plain.bram_bytes
    assert fpga.estimate(program, tune=Tune(ic_parallelism=4)).cycles < 0.5 * plain.cycles
    assert fpga.estimate(program, tune=Tune(fuse_conv_relu=False)).cycles == plain.cycles
