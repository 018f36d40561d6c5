"""Proof by compilation: what CUDA's and HIP's compilers say of kernels for devices that are not here.

`make test-gpu-compile` installs CUDA's runtime compiler and runs this; HIP's is the system's: the test says what is
missing. The samples of primitives are others for each RLX_TEST_SEED; RLX_TEST_GPU_ALL=1 compiles all of them.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_texts import OPTIONS, PROGRAMS, SHARED_LOOPS, Unit, gradient_of_attention, plan_of, sample_plans, units
from special_samples import DRAWS
from test_special_text import kernel_of

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from benchmarks import issue_slots
from rlx import lax
from rlx.backends.cuda import CudaBackend, nvrtc
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.cuda.products import is_library_product
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.mapping import steps_of
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.gpu.steps import LaunchStep
from rlx.backends.rocm import RocmBackend, clang
from rlx.backends.rocm.dialect import HipDialect
from rlx.code.special import FUNCTIONS
from rlx.errors import DeviceError
from rlx.ir.kernels import Plan
from rlx.ir.options import ProductType

wanted = os.environ.get("RLX_TEST_GPU_COMPILE") == "1"
if not wanted and not nvrtc.COMPILER.present:
    pytest.skip("CUDA's runtime compiler is not installed: make test-gpu-compile", allow_module_level=True)

COUNT = 1 << 30 if os.environ.get("RLX_TEST_GPU_ALL") == "1" else 200
SEED = os.environ.get("RLX_TEST_SEED", "seed")
REGISTERS, SHARED = 1 << 16, 48 << 10  # of a group, on every architecture
CUDA = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
HIP = ("gfx90a", "gfx942", "gfx1100")


@cache
def sampled(language: str) -> list[Unit]:
    """The kernels of samples."""
    return units(CudaDialect if language == "cuda" else HipDialect, sample_plans(SEED), COUNT, Limits())


def check(unit: Unit, facts: dict[str, nvrtc.CudaKernelFacts] | dict[str, clang.HipKernelFacts]) -> None:
    """No kernel spills or asks for more than a group has; what lives across calls of functions is kept on the stack."""
    assert facts.keys() == unit.texts.keys()
    for name, found in facts.items():
        step = unit.steps[name]
        called = any(f"rlx_{function}_float64(" in unit.texts[name] for function in FUNCTIONS)
        kept, limit = (found.stack, 512) if called else (found.spilled, 0)
        assert kept <= limit, f"{name} keeps {kept} bytes outside of registers: {found}\n{unit.texts[name]}"
        assert found.registers * step.items <= REGISTERS, f"{name} of {step.items} items: {found}"
        assert found.shared <= SHARED and step.groups < 1 << 31, f"{name}: {found}, {step.groups} groups"


@pytest.mark.parametrize("architecture", CUDA)
@pytest.mark.selected(0)
def test_kernels_compile_for_cuda(architecture: str) -> None:
    kernels = 0
    for unit in sampled("cuda"):
        check(unit, nvrtc.compile_program(unit.source, architecture).facts)
        kernels += len(unit.texts)
    assert kernels >= 200


@pytest.mark.thorough
@pytest.mark.parametrize("architecture", HIP)
def test_kernels_compile_for_hip(architecture: str) -> None:
    if clang.missing():
        pytest.skip(clang.missing())
    kernels = 0
    for unit in sampled("hip"):
        check(unit, clang.compile_program(unit.source, architecture).facts)
        kernels += len(unit.texts)
    assert kernels >= 200


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compile(name: str) -> None:
    """Each strategy at sizes that ask for it; positions are not divided in 64 bits."""
    program = DeviceProgram(plan_of(*PROGRAMS[name]), CudaDialect(), Limits())
    compiled = nvrtc.compile_program(program.source, "sm_90")
    assert compiled.facts.keys() == program.texts.keys()
    assert all(found.spilled == 0 and found.stack == 0 for found in compiled.facts.values()), compiled.facts
    assert not re.search(r"\b(div|rem)\.[us]64", compiled.ptx)
    if not clang.missing():
        hip = DeviceProgram(plan_of(*PROGRAMS[name]), HipDialect(), Limits())
        assert all(found.spilled == 0 for found in clang.compile_program(hip.source, "gfx942").facts.values())


@pytest.mark.thorough
@pytest.mark.parametrize("architecture", [*CUDA, *HIP])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if "splats" in name])
def test_splats_compile_for_all_architectures(name: str, architecture: str) -> None:
    if architecture in HIP and clang.missing():
        pytest.skip(clang.missing())
    dialect, compiler = (HipDialect(architecture), clang) if architecture in HIP else (CudaDialect(), nvrtc)
    unit = Unit(dialect)
    for steps in DeviceProgram(plan_of(*PROGRAMS[name]), dialect, Limits()).steps.values():
        unit.steps |= {step.label: step for step in steps}
        unit.texts |= {step.label: step.text(step.label) for step in steps}
    check(unit, compiler.compile_program(unit.source, architecture).facts)


@pytest.mark.thorough
def test_special_functions_compile() -> None:
    """Each of them as a kernel of its own, without spilling; HIP's compiler takes the same text."""
    for dialect in (CudaDialect(), HipDialect()):
        made = {name: steps_of(kernel_of(name, 1000), Limits(), dialect) or [] for name in DRAWS}
        source = dialect.program({f"{name}_kernel": step.text(f"{name}_kernel") for name, (step,) in made.items()})
        if not isinstance(dialect, HipDialect):
            facts = nvrtc.compile_program(source, "sm_90").facts
            assert len(facts) == len(DRAWS) and not any(found.spilled for found in facts.values()), facts
        elif not clang.missing():
            assert len(clang.compile_program(source, "gfx942").facts) == len(DRAWS)


def test_sums_in_order_compile() -> None:
    """Their items do not spill, and divide positions in 32 bits."""
    plan = plan_of(*PROGRAMS["scatters"], options=replace(OPTIONS, deterministic=True))
    program = DeviceProgram(plan, CudaDialect(), Limits())
    assert "ordered sums" in [s.strategy for steps in program.steps.values() for s in steps]
    compiled = nvrtc.compile_program(program.source, "sm_90")
    assert all(found.spilled == 0 and found.stack == 0 for found in compiled.facts.values()), compiled.facts
    assert not re.search(r"\b(div|rem)\.[us]64", compiled.ptx)
    if not clang.missing():
        hip = DeviceProgram(plan, HipDialect(), Limits())
        assert all(found.spilled == 0 for found in clang.compile_program(hip.source, "gfx942").facts.values())


def loops_of_groups(program: DeviceProgram) -> list[LaunchStep]:
    """Those that all groups take together."""
    return [step for steps in program.steps.values() for step in steps if step.together]


@pytest.mark.parametrize("architecture", CUDA)
@pytest.mark.selected(1)
def test_loops_of_groups_compile_for_cuda(architecture: str) -> None:
    """Nothing spills, and a multiprocessor has two groups. What others write is loaded past caches that do not see it;
    each barrier has a fence before the arrival, and one behind the wait."""
    dialect = CudaDialect(is_library_product, tensor_cores=architecture != "sm_75")
    program = DeviceProgram(plan_of(*SHARED_LOOPS), dialect, CudaBackend().engine.limits)
    loops = loops_of_groups(program)
    assert len(loops) == 4 and all(loop.groups == 264 for loop in loops)
    compiled = nvrtc.compile_program(program.source, architecture)
    for loop in loops:
        facts = compiled.facts[loop.label]
        assert facts.spilled == 0 and facts.stack == 0 and facts.shared <= SHARED, facts
        assert facts.registers * loop.items * 2 <= REGISTERS, facts
    waits = program.source.count("- awaited) < 0")
    assert waits >= 16 and len(re.findall(r"ld\.volatile\.global\.[ub]32", compiled.ptx)) == waits
    assert len(re.findall(r"\b(?:membar\.gl|fence\.\w+\.gpu)\b", compiled.ptx)) == 2 * waits
    assert "ld.global.nc" not in compiled.ptx


@pytest.mark.parametrize("architecture", HIP)
def test_loops_of_groups_compile_for_hip(architecture: str) -> None:
    if clang.missing():
        pytest.skip(clang.missing())
    program = DeviceProgram(plan_of(*SHARED_LOOPS), HipDialect(architecture), RocmBackend().engine.limits)
    loops, compiled = loops_of_groups(program), clang.compile_program(program.source, architecture)
    assert len(loops) == 4 and all(compiled.facts[loop.label].spilled == 0 for loop in loops)


# by the operands' dtype: that of sums, the first architecture, the names of AMD's units
MIXED = {
    "float16": ("float32", 80, "mfma_f16", "mfma_f16", "wmma_f16"),
    "bfloat16": ("float32", 80, "mfma_bf16", "mfma_bf16", "wmma_bf16"),
    "float32": ("float32", 80),
    "int8": ("int32", 80, "mfma_i8", "mfma_i8k32", "wmma_i8"),
    "uint8": ("uint32", 80, "", "", "wmma_u8"),
    "float8_e4m3fn": ("float32", 89),
    "float8_e5m2": ("float32", 89),
}


def product_of(dtype: str) -> Plan:
    """A product with an epilogue, whose type the device has."""
    sums = MIXED[dtype][0]
    types = (ProductType.of(dtype, sums, tf32=dtype == "float32"),)
    options = replace(OPTIONS, products=replace(OPTIONS.products, types=types))
    x, w = np.ones((200, 100), dtype), np.ones((100, 300), dtype)

    def function(x: Any, w: Any) -> Any:
        return jnp.maximum(jnp.matmul(x, w, precision="high", preferred_element_type=sums) * 2, 0)

    return plan_of(function, x, w, options=options)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.selected(1)
def test_tensor_cores_multiply_what_is_narrow(architecture: str) -> None:
    """Four instructions for a slice, eight for rounded floats of 32 bits, and for slices that are copied (of 16-bit
    floats) as many as a warp has fragments at two depths; nothing spills."""
    number = int(architecture.removeprefix("sm_"))
    for dtype, (_, first, *_) in MIXED.items():
        dialect = CudaDialect(tensor_cores=True, narrowest_floats=number >= 89)
        assert (dialect.fragments(np.dtype(dtype)) is not None) == (number >= first)
        if number < first:
            continue
        program = DeviceProgram(product_of(dtype), dialect, Limits())
        assert [s.strategy for steps in program.steps.values() for s in steps] == ["tiled product with an epilogue"]
        compiled = nvrtc.compile_program(program.source, architecture)
        (facts,) = compiled.facts.values()
        # the compiler writes out four turns of the loop over slices for some architectures
        each = 8 if dtype in ("float32", "float16", "bfloat16") else 4
        assert compiled.ptx.count("mma.sync") in (each, 4 * each)
        assert ("cp.async" in compiled.ptx) == (dtype in ("float16", "bfloat16"))
        assert facts.spilled == 0 and facts.stack == 0 and facts.registers <= 128, facts


@pytest.mark.parametrize(("number", "architecture"), [*enumerate(["gfx90a", "gfx942", "gfx1100"])])
def test_matrix_cores_multiply_what_is_narrow(number: int, architecture: str) -> None:
    """Clang's own functions, each of which is an instruction; nothing spills."""
    if clang.missing():
        pytest.skip(clang.missing())
    dialect = HipDialect(architecture)
    for dtype, (_, _, *names) in MIXED.items():
        unit = names[number] if names else ""
        assert (dialect.fragments(np.dtype(dtype)) is not None) == bool(unit)
        if not unit:
            continue
        program = DeviceProgram(product_of(dtype), dialect, Limits())
        ((step,),) = program.steps.values()
        assert (step.strategy, step.unit) == ("tiled product with an epilogue", unit)
        assert f"__builtin_amdgcn_{unit.partition('_')[0]}_" in program.source
        (facts,) = clang.compile_program(program.source, architecture).facts.values()
        assert facts.spilled == 0 and facts.stack == 0 and facts.registers <= 128, facts


ATTENTION: dict[str, tuple[int, int, dict[str, Any]]] = {
    "two fragments of rows": (512, 64, {}),
    "one fragment of rows": (500, 128, {"is_causal": True}),
    "odd features": (70, 33, {"is_causal": True, "softcap": 30.0, "local_window_size": 9}),
}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.selected(1)
def test_tensor_cores_multiply_in_attention(name: str, architecture: str) -> None:
    """An instruction for 16 x 8 x 16 numbers of each product that a warp makes of a tile; nothing leaves registers,
    keys and values come 16 bytes at once, and a multiprocessor has two groups."""
    queries, features, how = ATTENTION[name]
    x = np.ones((2, queries, 4, features), "bfloat16" if how else "float16")
    given = [x, x, x, np.ones((4, queries, queries), x.dtype)]
    plan = plan_of(lambda *x: nn.dot_product_attention(*x, **how), *given)
    program = DeviceProgram(plan, CudaDialect(tensor_cores=True), Limits())
    ((step,),) = program.steps.values()
    assert step.strategy == "attention by fragments"
    compiled = nvrtc.compile_program(program.source, architecture)
    (facts,) = compiled.facts.values()
    rows, deep = (2 if features <= 64 and queries > 64 else 1), -(-features // 16)
    keys = 64 if features <= 64 else 32  # with more features, two tiles of 32 keys fit
    assert compiled.ptx.count("mma.sync") == rows * (deep * keys // 8 + keys // 16 * deep * 2)
    moves = features % 8 == 0
    assert ("cp.async.cg.shared.global" in compiled.ptx) == moves
    # four words of keys, and of values, at a time
    assert compiled.ptx.count("ldmatrix") == moves * (deep * keys // 16 + keys // 16 * deep)
    assert facts.spilled == 0 and facts.stack == 0, facts
    assert facts.registers * step.items * 2 <= REGISTERS and facts.shared <= SHARED, facts


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(("features", "launches"), [(64, 2), (128, 3), (256, 3)])
@pytest.mark.selected(1)
def test_tensor_cores_multiply_in_gradients_of_attention(features: int, launches: int, architecture: str) -> None:
    """Three products for the queries; four for keys and values, of which each has two where they are apart, and keys
    need a third one; of many features, groups share them, and make all shares. Nothing leaves registers."""
    x, k = (np.ones((2, 500, heads, features), "bfloat16") for heads in (4, 2))
    dialect = CudaDialect(tensor_cores=True)
    gradient = gradient_of_attention(is_causal=True, softcap=30.0)
    plan = plan_of(gradient, x, x, k, k, units=dialect.fragments(x.dtype))
    program = DeviceProgram(plan, dialect, Limits())
    ahead, *steps = [step for found in program.steps.values() for step in found]
    assert len(steps) == launches and all(s.strategy.endswith(" by fragments") and s.unit == "bf16" for s in steps)
    compiled = nvrtc.compile_program(program.source, architecture)
    deep, columns = features // 16, 64 if launches == 2 else 32
    one = {number: number // 8 * deep for number in (columns, 32)}  # instructions of a warp's product with a tile
    counts = [3 * one[columns], *([4 * one[32]] if launches == 2 else [3 * one[32], 2 * one[32]])]
    if features > 128:  # of a third of the features six fragments each, of a half of them eight
        counts = [2 * 2 * deep + 12, 2 * 2 * deep + 12, 4 * deep + 2 * 16]
    texts = re.split(r"\.entry ", compiled.ptx)[1:]
    found = {text.split("(")[0].strip(): text.count("mma.sync") for text in texts}
    assert [found[step.label] for step in steps] == counts and ahead.unit == "bf16"
    for step in steps:
        facts = compiled.facts[step.label]
        assert facts.spilled == 0 and facts.stack == 0 and facts.shared <= SHARED, facts
        assert facts.registers * step.items * 2 <= REGISTERS, facts


@pytest.mark.parametrize(("architecture", "builtin"), [("gfx90a", "mfma"), ("gfx942", "mfma"), ("gfx1100", "wmma")])
@pytest.mark.parametrize(("dtype", "features"), [("float16", 64), ("bfloat16", 128), ("float16", 256)])
def test_matrix_cores_multiply_in_attention(dtype: str, features: int, architecture: str, builtin: str) -> None:
    """And in its gradient; nothing leaves registers."""
    if clang.missing():
        pytest.skip(clang.missing())
    if builtin == "wmma" and features > 128:
        features = 120  # of more, rows do not fit in a group's memory
    x, k = (np.ones((2, 500, heads, features), dtype) for heads in (4, 2))
    dialect = HipDialect(architecture)
    gradient = gradient_of_attention(is_causal=True, softcap=30.0)
    plan = plan_of(gradient, x, x, k, k, units=dialect.fragments(x.dtype))
    program = DeviceProgram(plan, dialect, Limits())
    steps = [step for found in program.steps.values() for step in found]
    name = "f16" if dtype == "float16" else "bf16"
    assert len(steps) == 3 + (features > 64)
    assert all(s.strategy.endswith(" by fragments") and s.unit == f"{builtin}_{name}" for s in steps)
    assert f"__builtin_amdgcn_{builtin}_f32_16x16x16" in program.source
    compiled = clang.compile_program(program.source, architecture)
    for step in steps:
        facts = compiled.facts[step.label]
        assert facts.spilled == 0 and facts.stack == 0 and facts.shared <= 64 << 10, facts
        assert facts.registers * step.items <= REGISTERS, facts


@pytest.mark.parametrize("architecture", ["sm_90", "gfx942", "gfx1100"])
@pytest.mark.selected(1)
def test_units_multiply_in_gradients_of_biases(architecture: str) -> None:
    """Nothing leaves registers."""
    cuda = architecture.startswith("sm_")
    if not cuda and clang.missing():
        pytest.skip(clang.missing())
    dialect = CudaDialect(tensor_cores=True) if cuda else HipDialect(architecture)
    x = np.ones((2, 500, 4, 128), "bfloat16")
    gradient = gradient_of_attention(is_causal=True)
    plan = plan_of(gradient, x, x, x, x, np.ones((4, 500, 500), "float32"), units=dialect.fragments(x.dtype))
    program = DeviceProgram(plan, dialect, Limits())
    *_, step = [step for found in program.steps.values() for step in found]
    assert step.strategy == "gradient of a bias by fragments" and step.unit
    facts = (nvrtc if cuda else clang).compile_program(program.source, architecture).facts[step.label]
    assert facts.spilled == 0 and facts.stack == 0 and facts.shared <= (SHARED if cuda else 64 << 10), facts
    assert facts.registers * step.items * 2 <= REGISTERS, facts


def test_tensor_cores_multiply_windows_as_tf32() -> None:
    """A convolution and both its derivatives keep what the convolution was asked for."""

    def loss(x: Any, w: Any) -> Any:
        return jnp.tanh(lax.conv(x, w, (1, 1), "SAME", precision="high")).sum()

    images, windows = np.ones((8, 16, 32, 32), np.float32), np.ones((32, 16, 3, 3), np.float32)
    plan = plan_of(rlx.grad(loss, (0, 1)), images, windows, options=CudaBackend().lowering)
    compiled = nvrtc.compile_program(DeviceProgram(plan, CudaDialect(tensor_cores=True), Limits()).source, "sm_90")
    assert compiled.ptx.count("mma.sync.aligned.m16n8k8.row.col.f32.tf32") == 3 * 8
    assert all(f.spilled == 0 and f.registers <= 128 for f in compiled.facts.values()), compiled.facts


def disassembled(code: bytes, folder: Path) -> str:
    """Instructions of the machine."""
    beside = [p for p in sys.path if (Path(p) / "nvidia/cu13/bin/nvdisasm").exists()]
    tool = shutil.which("nvdisasm") or (f"{beside[0]}/nvidia/cu13/bin/nvdisasm" if beside else None)
    if tool is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    (folder / "code.cubin").write_bytes(code + b"\0")  # NVRTC leaves the last byte out
    return subprocess.run([tool, "-c", "code.cubin"], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["flat map", "map with a row"])
@pytest.mark.selected(1)
def test_flat_maps_move_16_bytes_at_once(name: str, tmp_path: Path) -> None:
    program = DeviceProgram(plan_of(*PROGRAMS[name]), CudaDialect(), Limits())
    assert [s.strategy for steps in program.steps.values() for s in steps] == ["vectors"]
    text = disassembled(nvrtc.compile_program(program.source, "sm_90").code, tmp_path)
    assert "LDG.E.128" in text and "STG.E.128" in text
    wide = DeviceProgram(plan_of(*PROGRAMS[name]), CudaDialect(), Limits(vector_points=1 << 40))
    assert "LDG.E.128" not in disassembled(nvrtc.compile_program(wide.source, "sm_90").code, tmp_path)


def gradient_of_norm(x: Any, w: Any, c: Any) -> Any:
    """Of rows, and of what they are multiplied by."""
    return rlx.vjp(lambda x, w: nn.standardize(x) * w, x, w)[1](c)


# program, arguments; how often an item loads from memory: the arrays that are as long as its part of a row, once each
ROWS: dict[str, tuple[Any, tuple[np.ndarray, ...], int]] = {
    "softmax": (nn.softmax, (np.empty((4096, 1000), np.float32),), 32),
    "softmax of long rows": (nn.softmax, (np.empty((512, 16384), np.float32),), 64),
    "gradient of softmax": (
        lambda x, c: rlx.vjp(nn.softmax, x)[1](c), (np.empty((4096, 1000), np.float32),) * 2, 64,
    ),
    "narrow norm": (nn.standardize, (np.empty((4096, 777), np.float16),), 25),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.selected(1)
def test_rows_are_loaded_once(name: str, tmp_path: Path) -> None:
    """They stay in registers, none of which is spilled, while all sweeps go over them; what a sweep parks for the next
    one is not written to memory."""
    function, arguments, loads = ROWS[name]
    plan = plan_of(function, *arguments)
    program = DeviceProgram(plan, CudaDialect(), Limits())
    assert [s.strategy for steps in program.steps.values() for s in steps] in (["warps"], ["groups"])
    compiled = nvrtc.compile_program(program.source, "sm_90")
    assert all(found.spilled == 0 and found.stack == 0 and found.registers <= 128 for found in compiled.facts.values())
    text = disassembled(compiled.code, tmp_path)
    loads += sum(len(step.arrays) for steps in program.steps.values() for step in steps)  # of addresses, by recordings
    assert len(re.findall(r"\bLDG\b", text)) == loads and not re.search(r"\b(LDL|STL)\b", text)
    if not clang.missing():
        hip = DeviceProgram(plan, HipDialect(), Limits(warp=64))
        assert all(found.spilled == 0 for found in clang.compile_program(hip.source, "gfx942").facts.values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name, case in issue_slots.PROGRAMS.items() if case.goal])
def test_main_loops_have_few_instructions(name: str) -> None:
    """The bound of their instructions is beyond a goal, and the cost model's bound is not far from it."""
    if not shutil.which("nvdisasm") and importlib.util.find_spec("nvidia.cu13") is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    case = issue_slots.PROGRAMS[name]
    for found in issue_slots.measured(case):
        assert found.loop is not None and found.loop.ceiling() >= case.goal * 1e12, found
        assert 0.5 < found.ratio() < 2 and found.spilled == 0, found


@pytest.mark.parametrize(("dtype", "architecture", "added"), [
    ("float16", "sm_75", True), ("float16", "sm_90", True), ("bfloat16", "sm_80", False), ("bfloat16", "sm_90", True),
])  # fmt: skip
def test_memory_adds_16_bit_floats(dtype: str, architecture: str, added: bool) -> None:
    """Without a loop of exchanges, in which neighbours would wait for each other."""
    given = np.ones(500, dtype), np.arange(500) % 99
    plan = plan_of(lambda x, i: jnp.zeros(99, dtype).at[i].add(x), *given)
    ptx = nvrtc.compile_program(DeviceProgram(plan, CudaDialect(), Limits()).source, architecture).ptx
    assert ("red.global.add.noftz" in ptx) == added and ("atom.global.cas" in ptx or "atom.cas" in ptx) != added


LAUNCHES = {
    "flat map": ["vectors"],
    "map with a row": ["vectors"],
    "narrow map": ["vectors"],
    "transpose": ["tiles"],
    "softmax": ["warps"],
    "long rows": ["groups"],
    "sum of all": ["chunks by groups", "groups"],
    "sum of columns": ["chunks by items", "warps"],
    "gradient of a norm": ["chunks by groups", "warps"],
    "running sums": ["scans"],
    "running sums of a long row": ["parts of scans", "scans of parts"],
    "small loop": ["items", "loop"],
    "product": ["tiled product"],
    "thin product": ["warps"],
    "deep product": ["tiled product in parts", "sum of parts with an epilogue"],
    "product with an epilogue": ["tiled product with an epilogue"],
    "attention": ["attention"],
    "causal attention": ["attention"],
    "gradient of attention": ["attention", "gradient of queries", "gradient of keys and values"],
    "gradient of causal attention": ["attention", "gradient of queries", "gradient of keys and values"],
    "gradient of attention by a bias": [
        "attention", "gradient of queries", "gradient of keys and values", "gradient of a bias",
    ],
    "convolution": ["tiled product of computed operands with an epilogue"],
    "gradient of a convolution": [
        "tiled product of computed operands with an epilogue", "tiled product of computed operands in parts",
        "sum of parts",
        "tiled product of computed operands with an epilogue",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches_of_programs(name: str) -> None:
    """How many there are, and how each shares its work."""
    program = DeviceProgram(plan_of(*PROGRAMS[name]), CudaDialect(), Limits())
    assert [step.strategy for steps in program.steps.values() for step in steps] == LAUNCHES[name]


def test_work_fills_the_device() -> None:
    """Two groups for each unit of the largest device where the work allows."""
    for name in ("flat map", "softmax", "long rows", "transpose", "running sums"):
        program = DeviceProgram(plan_of(*PROGRAMS[name]), CudaDialect(), Limits())
        assert all(step.groups >= 264 for steps in program.steps.values() for step in steps), name


@pytest.mark.parametrize("dtype", ["float32", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_denormal_numbers_are_kept(dtype: str) -> None:
    """Of float32 they are the subnormal codes of narrower floats, too, while these are decoded."""
    given = rlx.ShapeDtypeStruct((4096,), dtype)
    program = DeviceProgram(plan_of(lambda x: x.astype("float32") * 3 + 1, given), CudaDialect(), Limits())
    (code, ptx), _ = nvrtc.COMPILER.compile(program.source, "sm_90", nvrtc.options("sm_90"), ("CUBIN", "PTX"))
    assert code == nvrtc.code_of("sm_90").compile(program.source, "")[0]
    assert b"mul" in ptx and b".ftz" not in ptx
    flushing = [option.replace("ftz=false", "ftz=true") for option in nvrtc.options("sm_90")]
    assert b".ftz" in nvrtc.COMPILER.compile(program.source, "sm_90", flushing, ("PTX",)).results[0]


def test_options_are_those_that_the_compiler_knows() -> None:
    with pytest.raises(DeviceError, match="unrecognized option"):
        nvrtc.COMPILER.compile("", "sm_90", (*nvrtc.options("sm_90"), "--no-such-option"), ())


def test_what_the_compiler_refuses_is_told() -> None:
    with pytest.raises(Exception, match="refused a program for sm_90") as caught:
        nvrtc.compile_program("this is no program", "sm_90")
    assert "error" in str(caught.value)
