"""rlx arrays in the hands of others: NumPy, copy, pickle, pandas, matplotlib, scikit-learn."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp
from rlx import errors

X = rnp.arange(6.0).reshape(2, 3)
V = np.arange(6.0, dtype="f4").reshape(2, 3)

FUNCTIONS = {
    "ufunc": lambda x: np.exp(x) + np.maximum(x, 1),
    "reduce": lambda x: np.add.reduce(x, axis=1),
    "accumulate": lambda x: np.multiply.accumulate(x),
    "outer": lambda x: np.subtract.outer(x, x),
    "reductions": lambda x: np.sum(x, axis=0) + np.mean(x) + np.std(x, ddof=1),
    "joins": lambda x: np.concatenate([x, x], axis=1),
    "where": lambda x: np.where(x > 1, x, 0),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "linalg": lambda x: np.linalg.norm(x, axis=1),
    "fft": lambda x: np.fft.rfft(x).real,
    "statistics": lambda x: np.quantile(x, 0.3, axis=1),
    "polynomials": lambda x: np.polyfit(x[0], x[1], 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_functions(name: str) -> None:
    """NumPy's functions return its arrays for arrays with values; traced arrays stay traced, so NumPy code compiles."""
    found = FUNCTIONS[name](X)
    assert type(found) is np.ndarray and found.flags.writeable
    for made in (found, rlx.jit(FUNCTIONS[name])(X)):
        np.testing.assert_allclose(made, FUNCTIONS[name](V), rtol=1e-5, atol=1e-5)


def test_numpy_functions_have_derivatives() -> None:
    """Of a function that is differentiated, too."""
    np.testing.assert_allclose(rlx.grad(lambda x: np.sum(np.square(x)))(X), 2 * V)


def test_nothing_is_written_into() -> None:
    """In-place NumPy operations are refused, with the line and what to write instead."""
    for refused in (lambda: X.__setitem__(0, 1.0), lambda: np.add.at(X, 0, 1.0)):
        with pytest.raises(errors.ImmutableArrayError, match="immutable") as caught:
            refused()
        assert "test_interoperability.py" in str(caught.value)
    with pytest.raises(NotImplementedError, match="out"):
        np.exp(V, out=X)
    assert not np.asarray(X).flags.writeable
    y = X
    y += 1
    assert X.tolist() == V.tolist() and y.tolist() == (V + 1).tolist()


def test_index_errors_show_the_line() -> None:
    """What was out of bounds, where, and the advice."""
    for refused in (lambda: X[2], lambda: X[0, 0, 0], lambda: X.at[5].get(), lambda: rlx.jit(lambda x: x[0, 7])(X)):
        with pytest.raises(errors.IndexBoundsError) as caught:
            refused()
        assert "test_interoperability.py" in str(caught.value)
    with pytest.raises(IndexError, match="traced bound"):
        rlx.jit(lambda x, i: x[i:])(X, 1)


def test_copies_and_pickles() -> None:
    """Values, dtype and weakness survive; memory is not shared."""
    weak = rnp.asarray(2.0)
    bf16 = X.astype(rnp.bfloat16)
    for x in (X, weak, bf16, rnp.zeros((0, 3)), X.T):
        for made in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.copy(), rnp.copy(x)):
            assert made.tolist() == x.tolist() and made.dtype == x.dtype and made.weak_type == x.weak_type
            assert not x.size or not np.shares_memory(np.asarray(made), np.asarray(x))
    with pytest.raises(errors.ConcretizationTypeError, match="pickle"):
        rlx.jit(lambda x: pickle.dumps(x))(X)


@pytest.mark.parametrize("dtype", ["i2", "i4", "f4", "f8", "c8", "u8", "?"])
def test_bytes(dtype: str) -> None:
    """tobytes in both orders, byteswap eagerly and traced, addresses."""
    values = np.arange(6).reshape(2, 3).astype(dtype)
    x = rnp.asarray(values)
    assert x.tobytes() == values.tobytes() and x.tobytes("F") == values.tobytes("F")
    for swapped in (x.byteswap(), rlx.jit(lambda x: x.byteswap())(x)):
        assert np.asarray(swapped).tobytes() == values.byteswap().tobytes()
    assert rnp.asarray(values, copy=False).unsafe_buffer_pointer() == values.ctypes.data
    assert x.on_device_size_in_bytes() == values.nbytes and np.shares_memory(x.addressable_data(0), x)


class Wrapped:
    """An object that stands for an array."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __jax_array__(self) -> Any:
        return self.array


def test_objects_that_stand_for_arrays() -> None:
    """By __jax_array__, or by a shape and a dtype."""
    w = Wrapped(X)
    assert rnp.shape(w) == (2, 3) and rnp.ndim(w) == 2 and rnp.size(w, 1) == 3 and not rnp.iscomplexobj(w)
    assert (w.array + 1).tolist() == rnp.add(w, 1).tolist() == (X + w - V + 1).tolist()
    assert rnp.roll(X, Wrapped(rnp.int32(1))).tolist() == np.roll(V, 1).tolist()
    assert rnp.delete(X, Wrapped(rnp.int32(1)), axis=1).tolist() == np.delete(V, 1, axis=1).tolist()
    like = rlx.ShapeDtypeStruct((2,), np.dtype("i2"))
    assert rnp.zeros_like(like).dtype == np.int16 and rnp.full_like(like, 7).tolist() == [7, 7]


def test_pandas() -> None:
    """Series and frames of rlx arrays."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[0], "b": X[1]})
    assert frame["b"].sum() == 12.0 and frame.to_numpy().tolist() == V.T.tolist()
    assert rnp.sum(rnp.asarray(frame["a"].to_numpy())).item() == 3.0
    assert pandas.Series(X[0], index=np.asarray(X[1]))[4.0] == 1.0


def test_matplotlib() -> None:
    """Lines, scatter plots and images of rlx arrays."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    figures = pytest.importorskip("matplotlib.figure")
    axes = figures.Figure().subplots()
    (line,) = axes.plot(X[0], X[1])
    assert line.get_ydata().tolist() == V[1].tolist()
    assert axes.imshow(X).get_array().tolist() == V.tolist()
    axes.scatter(X[0], X[1], c=X[0])
    axes.hist(X[0], bins=2)


def test_sklearn() -> None:
    """An estimator fits rlx arrays."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    places = rnp.arange(8.0)[:, None]
    fitted = linear_model.LinearRegression().fit(places, 2 * places[:, 0] + 1)
    np.testing.assert_allclose(fitted.predict(places), np.arange(8) * 2 + 1, rtol=1e-5)
