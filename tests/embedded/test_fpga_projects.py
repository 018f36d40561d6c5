"""rlx.fpga without tools: files, names, choices, and the errors of bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fpga_programs import Graph, random_graph, tiny_conv

from rlx import fpga
from rlx.cli import main
from rlx.errors import DtypeOverflowError, InputTypeError, OptionError, ShapeError, UnsupportedError
from rlx.fpga import HwTarget, IoConfig, OptTarget, Tune
from rlx.fpga.nests import nest_of
from rlx.fpga.programs import circuit_program
from rlx.fpga.signals import Flag, Integer, Signal, bits_for, select
from rlx.quant.integer_program import IntegerConvolution, IntegerProgram, IntegerSoftmax, IntegerValue


def dense(**changes: Any) -> IntegerProgram:
    """A dense layer of 6 inputs and 3 outputs, with changes of the operation."""
    graph = Graph(np.random.default_rng(0), 8)
    x = graph.value((6,))
    y = graph.dense(x, 3)
    graph.operations[-1] = replace(graph.operations[-1], **changes)
    return graph.program("net", (x,), (y,))


def softmax() -> IntegerProgram:
    values = (IntegerValue("x", (4,)), IntegerValue("y", (4,)))
    table = np.ones(256, np.int32)
    return IntegerProgram("net", values, (IntegerSoftmax(inputs=(0,), output=1, table=table),), (0,), (1,))


def float_scaled() -> IntegerProgram:
    found = dense().operations[-1].requantization
    return dense(requantization=replace(found, rounding="float", multiplier=np.full(3, 0.01, np.float32)))


@pytest.mark.parametrize(
    ("program", "options", "error", "words"),
    [
        (softmax(), {}, UnsupportedError, "IntegerSoftmax has no circuit"),
        (float_scaled(), {}, UnsupportedError, 'rounding="q31"'),
        (dense(bias=np.full(3, 2**31 - 1, np.int32)), {}, DtypeOverflowError, "exceeds int32"),
        (lambda x: x, {}, InputTypeError, "rlx.quant.integer_program"),
        (dense(), {"name": "module"}, OptionError, "word of SystemVerilog"),
        (dense(), {"name": "a b"}, OptionError, "name of a module"),
        (dense(), {"tune": "fast"}, OptionError, "latency, size, energy, precision, bandwidth"),
        (dense(), {"target": "asic"}, OptionError, "ecp5"),
        (dense(), {"io": "bus"}, OptionError, "memory, stream"),
        (dense(), {"examples": np.zeros((2, 5), np.int8)}, ShapeError, r"\[2, 5\]"),
        (dense(), {"examples": np.zeros((0, 6), np.int8)}, ShapeError, r"\[0, 6\]"),
        (replace(dense(), operations=dense().operations[:1], outputs=(1,)), {}, UnsupportedError, "computes nothing"),
    ],
)
@pytest.mark.selected("all")
def test_bad_input(program: Any, options: dict[str, Any], error: type, words: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        fpga.export(program, tmp_path / "made", **options)
    assert not (tmp_path / "made").exists()


def test_multipliers_out_of_range() -> None:
    found = dense().operations[-1].requantization
    with pytest.raises(DtypeOverflowError, match="multiplier of v2"):
        fpga.estimate(dense(requantization=replace(found, multiplier=np.full(3, 1 << 29, np.int32))))


def test_large_argmax() -> None:
    graph = Graph(np.random.default_rng(0), 8)
    x = graph.value((300,))
    with pytest.raises(UnsupportedError, match="argmax of 300"):
        fpga.estimate(graph.program("net", (x,), (graph.argmax(x),)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"parallelism": 0}, "parallelism is 0"),
        ({"ic_parallelism": 3}, "1, 2, 4, 8 or 16"),
        ({"weight_stationary": True, "parallelism": 2}, "one output channel"),
        ({"serial_requant": True, "parallelism": 2}, "one output channel"),
        ({"serial_requant": True, "weight_stationary": True}, "one of them"),
    ],
)
@pytest.mark.selected("all")
def test_choices_that_do_not_go_together(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Tune(**fields)


@pytest.mark.parametrize("preset", list(OptTarget), ids=lambda preset: preset.value)
@pytest.mark.selected("all")
def test_the_program_of_a_circuit(preset: OptTarget) -> None:
    """It equals the given one, except for multipliers of 15 bits, with which codes differ by one at most."""
    program, tune = random_graph(3), Tune.preset(preset)
    codes = np.random.default_rng(0).integers(-128, 128, (8, *program.values[0].shape)).astype(np.int8)
    found, given = (np.asarray(p(codes)[0]).astype(int) for p in (circuit_program(program, tune), program))
    assert np.abs(found - given).max() <= (0 if tune.requant_precision.bits == 31 else 2)


def test_relus_are_fused_or_layers() -> None:
    """Either way the results are equal."""
    program = tiny_conv(8)
    clipped = tuple(
        replace(o, requantization=replace(o.requantization, low=-90)) if isinstance(o, IntegerConvolution) else o
        for o in program.operations
    )
    program = replace(program, operations=clipped)
    codes = np.random.default_rng(0).integers(-128, 128, (4, 8, 8, 1)).astype(np.int8)
    apart = circuit_program(program, Tune(fuse_conv_relu=False))
    together = circuit_program(apart, Tune())
    assert len(apart.operations) == len(program.operations) + 2 and len(together.operations) == len(program.operations)
    for found in (apart, together):
        assert np.array_equal(found(codes)[0], program(codes)[0])


def test_a_project_has_what_a_tool_needs(tmp_path: Path) -> None:
    project = fpga.export(tiny_conv(8), tmp_path, tune="energy", target="ecp5", name="digits")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["estimate"]["cycles"] == project.estimate.cycles
    assert sum(layer["cycles"] for layer in report["layers"]) + 1 == project.estimate.cycles
    assert "synth_ecp5 -top digits" in (tmp_path / "synthesis.ys").read_text()
    for source in project.sources:
        text = (tmp_path / source).read_text()
        for line in text.splitlines():
            if "$readmemh" in line:
                assert (tmp_path / line.split('"')[1]).is_file()
    assert len((tmp_path / "inputs.mem").read_text().split()) == 4 * 64


@pytest.mark.parametrize("target", list(HwTarget), ids=lambda target: target.value)
@pytest.mark.selected("all")
def test_every_family_has_a_script(target: HwTarget, tmp_path: Path) -> None:
    """iCE40 has no multipliers: products are logic."""
    project = fpga.export(dense(), tmp_path, target=target, io=IoConfig.Stream)
    script = (tmp_path / "synthesis.ys").read_text()
    assert all(source in script for source in project.sources) and "check -assert" in script
    assert (project.estimate.dsp == 0) == (target is HwTarget.Ice40)
    assert "STREAM" in (tmp_path / "testbench.svh").read_text()


def test_the_command_writes_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(
        "import numpy as np\nimport rlx\n"
        "x = np.random.default_rng(0).uniform(-1, 1, (20, 4)).astype('float32')\n"
        "w = np.ones((4, 3), 'float32')\n"
        "def program():\n    return rlx.quant.integer_program(lambda w, x: x @ w, w, x, name='sums')\n"
        "made = program()\n"
    )
    for function in ("program", "made"):
        folder = tmp_path / function
        words = ["export", f"{tmp_path}/model.py:{function}", "--to", "fpga", "-o", str(folder), "--tune", "size"]
        assert main(words) == 0
        assert (folder / "sums.sv").is_file() and "sums.sv" in capsys.readouterr().out
    assert main(["export", f"{tmp_path}/model.py:program", "--to", "c", "--tune", "size"]) == 2


# ------------------------------------------------------------------ the structure
def test_bounds_of_integers() -> None:
    """The bounds of an operation contain exactly the results of its operands."""
    a, b = Signal(Integer(-3, 5), "a"), Signal(Integer(-2, 7), "b")
    pairs = [(x, y) for x in range(-3, 6) for y in range(-2, 8)]
    for found, results in (
        (a + b, [x + y for x, y in pairs]), (a - b, [x - y for x, y in pairs]), (a * b, [x * y for x, y in pairs]),
        (select(Signal(Flag(), "c"), a, b), [n for pair in pairs for n in pair]),
    ):  # fmt: skip
        assert (found.low, found.high) == (min(results), max(results))
    assert [bits_for(*bounds) for bounds in ((-1, 0), (-2, 1), (-129, 0), (0, 128))] == [1, 2, 9, 9]


@pytest.mark.parametrize("seed", range(8))
def test_walks_of_nests(seed: int) -> None:
    """Walks that move by the changes of a nest have the values of their affine functions, and return to the start."""
    random = np.random.default_rng(seed)
    extents = random.integers(1, 4, 4).tolist()
    steps = [{"x": int(random.integers(-4, 5)), "y": int(random.integers(0, 3))} for _ in extents]
    nest = nest_of([(n, False, step) for n, step in zip(extents, steps, strict=True)], {"x": 3, "y": 0})
    expected = [
        3 + sum(i * step["x"] for i, step in zip(index, steps, strict=True)) for index in np.ndindex(*extents)
    ]
    value, found = nest.starts["x"], []
    changes = nest.changes("x")
    for index in np.ndindex(*(loop.extent for loop in nest.loops)):
        found.append(value)
        ends = [i == loop.extent - 1 for i, loop in zip(index, nest.loops, strict=True)]
        value += changes[max((k for k, end in enumerate(ends) if not end), default=-1)]
    assert found == expected and value == 3
    assert nest.bounds("x") == (min(expected), max(expected))
