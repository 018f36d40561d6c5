"""Convolutions whose patches are made block by block, against one product of all patches."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx import lax
from rlx.backends.cpu import CpuBackend
from rlx.ir.kernels import Plan, Scan
from rlx.ir.options import LoweringOptions, ProductLimits

rng = np.random.default_rng(2)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch) -> None:
    monkeypatch.setattr(CpuBackend, "lowering", LoweringOptions(products=ProductLimits(patches=512)))


def scans(plan: Plan) -> int:
    return sum(isinstance(kernel, Scan) for kernel in plan.kernels)


CASES = {
    "plain": ((6, 9, 8, 3), (3, 3, 3, 4), "NHWC", "HWIO", {}),
    "channels first": ((6, 3, 9, 8), (4, 3, 3, 3), "NCHW", "OIHW", {}),
    "strided": ((4, 9, 10, 3), (3, 2, 3, 4), "NHWC", "HWIO", {"window_strides": (2, 3)}),
    "dilated": ((4, 9, 10, 3), (3, 2, 3, 4), "NHWC", "HWIO", {"rhs_dilation": (2, 2), "lhs_dilation": (1, 2)}),
    "feature groups": ((6, 9, 8, 4), (3, 3, 2, 6), "NHWC", "HWIO", {"feature_group_count": 2}),
    "batch groups": ((6, 9, 8, 4), (3, 3, 4, 6), "NHWC", "HWIO", {"batch_group_count": 2}),
    "a prime batch": ((7, 9, 8, 3), (3, 3, 3, 4), "NHWC", "HWIO", {}),
    "kernel out first": ((6, 9, 8, 3), (4, 3, 3, 3), "NHWC", "OHWI", {}),
    "batch last": ((9, 8, 3, 6), (3, 3, 3, 4), "HWCN", "HWIO", {}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_blocks(name, dtype):
    lhs_shape, rhs_shape, layout, kernel_layout, options = CASES[name]
    options = {"window_strides": (1, 1), "padding": "SAME", **options}
    if "lhs_dilation" in options:
        options["padding"] = ((1, 1), (2, 0))
    numbers = (layout, kernel_layout, "NHWC" if layout == "HWCN" else layout)

    def convolve(x, w):
        return lax.conv_general_dilated(x, w, dimension_numbers=numbers, **options)

    def loss(x, w):
        y = convolve(x, w)
        return (y * y).sum().real

    x, w = (rng.normal(size=shape).astype(dtype) for shape in (lhs_shape, rhs_shape))
    blocked = rlx.jit(convolve)
    np.testing.assert_allclose(blocked(x, w), convolve(x, w), rtol=2e-4, atol=2e-5)
    if layout != "HWCN" and name != "batch groups":
        assert scans(blocked.lower(x, w).compile().plan) == 1
    gradient = rlx.grad(loss, (0, 1))
    for mine, eager in zip(rlx.jit(gradient)(x, w), gradient(x, w), strict=True):
        np.testing.assert_allclose(mine, eager, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((3, 1), (2, 4)), ((-1, 0), (1, -2))])
def test_no_products_with_zeros_between_elements(factor, padding):
    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), padding, (factor, 2), dimension_numbers=("NHWC", "HWIO", "NHWC"))

    x, w = (rng.normal(size=s).astype("f4") for s in ((2, 5, 6, 3), (4, 3, 3, 2)))
    expected = convolve(x, w)
    np.testing.assert_allclose(rlx.jit(convolve)(x, w), expected, rtol=1e-4, atol=1e-5)


def test_weights_sum_over_blocks():
    def loss(w, x):
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (y * y).sum()

    w, x = (rng.normal(size=s).astype("f4") for s in ((3, 3, 2, 4), (8, 20, 20, 2)))
    plan = rlx.jit(rlx.grad(loss)).lower(w, x).compile().plan
    assert scans(plan) == 2


def test_what_two_convolutions_read_is_padded_once():
    def both(x, w, v):
        numbers = ("NHWC", "HWIO", "NHWC")
        return [lax.conv_general_dilated(x * 2, k, (1, 1), "SAME", dimension_numbers=numbers) for k in (w, v)]

    x, w, v = (rng.normal(size=s).astype("f4") for s in ((2, 6, 6, 3), (3, 3, 3, 4), (3, 3, 3, 5)))
    plan = rlx.jit(both).lower(x, w, v).compile().plan
    assert sum(b.size == 2 * 8 * 8 * 3 for b in plan.buffers) == 1
    for mine, eager in zip(rlx.jit(both)(x, w, v), both(x, w, v), strict=True):
        np.testing.assert_allclose(mine, eager, rtol=1e-4, atol=1e-5)
