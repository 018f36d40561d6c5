"""Firmware: projects that gcc builds for six processors and QEMU runs. `make test-embedded` installs what they need.

Programs for this computer need gcc and make alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integer_programs import TOPS, random_codes, random_program, reference
from modules import load

import rlx
import rlx.cortexm
import rlx.numpy as jnp
from rlx import lax, nn, quant
from rlx.cortexm import tiny_conv as tiny_conv_file
from rlx.cortexm.processors import PROCESSORS
from rlx.cortexm.tiny_conv import TinyConv
from rlx.errors import (
    DeviceError,
    DtypeOverflowError,
    FileFormatError,
    MemoryLimitError,
    OptionError,
    ShapeError,
    UnsupportedError,
)
from rlx.quant.integer_program import IntegerProgram
from rlx.quant.packed_sums import with_packed_weights

REQUIRED = os.environ.get("RLX_REQUIRE_TOOLS") == "1"
ARM = ("cortex-m0", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")
draw = np.random.default_rng(0)


def need(cpu: str) -> None:
    """Skip the test, with the names of the tools that are missing; or fail if they are required."""
    missing = rlx.cortexm.missing_tools(PROCESSORS[cpu])
    if missing:
        reason = f"{', '.join(missing)} not installed (Debian: apt-get install {' '.join(missing.values())})"
        (pytest.fail if REQUIRED else pytest.skip)(reason)


def tiny_conv(p: Any, x: Any) -> Any:
    for weight, bias in (("w", "b"), ("u", "c")):
        x = lax.conv_general_dilated(x, p[weight], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = nn.relu(x + p[bias])
        x = lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(x), -1) @ p["d"] + p["e"]


def scaled(*shape: int) -> np.ndarray:
    return (draw.normal(size=shape) * np.sqrt(2 / np.prod(shape[:-1]))).astype("f4")


NETWORK = {"w": scaled(3, 3, 1, 8), "b": scaled(8), "u": scaled(3, 3, 8, 16), "c": scaled(16), "d": scaled(784, 10)}
NETWORK["e"] = scaled(10)
IMAGES = draw.uniform(0, 1, (100, 28, 28, 1)).astype("f4")


def tiny_program(bits: int = 8, rounding: str = "q31") -> IntegerProgram:
    return quant.integer_program(tiny_conv, NETWORK, IMAGES, bits=bits, rounding=rounding)


@pytest.mark.parametrize("seed", [1])
def test_a_random_program_in_c_is_the_reference_bit_for_bit(seed: int, tmp_path: Path) -> None:
    need("generic")
    check_random(seed, "q31", "generic", tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("cpu", ["generic", "cortex-m0", "cortex-m4"])
@pytest.mark.parametrize("seed", range(20))
def test_random_programs_in_c_are_the_reference_bit_for_bit(seed: int, cpu: str, tmp_path: Path) -> None:
    need(cpu)
    check_random(seed, ("q31", "q31", "float")[seed // 3 % 3], cpu, tmp_path)


def check_random(seed: int, rounding: str, cpu: str, folder: Path) -> None:
    program = random_program(seed, (8, 4, 2)[seed % 3], rounding)
    codes = random_codes(program, 4)
    found, _ = rlx.cortexm.export(program, folder, cpu=cpu).call(codes[:, None])
    for result, expected in zip(found, reference(program, codes), strict=True):
        np.testing.assert_array_equal(result[:, 0], expected)


@pytest.mark.thorough
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("cpu", ARM)
def test_tiny_conv_on_every_processor_computes_the_hosts_codes(cpu: str, bits: int, tmp_path: Path) -> None:
    need(cpu)
    program = tiny_program(bits)
    codes = np.asarray(program.quantize(IMAGES))
    firmware = rlx.cortexm.export(program, tmp_path, cpu=cpu, name="net", ram=16384)
    (found,), run = firmware.call(codes[:, None])
    np.testing.assert_array_equal(found[:, 0], np.asarray(rlx.jit(program)(codes)))
    report = firmware.report
    assert report == json.loads((tmp_path / "report.json").read_text())
    weights = 9064 * bits // 8 + 1024  # and biases, multipliers, padding of rows
    assert report["flash"] <= 12 * 1024 + weights
    assert 0 < run.stack <= 1024
    assert report["ram"] <= report["arena"] + 64
    assert report["macs"] == 290_080


def layer(name: str) -> IntegerProgram:
    """The convolution 14 x 14 x 8 to 16 channels, or the product of 784 numbers with 10 columns."""
    if name == "dense":
        return quant.integer_program(lambda w, x: x @ w, scaled(784, 10), draw.normal(size=(8, 784)).astype("f4"))
    return quant.integer_program(
        lambda w, x: nn.relu(
            lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        ),
        scaled(3, 3, 8, 16),
        draw.normal(size=(8, 14, 14, 8)).astype("f4"),
        name="conv",
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "most"), [("conv", 2.2), ("dense", 1.7)])
def test_instructions_of_a_multiplication(name: str, most: float, tmp_path: Path) -> None:
    need("cortex-m4")
    firmware = rlx.cortexm.export(layer(name), tmp_path, cpu="cortex-m4", name=name)
    counts = firmware.report["instructions"]
    assert sum(counts.values()) / firmware.report["macs"] <= most, counts
    assert dict(firmware.self_test(count=True).instructions) == counts  # the same in every run


def mean_step(w: Any, x: Any, y: Any) -> Any:
    value, gradient = rlx.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2))(w)
    return rlx.tree.map(lambda p, g: p - 0.1 * g, w, gradient), value


@pytest.mark.parametrize("cpu", ["generic", pytest.param("cortex-m7", marks=pytest.mark.thorough)])
def test_parameters_are_trained_in_place(cpu: str, tmp_path: Path) -> None:
    need(cpu)
    start = {"a": scaled(6, 5), "b": scaled(5, 2)}
    xs, ys = draw.normal(size=(20, 4, 6)).astype("f4"), draw.normal(size=(20, 4, 2)).astype("f4")
    firmware = rlx.cortexm.export(mean_step, tmp_path, start, xs[0], ys[0], cpu=cpu, name="step", donate_argnums=0)
    (losses, *trained), _ = firmware.call(start, xs, ys)
    expected, state = [], start
    for x, y in zip(xs, ys, strict=True):
        state, value = rlx.jit(mean_step)(state, x, y)
        expected.append(float(value))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for found, leaf in zip(trained, rlx.tree.leaves(state), strict=True):
        np.testing.assert_allclose(found, np.asarray(leaf), rtol=0, atol=1e-6)


def test_mistakes_are_told(tmp_path: Path) -> None:
    x = rlx.ShapeDtypeStruct((8,), "float32")
    program = random_program(0)
    with pytest.raises(OptionError, match="no processor 'cortex-m5'"):
        rlx.cortexm.export(program, tmp_path, cpu="cortex-m5")
    for name in ("for", "2d", "a-b", "main", "näme"):
        with pytest.raises(OptionError, match="not the name of a function in C"):
            rlx.cortexm.export(program, tmp_path, name=name)
    with pytest.raises(MemoryLimitError, match="ram=100"):
        rlx.cortexm.export(program, tmp_path, ram=100)
    with pytest.raises(OptionError, match="its own types"):
        rlx.cortexm.export(program, tmp_path, x)
    wide = quant.integer_program(
        lambda w, x: x @ w, np.linspace(-1, 1, 60_000, dtype="f4")[:, None], np.ones((2, 60_000), "f4"), bits=2
    )
    with pytest.raises(DtypeOverflowError, match="packed code"):
        rlx.cortexm.export(
            IntegerProgram(wide.name, wide.values, tuple(widened(o) for o in wide.operations), (0,), (1,)), tmp_path
        )


def widened(operation: Any) -> Any:
    """The operation with the largest weights."""
    return type(operation)(**{**vars(operation), "weights": np.ones((1, 180_000), np.int8)})


def test_a_wrong_result_is_told(tmp_path: Path) -> None:
    need("generic")
    firmware = rlx.cortexm.export(
        lambda x: x + 1, tmp_path, rlx.ShapeDtypeStruct((3,), "int32"), cpu="generic", name="next"
    )
    assert "passed" in firmware.self_test().text
    with pytest.raises(ShapeError, match="an axis of calls"):
        firmware.call(np.zeros(3, np.int32))
    main = tmp_path / "main.c"
    text = main.read_text()
    at = text.index("expected_out")
    number = text.index("    ", at)
    main.write_text(text[:number] + "    9" + text[number:].lstrip())
    with pytest.raises(DeviceError, match="the self test failed"):
        firmware.self_test()


# ---------------------------------------------------------------- training
def mlp_step(p: Any, x: Any, label: Any) -> Any:
    def loss(p: Any) -> Any:
        scores = nn.relu(x @ p["w"] + p["b"]) @ p["v"] + p["c"]
        return -jnp.mean(jnp.take_along_axis(nn.log_softmax(scores), label[:, None], 1))

    value, gradient = rlx.value_and_grad(loss)(p)
    return rlx.tree.map(lambda w, g: w - 0.05 * g, p, gradient), value


@pytest.mark.thorough
def test_a_hundred_steps_of_a_network_are_the_hosts(tmp_path: Path) -> None:
    """64-32-10, in float32, on a Cortex-M7."""
    need("cortex-m7")
    start = {"w": scaled(64, 32), "b": np.zeros(32, "f4"), "v": scaled(32, 10), "c": np.zeros(10, "f4")}
    xs, labels = draw.uniform(0, 1, (100, 4, 64)).astype("f4"), draw.integers(0, 10, (100, 4)).astype("i4")
    firmware = rlx.cortexm.export(
        mlp_step, tmp_path, start, xs[0], labels[0], cpu="cortex-m7", name="step", donate_argnums=0, ram=65536
    )
    (losses, *trained), run = firmware.call(start, xs, labels)
    expected, state, compiled = [], start, rlx.jit(mlp_step)
    for x, label in zip(xs, labels, strict=True):
        state, value = compiled(state, x, label)
        expected.append(float(value))
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-6)
    for found, leaf in zip(trained, rlx.tree.leaves(state), strict=True):
        np.testing.assert_allclose(found, np.asarray(leaf), rtol=0, atol=1e-6)
    assert run.stack <= 1024


@pytest.mark.thorough
def test_the_last_layer_learns_shifted_digits_on_the_device(tmp_path: Path) -> None:
    """The other layers are an int8 program; the last one is trained in float32 on a Cortex-M4, image by image."""
    need("cortex-m4")
    digits = load(Path(__file__).parents[2] / "examples" / "quantised_digits.py")
    images, tests, labels, answers = digits.load()
    parameters = digits.trained(digits.initial_parameters(rlx.random.key(0)), images, labels, 6, 3e-3, digits.logits)

    def features(p: Any, x: Any) -> Any:
        taps: dict[str, Any] = {}
        digits.logits(p, x, taps=taps)
        return taps["last"]

    backbone = quant.integer_program(features, parameters, images[:128])
    packed = with_packed_weights(backbone)
    shifted, unseen = (np.asarray(backbone.quantize(np.roll(x, 1, 2))) for x in (images, tests))

    def scores(p: Any, codes: Any) -> Any:
        return backbone.dequantize(packed(codes)) @ p["weight"] + p["bias"]

    def step(p: Any, codes: Any, label: Any) -> Any:
        def loss(p: Any) -> Any:
            return -nn.log_softmax(scores(p, codes)[0])[label]

        return rlx.tree.map(lambda w, g: w - 0.01 * g, p, rlx.grad(loss)(p)), jnp.argmax(scores(p, codes))

    last = {name: np.asarray(parameters["last"][name]) for name in ("bias", "weight")}
    order = np.concatenate([np.random.default_rng(1).permutation(len(shifted)) for _ in range(2)])
    firmware = rlx.cortexm.export(
        step, tmp_path, last, shifted[:1], labels[0], cpu="cortex-m4", name="step", donate_argnums=0
    )
    before = (np.asarray(rlx.jit(scores)(last, unseen)).argmax(1) == answers).mean()
    (_, bias, weight), run = firmware.call(last, shifted[order][:, None], labels[order])
    after = (np.asarray(rlx.jit(scores)({"bias": bias, "weight": weight}, unseen)).argmax(1) == answers).mean()
    assert before < 0.75 and after >= 0.9, (before, after)
    assert firmware.report["arena"] < 16384 and run.stack <= 1024


# ---------------------------------------------------------------- files
@pytest.mark.parametrize("bits", [8, 4, 2])
def test_rlxm_files_are_read_and_written(bits: int, tmp_path: Path) -> None:
    network = tiny_network(bits)
    rlx.cortexm.write_rlxm(tmp_path / "net.bin", network)
    found = rlx.cortexm.read_rlxm(tmp_path / "net.bin")
    assert (found.accuracy, found.program.operations[0].bits) == (0.5, bits)
    np.testing.assert_array_equal(found.image, network.image)
    codes = draw.integers(-128, 128, (5, 28, 28, 1)).astype("i1")
    np.testing.assert_array_equal(rlx.jit(found.program)(codes), rlx.jit(network.program)(codes))
    rlx.cortexm.write_rlxm(tmp_path / "again.bin", found)
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "net.bin").read_bytes()


def tiny_network(bits: int) -> TinyConv:
    top = TOPS[bits]
    tensors = [draw.integers(-top, top + 1, n).astype("i4") for n in tiny_conv_file.COUNTS]
    tensors[6:9] = [draw.uniform(0.001, 0.01, n).astype("f4") for n in tiny_conv_file.COUNTS[6:9]]
    return TinyConv(tiny_conv_file.program_of(tensors, bits), 0.5, draw.integers(-127, 128, (28, 28, 1)).astype("i1"))


def test_damaged_rlxm_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.bin"
    rlx.cortexm.write_rlxm(path, tiny_network(4))
    whole = path.read_bytes()
    for at in [*range(8), 12, *range(16, 176)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            rlx.cortexm.read_rlxm(path)
        except FileFormatError:
            continue
        assert at % 16 in (3, 4, 5, 12, 13, 14, 15), at  # unused bytes, and offsets that stay inside
    for size in (0, 3, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(FileFormatError):
            rlx.cortexm.read_rlxm(path)
    with pytest.raises(UnsupportedError, match="not the network TinyConv"):
        rlx.cortexm.write_rlxm(path, TinyConv(tiny_program(), 0.0, np.zeros((28, 28, 1), "i1")))
