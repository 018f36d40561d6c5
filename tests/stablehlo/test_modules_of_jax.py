"""Modules that jax.export writes, as text and as portable artifacts, with known and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rlx
from rlx.errors import FileFormatError, InputTypeError, ShapeError, UnsupportedError

NUMBERS = np.random.default_rng(0)
X = NUMBERS.standard_normal((4, 6)).astype(np.float32)
I = np.array([3, 0, 2], np.int32)  # noqa: E741
S = (X @ X.T + 4 * np.eye(4)).astype(np.float32)
C = np.array([1j, 2, np.nan, np.inf, -0.0, 3 + 4j], np.complex64)


def imports(module: str | bytes, arguments: tuple[Any, ...], expected: Any) -> None:
    """The module's results are close to the expected ones."""
    found = rlx.tree.leaves(rlx.import_stablehlo(module)(*arguments))
    for a, b in zip(found, jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(a), np.asarray(b)
        assert one.dtype == other.dtype and one.shape == other.shape
        narrow = one.dtype.itemsize < 4 and one.dtype.kind not in "biu"
        wide = [v.astype(np.complex128) for v in (one, other)]
        np.testing.assert_allclose(*wide, rtol=3e-2 if narrow else 2e-4, atol=3e-2 if narrow else 2e-4)


FIXED: dict[str, tuple[Callable[..., Any], *tuple[Any, ...]]] = {
    "bfloat16 literals": (lambda x: jax.nn.softmax(x.astype(jnp.bfloat16) * 2.5), X),
    "bfloat16 infinity": (lambda x: jnp.where(x > 0, x.astype(jnp.bfloat16), -jnp.inf), X),
    "float8 literals": (lambda x: (x.astype(jnp.float8_e5m2) * jnp.float8_e5m2(2)).astype(jnp.float32), X),
    "int4 arrays": (lambda i: (i.astype(jnp.int4) * jnp.array([1, -3, 7], jnp.int4)).astype(jnp.int32), I),
    "complex arrays": (lambda x: x * C, X),
    "complex scalar": (lambda x: x * (2 + 1j), X),
    "bool arrays": (lambda x: x * np.array([True, False] * 3), X),
    "cholesky": (lambda s: jnp.linalg.cholesky(jnp.stack([s, 2 * s])), S),
    "upper cholesky": (lambda s: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(s), s), S),
    "eigenvalues": (jnp.linalg.eigvalsh, S),
    "singular values": (lambda x: jnp.linalg.svd(x)[1], X),
    "pseudo-inverse": (jnp.linalg.pinv, X),
    "solve": (jnp.linalg.solve, S, X),
    "determinant": (jnp.linalg.slogdet, S),
    "qr": (jnp.linalg.qr, X),
    "complete qr": (lambda x: jnp.linalg.qr(x, "complete"), X.T.copy()),
    "triangular": (lambda s: jax.scipy.linalg.solve_triangular(s, s, lower=True, trans=1), S),
    "tridiagonal": (lambda x: lax.linalg.tridiagonal_solve(x[0], x[1] + 5, x[2], x[:3].T), X),
    "approximate top": (lambda x: lax.approx_max_k(x, 2), X),
    "approximate bottom": (lambda x: lax.approx_min_k(x, 2, reduction_dimension=0), X),
    "rbg": (lambda i: jax.random.uniform(jax.random.key(i[0], impl="rbg"), (3,)), I),
    "unsafe rbg": (lambda i: jax.random.normal(jax.random.key(i[0], impl="unsafe_rbg"), (4,)), I),
    "scatter": (lambda x, i: (x.at[i].set(9.0), x.at[i, i].min(-2.0), x.at[i].mul(3.0)), X, I),
    "dilated": (
        lambda x: lax.conv_general_dilated(
            x[None, None],
            jnp.ones((2, 1, 3, 3), x.dtype),
            (1, 2),
            [(1, 2), (0, 1)],
            lhs_dilation=(2, 1),
            rhs_dilation=(1, 2),
        ),
        X,
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_known_sizes(name: str) -> None:
    """Constants of every kind, factorisations, random bits."""
    function, *arguments = FIXED[name]
    exported = jax.export.export(jax.jit(function))(*arguments)
    expected = jax.jit(function)(*arguments)
    imports(exported.mlir_module(), tuple(arguments), expected)
    imports(exported.mlir_module_serialized, tuple(arguments), expected)


SYMBOLIC: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: jax.nn.softmax(x @ x.T),
    "mean": lambda x: (x - x.mean(0)) / x.shape[0],
    "reshape": lambda x: x.reshape(-1),
    "concatenate": lambda x: jnp.concatenate([x, x * 2]),
    "arange": lambda x: x + jnp.arange(x.shape[0])[:, None],
    "zeros": lambda x: x + jnp.zeros(x.shape, jnp.int32),
    "pad": lambda x: jnp.pad(x, ((1, 2), (0, 0))),
    "slice": lambda x: x[1:],
    "reverse": lambda x: x[::-1],
    "scan": lambda x: lax.scan(lambda c, t: (c + t, c), jnp.zeros(6, x.dtype), x),
    "gather": lambda x: x[jnp.arange(x.shape[0]) % 2],
    "one hot": lambda x: jax.nn.one_hot(jnp.argmax(x, 1), 6),
    "triangle": lambda x: jnp.tril(x @ x.T),
    "convolution": lambda x: lax.conv_general_dilated(x[None, None], jnp.ones((2, 1, 3, 3), x.dtype), (1, 1), "SAME"),
    "pool": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "SAME"),
    "running sums": lambda x: (jnp.cumsum(x, 0), lax.cummax(x, axis=0, reverse=True), lax.cumlogsumexp(x, axis=0)),
    "whole windows": lambda x: lax.reduce_window(x, 0.0, lax.add, (x.shape[0], 2), (1, 2), "VALID"),
    "padded windows": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 1), (2, 1), "SAME"),
    "update": lambda x: x.at[0].set(1.0),
    "bfloat16": lambda x: jax.nn.softmax(x.astype(jnp.bfloat16)),
    "top": lambda x: lax.top_k(x, 2),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str) -> None:
    """The sizes keep their names, and any size can be called."""
    function = SYMBOLIC[name]
    shape = jax.export.symbolic_shape("rows, 6")
    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct(shape, np.float32))
    found = rlx.import_stablehlo(exported.mlir_module_serialized)
    assert str(found.in_avals[0].shape) == "(rows, 6)"
    for size in (4, 9):
        x = NUMBERS.standard_normal((size, 6)).astype(np.float32)
        imports(exported.mlir_module(), (x,), jax.jit(function)(x))


def test_relations_of_sizes() -> None:
    """Equal names, expressions, and several names."""
    scope = jax.export.SymbolicScope()
    types = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(s, scope=scope), np.float32) for s in ("2*b, 6", "b, 6", "n, 6")
    ]
    exported = jax.export.export(jax.jit(lambda x, y, z: ((x[: y.shape[0]] + y) @ z.T, z.shape[0])))(*types)
    found = rlx.import_stablehlo(exported.mlir_module())
    x, y, z = (np.ones((n, 6), np.float32) for n in (4, 2, 3))
    product, count = found(x, y, z)
    assert product.shape == (2, 3) and int(count) == 3
    with pytest.raises((InputTypeError, ShapeError)):
        found(x, z, z)


def test_modules_that_are_refused() -> None:
    """By name."""
    with pytest.raises(UnsupportedError, match="@my_target"):
        rlx.import_stablehlo(
            "func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {"
            " %0 = stablehlo.custom_call @my_target(%a) : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32> }"
        )
    for data in (b"", b"ML\xefR", b"ML\xefR\x0dStableHLO_v1.0.0\x00" + bytes(100), b"\xff\xfe"):
        with pytest.raises(FileFormatError):
            rlx.import_stablehlo(data)
    with pytest.raises(InputTypeError, match="int"):
        rlx.import_stablehlo(3)
