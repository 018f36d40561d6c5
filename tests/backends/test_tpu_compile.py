"""Programs compiled for TPUs by libtpu on a machine that has none: every primitive, programs, programs with shardings.

`make test-tpu-compile` installs libtpu and runs this. XLA compiles in processes that are killed after LIMIT seconds, so
that the tests end. RLX_TEST_TPU_ALL=1 also compiles every sample of every primitive, and what is SLOW.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from compiling_for_tpus import Compiled, Compiler, described, inspect_primitive, inspect_program, samples
from primitive_cases import cases_of, names
from test_xla import REFUSED

import rlx
import rlx.numpy as jnp
from benchmarks.programs import programs
from rlx import errors
from rlx.xla.described import TPUS, chips_of

wanted = os.environ.get("RLX_TEST_TPU_COMPILE") == "1"
if not wanted or importlib.util.find_spec("libtpu") is None:
    pytest.skip("libtpu compiles for TPUs: make test-tpu-compile runs it", allow_module_level=True)

ALL = os.environ.get("RLX_TEST_TPU_ALL") == "1"
LIMIT = 250  # seconds for one program, fifteen times what the slowest one takes on a quiet machine
# XLA compiles these for minutes: two in float64, which TPUs emulate, and one with many logarithms of gamma functions
SLOW = ("igamma_grad_a", "log_beta", "random_gamma_grad")
UNIMPLEMENTED = "select_and_scatter_add"  # by XLA for TPUs, for the windows of its samples
ROOT = Path(__file__).resolve().parents[2]
# the host would have to take part in the program
HOST = re.compile(r"infeed|outfeed|\b(?:send|recv)\(|custom_call_target=\"[^\"]*(?:callback|host|cpu)[^\"]*\"", re.I)


@pytest.fixture(scope="module")
def compiler() -> Generator[Compiler]:
    """The process that compiles for this module's tests."""
    found = Compiler(LIMIT)
    yield found
    found.close()


def check(compiled: Compiled) -> None:
    """XLA's program is for a TPU, which computes all of it; there is none if nothing is computed."""
    assert compiled.seconds < LIMIT, f"XLA compiles for more than {LIMIT} s"
    assert not compiled.error, compiled.message
    if texts := compiled.texts:
        assert "T(" in texts["xla"] or "jaxlib cannot read" in texts["xla"]
        assert not HOST.search(texts["xla"])
        assert "generated_code" in texts["memory"]


@pytest.mark.parametrize("name", [name for name in names() if name not in (*REFUSED, UNIMPLEMENTED)])
def test_a_primitive_compiles(name: str, compiler: Compiler) -> None:
    if name in SLOW and not ALL:
        pytest.skip("XLA compiles it for minutes: RLX_TEST_TPU_ALL=1")
    for number in samples(name)[: None if ALL else 1]:
        if name in ("reduce_max", "reduce_min") and cases_of(name)[number].arrays[0].dtype.kind == "c":
            continue  # XLA orders no complex numbers for TPUs
        for kind in TPUS:
            check(compiler.compile(inspect_primitive, name, number, f"tpu:{kind}"))


@pytest.mark.parametrize("name", [name for name in REFUSED if cases_of(name)])
def test_a_missing_operation_is_refused_by_name(name: str) -> None:
    case = cases_of(name)[0]
    with rlx.enable_x64(True), pytest.raises(errors.UnsupportedError, match=name):
        rlx.inspect(case.bind, device="tpu")(*described(case))


def test_an_operation_that_xla_lacks_is_refused_with_the_line() -> None:
    case = cases_of(UNIMPLEMENTED)[0]
    with pytest.raises(errors.UnsupportedError, match=r"not implemented for TPU[\s\S]*in bind"):
        rlx.inspect(case.bind, device="tpu")(*described(case))


@pytest.mark.parametrize("kind", TPUS)
@pytest.mark.parametrize("name", [given.name for given in programs])
def test_a_program_compiles(name: str, kind: str, compiler: Compiler) -> None:
    compiled = compiler.compile(inspect_program, name, f"tpu:{kind}")
    check(compiled)
    assert "bytes accessed" in compiled.texts["cost"]


def test_a_compilation_that_takes_too_long_is_killed() -> None:
    """The next one starts another process."""
    compiler = Compiler(0.01)
    assert not compiler.compile(inspect_primitive, "add", 0, "tpu:v5e").texts
    compiler.limit = LIMIT
    check(compiler.compile(inspect_primitive, "add", 0, "tpu:v5e"))
    compiler.close()


def test_programs_with_shardings_compile_for_4_and_16_chips() -> None:
    """Exchanges where the shardings need them, none where they do not, and smaller parts on more chips."""
    environment = os.environ | {"RLX_NUM_CPU_DEVICES": "16", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests"), environment.get("PYTHONPATH", "")])
    script = ROOT / "tests" / "backends" / "divided_for_chips.py"
    run = subprocess.run(
        [sys.executable, str(script), *(f"tpu:{kind}" for kind in TPUS)],
        env=environment, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert set(found) == {f"tpu:{kind}" for kind in TPUS}
    for compiled in found.values():
        assert len(compiled) >= 45
        assert not (failed := {name: x["error"] for name, x in compiled.items() if "error" in x}), failed
        for name, exchanges in {
            "two_layers": ["all-reduce"],
            "training_step": ["all-reduce"],
            "attention_of_divided_heads": [],
            "parts_are_exchanged": ["all-to-all"],
        }.items():
            small, large = compiled[f"{name} 4"], compiled[f"{name} 16"]
            assert small["exchanges"] == large["exchanges"] == exchanges
            assert large["argument"] < small["argument"]


def test_a_missing_tpu_is_described() -> None:
    """Programs are shown with their bytes and operations; running them is refused, and so are other kinds."""
    x = rlx.ShapeDtypeStruct((64, 32), "float32")
    found = rlx.inspect(rlx.jit(lambda x: (jnp.sin(x) @ x.T, x + 1), donate_argnums=0), device="tpu")(x)
    texts = found.kernels.texts
    assert "stablehlo.sine" in texts["stablehlo"] and "HloModule" in texts["xla"] and "flops" in texts["cost"]
    assert "alias: 8192 bytes" not in rlx.inspect(lambda x: x + 1, device="tpu")(x).kernels.texts["memory"]
    assert re.search(r"alias: [1-9]", texts["memory"]) and "plans by itself" in found.lir and str(found)
    with pytest.raises(errors.DeviceError, match=r"no v5e TPU on this machine.*inspected"):
        rlx.jit(jnp.sin, device="tpu")(np.ones(3, np.float32))
    with pytest.raises(errors.DeviceError, match="'tpu:v6e'"):
        rlx.inspect(jnp.sin, device="tpu:v99")(x)
    with pytest.raises(errors.DeviceError, match="power of 2"):
        chips_of("v5e", 3)
    assert len(chips_of("v6e", 16)) == 16
