"""Every primitive at the lattice of values: values, tangents and cotangents against jax's, and on every device."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import jax
import ml_dtypes
import numba
import numpy as np
import pytest
from jax_primitives import counterpart, in_jax
from lattice import Study, differences, program, studies
from lattice_differences import NARROW_WITHOUT_JAX, UP_TO_SIGNS, WITHOUT_JAX
from primitive_cases import STEPS, names

import rlx
from rlx import errors
from rlx.trace.primitive import registry

# operands in which rlx or jax has no derivative
FIXED = {
    "polygamma": {0}, "bessel_j": {0}, "expint_n": {0}, "zeta": {0}, "betainc": {0, 1}, "igamma_grad_a": {0, 1},
    "random_gamma_grad": {0, 1},
}  # fmt: skip
UNDERIVED = STEPS | {"reduce", "householder_product", "packed_qr", "schur", "hessenberg", "tridiagonal"}
WITH_JAX = [name for name in names() if counterpart(name) and name not in WITHOUT_JAX]
DEVICES = ["cpu", "c", "numba", "opencl"]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _kernels_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs the numba device's text; RLX_TEST_COMPILED=1 has it compiled."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", int(not os.environ.get("RLX_TEST_COMPILED")))


def moving(study: Study) -> list[int]:
    """Operands whose derivatives are compared."""
    name = study.case.primitive.name
    return [] if name in UNDERIVED else [n for n in study.moving if n not in FIXED.get(name, set())]


def compare_with_jax(name: str, dtype: Any) -> None:
    """The cpu device's results are jax's."""
    wrong: list[str] = []
    for study in studies(name, np.dtype(dtype), subnormal=False):
        if len({a.dtype for a in study.case.arrays if a.dtype.kind in "iu"}) > 1:
            continue  # jax's indices are of one dtype
        ours = rlx.jit(program(study, rlx, study.case.primitive.bind, moving(study)), device="cpu")
        theirs = jax.jit(program(study, jax, partial(in_jax, name), moving(study)))
        wrong += [f"{study.case}: {line}" for line in differences(study, "jax", "cpu", ours, theirs)]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("name", WITH_JAX)
def test_float32_is_as_in_jax(name: str) -> None:
    compare_with_jax(name, np.float32)


@pytest.mark.thorough
@pytest.mark.parametrize("name", WITH_JAX)
def test_other_floats_are_as_in_jax(name: str) -> None:
    for dtype in (np.float64,) if name in NARROW_WITHOUT_JAX else (np.float64, np.float16, ml_dtypes.bfloat16):
        compare_with_jax(name, dtype)


# ------------------------------------------------------------------ devices
def compare_devices(name: str, dtype: Any, device: str) -> None:
    """A device's results are those of the plan in NumPy, at subnormal numbers as well."""
    wrong: list[str] = []
    for study in studies(name, np.dtype(dtype)):
        function = program(study, rlx, study.case.primitive.bind, moving(study))
        found, expected = (rlx.jit(function, device=d) for d in (device, "reference"))
        wrong += [f"{study.case}: {line}" for line in differences(study, "reference", device, found, expected)]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:20])


def available(device: str) -> str:
    """The device, or skip the test where it is not installed."""
    try:
        rlx.jit(lambda x: x + 1, device=device)(np.float32(1))
    except (ImportError, errors.RlxError) as error:
        pytest.skip(str(error))
    return device


# collectives need processes, which tests/distributed starts
LOCAL = [name for name in names() if not name.startswith("process_") and name not in UP_TO_SIGNS]


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("device", DEVICES)
def test_devices_agree(name: str, device: str) -> None:
    compare_devices(name, np.float32, available(device))


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOCAL)
def test_other_numbers_on_the_processor(name: str) -> None:
    for dtype in (np.float64, np.complex64, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8):
        compare_devices(name, dtype, "cpu")


# ------------------------------------------------------------------ rounding of narrow floats
NARROW = [np.dtype(n) for n in (
    np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu,
    ml_dtypes.float4_e2m1fn,
)]  # fmt: skip


def every_code(dtype: np.dtype) -> np.ndarray:
    """All numbers of a dtype."""
    count = 16 if dtype.name.startswith("float4") else 256**dtype.itemsize
    return np.arange(count).astype(f"u{dtype.itemsize}").view(dtype)


def around(dtype: np.dtype, wide: np.dtype) -> np.ndarray:
    """Every number in a wider dtype, the middles between neighbours, the numbers beside these, and beyond the ends."""
    numbers = every_code(dtype).astype(wide)
    finite = np.unique(numbers[np.isfinite(numbers)])
    middles = finite[:-1] + (finite[1:] - finite[:-1]) / 2
    ends = finite[[0, -1]] * np.array([1.01, 1.04, 1.07, 1.2, 2], wide)[:, None]
    around = [np.nextafter(v, wide.type(side)) for v in (middles, finite) for side in (np.inf, -np.inf)]
    return np.concatenate(
        [numbers, middles, *around, ends.ravel(), np.array([0.0, -0.0, np.inf, -np.inf, np.nan], wide)]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_every_rounding(device: str, dtype: np.dtype) -> None:
    """Every code to float32 and float64, and these and all halfway cases back; NaN is NaN, zeros keep their signs."""
    available(device)
    for wide in (np.dtype(np.float32), np.dtype(np.float64)):
        codes, x = every_code(dtype), around(dtype, wide)
        if numba.config.DISABLE_JIT and device == "numba":  # a sample: the interpreter takes minutes for all
            step = 1 + len(codes) // 1500
            codes, x = codes[::step], np.concatenate([x[::step], x[-20:]])
        with np.errstate(all="ignore"):
            widened, narrowed = codes.astype(wide), x.astype(dtype)
        for given, target, expected in ((codes, wide, widened), (x, dtype, narrowed)):
            found = np.asarray(rlx.jit(lambda x, t=target: registry["convert"].bind(x, dtype=t), device=device)(given))
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
            number = ~np.isnan(expected.astype(np.float64))
            np.testing.assert_array_equal(
                np.signbit(found.astype("f8"))[number], np.signbit(expected.astype("f8"))[number]
            )
