"""precision= of products and convolutions: who may round float32 to tf32, and who keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors, export, fusion, lax, opt
from rlx.backends.cuda import CudaBackend
from rlx.graph.common_forms import COMMON_FORMS
from rlx.ir.kernels import Contract
from rlx.ir.program import Equation, Program
from rlx.passes.pipeline import lower_to_plan

PRODUCTS = ("dot_general", "conv_general_dilated")


def draw(*shape: int) -> np.ndarray:
    """Numbers that tf32 rounds."""
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def products(program: Program) -> list[Equation]:
    """Those of a program."""
    return [e for e in program.equations if e.primitive.name in PRODUCTS]


def are_rounded(function: Callable[..., Any], *args: Any) -> list[bool]:
    """Whether each product of a function may be."""
    return [bool(e.params.get("tf32")) for e in products(rlx.make_program(function)(*args))]


X, Y = draw(4, 4), draw(4, 4)
LINE, WINDOW = draw(1, 1, 9), draw(2, 1, 3)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matmul": lambda p: are_rounded(lambda x, y: jnp.matmul(x, y, precision=p), X, Y),
    "batched matmul": lambda p: are_rounded(lambda x, y: jnp.matmul(x, y, precision=p), draw(3, 4, 4), draw(3, 4, 4)),
    "dot": lambda p: are_rounded(lambda x, y: jnp.dot(x, y, precision=p), X, Y),
    "inner": lambda p: are_rounded(lambda x, y: jnp.inner(x, y, precision=p), X, Y),
    "vdot": lambda p: are_rounded(lambda x, y: jnp.vdot(x, y, precision=p), X, Y),
    "vecdot": lambda p: are_rounded(lambda x, y: jnp.vecdot(x, y, precision=p), X, Y),
    "tensordot": lambda p: are_rounded(lambda x, y: jnp.tensordot(x, y, 1, precision=p), X, Y),
    "einsum": lambda p: are_rounded(lambda x, y: jnp.einsum("ij,kj->ki", x, y, precision=p), X, Y),
    "multi_dot": lambda p: are_rounded(lambda x, y: jnp.linalg.multi_dot([x, y, x], precision=p), X, Y),
    "convolve": lambda p: are_rounded(lambda x, y: jnp.convolve(x, y, precision=p), X[0], Y[0]),
    "correlate": lambda p: are_rounded(lambda x, y: jnp.correlate(x, y, "full", precision=p), X[0], Y[0]),
    "lax.dot": lambda p: are_rounded(lambda x, y: lax.dot(x, y, precision=p), X, Y),
    "batch_matmul": lambda p: are_rounded(lambda x, y: lax.batch_matmul(x, y, p), X, Y),
    "ragged_dot": lambda p: are_rounded(lambda x, y: lax.ragged_dot(x, y, jnp.array([1, 3]), p), X, draw(2, 4, 4)),
    "conv": lambda p: are_rounded(lambda x, y: lax.conv(x, y, (1,), "SAME", p), LINE, WINDOW),
    "conv_transpose": lambda p: are_rounded(
        lambda x, y: lax.conv_transpose(x, y, (2,), "SAME", precision=p), draw(1, 5, 2), draw(3, 2, 2)
    ),
    "conv_with_general_padding": lambda p: are_rounded(
        lambda x, y: lax.conv_with_general_padding(x, y, (1,), "SAME", None, None, p), LINE, WINDOW
    ),
}
ROUNDED = (
    "high", "tensorfloat32", "bfloat16_3x", "bfloat16", "fastest", lax.Precision.HIGH, ("high", "high"),
    lax.DotAlgorithmPreset.TF32_TF32_F32, "TF32_TF32_F32", lax.DotAlgorithmPreset.BF16_BF16_F32,
    lax.DotAlgorithm(np.float16, np.float16, np.float32),
)  # fmt: skip
EXACT = (
    None, "default", "highest", "float32", lax.Precision.DEFAULT, lax.Precision.HIGHEST, ("high", "highest"),
    lax.DotAlgorithmPreset.F32_F32_F32, lax.DotAlgorithmPreset.TF32_TF32_F32_X3, "BF16_BF16_F32_X6",
    lax.DotAlgorithm(np.float16, np.float16, np.float32, num_primitive_operations=3),
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_passes_it_on(name: str) -> None:
    """All products of a function, where it is asked for and only there."""
    rounded, exact = FUNCTIONS[name]("tensorfloat32"), FUNCTIONS[name](None)
    assert rounded and all(rounded) and not any(exact)
    with rlx.default_matmul_precision("tensorfloat32"):
        assert FUNCTIONS[name](None) == rounded
        assert not any(FUNCTIONS[name]("highest"))


@pytest.mark.parametrize("name", ["dot", "conv"])
def test_what_asks_for_it(name: str) -> None:
    """Whatever is no more exact than tf32, for both operands."""
    assert all(all(FUNCTIONS[name](precision)) for precision in ROUNDED)
    assert not any(any(FUNCTIONS[name](precision)) for precision in EXACT)
    for unknown in ("exactest", 3):
        with pytest.raises(errors.UnsupportedError, match="no precision"):
            FUNCTIONS[name](unknown)


def test_other_dtypes_are_not_rounded() -> None:
    for dtype in ("float64", "float16", "complex64", "int32"):
        x = X.astype(dtype)
        assert are_rounded(lambda x: jnp.matmul(x, x, precision="high"), x) == [False]


@pytest.mark.parametrize("name", ["product", "convolution"])
def test_transforms_keep_it(name: str) -> None:
    """Both cotangents, the tangent, and a batch of them."""

    def product(x: Any, y: Any) -> Any:
        return jnp.sin(jnp.matmul(x, y, precision="high"))

    def convolution(x: Any, y: Any) -> Any:
        return jnp.sin(lax.conv(x, y, (1,), "SAME", "high"))

    f, x, y = (product, X, Y) if name == "product" else (convolution, LINE, WINDOW)
    gradient = rlx.grad(lambda x, y: f(x, y).sum(), (0, 1))
    assert are_rounded(gradient, x, y) == [True] * 3
    assert are_rounded(lambda x, y: rlx.jvp(f, (x, y), (x, y)), x, y) == [True] * 3
    batch = np.stack([x, x])
    assert are_rounded(rlx.vmap(gradient, (0, None)), batch, y) == [True] * 3
    assert are_rounded(rlx.vmap(gradient), batch, np.stack([y, y])) == [True] * 3


def test_jitted_functions_are_traced_for_each_default() -> None:
    traced = []

    @rlx.jit
    def f(x: Any) -> Any:
        traced.append(rlx.config.default_matmul_precision)
        return x @ x

    expected = np.asarray(f(X))
    for _ in range(2):
        with rlx.default_matmul_precision("high"):
            np.testing.assert_array_equal(f(X), expected)  # a processor computes as before
        f(X)
    assert traced == [None, "high"]
    rlx.config.update("jax_default_matmul_precision", "high")
    try:
        f(X)
        assert len(traced) == 2 and rlx.config.read("jax_default_matmul_precision") == "high"
        assert are_rounded(lambda x: x @ x, X) == [True]
    finally:
        rlx.config.update("jax_default_matmul_precision", None)
    assert are_rounded(lambda x: x @ x, X) == [False]


def test_products_of_two_precisions_are_not_joined() -> None:
    """The pass that puts matrices side by side, and the forms that products are brought into."""

    def f(x: Any, v: Any, w: Any) -> Any:
        return x @ v, jnp.matmul(x, w, precision="high")

    graph = rlx.Graph.trace(f, X, Y, Y)
    joined = opt.run_passes(graph, [fusion.FuseSharedInputMatMul(constants_only=False)])
    assert [bool(e.params.get("tf32")) for e in products(joined.program)] == [False, True]
    formed = opt.run_passes(graph, [opt.LowerDotGeneral()])
    assert [bool(e.params.get("tf32")) for e in products(formed.program)] == [False, True]
    spread = COMMON_FORMS["dot_general"](*map(jnp.asarray, (X, Y)), **products(graph.program)[1].params)
    np.testing.assert_allclose(spread, X @ Y, rtol=1e-5)


def test_plans_for_tensor_cores() -> None:
    """A device with products of tf32 takes them where they are asked for; one without computes in float32."""

    def plan(precision: Any, options: Any = None) -> list[bool]:
        program = rlx.make_program(lambda x, y: jnp.matmul(x, y, precision=precision))(draw(64, 64), draw(64, 64))
        found = lower_to_plan(program, None, options)
        return [k.tf32 for k in found.kernels if isinstance(k, Contract)]

    cuda = CudaBackend().lowering
    assert plan("tensorfloat32", cuda) == [True]
    assert plan(None, cuda) == plan("tensorfloat32") == [False]


def test_programs_elsewhere_say_it() -> None:
    """StableHLO's text, written and read."""

    def f(x: Any, line: Any, window: Any) -> Any:
        return jnp.dot(x, x, precision="high"), lax.conv(line, window, (1,), "SAME", "high"), jnp.dot(x, x)

    text = export.export(rlx.jit(f))(X, LINE, WINDOW).mlir_module()
    assert text.count("precision HIGH") == 4
    pytest.importorskip("jaxlib.mlir", reason="reading StableHLO takes the parser of jaxlib")
    assert [bool(e.params.get("tf32")) for e in products(rlx.import_stablehlo(text).program())] == [True, True, False]
