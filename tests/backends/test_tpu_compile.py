"""Programs compiled for TPUs by libtpu on a machine that has none: every primitive, programs, programs with shardings.

`make test-tpu-compile` installs libtpu and runs this. RLX_TEST_TPU_ALL=1 also compiles every sample of every primitive,
and special functions, which are in float64: TPUs emulate it, and XLA takes minutes to compile each of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from primitive_cases import Case, cases_of, names
from test_primitives import is_claimed
from test_xla import REFUSED

import rlx
import rlx.numpy as jnp
from benchmarks.programs import Program, programs
from rlx import errors
from rlx.backends import backend_named
from rlx.code.special import FUNCTIONS
from rlx.xla.described import TPUS, chips_of

wanted = os.environ.get("RLX_TEST_TPU_COMPILE") == "1"
if not wanted or importlib.util.find_spec("libtpu") is None:
    pytest.skip("libtpu compiles for TPUs: make test-tpu-compile runs it", allow_module_level=True)

ALL = os.environ.get("RLX_TEST_TPU_ALL") == "1"
NARROW = {"float64": "float32", "complex128": "complex64", "int64": "int32", "uint64": "uint32"}
SLOW_PROGRAMS = ("argsort_vector", "convolution_gradient", "sort_vector")  # XLA takes more than 4 minutes
UNIMPLEMENTED = "select_and_scatter_add"  # by XLA for TPUs, for the windows of its samples
ROOT = Path(__file__).resolve().parents[2]
# the host would have to take part in the program
HOST = re.compile(r"infeed|outfeed|\b(?:send|recv)\(|custom_call_target=\"[^\"]*(?:callback|host|cpu)[^\"]*\"", re.I)


def is_slow(name: str) -> bool:
    """Whether a primitive is a special function, in float64 on every device."""
    return name in FUNCTIONS or any(word in name for word in ("bessel", "gamma", "beta", "zeta", "hyper", "expint"))


def samples(name: str) -> list[Case]:
    """The claimed samples of a primitive: all, or one of dtypes that a TPU has."""
    claimed = [case for case in cases_of(name) if is_claimed(case, backend_named("tpu"))]
    narrow = [case for case in claimed if all(a.dtype.itemsize <= 4 for a in case.arrays)]
    return claimed if ALL else (narrow or claimed)[:1]


def described(case: Case) -> list[rlx.ShapeDtypeStruct]:
    """The operands; in 32 bits if XLA has no wider form."""
    dtypes = [a.dtype.name for a in case.arrays]
    narrowed = [NARROW.get(d, d) for d in dtypes] if case.primitive.name == UNIMPLEMENTED else dtypes
    return [rlx.ShapeDtypeStruct(a.shape, d) for a, d in zip(case.arrays, narrowed, strict=True)]


def check(texts: Any) -> None:
    """XLA's program is for a TPU, which computes all of it."""
    assert "T(" in texts["xla"] or "jaxlib cannot read" in texts["xla"]
    assert not HOST.search(texts["xla"])
    assert "generated_code" in texts["memory"]


@pytest.mark.parametrize("name", [name for name in names() if name not in (*REFUSED, UNIMPLEMENTED)])
def test_a_primitive_compiles(name: str) -> None:
    if is_slow(name) and not ALL:
        pytest.skip("XLA takes minutes to compile emulated float64: RLX_TEST_TPU_ALL=1")
    for case in samples(name):
        if name in ("reduce_max", "reduce_min") and case.arrays[0].dtype.kind == "c":
            continue  # XLA orders no complex numbers for TPUs
        for kind in TPUS:
            with rlx.enable_x64(True):
                texts = rlx.inspect(case.bind, device=f"tpu:{kind}")(*described(case)).kernels.texts
            if texts:  # something is computed
                check(texts)


@pytest.mark.parametrize("name", [name for name in REFUSED if cases_of(name)])
def test_a_missing_operation_is_refused_by_name(name: str) -> None:
    case = cases_of(name)[0]
    with rlx.enable_x64(True), pytest.raises(errors.UnsupportedError, match=name):
        rlx.inspect(case.bind, device="tpu")(*described(case))


def test_an_operation_that_xla_lacks_is_refused_with_the_line() -> None:
    case = cases_of(UNIMPLEMENTED)[0]
    with pytest.raises(errors.UnsupportedError, match=r"not implemented for TPU[\s\S]*in bind"):
        rlx.inspect(case.bind, device="tpu")(*described(case))


@pytest.mark.parametrize("given", programs, ids=lambda given: given.name)
def test_a_program_compiles(given: Program) -> None:
    if given.name in SLOW_PROGRAMS and not ALL:
        pytest.skip("XLA takes minutes to compile it: RLX_TEST_TPU_ALL=1")
    function, arguments = given.build(rlx, np.random.default_rng(0))
    for kind in TPUS:
        texts = rlx.inspect(function, device=f"tpu:{kind}")(*arguments).kernels.texts
        check(texts)
        assert "bytes accessed" in texts["cost"]


def test_programs_with_shardings_compile_for_4_and_16_chips() -> None:
    """Exchanges where the shardings need them, none where they do not, and smaller parts on more chips."""
    environment = os.environ | {"RLX_NUM_CPU_DEVICES": "16", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests"), environment.get("PYTHONPATH", "")])
    script = ROOT / "tests" / "backends" / "divided_for_chips.py"
    run = subprocess.run(
        [sys.executable, str(script), *(f"tpu:{kind}" for kind in TPUS)],
        env=environment, capture_output=True, text=True, cwd=ROOT,
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
