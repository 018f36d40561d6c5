"""Arrays as objects: operators, methods, conversions, protocols, printing, tracers."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import rlx
import rlx.numpy as rnp
from rlx import errors
from rlx.array import Array
from rlx.trace.tracing import trace_program

X = rnp.arange(6.0).reshape(2, 3)
VALUES = np.arange(6.0, dtype="f4").reshape(2, 3)

OPERATORS = "add sub mul truediv floordiv mod pow eq ne lt le gt ge matmul and_ or_ xor lshift rshift".split()


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    """With arrays, NumPy arrays on either side, and Python scalars."""
    function = getattr(operator, name)
    integers = name in ("and_", "or_", "xor", "lshift", "rshift")
    x = np.arange(1, 10, dtype="i4" if integers else "f4").reshape(3, 3)
    y = np.arange(1, 10, dtype=x.dtype)[::-1].reshape(3, 3) % 4 + np.asarray(1, x.dtype)
    expected = function(x, y)
    for left, right in ((rnp.asarray(x), rnp.asarray(y)), (rnp.asarray(x), y), (x, rnp.asarray(y))):
        found = function(left, right)
        assert isinstance(found, Array)
        np.testing.assert_allclose(np.asarray(found), expected, 1e-5)
    if name != "matmul":
        for found, wanted in (
            (function(rnp.asarray(x), 2), function(x, 2)),
            (function(2, rnp.asarray(x)), function(2, x)),
        ):
            np.testing.assert_allclose(np.asarray(found), wanted, 1e-5)
            assert found.dtype == np.asarray(wanted).dtype


def test_unary_operators_and_builtins() -> None:
    """-x, +x, ~x, abs, round, divmod, in, reversed, iteration, len."""
    x = rnp.array([-1.5, 2.5])
    assert (-x).tolist() == [1.5, -2.5] and (+x).tolist() == x.tolist() and abs(x).tolist() == [1.5, 2.5]
    assert (~rnp.array([True, False])).tolist() == [False, True]
    for dtype in ("float32", "float16", "int8"):
        (own, own_digits), (other, other_digits) = (
            [round(values), round(values, 1)] for values in (rnp.asarray(x, dtype), jnp.asarray(x.tolist(), dtype))
        )
        assert own.dtype == rnp.array(1).dtype and other.dtype.kind == "i" and own.tolist() == other.tolist()
        assert own_digits.dtype == other_digits.dtype and own_digits.tolist() == other_digits.tolist()
    assert rlx.jit(round)(2.5).dtype == own.dtype
    with pytest.raises(rlx.errors.DtypeError, match="integer"):
        round(rnp.array(1j))
    assert bytes(x) == x.numpy().tobytes()
    assert [v.item() for v in divmod(rnp.int32(-7), 2)] == [-4, 1]
    assert 2.5 in x and 7 not in x
    assert [v.item() for v in reversed(x)] == [2.5, -1.5]
    assert [v.shape for v in X] == [(3,), (3,)] and len(X) == 2
    with pytest.raises(TypeError, match="0-d"):
        len(rnp.float32(1))
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "text"


METHODS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *[
        (name, (), {})
        for name in "sum mean max min prod std var argmax argmin any all cumsum ravel squeeze conj".split()
    ],
    ("sum", (), {"axis": 0, "keepdims": True}),
    ("reshape", (3, 2), {}),
    ("reshape", ((3, -1),), {}),
    ("transpose", (), {}),
    ("transpose", (1, 0), {}),
    ("flatten", (), {}),
    ("astype", ("int32",), {}),
    ("clip", (1, 3), {}),
    ("repeat", (2,), {"axis": 1}),
    ("take", (np.array([1, 0]),), {"axis": 0}),
    ("swapaxes", (0, 1), {}),
    ("round", (1,), {}),
    ("sort", (), {"axis": 0}),
    ("argsort", (), {}),
    ("dot", (VALUES.T,), {}),
    ("diagonal", (), {}),
    ("trace", (), {}),
    ("nonzero", (), {}),
    ("copy", (), {}),
    ("ptp", (), {}),
    ("view", ("int32",), {}),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m[0])
def test_methods(method: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    """Methods give what jax's give."""
    name, args, kwargs = method
    found = getattr(rnp.asarray(VALUES), name)(*args, **kwargs)
    expected = getattr(jnp.asarray(VALUES), name)(*args, **kwargs)
    for mine, other in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
        assert mine.shape == other.shape
        np.testing.assert_allclose(np.asarray(mine), np.asarray(other), 1e-6)


def test_attributes() -> None:
    """Shape and its kin, T, mT, real, imag, at, device."""
    assert (X.shape, X.ndim, X.size, X.dtype, X.nbytes, X.itemsize) == ((2, 3), 2, 6, np.dtype("f4"), 24, 4)
    assert X.T.shape == X.mT.shape == (3, 2)
    assert rnp.array([1 + 2j]).imag.tolist() == [2.0] and X.real is X
    assert X.block_until_ready() is X and X.device and X.devices()
    assert not X.weak_type and rnp.asarray(1.0).weak_type


def test_conversions_to_python() -> None:
    """Numbers, lists, bytes, formats."""
    assert float(rnp.float32(2.5)) == 2.5 and int(rnp.array([3])) == 3 and complex(rnp.complex64(1j)) == 1j
    assert bool(rnp.array(1)) and [10, 20, 30][rnp.int32(1)] == 20 and list(range(rnp.array(3))) == [0, 1, 2]
    assert X.item(4) == 4.0 and X.tolist() == VALUES.tolist() and X.tobytes() == VALUES.tobytes()
    assert f"{rnp.float32(1.5):.2f}" == "1.50" and str(X[0]) == "[0. 1. 2.]"
    for wrong in (bool, float, int, operator.index):
        with pytest.raises((TypeError, ValueError)):
            wrong(X)
    with pytest.raises(TypeError, match="index"):
        operator.index(rnp.float32(1))
    with pytest.raises(ValueError, match="x.item"):
        X.item()
    with pytest.raises(errors.TracerHashError):
        hash(X)


def test_representation() -> None:
    """As jax shows arrays."""
    for value in (np.ones(3, "f4"), np.ones((0, 3), "f4"), np.ones((2, 2), "c8"), np.arange(2000, dtype="i4")):
        assert repr(rnp.asarray(value)) == repr(jnp.asarray(value))
    assert repr(rnp.asarray(2)) == "Array(2, dtype=int32, weak_type=True)"
    assert repr(rnp.ones(2, "bfloat16")) == "Array([1., 1.], dtype=bfloat16)"


def test_copies_and_pickles() -> None:
    """copy, deepcopy and pickle keep values, dtype and weakness."""
    for x in (X, rnp.asarray(2.0), X[:, ::-1], rnp.ones(2, "bfloat16"), rnp.zeros((0, 2))):
        for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.copy()):
            assert other.dtype == x.dtype and other.weak_type == x.weak_type and other.shape == x.shape
            np.testing.assert_array_equal(np.asarray(other), np.asarray(x))


def test_numpy_protocols() -> None:
    """np.asarray shares memory read-only; NumPy's functions return its arrays, its operators ours."""
    view = np.asarray(X)
    assert not view.flags.writeable and np.shares_memory(view, X.numpy())
    assert np.asarray(X, "f8").dtype == np.float64 and np.array(X).flags.writeable
    assert isinstance(np.sin(X), np.ndarray) and isinstance(VALUES + X, Array)
    assert isinstance(np.concatenate([X, VALUES]), np.ndarray) and isinstance(np.mean(X, axis=0), np.ndarray)
    assert np.asarray(rnp.ones(2, "bfloat16")).dtype.name == "bfloat16"
    assert np.add.reduce(X).tolist() == [3.0, 5.0, 7.0]
    namespace = X.__array_namespace__()
    assert namespace is rnp
    with pytest.raises(TypeError, match="immutable"):
        X[0] = 1.0


def test_dlpack() -> None:
    """To and from other libraries."""
    assert np.array_equal(np.from_dlpack(X), VALUES)
    assert X.__dlpack_device__() == (1, 0)
    assert np.array_equal(np.asarray(rnp.from_dlpack(VALUES)), VALUES)
    torch = pytest.importorskip("torch")
    assert torch.from_dlpack(X).tolist() == VALUES.tolist()


# ------------------------------------------------------------------ tracers
def traced(function: Any) -> Any:
    """Stage a function of one float32[3]; returns the program."""
    return trace_program(lambda x: [rnp.asarray(function(x))], [rnp.ones(3).type])


@pytest.mark.parametrize(
    ("function", "error", "advice"),
    [
        (lambda x: x if x[0] > 0 else -x, errors.TracerBoolConversionError, "where"),
        (lambda x: x * float(x[0]), errors.ConcretizationTypeError, "static"),
        (lambda x: x * int(x[0]), errors.TracerIntegerConversionError, "static"),
        (lambda x: [0, 1][x[0].astype(int)] * x, errors.TracerIntegerConversionError, "fori_loop"),
        (lambda x: x * x[0].item(), errors.ConcretizationTypeError, "static"),
        (lambda x: x + np.sort(np.asarray(x)), errors.TracerArrayConversionError, "rlx.numpy"),
        (lambda x: rnp.nonzero(x)[0], errors.ConcretizationTypeError, "size="),
        (lambda x: rnp.arange(x[0]), errors.ConcretizationTypeError, "fori_loop"),
        (lambda x: rnp.zeros(x[0].astype(int)), errors.ConcretizationTypeError, "static"),
        (lambda x: f"{x[0]:.2f}", errors.ConcretizationTypeError, "print"),
        (lambda x: x + x.unsafe_buffer_pointer(), errors.ConcretizationTypeError, "outside"),
    ],
)
def test_questions_that_tracers_cannot_answer(function: Any, error: type[Exception], advice: str) -> None:
    """The error shows the user's line and says what to write."""
    with pytest.raises(error, match=advice) as caught:
        traced(function)
    assert "test_arrays.py" in str(caught.value)


TRANSFORMS: dict[str, Any] = {"jit": rlx.jit, "vmap": rlx.vmap, "jvp": lambda f: lambda x: rlx.jvp(f, (x,), (x,))}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_every_attribute_of_a_tracer_answers_or_says_why_not(transform: str) -> None:
    """No error is about the internals of arrays: each is one of rlx's, or names the attribute or an argument."""
    tried = []

    def f(x: Any) -> Any:
        for name in dir(X):
            if name.startswith("_"):
                continue
            tried.append(name)
            try:
                found = getattr(x, name)
                if callable(found):
                    found()
            except errors.RlxError:
                pass
            except AttributeError as error:
                assert name in str(error), (name, error)
            except TypeError as error:
                assert "argument" in str(error), (name, error)
        return x

    TRANSFORMS[transform](f)(rnp.ones((2, 3)))
    assert len(set(tried)) > 80


def test_tracers_answer_when_their_value_is_known() -> None:
    """Un-jitted grad: Python control flow on values works."""
    seen = []

    def function(x: Any) -> Any:
        fixed = rlx.lax.stop_gradient(x[0])  # a number with a derivative would be refused
        seen.append((float(fixed), int(x[1]), bool(x[2] > 0), fixed.item(), f"{x[0]:.1f}", repr(x)))
        return (x * x).sum() if x[0] > 1 else x.sum()

    assert rlx.grad(function)(rnp.array([2.0, 3.0, -1.0])).tolist() == [4.0, 6.0, -2.0]
    assert seen[0][:5] == (2.0, 3, False, 2.0, "2.0")
    assert seen[0][5].startswith("Traced<float32[3]>") and "2." in seen[0][5]


def test_tracers_know_their_shape() -> None:
    """len, iteration, shape and dtype are static; unknown values show their type."""
    shown = []

    def function(x: Any) -> Any:
        shown.append(repr(x))
        assert len(x) == 3 and x.shape == (3,) and x.dtype == np.float32
        first, *_ = x
        return first

    program, _ = traced(function)
    assert shown == ["Traced<float32[3]>"] and program.outputs[0].type.shape == ()


def test_scalars_and_dtypes() -> None:
    """dtype objects make arrays; NumPy scalars of 64 bits are weak, arrays are not."""
    assert rnp.float32(3).dtype == np.float32 and rnp.int8(3).dtype == np.int8
    assert rnp.float32 == np.dtype("f4") and rnp.bool_ == np.dtype(bool) and {rnp.float32: 1}[np.float32] == 1
    assert (rnp.ones(2) * np.sqrt(2.0)).dtype == np.float32
    assert (rnp.ones(2) * np.ones(2)).dtype == np.float64
    assert rnp.issubdtype(rnp.bfloat16, rnp.floating) and not rnp.issubdtype(rnp.int32, rnp.floating)
    assert rnp.finfo(rnp.bfloat16).bits == 16 and rnp.iinfo("uint8").max == 255
    with pytest.raises(errors.DtypeError, match="not a dtype"):
        rnp.zeros(2, "text")


def test_functions_along_axes() -> None:
    """vectorize, apply_along_axis, apply_over_axes."""
    x = np.arange(24.0, dtype="f4").reshape(2, 3, 4)
    for axis in (0, 1, -1):
        found = rnp.apply_along_axis(lambda row: rnp.stack([row.sum(), row.max()]), axis, x)
        np.testing.assert_allclose(found, np.apply_along_axis(lambda r: np.stack([r.sum(), r.max()]), axis, x))
    distance = rnp.vectorize(lambda a, b: rnp.abs(a - b).sum(), signature="(n),(n)->()")
    np.testing.assert_allclose(distance(x, x[:1, :1]), np.abs(x - x[:1, :1]).sum(-1))
    scalar = rnp.vectorize(lambda a, b: rnp.where(a > b, a, b))
    np.testing.assert_allclose(scalar(x, x[0, 0]), np.maximum(x, x[0, 0]))
    assert rnp.apply_over_axes(rnp.sum, x, [0, 2]).shape == (1, 3, 1)
    with pytest.raises(errors.ShapeError):
        distance(x, x[..., :2])
