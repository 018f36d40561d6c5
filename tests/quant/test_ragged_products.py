"""Products of groups of rows with quantised matrices: against those of the decoded stack, and what memory they take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import lax, quant
from rlx.backends.cpu.runtime.entry import load_runtime
from rlx.backends.cpu.runtime.table import build_table
from rlx.errors import DtypeError, InputTypeError, ShapeError

SIZES = ([1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 2], [3, 0, 40, 7, 0, 12], [100, 0, 0, 0, 0, 28], [5] * 6, [0] * 6)


def stack(scheme: str, groups: int = 6, n: int = 37, k: int = 256) -> quant.QuantizedArray:
    return quant.quantize(np.random.default_rng(0).standard_normal((groups, n, k)).astype(np.float32), scheme)


@pytest.mark.parametrize("scheme", ["int8/32", "int8a/32", "nvfp4", "gguf_q4_k"])
@pytest.mark.parametrize("behind", [0, 3])
@pytest.mark.selected(1)
def test_products_are_those_of_the_decoded_stack(scheme: str, behind: int) -> None:
    w, product = stack(scheme), rlx.jit(quant.dequant_ragged_dot)
    full = np.swapaxes(np.asarray(quant.dequantize(w)), 1, 2)
    for given in SIZES:
        sizes = np.array(given, np.int32)
        x = np.random.default_rng(1).standard_normal((sizes.sum() + behind, 256)).astype(np.float32)

        def expected(x: Any, sizes: Any = sizes) -> Any:
            return lax.ragged_dot(x, full, sizes)

        np.testing.assert_allclose(product(x, w, sizes), expected(x), atol=1e-4)
        slope = rlx.jit(rlx.grad(lambda x, sizes=sizes: (quant.dequant_ragged_dot(x, w, sizes) ** 2).sum()))(x)
        np.testing.assert_allclose(slope, rlx.grad(lambda x: (expected(x) ** 2).sum())(x), atol=5e-3)


def test_a_stack_may_have_columns_scales_of_eight_bits_and_sizes_of_its_own_in_a_batch() -> None:
    w = quant.double_quantize(stack("nf4/64"))
    x = np.random.default_rng(1).standard_normal((2, 9, 256)).astype(np.float32)
    sizes = np.array([[2, 0, 3, 1, 1, 2], [0, 9, 0, 0, 0, 0]], np.int32)
    full = np.swapaxes(np.asarray(quant.dequantize(w)), 1, 2)
    found = rlx.jit(rlx.vmap(quant.dequant_ragged_dot, (0, None, 0)))(x, w, sizes)
    for each, given, count in zip(found, x, sizes, strict=True):
        np.testing.assert_allclose(each, lax.ragged_dot(given, full, count), atol=1e-4)
    np.testing.assert_allclose(quant.dequant_ragged_dot(x[0], replace(w, axis=-2), sizes[0]), found[0], atol=1e-4)


@pytest.mark.parametrize("rows", [2, 256])
def test_a_stack_is_never_decoded_as_a_whole(rows: int) -> None:
    """A program takes one packed matrix, the results of tiles, and a MiB, where the stack has 64 MiB of numbers."""
    w = stack("gguf_q4_0", 1, 1, 1024)
    packed = replace(w, elements=rlx.ShapeDtypeStruct((16, 1024, *w.elements.shape[2:]), np.uint8))
    x, sizes = rlx.ShapeDtypeStruct((rows, 1024), np.float32), rlx.ShapeDtypeStruct((16,), np.int32)
    compiled = rlx.jit(quant.dequant_ragged_dot).lower(x, packed, sizes).compile()
    arena = build_table(compiled.plan, load_runtime().addresses).arena
    results = 4 * 1024 * (2 if rows == 2 else rows + 16 * 16)
    assert "dequantized_product" in str(compiled.plan)
    assert arena <= 1024 * w.elements.shape[2] + 2 * results + (1 << 20)


def test_mistakes_are_named() -> None:
    w, x = stack("int8/32"), np.ones((3, 256), np.float32)
    with pytest.raises(InputTypeError, match="ndarray for a weight"):
        quant.dequant_ragged_dot(x, np.ones((6, 256, 3)), np.ones(6, int))  # ty: ignore[invalid-argument-type]
    with pytest.raises(ShapeError, match=r"a weight of \[6, 37, 256\] and sizes of \[5\]") as raised:
        quant.dequant_ragged_dot(x, w, np.ones(5, int))
    assert "test_ragged_products.py" in str(raised.value), "the user's line"
    with pytest.raises(DtypeError, match="sizes of float64"):
        quant.dequant_ragged_dot(x, w, np.ones(6))
    with pytest.raises(ShapeError, match=r"x of \[1, 128\]"):
        quant.dequant_ragged_dot(x[:, :128], w, np.array([3, 0, 0, 0, 0, 0]))
