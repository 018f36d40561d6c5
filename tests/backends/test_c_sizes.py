"""rlx.export_c with sizes as arguments: one file for all batches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_c_in_place import library

import rlx
import rlx.numpy as jnp
from rlx import lax, nn, optim
from rlx.backends.c.compile import compiler

try:
    compiler()
except rlx.errors.DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

SIZES = (1, 2, 3, 7, 64, 200)
generator = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return generator.normal(size=shape).astype("f4")


def run(folder: Path, files: Any, sizes: tuple[int, ...], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Calls the function with memory of the size that it asks for, between bytes that must not change."""
    function = library(folder, files, "f") if not (folder / "f.so").exists() else ctypes.CDLL(str(folder / "f.so")).f
    asks = ctypes.CDLL(str(folder / "f.so")).f_arena_bytes
    asks.restype, asks.argtypes = ctypes.c_int64, [ctypes.c_int64] * len(sizes)
    nbytes = asks(*sizes)
    assert nbytes > 0
    arena = np.full(nbytes + 128, 7, "u1")
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, arena[64:])]
    function(*map(ctypes.c_int64, sizes), *pointers)
    assert (arena[:64] == 7).all() and (arena[64 + nbytes :] == 7).all()
    return arrays


NETWORK = {"w": normal(6, 16), "b": normal(16), "out": normal(16, 4)}


def loss(network: Any, x: Any, labels: Any) -> Any:
    scores = jnp.tanh(x @ network["w"] + network["b"]) @ network["out"]
    return -jnp.mean(jnp.take_along_axis(nn.log_softmax(scores), labels[:, None], 1))


def adam_step(network: Any, state: Any, x: Any, labels: Any) -> Any:
    adam = optim.adam(1e-2)
    value, gradient = rlx.value_and_grad(loss)(network, x, labels)
    updates, state = adam.update(gradient, state, network)
    return optim.apply_updates(network, updates), state, value


def convolution(x: Any) -> Any:
    kernel = jnp.arange(3 * 3 * 2 * 4, dtype="float32").reshape(3, 3, 2, 4) / 50
    y = lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return lax.reduce_window(nn.relu(y), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").mean(axis=(1, 2))


def scanned(xs: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.sin(c) + x, (c, x.sum())), xs[0] * 0, xs)


def looped(x: Any) -> Any:
    return lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: c * 1.5 + jnp.cumsum(c)[::-1] * 0.1, jnp.abs(x))


def branched(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: jnp.cumsum(x) / x.shape[0], lambda x: x[::-1] * 2, x)


def labels_of(b: int) -> np.ndarray:
    return (np.arange(b) % 4).astype("i4")


ADAM = (NETWORK, optim.adam(1e-2).init(NETWORK))
Case = tuple[Callable[..., Any], Callable[..., tuple[Any, ...]]]
# a function, and its arguments for a size
CASES: dict[str, Case] = {
    "gradient": (rlx.value_and_grad(loss), lambda b: (NETWORK, normal(b, 6), labels_of(b))),
    "adam": (adam_step, lambda b: (*ADAM, normal(b, 6), labels_of(b))),
    "convolution": (convolution, lambda b: (normal(b, 8, 8, 2),)),
    "gradient of convolution": (rlx.grad(lambda x: jnp.sum(convolution(x) ** 2)), lambda b: (normal(b, 8, 8, 2),)),
    "scan over the size": (scanned, lambda b: (normal(b, 3),)),
    "gradient of scan": (rlx.grad(lambda xs: jnp.sum(scanned(xs)[0])), lambda b: (normal(b, 3),)),
    "while": (looped, lambda b: (normal(b),)),
    "cond": (branched, lambda b: (normal(b),)),
    "softmax": (lambda x: nn.softmax(x @ x.T), lambda b: (normal(b, 5),)),
    "statistics": (lambda x: (x.var(axis=0), x.max(0), jnp.argmin(x, 0), x.any(), x.size), lambda b: (normal(b, 5),)),
    "pairs": (lambda x: jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1)).sum(0), lambda b: (normal(b, 2),)),
    "reshaped": (lambda x: jnp.concatenate([x, x * 2]).reshape(-1, 3).T[::-1], lambda b: (normal(b, 3),)),
    "counted": (lambda x: jnp.arange(x.shape[0]) % 128 + x.astype("i4"), lambda b: (normal(b),)),
    "random": (lambda x: x + rlx.random.normal(rlx.random.key(3), x.shape), lambda b: (normal(b, 3),)),
}


def named(arguments: tuple[Any, ...], b: int, size: Any) -> tuple[Any, ...]:
    """Types with a symbolic size in place of a number."""


    def type_of(x: Any) -> Any:
        return rlx.ShapeDtypeStruct(tuple(size if n == b else n for n in np.shape(x)), np.asarray(x).dtype)

    return rlx.tree.map(type_of, arguments)


@pytest.mark.selected("all")
@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_one_file_for_all_sizes(tmp_path: Path, name: str) -> None:
    """Equal to rlx, also for sizes 1 and 2, which the file was not written for. No byte beside the arena is written."""
    function, arguments_of = CASES[name]
    (size,) = rlx.export.symbolic_shape("batch")
    files = rlx.export_c(function, *named(arguments_of(1009), 1009, size), name="f")
    assert files.header.count("int64_t batch") == 2
    for b in SIZES:
        arguments = arguments_of(b)
        wanted = [np.asarray(leaf) for leaf in rlx.tree.leaves(rlx.jit(function)(*arguments))]
        inputs = [np.array(leaf) for leaf in rlx.tree.leaves(arguments)]
        found = run(tmp_path, files, (b,), [*inputs, *map(np.empty_like, wanted)])[len(inputs) :]
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=3e-5, atol=3e-5, err_msg=f"{name} for {b}")


def test_two_sizes_and_constants(tmp_path: Path) -> None:
    """Two sizes, expressions of them, parameters in a file, and a donated argument."""

    def step(w: Any, state: Any, x: Any) -> Any:
        return state + jnp.tanh(x[1:] @ w).T @ x[:-1, :4] / x.shape[0]

    rows, columns = rlx.export.symbolic_shape("rows, columns", constraints=["rows >= 2"])
    w = normal(7, 5)
    types = [rlx.ShapeDtypeStruct(s, "float32") for s in ((5, 4), (rows, 7))]
    files = rlx.export_c(step, *types, params=w, weights="file", donate_argnums=1, name="f")
    assert "void f(int64_t rows, const void *weights, float *state, const float *x, void *arena)" in files.header
    assert "#define F_X_SIZE(rows)" in files.header and "-1 unless rows >= 2" in files.header
    weights = np.zeros(-(-len(files.weights) // 8), "u8")
    weights.view("u1")[: len(files.weights)] = np.frombuffer(files.weights, "u1")
    for b in (2, 3, 50):
        state, x = normal(5, 4), normal(b, 7)
        wanted = rlx.jit(step)(w, state, x)
        run(tmp_path, files, (b,), [weights, state, x])
        np.testing.assert_allclose(state, wanted, rtol=1e-5, atol=1e-5)
    asks = ctypes.CDLL(str(tmp_path / "f.so")).f_arena_bytes
    asks.restype, asks.argtypes = ctypes.c_int64, [ctypes.c_int64]
    assert asks(1) == asks(-5) == -1

    both = rlx.ShapeDtypeStruct((rows, columns, 3), "float32")
    second = tmp_path / "second"
    second.mkdir()
    files = rlx.export_c(lambda x: jnp.swapaxes(x, 0, 1).reshape(x.shape[1], -1) * x.shape[0], both, name="f")
    for r, c in ((2, 1), (3, 8), (40, 30)):
        x, out = normal(r, c, 3), np.empty((c, 3 * r), "f4")
        run(second, files, (r, c), [x, out])
        np.testing.assert_array_equal(out, np.swapaxes(x, 0, 1).reshape(c, -1) * np.float32(r))


@pytest.mark.parametrize(("function", "says"), [
    (lambda x: x + np.eye(5, dtype="f4")[x.shape[0] % 5, 0], "no single program for all sizes"),
    (lambda x: x * float(np.log(x.shape[0])), "follow no rule"),
    (lambda x: sum(x[n] for n in range(x.shape[0])), "no single program for all sizes"),
])  # fmt: skip
def test_sizes_that_have_to_be_constants_are_refused(function: Any, says: str) -> None:
    (size,) = rlx.export.symbolic_shape("batch")
    with pytest.raises(rlx.errors.RlxError, match=says):
        rlx.export_c(function, rlx.ShapeDtypeStruct((size,), "float32"))
