"""NumPy's own functions on rlx arrays: each returns what it returns for a NumPy array, and the result is writable."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp
from rlx import errors

X = np.array([0.5, 0.25, 1.0, 0.75], "f4")
SQUARE = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
WHOLE = np.array([3, 1, 2, 2], "i4")
TRUE = np.array([True, False, True, True])
CUBE = np.arange(8.0).reshape(2, 2, 2)
COMPLEX = np.array([1 + 2j, 3 - 1j], "c8")
# arguments that are tried; those that NumPy refuses are left out
ARGUMENTS: tuple[tuple[Any, ...], ...] = (
    (X,),
    (SQUARE,),
    (WHOLE,),
    (CUBE,),
    (COMPLEX,),
    (X, X),
    (SQUARE, SQUARE),
    (WHOLE, WHOLE),
    (COMPLEX, COMPLEX),
    (SQUARE, SQUARE[0]),
    ([X, X],),
    ([SQUARE, SQUARE],),
    ((X, WHOLE),),
    (X, 1),
    (WHOLE, 1),
    (SQUARE, 0),
    (X, 0.5),
    (X, (2, 2)),
    (2, X),
    ("f4", X),
    (X, "f8"),
    (X, [1, 3]),
    (X, WHOLE - 1),
    (SQUARE, 0, 1),
    (X, 0, 1),
    (X, X, X),
    (TRUE, X),
    (TRUE, X, X),
    (X, TRUE),
    ([TRUE], [X]),
    (WHOLE - 1, (2, 2)),
    (WHOLE - 1, [X, X, X, X]),
    ("i,i->i", X, X),
    ("ij,jk", SQUARE, SQUARE),
    (SQUARE, 1, (0, 1)),
    (X, np.sort(X), X),
    (np.sum, X),
    (np.sum, 0, SQUARE),
    (X, [TRUE], [1.0]),
)
WRITERS = {"copyto", "putmask", "put", "place", "fill_diagonal", "put_along_axis"}
# new memory without values; files; settings; the object itself; a test of how many bits an address has
LEFT_OUT = {"empty_like", "empty", "save", "savez", "savez_compressed", "savetxt", "load", "loadtxt", "genfromtxt"} | {
    *("fromfile", "fromstring", "seterr", "seterrcall", "setbufsize", "set_printoptions", "printoptions", "errstate"),
    *("info", "show_config", "show_runtime", "test", "get_include", "asarray", "asanyarray", "ascontiguousarray"),
    *("asfortranarray", "asarray_chkfinite", "require", "from_dlpack", "frombuffer", "byte_bounds", "getbufsize"),
    *("broadcast_arrays", "typename", "iterable", "isscalar", "frompyfunc", "vectorize", "busday_count", "asmatrix"),
    *("bmat", "is_busday", "busday_offset", "isfortran", "shares_memory", "may_share_memory", "mintypecode"),
}


def _public(module: ModuleType) -> dict[str, Callable[..., Any]]:
    names = (name for name in module.__all__ if name not in LEFT_OUT | WRITERS)
    found = {name: getattr(module, name) for name in names}
    return {name: f for name, f in found.items() if callable(f) and not isinstance(f, type)}


FUNCTIONS = {
    f"{module.__name__}.{name}": function
    for module in (np, np.linalg, np.fft)
    for name, function in sorted(_public(module).items())  # NumPy makes __all__ of sets
}


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(function, v) for v in value)
    return function(value) if isinstance(value, np.ndarray) else value


def _accepted(function: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The arguments that a NumPy function takes, and what it returns for them."""
    for arguments in ARGUMENTS:
        if isinstance(function, np.ufunc) and len(arguments) > function.nin:
            continue  # the next one would be out=
        try:
            with np.errstate(all="ignore"):
                function(*_mapped(_read_only, arguments))  # refuses to write into an argument
                yield arguments, function(*_mapped(np.array, arguments))
        except Exception:
            continue


def _read_only(x: np.ndarray) -> np.ndarray:
    view = x.view()
    view.flags.writeable = False
    return view


def _compare(found: Any, expected: Any) -> None:
    """Same structure, types, dtypes, values; writable wherever NumPy's is."""
    assert type(found) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _compare(one, other)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
        if isinstance(expected, np.ndarray):
            assert found.flags.writeable or not expected.flags.writeable


@pytest.mark.selected(400)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_result_of_numpy(name: str) -> None:
    """With arrays of rlx as with arrays of NumPy, which stay as they are."""
    function = FUNCTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for arguments, expected in _accepted(function):
            given = _mapped(rnp.asarray, arguments)
            with np.errstate(all="ignore"):
                result = function(*given)
            _compare(result, expected)
            _mapped(lambda x: x.fill(7) if x.flags.writeable else None, result if isinstance(result, np.ndarray) else 0)
            for ours, theirs in zip(given, arguments, strict=True):
                if isinstance(theirs, np.ndarray):
                    np.testing.assert_array_equal(np.asarray(ours), theirs)


def test_arguments_fit() -> None:
    """Most functions take some of the arguments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        untried = {name for name, function in FUNCTIONS.items() if next(_accepted(function), None) is None}
    assert len(untried) < 50 < 300 < len(FUNCTIONS), untried


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_writers(name: str) -> None:
    """A function that would write into an array says what to write instead, with the line."""
    calls: dict[str, Callable[[Any], Any]] = {
        "copyto": lambda x: np.copyto(x, 1.0),
        "putmask": lambda x: np.putmask(x, TRUE, 1.0),
        "put": lambda x: np.put(x, [0], 1.0),
        "place": lambda x: np.place(x, TRUE, [1.0]),
        "fill_diagonal": lambda x: np.fill_diagonal(x[None], 1.0),
        "put_along_axis": lambda x: np.put_along_axis(x, WHOLE, 1.0, 0),
    }
    for transform in (lambda f: f, rlx.jit):
        with pytest.raises(errors.ImmutableArrayError, match=name) as caught:
            transform(calls[name])(rnp.asarray(X))
        assert "test_numpy_functions.py" in str(caught.value)


def test_operators_belong_to_rlx() -> None:
    """Between arrays and numbers of both libraries, in either order; in place they are the left side's."""
    x = rnp.asarray(X)
    for made in (X * x, x * X, X + x, X - x, X / x, X @ x, X**x, X // x, X % x, X < x, X == x, np.float64(2) * x):
        assert isinstance(made, rlx.Array)
    for made in (WHOLE & rnp.asarray(WHOLE), WHOLE << rnp.asarray(WHOLE), divmod(X, x)[0]):
        assert isinstance(made, rlx.Array)
    total = X.copy()
    total += x
    assert type(total) is np.ndarray and total.tolist() == (2 * X).tolist()
    total[1:] = x[1:]
    assert total.tolist() == [1.0, *X[1:].tolist()]
    assert np.add(X, x, out=total) is total


def test_traced_arrays_stay_traced() -> None:
    """Functions and ufuncs of a traced array are rlx's, beside concrete arrays, too."""
    x = rnp.asarray(X)

    def f(v: Any) -> Any:
        return np.sum(np.concatenate([x, v]) * np.maximum(x, v)[np.array([0, 1, 2, 3] * 2)]) + np.dot(X, np.sin(v))

    assert isinstance(rlx.eval_shape(f, x), rlx.ShapeDtypeStruct) and isinstance(f(x), np.generic)
    np.testing.assert_allclose(rlx.jit(f)(x), f(X), rtol=1e-6)
    rlx.testing.check_grads(f, (X.astype("f8") + 0.1,), order=1)


buffers = pytest.mark.skipif(sys.version_info < (3, 12), reason="classes written in Python are buffers from 3.12 on")


@buffers
@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_buffers(dtype: str) -> None:
    """An array is a read-only buffer, whose memory outlives the array."""
    values = np.arange(6).reshape(2, 3).astype(dtype)
    x = rnp.asarray(values)
    view = memoryview(x)
    assert view.readonly and view.nbytes == values.nbytes and view.format == memoryview(values).format
    assert view.shape == (2, 3) and bytes(x) == values.tobytes()
    assert np.shares_memory(np.asarray(view), np.asarray(x))
    x.delete()
    assert np.asarray(view).tolist() == values.tolist()


@buffers
def test_refused_buffers() -> None:
    """Dtypes without a format, and traced arrays."""
    for refused in (rnp.ones(2, "bfloat16"), rlx.random.key(0)):
        with pytest.raises(BufferError):
            memoryview(refused)
    with pytest.raises(TypeError):
        rlx.jit(lambda x: memoryview(x).nbytes)(X)
    assert np.asarray(rnp.ones(2, "bfloat16")).dtype.name == "bfloat16"
