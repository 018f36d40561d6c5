"""Conventions of JAX's and NumPy's for corners of single functions."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.errors import DtypeOverflowError, InputTypeError, UnsupportedError
from rlx.numpy.fft import _scale

# ------------------------------------------------------------------ integers that do not fit
GIANT = 2**70
TOO_LARGE: dict[str, Callable[[], Any]] = {
    "array": lambda: jnp.array(GIANT),
    "asarray": lambda: jnp.asarray(GIANT),
    "a sequence": lambda: jnp.array([GIANT]),
    "uint8": lambda: jnp.array(300, "uint8"),
    "negative": lambda: jnp.uint8(-1),
    "an operand": lambda: jnp.ones(2, "uint8") + 300,
    "an operand, traced": lambda: rlx.jit(lambda x: x + 300)(jnp.ones(2, "uint8")),
    "an operand of lax": lambda: rlx.lax.add(np.ones(2, "uint8"), 300),
    "an operand of lax, traced": lambda: rlx.jit(lambda x: rlx.lax.add(x, 300))(np.ones(2, "uint8")),
    "an argument of jit": lambda: rlx.jit(lambda x: x)(GIANT),
    "an argument of vmap": lambda: rlx.vmap(lambda x, n: x, (0, None))(jnp.ones(2), GIANT),
    "an operand of cond": lambda: rlx.lax.cond(True, lambda x: x, lambda x: x, GIANT),
    "full": lambda: jnp.full(2, 300, "uint8"),
    "full, traced": lambda: rlx.jit(lambda: jnp.full(2, 300, "uint8"))(),
    "full_like": lambda: jnp.full_like(jnp.ones(2, "int8"), 300),
    "lax.full": lambda: rlx.lax.full((2,), 300, np.uint8),
    "an update": lambda: jnp.ones(2, "uint8").at[0].set(300),
    "clip": lambda: jnp.clip(jnp.ones(2, "int8"), 0, 300),
    "device_put": lambda: rlx.device_put(GIANT),
    "a bound of randint": lambda: rlx.random.randint(rlx.random.key(0), (2,), 0, GIANT),
    "a seed": lambda: rlx.random.key(GIANT),
    "fold_in": lambda: rlx.random.fold_in(rlx.random.key(0), 2**32),
}


@pytest.mark.parametrize("call", TOO_LARGE.values(), ids=TOO_LARGE)
def test_an_integer_that_does_not_fit_is_an_overflow_error_with_a_lesson(call: Callable[[], Any]) -> None:
    with pytest.raises(DtypeOverflowError, match=r"fit|more than 64 bits") as caught:
        call()
    error = caught.value
    assert isinstance(error, OverflowError) and error.instead
    assert error.__suppress_context__ or error.__context__ is None


def test_integers_beyond_the_default_dtype_are_kept_in_a_wider_one() -> None:
    """JAX refuses them; nothing is lost here."""
    assert [(int(a), a.dtype.name) for a in map(jnp.array, (2**31, -(2**31) - 1, 2**63))] == [
        (2**31, "int64"),
        (-(2**31) - 1, "int64"),
        (2**63, "uint64"),
    ]


# ------------------------------------------------------------------ copies
COPIES: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: jnp.array(x, copy=True),
    "array with its dtype": lambda x: jnp.array(x, dtype=x.dtype),
    "asarray": lambda x: jnp.asarray(x, copy=True),
    "copy": jnp.copy,
    "the method": lambda x: x.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("function", COPIES.values(), ids=COPIES)
def test_a_copy_is_a_new_array_under_every_transform(function: Callable[[Any], Any]) -> None:
    x, direction = jnp.arange(3.0), jnp.ones(3)
    value, tangent = rlx.jvp(function, (x,), (direction,))
    primal, pull = rlx.vjp(function, x)
    (cotangent,) = pull(direction)
    results = [value, primal, function(x), rlx.vmap(function)(x), rlx.jit(function)(x)]
    for result, original in [*((r, x) for r in results), (tangent, direction), (cotangent, direction)]:
        np.testing.assert_array_equal(result, original)
        assert result.unsafe_buffer_pointer() != original.unsafe_buffer_pointer()
    x.delete()
    assert [r.is_deleted() for r in results] == [False] * len(results)


def test_a_copy_of_keys_and_of_what_the_user_may_write_to() -> None:
    keys = rlx.random.split(rlx.random.key(0), 3)
    assert rlx.vmap(jnp.copy)(keys) is not keys and bool((rlx.jit(jnp.copy)(keys) == keys).all())
    written = np.ones(3, np.float32)
    result = rlx.jit(jnp.array)(written)
    written[:] = 5
    assert result.tolist() == [1.0, 1.0, 1.0]


# ------------------------------------------------------------------ spacing
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_spacing_is_numpys_to_the_last_bit(dtype: Any) -> None:
    """Both signs, zeros, subnormals, powers of two, the largest number, infinities, NaN."""
    info = ml_dtypes.finfo(dtype)
    tiny, least = float(info.smallest_normal), float(info.smallest_subnormal)
    sizes = [0.0, least, 3 * least, tiny - least, tiny, 1.5 * tiny, 1.0, 1.5, 4.0, float(info.max), np.inf, np.nan]
    x = np.array([*sizes, *(-s for s in sizes)], dtype)
    with np.errstate(all="ignore"):
        expected = np.where(x == 0, abs(np.spacing(x)), np.spacing(x))  # of -0, ml_dtypes says otherwise than NumPy
    nan, bits = np.isnan(expected.astype(np.float64)), f"u{x.itemsize}"
    for found in (jnp.spacing(x), rlx.jit(jnp.spacing)(x)):
        found = np.asarray(found)
        assert np.array_equal(np.isnan(found.astype(np.float64)), nan)
        np.testing.assert_array_equal(found.view(bits)[~nan], expected.view(bits)[~nan])


@pytest.mark.parametrize("dtype", "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64".split())
def test_spacing_of_integers(dtype: str) -> None:
    x = np.array([0, 1, 3, 100]).astype(dtype)
    with jax.enable_x64(True):
        expected = jax.numpy.spacing(x)
    found = jnp.spacing(x)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


# ------------------------------------------------------------------ piecewise
def test_piecewise_traces_its_functions_once() -> None:
    seen: list[Any] = []

    def double(x: Any, by: Any = 2) -> Any:
        seen.append(x)
        return x * by

    x = jnp.arange(4.0)
    for _ in range(3):
        np.testing.assert_array_equal(jnp.piecewise(x, [x > 1], [double, 0.0]), [0.0, 0.0, 4.0, 6.0])
    assert len(seen) == 1
    for _ in range(2):
        np.testing.assert_array_equal(jnp.piecewise(x, [x > 1], [double, 0.0], 3), [0.0, 0.0, 6.0, 9.0])
        np.testing.assert_array_equal(jnp.piecewise(x, [x > 1], [double, 0.0], by=x), [0.0, 0.0, 4.0, 9.0])
    assert len(seen) == 3


def test_piecewise_takes_functions_that_look_at_values() -> None:
    for x in (jnp.arange(4.0), -jnp.arange(4.0)):
        expected = np.piecewise(np.asarray(x), [np.asarray(x) != 1], [lambda v: v if v[-1] > 0 else -v, 0.0])
        found = jnp.piecewise(x, [x != 1], [lambda v: v if v[-1] > 0 else -v, 0.0])
        np.testing.assert_array_equal(found, expected)


# ------------------------------------------------------------------ shapes, sets, ufuncs, interpolation
class _Sizes(Sequence[int]):
    """A shape that is no tuple."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: Any) -> Any:
        return self.sizes[index]


@pytest.mark.parametrize("shape", [_Sizes(2, 3), range(2, 4), _Sizes(-1, 2)])
def test_a_shape_is_any_sequence_of_integers(shape: Any) -> None:
    expected = np.arange(6).reshape(tuple(shape)).shape
    assert jnp.reshape(jnp.arange(6), shape).shape == jnp.arange(6).reshape(shape).shape == expected


@pytest.mark.parametrize("size", [None, 1, 3])
def test_setdiff1d_of_scalars_assumed_unique(size: int | None) -> None:
    one = jnp.arange(1).reshape(_Sizes())
    for other, left in ((jnp.array(5), [0]), (jnp.array(0), []), (jnp.arange(3), [])):
        expected = left if size is None else (left + [0] * size)[:size]
        assert jnp.setdiff1d(one, other, assume_unique=True, size=size).tolist() == expected
        assert jnp.setdiff1d(0, other, assume_unique=True, size=size).tolist() == expected


@pytest.mark.parametrize("name", ["nin", "nout", "nargs", "identity"])
def test_what_a_ufunc_says_of_itself_cannot_be_changed(name: str) -> None:
    for function in (jnp.add, jnp.frompyfunc(lambda x, y: x - y, 2, 1)):
        before = getattr(function, name)
        with pytest.raises(AttributeError):
            setattr(function, name, 7)
        assert getattr(function, name) == before


@pytest.mark.parametrize("period", [None, 2.5])
@pytest.mark.parametrize("outside", [None, 0.0, "extrapolate"])
@pytest.mark.selected(1)
def test_slopes_of_interp_are_jaxs_at_nan_at_places_and_outside(outside: Any, period: float | None) -> None:
    places = np.array([0.0, 1.0, 2.0, 3.0], np.float32)
    values = np.array([1.0, 3.0, 2.0, 5.0], np.float32)
    x = np.array([np.nan, -1.0, 0.0, 0.5, 1.0, 3.0, 4.0, np.inf, -np.inf], np.float32)

    def slopes(library: Any) -> Any:
        def f(x: Any, xp: Any, fp: Any) -> Any:
            return library.numpy.interp(x, xp, fp, left=outside, right=outside, period=period)

        return library.vmap(library.grad(f, (0, 1, 2)), (0, None, None))(x, places, values)

    for found, expected in zip(slopes(rlx), slopes(jax), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


# ------------------------------------------------------------------ large transforms, tokens
@pytest.mark.parametrize("lengths", [(2**17, 2**17), (2**22, 2**21, 2**20), (2**30, 2**30, 2**30)])
def test_norms_of_transforms_do_not_overflow(lengths: tuple[int, ...]) -> None:
    """The factors of more than 2**32 elements, and of more than 2**64 (of which there is no array)."""
    for norm, power in (("ortho", 0.5), ("forward", 1.0)):
        exponent = power * np.log2(np.array(lengths, np.float64)).sum()
        for kind, sign in (("fft", -1), ("rfft", -1), ("ifft", 1), ("irfft", 1)):
            assert _scale(kind, norm, math.prod(lengths)) == pytest.approx(2.0 ** (sign * exponent), rel=1e-15)


def test_tokens_and_sinks() -> None:
    def f(x: Any, token: Any) -> Any:
        rlx.lax.dce_sink(x * 2)
        return x, rlx.lax.after_all(token, rlx.lax.create_token())

    x, token = rlx.jit(f)(1.0, rlx.lax.create_token(123))
    assert float(x) == 1.0 and token.shape == (0,)
    assert rlx.lax.dce_sink(rlx.vmap(jnp.sin)(jnp.ones(3))) is None
    assert rlx.jit(rlx.lax.create_token)(1.0).dtype == bool
    with pytest.raises(InputTypeError, match=r"after_all got float32\[3\]"):
        rlx.lax.after_all(jnp.ones(3))
    with pytest.raises(InputTypeError):
        rlx.lax.dce_sink("text")
    with pytest.raises(UnsupportedError, match="Return the value"):
        rlx.lax.dce_sink(x, prevent_mlir_dce=True)


# ------------------------------------------------------------------ values that JAX's own tests found
_ROWS, _BITS = np.array([0, 1]), np.array([True, True, False, False, False])
PARTED = {
    "arrays": (slice(None), _ROWS, ..., _ROWS),
    "an integer first": (slice(None), 0, ..., _ROWS),
    "an integer last": (slice(None), _ROWS, ..., 0),
    "a mask": (slice(None), _ROWS, ..., _BITS),
    "and a new axis": (slice(None), _ROWS, None, ..., _ROWS),
    "in front": (_ROWS, ..., _ROWS, slice(None)),
    "next to no array": (..., slice(None), _ROWS, _ROWS),
    "behind": (slice(None), _ROWS, _ROWS, ...),
}


@pytest.mark.parametrize("index", PARTED.values(), ids=PARTED)
def test_an_ellipsis_of_no_axes_parts_index_arrays(index: Any) -> None:
    """As NumPy's: their axes then come first, when reading and when writing."""
    x = np.arange(60.0).reshape(3, 4, 5)
    for read in (lambda x: x[index], rlx.jit(lambda x: x[index])):
        np.testing.assert_array_equal(read(jnp.asarray(x)), x[index])
    update = np.arange(100.0, 100.0 + x[index].size).reshape(x[index].shape)
    expected = x.copy()
    expected[index] = update
    for mode in (None, "wrap"):
        np.testing.assert_array_equal(jnp.asarray(x).at[index].set(update, mode=mode), expected)


def test_a_wrapped_update_behind_a_bool_goes_to_its_own_axis() -> None:
    x, index = jnp.zeros((2, 3)), (True, jnp.array([1]), jnp.array([4]))
    expected = np.zeros((2, 3))
    expected[1, 1] = 7
    np.testing.assert_array_equal(x.at[index].set(7.0, mode="wrap"), expected)


@pytest.mark.parametrize("dtype", ["int64", "uint32", "uint64"])
@pytest.mark.parametrize("function", [jnp.tri, jnp.eye], ids=["tri", "eye"])
def test_a_traced_diagonal_far_away(function: Callable[..., Any], dtype: str) -> None:
    """The number of the diagonal is not cut to 32 bits."""
    numbers = [0, 1, 2**31, 2**32, 2**33 + 1, -1, -(2**31) - 1, -(2**33), 2**63 - 1, -(2**63)]
    info = np.iinfo(dtype)
    for k in (k for k in numbers if info.min <= k <= info.max):
        expected = getattr(np, function.__name__)(2, 3, k=max(-3, min(k, 4)))
        np.testing.assert_array_equal(rlx.jit(lambda k: function(2, 3, k=k))(np.array(k, dtype)), expected)


def test_bincount_counts_negative_numbers_as_zero() -> None:
    for x in ([-1], [-2, -1], [-3, 2], []):
        numbers = np.array(x, np.int32)
        np.testing.assert_array_equal(jnp.bincount(numbers), jax.numpy.bincount(numbers))


def test_bytes_viewed_as_bools_are_0_or_1() -> None:
    given = np.array([0, 1, 2, 23, 255], np.uint8)
    for view in (lambda x: x.view("bool"), rlx.jit(lambda x: x.view("bool"))):
        bools = view(jnp.asarray(given))
        assert np.asarray(bools).view(np.uint8).tolist() == [0, 1, 1, 1, 1]
        assert int(rlx.jit(jnp.sum)(bools)) == 4


def test_multigammaln_keeps_to_the_users_switches() -> None:
    with rlx.numpy_rank_promotion("raise"):
        found = rlx.jit(lambda a: rlx.scipy.special.multigammaln(a, 3))(jnp.full((2, 1), 5.0))
    np.testing.assert_allclose(found, jax.scipy.special.multigammaln(np.full((2, 1), 5.0, np.float32), 3), rtol=1e-5)


def test_a_permutation_of_a_number_has_one_axis() -> None:
    key = rlx.random.key(0)
    np.testing.assert_array_equal(rlx.random.permutation(key, 5, axis=-1), rlx.random.permutation(key, 5))
    with pytest.raises(ValueError, match="axis 3"):
        rlx.random.permutation(key, 5, axis=3)
