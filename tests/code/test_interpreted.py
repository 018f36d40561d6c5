"""Every device's kernels, run by the interpreter: one program for each strategy, with all devices' words and units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from interpreted import InterpretedProgram
from primitive_cases import cases
from splat_scenes import blocks_program

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import Fragments
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.options import claims_of, lowering_options
from rlx.backends.opencl.dialect import OpenCLDialect
from rlx.backends.reference.run import run_plan
from rlx.backends.rocm.dialect import HipDialect
from rlx.config import scoped
from rlx.ir.kernels import Plan
from rlx.ir.options import ProductType
from rlx.ir.types import is_narrow
from rlx.passes.pipeline import Context, lower_to_plan
from rlx.trace.tracing import close_over, trace_program

RANDOM = np.random.default_rng(0)
# so small that rows, tiles and parts are divided
SMALL = Limits(
    group=32, warp=8, units=8, vector_points=4, least_row=8, warp_row=64, tile=8, held=16, sorted_row=64,
    large_group=64,
)  # fmt: skip
DEVICES: dict[str, Callable[[], DeviceDialect]] = {
    "opencl": OpenCLDialect,
    "opencl with shuffles": lambda: OpenCLDialect(shuffles=True),
    "sm_75": CudaDialect,
    "sm_80": lambda: CudaDialect(tensor_cores=True),
    "sm_90": lambda: CudaDialect(tensor_cores=True, narrowest_floats=True),
    "gfx90a": lambda: HipDialect("gfx90a"),
    "gfx942": lambda: HipDialect("gfx942"),
    "gfx1100": lambda: HipDialect("gfx1100"),
}


def numbers(*shape: int, dtype: Any = "float32") -> np.ndarray:
    """Normal numbers."""
    return RANDOM.normal(size=shape).astype(dtype)


PLACES = (np.arange(130) % 11).astype("int32")


def rows_and_quotients(values: Any, indices: Any) -> Any:
    """Two uses of computed indices: one for each index, the other for each element of its row."""
    computed = indices.at[indices // 2, indices].add(1)
    return jnp.take(computed // 3, np.array([1, 0, 2]), axis=1), jnp.zeros((12, 2, 3)).at[computed].add(values)


POSITIVE = np.einsum("bij,bkj->bik", *[numbers(3, 6, 9)] * 2).astype("float32")
# strategy -> a program that it serves, and its arguments
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "vectors": (lambda v: jnp.sin(v) * 2, numbers(130)),
    "vectors of whole rows": (lambda x, b: (x + b).astype("float16"), numbers(6, 64), numbers(64)),
    "tiles": (lambda x: x.T + 1, numbers(20, 37)),
    "warps": (lambda x: x.sum(1), numbers(20, 37)),
    "groups": (nn.softmax, numbers(5, 200)),
    "groups, in registers": (nn.softmax, numbers(5, 256)),
    "large groups": (nn.softmax, numbers(3, 700)),
    "chunks of few rows": (nn.softmax, numbers(2, 2400)),
    "items": (lambda x: jnp.sort(x, 1)[:, ::-1] * 2, numbers(6, 5)),
    "chunks": (lambda x: (x.sum(), x.sum(0)), numbers(200, 100)),
    "scans": (lambda x: jnp.cumsum(x, 1), numbers(2, 150)),
    "scans of parts": (jnp.cumsum, numbers(2100)),
    "last writes": (lambda v, i: jnp.zeros(11).at[i].set(v), numbers(130), PLACES),
    "atomic items": (lambda v, i: jnp.zeros(11).at[i].add(v), numbers(130), PLACES),
    # the quotients take no memory of their indices, which other threads of the row still read
    "atomic items of rows": (lambda v, i: rows_and_quotients(v, i), numbers(3), PLACES[:6].reshape(2, 3)),
    "sort in groups": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1)), numbers(3, 50)),
    "merge": (jnp.argsort, numbers(300)),
    "tiled product": (lambda x, y: x @ y, numbers(70, 37), numbers(37, 90)),
    "tiled product with an epilogue": (lambda x, y: jnp.tanh(x @ y + 1), numbers(70, 37), numbers(37, 90)),
    "product whose reader also writes a value for each row": (
        lambda x, y, v: ((x @ y) * jnp.sin(v)[:, None] + y[0], jnp.sin(v)), numbers(70, 37), numbers(37, 90),
        numbers(70),
    ),
    "fragments": (
        lambda x, y: (x @ y) * 2, numbers(70, 40, dtype="float16"), numbers(40, 90, dtype="float16"),
    ),
    "fragments of copied slices": (
        lambda x, y: x @ y, numbers(136, 104, dtype="float16"), numbers(104, 144, dtype="float16"),
    ),
    "fragments of transposed slices": (
        lambda x, y: (x.T @ y.T) * 2, numbers(136, 80, dtype="bfloat16"), numbers(80, 136, dtype="bfloat16"),
    ),
    "fragments of copied windows": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        numbers(2, 9, 11, 8, dtype="float16"), numbers(3, 3, 8, 24, dtype="float16"),
    ),
    "transforms": (jnp.fft.fft, numbers(7, 30) + 1j * numbers(7, 30)),
    "transforms of real rows": (
        lambda x: (jnp.fft.rfftn(x), jnp.fft.irfft2(x * (1 + 2j), (3, 12))), numbers(3, 5, 7),
    ),
    "transforms along the first axis": (
        lambda x: jnp.fft.ifft(x, axis=0), numbers(13, 3, dtype="float64") + 1j * numbers(13, 3, dtype="float64"),
    ),
    "Cholesky factors": (jnp.linalg.cholesky, POSITIVE * np.float32([[[1]], [[-1]], [[1]]])),
    "factors with pivots, and solutions": (lambda x, b: jnp.linalg.solve(x, b), numbers(3, 7, 7), numbers(3, 7, 20)),
    "triangular systems": (
        lambda x, b: lax.linalg.triangular_solve(x, b, left_side=True, conjugate_a=True, transpose_a=True),
        (POSITIVE + np.triu(POSITIVE) * (np.arange(6) % 2 * 2j)).astype("complex64"), numbers(3, 6, 18) + 2j,
    ),
    "sum of parts": (lambda x, y: x @ y, numbers(17, 700), numbers(700, 18)),
    "attention": (
        partial(nn.dot_product_attention, is_causal=True, softcap=2.0), numbers(1, 20, 2, 5), numbers(1, 18, 1, 5),
        numbers(1, 18, 1, 5), numbers(2, 20, 18),
    ),
    "gradients of attention": (
        rlx.grad(lambda *x: (nn.dot_product_attention(*x, is_causal=True, softcap=2.0) ** 2).sum(), (0, 1, 2, 3)),
        numbers(2, 20, 2, 5), numbers(2, 18, 1, 5), numbers(2, 18, 1, 5), numbers(2, 20, 18),
    ),
    "splats, and their gradient": blocks_program(7, 2, False, "float32"),
    "splats on exact rays, and their gradient": blocks_program(8, 3, True, "float64"),
}


def attention_loss(*given: Any) -> Any:
    """A number whose derivatives by query, key, value and bias need every launch."""
    return (nn.dot_product_attention(*given, is_causal=True, softcap=2.0) ** 2).sum()


def narrow_attention(features: int, dtype: str) -> tuple[np.ndarray, ...]:
    """Query, key, value and bias; more queries than a group has rows."""
    given = numbers(1, 70, 2, features), numbers(1, 18, 1, features), numbers(1, 18, 1, features)
    return (*(x.astype(dtype) for x in given), numbers(2, 70, 18))


# features -> how narrow operands are; of more than 64 and 128 features, launches have other tiles
NARROW = {9: "float16", 16: "bfloat16", 72: "float16", 136: "float16"}


def plan_of(function: Callable[..., Any], *arguments: np.ndarray, units: Fragments | None = None) -> Plan:
    """The plan of a function for GPUs whose matrix units multiply 16-bit numbers."""
    wide = [ProductType.of(name, "float32") for name in ("float16", "bfloat16")]
    options = lowering_options(SMALL)
    products = replace(options.products, types=(*options.products.types, *wide))
    context = Context(replace(options, products=products), claims_of(units))
    return lower_to_plan(rlx.make_program(function)(*arguments), context=context)


def check(
    plan: Plan, inputs: list[np.ndarray], dialect: DeviceDialect, limits: Limits, coarse: float = 0
) -> InterpretedProgram:
    """Run a plan as a device would, and as the reference does; `coarse`: an error relative to the largest number."""
    expected = [np.zeros(b.size, b.dtype) for b in plan.outputs]
    run_plan(plan, [np.array(x) for x in inputs], expected)
    program = InterpretedProgram(plan, dialect, limits)
    for got, wanted in zip(program.run(inputs), expected, strict=True):
        if wanted.dtype.kind in "fc" or is_narrow(wanted.dtype):
            wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
            rtol = 5e-5 if wanted.dtype.itemsize > 2 else 0.02  # sums are in another order
            atol = max(5e-5, coarse * max(1.0, float(np.abs(wanted).max(initial=0))))
            np.testing.assert_allclose(got.astype(wide), wanted.astype(wide), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(got, wanted)
    return program


def flat(arguments: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """The elements of arrays."""
    return [np.ascontiguousarray(a).reshape(-1) for a in arguments]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strategy", PROGRAMS)
@pytest.mark.selected(96)
def test_strategies_compute_the_reference_without_races(strategy: str, device: str) -> None:
    function, *arguments = PROGRAMS[strategy]
    with scoped(check=True):
        program = check(plan_of(function, *arguments), flat(tuple(arguments)), DEVICES[device](), SMALL)
    assert not any(name.startswith("reference") for name in program.ran), program.ran


UNITS = ("sm_80", "sm_90", "gfx90a", "gfx942", "gfx1100")


def by_fragments(features: int, device: str, *, gradient: bool) -> None:
    """Attention on a matrix unit; weights and cotangents of scores are rounded where they are multiplied."""
    given, dialect = narrow_attention(features, NARROW[features]), DEVICES[device]()
    rounded = 4 * float(ml_dtypes.finfo(NARROW[features]).eps)
    function = rlx.grad(attention_loss, (0, 1, 2, 3)) if gradient else partial(
        nn.dot_product_attention, is_causal=True, softcap=2.0
    )
    with scoped(check=True):
        plan = plan_of(function, *given, units=dialect.fragments(given[0].dtype))
        ran = check(plan, flat(given), dialect, SMALL, rounded).ran
    attention = [name for name in ran if "attention" in name or "gradient" in name]
    assert attention and not any(name.startswith("reference") for name in ran), ran
    assert all(name.endswith(" by fragments") for name in attention) == (features <= 128 or device != "gfx1100")


@pytest.mark.parametrize("device", ["sm_80", "gfx1100"])
def test_matrix_units_compute_attention(device: str) -> None:
    by_fragments(9, device, gradient=False)


@pytest.mark.thorough
@pytest.mark.parametrize("device", UNITS)
@pytest.mark.parametrize("features", NARROW)
def test_matrix_units_compute_attention_and_its_gradient(features: int, device: str) -> None:
    for gradient in (False, True):
        by_fragments(features, device, gradient=gradient)


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["opencl", "sm_90", "gfx942"])
def test_samples_of_primitives(device: str) -> None:
    options = lowering_options(Limits())
    for case in cases():
        program, captured = trace_program(case.bind, case.types)
        plan = lower_to_plan(close_over(program, captured), None, options)
        inputs = flat(case.arrays)
        if len(inputs) == len(plan.inputs):
            check(plan, inputs, DEVICES[device](), replace(Limits(), group=64))
