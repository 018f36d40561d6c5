"""rlx.mlx_call: a function of MLX's arrays in programs, its derivatives and batches, on MLX and through the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from native_plans import run_python

import rlx
import rlx.numpy as jnp
from rlx import errors

mx: Any = pytest.importorskip("mlx.core", reason="mlx is not installed: pip install 'rlx[mlx]'")

from rlx.backends.mlx.library import is_on_gpu  # noqa: E402

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
Y = np.arange(3, dtype=np.float32)
MATRIX = rlx.ShapeDtypeStruct((2, 3), "float32")
BOTH = {"scaled": MATRIX, "sum": rlx.ShapeDtypeStruct((), "float32")}
devices = pytest.mark.parametrize("device", ["mlx", "cpu"])


def of_mlx(x: Any, y: Any) -> dict[str, Any]:
    return {"scaled": mx.sigmoid(x) * y, "sum": mx.sum(x * x)}


def called(x: Any, y: Any) -> Any:
    """The function in a program."""
    return rlx.mlx_call(of_mlx, BOTH, x, y)


def written(x: Any, y: Any) -> Any:
    """What it computes, in rlx."""
    return {"scaled": rlx.nn.sigmoid(x) * y, "sum": (x * x).sum()}


def loss(function: Callable[..., Any]) -> Callable[..., Any]:
    """A number that every result has a part in."""
    return lambda x, y: (function(x * 2, y)["scaled"] ** 2).sum() * function(x, y)["sum"]


def agree(found: Any, expected: Any) -> None:
    pairs = zip(rlx.tree.leaves(found), rlx.tree.leaves(expected), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5)


WAYS: dict[str, Callable[[Any], Any]] = {
    "values": lambda f: lambda x, y: f(x, y),
    "grad": lambda f: rlx.grad(loss(f), argnums=(0, 1)),
    "of one argument": lambda f: rlx.grad(loss(f), argnums=1),
    "jvp": lambda f: lambda x, y: rlx.jvp(loss(f), (x, y), (x + 1, y)),
    "hessian": lambda f: rlx.hessian(loss(f)),
    "forward over reverse": lambda f: rlx.jacfwd(rlx.grad(loss(f)), argnums=1),
    "grad of jvp": lambda f: rlx.grad(lambda x, y: rlx.jvp(loss(f), (x, y), (x, y))[1]),
    "vmap": lambda f: rlx.vmap(f, in_axes=(None, 0)),
    "vmap of grad": lambda f: rlx.vmap(rlx.grad(loss(f)), in_axes=(0, None)),
    "grad of vmap": lambda f: rlx.grad(lambda x, y: rlx.vmap(loss(f), in_axes=(0, None))(x, y).sum(), argnums=(0, 1)),
    "scan": lambda f: lambda x, y: rlx.lax.scan(lambda c, _: (f(c, y)["scaled"], f(c, y)["sum"]), x, None, 40),
}
STACKED = (np.stack([X, X + 1]), Y)
BATCHED = {"vmap": (X, np.stack([Y, Y + 1])), "vmap of grad": STACKED, "grad of vmap": STACKED}


@devices
@pytest.mark.parametrize("way", WAYS)
def test_programs(way: str, device: str) -> None:
    args = BATCHED.get(way, (X, Y))
    agree(rlx.jit(WAYS[way](called), device=device)(*args), rlx.jit(WAYS[way](written))(*args))


def test_on_the_device_it_is_a_part_of_the_program() -> None:
    """Nothing runs on the host, and the function is called when the program is built: not again for other values."""
    calls: list[Any] = []

    def function(x: Any) -> Any:
        calls.append(x)
        return mx.exp(x)

    compiled = rlx.jit(lambda x: rlx.mlx_call(function, x, x) * 2, device="mlx")
    with rlx.default_device("mlx"):
        report = rlx.inspect(lambda x: rlx.mlx_call(function, x, x) * 2)(X)
    assert "host" not in report.executable.texts()["host"] and report.executable.texts()["host"] == ""
    agree(compiled(X), 2 * np.exp(X))
    assert all(isinstance(x, mx.array) for x in calls)


def test_eagerly_it_runs_where_the_array_lies() -> None:
    away = rlx.device_put(X, "mlx")
    assert called(away, Y)["scaled"].device == "mlx" and called(X, Y)["sum"].device == "cpu"
    agree(called(away, Y), written(X, Y))
    agree(called(X, Y), written(X, Y))


@devices
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "bool", "complex64", "float64"])
def test_dtypes(dtype: str, device: str) -> None:
    if dtype == "float64" and device == "mlx" and is_on_gpu():
        pytest.skip("a GPU has no float64")
    x = np.array([[0, 1, 2], [1, 0, 1]]).astype(np.dtype(getattr(ml_dtypes, dtype, None) or dtype))
    found = rlx.jit(lambda x: rlx.mlx_call(lambda a: mx.transpose(a), jnp.zeros((3, 2), dtype), x), device=device)(x)
    assert found.dtype.name == dtype
    np.testing.assert_array_equal(np.asarray(found).astype(complex), x.T.astype(complex))


@devices
def test_integers_have_no_derivative(device: str) -> None:
    """They are passed by, as operands and as results."""
    def function(x: Any, n: Any) -> Any:
        return x * n, n + 1

    types = rlx.ShapeDtypeStruct((3,), "float32"), rlx.ShapeDtypeStruct((), "int32")
    n = np.int32(3)
    found = rlx.jit(rlx.grad(lambda y: rlx.mlx_call(function, types, y, n)[0].sum()), device=device)(Y)
    assert found.tolist() == [3, 3, 3]


@devices
def test_a_rule_of_mlx_is_taken(device: str) -> None:
    """mx.custom_function: what has no derivative of its own."""

    @mx.custom_function
    def rounded(x: Any) -> Any:
        return mx.round(x)

    @rounded.vjp
    def rule(x: Any, cotangent: Any, result: Any) -> Any:
        return cotangent * 5

    assert rlx.jit(rlx.grad(lambda y: rlx.mlx_call(rounded, y, y).sum()), device=device)(Y).tolist() == [5, 5, 5]


@devices
def test_a_rule_for_batches(device: str) -> None:
    def rule(size: int, batched: Any, x: Any) -> Any:
        assert size == 2 and tuple(batched) == (True,)
        return x * 10, True

    row = rlx.ShapeDtypeStruct((3,), "float32")
    found = rlx.jit(rlx.vmap(lambda y: rlx.mlx_call(mx.exp, row, y, vmap=rule)), device=device)(X)
    agree(found, X * 10)


# ------------------------------------------------------------------ mistakes
@devices
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: mx.sum(x), r"returned float32\[\] instead of float32\[2,3\]"),
        (lambda x: x.astype(mx.int32), r"returned int32\[2, 3\] instead of float32\[2,3\]"),
        (lambda x: (x, x), "returned a result of structure"),
    ],
)
def test_a_result_of_another_type_is_said(function: Any, message: str, device: str) -> None:
    with pytest.raises(errors.CallbackError, match=message):
        rlx.jit(lambda x: rlx.mlx_call(function, MATRIX, x), device=device)(X)


@devices
def test_a_users_exception_comes_out_as_it_is(device: str) -> None:
    class Mine(Exception):
        pass

    def function(x: Any) -> Any:
        raise Mine

    with pytest.raises(Mine):
        rlx.jit(lambda x: rlx.mlx_call(function, MATRIX, x), device=device)(X)


def test_dtypes_that_mlx_has_not() -> None:
    with pytest.raises(errors.DtypeError, match="MLX has no complex128"):
        rlx.mlx_call(lambda x: x, MATRIX, X.astype(complex))


def test_what_is_no_function() -> None:
    with pytest.raises(errors.UnsupportedError, match="mlx_call got .*, which is not a function"):
        rlx.mlx_call(MATRIX, X)  # ty: ignore


def test_without_mlx() -> None:
    done = run_python(
        "import rlx, numpy as np, importlib.util; importlib.util.find_spec = lambda name: None\n"
        "rlx.mlx_call(lambda x: x, np.ones(3), np.ones(3))"
    )
    assert "DeviceError" in done.stderr and "mlx_call needs the package mlx" in done.stderr
