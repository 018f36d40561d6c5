"""How convolutions become products: patches along memory, results in their own layout, bands that stay in cache."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest

import rlx
from rlx import lax
from rlx.backends.cpu import CpuBackend
from rlx.ir.kernels import Contract, Kernel, Loops, Plan, RowTiles
from rlx.ir.options import LoweringOptions, RowTileLimits

rng = np.random.default_rng(4)
CHANNELS_FIRST = ("NCHW", "OIHW", "NCHW")


def convolve(x, w, strides=(1, 1), layout=CHANNELS_FIRST):
    return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=layout)


def plan_of(function, *shapes) -> Plan:
    return rlx.jit(function, device="cpu").lower(*(rlx.ShapeDtypeStruct(s, "float32") for s in shapes)).compile().plan


def members(plan: Plan) -> Iterator[Kernel]:
    for kernel in plan.kernels:
        yield from kernel.kernels if isinstance(kernel, RowTiles) else (kernel,)


def copies_of_windows(plan: Plan) -> list[Loops]:
    """The nests that write the largest temporary."""
    loops = [k for k in members(plan) if isinstance(k, Loops)]
    most = max(b.nbytes for k in loops for b in k.writes)
    return [k for k in loops if any(b.nbytes == most for b in k.writes)]


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_windows_are_copied_along_the_image_and_not_along_the_kernel(strides):
    plan = plan_of(lambda x, w: convolve(x, w, strides), (1, 16, 24, 24), (8, 16, 3, 3))
    (copy,) = copies_of_windows(plan)
    assert copy.sizes[-1] % (24 // strides[0]) == 0, copy.sizes


def test_channels_last_are_copied_along_the_channels():
    plan = plan_of(lambda x, w: convolve(x, w, layout=("NHWC", "HWIO", "NHWC")), (1, 24, 24, 16), (3, 3, 16, 8))
    (copy,) = copies_of_windows(plan)
    assert copy.sizes[-1] % 16 == 0, copy.sizes


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", [CHANNELS_FIRST, ("NHWC", "HWIO", "NHWC")])
def test_products_write_the_result_itself(batch, layout):
    shapes = [(batch, 16, 24, 24), (8, 16, 3, 3)] if layout[0] == "NCHW" else [(batch, 24, 24, 16), (3, 3, 16, 8)]
    plan = plan_of(lambda x, w: convolve(x, w, layout=layout), *shapes)
    products = [k for k in members(plan) if isinstance(k, Contract)]
    assert products and all(k.out.buffer.role == "output" for k in products)


def test_bands_of_many_patches_stay_in_cache():
    plan = plan_of(convolve, (1, 64, 56, 56), (16, 64, 3, 3))
    (tiles,) = (k for k in plan.kernels if isinstance(k, RowTiles))
    assert tiles.count > 1 and tiles.scratch <= RowTileLimits().widest


@pytest.mark.parametrize(
    ("lhs", "rhs", "strides", "options"),
    [
        ((1, 16, 64, 32), (8, 16, 3, 3), (1, 1), {}),
        ((3, 16, 64, 32), (8, 16, 3, 3), (2, 1), {}),
        ((2, 32, 40, 40), (16, 16, 3, 3), (1, 1), {"feature_group_count": 2}),
        ((4, 16, 40, 40), (8, 16, 3, 3), (1, 1), {"batch_group_count": 2}),
        ((2, 3, 65, 63), (8, 3, 7, 7), (2, 2), {"rhs_dilation": (2, 1)}),
        ((2, 8, 400), (4, 8, 5), (1,), {}),
    ],
)
@pytest.mark.selected(1)
def test_bands_compute_what_jax_does(lhs, rhs, strides, options, monkeypatch):
    monkeypatch.setattr(CpuBackend, "lowering", LoweringOptions(row_tiles=RowTileLimits(widest=1 << 15)))
    x, w = (rng.normal(size=s).astype("f4") for s in (lhs, rhs))

    def loss(lax):
        return lambda x, w: (lax.conv_general_dilated(x, w, strides, "SAME", **options) ** 3).sum()

    np.testing.assert_allclose(
        rlx.jit(lambda x, w: lax.conv_general_dilated(x, w, strides, "SAME", **options))(x, w),
        jax.lax.conv_general_dilated(x, w, strides, "SAME", **options),
        rtol=1e-4,
        atol=1e-4,
    )
    for mine, theirs in zip(
        rlx.jit(rlx.grad(loss(lax), (0, 1)))(x, w), jax.grad(loss(jax.lax), (0, 1))(x, w), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=1e-5 * np.abs(theirs).max())
