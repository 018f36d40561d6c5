"""rlx.export_c with params: constants in the source or in a file, quantised weights, and a CMakeLists.txt."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_c_in_place import library

import rlx
import rlx.numpy as jnp
from rlx import lax, nn, optim, quant

generator = np.random.default_rng(0)
X = generator.normal(size=(4, 64)).astype("f4")
WIDE = generator.normal(size=(64, 32)).astype("f4")
PARAMS = {
    "first": {"w": WIDE, "b": generator.normal(size=32)},
    "half": generator.normal(size=3).astype(ml_dtypes.bfloat16),
    "flags": np.array([True, False, True]),
    "scale": np.float32(1.5),
    "unused": np.ones(5, "f4"),
}
TABLE = generator.normal(size=9).astype("f4")  # captured, not a parameter


def network(params: Any, x: Any) -> Any:
    hidden = nn.relu(x @ params["first"]["w"] + params["first"]["b"].astype("float32")) * params["scale"]
    return hidden + jnp.asarray(TABLE)[:1], jnp.where(params["flags"], params["half"], 0)


def looped(params: Any, x: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.tanh(c @ params["m"]) + row, None), params["start"], x)[0]


LOOP = {"m": generator.normal(size=(64, 64)).astype("f4") / 8, "start": np.zeros(64, "f4")}
CASES = {
    "network": (network, PARAMS),
    "a loop": (looped, LOOP),
    "int8": (lambda w, x: quant.dequant_matmul(x, w), quant.quantize(WIDE, "int8", axis=0)),
    "int4": (lambda w, x: quant.dequant_matmul(x, w), quant.quantize(WIDE, "int4/32", axis=0)),
    "an array": (lambda w, x: x @ w, WIDE),
    "a result": (lambda w, x: (w, x[0]), WIDE),
}


def called(function: Any, arrays: Any) -> None:
    function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))


def aligned(data: bytes) -> np.ndarray:
    """Bytes at an address that is a multiple of 8."""
    memory = np.zeros(-(-len(data) // 8), "u8").view("u1")
    memory[: len(data)] = np.frombuffer(data, "u1")
    return memory


@pytest.mark.selected("all")
@pytest.mark.parametrize("weights", ["source", "file"])
@pytest.mark.parametrize("name", CASES)
def test_parameters_are_constants(tmp_path: Path, name: str, weights: Any) -> None:
    function, params = CASES[name]
    files = rlx.export_c(function, X, params=params, weights=weights, name="f")
    assert bool(files.weights) == (weights == "file") == ("const void *weights" in files.header)
    assert ("static const float f_" in files.source) == (weights == "source")
    wanted = [np.asarray(leaf) for leaf in rlx.tree.leaves(rlx.jit(function)(params, X))]
    found = [np.empty_like(array) for array in wanted]
    file = [aligned(files.weights)] if files.weights else []
    called(library(tmp_path, files, "f"), [*file, X, *found])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.astype("f8"), other.astype("f8"), rtol=2e-5, atol=2e-5)


def test_quantised_weights_stay_packed() -> None:
    """The file has the bytes of the codes and scales, and hardly more."""
    packed = quant.quantize(WIDE, "int4/32", axis=0)
    files = rlx.export_c(lambda w, x: quant.dequant_matmul(x, w), X, params=packed, weights="file")
    stored = sum(np.asarray(leaf).nbytes for leaf in rlx.tree.leaves(packed))
    assert stored < WIDE.nbytes / 5 and stored <= len(files.weights) < stored + 500


def test_the_file_is_safetensors(tmp_path: Path) -> None:
    rlx.export_c(network, X, params=PARAMS, weights="file", path=tmp_path / "net.c")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.c", "net.h", "net.safetensors"]
    found = rlx.load(tmp_path / "net.safetensors")
    assert found["params_half"].dtype == ml_dtypes.bfloat16 and "params_unused" not in found
    np.testing.assert_array_equal(found["params_first_b"], PARAMS["first"]["b"])
    np.testing.assert_array_equal(found["constant_0"], TABLE)


def test_other_weights_of_the_same_shapes_are_accepted_and_no_other_file(tmp_path: Path) -> None:
    first = rlx.export_c(lambda w, x: x @ w, X, params=WIDE, weights="file", name="f")
    second = rlx.export_c(lambda w, x: x @ w, X, params=2 * WIDE, weights="file", name="f")
    third = rlx.export_c(lambda v, x: x @ v, X, params=WIDE, weights="file", name="f")
    function = library(tmp_path, first, "f")
    accepts = ctypes.CDLL(str(tmp_path / "f.so")).f_accepts
    accepts.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    for data, expected in ((first, 1), (second, 1), (third, 0)):
        memory = aligned(data.weights)
        assert accepts(memory.ctypes.data, len(data.weights)) == expected
        assert accepts(memory.ctypes.data, len(data.weights) - 1) == 0
    out = np.empty((4, 32), "f4")
    called(function, [aligned(second.weights), X, out])
    np.testing.assert_allclose(out, X @ (2 * WIDE), rtol=1e-4, atol=1e-4)


def test_a_step_may_have_constants_and_donated_state(tmp_path: Path) -> None:
    """The frozen layers are constants, the trained one is replaced."""

    def step(frozen: Any, head: Any, x: Any) -> Any:
        gradient = rlx.grad(lambda head: jnp.mean((nn.relu(x @ frozen) @ head) ** 2))(head)
        return optim.apply_updates(head, -0.1 * gradient)

    head = generator.normal(size=32).astype("f4")
    files = rlx.export_c(step, head, X, params=WIDE, name="f", donate_argnums=1)
    assert "void f(float *head, const float *x)" in files.header
    memory = head.copy()
    called(library(tmp_path, files, "f"), [memory, X])
    np.testing.assert_allclose(memory, rlx.jit(step)(WIDE, head, X), rtol=1e-5, atol=1e-5)
    with pytest.raises(rlx.errors.OptionError, match="donate_argnums has argument 0"):
        rlx.export_c(step, head, X, params=WIDE, donate_argnums=(0, 1))
    with pytest.raises(rlx.errors.OptionError, match='weights is \'elsewhere\'(.|\n)*"source" or "file"'):
        rlx.export_c(step, head, X, params=WIDE, weights="elsewhere")  # ty: ignore[invalid-argument-type]


@pytest.mark.thorough
def test_cmake_builds_the_library(tmp_path: Path) -> None:
    assert "add_library(net STATIC net.c)" in rlx.export_c(lambda x: x, X, path=tmp_path / "net.c", cmake=True).cmake
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not installed")
    for command in ([cmake, "-S", ".", "-B", "build"], [cmake, "--build", "build"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "build/libnet.a").exists()
