"""Every kind of array that a user may hand over: right, or refused by name."""

from __future__ import annotations

import array
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors

BASE = np.arange(24, dtype=np.float64).reshape(4, 6) / 7


def _unaligned(x: np.ndarray) -> np.ndarray:
    room = np.empty(x.nbytes + 1, np.uint8)
    view = room[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    assert not view.flags.aligned
    return view


def _read_only(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y.flags.writeable = False
    return y


KINDS: dict[str, Callable[[], np.ndarray]] = {
    "contiguous": lambda: BASE,
    "column major": lambda: np.asfortranarray(BASE),
    "transposed": lambda: BASE.T,
    "negative strides": lambda: BASE[::-1, ::-1],
    "negative and skipping": lambda: BASE[::-2, ::3],
    "broadcast": lambda: np.broadcast_to(BASE[0], (3, 6)),
    "zero stride of one element": lambda: np.broadcast_to(np.float64(2.0), (2, 3)),
    "read-only": lambda: _read_only(BASE),
    "unaligned": lambda: _unaligned(BASE),
    "big-endian": lambda: BASE.astype(">f8"),
    "big-endian, negative strides": lambda: BASE.astype(">f8")[::-1],
    "zero rows": lambda: BASE[:0],
    "zero columns": lambda: BASE[:, :0],
    "zero everything": lambda: np.zeros((0, 0)),
    "0-d": lambda: np.asarray(1.5),
    "0-d of a view": lambda: BASE[2:3, 3].reshape(()),
    "0-d big-endian": lambda: np.asarray(1.5, ">f8"),
    "size-one axes": lambda: BASE[:1, None, :1],
    "many axes": lambda: np.arange(64.0).reshape((2,) * 6).transpose(5, 0, 4, 1, 3, 2),
    "overlapping windows": lambda: np.lib.stride_tricks.sliding_window_view(BASE.ravel(), 4),
    "a matrix": lambda: np.ma.asarray(BASE).filled(0),
    "float16": lambda: BASE.astype("f2")[::-1],
    "int8": lambda: (BASE * 20).astype("i1").T,
    "big-endian uint16": lambda: (BASE * 20).astype(">u2"),
    "big-endian complex": lambda: (BASE + 1j).astype(">c8"),
    "bool": lambda: (BASE > 1)[:, ::-1],
    "uint64": lambda: np.array([0, 2**63, 2**64 - 1], "u8"),
    "extreme int64": lambda: np.array([-(2**63), 2**63 - 1], "i8"),
    "special floats": lambda: np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])[::-1],
}


def _native(x: np.ndarray) -> np.ndarray:
    return x.astype(x.dtype.newbyteorder("="))


@pytest.mark.parametrize("kind", KINDS)
def test_values_survive(kind: str) -> None:
    """Eagerly, through jit unchanged and computed, closed over, and on the reference backend."""
    x = KINDS[kind]()
    plain = _native(x)
    before = plain.copy()

    def f(v: Any) -> Any:
        return v, v == v, v[..., None] if v.ndim else v, v.T

    expected = (plain, plain == plain, plain[..., None] if plain.ndim else plain, plain.T)
    traced_constant = rlx.jit(lambda: jnp.asarray(x) == x)
    for found in (f(jnp.asarray(x)), rlx.jit(f)(x), rlx.jit(f)(jnp.asarray(x))):
        for a, b in zip(found, expected, strict=True):
            a = np.asarray(a)
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(traced_constant(), plain == plain)
    np.testing.assert_array_equal(_native(x), before)


@pytest.mark.parametrize(
    "kind", ["negative strides", "broadcast", "unaligned", "big-endian", "overlapping windows", "zero rows", "0-d"]
)
def test_compiled_work_and_derivatives(kind: str) -> None:
    """Kernels, reductions and gradients read what NumPy reads."""
    x = KINDS[kind]()
    plain = np.ascontiguousarray(_native(x)).reshape(x.shape)
    f = rlx.jit(lambda v: (jnp.sin(v) * 2).sum())
    np.testing.assert_allclose(f(x), (np.sin(plain) * 2).sum(), rtol=1e-13)
    np.testing.assert_allclose(rlx.jit(rlx.grad(lambda v: (jnp.sin(v) * 2).sum()))(x), 2 * np.cos(plain), rtol=1e-13)


def test_arguments_are_not_written() -> None:
    """Neither by a call nor by donation of a NumPy array."""
    x = BASE.copy()
    step = rlx.jit(lambda v: v.at[0].set(0.0) * 2, donate_argnums=0)
    step(x)
    step(jnp.asarray(x))
    np.testing.assert_array_equal(x, BASE)


def test_results_do_not_share_memory_with_later_calls() -> None:
    """A result keeps its values when the function is called again."""
    f = rlx.jit(lambda v: v + 1)
    first = f(np.zeros(1000))
    second = f(np.ones(1000))
    np.testing.assert_array_equal(first, np.ones(1000))
    np.testing.assert_array_equal(second, np.full(1000, 2.0))


REFUSED: dict[str, Any] = {
    "objects": np.array([1, None], object),
    "text": np.array(["a", "b"]),
    "bytes": np.array([b"a"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "durations": np.array([1], "m8[s]"),
    "records": np.zeros(2, [("a", "f4"), ("b", "i4")]),
    "a masked array": np.ma.masked_array([1.0, 2.0], [True, False]),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize(
    "use", [jnp.sin, rlx.jit(lambda x: x), rlx.grad(lambda x: x.sum()), rlx.vmap(lambda x: x), jnp.asarray]
)
def test_refused_by_name(kind: str, use: Any) -> None:
    """InputTypeError, whichever way in."""
    with pytest.raises(errors.InputTypeError):
        use(REFUSED[kind])


def test_long_doubles() -> None:
    """Wider than any dtype of rlx: refused rather than narrowed."""
    if np.dtype(np.longdouble) == np.dtype(np.float64):
        pytest.skip("long double is double here")
    with pytest.raises(errors.InputTypeError):
        jnp.sin(np.ones(2, np.longdouble))


def test_other_buffers() -> None:
    """Lists for asarray; memoryviews, array.array and objects with __array__ everywhere."""

    class Holder:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.arange(3.0)

    class Own:
        def __rlx_array__(self) -> Any:
            return jnp.arange(3.0)

    np.testing.assert_array_equal(jnp.asarray([[1, 2], [3, 4]]), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(jnp.asarray(memoryview(array.array("d", [1.0, 2.0]))), [1.0, 2.0])
    for holder in (Holder(), Own()):
        np.testing.assert_array_equal(rlx.jit(lambda x: x * 2)(holder), [0.0, 2.0, 4.0])
        np.testing.assert_array_equal(jnp.asarray(holder), [0.0, 1.0, 2.0])


def test_numpy_subclasses() -> None:
    """A matrix counts as its array."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])
    out = rlx.jit(lambda x: x * x)(matrix)
    np.testing.assert_array_equal(out, [[1.0, 4.0], [9.0, 16.0]])


def test_dlpack_both_ways() -> None:
    """Zero copies are not promised, values are."""
    x = jnp.asarray(BASE)
    np.testing.assert_array_equal(np.from_dlpack(x), BASE)


def test_python_integers_that_do_not_fit() -> None:
    """Are refused rather than wrapped."""
    with pytest.raises((errors.DtypeError, OverflowError)):
        jnp.ones(2, "int8") + 1000
    with pytest.raises((errors.DtypeError, errors.InputTypeError, OverflowError)):
        rlx.jit(lambda x: x)(2**70)


def test_no_silent_narrowing() -> None:
    """64-bit arrays stay so, everywhere."""
    for dtype in ("float64", "int64", "uint64", "complex128"):
        x = np.ones(3, dtype)
        assert jnp.asarray(x).dtype == x.dtype
        assert rlx.jit(lambda v: v * 2)(x).dtype == x.dtype
        assert rlx.vmap(lambda v: v + 1)(x).dtype == x.dtype
