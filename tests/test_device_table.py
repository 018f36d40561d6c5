"""docs/devices.md says what ran where: each claim names a target of the Makefile that runs a test with this content."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from rlx import backends

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
HEAD = "| device | every primitive | programs | gradients | on its hardware |"
PRIMITIVES = "test_primitives.py::test_compiled_code_computes_the_reference"
PROCESSOR = "yes"


class Proof(NamedTuple):
    """A test that a target runs; `how` is the word in the table, `names` a text of the test's file."""

    how: str
    target: str
    test: str
    names: str

    def __str__(self) -> str:
        return f"{self.how}: `{self.target}`"


def executed(target: str, test: str, names: str) -> Proof:
    return Proof("executed", target, test, names)


def compiled(target: str, test: str, names: str) -> Proof:
    return Proof("compiled", target, test, names)


# device -> every primitive, programs, gradients (None: never), and the table's words about its hardware
ROWS: dict[str, tuple[Proof | None, Proof | None, Proof | None, str]] = {
    "cpu": (
        executed("test", PRIMITIVES, '"cpu": ('),
        executed("test", "transforms/test_random_programs.py::test_four_ways_agree", "rlx.jit"),
        executed("test", "transforms/test_reverse.py::test_equals_jax", "rlx.grad"),
        PROCESSOR,
    ),
    "c": (
        executed("test-thorough", "backends/test_c.py::test_a_primitive_computes_the_reference", '"c"'),
        executed("test", "backends/test_c.py::test_programs_on_the_device", '"c"'),
        executed("test", "backends/test_c.py::test_programs_on_the_device", '"a gradient through a system"'),
        PROCESSOR,
    ),
    "numba": (
        executed("test-backends", PRIMITIVES, '"numba": ('),
        executed("test", "backends/test_numba.py::test_programs_compute_what_they_do_on_the_cpu", '"numba"'),
        executed("test-thorough", "backends/test_numba.py::test_a_gradient_is_shipped_without_rlx", "grad"),
        PROCESSOR,
    ),
    "reference": (
        executed("test", PRIMITIVES, '"reference": ('),
        executed("test", "transforms/test_random_programs.py::test_four_ways_agree", '"reference"'),
        None,
        PROCESSOR,
    ),
    "opencl": (
        executed("test-opencl", "backends/test_opencl.py::test_a_primitive_computes_the_reference", '"opencl"'),
        executed("test-opencl", "backends/test_opencl.py::test_a_program", '"opencl"'),
        executed("test-opencl", "backends/test_opencl.py::test_trainings_reach_the_losses_of_the_cpu", '"opencl"'),
        "a processor, by Intel's runtime; no GPU",
    ),
    "wgpu": (
        executed("test-wgpu", "backends/test_wgpu.py::test_a_primitive_computes_the_reference", '"wgpu"'),
        executed("test-wgpu", "backends/test_wgpu.py::test_each_strategy_computes_what_the_cpu_does", '"wgpu"'),
        executed("test-wgpu", "backends/test_wgpu.py::test_gradients_and_batches", '"wgpu"'),
        "a processor, by Mesa's driver; no GPU",
    ),
    "mlx": (
        executed("test-mlx", PRIMITIVES, '"mlx": ('),
        executed("test-mlx", "backends/test_mlx.py::test_trainings", "losses"),
        executed("test-mlx", "backends/test_mlx.py::test_trainings", "losses"),
        "a processor, by MLX on Linux; no Mac",
    ),
    "xla:cpu": (
        executed("test-xla", "backends/test_xla.py::test_a_primitive_computes_the_reference", '"xla:cpu"'),
        executed("test-xla", "backends/test_xla.py::test_arrays_keys_and_control_flow", '"xla:cpu"'),
        executed("test-xla", "backends/test_xla.py::test_gradients_vmap_and_training", '"xla:cpu"'),
        PROCESSOR,
    ),
    "tpu": (
        compiled("test-tpu-compile", "backends/test_tpu_compile.py::test_a_primitive_compiles", "tpu:{kind}"),
        compiled("test-tpu-compile", "backends/test_tpu_compile.py::test_a_program_compiles", "tpu:{kind}"),
        compiled("test-tpu-compile", "backends/test_tpu_compile.py::test_programs_with_shardings", "training_step"),
        "no TPU",
    ),
    "xla:cuda": (
        None,
        compiled("test-tpu-compile", "backends/test_gpu_beside_xla.py::test_the_table_is_the_pages", "xla:h100"),
        compiled("test-tpu-compile", "backends/test_gpu_beside_xla.py::test_the_table_is_the_pages", "programs"),
        "no GPU",
    ),
    "cuda": (
        compiled("test-gpu-compile", "backends/test_gpu_compile.py::test_kernels_compile_for_cuda", '"cuda"'),
        compiled("test-gpu-compile", "backends/test_gpu_compile.py::test_programs_compile", "CudaDialect"),
        compiled("test-gpu-compile", "backends/test_gpu_compile.py::test_tensor_cores_multiply_in_gradients", "CUDA"),
        "no GPU; a strict fake driver",
    ),
    "rocm": (
        compiled("test-gpu-compile", "backends/test_gpu_compile.py::test_kernels_compile_for_hip", '"hip"'),
        compiled("test-gpu-compile", "backends/test_gpu_compile.py::test_programs_compile", "HipDialect"),
        None,
        "no GPU; a strict fake driver",
    ),
}  # fmt: skip


def table() -> str:
    """The table of the page."""
    lines = [HEAD, "| --- | --- | --- | --- | --- |"]
    for device, (*proofs, hardware) in ROWS.items():
        cells = [str(proof) if proof else "no" for proof in proofs]
        lines.append(f"| `{device}` | {' | '.join([*cells, hardware])} |")
    return "\n".join(lines) + "\n"


def recipe(target: str) -> str:
    """The commands of a target, with the variables that they contain."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None, f"there is no target {target}"
    text = found[1]
    for _ in range(3):
        for name, value in re.findall(r"^(\w+) :?= ((?:.*\\\n)*.*)\n", MAKEFILE, re.MULTILINE):
            text = text.replace(f"$({name})", value)
    return text


def test_the_page_has_the_table() -> None:
    assert table() in PAGE


def test_every_device_has_a_row() -> None:
    """Devices that other tests register have modules outside of rlx; the interfaces of wgpu are one device."""
    own = {name for name in backends.device_names() if str(backends._BACKENDS[name]).startswith("rlx.")}
    assert {name.partition(":")[0] for name in ROWS} == own - {"vulkan", "directx"}


@pytest.mark.selected("all")
@pytest.mark.parametrize(
    "proof", [p for row in ROWS.values() for p in row[:3] if isinstance(p, Proof)], ids=lambda p: p.test + p.names
)
def test_the_target_runs_the_test(proof: Proof) -> None:
    file, _, function = proof.test.partition("::")
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    found = re.search(rf"^(?:@[^\n]*\n|    [^\n]*\n|\)[^\n]*\n)*def {function}\w*\(", text, re.MULTILINE)
    assert found is not None, f"{file} has no {function}"
    assert proof.names in text
    runs = recipe(proof.target)
    thorough = "pytest.mark.thorough" in found[0]
    if proof.target in ("test", "test-thorough"):
        assert thorough == (proof.target == "test-thorough") and Path(file).name not in runs
        return
    assert Path(file).name in runs or Path(file).stem.removeprefix("test_") in runs
    for switch in re.findall(r'environ\.get\("(RLX_TEST_(?!SEED)\w+)"\) ==? ?"1"', text):
        assert f"{switch}=1" in runs or switch.endswith("_ALL"), f"make {proof.target} does not set {switch}"
