"""Products that a library makes: which maps it takes in as epilogues, and what cuBLASLt is told.

Nothing here has run on a GPU: a module in cuBLASLt's place reads the descriptors, and multiplies by NumPy.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCupy, installed

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends.cuda import CudaBackend
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.cuda.products import is_library_product
from rlx.backends.gpu.epilogues import LibraryProduct, epilogue_of
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.ir.fused_products import fused_product
from rlx.ir.kernels import RowTiles
from rlx.passes.pipeline import lower_to_plan


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with one device."""
    yield from installed(monkeypatch, FakeCupy())


def normal(*shape: int, dtype: str = "float32") -> Any:
    """Normal numbers."""
    numbers = np.random.default_rng(sum(shape)).normal(size=shape)
    return (numbers + 1j * numbers[::-1] if dtype.startswith("complex") else numbers).astype(jnp.dtype(dtype))


def on_both(f: Any, *arguments: Any, device: str = "cuda") -> list[tuple[np.ndarray, np.ndarray]]:
    """A program's results there and on the CPU."""
    there, here = (rlx.tree.leaves(rlx.jit(f, device=name)(*arguments)) for name in (device, "cpu"))
    return [(np.asarray(a), np.asarray(b)) for a, b in zip(there, here, strict=True)]


def made(cupy: FakeCupy) -> list[str]:
    """The epilogues of the products that were made."""
    return [entry[1] for entry in cupy.log if entry[0] == "matmul"]


def close(f: Any, *arguments: Any, tolerance: float = 2e-6) -> None:
    """Results are those of the CPU."""
    for found, expected in on_both(f, *arguments):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def program(f: Any, *arguments: Any) -> DeviceProgram:
    """What is launched for a program where there is no GPU to ask."""
    plan = lower_to_plan(rlx.make_program(f)(*arguments), None, CudaBackend().lowering)
    return DeviceProgram(plan, CudaDialect(products=is_library_product, tensor_cores=True), Limits())


# ------------------------------------------------------------------ epilogues
X, W, B, V = normal(24, 16), normal(16, 32), normal(32), normal(32, 40)
R, C = normal(24, 32), normal(24)


def gelu_by_hand(x: Any) -> Any:
    """GELU in another spelling of its approximation."""
    return 0.5 * x * (1 + jnp.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)))


def kept(x: Any, w: Any, b: Any) -> Any:
    """An activation, and what it is taken of."""
    h = x @ w + b
    return h, nn.gelu(h)


# program, arguments, the library's epilogue, and what it is called for people
MATCHES: dict[str, tuple[Any, tuple[Any, ...], str, str]] = {
    "bias": (lambda x, w, b: x @ w + b, (X, W, B), "BIAS", "bias"),
    "relu": (lambda x, w: jnp.maximum(x @ w, 0), (X, W), "RELU", "relu"),
    "relu of a bias": (lambda x, w, b: nn.relu(b + x @ w), (X, W, B), "RELU_BIAS", "bias, relu"),
    "gelu": (lambda x, w: nn.gelu(x @ w), (X, W), "GELU", "gelu"),
    "gelu by hand": (lambda x, w: gelu_by_hand(x @ w), (X, W), "GELU", "gelu"),
    "gelu of a bias": (lambda x, w, b: nn.gelu(x @ w + b), (X, W, B), "GELU_BIAS", "bias, gelu"),
    "scale": (lambda x, w: 0.25 * (x @ w), (X, W), "DEFAULT", "scale"),
    "residual": (lambda x, w, r: r + x @ w, (X, W, R), "DEFAULT", "sum"),
    "share of a residual": (
        lambda x, w, b, r: nn.relu(2 * (x @ w) + b - 3 * r), (X, W, B, R), "RELU_BIAS", "scale, sum, bias, relu",
    ),
    "the operand itself": (lambda x, w: x @ w + x, (normal(16, 16), normal(16, 16)), "DEFAULT", "sum"),
    "another shape": (lambda x, w, b: (x @ w + b).reshape(4, 6, 32), (X, W, B), "BIAS", "bias"),
    "batches": (
        lambda x, w, b: nn.relu(x @ w + b), (normal(3, 24, 16), normal(3, 16, 32), normal(3, 1, 32)), "RELU_BIAS",
        "bias, relu",
    ),
    "one bias for all batches": (
        lambda x, w, b: x @ w + b, (normal(3, 24, 16), normal(3, 16, 32), B), "BIAS", "bias",
    ),
    "a residual for all batches": (
        lambda x, w, r: x @ w + r, (normal(3, 24, 16), normal(3, 16, 32), R), "DEFAULT", "sum",
    ),
    "tf32": (
        lambda x, w, b: nn.relu(jnp.matmul(x, w, precision="tensorfloat32") + b), (X, W, B), "RELU_BIAS", "bias, relu",
    ),
    "float64": (lambda x, w, b: x @ w + b, (X.astype("f8"), W.astype("f8"), B.astype("f8")), "BIAS", "bias"),
    "narrow": (lambda x, w: nn.relu(x @ w), (X.astype("f2"), W.astype("f2")), "RELU", "relu"),
    "narrow, summed wide": (
        lambda x, w, b: (jnp.matmul(x, w, preferred_element_type="float32") + b).astype("float16"),
        (X.astype("f2"), W.astype("f2"), B.astype("f2")), "BIAS", "bias",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MATCHES)
def test_what_is_an_epilogue(name: str, cupy: FakeCupy) -> None:
    """It is one product, and no launch beside it; its values are those of the CPU."""
    f, arguments, epilogue, called = MATCHES[name]
    coarse = 2e-3 if name in ("tf32", "narrow", "narrow, summed wide") else 2e-6
    close(f, *arguments, tolerance=coarse)
    assert made(cupy) == [epilogue] and not cupy.launched()
    assert program(f, *arguments).shown_launches().endswith(f": cuBLASLt with {called}")


NEAR_MISSES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "another threshold": (lambda x, w: jnp.maximum(x @ w, 1), (X, W)),
    "a number for each row": (lambda x, w, c: x @ w + c[:, None], (X, W, C)),
    "NaN becomes 0": (lambda x, w: jnp.where(x @ w > 0, x @ w, 0), (X, W)),
    "leaky": (lambda x, w: nn.leaky_relu(x @ w), (X, W)),
    "exact gelu": (lambda x, w: nn.gelu(x @ w, approximate=False), (X, W)),
    "another gelu": (lambda x, w: (lambda h: 0.5 * h * (1 + jnp.tanh(0.8 * (h + 0.044715 * h**3))))(x @ w), (X, W)),
    "half of a gelu": (lambda x, w: 0.5 * nn.gelu(x @ w), (X, W)),
    "a bias behind": (lambda x, w, b: nn.relu(x @ w) + b, (X, W, B)),
    "two biases": (lambda x, w, b: x @ w + b + b[::-1], (X, W, B)),
    "a bias that is reversed": (lambda x, w, b: x @ w + b[::-1], (X, W, B)),
    "twice the bias": (lambda x, w, b: x @ w + 2 * b, (X, W, B)),
    "a factor": (lambda x, w, b: (x @ w) * b, (X, W, B)),
    "a square": (lambda x, w: (x @ w) ** 2, (X, W)),
    "a residual across": (lambda x, w, r: x @ w + r.T, (normal(32, 16), W, normal(32, 32))),
    "a result across": (lambda x, w, b: (x @ w + b).T, (X, W, B)),
    "a wider bias": (lambda x, w, b: (x @ w).astype("float64") + b, (X, W, B.astype("f8"))),
    "relu, and what it is taken of": (lambda x, w: (x @ w, nn.relu(x @ w)), (X, W)),
    "a second reader": (lambda x, w, b: (lambda h: (nn.gelu(h + b), jnp.sort(h, 0)))(x @ w), (X, W, B)),
    "narrow, and widened": (lambda x, w: nn.relu(x @ w).astype("float32"), (X.astype("f2"), W.astype("f2"))),
    # rounded before the bias is added, as eagerly
    "narrow with a bias": (lambda x, w, b: x @ w + b, (X.astype("f2"), W.astype("f2"), B.astype("f2"))),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_no_epilogue(name: str, cupy: FakeCupy) -> None:
    """A launch behind the product; the driver that is none has no values for it."""
    f, arguments = NEAR_MISSES[name]
    rlx.jit(f, device="cuda")(*arguments)
    assert set(made(cupy)) == {"DEFAULT"} and cupy.launched()


def test_what_makes_an_operand_is_launched_before(cupy: FakeCupy) -> None:
    """A library takes no nest in that makes its operands; there is no memory for the product beside its epilogue's."""

    def f(x: Any, w: Any, b: Any) -> Any:
        return nn.relu((x * 2 + 1) @ w + b)

    (parts,) = program(f, X, W, B).parts.values()
    maker, product = parts.members
    assert isinstance(product, LibraryProduct) and parts.local == (product.contract.lhs.buffer,)
    assert not isinstance(maker, LibraryProduct) and maker.writes == parts.local
    rlx.jit(f, device="cuda")(X, W, B)
    assert [entry[0] for entry in cupy.log if entry[0] in ("launch", "matmul")] == ["launch", "matmul"]
    assert made(cupy) == ["RELU_BIAS"]


def test_narrow_products_with_excess_precision(cupy: FakeCupy) -> None:
    """Where results of narrow floats need not be rounded, the bias is an epilogue."""
    f, arguments = NEAR_MISSES["narrow with a bias"]
    with rlx.scoped(excess_precision=True):
        close(f, *arguments, tolerance=2e-3)
        close(lambda x, w, b: nn.gelu(x @ w + b), *(a.astype(jnp.bfloat16) for a in arguments), tolerance=2e-2)
    assert made(cupy) == ["BIAS", "GELU_BIAS"]


def loss(x: Any, w: Any, v: Any) -> Any:
    """Two layers without biases."""
    return (nn.gelu(x @ w) @ v).sum()


def pulled_back(x: Any, w: Any, v: Any) -> Any:
    """Their gradient in the direction of twice the result: no launch but products."""
    y, pull = rlx.vjp(lambda x, w, v: nn.gelu(x @ w) @ v, x, w, v)
    return pull(2 * y)


def test_the_gradient_of_gelu_is_an_epilogue(cupy: FakeCupy) -> None:
    """What GELU is taken of is kept by the product that makes it, and read by the one of the gradient."""
    f = rlx.value_and_grad(loss, (0, 1, 2))
    plan = lower_to_plan(rlx.make_program(f)(X, W, V), None, CudaBackend().lowering)
    groups = [fused for kernel in plan.kernels if isinstance(kernel, RowTiles) and (fused := fused_product(kernel))]
    found = [epilogue for fused in groups if (epilogue := epilogue_of(fused)) is not None]
    assert [epilogue.activation for epilogue in found] == ["gelu", "gelu gradient"]
    assert found[0].kept is not None and found[0].kept == found[1].taken
    rlx.jit(f, device="cuda")(X, W, V)
    assert made(cupy)[0] == "GELU_AUX" and made(cupy).count("DGELU") == 1

    del cupy.log[:]
    close(pulled_back, X, W, V, tolerance=1e-5)
    assert made(cupy)[0] == "GELU_AUX" and made(cupy).count("DGELU") == 1 and not cupy.launched()


# ------------------------------------------------------------------ what the library is told
@pytest.mark.parametrize(
    "spec", ["mk,kn->mn", "km,kn->mn", "mk,nk->mn", "km,nk->mn", "bmk,bkn->bmn", "bkm,bnk->bmn", "bmk,kn->bmn"]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16", "bfloat16"])
def test_products_of_every_layout(spec: str, dtype: str, cupy: FakeCupy) -> None:
    """It counts in columns: the right operand comes first; what lies across is read as it lies."""
    sizes = {"b": 3, "m": 5, "k": 4, "n": 7}
    operands = [normal(*(sizes[c] for c in side), dtype=dtype) for side in spec.split("->")[0].split(",")]
    coarse = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 2e-6)
    close(lambda x, y: jnp.einsum(spec, x, y), *operands, tolerance=coarse)
    assert made(cupy) == ["DEFAULT"]


@pytest.mark.parametrize("shape", [(1, 5, 7), (5, 1, 7), (5, 7, 1), (2, 2, 2), (33, 17, 65)])
def test_products_of_odd_sizes(shape: tuple[int, int, int], cupy: FakeCupy) -> None:
    """One row, one column, no depth to speak of: whoever makes them, values are right or there is a launch."""
    m, k, n = shape
    found = on_both(lambda x, y: x @ y, normal(m, k), normal(k, n))
    if not cupy.launched():
        np.testing.assert_allclose(*found[0], rtol=2e-6, atol=2e-6)
    else:
        assert min(shape) == 1 and not made(cupy)


def test_parts_of_arrays(cupy: FakeCupy) -> None:
    """Rows that are farther apart than they are long, offsets, sums of products in place, slices of a loop."""
    x, y = normal(12, 140), normal(3, 140, 140)
    close(lambda x, y: x[2:, 4:20] @ y[1, :16, 3:9], x, y)
    close(lambda x, y: lax.scan(lambda c, m: (c @ m, None), x, y)[0], x, y, tolerance=1e-5)
    assert made(cupy) == ["DEFAULT"] * 4


def test_tf32_is_what_was_asked_for(cupy: FakeCupy) -> None:
    """CUBLAS_COMPUTE_32F_FAST_TF32; else CUBLAS_COMPUTE_32F, and 64F."""
    f = rlx.jit(lambda x, w: x @ w, device="cuda")
    f(X, W)
    with rlx.default_matmul_precision("tensorfloat32"):
        f(X, W)
    f(X.astype("f8"), W.astype("f8"))
    assert [entry[2:] for entry in cupy.log if entry[0] == "matmul"] == [
        (68, 1, 32, 24, 16), (77, 1, 32, 24, 16), (70, 1, 32, 24, 16),
    ]  # fmt: skip


def test_algorithms_are_chosen_once(cupy: FakeCupy) -> None:
    """For a shape at addresses of one kind; another layer of this shape asks for nothing."""
    asked, counts = cupy.cublas_lt.asked, []
    for _ in range(2):
        f = rlx.jit(lambda x, w, v: nn.relu(nn.relu(x @ w) @ v) @ v, device="cuda")
        for _ in range(4):
            f(normal(24, 32), normal(32, 32), normal(32, 32))
        counts.append(len(asked))
    assert sorted({*asked}) == ["DEFAULT", "RELU"]
    assert counts[0] == counts[1] <= 8  # for any address that they may lie at, and for those of four runs


def test_what_the_library_does_not_have(cupy: FakeCupy) -> None:
    """Without an algorithm for the epilogue the map is a launch; without one for the product, this is rlx's own."""
    cupy.cublas_lt.refused |= {"GELU_BIAS"}
    rlx.jit(lambda x, w, b: nn.gelu(x @ w + b), device="cuda")(X, W, B)
    assert made(cupy) == ["DEFAULT"] and len(cupy.launched()) == 1
    del cupy.log[:]
    cupy.cublas_lt.refused |= {"RELU", "DEFAULT"}
    rlx.jit(lambda x, w: nn.relu(x @ w), device="cuda")(normal(48, 16), normal(16, 32))
    assert not made(cupy) and len(cupy.launched()) == 1


def test_products_without_room_for_a_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do without; where there is room, all of a device's share one."""
    for _ in installed(monkeypatch, FakeCupy(capacity=1 << 20)):
        close(lambda x, w: x @ w, X, W)
    for cupy in installed(monkeypatch, FakeCupy()):
        f = rlx.jit(lambda x, w: x @ w, device="cuda")
        f(X, W)
        before = cupy.used
        f(normal(48, 16), W)
        assert 32 << 20 <= before and cupy.used - before < 1 << 20


def test_what_is_shown_without_a_gpu() -> None:
    """The rules that need no library: windows of convolutions are read by rlx's own kernel, complex numbers have no
    epilogue, and what a gradient keeps has rows of eight in memory of the program's own."""

    def library(f: Any, *arguments: Any) -> list[str]:
        parts = [part for parts in program(f, *arguments).parts.values() for part in parts.members]
        return [part.epilogue.name if part.epilogue else "" for part in parts if isinstance(part, LibraryProduct)]

    image, filters = normal(2, 16, 16, 16), normal(32, 16, 3, 3)
    assert library(lambda x, w: nn.relu(lax.conv(x, w, (1, 1), "SAME")), image, filters) == []
    assert library(lambda x, w: 2 * (x @ w), X.astype("c8"), W.astype("c8")) == [""]
    assert library(kept, X, W, B) == [""]
    assert library(pulled_back, X, W, V)[:1] == ["gelu, its argument"]
    assert library(pulled_back, X, W[:, :20], V[:20])[:1] == [""]


# ------------------------------------------------------------------ the real library
DRIVER = "int cuDriverGetVersion(int *version) { *version = 13000; return 0; }"
SCRIPT = """
import sys
import numpy as np
import nvmath.bindings.cublasLt as real
from fake_cublas_lt import FakeCublasLt
from test_library_products import MATCHES, pulled_back, program, X, W, V
from rlx.backends.cuda.cublas_lt import CublasLt
from rlx.backends.gpu.epilogues import LibraryProduct

fake = FakeCublasLt(None)
for kind in ("Epilogue", "MatmulDescAttribute", "MatrixLayoutAttribute", "MatmulPreferenceAttribute"):
    for member in getattr(fake, kind):
        assert member == getattr(real, kind)[member.name], member
for what, kind in (("matmul_desc", fake.MatmulDescAttribute), ("matrix_layout", fake.MatrixLayoutAttribute),
                   ("matmul_preference", fake.MatmulPreferenceAttribute)):
    for member in kind:
        widths = [np.dtype(getattr(m, f"get_{what}_attribute_dtype")(member)).itemsize for m in (fake, real)]
        assert widths[0] == widths[1], member
assert fake.matmul_heuristic_result_dtype == real.matmul_heuristic_result_dtype

def told(what, handle, attribute):
    width = np.dtype(getattr(real, f"get_{what}_attribute_dtype")(attribute))
    found, written = np.zeros(1, width), np.zeros(1, np.uint64)
    getattr(real, f"{what}_get_attribute")(handle, attribute, found.ctypes.data, found.nbytes, written.ctypes.data)
    assert written[0] == width.itemsize
    return int(found[0])

library = CublasLt(None, None)
library._library = real
count = 0
for f, arguments, *_ in (*MATCHES.values(), (pulled_back, (X, W, V))):
    for parts in program(f, *arguments).parts.values():
        for product in parts.members:
            if not isinstance(product, LibraryProduct):
                continue
            prepared = library._prepare(product)
            description = prepared.told
            attributes = real.MatmulDescAttribute
            assert told("matmul_desc", prepared.product, attributes.EPILOGUE) == real.Epilogue[description.epilogue]
            assert told("matmul_desc", prepared.product, attributes.COMPUTE_TYPE) == description.compute
            assert told("matmul_desc", prepared.product, attributes.SCALE_TYPE) == description.scalar_kind
            assert told("matmul_desc", prepared.product, attributes.TRANSA) == description.transposed[0]
            for handle, layout in zip(prepared.layouts, (description.left, description.right, description.added,
                                                         description.result)):
                names = real.MatrixLayoutAttribute
                numbers = [told("matrix_layout", handle, n) for n in (names.TYPE, names.ROWS, names.COLS, names.LD,
                                                                     names.BATCH_COUNT, names.STRIDED_BATCH_OFFSET)]
                assert numbers == [layout.kind, layout.rows, layout.columns, layout.apart, layout.batches,
                                   layout.batch_stride]
            count += 1
print("products:", count, real.get_version())
"""


@pytest.mark.skipif(importlib.util.find_spec("nvmath") is None, reason="nvmath-python is not installed")
def test_the_real_library_is_told_the_same(tmp_path: Path) -> None:
    """Its numbers, widths and descriptors need no GPU; nvmath-python asks a driver for its version, no more."""
    source = tmp_path / "driver.c"
    source.write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(source)], check=True)
    here = os.path.dirname(__file__)
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > len(MATCHES)
